"""AIM's rounds: choose what the model answers worst, measure it, fit again (McKenna et al. 2022).

**Guarantee**: see method.py. Everything here follows from replies that were paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np

from siloweave.core.model import Measured
from siloweave.federation.expected import CheckedReply
from siloweave.federation.session import Session
from siloweave.methods.aim.messages import SelectQuery
from siloweave.models.estimate import Measurement, fit
from siloweave.models.mrf import MRF
from siloweave.privacy.budget import Budget, marginal_sensitivity, rho_for
from siloweave.progress import Progress, silent
from siloweave.protocols.marginals import require_curator
from siloweave.protocols.secure_sums import Count, ModelMessage, exchange_keys, noisy_sums
from siloweave.protocols.workload import (
    check_capacity,
    expected_l1,
    fitting,
    shortlist,
    weights_of,
    without_costly_sets,
)
from siloweave.tables.codes import Clique, Domain

if TYPE_CHECKING:
    from siloweave.methods.aim.method import AIM

_FLOATS = 1e-9  # relative, of a sum of costs
_CELLS, _MOST = 1 << 19, 4  # of a model for each further choice of a round; choices at most
_SWEEPS = 4  # of a round's fit to a model that is so large
_LEAST = 1.0  # a share of noise is never narrower, see SharedGaussian
LAST = 0.4  # of the shrinkage, in the last fit: no choice follows that its noise could mislead


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

    def choices(self, most: int) -> int:
        """How many of `most` a round makes: after it there is enough left for another."""
        return max(1, min(most, int((self.rho - self.spent) / self.round_cost) - 1))

    def last_if_short(self) -> bool:
        remaining = self.rho - self.spent
        if remaining >= 2 * self.round_cost:
            return False
        self.sigma = max(_LEAST, self.unit * sqrt(1 / (2 * self.share * remaining)))
        self.epsilon = sqrt(8 * (1 - self.share) * remaining)
        return True


def most_rounds(settings: AIM, columns: int, budget: Budget) -> int:
    """Rounds at most: as many as the first is sized for, or more where its noise is the least.

    A share of the budget goes to bins, perhaps; with less noise is wider, and rounds are fewer.
    """
    unit = marginal_sensitivity(budget.neighbours, norm="l2")
    first = _Budget(rho_for(budget), settings.gaussian_share, unit)
    first.start(settings.rounds_per_column * columns)
    return ceil(first.rho / first.round_cost * (1 - _FLOATS))


@dataclass
class _Run:
    session: Session
    domain: Domain
    keys: dict[str, bytes]
    settings: AIM
    measured: list[Measurement] = field(default_factory=list)
    rounds: list[Measured] = field(default_factory=list)

    def measure(self, cliques: Sequence[Clique], sigma: float) -> None:
        request = Count(self.keys, sigma, 0, tuple(cliques))
        tables = noisy_sums(self.session, request, [self.domain.shape(c) for c in cliques]).tables
        self.measured += [Measurement(c, y, sigma) for c, y in zip(cliques, tables, strict=True)]
        self.rounds.append(Measured(tuple(cliques), sigma))

    def fit(self, warm_start: MRF | None, sweeps: int, share: float = 1.0) -> MRF:
        shrinkage = share * self.settings.shrinkage
        return fit(
            self.domain, self.measured, warm_start=warm_start, sweeps=sweeps, shrinkage=shrinkage
        )


def aim(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: AIM,
    *,
    candidates: Sequence[Clique] = (),
    unit: float = 1.0,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Run AIM with one party, the curator; returns the model and what each round measured.

    Args:
        session: A roster of one.
        domain: Attributes and sizes.
        workload: Cliques whose marginals are to be right.
        rho: zCDP that a row pays; every party's ledger is the limit.
        settings: Public settings.
        candidates: Cliques that may be chosen beside those of the workload.
        unit: L2 sensitivity of a marginal under the budget's relation.
        progress: Called with a text and the share that is done.
    """
    require_curator(session, "AIM")
    check_capacity(domain, workload, settings.max_model_mb)
    weights = weights_of(domain, workload, candidates=candidates)
    if settings.chooses:
        weights = without_costly_sets(domain, weights)
    run = _Run(session, domain, exchange_keys(session, domain), settings)
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
    model.forget()
    return run.fit(model, settings.final_sweeps, LAST if settings.chooses else 1.0), run.rounds


def _round(run: _Run, budget: _Budget, weights: dict[Clique, float], model: MRF) -> MRF:
    """Choose, measure and fit; where a fit takes long, several cliques are chosen for it.

    Each choice is a question of its own, charged as the paper's; the model is that of the round.
    """
    allowed = run.settings.max_model_mb * min(1.0, (budget.spent + budget.round_cost) / budget.rho)
    measured, chosen = list(model.potentials), list[Clique]()
    message = ModelMessage.of(model)
    offered, most = weights, 1  # with a workload that is named, AIM is the paper's
    if run.settings.chooses:
        has_target = run.settings.target is not None
        # The first round measured single columns and chose nothing.
        offered = shortlist(weights, measured, len(run.rounds) - 1, has_target=has_target)
        most = min(_MOST, 1 + model.tree.cells // _CELLS)
    for _ in range(budget.choices(most)):
        candidates = fitting(run.domain, offered, measured + chosen, allowed)
        if chosen and not candidates:
            break
        request = SelectQuery(message, tuple(candidates), budget.sigma, budget.epsilon)
        (reply,) = run.session.ask(request)
        checked, last = CheckedReply(run.session.roster[0]), len(candidates) - 1
        chosen.append(candidates[checked.number("index", reply.index.value, least=0, most=last)])
        offered = {q: offered[q] for q in candidates if q != chosen[-1]}
    run.measure(chosen, budget.sigma)
    budget.spent += len(chosen) * budget.round_cost
    sweeps = run.settings.sweeps if most == 1 else min(_SWEEPS, run.settings.sweeps)
    before = [model.marginal(clique) for clique in chosen]
    # Two models' beliefs at once would double the memory of a run.
    model.forget()
    new = run.fit(model, sweeps)
    after = [new.marginal(clique) for clique in chosen]
    moved = sum(float(np.abs(a - b).sum()) for a, b in zip(after, before, strict=True))
    if moved <= sum(expected_l1(budget.sigma, run.domain.size(r)) for r in chosen):
        budget.sigma = max(_LEAST, budget.sigma / 2)
        budget.epsilon *= 2
    return new
