"""FLAIM's coordinator: rounds of selection at the parties and measurement in masked sums.

Maddock, Cormode & Maple 2024 (KDD 2024), Algorithm 1 and section 4.3 for the budget.

**Guarantee**: see method.py. Everything here is computed from replies that were paid for; what
binds is every party's ledger, which charges each release by itself. With r the Gaussian share, rho
the budget without the noisy party sizes, and J the rounds that a row pays for, a round has s
selections at epsilon = sqrt(8 (1 - r) rho / (J s)), and

* Naive, Oracle: sigma = sqrt((J (2 s - 1) + d) / (2 r rho)): d one-ways once, s central and s - 1
  local measurements a round;
* Private: sigma = sqrt(J (2 s - 1 + d) / (2 r rho)): d one-ways every round.

The paper has J = T: every row is charged for all rounds, though it takes part in a tenth of them.
With `cap`, a party joins at most that many rounds, so J = cap. A row lives at one party, so the
rows of parties that sit out a round pay nothing for it (parallel composition over disjoint rows).
Who joins when is drawn before the run, from the roster and the key alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from siloweave.core.method import Case
from siloweave.core.model import Measured
from siloweave.federation.expected import CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.methods.flaim.messages import Baseline, Chosen, MeasureQueries, Select
from siloweave.models.estimate import Measurement, fit
from siloweave.models.junction_tree import tree_cells
from siloweave.models.mrf import MRF
from siloweave.models.pair_noise import raked_to_columns
from siloweave.privacy.budget import l1_score_sensitivity, marginal_sensitivity, rho_for
from siloweave.progress import Progress, silent
from siloweave.protocols.secure_sums import (
    Count,
    ModelMessage,
    SumNoise,
    add_exact,
    drawn_cohort,
    exchange_keys,
    noisy_marginals,
    smallest_drawn,
)
from siloweave.protocols.workload import check_capacity, expected_l1, fits, fitting, weights_of
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, Domain
from siloweave.tables.keys import Key, fold_in, generator

if TYPE_CHECKING:
    from siloweave.methods.flaim.method import FLAIM


def chosen_by(party: str, reply: Chosen, request: Select) -> set[Clique]:
    """The queries that a party chose; raises WireError, naming it, if there are no such."""
    checked, last = CheckedReply(party), len(request.candidates) - 1
    sent = checked.items("indices", reply.indices, count=request.steps)
    places = [checked.number("indices", one.value, least=0, most=last) for one in sent]
    return {request.candidates[i] for i in places}


def rounds_joined(cap: int, rounds: int) -> set[int]:
    """Return the rounds that the first party joins, of a cap; each next one joins a round later."""
    return {(i * rounds) // cap for i in range(cap)}


def smallest_cohort(synth: FLAIM, parties: int) -> int:
    """Return the fewest parties of a sum: of those drawn, or by the schedule of a cap."""
    drawn = smallest_drawn(synth.participation, parties)
    if synth.participation == 1:
        drawn -= synth.dropouts
    if synth.cap is None or synth.rounds is None:
        return drawn
    turns = rounds_joined(synth.cap, synth.rounds)
    sizes = (
        sum((t - i) % synth.rounds in turns for i in range(parties)) for t in range(synth.rounds)
    )
    scheduled = min(size for size in sizes if size) - synth.dropouts
    return max(1, min(drawn, scheduled))


def chooses(synth: FLAIM) -> bool:
    """Whether parties choose queries by the exponential mechanism."""
    return synth.variant in ("private", "naive", "oracle")


@dataclass(frozen=True)
class _Taken:
    """A noisy sum over a cohort, and how many rows were counted."""

    clique: Clique
    counts: Floats
    sigma: float
    rows: float


@dataclass
class _Run:
    session: Session
    domain: Domain
    settings: FLAIM
    keys: dict[str, bytes]
    weights: dict[Clique, float]
    unit: float
    key: Key
    taken: list[_Taken] = field(default_factory=list)
    rounds: list[Measured] = field(default_factory=list)
    joined: int = 0
    joined_rows: float = 0.0

    def scheduled(self, t: int) -> list[str]:
        """Parties of round `t`: with a cap, spread evenly; else drawn by themselves."""
        cap, rounds, roster = self.settings.cap, self.settings.rounds, self.session.roster
        if cap is None or rounds is None:
            return self.cohort(t)
        order = generator(fold_in(self.key, "schedule")).permutation(len(roster))
        turns = rounds_joined(cap, rounds)
        joins = {int(p) for i, p in enumerate(order) if (t - i) % rounds in turns}
        return [name for p, name in enumerate(roster) if p in joins]

    def cohort(self, *path: int | str) -> list[str]:
        """Parties that join by themselves with probability p."""
        key = fold_in(self.key, "cohort", *path)
        session = self.session
        return drawn_cohort(session.roster, self.settings.participation, key, gone=session.gone)

    @property
    def offered(self) -> dict[Clique, float]:
        """Candidates and their weights; AugFLAIM (Private) has the one-ways anyway."""
        lone = self.settings.variant != "private"
        return {q: w for q, w in self.weights.items() if lone or len(q) > 1}

    @property
    def per_party(self) -> float:
        return max(1.0, self.joined_rows / max(self.joined, 1))

    def counted(
        self,
        cohort: Sequence[str],
        cliques: Sequence[Clique],
        sigma: float,
        request: type[Count | MeasureQueries] = Count,
    ) -> tuple[list[Floats], float, tuple[str, ...]]:
        """Noisy sums over those of a cohort who answer, their noise, and who they are."""
        keys = {name: self.keys[name] for name in cohort}
        noise = SumNoise(sigma, self.settings.tolerated, self.settings.dropouts)
        found = noisy_marginals(self.session, keys, self.domain, cliques, noise, request)
        self.rounds.append(Measured(tuple(cliques), found[1]))
        return found

    def one_ways(self, cohort: Sequence[str], cliques: Sequence[Clique], sigma: float) -> float:
        """Measure marginals over all rows of a cohort; returns how many these are, about."""
        tables, total, parties = self.counted(cohort, cliques, sigma)
        weights = [1.0 / t.size for t in tables]
        rows = max(1.0, float(np.average([t.sum() for t in tables], weights=weights)))
        self.joined, self.joined_rows = self.joined + len(parties), self.joined_rows + rows
        self.taken += [_Taken(c, y, total, rows) for c, y in zip(cliques, tables, strict=True)]
        return rows

    def measure(self, chosen: Mapping[str, Sequence[Clique]], sigma: float, rows: float) -> None:
        """Measure what the parties of a cohort chose, each only over those who chose it."""
        if not (queries := self.together(chosen)):
            return
        tables, total, parties = self.counted(list(chosen), queries, sigma, MeasureQueries)
        rows *= len(parties) / len(chosen)
        for q, y in zip(queries, tables, strict=True):
            if behind := sum(q in chosen[name] for name in parties):
                n = _rows_behind(y, total, behind, len(parties), rows)
                self.taken.append(_Taken(q, y, total, n))

    def together(self, chosen: Mapping[str, Sequence[Clique]]) -> tuple[Clique, ...]:
        """What was chosen; what fewest parties chose is left out where the model would not fit."""
        votes = Counter(q for mine in chosen.values() for q in mine)
        held = [t.clique for t in self.taken]
        if fits(self.domain, [*held, *votes], self.settings.max_model_mb):
            return tuple(votes)
        kept: list[Clique] = []
        for q, _ in votes.most_common():
            if fits(self.domain, [*held, *kept, q], self.settings.max_model_mb):
                kept.append(q)
        return tuple(kept)

    def pooled(self) -> list[_Taken]:
        """One sum per clique: cohorts add up, so that a row counts alike in whichever it was."""
        by_clique: dict[Clique, list[_Taken]] = {}
        for t in self.taken:
            by_clique.setdefault(t.clique, []).append(t)
        return [
            _Taken(
                clique,
                np.sum([t.counts for t in same], axis=0),
                sqrt(sum(t.sigma**2 for t in same)),
                sum(t.rows for t in same),
            )
            for clique, same in by_clique.items()
        ]

    def fit(self, warm_start: MRF | None, sweeps: int) -> MRF:
        total = self.per_party * len(self.session.roster)
        scaled = [
            Measurement(t.clique, t.counts * (total / t.rows), t.sigma * total / t.rows)
            for t in self.pooled()
        ]
        if self.settings.variant == "private":
            # Every round counts single columns over its whole cohort, and other tables over those
            # parties that chose them, whose rows are not alike.
            scaled = raked_to_columns(scaled, total)
        return fit(
            self.domain, scaled, total=total, warm_start=warm_start, sweeps=sweeps,
            shrinkage=self.settings.shrinkage,
        )  # fmt: skip

    def averages(self) -> Baseline:
        """M~: the running average of the noisy one-ways, as shares of rows."""
        firsts = [r for r in self.weights if len(r) == 1]
        pooled = {t.clique: t for t in self.pooled()}
        tables = []
        for r in firsts:
            total = np.maximum(pooled[r].counts, 0.0)
            tables.append(Array.of(total / max(total.sum(), 1.0), "<f4"))
        return Baseline(tuple(firsts), tuple(tables))

    def truth(self) -> Baseline:
        """The oracle's exact shares, from everyone."""
        sums = {r: np.zeros(self.domain.shape(r), dtype=np.int64) for r in self.weights}
        add_exact(self.session, self.session.roster, sums)
        tables = [Array.of(total / total.sum(), "<f4") for total in sums.values()]
        return Baseline(tuple(sums), tuple(tables))


def _rows_behind(y: Floats, sigma: float, behind: int, cohort: int, rows: float) -> float:
    """Rows of `behind` parties: their share of the cohort, and their noisy sum, by precision."""
    expected = rows * behind / cohort
    spread = (0.5 * rows / cohort) ** 2 * behind * (1 - behind / cohort) + 1.0
    noise = sigma**2 * y.size + 1.0
    mean = (expected / spread + float(y.sum()) / noise) / (1 / spread + 1 / noise)
    return max(mean, 0.1 * expected, 1.0)


def flaim(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: FLAIM,
    *,
    key: Key,
    unit: float = 1.0,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Run FLAIM over a roster; returns the model and what each round measured.

    Arguments are those of `aim` (methods/aim/coordinator.py); `key` chooses cohorts and, for
    "random", queries, and no noise comes from it.
    """
    check_capacity(domain, workload, settings.max_model_mb)
    weights = weights_of(domain, workload)
    firsts = [r for r in weights if len(r) == 1]
    vanish = session.plan(session.roster).vanish
    keys = exchange_keys(session, domain, may_vanish=vanish)
    run = _Run(session, domain, settings, keys, weights, unit, key)
    size_rho = settings.size_share * rho if chooses(settings) else 0.0
    budget = FLAIMPlan(settings, len(firsts), unit, rho - size_rho)
    truth = run.truth() if settings.variant == "oracle" else None
    if not budget.every_round:
        for r in firsts:
            run.one_ways(session.present(run.cohort("first", *r)), [r], budget.sigma)
    model = run.fit(None, settings.sweeps) if run.taken else MRF.uniform(domain, 1.0)
    t, last = 0, False
    while not last:
        last = budget.last(t)
        progress(f"round {t + 1}", t / (settings.rounds or t + 10))
        model = _round(run, budget, firsts, model, truth, size_rho, t)
        t += 1
    return run.fit(model, settings.final_sweeps), run.rounds


def _round(
    run: _Run,
    budget: FLAIMPlan,
    firsts: Sequence[Clique],
    model: MRF,
    truth: Baseline | None,
    size_rho: float,
    t: int,
) -> MRF:
    if not (cohort := run.session.present(run.scheduled(t))):  # fewer parties than rounds
        return model
    rows = run.per_party * len(cohort)
    if budget.every_round:
        rows = run.one_ways(cohort, firsts, budget.sigma)
        cohort = run.session.present(cohort)
        model = run.fit(model, run.settings.sweeps)
    budget.spent += budget.round_cost
    if run.settings.variant == "naive_bayes":
        return model
    before = len(run.taken)
    offered = run.offered
    candidates = fitting(run.domain, offered, list(model.potentials), run.settings.max_model_mb)
    if run.settings.variant == "random":
        rng = generator(fold_in(run.key, "query", t))
        run.one_ways(cohort, [candidates[int(rng.integers(len(candidates)))]], budget.sigma)
    else:
        request = Select(
            ModelMessage.of(model),
            tuple(candidates),
            run.averages() if run.settings.variant == "private" else truth,
            budget.sigma,
            budget.epsilon,
            max(1.0, run.unit / sqrt(2 * size_rho)),
            run.settings.local_steps,
        )
        asked, vanish = dict.fromkeys(cohort, request), run.session.plan(cohort).vanish
        replies = run.session.ask_present(asked, vanish)
        chosen = {name: sorted(chosen_by(name, reply, request)) for name, reply in replies.items()}
        run.measure(chosen, budget.sigma, rows * (len(chosen) / len(cohort)))
    new = run.fit(model, run.settings.sweeps)
    if run.settings.rounds is None and _quiet(run, before, model, new):
        budget.sigma, budget.epsilon = budget.sigma / 2, budget.epsilon * 2
    return new


def _quiet(run: _Run, before: int, old: MRF, new: MRF) -> bool:
    """AIM's annealing test: at least one new marginal moved the model by no more than noise."""
    return any(
        np.abs(new.marginal(t.clique) - old.marginal(t.clique)).sum()
        <= expected_l1(t.sigma * new.total / t.rows, t.counts.size)
        for t in run.taken[before:]
    )


@dataclass
class FLAIMPlan:
    """Noise of the next round and what a row that joined every round has paid."""

    settings: FLAIM
    columns: int
    unit: float
    rho: float
    sigma: float = 0.0
    epsilon: float = 0.0
    spent: float = 0.0

    def __post_init__(self) -> None:
        rounds = self.settings.cap or self.settings.rounds or 8 * self.columns
        first = 0 if self.every_round else self.columns
        share = self.settings.gaussian_share if chooses(self.settings) else 1.0
        self.sigma = self.unit * sqrt((rounds * self.gaussians + first) / (2 * share * self.rho))
        steps = self.settings.local_steps
        self.epsilon = sqrt(8 * (1 - share) * self.rho / (rounds * steps))
        self.spent = first * self.unit**2 / (2 * self.sigma**2)

    @property
    def every_round(self) -> bool:
        """Whether the one-ways are measured in every round."""
        return self.settings.variant in ("private", "naive_bayes")

    @property
    def gaussians(self) -> int:
        """Measurements of a row in one round."""
        s = self.settings.local_steps
        per = {"private": 2 * s - 1 + self.columns, "naive_bayes": self.columns, "random": 1}
        return per.get(self.settings.variant, 2 * s - 1)

    @property
    def round_cost(self) -> float:
        """zCDP of a row in one round."""
        selections = self.settings.local_steps * self.epsilon**2 / 8
        return self.gaussians * self.unit**2 / (2 * self.sigma**2) + selections

    def last(self, t: int) -> bool:
        """Whether round `t` is the last; when annealing, it takes all that remains."""
        if self.settings.rounds is not None:
            return t + 1 >= self.settings.rounds
        remaining = self.rho - self.spent
        if remaining >= 2 * self.round_cost:
            return False
        grow = sqrt(remaining / self.round_cost)
        self.sigma, self.epsilon = self.sigma / grow, self.epsilon * grow
        return True


def tree_of_noise(
    synth: FLAIM, case: Case, domain: Domain, queries: Sequence[Clique], answers: float
) -> float:
    """Cells of the junction tree, if noise alone chooses: of many answers, among small queries.

    What a party chooses by its rows is mostly a part of that, as all parties' rows are alike.
    """
    weights = weights_of(domain, queries)
    pairs = [q for q in weights if len(q) > 1]
    if not chooses(synth) or not pairs:
        return sum(map(domain.size, weights))
    neighbours, firsts = case.budget.neighbours, len(domain.names)
    unit = marginal_sensitivity(neighbours, norm="l2")
    plan = FLAIMPlan(synth, firsts, unit, rho_for(case.budget))
    scores = np.array([-weights[q] * expected_l1(plan.sigma, domain.size(q)) for q in pairs])
    sensitivity = 2 * max(weights[q] for q in pairs) * l1_score_sensitivity(neighbours)
    odds = np.exp((scores - scores.max()) * plan.epsilon / (2 * sensitivity))
    chosen = generator(0).choice(
        len(pairs), round(answers * synth.local_steps), p=odds / odds.sum()
    )
    return tree_cells(domain, [pairs[i] for i in set(chosen.tolist())])
