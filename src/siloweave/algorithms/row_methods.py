"""Every network that parties with different rows train together, by name.

Sources: Zhao, Birke, Kunar & Chen 2021 (fed_tgan.py, md_tgan.py); McMahan et al. 2017 for the
rounds of the diffusions (rows_split.py).

**Guarantee**: none, see fed_tgan.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from siloweave.algorithms.md_tgan import MDTGAN
from siloweave.algorithms.rows_split import FedPointDiff, FedTabDDPM, FedTGAN, RowsSplit
from siloweave.algorithms.visibility import by_name

__all__ = ["MDTGAN", "ROW_METHODS", "FedPointDiff", "FedTGAN", "FedTabDDPM"]

ROW_METHODS: Mapping[str, type[RowsSplit]] = by_name(FedTGAN, MDTGAN, FedTabDDPM, FedPointDiff)
"""By the name that studies use."""
