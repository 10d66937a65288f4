"""Inversion: how much of the rows do their latents give away, once a few pairs are known?

Some methods hand a vector per real row to a coordinator and call it protected because nobody can
invert an unknown encoder. Whoever holds a few pairs of latent and row, leaked or made by the
released decoder, fits an inverse by plain regression and applies it to all other latents. This
attack does so and counts the cells that come back. After Fredrikson, Jha and Ristenpart, *Model
inversion attacks that exploit confidence information*, CCS 2015, and He, Zhang and Lee, *Model
inversion attacks against collaborative inference*, ACSAC 2019; success within 5% as in Giomi et
al., *A unified framework for quantifying privacy risk in synthetic data*, PoPETs 2023(2).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from siloweave.attacks.rates import Rate, Risk, privacy_risk, wilson
from siloweave.errors import InputError, number
from siloweave.tables.aligned import Aligned, AlignedColumn, align
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.schema import Schema

Guess = Callable[[Floats, NDArray[Any], Floats], NDArray[Any]]
Judge = Callable[[NDArray[Any], NDArray[Any]], Bools]
Inverter = Literal["ridge", "neighbours", "boosting"]
"""A way to regress a column on latents."""
_INVERTERS: tuple[Inverter, ...] = ("ridge", "neighbours", "boosting")
_FOLDS = 3
_LEAST = 2 * _FOLDS  # known values of a column
_CLASSES = 24  # boosting fits a tree per class and step; more take too long
_NEAR = (1, 5)  # numbers of neighbours that are tried
_TRIED = 512  # constants that are tried at most
_BEYOND = 2.0  # standard errors by which a method must beat the constant


class Inverted(msgspec.Struct, frozen=True):
    """The share of cells that an adversary recovered, beside that of a guess without latents.

    Attributes:
        recovered: Share of the cells that were guessed right from latents.
        baseline: Share that the best constant guess of each column gets right, learned from the
            same known rows.
        risk: (recovered - baseline) / (1 - baseline), with its interval.
        cells: How many cells were judged.
    """

    recovered: Rate
    baseline: Rate
    risk: Risk
    cells: int


class ColumnInversion(msgspec.Struct, frozen=True):
    """The share of one column's cells that were recovered.

    Attributes:
        name: The column.
        kind: Numbers are right within 5%, categories if equal.
        method: What guessed best on the known pairs; "constant" if latents did not help there.
        found: How many cells came back.
        missing: Cells without a value, which are not judged; a missing category is one of its own.
    """

    name: str
    kind: Literal["numeric", "categorical"]
    method: str
    found: Inverted
    missing: int


class InversionRisk(msgspec.Struct, frozen=True):
    """The cells that latents give away, over all columns and for each.

    Attributes:
        columns: One each.
        categorical: Over all cells of categorical columns; None if there is no such column.
        numeric: Over all cells of numeric columns; None if there is no such column.
        rows: Share of rows of which every judged cell came back, and the same for the baseline.
        not_measured: Column to the reason why not.
        known: Leaked pairs.
        synthetic: Pairs that the adversary made itself.
        judged: Rows that were judged, none of them known.
        tolerance: How far off a number may be, relative to it.
        confidence: Of every interval. Cells of a row depend on each other, so intervals over
            several columns are as wide as if each row were one cell.
    """

    columns: tuple[ColumnInversion, ...]
    categorical: Inverted | None
    numeric: Inverted | None
    rows: Inverted
    not_measured: Mapping[str, str]
    known: int
    synthetic: int
    judged: int
    tolerance: float
    confidence: float

    @property
    def worst(self) -> ColumnInversion:
        """The column of which latents give away most."""
        return max(self.columns, key=lambda column: column.found.risk.excess)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Latents, and the rows to which they belong.

    Attributes:
        latents: (pairs, dimensions).
        source: Tables and places of their rows, in the order of the latents.
    """

    latents: Floats
    source: Sequence[tuple[str, Ints]]

    def values(self, column: AlignedColumn) -> NDArray[Any]:
        """Return the rows' values in a column."""
        return np.concatenate(
            [column.values[table][rows] for table, rows in self.source]
        )

    def missing(self, column: AlignedColumn) -> Bools:
        """Return which rows have no value in a column."""
        return np.concatenate(
            [column.missing(table)[rows] for table, rows in self.source]
        )


@dataclass(frozen=True, eq=False)
class _Marks:
    """The right guesses of a column's cells in the judged rows, and the cells that count.

    Attributes:
        recovered: Whether the guess from latents is right.
        constant: Whether the constant guess is right.
        has_truth: Whether there is a value to judge by.
    """

    recovered: Bools
    constant: Bools
    has_truth: Bools


@dataclass(frozen=True, eq=False)
class _Task:
    """All that the inversion of every column reads.

    Attributes:
        leaked: Pairs that the adversary learns from, its own among them.
        judged: Latents whose rows are guessed.
    """

    leaked: _Pairs
    judged: _Pairs
    methods: tuple[Inverter, ...]
    tolerance: float
    confidence: float
    key: Key


def invert(
    latents: ArrayLike,
    rows: Any,
    known: int | Sequence[int],
    *,
    key: Key,
    synthetic: tuple[ArrayLike, Any] | None = None,
    schema: Schema | None = None,
    methods: Sequence[Inverter] = _INVERTERS,
    most: int | None = 10_000,
    tolerance: float = 0.05,
    confidence: float = 0.95,
) -> InversionRisk:
    """Recover rows from latents, with an inverse learned from known pairs.

    For each column the method is picked by three-fold cross-validation on the known pairs only;
    rows that are judged are never read before. The cells that came back stand beside those that
    the best constant guess gets right.

    Args:
        latents: (rows, dimensions): one vector per row, finite.
        rows: The rows: a `Table`, frame or path.
        known: How many rows leaked, or which.
        key: Which rows leaked, folds, and the methods' own.
        synthetic: Latents and rows that the adversary made with a released decoder; with them,
            `known` may be 0.
        schema: Kinds of the columns; detected if None.
        methods: Which methods to try; a constant guess always competes.
        most: How many of the other rows are judged at most, drawn by `key`; None for all.
        tolerance: How far off a number may be, relative to its size; for datetimes relative to
            the range of the known ones, as their zero means nothing.
        confidence: Of every interval.

    Raises:
        InputError: Latents do not fit the rows, or too few pairs are known.
        SchemaError, DataError: Rows and synthetic rows do not go together.
    """
    tables = {"rows": rows}
    if synthetic is not None:
        _, tables["synthetic"] = synthetic
    aligned = align(tables, schema)
    if not methods or any(name not in _INVERTERS for name in methods):
        raise InputError(
            f"methods={list(methods)}: choose from {', '.join(_INVERTERS)}"
        )
    number("tolerance", tolerance, 0, 1, "[)")

    # Split the rows: those whose pairs leaked, and those that are judged.
    vectors = _vectors(latents, aligned.num_rows["rows"], "latents")
    leaked_rows = _leaked_rows(known, len(vectors), fold_in(key, "known"))
    judged_rows = np.setdiff1d(np.arange(len(vectors)), leaked_rows)
    if most is not None and len(judged_rows) > most:
        rng = generator(fold_in(key, "judged"))
        judged_rows = np.sort(rng.choice(judged_rows, size=most, replace=False))

    # The adversary learns from leaked pairs and from those that it made itself.
    parts = [vectors[leaked_rows]]
    source = [("rows", leaked_rows)]
    if synthetic is not None:
        synthetic_latents, _ = synthetic
        num_synthetic = aligned.num_rows["synthetic"]
        parts.append(_vectors(synthetic_latents, num_synthetic, "synthetic latents"))
        source.append(("synthetic", np.arange(num_synthetic)))
    leaked_latents, judged_latents = _standardised(parts, vectors[judged_rows])
    if len(leaked_latents) < _LEAST:
        raise InputError(
            f"{len(leaked_latents)} pairs are known; at least {_LEAST} are needed to learn an "
            "inverse. Let more rows leak, or give synthetic pairs"
        )
    if not len(judged_rows):
        raise InputError(
            "every row is known, so none is left to be judged; let fewer leak"
        )

    task = _Task(
        leaked=_Pairs(leaked_latents, source),
        judged=_Pairs(judged_latents, [("rows", judged_rows)]),
        methods=tuple(methods),
        tolerance=tolerance,
        confidence=confidence,
        key=key,
    )
    return _inverted(aligned, task, len(leaked_rows))


def _inverted(aligned: Aligned, task: _Task, num_leaked: int) -> InversionRisk:
    """Invert each column on its own, and count over all columns and over rows."""
    columns: list[ColumnInversion] = []
    not_measured: dict[str, str] = {}
    marks: dict[str, list[_Marks]] = {"categorical": [], "numeric": []}
    for column in aligned.columns:
        reason = _reason_not_measured(column, task)
        if reason:
            not_measured[column.name] = reason
            continue
        method, column_marks = _column(column, task)
        marks[column.kind].append(column_marks)
        columns.append(_column_inversion(column, method, column_marks, task.confidence))
    if not columns:
        raise InputError(f"no column can be judged: {'; '.join(not_measured.values())}")

    # A row came back if every cell of it that counts did.
    num_judged = len(task.judged.latents)
    all_marks = [*marks["categorical"], *marks["numeric"]]
    is_recovered = np.all([m.recovered | ~m.has_truth for m in all_marks], axis=0)
    is_constant = np.all([m.constant | ~m.has_truth for m in all_marks], axis=0)
    recovered_rows = is_recovered.sum()
    constant_rows = is_constant.sum()
    return InversionRisk(
        columns=tuple(columns),
        categorical=_pooled(marks["categorical"], task.confidence),
        numeric=_pooled(marks["numeric"], task.confidence),
        rows=_share(recovered_rows, constant_rows, num_judged, task.confidence),
        not_measured=not_measured,
        known=num_leaked,
        synthetic=len(task.leaked.latents) - num_leaked,
        judged=num_judged,
        tolerance=task.tolerance,
        confidence=task.confidence,
    )


def _column_inversion(
    column: AlignedColumn, method: str, marks: _Marks, confidence: float
) -> ColumnInversion:
    """Count the cells of one column that came back."""
    has_truth = marks.has_truth
    num_recovered = marks.recovered[has_truth].sum()
    num_constant = marks.constant[has_truth].sum()
    share = _share(num_recovered, num_constant, has_truth.sum(), confidence)
    num_missing = int((~has_truth).sum())
    return ColumnInversion(column.name, column.kind, method, share, num_missing)


def _share(
    recovered: float, constant: float, trials: float, confidence: float, cells: int = 0
) -> Inverted:
    """Compare how often a guess from latents is right with how often the constant guess is."""
    recovered_counts = (float(recovered), float(trials))
    constant_counts = (float(constant), float(trials))
    return Inverted(
        recovered=_rate(recovered_counts, confidence),
        baseline=_rate(constant_counts, confidence),
        risk=privacy_risk(recovered_counts, constant_counts, confidence),
        cells=cells or int(trials),
    )


def _rate(counts: tuple[float, float], confidence: float) -> Rate:
    """Return the share of successes, with Wilson's interval for it.

    That interval's own centre, which is shrunk towards 1/2, is not taken as the value.
    """
    successes, trials = counts
    interval = wilson(successes, trials, confidence)
    return msgspec.structs.replace(interval, value=successes / trials)


def _pooled(marks: Sequence[_Marks], confidence: float) -> Inverted | None:
    """Count the cells of some columns, as if each row were one cell; None without a column."""
    if not marks:
        return None
    has_truth = np.stack([m.has_truth for m in marks])
    num_cells = int(has_truth.sum())
    num_rows = int(has_truth.any(axis=0).sum())
    num_recovered = sum(int((m.recovered & m.has_truth).sum()) for m in marks)
    num_constant = sum(int((m.constant & m.has_truth).sum()) for m in marks)

    # Cells of a row depend on each other, so that an interval from all cells would be too narrow.
    rows_per_cell = num_rows / num_cells
    return _share(
        num_recovered * rows_per_cell,
        num_constant * rows_per_cell,
        num_rows,
        confidence,
        num_cells,
    )


def _column(column: AlignedColumn, task: _Task) -> tuple[str, _Marks]:
    """Pick a method on the known pairs, and guess the cells of the judged rows."""
    is_usable = _has_cell(column, task.leaked)
    latents = task.leaked.latents[is_usable]
    values = task.leaked.values(column)[is_usable]
    is_right = _judge(column, values, task.tolerance)

    # The truth of the judged rows is read after the method is picked, to be compared with.
    methods = _methods(column, values, task, is_right)
    fold_key = fold_in(task.key, "folds", column.name)
    method = _picked(methods, latents, values, is_right, fold_key)
    with threadpool_limits(limits=1):
        guesses = methods[method](latents, values, task.judged.latents)
    constant_guesses = methods["constant"](latents, values, task.judged.latents)

    truth = task.judged.values(column)
    marks = _Marks(
        recovered=is_right(guesses, truth),
        constant=is_right(constant_guesses, truth),
        has_truth=_has_cell(column, task.judged),
    )
    method_name, _, _ = method.partition(" ")
    return method_name, marks


def _has_cell(column: AlignedColumn, pairs: _Pairs) -> Bools:
    """Return which cells count: all categories, a missing one included, and numbers present."""
    is_missing = pairs.missing(column)
    if column.numeric:
        return ~is_missing
    return np.ones(len(is_missing), dtype=bool)


def _judge(column: AlignedColumn, values: NDArray[Any], tolerance: float) -> Judge:
    """Return how guesses of a column are judged: equal categories, and near numbers."""
    if not column.numeric:
        return lambda guess, truth: guess == truth
    width = float(np.ptp(values)) if len(values) else 0.0

    def is_near(guess: NDArray[Any], truth: NDArray[Any]) -> Bools:
        rounded = np.round(guess) if column.whole else guess
        # A datetime's zero means nothing, so its size is no scale.
        scale = width if column.datetimes else np.abs(truth)
        near: Bools = np.abs(rounded - truth) <= tolerance * scale
        return near

    return is_near


def _methods(
    column: AlignedColumn, values: NDArray[Any], task: _Task, is_right: Judge
) -> dict[str, Guess]:
    """Return the methods that apply to a column, by name, the constant guess first."""

    def guess_constant(
        latents: Floats, values: NDArray[Any], asked_latents: Floats
    ) -> NDArray[Any]:
        return _constant(values, len(asked_latents), is_right)

    seed = int(generator(fold_in(task.key, "method", column.name)).integers(2**31))
    methods: dict[str, Guess] = {"constant": guess_constant}
    num_values = len(np.unique(values))
    if num_values < 2:
        return methods
    for method in task.methods:
        if method == "neighbours":
            for near in _NEAR:
                methods[f"neighbours {near}"] = _fitted(
                    column.numeric, method, seed, near
                )
        elif method == "ridge" or column.numeric or num_values <= _CLASSES:
            methods[method] = _fitted(column.numeric, method, seed)
    return methods


def _constant(values: NDArray[Any], count: int, is_right: Judge) -> NDArray[Any]:
    """Return, `count` times, the value with which a constant guess is right most often."""
    candidates = np.unique(values)
    if len(candidates) > _TRIED:  # of many numbers, the best lies where they are dense
        candidates = np.quantile(values, np.linspace(0, 1, _TRIED), method="nearest")
    hits = []
    for candidate in candidates:
        guesses = np.full(len(values), candidate)
        hits.append(int(is_right(guesses, values).sum()))
    return np.full(count, candidates[int(np.argmax(hits))])


def _fitted(numeric: bool, method: Inverter, seed: int, near: int = 1) -> Guess:
    """Return the guess of a model that is fitted to the known pairs."""

    def guess(
        latents: Floats, values: NDArray[Any], asked_latents: Floats
    ) -> NDArray[Any]:
        # A fold may have one value only, which classifiers refuse to learn from.
        if len(np.unique(values)) < 2:
            return np.full(len(asked_latents), values[0])
        model = _model(numeric, method, seed, min(near, len(values)))
        return np.asarray(model.fit(latents, values).predict(asked_latents))

    return guess


def _model(numeric: bool, method: Inverter, seed: int, near: int) -> Any:
    """Return the regressor or classifier of a method, before it is fitted."""
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )
    from sklearn.linear_model import RidgeClassifierCV, RidgeCV
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    if method == "ridge":
        ridge = RidgeCV if numeric else RidgeClassifierCV
        return ridge(alphas=(1e-4, 1e-2, 1.0, 100.0))
    if method == "neighbours":
        neighbours = KNeighborsRegressor if numeric else KNeighborsClassifier
        return neighbours(near)
    # A number counts as right within a few percent: the median is nearer to most than the mean.
    absolute_error = partial(HistGradientBoostingRegressor, loss="absolute_error")
    trees = absolute_error if numeric else HistGradientBoostingClassifier
    return trees(
        max_iter=60,
        learning_rate=0.15,
        max_leaf_nodes=15,
        min_samples_leaf=5,
        early_stopping=False,
        random_state=seed,
    )


def _picked(
    methods: Mapping[str, Guess],
    latents: Floats,
    values: NDArray[Any],
    is_right: Judge,
    key: Key,
) -> str:
    """Return the method that is right most often on known pairs that it was not fitted to.

    It has to beat the constant by more than chance would, or the luckiest of many would win.
    """
    if len(methods) == 1:
        return "constant"
    order = generator(key).permutation(len(values))
    hits = {name: np.zeros(len(values), dtype=bool) for name in methods}
    with threadpool_limits(limits=1):
        for fold in np.array_split(order, _FOLDS):
            training = np.setdiff1d(order, fold)
            for name, guess in methods.items():
                guesses = guess(latents[training], values[training], latents[fold])
                hits[name][fold] = is_right(guesses, values[fold])

    # McNemar: only values that one of the two gets right say which is better.
    best = max(hits, key=lambda name: int(hits[name].sum()))
    num_gained = int((hits[best] & ~hits["constant"]).sum())
    num_lost = int((~hits[best] & hits["constant"]).sum())
    standard_error = np.sqrt(num_gained + num_lost)
    return best if num_gained - num_lost > _BEYOND * standard_error else "constant"


def _reason_not_measured(column: AlignedColumn, task: _Task) -> str:
    """Return why a column cannot be judged; empty if it can."""
    num_known = int(_has_cell(column, task.leaked).sum())
    if num_known < _LEAST:
        return (
            f"column {column.name!r} has {num_known} known values; {_LEAST} are needed"
        )
    if not _has_cell(column, task.judged).any():
        return f"column {column.name!r} has no value in any row that is judged"
    return ""


def _vectors(latents: ArrayLike, rows: int, name: str) -> Floats:
    """Return latents as (rows, dimensions) of finite numbers, or refuse them."""
    vectors = np.asarray(latents, dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != rows or not vectors.shape[1]:
        raise InputError(
            f"{name} have shape {vectors.shape}; give one vector for each of the {rows} rows, as "
            "(rows, dimensions)"
        )
    if not np.isfinite(vectors).all():
        raise InputError(f"{name} hold numbers that are not finite; replace them")
    return vectors


def _leaked_rows(known: int | Sequence[int], rows: int, key: Key) -> Ints:
    """Return the places of the rows whose pairs leaked: the named ones, or so many at random."""
    if isinstance(known, int):
        if not 0 <= known < rows:
            raise InputError(
                f"known={known} must be from 0 to {rows - 1}: one row is to be judged"
            )
        places = generator(key).choice(rows, size=known, replace=False)
        return np.sort(places).astype(np.int64)
    places = np.unique(np.asarray(known, dtype=np.int64))
    if len(places) < len(known):
        raise InputError("known names a row twice; name each once")
    if len(places) and (places[0] < 0 or places[-1] >= rows):
        raise InputError(
            f"known names rows beyond 0 to {rows - 1}; there are {rows} rows"
        )
    return places


def _standardised(
    leaked_parts: Sequence[Floats], judged_latents: Floats
) -> tuple[Floats, Floats]:
    """Scale latents to mean 0 and deviation 1 over all that the adversary sees, judged ones too."""
    widths = {part.shape[1] for part in (*leaked_parts, judged_latents)}
    if len(widths) > 1:
        raise InputError(
            f"latents have {sorted(widths)} dimensions; they must have as many"
        )
    leaked_latents = np.concatenate(leaked_parts)
    all_latents = np.concatenate([leaked_latents, judged_latents])
    mean = all_latents.mean(axis=0)
    deviation = all_latents.std(axis=0)
    deviation[deviation == 0] = 1.0
    return (leaked_latents - mean) / deviation, (judged_latents - mean) / deviation
