"""Every central generator by name, and reading a fit of any kind.

Sources: Patki, Wedge & Veeramachaneni 2016 (copulas.py); Xu et al. 2019 and others (gans.py);
Kotelnikov et al. 2023, Shankar et al. 2024 and Zhu et al. 2024 (diffusions.py).

**Guarantee**: none, see central.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from siloweave.algorithms.central import CentralGenerator
from siloweave.algorithms.copulas import GaussianCopula
from siloweave.algorithms.diffusions import E2E, TLDM, LatentDiff, PointDiff, TabDDPM
from siloweave.algorithms.fitted import Fitted
from siloweave.algorithms.gans import ADSGAN, CTABGAN, CTGAN, CopulaGAN
from siloweave.algorithms.generated import Generated, read_generated
from siloweave.algorithms.visibility import by_name
from siloweave.algorithms.woven import COLUMNS, read_woven

__all__ = [
    "ADSGAN",
    "CTABGAN",
    "CTGAN",
    "E2E",
    "GENERATORS",
    "TLDM",
    "CopulaGAN",
    "GaussianCopula",
    "LatentDiff",
    "PointDiff",
    "TabDDPM",
    "load",
]

_KINDS: tuple[type[CentralGenerator], ...] = (
    *(GaussianCopula, CopulaGAN, CTGAN, ADSGAN, CTABGAN),
    *(TabDDPM, LatentDiff, TLDM, E2E, PointDiff),
)
GENERATORS: Mapping[str, type[CentralGenerator]] = by_name(*_KINDS)
"""Every central generator by its name."""


def load(folder: Path | str) -> Fitted | Generated:
    """Read a fit of any kind that `save` wrote.

    Raises:
        DataError: A file is missing, cut or of another version.
    """
    from siloweave.algorithms.column_methods import COLUMN_METHODS
    from siloweave.algorithms.private_generators import PRIVATE_GENERATORS
    from siloweave.algorithms.private_rows_split import PRIVATE_ROW_METHODS
    from siloweave.algorithms.row_methods import ROW_METHODS

    if (Path(folder) / COLUMNS).is_file():
        return read_woven(folder, COLUMN_METHODS)
    if (Path(folder) / "generated.json").is_file():
        models = {name: kind.load for name, kind in GENERATORS.items()}
        models |= {name: kind.load for name, kind in PRIVATE_GENERATORS.items()}
        models |= {name: kind.load for name, kind in ROW_METHODS.items()}
        models |= {name: kind.load for name, kind in PRIVATE_ROW_METHODS.items()}
        return read_generated(folder, models)
    return Fitted.load(folder)
