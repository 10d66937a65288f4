"""Every method by the name that studies use, and reading a fit of any of them.

Each class's file names its source, the oldest Patki, Wedge & Veeramachaneni 2016 (copulas.py), and
states its guarantee.

**Guarantee**: none of its own. A method that does not say what it guarantees, and who sees what of
its runs, is refused when this file is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from siloweave.algorithms.fitted import Fitted
from siloweave.algorithms.generated import GENERATED, Generated, read_generated
from siloweave.algorithms.one_owner import OneOwner
from siloweave.algorithms.synthesizer import Synthesizer
from siloweave.algorithms.synthesizers import AIM, FLAIM, TwoRound
from siloweave.algorithms.visibility import by_name
from siloweave.methods.central.method import (
    ADSGAN,
    CTABGAN,
    CTGAN,
    E2E,
    TLDM,
    CopulaGAN,
    GaussianCopula,
    LatentDiff,
    PointDiff,
    TabDDPM,
)
from siloweave.methods.dp_sgd.method import (
    DPCTGAN,
    DPTLDM,
    DPFedPointDiff,
    DPFedTabDDPM,
    DPFedTGAN,
    DPTabDDPM,
)
from siloweave.methods.fed_tgan.method import MDTGAN, FedPointDiff, FedTabDDPM, FedTGAN
from siloweave.methods.silofuse.method import E2EDistr, SiloFuse
from siloweave.methods.vertigan.method import VertiGAN
from siloweave.protocols.columns import COLUMNS, ColumnsSplit, read_woven

__all__ = ["METHODS", "load"]

METHODS: Mapping[str, type[Synthesizer[Any]]] = by_name(
    *(AIM, FLAIM, TwoRound),
    *(DPFedTGAN, DPFedTabDDPM, DPFedPointDiff),
    *(FedTGAN, MDTGAN, FedTabDDPM, FedPointDiff),
    *(SiloFuse, E2EDistr, VertiGAN),
    *(DPCTGAN, DPTabDDPM, DPTLDM),
    *(GaussianCopula, CopulaGAN, CTGAN, ADSGAN, CTABGAN),
    *(TabDDPM, LatentDiff, TLDM, E2E, PointDiff),
)
"""Every method's class; loads no network."""


def load(folder: Path | str) -> Fitted | Generated:
    """Read a fit of any kind that `save` wrote.

    Raises:
        DataError: A file is missing, cut or of another version.
    """
    if (Path(folder) / COLUMNS).is_file():
        split = {name: kind for name, kind in METHODS.items() if issubclass(kind, ColumnsSplit)}
        return read_woven(folder, split)
    if (Path(folder) / GENERATED).is_file():
        one = {name: kind.load for name, kind in METHODS.items() if issubclass(kind, OneOwner)}
        return read_generated(folder, one)
    return Fitted.load(folder)
