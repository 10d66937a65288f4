"""Every method by the name that studies use, and reading a fit of any of them.

**Guarantee**: none of its own. A record without a guarantee or without visibility is refused when
its file is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from siloweave.core.fit import Fit
from siloweave.core.method import names_of
from siloweave.core.run import Synthesizer
from siloweave.methods.aim.method import AIM
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
from siloweave.methods.distaim.method import DistAIM
from siloweave.methods.dp_sgd.method import (
    DPCTGAN,
    DPTLDM,
    DPFedPointDiff,
    DPFedTabDDPM,
    DPFedTGAN,
    DPTabDDPM,
)
from siloweave.methods.fed_tgan.method import MDTGAN, FedPointDiff, FedTabDDPM, FedTGAN
from siloweave.methods.flaim.method import FLAIM
from siloweave.methods.privmrf.method import PrivMRF
from siloweave.methods.secure_two_round.method import SecureTwoRound
from siloweave.methods.silofuse.method import E2EDistr, SiloFuse
from siloweave.methods.two_round.method import TwoRound
from siloweave.methods.vertigan.method import VertiGAN
from siloweave.methods.vertimrf.method import VertiMRF

CLASSES: tuple[type[Synthesizer], ...] = (
    *(AIM, PrivMRF, FLAIM, DistAIM, TwoRound),
    *(GaussianCopula, CopulaGAN, CTGAN, ADSGAN, CTABGAN),
    *(TabDDPM, LatentDiff, TLDM, E2E, PointDiff),
    *(SecureTwoRound, VertiMRF, SiloFuse, E2EDistr, VertiGAN),
    *(FedTGAN, MDTGAN, FedTabDDPM, FedPointDiff),
    *(DPCTGAN, DPTabDDPM, DPTLDM),
    *(DPFedTGAN, DPFedTabDDPM, DPFedPointDiff),
)
"""The classes that users meet; adding a method adds one here."""

METHODS: Mapping[str, type[Synthesizer]] = dict(
    zip(names_of([kind.method for kind in CLASSES]), CLASSES, strict=True)
)
"""Every method's class by its name; loads no network."""


def load(folder: Path | str) -> Fit:
    """Read a saved fit of any method from its folder.

    Raises:
        DataError: A file is missing, cut or of another version.
    """
    return Fit.read(folder, {name: kind.method.load for name, kind in METHODS.items()})
