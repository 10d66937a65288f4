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
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import SchemaError
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.column import LOW, Column
from siloweave.tables.decimals import ERROR
from siloweave.tables.forms import RESOLUTIONS, number_form, resolution_of, written_time
from siloweave.tables.parsing import UNITS
from siloweave.tables.table import Table

Edges = Ints | Floats
"""Bin edges or values: whole (integers, steps of datetimes) or not."""
SPIKE_SHARE = 0.02
"""Share of the rows from which a value, or a narrow bin, is a spike."""
# In microseconds.
_DAY = 86_400_000_000
_SECOND = 1_000_000
_MILLISECOND = 1_000
_MICROSECOND = 1
_NO_SPIKES: Mapping[int, float] = MappingProxyType({})
_NUMBERS: Mapping[str, Any] = MappingProxyType(
    {"whole numbers": np.int64, "numbers": np.float64}
)
# Formats of datetimes that are numbers.
_DIGITS = re.compile(r"%[Yy](%[mdjHMS])*(\.?%f)?0*")
# So many bins are narrow enough for one to hold one value alone.
_FINE = 1024
# A bin of one value alone holds so many times what its neighbours do.
_ALONE = 4.0
# Bins between a number and its double, where bins are narrower near 0.
_OCTAVE = 64
# Up to so many units (or a number below twice as many) each value has a bin.
_SINGLE = 1024
# Bins are not narrower near 0 where an equally wide one has so few values.
_SEVERAL = 4
# Numbers without a unit are divided into so many octaves.
_OCTAVES = 20
# So often is the range halved in which the heaviest bin is sought.
_HALVINGS = 40
# Numbers of units up to here are float64.
_EXACT = 2.0**53
# Empty bins are taken to hold this share of the rows together.
_EMPTY = 1e-9


# Zeros that get a bin of their own in a picture, as a share of all numbers.
_MANY_ZEROS = 0.1


class Cuts(msgspec.Struct, frozen=True):
    """The bins into which a column is cut, and how rows lie inside them; datetimes in steps.

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
        has_rising_values = (np.diff(self.values) > 0).all()
        is_rising = has_rising_values and (np.diff(self.levels) > 0).all()
        if len(self.values) != len(self.levels) or not is_rising:
            raise SchemaError(
                f"cuts: {len(self.values)} values and {len(self.levels)} levels are no "
                "distribution function; give as many of both, ascending"
            )


def edges_of(column: Column, bins: int) -> Edges:
    """Return the edges of at most so many bins of equal width; datetimes in steps.

    Whole values never get more bins than there are values. Bin c holds ``edges[c] <= value <
    edges[c + 1]``; the last bin of a continuous column holds its end too. SchemaError if float64
    cannot distinguish the edges.
    """
    if column.is_continuous:
        return _continuous_edges(column, bins)
    first = _whole(column, column.low)
    stop = int(last_of(column)) + 1
    return _even(first, stop, bins, whole=True)


def octaves(column: Column, bins: int) -> list[Edges]:
    """Return the edges of bins that get narrower near 0, with one array per run of equal widths.

    Amounts mostly lie far below the bound that is declared for them, and rows share small ones. So
    no bin is wider than one of `bins` equally wide ones, there are 64 or more between any number
    and its double, and every value up to 1,024 units has its own, where the unit is 1 or that of
    the last decimal. Without a unit numbers are divided down to a millionth of the bound. Only
    bounds and decimals decide, by halves and divisions, so that all parties have the same bins.

    An array ends where the next begins. The list is empty, and bins are to be equally wide, for
    datetimes, for at most four values in a bin, for bounds that are equally far from 0 (within a
    factor of 64 for 4096 bins), and for numbers without a unit on both sides of 0: mostly scores.

    Example:
        >>> from siloweave.tables.column import Column
        >>> amount = Column("amount", "integer", low=0, high=999_999)
        >>> [(len(e) - 1, int(e[0]), int(e[-1])) for e in octaves(amount, 256)][:3]
        [(1954, 0, 1954), (64, 1954, 3907), (64, 3907, 7813)]
    """
    if column.is_datetime or value_count(column) <= _SEVERAL * bins:
        return []
    low, stop = edges_of(column, 1).tolist()
    is_whole = column.is_whole
    unit = _unit(column)
    farthest = max(-low, stop)
    nearest = max(low, -stop)  # below 0 where 0 is inside
    is_two_sided = low < 0 < stop
    if is_two_sided and not unit:
        return []
    if farthest <= bins // _OCTAVE * nearest:
        return []

    even_width = (stop - low) / bins
    least = _SINGLE * unit or farthest / 2**_OCTAVES
    sides = []
    for sign, near, far in ((-1, -stop, -low), (1, low, stop)):
        # From the far end towards 0: each octave begins at half of where it ends.
        side = []
        near = max(near, 0)
        end = far
        while end > near:
            half = -(-end // 2) if is_whole else end / 2
            start = half if half > max(near, least) else near
            width = even_width if end > 2 * least else unit or even_width
            count = max(_OCTAVE, ceil((end - start) / width))
            first, last = sorted((sign * start, sign * end))
            side.append(_even(first, last, count, whole=is_whole))
            end = start
        # All arrays ascend: those below 0 are so already, those above were made from the end.
        sides += side[::-sign]
    return sides


def _unit(column: Column) -> float:
    """Return the number of which a column's values are multiples; 0 for floats of any decimals."""
    if column.is_whole:
        return 1.0
    return 0.0 if column.decimals is None else 10.0**-column.decimals


def octave_starts(column: Column, bins: int) -> tuple[int | float, ...]:
    """Return where the bins of `octaves` begin, apart from the first."""
    starts = []
    for edges in octaves(column, bins):
        starts += edges[:-1].tolist()
    return tuple(starts[1:])


def cut_edges(column: Column, cuts: Cuts) -> Edges:
    """Return the edges of bins that begin where cuts say, as `edges_of` does.

    The last bin of a continuum that is cut at its upper bound is that value. SchemaError if cuts do
    not rise from above the lower bound to the upper one at most, or a whole column's are not whole.
    """
    ends = edges_of(column, 1)
    starts = np.asarray(cuts.starts, dtype=ends.dtype)
    edges = np.concatenate([ends[:1], starts, ends[1:]])
    # The last bin may be a single value, whose edges are equal.
    has_rising_starts = bool((np.diff(edges[:-1]) > 0).all())
    is_rising = has_rising_starts and edges[-2] <= last_of(column)
    if not is_rising or edges[1:-1].tolist() != list(cuts.starts):
        whole = "" if column.is_continuous else "whole numbers that "
        raise SchemaError(
            f"cuts: those of column {column.name!r} must be {whole}rise from above its low, "
            f"{column.low!r}, to its high, {column.high!r}, at most"
        )
    return edges


def growing_starts(
    values: Edges, low: float, high: float, bins: int, *, whole: bool
) -> list[int | float]:
    """Return where bins that grow by a factor begin, apart from the first; for pictures.

    Such bins are for skewed numbers: none is below 0, most of those above 0 differ from the largest
    by a factor of 10 or more, and nine tenths of all are in the first tenth from `low` to `high`.
    The result is empty for other numbers. The first bin holds 0.

    Example:
        >>> growing_starts(np.array([0] * 50 + [1, 20, 300] * 10 + [9000]), 0, 9999, 4, whole=True)
        [1, 10, 100, 1000]
    """
    positive = values[values > 0]
    if low < 0 or (whole and high - low < 2 * bins) or len(positive) < 20:
        return []
    if np.quantile(values, 0.9) > low + (high - low) / 10:
        return []
    smallest = np.quantile(positive, 0.01)
    first = 1.0 if whole else 10.0 ** np.floor(np.log10(smallest))
    first = max(first, low)
    if np.median(positive) * 10 > high or not 0 < first * 10 <= high:
        return []
    starts = np.geomspace(first, high, bins + 1)[:-1]
    if whole:
        # A hair lower, so that rounding makes no 10.000000000000002 an 11.
        starts = np.unique(np.ceil(starts - 1e-9)).astype(np.int64)
    inner: list[int | float] = starts[(starts > low) & (starts < high)].tolist()
    return inner


def zero_apart(edges: Floats, values: Edges, *, whole: bool) -> Floats:
    """Return edges with a bin for 0 alone, if a tenth or more of the numbers are 0; for pictures.

    Many zeros in a bin with other numbers look like many small numbers.

    Example:
        >>> values = np.array([0.0] * 50 + [30.0] * 50)
        >>> zero_apart(np.array([0.0, 25.0, 50.0]), values, whole=True).tolist()
        [0.0, 1.0, 25.0, 50.0]
    """
    is_inside = bool(edges[0] <= 0 < edges[-1])
    if not is_inside or not len(values) or np.mean(values == 0) < _MANY_ZEROS:
        return edges
    end = 1.0 if whole else float(above(0.0))
    apart: Floats = np.union1d(edges, [0.0, end])
    return apart


def above(value: Floats | float) -> Floats:
    """Return the end of a bin that begins at a number of a continuum and holds nothing else.

    Above 0 it is the least normal number: some libraries take smaller ones for 0.
    """
    following: Floats = np.nextafter(value, np.inf)
    smallest = np.nextafter(0.0, np.inf)
    return np.where(following == smallest, np.finfo(np.float64).tiny, following)


def last_of(column: Column) -> int | float:
    """Return a column's largest value, inclusive; datetimes in steps."""
    if column.is_continuous:
        return float(column.high or 0.0)
    return last_at(column, column.high)


def rounding_error(low: float, high: float) -> float:
    """Return by how much a number between two bounds is off, at most, that was computed.

    Example:
        >>> 3 * 1.1 <= 3.3, 3 * 1.1 <= 3.3 + rounding_error(0.0, 3.3)
        (False, True)
    """
    return ERROR * max(abs(low), abs(high))


def last_at(column: Column, value: object) -> int | float:
    """Return the largest number that an upper bound of a column includes; datetimes in steps.

    A bound that is a date includes that whole day.

    Example:
        >>> from siloweave.tables.column import Column
        >>> visit = Column("visit", "datetime", resolution="hour")
        >>> number_at(visit, "1970-01-02"), last_at(visit, "1970-01-02")
        (24, 47)
    """
    number = number_at(column, value)
    if column.is_datetime and is_date(value):
        return int(number) + _DAY // step_of(column) - 1
    return number


def is_date(bound: object) -> bool:
    """Return whether a bound of a column of datetimes is a day, without a time."""
    return len(str(bound)) <= len("2024-01-31")


def number_at(column: Column, value: object) -> int | float:
    """Convert a value of a binned column to a number; datetimes (ISO-8601 text) are in steps."""
    return float(str(value)) if column.is_continuous else _whole(column, value)


def fallback_of(column: Column) -> int | float:
    """Return the number of a column's declared fallback, which stands for cells without a place.

    It is the lower bound where the fallback is "low", and 0 as long as that bound is open.
    """
    if column.fallback != LOW:
        return number_at(column, column.fallback)
    return 0 if column.low is None else number_at(column, column.low)


def draw(
    column: Column,
    edges: Edges,
    codes: Ints,
    random: np.random.Generator,
    spikes: Mapping[int, float] = _NO_SPIKES,
    cuts: Cuts | None = None,
) -> Edges:
    """Draw one value inside each row's bin: uniformly, or as its cuts say.

    A value is whole where the column is, and falls into its bin again. Where the column declares
    decimals it is one of the numbers with so many; in a bin without any, the nearest one. `spikes`
    are bins that hold one value alone, and that value.
    """
    reals = edges.astype(np.float64)
    low = reals[codes]
    high = reals[codes + 1]
    placed = None
    if cuts is not None and cuts.values:
        knots = np.array(cuts.values)
        levels = np.array(cuts.levels)
        first = np.interp(low, knots, levels)
        last = np.interp(high, knots, levels)
        drawn_levels = first + (last - first) * random.random(len(codes))
        placed = np.interp(drawn_levels, levels, knots)

    values: Edges
    if column.is_continuous:
        if placed is None:
            placed = low + (high - low) * random.random(len(codes))
        # The last bin holds its end, too.
        is_last_bin = codes + 2 == len(edges)
        largest = np.where(is_last_bin, high, np.nextafter(high, -np.inf))
        is_single = high <= above(low)
        values = np.where(is_single, low, np.clip(placed, low, largest))
        values = with_decimals(column, values, low, largest)
    else:
        whole_edges = edges.astype(np.int64)
        start = whole_edges[codes]
        stop = whole_edges[codes + 1]
        if placed is None:
            values = random.integers(start, stop)
        else:
            values = np.clip(np.floor(placed).astype(np.int64), start, stop - 1)
    for place, value in spikes.items():
        values[codes == place] = value
    return values


def log_density(
    column: Column, edges: Edges, codes: Ints, values: Edges, cuts: Cuts | None = None
) -> Floats:
    """Return the log-density with which `draw` puts each value into its row's bin.

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
        >>> from siloweave.tables.column import Column
        >>> age = Column("age", "integer", low=0, high=99)
        >>> density = log_density(age, edges_of(age, 10), np.array([0]), np.array([5]))
        >>> np.exp(density).round(9).tolist()
        [0.1]
    """
    reals = edges.astype(np.float64)
    low = reals[codes]
    high = reals[codes + 1]
    is_whole = not column.is_continuous
    is_single = high - low <= 1.0 if is_whole else high <= above(low)
    width = np.where(is_single, 1.0, high - low)
    if cuts is None or not cuts.values:
        return -np.log(width)

    # Levels rise by the share of a bin's rows that lie between two places.
    knots = np.array(cuts.values)
    levels = np.array(cuts.levels)
    level_at_low = np.interp(low, knots, levels)
    bin_share = np.interp(high, knots, levels) - level_at_low
    if is_whole:
        numbers = values.astype(np.float64)
        level = np.interp(numbers, knots, levels)
        share = np.interp(numbers + 1.0, knots, levels) - level
    else:
        piece = np.searchsorted(knots, values, side="right") - 1
        piece = np.clip(piece, 0, len(knots) - 2)
        share = (np.diff(levels) / np.diff(knots))[piece]
    is_single |= bin_share <= 0.0
    ones = np.ones_like(bin_share)
    ratio = np.divide(share, bin_share, out=ones, where=~is_single)
    return np.asarray(np.log(np.where(is_single, 1.0 / width, ratio)))


def bin_means(column: Column, edges: Edges, cuts: Cuts | None = None) -> Floats:
    """Return the mean of the values that `draw` puts into each bin; datetimes in steps.

    Example:
        >>> from siloweave.tables.column import Column
        >>> age = Column("age", "integer", low=0, high=99)
        >>> bin_means(age, edges_of(age, 10)).tolist()[:2]
        [4.5, 14.5]
    """
    reals = edges.astype(np.float64)
    low = reals[:-1]
    high = reals[1:]
    means: Floats = (low + high) / 2.0
    if cuts is not None and cuts.values:
        # A bin's mean lies as far below its end as its rows do on average: the area under the
        # distribution function, above its level at the bin's start, by the bin's share.
        knots = np.array(cuts.values)
        levels = np.array(cuts.levels)
        places = np.union1d(knots, reals)
        heights = np.interp(places, knots, levels)
        trapezoids = np.diff(places) * (heights[1:] + heights[:-1]) / 2.0
        area = np.concatenate([[0.0], np.cumsum(trapezoids)])
        bin_area = np.diff(area[np.searchsorted(places, reals)])
        first = np.interp(low, knots, levels)
        bin_share = np.interp(high, knots, levels) - first
        distance = np.divide(
            bin_area - first * (high - low),
            bin_share,
            out=(high - low) / 2.0,
            where=bin_share > 0,
        )
        means = high - distance
    if not column.is_continuous:
        return means - 0.5  # a draw is cut to the whole number below
    return np.where(high <= above(low), low, means)


def with_decimals(
    column: Column, values: Edges, low: Floats | float, high: Floats | float
) -> Edges:
    """Round numbers of a continuum to the decimals that the column declares, if any.

    A number stays between its `low` and `high` where there is one with so many decimals, and
    always within the column's bounds, where these have no more decimals than it.
    """
    if column.decimals is None or not column.is_continuous:
        return values
    values = values.astype(np.float64)
    unit = 10.0**column.decimals

    # Rows first, then the column, whose bounds no value may pass.
    first = _multiples(low, unit, np.ceil)
    last = _multiples(high, unit, np.floor)
    steps = np.rint(values * unit)
    steps = np.where(first <= last, np.clip(steps, first, last), steps)
    lowest = _multiples(float(column.low or 0.0), unit, np.ceil)
    highest = _multiples(float(column.high or 0.0), unit, np.floor)
    if lowest <= highest:
        steps = np.clip(steps, lowest, highest)

    rounded: Floats = np.where(np.abs(steps) < _EXACT, steps / unit, values)
    return rounded


def _multiples(
    value: Floats | float, unit: float, towards: Callable[[Any], Any]
) -> Any:
    """Convert values to units, rounding those that are not exact multiples.

    `towards` is the direction, as a function.
    """
    exact = np.asarray(value) * unit
    nearest = np.rint(exact)
    return np.where(nearest / unit == value, nearest, towards(exact))


def as_written(column: Column, values: Edges, like: Table | None) -> Any:
    """Return a binned column's values as the table writes them: numbers, datetimes or text.

    Values of datetimes are given in steps. They are text, as the column's format says, where the
    column of that name in `like` is text or, without such a column, the schema has a format. Days
    of whole numbers stay whole numbers. Numbers of a unit of time are durations where `like` has
    these, and numbers elsewhere.
    """
    if column.is_datetime:
        return as_datetimes(column, values, like)
    if column.format in UNITS:
        if like is None or column.name not in like.names:
            return values
        if like.unit(column.name) is None:
            return values
        microseconds = values * float(UNITS[column.format])
        return np.rint(microseconds).astype("timedelta64[us]")
    if column.format is None or not _is_text(column, like):
        return values
    return number_form(column.format).written(values, column.decimals, column.padded)


def _is_text(column: Column, like: Table | None) -> bool:
    """Return whether a column's values are text, in a table of this kind or by its format."""
    if like is not None and column.name in like.names:
        return like.kind(column.name) == "text"
    return column.format is not None


def as_datetimes(column: Column, steps: Edges, like: Table | None) -> NDArray[Any]:
    """Turn steps since 1970, one per row, into datetime64[us] or text.

    It is text, by the column's format (ISO-8601 without one), where the column of that name in
    `like` is text or, without such a column, the schema has a format; numbers, such as 20240131,
    where `like` has these.
    """
    step = step_of(column)
    datetimes = (steps.astype(np.int64) * step).astype("datetime64[us]")
    digits = 3 if step == _MILLISECOND else 6
    kind = ""
    if like is not None and column.name in like.names:
        kind = like.kind(column.name)
    form = column.format
    if kind in _NUMBERS and form is not None and _DIGITS.fullmatch(form):
        texts = [written_time(when, form, digits) for when in datetimes.tolist()]
        return np.array(texts).astype(_NUMBERS[kind])
    if not _is_text(column, like):
        return datetimes
    iso = "%Y-%m-%dT%H:%M:%S.%f"
    if step % _DAY == 0:
        iso = "%Y-%m-%d"
    elif step % _SECOND == 0:
        iso = "%Y-%m-%dT%H:%M:%S"
    pattern = form or iso
    texts = [written_time(when, pattern, digits) for when in datetimes.tolist()]
    return np.array(texts, dtype=object)


def _continuous_edges(column: Column, bins: int) -> Floats:
    """Return the edges of equally wide bins of a continuum, or raise SchemaError."""
    low = float(column.low or 0.0)
    high = float(column.high or 0.0)
    if low == high:
        return np.array([low, high])
    # Bounds near the ends of float64 overflow; narrow bins of large numbers have equal edges.
    with np.errstate(all="ignore"):
        edges = np.linspace(low, high, bins + 1)
        is_distinct = bool(np.isfinite(high - low) and (np.diff(edges) > 0).all())
    if not is_distinct:
        raise SchemaError(
            f"column {column.name!r}: float64 cannot hold {bins} bins between {low!r} and "
            f"{high!r}; use fewer bins or other bounds"
        )
    return edges


def _even(low: float, stop: float, bins: int, *, whole: bool) -> Edges:
    """Return the edges of at most so many bins of equal width, or of whole numbers nearly so."""
    if not whole:
        return np.linspace(low, stop, bins + 1)
    first = int(low)
    count = int(stop) - int(low)
    num_bins = min(bins, count)
    # Integers of Python: a product of count and place may be beyond int64.
    edges = [first - (-i * count // num_bins) for i in range(num_bins + 1)]
    return np.array(edges, dtype=np.int64)


def _whole(column: Column, bound: object) -> int:
    """Return a bound of an integer column as an integer; of datetimes in steps."""
    if column.is_whole:
        return int(str(bound))
    if not column.is_datetime:
        raise NotImplementedError(
            f"bounds of kind {column.kind!r} are no whole numbers"
        )
    when = np.datetime64(datetime.fromisoformat(str(bound)), "us")
    return int(when.astype(np.int64)) // step_of(column)


def step_of(column: Column) -> int:
    """Return the step of a datetime column, by its resolution, in microseconds.

    A column that declares none has that of its format: what the format writes at least. Without a
    format bounds decide: dates are days, times are seconds, and fractions are milliseconds, if they
    have three digits, or microseconds.

    Example:
        >>> from siloweave.tables.column import Column
        >>> public = Column("visit", "datetime", low="2024-01-01", high="2024-12-31")
        >>> step_of(public) // 1_000_000
        86400
        >>> clock = Column("visit", "datetime", format="%d.%m.%Y %H:%M", low="2024-01-01")
        >>> step_of(clock) // 1_000_000
        60
    """
    if column.resolution is not None:
        return RESOLUTIONS[column.resolution]
    written = None
    if column.format is not None:
        written = RESOLUTIONS[resolution_of(column.format)]
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
    """Return whether datetimes have days only because their bounds are dates.

    A time of day has no place in it then: whoever wrote dates as public bounds may not have known
    that it would be dropped.
    """
    is_open = column.resolution is None and column.format is None
    return is_open and step_of(column) == _DAY


def coarser_step(first: Column, second: Column) -> int:
    """Return the step in which two columns are compared, in microseconds; 1 for numbers.

    It is that of the coarser one: a date has no time of day, so 10:27 is not after its own day.
    Where the finer step does not divide it, as 10 minutes and 15, it is the shortest that both
    divide.

    Example:
        >>> from siloweave.tables.column import Column
        >>> admission = Column("admission", "datetime", resolution="10 minutes")
        >>> discharge = Column("discharge", "datetime", resolution="15 minutes")
        >>> coarser_step(admission, discharge) // 60_000_000
        30
    """
    if not first.is_datetime:
        return 1
    return lcm(step_of(first), step_of(second))


def spike_bins(column: Column, edges: Edges, weights: Floats) -> dict[int, float]:
    """Return the narrow bins that most likely hold a single value, and that value.

    Counts do not say where in its bin a value lies, but 0 and the bounds are where columns have
    spikes: unused amounts, and numbers that were cut off. Such a bin holds 2 % of all rows or more,
    and several times as many as its neighbours. Wide bins, and bins of single values, are not
    spikes. Weights are one count per code, 0 or more; edges are those of its bins.
    """
    size = len(edges) - 1
    last = last_of(column)
    if size < _FINE:
        return {}
    if not column.is_continuous and int(edges[-1] - edges[0]) == size:
        return {}

    spikes: dict[int, float] = {}
    candidates = [edges[0].item(), last]
    if not column.is_datetime:
        candidates.insert(0, 0)
    for value in candidates:
        place = int(np.searchsorted(edges[1:-1], value, side="right"))
        neighbours = [weights[i] for i in (place - 1, place + 1) if 0 <= i < size]
        least = max(SPIKE_SHARE * float(weights.sum()), _ALONE * max(neighbours))
        is_heavy = weights[place] >= least
        if edges[0] <= value <= last and is_heavy:
            spikes.setdefault(place, value)
    return spikes


def without_spikes(
    column: Column, weights: Floats, spikes: Mapping[int, float]
) -> Floats:
    """Remove spikes and missing values from the counts of a column's bins.

    A bin with a spike is taken to hold as many other rows as a neighbour does.
    """
    bins = weights[: len(weights) - column.missing].astype(np.float64)
    for place in spikes:
        neighbours = [i for i in (place - 1, place + 1) if 0 <= i < len(bins)]
        bins[place] = min(bins[neighbours])
    return bins


def new_densities(edges: Floats, weights: Floats, atol: float = 0.0) -> Bools:
    """Return whether the density of rows in each bin differs from that in its left neighbour."""
    density = weights / np.diff(edges)
    is_like_left = np.isclose(density[1:], density[:-1], rtol=1e-9, atol=atol)
    return np.append(True, ~is_like_left)


def cuts_of(
    column: Column, edges: Edges, weights: Floats, bins: int, *, exact: bool = False
) -> Cuts:
    """Cut a column into bins so that the heaviest bin with several values is as light as possible.

    0 and the bounds get a bin of their own where they are spikes (`spike_bins`), and so does any
    single bin of `weights` that is heavier than others are together. Weights are counts, 0 or more,
    of bins with these edges, and of missing values where the column may have some. If `exact`, a
    column of at most twice as many values has a bin for each of them.
    """
    first, last, unit = _values(column)
    if exact and last - first < 2 * bins:
        values = np.arange(first + 1, last + 1)
        starts = values if unit is None else values / unit
        return Cuts(tuple(starts.tolist()))

    # Bins for spikes may have no room; then there are none.
    spikes = spike_bins(column, edges, weights)
    fitting = _fitting(column, edges, weights, spikes, bins)
    if fitting is None:
        spikes = {}
        fitting = _fitting(column, edges, weights, spikes, bins)
    smooth = without_spikes(column, weights, spikes)
    knots, levels = _knots(edges, smooth)
    return Cuts(fitting or (), knots, levels)


def value_count(column: Column) -> float:
    """Count the values that a column may have; infinite without bounds, or without decimals."""
    if not column.is_binned:
        return len(column.options)
    if column.low is None or column.high is None:
        return np.inf
    first, last, _ = _values(column)
    return last - first + 1


def bin_count(column: Column, bins: int) -> int:
    """Return the most bins into which `cuts_of` cuts a column if it is to be exact."""
    count = value_count(column)
    return bins if count > 2 * bins else int(count)


def _values(column: Column) -> tuple[float, float, float | None]:
    """Return a column's first and last value in units, and how many units make 1.

    Whole numbers and steps are units themselves, with None for that number. Without decimals there
    is no unit, and the last value is infinite.
    """
    if not column.is_continuous:
        return _whole(column, column.low), int(last_of(column)), None
    if column.decimals is None:
        return 0.0, np.inf, 1.0
    unit = 10.0**column.decimals
    first = _multiples(float(column.low or 0.0), unit, np.ceil)
    last = _multiples(float(column.high or 0.0), unit, np.floor)
    return float(first), float(last), unit


def _fitting(
    column: Column,
    edges: Edges,
    weights: Floats,
    spikes: Mapping[int, float],
    bins: int,
) -> tuple[int | float, ...] | None:
    """Return where bins begin, apart from the first; None if any way to cut gives too many."""
    counts = weights[: len(edges) - 1]
    low = 0.0
    high = float(counts.sum())
    fitting = _starts(column, edges, counts, spikes, high)
    if len(fitting) >= bins:
        return None
    # Halve the range in which the heaviest bin lies: the lighter it is, the more bins there are.
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        starts = _starts(column, edges, counts, spikes, middle)
        if len(starts) < bins:
            high = middle
            fitting = starts
        else:
            low = middle
    return fitting


def _starts(
    column: Column,
    edges: Edges,
    weights: Floats,
    spikes: Mapping[int, float],
    most: float,
) -> tuple[int | float, ...]:
    """Return where bins of at most `most` rows begin; single values and narrow bins stay apart."""
    groups = _groups(weights.tolist(), spikes, most)
    # The bin of a spike, and the one after it, begin at the spike's value instead.
    ordinary = [i for i in groups if i not in spikes and i - 1 not in spikes]
    starts = {edges[i].item() for i in ordinary}
    for value in spikes.values():
        following = above(value).item() if column.is_continuous else value + 1
        starts |= {value, following}
    last = last_of(column)
    return tuple(sorted(value for value in starts if edges[0] < value <= last))


def _groups(weights: list[float], alone: Collection[int], most: float) -> list[int]:
    """Group bins from left to right, each as large as it may be; return where groups begin."""
    starts = [0]
    group_weight = 0.0
    is_single = False
    for i, weight in enumerate(weights):
        follows_single = is_single
        is_single = i in alone or weight >= most
        is_full = group_weight + weight > most
        if i and (is_single or follows_single or is_full):
            starts.append(i)
            group_weight = 0.0
        group_weight += weight
    return starts


def _knots(
    edges: Edges, weights: Floats
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the distribution function of bins with evenly spread rows, as knots and levels.

    Neighbours that hold as much are one bin.
    """
    places = edges.astype(np.float64)
    # A function that does not rise in empty bins could not be inverted.
    filled = weights + max(float(weights.sum()), 1.0) * _EMPTY / len(weights)
    is_knot = np.append(new_densities(places, filled, 1e-8), True)
    levels = np.concatenate([[0.0], np.cumsum(filled) / filled.sum()])
    return tuple(places[is_knot].tolist()), tuple(levels[is_knot].tolist())
