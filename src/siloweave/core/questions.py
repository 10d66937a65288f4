"""More questions of a fit's model: missing cells, probabilities of rows, and predictions.

A graphical model answers them exactly, by `models/evidence.py`: what is open in a row is summed out
or drawn given the row's other cells. Any other model draws what is open as it draws rows with
conditions, and shares and means are those of a few such draws.

An imputed cell has a value: it is drawn from the model given that it is not missing (Rubin 1987,
"Multiple Imputation for Nonresponse in Surveys": several draws show how uncertain it is). So the
codes of a missing value are ruled out in a graphical model; all others draw again.

**Guarantee**: none of its own: answers come from a model, so they are post-processing of what the
fit released (Dwork & Roth 2014, proposition 2.1), and cost nothing. Nothing protects the rows that
are asked about: an answer may show what is in them, and belongs where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from siloweave.core.conditional import Condition, Model, Wanted
from siloweave.core.constrained import condition_of, constrained_rows
from siloweave.errors import DataError, InputError, QuestionError, whole
from siloweave.models.evidence import UNKNOWN, log_probability, shares
from siloweave.models.mrf import MRF
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.bins import bin_means, log_density, step_of
from siloweave.tables.cells import (
    CellValues,
    cells_of,
    known_cells,
    placed_cells,
    spelled_as,
)
from siloweave.tables.codes import Encoder
from siloweave.tables.column import Column
from siloweave.tables.constraints import MissingUnless, Unique
from siloweave.tables.drawn import listed_instead
from siloweave.tables.joining import stacked
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.modelled import Modelled, WantedCells, allowed_rows
from siloweave.tables.native_types import without_index
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

Blanks = Literal["missing", "unknown"]
"""What a cell without a value stands for: for a missing value, or for one that is not known."""
_AGAIN = 2_000  # rows drawn at once when some were missing, at least
_LEAST = 10_000  # rows that may be drawn however few are wanted
_HALF_A_ROW = 0.5  # fewer rows that have a value are none


@dataclass(frozen=True)
class Questions:
    """A fit's model together with all that is needed to ask it about rows.

    Attributes:
        title: What the method is called.
        model: Draws rows.
        schema: Facts about every column of a synthetic table.
        modelled: How constraints are kept; the identity where the model's rows keep them already.
        wanted: The seed, and how many rows may be drawn for each.
        num_rows: How many rows a draw has by itself.
        graph: The distribution and its codes, where the model is a graphical one.
    """

    title: str
    model: Model
    schema: Schema
    modelled: Modelled
    wanted: Wanted
    num_rows: int | None
    graph: tuple[MRF, Encoder] | None

    # Missing cells

    def imputed(self, source: Any, columns: Sequence[str] | None) -> Table:
        """Return a table whose missing cells are drawn; see `Fit.impute`."""
        table = read(without_index(source))
        cells = self._cells(table, "impute")
        names = list(cells) if columns is None else self._asked_columns(columns, table)
        gaps = {}
        for name in names:
            is_gap = cells[name].gone
            if is_gap.any():
                is_gap = is_gap & self._may_fill(name, cells)
            if is_gap.any():
                gaps[name] = is_gap
        if not gaps:
            return table

        # Rows without a gap are left alone, but for values that no two rows may share.
        has_gap = np.any(list(gaps.values()), axis=0)
        if any(isinstance(rule, Unique) for rule in self.schema.constraints):
            has_gap[:] = True
        rows = np.flatnonzero(has_gap)
        conditions = []
        for name, values in cells.items():
            column = self.schema[name]
            is_fixed = ~values.gone
            if column.missing:  # elsewhere a missing value is none of the column's
                is_fixed = is_fixed | ~gaps.get(name, np.zeros_like(is_fixed))
            wanted = WantedCells(values.take(rows), is_fixed[rows])
            conditions.append(condition_of(column, wanted))
        needed = {name: is_gap[rows] for name, is_gap in gaps.items()}
        new_rows = self._drawn(conditions, needed, table, "impute", self.wanted.seed)

        for name, is_needed in needed.items():
            is_filled = is_needed & ~new_rows.missing(name)
            filled_rows = new_rows.take(np.flatnonzero(is_filled))
            spelled = spelled_as(self.schema[name], filled_rows, table)
            table = table.filled(name, rows[is_filled], spelled)
        return table

    def _cells(self, table: Table, question: str) -> dict[str, CellValues]:
        """Return the cells of a table's modelled columns, by column.

        Raises:
            InputError: The schema has no such column.
            SchemaError: A value is outside the schema.
        """
        self._check_names(table)
        return {
            column.name: known_cells(column, table)
            for column in self.schema.coded
            if column.name in table.names
        }

    def _check_names(self, table: Table) -> None:
        for name in table.names:
            if name not in self.schema.names:
                raise InputError(
                    f"table: the schema has no column {name!r}; leave it out. It has "
                    f"{', '.join(self.schema.names)}"
                )

    def _asked_columns(self, columns: Sequence[str], table: Table) -> list[str]:
        """Return the names of the columns that are to be filled, in the schema's order."""
        modelled_names = [
            column.name for column in self.schema.coded if column.name in table.names
        ]
        if isinstance(columns, str):
            raise InputError(
                f"columns={columns!r} must be a list of names, such as [{columns!r}]"
            )
        for name in columns:
            if name not in modelled_names:
                raise InputError(
                    f"columns: {name!r} is no column of the model; choose from "
                    f"{', '.join(modelled_names)}"
                )
        return [name for name in modelled_names if name in columns]

    def _skips(self) -> list[MissingUnless]:
        """Return the constraints by which a category decides whether others have a value."""
        return [
            rule for rule in self.schema.constraints if isinstance(rule, MissingUnless)
        ]

    def _may_fill(self, name: str, cells: Mapping[str, CellValues]) -> Bools:
        """Return which rows may have a value in a column, as far as other cells decide that."""
        may_fill = np.ones(len(cells[name].gone), dtype=np.bool_)
        for rule in self._skips():
            if name in rule.dependent and rule.by in cells:
                by = self.schema[rule.by]
                categories = cells[rule.by]
                may_fill &= categories.gone | allowed_rows(rule, by, categories)
        return may_fill

    # Rows given what is known of them

    def _drawn(
        self,
        conditions: Sequence[Condition],
        needed: Mapping[str, Bools],
        like: Table,
        question: str,
        seed: Key,
    ) -> Table:
        """Draw rows under conditions, with a value in every cell that needs one.

        Args:
            conditions: One entry per column that any row is given.
            needed: By column, the rows that must have a value; these columns are returned.
            like: How numbers and dates are written.
            question: What the error names.
            seed: Everything random.

        Raises:
            InputError: The model cannot draw such rows, or they are too rare.
        """
        self._check_conditions(conditions, question)
        names = list(needed)
        count = len(needed[names[0]])
        skipped = {name for rule in self._skips() for name in rule.dependent}
        model = self.model.with_values([name for name in names if name not in skipped])
        other_names = [name for name in self.schema.names if name not in names]
        most = max(self.wanted.tries * count, _LEAST)
        missed = np.arange(count)
        drawn_count = 0
        tables = []
        places = []
        while missed.size:
            if drawn_count >= most:
                advice = (
                    "Leave such cells missing (columns=), or raise "
                    f"tries={self.wanted.tries}"
                )
                if question == "predict":  # which has no such arguments
                    advice = "Predict another target"
                raise InputError(
                    f"{question}: {missed.size:,} of {count:,} rows got no value in "
                    f"{', '.join(names)} in {drawn_count:,} draws: a missing value is likelier "
                    f"there. {advice}"
                )
            rows = missed
            if drawn_count:  # few rows are missed now: each is drawn several times
                rows = np.resize(missed, max(missed.size, _AGAIN))
            batch_seed = fold_in(seed, question, drawn_count)
            batch_conditions = tuple(condition.take(rows) for condition in conditions)
            try:
                batch = self._rows(model, batch_conditions, batch_seed, like)
            except InputError as error:  # which speaks of the argument of `sample`
                reason = str(error).removeprefix("given: ")
                raise type(error)(f"{question}: {reason}") from error
            batch = listed_instead(batch, self.schema, key=batch_seed, kept=other_names)
            is_needed = {name: mask[rows] for name, mask in needed.items()}
            good = np.flatnonzero(self._is_complete(batch, is_needed))
            met, first = np.unique(rows[good], return_index=True)
            tables.append(batch.select(names).take(good[first]))
            places.append(met)
            missed = np.setdiff1d(missed, met)
            drawn_count += len(rows)
        return stacked(tables).take(np.argsort(np.concatenate(places)))

    def _rows(
        self, model: Model, given: tuple[Condition, ...], seed: Key, like: Table
    ) -> Table:
        """Draw one row of a model for each condition; constraints are kept where there are any."""
        wanted = msgspec.structs.replace(self.wanted, given=given, seed=seed)
        empty = like.without_rows()
        return constrained_rows(self.modelled, model, wanted, self.num_rows, empty)

    def _is_complete(self, drawn: Table, needed: Mapping[str, Bools]) -> Bools:
        """Return which rows have a value wherever one is needed and allowed."""
        is_complete = np.ones(drawn.num_rows, dtype=np.bool_)
        for name, is_needed in needed.items():
            for rule in self._skips():
                if name in rule.dependent:
                    by = self.schema[rule.by]
                    is_needed = is_needed & allowed_rows(rule, by, cells_of(by, drawn))
            is_complete &= ~(is_needed & drawn.missing(name))
        return is_complete

    def _check_conditions(self, conditions: Sequence[Condition], question: str) -> None:
        """Refuse conditions on numbers, which a generator would meet by chance alone."""
        net: Any = getattr(self.model, "net", None)
        if net is None:
            return
        followed = net.takes if net.keeps else frozenset()
        learned = self.model.schema.coded
        by_chance = [c.name for c in learned if c.is_binned and c.name not in followed]
        for condition in conditions:
            column = condition.column
            if not column.is_binned or condition.free.all():
                continue
            # A column that a constraint keeps is learned as others, such as a gap.
            is_learned = column.name in self.model.schema.names
            if column.name in by_chance or (by_chance and not is_learned):
                raise QuestionError(
                    f"{question}: {self.title} cannot draw the rest of a row given a number, such "
                    f"as {column.name!r}; graphical models, a Gaussian copula, TabDDPM and "
                    "PointDiff can"
                )

    # Probabilities of rows

    def log_prob(self, source: Any, blanks: Blanks) -> Floats:
        """Return the log-probability (or log-density) of each row; see `Fit.log_prob`."""
        _check_blanks(blanks)
        table = read(without_index(source))
        self._check_names(table)
        if self.graph is None:
            raise QuestionError(
                f"log_prob: {self.title} draws rows, and has no formula for how likely one is; "
                "graphical models (AIM, PrivMRF, FLAIM, TwoRound and others) have one"
            )
        if not self.modelled.is_identity:
            rule = self.modelled.declared.constraints[0]
            raise QuestionError(
                f"log_prob: rows that break a constraint of the schema ({rule.words}) are drawn "
                "again, and how likely that is has no formula; fit without constraints to ask it"
            )
        mrf, encoder = self.graph
        total = np.zeros(table.num_rows)
        evidence: dict[str, Ints] = {}
        for column in encoder.schema.coded:
            if column.name in table.names:
                codes, inside = _codes_inside(column, encoder, table, blanks)
                evidence[column.name] = codes
                total += inside
        if evidence and table.num_rows:
            total += log_probability(mrf, evidence)
        return total

    # Predictions

    def class_shares(
        self, source: Any, target: str, blanks: Blanks, draws: int
    ) -> Floats:
        """Return the probability of each option of a target in each row, (rows, options)."""
        column = self._target(target)
        if column.is_binned:
            raise InputError(
                f"target: {target!r} is a column of numbers or dates, which has no classes; "
                "predict() returns its mean"
            )
        table, evidence = self._evidence(source, target, blanks)
        if self._is_exact:
            return self._exact_shares(column, evidence, table.num_rows)
        options = np.arange(len(column.options))
        codes = self._draws(column, evidence, table, draws)
        is_option = [draw_codes[:, None] == options for draw_codes in codes]
        return np.asarray(np.mean(is_option, axis=0))

    def predicted(self, source: Any, target: str, blanks: Blanks, draws: int) -> Any:
        """Predict each row's target: the most likely class, or the mean of a number."""
        column = self._target(target)
        if not column.is_binned:
            likeliest = self.class_shares(source, target, blanks, draws).argmax(axis=1)
            dtype = object if isinstance(column.options[0], str) else None
            return np.array(column.options, dtype=dtype)[likeliest]
        table, evidence = self._evidence(source, target, blanks)
        if self._is_exact:
            assert self.graph is not None
            _, encoder = self.graph
            cuts = (encoder.cuts or {}).get(target)
            bin_values = bin_means(column, encoder.edges(target), cuts)
            means = self._exact_shares(column, evidence, table.num_rows) @ bin_values
        else:
            means = np.mean(self._draws(column, evidence, table, draws), axis=0)
        if not column.is_datetime:
            return means
        return np.rint(means * step_of(column)).astype("datetime64[us]")

    @property
    def _is_exact(self) -> bool:
        """Whether rows follow the graphical model itself: none is drawn again for a constraint."""
        return self.graph is not None and self.modelled.is_identity

    def _target(self, target: str) -> Column:
        """Return the target's column; InputError where the model has no such column."""
        columns = {column.name: column for column in self.schema.coded}
        if target not in columns:
            names = ", ".join(columns)
            raise InputError(
                f"target={target!r} is no column that the model has; choose from {names}"
            )
        return columns[target]

    def _evidence(
        self, source: Any, target: str, blanks: Blanks
    ) -> tuple[Table, dict[str, WantedCells]]:
        """Read a table; return it, and its rows' cells in all columns other than the target."""
        _check_blanks(blanks)
        table = read(without_index(source))
        self._check_names(table)
        others = table.select([name for name in table.names if name != target])
        evidence = {}
        for name, cells in self._cells(others, "predict").items():
            is_fixed = ~cells.gone
            if blanks == "missing" and self.schema[name].missing:
                is_fixed = np.ones_like(is_fixed)
            evidence[name] = WantedCells(cells, is_fixed)
        return table, evidence

    def _exact_shares(
        self, column: Column, evidence: Mapping[str, WantedCells], count: int
    ) -> Floats:
        """Return the probability of each value, or bin, of a target that is not missing."""
        assert self.graph is not None
        mrf, encoder = self.graph
        codes = {column.name: np.full(count, UNKNOWN)}
        for name, wanted in evidence.items():
            column_codes = _codes(self.schema[name], encoder, wanted.cells)
            codes[name] = np.where(wanted.fixed, column_codes, UNKNOWN)
        # A missing value is the last code, and no answer.
        values = mrf.domain.size_of(column.name) - column.missing
        if mrf.marginal((column.name,))[:values].sum() < _HALF_A_ROW:
            raise InputError(
                f"predict: target={column.name!r} is missing in every row of the model, so that it "
                "has no value to predict; choose another target"
            )
        try:
            value_shares = shares(mrf, codes, column.name)[:, :values]
        except DataError as error:
            raise InputError(f"predict: {error}") from error
        totals = value_shares.sum(axis=1, keepdims=True)
        uniform = np.full_like(value_shares, 1.0 / values)
        return np.asarray(
            np.divide(value_shares, totals, out=uniform, where=totals > 0.0)
        )

    def _draws(
        self,
        column: Column,
        evidence: Mapping[str, WantedCells],
        table: Table,
        draws: int,
    ) -> list[Any]:
        """Draw a target several times for every row; return one array per draw."""
        whole("draws", draws, 1)
        count = table.num_rows
        if not count:
            return [np.zeros(0)]
        nothing = CellValues(
            np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.bool_)
        )
        free = WantedCells(nothing, np.zeros(count, dtype=np.bool_))
        conditions = [
            condition_of(self.schema[name], cells)
            for name, cells in {**evidence, column.name: free}.items()
        ]
        needed = {column.name: np.ones(count, dtype=np.bool_)}
        values = []
        for number in range(draws):
            seed = fold_in(self.wanted.seed, "draw", number)
            rows = self._drawn(conditions, needed, table, "predict", seed)
            values.append(cells_of(column, rows).values)
        return values


def _check_blanks(blanks: str) -> None:
    """Raise InputError for a value of `blanks` that has no meaning."""
    if blanks not in get_args(Blanks):
        raise InputError(f"blanks={blanks!r} must be 'missing' or 'unknown'")


def _codes(column: Column, encoder: Encoder, cells: CellValues) -> Ints:
    """Turn cells into a graphical model's codes; a missing value has the last code."""
    if not column.is_binned:
        return np.where(cells.gone, len(column.options), cells.values).astype(np.int64)
    edges = encoder.edges(column.name)
    codes = np.searchsorted(edges[1:-1], cells.values, side="right")
    return np.where(cells.gone, len(edges) - 1, codes)


def _codes_inside(
    column: Column, encoder: Encoder, table: Table, blanks: Blanks
) -> tuple[Ints, Floats]:
    """Return a column as codes, and the log-density of its numbers inside their bins.

    That is minus infinity where a value is outside the schema.
    """
    facts: Any = {"missing": True, "outside": "move", "fallback": None}
    placed = placed_cells(msgspec.structs.replace(column, **facts), table)
    is_outside = placed.moved
    if column.other is not None:
        # A category that is not listed is `other`.
        is_outside = is_outside & placed.missing
    is_blank = placed.missing & ~is_outside
    codes = _codes(column, encoder, CellValues(placed.values, placed.missing))
    inside = np.zeros(len(codes))
    if column.is_binned:
        edges = encoder.edges(column.name)
        cuts = (encoder.cuts or {}).get(column.name)
        filled = np.flatnonzero(~placed.missing)
        inside[filled] = log_density(
            column, edges, codes[filled], placed.values[filled], cuts
        )
    if blanks == "unknown" or not column.missing:
        codes = np.where(is_blank, UNKNOWN, codes)
    if blanks == "missing" and not column.missing:
        is_outside = is_outside | is_blank
    codes = np.where(is_outside, UNKNOWN, codes)
    return codes, np.where(is_outside, -np.inf, inside)
