"""Generators that are diffusions: TabDDPM, and the latent diffusions LatentDiff, TLDM and E2E.

Kotelnikov et al. 2023, "TabDDPM: modelling tabular data with diffusion models"; Shankar et al.
2024, "SiloFuse: cross-silo synthetic data generation with latent tabular diffusion models" (its
centralised baselines LatentDiff and E2E); Zhu et al. 2024, "DP-TLDM" (its model without privacy).

**Guarantee**: none, see central.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from siloweave.algorithms.generated import Matrix
from siloweave.algorithms.networks import (
    Net,
    NetworkGenerator,
    NetworkModel,
    jax_key,
    way_of,
    without_guarantee,
)
from siloweave.algorithms.outcome import Info
from siloweave.algorithms.visibility import BARE_OWNER, Views
from siloweave.tables.keys import Key

__all__ = ["E2E", "TLDM", "DiffusionModel", "LatentDiff", "LatentModel", "PointDiff", "TabDDPM"]


@dataclass(frozen=True)
class DiffusionModel(NetworkModel):
    """A `TabDDPM`: it is told its label, and other columns are replaced at every step."""

    @property
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for: all."""
        return frozenset(block.column for block in self.net.layout.blocks)

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of the label was; nothing of other columns."""
        known = self.net.label is not None and column == self.net.label.column
        return tuple(self.net.label_shares) if known else None

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows."""
        label, way = self.net.label, {}
        if given is not None:
            told = range(label.start, label.stop) if label else range(0)
            way = way_of(np.delete(given, told, axis=1))
        drawn: Matrix = self.net.sample(n, key=jax_key(key), given=given, **way)
        return drawn


@dataclass(frozen=True)
class LatentModel(DiffusionModel):
    """A `LatentDiffusion`: told its label; other columns are replaced if points code them."""

    @property
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for: the label; all where points code the columns."""
        if hasattr(self.net.settings.autoencoder, "per_bit"):
            return super().takes
        return frozenset() if self.net.label is None else frozenset({self.net.label.column})


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
