"""What `score` returns: every number beside its ceiling and its floor, as a value and as text.

The three comparisons behind each score: the synthetic table, its ceiling and its floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from siloweave.errors import InputError
from siloweave.tables.aligned import Aligned
from siloweave.tables.display import html_table
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import Frame, frame_of

if TYPE_CHECKING:
    from siloweave.report.plots import Picture


_COLUMNS = (
    *("name", "family", "value", "low", "high", "ceiling", "floor", "better", "unit", "source"),
    "note",
)
Better = Literal["higher", "lower"]


class Score(msgspec.Struct, frozen=True):
    """One measure of a synthetic table.

    Args:
        name: Unique among a table's scores.
        family: What it belongs to, such as ``resemblance``.
        value: Of the synthetic table against the real one.
        ceiling: Of rows as real as the real ones; None where there is no such thing, see `note`.
        floor: Of a table with the real columns, each shuffled on its own.
        better: Which way is good.
        unit: What the numbers count.
        source: The paper, or the tool, that defines it.
        note: What must be known to read it; empty where there is nothing.
        interval: Where the value would lie with other rows or folds; None where not estimated.
        interval_by: How the interval was found.
    """

    name: str
    family: str
    value: float
    ceiling: float | None
    floor: float | None
    better: Better
    unit: str
    source: str
    note: str = ""
    interval: tuple[float, float] | None = None
    interval_by: str = ""


class NotMeasured(msgspec.Struct, frozen=True):
    """A measure that does not apply to these tables.

    Args:
        name: The measure.
        reason: Why not, and what would make it apply.
    """

    name: str
    reason: str


class ScoreSettings(msgspec.Struct, frozen=True):
    """How scores were computed, so that they can be computed again.

    Args:
        rows: Rows of each table that was given.
        seed: The seed.
        max_rows: Rows of either table in a boosting fit, at most.
        ceiling: What the ceiling compares.
        floor: What the floor compares.
        target: The column that was asked for.
        left_out: Columns that hold ids.
        caps: Other limits, by name.
    """

    rows: dict[str, int]
    seed: int
    max_rows: int
    ceiling: str
    floor: str
    target: str | None
    left_out: tuple[str, ...]
    caps: dict[str, int]


class ColumnLook(msgspec.Struct, frozen=True):
    """How one column's rows spread in both tables, to be drawn.

    Args:
        name: The column.
        kind: ``numeric`` or ``categorical``.
        cells: Names of the cells: categories, the most frequent real ones first; empty for numbers.
        edges: Edges of the cells of numbers, one more than cells; the outer ones hold what lies
            outside too. Empty for categories.
        real: Share of the real rows in each cell.
        synthetic: Share of the synthetic rows in each cell.
        missing: Share of missing values, real and synthetic; it is in no cell.
        distance: Jensen-Shannon distance of the column, 0 to 1.
        moments: Whether the numbers are days since 1970.
    """

    name: str
    kind: Literal["numeric", "categorical"]
    cells: tuple[str, ...]
    edges: tuple[float, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]
    missing: tuple[float, float]
    distance: float
    moments: bool = False


class Associations(msgspec.Struct, frozen=True):
    """How columns go together in both tables; see `associations` for the coefficients.

    Args:
        names: The columns.
        real: One row per column, one coefficient per column.
        synthetic: The same of the synthetic table.
    """

    names: tuple[str, ...]
    real: tuple[tuple[float, ...], ...]
    synthetic: tuple[tuple[float, ...], ...]


class Scores(msgspec.Struct, frozen=True):
    """All scores of one synthetic table, what could not be measured, and what plots need.

    Args:
        parts: The scores, by family.
        not_measured: Measures that do not apply, with the reason.
        settings: Rows, seeds and limits.
        columns: Each column's spread in both tables.
        associations: How columns go together in both tables.
        telling: The columns that give synthetic rows away, the most telling first, each with the
            area under the discriminator's ROC curve that is lost when the column is shuffled.

    Example:
        >>> part = Score("x", "family", 0.5, 1.0, 0.0, "higher", "0 to 1", "us")
        >>> caps = ScoreSettings({"real": 9}, 0, 9, "halves", "shuffled", None, (), {})
        >>> scores = Scores((part,), (), caps, (), Associations((), (), ()), ())
        >>> scores["x"].value, Scores.from_json(scores.to_json()) == scores
        (0.5, True)
    """

    parts: tuple[Score, ...]
    not_measured: tuple[NotMeasured, ...]
    settings: ScoreSettings
    columns: tuple[ColumnLook, ...]
    associations: Associations
    telling: tuple[tuple[str, float], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scores."""
        return tuple(part.name for part in self.parts)

    def __getitem__(self, name: str) -> Score:
        for part in self.parts:
            if part.name == name:
                return part
        for gap in self.not_measured:
            if gap.name == name:
                raise InputError(f"{name!r} was not measured: {gap.reason}")
        raise InputError(f"there is no score {name!r}; there are {', '.join(self.names)}")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dictionaries, lists, text and numbers."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def to_json(self) -> str:
        """Return JSON text; `from_json` reads it back."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Scores:
        """Read what `to_json` wrote.

        Raises:
            InputError: The text is not such JSON; names the field that is wrong.
        """
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise InputError(f"not a file of scores: {error}") from None

    def to_frame(self, kind: Frame | None = None) -> Any:
        """Return one row per score; what was not measured is in `not_measured`.

        Args:
            kind: ``pandas``, ``polars`` or ``arrow``; pandas where it is installed, else polars, if
                None.
        """
        rows = []
        for part in self.parts:
            low, high = part.interval or (None, None)
            rows.append({**msgspec.structs.asdict(part), "low": low, "high": high})
        return frame_of(rows, _COLUMNS, kind)

    def plot(self, column: str | None = None) -> Picture:
        """Draw both tables beside each other, as the page of scores does.

        Args:
            column: How this column spreads; how all pairs of columns go together if None.

        Returns:
            A picture that a notebook shows, and `save` stores as SVG.

        Raises:
            InputError: There is no such column, or only one for pairs.
        """
        from siloweave.report.comparison import chart, pairs_chart
        from siloweave.report.plots import Picture

        if column is None:
            drawn = pairs_chart(msgspec.to_builtins(self.associations))
            if drawn is None:
                raise InputError("there is one column and no pair of columns; name the column")
            return Picture(drawn["svg"])
        for one in self.columns:
            if one.name == column:
                return Picture(chart(msgspec.to_builtins(one))["svg"])
        known = ", ".join(one.name for one in self.columns)
        raise InputError(f"column={column!r} was not compared; there are {known}")

    def __str__(self) -> str:
        return "\n".join(_text(self))

    def __repr__(self) -> str:
        rows = ", ".join(f"{count} {name}" for name, count in self.settings.rows.items())
        return f"Scores({len(self.parts)} scores of {rows} rows)"

    def _repr_html_(self) -> str:
        heads = ["score", "value", "interval", "ceiling", "floor", "better"]
        rows = [
            (
                part.name, _number(part.value), _interval(part.interval), _number(part.ceiling),
                _number(part.floor), part.better,
            )
            for part in self.parts
        ]  # fmt: skip
        return html_table(repr(self), heads, rows)


def _text(scores: Scores) -> list[str]:
    rows = [("", "value", "95% interval or spread", "ceiling", "floor", "better", "unit")]
    family, notes = "", []
    for part in scores.parts:
        if part.family != family:
            family = part.family
            rows.append((family, "", "", "", "", "", ""))
        mark = ""
        if part.note:
            notes.append(part.note)
            mark = f" [{len(notes)}]"
        rows.append((
            f"  {part.name}{mark}", _number(part.value), _interval(part.interval),
            _number(part.ceiling), _number(part.floor), part.better, part.unit,
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [_line(row, widths) for row in rows]
    lines += [f"[{i}] {note}" for i, note in enumerate(notes, 1)]
    if scores.not_measured:
        lines.append("not measured")
        lines += [f"  {gap.name}: {gap.reason}" for gap in scores.not_measured]
    kept = scores.settings
    given = ", ".join(f"{count} {name}" for name, count in kept.rows.items())
    lines.append(f"rows: {given}; at most {kept.max_rows} per fit; seed {kept.seed}")
    lines.append(f"ceiling: {kept.ceiling}")
    lines.append(f"floor: {kept.floor}")
    if kept.left_out:
        lines.append(f"ids, not compared: {', '.join(kept.left_out)}")
    return lines


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [row[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(row[1:5], widths[1:5], strict=True)]
    cells += [cell.ljust(width) for cell, width in zip(row[5:], widths[5:], strict=True)]
    return "  ".join(cells).rstrip()


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.4f}"


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{_number(interval[0])} to {_number(interval[1])}"


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
