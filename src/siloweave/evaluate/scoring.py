"""One call for every measure of quality, each beside its ceiling and its floor.

Everything here is computed from real rows and nobody pays for it: only the owner may see it.

Each measure compares two tables of one source three times: real and synthetic rows (the value),
real rows and real rows that the synthesizer did not see (the ceiling), and the real rows with
themselves after each column was shuffled on its own (the floor). Intervals come from a jackknife
over ten groups of rows where a measure is quick, and from three folds where models are fitted; see
`siloweave.evaluate.score_sheet`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from siloweave.errors import DataError, InputError, SiloweaveError, count_of, whole
from siloweave.evaluate import similarity
from siloweave.evaluate.discriminator import Discriminator, discriminate
from siloweave.evaluate.histograms import column_histograms, worst_pairs
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
from siloweave.evaluate.score_sheet import (
    GROUPS,
    OF_100,
    OVER_FOLDS,
    RANGE,
    Band,
    Comparison,
    Heading,
    Interval,
    Pair,
    Sheet,
    Sides,
    jackknife,
    make_sides,
    over_folds,
    within,
    without_tenths,
)
from siloweave.evaluate.scores import Associations, Score, Scores, ScoreSettings
from siloweave.evaluate.shares import BINS, LEVELS
from siloweave.evaluate.support import Support, support
from siloweave.evaluate.workload import DensitySource, negative_log_likelihood
from siloweave.progress import Progress, expected_duration, shows_progress
from siloweave.tables.aligned import Aligned, align
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.encodings import LARGEST
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.persons import ROW, owners_in, refuse_shared, without_ids
from siloweave.tables.populations import (
    differing_columns,
    population_words,
    shared_words,
)
from siloweave.tables.read import read
from siloweave.tables.schema import Schema

OfTables = Callable[[Aligned, str, str], float]
"""A measure, from tables and the names of the real and of the other one."""
Judge = Callable[[str, str], Discriminator]
"""A fit that distinguishes rows, from the names of the real table and of the other one."""

# Whose measures they are.
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
LEAST_ROWS = 30
"""Rows of either table in a fit, at least: with fewer the trees learn nothing."""
# Seconds after which one wonders whether anything happens.
_WORTH_SAYING_S = 10.0
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
"""Limits by which measures stay quick; the scores' settings list them."""


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
        caution=_holdout_caution(aligned),
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


def _holdout_caution(tables: Aligned) -> str:
    """Say that the holdout is no ceiling, if that can be seen.

    Its rows are among the real ones, or they are of another population.
    """
    if "holdout" not in tables.num_rows:
        return ""
    shared = shared_words(tables, "holdout", "real")
    if shared:
        return (
            f"The holdout overlaps the real rows: {shared}. Ceilings are too good then, and the "
            "shares below too low: take rows out of the real table before anything is learned."
        )
    differences = differing_columns(tables, "holdout", "real")
    text = population_words(differences, "the holdout", "the real rows")
    if text:
        text += (
            ". It is no ceiling then, and the shares below are too good: hold rows out at random "
            "from the real table."
        )
    return text


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
    other_pairs = pairs - numeric_pairs
    associations = 6.6e-6 * rows * numeric_pairs + 1.5e-6 * rows * other_pairs
    return 4.0 + utility + detectors + associations


def with_forecast(progress: Progress, seconds: float) -> Progress:
    """Wrap a progress function so that every stage says how long all of the work takes.

    Short work is left as it is.

    Example:
        >>> with_forecast(lambda text, done: print(text), 62.0)("comparing columns", 0.2)
        comparing columns (about 62 s of one core in all)
    """
    if seconds < _WORTH_SAYING_S:
        return progress
    forecast = f"{expected_duration(seconds)} of one core in all"

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
    whole("max_rows", max_rows, LEAST_ROWS)
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
    if not tables.categorical:
        return ""
    return "over numeric columns only; categories have no order"


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
    pairs = count_of(links.pairs, "pair that is", "pairs that are")
    return f"over {pairs} independent in real rows; largest for {first} and {second}"


def _trends(name: str, *, strong: bool, which: str) -> Measure:
    """Return the measure of column pair trends, over strong pairs or over all."""
    compute = partial(similarity.column_pair_trends, strong=strong)

    def note(tables: Aligned, real: str, table: str) -> str:
        pairs = count_of(compute(tables, real, table).pairs, "pair", "pairs")
        return f"over {pairs} of columns{which}"

    return Measure(
        Heading(name, "quoted percentages", "higher", "%", SDMETRICS),
        lambda tables, real, table: compute(tables, real, table).percent,
        note=note,
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
    reduced_tables = without_tenths(sides, fold_in(key, "jackknife"))
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
    return within(value, half_width, 100.0)


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
        note="0.5 where rows cannot be distinguished; below 0.5 rows stand in both tables, or "
        "counts agree better than chance allows",
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
    if not is_added:
        return ()
    return trees(*sides.value).distinguishing


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
        text = f"{trees.count} rounds on {rows:,} rows of either table"
        if sides.ceiling and rows_of(sides.ceiling) != rows:
            text += f", the ceiling on {rows_of(sides.ceiling):,}"
        text += "; with fewer rows a detector finds less"
        if judge(*sides.value).is_deceived:
            text += (
                "; too high: single columns agree better than chance allows, as after raking "
                "(rows of sample(raked=False) are not raked)"
            )
        return text

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
