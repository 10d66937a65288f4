"""What methods share whose parties hold different columns of the same people.

The setting is that of vertical federated synthesis (Shankar et al. 2024, "SiloFuse"; Jiang et al.
2023, "Distributed synthetic data with VertiGAN"): rows are aligned before, and row i is the same
person at every party. The coordinator's joint generator draws vectors; every party decodes its part
of them into its own columns, with a local decoder that never leaves it. The columns are put
together, or stay with their parties, as the study says.

**Guarantee**: none of its own; a method's file states its own. One person's row lies at all
parties, so what they release about it adds up: the epsilon of a fit is that of all ledgers
together. Sampling reads what was released and, in a simulation, the local decoders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
import numpy as np

from siloweave.core.fit import FeatureModel, Generator, Matrix
from siloweave.core.method import READERS, Place, Setup, View
from siloweave.errors import BudgetError, WireError
from siloweave.federation.site import Site
from siloweave.privacy.budget import Budget, Relation
from siloweave.progress import Progress, silent
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features, OneWay
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.read import Table, digest_of
from siloweave.tables.schema import Schema

_FEATURES, _CODER = "decoder/features", "decoder/coder"  # what a party remembers


# A party's data


@dataclass(frozen=True)
class ColumnsData:
    """What a party works with.

    Attributes:
        table: Its columns, ids left out; rows in the order that all parties share.
        schema: Of these columns.
        progress: Called with a text and the share that is done of this party's work.
        store: Folder for an interrupted training of this party, of this run alone; or None.
    """

    table: Table
    schema: Schema
    progress: Progress = silent
    store: Path | None = None

    def digest(self) -> bytes:
        """Recognises the same rows when a run is resumed; see `Site`."""
        return digest_of(self.table, self.schema.digest())


def parts_of(setup: Setup) -> dict[str, Schema]:
    """Every party's part of the schema, without ids, in roster order."""
    return {name: setup.schema.select(list(own)) for name, own in setup.columns.items()}


def columns_data(table: Table, setup: Setup, place: Place) -> ColumnsData:
    """A party's columns, whose rows must fit the schema."""
    schema = parts_of(setup)[place.name]
    own = table.select(list(schema.names))
    Encoder(schema).encode(own)
    return ColumnsData(own, schema, place.progress, place.store)


def column_facts(setup: Setup) -> dict[str, Any]:
    """What every party is given of a study: its settings, and who holds which columns."""
    return {**setup.synth.settings(), "parts": parts_of(setup)}


def require_replacing(budget: Budget, sent: str) -> None:
    """Refuse neighbours that differ in the number of rows, where `sent` shows it to all."""
    if budget.relation is not Relation.REPLACE_ONE:
        raise BudgetError(
            f"budget: relation = {str(budget.relation)!r}, but {sent}, so their number is known to "
            "all. Give Budget(..., relation=sw.Relation.REPLACE_ONE)."
        )


def condition_of(target: str | None, parts: Mapping[str, Schema]) -> str | None:
    """The target, unless it is the only column: then there is nothing else to learn."""
    return target if sum(len(part.names) for part in parts.values()) > 1 else None


def readers(shared: bool, protection: str) -> View:
    """What readers see: the table, or the columns that each party shows them."""
    table = READERS.sees if shared else "the synthetic columns that their party shows them"
    return View("readers", table, protection)


def keep_decoder(site: Site[Any], features: Features, coder: bytes) -> None:
    """Remember at a party how its columns are made of the coordinator's vectors; it never leaves.

    Args:
        site: The party.
        features: Feature vectors of its columns to table and back.
        coder: A safetensors file of what lies between the coordinator's vectors and those.
    """
    site.remember(_FEATURES, features.to_json().encode())
    site.remember(_CODER, coder)


def check_same_rows(counts: Mapping[str, int]) -> None:
    """Refuse parties that do not have the same rows, naming two of them; one of them is wrong."""
    first = next(iter(counts), "")
    for name in counts:
        if counts[name] != counts[first]:
            raise WireError(
                f"parties {first!r} and {name!r} sent {counts[first]:,} and {counts[name]:,} rows, "
                "and must hold the same people. The replies were discarded: check which software "
                "these parties run, and start a new run"
            )


# What draws the rows


class LocalDecoder(Protocol):
    """What stays at a party, and makes its columns of its part of the coordinator's vectors."""

    @property
    def features(self) -> Features:
        """Feature vectors of its columns to table and back."""

    @property
    def width(self) -> int:
        """Entries of its part of the coordinator's vector."""

    def decode(self, part: Matrix, *, key: Key) -> Matrix:
        """Feature vectors of its columns, from its part of the coordinator's vectors."""

    def encode(self, X: Matrix) -> Matrix:
        """Its part of vectors, from feature vectors of its columns; NaN where those are NaN."""

    def to_bytes(self) -> bytes:
        """The coder that `keep_decoder` remembered."""


ReadDecoder = Callable[[Features, bytes], LocalDecoder]
"""Reads a local decoder from features and the bytes of its coder."""


@dataclass(frozen=True)
class JoinedGenerator:
    """Draws the coordinator's vectors and lets every party make its columns of its part.

    Attributes:
        joint: Draws the parties' parts side by side, in roster order.
        decoders: What stayed at the parties, in that order.
        features: Of all columns.
    """

    joint: Generator
    decoders: Mapping[str, LocalDecoder]
    features: Features

    @property
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for."""
        return self.joint.takes

    @property
    def keeps(self) -> bool:
        """Whether rows have what is given in those columns."""
        return self.joint.keeps

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of a column was, where the model knows."""
        return self.joint.shares(column)

    def save(self, path: Path) -> None:
        """Write the coordinator's generator."""
        self.joint.save(path)

    def _parts(self) -> list[tuple[str, LocalDecoder, slice, list[int]]]:
        """Per party: name, decoder, place in a joint vector, and places among the features."""
        own: dict[str, list[int]] = {}
        for block in self.features.blocks:
            own.setdefault(block.column, []).extend(range(block.start, block.stop))
        found, start = [], 0
        for name, decoder in self.decoders.items():
            places = [i for one in decoder.features.encodings for i in own[one.column]]
            found.append((name, decoder, slice(start, start + decoder.width), places))
            start += decoder.width
        return found

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw feature vectors of all columns; `given` is NaN wherever a row is free."""
        parts, asked = self._parts(), None
        if given is not None:
            coded = [decoder.encode(given[:, places]) for _, decoder, _, places in parts]
            asked = np.concatenate(coded, axis=1).astype(np.float32)
        drawn = self.joint.sample(n, key=key, given=asked)
        X = np.zeros((n, self.features.width), dtype=np.float32)
        for name, decoder, place, places in parts:
            X[:, places] = decoder.decode(drawn[:, place], key=fold_in(key, "home", name))
        return X


class _SavedDecoder(msgspec.Struct, frozen=True):
    """The file beside a local decoder's coder."""

    party: str
    features: str


@dataclass(frozen=True)
class ColumnsModel(FeatureModel):
    """A generator of feature vectors whose columns are made by the parties' local decoders.

    Here, in a simulation, all decoders are in one place.
    """

    net: JoinedGenerator

    def save(self, folder: Path) -> None:
        """Write the coordinator's generator and every local decoder into a folder."""
        super().save(folder)
        for i, (name, decoder) in enumerate(self.net.decoders.items()):
            place = folder / "parties" / f"{i:04d}"
            place.mkdir(parents=True)
            facts = _SavedDecoder(name, decoder.features.to_json())
            (place / "features.json").write_bytes(msgspec.json.encode(facts))
            (place / "coder.safetensors").write_bytes(decoder.to_bytes())

    @classmethod
    def read(
        cls, folder: Path, *, joint: Callable[[Path], Generator], decoder: ReadDecoder
    ) -> Self:
        """Read what `save` wrote; `joint` and `decoder` read its parts."""
        whole, decoders = FeatureModel.load(folder, joint), {}
        for place in sorted((folder / "parties").iterdir()):
            text = (place / "features.json").read_bytes()
            saved = msgspec.json.decode(text, type=_SavedDecoder)
            features = Features.from_json(saved.features)
            coder = (place / "coder.safetensors").read_bytes()
            decoders[saved.party] = decoder(features, coder)
        net = JoinedGenerator(whole.net, decoders, whole.features)
        return cls(net, whole.features, whole.one_way, whole.target)


def gathered(
    decoder: ReadDecoder, joint: Any, setup: Setup, recall: Callable[[str, str], bytes | None]
) -> ColumnsModel:
    """The coordinator's generator together with the local decoders, which a simulation may read.

    Args:
        decoder: Reads what `keep_decoder` remembered.
        joint: What the coordinator trained; its `one_way`, if any, are all parties' single columns.
        setup: Of the run.
        recall: What a party remembers under a key.
    """
    decoders = {}
    for name in setup.roster:
        kept, coder = recall(name, _FEATURES), recall(name, _CODER)
        assert kept is not None  # a method that keeps no decoder is broken
        assert coder is not None
        decoders[name] = decoder(Features.from_json(kept), coder)
    known = {one.column: one for d in decoders.values() for one in d.features.encodings}
    names = [name for name in setup.schema.names if name in known]
    features = Features(setup.schema, tuple(known[name] for name in names))
    one_way: OneWay | None = getattr(joint, "one_way", None)
    if one_way is not None:
        cells = {one.column.name: one for one in one_way.cells}
        one_way = OneWay(tuple(cells[name] for name in names if name in cells))
    net = JoinedGenerator(joint, decoders, features)
    return ColumnsModel(net, features, one_way, getattr(setup.synth, "target", None))
