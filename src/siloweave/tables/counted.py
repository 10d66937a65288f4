"""Rows of a database as codes that never leave it: every count is a GROUP BY.

A column of numbers or datetimes becomes its code in SQL, by comparisons with the edges of its bins.
Any other column is grouped by its values first: these are coded here, as a table's are, and their
codes are joined to the rows. So codes, and errors about values outside the schema, are those of
`Encoder.encode` on the table that `read` gives.

Cliques are counted together: those that share columns in one grouping of all their columns, as long
as it has few cells, and many groupings in one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from sys import float_info
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import CapacityError, DataError
from siloweave.tables.arrays import Ints
from siloweave.tables.bins import last_of, octave_starts, octaves, step_of
from siloweave.tables.cells import check_fit
from siloweave.tables.codes import Clique, Domain, Encoder
from siloweave.tables.database import Database, quoted
from siloweave.tables.forms import numbers_among
from siloweave.tables.read import Table, check_numbers, digest_of, rows_of
from siloweave.tables.schema import Column, check_columns

_CELLS = 2**16  # of a grouping that answers several cliques
_MOST_CELLS = 2**26  # of one clique
_MOST_VALUES = 1_000_000  # different values of columns whose codes are looked up
_CHAIN = 32  # bins up to which a code is found by halving
_WRONG = ("-1", "-2", "-3", "-4")  # for a code: a value is missing, outside, not whole, infinite
_NULLS = ("NULL",) * len(_WRONG)
_BINNED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("integer", "continuous"), ("whole", "number")), "datetime": ("datetime",)
}  # fmt: skip
"""Kinds of columns, and of what families the database finds their bins itself."""
_Sql = Callable[[Any], str]


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
    """

    database: Database
    domain: Domain
    values: Mapping[str, str]
    head: str
    rows: str
    num_rows: int
    planned: tuple[Clique, ...] = ()
    known: dict[Clique, Ints] = field(default_factory=dict)

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
        singles = self.count([(name,) for name in self.domain.names])
        asked = (self.database.address, self.database.table, self.database.query)
        return digest_of(asked, self.domain.names, *singles)

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


def counted(database: Database, encoder: Encoder, planned: Sequence[Clique] = ()) -> DatabaseCodes:
    """Check that a database's rows fit a schema, and return them as codes that stay there.

    Args:
        database: With every coded column of the schema, and none that it lacks.
        encoder: How columns are coded. Numbers beyond bounds that were learned are moved inside.
        planned: Cliques that will be asked for.

    Raises:
        SchemaError: As of `Encoder.encode`; or a column has too many different texts.
        DataError: The database is away, or refuses the query.
    """
    check_columns(encoder.schema, rows_of(database, 0))
    columns = encoder.schema.coded
    checks = [_direct(one, encoder, database, _WRONG) for one in columns]
    plain = [_plain(one.name, database) for one in columns]
    frames = database.grouped(
        [a or b for a, b in zip(checks, plain, strict=True)], most=_MOST_VALUES
    )
    maps: list[str] = []
    joins, values = [database.rows], dict[str, str]()
    known: dict[Clique, Ints] = {}
    num_rows = 0 if columns else database.num_rows
    for column, check, x, frame in zip(columns, checks, plain, frames, strict=True):
        name, size, n = column.name, encoder.domain.size_of(column.name), frame["n"].to_numpy()
        if check is not None:
            codes = _checked(column, frame["v"].to_numpy(), n)
            values[name] = str(_direct(column, encoder, database, _NULLS))
        else:
            table = Table.of_counts(name, frame)
            codes = encoder.select([name]).encode(table).column(name).astype(np.int64)
            values[name], pairs = _looked_up(column, size, x, table, codes, f"m{len(maps)}.c")
            if pairs:
                made = ", ".join(f"({_literal(v, database)}, {code})" for v, code in pairs)
                joins.append(f"LEFT JOIN m{len(maps)} ON {x} = m{len(maps)}.v")
                maps.append(f"m{len(maps)}(v, c) AS (VALUES {made})")
        known[(name,)] = np.zeros(size, dtype=np.int64)
        np.add.at(known[(name,)], codes, n.astype(np.int64))
        num_rows = int(n.sum())
    head, domain = f"WITH {', '.join(maps)} " if maps else "", encoder.domain
    rows = " ".join(joins)
    return DatabaseCodes(database, domain, values, head, rows, num_rows, tuple(planned), known)


def _checked(column: Column, codes: NDArray[Any], n: NDArray[Any]) -> Ints:
    """Codes of groups of so many rows, once they are known to be codes."""
    missing, outside, broken, wild = (int(n[codes == int(wrong)].sum()) for wrong in _WRONG)
    check_numbers(column.name, wild, broken)
    check_fit(column, outside, missing)
    return codes.astype(np.int64)


def _looked_up(
    column: Column, size: int, x: str, table: Table, codes: Ints, joined: str
) -> tuple[str, list[tuple[Any, int]]]:
    """SQL of the code of a column, and values with the codes that are to be joined to them."""
    missing = str(size - 1) if column.missing else "NULL"
    other = None if column.other is None else column.categories.index(column.other)
    held = zip(table.values(column.name).tolist(), codes.tolist(), strict=True)
    gone = table.missing(column.name).tolist()
    pairs = [one for one, absent in zip(held, gone, strict=True) if not absent and one[1] != other]
    unknown = "NULL" if other is None else str(other)
    rest = f"CAST(CASE WHEN {x} IS NULL THEN {missing} ELSE {unknown} END AS BIGINT)"
    return f"COALESCE({joined}, {rest})" if pairs else rest, pairs


def _literal(value: Any, database: Database) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return database.sql.real(value) if isinstance(value, float) else str(value)


def _plain(name: str, database: Database) -> str:
    """A column's values in SQL, NULL where they are missing."""
    x = f"siloweave.{quoted(name)}"
    number = database.family(name) == "number"
    return f"CASE WHEN NOT {database.sql.nan.format(x)} THEN {x} END" if number else x


# Bins in SQL


def _direct(
    column: Column, encoder: Encoder, database: Database, wrong: Sequence[str]
) -> str | None:
    """SQL of the code of a number or a datetime; None where values are looked up.

    `wrong` stands for a missing value where none may be, one outside the bounds, one that is not
    whole, and one that is infinite.
    """
    kind, family = column.kind, database.family(column.name)
    if family not in _BINNED.get(kind, ()):
        return None
    x, edges, last = f"siloweave.{quoted(column.name)}", encoder.edges(column.name), last_of(column)
    missing, outside, broken, wild = wrong
    gone, marks = f"{_plain(column.name, database)} IS NULL", numbers_among(column.missing_values)
    if marks and family in ("whole", "number"):
        gone += f" OR {x} IN ({', '.join(map(database.sql.real, marks))})"
    cases = [f"WHEN {gone} THEN {len(edges) - 1 if column.missing else missing}"]
    learned = {"low", "high"} <= set(column.learned)
    if family == "number" and not (learned and kind == "continuous"):
        cases.append(f"WHEN ABS({x}) > {database.sql.real(float_info.max)} THEN {wild}")
    if kind == "continuous":
        y, real = f"CAST({x} AS DOUBLE PRECISION)", database.sql.real
        ends = [real(float(end)) for end in (edges[0], last)]
        code = _by_octaves(column, encoder, y, lambda part: _real_bin(y, part, database), real)
    else:
        step, y = 1, x
        if kind == "datetime":
            step, y = step_of(column), database.sql.microseconds.format(x)
        elif family == "number":
            cases.append(f"WHEN NOT ({x} = ROUND({x}) AND ABS({x}) < {2**62}) THEN {broken}")
            y = f"CAST({x} AS BIGINT)"
        ends = [str(int(edges[0]) * step), str((int(last) + 1) * step - 1)]
        code = _by_octaves(column, encoder, y, lambda p: _whole_bin(y, p, step, database), str)
    if learned:
        inside = f"(CASE WHEN {y} < {ends[0]} THEN {ends[0]} WHEN {y} > {ends[1]} THEN {ends[1]} "
        code = code.replace(y, f"{inside}ELSE {y} END)")
    else:
        cases.append(f"WHEN {y} < {ends[0]} OR {y} > {ends[1]} THEN {outside}")
    return f"CASE {' '.join(cases)} ELSE {code} END"


def _by_octaves(column: Column, encoder: Encoder, y: str, bin_of: _Sql, literal: _Sql) -> str:
    """SQL of the bin of a number: within its octave, where the encoder's bins are `octaves`."""
    edges, starts = encoder.edges(column.name), octave_starts(column, encoder.bins)
    if not starts or starts != tuple(edges[1:-1].tolist()):
        return bin_of(edges)
    parts = octaves(column, encoder.bins)
    code, first = "CASE", 0
    for part in parts:
        below = f"WHEN {y} < {literal(part[-1].item())} THEN" if part is not parts[-1] else "ELSE"
        code, first = f"{code} {below} {first} + {bin_of(part)}", first + len(part) - 1
    return f"{code} END"


def _whole_bin(y: str, edges: NDArray[Any], step: int, database: Database) -> str:
    """SQL of the bin of a whole number that is within the edges, which are in steps."""
    first, count, bins = int(edges[0]), int(edges[-1] - edges[0]), len(edges) - 1
    even = all(int(e) == first - (-i * count // bins) for i, e in enumerate(edges))
    if bins <= _CHAIN or not even or count * bins >= 2**62:
        return _halved(y, [str(int(e) * step) for e in edges[1:-1]])
    place = f"({y} - ({first * step}))"
    place = place if step == 1 else f"({place} {database.sql.divided} {step})"
    return place if count == bins else f"(({place} * {bins}) {database.sql.divided} {count})"


def _real_bin(y: str, edges: NDArray[Any], database: Database) -> str:
    """SQL of the bin of a number that is within the edges.

    Where bins are many and equally wide, a division guesses it, and the bin's own edges, computed
    as numpy does, correct the guess.
    """
    bins, low = len(edges) - 1, float(edges[0])
    width = float((edges[-1] - edges[0]) / bins)
    even = bool((np.arange(bins) * width + low == edges[:-1]).all())
    if bins <= _CHAIN or not even:
        return _halved(y, [database.sql.real(float(edge)) for edge in edges[1:-1]])
    w, start = database.sql.real(width), database.sql.real(low)
    guess = f"CAST(FLOOR(({y} - {start}) / {w}) AS BIGINT)"
    guess = (
        f"(CASE WHEN {guess} < 0 THEN 0 WHEN {guess} >= {bins} THEN {bins - 1} ELSE {guess} END)"
    )
    edge = f"{guess} * {w} + {start}"
    above = f"({guess} + 1) * {w} + {start}"
    return (
        f"({guess} + CASE WHEN {y} < {edge} AND {guess} > 0 THEN -1 "
        f"WHEN {y} >= {above} AND {guess} < {bins - 1} THEN 1 ELSE 0 END)"
    )


def _halved(y: str, edges: Sequence[str], first: int = 0) -> str:
    """SQL of how many edges are at or below a number, found by halving."""
    if not edges:
        return str(first)
    middle = len(edges) // 2
    below, above = edges[:middle], edges[middle + 1 :]
    return (
        f"CASE WHEN {y} < {edges[middle]} THEN {_halved(y, below, first)} "
        f"ELSE {_halved(y, above, first + middle + 1)} END"
    )
