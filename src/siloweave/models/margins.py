"""Laws of single columns, and the map between a column and normal scores.

A column's values go through its distribution function to (0, 1) and from there through the normal
quantile function; the way back inverts both. A category is a piece of (0, 1) as wide as its
frequency, the most frequent first (the uniform encoding that copula synthesizers use).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
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

from siloweave.errors import InputError

__all__ = ["FAMILIES", "CategoryMargin", "Family", "Margin", "from_normal", "to_normal"]

Floats = NDArray[np.float64]
Family = Literal["beta", "norm", "truncnorm", "uniform", "gamma", "kde"]
"""A law that a numeric column may be given."""
FAMILIES: tuple[str, ...] = get_args(Family)
"""All families, the default first."""
_EDGE = float(np.finfo(np.float32).eps)  # probabilities stay this far from 0 and 1
_POINTS = 2_000  # quantiles that stand for a longer column
_ROOM = (
    0.0003,
    0.002,
    0.01,
    0.05,
    0.2,
    0.6,
)  # how far a bound may lie outside, in ranges of the data
_GRID = 1_024


@dataclass(frozen=True)
class Margin:
    """The law of one numeric column.

    Attributes:
        family: One of `FAMILIES`, or ``constant`` for a column of one value.
        parameters: What the family needs, as `fit` wrote it.

    Example:
        >>> law = Margin.fit(np.linspace(0.0, 10.0, 101), "uniform")
        >>> law.cdf(np.array([2.5])).tolist(), law.ppf(np.array([0.25])).tolist()
        ([0.25], [2.5])
    """

    family: str
    parameters: Floats

    @classmethod
    def fit(cls, values: NDArray[np.floating], family: Family = "beta") -> Margin:
        """Fit a family by maximum likelihood.

        The bounds of beta and gamma are not where the likelihood is largest, for it has no bound
        there: of a few bounds outside the data, the fit nearest to the empirical distribution in
        Kolmogorov's distance is kept. Columns above 2,000 rows are fitted to as many quantiles.

        Args:
            values: Finite numbers, at least one.
            family: ``beta``, ``norm``, ``truncnorm``, ``uniform``, ``gamma`` or ``kde`` (a
                Gaussian kernel, its width by Scott's rule).

        Returns:
            The law; ``constant`` where all values are equal.

        Raises:
            InputError: The family is unknown, a value is not finite, or there is none.
        """
        if family not in FAMILIES:
            raise InputError(f"family={family!r} is unknown; use one of {', '.join(FAMILIES)}")
        x = np.asarray(values, dtype=np.float64)
        if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all():
            raise InputError(
                f"values: shape {x.shape} with {np.count_nonzero(~np.isfinite(x))} entries that "
                "are no numbers; a law needs one or more finite values, so encode missing ones"
            )
        low, high = float(x.min()), float(x.max())
        if not high > low:
            return cls("constant", np.array([low]))
        if x.size > _POINTS:
            x = np.quantile(x, (np.arange(_POINTS) + 0.5) / _POINTS)
        return cls(family, np.array(_FIT[family](np.sort(x), low, high)))

    def cdf(self, x: NDArray[np.floating]) -> Floats:
        """Return the share of the law at or below each value."""
        p = self.parameters
        match self.family:
            case "beta":
                u = betainc(p[0], p[1], np.clip((x - p[2]) / (p[3] - p[2]), 0.0, 1.0))
            case "gamma":
                u = gammainc(p[0], np.maximum(x - p[1], 0.0) / p[2])
            case "norm":
                u = ndtr((x - p[0]) / p[1])
            case "truncnorm":
                u = _truncated(p, x)
            case "uniform":
                u = np.clip((x - p[0]) / (p[1] - p[0]), 0.0, 1.0)
            case "kde":
                u = np.interp(x, p[:_GRID], p[_GRID:])
            case _:
                u = np.full(np.shape(x), 0.5)
        return np.asarray(u, dtype=np.float64)

    def ppf(self, u: NDArray[np.floating]) -> Floats:
        """Return the value below which each share of the law lies."""
        p = self.parameters
        match self.family:
            case "beta":
                x = p[2] + (p[3] - p[2]) * betaincinv(p[0], p[1], u)
            case "gamma":
                x = p[1] + p[2] * gammaincinv(p[0], u)
            case "norm":
                x = p[0] + p[1] * ndtri(u)
            case "truncnorm":
                x = _truncated_inverse(p, u)
            case "uniform":
                x = p[0] + (p[1] - p[0]) * np.asarray(u)
            case "kde":
                x = np.interp(u, p[_GRID:], p[:_GRID])
            case _:
                x = np.full(np.shape(u), p[0])
        return np.asarray(x, dtype=np.float64)


@dataclass(frozen=True)
class CategoryMargin:
    """The law of one categorical column: pieces of (0, 1), the most frequent category first.

    Attributes:
        shares: Frequency of each code; they sum to 1.

    Example:
        >>> law = Categories.fit(np.array([0, 1, 1, 1]), 2)
        >>> law.codes(np.array([0.1, 0.8])).tolist()
        [1, 0]
    """

    shares: Floats

    @classmethod
    def fit(cls, codes: NDArray[np.integer], size: int) -> CategoryMargin:
        """Count the codes 0 to `size` - 1; needs at least one."""
        counts = np.bincount(codes, minlength=size).astype(np.float64)
        return cls(counts / counts.sum())

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """The codes from the most to the least frequent."""
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
        last = int(np.count_nonzero(self.shares)) - 1
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


def to_normal(law: Margin, values: NDArray[np.floating]) -> Floats:
    """Return a column's normal scores; probabilities stay 1.2e-7 away from 0 and 1.

    Example:
        >>> law = Margin.fit(np.linspace(0.0, 10.0, 101), "uniform")
        >>> [round(float(z), 6) for z in to_normal(law, np.array([5.0, 10.0]))]
        [0.0, 5.166578]
    """
    return np.asarray(ndtri(np.clip(law.cdf(values), _EDGE, 1.0 - _EDGE)), dtype=np.float64)


def from_normal(law: Margin, scores: NDArray[np.floating]) -> Floats:
    """Return the values whose normal scores are given: the inverse of `to_normal`."""
    return law.ppf(np.clip(ndtr(np.asarray(scores, dtype=np.float64)), _EDGE, 1.0 - _EDGE))


def _beta(x: Floats, low: float, high: float) -> list[float]:
    def candidates() -> Iterator[list[float]]:
        span = high - low
        for left in _ROOM:
            for right in _ROOM:
                start, end = low - left * span, high + right * span
                u = (x - start) / (end - start)
                yield [*_beta_shapes(u), start, end]

    return _nearest(x, "beta", candidates)


def _beta_shapes(u: Floats) -> tuple[float, float]:
    """Maximum likelihood of the beta law on (0, 1) by Newton's steps on the logarithms."""
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


def _norm(x: Floats, low: float, high: float) -> list[float]:
    return [float(x.mean()), float(x.std())]


def _uniform(x: Floats, low: float, high: float) -> list[float]:
    return [low, high]


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
    """Distribution function of the truncated normal law, exact in its upper tail too."""
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


_FIT: dict[str, Callable[[Floats, float, float], list[float]]] = {
    "beta": _beta,
    "norm": _norm,
    "truncnorm": _truncnorm,
    "uniform": _uniform,
    "gamma": _gamma,
    "kde": _kde,
}
