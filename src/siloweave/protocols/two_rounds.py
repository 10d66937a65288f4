"""Two rounds of marginals with a plan between them: what TwoRound and its like share.

1. Measure every one- and two-way marginal of the workload's closure, all with the same noise, for
   `pairs_share` of the budget.
2. Plan: add, one by one, the pair that would improve the workload most, less half of the noise
   that it would bring (McKenna, Mullins, Sheldon & Miklau 2022, AIM, 4.1: weights and score;
   decision 0036: how much noise). What the model may take grows, as in AIM, from single columns to
   `max_model_mb`: doubled where no pair fits any more. Answers are read without the dependence that
   their noise explains (models/pair_noise.py), so that no pair is planned for noise alone.
3. Choose tables that hold what was planned: pairs, and wider tables where they lower the expected
   error of all triples (`design`). With columns of many codes pairs remain; of two or three codes,
   a few dozen tables of four and five columns hold every triple.
4. Measure these tables once, with the rest of the budget, each in its own noise.
5. Fit both rounds together, cleaned once more: a pair that the second round does not show to
   depend is left to the rest of the model, and rare values keep no dependence that is noise.
   Interactions of more columns are cleaned in the same way (models/pair_noise.py): a useless table
   then costs little.

Decision 0036 has what wide tables gain.

How a method measures is its own: over masked sums, or over columns of several parties.

**Guarantee**: none of its own. Whoever measures pays; plan and fit read noisy counts only
(post-processing). Assumed public: domain, workload, which marginals can be measured.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nlargest
from itertools import chain, combinations, compress
from math import comb, inf, prod, sqrt
from typing import Any, TypeAlias

import numpy as np

from siloweave.core.model import Measured
from siloweave.errors import number, whole
from siloweave.models.estimate import (
    Measurement,
    block_step,
    estimate_total,
    fit,
)
from siloweave.models.junction_tree import (
    cells_in,
    many_tree_cells,
    maximal_cliques,
    tree_cells,
)
from siloweave.models.mrf import MRF
from siloweave.models.pair_noise import cleaned, dependence, margins_of, without_noise
from siloweave.progress import Progress, silent
from siloweave.protocols import workloads
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.codes import Clique, Domain

# The design of step 3.
# L2 norm of a triple's effect beyond the model of pairs, as a share of the rows.
_TRIPLE = 0.007
# Columns of a table, at most.
_WIDEST = 5
# Tables of one width to choose from, at most.
_MOST_TABLES = 20_000
# Rows for each cell of a table that is wider than a pair, at least.
_ROWS_PER_CELL = 4.0
# Steps of the multiplicative algorithm for each table that is added.
_STEPS = 12
# It stops where so many tables lower the error by a smaller share than this.
_PATIENCE = 8
_LEAST_GAIN = 0.004
# The least precision of a table, as a share of the largest: else no mechanism draws its noise.
_FAINTEST = 1 / 256
# A table that lies inside another is dropped with less than this share of the mean precision.
_THIN = 0.1

# The plan of step 2.
# Pairs that are chosen one by one; with so many more, one more is added at a time.
_FEW = 120
# Pairs whose trees are laid out at once.
_AT_ONCE = 128
# Pairs that come in for others, at most: each takes as long as a fit.
_EXCHANGES = 16
# Part of the noise that a pair would bring, by which it must at least move its marginal.
_NOISE = 0.5

# The fits of step 5.
# Sweeps of the one that interactions are shrunk towards.
_PAIR_SWEEPS = 15
# Noise, in rows, of a table that says nothing.
_UNKNOWN = 1e12

Measure: TypeAlias = Callable[
    [Sequence[Clique], Sequence[float], float], list[Measurement]
]
"""(cliques, sigmas, rho): measure each clique with the sigma wanted, a row paying rho for all."""

Allowed: TypeAlias = Callable[[Sequence[Clique]], bool]
"""Whether these tables can be measured together."""


@dataclass(frozen=True)
class TwoRoundSettings(workloads.MarginalSettings):
    """Settings of every method that measures in two rounds.

    Attributes:
        pairs_share: Share of the budget for the first round, all pairs.
        plan_sweeps: Sweeps of the fits by which the second round is planned.
        plan_shrinkage: Entropy per unit of noise in these fits.
        final_sweeps: Sweeps of the last fit.
        shrinkage: Entropy per unit of noise in the last fit.
    """

    pairs_share: float = 0.3
    plan_sweeps: int = 1
    plan_shrinkage: float = 0.7
    final_sweeps: int = 60
    shrinkage: float = 0.5

    def __post_init__(self) -> None:
        number("pairs_share", self.pairs_share, 0, 1, "()")
        for name in ("plan_sweeps", "final_sweeps"):
            whole(name, getattr(self, name), 1)
        for name in ("plan_shrinkage", "shrinkage"):
            number(name, getattr(self, name), 0, inf, "[)")


def plan_and_fit(
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: TwoRoundSettings,
    measure: Measure,
    *,
    unit: float = 1.0,
    total: float | None = None,
    allowed: Allowed = lambda cliques: True,
    no_room: Callable[[Sequence[Clique]], None] = lambda pairs: None,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Run both rounds, and return the model and what each round measured.

    Args:
        domain: Attributes and sizes.
        workload: Cliques whose marginals are to be right.
        rho: zCDP that a row pays for both rounds.
        settings: Public settings.
        measure: (cliques, sigmas, rho) -> a measurement of each clique, in this order. The sigmas
            are such that sum unit^2 / (2 sigma^2) = rho of the round.
        unit: L2 sensitivity of a marginal under the budget's relation.
        total: Number of rows where it is public; if None, it is estimated from the measurements.
        allowed: Which cliques `measure` can measure together.
        no_room: As of `plan`.
        progress: Called with a text and the share that is done.

    Raises:
        CapacityError: A query does not fit the model.
    """
    workloads.check_capacity(domain, workload, settings.max_model_mb)
    weights = workloads.weights_of(domain, workload)

    # Step 1: measure every one- and two-way marginal, all with the same noise.
    progress("counting all pairs", 0.0)
    small = [clique for clique in weights if len(clique) <= 2 and allowed([clique])]
    first_rho = settings.pairs_share * rho
    first_sigma = unit * sqrt(len(small) / (2 * first_rho))
    pairs = measure(small, [first_sigma] * len(small), first_rho)

    # Step 2: plan, by answers without the dependence that their noise explains.
    second_rho = (1 - settings.pairs_share) * rho
    clean_pairs = _cleaned_answers(pairs, total)
    plan_rho = second_rho / unit**2
    chosen = plan(
        domain,
        weights,
        clean_pairs,
        plan_rho,
        settings,
        no_room=no_room,
        progress=progress,
    )

    # Step 3: choose tables that hold what was planned.
    chosen_set = set(chosen)
    planned = [answer for answer in pairs if answer.clique in chosen_set]
    tables = design(domain, workload, planned, plan_rho, settings, allowed)

    # Step 4: measure them, each in its own noise.
    progress("measuring what was planned", 0.8)
    measured = measure(list(tables), list(tables.values()), second_rho)
    rounds = _recorded(pairs) + _recorded(measured)

    # Step 5: fit both rounds together, cleaned once more.
    progress("fitting", 0.9)
    first_answers = [
        answer
        for answer in pairs
        if len(answer.clique) == 1 or answer.clique in chosen_set
    ]
    laid_out = [answer.clique for answer in (*first_answers, *measured)]
    room = cells_in(settings.max_model_mb)

    def refit(tables: Sequence[Measurement]) -> MRF:
        fitting_tables = within_room(domain, tables, laid_out, room)
        return fit(
            domain, fitting_tables, sweeps=_PAIR_SWEEPS, shrinkage=settings.shrinkage
        )

    noiseless = without_noise(first_answers, measured, total, refit)
    clean = within_room(domain, noiseless, laid_out, room)
    singles = [answer for answer in clean if len(answer.clique) == 1]
    sweeps = settings.final_sweeps
    shrinkage = settings.shrinkage

    # From the single columns on, which the fit holds to; from nothing 60 sweeps are too few.
    start = fit(domain, singles, total=total, sweeps=sweeps, shrinkage=shrinkage)
    model = fit(
        domain,
        clean,
        total=total,
        warm_start=start,
        sweeps=sweeps,
        shrinkage=shrinkage,
    )
    return model, rounds


def within_room(
    domain: Domain,
    tables: Sequence[Measurement],
    planned: Sequence[Clique],
    room: float,
) -> list[Measurement]:
    """Return tables whose model is no larger than the planned one, where that would be exceeded.

    A model is laid out by a greedy rule, and fewer pairs may lay out a larger one. Pairs that lost
    all their dependence then come back with a noise that says nothing: a fit leaves them alone, and
    they keep the layout that the plan was made for.

    Args:
        domain: Attributes and sizes.
        tables: Measurements to fit.
        planned: Cliques of the planned model, which has room.
        room: Cells that a model may have.
    """
    cliques = {table.clique for table in tables}
    if tree_cells(domain, cliques) <= room:
        return list(tables)
    silent_tables: list[Measurement] = []
    for clique in dict.fromkeys(planned):
        if clique not in cliques:
            zeros = np.zeros([domain.size_of(name) for name in clique])
            silent_tables.append(Measurement(clique, zeros, _UNKNOWN))
    return [*tables, *silent_tables]


def _cleaned_answers(
    first: Sequence[Measurement], total: float | None
) -> list[Measurement]:
    """Return the first answers as the plan reads them: dependent only beyond their noise."""
    margins = margins_of(first, total)
    clean = []
    for answer in first:
        if len(answer.clique) == 2:
            clean.append(cleaned(answer, margins, dependence(answer, margins)))
        else:
            possible = margins[answer.clique[0]].possible
            clean.append(Measurement(answer.clique, possible, answer.sigma))
    return clean


def _recorded(measured: Sequence[Measurement]) -> list[Measured]:
    """Return what a round measured, grouped by noise, the widest first."""
    records: list[Measured] = []
    for sigma in sorted({answer.sigma for answer in measured}, reverse=True):
        cliques = tuple(answer.clique for answer in measured if answer.sigma == sigma)
        records.append(Measured(cliques, sigma))
    return records


def design(
    domain: Domain,
    workload: Sequence[Clique],
    planned: Sequence[Measurement],
    rho: float,
    settings: TwoRoundSettings,
    allowed: Allowed = lambda cliques: True,
) -> dict[Clique, float]:
    """Choose the tables that measure what was planned, and triples, with the least error.

    **Guarantee**: reads noisy counts only, so it costs nothing (post-processing).

    Args:
        domain: Attributes and sizes.
        workload: Queries.
        planned: First answers of the planned pairs, and of the one-ways that no pair holds.
        rho: zCDP of the second round, in units of a marginal's sensitivity.
        settings: Public settings.
        allowed: Which cliques can be measured together.

    Returns:
        Standard deviation of each table's noise, in counts.
    """
    rows = estimate_total(planned)
    # Of separate tables, these precisions have the least L1 noise, sum n_t sigma_t.
    start = {answer.clique: domain.size(answer.clique) ** (2 / 3) for answer in planned}
    most_cells = rows / _ROWS_PER_CELL
    room = cells_in(settings.max_model_mb)
    tables = _tables(domain, list(start), most_cells, room, allowed)
    problem = _Design(domain, workload, planned, rows, tables)
    return problem.solve(start, rho, allowed)


def _tables(
    domain: Domain,
    planned: Sequence[Clique],
    most: float,
    room: float,
    allowed: Allowed,
) -> list[Clique]:
    """Return what was planned, and wider tables of `most` cells inside the planned model.

    Where all columns that the plan connects fit into one clique, the model may grow to that.
    """
    cliques = maximal_cliques(domain, planned)
    parts = _components(domain, planned)
    if sum(map(domain.size, parts)) <= room:
        cliques = parts

    tables = dict.fromkeys(planned)
    for width in range(3, _WIDEST + 1):
        # Triples are always offered: all of them are to be right.
        number = sum(comb(len(clique), width) for clique in cliques)
        if width > 3 and number > _MOST_TABLES:
            break
        wider = dict.fromkeys(_subsets(cliques, width))
        for table in wider:
            if domain.size(table) <= most and allowed([table]):
                tables[table] = None
    return list(tables)


def _subsets(cliques: Iterable[Clique], size: int) -> Iterator[Clique]:
    """Yield all sets of so many columns inside a clique; again where another holds it, too."""
    for clique in cliques:
        yield from combinations(clique, size)


def _components(domain: Domain, cliques: Sequence[Clique]) -> list[Clique]:
    """Return the sets of columns that the cliques connect."""
    parts: list[set[str]] = []
    for clique in cliques:
        met = [part for part in parts if not part.isdisjoint(clique)]
        apart = [part for part in parts if part.isdisjoint(clique)]
        parts = [*apart, set(clique).union(*met)]
    return [domain.canonical(tuple(part)) for part in parts]


def _targets(workload: Sequence[Clique]) -> list[Clique]:
    """Return the queries; of pairs, also the triples that they span.

    Rows that are drawn should have these right, too. A pair inside one is not a target of its own.
    """
    if any(len(query) > 2 for query in workload):
        return list(workload)
    pairs = dict.fromkeys(query for query in workload if len(query) == 2)
    near: dict[str, list[str]] = {}
    for first, second in pairs:
        near.setdefault(first, []).append(second)

    triples: list[Clique] = []
    for first, second in pairs:
        for third in near.get(second, []):
            if (first, third) in pairs:
                triples.append((first, second, third))
    spanned = set(_subsets(triples, 2))
    return [*triples, *(query for query in workload if query not in spanned)]


class _Design:
    """A Bayesian A-optimal design over effects, in precisions x_t = 1 / sigma_t^2 of the tables t.

    An effect A is what a marginal has beyond its own marginals, with d_A = prod (n_a - 1) degrees
    of freedom; a table t adds x_t n_A / n_t to its precision (models/estimate.py, `consistent`).
    Where p_A is what the first round, or the prior of a triple, knows of it, the design minimises
    the expected L1 error of the targets q, a convex function of x,

        sum_q w_q sqrt(sum_{A <= q} n_A d_A / (p_A + sum_{t >= A} x_t n_A / n_t)),  sum x = 2 rho,

    by the multiplicative algorithm (Silvey, Titterington & Torsney 1978), over tables that are
    added one by one where the error falls fastest: few tables fit better than many thin ones.
    """

    def __init__(
        self,
        domain: Domain,
        workload: Sequence[Clique],
        planned: Sequence[Measurement],
        rows: float,
        tables: Sequence[Clique],
    ) -> None:
        # p: the precision of each effect before the second round.
        prior = {answer.clique: 1 / max(answer.sigma, 1e-9) ** 2 for answer in planned}
        triples = dict.fromkeys(_subsets(tables, 3))
        for triple in triples:
            prior[triple] = max(1, _freedom(domain, triple)) / (_TRIPLE * rows) ** 2
        place = {effect: i for i, effect in enumerate(prior)}
        self.prior = np.array(list(prior.values()))

        # n_A d_A of each effect, and n_A / n_t of each table that holds it.
        cells = np.array([domain.size(effect) for effect in prior], np.float64)
        self.spread = cells * [max(1, _freedom(domain, effect)) for effect in prior]
        self.tables = list(tables)
        table_effects = [_effects(table, place) for table in tables]
        shares: list[Floats] = []
        for table, effects in zip(tables, table_effects, strict=True):
            shares.append(cells[list(effects)] / domain.size(table))
        self.informs = _sparse(shares, table_effects, len(prior))

        # Tables that cannot be measured together with those that were chosen.
        self.closed = list[int]()

        # w_q of each target, and the effects in it.
        queries = Counter(_effects(query, place) for query in _targets(workload))
        self.weights = np.array(list(queries.values()), np.float64)
        ones = [np.ones(len(effects)) for effects in queries]
        self.targets = _sparse(ones, list(queries), len(prior))

    def solve(
        self, start: Mapping[Clique, float], rho: float, allowed: Allowed
    ) -> dict[Clique, float]:
        """Return the noise of each table of the design, found from precisions to start at."""
        place = {table: i for i, table in enumerate(self.tables)}
        chosen = np.array([place[table] for table in start])
        x = np.array(list(start.values()))
        past: list[tuple[float, Ints, Floats]] = []
        while True:
            # The multiplicative algorithm: each precision grows with how far it lowers the error.
            informs = self.informs[chosen]
            for _ in range(_STEPS):
                x *= 2 * rho / x.sum()
                error, slope = self._error(informs.T @ x)
                x *= np.sqrt(informs @ slope)

            # Thin tables are dropped, unless nothing else measures what they do.
            least = _THIN * x.mean()
            stays = [
                precision >= least or not self._inside(table, chosen)
                for table, precision in zip(chosen, x, strict=True)
            ]
            chosen = chosen[stays]
            x = x[stays] * (2 * rho / x[stays].sum())
            past.append((error, chosen, x))

            # The table is added that lowers the error fastest, as long as that is worth while.
            gain = self.informs @ slope
            gain[chosen] = 0.0
            gain[self.closed] = 0.0
            best = self._best(gain, chosen, allowed)
            before, *earlier = past[max(0, len(past) - 1 - _PATIENCE)]
            is_stuck = len(past) > _PATIENCE and error > (1 - _LEAST_GAIN) * before
            if gain[best] <= 0 or is_stuck:
                break
            chosen = np.append(chosen, best)
            x = np.append(x, x.mean())

        # What was added in vain is left out again.
        chosen, x = earlier
        # Noise must not be so wide that no mechanism draws it.
        x = np.maximum(x, _FAINTEST * x.max())
        x *= 2 * rho / x.sum()
        sigmas: dict[Clique, float] = {}
        for table, precision in zip(chosen, x, strict=True):
            sigmas[self.tables[table]] = float(precision**-0.5)
        return sigmas

    def _best(self, gain: Floats, chosen: Ints, allowed: Allowed) -> int:
        """Return the table that gains most of those that can be measured with the ones chosen."""
        chosen_tables = [self.tables[table] for table in chosen]
        best = int(gain.argmax())
        while gain[best] > 0 and not allowed([*chosen_tables, self.tables[best]]):
            gain[best] = 0.0
            self.closed.append(best)
            best = int(gain.argmax())
        return best

    def _inside(self, table: int, chosen: Ints) -> bool:
        """Return whether a table lies inside another one."""
        columns = set(self.tables[table])
        return any(columns < set(self.tables[other_table]) for other_table in chosen)

    def _error(self, precision: Floats) -> tuple[float, Floats]:
        """Return the error expected, and how fast it falls with the precision of each effect."""
        total = self.prior + precision
        variance = self.spread / total
        errors = np.sqrt(self.targets @ variance)
        # An error of 0 would be divided by.
        relative_weights = self.weights / np.maximum(errors, 1e-300)
        slope = self.targets.T @ relative_weights * variance / total
        return float(self.weights @ errors), slope


def _freedom(domain: Domain, effect: Clique) -> int:
    """Return d_A, the degrees of freedom of an effect."""
    return prod(domain.size_of(name) - 1 for name in effect)


def _effects(clique: Clique, place: Mapping[Clique, int]) -> tuple[int, ...]:
    """Return the numbers of the effects that a clique holds."""
    effects = chain.from_iterable(combinations(clique, width) for width in (1, 2, 3))
    return tuple(place[effect] for effect in effects if effect in place)


def _sparse(
    values: Sequence[Floats], columns: Sequence[tuple[int, ...]], width: int
) -> Any:
    """Return a sparse matrix of so many columns, by the values of each row and their columns."""
    # Late: it costs a tenth of a second.
    from scipy.sparse import csr_matrix

    ends = np.cumsum([0, *map(len, columns)])
    flat = np.fromiter(chain.from_iterable(columns), np.int64, ends[-1])
    rows = (np.concatenate(values), flat, ends)
    return csr_matrix(rows, shape=(len(columns), width))


def plan(
    domain: Domain,
    weights: Mapping[Clique, float],
    pairs: Sequence[Measurement],
    rho: float,
    settings: TwoRoundSettings,
    *,
    no_room: Callable[[Sequence[Clique]], None] = lambda pairs: None,
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
        no_room: Called with the pairs that are worth their noise, and make the model too large.
        progress: Called with a text and the share of the work that is done.

    Returns:
        Pairs, the most useful first, then every one-way that no pair contains.
    """
    rehearsal = _Rehearsal(domain, weights, pairs, rho, settings)
    while rehearsal.step() or rehearsal.exchange():
        chosen = len(rehearsal.chosen)
        waiting = len(rehearsal.open) + len(rehearsal.left_out)
        progress("planning", 0.1 + 0.7 * chosen / (chosen + waiting))
    no_room(list(rehearsal.left_out))

    covered = set(chain.from_iterable(rehearsal.chosen))
    singles = [answer.clique for answer in pairs if len(answer.clique) == 1]
    uncovered = [clique for clique in singles if clique[0] not in covered]
    return [*rehearsal.chosen, *uncovered]


class _Rehearsal:
    """The second round, rehearsed: pairs that were chosen so far, and a model of their answers.

    Attributes:
        answers: First answers of the single columns, and of the pairs that were chosen.
        megabytes: What the model may take so far.
        open: Pairs that may be chosen.
        chosen: Pairs, with their scores when they were chosen.
        left_out: Pairs with which the model would be too large.
        scores: How much each open pair would improve the model.
        tried: Pairs for which an exchange was tried.
        brought: How many pairs exchanges brought in.
    """

    def __init__(
        self,
        domain: Domain,
        weights: Mapping[Clique, float],
        pairs: Sequence[Measurement],
        rho: float,
        settings: TwoRoundSettings,
    ) -> None:
        self.domain = domain
        self.weights = weights
        self.rho = rho
        self.settings = settings

        # As large as single columns make it, at 8 bytes a cell.
        single_megabytes = 8e-6 * tree_cells(domain, [])
        self.megabytes = min(single_megabytes, settings.max_model_mb)
        self.answers = [answer for answer in pairs if len(answer.clique) == 1]

        # A pair is open, chosen or left out.
        self.open: dict[Clique, Measurement] = {}
        for answer in pairs:
            if len(answer.clique) == 2:
                self.open[answer.clique] = answer
        self.chosen: dict[Clique, float] = {}
        self.left_out: dict[Clique, Measurement] = {}
        self.tried: set[Clique] = set()
        self.brought = 0

        # The model of single columns, and how much each pair would improve it.
        self.model = self._fit(None)
        # Computed all at once, as they are far apart in the model.
        self.model.marginals(list(self.open))
        self.scores: dict[Clique, float] = {
            pair: self._score(answer) for pair, answer in self.open.items()
        }

    def step(self) -> bool:
        """Add the pair that improves most, or a few where many are chosen; False if none does."""
        before = len(self.chosen)
        for _ in range(1 + before // _FEW):
            best = self._best()
            while best is None and self._grow():
                best = self._best()
            if best is None:
                break
            self.chosen[best] = self.scores.pop(best)
            self.answers.append(self.open.pop(best))
        has_grown = len(self.chosen) > before
        if has_grown:
            self.model = self._fit(self.model)
        return has_grown

    def _grow(self) -> bool:
        """Let the model be twice as large, and offer what then fits; False if it may not grow.

        Pairs that need little room so come first. By their scores alone, a few pairs of many cells
        would leave no room for all others (decision 0049).
        """
        most = self.settings.max_model_mb
        if not self.left_out or self.megabytes >= most:
            return False
        self.megabytes = min(2 * self.megabytes, most)
        chosen = list(self.chosen)
        offered = workloads.fitting(self.domain, self.left_out, chosen, self.megabytes)
        # Computed all at once, as they are far apart in the model.
        self.model.marginals(offered)
        for pair in offered:
            self.open[pair] = self.left_out.pop(pair)
            self.scores[pair] = self._score(self.open[pair])
        return True

    def exchange(self) -> bool:
        """Bring in a pair that was left out, if it is now worth more than what must go for it.

        A pair's score may grow as others are chosen. Each is tried once, and 16 come in at most.
        """
        if self.brought >= _EXCHANGES:
            return False
        untried = [pair for pair in self.left_out if pair not in self.tried]
        # Computed all at once, as they are far apart in the model.
        self.model.marginals(untried)
        scores = {pair: self._score(self.left_out[pair]) for pair in untried}
        for pair in sorted(scores, key=scores.__getitem__, reverse=True):
            if scores[pair] <= 0:
                return False
            self.tried.add(pair)
            lost = self._in_the_way(pair, scores[pair])
            if lost is not None:
                self._swap(pair, scores[pair], lost)
                return True
        return False

    def _swap(self, pair: Clique, score: float, lost: Sequence[Clique]) -> None:
        """Choose a pair that was left out, and leave out those that it replaces."""
        self.brought += 1
        self.chosen[pair] = score
        self.answers.append(self.left_out.pop(pair))
        staying: list[Measurement] = []
        for answer in self.answers:
            if answer.clique in lost:
                self.left_out[answer.clique] = answer
            else:
                staying.append(answer)
        self.answers = staying
        for clique in lost:
            del self.chosen[clique]
        self.model = self._fit(self.model)

    def _in_the_way(self, pair: Clique, score: float) -> list[Clique] | None:
        """Return chosen pairs that do not fit with one more; None if they are worth its score."""
        ranked = sorted(self.chosen, key=self.chosen.__getitem__, reverse=True)
        better = [clique for clique in ranked if self.chosen[clique] >= score]
        if not self._fits([pair, *better]):
            return None
        staying = [pair]
        lost = list[Clique]()

        def too_many(first: int) -> bool:
            return not self._fits([*staying, *ranked[:first]])

        while True:
            # How many of the best fit as well; by halves, so that few trees are laid out.
            more = bisect(range(1, len(ranked) + 1), False, key=too_many)
            if more == len(ranked):
                return lost

            # The next one does not, and goes.
            score -= self.chosen[ranked[more]]
            if score <= 0:
                return None
            staying = [*staying, *ranked[:more]]
            lost = [*lost, ranked[more]]
            ranked = ranked[more + 1 :]

    def _fits(self, pairs: Sequence[Clique]) -> bool:
        return workloads.fits(self.domain, pairs, self.megabytes)

    def _fit(self, start: MRF | None) -> MRF:
        """Fit a model to the answers so far."""
        return fit(
            self.domain,
            self.answers,
            warm_start=start,
            sweeps=self.settings.plan_sweeps,
            shrinkage=self.settings.plan_shrinkage,
        )

    def _score(self, answer: Measurement) -> float:
        """Return w_q times (how far the answer moves the marginal, minus the noise it would bring).

        Noise counts where the answer leads, as a fit takes none from cells without rows; and half,
        since what is measured is cleaned of noise once more (decision 0036).
        """
        before = self.model.marginal(answer.clique)
        after = block_step(self.model, answer, shrinkage=self.settings.plan_shrinkage)
        distance = float(np.abs(after - before).sum())

        # The noise of this pair, if it were the last that is chosen.
        sigma = sqrt((len(self.chosen) + 1) / (2 * self.rho))
        cell_noise = workloads.expected_l1(sigma, 1)
        noise = float(np.minimum(cell_noise, after).sum())
        return self.weights[answer.clique] * (distance - _NOISE * noise)

    def _offer(self, offered: Collection[Clique]) -> list[Clique]:
        """Return the best open pairs that fit, without those offered before; leave out the others.

        Their trees are laid out all at once, which takes a fraction of the time.
        """
        scores = {
            pair: score
            for pair, score in self.scores.items()
            if score > 0 and pair not in offered
        }
        best = nlargest(_AT_ONCE, scores, key=scores.__getitem__)
        cells = many_tree_cells(self.domain, list(self.chosen), best)
        is_fitting = cells <= cells_in(self.megabytes)
        for pair in compress(best, ~is_fitting):
            del self.scores[pair]
            self.left_out[pair] = self.open.pop(pair)
        return list(compress(best, is_fitting))

    def _best(self) -> Clique | None:
        """Return the best pair that fits; None if no pair improves the model.

        Scores mostly fall as pairs are chosen, so only the highest are computed again.
        """
        # The best first; of equal ones, that which came first.
        ranked = [
            (-score, place, pair)
            for place, (pair, score) in enumerate(self.scores.items())
            if score > 0
        ]
        heapify(ranked)
        fitting: set[Clique] = set()
        fresh: set[Clique] = set()
        while ranked:
            _, place, top = ranked[0]
            if top not in self.open:
                heappop(ranked)
            elif top not in fitting:
                fitting.update(self._offer(fitting))
            elif top in fresh:
                return top
            else:
                score = self._score(self.open[top])
                self.scores[top] = score
                fresh.add(top)
                heappop(ranked)
                if score > 0:
                    heappush(ranked, (-score, place, top))
        return None
