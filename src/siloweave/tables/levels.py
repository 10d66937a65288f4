"""Counts of every column at several resolution levels, and what noisy ones say of the finest.

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
from siloweave.tables.bins import BINNED, Floats
from siloweave.tables.codes import Codes, Encoder

_BRANCH = 16  # bins of the next level in one
_COARSE = 32  # the coarsest level has at most so many
_DOUBT = 3.0  # standard deviations of a chi-squared by which parts differ from equal shares


def consistent(counts: NDArray[Any], total: float) -> Floats:
    """The nearest counts that are not negative and have this sum (above 0).

    Noise makes empty cells look occupied half of the time; what is subtracted from all cells alike
    until the sum is right empties most of them again (projection onto a simplex).

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
class ResolutionLevels:
    """Tables of counts: one for each column, more for one of many bins.

    A row is in one cell of each table, or in no cell of a finer one where its value is missing.
    The encoder's codes are the finest level.
    """

    encoder: Encoder

    @cached_property
    def widths(self) -> dict[str, tuple[int, ...]]:
        """How many bins of the finest level are in one of each level, coarsest first."""
        found = {}
        for name in self.encoder.domain.names:
            widths = [1]
            if self.encoder.schema[name].kind in BINNED:
                while -(-self._known(name) // widths[0]) > _COARSE:
                    widths.insert(0, widths[0] * _BRANCH)
            found[name] = tuple(widths)
        return found

    def _known(self, name: str) -> int:
        """How many codes of a column stand for a value."""
        return self.encoder.domain.size_of(name) - self.encoder.schema[name].missing

    @cached_property
    def _sizes(self) -> list[tuple[str, int, int]]:
        """Of each table: the column, the width of its bins, and its cells."""
        # A missing value is a cell of the coarsest table alone.
        return [
            (
                name,
                width,
                -(-self._known(name) // width) + (self.encoder.schema[name].missing and not i),
            )
            for name, widths in self.widths.items()
            for i, width in enumerate(widths)
        ]

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
            values = codes.column(name).astype(np.int64)
            gone = cells - 1 if width == self.widths[name][0] else cells
            places = np.where(values < self._known(name), values // width, gone)
            found.append(np.bincount(places, minlength=cells)[:cells])
        return np.concatenate(found).astype(np.int64)

    def columns(self, counts: NDArray[Any], rows: int, sigma: float) -> dict[str, Floats]:
        """Counts of each column's codes, not negative, that sum to the number of rows.

        Args:
            counts: (cells,), noisy; DataError if they are of other tables.
            rows: Their number, 1 or more.
            sigma: Standard deviation of the noise.
        """
        if np.shape(counts) != (self.cells,):
            cells = f"{self.number} tables have {self.cells} cells"
            raise DataError(f"counts have shape {np.shape(counts)}; {cells}")
        parts = np.split(np.asarray(counts), np.cumsum([n for _, _, n in self._sizes])[:-1])
        found: dict[str, Floats] = {}
        for (name, width, _), part in zip(self._sizes, parts, strict=True):
            known = self._known(name)
            if name in found:
                found[name][:known] = _divided(found[name][:known], part, width, sigma)
            else:
                whole, bins = consistent(part, float(rows)), -(-known // width)
                found[name] = np.append(_spread(whole[:bins], width, known), whole[bins:])
        return found


def _spread(bins: Floats, width: int, size: int) -> Floats:
    """Share each bin's count among its finest bins alike; the last bin may have fewer."""
    fine = np.arange(size) // width
    spread: Floats = bins[fine] / np.bincount(fine)[fine]
    return spread


def _divided(fine: Floats, counts: NDArray[Any], width: int, sigma: float) -> Floats:
    """The finest counts after the noisy counts of a finer level divided the bins."""
    place = np.arange(len(fine)) // width
    parts: Floats = np.bincount(place, weights=fine).astype(np.float64)  # as far as is known
    for start in range(0, len(parts), _BRANCH):
        own = slice(start, start + _BRANCH)
        noisy, held = counts[own], float(parts[own].sum())
        odd = float(((noisy - parts[own]) ** 2).sum()) / max(sigma, 1e-9) ** 2
        if held > 0.0 and odd > len(noisy) + _DOUBT * (2.0 * len(noisy)) ** 0.5:
            parts[own] = consistent(noisy, held)
    return _spread(parts, width, len(fine))
