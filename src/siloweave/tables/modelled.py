"""What methods learn of a schema with constraints, and tables to that form and back.

Constraints become facts that no model can miss. Fixed combinations are one column with a category
for each combination; of an inequality the gap is learned instead of the larger column; a total is
left out and computed, and so is what follows from other columns; columns that are missing together
follow one of them, and columns that a category rules out are blanked. What is left
(`Modelled.broken`) is drawn again, see core/constrained.py. Reversible transforms are those of the
Synthetic Data Vault (Patki, Wedge & Veeramachaneni 2016, "The Synthetic Data Vault").

**Guarantee**: none of its own. What is done to a row depends on the schema and on this row, so
neighbouring tables stay neighbours, with the same number of rows. Where columns move what does not
fit them (``outside="move"``, as under every guarantee), so does a constraint on them: a combination
that is not among the fixed ones becomes the first of these, a gap the nearest that is allowed, and
no row decides whether there is a run. Elsewhere a table whose rows break a constraint is refused
where it lies. Assumed public: the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError, SchemaError
from siloweave.tables.arrays import Bools
from siloweave.tables.bins import (
    BINNED,
    as_written,
    coarser_step,
    last_at,
    last_of,
    number_at,
    step_of,
)
from siloweave.tables.cells import (
    CellValues,
    cells_of,
    check_values,
    groups_of,
    labels_of,
    value_of,
)
from siloweave.tables.constraints import (
    CategoryRanges,
    ColumnSum,
    Computed,
    Constraint,
    FixedCombinations,
    Inequality,
    MissingTogether,
    MissingUnless,
    Value,
)
from siloweave.tables.formulas import does_follow, raw_values, rounded_values, solved_source
from siloweave.tables.read import Table, beside
from siloweave.tables.schema import Column, Outside, Schema, check_columns

_OPEN = "?"  # the category of combinations that were not learned
_SHOWN = 5  # rows that an error names
_NEAR = 1e-9  # relative error of sums of floats
_Mask = Bools
_Array = NDArray[Any]
_Random = np.random.Generator


class WantedCells(NamedTuple):
    """What is wanted in a column of some rows; `fixed` where anything is."""

    cells: CellValues
    fixed: _Mask


_Known = Mapping[str, CellValues]  # by column
_Wanted = dict[str, WantedCells]  # by column
_Made = tuple[dict[str, CellValues], _Mask]  # columns, and rows in which they cannot be kept


def written(column: Column, cells: CellValues, like: Table | None) -> tuple[_Array, _Mask | None]:
    """A column as `Table.from_columns` takes it."""
    if column.kind not in BINNED:
        return labels_of(column, np.where(cells.gone, len(column.options), cells.values))
    values = as_written(column, np.where(cells.gone, _lowest(column), cells.values), like)
    return values, cells.gone if column.missing else None


def _step(column: Column) -> int:
    """The microseconds of a datetime's step; 1 for numbers."""
    return step_of(column) if column.kind == "datetime" else 1


def _lowest(column: Column) -> int | float:
    return 0 if column.low is None else number_at(column, column.low)


def _outside(column: Column, cells: CellValues) -> _Mask:
    """Rows outside a column's bounds, as far as these are declared."""
    found: _Mask = np.zeros(len(cells.values), dtype=np.bool_)
    if column.low is not None:
        found |= cells.values < number_at(column, column.low)
    if column.high is not None:
        found |= cells.values > last_at(column, column.high)
    return found & ~cells.gone


# Constraints that are kept by what methods learn


@dataclass(frozen=True)
class _Kept:
    """A constraint, the declared columns that are made so that it is kept, and others they need."""

    rule: Constraint
    targets: tuple[str, ...]
    inputs: tuple[str, ...]


def _moves(columns: Iterable[Column]) -> bool:
    """Whether all of some columns move what does not fit them."""
    return all(column.outside == "move" for column in columns)


def _outside_of(columns: Sequence[Column]) -> Outside | None:
    """What a column that is made of others does with what does not fit it."""
    if any(column.outside == "refuse" for column in columns):
        return "refuse"
    return "move" if _moves(columns) else None


@dataclass(frozen=True)
class _Merged(_Kept):
    """Fixed combinations as one column of text, whose categories are combinations in JSON."""

    rule: FixedCombinations
    columns: tuple[Column, ...]

    @cached_property
    def column(self) -> Column:
        """The column that methods learn."""
        texts = tuple(self.text(map(self._number, self.columns, row)) for row in self.rule.rows)
        taken = ("categories",) if self.rule.from_data else ()
        name, other = "+".join(self.rule.columns), None if texts else _OPEN
        moves = _moves(self.columns)
        return Column(
            name, "categorical", texts or (_OPEN,), other=other, from_data=taken,
            outside=_outside_of(self.columns), fallback=texts[0] if moves and texts else None,
        )  # fmt: skip

    @staticmethod
    def _number(column: Column, value: Value) -> int | float | None:
        if value is None:
            return None
        return number_at(column, value) if column.kind in BINNED else _place(column, value)

    def text(self, numbers: Any) -> str:
        """A combination of numbers or codes, as a category."""
        return msgspec.json.encode(list(map(value_of, self.columns, numbers))).decode()

    def texts(self, cells: Sequence[CellValues]) -> tuple[_Array, _Array]:
        """Every combination that rows have, as categories; and each row's."""
        first, group = groups_of(cells)
        parts = [
            [None if gone else value for value, gone in zip(*one.take(first), strict=True)]
            for one in cells
        ]
        texts = [self.text(numbers) for numbers in zip(*parts, strict=True)]
        return np.array(texts, dtype=object), group

    def broken(self, cells: Sequence[CellValues]) -> _Mask:
        texts, group = self.texts(cells)
        known = set(self.column.categories)
        return np.array([bool(self.rule.rows) and one not in known for one in texts], bool)[group]

    def encode(self, cells: _Known) -> tuple[_Array, _Mask | None]:
        texts, group = self.texts([cells[name] for name in self.rule.columns])
        return texts[group], None

    def table(self, categories: Sequence[Any]) -> list[CellValues]:
        """Every combination's value in each column; missing everywhere where it is not known."""
        rows = [
            [None] * len(self.columns) if one == _OPEN else msgspec.json.decode(one)
            for one in categories
        ]
        found = []
        for i, column in enumerate(self.columns):
            numbers = [self._number(column, row[i]) for row in rows]
            gone = np.array([number is None for number in numbers], dtype=np.bool_)
            found.append(CellValues(np.array([0 if n is None else n for n in numbers]), gone))
        return found

    def decode(self, column: Column, drawn: CellValues, known: _Known) -> _Made:
        codes = drawn.values.astype(np.int64)
        parts = [one.take(codes) for one in self.table(column.categories)]
        bad = np.array([one == _OPEN for one in column.categories], dtype=np.bool_)[codes]
        return dict(zip(self.targets, parts, strict=True)), bad

    def ask(self, column: Column, asked: _Wanted, pilot: _Known, random: _Random) -> _Wanted:
        """The combination of each row for which some of its values are wanted.

        It is that of the row's pilot if it has the wanted values, else one of another pilot row,
        else any.
        """
        given = [(i, asked[name]) for i, name in enumerate(self.targets) if name in asked]
        fixed = np.any([one.fixed for _, one in given], axis=0)
        options, drawn = self.table(column.categories), pilot[column.name].values
        known = np.array([one != _OPEN for one in column.categories], dtype=np.bool_)
        patterns = [CellValues(one.cells.values, one.cells.gone) for _, one in given]
        patterns += [CellValues(one.fixed.astype(np.int64), ~one.fixed) for _, one in given]
        first, group = groups_of(patterns)
        chosen = drawn.copy()
        for row, number in zip(first, group[first], strict=True):
            fits = known.copy()
            for i, one in given:
                if one.fixed[row]:
                    same = ~options[i].gone & (options[i].values == one.cells.values[row])
                    fits &= options[i].gone if one.cells.gone[row] else same
            if not fits.any():
                raise InputError(
                    f"given: no row has these values of {', '.join(self.targets)} together; see "
                    f"the schema's {self.rule.words}"
                )
            rows, likely = np.flatnonzero(group == number), drawn[fits[drawn]]
            pool = likely if likely.size else np.flatnonzero(fits)
            chosen[rows] = np.where(fits[drawn[rows]], drawn[rows], random.choice(pool, len(rows)))
        there = CellValues(chosen, np.zeros(len(chosen), dtype=np.bool_))
        return {column.name: WantedCells(there, fixed)}


@dataclass(frozen=True)
class _Gap(_Kept):
    """An inequality: the gap instead of the larger column."""

    rule: Inequality
    low: Column
    high: Column

    @property
    def whole(self) -> bool:
        return self.high.kind != "continuous"

    @property
    def coarse(self) -> int:
        """How many steps of the larger column are one of the coarser resolution; 1 for numbers."""
        return coarser_step(self.low, self.high) // _step(self.high)

    @property
    def least(self) -> int:
        """The smallest gap; that of a continuum may not be 0 if strict, which no bound can say."""
        return self.coarse * int(self.rule.strict and self.whole)

    @cached_property
    def floor(self) -> int | float:
        """What the gap is counted from where the smaller column is missing."""
        first: int | float = self._start(_lowest(self.low))
        return min(first, _lowest(self.high)) - self.least

    @cached_property
    def column(self) -> Column:
        """The column that methods learn."""
        low = self.floor if self.low.missing else self._start(_lowest(self.low))
        most: int | float = last_of(self.high) - low
        if self.rule.most is not None:
            # A day that is at most two days later ends just before the third.
            widest = self.rule.most if self.coarse == 1 else self._end(self.rule.most)
            most = min(most, widest)
        decimals = None
        if self.low.decimals is not None and self.high.decimals is not None:
            decimals = max(self.low.decimals, self.high.decimals)
            most = round(most, decimals)
        taken = {*self.low.from_data, *self.high.from_data} & {"low", "high"}
        moves = _moves((self.low, self.high))
        return Column(
            f"{self.rule.high} - {self.rule.low}", "integer" if self.whole else "continuous",
            low=self.least, high=most, missing=self.high.missing, decimals=decimals,
            from_data=tuple(sorted(taken)), outside=_outside_of((self.low, self.high)),
            fallback=self.least if moves and not self.high.missing else None,
        )  # fmt: skip

    def _start(self, values: Any) -> Any:
        """Values of the smaller column in steps of the larger: each begins its coarser step."""
        if self.low.kind != "datetime":
            return values
        coarse = coarser_step(self.low, self.high)
        return values * _step(self.low) // coarse * self.coarse

    def _end(self, most: int | float) -> int:
        """The last step of the larger column that is `most` coarser steps after a first one."""
        return (int(most) + 1) * self.coarse - 1

    def base(self, low: CellValues) -> _Array:
        return np.where(low.gone, self.floor, self._start(low.values))

    def gap(self, low: CellValues, high: CellValues) -> CellValues:
        values = high.values - self.base(low)
        if self.column.decimals is not None:
            values = np.round(values, self.column.decimals)
        return CellValues(np.where(high.gone, self.least, values), high.gone)

    def encode(self, cells: _Known) -> tuple[_Array, _Mask | None]:
        low, high = cells[self.rule.low], cells[self.rule.high]
        return written(self.column, self.gap(low, high), None)

    def decode(self, column: Column, drawn: CellValues, known: _Known) -> _Made:
        values = self.base(known[self.rule.low]) + drawn.values
        return _within(self.high, CellValues(_rounded(self.high, values), drawn.gone))

    def ask(self, column: Column, asked: _Wanted, pilot: _Known, random: _Random) -> _Wanted:
        """The gap where the larger value is wanted; the smaller one follows by the pilot's gap."""
        wanted, low = asked[self.rule.high], asked.get(self.rule.low)
        drawn, start = pilot[column.name], pilot[self.rule.low]
        there = np.flatnonzero(~drawn.gone)
        spare = random.choice(there, len(drawn.gone)) if there.size else np.arange(len(drawn.gone))
        gap = np.where(drawn.gone, drawn.values[spare], drawn.values)
        free = wanted.fixed & ~wanted.cells.gone & ~start.gone
        if low is not None:
            free &= ~low.fixed
            start = _merged(start, low)
        nearest = wanted.cells.values - gap
        if self.low.kind == "datetime":
            # The time of day, which the gap does not say, stays that of the pilot.
            coarse = coarser_step(self.low, self.high)
            day = nearest * _step(self.high) // coarse * (coarse // _step(self.low))
            nearest = day + start.values % (coarse // _step(self.low))
        values = np.where(free, _rounded(self.low, nearest), start.values)
        start = CellValues(values, start.gone)
        found = self.gap(start, wanted.cells)
        wrong = wanted.fixed & _outside(self.column, found)
        if (wrong & ~free).any():
            raise InputError(
                f"given: {int((wrong & ~free).sum())} rows ask for values that break "
                f"{self.rule.words}, or whose gap is outside {self.column.low} to "
                f"{self.column.high}"
            )
        free &= ~wrong & ~_outside(self.low, start)
        given = np.zeros_like(free) if low is None else low.fixed
        return {
            column.name: WantedCells(found, wanted.fixed & (free | given | wanted.cells.gone)),
            self.rule.low: WantedCells(start, free | given),
        }


@dataclass(frozen=True)
class _Total(_Kept):
    """A sum: the total is computed."""

    rule: ColumnSum
    parts: tuple[Column, ...]
    total: Column
    column: None = None

    def decode(self, column: Any, drawn: Any, known: _Known) -> _Made:
        parts = [known[name] for name in self.rule.parts]
        values = _rounded(self.total, _sum([one.values for one in parts]))
        return _within(self.total, CellValues(values, np.any([one.gone for one in parts], axis=0)))

    def ask(self, column: Any, asked: _Wanted, pilot: _Known, random: _Random) -> _Wanted:
        """All parts where the total is wanted: those that are free share it as the pilot's do."""
        wanted = asked[self.rule.total]
        there = wanted.fixed & ~wanted.cells.gone
        fixed, values, gone = {}, {}, {}
        for one in self.parts:
            own = asked.get(one.name)
            values[one.name], gone[one.name] = _merged(pilot[one.name], own)
            fixed[one.name] = np.zeros_like(there) if own is None else own.fixed
        loose = {name: there & ~mask for name, mask in fixed.items()}
        rest = wanted.cells.values - _sum([np.where(loose[n], 0, v) for n, v in values.items()])
        shared = _sum([np.where(loose[n], v, 0) for n, v in values.items()])
        ratio = np.where((shared > 0) & (rest >= 0), rest / np.where(shared > 0, shared, 1), 1.0)
        found, todo = {}, there.copy()
        for one in reversed(self.parts):
            name = one.name
            share = _rounded(one, np.where(loose[name], values[name] * ratio, values[name]))
            values[name], gone[name] = share, gone[name] & ~loose[name]
        for one in reversed(self.parts):  # the last makes up for what was rounded
            name = one.name
            others = _sum([v for n, v in values.items() if n != name])
            last = todo & loose[name]
            values[name] = np.where(last, _rounded(one, wanted.cells.values - others), values[name])
            todo &= ~last
        if lost := [one.name for one in self.parts if one.missing][:1]:
            gone[lost[0]] = gone[lost[0]] | (wanted.fixed & ~there)
        for one in self.parts:
            part = CellValues(values[one.name], gone[one.name])
            inside = wanted.fixed & ~_outside(one, part)
            found[one.name] = WantedCells(part, fixed[one.name] | inside)
        return found


@dataclass(frozen=True)
class _Derived(_Kept):
    """A column that is computed from others."""

    rule: Computed
    sources: tuple[Column, ...]
    target: Column
    column: None = None

    def decode(self, column: Any, drawn: Any, known: _Known) -> _Made:
        return _within(self.target, self.computed(known))

    def computed(self, known: _Known) -> CellValues:
        """The column, and where it has no value: without a source, or by a division by 0."""
        cells = [known[name] for name in self.rule.sources]
        raw, is_undefined = raw_values(self.rule, self.sources, [one.values for one in cells])
        gone = np.any([one.gone for one in cells], axis=0) | is_undefined
        return CellValues(rounded_values(self.rule, self.target, raw), gone)

    def ask(self, column: Any, asked: _Wanted, pilot: _Known, random: _Random) -> _Wanted:
        """The sources where the column is wanted: one is solved for, others are the pilot's.

        Where that fails, sources stay free, and rows are drawn until one has what is wanted.
        """
        wanted = asked[self.rule.column]
        cells = {c.name: _merged(pilot[c.name], asked.get(c.name)) for c in self.sources}
        there = wanted.fixed & ~wanted.cells.gone
        free = [c for c in self.sources if c.name not in asked]
        if self.rule.formula != "years":  # a birthday is sought, whatever day the age is counted at
            free.reverse()
        if not free:
            return {}
        sought, known = free[0], {name: one.values for name, one in cells.items()}
        by_name = {c.name: c for c in self.sources}
        found = solved_source(self.rule, by_name, known, wanted.cells.values, sought.name, random)
        values = np.where(there, _rounded(sought, found), cells[sought.name].values)
        cells[sought.name] = CellValues(values, cells[sought.name].gone & ~there)
        is_met = there & ~_outside(sought, cells[sought.name])
        result = self.computed(cells)
        is_met &= ~result.gone & (result.values == wanted.cells.values)
        if lost := [c.name for c in free if c.missing][:1]:
            is_lost = wanted.fixed & wanted.cells.gone
            values, gone = cells[lost[0]]
            cells[lost[0]] = CellValues(values, gone | is_lost)
            is_met |= is_lost
        answers = {}
        for name, one in cells.items():
            given = asked[name].fixed if name in asked else np.zeros_like(is_met)
            answers[name] = WantedCells(one, is_met | given)
        return answers


def _sum(columns: Sequence[_Array]) -> _Array:
    return np.asarray(np.sum(columns, axis=0))


class _Filled:
    """Drawn rows, some of whose cells are made missing, or filled from other drawn rows."""

    def __init__(self, drawn: Table) -> None:
        self.drawn = drawn
        self.columns: dict[str, tuple[_Array, _Mask]] = {}

    def missing(self, name: str) -> _Mask:
        """Where a column is missing by now."""
        return self.columns[name][1] if name in self.columns else self.drawn.missing(name)

    def cells(self, column: Column) -> CellValues:
        """A column as it is by now."""
        if column.name not in self.columns:
            return cells_of(column, self.drawn)
        changed = Table.from_columns({column.name: self.columns[column.name]}, self.drawn)
        return cells_of(column, changed)

    def _open(self, name: str) -> tuple[_Array, _Mask]:
        if name not in self.columns:
            values, missing = self.drawn.values(name), self.drawn.missing(name)
            self.columns[name] = values.copy(), missing.copy()
        return self.columns[name]

    def blank(self, names: Sequence[str], rows: _Mask) -> None:
        """Make columns missing in some rows."""
        for name in names:
            if (rows & ~self.missing(name)).any():
                self._open(name)[1][rows] = True

    def fill(self, names: Sequence[str], rows: _Mask) -> None:
        """Give columns values in some rows: those of rows that have all of them, in turn.

        Drawn rows are in no order, so that taking donors in turn is as good as at random. A column
        that no row has stays missing, and such rows are drawn again.
        """
        if not names:
            return
        complete = rows & ~np.any([self.missing(name) for name in names], axis=0)
        for name in names:
            missing = self.missing(name)
            needy = np.flatnonzero(rows & missing)
            donors = np.flatnonzero(complete if complete.any() else rows & ~missing)
            if needy.size and donors.size:
                values, gaps = self._open(name)
                values[needy] = values[donors[np.arange(needy.size) % donors.size]]
                gaps[needy] = False

    def table(self) -> Table:
        """The rows as they are by now."""
        if not self.columns:
            return self.drawn
        rest = [name for name in self.drawn.names if name not in self.columns]
        changed = Table.from_columns(dict(self.columns), self.drawn)
        return beside([self.drawn.select(rest), changed]) if rest else changed


def _by_what_decides(rules: Sequence[MissingUnless]) -> list[MissingUnless]:
    """Rules in an order in which a category is settled before it decides others."""
    ordered: list[MissingUnless] = []
    rest = list(rules)
    while rest:
        open_names = {name for rule in rest for name in rule.dependent}
        settled = [rule for rule in rest if rule.by not in open_names] or rest[:1]
        ordered += settled
        rest = [rule for rule in rest if rule not in settled]
    return ordered


_Rule = TypeVar("_Rule", bound=Constraint)
_Transform = _Merged | _Gap | _Total | _Derived


def _merged(cells: CellValues, asked: WantedCells | None) -> CellValues:
    """Cells with what is wanted in them."""
    if asked is None:
        return cells
    return CellValues(
        *(np.where(asked.fixed, new, old) for new, old in zip(asked.cells, cells, strict=True))
    )


def _within(column: Column, cells: CellValues) -> _Made:
    """A computed column, and rows in which it left its bounds, which are to be drawn again."""
    wrong = _outside(column, cells)
    values = np.where(wrong, _lowest(column), cells.values)
    return {column.name: CellValues(values, cells.gone)}, wrong


def _rounded(column: Column, values: _Array) -> _Array:
    """Numbers as a column has them: whole, or with its decimals."""
    if column.kind != "continuous":
        return np.rint(values).astype(np.int64)
    return values if column.decimals is None else np.round(values, column.decimals)


# Rows that break a constraint


def _broken_inequality(rule: Inequality, schema: Schema, table: Table) -> _Mask:
    columns = [schema[name] for name in rule.columns]
    low, high = (cells_of(column, table) for column in columns)
    first, last = low.values, high.values
    if columns[0].kind == "datetime":
        # A day has no time: noon is not after the day that it lies in.
        coarse = coarser_step(*columns)
        first, last = (
            cells.values * _step(column) // coarse
            for column, cells in zip(columns, (low, high), strict=True)
        )
    wrong = first >= last if rule.strict else first > last
    if rule.most is not None:
        wrong |= last - first > rule.most * (1 + _NEAR)
    return np.asarray(wrong & ~low.gone & ~high.gone)


def _broken_sum(rule: ColumnSum, schema: Schema, table: Table) -> _Mask:
    parts, total = [cells_of(schema[n], table) for n in rule.parts], schema[rule.total]
    found, gone = cells_of(total, table), np.any([one.gone for one in parts], axis=0)
    values = _sum([one.values for one in parts])
    near = _NEAR * np.maximum(np.abs(found.values), 1.0)
    if total.decimals is not None:
        near = near + 0.5 * 10.0**-total.decimals
    return np.asarray((gone != found.gone) | ((np.abs(values - found.values) > near) & ~gone))


def _broken_range(rule: CategoryRanges, schema: Schema, table: Table) -> _Mask:
    column, by = schema[rule.column], schema[rule.by]
    found, codes = cells_of(column, table), cells_of(by, table).values
    low = np.full(len(by.options) + 1, -np.inf)
    high = -low
    for category, least, most in rule.ranges:
        place = _place(by, category)
        low[place] = low[place] if least is None else number_at(column, least)
        high[place] = high[place] if most is None else last_at(column, most)
    outside = (found.values < low[codes]) | (found.values > high[codes])
    return np.asarray(outside & ~found.gone)


def _broken_computed(rule: Computed, schema: Schema, table: Table) -> _Mask:
    columns, column = tuple(schema[name] for name in rule.sources), schema[rule.column]
    cells, found = [cells_of(one, table) for one in columns], cells_of(column, table)
    raw, gone = raw_values(rule, columns, [one.values for one in cells])
    gone = gone | np.any([one.gone for one in cells], axis=0)
    follows = does_follow(rule, column, found.values, raw)
    return np.asarray((gone != found.gone) | (~follows & ~gone))


def allowed_rows(rule: MissingUnless, by: Column, codes: _Array) -> _Mask:
    """Return the rows whose category lets the dependent columns have values."""
    return np.isin(codes, [_place(by, value) for value in rule.values if _has(by, value)])


def _has(column: Column, value: Value) -> bool:
    """Whether a category is among a column's, of which rare ones are not learned."""
    return value is None or (type(value) is bool, value) in _typed_options(column)


def _typed_options(column: Column) -> list[tuple[bool, Value]]:
    """The categories, of which True and 1 differ."""
    return [(type(one) is bool, one) for one in column.options]


def _broken_unless(rule: MissingUnless, schema: Schema, table: Table) -> _Mask:
    by = schema[rule.by]
    allowed = allowed_rows(rule, by, cells_of(by, table).values)
    gone = np.array([cells_of(schema[name], table).gone for name in rule.dependent])
    wrong = ~allowed & ~gone.all(axis=0)
    if rule.required:
        wrong |= allowed & gone.any(axis=0)
    return np.asarray(wrong)


def _place(column: Column, value: Value) -> int:
    """The code of a category; a missing one is the last."""
    typed = _typed_options(column)
    return len(typed) if value is None else typed.index((type(value) is bool, value))


def broken(rule: Constraint, schema: Schema, table: Table) -> _Mask:
    """Which rows of a table break a constraint of its schema.

    Example:
        >>> schema = Schema((Column("a", "integer"), Column("b", "integer")))
        >>> numbers = {"a": (np.array([1, 5]), None), "b": (np.array([2, 2]), None)}
        >>> broken(Inequality("a", "b"), schema, Table.from_columns(numbers)).tolist()
        [False, True]
    """
    if isinstance(rule, Inequality):
        return _broken_inequality(rule, schema, table)
    if isinstance(rule, ColumnSum):
        return _broken_sum(rule, schema, table)
    if isinstance(rule, CategoryRanges):
        return _broken_range(rule, schema, table)
    if isinstance(rule, Computed):
        return _broken_computed(rule, schema, table)
    if isinstance(rule, MissingUnless):
        return _broken_unless(rule, schema, table)
    cells = [cells_of(schema[name], table) for name in rule.columns]
    if isinstance(rule, FixedCombinations):
        columns = tuple(schema[name] for name in rule.columns)
        return _Merged(rule, rule.columns, (), columns).broken(cells)
    if isinstance(rule, MissingTogether):
        gone = np.array([one.gone for one in cells])
        return np.asarray(gone.any(axis=0) & ~gone.all(axis=0))
    return ~np.isin(np.arange(table.num_rows), groups_of(cells)[0])


# A schema and its tables


@dataclass(frozen=True)
class Modelled:
    """A schema with constraints, and the schema without any that methods learn instead.

    Attributes:
        declared: With constraints; `schema` is the other.
        parts: Where parties hold different columns, those of each. A constraint on columns of
            several parties is kept by drawing rows again.

    Raises:
        SchemaError: A column of `schema` would have the name of a declared one.

    Example:
        >>> declared = Schema(
        ...     (Column("a", "integer", low=0, high=9), Column("b", "integer", low=0, high=9)),
        ...     (Inequality("a", "b"),),
        ... )
        >>> Modelled(declared).schema
        Schema(a (integer), b - a (integer))
    """

    declared: Schema
    parts: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def _transforms(self) -> tuple[_Transform, ...]:
        """Of constraints that can be kept so; inputs are made before what is computed of them."""
        found: list[_Transform] = []
        needs: dict[str, set[str]] = {}
        merged: set[str] = set()
        rules = self.declared.constraints
        for rule in sorted(rules, key=lambda one: not isinstance(one, FixedCombinations)):
            made = self._transform(rule) if self.local(rule) else None
            if made is None or merged & set(rule.columns) or needs.keys() & set(made.targets):
                continue
            below = set(made.inputs).union(*(needs.get(name, ()) for name in made.inputs))
            if below & set(made.targets):
                continue
            found.append(made)
            merged |= set(made.targets) if isinstance(made, _Merged) else set()
            needs |= dict.fromkeys(made.targets, below)
            for above in needs.values():
                above |= below if above & set(made.targets) else set()
        return tuple(sorted(found, key=lambda one: len(needs[one.targets[0]] & needs.keys())))

    def _transform(self, rule: Constraint) -> _Transform | None:
        """How a constraint is kept by what is learned, if it can be."""
        columns = tuple(self.declared[name] for name in rule.columns)
        if isinstance(rule, FixedCombinations):
            return _Merged(rule, rule.columns, (), columns)
        if isinstance(rule, ColumnSum):
            return _Total(rule, (rule.total,), rule.parts, columns[:-1], columns[-1])
        if isinstance(rule, Computed):
            return _Derived(rule, (rule.column,), rule.sources, columns[:-1], columns[-1])
        if isinstance(rule, Inequality):
            low, high = columns
            if low.kind == high.kind and None not in (low.low, low.high, high.low, high.high):
                return _Gap(rule, (rule.high,), (rule.low,), low, high)
        return None

    @cached_property
    def schema(self) -> Schema:
        """What methods learn; it has no constraints."""
        if not self.declared.constraints:
            return self.declared
        made: dict[str, Column | None] = {}
        for one in self._transforms:
            made |= dict.fromkeys(one.targets)
            made[one.targets[0]] = one.column
        columns = [made.get(column.name, column) for column in self.declared.columns]
        kept = tuple(column for column in columns if column is not None)
        for one in self._transforms:
            if one.column is not None and one.column.name in self.declared.names:
                raise SchemaError(
                    f"{one.rule.words}: methods would learn a column {one.column.name!r}, and the "
                    "schema has one of that name; rename it"
                )
        return Schema(kept)

    def local(self, rule: Constraint) -> bool:
        """Whether one party has all columns of a constraint."""
        return not self.parts or any(set(rule.columns) <= set(own) for own in self.parts)

    def names_of(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that methods learn of a party that holds these."""
        known = [name for name in columns if name in self.declared.names]
        kept = Modelled(self.declared.select(known)).schema.names
        return tuple(name for name in self.schema.names if name in kept)

    def check_open(self, learn: float) -> None:
        """Raise SchemaError for combinations that are left open where nothing is learned."""
        for rule in self.declared.constraints if not learn else ():
            if isinstance(rule, FixedCombinations) and not rule.rows:
                raise SchemaError(
                    f"constraint {rule.words}: lists no combinations. List them, or let a method "
                    "that learns schemas learn them (learn=0.1)"
                )

    def takes(self, wanted: Mapping[str, WantedCells]) -> bool:
        """Whether what is wanted must be translated by `asked`."""
        made = {name for one in self._transforms for name in one.targets}
        together = (one.columns for one in self._of_kind(MissingTogether))
        unless = (one.columns for one in self._of_kind(MissingUnless))
        return bool(wanted.keys() & made.union(*together, *unless))

    def _of_kind(self, kind: type[_Rule]) -> list[_Rule]:
        """The declared constraints of one kind."""
        return [one for one in self.declared.constraints if isinstance(one, kind)]

    def keeps(self, rule: Constraint) -> bool:
        """Whether what methods learn keeps a constraint, but for the bounds of what follows."""
        return any(one.rule.words == rule.words for one in self._transforms)

    def always(self, rule: Constraint) -> bool:
        """Whether no row that is drawn can break a constraint, so that none is drawn again."""
        others = (one.columns for one in self.declared.constraints if one is not rule)
        alone = set(rule.columns).isdisjoint(chain(*others))
        return isinstance(rule, FixedCombinations) and alone and self.keeps(rule)

    def own(self, rows: Table, party: int) -> Table:
        """A party's drawn columns as the declared schema has them, by its place in `parts`."""
        known = [name for name in self.parts[party] if name in self.declared.names]
        part = Modelled(self.declared.select(known))
        return part.outside(rows, part.schema, None)[0]

    def broken(self, table: Table) -> dict[str, _Mask]:
        """Which rows break each constraint, by its words; of columns that the table has."""
        found: dict[str, _Mask] = {}
        for rule in self.declared.constraints:
            if set(rule.columns) <= set(table.names):
                wrong = broken(rule, self.declared, table)
                found[rule.words] = wrong | found.get(rule.words, False)
        return found

    @cached_property
    def _moving(self) -> frozenset[str]:
        """Constraints, in words, on columns that all move what does not fit them."""
        rules = self.declared.constraints
        return frozenset(
            rule.words for rule in rules if _moves(self.declared[name] for name in rule.columns)
        )

    def moved_rows(self, table: Table) -> dict[str, int]:
        """How many rows break each constraint and are moved, where any do; for their owner."""
        if not self._moving:
            return {}
        counts = {words: int(np.count_nonzero(w)) for words, w in self.broken(table).items()}
        return {words: n for words, n in counts.items() if n and words in self._moving}

    def check(self, table: Table) -> None:
        """Raise SchemaError for rows that break a constraint: how many, and the first of them.

        A constraint on columns that all move what does not fit them moves such rows, too.
        """
        for words, wrong in self.broken(table).items():
            if words in self._moving:
                continue
            if count := int(np.count_nonzero(wrong)):
                rows = ", ".join(str(i + 1) for i in np.flatnonzero(wrong)[:_SHOWN])
                more = ", ..." if count > _SHOWN else ""
                raise SchemaError(
                    f"constraint {words}: {count} of {len(wrong)} rows break it (row"
                    f"{'s' * (count > 1)} {rows}{more}, counted from 1). Correct or drop such "
                    "rows, or take the constraint out of the schema"
                )

    def inside(self, table: Table) -> Table:
        """A party's table as methods learn it.

        Raises:
            SchemaError: Columns are not the schema's, or rows break a constraint or leave bounds.
        """
        if not self.declared.constraints:
            return table
        if not self.parts:
            check_columns(self.declared, table)
        self.check(table)
        own = [one for one in self._transforms if {*one.targets, *one.inputs} <= set(table.names)]
        gone = {name for one in own for name in one.targets}
        used = {name for one in own for name in (*one.targets, *one.inputs)}
        cells = {name: cells_of(self.declared[name], table) for name in used}
        for name in sorted(gone):
            column = self.declared[name]
            if column.kind in BINNED:
                low = -np.inf if column.low is None else number_at(column, column.low)
                high = np.inf if column.high is None else last_of(column)
                check_values(column, table, *cells[name], low, high)
        learned = (one for one in own if isinstance(one, _Merged | _Gap))
        made = {one.column.name: one.encode(cells) for one in learned}
        kept = table.select([name for name in table.names if name not in gone])
        if not made:
            return kept
        new = Table.from_columns(made)
        return beside([kept, new]) if kept.names else new

    @cached_property
    def _carriers(self) -> dict[str, str]:
        """The learned column that says where a declared column is missing, of those with one."""
        carriers = {name: name for name in self.schema.names if name in self.declared.names}
        gaps = (one for one in self._transforms if isinstance(one, _Gap))
        return carriers | {one.rule.high: one.column.name for one in gaps}

    @cached_property
    def _combined(self) -> frozenset[str]:
        """Columns that methods learn as a part of a combination."""
        merged = (one for one in self._transforms if isinstance(one, _Merged))
        return frozenset(name for one in merged for name in one.targets)

    def leader(self, rule: MissingTogether) -> str:
        """Return the column whose gaps the others follow.

        It is one of a fixed combination, which cannot follow, else the first that is learned.
        """
        bound = [name for name in rule.columns if name in self._combined]
        learned = [name for name in rule.columns if name in self._carriers]
        return (*bound, *learned, *rule.columns)[0]

    def _with_gaps(self, table: Table, schema: Schema) -> Table:
        """Drawn rows of learned columns, that are missing where the constraints say.

        A value that a constraint asks for and the row lacks is that of another drawn row.
        """
        unless, together = self._of_kind(MissingUnless), self._of_kind(MissingTogether)
        if not unless and not together:
            return table
        merged: dict[str, CellValues] = {}
        for one in self._transforms:
            if isinstance(one, _Merged):
                column = schema[one.column.name]
                merged |= one.decode(column, cells_of(column, table), {})[0]
        filled = _Filled(table)
        # Twice, since columns that are missing together may have a category among them.
        for _ in range(2):
            for rule in _by_what_decides(unless):
                self._apply_category(rule, filled, merged, schema)
            for group in together:
                self._apply_leader(group, filled, merged)
        return filled.table()

    def _apply_category(
        self, rule: MissingUnless, filled: _Filled, merged: _Known, schema: Schema
    ) -> None:
        """Blank what a category rules out, and fill what it requires."""
        if rule.by in merged:
            allowed = allowed_rows(rule, self.declared[rule.by], merged[rule.by].values)
        elif rule.by in self._carriers:
            by = schema[rule.by]
            allowed = allowed_rows(rule, by, filled.cells(by).values)
        else:
            return
        names = [self._carriers[name] for name in rule.dependent if name in self._carriers]
        filled.blank(names, ~allowed)
        if rule.required:
            filled.fill(names, allowed)

    def _apply_leader(self, group: MissingTogether, filled: _Filled, merged: _Known) -> None:
        """Make columns missing, or fill them, as the one that they follow is."""
        leader = self.leader(group)
        if leader in merged:
            lost = merged[leader].gone
        elif leader in self._carriers:
            lost = filled.missing(self._carriers[leader])
        else:
            return
        names = [self._carriers[name] for name in group.columns if name in self._carriers]
        filled.blank(names, lost)
        filled.fill(names, ~lost)

    def _gaps_of_derived(self, table: Table, known: _Known, outer: Schema) -> dict[str, _Mask]:
        """Where columns that are no learned ones are missing, since constraints say so."""
        gone: dict[str, _Mask] = {}
        for rule in self._of_kind(MissingUnless):
            by = outer[rule.by]
            codes = known[rule.by] if rule.by in known else cells_of(by, table)
            lost = ~allowed_rows(rule, by, codes.values)
            gone |= {name: lost | gone.get(name, False) for name in rule.dependent}
        for group in self._of_kind(MissingTogether):
            leader = self.leader(group)
            lost = known[leader].gone if leader in known else table.missing(leader)
            gone |= {name: lost | gone.get(name, False) for name in group.columns}
        return {name: lost for name, lost in gone.items() if name not in table.names}

    def _drawn(self, table: Table, schema: Schema) -> _Made:
        """Cells of columns that are made of what was drawn, of their inputs, and bad rows."""
        known: dict[str, CellValues] = {}
        bad: _Mask = np.zeros(table.num_rows, dtype=np.bool_)
        for one in self._transforms:
            for name in one.inputs:
                if name not in known:
                    known[name] = cells_of(schema[name], table)
            column: Any = None if one.column is None else schema[one.column.name]
            drawn: Any = None if column is None else cells_of(column, table)
            made, wrong = one.decode(column, drawn, known)
            known |= made
            bad |= wrong
        return known, bad

    def outside(self, table: Table, schema: Schema, like: Table | None) -> tuple[Table, _Mask]:
        """Drawn rows as the declared schema has them, and which could not be made so.

        Args:
            table: As methods draw it.
            schema: Its schema: `Modelled.schema`, with what was learned.
            like: The result's frame and types are those of this table.

        Returns:
            All modelled columns, and the rows that are to be drawn again.
        """
        table = self._with_gaps(table, schema)
        known, bad = self._drawn(table, schema)
        outer = self.restored(schema)
        gone = self._gaps_of_derived(table, known, outer)
        columns: dict[str, tuple[Any, Any]] = {}
        for column in outer.coded:
            name = column.name
            if name in table.names:
                columns[name] = table.values(name), table.missing(name)
            else:
                columns[name] = written(column, known[name], like)
            if name in gone:
                values, missing = columns[name]
                columns[name] = values, gone[name] if missing is None else missing | gone[name]
        categories = {column.name: column.categories for column in outer.columns}
        return Table.from_columns(columns, like, categories), bad

    def restored(self, schema: Schema) -> Schema:
        """The declared schema, with what was learned of the columns that methods learn."""
        rules = {id(one): one for one in self.declared.constraints}
        for one in self._transforms:
            if isinstance(one, _Merged) and not one.rule.rows:
                found = [c for c in schema[one.column.name].categories if c != _OPEN]
                rows = tuple(tuple(msgspec.json.decode(str(text))) for text in found)
                rules[id(one.rule)] = msgspec.structs.replace(one.rule, rows=rows)
        columns = (schema[c.name] if c.name in schema.names else c for c in self.declared.columns)
        return Schema(tuple(columns), tuple(rules.values()))

    def asked(
        self,
        wanted: Mapping[str, WantedCells],
        pilot: Table,
        schema: Schema,
        random: np.random.Generator,
    ) -> dict[str, WantedCells]:
        """What is wanted of declared columns, in the columns that methods learn.

        Args:
            wanted: By name of a declared column.
            pilot: As many rows, as methods draw them; they decide what is left open, such as the
                smaller column where the larger is wanted.
            schema: Of the pilot.
            random: Chooses among pilots.

        Raises:
            InputError: No row that keeps the constraints has what is wanted.
        """
        known, _ = self._drawn(pilot, schema)
        known |= {c.name: cells_of(c, pilot) for c in schema.coded if c.name not in known}
        found = dict(wanted)
        for unless in self._of_kind(MissingUnless):
            self._ask_category(unless, self.restored(schema), found, known, random)
        for group in self._of_kind(MissingTogether):
            first = self.leader(group)
            for name in group.columns:
                if name in found and first not in found:
                    lost = found[name].fixed & found[name].cells.gone
                    zeros = np.zeros_like(known[first].values)
                    found[first] = WantedCells(CellValues(zeros, lost), lost)
        for one in reversed(self._transforms):
            if any(name in found for name in one.targets):
                column: Any = None if one.column is None else schema[one.column.name]
                found |= one.ask(column, found, known, random)
                found = {name: own for name, own in found.items() if name not in one.targets}
        return found

    def _ask_category(
        self, rule: MissingUnless, schema: Schema, found: _Wanted, known: _Known, random: _Random
    ) -> None:
        """Ask for a category that allows the values that are wanted, where it is open."""
        if rule.by in found:
            return
        by, codes = schema[rule.by], known[rule.by].values
        needed = np.zeros(len(codes), dtype=np.bool_)
        for name in rule.dependent:
            if name in found:
                needed |= found[name].fixed & ~found[name].cells.gone
        allowed = allowed_rows(rule, by, codes)
        choices = codes[allowed]
        if not choices.size:
            choices = np.array([_place(by, value) for value in rule.values if _has(by, value)])
        if not choices.size:
            return
        wanted = np.where(allowed, codes, random.choice(choices, len(codes)))
        gone = wanted == len(by.options)
        found[rule.by] = WantedCells(CellValues(wanted, gone), needed)
