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
from itertools import chain
from math import sqrt

import numpy as np

from siloweave.core.method import Setup
from siloweave.core.model import Measured
from siloweave.federation.expected import CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.methods.flaim import messages
from siloweave.methods.flaim.settings import FLAIMSettings
from siloweave.models.estimate import Measurement, fit
from siloweave.models.junction_tree import tree_cells
from siloweave.models.mrf import MRF
from siloweave.models.pair_noise import raked_to_columns
from siloweave.privacy.budget import l1_score_sensitivity, marginal_sensitivity, rho_for
from siloweave.progress import Progress, silent
from siloweave.protocols import secure_sums, workloads
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, Domain
from siloweave.tables.keys import Key, fold_in, generator


def chosen_by(
    party: str, reply: messages.Chosen, request: messages.Select
) -> set[Clique]:
    """Check a party's choice, and return the queries that it stands for.

    Raises:
        WireError: Naming the party; it sent an index of no candidate, or too few or many.
    """
    checked = CheckedReply(party)
    last = len(request.candidates) - 1
    indices = checked.items("indices", reply.indices, count=request.steps)
    places = [
        checked.number("indices", index.value, least=0, most=last) for index in indices
    ]
    return {request.candidates[place] for place in places}


def rounds_joined(cap: int, rounds: int) -> set[int]:
    """Return the rounds that the first party joins under a cap; each next party is one later."""
    return {(i * rounds) // cap for i in range(cap)}


def smallest_cohort(synth: FLAIMSettings, parties: int) -> int:
    """Return the fewest parties of a sum: of those drawn, or in the schedule of a cap."""
    fewest_drawn = secure_sums.smallest_drawn(synth.participation, parties)
    if synth.participation == 1:
        fewest_drawn -= synth.dropouts
    if synth.cap is None or synth.rounds is None:
        return fewest_drawn

    turns = rounds_joined(synth.cap, synth.rounds)
    cohort_sizes = []
    for t in range(synth.rounds):
        cohort_sizes.append(
            sum((t - i) % synth.rounds in turns for i in range(parties))
        )
    # With fewer parties than rounds, some rounds have no cohort, and so no sum.
    fewest_scheduled = min(size for size in cohort_sizes if size) - synth.dropouts
    return max(1, min(fewest_drawn, fewest_scheduled))


def chooses(synth: FLAIMSettings) -> bool:
    """Return whether the parties choose queries by the exponential mechanism."""
    return synth.variant in ("private", "naive", "oracle")


@dataclass(frozen=True)
class _NoisySum:
    """A noisy marginal over a cohort, with the number of rows behind it."""

    clique: Clique
    counts: Floats
    sigma: float  # of the noise in every cell
    rows: float  # about as many as were counted


@dataclass
class _Run:
    """The measurements of a run so far, and the parties they come from."""

    session: Session
    domain: Domain
    settings: FLAIMSettings
    keys: dict[str, bytes]  # the parties' keys for masks
    weights: dict[Clique, float]  # w_q of all candidates
    unit: float  # L2 sensitivity of a marginal
    key: Key  # of cohorts, and of queries where the server chooses them
    noisy_sums: list[_NoisySum] = field(default_factory=list)
    rounds: list[Measured] = field(default_factory=list)
    joined: int = 0  # parties that counted one-ways, each as often as it did
    joined_rows: float = 0.0  # noisy rows of those

    def scheduled(self, t: int) -> list[str]:
        """Return the parties of round `t`: spread evenly under a cap, else drawn one by one."""
        cap = self.settings.cap
        rounds = self.settings.rounds
        roster = self.session.roster
        if cap is None or rounds is None:
            return self.cohort(t)

        order = generator(fold_in(self.key, "schedule")).permutation(len(roster))
        turns = rounds_joined(cap, rounds)
        joins = {int(p) for i, p in enumerate(order) if (t - i) % rounds in turns}
        return [name for p, name in enumerate(roster) if p in joins]

    def cohort(self, *path: int | str) -> list[str]:
        """Draw the parties that join, each with probability p."""
        key = fold_in(self.key, "cohort", *path)
        session = self.session
        return secure_sums.drawn_cohort(
            session.roster, self.settings.participation, key, vanished=session.gone
        )

    @property
    def offered(self) -> dict[Clique, float]:
        """The candidates and their weights; AugFLAIM (Private) measures one-ways anyway."""
        if self.settings.variant != "private":
            return self.weights
        return {q: weight for q, weight in self.weights.items() if len(q) > 1}

    @property
    def rows_per_party(self) -> float:
        """The mean number of rows of the parties that counted one-ways, as noisy as those are."""
        return max(1.0, self.joined_rows / max(self.joined, 1))

    def counted(
        self,
        cohort: Sequence[str],
        cliques: Sequence[Clique],
        sigma: float,
        request: type[secure_sums.Count | messages.MeasureQueries] = secure_sums.Count,
    ) -> tuple[list[Floats], float, tuple[str, ...]]:
        """Have a cohort count cliques; return noisy sums, their sigma, and who answered."""
        keys = {name: self.keys[name] for name in cohort}
        noise = secure_sums.SumNoise(
            sigma, self.settings.tolerated, self.settings.dropouts
        )
        sums = secure_sums.noisy_marginals(
            self.session, keys, self.domain, cliques, noise, request
        )
        _, sum_sigma, _ = sums
        self.rounds.append(Measured(tuple(cliques), sum_sigma))
        return sums

    def one_ways(
        self, cohort: Sequence[str], cliques: Sequence[Clique], sigma: float
    ) -> float:
        """Measure marginals over all rows of a cohort; return about how many rows these are."""
        tables, sum_sigma, parties = self.counted(cohort, cliques, sigma)
        # The noise of a table's sum has a variance in proportion to its cells.
        weights = [1.0 / table.size for table in tables]
        mean_sum = np.average([table.sum() for table in tables], weights=weights)
        rows = max(1.0, float(mean_sum))

        self.joined += len(parties)
        self.joined_rows += rows
        for clique, counts in zip(cliques, tables, strict=True):
            self.noisy_sums.append(_NoisySum(clique, counts, sum_sigma, rows))
        return rows

    def measure(
        self, choices: Mapping[str, Sequence[Clique]], sigma: float, rows: float
    ) -> None:
        """Measure the queries that a cohort chose, each over the parties that chose it.

        `rows` is about how many rows the whole cohort has.
        """
        queries = self.together(choices)
        if not queries:
            return
        tables, sum_sigma, parties = self.counted(
            list(choices), queries, sigma, messages.MeasureQueries
        )
        rows *= len(parties) / len(choices)
        for q, counts in zip(queries, tables, strict=True):
            voters = sum(q in choices[name] for name in parties)
            # All who chose it may have vanished: the sum is noise alone.
            if voters:
                voters_rows = _rows_behind(
                    counts, sum_sigma, voters, len(parties), rows
                )
                self.noisy_sums.append(_NoisySum(q, counts, sum_sigma, voters_rows))

    def together(self, choices: Mapping[str, Sequence[Clique]]) -> tuple[Clique, ...]:
        """Return the chosen queries that the model has room for, those of most parties first."""
        votes = Counter(chain.from_iterable(choices.values()))
        measured = [noisy_sum.clique for noisy_sum in self.noisy_sums]
        most_mb = self.settings.max_model_mb
        if workloads.fits(self.domain, [*measured, *votes], most_mb):
            return tuple(votes)
        fitting_queries: list[Clique] = []
        for q, _ in votes.most_common():
            if workloads.fits(self.domain, [*measured, *fitting_queries, q], most_mb):
                fitting_queries.append(q)
        return tuple(fitting_queries)

    def pooled(self) -> list[_NoisySum]:
        """Add up each clique's sums over all cohorts, so that every row counts alike."""
        sums_of: dict[Clique, list[_NoisySum]] = {}
        for noisy_sum in self.noisy_sums:
            sums_of.setdefault(noisy_sum.clique, []).append(noisy_sum)

        totals = []
        for clique, sums in sums_of.items():
            counts = np.sum([noisy_sum.counts for noisy_sum in sums], axis=0)
            sigma = sqrt(sum(noisy_sum.sigma**2 for noisy_sum in sums))
            rows = sum(noisy_sum.rows for noisy_sum in sums)
            totals.append(_NoisySum(clique, counts, sigma, rows))
        return totals

    def fit(self, warm_start: MRF | None, sweeps: int) -> MRF:
        """Fit a model to all sums, each scaled to the rows of the whole roster."""
        total = self.rows_per_party * len(self.session.roster)
        scaled = []
        for pooled in self.pooled():
            counts = pooled.counts * (total / pooled.rows)
            # N / N_q^t, the paper's weighting: what few rows show counts less (section 4.2).
            sigma = pooled.sigma * total / pooled.rows
            scaled.append(Measurement(pooled.clique, counts, sigma))
        if self.settings.variant == "private":
            # Every round counts single columns over its whole cohort, and other tables over those
            # parties that chose them, whose rows are not alike.
            scaled = raked_to_columns(scaled, total)
        return fit(
            self.domain, scaled, total=total, warm_start=warm_start, sweeps=sweeps,
            shrinkage=self.settings.shrinkage,
        )  # fmt: skip

    def averages(self) -> messages.Baseline:
        """Return M~, the running averages of the noisy one-ways, as shares of rows."""
        one_ways = [r for r in self.weights if len(r) == 1]
        pooled = {noisy_sum.clique: noisy_sum for noisy_sum in self.pooled()}
        tables = []
        for r in one_ways:
            counts = np.maximum(pooled[r].counts, 0.0)
            tables.append(Array.of(counts / max(counts.sum(), 1.0), "<f4"))
        return messages.Baseline(tuple(one_ways), tuple(tables))

    def truth(self) -> messages.Baseline:
        """Ask everyone for exact counts, and return the oracle's baseline, as shares of rows."""
        sums = {r: np.zeros(self.domain.shape(r), dtype=np.int64) for r in self.weights}
        secure_sums.add_exact(self.session, self.session.roster, sums)
        tables = [Array.of(total / total.sum(), "<f4") for total in sums.values()]
        return messages.Baseline(tuple(sums), tuple(tables))


def _rows_behind(
    counts: Floats, sigma: float, voters: int, cohort: int, rows: float
) -> float:
    """Estimate the rows of `voters` parties out of a cohort that has `rows`.

    It is the mean of two guesses by their precision: the parties' share of the cohort, and the sum
    of what they counted.
    """
    expected = rows * voters / cohort
    # As if a party's rows had a standard deviation of half their mean.
    party_variance = (0.5 * rows / cohort) ** 2
    absent = 1 - voters / cohort
    expected_variance = party_variance * voters * absent + 1.0
    counted = float(counts.sum())
    counted_variance = sigma**2 * counts.size + 1.0

    weighted = expected / expected_variance + counted / counted_variance
    mean = weighted / (1 / expected_variance + 1 / counted_variance)
    # Counts are divided by it, so noise must not leave it near 0.
    return max(mean, 0.1 * expected, 1.0)


def flaim(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: FLAIMSettings,
    *,
    key: Key,
    unit: float = 1.0,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Run FLAIM over a roster; return the model and what each round measured.

    Arguments are those of `aim` (methods/aim/coordinator.py); `key` chooses cohorts and, for
    "random", queries, and no noise comes from it.
    """
    workloads.check_capacity(domain, workload, settings.max_model_mb)
    weights = workloads.weights_of(domain, workload)
    one_ways = [r for r in weights if len(r) == 1]
    vanish = session.plan(session.roster).vanish
    keys = secure_sums.exchange_keys(session, domain, may_vanish=vanish)
    run = _Run(session, domain, settings, keys, weights, unit, key)
    size_rho = settings.size_share * rho if chooses(settings) else 0.0
    budget = FLAIMPlan(settings, len(one_ways), unit, rho - size_rho)
    truth = run.truth() if settings.variant == "oracle" else None

    # Algorithm 1, initialisation: each one-way from a cohort of its own. The variants that measure
    # them in every round count those of the first round as these.
    if not budget.every_round:
        for r in one_ways:
            cohort = session.present(run.cohort("first", *r))
            run.one_ways(cohort, [r], budget.sigma)
    model = (
        run.fit(None, settings.sweeps) if run.noisy_sums else MRF.uniform(domain, 1.0)
    )

    # Algorithm 1, rounds t = 1 to T.
    t = 0
    is_last = False
    while not is_last:
        is_last = budget.last(t)
        progress(f"round {t + 1}", t / (settings.rounds or t + 10))
        model = _round(run, budget, one_ways, model, truth, size_rho, t)
        t += 1
    return run.fit(model, settings.final_sweeps), run.rounds


def _round(
    run: _Run,
    budget: FLAIMPlan,
    one_ways: Sequence[Clique],
    model: MRF,
    truth: messages.Baseline | None,
    size_rho: float,
    t: int,
) -> MRF:
    """Run round `t` of Algorithm 1, and return the model after it."""
    settings = run.settings

    # The round's cohort; nobody where a cap spreads fewer parties than there are rounds.
    cohort = run.session.present(run.scheduled(t))
    if not cohort:
        return model

    # AugFLAIM (Private), "combine": fresh one-ways of every round enter the model.
    rows = run.rows_per_party * len(cohort)
    if budget.every_round:
        rows = run.one_ways(cohort, one_ways, budget.sigma)
        cohort = run.session.present(cohort)
        model = run.fit(model, settings.sweeps)
    budget.spent += budget.round_cost
    if settings.variant == "naive_bayes":
        return model

    # Candidates that the model can still take, of which parties (or here, the server) choose.
    sums_before = len(run.noisy_sums)
    measured = list(model.potentials)
    candidates = workloads.fitting(
        run.domain, run.offered, measured, settings.max_model_mb
    )
    if settings.variant == "random":
        rng = generator(fold_in(run.key, "query", t))
        query = candidates[int(rng.integers(len(candidates)))]
        run.one_ways(cohort, [query], budget.sigma)
    else:
        baseline = run.averages() if settings.variant == "private" else truth
        size_sigma = max(1.0, run.unit / sqrt(2 * size_rho))
        request = messages.Select(
            secure_sums.ModelMessage.of(model),
            tuple(candidates),
            baseline,
            budget.sigma,
            budget.epsilon,
            size_sigma,
            settings.local_steps,
        )
        # Each party takes its s local steps; then all count together what any of them chose.
        choices = _choices(run, cohort, request)
        run.measure(choices, budget.sigma, rows * (len(choices) / len(cohort)))

    # The server's fit, and AIM's annealing where no number of rounds is fixed.
    new_model = run.fit(model, settings.sweeps)
    if settings.rounds is None and _quiet(run, sums_before, model, new_model):
        budget.sigma /= 2
        budget.epsilon *= 2
    return new_model


def _choices(
    run: _Run, cohort: Sequence[str], request: messages.Select
) -> dict[str, list[Clique]]:
    """Ask a cohort what to measure; return the queries of those who answer, by party."""
    vanish = run.session.plan(cohort).vanish
    replies = run.session.ask_present(dict.fromkeys(cohort, request), vanish)
    choices = {}
    for name, reply in replies.items():
        # Sorted: the order in which queries are measured must not depend on a set's.
        choices[name] = sorted(chosen_by(name, reply, request))
    return choices


def _quiet(run: _Run, sums_before: int, old_model: MRF, new_model: MRF) -> bool:
    """Return whether a new marginal moved the model by no more than noise (AIM's annealing).

    One is enough, as in the paper (section 4.3).
    """
    for noisy_sum in run.noisy_sums[sums_before:]:
        clique = noisy_sum.clique
        moved = np.abs(new_model.marginal(clique) - old_model.marginal(clique)).sum()
        sigma = noisy_sum.sigma * new_model.total / noisy_sum.rows
        if moved <= workloads.expected_l1(sigma, noisy_sum.counts.size):
            return True
    return False


@dataclass
class FLAIMPlan:
    """The noise of the next round, and the cost so far of a row that joined every round."""

    settings: FLAIMSettings
    columns: int
    unit: float  # L2 sensitivity of a marginal
    rho: float  # all that a row may pay
    sigma: float = 0.0  # of a measurement
    epsilon: float = 0.0  # of a choice
    spent: float = 0.0

    def __post_init__(self) -> None:
        # J of the module's docstring. Annealing starts at 8 d rounds, where AIM has 16 d (4.3).
        rounds = self.settings.cap or self.settings.rounds or 8 * self.columns
        first_one_ways = 0 if self.every_round else self.columns
        # Where parties choose nothing, all of the budget is for measurements.
        share = self.settings.gaussian_share if chooses(self.settings) else 1.0

        gaussians = rounds * self.gaussians + first_one_ways
        self.sigma = self.unit * sqrt(gaussians / (2 * share * self.rho))
        steps = self.settings.local_steps
        self.epsilon = sqrt(8 * (1 - share) * self.rho / (rounds * steps))
        self.spent = first_one_ways * self.unit**2 / (2 * self.sigma**2)

    @property
    def every_round(self) -> bool:
        """Whether the one-ways are measured in every round."""
        return self.settings.variant in ("private", "naive_bayes")

    @property
    def gaussians(self) -> int:
        """The number of measurements of a row in one round."""
        s = self.settings.local_steps
        # s central ones, and s - 1 local ones that steer a later choice.
        steps = 2 * s - 1
        gaussians = {
            "private": steps + self.columns,
            "naive_bayes": self.columns,
            "random": 1,
        }
        return gaussians.get(self.settings.variant, steps)

    @property
    def round_cost(self) -> float:
        """The zCDP of a row in one round."""
        # The exponential mechanism is bounded-range: epsilon^2 / 8, not epsilon^2 / 2.
        selections = self.settings.local_steps * self.epsilon**2 / 8
        measurements = self.gaussians * self.unit**2 / (2 * self.sigma**2)
        return measurements + selections

    def last(self, t: int) -> bool:
        """Return whether round `t` is the last; with annealing, it then takes all that remains."""
        if self.settings.rounds is not None:
            return t + 1 >= self.settings.rounds
        remaining_rho = self.rho - self.spent
        if remaining_rho >= 2 * self.round_cost:
            return False
        # A round's cost is quadratic in epsilon and in 1 / sigma.
        growth = sqrt(remaining_rho / self.round_cost)
        self.sigma /= growth
        self.epsilon *= growth
        return True


def tree_of_noise(
    setup: Setup,
    domain: Domain,
    queries: Sequence[Clique],
    answers: float,
) -> float:
    """Forecast the cells of the junction tree if noise alone chose what is measured.

    Many answers then spread among small queries. What a party chooses by its rows is mostly a part
    of that, as all parties' rows are alike.
    """
    synth = setup.settings_as(FLAIMSettings)
    weights = workloads.weights_of(domain, queries)
    pairs = [q for q in weights if len(q) > 1]
    if not chooses(synth) or not pairs:
        return sum(map(domain.size, weights))

    neighbours = setup.budget.neighbours
    unit = marginal_sensitivity(neighbours, norm="l2")
    plan = FLAIMPlan(synth, len(domain.names), unit, rho_for(setup.budget))

    # Scores of a model without error: what is left is the bias for the noise of a measurement.
    scores = np.array(
        [-weights[q] * workloads.expected_l1(plan.sigma, domain.size(q)) for q in pairs]
    )
    sensitivity = 2 * max(weights[q] for q in pairs) * l1_score_sensitivity(neighbours)
    odds = np.exp((scores - scores.max()) * plan.epsilon / (2 * sensitivity))
    choices = round(answers * synth.local_steps)
    places = generator(0).choice(len(pairs), choices, p=odds / odds.sum())
    return tree_cells(domain, [pairs[i] for i in set(places.tolist())])
