"""What draws synthetic rows: a model of a table, and a generator of feature vectors.

The kinds of models are in `marginal_model.py`, `feature_model.py` and `protocols/columns.py`.

**Guarantee**: none of its own. A model is what parties released and paid for, and drawing from it
is post-processing (Dwork & Roth 2014, "The algorithmic foundations of differential privacy",
proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from siloweave.tables.arrays import Matrix
from siloweave.tables.keys import Key
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Schema


class Wanted(msgspec.Struct, frozen=True):
    """What is asked of a model: the arguments of `Fit.sample`, checked."""

    num_rows: int | None
    seed: Key
    given: Any = None
    balanced: str | bool = False
    tries: int = 100
    raked: bool = True
    missing: bool = True

    @property
    def free(self) -> bool:
        """Whether rows are drawn without conditions."""
        return self.given is None and self.balanced is False

    @property
    def named(self) -> tuple[str, ...]:
        """The columns in which something is asked for."""
        balanced = (self.balanced,) if isinstance(self.balanced, str) else ()
        if self.given is None or isinstance(self.given, Mapping):
            return (*(self.given or ()), *balanced)
        return (*read(self.given).names, *balanced)


class Model(Protocol):
    """Draws synthetic tables. Conforming: `MarginalModel`, `FeatureModel`."""

    @property
    def schema(self) -> Schema:
        """Facts about every column of a synthetic table."""

    def draw(self, wanted: Wanted, num_rows: int | None, like: Table | None) -> Table:
        """Synthetic rows of the modelled columns; `num_rows` is how many where that is open."""

    def with_values(self, names: Sequence[str]) -> Model:
        """Return the model given that some columns have a value, or itself where it cannot."""

    def save(self, folder: Path) -> None:
        """Write the model's files into a folder, as data only."""


class Generator(Protocol):
    """A generator of feature vectors. Conforming: all `NetworkModel`, `JoinedGenerator`."""

    @property
    def takes(self) -> frozenset[str]:
        """Columns that `given` may name."""

    @property
    def keeps(self) -> bool:
        """Whether rows have what is given in those columns; else only more often."""

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of a column was in the rows, where the model knows."""

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows; `given` is NaN wherever a row is free."""

    def save(self, path: Path) -> None:
        """Write the model as one safetensors file."""
