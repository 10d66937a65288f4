"""The transform of CopulaGAN: a column's numbers as normal scores, and those as modes.

A number goes through its column's distribution function and the normal quantile function (Patki,
Wedge & Veeramachaneni, The Synthetic Data Vault, DSAA 2016). What the column's law fits badly is no
normal then, so its scores are split into modes as CTGAN splits any number (Xu et al., NeurIPS
2019). It is a transform, not a likelihood: a GAN is trained on its output, and what the GAN draws
is mapped back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.models.layout import Layout, Matrix
from siloweave.models.margins import Family, Margin, from_normal, to_normal
from siloweave.tables.features import Block
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.mixtures import Mixture, fit_mixture

__all__ = ["ScoreModes"]


class _Part(NamedTuple):
    """A column that has a number: its blocks without modes and with them, and how to map it."""

    number: Block
    choice: Block | None
    moved: Block
    options: Block | None
    law: Margin
    mixture: Mixture


@dataclass(frozen=True)
class ScoreModes:
    """Feature vectors with numbers, as feature vectors with modes of normal scores, and back.

    A column that has a number and one choice uses the number in rows that choose the first option
    (as `Features` writes it); there that option becomes the modes.

    Attributes:
        blocks: Of the vectors that are encoded.
        laws: Of each number, in the order of `blocks`.
        mixtures: Of each number's scores.

    Example:
        >>> blocks = (Block("x", 0, 1, "number"), Block("y", 1, 2, "choice"))
        >>> X = np.stack([np.linspace(2, 3, 50), np.ones(50), np.zeros(50)], 1).astype(np.float32)
        >>> scores = ScoreModes.fit(X, blocks, "uniform")
        >>> bool(np.allclose(scores.decode(scores.encode(X, key=0)), X, atol=1e-3))
        True
    """

    blocks: tuple[Block, ...]
    laws: tuple[Margin, ...]
    mixtures: tuple[Mixture, ...]

    @classmethod
    def fit(
        cls, X: NDArray[np.floating], blocks: Sequence[Block], family: Family = "beta"
    ) -> ScoreModes:
        """Fit the law of every number, and the modes of its scores.

        Args:
            X: (rows, width), at least one row; numbers of any scale.
            blocks: What its columns are.
            family: Of the laws.

        Raises:
            InputError: `X` does not fit, or the family is unknown.
        """
        X = Layout(tuple(blocks)).check(X)
        laws, mixtures = [], []
        choices = _choices(blocks)
        for number in [block for block in blocks if block.kind == "number"]:
            used = _codes(X, choices.get(number.column)) == 0
            values = X[used if used.any() else ~used, number.start]
            laws.append(Margin.fit(values, family))
            places, counts = np.unique(to_normal(laws[-1], values), return_counts=True)
            mixtures.append(fit_mixture(places, counts.astype(np.float64)))
        return cls(tuple(blocks), tuple(laws), tuple(mixtures))

    @property
    def inner(self) -> tuple[Block, ...]:
        """The blocks of encoded vectors."""
        parts, kept = self._plan
        blocks = [b for part in parts for b in (part.moved, part.options) if b is not None]
        return tuple(sorted([*blocks, *(new for _, new in kept)], key=lambda b: b.start))

    @cached_property
    def _plan(self) -> tuple[list[_Part], list[tuple[Block, Block]]]:
        """Columns with a number, and the blocks of all others before and after they are moved."""
        parts: list[_Part] = []
        kept: list[tuple[Block, Block]] = []
        choices, start = _choices(self.blocks), 0
        for block in self.blocks:
            choice = choices.get(block.column)
            if block == choice:
                continue
            moved = replace(block, start=start)
            start = moved.stop
            if block.kind == "choice":
                kept.append((block, moved))
                continue
            i = len(parts)
            size = self.mixtures[i].modes + (choice.size - 1 if choice else 0)
            options = Block(block.column, start, size, "choice") if size > 1 else None
            start = options.stop if options else start
            parts.append(_Part(block, choice, moved, options, self.laws[i], self.mixtures[i]))
        return parts, kept

    def encode(self, X: NDArray[np.floating], *, key: Key) -> Matrix:
        """Turn vectors into those with modes; numbers lie within -1 and 1.

        Args:
            X: (rows, width).
            key: Which mode a score is said to come from.
        """
        made, rows = self.moved(X), np.arange(len(X))
        for part in self._plan[0]:
            random = generator(fold_in(key, "modes", part.number.column))
            codes = _codes(X, part.choice)
            modes, numbers = part.mixture.split(
                to_normal(part.law, X[:, part.number.start]), random
            )
            made[:, part.moved.start] = np.where(codes == 0, numbers, 0.0)
            if part.options:
                made[:, part.options.start : part.options.stop] = 0.0
                picked = np.where(codes == 0, modes, codes - 1 + part.mixture.modes)
                made[rows, part.options.start + picked] = 1.0
        return made

    def moved(self, X: NDArray[np.floating]) -> Matrix:
        """Columns without a number where they stand among the modes; NaN for the others."""
        made = np.full((len(X), self.inner[-1].stop), np.nan, dtype=np.float32)
        for old, new in self._plan[1]:
            made[:, new.start : new.stop] = X[:, old.start : old.stop]
        return made

    def decode(self, X: Matrix) -> Matrix:
        """Turn vectors with modes back."""
        made = np.zeros((len(X), max(b.stop for b in self.blocks)), dtype=np.float32)
        for old, new in self._plan[1]:
            made[:, old.start : old.stop] = X[:, new.start : new.stop]
        for part in self._plan[0]:
            codes, count = _codes(X, part.options), part.mixture.modes
            numbers = X[:, part.moved.start].astype(np.float64)
            scores = part.mixture.join(np.minimum(codes, count - 1), numbers)
            made[:, part.number.start] = np.where(codes < count, from_normal(part.law, scores), 0.0)
            if part.choice:
                picked = np.maximum(codes - count + 1, 0)
                made[np.arange(len(X)), part.choice.start + picked] = 1.0
        return made

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON can hold; `from_facts` reads it back."""
        return {
            "blocks": [asdict(block) for block in self.blocks],
            "laws": [[law.family, law.parameters.tolist()] for law in self.laws],
            "mixtures": [msgspec.to_builtins(mixture) for mixture in self.mixtures],
        }

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> ScoreModes:
        """Read what `to_facts` returned."""
        return cls(
            tuple(Block(**block) for block in facts["blocks"]),
            tuple(Margin(family, np.array(numbers)) for family, numbers in facts["laws"]),
            tuple(msgspec.convert(mixture, Mixture) for mixture in facts["mixtures"]),
        )


def _choices(blocks: Sequence[Block]) -> dict[str, Block]:
    """The choice beside each number, by column."""
    numbers = {b.column for b in blocks if b.kind == "number"}
    return {b.column: b for b in blocks if b.kind == "choice" and b.column in numbers}


def _codes(X: NDArray[np.floating], choice: Block | None) -> NDArray[np.int64]:
    if choice is None:
        return np.zeros(len(X), dtype=np.int64)
    return np.asarray(X[:, choice.start : choice.stop].argmax(axis=1), dtype=np.int64)
