"""The private central generators: DP-CTGAN, DP-TabDDPM, DP-TLDM.

Zhu, Tang, Brouwer, Perez, van Dijk & Chen 2024, "Quantifying and Mitigating Privacy Risks for
Tabular Generative Models", name these three; Xu et al. 2019 (CTGAN), Kotelnikov et al. 2023
(TabDDPM) are the models.

**Guarantee**: that of private_central.py, for every row and towards everyone. Departures from the
paper: gradients are clipped per row and not per batch (which bounds nothing by itself), one clip
holds for encoder and decoder together, both stages of DP-TLDM are paid, batches are Poisson
samples, and the price is read from the ledger with the accountant of sampled Gaussians instead of
a limit theorem. `DPTLDM(scope="autoencoder")` is the paper's scope: its second stage reads every
row without noise, which is no post-processing, so its guarantee is `partial` and its epsilon
infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from siloweave.algorithms.diffusions import DiffusionModel, LatentModel
from siloweave.algorithms.gans import GANModel
from siloweave.algorithms.generated import Model
from siloweave.algorithms.networks import merged, settings_of
from siloweave.algorithms.outcome import Info
from siloweave.algorithms.private_central import Method, Work
from siloweave.algorithms.private_fit import PrivateGenerator
from siloweave.algorithms.visibility import CURATOR, NOISE, View, Views, by_name
from siloweave.errors import InputError
from siloweave.tables.features import Features

__all__ = ["DPCTGAN", "DPTLDM", "PRIVATE_GENERATORS", "DPTabDDPM"]

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
_COUNTS = ("Counted.paid_rows", "Counted.counts")
_COUNTED = "noisy counts of every column, and of the rows if their number is private"
_VIEWS: Views = (
    CURATOR,
    View("readers", _COUNTED, NOISE, _COUNTS),
    View("readers", "the model and the synthetic table", NOISE, ("Trained.model",)),
)


def _info(name: str, title: str, family: str, paper: str) -> Info:
    return Info(name, title, family, "central", "curator", "dp", paper, _STATEMENT)


# DP-CTGAN


class _GANMethod(Method):
    title = "DP-CTGAN"
    numeric = "modes"

    @staticmethod
    def paid_steps(network: dict[str, Any]) -> int:
        return int(network["steps"])

    @staticmethod
    def train(work: Work, features: Features) -> Model:
        from siloweave.models.nets import Dense
        from siloweave.models.private_gan import PrivateGANSettings, fit_private_gan

        made = fit_private_gan(
            work.encode(features),
            features.blocks,
            PrivateGANSettings(**work.network),
            shares=work.shares(features),
            key=work.key,
            gradient=work.gradient(Dense),
            sampler=work.sampler,
            progress=work.progress,
            store=work.store,
        )
        return GANModel(made)


@dataclass(frozen=True)
class DPCTGAN(PrivateGenerator):
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
    method: ClassVar[type[Method]] = _GANMethod

    def network(self) -> dict[str, Any]:
        """Settings of the model, as plain values."""
        from siloweave.models.private_gan import PrivateGANSettings

        return asdict(settings_of(PrivateGANSettings, self.settings))

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        from siloweave.models.draws import GAN

        return GANModel(GAN.load(path))


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
    "reach": 4.0,
    "passes": None,
    "eta": 0.0,  # decision 0022
}


def _diffusion(given: Mapping[str, Any], title: str, where: str = "settings") -> Any:
    from siloweave.models.diffusion import DiffusionSettings

    made = settings_of(DiffusionSettings, merged(_DDPM, given), where)
    if made.reach is None:
        raise InputError(
            f"{where} has reach=None, which reads the range of the rows; {title} needs a number"
        )
    return made


class _DiffusionMethod(Method):
    title = "DP-TabDDPM"

    @staticmethod
    def paid_steps(network: dict[str, Any]) -> int:
        return int(network["steps"])

    @staticmethod
    def train(work: Work, features: Features) -> Model:
        from siloweave.models.diffusion import DiffusionSettings, fit
        from siloweave.models.nets import Dense

        made = fit(
            work.encode(features),
            features.blocks,
            DiffusionSettings(**work.network),
            key=work.key,
            labels=work.target,
            law=work.law(features),
            gradient=work.gradient(Dense),
            sampler=work.sampler,
            progress=work.progress,
            store=work.store,
        )
        return DiffusionModel(made)


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
    method: ClassVar[type[Method]] = _DiffusionMethod
    takes_target: ClassVar[bool] = True

    def network(self) -> dict[str, Any]:
        """Settings of the model, as plain values."""
        return asdict(_diffusion(self.settings, self.info.title))

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        from siloweave.models.diffusion import TabDDPM

        return DiffusionModel(TabDDPM.load(path))


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


class _LatentMethod(Method):
    title = "DP-TLDM"

    @staticmethod
    def paid_steps(network: dict[str, Any]) -> int:
        first, second = network["autoencoder"]["steps"], network["diffusion"]["steps"]
        return int(first + second if network["scope"] == "end-to-end" else first)

    @staticmethod
    def unpaid(network: dict[str, Any]) -> str:
        if network["scope"] == "end-to-end":
            return ""
        return "DP-TLDM's diffusion is trained on encoded rows without noise"

    @staticmethod
    def train(work: Work, features: Features) -> Model:
        from siloweave.models.autoencoder import AutoencoderSettings
        from siloweave.models.diffusion import DiffusionSettings
        from siloweave.models.latent import LatentSettings, fit
        from siloweave.models.nets import Dense

        chosen = work.network
        settings = LatentSettings(
            AutoencoderSettings(**chosen["autoencoder"]),
            DiffusionSettings(**chosen["diffusion"]),
            scaled=False,
            numbers=chosen["numbers"],
        )
        both = chosen["scope"] == "end-to-end"
        made = fit(
            work.encode(features),
            features.blocks,
            settings,
            key=work.key,
            labels=work.target,
            law=work.law(features),
            gradient=work.gradient(Dense),
            latent_gradient=work.gradient(Dense, part=1) if both else None,
            sampler=work.sampler,
            progress=work.progress,
            store=work.store,
        )
        return LatentModel(made)


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
    method: ClassVar[type[Method]] = _LatentMethod
    takes_target: ClassVar[bool] = True

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings."""
        if self.scope == "end-to-end":
            return _VIEWS
        *before, model = _VIEWS
        why = "nothing: the diffusion is trained on encoded rows without noise"
        return (*before, msgspec.structs.replace(model, protected_by=why))

    @property
    def stated(self) -> Info:
        """What it is, guarantees and shows at these settings."""
        if self.scope == "end-to-end":
            return super().stated
        return msgspec.structs.replace(super().stated, guarantee="partial", statement=_PARTIAL)

    def network(self) -> dict[str, Any]:
        """Settings of the model, as plain values."""
        from siloweave.models.autoencoder import AutoencoderSettings

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
        return {**made, "numbers": chosen["numbers"], "scope": self.scope, "batch": coder.batch}

    @staticmethod
    def load(path: Path) -> Model:
        """Read a model that was saved."""
        from siloweave.models.latent import LatentDiffusion

        return LatentModel(LatentDiffusion.load(path))


PRIVATE_GENERATORS: Mapping[str, type[PrivateGenerator]] = by_name(DPCTGAN, DPTabDDPM, DPTLDM)
"""Every private central generator by its name."""
