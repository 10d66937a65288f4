"""Points of Curve25519 made from ids and raised to secret powers, many at once.

A digest becomes a point by Elligator 2 (Bernstein, Hamburg, Krasnova and Lange 2013, section 5;
RFC 9380, section 6.7.1), so every point lies on the curve and none on its twist, and nobody knows
its logarithm. Powers are X25519 (RFC 7748) by the package ``cryptography``, whose scalars are
multiples of 8, which clears the cofactor. ``cryptography`` keeps the interpreter's lock while it
computes (measured: two threads take as long as one), so work is shared among *processes*: this
file is run again as a program that reads from its standard input. It therefore imports nothing of
ours.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

__all__ = ["ORDER", "POINT", "hashed_powers", "invertible", "map_to_curve", "powers"]

# Bytes of a point, a digest and a scalar.
POINT = 32

# Order of the group of points that X25519 computes in.
ORDER = 2**252 + 27742317777372353535851937790883648493

_P = 2**255 - 19
_A = 486662
_LEAST = 4096  # points that are worth a process of their own


def invertible(draw: bytes) -> tuple[bytes, bytes] | None:
    """A scalar and the one that undoes it, or None if X25519 cannot express the latter.

    X25519 sets five bits of a scalar, so of the multiples of 8 from 2^254 to 2^255 only about
    every second has an inverse among them; draw again where there is none.

    Args:
        draw: 32 random bytes.

    Returns:
        Two scalars of 32 bytes whose product is 1 modulo `ORDER`.
    """
    scalar = (int.from_bytes(draw, "little") & (2**255 - 8)) % 2**254 + 2**254
    inverse = pow(scalar, -1, ORDER)
    for undo in range(inverse + ORDER * ((2**254 - inverse) // ORDER), 2**255, ORDER):
        if undo >= 2**254 and undo % 8 == 0:
            return scalar.to_bytes(POINT, "little"), undo.to_bytes(POINT, "little")
    return None


def map_to_curve(digests: Sequence[int]) -> list[int]:
    """Elligator 2: the x coordinate of a point of the curve for each number modulo 2^255 - 19.

    Example:
        >>> one, same, other = map_to_curve([5, 2**255 - 19 - 5, 6])
        >>> one == same, one == other
        (True, False)
    """
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
    """Every point to one secret power.

    Args:
        points: 32 bytes each.
        scalar: 32 bytes.
        workers: Processes to share the work among; few points stay in this one.

    Returns:
        The points, in the same order.

    Raises:
        ValueError: A point has a small order, so that its power would be zero.
    """
    return _shared(b"p", points, POINT, scalar, workers)


def hashed_powers(digests: bytes, scalar: bytes, workers: int = 1) -> bytes:
    """Points of digests, to one secret power; see `powers`.

    Args:
        digests: 64 uniform bytes each.
        scalar: 32 bytes.
        workers: Processes to share the work among.
    """
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
    command = [sys.executable, "-P", str(Path(__file__).resolve())]
    try:
        done = subprocess.run(  # noqa: S603  this very file, by this very interpreter
            command, input=task + scalar + data, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return _compute(task, data, scalar)
    return done.stdout


if __name__ == "__main__":
    given = sys.stdin.buffer.read()
    sys.stdout.buffer.write(_compute(given[:1], given[1 + POINT :], given[1 : 1 + POINT]))
