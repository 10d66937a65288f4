"""Settings of VertiGAN (Jiang et al. 2023), which its server and parties read."""

from __future__ import annotations

from dataclasses import dataclass

from siloweave.core.method import CountsSettings
from siloweave.models.settings import VertiGANSettings


@dataclass(frozen=True)
class VertiGANFitSettings(VertiGANSettings, CountsSettings):
    """Settings of a fit by VertiGAN: those of networks, counts and noise.

    `VertiGAN` in method.py explains each.
    """

    shared: bool = True
    private: bool = True
    clip: float = 1.0
