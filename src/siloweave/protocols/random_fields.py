"""A private Markov random field of one owner's rows: PrivMRF's steps over noisy answers.

Cai, Lei, Wei & Xiao 2021, "Data synthesis via differentially private Markov random fields" (VLDB
14(11)). `private_field` asks for noisy R-scores of pairs, grows a graph by them, measures marginals
inside its cliques, and refines: it asks how wrong the model is on sampled marginals, measures the
worst, and fits again. It sees nothing but answers. Who gives them is an argument, so that it runs
at a coordinator that asks a curator (methods/privmrf) as well as at a party that has rows of its
own and a share of the budget (`OwnAnswers`).

Where it departs from the paper: noise is discrete; the number of rows is paid for as a small part
of the R-scores' share (the reference code's noise for it costs ten times the whole budget, and it
then uses the exact number all the same), under both relations; the model is fitted by
models/estimate.py, whose shrinkage takes the place of stopping mirror descent early, and is less in
the last fit, as the reference code stops later there (decision 0055); a candidate that was measured
is not measured again. Graph and marginals: models/field_graph.py.

**Guarantee**: rows, add/remove or replace-one as the owner's budget says, towards everyone who sees
an answer or what follows from it. Of an answer over k numbers each moves by at most D if a row
does, so the vector by sqrt(k) D in L2: D is 2 or 3 for R-scores (`r_score_sensitivity` has the
proof), 1 or 2 for L1 errors, 1 or sqrt 2 for a marginal. Everything else is computed from answers
(post-processing). Assumed public: domain and the pairs that are scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf, sqrt
from typing import Any, Protocol

import numpy as np

from siloweave.core.model import Measured
from siloweave.errors import number, whole
from siloweave.federation.messages import Array, Released
from siloweave.federation.site import Site
from siloweave.models import field_graph
from siloweave.models.estimate import Measurement, fit
from siloweave.models.junction_tree import cells_in, tree_cells
from siloweave.models.mrf import MRF
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import (
    Neighbours,
    l1_score_sensitivity,
    marginal_sensitivity,
    r_score_sensitivity,
)
from siloweave.privacy.events import Gaussian
from siloweave.progress import Progress, silent
from siloweave.protocols.secure_sums import neighbours_of, release_noisy
from siloweave.statistics.marginals import marginal, r_score
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, CountedRows, Domain
from siloweave.tables.keys import Key, fold_in, generator

# Noise is never narrower than this, see SharedGaussian.
_LEAST_SIGMA = 1.0
# Part of the R-scores' share that counts the rows.
_ROWS_PART = 0.1
# Part of the shrinkage in the last fit: no choice follows that its noise could mislead.
_LAST_SHRINKAGE = 0.2


@dataclass(frozen=True)
class FieldSettings:
    """Settings of a private Markov random field; defaults are the published ones.

    Attributes:
        scores_share: Share of the budget for R-scores and the number of rows.
        errors_share: Share for the L1 errors of candidates; what is left measures marginals.
        theta: A marginal is useful if its mean count is so many times the mean size of its noise.
        size_penalty: What a cell of the model costs in the graph's objective, as a share of the
            rows. It decides which edges come first; the limits alone end the growth.
        clique_cells: Cells of the graph's largest clique at most.
        graph_cells: Cells of all its maximal cliques at most.
        refined: Marginals that are measured while refining, as a multiple of the columns.
        refine_steps: Fits while refining at most; half as many as columns if that is less.
        candidates: Marginals whose error is asked for in a step, at most.
        widest: Columns of a marginal at most. The paper has 6, and 10 where columns are binary.
        sweeps: Sweeps of each fit.
        final_sweeps: Sweeps of the last fit.
        shrinkage: Entropy per unit of noise in the fits; a fifth of it in the last.
    """

    scores_share: float = 0.1
    errors_share: float = 0.1
    theta: float = 6.0
    size_penalty: float = 1e-8
    clique_cells: float = 1e7
    graph_cells: float = 5e7
    refined: float = 0.8
    refine_steps: int = 8
    candidates: int = 400
    widest: int = 6
    sweeps: int = 10
    final_sweeps: int = 60
    shrinkage: float = 0.5

    def __post_init__(self) -> None:
        """Raise InputError where a setting is out of bounds."""
        for name in ("scores_share", "errors_share"):
            number(name, getattr(self, name), 0, 0.5, "()")
        for name in ("size_penalty", "refined"):
            number(name, getattr(self, name), 0, inf, "[)")
        for name in ("theta", "shrinkage"):
            number(name, getattr(self, name), 0, inf, "()")
        for name in ("clique_cells", "graph_cells"):
            number(name, getattr(self, name), 1, inf, "[)")
        for name in ("refine_steps", "candidates", "widest", "sweeps", "final_sweeps"):
            whole(name, getattr(self, name), 1)


class Answers(Protocol):
    """Noisy answers about one owner's rows, who pays for each before it is drawn.

    `sigma` is the noise of every number, in rows.
    """

    @property
    def neighbours(self) -> Neighbours:
        """Those of the owner's budget."""

    def scores(self, pairs: Sequence[Clique], sigma: float) -> Floats:
        """Return the R-score of every pair, see `statistics.marginals.r_score`."""

    def errors(self, model: MRF, cliques: Sequence[Clique], sigma: float) -> Floats:
        """Return the L1 distance of every marginal from the model's, in rows."""

    def tables(self, cliques: Sequence[Clique], sigma: float) -> list[Floats]:
        """Return the marginals themselves, axes in domain order."""


@dataclass(frozen=True)
class PrivateField:
    """A field that `private_field` learned, all of it paid for.

    Attributes:
        model: Fitted to all answers.
        edges: Of the graph that was grown.
        cliques: Its maximal ones, once it is triangulated.
        scores: Noisy R-score of every pair, in rows.
        measured: Every noisy marginal.
        rounds: What each round measured.
    """

    model: MRF
    edges: Sequence[Clique]
    cliques: Sequence[Clique]
    scores: Mapping[Clique, float]
    measured: Sequence[Measurement]
    rounds: Sequence[Measured]


@dataclass
class _Run:
    """The steps of one fit, and what it has measured so far.

    Attributes:
        answers, domain, rho, settings, megabytes: As of `private_field`.
        unit: L2 sensitivity of a marginal.
        measured: Every noisy marginal so far.
        rounds: What each round measured.
    """

    answers: Answers
    domain: Domain
    rho: float
    settings: FieldSettings
    megabytes: float
    unit: float
    measured: list[Measurement] = field(default_factory=list)
    rounds: list[Measured] = field(default_factory=list)

    def measure(self, cliques: Sequence[Clique], sigma: float) -> None:
        """Measure marginals, all with the same noise."""
        tables = self.answers.tables(cliques, sigma)
        for clique, table in zip(cliques, tables, strict=True):
            self.measured.append(Measurement(clique, table, sigma))
        self.rounds.append(Measured(tuple(cliques), sigma))

    def fit(self, start: MRF | None, sweeps: int, share: float = 1.0) -> MRF:
        """Fit a model to all that is measured, with a share of the settings' shrinkage."""
        shrinkage = share * self.settings.shrinkage
        return fit(
            self.domain,
            self.measured,
            warm_start=start,
            sweeps=sweeps,
            shrinkage=shrinkage,
        )

    def first(self, wanted: Sequence[Clique], most: int) -> list[Clique]:
        """Return the first of some marginals with which the model stays within memory."""
        limit = cells_in(self.megabytes)
        measured = [answer.clique for answer in self.measured]
        chosen = list[Clique]()
        for clique in wanted:
            if len(chosen) == most:
                break
            cliques = [*measured, *chosen, clique]
            if tree_cells(self.domain, cliques) <= limit:
                chosen.append(clique)
        return chosen

    def graph(
        self, pairs: Sequence[Clique], rho: float
    ) -> tuple[float, dict[Clique, float]]:
        """Return the number of rows and R-scores, noisy, for so much zCDP.

        There is no score where there is no pair.
        """
        # The smallest column counts the rows: its sum has the least noise.
        smallest = min(self.domain.names, key=self.domain.size_of)
        rows_rho = _ROWS_PART * rho
        rows_sigma = _sigma_for(self.unit, 1, rows_rho)
        self.measure([(smallest,)], rows_sigma)
        rows = max(1.0, float(self.measured[0].counts.sum()))
        if not pairs:
            return rows, {}

        unit = r_score_sensitivity(self.answers.neighbours)
        sigma = _sigma_for(unit, len(pairs), rho - rows_rho)
        scores = self.answers.scores(pairs, sigma)
        return rows, dict(zip(pairs, scores.tolist(), strict=True))

    def refine(
        self, weights: dict[Clique, float], plan: _Plan, rng: np.random.Generator
    ) -> MRF:
        """Measure what the model answers worst, in steps, and fit after each but the last."""
        model = self.fit(None, self.settings.sweeps)
        unmeasured = plan.refined
        unit = l1_score_sensitivity(self.answers.neighbours)
        for step in range(plan.steps, 0, -1):
            # How wrong the model is on a sample of the candidates.
            sample = _sampled(weights, self.settings.candidates, rng)
            step_rho = plan.errors_rho / plan.steps
            sigma = _sigma_for(unit, len(sample), step_rho)
            errors = self.answers.errors(model, sample, sigma)

            # The worst of them, an even part of what is still to be measured in each step.
            order = np.argsort(-errors, kind="stable")
            worst = [sample[place] for place in order]
            most = -(-unmeasured // step)
            chosen = self.first(worst, most)

            # Others are asked about next: weights of these are halved, or gone once measured.
            for clique in sample:
                weights[clique] /= 2
            for clique in chosen:
                del weights[clique]
            if not chosen:
                break
            self.measure(chosen, plan.sigma)
            unmeasured -= len(chosen)
            if step > 1:
                model = self.fit(model, self.settings.sweeps)
        return model


@dataclass(frozen=True)
class _Plan:
    """How what is left of the budget is spent, once graph and candidates are known.

    Attributes:
        refined: Marginals that are measured while refining.
        steps: How often the worst are asked for and measured.
        errors_rho: zCDP of all questions for errors.
        sigma: Noise of every marginal.
    """

    refined: int
    steps: int
    errors_rho: float
    sigma: float

    @classmethod
    def of(
        cls, run: _Run, initial: int, candidates: int, rho: float, errors_rho: float
    ) -> _Plan:
        """Plan to refine after so many initial marginals, with so many candidates.

        Args:
            run: Of the fit.
            initial: Marginals that are measured first.
            candidates: Marginals that may be measured while refining.
            rho: zCDP that is left for all of it.
            errors_rho: Its part for questions for errors, if any are asked.
        """
        columns = len(run.domain.names)
        settings = run.settings
        refined = min(round(settings.refined * columns), candidates)
        steps = min(max(1, columns // 2), settings.refine_steps, refined)
        # Where none or all are measured, no candidate need be asked about.
        if refined in (0, candidates):
            steps = 0
            errors_rho = 0.0
        sigma = _sigma_for(run.unit, initial + refined, rho - errors_rho)
        return cls(refined, steps, errors_rho, sigma)


def _sigma_for(unit: float, numbers: int, rho: float) -> float:
    """Return the noise on each of so many numbers, which together cost `rho`.

    One row moves each of them by `unit`.
    """
    sigma = unit * sqrt(numbers / (2 * rho))
    return max(_LEAST_SIGMA, sigma)


def _sampled(
    weights: Mapping[Clique, float], most: int, rng: np.random.Generator
) -> list[Clique]:
    """Draw marginals by their weights, in the order that they have; all if they are few."""
    cliques = list(weights)
    if len(cliques) <= most:
        return cliques
    p = np.array(list(weights.values()))
    places = rng.choice(len(cliques), most, replace=False, p=p / p.sum())
    return [cliques[place] for place in np.sort(places)]


def private_field(
    answers: Answers,
    domain: Domain,
    pairs: Sequence[Clique],
    rho: float,
    settings: FieldSettings,
    *,
    megabytes: float,
    key: Key,
    progress: Progress = silent,
) -> PrivateField:
    """Learn a Markov random field of one owner's rows from noisy answers alone.

    Args:
        answers: Who answers, and pays; see `Answers`.
        domain: Attributes and sizes of the owner's rows.
        pairs: Of which R-scores are asked, and which may become edges; all for PrivMRF.
        rho: zCDP that a row pays for all answers together; the owner's ledger is the limit.
        settings: Public settings.
        megabytes: Bound on the model's junction tree, at 8 bytes a cell. The graph keeps to it
            too, where it is below the settings' own limits.
        key: For the sample of candidates; no noise comes from it.
        progress: Called with a text and the share that is done.

    Returns:
        The model, and what a larger model can be built from.
    """
    unit = marginal_sensitivity(answers.neighbours, norm="l2")
    run = _Run(answers, domain, rho, settings, megabytes, unit)

    # Noisy R-scores; without a pair only the rows are counted, and the rest is for marginals.
    progress("scoring pairs", 0.0)
    scores_rho = settings.scores_share * rho
    rows, scores = run.graph(pairs, scores_rho)
    if not pairs:
        scores_rho = _ROWS_PART * scores_rho
    errors_rho = settings.errors_share * rho

    # A graph that is grown by them, within memory.
    progress("growing the graph", 0.1)
    limit = cells_in(megabytes)
    limits = field_graph.GraphLimits(
        min(settings.clique_cells, limit),
        min(settings.graph_cells, limit),
        settings.size_penalty * rows,
    )
    edges, cliques = field_graph.grow_graph(domain, scores, limits)

    # Marginals inside its cliques, large enough to be useful, and every column at least once.
    most = round((1 + settings.refined) * len(domain.names))
    sigma = _sigma_for(unit, most, rho - scores_rho - errors_rho)
    useful = field_graph.most_useful_cells(rows, sigma, settings.theta)
    shares = {pair: score / rows for pair, score in scores.items()}
    wanted = field_graph.initial_marginals(
        domain, cliques, shares, useful, settings.widest
    )
    initial = run.first(wanted, len(wanted))
    covered = set(chain.from_iterable(initial))
    initial += [(name,) for name in domain.names if name not in covered]

    # Candidates, of which those are measured later on which the model is wrong.
    rng = generator(fold_in(key, "candidates"))
    weights = field_graph.candidate_weights(
        domain, cliques, useful, settings.widest, rng
    )
    for clique in initial:
        weights.pop(clique, None)
    plan = _Plan.of(run, len(initial), len(weights), rho - scores_rho, errors_rho)

    # Measure, in steps that refine the model where candidates must be chosen.
    progress("measuring", 0.2)
    if plan.steps:
        run.measure(initial, plan.sigma)
        progress("refining", 0.3)
        refined_model = run.refine(weights, plan, rng)
    else:
        candidates = run.first(list(weights), plan.refined)
        run.measure([*initial, *candidates], plan.sigma)
        refined_model = None
    progress("fitting", 0.9)
    model = run.fit(refined_model, settings.final_sweeps, _LAST_SHRINKAGE)
    return PrivateField(model, edges, cliques, scores, run.measured, run.rounds)


# The owner's side


def noisy_scores(
    pairs: Sequence[Clique], sigma: float, site: Site[CountedRows]
) -> Released[Array]:
    """Pay for R-scores, then draw them: whole rows, which may be negative or above n.

    **Guarantee**: one event for all of them, see the top of this file.
    """
    exact = np.array([r_score(site.rows, pair) for pair in pairs], dtype=np.int64)
    unit = r_score_sensitivity(neighbours_of(site))
    event = Gaussian(sigma=sigma, sensitivity=sqrt(len(pairs)) * unit)
    label = f"R-scores of {len(pairs)} pairs of columns"
    return release_noisy(site, event, label, exact)


def noisy_errors(
    model: MRF, cliques: Sequence[Clique], sigma: float, site: Site[CountedRows]
) -> Released[Array]:
    """Pay for L1 distances of marginals from a model's, then draw them, in whole rows.

    The model's counts are rounded, so that distances are whole numbers.

    **Guarantee**: one event for all of them, see the top of this file. The model must not depend
    on rows but by what was paid for.
    """
    exact = np.zeros(len(cliques), dtype=np.int64)
    # One by one, as each may be as large as a model.
    for index, clique in enumerate(cliques):
        counts = marginal(site.rows, clique)
        model_counts = np.rint(model.marginal(clique, keep=False))
        exact[index] = np.abs(counts - model_counts).sum()
    unit = l1_score_sensitivity(neighbours_of(site))
    event = Gaussian(sigma=sigma, sensitivity=sqrt(len(cliques)) * unit)
    label = f"L1 errors of {len(cliques)} marginals"
    return release_noisy(site, event, label, exact)


@dataclass(frozen=True)
class OwnAnswers:
    """Answers of a party to itself, for a field that it learns where its rows are.

    **Guarantee**: each answer is one event in the party's ledger, paid for before it is drawn, as
    if it had been sent to whoever is asking in this step.
    """

    site: Site[Any]

    @property
    def neighbours(self) -> Neighbours:
        """Those of the party's budget."""
        return neighbours_of(self.site)

    def scores(self, pairs: Sequence[Clique], sigma: float) -> Floats:
        """Return the R-score of every pair, by `noisy_scores`."""
        released = noisy_scores(pairs, sigma, self.site)
        return released.value.numpy().astype(np.float64)

    def errors(self, model: MRF, cliques: Sequence[Clique], sigma: float) -> Floats:
        """Return the L1 distance of every marginal from the model's, by `noisy_errors`."""
        released = noisy_errors(model, cliques, sigma, self.site)
        return released.value.numpy().astype(np.float64)

    def tables(self, cliques: Sequence[Clique], sigma: float) -> list[Floats]:
        """Measure marginals in one event."""
        exact = [marginal(self.site.rows, clique) for clique in cliques]
        flat = np.concatenate([table.reshape(-1) for table in exact])
        unit = marginal_sensitivity(self.neighbours, norm="l2")
        event = Gaussian(sigma=sigma, sensitivity=sqrt(len(exact)) * unit)

        # Paid for before noise is drawn.
        self.site.pay(event, f"{len(exact)} marginals")
        noisy = mechanisms.add_gaussian(flat, sigma, entropy=self.site.entropy)

        # Back into one table for each marginal.
        ends = np.cumsum([table.size for table in exact])
        pieces = np.split(noisy.astype(np.float64), ends[:-1])
        tables: list[Floats] = []
        for piece, table in zip(pieces, exact, strict=True):
            tables.append(piece.reshape(table.shape))
        return tables
