"""Two rounds of marginals with a plan between them: what TwoRound and its like share.

1. Measure every one- and two-way marginal of the workload's closure, all with the same noise, for
   `pairs_share` of the budget.
2. Plan: add, one by one, the pair that would improve the workload most, less half of the noise
   that it would bring (McKenna, Mullins, Sheldon & Miklau 2022, AIM, 4.1: weights and score;
   decision 0060: how much noise). What the model may take grows, as in AIM, from single columns to
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import comb, prod, sqrt
from typing import Any, TypeAlias

import numpy as np

from siloweave.core.model import Measured
from siloweave.errors import number
from siloweave.models.estimate import (
    Measurement,
    block_step,
    estimate_total,
    fit,
)
from siloweave.models.junction_tree import cells_in, maximal_cliques, tree_cells
from siloweave.models.mrf import MRF
from siloweave.models.pair_noise import cleaned, dependence, margins_of, without_noise
from siloweave.progress import Progress, silent
from siloweave.protocols.marginals import MarginalSettings
from siloweave.protocols.workload import check_capacity, expected_l1, fits, fitting, weights_of
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.codes import Clique, Domain

_TRIPLE = 0.007  # L2 norm of a triple's effect beyond the model of pairs, as a share of the rows
_WIDEST, _MOST_TABLES = 5, 20_000  # columns of a table, and tables of one width to choose from
_ROWS_PER_CELL = 4.0  # of a table wider than a pair, at least
_STEPS = 12  # of the multiplicative algorithm for each table that is added
_PATIENCE, _LEAST_GAIN = 8, 0.004  # stop where so many tables lower the error by less than that
_FAINTEST = 1 / 256  # of the largest precision, what a table has at least
_THIN = 0.1  # of the mean precision; a table with less that lies inside another is dropped
_FEW = 120  # pairs that are chosen one by one; of so many more, one more is added at a time
_EXCHANGES = 16  # pairs that come in for others, at most: each takes as long as a fit
_NOISE = 0.5  # times the noise that it would bring, a planned pair moves its marginal
_PAIR_SWEEPS = 15  # of the fit that interactions are shrunk towards
_UNKNOWN = 1e12  # rows: the noise of a table that says nothing

Measure: TypeAlias = Callable[[Sequence[Clique], Sequence[float], float], list[Measurement]]
"""(cliques, sigmas, rho): measure each clique with the sigma wanted, a row paying rho for all."""

Allowed: TypeAlias = Callable[[Sequence[Clique]], bool]
"""Whether these tables can be measured together."""


@dataclass(frozen=True)
class TwoRoundSettings(MarginalSettings):
    """Settings of every method that measures in two rounds.

    Attributes:
        pairs_share: Share of the budget for the first round, all pairs.
        plan_sweeps, plan_shrinkage: Of the fits by which it is planned, see models/estimate.py.
        final_sweeps, shrinkage: Of the last fit.
    """

    pairs_share: float = 0.3
    plan_sweeps: int = 1
    plan_shrinkage: float = 0.7
    final_sweeps: int = 60
    shrinkage: float = 0.5

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
    total: float | None = None,
    allowed: Allowed = lambda cliques: True,
    no_room: Callable[[Sequence[Clique]], None] = lambda pairs: None,
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
        total: Number of rows where it is public; if None, it is estimated from the measurements.
        allowed: Which cliques `measure` can measure together.
        no_room: As of `plan`.
        progress: Called with a text and the share that is done.

    Raises:
        CapacityError: A query does not fit the model.
    """
    check_capacity(domain, workload, settings.max_model_mb)
    weights = weights_of(domain, workload)
    progress("counting all pairs", 0.0)
    small = [q for q in weights if len(q) <= 2 and allowed([q])]
    spent = settings.pairs_share * rho
    pairs = measure(small, [unit * sqrt(len(small) / (2 * spent))] * len(small), spent)
    rest = (1 - settings.pairs_share) * rho
    shrunk = _cleaned_answers(pairs, total)
    chosen = plan(
        domain, weights, shrunk, rest / unit**2, settings, no_room=no_room, progress=progress
    )
    seen = set(chosen)
    planned = [m for m in pairs if m.clique in seen]
    tables = design(domain, workload, planned, rest / unit**2, settings, allowed)
    progress("measuring what was planned", 0.8)
    measured = measure(list(tables), list(tables.values()), rest)
    rounds = _recorded(pairs) + _recorded(measured)
    progress("fitting", 0.9)
    again = [m for m in pairs if len(m.clique) == 1 or m.clique in seen]

    laid_out = [m.clique for m in (*again, *measured)]
    room = cells_in(settings.max_model_mb)

    def refit(tables: Sequence[Measurement]) -> MRF:
        held = within_room(domain, tables, laid_out, room)
        return fit(domain, held, sweeps=_PAIR_SWEEPS, shrinkage=settings.shrinkage)

    clean = within_room(domain, without_noise(again, measured, total, refit), laid_out, room)
    singles = [m for m in clean if len(m.clique) == 1]
    sweeps, shrinkage = settings.final_sweeps, settings.shrinkage
    # From the single columns on, which the fit holds to; from nothing 60 sweeps are too few.
    start = fit(domain, singles, total=total, sweeps=sweeps, shrinkage=shrinkage)
    model = fit(domain, clean, total=total, warm_start=start, sweeps=sweeps, shrinkage=shrinkage)
    return model, rounds


def within_room(
    domain: Domain, tables: Sequence[Measurement], planned: Sequence[Clique], room: float
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
    cliques = {m.clique for m in tables}
    if tree_cells(domain, cliques) <= room:
        return list(tables)
    silent_tables = [
        Measurement(clique, np.zeros([domain.size_of(a) for a in clique]), _UNKNOWN)
        for clique in dict.fromkeys(planned)
        if clique not in cliques
    ]
    return [*tables, *silent_tables]


def _cleaned_answers(first: Sequence[Measurement], total: float | None) -> list[Measurement]:
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
    """What a round measured, grouped by noise, the widest first."""
    return [
        Measured(tuple(m.clique for m in measured if m.sigma == sigma), sigma)
        for sigma in sorted({m.sigma for m in measured}, reverse=True)
    ]


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
    start = {m.clique: domain.size(m.clique) ** (2 / 3) for m in planned}
    room = cells_in(settings.max_model_mb)
    tables = _tables(domain, list(start), rows / _ROWS_PER_CELL, room, allowed)
    return _Design(domain, workload, planned, rows, tables).solve(start, rho, allowed)


def _tables(
    domain: Domain, planned: Sequence[Clique], most: float, room: float, allowed: Allowed
) -> list[Clique]:
    """What was planned, and wider tables of `most` cells that lie inside the planned model.

    Where all columns that the plan connects fit into one clique, the model may grow to that.
    """
    cliques, parts = maximal_cliques(domain, planned), _components(domain, planned)
    if sum(map(domain.size, parts)) <= room:
        cliques = parts
    found = dict.fromkeys(planned)
    for size in range(3, _WIDEST + 1):
        if size > 3 and sum(comb(len(c), size) for c in cliques) > _MOST_TABLES:
            break
        wider = dict.fromkeys(t for c in cliques for t in combinations(c, size))
        found |= dict.fromkeys(t for t in wider if domain.size(t) <= most and allowed([t]))
    return list(found)


def _components(domain: Domain, cliques: Sequence[Clique]) -> list[Clique]:
    """Columns that the cliques connect."""
    parts: list[set[str]] = []
    for clique in cliques:
        met = [p for p in parts if not p.isdisjoint(clique)]
        parts = [p for p in parts if p.isdisjoint(clique)] + [set(clique).union(*met)]
    return [domain.canonical(tuple(p)) for p in parts]


def _targets(workload: Sequence[Clique]) -> list[Clique]:
    """Queries; of pairs, also the triples that they span, which rows drawn should have right."""
    if any(len(q) > 2 for q in workload):
        return list(workload)
    pairs = dict.fromkeys(q for q in workload if len(q) == 2)
    near: dict[str, list[str]] = {}
    for a, b in pairs:
        near.setdefault(a, []).append(b)
    triples = [(a, b, c) for a, b in pairs for c in near.get(b, []) if (a, c) in pairs]
    spanned = {pair for t in triples for pair in combinations(t, 2)}
    return [*triples, *(q for q in workload if q not in spanned)]


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
        known = {m.clique: 1 / max(m.sigma, 1e-9) ** 2 for m in planned}
        for triple in dict.fromkeys(q for t in tables for q in combinations(t, 3)):
            known[triple] = max(1, _freedom(domain, triple)) / (_TRIPLE * rows) ** 2
        place = {effect: i for i, effect in enumerate(known)}
        cells = np.array([domain.size(effect) for effect in known], np.float64)
        self.known = np.array(list(known.values()))
        self.spread = cells * [max(1, _freedom(domain, effect)) for effect in known]
        self.tables, self.closed = list(tables), list[int]()
        sizes = [domain.size(t) for t in tables]
        below = [_effects(t, place) for t in tables]
        self.seen = _sparse(
            [cells[list(a)] / n for a, n in zip(below, sizes, strict=True)], below, len(known)
        )
        queries = Counter(_effects(q, place) for q in _targets(workload))
        self.weights = np.array(list(queries.values()), np.float64)
        self.asked = _sparse([np.ones(len(q)) for q in queries], list(queries), len(known))

    def solve(
        self, start: Mapping[Clique, float], rho: float, allowed: Allowed
    ) -> dict[Clique, float]:
        """The noise of each table of the design, found from precisions to start at."""
        place = {t: i for i, t in enumerate(self.tables)}
        chosen, x = np.array([place[t] for t in start]), np.array(list(start.values()))
        past: list[tuple[float, Ints, Floats]] = []
        while True:
            seen = self.seen[chosen]
            for _ in range(_STEPS):
                x *= 2 * rho / x.sum()
                error, slope = self._error(seen.T @ x)
                x *= np.sqrt(seen @ slope)
            kept = [p >= _THIN * x.mean() or not self._inside(i, chosen)
                    for i, p in zip(chosen, x, strict=True)]  # fmt: skip
            chosen, x = chosen[kept], x[kept] * (2 * rho / x[kept].sum())
            past.append((error, chosen, x))
            gain = self.seen @ slope
            gain[chosen] = 0.0
            gain[self.closed] = 0.0
            best = self._best(gain, chosen, allowed)
            before, *earlier = past[max(0, len(past) - 1 - _PATIENCE)]
            if gain[best] <= 0 or (len(past) > _PATIENCE and error > (1 - _LEAST_GAIN) * before):
                break
            chosen, x = np.append(chosen, best), np.append(x, x.mean())
        chosen, x = earlier
        x = np.maximum(x, _FAINTEST * x.max())  # else noise that no mechanism draws
        x *= 2 * rho / x.sum()
        return {self.tables[i]: float(p**-0.5) for i, p in zip(chosen, x, strict=True)}

    def _best(self, gain: Floats, chosen: Ints, allowed: Allowed) -> int:
        """The table that gains most of those that can be measured with the ones chosen."""
        now = [self.tables[i] for i in chosen]
        while gain[best := int(gain.argmax())] > 0 and not allowed([*now, self.tables[best]]):
            gain[best] = 0.0
            self.closed.append(best)
        return best

    def _inside(self, table: int, chosen: Ints) -> bool:
        """Whether a table lies inside another one."""
        columns = set(self.tables[table])
        return any(columns < set(self.tables[i]) for i in chosen)

    def _error(self, precision: Floats) -> tuple[float, Floats]:
        """The error expected, and how fast it falls with the precision of each effect."""
        total = self.known + precision
        variance = self.spread / total
        errors = np.sqrt(self.asked @ variance)
        slope = self.asked.T @ (self.weights / np.maximum(errors, 1e-300)) * variance / total
        return float(self.weights @ errors), slope


def _freedom(domain: Domain, effect: Clique) -> int:
    return prod(domain.size_of(a) - 1 for a in effect)


def _effects(clique: Clique, place: Mapping[Clique, int]) -> tuple[int, ...]:
    """The numbers of the effects that a clique holds."""
    below = chain.from_iterable(combinations(clique, k) for k in (1, 2, 3))
    return tuple(place[a] for a in below if a in place)


def _sparse(values: Sequence[Floats], columns: Sequence[tuple[int, ...]], width: int) -> Any:
    """A sparse matrix, by its rows."""
    from scipy.sparse import csr_matrix  # late: it costs a tenth of a second

    ends = np.cumsum([0, *map(len, columns)])
    flat = np.fromiter(chain.from_iterable(columns), np.int64, ends[-1])
    return csr_matrix((np.concatenate(values), flat, ends), shape=(len(columns), width))


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
        chosen, left = len(rehearsal.chosen), len(rehearsal.open) + len(rehearsal.left_out)
        progress("planning", 0.1 + 0.7 * chosen / (chosen + left))
    no_room(list(rehearsal.left_out))
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
        self.megabytes = min(8e-6 * tree_cells(domain, []), settings.max_model_mb)  # so far
        self.answers = [m for m in pairs if len(m.clique) == 1]
        self.open: dict[Clique, Measurement] = {m.clique: m for m in pairs if len(m.clique) == 2}
        self.chosen: dict[Clique, float] = {}  # and their scores when they were chosen
        self.left_out: dict[Clique, Measurement] = {}  # as the model would be too large
        self.tried: set[Clique] = set()  # in exchanges
        self.brought = 0  # by them
        self.model = self._fit(None)
        self.scores: dict[Clique, float] = {q: self._score(m) for q, m in self.open.items()}

    def step(self) -> bool:
        """Add the pair that improves most, or a few where many are chosen; False if none does."""
        before = len(self.chosen)
        for _ in range(1 + before // _FEW):
            while (best := self._best()) is None and self._grow():
                pass
            if best is None:
                break
            self.chosen[best] = self.scores.pop(best)
            self.answers.append(self.open.pop(best))
        if grown := len(self.chosen) > before:
            self.model = self._fit(self.model)
        return grown

    def _grow(self) -> bool:
        """Let the model be twice as large, and offer what then fits; False if it may not grow.

        Pairs that need little room so come first. By their scores alone, a few pairs of many cells
        would leave no room for all others (decision 0049).
        """
        most = self.settings.max_model_mb
        if not self.left_out or self.megabytes >= most:
            return False
        self.megabytes = min(2 * self.megabytes, most)
        back = fitting(self.domain, self.left_out, list(self.chosen), self.megabytes)
        self.model.marginals(back)  # all at once, as they are far apart
        self.open |= {q: self.left_out.pop(q) for q in back}
        self.scores |= {q: self._score(self.open[q]) for q in back}
        return True

    def exchange(self) -> bool:
        """Bring in a pair that was left out, if it is now worth more than what must go for it.

        A pair's score may grow as others are chosen. Each is tried once, and 16 come in at most.
        """
        if self.brought >= _EXCHANGES:
            return False
        new = {q: m for q, m in self.left_out.items() if q not in self.tried}
        self.model.marginals(list(new))  # all at once, as they are far apart
        scores = {q: self._score(m) for q, m in new.items()}
        for pair in sorted(scores, key=scores.__getitem__, reverse=True):
            if scores[pair] <= 0:
                return False
            self.tried.add(pair)
            if (lost := self._in_the_way(pair, scores[pair])) is not None:
                break
        else:
            return False
        self.brought += 1
        self.chosen[pair] = scores[pair]
        self.answers.append(self.left_out.pop(pair))
        self.left_out |= {m.clique: m for m in self.answers if m.clique in lost}
        self.answers = [m for m in self.answers if m.clique not in lost]
        self.chosen = {q: score for q, score in self.chosen.items() if q not in lost}
        self.model = self._fit(self.model)
        return True

    def _in_the_way(self, pair: Clique, score: float) -> list[Clique] | None:
        """Chosen pairs that do not fit together with one more; None if they are worth its score."""
        ranked = sorted(self.chosen, key=self.chosen.__getitem__, reverse=True)
        stay = [q for q in ranked if self.chosen[q] >= score]
        if not self._fits([pair, *stay]):
            return None
        kept, lost = [pair], list[Clique]()

        def too_many(first: int) -> bool:
            return not self._fits([*kept, *ranked[:first]])

        while True:  # by halves, so that few trees are laid out
            more = bisect(range(1, len(ranked) + 1), False, key=too_many)
            if more == len(ranked):
                return lost
            if (score := score - self.chosen[ranked[more]]) <= 0:
                return None
            kept, lost = [*kept, *ranked[:more]], [*lost, ranked[more]]
            ranked = ranked[more + 1 :]

    def _fits(self, pairs: Sequence[Clique]) -> bool:
        return fits(self.domain, pairs, self.megabytes)

    def _fit(self, start: MRF | None) -> MRF:
        sweeps, shrinkage = self.settings.plan_sweeps, self.settings.plan_shrinkage
        return fit(self.domain, self.answers, warm_start=start, sweeps=sweeps, shrinkage=shrinkage)

    def _score(self, answer: Measurement) -> float:
        """w_q times (how far the answer moves the marginal, minus the noise it would bring).

        Noise counts where the answer leads, as a fit takes none from cells without rows; and half,
        since what is measured is cleaned of noise once more (decision 0060).
        """
        q, now = answer.clique, self.model.marginal(answer.clique)
        moved = block_step(self.model, answer, shrinkage=self.settings.plan_shrinkage)
        sigma = sqrt((len(self.chosen) + 1) / (2 * self.rho))
        noise = float(np.minimum(expected_l1(sigma, 1), moved).sum())
        return self.weights[q] * (float(np.abs(moved - now).sum()) - _NOISE * noise)

    def _best(self) -> Clique | None:
        """The best pair that fits; scores mostly fall, so only the highest are computed again."""
        fresh: set[Clique] = set()
        while self.scores:
            top = max(self.scores, key=self.scores.__getitem__)
            if self.scores[top] <= 0:
                return None
            if not self._fits([*self.chosen, top]):
                del self.scores[top]
                self.left_out[top] = self.open.pop(top)
            elif top in fresh:
                return top
            else:
                self.scores[top] = self._score(self.open[top])
                fresh.add(top)
        return None
