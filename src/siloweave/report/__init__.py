"""Results and ledgers in, one self-contained page out."""

from siloweave.report.page import render
from siloweave.report.record import (
    Association,
    BudgetTerms,
    LedgerRow,
    Marginal,
    MethodFacts,
    OwnerView,
    PartyCost,
    Phase,
    PublicView,
    Record,
    SchemaFact,
    Visibility,
)

__all__ = [
    "Association",
    "BudgetTerms",
    "LedgerRow",
    "Marginal",
    "MethodFacts",
    "OwnerView",
    "PartyCost",
    "Phase",
    "PublicView",
    "Record",
    "SchemaFact",
    "Visibility",
    "render",
]
