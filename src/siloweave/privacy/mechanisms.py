"""The only places where noise is drawn: exact integers, from the party's own entropy.

Methods call these *through this module* (``mechanisms.add_gaussian(...)``), so that a test can
record what went in and replay what came out. Paying for the release in the ledger comes first and
is the caller's duty.

Not defended against: an observer who can time single draws on the party's own machine.
"""

import hashlib
import math
import os
from bisect import bisect_right
from decimal import Context, Decimal
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import ArrayLike, NDArray

from siloweave.errors import InputError

#: Bound on the total variation distance between one table draw and the exact distribution.
TV_PER_DRAW = 2.0**-95
#: Bound on what integer weights add to the privacy loss of one selection, in nats.
EXPONENTIAL_SLACK = 2.0**-90
#: Bounds on the epsilon of one randomised answer.
LEAST_RESPONSE, MOST_RESPONSE = 1e-6, 50.0
#: Most entries in a table of thresholds; wider noise is drawn by OpenDP.
LARGEST_TABLE = 2**20

Int64s = NDArray[np.int64]


class Entropy(Protocol):
    """Where random bits come from. Conforming: :class:`OSEntropy`, :class:`SeededEntropy`."""

    @property
    def private(self) -> bool:
        """Whether nobody can know the bits; without that, outputs are marked NOT PRIVATE."""

    def bytes(self, n: int) -> bytes:
        """``n`` fresh, independent, uniform bytes."""

    def at(self, step: str) -> "Entropy":
        """The source for one step: a seed's own stream of it, whatever was drawn before."""


def _encryptor(key: bytes) -> CipherContext:
    """ChaCha20 under a key used once, from block 0: it ends at block 2^32, after 256 GiB."""
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()


class OSEntropy:
    """Entropy of the operating system, stretched with ChaCha20.

    **Guarantee**: every call takes a fresh 256-bit key from ``os.urandom`` and forgets it, so no
    state can be copied by a fork, repeated by a retry, or read later. Bits are as unpredictable as
    ChaCha20 is hard to break.
    """

    private = True

    def bytes(self, n: int) -> bytes:
        """``n`` fresh, independent, uniform bytes."""
        return os.urandom(n) if n <= 64 else _encryptor(os.urandom(32)).update(bytes(n))

    def at(self, step: str) -> "OSEntropy":
        """This source: every call is fresh."""
        return self


class SeededEntropy:
    """A reproducible stream, for tests and timed simulations only.

    **Guarantee**: none. Who knows the seed can subtract the noise; every output made with it must
    be marked NOT PRIVATE.

    Args:
        seed: any integer or bytes; equal seeds give equal streams.

    Example:
        >>> SeededEntropy(1).bytes(4) == SeededEntropy(1).bytes(4)
        True
    """

    private = False

    def __init__(self, seed: int | bytes) -> None:
        data = seed if isinstance(seed, bytes) else str(seed).encode()
        self._key = hashlib.blake2b(data, digest_size=32, person=b"siloweave seed").digest()
        self._cipher = _encryptor(self._key)

    def bytes(self, n: int) -> bytes:
        """The next ``n`` bytes of the stream."""
        return self._cipher.update(bytes(n))

    def at(self, step: str) -> "SeededEntropy":
        """A stream of its own for a step, so that a run that was interrupted goes on alike."""
        return SeededEntropy(self._key + step.encode())


class StoredEntropy(SeededEntropy):
    """A stream of 32 bytes that a party drew and stores; see `Site.store_entropy`.

    **Guarantee**: that of the source of the bytes, towards whoever cannot read the party's store.
    """

    def __init__(self, drawn: bytes, *, private: bool) -> None:
        super().__init__(drawn)
        self.private = private


def _words(entropy: Entropy, n: int) -> NDArray[np.uint64]:
    return np.frombuffer(entropy.bytes(8 * n), dtype="<u8").astype(np.uint64, copy=False)


class _Table(NamedTuple):
    """Thresholds of a symmetric distribution on the integers; see :func:`_draw`."""

    high: NDArray[np.uint64]  # upper 63 bits
    low: NDArray[np.uint64]  # lower 64 bits
    starts: NDArray[np.int32]  # where the search begins, by the first bits of a draw


_STEPS = 8  # of a search, before it is given up for a binary one
_BITS = 256  # of the fixed-point masses that a table is built from
# Decimal digits; exp is correctly rounded. Operators on Decimals would round to the 28 digits of
# the thread's own context, so only methods of these contexts are used.
_EXACT = Context(prec=120)


def _fixed(exponent: Decimal) -> int:
    """floor(2^256 exp(-exponent)), up to one unit."""
    return int(_EXACT.multiply(_EXACT.exp(exponent.copy_negate()), Decimal(1 << _BITS)))


def _table(first: Decimal, ratio: Decimal, last: int) -> _Table:
    """Thresholds for masses m(0) = 1, m(k) = m(k-1) r(k), r(1) = e^-first, r(k+1) = r(k) e^-ratio.

    Every step truncates to 256 bits, so m(k) is off by less than 2 k^2 units of 2^-256, and their
    sum over k <= 2^20 by less than 2^-190: all that matters is the rounding of a threshold to 127
    bits (at most one unit each, 2^20 of them) and the tail that the caller cuts off.
    """
    mass, step, shrink = 1 << _BITS, _fixed(first), _fixed(ratio)
    total, sums = mass, [mass]
    for _ in range(last):
        mass = mass * step >> _BITS
        step = step * shrink >> _BITS
        total += 2 * mass  # both signs
        sums.append(total)
    thresholds = [(value << 127) // total for value in sums]
    high = np.array([value >> 64 for value in thresholds], dtype=np.uint64)
    low = np.array([value & (2**64 - 1) for value in thresholds], dtype=np.uint64)
    bits = max(1, (last + 1).bit_length() - 2)  # about one start for every four thresholds
    heads = np.arange(1 << bits, dtype=np.uint64) << np.uint64(63 - bits)
    return _Table(high, low, np.searchsorted(high, heads, side="left").astype(np.int32))


def _places(table: _Table, upper: NDArray[np.uint64]) -> NDArray[np.int64]:
    """How many thresholds have smaller upper bits: what `np.searchsorted` gives, in less time.

    Each search begins at the first threshold that shares the draw's first bits, and few are left
    after a step or two; the rest, far out in the tail, is searched for as usual.
    """
    bits = table.starts.size.bit_length() - 1
    places: NDArray[np.int64] = table.starts[upper >> np.uint64(63 - bits)].astype(np.int64)
    below = np.flatnonzero(table.high.take(places, mode="clip") < upper)
    for _ in range(_STEPS):
        if not below.size:
            return places
        places[below] += 1
        below = below[table.high.take(places[below], mode="clip") < upper[below]]
    places[below] = np.searchsorted(table.high, upper[below], side="left")
    return places


@lru_cache(maxsize=8)  # the widest takes 20 MB
def _gaussian_table(sigma: float) -> _Table:
    """exp(-k^2 / (2 sigma^2)) for abs(k) <= 13 sigma; the tail is below 2 e^-84.5 < 2^-120."""
    variance = _EXACT.multiply(Decimal(sigma), Decimal(sigma))
    ratio = _EXACT.divide(Decimal(1), variance)
    return _table(_EXACT.divide(ratio, Decimal(2)), ratio, math.ceil(13 * sigma) + 1)


@lru_cache(maxsize=8)
def _laplace_table(scale: float) -> _Table:
    """exp(-abs(k) / scale) for abs(k) <= 85 scale; the tail is below 2 e^-85 < 2^-121."""
    first = _EXACT.divide(Decimal(1), Decimal(scale))
    return _table(first, Decimal(0), math.ceil(85 * scale) + 1)


def _draw(table: _Table, size: int, entropy: Entropy) -> Int64s:
    """Draws by inversion: a 127-bit uniform finds the magnitude, one more bit the sign.

    The magnitude is the number of thresholds T(k) = floor(2^127 P(abs(X) <= k)) that are at most
    the uniform U. The upper 63 bits of U decide that unless they equal those of a threshold;
    then, and only then, its lower 64 bits are drawn as well.
    """
    words = _words(entropy, size)
    upper = words >> np.uint64(1)
    magnitude = _places(table, upper)
    tied = np.flatnonzero(table.high.take(magnitude, mode="clip") == upper)
    if tied.size:
        lower = _words(entropy, tied.size)
        for position, low in zip(tied.tolist(), lower.tolist(), strict=True):
            start = int(magnitude[position])
            stop = int(np.searchsorted(table.high, upper[position], side="right"))
            magnitude[position] = bisect_right(table.low[start:stop].tolist(), low) + start
    signs = 1 - 2 * (words & np.uint64(1)).astype(np.int64)
    return magnitude.astype(np.int64, copy=False) * signs


def _check(function: str, name: str, width: float, size: int) -> None:
    if not (math.isfinite(width) and 0.1 <= width <= 2**40):
        raise InputError(
            f"{function}: {name} = {width} must lie between 0.1 and 2**40. "
            "Smaller noise protects nothing; larger noise leaves no signal in 64-bit counts."
        )
    if size < 0:
        raise InputError(f"{function}: size = {size} must not be negative.")


def check_width(sigma: float, entropy: Entropy) -> None:
    """Raise InputError for Gaussian noise that cannot be drawn, so that nobody pays for it."""
    _check("discrete_gaussian", "sigma", sigma, 0)
    _needs_private("discrete_gaussian", "sigma", sigma, LARGEST_TABLE / 13 - 1, entropy)


def discrete_gaussian(sigma: float, size: int, *, entropy: Entropy) -> Int64s:
    """Independent int64 with mass proportional to exp(-x^2 / (2 sigma^2)), sigma in [0.1, 2^40].

    Up to sigma = 80,000 they come from a table of thresholds (one 64-bit word each); above, from
    OpenDP, at some 50,000 a second, which only :class:`OSEntropy` may ask for. InputError if a
    value is out of bounds.

    **Guarantee**: each draw is within total variation distance :data:`TV_PER_DRAW` of the exact
    distribution (Canonne, Kamath and Steinke 2020, Definition 1), so N draws add at most
    N 2^-95 (1 + e^epsilon) to delta. Thresholds are integers and so is the comparison; no floating
    point number touches a sampled value.
    """
    _check("discrete_gaussian", "sigma", sigma, size)
    if 13 * sigma + 2 <= LARGEST_TABLE:
        return _draw(_gaussian_table(float(sigma)), size, entropy)
    _needs_private("discrete_gaussian", "sigma", sigma, LARGEST_TABLE / 13 - 1, entropy)
    return _opendp("gaussian", float(sigma), size)


def discrete_laplace(scale: float, size: int, *, entropy: Entropy) -> Int64s:
    """Independent int64 with mass proportional to exp(-abs(x) / scale), scale in [0.1, 2^40].

    :class:`SeededEntropy` uses a table and only works up to a scale of about 12,000. InputError if
    a value is out of bounds.

    **Guarantee**: with private entropy the draws are OpenDP's, exact and with unbounded tails, so
    a claim of pure differential privacy holds. With a seed they are within :data:`TV_PER_DRAW` of
    that, and not private anyway.
    """
    _check("discrete_laplace", "scale", scale, size)
    if entropy.private:
        return _opendp("laplace", float(scale), size)
    _needs_private("discrete_laplace", "scale", scale, LARGEST_TABLE / 85 - 1, entropy)
    return _draw(_laplace_table(float(scale)), size, entropy)


def _needs_private(
    function: str, name: str, width: float, largest: float, entropy: Entropy
) -> None:
    if not entropy.private and width > largest:
        raise InputError(
            f"{function}: {name} = {width} is above {largest:,.0f}, the most that seeded noise "
            "can do. Use OSEntropy()."
        )


def _opendp(kind: str, width: float, size: int) -> Int64s:
    """Noise drawn by OpenDP with the operating system's entropy."""
    return np.array(_opendp_measurement(kind, width)([0] * size), dtype=np.int64)


@lru_cache(maxsize=32)
def _opendp_measurement(kind: str, width: float):  # type: ignore[no-untyped-def]  # noqa: ANN202
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=width)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=width)


def _integers(function: str, values: ArrayLike) -> Int64s:
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise InputError(
            f"{function}: values have dtype {array.dtype}; they must be integers. "
            "Round them to a public grid first: noise on floats leaks through their digits."
        )
    if array.size and (int(array.max()) > 2**62 or int(array.min()) < -(2**62)):
        raise InputError(f"{function}: values must lie within plus or minus 2**62.")
    return array.astype(np.int64)


def add_gaussian(values: ArrayLike, sigma: float, *, entropy: Entropy) -> Int64s:
    """``values`` plus independent discrete Gaussian noise, as int64 of the same shape.

    Values are exact integers, which stay with their owner; the noise is in their unit. InputError
    if they are not integers, or a value is out of bounds.

    **Guarantee**: rho = D^2 / (2 sigma^2) zCDP for neighbours whose ``values`` are D apart in L2
    (Canonne, Kamath and Steinke 2020, Theorem 4), within the distance that
    :func:`discrete_gaussian` states. Record it as ``Gaussian(sigma, D)`` before calling. As one
    party's share in a masked sum it protects only together with the other shares: record
    ``SharedGaussian``.

    Example:
        >>> add_gaussian([10, 20], 1.0, entropy=SeededEntropy(0)).shape
        (2,)
    """
    exact = _integers("add_gaussian", values)
    noise = discrete_gaussian(sigma, exact.size, entropy=entropy)
    return exact + noise.reshape(exact.shape)


def add_laplace(values: ArrayLike, scale: float, *, entropy: Entropy) -> Int64s:
    """``values`` plus independent discrete Laplace noise; values and errors as of `add_gaussian`.

    **Guarantee**: pure differential privacy with epsilon = D / scale for neighbours whose
    ``values`` are D apart in L1. Record it as ``Laplace(scale, D)`` before calling.
    """
    exact = _integers("add_laplace", values)
    noise = discrete_laplace(scale, exact.size, entropy=entropy)
    return exact + noise.reshape(exact.shape)


def kept_share(epsilon: float, size: int) -> float:
    """With which probability randomised response keeps one of so many values."""
    return 1.0 if size == 1 else math.exp(epsilon) / (math.exp(epsilon) + size - 1)


def randomised_response(
    values: ArrayLike, size: int, epsilon: float, *, entropy: Entropy
) -> Int64s:
    """Values from 0 to size - 1, each kept with `kept_share` and otherwise another one, uniformly.

    InputError if epsilon or the number of values is out of bounds.

    **Guarantee**: pure differential privacy with `epsilon` for each value, replaced by any other.
    Both choices read 64-bit words; the threshold for keeping is lowered by a 2^40-th, far more than
    the rounding of floats and of words modulo size - 1 could raise a ratio of probabilities. Record
    it as ``RandomisedResponse(epsilon, count)`` before calling, with all values of a row.

    Example:
        >>> randomised_response([0, 1, 1], 2, 30.0, entropy=SeededEntropy(0)).tolist()
        [0, 1, 1]
    """
    exact = _integers("randomised_response", values)
    if not (LEAST_RESPONSE <= epsilon <= MOST_RESPONSE and 1 <= size <= 2**20):
        raise InputError(
            f"randomised_response: epsilon = {epsilon} must lie between {LEAST_RESPONSE} and "
            f"{MOST_RESPONSE}, and size = {size} between 1 and {2**20}. Spend more budget on "
            "answers, or bin the values."
        )
    if size == 1:
        return exact
    threshold = np.uint64(int(kept_share(epsilon, size) * (1 - 2.0**-40) * 2**64))
    coins, others = _words(entropy, exact.size), _words(entropy, exact.size)
    moved = 1 + (others % np.uint64(size - 1)).astype(np.int64)
    return np.where(
        (coins < threshold).reshape(exact.shape), exact, (exact + moved.reshape(exact.shape)) % size
    )


def exponential(scores: ArrayLike, *, sensitivity: float, epsilon: float, entropy: Entropy) -> int:
    """Choose an index, high scores more often: P proportional to exp(eps score / (2 sensitivity)).

    There is one finite score per candidate, in the unit of ``sensitivity``: the most that one row
    moves any score. InputError for no scores, one that is not finite, or a value out of bounds.

    **Guarantee**: the privacy loss has range ``epsilon``, hence pure epsilon-DP and
    rho = epsilon^2 / 8 zCDP, if neighbours have the same candidates and no score moves by more
    than ``sensitivity``. Record it as ``Exponential(epsilon)`` before calling. Candidates more than
    256 nats (512 sensitivity / epsilon) below the best are lifted to that distance; lifting moves
    no score further than before, so it costs nothing, and it keeps every weight an integer of at
    least 125 significant bits. A 512-bit uniform point falls between two running sums of the
    weights; roundings add less than :data:`EXPONENTIAL_SLACK` nats. Floats are only used to see
    early where a point falls that is far from every border. Scores are taken as given: the
    rounding of whoever computed them belongs into ``sensitivity``.

    Example:
        >>> exponential([0.0, 1000.0], sensitivity=1.0, epsilon=1.0, entropy=OSEntropy())
        1
    """
    array = np.asarray(scores, dtype=np.float64).ravel()
    if array.size == 0:
        raise InputError("exponential: scores is empty. Give at least one candidate.")
    if not np.isfinite(array).all():
        raise InputError("exponential: scores must be finite. Drop or bound candidates first.")
    for name, value in (("sensitivity", sensitivity), ("epsilon", epsilon)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"exponential: {name} = {value} must be finite and greater than 0.")
    point = int.from_bytes(entropy.bytes(_POINT_BITS // 8), "little")
    chosen = _far_from_borders(array, epsilon / (2 * sensitivity), point)
    if chosen is not None:
        return chosen
    sums = _sums(array, sensitivity=sensitivity, epsilon=epsilon)
    return bisect_right(sums, (point * sums[-1]) >> _POINT_BITS)


_LOWEST = 256  # nats below the best, after which all candidates weigh the same
_DIGITS = 150  # decimal digits of a weight: e^-256 is 10^-112, which leaves 38 digits, 2^-126
_NARROW = Context(prec=60)
_POINT_BITS = 512  # the least probability is 2^-370 over the number of candidates
_MARGIN = 1e-9  # thousands of times the rounding of 256 nats, exp and a sum of a million terms


def _sums(scores: NDArray[np.float64], *, sensitivity: float, epsilon: float) -> list[int]:
    """Running sums of the integer weights 10^150 exp(-gap), rounded down; gap <= 256 nats."""
    factor = _NARROW.divide(Decimal(epsilon), _NARROW.multiply(Decimal(2), Decimal(sensitivity)))
    best = Decimal(float(scores.max()))
    sums: list[int] = []
    total = 0
    for score in scores.tolist():
        gap = min(
            _NARROW.multiply(_NARROW.subtract(best, Decimal(score)), factor), Decimal(_LOWEST)
        )
        total += int(_NARROW.exp(gap.copy_negate()).scaleb(_DIGITS, _EXACT))
        sums.append(total)
    return sums


def _far_from_borders(scores: NDArray[np.float64], factor: float, point: int) -> int | None:
    """What the exact sums would choose, if floats suffice to decide; None if they may not.

    Only a shortcut: it answers when the point is further from both borders of an interval than
    any rounding can reach, which fails once in some hundred million draws.
    """
    with np.errstate(all="ignore"):
        gaps = np.minimum((scores.max() - scores) * factor, _LOWEST)
        sums = np.cumsum(np.exp(-gaps))
        total = float(sums[-1])
        target = (point >> (_POINT_BITS - 64)) * 2.0**-64 * total
    if not math.isfinite(total) or scores.size > 10**6:
        return None
    index = int(np.searchsorted(sums, target, side="right"))
    if index == scores.size or abs(float(sums[index]) - target) <= _MARGIN * total:
        return None
    if index and abs(target - float(sums[index - 1])) <= _MARGIN * total:
        return None
    return index
