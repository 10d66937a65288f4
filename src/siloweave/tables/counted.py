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
    step_of,
)
from siloweave.tables.cells import check_days, check_fit
from siloweave.tables.codes import Clique, Codes, CountedRows, Domain, Encoder
from siloweave.tables.database import Database, DatabaseKind, as_text, quoted
from siloweave.tables.forms import numbers_among
from siloweave.tables.parsing import DATETIME, DURATION, LARGEST, texts_of
from siloweave.tables.read import Table, check_numbers, digest_of, read, rows_of
from siloweave.tables.schema import Column, check_columns

_CELLS = 2**16  # of a grouping that answers several cliques
_MOST_CELLS = 2**26  # of one clique
_MOST_VALUES = 1_000_000  # different values of columns whose codes are looked up
_CHAIN = 32  # bins up to which a code is found by halving
# In place of a code: a value is missing, outside, not whole or infinite where none may be; and a
# cell of SQLite that is no number, and is looked up.
_MISSING, _OUTSIDE, _BROKEN, _WILD, _ODD = -1, -2, -3, -4, -5
_BINNED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("integer", "continuous"), ("whole", "number", "cells")),
    "datetime": ("datetime",),
}
"""Kinds of columns, and of what families the database finds their bins itself."""


@dataclass(frozen=True, eq=False)
class DatabaseCodes:
    """The rows of a database, each as codes; conforms to `codes.CountedRows`.

    Args:
        database: Where they are.
        domain: Of the codes.
        values: SQL of each column's code; NULL where a row does not fit.
        head: What gives the codes that are looked up; begins a query.
        rows: What `values` are selected from.
        num_rows: How many there were when they were checked.
        planned: Cliques that will be asked for, and are counted together with the first.
        known: What was counted.
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
    known: dict[Clique, Ints] = field(default_factory=dict)
    moved: Mapping[str, int] = field(default_factory=dict)

    def count(self, cliques: Sequence[Sequence[str]]) -> list[Ints]:
        """Return how many rows are in every cell of each clique.

        Raises:
            DataError: The database is away, or rows were changed meanwhile.
            CapacityError: A clique has too many cells.
        """
        asked = [tuple(clique) for clique in cliques]
        if new := [q for q in asked if q not in self.known]:
            wanted = dict.fromkeys([*new, *(q for q in self.planned if q not in self.known)])
            self._count(list(wanted))
        return [self.known[q] for q in asked]

    def digest(self) -> bytes:
        """Recognises the same rows: by what was asked for, and the counts of single columns."""
        return _digest(self, self.database)

    def _count(self, cliques: Sequence[Clique]) -> None:
        size = self.domain.size
        if wide := [q for q in cliques if size(q) > _MOST_CELLS]:
            raise CapacityError(
                f"the clique {', '.join(wide[0])} has {size(wide[0]):,} cells, and a database "
                f"counts {_MOST_CELLS:,} at most; use fewer columns or bins"
            )
        blocks = self._blocks(cliques)
        used = self.domain.canonical(name for block in blocks for name in block)
        codes = {name: f"c{i}" for i, name in enumerate(used)}
        made = ", ".join(f"{self.values[name]} AS {code}" for name, code in codes.items())
        rows = f"(SELECT {made} FROM {self.rows}{self.database.sql.fence}) AS coded"
        keys = [self._key(block, codes) for block in blocks]
        frames = self.database.grouped(keys, self.head, rows, numbers=True)
        for block, frame in zip(blocks, frames, strict=True):
            cells, n = frame["v"], frame["n"].to_numpy()
            if cells.null_count() or int(n.sum()) != self.num_rows:
                raise DataError(
                    f"{self.database.address}: rows were changed while they were counted; count a "
                    "copy or a snapshot of the table, and start the run again"
                )
            counts = np.zeros(size(block), dtype=np.int64)
            counts[cells.to_numpy().astype(np.int64)] = n
            table = counts.reshape(self.domain.shape(block))
            for clique in cliques:
                if clique not in self.known and set(clique) <= set(block):
                    away = tuple(i for i, name in enumerate(block) if name not in clique)
                    kept = [name for name in block if name in clique]
                    found = table.sum(axis=away).transpose([kept.index(a) for a in clique])
                    self.known[clique] = np.ascontiguousarray(found)

    def _blocks(self, cliques: Sequence[Clique]) -> list[Clique]:
        """Sets of columns that hold all cliques, few of them and of few cells each."""
        blocks: list[set[str]] = []
        for clique in sorted(map(set, cliques), key=len, reverse=True):
            held = [b for b in blocks if clique <= b]
            joined = held or [b for b in blocks if self.domain.size(tuple(b | clique)) <= _CELLS]
            if joined:
                joined[0].update(clique)
            else:
                blocks.append(clique)
        return [self.domain.canonical(block) for block in blocks]

    def _key(self, block: Clique, codes: Mapping[str, str]) -> str:
        """The number of a row's cell in a table of some columns, in C order."""
        steps = [prod(self.domain.shape(block[i + 1 :])) for i in range(len(block))]
        terms = (f"{codes[name]} * {step}" for name, step in zip(block, steps, strict=True))
        return f"CAST({' + '.join(terms)} AS BIGINT)"


def counted(
    database: Database, encoder: Encoder, planned: Sequence[Clique] = ()
) -> DatabaseCodes | _RowsHere:
    """Check that a database's rows fit a schema, and return them as codes that stay there.

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
    codings = [_Coding(column, encoder, database) for column in encoder.schema.coded]
    first = [one.direct(checked=True) if one.is_binned else one.key for one in codings]
    frames = database.grouped(first, most=_MOST_VALUES)
    if codings and not frames:
        return _coded_here(database, encoder)

    maps: list[str] = []
    joins, values = [database.rows], dict[str, str]()
    known: dict[Clique, Ints] = {}
    moved: dict[str, int] = {}
    num_rows = 0 if codings else database.num_rows
    for coding, frame in zip(codings, frames, strict=True):
        name = coding.column.name
        num_rows = int(frame["n"].cast(pl.Int64).sum())
        known[(name,)] = np.zeros(coding.size, dtype=np.int64)
        groups = frame
        if coding.is_binned:
            moved[name] = coding.add_binned(frame, known[(name,)])
            odd_groups = coding.odd_groups(frame)
            if odd_groups is None:
                return _coded_here(database, encoder)
            groups = odd_groups

        # Cells whose different values are coded here, as a table's are, and joined to the rows.
        looked_up = _look_up(coding, groups)
        np.add.at(known[(name,)], looked_up.codes, groups["n"].cast(pl.Int64).to_numpy())
        moved[name] = moved.get(name, 0) + looked_up.moved
        code = coding.rest
        if looked_up.pairs:
            table = f"m{len(maps)}"
            listed = ", ".join(f"({value}, {code})" for value, code in looked_up.pairs)
            maps.append(f"{table}(v, c) AS (VALUES {listed})")
            joins.append(f"LEFT JOIN {table} ON {coding.match(f'{table}.v')}")
            code = f"COALESCE({table}.c, {code})"
        values[name] = coding.direct(checked=False, odd=code) if coding.is_binned else code
    head, domain = f"WITH {', '.join(maps)} " if maps else "", encoder.domain
    rows = " ".join(joins)
    return DatabaseCodes(
        database, domain, values, head, rows, num_rows, tuple(planned), known,
        {name: count for name, count in moved.items() if count},
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _RowsHere:
    """The rows of a database as codes in memory; conforms to `codes.CountedRows`.

    Args:
        database: Where they are.
        codes: Of each row.
        moved: As of `DatabaseCodes`.
    """

    database: Database
    codes: Codes
    moved: Mapping[str, int]

    @property
    def domain(self) -> Domain:
        """Of the codes."""
        return self.codes.domain

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.codes.num_rows

    def count(self, cliques: Sequence[Sequence[str]]) -> list[Ints]:
        """Return how many rows are in every cell of each clique."""
        return self.codes.count(cliques)

    def digest(self) -> bytes:
        """Recognises the same rows, in whatever order they come."""
        return _digest(self, self.database)


def _digest(rows: CountedRows, database: Database) -> bytes:
    """A digest of what was asked for, and of the counts of single columns."""
    singles = rows.count([(name,) for name in rows.domain.names])
    asked = (database.address, database.table, database.query)
    return digest_of(asked, rows.domain.names, *singles)


def _coded_here(database: Database, encoder: Encoder) -> _RowsHere:
    """Rows as codes in memory, read some at a time."""
    pieces = [encoder.read(read(piece)) for piece in database.pieces()]
    pieces = pieces or [encoder.read(rows_of(database, 0))]
    moved: Counter[str] = Counter()
    for piece in pieces:
        moved.update(piece.moved)
    return _RowsHere(database, Codes.concat([piece.codes for piece in pieces]), dict(moved))


@dataclass(frozen=True)
class _LookedUp:
    """Groups of equal cells, coded as a table's are.

    Attributes:
        codes: Of each group.
        moved: How many rows' cells had no place of their own.
        pairs: Values in SQL and their codes, without those that have the code of the rest.
    """

    codes: Ints
    moved: int
    pairs: list[tuple[str, int]]


def _look_up(coding: _Coding, groups: pl.DataFrame) -> _LookedUp:
    """Code the different values of a column, each by itself."""
    name, size = coding.column.name, groups.height
    codes, moved = np.zeros(size, dtype=np.int64), 0
    encoder = coding.encoder.select([name])
    for places, part in coding.parts(groups):
        found = encoder.read(Table.of_counts(name, part))
        codes[places] = found.codes.column(name)
        moved += found.moved.get(name, 0)
    keys, is_missing = groups["v"].to_list(), groups["v"].is_null().to_list()
    rows = zip(keys, codes.tolist(), is_missing, strict=True)
    pairs = [
        (_literal(key, coding.database), code)
        for key, code, absent in rows
        if not absent and code != coding.homeless
    ]
    return _LookedUp(codes, moved, pairs)


def _literal(value: Any, database: Database) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, bytes) and database.kind == "sqlite":
        return f"X'{value.hex()}'"
    if isinstance(value, str | bytes):
        text = value if isinstance(value, str) else value.decode()
        return "'" + text.replace("'", "''").replace("\0", "' || chr(0) || '") + "'"
    return database.sql.real(value) if isinstance(value, float) else str(value)


# A column in SQL


@dataclass(frozen=True)
class _Coding:
    """How the cells of one column become codes, in SQL.

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
        """How many codes the column has."""
        return self.encoder.domain.size_of(self.column.name)

    @cached_property
    def family(self) -> str:
        """What sort of values it holds there."""
        return self.database.family(self.column.name)

    @property
    def is_binned(self) -> bool:
        """Whether the database finds its codes itself; those of SQLite's numbers only."""
        return self.family in _BINNED.get(self.column.kind, ())

    @property
    def moves(self) -> bool:
        """Whether what does not fit is put where the column declares."""
        return self.column.outside == "move"

    @property
    def x(self) -> str:
        """The column."""
        return f"siloweave.{quoted(self.column.name)}"

    @property
    def is_missing(self) -> str:
        """Whether a cell has no value, before spellings of a missing value are looked at."""
        number = f" OR {self.database.sql.nan.format(self.x)}" if self.family == "number" else ""
        return f"{self.x} IS NULL{number}"

    @property
    def key(self) -> str:
        """What is equal where cells are, and only there; NULL where they are missing."""
        sql = self.database.sql
        if self.family in ("text", "cells"):
            return sql.binary.format(self.x)
        if self.family == "datetime":
            return sql.microseconds.format(self.x)
        if self.family == "number":  # and -0.0 is 0.0
            return f"CASE WHEN NOT {sql.nan.format(self.x)} THEN {self.x} + 0.0 END"
        return self.x

    @property
    def _is_odd(self) -> str:
        return f"typeof({self.x}) IN ('text', 'blob')"

    def match(self, value: str) -> str:
        """Whether a cell's key is that of a value which was listed."""
        text = self.family == "text"
        return f"{self.key} = {self.database.sql.binary.format(value) if text else value}"

    def parts(self, groups: pl.DataFrame) -> list[tuple[Ints, pl.DataFrame]]:
        """Values of one type each, as a table in memory has them, with their places."""
        everywhere = np.arange(groups.height)
        if self.family == "text":
            return [(everywhere, groups.with_columns(pl.col("v").cast(pl.String)))]
        if self.family == "datetime":
            return [(everywhere, groups.with_columns(pl.col("v").cast(DATETIME)))]
        if self.family == "duration":
            return [(everywhere, groups.with_columns(pl.col("v").cast(DURATION)))]
        if self.family != "cells":
            return [(everywhere, groups)]
        cells = [_cell(key) for key in groups["v"].to_list()]
        rows, found = groups["n"].to_numpy(), []
        for kind in (type(None), int, float, str):
            places = np.array([i for i, c in enumerate(cells) if isinstance(c, kind)], dtype=int)
            if len(places):
                held = pl.Series("v", [cells[i] for i in places])
                found.append((places, pl.DataFrame([held, pl.Series("n", rows[places])])))
        return found

    # What becomes of a cell that does not fit

    @cached_property
    def _refuge(self) -> int | None:
        """The code of a missing cell where none may be missing; None if it is refused."""
        column = self.column
        value = column.other if column.fallback is None else column.fallback
        if not self.moves or value is None:
            return None
        if column.kind in _BINNED:
            edges = self.encoder.edges(column.name)
            return int(np.searchsorted(edges[1:-1], fallback_of(column), side="right"))
        return column.options.index(value)

    @cached_property
    def homeless(self) -> int | None:
        """The code of a cell that is no value of the column; None if it is refused."""
        if self._refuge is not None:
            return self._refuge
        if self.column.other is not None:
            return self.column.categories.index(self.column.other)
        return self.size - 1 if self.moves and self.column.missing else None

    @property
    def _absent(self) -> int | None:
        """The code of a missing cell; None if it is refused."""
        return self.size - 1 if self.column.missing else self._refuge

    @property
    def rest(self) -> str:
        """SQL of the code of a value that was not listed."""
        return (
            f"CAST(CASE WHEN {self.is_missing} THEN {_or_null(self._absent)} "
            f"ELSE {_or_null(self.homeless)} END AS BIGINT)"
        )

    # Codes that the database finds

    def add_binned(self, groups: pl.DataFrame, counts: Ints) -> int:
        """Count groups of `direct(checked=True)`, and return how many rows' cells were moved.

        Raises:
            SchemaError: Cells do not fit.
        """
        codes, rows = (groups[one].cast(pl.Int64).to_numpy() for one in ("v", "n"))
        wrong = (_MISSING, _OUTSIDE, _BROKEN, _WILD)
        missing, outside, broken, wild = (int(rows[codes == one].sum()) for one in wrong)
        if self.column.kind == "datetime":
            check_days(self.column.name, broken)
        else:
            check_numbers(self.column.name, wild, broken)
        check_fit(self.column, outside, missing)
        is_code = codes >= 0
        np.add.at(counts, codes[is_code] % self.size, rows[is_code])
        return int(rows[codes >= self.size].sum())

    def odd_groups(self, groups: pl.DataFrame) -> pl.DataFrame | None:
        """Different cells that are no number, if there are some; None if they are too many."""
        if not groups["v"].cast(pl.Int64).is_in([_ODD]).any():
            return groups.clear()
        key = f"CASE WHEN {self._is_odd} THEN {self.key} END"
        found = self.database.grouped([key], most=_MOST_VALUES)
        return found[0].filter(pl.col("v").is_not_null()) if found else None

    def direct(self, *, checked: bool, odd: str = "") -> str:
        """Return SQL of the code of a number or a datetime.

        Args:
            checked: Whether a cell that does not fit has a number below 0 instead of a code, and
                one that is moved a code that is larger by their number; without, NULL and the code.
            odd: SQL of the code of cells of SQLite that are no number.
        """
        column, family = self.column, self.family
        number, ends = self._number, self._ends
        moved = self.size if checked and self.moves else 0
        cases = []
        if family == "cells":
            cases.append(f"WHEN {self._is_odd} THEN {_ODD if checked else odd}")

        # Missing cells.
        absent = str(_MISSING) if checked else "NULL"
        if self._absent is not None:
            absent = str(self._absent + moved * (not column.missing))
        cases.append(f"WHEN {self.is_missing}{self._marks} THEN {absent}")

        # Cells that are no number of the column, unless it moves them.
        learned = {"low", "high"} <= set(column.learned)
        clips = self.moves or learned
        if not self.moves and family in ("number", "cells"):
            most = self._real(float_info.max)
            wild = f"WHEN {self.x} > {most} OR {self.x} < -{most} THEN"
            if not (learned and column.kind == "continuous"):
                cases.append(f"{wild} {_WILD if checked else 'NULL'}")
            if column.kind == "integer":
                cases.append(f"WHEN NOT ({number.is_whole}) THEN {_BROKEN if checked else 'NULL'}")
        if not self.moves and column.kind == "datetime" and number.is_whole:
            cases.append(f"WHEN NOT ({number.is_whole}) THEN {_BROKEN if checked else 'NULL'}")

        # Cells beyond the bounds.
        low, high = (str(_OUTSIDE) if checked else "NULL" for _ in range(2))
        if clips:
            edges = self.encoder.edges(column.name)
            low, high = (
                str(int(np.searchsorted(edges[1:-1], end, side="right")) + moved)
                for end in (edges[0], last_of(column))
            )
        if column.kind == "integer" and family == "number" and self.moves:
            cases.append(f"WHEN {self.x} < {self._real(-float(LARGEST))} THEN {low}")
            cases.append(f"WHEN {self.x} > {self._real(float(LARGEST))} THEN {high}")
        cases += [f"WHEN {ends[0]} THEN {low}", f"WHEN {ends[1]} THEN {high}"]

        # All others, in bins.
        code = _by_octaves(column, self.encoder, number)
        if moved and number.is_whole and family != "whole":
            code = f"{code} + CASE WHEN {number.is_whole} THEN 0 ELSE {moved} END"
        return f"CASE {' '.join(cases)} ELSE {code} END"

    def _real(self, value: float) -> str:
        return self.database.sql.real(value)

    @cached_property
    def _marks(self) -> str:
        """Whether a cell is a declared spelling of a missing value; begins with OR."""
        spellings = self.column.missing_values
        if self.family == "datetime":
            marks = [str(time) for time in _times_among(spellings)]
            x = self.database.sql.microseconds.format(self.x)
        else:
            marks = [self._real(number) for number in _all_numbers_among(spellings)]
            x = self.x
        return f" OR {x} IN ({', '.join(marks)})" if marks else ""

    @cached_property
    def _number(self) -> _Number:
        """A cell's number."""
        x, kind, sql = self.x, self.column.kind, self.database.sql
        if kind == "continuous":
            y = f"CAST({x} AS DOUBLE PRECISION)"
            return _Number(y, lambda edge: f"{y} < {sql.real(float(edge))}", "", 1, self.database)
        if kind == "datetime":
            step = step_of(self.column)
            y = sql.microseconds.format(x)
            is_day = f"{y} % {step} = 0" if has_implied_days(self.column) else ""
            if sql.time:
                return _Number(
                    y,
                    lambda edge: f"{x} < {_time(sql, int(edge) * step)}",
                    is_day,
                    step,
                    self.database,
                )
            return _Number(y, lambda edge: f"{y} < {int(edge) * step}", is_day, step, self.database)
        if self.family == "whole":
            return _Number(x, lambda edge: f"{x} < {int(edge)}", "TRUE", 1, self.database)
        y = f"CAST({x} AS BIGINT)"  # rounds half to even
        if self.family == "number":
            is_whole = f"{x} = ROUND({x}) AND {x} > {-LARGEST} AND {x} < {LARGEST}"
            return _Number(y, lambda edge: f"{y} < {int(edge)}", is_whole, 1, self.database)
        is_whole = f"{x} = {y}"
        if not self.moves:
            return _Number(y, lambda edge: f"{x} < {int(edge)}", is_whole, 1, self.database)
        return _Number(
            f"({y} + CASE WHEN {_rounds_to(x, y, 1)} THEN 1 WHEN {_rounds_to(x, y, -1)} THEN -1 "
            "ELSE 0 END)",
            lambda edge: _rounded_below(x, int(edge)),
            is_whole,
            1,
            self.database,
        )

    @cached_property
    def _ends(self) -> tuple[str, str]:
        """Whether a number is below the column's lower bound, and above its upper one."""
        number, edges = self._number, self.encoder.edges(self.column.name)
        if self.column.kind == "continuous":
            last = float(last_of(self.column))
            return number.below(edges[0]), f"{number.y} > {self._real(last)}"
        return number.below(edges[0]), f"NOT ({number.below(int(last_of(self.column)) + 1)})"


def _time(sql: DatabaseKind, microseconds: int) -> str:
    """SQL of a timestamp that is compared with others."""
    return sql.time.format(np.datetime64(microseconds, "us"))


def _or_null(code: int | None) -> str:
    return "NULL" if code is None else str(code)


def _cell(key: Any) -> Any:
    """A cell of SQLite, by the key that it is grouped by: bytes are texts, and a text is bytes."""
    if isinstance(key, bytes):
        return key.decode(errors="replace")
    if isinstance(key, str):
        return as_text(b"")
    if isinstance(key, float) and key.is_integer() and abs(key) < LARGEST:
        return int(key)
    return key


def _all_numbers_among(spellings: Sequence[str]) -> list[float]:
    """Numbers that texts stand for, or whose own text one is, such as 999 or 1e-07."""
    found = numbers_among(spellings)
    for text in spellings:
        try:
            value = float(text)
        except ValueError:
            continue
        if value == value and texts_of(pl.Series([value])).item() == text:
            found.append(value)
    return list(dict.fromkeys(found))


def _times_among(spellings: Sequence[str]) -> list[int]:
    """Datetimes whose own text one of some texts is, in microseconds."""
    found = []
    for text in spellings:
        try:
            time = np.datetime64(text, "us")
        except ValueError:
            continue
        own = texts_of(pl.Series([time.astype(object)], dtype=DATETIME)).item()
        if own == text:
            found.append(int(time.astype(np.int64)))
    return found


def _rounds_to(x: str, whole: str, side: int) -> str:
    """Whether SQLite's number rounds (half to even) to the whole number beyond its integer part."""
    half = f"{'>' if side > 0 else '<'} {side * 0.5}"
    return f"{x} - {whole} {half} OR ({x} - {whole} = {side * 0.5} AND {whole} % 2 <> 0)"


def _rounded_below(x: str, edge: int) -> str:
    """Whether a number, rounded half to even, is below a whole one."""
    if abs(edge) >= 2**52:  # where doubles are whole
        return f"{x} < {edge}"
    return f"{x} {'<=' if edge % 2 else '<'} {edge - 0.5!r}"


# Bins in SQL


@dataclass(frozen=True)
class _Number:
    """A number in SQL whose bin is sought.

    Attributes:
        y: Its value; of a datetime in microseconds.
        below: Whether it is below an edge, in steps.
        is_whole: Whether it is whole, in a column of whole numbers, or a day, in one of datetimes
            that has days by its bounds alone. Empty where nothing is asked.
        step: So many of `y` are a step.
        database: Where it is.
    """

    y: str
    below: Callable[[Any], str]
    is_whole: str
    step: int
    database: Database


def _by_octaves(column: Column, encoder: Encoder, number: _Number) -> str:
    """SQL of the bin of a number: within its octave, where the encoder's bins are `octaves`."""
    bin_of = _real_bin if column.kind == "continuous" else _whole_bin
    edges, starts = encoder.edges(column.name), octave_starts(column, encoder.bins)
    if not starts or starts != tuple(edges[1:-1].tolist()):
        return bin_of(number, edges)
    parts = octaves(column, encoder.bins)
    code, first = "CASE", 0
    for part in parts:
        below = f"WHEN {number.below(part[-1].item())} THEN" if part is not parts[-1] else "ELSE"
        code, first = f"{code} {below} {first} + {bin_of(number, part)}", first + len(part) - 1
    return f"{code} END"


def _whole_bin(number: _Number, edges: NDArray[Any]) -> str:
    """SQL of the bin of a whole number that is within the edges, which are in steps."""
    first, count, bins = int(edges[0]), int(edges[-1] - edges[0]), len(edges) - 1
    step, divided = number.step, number.database.sql.divided
    even = all(int(e) == first - (-i * count // bins) for i, e in enumerate(edges))
    if bins <= _CHAIN or not even or count * bins >= 2**62:
        return _halved(number, edges[1:-1].tolist())
    place = f"(CAST({number.y} AS BIGINT) - ({first * step}))"
    place = place if step == 1 else f"({place} {divided} {step})"
    return place if count == bins else f"(({place} * {bins}) {divided} {count})"


def _real_bin(number: _Number, edges: NDArray[Any]) -> str:
    """SQL of the bin of a number that is within the edges.

    Where bins are many and equally wide, a division guesses it, and the bin's own edges, computed
    as numpy does, correct the guess. PostgreSQL stops a query at a quotient that no double holds,
    so numbers in the first bin are not divided.
    """
    y, real = number.y, number.database.sql.real
    bins, low = len(edges) - 1, float(edges[0])
    width = float((edges[-1] - edges[0]) / bins)
    even = bool((np.arange(bins) * width + low == edges[:-1]).all())
    if bins <= _CHAIN or not even:
        return _halved(number, edges[1:-1].tolist())
    w, start = real(width), real(low)
    guess = f"CAST(FLOOR(({y} - {start}) / {w}) AS BIGINT)"
    guess = (
        f"(CASE WHEN {y} - {start} < {w} THEN 0 WHEN {guess} >= {bins} THEN {bins - 1} "
        f"ELSE {guess} END)"
    )
    edge = f"{guess} * {w} + {start}"
    above = f"({guess} + 1) * {w} + {start}"
    return (
        f"({guess} + CASE WHEN {y} < {edge} AND {guess} > 0 THEN -1 "
        f"WHEN {y} >= {above} AND {guess} < {bins - 1} THEN 1 ELSE 0 END)"
    )


def _halved(number: _Number, edges: Sequence[Any], first: int = 0) -> str:
    """SQL of how many edges are at or below a number, found by halving."""
    if not edges:
        return str(first)
    middle = len(edges) // 2
    below, above = edges[:middle], edges[middle + 1 :]
    return (
        f"CASE WHEN {number.below(edges[middle])} THEN {_halved(number, below, first)} "
        f"ELSE {_halved(number, above, first + middle + 1)} END"
    )
