"""One call for every measure of quality, each beside its ceiling and its floor.

Everything here is computed from real rows and nobody pays for it: only the owner may see it.

Each measure compares two tables of one source three times: real and synthetic rows (the value),
real rows and real rows that the synthesizer did not see (the ceiling), and the real rows with
themselves after each column was shuffled on its own (the floor). Intervals come from a jackknife
over ten groups of rows, or of persons where these are the unit (Efron and Tibshirani, *An
Introduction to the Bootstrap*, 1993, chapter 11) where a measure is quick, and from three folds
where models are fitted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from siloweave.errors import DataError, InputError, SiloweaveError, whole
from siloweave.evaluate import similarity
from siloweave.evaluate.discriminator import Discriminator, discriminate
from siloweave.evaluate.predictive import (
    CLASSES,
    FOLDS,
    LIGHTGBM,
    LONG,
    SHORT,
    XGBOOST,
    Trees,
    Utilities,
    svm_misclassification,
    utilities,
)
from siloweave.evaluate.scores import (
    Associations,
    Better,
    ColumnHistogram,
    NotMeasured,
    Score,
    Scores,
    ScoreSettings,
)
from siloweave.evaluate.shares import BINS, LEVELS, column_shares, numbers, require_tables
from siloweave.evaluate.support import Support, support
from siloweave.evaluate.workload import DensitySource, negative_log_likelihood
from siloweave.progress import Progress, duration, shows_progress
from siloweave.tables.aligned import Aligned, AlignedColumn, align
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.bins import growing_starts
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.encodings import LARGEST
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.persons import (
    ROW,
    owners_in,
    refuse_shared,
    relabelled,
    rows_of_units,
    without_ids,
)
from siloweave.tables.read import read
from siloweave.tables.schema import Schema

Pair = tuple[str, str]
Compute = Callable[[str, str], float]
"""A measure, from the names of the real table and of the other one."""
OfTables = Callable[[Aligned, str, str], float]
Band = tuple[float, float] | None
"""An interval; None where nothing estimates one."""
Interval = Callable[[float], Band]
Judge = Callable[[str, str], Discriminator]

SILOFUSE = "SiloFuse, ICDE 2024"
DP_TLDM = "DP-TLDM, 2024"
FED_TGAN = "Fed-TGAN, 2021"
VERTIMRF = "VertiMRF, 2024"
FLAIM = "FLAIM, KDD 2024"
SDMETRICS = "SDMetrics 0.32, 2026"
BERGSMA = "Bergsma 2013"
TABPC = "TabPC, 2026"
TABSTRUCT = "TabStruct, ICLR 2026"
ALAA = "Alaa et al., ICML 2022; TabSyn, ICLR 2024"

FAMILIES = (
    *("resemblance", "discriminability", "utility", "distances", "marginals"),
    *("quoted percentages", "likelihood"),
)
OF_100 = "of 100"
MOST = {OF_100: 100.0, "%": 100.0, "0 to 1": 1.0, "0 to 2": 2.0}
"""The largest possible value by unit; of other units, values have no upper end."""
LEAST_ROWS = 30
_WORTH_SAYING_S = 10.0  # seconds after which one wonders whether anything happens
CELLS = 30
"""Cells of a column's histogram, at most."""
GROUPS = 10
T_9, T_2 = 2.262157, 4.302653
"""The 97.5% points of Student's t with one degree less than there are groups, or folds."""
JACKKNIFE = f"jackknife over {GROUPS} groups of rows"
OVER_FOLDS = f"t interval over {FOLDS} folds"
RANGE = f"range over {FOLDS} folds"
CAPS = {
    "bins": BINS,
    "levels of a category in a marginal": LEVELS,
    "marginals of one size": 300,
    "workload queries": 64,
    "classes of a target": CLASSES,
    "trees per class to predict a column": SHORT.count,
    "trees to distinguish rows": LONG.count,
    "trees of XGB-C2ST": XGBOOST.count,
    "trees of LightGBM-C2ST": LIGHTGBM.count,
    "folds": FOLDS,
    "rows of a support vector machine": 1_000,
    "jackknife groups": GROUPS,
}


@shows_progress
def score(
    real: Any,
    synthetic: Any,
    *,
    holdout: Any = None,
    target: str | None = None,
    schema: Schema | None = None,
    unit: str = ROW,
    model: DensitySource | None = None,
    encoder: Encoder | None = None,
    seed: int = 0,
    max_rows: int = 6_000,
    detector_rows: int = 50_000,
    thorough: bool = False,
    progress: Any = None,
) -> Scores:
    """Measure how good a synthetic table is, with every measure of the field.

    Each score stands beside two others: its ceiling, real rows that the synthesizer did not see
    against the real rows, and its floor, the real columns each shuffled on its own. A synthetic
    table is as good as real where it reaches the ceiling, and no better than a table without any
    relation between columns where it stays at the floor. Measures of single columns do not see
    relations, so their floor is near the best.

    Args:
        real: The rows that the synthesizer learnt from: a `Table`, frame or path.
        synthetic: The synthetic rows, with the same columns.
        holdout: Real rows of the same source that the synthesizer did not see. Without them the
            ceiling compares two halves of the real rows.
        target: A column whose prediction is scored on its own too.
        schema: Kinds of the columns; by default as the real table shows.
        unit: ``row``, or the id column of the real tables that says whose row each is; the
            synthetic table may lack it. Then persons are held out and not rows: nobody may be in
            both real tables, and halves, folds and the groups of a jackknife keep all rows of a
            person together. A row without an id is a person of its own.
        model: The model behind the synthetic rows, for the likelihood of the holdout.
        encoder: How the model codes rows.
        seed: Which rows, folds and trees; the same seed gives the same scores.
        max_rows: Rows of either table in a boosting fit, at most; at least 30.
        detector_rows: Rows of either table that XGB-C2ST and LightGBM-C2ST see, at most; at least
            30. A detector that sees fewer rows finds less, so a figure of fewer rows is higher.
        thorough: Also a second detector (LightGBM-C2ST), alpha-precision and beta-recall.
        progress: As of `Synthesizer.fit`. Where all of it takes 10 s or more, each stage says about
            how long: about 38 s for 49,000 rows of 15 columns, and 50 s if `thorough`.

    Returns:
        The scores, what could not be measured and why, and what plots need. Intervals say how far
        a value moves with other rows of the same tables, or between folds.

    Raises:
        SchemaError: The tables have different columns or types.
        DataError: A table has no rows, a column has no value, there is no such target or id
            column, or a person is in both real tables.
        InputError: `max_rows` or `detector_rows` is too small, or a model comes without its
            encoder.

    Source:
        SiloFuse, ICDE 2024; DP-TLDM, 2024; Fed-TGAN, 2021; VertiMRF, 2024; FLAIM, KDD 2024;
        TabPC, 2026; TabStruct, ICLR 2026; SDMetrics 0.32, 2026. Each score names its own.

    Example:
        >>> import numpy as np
        >>> from siloweave.tables import Table
        >>> x = np.linspace(0.1, 1, 60)
        >>> table = Table.from_columns({"x": (x, None), "y": (x**2, None), "z": (-x, None)})
        >>> scores = score(table, table)
        >>> round(scores["column similarity"].value, 6)
        100.0
    """
    _check(max_rows, detector_rows, model, encoder)
    tables = {"real": real, "synthetic": synthetic}
    if holdout is not None:
        tables["holdout"] = holdout
    progress("reading", 0.0)
    aligned = _aligned(tables, schema, unit)
    _check_sizes(aligned)
    _check_target(aligned, target)
    seconds = expected_seconds(aligned, max_rows, detector_rows, thorough=thorough)
    progress = with_forecast(progress, seconds)
    key = fold_in(seed, "score")
    sides = make_sides(aligned, fold_in(key, "sides"))
    sheet = Sheet(sides)
    progress("distinguishing rows", 0.05)
    distinguishing = _add_discriminability(sheet, fold_in(key, "discriminator"), max_rows)
    progress("distinguishing all rows", 0.15)
    _add_detectors(sheet, fold_in(key, "detectors"), max_rows, detector_rows, thorough=thorough)
    if thorough:
        progress("looking for neighbours", 0.35)
        _add_support(sheet, fold_in(key, "support"), max_rows)
    progress("comparing columns", 0.4)
    _add_measures(sheet, key)
    progress("predicting columns", 0.5)
    _add_utility(sheet, target, fold_in(key, "utility"), max_rows)
    progress("support vector machines", 0.9)
    _add_misclassification(sheet, target, fold_in(key, "svm"))
    progress("likelihood", 0.97)
    _add_likelihood(sheet, real, holdout, model, encoder)
    settings = ScoreSettings(
        rows={name: aligned.num_rows[name] for name in tables},
        seed=seed,
        max_rows=max_rows,
        ceiling=sides.ceiling_text,
        floor="the real rows against themselves with every column shuffled on its own; measures of "
        "single columns see nothing wrong with it",
        target=target,
        left_out=aligned.left_out,
        caps={**CAPS, "rows of XGB-C2ST": detector_rows},
        unit=unit,
    )
    ours, theirs = (
        tuple(map(tuple, similarity.associations(sides.tables, table).tolist()))
        for table in sides.value
    )
    found = Scores(
        parts=tuple(sorted(sheet.parts, key=lambda part: FAMILIES.index(part.family))),
        not_measured=tuple(sheet.gaps),
        settings=settings,
        columns=column_histograms(sides.tables, *sides.value),
        associations=Associations(sides.tables.names, ours, theirs),
        distinguishing=distinguishing,
    )
    progress("done", 1.0)
    return found


def _aligned(tables: dict[str, Any], schema: Schema | None, unit: str) -> Aligned:
    """Put tables side by side, with whose each real row is where the unit is a person."""
    rows = {name: read(table) for name, table in tables.items()}
    real = {name: table for name, table in rows.items() if name != "synthetic"}
    owners = owners_in(real, unit, schema)  # refuses a unit that is no id column
    if unit == ROW:
        return align(rows, schema)
    if "holdout" in owners:
        refuse_shared(owners, "real", "holdout", unit)
    found = align({name: without_ids(table, unit) for name, table in rows.items()}, schema)
    return replace(found, owners=owners)


def expected_seconds(
    tables: Aligned, max_rows: int, detector_rows: int, *, thorough: bool
) -> float:
    """Return about how many seconds of one core `score` takes, within a factor of two or so.

    Trees are most of it: one for each class of a column that is predicted, over all columns. The
    coefficients are of one core of 2024, measured with 15 to 40 columns and 1,000 to 49,000 rows.
    """
    rows, columns = max(tables.num_rows.values()), len(tables.columns)
    numeric = len(tables.numeric)
    trees = numeric
    for column in tables.columns:
        if not column.numeric:
            trees += 1 if len(column.labels) <= 2 else min(len(column.labels), CLASSES + 1)
    pairs, numeric_pairs = (count * (count - 1) / 2 for count in (columns, numeric))
    fits = 1.2e-6 * min(rows, max_rows) * trees * (columns + 15)

    # Value and ceiling see as many rows as there are, the floor fewer.
    few = min(rows, max_rows)
    cells = columns * (2 * min(rows, detector_rows) + min(few, detector_rows))
    fits += 1.5 + 3e-6 * cells
    if thorough:
        fits += 2.5 + 4.5e-6 * cells + 3 * 3e-9 * columns * few**2
    return 4.0 + fits + 6.6e-6 * rows * numeric_pairs + 1.5e-6 * rows * (pairs - numeric_pairs)


def with_forecast(progress: Progress, seconds: float) -> Progress:
    """Let every stage say how long all of it takes, where a user would wonder.

    Example:
        >>> with_forecast(lambda text, done: print(text), 62.0)("comparing columns", 0.2)
        comparing columns (about 1 min 2 s of one core in all)
    """
    if seconds < _WORTH_SAYING_S:
        return progress

    def told(text: str, done: float) -> None:
        progress(f"{text} (about {duration(round(seconds))} of one core in all)", done)

    return told


def _check(
    max_rows: int, detector_rows: int, model: DensitySource | None, encoder: Encoder | None
) -> None:
    whole("max_rows", max_rows, LEAST_ROWS)  # with fewer the trees learn nothing
    whole("detector_rows", detector_rows, LEAST_ROWS)
    if (model is None) != (encoder is None):
        lacking = "encoder" if encoder is None else "model"
        raise InputError(f"the likelihood takes a model and its encoder; {lacking} is missing")


def _check_sizes(tables: Aligned) -> None:
    for column in tables.numeric:
        for which, values in column.values.items():
            if (np.abs(values) > LARGEST).any():
                raise DataError(
                    f"{which}: column {column.name!r} holds numbers beyond {LARGEST:g} in size, "
                    "and float64 holds no sums of squares of such numbers; give the column in a "
                    "larger unit, or as its logarithm"
                )


def _check_target(tables: Aligned, target: str | None) -> None:
    if target in tables.left_out:
        raise InputError(
            f"target={target!r} holds ids, which nothing predicts; choose from "
            f"{', '.join(tables.names)}, or declare its kind in a schema"
        )
    if target is not None and target not in tables.names:
        raise InputError(f"target={target!r} is no column; choose from {', '.join(tables.names)}")


# The three comparisons behind each score


@dataclass(frozen=True, eq=False)
class Sides:
    """All tables, those made of others too, and names of the two behind each comparison.

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

    def compare(self, compute: Compute) -> tuple[float, float | None, float | None, str]:
        """Value, ceiling and floor, and why one of those is missing; InputError without a value."""
        value = compute(*self.value)
        others: list[float | None] = []
        notes = []
        for name, pair in (("ceiling", self.ceiling), ("floor", self.floor)):
            found = None
            try:
                found = None if pair is None else compute(*pair)
            except InputError as error:
                notes.append(f"no {name}: {error}")
            others.append(found if found is None or np.isfinite(found) else None)
        return value, others[0], others[1], "; ".join(notes)


def make_sides(tables: Aligned, key: Key) -> Sides:
    """Make the tables that ceilings and floors need.

    Of tables named ``real``, ``synthetic`` and perhaps ``holdout``; without a holdout the ceiling
    compares one half of the real rows to the other. The key halves rows and shuffles columns.
    """
    count = tables.num_rows["real"]
    sides = Sides(
        tables=_with_floor(tables, fold_in(key, "floor")),
        value=("real", "synthetic"),
        ceiling=None,
        floor=("real", "floor"),
        ceiling_text="none: one real row has no other half",
    )
    if "holdout" in tables.num_rows:
        text = f"the {tables.num_rows['holdout']} holdout rows against the real ones"
        if "holdout" in tables.owners:
            people = len(np.unique(tables.owners["holdout"]))
            text = f"the {tables.num_rows['holdout']} rows of {people} persons held out against "
            text += "the real ones"
        return replace(sides, ceiling=("real", "holdout"), ceiling_text=text)
    whose, _ = relabelled(tables.owners_of("real"))
    units = int(whose.max()) + 1
    if units < 2:
        if count > 1:
            sides = replace(sides, ceiling_text="none: one person has no other half")
        return sides
    order = generator(fold_in(key, "halves")).permutation(units)
    pair = ("half", "other half")
    parts = order[: (units + 1) // 2], order[(units + 1) // 2 :]
    halves = [rows_of_units(whose, part) for part in parts]
    for name, rows in zip(pair, halves, strict=True):
        sides = replace(sides, tables=sides.tables.with_rows(name, "real", rows))
    if any(column.missing(half).all() for column in sides.tables.columns for half in pair):
        text = "none: a column has no value in one half of the real rows; give a holdout"
        return replace(sides, ceiling_text=text)
    halved = "rows" if units == count else "persons"
    text = (
        f"one random half of the real {halved} against the other ({len(halves[1])} rows); "
        "no holdout was given, and with so few rows it is noisier than the value"
    )
    return replace(sides, ceiling=pair, ceiling_text=text)


def _with_floor(tables: Aligned, key: Key) -> Aligned:
    """Add the real table with each column shuffled on its own."""
    columns = []
    for column in tables.columns:
        mixed = generator(fold_in(key, column.name)).permutation(column.values["real"])
        columns.append(replace(column, values={**column.values, "floor": mixed}))
    counts = {**tables.num_rows, "floor": tables.num_rows["real"]}
    return Aligned(tuple(columns), counts, tables.left_out, tables.owners)


def _without_tenths(sides: Sides, key: Key) -> list[Aligned]:
    """The real and the synthetic table ten times, each time without another tenth of the units.

    Empty where a table has fewer than twenty rows, or a column lost its last value.
    """
    tables = sides.tables
    owners = {name: relabelled(tables.owners_of(name))[0] for name in sides.value}
    units = {name: int(whose.max()) + 1 for name, whose in owners.items()}
    if min(units.values()) < 2 * GROUPS:
        return []
    groups = {
        name: (generator(fold_in(key, name)).permutation(units[name]) % GROUPS)[owners[name]]
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


def jackknife(value: float, without: Sequence[float], most: float) -> Band:
    """95% interval from the values without each of ten groups of rows; None without ten values.

    It is cut to what is possible, from 0 to `most`.
    """
    if len(without) != GROUPS:
        return None
    return _within(value, T_9 * float(np.sqrt((GROUPS - 1) * np.var(without))), most)


def over_folds(value: float, folds: Sequence[float], most: float) -> Band:
    """95% interval from the values of three folds, each with a model of its own.

    Example:
        >>> low, high = over_folds(0.5, (0.49, 0.5, 0.51), 1.0)
        >>> round(low, 4), round(high, 4)
        (0.4752, 0.5248)
    """
    return _within(value, T_2 * float(np.std(folds, ddof=1)) / float(np.sqrt(len(folds))), most)


def _within(value: float, half: float, most: float) -> tuple[float, float]:
    """An interval of half a width either side, cut to what is possible."""
    return max(0.0, value - half), min(most, value + half)


class Heading(NamedTuple):
    """What a score is called, which way is good, what its numbers count and who defined it."""

    name: str
    family: str
    better: Better
    unit: str
    source: str

    @property
    def most(self) -> float:
        """The largest possible value; the smallest is 0."""
        return MOST.get(self.unit, float("inf"))


@dataclass
class Sheet:
    """Scores, and what could not be measured, in the order in which they come."""

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
        """Compute and append one measure, or the reason why it does not apply; say which.

        A note or interval that takes computing is computed where there is a value.
        """
        try:
            value, ceiling, floor, gaps = self.sides.compare(compute)
        except InputError as error:
            self.gaps.append(NotMeasured(heading.name, str(error)))
            return False
        if not np.isfinite(value):
            reason = f"it came out as {value}; are there numbers near the largest that float64 has?"
            self.gaps.append(NotMeasured(heading.name, reason))
            return False
        band = interval(value)
        remarks = (note if isinstance(note, str) else note(), gaps)
        text = "; ".join(remark for remark in remarks if remark)
        self.append(heading, (value, ceiling, floor), text, band, interval_by)
        return True

    def append(
        self,
        heading: Heading,
        numbers: tuple[float, float | None, float | None],
        note: str,
        band: Band = None,
        interval_by: str = JACKKNIFE,
    ) -> None:
        """Append a score of a value, a ceiling and a floor."""
        name, family, better, unit, source = heading
        by = interval_by if band else ""
        self.parts.append(Score(name, family, *numbers, better, unit, source, note, band, by))


# Measures that fit no model, and the two papers' means over some of them


@dataclass(frozen=True)
class Measure:
    """One measure of aligned tables, from the tables and the names of the real and the other one.

    A measure that is not `quick` is not computed again without each tenth of the rows.
    """

    heading: Heading
    compute: OfTables
    note: Callable[[Aligned, str, str], str] = lambda tables, real, synthetic: ""
    quick: bool = True


def _measures(key: Key) -> list[Measure]:
    """All of them, in the order in which they are shown; the key draws marginals."""
    found = [
        _resemblance("column similarity", similarity.column_similarity),
        _resemblance("correlation similarity", similarity.correlation_similarity),
        _resemblance("statistical similarity", similarity.statistical_similarity, DP_TLDM),
        _resemblance("Jensen-Shannon similarity", similarity.jensen_shannon_similarity),
        replace(
            _resemblance("Kolmogorov-Smirnov similarity", similarity.kolmogorov_smirnov_similarity),
            note=lambda t, a, b: (
                "over numeric columns only; categories have no order" if t.categorical else ""
            ),
        ),
        Measure(
            Heading("average JSD", "distances", "lower", "0 to 1", FED_TGAN),
            similarity.average_jsd,
            lambda t, a, b: "over categorical columns",
        ),
        Measure(
            Heading("average Wasserstein distance", "distances", "lower", "real range", FED_TGAN),
            lambda t, a, b: similarity.average_wasserstein(t, a, b).mean,
            _unscaled,
        ),
    ]
    for ways in (3, 4, 5):
        heading = Heading(f"{ways}-way TVD", "marginals", "lower", "0 to 1", VERTIMRF)
        compute = partial(similarity.marginal_tvd, ways=ways, key=key)
        found.append(Measure(heading, compute, quick=False))
    for reading in ("closure", "queries"):
        heading = Heading(f"workload error ({reading})", "marginals", "lower", "0 to 2", FLAIM)
        found.append(Measure(heading, partial(_workload, reading, key), quick=False))
    for which in ("largest", "mean"):
        heading = Heading(f"{which} invented link", "marginals", "lower", "0 to 1", BERGSMA)
        found.append(Measure(heading, partial(_invented, which), _invented_pair, quick=False))
    heading = Heading("mutual-information error", "marginals", "lower", "0 to 1", TABPC)
    weighted = "of pairs, weighted by what they share in both tables"
    found.append(
        Measure(heading, similarity.information_error, lambda t, a, b: weighted, quick=False)
    )
    heading = Heading("column shapes", "quoted percentages", "higher", "%", SDMETRICS)
    found.append(Measure(heading, similarity.column_shapes))
    strong = " that go together strongly in the real table"
    found.append(_trends("column pair trends", True, strong))
    found.append(_trends("column pair trends (all pairs)", False, ""))
    return found


def _resemblance(name: str, compute: OfTables, source: str = f"{SILOFUSE}; {DP_TLDM}") -> Measure:
    heading = Heading(name, "resemblance", "higher", OF_100, source)
    return Measure(heading, lambda t, a, b: 100 * compute(t, a, b))


def _workload(reading: str, key: Key, tables: Aligned, real: str, synthetic: str) -> float:
    found = similarity.marginal_error(tables, real, synthetic, key=key)
    return found.closure if reading == "closure" else found.queries


def _invented(which: str, tables: Aligned, real: str, synthetic: str) -> float:
    links = similarity.invented_links(tables, real, synthetic)
    return links.largest if which == "largest" else links.mean


def _invented_pair(tables: Aligned, real: str, synthetic: str) -> str:
    links = similarity.invented_links(tables, real, synthetic)
    first, second = links.columns
    return f"over {links.pairs} pairs that are independent in real rows; {first} and {second} most"


def _trends(name: str, strong: bool, which: str) -> Measure:
    trends = partial(similarity.column_pair_trends, strong=strong)
    return Measure(
        Heading(name, "quoted percentages", "higher", "%", SDMETRICS),
        lambda t, a, b: trends(t, a, b).percent,
        lambda t, a, b: f"over {trends(t, a, b).pairs} pairs of columns{which}",
    )


def _unscaled(tables: Aligned, real: str, synthetic: str) -> str:
    left_out = similarity.average_wasserstein(tables, real, synthetic).left_out
    return f"without columns of one real value: {', '.join(left_out)}" if left_out else ""


SHARED = (
    *("column similarity", "correlation similarity", "Jensen-Shannon similarity"),
    "Kolmogorov-Smirnov similarity",
)
MEANS = {
    "resemblance (SiloFuse)": (SILOFUSE, (*SHARED, "propensity")),
    "resemblance (DP-TLDM)": (DP_TLDM, (*SHARED, "statistical similarity")),
}


def _add_measures(sheet: Sheet, key: Key) -> None:
    """Add every measure that fits no model, then the means; propensity must be there before."""
    sides = sheet.sides
    tenths = _without_tenths(sides, fold_in(key, "jackknife"))
    replicates: dict[str, list[float]] = {}
    for measure in _measures(fold_in(key, "marginals")):
        heading, found = measure.heading, _replicates(measure, sides, tenths)
        if sheet.add(
            heading,
            partial(measure.compute, sides.tables),
            note=partial(measure.note, sides.tables, *sides.value),
            interval=partial(jackknife, without=found, most=heading.most),
        ):
            replicates[heading.name] = found
    for name, (source, parts) in MEANS.items():
        heading = Heading(name, "resemblance", "higher", OF_100, source)
        _add_mean(sheet, heading, parts, replicates)


def _replicates(measure: Measure, sides: Sides, tenths: list[Aligned]) -> list[float]:
    """The value without each tenth of the rows; empty where that is slow or not defined."""
    if not measure.quick:
        return []
    try:
        return [measure.compute(less, *sides.value) for less in tenths]
    except InputError:
        return []


def _add_mean(
    sheet: Sheet, heading: Heading, names: Sequence[str], replicates: dict[str, list[float]]
) -> None:
    """Add a mean of parts; one that lacks a part says so."""
    known = {part.name: part for part in sheet.parts}
    parts = [known[name] for name in names if name in known]
    lacking = [name for name in names if name not in known]
    note = f"the mean of {', '.join(part.name for part in parts)}"
    if lacking:
        note += f"; NOT the whole: {', '.join(lacking)} could not be measured"
    value = float(np.mean([part.value for part in parts]))
    ceiling, floor = (
        None if None in values else float(np.mean(values))
        for values in ([getattr(p, side) for p in parts] for side in ("ceiling", "floor"))
    )
    band = _mean_band(value, parts, replicates)
    sheet.append(heading, (value, ceiling, floor), note, band)


def _mean_band(value: float, parts: list[Score], replicates: dict[str, list[float]]) -> Band:
    """Interval of a mean: the quick parts together, and propensity, whose rows are others."""
    quick = [replicates[part.name] for part in parts if part.name in replicates]
    rest = [part for part in parts if part.name not in replicates]
    if not quick or not all(quick) or any(part.interval is None for part in rest):
        return None
    joint = jackknife(50.0, np.mean(quick, axis=0).tolist(), 100.0)
    halves = [0.0 if joint is None else (joint[1] - joint[0]) / 2 * len(quick)]
    halves += [max(abs(end - part.value) for end in part.interval or ()) for part in rest]
    return _within(value, float(np.hypot.reduce(halves)) / len(parts), 100.0)


# Scores of fitted models: discriminability, utility, misclassification, likelihood


def _add_discriminability(sheet: Sheet, key: Key, max_rows: int) -> tuple[tuple[str, float], ...]:
    """Add propensity, area under the curve and logistic detection; returns what gives rows away."""
    sides, family = sheet.sides, "discriminability"
    fit = partial(discriminate, sides.tables, key=key, max_rows=max_rows)

    @cache
    def trees(real: str, other: str) -> Discriminator:
        return fit(real, other, rank_columns=(real, other) == sides.value)

    @cache
    def logistic(real: str, other: str) -> Discriminator:
        return fit(real, other, linear=True)

    def folds(judge: Judge, of: Callable[[Discriminator], float], most: float) -> Interval:
        return lambda value: over_folds(value, [of(f) for f in judge(*sides.value).per_fold], most)

    added = sheet.add(
        Heading("propensity", family, "higher", OF_100, f"{SILOFUSE}; {DP_TLDM}"),
        lambda a, b: 100.0 * trees(a, b).propensity,
        note="50 where the trees are always sure, 100 where they never lean either way",
        interval=folds(trees, lambda fold: 100.0 * fold.propensity, 100.0),
        interval_by=OVER_FOLDS,
    )
    sheet.add(
        Heading("discriminator AUC", family, "lower", "0 to 1", "Lopez-Paz and Oquab, ICLR 2017"),
        lambda a, b: trees(a, b).auc,
        note="0.5 where rows cannot be distinguished; below 0.5 rows stand in both tables",
        interval=folds(trees, lambda fold: fold.auc, 1.0),
        interval_by=OVER_FOLDS,
    )
    sheet.add(
        Heading("logistic detection", family, "higher", OF_100, "SDMetrics"),
        lambda a, b: 100.0 * logistic(a, b).detection,
        note="100 where a logistic regression cannot distinguish rows; it sees no relation between "
        "columns",
        # Not cut at 100: a fold with an area below 1/2 is chance too.
        interval=folds(logistic, lambda fold: 200.0 * (1.0 - fold.auc), 100.0),
        interval_by=OVER_FOLDS,
    )
    return trees(*sides.value).distinguishing if added else ()


def _add_detectors(
    sheet: Sheet, key: Key, max_rows: int, detector_rows: int, *, thorough: bool
) -> None:
    """Add the detection scores of XGBoost's trees and, if `thorough`, of LightGBM's."""
    sides = sheet.sides

    def add(name: str, trees: Trees) -> None:
        @cache
        def judged(real: str, other: str) -> Discriminator:
            # What shuffled columns lack is found in few rows, and a floor need not be exact.
            most = max_rows if (real, other) == sides.floor else detector_rows
            return discriminate(
                sides.tables, real, other, key=fold_in(key, name), max_rows=most, trees=trees
            )

        def rows_of(pair: Pair) -> int:
            return min(detector_rows, *(sides.tables.num_rows[table] for table in pair))

        def note() -> str:
            text = f"{trees.count} rounds on {rows_of(sides.value)} rows of either table"
            if sides.ceiling and rows_of(sides.ceiling) != rows_of(sides.value):
                text += f", the ceiling on {rows_of(sides.ceiling)}"
            return f"{text}; with fewer rows a detector finds less"

        sheet.add(
            Heading(name, "discriminability", "higher", OF_100, f"{TABPC}; SDMetrics"),
            lambda a, b: 100.0 * judged(a, b).detection,
            note=note,
            interval=lambda value: over_folds(
                value,
                # Not cut at 100: a fold with an area below 1/2 is chance too.
                [200.0 * (1.0 - fold.auc) for fold in judged(*sides.value).per_fold],
                100.0,
            ),
            interval_by=OVER_FOLDS,
        )

    add("XGB-C2ST", XGBOOST)
    if thorough:
        add("LightGBM-C2ST", LIGHTGBM)


def _add_support(sheet: Sheet, key: Key, max_rows: int) -> None:
    """Add alpha-precision and beta-recall."""
    sides = sheet.sides

    @cache
    def measured(real: str, other: str) -> Support:
        return support(sides.tables, real, other, key=key, max_rows=max_rows)

    def rows() -> str:
        return f"{measured(*sides.value).rows} rows of either table, by numbers and indicators"

    sheet.add(
        Heading("alpha-precision", "distances", "higher", OF_100, ALAA),
        lambda a, b: 100.0 * measured(a, b).alpha_precision,
        note=rows,
    )
    sheet.add(
        Heading("beta-recall", "distances", "higher", OF_100, ALAA),
        lambda a, b: 100.0 * measured(a, b).beta_recall,
        note=lambda: f"{rows()}; real rows reach about 50, copies of the training rows 100",
    )


def _add_utility(sheet: Sheet, target: str | None, key: Key, max_rows: int) -> None:
    """Add the utility over all columns, and over the target alone."""
    sides = sheet.sides
    names = ["utility", "utility (mean over columns)", "utility of every column"]
    if target is not None:
        names += [f"utility of {target!r}", f"prediction of {target!r}"]
    others = [pair[1] for pair in (sides.value, sides.ceiling, sides.floor) if pair]
    try:
        found = utilities(sides.tables, sides.base, others, key=key, max_rows=max_rows)
    except InputError as error:
        sheet.gaps += [NotMeasured(name, str(error)) for name in names]
        return
    left_out = ", ".join(found.left_out)
    note = f"without columns of one real value: {left_out}" if left_out else ""
    _add_ratio(sheet, names[0], found, None, note)
    ours = found.trained_on[sides.value[1]]
    sheet.add(
        Heading(names[1], "utility", "higher", OF_100, "ours"),
        lambda a, b: 100.0 * _mean_utility(found, b),
        note=lambda: (
            "mean of macro-F1 and D2; trained on real rows it is "
            f"{100 * float(np.mean(list(found.real.values()))):.1f}"
        ),
        interval=lambda value: _range(value, 100.0 * np.mean(list(ours.values()), axis=0)),
        interval_by=RANGE,
    )
    sheet.add(
        Heading(names[2], "utility", "higher", "% of real", TABSTRUCT),
        lambda a, b: found.of_every_column(b)[0],
        note="mean ratio of balanced accuracies, or of root mean squared errors, of trees alone",
        interval=lambda value: _range(value, found.of_every_column(sides.value[1])[1]),
        interval_by=RANGE,
    )
    if target is None:
        return
    if target in found.left_out:
        reason = f"target {target!r}: {found.left_out[target]} in the rows used"
        sheet.gaps += [NotMeasured(name, reason) for name in names[3:]]
        return
    _add_ratio(sheet, names[3], found, (target,), "")
    unit = "D2" if sides.tables.column(target).numeric else "macro-F1"
    sheet.add(
        Heading(names[4], "utility", "higher", unit, DP_TLDM),
        lambda a, b: float(np.mean(found.trained_on[b][target])),
        note=f"trained on real rows it is {float(np.mean(found.real[target])):.4f}",
        interval=lambda value: _range(value, ours[target]),
        interval_by=RANGE,
    )


def _add_ratio(
    sheet: Sheet, name: str, found: Utilities, targets: tuple[str, ...] | None, note: str
) -> None:
    sheet.add(
        Heading(name, "utility", "higher", "% of real", f"{DP_TLDM}; {SILOFUSE}"),
        lambda a, b: found.ratio(b, targets)[0],
        note=note,
        interval=lambda value: _range(value, found.ratio(sheet.sides.value[1], targets)[1]),
        interval_by=RANGE,
    )


def _mean_utility(found: Utilities, table: str) -> float:
    if not found.real:
        raise InputError("every column has one real value; there is no target to predict")
    return float(np.mean(list(found.trained_on[table].values())))


def _range(value: float, folds: Sequence[float] | Floats) -> Band:
    ends = [value, *map(float, folds)]
    return min(ends), max(ends)


def _add_misclassification(sheet: Sheet, target: str | None, key: Key) -> None:
    """Add the error rate of support vector machines, of the target or over all categories."""
    sides, which, targets = sheet.sides, "mean over categorical columns", None
    if target is not None and not sides.tables.column(target).numeric:
        which, targets = f"of {target!r}", (target,)
    sheet.add(
        Heading("SVM misclassification", "utility", "lower", "0 to 1", VERTIMRF),
        lambda a, b: svm_misclassification(sides.tables, sides.base, b, key=key, targets=targets),
        note=f"{which}; at most 1,000 rows to train on and to test on",
    )


def _add_likelihood(
    sheet: Sheet, real: Any, holdout: Any, model: DensitySource | None, encoder: Encoder | None
) -> None:
    """Add the mean negative log-likelihood of the holdout, or why it is not there."""
    heading = Heading("negative log-likelihood", "likelihood", "lower", "nats per row", FLAIM)
    if model is None or encoder is None:
        reason = "it takes the model behind the synthetic rows; give model= and encoder="
        sheet.gaps.append(NotMeasured(heading.name, reason))
        return
    try:
        seen = encoder.encode(read(real))
        rows = seen if holdout is None else encoder.encode(read(holdout))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = negative_log_likelihood(model, rows)
    except SiloweaveError as error:
        sheet.gaps.append(NotMeasured(heading.name, str(error)))
        return
    if not np.isfinite(value):
        reason = "; ".join(str(warning.message) for warning in caught)
        sheet.gaps.append(NotMeasured(heading.name, reason))
        return
    note = "of the holdout rows"
    if holdout is None:
        note = (
            "of the rows the model learnt from, as there is no holdout: memorised rows score well"
        )
    note += "; no ceiling, as nobody knows the true distribution; floor: independent columns"
    sheet.append(heading, (value, None, _independent_likelihood(seen, rows)), note)


def _independent_likelihood(seen: Codes, rows: Codes) -> float:
    """Mean negative log-likelihood under independent columns, in nats per row.

    The shares of the rows seen are the model, with half a row added to every code.
    """
    total = 0.0
    for size, ours, theirs in zip(seen.domain.sizes, seen.columns, rows.columns, strict=True):
        shares = (np.bincount(ours, minlength=size) + 0.5) / (len(ours) + 0.5 * size)
        total -= float(np.log(shares[theirs]).mean())
    return total


# What plots need: small, and the same cells for both tables


def column_histograms(tables: Aligned, real: str, synthetic: str) -> tuple[ColumnHistogram, ...]:
    """Each column's spread over at most 30 cells in both tables.

    Numbers: cells of equal width, one per value of a short range of whole numbers, else between the
    real 0.5% and 99.5% quantiles; what lies outside is in the outer cells. Cells of real numbers
    that are skewed grow by a factor (`growing_starts`). Categories: the most
    frequent real ones; the last cell holds all others.
    """
    require_tables(tables, real, synthetic)
    return tuple(_column_histogram(column, (real, synthetic)) for column in tables.columns)


def _column_histogram(column: AlignedColumn, names: Pair) -> ColumnHistogram:
    missing = [float(column.missing(table).mean()) for table in names]
    edges, cells = np.empty(0), tuple[str, ...]()
    if column.numeric:
        edges = _edges(column, names[0])
        counts = [_counts(numbers(column, table), edges) for table in names]
    else:
        cells, counts = _frequencies(column, names)
    ours, theirs = (
        tuple((found / len(column.values[table])).tolist())
        for found, table in zip(counts, names, strict=True)
    )
    return ColumnHistogram(
        name=column.name,
        kind=column.kind,
        cells=cells,
        edges=tuple(edges.tolist()),
        real=ours,
        synthetic=theirs,
        missing=(missing[0], missing[1]),
        distance=similarity.jensen_shannon(*column_shares(column, *names)),
        datetimes=column.datetimes,
    )


def _edges(column: AlignedColumn, real: str) -> Floats:
    values = numbers(column, real)
    low, high = float(values.min()), float(values.max())
    if column.whole and high - low < CELLS:
        return np.arange(low - 0.5, high + 1.0)
    if starts := growing_starts(values, low, high, CELLS - 1, whole=column.whole):
        return np.array([low, *starts, high])
    inner = np.quantile(values, (0.005, 0.995))
    if inner[0] < inner[1]:
        low, high = float(inner[0]), float(inner[1])
    edges: Floats = np.histogram_bin_edges(np.array([low, high]), bins=CELLS)
    return edges


def _counts(values: Floats, edges: Floats) -> Ints:
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(places, minlength=len(edges) - 1)


def _frequencies(column: AlignedColumn, names: Pair) -> tuple[tuple[str, ...], list[Ints]]:
    counts = [np.bincount(column.values[t], minlength=column.levels)[:-1] for t in names]
    order = np.argsort(-counts[0], kind="stable")
    few = len(order) <= CELLS
    alone, rest = (order, order[:0]) if few else (order[: CELLS - 1], order[CELLS - 1 :])
    cells = tuple(str(column.labels[i]) for i in alone)
    if few:
        return cells, [c[order] for c in counts]
    return (*cells, f"{len(rest)} others"), [np.append(c[alone], c[rest].sum()) for c in counts]
