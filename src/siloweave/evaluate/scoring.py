"""One call for every measure of quality, each beside its ceiling and its floor.

Everything here is computed from real rows and nobody pays for it: it is the owner's to see, not to
publish.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from siloweave.errors import DataError, InputError
from siloweave.evaluate.learned import (
    Judges,
    add_discriminability,
    add_misclassification,
    add_utility,
)
from siloweave.evaluate.likelihood import DensitySource
from siloweave.evaluate.looks import association_look, column_looks
from siloweave.evaluate.modelled import add_likelihood
from siloweave.evaluate.resemblance import add_measures
from siloweave.evaluate.scores import Scores, ScoreSettings
from siloweave.evaluate.sides import Sheet, Sides, make_sides
from siloweave.progress import shows_progress
from siloweave.tables.aligned import Aligned, align
from siloweave.tables.codes import Encoder
from siloweave.tables.columns import LARGEST
from siloweave.tables.keys import fold_in
from siloweave.tables.schema import Schema

__all__ = ["score"]

Progress = Callable[[str, float], None]
FAMILIES = (
    *("resemblance", "discriminability", "utility", "distances", "marginals"),
    *("quoted percentages", "likelihood"),
)
LEAST_ROWS = 30
CAPS = {
    "bins": 20,
    "levels of a category in a marginal": 1_000,
    "marginals of one size": 300,
    "workload queries": 64,
    "classes of a target": 10,
    "trees per class to predict a column": 30,
    "trees to tell rows apart": 100,
    "folds": 3,
    "rows of a support vector machine": 1_000,
    "jackknife groups": 10,
}


@shows_progress
def score(
    real: Any,
    synthetic: Any,
    *,
    holdout: Any = None,
    target: str | None = None,
    schema: Schema | None = None,
    model: DensitySource | None = None,
    encoder: Encoder | None = None,
    seed: int = 0,
    max_rows: int = 6_000,
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
        model: The model behind the synthetic rows, for the likelihood of the holdout.
        encoder: How the model codes rows.
        seed: Which rows, folds and trees; the same seed gives the same scores.
        max_rows: Rows of either table in a boosting fit, at most; at least 30.
        progress: Whether to show a bar (None: in a terminal and a notebook), or a function of
            a text and the share that is done.

    Returns:
        The scores, what could not be measured and why, and what plots need. Intervals say how far
        a value moves with other rows of the same tables, or between folds.

    Raises:
        SchemaError: The tables have different columns or types.
        DataError: A table has no rows, a column has no value, or there is no such target.
        InputError: `max_rows` is too small, or a model comes without its encoder.

    Source:
        SiloFuse, ICDE 2024; DP-TLDM, 2024; Fed-TGAN, 2021; VertiMRF, 2024; FLAIM, KDD 2024;
        SDMetrics 0.32, 2026. Each score names its own.

    Example:
        >>> import numpy as np
        >>> from siloweave.tables import Table
        >>> x = np.linspace(0.1, 1, 60)
        >>> table = Table.from_columns({"x": (x, None), "y": (x**2, None), "z": (-x, None)})
        >>> scores = score(table, table)
        >>> round(scores["column similarity"].value, 6)
        100.0
    """
    _check(max_rows, model, encoder)
    given = {"real": real, "synthetic": synthetic}
    if holdout is not None:
        given["holdout"] = holdout
    progress("reading", 0.0)
    tables = align(given, schema)
    _check_sizes(tables)
    if target is not None:
        _check_target(tables, target)
    key = fold_in(seed, "score")
    sides = make_sides(tables, fold_in(key, "sides"))
    sheet = Sheet([], [])
    progress("telling rows apart", 0.05)
    judges = add_discriminability(sheet, sides, fold_in(key, "discriminator"), max_rows)
    progress("comparing columns", 0.2)
    add_measures(sheet, sides, key)
    progress("predicting columns", 0.4)
    add_utility(sheet, sides, target, fold_in(key, "utility"), max_rows)
    progress("support vector machines", 0.9)
    add_misclassification(sheet, sides, target, fold_in(key, "svm"))
    progress("likelihood", 0.97)
    add_likelihood(sheet, real, holdout, model, encoder)
    rows = {name: tables.num_rows[name] for name in given}
    found = _scores(sheet, sides, judges, _settings(sides, rows, seed, max_rows, target))
    progress("done", 1.0)
    return found


def _settings(
    sides: Sides, rows: dict[str, int], seed: int, max_rows: int, target: str | None
) -> ScoreSettings:
    return ScoreSettings(
        rows=rows,
        seed=seed,
        max_rows=max_rows,
        ceiling=sides.ceiling_text,
        floor=sides.floor_text,
        target=target,
        left_out=sides.tables.left_out,
        caps=CAPS,
    )


def _check(max_rows: int, model: DensitySource | None, encoder: Encoder | None) -> None:
    if isinstance(max_rows, bool) or max_rows < LEAST_ROWS:
        raise InputError(
            f"max_rows={max_rows!r} must be a whole number of {LEAST_ROWS} or more: with fewer "
            "rows the trees learn nothing"
        )
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


def _check_target(tables: Aligned, target: str) -> None:
    if target in tables.left_out:
        raise InputError(
            f"target={target!r} holds ids, which nothing predicts; choose from "
            f"{', '.join(tables.names)}, or declare its kind in a schema"
        )
    if target not in tables.names:
        raise InputError(f"target={target!r} is no column; choose from {', '.join(tables.names)}")


def _scores(sheet: Sheet, sides: Sides, judges: Judges, settings: ScoreSettings) -> Scores:
    judge = judges.by_pair[sides.value]
    return Scores(
        tuple(sorted(sheet.parts, key=lambda part: FAMILIES.index(part.family))),
        tuple(sheet.gaps),
        settings,
        column_looks(sides.tables, *sides.value),
        association_look(sides.tables, *sides.value),
        () if isinstance(judge, InputError) else judge.telling,
    )
