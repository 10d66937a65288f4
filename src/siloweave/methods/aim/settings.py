"""Settings of AIM (McKenna et al. 2022), which its coordinator reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from siloweave.protocols.workloads import MarginalSettings


@dataclass(frozen=True)
class AIMSettings(MarginalSettings):
    """Settings of AIM, with those of every method of marginals.

    `AIM` in method.py explains each.
    """

    triples: ClassVar[bool] = True
    hidden_columns: ClassVar[int] = 3

    gaussian_share: float = 0.9
    rounds_per_column: int = 16
    sweeps: int = 10
    final_sweeps: int = 60
    shrinkage: float = 0.5
