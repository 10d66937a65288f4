"""Settings of DistAIM (Maddock, Cormode & Maple 2024), which its coordinator reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from siloweave.protocols.two_rounds import TwoRoundSettings


@dataclass(frozen=True)
class DistAIMSettings(TwoRoundSettings):
    """Settings of DistAIM, with those of two rounds.

    `DistAIM` in method.py explains each.
    """

    bins: int = 16
    rounds: int = 10
    participation: float = 0.1
    selection: Literal["planned", "simulated"] = "planned"
    gaussian_share: float = 0.9
    sweeps: int = 10
    tolerated: int = 1
