"""Every method for split columns by name.

Sources: Shankar et al. 2024 (silofuse.py, end_to_end.py); Jiang et al. 2023 (vertigan.py).

**Guarantee**: none of its own; each method's file states its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from siloweave.algorithms.columns_split import ColumnsSplit
from siloweave.algorithms.end_to_end_rounds import E2EDistr
from siloweave.algorithms.latent_methods import SiloFuse
from siloweave.algorithms.vertigan_method import VertiGAN
from siloweave.algorithms.visibility import by_name

__all__ = ["COLUMN_METHODS", "E2EDistr", "SiloFuse", "VertiGAN"]

_KINDS: tuple[type[ColumnsSplit], ...] = (SiloFuse, E2EDistr, VertiGAN)
COLUMN_METHODS: Mapping[str, type[ColumnsSplit]] = by_name(*_KINDS)
"""Every method whose parties hold different columns, by its name."""
