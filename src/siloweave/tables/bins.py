"""Equal-width bins between declared bounds, of numbers and of moments.

Datetimes are counted in steps since 1970: days, seconds or microseconds, as the column's bounds
and format tell, so that they are binned like whole numbers.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import SchemaError
from siloweave.tables.read import Table
from siloweave.tables.schema import Column

__all__ = [
    "BINNED",
    "Cuts",
    "Edges",
    "above",
    "as_moments",
    "cut_edges",
    "draw",
    "edges_of",
    "last_of",
    "numbers_of",
]

BINNED = ("integer", "continuous", "datetime")
"""Kinds of columns that are coded by bins."""
Edges = NDArray[np.int64] | NDArray[np.float64]
"""Bin edges or values: whole (integers, steps of datetimes) or not."""
_Reals = NDArray[np.float64]
_DAY, _SECOND, _MICROSECOND = 86_400_000_000, 1_000_000, 1
_NO_MARKS: Mapping[int, float] = MappingProxyType({})
_YEAR = re.compile("%(.)")
_CLOCK = ("%H", "%I", "%M", "%S", "%f", "%T", "%X", "%c", "%s", "%p")


class Cuts(msgspec.Struct, frozen=True):
    """Where a column is cut into bins, and how rows are taken to lie inside them.

    Args:
        starts: Where bins begin but the first; ascending, whole where the column is no continuum.
            Datetimes in steps, here and below.
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

    def between(self, low: _Reals, high: _Reals, uniform: _Reals) -> _Reals:
        """Place rows between bounds of their own, by uniform draws."""
        values, levels = np.array(self.values), np.array(self.levels)
        first, last = np.interp(low, values, levels), np.interp(high, values, levels)
        placed: _Reals = np.interp(first + (last - first) * uniform, levels, values)
        return placed


def edges_of(column: Column, bins: int) -> Edges:
    """Return a column's bin edges.

    Args:
        column: Integer, continuous or datetime, with both bounds.
        bins: At most this many bins; whole values never get more bins than there are values.

    Returns:
        Bin c holds ``edges[c] <= value < edges[c + 1]``; of a continuous column the last bin
        holds its end too. Datetimes in steps.

    Raises:
        SchemaError: When float64 cannot tell the edges apart.
    """
    if column.kind == "continuous":
        return _continuous_edges(column, bins)
    first, last = _whole(column, column.low), int(last_of(column))
    count = last - first + 1
    used = min(bins, count)
    return np.array([first - (-i * count // used) for i in range(used + 1)], dtype=np.int64)


def cut_edges(column: Column, cuts: Cuts) -> Edges:
    """Return the edges of bins that are cut where they are told to be.

    Args:
        column: Integer, continuous or datetime, with both bounds.
        cuts: Bins begin above the lower bound and at most at the upper one.

    Returns:
        As `edges_of`. The last bin of a continuum that is cut at its upper bound is that value.

    Raises:
        SchemaError: They do not, or begin where the column has no values.

    Example:
        >>> cut_edges(Column("age", "integer", low=0, high=99), Cuts((1, 18))).tolist()
        [0, 1, 18, 100]
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


def above(value: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return where a bin ends that holds one number of a continuum alone.

    Above 0 it is the least normal number: some libraries take smaller ones for 0.
    """
    nearest: NDArray[np.float64] = np.nextafter(value, np.inf)
    return np.where(nearest == np.nextafter(0.0, np.inf), np.finfo(np.float64).tiny, nearest)


def last_of(column: Column) -> int | float:
    """Return a column's largest value, inclusive; datetimes in steps."""
    if column.kind == "continuous":
        return float(column.high or 0.0)
    return _whole(column, column.high)


def numbers_of(column: Column, table: Table) -> tuple[Edges, NDArray[np.bool_]]:
    """Return a table's values of a binned column, and which are missing; datetimes in steps.

    Raises:
        SchemaError: When the values are of another type.
    """
    if column.kind == "integer":
        return table.integers(column.name)
    if column.kind == "continuous":
        return table.floats(column.name)
    microseconds, mask = table.moments(column.name, column.format)
    return microseconds // _step(column), mask


def draw(
    column: Column,
    edges: Edges,
    codes: NDArray[np.int64],
    random: np.random.Generator,
    marks: Mapping[int, float] = _NO_MARKS,
    cuts: Cuts | None = None,
) -> Edges:
    """Draw one value inside each bin: uniformly, or as its cuts say; whole where the column is.

    Args:
        column: Integer, continuous or datetime.
        edges: Its `edges_of` or `cut_edges`.
        codes: Bins, one per row.
        random: Source of the draws.
        marks: Bins that hold one value alone, and that value.
        cuts: How rows lie inside bins.

    Returns:
        One value per row, which falls into that bin again.
    """
    drawn: Edges
    placed = None
    if cuts is not None and cuts.values:
        reals = edges.astype(np.float64)
        placed = cuts.between(reals[codes], reals[codes + 1], random.random(len(codes)))
    if column.kind != "continuous":
        whole = edges.astype(np.int64)
        if placed is None:
            drawn = random.integers(whole[codes], whole[codes + 1])
        else:
            drawn = np.clip(np.floor(placed).astype(np.int64), whole[codes], whole[codes + 1] - 1)
    else:
        reals = edges.astype(np.float64)
        low, high = reals[codes], reals[codes + 1]
        inside = np.where(codes + 2 == len(edges), high, np.nextafter(high, -np.inf))
        if placed is None:
            placed = low + (high - low) * random.random(len(codes))
        drawn = np.where(high <= above(low), low, np.clip(placed, low, inside))
    for place, value in marks.items():
        drawn[codes == place] = value
    return drawn


def as_moments(
    column: Column, steps: Edges, like: Table | None
) -> NDArray[np.datetime64] | NDArray[np.object_]:
    """Turn steps into moments, or into text where the column is written as text.

    Args:
        column: A datetime column.
        steps: Steps since 1970, one per row.
        like: Its column of that name tells whether text is wanted; else the schema's format does.

    Returns:
        datetime64[us], or text by the column's format (ISO-8601 without one).
    """
    moments = (steps.astype(np.int64) * _step(column)).astype("datetime64[us]")
    text = column.format is not None
    if like is not None and column.name in like.names:
        text = like.kind(column.name) == "text"
    if not text:
        return moments
    written = np.empty(len(moments), dtype=object)
    items: list[datetime] = moments.tolist()
    pattern = column.format or ("%Y-%m-%d" if _step(column) == _DAY else "%Y-%m-%dT%H:%M:%S.%f")
    written[:] = [_text(item, pattern) for item in items]
    return written


def _text(moment: datetime, pattern: str) -> str:
    """A moment as `strftime` writes it, with the four digits of a year that `strptime` reads."""
    if moment.year < 1000:
        year = f"{moment.year:04d}"
        pattern = _YEAR.sub(lambda code: year if code[1] == "Y" else code[0], pattern)
    return moment.strftime(pattern)


def _continuous_edges(column: Column, bins: int) -> NDArray[np.float64]:
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


def _whole(column: Column, bound: object) -> int:
    if column.kind == "integer":
        return int(str(bound))
    moment = np.datetime64(datetime.fromisoformat(str(bound)), "us")
    return int(moment.astype(np.int64)) // _step(column)


def _step(column: Column) -> int:
    """Microseconds per step of a datetime column."""
    bounds = (str(column.low), str(column.high))
    dates = all(len(bound) <= 10 for bound in bounds)
    timeless = column.format is not None and not any(code in column.format for code in _CLOCK)
    if dates or timeless:
        return _DAY
    return _MICROSECOND if any("." in bound for bound in bounds) else _SECOND
