"""The Gaussian copula: laws of single columns, and one correlation matrix between them.

Patki, Wedge and Veeramachaneni, The Synthetic Data Vault, DSAA 2016; the defaults are those of
today's releases: beta laws, categories as pieces of (0, 1), Pearson correlation of normal scores.
No party, no privacy, no network: the fit takes a second.

Categories differ from that in one point. There a category's score is drawn uniformly from its
piece of (0, 1), a noise that shrinks every correlation with a category (two equal binary columns
come out at 0.64). By default the score is the normal mean of the piece, and correlations are those
of the means, which equal columns keep at 1; ``scores="uniform"`` is the other way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy.special import ndtr, ndtri

from siloweave.errors import DataError, InputError
from siloweave.models.layout import Layout
from siloweave.models.margins import (
    FAMILIES,
    CategoryMargin,
    Family,
    Margin,
    from_normal,
    to_normal,
)
from siloweave.tables.features import Block
from siloweave.tables.keys import Key, fold_in, generator

__all__ = ["Copula", "CopulaSettings", "positive_definite"]

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]
_INSIDE = (1e-12, 1.0 - 1e-12)
_SWEEPS = 15  # of Gibbs' sampler, where more than one category is given


@dataclass(frozen=True)
class CopulaSettings:
    """How a Gaussian copula is fitted.

    Attributes:
        family: Law of the numeric columns.
        families: Laws of single columns by name, before `family`.
        scores: What stands for a category: the normal ``mean`` of its piece, or a ``uniform``
            draw from it.

    Raises:
        InputError: A name is unknown.
    """

    family: Family = "beta"
    families: Mapping[str, Family] = field(default_factory=dict)
    scores: Literal["mean", "uniform"] = "mean"

    def __post_init__(self) -> None:
        for family in (self.family, *self.families.values()):
            if family not in FAMILIES:
                raise InputError(f"family={family!r} is unknown; use one of {', '.join(FAMILIES)}")
        if self.scores not in ("mean", "uniform"):
            raise InputError(f"scores={self.scores!r} is unknown; use 'mean' or 'uniform'")


@dataclass(frozen=True)
class Copula:
    """A fitted copula.

    Attributes:
        blocks: Parts of a row's feature vector.
        margins: Each block's law.
        correlation: Of the normal scores, (blocks, blocks), positive definite.

    Example:
        >>> from siloweave.tables.features import Block
        >>> x = np.linspace(0.0, 1.0, 200, dtype=np.float32)
        >>> blocks = (Block("x", 0, 1, "number"), Block("y", 1, 1, "number"))
        >>> copula = GaussianCopula.fit(np.stack([x, 3 - x], axis=1), blocks, key=0)
        >>> round(float(copula.correlation[0, 1]), 3)
        -1.0
        >>> copula.sample(5, key=1).shape
        (5, 2)
    """

    blocks: tuple[Block, ...]
    margins: tuple[Margin | CategoryMargin, ...]
    correlation: Floats

    @classmethod
    def fit(
        cls,
        X: NDArray[np.floating],
        blocks: Sequence[Block],
        settings: CopulaSettings | None = None,
        *,
        key: Key,
    ) -> Copula:
        """Fit every column's law, then the correlation of their normal scores.

        Args:
            X: Feature vectors, (rows, width), at least one row, all finite. Missing values are a
                category of their own, as `Features` writes them.
            blocks: What the columns of `X` are; numbers need no scaling.
            settings: Laws and scores; the defaults if None.
            key: For ``scores="uniform"``; the default draws nothing.

        Raises:
            InputError: `X` has no rows, has another width, or holds what is no number.
        """
        settings = settings or CopulaSettings()
        X = Layout(tuple(blocks)).check(X)
        rng = generator(fold_in(key, "copula"))
        margins: list[Margin | CategoryMargin] = []
        scores, used = np.zeros((2, len(X), len(blocks)))
        for i, block in enumerate(blocks):
            part = X[:, block.start : block.start + block.size]
            if block.kind == "number":
                family = settings.families.get(block.column, settings.family)
                in_use = _in_use(X, block, blocks)
                in_use |= not in_use.any()
                margin = Margin.fit(part[in_use, 0], family)
                margins.append(margin)
                scores[in_use, i], used[in_use, i] = to_normal(margin, part[in_use, 0]), 1.0
                continue
            codes = part.argmax(axis=1)
            margins.append(law := CategoryMargin.fit(codes, block.size))
            used[:, i] = 1.0
            if settings.scores == "mean":
                scores[:, i] = law.scores[codes]
            else:
                low, high = law.bounds(codes)
                scores[:, i] = ndtri(np.clip(low + rng.random(len(X)) * (high - low), *_INSIDE))
        return cls(tuple(blocks), tuple(margins), positive_definite(_correlation(scores, used)))

    @property
    def layout(self) -> Layout:
        """How a feature vector falls into numbers and choices."""
        return Layout(self.blocks)

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows; some columns may be given, then the others follow from the conditional normal.

        Args:
            n: Rows.
            key: Every random choice.
            given: (n, width), NaN wherever a column is to be drawn; a choice is given as its
                whole one-hot block. A number that its column's choice leaves unused (a spike, a
                missing value) says nothing of other columns; its choice does. With more than one
                choice in a row their normal scores come from 15 sweeps of Gibbs' sampler, else the
                draw is exact.

        Returns:
            Feature vectors, (n, width); choices as one-hot.

        Raises:
            InputError: `n` is negative, `given` has another shape, names a choice in part, or a
                category that no real row had.
        """
        if n < 0:
            raise InputError(f"n={n} rows cannot be drawn; give 0 or more")
        rng = generator(fold_in(key, "sample"))
        scores = ndtri(np.clip(rng.random((n, len(self.blocks))), *_INSIDE))
        if given is None:
            return self._values(scores @ np.linalg.cholesky(self.correlation).T)
        fixed, low, high = self._bounds(n, given)
        patterns, rows = np.unique(fixed, axis=0, return_inverse=True)
        for i, pattern in enumerate(patterns):
            here = np.flatnonzero(rows.reshape(-1) == i)
            scores[here] = self._drawn(scores[here], pattern, low[here], high[here], rng)
        X = self._values(scores)
        return np.where(np.isnan(given), X, given).astype(np.float32)

    def _drawn(
        self,
        scores: Floats,
        fixed: NDArray[np.bool_],
        low: Floats,
        high: Floats,
        rng: np.random.Generator,
    ) -> Floats:
        """Normal scores of rows that have the same columns given, from independent ones."""
        R, free = self.correlation, ~fixed
        known = self._known(R[np.ix_(fixed, fixed)], low[:, fixed], high[:, fixed], rng)
        weights = np.linalg.solve(R[np.ix_(fixed, fixed)], R[np.ix_(fixed, free)])
        rest = R[np.ix_(free, free)] - R[np.ix_(free, fixed)] @ weights
        drawn = np.empty_like(scores)
        drawn[:, free] = known @ weights + scores[:, free] @ _root(rest).T
        drawn[:, fixed] = known
        return drawn

    def _bounds(self, n: int, given: Matrix) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """Which blocks are given, and the ends of the normal scores that they may take."""
        if np.shape(given) != (n, self.layout.width):
            raise InputError(
                f"given has shape {np.shape(given)}; it needs {(n, self.layout.width)}, a row for "
                "each of the n rows, with NaN where a column is to be drawn"
            )
        self.layout.known(given)
        fixed = ~np.isnan(given[:, [block.start for block in self.blocks]])
        low, high = np.zeros((2, n, len(self.blocks)))
        for i, (block, law) in enumerate(zip(self.blocks, self.margins, strict=True)):
            if isinstance(law, Margin):
                fixed[:, i] &= _in_use(given, block, self.blocks)
                rows = np.flatnonzero(fixed[:, i])
                low[rows, i] = high[rows, i] = to_normal(law, given[rows, block.start])
                continue
            rows = np.flatnonzero(fixed[:, i])
            codes = given[rows, block.start : block.start + block.size].argmax(axis=1)
            if (law.shares[codes] == 0.0).any():
                seen = np.flatnonzero(law.shares).tolist()
                raise InputError(
                    f"given asks for column {block.column!r} to be a category that no real row "
                    f"had; the codes seen are {seen}"
                )
            ends = law.bounds(codes)
            low[rows, i], high[rows, i] = (ndtri(np.clip(end, *_INSIDE)) for end in ends)
        return fixed, low, high

    def _known(self, R: Floats, low: Floats, high: Floats, rng: np.random.Generator) -> Floats:
        """Normal scores with correlation R between bounds, (rows, given blocks)."""
        z = _between(np.zeros_like(low), 1.0, low, high, rng.random(low.shape))
        pieces = np.flatnonzero((low < high).any(axis=0))
        if len(R) < 2 or pieces.size == 0:
            return z
        precision = np.linalg.inv(R)
        for _ in range(_SWEEPS):
            for i in pieces:
                scale = precision[i, i] ** -0.5
                centre = z[:, i] - (z @ precision[i]) * scale**2
                z[:, i] = _between(centre, scale, low[:, i], high[:, i], rng.random(len(z)))
        return z

    def _values(self, scores: Floats) -> NDArray[np.float32]:
        X = np.zeros((len(scores), self.layout.width), dtype=np.float32)
        for i, (block, law) in enumerate(zip(self.blocks, self.margins, strict=True)):
            if isinstance(law, Margin):
                X[:, block.start] = from_normal(law, scores[:, i])
            else:
                codes = law.codes(ndtr(scores[:, i]))
                X[np.arange(len(X)), block.start + codes] = 1.0
        return X

    def save(self, path: Path | str) -> None:
        """Write the copula as one safetensors file."""
        arrays = {
            f"margin {i}": law.parameters if isinstance(law, Margin) else law.shares
            for i, law in enumerate(self.margins)
        }
        facts = {
            "format": "siloweave-copula",
            "blocks": [asdict(block) for block in self.blocks],
            "families": [getattr(law, "family", "categories") for law in self.margins],
        }
        arrays["correlation"] = np.ascontiguousarray(self.correlation)
        save_file(arrays, str(path), metadata={"facts": json.dumps(facts)})

    @classmethod
    def load(cls, path: Path | str) -> Copula:
        """Read what `save` wrote.

        Raises:
            DataError: When the file is missing or no such file.
        """
        try:
            with safe_open(str(path), framework="numpy") as file:
                facts = json.loads((file.metadata() or {})["facts"])
                parts = [file.get_tensor(f"margin {i}") for i in range(len(facts["families"]))]
                correlation = file.get_tensor("correlation")
            blocks = tuple(Block(**block) for block in facts["blocks"])
            if facts["format"] != "siloweave-copula" or len(blocks) != len(parts):
                raise ValueError("it holds something else")
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is not a stored copula of siloweave ({error})") from error
        margins = tuple(
            CategoryMargin(part) if family == "categories" else Margin(family, part)
            for family, part in zip(facts["families"], parts, strict=True)
        )
        return cls(blocks, margins, correlation)


def positive_definite(R: Floats, least: float = 1e-6) -> Floats:
    """Raise eigenvalues below `least`, then scale the diagonal back to 1.

    Example:
        >>> R = positive_definite(np.ones((2, 2)))
        >>> bool(np.linalg.eigvalsh(R)[0] > 0), R.diagonal().tolist()
        (True, [1.0, 1.0])
    """
    values, vectors = np.linalg.eigh((R + R.T) / 2.0)
    if values.size and values[0] < least:
        R = (vectors * np.maximum(values, least)) @ vectors.T
    scale = np.sqrt(np.diag(R))
    R = R / np.outer(scale, scale)
    np.fill_diagonal(R, 1.0)
    return (R + R.T) / 2.0


def _in_use(X: Matrix, block: Block, blocks: Sequence[Block]) -> NDArray[np.bool_]:
    """Rows whose number means something.

    Where a column is a number and a choice, the first option is the continuum, and some others (a
    spike, a missing value) say it all and leave the number at 0: it tells nothing then.
    """
    found = np.ones(len(X), dtype=np.bool_)
    for other in blocks:
        if other.kind == "choice" and other.column == block.column:
            codes = X[:, other.start : other.start + other.size].argmax(axis=1)
            found &= (codes == 0) | (X[:, block.start] != 0.0)
    return found


def _correlation(scores: Floats, used: Floats) -> Floats:
    """Pearson's correlation of each pair over the rows that use both; 0 where one is constant."""
    many = np.maximum(used.T @ used, 1.0)
    means = (scores.T @ used) / many  # of column i over the rows that use j as well
    both = (scores.T @ scores) / many - means * means.T
    spread = np.maximum(((scores**2).T @ used) / many - means**2, 0.0)
    scale = np.sqrt(spread * spread.T)
    R = np.divide(both, scale, out=np.zeros_like(both), where=scale > 1e-12)
    np.fill_diagonal(R, 1.0)
    return np.asarray(np.clip(R, -1.0, 1.0))


def _between(
    centre: Floats, scale: float, low: Floats, high: Floats, u: NDArray[np.float64]
) -> Floats:
    """Quantile u of a normal law cut to [low, high], exact in both tails."""
    a, b = (low - centre) / scale, (high - centre) / scale
    flip = a > 0.0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    v = np.where(flip, 1.0 - u, u)
    z = ndtri(np.clip(ndtr(a) + v * (ndtr(b) - ndtr(a)), 1e-300, _INSIDE[1]))
    z = np.clip(z, a, b)
    return np.asarray(centre + scale * np.where(flip, -z, z), dtype=np.float64)


def _root(S: Floats) -> Floats:
    """A matrix whose product with its transpose is S, which may be singular."""
    values, vectors = np.linalg.eigh((S + S.T) / 2.0)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)
