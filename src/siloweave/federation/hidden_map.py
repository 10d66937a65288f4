"""A map from keys to random-looking values that does not show its keys.

An oblivious key-value store (Garimella, Pinkas, Rosulek, Trieu and Yanai 2021, "Oblivious
key-value stores and amplification for private set intersection", section 4) in its plainest form:
three cells per key, in three equal parts of the table, whose exclusive or is the value; cells are
found by peeling (Botelho, Pagh and Ziviani 2007). Looking up a key that is not there gives a value
like any other.

**Guarantee**: if the values are indistinguishable from random, so is the whole table, whatever the
keys (the cells that no key needs are filled at random). A seed under which peeling fails is drawn
again, which says of the keys only that they do not collide under the one that was taken; with the
sizes below that happens less than once in a hundred tables.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from siloweave.errors import WireError

__all__ = ["SEED", "VALUE", "cells", "hide", "look_up"]

# Bytes of a value.
VALUE = 16

# Bytes of a table's seed.
SEED = 16

Words = npt.NDArray[np.uint64]  # (number, 2): values of 16 bytes
_Places = npt.NDArray[np.int64]
_TRIES = 64


def cells(keys: int) -> int:
    """How many cells a table for so many keys has.

    Example:
        >>> cells(45_000) / 45_000 < 1.36
        True
    """
    return 3 * (-(-9 * keys // 20) + 32)


def hide(keys: Sequence[bytes], values: Words) -> tuple[bytes, Words]:
    """Make a table.

    Args:
        keys: All different.
        values: (number of keys, 2) random-looking words.

    Returns:
        Seed, and (`cells`, 2) words.
    """
    number = cells(len(keys))
    for _ in range(_TRIES):
        seed = os.urandom(SEED)
        places = _places(keys, seed, number)
        rounds = _peel(places, number)
        if rounds is not None:
            table: Words = np.frombuffer(os.urandom(number * VALUE), dtype=np.uint64).copy()
            return seed, _filled(table.reshape(number, 2), places, values, rounds)
    raise WireError("ids could not be hidden in a table; are they all different?")


def look_up(keys: Sequence[bytes], seed: bytes, table: Words) -> Words:
    """The value of every key; of a key that was not hidden, something random.

    Returns:
        (number of keys, 2) words.
    """
    first, second, third = _places(keys, seed, len(table)).T
    found: Words = table[first] ^ table[second] ^ table[third]
    return found


def _places(keys: Sequence[bytes], seed: bytes, number: int) -> _Places:
    """Three cells per key, one in each third of the table."""
    hashed = b"".join(
        blake2b(key, digest_size=24, key=seed, person=b"siloweave cells").digest() for key in keys
    )
    part = number // 3
    words = np.frombuffer(hashed, dtype="<u8").reshape(-1, 3) % np.uint64(part)
    places: _Places = words.astype(np.int64) + np.arange(3) * part
    return places


def _peel(places: _Places, number: int) -> list[tuple[_Places, _Places]] | None:
    """Rounds of keys with a cell that no key of a later round needs; None if some are left."""
    left = np.arange(len(places))
    uses = np.bincount(places.ravel(), minlength=number)
    rounds = []
    while len(left):
        alone = uses[places[left]] == 1
        free = alone.any(axis=1)
        if not free.any():
            return None
        gone = left[free]
        rounds.append((gone, places[gone, alone[free].argmax(axis=1)]))
        uses -= np.bincount(places[gone].ravel(), minlength=number)
        left = left[~free]
    return rounds


def _filled(
    table: Words, places: _Places, values: Words, rounds: list[tuple[_Places, _Places]]
) -> Words:
    for keys, own in reversed(rounds):
        table[own] = 0
        first, second, third = places[keys].T
        table[own] = values[keys] ^ table[first] ^ table[second] ^ table[third]
    return table
