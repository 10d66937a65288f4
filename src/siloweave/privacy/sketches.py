"""Flajolet-Martin sketches with phantoms: how they are drawn, and what they are really worth.

Flajolet & Martin 1985, "Probabilistic counting algorithms for data base applications"; with
phantoms and a floor as Algorithm 2 (DPFM) of Zhao, Li, Ren, Ding, Yang & Li 2024, "VertiMRF:
Differentially Private Vertical Federated Data Synthesis" (KDD). A sketch of a set of rows is the
largest of one geometric number per row, which a keyed stream gives, of as many again as there are
`SketchNoise.phantoms`, and of a floor. Here gamma = 1, as in the paper's code.

**Guarantee** (refuted): Theorem 2 takes the sketches of a row's attributes for independent. They
are not: all parties hash a row with one key, so one number enters every sketch of that row at
once. Sketches that are equal and higher than phantoms explain show that a row holds all their
values. `sketch_epsilon` is the exact composition, and holds towards whoever does not know the key
(computationally, under ChaCha20): the server together with any one party knows it.

The proof of the composition. Let one row be added to any rows D, and A_j be the sketch of its j-th
value over no row, independent for j = 1..d; the row's number is Z, P[Z = m] = 2^-m. The sketches
over D are max(A_j, M_j), and with the row max(A_j, Z, M_j), where M is of D's rows alone and
independent of A and Z. So both are the same random function of the pair for an empty D, which
therefore is the worst case. There, with a = (a_1..a_d), m = min a_j, s values equal to m, and F, g
the distribution function and mass of A_j,

    P[max(A, Z) = a] / P[A = a] = P[Z < m] + P[Z = m] (F(m) / g(m))^s,

so (m, s) determines the loss, and P[min A = m, s of d] = C(d, s) g(m)^s (1 - F(m))^(d - s).
Repetitions have streams of their own, so their losses add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.privacy.mechanisms import Entropy

LARGEST = 65
"""The largest geometric number: a word of 64 bits is 0, or starts with up to 63 zeros."""
# Nats; losses are spread over neighbouring points, so the error is of second order.
_GRID = 1e-3

Sketches = NDArray[np.uint8]
"""Shape (repetitions, values of all attributes one after the other)."""


@dataclass(frozen=True)
class SketchNoise:
    """The phantoms and the floor that make a sketch epsilon-DP, for neighbours by one more row.

    Args:
        epsilon: of one sketch, > 0; the epsilon' of the paper.

    Example:
        >>> noise = SketchNoise.published(0.32, 1 / 21_574, repetitions=2000, attributes=16)
        >>> noise.phantoms, noise.floor
        (7064, 13)
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not 1e-6 <= self.epsilon <= 10:
            raise InputError(
                f"SketchNoise: epsilon = {self.epsilon} must lie between 1e-6 and 10. Spend more "
                "budget on sketches, or take fewer repetitions."
            )

    @classmethod
    def published(
        cls, epsilon: float, delta: float, *, repetitions: int, attributes: int
    ) -> SketchNoise:
        """Return the noise that Theorem 2 asks for, with epsilon / (4 sqrt(t d ln(1/delta))).

        That is the epsilon of one sketch of t repetitions and d attributes.
        """
        root = math.sqrt(repetitions * attributes * math.log(1 / delta))
        return cls(epsilon / (4 * root))

    @property
    def phantoms(self) -> int:
        """The number of geometric draws that stand for rows which are not there."""
        # k_p = ceil(1 / (e^epsilon' - 1)) of Algorithm 2.
        return math.ceil(1 / math.expm1(self.epsilon))

    @property
    def floor(self) -> int:
        """The least value that a sketch can have."""
        # alpha_min = ceil(log_(1 + gamma) (1 / (1 - e^-epsilon'))) of Algorithm 2, gamma = 1.
        return math.ceil(-math.log2(-math.expm1(-self.epsilon)))

    @cached_property
    def _thresholds(self) -> NDArray[np.uint64]:
        """The numbers floor(2^64 P[largest phantom <= m]) for m = 1..64."""
        # One phantom is at most m with probability 1 - 2^-m, and all are independent.
        exact = Context(prec=60)
        below = [Decimal(2**m - 1) / 2**m for m in range(1, LARGEST)]
        # The operators round to the 28 digits of the thread's context. With a million phantoms at
        # most (epsilon >= 1e-6) that moves a threshold by one unit at most.
        thresholds = [int(exact.power(p, self.phantoms) * 2**64) for p in below]
        return np.array(thresholds, np.uint64)

    def draw(self, size: int, *, entropy: Entropy) -> Sketches:
        """Draw sketches of no rows: the largest phantom, or the floor if that is larger.

        By inversion of 64-bit words; each is within total variation distance 2^-57 of its exact
        distribution.
        """
        words = np.frombuffer(entropy.bytes(8 * size), dtype="<u8")
        # As many thresholds as are at most the word lie below the largest phantom.
        largest = np.searchsorted(self._thresholds, words, side="right") + 1
        return np.maximum(largest, self.floor).astype(np.uint8)


def encode_rows(
    columns: Sequence[NDArray[Any]],
    sizes: Sequence[int],
    *,
    key: bytes,
    repetitions: int,
) -> Sketches:
    """Return the largest geometric number over the rows of each value; 0 where no row has it.

    Args:
        columns: Codes of each attribute, one per row; row i is the same person at every party.
        sizes: How many values each attribute has.
        key: 32 bytes that the parties share and nobody else knows.
        repetitions: Independent streams; row i of repetition h reads word i of stream h.

    The largest number belongs to the least word, so only least words are looked for: in rows
    sorted by value, all attributes side by side.
    """
    least_words = np.full((repetitions, sum(sizes)), 2**64 - 1, dtype=np.uint64)
    rows = len(columns[0])
    if not rows:
        return np.zeros(least_words.shape, dtype=np.uint8)

    # Rows of one value lie side by side: `order` lists the rows by value, attribute after
    # attribute, and `first` is where every value that occurs begins.
    pairs = zip(columns, sizes, strict=True)
    column_counts = [np.bincount(column, minlength=size) for column, size in pairs]
    column_orders = [np.argsort(column, kind="stable") for column in columns]
    counts = np.concatenate(column_counts)
    order = np.concatenate(column_orders)
    present = np.flatnonzero(counts)
    first = (np.cumsum(counts) - counts)[present]

    zeros = bytes(8 * rows)
    words = np.empty(order.size, dtype=np.uint64)
    for h in range(repetitions):
        # The first half has the block counter, from 0; the second the number of the stream.
        nonce = bytes(8) + h.to_bytes(8, "little")
        cipher = Cipher(algorithms.ChaCha20(key, nonce), mode=None)
        stream = np.frombuffer(cipher.encryptor().update(zeros), dtype="<u8")
        np.take(stream, order, out=words, mode="clip")
        least_words[h, present] = np.minimum.reduceat(words, first)

    # A word that starts with z zeros is the geometric number z + 1; 0 starts with 64.
    numbers = LARGEST - _bit_lengths(least_words)
    return numbers.astype(np.uint8) * (counts > 0)


def _bit_lengths(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the number of bits of each word without its leading zeros."""
    # Halves of a word are exact in floats, whose exponent is the number of bits; a whole word would
    # be rounded.
    high = (words >> np.uint64(32)).astype(float)
    low = (words & np.uint64(2**32 - 1)).astype(float)
    high_bits = np.frexp(high)[1]
    low_bits = np.frexp(low)[1]
    lengths: NDArray[np.int64] = np.where(high > 0, 32 + high_bits, low_bits)
    return lengths


# What they are worth


@lru_cache(maxsize=64)
def sketch_epsilon(
    noise: SketchNoise, *, repetitions: int, attributes: int, delta: float
) -> float:
    """Return the least epsilon for which the sketches are (epsilon, delta)-DP.

    Neighbours are those by adding or removing a row.

    **Guarantee**: an upper bound, and exact but for the grid of losses; see the file's proof.

    Example:
        >>> noise = SketchNoise.published(0.32, 1 / 21_574, repetitions=2000, attributes=4)
        >>> 15 < sketch_epsilon(noise, repetitions=2000, attributes=4, delta=1 / 21_574) < 25
        True
    """
    added, removed = _composed(noise, repetitions, attributes)
    epsilon_added = float(added.get_epsilon_for_delta(delta))
    epsilon_removed = float(removed.get_epsilon_for_delta(delta))
    return max(epsilon_added, epsilon_removed)


def losses(noise: SketchNoise, attributes: int) -> tuple[NDArray[np.float64], ...]:
    """Return the privacy losses of one repetition for all cases (m, s), and their log masses.

    The loss is ln P[with the row] - ln P[without], and the masses are those without the row. (m,
    s), F and g are those of the file's proof.
    """
    m = np.arange(noise.floor, LARGEST + 1, dtype=float)
    s = np.arange(1, attributes + 1, dtype=float)[:, None]

    # F(m) = (1 - 2^-m)^phantoms, but 1 at the largest number, which stands for all above it; and
    # g(m) = F(m) - F(m - 1), but F at the floor, which stands for all below it.
    log_F = noise.phantoms * np.log1p(-(2.0**-m))
    log_F[-1] = 0.0
    # log(F(m) - F(m - 1)) = log F(m) + log(1 - F(m - 1) / F(m)).
    log_ratios = log_F[:-1] - log_F[1:]
    log_steps = log_F[1:] + np.log(-np.expm1(log_ratios))
    log_g = np.concatenate([log_F[:1], log_steps])

    # P[Z < m] + P[Z = m] (F(m) / g(m))^s. P[Z = 65] is that of Z = 64: both are 2^-64.
    log_equal = -np.minimum(m, LARGEST - 1) * math.log(2)
    log_below = np.log1p(-(2.0 ** (1 - m)))
    loss = np.logaddexp(log_below, log_equal + s * (log_F - log_g))

    # C(d, s) g(m)^s (1 - F(m))^(d - s). Above the largest number nothing is left: log 0.
    choices = [math.comb(attributes, k) for k in range(1, attributes + 1)]
    log_choices = np.array([[math.log(count)] for count in choices])
    with np.errstate(divide="ignore", invalid="ignore"):
        log_above = (attributes - s) * np.log(-np.expm1(log_F))
    mass = log_choices + s * log_g + np.where(s < attributes, log_above, 0.0)

    # Cases of mass 0 have no loss.
    possible = np.isfinite(mass)
    return loss[possible], mass[possible]


@lru_cache(maxsize=16)
def _composed(noise: SketchNoise, repetitions: int, attributes: int) -> tuple[Any, Any]:
    """Return the loss distributions of all repetitions together, of a row added and one removed."""
    loss, mass = losses(noise, attributes)
    # The loss is weighted with the masses of the side that the rows are on: with the row, those
    # are e^loss times as large; without it, the loss has the other sign.
    added = _discrete(loss, np.exp(mass + loss))
    removed = _discrete(-loss, np.exp(mass))
    return added.self_compose(repetitions), removed.self_compose(repetitions)


def _discrete(loss: NDArray[np.float64], weights: NDArray[np.float64]) -> Any:
    """Build a pessimistic loss distribution on a grid whose points enclose every loss.

    The method is Connect-the-Dots of `dp_accounting`, which joins the deltas at the points.
    """
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots

    positions = loss / _GRID
    neighbours = np.concatenate([np.floor(positions) - 1, np.ceil(positions)])
    points = np.unique(neighbours).astype(np.int64)

    # Delta at an epsilon is the mean of max(0, 1 - e^(epsilon - loss)). It never grows with
    # epsilon; the running minimum takes rounding away that says otherwise.
    excess = -np.expm1(np.minimum(points[:, None] * _GRID - loss[None, :], 0.0))
    deltas = np.minimum.accumulate(np.minimum(excess @ weights, 1.0))
    return create_pmf_pessimistic_connect_dots(_GRID, points, deltas)
