"""What plots of a synthetic table need: small, and the same cells for both tables.

The likelihood of held-out rows, where there is a model behind the synthetic table.

One call for every measure of quality, each beside its ceiling and its floor.

Everything here is computed from real rows and nobody pays for it: it is the owner's to see, not to
publish.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError, InputError, SiloweaveError
from siloweave.evaluate.learned import (
    Judges,
    add_discriminability,
    add_misclassification,
    add_utility,
)
from siloweave.evaluate.resemblance import add_measures
from siloweave.evaluate.scores import (
    Associations,
    ColumnLook,
    NotMeasured,
    Score,
    Scores,
    ScoreSettings,
    Sheet,
    Sides,
    make_sides,
)
from siloweave.evaluate.shares import column_shares, numbers, require_tables
from siloweave.evaluate.similarity import associations, jensen_shannon
from siloweave.evaluate.workload import DensitySource, negative_log_likelihood
from siloweave.progress import shows_progress
from siloweave.tables.aligned import Aligned, AlignedColumn, align
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.encodings import LARGEST
from siloweave.tables.keys import fold_in
from siloweave.tables.read import read
from siloweave.tables.schema import Schema

CELLS = 30
Floats = NDArray[np.float64]


def column_looks(tables: Aligned, real: str, synthetic: str) -> tuple[ColumnLook, ...]:
    """Each column's spread over at most 30 cells in both tables.

    Numbers: cells of equal width, one per value of a short range of whole numbers, else between the
    real 0.5% and 99.5% quantiles; what lies outside is in the outer cells. Categories: the most
    frequent real ones; the last cell holds all others.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.

    Returns:
        One look per column.

    Raises:
        InputError: There is no such table.

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([1, 2, 2]), None)})
        >>> column_looks(align({"a": one, "b": one}), "a", "b")[0].edges
        (0.5, 1.5, 2.5)
    """
    require_tables(tables, real, synthetic)
    return tuple(_look(column, real, synthetic) for column in tables.columns)


def association_look(tables: Aligned, real: str, synthetic: str) -> Associations:
    """Both tables' association matrices, as plain numbers."""
    ours, theirs = (
        tuple(map(tuple, associations(tables, table).tolist())) for table in (real, synthetic)
    )
    return Associations(tables.names, ours, theirs)


def _look(column: AlignedColumn, real: str, synthetic: str) -> ColumnLook:
    missing = [float(column.missing(table).mean()) for table in (real, synthetic)]
    if column.numeric:
        edges = _edges(column, real)
        cells: tuple[str, ...] = ()
        counts = [_histogram(numbers(column, t), edges) for t in (real, synthetic)]
    else:
        edges = np.empty(0)
        cells, counts = _frequencies(column, real, synthetic)
    ours, theirs = (
        tuple((found / len(column.values[table])).tolist())
        for found, table in zip(counts, (real, synthetic), strict=True)
    )
    return ColumnLook(
        column.name, column.kind, cells, tuple(edges.tolist()), ours, theirs,
        (missing[0], missing[1]), jensen_shannon(*column_shares(column, real, synthetic)),
        column.datetimes,
    )  # fmt: skip


def _edges(column: AlignedColumn, real: str) -> Floats:
    values = numbers(column, real)
    low, high = float(values.min()), float(values.max())
    if column.whole and high - low < CELLS:
        return np.arange(low - 0.5, high + 1.0)
    inner = np.quantile(values, (0.005, 0.995))
    if inner[0] < inner[1]:
        low, high = float(inner[0]), float(inner[1])
    edges: Floats = np.histogram_bin_edges(np.array([low, high]), bins=CELLS)
    return edges


def _histogram(values: Floats, edges: Floats) -> NDArray[np.int64]:
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(places, minlength=len(edges) - 1)


def _frequencies(
    column: AlignedColumn, real: str, synthetic: str
) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    counts = [
        np.bincount(column.values[t], minlength=column.levels)[:-1] for t in (real, synthetic)
    ]
    order = np.argsort(-counts[0], kind="stable")
    if len(order) <= CELLS:
        return tuple(str(column.labels[i]) for i in order), [c[order] for c in counts]
    shown, rest = order[: CELLS - 1], order[CELLS - 1 :]
    names = tuple(str(column.labels[i]) for i in shown)
    return (*names, f"{len(rest)} others"), [np.append(c[shown], c[rest].sum()) for c in counts]


NAME = "negative log-likelihood"


def add_likelihood(
    sheet: Sheet, real: Any, holdout: Any, model: DensitySource | None, encoder: Encoder | None
) -> None:
    """Add the mean negative log-likelihood of the holdout, or why it is not there."""
    if model is None or encoder is None:
        reason = "it takes the model behind the synthetic rows; give model= and encoder="
        sheet.gaps.append(NotMeasured(NAME, reason))
        return
    try:
        seen = encoder.encode(read(real))
        rows = seen if holdout is None else encoder.encode(read(holdout))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = negative_log_likelihood(model, rows)
    except SiloweaveError as error:
        sheet.gaps.append(NotMeasured(NAME, str(error)))
        return
    if not np.isfinite(value):
        sheet.gaps.append(NotMeasured(NAME, "; ".join(str(w.message) for w in caught)))
        return
    note = "of the holdout rows"
    if holdout is None:
        note = "of the rows the model learnt from, as there is no holdout: learning by heart pays"
    sheet.parts.append(
        Score(
            NAME,
            "likelihood",
            value,
            None,
            independent_likelihood(seen, rows),
            "lower",
            "nats per row",
            "FLAIM, KDD 2024",
            f"{note}; no ceiling, as nobody knows the true law; floor: independent columns",
        )
    )


def independent_likelihood(seen: Codes, rows: Codes) -> float:
    """Mean negative log-likelihood under independent columns, in nats per row.

    Args:
        seen: Rows whose shares are the model, half a row added to every code.
        rows: Rows to score, in the same domain.

    Returns:
        Nats per row.

    Example:
        >>> from siloweave.tables import Domain
        >>> coin = Codes(Domain(("side",), (2,)), (np.array([0, 1]),))
        >>> round(independent_likelihood(coin, coin), 4)
        0.6931
    """
    total = 0.0
    for size, ours, theirs in zip(seen.domain.sizes, seen.columns, rows.columns, strict=True):
        shares = (np.bincount(ours, minlength=size) + 0.5) / (len(ours) + 0.5 * size)
        total -= float(np.log(shares[theirs]).mean())
    return total


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
