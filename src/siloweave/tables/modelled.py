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
from msgspec.structs import replace
from numpy.typing import NDArray

from siloweave.errors import InputError, SchemaError
from siloweave.tables.arrays import Bools
from siloweave.tables.bins import (
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
from siloweave.tables.column import Column, Kind, Outside, Value
from siloweave.tables.constraints import (
    CategoryRanges,
    ColumnSum,
    Computed,
    Constraint,
    FixedCombinations,
    Inequality,
    MissingTogether,
    MissingUnless,
)
from siloweave.tables.formulas import (
    does_follow,
    raw_values,
    rounded_values,
    solved_source,
)
from siloweave.tables.joining import beside
from siloweave.tables.schema import Schema, check_columns
from siloweave.tables.table import Table

# The category of combinations that were not learned.
_OPEN = "?"
# An error names at most so many rows.
_SHOWN = 5
# The relative error that sums of floats may have.
_NEAR = 1e-9
_Mask = Bools
_Array = NDArray[Any]
_Random = np.random.Generator


class WantedCells(NamedTuple):
    """The cells wanted in a column of some rows; `fixed` marks the rows that have one."""

    cells: CellValues
    fixed: _Mask


class _Decoded(NamedTuple):
    """The cells of declared columns, by name, and the rows that cannot meet their constraint."""

    columns: dict[str, CellValues]
    unmet: _Mask


_CellsByColumn = Mapping[str, CellValues]
_WantedByColumn = dict[str, WantedCells]


def written(
    column: Column, cells: CellValues, like: Table | None
) -> tuple[_Array, _Mask | None]:
    """Return a column's values, and where they are missing, as `Table.from_columns` takes them."""
    if not column.is_binned:
        codes = np.where(cells.gone, len(column.options), cells.values)
        return labels_of(column, codes)
    # The lowest value stands where a cell is missing: it is within the bounds.
    numbers = np.where(cells.gone, _lowest(column), cells.values)
    values = as_written(column, numbers, like)
    if not column.missing:
        return values, None
    return values, cells.gone


def _step(column: Column) -> int:
    """Return the step of a datetime column in microseconds; 1 for numbers."""
    if column.is_datetime:
        return step_of(column)
    return 1


def _lowest(column: Column) -> int | float:
    """Return a column's lower bound as a number; 0 where it has none."""
    if column.low is None:
        return 0
    return number_at(column, column.low)


def _outside(column: Column, cells: CellValues) -> _Mask:
    """Return the rows that are outside a column's declared bounds."""
    is_outside: _Mask = np.zeros(len(cells.values), dtype=np.bool_)
    if column.low is not None:
        is_outside |= cells.values < number_at(column, column.low)
    if column.high is not None:
        is_outside |= cells.values > last_at(column, column.high)
    return is_outside & ~cells.gone


# Constraints that are kept by what methods learn


@dataclass(frozen=True)
class _RuleTransform:
    """A constraint kept by construction: what is made, and the other columns that this needs."""

    rule: Constraint
    targets: tuple[str, ...]
    inputs: tuple[str, ...]


def _all_move(columns: Iterable[Column]) -> bool:
    """Return whether all of some columns move cells that do not fit."""
    return all(column.outside == "move" for column in columns)


def _outside_of(columns: Sequence[Column]) -> Outside | None:
    """Return what a column made of others does with cells that do not fit; see `Column`."""
    if any(column.outside == "refuse" for column in columns):
        return "refuse"
    if _all_move(columns):
        return "move"
    return None


def _numbers_or_none(cells: CellValues) -> list[Any]:
    """Return a column's numbers or codes as a list, with None for missing ones."""
    numbers = []
    for number, is_missing in zip(*cells, strict=True):
        nullable = None if is_missing else number
        numbers.append(nullable)
    return numbers


def _are_open(categories: Sequence[Any]) -> _Mask:
    """Return which categories stand for combinations that are not learned yet."""
    return np.array([category == _OPEN for category in categories], dtype=np.bool_)


@dataclass(frozen=True)
class _MergedColumns(_RuleTransform):
    """Fixed combinations as one column of text, whose categories are combinations in JSON."""

    rule: FixedCombinations
    columns: tuple[Column, ...]

    @cached_property
    def column(self) -> Column:
        """The column that methods learn instead."""
        rows = [map(self._number, self.columns, row) for row in self.rule.rows]
        texts = tuple(self.text(row) for row in rows)
        # Combinations that a method learns have no list yet: their category is open till then.
        open_category = None
        if not texts:
            open_category = _OPEN
        fallback = None
        if texts and _all_move(self.columns):
            fallback = texts[0]
        from_data = ("categories",) if self.rule.from_data else ()
        return Column(
            "+".join(self.rule.columns),
            "categorical",
            texts or (_OPEN,),
            other=open_category,
            from_data=from_data,
            outside=_outside_of(self.columns),
            fallback=fallback,
        )

    @staticmethod
    def _number(column: Column, value: Value) -> int | float | None:
        """Convert a value of a column to a number or a code; None for a missing one."""
        if value is None:
            return None
        if column.is_binned:
            return number_at(column, value)
        return _place(column, value)

    def text(self, numbers: Any) -> str:
        """Write a combination of numbers or codes as a category."""
        values = list(map(value_of, self.columns, numbers))
        return msgspec.json.encode(values).decode()

    def texts(self, cells: Sequence[CellValues]) -> tuple[_Array, _Array]:
        """Return all combinations in rows as categories, and each row's place among them."""
        first_rows, group = groups_of(cells)
        columns = [_numbers_or_none(column.take(first_rows)) for column in cells]
        texts = [self.text(combination) for combination in zip(*columns, strict=True)]
        return np.array(texts, dtype=object), group

    def broken(self, cells: Sequence[CellValues]) -> _Mask:
        """Return the rows whose combination is not listed; none if no combination is."""
        texts, group = self.texts(cells)
        # Open combinations are still to be learned: none is broken.
        if not self.rule.rows:
            return np.zeros(len(group), dtype=np.bool_)
        listed = set(self.column.categories)
        is_broken = np.array([text not in listed for text in texts], bool)
        return is_broken[group]

    def encode(self, cells: _CellsByColumn) -> tuple[_Array, _Mask | None]:
        """Build the learned column from the declared ones."""
        texts, group = self.texts([cells[name] for name in self.rule.columns])
        return texts[group], None

    def table(self, categories: Sequence[Any]) -> list[CellValues]:
        """Return each category's values in every column; an open category is missing everywhere."""
        nothing: list[Any] = [None] * len(self.columns)
        rows = []
        for category in categories:
            is_open = category == _OPEN
            row = nothing if is_open else msgspec.json.decode(category)
            rows.append(row)

        columns = []
        for i, column in enumerate(self.columns):
            numbers = [self._number(column, row[i]) for row in rows]
            gaps = [number is None for number in numbers]
            is_missing = np.array(gaps, dtype=np.bool_)
            # 0 stands where there is no number, and may not make integers floats.
            for place in np.flatnonzero(is_missing):
                numbers[place] = 0
            columns.append(CellValues(np.array(numbers), is_missing))
        return columns

    def decode(
        self, column: Column, learned: CellValues, inputs: _CellsByColumn
    ) -> _Decoded:
        """Rebuild the declared columns from the learned one."""
        codes = learned.values.astype(np.int64)
        options = self.table(column.categories)
        parts = [option.take(codes) for option in options]
        unmet = _are_open(column.categories)[codes]
        return _Decoded(dict(zip(self.targets, parts, strict=True)), unmet)

    def ask(
        self,
        column: Column,
        wanted: _WantedByColumn,
        pilot: _CellsByColumn,
        random: _Random,
    ) -> _WantedByColumn:
        """Choose a combination for each row in which some of its values are wanted.

        It is that of the row's pilot if it has the wanted values, else one of another pilot row,
        else any.
        """
        # Each with the column's place among those of the combination.
        wishes = []
        for i, name in enumerate(self.targets):
            if name in wanted:
                wishes.append((i, wanted[name]))
        is_fixed = np.any([wish.fixed for _, wish in wishes], axis=0)
        options = self.table(column.categories)
        is_listed = ~_are_open(column.categories)
        pilot_codes = pilot[column.name].values

        # Rows that want the same values of the same columns are answered together.
        patterns = [wish.cells for _, wish in wishes]
        for _, wish in wishes:
            patterns.append(CellValues(wish.fixed.astype(np.int64), ~wish.fixed))
        first_rows, group = groups_of(patterns)

        codes = pilot_codes.copy()
        for row, number in zip(first_rows, group[first_rows], strict=True):
            fits = is_listed.copy()
            for i, wish in wishes:
                if wish.fixed[row]:
                    fits &= _has_wanted(options[i], wish.cells, row)
            if not fits.any():
                raise InputError(
                    f"given: no row has these values of {', '.join(self.targets)} together; see "
                    f"the schema's {self.rule.words}"
                )
            rows = np.flatnonzero(group == number)
            pool = pilot_codes[fits[pilot_codes]]
            if not pool.size:
                pool = np.flatnonzero(fits)
            row_codes = pilot_codes[rows]
            spare_codes = random.choice(pool, len(rows))
            codes[rows] = np.where(fits[row_codes], row_codes, spare_codes)
        nowhere = np.zeros(len(codes), dtype=np.bool_)
        return {column.name: WantedCells(CellValues(codes, nowhere), is_fixed)}


def _has_wanted(options: CellValues, wanted: CellValues, row: int) -> _Mask:
    """Return which options of a column have the cells that a row wants."""
    if wanted.gone[row]:
        return options.gone
    is_equal = options.values == wanted.values[row]
    return np.asarray(~options.gone & is_equal)


@dataclass(frozen=True)
class _GapColumn(_RuleTransform):
    """An inequality, for which the gap is learned in place of the larger column."""

    rule: Inequality
    low: Column
    high: Column

    @property
    def whole(self) -> bool:
        """Whether gaps are whole numbers."""
        return not self.high.is_continuous

    @property
    def coarse(self) -> int:
        """The number of the larger column's steps in a step of the coarser one; 1 for numbers."""
        return coarser_step(self.low, self.high) // _step(self.high)

    @property
    def least(self) -> int:
        """The smallest gap. A strict one of a continuum is 0 too: no bound can say "above 0"."""
        return self.coarse * int(self.rule.strict and self.whole)

    @cached_property
    def floor(self) -> int | float:
        """The number from which the gap is counted where the smaller column is missing."""
        first: int | float = self._start(_lowest(self.low))
        return min(first, _lowest(self.high)) - self.least

    @cached_property
    def column(self) -> Column:
        """The column that methods learn instead."""
        # Where the smaller column may be missing, the gap must reach from below both.
        low = self._start(_lowest(self.low))
        if self.low.missing:
            low = self.floor
        most: int | float = last_of(self.high) - low
        if self.rule.most is not None:
            # A day that is at most two days later ends just before the third.
            widest = self.rule.most
            if self.coarse != 1:
                widest = self._end(self.rule.most)
            most = min(most, widest)

        decimals = None
        if self.low.decimals is not None and self.high.decimals is not None:
            decimals = max(self.low.decimals, self.high.decimals)
            most = round(most, decimals)

        # A gap can always be moved to the least one; a column with gaps moves to "missing" instead.
        can_fall_back = _all_move((self.low, self.high)) and not self.high.missing
        fallback = self.least if can_fall_back else None
        kind: Kind = "integer" if self.whole else "continuous"
        from_data = {*self.low.from_data, *self.high.from_data}
        bounds_from_data = from_data & {"low", "high"}
        return Column(
            f"{self.rule.high} - {self.rule.low}",
            kind,
            low=self.least,
            high=most,
            missing=self.high.missing,
            decimals=decimals,
            from_data=tuple(sorted(bounds_from_data)),
            outside=_outside_of((self.low, self.high)),
            fallback=fallback,
        )

    def _start(self, values: Any) -> Any:
        """Convert the smaller column to steps of the larger, from the start of its coarser step."""
        if not self.low.is_datetime:
            return values
        coarse = coarser_step(self.low, self.high)
        return values * _step(self.low) // coarse * self.coarse

    def _end(self, most: int | float) -> int:
        """Return the larger column's last step that is `most` coarser steps after a first one."""
        return (int(most) + 1) * self.coarse - 1

    def base(self, low: CellValues) -> _Array:
        """Return the number from which each row's gap is counted."""
        return np.where(low.gone, self.floor, self._start(low.values))

    def gap(self, low: CellValues, high: CellValues) -> CellValues:
        """Compute each row's gap; it is missing where the larger column is."""
        values = high.values - self.base(low)
        if self.column.decimals is not None:
            values = np.round(values, self.column.decimals)
        gaps = np.where(high.gone, self.least, values)
        return CellValues(gaps, high.gone)

    def encode(self, cells: _CellsByColumn) -> tuple[_Array, _Mask | None]:
        """Build the learned column from the declared ones."""
        gap = self.gap(cells[self.rule.low], cells[self.rule.high])
        return written(self.column, gap, None)

    def decode(
        self, column: Column, learned: CellValues, inputs: _CellsByColumn
    ) -> _Decoded:
        """Rebuild the larger column from the learned gap and the smaller column."""
        values = self.base(inputs[self.rule.low]) + learned.values
        high = CellValues(_rounded(self.high, values), learned.gone)
        return _within(self.high, high)

    def ask(
        self,
        column: Column,
        wanted: _WantedByColumn,
        pilot: _CellsByColumn,
        random: _Random,
    ) -> _WantedByColumn:
        """Choose a gap where the larger value is wanted; the smaller one is near the pilot's."""
        wanted_high = wanted[self.rule.high]
        wanted_low = wanted.get(self.rule.low)
        start = pilot[self.rule.low]
        gap = self._pilot_gap(pilot[column.name], random)

        # The smaller value may be chosen where nobody fixed it and there is one.
        is_free = wanted_high.fixed & ~wanted_high.cells.gone & ~start.gone
        if wanted_low is not None:
            is_free &= ~wanted_low.fixed
            start = _with_wanted(start, wanted_low)
        nearest = self._nearest_start(wanted_high.cells.values - gap, start)
        values = np.where(is_free, _rounded(self.low, nearest), start.values)
        start = CellValues(values, start.gone)

        wanted_gap = self.gap(start, wanted_high.cells)
        is_wrong = wanted_high.fixed & _outside(self.column, wanted_gap)
        is_refused = is_wrong & ~is_free
        if is_refused.any():
            raise InputError(
                f"given: {int(is_refused.sum())} rows ask for values that break "
                f"{self.rule.words}, or whose gap is outside {self.column.low} to "
                f"{self.column.high}"
            )

        is_free &= ~is_wrong & ~_outside(self.low, start)
        has_start = is_free
        if wanted_low is not None:
            has_start = is_free | wanted_low.fixed
        has_gap = wanted_high.fixed & (has_start | wanted_high.cells.gone)
        return {
            column.name: WantedCells(wanted_gap, has_gap),
            self.rule.low: WantedCells(start, has_start),
        }

    def _pilot_gap(self, pilot: CellValues, random: _Random) -> _Array:
        """Return the pilot rows' gaps, with a missing one replaced by that of another row."""
        num_rows = len(pilot.gone)
        present = np.flatnonzero(~pilot.gone)
        donors = np.arange(num_rows)
        if present.size:
            donors = random.choice(present, num_rows)
        return np.where(pilot.gone, pilot.values[donors], pilot.values)

    def _nearest_start(self, values: _Array, start: CellValues) -> _Array:
        """Convert steps of the larger column to the nearest values of the smaller column."""
        if not self.low.is_datetime:
            return values
        # The time of day, which the gap does not say, stays that of the pilot.
        coarse = coarser_step(self.low, self.high)
        steps_each = coarse // _step(self.low)
        day = values * _step(self.high) // coarse * steps_each
        return np.asarray(day + start.values % steps_each)


@dataclass(frozen=True)
class _ComputedTotal(_RuleTransform):
    """A sum, whose total is computed and not learned."""

    rule: ColumnSum
    parts: tuple[Column, ...]
    total: Column
    column: None = None

    def decode(self, column: Any, learned: Any, inputs: _CellsByColumn) -> _Decoded:
        """Compute the total from the parts."""
        parts = [inputs[name] for name in self.rule.parts]
        values = _rounded(self.total, _sum([part.values for part in parts]))
        is_missing = np.any([part.gone for part in parts], axis=0)
        return _within(self.total, CellValues(values, is_missing))

    def ask(
        self,
        column: Any,
        wanted: _WantedByColumn,
        pilot: _CellsByColumn,
        random: _Random,
    ) -> _WantedByColumn:
        """Choose all parts where the total is wanted; free parts share it as in the pilot row."""
        wanted_total = wanted[self.rule.total]
        total = wanted_total.cells.values
        has_total = wanted_total.fixed & ~wanted_total.cells.gone
        fixed: dict[str, _Mask] = {}
        values: dict[str, _Array] = {}
        missing: dict[str, _Mask] = {}
        for part in self.parts:
            name = part.name
            wish = wanted.get(name)
            cells = _with_wanted(pilot[name], wish)
            values[name] = cells.values
            missing[name] = cells.gone
            fixed[name] = np.zeros_like(has_total)
            if wish is not None:
                fixed[name] = wish.fixed
        free = {name: has_total & ~is_fixed for name, is_fixed in fixed.items()}

        # Free parts are scaled by one ratio, so that with the fixed ones they make the total.
        fixed_values = []
        free_values = []
        for name, value in values.items():
            fixed_values.append(np.where(free[name], 0, value))
            free_values.append(np.where(free[name], value, 0))
        rest = total - _sum(fixed_values)
        shared = _sum(free_values)
        # A total of 0 has no ratio; 1 is put below the line there, and the result is not used.
        is_shared = shared > 0
        quotient = rest / np.where(is_shared, shared, 1)
        ratio = np.where(is_shared & (rest >= 0), quotient, 1.0)
        for part in reversed(self.parts):
            name = part.name
            scaled = np.where(free[name], values[name] * ratio, values[name])
            values[name] = _rounded(part, scaled)
            missing[name] = missing[name] & ~free[name]

        # The last free part makes up for what was rounded.
        is_open = has_total.copy()
        for part in reversed(self.parts):
            name = part.name
            others = [values[sibling] for sibling in values if sibling != name]
            makes_up = is_open & free[name]
            remainder = _rounded(part, total - _sum(others))
            values[name] = np.where(makes_up, remainder, values[name])
            is_open &= ~makes_up

        # A missing total needs one missing part.
        optional = [part.name for part in self.parts if part.missing]
        if optional:
            wants_gap = wanted_total.fixed & ~has_total
            missing[optional[0]] = missing[optional[0]] | wants_gap

        wishes = {}
        for part in self.parts:
            cells = CellValues(values[part.name], missing[part.name])
            is_met = wanted_total.fixed & ~_outside(part, cells)
            wishes[part.name] = WantedCells(cells, fixed[part.name] | is_met)
        return wishes


@dataclass(frozen=True)
class _DerivedColumn(_RuleTransform):
    """A column that is computed from others, and not learned."""

    rule: Computed
    sources: tuple[Column, ...]
    target: Column
    column: None = None

    def decode(self, column: Any, learned: Any, inputs: _CellsByColumn) -> _Decoded:
        """Compute the column from its sources, with the rows outside its bounds."""
        return _within(self.target, self.computed(inputs))

    def computed(self, inputs: _CellsByColumn) -> CellValues:
        """Compute the column; it is missing without a source, or after a division by 0."""
        sources = [inputs[name] for name in self.rule.sources]
        source_values = [source.values for source in sources]
        raw, is_undefined = raw_values(self.rule, self.sources, source_values)
        lacks_source = np.any([source.gone for source in sources], axis=0)
        values = rounded_values(self.rule, self.target, raw)
        return CellValues(values, lacks_source | is_undefined)

    def ask(
        self,
        column: Any,
        wanted: _WantedByColumn,
        pilot: _CellsByColumn,
        random: _Random,
    ) -> _WantedByColumn:
        """Choose the sources where the column is wanted: one is solved for, others are the pilot's.

        Where that fails, sources stay free, and rows are drawn until one has what is wanted.
        """
        wanted_result = wanted[self.rule.column]
        has_value = wanted_result.fixed & ~wanted_result.cells.gone
        cells = {}
        for column in self.sources:
            wish = wanted.get(column.name)
            cells[column.name] = _with_wanted(pilot[column.name], wish)
        free = [c for c in self.sources if c.name not in wanted]
        # Of an age the birthday is sought, whatever day it is counted at.
        if self.rule.formula != "years":
            free.reverse()
        if not free:
            return {}

        sought = free[0]
        sources = {c.name: c for c in self.sources}
        source_values = {name: source.values for name, source in cells.items()}
        result_values = wanted_result.cells.values
        solution = solved_source(
            self.rule,
            self.target,
            sources,
            source_values,
            result_values,
            sought.name,
            random,
        )
        before = cells[sought.name]
        values = np.where(has_value, _rounded(sought, solution), before.values)
        cells[sought.name] = CellValues(values, before.gone & ~has_value)

        # What was solved for is rounded and may leave its bounds: only what leads back to the
        # wanted value is met.
        is_met = has_value & ~_outside(sought, cells[sought.name])
        result = self.computed(cells)
        is_met &= ~result.gone & (result.values == result_values)

        # A missing value needs one missing source.
        optional = [c.name for c in free if c.missing]
        if optional:
            wants_gap = wanted_result.fixed & wanted_result.cells.gone
            values, is_missing = cells[optional[0]]
            cells[optional[0]] = CellValues(values, is_missing | wants_gap)
            is_met |= wants_gap

        wishes = {}
        for name, source in cells.items():
            has_wish = is_met
            if name in wanted:
                has_wish = is_met | wanted[name].fixed
            wishes[name] = WantedCells(source, has_wish)
        return wishes


def _sum(columns: Sequence[_Array]) -> _Array:
    """Add up the values of each row."""
    return np.asarray(np.sum(columns, axis=0))


class _EditedRows:
    """Drawn rows, some of whose cells are made missing, or filled from other drawn rows."""

    def __init__(self, rows: Table) -> None:
        self.rows = rows
        # Values and gaps of columns that were changed.
        self.columns: dict[str, tuple[_Array, _Mask]] = {}

    def missing(self, name: str) -> _Mask:
        """Return where a column is missing after the edits so far."""
        if name in self.columns:
            _, is_missing = self.columns[name]
            return is_missing
        return self.rows.missing(name)

    def cells(self, column: Column) -> CellValues:
        """Return a column after the edits so far."""
        if column.name not in self.columns:
            return cells_of(column, self.rows)
        change = {column.name: self.columns[column.name]}
        return cells_of(column, Table.from_columns(change, self.rows))

    def _writable(self, name: str) -> tuple[_Array, _Mask]:
        """Return a column's values and gaps, copied before their first change."""
        if name not in self.columns:
            values = self.rows.values(name).copy()
            gaps = self.rows.missing(name).copy()
            self.columns[name] = (values, gaps)
        return self.columns[name]

    def blank(self, names: Sequence[str], rows: _Mask) -> None:
        """Make columns missing in some rows."""
        for name in names:
            has_values = rows & ~self.missing(name)
            if has_values.any():
                _, is_missing = self._writable(name)
                is_missing[rows] = True

    def fill(self, names: Sequence[str], rows: _Mask) -> None:
        """Fill columns in some rows with values of rows that have all of them, in turn.

        Drawn rows are in no order, so that taking donors in turn is as good as at random. A column
        that no row has stays missing, and such rows are drawn again.
        """
        if not names:
            return
        gaps_by_column = [self.missing(name) for name in names]
        is_complete = rows & ~np.any(gaps_by_column, axis=0)
        has_complete = is_complete.any()
        for name in names:
            is_missing = self.missing(name)
            needy = np.flatnonzero(rows & is_missing)
            # Values of one row belong together; without such rows they are of several.
            is_donor = is_complete if has_complete else rows & ~is_missing
            donors = np.flatnonzero(is_donor)
            if needy.size and donors.size:
                values, gaps = self._writable(name)
                donors_in_turn = donors[np.arange(needy.size) % donors.size]
                values[needy] = values[donors_in_turn]
                gaps[needy] = False

    def table(self) -> Table:
        """Return the rows after the edits so far."""
        if not self.columns:
            return self.rows
        changed = Table.from_columns(dict(self.columns), self.rows)
        unchanged = [name for name in self.rows.names if name not in self.columns]
        if not unchanged:
            return changed
        return beside([self.rows.select(unchanged), changed])


def _by_what_decides(rules: Sequence[MissingUnless]) -> list[MissingUnless]:
    """Order rules so that a category is settled before it decides about others."""
    ordered: list[MissingUnless] = []
    rest = list(rules)
    while rest:
        open_names = set(chain(*(rule.dependent for rule in rest)))
        settled = [rule for rule in rest if rule.by not in open_names]
        # Rules in a ring have no such order; the first of them begins.
        if not settled:
            settled = rest[:1]
        ordered += settled
        rest = [rule for rule in rest if rule not in settled]
    return ordered


_Rule = TypeVar("_Rule", bound=Constraint)
_Transform = _MergedColumns | _GapColumn | _ComputedTotal | _DerivedColumn


def _with_wanted(cells: CellValues, wanted: WantedCells | None) -> CellValues:
    """Put wanted values into cells."""
    if wanted is None:
        return cells
    values = np.where(wanted.fixed, wanted.cells.values, cells.values)
    is_missing = np.where(wanted.fixed, wanted.cells.gone, cells.gone)
    return CellValues(values, is_missing)


def _within(column: Column, cells: CellValues) -> _Decoded:
    """Return a computed column, and the rows outside its bounds, which are to be drawn again."""
    is_outside = _outside(column, cells)
    values = np.where(is_outside, _lowest(column), cells.values)
    return _Decoded({column.name: CellValues(values, cells.gone)}, is_outside)


def _rounded(column: Column, values: _Array) -> _Array:
    """Round numbers as a column is declared: to whole numbers, or its decimals."""
    if not column.is_continuous:
        return np.rint(values).astype(np.int64)
    if column.decimals is None:
        return values
    return np.round(values, column.decimals)


# Rows that break a constraint


def _broken_inequality(rule: Inequality, schema: Schema, table: Table) -> _Mask:
    """Return the rows whose smaller value exceeds the larger, or is too far below it."""
    low_column = schema[rule.low]
    high_column = schema[rule.high]
    low = cells_of(low_column, table)
    high = cells_of(high_column, table)
    first = low.values
    last = high.values
    if low_column.is_datetime:
        # A day has no time: noon is not after the day that it lies in.
        coarse = coarser_step(low_column, high_column)
        first = first * _step(low_column) // coarse
        last = last * _step(high_column) // coarse

    is_wrong = first > last
    if rule.strict:
        is_wrong |= first == last
    if rule.most is not None:
        is_wrong |= last - first > rule.most * (1 + _NEAR)
    has_both = ~low.gone & ~high.gone
    return np.asarray(is_wrong & has_both)


def _broken_sum(rule: ColumnSum, schema: Schema, table: Table) -> _Mask:
    """Return the rows whose parts do not add up to the total, within what rounding explains."""
    parts = [cells_of(schema[name], table) for name in rule.parts]
    total_column = schema[rule.total]
    total = cells_of(total_column, table)
    lacks_part = np.any([part.gone for part in parts], axis=0)
    sums = _sum([part.values for part in parts])
    tolerance = _NEAR * np.maximum(np.abs(total.values), 1.0)
    if total_column.decimals is not None:
        tolerance = tolerance + 0.5 * 10.0**-total_column.decimals
    is_off = np.abs(sums - total.values) > tolerance
    has_other_gap = lacks_part != total.gone
    return np.asarray(has_other_gap | (is_off & ~lacks_part))


def _broken_range(rule: CategoryRanges, schema: Schema, table: Table) -> _Mask:
    """Return the rows whose number is outside the range of their category."""
    column = schema[rule.column]
    by = schema[rule.by]
    cells = cells_of(column, table)
    codes = cells_of(by, table).values
    # A category without a range, and a missing one (the last code), allow every number.
    low = np.full(len(by.options) + 1, -np.inf)
    high = -low
    for category, least, most in rule.ranges:
        place = _place(by, category)
        if least is not None:
            low[place] = number_at(column, least)
        if most is not None:
            high[place] = last_at(column, most)
    is_outside = (cells.values < low[codes]) | (cells.values > high[codes])
    return np.asarray(is_outside & ~cells.gone)


def _broken_computed(rule: Computed, schema: Schema, table: Table) -> _Mask:
    """Return the rows whose value does not follow from those that it is computed from."""
    columns = tuple(schema[name] for name in rule.sources)
    column = schema[rule.column]
    sources = [cells_of(source, table) for source in columns]
    cells = cells_of(column, table)
    source_values = [source.values for source in sources]
    raw, is_undefined = raw_values(rule, columns, source_values)
    lacks_source = np.any([source.gone for source in sources], axis=0)
    lacks_value = is_undefined | lacks_source
    follows = does_follow(rule, column, cells.values, raw)
    has_other_gap = lacks_value != cells.gone
    return np.asarray(has_other_gap | (~follows & ~lacks_value))


def allowed_rows(rule: MissingUnless, by: Column, categories: CellValues) -> _Mask:
    """Return the rows whose category lets the dependent columns have values."""
    return np.isin(_codes_with_missing(by, categories), _places(rule, by))


def _codes_with_missing(column: Column, categories: CellValues) -> _Array:
    """Return the codes of categories; a missing one has the last code.

    A part of a fixed combination has 0 where it is missing.
    """
    return np.where(categories.gone, len(column.options), categories.values)


def _places(rule: MissingUnless, by: Column) -> list[int]:
    """Return the codes of the categories that let the dependent columns have values."""
    return [_place(by, value) for value in rule.values if _has(by, value)]


def _has(column: Column, value: Value) -> bool:
    """Return whether a category is among a column's; rare ones are not learned."""
    if value is None:
        return True
    return (type(value) is bool, value) in _typed_options(column)


def _typed_options(column: Column) -> list[tuple[bool, Value]]:
    """Return a column's categories, each with whether it is a bool, as True == 1 must not match."""
    return [(type(option) is bool, option) for option in column.options]


def _broken_unless(rule: MissingUnless, schema: Schema, table: Table) -> _Mask:
    """Return the rows with values that their category rules out, or without ones it requires."""
    by = schema[rule.by]
    is_allowed = allowed_rows(rule, by, cells_of(by, table))
    cells = [cells_of(schema[name], table) for name in rule.dependent]
    is_missing = np.array([column.gone for column in cells])
    is_wrong = ~is_allowed & ~is_missing.all(axis=0)
    if rule.required:
        is_wrong |= is_allowed & is_missing.any(axis=0)
    return np.asarray(is_wrong)


def _place(column: Column, value: Value) -> int:
    """Return the code of a category; a missing one has the last code."""
    options = _typed_options(column)
    if value is None:
        return len(options)
    return options.index((type(value) is bool, value))


def broken(rule: Constraint, schema: Schema, table: Table) -> _Mask:
    """Return which rows of a table break a constraint of its schema.

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
        return _MergedColumns(rule, rule.columns, (), columns).broken(cells)
    if isinstance(rule, MissingTogether):
        is_missing = np.array([column.gone for column in cells])
        return np.asarray(is_missing.any(axis=0) & ~is_missing.all(axis=0))
    # Unique columns are the last kind: all rows of a group but its first repeat one.
    first_rows, _ = groups_of(cells)
    return ~np.isin(np.arange(table.num_rows), first_rows)


# A schema and its tables


@dataclass(frozen=True)
class Modelled:
    """A declared schema, and the schema without constraints that methods learn instead.

    Where the declared schema has no constraints, both are the same.

    Attributes:
        declared: As the study has it; `schema` is the other.
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

    @property
    def is_identity(self) -> bool:
        """Whether methods learn the declared columns themselves: no constraint changes them."""
        return not self.declared.constraints

    @cached_property
    def _transforms(self) -> tuple[_Transform, ...]:
        """The ways in which constraints are kept by construction, in the order of computation."""
        transforms: list[_Transform] = []
        # By column that is made: all that it is computed from.
        needs: dict[str, set[str]] = {}
        merged: set[str] = set()
        # Fixed combinations first: a column that is part of one cannot be computed as well.
        rules = list(self.declared.constraints)
        rules.sort(key=lambda rule: not isinstance(rule, FixedCombinations))
        for rule in rules:
            transform = self._transform(rule) if self.local(rule) else None
            if transform is None:
                continue
            targets = set(transform.targets)
            if merged & set(rule.columns) or needs.keys() & targets:
                continue

            # A column may not be computed from itself, however many others are between.
            indirect_inputs = (needs.get(name, ()) for name in transform.inputs)
            inputs = set(transform.inputs).union(*indirect_inputs)
            if inputs & targets:
                continue

            transforms.append(transform)
            if isinstance(transform, _MergedColumns):
                merged |= targets
            needs |= dict.fromkeys(transform.targets, inputs)
            for needed in needs.values():
                if needed & targets:
                    needed |= inputs

        def depth(transform: _Transform) -> int:
            return len(needs[transform.targets[0]] & needs.keys())

        return tuple(sorted(transforms, key=depth))

    def _transform(self, rule: Constraint) -> _Transform | None:
        """Return the way to keep a constraint by construction, or None."""
        columns = tuple(self.declared[name] for name in rule.columns)
        if isinstance(rule, FixedCombinations):
            return _MergedColumns(rule, rule.columns, (), columns)
        # The column that is computed comes last.
        *inputs, target = columns
        if isinstance(rule, ColumnSum):
            return _ComputedTotal(
                rule, (rule.total,), rule.parts, tuple(inputs), target
            )
        if isinstance(rule, Computed):
            return _DerivedColumn(
                rule, (rule.column,), rule.sources, tuple(inputs), target
            )
        if isinstance(rule, Inequality):
            low, high = columns
            bounds = (low.low, low.high, high.low, high.high)
            # Without all bounds the gap would have none, and no bins.
            if low.kind == high.kind and None not in bounds:
                return _GapColumn(rule, (rule.high,), (rule.low,), low, high)
        return None

    @cached_property
    def schema(self) -> Schema:
        """The schema that methods learn, without constraints."""
        if self.is_identity:
            return self.declared
        replacements: dict[str, Column | None] = {}
        for transform in self._transforms:
            replacements |= dict.fromkeys(transform.targets)
            replacements[transform.targets[0]] = transform.column
        columns = [replacements.get(c.name, c) for c in self.declared.columns]
        learned = tuple(column for column in columns if column is not None)

        for transform in self._transforms:
            column = transform.column
            if column is not None and column.name in self.declared.names:
                raise SchemaError(
                    f"{transform.rule.words}: methods would learn a column {column.name!r}, and "
                    "the schema has one of that name; rename it"
                )
        return Schema(learned)

    def local(self, rule: Constraint) -> bool:
        """Return whether a single party has all columns of a constraint."""
        needed = set(rule.columns)
        if not self.parts:
            return True
        return any(needed <= set(part) for part in self.parts)

    def names_of(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the columns that methods learn at a party that holds these."""
        if self.is_identity:
            return tuple(columns)
        declared = [name for name in columns if name in self.declared.names]
        learned = Modelled(self.declared.select(declared)).schema.names
        return tuple(name for name in self.schema.names if name in learned)

    def check_open(self, learn: float) -> None:
        """Raise SchemaError for combinations that are left open while nothing is learned."""
        if learn:
            return
        for rule in self.declared.constraints:
            if isinstance(rule, FixedCombinations) and not rule.rows:
                raise SchemaError(
                    f"constraint {rule.words}: lists no combinations. List them, or let a method "
                    "that learns schemas learn them (learn=0.1)"
                )

    def takes(self, wanted: Mapping[str, WantedCells]) -> bool:
        """Return whether wanted values of these columns must be translated by `translated`."""
        names: set[str] = set()
        for transform in self._transforms:
            names |= {*transform.targets}
        for group in self._of_kind(MissingTogether):
            names |= {*group.columns}
        for rule in self._of_kind(MissingUnless):
            names |= {*rule.columns}
        return not wanted.keys().isdisjoint(names)

    def _of_kind(self, kind: type[_Rule]) -> list[_Rule]:
        """Return the declared constraints of one class."""
        return [rule for rule in self.declared.constraints if isinstance(rule, kind)]

    def keeps(self, rule: Constraint) -> bool:
        """Return whether learned columns keep a constraint, apart from bounds of computed ones."""
        return any(transform.rule.words == rule.words for transform in self._transforms)

    def always(self, rule: Constraint) -> bool:
        """Return whether no drawn row can break a constraint, so that none is drawn again."""
        other_columns: set[str] = set()
        for constraint in self.declared.constraints:
            if constraint is not rule:
                other_columns |= {*constraint.columns}
        is_alone = other_columns.isdisjoint(rule.columns)
        return isinstance(rule, FixedCombinations) and is_alone and self.keeps(rule)

    def own(self, rows: Table, party: int) -> Table:
        """Turn a party's drawn columns into its declared ones; `party` is its place in `parts`."""
        if self.is_identity:
            return rows
        names = [name for name in self.parts[party] if name in self.declared.names]
        part = Modelled(self.declared.select(names))
        table, _ = part.outside(rows, part.schema, None)
        return table

    def broken(self, table: Table) -> dict[str, _Mask]:
        """Return which rows break each constraint on the table's columns, by its words."""
        is_broken: dict[str, _Mask] = {}
        for rule in self.declared.constraints:
            if set(rule.columns) <= set(table.names):
                rule_broken = broken(rule, self.declared, table)
                # Two constraints may have the same words.
                is_broken[rule.words] = rule_broken | is_broken.get(rule.words, False)
        return is_broken

    @cached_property
    def _moving(self) -> frozenset[str]:
        """The words of constraints on columns that all move cells which do not fit."""
        moving = [rule for rule in self.declared.constraints if self._moves(rule)]
        return frozenset(rule.words for rule in moving)

    def _moves(self, rule: Constraint) -> bool:
        """Return whether all columns of a constraint move cells that do not fit."""
        return _all_move(self.declared[name] for name in rule.columns)

    def moved_rows(self, table: Table) -> dict[str, int]:
        """Count the rows that break each constraint and are moved; for the rows' owner alone."""
        if not self._moving:
            return {}
        counts = {}
        for words, is_broken in self.broken(table).items():
            count = int(np.count_nonzero(is_broken))
            if count and words in self._moving:
                counts[words] = count
        return counts

    def check(self, table: Table) -> None:
        """Raise SchemaError for rows that break a constraint, with their number and the first ones.

        A constraint on columns that all move what does not fit them moves such rows, too.
        """
        for words, is_broken in self.broken(table).items():
            if words in self._moving:
                continue
            count = int(np.count_nonzero(is_broken))
            if not count:
                continue
            places = np.flatnonzero(is_broken)[:_SHOWN]
            rows = ", ".join(str(place + 1) for place in places)
            if count > _SHOWN:
                rows += ", ..."
            row_word = "row" if count == 1 else "rows"
            raise SchemaError(
                f"constraint {words}: {count} of {len(is_broken)} rows break it "
                f"({row_word} {rows}, counted from 1). Correct or drop such "
                "rows, or take the constraint out of the schema"
            )

    def inside(self, table: Table) -> Table:
        """Turn a party's table into the columns that methods learn.

        Raises:
            SchemaError: Columns are not the schema's, or rows break a constraint or leave bounds.
        """
        if self.is_identity:
            return table
        if not self.parts:
            check_columns(self.declared, table)
        self.check(table)

        # A party of a column split has the columns of some transforms only.
        transforms = []
        targets: set[str] = set()
        inputs: set[str] = set()
        for transform in self._transforms:
            if {*transform.targets, *transform.inputs} <= set(table.names):
                transforms.append(transform)
                targets |= {*transform.targets}
                inputs |= {*transform.inputs}
        cells = {}
        for name in targets | inputs:
            cells[name] = cells_of(self.declared[name], table)
        for name in sorted(targets):
            self._check_bounds(self.declared[name], table, cells[name])

        # Combinations and gaps are learned; what is computed leaves nothing to learn.
        learned = {}
        for transform in transforms:
            if isinstance(transform, _MergedColumns | _GapColumn):
                learned[transform.column.name] = transform.encode(cells)
        rest = table.select([name for name in table.names if name not in targets])
        if not learned:
            return rest
        new = Table.from_columns(learned)
        if not rest.names:
            return new
        return beside([rest, new])

    @staticmethod
    def _check_bounds(column: Column, table: Table, cells: CellValues) -> None:
        """Raise SchemaError for values outside the bounds of a column that methods do not learn.

        Nobody else would look at them: encoding sees the learned columns alone.
        """
        if not column.is_binned:
            return
        low = -np.inf
        if column.low is not None:
            low = number_at(column, column.low)
        high = np.inf
        if column.high is not None:
            high = last_of(column)
        check_values(column, table, *cells, low, high)

    @cached_property
    def _carriers(self) -> dict[str, str]:
        """The learned column that says where a declared column is missing, by declared column."""
        carriers = {}
        for name in self.schema.names:
            if name in self.declared.names:
                carriers[name] = name
        for transform in self._transforms:
            if isinstance(transform, _GapColumn):
                carriers[transform.rule.high] = transform.column.name
        return carriers

    @cached_property
    def _combined(self) -> frozenset[str]:
        """The names of the columns that methods learn as parts of a combination."""
        merged = [t for t in self._transforms if isinstance(t, _MergedColumns)]
        return frozenset(chain(*(transform.targets for transform in merged)))

    def leader(self, rule: MissingTogether) -> str:
        """Return the column whose gaps the other columns of a constraint follow.

        It is one of a fixed combination, which cannot follow, else the first that is learned.
        """
        combined = [name for name in rule.columns if name in self._combined]
        learned = [name for name in rule.columns if name in self._carriers]
        return (*combined, *learned, *rule.columns)[0]

    def _with_gaps(self, table: Table, schema: Schema) -> Table:
        """Make learned columns of drawn rows missing where constraints say so.

        A value that a constraint asks for and the row lacks is that of another drawn row.
        """
        unless = self._of_kind(MissingUnless)
        together = self._of_kind(MissingTogether)
        if not unless and not together:
            return table

        merged: dict[str, CellValues] = {}
        for transform in self._transforms:
            if isinstance(transform, _MergedColumns):
                column = schema[transform.column.name]
                cells = cells_of(column, table)
                merged |= transform.decode(column, cells, {}).columns
        rows = _EditedRows(table)
        # Twice, since columns that are missing together may have a category among them.
        for _ in range(2):
            for rule in _by_what_decides(unless):
                self._apply_category(rule, rows, merged, schema)
            for group in together:
                self._apply_leader(group, rows, merged)
        return rows.table()

    def _carriers_of(self, names: Sequence[str]) -> list[str]:
        """Return the learned columns that say where these columns are missing."""
        return [self._carriers[name] for name in names if name in self._carriers]

    def _apply_category(
        self,
        rule: MissingUnless,
        rows: _EditedRows,
        merged: _CellsByColumn,
        schema: Schema,
    ) -> None:
        """Make missing what a category rules out, and fill what it requires."""
        if rule.by in merged:
            by = self.declared[rule.by]
            is_allowed = allowed_rows(rule, by, merged[rule.by])
        elif rule.by in self._carriers:
            by = schema[rule.by]
            is_allowed = allowed_rows(rule, by, rows.cells(by))
        else:
            return
        names = self._carriers_of(rule.dependent)
        rows.blank(names, ~is_allowed)
        if rule.required:
            rows.fill(names, is_allowed)

    def _apply_leader(
        self, group: MissingTogether, rows: _EditedRows, merged: _CellsByColumn
    ) -> None:
        """Make columns missing, or fill them, like the column whose gaps they follow."""
        leader = self.leader(group)
        if leader in merged:
            is_missing = merged[leader].gone
        elif leader in self._carriers:
            is_missing = rows.missing(self._carriers[leader])
        else:
            return
        names = self._carriers_of(group.columns)
        rows.blank(names, is_missing)
        rows.fill(names, ~is_missing)

    def _gaps_of_derived(
        self, table: Table, cells: _CellsByColumn, outer: Schema
    ) -> dict[str, _Mask]:
        """Return where columns that are not learned are missing because constraints say so."""
        gaps: dict[str, _Mask] = {}
        for rule in self._of_kind(MissingUnless):
            by = outer[rule.by]
            categories = cells[rule.by] if rule.by in cells else cells_of(by, table)
            is_missing = ~allowed_rows(rule, by, categories)
            for name in rule.dependent:
                gaps[name] = is_missing | gaps.get(name, False)
        for group in self._of_kind(MissingTogether):
            leader = self.leader(group)
            is_derived = leader in cells
            is_missing = cells[leader].gone if is_derived else table.missing(leader)
            for name in group.columns:
                gaps[name] = is_missing | gaps.get(name, False)
        return {name: gaps[name] for name in gaps if name not in table.names}

    def _decoded(
        self, table: Table, schema: Schema
    ) -> tuple[dict[str, CellValues], dict[str, _Mask]]:
        """Rebuild columns from drawn ones; return them with their inputs, and `outside`'s rows."""
        cells: dict[str, CellValues] = {}
        unmet: dict[str, _Mask] = {}
        for transform in self._transforms:
            for name in transform.inputs:
                if name not in cells:
                    cells[name] = cells_of(schema[name], table)
            column: Any = None
            learned: Any = None
            if transform.column is not None:
                column = schema[transform.column.name]
                learned = cells_of(column, table)
            decoded = transform.decode(column, learned, cells)
            cells |= decoded.columns
            words = transform.rule.words
            unmet[words] = decoded.unmet | unmet.get(words, False)
        return cells, unmet

    def outside(
        self, table: Table, schema: Schema, like: Table | None
    ) -> tuple[Table, dict[str, _Mask]]:
        """Turn drawn rows into the declared columns; return also which rows could not be turned.

        Args:
            table: As methods draw it.
            schema: Its schema: `Modelled.schema`, with what was learned.
            like: The result's frame and types are those of this table.

        Returns:
            All modelled columns, and the rows that are to be drawn again by the words of the
            constraint that they cannot meet.
        """
        table = self._with_gaps(table, schema)
        cells, unmet = self._decoded(table, schema)
        outer = self.restored(schema)
        gaps = self._gaps_of_derived(table, cells, outer)
        columns: dict[str, tuple[Any, Any]] = {}
        for column in outer.coded:
            name = column.name
            if name in table.names:
                columns[name] = table.with_gaps(name)
            else:
                columns[name] = written(column, cells[name], like)
            if name in gaps:
                values, is_missing = columns[name]
                all_gaps = gaps[name]
                if is_missing is not None:
                    all_gaps = all_gaps | is_missing
                columns[name] = (values, all_gaps)
        categories = {column.name: column.categories for column in outer.columns}
        return Table.from_columns(columns, like, categories), unmet

    def restored(self, schema: Schema) -> Schema:
        """Return the declared schema, with what was learned about its columns."""
        if self.is_identity:
            return schema
        rules = {id(rule): rule for rule in self.declared.constraints}
        for transform in self._transforms:
            if isinstance(transform, _MergedColumns) and not transform.rule.rows:
                categories = schema[transform.column.name].categories
                rows = []
                for category in categories:
                    if category != _OPEN:
                        row = msgspec.json.decode(str(category))
                        rows.append(tuple(row))
                rule = transform.rule
                rules[id(rule)] = replace(rule, rows=tuple(rows))

        columns = []
        for column in self.declared.columns:
            is_learned = column.name in schema.names
            restored = schema[column.name] if is_learned else column
            columns.append(restored)
        return Schema(tuple(columns), tuple(rules.values()))

    def translated(
        self,
        wanted: Mapping[str, WantedCells],
        pilot: Table,
        schema: Schema,
        random: np.random.Generator,
    ) -> dict[str, WantedCells]:
        """Translate wanted values of declared columns to the columns that methods learn.

        Args:
            wanted: By name of a declared column.
            pilot: As many rows, as methods draw them; they decide what is left open, such as the
                smaller column where the larger is wanted.
            schema: Of the pilot.
            random: Chooses among pilots.

        Raises:
            InputError: No row that keeps the constraints has what is wanted.
        """
        cells, _ = self._decoded(pilot, schema)
        for column in schema.coded:
            if column.name not in cells:
                cells[column.name] = cells_of(column, pilot)
        wishes = dict(wanted)
        for unless in self._of_kind(MissingUnless):
            self._ask_category(unless, self.restored(schema), wishes, cells, random)
        for group in self._of_kind(MissingTogether):
            self._ask_leader(group, wishes, cells)
        # In reverse: what is computed last is asked of its inputs first.
        for transform in reversed(self._transforms):
            targets = transform.targets
            if not any(name in wishes for name in targets):
                continue
            learned: Any = None
            if transform.column is not None:
                learned = schema[transform.column.name]
            wishes |= transform.ask(learned, wishes, cells, random)
            wishes = {name: wishes[name] for name in wishes if name not in targets}
        return wishes

    def _ask_leader(
        self, group: MissingTogether, wishes: _WantedByColumn, cells: _CellsByColumn
    ) -> None:
        """Ask for a gap of the leading column where a column that follows it is to be missing."""
        leader = self.leader(group)
        for name in group.columns:
            if name in wishes and leader not in wishes:
                wants_gap = wishes[name].fixed & wishes[name].cells.gone
                zeros = np.zeros_like(cells[leader].values)
                wishes[leader] = WantedCells(CellValues(zeros, wants_gap), wants_gap)

    def _ask_category(
        self,
        rule: MissingUnless,
        schema: Schema,
        wishes: _WantedByColumn,
        cells: _CellsByColumn,
        random: _Random,
    ) -> None:
        """Ask for a category that allows the wanted values, where the category is free."""
        if rule.by in wishes:
            return
        by = schema[rule.by]
        categories = cells[rule.by]
        codes = _codes_with_missing(by, categories)
        is_needed = np.zeros(len(codes), dtype=np.bool_)
        for name in rule.dependent:
            if name in wishes:
                is_needed |= wishes[name].fixed & ~wishes[name].cells.gone

        # The pilot's own category if it is allowed, else one of another pilot row, else any.
        is_allowed = allowed_rows(rule, by, categories)
        choices = codes[is_allowed]
        if not choices.size:
            choices = np.array(_places(rule, by))
        if not choices.size:
            return
        other_codes = random.choice(choices, len(codes))
        wanted = np.where(is_allowed, codes, other_codes)
        is_missing = wanted == len(by.options)
        wishes[rule.by] = WantedCells(CellValues(wanted, is_missing), is_needed)
