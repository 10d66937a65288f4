"""How often a support vector machine trained on synthetic rows is wrong on real ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.boosting import one_thread, pick
from siloweave.evaluate.predictive import CLASSES, Constant, as_classes, main_classes
from siloweave.evaluate.shares import require_tables
from siloweave.tables.aligned import Aligned, AlignedColumn
from siloweave.tables.keys import Key, fold_in

__all__ = ["svm_misclassification"]

LABELS = 20
"""Values of a categorical feature that have an indicator: the most frequent ones."""
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


def svm_misclassification(
    tables: Aligned,
    real: str,
    synthetic: str,
    *,
    key: Key,
    targets: Sequence[str] | None = None,
    max_rows: int = 1_000,
) -> float:
    """Share of real rows that a support vector machine trained on synthetic rows gets wrong.

    Numbers and indicators of the 20 most frequent values of each category, standardised by the
    training rows; RBF kernel with gamma 1/features, C = 1. A missing number is the training
    median. A target's nine most frequent real values are classes, the rest is one more.

    Args:
        tables: Both tables, aligned.
        real: The table to test on.
        synthetic: The table to train on.
        key: Which rows.
        targets: Categorical columns to predict, one at a time; by default all with two values.
        max_rows: Rows to train on and rows to test on, at most.

    Returns:
        The mean over targets, 0 to 1.

    Raises:
        InputError: There is no such table or column, a target is numeric or has one real value, or
            there is nothing to learn from.

    Source:
        VertiMRF, 2024, experiments (standardised, RBF SVC, gamma "auto").

    Example:
        >>> from siloweave.tables import Table, align
        >>> x = np.linspace(0.1, 1, 60)
        >>> side = np.array(["low", "high"], dtype=object)[(x > 0.5).astype(int)]
        >>> one = Table.from_columns({"x": (x, None), "side": (side, None)})
        >>> svm_misclassification(align({"a": one, "b": one}), "a", "b", key=0) < 0.1
        True
    """
    require_tables(tables, real, synthetic)
    if len(tables.columns) < 2:
        raise InputError("one column has no other to be predicted from")
    test = pick(tables.num_rows[real], max_rows, fold_in(key, "test"))
    train = pick(tables.num_rows[synthetic], max_rows, fold_in(key, "train"))
    columns = _targets(tables, real, test, targets)
    with one_thread():
        wrong = [_wrong(tables, column, (real, test), (synthetic, train)) for column in columns]
    return float(np.mean(wrong))


def _targets(
    tables: Aligned, real: str, rows: Rows, names: Sequence[str] | None
) -> list[AlignedColumn]:
    if names is None:
        columns = [c for c in tables.categorical if _varies(c, real, rows)]
        if not columns:
            raise InputError("the real rows have no categorical column with two values to predict")
        return columns
    columns = [tables.column(name) for name in names]
    for column in columns:
        if column.numeric:
            raise InputError(f"target {column.name!r} is numeric; a classifier needs categories")
        if not _varies(column, real, rows):
            raise InputError(f"target {column.name!r} has one value in the real rows used")
    return columns


def _varies(column: AlignedColumn, real: str, rows: Rows) -> bool:
    return len(np.unique(column.values[real][rows])) > 1


def _wrong(
    tables: Aligned, column: AlignedColumn, test: tuple[str, Rows], train: tuple[str, Rows]
) -> float:
    truth = column.values[test[0]][test[1]]
    kept = main_classes(truth, CLASSES)
    learnt = as_classes(column.values[train[0]][train[1]], kept)
    X, Z = _standardised(tables, column.name, train, test)
    said = _machine(X, learnt).predict(Z)
    return float((said != as_classes(truth, kept)).mean())


def _machine(X: Floats, y: NDArray[np.int64]) -> Any:
    from sklearn.svm import SVC

    if len(np.unique(y)) < 2:
        return Constant(float(y[0]))
    return SVC(kernel="rbf", gamma="auto").fit(X, y)


def _standardised(
    tables: Aligned, without: str, train: tuple[str, Rows], test: tuple[str, Rows]
) -> tuple[Floats, Floats]:
    """Features of both, scaled by the training rows."""
    ours: list[Floats] = []
    theirs: list[Floats] = []
    for column in tables.columns:
        if column.name == without:
            continue
        x, z = (column.values[table][rows] for table, rows in (train, test))
        if column.numeric:
            middle = np.nanmedian(x) if not np.isnan(x).all() else 0.0
            ours.append(np.nan_to_num(x, nan=middle)[:, None])
            theirs.append(np.nan_to_num(z, nan=middle)[:, None])
        else:
            kept = main_classes(x, LABELS)
            ours.append((x[:, None] == kept).astype(np.float64))
            theirs.append((z[:, None] == kept).astype(np.float64))
    X, Z = np.hstack(ours), np.hstack(theirs)
    mean, spread = X.mean(axis=0), X.std(axis=0)
    spread[spread == 0] = 1.0
    return (X - mean) / spread, (Z - mean) / spread
