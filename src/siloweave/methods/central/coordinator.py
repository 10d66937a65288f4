"""The other side of a central generator: one message, and what it brings.

**Guarantee**: none, see method.py.
"""

from __future__ import annotations

from siloweave.core.fit import FeatureModel
from siloweave.core.method import Result, Task
from siloweave.federation.session import Session
from siloweave.methods.central.messages import Train
from siloweave.methods.central.party import OwnerTrainer
from siloweave.protocols.networks import from_bytes
from siloweave.tables.features import Features
from siloweave.tables.one_way import OneWay


def coordinate(trainer: OwnerTrainer, session: Session, task: Task) -> Result:
    """Ask the owner for a trained model."""
    (reply,) = session.ask(Train(task.seed))
    net = from_bytes(reply.model.value, trainer.load)
    features = Features.from_json(reply.features.value)
    one_way = OneWay.from_json(reply.one_way.value)
    target = getattr(task.setup.synth, "target", None)
    return Result(FeatureModel(net, features, one_way, target), reply.rows.value)
