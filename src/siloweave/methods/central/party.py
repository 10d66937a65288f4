"""Central generators: the owner of all rows trains a model on them and releases the model.

SDV's Gaussian copula (Patki, Wedge & Veeramachaneni 2016, "The Synthetic Data Vault"), CTGAN (Xu et
al. 2019, "Modeling tabular data using conditional GAN") and TabDDPM (Kotelnikov et al. 2023,
"TabDDPM: modelling tabular data with diffusion models"), as one-party runs of the same federation.

**Guarantee**: none. The weights are released as they were trained, and the ledger says so with an
event of infinite cost; encoders, bounds and frequencies are taken from the rows as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from siloweave.algorithms.generated import Matrix
from siloweave.algorithms.running import (
    Progress,
    silent,
)
from siloweave.federation.site import Handlers, Site
from siloweave.methods.central.messages import Train, TrainedModel
from siloweave.methods.central.method import CentralGenerator
from siloweave.privacy.events import NonPrivate
from siloweave.protocols.networks import OwnerData
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.one_way import OneWay

_ENCODED = 0.05  # share of the progress bar before training


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
