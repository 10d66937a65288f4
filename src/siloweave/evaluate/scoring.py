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
    PairHistogram,
    Score,
    Scores,
    ScoreSettings,
)
from siloweave.evaluate.shares import (
    BINS,
    LEVELS,
    column_shares,
    numbers,
    require_tables,
)
from siloweave.evaluate.support import Support, support
from siloweave.evaluate.workload import DensitySource, negative_log_likelihood
from siloweave.progress import Progress, duration, shows_progress
from siloweave.report.words import spans
from siloweave.tables.aligned import Aligned, AlignedColumn, align
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.bins import growing_starts, zero_apart
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
    "resemblance",
    "discriminability",
    "utility",
    "distances",
    "marginals",
    "quoted percentages",
    "likelihood",
)
"""Families of scores, in the order in which they are shown."""
OF_100 = "of 100"
MOST = {OF_100: 100.0, "%": 100.0, "0 to 1": 1.0, "0 to 2": 2.0}
"""The largest possible value by unit; of other units, values have no upper end."""
LEAST_ROWS = 30
_WORTH_SAYING_S = 10.0  # seconds after which one wonders whether anything happens
CELLS = 30
"""Cells of a column's histogram, at most."""
PAIR_CELLS = 10
"""Cells of each column in a picture of two, at most, without those of missing values."""
PAIRS = 3
"""Pairs of columns that are drawn: those whose associations differ most."""
GROUPS = 10
T_9 = 2.262157
"""The 97.5% point of Student's t with nine degrees of freedom, one less than there are groups."""
T_2 = 4.302653
"""The same with two degrees of freedom, one less than there are folds."""
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
    distinguishing = _add_discriminability(
        sheet, fold_in(key, "discriminator"), max_rows
    )
    progress("distinguishing all rows", 0.15)
    _add_detectors(
        sheet, fold_in(key, "detectors"), max_rows, detector_rows, thorough=thorough
    )
    if thorough:
        progress("looking for neighbours", 0.35)
        _add_support(sheet, fold_in(key, "support"), max_rows)

    # After discriminability: the means over several measures take its propensity score.
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
        floor="the real rows against themselves with every column shuffled on its own, which "
        "measures of single columns do not notice",
        target=target,
        left_out=aligned.left_out,
        caps={**CAPS, "rows of XGB-C2ST": detector_rows},
        unit=unit,
    )
    real_table, synthetic_table = sides.value
    associations = Associations(
        names=sides.tables.names,
        real=_association_rows(sides.tables, real_table),
        synthetic=_association_rows(sides.tables, synthetic_table),
    )
    # Measures come in the order of their computation; a reader looks for families.
    parts = sorted(sheet.parts, key=lambda part: FAMILIES.index(part.family))
    scores = Scores(
        parts=tuple(parts),
        not_measured=tuple(sheet.gaps),
        settings=settings,
        columns=column_histograms(sides.tables, real_table, synthetic_table),
        associations=associations,
        distinguishing=distinguishing,
        pairs=worst_pairs(sides.tables, associations, real_table, synthetic_table),
    )
    progress("done", 1.0)
    return scores


def _association_rows(tables: Aligned, table: str) -> tuple[tuple[float, ...], ...]:
    """Return the associations between a table's columns as tuples, which become JSON."""
    matrix = similarity.associations(tables, table)
    return tuple(tuple(row) for row in matrix.tolist())


def _aligned(tables: dict[str, Any], schema: Schema | None, unit: str) -> Aligned:
    """Put tables side by side, with whose each real row is where the unit is a person."""
    rows = {name: read(table) for name, table in tables.items()}

    # Read the owners before anything else: this refuses a unit that is no id column.
    real_rows = {name: table for name, table in rows.items() if name != "synthetic"}
    owners = owners_in(real_rows, unit, schema)
    if unit == ROW:
        return align(rows, schema)
    if "holdout" in owners:
        refuse_shared(owners, "real", "holdout", unit)

    compared = {name: without_ids(table, unit) for name, table in rows.items()}
    aligned = align(compared, schema)
    return replace(aligned, owners=owners)


def expected_seconds(
    tables: Aligned, max_rows: int, detector_rows: int, *, thorough: bool
) -> float:
    """Return about how many seconds of one core `score` takes, within a factor of two or so.

    Trees are most of it: one for each class of a column that is predicted, over all columns. The
    coefficients are of one core of 2024, measured with 15 to 40 columns and 1,000 to 49,000 rows.
    """
    rows = max(tables.num_rows.values())
    columns = len(tables.columns)
    numeric = len(tables.numeric)

    # Utility: each column is predicted, by trees for each of its classes.
    trees = numeric
    for column in tables.categorical:
        classes = len(column.labels)
        # Two classes take the trees of one; of many, the frequent ones and one for all others.
        trees += 1 if classes <= 2 else min(classes, CLASSES + 1)
    fitted_rows = min(rows, max_rows)
    utility = 1.2e-6 * fitted_rows * trees * (columns + 15)

    # Detectors: value and ceiling see as many rows as there are, the floor fewer.
    detected_rows = 2 * min(rows, detector_rows) + min(fitted_rows, detector_rows)
    cells = columns * detected_rows
    detectors = 1.5 + 3e-6 * cells
    if thorough:
        # A second detector, and the distances between all pairs of rows, on each of three sides.
        detectors += 2.5 + 4.5e-6 * cells + 3 * 3e-9 * columns * fitted_rows**2

    # Associations: a pair of numeric columns takes longer than one with a category.
    pairs = columns * (columns - 1) / 2
    numeric_pairs = numeric * (numeric - 1) / 2
    associations = 6.6e-6 * rows * numeric_pairs + 1.5e-6 * rows * (
        pairs - numeric_pairs
    )
    return 4.0 + utility + detectors + associations


def with_forecast(progress: Progress, seconds: float) -> Progress:
    """Wrap a progress function so that every stage says how long all of the work takes.

    Short work is left as it is.

    Example:
        >>> with_forecast(lambda text, done: print(text), 62.0)("comparing columns", 0.2)
        comparing columns (about 1 min 2 s of one core in all)
    """
    if seconds < _WORTH_SAYING_S:
        return progress
    forecast = f"about {duration(round(seconds))} of one core in all"

    def progress_with_forecast(text: str, done: float) -> None:
        progress(f"{text} ({forecast})", done)

    return progress_with_forecast


def _check(
    max_rows: int,
    detector_rows: int,
    model: DensitySource | None,
    encoder: Encoder | None,
) -> None:
    """Refuse limits with which nothing would be learnt, and a model without its encoder."""
    whole("max_rows", max_rows, LEAST_ROWS)  # with fewer the trees learn nothing
    whole("detector_rows", detector_rows, LEAST_ROWS)
    if (model is None) != (encoder is None):
        missing_argument = "encoder" if encoder is None else "model"
        raise InputError(
            f"the likelihood takes a model and its encoder; {missing_argument} is missing"
        )


def _check_sizes(tables: Aligned) -> None:
    """Refuse numbers whose squares overflow; scores over them would be NaN without a reason."""
    for column in tables.numeric:
        for table, values in column.values.items():
            if (np.abs(values) > LARGEST).any():
                raise DataError(
                    f"{table}: column {column.name!r} holds numbers beyond {LARGEST:g} in size, "
                    "and float64 holds no sums of squares of such numbers; give the column in a "
                    "larger unit, or as its logarithm"
                )


def _check_target(tables: Aligned, target: str | None) -> None:
    """Refuse a target that is no column, or one that holds ids."""
    names = ", ".join(tables.names)
    if target in tables.left_out:
        raise InputError(
            f"target={target!r} holds ids, which nothing predicts; choose from "
            f"{names}, or declare its kind in a schema"
        )
    if target is not None and target not in tables.names:
        raise InputError(f"target={target!r} is no column; choose from {names}")


# The three comparisons behind each score


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
    text = f"the {rows} holdout rows against the real ones"
    if "holdout" in tables.owners:
        persons = len(np.unique(tables.owners["holdout"]))
        text = f"the {rows} rows of {persons} persons held out against the real ones"
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
        f"one random half of the real {halved} against the other ({len(second_half)} rows); "
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


def _without_tenths(sides: Sides, key: Key) -> list[Aligned]:
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


def jackknife(value: float, without: Sequence[float], most: float) -> Band:
    """Return a 95% interval from the values without each of ten groups of rows.

    It is cut to what is possible, from 0 to `most`, and None unless there are ten values.
    """
    if len(without) != GROUPS:
        return None
    # Chapter 11: the variance is (n - 1)/n times the sum of squared deviations.
    standard_error = float(np.sqrt((GROUPS - 1) * np.var(without)))
    return _within(value, T_9 * standard_error, most)


def over_folds(value: float, folds: Sequence[float], most: float) -> Band:
    """Return a 95% interval from the values in three folds, each of a model of its own.

    Example:
        >>> low, high = over_folds(0.5, (0.49, 0.5, 0.51), 1.0)
        >>> round(low, 4), round(high, 4)
        (0.4752, 0.5248)
    """
    deviation = float(np.std(folds, ddof=1))
    half_width = T_2 * deviation / float(np.sqrt(len(folds)))
    return _within(value, half_width, most)


def _within(value: float, half_width: float, most: float) -> tuple[float, float]:
    """Return the interval around a value, half a width to either side, cut to what is possible."""
    low = max(0.0, value - half_width)
    high = min(most, value + half_width)
    return low, high


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


# Measures that fit no model, and the two papers' means over some of them


@dataclass(frozen=True)
class Measure:
    """A measure of aligned tables, given these and the names of the real and the other table.

    A measure that is not `quick` is not computed again without each tenth of the rows.
    """

    heading: Heading
    compute: OfTables
    note: Callable[[Aligned, str, str], str] = lambda tables, real, synthetic: ""
    quick: bool = True


def _measures(key: Key) -> list[Measure]:
    """Return all measures in the order in which they are shown; the key draws marginals."""
    return [
        *_resemblance_measures(),
        *_distance_measures(),
        *_marginal_measures(key),
        *_quoted_percentages(),
    ]


def _resemblance_measures() -> list[Measure]:
    """Return the similarities that SiloFuse and DP-TLDM report."""
    kolmogorov_smirnov = _resemblance(
        "Kolmogorov-Smirnov similarity", similarity.kolmogorov_smirnov_similarity
    )
    return [
        _resemblance("column similarity", similarity.column_similarity),
        _resemblance("correlation similarity", similarity.correlation_similarity),
        _resemblance(
            "statistical similarity", similarity.statistical_similarity, DP_TLDM
        ),
        _resemblance("Jensen-Shannon similarity", similarity.jensen_shannon_similarity),
        replace(kolmogorov_smirnov, note=_numeric_only),
    ]


def _distance_measures() -> list[Measure]:
    """Return the mean distances of columns that Fed-TGAN reports."""
    return [
        Measure(
            Heading("average JSD", "distances", "lower", "0 to 1", FED_TGAN),
            similarity.average_jsd,
            note=lambda tables, real, synthetic: "over categorical columns",
        ),
        Measure(
            Heading(
                "average Wasserstein distance",
                "distances",
                "lower",
                "real range",
                FED_TGAN,
            ),
            _wasserstein,
            note=_unscaled,
        ),
    ]


def _marginal_measures(key: Key) -> list[Measure]:
    """Return the errors of marginals; the key draws those of VertiMRF and of FLAIM."""
    measures = []
    for ways in (3, 4, 5):
        heading = Heading(f"{ways}-way TVD", "marginals", "lower", "0 to 1", VERTIMRF)
        compute = partial(similarity.marginal_tvd, ways=ways, key=key)
        measures.append(Measure(heading, compute, quick=False))
    for reading in ("closure", "queries"):
        heading = Heading(
            f"workload error ({reading})", "marginals", "lower", "0 to 2", FLAIM
        )
        measures.append(Measure(heading, partial(_workload, reading, key), quick=False))
    for statistic in ("largest", "mean"):
        heading = Heading(
            f"{statistic} invented link", "marginals", "lower", "0 to 1", BERGSMA
        )
        compute = partial(_invented, statistic)
        measures.append(Measure(heading, compute, _invented_pair, quick=False))

    heading = Heading("mutual-information error", "marginals", "lower", "0 to 1", TABPC)
    information_error = Measure(
        heading,
        similarity.information_error,
        note=lambda tables, real, synthetic: (
            "of pairs, weighted by what they share in both tables"
        ),
        quick=False,
    )
    measures.append(information_error)
    return measures


def _quoted_percentages() -> list[Measure]:
    """Return the two percentages of SDMetrics, and the second one over all pairs of columns."""
    heading = Heading("column shapes", "quoted percentages", "higher", "%", SDMETRICS)
    strong_pairs = " that go together strongly in the real table"
    return [
        Measure(heading, similarity.column_shapes),
        _trends("column pair trends", strong=True, which=strong_pairs),
        _trends("column pair trends (all pairs)", strong=False, which=""),
    ]


def _resemblance(
    name: str, compute: OfTables, source: str = f"{SILOFUSE}; {DP_TLDM}"
) -> Measure:
    """Return the measure of a similarity from 0 to 1, shown from 0 to 100."""
    heading = Heading(name, "resemblance", "higher", OF_100, source)
    return Measure(
        heading, lambda tables, real, table: 100 * compute(tables, real, table)
    )


def _numeric_only(tables: Aligned, real: str, synthetic: str) -> str:
    """Note that a measure leaves categorical columns out, if there are any."""
    return (
        "over numeric columns only; categories have no order"
        if tables.categorical
        else ""
    )


def _wasserstein(tables: Aligned, real: str, synthetic: str) -> float:
    """Return the mean Wasserstein distance over the columns that have one."""
    return similarity.average_wasserstein(tables, real, synthetic).mean


def _workload(
    reading: str, key: Key, tables: Aligned, real: str, synthetic: str
) -> float:
    """Return FLAIM's workload error under one of its two readings."""
    error = similarity.marginal_error(tables, real, synthetic, key=key)
    return error.closure if reading == "closure" else error.queries


def _invented(statistic: str, tables: Aligned, real: str, synthetic: str) -> float:
    """Return the largest or the mean link between columns that are independent in real rows."""
    links = similarity.invented_links(tables, real, synthetic)
    return links.largest if statistic == "largest" else links.mean


def _invented_pair(tables: Aligned, real: str, synthetic: str) -> str:
    """Note the pair of columns with the largest invented link."""
    links = similarity.invented_links(tables, real, synthetic)
    first, second = links.columns
    return f"over {links.pairs} pairs that are independent in real rows; {first} and {second} most"


def _trends(name: str, *, strong: bool, which: str) -> Measure:
    """Return the measure of column pair trends, over strong pairs or over all."""
    compute = partial(similarity.column_pair_trends, strong=strong)
    return Measure(
        Heading(name, "quoted percentages", "higher", "%", SDMETRICS),
        lambda tables, real, table: compute(tables, real, table).percent,
        note=lambda tables, real, table: (
            f"over {compute(tables, real, table).pairs} pairs of columns{which}"
        ),
    )


def _unscaled(tables: Aligned, real: str, synthetic: str) -> str:
    """Note the numeric columns that were left out as they have no range to scale by, if any."""
    left_out = similarity.average_wasserstein(tables, real, synthetic).left_out
    if not left_out:
        return ""
    return f"without columns of one real value: {', '.join(left_out)}"


SHARED = (
    "column similarity",
    "correlation similarity",
    "Jensen-Shannon similarity",
    "Kolmogorov-Smirnov similarity",
)
"""What both papers' means have in common."""
MEANS = {
    "resemblance (SiloFuse)": (SILOFUSE, (*SHARED, "propensity")),
    "resemblance (DP-TLDM)": (DP_TLDM, (*SHARED, "statistical similarity")),
}


def _add_measures(sheet: Sheet, key: Key) -> None:
    """Add every measure that fits no model, then the means; propensity must be there before."""
    sides = sheet.sides
    reduced_tables = _without_tenths(sides, fold_in(key, "jackknife"))
    replicates: dict[str, list[float]] = {}
    for measure in _measures(fold_in(key, "marginals")):
        heading = measure.heading
        values = _replicates(measure, sides, reduced_tables)
        is_added = sheet.add(
            heading,
            partial(measure.compute, sides.tables),
            note=partial(measure.note, sides.tables, *sides.value),
            interval=partial(jackknife, without=values, most=heading.most),
        )
        if is_added:
            replicates[heading.name] = values

    for name, (source, parts) in MEANS.items():
        heading = Heading(name, "resemblance", "higher", OF_100, source)
        _add_mean(sheet, heading, parts, replicates)


def _replicates(
    measure: Measure, sides: Sides, reduced_tables: list[Aligned]
) -> list[float]:
    """Return a measure's values without each tenth of the rows; none if slow or undefined."""
    if not measure.quick:
        return []
    try:
        return [measure.compute(tables, *sides.value) for tables in reduced_tables]
    except InputError:
        return []


def _add_mean(
    sheet: Sheet,
    heading: Heading,
    names: Sequence[str],
    replicates: dict[str, list[float]],
) -> None:
    """Add the mean of some scores; if one is missing, say so instead."""
    part_by_name = {part.name: part for part in sheet.parts}
    parts = [part_by_name[name] for name in names if name in part_by_name]
    missing_names = [name for name in names if name not in part_by_name]

    note = f"the mean of {', '.join(part.name for part in parts)}"
    if missing_names:
        note += f"; NOT the whole: {', '.join(missing_names)} could not be measured"
    value = float(np.mean([part.value for part in parts]))
    ceiling = _mean_unless_missing([part.ceiling for part in parts])
    floor = _mean_unless_missing([part.floor for part in parts])
    band = _mean_band(value, parts, replicates)
    sheet.append(heading, Comparison(value, ceiling, floor, note), band)


def _mean_unless_missing(values: Sequence[float | None]) -> float | None:
    """Return the mean of some values, or None if one of them is missing."""
    present = [value for value in values if value is not None]
    if len(present) < len(values):
        return None
    return float(np.mean(present))


def _mean_band(
    value: float, parts: list[Score], replicates: dict[str, list[float]]
) -> Band:
    """Return the interval of a mean: of its quick parts together, and of propensity's own.

    Quick parts vary together, since their replicates leave out the same rows; propensity is
    measured on other rows, so its half-width is added as that of an independent value.
    """
    quick_values = [replicates[part.name] for part in parts if part.name in replicates]
    other_parts = [part for part in parts if part.name not in replicates]
    if not quick_values or not all(quick_values):
        return None
    if any(part.interval is None for part in other_parts):
        return None

    # Taken around 50, where an interval is not cut at 0 or 100; only its width is used.
    joint = jackknife(50.0, np.mean(quick_values, axis=0).tolist(), 100.0)
    joint_half_width = 0.0 if joint is None else (joint[1] - joint[0]) / 2
    half_widths = [joint_half_width * len(quick_values)]
    for part in other_parts:
        # The longer arm: one end may have been cut.
        half_widths.append(max(abs(end - part.value) for end in part.interval or ()))
    half_width = float(np.hypot.reduce(half_widths)) / len(parts)
    return _within(value, half_width, 100.0)


# Scores of fitted models: discriminability, utility, misclassification, likelihood


def _add_discriminability(
    sheet: Sheet, key: Key, max_rows: int
) -> tuple[tuple[str, float], ...]:
    """Add propensity, area under the curve and logistic detection.

    Returns the columns that give synthetic rows away, the clearest first.
    """
    sides = sheet.sides
    family = "discriminability"
    fit = partial(discriminate, sides.tables, key=key, max_rows=max_rows)

    # Several scores read the same fits, each of which is made once.
    @cache
    def trees(real: str, table: str) -> Discriminator:
        is_value = (real, table) == sides.value
        return fit(real, table, rank_columns=is_value)

    @cache
    def logistic(real: str, table: str) -> Discriminator:
        return fit(real, table, linear=True)

    is_added = sheet.add(
        Heading("propensity", family, "higher", OF_100, f"{SILOFUSE}; {DP_TLDM}"),
        lambda real, table: 100.0 * trees(real, table).propensity,
        note="50 where the trees are always sure, 100 where they never lean either way",
        interval=_interval(
            trees, sides.value, lambda fold: 100.0 * fold.propensity, 100.0
        ),
        interval_by=OVER_FOLDS,
    )
    sheet.add(
        Heading(
            "discriminator AUC",
            family,
            "lower",
            "0 to 1",
            "Lopez-Paz and Oquab, ICLR 2017",
        ),
        lambda real, table: trees(real, table).auc,
        note="0.5 where rows cannot be distinguished; below 0.5 rows stand in both tables",
        interval=_interval(trees, sides.value, lambda fold: fold.auc, 1.0),
        interval_by=OVER_FOLDS,
    )
    sheet.add(
        Heading("logistic detection", family, "higher", OF_100, "SDMetrics"),
        lambda real, table: 100.0 * logistic(real, table).detection,
        note="100 where a logistic regression cannot distinguish rows; it sees no relation between "
        "columns",
        interval=_interval(logistic, sides.value, _uncut_detection, 100.0),
        interval_by=OVER_FOLDS,
    )
    return trees(*sides.value).distinguishing if is_added else ()


def _interval(
    judge: Judge, pair: Pair, statistic: Callable[[Discriminator], float], most: float
) -> Interval:
    """Return a function that computes the interval of a statistic from the folds of a fit."""

    def over_folds_of_fit(value: float) -> Band:
        folds = judge(*pair).per_fold
        return over_folds(value, [statistic(fold) for fold in folds], most)

    return over_folds_of_fit


def _uncut_detection(fold: Discriminator) -> float:
    """Return a fold's detection score without a cut at 100: an area below 1/2 is chance, too."""
    return 200.0 * (1.0 - fold.auc)


def _add_detectors(
    sheet: Sheet, key: Key, max_rows: int, detector_rows: int, *, thorough: bool
) -> None:
    """Add the detection scores of XGBoost's trees and, if `thorough`, of LightGBM's."""
    _add_detector(sheet, "XGB-C2ST", XGBOOST, key, max_rows, detector_rows)
    if thorough:
        _add_detector(sheet, "LightGBM-C2ST", LIGHTGBM, key, max_rows, detector_rows)


def _add_detector(
    sheet: Sheet, name: str, trees: Trees, key: Key, max_rows: int, detector_rows: int
) -> None:
    """Add the detection score of one kind of trees."""
    sides = sheet.sides

    @cache
    def judge(real: str, table: str) -> Discriminator:
        # What shuffled columns lack is found in few rows, and a floor need not be exact.
        is_floor = (real, table) == sides.floor
        most_rows = max_rows if is_floor else detector_rows
        fit_key = fold_in(key, name)
        return discriminate(
            sides.tables, real, table, key=fit_key, max_rows=most_rows, trees=trees
        )

    def rows_of(pair: Pair) -> int:
        num_rows = sides.tables.num_rows
        return min(detector_rows, *(num_rows[table] for table in pair))

    def note() -> str:
        rows = rows_of(sides.value)
        text = f"{trees.count} rounds on {rows} rows of either table"
        if sides.ceiling and rows_of(sides.ceiling) != rows:
            text += f", the ceiling on {rows_of(sides.ceiling)}"
        return f"{text}; with fewer rows a detector finds less"

    sheet.add(
        Heading(name, "discriminability", "higher", OF_100, f"{TABPC}; SDMetrics"),
        lambda real, table: 100.0 * judge(real, table).detection,
        note=note,
        interval=_interval(judge, sides.value, _uncut_detection, 100.0),
        interval_by=OVER_FOLDS,
    )


def _add_support(sheet: Sheet, key: Key, max_rows: int) -> None:
    """Add alpha-precision and beta-recall."""
    sides = sheet.sides

    # Both scores come from the same distances, which are computed once.
    @cache
    def compared(real: str, table: str) -> Support:
        return support(sides.tables, real, table, key=key, max_rows=max_rows)

    def note() -> str:
        rows = compared(*sides.value).rows
        return f"{rows} rows of either table, by numbers and indicators"

    sheet.add(
        Heading("alpha-precision", "distances", "higher", OF_100, ALAA),
        lambda real, table: 100.0 * compared(real, table).alpha_precision,
        note=note,
    )
    sheet.add(
        Heading("beta-recall", "distances", "higher", OF_100, ALAA),
        lambda real, table: 100.0 * compared(real, table).beta_recall,
        note=lambda: (
            f"{note()}; real rows reach about 50, copies of the training rows 100"
        ),
    )


def _add_utility(sheet: Sheet, target: str | None, key: Key, max_rows: int) -> None:
    """Add the utility over all columns, and over the target alone."""
    sides = sheet.sides
    names = ["utility", "utility (mean over columns)", "utility of every column"]
    target_names = []
    if target is not None:
        target_names = [f"utility of {target!r}", f"prediction of {target!r}"]

    # One call fits the models behind value, ceiling and floor: they share the folds.
    pairs = [pair for pair in (sides.value, sides.ceiling, sides.floor) if pair]
    sources = [table for _, table in pairs]
    try:
        results = utilities(
            sides.tables, sides.base, sources, key=key, max_rows=max_rows
        )
    except InputError as error:
        for name in names + target_names:
            sheet.add_gap(name, str(error))
        return

    _add_utility_over_columns(sheet, results, names)
    if target is None:
        return
    if target in results.left_out:
        reason = f"target {target!r}: {results.left_out[target]} in the rows used"
        for name in target_names:
            sheet.add_gap(name, reason)
        return
    _add_utility_of_target(sheet, results, target, target_names)


def _add_utility_over_columns(
    sheet: Sheet, results: Utilities, names: Sequence[str]
) -> None:
    """Add the three scores over all columns: a quantile, a mean, and TabStruct's."""
    ratio_name, mean_name, tabstruct_name = names
    _, synthetic = sheet.sides.value
    left_out = ", ".join(results.left_out)
    note = f"without columns of one real value: {left_out}" if left_out else ""
    _add_ratio(sheet, ratio_name, results, None, note)

    def mean_note() -> str:
        mean_of_real = 100 * float(np.mean(list(results.real.values())))
        return f"mean of macro-F1 and D2; trained on real rows it is {mean_of_real:.1f}"

    def mean_interval(value: float) -> Band:
        scores_by_target = list(results.trained_on[synthetic].values())
        return _range(value, 100.0 * np.mean(scores_by_target, axis=0))

    sheet.add(
        Heading(mean_name, "utility", "higher", OF_100, "ours"),
        lambda real, table: 100.0 * _mean_utility(results, table),
        note=mean_note,
        interval=mean_interval,
        interval_by=RANGE,
    )

    def tabstruct_interval(value: float) -> Band:
        _, folds = results.of_every_column(synthetic)
        return _range(value, folds)

    sheet.add(
        Heading(tabstruct_name, "utility", "higher", "% of real", TABSTRUCT),
        lambda real, table: results.of_every_column(table)[0],
        note="mean ratio of balanced accuracies, or of root mean squared errors, of trees alone",
        interval=tabstruct_interval,
        interval_by=RANGE,
    )


def _add_utility_of_target(
    sheet: Sheet, results: Utilities, target: str, names: Sequence[str]
) -> None:
    """Add how well the target alone is predicted: as a share of real rows' own, and as it is."""
    ratio_name, prediction_name = names
    _, synthetic = sheet.sides.value
    _add_ratio(sheet, ratio_name, results, (target,), "")

    # Not a share of real rows but the score itself, in the unit of the target's kind.
    unit = "D2" if sheet.sides.tables.column(target).numeric else "macro-F1"
    sheet.add(
        Heading(prediction_name, "utility", "higher", unit, DP_TLDM),
        lambda real, table: float(np.mean(results.trained_on[table][target])),
        note=f"trained on real rows it is {float(np.mean(results.real[target])):.4f}",
        interval=lambda value: _range(value, results.trained_on[synthetic][target]),
        interval_by=RANGE,
    )


def _add_ratio(
    sheet: Sheet,
    name: str,
    results: Utilities,
    targets: tuple[str, ...] | None,
    note: str,
) -> None:
    """Add the utility of some targets as a share of the real rows' own."""
    _, synthetic = sheet.sides.value

    def interval(value: float) -> Band:
        _, folds = results.ratio(synthetic, targets)
        return _range(value, folds)

    sheet.add(
        Heading(name, "utility", "higher", "% of real", f"{DP_TLDM}; {SILOFUSE}"),
        lambda real, table: results.ratio(table, targets)[0],
        note=note,
        interval=interval,
        interval_by=RANGE,
    )


def _mean_utility(results: Utilities, table: str) -> float:
    """Return the mean of a table's scores over targets and folds."""
    if not results.real:
        raise InputError(
            "every column has one real value; there is no target to predict"
        )
    return float(np.mean(list(results.trained_on[table].values())))


def _range(value: float, folds: Sequence[float] | Floats) -> Band:
    """Return the smallest interval that holds a value and the values of all folds."""
    values = [value, *map(float, folds)]
    return min(values), max(values)


def _add_misclassification(sheet: Sheet, target: str | None, key: Key) -> None:
    """Add the error rate of support vector machines, of the target or over all categories."""
    sides = sheet.sides
    targets = None
    scope = "mean over categorical columns"
    if target is not None and not sides.tables.column(target).numeric:
        targets = (target,)
        scope = f"of {target!r}"

    # A numeric target has no classes: the mean over all categorical columns remains.
    compute = partial(
        svm_misclassification, sides.tables, sides.base, key=key, targets=targets
    )
    sheet.add(
        Heading("SVM misclassification", "utility", "lower", "0 to 1", VERTIMRF),
        lambda real, table: compute(table),
        note=f"{scope}; at most 1,000 rows to train on and to test on",
    )


def _add_likelihood(
    sheet: Sheet,
    real: Any,
    holdout: Any,
    model: DensitySource | None,
    encoder: Encoder | None,
) -> None:
    """Add the mean negative log-likelihood of the holdout, or why it is missing."""
    heading = Heading(
        "negative log-likelihood", "likelihood", "lower", "nats per row", FLAIM
    )
    if model is None or encoder is None:
        reason = (
            "it needs the model behind the synthetic rows: in Python, score(..., model=..., "
            "encoder=...)"
        )
        sheet.add_gap(heading.name, reason)
        return

    try:
        training_rows = encoder.encode(read(real))
        test_rows = training_rows if holdout is None else encoder.encode(read(holdout))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = negative_log_likelihood(model, test_rows)
    except SiloweaveError as error:
        sheet.add_gap(heading.name, str(error))
        return
    if not np.isfinite(value):
        # An infinite mean is no figure; the warnings say how many rows are impossible.
        reason = "; ".join(str(warning.message) for warning in caught)
        sheet.add_gap(heading.name, reason)
        return

    note = "of the holdout rows"
    if holdout is None:
        note = (
            "of the rows the model learnt from, as there is no holdout: "
            "memorised rows score well"
        )
    note += "; no ceiling, as nobody knows the true distribution; floor: independent columns"
    floor = _independent_likelihood(training_rows, test_rows)
    sheet.append(heading, Comparison(value, None, floor, note))


def _independent_likelihood(training_rows: Codes, test_rows: Codes) -> float:
    """Return the mean negative log-likelihood under independent columns, in nats per row.

    The shares of the training rows are the model, with half a row added to every code.
    """
    sizes = training_rows.domain.sizes
    total = 0.0
    for size, training_codes, test_codes in zip(
        sizes, training_rows.columns, test_rows.columns, strict=True
    ):
        # Half a row: a code that only a test row has would otherwise be impossible.
        counts = np.bincount(training_codes, minlength=size) + 0.5
        shares = counts / (len(training_codes) + 0.5 * size)
        total -= float(np.log(shares[test_codes]).mean())
    return total


# What plots need: small, and the same cells for both tables


def column_histograms(
    tables: Aligned, real: str, synthetic: str
) -> tuple[ColumnHistogram, ...]:
    """Count how each column spreads over at most 30 cells in both tables.

    Numbers: cells of equal width, one per value of a short range of whole numbers, else between the
    real 0.5% and 99.5% quantiles; what lies outside is counted on its own. Cells of whole numbers
    begin and end at whole numbers. Cells of numbers that are skewed grow by a factor
    (`growing_starts`). Categories: the most frequent real ones; the last cell holds all others.
    """
    require_tables(tables, real, synthetic)
    return tuple(
        _column_histogram(column, (real, synthetic)) for column in tables.columns
    )


def _column_histogram(column: AlignedColumn, names: Pair) -> ColumnHistogram:
    """Count how one column spreads over the same cells in both tables."""
    if column.numeric:
        return _numeric_histogram(column, names)
    real, synthetic = names
    cells, (real_counts, synthetic_counts) = _frequencies(column, names)
    # Shares of all rows: those without a value are in no cell.
    real_shares = real_counts / len(column.values[real])
    synthetic_shares = synthetic_counts / len(column.values[synthetic])
    others = 0
    if len(column.labels) > CELLS:
        others = len(column.labels) - CELLS + 1
    return ColumnHistogram(
        name=column.name,
        kind=column.kind,
        cells=cells,
        edges=(),
        real=tuple(real_shares.tolist()),
        synthetic=tuple(synthetic_shares.tolist()),
        missing=_missing_shares(column, names),
        distance=similarity.jensen_shannon(*column_shares(column, *names)),
        others=others,
    )


def _numeric_histogram(column: AlignedColumn, names: Pair) -> ColumnHistogram:
    """Count how a column of numbers spreads over the same cells in both tables."""
    real, _ = names
    edges, growing = _edges(column, real, CELLS)
    shares = []
    for table in names:
        counts = _counts(numbers(column, table), edges, whole=column.whole)
        shares.append((counts / len(column.values[table])).tolist())

    (real_below, *real_shares, real_above) = shares[0]
    (synthetic_below, *synthetic_shares, synthetic_above) = shares[1]
    return ColumnHistogram(
        name=column.name,
        kind=column.kind,
        cells=(),
        edges=tuple(edges.tolist()),
        real=tuple(real_shares),
        synthetic=tuple(synthetic_shares),
        missing=_missing_shares(column, names),
        distance=similarity.jensen_shannon(*column_shares(column, *names)),
        datetimes=column.datetimes,
        whole=column.whole,
        growing=growing,
        below=(real_below, synthetic_below),
        above=(real_above, synthetic_above),
    )


def _missing_shares(column: AlignedColumn, names: Pair) -> tuple[float, float]:
    """Return the shares of missing values, of the real and of the synthetic table."""
    real, synthetic = names
    real_share = float(column.missing(real).mean())
    synthetic_share = float(column.missing(synthetic).mean())
    return real_share, synthetic_share


def _edges(column: AlignedColumn, real: str, cells: int) -> tuple[Floats, bool]:
    """Return edges of cells, with one for 0 if many numbers are, and whether cells grow."""
    values = numbers(column, real)
    edges, growing = _plain_edges(column, real, cells)
    apart = zero_apart(edges, values, whole=column.whole)
    if len(apart) > len(edges):
        # A cell for 0 may cut another one into two.
        edges, growing = _plain_edges(column, real, cells - 2)
        apart = zero_apart(edges, values, whole=column.whole)
    return apart, growing


def _plain_edges(column: AlignedColumn, real: str, cells: int) -> tuple[Floats, bool]:
    """Return the edges of at most so many cells of numbers, and whether these grow by a factor.

    The real table chooses them. Edges of whole numbers are whole: cells such as 7 to 7.767 and
    7.767 to 8.533 would hold a whole number and none, which looks like a peak and a gap.
    """
    values = numbers(column, real)
    low = float(values.min())
    high = float(values.max())

    # Whole numbers of a short range: a cell for each.
    if column.whole and high - low < cells:
        return np.arange(low, high + 2.0), False

    # Skewed numbers: cells that grow, or most rows would be in the first one.
    starts = growing_starts(values, low, high, cells - 1, whole=column.whole)
    if starts:
        stop = high + 1.0 if column.whole else high
        return np.array([low, *starts, stop]), True

    # Others: equal cells over all but the outermost rows, which would stretch them.
    inner_low, inner_high = np.quantile(values, (0.005, 0.995))
    if inner_low < inner_high:
        low = float(inner_low)
        high = float(inner_high)
    if column.whole:
        # The last cell ends where the numbers do, and may be narrower than the others.
        first = np.floor(low)
        stop = np.floor(high) + 1
        width = np.ceil((stop - first) / cells)
        return np.append(np.arange(first, stop, width), stop), False
    edges: Floats = np.histogram_bin_edges(np.array([low, high]), bins=cells)
    return edges, False


def _counts(values: Floats, edges: Floats, *, whole: bool) -> Ints:
    """Count the values below the first cell, in each cell, and above the last one."""
    places = _places(values, edges, whole=whole)
    return np.bincount(places, minlength=len(edges) + 1)


def _places(values: Floats, edges: Floats, *, whole: bool) -> Ints:
    """Return the cell of each value: 0 below the first one, and one more than cells above."""
    places = np.searchsorted(edges, values, side="right")
    if not whole:
        # A continuum ends at a value that is its last, and not at the one after it.
        places[values == edges[-1]] = len(edges) - 1
    return places


def _frequencies(
    column: AlignedColumn, names: Pair
) -> tuple[tuple[str, ...], tuple[Ints, Ints]]:
    """Return the labels of a categorical column's cells, and both tables' counts in them."""
    real, synthetic = names
    # Without the last code, which stands for a missing value.
    real_counts = np.bincount(column.values[real], minlength=column.levels)[:-1]
    synthetic_counts = np.bincount(column.values[synthetic], minlength=column.levels)[
        :-1
    ]
    order = np.argsort(-real_counts, kind="stable")
    if len(order) <= CELLS:
        labels = tuple(str(column.labels[code]) for code in order)
        return labels, (real_counts[order], synthetic_counts[order])

    frequent = order[: CELLS - 1]
    rare = order[CELLS - 1 :]
    labels = tuple(str(column.labels[code]) for code in frequent)
    real_cells = np.append(real_counts[frequent], real_counts[rare].sum())
    synthetic_cells = np.append(
        synthetic_counts[frequent], synthetic_counts[rare].sum()
    )
    return (*labels, f"{len(rare)} others"), (real_cells, synthetic_cells)


# Pairs of columns


def worst_pairs(
    tables: Aligned, associations: Associations, real: str, synthetic: str
) -> tuple[PairHistogram, ...]:
    """Count how the three pairs of columns spread whose associations differ most.

    Each column has at most ten cells, and one for missing values where a table has any.
    """
    real_strengths = np.abs(np.array(associations.real))
    synthetic_strengths = np.abs(np.array(associations.synthetic))
    gaps = np.abs(real_strengths - synthetic_strengths)
    # Each pair once. Theil's U has a direction, so that both cells of a pair differ.
    rows, places = np.triu_indices(len(associations.names), k=1)
    pair_gaps = np.maximum(gaps[rows, places], gaps[places, rows])
    order = np.argsort(-pair_gaps, kind="stable")[:PAIRS]

    pairs = []
    for place in order:
        first = int(rows[place])
        second = int(places[place])
        cell = (first, second)
        if gaps[second, first] > gaps[first, second]:
            cell = (second, first)
        strengths = (float(real_strengths[cell]), float(synthetic_strengths[cell]))
        columns = (tables.columns[first], tables.columns[second])
        pairs.append(_pair_histogram(columns, (real, synthetic), strengths))
    return tuple(pairs)


def _pair_histogram(
    columns: tuple[AlignedColumn, AlignedColumn],
    names: Pair,
    strengths: tuple[float, float],
) -> PairHistogram:
    """Count how two columns spread over the same grid in both tables."""
    first, second = (_grid_cells(column, names) for column in columns)
    grids = []
    for table in names:
        shape = (len(first.labels), len(second.labels))
        flat = np.ravel_multi_index((first.places[table], second.places[table]), shape)
        counts = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)
        shares = counts / max(len(flat), 1)
        grids.append(tuple(tuple(row) for row in shares.tolist()))
    return PairHistogram(
        columns=(columns[0].name, columns[1].name),
        labels=(first.labels, second.labels),
        real=grids[0],
        synthetic=grids[1],
        strengths=strengths,
    )


class GridCells(NamedTuple):
    """The cells of a column in a grid, and the cell of every row by table."""

    labels: tuple[str, ...]
    places: dict[str, Ints]


def _grid_cells(column: AlignedColumn, names: Pair) -> GridCells:
    """Put the rows of both tables into at most ten cells, and one more for missing values."""
    real, _ = names
    places: dict[str, Ints] = {}
    if column.numeric:
        edges, _ = _edges(column, real, PAIR_CELLS)
        count = len(edges) - 1
        labels = spans(edges.tolist(), whole=column.whole, dates=column.datetimes)
        for table in names:
            # A value outside is in the outermost cell: a grid has no room for words.
            inside = _places(column.values[table], edges, whole=column.whole) - 1
            places[table] = np.clip(inside, 0, count - 1)
    else:
        labels, cell_of_code = _category_cells(column, real)
        count = len(labels)
        for table in names:
            places[table] = cell_of_code[column.values[table]]

    missing = {table: column.missing(table) for table in names}
    if any(mask.any() for mask in missing.values()):
        labels = (*labels, "missing")
        for table in names:
            places[table] = np.where(missing[table], count, places[table])
    return GridCells(labels, places)


def _category_cells(column: AlignedColumn, real: str) -> tuple[tuple[str, ...], Ints]:
    """Return the labels of a category's cells in a grid, and the cell of each code."""
    counts = np.bincount(column.values[real], minlength=column.levels)[:-1]
    order = np.argsort(-counts, kind="stable")
    shown = order
    labels = tuple(str(column.labels[code]) for code in order)
    if len(order) > PAIR_CELLS:
        shown = order[: PAIR_CELLS - 1]
        labels = (*labels[: PAIR_CELLS - 1], f"{len(order) - len(shown)} others")
    # Codes that are not shown, and that of missing values, get the last cell at first.
    cell_of_code = np.full(column.levels, len(labels) - 1)
    cell_of_code[shown] = np.arange(len(shown))
    return labels, cell_of_code
