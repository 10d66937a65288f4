"""Counts of every column at several grains, and what noisy ones say of the finest.

Equal-width bins of a skewed column are nearly all empty, and one holds nearly everything. So a
column of numbers is counted in fine bins and in coarser ones made of 16 each, up to 32 at most; a
coarse bin is then divided as its fine ones say, but only where these differ by more than their
noise does. Hay, Rastogi, Miklau & Suciu 2010, "Boosting the accuracy of differentially private
histograms through consistency", has the hierarchy; which bins are divided is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError
from siloweave.tables.bins import BINNED
from siloweave.tables.codes import Codes, Encoder

Floats = NDArray[np.float64]

_BRANCH = 16  # bins of the next grain in one
_COARSE = 32  # the coarsest grain has at most so many
_DOUBT = 3.0  # standard deviations of a chi-squared by which parts differ from equal shares


def consistent(counts: NDArray[Any], total: float) -> Floats:
    """The nearest counts that are not negative and have this sum.

    Noise makes empty cells look occupied half of the time; what is taken from all cells alike
    until the sum is right empties most of them again (projection onto a simplex).

    Args:
        counts: (cells,), noisy.
        total: Their sum, above 0.

    Example:
        >>> consistent(np.array([10.0, 3.0, -2.0]), 10.0).tolist()
        [8.5, 1.5, 0.0]
    """
    values = np.asarray(counts, dtype=np.float64)
    falling = np.sort(values)[::-1]
    over = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    taken = over[np.flatnonzero(falling > over)[-1]]
    kept: Floats = np.maximum(values - taken, 0.0)
    return kept


@dataclass(frozen=True)
class Grains:
    """Tables of counts: one for each column, more for one of many bins.

    A row is in one cell of each table, or in none of a finer one where its value is missing.

    Attributes:
        encoder: Its codes are the finest grain.

    Example:
        >>> from siloweave.tables.schema import Column, Schema
        >>> column = Column("x", "continuous", low=0.0, high=1.0)
        >>> grains = Grains(Encoder(Schema((column,)), bins=4096))
        >>> grains.number, grains.cells
        (3, 4368)
    """

    encoder: Encoder

    @cached_property
    def widths(self) -> dict[str, tuple[int, ...]]:
        """How many bins of the finest grain are in one of each grain, coarsest first."""
        found = {}
        for name, size in zip(self.encoder.domain.names, self.encoder.domain.sizes, strict=True):
            column, widths = self.encoder.schema[name], [1]
            if column.kind in BINNED:
                while -(-(size - column.missing) // widths[0]) > _COARSE:
                    widths.insert(0, widths[0] * _BRANCH)
            found[name] = tuple(widths)
        return found

    @cached_property
    def _sizes(self) -> list[tuple[str, int, int]]:
        """Of each table: the column, the width of its bins, and its cells."""
        made = []
        for name, widths in self.widths.items():
            size, gone = self.encoder.domain.size_of(name), self.encoder.schema[name].missing
            for i, width in enumerate(widths):
                # A missing value is a cell of the coarsest table alone.
                made.append((name, width, -(-(size - gone) // width) + (gone if i == 0 else 0)))
        return made

    @property
    def number(self) -> int:
        """How many tables there are."""
        return len(self._sizes)

    @property
    def cells(self) -> int:
        """Of all tables."""
        return sum(cells for _, _, cells in self._sizes)

    def count(self, codes: Codes) -> NDArray[np.int64]:
        """Exact counts of all tables one after the other, (cells,)."""
        found = []
        for name, width, cells in self._sizes:
            column = self.encoder.schema[name]
            values = codes.column(name).astype(np.int64)
            known = self.encoder.domain.size_of(name) - column.missing
            first = width == self.widths[name][0]
            places = np.where(values < known, values // width, cells - 1 if first else cells)
            found.append(np.bincount(places, minlength=cells)[:cells])
        return np.concatenate(found).astype(np.int64)

    def columns(self, counts: NDArray[Any], rows: int, sigma: float) -> dict[str, Floats]:
        """Counts of each column's codes, none negative, that sum to the number of rows.

        Args:
            counts: (cells,), noisy.
            rows: Their number, 1 or more.
            sigma: Standard deviation of the noise.

        Raises:
            DataError: The counts are of other tables.
        """
        if np.shape(counts) != (self.cells,):
            cells = f"{self.number} tables have {self.cells} cells"
            raise DataError(f"counts have shape {np.shape(counts)}; {cells}")
        parts = np.split(np.asarray(counts), np.cumsum([n for _, _, n in self._sizes])[:-1])
        found: dict[str, Floats] = {}
        for (name, width, _), part in zip(self._sizes, parts, strict=True):
            if name not in found:
                whole, gone = consistent(part, float(rows)), self.encoder.schema[name].missing
                bins, tail = whole[: len(whole) - gone], whole[len(whole) - gone :]
                known = self.encoder.domain.size_of(name) - gone
                found[name] = np.concatenate([_spread(bins, width, known), tail])
            else:
                known = self.encoder.domain.size_of(name) - self.encoder.schema[name].missing
                found[name][:known] = _divided(found[name][:known], part, width, sigma)
        return found


def _spread(bins: Floats, width: int, size: int) -> Floats:
    """Share each bin's count among its finest bins alike; the last bin may have fewer."""
    fine = np.arange(size) // width
    spread: Floats = bins[fine] / np.bincount(fine)[fine]
    return spread


def _divided(fine: Floats, counts: NDArray[Any], width: int, sigma: float) -> Floats:
    """The finest counts once bins of a finer grain were heard."""
    place = np.arange(len(fine)) // width
    parts: Floats = np.bincount(place, weights=fine).astype(np.float64)  # as far as is known
    for start in range(0, len(parts), _BRANCH):
        own = slice(start, start + _BRANCH)
        said, held = counts[own], float(parts[own].sum())
        odd = float(((said - parts[own]) ** 2).sum()) / max(sigma, 1e-9) ** 2
        if held > 0.0 and odd > len(said) + _DOUBT * (2.0 * len(said)) ** 0.5:
            parts[own] = consistent(said, held)
    return _spread(parts, width, len(fine))
