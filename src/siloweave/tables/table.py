"""Rows in named columns: the one type that carries tables through the package.

A `Table` wraps one polars frame with few types (text, whole numbers, numbers, booleans, datetimes
and durations) and remembers what it was made from, so that pandas in gives pandas out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from siloweave.errors import DataError, InputError, SchemaError, count_of
from siloweave.tables.arrays import standard_ranks
from siloweave.tables.column_names import check_name, names_after
from siloweave.tables.decimals import with_zeros
from siloweave.tables.dialect import Dialect
from siloweave.tables.display import MOST, html_table, listed
from siloweave.tables.forks import check_process
from siloweave.tables.forms import numbers_among
from siloweave.tables.native_types import (
    POLARS_TYPES,
    arrow_table,
    named_type,
    normal_frame,
    numpy_values,
    pandas_series,
    places_among,
    polars_frame,
    series_of,
    type_name,
    with_declared,
)
from siloweave.tables.nested import check_single_values
from siloweave.tables.origin import (
    CodedColumn,
    Frame,
    Origin,
    TextFileColumn,
    whole_unit,
)
from siloweave.tables.parsing import (
    DATETIME,
    DURATION,
    UNITS,
    WHOLE,
    durations_in,
    durations_of,
    flags_of,
    numbers_of,
    texts_of,
    texts_of_mixed,
    times_of,
    whole_numbers_of,
)
from siloweave.tables.statistical_files import Variable

# Types of categories that a schema has beside text.
_CATEGORY_TYPES = (bool, int, float)
_KINDS = {"String": "text", "Float64": "numbers", "Boolean": "booleans"}


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Rows in named columns, read-only; made by `read` or `Table.from_columns`.

    Example:
        >>> table = Table.from_columns({"age": (np.array([30, 0]), np.array([False, True]))})
        >>> table.names, table.num_rows, table.missing("age").tolist()
        (('age',), 2, [False, True])
    """

    # Read and joined, too, by the files beside this one that make tables of tables.
    _frame: pl.DataFrame
    _origin: Origin = field(default_factory=Origin)
    # Columns that were looked at without a schema, in the types that their cells fit.
    _typed_columns: dict[str, pl.Series] = field(
        init=False, default_factory=dict, repr=False
    )
    # Ranks of columns of numbers in the first rows; None for other columns.
    _first_ranks: dict[str, NDArray[np.float64] | None] = field(
        init=False, default_factory=dict, repr=False
    )

    def __repr__(self) -> str:
        return f"Table({self.num_rows} rows: {listed(self.names)})"

    def _repr_html_(self) -> str:
        names = self.names[:MOST]
        first_rows = range(min(5, self.num_rows))
        view = self.select(names).take(first_rows)._view
        cells = [[*map(_text_or_empty, row)] for row in view.rows()]
        caption = f"{self.num_rows:,} rows, {len(self.names):,} columns"
        return html_table(caption, names, cells)

    # Tables from arrays, from declared types, and from counts.

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, tuple[Any, np.ndarray | None]],
        like: Table | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
    ) -> Table:
        """Make a table from arrays.

        Args:
            columns: Name to (values, mask of missing or None): whole numbers, numbers, booleans,
                datetime64, timedelta64 or text, one per row.
            like: `to_native` returns the same kind of frame and types as this one's.
            categories: Each column's declared values: categorical types of `like` then list these.

        Raises:
            DataError: When lengths differ or values are of no usable type.
        """
        check_process()
        all_series = []
        for name, (values, mask) in columns.items():
            all_series.append(series_of(name, values, mask))
        lengths = {len(series) for series in all_series}
        if len(lengths) > 1:
            raise DataError(f"columns have different lengths: {sorted(lengths)}")

        origin = Origin()
        if like is not None:
            origin = replace(like._origin, text_columns={}, coded_columns={})
        if categories is not None:
            dtypes = with_declared(origin.dtypes, categories)
            origin = replace(origin, dtypes=dtypes)
        return cls(normal_frame(all_series), origin)

    @classmethod
    def empty(
        cls,
        types: Mapping[str, tuple[type, bool]],
        frame: Frame,
        zones: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Table:
        """Make a table without rows from declared types, not from those of a frame.

        Of each column: bool, int, float, str, datetime or timedelta, and whether a value may be
        missing, which decides the type of whole numbers and booleans in pandas. Datetimes may have
        a time zone. Durations are seen as numbers of `units`. `to_native` makes such a frame, also
        of tables that are made like this one.
        """
        schema = {}
        for name, (python_type, _) in types.items():
            schema[name] = POLARS_TYPES[python_type]
        time_zones = {}
        for name, zone in (zones or {}).items():
            if schema[name] == DATETIME:
                time_zones[name] = zone
        origin = Origin(frame, types=types, zones=time_zones, units=units or {})
        return cls(pl.DataFrame(schema=schema), origin)

    @classmethod
    def of_counts(cls, name: str, frame: pl.DataFrame) -> Table:
        """Make a table of one column from its values ``v``, each of which is in ``n`` rows."""
        row_counts = frame["n"].cast(pl.Int64).to_numpy()
        values = frame["v"].alias(name)
        return cls(normal_frame([values]), Origin(row_counts=row_counts))

    # The rows as whoever has no schema sees them: each column in the type that all its cells fit.

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(self._frame.columns)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._frame.height

    def kind(self, name: str) -> str:
        """Return a column's type in words.

        It is text, whole numbers, numbers, booleans, datetimes or nothing.
        """
        dtype = self._typed_column(name).dtype
        if dtype in WHOLE:
            return "whole numbers"
        if dtype == DATETIME:
            return "datetimes"
        return _KINDS.get(str(dtype), "nothing")

    def values(self, name: str) -> np.ndarray:
        """Return one column's values, one per row.

        They are int64, float64, bool, datetime64[us] or object (text). Where `missing` is true the
        value is meaningless (0, NaN, False, NaT, None).

        Raises:
            DataError: When there is no such column.
        """
        return numpy_values(self._typed_column(name))

    def missing(self, name: str) -> np.ndarray:
        """Return a mask of one column's missing values, one boolean per row."""
        return self._typed_column(name).is_null().to_numpy()

    def is_constant(self, name: str) -> bool:
        """Return whether all values of a column are one, missing ones aside."""
        values = self._typed_column(name).drop_nulls()
        return len(values) > 0 and bool((values == values[0]).all())

    def with_gaps(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return one column's values, and which are missing, as `from_columns` takes them.

        Durations are timedelta64[us] here, and not numbers of a unit.
        """
        durations = self._durations(name)
        if durations is not None:
            return durations.to_numpy(), self.missing(name)
        return self.values(name), self.missing(name)

    def _durations(self, name: str) -> pl.Series | None:
        """Return a column of durations; None for another one.

        Those of a sheet of Excel are text, and the sheet says that they are durations.
        """
        cells = self.cells(name)
        if cells.dtype == DURATION:
            return cells
        text_column = self._origin.text_columns.get(name)
        if text_column is not None and text_column.type == DURATION:
            return text_column.typed(cells)
        return None

    def unit(self, name: str) -> str | None:
        """Return the unit in which a column's durations count as numbers; None without durations.

        It is declared, or the largest one of days, hours, minutes and seconds of which all of them
        are whole multiples.
        """
        durations = self._durations(name)
        if durations is None:
            return None
        declared_unit = self._origin.units.get(name)
        if declared_unit is not None:
            return declared_unit
        return whole_unit(durations)

    def levels(self, name: str) -> tuple[Any, ...] | None:
        """Return the declared values of a categorical type, or a variable's labels; None without.

        Labels are those of a file of SPSS, Stata or SAS in which nearly every row has one.
        """
        coded = self._origin.coded_columns.get(name)
        if coded is not None:
            return coded.levels

        dtype = self._origin.dtypes.get(name)
        if isinstance(dtype, pl.Enum):
            return tuple(dtype.categories.to_list()) or None
        if str(dtype) == "category" and dtype is not None:
            values = dtype.categories.tolist()
            if not values:
                return None
            # A scale with labels at its ends alone, as pandas reads it from Stata: "None", 1, 2;
            # or ranges that pandas cut numbers into, and other values that no schema has.
            if not all(isinstance(value, _CATEGORY_TYPES) for value in values):
                texts = texts_of_mixed(values)
                return tuple(text for text in texts if text is not None)
            return tuple(values)

        # A dictionary of arrow, and a categorical of polars, say no more than the rows do.
        is_dictionary = str(dtype).startswith("dictionary")
        if is_dictionary or isinstance(dtype, pl.Categorical):
            values = self._typed_column(name).drop_nulls()
            return tuple(values.unique().sort().to_list())
        return None

    def counts(
        self, name: str, kind: type | None = None
    ) -> tuple[list[Any], list[int]]:
        """Return one column's distinct values, most frequent first (ties by value), and counts.

        With a kind, each cell is read as a value of it, see `labels`; text without the blanks
        around it. Cells that are no such value are left out.
        """
        series = self._typed_column(name) if kind is None else self.labels(name, kind)
        if kind is str:
            series = series.str.strip_chars()
        if series.dtype == pl.Float64:
            series = series.fill_nan(None)

        values = series.drop_nulls().rename("value")
        table = values.value_counts(name="count")
        table = table.sort("count", "value", descending=[True, False])
        return table["value"].to_list(), table["count"].to_list()

    def text_counts(self, name: str) -> dict[str, int]:
        """Return a text column's distinct values, without spaces around them, and counts."""
        texts = self._typed_column(name).drop_nulls().str.strip_chars()
        table = texts.rename("value").value_counts(sort=True, name="count")
        values = table["value"].to_list()
        counts = table["count"].to_list()
        return dict(zip(values, counts, strict=True))

    def row_keys(self, names: Sequence[str]) -> NDArray[np.uint64]:
        """Return a hash of each row's values in some columns, the same in every table."""
        # One type for all numbers, so that 1 and 1.0 of two tables have the same hash.
        number_types = (*WHOLE, pl.Float64, pl.Boolean)
        columns = []
        for name in names:
            series = self._typed_column(name)
            if series.dtype in number_types:
                columns.append(series.cast(pl.Float64))
            else:
                columns.append(series.cast(pl.String))
        return pl.DataFrame(columns).hash_rows(seed=0).to_numpy()

    def _typed_column(self, name: str) -> pl.Series:
        """Return a column in the type that all cells of its source fit."""
        cells = self.cells(name)
        durations = self._durations(name)
        if durations is not None:
            if name not in self._typed_columns:
                unit = self.unit(name) or "seconds"
                numbers = durations_in(durations, unit)
                if (numbers == numbers.round()).all():
                    numbers = numbers.cast(pl.Int64)
                self._typed_columns[name] = numbers
            return self._typed_columns[name]

        text_column = self._origin.text_columns.get(name)
        source_column = text_column or self._origin.coded_columns.get(name)
        if source_column is None:
            return cells
        if name not in self._typed_columns:
            self._typed_columns[name] = source_column.typed(cells)
        return self._typed_columns[name]

    @property
    def _view(self) -> pl.DataFrame:
        """The rows as they are seen without a schema, each column in one type."""
        return pl.DataFrame([self._typed_column(name) for name in self.names])

    @property
    def _typed_view(self) -> pl.DataFrame:
        """The rows as in `_view`, with durations in their type and not as numbers."""
        return pl.DataFrame([self._native_column(name) for name in self.names])

    # What the source says about the rows and the columns.

    @property
    def frame(self) -> Frame:
        """The kind of source that the table was made from, which `to_native` makes again."""
        return self._origin.kind

    @property
    def drawn_of(self) -> int | None:
        """The number of rows that these were drawn from; None if they were not drawn."""
        return self._origin.source_rows

    def rows_of(self, mask: NDArray[np.bool_]) -> int:
        """Count the rows that a mask of the table's rows stands for."""
        row_counts = self._origin.row_counts
        if row_counts is None:
            return int(np.count_nonzero(mask))
        return int(row_counts[mask].sum())

    @property
    def dialect(self) -> Dialect | None:
        """The way the table's text file is written; None for a table from anything else."""
        return self._origin.dialect

    def line(self, row: int) -> int:
        """Return a row's line in its text file, or its row in its sheet.

        Lines are counted as if no field held a line break.
        """
        dialect = self.dialect or Dialect()
        line = row + 1 + bool(dialect.header) + (dialect.skip or 0)
        # Blank lines are in order: each one before the row moves it down.
        for blank_line in self._origin.blank_lines:
            if blank_line <= line:
                line += 1
        return line

    @property
    def hint(self) -> str:
        """A guess at how the fields of a text file that was read as one column are divided.

        It is empty for other tables.
        """
        return self._origin.hint

    @property
    def left_out(self) -> int:
        """The number of columns at the end of a text file without a name or any value."""
        return self._origin.num_unnamed

    @property
    def keyed(self) -> bool:
        """Whether each row names its own columns, as in JSON lines."""
        return self._origin.has_keys

    @property
    def notes(self) -> tuple[str, ...]:
        """What a sheet of Excel shows otherwise than it is read, a sentence each."""
        return self._origin.notes

    @property
    def is_sheet(self) -> bool:
        """Whether the table is a sheet of Excel."""
        return self._origin.is_sheet

    @property
    def has_index(self) -> bool:
        """Whether pandas stored an index without a name in the source, which is no column here."""
        return self._origin.has_index

    def check_nested(self) -> None:
        """Raise DataError if a cell of the source holds several values, such as a list."""
        check_single_values(self.names, self._origin.nested)

    def zone(self, name: str) -> str | None:
        """Return the time zone of a column of a frame or file, whose times are held in UTC here."""
        declared_zone = self._origin.zones.get(name)
        if declared_zone is not None:
            return declared_zone

        dtype = self._origin.dtypes.get(name)
        # Pandas and arrow call it `tz`, polars `time_zone`.
        zone = getattr(dtype, "tz", None) or getattr(dtype, "time_zone", None)
        if zone is None:
            return None
        # Python calls an offset "UTC+01:00"; the name of such a zone is "+01:00" here.
        return str(zone).removeprefix("UTC") or "UTC"

    def decimal(self, name: str) -> str:
        """Return the mark before decimals of a column's numbers, as it is declared."""
        column = self._origin.text_columns.get(name)
        if column is not None:
            return column.decimal
        if self.dialect is not None:
            return self.dialect.decimal
        return "."

    def padded(self, name: str) -> int | None:
        """Return the fewest decimals of a number in a CSV's column, counting zeros at the end."""
        if name in self._origin.padded:
            return self._origin.padded[name]
        column = self._origin.text_columns.get(name)
        return None if column is None else column.padded

    def keeps_texts(self, name: str) -> bool:
        """Return whether a column's numbers are written as their cells are, to every zero.

        It is true of whatever is no text file. Where 428.0 stands beside 250.10, all numbers have
        one decimal at least, and 250.10 would be written as 250.1.
        """
        padded = self.padded(name)
        cells = self.cells(name)
        if padded is None or cells.dtype != pl.String:
            return True
        written = with_zeros(self._typed_column(name), padded)
        return bool((written == cells.str.strip_chars()).all())

    def value_labels(self, name: str) -> dict[str, str]:
        """Return the labels of a column's codes in a file of SPSS, Stata or SAS, by code.

        The codes are texts.
        """
        coded = self._origin.coded_columns.get(name)
        if coded is None or not coded.variable.labels:
            return {}
        labels = coded.variable.labels
        code_texts = texts_of(pl.Series(list(labels))).to_list()
        return dict(zip(code_texts, labels.values(), strict=True))

    def declared_missing(self, name: str) -> tuple[str, ...]:
        """Return the codes, and ranges of them, that SPSS takes for missing, as texts."""
        coded = self._origin.coded_columns.get(name)
        return () if coded is None else coded.variable.missing

    # The table with other rows, columns or cells.

    def take(self, indices: np.ndarray | Sequence[int]) -> Table:
        """Return the rows at some positions, in that order; positions may repeat."""
        positions = np.asarray(indices, dtype=np.int64)
        return Table(self._frame[positions], self._origin)

    def select(self, names: Sequence[str]) -> Table:
        """Return some columns, in the order given; DataError when one is not there."""
        columns = [self._stored_column(name) for name in names]
        return Table(pl.DataFrame(columns), self._origin)

    def without_rows(self) -> Table:
        """Return an empty table like this one; a CSV's columns are text, as they are written."""
        empty_frame = self._frame.clear()
        if self._origin.coded_columns:
            empty_frame = self._view.clear()
        if self._origin.is_text:
            text_types: dict[Any, type[str]] = dict.fromkeys(self.names, str)
            empty_frame = empty_frame.cast(text_types)
        origin = replace(self._origin, text_columns={}, coded_columns={})
        return Table(empty_frame, origin)

    def renamed(self, names: Mapping[str, str]) -> Table:
        """Return the table with new names for some columns.

        Raises:
            DataError: There is no such column, or two would have one name.
        """
        if not names:
            return self
        # In JSON lines a column may be in no row at all; there is then nothing to rename.
        if self._origin.has_keys:
            names = {old: new for old, new in names.items() if old in self.names}
        names_after(self.names, names, "the table")

        origin = self._origin
        new_origin = replace(
            origin,
            dtypes=_renamed_keys(origin.dtypes, names),
            types=_renamed_keys(origin.types, names),
            text_columns=_renamed_keys(origin.text_columns, names),
            padded=_renamed_keys(origin.padded, names),
            file_types=_renamed_keys(origin.file_types, names),
            zones=_renamed_keys(origin.zones, names),
            coded_columns=_renamed_keys(origin.coded_columns, names),
            units=_renamed_keys(origin.units, names),
            nested=_renamed_keys(origin.nested, names),
        )
        return Table(self._frame.rename(dict(names)), new_origin)

    def verbatim(self) -> Table:
        """Return the table with the columns of a text file as the text that stands there."""
        return Table(self._frame, replace(self._origin, text_columns={}))

    def blanked(self, name: str, spellings: Sequence[str]) -> Table:
        """Return the table with certain texts or numbers of a column as missing values."""
        if not spellings:
            return self
        series = self._typed_column(name)
        if series.dtype == pl.String:
            is_blank = series.str.strip_chars().is_in(list(spellings))
            return self._without_cells(name, is_blank)

        numbers = numbers_among(spellings)
        has_numbers = series.dtype in WHOLE or series.dtype == pl.Float64
        if numbers and has_numbers:
            is_blank = series.cast(pl.Float64).is_in(numbers)
            return self._without_cells(name, is_blank)
        return self

    def finite(self, name: str) -> Table:
        """Return the table with infinite numbers of a column as missing values."""
        series = self._typed_column(name)
        if series.dtype != pl.Float64:
            return self
        is_infinite = series.is_infinite()
        if not is_infinite.any():
            return self
        return self._without_cells(name, is_infinite)

    def _without_cells(self, name: str, is_blank: pl.Series) -> Table:
        """Return the table with some cells of a column missing."""
        cells = self.cells(name).set(is_blank.fill_null(False), None)
        table = replace(self, _frame=self._frame.with_columns(cells))
        # Other columns stay as they are, and were perhaps looked at before.
        for other, column in list(self._typed_columns.items()):
            if other != name:
                table._typed_columns[other] = column
        for other, ranks in list(self._first_ranks.items()):
            if other != name:
                table._first_ranks[other] = ranks
        return table

    def ranks(
        self, name: str, rows: NDArray[np.int64], *, are_first: bool
    ) -> NDArray[np.float64] | None:
        """Return the standard ranks of a column's numbers in some rows.

        None where it holds no numbers, or no number in one of these rows, or one number alone.

        Args:
            name: The column.
            rows: The places of the rows.
            are_first: Whether they are the first ones, as many each time: these are ranked once.
        """
        if not are_first:
            return self._ranks(name, rows)
        if name not in self._first_ranks:
            self._first_ranks[name] = self._ranks(name, rows)
        return self._first_ranks[name]

    def _ranks(self, name: str, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Return the standard ranks of a column's numbers in some rows, see `ranks`."""
        if self.kind(name) not in ("whole numbers", "numbers", "booleans"):
            return None
        values = self.values(name)[rows].astype(np.float64)
        is_number = np.isfinite(values) & ~self.missing(name)[rows]
        if not is_number.all() or not values.std():
            return None
        return standard_ranks(values)

    def recoded(self, name: str, values: Mapping[Any, Any]) -> Table:
        """Return the table with some values of a column replaced by others.

        Args:
            name: The column.
            values: What a cell of some text becomes; an empty text or None for a missing value. A
                code of SPSS, Stata or SAS is named by its text or its label. Other cells stay.

        Raises:
            DataError: There is no such column.
            InputError: It holds datetimes or durations.
        """
        cells = self.cells(name)
        if cells.dtype in (DATETIME, DURATION):
            content = "durations" if cells.dtype == DURATION else "datetimes"
            raise InputError(
                f"column {name!r} holds {content}, which are not recoded; leave it out of recode"
            )
        recoded_cells = self._recoded_cells(name, values)

        origin = self._origin
        text_columns = dict(origin.text_columns)
        coded_columns = dict(origin.coded_columns)
        coded = coded_columns.pop(name, None)
        if coded is not None and coded.variable.labels:
            # Whatever other rows hold, a code that is not listed keeps its label.
            labels: Mapping[Any, str] = self.value_labels(name)
            variable = Variable(labels)
            coded_columns[name] = CodedColumn(
                recoded_cells, variable, is_recoded=coded.is_labelled
            )
        # The view of whoever has no schema.
        if coded is None or not coded.is_labelled:
            text_columns[name] = TextFileColumn(recoded_cells, self.decimal(name))

        dtypes = dict(origin.dtypes)
        dtypes.pop(name, None)
        new_origin = replace(
            origin,
            text_columns=text_columns,
            coded_columns=coded_columns,
            dtypes=dtypes,
        )
        return Table(self._frame.with_columns(recoded_cells), new_origin)

    def _recoded_cells(self, name: str, values: Mapping[Any, Any]) -> pl.Series:
        """Return a column's cells as text, with some of them replaced, see `recoded`."""
        cells = self.cells(name)
        cell_texts = texts_of(cells).alias(name)
        old_values = texts_of_mixed(list(values))
        new_values = texts_of_mixed(list(values.values()))
        old_texts = [str(text).strip() for text in old_values]
        new_texts = [text or None for text in new_values]

        places = places_among(cell_texts.str.strip_chars(), old_texts)
        coded = self._origin.coded_columns.get(name)
        if coded is not None and coded.variable.labels:
            # A label goes before a code: where a text is both, the label's place counts.
            labels = coded.texts(cells).str.strip_chars()
            label_places = places_among(labels, old_texts)
            label_places = label_places.set(label_places == -2, None)
            places = label_places.fill_null(places)

        is_listed = (places >= 0).fill_null(False)
        # Cells that are not listed look up the None behind the last new text; it is not used.
        lookup_places = places.set(~is_listed, len(new_texts))
        replacements = pl.Series(name, [*new_texts, None], dtype=pl.String)
        new_cells = replacements.gather(lookup_places)
        recoded = pl.when(is_listed).then(new_cells).otherwise(pl.col(name))
        frame = cell_texts.to_frame()
        return frame.select(recoded.alias(name)).to_series()

    def filled(self, name: str, rows: NDArray[np.int64], cells: pl.Series) -> Table:
        """Return the table with some cells of a column replaced, and all else as it is.

        The column keeps its type, unless the new cells do not fit it.

        Args:
            name: The column.
            rows: Places of the cells that change.
            cells: What they become, one for each place.

        Example:
            >>> table = Table.from_columns({"age": (np.array([30, 0]), np.array([False, True]))})
            >>> table.filled("age", np.array([1]), pl.Series([41])).values("age").tolist()
            [30, 41]
        """
        origin = self._origin
        old_cells = self.cells(name)
        text_column = origin.text_columns.get(name)
        decimal = self.decimal(name)
        new_cells = _as_type_of(old_cells, cells, text_column, decimal)

        dtypes = dict(origin.dtypes)
        if new_cells.dtype != old_cells.dtype:
            # Whole numbers take decimals, and a column without any value takes all.
            old_cells = old_cells.cast(new_cells.dtype)
            dtypes.pop(name, None)
        column = old_cells.scatter(rows, new_cells).alias(name)

        text_columns = dict(origin.text_columns)
        if text_column is not None:
            text_columns[name] = TextFileColumn(column, text_column.decimal)
        coded_columns = dict(origin.coded_columns)
        if name in coded_columns:
            coded_columns[name] = replace(coded_columns[name], cells=column)
        new_origin = replace(
            origin,
            dtypes=dtypes,
            text_columns=text_columns,
            coded_columns=coded_columns,
        )
        return Table(self._frame.with_columns(column), new_origin)

    # Frames of other libraries.

    @property
    def type_names(self) -> dict[str, str]:
        """The names of the types that the source has for columns, as `framed` takes them."""
        return {name: type_name(dtype) for name, dtype in self._origin.dtypes.items()}

    def framed(
        self, frame: Frame, type_names: Mapping[str, str] | None = None
    ) -> Table:
        """Return the table as one from which `to_native` makes another kind of frame.

        Durations and time zones stay; all other types are those of the kind, or the named ones.
        """
        dtypes = {}
        for name, wanted in (type_names or {}).items():
            dtype = named_type(frame, wanted)
            if dtype is not None:
                dtypes[name] = dtype
        origin = Origin(
            frame, dtypes, units=self._origin.units, zones=self._origin.zones
        )
        return Table(self._typed_view, origin)

    def to_native(self) -> Any:
        """Return a frame of the kind that the table was made from, with its types.

        A file or columns become pandas where it is installed, else polars. Whole numbers with
        missing values become ``Int64`` in pandas unless the frame given had another type.
        """
        check_process()
        kind: str = self._origin.kind
        if kind in ("file", "csv"):
            kind = "pandas" if find_spec("pandas") else "polars"
        dtypes = self._origin.native_types(kind)

        if kind == "polars":
            return polars_frame(self._typed_view, dtypes)
        if kind == "arrow":
            return arrow_table(self._typed_view, dtypes)
        # One column after the other, so that no more than one is held in both libraries' texts.
        columns = {}
        for name in self.names:
            columns[name] = pandas_series(self._native_column(name), dtypes.get(name))
        return import_module("pandas").DataFrame(columns)

    def _native_column(self, name: str) -> pl.Series:
        """Return a column in the type that all cells fit; durations are no numbers here."""
        durations = self._durations(name)
        if durations is not None:
            return durations
        return self._typed_column(name)

    # Cells as a declared column reads them, each by itself: what `siloweave.tables.cells` and
    # `codes` are made of.

    def cells(self, name: str) -> pl.Series:
        """Return a column's cells as the source has them; those of a text file are text.

        A column that no row of JSON lines names has no value in any.
        """
        cells = self._stored_column(name)
        if cells.dtype == pl.Enum:
            return cells.cast(pl.String)
        return cells

    def _stored_column(self, name: str) -> pl.Series:
        """Return a column's cells as the table stores them; drawn texts are places in a list.

        A text takes 16 bytes a cell, a place among few texts one.
        """
        check_process()
        if self._origin.has_keys and name not in self.names:
            return pl.Series(name, [None] * self.num_rows, dtype=pl.String)
        check_name(name, self.names)
        return self._frame.get_column(name)

    def labels(self, name: str, kind: type) -> pl.Series:
        """Return each cell as a value of one type: str, int, float or bool.

        It is null where the cell is no such value. A cell is read by itself, as
        `siloweave.tables.parsing` says.
        """
        cells = self.cells(name)
        if kind is str:
            coded = self._origin.coded_columns.get(name)
            return texts_of(cells) if coded is None else coded.texts(cells)
        if kind is bool and cells.dtype == pl.Boolean:
            return cells
        if kind is bool:
            return flags_of(texts_of(cells))
        if kind is int and cells.dtype in WHOLE:
            return cells.cast(pl.Int64)
        if kind is float:
            return self.numbers(name)
        values, is_whole = self.whole_numbers(name)
        return values.set(~is_whole, None)

    def lookup(self, name: str, categories: Sequence[Any]) -> np.ndarray:
        """Find each value's position among distinct categories of one type, as int32.

        It is -1 where missing, and -2 where not among them. A text is also found without the
        blanks around it, where no two categories differ in these alone. A code that has a label is
        found by it, or else by itself.
        """
        kind = type(categories[0])
        labels = self.labels(name, kind)
        codes = places_among(labels, categories)
        # All are among the categories: none is missing, and none needs a second look.
        if codes.min() in range(len(categories)):
            return codes.to_numpy(writable=True)

        if kind is str:
            stripped = [category.strip() for category in categories]
            are_distinct = len(set(stripped)) == len(stripped)
            is_unknown = (codes == -2) & labels.is_not_null()
            if is_unknown.any() and are_distinct:
                stripped_codes = places_among(labels.str.strip_chars(), stripped)
                codes = codes.set(is_unknown, None).fill_null(stripped_codes)
            codes = self._by_codes(name, codes, categories)

        is_missing = self.cells(name).is_null()
        if kind is float:
            is_missing = is_missing | labels.is_nan()
        missing_mask = is_missing.fill_null(False).to_numpy()
        return np.where(missing_mask, np.int32(-1), codes.to_numpy())

    def _by_codes(
        self, name: str, places: pl.Series, categories: Sequence[str]
    ) -> pl.Series:
        """Find a code of SPSS, Stata or SAS whose label is not among categories, as `lookup`."""
        if not self.value_labels(name):
            return places
        code_texts = texts_of(self.cells(name)).str.strip_chars()
        is_unknown = (places == -2).fill_null(False)
        return places.set(is_unknown, None).fill_null(
            places_among(code_texts, categories)
        )

    def numbers(self, name: str, form: str | None = None) -> pl.Series:
        """Read each cell as a number, float64; null for a cell without a number.

        Text is read as `forms.number_form` of `form` says. A duration is a number of the unit that
        `form` names, else of seconds, and so is its text: durations beside other objects are texts.
        Booleans and datetimes are no numbers.
        """
        cells = self.cells(name)
        if cells.dtype == pl.String:
            return self._numbers_in_texts(cells, form)
        if cells.dtype == DURATION:
            unit = form if form in UNITS else "seconds"
            return durations_in(cells, unit)
        if cells.dtype in WHOLE or cells.dtype == pl.Float64:
            return cells.cast(pl.Float64)
        return pl.Series(name, [None] * len(cells), dtype=pl.Float64)

    def _numbers_in_texts(self, texts: pl.Series, form: str | None) -> pl.Series:
        """Read texts of a column as numbers, or as durations in a unit; see `numbers`."""
        text_form = None if form in UNITS else form
        numbers = numbers_of(texts, text_form, self.decimal(texts.name))
        if numbers.null_count() == texts.null_count():
            return numbers
        unit = form if form in UNITS else "seconds"
        return numbers.fill_null(durations_in(durations_of(texts), unit))

    def whole_numbers(
        self, name: str, form: str | None = None
    ) -> tuple[pl.Series, pl.Series]:
        """Round the numbers in cells to int64, and return also which of them were whole.

        Both are those of `parsing.whole_numbers_of`; null where a cell holds no number.
        """
        cells = self.cells(name)
        if cells.dtype in WHOLE:
            return cells.cast(pl.Int64), cells.is_not_null()

        # Digits of plain text may be more than a double holds; a form has other marks in them.
        is_plain = form is None or form in UNITS
        exact_texts = cells if is_plain and cells.dtype == pl.String else None
        return whole_numbers_of(self.numbers(name, form), exact_texts)

    def holds_whole(self, name: str) -> bool:
        """Return whether a column's type holds whole numbers alone."""
        return self.cells(name).dtype in WHOLE

    def times(self, name: str, pattern: str | None = None) -> pl.Series:
        """Read each cell as a datetime in UTC; null for a cell without a datetime.

        Text is read by the pattern (``strptime`` codes), as ISO-8601 when None; with a pattern,
        so are the digits of whole numbers, such as 20240131.
        """
        cells = self.cells(name)
        if cells.dtype == DATETIME:
            return cells

        has_digits = cells.dtype in WHOLE or cells.dtype == pl.Float64
        if cells.dtype == pl.String or (has_digits and pattern is not None):
            texts = texts_of(cells)
            times = times_of(texts, pattern)
            # Excel's own dates are ISO-8601 text here, beside those that were typed as text; so are
            # those of pandas in a column that holds anything else.
            if self._origin.is_sheet or self._origin.kind == "pandas":
                times = times.fill_null(times_of(texts))
            return times
        return pl.Series(name, [None] * len(cells), dtype=DATETIME)

    def unread(self, name: str, form: str | None = None) -> np.ndarray:
        """Return the rows whose text is no number, plainly or in a form, or an infinite one."""
        series = self._typed_column(name)
        if series.dtype != pl.String:
            is_infinite = self.finite(name).missing(name) & ~self.missing(name)
            return np.flatnonzero(is_infinite)
        numbers = self._numbers_in_texts(series, form)
        is_unread = series.is_not_null() & numbers.is_null()
        return np.flatnonzero(is_unread.to_numpy())

    # All cells of a column as numbers or datetimes; SchemaError for a cell that is none.

    def integers(
        self, name: str, form: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as int64 and its mask of missing; SchemaError unless all are whole.

        Text is read as `forms.number_form` of `form` says.
        """
        numbers = self._required_numbers(name, "whole numbers", form)
        values, is_whole = self.whole_numbers(name, form)
        is_missing = numbers.is_null()
        is_infinite = numbers.is_infinite() & ~is_missing
        is_broken = ~is_whole & ~is_missing

        infinite_rows = self.rows_of(is_infinite.to_numpy())
        broken_rows = self.rows_of(is_broken.to_numpy())
        check_numbers(name, infinite_rows, broken_rows)
        return values.fill_null(0).to_numpy(), is_missing.to_numpy()

    def floats(
        self, name: str, form: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as float64 and its mask of missing (0.0 there), or SchemaError.

        Text is read as `forms.number_form` of `form` says.
        """
        numbers = self._required_numbers(name, "numbers", form)
        is_missing = numbers.is_null().to_numpy()
        return numbers.fill_null(0.0).to_numpy(), is_missing

    def _required_numbers(self, name: str, wanted: str, form: str | None) -> pl.Series:
        """Return a column's numbers, null for missing values; SchemaError for other cells."""
        numbers = self.numbers(name, form)
        is_unread = numbers.is_null() & self.cells(name).is_not_null()
        unread_rows = self.rows_of(is_unread.to_numpy())
        self.check_read(name, unread_rows, wanted, form)
        return numbers.fill_nan(None)

    def check_read(self, name: str, wrong: int, wanted: str, form: str | None) -> None:
        """Raise SchemaError where so many rows, if any, hold no number."""
        if not wrong:
            return
        if self.cells(name).dtype == pl.String:
            form_text = ""
            if form and form not in UNITS:
                form_text = f" written like {form!r}"
            raise SchemaError(
                f"column {name!r}: {count_of(wrong, 'row holds', 'rows hold')} text, but the "
                f"schema says {wanted}{form_text}; correct it, or list it in missing_values"
            )
        raise SchemaError(
            f"column {name!r} holds {self.kind(name)}, but the schema says {wanted}"
        )

    def datetimes(
        self, name: str, pattern: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as int64 microseconds since 1970 (UTC), and its mask of missing.

        Text is read by the pattern (``strptime`` codes), as ISO-8601 when None.

        Raises:
            SchemaError: When values are no datetimes, or text does not follow the format.
        """
        times = self.times(name, pattern)
        is_missing = self.cells(name).is_null().to_numpy()
        is_unread = times.is_null().to_numpy() & ~is_missing
        self.check_times(name, self.rows_of(is_unread), pattern)
        return times.cast(pl.Int64).fill_null(0).to_numpy(), is_missing

    def check_times(self, name: str, wrong: int, pattern: str | None) -> None:
        """Raise SchemaError where so many rows, if any, hold no datetime."""
        if not wrong:
            return
        if self.cells(name).dtype == pl.String or pattern is not None:
            raise SchemaError(
                f"column {name!r}: {count_of(wrong, 'row does', 'rows do')} not follow the "
                f"datetime format {pattern or 'ISO-8601'!r}; correct the column's format in "
                "the schema"
            )
        raise SchemaError(
            f"column {name!r} holds {self.kind(name)}, but the schema says datetime"
        )


def _text_or_empty(value: Any) -> Any:
    """Return a value; of a missing one, an empty text."""
    return "" if value is None else value


def _renamed_keys(facts: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return facts about columns by the columns' new names."""
    return {names.get(name, name): fact for name, fact in facts.items()}


def _as_type_of(
    old_cells: pl.Series,
    new_cells: pl.Series,
    column: TextFileColumn | None,
    decimal: str,
) -> pl.Series:
    """Convert new cells of a column to the type of its old ones, or to one that holds both."""
    if old_cells.dtype == new_cells.dtype or old_cells.dtype == pl.Null:
        return new_cells
    if old_cells.dtype == pl.String:
        digits = 0
        if column is not None:
            digits = column.padded or 0
        texts = with_zeros(new_cells, digits)
        return texts.str.replace(".", decimal, literal=True)
    if old_cells.dtype in WHOLE and new_cells.dtype == pl.Float64:
        is_whole = bool((new_cells == new_cells.round()).all())
        return new_cells.cast(old_cells.dtype) if is_whole else new_cells
    return new_cells.cast(old_cells.dtype)


def check_numbers(name: str, wild: int, wrong: int = 0) -> None:
    """Raise SchemaError if rows hold infinite numbers, or none that are whole where they must.

    `wild` and `wrong` are the numbers of such rows.
    """
    problems = (
        (wild, "infinite numbers; correct them, or leave them empty"),
        (wrong, "no whole number; declare it continuous, or round its values"),
    )
    for num_rows, problem in problems:
        if num_rows:
            rows_hold = count_of(num_rows, "row holds", "rows hold")
            raise SchemaError(f"column {name!r}: {rows_hold} {problem}")


# Digests, by which a party recognises what it has read before


def digest_of(*facts: Any) -> bytes:
    """Hash facts to 32 bytes, which are equal for equal facts and differ otherwise.

    A party recognises its rows by them; they never leave it. Facts are tables, whose rows and
    columns count in their order, whatever frame they came from; arrays; and what MessagePack can
    write.
    """
    digest = blake2b(digest_size=32)
    for fact in facts:
        for piece in _pieces(fact):
            # Its length goes first: otherwise "ab", "c" and "a", "bc" would agree.
            digest.update(len(piece).to_bytes(8, "big"))
            digest.update(piece)
    return digest.digest()


def _pieces(fact: Any) -> Iterator[bytes]:
    """Yield the bytes of a table, an array, or anything that MessagePack can write."""
    if isinstance(fact, Table):
        for name in fact.names:
            yield msgspec.msgpack.encode((name, fact.kind(name)))
            yield from _pieces(fact.values(name))
            yield from _pieces(fact.missing(name))
    elif isinstance(fact, np.ndarray) and fact.dtype.kind != "O":
        yield f"{fact.dtype.str}{fact.shape}".encode()
        yield fact.tobytes()
    else:
        # An array of objects has addresses for bytes.
        values = fact.tolist() if isinstance(fact, np.ndarray) else fact
        yield msgspec.msgpack.encode(values)
