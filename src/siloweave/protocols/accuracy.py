"""How far a private table will be from the rows, before any noise is drawn: a forecast of error.

It follows from public facts alone: the budget, the number of rows (declared, public or guessed),
the codes of each column, and how a method spends its budget. The noise of a share of one column
follows from the precision that the method's tables have of it. A pair is off by its two columns,
and by what its own table measures of their dependence. How strong dependence is nobody knows
beforehand: it is taken to differ between pairs as exponential variables do, with means fitted on
real tables (`_DEPENDENCE`), so a forecast of pairs is rougher than one of shares. Which pairs a
method measures follows from the same: those whose dependence stands out of the noise. The others
lack what the measured ones do not imply.

benchmarks/forecast.py compares forecasts with runs. Rounds and noise of AIM are those of McKenna,
Mullins, Sheldon & Miklau 2022, "AIM" (VLDB 15(11)), sections 5.1 and 5.2.

**Guarantee**: nothing to protect. No function here reads a row; a number of rows that is private
moves what is computed, so a forecast from one is for whoever holds the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import exp, inf, log, pi, sqrt
from statistics import NormalDist, fmean

import numpy as np

from siloweave.core.method import ColumnError, ErrorForecast
from siloweave.models.estimate import solve_block
from siloweave.models.pair_noise import EVIDENCE
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Domain, Encoder
from siloweave.tables.schema import Schema

_MEAN_ABS = sqrt(2 / pi)  # of a Gaussian, in standard deviations
_QUANTILES = 16  # of the noise, over which an error is averaged

# L1 distance of a pair from independence, as a share of the rows, of pairs with no, one and two
# columns of numbers. Bins of numbers hold about as many rows each, while most rows of a column of
# categories have one of a few: those can move by less. The three are to each other as the means
# over the tables that constants are chosen on (benchmarks/forecast.py), but adult: .10, .13 and
# .29. All are 2.2 times these means: so forecasts of pairs are nearest to what came out on these
# tables, by the mean square of the ratio's logarithm.
_DEPENDENCE = (0.22, 0.29, 0.64)
# Where an exponential's tail is looked for; far more than there is.
_MOST_DEPENDENCE = 20.0
# Rows are drawn by rounded counts of the model's cliques (models/mrf.py, `MRF.sample`). A pair that
# no clique holds comes out about half as uneven as if rows were drawn one by one.
_EVEN = 0.5
# The same of a column, or of a pair in a clique, if strata are as many as rows: see `_unevenness`.
# It was .1 to .5 in ten models of TwoRound on tables that constants are chosen on.
_ROUNDED = 0.35
_HALVINGS = 50  # of the interval in which a root lies
_NOISE_ONLY = 0.25
"""Share of the rows that stand in a wrong code of a column, from which on it is noise."""


@dataclass(frozen=True)
class Bought:
    """The measurements that a method's budget buys over a domain, in expectation.

    Precisions are inverse variances of counts: 1 / rows squared.

    Attributes:
        first: Precision of every column's cells, from the table that all columns get.
        more: What each pair that holds the column adds to it.
        pairs: How many pairs are measured.
        sigma: Noise of a cell of such a pair, in rows.
        shrinkage: Of the last fit, which takes less than all of a cell that drowns in noise.
        alone: What a column gets more if no measured pair holds it.
        covered: How many pairs lie in a measured table; as many as are measured if None.
        adapts: Whether noise is halved until pairs that are not measured lack less than it.
    """

    first: float
    more: float
    pairs: float
    sigma: float
    shrinkage: float
    alone: float = 0.0
    covered: float | None = None
    adapts: bool = False


def typical_size(sizes: Sequence[int]) -> float:
    """Return the geometric mean of the columns' numbers of codes."""
    return exp(fmean(log(max(size, 1)) for size in sizes))


def small_pair(sizes: Sequence[int]) -> int:
    """Return the number of cells of a pair that is smaller than nine in ten; 1 without a pair."""
    # Pairs by their cells. Columns of the same size are taken together, as wide tables have many.
    counts = sorted(Counter(sizes).items())
    pairs = Counter[int]()
    for i, (size, times) in enumerate(counts):
        pairs[size * size] += times * (times - 1) // 2
        for larger_size, larger_times in counts[i + 1 :]:
            pairs[size * larger_size] += times * larger_times

    smaller = sum(pairs.values()) // 10
    for cells in sorted(pairs):
        smaller -= pairs[cells]
        if pairs[cells] and smaller < 0:
            return cells
    return 1


def numbers_of(schema: Schema | Encoder) -> frozenset[str]:
    """Return the names of the columns of numbers."""
    facts = schema.schema if isinstance(schema, Encoder) else schema
    return frozenset(column.name for column in facts.columns if column.is_number)


@dataclass(frozen=True)
class _PairKinds:
    """The pairs of columns, grouped by their codes and the expected dependence; one entry a kind.

    Attributes:
        first, second: Codes of either column, 2 or more.
        times: How many pairs are so.
        dependence: Their expected dependence; it differs between pairs as exponentials do.
    """

    first: Floats
    second: Floats
    times: Floats
    dependence: Floats

    @staticmethod
    def of(domain: Domain, numbers: frozenset[str]) -> _PairKinds:
        """Group the pairs of these columns by kind; columns of one code are left out."""
        columns = Counter(
            (size, name in numbers and size > 2)
            for name, size in zip(domain.names, domain.sizes, strict=True)
            if size > 1
        )
        counts = sorted(columns.items())

        # Pairs of columns of two kinds, then pairs of columns of the same kind.
        rows: list[tuple[int, int, int, float]] = []
        for (first, first_times), (second, second_times) in combinations(counts, 2):
            rows.append(_pair_kind(first, second, first_times * second_times))
        for kind, times in counts:
            if times > 1:
                rows.append(_pair_kind(kind, kind, times * (times - 1) // 2))
        table = np.array(rows, dtype=np.float64).reshape(-1, 4)
        return _PairKinds(table[:, 0], table[:, 1], table[:, 2], table[:, 3])

    @property
    def cells(self) -> Floats:
        """The number of cells of a pair of each kind."""
        return self.first * self.second

    def above(self, least: Floats | float) -> float:
        """Return how many pairs are expected to depend by more than `least`.

        `least` is one bound for all kinds, or one for each.
        """
        return float(self.times @ np.exp(-least / self.dependence))

    def least_of(self, pairs: float) -> float:
        """Return the dependence that so many pairs are expected to exceed."""
        return _root(lambda least: self.above(least) - pairs, 0.0, _MOST_DEPENDENCE)


def _pair_kind(
    first: tuple[int, bool], second: tuple[int, bool], times: int
) -> tuple[int, int, int, float]:
    """Describe a kind of pair: the codes of both columns, the number of pairs, the dependence.

    A column's kind is how many codes it has, and whether it is one of numbers.
    """
    first_size, first_is_number = first
    second_size, second_is_number = second
    dependence = _DEPENDENCE[first_is_number + second_is_number]
    return first_size, second_size, times, dependence


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Find where a falling function is 0, by halving; an end of the interval if nowhere."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def aim_rounds(
    domain: Domain,
    numbers: frozenset[str],
    rows: float,
    rho: float,
    share: float,
    per_column: int,
    *,
    most_pairs: float = inf,
) -> float:
    """Return about how many rounds AIM makes (McKenna et al. 2022, Algorithm 1).

    A round at the first noise takes one of 16 d parts of the budget. It measures a pair that moves
    its marginal by more than its noise. Where none is left, the noise is halved, and a round takes
    four times as much.

    Args:
        domain: Columns and their codes.
        numbers: Columns of numbers, see `numbers_of`.
        rows: How many there are.
        rho: zCDP of all rounds, in units of a marginal's sensitivity.
        share: Of it that pays for measurements.
        per_column: Rounds per column that the first noise is sized for.
        most_pairs: Pairs that stand out of the noise at most.
    """
    columns = len(domain.names)
    kinds = _PairKinds.of(domain, numbers)

    # The budget in parts, each of which pays for a round at the first noise; every column took one.
    sigma = sqrt(per_column * columns / (2 * share * rho))
    parts = float((per_column - 1) * columns)
    rounds = 0.0
    cost = 1.0
    while True:
        noise = _MEAN_ABS * sigma * kinds.cells / max(rows, 1.0)
        pairs_above = min(kinds.above(noise), most_pairs)
        new_rounds = max(1.0, pairs_above - rounds)
        if new_rounds * cost >= parts:
            return max(1.0, rounds + parts / cost)
        rounds += new_rounds
        parts -= new_rounds * cost
        sigma /= 2
        cost *= 4


def aim_buys(
    domain: Domain,
    numbers: frozenset[str],
    rows: float,
    rho: float,
    share: float,
    per_column: int,
    shrinkage: float,
) -> Bought:
    """Return the measurements of AIM: a table of every column, and a pair in each round."""
    rounds = aim_rounds(domain, numbers, rows, rho, share, per_column)
    first = 2 * share * rho / (per_column * len(domain.names))
    pair = 2 * share * rho * (1 - 1 / per_column) / rounds

    # The less a pair's noise, the sooner it is chosen: partners have fewer codes than most.
    partner = sqrt(typical_size(domain.sizes) * sqrt(small_pair(domain.sizes)))
    more = pair / partner
    return Bought(first, more, rounds, 1 / sqrt(pair), shrinkage, adapts=True)


# Of a table of three to five columns that TwoRound measures where codes are few.
_WIDE_CELLS = 48
_WIDEST = 5  # columns of a table, see two_rounds.py
# Times its noise a planned pair moves the model, `_NOISE` of two_rounds.py.
_PLAN_NOISE = 0.5


def pairs_planned(
    domain: Domain,
    numbers: frozenset[str],
    rows: float,
    first_sigma: float,
    second_sigma: float,
) -> float:
    """Return how many pairs TwoRound plans if the pairs' dependences are exponentially distributed.

    A pair is planned if the first answer shows that it depends, and if it moves the model by half
    of the noise that it would bring. The more pairs are planned, the more noise each brings: the
    number is where both agree.

    Args:
        domain: Columns and their codes.
        numbers: Columns of numbers, see `numbers_of`.
        rows: How many there are.
        first_sigma: Noise of a cell in the first round, in rows.
        second_sigma: In the second round, if one pair took all of its budget.
    """
    columns = len(domain.names)
    every = columns * (columns - 1) / 2
    kinds = _PairKinds.of(domain, numbers)

    # The L1 norm that noise has along one contrast, a product of two functions: .8 x .8 of its L2
    # norm times sqrt(cells). An answer is dependence and that noise, so that noise alone lets some
    # pairs through, and keeps others out.
    along = _MEAN_ABS**2 * np.sqrt(kinds.cells) * first_sigma / rows
    quantiles = _normal_quantiles()

    def worth(pairs: float) -> float:
        brought = (
            _PLAN_NOISE * _MEAN_ABS * second_sigma * sqrt(pairs) * kinds.cells / rows
        )
        least = np.maximum(sqrt(EVIDENCE) * along, brought)
        return fmean(kinds.above(np.maximum(least - z * along, 0.0)) for z in quantiles)

    return _root(lambda pairs: worth(pairs) - pairs, 0.0, every)


def two_round_buys(
    domain: Domain,
    numbers: frozenset[str],
    rows: float,
    rho: float,
    pairs_share: float,
    shrinkage: float,
) -> Bought:
    """Return the measurements of the two rounds of two_rounds.py: all pairs, then planned ones.

    Where columns have two or three codes, tables of up to five columns are measured, which say
    less of a single column for the same budget, and hold pairs that were not planned, too.

    Args:
        domain: Columns and their codes.
        numbers: Columns of numbers, see `numbers_of`.
        rows: How many there are.
        rho: zCDP of both rounds, in units of a marginal's sensitivity.
        pairs_share: Of it that the first round takes.
        shrinkage: Of the last fit.
    """
    columns = len(domain.names)
    every = columns * (columns - 1) / 2
    size = typical_size(domain.sizes)
    width = 2
    while width < _WIDEST and size ** (width + 1) <= _WIDE_CELLS:
        width += 1
    first = 2 * pairs_share * rho / (columns + every)
    second = 2 * (1 - pairs_share) * rho
    planned = pairs_planned(
        domain, numbers, max(rows, 1.0), 1 / sqrt(first), 1 / sqrt(second)
    )
    planned = min(max(planned, 1.0), max(every, 1.0))

    # Columns that no planned pair holds are measured alone.
    tables = planned + columns * exp(-2 * planned / columns)
    more = first / size + width * second / size ** (width - 1) / (2 * tables)
    sigma = 1 / sqrt(first + second / tables)
    covered = every if width > 2 else planned
    return Bought(first, more, planned, sigma, shrinkage, second / tables, covered)


def error_forecast(
    schema: Schema,
    domain: Domain,
    rows: int,
    bought: Bought,
    drawn_rows: int | None = None,
) -> ErrorForecast:
    """Forecast the errors that noise, and the drawing of rows, add to a table.

    Args:
        schema: Columns, for the bounds of numbers.
        domain: Their codes.
        rows: How many there are.
        bought: By `aim_buys` and the like.
        drawn_rows: How many rows are drawn; as many if None.
    """
    rows = max(rows, 1)
    drawn_rows = max(drawn_rows or rows, 1)

    # By noise, column by column.
    shares: dict[int, float] = {}
    for size in set(domain.sizes):
        shares[size] = _share_error(size, rows, len(domain.names), bought)
    columns: list[ColumnError] = []
    for name, size in zip(domain.names, domain.sizes, strict=True):
        share = shares[size]
        mean = _mean_error(schema, name, size, share)
        is_noise = share * size / 2 >= _NOISE_ONLY
        columns.append(ColumnError(name, size, share, mean, is_noise))

    # By drawing rows, and both for pairs.
    uneven = _unevenness(domain.sizes, drawn_rows, bought)
    codes = np.maximum(np.array(domain.sizes, dtype=np.float64), 1.0)
    share_drawn = uneven * float(_multinomial(codes, drawn_rows).mean())
    pair, pair_drawn = _pair_errors(
        domain, numbers_of(schema), shares, rows, drawn_rows, bought
    )

    wrong = fmean(column.share * column.codes / 2 for column in columns)
    return ErrorForecast(
        rows=rows,
        share=fmean(column.share for column in columns),
        share_drawn=share_drawn,
        pair=pair,
        pair_drawn=pair_drawn,
        pairs_measured=round(bought.pairs),
        wrong=min(1.0, wrong),
        noise=wrong >= _NOISE_ONLY,
        columns=tuple(columns),
    )


def _share_error(size: int, rows: float, columns: int, bought: Bought) -> float:
    """Return the expected error of a share in a column with so many codes.

    How many measured pairs hold a column varies, as a Poisson number does if pairs are chosen
    whatever is known of a column, and not at all if the column that is known least comes first. A
    method that chooses lies between: the noise is the mean of both.
    """
    if size < 2:
        return 0.0

    # Poisson: by how many pairs hold the column, until the rest is less likely than 1 in 10,000.
    mean = 2 * bought.pairs / columns
    pairs = 0
    chance = exp(-mean)
    rest = 1.0
    sigma = 0.0
    while rest > 1e-4 and pairs < 200:
        more = pairs * bought.more if pairs else bought.alone
        sigma += chance / sqrt(bought.first + more)
        rest -= chance
        pairs += 1
        chance *= mean / pairs

    # As many pairs for every column; then the mean of both.
    even = 1 / sqrt(bought.first + mean * bought.more)
    return _cell_error(size, (sigma + even) / 2 / rows, bought.shrinkage)


@lru_cache(maxsize=1)
def _normal_quantiles() -> Floats:
    """Return equally likely values of Gaussian noise, in standard deviations."""
    places = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    return np.array([NormalDist().inv_cdf(place) for place in places])


@lru_cache(maxsize=4096)
def _cell_error(size: int, sigma: float, shrinkage: float) -> float:
    """Return the expected error of a share in a column that was measured with noise `sigma`.

    Which shares are rare nobody knows, and there a fit errs by less than the noise, as no count is
    negative. The error is midway between a column without rare codes and one whose k-th code has a
    share in proportion to 1 / k (Zipf).
    """
    noise = sigma * sqrt((size - 1) / size)  # shares sum to 1
    open_error = min(_MEAN_ABS * noise, 2 / size)

    # All quantiles of the noise are fitted in one block.
    zipf = 1 / np.arange(1, size + 1)
    zipf /= zipf.sum()
    answers: Floats = zipf[:, None] + noise * _normal_quantiles()[None, :]
    slack = max(shrinkage * noise, 1e-12)
    base = answers / slack + log(1 / (size * slack))
    fitted = solve_block(base.reshape(-1), slack, float(_QUANTILES)).reshape(
        answers.shape
    )
    return float(open_error + np.abs(fitted - zipf[:, None]).mean()) / 2


def _multinomial(cells: Floats, drawn_rows: float) -> Floats:
    """Return the expected error of a cell's share that comes from drawing rows one by one."""
    return _MEAN_ABS * np.sqrt((1 - 1 / cells) / cells / drawn_rows)


def _unevenness(sizes: Sequence[int], drawn_rows: float, bought: Bought) -> float:
    """Return how uneven rows drawn from cliques are, as a share of rows drawn one by one.

    The rows of each stratum, which is a cell of the columns that a clique shares with those drawn
    before, are rounded by themselves. A column is drawn given as many others as there are pairs a
    column. Were every stratum rounded independently, the variance of a count would be in proportion
    to the strata; were strata smaller than a row, to the rows. Roundings are spread over strata,
    and many strata hold no row: the variance is in proportion to the geometric mean of both.
    """
    conditions = bought.pairs / len(sizes)
    strata = exp(min(log(drawn_rows), conditions * log(typical_size(sizes))))
    return min(1.0, _ROUNDED * sqrt(sqrt(strata / drawn_rows)))


def _pair_errors(
    domain: Domain,
    numbers: frozenset[str],
    shares: dict[int, float],
    rows: float,
    drawn_rows: float,
    bought: Bought,
) -> tuple[float, float]:
    """Return a pair's mean cell error from noise, and from drawing rows, averaged over pairs.

    The pairs that are measured are those that depend most, so what a pair that is not measured
    lacks is less than what any of them has.
    """
    kinds = _PairKinds.of(domain, numbers)
    every = max(float(kinds.times.sum()), 1.0)

    # Which pairs are measured, and how strong dependence is among these and among the others.
    covered = bought.pairs if bought.covered is None else bought.covered
    least = kinds.least_of(min(covered, every))
    measured = np.exp(-least / kinds.dependence)
    strong = kinds.dependence + least
    weak = kinds.dependence - least * measured / np.maximum(1 - measured, 1e-9)

    # Two columns that are measured with the same third one depend in the model, too. What the model
    # lacks of their dependence is taken to be all of it without such a third column, a half with
    # one, and a third with two. Nothing was fitted here; benchmarks/forecast.py judges it.
    measured_with = 2 * bought.pairs / len(domain.sizes)
    thirds = measured_with**2 / len(domain.sizes)
    unexplained = 1 / (1 + thirds)

    # The error of dependence: noise where a pair is measured, else what it lacks. A method that
    # adapts measures a pair that lacks more than its noise.
    cells = kinds.cells
    freedom = (kinds.first - 1) * (kinds.second - 1) / cells
    noise = _MEAN_ABS * bought.sigma / rows * np.sqrt(freedom)
    unmeasured = unexplained * weak / cells
    if bought.adapts:
        unmeasured = _either(unexplained * kinds.dependence / cells, noise)
    beyond = measured * _either(strong / cells, noise) + (1 - measured) * unmeasured

    # And the errors of the pair's two columns.
    by_first = np.array([shares[int(size)] for size in kinds.first]) / kinds.second
    by_second = np.array([shares[int(size)] for size in kinds.second]) / kinds.first
    alone = np.hypot(by_first, by_second)
    by_noise = float(kinds.times @ np.hypot(alone, beyond)) / every

    uneven = (
        measured * _unevenness(domain.sizes, drawn_rows, bought)
        + (1 - measured) * _EVEN
    )
    by_drawing = float(kinds.times @ (uneven * _multinomial(cells, drawn_rows))) / every
    return by_noise, by_drawing


def _either(dependence: Floats, noise: Floats) -> Floats:
    """Return errors that are below both the noise and the dependence that could be measured."""
    return dependence * noise / np.maximum(dependence + noise, 1e-300)


def _mean_error(schema: Schema, name: str, size: int, share: float) -> float | None:
    """Return the expected error of a number's mean, in the column's unit; None for other columns.

    It is as if a column's codes were equally far apart.
    """
    column = schema[name]
    if (
        column.low is None
        or column.high is None
        or isinstance(column.low, str)
        or size < 2
    ):
        return None
    width = float(column.high) - float(column.low)
    return min(share * sqrt((size * size - 1) / (12 * size)) * width, width / 2)
