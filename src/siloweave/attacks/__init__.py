"""Tables in, risks with intervals out: what an attacker gains from a synthetic table.

Every number here is computed from real rows and nobody pays for it: it is the owner's to see, not
to publish.
"""

from siloweave.attacks.attack import ATTACKS, attack
from siloweave.attacks.rates import AboveAll, Operating, Rate, Risk, Roc, ThresholdRisk
from siloweave.attacks.results import (
    ClosestRecords,
    Copies,
    Histogram,
    Membership,
    RiskPart,
    Risks,
    WorstRecord,
)

__all__ = [
    "ATTACKS",
    "AboveAll",
    "ClosestRecords",
    "Copies",
    "Histogram",
    "Membership",
    "Operating",
    "Rate",
    "Risk",
    "RiskPart",
    "Risks",
    "Roc",
    "ThresholdRisk",
    "WorstRecord",
    "attack",
]
