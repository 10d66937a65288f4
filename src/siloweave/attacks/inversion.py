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
_NEAR = (1, 5)
_TRIED = 512
_BEYOND = 2.0  # standard errors


class Inverted(msgspec.Struct, frozen=True):
    """How many cells came back, beside what a guess without latents gets.

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
    """One column.

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
    """What latents give away.

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
        """The column that latents add most to."""
        return max(self.columns, key=lambda column: column.found.risk.excess)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Latents on one side, and which rows they belong to on the other."""

    latents: Floats
    source: Sequence[tuple[str, Ints]]

    def values(self, column: AlignedColumn) -> NDArray[Any]:
        return np.concatenate([column.values[name][rows] for name, rows in self.source])

    def missing(self, column: AlignedColumn) -> Bools:
        return np.concatenate([column.missing(name)[rows] for name, rows in self.source])


@dataclass(frozen=True, eq=False)
class _Marks:
    """Which hidden cells of a column came back, which the constant got right, and which count."""

    right: Bools
    plain: Bools
    counted: Bools


@dataclass(frozen=True, eq=False)
class _Task:
    known: _Pairs
    hidden: _Pairs
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
    tables = {"rows": rows} if synthetic is None else {"rows": rows, "synthetic": synthetic[1]}
    aligned = align(tables, schema)
    if not methods or any(name not in _INVERTERS for name in methods):
        raise InputError(f"methods={list(methods)}: choose from {', '.join(_INVERTERS)}")
    number("tolerance", tolerance, 0, 1, "[)")
    vectors = _vectors(latents, aligned.num_rows["rows"], "latents")
    leaked = _leaked(known, len(vectors), fold_in(key, "known"))
    rest = np.setdiff1d(np.arange(len(vectors)), leaked)
    if most is not None and len(rest) > most:
        rest = np.sort(generator(fold_in(key, "judged")).choice(rest, size=most, replace=False))
    parts, source = [vectors[leaked]], [("rows", leaked)]
    if synthetic is not None:
        parts.append(_vectors(synthetic[0], aligned.num_rows["synthetic"], "synthetic latents"))
        source.append(("synthetic", np.arange(len(parts[-1]))))
    seen, hidden = _standardised(parts, vectors[rest])
    if len(seen) < _LEAST:
        raise InputError(
            f"{len(seen)} pairs are known; at least {_LEAST} are needed to learn an inverse. Let "
            "more rows leak, or give synthetic pairs"
        )
    if not len(rest):
        raise InputError("every row is known, so none is left to be judged; let fewer leak")
    pairs = _Pairs(seen, source), _Pairs(hidden, [("rows", rest)])
    task = _Task(*pairs, tuple(methods), tolerance, confidence, key)
    return _inverted(aligned, task, len(leaked))


def _inverted(aligned: Aligned, task: _Task, leaked: int) -> InversionRisk:
    columns: list[ColumnInversion] = []
    skipped: dict[str, str] = {}
    marks: dict[str, list[_Marks]] = {"categorical": [], "numeric": []}
    for column in aligned.columns:
        reason = _unmeasurable(column, task)
        if reason:
            skipped[column.name] = reason
            continue
        method, found = _column(column, task)
        marks[column.kind].append(found)
        there = found.counted
        share = _share(
            found.right[there].sum(), found.plain[there].sum(), there.sum(), task.confidence
        )
        missing = int((~there).sum())
        columns.append(ColumnInversion(column.name, column.kind, method, share, missing))
    if not columns:
        raise InputError(f"no column can be judged: {'; '.join(skipped.values())}")
    every = [*marks["categorical"], *marks["numeric"]]
    right = np.all([m.right | ~m.counted for m in every], axis=0).sum()
    plain = np.all([m.plain | ~m.counted for m in every], axis=0).sum()
    judged, known = len(task.hidden.latents), len(task.known.latents)
    return InversionRisk(
        tuple(columns),
        _pooled(marks["categorical"], task.confidence),
        _pooled(marks["numeric"], task.confidence),
        _share(right, plain, judged, task.confidence),
        skipped,
        known=leaked,
        synthetic=known - leaked,
        judged=judged,
        tolerance=task.tolerance,
        confidence=task.confidence,
    )


def _share(
    right: float, plain: float, trials: float, confidence: float, cells: int = 0
) -> Inverted:
    hit, missed = (float(right), float(trials)), (float(plain), float(trials))
    recovered, baseline = (
        msgspec.structs.replace(wilson(*counts, confidence), value=counts[0] / counts[1])
        for counts in (hit, missed)
    )
    risk = privacy_risk(hit, missed, confidence)
    return Inverted(recovered, baseline, risk, cells or int(trials))


def _pooled(marks: Sequence[_Marks], confidence: float) -> Inverted | None:
    """All cells of some columns, counted as if each row were one cell."""
    if not marks:
        return None
    there = np.stack([m.counted for m in marks])
    cells, rows = int(there.sum()), int(there.any(axis=0).sum())
    right = sum(int((m.right & m.counted).sum()) for m in marks)
    plain = sum(int((m.plain & m.counted).sum()) for m in marks)
    per_cell = rows / cells
    return _share(right * per_cell, plain * per_cell, rows, confidence, cells)


def _column(column: AlignedColumn, task: _Task) -> tuple[str, _Marks]:
    """Pick a method on the known pairs, and guess the hidden cells."""
    truth, counted = task.hidden.values(column), _judgeable(column, task.hidden)
    usable = _judgeable(column, task.known)
    latents, values = task.known.latents[usable], task.known.values(column)[usable]
    right = _judge(column, values, task.tolerance)
    methods = _methods(column, values, task, right)
    method = _picked(methods, latents, values, right, fold_in(task.key, "folds", column.name))
    with threadpool_limits(limits=1):
        guesses = methods[method](latents, values, task.hidden.latents)
    plain = methods["constant"](latents, values, task.hidden.latents)
    return method.partition(" ")[0], _Marks(right(guesses, truth), right(plain, truth), counted)


def _judgeable(column: AlignedColumn, pairs: _Pairs) -> Bools:
    """Which cells count: all categories, a missing one included, and numbers that are there."""
    missing = pairs.missing(column)
    return ~missing if column.numeric else np.ones(len(missing), dtype=bool)


def _judge(column: AlignedColumn, values: NDArray[Any], tolerance: float) -> Judge:
    if not column.numeric:
        return lambda guess, truth: guess == truth
    width = float(np.ptp(values)) if len(values) else 0.0

    def near(guess: NDArray[Any], truth: NDArray[Any]) -> Bools:
        rounded = np.round(guess) if column.whole else guess
        allowed = tolerance * (width if column.datetimes else np.abs(truth))
        close: Bools = np.abs(rounded - truth) <= allowed
        return close

    return near


def _methods(
    column: AlignedColumn, values: NDArray[Any], task: _Task, right: Judge
) -> dict[str, Guess]:
    seed = int(generator(fold_in(task.key, "method", column.name)).integers(2**31))
    found: dict[str, Guess] = {"constant": lambda a, known, b: _constant(known, len(b), right)}
    kinds = len(np.unique(values))
    if kinds < 2:
        return found
    for method in task.methods:
        if method == "neighbours":
            for k in _NEAR:
                found[f"neighbours {k}"] = _fitted(column.numeric, method, seed, k)
        elif method == "ridge" or column.numeric or kinds <= _CLASSES:
            found[method] = _fitted(column.numeric, method, seed)
    return found


def _constant(known: NDArray[Any], count: int, right: Judge) -> NDArray[Any]:
    """The known value that is right for most known rows."""
    values = np.unique(known)
    if len(values) > _TRIED:  # of many numbers, the best lies where they are dense
        values = np.quantile(known, np.linspace(0, 1, _TRIED), method="nearest")
    hits = [int(right(np.full(len(known), value), known).sum()) for value in values]
    return np.full(count, values[int(np.argmax(hits))])


def _fitted(numeric: bool, method: Inverter, seed: int, near: int = 1) -> Guess:
    def guess(latents: Floats, values: NDArray[Any], asked: Floats) -> NDArray[Any]:
        if len(np.unique(values)) < 2:
            return np.full(len(asked), values[0])
        model = _model(numeric, method, seed, min(near, len(values)))
        return np.asarray(model.fit(latents, values).predict(asked))

    return guess


def _model(numeric: bool, method: Inverter, seed: int, near: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeClassifierCV, RidgeCV
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    if method == "ridge":
        return (RidgeCV if numeric else RidgeClassifierCV)(alphas=(1e-4, 1e-2, 1.0, 100.0))
    if method == "neighbours":
        return (KNeighborsRegressor if numeric else KNeighborsClassifier)(near)
    trees = partial(HistGradientBoostingRegressor, loss="absolute_error")
    return (trees if numeric else HistGradientBoostingClassifier)(
        max_iter=60,
        learning_rate=0.15,
        max_leaf_nodes=15,
        min_samples_leaf=5,
        early_stopping=False,
        random_state=seed,
    )


def _picked(
    methods: Mapping[str, Guess], latents: Floats, values: NDArray[Any], right: Judge, key: Key
) -> str:
    """The method that gets most of the known values right when it has not seen them.

    It has to beat the constant by more than chance would, or the luckiest of many would win.
    """
    if len(methods) == 1:
        return "constant"
    order = generator(key).permutation(len(values))
    hits = {name: np.zeros(len(values), dtype=bool) for name in methods}
    with threadpool_limits(limits=1):
        for fold in np.array_split(order, _FOLDS):
            rest = np.setdiff1d(order, fold)
            for name, guess in methods.items():
                guesses = guess(latents[rest], values[rest], latents[fold])
                hits[name][fold] = right(guesses, values[fold])
    best = max(hits, key=lambda name: int(hits[name].sum()))
    gained = int((hits[best] & ~hits["constant"]).sum())
    lost = int((~hits[best] & hits["constant"]).sum())
    return best if gained - lost > _BEYOND * np.sqrt(gained + lost) else "constant"


def _unmeasurable(column: AlignedColumn, task: _Task) -> str:
    known = int(_judgeable(column, task.known).sum())
    if known < _LEAST:
        return f"column {column.name!r} has {known} known values; {_LEAST} are needed"
    if not _judgeable(column, task.hidden).any():
        return f"column {column.name!r} has no value in any row that is judged"
    return ""


def _vectors(latents: ArrayLike, rows: int, name: str) -> Floats:
    vectors = np.asarray(latents, dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != rows or not vectors.shape[1]:
        raise InputError(
            f"{name} have shape {vectors.shape}; give one vector for each of the {rows} rows, as "
            "(rows, dimensions)"
        )
    if not np.isfinite(vectors).all():
        raise InputError(f"{name} hold numbers that are not finite; replace them")
    return vectors


def _leaked(known: int | Sequence[int], rows: int, key: Key) -> Ints:
    if isinstance(known, int):
        if not 0 <= known < rows:
            raise InputError(f"known={known} must be from 0 to {rows - 1}: one row is to be judged")
        return np.sort(generator(key).choice(rows, size=known, replace=False)).astype(np.int64)
    places = np.unique(np.asarray(known, dtype=np.int64))
    if len(places) < len(known):
        raise InputError("known names a row twice; name each once")
    if len(places) and (places[0] < 0 or places[-1] >= rows):
        raise InputError(f"known names rows beyond 0 to {rows - 1}; there are {rows} rows")
    return places


def _standardised(known: Sequence[Floats], hidden: Floats) -> tuple[Floats, Floats]:
    """Latents of mean 0 and deviation 1 over all that the adversary sees, the hidden included."""
    widths = {part.shape[1] for part in (*known, hidden)}
    if len(widths) > 1:
        raise InputError(f"latents have {sorted(widths)} dimensions; they must have as many")
    seen = np.concatenate(known)
    both = np.concatenate([seen, hidden])
    centre, spread = both.mean(axis=0), both.std(axis=0)
    spread[spread == 0] = 1.0
    return (seen - centre) / spread, (hidden - centre) / spread
