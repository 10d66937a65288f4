"""Generators that are GANs: CTGAN, CopulaGAN, ADS-GAN and CTAB-GAN, trained by one owner of rows.

Xu et al. 2019, "Modeling tabular data using conditional GAN"; Patki, Wedge & Veeramachaneni 2016,
"The Synthetic Data Vault" (whose releases hold CopulaGAN); Yoon, Drumright & van der Schaar 2020,
"Anonymization through data synthesis using GANs"; Zhao et al. 2021, "CTAB-GAN".

**Guarantee**: none, see central.py. That holds for ADS-GAN too: it pays its generator for distance
from real rows, which bounds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from siloweave.algorithms.central import Training
from siloweave.algorithms.copulas import Family, checked_family
from siloweave.algorithms.generated import Matrix, Model
from siloweave.algorithms.networks import (
    Net,
    NetworkGenerator,
    NetworkModel,
    jax_key,
    settings_of,
    without_guarantee,
)
from siloweave.algorithms.outcome import Info
from siloweave.algorithms.visibility import BARE_OWNER, Views
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in

if TYPE_CHECKING:
    from siloweave.models.copula import ScoreModes

__all__ = ["ADSGAN", "CTABGAN", "CTGAN", "CopulaGAN", "GANModel"]


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
        names = [block.column for block in self.net.heads.conditional.categoricals]
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
        from siloweave.models.gan_networks import side_of

        side_of(cls.net.home().entries(features.blocks))


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
        from siloweave.models.copula import ScoreModes
        from siloweave.models.gan import GAN

        gan = GAN.load(path)
        return _ScoredGAN(gan, ScoreModes.from_facts(gan.note["scores"]))
