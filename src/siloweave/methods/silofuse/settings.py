"""Settings of SiloFuse and E2EDistr (Shankar et al. 2024), which their parties read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from siloweave.core.settings import built
from siloweave.models.settings import (
    POINTS_DIFFUSION,
    AutoencoderSettings,
    DiffusionSettings,
    LatentSettings,
    SphereCodeSettings,
)
from siloweave.tables.encodings import Numeric

_KINDS: Mapping[str, type[Any]] = {
    "points": SphereCodeSettings,
    "autoencoders": AutoencoderSettings,
}


@dataclass(frozen=True)
class SiloFuseSettings:
    """Settings of SiloFuse; `SiloFuse` in method.py explains each."""

    target: str | None = None
    shared: bool = True
    autoencoder: AutoencoderSettings | SphereCodeSettings | Mapping[str, Any] | None = (
        None
    )
    diffusion: DiffusionSettings | Mapping[str, Any] | None = None
    scaled: bool = True
    numbers: Literal["mean", "draw"] = "mean"
    coder: Literal["points", "autoencoders"] = "points"
    half: bool = True
    privacy: Literal["none", "latents"] = "none"
    clip: float = 1.0

    @property
    def shows_cells(self) -> bool:
        """Whether latents are sphere codes without noise, as `PointDiff` has them."""
        return self.coder == "points" and self.privacy == "none"

    @property
    def numeric(self) -> Numeric:
        """The encoding of a number, see `Features.fit`; as in `PointDiff` with its model."""
        return "ranks" if self.shows_cells else "quantile"

    @property
    def latent(self) -> LatentSettings:
        """The settings of coder and diffusion, with defaults that follow from other settings."""
        kind = _KINDS[self.coder]
        coder = kind()
        diffusion = (
            POINTS_DIFFUSION if self.shows_cells else DiffusionSettings(loss_weight=0.5)
        )
        if self.autoencoder is not None:
            coder = built(kind, "autoencoder", self.autoencoder, coder)
        if self.diffusion is not None:
            diffusion = built(DiffusionSettings, "diffusion", self.diffusion, diffusion)
        return LatentSettings(
            coder, diffusion, scaled=self.scaled, numbers=self.numbers
        )


@dataclass(frozen=True)
class E2EDistrSettings(LatentSettings):
    """Settings of E2EDistr, with those of a latent diffusion.

    `E2EDistr` in method.py explains each.
    """

    joint: bool = field(default=True, init=False)
    diffusion: DiffusionSettings = DiffusionSettings(prediction="clean", eta=0.0)
    target: str | None = None
    shared: bool = True
