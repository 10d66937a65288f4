"""AIM: adaptive and iterative mechanism for marginals.

McKenna, Mullins, Sheldon & Miklau 2022, "AIM: An adaptive and iterative mechanism for
differentially private synthetic data" (VLDB 15(11)), Algorithm 1 and section 5.

One party, the curator, holds all rows; the same messages run over the same wire as with many.

**Guarantee** (dp): rows, add/remove or replace-one as the curator's budget says, towards everyone
who sees the model, the table or the messages. Every selection (exponential mechanism, range
bounded: rho = epsilon^2 / 8) and every measurement (discrete Gaussian) is charged before it is
drawn. Departures from the paper: noise is discrete; the number of rows is estimated from the
noisy sums and never read; the fit is models/estimate.py instead of mirror descent; under
replace-one the scores' sensitivity is twice what it is under add/remove. Assumed public: domain
(where numbers are cut into bins is paid for before, look.py) and workload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, sqrt

import numpy as np

from siloweave.errors import RosterError, number, whole
from siloweave.federation.expected import CheckedReply
from siloweave.federation.messages import Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.models.estimate import Measurement, fit
from siloweave.models.mrf import MRF
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import l1_score_sensitivity
from siloweave.privacy.events import Exponential
from siloweave.protocols.secure_sums import HANDLERS as SUMS
from siloweave.protocols.secure_sums import (
    ROUNDING,
    Count,
    ModelMessage,
    checked_weights,
    exchange_keys,
    noisy_sums,
    relation_of,
)
from siloweave.protocols.workload import check_capacity, expected_l1, fitting, weights_of
from siloweave.statistics.marginals import marginal
from siloweave.tables.codes import Clique, Codes, Domain

__all__ = ["PARTY", "AIMRound", "AIMSettings", "Choice", "SelectQuery", "aim", "select"]

_LEAST = 1.0  # a share of noise is never narrower, see SharedGaussian


# Messages


class Choice(Reply, frozen=True):
    """Index of the chosen candidate."""

    index: Released[int]


class SelectQuery(Request[Choice], frozen=True, tag="aim/select"):
    """Choose the candidate that the model answers worst, beyond what noise would hide."""

    model: ModelMessage
    candidates: tuple[Clique, ...]
    sigma: float
    epsilon: float


# Party


@lru_cache(maxsize=2)
def unpacked(message: ModelMessage, domain: Domain) -> MRF:
    """The model in a message; parties in one process share it."""
    return message.unpack(domain)


def select(request: SelectQuery, site: Site[Codes]) -> Choice:
    """q_r = w_r (||M_r(D) - M_r(p)||_1 - sqrt(2/pi) sigma n_r), chosen by the exponential mech."""
    weights = checked_weights(request.candidates, request.model, request.sigma, site)
    model = unpacked(request.model, site.rows.domain)
    scores = np.empty(len(weights))
    for i, (r, w) in enumerate(zip(request.candidates, weights, strict=True)):
        if r not in site.memo:
            site.memo[r] = marginal(site.rows, r)
        gap = float(np.abs(site.memo[r] - model.marginal(r)).sum())
        scores[i] = w * (gap - expected_l1(request.sigma, model.domain.size(r)))
    unit = l1_score_sensitivity(relation_of(site))
    sensitivity = max(weights) * unit * (1 + ROUNDING)
    chosen = site.release(
        Exponential(request.epsilon),
        f"choice among {len(scores)} marginals",
        lambda: mechanisms.exponential(
            scores, sensitivity=sensitivity, epsilon=request.epsilon, entropy=site.entropy
        ),
    )
    return Choice(chosen)


# The curator's side: which function answers which request.
PARTY: Handlers = {**SUMS, SelectQuery: select}


# Coordinator


@dataclass(frozen=True)
class AIMSettings:
    """Public settings of AIM.

    Attributes:
        max_model_mb: Bound on the junction tree, at 8 bytes a cell.
        gaussian_share: Share of the budget for measurements; the rest selects.
        rounds_per_column: T_max = 16 d in the paper: the first noise is sized for that many.
        sweeps: Sweeps of each fit.
        final_sweeps: Sweeps of the last.
        shrinkage: Entropy per unit of noise in the fits.
    """

    max_model_mb: float = 80.0
    gaussian_share: float = 0.9
    rounds_per_column: int = 16
    sweeps: int = 10
    final_sweeps: int = 60
    shrinkage: float = 0.5

    def __post_init__(self) -> None:
        number("max_model_mb", self.max_model_mb, 0, inf, "()")
        number("gaussian_share", self.gaussian_share, 0, 1, "()")
        whole("rounds_per_column", self.rounds_per_column, 1)


@dataclass(frozen=True)
class AIMRound:
    """What a round measured; public."""

    cliques: tuple[Clique, ...]
    sigma: float


@dataclass
class _Budget:
    """The zCDP of a run, and the noise of the next round (sections 5.1 and 5.2 of the paper)."""

    rho: float
    share: float
    unit: float
    sigma: float = 0.0
    epsilon: float = 0.0
    spent: float = 0.0

    def start(self, rounds: int) -> None:
        self.sigma = max(_LEAST, self.unit * sqrt(rounds / (2 * self.share * self.rho)))
        self.epsilon = sqrt(8 * (1 - self.share) * self.rho / rounds)

    @property
    def round_cost(self) -> float:
        return self.unit**2 / (2 * self.sigma**2) + self.epsilon**2 / 8

    def last_if_short(self) -> bool:
        left = self.rho - self.spent
        if left >= 2 * self.round_cost:
            return False
        self.sigma = max(_LEAST, self.unit * sqrt(1 / (2 * self.share * left)))
        self.epsilon = sqrt(8 * (1 - self.share) * left)
        return True


@dataclass
class _Run:
    parties: Session
    domain: Domain
    keys: dict[str, bytes]
    settings: AIMSettings
    measured: list[Measurement] = field(default_factory=list)
    rounds: list[AIMRound] = field(default_factory=list)

    def measure(self, cliques: Sequence[Clique], sigma: float) -> None:
        request = Count(self.keys, sigma, 0, tuple(cliques))
        tables = noisy_sums(self.parties, request, [self.domain.shape(c) for c in cliques])
        self.measured += [Measurement(c, y, sigma) for c, y in zip(cliques, tables, strict=True)]
        self.rounds.append(AIMRound(tuple(cliques), sigma))

    def fit(self, warm_start: MRF | None, sweeps: int) -> MRF:
        return fit(
            self.domain,
            self.measured,
            warm_start=warm_start,
            sweeps=sweeps,
            shrinkage=self.settings.shrinkage,
        )


def aim(
    parties: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: AIMSettings,
    *,
    unit: float = 1.0,
    progress: Callable[[str, float], None] = lambda text, done: None,
) -> tuple[MRF, list[AIMRound]]:
    """Run AIM over one party.

    Args:
        parties: A roster of one, the curator.
        domain: Attributes and sizes.
        workload: Cliques whose marginals shall be right.
        rho: zCDP to spend; the curator's ledger has the last word.
        settings: Public settings.
        unit: L2 sensitivity of a marginal under the curator's relation.
        progress: Called with a text and the share of the budget that is spent.

    Returns:
        The model and what each round measured.
    """
    if len(parties.roster) != 1:
        raise RosterError(
            f"AIM runs at one curator; the roster has {len(parties.roster)} parties. Use FLAIM"
        )
    check_capacity(domain, workload, settings.max_model_mb)
    weights = weights_of(domain, workload)
    run = _Run(parties, domain, exchange_keys(parties, domain), settings)
    budget = _Budget(rho, settings.gaussian_share, unit)
    budget.start(settings.rounds_per_column * len(domain.names))
    first = [r for r in weights if len(r) == 1]
    run.measure(first, budget.sigma)
    budget.spent = len(first) * unit**2 / (2 * budget.sigma**2)
    model = run.fit(None, settings.sweeps)
    last = False
    while not last:
        last = budget.last_if_short()
        progress("measuring", budget.spent / rho)
        model = _round(run, budget, weights, model)
    return run.fit(model, settings.final_sweeps), run.rounds


def _round(run: _Run, budget: _Budget, weights: dict[Clique, float], model: MRF) -> MRF:
    allowed = run.settings.max_model_mb * min(1.0, (budget.spent + budget.round_cost) / budget.rho)
    measured = list(model.potentials)
    candidates = fitting(run.domain, weights, measured, allowed)
    request = SelectQuery(
        ModelMessage.of(model),
        tuple(candidates),
        budget.sigma,
        budget.epsilon,
    )
    (reply,) = run.parties.ask(request)
    said, last = CheckedReply(run.parties.roster[0]), len(candidates) - 1
    r = candidates[said.number("index", reply.index.value, least=0, most=last)]
    run.measure([r], budget.sigma)
    budget.spent += budget.round_cost
    new = run.fit(model, run.settings.sweeps)
    moved = float(np.abs(new.marginal(r) - model.marginal(r)).sum())
    if moved <= expected_l1(budget.sigma, run.domain.size(r)):
        budget.sigma = max(_LEAST, budget.sigma / 2)
        budget.epsilon *= 2
    return new
