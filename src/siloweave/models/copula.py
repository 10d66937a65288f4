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
from collections.abc import Callable, Iterator, Mapping, Sequence
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

_EDGE = float(np.finfo(np.float32).eps)  # probabilities stay this far from 0 and 1
_POINTS = 2_000  # quantiles that stand for a longer column
_ROOM = (0.0003, 0.002, 0.01, 0.05, 0.2, 0.6)  # of a bound outside the data, in their ranges
_GRID = 1_024
_INSIDE = (1e-12, 1.0 - 1e-12)
_LEAST = 1e-6  # eigenvalue of a correlation matrix
_SWEEPS = 15  # of Gibbs' sampler, where more than one category is given
_TERMS = 100  # of the series in Hermite polynomials; .95**100 is .006
_HALVINGS = 16  # of an angle between -pi/2 and pi/2, so that correlations are exact to 5e-5
_MIDDLES = 4_096  # points of (0, 1) at which scores are averaged


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
            raise InputError(f"family={family!r} is unknown; use one of {', '.join(FAMILIES)}")
        x = np.asarray(values, dtype=np.float64)
        if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all():
            raise InputError(
                f"values: shape {x.shape} with {np.count_nonzero(~np.isfinite(x))} entries that "
                "are no numbers; give one or more finite values, and encode missing ones"
            )
        low, high = float(x.min()), float(x.max())
        if not high > low:
            return cls("constant", np.array([low]))
        if x.size > _POINTS:
            x = np.quantile(x, (np.arange(_POINTS) + 0.5) / _POINTS)
        return cls(family, np.array(_FAMILIES[family].fit(np.sort(x), low, high)))

    def cdf(self, x: NDArray[np.floating]) -> Floats:
        """Return the share of the distribution at or below each value."""
        return np.asarray(_FAMILIES[self.family].cdf(self.parameters, x), dtype=np.float64)

    def ppf(self, u: NDArray[np.floating]) -> Floats:
        """Return the value below which each share of the distribution lies."""
        return np.asarray(_FAMILIES[self.family].ppf(self.parameters, u), dtype=np.float64)

    def to_normal(self, values: NDArray[np.floating]) -> Floats:
        """Return normal scores of values; probabilities stay 1.2e-7 away from 0 and 1."""
        u = np.clip(self.cdf(values), _EDGE, 1.0 - _EDGE)
        return np.asarray(ndtri(u), dtype=np.float64)

    def from_normal(self, scores: NDArray[np.floating]) -> Floats:
        """Return the values with these normal scores: the inverse of `to_normal`."""
        return self.ppf(np.clip(ndtr(np.asarray(scores, dtype=np.float64)), _EDGE, 1.0 - _EDGE))


@dataclass(frozen=True)
class CategoryMargin:
    """The distribution of a categorical column: pieces of (0, 1), in order or by frequency."""

    shares: Floats  # frequency of each code; they sum to 1
    ranking: tuple[int, ...] | None = None  # all codes in their order; None without one

    @classmethod
    def fit(
        cls, codes: NDArray[np.integer], size: int, ranking: tuple[int, ...] | None = None
    ) -> CategoryMargin:
        """Count the codes 0 to `size` - 1; without any, all are equally frequent."""
        counts = np.bincount(codes, minlength=size).astype(np.float64)
        if not counts.any():
            counts += 1.0
        return cls(counts / counts.sum(), ranking)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """The codes in their order, else from the most to the least frequent."""
        if self.ranking is not None:
            return np.array(self.ranking, dtype=np.intp)
        return np.argsort(-self.shares, kind="stable")

    @cached_property
    def edges(self) -> Floats:
        """The pieces' ends, in that order: one more than there are codes, from 0 to 1."""
        edges = np.concatenate([[0.0], np.cumsum(self.shares[self.order])])
        edges[edges > 1.0 - 1e-12] = 1.0
        return edges

    def bounds(self, codes: NDArray[np.integer]) -> tuple[Floats, Floats]:
        """Return the two ends of each code's piece."""
        place = np.empty(self.shares.size, dtype=np.intp)
        place[self.order] = np.arange(self.shares.size)
        return self.edges[place[codes]], self.edges[place[codes] + 1]

    def codes(self, u: NDArray[np.floating]) -> NDArray[np.intp]:
        """Return the code in whose piece each share lies; never one of frequency 0."""
        last = int(np.flatnonzero(self.shares[self.order])[-1])
        return self.order[np.minimum(np.searchsorted(self.edges, u, side="right") - 1, last)]

    @cached_property
    def scores(self) -> Floats:
        """The mean of a standard normal variable within each code's piece, in code order."""
        density = np.exp(-0.5 * ndtri(np.clip(self.edges, 1e-300, 1.0 - 1e-16)) ** 2)
        density[[0, -1]] = 0.0
        density[self.edges == 1.0] = 0.0
        mass = np.maximum(np.diff(self.edges), 1e-300)
        means = np.empty(self.shares.size)
        means[self.order] = -np.diff(density) / np.sqrt(2.0 * np.pi) / mass
        return means


def _beta(x: Floats, low: float, high: float) -> list[float]:
    def candidates() -> Iterator[list[float]]:
        span = high - low
        for left in _ROOM:
            for right in _ROOM:
                start, end = low - left * span, high + right * span
                yield [*_beta_shapes((x - start) / (end - start)), start, end]

    return _nearest(x, "beta", candidates)


def _beta_shapes(u: Floats) -> tuple[float, float]:
    """Maximum likelihood of the beta distribution on (0, 1) by Newton's steps on the logarithms."""
    g = np.array([np.log(u).mean(), np.log1p(-u).mean()])
    mean, variance = float(u.mean()), float(u.var())
    total = max(mean * (1.0 - mean) / max(variance, 1e-12) - 1.0, 1e-2)
    shapes = np.array([mean, 1.0 - mean]) * total
    for _ in range(60):
        slope = digamma(shapes) - digamma(shapes.sum()) - g
        curve = np.diag(polygamma(1, shapes)) - polygamma(1, shapes.sum())
        step = np.linalg.solve(curve, slope) / shapes
        shapes = np.clip(shapes * np.exp(np.clip(-step, -1.0, 1.0)), 1e-3, 1e5)
        if np.abs(step).max() < 1e-9:
            break
    return float(shapes[0]), float(shapes[1])


def _gamma(x: Floats, low: float, high: float) -> list[float]:
    def candidates() -> Iterator[list[float]]:
        for room in _ROOM:
            start = low - room * (high - low)
            y = x - start
            gap = max(float(np.log(y.mean()) - np.log(y).mean()), 1e-9)
            shape = (3.0 - gap + np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
            for _ in range(20):
                slope = np.log(shape) - digamma(shape) - gap
                shape /= np.exp(np.clip(slope / (1.0 - shape * polygamma(1, shape)), -1.0, 1.0))
            yield [float(shape), start, float(y.mean() / shape)]

    return _nearest(x, "gamma", candidates)


def _nearest(
    x: Floats, family: str, candidates: Callable[[], Iterator[list[float]]]
) -> list[float]:
    """The candidate whose distribution function is nearest to the empirical one."""
    below = np.searchsorted(x, x, side="left") / x.size
    upto = np.searchsorted(x, x, side="right") / x.size

    def distance(parameters: list[float]) -> float:
        u = Margin(family, np.array(parameters)).cdf(x)
        return float(max((u - below).max(), (upto - u).max()))

    return min(candidates(), key=distance)


def _truncnorm(x: Floats, low: float, high: float) -> list[float]:
    """Maximum likelihood within the data's bounds; the centre stays within one range of them."""
    u = (x - low) / (high - low)
    first, second = float(u.mean()), float((u * u).mean())

    def loss(place: Floats) -> float:
        centre, scale = place[0], np.exp(place[1])
        ends = np.array([-centre, 1.0 - centre]) / scale
        if ends.sum() > 0:  # the mirrored half is the exact one
            ends = -ends[::-1]
        mass = log_ndtr(ends[1]) + np.log1p(-np.exp(log_ndtr(ends[0]) - log_ndtr(ends[1])))
        spread = (second - 2.0 * centre * first + centre**2) / (2.0 * scale**2)
        return float(mass + place[1] + spread)

    start = np.array([first, np.log(max(float(u.std()), 1e-2))])
    bounds = [(-1.0, 2.0), (np.log(0.05), np.log(10.0))]
    start[1] = np.clip(start[1], *bounds[1])
    centre, scale = minimize(loss, start, bounds=bounds, method="L-BFGS-B").x
    return [low + centre * (high - low), float(np.exp(scale)) * (high - low), low, high]


def _truncated(p: Floats, x: NDArray[np.floating]) -> Floats:
    """Distribution function of the truncated normal, exact in its upper tail too."""
    if p[0] < p[2]:  # only the upper tail is in use: mirror it
        return 1.0 - _truncated(np.array([-p[0], p[1], -p[3], -p[2]]), -np.asarray(x))
    below, above = ndtr((p[2:] - p[0]) / p[1])
    return np.asarray(np.clip((ndtr((x - p[0]) / p[1]) - below) / (above - below), 0.0, 1.0))


def _truncated_inverse(p: Floats, u: NDArray[np.floating]) -> Floats:
    if p[0] < p[2]:
        return -_truncated_inverse(np.array([-p[0], p[1], -p[3], -p[2]]), 1.0 - np.asarray(u))
    below, above = ndtr((p[2:] - p[0]) / p[1])
    return np.asarray(np.clip(p[0] + p[1] * ndtri(below + u * (above - below)), p[2], p[3]))


def _kde(x: Floats, low: float, high: float) -> list[float]:
    """The smoothed distribution function on a grid that reaches four widths outside."""
    width = max(float(x.std()) * x.size**-0.2, 1e-6 * (high - low))
    grid = np.linspace(low - 4.0 * width, high + 4.0 * width, _GRID)
    u = np.mean([ndtr((grid - part[:, None]) / width).mean(axis=0) for part in _parts(x)], axis=0)
    u = (u - u[0]) / (u[-1] - u[0])
    return [*grid, *np.maximum.accumulate(u + 1e-12 * np.arange(_GRID))]


def _parts(x: Floats) -> list[Floats]:
    """Pieces of equal length, so that the mean of their means is the mean."""
    pieces = next(p for p in (50, 40, 25, 20, 10, 8, 5, 4, 2, 1) if x.size % p == 0)
    return np.split(x, pieces)


class _Family(NamedTuple):
    """A family: parameters from (sorted values, least, largest), and functions of parameters."""

    fit: Callable[[Floats, float, float], list[float]]
    cdf: Callable[[Floats, NDArray[np.floating]], Any]
    ppf: Callable[[Floats, NDArray[np.floating]], Any]


_FAMILIES = {
    "beta": _Family(
        _beta,
        lambda p, x: betainc(p[0], p[1], np.clip((x - p[2]) / (p[3] - p[2]), 0.0, 1.0)),
        lambda p, u: p[2] + (p[3] - p[2]) * betaincinv(p[0], p[1], u),
    ),
    "norm": _Family(
        lambda x, low, high: [float(x.mean()), float(x.std())],
        lambda p, x: ndtr((x - p[0]) / p[1]),
        lambda p, u: p[0] + p[1] * ndtri(u),
    ),
    "truncnorm": _Family(_truncnorm, _truncated, _truncated_inverse),
    "uniform": _Family(
        lambda x, low, high: [low, high],
        lambda p, x: np.clip((x - p[0]) / (p[1] - p[0]), 0.0, 1.0),
        lambda p, u: p[0] + (p[1] - p[0]) * np.asarray(u),
    ),
    "gamma": _Family(
        _gamma,
        lambda p, x: gammainc(p[0], np.maximum(x - p[1], 0.0) / p[2]),
        lambda p, u: p[1] + p[2] * gammaincinv(p[0], u),
    ),
    "kde": _Family(
        _kde,
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


class _Part(NamedTuple):
    """What one normal score of a row stands for: a block, or one side of a block with an order."""

    block: Block
    what: Literal["number", "category", "value", "missing"]
    ranking: tuple[int, ...] | None = None  # codes that have an order, without a missing one

    @property
    def missing_code(self) -> int:
        """The code that has no place in the order."""
        (code,) = set(range(self.block.size)) - set(self.ranking or ())
        return code

    def in_use(self, X: NDArray[np.floating], blocks: Sequence[Block]) -> Bools:
        """Rows in which the score means something."""
        if self.what == "number":
            return _in_use(X, self.block, blocks)
        if self.what == "value":
            return np.asarray(_codes(X, self.block) != self.missing_code)
        return np.ones(len(X), dtype=np.bool_)

    def codes(self, X: NDArray[np.floating]) -> Ints:
        """The codes of this part: of the block, or 1 where a value is missing and 0 elsewhere."""
        codes = _codes(X, self.block)
        return (codes == self.missing_code).astype(np.int64) if self.what == "missing" else codes

    def fit(self, X: NDArray[np.floating], family: Family) -> Margin | CategoryMargin:
        """Fit the distribution of rows in which the part is in use."""
        if self.what == "number":
            return Margin.fit(X[:, self.block.start], family)
        if self.what == "missing":
            return CategoryMargin.fit(self.codes(X), 2, (0, 1))
        ranking = self.ranking
        if self.what == "value" and ranking is not None:
            ranking = (*ranking, self.missing_code)  # which no row in use has
        return CategoryMargin.fit(self.codes(X), self.block.size, ranking)


def _parts_of(blocks: Sequence[Block], orders: Mapping[str, tuple[int, ...]]) -> tuple[_Part, ...]:
    """The parts of a row, one normal score each."""
    parts: list[_Part] = []
    for block in blocks:
        ranking = orders.get(block.column)
        if block.kind == "number":
            parts.append(_Part(block, "number"))
        elif ranking is None or len(ranking) == block.size:
            parts.append(_Part(block, "category", ranking))
        else:
            parts += [_Part(block, "value", ranking), _Part(block, "missing", ranking)]
    return tuple(parts)


def _fitted(
    X: Matrix,
    parts: Sequence[_Part],
    blocks: Sequence[Block],
    settings: CopulaSettings,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, list[Margin | CategoryMargin]]:
    """Return every part's normal scores, (rows, parts), where it is in use, and its distribution.

    The scores are 0 in rows that do not use the part, where the second array is 0, too.
    """
    margins: list[Margin | CategoryMargin] = []
    scores, used = np.zeros((2, len(X), len(parts)))
    for i, part in enumerate(parts):
        family = settings.families.get(part.block.column, settings.family)
        in_use = part.in_use(X, blocks)
        if part.what == "number" and not in_use.any():
            in_use = ~in_use  # a number that no row uses is a column of zeros
        margin = part.fit(X[in_use], family)
        margins.append(margin)
        used[in_use, i] = 1.0
        if isinstance(margin, Margin):
            scores[in_use, i] = margin.to_normal(X[in_use, part.block.start])
        elif settings.scores == "mean":
            scores[in_use, i] = margin.scores[part.codes(X[in_use])]
        else:
            low, high = margin.bounds(part.codes(X[in_use]))
            drawn = low + rng.random(len(low)) * (high - low)
            scores[in_use, i] = ndtri(np.clip(drawn, *_INSIDE))
    return scores, used, margins


def _orders_by_means(
    X: Matrix, blocks: Sequence[Block], orders: Mapping[str, tuple[int, ...]], scores: Floats
) -> dict[str, tuple[int, ...]]:
    """Order the codes of columns without an order, by what the other columns are in their rows.

    The means of all other scores in the rows of each code are points; codes stand in the order of
    these points along the direction in which they spread most. So a name stands where its number
    does. Codes of equal points, as where columns are independent, stand by frequency.
    """
    parts = _parts_of(blocks, orders)
    found: dict[str, tuple[int, ...]] = {}
    scale = scores.std(axis=0)
    standard = (scores - scores.mean(axis=0)) / np.where(scale > 1e-9, scale, np.inf)
    columns = [block.column for block in blocks]
    for block in blocks:
        single = block.kind == "categorical" and columns.count(block.column) == 1
        if not single or block.column in orders or block.size < 3:
            continue
        one_hot = X[:, block.start : block.stop].astype(np.float64)
        counts = one_hot.sum(axis=0)
        others = [i for i, part in enumerate(parts) if part.block.column != block.column]
        means = one_hot.T @ standard[:, others] / np.maximum(counts, 1.0)[:, None]
        if not others:
            continue
        _, _, directions = np.linalg.svd(means * np.sqrt(counts)[:, None], full_matrices=False)
        # The direction's sign is arbitrary; this one is the same for equal columns.
        direction = directions[0] * np.sign(directions[0][np.abs(directions[0]).argmax()])
        places = means @ direction
        by_frequency = np.argsort(-counts, kind="stable")
        ranking = by_frequency[np.argsort(places[by_frequency], kind="stable")]
        found[block.column] = tuple(ranking.tolist())
    return found


@dataclass(frozen=True)
class Copula:
    """A fitted copula."""

    blocks: tuple[Block, ...]  # parts of a row's feature vector
    margins: tuple[Margin | CategoryMargin, ...]  # the distribution of each part
    correlation: Floats  # of the normal scores, (parts, parts), positive definite
    orders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # as `fit` took them

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
        if settings.scores == "mean":
            scores, used, _ = _fitted(X, _parts_of(blocks, orders), blocks, settings, rng)
            orders |= _orders_by_means(X, blocks, orders, scores)
        scores, used, margins = _fitted(X, _parts_of(blocks, orders), blocks, settings, rng)
        correlation = _correlation(scores, used)
        if settings.scores == "mean":
            correlation = _correlation_before_cuts(correlation, margins)
        return cls(tuple(blocks), tuple(margins), positive_definite(correlation), orders)

    @cached_property
    def parts(self) -> tuple[_Part, ...]:
        """What each normal score of a row stands for."""
        return _parts_of(self.blocks, self.orders)

    def shares(self, block: Block) -> Floats | None:
        """Return how frequent each option of a categorical block is; None for a number."""
        shares: dict[str, Floats] = {}
        for part, margin in zip(self.parts, self.margins, strict=True):
            if part.block == block and isinstance(margin, CategoryMargin):
                shares[part.what] = margin.shares
        if "missing" not in shares:
            return shares.get("category")
        (missing_code,) = {part.missing_code for part in self.parts if part.block == block}
        present_share, missing_share = shares["missing"]
        block_shares: Floats = shares["value"] * present_share
        block_shares[missing_code] = missing_share
        return block_shares

    @property
    def layout(self) -> Layout:
        """How a feature vector falls into numbers and choices."""
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
        scores = ndtri(np.clip(rng.random((n, len(self.parts))), *_INSIDE))
        if given is None:
            return self._values(scores @ np.linalg.cholesky(self.correlation).T)
        fixed, low, high = self._bounds(n, given)
        patterns, rows = np.unique(fixed, axis=0, return_inverse=True)
        for i, pattern in enumerate(patterns):
            here = np.flatnonzero(rows.reshape(-1) == i)
            scores[here] = self._drawn(scores[here], pattern, low[here], high[here], rng)
        X = self._values(scores)
        return np.where(np.isnan(given), X, given).astype(np.float32)

    def _drawn(
        self,
        scores: Floats,
        fixed: Bools,
        low: Floats,
        high: Floats,
        rng: np.random.Generator,
    ) -> Floats:
        """Normal scores of rows that have the same columns given, from independent ones."""
        R, free = self.correlation, ~fixed
        known = self._known(R[np.ix_(fixed, fixed)], low[:, fixed], high[:, fixed], rng)
        weights = np.linalg.solve(R[np.ix_(fixed, fixed)], R[np.ix_(fixed, free)])
        rest = R[np.ix_(free, free)] - R[np.ix_(free, fixed)] @ weights
        drawn = np.empty_like(scores)
        drawn[:, free] = known @ weights + scores[:, free] @ _root(rest).T
        drawn[:, fixed] = known
        return drawn

    def _bounds(self, n: int, given: Matrix) -> tuple[Bools, Floats, Floats]:
        """Which parts are given, and the ends of the normal scores that they may take."""
        if np.shape(given) != (n, self.layout.width):
            raise InputError(
                f"given has shape {np.shape(given)}; it needs {(n, self.layout.width)}, a row for "
                "each of the n rows, with NaN where a column is to be drawn"
            )
        self.layout.known(given)
        fixed = ~np.isnan(given[:, [part.block.start for part in self.parts]])
        low, high = np.zeros((2, n, len(self.parts)))
        for i, (part, margin) in enumerate(zip(self.parts, self.margins, strict=True)):
            fixed[:, i] &= part.in_use(given, self.blocks)
            rows = np.flatnonzero(fixed[:, i])
            if isinstance(margin, Margin):
                low[rows, i] = high[rows, i] = margin.to_normal(given[rows, part.block.start])
                continue
            codes = part.codes(given[rows])
            if (margin.shares[codes] == 0.0).any():
                shares = self.shares(part.block)
                seen = [] if shares is None else np.flatnonzero(shares).tolist()
                raise InputError(
                    f"given asks for column {part.block.column!r} to be a category that no real "
                    f"row had; the codes seen are {seen}"
                )
            low[rows, i], high[rows, i] = ndtri(np.clip(margin.bounds(codes), *_INSIDE))
        return fixed, low, high

    def _known(self, R: Floats, low: Floats, high: Floats, rng: np.random.Generator) -> Floats:
        """Normal scores with correlation R between bounds, (rows, given parts)."""
        z = _between(np.zeros_like(low), 1.0, low, high, rng.random(low.shape))
        pieces = np.flatnonzero((low < high).any(axis=0))
        if len(R) < 2 or pieces.size == 0:
            return z
        precision = np.linalg.inv(R)
        for _ in range(_SWEEPS):
            for i in pieces:
                scale = precision[i, i] ** -0.5
                centre = z[:, i] - (z @ precision[i]) * scale**2
                z[:, i] = _between(centre, scale, low[:, i], high[:, i], rng.random(len(z)))
        return z

    def _values(self, scores: Floats) -> Matrix:
        X = np.zeros((len(scores), self.layout.width), dtype=np.float32)
        codes: dict[Block, NDArray[np.intp]] = {}  # of each categorical block
        for i, (part, margin) in enumerate(zip(self.parts, self.margins, strict=True)):
            if isinstance(margin, Margin):
                X[:, part.block.start] = margin.from_normal(scores[:, i])
                continue
            drawn = margin.codes(ndtr(scores[:, i]))
            if part.what == "missing":  # the part after that of the block's values
                drawn = np.where(drawn == 1, part.missing_code, codes[part.block])
            codes[part.block] = drawn
        for block, drawn in codes.items():
            X[np.arange(len(X)), block.start + drawn] = 1.0
        return X

    def save(self, path: Path | str) -> None:
        """Write the copula as one safetensors file."""
        arrays = {
            f"margin {i}": one.parameters if isinstance(one, Margin) else one.shares
            for i, one in enumerate(self.margins)
        }
        facts = {
            "format": "siloweave-copula",
            "blocks": [asdict(block) for block in self.blocks],
            "families": [getattr(one, "family", "categories") for one in self.margins],
            "orders": {column: list(ranking) for column, ranking in self.orders.items()},
        }
        arrays["correlation"] = np.ascontiguousarray(self.correlation)
        save_file(arrays, str(path), metadata={"facts": json.dumps(facts)})

    @classmethod
    def load(cls, path: Path | str) -> Copula:
        """Read what `save` wrote; raises DataError where the file is missing or another one."""
        try:
            with safe_open(str(path), framework="numpy") as file:
                facts = json.loads((file.metadata() or {})["facts"])
                arrays = [file.get_tensor(f"margin {i}") for i in range(len(facts["families"]))]
                correlation = file.get_tensor("correlation")
            blocks = tuple(Block(**block) for block in facts["blocks"])
            # Files of versions that ordered all categories by frequency have no orders.
            orders = {name: tuple(codes) for name, codes in facts.get("orders", {}).items()}
            _check_orders(orders, blocks)
            parts = _parts_of(blocks, orders)
            if facts["format"] != "siloweave-copula" or len(parts) != len(arrays):
                raise ValueError("it holds something else")
        except (OSError, SafetensorError, InputError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is not a stored copula of siloweave ({error})") from error
        margins = tuple(
            _stored_margin(part, family, array)
            for part, family, array in zip(parts, facts["families"], arrays, strict=True)
        )
        return cls(blocks, margins, correlation, orders)


def _stored_margin(part: _Part, family: str, array: Floats) -> Margin | CategoryMargin:
    """The distribution of a part, from what `Copula.save` wrote of it."""
    if family != "categories":
        return Margin(family, array)
    if part.what == "missing":
        return CategoryMargin(array, (0, 1))
    ranking = part.ranking
    if part.what == "value" and ranking is not None:
        ranking = (*ranking, part.missing_code)
    return CategoryMargin(array, ranking)


def _check_orders(orders: Mapping[str, tuple[int, ...]], blocks: Sequence[Block]) -> None:
    """Refuse an order that is not one of all codes of a column's only block but at most one."""
    for column, ranking in orders.items():
        own = [block for block in blocks if block.column == column]
        if len(own) != 1 or own[0].kind != "categorical":
            raise InputError(
                f"orders: column {column!r} is no single block of categories; leave it out"
            )
        size = own[0].size
        known = set(ranking) <= set(range(size)) and len(set(ranking)) == len(ranking)
        if not known or len(ranking) < max(size - 1, 1):
            raise InputError(
                f"orders: {ranking!r} of column {column!r} must have each code from 0 to "
                f"{size - 1} once, but for one that stands for a missing value"
            )


def positive_definite(R: Floats) -> Floats:
    """Raise eigenvalues to a millionth at least, then scale the diagonal back to 1."""
    values, vectors = np.linalg.eigh((R + R.T) / 2.0)
    if values.size and values[0] < _LEAST:
        R = (vectors * np.maximum(values, _LEAST)) @ vectors.T
    scale = np.sqrt(np.diag(R))
    R = R / np.outer(scale, scale)
    np.fill_diagonal(R, 1.0)
    return (R + R.T) / 2.0


def _in_use(X: Matrix, block: Block, blocks: Sequence[Block]) -> Bools:
    """Rows whose number means something.

    Where a column is a number and a choice, the first option is the continuum, and some others (a
    spike, a missing value) are the whole value and leave the number unused, at 0.
    """
    found = np.ones(len(X), dtype=np.bool_)
    for other in blocks:
        if other.kind == "categorical" and other.column == block.column:
            codes = X[:, other.start : other.stop].argmax(axis=1)
            found &= (codes == 0) | (X[:, block.start] != 0.0)
    return found


def _correlation(scores: Floats, used: Floats) -> Floats:
    """Pearson's correlation of each pair over the rows that use both; 0 where one is constant."""
    many = np.maximum(used.T @ used, 1.0)
    means = (scores.T @ used) / many  # of column i over the rows that use j as well
    both = (scores.T @ scores) / many - means * means.T
    spread = np.maximum(((scores**2).T @ used) / many - means**2, 0.0)
    scale = np.sqrt(spread * spread.T)
    R = np.divide(both, scale, out=np.zeros_like(both), where=scale > 1e-12)
    np.fill_diagonal(R, 1.0)
    return np.asarray(np.clip(R, -1.0, 1.0))


def _correlation_before_cuts(R: Floats, margins: Sequence[Margin | CategoryMargin]) -> Floats:
    """Return the normal correlations at which scores of pieces are correlated as R says.

    The score of a piece is a step function s of a normal variable. With its coefficients a_k in
    normalised Hermite polynomials, two scores have the covariance sum of a_k b_k r**k (Mehler's
    formula), which rises with r. Beyond the terms that are summed, the rest is taken so that it is
    exact at r = 1 and r = -1. Pairs of numbers stay as they are.
    """
    if all(isinstance(margin, Margin) for margin in margins):
        return R
    middles = ndtri((np.arange(_MIDDLES) + 0.5) / _MIDDLES)
    steps = np.stack([_score_at(margin, middles) for margin in margins])
    coefficients = np.stack([_hermite_coefficients(margin) for margin in margins])
    spread = steps.std(axis=1)
    constant = spread < 1e-6  # of one value, whose correlation is 0 already
    spread[constant] = 1.0
    steps, coefficients = steps / spread[:, None], coefficients / spread[:, None]

    def summed(r: Floats) -> Floats:
        total = np.zeros_like(R)
        for a in coefficients.T[::-1]:  # Horner's scheme
            total = (total + np.outer(a, a)) * r
        return total

    signs = np.where(np.arange(_TERMS) % 2 == 0, -1.0, 1.0)
    rest_at_1 = steps @ steps.T / _MIDDLES - coefficients @ coefficients.T
    rest_at_minus_1 = steps @ steps[:, ::-1].T / _MIDDLES - (coefficients * signs) @ coefficients.T
    low, high = np.full_like(R, -np.pi / 2.0), np.full_like(R, np.pi / 2.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        r = np.sin(middle)
        rest = np.where(r > 0.0, rest_at_1, rest_at_minus_1) * np.abs(r) ** (_TERMS + 1)
        above = summed(r) + rest > R
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    found = np.sin((low + high) / 2.0)

    numbers = np.array([isinstance(margin, Margin) for margin in margins])
    kept = (numbers[:, None] & numbers) | constant[:, None] | constant
    found = np.where(kept, R, found)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found, dtype=np.float64)


def _score_at(margin: Margin | CategoryMargin, z: Floats) -> Floats:
    """The score of the piece in which each value of a normal variable lies; itself for numbers."""
    return z if isinstance(margin, Margin) else margin.scores[margin.codes(ndtr(z))]


def _hermite_coefficients(margin: Margin | CategoryMargin) -> Floats:
    """Coefficients 1 to `_TERMS` of a score in normalised Hermite polynomials of a normal variable.

    The integral of h_k over a piece is the difference of h_(k-1) times the density at its ends,
    over the root of k, so each inner end counts with how far the score rises there.
    """
    found = np.zeros(_TERMS)
    if isinstance(margin, Margin):
        found[0] = 1.0
        return found
    wide = np.diff(margin.edges) > 0.0
    rises = np.diff(margin.scores[margin.order][wide])
    ends = ndtri(margin.edges[1:][wide][:-1])
    before = np.zeros_like(ends)
    here = np.exp(-0.5 * ends**2) / np.sqrt(2.0 * np.pi)  # h_0 times the density
    for k in range(1, _TERMS + 1):
        found[k - 1] = rises @ here / np.sqrt(k)
        before, here = here, (ends * here - np.sqrt(k - 1.0) * before) / np.sqrt(k)
    return found


def _between(centre: Floats, scale: float, low: Floats, high: Floats, u: Floats) -> Floats:
    """Quantile u of a normal distribution cut to [low, high], exact in both tails."""
    a, b = (low - centre) / scale, (high - centre) / scale
    flip = a > 0.0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    v = np.where(flip, 1.0 - u, u)
    z = ndtri(np.clip(ndtr(a) + v * (ndtr(b) - ndtr(a)), 1e-300, _INSIDE[1]))
    z = np.clip(z, a, b)
    return np.asarray(centre + scale * np.where(flip, -z, z), dtype=np.float64)


def _root(S: Floats) -> Floats:
    """A matrix whose product with its transpose is S, which may be singular."""
    values, vectors = np.linalg.eigh((S + S.T) / 2.0)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)


# The transform of CopulaGAN


class _ModedNumber(NamedTuple):
    """A column that has a number: its blocks without modes and with them, and how to map it."""

    number: Block
    choice: Block | None
    moved: Block
    options: Block | None
    margin: Margin
    mixture: Mixture


@dataclass(frozen=True)
class ScoreModes:
    """Feature vectors with numbers, as feature vectors with modes of normal scores, and back.

    A column that has a number and one choice uses the number in rows that choose the first option
    (as `Features` writes it); there that option becomes the modes.
    """

    blocks: tuple[Block, ...]  # of the vectors that are encoded
    margins: tuple[Margin, ...]  # of each number, in the order of `blocks`
    mixtures: tuple[Mixture, ...]  # of each number's scores

    @classmethod
    def fit(
        cls, X: NDArray[np.floating], blocks: Sequence[Block], family: Family = "beta"
    ) -> ScoreModes:
        """Fit the distribution of every number, of any scale, and the modes of its scores.

        Raises InputError where X does not fit, or the family is unknown.
        """
        X = Layout(tuple(blocks)).check(X)
        margins, mixtures = [], []
        choices = _choices(blocks)
        for number in (block for block in blocks if block.kind == "number"):
            used = _codes(X, choices.get(number.column)) == 0
            values = X[used if used.any() else ~used, number.start]
            margins.append(Margin.fit(values, family))
            places, counts = np.unique(margins[-1].to_normal(values), return_counts=True)
            mixtures.append(fit_mixture(places, counts.astype(np.float64)))
        return cls(tuple(blocks), tuple(margins), tuple(mixtures))

    @property
    def inner(self) -> tuple[Block, ...]:
        """The blocks of encoded vectors."""
        parts, kept = self._plan
        blocks = [b for part in parts for b in (part.moved, part.options) if b is not None]
        return tuple(sorted([*blocks, *(new for _, new in kept)], key=lambda b: b.start))

    @cached_property
    def _plan(self) -> tuple[list[_ModedNumber], list[tuple[Block, Block]]]:
        """Columns with a number, and the blocks of all others before and after they are moved."""
        parts: list[_ModedNumber] = []
        kept: list[tuple[Block, Block]] = []
        choices, start = _choices(self.blocks), 0
        for block in self.blocks:
            choice = choices.get(block.column)
            if block == choice:
                continue
            moved = replace(block, start=start)
            start = moved.stop
            if block.kind == "categorical":
                kept.append((block, moved))
                continue
            i = len(parts)
            size = self.mixtures[i].modes + (choice.size - 1 if choice else 0)
            options = Block(block.column, start, size, "categorical") if size > 1 else None
            start = options.stop if options else start
            parts.append(
                _ModedNumber(block, choice, moved, options, self.margins[i], self.mixtures[i])
            )
        return parts, kept

    def encode(self, X: NDArray[np.floating], *, key: Key) -> Matrix:
        """Turn vectors, (rows, width), into those with modes; numbers lie within -1 and 1.

        The key draws the mode of each score.
        """
        made, rows = self.moved(X), np.arange(len(X))
        for part in self._plan[0]:
            random = generator(fold_in(key, "modes", part.number.column))
            codes = _codes(X, part.choice)
            scores = part.margin.to_normal(X[:, part.number.start])
            modes, numbers = part.mixture.split(scores, random)
            made[:, part.moved.start] = np.where(codes == 0, numbers, 0.0)
            if part.options:
                made[:, part.options.start : part.options.stop] = 0.0
                picked = np.where(codes == 0, modes, codes - 1 + part.mixture.modes)
                made[rows, part.options.start + picked] = 1.0
        return made

    def moved(self, X: NDArray[np.floating]) -> Matrix:
        """Columns without a number where they stand among the modes; NaN for the others."""
        made = np.full((len(X), self.inner[-1].stop), np.nan, dtype=np.float32)
        for old, new in self._plan[1]:
            made[:, new.start : new.stop] = X[:, old.start : old.stop]
        return made

    def decode(self, X: Matrix) -> Matrix:
        """Turn vectors with modes back."""
        made = np.zeros((len(X), max(b.stop for b in self.blocks)), dtype=np.float32)
        for old, new in self._plan[1]:
            made[:, old.start : old.stop] = X[:, new.start : new.stop]
        for part in self._plan[0]:
            codes, count = _codes(X, part.options), part.mixture.modes
            numbers = X[:, part.moved.start].astype(np.float64)
            scores = part.mixture.join(np.minimum(codes, count - 1), numbers)
            values = part.margin.from_normal(scores)
            made[:, part.number.start] = np.where(codes < count, values, 0.0)
            if part.choice:
                picked = np.maximum(codes - count + 1, 0)
                made[np.arange(len(X)), part.choice.start + picked] = 1.0
        return made

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON can hold; `from_facts` reads it back."""
        return {
            "blocks": [asdict(block) for block in self.blocks],
            "margins": [[one.family, one.parameters.tolist()] for one in self.margins],
            "mixtures": [msgspec.to_builtins(mixture) for mixture in self.mixtures],
        }

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> ScoreModes:
        """Read what `to_facts` returned."""
        return cls(
            tuple(Block(**block) for block in facts["blocks"]),
            tuple(Margin(family, np.array(numbers)) for family, numbers in facts["margins"]),
            tuple(msgspec.convert(mixture, Mixture) for mixture in facts["mixtures"]),
        )


def _choices(blocks: Sequence[Block]) -> dict[str, Block]:
    """The choice beside each number, by column."""
    numbers = {b.column for b in blocks if b.kind == "number"}
    return {b.column: b for b in blocks if b.kind == "categorical" and b.column in numbers}


def _codes(X: NDArray[np.floating], choice: Block | None) -> Ints:
    if choice is None:
        return np.zeros(len(X), dtype=np.int64)
    return np.asarray(X[:, choice.start : choice.stop].argmax(axis=1), dtype=np.int64)
