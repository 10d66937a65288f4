"""A law of latents over parties, behind the interface of a generator; and what decodes its parts.

What SiloFuse and E2EDistr leave (Shankar et al. 2024, "SiloFuse", Algorithm 2): the coordinator's
diffusion, and at every party a coder.

**Guarantee**: none of its own; it reads no row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from siloweave.algorithms.generated import Matrix
from siloweave.algorithms.networks import NetworkModel, jax_key, way_of
from siloweave.tables.features import Features
from siloweave.tables.keys import Key
from siloweave.tables.one_way import OneWay

if TYPE_CHECKING:
    from siloweave.models.coders import RowCoder

__all__ = ["CoderHome", "JointModel", "load_joint", "split_key"]


def split_key(key: Key) -> tuple[Any, Any]:
    """Two keys of JAX: for a coder and for the law of its latents."""
    import jax

    first, second = jax.random.split(jax_key(key))
    return first, second


@dataclass(frozen=True)
class JointModel(NetworkModel):
    """A `LatentDistribution` whose facts say where its entries stand in the parties' parts."""

    @property
    def one_way(self) -> OneWay | None:
        """How single columns are distributed, all parties' together; None where it is not known."""
        told = [OneWay.from_json(text) for text in self.net.facts["one_way"]]
        return OneWay(tuple(one for part in told for one in part.cells)) if told else None

    @property
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for: the label; all where points code the columns."""
        label = {self.net.facts["label"]} - {None}
        columns = set(self.net.facts["columns"])
        return frozenset(label if "" in columns else label | columns)

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of the label was; nothing of other columns."""
        label = self.net.facts["label"]
        return tuple(self.net.diffusion.label_shares) if label and column == label else None

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw the parties' parts, side by side in roster order."""
        places, latent = self.net.facts["places"], self.net.latent
        told = None if given is None else given[:, places]
        way = {} if told is None else way_of(told[:, :latent])
        V = np.empty((n, len(places)), np.float32)
        V[:, places] = self.net.sample(n, key=split_key(key)[0], given=told, **way)
        return V


def load_joint(path: Path) -> JointModel:
    """Read a model that was saved."""
    from siloweave.models.latent import LatentDistribution

    return JointModel(LatentDistribution.load(path))


@dataclass(frozen=True)
class CoderHome:
    """A party that keeps a coder.

    Attributes:
        features: Vectors of its columns to table and back.
        rows: The coder.
    """

    features: Features
    rows: RowCoder

    @classmethod
    def of(cls, features: Features, coder: bytes | None) -> CoderHome:
        """Read what `keep_home` remembered."""
        from siloweave.models.coders import RowCoder

        assert coder is not None
        return cls(features, RowCoder.from_bytes(coder))

    @property
    def width(self) -> int:
        """Latents, and the options of the target where it is this party's."""
        return self.rows.width

    def decode(self, part: Matrix, *, key: Key) -> Matrix:
        """Feature vectors of its columns."""
        return self.rows.decode(part, key=jax_key(key))

    def encode(self, X: Matrix) -> Matrix:
        """Its part of vectors, NaN where rows are free."""
        return self.rows.encode_known(X)

    def coder(self) -> bytes:
        """What `of` reads again."""
        return self.rows.to_bytes()
