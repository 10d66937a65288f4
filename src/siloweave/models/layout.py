"""Which entries of a feature vector are numbers, and which are the options of a categorical.

Categoricals of equal size stand side by side, so that a column of 3 and a column of 40 categories
need no padding and 300 binary columns are one array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from siloweave.errors import InputError
from siloweave.tables.features import Block

Matrix = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class SphereCode(NamedTuple):
    """Which of a row's numbers are the vector of a categorical, see `sphere_codes`."""

    start: int
    dimensions: int
    options: int


SphereCodes = tuple[SphereCode, ...]
"""All of a row's; they do not overlap."""


@dataclass(frozen=True)
class Layout:
    """Blocks of a feature vector; models order them: numbers, then categoricals by size."""

    blocks: tuple[Block, ...]
    sphere_codes: SphereCodes = ()

    @cached_property
    def width(self) -> int:
        """Length of a feature vector."""
        return max((b.start + b.size for b in self.blocks), default=0)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Position of every real number in the feature vector."""
        return tuple(b.start for b in self.blocks if b.kind == "number")

    @cached_property
    def categoricals(self) -> tuple[Block, ...]:
        """Blocks that are categoricals, smallest first."""
        return tuple(
            sorted((b for b in self.blocks if b.kind == "categorical"), key=lambda b: b.size)
        )

    @cached_property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """(how many, of which size) for each run of categoricals of equal size."""
        sizes = [b.size for b in self.categoricals]
        return tuple((sizes.count(size), size) for size in sorted(set(sizes)))

    def check(self, X: Matrix, what: str = "X", *, least: int = 1) -> Matrix:
        """Refuse a matrix that is not one of these feature vectors, one per row.

        Raises:
            InputError: For another shape, too few rows, NaN or infinities, or a categorical that is
                not one-hot; the message names the column.
        """
        X = np.asarray(X, dtype=np.float32)
        if X.ndim != 2 or X.shape[1] != self.width:
            raise InputError(
                f"{what} has shape {X.shape}, but its blocks need (rows, {self.width}): encode the "
                "table with the features these blocks belong to"
            )
        if len(X) < least:
            raise InputError(f"{what} has no rows: give at least one")
        for b in self.blocks:
            part = X[:, b.start : b.stop]
            if not np.isfinite(part).all():
                row = int(np.argmin(np.isfinite(part).all(1)))
                raise InputError(
                    f"{what} is not finite in column {b.column!r}, row {row}: fill or encode "
                    "missing values before fitting"
                )
            if b.kind == "categorical" and not _one_hot(part):
                raise InputError(
                    f"{what} is not one-hot in column {b.column!r}: each row needs one 1 and "
                    f"{b.size - 1} times 0"
                )
        return X

    def split(self, X: Matrix) -> tuple[Matrix, Ints]:
        """Numbers (n, d) and the index of each categorical (n, c), in this layout's order."""
        codes = [X[:, b.start : b.stop].argmax(1) for b in self.categoricals]
        stacked = np.stack(codes, 1) if codes else np.zeros((len(X), 0))
        return np.ascontiguousarray(X[:, list(self.numbers)]), stacked.astype(np.int32)

    def join(self, numbers: Matrix, codes: Ints, width: int | None = None) -> Matrix:
        """The inverse of `split`: one-hot rows, zeros where `width` leaves room for others."""
        X = np.zeros((len(numbers), width or self.width), dtype=np.float32)
        X[:, list(self.numbers)] = numbers
        for j, b in enumerate(self.categoricals):
            X[np.arange(len(X)), b.start + codes[:, j]] = 1.0
        return X

    def known(self, given: Matrix) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which numbers (n, d) and categoricals (n, c) of a matrix are not NaN.

        Raises InputError when some options of a categorical are NaN and others are not.
        """
        there = ~np.isnan(given)
        for b in self.categoricals:
            part = there[:, b.start : b.stop]
            if (part.any(1) != part.all(1)).any():
                raise InputError(
                    f"given names some categories of column {b.column!r} and leaves others open: "
                    "set its whole block, or none of it"
                )
        chosen = [there[:, b.start] for b in self.categoricals]
        stacked = np.stack(chosen, 1) if chosen else np.zeros((len(given), 0), dtype=np.bool_)
        return there[:, list(self.numbers)], stacked

    def without(self, block: Block | None) -> Layout:
        """The layout of the other blocks; their places in the vector do not change."""
        return replace(self, blocks=tuple(b for b in self.blocks if b != block))

    def label_of(self, column: str | None) -> Block | None:
        """The categorical of a label column; None without one, or where it is the only block."""
        return None if column is None or len(self.blocks) == 1 else self.categorical_of(column)

    def categorical_of(self, column: str) -> Block:
        """The block of a column that is one categorical; raises InputError where it is not."""
        found = [b for b in self.blocks if b.column == column]
        if len(found) == 1 and found[0].kind == "categorical":
            return found[0]
        names = sorted({b.column for b in self.categoricals})
        raise InputError(
            f"labels={column!r} is not a column that is one categorical: give one of {names}, or "
            "None"
        )

    def facts(self, label: Block | None) -> dict[str, Any]:
        """What a model's file says of its blocks and of the one that is its label."""
        column = None if label is None else label.column
        return {"blocks": [asdict(b) for b in self.blocks], "label": column}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> tuple[Layout, Block | None]:
        """Layout and label from `facts`."""
        layout = cls(tuple(Block(**b) for b in facts["blocks"]))
        return layout, None if facts["label"] is None else layout.categorical_of(facts["label"])


def _one_hot(part: Matrix) -> bool:
    return bool(np.isin(part, (0.0, 1.0)).all() and (part.sum(1) == 1.0).all())
