"""Networks that parties with different rows train together under a budget.

Kotelnikov et al. 2023, "TabDDPM", our points in the place of its one-hot choices, and the GAN of
Zhao, Birke, Kunar & Chen 2021, "Fed-TGAN", trained by DP-SGD (Abadi et al. 2016) over masked sums
(private_rounds.py).

**Guarantee**: that of private_rounds.py; here nothing reads a row.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from siloweave.algorithms.diffusions import PointDiff, TabDDPM
from siloweave.algorithms.networks import merged, settings_of
from siloweave.algorithms.outcome import Info
from siloweave.algorithms.private_training import PrivateGAN, PrivateTraining
from siloweave.algorithms.rows_split import FedPointDiff, FedTabDDPM, FedTGAN, RowsSplit
from siloweave.algorithms.visibility import (
    OTHERS,
    OTHERS_NOISE,
    OWN_ROWS,
    READERS,
    View,
    Views,
    masked_sums,
)
from siloweave.errors import InputError, whole

__all__ = ["DPFedPointDiff", "DPFedTGAN", "DPFedTabDDPM", "PrivateRowsSplit"]

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
