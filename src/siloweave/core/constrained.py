"""Rows that keep the constraints of a schema, whatever draws them.

A model knows the schema without constraints that `Modelled` makes of the declared one. Its rows are
turned back, and those that still break a constraint are drawn again, with a bound on tries:
rejection sampling (von Neumann 1951, "Various techniques used in connection with random digits"),
so that rows follow the model's distribution given the constraints. Conditions on declared columns
become conditions on those that the model knows; where that takes another column, such as the
smaller one of an inequality, its value comes from rows that the model draws first.

**Guarantee**: none of its own: this reads a model and public facts, so it is post-processing of
what the fit released (Dwork & Roth 2014, proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.core.conditional import (
    Condition,
    Model,
    UnseenValueError,
    Wanted,
    balanced_column,
    conditions,
    equally,
    imposed,
)
from siloweave.errors import InputError
from siloweave.tables.arrays import Bools, Ints
from siloweave.tables.bins import number_at, value_count
from siloweave.tables.cells import CellValues, cells_of, options_of
from siloweave.tables.column import Column
from siloweave.tables.constraints import CategoryRanges, ColumnSum, Computed, Unique
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.modelled import Modelled, WantedCells, written
from siloweave.tables.modelled import broken as broken_rows
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

# Rows drawn at once when some broke a constraint, at least and at most: networks hold them in
# memory.
_SMALLEST_BATCH = 2_000
_LARGEST_BATCH = 50_000
_LEAST = 10_000
"""Rows that may be drawn however few are wanted."""
_PER_PLACE = 2
"""Rows drawn at once for each of many places whose row broke a constraint."""
_SPARE = 1.25
"""Rows drawn for each that should be good, where they are drawn for no place."""
_PILOT_ROWS = 2_000
"""Rows that show which classes a model makes."""
_RAREST = 1e-9
"""Share of good rows that is divided by where none was good."""
_Rows = Ints
_Columns = Mapping[str, tuple[NDArray[Any], Bools]]


def constrained_rows(
    modelled: Modelled,
    model: Model,
    wanted: Wanted,
    otherwise: int | None,
    like: Table | None,
) -> Table:
    """Draw rows of a model so that every row keeps all constraints of the schema.

    Args:
        modelled: The declared schema, and how the model's schema came from it.
        model: Draws rows of `modelled.schema`.
        wanted: How many, the seed, and conditions on declared columns.
        otherwise: How many rows where `wanted` leaves that open; the model knows if None.
        like: The result's frame and types are those of this table.

    Raises:
        InputError: A condition contradicts a constraint, or rows that keep one are too rare: the
            message names it.
    """
    if wanted.tries < 1:
        raise InputError(f"tries={wanted.tries} must be 1 or more")
    may_be_missing = any(column.missing for column in model.schema.coded)
    avoids_gaps = may_be_missing and not wanted.missing
    if modelled.is_identity and not avoids_gaps:
        rows: Table = model.draw(wanted, otherwise, like)
        return rows
    return _Drawing(modelled, model, wanted, otherwise, like).rows()


class _Drawing:
    """One call of `constrained_rows`: its conditions, and the good rows drawn so far.

    Attributes:
        modelled: The declared schema, and how the model's schema came from it.
        schema: The declared schema, with what was learned.
        rules: The same with its constraints, which drawn rows are held against.
        present: Columns that must have a value in every row.
        cells: What is given, as conditions on declared columns.
        is_pooled: Whether new rows are drawn for no place, since conditions would take parties'
            decoders.
    """

    def __init__(
        self,
        modelled: Modelled,
        model: Model,
        wanted: Wanted,
        otherwise: int | None,
        like: Table | None,
    ) -> None:
        self.modelled = modelled
        self.model = model
        self.wanted = wanted
        self.schema = modelled.restored(model.schema)
        self.rules = Modelled(self.schema, modelled.parts)
        self.otherwise = otherwise
        self.like = like
        self.present: tuple[str, ...] = ()
        if not wanted.missing:
            self.present = tuple(
                column.name for column in self.schema.coded if column.missing
            )
        self.model_like = None if like is None else _known_to(like, model.schema)
        self.cells = self._cells()
        self.is_pooled = not self.cells and getattr(model, "decoded_apart", False)

    def _cells(self) -> tuple[Condition, ...]:
        """Return the conditions on rows, with the classes of a column that is to be balanced."""
        wanted = self.wanted
        if wanted.free:
            return ()
        count = self.otherwise if wanted.num_rows is None else wanted.num_rows
        if count is None:
            count = self._of_model(None, None, wanted.seed).num_rows
        names = [column.name for column in self.schema.coded]
        count, cells = conditions(
            self.schema, names, wanted.given, wanted.num_rows, count
        )
        for cell in cells:
            if not wanted.missing and cell.table.missing(cell.name).any():
                raise InputError(
                    f"given: {cell.name!r} is to be missing, and missing=False asks for rows "
                    "without missing values; leave one of the two out"
                )
        if wanted.balanced is False:
            return cells
        target = getattr(self.model, "target", None)
        column = balanced_column(self.schema, wanted.balanced, target, cells)
        seed = fold_in(wanted.seed, "classes")
        pilot, _ = self._as_declared(self._of_model(_PILOT_ROWS, None, seed))
        codes = cells_of(column, pilot).values
        shares = np.bincount(codes, minlength=options_of(column)).tolist()
        return (*cells, equally(column, shares, count, wanted.seed))

    def _of_model(self, count: int | None, given: Any, seed: Key) -> Table:
        """Draw rows of the model, with the columns that the model has."""
        facts = {"num_rows": count, "seed": seed, "given": given, "balanced": False}
        wanted = msgspec.structs.replace(self.wanted, **facts)
        return self.model.draw(wanted, self.otherwise, self.model_like)

    def _as_declared(self, rows: Table) -> tuple[Table, dict[str, Bools]]:
        """Turn a model's rows into the declared columns; see `Modelled.outside`."""
        return self.modelled.outside(rows, self.model.schema, self.like)

    def _given(self, rows: _Rows, seed: Key, extra: Sequence[Condition]) -> Any:
        """Return the conditions on some rows, on the model's columns; None without any."""
        cells = [condition.take(rows) for condition in self.cells] + list(extra)
        if not cells:
            return None
        names = set(self.model.schema.names)
        direct = [condition for condition in cells if condition.name in names]
        wanted_cells = {condition.name: _wanted_cells(condition) for condition in cells}
        if self.modelled.takes(wanted_cells):
            # Columns that follow from others: what is wanted of them takes a row of the model.
            pilot = self._of_model(
                len(rows), tuple(direct) or None, fold_in(seed, "pilot")
            )
            random = generator(fold_in(seed, "pilots"))
            translated = self.modelled.translated(
                wanted_cells, pilot, self.model.schema, random
            )
            direct = [
                condition_of(self.model.schema[name], cells_wanted)
                for name, cells_wanted in translated.items()
            ]
        return tuple(direct) or None

    def _drawn(
        self, rows: _Rows, count: int | None, seed: Key, extra: Sequence[Condition] = ()
    ) -> tuple[Table, dict[str, Bools]]:
        """Draw new rows for some of the wanted ones; return them, and which of them break which."""
        table, unmet = self._as_declared(
            self._of_model(count, self._given(rows, seed, extra), seed)
        )
        table = with_single_values(table, self.schema, self.like)
        if self.cells:
            table = imposed(
                table, [condition.take(rows) for condition in self.cells], self.like
            )
        if not table.num_rows:
            return table, {}
        broken = self.rules.broken(table)
        for name in self.present:
            broken[_value_of(name)] = table.missing(name)
        for words, mask in unmet.items():
            if words in broken:
                broken[words] |= mask
        return table, broken

    def _drawn_again(
        self, rows: _Rows, seed: Key, anchors: Sequence[Condition]
    ) -> tuple[Table, dict[str, Bools]]:
        """Draw some rows again with the same categories as before, where the model accepts them."""
        try:
            return self._drawn(rows, len(rows), seed, anchors)
        except UnseenValueError:
            # A GAN may draw a category that no training row had, and cannot be asked for it.
            if not anchors:
                raise
            return self._drawn(rows, len(rows), seed)

    def rows(self) -> Table:
        """Draw all rows, then draw those again that break a constraint; return the table."""
        seed = self.wanted.seed
        if self.cells:
            all_rows = np.arange(len(self.cells[0].places))
            table, broken = self._drawn(all_rows, len(all_rows), seed)
        else:
            no_rows = np.zeros(0, dtype=np.int64)
            table, broken = self._drawn(no_rows, self.wanted.num_rows, seed)
        count = table.num_rows
        for rule in self._uniques():
            self._check_room(rule, count)
        is_wrong = _any(broken, count)
        if not is_wrong.any():
            return table
        columns = {}
        for name in table.names:
            values, is_missing = table.with_gaps(name)
            columns[name] = values.copy(), is_missing.copy()
        failures = {words: int(mask.sum()) for words, mask in broken.items()}
        if count >= _LEAST:
            for name in self.present:
                if failures.get(_value_of(name)) == count:
                    raise always_missing(name)
        drawn_count = self._replace_wrong(columns, is_wrong, failures)
        if is_wrong.any():
            raise self._too_rare(int(is_wrong.sum()), count, drawn_count, failures)
        return self._table(columns, table.names, table)

    def _replace_wrong(
        self, columns: _Columns, is_wrong: Bools, failures: dict[str, int]
    ) -> int:
        """Draw rows again until none is wrong, or as many were drawn as `tries` allows.

        Args:
            columns: All rows, in place.
            is_wrong: Which rows are to be replaced, in place.
            failures: By constraint, how many drawn rows broke it, in place.

        Returns:
            How many rows were drawn in all.
        """
        count = len(is_wrong)
        drawn_count = count
        most = count + max(self.wanted.tries * int(is_wrong.sum()), _LEAST)
        good_share = 1.0 - is_wrong.mean()  # of rows that are good for a place
        while is_wrong.any() and drawn_count < most:
            open_places = np.flatnonzero(is_wrong)
            # At first rows keep the categories that they had, so that these keep their frequency.
            is_anchored = drawn_count < most // 2
            room = (most // 2 if is_anchored else most) - drawn_count
            batch = min(self._batch_size(open_places.size, good_share), room)
            rows = np.resize(open_places, batch)
            anchors: tuple[Condition, ...] = ()
            if is_anchored and not self.is_pooled:
                anchors = self._anchors(columns, rows)
            new_seed = fold_in(self.wanted.seed, "again", drawn_count)
            new, broken = self._drawn_again(rows, new_seed, anchors)
            for rule in self._uniques():
                right = np.flatnonzero(~is_wrong)
                broken[rule.words] |= self._repeated(rule, columns, right, new)
            for words, mask in broken.items():
                failures[words] += int(mask.sum())

            # Good rows go to the places that they were drawn for, or that they fit.
            good = np.flatnonzero(~_any(broken, len(rows)))
            if self.is_pooled:
                places, chosen = self._placed(
                    columns, open_places, new, good, anchored=is_anchored
                )
            else:
                places, first = np.unique(rows[good], return_index=True)
                chosen = good[first]
            good_share = len(places) / len(rows)
            for name, (values, missing) in columns.items():
                new_values, new_missing = new.with_gaps(name)
                values[places] = new_values[chosen]
                missing[places] = new_missing[chosen]
            is_wrong[places] = False
            drawn_count += len(rows)
        return drawn_count

    def _batch_size(self, num_places: int, good_share: float) -> int:
        """Return how many rows to draw for so many places, if that share of them will be good."""
        per_place: float = _PER_PLACE
        if self.is_pooled:
            per_place = _SPARE / max(good_share, _RAREST)
        return int(min(max(per_place * num_places, _SMALLEST_BATCH), _LARGEST_BATCH))

    def _table(
        self, columns: _Columns, names: Sequence[str], like: Table | None = None
    ) -> Table:
        """Return a table of some columns of the rows drawn so far."""
        parts = {}
        for name in names:
            values, missing = columns[name]
            parts[name] = values, missing if self.schema[name].missing else None
        return Table.from_columns(parts, like)

    def _uniques(self) -> list[Unique]:
        """Return the constraints that compare rows."""
        return [rule for rule in self.schema.constraints if isinstance(rule, Unique)]

    def _repeated(
        self, rule: Unique, columns: _Columns, right: _Rows, new: Table
    ) -> Bools:
        """Return which new rows repeat the values of a row drawn so far."""
        together = {
            name: (
                np.concatenate([columns[name][0][right], new.values(name)]),
                np.concatenate([columns[name][1][right], new.missing(name)]),
            )
            for name in rule.columns
        }
        table = self._table(together, rule.columns)
        return broken_rows(rule, self.schema, table)[len(right) :]

    def _check_room(self, rule: Unique, count: int) -> None:
        """Raise InputError where there are fewer combinations of values than rows."""
        combinations = prod(_values(self.schema[name]) for name in rule.columns)
        if combinations < count:
            raise InputError(
                f"constraint {rule.words}: there are {combinations:,} combinations of values, and "
                f"{count:,} rows were asked for; ask for fewer"
            )

    def _anchors(self, columns: _Columns, rows: _Rows) -> tuple[Condition, ...]:
        """Return conditions that hold rows to the categories on which ranges of numbers depend.

        Rows keep them at first: else a category with a narrow range would become rarer than in the
        model.
        """
        names = _range_categories(self.schema) - {
            condition.name for condition in self.cells
        }
        anchors = []
        for name in sorted(names & set(self.model.schema.names)):
            column = self.schema[name]
            cells = cells_of(column, self._table(columns, (name,))).take(rows)
            fixed = np.ones(len(rows), dtype=np.bool_)
            anchors.append(condition_of(column, WantedCells(cells, fixed)))
        return tuple(anchors)

    def _placed(
        self,
        columns: _Columns,
        missed: _Rows,
        new: Table,
        good: _Rows,
        *,
        anchored: bool,
    ) -> tuple[_Rows, _Rows]:
        """Match good new rows to places that still need one; return the places and the rows.

        If `anchored`, a row goes to a place with the same categories, see `_anchors`.
        """
        # One number stands for all categories of a row together.
        group = np.zeros(len(missed) + len(good), dtype=np.int64)
        for name in sorted(_range_categories(self.schema)) if anchored else ():
            column = self.schema[name]
            missed_codes = cells_of(column, self._table(columns, (name,))).values[
                missed
            ]
            new_codes = cells_of(column, new).values[good]
            codes = np.concatenate([missed_codes, new_codes])
            group = group * (options_of(column) + 1) + codes
        group_of_missed = group[: len(missed)]
        group_of_new = group[len(missed) :]
        places = []
        rows = []
        for number in np.unique(group_of_missed):
            group_places = missed[group_of_missed == number]
            group_rows = good[group_of_new == number]
            places.append(group_places[: len(group_rows)])
            rows.append(group_rows[: len(group_places)])
        return np.concatenate(places), np.concatenate(rows)

    def _too_rare(
        self, missed: int, count: int, drawn_count: int, failures: Mapping[str, int]
    ) -> InputError:
        """Return the error which says that rows that keep a constraint are too rare to be drawn."""
        worst = max(failures, key=lambda name: failures[name])
        for name in self.present:
            if failures.get(_value_of(name)) == drawn_count:
                return always_missing(name)
            if worst == _value_of(name):
                return InputError(
                    f"missing=False: {missed:,} of {count:,} rows could not be drawn. Of "
                    f"{drawn_count:,} rows of the model, {failures[worst]:,} have no value in "
                    f"{name!r}, most of all columns: rows without missing values are too rare. Ask "
                    f"for fewer rows, raise tries={self.wanted.tries}, or leave missing values in"
                )
        given = ", with what is given" if self.cells else ""
        bounds = ""
        for rule in self.schema.constraints:
            if rule.words == worst and isinstance(rule, Computed | ColumnSum):
                computed = rule.column if isinstance(rule, Computed) else rule.total
                bounds = f" or the bounds of {computed!r}"
        return InputError(
            f"constraint {worst}: {missed:,} of {count:,} rows could not be drawn. Of "
            f"{drawn_count:,} rows of the model{given}, {failures[worst]:,} break it{bounds}: rows "
            f"that keep it are too rare. Ask for fewer rows, raise tries={self.wanted.tries}, or "
            f"loosen the constraint{bounds}"
        )


def with_single_values(table: Table, schema: Schema, like: Table | None) -> Table:
    """Fill in a column's value where a row's category allows one value alone.

    A model draws numbers inside bins. Where a category allows a single number, such as -9 for "no
    record", hardly any drawn row would have it, and the category would vanish from the table. A
    missing value keeps every range, and stays.
    """
    changed = {}
    for rule in schema.constraints if table.num_rows else ():
        if not isinstance(rule, CategoryRanges):
            continue
        single = [(category, low) for category, low, high in rule.ranges if low == high]
        single = [(category, low) for category, low in single if low is not None]
        if not single:
            continue
        column = schema[rule.column]
        by = schema[rule.by]
        codes = cells_of(by, table).values
        cells = cells_of(column, table)
        values = cells.values.copy()
        for category, low in single:
            values[codes == by.options.index(category)] = number_at(column, low)
        changed[rule.column] = written(column, CellValues(values, cells.gone), like)
    if not changed:
        return table
    columns: dict[str, Any] = {name: table.with_gaps(name) for name in table.names}
    # Its types list the declared categories.
    return Table.from_columns(columns | changed, table)


def _range_categories(schema: Schema) -> set[str]:
    """Return the names of the categorical columns on which ranges of numbers depend."""
    return {rule.by for rule in schema.constraints if isinstance(rule, CategoryRanges)}


def always_missing(name: str) -> InputError:
    """Return the error about a request for values of a column that is missing in every row."""
    return InputError(
        f"missing=False: column {name!r} is missing in every row of the model, so that no row is "
        "without missing values; leave missing values in, or fit without the column"
    )


def _value_of(name: str) -> str:
    """Describe a missing value as a rule that a row breaks, in words that name no constraint."""
    return f"a value of {name!r}"


def _any(broken: Mapping[str, Bools], count: int) -> Bools:
    """Return which rows break at least one constraint, as a mask."""
    is_wrong = np.zeros(count, dtype=np.bool_)
    for mask in broken.values():
        is_wrong |= mask
    return is_wrong


def _values(column: Column) -> float:
    """Return how many different values a column can have; a missing value counts as one."""
    if column.is_binned:
        return value_count(column) + column.missing
    return options_of(column)


def _known_to(like: Table, schema: Schema) -> Table | None:
    """Return those columns of a table that a model also has, by whose types it draws; or None."""
    names = [name for name in like.names if name in schema.names]
    return like.select(names) if names else None


def _wanted_cells(condition: Condition) -> WantedCells:
    """Return a condition as numbers or codes, with a mask of the rows that it fixes."""
    fixed = ~condition.free
    if not condition.table.num_rows:
        count = len(condition.places)
        nothing = CellValues(np.zeros(count, dtype=np.int64), np.zeros(count, np.bool_))
        return WantedCells(nothing, fixed)
    # A free row takes any value, here the first; nobody reads it.
    places = np.where(fixed, condition.places, 0)
    return WantedCells(cells_of(condition.column, condition.table).take(places), fixed)


def condition_of(column: Column, wanted: WantedCells) -> Condition:
    """Build a condition from numbers or codes."""
    rows = np.flatnonzero(wanted.fixed)
    places = np.full(len(wanted.fixed), -1, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    values = written(column, wanted.cells.take(rows), None)
    return Condition.of(column, Table.from_columns({column.name: values}), places)
