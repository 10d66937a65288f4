"""What models that learnt from synthetic rows are worth on real ones.

Features of boosted trees are numbers as they are and categories as codes; a missing value is
missing, which the trees split on. The trees are scikit-learn's histogram boosting without early
stopping, small, seeded, and run inside `one_thread`. A categorical target has ten classes at most:
its nine most frequent real values, and the rest as one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.shares import require_tables
from siloweave.evaluate.workload import require_rows, require_same_domain
from siloweave.tables.aligned import Aligned, AlignedColumn
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.codes import Codes
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.persons import relabelled, rows_of_units

Rows = Ints
Folds = tuple[float, ...]
"""One score per fold."""
FOLDS = 3
CLASSES = 10
"""Classes of a categorical target: the most frequent real ones, and one for all others."""
LABELS = 20
"""Values of a categorical feature that a support vector machine sees: the most frequent ones."""


@dataclass(frozen=True)
class Trees:
    """How many boosted trees a model has per class, and how each is grown.

    Args:
        count: Trees per class; all are grown, whatever they gain.
        leaves: Leaves of a tree at most; None: as many as its depth allows.
        rate: Learning rate.
        shrink: What is added to a leaf's weight. Without it, one odd row in a leaf that is
            otherwise sure of its class gives that leaf thousands of nats, and boosting of many
            classes does not recover (decision 0020).
        depth: Splits from the root to a leaf at most; None: any number.
        leaf_rows: Rows of a leaf at least; None: 20, or a twentieth of the rows where these are
            fewer.
    """

    count: int
    leaves: int | None
    rate: float
    shrink: float = 0.0
    depth: int | None = None
    leaf_rows: int | None = None


SHORT = Trees(30, 8, 0.2, shrink=1.0)
"""Enough to predict a column: there are many to fit."""
LONG = Trees(100, 31, 0.1)
"""The library's own; a judge of less misses relations, and differs from seed to seed."""
XGBOOST = Trees(100, None, 0.3, shrink=1.0, depth=6, leaf_rows=4)
"""XGBoost's defaults. It asks for a summed Hessian of 1 in a leaf (min_child_weight), and a row has
p (1 - p), at most 1/4: four rows at least. Its 256 bins are scikit-learn's 255 and one for NaN."""
LIGHTGBM = Trees(200, 31, 0.1, leaf_rows=20)
"""LightGBM's defaults, which grow the leaf that gains most, for twice as many rounds."""


def one_thread() -> AbstractContextManager[Any]:
    """Keep OpenMP from spinning on cores that are busy.

    Measured on two shared cores, 43,000 rows of 14 codes: 0.4 s with one thread, 14 s with two.
    """
    from threadpoolctl import threadpool_limits

    limited: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="openmp")
    return limited


def features(tables: Aligned, table: str, rows: Rows, *, without: str | None = None) -> Floats:
    """Some rows as float64, one column per column of the table, NaN where a value is missing."""
    found = []
    for column in tables.columns:
        if column.name == without:
            continue
        values = column.values[table][rows].astype(np.float64)
        if not column.numeric:
            values[values == len(column.labels)] = np.nan
        found.append(values)
    return np.column_stack(found) if found else np.empty((len(rows), 0))


def pick(count: int, most: int, key: Key) -> Rows:
    """At most so many of the rows, drawn without repetition, in order."""
    if count <= most:
        return np.arange(count)
    return np.sort(generator(key).choice(count, most, replace=False))


def folds_of(owners: Ints, key: Key) -> list[Rows]:
    """Split places into three folds of nearly equal numbers of units, at random.

    All rows of a unit are in one fold: a model that has seen some rows of a person is not tested on
    her others. `owners` says whose the row at each place is.
    """
    whose, counts = relabelled(owners)
    parts = np.array_split(generator(key).permutation(len(counts)), FOLDS)
    return [rows_of_units(whose, part) for part in parts]


def require_folds(rows: int, owners: Ints, which: str) -> None:
    """Raise InputError for fewer units than folds."""
    units = len(np.unique(owners))
    if units < FOLDS:
        what = "rows" if units == rows else "persons"
        raise InputError(f"{units} {which}{what} are fewer than {FOLDS} folds; give more rows")


def all_but(folds: Sequence[Rows], left_out: int) -> Rows:
    """All places but one fold's."""
    return np.concatenate([part for i, part in enumerate(folds) if i != left_out])


def boosted(X: Floats, y: NDArray[Any], key: Key, trees: Trees, *, numeric: bool = False) -> Any:
    """Fit a classifier to two classes or more, or a regressor.

    The regressor minimises the squared error, as XGBoost by default (decision 0017).
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingRegressor if numeric else HistGradientBoostingClassifier
    leaf_rows = trees.leaf_rows or max(1, min(20, len(X) // 20))
    model = kind(
        max_iter=trees.count,
        max_leaf_nodes=trees.leaves,
        max_depth=trees.depth,
        learning_rate=trees.rate,
        l2_regularization=trees.shrink,
        min_samples_leaf=leaf_rows,
        early_stopping=False,
        random_state=int(generator(fold_in(key, "trees")).integers(2**31)),
    )
    return model.fit(X, y)


class Constant:
    """A model that always answers the same: all that rows of one value teach."""

    def __init__(self, value: float) -> None:
        self.value = value

    def predict(self, X: Floats) -> Floats:
        """Answer once per row."""
        return np.full(len(X), self.value)


def main_classes(values: NDArray[Any], most: int) -> Rows:
    """The most frequent codes, one fewer than `most` where there are more than that."""
    counts = np.bincount(values)
    seen = np.flatnonzero(counts)
    order = seen[np.argsort(-counts[seen], kind="stable")]
    return order if len(order) <= most else order[: most - 1]


def as_classes(values: NDArray[Any], classes: Rows) -> Rows:
    """Codes as places in `classes`; all others have the place after the last."""
    order = np.argsort(classes)
    at = np.minimum(np.searchsorted(classes, values, sorter=order), len(classes) - 1)
    found: Rows = np.where(classes[order][at] == values, order[at], len(classes))
    return found


# Utility: every column predicted by boosted trees


@dataclass(frozen=True, eq=False)
class Utilities:
    """How well each target is predicted on real rows, and which cannot be predicted and why.

    Macro-F1 of a categorical target; of a numeric one the share of the absolute error that the
    model takes away (D2), from 0 to 1.

    Attributes:
        real: Per target and fold: trained on the other folds of the real rows.
        trained_on: Per table, target and fold: trained on that table's rows, tested on the same
            folds.
        left_out: Per target that cannot be predicted, why not.
        relative: Per table, target and fold, how well its model does beside the one that learnt
            from real rows, as a ratio: of balanced accuracies, or of root mean squared errors, the
            real model's on top. 1: as well; it may be more. Numbers that real rows predict no
            better than their mean does are not among the targets.
    """

    real: Mapping[str, Folds]
    trained_on: Mapping[str, Mapping[str, Folds]]
    left_out: Mapping[str, str]
    relative: Mapping[str, Mapping[str, Folds]] = field(default_factory=dict)

    def of_every_column(self, table: str) -> tuple[float, Folds]:
        """Return the mean ratio over all targets, in percent, and the same for each fold.

        Raises:
            InputError: No target could be predicted.
        """
        ratios = self.relative[table]
        if not ratios:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.left_out.items())
            raise InputError(f"there is no target to predict ({reasons})")
        table_of = 100.0 * np.array(list(ratios.values()))
        return float(table_of.mean()), tuple(table_of.mean(axis=0).tolist())

    def ratio(self, table: str, targets: Sequence[str] | None = None) -> tuple[float, Folds]:
        """Utility of a table as a share of the real rows' own, in percent, at most 100.

        The 90th percentile over targets (all by default) of the table's scores over that of the
        real ones: of the means over folds, and in each fold. InputError if no target could be
        predicted, or real rows do not predict any.
        """
        names = [name for name in (targets or self.real) if name in self.real]
        if not names:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.left_out.items())
            raise InputError(f"there is no target to predict ({reasons})")
        ours, theirs = (
            np.array([side[name] for name in names]) for side in (self.real, self.trained_on[table])
        )
        best = float(np.quantile(ours.mean(axis=1), 0.9))
        if best <= 0:
            raise InputError("real rows predict none of the targets; there is no utility to keep")
        tops = np.quantile(theirs, 0.9, axis=0), np.quantile(ours, 0.9, axis=0)
        per_fold = [
            min(100.0, 100.0 * float(t) / float(o)) for t, o in zip(*tops, strict=True) if o > 0
        ]
        whole = 100.0 * float(np.quantile(theirs.mean(axis=1), 0.9)) / best
        return min(100.0, whole), tuple(per_fold)


def utilities(
    tables: Aligned,
    real: str,
    sources: Sequence[str],
    *,
    key: Key,
    targets: Sequence[str] | None = None,
    max_rows: int = 6_000,
) -> Utilities:
    """Predict columns of real rows by models that learnt from several tables.

    Every column, or each of `targets`, is predicted; boosted trees learn it from all others, in 3
    folds of at most `max_rows` real rows, whose own models are fitted once per fold. A table's
    model is fitted once on its own rows, two thirds as many, and tested on each fold of the real
    ones. Categorical: macro-F1. Numeric: D2 of the absolute error, clipped to [0, 1], of trees that
    minimise squared errors. The key draws rows and folds and seeds the trees. From the same fits
    comes TabStruct's global utility, `Utilities.of_every_column`: of boosted trees alone, where the
    paper averages several kinds of models.

    Raises:
        InputError: There is no such table, or fewer rows than folds.
        DataError: There is no such target.

    Source:
        Zhu et al., *DP-TLDM*, 2024, evaluation (3-fold, D2 clipped), after SiloFuse, ICDE 2024,
        evaluation (90th percentile, ratio); trees of scikit-learn instead of XGBoost's. Jiang,
        Simidjievski and Jamnik, *TabStruct*, ICLR 2026 (global utility).

    Example:
        >>> from siloweave.tables import Table, align
        >>> x = np.linspace(0.1, 1, 90)
        >>> one = Table.from_columns({"x": (x, None), "y": (2 * x, None)})
        >>> both = align({"real": one, "synthetic": one})
        >>> utilities(both, "real", ("synthetic",), key=0).ratio("synthetic")[0] > 95
        True
    """
    require_tables(tables, real, *sources)
    rows = pick(tables.num_rows[real], max_rows, fold_in(key, "real"))
    owners = tables.owners_of(real)[rows]
    require_folds(len(rows), owners, "real ")
    _require_features(tables)
    folds = folds_of(owners, fold_in(key, "folds"))
    most = len(rows) - min(map(len, folds))
    picked = {
        name: pick(tables.num_rows[name], most, fold_in(key, "rows", name)) for name in sources
    }
    ours: dict[str, Folds] = {}
    theirs: dict[str, dict[str, Folds]] = {name: {} for name in sources}
    relative: dict[str, dict[str, Folds]] = {name: {} for name in sources}
    left_out: dict[str, str] = {}
    for column in tables.columns if targets is None else map(tables.column, targets):
        task = _Task(tables, column, real, rows)
        if not task.possible:
            left_out[column.name] = "the real rows have one value"
            continue
        seed = fold_in(key, "fit", column.name)
        with one_thread():
            best = [
                task.grade(task.fit(real, rows[all_but(folds, i)], fold_in(seed, i)), fold)
                for i, fold in enumerate(folds)
            ]
            ours[column.name] = tuple(grade.score for grade in best)
            for name in sources:
                model = task.fit(name, picked[name], fold_in(seed, name))
                grades = [task.grade(model, fold) for fold in folds]
                theirs[name][column.name] = tuple(grade.score for grade in grades)
                if task.is_predicted(best):
                    relative[name][column.name] = tuple(
                        grade.beside(other) for grade, other in zip(grades, best, strict=True)
                    )
    return Utilities(ours, theirs, left_out, relative)


def _require_features(tables: Aligned) -> None:
    if len(tables.columns) < 2:
        raise InputError("one column has no other to be predicted from")


@dataclass(frozen=True)
class _Grade:
    """How well a model predicts some rows.

    Attributes:
        score: Macro-F1, or the share of the absolute error that it takes away.
        right: Balanced accuracy of a categorical target, else 0.
        error: Root mean squared error of a numeric target in its standard deviations, else 0.
    """

    score: float
    right: float = 0.0
    error: float = 0.0

    def beside(self, real: _Grade) -> float:
        """Return how well this model does as a share of the one that learnt from real rows."""
        if real.right > 0:
            return self.right / real.right
        return (real.error + _TINY) / (self.error + _TINY)


_TINY = 0.01  # of a standard deviation: two models that err by less are alike


class _Task:
    """One target: how it is coded, learnt and scored."""

    def __init__(self, tables: Aligned, column: AlignedColumn, real: str, rows: Rows) -> None:
        self.tables, self.column = tables, column
        values = column.values[real][rows]
        if not column.numeric:
            self.classes = main_classes(values, CLASSES)
        self.truth = self._coded(values)
        self.X = features(tables, real, rows, without=column.name)
        self.known = ~np.isnan(self.truth)
        self.possible = len(np.unique(self.truth[self.known])) > 1

    def _coded(self, values: NDArray[Any]) -> Floats:
        if self.column.numeric:
            return values
        return as_classes(values, self.classes).astype(np.float64)

    def fit(self, table: str, rows: Rows, key: Key) -> Any:
        """Learn the target from a table's rows; rows without a number teach nothing."""
        y = self._coded(self.column.values[table][rows])
        known = ~np.isnan(y)
        values = np.unique(y[known])
        if len(values) < 2:
            return Constant(float(values[0]) if len(values) else 0.0)
        X = features(self.tables, table, rows[known], without=self.column.name)
        return boosted(X, y[known], key, SHORT, numeric=self.column.numeric)

    def is_predicted(self, grades: Sequence[_Grade]) -> bool:
        """Whether real rows predict the target, judged by their models' grades in all folds.

        One row of 693 million among thousands makes any model worse than the mean, and whichever
        rows predict the mean would be called much better than real ones.
        """
        return not self.column.numeric or fmean(grade.error for grade in grades) < 1

    def grade(self, model: Any, places: Rows) -> _Grade:
        """Compare a model's answers on some of the real rows with the truth."""
        from sklearn.metrics import d2_absolute_error_score, f1_score

        places = places[self.known[places]]
        truth = self.truth[places]
        if len(truth) < 2:
            return _Grade(0.0)
        predicted = model.predict(self.X[places])
        if self.column.numeric:
            score = float(np.clip(d2_absolute_error_score(truth, predicted), 0.0, 1.0))
            spread = float(truth.std()) or 1.0
            # Divided before it is squared: squares of large numbers overflow.
            error = float(np.sqrt((((predicted - truth) / spread) ** 2).mean()))
            return _Grade(score, error=error)
        labels = np.unique(truth)
        score = float(f1_score(truth, predicted, labels=labels, average="macro", zero_division=0))
        right = float(np.mean([(predicted[truth == label] == label).mean() for label in labels]))
        return _Grade(score, right=right)


# Misclassification by support vector machines


def svm_misclassification(
    tables: Aligned,
    real: str,
    synthetic: str,
    *,
    key: Key,
    targets: Sequence[str] | None = None,
    max_rows: int = 1_000,
) -> float:
    """Mean share of real rows that a support vector machine trained on synthetic rows gets wrong.

    Numbers and indicators of the 20 most frequent values of each category, standardised by the
    training rows; RBF kernel with gamma 1/features, C = 1. A missing number is the training
    median. The mean, 0 to 1, is over `targets`, by default all categorical columns with two values.
    The key draws at most `max_rows` rows to train on, and as many to test on.

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
    _require_features(tables)
    test = pick(tables.num_rows[real], max_rows, fold_in(key, "test"))
    train = pick(tables.num_rows[synthetic], max_rows, fold_in(key, "train"))
    columns = _svm_targets(tables, real, test, targets)
    with one_thread():
        wrong = [_wrong(tables, column, (real, test), (synthetic, train)) for column in columns]
    return float(np.mean(wrong))


def _svm_targets(
    tables: Aligned, real: str, rows: Rows, names: Sequence[str] | None
) -> list[AlignedColumn]:
    def varies(column: AlignedColumn) -> bool:
        return len(np.unique(column.values[real][rows])) > 1

    if names is None:
        columns = [column for column in tables.categorical if varies(column)]
        if not columns:
            raise InputError("the real rows have no categorical column with two values to predict")
        return columns
    columns = [tables.column(name) for name in names]
    for column in columns:
        if column.numeric:
            raise InputError(f"target {column.name!r} is numeric; a classifier needs categories")
        if not varies(column):
            raise InputError(f"target {column.name!r} has one value in the real rows used")
    return columns


def _wrong(
    tables: Aligned, column: AlignedColumn, test: tuple[str, Rows], train: tuple[str, Rows]
) -> float:
    from sklearn.svm import SVC

    truth = column.values[test[0]][test[1]]
    classes = main_classes(truth, CLASSES)
    y = as_classes(column.values[train[0]][train[1]], classes)
    X, Z = _standardised(tables, column.name, train, test)
    alone = len(np.unique(y)) < 2
    model = Constant(float(y[0])) if alone else SVC(kernel="rbf", gamma="auto").fit(X, y)
    return float((model.predict(Z) != as_classes(truth, classes)).mean())


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
            frequent = main_classes(x, LABELS)
            ours.append((x[:, None] == frequent).astype(np.float64))
            theirs.append((z[:, None] == frequent).astype(np.float64))
    X, Z = np.hstack(ours), np.hstack(theirs)
    mean, spread = X.mean(axis=0), X.std(axis=0)
    spread[spread == 0] = 1.0
    return (X - mean) / spread, (Z - mean) / spread


# FLAIM's experiment


def train_on_synthetic(synthetic: Codes, real_test: Codes, target: str, *, key: Key) -> float:
    """AUC on real rows of gradient boosting trained on synthetic rows.

    100 trees of depth 4 with learning rate 0.1, as FLAIM's experiments (Maddock, Cormode and
    Maple, KDD 2024); the features are the codes of all other attributes. With more than two
    classes it is the unweighted mean of one-vs-rest AUCs over the classes in the real rows; a
    class that the synthetic table never shows counts 0.5. Rows to train on and to test on have the
    same domain; the key seeds the trees. Splits are found over histograms of codes, many times
    faster than by the search of every split that FLAIM's code makes.

    Returns:
        AUC in [0, 1]; NaN, with a warning that says why, when the synthetic rows have one class.

    Raises:
        InputError: When a table is empty, domains differ, there is no feature, or the real rows
            have one class, for which AUC is not defined.

    Example:
        >>> from siloweave.tables import Codes, Domain
        >>> domain = Domain(("x", "y"), (2, 2))
        >>> x = np.arange(80) % 2
        >>> rows = Codes(domain, (x, x))
        >>> train_on_synthetic(rows, rows, "y", key=0)
        1.0
    """
    require_rows(synthetic, "synthetic")
    require_rows(real_test, "real_test")
    require_same_domain(real_test, synthetic)
    known = real_test.domain.names
    if target not in known:
        raise InputError(f"target={target!r} is no attribute; choose from {', '.join(known)}")
    if len(known) < 2:
        raise InputError(f"target={target!r} is the only attribute; there is nothing to learn from")
    truth, seen = real_test.column(target), np.unique(synthetic.column(target))
    if len(np.unique(truth)) < 2:
        raise InputError(
            f"real_test has one class of {target!r}, for which AUC is not defined; choose another "
            "target, or rows with two classes"
        )
    if len(seen) < 2:
        warnings.warn(
            f"AUC is NaN: all {synthetic.num_rows} synthetic rows have the same {target!r}, so "
            "there is nothing to learn",
            stacklevel=2,
        )
        return float("nan")
    from sklearn.ensemble import HistGradientBoostingClassifier

    seed = int(generator(key).integers(2**31))
    model = HistGradientBoostingClassifier(
        max_iter=100, max_depth=4, learning_rate=0.1, early_stopping=False, random_state=seed
    )
    X, Z = (
        np.column_stack([rows.column(n).astype(np.float32) for n in known if n != target])
        for rows in (synthetic, real_test)
    )
    with one_thread():
        probability = model.fit(X, synthetic.column(target)).predict_proba(Z)
    return _macro_auc(truth, probability, seen)


def _macro_auc(truth: NDArray[Any], probability: Floats, seen: NDArray[Any]) -> float:
    """Mean one-vs-rest AUC over the classes in `truth`."""
    from sklearn.metrics import roc_auc_score

    known, areas = seen.tolist(), []
    for label in np.unique(truth).tolist():
        column = probability[:, known.index(label)] if label in known else None
        areas.append(0.5 if column is None else float(roc_auc_score(truth == label, column)))
    return float(np.mean(areas))
