"""What PrivMRF asks of the curator besides counts (Cai et al. 2021); see method.py."""

from __future__ import annotations

from siloweave.federation.messages import Array, Released, Reply, Request
from siloweave.protocols.secure_sums import ModelMessage
from siloweave.tables.codes import Clique


class Distances(Reply, frozen=True):
    """One noisy whole number for each set of columns that was asked about, in rows."""

    rows: Released[Array]


class ScorePairs(Request[Distances], frozen=True, tag="privmrf/score"):
    """Measure with noise how far from independent these pairs of columns are."""

    pairs: tuple[Clique, ...]
    sigma: float


class ModelErrors(Request[Distances], frozen=True, tag="privmrf/errors"):
    """Measure with noise how far this model is from these marginals."""

    model: ModelMessage
    cliques: tuple[Clique, ...]
    sigma: float
