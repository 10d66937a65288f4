"""Organisations that hold parts of one table weave one synthetic table together.

Nearly everything that a user needs is here; what lies behind a name is loaded when it is first
used.

Example:
    >>> import siloweave as sw
    >>> sw.Budget(epsilon=1.0, delta=1e-5).epsilon
    1.0
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from siloweave.algorithms.align_rows import AlignedRows, align_rows
    from siloweave.algorithms.copulas import GaussianCopula
    from siloweave.algorithms.diffusions import E2E, TLDM, LatentDiff, PointDiff, TabDDPM
    from siloweave.algorithms.end_to_end_rounds import E2EDistr
    from siloweave.algorithms.fitted import Fitted
    from siloweave.algorithms.gans import ADSGAN, CTABGAN, CTGAN, CopulaGAN
    from siloweave.algorithms.generated import Generated
    from siloweave.algorithms.latent_methods import SiloFuse
    from siloweave.algorithms.md_tgan import MDTGAN
    from siloweave.algorithms.private_generators import DPCTGAN, DPTLDM, DPTabDDPM
    from siloweave.algorithms.private_rows_split import DPFedPointDiff, DPFedTabDDPM, DPFedTGAN
    from siloweave.algorithms.registry import load
    from siloweave.algorithms.rows_split import FedPointDiff, FedTabDDPM, FedTGAN
    from siloweave.algorithms.synthesizers import AIM, FLAIM, TwoRound
    from siloweave.algorithms.vertigan_method import VertiGAN
    from siloweave.app.pages import write_page
    from siloweave.attacks.attack import attack
    from siloweave.attacks.shadow import shadow_attack
    from siloweave.audit.transcripts import attack_run, invert_run
    from siloweave.errors import SiloweaveError
    from siloweave.evaluate.scoring import score
    from siloweave.evaluate.workload import tvd, workload_error
    from siloweave.privacy.budget import Budget, Relation
    from siloweave.privacy.calibrate import budget_of_separation
    from siloweave.protocols.scoring import score_parties
    from siloweave.tables.codes import Encoder
    from siloweave.tables.read import Table, read
    from siloweave.tables.schema import Column, Schema
    from siloweave.tables.split import split_columns, split_rows

__all__ = [
    "ADSGAN",
    "AIM",
    "CTABGAN",
    "CTGAN",
    "DPCTGAN",
    "DPTLDM",
    "E2E",
    "FLAIM",
    "MDTGAN",
    "TLDM",
    "AlignedRows",
    "Budget",
    "Column",
    "CopulaGAN",
    "DPFedPointDiff",
    "DPFedTGAN",
    "DPFedTabDDPM",
    "DPTabDDPM",
    "E2EDistr",
    "Encoder",
    "FedPointDiff",
    "FedTGAN",
    "FedTabDDPM",
    "Fitted",
    "GaussianCopula",
    "Generated",
    "LatentDiff",
    "PointDiff",
    "Relation",
    "Schema",
    "SiloFuse",
    "SiloweaveError",
    "TabDDPM",
    "Table",
    "TwoRound",
    "VertiGAN",
    "__version__",
    "align_rows",
    "attack",
    "attack_run",
    "budget_of_separation",
    "invert_run",
    "load",
    "read",
    "score",
    "score_parties",
    "shadow_attack",
    "split_columns",
    "split_rows",
    "tvd",
    "workload_error",
    "write_page",
]

# The version of this package, as in its metadata.
__version__ = "0.1.0"

_HOME = {
    "DPCTGAN": lambda: import_module("siloweave.algorithms.private_generators"),
    "DPTLDM": lambda: import_module("siloweave.algorithms.private_generators"),
    "DPFedPointDiff": lambda: import_module("siloweave.algorithms.private_rows_split"),
    "DPFedTGAN": lambda: import_module("siloweave.algorithms.private_rows_split"),
    "DPFedTabDDPM": lambda: import_module("siloweave.algorithms.private_rows_split"),
    "DPTabDDPM": lambda: import_module("siloweave.algorithms.private_generators"),
    "ADSGAN": lambda: import_module("siloweave.algorithms.gans"),
    "AIM": lambda: import_module("siloweave.algorithms.synthesizers"),
    "CTABGAN": lambda: import_module("siloweave.algorithms.gans"),
    "CTGAN": lambda: import_module("siloweave.algorithms.gans"),
    "E2E": lambda: import_module("siloweave.algorithms.diffusions"),
    "E2EDistr": lambda: import_module("siloweave.algorithms.end_to_end_rounds"),
    "FLAIM": lambda: import_module("siloweave.algorithms.synthesizers"),
    "TLDM": lambda: import_module("siloweave.algorithms.diffusions"),
    "Budget": lambda: import_module("siloweave.privacy.budget"),
    "Column": lambda: import_module("siloweave.tables.schema"),
    "CopulaGAN": lambda: import_module("siloweave.algorithms.gans"),
    "Encoder": lambda: import_module("siloweave.tables.codes"),
    "FedPointDiff": lambda: import_module("siloweave.algorithms.rows_split"),
    "FedTGAN": lambda: import_module("siloweave.algorithms.rows_split"),
    "FedTabDDPM": lambda: import_module("siloweave.algorithms.rows_split"),
    "Fitted": lambda: import_module("siloweave.algorithms.fitted"),
    "GaussianCopula": lambda: import_module("siloweave.algorithms.copulas"),
    "Generated": lambda: import_module("siloweave.algorithms.generated"),
    "LatentDiff": lambda: import_module("siloweave.algorithms.diffusions"),
    "MDTGAN": lambda: import_module("siloweave.algorithms.md_tgan"),
    "PointDiff": lambda: import_module("siloweave.algorithms.diffusions"),
    "Relation": lambda: import_module("siloweave.privacy.budget"),
    "Schema": lambda: import_module("siloweave.tables.schema"),
    "SiloFuse": lambda: import_module("siloweave.algorithms.latent_methods"),
    "SiloweaveError": lambda: import_module("siloweave.errors"),
    "TabDDPM": lambda: import_module("siloweave.algorithms.diffusions"),
    "Table": lambda: import_module("siloweave.tables.read"),
    "TwoRound": lambda: import_module("siloweave.algorithms.synthesizers"),
    "VertiGAN": lambda: import_module("siloweave.algorithms.vertigan_method"),
    "AlignedRows": lambda: import_module("siloweave.algorithms.align_rows"),
    "align_rows": lambda: import_module("siloweave.algorithms.align_rows"),
    "attack": lambda: import_module("siloweave.attacks.attack"),
    "attack_run": lambda: import_module("siloweave.audit.transcripts"),
    "budget_of_separation": lambda: import_module("siloweave.privacy.calibrate"),
    "invert_run": lambda: import_module("siloweave.audit.transcripts"),
    "load": lambda: import_module("siloweave.algorithms.registry"),
    "read": lambda: import_module("siloweave.tables.read"),
    "score": lambda: import_module("siloweave.evaluate.scoring"),
    "score_parties": lambda: import_module("siloweave.protocols.scoring"),
    "shadow_attack": lambda: import_module("siloweave.attacks.shadow"),
    "split_columns": lambda: import_module("siloweave.tables.split"),
    "split_rows": lambda: import_module("siloweave.tables.split"),
    "tvd": lambda: import_module("siloweave.evaluate.workload"),
    "workload_error": lambda: import_module("siloweave.evaluate.workload"),
    "write_page": lambda: import_module("siloweave.app.pages"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'siloweave' has no attribute {name!r}")
    value = getattr(_HOME[name](), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
