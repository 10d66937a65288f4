"""The two models of a table: a graphical one over codes, and a generator of feature vectors.

A third, whose vectors every party decodes into its own columns, is in `protocols/columns.py`.

**Guarantee**: none of its own. A model is what parties released and paid for, and drawing from it
is post-processing (Dwork & Roth 2014, "The algorithmic foundations of differential privacy",
proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf
from pathlib import Path

import msgspec
import numpy as np

from siloweave.core.conditional import (
    Condition,
    Generator,
    VectorCondition,
    Wanted,
    accepted,
    balanced_column,
    completed,
    conditions,
    equally,
    imposed,
    shares_in,
)
from siloweave.core.constrained import always_missing
from siloweave.models.mrf import MRF
from siloweave.models.raking import chosen, enough
from siloweave.tables.arrays import Floats, Ints, Matrix
from siloweave.tables.codes import Clique, Codes, Domain, Encoder
from siloweave.tables.features import Features, OneWay
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

_HALF_A_ROW = 0.5
"""Fewer expected rows than this count as no row."""
# Rows drawn for each row that raking takes, at first and at most; and so many more besides, as few
# rows are chosen well only among more of them.
_SPARE = 1.5
_MOST = 4.0
_MORE = 1000
_FEWEST_RAKED = 100
"""Fewer rows are not raked."""


# A graphical model


class Measured(msgspec.Struct, frozen=True):
    """The marginals that a round measured, and the scale of their noise; public."""

    cliques: tuple[Clique, ...]
    sigma: float


class _MarginalFacts(msgspec.Struct, frozen=True):
    measured: tuple[Measured, ...]
    workload: tuple[Clique, ...]


@dataclass(frozen=True)
class MarginalModel:
    """A graphical model over the codes of a table's columns.

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
        """Draw rows; given values are met by the model's exact conditional distribution."""
        cells: tuple[Condition, ...] = ()
        mrf = self.mrf if wanted.missing else self._complete
        if wanted.free:
            sample = mrf.sample(wanted.num_rows, key=fold_in(wanted.seed, "rows"))
            codes = Codes(self.encoder.domain, sample.columns)
        else:
            otherwise = round(self.mrf.total) if num_rows is None else num_rows
            names = self.encoder.domain.names
            count, cells = conditions(
                self.schema, names, wanted.given, wanted.num_rows, otherwise
            )
            if wanted.balanced is not False:
                column = balanced_column(self.schema, wanted.balanced, None, cells)
                shares = mrf.marginal((column.name,)).tolist()
                cells = (*cells, equally(column, shares, count, wanted.seed))
            codes = completed(mrf, self.encoder, count, cells, wanted.seed)
        table = self.encoder.decode(
            codes, key=fold_in(wanted.seed, "values"), like=like
        )
        return imposed(table, cells, like)

    @cached_property
    def _complete(self) -> MRF:
        """The model given that no value is missing.

        Raises:
            InputError: A column is missing in every row.
        """
        domain = self.encoder.domain
        missing = [column.name for column in self.schema.coded if column.missing]
        for name in missing:
            self._check_has_values(name)
        # A missing value is the last code of a column: the others are kept.
        sizes = {
            name: domain.size_of(name) - (name in missing) for name in domain.names
        }
        potentials = {
            clique: table[tuple(slice(sizes[name]) for name in clique)]
            for clique, table in self.mrf.potentials.items()
        }
        smaller = Domain(domain.names, tuple(sizes[name] for name in domain.names))
        return MRF(smaller, potentials, self.mrf.total)

    def _check_has_values(self, name: str) -> None:
        """Raise InputError where a column is missing in every row."""
        if self.mrf.marginal((name,))[:-1].sum() < _HALF_A_ROW:
            raise always_missing(name)

    def with_values(self, names: Sequence[str]) -> MarginalModel:
        """Return the model given that no value of some columns is missing.

        Raises:
            InputError: One of them is missing in every row.
        """
        domain = self.encoder.domain
        potentials = dict(self.mrf.potentials)
        may_be_missing = [column.name for column in self.schema.coded if column.missing]
        for name in may_be_missing:
            if name not in names:
                continue
            self._check_has_values(name)
            potential = potentials.get((name,), np.zeros(domain.size_of(name))).copy()
            potential[-1] = -inf  # the missing value's
            potentials[name,] = potential
        return replace(self, mrf=MRF(domain, potentials, self.mrf.total))

    def codes(self, num_rows: int | None, seed: Key) -> Codes:
        """Draw rows as codes: `num_rows`, or as many as the model was fitted to if None."""
        return self.mrf.sample(num_rows, key=fold_in(seed, "rows"))

    def save(self, folder: Path) -> None:
        """Write the model's files into a folder."""
        self.mrf.save(folder / "model.safetensors")
        facts = msgspec.to_builtins(_MarginalFacts(self.measured, self.workload))
        text = msgspec.json.encode(facts | {"encoder": self.encoder.to_json()})
        (folder / "encoder.json").write_bytes(text)

    @classmethod
    def load(cls, folder: Path) -> MarginalModel:
        """Read a model from the folder into which `save` wrote it."""
        text = (folder / "encoder.json").read_bytes()
        encoder = Encoder.from_json(msgspec.json.decode(text)["encoder"])
        facts = msgspec.json.decode(text, type=_MarginalFacts)
        mrf = MRF.load(folder / "model.safetensors")
        return cls(mrf, encoder, facts.measured, facts.workload)


# A generator of feature vectors


@dataclass(frozen=True)
class Pool:
    """Drawn rows from which a sample is chosen.

    Attributes:
        rows: All of them.
        codes: Finds, per column, the cell of every row.
        taken: Rows at some places; numbers that choosing left far off are moved.
    """

    rows: Table
    codes: Callable[[], list[Ints]]
    taken: Callable[[Ints], Table]


@dataclass(frozen=True)
class FeatureModel:
    """A generator of feature vectors, with the encoders that turn these into a table.

    Attributes:
        net: Draws feature vectors.
        features: Vectors to table and back.
        one_way: How single columns were distributed, as it was released; rows are raked to it.
            None where nothing is known.
        target: A column whose classes the model is conditioned on.
    """

    net: Generator
    features: Features
    one_way: OneWay | None = None
    target: str | None = None

    @property
    def schema(self) -> Schema:
        """Facts about every column of a synthetic table."""
        return self.features.schema

    def draw(self, wanted: Wanted, num_rows: int | None, like: Table | None) -> Table:
        """Draw rows: raked to known shares where they are free, else rejected by conditions."""
        seed = wanted.seed
        features = self.features
        otherwise = 1 if num_rows is None else num_rows
        if wanted.free:
            count = otherwise if wanted.num_rows is None else wanted.num_rows
            return self._free(count, wanted, like)
        names = [encoding.column for encoding in features.encodings]
        count, cells = conditions(
            self.schema, names, wanted.given, wanted.num_rows, otherwise
        )
        vector_conditions = [
            VectorCondition.of(
                condition, features, fold_in(seed, "given", condition.name)
            )
            for condition in cells
        ]
        if wanted.balanced is not False:
            column = balanced_column(self.schema, wanted.balanced, self.target, cells)
            shares = shares_in(self.net, features, column, seed)
            even = equally(column, shares, count, seed)
            even_key = fold_in(seed, "given")
            vector_conditions.append(VectorCondition.of(even, features, even_key))
        X = accepted(
            self.net, features, count, vector_conditions, tries=wanted.tries, key=seed
        )
        rows = features.decode(X, key=fold_in(seed, "values"), like=like)
        return imposed(rows, [condition.cells for condition in vector_conditions], like)

    def with_values(self, names: Sequence[str]) -> FeatureModel:
        """Return the model itself: it draws missing values, and callers reject these rows."""
        return self

    def _free(self, count: int, wanted: Wanted, like: Table | None) -> Table:
        """Draw rows without conditions."""
        seed = wanted.seed
        shares = None
        if wanted.raked and count >= _FEWEST_RAKED:
            shares = self.shares
        drawn_count = count if shares is None else ceil(_SPARE * count) + _MORE
        batches = [self.net.sample(drawn_count, key=fold_in(seed, "rows"))]
        pool = self.decoded(batches, seed, like)
        if shares is None:
            return pool.rows
        # More rows where some cell has fewer than raking takes of it.
        lack = enough(pool.codes(), shares, count)
        needed = ceil(min(drawn_count * lack, _MOST * count + _MORE))
        if needed > drawn_count:
            more = self.net.sample(needed - drawn_count, key=fold_in(seed, "more rows"))
            batches.append(more)
            pool = self.decoded(batches, seed, like)
        return pool.taken(chosen(pool.codes(), shares, count, key=seed))

    @property
    def shares(self) -> list[Floats] | None:
        """The share of each cell to which rows are raked, by column; None where it is not known."""
        return None if self.one_way is None else self.one_way.shares

    def decoded(self, batches: Sequence[Matrix], seed: Key, like: Table | None) -> Pool:
        """Turn feature vectors that were drawn in one batch or more into a table."""
        one_way = self.one_way or OneWay(())
        X = np.concatenate(batches)
        rows = self.features.decode(X, key=fold_in(seed, "values"), like=like)

        def taken(places: Ints) -> Table:
            return one_way.moved(rows.take(places), rows)

        return Pool(rows, lambda: one_way.codes(rows), taken)

    def save(self, folder: Path) -> None:
        """Write the model's files into a folder."""
        self.net.save(folder / "model.safetensors")
        facts = {"target": self.target, "features": self.features.to_json()}
        (folder / "features.json").write_bytes(msgspec.json.encode(facts))
        if self.one_way is not None:
            (folder / "one_way.json").write_text(self.one_way.to_json())

    @classmethod
    def load(cls, folder: Path, net: Callable[[Path], Generator]) -> FeatureModel:
        """Read a model from the folder into which `save` wrote it; `net` reads the generator."""
        facts = msgspec.json.decode((folder / "features.json").read_bytes())
        features = Features.from_json(facts["features"])
        path = folder / "one_way.json"
        one_way = OneWay.from_json(path.read_bytes()) if path.is_file() else None
        return cls(
            net(folder / "model.safetensors"), features, one_way, facts["target"]
        )
