"""Central generators: the owner of all rows trains a model on them and releases the model.

SDV's Gaussian copula (Patki, Wedge & Veeramachaneni 2016, "The Synthetic Data Vault"), CTGAN (Xu et
al. 2019, "Modeling tabular data using conditional GAN") and TabDDPM (Kotelnikov et al. 2023,
"TabDDPM: modelling tabular data with diffusion models"), as one-party runs of the same federation.

**Guarantee**: none. The weights are released as they were trained, and the ledger says so with an
event of infinite cost; encoders, bounds and frequencies are taken from the rows as well.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import msgspec

from siloweave.algorithms.generated import Generated, Matrix, Model
from siloweave.algorithms.one_owner import OneOwner, owner_of
from siloweave.algorithms.outcome import Cost
from siloweave.algorithms.running import (
    Job,
    PartySide,
    Progress,
    Recipe,
    opened,
    plain,
    required_rows,
    silent,
)
from siloweave.errors import BudgetError
from siloweave.federation.messages import Released, Reply, Request
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.budget import UNBOUNDED, Budget
from siloweave.privacy.events import NonPrivate
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.one_way import OneWay
from siloweave.tables.read import Table, digest_of, read
from siloweave.tables.schema import Schema, outline

__all__ = ["CentralGenerator", "OwnerData", "Train", "TrainedModel", "Training", "party", "train"]

_ENCODED = 0.05  # share of the progress bar before training


# Messages


class TrainedModel(Reply, frozen=True):
    """A trained model as a safetensors file, and facts about the rows.

    Attributes:
        model: The file.
        features: How tables become its vectors.
        one_way: How single columns are distributed.
        rows: How many there were.
    """

    model: Released[bytes]
    features: Released[str]
    one_way: Released[str]
    rows: Released[int]


class Train(Request[TrainedModel], frozen=True, tag="central/train"):
    """Train this generator on your rows."""

    settings: bytes
    target: str | None
    seed: int


# Party


@dataclass(frozen=True)
class OwnerData:
    """What the owner works with; an interrupted training is kept in `store`, if there is one."""

    table: Table
    schema: Schema
    progress: Progress = silent
    store: Path | None = None

    def digest(self) -> bytes:
        """By which the party knows again what it brought; see `Site`."""
        return digest_of(self.table, self.schema.digest())


@dataclass(frozen=True)
class Training:
    """What a model is trained on.

    Attributes:
        X: Feature vectors, one per row.
        features: How they were made.
        settings: Of the generator, as `CentralGenerator.chosen` gave them.
        target: A column whose classes are told to the model, or None.
        key: Everything random.
        progress: Told how far training is.
        store: Folder for checkpoints, of this training alone; none are kept if None.
    """

    X: Matrix
    features: Features
    settings: dict[str, Any]
    target: str | None
    key: Key
    progress: Progress = silent
    store: Path | None = None


def train(kind: type[CentralGenerator], request: Train, site: Site[OwnerData]) -> TrainedModel:
    """Encode, train, release; all of it is entered as releases without privacy."""
    held = site.rows
    site.require_first()  # a training again and again would take time that the study does not
    site.terms.require(site.name, target=request.target, **msgspec.json.decode(request.settings))
    event = NonPrivate(f"{kind.info.title} is trained without noise")
    key = fold_in(request.seed, "train")
    held.progress("learning encoders", 0.0)
    learned = Features.fit(
        held.table, held.schema, numeric=kind.numeric, key=fold_in(key, "features")
    )
    kind.check_width(learned)

    def told(text: str, done: float) -> None:
        held.progress(text, _ENCODED + (1.0 - _ENCODED) * done)

    def weights() -> bytes:
        held.progress("encoding rows", _ENCODED / 2)
        X = learned.encode(held.table, key=fold_in(key, "encode"))
        settings = msgspec.json.decode(request.settings)
        own = fold_in(key, "model")
        work = Training(X, learned, settings, request.target, own, told, held.store)
        model = kind.train(work)
        with TemporaryDirectory() as folder:
            model.save(Path(folder) / "model.safetensors")
            return (Path(folder) / "model.safetensors").read_bytes()

    features = site.release(event, "encoders of every column", learned.to_json)
    model = site.release(event, f"weights of {kind.info.title}", weights)
    one_way = site.release(
        event, "shares of every column", lambda: OneWay.of(held.table, held.schema).to_json()
    )
    rows = site.release(event, "number of rows", lambda: held.table.num_rows)
    return TrainedModel(model, features, one_way, rows)


def party(kind: type[CentralGenerator]) -> Handlers:
    """The owner's side for one kind of generator: which function answers which request."""
    return {Train: partial(train, kind)}


# Coordinator


@dataclass(frozen=True)
class CentralGenerator(OneOwner[Generated]):
    """What all central generators share.

    Args:
        target: A column whose classes are told to the model; only for one that takes a target.
    """

    target: str | None = None
    numeric: ClassVar[Any] = "quantile"

    @abstractmethod
    def chosen(self) -> dict[str, Any]:
        """The settings, as plain values."""

    @classmethod
    def check_width(cls, features: Features) -> None:
        """Refuse vectors that the model cannot hold, before anything is released; most hold any.

        Raises:
            InputError: They are too wide.
        """

    @staticmethod
    @abstractmethod
    def train(work: Training) -> Model:
        """Train on feature vectors."""

    def fitted(self, data: Any, schema: Schema, job: Job, names: Sequence[str] | None) -> Generated:
        """Train on one table; see `fit`."""
        settings, (name, rows) = msgspec.json.encode(self.chosen()), owner_of(data, names)
        self.check_schema(schema)
        table, start = read(rows), time.perf_counter()
        required_rows(name, table.num_rows)
        facts = {"target": self.target, **msgspec.json.decode(settings)}
        job = replace(job, facts=facts)
        store = self.training_store(job)
        held = {name: OwnerData(table, schema, job.progress, store)}
        recipe = Recipe.of(self, schema)
        with opened(held, party(type(self)), job, job.run, recipe, {name: table}) as (parties, _):
            (reply,) = parties.ask(Train(settings, self.target, job.seed))
            closing = parties.close()
        if store is not None:  # the reply is kept now
            rmtree(store, ignore_errors=True)
        cost = Cost(parties.traffic, parties.rounds, {"training": time.perf_counter() - start})
        return Generated(
            self.read_model(reply.model.value),
            Features.from_json(reply.features.value),
            self.stated,
            job.budget,
            False,
            facts,
            closing.ledgers,
            closing.heads,
            cost,
            reply.rows.value,
            outline(table),
            OneWay.from_json(reply.one_way.value),
        )

    def party_side(
        self, stage: str, name: str, table: Table, schema: Schema, **_: Any
    ) -> PartySide:
        """The owner's data, its handlers, and the facts that it is given."""
        facts = {"target": self.target, **plain(self.chosen())}
        return OwnerData(table, schema), party(type(self)), facts

    def allowed(self, budget: Budget | None) -> Budget:
        """No bound; raises BudgetError where one is asked for."""
        if budget is not None and isfinite(budget.epsilon):
            raise BudgetError(
                f"{self.info.title} has no private training, and budget asks for epsilon = "
                f"{budget.epsilon}. Give budget=None to go without a guarantee, or use AIM."
            )
        return budget or UNBOUNDED
