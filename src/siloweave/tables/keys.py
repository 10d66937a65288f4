"""Random keys: immutable, derived by name, never global.

Every random function of the package takes ``key``. A key is a whole number or a
``numpy.random.SeedSequence``; a child key is derived from its parent and a path, so adding one
more random step never shifts the draws of another.
"""

from __future__ import annotations

import operator
from hashlib import blake2b
from numbers import Integral
from typing import Any

import numpy as np

from siloweave.errors import InputError

Key = int | np.random.SeedSequence
"""A whole number >= 0, or a seed sequence."""


def _sequence(key: Key) -> np.random.SeedSequence:
    """Turn a key into numpy's seed sequence; InputError for a value that is no key."""
    if isinstance(key, np.random.SeedSequence):
        return key
    number: Any = key
    # A boolean is a whole number for Python, and here surely a mistake.
    is_whole = isinstance(number, Integral) and not isinstance(number, bool)
    if not is_whole or number < 0:
        raise InputError(
            f"{key!r} is not a key or seed: give a whole number >= 0 or a numpy SeedSequence"
        )
    return np.random.SeedSequence(operator.index(key))


def _words(part: int | str) -> tuple[int, ...]:
    """Hash one name or number of a path to words; a letter before it keeps both kinds apart."""
    text = f"s:{part}" if isinstance(part, str) else f"i:{int(part)}"
    digest = blake2b(text.encode(), digest_size=8).digest()
    words = np.frombuffer(digest, dtype="<u4")
    return tuple(int(word) for word in words)


def words_of(key: Key) -> tuple[int, ...]:
    """Return the words that lead from a key's seed to the key, for `key_at`."""
    return tuple(_sequence(key).spawn_key)


def key_at(seed: int, words: tuple[int, ...]) -> np.random.SeedSequence:
    """Return the key to which words lead from a seed.

    Example:
        >>> key = fold_in(7, "rows", 2)
        >>> bool(generator(key).integers(100) == generator(key_at(7, words_of(key))).integers(100))
        True
    """
    return np.random.SeedSequence(seed, spawn_key=words)


def fold_in(key: Key, *path: int | str) -> np.random.SeedSequence:
    """Derive the child of a key that belongs to a path of names and numbers.

    The child depends on the key and the whole path only; the key is not changed.

    Args:
        key: A whole number >= 0 or a ``SeedSequence``.
        path: Names or numbers; each is hashed (BLAKE2b), so ``1`` and ``"1"`` differ.

    Raises:
        InputError: When ``key`` is not a key.

    Example:
        >>> a = generator(fold_in(7, "round", 1)).integers(100)
        >>> bool(a == generator(fold_in(fold_in(7, "round"), 1)).integers(100))
        True
    """
    parent = _sequence(key)
    words = list(parent.spawn_key)
    for part in path:
        words += _words(part)
    spawn_key = tuple(words)
    return np.random.SeedSequence(parent.entropy, spawn_key=spawn_key)


def generator(key: Key) -> np.random.Generator:
    """Return a new random generator (PCG64) for a key; equal keys give equal draws.

    Raises:
        InputError: When ``key`` is not a key.
    """
    bits = np.random.PCG64(_sequence(key))
    return np.random.Generator(bits)
