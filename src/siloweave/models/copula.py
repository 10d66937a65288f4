"""The Gaussian copula: distributions of single columns, joined by correlations of normal scores.

Patki, Wedge & Veeramachaneni, The Synthetic Data Vault, DSAA 2016; the defaults are those of
today's releases: beta distributions, categories as pieces of (0, 1), Pearson correlation of normal
scores. A column's values go through its distribution function to (0, 1) and from there through the
normal quantile function; the way back inverts both. A category is a piece of (0, 1) as wide as its
frequency, the most frequent first. The fit takes a second.

Here pieces have another order than in the releases, since no link but a chance one survives that by
frequency. Values that have an order (few whole numbers, dates, numbers, booleans, categories that
are numbers) stand in it, and where one may be missing, that is a normal score of its own: a missing
value has no place in the order. Categories without an order stand by what the other columns are in
their rows (`_orders_by_means`).

Categories differ from the releases in one more point. There a category's score is drawn uniformly
from its piece of (0, 1), a noise that shrinks every correlation with a category (two equal binary
columns come out at 0.64). By default the score is the normal mean of the piece. Two normal
variables are correlated more than the means of their pieces, so the copula takes the correlation
at which drawn rows have that of the real rows' means (`_correlation_before_cuts`; for categories in
order this is Olsson's polychoric correlation, by moments). ``scores="uniform"`` is the other way.

Olsson 1979, Maximum likelihood estimation of the polychoric correlation coefficient, Psychometrika.

`ScoreModes` is the transform of CopulaGAN: numbers become normal scores, and where the distribution
fits badly these are not normal, so they are split into modes as CTGAN splits any number (Xu et al.,
Modeling Tabular Data using Conditional GAN, NeurIPS 2019). It is a transform, not a likelihood: a
GAN is trained on its output, and the rows it draws are mapped back.

**Guarantee**: none. Distributions and correlations are those of the rows, without noise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy.optimize import minimize
from scipy.special import (
    betainc,
    betaincinv,
    digamma,
    gammainc,
    gammaincinv,
    log_ndtr,
    ndtr,
    ndtri,
    polygamma,
)

from siloweave.errors import DataError, InputError, whole
from siloweave.models.settings import FAMILIES, CopulaSettings, Family
from siloweave.tables.arrays import Bools, Floats, Ints, Matrix
from siloweave.tables.encodings import Mixture, fit_mixture
from siloweave.tables.features import Block, Layout
from siloweave.tables.keys import Key, fold_in, generator

_Orders = Mapping[str, tuple[int, ...]]
"""All codes of some columns in their order, but for one that stands for a missing value."""

# Probabilities of numbers stay this far from 0 and 1, as in the releases; a normal score of 0 or 1
# itself would be infinite.
_EDGE = float(np.finfo(np.float32).eps)
# A column of more rows is fitted by so many quantiles.
_MAX_POINTS = 2_000
# Distances between a bound and the data that are tried, in the data's range.
_BOUND_GAPS = (0.0003, 0.002, 0.01, 0.05, 0.2, 0.6)
# The distribution function of ``kde`` is stored at so many points.
_GRID = 1_024
# Normal scores are taken of probabilities from the first to the second.
_INSIDE = (1e-12, 1.0 - 1e-12)
# The smallest eigenvalue of a correlation matrix.
_MIN_EIGENVALUE = 1e-6
# Sweeps of Gibbs' sampler, where more than one category is given.
_SWEEPS = 15
# Terms of the series in Hermite polynomials; .95**100 is .006.
_TERMS = 100
# So often an angle between -pi/2 and pi/2 is halved: correlations are then exact to 5e-5.
_HALVINGS = 16
# Scores are averaged over so many points of (0, 1).
_MIDDLES = 4_096


# Distributions of single columns


@dataclass(frozen=True)
class Margin:
    """The distribution of one numeric column."""

    family: str  # one of `FAMILIES`, or ``constant`` for a column of one value
    parameters: Floats  # what the family needs, as `fit` wrote it

    @classmethod
    def fit(cls, values: NDArray[np.floating], family: Family = "beta") -> Margin:
        """Fit a family by maximum likelihood; ``constant`` where all values are equal.

        The bounds of beta and gamma are not where the likelihood is largest, for it has no bound
        there: of a few bounds outside the data, the fit nearest to the empirical distribution in
        Kolmogorov's distance is taken. Columns above 2,000 rows are fitted to as many quantiles.
        The width of ``kde``, a Gaussian kernel, is by Scott's rule.

        Raises:
            InputError: The family is unknown, a value is not finite, or there is no value.
        """
        if family not in FAMILIES:
            raise InputError(
                f"family={family!r} is unknown; use one of {', '.join(FAMILIES)}"
            )
        x = np.asarray(values, dtype=np.float64)
        is_finite = np.isfinite(x)
        if x.ndim != 1 or x.size == 0 or not is_finite.all():
            raise InputError(
                f"values: shape {x.shape} with {np.count_nonzero(~is_finite)} entries that "
                "are no numbers; give one or more finite values, and encode missing ones"
            )

        low = float(x.min())
        high = float(x.max())
        if not high > low:
            return cls("constant", np.array([low]))

        if x.size > _MAX_POINTS:
            shares = (np.arange(_MAX_POINTS) + 0.5) / _MAX_POINTS
            x = np.quantile(x, shares)
        parameters = _FAMILIES[family].fit(np.sort(x), low, high)
        return cls(family, np.array(parameters))

    def cdf(self, x: NDArray[np.floating]) -> Floats:
        """Return the distribution function at each value: the share at or below it."""
        shares = _FAMILIES[self.family].cdf(self.parameters, x)
        return np.asarray(shares, dtype=np.float64)

    def ppf(self, u: NDArray[np.floating]) -> Floats:
        """Return the quantile of each share: the value below which so much lies."""
        values = _FAMILIES[self.family].ppf(self.parameters, u)
        return np.asarray(values, dtype=np.float64)

    def to_normal(self, values: NDArray[np.floating]) -> Floats:
        """Return normal scores of values; probabilities stay 1.2e-7 away from 0 and 1."""
        u = np.clip(self.cdf(values), _EDGE, 1.0 - _EDGE)
        return np.asarray(ndtri(u), dtype=np.float64)

    def from_normal(self, scores: NDArray[np.floating]) -> Floats:
        """Return the values with these normal scores: the inverse of `to_normal`."""
        z = np.asarray(scores, dtype=np.float64)
        u = np.clip(ndtr(z), _EDGE, 1.0 - _EDGE)
        return self.ppf(u)


@dataclass(frozen=True)
class CategoryMargin:
    """The distribution of a categorical column: pieces of (0, 1), in order or by frequency."""

    shares: Floats  # frequency of each code; they sum to 1
    ranking: tuple[int, ...] | None = None  # all codes in their order; None without one

    @classmethod
    def fit(
        cls,
        codes: NDArray[np.integer],
        size: int,
        ranking: tuple[int, ...] | None = None,
    ) -> CategoryMargin:
        """Count the codes 0 to `size` - 1; without any, all are equally frequent."""
        counts = np.bincount(codes, minlength=size).astype(np.float64)
        if not counts.any():
            counts += 1.0
        return cls(counts / counts.sum(), ranking)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """The codes in their declared order, else from the most to the least frequent."""
        if self.ranking is not None:
            return np.array(self.ranking, dtype=np.intp)
        # Stable, so that codes of one frequency stand as in the schema, on every machine.
        return np.argsort(-self.shares, kind="stable")

    @cached_property
    def edges(self) -> Floats:
        """The ends of the pieces in that order, from 0 to 1: one more than there are codes."""
        ends = np.cumsum(self.shares[self.order])
        edges = np.concatenate([[0.0], ends])
        # Rounding may leave the sum of all shares just below 1; pieces after it are empty.
        edges[edges > 1.0 - 1e-12] = 1.0
        return edges

    def bounds(self, codes: NDArray[np.integer]) -> tuple[Floats, Floats]:
        """Return the two ends of each code's piece."""
        ranks = np.empty(self.shares.size, dtype=np.intp)
        ranks[self.order] = np.arange(self.shares.size)
        positions = ranks[codes]
        return self.edges[positions], self.edges[positions + 1]

    def codes(self, u: NDArray[np.floating]) -> NDArray[np.intp]:
        """Return the code in whose piece each share lies; never one of frequency 0."""
        pieces = np.searchsorted(self.edges, u, side="right") - 1
        # A share of exactly 1 would come after the last piece, or in an empty one at the end.
        nonempty_pieces = np.flatnonzero(self.shares[self.order])
        last_piece = int(nonempty_pieces[-1])
        return self.order[np.minimum(pieces, last_piece)]

    @cached_property
    def scores(self) -> Floats:
        """The mean of a standard normal variable within each code's piece, in code order."""
        # Between a and b that mean is (phi(a) - phi(b)) / (Phi(b) - Phi(a)).
        z = ndtri(np.clip(self.edges, 1e-300, 1.0 - 1e-16))
        density = np.exp(-0.5 * z**2)
        density[[0, -1]] = 0.0
        density[self.edges == 1.0] = 0.0
        mass = np.maximum(np.diff(self.edges), 1e-300)  # an empty piece has the mean 0

        means = np.empty(self.shares.size)
        means[self.order] = -np.diff(density) / np.sqrt(2.0 * np.pi) / mass
        return means


def _fit_beta(x: Floats, low: float, high: float) -> list[float]:
    return _nearest(x, "beta", _beta_candidates(x, low, high))


def _beta_candidates(x: Floats, low: float, high: float) -> Iterator[list[float]]:
    """Yield the parameters that are likeliest within each pair of bounds outside the data."""
    span = high - low
    for low_gap in _BOUND_GAPS:
        for high_gap in _BOUND_GAPS:
            start = low - low_gap * span
            end = high + high_gap * span
            first_shape, second_shape = _beta_shapes((x - start) / (end - start))
            yield [first_shape, second_shape, start, end]


def _beta_shapes(u: Floats) -> tuple[float, float]:
    """Return the likeliest shapes of a beta distribution on (0, 1), by Newton's method.

    The steps are taken on the logarithms of the shapes, so that these stay above 0.
    """
    mean_logs = np.array([np.log(u).mean(), np.log1p(-u).mean()])

    # The start is the fit by moments.
    mean = float(u.mean())
    variance = float(u.var())
    total = max(mean * (1.0 - mean) / max(variance, 1e-12) - 1.0, 1e-2)
    shapes = np.array([mean, 1.0 - mean]) * total

    for _ in range(60):
        # Gradient and curvature of the negative log-likelihood of one row.
        slope = digamma(shapes) - digamma(shapes.sum()) - mean_logs
        curve = np.diag(polygamma(1, shapes)) - polygamma(1, shapes.sum())
        step = np.linalg.solve(curve, slope) / shapes
        shapes = np.clip(shapes * np.exp(np.clip(-step, -1.0, 1.0)), 1e-3, 1e5)
        if np.abs(step).max() < 1e-9:
            break
    return float(shapes[0]), float(shapes[1])


def _fit_gamma(x: Floats, low: float, high: float) -> list[float]:
    return _nearest(x, "gamma", _gamma_candidates(x, low, high))


def _gamma_candidates(x: Floats, low: float, high: float) -> Iterator[list[float]]:
    """Yield the parameters that are likeliest above each bound below the data."""
    for gap in _BOUND_GAPS:
        start = low - gap * (high - low)
        y = x - start
        log_gap = max(float(np.log(y.mean()) - np.log(y).mean()), 1e-9)

        # The usual closed approximation of the likeliest shape, then Newton's steps on its
        # logarithm; each step is a factor of e at most.
        root = np.sqrt((log_gap - 3.0) ** 2 + 24.0 * log_gap)
        shape = (3.0 - log_gap + root) / (12.0 * log_gap)
        for _ in range(20):
            slope = np.log(shape) - digamma(shape) - log_gap
            step = slope / (1.0 - shape * polygamma(1, shape))
            shape /= np.exp(np.clip(step, -1.0, 1.0))
        yield [float(shape), start, float(y.mean() / shape)]


def _nearest(x: Floats, family: str, candidates: Iterable[list[float]]) -> list[float]:
    """Return the candidate whose distribution function is nearest to that of the sorted values."""
    # The empirical distribution function jumps at each value: it is compared on both sides.
    shares_below = np.searchsorted(x, x, side="left") / x.size
    shares_upto = np.searchsorted(x, x, side="right") / x.size

    def distance(parameters: list[float]) -> float:
        u = Margin(family, np.array(parameters)).cdf(x)
        return float(max((u - shares_below).max(), (shares_upto - u).max()))

    return min(candidates, key=distance)


def _fit_truncnorm(x: Floats, low: float, high: float) -> list[float]:
    """Maximise the likelihood within the data's bounds; the centre stays within a range of them."""
    span = high - low
    u = (x - low) / span
    mean = float(u.mean())
    mean_square = float((u * u).mean())

    def loss(place: Floats) -> float:
        centre = place[0]
        log_scale = place[1]
        scale = np.exp(log_scale)
        ends = np.array([-centre, 1.0 - centre]) / scale
        if ends.sum() > 0:  # the mirrored half is the exact one
            ends = -ends[::-1]
        # log(Phi(b) - Phi(a)), from logarithms: both may underflow far from the centre.
        log_below, log_upto = log_ndtr(ends)
        mass = log_upto + np.log1p(-np.exp(log_below - log_upto))
        spread = (mean_square - 2.0 * centre * mean + centre**2) / (2.0 * scale**2)
        return float(mass + log_scale + spread)

    bounds = [(-1.0, 2.0), (np.log(0.05), np.log(10.0))]
    start = np.array([mean, np.log(max(float(u.std()), 1e-2))])
    start[1] = np.clip(start[1], *bounds[1])
    optimum = minimize(loss, start, bounds=bounds, method="L-BFGS-B")
    centre, log_scale = optimum.x
    return [low + centre * span, float(np.exp(log_scale)) * span, low, high]


def _truncnorm_cdf(p: Floats, x: NDArray[np.floating]) -> Floats:
    """Return shares of the truncated normal distribution, exact in its upper tail too."""
    centre, scale, low, _ = p
    if centre < low:  # only the upper tail is in use: mirror it
        return 1.0 - _truncnorm_cdf(_mirrored(p), -np.asarray(x))
    below, above = ndtr((p[2:] - centre) / scale)
    u = (ndtr((x - centre) / scale) - below) / (above - below)
    return np.asarray(np.clip(u, 0.0, 1.0))


def _truncnorm_ppf(p: Floats, u: NDArray[np.floating]) -> Floats:
    centre, scale, low, high = p
    if centre < low:
        return -_truncnorm_ppf(_mirrored(p), 1.0 - np.asarray(u))
    below, above = ndtr((p[2:] - centre) / scale)
    values = centre + scale * ndtri(below + u * (above - below))
    return np.asarray(np.clip(values, low, high))


def _mirrored(p: Floats) -> Floats:
    """Return the parameters of the truncated normal distribution of -x."""
    centre, scale, low, high = p
    return np.array([-centre, scale, -high, -low])


def _fit_kde(x: Floats, low: float, high: float) -> list[float]:
    """Return the smoothed distribution function on a grid that reaches four widths outside."""
    # Scott's rule; the minimum keeps a column of nearly equal values from a width of 0.
    width = max(float(x.std()) * x.size**-0.2, 1e-6 * (high - low))
    grid = np.linspace(low - 4.0 * width, high + 4.0 * width, _GRID)

    # Piece by piece, since a table of all values by all points of the grid is large.
    means = []
    for piece in _equal_pieces(x):
        shares = ndtr((grid - piece[:, None]) / width)
        means.append(shares.mean(axis=0))
    u = np.mean(means, axis=0)

    # From 0 to 1, and strictly rising, so that it can be inverted.
    u = (u - u[0]) / (u[-1] - u[0])
    rising = np.maximum.accumulate(u + 1e-12 * np.arange(_GRID))
    return [*grid, *rising]


def _equal_pieces(x: Floats) -> list[Floats]:
    """Split values into pieces of equal length, so that the mean of their means is the mean."""
    divisors = (50, 40, 25, 20, 10, 8, 5, 4, 2, 1)
    number = next(divisor for divisor in divisors if x.size % divisor == 0)
    return np.split(x, number)


class _Family(NamedTuple):
    """A family: parameters from (sorted values, least, largest), and functions of parameters."""

    fit: Callable[[Floats, float, float], list[float]]
    cdf: Callable[[Floats, NDArray[np.floating]], Any]
    ppf: Callable[[Floats, NDArray[np.floating]], Any]


_FAMILIES = {
    "beta": _Family(
        _fit_beta,
        lambda p, x: betainc(p[0], p[1], np.clip((x - p[2]) / (p[3] - p[2]), 0.0, 1.0)),
        lambda p, u: p[2] + (p[3] - p[2]) * betaincinv(p[0], p[1], u),
    ),
    "norm": _Family(
        lambda x, low, high: [float(x.mean()), float(x.std())],
        lambda p, x: ndtr((x - p[0]) / p[1]),
        lambda p, u: p[0] + p[1] * ndtri(u),
    ),
    "truncnorm": _Family(_fit_truncnorm, _truncnorm_cdf, _truncnorm_ppf),
    "uniform": _Family(
        lambda x, low, high: [low, high],
        lambda p, x: np.clip((x - p[0]) / (p[1] - p[0]), 0.0, 1.0),
        lambda p, u: p[0] + (p[1] - p[0]) * np.asarray(u),
    ),
    "gamma": _Family(
        _fit_gamma,
        lambda p, x: gammainc(p[0], np.maximum(x - p[1], 0.0) / p[2]),
        lambda p, u: p[1] + p[2] * gammaincinv(p[0], u),
    ),
    "kde": _Family(
        _fit_kde,
        lambda p, x: np.interp(x, p[:_GRID], p[_GRID:]),
        lambda p, u: np.interp(u, p[_GRID:], p[:_GRID]),
    ),
    "constant": _Family(
        lambda x, low, high: [low],
        lambda p, x: np.full(np.shape(x), 0.5),
        lambda p, u: np.full(np.shape(u), p[0]),
    ),
}


# The copula


_AnyMargin = Margin | CategoryMargin


class _Part(NamedTuple):
    """The part of a row that one normal score stands for: a block, or one side of a block."""

    block: Block
    role: Literal["number", "category", "value", "missing"]
    # Codes that have an order, without a missing one.
    ranking: tuple[int, ...] | None = None

    @property
    def missing_code(self) -> int:
        """The code that has no place in the order."""
        (code,) = set(range(self.block.size)) - set(self.ranking or ())
        return code

    def in_use(self, X: NDArray[np.floating], blocks: Sequence[Block]) -> Bools:
        """Return the rows in which the part has a value, as a mask."""
        if self.role == "number":
            return _number_in_use(X, self.block, blocks)
        if self.role == "value":
            return np.asarray(_codes(X, self.block) != self.missing_code)
        return np.ones(len(X), dtype=np.bool_)

    def codes(self, X: NDArray[np.floating]) -> Ints:
        """Return the block's codes; for a part "missing", 1 where a value is missing, else 0."""
        codes = _codes(X, self.block)
        if self.role == "missing":
            return np.asarray(codes == self.missing_code, dtype=np.int64)
        return codes

    def fit(self, X: NDArray[np.floating], family: Family) -> _AnyMargin:
        """Fit the distribution of the part in the rows that use it."""
        if self.role == "number":
            return Margin.fit(X[:, self.block.start], family)
        if self.role == "missing":
            return CategoryMargin.fit(self.codes(X), 2, (0, 1))
        ranking = self.ranking
        if self.role == "value" and ranking is not None:
            ranking = (*ranking, self.missing_code)  # which no row in use has
        return CategoryMargin.fit(self.codes(X), self.block.size, ranking)


def _parts_of(blocks: Sequence[Block], orders: _Orders) -> tuple[_Part, ...]:
    """Return the parts of a row, one normal score each."""
    parts: list[_Part] = []
    for block in blocks:
        ranking = orders.get(block.column)
        if block.kind == "number":
            parts.append(_Part(block, "number"))
        elif ranking is None or len(ranking) == block.size:
            parts.append(_Part(block, "category", ranking))
        else:
            # `Copula._values` needs the values before it knows which of them are missing.
            parts.append(_Part(block, "value", ranking))
            parts.append(_Part(block, "missing", ranking))
    return tuple(parts)


class _ScoredRows(NamedTuple):
    """The normal scores of rows, and the distributions that gave them."""

    scores: Floats  # (rows, parts); 0 in rows that do not use the part
    in_use: Floats  # (rows, parts): 1 where a row uses the part, else 0
    margins: list[_AnyMargin]  # of each part


def _fit_margins(
    X: Matrix,
    parts: Sequence[_Part],
    blocks: Sequence[Block],
    settings: CopulaSettings,
    rng: np.random.Generator,
) -> _ScoredRows:
    """Fit the distribution of every part, and return the rows' normal scores by it."""
    margins: list[_AnyMargin] = []
    scores = np.zeros((len(X), len(parts)))
    in_use = np.zeros((len(X), len(parts)))
    for i, part in enumerate(parts):
        family = settings.families.get(part.block.column, settings.family)
        rows = part.in_use(X, blocks)
        if part.role == "number" and not rows.any():
            rows = ~rows  # a number that no row uses is a column of zeros
        margin = part.fit(X[rows], family)
        margins.append(margin)
        in_use[rows, i] = 1.0

        if isinstance(margin, Margin):
            scores[rows, i] = margin.to_normal(X[rows, part.block.start])
        elif settings.scores == "mean":
            scores[rows, i] = margin.scores[part.codes(X[rows])]
        else:
            low, high = margin.bounds(part.codes(X[rows]))
            u = low + rng.random(len(low)) * (high - low)
            scores[rows, i] = ndtri(np.clip(u, *_INSIDE))
    return _ScoredRows(scores, in_use, margins)


def _orders_by_means(
    X: Matrix,
    blocks: Sequence[Block],
    orders: _Orders,
    scores: Floats,
) -> dict[str, tuple[int, ...]]:
    """Order the codes of columns that have no order, by the other columns' means in their rows.

    The means of all other scores in the rows of each code are points; codes stand in the order of
    these points along the direction in which they spread most. So a name stands where its number
    does. Codes of equal points, as where columns are independent, stand by frequency.
    """
    parts = _parts_of(blocks, orders)
    scale = scores.std(axis=0)
    # A constant score becomes 0, whatever rounding left of its spread.
    divisor = np.where(scale > 1e-9, scale, np.inf)
    standard = (scores - scores.mean(axis=0)) / divisor

    columns = [block.column for block in blocks]
    rankings: dict[str, tuple[int, ...]] = {}
    for block in blocks:
        column = block.column
        is_single = block.kind == "categorical" and columns.count(column) == 1
        if not is_single or column in orders or block.size < 3:
            continue
        others = [i for i, part in enumerate(parts) if part.block.column != column]
        if not others:
            continue

        one_hot = X[:, block.start : block.stop].astype(np.float64)
        counts = one_hot.sum(axis=0)
        sums = one_hot.T @ standard[:, others]
        means = sums / np.maximum(counts, 1.0)[:, None]
        rankings[column] = _ranking_by_means(means, counts)
    return rankings


def _ranking_by_means(means: Floats, counts: Floats) -> tuple[int, ...]:
    """Rank codes along the direction in which their points, weighted by counts, vary most."""
    weighted = means * np.sqrt(counts)[:, None]
    _, _, directions = np.linalg.svd(weighted, full_matrices=False)
    # The direction's sign is arbitrary; this one is the same for equal columns.
    largest = np.abs(directions[0]).argmax()
    direction = directions[0] * np.sign(directions[0][largest])
    places = means @ direction

    # Two stable sorts: by place, and by frequency within equal places.
    by_frequency = np.argsort(-counts, kind="stable")
    by_place = np.argsort(places[by_frequency], kind="stable")
    return tuple(by_frequency[by_place].tolist())


@dataclass(frozen=True)
class Copula:
    """A fitted copula."""

    blocks: tuple[Block, ...]  # parts of a row's feature vector
    margins: tuple[_AnyMargin, ...]  # the distribution of each part
    correlation: Floats  # of the normal scores, (parts, parts), positive definite
    # As `fit` took them.
    orders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        X: NDArray[np.floating],
        blocks: Sequence[Block],
        settings: CopulaSettings | None = None,
        *,
        key: Key,
        orders: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Copula:
        """Fit every column's distribution, then the correlation of their normal scores.

        Args:
            X: Feature vectors, (rows, width); numbers need no scaling. A missing value is a
                category, as `Features` writes it.
            blocks: Their blocks.
            settings: How to fit; the defaults if None.
            key: For ``scores="uniform"``; the default draws nothing.
            orders: For columns that are one block of categories with an order: all codes in that
                order, but for one that stands for a missing value.

        Raises:
            InputError: X has no rows or another width, a value is not finite, or an order does not
                fit its block.
        """
        settings = settings or CopulaSettings()
        X = Layout(tuple(blocks)).check(X)
        orders = dict(orders or {})
        _check_orders(orders, blocks)
        rng = generator(fold_in(key, "copula"))
        uses_means = settings.scores == "mean"

        parts = _parts_of(blocks, orders)
        rows = _fit_margins(X, parts, blocks, settings, rng)
        if uses_means:
            # The first scores order the remaining categories, and then all is fitted again.
            orders |= _orders_by_means(X, blocks, orders, rows.scores)
            parts = _parts_of(blocks, orders)
            rows = _fit_margins(X, parts, blocks, settings, rng)

        correlation = _correlation(rows.scores, rows.in_use)
        if uses_means:
            correlation = _correlation_before_cuts(correlation, rows.margins)
        correlation = positive_definite(correlation)
        return cls(tuple(blocks), tuple(rows.margins), correlation, orders)

    @cached_property
    def parts(self) -> tuple[_Part, ...]:
        """The parts of a row, each with one normal score."""
        return _parts_of(self.blocks, self.orders)

    def shares(self, block: Block) -> Floats | None:
        """Return how frequent each option of a categorical block is; None for a number."""
        shares: dict[str, Floats] = {}
        for part, margin in zip(self.parts, self.margins, strict=True):
            if part.block == block and isinstance(margin, CategoryMargin):
                shares[part.role] = margin.shares
        if "missing" not in shares:
            return shares.get("category")

        # Frequencies of values are those in rows that have one.
        block_parts = [part for part in self.parts if part.block == block]
        missing_code = block_parts[0].missing_code
        present_share, missing_share = shares["missing"]
        block_shares: Floats = shares["value"] * present_share
        block_shares[missing_code] = missing_share
        return block_shares

    @property
    def layout(self) -> Layout:
        """The numbers and choices of a feature vector, as a layout."""
        return Layout(self.blocks)

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows, (n, width); where columns are given, the others follow the conditional normal.

        A column is given by `given`, (n, width), which is NaN elsewhere; a choice by its whole
        one-hot block. A number that its column's choice leaves unused (a spike, a missing value)
        does not move other columns; its choice does. With more than one choice in a row their
        normal scores come from 15 sweeps of Gibbs' sampler, else the draw is exact.

        Raises:
            InputError: `n` is negative, `given` has another shape, names a choice in part, or a
                category that no real row had.
        """
        whole("n", n)
        rng = generator(fold_in(key, "sample"))
        u = rng.random((n, len(self.parts)))
        scores = ndtri(np.clip(u, *_INSIDE))
        if given is None:
            root = np.linalg.cholesky(self.correlation)
            return self._values(scores @ root.T)

        # The matrices of a conditional normal are the same for all rows that fix the same parts.
        fixed, low, high = self._bounds(n, given)
        patterns, pattern_of_row = np.unique(fixed, axis=0, return_inverse=True)
        pattern_of_row = pattern_of_row.reshape(-1)
        for i, pattern in enumerate(patterns):
            rows = np.flatnonzero(pattern_of_row == i)
            scores[rows] = self._conditional_scores(
                scores[rows], pattern, low[rows], high[rows], rng
            )
        X = self._values(scores)
        # Given cells are returned as they came, not as their scores map back.
        return np.where(np.isnan(given), X, given).astype(np.float32)

    def _conditional_scores(
        self,
        scores: Floats,
        fixed: Bools,
        low: Floats,
        high: Floats,
        rng: np.random.Generator,
    ) -> Floats:
        """Return normal scores of rows that have the same parts fixed, from independent ones.

        Given z of the fixed parts K, the free parts F are normal with the mean
        R_FK inv(R_KK) z and the covariance R_FF - R_FK inv(R_KK) R_KF.
        """
        R = self.correlation
        free = ~fixed
        R_fixed = R[np.ix_(fixed, fixed)]
        z = self._fixed_scores(R_fixed, low[:, fixed], high[:, fixed], rng)
        weights = np.linalg.solve(R_fixed, R[np.ix_(fixed, free)])
        covariance = R[np.ix_(free, free)] - R[np.ix_(free, fixed)] @ weights

        conditional = np.empty_like(scores)
        conditional[:, free] = z @ weights + scores[:, free] @ _root(covariance).T
        conditional[:, fixed] = z
        return conditional

    def _bounds(self, n: int, given: Matrix) -> tuple[Bools, Floats, Floats]:
        """Return which parts are fixed, and the ends of the normal scores that they may take."""
        if np.shape(given) != (n, self.layout.width):
            raise InputError(
                f"given has shape {np.shape(given)}; it needs {(n, self.layout.width)}, a row for "
                "each of the n rows, with NaN where a column is to be drawn"
            )
        self.layout.known(given)

        starts = [part.block.start for part in self.parts]
        fixed = ~np.isnan(given[:, starts])
        low = np.zeros((n, len(self.parts)))
        high = np.zeros((n, len(self.parts)))
        for i, (part, margin) in enumerate(zip(self.parts, self.margins, strict=True)):
            fixed[:, i] &= part.in_use(given, self.blocks)
            rows = np.flatnonzero(fixed[:, i])
            if isinstance(margin, Margin):
                scores = margin.to_normal(given[rows, part.block.start])
                low[rows, i] = scores
                high[rows, i] = scores
                continue
            codes = part.codes(given[rows])
            self._check_has_rows(part, margin, codes)
            ends = np.clip(margin.bounds(codes), *_INSIDE)
            low[rows, i], high[rows, i] = ndtri(ends)
        return fixed, low, high

    def _check_has_rows(self, part: _Part, margin: CategoryMargin, codes: Ints) -> None:
        """Refuse a code of frequency 0: its piece of (0, 1) is empty."""
        if not (margin.shares[codes] == 0.0).any():
            return
        shares = self.shares(part.block)
        codes_with_rows = [] if shares is None else np.flatnonzero(shares).tolist()
        raise InputError(
            f"given asks for column {part.block.column!r} to be a category that no real "
            f"row had; the codes seen are {codes_with_rows}"
        )

    def _fixed_scores(
        self,
        R: Floats,
        low: Floats,
        high: Floats,
        rng: np.random.Generator,
    ) -> Floats:
        """Draw normal scores of correlation R within bounds, (rows, fixed parts)."""
        u = rng.random(low.shape)
        z = _truncated_quantile(np.zeros_like(low), 1.0, low, high, u)
        pieces = np.flatnonzero((low < high).any(axis=0))  # numbers are points already
        if len(R) < 2 or pieces.size == 0:
            return z

        # Gibbs' sampler. Given all others, a score is normal around
        # -sum_j P_ij z_j / P_ii (j other than i) with the variance 1 / P_ii, where P = inv(R).
        precision = np.linalg.inv(R)
        for _ in range(_SWEEPS):
            for i in pieces:
                scale = precision[i, i] ** -0.5
                centre = z[:, i] - (z @ precision[i]) * scale**2
                u = rng.random(len(z))
                z[:, i] = _truncated_quantile(centre, scale, low[:, i], high[:, i], u)
        return z

    def _values(self, scores: Floats) -> Matrix:
        """Turn correlated normal scores into the feature vectors of rows."""
        X = np.zeros((len(scores), self.layout.width), dtype=np.float32)
        codes: dict[Block, NDArray[np.intp]] = {}  # of each categorical block
        for i, (part, margin) in enumerate(zip(self.parts, self.margins, strict=True)):
            if isinstance(margin, Margin):
                X[:, part.block.start] = margin.from_normal(scores[:, i])
                continue
            part_codes = margin.codes(ndtr(scores[:, i]))
            if part.role == "missing":  # the part after that of the block's values
                is_missing = part_codes == 1
                part_codes = np.where(is_missing, part.missing_code, codes[part.block])
            codes[part.block] = part_codes

        rows = np.arange(len(X))
        for block, block_codes in codes.items():
            X[rows, block.start + block_codes] = 1.0
        return X

    def save(self, path: Path | str) -> None:
        """Write the copula as one safetensors file."""
        arrays: dict[str, Floats] = {}
        families: list[str] = []
        for i, margin in enumerate(self.margins):
            if isinstance(margin, Margin):
                arrays[f"margin {i}"] = margin.parameters
                families.append(margin.family)
            else:
                arrays[f"margin {i}"] = margin.shares
                families.append("categories")
        arrays["correlation"] = np.ascontiguousarray(self.correlation)
        facts = {
            "format": "siloweave-copula",
            "blocks": [asdict(block) for block in self.blocks],
            "families": families,
            "orders": {
                column: list(ranking) for column, ranking in self.orders.items()
            },
        }
        save_file(arrays, str(path), metadata={"facts": json.dumps(facts)})

    @classmethod
    def load(cls, path: Path | str) -> Copula:
        """Read a copula from its file; DataError for a missing file, or another kind of file."""
        try:
            with safe_open(str(path), framework="numpy") as file:
                metadata = file.metadata() or {}
                facts = json.loads(metadata["facts"])
                families = facts["families"]
                arrays = [file.get_tensor(f"margin {i}") for i in range(len(families))]
                correlation = file.get_tensor("correlation")
            blocks = tuple(Block(**block) for block in facts["blocks"])
            # Files of versions that ordered all categories by frequency have no orders.
            stored_orders = facts.get("orders", {})
            orders = {
                column: tuple(ranking) for column, ranking in stored_orders.items()
            }
            _check_orders(orders, blocks)
            parts = _parts_of(blocks, orders)
            if facts["format"] != "siloweave-copula" or len(parts) != len(arrays):
                raise ValueError("it holds something else")
        except (
            OSError,
            SafetensorError,
            InputError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:
            raise DataError(
                f"{path} is not a stored copula of siloweave ({error})"
            ) from error

        margins = tuple(
            _stored_margin(part, family, array)
            for part, family, array in zip(parts, families, arrays, strict=True)
        )
        return cls(blocks, margins, correlation, orders)


def _stored_margin(part: _Part, family: str, array: Floats) -> _AnyMargin:
    """Build the distribution of a part from what `Copula.save` wrote."""
    if family != "categories":
        return Margin(family, array)
    if part.role == "missing":
        return CategoryMargin(array, (0, 1))
    ranking = part.ranking
    if part.role == "value" and ranking is not None:
        ranking = (*ranking, part.missing_code)
    return CategoryMargin(array, ranking)


def _check_orders(orders: _Orders, blocks: Sequence[Block]) -> None:
    """Refuse an order that is not one of all codes of a column's only block but at most one."""
    for column, ranking in orders.items():
        column_blocks = [block for block in blocks if block.column == column]
        if len(column_blocks) != 1 or column_blocks[0].kind != "categorical":
            raise InputError(
                f"orders: column {column!r} is no single block of categories; leave it out"
            )
        size = column_blocks[0].size
        codes = set(ranking)
        has_all = len(ranking) >= max(size - 1, 1)
        has_known = codes <= set(range(size))
        has_each_once = len(codes) == len(ranking)
        if not (has_all and has_known and has_each_once):
            raise InputError(
                f"orders: {ranking!r} of column {column!r} must have each code from 0 to "
                f"{size - 1} once, but for one that stands for a missing value"
            )


def positive_definite(R: Floats) -> Floats:
    """Lift eigenvalues to at least a millionth, then scale the diagonal back to 1."""
    values, vectors = np.linalg.eigh((R + R.T) / 2.0)
    if values.size and values[0] < _MIN_EIGENVALUE:
        R = (vectors * np.maximum(values, _MIN_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(R))
    R = R / np.outer(scale, scale)
    np.fill_diagonal(R, 1.0)
    # Rounding must not leave the matrix unsymmetric.
    return (R + R.T) / 2.0


def _number_in_use(X: Matrix, block: Block, blocks: Sequence[Block]) -> Bools:
    """Return the rows in which a number is the value, as a mask.

    Where a column is a number and a choice, the first option is the continuum, and some others (a
    spike, a missing value) are the whole value and leave the number unused, at 0.
    """
    in_use = np.ones(len(X), dtype=np.bool_)
    for other in blocks:
        if other.kind == "categorical" and other.column == block.column:
            codes = X[:, other.start : other.stop].argmax(axis=1)
            in_use &= (codes == 0) | (X[:, block.start] != 0.0)
    return in_use


def _correlation(scores: Floats, in_use: Floats) -> Floats:
    """Return Pearson's correlation of each pair over the rows that use both; 0 of constants."""
    # Entry (i, j) is over the rows that use i and j. Unused scores are 0 and add nothing.
    counts = np.maximum(in_use.T @ in_use, 1.0)
    means = (scores.T @ in_use) / counts  # of i
    covariance = (scores.T @ scores) / counts - means * means.T
    mean_squares = ((scores**2).T @ in_use) / counts  # of i, too
    variance = np.maximum(mean_squares - means**2, 0.0)
    scale = np.sqrt(variance * variance.T)
    R = np.zeros_like(covariance)
    np.divide(covariance, scale, out=R, where=scale > 1e-12)
    np.fill_diagonal(R, 1.0)
    return np.asarray(np.clip(R, -1.0, 1.0))


def _correlation_before_cuts(R: Floats, margins: Sequence[_AnyMargin]) -> Floats:
    """Return the normal correlations at which scores of pieces are correlated as R says.

    The score of a piece is a step function s of a normal variable. With its coefficients a_k in
    normalised Hermite polynomials, two scores have the covariance sum of a_k b_k r**k (Mehler's
    formula), which rises with r. Beyond the terms that are summed, the rest is taken so that it is
    exact at r = 1 and r = -1. Pairs of numbers stay as they are.
    """
    is_number = np.array([isinstance(margin, Margin) for margin in margins])
    if is_number.all():
        return R

    # Scores of variance 1 and their coefficients.
    middles = ndtri((np.arange(_MIDDLES) + 0.5) / _MIDDLES)
    steps = np.stack([_score_at(margin, middles) for margin in margins])
    coefficients = np.stack([_hermite_coefficients(margin) for margin in margins])
    spread = steps.std(axis=1)
    is_constant = spread < 1e-6  # of one value, whose correlation is 0 already
    spread[is_constant] = 1.0
    steps = steps / spread[:, None]
    coefficients = coefficients / spread[:, None]

    # What the sum lacks at r = 1, where the covariance is that of two scores of one variable z,
    # and at r = -1, where it is that of a score of z and one of -z.
    signs = np.where(np.arange(_TERMS) % 2 == 0, -1.0, 1.0)
    covariance_at_1 = steps @ steps.T / _MIDDLES
    covariance_at_minus_1 = steps @ steps[:, ::-1].T / _MIDDLES
    rest_at_1 = covariance_at_1 - coefficients @ coefficients.T
    rest_at_minus_1 = covariance_at_minus_1 - (coefficients * signs) @ coefficients.T

    # Bisection of the angle arcsin(r): near 1 and -1 it is finer in r than bisection of r.
    low = np.full_like(R, -np.pi / 2.0)
    high = np.full_like(R, np.pi / 2.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        r = np.sin(middle)
        rest_at_end = np.where(r > 0.0, rest_at_1, rest_at_minus_1)
        rest = rest_at_end * np.abs(r) ** (_TERMS + 1)
        is_above = _mehler_sum(coefficients, r) + rest > R
        low = np.where(is_above, low, middle)
        high = np.where(is_above, middle, high)
    before_cuts = np.sin((low + high) / 2.0)

    are_numbers = is_number[:, None] & is_number
    is_unchanged = are_numbers | is_constant[:, None] | is_constant
    before_cuts = np.where(is_unchanged, R, before_cuts)
    np.fill_diagonal(before_cuts, 1.0)
    return np.asarray(before_cuts, dtype=np.float64)


def _mehler_sum(coefficients: Floats, r: Floats) -> Floats:
    """Return the sum of a_k b_k r**k for each pair of rows a, b, by Horner's scheme."""
    total = np.zeros_like(r)
    for a in coefficients.T[::-1]:
        total = (total + np.outer(a, a)) * r
    return total


def _score_at(margin: _AnyMargin, z: Floats) -> Floats:
    """Return the score of the piece in which each normal value lies; a number keeps its value."""
    if isinstance(margin, Margin):
        return z
    return margin.scores[margin.codes(ndtr(z))]


def _hermite_coefficients(margin: _AnyMargin) -> Floats:
    """Return coefficients 1 to `_TERMS` of a score in normalised Hermite polynomials.

    The integral of h_k over a piece is the difference of h_(k-1) times the density at its ends,
    over the root of k, so each inner end counts with how far the score rises there.
    """
    coefficients = np.zeros(_TERMS)
    if isinstance(margin, Margin):
        # The score of a number is the normal variable itself, which is h_1.
        coefficients[0] = 1.0
        return coefficients

    # Pieces of no width have no ends of their own.
    has_width = np.diff(margin.edges) > 0.0
    rises = np.diff(margin.scores[margin.order][has_width])
    inner_edges = margin.edges[1:][has_width][:-1]
    ends = ndtri(inner_edges)

    # h_(k+1) = (x h_k - sqrt(k) h_(k-1)) / sqrt(k + 1), each times the density.
    previous = np.zeros_like(ends)
    current = np.exp(-0.5 * ends**2) / np.sqrt(2.0 * np.pi)  # h_0 times the density
    for k in range(1, _TERMS + 1):
        coefficients[k - 1] = rises @ current / np.sqrt(k)
        following = (ends * current - np.sqrt(k - 1.0) * previous) / np.sqrt(k)
        previous = current
        current = following
    return coefficients


def _truncated_quantile(
    centre: Floats,
    scale: float,
    low: Floats,
    high: Floats,
    u: Floats,
) -> Floats:
    """Return quantile u of a normal distribution cut to [low, high], exact in both tails."""
    a = (low - centre) / scale
    b = (high - centre) / scale
    # Shares near 0 are exact in floats, those near 1 are not: an upper tail is mirrored.
    is_upper = a > 0.0
    lower = np.where(is_upper, -b, a)
    upper = np.where(is_upper, -a, b)
    v = np.where(is_upper, 1.0 - u, u)

    below = ndtr(lower)
    shares = below + v * (ndtr(upper) - below)
    z = ndtri(np.clip(shares, 1e-300, _INSIDE[1]))
    z = np.clip(z, lower, upper)
    z = np.where(is_upper, -z, z)
    return np.asarray(centre + scale * z, dtype=np.float64)


def _root(S: Floats) -> Floats:
    """Return a square root of S: its product with its own transpose is S, which may be singular."""
    values, vectors = np.linalg.eigh((S + S.T) / 2.0)
    scales = np.sqrt(np.maximum(values, 0.0))
    return np.asarray(vectors * scales, dtype=np.float64)


# The transform of CopulaGAN


class _ModedNumber(NamedTuple):
    """A numeric column's blocks without modes and with them, and the map between both."""

    number: Block
    choice: Block | None
    moved: Block  # the number, among the encoded blocks
    # Modes and the choice's other options; None if there is one mode alone.
    options: Block | None
    margin: Margin
    mixture: Mixture


@dataclass(frozen=True)
class ScoreModes:
    """A map from numbers in feature vectors to modes of normal scores, and back.

    A column that has a number and one choice uses the number in rows that choose the first option
    (as `Features` writes it); there that option becomes the modes.
    """

    blocks: tuple[Block, ...]  # of the vectors that are encoded
    margins: tuple[Margin, ...]  # of each number, in the order of `blocks`
    mixtures: tuple[Mixture, ...]  # of each number's scores

    @classmethod
    def fit(
        cls,
        X: NDArray[np.floating],
        blocks: Sequence[Block],
        family: Family = "beta",
    ) -> ScoreModes:
        """Fit the distribution of every number, of any scale, and the modes of its normal scores.

        Raises InputError where X does not fit, or the family is unknown.
        """
        X = Layout(tuple(blocks)).check(X)
        choices = _choices(blocks)
        numbers = [block for block in blocks if block.kind == "number"]
        margins = []
        mixtures = []
        for number in numbers:
            rows = _codes(X, choices.get(number.column)) == 0
            if not rows.any():
                rows = ~rows  # a number that no row uses is a column of zeros
            values = X[rows, number.start]
            margin = Margin.fit(values, family)
            scores, counts = np.unique(margin.to_normal(values), return_counts=True)
            margins.append(margin)
            mixtures.append(fit_mixture(scores, counts.astype(np.float64)))
        return cls(tuple(blocks), tuple(margins), tuple(mixtures))

    @property
    def inner(self) -> tuple[Block, ...]:
        """The blocks of encoded vectors."""
        moded_numbers, moves = self._plan
        blocks = [new for _, new in moves]
        for column in moded_numbers:
            blocks.append(column.moved)
            if column.options is not None:
                blocks.append(column.options)
        return tuple(sorted(blocks, key=lambda block: block.start))

    @cached_property
    def _plan(self) -> tuple[list[_ModedNumber], list[tuple[Block, Block]]]:
        """The numeric columns, and where the blocks of all others are before and after the move."""
        moded_numbers: list[_ModedNumber] = []
        moves: list[tuple[Block, Block]] = []
        choices = _choices(self.blocks)
        start = 0
        for block in self.blocks:
            choice = choices.get(block.column)
            if block == choice:
                continue  # its options follow its column's number
            moved = replace(block, start=start)
            start = moved.stop
            if block.kind == "categorical":
                moves.append((block, moved))
                continue

            # The modes take the place of the choice's first option, the continuum.
            margin = self.margins[len(moded_numbers)]
            mixture = self.mixtures[len(moded_numbers)]
            size = mixture.modes
            if choice is not None:
                size += choice.size - 1
            options = None
            if size > 1:
                options = Block(block.column, start, size, "categorical")
                start = options.stop
            column = _ModedNumber(block, choice, moved, options, margin, mixture)
            moded_numbers.append(column)
        return moded_numbers, moves

    def encode(self, X: NDArray[np.floating], *, key: Key) -> Matrix:
        """Turn vectors, (rows, width), into those with modes; numbers lie within -1 and 1.

        The key draws the mode of each score.
        """
        moded_numbers, _ = self._plan
        encoded = self.moved(X)
        rows = np.arange(len(X))
        for column in moded_numbers:
            random = generator(fold_in(key, "modes", column.number.column))
            scores = column.margin.to_normal(X[:, column.number.start])
            modes, numbers = column.mixture.split(scores, random)

            codes = _codes(X, column.choice)
            is_number = codes == 0
            encoded[:, column.moved.start] = np.where(is_number, numbers, 0.0)
            if column.options:
                encoded[:, column.options.start : column.options.stop] = 0.0
                options = np.where(is_number, modes, codes - 1 + column.mixture.modes)
                encoded[rows, column.options.start + options] = 1.0
        return encoded

    def moved(self, X: NDArray[np.floating]) -> Matrix:
        """Move columns without a number to their place among the modes; others become NaN."""
        moved = np.full((len(X), self.inner[-1].stop), np.nan, dtype=np.float32)
        _, moves = self._plan
        for old, new in moves:
            moved[:, new.start : new.stop] = X[:, old.start : old.stop]
        return moved

    def decode(self, X: Matrix) -> Matrix:
        """Turn vectors with modes back."""
        width = max(block.stop for block in self.blocks)
        decoded = np.zeros((len(X), width), dtype=np.float32)
        moded_numbers, moves = self._plan
        for old, new in moves:
            decoded[:, old.start : old.stop] = X[:, new.start : new.stop]

        rows = np.arange(len(X))
        for column in moded_numbers:
            options = _codes(X, column.options)
            num_modes = column.mixture.modes
            modes = np.minimum(options, num_modes - 1)
            numbers = X[:, column.moved.start].astype(np.float64)
            scores = column.mixture.join(modes, numbers)
            values = column.margin.from_normal(scores)
            decoded[:, column.number.start] = np.where(options < num_modes, values, 0.0)
            if column.choice:
                # All modes are the choice's first option.
                codes = np.maximum(options - num_modes + 1, 0)
                decoded[rows, column.choice.start + codes] = 1.0
        return decoded

    def to_facts(self) -> dict[str, Any]:
        """Return the fitted state as plain data for JSON; `from_facts` reads it."""
        margins = [
            [margin.family, margin.parameters.tolist()] for margin in self.margins
        ]
        return {
            "blocks": [asdict(block) for block in self.blocks],
            "margins": margins,
            "mixtures": [msgspec.to_builtins(mixture) for mixture in self.mixtures],
        }

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> ScoreModes:
        """Rebuild the state from plain data that `to_facts` returned."""
        blocks = tuple(Block(**block) for block in facts["blocks"])
        margins = tuple(
            Margin(family, np.array(parameters))
            for family, parameters in facts["margins"]
        )
        mixtures = tuple(
            msgspec.convert(mixture, Mixture) for mixture in facts["mixtures"]
        )
        return cls(blocks, margins, mixtures)


def _choices(blocks: Sequence[Block]) -> dict[str, Block]:
    """Return the choice beside each number, by column."""
    number_columns = {block.column for block in blocks if block.kind == "number"}
    categorical = [block for block in blocks if block.kind == "categorical"]
    return {
        block.column: block for block in categorical if block.column in number_columns
    }


def _codes(X: NDArray[np.floating], choice: Block | None) -> Ints:
    """Return the option that each row chooses; 0 everywhere without a choice."""
    if choice is None:
        return np.zeros(len(X), dtype=np.int64)
    options = X[:, choice.start : choice.stop]
    return np.asarray(options.argmax(axis=1), dtype=np.int64)
