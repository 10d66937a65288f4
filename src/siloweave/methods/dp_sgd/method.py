"""What networks share that are trained under a budget: settings, the plan, and the fit.

DP-SGD (Abadi et al. 2016, "Deep learning with differential privacy") over the rows of one owner or
of several: private_rounds.py trains both, and a central training is its one-party case. All that
the budget cannot pay for is refused before anything is read.

**Guarantee**: that of private_rounds.py. Here nothing reads rows but to check them and to put them
into public bins; ledgers have the last word, and the noise is the least for which they read at most
the budget.

The private central generators: DP-CTGAN, DP-TabDDPM, DP-TLDM.

Zhu, Tang, Brouwer, Perez, van Dijk & Chen 2024, "Quantifying and Mitigating Privacy Risks for
Tabular Generative Models", name these three; Xu et al. 2019 (CTGAN), Kotelnikov et al. 2023
(TabDDPM) are the models.

**Guarantee**: that of private_rounds.py for a roster of one, for every row and towards everyone who
sees the model or the synthetic table. Departures from the paper: gradients are clipped per row and
not per batch (which bounds nothing by itself: one row swings a clipped mean by two clips, whatever
the batch), one clip holds for encoder and decoder together, both stages of DP-TLDM are paid,
batches are Poisson samples, noise is whole numbers on a grid, and the price is read from the ledger
with the accountant of its events instead of a limit theorem. `DPTLDM(scope="autoencoder")` is the
paper's scope: its second stage reads every row without noise, which is no post-processing, so its
guarantee is `partial`, its epsilon infinite, and its ledger holds an event that says so.

Networks that parties with different rows train together under a budget.

Kotelnikov et al. 2023, "TabDDPM", our points in the place of its one-hot choices, and the GAN of
Zhao, Birke, Kunar & Chen 2021, "Fed-TGAN", trained by DP-SGD (Abadi et al. 2016) over masked sums
(private_rounds.py).

**Guarantee**: that of private_rounds.py; here nothing reads a row.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from siloweave.algorithms.arguments import needed_budget
from siloweave.algorithms.generated import Generated
from siloweave.algorithms.one_owner import OneOwner, owner_of
from siloweave.algorithms.running import PartySide, Progress, Recipe, opened
from siloweave.core.fit import Cost, Model
from siloweave.core.method import (
    CURATOR,
    NOISE,
    OTHERS,
    OTHERS_NOISE,
    OWN_ROWS,
    READERS,
    Info,
    View,
    Views,
    masked_sums,
)
from siloweave.core.run import Job, merged, named_parties, settings_of
from siloweave.errors import BudgetError, InputError, number, whole
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers
from siloweave.methods.central.method import PointDiff, TabDDPM
from siloweave.methods.dp_sgd.coordinator import (
    PrivatePlan,
    PrivateResult,
    _asked_for_the_rest,
    private_rounds,
)
from siloweave.methods.dp_sgd.messages import PrivateKind, Rest
from siloweave.methods.dp_sgd.party import party, rest
from siloweave.methods.fed_tgan.method import FedPointDiff, FedTabDDPM, FedTGAN, RowsSplit, held_by
from siloweave.privacy.budget import Budget
from siloweave.privacy.calibrate import rho_for
from siloweave.privacy.events import rho_once
from siloweave.privacy.shared_steps import CLIPS
from siloweave.progress import silent
from siloweave.protocols.histograms import HistogramData
from siloweave.protocols.private_steps import refuse_what_learns_nothing
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.settings import LatentSettings
    from siloweave.models.stepwise import Stepwise


_COORDINATOR, _BEGUN = "coordinator", "begun.mark"  # whose folder remembers how a run began


@dataclass(frozen=True)
class PrivateTraining(OneOwner[Generated]):
    """Settings of a network that is trained under a budget.

    Args:
        target: A column whose classes are told to the model; only for one that takes a target.
        settings: Of the model and its training, as a mapping; defaults for the rest.
        clip: Largest norm of a row's gradient.
        counts_share: Share of the budget's zCDP for the counts of columns, in (0, 0.9].
        bins: Equal-width bins of a numeric column that are counted, and so are bins of 16, 256 ...
            of them together.
    """

    target: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    clip: float = 1.0
    counts_share: float = 0.1
    bins: int = 4096
    base: ClassVar[type[RowsSplit]]

    @property
    def missed(self) -> int:
        """Shares of the noise that the claim does without."""
        return 0

    @property
    @abstractmethod
    def instead(self) -> str:
        """What keeps no bound and is otherwise the same, in words."""

    @abstractmethod
    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the whole, and steps and batch; raises InputError if one is wrong."""

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong."""
        own = self.shared()
        made, _ = self.network()
        return {**own, **made}

    def shared(self) -> dict[str, Any]:
        """Those of them that are listed here; raises InputError if one is wrong."""
        number("clip", self.clip, *CLIPS)
        number("counts_share", self.counts_share, 0, 0.9, "(]")
        whole("bins", self.bins, 1)
        if not isinstance(self.settings, Mapping):
            raise InputError(f"settings={self.settings!r} must be a mapping from names to values")
        own = {"clip": self.clip, "counts_share": self.counts_share, "bins": self.bins}
        return {"target": self.target, **own}

    def prepared(self, schema: Schema) -> tuple[dict[str, Any], Encoder]:
        """All settings, and the bins that will be counted.

        Raises:
            InputError: A setting is wrong, there is no such target, or no column to learn.
        """
        chosen, encoder = self.chosen(), Encoder(schema, self.bins)
        self.check_schema(schema)
        return chosen, encoder

    @property
    def kind(self) -> PrivateKind:
        """What is trained."""
        return PrivateKind(self.info.title, self.base.numeric, self.training)

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

        learner: Any = cls.base.learner(features, settings, target)
        return DiffusionSteps(learner, law_of(features, target, shares))

    @classmethod
    def settings_type(cls) -> Any:
        """The dataclass of its settings."""
        return cls.base.settings_type()

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model that was saved."""
        return cls.base.load(path)

    def party_side(
        self,
        stage: str,
        name: str,
        table: Table,
        schema: Schema,
        *,
        budget: Budget,
        parties: int,
        **_: Any,
    ) -> PartySide:
        """A party's data, its handlers, and the facts that it is given."""
        encoder = Encoder(schema, self.bins)
        plan = self.plan(encoder, budget)
        facts = plan.facts(plan.look(rho_for(budget), parties))
        return HistogramData(table, encoder, encoder.encode(table)), self.handlers(), facts

    def handlers(self) -> Handlers:
        """A party's side; `Site.rows` is its `HistogramData`."""
        return party(self.kind)

    def finished(self, parties: Session, left: PrivateResult, seed: int) -> Any:
        """The model that samples, from what the rounds left."""
        return left.network

    def moves(self, weights: int) -> tuple[int, int]:
        """Questions and bytes of a party that a run will take, roughly."""
        _, trained = self.network()
        steps = int(trained["steps"])
        return 4 + steps, 2 * 4 * weights * steps

    def plan(
        self, encoder: Encoder, budget: Budget, seed: int = 0, progress: Progress = silent
    ) -> PrivatePlan:
        """What the coordinator is to do."""
        whole, trained = self.network()
        steps, batch = int(trained["steps"]), int(trained["batch"])
        facts = (self.counts_share, self.clip, steps, batch, self.missed, seed, progress)
        return PrivatePlan(encoder, whole, self.target, budget, *facts)

    @property
    def tolerates(self) -> int:
        """Parties that may pool what they know with the coordinator."""
        return max(self.missed, 1)

    def allowed(self, budget: Budget | None) -> Budget:
        """The budget; raises BudgetError where there is none, or one without a bound."""
        found = needed_budget(self.info.title, budget)
        if not found.private:
            raise BudgetError(
                f"{self.info.title} needs a finite epsilon, and budget has none. Use "
                f"{self.instead} to go without a guarantee."
            )
        return found

    def arranged(self, data: Any, names: Sequence[str] | None) -> Any:
        """The tables by party."""
        return data if names is None else named_parties(data, names)

    def fitted(self, data: Any, schema: Schema, job: Job, names: Sequence[str] | None) -> Generated:
        """Train; see `fit`."""
        data = self.arranged(data, names)
        chosen, encoder = self.prepared(schema)
        plan = self.plan(encoder, job.budget, job.seed, job.progress)
        check_affordable(plan, len(data) if isinstance(data, list | tuple | Mapping) else 1)
        start, handlers = time.perf_counter(), self.handlers()
        holdings, like = held_by(data, schema, None)
        held = {
            n: HistogramData(h.table, encoder, encoder.encode(h.table)) for n, h in holdings.items()
        }
        store = self.training_store(job, _COORDINATOR)
        if store is not None:
            (store / _BEGUN).touch()  # from here on other settings are refused by name
        event = plan.look(rho_for(job.budget), len(held))
        job = replace(job, facts=plan.facts(event))
        tables, recipe = {n: h.table for n, h in holdings.items()}, Recipe.of(self, schema)
        line = opened(held, handlers, job, job.run, recipe, tables, transcribed=False)
        with line as (parties, _):
            left = private_rounds(parties, self.kind, plan, event)
            model = self.base.model(self.finished(parties, left, job.seed))
            closing = parties.close()
        if store is not None:
            rmtree(store, ignore_errors=True)
        cost = Cost(parties.traffic, parties.rounds, {"training": time.perf_counter() - start})
        drawn = {"noise_multiplier": left.noise.multiplier, "rate": left.rate}
        drawn |= {"share_sigma": left.noise.share_sigma, "levels": left.noise.levels}
        return Generated(
            model, left.features, self.stated, job.budget,
            job.noise == "os" and self.stated.guarantee == "dp", {**chosen, **drawn},
            closing.ledgers, closing.heads, cost, left.look.rows, like, left.look.one_way,
        )  # fmt: skip


@dataclass(frozen=True)
class PrivateGAN(PrivateTraining):
    """A GAN whose critic alone meets real rows; the generator follows the critic.

    Args:
        target, settings, clip, counts_share, bins: See `PrivateTraining`; it takes no target.
    """

    @classmethod
    def settings_type(cls) -> Any:
        """The dataclass of its settings."""
        from siloweave.models.settings import PrivateGANSettings

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


def law_of(
    features: Features, target: str | None, shares: Mapping[int, Sequence[float]] | None
) -> Sequence[float] | None:
    """How frequent each class of a target is, by the paid counts; None where it is not known."""
    starts = [block.start for block in features.blocks if block.column == target]
    return shares[starts[0]] if shares and starts else None


def check_affordable(plan: PrivatePlan, parties: int) -> None:
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


_ZHU = (
    "Zhu, Tang, Brouwer, Perez, van Dijk & Chen 2024, Quantifying and Mitigating Privacy Risks for "
    "Tabular Generative Models"
)

_STATEMENT = (
    "Each row, from everyone who sees the model or the synthetic table: the number of rows, the "
    "counts of all columns and every training step are paid for. The schema is public."
)

_PARTIAL = (
    "The autoencoder only: the number of rows, the counts of all columns and its steps are paid "
    "for. The diffusion is trained on encoded rows without noise and may reproduce them, so no "
    "finite epsilon holds for what is released."
)

_SUMS = "noisy counts of every column and of the rows, and noisy sums of clipped gradients"


_VIEWS: Views = (
    CURATOR,
    View("readers", f"{_SUMS}; the model and the synthetic table", NOISE, ("Counts.sums",)),
)


def _info(name: str, title: str, family: str, paper: str) -> Info:
    return Info(name, title, family, "central", "curator", "dp", paper, _STATEMENT)


@dataclass(frozen=True)
class PrivateGenerator(PrivateTraining):
    """What all private central generators share.

    Args:
        target, settings, clip, counts_share, bins: See `PrivateTraining`.
    """

    @property
    def instead(self) -> str:
        """The generator without DP."""
        return "the same generator without DP"

    def arranged(self, data: Any, names: Sequence[str] | None) -> Any:
        """The owner's table."""
        owner, table = owner_of(data, names)
        return {owner: table}


# DP-CTGAN
@dataclass(frozen=True)
class DPCTGAN(PrivateGAN, PrivateGenerator):
    """Conditional GAN whose critic is trained privately.

    Args:
        settings: Of the networks and their training (`models.private_gan.PrivateGANSettings`), as a
            mapping; defaults for the rest.
        clip: Largest norm of a row's gradient.
        counts_share: Share of the budget's zCDP for the counts of columns.
        bins: Equal-width bins of a numeric column that are counted.
    """

    info: ClassVar[Info] = _info("dp_ctgan", "DP-CTGAN", "GAN", _ZHU)
    visibility: ClassVar[Views] = _VIEWS
    base: ClassVar[type[RowsSplit]] = FedTGAN

    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the GAN, twice."""
        made = asdict(settings_of(self.settings_type(), self.settings))
        return made, made


# DP-TabDDPM
_DDPM: dict[str, Any] = {  # chosen on rows of Adult split again: decision 0019
    "hidden": (128,),
    "embed": 64,
    "timesteps": 100,
    "steps": 1_000,
    "batch": 1024,
    "learning_rate": 4e-3,
    "weight_decay": 0.0,
    "decay": 0.995,
    "clip_range": 4.0,
    "passes": None,
    "eta": 0.0,  # decision 0022
}


def _diffusion(given: Mapping[str, Any], title: str, where: str = "settings") -> Any:
    from siloweave.models.settings import DiffusionSettings

    made = settings_of(DiffusionSettings, merged(_DDPM, given), where)
    if made.clip_range is None:
        raise InputError(
            f"{where} has clip_range=None, which reads the range of the rows; {title} needs a "
            "number"
        )
    return made


@dataclass(frozen=True)
class DPTabDDPM(PrivateGenerator):
    """Diffusion of numbers and choices, every step private.

    Args:
        target: A column of categories that the network is told instead of diffusing it; its law
            comes from the paid counts.
        settings: Of the network and its training (`models.diffusion.DiffusionSettings`), as a
            mapping; defaults for the rest, smaller than without privacy.
        clip: Largest norm of a row's gradient.
        counts_share: Share of the budget's zCDP for the counts of columns.
        bins: Equal-width bins of a numeric column that are counted.
    """

    info: ClassVar[Info] = _info("dp_tabddpm", "DP-TabDDPM", "diffusion", _ZHU)
    visibility: ClassVar[Views] = _VIEWS
    base: ClassVar[type[RowsSplit]] = FedTabDDPM
    takes_target: ClassVar[bool] = True

    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the network, twice."""
        made = asdict(_diffusion(self.settings, self.info.title))
        return made, made


# DP-TLDM
_CODER: dict[str, Any] = {
    "hidden": (256,),
    "divergence": 0.01,
    "steps": 500,
    "batch": 1024,
    "learning_rate": 3e-3,
    "weight_decay": 0.0,
    "decay": 0.99,
}


@dataclass(frozen=True)
class DPTLDM(PrivateGenerator):
    """Latent diffusion: an autoencoder, then a diffusion of its latent rows.

    With ``scope="end-to-end"`` both are trained privately, their steps from one budget, with one
    noise multiplier; `settings` say how many steps each takes. With ``scope="autoencoder"``, the
    paper's, only the first is: no finite epsilon follows, and the ledger says so.

    Args:
        target: A column of categories that the diffusion is told.
        settings: ``{"autoencoder": {...}, "diffusion": {...}, "numbers": "mean"}`` with settings of
            `models.autoencoder` and `models.diffusion`; defaults for the rest. Both have the same
            `batch`.
        clip: Largest norm of a row's gradient, over encoder and decoder together.
        counts_share: Share of the budget's zCDP for the counts of columns.
        bins: Equal-width bins of a numeric column that are counted.
        scope: What is private.
    """

    scope: Literal["end-to-end", "autoencoder"] = "end-to-end"
    info: ClassVar[Info] = _info("dp_tldm", "DP-TLDM", "latent diffusion", _ZHU)
    base: ClassVar[type[RowsSplit]] = FedPointDiff  # whose models are latent diffusions too
    takes_target: ClassVar[bool] = True

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        if self.scope == "end-to-end":
            return _VIEWS
        sees = "the diffusion, and what it repeats of encoded rows"
        return (
            *_VIEWS,
            View("readers", sees, "nothing: no noise was added", ("TrainedDiffusion.law",)),
        )

    @property
    def stated(self) -> Info:
        """What it is, guarantees and shows at these settings."""
        if self.scope == "end-to-end":
            return super().stated
        return msgspec.structs.replace(super().stated, guarantee="partial", statement=_PARTIAL)

    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of both stages, and the steps that are paid for with their batch."""
        from siloweave.models.settings import AutoencoderSettings

        if self.scope not in ("end-to-end", "autoencoder"):
            raise InputError(f"scope={self.scope!r} is neither 'end-to-end' nor 'autoencoder'")
        parts: dict[str, Any] = {"autoencoder": {}, "diffusion": {}, "numbers": "mean"}
        for name in self.settings:
            if name not in parts:
                raise InputError(
                    f"settings has {name!r}, which DP-TLDM does not know; it has {', '.join(parts)}"
                )
        chosen: dict[str, Any] = {**parts, **self.settings}
        where = "settings.autoencoder"
        own = merged(_CODER, chosen["autoencoder"])
        coder = settings_of(AutoencoderSettings, own, where)
        ours = merged({"learning_rate": 3e-3}, chosen["diffusion"])
        latent = _diffusion(ours, self.info.title, "settings.diffusion")
        if not coder.divergence > 0:
            raise InputError(
                f"{where} has divergence={coder.divergence}; it must be above 0: without it "
                "latents have no scale of their own, and theirs must not be taken from the rows"
            )
        if coder.batch != latent.batch:
            raise InputError(
                f"batch={coder.batch} of the autoencoder and batch={latent.batch} of the diffusion "
                "must be the same: all steps are paid as one"
            )
        made = {"autoencoder": asdict(coder), "diffusion": asdict(latent)}
        steps = coder.steps + (latent.steps if self.scope == "end-to-end" else 0)
        whole = {**made, "numbers": chosen["numbers"], "scope": self.scope, "batch": coder.batch}
        return whole, {"steps": steps, "batch": coder.batch}

    @classmethod
    def training(
        cls,
        features: Features,
        settings: dict[str, Any],
        target: str | None,
        shares: Mapping[int, Sequence[float]] | None,
    ) -> Stepwise:
        """The autoencoder, and with the whole scope its latents' diffusion."""
        from siloweave.models.stepwise import LatentSteps

        law, both = law_of(features, target, shares), settings["scope"] == "end-to-end"
        return LatentSteps(_latent(settings), features.blocks, target, law, both)

    def handlers(self) -> Handlers:
        """A party's side; with the paper's scope it also trains without noise."""
        known = super().handlers()
        return known if self.scope == "end-to-end" else {**known, Rest: partial(rest, self.kind)}

    def finished(self, parties: Session, left: PrivateResult, seed: int) -> Any:
        """The whole model; with the paper's scope the party trains the rest of it."""
        if self.scope == "end-to-end":
            return left.network
        settings = _latent(self.network()[0])
        return _asked_for_the_rest(parties, left, settings, self.target, seed)


def _latent(settings: Mapping[str, Any]) -> LatentSettings:
    from siloweave.models.settings import AutoencoderSettings, DiffusionSettings, LatentSettings

    return LatentSettings(
        settings_of(AutoencoderSettings, settings["autoencoder"], "settings.autoencoder"),
        settings_of(DiffusionSettings, settings["diffusion"], "settings.diffusion"),
        scaled=False,
        numbers=settings["numbers"],
    )


_SMALL: dict[str, Any] = {
    "hidden": (128, 128),
    "embed": 64,
    "timesteps": 100,
    "steps": 400,
    "batch": 4096,
    "learning_rate": 8e-3,
    "weight_decay": 0.0,
    "decay": 0.99,
    "clip_range": 4.0,
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


def _views(tolerated: int, sent: str) -> Views:
    """Who sees what, where `sent` goes to every party in each step."""
    told = f"how columns are encoded, and in every step {sent}"
    return (
        OWN_ROWS,
        masked_sums(tolerated, "counts and of clipped gradients"),
        View(OTHERS, told, OTHERS_NOISE, ("BeginTraining", "Step")),
        READERS,
    )


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

    @property
    def instead(self) -> str:
        """The same without noise."""
        return self.base.info.title

    @property
    def missed(self) -> int:
        """Shares of the noise that the claim does without."""
        return self.tolerated

    def shared(self) -> dict[str, Any]:
        """Settings of every private training, and how many parties are tolerated."""
        own = super().shared()
        whole("tolerated", self.tolerated, 1)
        return {**own, "tolerated": self.tolerated}


def _private(made: Any, title: str, where: str) -> None:
    if made.clip_range is None:
        raise InputError(
            f"{where} has clip_range=None, which reads the range of the rows; {title} needs a "
            "number"
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

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        return _views(self.tolerated, "the network")

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

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        return _views(self.tolerated, "the network")

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
class DPFedTGAN(PrivateGAN, PrivateRowsSplit):
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

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        return _views(self.tolerated, "the critic and a pool of generated rows")

    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the GAN, twice."""
        made = asdict(settings_of(self.settings_type(), merged(_GAN, self.settings)))
        return made, made
