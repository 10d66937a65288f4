"""TwoRound's two sums and the plan between them; method.py says what it takes from whom.

Maddock, Cormode & Maple 2024 (FLAIM); McKenna, Mullins, Sheldon & Miklau 2022 (AIM).

**Guarantee**: see method.py. The plan is computed from noisy counts (post-processing).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from siloweave.core.fit import Measured
from siloweave.core.method import Result, Task
from siloweave.federation.session import Session
from siloweave.models.estimate import Measurement, block_step, fit
from siloweave.models.junction_tree import tree_cells
from siloweave.models.mrf import MRF
from siloweave.protocols.marginals import marginal_result
from siloweave.protocols.secure_sums import Count, SumNoise, exchange_keys, noisy_marginals
from siloweave.protocols.workload import check_capacity, expected_l1, weights_of
from siloweave.tables.codes import Clique, Domain

if TYPE_CHECKING:
    from siloweave.methods.two_round.method import TwoRound

_FINEST = 16  # most often that a table is counted in the second sum

_CELL_BYTES = 8


@dataclass
class _Run:
    session: Session
    domain: Domain
    settings: TwoRound
    unit: float
    keys: dict[str, bytes]
    rounds: list[Measured]

    def measure(
        self, cliques: Sequence[Clique], times: Sequence[int], rho: float
    ) -> list[Measurement]:
        """Count cliques over everyone, so that a row pays `rho` for all of them."""
        width = self.unit * sqrt(sum(k * k for k in times) / (2 * rho))
        noise = SumNoise(width, self.settings.tolerated)
        sums, sigma = noisy_marginals(
            self.session, self.keys, self.domain, cliques, noise, Count, tuple(times)
        )
        for k in sorted(set(times)):
            same = tuple(c for c, n in zip(cliques, times, strict=True) if n == k)
            self.rounds.append(Measured(same, sigma / k))
        return [
            Measurement(c, y / k, sigma / k) for c, y, k in zip(cliques, sums, times, strict=True)
        ]


def two_round(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: TwoRound,
    *,
    unit: float = 1.0,
    progress: Callable[[str, float], None] = lambda text, done: None,
) -> tuple[MRF, list[Measured]]:
    """Run both rounds, over one party or many; returns the model and what each round measured.

    Arguments are those of `aim` (methods/aim/coordinator.py).
    """
    check_capacity(domain, workload, settings.max_model_mb)
    weights = weights_of(domain, workload)
    run = _Run(session, domain, settings, unit, exchange_keys(session, domain), [])
    progress("counting all pairs", 0.0)
    small = [q for q in weights if len(q) <= 2]
    pairs = run.measure(small, [1] * len(small), settings.pairs_share * rho)
    rest = (1 - settings.pairs_share) * rho
    chosen = plan(domain, weights, pairs, rest / unit**2, settings, progress=progress)
    times = _times(domain, weights, chosen)
    progress("measuring what was planned", 0.8)
    seen = set(chosen)
    measured = run.measure(chosen, times, rest)
    measured += [m for m in pairs if len(m.clique) == 1 or m.clique in seen]
    progress("fitting", 0.9)
    model = fit(domain, measured, sweeps=settings.final_sweeps, shrinkage=settings.shrinkage)
    return model, run.rounds


def _times(domain: Domain, weights: Mapping[Clique, float], chosen: Sequence[Clique]) -> list[int]:
    """How often each table is counted, so that its noise goes with (w n)^(-1/3)."""
    shares = np.array([(weights[q] * domain.size(q)) ** (1 / 3) for q in chosen])
    return [max(1, round(_FINEST * s)) for s in shares / shares.max()]


def plan(
    domain: Domain,
    weights: Mapping[Clique, float],
    pairs: Sequence[Measurement],
    rho: float,
    settings: TwoRound,
    *,
    progress: Callable[[str, float], None] = lambda text, done: None,
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
        settings: TwoRound,
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


def coordinate(session: Session, task: Task) -> Result:
    """TwoRound over the codes of a run; see `two_round`."""
    return marginal_result(two_round, session, task)
