"""The server's side of VertiMRF: join the parties' graphs, then fit one field over all columns.

Zhao et al. 2024, phases 3 to 6 (GraphCom, InitMRF, OptMRF, sampling).

**Guarantee**: see method.py. Everything here is computed from what parties released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from siloweave.core.method import Result, Task
from siloweave.core.model import MarginalModel, Measured
from siloweave.federation.expected import FLOATS, MOST_ROWS, WHOLE, CheckedReply
from siloweave.federation.session import Session
from siloweave.methods.vertimrf.messages import (
    EncodeColumns,
    Encoded,
    LocalField,
    SealSketchKey,
    SendSketchKey,
    VertiMRFPlan,
    bin_counts,
    binned,
    field_domain,
)
from siloweave.models.carest import (
    bins_of,
    carest,
    histogram_recovered,
    made_consistent,
    scaled,
    unrandomised,
)
from siloweave.models.estimate import Measurement, fit
from siloweave.models.field_graph import GraphLimits, grow_graph, most_useful_cells
from siloweave.models.junction_tree import Array, cells_in, tree_cells
from siloweave.models.mrf import MRF
from siloweave.privacy.mechanisms import kept_share
from siloweave.protocols.columns import parts_of, rows_sent
from siloweave.tables.codes import Clique, Domain, Encoder

if TYPE_CHECKING:
    from siloweave.methods.vertimrf.method import VertiMRF

_POTENTIAL = 1e4  # the largest that a field has, far beyond any that was fitted
_LOCAL = 1e3  # how much more a party's own edge counts than any estimated one, in rows
Codewords = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class _Party:
    """What one party released, checked."""

    field: MRF  # over its own columns
    edges: Sequence[Clique]
    sigma: float
    values: Mapping[str, Array]  # histograms of binned columns
    encoded: Codewords  # by column: sketches (repetitions, bins), or answers (rows,)


def coordinate(session: Session, task: Task) -> Result:
    """VertiMRF over a roster.

    Raises BudgetError or InputError where the budget is too small, and WireError, naming the party,
    where it sent what does not fit.
    """
    setup, synth = task.setup, cast("VertiMRF", task.setup.synth)
    parts = parts_of(setup)
    plan = VertiMRFPlan.of(synth, parts, setup.budget)
    encoder = Encoder(setup.schema, synth.bins)
    task.progress("parties learn their fields and encode", 0.0)
    replies = dict(zip(session.roster, _asked(session, plan), strict=True))
    first = session.roster[0]
    rows = rows_sent(first, (*replies[first].paid_rows, *replies[first].known_rows))
    parties = {
        name: _checked(
            CheckedReply(name), synth, plan, field_domain(synth, part), rows, replies[name]
        )
        for name, part in parts.items()
    }
    mrf, measured = _Server(synth, encoder.domain, plan, rows, parties).run(task)
    pairs = tuple(combinations(encoder.domain.names, 2))
    facts = {}
    if plan.worth:
        facts = dict(zip(("sketches_claimed", "sketches_exact"), plan.worth, strict=True))
    return Result(MarginalModel(mrf, encoder, measured, pairs), facts=facts)


def _asked(session: Session, plan: VertiMRFPlan) -> list[Encoded]:
    """Everything the parties release, once they share a key that this side does not know."""
    first, *others = session.roster
    if plan.noise is None or not others:
        return session.ask(EncodeColumns())
    keys = {
        name: CheckedReply(name).mask_key("key", reply.key.value)
        for name, reply in zip(session.roster, session.ask(SendSketchKey()), strict=True)
    }
    (reply,) = session.ask(SealSketchKey({name: keys[name] for name in others}), [first])
    texts = CheckedReply(first).items("keys", reply.keys, count=len(others))
    asked = {
        name: EncodeColumns(keys[first], text.value)
        for name, text in zip(others, texts, strict=True)
    }
    return session.ask_each({first: EncodeColumns(), **asked})


def _checked_field(party: CheckedReply, synth: VertiMRF, domain: Domain, sent: LocalField) -> MRF:
    """A party's field; raises WireError, naming the party, where it does not fit its columns."""
    cliques = sent.model.cliques
    for clique in (*cliques, *sent.edges):
        party.items("columns", clique, among=domain.names)
        if not clique or domain.canonical(clique) != clique:
            raise party.wrong(f"the columns {clique}", "in the order of its columns, each once")
    party.items("columns of an edge", [len(edge) for edge in sent.edges], among=(2,))
    tables = party.items("tables", sent.model.tables, count=len(cliques))
    most = cells_in(synth.max_model_mb) + sum(domain.sizes)
    party.number("cells of its field", tree_cells(domain, cliques), most=most)
    party.number("noise of its field", sent.sigma, least=1e-9, most=MOST_ROWS)
    total = party.number("rows of its field", sent.model.total, least=1e-9, most=MOST_ROWS)
    potentials = {}
    for clique, table in zip(cliques, tables, strict=True):
        found = party.array(
            "field", table, FLOATS, domain.shape(clique), least=-_POTENTIAL, most=_POTENTIAL
        )
        potentials[clique] = found.astype(np.float64)
    return MRF(domain, potentials, total)


def _checked(
    party: CheckedReply,
    synth: VertiMRF,
    plan: VertiMRFPlan,
    domain: Domain,
    rows: int,
    reply: Encoded,
) -> _Party:
    """A party's reply; raises WireError, naming it, where it does not fit the study."""
    wide, bins = binned(synth, domain), bin_counts(synth, domain)
    sizes = [domain.size_of(column) for column in wide]
    flat = [
        party.array("values", one.value, WHOLE, (sum(sizes),))
        for one in party.items("histograms", reply.values, count=int(bool(wide)))
    ]
    pieces = np.split(flat[0], np.cumsum(sizes)[:-1]) if flat else []
    if plan.noise:
        codes = party.array(
            "sketches", reply.encoded.value, ("<u1",), (synth.repetitions, sum(bins)), least=1
        )
        columns = np.split(codes, np.cumsum(bins)[:-1], axis=1)
    else:
        codes = party.array("answers", reply.encoded.value, WHOLE, (rows, len(bins)))
        columns = list(codes.T)
        for column, size in zip(columns, bins, strict=True):
            party.number("an answer", int(column.max()), most=size - 1)
    return _Party(
        _checked_field(party, synth, domain, reply.field.value),
        reply.field.value.edges,
        reply.field.value.sigma,
        {column: y.astype(np.float64) for column, y in zip(wide, pieces, strict=True)},
        dict(zip(domain.names, columns, strict=True)),
    )


@dataclass
class _Server:
    """What the server fits with; see the phases of the paper."""

    synth: VertiMRF
    domain: Domain
    plan: VertiMRFPlan
    rows: int
    parties: Mapping[str, _Party]

    def run(self, task: Task) -> tuple[MRF, tuple[Measured, ...]]:
        """GraphCom, InitMRF, OptMRF."""
        task.progress("estimating pairs of two parties", 0.5)
        cross = {pair: self.estimated(pair) for pair in self._cross_pairs()}
        cliques = self.graph({pair: table for pair, (table, _) in cross.items()})
        local = self.local_marginals()
        sigma = max(party.sigma for party in self.parties.values())
        useful = most_useful_cells(self.rows, sigma, self.synth.theta)
        left = {
            pair: self.recovered(pair, *found)
            for pair, found in cross.items()
            if self.domain.size(pair) <= useful and any(set(pair) <= set(c) for c in cliques)
        }
        return self.refined(local, left, task)

    def _cross_pairs(self) -> list[Clique]:
        owner = {a: name for name, party in self.parties.items() for a in party.field.domain.names}
        pairs = combinations(self.domain.names, 2)
        return [(a, b) for a, b in pairs if owner[a] != owner[b]]

    def estimated(self, pair: Clique) -> tuple[Array, float]:
        """Counts of a pair's bins, which sum to the rows, and the noise of one."""
        codes = [self._owner(a).encoded[a] for a in pair]
        if self.plan.noise:
            return carest(codes, self.plan.noise.phantoms, self.rows)
        shape = [int(self._bins(a)[-1]) + 1 for a in pair]
        cells = np.ravel_multi_index([column.astype(np.int64) for column in codes], shape)
        counts = np.bincount(cells, minlength=prod(shape)).reshape(shape).astype(np.float64)
        kept = [kept_share(self.plan.response_epsilon, size) for size in shape]
        table, sigma = unrandomised(counts, kept)
        return scaled(table, self.rows), sigma

    def recovered(self, pair: Clique, table: Array, sigma: float) -> tuple[Array, float]:
        """Counts of a pair's values, from those of its bins, and the noise of one."""
        values = [self._owner(a).values.get(a, np.ones(self.domain.size_of(a))) for a in pair]
        found = histogram_recovered(table, [self._bins(a) for a in pair], values)
        return found, sigma * table.size / found.size

    def _owner(self, column: str) -> _Party:
        return next(party for party in self.parties.values() if column in party.encoded)

    def _bins(self, column: str) -> npt.NDArray[np.int64]:
        return bins_of(self.domain.size_of(column), self.synth.encoded_bins)

    def graph(self, cross: Mapping[Clique, Array]) -> list[Clique]:
        """Maximal cliques: all of the parties' own edges, then pairs of two by their R-scores."""
        scores = {pair: _r_score(table) for pair, table in cross.items()}
        for party in self.parties.values():
            own = [self.domain.canonical(edge) for edge in party.edges]
            scores |= dict.fromkeys(own, _LOCAL * self.rows)
        limit = cells_in(self.synth.max_model_mb)
        limits = GraphLimits(min(self.synth.clique_cells, limit), limit)
        return grow_graph(self.domain, scores, limits)[1]

    def local_marginals(self) -> list[Measurement]:
        """What the parties measured, as their own fields have it, in the order of all columns."""
        found = []
        for party in self.parties.values():
            for own in party.field.potentials:
                clique = self.domain.canonical(own)
                table = np.transpose(party.field.marginal(own), [own.index(a) for a in clique])
                counts = table * (self.rows / float(table.sum()))
                found.append(Measurement(clique, counts, party.sigma))
        return found

    def refined(
        self, local: list[Measurement], left: dict[Clique, tuple[Array, float]], task: Task
    ) -> tuple[MRF, tuple[Measured, ...]]:
        """Fit to the local marginals, then add, in steps, the pairs that the model misses most."""
        synth, limit = self.synth, cells_in(self.synth.max_model_mb)
        chosen: list[Measurement] = []
        model = fit(self.domain, local, total=self.rows)
        number = min(len(left), round(synth.refined * len(self.domain.names)))
        for step in range(synth.refine_steps, 0, -1):
            gaps = {q: float(np.abs(t - model.marginal(q)).sum()) for q, (t, _) in left.items()}
            before, wanted = len(chosen), -(-(number - len(chosen)) // step)
            for q in sorted(gaps, key=gaps.__getitem__, reverse=True):
                if wanted <= 0:
                    break
                table, sigma = left.pop(q)
                known = [m.clique for m in (*local, *chosen)]
                if tree_cells(self.domain, [*known, q]) <= limit:
                    chosen.append(Measurement(q, table, sigma))
                    wanted -= 1
            if len(chosen) == before:
                break
            targets = self._targets(local, chosen)
            model = fit(self.domain, targets, total=self.rows, warm_start=model)
            task.progress("refining", 1 - 0.4 * step / synth.refine_steps)
        return model, tuple(Measured((m.clique,), m.sigma) for m in (*local, *chosen))

    def _targets(self, local: list[Measurement], chosen: list[Measurement]) -> list[Measurement]:
        if not self.synth.consistent:
            return [*local, *chosen]
        kinds = [{m.clique: m.counts for m in group} for group in (chosen, local)]
        sigmas = {m.clique: m.sigma for m in (*local, *chosen)}
        moved = made_consistent(*kinds)
        return [Measurement(q, t, sigmas[q]) for tables in moved for q, t in tables.items()]


def _r_score(table: Array) -> float:
    """(n / 2) ||P_ij - P_i x P_j||_1 of estimated counts."""
    n = float(table.sum())
    return float(np.abs(table - np.outer(table.sum(axis=1), table.sum(axis=0)) / n).sum() / 2)
