"""Gradient boosting over aligned tables, small and seeded, to be run inside `one_thread`.

Features are numbers as they are and categories as codes; a missing value is missing, which the
trees split on. Histogram boosting of scikit-learn without early stopping.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.tables.aligned import Aligned
from siloweave.tables.keys import Key, fold_in, generator

__all__ = [
    "LONG",
    "SHORT",
    "Trees",
    "classifier",
    "features",
    "folds_of",
    "one_thread",
    "pick",
    "regressor",
]

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Trees:
    """How many trees per class, how large, the learning rate, and what is added to a leaf's weight.

    Without `shrink`, one odd row in a leaf that is otherwise sure of its class gives that leaf
    thousands of nats, and boosting of many classes does not recover (decision 0020).
    """

    count: int
    leaves: int
    rate: float
    shrink: float = 0.0


SHORT = Trees(30, 8, 0.2, shrink=1.0)
"""Enough to predict a column: there are many to fit."""
LONG = Trees(100, 31, 0.1)
"""The library's own; a judge of less misses relations, and differs from seed to seed."""


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


def folds_of(count: int, folds: int, key: Key) -> list[Rows]:
    """Split places into folds of nearly equal size, at random."""
    return [np.sort(part) for part in np.array_split(generator(key).permutation(count), folds)]


def classifier(X: Floats, y: NDArray[Any], key: Key, trees: Trees) -> Any:
    """Fit a classifier; `y` holds two classes or more."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    seed = int(generator(fold_in(key, "trees")).integers(2**31))
    model = HistGradientBoostingClassifier(random_state=seed, **_settings(len(X), trees))
    return model.fit(X, y)


def regressor(X: Floats, y: Floats, key: Key, trees: Trees) -> Any:
    """Fit a regressor of the squared error, as XGBoost by default (decision 0017)."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    seed = int(generator(fold_in(key, "trees")).integers(2**31))
    model = HistGradientBoostingRegressor(random_state=seed, **_settings(len(X), trees))
    return model.fit(X, y)


def _settings(rows: int, trees: Trees) -> dict[str, Any]:
    return {
        "max_iter": trees.count,
        "max_leaf_nodes": trees.leaves,
        "learning_rate": trees.rate,
        "l2_regularization": trees.shrink,
        "min_samples_leaf": max(1, min(20, rows // 20)),
        "early_stopping": False,
    }


def each(groups: Sequence[Rows], left_out: int) -> Rows:
    """All places but one group's."""
    return np.concatenate([part for i, part in enumerate(groups) if i != left_out])
