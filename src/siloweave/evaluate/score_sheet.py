"""Scores beside their ceilings and floors, with their intervals, as they are entered one by one.

Two real tables are the ceiling of a measure, and the real rows with every column shuffled on its
own its floor. Intervals come from a jackknife over ten groups of rows, or of persons where these
are the unit (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 11), or from
the values in three folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from siloweave.errors import InputError
from siloweave.evaluate.predictive import FOLDS
from siloweave.evaluate.scores import Better, NotMeasured, Score
from siloweave.tables.aligned import Aligned
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.persons import relabelled, rows_of_units

Pair = tuple[str, str]
Compute = Callable[[str, str], float]
"""A measure, from the names of the real table and of the other one."""
Band = tuple[float, float] | None
"""An interval; None where nothing estimates one."""
Interval = Callable[[float], Band]
"""What computes an interval, from the value."""
OF_100 = "of 100"
"""The unit of similarities, which reach 100."""
MOST = {OF_100: 100.0, "%": 100.0, "0 to 1": 1.0, "0 to 2": 2.0}
"""The largest possible value by unit; of other units, values have no upper end."""
GROUPS = 10
"""Groups of rows, or of persons, of a jackknife."""
T_9 = 2.262157
"""The 97.5% point of Student's t with nine degrees of freedom, one less than there are groups."""
T_2 = 4.302653
"""The same with two degrees of freedom, one less than there are folds."""
# Where an interval comes from, as a score says it.
JACKKNIFE = f"jackknife over {GROUPS} groups of rows"
OVER_FOLDS = f"t interval over {FOLDS} folds"
RANGE = f"range over {FOLDS} folds"


# Value, ceiling and floor


class Comparison(NamedTuple):
    """The value of a measure, with the ceiling and the floor it is read beside.

    Attributes:
        value: Of the synthetic table.
        ceiling: Of two real tables; None where it could not be computed.
        floor: Of the table with shuffled columns; None where it could not be computed.
        note: Why ceiling or floor could not be computed; empty where both could.
    """

    value: float
    ceiling: float | None
    floor: float | None
    note: str = ""


@dataclass(frozen=True, eq=False)
class Sides:
    """The tables of a comparison, and the names of the two behind value, ceiling and floor.

    The value compares the real and the synthetic table, the ceiling two real tables (None where the
    rows do not suffice), the floor the real table and the one with shuffled columns.
    """

    tables: Aligned
    value: Pair
    ceiling: Pair | None
    floor: Pair
    ceiling_text: str

    @property
    def base(self) -> str:
        """The real rows that models are tested on, which no ceiling model has seen."""
        return self.ceiling[0] if self.ceiling else self.value[0]

    def compare(self, compute: Compute) -> Comparison:
        """Compute a measure's value, ceiling and floor.

        Raises:
            InputError: There is no value. Without a ceiling or a floor a note says why.
        """
        value = compute(*self.value)

        bounds: dict[str, float | None] = {}
        notes = []
        for name, pair in (("ceiling", self.ceiling), ("floor", self.floor)):
            bounds[name] = None
            if pair is None:
                continue
            try:
                bound = compute(*pair)
            except InputError as error:
                notes.append(f"no {name}: {error}")
                continue
            if np.isfinite(bound):
                bounds[name] = bound
        return Comparison(value, bounds["ceiling"], bounds["floor"], "; ".join(notes))


def make_sides(tables: Aligned, key: Key) -> Sides:
    """Make the tables that ceilings and floors need.

    Of tables named ``real``, ``synthetic`` and perhaps ``holdout``; without a holdout the ceiling
    compares one half of the real rows to the other. The key halves rows and shuffles columns.
    """
    sides = Sides(
        tables=_with_floor(tables, fold_in(key, "floor")),
        value=("real", "synthetic"),
        ceiling=None,
        floor=("real", "floor"),
        ceiling_text="none: one real row has no other half",
    )
    if "holdout" not in tables.num_rows:
        return _with_halves(sides, fold_in(key, "halves"))

    rows = tables.num_rows["holdout"]
    text = f"the {rows:,} holdout rows against the real ones"
    if "holdout" in tables.owners:
        persons = len(np.unique(tables.owners["holdout"]))
        text = (
            f"the {rows:,} rows of {persons:,} persons held out against the real ones"
        )
    return replace(sides, ceiling=("real", "holdout"), ceiling_text=text)


def _with_halves(sides: Sides, key: Key) -> Sides:
    """Add a ceiling from two halves of the real rows, or say why there can be none."""
    owners, _ = relabelled(sides.tables.owners_of("real"))
    num_rows = len(owners)
    num_units = int(owners.max()) + 1
    if num_units < 2:
        if num_rows > 1:
            sides = replace(sides, ceiling_text="none: one person has no other half")
        return sides

    # Whole units are halved: rows of a person in both halves would make the ceiling too high.
    order = generator(key).permutation(num_units)
    middle = (num_units + 1) // 2
    first_half = rows_of_units(owners, order[:middle])
    second_half = rows_of_units(owners, order[middle:])
    pair = ("half", "other half")
    tables = sides.tables
    for name, rows in zip(pair, (first_half, second_half), strict=True):
        tables = tables.with_rows(name, "real", rows)
    sides = replace(sides, tables=tables)

    for column in tables.columns:
        if any(column.missing(half).all() for half in pair):
            text = "none: a column has no value in one half of the real rows; give a holdout"
            return replace(sides, ceiling_text=text)
    halved = "rows" if num_units == num_rows else "persons"
    text = (
        f"one random half of the real {halved} against the other ({len(second_half):,} rows); "
        "no holdout was given, and with so few rows it is noisier than the value"
    )
    return replace(sides, ceiling=pair, ceiling_text=text)


def _with_floor(tables: Aligned, key: Key) -> Aligned:
    """Add a copy of the real table in which each column was shuffled on its own."""
    columns = []
    for column in tables.columns:
        shuffled = generator(fold_in(key, column.name)).permutation(
            column.values["real"]
        )
        values = {**column.values, "floor": shuffled}
        columns.append(replace(column, values=values))
    num_rows = {**tables.num_rows, "floor": tables.num_rows["real"]}
    # No owners: columns that were shuffled on their own belong to nobody.
    return Aligned(tuple(columns), num_rows, tables.left_out, tables.owners)


def without_tenths(sides: Sides, key: Key) -> list[Aligned]:
    """Return ten versions of the tables, each without another tenth of their units.

    Only the real and the synthetic table lose units. The list is empty where one of them has fewer
    than twenty, or a column lost its last value.
    """
    tables = sides.tables

    # Assign each row of both tables to a group, by its unit.
    groups = {}
    for name in sides.value:
        owners, _ = relabelled(tables.owners_of(name))
        num_units = int(owners.max()) + 1
        if num_units < 2 * GROUPS:
            return []
        group_of_unit = generator(fold_in(key, name)).permutation(num_units) % GROUPS
        groups[name] = group_of_unit[owners]

    reduced_tables = []
    for group in range(GROUPS):
        reduced = tables
        for name in sides.value:
            rows = np.flatnonzero(groups[name] != group)
            reduced = reduced.with_rows(name, name, rows)
        for column in reduced.columns:
            if any(column.missing(name).all() for name in sides.value):
                return []
        reduced_tables.append(reduced)
    return reduced_tables


# Intervals


def jackknife(value: float, without: Sequence[float], most: float) -> Band:
    """Return a 95% interval from the values without each of ten groups of rows.

    It is cut to what is possible, from 0 to `most`, and None unless there are ten values.
    """
    if len(without) != GROUPS:
        return None
    # Chapter 11: the variance is (n - 1)/n times the sum of squared deviations.
    standard_error = float(np.sqrt((GROUPS - 1) * np.var(without)))
    return within(value, T_9 * standard_error, most)


def over_folds(value: float, folds: Sequence[float], most: float) -> Band:
    """Return a 95% interval from the values in three folds, each of a model of its own.

    Example:
        >>> low, high = over_folds(0.5, (0.49, 0.5, 0.51), 1.0)
        >>> round(low, 4), round(high, 4)
        (0.4752, 0.5248)
    """
    deviation = float(np.std(folds, ddof=1))
    half_width = T_2 * deviation / float(np.sqrt(len(folds)))
    return within(value, half_width, most)


def within(value: float, half_width: float, most: float) -> tuple[float, float]:
    """Return the interval around a value, half a width to either side, cut to what is possible."""
    low = max(0.0, value - half_width)
    high = min(most, value + half_width)
    return low, high


# The sheet


class Heading(NamedTuple):
    """The name of a score, its good direction, the scale of its numbers, and its authors."""

    name: str
    family: str
    better: Better
    unit: str
    source: str

    @property
    def most(self) -> float:
        """The largest value that the score can have; the smallest is 0."""
        return MOST.get(self.unit, float("inf"))


@dataclass
class Sheet:
    """The scores so far, and what could not be measured, in the order in which they came."""

    sides: Sides
    parts: list[Score] = field(default_factory=list)
    gaps: list[NotMeasured] = field(default_factory=list)

    def add(
        self,
        heading: Heading,
        compute: Compute,
        *,
        note: str | Callable[[], str] = "",
        interval: Interval = lambda value: None,
        interval_by: str = JACKKNIFE,
    ) -> bool:
        """Compute and append a measure, or the reason why it does not apply; return whether it did.

        A note or interval that takes computing is computed where there is a value.
        """
        try:
            comparison = self.sides.compare(compute)
        except InputError as error:
            self.add_gap(heading.name, str(error))
            return False
        value = comparison.value
        if not np.isfinite(value):
            reason = f"it came out as {value}; are there numbers near the largest that float64 has?"
            self.add_gap(heading.name, reason)
            return False

        band = interval(value)
        text = note if isinstance(note, str) else note()
        remarks = [remark for remark in (text, comparison.note) if remark]
        comparison = comparison._replace(note="; ".join(remarks))
        self.append(heading, comparison, band, interval_by)
        return True

    def add_gap(self, name: str, reason: str) -> None:
        """Append the name of a measure that does not apply, and why."""
        self.gaps.append(NotMeasured(name, reason))

    def append(
        self,
        heading: Heading,
        comparison: Comparison,
        band: Band = None,
        interval_by: str = JACKKNIFE,
    ) -> None:
        """Append a score."""
        band_source = interval_by if band else ""
        part = Score(
            name=heading.name,
            family=heading.family,
            value=comparison.value,
            ceiling=comparison.ceiling,
            floor=comparison.floor,
            better=heading.better,
            unit=heading.unit,
            source=heading.source,
            note=comparison.note,
            interval=band,
            interval_by=band_source,
        )
        self.parts.append(part)
