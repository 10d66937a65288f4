"""Networks that parties with different rows train together under a budget.

Kotelnikov et al. 2023, "TabDDPM", our points in the place of its one-hot choices, and the GAN of
Zhao, Birke, Kunar & Chen 2021, "Fed-TGAN", trained by DP-SGD (Abadi et al. 2016) over masked sums
(private_rounds.py).

**Guarantee**: that of private_rounds.py. Here nothing reads rows but to check them and to put them
into public bins; ledgers have the last word, and the noise is the least for which they read at most
the budget.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from siloweave.algorithms.arguments import needed_budget, needed_schema
from siloweave.algorithms.diffusions import PointDiff, TabDDPM
from siloweave.algorithms.fitted import Cost, Info
from siloweave.algorithms.generated import Generated, Model
from siloweave.algorithms.look import Part
from siloweave.algorithms.networks import merged, settings_of
from siloweave.algorithms.private_rounds import Kind, Plan, party, private_rounds
from siloweave.algorithms.private_training import PrivateTraining, refuse_what_learns_nothing
from siloweave.algorithms.rows_split import FedPointDiff, FedTabDDPM, FedTGAN, RowsSplit, held_by
from siloweave.algorithms.running import Job, Progress, in_process, silent
from siloweave.errors import InputError, whole
from siloweave.privacy.budget import Budget
from siloweave.privacy.calibrate import rho_for
from siloweave.privacy.events import rho_once
from siloweave.progress import shows_progress
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.stepwise import Stepwise

__all__ = ["PRIVATE_ROW_METHODS", "DPFedPointDiff", "DPFedTGAN", "DPFedTabDDPM", "PrivateRowsSplit"]

_SMALL: dict[str, Any] = {
    "hidden": (128, 128),
    "embed": 64,
    "timesteps": 100,
    "steps": 400,
    "batch": 4096,
    "learning_rate": 8e-3,
    "weight_decay": 0.0,
    "decay": 0.99,
    "reach": 4.0,
    "passes": None,
    "eta": 0.0,  # decision 0022
}
_GAN: dict[str, Any] = {
    "steps": 400,
    "batch": 2048,
    "pool": 512,
    "ratio": 2,
    "critic_rate": 2e-3,
    "generator_rate": 1e-3,
    "average": 0.95,
}
_STATEMENT = (
    "Each row, from the coordinator, `tolerated` parties that help it, and everyone who sees the "
    "model or the synthetic table: the counts of all columns and every training step are paid for; "
    "only masked, noisy sums leave a party. The schema is public."
)


def _info(name: str, title: str, family: str, paper: str) -> Info:
    return Info(name, title, family, "rows", "secure-sum", "dp", paper, _STATEMENT)


@dataclass(frozen=True)
class PrivateRowsSplit(PrivateTraining):
    """What networks share that parties with different rows train under a budget.

    Args:
        target, clip, counts_share, bins: See `PrivateTraining`.
        settings: Of the network and its training, as a mapping; defaults for the rest, smaller
            than without privacy. ``batch`` is of all parties together.
        tolerated: Parties that may pool what they know with the coordinator; at most all but one.
    """

    tolerated: int = 1
    takes_target: ClassVar[bool] = True
    base: ClassVar[type[RowsSplit]]

    @property
    def instead(self) -> str:
        """The same without noise."""
        return self.base.info.title

    @property
    def kind(self) -> Kind:
        """What is trained."""
        return Kind(self.info.title, self.base.numeric, self.training)

    @classmethod
    def training(
        cls,
        features: Features,
        settings: dict[str, Any],
        target: str | None,
        shares: Mapping[int, Sequence[float]] | None,
    ) -> Stepwise:
        """What trains on vectors of these features, see `private_rounds.Kind`; a diffusion."""
        from siloweave.models.stepwise import DiffusionSteps

        starts = [block.start for block in features.blocks if block.column == target]
        law = shares[starts[0]] if shares and starts else None
        learner: Any = cls.base.learner(features, settings, target)
        return DiffusionSteps(learner, law)

    @classmethod
    def settings_type(cls) -> Any:
        """The dataclass of its settings."""
        return cls.base.settings_type()

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model that was saved."""
        return cls.base.load(path)

    @abstractmethod
    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the whole, and of what trains; raises InputError if one is wrong."""

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong."""
        own = self.shared()
        whole("tolerated", self.tolerated)
        made, _ = self.network()
        return {**own, "tolerated": self.tolerated, **made}

    def moves(self, weights: int) -> tuple[int, int]:
        """Questions and bytes of a party that a run will take, roughly."""
        _, trained = self.network()
        steps = int(trained["steps"])
        return 3 + steps, 2 * 4 * weights * steps

    @shows_progress
    def fit(
        self,
        data: Any,
        schema: Schema | None = None,
        *,
        budget: Budget | None = None,
        seed: int = 0,
        names: Sequence[str] | None = None,
        folder: Path | None = None,
        run: str = "run",
        noise: str = "os",
        progress: Any = None,
    ) -> Generated:
        """Train over parties that hold different rows.

        Args:
            data: One table per party, as a list or by name, such as `split_rows` gives.
            schema: Public facts about the columns.
            budget: Most that any row may cost; all of it is spent.
            seed: First weights, and what is drawn without rows.
            names: Of the parties, when `data` is a list.
            folder: Keeps ledgers and replies; the same folder and run resume. In memory if None.
            run: Name of the run.
            noise: "os" for the operating system's entropy; "seeded" protects nothing.
            progress: Whether to show a bar (None: in a terminal and a notebook), or a function of
                a text and the share that is done.

        Raises:
            BudgetError: The budget has no bound, or is too small for these settings; nothing is
                read. Or another run spent some of it.
            InputError: A setting is wrong, or there is no such target; nothing is read.
            RosterError, SchemaError, DataError: A table does not fit; names the party.
        """
        schema = needed_schema(self.info.title, schema)
        budget = needed_budget(self.info.title, budget)
        chosen, encoder = self.prepared(schema, budget)
        plan = self.plan(encoder, budget, seed, progress)
        check_affordable(plan, len(data) if isinstance(data, list | tuple | Mapping) else 1)
        start = time.perf_counter()
        job = Job(budget, seed, folder, run, noise, progress)
        holdings, like = held_by(data, schema, names)
        held = {n: Part(h.table, encoder, encoder.encode(h.table)) for n, h in holdings.items()}
        return self._run(held, plan, job, chosen, like, start)

    def plan(
        self, encoder: Encoder, budget: Budget, seed: int = 0, progress: Progress = silent
    ) -> Plan:
        """What the coordinator is to do."""
        whole, trained = self.network()
        steps, batch = int(trained["steps"]), int(trained["batch"])
        facts = (self.counts_share, self.clip, steps, batch, self.tolerated, seed, progress)
        return Plan(encoder, whole, self.target, budget, *facts)

    def _run(
        self, held: Mapping[str, Part], plan: Plan, job: Job, chosen: dict[str, Any], like: Table,
        start: float,
    ) -> Generated:  # fmt: skip
        event = plan.look(rho_for(job.budget), len(held))
        handlers = party(self.kind)
        with in_process(held, handlers, job, job.run, transcribed=False) as (parties, sites):
            left = private_rounds(parties, self.kind, plan, event)
            ledgers = {name: tuple(site.ledger.entries) for name, site in sites.items()}
            heads = {name: site.ledger.head for name, site in sites.items()}
        cost = Cost(parties.traffic, parties.rounds, {"training": time.perf_counter() - start})
        drawn = {"noise_multiplier": left.noise.multiplier, "rate": left.rate}
        drawn |= {"share_sigma": left.noise.share_sigma, "levels": left.noise.levels}
        return Generated(
            self.base.model(left.network), left.features, self.stated, job.budget,
            job.noise == "os", {**chosen, **drawn}, ledgers, heads, cost, left.look.rows, like,
            left.look.one_way,
        )  # fmt: skip


def check_affordable(plan: Plan, parties: int) -> None:
    """Refuse a budget with which the noise of a step would hide a whole batch's clipped sum.

    Args:
        plan: What is to be done.
        parties: How many there are.

    Raises:
        BudgetError: With what would be feasible; nothing was read.
    """
    rho = rho_for(plan.budget)
    left = rho - rho_once(plan.look(rho, max(parties, 1)))
    refuse_what_learns_nothing(plan.budget, left, plan.steps, plan.batch)


def _private(made: Any, title: str, where: str) -> None:
    if made.reach is None:
        raise InputError(
            f"{where} has reach=None, which reads the range of the rows; {title} needs a number"
        )


@dataclass(frozen=True)
class DPFedTabDDPM(PrivateRowsSplit):
    """TabDDPM that parties train together, every step a noisy masked sum.

    Args:
        target: A column of categories that the network is told instead of diffusing it.
        settings: Of TabDDPM, as a mapping.
        clip, counts_share, bins, tolerated: See `PrivateRowsSplit`.
    """

    info: ClassVar[Info] = _info(
        "dp_fed_tabddpm",
        "DPFedTabDDPM",
        "diffusion",
        "Kotelnikov, Baranchuk, Rubachev & Babenko 2023, TabDDPM, ICML, by DP-SGD (Abadi et al. "
        "2016) over masked sums (Kairouz, Liu & Steinke 2021)",
    )
    base: ClassVar[type[RowsSplit]] = FedTabDDPM

    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the network, twice."""
        made = settings_of(TabDDPM.settings_type(), merged(_SMALL, self.settings))
        _private(made, self.info.title, "settings")
        return asdict(made), asdict(made)


@dataclass(frozen=True)
class DPFedPointDiff(PrivateRowsSplit):
    """Latent diffusion whose choices are points on spheres, every step a noisy masked sum.

    Args:
        target: A column of categories that the diffusion is told; it is no part of a point.
        settings: Of PointDiff, as a mapping: those of the network below ``diffusion``.
        clip, counts_share, bins, tolerated: See `PrivateRowsSplit`.

    Example:
        >>> import siloweave as sw
        >>> from siloweave.datasets import adult, adult_schema
        >>> parties = sw.split_rows(adult().take(range(300)), 3, seed=0)
        >>> tiny = {"diffusion": {"hidden": [8], "embed": 8, "steps": 2, "batch": 100}}
        >>> budget = sw.Budget(epsilon=5.0, delta=1e-5)
        >>> fitted = DPFedPointDiff(settings=tiny).fit(parties, adult_schema(), budget=budget)
        >>> fitted.epsilon <= 5.0, fitted.info.guarantee
        (True, 'dp')
    """

    info: ClassVar[Info] = _info(
        "dp_fed_point_diff",
        "DPFedPointDiff",
        "latent diffusion",
        "Our own, after Shankar et al. 2024 (SiloFuse, ICDE), by DP-SGD (Abadi et al. 2016) over "
        "masked sums (Kairouz, Liu & Steinke 2021)",
    )
    base: ClassVar[type[RowsSplit]] = FedPointDiff

    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the whole, and of its diffusion."""
        preset = {**PointDiff().preset(), "scaled": False}
        own = merged(merged(preset, {"diffusion": _SMALL}), self.settings)
        made = settings_of(PointDiff.settings_type(), own)
        if made.scaled:
            raise InputError(
                f"settings has scaled=True, which reads the spread of the rows; {self.info.title} "
                "cannot have it"
            )
        _private(made.diffusion, self.info.title, "settings.diffusion")
        return asdict(made), asdict(made.diffusion)


@dataclass(frozen=True)
class DPFedTGAN(PrivateRowsSplit):
    """CTGAN that parties train together, every step of its critic a noisy masked sum.

    The critic alone meets real rows. Each step's message carries it and a pool of generated rows;
    the generator follows at the coordinator, from the critic and the paid counts. There are no
    weights of parties: the sum counts every row alike.

    Args:
        settings: Of the networks and their training (`models.private_gan.PrivateGANSettings`), as a
            mapping.
        clip, counts_share, bins, tolerated: See `PrivateRowsSplit`; it takes no target.

    Example:
        >>> import siloweave as sw
        >>> from siloweave.datasets import adult, adult_schema
        >>> parties = sw.split_rows(adult().take(range(300)), 3, seed=0)
        >>> tiny = {"generator": [8], "critic": [8], "steps": 2, "batch": 100, "pool": 50}
        >>> budget = sw.Budget(epsilon=5.0, delta=1e-5)
        >>> fitted = DPFedTGAN(settings=tiny).fit(parties, adult_schema(), budget=budget)
        >>> fitted.epsilon <= 5.0, fitted.info.guarantee
        (True, 'dp')
    """

    info: ClassVar[Info] = _info(
        "dp_fed_tgan",
        "DPFedTGAN",
        "GAN",
        "Zhao, Birke, Kunar & Chen 2021, Fed-TGAN, arXiv, its critic by DP-SGD (Abadi et al. 2016; "
        "Xie et al. 2018) over masked sums (Kairouz, Liu & Steinke 2021)",
    )
    base: ClassVar[type[RowsSplit]] = FedTGAN
    takes_target: ClassVar[bool] = False

    @classmethod
    def settings_type(cls) -> Any:
        """The dataclass of its settings."""
        from siloweave.models.private_gan import PrivateGANSettings

        return PrivateGANSettings

    @classmethod
    def training(
        cls,
        features: Features,
        settings: dict[str, Any],
        target: str | None,
        shares: Mapping[int, Sequence[float]] | None,
    ) -> Stepwise:
        """The GAN, its conditions by these frequencies."""
        from siloweave.models.private_gan import GANSteps

        return GANSteps(settings_of(cls.settings_type(), settings), features.blocks, shares)

    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the GAN, twice."""
        made = asdict(settings_of(self.settings_type(), merged(_GAN, self.settings)))
        return made, made


PRIVATE_ROW_METHODS: dict[str, type[PrivateRowsSplit]] = {
    kind.info.name: kind for kind in (DPFedTabDDPM, DPFedPointDiff, DPFedTGAN)
}
"""By the name that studies use."""
