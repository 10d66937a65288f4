"""Networks that parties with different rows train together: Fed-TGAN and federated diffusions.

Zhao, Birke, Kunar & Chen 2021, "Fed-TGAN: Federated learning framework for synthesizing tabular
data"; Kotelnikov et al. 2023, "TabDDPM", and our points in the place of its one-hot choices, in
the rounds of McMahan et al. 2017, "Communication-efficient learning of deep networks from
decentralized data".

**Guarantee**: none, see fed_tgan.py.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from siloweave.algorithms.central import OwnerData
from siloweave.algorithms.diffusions import DiffusionModel, LatentModel, PointDiff, TabDDPM
from siloweave.algorithms.fed_tgan import RoundsKind, RoundsPlan, RoundsResult, fed_tgan, party
from siloweave.algorithms.gans import CTGAN, GANModel
from siloweave.algorithms.generated import Generated, Model
from siloweave.algorithms.networks import NetworkGenerator, merged, settings_of
from siloweave.algorithms.one_owner import OneOwner
from siloweave.algorithms.outcome import Cost, Info
from siloweave.algorithms.party_weights import WEIGHTS, Weights
from siloweave.algorithms.running import (
    Job,
    PartySide,
    Recipe,
    named_parties,
    opened,
    plain,
    required_rows,
)
from siloweave.algorithms.visibility import AVERAGED, Views
from siloweave.errors import BudgetError, InputError, RosterError, naming_party, whole
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers
from siloweave.privacy.budget import UNBOUNDED, Budget
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Schema, check_columns, outline

if TYPE_CHECKING:
    from siloweave.models.rounds import Learner

__all__ = ["FedPointDiff", "FedTGAN", "FedTabDDPM", "RowsSplit", "held_by", "without_noise"]


def without_noise(name: str, title: str, family: str, paper: str) -> Info:
    """Facts about a network that parties train together without noise."""
    statement = (
        "Nothing: every party sends exact statistics of its rows and networks trained on them, and "
        "the model may reproduce rows."
    )
    return Info(name, title, family, "rows", "curator", "none", paper, statement)


def held_by(
    data: Any, schema: Schema, names: Sequence[str] | None
) -> tuple[dict[str, OwnerData], Table]:
    """What each party works with, and an empty table of the kind that was given.

    Raises:
        RosterError: `data` is one table, or there is no party.
        SchemaError, DataError: A table does not fit the schema; the message names the party.
    """
    held: dict[str, OwnerData] = {}
    like: Table | None = None
    for name, part in named_parties(data, names).items():
        with naming_party(name):
            table = read(part)
            check_columns(schema, table)
            Encoder(schema).encode(table)
        like = outline(table) if like is None else like
        held[name] = OwnerData(table, schema)
    if like is None:
        raise RosterError("data has no party; give one table per party, as a list or by name")
    return held, like


@dataclass(frozen=True)
class RowsSplit(OneOwner[Generated]):
    """What networks share that parties with different rows train together.

    Args:
        target: A column whose classes are told to the model; only for one that takes a target.
        settings: Of the network, as a mapping: those of the same network in a central fit. How
            long it trains is said by `rounds` and `epochs` alone.
        rounds: How often the parties' networks are averaged.
        epochs: Passes of each party over its own rows in a round.
        weights: How parties are weighted in the mean, see `party_weights.weights_of`.
    """

    target: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 500
    epochs: int = 1
    weights: Weights = "similarity and size"
    base: ClassVar[type[NetworkGenerator]]
    numeric: ClassVar[Any]

    @classmethod
    def settings_type(cls) -> Any:
        """The dataclass of its settings."""
        return cls.base.settings_type()

    @staticmethod
    @abstractmethod
    def learner(features: Features, settings: dict[str, Any], target: str | None) -> Learner:
        """What trains on vectors of these features."""

    @staticmethod
    @abstractmethod
    def model(net: Any) -> Model:
        """The trained network as a fit keeps it."""

    @property
    def kind(self) -> RoundsKind:
        """What is trained in rounds."""
        return RoundsKind(self.info.title, self.numeric, self.learner)

    def handlers(self) -> Handlers:
        """A party's side; `Site.rows` is its `OwnerData`."""
        return party(self.kind)

    def coordinate(self, parties: Session, plan: RoundsPlan) -> RoundsResult:
        """The coordinator's side."""
        return fed_tgan(parties, self.kind, plan)

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong or unknown."""
        for name in ("rounds", "epochs"):
            whole(name, getattr(self, name), 1)
        if self.weights not in WEIGHTS:
            raise InputError(f"weights={self.weights!r} is none of {', '.join(WEIGHTS)}")
        if not isinstance(self.settings, Mapping):
            raise InputError(f"settings={self.settings!r} must be a mapping from names to values")
        given = merged(self.base().preset(), self.settings)
        return asdict(settings_of(self.settings_type(), given))

    def lasting(self, settings: dict[str, Any], rows: int) -> dict[str, Any]:
        """The settings with the epochs or steps that all rounds amount to, for a prediction."""
        passes = self.rounds * self.epochs
        if "epochs" in settings:
            return settings | {"epochs": passes}
        own = settings.get("diffusion", settings)
        steps = own | {"steps": passes * max(rows // own["batch"], 1)}
        return settings | {"diffusion": steps} if "diffusion" in settings else steps

    def moves(self, weights: int) -> tuple[int, int]:
        """Questions and bytes of a party that a run will take, roughly.

        Args:
            weights: Of the networks; a moving average doubles those of a diffusion.
        """
        copies = 1 if issubclass(self.base, CTGAN) else 2
        return 3 + self.rounds, 2 * 4 * weights * copies * self.rounds

    def fitted(self, data: Any, schema: Schema, job: Job, names: Sequence[str] | None) -> Generated:
        """Train over parties that hold different rows; see `fit`."""
        settings = self.chosen()
        self.check_schema(schema)
        start = time.perf_counter()
        job = replace(job, facts=self.facts)
        most = whole("at_once", os.cpu_count() or 1 if job.at_once is None else job.at_once, 1)
        held, like = held_by(data, schema, names)
        for name, own in held.items():
            required_rows(name, own.table.num_rows)
        workers = min(len(held), most)
        counts = (self.rounds, self.epochs, self.weights)
        plan = RoundsPlan(schema, settings, self.target, *counts, job.seed, workers, job.progress)
        handlers = self.handlers()
        tables = {name: own.table for name, own in held.items()}
        recipe = Recipe.of(self, schema)
        line = opened(held, handlers, job, job.run, recipe, tables, transcribed=False)
        with line as (parties, _):
            left = self.coordinate(parties, plan)
            closing = parties.close()
        public = {**_timeless(settings), "target": self.target, "rounds": self.rounds}
        public |= {"epochs": self.epochs, "weights": self.weights}
        public["party_weights"] = left.weights.tolist()
        cost = Cost(parties.traffic, parties.rounds, {"training": time.perf_counter() - start})
        return Generated(
            self.model(left.network), left.features, self.stated, job.budget, False, public,
            closing.ledgers, closing.heads, cost, left.rows, like, left.one_way,
        )  # fmt: skip

    @property
    def facts(self) -> dict[str, Any]:
        """What every party is given of these settings, see `Terms`."""
        own = {"target": self.target, "rounds": self.rounds, "epochs": self.epochs}
        return {"settings": plain(self.chosen()), **own}

    def party_side(
        self, stage: str, name: str, table: Table, schema: Schema, **_: Any
    ) -> PartySide:
        """A party's data, its handlers, and the facts that it is given."""
        return OwnerData(table, schema), self.handlers(), self.facts

    def allowed(self, budget: Budget | None) -> Budget:
        """No bound; raises BudgetError where one is asked for."""
        if budget is not None and isfinite(budget.epsilon):
            raise BudgetError(
                f"{self.info.title} has no private training of its own, and budget asks for "
                f"epsilon = {budget.epsilon}. Give budget=None to go without a guarantee; "
                "DPFedTGAN, DPFedTabDDPM, DPFedPointDiff, FLAIM and TwoRound keep one over the "
                "same parties."
            )
        return budget or UNBOUNDED


def _timeless(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON keeps them, without those that rounds take the place of."""
    kept: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
    for part in (kept, kept.get("diffusion", {})):
        part.pop("steps", None)
        part.pop("epochs", None)
    return kept


@dataclass(frozen=True)
class FedTGAN(RowsSplit):
    """CTGAN that parties train together, those of typical rows counting more.

    Args:
        settings: Of CTGAN; its `epochs` do not count.
        rounds, epochs, weights: See `RowsSplit`; ``weights="equal"`` is vanilla FL-TGAN.

    Example:
        >>> import siloweave as sw
        >>> from siloweave.datasets import adult, adult_schema
        >>> parties = sw.split_rows(adult().take(range(300)), 2, seed=0)
        >>> small = {"batch": 50, "generator": [8], "critic": [8]}
        >>> fitted = FedTGAN(rounds=1, settings=small).fit(parties, adult_schema())
        >>> fitted.num_rows, fitted.info.guarantee
        (300, 'none')
    """

    info: ClassVar[Info] = without_noise(
        "fed_tgan",
        "Fed-TGAN",
        "GAN",
        "Zhao, Birke, Kunar & Chen 2021, Fed-TGAN: Federated learning framework for synthesizing "
        "tabular data, arXiv",
    )
    base: ClassVar[type[NetworkGenerator]] = CTGAN
    numeric: ClassVar[Any] = "modes"

    @property
    def visibility(self) -> Views:
        """Who sees what of a run."""
        return AVERAGED

    @staticmethod
    def learner(features: Features, settings: dict[str, Any], target: str | None) -> Learner:
        """CTGAN."""
        from siloweave.models.rounds import GANLearner
        from siloweave.models.settings import GANSettings

        return GANLearner(settings_of(GANSettings, settings), features.blocks)

    @staticmethod
    def model(net: Any) -> Model:
        """A GAN."""
        return GANModel(net)

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        return CTGAN.load(path)


@dataclass(frozen=True)
class FedTabDDPM(RowsSplit):
    """TabDDPM that parties train together by federated averaging.

    Args:
        target: A column of categories that the network is told instead of diffusing it.
        settings: Of TabDDPM; its `steps` do not count.
        rounds, epochs, weights: See `RowsSplit`.
    """

    rounds: int = 100
    weights: Weights = "rows"
    info: ClassVar[Info] = without_noise(
        "fed_tabddpm",
        "FedTabDDPM",
        "diffusion",
        "Kotelnikov, Baranchuk, Rubachev & Babenko 2023, TabDDPM, ICML, by the federated averaging "
        "of McMahan et al. 2017",
    )
    base: ClassVar[type[NetworkGenerator]] = TabDDPM
    numeric: ClassVar[Any] = TabDDPM.numeric
    takes_target: ClassVar[bool] = True

    @property
    def visibility(self) -> Views:
        """Who sees what of a run."""
        return AVERAGED

    @staticmethod
    def learner(features: Features, settings: dict[str, Any], target: str | None) -> Learner:
        """TabDDPM."""
        from siloweave.models.rounds import DiffusionLearner
        from siloweave.models.settings import DiffusionSettings

        return DiffusionLearner(settings_of(DiffusionSettings, settings), features.blocks, target)

    @staticmethod
    def model(net: Any) -> Model:
        """A diffusion."""
        return DiffusionModel(net)

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        return TabDDPM.load(path)


@dataclass(frozen=True)
class FedPointDiff(FedTabDDPM):
    """Latent diffusion whose choices are points on spheres, trained by federated averaging.

    Args:
        target: A column of categories that the diffusion is told; it is no part of a point.
        settings: Of PointDiff; the diffusion's `steps` do not count.
        rounds, epochs, weights: See `RowsSplit`.
    """

    info: ClassVar[Info] = without_noise(
        "fed_point_diff",
        "FedPointDiff",
        "latent diffusion",
        "Our own, after Shankar et al. 2024 (SiloFuse, ICDE), by the federated averaging of "
        "McMahan et al. 2017",
    )
    base: ClassVar[type[NetworkGenerator]] = PointDiff

    @property
    def visibility(self) -> Views:
        """Who sees what of a run."""
        return AVERAGED

    @staticmethod
    def learner(features: Features, settings: dict[str, Any], target: str | None) -> Learner:
        """A diffusion of points."""
        from siloweave.models.rounds import SphereCodeLearner
        from siloweave.models.settings import LatentSettings

        return SphereCodeLearner.of(settings_of(LatentSettings, settings), features.blocks, target)

    @staticmethod
    def model(net: Any) -> Model:
        """A latent diffusion."""
        return LatentModel(net)

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        return PointDiff.load(path)
