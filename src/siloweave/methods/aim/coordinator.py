"""AIM's rounds: choose what the model answers worst, measure it, fit again (McKenna et al. 2022).

**Guarantee**: see method.py. Everything here follows from replies that were paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt

import numpy as np

from siloweave.core.model import Measured
from siloweave.federation.expected import CheckedReply
from siloweave.federation.session import Session
from siloweave.methods.aim.messages import SelectQuery
from siloweave.methods.aim.settings import AIMSettings
from siloweave.models.estimate import Measurement, fit
from siloweave.models.mrf import MRF
from siloweave.privacy.budget import Budget, marginal_sensitivity, rho_for
from siloweave.progress import Progress, silent
from siloweave.protocols import secure_sums, workloads
from siloweave.protocols.marginals import require_curator
from siloweave.tables.codes import Clique, Domain

_FLOATS = 1e-9  # relative, of a sum of costs
_CELLS = 1 << 19  # of a model for each further choice of a round
_MOST = 4  # choices of a round
_SWEEPS = 4  # of a round's fit to a model that is so large
_LEAST = 1.0  # a share of noise is never narrower, see SharedGaussian
# Of the shrinkage, in the last fit: no choice follows that its noise could mislead.
LAST = 0.4


@dataclass
class _Budget:
    """The zCDP of a run, and the noise of the next round (sections 5.1 and 5.2 of the paper).

    Attributes:
        rho: Of the whole run.
        share: Of a round's cost, for its measurement; the rest is for its choice.
        unit: L2 sensitivity of a marginal.
        sigma: Noise of the next measurement.
        epsilon: Of the next choice.
        spent: zCDP of all rounds so far.
    """

    rho: float
    share: float
    unit: float
    sigma: float = 0.0
    epsilon: float = 0.0
    spent: float = 0.0

    def start(self, rounds: int) -> None:
        """Size the noise of the first round for so many rounds."""
        self.sigma = max(_LEAST, self.unit * sqrt(rounds / (2 * self.share * self.rho)))
        self.epsilon = sqrt(8 * (1 - self.share) * self.rho / rounds)

    @property
    def round_cost(self) -> float:
        """The zCDP of a round: a Gaussian measurement and an exponential choice."""
        return self.unit**2 / (2 * self.sigma**2) + self.epsilon**2 / 8

    def choices(self, most: int) -> int:
        """Return how many cliques, up to `most`, a round may choose and leave another round."""
        affordable = int((self.rho - self.spent) / self.round_cost) - 1
        return max(1, min(most, affordable))

    def last_if_short(self) -> bool:
        """Spend all that remains on the next round, if it does not suffice for two.

        Returns whether this is the last round.
        """
        remaining = self.rho - self.spent
        if remaining >= 2 * self.round_cost:
            return False
        self.sigma = max(_LEAST, self.unit * sqrt(1 / (2 * self.share * remaining)))
        self.epsilon = sqrt(8 * (1 - self.share) * remaining)
        return True

    def halve_noise(self) -> None:
        """Measure and choose with half the noise from now on."""
        self.sigma = max(_LEAST, self.sigma / 2)
        self.epsilon *= 2


def most_rounds(settings: AIMSettings, columns: int, budget: Budget) -> int:
    """Return the largest number of rounds.

    As many as the first is sized for, or more where its noise is the least. A share of the budget
    goes to bins, perhaps; with less noise is wider, and rounds are fewer.
    """
    unit = marginal_sensitivity(budget.neighbours, norm="l2")
    run_budget = _Budget(rho_for(budget), settings.gaussian_share, unit)
    run_budget.start(settings.rounds_per_column * columns)
    return ceil(run_budget.rho / run_budget.round_cost * (1 - _FLOATS))


@dataclass
class _Run:
    """The measurements of a run so far, and how it measures and fits."""

    session: Session
    domain: Domain
    keys: dict[str, bytes]
    settings: AIMSettings
    measured: list[Measurement] = field(default_factory=list)
    rounds: list[Measured] = field(default_factory=list)

    def measure(self, cliques: Sequence[Clique], sigma: float) -> None:
        """Count marginals with noise, all in one sum."""
        request = secure_sums.Count(self.keys, sigma, 0, tuple(cliques))
        shapes = [self.domain.shape(clique) for clique in cliques]
        tables = secure_sums.noisy_sums(self.session, request, shapes).tables
        for clique, table in zip(cliques, tables, strict=True):
            self.measured.append(Measurement(clique, table, sigma))
        self.rounds.append(Measured(tuple(cliques), sigma))

    def fit(self, warm_start: MRF | None, sweeps: int, share: float = 1.0) -> MRF:
        """Fit a model to all measurements, with a `share` of the usual shrinkage."""
        shrinkage = share * self.settings.shrinkage
        return fit(
            self.domain,
            self.measured,
            warm_start=warm_start,
            sweeps=sweeps,
            shrinkage=shrinkage,
        )


def aim(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: AIMSettings,
    *,
    candidates: Sequence[Clique] = (),
    unit: float = 1.0,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Run AIM with one party, the curator; return the model and what each round measured.

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
    workloads.check_capacity(domain, workload, settings.max_model_mb)
    weights = workloads.weights_of(domain, workload, candidates=candidates)
    if settings.chooses:
        weights = workloads.without_costly_sets(domain, weights)
    run = _Run(session, domain, secure_sums.exchange_keys(session, domain), settings)
    budget = _Budget(rho, settings.gaussian_share, unit)
    budget.start(settings.rounds_per_column * len(domain.names))

    # Initialise: measure all single columns, without a choice.
    columns = [clique for clique in weights if len(clique) == 1]
    run.measure(columns, budget.sigma)
    budget.spent = len(columns) * unit**2 / (2 * budget.sigma**2)
    model = run.fit(None, settings.sweeps)

    # Choose and measure until the budget is spent.
    is_last = False
    while not is_last:
        is_last = budget.last_if_short()
        progress("measuring", budget.spent / rho)
        model = _round(run, budget, weights, model)

    # The last fit starts from the model; its beliefs would take memory for nothing.
    model.forget()
    share = LAST if settings.chooses else 1.0
    return run.fit(model, settings.final_sweeps, share), run.rounds


def _round(run: _Run, budget: _Budget, weights: dict[Clique, float], model: MRF) -> MRF:
    """Choose, measure and fit once; where a fit takes long, choose several cliques for it.

    Each choice is a question of its own, charged as the paper's; the model is that of the round.
    """
    most_choices = 1  # with a workload that is named, AIM is the paper's
    if run.settings.chooses:
        most_choices = min(_MOST, 1 + model.tree.cells // _CELLS)
    chosen = _choose(run, budget, weights, model, budget.choices(most_choices))

    # Measure what was chosen; the choices are paid for with it.
    run.measure(chosen, budget.sigma)
    budget.spent += len(chosen) * budget.round_cost

    before = [model.marginal(clique) for clique in chosen]
    # Two models' beliefs at once would double the memory of a run.
    model.forget()
    sweeps = run.settings.sweeps
    if most_choices > 1:
        sweeps = min(_SWEEPS, sweeps)
    new_model = run.fit(model, sweeps)

    # Anneal: where the model moved no more than noise would move it, noise is halved.
    after = [new_model.marginal(clique) for clique in chosen]
    change = sum(float(np.abs(a - b).sum()) for a, b in zip(after, before, strict=True))
    sizes = [run.domain.size(clique) for clique in chosen]
    if change <= sum(workloads.expected_l1(budget.sigma, size) for size in sizes):
        budget.halve_noise()
    return new_model


def _choose(
    run: _Run, budget: _Budget, weights: dict[Clique, float], model: MRF, most: int
) -> list[Clique]:
    """Have the curator choose cliques that the model answers badly, one after the other."""
    measured = list(model.potentials)
    offered = weights
    if run.settings.chooses:
        has_target = run.settings.target is not None
        # The first round measured single columns and chose nothing.
        turn = len(run.rounds) - 1
        offered = workloads.shortlist(weights, measured, turn, has_target=has_target)

    # The model may take the share of its memory that the budget has reached.
    budget_share = (budget.spent + budget.round_cost) / budget.rho
    megabytes = run.settings.max_model_mb * min(1.0, budget_share)
    message = secure_sums.ModelMessage.of(model)
    chosen: list[Clique] = []
    for _ in range(most):
        candidates = workloads.fitting(
            run.domain, offered, measured + chosen, megabytes
        )
        if chosen and not candidates:
            break
        request = SelectQuery(message, tuple(candidates), budget.sigma, budget.epsilon)
        (reply,) = run.session.ask(request)
        # The index comes from a party: a number out of range would choose another clique.
        curator = CheckedReply(run.session.roster[0])
        last = len(candidates) - 1
        index = curator.number("index", reply.index.value, least=0, most=last)
        choice = candidates[index]
        chosen.append(choice)
        offered = {clique: offered[clique] for clique in candidates if clique != choice}
    return chosen
