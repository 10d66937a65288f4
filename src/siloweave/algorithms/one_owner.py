"""What every generator shares whose rows lie with one owner, private or not.

Xu et al. 2019, "Modeling tabular data using conditional GAN", and the papers that the generators
name, have all rows at one place; central.py and private_training.py run them as one-party studies.

**Guarantee**: none of its own; nothing here reads a row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeVar

import msgspec

from siloweave.algorithms.generated import Model
from siloweave.algorithms.outcome import Outcome
from siloweave.algorithms.running import Job
from siloweave.algorithms.synthesizer import Synthesizer
from siloweave.errors import InputError, RosterError
from siloweave.federation.site import FolderStore
from siloweave.tables.features import Features
from siloweave.tables.schema import Schema, check_learnable

__all__ = ["OneOwner", "owner_of"]

Fit = TypeVar("Fit", bound=Outcome)

_FACTS = "facts"  # what a training began with, beside its checkpoints


class OneOwner(Synthesizer[Fit]):
    """A generator that may be told a target, and whose model travels as bytes."""

    target: str | None
    takes_target: ClassVar[bool] = False

    @property
    def takes_budget(self) -> bool:
        """Whether a run at these settings is held to a bound on epsilon."""
        return self.stated.guarantee != "none"

    def check(self) -> None:
        """Check the settings together; raises InputError if one is wrong."""
        self.chosen()

    @abstractmethod
    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong."""

    @staticmethod
    @abstractmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""

    def check_schema(self, schema: Schema) -> None:
        """Refuse a schema that cannot be learnt, and a target that is no column or not taken.

        Raises:
            SchemaError: There is no column but ids, or bounds are not there or too large.
            InputError: There is no such target, or none is taken.
        """
        check_learnable(schema)
        Features.declared(schema)
        if self.target is None:
            return
        if not self.takes_target:
            raise InputError(f"{self.info.title} takes no target; leave target={self.target!r} out")
        if self.target not in schema.names:
            raise InputError(
                f"target={self.target!r} is no column of the schema; choose from "
                f"{', '.join(schema.names)}"
            )
        blocks = Features.declared(schema.select([self.target])).blocks
        if [block.kind for block in blocks] != ["categorical"]:
            raise InputError(
                f"target={self.target!r} is no choice among few classes; give a column that is "
                "boolean, or has at most 256 categories or 20 whole numbers"
            )

    def training_store(self, job: Job, where: str = "parties/0000") -> Path | None:
        """Where a training that is not done is kept: at a party or at the coordinator.

        Args:
            job: The run.
            where: Whose folder, below the run's.

        Returns:
            A folder for checkpoints, which remembers all but the rows that decides what is
            trained; None where the job has no folder.

        Raises:
            InputError: What is kept there began with something else; the message names it.
        """
        if job.folder is None:
            return None
        name = blake2b(job.run.encode(), digest_size=8).hexdigest()
        folder = job.folder / where / f"training-{name}"
        store = FolderStore(folder)
        facts: dict[str, Any] = {"method": self.info.name, "settings": self.chosen()}
        facts |= {"target": self.target, "budget": job.budget, "noise": job.noise}
        facts["seed"] = job.seed
        now, before = msgspec.json.encode(facts), store.get(_FACTS)
        if before != now:
            if len(list(folder.iterdir())) > (before is not None):  # there is more than the facts
                raise _another(job, before or b"{}", now, folder)
            store.put(_FACTS, now)
        return folder

    def read_model(self, weights: bytes) -> Model:
        """The model that was released."""
        with TemporaryDirectory() as scratch:
            file = Path(scratch) / "model.safetensors"
            file.write_bytes(weights)
            return self.load(file)


def owner_of(data: Any, names: Sequence[str] | None = None) -> tuple[str, Any]:
    """Who holds the one table, and the table.

    Raises:
        RosterError: `data` is a mapping of several parties.
    """
    if not isinstance(data, Mapping):
        return names[0] if names else "curator", data
    if len(data) != 1:
        raise RosterError(
            f"data has {len(data)} parties, and a central generator takes one that holds all rows"
        )
    ((name, rows),) = data.items()
    return str(name), rows


def _another(job: Job, before: bytes, now: bytes, folder: Path) -> InputError:
    """What differs from the training that was begun."""
    old, new = (_flat(msgspec.json.decode(facts)) for facts in (before, now))
    odd = [
        f"{name} = {old.get(name)!r}, and now {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    return InputError(
        f"run {job.run!r} was stopped while it trained with {'; '.join(odd)}. Go on with what it "
        f"began with, or start another run; to begin this training anew, remove {folder}."
    )


def _flat(facts: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """Facts below facts as one level, by names such as settings.batch."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        nested = isinstance(value, Mapping)
        found |= _flat(value, f"{head}{name}.") if nested else {f"{head}{name}": value}
    return found
