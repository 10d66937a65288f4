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

#: Bound on the total variation distance between one table draw and the exact distribution. What
#: `_table` and its callers prove is less: 2^20 thresholds, each rounded by at most 2^-127, make
#: 2^-107, and the tails that are cut off have a mass below 2^-120.
TV_PER_DRAW = 2.0**-95

#: Bound on what integer weights add to the privacy loss of one selection, in nats. Every weight has
#: at least 125 significant bits (`_sums`), so rounding one moves the loss by about 2^-125.
EXPONENTIAL_SLACK = 2.0**-90

#: Least epsilon of one randomised answer: a million times the 2^-40 by which the threshold for an
#: unchanged value is lowered, so that lowering never makes it rarer than any other value.
LEAST_RESPONSE = 1e-6
#: Largest epsilon of one randomised answer. That lowering already caps the ratio of probabilities
#: at 2^40 (size - 1), below e^42, so a larger epsilon would be paid for and change nothing.
MOST_RESPONSE = 50.0

#: Most entries in a table of thresholds; wider noise is drawn by OpenDP.
LARGEST_TABLE = 2**20

# Standard deviations, and scales of Laplace noise, at which a table ends: the mass beyond is below
# 2 e^(-13^2 / 2) = 2 e^-84.5 and 2 e^-85, both below 2^-120.
_GAUSSIAN_REACH = 13
_LAPLACE_REACH = 85

Int64s = NDArray[np.int64]


class Entropy(Protocol):
    """A source of random bits. Conforming: :class:`OSEntropy`, :class:`SeededEntropy`."""

    @property
    def private(self) -> bool:
        """Whether nobody can know the bits; if False, outputs are marked NOT PRIVATE."""

    def bytes(self, n: int) -> bytes:
        """Return ``n`` fresh, independent, uniform bytes."""

    def at(self, step: str) -> "Entropy":
        """Return a source for one step; that of a seed does not depend on earlier draws."""


def _encryptor(key: bytes) -> CipherContext:
    """Return a ChaCha20 stream under a key that is used once.

    It begins at block 0 and ends at block 2^32, after 256 GiB.
    """
    # The 16 bytes are the block counter and the nonce. Both may be 0, as no key is used twice; a
    # random counter could reach its end within one stream.
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
    return cipher.encryptor()


class OSEntropy:
    """Entropy of the operating system, stretched with ChaCha20.

    **Guarantee**: every call takes a fresh 256-bit key from ``os.urandom`` and forgets it, so no
    state can be copied by a fork, repeated by a retry, or read later. Bits are as unpredictable as
    ChaCha20 is hard to break.
    """

    private = True

    def bytes(self, n: int) -> bytes:
        """Return ``n`` fresh, independent, uniform bytes."""
        # One block of ChaCha20 has 64 bytes: below that, a key would gain nothing.
        if n <= 64:
            return os.urandom(n)
        key = os.urandom(32)
        return _encryptor(key).update(bytes(n))

    def at(self, step: str) -> "OSEntropy":
        """Return this source itself, as all that it draws is fresh."""
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
        digest = hashlib.blake2b(data, digest_size=32, person=b"siloweave seed")
        self._key = digest.digest()
        self._cipher = _encryptor(self._key)

    def bytes(self, n: int) -> bytes:
        """Return the next ``n`` bytes of the stream."""
        return self._cipher.update(bytes(n))

    def at(self, step: str) -> "SeededEntropy":
        """Return a stream for one step alone, so that an interrupted run continues as before."""
        return SeededEntropy(self._key + step.encode())


class StoredEntropy(SeededEntropy):
    """A stream of 32 bytes that a party drew and stores; see `Site.store_entropy`.

    **Guarantee**: that of the source of the bytes, towards whoever cannot read the party's store.
    """

    def __init__(self, stored_bytes: bytes, *, private: bool) -> None:
        super().__init__(stored_bytes)
        self.private = private


def _words(entropy: Entropy, n: int) -> NDArray[np.uint64]:
    """Draw ``n`` uniform words of 64 bits, the same on machines of either byte order."""
    data = entropy.bytes(8 * n)
    return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)


class _Table(NamedTuple):
    """Thresholds of a symmetric distribution on the integers; see :func:`_draw`."""

    high: NDArray[np.uint64]  # upper 63 bits
    low: NDArray[np.uint64]  # lower 64 bits
    starts: NDArray[np.int32]  # where the search begins, by the first bits of a draw


# Steps of a search, before it is given up for a binary one.
_STEPS = 8
# Bits of the fixed-point masses that a table is built from; `_table` says what they lose.
_BITS = 256
# 120 decimal digits are more than 256 bits (77 digits), and exp is correctly rounded. Operators on
# Decimals would round to the 28 digits of the thread's own context, so only methods of these
# contexts are used.
_EXACT = Context(prec=120)


def _fixed(exponent: Decimal) -> int:
    """Return floor(2^256 exp(-exponent)), up to one unit."""
    power = _EXACT.exp(exponent.copy_negate())
    unit = Decimal(1 << _BITS)
    return int(_EXACT.multiply(power, unit))


def _table(first: Decimal, ratio: Decimal, last: int) -> _Table:
    """Build the thresholds for masses that a recurrence gives.

    These are m(0) = 1, m(k) = m(k-1) r(k), r(1) = e^-first, r(k+1) = r(k) e^-ratio, up to k = last.
    Every step truncates to 256 bits, so m(k) is off by less than 2 k^2 units of 2^-256, and their
    sum over k <= 2^20 by less than 2^-190: all that matters is the rounding of a threshold to 127
    bits (at most one unit each, 2^20 of them) and the tail that the caller cuts off.
    """
    # Masses, in units of 2^-256 of m(0), added up over both signs from the middle outwards.
    mass = 1 << _BITS
    factor = _fixed(first)
    shrinkage = _fixed(ratio)
    total = mass
    sums = [mass]
    for _ in range(last):
        mass = mass * factor >> _BITS
        factor = factor * shrinkage >> _BITS
        total += 2 * mass
        sums.append(total)

    # In integers alone: a division of floats would round to 53 bits. The last threshold is 2^127,
    # which no uniform number reaches, so every draw ends within the table.
    thresholds = [(value << 127) // total for value in sums]
    high = np.array([value >> 64 for value in thresholds], dtype=np.uint64)
    low = np.array([value & (2**64 - 1) for value in thresholds], dtype=np.uint64)

    # About one start for every four thresholds: few steps, and a list that stays in the cache.
    bits = max(1, (last + 1).bit_length() - 2)
    heads = np.arange(1 << bits, dtype=np.uint64) << np.uint64(63 - bits)
    starts = np.searchsorted(high, heads, side="left")
    return _Table(high, low, starts.astype(np.int32))


def _places(table: _Table, upper: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Find each number's place among the thresholds, as `np.searchsorted` does, in less time.

    Each search begins at the first threshold that shares the draw's first bits, and few are left
    after a step or two; the rest, far out in the tail, is searched for as usual.
    """
    bits = table.starts.size.bit_length() - 1
    first_bits = upper >> np.uint64(63 - bits)
    places: NDArray[np.int64] = table.starts[first_bits].astype(np.int64)

    # Places one past the end are clipped to the last threshold, which no draw is above.
    below = np.flatnonzero(table.high.take(places, mode="clip") < upper)
    for _ in range(_STEPS):
        if not below.size:
            return places
        places[below] += 1
        is_below = table.high.take(places[below], mode="clip") < upper[below]
        below = below[is_below]

    places[below] = np.searchsorted(table.high, upper[below], side="left")
    return places


# The widest table takes 20 MB, so few of them are stored.
@lru_cache(maxsize=8)
def _gaussian_table(sigma: float) -> _Table:
    """Build the table of exp(-k^2 / (2 sigma^2)) for abs(k) <= 13 sigma.

    The tail is below 2 e^-84.5 < 2^-120.
    """
    # Sigma is taken as the exact number that its float stands for. With first = 1 / (2 sigma^2) and
    # ratio = 1 / sigma^2 the exponents add up to (1 + 3 + ... + (2k - 1)) / (2 sigma^2), which is
    # k^2 / (2 sigma^2).
    variance = _EXACT.multiply(Decimal(sigma), Decimal(sigma))
    ratio = _EXACT.divide(Decimal(1), variance)
    first = _EXACT.divide(ratio, Decimal(2))
    last = math.ceil(_GAUSSIAN_REACH * sigma) + 1
    return _table(first, ratio, last)


@lru_cache(maxsize=8)
def _laplace_table(scale: float) -> _Table:
    """Build the table of exp(-abs(k) / scale) for abs(k) <= 85 scale.

    The tail is below 2 e^-85 < 2^-121.
    """
    first = _EXACT.divide(Decimal(1), Decimal(scale))
    last = math.ceil(_LAPLACE_REACH * scale) + 1
    # Every mass is the same part of the one before it: the factor does not shrink.
    return _table(first, Decimal(0), last)


def _draw(table: _Table, size: int, entropy: Entropy) -> Int64s:
    """Draw by inversion: a 127-bit uniform number finds the magnitude, one more bit the sign.

    The magnitude is the number of thresholds T(k) = floor(2^127 P(abs(X) <= k)) that are at most
    the uniform U. The upper 63 bits of U decide that unless they equal those of a threshold;
    then, and only then, its lower 64 bits are drawn as well.
    """
    words = _words(entropy, size)
    upper = words >> np.uint64(1)
    magnitudes = _places(table, upper)

    # The upper bits alone would choose the smaller magnitude at every tie, once in 2^63 draws for
    # each threshold. Words for the lower bits are read after all upper ones, in the order of the
    # draws: a seeded stream depends on it.
    tied = np.flatnonzero(table.high.take(magnitudes, mode="clip") == upper)
    if tied.size:
        lower = _words(entropy, tied.size)
        for position, low in zip(tied.tolist(), lower.tolist(), strict=True):
            start = int(magnitudes[position])
            stop = int(np.searchsorted(table.high, upper[position], side="right"))
            tied_lows = table.low[start:stop].tolist()
            magnitudes[position] = start + bisect_right(tied_lows, low)

    # The sign is the last bit of the first word, which is no part of U. It is drawn for 0 as well,
    # where it changes nothing, so 0 keeps its mass.
    signs = 1 - 2 * (words & np.uint64(1)).astype(np.int64)
    return magnitudes.astype(np.int64, copy=False) * signs


def _check(function: str, name: str, width: float, size: int) -> None:
    """Raise InputError for a width of noise that is out of bounds, or for a negative size."""
    # Values are within 2^62 (`_integers`), and 85 times 2^40 is below 2^47: sums fit in 64 bits.
    if not (math.isfinite(width) and 0.1 <= width <= 2**40):
        raise InputError(
            f"{function}: {name} = {width} must lie between 0.1 and 2**40. "
            "Smaller noise protects nothing; larger noise leaves no signal in 64-bit counts."
        )
    if size < 0:
        raise InputError(f"{function}: size = {size} must not be negative.")


def check_width(sigma: float, entropy: Entropy) -> None:
    """Raise InputError for Gaussian noise that cannot be drawn, so that nobody pays for it."""
    largest = LARGEST_TABLE / _GAUSSIAN_REACH - 1
    _check("discrete_gaussian", "sigma", sigma, 0)
    _check_seeded_width("discrete_gaussian", "sigma", sigma, largest, entropy)


def discrete_gaussian(sigma: float, size: int, *, entropy: Entropy) -> Int64s:
    """Draw independent integers with mass proportional to exp(-x^2 / (2 sigma^2)), as int64.

    Sigma lies in [0.1, 2^40]. Up to 80,000 they come from a table of thresholds (one 64-bit word
    each); above, from OpenDP, at some 50,000 a second, which only :class:`OSEntropy` may ask for.
    InputError if a value is out of bounds.

    **Guarantee**: each draw is within total variation distance :data:`TV_PER_DRAW` of the exact
    distribution (Canonne, Kamath and Steinke 2020, Definition 1), so N draws add at most
    N 2^-95 (1 + e^epsilon) to delta. Thresholds are integers and so is the comparison; no floating
    point number touches a sampled value.
    """
    _check("discrete_gaussian", "sigma", sigma, size)
    if _GAUSSIAN_REACH * sigma + 2 <= LARGEST_TABLE:
        table = _gaussian_table(float(sigma))
        return _draw(table, size, entropy)
    largest = LARGEST_TABLE / _GAUSSIAN_REACH - 1
    _check_seeded_width("discrete_gaussian", "sigma", sigma, largest, entropy)
    return _opendp("gaussian", float(sigma), size)


def discrete_laplace(scale: float, size: int, *, entropy: Entropy) -> Int64s:
    """Draw independent integers with mass proportional to exp(-abs(x) / scale), as int64.

    The scale lies in [0.1, 2^40]. :class:`SeededEntropy` uses a table and only works up to a scale
    of about 12,000. InputError if a value is out of bounds.

    **Guarantee**: with private entropy the draws are OpenDP's, exact and with unbounded tails, so
    a claim of pure differential privacy holds. With a seed they are within :data:`TV_PER_DRAW` of
    that, and not private anyway.
    """
    _check("discrete_laplace", "scale", scale, size)
    # Never from the table, however narrow: a tail that is cut off has no pure epsilon.
    if entropy.private:
        return _opendp("laplace", float(scale), size)
    largest = LARGEST_TABLE / _LAPLACE_REACH - 1
    _check_seeded_width("discrete_laplace", "scale", scale, largest, entropy)
    table = _laplace_table(float(scale))
    return _draw(table, size, entropy)


def _check_seeded_width(
    function: str, name: str, width: float, largest: float, entropy: Entropy
) -> None:
    """Raise InputError for seeded noise wider than our tables, since OpenDP takes no seed."""
    if not entropy.private and width > largest:
        raise InputError(
            f"{function}: {name} = {width} is above {largest:,.0f}, the most that seeded noise "
            "can do. Use OSEntropy()."
        )


def _opendp(kind: str, width: float, size: int) -> Int64s:
    """Draw noise with OpenDP and the operating system's entropy."""
    add_noise = _opendp_measurement(kind, width)
    noise = add_noise([0] * size)
    return np.array(noise, dtype=np.int64)


@lru_cache(maxsize=32)
def _opendp_measurement(kind: str, width: float):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return OpenDP's function that adds noise of one kind and width to a list of integers."""
    # Imported here, as it takes two seconds and narrow Gaussian noise does without it.
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=width)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=width)


def _integers(function: str, values: ArrayLike) -> Int64s:
    """Convert values to int64; InputError if they are no integers, or too large for noise."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise InputError(
            f"{function}: values have dtype {array.dtype}; they must be integers. "
            "Round them to a public grid first: noise on floats leaks through their digits."
        )
    # Compared as Python's integers: a uint64 above 2^63 would wrap around as an int64.
    if array.size and (int(array.max()) > 2**62 or int(array.min()) < -(2**62)):
        raise InputError(f"{function}: values must lie within plus or minus 2**62.")
    return array.astype(np.int64)


def add_gaussian(values: ArrayLike, sigma: float, *, entropy: Entropy) -> Int64s:
    """Add independent discrete Gaussian noise to ``values``; int64 of the same shape.

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
    """Add independent discrete Laplace noise to ``values``; errors as of `add_gaussian`.

    **Guarantee**: pure differential privacy with epsilon = D / scale for neighbours whose
    ``values`` are D apart in L1. Record it as ``Laplace(scale, D)`` before calling.
    """
    exact = _integers("add_laplace", values)
    noise = discrete_laplace(scale, exact.size, entropy=entropy)
    return exact + noise.reshape(exact.shape)


def kept_share(epsilon: float, size: int) -> float:
    """Return the probability with which randomised response keeps one of so many values.

    That is e^epsilon / (e^epsilon + size - 1), so that any other one value is e^epsilon times less
    likely (Kairouz, Bonawitz and Ramage 2016).
    """
    if size == 1:
        return 1.0
    weight = math.exp(epsilon)
    return weight / (weight + size - 1)


def randomised_response(
    values: ArrayLike, size: int, epsilon: float, *, entropy: Entropy
) -> Int64s:
    """Randomise codes from 0 to size - 1: each stays with `kept_share`, else becomes another.

    All other values are equally likely. InputError if epsilon or the number of values is out of
    bounds.

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
    share = kept_share(epsilon, size) * (1 - 2.0**-40)
    threshold = np.uint64(int(share * 2**64))

    # Both words are read for every value, whether it stays or not: how much entropy is read, and
    # how long it takes, must not depend on the coins.
    coins = _words(entropy, exact.size)
    choices = _words(entropy, exact.size)
    stays = (coins < threshold).reshape(exact.shape)

    # A distance of 1 to size - 1 around the circle reaches every other value, and never the value
    # itself.
    distances = 1 + (choices % np.uint64(size - 1)).astype(np.int64)
    others = (exact + distances.reshape(exact.shape)) % size
    return np.where(stays, exact, others)


def exponential(
    scores: ArrayLike, *, sensitivity: float, epsilon: float, entropy: Entropy
) -> int:
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
        raise InputError(
            "exponential: scores must be finite. Drop or bound candidates first."
        )
    for name, value in (("sensitivity", sensitivity), ("epsilon", epsilon)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(
                f"exponential: {name} = {value} must be finite and greater than 0."
            )

    # One uniform point, read before anything is decided: the quick way and the exact one choose
    # with the same point, so they always choose the same index.
    point = int.from_bytes(entropy.bytes(_POINT_BITS // 8), "little")
    index = _far_from_borders(array, epsilon / (2 * sensitivity), point)
    if index is not None:
        return index
    sums = _sums(array, sensitivity=sensitivity, epsilon=epsilon)
    scaled_point = (point * sums[-1]) >> _POINT_BITS
    return bisect_right(sums, scaled_point)


# Nats below the best, after which all candidates weigh the same.
_LOWEST = 256
# Decimal digits of a weight: e^-256 is 10^-112, which leaves 38 digits, 2^-126.
_DIGITS = 150
# Digits of a gap: at 256 nats the four roundings of `_sums` move it by less than 10^-56, far below
# `EXPONENTIAL_SLACK`.
_NARROW = Context(prec=60)
# Bits of the uniform point: the least probability is 2^-370 over the number of candidates.
_POINT_BITS = 512
# A part of the sum of all weights: thousands of times the rounding of 256 nats, of exp and of a sum
# of a million terms.
_MARGIN = 1e-9


def _sums(
    scores: NDArray[np.float64], *, sensitivity: float, epsilon: float
) -> list[int]:
    """Return running sums of the integer weights 10^150 exp(-gap), rounded down; gap <= 256 nats.

    A gap is what a score lacks to the best one, times epsilon / (2 sensitivity) (McSherry and
    Talwar 2007).
    """
    divisor = _NARROW.multiply(Decimal(2), Decimal(sensitivity))
    factor = _NARROW.divide(Decimal(epsilon), divisor)
    best = Decimal(float(scores.max()))
    lowest = Decimal(_LOWEST)

    sums: list[int] = []
    total = 0
    for score in scores.tolist():
        distance = _NARROW.subtract(best, Decimal(score))
        gap = min(_NARROW.multiply(distance, factor), lowest)
        weight = _NARROW.exp(gap.copy_negate())
        # In the wide context: 150 places before the point do not fit into 60 digits.
        total += int(weight.scaleb(_DIGITS, _EXACT))
        sums.append(total)
    return sums


def _far_from_borders(
    scores: NDArray[np.float64], factor: float, point: int
) -> int | None:
    """Return the choice that exact sums would make, if floats decide it for sure; else None.

    Only a shortcut: it answers when the point is further from both borders of an interval than
    any rounding can reach, which fails once in some hundred million draws.
    """
    # Differences may overflow to infinity, which is cut to `_LOWEST`. A gap that is not a number
    # makes the total no number, and that is refused below.
    with np.errstate(all="ignore"):
        gaps = np.minimum((scores.max() - scores) * factor, _LOWEST)
        sums = np.cumsum(np.exp(-gaps))
        total = float(sums[-1])
        # The first 64 bits of the point: what is cut off is far below the margin.
        target = (point >> (_POINT_BITS - 64)) * 2.0**-64 * total

    # `_MARGIN` covers the rounding of a million terms, no more.
    if not math.isfinite(total) or scores.size > 10**6:
        return None

    # A point within the margin of a border could fall on its other side in exact arithmetic.
    margin = _MARGIN * total
    index = int(np.searchsorted(sums, target, side="right"))
    if index == scores.size or abs(float(sums[index]) - target) <= margin:
        return None
    if index and abs(target - float(sums[index - 1])) <= margin:
        return None
    return index
