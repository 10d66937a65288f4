"""What every synthesizer is: settings, what it states about itself, and one `fit`.

**Guarantee**: none of its own; `Synthesizer.stated` names the guarantee of a method at its
settings, and the method's file states it. The budget that a user gives is the limit of every
party's ledger (Dwork & Roth 2014, "The algorithmic foundations of differential privacy").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from siloweave.algorithms.arguments import TakesKnown, checked_budget, needed_schema
from siloweave.algorithms.outcome import Info, Outcome
from siloweave.algorithms.running import Job
from siloweave.algorithms.visibility import Views
from siloweave.errors import InputError
from siloweave.privacy.budget import Budget
from siloweave.progress import shows_progress
from siloweave.tables.schema import Schema

__all__ = ["Synthesizer"]

Fit = TypeVar("Fit", bound=Outcome)


class Synthesizer(TakesKnown, ABC, Generic[Fit]):
    """A method with its settings: a frozen dataclass whose fields they are."""

    info: ClassVar[Info]
    learns: ClassVar[bool] = False  # whether it learns what a schema leaves open

    @property
    @abstractmethod
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""

    @property
    def stated(self) -> Info:
        """What it is, guarantees and shows at these settings."""
        return msgspec.structs.replace(self.info, visibility=self.visibility)

    @property
    def tolerates(self) -> int:
        """Parties that may pool what they know with the coordinator."""
        return 1

    @property
    def takes_budget(self) -> bool:
        """Whether a run at these settings is held to a bound on epsilon."""
        return True

    @abstractmethod
    def check(self) -> None:
        """Check the settings together; raises InputError if one is wrong."""

    def check_schema(self, schema: Schema) -> None:
        """Check that the method can learn such columns; raises SchemaError or InputError."""

    @abstractmethod
    def allowed(self, budget: Budget | None) -> Budget:
        """The budget of a run; raises BudgetError where it asks for what is not given."""

    @abstractmethod
    def fitted(self, data: Any, schema: Any, job: Job, names: Sequence[str] | None) -> Fit:
        """Fit, once arguments are known to be of the right kind; see `fit`."""

    @shows_progress
    def fit(
        self,
        data: Any,
        schema: Any = None,
        *,
        budget: Budget | None = None,
        seed: int = 0,
        names: Sequence[str] | None = None,
        folder: Path | str | None = None,
        run: str = "run",
        noise: str = "os",
        learn: float = 0.0,
        at_once: int | None = None,
        progress: Any = None,
    ) -> Fit:
        """Fit to the parties' tables.

        Args:
            data: The tables. For a central method one table: a frame, a `Table` or a path, or a
                mapping from the owner's name to it. For split rows or columns one table per party,
                as a list or by name; with split columns, row i is one person in all of them.
            schema: Public facts about all columns.
            budget: The most that any row may cost, over all parties that hold a part of it. None,
                or one without a bound, for a method without a guarantee.
            seed: Everything random but the noise that protects: cohorts, first weights, batches.
            names: Of the parties, where `data` is a list.
            folder: Stores ledgers, replies and trainings; the same folder and run resume. In
                memory if None.
            run: Name of the run.
            noise: "os" for the operating system's entropy; "seeded" protects nothing.
            learn: Share of the budget for facts that the schema leaves open: the categories of a
                column that names its `other` alone, and bounds that are not there. Only for methods
                of marginals.
            at_once: Parties that this process simulates at the same time, where they train
                networks; as many as there are cores if None. The result does not depend on it.
            progress: Whether to show a bar (None: in a terminal and a notebook), or a function of
                a text and the share that is done.

        Returns:
            A fit, which samples and holds the ledgers.

        Raises:
            BudgetError: The budget is missing, too small, spent, or asks for a guarantee that
                these settings do not give. Nothing is released.
            InputError: A setting or argument is wrong. Nothing is released. Or the run was stopped
                with other settings or rows.
            SchemaError, DataError, RosterError: The tables do not fit the schema or each other;
                the message names the party.
            CapacityError: A query does not fit into the model's memory.
        """
        title = self.info.title
        if learn and not self.learns:
            raise InputError(f"{title} learns no schema; leave learn={learn!r} out")
        schema = needed_schema(title, schema, encoder=self.learns)
        allowed, limited = self.allowed(checked_budget(budget)), self.stated.guarantee == "dp"
        job = Job(
            allowed, seed, None if folder is None else Path(folder), run, noise, progress, limited,
            learn, tolerated=self.tolerates, at_once=at_once,
        )  # fmt: skip
        return self.fitted(data, schema, job, names)
