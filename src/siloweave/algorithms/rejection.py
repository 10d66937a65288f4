"""Models of feature vectors that are given columns: asked where they can be, else tried again.

A model that can be asked (a copula's conditional normal distribution, Patki, Wedge &
Veeramachaneni 2016; a GAN's condition, Xu et al. 2019; a diffusion's label or replaced columns,
Lugmayr et al. 2022) is asked; what it does not follow, or cannot be asked for, is met by rejection.

**Guarantee**: none of its own: this reads a model and nothing else, so it is post-processing of
what the model's fit released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from siloweave.algorithms.given import GivenCells, values_in
from siloweave.errors import InputError
from siloweave.tables.codes import options_of
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.schema import Column, Schema

if TYPE_CHECKING:
    from siloweave.algorithms.generated import Model

__all__ = ["AskedCells", "accepted", "shares_in"]

_Matrix = npt.NDArray[np.float32]
_CHUNK = 2_000  # rows drawn at once when some were rejected
_LEAST = 10_000  # rows that may be drawn however few are wanted
_LOOK = 2_000  # rows that show which classes a model makes, where it does not say


@dataclass(frozen=True)
class AskedCells:
    """Cells of one column as a model of feature vectors takes them.

    Attributes:
        cells: What rows shall have.
        features: Of this column alone.
        start: Where it starts in a row's vector.
        vectors: (rows, width of the column), NaN in rows that are free.
    """

    cells: GivenCells
    features: Features
    start: int
    vectors: _Matrix

    @classmethod
    def of(cls, cells: GivenCells, features: Features, key: Key) -> AskedCells:
        """Cells as vectors.

        Args:
            cells: What rows shall have.
            features: Of all columns.
            key: Which mode a number is said to come from.
        """
        encodings = tuple(one for one in features.encodings if one.column == cells.name)
        alone = Features(Schema((cells.column,)), encodings)
        start = next(block.start for block in features.blocks if block.column == cells.name)
        vectors = np.full((len(cells.places), alone.width), np.nan, dtype=np.float32)
        if cells.table.num_rows:
            told = ~cells.free
            vectors[told] = alone.encode(cells.table, key=key)[cells.places[told]]
        return cls(cells, alone, start, vectors)

    @property
    def name(self) -> str:
        """The column's name."""
        return self.cells.name

    def check(self, shares: Sequence[float] | None) -> None:
        """Refuse what no row had that was trained on; nothing is known where `shares` is None."""
        asked = self.vectors[~self.cells.free]
        if shares is None or not len(asked):
            return
        never = np.flatnonzero(np.array(shares)[asked.argmax(axis=1)] <= 0.0)
        if never.size:
            first = self.cells.written(self.cells.values[~self.cells.free][never[:1]], None)
            label = first[0][0] if first[1] is None or not first[1][0] else None
            raise InputError(
                f"given asks for column {self.name!r} to be {label!r}, which no row had that the "
                "model was trained on; ask for another"
            )

    def met(self, X: _Matrix, rows: npt.NDArray[np.int64], key: Key) -> npt.NDArray[np.bool_]:
        """Which vectors have what these rows shall have."""
        part = X[:, self.start : self.start + self.features.width]
        made = values_in(self.cells.column, self.features.decode(part, key=key))
        wanted = self.cells.values[rows]
        same = (made == wanted) | (np.isnan(made) & np.isnan(wanted))
        return np.asarray(same | self.cells.free[rows])


def shares_in(model: Model, features: Features, column: Column, key: Key) -> Sequence[float]:
    """How frequent each option of a column is: by the model, else in 2,000 rows that it draws."""
    shares = model.shares(column.name)
    if shares is not None:
        return shares
    X = model.sample(_LOOK, key=fold_in(key, "look"))
    made = features.decode(X, key=fold_in(key, "look")).select([column.name])
    codes = values_in(column, made).astype(np.int64)
    return tuple(np.bincount(codes, minlength=options_of(column)).tolist())


def accepted(
    model: Model,
    features: Features,
    count: int,
    asked: Sequence[AskedCells],
    *,
    tries: int,
    key: Key,
) -> _Matrix:
    """Draw vectors that have what is given; what a model keeps to is not checked again.

    Args:
        model: What draws.
        features: Vectors to table and back.
        count: How many rows.
        asked: What they shall have, one entry per column that is given.
        tries: Rows that are drawn at most for each that is wanted.
        key: Everything random.

    Raises:
        InputError: Something is given that the model never saw, or matching rows are too rare.
    """
    if tries < 1:
        raise InputError(f"tries={tries} must be 1 or more")
    for one in asked:
        one.check(model.shares(one.name))
    told = _told(model, features, count, asked)
    kept = model.takes if model.keeps else frozenset()
    checked = [one for one in asked if one.name not in kept]
    X = np.zeros((count, features.width), dtype=np.float32)
    missed, made, good = np.arange(count), 0, 0
    while missed.size and made < max(tries * count, _LEAST):
        rows = np.resize(missed, max(missed.size, _CHUNK)) if made else missed
        own = fold_in(key, "rows", made)
        Y = model.sample(len(rows), key=own, given=None if told is None else told[rows])
        fits = np.ones(len(rows), dtype=np.bool_)
        for one in checked:
            fits &= one.met(Y, rows, own)
        X[rows[fits]] = Y[fits]
        missed = np.setdiff1d(missed, rows[fits])
        made, good = made + len(rows), good + int(fits.sum())
    if missed.size:
        names = ", ".join(one.name for one in checked)
        raise InputError(
            f"given: {missed.size} of {count} rows were not met. Of {made:,} rows drawn "
            f"{good:,} ({good / made:.2%}) matched in {names}. Give fewer columns or more "
            f"frequent values, or raise tries={tries}"
        )
    return X


def _told(
    model: Model, features: Features, count: int, asked: Sequence[AskedCells]
) -> _Matrix | None:
    """What the model itself is given: NaN wherever a row is free; None if nothing."""
    taken = [one for one in asked if one.name in model.takes]
    if not taken:
        return None
    told = np.full((count, features.width), np.nan, dtype=np.float32)
    for one in taken:
        told[:, one.start : one.start + one.features.width] = one.vectors
    return told
