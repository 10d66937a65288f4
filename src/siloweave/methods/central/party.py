"""The owner's side of a central generator: encode, train, release.

**Guarantee**: none, see method.py. The owner trains the generator of its own study, once a run, and
its ledger says with an event of infinite cost that nothing protects what it releases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from siloweave.core.fit import Generator, Matrix
from siloweave.federation.site import Handlers, Site
from siloweave.methods.central.messages import Train, TrainedModel
from siloweave.privacy.events import NonPrivate
from siloweave.progress import Progress, silent
from siloweave.protocols.networks import OwnerData, saved_bytes
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.one_way import OneWay

_ENCODED = 0.05  # share of the progress bar before training


@dataclass(frozen=True)
class Training:
    """What a model is trained on."""

    synth: Any  # the settings
    X: Matrix  # feature vectors, one per row
    features: Features  # how they were made
    key: Key  # everything random
    progress: Progress = silent  # called with a text and the share of the training that is done
    store: Path | None = None  # for checkpoints of this training alone; None for none


@dataclass(frozen=True)
class OwnerTrainer:
    """How a generator is trained; it loads its network when it is called."""

    fit: Callable[[Training], Generator]  # trains on feature vectors
    load: Callable[[Path], Generator]  # reads a model that was saved
    numeric: Any = "quantile"  # what a number becomes, see `Features.fit`
    check_width: Callable[[Features], None] = lambda features: None  # refuses what does not fit


def train(synth: Any, trainer: OwnerTrainer, request: Train, site: Site[OwnerData]) -> TrainedModel:
    """Encode, train, release; all of it is entered as releases without privacy."""
    data, key, title = site.rows, fold_in(request.seed, "train"), synth.method.title
    site.require_first()  # a training again and again would take time that the study does not
    event = NonPrivate(f"{title} is trained without noise")
    data.progress("learning encoders", 0.0)
    learned = Features.fit(
        data.table, data.schema, numeric=trainer.numeric, key=fold_in(key, "features")
    )
    trainer.check_width(learned)

    def progress(text: str, done: float) -> None:
        data.progress(text, _ENCODED + (1.0 - _ENCODED) * done)

    def weights() -> bytes:
        data.progress("encoding rows", _ENCODED / 2)
        X = learned.encode(data.table, key=fold_in(key, "encode"))
        own = fold_in(key, "model")
        return saved_bytes(trainer.fit(Training(synth, X, learned, own, progress, data.store)))

    features = site.release(event, "encoders of every column", learned.to_json)
    model = site.release(event, f"weights of {title}", weights)
    one_way = site.release(
        event, "shares of every column", lambda: OneWay.of(data.table, data.schema).to_json()
    )
    rows = site.release(event, "number of rows", lambda: data.table.num_rows)
    return TrainedModel(model, features, one_way, rows)


def handlers(trainer: OwnerTrainer, synth: Any) -> Handlers:
    """The owner's side for one kind of generator: which function answers which request."""
    return {Train: partial(train, synth, trainer)}
