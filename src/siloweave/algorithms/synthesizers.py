"""The synthesizers a user meets: public settings with a `fit`.

**Guarantee**: each class names its own in `info`, and the file of its algorithm states it (aim.py,
flaim.py, two_round.py); what is learned before them states its own (preparing.py), and all come out
of one budget. running.py codes rows, opens ledgers and starts the parties. Sources:
McKenna et al. 2022 (AIM); Maddock, Cormode & Maple 2024 (FLAIM).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import msgspec

from siloweave.algorithms import agree_schema as agreeing
from siloweave.algorithms import aim as aim_file
from siloweave.algorithms import flaim as flaim_file
from siloweave.algorithms import look
from siloweave.algorithms import two_round as two_round_file
from siloweave.algorithms.agree_schema import clipped, open_facts
from siloweave.algorithms.aim import AIMSettings, aim
from siloweave.algorithms.arguments import needed_budget
from siloweave.algorithms.fitted import Fitted
from siloweave.algorithms.flaim_rounds import flaim
from siloweave.algorithms.flaim_settings import FLAIMSettings, Variant
from siloweave.algorithms.outcome import Cost, Info
from siloweave.algorithms.preparing import columns_to_cut, cut_bins, learn_schema, least, seen_too
from siloweave.algorithms.running import (
    Job,
    PartySide,
    Progress,
    Recipe,
    Result,
    named_parties,
    run_job,
)
from siloweave.algorithms.synthesizer import Synthesizer
from siloweave.algorithms.two_round import TwoRoundSettings, two_round
from siloweave.algorithms.visibility import CURATOR, READERS, Views
from siloweave.algorithms.workload import workload_for
from siloweave.errors import BudgetError, number, whole
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers
from siloweave.privacy.budget import Budget, marginal_sensitivity
from siloweave.tables.codes import Clique, Codes, Domain, Encoder
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema, check_learnable

__all__ = ["AIM", "FLAIM", "MarginalSynthesizer", "MarginalTask", "TwoRound"]

_ROWS = "every row of every party, against the coordinator, the other parties and readers"


@dataclass(frozen=True)
class MarginalTask:
    """What a coordinator is to do.

    Attributes:
        domain: Attributes and sizes.
        queries: The workload.
        rho: zCDP that a row may cost.
        unit: L2 sensitivity of a marginal under the budget's relation.
        seed: For what is not noise.
        progress: Called with a text and the share that is done.
    """

    domain: Domain
    queries: list[Clique]
    rho: float
    unit: float
    seed: int
    progress: Progress


@dataclass(frozen=True)
class MarginalSynthesizer(Synthesizer[Fitted]):
    """What all synthesizers share that answer a workload of marginals.

    Args:
        degree: Columns in a query, when `workload` is not given: every pair by default. A set that
            does not fit into `max_model_mb` is left out.
        queries: So many random sets of `degree` columns in the place of all. `degree=3, queries=64`
            is the published benchmark's setting.
        workload: Sets of columns whose joint distribution shall be right; each must fit.
        bins: Of a column of numbers at most.
        counts_share: Share of the budget for a look at columns of numbers that are in a query and
            have more values than bins, by which they are cut (look.py); 0 cuts them equally wide,
            and so does an `Encoder` in the place of a schema.

    Raises:
        InputError: One of these is no number, or out of bounds.
    """

    degree: int = 2
    queries: int | None = None
    workload: Sequence[Sequence[str]] | None = None
    bins: int = 16
    counts_share: float = 0.1
    handlers: ClassVar[Handlers]
    learns: ClassVar[bool] = True
    looks: ClassVar[bool] = False  # whether it looks at all pairs and measures some again

    def __post_init__(self) -> None:
        for name in ("degree", "bins", *(["queries"] if self.queries is not None else [])):
            whole(name, getattr(self, name), 1)
        number("counts_share", self.counts_share, 0, 0.9)

    def check(self) -> None:
        """Check the settings together; raises InputError if one is wrong."""
        self.algorithm()

    @abstractmethod
    def rounds_of(self, columns: int) -> tuple[int, float]:
        """Rounds at most over so many columns, and in how many of them a party may join."""

    @abstractmethod
    def algorithm(self) -> Any:
        """The settings as the algorithm's file has them; raises InputError if one is wrong."""

    @abstractmethod
    def coordinate(self, parties: Session, task: MarginalTask) -> Result:
        """The coordinator's side."""

    def roster(self, data: Any, names: Sequence[str] | None) -> dict[str, Any]:
        """One table per party, by name."""
        return named_parties(data, names)

    @property
    def tolerates(self) -> int:
        """Parties that may pool what they know with the coordinator."""
        return int(getattr(self.algorithm(), "tolerated", 1))

    def allowed(self, budget: Budget | None) -> Budget:
        """The budget; raises BudgetError where there is none, or one without a bound."""
        found = needed_budget(self.info.title, budget)
        if not found.private:
            raise BudgetError(f"{self.info.title} adds noise and needs a finite epsilon; give one")
        return found

    def fitted(
        self, data: Any, schema: Schema | Encoder, job: Job, names: Sequence[str] | None
    ) -> Fitted:
        """Learn what is open, cut columns into bins, then run the method; see `fit`."""
        info = self.stated
        parts = self.roster(data, names)
        facts = schema.schema if isinstance(schema, Encoder) else schema
        if not open_facts(facts):  # nothing to learn: the run has it all
            job = replace(job, learn=0.0)
        before = Cost({}, 0, {})
        if isinstance(schema, Encoder) and not job.learn:
            return self._run(info, parts, schema, job, before)
        coded = any(isinstance(part, Codes) for part in parts.values())
        if job.learn:
            self._queries(Encoder(least(facts), self.bins))  # refused before anything is paid
            info = msgspec.structs.replace(info, visibility=seen_too(info.visibility, facts))
            facts, parts, learned = learn_schema(
                parts, facts, job, Recipe.of(self, facts, "schema")
            )
            before += learned
        encoder = Encoder(facts, self.bins)
        queries = self._queries(encoder)
        share = 0.0 if coded else self.counts_share
        if share and (fine := columns_to_cut(encoder, queries)):
            job = replace(job, look=share)
            encoder, looked = cut_bins(
                parts, encoder, fine, job, Recipe.of(self, facts, "bins", encoder=fine)
            )
            before += looked
        return self._run(info, parts, encoder, job, before)

    def _queries(self, encoder: Encoder) -> list[Clique]:
        """What is asked of such codes; raises SchemaError or CapacityError if it cannot be."""
        check_learnable(encoder.schema)
        return self.queries_over(encoder.domain)

    def queries_over(self, domain: Domain) -> list[Clique]:
        """The queries over some columns; raises SchemaError or CapacityError if there are none."""
        limit = self.algorithm().max_model_mb
        return workload_for(domain, self.degree, self.queries, self.workload, limit)

    def _run(
        self, info: Info, parts: Mapping[str, Any], encoder: Encoder, job: Job, before: Cost
    ) -> Fitted:
        settings, queries = self.algorithm(), self._queries(encoder)
        job = replace(job, facts=self.facts(encoder))
        unit = marginal_sensitivity(job.budget.relation, norm="l2")
        task = MarginalTask(encoder.domain, queries, job.rest, unit, job.seed, job.progress)
        shown = {"bins": self.bins, "counts_share": job.look, "queries": len(queries)}
        return run_job(
            info, {**shown, **asdict(settings)}, parts, encoder, job, self.handlers, queries,
            lambda parties: self.coordinate(parties, task), before,
            Recipe.of(self, encoder.schema, encoder=encoder),
        )  # fmt: skip

    def facts(self, encoder: Encoder) -> dict[str, Any]:
        """What every party is given of these settings, see `Terms`."""
        return {**asdict(self.algorithm()), "workload": tuple(self._queries(encoder))}

    def party_side(
        self,
        stage: str,
        name: str,
        table: Table,
        schema: Schema,
        *,
        encoder: Encoder | None,
        columns: Mapping[str, tuple[str, ...]],
        **_: Any,
    ) -> PartySide:
        """A party's data, its handlers, and the facts that it is given."""
        if encoder is None:
            return agreeing.OpenData(table, schema), agreeing.PARTY, {}
        inside = clipped(table, encoder.schema)
        if stage == "bins":
            own = inside.select([n for n in encoder.schema.names if n in table.names])
            return look.Part(own, encoder, encoder.encode(own)), look.PARTY, {}
        return encoder.encode(inside), self.handlers, self.facts(encoder)


@dataclass(frozen=True)
class AIM(MarginalSynthesizer):
    """Central AIM: one curator holds all rows.

    Args:
        degree, queries, workload, bins, counts_share: See `MarginalSynthesizer`.
        settings: Of the algorithm itself, see aim.py.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> workload = [("sex", "income"), ("race", "income")]
        >>> fitted = AIM(workload=workload, bins=8).fit(
        ...     adult().take(range(500)), adult_schema(), budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0
        True
    """

    settings: AIMSettings = field(default_factory=AIMSettings)
    info: ClassVar[Info] = Info(
        "aim",
        "AIM",
        "graphical model",
        "central",
        "curator",
        "dp",
        "McKenna, Mullins, Sheldon & Miklau 2022, AIM, VLDB 15(11)",
        "Every row, against readers of the model and the table; the curator sees all rows.",
    )
    visibility: ClassVar[Views] = (
        CURATOR,
        msgspec.structs.replace(READERS, carries=("Counts.sums", "Choice.index")),
    )
    handlers: ClassVar[Handlers] = aim_file.PARTY

    def algorithm(self) -> AIMSettings:
        """The settings as the algorithm's file has them."""
        return self.settings

    def roster(self, data: Any, names: Sequence[str] | None) -> dict[str, Any]:
        """The curator's table; a mapping of one name keeps its name."""
        if isinstance(data, Mapping):
            return named_parties(data, None)
        return named_parties([data], names or ["curator"])

    def rounds_of(self, columns: int) -> tuple[int, float]:
        """As many as AIM plans for."""
        return 3 * columns, 3.0 * columns

    def coordinate(self, parties: Session, task: MarginalTask) -> Result:
        """See aim.py."""
        return aim(
            parties,
            task.domain,
            task.queries,
            task.rho,
            self.settings,
            unit=task.unit,
            progress=task.progress,
        )


@dataclass(frozen=True)
class FLAIM(MarginalSynthesizer):
    """AIM over parties that hold different rows, under masked sums.

    Args:
        degree, queries, workload, bins, counts_share: See `MarginalSynthesizer`.
        variant: "private" (AugFLAIM Private), "naive", "random", "naive_bayes", or "oracle".
        rounds: T; None anneals.
        participation: Probability with which a party joins a round.
        cap: Most rounds that a party joins; its rows pay for those only.
        local_steps: Choices per party and round.
        tolerated: Parties of a cohort that may pool what they know with the coordinator.
        max_model_mb: Bound on the junction tree, at 8 bytes a cell.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> tables = [adult().take(range(i, 900, 3)) for i in range(3)]
        >>> flaim = FLAIM(rounds=2, participation=1.0, bins=8, workload=[("sex", "income")])
        >>> fitted = flaim.fit(tables, adult_schema(), budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0, len(fitted.ledgers)
        (True, 3)
    """

    variant: Variant = "private"
    rounds: int | None = 10
    participation: float = 0.1
    cap: int | None = None
    local_steps: int = 1
    tolerated: int = 1
    max_model_mb: float = FLAIMSettings.max_model_mb
    info: ClassVar[Info] = Info(
        "flaim",
        "FLAIM",
        "graphical model",
        "rows",
        "secure-sum",
        "dp",
        "Maddock, Cormode & Maple 2024, FLAIM, KDD 2024",
        f"Protected: {_ROWS}; the coordinator sees only masked, noisy sums and noisy choices.",
    )
    handlers: ClassVar[Handlers] = flaim_file.PARTY

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        return self.algorithm().visibility

    @property
    def stated(self) -> Info:
        """What it is, guarantees and shows; the oracle guarantees nothing."""
        if self.variant != "oracle":
            return super().stated
        return msgspec.structs.replace(
            super().stated,
            title="AugFLAIM (Oracle)",
            guarantee="none",
            statement="Nothing is protected: true heterogeneity is used. A baseline only.",
        )

    def algorithm(self) -> FLAIMSettings:
        """The settings as the algorithm's file has them."""
        return FLAIMSettings(
            variant=self.variant,
            rounds=self.rounds,
            participation=self.participation,
            local_steps=self.local_steps,
            cap=self.cap,
            tolerated=self.tolerated,
            max_model_mb=self.max_model_mb,
        )

    def rounds_of(self, columns: int) -> tuple[int, float]:
        """T, or about as many as annealing takes; a party joins some of them."""
        rounds = self.rounds or 8 * columns
        return rounds, float(self.cap or self.participation * rounds)

    def coordinate(self, parties: Session, task: MarginalTask) -> Result:
        """See flaim_rounds.py."""
        return flaim(
            parties,
            task.domain,
            task.queries,
            task.rho,
            self.algorithm(),
            key=task.seed,
            unit=task.unit,
            progress=task.progress,
        )


@dataclass(frozen=True)
class TwoRound(MarginalSynthesizer):
    """Everyone is heard in two rounds: a noisy look at all pairs, then one good measurement.

    Before them comes a look at single columns, where there are numbers to cut.

    Args:
        degree, queries, workload, bins, counts_share: See `MarginalSynthesizer`.
        look_share: Share of the budget for the look at all pairs.
        tolerated: Parties that may pool what they know with the coordinator.
        max_model_mb: Bound on the junction tree, at 8 bytes a cell.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> tables = [adult().take(range(i, 900, 3)) for i in range(3)]
        >>> fitted = TwoRound(bins=8, workload=[("sex", "income")]).fit(
        ...     tables, adult_schema(), budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0, fitted.cost.rounds
        (True, 4)
    """

    look_share: float = TwoRoundSettings.look_share
    tolerated: int = 1
    max_model_mb: float = TwoRoundSettings.max_model_mb
    looks: ClassVar[bool] = True
    info: ClassVar[Info] = Info(
        "two_round",
        "TwoRound",
        "graphical model",
        "rows",
        "secure-sum",
        "dp",
        "siloweave's own, after FLAIM (KDD 2024) and AIM (VLDB 15(11))",
        f"Protected: {_ROWS}; the coordinator sees only masked, noisy sums over all parties.",
    )
    handlers: ClassVar[Handlers] = two_round_file.PARTY

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        return self.algorithm().visibility

    def algorithm(self) -> TwoRoundSettings:
        """The settings as the algorithm's file has them."""
        return TwoRoundSettings(
            look_share=self.look_share, tolerated=self.tolerated, max_model_mb=self.max_model_mb
        )

    def rounds_of(self, columns: int) -> tuple[int, float]:
        """Two."""
        return 2, 2.0

    def coordinate(self, parties: Session, task: MarginalTask) -> Result:
        """See two_round.py."""
        return two_round(
            parties,
            task.domain,
            task.queries,
            task.rho,
            self.algorithm(),
            unit=task.unit,
            progress=task.progress,
        )
