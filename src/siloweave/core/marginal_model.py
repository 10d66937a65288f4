"""A graphical model of a table's codes, which draws rows and meets conditions exactly.

**Guarantee**: none of its own, see `model.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path

import msgspec
import numpy as np

from siloweave.core.conditional import (
    Condition,
    balanced_column,
    completed,
    conditions,
    equally,
    imposed,
)
from siloweave.core.constrained import always_missing
from siloweave.core.model import Wanted
from siloweave.models.mrf import MRF
from siloweave.tables.codes import Clique, Codes, Domain, Encoder
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema

_HALF_A_ROW = 0.5
"""Fewer expected rows than this are none."""


class Measured(msgspec.Struct, frozen=True):
    """What a round measured, and how noisily; public."""

    cliques: tuple[Clique, ...]
    sigma: float


class _MarginalFacts(msgspec.Struct, frozen=True):
    measured: tuple[Measured, ...]
    workload: tuple[Clique, ...]


@dataclass(frozen=True)
class MarginalModel:
    """A graphical model over codes.

    Attributes:
        mrf: The distribution over codes.
        encoder: Codes to table and back.
        measured: What each round measured, and how noisily.
        workload: The queries that the run was to get right.
    """

    mrf: MRF
    encoder: Encoder
    measured: tuple[Measured, ...] = ()
    workload: tuple[Clique, ...] = ()

    @property
    def schema(self) -> Schema:
        """Facts about every column of a synthetic table."""
        return self.encoder.schema

    def draw(self, wanted: Wanted, num_rows: int | None, like: Table | None) -> Table:
        """Rows of the model; conditions are met by its exact conditional distribution."""
        cells: tuple[Condition, ...] = ()
        mrf = self.mrf if wanted.missing else self._complete
        if wanted.free:
            drawn = mrf.sample(wanted.num_rows, key=fold_in(wanted.seed, "rows"))
            codes = Codes(self.encoder.domain, drawn.columns)
        else:
            total = round(self.mrf.total) if num_rows is None else num_rows
            known = self.encoder.domain.names
            count, cells = conditions(self.schema, known, wanted.given, wanted.num_rows, total)
            if wanted.balanced is not False:
                column = balanced_column(self.schema, wanted.balanced, None, cells)
                shares = mrf.marginal((column.name,)).tolist()
                cells = (*cells, equally(column, shares, count, wanted.seed))
            codes = completed(mrf, self.encoder, count, cells, wanted.seed)
        table = self.encoder.decode(codes, key=fold_in(wanted.seed, "values"), like=like)
        if not cells:
            return table
        return imposed(table, cells, like)

    @cached_property
    def _complete(self) -> MRF:
        """The model given that no value is missing: its potentials without the missing codes.

        Raises:
            InputError: A column is missing in every row.
        """
        domain = self.encoder.domain
        missing = [column.name for column in self.schema.coded if column.missing]
        for name in missing:
            if self.mrf.marginal((name,))[:-1].sum() < _HALF_A_ROW:
                raise always_missing(name)
        sizes = {name: domain.size_of(name) - (name in missing) for name in domain.names}
        potentials = {
            clique: table[tuple(slice(sizes[name]) for name in clique)]
            for clique, table in self.mrf.potentials.items()
        }
        names = domain.names
        return MRF(Domain(names, tuple(sizes[name] for name in names)), potentials, self.mrf.total)

    def with_values(self, names: Sequence[str]) -> MarginalModel:
        """Return the model given that no value of some columns is missing.

        Raises:
            InputError: One of them is missing in every row.
        """
        domain, potentials = self.encoder.domain, dict(self.mrf.potentials)
        may_miss = [column.name for column in self.schema.coded if column.missing]
        for name in (name for name in may_miss if name in names):
            if self.mrf.marginal((name,))[:-1].sum() < _HALF_A_ROW:
                raise always_missing(name)
            potential = potentials.get((name,), np.zeros(domain.size_of(name))).copy()
            potential[-1] = -inf
            potentials[name,] = potential
        return replace(self, mrf=MRF(domain, potentials, self.mrf.total))

    def codes(self, num_rows: int | None, seed: Key) -> Codes:
        """Synthetic rows as codes; as many as were fitted unless `num_rows` says how many."""
        return self.mrf.sample(num_rows, key=fold_in(seed, "rows"))

    def save(self, folder: Path) -> None:
        """Write the model's files into a folder."""
        self.mrf.save(folder / "model.safetensors")
        facts = msgspec.to_builtins(_MarginalFacts(self.measured, self.workload))
        text = msgspec.json.encode(facts | {"encoder": self.encoder.to_json()})
        (folder / "encoder.json").write_bytes(text)

    @classmethod
    def load(cls, folder: Path) -> MarginalModel:
        """Read what `save` wrote."""
        text = (folder / "encoder.json").read_bytes()
        encoder = Encoder.from_json(msgspec.json.decode(text)["encoder"])
        facts = msgspec.json.decode(text, type=_MarginalFacts)
        mrf = MRF.load(folder / "model.safetensors")
        return cls(mrf, encoder, facts.measured, facts.workload)
