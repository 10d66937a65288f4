"""Settings of VertiMRF (Zhao et al. 2024), which its server and parties read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class VertiMRFSettings:
    """Settings of VertiMRF; `VertiMRF` in method.py explains each."""

    encoding: Literal["fm", "fo"] = "fo"
    repetitions: int = 2000
    encoded_bins: int | None = 4
    field_share: float = 0.4
    values_share: float = 0.2
    rows_share: float = 0.1
    clique_cells: float = 1e6
    theta: float = 6.0
    refined: float = 0.8
    refine_steps: int = 8
    consistent: bool = False
    bins: int = 16
    max_model_mb: float = 80.0
