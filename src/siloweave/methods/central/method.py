"""Central generators: the owner of all rows trains a model on them and releases the model.

SDV's Gaussian copula (Patki, Wedge & Veeramachaneni 2016, "The Synthetic Data Vault"), CTGAN (Xu et
al. 2019, "Modeling tabular data using conditional GAN") and TabDDPM (Kotelnikov et al. 2023,
"TabDDPM: modelling tabular data with diffusion models"), as one-party runs of the same federation.

**Guarantee**: none. The weights are released as they were trained, and the ledger says so with an
event of infinite cost; encoders, bounds and frequencies are taken from the rows as well.

Generators that are GANs: CTGAN, CopulaGAN, ADS-GAN and CTAB-GAN, trained by one owner of rows.

Xu et al. 2019, "Modeling tabular data using conditional GAN"; Patki, Wedge & Veeramachaneni 2016,
"The Synthetic Data Vault" (whose releases hold CopulaGAN); Yoon, Drumright & van der Schaar 2020,
"Anonymization through data synthesis using GANs"; Zhao et al. 2021, "CTAB-GAN".

**Guarantee**: none, see central.py. That holds for ADS-GAN too: it pays its generator for distance
from real rows, which bounds nothing.

Generators that are diffusions: TabDDPM, and the latent diffusions LatentDiff, TLDM and E2E.

Kotelnikov et al. 2023, "TabDDPM: modelling tabular data with diffusion models"; Shankar et al.
2024, "SiloFuse: cross-silo synthetic data generation with latent tabular diffusion models" (its
centralised baselines LatentDiff and E2E); Zhu et al. 2024, "DP-TLDM" (its model without privacy).

**Guarantee**: none, see central.py.

The Gaussian copula, fitted by the owner of all rows.

Patki, Wedge & Veeramachaneni 2016, "The Synthetic Data Vault".

**Guarantee**: none, see central.py.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from math import isfinite
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.algorithms.generated import Generated, Matrix, Model
from siloweave.algorithms.one_owner import OneOwner, owner_of
from siloweave.algorithms.outcome import Cost, Info
from siloweave.algorithms.running import (
    Job,
    PartySide,
    Recipe,
    opened,
    plain,
    required_rows,
)
from siloweave.algorithms.visibility import BARE_OWNER, Views
from siloweave.errors import BudgetError
from siloweave.methods.central.messages import Train
from siloweave.methods.central.party import Training, party
from siloweave.privacy.budget import UNBOUNDED, Budget
from siloweave.protocols.networks import (
    DiffusionModel,
    LatentModel,
    Net,
    NetworkGenerator,
    NetworkModel,
    OwnerData,
    jax_key,
    settings_of,
    single_choices,
    without_guarantee,
)
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.one_way import OneWay
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Schema, outline

if TYPE_CHECKING:
    from siloweave.models.copula import Copula, ScoreModes


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


@dataclass(frozen=True)
class GANModel(NetworkModel):
    """A `GAN`: asked for categories through its condition, it makes them more often, not always."""

    keeps: ClassVar[bool] = False

    @property
    def takes(self) -> frozenset[str]:
        """Columns of categories that are conditions."""
        numbers = {b.column for b in self.net.heads.blocks if b.kind == "number"}
        return frozenset(self.net.heads.columns) - numbers

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of a column was, where the model knows."""
        names = [block.column for block in self.net.heads.conditional.choices]
        if names.count(column) != 1 or column not in self.takes:
            return None  # no condition, or one in digits
        shares: tuple[float, ...] = self.net.conditions.shares(names.index(column))
        return shares

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows; some of those that are asked for something may miss it."""
        net, drawing = self.net, jax_key(key)
        drawn: Matrix = (
            net.sample(n, key=drawing) if given is None else net.attempt(given, key=drawing)
        )
        return drawn


@dataclass(frozen=True)
class CTGAN(NetworkGenerator):
    """Conditional GAN with mode-specific normalisation; its classes are conditions, all alike.

    Args:
        settings: Of the network and its training, as a mapping; CTGAN's defaults for the rest.
    """

    info: ClassVar[Info] = without_guarantee(
        "ctgan",
        "CTGAN",
        "GAN",
        "Xu, Skoularidou, Cuesta-Infante & Veeramachaneni 2019, Modeling tabular data using "
        "conditional GAN, NeurIPS",
    )
    visibility: ClassVar[Views] = BARE_OWNER
    numeric: ClassVar[Any] = "modes"
    net: ClassVar[Net] = Net(
        lambda: import_module("siloweave.models.gan"), "GANSettings", "fit_gan", "GAN", GANModel
    )


@dataclass(frozen=True)
class ADSGAN(CTGAN):
    """GAN whose generator is also paid for its distance from real rows; that protects nobody.

    Args:
        identifiability: What that distance is: from a generated row to its ``nearest`` real row,
            features weighted by inverse entropy (the paper's), or between ``pairs`` of a generated
            and an arbitrary real row (synthcity's).
        settings: Of the network and its training, as a mapping; ADS-GAN's defaults for the rest.
    """

    identifiability: Literal["nearest", "pairs"] = "nearest"
    info: ClassVar[Info] = without_guarantee(
        "ads_gan",
        "ADS-GAN",
        "GAN",
        "Yoon, Drumright & van der Schaar 2020, Anonymization through data synthesis using "
        "generative adversarial networks (ADS-GAN), IEEE JBHI",
    )
    visibility: ClassVar[Views] = BARE_OWNER

    def preset(self) -> Mapping[str, Any]:
        """ADS-GAN's networks, rates and distance."""
        from siloweave.models.settings import ads_gan_settings

        return asdict(ads_gan_settings(self.identifiability))


@dataclass(frozen=True)
class CTABGAN(NetworkGenerator):
    """Convolutional GAN of rows folded into squares; at most 1,024 entries with all conditions.

    Args:
        target: A column of categories that a classifier must agree on with generated rows.
        settings: Of the network and its training, as a mapping; the authors' for the rest.
    """

    info: ClassVar[Info] = without_guarantee(
        "ctab_gan",
        "CTAB-GAN",
        "GAN",
        "Zhao, Kunar, Birke & Chen 2021, CTAB-GAN: Effective table data synthesizing, ACML",
    )
    visibility: ClassVar[Views] = BARE_OWNER
    numeric: ClassVar[Any] = "modes"
    takes_target: ClassVar[bool] = True
    net: ClassVar[Net] = Net(
        lambda: import_module("siloweave.models.ctab"), "CTABSettings", "fit_ctab", "GAN", GANModel
    )

    @classmethod
    def check_width(cls, features: Features) -> None:
        """Refuse rows that do not fit into a square with their conditions."""
        ctab = cls.net.home()
        ctab.side_of(ctab.entries(features.blocks))


@dataclass(frozen=True)
class _ScoredGAN(GANModel):
    """A GAN of normal scores; what it draws goes back through the columns' laws."""

    scores: ScoreModes

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        inner = None if given is None else self.scores.moved(given)
        return self.scores.decode(super().sample(n, key=key, given=inner))


@dataclass(frozen=True)
class CopulaGAN(CTGAN):
    """CTGAN on normal scores: numbers go through their own law first, and back through it.

    That is a transform, not a likelihood; dependence is what the GAN learns.

    Args:
        family: Law of a numeric column: beta, norm, truncnorm, uniform, gamma or kde.
        settings: Of the network and its training, as a mapping; CTGAN's defaults for the rest.
    """

    family: Family = "beta"
    info: ClassVar[Info] = without_guarantee(
        "copula_gan",
        "CopulaGAN",
        "GAN",
        "Patki, Wedge & Veeramachaneni 2016, The Synthetic Data Vault, DSAA (its releases since "
        "0.4 hold CopulaGAN), with Xu et al. 2019, NeurIPS",
    )
    visibility: ClassVar[Views] = BARE_OWNER
    numeric: ClassVar[Any] = "standard"

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong or unknown."""
        return {"family": checked_family(self.family), **super().chosen()}

    @classmethod
    def train(cls, work: Training) -> Model:
        """Train on feature vectors."""
        from siloweave.models.copula import ScoreModes
        from siloweave.models.gan import fit_gan
        from siloweave.models.settings import GANSettings

        chosen = dict(work.settings)
        scores = ScoreModes.fit(work.X, work.features.blocks, chosen.pop("family"))
        X = scores.encode(work.X, key=fold_in(work.key, "modes"))
        gan = fit_gan(
            X,
            scores.inner,
            settings_of(GANSettings, chosen),
            key=jax_key(work.key),
            progress=work.progress,
            store=work.store,
            note={"scores": scores.to_facts()},
        )
        return _ScoredGAN(gan, scores)

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model that was saved."""
        from siloweave.models.conditional import GAN
        from siloweave.models.copula import ScoreModes

        gan = GAN.load(path)
        return _ScoredGAN(gan, ScoreModes.from_facts(gan.note["scores"]))


@dataclass(frozen=True)
class TabDDPM(NetworkGenerator):
    """Diffusion: Gaussian for numbers, multinomial for choices.

    Args:
        target: A column of categories that the network is told instead of diffusing it.
        settings: Of the network and its training, as a mapping; defaults for the rest.
    """

    info: ClassVar[Info] = without_guarantee(
        "tabddpm",
        "TabDDPM",
        "diffusion",
        "Kotelnikov, Baranchuk, Rubachev & Babenko 2023, TabDDPM: modelling tabular data with "
        "diffusion models, ICML",
    )
    visibility: ClassVar[Views] = BARE_OWNER
    takes_target: ClassVar[bool] = True
    net: ClassVar[Net] = Net(
        lambda: import_module("siloweave.models.diffusion"),
        "DiffusionSettings",
        "fit",
        "TabDDPMModel",
        DiffusionModel,
    )


@dataclass(frozen=True)
class LatentDiff(NetworkGenerator):
    """Autoencoder, then Gaussian diffusion of its latent rows: SiloFuse without silos.

    Args:
        target: A column of categories that the diffusion is told; it is not encoded.
        settings: A mapping with the mappings ``autoencoder`` and ``diffusion``, and ``scaled`` and
            ``numbers``; defaults for the rest.

    Example:
        >>> LatentDiff(settings={"diffusion": {"step": 10}}).chosen()
        Traceback (most recent call last):
        ...
        siloweave.errors.InputError: settings.diffusion.step is no setting; ...
    """

    info: ClassVar[Info] = without_guarantee(
        "latent_diff",
        "LatentDiff",
        "latent diffusion",
        "Shankar, Brouwer, Hai & Chen 2024, SiloFuse: cross-silo synthetic data generation with "
        "latent tabular diffusion models, ICDE",
    )
    visibility: ClassVar[Views] = BARE_OWNER
    takes_target: ClassVar[bool] = True
    net: ClassVar[Net] = Net(
        lambda: import_module("siloweave.models.latent"),
        "LatentSettings",
        "fit",
        "LatentDiffusion",
        LatentModel,
    )

    def preset(self) -> Mapping[str, Any]:
        """Early decisions count more than the last touch."""
        return {"diffusion": {"loss_weight": 0.5}}


@dataclass(frozen=True)
class TLDM(LatentDiff):
    """Variational autoencoder, then diffusion of its latent rows that predicts the noise.

    Args:
        target: A column of categories that the diffusion is told; it is not encoded.
        settings: As of `LatentDiff`.
    """

    info: ClassVar[Info] = without_guarantee(
        "tldm",
        "TLDM",
        "latent diffusion",
        "Zhu, Tang, Brouwer, Perez, van Dijk & Chen 2024, Quantifying and mitigating privacy risks "
        "for tabular generative models (DP-TLDM), arXiv",
    )
    visibility: ClassVar[Views] = BARE_OWNER

    def preset(self) -> Mapping[str, Any]:
        """Networks of 3 x 256 units, a divergence, noise prediction."""
        wide = (256, 256, 256)
        return {
            "autoencoder": {"hidden": wide, "divergence": 1e-3},
            "diffusion": {"hidden": wide, "prediction": "noise"},
        }


@dataclass(frozen=True)
class E2E(LatentDiff):
    """Encoder, denoiser and decoder trained as one: the baseline that SiloFuse is compared with.

    Args:
        target: A column of categories that the denoiser is told; it is not encoded.
        settings: As of `LatentDiff`; steps, batch and rates are those of ``diffusion``, and what a
            joint training makes no use of is refused.
    """

    info: ClassVar[Info] = without_guarantee(
        "e2e",
        "E2E",
        "latent diffusion",
        "Shankar, Brouwer, Hai & Chen 2024, SiloFuse: cross-silo synthetic data generation with "
        "latent tabular diffusion models, ICDE",
    )
    visibility: ClassVar[Views] = BARE_OWNER

    def preset(self) -> Mapping[str, Any]:
        """All parts as one, which needs the clean latent; rows without noise (decision 0022)."""
        return {"joint": True, "diffusion": {"prediction": "clean", "eta": 0.0}}


@dataclass(frozen=True)
class PointDiff(LatentDiff):
    """Gaussian diffusion of rows whose choices are points on spheres; any column can be given.

    Our own latent diffusion: its coder learns nothing and loses nothing, so all training goes to
    the diffusion.

    Args:
        target: A column of categories that the diffusion is told; it is no part of a point.
        settings: As of `LatentDiff`; ``autoencoder`` has ``per_bit`` only.
    """

    info: ClassVar[Info] = without_guarantee(
        "point_diff",
        "PointDiff",
        "latent diffusion",
        "Our own, after Shankar et al. 2024 (SiloFuse, ICDE) and Chen, Zhang & Hinton 2023, "
        "Analog bits, ICLR",
    )
    visibility: ClassVar[Views] = BARE_OWNER

    def preset(self) -> Mapping[str, Any]:
        """Points in the place of the autoencoder."""
        return {"autoencoder": {"per_bit": 1.0}}


Family = Literal["beta", "norm", "truncnorm", "uniform", "gamma", "kde"]

"""A law that a numeric column may be given."""


def checked_family(family: Family) -> Family:
    """The family; raises InputError if it is unknown."""
    from siloweave.models.settings import CopulaSettings

    return CopulaSettings(family=family).family


@dataclass(frozen=True)
class CopulaModel:
    """A fitted copula behind the interface of `Generated`; what it is given, it keeps.

    Attributes:
        net: The copula.
    """

    net: Copula
    keeps: ClassVar[bool] = True

    @property
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for: all."""
        return frozenset(block.column for block in self.net.blocks)

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of a column was, where the model knows."""
        block = single_choices(self.net.blocks).get(column)
        law = None if block is None else self.net.margins[self.net.blocks.index(block)]
        shares: NDArray[np.float64] | None = getattr(law, "shares", None)  # of categories only
        return None if shares is None else tuple(shares.tolist())

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows, from the conditional law of what is free where something is given."""
        return self.net.sample(n, key=key, given=given)

    def save(self, path: Path) -> None:
        """Write the model as one safetensors file."""
        self.net.save(path)


@dataclass(frozen=True)
class GaussianCopula(CentralGenerator):
    """Every column's own law, joined by correlations of normal scores; quick, and rough.

    Args:
        family: Law of a numeric column: beta, norm, truncnorm, uniform, gamma or kde.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> model = GaussianCopula().fit(adult().take(range(300)), adult_schema())
        >>> len(model.sample(5)), model.epsilon
        (5, inf)
    """

    family: Family = "beta"
    info: ClassVar[Info] = without_guarantee(
        "gaussian_copula",
        "GaussianCopula",
        "copula",
        "Patki, Wedge & Veeramachaneni 2016, The Synthetic Data Vault, DSAA",
    )
    visibility: ClassVar[Views] = BARE_OWNER
    numeric: ClassVar[Any] = "standard"

    def chosen(self) -> dict[str, Any]:
        """The settings, as plain values; raises InputError if the family is unknown."""
        return {"family": checked_family(self.family)}

    @staticmethod
    def train(work: Training) -> Model:
        """Train on feature vectors."""
        from siloweave.models.copula import Copula
        from siloweave.models.settings import CopulaSettings

        settings = CopulaSettings(family=work.settings["family"])
        return CopulaModel(Copula.fit(work.X, work.features.blocks, settings, key=work.key))

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        from siloweave.models.copula import Copula

        return CopulaModel(Copula.load(path))
