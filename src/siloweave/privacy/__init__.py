"""What privacy costs and how it is kept: budgets, events, the ledger, and the only noise there is.

Knows no table, no model and no network.
"""

from siloweave.privacy import accountants, mechanisms
from siloweave.privacy.budget import (
    Budget,
    Relation,
    l1_score_sensitivity,
    marginal_sensitivity,
    size_sensitivity,
)
from siloweave.privacy.events import (
    Event,
    Exponential,
    Gaussian,
    Laplace,
    NonPrivate,
    RandomisedResponse,
    SampledSharedGaussian,
    SharedGaussian,
    ThresholdGaussian,
)
from siloweave.privacy.ledger import Entry, Ledger
from siloweave.privacy.mechanisms import Entropy, OSEntropy, SeededEntropy

__all__ = [
    "Budget",
    "Entropy",
    "Entry",
    "Event",
    "Exponential",
    "Gaussian",
    "Laplace",
    "Ledger",
    "NonPrivate",
    "OSEntropy",
    "RandomisedResponse",
    "Relation",
    "SampledSharedGaussian",
    "SeededEntropy",
    "SharedGaussian",
    "ThresholdGaussian",
    "accountants",
    "l1_score_sensitivity",
    "marginal_sensitivity",
    "mechanisms",
    "size_sensitivity",
]
