"""Digests of rows and other facts, by which a party recognises what it has read before."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from siloweave.tables.table import Table


def digest_of(*facts: Any) -> bytes:
    """Hash facts to 32 bytes, which are equal for equal facts and differ otherwise.

    A party recognises its rows by them; they never leave it. Facts are tables, whose rows and
    columns count in their order, whatever frame they came from; arrays; and what MessagePack can
    write.
    """
    digest = blake2b(digest_size=32)
    for fact in facts:
        for piece in _pieces(fact):
            # Its length goes first: otherwise "ab", "c" and "a", "bc" would agree.
            digest.update(len(piece).to_bytes(8, "big"))
            digest.update(piece)
    return digest.digest()


def _pieces(fact: Any) -> Iterator[bytes]:
    """Yield the bytes of a table, an array, or anything that MessagePack can write."""
    if isinstance(fact, Table):
        for name in fact.names:
            yield msgspec.msgpack.encode((name, fact.kind(name)))
            yield from _pieces(fact.values(name))
            yield from _pieces(fact.missing(name))
    elif isinstance(fact, np.ndarray) and fact.dtype.kind != "O":
        yield f"{fact.dtype.str}{fact.shape}".encode()
        yield fact.tobytes()
    else:
        # An array of objects has addresses for bytes.
        values = fact.tolist() if isinstance(fact, np.ndarray) else fact
        yield msgspec.msgpack.encode(values)
