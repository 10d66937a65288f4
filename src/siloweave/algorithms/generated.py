"""What a central generator leaves: a model of feature vectors, its ledger, and what it cost.

**Guarantee**: none of its own; what the ledger holds is what protects the rows. Sampling reads the
model alone and is post-processing (Dwork & Roth 2014, "The algorithmic foundations of differential
privacy", proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.algorithms.fitted import Cost, Info, Outcome
from siloweave.errors import DataError
from siloweave.federation.parties import Traffic
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.ledger import Entry
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.read import Frame, Table, read, write

__all__ = ["Generated", "Matrix", "Model", "read_generated"]

Matrix = npt.NDArray[np.float32]
"""Feature vectors, one per row."""


class Model(Protocol):
    """A generator of feature vectors. Conforming: GaussianCopula of `models`."""

    def sample(self, n: int, *, key: Key) -> Matrix:
        """Draw rows."""

    def save(self, path: Path) -> None:
        """Write the model as one safetensors file."""


class _Saved(msgspec.Struct, frozen=True):
    info: Info
    epsilon: float | None  # None without a bound: JSON has no infinity
    delta: float
    unit: str
    relation: Relation
    private: bool
    settings: dict[str, Any]
    ledgers: dict[str, tuple[Entry, ...]]
    heads: dict[str, str]
    traffic: dict[str, tuple[int, int, int]]
    rounds: int
    phases: dict[str, float]
    num_rows: int
    frame: Frame | None = None
    version: int = 1


@dataclass(frozen=True)
class Generated(Outcome):
    """A fitted generator.

    Attributes:
        model: Draws feature vectors.
        features: Vectors to table and back.
        info: What was run.
        budget: What was allowed; without a bound for a generator without guarantee.
        private: False if no noise was added, or if it came from a seed: then nothing here is
            protected.
        settings: The generator's public settings.
        ledgers: The owner's record.
        heads: Hash at the end of the ledger.
        cost: Bytes, rounds, seconds.
        num_rows: Rows that it was trained on.
        like: An empty table of the kind that was given, for sampling into the same kind.
    """

    model: Model
    features: Features
    info: Info
    budget: Budget
    private: bool
    settings: Mapping[str, Any]
    ledgers: Mapping[str, tuple[Entry, ...]]
    heads: Mapping[str, str]
    cost: Cost
    num_rows: int
    like: Table | None = None

    def sample_table(self, num_rows: int | None = None, *, seed: Key = 0) -> Table:
        """Synthetic rows as a `Table`."""
        X = self.model.sample(num_rows or self.num_rows, key=fold_in(seed, "rows"))
        return self.features.decode(X, key=fold_in(seed, "values"), like=self.like)

    def save(self, folder: Path | str) -> None:
        """Write the fit into a folder, as data only: nothing in it runs when it is read."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        self.model.save(path / "model.safetensors")
        (path / "features.json").write_text(self.features.to_json())
        moved = self.cost.parties.items()
        traffic = {n: (t.messages, t.bytes_to_party, t.bytes_from_party) for n, t in moved}
        saved = _Saved(
            self.info,
            self.budget.epsilon if self.budget.private else None,
            self.budget.delta,
            self.budget.unit,
            self.budget.relation,
            self.private,
            dict(self.settings),
            dict(self.ledgers),
            dict(self.heads),
            traffic,
            self.cost.rounds,
            dict(self.cost.phases),
            self.num_rows,
            self.like.frame if self.like else None,
        )
        if self.like:
            write(self.like, path / "like.parquet")
        (path / "generated.json").write_bytes(msgspec.json.encode(saved))


def read_generated(folder: Path | str, models: Mapping[str, Callable[[Path], Model]]) -> Generated:
    """Read what `Generated.save` wrote.

    Args:
        folder: Where it was saved.
        models: Per name of a generator, what reads its model.

    Raises:
        DataError: A file is missing, cut or of another version.
    """
    path = Path(folder)
    try:
        saved = msgspec.json.decode((path / "generated.json").read_bytes(), type=_Saved)
        features = Features.from_json((path / "features.json").read_text())
        like = read(path / "like.parquet") if saved.frame else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a saved generator: {error}") from error
    bound = inf if saved.epsilon is None else saved.epsilon
    return Generated(
        models[saved.info.name](path / "model.safetensors"),
        features,
        saved.info,
        Budget(bound, saved.delta, saved.unit, saved.relation),
        saved.private,
        saved.settings,
        saved.ledgers,
        saved.heads,
        Cost({n: Traffic(*t) for n, t in saved.traffic.items()}, saved.rounds, saved.phases),
        saved.num_rows,
        like.framed(saved.frame) if like and saved.frame else None,
    )
