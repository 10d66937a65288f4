"""How each column becomes part of a row's feature vector: plain data that encodes and decodes.

An encoding turns a column into codes of one-hot blocks and at most one number, and back. It is
learned from distinct values with weights (counts of rows, or noisy counts over declared bins), or
follows from the schema alone.

Whole numbers and datetimes are counted from the column's low bound, so that float64 distinguishes
them as long as the bounds are less than 2**53 apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError, SchemaError
from siloweave.tables.bins import (
    BINNED,
    SPIKE_SHARE,
    as_datetimes,
    check_values,
    edges_of,
    last_of,
    new_densities,
    numbers_of,
    spike_bins,
    without_spikes,
)
from siloweave.tables.codes import options_of
from siloweave.tables.read import Table
from siloweave.tables.scales import (
    Floats,
    Line,
    Scale,
    Steps,
    curve_of_edges,
    curve_of_values,
    fit_mixture,
    nearest,
)
from siloweave.tables.schema import Column

Numeric = Literal["quantile", "modes", "standard"]
"""How the continuum of a column becomes a number."""
LARGEST = 1e100
"""Of a number, so that its square, and sums of many, are numbers too."""
FEW_VALUES, WIDE = 20, 256
"""Up to so many distinct numbers are a categorical; categoricals of more options are digits."""
RESOLUTIONS = tuple(float(f"1e-{decimals}") for decimals in range(8))
"""What the values of a column may be multiples of."""
_Ints = NDArray[np.int64]
_Mask = NDArray[np.bool_]
_LISTED = 1024  # more distinct values than this are a continuum
_SUPPORT = 10  # rows per distinct value, for the values to be all there is
_BASE = 128  # a wide column gets as few digits as keep each below so many options


class CategoricalEncoding(msgspec.Struct, frozen=True, tag="categorical"):
    """A categorical of codes, as one block or as the digits of a rank, most significant first.

    Args:
        column: Name of the column.
        options: How many codes there are, a missing one (the last) included.
        sizes: Options of each block; their digits count ranks.
        order: The code of each rank, most frequent first; empty when ranks are codes.
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
        """Return the largest digit of a block, after the number that the digits before it make."""
        below = int(np.prod(self.sizes[block + 1 :], dtype=np.int64))
        most = (self.options - 1) // below - prefix * self.sizes[block]
        return np.minimum(most, self.sizes[block] - 1)


class NumericEncoding(msgspec.Struct, frozen=True, tag="numeric"):
    """A number, a categorical of what sort of value it is, or both.

    The categorical's options are the modes of the scale (one option when it has none), then the
    spikes, then missing; with a single option there is no categorical, unless there is no number.

    Args:
        column: Name of the column.
        low: Smallest value, after `origin` was subtracted.
        high: Largest value, likewise.
        origin: What is subtracted from whole numbers and steps of datetimes; 0 for a continuous
            column.
        resolution: Values are multiples of it, above `low` for whole ones; 0 when they are not.
        spikes: Values with an option of their own, ascending.
        scale: The continuum; None when the spikes are all there is.
        atoms: All values that the continuum has, ascending; empty when it has others.
        missing: Whether values may be missing.
    """

    column: str
    low: float
    high: float
    origin: int = 0
    resolution: float = 0.0
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
        """How many options the categorical has; 0 without one."""
        count = self._modes + len(self.spikes) + self.missing
        return 0 if count == 1 and self.number else count

    @property
    def sizes(self) -> tuple[int, ...]:
        """Options of each one-hot block: one block, or none."""
        return (self.options,) if self.options else ()

    def split(
        self, values: Floats, gone: _Mask, random: np.random.Generator
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

    def join(self, options: _Ints, numbers: Floats) -> tuple[Floats, _Mask]:
        """Return values, within the bounds and the resolution, and which are missing."""
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
        return np.clip(rounded(values, self.resolution), self.low, self.high)

    def values_of(self, column: Column, table: Table) -> tuple[Floats, _Mask]:
        """Return a column's values less the origin, and which are missing.

        DataError when values are infinite, SchemaError when they do not fit the schema.
        """
        raw, gone = numbers_of(column, table)
        values = (raw - self.origin if self.origin else raw).astype(np.float64)
        if wild := int(np.count_nonzero(~np.isfinite(values))):
            raise DataError(
                f"column {column.name!r}: {wild} rows hold infinite numbers; replace or drop them"
            )
        check_values(column, values, gone, self.low, self.high)
        return values, gone

    def typed(self, column: Column, values: Floats, like: Table | None) -> Any:
        """Return a column's values, given less the origin, in its own type."""
        if column.kind == "continuous":
            return values
        # The largest double below 2**63, which a rounded sum of bounds may exceed.
        whole = np.minimum(values, 2.0**63 - 1024.0).astype(np.int64)
        whole = np.minimum(whole, int(last_of(column)) - self.origin) + self.origin
        return as_datetimes(column, whole, like) if column.kind == "datetime" else whole


ColumnEncoding = CategoricalEncoding | NumericEncoding
"""What becomes of one column."""


@dataclass(frozen=True, eq=False)
class Points:
    """What is known about the values of a column of numbers.

    Values ascend: distinct values, or means of bins; each has a weight, 0 or more. Edges are those
    of the bins, one more than values, or None when values are exact.
    """

    values: Floats
    weights: Floats
    edges: Floats | None = None

    def without(self, spikes: Sequence[float]) -> Points:
        """Return the points that are no spikes; bins are left as they are."""
        if self.edges is not None or not spikes:
            return self
        kept = ~np.isin(self.values, np.array(spikes))
        return Points(self.values[kept], self.weights[kept])

    def with_every_whole_number(self, encoding: NumericEncoding) -> Points:
        """Add the whole numbers in the bounds that never occur, if there are so few in all."""
        low, high = encoding.low, encoding.high
        if encoding.resolution != 1.0 or high - low + 1.0 > FEW_VALUES or low != round(low):
            return self
        values = low + np.arange(int(high - low + 1.0), dtype=np.float64)
        weights = np.zeros(len(values))
        weights[np.searchsorted(values, self.values)] = self.weights
        return Points(values, weights)


def rounded(values: Floats, resolution: float) -> Floats:
    """Return the nearest multiples of a resolution; 0 changes nothing."""
    if not resolution:
        return values
    # 10**-d: a quotient of whole numbers is the double that the decimals name.
    multiples: Floats = np.rint(values / resolution) / np.rint(1.0 / resolution)
    return multiples


def resolution_of(values: Floats) -> float:
    """Return 10**-d for the fewest decimals d, at most 7, that all values have; else 0."""
    if not len(values):
        return 0.0  # missing values alone have no known resolution
    largest = np.abs(values).max(initial=0.0)
    for decimals, resolution in enumerate(RESOLUTIONS):
        if largest * 10.0**decimals > 2.0**50:
            break
        if (np.round(values, decimals) == values).all():
            return resolution
    return 0.0


def check_numeric(numeric: str) -> None:
    """Raise DataError for anything that is not `Numeric`."""
    if numeric not in get_args(Numeric):
        known = ", ".join(get_args(Numeric))
        raise DataError(f"numeric={numeric!r} is unknown; use one of {known}")


def encoding_of_options(column: str, weights: Floats | None, options: int) -> CategoricalEncoding:
    """Encode a categorical column; weights, how often each code occurs, order ranks of digits."""
    if options <= WIDE:
        return CategoricalEncoding(column, options, (options,))
    digits = next(number for number in count(2) if _root(options, number) <= _BASE)
    base = _root(options, digits)
    first = -(-options // base ** (digits - 1))
    order = () if weights is None else tuple(np.argsort(-weights, kind="stable").tolist())
    return CategoricalEncoding(column, options, (first, *(base,) * (digits - 1)), order)


def _root(number: int, degree: int) -> int:
    """The smallest base with as many digits' numbers."""
    base = max(int(float(number) ** (1.0 / degree)) - 1, 1)
    while base**degree < number:
        base += 1
    return base


def encoding_of_bounds(column: Column) -> NumericEncoding:
    """Return a numeric column's encoding with what its schema says: bounds, but no scale.

    Raises:
        SchemaError: When a bound is not declared, or squares of its values would overflow.
    """
    if column.low is None or column.high is None:
        raise SchemaError(
            f"column {column.name!r} has no declared low and high; add both to the schema "
            "(Schema.detect proposes them from data)"
        )
    for name, bound in (("low", column.low), ("high", column.high)):
        if column.kind == "continuous" and abs(float(bound)) > LARGEST:
            raise SchemaError(
                f"column {column.name!r}: {name}={bound!r} is beyond {LARGEST:g} in size, and "
                "float64 holds no sums of squares of such numbers; give the column in a larger "
                "unit, or as its logarithm"
            )
    low, high = edges_of(column, 1)[0].item(), last_of(column)
    if column.kind == "continuous":
        return NumericEncoding(column.name, low, float(high), missing=column.missing)
    return NumericEncoding(
        column.name, 0.0, float(high - low), int(low), 1.0, missing=column.missing
    )


def learned(bounds: NumericEncoding, points: Points, numeric: Numeric) -> NumericEncoding:
    """Learn the encoding of a numeric column from its values; no value makes a line.

    Bounds, origin, resolution and missing are those of `bounds`, whose spikes are kept.
    """
    total = float(points.weights.sum())
    count = len(points.values)
    exact = points.edges is None
    if not count:
        middle, half = (bounds.low + bounds.high) / 2.0, (bounds.high - bounds.low) / 2.0
        return msgspec.structs.replace(bounds, scale=Line(middle, half or 1.0))
    whole_range = exact and bounds.resolution == 1.0 and count == bounds.high - bounds.low + 1
    supported = exact and (total >= _SUPPORT * count or count == 1 or whole_range)
    if supported and count <= FEW_VALUES:
        return msgspec.structs.replace(bounds, spikes=tuple(points.values.tolist()))
    spikes = bounds.spikes
    if exact:
        heavy = points.weights >= max(SPIKE_SHARE, 10.0 / count) * total
        spikes = tuple(sorted({*spikes, *points.values[heavy].tolist()}))
    rest = points.without(spikes)
    if not len(rest.values):
        return msgspec.structs.replace(bounds, spikes=spikes)
    atoms: tuple[float, ...] = ()
    held = float(rest.weights.sum())
    if exact and len(rest.values) <= _LISTED and held >= _SUPPORT * len(rest.values):
        atoms = tuple(rest.values.tolist())
    scale = _scale(rest, bool(atoms), numeric)
    return msgspec.structs.replace(bounds, spikes=spikes, scale=scale, atoms=atoms)


def _scale(points: Points, atoms: bool, numeric: Numeric) -> Scale:
    values, weights, edges = points.values, points.weights, points.edges
    # What a noisy count left out may still occur.
    weights = np.maximum(weights, max(float(weights.sum()), 1.0) * 1e-6)
    if numeric == "quantile" and atoms:
        levels = np.cumsum(weights)[:-1] / weights.sum()
        return Steps(tuple(values.tolist()), tuple(levels.tolist()))
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


def declared(column: Column) -> ColumnEncoding:
    """Return a column's encoding from its schema alone; a number lies between -1 and 1."""
    if column.kind not in BINNED:
        return encoding_of_options(column.name, None, options_of(column))
    bounds = encoding_of_bounds(column)
    if bounds.low == bounds.high:
        return msgspec.structs.replace(bounds, spikes=(bounds.low,))
    every = Points(np.zeros(0), np.zeros(0)).with_every_whole_number(bounds)
    if len(every.values):
        return msgspec.structs.replace(bounds, spikes=tuple(every.values.tolist()))
    return learned(bounds, every, "standard")


def counted(column: Column, weights: Floats, numeric: Numeric) -> NumericEncoding:
    """Return the encoding of a numeric column from one count, 0 or more, per declared bin."""
    bounds, heavy = encoding_of_bounds(column), spike_bins(column, weights)
    spikes = tuple(sorted(value - bounds.origin for value in heavy.values()))
    points = binned(column, without_spikes(column, weights, heavy))
    return learned(msgspec.structs.replace(bounds, spikes=spikes), points, numeric)


def binned(column: Column, weights: Floats) -> Points:
    """Return counts over a column's declared equal-width bins, less the missing ones, as points.

    They are less the encoding's origin, and exact where each bin holds one value.
    """
    bounds = encoding_of_bounds(column)
    if bounds.low == bounds.high:
        return Points(np.array([bounds.low]), weights)
    edges = edges_of(column, len(weights))
    if bounds.resolution != 1.0:
        return _middles(edges.astype(np.float64), weights)
    first = (edges - bounds.origin).astype(np.float64)
    if int(edges[-1] - edges[0]) == len(weights):
        return Points(first[:-1], weights)
    return _middles(first - 0.5, weights)


def _middles(edges: Floats, weights: Floats) -> Points:
    """Middles of bins; neighbours that hold as much are one bin."""
    starts = new_densities(edges, weights)
    kept = np.append(edges[:-1][starts], edges[-1])
    summed = np.add.reduceat(weights, np.flatnonzero(starts))
    return Points((kept[1:] + kept[:-1]) / 2.0, summed, kept)
