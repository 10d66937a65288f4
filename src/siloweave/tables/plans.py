"""How each column becomes part of a row's feature vector: plain data that encodes and decodes.

A plan turns a column into codes of choice blocks and at most one number, and back. It is learned
from distinct values with weights (counts of rows, or noisy counts over declared bins), or declared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.tables.mixtures import fit_mixture
from siloweave.tables.scales import (
    Floats,
    Line,
    Scale,
    Steps,
    curve_of_edges,
    curve_of_values,
    nearest,
)

__all__ = ["Categories", "Numbers", "Numeric", "Plan", "Points", "Settings", "learned", "ranked"]

Numeric = Literal["quantile", "modes", "standard"]
"""How the continuum of a column becomes a number."""
_Ints = NDArray[np.int64]
_ATOMS = 1024  # more distinct values than this are a continuum
_SUPPORT = 10  # rows per distinct value, for the values to be all there is
_BASE = 128  # a wide column gets as few digits as keep each below so many options


@dataclass(frozen=True)
class Settings:
    """How plans are learned.

    Args:
        numeric: What the continuum becomes.
        spike_share: Share of rows from which one value of a continuum gets its own choice.
        few_values: A column with at most so many distinct numbers becomes a plain choice.
        wide: A categorical column with more options becomes digits.
    """

    numeric: Numeric = "quantile"
    spike_share: float = 0.02
    few_values: int = 20
    wide: int = 256


class Categories(msgspec.Struct, frozen=True, tag="categories"):
    """A choice among codes, as one block or as the digits of a rank, most significant first.

    Args:
        column: Name of the column.
        options: How many codes there are, a missing one (the last) included.
        sizes: Options of each block; their digits count ranks.
        order: The code of each rank, most frequent first; none when ranks are codes.
    """

    column: str
    options: int
    sizes: tuple[int, ...]
    order: tuple[int, ...] = ()

    @property
    def number(self) -> bool:
        """Whether the column has a number: never."""
        return False

    def digits(self, codes: _Ints) -> list[_Ints]:
        """Return each block's options, one per row."""
        ranks = codes
        if self.order:
            place = np.empty(self.options, dtype=np.int64)
            place[np.array(self.order)] = np.arange(self.options)
            ranks = place[codes]
        found = []
        for size in self.sizes[:0:-1]:
            found.append(ranks % size)
            ranks = ranks // size
        return [ranks, *found[::-1]]

    def codes(self, ranks: _Ints) -> _Ints:
        """Return the code of each rank."""
        return np.array(self.order, dtype=np.int64)[ranks] if self.order else ranks

    def limits(self, prefix: _Ints, block: int) -> _Ints:
        """Return the largest digit that a block may have after the digits before it.

        Args:
            prefix: The number that the digits before it make, one per row.
            block: Which block.
        """
        below = int(np.prod(self.sizes[block + 1 :], dtype=np.int64))
        most = (self.options - 1) // below - prefix * self.sizes[block]
        return np.minimum(most, self.sizes[block] - 1)


class Numbers(msgspec.Struct, frozen=True, tag="numbers"):
    """A number, a choice of what sort of value it is, or both.

    The choice's options are the modes of the scale (one option when it has none), then the
    spikes, then missing; with a single option there is no choice, unless there is no number.

    Args:
        column: Name of the column.
        low: Smallest value, after `origin` was taken off.
        high: Largest value, likewise.
        origin: What is taken off whole numbers and steps of datetimes; 0 for a continuous column.
        grain: Values are multiples of it, above `low` for whole ones; 0 when they are not.
        spikes: Values with an option of their own, ascending.
        scale: The continuum; None when the spikes are all there is.
        atoms: All values that the continuum has, ascending; empty when it has others.
        missing: Whether values may be missing.
    """

    column: str
    low: float
    high: float
    origin: int = 0
    grain: float = 0.0
    spikes: tuple[float, ...] = ()
    scale: Scale | None = None
    atoms: tuple[float, ...] = ()
    missing: bool = False

    @property
    def number(self) -> bool:
        """Whether the column has a number."""
        return self.scale is not None

    @property
    def _modes(self) -> int:
        return 0 if self.scale is None else max(self.scale.modes, 1)

    @property
    def options(self) -> int:
        """How many options the choice has; 0 when there is no choice."""
        count = self._modes + len(self.spikes) + self.missing
        return 0 if count == 1 and self.number else count

    @property
    def sizes(self) -> tuple[int, ...]:
        """Options of each block of choices: one block, or none."""
        return (self.options,) if self.options else ()

    def split(
        self, values: Floats, gone: NDArray[np.bool_], random: np.random.Generator
    ) -> tuple[_Ints, Floats]:
        """Return options and numbers; the number is 0 where a spike or nothing was chosen."""
        options = np.zeros(len(values), dtype=np.int64)
        numbers = np.zeros(len(values))
        spiked = np.zeros(len(values), dtype=bool)
        if self.spikes:
            spikes = np.array(self.spikes)
            place = nearest(spikes, values)
            spiked = (spikes[place] == values) | (self.scale is None)
            options[spiked] = self._modes + place[spiked]
        rest = ~spiked & ~gone
        if self.scale is not None:
            options[rest], numbers[rest] = self.scale.split(values[rest], random)
        options[gone] = self._modes + len(self.spikes)
        return options, numbers

    def join(self, options: _Ints, numbers: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return values and which are missing; values lie within the bounds and on the grain."""
        values = np.full(len(options), self.low)
        smooth = options < self._modes
        if self.scale is not None:
            values[smooth] = self._tidy(self.scale.join(options[smooth], numbers[smooth]))
        place = options - self._modes
        spiked = (place >= 0) & (place < len(self.spikes))
        if self.spikes:
            values[spiked] = np.array(self.spikes)[place[spiked]]
        return values, place == len(self.spikes)

    def _tidy(self, values: Floats) -> Floats:
        if self.atoms and not isinstance(self.scale, Steps):
            known = np.array(self.atoms)
            return known[nearest(known, values)]
        if self.grain == 1.0:
            values = np.rint(values)
        elif self.grain:
            # 10**-d: a quotient of whole numbers is the double that the decimals name.
            values = np.rint(values / self.grain) / np.rint(1.0 / self.grain)
        return np.clip(values, self.low, self.high)


Plan = Categories | Numbers
"""What becomes of one column."""


@dataclass(frozen=True, eq=False)
class Points:
    """What is known about the values of a column of numbers.

    Args:
        values: Ascending: distinct values, or means of bins.
        weights: How often each occurs, 0 or more.
        edges: Edges of the bins, one more than values; None when values are exact.
    """

    values: Floats
    weights: Floats
    edges: Floats | None = None

    def without(self, spikes: Sequence[float]) -> "Points":
        """Return the points that are no spikes; bins are left as they are."""
        if self.edges is not None or not spikes:
            return self
        kept = ~np.isin(self.values, np.array(spikes))
        return Points(self.values[kept], self.weights[kept])


def ranked(column: str, weights: Floats | None, options: int, wide: int) -> Categories:
    """Plan a categorical column.

    Args:
        column: Its name.
        weights: How often each code occurs, which orders the ranks of a wide column; codes are
            ranks when None.
        options: How many codes there are.
        wide: From how many on they become digits.
    """
    if options <= wide:
        return Categories(column, options, (options,))
    digits = 2
    while _root(options, digits) > _BASE:
        digits += 1
    base = _root(options, digits)
    first = -(-options // base ** (digits - 1))
    order = () if weights is None else tuple(np.argsort(-weights, kind="stable").tolist())
    return Categories(column, options, (first, *(base,) * (digits - 1)), order)


def _root(number: int, degree: int) -> int:
    """The smallest base with as many digits' numbers."""
    base = max(int(float(number) ** (1.0 / degree)) - 1, 1)
    while base**degree < number:
        base += 1
    return base


def learned(blank: Numbers, points: Points, settings: Settings) -> Numbers:
    """Learn the plan of a column of numbers.

    Args:
        blank: Bounds, origin, grain and missing; its spikes are kept.
        points: The values; none makes a line between the bounds.
        settings: How.

    Returns:
        The plan.
    """
    total = float(points.weights.sum())
    count = len(points.values)
    exact = points.edges is None
    if not count:
        middle, half = (blank.low + blank.high) / 2.0, (blank.high - blank.low) / 2.0
        return msgspec.structs.replace(blank, scale=Line(middle, half or 1.0))
    whole_range = exact and blank.grain == 1.0 and count == blank.high - blank.low + 1
    supported = exact and (total >= _SUPPORT * count or count == 1 or whole_range)
    if supported and count <= settings.few_values:
        return msgspec.structs.replace(blank, spikes=tuple(points.values.tolist()))
    spikes = blank.spikes
    if exact:
        heavy = points.weights >= max(settings.spike_share, 10.0 / count) * total
        spikes = tuple(sorted({*spikes, *points.values[heavy].tolist()}))
    rest = points.without(spikes)
    if not len(rest.values):
        return msgspec.structs.replace(blank, spikes=spikes)
    rest_total = float(rest.weights.sum())
    atoms: tuple[float, ...] = ()
    if exact and len(rest.values) <= _ATOMS and rest_total >= _SUPPORT * len(rest.values):
        atoms = tuple(rest.values.tolist())
    scale = _scale(rest, bool(atoms), settings.numeric)
    return msgspec.structs.replace(blank, spikes=spikes, scale=scale, atoms=atoms)


def _scale(points: Points, atoms: bool, numeric: Numeric) -> Scale:
    values, weights, edges = points.values, points.weights, points.edges
    # What a noisy count left out may still occur.
    weights = np.maximum(weights, max(float(weights.sum()), 1.0) * 1e-6)
    if numeric == "quantile" and atoms:
        return Steps(tuple(values.tolist()), tuple(_levels(weights).tolist()))
    if numeric == "quantile":
        if edges is None:
            return curve_of_values(values, weights)
        return curve_of_edges(edges, points.weights)
    spreads = np.zeros(len(values)) if edges is None else np.diff(edges) ** 2 / 12.0
    if numeric == "standard":
        mean = float(np.average(values, weights=weights))
        variance = float(np.average((values - mean) ** 2 + spreads, weights=weights))
        return Line(mean, variance**0.5 if variance > 0 else 1.0)
    if edges is None:
        return fit_mixture(values, weights)
    return fit_mixture(values, points.weights, spreads)


def _levels(weights: Floats) -> Floats:
    levels: Floats = np.cumsum(weights)[:-1] / weights.sum()
    return levels
