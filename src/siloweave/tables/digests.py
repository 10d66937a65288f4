"""Digests of what a party holds, by which it knows its rows again; they never leave it."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from siloweave.tables.read import Table

__all__ = ["digest_of"]


def digest_of(*facts: Any) -> bytes:
    """Return 32 bytes that agree when the facts do, and otherwise differ.

    Args:
        facts: Tables, whose rows and columns count in their order, whatever frame they came from;
            arrays; and what MessagePack can write.

    Example:
        >>> rows = Table.from_columns({"age": (np.array([30, 40]), None)})
        >>> digest_of(rows) == digest_of(rows.take([0, 1])), digest_of(rows) == digest_of(rows, 1)
        (True, False)
    """
    digest = blake2b(digest_size=32)
    for fact in facts:
        for piece in _pieces(fact):
            digest.update(len(piece).to_bytes(8, "big"))
            digest.update(piece)
    return digest.digest()


def _pieces(fact: Any) -> Iterator[bytes]:
    if isinstance(fact, Table):
        for name in fact.names:
            yield msgspec.msgpack.encode((name, fact.kind(name)))
            yield from _pieces(fact.values(name))
            yield from _pieces(fact.missing(name))
    elif isinstance(fact, np.ndarray) and fact.dtype.kind != "O":
        yield f"{fact.dtype.str}{fact.shape}".encode()
        yield fact.tobytes()
    else:
        yield msgspec.msgpack.encode(fact.tolist() if isinstance(fact, np.ndarray) else fact)
