"""How far a private table will be from the rows, before any noise is drawn: a forecast of error.

It follows from public facts alone: the budget, the number of rows (declared, public or guessed),
the codes of each column, and how a method spends its budget. The noise of a share of one column
follows from the precision that the method's tables have of it. A pair is off by its two columns,
and by what its own table measures of their dependence. How strong dependence is nobody knows
beforehand: it is taken to be that of real tables (`_DEPENDENCE`), so a forecast of pairs is rougher
than one of shares. benchmarks/forecast.py compares forecasts with runs. Rounds and noise of AIM are
those of McKenna, Mullins, Sheldon & Miklau 2022, "AIM" (VLDB 15(11)), sections 5.1 and 5.2.

**Guarantee**: nothing to protect. No function here reads a row; a number of rows that is private
moves what is computed, so a forecast from one is for whoever holds the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import exp, hypot, log, log2, pi, sqrt
from statistics import NormalDist, fmean

import numpy as np

from siloweave.core.method import ColumnError, ErrorForecast
from siloweave.models.estimate import solve_block
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Domain
from siloweave.tables.schema import Schema

_MEAN_ABS = sqrt(2 / pi)  # of a Gaussian, in standard deviations
_QUANTILES = 16  # of the noise, over which an error is averaged

# L1 distance of a pair from independence, as a share of the rows, mean over pairs: .07 to .34 on
# churn, br2000, adult, bank_marketing, diabetes, nltcs and heloc.
_DEPENDENCE = 0.25
# A pair that is not measured errs by what measuring it would not have shown: somewhat more than its
# noise, as a pair is chosen where it moves by more. From means over all of benchmarks/forecast.py.
_UNMEASURED = 1.5
# Rows are drawn by rounded counts of the model's cliques, which is about half as uneven as drawing
# them one by one (models/mrf.py, `MRF.sample`).
_EVEN = 0.5
_NOISE_ONLY = 0.25
"""Share of the rows that stand in a wrong code of a column, from which on it is noise."""


@dataclass(frozen=True)
class Bought:
    """What a method's budget buys over a domain, in expectation.

    Precisions are inverse variances of counts: 1 / rows squared.

    Attributes:
        first: Precision of every column's cells, from the table that all columns get.
        more: What each pair that holds the column adds to it.
        pairs: How many pairs are measured.
        sigma: Noise of a cell of such a pair, in rows.
        shrinkage: Of the last fit, which takes less than all of a cell that drowns in noise.
    """

    first: float
    more: float
    pairs: float
    sigma: float
    shrinkage: float


def typical_size(sizes: Sequence[int]) -> float:
    """The geometric mean of the columns' codes."""
    return exp(fmean(log(max(size, 1)) for size in sizes))


def small_pair(sizes: Sequence[int]) -> int:
    """Cells of a pair that is smaller than nine in ten; 1 where there is no pair."""
    counts = sorted(Counter(sizes).items())
    cells = Counter[int]()
    for i, (size, times) in enumerate(counts):
        cells[size * size] += times * (times - 1) // 2
        for other, others in counts[i + 1 :]:
            cells[size * other] += times * others
    left = sum(cells.values()) // 10
    for number in sorted(cells):
        left -= cells[number]
        if cells[number] and left < 0:
            return number
    return 1


# Constants of rounds and plans are from these tables and covertype, at epsilon .3 and 1.
_MOVED = 0.35  # L1 that the answers AIM asks for move a marginal by, as a share of the rows
_LEAST_HALVINGS = 1.6  # of AIM's noise even where rows are many: pairs worth it run out
_ROUNDS = (
    16  # per column, for which AIM's first noise is sized, one of which all single columns take
)


def aim_rounds(domain: Domain, rows: float, rho: float, share: float, per_column: int) -> float:
    """About how many rounds AIM makes (McKenna et al. 2022, Algorithm 1).

    A round at the first noise takes one of 16 d parts of the budget. The noise is halved, and a
    round takes four times as much, until the noise of an answer is less than the answer moves its
    marginal. With few rows that is about a third of the rows, since single columns are as noisy;
    with many it is when the pairs that are worth their noise are measured.

    Args:
        domain: Columns and their codes.
        rows: How many there are.
        rho: zCDP of all rounds, in units of a marginal's sensitivity.
        share: Of it that pays for measurements.
        per_column: Rounds per column that the first noise is sized for.
    """
    columns = len(domain.names)
    sigma = sqrt(per_column * columns / (2 * share * rho))
    moved = _MEAN_ABS * sigma * small_pair(domain.sizes) / max(rows, 1.0)
    halvings = max(_LEAST_HALVINGS, log2(moved / _MOVED))
    at_the_last: float = (per_column - 1) * columns / 4.0**halvings
    return halvings + max(1.0, at_the_last)


def aim_buys(
    domain: Domain, rows: float, rho: float, share: float, per_column: int, shrinkage: float
) -> Bought:
    """What AIM's budget buys: one table of every column, and a pair in each round."""
    rounds = aim_rounds(domain, rows, rho, share, per_column)
    first = 2 * share * rho / (per_column * len(domain.names))
    pair = 2 * share * rho * (1 - 1 / per_column) / rounds
    # The less a pair's noise, the sooner it is chosen: partners have fewer codes than most.
    partner = sqrt(typical_size(domain.sizes) * sqrt(small_pair(domain.sizes)))
    more = pair / partner
    return Bought(first, more, rounds, 1 / sqrt(pair), shrinkage)


_PLANNED = 4.0  # pairs a column that TwoRound plans; half a dozen tables had 2.5 to 6
_WIDE_CELLS = 48  # of a table of three to five columns that TwoRound measures where codes are few
_WIDEST = 5  # columns of a table, see two_rounds.py


def two_round_buys(domain: Domain, rho: float, pairs_share: float, shrinkage: float) -> Bought:
    """What the two rounds of two_rounds.py buy: all pairs once, and then what is planned.

    Where columns have two or three codes, tables of up to five columns are measured, which say
    less of a single column for the same budget.

    Args:
        domain: Columns and their codes.
        rho: zCDP of both rounds, in units of a marginal's sensitivity.
        pairs_share: Of it that the first round takes.
        shrinkage: Of the last fit.
    """
    columns = len(domain.names)
    every = columns * (columns - 1) / 2
    planned = max(1.0, min(_PLANNED * columns, every))
    size = typical_size(domain.sizes)
    width = 2
    while width < _WIDEST and size ** (width + 1) <= _WIDE_CELLS:
        width += 1
    first = 2 * pairs_share * rho / (columns + every)
    second = 2 * (1 - pairs_share) * rho
    more = first / size + width * second / size ** (width - 1) / (2 * planned)
    sigma = 1 / sqrt(first + second / planned)
    return Bought(first, more, planned, sigma, shrinkage)


def error_forecast(
    schema: Schema, domain: Domain, rows: int, bought: Bought, drawn: int | None = None
) -> ErrorForecast:
    """What noise, and the drawing of rows, will be off by.

    Args:
        schema: Columns, for the bounds of numbers.
        domain: Their codes.
        rows: How many there are.
        bought: By `aim_buys` and the like.
        drawn: How many rows are drawn; as many if None.
    """
    rows, drawn = max(rows, 1), max(drawn or rows, 1)
    shares = {
        size: _share_error(size, rows, len(domain.names), bought) for size in set(domain.sizes)
    }
    columns = tuple(
        ColumnError(
            name,
            size,
            shares[size],
            _mean_error(schema, name, size, shares[size]),
            shares[size] * size / 2 >= _NOISE_ONLY,
        )
        for name, size in zip(domain.names, domain.sizes, strict=True)
    )
    pair, pair_drawn = _pair_errors(domain.sizes, shares, rows, drawn, bought)
    wrong = fmean(one.share * one.codes / 2 for one in columns)
    return ErrorForecast(
        rows=rows,
        share=fmean(one.share for one in columns),
        share_drawn=_EVEN / drawn,
        pair=pair,
        pair_drawn=pair_drawn,
        pairs_measured=round(bought.pairs),
        wrong=min(1.0, wrong),
        noise=wrong >= _NOISE_ONLY,
        columns=columns,
    )


def _share_error(size: int, rows: float, columns: int, bought: Bought) -> float:
    """Expected error of a share of a column with so many codes.

    How many measured pairs hold a column varies, as a Poisson number does if pairs are chosen
    whatever is known of a column, and not at all if the column that is known least comes first. A
    method that chooses lies between: the noise is the mean of both.
    """
    if size < 2:
        return 0.0
    mean = 2 * bought.pairs / columns
    chance, left, sigma, held = exp(-mean), 1.0, 0.0, 0
    while left > 1e-4 and held < 200:
        sigma += chance / sqrt(bought.first + held * bought.more)
        left -= chance
        held += 1
        chance *= mean / held
    even = 1 / sqrt(bought.first + mean * bought.more)
    return _cell_error(size, (sigma + even) / 2 / rows, bought.shrinkage)


@lru_cache(maxsize=4096)
def _cell_error(size: int, sigma: float, shrinkage: float) -> float:
    """Expected error of a share of a column, measured with noise of that size, as a share.

    Which shares are rare nobody knows, and there a fit errs by less than the noise, as no count is
    negative. The error is midway between a column without rare codes and one whose k-th code has a
    share in proportion to 1 / k (Zipf).
    """
    noise = sigma * sqrt((size - 1) / size)  # shares sum to 1
    open_error = min(_MEAN_ABS * noise, 2 / size)
    zipf = 1 / np.arange(1, size + 1)
    zipf /= zipf.sum()
    places = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    quantiles = np.array([NormalDist().inv_cdf(place) for place in places])
    answers: Floats = zipf[:, None] + noise * quantiles[None, :]
    slack = max(shrinkage * noise, 1e-12)
    base = answers / slack + log(1 / (size * slack))
    fitted = solve_block(base.reshape(-1), slack, float(_QUANTILES)).reshape(answers.shape)
    return float(open_error + np.abs(fitted - zipf[:, None]).mean()) / 2


def _pair_errors(
    sizes: Sequence[int], shares: dict[int, float], rows: float, drawn: float, bought: Bought
) -> tuple[float, float]:
    """Expected error of a pair's cell, mean over pairs, by noise and by drawing rows."""
    counts = sorted((size, times) for size, times in Counter(sizes).items() if size > 1)
    every = len(sizes) * (len(sizes) - 1) / 2
    measured = min(1.0, bought.pairs / max(every, 1.0))
    kinds: list[tuple[int, int, float]] = [
        (a, b, times * others) for (a, times), (b, others) in combinations(counts, 2)
    ]
    kinds += [(a, a, times * (times - 1) / 2) for a, times in counts if times > 1]
    total = noise_sum = drawn_sum = 0.0
    for a, b, times in kinds:
        cells = a * b
        dependence = _DEPENDENCE / cells
        noise = _MEAN_ABS * bought.sigma / rows * sqrt((a - 1) * (b - 1) / cells)
        beyond = measured * _either(dependence, noise)
        beyond += (1 - measured) * _either(dependence, _UNMEASURED * noise)
        alone = hypot(shares[a] / b, shares[b] / a)
        total += times
        noise_sum += times * hypot(alone, beyond)
        drawn_sum += times * _EVEN * _MEAN_ABS * sqrt((1 - 1 / cells) / cells / drawn)
    return noise_sum / max(total, 1.0), drawn_sum / max(total, 1.0)


def _either(dependence: float, noise: float) -> float:
    """An error that neither noise nor what there is to measure exceeds."""
    return dependence * noise / (dependence + noise) if noise > 0 else 0.0


def _mean_error(schema: Schema, name: str, size: int, share: float) -> float | None:
    """Expected error of a number's mean, in its unit: as if its codes were equally far apart."""
    column = schema[name]
    if column.low is None or column.high is None or isinstance(column.low, str) or size < 2:
        return None
    width = float(column.high) - float(column.low)
    return min(share * sqrt((size * size - 1) / (12 * size)) * width, width / 2)
