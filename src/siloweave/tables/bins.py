"""Bins of numbers and datetimes between declared bounds: equally wide, or cut by counts.

Datetimes are counted in steps since 1970, of the resolution that the column declares, or else its
format, or else its bounds, so that they are binned like whole numbers.

Bins of equal width leave nearly all rows of a skewed column in one of them. `cuts_of` therefore
cuts a column by counts of narrow bins, so that each bin holds as few rows as their number allows.
A value that many rows share gets a bin of its own: 0 and the bounds exactly (`spike_bins`), any
other as narrowly as was counted. `octaves` are narrow bins that are narrower near 0, by the bounds
alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from math import ceil, lcm
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import SchemaError
from siloweave.tables.forms import RESOLUTIONS, number_form, resolution_of, written_time
from siloweave.tables.parsing import UNITS
from siloweave.tables.read import Table

if TYPE_CHECKING:
    from siloweave.tables.schema import Column

BINNED = ("integer", "continuous", "datetime")
"""Kinds of columns that are coded by bins."""
LOW = "low"
"""The fallback of a column of numbers or datetimes that is its lower bound."""
Edges = NDArray[np.int64] | NDArray[np.float64]
"""Bin edges or values: whole (integers, steps of datetimes) or not."""
Floats = NDArray[np.float64]
SPIKE_SHARE = 0.02
"""Share of the rows from which a value, or a narrow bin, is a spike."""
_DAY, _SECOND, _MILLISECOND, _MICROSECOND = 86_400_000_000, 1_000_000, 1_000, 1
_NO_SPIKES: Mapping[int, float] = MappingProxyType({})
_NUMBERS: Mapping[str, Any] = MappingProxyType({"whole numbers": np.int64, "numbers": np.float64})
_DIGITS = re.compile(r"%Y(%[mdHMS])*(\.?%f)?0*")  # formats of datetimes that are numbers
_FINE = 1024  # so many bins are narrow enough for one to hold one value alone
_ALONE = 4.0  # times its neighbours, what such a bin holds
_OCTAVE = 64  # bins between a number and its double, where bins are narrower near 0
_SINGLE = 1024  # units up to which (or a number below twice as many) each value has a bin
_SEVERAL = 4  # values of an equally wide bin, up to which bins are not narrower near 0
_OCTAVES = 20  # into which numbers without a unit are divided
_HALVINGS = 40  # of the range in which the heaviest bin is sought
_EXACT = 2.0**53  # numbers of units up to here are float64
_EMPTY = 1e-9  # share of the rows that empty bins are taken to hold together


class Cuts(msgspec.Struct, frozen=True):
    """Where a column is cut into bins, and how rows lie inside them; datetimes in steps.

    Args:
        starts: Where bins begin but the first; ascending, whole where the column is no continuum.
        values: Knots of a distribution function that is straight between them, ascending from the
            lower bound to the upper one. Empty: rows lie evenly.
        levels: The function there, ascending.

    Raises:
        SchemaError: Knots do not rise, or there are not as many of both.
    """

    starts: tuple[int | float, ...]
    values: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        rising = all((np.diff(knots) > 0).all() for knots in (self.values, self.levels))
        if len(self.values) != len(self.levels) or not rising:
            raise SchemaError(
                f"cuts: {len(self.values)} values and {len(self.levels)} levels are no "
                "distribution function; give as many of both, ascending"
            )


def edges_of(column: Column, bins: int) -> Edges:
    """Return the edges of at most so many equally wide bins; datetimes in steps.

    Whole values never get more bins than there are values. Bin c holds ``edges[c] <= value <
    edges[c + 1]``; the last bin of a continuous column holds its end too. SchemaError if float64
    cannot distinguish the edges.
    """
    if column.kind == "continuous":
        return _continuous_edges(column, bins)
    return _even(_whole(column, column.low), int(last_of(column)) + 1, bins, whole=True)


def octaves(column: Column, bins: int) -> list[Edges]:
    """Return edges of bins that are narrower near 0, those of equal width in one array each.

    Amounts mostly lie far below the bound that is declared for them, and rows share small ones. So
    no bin is wider than one of `bins` equally wide ones, there are 64 or more between any number
    and its double, and every value up to 1,024 units has its own, where the unit is 1 or that of
    the last decimal. Without a unit numbers are divided down to a millionth of the bound. Only
    bounds and decimals decide, by halves and divisions, so that all parties have the same bins.

    An array ends where the next begins. The list is empty, and bins are to be equally wide, for
    datetimes, for at most four values in a bin, for bounds that are equally far from 0 (within a
    factor of 64 for 4096 bins), and for numbers without a unit on both sides of 0: mostly scores.

    Example:
        >>> from siloweave.tables.schema import Column
        >>> amount = Column("amount", "integer", low=0, high=999_999)
        >>> [(len(e) - 1, int(e[0]), int(e[-1])) for e in octaves(amount, 256)][:3]
        [(1954, 0, 1954), (64, 1954, 3907), (64, 3907, 7813)]
    """
    if column.kind == "datetime" or value_count(column) <= _SEVERAL * bins:
        return []
    low, stop = edges_of(column, 1).tolist()
    whole, both, far = column.kind == "integer", low < 0 < stop, max(-low, stop)
    unit = 1.0 if whole else 0.0 if column.decimals is None else 10.0**-column.decimals
    if (both and not unit) or far <= bins // _OCTAVE * max(low, -stop):
        return []
    width, least = (stop - low) / bins, _SINGLE * unit or far / 2**_OCTAVES
    sides = []
    for sign, near, end in ((-1, -stop, -low), (1, low, stop)):
        found, near = [], max(near, 0)
        while end > near:
            half = -(-end // 2) if whole else end / 2
            half = half if half > max(near, least) else near
            own = width if end > 2 * least else unit or width
            count = max(_OCTAVE, ceil((end - half) / own))
            first, last = sorted((sign * half, sign * end))
            found.append(_even(first, last, count, whole=whole))
            end = half
        sides += found[::-sign]
    return sides


def octave_starts(column: Column, bins: int) -> tuple[int | float, ...]:
    """Return where the bins of `octaves` begin but the first."""
    return tuple(e for edges in octaves(column, bins) for e in edges[:-1].tolist())[1:]


def cut_edges(column: Column, cuts: Cuts) -> Edges:
    """Return the edges of bins that begin where cuts say, as `edges_of` does.

    The last bin of a continuum that is cut at its upper bound is that value. SchemaError if cuts do
    not rise from above the lower bound to the upper one at most, or a whole column's are not whole.
    """
    ends = edges_of(column, 1)
    edges = np.concatenate([ends[:1], np.asarray(cuts.starts, dtype=ends.dtype), ends[1:]])
    rising = bool((np.diff(edges[:-1]) > 0).all()) and edges[-2] <= last_of(column)
    if not rising or edges[1:-1].tolist() != list(cuts.starts):
        whole = "" if column.kind == "continuous" else "whole numbers that "
        raise SchemaError(
            f"cuts: those of column {column.name!r} must be {whole}rise from above its low, "
            f"{column.low!r}, to its high, {column.high!r}, at most"
        )
    return edges


def growing_starts(
    values: Edges, low: float, high: float, bins: int, *, whole: bool
) -> list[int | float]:
    """Where bins begin that grow by a factor, but the first; for pictures of skewed numbers.

    Numbers are skewed if none is below 0, most of those above 0 differ from the largest by a factor
    of 10 or more, and nine tenths of all are in the first tenth from `low` to `high`. The result is
    empty if they are not. The first bin holds 0.

    Example:
        >>> growing_starts(np.array([0] * 50 + [1, 20, 300] * 10 + [9000]), 0, 9999, 4, whole=True)
        [1, 10, 100, 1000]
    """
    positive = values[values > 0]
    if low < 0 or (whole and high - low < 2 * bins) or len(positive) < 20:
        return []
    if np.quantile(values, 0.9) > low + (high - low) / 10:
        return []
    first = 1.0 if whole else 10.0 ** np.floor(np.log10(np.quantile(positive, 0.01)))
    first = max(first, low)
    if np.median(positive) * 10 > high or not 0 < first * 10 <= high:
        return []
    starts = np.geomspace(first, high, bins + 1)[:-1]
    if whole:
        starts = np.unique(np.ceil(starts - 1e-9)).astype(np.int64)
    found: list[int | float] = starts[(starts > low) & (starts < high)].tolist()
    return found


def above(value: Floats | float) -> Floats:
    """Return the end of a bin that holds one number of a continuum alone.

    Above 0 it is the least normal number: some libraries take smaller ones for 0.
    """
    following: Floats = np.nextafter(value, np.inf)
    return np.where(following == np.nextafter(0.0, np.inf), np.finfo(np.float64).tiny, following)


def last_of(column: Column) -> int | float:
    """Return a column's largest value, inclusive; datetimes in steps."""
    if column.kind == "continuous":
        return float(column.high or 0.0)
    return last_at(column, column.high)


def last_at(column: Column, value: object) -> int | float:
    """Return the largest number that an upper bound of a column includes; datetimes in steps.

    A bound that is a date includes that whole day.

    Example:
        >>> from siloweave.tables.schema import Column
        >>> seen = Column("seen", "datetime", resolution="hour")
        >>> number_at(seen, "1970-01-02"), last_at(seen, "1970-01-02")
        (24, 47)
    """
    number = number_at(column, value)
    if column.kind == "datetime" and is_date(value):
        return int(number) + _DAY // step_of(column) - 1
    return number


def is_date(bound: object) -> bool:
    """Whether a bound of a column of datetimes is a day, without a time."""
    return len(str(bound)) <= len("2024-01-31")


def number_at(column: Column, value: object) -> int | float:
    """Return a value of a binned column as a number; datetimes, ISO-8601 text, in steps."""
    return float(str(value)) if column.kind == "continuous" else _whole(column, value)


def fallback_of(column: Column) -> int | float:
    """Return the number that stands for cells without a place; its column declares a fallback.

    It is the lower bound where the fallback is "low", and 0 as long as that bound is open.
    """
    if column.fallback != LOW:
        return number_at(column, column.fallback)
    return 0 if column.low is None else number_at(column, column.low)


def draw(
    column: Column,
    edges: Edges,
    codes: NDArray[np.int64],
    random: np.random.Generator,
    spikes: Mapping[int, float] = _NO_SPIKES,
    cuts: Cuts | None = None,
) -> Edges:
    """Draw one value inside each row's bin: uniformly, or as its cuts say.

    A value is whole where the column is, and falls into its bin again. Where the column declares
    decimals it is one of the numbers with so many; in a bin without any, the nearest one. `spikes`
    are bins that hold one value alone, and that value.
    """
    drawn: Edges
    placed, reals = None, edges.astype(np.float64)
    low, high = reals[codes], reals[codes + 1]
    if cuts is not None and cuts.values:
        values, levels = np.array(cuts.values), np.array(cuts.levels)
        first, last = np.interp(low, values, levels), np.interp(high, values, levels)
        placed = np.interp(first + (last - first) * random.random(len(codes)), levels, values)
    if column.kind == "continuous":
        if placed is None:
            placed = low + (high - low) * random.random(len(codes))
        inside = np.where(codes + 2 == len(edges), high, np.nextafter(high, -np.inf))
        drawn = np.where(high <= above(low), low, np.clip(placed, low, inside))
        drawn = with_decimals(column, drawn, low, inside)
    else:
        start, end = edges.astype(np.int64)[codes], edges.astype(np.int64)[codes + 1]
        if placed is None:
            drawn = random.integers(start, end)
        else:
            drawn = np.clip(np.floor(placed).astype(np.int64), start, end - 1)
    for place, value in spikes.items():
        drawn[codes == place] = value
    return drawn


def log_density(
    column: Column, edges: Edges, codes: NDArray[np.int64], values: Edges, cuts: Cuts | None = None
) -> Floats:
    """Return the logarithm of the density with which `draw` puts a value into its row's bin.

    Whole numbers and datetimes have a probability, numbers of a continuum a density with respect to
    their length; in a bin that holds one number alone, that is its probability, too. Decimals that
    a column declares are not looked at: a number that is rounded to them counts as a continuum's.

    Args:
        column: How it is declared.
        edges: Those of its bins.
        codes: The bin of each value.
        values: Values inside these bins; datetimes in steps.
        cuts: How rows lie inside bins, as `draw` takes it.

    Example:
        >>> from siloweave.tables.schema import Column
        >>> age = Column("age", "integer", low=0, high=99)
        >>> density = log_density(age, edges_of(age, 10), np.array([0]), np.array([5]))
        >>> np.exp(density).round(9).tolist()
        [0.1]
    """
    reals = edges.astype(np.float64)
    low, high = reals[codes], reals[codes + 1]
    is_whole = column.kind != "continuous"
    is_single = high - low <= 1.0 if is_whole else high <= above(low)
    width = np.where(is_single, 1.0, high - low)
    if cuts is None or not cuts.values:
        return -np.log(width)

    # Levels rise by the share of a bin's rows that lie between two places.
    knots, levels = np.array(cuts.values), np.array(cuts.levels)
    held = np.interp(high, knots, levels) - np.interp(low, knots, levels)
    if is_whole:
        here = values.astype(np.float64)
        share = np.interp(here + 1.0, knots, levels) - np.interp(here, knots, levels)
    else:
        piece = np.clip(np.searchsorted(knots, values, side="right") - 1, 0, len(knots) - 2)
        share = (np.diff(levels) / np.diff(knots))[piece]
    is_single |= held <= 0.0
    ratio = np.divide(share, held, out=np.ones_like(held), where=~is_single)
    return np.asarray(np.log(np.where(is_single, 1.0 / width, ratio)))


def bin_means(column: Column, edges: Edges, cuts: Cuts | None = None) -> Floats:
    """Return the mean of the values that `draw` puts into each bin; datetimes in steps.

    Example:
        >>> from siloweave.tables.schema import Column
        >>> age = Column("age", "integer", low=0, high=99)
        >>> bin_means(age, edges_of(age, 10)).tolist()[:2]
        [4.5, 14.5]
    """
    reals = edges.astype(np.float64)
    low, high = reals[:-1], reals[1:]
    means: Floats = (low + high) / 2.0
    if cuts is not None and cuts.values:
        # A bin's mean lies as far below its end as its rows do on average.
        knots, levels = np.array(cuts.values), np.array(cuts.levels)
        places = np.union1d(knots, reals)
        at = np.interp(places, knots, levels)
        area = np.concatenate([[0.0], np.cumsum(np.diff(places) * (at[1:] + at[:-1]) / 2.0)])
        below = np.diff(area[np.searchsorted(places, reals)])
        first = np.interp(low, knots, levels)
        held = np.interp(high, knots, levels) - first
        share = np.divide(
            below - first * (high - low), held, out=(high - low) / 2.0, where=held > 0
        )
        means = high - share
    if column.kind != "continuous":
        return means - 0.5  # a draw is cut to the whole number below
    return np.where(high <= above(low), low, means)


def with_decimals(
    column: Column, values: Edges, low: Floats | float, high: Floats | float
) -> Edges:
    """Round numbers of a continuum to the decimals that the column declares, if it does.

    A number stays between its `low` and `high` where there is one with so many decimals, and
    always within the column's bounds, where these have no more decimals than it.
    """
    if column.decimals is None or column.kind != "continuous":
        return values
    values = values.astype(np.float64)
    unit = 10.0**column.decimals
    lowest, highest = float(column.low or 0.0), float(column.high or 0.0)
    first, last = _multiples(low, unit, np.ceil), _multiples(high, unit, np.floor)
    steps = np.rint(values * unit)
    steps = np.where(first <= last, np.clip(steps, first, last), steps)
    ends = _multiples(lowest, unit, np.ceil), _multiples(highest, unit, np.floor)
    steps = np.clip(steps, *ends) if ends[0] <= ends[1] else steps
    found: Floats = np.where(np.abs(steps) < _EXACT, steps / unit, values)
    return found


def _multiples(value: Floats | float, unit: float, towards: Callable[[Any], Any]) -> Any:
    """The number of units in a value, rounded unless it is that of a double with such decimals."""
    near = np.rint(np.asarray(value) * unit)
    return np.where(near / unit == value, near, towards(np.asarray(value) * unit))


def as_written(column: Column, values: Edges, like: Table | None) -> Any:
    """A binned column's values as the table has them: numbers, datetimes (from steps), or text.

    They are text, as the column's format says, where the column of that name in `like` is text or,
    without such a column, the schema has a format. Days of whole numbers stay whole numbers.
    Numbers of a unit of time are durations where `like` has these, and numbers elsewhere.
    """
    if column.kind == "datetime":
        return as_datetimes(column, values, like)
    if column.format in UNITS:
        if like is None or column.name not in like.names or like.unit(column.name) is None:
            return values
        return np.rint(values * float(UNITS[column.format])).astype("timedelta64[us]")
    if column.format is None or not _is_text(column, like):
        return values
    return number_form(column.format).written(values, column.decimals, column.padded)


def _is_text(column: Column, like: Table | None) -> bool:
    if like is not None and column.name in like.names:
        return like.kind(column.name) == "text"
    return column.format is not None


def as_datetimes(column: Column, steps: Edges, like: Table | None) -> NDArray[Any]:
    """Turn steps since 1970, one per row, into datetime64[us] or text.

    It is text, by the column's format (ISO-8601 without one), where the column of that name in
    `like` is text or, without such a column, the schema has a format; numbers, such as 20240131,
    where `like` has these.
    """
    found = (steps.astype(np.int64) * step_of(column)).astype("datetime64[us]")
    digits = 3 if step_of(column) == _MILLISECOND else 6
    kind = like.kind(column.name) if like is not None and column.name in like.names else ""
    if kind in _NUMBERS and column.format is not None and _DIGITS.fullmatch(column.format):
        texts = [written_time(when, column.format, digits) for when in found.tolist()]
        return np.array(texts).astype(_NUMBERS[kind])
    if not _is_text(column, like):
        return found
    pattern = column.format or ("%Y-%m-%d" if step_of(column) == _DAY else "%Y-%m-%dT%H:%M:%S.%f")
    return np.array([written_time(one, pattern, digits) for one in found.tolist()], dtype=object)


def _continuous_edges(column: Column, bins: int) -> Floats:
    low, high = float(column.low or 0.0), float(column.high or 0.0)
    if low == high:
        return np.array([low, high])
    with np.errstate(all="ignore"):
        edges = np.linspace(low, high, bins + 1)
        distinct = bool(np.isfinite(high - low) and (np.diff(edges) > 0).all())
    if not distinct:
        raise SchemaError(
            f"column {column.name!r}: float64 cannot hold {bins} bins between {low!r} and "
            f"{high!r}; use fewer bins or other bounds"
        )
    return edges


def _even(low: float, stop: float, bins: int, *, whole: bool) -> Edges:
    if not whole:
        return np.linspace(low, stop, bins + 1)
    first, count = int(low), int(stop) - int(low)
    used = min(bins, count)
    return np.array([first - (-i * count // used) for i in range(used + 1)], dtype=np.int64)


def _whole(column: Column, bound: object) -> int:
    if column.kind == "integer":
        return int(str(bound))
    when = np.datetime64(datetime.fromisoformat(str(bound)), "us")
    return int(when.astype(np.int64)) // step_of(column)


def step_of(column: Column) -> int:
    """Return the microseconds of a datetime column's step, by its resolution.

    A column that declares none has that of its format: what the format writes at least. Without a
    format bounds decide: dates are days, times are seconds, and fractions are milliseconds, if they
    have three digits, or microseconds.

    Example:
        >>> from siloweave.tables.schema import Column
        >>> public = Column("seen", "datetime", low="2024-01-01", high="2024-12-31")
        >>> step_of(public) // 1_000_000
        86400
        >>> clock = Column("seen", "datetime", format="%d.%m.%Y %H:%M", low="2024-01-01")
        >>> step_of(clock) // 1_000_000
        60
    """
    if column.resolution is not None:
        return RESOLUTIONS[column.resolution]
    written = None if column.format is None else RESOLUTIONS[resolution_of(column.format)]
    if written is not None and written != _MICROSECOND:
        return written
    bounds = (str(column.low), str(column.high))
    fractions = [len(bound.partition(".")[2]) for bound in bounds]
    if max(fractions) == 3:
        return _MILLISECOND
    if written is not None or max(fractions) > 0:
        return _MICROSECOND
    return _DAY if all(map(is_date, bounds)) else _SECOND


def has_implied_days(column: Column) -> bool:
    """Whether a datetime column has days for no other reason than that its bounds are dates.

    A time of day has no place in it then: whoever wrote dates as public bounds may not have known
    that it would be dropped.
    """
    return column.resolution is None and column.format is None and step_of(column) == _DAY


def coarser_step(one: Column, other: Column) -> int:
    """Return the step at which two columns are compared, in microseconds; 1 for numbers.

    It is that of the coarser one: a date has no time of day, so 10:27 is not after its own day.
    Where the finer step does not divide it, as 10 minutes and 15, it is the shortest that both
    divide.

    Example:
        >>> from siloweave.tables.schema import Column
        >>> came = Column("came", "datetime", resolution="10 minutes")
        >>> left = Column("left", "datetime", resolution="15 minutes")
        >>> coarser_step(came, left) // 60_000_000
        30
    """
    if one.kind != "datetime":
        return 1
    return lcm(step_of(one), step_of(other))


def spike_bins(column: Column, edges: Edges, weights: Floats) -> dict[int, float]:
    """Return narrow bins that most likely hold one value alone, and that value.

    Counts do not say where in its bin a value lies, but 0 and the bounds are where columns have
    spikes: unused amounts, and numbers that were cut off. Such a bin holds 2 % of all rows or more,
    and several times as many as its neighbours. Wide bins, and bins of single values, are not
    spikes. Weights are one count per code, 0 or more; edges are those of its bins.
    """
    size, last = len(edges) - 1, last_of(column)
    if size < _FINE:
        return {}
    if column.kind != "continuous" and int(edges[-1] - edges[0]) == size:
        return {}
    found: dict[int, float] = {}
    known = [edges[0].item(), last] if column.kind == "datetime" else [0, edges[0].item(), last]
    for value in known:
        place = int(np.searchsorted(edges[1:-1], value, side="right"))
        neighbours = [weights[i] for i in (place - 1, place + 1) if 0 <= i < size]
        heavy = weights[place] >= max(SPIKE_SHARE * float(weights.sum()), _ALONE * max(neighbours))
        if edges[0] <= value <= last and heavy:
            found.setdefault(place, value)
    return found


def without_spikes(column: Column, weights: Floats, spikes: Mapping[int, float]) -> Floats:
    """Return counts of a column's bins without its spikes and missing values.

    A bin with a spike is taken to hold as many other rows as a neighbour does.
    """
    bins = weights[: len(weights) - column.missing].astype(np.float64)
    for place in spikes:
        bins[place] = min(bins[i] for i in (place - 1, place + 1) if 0 <= i < len(bins))
    return bins


def new_densities(edges: Floats, weights: Floats, atol: float = 0.0) -> NDArray[np.bool_]:
    """Whether each bin begins another density of rows than its left neighbour has."""
    density = weights / np.diff(edges)
    return np.append(True, ~np.isclose(density[1:], density[:-1], rtol=1e-9, atol=atol))


def cuts_of(
    column: Column, edges: Edges, weights: Floats, bins: int, *, exact: bool = False
) -> Cuts:
    """Cut a column into bins, of which the heaviest with several values is as light as can be.

    0 and the bounds get a bin of their own where they are spikes (`spike_bins`), and so does any
    single bin of `weights` that is heavier than others are together. Weights are counts, 0 or more,
    of bins with these edges, and of missing values where the column may have some. If `exact`, a
    column of at most twice as many values has a bin for each of them.
    """
    first, last, unit = _values(column)
    if exact and last - first < 2 * bins:
        values = np.arange(first + 1, last + 1)
        return Cuts(tuple((values if unit is None else values / unit).tolist()))
    for spikes in (spike_bins(column, edges, weights), {}):  # which may have no room
        if (starts := _fitting(column, edges, weights, spikes, bins)) is not None:
            break
    return Cuts(starts or (), *_knots(edges, without_spikes(column, weights, spikes)))


def value_count(column: Column) -> float:
    """How many values a coded column may have; endless without bounds, or decimals."""
    if column.kind not in BINNED:
        return len(column.options)
    if column.low is None or column.high is None:
        return np.inf
    first, last, _ = _values(column)
    return last - first + 1


def bin_count(column: Column, bins: int) -> int:
    """How many bins `cuts_of` makes at most if it is to be exact."""
    count = value_count(column)
    return bins if count > 2 * bins else int(count)


def _values(column: Column) -> tuple[float, float, float | None]:
    """First and last value in units, and how many of these are 1; endless without decimals."""
    if column.kind != "continuous":
        return _whole(column, column.low), int(last_of(column)), None
    if column.decimals is None:
        return 0.0, np.inf, 1.0
    unit = 10.0**column.decimals
    low, high = float(column.low or 0.0), float(column.high or 0.0)
    return float(_multiples(low, unit, np.ceil)), float(_multiples(high, unit, np.floor)), unit


def _fitting(
    column: Column, edges: Edges, weights: Floats, spikes: Mapping[int, float], bins: int
) -> tuple[int | float, ...] | None:
    """Where bins begin but the first; None if there are more than wanted however they are cut."""
    known = weights[: len(edges) - 1]
    low, high = 0.0, float(known.sum())
    found = _starts(column, edges, known, spikes, high)
    if len(found) >= bins:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        tried = _starts(column, edges, known, spikes, middle)
        if len(tried) < bins:
            high, found = middle, tried
        else:
            low = middle
    return found


def _starts(
    column: Column, edges: Edges, weights: Floats, spikes: Mapping[int, float], most: float
) -> tuple[int | float, ...]:
    """Beginnings of bins of no more than `most` rows, single values and narrow bins excepted."""
    found = {
        edges[i].item()
        for i in _groups(weights.tolist(), spikes, most)
        if i not in spikes and i - 1 not in spikes
    }
    for value in spikes.values():
        found |= {value, above(value).item() if column.kind == "continuous" else value + 1}
    return tuple(sorted(value for value in found if edges[0] < value <= last_of(column)))


def _groups(weights: list[float], alone: Collection[int], most: float) -> list[int]:
    """Where groups of bins begin, from left to right: each takes what it can."""
    starts, held, single = [0], 0.0, False
    for i, weight in enumerate(weights):
        before, single = single, i in alone or weight >= most
        if i and (single or before or held + weight > most):
            starts.append(i)
            held = 0.0
        held += weight
    return starts


def _knots(edges: Edges, weights: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The distribution function of bins in which rows lie evenly; like neighbours are one bin."""
    places = edges.astype(np.float64)
    filled = weights + max(float(weights.sum()), 1.0) * _EMPTY / len(weights)
    bends = np.append(new_densities(places, filled, 1e-8), True)
    levels = np.concatenate([[0.0], np.cumsum(filled) / filled.sum()])
    return tuple(places[bends].tolist()), tuple(levels[bends].tolist())
