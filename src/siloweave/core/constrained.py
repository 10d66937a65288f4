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
from siloweave.tables.bins import BINNED, value_count
from siloweave.tables.cells import CellValues, cells_of, options_of
from siloweave.tables.constraints import CategoryRanges, Unique
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.modelled import Modelled, WantedCells, written
from siloweave.tables.modelled import broken as broken_rows
from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Schema

_CHUNK = 2_000  # rows drawn at once when some broke a constraint, at least
_LARGEST = 50_000  # and at most: networks hold them in memory
_LEAST = 10_000  # rows that may be drawn however few are wanted
_MORE = 2  # rows drawn at once for each of many that did
_SPARE = 1.25  # or for each that should be good, where rows are drawn for no place
_PILOTS = 2_000  # rows that show which classes a model makes
_Rows = Ints
_Columns = Mapping[str, tuple[NDArray[Any], Bools]]


def constrained_rows(
    modelled: Modelled, model: Model, wanted: Wanted, otherwise: int | None, like: Table | None
) -> Table:
    """Rows of a model that keep all constraints.

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
    return _Drawing(modelled, model, wanted, otherwise, like).rows()


class _Drawing:
    """One call: conditions as the model takes them, and rows as far as they are good."""

    def __init__(
        self,
        modelled: Modelled,
        model: Model,
        wanted: Wanted,
        otherwise: int | None,
        like: Table | None,
    ) -> None:
        self.modelled, self.model, self.wanted = modelled, model, wanted
        self.schema = modelled.restored(model.schema)
        self.kept = Modelled(self.schema, modelled.parts)
        self.otherwise, self.like = otherwise, like
        may_miss = [column.name for column in self.schema.coded if column.missing]
        self.present = () if wanted.missing else tuple(may_miss)
        """Columns that must have a value in every row"""
        self.inner = None if like is None else _known_to(like, model.schema)
        self.cells = self._cells()
        self.pooled = not self.cells and getattr(model, "decoded_apart", False)
        """Whether new rows are drawn for no place, since conditions would take parties' decoders"""

    def _cells(self) -> tuple[Condition, ...]:
        """What is given, and the classes of a column that is to be balanced."""
        wanted = self.wanted
        if wanted.free:
            return ()
        count = self.otherwise if wanted.num_rows is None else wanted.num_rows
        if count is None:
            count = self._inner(None, None, wanted.seed).num_rows
        known = [column.name for column in self.schema.coded]
        count, cells = conditions(self.schema, known, wanted.given, wanted.num_rows, count)
        for cell in cells if not wanted.missing else ():
            if cell.table.missing(cell.name).any():
                raise InputError(
                    f"given: {cell.name!r} is to be missing, and missing=False asks for rows "
                    "without missing values; leave one of the two out"
                )
        if wanted.balanced is False:
            return cells
        target = getattr(self.model, "target", None)
        column = balanced_column(self.schema, wanted.balanced, target, cells)
        seed = fold_in(wanted.seed, "classes")
        pilot, _ = self._outer(self._inner(_PILOTS, None, seed))
        codes = cells_of(column, pilot).values
        shares = np.bincount(codes, minlength=options_of(column)).tolist()
        return (*cells, equally(column, shares, count, wanted.seed))

    def _inner(self, count: int | None, given: Any, seed: Key) -> Table:
        """Rows of the model, as it draws them."""
        facts = {"num_rows": count, "seed": seed, "given": given, "balanced": False}
        wanted = msgspec.structs.replace(self.wanted, **facts)
        return self.model.draw(wanted, self.otherwise, self.inner)

    def _outer(self, inner: Table) -> tuple[Table, Bools]:
        return self.modelled.outside(inner, self.model.schema, self.like)

    def _given(self, rows: _Rows, seed: Key, extra: Sequence[Condition]) -> Any:
        """Conditions for some rows, as the model takes them; None without any."""
        cells = [one.take(rows) for one in self.cells] + list(extra)
        if not cells:
            return None
        names = set(self.model.schema.names)
        plain = [one for one in cells if one.name in names]
        asked = {one.name: _asked(one) for one in cells}
        if self.modelled.takes(asked):
            pilot = self._inner(len(rows), tuple(plain) or None, fold_in(seed, "pilot"))
            random = generator(fold_in(seed, "pilots"))
            found = self.modelled.asked(asked, pilot, self.model.schema, random)
            plain = [condition_of(self.model.schema[name], one) for name, one in found.items()]
        return tuple(plain) or None

    def _drawn(
        self, rows: _Rows, count: int | None, seed: Key, extra: Sequence[Condition] = ()
    ) -> tuple[Table, dict[str, Bools]]:
        """New rows for some of those that are wanted, and which of them break what."""
        table, bad = self._outer(self._inner(count, self._given(rows, seed, extra), seed))
        if self.cells:
            table = imposed(table, [one.take(rows) for one in self.cells], self.like)
        broken = self.kept.broken(table) if table.num_rows else {}
        for name in self.present if table.num_rows else ():
            broken[_value_of(name)] = table.missing(name)
        for rule in self.schema.constraints if bad.any() else ():
            if rule.words in broken:
                broken[rule.words] |= bad & self.modelled.keeps(rule)
        return table, broken

    def _drawn_again(
        self, rows: _Rows, seed: Key, anchors: Sequence[Condition]
    ) -> tuple[Table, dict[str, Bools]]:
        """Draw some rows again, with the categories that they had where the model can be asked."""
        try:
            return self._drawn(rows, len(rows), seed, anchors)
        except UnseenValueError:
            # A GAN may draw a category that no training row had, and cannot be asked for it.
            if not anchors:
                raise
            return self._drawn(rows, len(rows), seed)

    def rows(self) -> Table:
        """All rows."""
        seed, asked = self.wanted.seed, self.wanted.num_rows
        start = np.arange(len(self.cells[0].places)) if self.cells else np.zeros(0, dtype=np.int64)
        table, broken = self._drawn(start, len(start) if self.cells else asked, seed)
        count = made = table.num_rows
        for rule in self._uniques():
            self._check_room(rule, count)
        wrong = _any(broken, count)
        if not wrong.any():
            return table
        found = {n: (table.values(n).copy(), table.missing(n).copy()) for n in table.names}
        most = made + max(self.wanted.tries * int(wrong.sum()), _LEAST)
        failed = {words: int(mask.sum()) for words, mask in broken.items()}
        share = 1.0 - wrong.mean()  # of rows that are good for a place
        for name in self.present if made >= _LEAST else ():
            if failed.get(_value_of(name)) == made:
                raise always_missing(name)
        while wrong.any() and made < most:
            missed = np.flatnonzero(wrong)
            more = _SPARE / max(share, 1e-9) if self.pooled else _MORE
            anchored = made < most // 2
            room = (most // 2 if anchored else most) - made
            rows = np.resize(missed, int(min(max(more * missed.size, _CHUNK), _LARGEST, room)))
            anchors = self._anchors(found, rows) if anchored and not self.pooled else ()
            new, broken = self._drawn_again(rows, fold_in(seed, "again", made), anchors)
            for rule in self._uniques():
                broken[rule.words] |= self._repeated(rule, found, np.flatnonzero(~wrong), new)
            for words, mask in broken.items():
                failed[words] += int(mask.sum())
            good = np.flatnonzero(~_any(broken, len(rows)))
            if self.pooled:
                places, chosen = self._placed(found, missed, new, good, anchored=anchored)
            else:
                places, first = np.unique(rows[good], return_index=True)
                chosen = good[first]
            share = len(places) / len(rows)
            for name, (values, gone) in found.items():
                values[places] = new.values(name)[chosen]
                gone[places] = new.missing(name)[chosen]
            wrong[places] = False
            made += len(rows)
        if wrong.any():
            raise self._too_rare(int(wrong.sum()), count, made, failed)
        return self._table(found, table.names, table)

    def _table(self, found: _Columns, names: Sequence[str], like: Table | None = None) -> Table:
        """Some columns of the rows so far."""
        missing = {name: self.schema[name].missing for name in names}
        columns = {n: (found[n][0], found[n][1] if missing[n] else None) for n in names}
        return Table.from_columns(columns, like)

    def _uniques(self) -> list[Unique]:
        return [rule for rule in self.schema.constraints if isinstance(rule, Unique)]

    def _repeated(self, rule: Unique, found: _Columns, kept: _Rows, new: Table) -> Bools:
        """Which new rows have values that a kept row has."""
        both = {
            name: (
                np.concatenate([found[name][0][kept], new.values(name)]),
                np.concatenate([found[name][1][kept], new.missing(name)]),
            )
            for name in rule.columns
        }
        return broken_rows(rule, self.schema, self._table(both, rule.columns))[len(kept) :]

    def _check_room(self, rule: Unique, count: int) -> None:
        """Raise InputError where there are fewer combinations of values than rows."""
        sizes = [_values(self.schema[name]) for name in rule.columns]
        if prod(sizes) < count:
            raise InputError(
                f"constraint {rule.words}: there are {prod(sizes):,} combinations of values, and "
                f"{count:,} rows were asked for; ask for fewer"
            )

    def _anchors(self, found: _Columns, rows: _Rows) -> tuple[Condition, ...]:
        """Categories on which ranges depend, which rows that are drawn again keep at first.

        Else a category of a narrow range would become rarer than the model has it.
        """
        names = {r.by for r in self.schema.constraints if isinstance(r, CategoryRanges)}
        names -= {one.name for one in self.cells}
        return tuple(
            condition_of(self.schema[name], WantedCells(cells, np.ones(len(rows), dtype=np.bool_)))
            for name in sorted(names & set(self.model.schema.names))
            for cells in [cells_of(self.schema[name], self._table(found, (name,))).take(rows)]
        )

    def _placed(
        self, found: _Columns, missed: _Rows, new: Table, good: _Rows, *, anchored: bool
    ) -> tuple[_Rows, _Rows]:
        """Places that are missed and good new rows for them, of the same categories if `anchored`.

        Categories are those of `_anchors`.
        """
        names = {r.by for r in self.schema.constraints if isinstance(r, CategoryRanges)}
        kind = np.zeros(len(missed) + len(good), dtype=np.int64)
        for name in sorted(names) if anchored else ():
            column = self.schema[name]
            old = cells_of(column, self._table(found, (name,))).values[missed]
            codes = np.concatenate([old, cells_of(column, new).values[good]])
            kind = kind * (options_of(column) + 1) + codes
        here, there = kind[: len(missed)], kind[len(missed) :]
        pairs = [(missed[here == one], good[there == one]) for one in np.unique(here)]
        places = [own[: len(rows)] for own, rows in pairs]
        return np.concatenate(places), np.concatenate([rows[: len(own)] for own, rows in pairs])

    def _too_rare(self, left: int, count: int, made: int, failed: Mapping[str, int]) -> InputError:
        words = max(failed, key=lambda name: failed[name])
        for name in self.present:
            if failed.get(_value_of(name)) == made:
                return always_missing(name)
            if words == _value_of(name):
                return InputError(
                    f"missing=False: {left:,} of {count:,} rows could not be drawn. Of {made:,} "
                    f"rows of the model, {failed[words]:,} have no value in {name!r}, most of all "
                    "columns: rows without missing values are too rare. Ask for fewer rows, raise "
                    f"tries={self.wanted.tries}, or leave missing values in"
                )
        given = ", with what is given" if self.cells else ""
        return InputError(
            f"constraint {words}: {left:,} of {count:,} rows could not be drawn. Of {made:,} rows "
            f"of the model{given}, {failed[words]:,} break it: rows that keep it are too rare. "
            f"Ask for fewer rows, raise tries={self.wanted.tries}, or loosen the constraint"
        )


def always_missing(name: str) -> InputError:
    """The error where rows without missing values are asked of a column that never has a value."""
    return InputError(
        f"missing=False: column {name!r} is missing in every row of the model, so that no row is "
        "without missing values; leave missing values in, or fit without the column"
    )


def _value_of(name: str) -> str:
    """What a row lacks that has no value in a column, in words that name no constraint."""
    return f"a value of {name!r}"


def _any(broken: Mapping[str, Bools], count: int) -> Bools:
    """Rows that break any constraint."""
    wrong = np.zeros(count, dtype=np.bool_)
    for mask in broken.values():
        wrong |= mask
    return wrong


def _values(column: Column) -> float:
    """How many values a column can have, a missing one among them."""
    return value_count(column) + column.missing if column.kind in BINNED else options_of(column)


def _known_to(like: Table, schema: Schema) -> Table | None:
    """A table's columns that a model knows, for it to draw like."""
    names = [name for name in like.names if name in schema.names]
    return like.select(names) if names else None


def _asked(cells: Condition) -> WantedCells:
    """A condition as numbers or codes."""
    fixed, count = ~cells.free, len(cells.places)
    if not cells.table.num_rows:
        return WantedCells(
            CellValues(np.zeros(count, dtype=np.int64), np.zeros(count, np.bool_)), fixed
        )
    found = cells_of(cells.column, cells.table).take(np.where(fixed, cells.places, 0))
    return WantedCells(found, fixed)


def condition_of(column: Column, asked: WantedCells) -> Condition:
    """Return numbers or codes as a condition."""
    rows = np.flatnonzero(asked.fixed)
    places = np.full(len(asked.fixed), -1, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    values = written(column, asked.cells.take(rows), None)
    return Condition.of(column, Table.from_columns({column.name: values}), places)
