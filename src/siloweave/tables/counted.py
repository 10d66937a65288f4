"""Rows of a database as codes that never leave it: every count is a GROUP BY.

A column of numbers or datetimes becomes its code in SQL, by comparisons with the edges of its bins.
Any other column is grouped by its values first: these are coded here, as a table's are, and their
codes are joined to the rows. So codes, and errors about values outside the schema, are those of
`Encoder.encode` on the table that `read` gives.

Cliques are counted together: those that share columns in one grouping of all their columns, as long
as it has few cells, and many groupings in one pass over the rows.

**Guarantee**: a row's codes are a function of its cells and of the schema. Values are grouped and
joined byte by byte (`Database.rows`), so no row gets another's spelling; where columns move what
does not fit (``outside="move"``), no cell is refused; and how many different values there are
decides where rows are counted, not whether. So the counts of two tables that differ by a row differ
by that row, as `tables.cells` has it for a table in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import prod
from sys import float_info
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from siloweave.errors import CapacityError, DataError
from siloweave.tables.arrays import Ints
from siloweave.tables.bins import (
    fallback_of,
    has_implied_days,
    last_of,
    octave_starts,
    octaves,
    rounding_error,
    step_of,
)
from siloweave.tables.cells import check_days, check_fit
from siloweave.tables.codes import Clique, Codes, CountedRows, Domain, Encoder
from siloweave.tables.column import Column
from siloweave.tables.database import BYTES, Database, DatabaseKind, quoted
from siloweave.tables.forms import numbers_among
from siloweave.tables.parsing import DATETIME, DURATION, LARGEST, texts_of
from siloweave.tables.read import read, rows_of
from siloweave.tables.schema import check_columns
from siloweave.tables.table import Table, check_numbers, digest_of

# Cells of a grouping that answers several cliques; and of one clique.
_MOST_SHARED_CELLS = 2**16
_MOST_CELLS = 2**26
# Different values of columns whose codes are looked up.
_MOST_VALUES = 1_000_000
# Bins up to which a code is found by halving.
_MOST_HALVED = 32
# In place of a code: a value is missing, outside, not whole or infinite where none may be; and a
# cell of SQLite that is no number, and is looked up.
_MISSING = -1
_OUTSIDE = -2
_BROKEN = -3
_INFINITE = -4
_ODD = -5
_BINNED: Mapping[str, tuple[str, ...]] = {
    "integer": ("whole", "number", "cells"),
    "continuous": ("whole", "number", "cells"),
    "datetime": ("datetime",),
}
"""Kinds of columns, and of what families the database finds their bins itself."""


@dataclass(frozen=True, eq=False)
class DatabaseCodes:
    """The rows of a database as codes that stay there; conforms to `codes.CountedRows`.

    Args:
        database: Where they are.
        domain: The codes' attributes, and how many codes each has.
        values: SQL of each column's code; NULL where a row does not fit.
        head: What gives the codes that are looked up; begins a query.
        rows: What `values` are selected from.
        num_rows: How many there were when they were checked.
        planned: Cliques that will be asked for, and are counted together with the first.
        marginals: What was counted, by clique.
        moved: By column, how many cells were put where the schema declares, since they have no
            place of their own. They are of the rows: for their owner alone.
    """

    database: Database
    domain: Domain
    values: Mapping[str, str]
    head: str
    rows: str
    num_rows: int
    planned: tuple[Clique, ...] = ()
    marginals: dict[Clique, Ints] = field(default_factory=dict)
    moved: Mapping[str, int] = field(default_factory=dict)

    def count(self, cliques: Sequence[Sequence[str]]) -> list[Ints]:
        """Count the rows in every cell of each clique.

        Raises:
            DataError: The database is away, or rows were changed meanwhile.
            CapacityError: A clique has too many cells.
        """
        requested = [tuple(clique) for clique in cliques]
        new_cliques = self._without_counted(requested)
        if new_cliques:
            # One pass over the rows is the cost, so the planned cliques are counted with it.
            planned = self._without_counted(self.planned)
            distinct = dict.fromkeys([*new_cliques, *planned])
            self._count(list(distinct))
        return [self.marginals[clique] for clique in requested]

    def _without_counted(self, cliques: Sequence[Clique]) -> list[Clique]:
        """Return the cliques that are not counted yet."""
        return [clique for clique in cliques if clique not in self.marginals]

    def digest(self) -> bytes:
        """Return bytes that are equal for the same rows, by what was asked and single columns."""
        return _digest(self, self.database)

    def _count(self, cliques: Sequence[Clique]) -> None:
        """Count cliques, in as few groupings as their sizes allow, and store the counts."""
        for clique in cliques:
            num_cells = self.domain.size(clique)
            if num_cells > _MOST_CELLS:
                raise CapacityError(
                    f"the clique {', '.join(clique)} has {num_cells:,} cells, and a database "
                    f"counts {_MOST_CELLS:,} at most; use fewer columns or bins"
                )
        blocks = self._blocks(cliques)

        # Codes are computed once, in an inner query; outside it a block's cell is a sum of them.
        names = self.domain.canonical(chain.from_iterable(blocks))
        aliases = {name: f"c{i}" for i, name in enumerate(names)}
        columns = [f"{self.values[name]} AS {alias}" for name, alias in aliases.items()]
        fence = self.database.sql.fence
        rows = f"(SELECT {', '.join(columns)} FROM {self.rows}{fence}) AS coded"
        keys = [self._cell_number(block, aliases) for block in blocks]
        frames = self.database.grouped(keys, self.head, rows, numbers=True)

        for block, frame in zip(blocks, frames, strict=True):
            table = self._block_table(block, frame)
            for clique in cliques:
                if clique not in self.marginals and set(clique) <= set(block):
                    self.marginals[clique] = _marginal_of(table, block, clique)

    def _block_table(self, block: Clique, frame: pl.DataFrame) -> Ints:
        """Return the counts of a block's cells as an array with one axis per column."""
        cells = frame["v"]
        cell_counts = frame["n"].to_numpy()
        # A new row may be outside the schema, or one too many; neither was checked.
        if cells.null_count() or int(cell_counts.sum()) != self.num_rows:
            raise DataError(
                f"{self.database.address}: rows were changed while they were counted; count a "
                "copy or a snapshot of the table, and start the run again"
            )
        counts = np.zeros(self.domain.size(block), dtype=np.int64)
        counts[cells.to_numpy().astype(np.int64)] = cell_counts
        return counts.reshape(self.domain.shape(block))

    def _blocks(self, cliques: Sequence[Clique]) -> list[Clique]:
        """Return a few sets of columns, of few cells each, that together hold all cliques."""
        blocks: list[set[str]] = []
        # Large cliques first, so that small ones find a block that holds them.
        for clique in sorted(map(set, cliques), key=len, reverse=True):
            block = self._block_for(clique, blocks)
            if block is None:
                blocks.append(clique)
            else:
                block.update(clique)
        return [self.domain.canonical(block) for block in blocks]

    def _block_for(
        self, clique: set[str], blocks: Sequence[set[str]]
    ) -> set[str] | None:
        """Return a block that holds a clique, or that stays small with it; None without either."""
        for block in blocks:
            if clique <= block:
                return block
        for block in blocks:
            joined = tuple(block | clique)
            if self.domain.size(joined) <= _MOST_SHARED_CELLS:
                return block
        return None

    def _cell_number(self, block: Clique, aliases: Mapping[str, str]) -> str:
        """Write SQL for the number of a row's cell in a table of some columns, in C order."""
        terms = []
        for place, name in enumerate(block):
            stride = prod(self.domain.shape(block[place + 1 :]))
            terms.append(f"{aliases[name]} * {stride}")
        return f"CAST({' + '.join(terms)} AS BIGINT)"


def _marginal_of(table: Ints, block: Clique, clique: Clique) -> Ints:
    """Sum the counts of a block to those of a clique in it."""
    other_axes = tuple(axis for axis, name in enumerate(block) if name not in clique)
    remaining_names = [name for name in block if name in clique]
    clique_axes = [remaining_names.index(name) for name in clique]
    marginal = table.sum(axis=other_axes).transpose(clique_axes)
    return np.ascontiguousarray(marginal)


def counted(
    database: Database, encoder: Encoder, planned: Sequence[Clique] = ()
) -> DatabaseCodes | _RowsHere:
    """Check that a database's rows fit a schema, and return their codes, which stay there.

    Where columns that are looked up have more than a million different values, the rows are read
    here instead, some at a time, and only their codes are kept.

    Args:
        database: With every coded column of the schema, and none that it lacks.
        encoder: How columns are coded. Numbers beyond bounds that were learned are moved inside.
        planned: Cliques that will be asked for.

    Raises:
        SchemaError: As of `Encoder.encode`.
        DataError: The database is away, or refuses the query.
    """
    check_columns(encoder.schema, rows_of(database, 0))
    columns = encoder.schema.coded
    codings = [_Coding(column, encoder, database) for column in columns]
    first_keys = [coding.first_key for coding in codings]
    frames = database.grouped(first_keys, most=_MOST_VALUES)
    # No frame: a column has more values than may be looked up.
    if codings and not frames:
        return _coded_here(database, encoder)

    code_tables: list[str] = []
    joins = [database.rows]
    values: dict[str, str] = {}
    marginals: dict[Clique, Ints] = {}
    moved: Counter[str] = Counter()
    num_rows = 0 if codings else database.num_rows
    for coding, frame in zip(codings, frames, strict=True):
        name = coding.column.name
        num_rows = int(frame["n"].cast(pl.Int64).sum())
        counts = np.zeros(coding.size, dtype=np.int64)
        groups = frame
        if coding.is_binned:
            moved[name] += coding.add_binned(frame, counts)
            odd_groups = coding.odd_groups(frame)
            if odd_groups is None:
                return _coded_here(database, encoder)
            groups = odd_groups

        # Cells whose different values are coded here, as a table's are, and joined to the rows.
        looked_up = _look_up(coding, groups)
        group_rows = groups["n"].cast(pl.Int64).to_numpy()
        np.add.at(counts, looked_up.codes, group_rows)
        marginals[(name,)] = counts
        moved[name] += looked_up.moved
        code_sql = coding.rest
        if looked_up.pairs:
            table = f"m{len(code_tables)}"
            pairs = [f"({value}, {code})" for value, code in looked_up.pairs]
            code_tables.append(f"{table}(v, c) AS (VALUES {', '.join(pairs)})")
            joins.append(f"LEFT JOIN {table} ON {coding.match(f'{table}.v')}")
            code_sql = f"COALESCE({table}.c, {code_sql})"
        if coding.is_binned:
            code_sql = coding.direct(checked=False, odd=code_sql)
        values[name] = code_sql

    head = f"WITH {', '.join(code_tables)} " if code_tables else ""
    return DatabaseCodes(
        database=database,
        domain=encoder.domain,
        values=values,
        head=head,
        rows=" ".join(joins),
        num_rows=num_rows,
        planned=tuple(planned),
        marginals=marginals,
        moved={name: count for name, count in moved.items() if count},
    )


@dataclass(frozen=True, eq=False)
class _RowsHere:
    """The rows of a database as codes in memory; conforms to `codes.CountedRows`.

    Args:
        database: Where they are.
        codes: The codes of each row.
        moved: How many cells of each column were moved, see `DatabaseCodes`.
    """

    database: Database
    codes: Codes
    moved: Mapping[str, int]

    @property
    def domain(self) -> Domain:
        """The domain of the codes."""
        return self.codes.domain

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.codes.num_rows

    def count(self, cliques: Sequence[Sequence[str]]) -> list[Ints]:
        """Count the rows in every cell of each clique."""
        return self.codes.count(cliques)

    def digest(self) -> bytes:
        """Return bytes that are equal for the same rows, in any order."""
        return _digest(self, self.database)


def _digest(rows: CountedRows, database: Database) -> bytes:
    """Hash what was asked, and the counts of single columns."""
    singles = [(name,) for name in rows.domain.names]
    source = (database.address, database.table, database.query)
    return digest_of(source, rows.domain.names, *rows.count(singles))


def _coded_here(database: Database, encoder: Encoder) -> _RowsHere:
    """Encode rows in memory, reading some at a time."""
    pieces = [encoder.read(read(piece)) for piece in database.pieces()]
    # A table without rows gives no piece, and is checked against the schema all the same.
    if not pieces:
        pieces = [encoder.read(rows_of(database, 0))]
    moved: Counter[str] = Counter()
    for piece in pieces:
        moved.update(piece.moved)
    codes = Codes.concat([piece.codes for piece in pieces])
    return _RowsHere(database, codes, dict(moved))


@dataclass(frozen=True)
class _LookedUp:
    """Groups of equal cells, encoded as a table's cells are.

    Attributes:
        codes: The code of each group.
        moved: How many rows' cells had no place of their own.
        pairs: Values in SQL and their codes, without those that have the code of the rest.
    """

    codes: Ints
    moved: int
    pairs: list[tuple[str, int]]


def _look_up(coding: _Coding, groups: pl.DataFrame) -> _LookedUp:
    """Encode the different values of a column, each by itself."""
    name = coding.column.name
    codes = np.zeros(groups.height, dtype=np.int64)
    moved = 0
    encoder = coding.encoder.select([name])
    for places, part in coding.parts(groups):
        coded_part = encoder.read(Table.of_counts(name, part))
        codes[places] = coded_part.codes.column(name)
        moved += coded_part.moved.get(name, 0)

    # A value that has the code of the rest needs no entry.
    keys = groups["v"].to_list()
    is_missing = groups["v"].is_null().to_list()
    rows = zip(keys, codes.tolist(), is_missing, strict=True)
    pairs = []
    for key, code, key_is_missing in rows:
        if not key_is_missing and code != coding.homeless:
            literal = _literal(key, coding.database)
            pairs.append((literal, code))
    return _LookedUp(codes, moved, pairs)


def _literal(value: Any, database: Database) -> str:
    """Write a value in SQL, with quotation marks in a text doubled."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, bytes) and database.kind == "sqlite":
        return f"X'{value.hex()}'"
    if isinstance(value, bytes):
        return _text_literal(value.decode())
    if isinstance(value, str):
        return _text_literal(value)
    if isinstance(value, float):
        return database.sql.real(value)
    return str(value)


def _text_literal(text: str) -> str:
    """Write a text in SQL, also one with a NUL, which no query may hold."""
    doubled_marks = text.replace("'", "''")
    without_nul = doubled_marks.replace("\0", "' || chr(0) || '")
    return f"'{without_nul}'"


def _mark(code: int, *, checked: bool) -> str:
    """Return the code of a cell that does not fit: a mark when rows are checked, else NULL."""
    return str(code) if checked else "NULL"


# A column in SQL


@dataclass(frozen=True)
class _Coding:
    """The SQL that turns the cells of one column into codes.

    Args:
        column: It is coded.
        encoder: How.
        database: Where its cells are.
    """

    column: Column
    encoder: Encoder
    database: Database

    @cached_property
    def size(self) -> int:
        """The number of codes of the column."""
        return self.encoder.domain.size_of(self.column.name)

    @cached_property
    def family(self) -> str:
        """The sort of values that the column holds in the database."""
        return self.database.family(self.column.name)

    @property
    def is_binned(self) -> bool:
        """Whether SQL computes the codes itself; of SQLite's columns, only those of numbers."""
        return self.family in _BINNED.get(self.column.kind, ())

    @property
    def moves(self) -> bool:
        """Whether cells that do not fit are moved to the place that the column declares."""
        return self.column.outside == "move"

    @property
    def cell(self) -> str:
        """The column in SQL."""
        return f"siloweave.{quoted(self.column.name)}"

    @property
    def is_missing(self) -> str:
        """SQL for whether a cell is empty, before spellings of a missing value are considered."""
        is_nan = ""
        if self.family == "number":
            is_nan = f" OR {self.database.sql.nan.format(self.cell)}"
        return f"{self.cell} IS NULL{is_nan}"

    @property
    def key(self) -> str:
        """SQL for a key that is equal exactly for equal cells; NULL for missing ones."""
        sql = self.database.sql
        if self.family in ("text", "cells"):
            return sql.binary.format(self.cell)
        if self.family == "datetime":
            return sql.microseconds.format(self.cell)
        if self.family == "number":
            # Adding 0.0 makes -0.0 the same key as 0.0.
            is_nan = sql.nan.format(self.cell)
            return f"CASE WHEN NOT {is_nan} THEN {self.cell} + 0.0 END"
        return self.cell

    @property
    def first_key(self) -> str:
        """SQL for the key by which rows are grouped when they are checked: codes, or values."""
        return self.direct(checked=True) if self.is_binned else self.key

    @property
    def _is_odd(self) -> str:
        """SQL for whether a cell of SQLite is no number."""
        return f"typeof({self.cell}) IN ('text', 'blob')"

    def match(self, value: str) -> str:
        """Write SQL for whether a cell's key is that of a listed value."""
        if self.family == "text":
            value = self.database.sql.binary.format(value)
        return f"{self.key} = {value}"

    def parts(self, groups: pl.DataFrame) -> list[tuple[Ints, pl.DataFrame]]:
        """Divide groups by the type of their values, with their places in the whole."""
        types: dict[str, Any] = {
            "text": pl.String,
            "datetime": DATETIME,
            "duration": DURATION,
        }
        everywhere = np.arange(groups.height)
        if self.family in types:
            typed_groups = groups.with_columns(pl.col("v").cast(types[self.family]))
            return [(everywhere, typed_groups)]
        if self.family != "cells":
            return [(everywhere, groups)]

        # A column of SQLite has several types, and a table in memory one.
        cells = [_cell(key) for key in groups["v"].to_list()]
        row_counts = groups["n"].to_numpy()
        parts = []
        for kind in (type(None), int, float, str):
            is_kind = [isinstance(cell, kind) for cell in cells]
            places = np.flatnonzero(is_kind)
            if len(places):
                values = pl.Series("v", [cells[place] for place in places])
                counts = pl.Series("n", row_counts[places])
                parts.append((places, pl.DataFrame([values, counts])))
        return parts

    # What becomes of a cell that does not fit

    @cached_property
    def _refuge(self) -> int | None:
        """The code of a missing cell in a column without missing values; None if it is refused."""
        column = self.column
        value = column.other if column.fallback is None else column.fallback
        if not self.moves or value is None:
            return None
        if column.is_binned:
            edges = self.encoder.edges(column.name)
            return int(np.searchsorted(edges[1:-1], fallback_of(column), side="right"))
        return column.options.index(value)

    @cached_property
    def homeless(self) -> int | None:
        """The code of a cell whose value the column lacks; None if it is refused."""
        if self._refuge is not None:
            return self._refuge
        if self.column.other is not None:
            return self.column.categories.index(self.column.other)
        # The last code is that of missing values.
        return self.size - 1 if self.moves and self.column.missing else None

    @property
    def _absent(self) -> int | None:
        """The code of a missing cell; None if it is refused."""
        return self.size - 1 if self.column.missing else self._refuge

    @property
    def rest(self) -> str:
        """SQL for the code of a value that was not listed."""
        return (
            f"CAST(CASE WHEN {self.is_missing} THEN {_or_null(self._absent)} "
            f"ELSE {_or_null(self.homeless)} END AS BIGINT)"
        )

    # Codes that the database finds

    def add_binned(self, groups: pl.DataFrame, counts: Ints) -> int:
        """Add groups of `direct(checked=True)` to counts; return how many rows' cells were moved.

        Raises:
            SchemaError: Cells do not fit.
        """
        codes = groups["v"].cast(pl.Int64).to_numpy()
        row_counts = groups["n"].cast(pl.Int64).to_numpy()

        def rows_with(mark: int) -> int:
            return int(row_counts[codes == mark].sum())

        # The order of a table in memory: the first error there is the first one here.
        name = self.column.name
        if self.column.is_datetime:
            check_days(name, rows_with(_BROKEN))
        else:
            check_numbers(name, rows_with(_INFINITE), rows_with(_BROKEN))
        check_fit(self.column, rows_with(_OUTSIDE), rows_with(_MISSING))

        # A code beyond the column's codes is that of a cell that was moved.
        is_code = codes >= 0
        np.add.at(counts, codes[is_code] % self.size, row_counts[is_code])
        return int(row_counts[codes >= self.size].sum())

    def odd_groups(self, groups: pl.DataFrame) -> pl.DataFrame | None:
        """Return the different cells that are no number, perhaps none; None if too many."""
        if not groups["v"].cast(pl.Int64).is_in([_ODD]).any():
            return groups.clear()
        key = f"CASE WHEN {self._is_odd} THEN {self.key} END"
        frames = self.database.grouped([key], most=_MOST_VALUES)
        if not frames:
            return None
        return frames[0].filter(pl.col("v").is_not_null())

    def direct(self, *, checked: bool, odd: str = "") -> str:
        """Write SQL for the code of a number or a datetime.

        Args:
            checked: Whether a cell that does not fit has a number below 0 instead of a code, and
                one that is moved a code that is larger by their number; without, NULL and the code.
            odd: SQL of the code of cells of SQLite that are no number.
        """
        offset = self.size if checked and self.moves else 0
        # The order counts: a comparison is true of cells that an earlier one has not taken.
        cases = []
        if self.family == "cells":
            odd_code = str(_ODD) if checked else odd
            cases.append(f"WHEN {self._is_odd} THEN {odd_code}")
        cases.append(self._missing_case(offset, checked=checked))
        cases += self._unfit_cases(checked=checked)
        cases += self._bound_cases(offset, checked=checked)

        # All others, in bins.
        number = self._number
        code = _by_octaves(self.column, self.encoder, number)
        if offset and number.is_whole and self.family != "whole":
            code = f"{code} + CASE WHEN {number.is_whole} THEN 0 ELSE {offset} END"
        return f"CASE {' '.join(cases)} ELSE {code} END"

    def _missing_case(self, offset: int, *, checked: bool) -> str:
        """Write the SQL case of missing cells, which are moved where none may be missing."""
        code = _mark(_MISSING, checked=checked)
        if self._absent is not None:
            is_moved = not self.column.missing
            code = str(self._absent + offset * is_moved)
        return f"WHEN {self.is_missing}{self._missing_marks} THEN {code}"

    def _unfit_cases(self, *, checked: bool) -> list[str]:
        """Write the SQL cases of cells that are no number of the column, unless it moves them."""
        if self.moves:
            return []
        cases = []
        kind = self.column.kind
        is_whole = self._number.is_whole
        broken = _mark(_BROKEN, checked=checked)
        if self.family in ("number", "cells"):
            # Beyond bounds that were learned, infinite numbers are the bounds, too.
            if not (self._has_learned_bounds and kind == "continuous"):
                largest = self._real(float_info.max)
                infinite = _mark(_INFINITE, checked=checked)
                is_infinite = f"{self.cell} > {largest} OR {self.cell} < -{largest}"
                cases.append(f"WHEN {is_infinite} THEN {infinite}")
            if self.column.is_whole:
                cases.append(f"WHEN NOT ({is_whole}) THEN {broken}")
        if kind == "datetime" and is_whole:
            cases.append(f"WHEN NOT ({is_whole}) THEN {broken}")
        return cases

    def _bound_cases(self, offset: int, *, checked: bool) -> list[str]:
        """Write the SQL cases of numbers beyond the bounds: marks, or the codes of the bounds."""
        low_code = _mark(_OUTSIDE, checked=checked)
        high_code = low_code
        if self.moves or self._has_learned_bounds:
            edges = self.encoder.edges(self.column.name)
            starts = edges[1:-1]
            low_bin = np.searchsorted(starts, edges[0], side="right")
            high_bin = np.searchsorted(starts, last_of(self.column), side="right")
            low_code = str(int(low_bin) + offset)
            high_code = str(int(high_bin) + offset)

        cases = []
        # What int64 does not hold would stop the query where it is cast to it below.
        is_rounded = self.column.is_whole and self.family == "number"
        if is_rounded and self.moves:
            smallest = self._real(-float(LARGEST))
            largest = self._real(float(LARGEST))
            cases.append(f"WHEN {self.cell} < {smallest} THEN {low_code}")
            cases.append(f"WHEN {self.cell} > {largest} THEN {high_code}")
        is_below, is_above = self._beyond
        cases.append(f"WHEN {is_below} THEN {low_code}")
        cases.append(f"WHEN {is_above} THEN {high_code}")
        return cases

    @property
    def _has_learned_bounds(self) -> bool:
        """Whether the bounds were learned from rows, so that other rows may lie beyond them."""
        return {"low", "high"} <= set(self.column.learned)

    def _real(self, value: float) -> str:
        """Write a float64 in SQL, exactly."""
        return self.database.sql.real(value)

    @cached_property
    def _missing_marks(self) -> str:
        """SQL for whether a cell is a declared spelling of a missing value; begins with OR."""
        spellings = self.column.missing_values
        if self.family == "datetime":
            marks = [str(time) for time in _times_among(spellings)]
            value = self.database.sql.microseconds.format(self.cell)
        else:
            marks = [self._real(number) for number in _all_numbers_among(spellings)]
            value = self.cell
        return f" OR {value} IN ({', '.join(marks)})" if marks else ""

    @cached_property
    def _number(self) -> _Number:
        """SQL for the number of a cell."""
        if self.column.is_continuous:
            return self._real_number()
        if self.column.is_datetime:
            return self._time_number()
        if self.family == "whole":
            return self._whole_number()
        return self._rounded_number()

    def _whole_number(self) -> _Number:
        """Write SQL for the number of a cell whose type holds whole numbers only."""
        cell = self.cell
        return _Number(
            value=cell,
            is_below=lambda edge: f"{cell} < {int(edge)}",
            is_whole="TRUE",
            step=1,
            database=self.database,
        )

    def _real_number(self) -> _Number:
        """Write SQL for the number of a cell in a column of numbers."""
        real = self.database.sql.real
        value = f"CAST({self.cell} AS DOUBLE PRECISION)"
        return _Number(
            value=value,
            is_below=lambda edge: f"{value} < {real(float(edge))}",
            is_whole="",
            step=1,
            database=self.database,
        )

    def _time_number(self) -> _Number:
        """Write SQL for the microseconds of a cell in a column of datetimes."""
        cell = self.cell
        sql = self.database.sql
        step = step_of(self.column)
        value = sql.microseconds.format(cell)
        is_day = f"{value} % {step} = 0" if has_implied_days(self.column) else ""

        def is_below(edge: Any) -> str:
            micros = int(edge) * step
            # Some databases compare timestamps faster than what is computed from them.
            if sql.time:
                return f"{cell} < {_time(sql, micros)}"
            return f"{value} < {micros}"

        return _Number(
            value=value,
            is_below=is_below,
            is_whole=is_day,
            step=step,
            database=self.database,
        )

    def _rounded_number(self) -> _Number:
        """Write SQL for the whole number of a cell that may have decimals."""
        cell = self.cell
        # Rounds half to even in DuckDB and PostgreSQL, and cuts decimals off in SQLite.
        integer = f"CAST({cell} AS BIGINT)"
        if self.family == "number":
            is_within = f"{cell} > {-LARGEST} AND {cell} < {LARGEST}"
            return _Number(
                value=integer,
                is_below=lambda edge: f"{integer} < {int(edge)}",
                is_whole=f"{cell} = ROUND({cell}) AND {is_within}",
                step=1,
                database=self.database,
            )

        is_whole = f"{cell} = {integer}"
        # Where nothing is moved, a number with decimals is refused before it has a bin.
        if not self.moves:
            return _Number(
                value=integer,
                is_below=lambda edge: f"{cell} < {int(edge)}",
                is_whole=is_whole,
                step=1,
                database=self.database,
            )
        rounded = (
            f"({integer} + CASE WHEN {_rounds_to(cell, integer, 1)} THEN 1 "
            f"WHEN {_rounds_to(cell, integer, -1)} THEN -1 ELSE 0 END)"
        )
        return _Number(
            value=rounded,
            is_below=lambda edge: _rounded_below(cell, int(edge)),
            is_whole=is_whole,
            step=1,
            database=self.database,
        )

    @cached_property
    def _beyond(self) -> tuple[str, str]:
        """SQL for whether a number is below the lower bound, and above the upper one."""
        number = self._number
        lowest = self.encoder.edges(self.column.name)[0]
        last = last_of(self.column)
        if self.column.is_continuous:
            error = rounding_error(float(lowest), float(last))
            lowest = lowest - error
            is_above = f"{number.value} > {self._real(float(last) + error)}"
        else:
            is_above = f"NOT ({number.is_below(int(last) + 1)})"
        return number.is_below(lowest), is_above


def _time(sql: DatabaseKind, microseconds: int) -> str:
    """Write SQL for a timestamp that is compared with others."""
    return sql.time.format(np.datetime64(microseconds, "us"))


def _or_null(code: int | None) -> str:
    """Write a code in SQL; NULL for a cell that is refused."""
    return "NULL" if code is None else str(code)


def _cell(key: Any) -> Any:
    """Return a cell of SQLite from the key by which it is grouped.

    A text is grouped by its bytes, and bytes by an empty text, see `DatabaseKind.binary`.
    """
    if isinstance(key, bytes):
        return key.decode(errors="replace")
    if isinstance(key, str):
        return BYTES
    if isinstance(key, float) and key.is_integer() and abs(key) < LARGEST:
        return int(key)
    return key


def _all_numbers_among(spellings: Sequence[str]) -> list[float]:
    """Return the numbers that texts stand for, or are written as, such as 999 or 1e-07."""
    numbers = numbers_among(spellings)
    for text in spellings:
        try:
            value = float(text)
        except ValueError:
            continue
        is_nan = value != value
        if not is_nan and texts_of(pl.Series([value])).item() == text:
            numbers.append(value)
    return list(dict.fromkeys(numbers))


def _times_among(spellings: Sequence[str]) -> list[int]:
    """Return the datetimes that are written as one of some texts, in microseconds."""
    times = []
    for text in spellings:
        try:
            time = np.datetime64(text, "us")
        except ValueError:
            continue
        normal_text = texts_of(pl.Series([time.astype(object)], dtype=DATETIME)).item()
        if normal_text == text:
            times.append(int(time.astype(np.int64)))
    return times


def _rounds_to(cell: str, whole: str, side: int) -> str:
    """Write SQL for whether a number rounds (half to even) away from its integer part.

    Args:
        cell: The number in SQL.
        whole: Its integer part.
        side: 1 for the next whole number above that, -1 for the one below.
    """
    sign = ">" if side > 0 else "<"
    half = side * 0.5
    return f"{cell} - {whole} {sign} {half} OR ({cell} - {whole} = {half} AND {whole} % 2 <> 0)"


def _rounded_below(cell: str, edge: int) -> str:
    """Write SQL for whether a number, rounded half to even, is below a whole one."""
    # From here on doubles are whole.
    if abs(edge) >= 2**52:
        return f"{cell} < {edge}"
    # Half a unit below an odd edge rounds down, to the even number.
    sign = "<=" if edge % 2 else "<"
    return f"{cell} {sign} {edge - 0.5!r}"


# Bins in SQL


@dataclass(frozen=True)
class _Number:
    """A number in SQL, and the edges of the bin that is sought.

    Attributes:
        value: The number; of a datetime in microseconds.
        is_below: Whether it is below an edge, in steps.
        is_whole: Whether it is whole, in a column of whole numbers, or a day, in one of datetimes
            that has days by its bounds alone. Empty where nothing is asked.
        step: So many of `value` are a step.
        database: Where it is.
    """

    value: str
    is_below: Callable[[Any], str]
    is_whole: str
    step: int
    database: Database


def _by_octaves(column: Column, encoder: Encoder, number: _Number) -> str:
    """Write SQL for the bin of a number whose bins are `octaves`: within its octave."""
    bin_of = _real_bin if column.is_continuous else _whole_bin
    edges = encoder.edges(column.name)
    starts = octave_starts(column, encoder.bins)
    # Bins that a schema cuts otherwise are no octaves.
    if not starts or starts != tuple(edges[1:-1].tolist()):
        return bin_of(number, edges)

    parts = octaves(column, encoder.bins)
    cases = []
    first_bin = 0
    for part in parts:
        condition = "ELSE"
        if part is not parts[-1]:
            condition = f"WHEN {number.is_below(part[-1].item())} THEN"
        cases.append(f"{condition} {first_bin} + {bin_of(number, part)}")
        first_bin += len(part) - 1
    return f"CASE {' '.join(cases)} END"


def _whole_bin(number: _Number, edges: NDArray[Any]) -> str:
    """Write SQL for the bin of a whole number that is within the edges, which are in steps."""
    first = int(edges[0])
    count = int(edges[-1] - edges[0])
    bins = len(edges) - 1
    is_even = all(int(e) == first - (-i * count // bins) for i, e in enumerate(edges))
    # The product below must fit int64.
    if bins <= _MOST_HALVED or not is_even or count * bins >= 2**62:
        return _halved(number, edges[1:-1].tolist())

    divided = number.database.sql.divided
    place = f"(CAST({number.value} AS BIGINT) - ({first * number.step}))"
    if number.step != 1:
        place = f"({place} {divided} {number.step})"
    if count == bins:
        return place
    return f"(({place} * {bins}) {divided} {count})"


def _real_bin(number: _Number, edges: NDArray[Any]) -> str:
    """Write SQL for the bin of a number that is within the edges.

    Where bins are many and equally wide, a division guesses it, and the bin's own edges, computed
    as numpy does, correct the guess. PostgreSQL stops a query at a quotient that no double holds,
    so numbers in the first bin are not divided.
    """
    bins = len(edges) - 1
    low = float(edges[0])
    width = float((edges[-1] - edges[0]) / bins)
    is_even = bool((np.arange(bins) * width + low == edges[:-1]).all())
    if bins <= _MOST_HALVED or not is_even:
        return _halved(number, edges[1:-1].tolist())

    value = number.value
    width_sql = number.database.sql.real(width)
    low_sql = number.database.sql.real(low)
    quotient = f"CAST(FLOOR(({value} - {low_sql}) / {width_sql}) AS BIGINT)"
    guess = (
        f"(CASE WHEN {value} - {low_sql} < {width_sql} THEN 0 "
        f"WHEN {quotient} >= {bins} THEN {bins - 1} ELSE {quotient} END)"
    )
    # A quotient that is rounded may lie in the next bin; the edges decide.
    lower_edge = f"{guess} * {width_sql} + {low_sql}"
    upper_edge = f"({guess} + 1) * {width_sql} + {low_sql}"
    return (
        f"({guess} + CASE WHEN {value} < {lower_edge} AND {guess} > 0 THEN -1 "
        f"WHEN {value} >= {upper_edge} AND {guess} < {bins - 1} THEN 1 ELSE 0 END)"
    )


def _halved(number: _Number, edges: Sequence[Any], first: int = 0) -> str:
    """Write SQL that counts the edges at or below a number, by halving."""
    if not edges:
        return str(first)
    middle = len(edges) // 2
    lower_half = _halved(number, edges[:middle], first)
    upper_half = _halved(number, edges[middle + 1 :], first + middle + 1)
    return f"CASE WHEN {number.is_below(edges[middle])} THEN {lower_half} ELSE {upper_half} END"
