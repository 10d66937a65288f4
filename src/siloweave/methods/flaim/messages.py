"""What FLAIM asks of its parties (Maddock, Cormode & Maple 2024, Algorithm 1); see method.py."""

from __future__ import annotations

import msgspec

from siloweave.federation.messages import Array, Released, Reply, Request
from siloweave.protocols.secure_sums import Cohort, ModelMessage
from siloweave.tables.codes import Clique


class Chosen(Reply, frozen=True):
    """Indices of the candidates that a party chose, one per local step."""

    indices: tuple[Released[int], ...]


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares of rows that a party's skew is measured against, one table per clique.

    One-way tables (AugFLAIM Private: M~), or the whole closure (AugFLAIM Oracle: M(D) / N).
    """

    cliques: tuple[Clique, ...]
    tables: tuple[Array, ...]


class Select(Request[Chosen], frozen=True, tag="flaim/select"):
    """Choose one query per local step; `baseline` None is NaiveFLAIM."""

    model: ModelMessage
    candidates: tuple[Clique, ...]
    baseline: Baseline | None
    sigma: float
    epsilon: float
    size_sigma: float
    steps: int


class MeasureQueries(Cohort, frozen=True, tag="flaim/measure"):
    """Count those of the queries that you chose in the step before; zeros for the rest."""

    queries: tuple[Clique, ...]
