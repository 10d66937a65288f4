"""What `score` returns: every number beside its ceiling and its floor, as a value and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from siloweave.errors import InputError
from siloweave.report.results import score_lines, score_table
from siloweave.report.words import scored
from siloweave.tables.display import html_table
from siloweave.tables.origin import Frame
from siloweave.tables.write import frame_of

if TYPE_CHECKING:
    from siloweave.report.svg import Picture

_FRAME_COLUMNS = (
    "name",
    "family",
    "value",
    "low",
    "high",
    "ceiling",
    "floor",
    "better",
    "unit",
    "source",
    "note",
)
Better = Literal["higher", "lower"]


class Score(msgspec.Struct, frozen=True):
    """The value of one measure of a synthetic table.

    Args:
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
    """A measure that does not apply to these tables: why not, and what would make it apply."""

    name: str
    reason: str


class ScoreSettings(msgspec.Struct, frozen=True):
    """The settings with which scores were computed, so that they can be computed again.

    Args:
        rows: Rows of each table that was given.
        max_rows: Rows of either table in a boosting fit, at most.
        ceiling: What the ceiling compares; `floor` likewise.
        left_out: Columns that hold ids.
        caps: Other limits, by name.
        unit: What is held out: ``row``, or the id column that says whose row each is.
        caution: That the holdout looks like another population, or overlaps the real rows, so that
            it cannot be a ceiling; else empty.
    """

    rows: dict[str, int]
    seed: int
    max_rows: int
    ceiling: str
    floor: str
    target: str | None
    left_out: tuple[str, ...]
    caps: dict[str, int]
    unit: str = "row"
    caution: str = ""


class ColumnHistogram(msgspec.Struct, frozen=True):
    """The distribution of one column's rows over the same cells in both tables, to be drawn.

    Args:
        cells: Names of the cells: categories, the most frequent real ones first; empty for numbers.
        edges: Edges of the cells of numbers, one more than cells; empty for categories. A cell
            begins at its edge and ends before the next; the last one holds its end too unless
            numbers are whole.
        real: Share of the real rows in each cell.
        synthetic: Share of the synthetic rows in each cell.
        missing: Share of missing values, real and synthetic; it is in no cell.
        distance: Jensen-Shannon distance of the column, 0 to 1.
        datetimes: Whether the numbers are days since 1970.
        whole: Whether all real numbers are whole, and edges with them.
        growing: Whether cells grow by a factor instead of being equally wide.
        below: Share of the numbers below the first cell, real and synthetic.
        above: Share of those above the last cell.
        others: How many categories the last cell stands for; 0 where each has a cell.
    """

    name: str
    kind: Literal["numeric", "categorical"]
    cells: tuple[str, ...]
    edges: tuple[float, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]
    missing: tuple[float, float]
    distance: float
    datetimes: bool = False
    whole: bool = False
    growing: bool = False
    below: tuple[float, float] = (0.0, 0.0)
    above: tuple[float, float] = (0.0, 0.0)
    others: int = 0


class PairHistogram(msgspec.Struct, frozen=True):
    """The distribution of two columns' rows over the same grid of cells in both tables.

    Args:
        columns: The two columns; cells of the first are rows of the grid.
        labels: Of the cells of each column: categories, ranges of numbers, "missing".
        real: Share of the real rows in each cell of the grid.
        synthetic: Share of the synthetic rows there.
        strengths: How strongly the columns go together, real and synthetic, without sign.
    """

    columns: tuple[str, str]
    labels: tuple[tuple[str, ...], tuple[str, ...]]
    real: tuple[tuple[float, ...], ...]
    synthetic: tuple[tuple[float, ...], ...]
    strengths: tuple[float, float]


class Associations(msgspec.Struct, frozen=True):
    """The strength of association between all columns, in both tables.

    There is one row and one coefficient per column.

    `siloweave.evaluate.associations` says what the coefficients are.
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
        distinguishing: The columns that give synthetic rows away, the clearest first, each with
            the area under the discriminator's ROC curve that is lost when the column is shuffled.
        pairs: The pairs of columns whose associations differ most between the tables, to be drawn.

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
    columns: tuple[ColumnHistogram, ...]
    associations: Associations
    distinguishing: tuple[tuple[str, float], ...]
    pairs: tuple[PairHistogram, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The scores' names, in the order of `parts`."""
        return tuple(part.name for part in self.parts)

    def __getitem__(self, name: str) -> Score:
        for part in self.parts:
            if part.name == name:
                return part
        for gap in self.not_measured:
            if gap.name == name:
                raise InputError(f"{name!r} was not measured: {gap.reason}")
        raise InputError(
            f"there is no score {name!r}; there are {', '.join(self.names)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dictionaries, lists, text and numbers."""
        builtins: dict[str, Any] = msgspec.to_builtins(self)
        return builtins

    def to_json(self) -> str:
        """Return JSON text; `from_json` reads it back."""
        compact = msgspec.json.encode(self)
        return msgspec.json.format(compact, indent=2).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Scores:
        """Read scores from JSON that `to_json` wrote.

        Raises:
            InputError: The text is not such JSON; names the field that is wrong.
        """
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise InputError(
                f"not a file of scores: {error}; give what to_json of this version of siloweave "
                "wrote, or score the tables again"
            ) from None

    def to_frame(self, kind: Frame | None = None) -> Any:
        """Return one row per score; what was not measured is in `not_measured`.

        Args:
            kind: ``pandas``, ``polars`` or ``arrow``; pandas where it is installed, else polars, if
                None.
        """
        rows = []
        for part in self.parts:
            row = msgspec.structs.asdict(part)
            # A frame has a number in a cell, and no pair.
            low, high = part.interval or (None, None)
            row["low"] = low
            row["high"] = high
            rows.append(row)
        return frame_of(rows, _FRAME_COLUMNS, kind)

    def plot(self, column: str | None = None, other: str | None = None) -> Picture:
        """Draw plots of both tables beside each other, as the report's page of scores does.

        Args:
            column: How this column spreads; how all pairs of columns go together if None.
            other: With this one: how rows spread over both columns. They are one of `pairs`, which
                has the pairs that differ most.

        Returns:
            A picture that a notebook shows, and `save` stores as SVG.

        Raises:
            InputError: There is no such column, or only one for pairs, or no such pair.
        """
        from siloweave.report.page import column_chart, pair_chart, pairs_view
        from siloweave.report.svg import Picture

        if other is not None:
            for pair in self.pairs:
                if set(pair.columns) == {column, other}:
                    return Picture(pair_chart(msgspec.to_builtins(pair)).svg)
            names_of_pairs = ", ".join(
                " and ".join(pair.columns) for pair in self.pairs
            )
            raise InputError(
                f"column={column!r}, other={other!r} is not among the pairs that differ most; "
                f"these are {names_of_pairs or 'none'}"
            )

        if column is None:
            pairs = pairs_view(msgspec.to_builtins(self.associations))
            if pairs is None:
                raise InputError(
                    "there is one column and no pair of columns; name the column"
                )
            return Picture(pairs.svg)

        histograms = {histogram.name: histogram for histogram in self.columns}
        if column not in histograms:
            names = ", ".join(histograms)
            raise InputError(f"column={column!r} was not compared; there are {names}")
        chart = column_chart(msgspec.to_builtins(histograms[column]))
        return Picture(chart.svg)

    def __str__(self) -> str:
        scores = self.to_dict()
        table = score_table(scores["parts"])
        return "\n".join([scored(scores), *table.lines(), *score_lines(scores)])

    def __repr__(self) -> str:
        rows = ", ".join(
            f"{count} {name}" for name, count in self.settings.rows.items()
        )
        return f"Scores({len(self.parts)} scores of {rows} rows)"

    def _repr_html_(self) -> str:
        table = score_table(self.to_dict()["parts"])
        return html_table(repr(self), table.names, table.cells)
