"""What one noisy look at the columns is good for: encoders, frequencies, and rows to warm up with.

The look itself is one release of every column's counts (Dwork, McSherry, Nissim & Smith 2006,
"Calibrating noise to sensitivity in private data analysis"); all that is here reads what it gave.

**Guarantee**: none of its own, and none needed: everything here is a function of counts that were
paid for, of the public schema and of a public seed, so it is as private as the counts are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from siloweave.tables.bins import spike_bins
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in, generator
from siloweave.tables.levels import ResolutionLevels
from siloweave.tables.one_way import OneWay
from siloweave.tables.read import Table

__all__ = ["Look"]

Floats = npt.NDArray[np.float64]

_DRAWN = 20_000  # rows of the product of the columns; shares are right to one in as many


@dataclass(frozen=True)
class Look:
    """Noisy counts of every column.

    Attributes:
        encoder: Its codes are the finest bins that were counted.
        counts: Of the tables of `ResolutionLevels`, one after the other.
        sigma: Standard deviation of their noise.
        rows: How many rows there are, noisy or public; 1 or more.
        seed: For what is drawn here; public.
    """

    encoder: Encoder
    counts: npt.NDArray[np.int64]
    sigma: float
    rows: int
    seed: int

    @cached_property
    def columns(self) -> dict[str, Floats]:
        """Counts of each column's codes, none negative, that sum to the number of rows."""
        return ResolutionLevels(self.encoder).columns(self.counts, self.rows, self.sigma)

    def features(self, numeric: Any) -> Features:
        """Encoders of every column."""
        return Features.from_counts(self.encoder, self.columns, numeric=numeric)

    def shares(self, features: Features) -> dict[int, list[float]]:
        """How frequent each option of each choice is, by where its block starts."""
        X = features.encode(self.product(), key=fold_in(self.seed, "shares"))
        choices = [block for block in features.blocks if block.kind == "categorical"]
        return {b.start: X[:, b.start : b.stop].mean(0).tolist() for b in choices}

    @cached_property
    def one_way(self) -> OneWay:
        """How single columns are distributed, as far as the counts tell."""
        return OneWay.of(self.product(), self.encoder.schema)

    def product(self) -> Table:
        """Rows whose columns have these frequencies and nothing to do with each other."""
        found = []
        for name, counts in self.columns.items():
            ends = np.floor(np.cumsum(counts) / counts.sum() * _DRAWN + 0.5)
            times = np.diff(np.append(0.0, ends)).astype(np.int64)
            codes = np.repeat(np.arange(len(counts)), times)
            found.append(generator(fold_in(self.seed, "product", name)).permutation(codes))
        drawn = Codes(self.encoder.domain, tuple(found))
        schema = self.encoder.schema
        spikes = {name: spike_bins(schema[name], seen) for name, seen in self.columns.items()}
        return self.encoder.decode(drawn, key=fold_in(self.seed, "product"), spikes=spikes)
