"""From a fit to the record that its report is made of.

**Guarantee**: the record's public part holds what parties released and paid for, and statistics of
the synthetic table (post-processing, Dwork & Roth 2014, proposition 2.1). Statistics of real rows
go into `owner` only, which the public page never reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from siloweave import __version__
from siloweave.algorithms.fitted import Fitted
from siloweave.evaluate.likelihood import negative_log_likelihood
from siloweave.evaluate.workload import tvd, workload_errors
from siloweave.privacy.accountants import Tally
from siloweave.privacy.events import Event, Exponential, NonPrivate, rho_once, times
from siloweave.privacy.ledger import Entry
from siloweave.report.record import (
    Association,
    BudgetTerms,
    LedgerRow,
    Marginal,
    Method,
    OwnerView,
    PartyCost,
    Phase,
    PublicView,
    Record,
    SchemaFact,
    Sight,
)
from siloweave.statistics.association import cramers_v
from siloweave.statistics.marginals import marginal
from siloweave.tables.bins import BINNED, as_moments, edges_of
from siloweave.tables.codes import Clique, Codes, Encoder
from siloweave.tables.read import Table
from siloweave.tables.schema import Column

__all__ = ["labels_of", "record_of"]

_ROWS = 20_000  # of a synthetic table that pictures are made of
_MANY = 200_000  # of one that errors are measured on; exact marginals can need gigabytes
_MECHANISMS = {
    "gaussian": "discrete Gaussian",
    "shared_gaussian": "shares of discrete Gaussian",
    "threshold_gaussian": "discrete Gaussian over a threshold",
    "exponential": "exponential mechanism",
    "laplace": "discrete Laplace",
    "sampled_gaussian": "Gaussian on Poisson samples",
    "non_private": "none",
}


def labels_of(encoder: Encoder, name: str) -> tuple[str, ...]:
    """One label per code of a column."""
    column = encoder.schema[name]
    if column.kind in BINNED:
        width = (encoder.bins_per_column or {}).get(name, encoder.bins)
        labels = [_span(column, a, b) for a, b in pairwise(edges_of(column, width).tolist())]
    elif column.kind == "boolean":
        labels = ["False", "True"]
    else:
        labels = [str(c) for c in column.categories]
    return tuple(labels + (["missing"] if column.missing else []))


def _span(column: Column, start: float, end: float) -> str:
    """A bin, from its first to its last value."""
    if column.kind == "continuous":
        return f"{_number(start)} to {_number(end)}"
    first, last = int(start), int(end) - 1
    if column.kind == "datetime":
        moments = as_moments(column, np.array([first, last]), None).tolist()
        texts = [str(moment).removesuffix(" 00:00:00") for moment in moments]
    else:
        texts = [str(first), str(last)]
    return texts[0] if first == last else " to ".join(texts)


def _number(value: float) -> str:
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def record_of(
    fitted: Fitted,
    title: str,
    *,
    owner: Sequence[Table] = (),
    test: Table | None = None,
) -> Record:
    """Everything that the report of a fit shows.

    Args:
        fitted: The fit.
        title: Name of the study.
        owner: Real rows, for the owner's copy only.
        test: Real rows that were held out, for the likelihood in the owner's copy.
    """
    epsilons = fitted.epsilons
    return Record(
        title=title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        siloweave_version=__version__,
        method=_method(fitted),
        budget=_terms(fitted),
        private=fitted.private,
        not_private_reason="" if fitted.private else _reason(fitted),
        epsilon_spent=fitted.epsilon,
        parties=tuple(_cost(fitted, name, epsilons[name]) for name in fitted.ledgers),
        ledgers=tuple(r for n, es in fitted.ledgers.items() for r in _ledger_rows(fitted, n, es)),
        visibility=_visibility(fitted),
        phases=tuple(Phase(name=n, seconds=s) for n, s in fitted.cost.phases.items()),
        schema_facts=tuple(_fact(c) for c in fitted.encoder.schema.columns),
        assumed_public=_ASSUMED,
        settings={n: _plain(v) for n, v in fitted.settings.items()},
        synthetic=_synthetic(fitted),
        owner=_owner(fitted, owner, test, fitted.workload) if owner else None,
    )


def _plain(value: object) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else str(value)


def _terms(fitted: Fitted) -> BudgetTerms:
    budget = fitted.budget
    return BudgetTerms(
        epsilon=budget.epsilon,
        delta=budget.delta,
        unit=budget.unit,
        relation=str(budget.relation),
    )


def _synthetic(fitted: Fitted) -> PublicView:
    rows = round(fitted.model.total)
    codes = fitted.sample_codes(min(rows, _ROWS))
    return PublicView(
        num_rows=rows,
        marginals=_marginals(fitted.encoder, codes),
        association=_association(codes),
        cliques=tuple(fitted.model.tree.cliques),
    )


_ASSUMED = (
    "the schema: columns, kinds, categories, bounds, where values may be missing",
    "the roster, and which party took part in which round",
    "the workload, the number of bins and every setting",
)


def _reason(fitted: Fitted) -> str:
    if fitted.info.guarantee != "dp":
        return f"{fitted.info.title} has the guarantee '{fitted.info.guarantee}'."
    return "The noise came from a seed: whoever knows it can take it away again."


def _method(fitted: Fitted) -> Method:
    info = fitted.info
    return Method(
        name=info.title,
        family=info.family,
        split=info.split,
        trust=info.trust,  # type: ignore[arg-type]
        guarantee=info.guarantee,  # type: ignore[arg-type]
        paper=info.paper,
        statement=info.statement,
    )


def _cost(fitted: Fitted, name: str, epsilon: float) -> PartyCost:
    seen = fitted.cost.parties[name]
    return PartyCost(
        name=name,
        rows_public=None,
        epsilon=epsilon,
        bytes_sent=seen.bytes_from_party,
        bytes_received=seen.bytes_to_party,
        messages=seen.messages,
        rounds=seen.messages,
        ledger_head=fitted.heads.get(name, ""),
    )


def _ledger_rows(fitted: Fitted, name: str, entries: Sequence[Entry]) -> list[LedgerRow]:
    tally, rows = Tally(), []
    for entry in entries:
        tally.add(entry.event)
        rows.append(
            LedgerRow(
                party=name,
                index=entry.index + 1,
                step=f"{entry.run}: {entry.step}",
                what=entry.what,
                to=entry.to,
                mechanism=_MECHANISMS[str(entry.event.__struct_config__.tag)],
                parameters=_parameters(entry.event),
                cumulative_epsilon=tally.epsilon(fitted.budget.delta),
                rho=rho_once(entry.event) * times(entry.event),
            )
        )
    return rows


def _parameters(event: Event) -> str:
    if isinstance(event, NonPrivate):
        return event.reason
    parts = ((n, getattr(event, n)) for n in event.__struct_fields__)
    return ", ".join(f"{n.replace('_', ' ')} {v:.6g}" for n, v in parts)


_NOISE = "noise, paid for in the ledger"


def _visibility(fitted: Fitted) -> tuple[Sight, ...]:
    readers = Sight(who="readers", sees="the model and the synthetic table", protected_by=_NOISE)
    if fitted.info.trust == "curator":
        curator = Sight(who="the curator", sees="all rows", protected_by="nothing; it is trusted")
        return (curator, readers)
    events = {type(entry.event) for entries in fitted.ledgers.values() for entry in entries}
    sees = "sums over many parties, with noise"
    sees += "; which queries each party chose, by a noisy choice" if Exponential in events else ""
    tolerated = fitted.settings.get("tolerated", 0)
    shares = f"; enough noise even if {tolerated} of them tell it their share" if tolerated else ""
    kept = f"masks between every pair of parties{shares}"
    told = f"{_NOISE}, also when they take away their own share of it"
    exact = Sight(who="the coordinator", sees="exact counts of each party", protected_by="nothing")
    return (
        Sight(who="each party", sees="its own rows", protected_by="they never leave it"),
        Sight(who="the coordinator", sees=sees, protected_by=kept),
        *([exact] if NonPrivate in events else []),
        Sight(who="the other parties", sees="what the coordinator sends them", protected_by=told),
        readers,
    )


def _fact(column: Column) -> SchemaFact:
    facts = ", ".join(column.from_data) or "kind and domain"
    how = "free" if column.from_data else "declared"
    return SchemaFact(column=column.name, kind=column.kind, facts=facts, how=how)  # type: ignore[arg-type]


def _marginals(encoder: Encoder, codes: Codes) -> tuple[Marginal, ...]:
    made = []
    for name in codes.domain.names:
        column = encoder.schema[name]
        counts = marginal(codes, (name,)).astype(float)
        made.append(
            Marginal(
                column=name,
                kind=column.kind,
                labels=labels_of(encoder, name),
                proportions=tuple((counts / max(1.0, counts.sum())).tolist()),
                ordered=column.kind in BINNED,
                missing=column.missing,
            )
        )
    return tuple(made)


def _association(codes: Codes) -> Association:
    values = np.clip(cramers_v(codes), 0.0, 1.0).tolist()
    return Association(names=codes.domain.names, values=tuple(tuple(row) for row in values))


def _owner(
    fitted: Fitted, tables: Sequence[Table], test: Table | None, workload: Sequence[Clique]
) -> OwnerView:
    real = Codes.concat([fitted.encoder.encode(t) for t in tables])
    errors: dict[str, float] = {}
    synthetic = fitted.sample_codes(_MANY)
    if workload:
        found = workload_errors(real, synthetic, workload)
        errors = {"over the queries": found.queries, "over their closure": found.closure}
    ways = [w for w in (1, 2, 3) if w <= len(real.domain.names)]
    scores = {}
    if test is not None:
        held_out = fitted.encoder.encode(test)
        scores["held-out NLL, nats a row"] = negative_log_likelihood(fitted.model, held_out)
    return OwnerView(
        marginals=_marginals(fitted.encoder, real),
        association=_association(real),
        workload_errors=errors,
        tvd={f"{w}-way": tvd(real, synthetic, w, max_cliques=60, key=0) for w in ways},
        scores=scores,
    )
