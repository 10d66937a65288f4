"""Two rounds of marginals with a plan between them: what TwoRound and its like share.

1. Measure every one- and two-way marginal of the workload's closure, all with the same noise, for
   `pairs_share` of the budget.
2. Plan: add, one by one, the pair that would improve the workload most beyond the noise it would be
   measured with, while the model stays small (McKenna, Mullins, Sheldon & Miklau 2022, AIM, 4.1:
   weights and score).
3. Measure the planned marginals once, with the rest: sigma_q proportional to (w_q n_q)^(-1/3),
   which minimises sum_q w_q n_q sigma_q under sum_q unit^2 / (2 sigma_q^2) = rho.
4. Fit both rounds together.

How a method measures is its own: over masked sums, or over columns of several parties.

**Guarantee**: none of its own. Whoever measures pays; plan and fit read noisy counts only
(post-processing). Assumed public: domain, workload, which marginals can be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias

import numpy as np

from siloweave.core.fit import Measured
from siloweave.errors import number
from siloweave.models.estimate import Measurement, block_step, fit
from siloweave.models.junction_tree import tree_cells
from siloweave.models.mrf import MRF
from siloweave.progress import Progress, silent
from siloweave.protocols.marginals import MarginalSettings
from siloweave.protocols.workload import check_capacity, expected_l1, weights_of
from siloweave.tables.codes import Clique, Domain

_CELL_BYTES = 8

Measure: TypeAlias = Callable[[Sequence[Clique], Sequence[float], float], list[Measurement]]
"""(cliques, sigmas, rho): measure each clique with the sigma wanted, a row paying rho for all."""


@dataclass(frozen=True)
class TwoRoundSettings(MarginalSettings):
    """Settings of every method that measures in two rounds.

    Attributes:
        pairs_share: Share of the budget for the first round, all pairs.
        plan_sweeps, final_sweeps, shrinkage: Of the fits, see models/estimate.py.
    """

    pairs_share: float = 0.3
    plan_sweeps: int = 1
    final_sweeps: int = 60
    shrinkage: float = 1.0

    def __post_init__(self) -> None:
        number("pairs_share", self.pairs_share, 0, 1, "()")


def plan_and_fit(
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: TwoRoundSettings,
    measure: Measure,
    *,
    unit: float = 1.0,
    allowed: Callable[[Clique], bool] = lambda clique: True,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Run both rounds; returns the model and what each round measured.

    Args:
        domain: Attributes and sizes.
        workload: Cliques whose marginals are to be right.
        rho: zCDP that a row pays for both rounds.
        settings: Public settings.
        measure: (cliques, sigmas, rho) -> a measurement of each clique, in this order. The sigmas
            are such that sum unit^2 / (2 sigma^2) = rho of the round.
        unit: L2 sensitivity of a marginal under the budget's relation.
        allowed: Which cliques `measure` can measure.
        progress: Called with a text and the share that is done.

    Raises:
        CapacityError: A query does not fit the model.
    """
    check_capacity(domain, workload, settings.max_model_mb)
    weights = weights_of(domain, workload)
    progress("counting all pairs", 0.0)
    small = [q for q in weights if len(q) <= 2 and allowed(q)]
    spent = settings.pairs_share * rho
    pairs = measure(small, noise_levels([1.0] * len(small), spent, unit), spent)
    rest = (1 - settings.pairs_share) * rho
    chosen = plan(domain, weights, pairs, rest / unit**2, settings, progress=progress)
    shares = [(weights[q] * domain.size(q)) ** (1 / 3) for q in chosen]
    progress("measuring what was planned", 0.8)
    seen = set(chosen)
    measured = measure(chosen, noise_levels(shares, rest, unit), rest)
    rounds = _recorded(pairs) + _recorded(measured)
    measured = measured + [m for m in pairs if len(m.clique) == 1 or m.clique in seen]
    progress("fitting", 0.9)
    model = fit(domain, measured, sweeps=settings.final_sweeps, shrinkage=settings.shrinkage)
    return model, rounds


def noise_levels(shares: Sequence[float], rho: float, unit: float = 1.0) -> list[float]:
    """Standard deviations in proportion to 1 / share, so that a row pays `rho` for all tables.

    Example:
        >>> noise_levels([1.0, 2.0], 0.5)
        [2.23606797749979, 1.118033988749895]
    """
    width = unit * sqrt(sum(s * s for s in shares) / (2 * rho))
    return [width / s for s in shares]


def _recorded(measured: Sequence[Measurement]) -> list[Measured]:
    """What a round measured, grouped by noise, the widest first."""
    return [
        Measured(tuple(m.clique for m in measured if m.sigma == sigma), sigma)
        for sigma in sorted({m.sigma for m in measured}, reverse=True)
    ]


def plan(
    domain: Domain,
    weights: Mapping[Clique, float],
    pairs: Sequence[Measurement],
    rho: float,
    settings: TwoRoundSettings,
    *,
    progress: Progress = silent,
) -> list[Clique]:
    """Choose what to measure in the second round, by rehearsing it with the first one's answers.

    **Guarantee**: reads noisy counts only, so it costs nothing (post-processing).

    Args:
        domain: Attributes and sizes.
        weights: Of every clique of the closure.
        pairs: Noisy one- and two-way marginals of the closure, all of them.
        rho: zCDP of the second round, in units of a marginal's sensitivity.
        settings: Public settings.
        progress: Called with a text and the share of the work that is done.

    Returns:
        Pairs, the most useful first, then every one-way that no pair contains.
    """
    rehearsal = _Rehearsal(domain, weights, pairs, rho, settings)
    while rehearsal.step():
        progress("planning", 0.1 + 0.7 * rehearsal.done)
    covered = {a for q in rehearsal.chosen for a in q}
    lone = [m.clique for m in pairs if len(m.clique) == 1 and m.clique[0] not in covered]
    return [*rehearsal.chosen, *lone]


class _Rehearsal:
    def __init__(
        self,
        domain: Domain,
        weights: Mapping[Clique, float],
        pairs: Sequence[Measurement],
        rho: float,
        settings: TwoRoundSettings,
    ) -> None:
        self.domain, self.weights, self.rho, self.settings = domain, weights, rho, settings
        self.limit = settings.max_model_mb * 1e6 / _CELL_BYTES
        self.answers = [m for m in pairs if len(m.clique) == 1]
        self.open: dict[Clique, Measurement] = {m.clique: m for m in pairs if len(m.clique) == 2}
        self.chosen: list[Clique] = []
        self.model = self._fit(None)
        self.scores: dict[Clique, float] = {q: self._score(q) for q in self.open}

    @property
    def done(self) -> float:
        """Share of the pairs that are settled."""
        return 1 - len(self.open) / max(1, len(self.open) + len(self.chosen))

    def step(self) -> bool:
        """Add the pair that improves most; False where no pair does."""
        best = self._best()
        if best is None:
            return False
        self.chosen.append(best)
        self.answers.append(self.open.pop(best))
        self.model = self._fit(self.model)
        del self.scores[best]
        return True

    def _fit(self, start: MRF | None) -> MRF:
        sweeps, shrinkage = self.settings.plan_sweeps, self.settings.shrinkage
        return fit(self.domain, self.answers, warm_start=start, sweeps=sweeps, shrinkage=shrinkage)

    def _score(self, q: Clique) -> float:
        """w_q times (how far the answer moves the marginal, minus the noise it would bring).

        What the first answer's own noise moves is not subtracted: that would plan fewer pairs, and
        the missing ones cost more than the noise that they would have brought.
        """
        now = self.model.marginal(q)
        moved = block_step(self.model, self.open[q], shrinkage=self.settings.shrinkage)
        sigma = sqrt((len(self.chosen) + 1) / (2 * self.rho))
        noise = float(np.minimum(expected_l1(sigma, 1), now).sum())
        return self.weights[q] * (float(np.abs(moved - now).sum()) - noise)

    def _best(self) -> Clique | None:
        """The best pair that fits; scores mostly fall, so only the highest are computed again."""
        fresh: set[Clique] = set()
        while self.scores:
            top = max(self.scores, key=self.scores.__getitem__)
            if self.scores[top] <= 0:
                return None
            if tree_cells(self.domain, [*self.chosen, top]) > self.limit:
                del self.scores[top], self.open[top]
            elif top in fresh:
                return top
            else:
                self.scores[top] = self._score(top)
                fresh.add(top)
        return None
