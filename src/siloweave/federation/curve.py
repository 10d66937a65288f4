"""Points of Curve25519 made from ids, their secret powers, and tables that do not show their keys.

A digest becomes a point by Elligator 2 (Bernstein, Hamburg, Krasnova and Lange 2013, section 5;
RFC 9380, section 6.7.1), so every point lies on the curve and none on its twist, and nobody knows
its logarithm. Powers are X25519 (RFC 7748) by the package ``cryptography``, whose scalars are
multiples of 8, which clears the cofactor. ``cryptography`` keeps the interpreter's lock while it
computes (measured: two threads take as long as one), so work is shared among *processes*: this
file is run again as a program that reads from its standard input. It therefore imports nothing of
ours while it is loaded.

A table (`hide`, `look_up`) is an oblivious key-value store (Garimella, Pinkas, Rosulek, Trieu and
Yanai 2021, "Oblivious key-value stores and amplification for private set intersection", section 4)
in its plainest form: three cells per key, in three equal parts of the table, whose exclusive or is
the value; cells are found by peeling (Botelho, Pagh and Ziviani 2007). Looking up a key that is not
there gives a value like any other.

**Guarantee** (of a table): if the values are indistinguishable from random, so is the whole table,
whatever the keys (the cells that no key needs are filled at random). A seed under which peeling
fails is drawn again, which shows of the keys only that they do not collide under the one that was
taken; with the sizes below that happens less than once in a hundred tables.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

POINT = 32
"""Bytes of a point and of a scalar; a digest has twice as many."""

ORDER = 2**252 + 27742317777372353535851937790883648493
"""Order of the group of points that X25519 computes in."""

VALUE = SEED = 16
"""Bytes of a value in a table, and of a table's seed."""

Words = npt.NDArray[np.uint64]
"""Values of 16 bytes, (number, 2)."""

_Places = npt.NDArray[np.int64]
_P = 2**255 - 19
_A = 486662
_LEAST = 4096  # points that are worth a process of their own
_TRIES = 64


def invertible(draw: bytes) -> tuple[bytes, bytes] | None:
    """Two scalars whose product is 1 modulo `ORDER`, from 32 random bytes, or None.

    X25519 sets five bits of a scalar, so of the multiples of 8 from 2^254 to 2^255 only about
    every second has an inverse among them; draw again where it has no such inverse.
    """
    scalar = (int.from_bytes(draw, "little") & (2**255 - 8)) % 2**254 + 2**254
    inverse = pow(scalar, -1, ORDER)
    for undo in range(inverse + ORDER * ((2**254 - inverse) // ORDER), 2**255, ORDER):
        if undo >= 2**254 and undo % 8 == 0:
            return scalar.to_bytes(POINT, "little"), undo.to_bytes(POINT, "little")
    return None


def map_to_curve(digests: Sequence[int]) -> list[int]:
    """Elligator 2: the x coordinate of a point of the curve for each number modulo 2^255 - 19."""
    below = [1 + 2 * u * u % _P for u in digests]
    found = []
    for d, over in zip(below, _inverses(below), strict=True):
        x = -_A * over % _P
        # x^3 + A x^2 + x, times d^4, is a square exactly if it is one without.
        square = _jacobi(_A * d * (_A * _A * (d - 1) - d * d) % _P, _P) >= 0
        found.append(x if square else (-x - _A) % _P)
    return found


def _inverses(values: Sequence[int]) -> list[int]:
    """All inverses modulo p for the price of one (Montgomery's trick); no value is 0."""
    products = [1]
    for value in values:
        products.append(products[-1] * value % _P)
    last = pow(products[-1], -1, _P)
    found = []
    for value, before in zip(reversed(values), reversed(products[:-1]), strict=True):
        found.append(last * before % _P)
        last = last * value % _P
    return found[::-1]


def _jacobi(a: int, n: int) -> int:
    """Jacobi's symbol (a/n) for odd n: 1 or -1, or 0 where they have a common factor."""
    sign = 1
    while a:
        twos = (a & -a).bit_length() - 1
        a >>= twos
        if twos & 1 and n & 7 in (3, 5):
            sign = -sign
        if a & n & 2:
            sign = -sign
        a, n = n % a, a
    return sign if n == 1 else 0


def _points(digests: bytes) -> bytes:
    numbers = [
        int.from_bytes(digests[i : i + 2 * POINT], "little") % _P
        for i in range(0, len(digests), 2 * POINT)
    ]
    return b"".join(x.to_bytes(POINT, "little") for x in map_to_curve(numbers))


def _raised(points: bytes, scalar: bytes) -> bytes:
    secret = X25519PrivateKey.from_private_bytes(scalar)
    public = X25519PublicKey.from_public_bytes
    return b"".join(
        secret.exchange(public(points[i : i + POINT])) for i in range(0, len(points), POINT)
    )


def powers(points: bytes, scalar: bytes, workers: int = 1) -> bytes:
    """Every point of 32 bytes to one secret power, in order; few points stay in this process.

    ValueError if a point has a small order, so that its power would be zero.
    """
    return _shared(b"p", points, POINT, scalar, workers)


def hashed_powers(digests: bytes, scalar: bytes, workers: int = 1) -> bytes:
    """Points of digests, 64 uniform bytes each, to one secret power; see `powers`."""
    return _shared(b"h", digests, 2 * POINT, scalar, workers)


def _compute(task: bytes, data: bytes, scalar: bytes) -> bytes:
    return _raised(_points(data) if task == b"h" else data, scalar)


def _shared(task: bytes, data: bytes, size: int, scalar: bytes, workers: int) -> bytes:
    number = len(data) // size
    workers = min(workers, number // _LEAST)
    if workers < 2 or not sys.executable:
        return _compute(task, data, scalar)
    step = -(-number // workers) * size
    pieces = [data[i : i + step] for i in range(0, len(data), step)]
    with ThreadPoolExecutor(len(pieces)) as pool:
        return b"".join(pool.map(lambda piece: _elsewhere(task, piece, scalar), pieces))


def _elsewhere(task: bytes, data: bytes, scalar: bytes) -> bytes:
    """The same in a process of its own; here if none can be started."""
    from siloweave.federation import processes  # not while this file is loaded, see above

    command = [sys.executable, "-P", str(Path(__file__).resolve())]
    try:
        done = subprocess.run(  # noqa: S603  this very file, by this very interpreter
            command,
            input=task + scalar + data,
            capture_output=True,
            check=True,
            env=processes.environment(),
            cwd=processes.WORKING,
        )
    except (OSError, subprocess.CalledProcessError):
        return _compute(task, data, scalar)
    return done.stdout


def cells(keys: int) -> int:
    """How many cells a table for so many keys has."""
    return 3 * (-(-9 * keys // 20) + 32)


def hide(keys: Sequence[bytes], values: Words) -> tuple[bytes, Words]:
    """The seed and the cells, (`cells`, 2), of a table from different keys to random values."""
    number = cells(len(keys))
    for _ in range(_TRIES):
        seed = os.urandom(SEED)
        places = _places(keys, seed, number)
        rounds = _peel(places, number)
        if rounds is not None:
            table: Words = np.frombuffer(os.urandom(number * VALUE), dtype=np.uint64).copy()
            return seed, _filled(table.reshape(number, 2), places, values, rounds)
    from siloweave.errors import WireError

    raise WireError("ids could not be hidden in a table; are they all different?")


def look_up(keys: Sequence[bytes], seed: bytes, table: Words) -> Words:
    """The value of every key; of a key that was not hidden, something random."""
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


if __name__ == "__main__":
    task = sys.stdin.buffer.read()
    sys.stdout.buffer.write(_compute(task[:1], task[1 + POINT :], task[1 : 1 + POINT]))
