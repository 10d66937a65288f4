"""Settings of FLAIM (Maddock, Cormode & Maple 2024), which its coordinator reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from siloweave.protocols.workloads import MarginalSettings


@dataclass(frozen=True)
class FLAIMSettings(MarginalSettings):
    """Settings of FLAIM, with those of every method of marginals.

    `FLAIM` in method.py explains each.
    """

    hidden_columns: ClassVar[int] = 3

    variant: Literal["private", "naive", "oracle", "random", "naive_bayes"] = "private"
    rounds: int | None = 10
    participation: float = 0.1
    cap: int | None = None
    local_steps: int = 1
    tolerated: int = 1
    dropouts: int = 0
    gaussian_share: float = 0.9
    size_share: float = 0.02
    sweeps: int = 10
    final_sweeps: int = 60
    shrinkage: float = 0.5
