"""Organisations that hold parts of one table weave one synthetic table together.

Nearly everything that a user needs is here; what lies behind a name is loaded when it is first
used.

Example:
    >>> import siloweave as sw
    >>> sw.Budget(epsilon=1.0, delta=1e-5).epsilon
    1.0
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from siloweave.app.report import write_page, write_report
    from siloweave.attacks.attack import attack
    from siloweave.attacks.shadow import shadow_attack
    from siloweave.audit.transcripts import attack_run, invert_run
    from siloweave.core.fit import Fit
    from siloweave.errors import SiloweaveError
    from siloweave.evaluate.scoring import score
    from siloweave.evaluate.workload import tvd, workload_error
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
    from siloweave.methods.fed_tgan.method import (
        MDTGAN,
        FedPointDiff,
        FedTabDDPM,
        FedTGAN,
    )
    from siloweave.methods.flaim.method import FLAIM
    from siloweave.methods.privmrf.method import PrivMRF
    from siloweave.methods.registry import load
    from siloweave.methods.secure_two_round.method import SecureTwoRound
    from siloweave.methods.silofuse.method import E2EDistr, SiloFuse
    from siloweave.methods.two_round.method import TwoRound
    from siloweave.methods.vertigan.method import VertiGAN
    from siloweave.methods.vertimrf.method import VertiMRF
    from siloweave.privacy.budget import Budget, Relation, budget_of_separation
    from siloweave.protocols.alignment import AlignedRows, align_rows
    from siloweave.protocols.scoring import score_parties
    from siloweave.tables.codes import Encoder
    from siloweave.tables.column import Column
    from siloweave.tables.constraints import (
        CategoryRanges,
        ColumnSum,
        Computed,
        FixedCombinations,
        Inequality,
        MissingTogether,
        MissingUnless,
        Unique,
    )
    from siloweave.tables.database import Database
    from siloweave.tables.read import read
    from siloweave.tables.recoding import recode
    from siloweave.tables.schema import Schema
    from siloweave.tables.split import split_columns, split_rows
    from siloweave.tables.table import Table

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
    "CategoryRanges",
    "Column",
    "ColumnSum",
    "Computed",
    "CopulaGAN",
    "DPFedPointDiff",
    "DPFedTGAN",
    "DPFedTabDDPM",
    "DPTabDDPM",
    "Database",
    "DistAIM",
    "E2EDistr",
    "Encoder",
    "FedPointDiff",
    "FedTGAN",
    "FedTabDDPM",
    "Fit",
    "FixedCombinations",
    "GaussianCopula",
    "Inequality",
    "LatentDiff",
    "MissingTogether",
    "MissingUnless",
    "PointDiff",
    "PrivMRF",
    "Relation",
    "Schema",
    "SecureTwoRound",
    "SiloFuse",
    "SiloweaveError",
    "TabDDPM",
    "Table",
    "TwoRound",
    "Unique",
    "VertiGAN",
    "VertiMRF",
    "__version__",
    "align_rows",
    "attack",
    "attack_run",
    "budget_of_separation",
    "invert_run",
    "load",
    "read",
    "recode",
    "score",
    "score_parties",
    "shadow_attack",
    "split_columns",
    "split_rows",
    "tvd",
    "workload_error",
    "write_page",
    "write_report",
]

# The version of this package, as in its metadata.
__version__ = "0.1.0"

_MODULES: dict[str, Callable[[], Any]] = {
    "AlignedRows align_rows": lambda: import_module("siloweave.protocols.alignment"),
    "Budget Relation": lambda: import_module("siloweave.privacy.budget"),
    "Column": lambda: import_module("siloweave.tables.column"),
    "Schema": lambda: import_module("siloweave.tables.schema"),
    "Database": lambda: import_module("siloweave.tables.database"),
    "CategoryRanges ColumnSum Computed FixedCombinations Inequality": lambda: (
        import_module("siloweave.tables.constraints")
    ),
    "MissingTogether MissingUnless Unique": lambda: import_module(
        "siloweave.tables.constraints"
    ),
    "Encoder": lambda: import_module("siloweave.tables.codes"),
    "Fit": lambda: import_module("siloweave.core.fit"),
    "SiloweaveError": lambda: import_module("siloweave.errors"),
    "Table": lambda: import_module("siloweave.tables.table"),
    "read": lambda: import_module("siloweave.tables.read"),
    "recode": lambda: import_module("siloweave.tables.recoding"),
    "attack": lambda: import_module("siloweave.attacks.attack"),
    "attack_run invert_run": lambda: import_module("siloweave.audit.transcripts"),
    "budget_of_separation": lambda: import_module("siloweave.privacy.budget"),
    "score": lambda: import_module("siloweave.evaluate.scoring"),
    "score_parties": lambda: import_module("siloweave.protocols.scoring"),
    "shadow_attack": lambda: import_module("siloweave.attacks.shadow"),
    "split_columns split_rows": lambda: import_module("siloweave.tables.split"),
    "tvd workload_error": lambda: import_module("siloweave.evaluate.workload"),
    "write_page": lambda: import_module("siloweave.app.report"),
    "write_report": lambda: import_module("siloweave.app.report"),
}
_HOME: dict[str, Callable[[], Any]] = {
    name: module for names, module in _MODULES.items() for name in names.split()
}


def _methods() -> Any:
    """Return the module that lists every method; it is loaded at the first use."""
    return import_module("siloweave.methods.registry")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'siloweave' has no attribute {name!r}")
    value = getattr(_HOME[name]() if name in _HOME else _methods(), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
