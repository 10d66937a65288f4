"""Can a classifier distinguish synthetic rows from real ones, and by which columns?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from siloweave.errors import InputError
from siloweave.evaluate.predictive import (
    FOLDS,
    LONG,
    Trees,
    all_but,
    boosted,
    features,
    folds_of,
    one_thread,
    pick,
    require_folds,
)
from siloweave.evaluate.shares import quantiles, require_tables
from siloweave.tables.aligned import Aligned
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.keys import Key, fold_in, generator

INDICATORS = 100
"""Of one categorical column, at most."""
_CELLS = 20
"""Of a column whose counts are compared, where it has more values."""
_FEWEST_ROWS = 10
"""Of both tables together; cells with fewer are left out, since chi-square is off there."""
_FREEDOM = 20
"""Degrees of freedom of all columns, at least: fewer say little."""
_TOO_EQUAL = 0.25
"""Far below what samples of one source have (.7 to 1.4 on six tables); raked rows have .07, .15."""


@dataclass(frozen=True, eq=False)
class Discriminator:
    """The result of classifiers that distinguish synthetic rows from real ones.

    Attributes:
        truth: Per row used, 1 where it is synthetic; int64, half of them.
        probability: Per row, the probability of being synthetic that a classifier gave which had
            not seen the row; float64.
        fold: Per row, the fold in which it was scored; int64.
        distinguishing: Per column, how much area under the curve is lost when its values are
            shuffled among the rows of one fold; the largest loss first. Empty unless asked for.
        reduced_chi_square: Of the counts of single columns in the rows of both tables: about 1
            where they differ as two samples of one source do. NaN where columns have few values.
    """

    truth: Ints
    probability: Floats
    fold: Ints
    distinguishing: tuple[tuple[str, float], ...] = ()
    reduced_chi_square: float = math.nan

    @property
    def is_deceived(self) -> bool:
        """Whether counts of single columns agree better than chance allows, as after raking.

        What the rows learnt from have too many of, the rows scored then have too few of. So the
        area under the curve is too low, and `detection` too high.
        """
        return self.reduced_chi_square < _TOO_EQUAL

    @property
    def propensity(self) -> float:
        """One minus the mean distance of the probabilities from 1/2: 0.5 (always sure) to 1."""
        return 1.0 - float(np.abs(self.probability - 0.5).mean())

    @property
    def auc(self) -> float:
        """Area under the ROC curve: 1/2 where rows cannot be distinguished, 1 where all can.

        Below 1/2 rows stand in both tables: the classifier has seen the twin with the other label.
        Or it `is_deceived`.
        """
        return _area(self.truth, self.probability)

    @property
    def detection(self) -> float:
        """The difficulty of distinguishing rows: 1 if the AUC is 1/2 or less, 0 if it is 1.

        One minus the mean over folds of 2 max(AUC, 1/2) - 1, as SDMetrics' detection scores.
        """
        excess = [2.0 * max(fold.auc, 0.5) - 1.0 for fold in self.per_fold]
        return 1.0 - float(np.mean(excess))

    @property
    def per_fold(self) -> tuple[Discriminator, ...]:
        """The results for the rows of each fold alone."""
        parts = []
        for fold in np.unique(self.fold):
            in_fold = self.fold == fold
            part = Discriminator(
                self.truth[in_fold], self.probability[in_fold], self.fold[in_fold]
            )
            parts.append(part)
        return tuple(parts)


def _area(truth: Ints, score: Floats) -> float:
    """Return the area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, score))


def discriminate(
    tables: Aligned,
    real: str,
    synthetic: str,
    *,
    key: Key,
    max_rows: int = 6_000,
    rank_columns: bool = False,
    linear: bool = False,
    trees: Trees | None = None,
) -> Discriminator:
    """Fit classifiers to distinguish both tables' rows, in three folds.

    As many rows of either table, each scored by the classifier that did not see it: boosted trees,
    or, if `linear`, a logistic regression on standardised numbers and indicators of categories and
    of missing values, which sees single columns and their shares but no relation. The key draws at
    most `max_rows` rows of either table and the folds, and seeds the trees. `rank_columns`: find
    the columns that distinguish synthetic rows best. `trees`: how many trees and how large; those
    of `LONG` if None. All are grown: a judge that stops early calls raked rows real. With `trees`,
    categories are coded by how often both tables have them, so that a code does not say whose a
    row is.

    Raises:
        InputError: There is no such table, or one has fewer rows than folds.

    Source:
        Zhu et al., *DP-TLDM*, 2024, evaluation (discriminability), and SiloFuse, ICDE 2024,
        evaluation (propensity); trees of scikit-learn instead of XGBoost's, and rows scored out of
        fold, so that a classifier that memorised rows does not count as one that distinguishes
        them. Linear: the logistic detection of SDMetrics.

    Example:
        >>> from siloweave.tables import Table, align
        >>> low = Table.from_columns({"x": (np.linspace(0.1, 1, 60), None)})
        >>> high = Table.from_columns({"x": (np.linspace(2.1, 3, 60), None)})
        >>> tables = align({"real": low, "synthetic": high})
        >>> discriminate(tables, "real", "synthetic", key=0).auc
        1.0
    """
    require_tables(tables, real, synthetic)
    count = min(tables.num_rows[real], tables.num_rows[synthetic], max_rows)
    if count < FOLDS:
        raise InputError(
            f"{count} rows of each table are fewer than {FOLDS} folds; give more rows"
        )
    parts: list[Floats] = []
    halves_of_folds: list[list[Ints]] = []
    for i, table in enumerate((real, synthetic)):
        rows = pick(tables.num_rows[table], count, fold_in(key, "rows", i))
        owners = tables.owners_of(table)[rows]
        require_folds(count, owners, "")
        parts.append(features(tables, table, rows))
        halves_of_folds.append(folds_of(owners, fold_in(key, "folds", i)))

    # The real rows first, then the synthetic ones; each fold takes its part of both.
    X = np.concatenate(parts)
    y = np.repeat([0, 1], count)
    if trees is not None:
        _code_alike(X, tables)
    folds = []
    for real_places, synthetic_places in zip(*halves_of_folds, strict=True):
        folds.append(np.concatenate([real_places, synthetic_places + count]))

    kinds = [column.numeric for column in tables.columns] if linear else None
    probability = np.zeros(2 * count)
    fold_of_row = np.zeros(2 * count, dtype=np.int64)
    distinguishing: tuple[tuple[str, float], ...] = ()
    with one_thread():
        for i, fold in enumerate(folds):
            training = all_but(folds, i)
            fit_key = fold_in(key, "fit", i)
            model = _judge(X[training], y[training], fit_key, kinds, trees or LONG)
            probability[fold] = model.predict_proba(X[fold])[:, 1]
            fold_of_row[fold] = i
            if rank_columns and i == 0:
                lost_areas = _lost_area(
                    model, X[fold], y[fold], fold_in(key, "shuffle")
                )
                ranked = zip(tables.names, lost_areas, strict=True)
                distinguishing = tuple(sorted(ranked, key=lambda column: -column[1]))
    chi_square = _reduced_chi_square(X, y)
    return Discriminator(y, probability, fold_of_row, distinguishing, chi_square)


def _reduced_chi_square(X: Floats, y: Ints) -> float:
    """Return chi-square over its degrees of freedom, of the counts of all columns.

    As many rows have each label. Columns are taken as if they knew nothing of each other, which
    leaves the mean at 1.
    """
    total = 0.0
    freedom = 0
    for column in X.T:
        present_values = column[~np.isnan(column)]
        if not len(present_values):
            continue
        cuts = np.unique(present_values)
        if len(cuts) > _CELLS:
            levels = np.arange(1, _CELLS) / _CELLS
            cuts = np.unique(quantiles(np.sort(present_values), levels))
        cells = np.searchsorted(cuts, column)
        cells[np.isnan(column)] = len(cuts) + 1
        real_rows = np.bincount(cells[y == 0], minlength=len(cuts) + 2)
        synthetic_rows = np.bincount(cells[y == 1], minlength=len(cuts) + 2)
        both = real_rows + synthetic_rows
        is_counted = both >= _FEWEST_ROWS
        gaps = (real_rows - synthetic_rows)[is_counted]
        total += float((gaps**2 / both[is_counted]).sum())
        freedom += max(int(is_counted.sum()) - 1, 0)
    return total / freedom if freedom >= _FREEDOM else math.nan


def _code_alike(X: Floats, tables: Aligned) -> None:
    """Code categories in place, the most frequent one of both tables first, ties by name.

    Aligned tables have the first table's categories first, so that a high code says that a row is
    of the other one: real rows held out of a column of 2,000 rare names were recognised by it.
    """
    for place, column in enumerate(tables.columns):
        if column.numeric:
            continue
        has_value = ~np.isnan(X[:, place])
        codes = X[has_value, place].astype(np.int64)
        counts = np.bincount(codes, minlength=len(column.labels))
        names = [str(label) for label in column.labels]
        order = sorted(range(len(names)), key=lambda code: (-counts[code], names[code]))
        # The inverse of the order: each code's rank.
        ranks = np.empty(len(names))
        ranks[order] = np.arange(len(names))
        X[has_value, place] = ranks[codes]


def _judge(
    X: Floats, y: Ints, key: Key, numeric: Sequence[bool] | None, trees: Trees
) -> Any:
    """Fit trees, or, where `numeric` says which columns are numbers, a logistic regression.

    Of a column with more than 100 categories the rarest share one indicator.
    """
    if numeric is None:
        return boosted(X, y, key, trees)
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    is_numeric = np.asarray(numeric)
    imputer = SimpleImputer(add_indicator=True, keep_empty_features=True)
    numbers = make_pipeline(imputer, StandardScaler())
    categories = OneHotEncoder(
        max_categories=INDICATORS, handle_unknown="infrequent_if_exist"
    )
    transformer = make_column_transformer(
        (numbers, np.flatnonzero(is_numeric)), (categories, np.flatnonzero(~is_numeric))
    )
    # Its solver draws nothing.
    model = LogisticRegression(max_iter=1_000, random_state=0)
    return make_pipeline(transformer, model).fit(X, y)


def _lost_area(model: Any, X: Floats, y: Ints, key: Key) -> list[float]:
    """Return the area lost when one column at a time is shuffled among the rows."""

    def area_of(rows: Floats) -> float:
        return _area(y, model.predict_proba(rows)[:, 1])

    area = area_of(X)
    lost_areas = []
    for j in range(X.shape[1]):
        shuffled = X.copy()
        shuffled[:, j] = generator(fold_in(key, j)).permutation(X[:, j])
        # Chance may lift the area a little; that is no loss.
        lost_areas.append(max(0.0, area - area_of(shuffled)))
    return lost_areas
