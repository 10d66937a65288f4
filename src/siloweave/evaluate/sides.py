"""The three comparisons behind each score: the synthetic table, its ceiling and its floor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from siloweave.errors import InputError
from siloweave.evaluate.scores import Better, NotMeasured, Score
from siloweave.tables.aligned import Aligned
from siloweave.tables.keys import Key, fold_in, generator

__all__ = ["Sheet", "Sides", "jackknife", "make_sides", "over_folds", "without_tenths"]

GROUPS = 10
T_9, T_2 = 2.262157, 4.302653
"""The 97.5% points of Student's t with one degree less than there are groups, or folds."""
Band = tuple[float, float] | None
"""An interval, or that there is none."""
OVER_FOLDS = "t interval over 3 folds"
JACKKNIFE = f"jackknife over {GROUPS} groups of rows"


@dataclass(frozen=True, eq=False)
class Sides:
    """All tables, and which two stand for the value, the ceiling and the floor.

    Attributes:
        tables: The tables given, and those made of them.
        value: Names of the real and the synthetic table.
        ceiling: Names of two real tables; None where the rows do not suffice.
        floor: Names of the real table and of the one with shuffled columns.
        ceiling_text: What the ceiling compares.
        floor_text: What the floor compares.
    """

    tables: Aligned
    value: tuple[str, str]
    ceiling: tuple[str, str] | None
    floor: tuple[str, str]
    ceiling_text: str
    floor_text: str = (
        "the real rows against themselves with every column shuffled on its own; measures of "
        "single columns see nothing wrong with it"
    )

    @property
    def base(self) -> str:
        """The real rows that models are tested on, which no ceiling model has seen."""
        return self.ceiling[0] if self.ceiling else self.value[0]

    def compare(
        self, compute: Callable[[str, str], float]
    ) -> tuple[float, float | None, float | None, str]:
        """Compute a measure on all three.

        Args:
            compute: From the names of the real and the other table.

        Returns:
            Value, ceiling and floor, and what there is to say about a ceiling or floor that has no
            number.

        Raises:
            InputError: The value cannot be measured.
        """
        value = compute(*self.value)
        others: list[float | None] = []
        notes = []
        for name, pair in (("ceiling", self.ceiling), ("floor", self.floor)):
            try:
                found = None if pair is None else compute(*pair)
                others.append(found if found is None or np.isfinite(found) else None)
            except InputError as error:
                others.append(None)
                notes.append(f"no {name}: {error}")
        return value, others[0], others[1], "; ".join(notes)


def make_sides(tables: Aligned, key: Key) -> Sides:
    """Make the tables that ceilings and floors need.

    Args:
        tables: ``real``, ``synthetic`` and, where there is one, ``holdout``.
        key: How real rows are halved and columns shuffled.

    Returns:
        The sides; without a holdout the ceiling compares one half of the real rows to the other.
    """
    count = tables.num_rows["real"]
    made = shuffled(tables, "real", "floor", fold_in(key, "floor"))
    value, floor = ("real", "synthetic"), ("real", "floor")
    if "holdout" in tables.num_rows:
        text = f"the {tables.num_rows['holdout']} holdout rows against the real ones"
        return Sides(made, value, ("real", "holdout"), floor, text)
    if count < 2:
        return Sides(made, value, None, floor, "none: one real row has no other half")
    order = generator(fold_in(key, "halves")).permutation(count)
    halves = order[: (count + 1) // 2], order[(count + 1) // 2 :]
    made = made.with_rows("half", "real", np.sort(halves[0]))
    made = made.with_rows("other half", "real", np.sort(halves[1]))
    if any(
        column.missing(half).all() for column in made.columns for half in ("half", "other half")
    ):
        text = "none: a column has no value in one half of the real rows; give a holdout"
        return Sides(made, value, None, floor, text)
    text = (
        f"one random half of the real rows against the other ({len(halves[1])} rows); "
        "no holdout was given, and with so few rows it is noisier than the value"
    )
    return Sides(made, value, ("half", "other half"), floor, text)


def shuffled(tables: Aligned, like: str, name: str, key: Key) -> Aligned:
    """Add a table whose columns are those of another, each shuffled on its own."""
    columns = tuple(
        replace(
            c,
            values={
                **c.values,
                name: generator(fold_in(key, c.name)).permutation(c.values[like]),
            },
        )
        for c in tables.columns
    )
    return Aligned(columns, {**tables.num_rows, name: tables.num_rows[like]}, tables.left_out)


def without_tenths(sides: Sides, key: Key) -> list[Aligned]:
    """The real and the synthetic table ten times, each time without another tenth of the rows.

    Empty where a table has fewer than twenty rows, or a column lost its last value.
    """
    tables = sides.tables
    if min(tables.num_rows[name] for name in sides.value) < 2 * GROUPS:
        return []
    groups = {
        name: generator(fold_in(key, name)).permutation(tables.num_rows[name]) % GROUPS
        for name in sides.value
    }
    found = []
    for g in range(GROUPS):
        less = tables
        for name in sides.value:
            less = less.with_rows(name, name, np.flatnonzero(groups[name] != g))
        if any(c.missing(name).all() for c in less.columns for name in sides.value):
            return []
        found.append(less)
    return found


def jackknife(value: float, without: list[float], most: float) -> Band:
    """95% interval from the values without each group of rows.

    Args:
        value: With all rows.
        without: Without each of ten groups.
        most: The largest possible value; the smallest is 0.

    Returns:
        The interval, within what is possible; None without ten values.

    Source:
        Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 11 (in groups).

    Example:
        >>> low, high = jackknife(0.5, [0.49, 0.51] * 5, 1.0)
        >>> round(low, 4), round(high, 4)
        (0.4321, 0.5679)
    """
    if len(without) != GROUPS:
        return None
    return within(value, T_9 * float(np.sqrt((GROUPS - 1) * np.var(without))), most)


def over_folds(value: float, folds: Sequence[float], most: float) -> Band:
    """95% interval from the values of three folds, each with a model of its own.

    Example:
        >>> low, high = over_folds(0.5, (0.49, 0.5, 0.51), 1.0)
        >>> round(low, 4), round(high, 4)
        (0.4752, 0.5248)
    """
    return within(value, T_2 * float(np.std(folds, ddof=1)) / float(np.sqrt(len(folds))), most)


def within(value: float, half: float, most: float) -> Band:
    """An interval of half a width either side, cut to what is possible."""
    return max(0.0, value - half), min(most, value + half)


@dataclass
class Sheet:
    """Scores and gaps as they come.

    Attributes:
        parts: Scores, in order.
        gaps: What could not be measured.
    """

    parts: list[Score]
    gaps: list[NotMeasured]

    def add(
        self,
        name: str,
        family: str,
        sides: Sides,
        compute: Callable[[str, str], float],
        better: Better,
        unit: str,
        source: str,
        note: Callable[[], str] = lambda: "",
        interval: Callable[[float], Band] = lambda value: None,
        interval_by: str = JACKKNIFE,
    ) -> bool:
        """Compute and keep one measure, or the reason why it does not apply; tell which."""
        try:
            value, ceiling, floor, gaps = sides.compare(compute)
        except InputError as error:
            self.gaps.append(NotMeasured(name, str(error)))
            return False
        if not np.isfinite(value):
            reason = f"it came out as {value}; are there numbers near the largest that float64 has?"
            self.gaps.append(NotMeasured(name, reason))
            return False
        band = interval(value)
        remark = "; ".join(text for text in (note(), gaps) if text)
        self.parts.append(Score(
            name, family, value, ceiling, floor, better, unit, source, remark,
            band, interval_by if band else "",
        ))  # fmt: skip
        return True
