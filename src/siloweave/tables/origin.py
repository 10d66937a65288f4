"""What a table remembers of its source: the kind of frame or file, and facts about columns.

Columns of text files, and of files of SPSS, Stata and SAS, hold all cells of the file here, so that
whoever looks at the table without a schema sees each column in one type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from siloweave.tables.decimals import padded_decimals
from siloweave.tables.dialect import Dialect
from siloweave.tables.native_types import datetime_type, declared_type
from siloweave.tables.parsing import (
    DATETIME,
    DURATION,
    UNITS,
    WHOLE,
    durations_of,
    flags_of,
    numbers_of,
    texts_of,
    times_of,
)
from siloweave.tables.statistical_files import Variable

Frame = Literal["pandas", "polars", "arrow", "file", "csv"]
"""Where a table came from; "file" is a Parquet file, or arrays."""
# Rows by which most columns of text are recognised.
_FIRST_ROWS = 200
# Share of rows whose codes may lack a label in a column of labelled ones.
_MOST_UNLABELLED = 0.02


@dataclass(frozen=True, eq=False)
class TextFileColumn:
    """A column of a text file: its cells as they are written, and the type that all of them fit.

    The type is for whoever looks at a table without a schema. Under a schema a cell is read from
    its text and its declared column, see `tables.cells`, so that no other cell matters.

    Attributes:
        cells: The cells of all rows of the file, as text.
        decimal: The mark before decimals.
        type: What the file itself says of the column; else the narrowest that every cell fits.
    """

    cells: pl.Series
    decimal: str = "."
    type: Any = None

    @cached_property
    def dtype(self) -> Any:
        """The column's type."""
        if self.type is not None:
            return self.type
        return _narrowest(self.cells, self.decimal).dtype

    @cached_property
    def padded(self) -> int | None:
        """The fewest decimals of a number, see `padded_decimals`; None without numbers."""
        if self.dtype != pl.Float64:
            return None
        return padded_decimals(self.cells, self.decimal)

    def typed(self, cells: pl.Series) -> pl.Series:
        """Return some of the cells in the column's type."""
        if self.dtype in WHOLE:
            return cells.str.strip_chars().cast(self.dtype)
        if self.dtype == pl.Float64:
            return numbers_of(cells, decimal=self.decimal).fill_nan(None)
        if self.dtype == pl.Boolean:
            return flags_of(cells)
        if self.dtype == pl.Null:
            return pl.Series(cells.name, [None] * len(cells), dtype=pl.Null)
        if self.dtype == DATETIME:
            return times_of(cells)
        if self.dtype == DURATION:
            return durations_of(cells)
        return cells


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """A column of a file of SPSS, Stata or SAS: its cells as codes, and the codes' labels.

    Under a schema a cell is read from its code, or its label, and its declared column. What looks
    at all cells here is the view of whoever has no schema.

    Attributes:
        cells: The cells of all rows of the file: numbers as float64, texts, datetimes.
        variable: The entry of the file's dictionary.
        is_recoded: Whether some codes were replaced by texts; values are then their labels.
    """

    cells: pl.Series
    variable: Variable
    is_recoded: bool = False

    @cached_property
    def _unlabelled_values(self) -> list[Any]:
        """The values without a label, in order."""
        labels = self.variable.labels
        values = self.cells.drop_nulls().unique().sort().to_list()
        return [value for value in values if value not in labels]

    @cached_property
    def is_labelled(self) -> bool:
        """Whether the values are labels: nearly all rows hold a code that has a label.

        Where labels are at the ends of a scale alone, or name only missing values, they are not.
        """
        if self.is_recoded:
            return True
        if not self.variable.labels:
            return False

        unlabelled = self._unlabelled_values
        unlabelled_rows = 0
        if unlabelled:
            unlabelled_rows = int(self.cells.is_in(unlabelled).sum())

        # At the ends of a scale alone, most values lack a label, in however few rows.
        num_values = self.cells.drop_nulls().n_unique()
        has_few_unlabelled = 2 * len(unlabelled) <= num_values
        most_rows = _MOST_UNLABELLED * self.cells.count()
        return has_few_unlabelled and unlabelled_rows <= most_rows

    @cached_property
    def levels(self) -> tuple[str, ...] | None:
        """The labels in the order of their codes (used or not), and the texts of other codes."""
        if not self.is_labelled:
            return None
        labels = self.variable.labels.values()
        unlabelled = pl.Series(self._unlabelled_values, dtype=self.cells.dtype)
        texts = [*labels, *texts_of(unlabelled).to_list()]
        # Two codes may have the same label; the first decides its place.
        return tuple(dict.fromkeys(texts))

    def texts(self, cells: pl.Series) -> pl.Series:
        """Return the label of each code; of one without a label, its text."""
        labels = self.variable.labels
        if not labels:
            return texts_of(cells)

        codes = cells
        if cells.dtype == pl.String:
            codes = cells.str.strip_chars()
        cell_labels = codes.replace_strict(
            pl.Series(list(labels), dtype=codes.dtype),
            pl.Series(list(labels.values())),
            default=None,
            return_dtype=pl.String,
        )
        return cell_labels.fill_null(texts_of(cells))

    def typed(self, cells: pl.Series) -> pl.Series:
        """Return some of the cells as labels, or numbers without decimals as whole ones."""
        if self.is_labelled:
            return self.texts(cells)
        if self.cells.dtype != pl.Float64:
            return cells

        # These programs store all numbers as doubles. Beyond 2^53 a double skips whole numbers.
        values = self.cells.drop_nulls()
        is_whole = (values == values.round()) & (values.abs() < 2.0**53)
        if len(values) and bool(is_whole.all()):
            return cells.cast(pl.Int64)
        return cells


@dataclass(frozen=True)
class Origin:
    """The source of a table, and facts about it that its frame does not hold.

    Attributes:
        kind: The kind of frame or file.
        dtypes: Types of a frame's columns, as its library has them.
        types: Declared types instead, and whether a value may be missing.
        dialect: How a text file was written.
        blank_lines: Lines of a text file, or rows of a sheet, that are no rows.
        num_unnamed: How many columns at the end of a text file have neither name nor value.
        row_counts: How many rows each row stands for; None for one.
        source_rows: How many rows the table has that these were drawn from; None if they were not.
        text_columns: All cells of the columns that are text in the file.
        padded: Decimals of numbers that have few.
        has_keys: Whether each row names its columns, so that one may lack some.
        file_types: Types that the file gives its columns.
        zones: Time zones of datetimes, which a table has in UTC.
        hint: How the one column of a text file seems to be divided.
        coded_columns: All cells of the columns of SPSS, Stata or SAS.
        units: Units in which durations are seen as numbers.
        has_index: Whether pandas stored an index without a name, which is no column here.
        notes: What a sheet shows otherwise than it is read, a sentence each.
        nested: The first row, from 0, of each column in which a cell holds several values.
    """

    kind: Frame = "file"
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, tuple[type, bool]] = field(default_factory=dict)
    dialect: Dialect | None = None
    blank_lines: tuple[int, ...] = ()
    num_unnamed: int = 0
    row_counts: NDArray[np.int64] | None = None
    source_rows: int | None = None
    text_columns: Mapping[str, TextFileColumn] = field(default_factory=dict)
    padded: Mapping[str, int] = field(default_factory=dict)
    has_keys: bool = False
    file_types: Mapping[str, Any] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    coded_columns: Mapping[str, CodedColumn] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    has_index: bool = False
    notes: tuple[str, ...] = ()
    nested: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether the source holds nothing but text, as a CSV or a sheet of Excel does."""
        return self.kind == "csv"

    @property
    def is_sheet(self) -> bool:
        """Whether the source is a sheet of Excel, whose dates come as ISO-8601 text."""
        return self.is_text and self.dialect is None

    def native_types(self, kind: str) -> dict[str, Any]:
        """Return each column's type in a pandas, arrow or polars frame, if it is known."""
        types = dict(self.dtypes)
        for name, (python_type, may_miss) in self.types.items():
            types[name] = declared_type(kind, python_type, may_miss=may_miss)
        for name, zone in self.zones.items():
            types[name] = datetime_type(kind, zone)
        return types


# Types that texts fit


def _narrowest(texts: pl.Series, decimal: str = ".") -> pl.Series:
    """Convert a CSV column to the narrowest type that all values fit without losing a text."""
    # Most columns of text are recognised by their first rows: whatever the others are, it is text.
    first_texts = texts.drop_nulls().head(_FIRST_ROWS).str.strip_chars()
    is_no_number = first_texts.cast(pl.Float64, strict=False).is_null()
    is_neither = is_no_number & flags_of(first_texts).is_null()
    if decimal == "." and is_neither.any():
        return texts

    stripped = texts.str.strip_chars()
    values = stripped.drop_nulls()
    # Leading zeros and plus signs would be lost.
    if values.is_empty() or values.str.contains(r"^[+-]?0\d|^\+").any():
        return texts
    if values.cast(pl.Int64, strict=False).null_count() == 0:
        return stripped.cast(pl.Int64)
    has_letter = values.str.contains("[eE]").any()
    if has_letter and are_codes_like_powers(values.unique()):
        return texts
    # Digits of an identifier, which no double holds.
    if values.str.contains(r"^[+-]?\d{17,}$").any():
        return texts

    with_points = _with_points(stripped, decimal)
    if with_points is None:
        return texts
    numbers = with_points.drop_nulls().cast(pl.Float64, strict=False)
    if numbers.null_count() == 0:
        return with_points.cast(pl.Float64)
    return _flags_or_texts(texts, values)


def are_codes_like_powers(texts: Iterable[str]) -> bool:
    """Return whether texts such as 2E10 are codes, and not numbers with a power of ten.

    Programs write such numbers with a sign or a point, as 2E+10 and 2.0E10: where none has these,
    the letter is one of a code.

    Example:
        >>> are_codes_like_powers(["2E10", "305"]), are_codes_like_powers(["2E10", "0.5"])
        (True, False)
    """
    have_powers = False
    for text in texts:
        if re.search(r"[-+.,]", text):
            return False
        have_powers = have_powers or bool(re.fullmatch(r"\d+[eE]\d+", text))
    return have_powers


def _with_points(texts: pl.Series, decimal: str) -> pl.Series | None:
    """Return texts of numbers with points before decimals alone; None where a text may be lost."""
    values = texts.drop_nulls()
    if decimal == ".":
        # 1.234 beside 567
        return None if _has_thousands(values) else texts

    pointed = values.filter(values.str.contains(".", literal=True))
    is_grouped = pointed.str.contains(r"^[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?$")
    if not is_grouped.all():
        return None
    without_points = texts.str.replace_all(".", "", literal=True)
    return without_points.str.replace(",", ".")


def _flags_or_texts(texts: pl.Series, values: pl.Series) -> pl.Series:
    """Convert a column to booleans if all its values are such, and would be written alike.

    Args:
        texts: All cells.
        values: Those that hold something, without blanks around them.
    """
    spellings = values.unique()
    lower = spellings.str.to_lowercase()
    has_capitals = not lower.equals(spellings)
    # Where each value has one spelling, such as TRUE, a text is drawn with its capitals again.
    keeps_capitals = has_capitals and lower.n_unique() == len(spellings)
    if keeps_capitals or flags_of(spellings).has_nulls():
        return texts
    return flags_of(texts)


def _has_thousands(values: pl.Series) -> bool:
    """Return whether points divide thousands: three digits behind each, at most three before."""
    has_point = values.str.contains(".", literal=True)
    pointed = values.filter(has_point)
    plain = values.filter(~has_point)
    if not len(pointed) or not len(plain):
        return False
    is_grouped = pointed.str.contains(r"^[+-]?[1-9]\d{0,2}\.\d{3}$")
    is_short = plain.str.contains(r"^[+-]?\d{1,3}$")
    return bool(is_grouped.all()) and bool(is_short.all())


# Units of durations


def units_of(frame: pl.DataFrame) -> dict[str, str]:
    """Return the unit in which each column of durations counts as numbers, by column."""
    units = {}
    for column in frame.get_columns():
        if column.dtype == DURATION:
            units[column.name] = whole_unit(column)
    return units


def whole_unit(durations: pl.Series) -> str:
    """Return the largest unit of which all durations are whole multiples, down to seconds."""
    micros = durations.drop_nulls().cast(pl.Int64)
    # A duration of 0 is a multiple of every unit.
    if not (micros != 0).any():
        return "seconds"
    for unit in ("days", "hours", "minutes"):
        if not (micros % UNITS[unit] != 0).any():
            return unit
    return "seconds"
