"""How a cell is read: by itself and by its declared column, by nothing else.

A privacy claim about rows begins at the file. If a cell's reading depended on other cells (on the
type that all of a column fit, on how most of them are spelled), one row more would change how every
other row is counted, and no noise covers that. So each function here maps the cells of a column one
by one, see `tables.parsing`; a column's declaration alone decides what a cell is.

**Guarantee**: under ``outside="move"`` reading is total: every possible cell has a place in the
column, so no row decides whether there is a run. Tables that differ by a row are read to values
that differ by that row. Under ``outside="refuse"`` (and without a word on it) a cell that does not
fit raises SchemaError, which one row may decide; the message has the number of rows, never which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from msgspec.structs import replace
from numpy.typing import NDArray

from siloweave.errors import SchemaError, count_of
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.bins import (
    Edges,
    fallback_of,
    has_implied_days,
    last_of,
    number_at,
    rounding_error,
    step_of,
)
from siloweave.tables.column import Column, Value
from siloweave.tables.forms import RESOLUTIONS, numbers_among
from siloweave.tables.parsing import texts_of
from siloweave.tables.table import Table, check_numbers


@dataclass(frozen=True)
class PlacedCells:
    """The cells of a column, each in the place that the column has for it.

    Attributes:
        values: Numbers, datetimes in steps, or codes of categories; meaningless where missing.
        missing: Which are missing.
        moved: Which were put where the column declares, since they have no place of their own.
    """

    values: NDArray[Any]
    missing: Bools
    moved: Bools


def placed_cells(column: Column, table: Table) -> PlacedCells:
    """Read a modelled column of a table, with every cell moved to its place in the column.

    Raises:
        SchemaError: Cells have no place in a column that does not move them.
    """
    if column.is_binned:
        return _numbers(column, table)
    return _labels(column, table)


def numbers_of(column: Column, table: Table) -> tuple[Edges, Bools]:
    """Return a binned column's values in a table, and which are missing; datetimes in steps.

    Where the column does not move what lies outside it, bounds are not looked at: see
    `check_values`.
    """
    cells = _numbers(column, table)
    return cells.values, cells.missing


def codes_of(column: Column, table: Table) -> Ints:
    """Return the codes of a categorical or boolean column; a missing value has the last code."""
    cells = _labels(column, table)
    missing_code = len(column.options)
    return np.where(cells.missing, missing_code, cells.values)


def options_of(column: Column) -> int:
    """Return the number of codes of a categorical or boolean column.

    A column with missing values has a code for these, too.
    """
    return len(column.options) + column.missing


def labels_of(column: Column, codes: Ints) -> tuple[Any, Bools | None]:
    """Return the values of codes of a categorical or boolean column, and which are missing."""
    is_text = isinstance(column.options[0], str)
    dtype = object if is_text else None
    values: NDArray[Any] = np.array(column.options, dtype=dtype)
    is_missing = codes >= len(values)
    # Any option stands where a cell is missing: nothing reads it.
    places = np.where(is_missing, 0, codes)
    labels = values[places]
    if not column.missing:
        return labels, None
    return labels, is_missing


def label_series(column: Column, codes: Ints) -> pl.Series:
    """Return the values that codes of a categorical or boolean column stand for; null if missing.

    It is `labels_of` without an object of Python for each row. Texts are an Enum, which takes a
    byte or two a row.
    """
    options: Any = column.options
    is_text = isinstance(options[0], str)
    dtype = pl.Enum(options) if is_text else None
    # The code behind all options is that of a missing value.
    levels = pl.Series(column.name, [*options, None], dtype=dtype)
    return levels.gather(codes)


def missing_cells(column: Column, table: Table) -> Bools:
    """Return which cells of a column are empty, or hold a declared spelling of a missing value."""
    cells = table.cells(column.name)
    is_missing = cells.is_null()
    if not column.missing_values:
        return is_missing.to_numpy()

    is_missing |= _are_among(texts_of(cells), column.missing_values)
    # A code is named by its number or by its label.
    if table.value_labels(column.name):
        labels = table.labels(column.name, str)
        is_missing |= _are_among(labels, column.missing_values)
    return is_missing.to_numpy()


def missing_labels(column: Column, table: Table) -> Bools:
    """Return which cells of a categorical column are empty, or declared to be a missing value.

    Where categories are numbers, a missing value is named by its number, too.
    """
    is_missing = missing_cells(column, table)
    has_numbers = not isinstance(column.options[0], str | bool)
    if has_numbers and column.missing_values:
        # However a cell writes it: 99 is 99.0, too.
        marks = numbers_among(column.missing_values)
        is_missing |= _mask(table.numbers(column.name).is_in(marks))
    return is_missing


def _are_among(texts: pl.Series, spellings: Iterable[str]) -> pl.Series:
    """Return which texts are one of some spellings, but for spaces around them."""
    stripped = texts.str.strip_chars()
    return stripped.is_in(list(spellings)).fill_null(False)


# Numbers and datetimes


def _numbers(column: Column, table: Table) -> PlacedCells:
    """Read a numeric column; SchemaError for values that do not fit a column which refuses them."""
    is_missing = missing_cells(column, table)
    if column.is_datetime:
        return _datetimes(column, table, is_missing)

    # Integers of a frame need no look at their spelling.
    name = column.name
    is_integer = column.is_whole
    nowhere = np.zeros_like(is_missing)
    if is_integer and not column.missing_values and table.holds_whole(name):
        whole, _ = table.whole_numbers(name)
        values = whole.fill_null(0).to_numpy()
        return _in_bounds(column, values, is_missing, nowhere, nowhere)

    # What each cell says.
    numbers = table.numbers(name, column.format)
    is_missing |= _mask(numbers.is_nan())
    if column.missing_values:
        marks = numbers_among(column.missing_values)
        is_missing |= _mask(numbers.is_in(marks))
    is_unread = numbers.is_null().to_numpy() & ~is_missing
    is_infinite = _mask(numbers.is_infinite()) & ~is_missing
    is_fraction = nowhere
    values = numbers.fill_null(0.0).fill_nan(0.0).to_numpy()
    if is_integer:
        nearest, is_whole = table.whole_numbers(name, column.format)
        values = nearest.fill_null(0).to_numpy()
        is_number = ~is_missing & ~is_unread & ~is_infinite
        is_fraction = ~is_whole.to_numpy() & is_number
    else:
        values = without_errors_at_bounds(column, values)

    # What becomes of those that are no value of the column.
    if column.outside != "move":
        wanted = "whole numbers" if is_integer else "numbers"
        num_unread = table.rows_of(is_unread)
        table.check_read(name, num_unread, wanted, column.format)
        if is_integer:
            num_infinite = table.rows_of(is_infinite)
            num_fractions = table.rows_of(is_fraction)
            check_numbers(name, num_infinite, num_fractions)
    is_changed = is_fraction | is_infinite
    return _in_bounds(column, values, is_missing, is_unread, is_changed)


def without_errors_at_bounds(column: Column, values: Floats) -> Floats:
    """Return the numbers of a column, of which those beyond a bound by a rounding error are on it.

    3 * 1.1 is 3.3000000000000003, and is not above 3.3.
    """
    if column.low is None or column.high is None:
        return values
    low = float(number_at(column, column.low))
    high = float(last_of(column))
    error = rounding_error(low, high)
    is_inside = (values >= low - error) & (values <= high + error)
    return np.where(is_inside, np.clip(values, low, high), values)


def _mask(booleans: pl.Series) -> Bools:
    """Return a series of booleans as an array; a null counts as false."""
    return booleans.fill_null(False).to_numpy()


def _datetimes(column: Column, table: Table, is_missing: Bools) -> PlacedCells:
    """Read a datetime column in its steps; SchemaError for values that a refusing column lacks."""
    name = column.name
    times = table.times(name, column.format)
    is_unread = times.is_null().to_numpy() & ~is_missing
    microseconds: Ints = times.cast(pl.Int64).fill_null(0).to_numpy()
    step = step_of(column)
    steps = microseconds // step

    # Where days follow from the bounds alone, a time of day may be a mistake.
    is_cut = np.zeros_like(is_missing)
    if has_implied_days(column):
        has_rest = microseconds % step != 0
        is_cut = has_rest & ~is_missing & ~is_unread

    if column.outside != "move":
        num_unread = table.rows_of(is_unread)
        table.check_times(name, num_unread, column.format)
        check_days(name, table.rows_of(is_cut))
    return _in_bounds(column, steps, is_missing, is_unread, is_cut)


def check_days(name: str, timed: int) -> None:
    """Raise SchemaError if rows (as many as `timed`) have a time of day in a column of days."""
    if timed:
        raise SchemaError(
            f"column {name!r}: {count_of(timed, 'row has', 'rows have')} a time of day, but its "
            "bounds are dates, and nothing else says how fine its times are; declare its "
            "resolution, such as 'minute', or 'day' to leave times of day out"
        )


def _in_bounds(
    column: Column,
    values: Edges,
    is_missing: Bools,
    is_unread: Bools,
    is_changed: Bools,
) -> PlacedCells:
    """Move numbers beyond the bounds to the nearest bound, and other cells to the fallback.

    Nothing is moved in a column that refuses what lies outside it.

    Args:
        column: How it is declared.
        values: The numbers.
        is_missing: Cells without a value.
        is_unread: Cells that hold something else than a number.
        is_changed: Cells whose number was rounded, or whose time of day was left out.
    """
    if column.outside != "move":
        nowhere = np.zeros_like(is_missing)
        return PlacedCells(values, is_missing, nowhere)

    # What is no number, and what is missing though nothing may be, becomes the fallback, if
    # there is one, and is missing otherwise.
    is_homeless = is_unread
    if not column.missing:
        is_homeless = is_unread | is_missing
    placed: Any = values
    if column.fallback is None:
        is_missing = is_missing | is_homeless
    else:
        fallback = fallback_of(column)
        placed = np.where(is_homeless, fallback, values)
        is_missing = is_missing & ~is_homeless

    inside = placed
    if column.low is not None and column.high is not None:
        low = number_at(column, column.low)
        high = last_of(column)
        inside = np.clip(placed, low, high)
    has_moved = is_changed | (inside != placed)
    is_moved = has_moved & ~is_missing
    return PlacedCells(inside, is_missing, is_moved | is_homeless)


def check_values(
    column: Column, table: Table, values: Edges, missing: Bools, low: float, high: float
) -> None:
    """Raise SchemaError where values leave the bounds, or are missing though none may be.

    The error has the number of rows, never which rows.
    """
    is_infinite = np.isinf(values) & ~missing
    check_numbers(column.name, table.rows_of(is_infinite))

    is_beyond = (values < low) | (values > high)
    num_outside = table.rows_of(is_beyond & ~missing)
    num_missing = table.rows_of(missing)
    check_fit(column, num_outside, num_missing)


def check_fit(column: Column, outside: int, empty: int) -> None:
    """Raise SchemaError if rows leave a column's bounds, or have no value where they must.

    `outside` and `empty` are the numbers of such rows.
    """
    if outside:
        raise SchemaError(
            f"column {column.name!r}: {count_of(outside, 'row is', 'rows are')} outside its bounds "
            f"{column.low!r} to {column.high!r}; widen low and high in the schema, or clip"
        )
    if empty and not column.missing:
        raise SchemaError(
            f"column {column.name!r}: {count_of(empty, 'row has', 'rows have')} no value, but the "
            "schema says missing=False; declare missing=True, or drop such rows"
        )


# Categories


def _labels(column: Column, table: Table) -> PlacedCells:
    """Read a column of categories; SchemaError for values that do not fit a refusing column."""
    codes = table.lookup(column.name, column.options)
    # Mostly each is one of the categories, and nothing else is to be looked at.
    if not column.missing_values and codes.min(initial=0) >= 0:
        nowhere = np.zeros(len(codes), dtype=np.bool_)
        return PlacedCells(codes, nowhere, nowhere)

    # `lookup` has -1 for a missing value, and -2 for one that is no category.
    is_missing = missing_labels(column, table) | (codes == -1)
    is_unknown = (codes == -2) & ~is_missing
    if column.outside != "move":
        return _required(column, table, codes, is_missing, is_unknown)

    # What is no category, and what is missing though nothing may be, goes where the column says.
    is_moved = is_unknown
    if not column.missing:
        is_moved = is_unknown | is_missing
    refuge = column.fallback
    if refuge is None:
        refuge = column.other
    if refuge is None:
        return PlacedCells(codes, is_missing | is_unknown, is_moved)
    refuge_code = column.options.index(refuge)
    codes = np.where(is_moved, refuge_code, codes)
    return PlacedCells(codes, is_missing & ~is_moved, is_moved)


def _required(
    column: Column, table: Table, codes: Ints, is_missing: Bools, is_unknown: Bools
) -> PlacedCells:
    """Return the codes of a column that refuses unknown values, unless it has an `other`."""
    num_unknown = table.rows_of(is_unknown)
    if column.other is not None:
        other_code = column.options.index(column.other)
        codes = np.where(is_unknown, other_code, codes)
    elif num_unknown:
        raise SchemaError(
            f"column {column.name!r}: {count_of(num_unknown, 'row holds', 'rows hold')} none of "
            f"its {count_of(len(column.options), 'category', 'categories')}; add such values to "
            "the schema, or declare a category as other"
        )
    num_missing = table.rows_of(is_missing)
    check_fit(column, 0, num_missing)
    nowhere = np.zeros_like(is_missing)
    return PlacedCells(codes, is_missing, nowhere)


# Numbers and codes of all kinds alike


class CellValues(NamedTuple):
    """The cells of a column in some rows: numbers or codes, and which are missing."""

    values: NDArray[Any]
    gone: Bools

    def take(self, rows: NDArray[Any]) -> CellValues:
        """Select the cells of some rows."""
        return CellValues(self.values[rows], self.gone[rows])


def known_cells(column: Column, table: Table) -> CellValues:
    """Read a modelled column of rows that are asked about, in which any cell may be missing.

    A category that is not listed counts as the column's `other`, if it has one.

    Raises:
        SchemaError: A value is outside the schema, where the column would move it, too.
    """
    facts: Any = {"missing": True, "outside": "refuse", "fallback": None}
    strict = replace(column, **facts)
    cells = cells_of(strict, table)
    if column.is_binned:
        low = -np.inf
        if column.low is not None:
            low = number_at(column, column.low)
        high = np.inf
        if column.high is not None:
            high = last_of(column)
        check_values(strict, table, cells.values, cells.gone, low, high)
    return cells


def spelled_as(column: Column, drawn: Table, table: Table) -> pl.Series:
    """Write drawn cells of a column in the spelling of a table.

    A category is spelled as in the table's first row that has it: `1` where that is its `True`, a
    code where a file of SPSS, Stata or SAS has one.
    """
    name = column.name
    if column.is_binned:
        return drawn.cells(name)

    # The table's first row of each category that it has.
    cells = table.cells(name)
    table_codes = table.lookup(name, column.options)
    codes_present, first_rows = np.unique(table_codes, return_index=True)
    pairs = zip(codes_present.tolist(), first_rows.tolist(), strict=True)
    row_of_code = dict(pairs)
    value_labels = table.value_labels(name)
    mark_of_label = {label: mark for mark, label in value_labels.items()}

    spellings: list[Any] = []
    is_text = cells.dtype == pl.String
    for code, option in enumerate(column.options):
        spelling: Any = option
        if code in row_of_code:
            row = row_of_code[code]
            spelling = cells[row]
        elif option in mark_of_label:
            # The table has no such row, but its file has a code for the category.
            mark = mark_of_label[str(option)]
            spelling = mark if is_text else float(mark)
        elif is_text:
            spelling = texts_of(pl.Series([option]))[0]
        spellings.append(spelling)

    dtype = None if cells.dtype == pl.Null else cells.dtype
    levels = pl.Series(name, spellings, dtype=dtype, strict=False)
    codes = np.maximum(drawn.lookup(name, column.options), 0)
    return levels.gather(codes)


class NumberRows:
    """Numeric columns in some rows, prepared to look up their ends by category, many times.

    Args:
        columns: Columns of numbers, of the same rows.
    """

    def __init__(self, columns: Sequence[CellValues]) -> None:
        series = {}
        for place, column in enumerate(columns):
            numbers = pl.Series(column.values.astype(np.float64))
            series[f"column {place}"] = numbers.set(pl.Series(column.gone), None)
        self._frame = pl.DataFrame(series)

    def ends(self, by: CellValues) -> tuple[Floats, Floats, Ints]:
        """Return the least and largest value, and the number of values, by category and column.

        Where a group has no value, its least is infinite and its largest minus infinity. Rows whose
        category is missing are in no group.
        """
        has_group = ~by.gone
        groups = pl.Series("group", by.values[has_group])
        grouped = self._frame.filter(has_group).group_by(groups)
        lows = pl.all().min().name.suffix(" low")
        highs = pl.all().max().name.suffix(" high")
        counts = pl.all().count()

        # Columns of the result: the group, then all lows, all highs and all counts.
        ends = grouped.agg(lows, highs, counts)[:, 1:]
        width = self._frame.width
        group_lows = ends[:, :width].fill_null(np.inf)
        group_highs = ends[:, width : 2 * width].fill_null(-np.inf)
        group_counts = ends[:, 2 * width :].to_numpy()
        return (
            group_lows.to_numpy(),
            group_highs.to_numpy(),
            group_counts.astype(np.int64),
        )


def cells_of(column: Column, table: Table) -> CellValues:
    """Read a modelled column of a table; SchemaError for a category that is not listed."""
    if column.is_binned:
        return CellValues(*numbers_of(column, table))
    codes = codes_of(column, table)
    is_missing = codes == len(column.options)
    return CellValues(codes, is_missing)


def groups_of(columns: Sequence[CellValues]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Group rows with the same values; return the first row of each group, and each row's group."""
    num_rows = len(columns[0].values)
    group = np.zeros(num_rows, dtype=np.int64)
    for values, is_missing in columns:
        filled = np.where(is_missing, 0, values)
        levels, place = np.unique(filled, return_inverse=True)
        # A missing value is a level of its own, behind all others.
        num_levels = len(levels)
        level = np.where(is_missing, num_levels, place.reshape(-1))
        pairs = group * (num_levels + 1) + level
        # Groups are numbered anew, since the numbers of pairs would soon leave int64.
        _, group = np.unique(pairs, return_inverse=True)
        group = group.reshape(-1)
    _, first = np.unique(group, return_index=True)
    return first, group


def value_of(column: Column, number: Any) -> Value:
    """Convert a number or code of a column to the value that JSON has for it."""
    if number is None:
        return None
    if not column.is_binned:
        return column.options[int(number)]
    if column.is_continuous:
        return float(number)
    if column.is_whole:
        return int(number)
    if not column.is_datetime:
        raise NotImplementedError(f"a number of kind {column.kind!r} has no value")
    microseconds = int(number) * step_of(column)
    when = np.datetime64(microseconds, "us").item()
    return str(when.isoformat())


def bound_text(column: Column, bound: Value) -> str:
    """Return a bound as people write it: of a column of days without the midnight.

    Example:
        >>> born = Column("born", "datetime", low="1900-01-01", high="2020-12-31")
        >>> bound_text(born, "1959-06-18T00:00:00"), bound_text(born, None)
        ('1959-06-18', '')
    """
    if bound is None:
        return ""
    text = str(bound)
    if column.is_datetime and step_of(column) == RESOLUTIONS["day"]:
        return text.removesuffix("T00:00:00")
    return text
