"""How often a support vector machine trained on synthetic rows is wrong on real ones.

Scores that need fitted models: propensity, discriminability, utility, misclassification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.discriminator import Discriminator, discriminate
from siloweave.evaluate.predictive import (
    CLASSES,
    Constant,
    Utilities,
    as_classes,
    main_classes,
    one_thread,
    pick,
    utilities,
)
from siloweave.evaluate.resemblance import DP_TLDM, OF_100, SILOFUSE
from siloweave.evaluate.scores import OVER_FOLDS, Band, NotMeasured, Sheet, Sides, over_folds
from siloweave.evaluate.shares import require_tables
from siloweave.tables.aligned import Aligned, AlignedColumn
from siloweave.tables.keys import Key, fold_in

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


@dataclass(frozen=True, eq=False)
class Judges:
    """The discriminators of all three comparisons, fitted once and used by several scores.

    Attributes:
        by_pair: Per pair of tables the discriminator, or why there is none.
    """

    by_pair: dict[tuple[str, str], Discriminator | InputError]

    def of(self, real: str, other: str) -> Discriminator:
        """Return the discriminator of two tables.

        Raises:
            InputError: It could not be fitted.
        """
        found = self.by_pair[real, other]
        if isinstance(found, InputError):
            raise found
        return found


def fit_judges(sides: Sides, key: Key, max_rows: int, *, linear: bool = False) -> Judges:
    """Fit a discriminator to each comparison; of trees, find the columns that tell."""
    found: dict[tuple[str, str], Discriminator | InputError] = {}
    for pair in (sides.value, sides.ceiling, sides.floor):
        if pair is None:
            continue
        try:
            found[pair] = discriminate(
                sides.tables, *pair, key=key, max_rows=max_rows, linear=linear,
                telling=not linear and pair == sides.value,
            )  # fmt: skip
        except InputError as error:
            found[pair] = error
    return Judges(found)


def add_discriminability(sheet: Sheet, sides: Sides, key: Key, max_rows: int) -> Judges:
    """Add propensity, the discriminator's area under the curve, and logistic detection.

    Returns:
        The judges that are trees.
    """
    family = "discriminability"
    judges, linear = (fit_judges(sides, key, max_rows, linear=way) for way in (False, True))

    def band(
        value: float, of: Callable[[Discriminator], float], most: float, by: Judges = judges
    ) -> Band:
        return over_folds(value, [of(fold) for fold in by.of(*sides.value).per_fold], most)

    sheet.add(
        "propensity", family, sides, lambda a, b: propensity(judges.of(a, b)),
        "higher", OF_100, f"{SILOFUSE}; {DP_TLDM}",
        note=lambda: "50 where the trees are always sure, 100 where they never lean either way",
        interval=lambda value: band(value, propensity, 100.0), interval_by=OVER_FOLDS,
    )  # fmt: skip
    sheet.add(
        "discriminator AUC", family, sides, lambda a, b: judges.of(a, b).auc,
        "lower", "0 to 1", "Lopez-Paz and Oquab, ICLR 2017",
        note=lambda: "0.5 where rows cannot be told apart; below 0.5 rows stand in both tables",
        interval=lambda value: band(value, lambda judge: judge.auc, 1.0), interval_by=OVER_FOLDS,
    )  # fmt: skip
    sheet.add(
        "logistic detection", family, sides, lambda a, b: detection(linear.of(a, b)),
        "higher", OF_100, "SDMetrics",
        note=lambda: "100 where a logistic regression cannot tell rows apart; it sees no relation "
        "between columns",
        interval=lambda value: band(value, not_detected, 100.0, linear), interval_by=OVER_FOLDS,
    )  # fmt: skip
    return judges


def detection(judge: Discriminator) -> float:
    """Detection score in percent."""
    return 100.0 * judge.detection


def not_detected(fold: Discriminator) -> float:
    """Detection of one fold in percent, not cut at 100: a fold below 1/2 is chance too."""
    return 200.0 * (1.0 - fold.auc)


def propensity(judge: Discriminator) -> float:
    """Propensity in percent."""
    return 100.0 * judge.propensity


def add_utility(sheet: Sheet, sides: Sides, target: str | None, key: Key, max_rows: int) -> None:
    """Add the utility over all columns, and over the target alone."""
    names = ["utility", "utility (mean over columns)"]
    if target is not None:
        names += [f"utility of {target!r}", f"prediction of {target!r}"]
    others = [pair[1] for pair in (sides.value, sides.ceiling, sides.floor) if pair]
    try:
        found = utilities(sides.tables, sides.base, others, key=key, max_rows=max_rows)
    except InputError as error:
        sheet.gaps += [NotMeasured(name, str(error)) for name in names]
        return
    synthetic = sides.value[1]
    left_out = ", ".join(found.left_out)
    note = f"without columns of one real value: {left_out}" if left_out else ""
    _add_ratio(sheet, sides, names[0], found, None, note)
    sheet.add(
        names[1], "utility", sides, lambda a, b: 100.0 * _mean(found, b), "higher", OF_100, "ours",
        note=lambda: "mean of macro-F1 and D2; trained on real rows it is "
        f"{100 * float(np.mean(list(found.real.values()))):.1f}",
        interval=lambda value: _range(value, _mean_folds(found, synthetic)),
        interval_by="range over 3 folds",
    )  # fmt: skip
    if target is not None:
        _add_target(sheet, sides, names[2:], found, target)


def _add_ratio(
    sheet: Sheet, sides: Sides, name: str, found: Utilities, target: str | None, note: str
) -> None:
    targets = None if target is None else (target,)
    sheet.add(
        name, "utility", sides, lambda a, b: found.ratio(b, targets)[0], "higher",
        "% of real", f"{DP_TLDM}; {SILOFUSE}", note=lambda: note,
        interval=lambda value: _range(value, found.ratio(sides.value[1], targets)[1]),
        interval_by="range over 3 folds",
    )  # fmt: skip


def _add_target(
    sheet: Sheet, sides: Sides, names: list[str], found: Utilities, target: str
) -> None:
    if target in found.left_out:
        reason = f"target {target!r}: {found.left_out[target]} in the rows used"
        sheet.gaps += [NotMeasured(name, reason) for name in names]
        return
    numeric = sides.tables.column(target).numeric
    _add_ratio(sheet, sides, names[0], found, target, "")
    sheet.add(
        names[1], "utility", sides, lambda a, b: float(np.mean(found.trained_on[b][target])),
        "higher", "D2" if numeric else "macro-F1", DP_TLDM,
        note=lambda: f"trained on real rows it is {float(np.mean(found.real[target])):.4f}",
        interval=lambda value: _range(value, found.trained_on[sides.value[1]][target]),
        interval_by="range over 3 folds",
    )  # fmt: skip


def _mean(found: Utilities, table: str) -> float:
    if not found.real:
        raise InputError("every column has one real value; there is no target to predict")
    return float(np.mean(list(found.trained_on[table].values())))


def _mean_folds(found: Utilities, table: str) -> tuple[float, ...]:
    folds = 100.0 * np.mean(list(found.trained_on[table].values()), axis=0)
    return tuple(folds.tolist())


def _range(value: float, folds: tuple[float, ...]) -> tuple[float, float]:
    return min(value, *folds), max(value, *folds)


def add_misclassification(sheet: Sheet, sides: Sides, target: str | None, key: Key) -> None:
    """Add the error rate of support vector machines, of the target or over all categories."""
    tables = sides.tables
    alone = target is not None and not tables.column(target).numeric
    targets = (target,) if alone and target is not None else None

    def compute(real: str, other: str) -> float:
        return svm_misclassification(tables, sides.base, other, key=key, targets=targets)

    which = f"of {target!r}" if alone else "mean over categorical columns"
    sheet.add(
        "SVM misclassification", "utility", sides, compute, "lower", "0 to 1", "VertiMRF, 2024",
        note=lambda: f"{which}; at most 1,000 rows to train on and to test on",
    )  # fmt: skip
