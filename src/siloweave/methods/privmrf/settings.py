"""Settings of PrivMRF (Cai et al. 2021), which its coordinator reads."""

from __future__ import annotations

from dataclasses import dataclass

from siloweave.protocols.random_fields import FieldSettings
from siloweave.protocols.workloads import MarginalSettings


@dataclass(frozen=True)
class PrivMRFSettings(FieldSettings, MarginalSettings):
    """Settings of PrivMRF: those of its field and of every method of marginals.

    `PrivMRF` in method.py explains each.
    """

    bins: int = 16
