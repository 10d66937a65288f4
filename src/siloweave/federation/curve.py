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
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

POINT = 32
"""Bytes of a point and of a scalar; a digest has twice as many."""

ORDER = 2**252 + 27742317777372353535851937790883648493
"""Order of the group of points that X25519 computes in."""

VALUE = SEED = 16
"""Bytes of a value in a table, and of a table's seed."""

Words = npt.NDArray[np.uint64]
"""Values of 16 bytes, (number, 2)."""

_Places = npt.NDArray[np.int64]
_P = 2**255 - 19  # of the field of Curve25519 (RFC 7748, section 4.1)
_A = 486662  # of its equation y^2 = x^3 + A x^2 + x
_LEAST = 4096  # points that are worth a process of their own
_TRIES = 64  # of which less than one in a hundred fails, see above


def invertible(draw: bytes) -> tuple[bytes, bytes] | None:
    """Make two scalars whose product is 1 modulo `ORDER` from 32 random bytes, or return None.

    X25519 sets five bits of a scalar, so of the multiples of 8 from 2^254 to 2^255 only about
    every second has an inverse among them; draw again where it has no such inverse.
    """
    # As X25519 reads a scalar (RFC 7748, section 5): bits 0 to 2 are 0, bit 254 is 1.
    scalar = (int.from_bytes(draw, "little") & (2**255 - 8)) % 2**254 + 2**254
    inverse = pow(scalar, -1, ORDER)

    # Of all numbers that are the inverse modulo ORDER, one that X25519 does not change.
    first_candidate = inverse + ORDER * ((2**254 - inverse) // ORDER)
    for candidate in range(first_candidate, 2**255, ORDER):
        if candidate >= 2**254 and candidate % 8 == 0:
            return scalar.to_bytes(POINT, "little"), candidate.to_bytes(POINT, "little")
    return None


def map_to_curve(digests: Sequence[int]) -> list[int]:
    """Map each number modulo 2^255 - 19 to the x coordinate of a point of the curve (Elligator 2).

    Of RFC 9380, section 6.7.1, with the non-square 2.
    """
    denominators = [1 + 2 * u * u % _P for u in digests]
    coordinates = []
    for d, inverse in zip(denominators, _inverses(denominators), strict=True):
        # Of x = -A / d and -x - A one is on the curve: where x^3 + A x^2 + x is a square.
        x = -_A * inverse % _P
        # x^3 + A x^2 + x, times d^4, is a square exactly if it is one without.
        is_square = _jacobi(_A * d * (_A * _A * (d - 1) - d * d) % _P, _P) >= 0
        coordinates.append(x if is_square else (-x - _A) % _P)
    return coordinates


def _inverses(values: Sequence[int]) -> list[int]:
    """Invert all values modulo p for the price of one (Montgomery's trick); no value is 0."""
    # products[i] is that of all values before the i-th.
    products = [1]
    for value in values:
        products.append(products[-1] * value % _P)

    # From the last: the inverse of a product of i values, times those before, leaves the i-th's.
    inverse_product = pow(products[-1], -1, _P)
    inverses = []
    for value, product_before in zip(
        reversed(values), reversed(products[:-1]), strict=True
    ):
        inverses.append(inverse_product * product_before % _P)
        inverse_product = inverse_product * value % _P
    return inverses[::-1]


def _jacobi(a: int, n: int) -> int:
    """Compute Jacobi's symbol (a/n) for odd n: 1 or -1, or 0 with a common factor."""
    sign = 1
    while a:
        # (2/n) is -1 where n is 3 or 5 modulo 8.
        twos = (a & -a).bit_length() - 1
        a >>= twos
        if twos & 1 and n & 7 in (3, 5):
            sign = -sign
        # Quadratic reciprocity: (a/n) and (n/a) differ where both are 3 modulo 4.
        if a & n & 2:
            sign = -sign
        a, n = n % a, a
    return sign if n == 1 else 0


def _points(digests: bytes) -> bytes:
    """Map digests of 64 bytes to points."""
    # Twice a point's length, so that the numbers are all but uniform modulo p.
    size = 2 * POINT
    starts = range(0, len(digests), size)
    numbers = [int.from_bytes(digests[i : i + size], "little") % _P for i in starts]
    return b"".join(x.to_bytes(POINT, "little") for x in map_to_curve(numbers))


def _raised(points: bytes, scalar: bytes) -> bytes:
    """Raise every point to one secret power; ValueError for one of small order."""
    private_key = X25519PrivateKey.from_private_bytes(scalar)
    read_point = X25519PublicKey.from_public_bytes
    starts = range(0, len(points), POINT)
    return b"".join(
        private_key.exchange(read_point(points[i : i + POINT])) for i in starts
    )


def powers(points: bytes, scalar: bytes, workers: int = 1) -> bytes:
    """Raise every point of 32 bytes to one secret power, in order.

    Few points stay in this process; many are shared among as many as `workers`.

    ValueError if a point has a small order, so that its power would be zero.
    """
    return _shared(b"p", points, POINT, scalar, workers)


def hashed_powers(digests: bytes, scalar: bytes, workers: int = 1) -> bytes:
    """Raise the points of digests, 64 uniform bytes each, to a secret power; see `powers`."""
    return _shared(b"h", digests, 2 * POINT, scalar, workers)


def _compute(task: bytes, data: bytes, scalar: bytes) -> bytes:
    """Run a task in this process: b"h" raises the points of digests, b"p" raises points."""
    points = _points(data) if task == b"h" else data
    return _raised(points, scalar)


def _shared(task: bytes, data: bytes, size: int, scalar: bytes, workers: int) -> bytes:
    """Run a task on items of `size` bytes, in several processes if that is worth it."""
    number = len(data) // size
    processes_used = min(workers, number // _LEAST)
    if processes_used < 2 or not sys.executable:
        return _compute(task, data, scalar)
    step = -(-number // processes_used) * size
    pieces = [data[i : i + step] for i in range(0, len(data), step)]
    # A thread for each process, to feed it and to wait for it.
    with ThreadPoolExecutor(len(pieces)) as pool:
        return b"".join(pool.map(lambda piece: _elsewhere(task, piece, scalar), pieces))


def _elsewhere(task: bytes, data: bytes, scalar: bytes) -> bytes:
    """Run a task in a process of its own, or in this one if none can be started."""
    # Not while this file is loaded, see above.
    from siloweave.federation import processes

    # -P: no module of the current folder. The secret goes over standard input, which no list of
    # processes shows.
    command = [sys.executable, "-P", str(Path(__file__).resolve())]
    try:
        result = subprocess.run(  # noqa: S603  this very file, by this very interpreter
            command,
            input=task + scalar + data,
            capture_output=True,
            check=True,
            env=processes.environment(),
            cwd=processes.WORKING,
        )
    except (OSError, subprocess.CalledProcessError):
        # Also where a point has a small order: computed here, it raises its own error.
        return _compute(task, data, scalar)
    return result.stdout


def cells(keys: int) -> int:
    """Return the number of cells of a table for so many keys."""
    # 1.35 cells per key, and some for small tables. Peeling three cells a key succeeds above 1.23
    # (Botelho, Pagh and Ziviani 2007).
    return 3 * (-(-9 * keys // 20) + 32)


def hide(keys: Sequence[bytes], values: Words) -> tuple[bytes, Words]:
    """Build a table from different keys to values; return its seed and its cells, (`cells`, 2).

    The values must be random, see above. WireError if the keys are not different.
    """
    number = cells(len(keys))
    for _ in range(_TRIES):
        seed = os.urandom(SEED)
        places = _places(keys, seed, number)
        rounds = _peel(places, number)
        if rounds is not None:
            # Random to begin with: a cell that no key needs must look like any other.
            random_bytes = os.urandom(number * VALUE)
            table: Words = np.frombuffer(random_bytes, dtype=np.uint64).copy()
            return seed, _filled(table.reshape(number, 2), places, values, rounds)
    from siloweave.errors import WireError  # not while this file is loaded, see above

    raise WireError("ids could not be hidden in a table; are they all different?")


def look_up(keys: Sequence[bytes], seed: bytes, table: Words) -> Words:
    """Look every key up in a table; a key that is not in it gives a random value."""
    first, second, third = _places(keys, seed, len(table)).T
    values: Words = table[first] ^ table[second] ^ table[third]
    return values


def _places(keys: Sequence[bytes], seed: bytes, number: int) -> _Places:
    """Return the three cells of each key, (keys, 3), one in each third of the table."""
    hashes = (
        blake2b(key, digest_size=24, key=seed, person=b"siloweave cells")
        for key in keys
    )
    hashed = b"".join(key_hash.digest() for key_hash in hashes)
    third = number // 3
    words = np.frombuffer(hashed, dtype="<u8").reshape(-1, 3) % np.uint64(third)
    places: _Places = words.astype(np.int64) + np.arange(3) * third
    return places


def _peel(places: _Places, number: int) -> list[tuple[_Places, _Places]] | None:
    """Sort keys into rounds, each with a cell that no key of a later round needs.

    None if keys are left of which each cell is needed by another one.
    """
    remaining = np.arange(len(places))
    uses = np.bincount(places.ravel(), minlength=number)
    rounds = []
    while len(remaining):
        is_unshared = uses[places[remaining]] == 1
        is_free = is_unshared.any(axis=1)
        if not is_free.any():
            return None
        peeled = remaining[is_free]
        free_cells = places[peeled, is_unshared[is_free].argmax(axis=1)]
        rounds.append((peeled, free_cells))
        uses -= np.bincount(places[peeled].ravel(), minlength=number)
        remaining = remaining[~is_free]
    return rounds


def _filled(
    table: Words, places: _Places, values: Words, rounds: list[tuple[_Places, _Places]]
) -> Words:
    """Write each key's value into a table, by the cell that is free for the key."""
    # Backwards: a key's free cell is needed by none that was peeled after it, so that filling it
    # changes no value that stands already.
    for keys, free_cells in reversed(rounds):
        table[free_cells] = 0
        first, second, third = places[keys].T
        table[free_cells] = values[keys] ^ table[first] ^ table[second] ^ table[third]
    return table


if __name__ == "__main__":
    task = sys.stdin.buffer.read()
    sys.stdout.buffer.write(_compute(task[:1], task[1 + POINT :], task[1 : 1 + POINT]))
