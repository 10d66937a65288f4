"""What AIM asks of the curator besides counts (McKenna et al. 2022); see method.py."""

from __future__ import annotations

from siloweave.federation.messages import Released, Reply, Request
from siloweave.protocols.secure_sums import ModelMessage
from siloweave.tables.codes import Clique


class Choice(Reply, frozen=True):
    """Index of the chosen candidate."""

    index: Released[int]


class SelectQuery(Request[Choice], frozen=True, tag="aim/select"):
    """Choose the candidate that the model answers worst, beyond what noise would hide."""

    model: ModelMessage
    candidates: tuple[Clique, ...]
    sigma: float
    epsilon: float
