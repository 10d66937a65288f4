"""The server's side of VertiMRF: join the parties' graphs, then fit one field over all columns.

Zhao et al. 2024, phases 3 to 6 (GraphCom, InitMRF, OptMRF, sampling).

**Guarantee**: see method.py. Everything here is computed from what parties released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from siloweave.core.method import Result, Task
from siloweave.core.model import MarginalModel, Measured
from siloweave.federation.expected import FLOATS, MOST_ROWS, WHOLE, CheckedReply
from siloweave.federation.session import Session
from siloweave.methods.vertimrf import messages
from siloweave.methods.vertimrf.settings import VertiMRFSettings
from siloweave.models import carest
from siloweave.models.estimate import Measurement, fit
from siloweave.models.field_graph import GraphLimits, grow_graph, most_useful_cells
from siloweave.models.junction_tree import Array, cells_in, tree_cells
from siloweave.models.mrf import MRF
from siloweave.privacy.mechanisms import kept_share
from siloweave.protocols.columns import parts_of, rows_sent
from siloweave.tables.codes import Clique, Domain, Encoder

_POTENTIAL = 1e4  # the largest that a field has, far beyond any that was fitted
_LOCAL = 1e3  # how much more a party's own edge counts than any estimated one, in rows
Codewords = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class _Party:
    """The releases of one party, once they are checked."""

    field: MRF  # over its own columns
    edges: Sequence[Clique]
    sigma: float
    values: Mapping[str, Array]  # histograms of binned columns
    encoded: Codewords  # by column: sketches (repetitions, bins), or answers (rows,)


def coordinate(session: Session, task: Task) -> Result:
    """Run VertiMRF over a roster.

    Raises:
        BudgetError: The budget is too small.
        InputError: It is too small for sketches or answers.
        WireError: Naming the party, where it sent what does not fit.
    """
    setup = task.setup
    synth = setup.settings_as(VertiMRFSettings)
    parts = parts_of(setup)
    plan = messages.VertiMRFPlan.of(synth, parts, setup.budget)
    encoder = Encoder(setup.schema, synth.bins)
    # Phases 1 and 2 are the parties'.
    task.progress("parties learn their fields and encode", 0.0)
    replies = dict(zip(session.roster, _encoded(session, plan), strict=True))
    first = session.roster[0]
    rows = rows_sent(first, (*replies[first].paid_rows, *replies[first].known_rows))
    parties = {}
    for name, part in parts.items():
        checked = CheckedReply(name)
        domain = messages.field_domain(synth, part)
        parties[name] = _checked(checked, synth, plan, domain, rows, replies[name])

    # Phases 3 to 5; rows are drawn of the model later.
    mrf, measured = _Server(synth, encoder.domain, plan, rows, parties).run(task)
    pairs = tuple(combinations(encoder.domain.names, 2))
    facts = {}
    if plan.worth:
        claimed, exact = plan.worth
        facts = {"sketches_claimed": claimed, "sketches_exact": exact}
    return Result(MarginalModel(mrf, encoder, measured, pairs), facts=facts)


def _encoded(session: Session, plan: messages.VertiMRFPlan) -> list[messages.Encoded]:
    """Have the parties share a key unknown to the coordinator; ask for all that they release."""
    first, *others = session.roster
    # Answers have no key, and a party alone needs to share none.
    if plan.noise is None or not others:
        return session.ask(messages.EncodeColumns())

    keys = {}
    sketch_keys = session.ask(messages.SendSketchKey())
    for name, sketch_key in zip(session.roster, sketch_keys, strict=True):
        keys[name] = CheckedReply(name).mask_key("key", sketch_key.key.value)
    other_keys = {name: keys[name] for name in others}
    (sealed,) = session.ask(messages.SealSketchKey(other_keys), [first])
    sealed_keys = CheckedReply(first).items("keys", sealed.keys, count=len(others))

    requests = {first: messages.EncodeColumns()}
    for name, sealed_key in zip(others, sealed_keys, strict=True):
        requests[name] = messages.EncodeColumns(keys[first], sealed_key.value)
    return session.ask_each(requests)


def _checked_field(
    party: CheckedReply,
    synth: VertiMRFSettings,
    domain: Domain,
    field: messages.LocalField,
) -> MRF:
    """Check a party's field, and return it; WireError, naming the party, if it does not fit."""
    cliques = field.model.cliques
    for clique in (*cliques, *field.edges):
        party.items("columns", clique, among=domain.names)
        if not clique or domain.canonical(clique) != clique:
            raise party.wrong(
                f"the columns {clique}", "in the order of its columns, each once"
            )
    party.items("columns of an edge", [len(edge) for edge in field.edges], among=(2,))
    tables = party.items("tables", field.model.tables, count=len(cliques))

    # A few cliques could name a junction tree that no memory holds.
    most = cells_in(synth.max_model_mb) + sum(domain.sizes)
    party.number("cells of its field", tree_cells(domain, cliques), most=most)
    party.number("noise of its field", field.sigma, least=1e-9, most=MOST_ROWS)
    total = party.number(
        "rows of its field", field.model.total, least=1e-9, most=MOST_ROWS
    )

    potentials = {}
    for clique, table in zip(cliques, tables, strict=True):
        shape = domain.shape(clique)
        potential = party.array(
            "field", table, FLOATS, shape, least=-_POTENTIAL, most=_POTENTIAL
        )
        potentials[clique] = potential.astype(np.float64)
    return MRF(domain, potentials, total)


def _checked(
    party: CheckedReply,
    synth: VertiMRFSettings,
    plan: messages.VertiMRFPlan,
    domain: Domain,
    rows: int,
    reply: messages.Encoded,
) -> _Party:
    """Check a party's reply, and return it; WireError, naming the party, if it does not fit."""
    # Histograms lie one after the other, in one array; there is none if no column is binned.
    binned_columns = messages.binned(synth, domain)
    sizes = [domain.size_of(column) for column in binned_columns]
    histograms = {}
    for flat in party.items(
        "histograms", reply.values, count=int(bool(binned_columns))
    ):
        counts = party.array("values", flat.value, WHOLE, (sum(sizes),))
        pieces = np.split(counts, np.cumsum(sizes)[:-1])
        for name, piece in zip(binned_columns, pieces, strict=True):
            histograms[name] = piece.astype(np.float64)

    bins = messages.bin_counts(synth, domain)
    if plan.noise:
        shape = (synth.repetitions, sum(bins))
        codes = party.array("sketches", reply.encoded.value, ("<u1",), shape, least=1)
        columns = np.split(codes, np.cumsum(bins)[:-1], axis=1)
    else:
        codes = party.array("answers", reply.encoded.value, WHOLE, (rows, len(bins)))
        columns = list(codes.T)
        for column, size in zip(columns, bins, strict=True):
            party.number("an answer", int(column.max()), most=size - 1)

    field = reply.field.value
    return _Party(
        field=_checked_field(party, synth, domain, field),
        edges=field.edges,
        sigma=field.sigma,
        values=histograms,
        encoded=dict(zip(domain.names, columns, strict=True)),
    )


@dataclass
class _Server:
    """The data that the server fits a model to; see the phases of the paper."""

    synth: VertiMRFSettings
    domain: Domain
    plan: messages.VertiMRFPlan
    rows: int
    parties: Mapping[str, _Party]

    def run(self, task: Task) -> tuple[MRF, tuple[Measured, ...]]:
        """Take the phases GraphCom, InitMRF and OptMRF; return the model, and its measurements."""
        # Phase 3, GraphCom: estimate all pairs of two parties, and join the parties' graphs.
        task.progress("estimating pairs of two parties", 0.5)
        estimates = {pair: self.estimated(pair) for pair in self._cross_pairs()}
        cliques = self.graph({pair: table for pair, (table, _) in estimates.items()})

        # Candidates of phase 5: pairs inside a clique, with counts far enough above the noise.
        sigma = max(party.sigma for party in self.parties.values())
        most_cells = most_useful_cells(self.rows, sigma, self.synth.theta)
        candidates = {}
        for pair, (table, table_sigma) in estimates.items():
            is_joined = any(set(pair) <= set(clique) for clique in cliques)
            if is_joined and self.domain.size(pair) <= most_cells:
                candidates[pair] = self.recovered(pair, table, table_sigma)

        # Phase 4, InitMRF, is the first fit of `refined`, to the local marginals alone.
        return self.refined(self.local_marginals(), candidates, task)

    def _cross_pairs(self) -> list[Clique]:
        """Return the pairs of columns that lie at two different parties."""
        owner = {}
        for name, party in self.parties.items():
            owner.update(dict.fromkeys(party.field.domain.names, name))
        pairs = combinations(self.domain.names, 2)
        return [(a, b) for a, b in pairs if owner[a] != owner[b]]

    def estimated(self, pair: Clique) -> tuple[Array, float]:
        """Estimate the counts of a pair's bins, and the noise of one; counts sum to the rows."""
        codes = [self._owner(column).encoded[column] for column in pair]
        if self.plan.noise:
            return carest.carest(codes, self.plan.noise.phantoms, self.rows)

        # VertiMRF-FO: count noisy pairs, then undo the randomisation of each column.
        shape = [int(self._bins(column)[-1]) + 1 for column in pair]
        cells = np.ravel_multi_index(
            [column.astype(np.int64) for column in codes], shape
        )
        counts = (
            np.bincount(cells, minlength=prod(shape)).reshape(shape).astype(np.float64)
        )
        true_shares = [kept_share(self.plan.response_epsilon, size) for size in shape]
        table, sigma = carest.unrandomised(counts, true_shares)
        return carest.scaled(table, self.rows), sigma

    def recovered(
        self, pair: Clique, table: Array, sigma: float
    ) -> tuple[Array, float]:
        """Spread the counts of a pair's bins over its values (HisRec); return also their noise."""
        bins = [self._bins(column) for column in pair]
        # A column that is not binned has one value in each bin, so ones spread nothing.
        values = []
        for column in pair:
            flat = np.ones(self.domain.size_of(column))
            values.append(self._owner(column).values.get(column, flat))
        spread = carest.histogram_recovered(table, bins, values)
        return spread, sigma * table.size / spread.size

    def _owner(self, column: str) -> _Party:
        """Return the party that holds a column."""
        return next(party for party in self.parties.values() if column in party.encoded)

    def _bins(self, column: str) -> npt.NDArray[np.int64]:
        """Return the bin of each value of a column."""
        return carest.bins_of(self.domain.size_of(column), self.synth.encoded_bins)

    def graph(self, cross: Mapping[Clique, Array]) -> list[Clique]:
        """Join the parties' edges, then pairs of two parties by R-score; return maximal cliques."""
        scores = {pair: _r_score(table) for pair, table in cross.items()}
        # A party's own edges are in the union of graphs before any estimated pair.
        for party in self.parties.values():
            edges = [self.domain.canonical(edge) for edge in party.edges]
            scores |= dict.fromkeys(edges, _LOCAL * self.rows)
        most_cells = cells_in(self.synth.max_model_mb)
        limits = GraphLimits(min(self.synth.clique_cells, most_cells), most_cells)
        _, cliques = grow_graph(self.domain, scores, limits)
        return cliques

    def local_marginals(self) -> list[Measurement]:
        """Return the marginals that parties measured, by their own fields, in the joint order."""
        measurements = []
        for party in self.parties.values():
            for party_clique in party.field.potentials:
                clique = self.domain.canonical(party_clique)
                axes = [party_clique.index(column) for column in clique]
                table = np.transpose(party.field.marginal(party_clique), axes)
                counts = table * (self.rows / float(table.sum()))
                measurements.append(Measurement(clique, counts, party.sigma))
        return measurements

    def refined(
        self,
        local: list[Measurement],
        candidates: dict[Clique, tuple[Array, float]],
        task: Task,
    ) -> tuple[MRF, tuple[Measured, ...]]:
        """Fit to the local marginals, then add in steps the pairs that the model misses most."""
        synth = self.synth
        most_cells = cells_in(synth.max_model_mb)
        remaining = dict(candidates)
        chosen: list[Measurement] = []

        # Phase 4, InitMRF.
        model = fit(self.domain, local, total=self.rows)

        # Phase 5, OptMRF.
        most_pairs = min(len(remaining), round(synth.refined * len(self.domain.names)))
        for steps_left in range(synth.refine_steps, 0, -1):
            # What is still to be added is spread evenly over the remaining steps, rounded up.
            chosen_before = len(chosen)
            wanted = -(-(most_pairs - len(chosen)) // steps_left)

            gaps = {}
            for pair, (table, _) in remaining.items():
                gaps[pair] = float(np.abs(table - model.marginal(pair)).sum())
            for pair in sorted(gaps, key=gaps.__getitem__, reverse=True):
                if wanted <= 0:
                    break
                table, sigma = remaining.pop(pair)
                cliques = [measurement.clique for measurement in (*local, *chosen)]
                if tree_cells(self.domain, [*cliques, pair]) <= most_cells:
                    chosen.append(Measurement(pair, table, sigma))
                    wanted -= 1

            if len(chosen) == chosen_before:
                break
            targets = self._targets(local, chosen)
            model = fit(self.domain, targets, total=self.rows, warm_start=model)
            task.progress("refining", 1 - 0.4 * steps_left / synth.refine_steps)

        measured = []
        for measurement in (*local, *chosen):
            measured.append(Measured((measurement.clique,), measurement.sigma))
        return model, tuple(measured)

    def _targets(
        self, local: list[Measurement], chosen: list[Measurement]
    ) -> list[Measurement]:
        """Return the marginals that the model is fitted to, made consistent if settings say so."""
        if not self.synth.consistent:
            return [*local, *chosen]
        chosen_counts = {
            measurement.clique: measurement.counts for measurement in chosen
        }
        local_counts = {measurement.clique: measurement.counts for measurement in local}
        sigmas = {m.clique: m.sigma for m in (*local, *chosen)}
        targets = []
        for tables in carest.made_consistent(chosen_counts, local_counts):
            for clique, counts in tables.items():
                targets.append(Measurement(clique, counts, sigmas[clique]))
        return targets


def _r_score(table: Array) -> float:
    """Return the R-score (n / 2) ||P_ij - P_i x P_j||_1 of estimated counts."""
    n = float(table.sum())
    independent = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    return float(np.abs(table - independent).sum() / 2)
