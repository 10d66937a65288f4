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
from typing import Any, NamedTuple

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
    """The number and size of the boosted trees of a model, per class.

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

    limited: AbstractContextManager[Any] = threadpool_limits(
        limits=1, user_api="openmp"
    )
    return limited


def features(
    tables: Aligned, table: str, rows: Rows, *, without: str | None = None
) -> Floats:
    """Return some rows' columns as float64 features, NaN where a value is missing.

    There is a column for each of the table's columns but for `without`.
    """
    columns = []
    for column in tables.columns:
        if column.name == without:
            continue
        values = column.values[table][rows].astype(np.float64)
        if not column.numeric:
            # A missing category is missing to the trees too, and no code above all others.
            values[values == len(column.labels)] = np.nan
        columns.append(values)
    if not columns:
        return np.empty((len(rows), 0))
    return np.column_stack(columns)


def pick(count: int, most: int, key: Key) -> Rows:
    """Draw at most so many rows without repetition; they keep their order."""
    if count <= most:
        return np.arange(count)
    return np.sort(generator(key).choice(count, most, replace=False))


def folds_of(owners: Ints, key: Key) -> list[Rows]:
    """Split places into three folds of nearly equal numbers of units, at random.

    All rows of a unit are in one fold: a model that has seen some rows of a person is not tested on
    her others. `owners` says whose the row at each place is.
    """
    unit_of_row, counts = relabelled(owners)
    order = generator(key).permutation(len(counts))
    return [rows_of_units(unit_of_row, units) for units in np.array_split(order, FOLDS)]


def require_folds(rows: int, owners: Ints, which: str) -> None:
    """Raise InputError for fewer units than folds."""
    units = len(np.unique(owners))
    if units < FOLDS:
        unit_name = "rows" if units == rows else "persons"
        raise InputError(
            f"{units} {which}{unit_name} are fewer than {FOLDS} folds; give more rows"
        )


def all_but(folds: Sequence[Rows], left_out: int) -> Rows:
    """Return the places of all folds but one."""
    return np.concatenate([part for i, part in enumerate(folds) if i != left_out])


def boosted(
    X: Floats, y: NDArray[Any], key: Key, trees: Trees, *, numeric: bool = False
) -> Any:
    """Fit boosted trees: a classifier of two classes or more, or a regressor.

    The regressor minimises the squared error, as XGBoost by default (decision 0017).
    """
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )

    model_class = (
        HistGradientBoostingRegressor if numeric else HistGradientBoostingClassifier
    )
    leaf_rows = trees.leaf_rows or max(1, min(20, len(X) // 20))
    seed = generator(fold_in(key, "trees")).integers(2**31)
    model = model_class(
        max_iter=trees.count,
        max_leaf_nodes=trees.leaves,
        max_depth=trees.depth,
        learning_rate=trees.rate,
        l2_regularization=trees.shrink,
        min_samples_leaf=leaf_rows,
        early_stopping=False,
        random_state=int(seed),
    )
    return model.fit(X, y)


class Constant:
    """A model that always answers the same: all that rows of one value teach."""

    def __init__(self, value: float) -> None:
        self.value = value

    def predict(self, X: Floats) -> Floats:
        """Return the constant once per row."""
        return np.full(len(X), self.value)


def main_classes(values: NDArray[Any], most: int) -> Rows:
    """Return the most frequent codes, one fewer than `most` where there are more than that."""
    counts = np.bincount(values)
    codes = np.flatnonzero(counts)
    order = codes[np.argsort(-counts[codes], kind="stable")]
    return order if len(order) <= most else order[: most - 1]


def as_classes(values: NDArray[Any], classes: Rows) -> Rows:
    """Return codes as places in `classes`; all others have the place after the last."""
    order = np.argsort(classes)
    sorted_places = np.searchsorted(classes, values, sorter=order)
    # A value above all classes has no place: the last class stands in, and is compared below.
    places = order[np.minimum(sorted_places, len(classes) - 1)]
    is_class = classes[places] == values
    result: Rows = np.where(is_class, places, len(classes))
    return result


# Utility: every column predicted by boosted trees


@dataclass(frozen=True, eq=False)
class Utilities:
    """The grades of predictions of each target on real rows, and the targets without any.

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
            raise self._no_target()
        percents = 100.0 * np.array(list(ratios.values()))
        return float(percents.mean()), tuple(percents.mean(axis=0).tolist())

    def ratio(
        self, table: str, targets: Sequence[str] | None = None
    ) -> tuple[float, Folds]:
        """Return a table's utility in percent of the real rows' own, at most 100.

        The 90th percentile over targets (all by default) of the table's scores over that of the
        real ones: of the means over folds, and in each fold. InputError if no target could be
        predicted, or real rows do not predict any.
        """
        names = [name for name in (targets or self.real) if name in self.real]
        if not names:
            raise self._no_target()
        # (targets, folds) of scores.
        real_scores = np.array([self.real[name] for name in names])
        table_scores = np.array([self.trained_on[table][name] for name in names])

        # DP-TLDM's ratio: the 90th percentile over targets, of either side's means over folds.
        real_top = float(np.quantile(real_scores.mean(axis=1), 0.9))
        if real_top <= 0:
            raise InputError(
                "real rows predict none of the targets; there is no utility to keep"
            )
        table_top = float(np.quantile(table_scores.mean(axis=1), 0.9))
        percent = min(100.0, 100.0 * table_top / real_top)

        per_fold = []
        real_tops = np.quantile(real_scores, 0.9, axis=0)
        table_tops = np.quantile(table_scores, 0.9, axis=0)
        for fold_top, real_fold_top in zip(table_tops, real_tops, strict=True):
            if real_fold_top > 0:  # else the fold has no ratio
                ratio = 100.0 * float(fold_top) / float(real_fold_top)
                per_fold.append(min(100.0, ratio))
        return percent, tuple(per_fold)

    def _no_target(self) -> InputError:
        """Return the error about a table without any predictable column, with the reasons."""
        reasons = "; ".join(
            f"{name}: {reason}" for name, reason in self.left_out.items()
        )
        return InputError(f"there is no target to predict ({reasons})")


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
        >>> table = Table.from_columns({"x": (x, None), "y": (2 * x, None)})
        >>> tables = align({"real": table, "synthetic": table})
        >>> utilities(tables, "real", ("synthetic",), key=0).ratio("synthetic")[0] > 95
        True
    """
    require_tables(tables, real, *sources)
    rows = pick(tables.num_rows[real], max_rows, fold_in(key, "real"))
    owners = tables.owners_of(real)[rows]
    require_folds(len(rows), owners, "real ")
    _require_features(tables)
    folds = folds_of(owners, fold_in(key, "folds"))
    # As many rows as the real rows' own models learn from, so that no table has an advantage.
    most = len(rows) - min(map(len, folds))
    source_rows = {}
    for source in sources:
        source_rows[source] = pick(
            tables.num_rows[source], most, fold_in(key, "rows", source)
        )

    real_scores: dict[str, Folds] = {}
    source_scores: dict[str, dict[str, Folds]] = {source: {} for source in sources}
    relative: dict[str, dict[str, Folds]] = {source: {} for source in sources}
    left_out: dict[str, str] = {}
    columns = tables.columns if targets is None else map(tables.column, targets)
    for column in columns:
        target = column.name
        task = _Task(tables, column, real, rows)
        if not task.possible:
            left_out[target] = "the real rows have one value"
            continue
        target_key = fold_in(key, "fit", target)
        with one_thread():
            real_grades = task.cross_validated(real, rows, folds, target_key)
            real_scores[target] = tuple(grade.score for grade in real_grades)
            for source in sources:
                model = task.fit(
                    source, source_rows[source], fold_in(target_key, source)
                )
                grades = [task.grade(model, fold) for fold in folds]
                source_scores[source][target] = tuple(grade.score for grade in grades)
                if task.is_predicted(real_grades):
                    grade_pairs = zip(grades, real_grades, strict=True)
                    ratios = [
                        grade.beside(real_grade) for grade, real_grade in grade_pairs
                    ]
                    relative[source][target] = tuple(ratios)
    return Utilities(real_scores, source_scores, left_out, relative)


def _require_features(tables: Aligned) -> None:
    """Refuse tables of one column, whose models would have no input."""
    if len(tables.columns) < 2:
        raise InputError("one column has no other to be predicted from")


@dataclass(frozen=True)
class _Grade:
    """The quality of a model's predictions of some rows.

    Attributes:
        score: Macro-F1, or the share of the absolute error that it takes away.
        right: Balanced accuracy of a categorical target, else 0.
        error: Root mean squared error of a numeric target in its standard deviations, else 0.
    """

    score: float
    right: float = 0.0
    error: float = 0.0

    def beside(self, real: _Grade) -> float:
        """Return this model's grade as a share of that of a model which learnt from real rows."""
        if real.right > 0:
            return self.right / real.right
        return (real.error + _TINY) / (self.error + _TINY)


_TINY = 0.01  # of a standard deviation: two models that err by less are alike


class _Task:
    """The prediction of one target: how it is coded, learnt and scored."""

    def __init__(
        self, tables: Aligned, column: AlignedColumn, real: str, rows: Rows
    ) -> None:
        self.tables = tables
        self.column = column
        values = column.values[real][rows]
        if not column.numeric:
            self.classes = main_classes(values, CLASSES)
        self.truth = self._coded(values)
        self.X = features(tables, real, rows, without=column.name)
        self.has_truth = ~np.isnan(self.truth)
        self.possible = len(np.unique(self.truth[self.has_truth])) > 1

    def _coded(self, values: NDArray[Any]) -> Floats:
        """Return a target's values as models learn them: numbers, or places of classes."""
        if self.column.numeric:
            return values
        return as_classes(values, self.classes).astype(np.float64)

    def fit(self, table: str, rows: Rows, key: Key) -> Any:
        """Learn the target from a table's rows; rows without a number teach nothing."""
        y = self._coded(self.column.values[table][rows])
        has_value = ~np.isnan(y)
        values = np.unique(y[has_value])
        # Boosting refuses a target of one value; a model of it answers that value.
        if len(values) < 2:
            only_value = float(values[0]) if len(values) else 0.0
            return Constant(only_value)
        X = features(self.tables, table, rows[has_value], without=self.column.name)
        return boosted(X, y[has_value], key, SHORT, numeric=self.column.numeric)

    def cross_validated(
        self, real: str, rows: Rows, folds: Sequence[Rows], key: Key
    ) -> list[_Grade]:
        """Grade a model on each fold of the real rows that learnt from the other folds."""
        grades = []
        for i, fold in enumerate(folds):
            model = self.fit(real, rows[all_but(folds, i)], fold_in(key, i))
            grades.append(self.grade(model, fold))
        return grades

    def is_predicted(self, grades: Sequence[_Grade]) -> bool:
        """Return whether real rows predict the target, by the grades of their models in all folds.

        One row of 693 million among thousands makes any model worse than the mean, and whichever
        rows predict the mean would be called much better than real ones.
        """
        return not self.column.numeric or fmean(grade.error for grade in grades) < 1

    def grade(self, model: Any, places: Rows) -> _Grade:
        """Compare a model's answers on some of the real rows with the truth."""
        places = places[self.has_truth[places]]
        truth = self.truth[places]
        if len(truth) < 2:
            return _Grade(0.0)
        predicted = model.predict(self.X[places])
        if self.column.numeric:
            return _grade_numbers(truth, predicted)
        return _grade_classes(truth, predicted)


def _grade_numbers(truth: Floats, predicted: Floats) -> _Grade:
    """Compare predicted numbers with the truth."""
    from sklearn.metrics import d2_absolute_error_score

    score = float(np.clip(d2_absolute_error_score(truth, predicted), 0.0, 1.0))
    spread = float(truth.std()) or 1.0
    # Divided before it is squared: squares of large numbers overflow.
    errors = (predicted - truth) / spread
    return _Grade(score, error=float(np.sqrt((errors**2).mean())))


def _grade_classes(truth: Floats, predicted: Floats) -> _Grade:
    """Compare predicted classes with the truth."""
    from sklearn.metrics import f1_score

    # Classes that no real row has would each count 0 in the mean.
    labels = np.unique(truth)
    score = f1_score(truth, predicted, labels=labels, average="macro", zero_division=0)
    recalls = [(predicted[truth == label] == label).mean() for label in labels]
    return _Grade(float(score), right=float(np.mean(recalls)))


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
    """Return the share of real rows that an SVM trained on synthetic rows gets wrong.

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
        >>> table = Table.from_columns({"x": (x, None), "side": (side, None)})
        >>> svm_misclassification(align({"a": table, "b": table}), "a", "b", key=0) < 0.1
        True
    """
    require_tables(tables, real, synthetic)
    _require_features(tables)
    test_rows = pick(tables.num_rows[real], max_rows, fold_in(key, "test"))
    train_rows = pick(tables.num_rows[synthetic], max_rows, fold_in(key, "train"))
    columns = _svm_targets(tables, real, test_rows, targets)
    test = _Part(real, test_rows)
    train = _Part(synthetic, train_rows)
    with one_thread():
        error_rates = [_error_rate(tables, column, train, test) for column in columns]
    return float(np.mean(error_rates))


class _Part(NamedTuple):
    """Some rows of a table."""

    table: str
    rows: Rows

    def values(self, column: AlignedColumn) -> NDArray[Any]:
        """Return the rows' values in a column."""
        values: NDArray[Any] = column.values[self.table][self.rows]
        return values


def _svm_targets(
    tables: Aligned, real: str, rows: Rows, names: Sequence[str] | None
) -> list[AlignedColumn]:
    """Return the named columns, or all categorical ones with two values, as targets."""

    def varies(column: AlignedColumn) -> bool:
        return len(np.unique(column.values[real][rows])) > 1

    if names is None:
        columns = [column for column in tables.categorical if varies(column)]
        if not columns:
            raise InputError(
                "the real rows have no categorical column with two values to predict"
            )
        return columns
    columns = [tables.column(name) for name in names]
    for column in columns:
        if column.numeric:
            raise InputError(
                f"target {column.name!r} is numeric; a classifier needs categories"
            )
        if not varies(column):
            raise InputError(
                f"target {column.name!r} has one value in the real rows used"
            )
    return columns


def _error_rate(
    tables: Aligned, column: AlignedColumn, train: _Part, test: _Part
) -> float:
    """Return the share of test rows whose class a support vector machine gets wrong."""
    from sklearn.svm import SVC

    test_values = test.values(column)
    classes = main_classes(test_values, CLASSES)
    truth = as_classes(test_values, classes)
    y = as_classes(train.values(column), classes)
    X, Z = _standardised(tables, column.name, train, test)
    # The machine refuses rows of one class, from which there is one answer to learn.
    if len(np.unique(y)) < 2:
        model: Any = Constant(float(y[0]))
    else:
        model = SVC(kernel="rbf", gamma="auto").fit(X, y)
    return float((model.predict(Z) != truth).mean())


def _standardised(
    tables: Aligned, without: str, train: _Part, test: _Part
) -> tuple[Floats, Floats]:
    """Scale training and test features by mean and deviation of the training rows."""
    train_features: list[Floats] = []
    test_features: list[Floats] = []
    for column in tables.columns:
        if column.name == without:
            continue
        x = train.values(column)
        z = test.values(column)
        if column.numeric:
            median = np.nanmedian(x) if not np.isnan(x).all() else 0.0
            train_features.append(np.nan_to_num(x, nan=median)[:, None])
            test_features.append(np.nan_to_num(z, nan=median)[:, None])
        else:
            # Rarer values have no indicator, and neither have those that no training row has.
            frequent = main_classes(x, LABELS)
            train_features.append((x[:, None] == frequent).astype(np.float64))
            test_features.append((z[:, None] == frequent).astype(np.float64))
    X = np.hstack(train_features)
    Z = np.hstack(test_features)
    mean = X.mean(axis=0)
    deviation = X.std(axis=0)
    deviation[deviation == 0] = 1.0
    return (X - mean) / deviation, (Z - mean) / deviation


# FLAIM's experiment


def train_on_synthetic(
    synthetic: Codes, real_test: Codes, target: str, *, key: Key
) -> float:
    """Return the AUC on real rows of gradient boosting trained on synthetic rows.

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
    names = real_test.domain.names
    if target not in names:
        raise InputError(
            f"target={target!r} is no attribute; choose from {', '.join(names)}"
        )
    if len(names) < 2:
        raise InputError(
            f"target={target!r} is the only attribute; there is nothing to learn from"
        )
    truth = real_test.column(target)
    labels = synthetic.column(target)
    classes = np.unique(labels)
    if len(np.unique(truth)) < 2:
        raise InputError(
            f"real_test has one class of {target!r}, for which AUC is not defined; choose another "
            "target, or rows with two classes"
        )
    if len(classes) < 2:
        warnings.warn(
            f"AUC is NaN: all {synthetic.num_rows} synthetic rows have the same {target!r}, so "
            "there is nothing to learn",
            stacklevel=2,
        )
        return float("nan")
    from sklearn.ensemble import HistGradientBoostingClassifier

    seed = int(generator(key).integers(2**31))
    model = HistGradientBoostingClassifier(
        max_iter=100,
        max_depth=4,
        learning_rate=0.1,
        early_stopping=False,
        random_state=seed,
    )
    X = _codes_without(synthetic, target)
    Z = _codes_without(real_test, target)
    with one_thread():
        probability = model.fit(X, labels).predict_proba(Z)
    return _macro_auc(truth, probability, classes)


def _codes_without(rows: Codes, target: str) -> NDArray[np.float32]:
    """Return the codes of all attributes but one, as features, (rows, attributes)."""
    names = [name for name in rows.domain.names if name != target]
    return np.column_stack([rows.column(name).astype(np.float32) for name in names])


def _macro_auc(
    truth: NDArray[Any], probability: Floats, classes: NDArray[Any]
) -> float:
    """Return the mean one-vs-rest AUC over the classes in `truth`.

    `classes` are those that the model has learnt, one for each column of its probabilities.
    """
    from sklearn.metrics import roc_auc_score

    columns = {label: place for place, label in enumerate(classes.tolist())}
    areas = []
    for label in np.unique(truth).tolist():
        if label in columns:
            area = float(roc_auc_score(truth == label, probability[:, columns[label]]))
        else:
            # A class that was never shown is not distinguished from the others.
            area = 0.5
        areas.append(area)
    return float(np.mean(areas))
