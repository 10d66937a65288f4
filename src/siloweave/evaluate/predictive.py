"""How much models trained on synthetic rows are worth on real ones, with every column as target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.boosting import (
    SHORT,
    classifier,
    each,
    features,
    folds_of,
    one_thread,
    pick,
    regressor,
)
from siloweave.evaluate.shares import require_tables
from siloweave.tables.aligned import Aligned, AlignedColumn
from siloweave.tables.keys import Key, fold_in

__all__ = ["Utilities", "utilities", "utility_ratio"]

FOLDS = 3
CLASSES = 10
"""Classes of a categorical target: the most frequent real ones, and one for all others."""
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Folds = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Utilities:
    """How well each target is predicted on real rows.

    Attributes:
        real: Per target and fold: trained on the other folds of the real rows.
        trained_on: Per table, target and fold: trained on that table's rows, tested on the same
            folds. Macro-F1 of a categorical target; of a numeric one the share of the absolute
            error that the model takes away (D2), from 0 to 1.
        left_out: Targets that cannot be predicted, and why.
    """

    real: Mapping[str, Folds]
    trained_on: Mapping[str, Mapping[str, Folds]]
    left_out: Mapping[str, str]

    def ratio(self, table: str, targets: Sequence[str] | None = None) -> tuple[float, Folds]:
        """Utility of a table as a share of the real rows' own, in percent.

        The 90th percentile over targets of the table's scores over that of the real ones.

        Args:
            table: One of `trained_on`.
            targets: Some targets; all by default.

        Returns:
            The ratio of the means over folds, and the ratio in each fold; at most 100 each.

        Raises:
            InputError: No target could be predicted, or real rows do not predict any.
        """
        names = [name for name in (targets or self.real) if name in self.real]
        if not names:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.left_out.items())
            raise InputError(f"there is no target to predict ({reasons})")
        ours, theirs = (np.array([side[n] for n in names])
                        for side in (self.real, self.trained_on[table]))  # fmt: skip
        best = float(np.quantile(ours.mean(axis=1), 0.9))
        if best <= 0:
            raise InputError("real rows predict none of the targets; there is no utility to keep")
        tops = np.quantile(theirs, 0.9, axis=0), np.quantile(ours, 0.9, axis=0)
        per_fold = [
            min(100.0, 100.0 * float(t) / float(o)) for t, o in zip(*tops, strict=True) if o > 0
        ]
        whole = 100.0 * float(np.quantile(theirs.mean(axis=1), 0.9)) / best
        return min(100.0, whole), tuple(per_fold)


def utility_ratio(
    tables: Aligned,
    real: str,
    synthetic: str,
    *,
    key: Key,
    target: str | None = None,
    max_rows: int = 6_000,
) -> float:
    """Utility of synthetic rows as a share of the real rows' own, in percent.

    Every column is the target once; boosted trees learn it from all others, in 3 folds of the real
    rows. Categorical: macro-F1, the nine most frequent real values as they are and the rest as
    one. Numeric: D2 of the absolute error, clipped to [0, 1], of trees that minimise squared
    errors. Then the ratio of the 90th percentiles over columns, so it tells about the columns that
    can be predicted well.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.
        key: Which rows, which folds and the trees.
        target: One column only, instead of all.
        max_rows: Real rows used, at most; models of either table learn from two thirds as many.

    Returns:
        0 to 100.

    Raises:
        InputError: There is no such table or target, fewer rows than folds, or nothing that real
            rows predict.

    Source:
        Zhu et al., *DP-TLDM*, 2024, evaluation (3-fold, D2 clipped), after SiloFuse, ICDE 2024,
        evaluation (90th percentile, ratio); trees of scikit-learn instead of XGBoost's.

    Example:
        >>> from siloweave.tables import Table, align
        >>> x = np.linspace(0.1, 1, 90)
        >>> one = Table.from_columns({"x": (x, None), "y": (2 * x, None)})
        >>> both = align({"real": one, "synthetic": one})
        >>> utility_ratio(both, "real", "synthetic", key=0) > 95
        True
    """
    if target is not None:
        tables.column(target)
    found = utilities(
        tables, real, (synthetic,), key=key, max_rows=max_rows,
        targets=None if target is None else (target,),
    )  # fmt: skip
    return found.ratio(synthetic)[0]


def utilities(
    tables: Aligned,
    real: str,
    sources: Sequence[str],
    *,
    key: Key,
    targets: Sequence[str] | None = None,
    max_rows: int = 6_000,
) -> Utilities:
    """Predict real rows from several tables; the real rows' own models are fitted once.

    A table's model is fitted once on its own rows and tested on each fold of the real rows.

    Args:
        tables: All tables, aligned.
        real: The real table's name.
        sources: Names of the tables to learn from.
        key: Which rows, which folds and the trees.
        targets: Columns to predict; all by default.
        max_rows: Real rows used, at most; every model learns from two thirds as many.

    Returns:
        All scores.

    Raises:
        InputError: There is no such table, fewer real rows than folds, or one column only.
    """
    require_tables(tables, real, *sources)
    rows = pick(tables.num_rows[real], max_rows, fold_in(key, "real"))
    if len(rows) < FOLDS:
        raise InputError(f"{len(rows)} real rows are fewer than {FOLDS} folds; give more rows")
    if len(tables.columns) < 2:
        raise InputError("one column has no other to be predicted from")
    folds = folds_of(len(rows), FOLDS, fold_in(key, "folds"))
    most = len(rows) - min(map(len, folds))
    picked = {
        name: pick(tables.num_rows[name], most, fold_in(key, "rows", name)) for name in sources
    }
    ours: dict[str, Folds] = {}
    theirs: dict[str, dict[str, Folds]] = {name: {} for name in sources}
    left_out: dict[str, str] = {}
    for column in tables.columns if targets is None else map(tables.column, targets):
        task = _Task(tables, column, real, rows)
        if not task.possible:
            left_out[column.name] = "the real rows have one value"
            continue
        seed = fold_in(key, "fit", column.name)
        with one_thread():
            ours[column.name] = tuple(
                task.score(task.fit(real, rows[each(folds, i)], fold_in(seed, i)), fold)
                for i, fold in enumerate(folds)
            )
            for name in sources:
                model = task.fit(name, picked[name], fold_in(seed, name))
                theirs[name][column.name] = tuple(task.score(model, fold) for fold in folds)
    return Utilities(ours, theirs, left_out)


class Constant:
    """A model that always answers the same: all that rows of one value teach."""

    def __init__(self, value: float) -> None:
        self.value = value

    def predict(self, X: Floats) -> Floats:
        """Answer once per row."""
        return np.full(len(X), self.value)


class _Task:
    """One target: how it is coded, learnt and scored."""

    def __init__(self, tables: Aligned, column: AlignedColumn, real: str, rows: Rows) -> None:
        self.tables, self.column = tables, column
        values = column.values[real][rows]
        if not column.numeric:
            self.kept = main_classes(values, CLASSES)
        self.truth = self._coded(values)
        self.X = features(tables, real, rows, without=column.name)
        self.known = ~np.isnan(self.truth)
        self.possible = len(np.unique(self.truth[self.known])) > 1

    def _coded(self, values: NDArray[Any]) -> Floats:
        return values if self.column.numeric else as_classes(values, self.kept).astype(np.float64)

    def fit(self, table: str, rows: Rows, key: Key) -> Any:
        """Learn the target from a table's rows; rows without a number teach nothing."""
        y = self._coded(self.column.values[table][rows])
        known = ~np.isnan(y)
        values = np.unique(y[known])
        if len(values) < 2:
            return Constant(float(values[0]) if len(values) else 0.0)
        X = features(self.tables, table, rows[known], without=self.column.name)
        learn = regressor if self.column.numeric else classifier
        return learn(X, y[known], key, SHORT)

    def score(self, model: Any, places: Rows) -> float:
        """Score a model on some of the real rows."""
        from sklearn.metrics import d2_absolute_error_score, f1_score

        places = places[self.known[places]]
        truth = self.truth[places]
        if len(truth) < 2:
            return 0.0
        said = model.predict(self.X[places])
        if self.column.numeric:
            return float(np.clip(d2_absolute_error_score(truth, said), 0.0, 1.0))
        labels = np.unique(truth)
        return float(f1_score(truth, said, labels=labels, average="macro", zero_division=0))


def main_classes(values: NDArray[Any], most: int) -> NDArray[np.int64]:
    """The most frequent codes, one fewer than `most` where there are more than that."""
    counts = np.bincount(values)
    seen = np.flatnonzero(counts)
    order = seen[np.argsort(-counts[seen], kind="stable")]
    return order if len(order) <= most else order[: most - 1]


def as_classes(values: NDArray[Any], kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Codes as places in `kept`; all others have the place after the last."""
    order = np.argsort(kept)
    at = np.minimum(np.searchsorted(kept, values, sorter=order), len(kept) - 1)
    found: NDArray[np.int64] = np.where(kept[order][at] == values, order[at], len(kept))
    return found
