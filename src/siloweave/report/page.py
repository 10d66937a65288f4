"""One record in, one self-contained HTML page out."""

import math
from collections.abc import Callable, Sequence
from importlib import resources
from statistics import median
from typing import Any, Literal

from siloweave.errors import InputError
from siloweave.report import plots, words
from siloweave.report.record import LedgerRow, OwnerView, PartyCost, PublicView, Record

Audience = Literal["public", "owner"]

PARTIES = 20
"""Parties listed one by one; of more, the most expensive."""
LEDGER_ROWS = 1200
"""Ledger lines printed on one page, over all parties."""
COLUMNS = 80
"""Columns drawn one by one."""


def render(record: Record, *, audience: Audience = "public") -> str:
    """Make the report.

    Args:
        record: The run's record.
        audience: ``"public"`` shows only what was paid for or comes from the synthetic table;
            ``"owner"`` adds the real rows' statistics and says on every screen that it is local.

    Returns:
        An HTML page that needs no network: styles and pictures are inside, scripts are not used.

    Raises:
        InputError: If `audience` is neither, or the owner's copy is asked for and the record has
            no `owner` part.
    """
    if audience not in ("public", "owner"):
        raise InputError(f'audience is {audience!r}; it must be "public" or "owner"')
    if audience == "owner" and record.owner is None:
        raise InputError(
            "this record has no owner part, so there is no owner's copy to make; "
            'render audience="public", or make the record where the real rows are'
        )
    if audience == "public":
        record = record.public()
    folder, verdict = resources.files("siloweave.report"), _verdict(record)
    template = template_of(folder.joinpath("template.html").read_text("utf-8"))
    page: str = template.render(
        r=record,
        owner=record.owner,
        css=folder.joinpath("style.css").read_text("utf-8"),
        digest=record.digest(),
        verdict=verdict,
        undeclared=_undeclared(record) if verdict is words.UNDECLARED else [],
        simulated=record.simulated and record.method.split != "central",
        warnings=_warnings(record),
        facts=_facts(record),
        power=_power(record),
        ledger=_ledger(record),
        table=_table(record.synthetic, record.owner),
        pairs=_pairs(record.synthetic, record.owner),
        errors=_errors(record.owner),
        costs=_costs(record.parties),
        phases=plots.phase_timeline(record.phases) if record.phases else "",
        how=words.HOW,
        trust=words.TRUST[record.method.trust],
    )
    return page


def template_of(source: str) -> Any:
    """Compile the page's template: escaping everything, refusing unknown names."""
    import jinja2  # late: only a report needs it

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters: dict[str, Callable[..., Any]] = {
        "epsilon": words.epsilon,
        "relation": words.relation,
        "small": words.small,
        "count": words.count,
        "size": words.size,
        "duration": words.duration,
        "percent": words.percent,
    }
    environment.filters.update(filters)
    return environment.from_string(source)


def _verdict(record: Record) -> words.Verdict:
    """The headline: the method's label, unless this run undercuts it."""
    if not record.private:
        part = record.method.guarantee == "partial"
        return words.PARTIAL_ONLY if part else words.NOT_PRIVATE
    if record.method.guarantee == "dp" and _overspent(record):
        return words.Verdict(
            "bad", "Over budget", "A party's ledger costs more than this study allowed."
        )
    if record.method.guarantee == "dp" and _undeclared(record):
        return words.UNDECLARED
    return words.VERDICTS[record.method.guarantee]


def _undeclared(record: Record) -> list[str]:
    """Columns of which the schema says something that was taken from rows and paid by nobody."""
    return list(dict.fromkeys(f.column for f in record.schema_facts if f.how == "free"))


def _overspent(record: Record) -> bool:
    most = max([record.epsilon_spent, *(party.epsilon for party in record.parties)])
    return most > record.budget.epsilon * (1 + 1e-9)


def _warnings(record: Record) -> list[str]:
    """The record's warnings, and those that its own numbers give."""
    found = list(record.warnings)
    if free := _undeclared(record):
        named = ", ".join(free[:6]) + (" …" if len(free) > 6 else "")
        found.append(
            f"Facts of {len(free)} columns were taken from the rows and paid by nobody "
            f"({named}). ε does not cover them: declare them, or pay for them."
        )
    if record.method.guarantee == "none" and math.isinf(record.budget.epsilon):
        found.append(
            "Nothing that was released is protected, and the synthetic table may repeat real rows: "
            "pass it and this page on only to those who may see the rows."
        )
    elif math.isinf(record.epsilon_spent):
        found.append("At least one release has no privacy cost that is finite: ε = ∞.")
    elif _overspent(record):
        found.append(
            f"The ledgers cost ε = {words.epsilon(record.epsilon_spent)}, more than the allowed "
            f"{words.epsilon(record.budget.epsilon)}."
        )
    return found


def _facts(record: Record) -> list[tuple[str, str]]:
    """Tiles under the verdict."""
    parties, aligned = record.parties, record.alignment
    asked = max((party.rounds for party in parties), default=0)
    asked += max((party.messages for party in aligned), default=0)
    moved = sum(party.bytes_sent + party.bytes_received for party in parties)
    moved += sum(party.bytes_sent + party.bytes_received for party in aligned)
    releases = len(record.ledgers) + sum(party.releases for party in aligned)
    return [
        ("party" if len(parties) == 1 else "parties", words.count(len(parties))),
        ("question asked" if asked == 1 else "questions asked", words.count(asked)),
        ("releases", words.count(releases)),
        ("on the wire", words.size(moved)),
        ("time", words.duration(sum(phase.seconds for phase in record.phases))),
        ("synthetic rows", words.count(record.synthetic.num_rows)),
    ]


def _power(record: Record) -> dict[str, Any]:
    """The best attack that ε and δ leave open."""
    claimed = record.method.guarantee == "dp"
    sound = claimed and record.private and math.isfinite(record.epsilon_spent)
    epsilon = record.epsilon_spent if sound else math.inf
    delta = record.budget.delta
    return {
        "svg": plots.power_curve(epsilon, delta),
        "sound": sound,
        "broken": claimed and not sound,
        "best": words.percent(words.attacker_power(0.01, epsilon, delta)),
        "unbounded": math.isinf(record.budget.epsilon),
        "share": 1.0 if math.isinf(record.epsilon_spent) else min(1.0, _share(record)),
    }


def _share(record: Record) -> float:
    """Share of the allowed ε that is spent; 0 where no bound was set."""
    return record.epsilon_spent / record.budget.epsilon


def _ledger(record: Record) -> dict[str, Any]:
    """Plot, summary per mechanism, and the tables of the most expensive parties."""
    parties = plots.by_party(record.ledgers)
    spent = {party.name: party.epsilon for party in record.parties}
    order = sorted(parties, key=lambda name: -spent.get(name, 0.0))
    chosen = list(parties) if len(parties) <= PARTIES else order[:PARTIES]
    drawn = any(math.isfinite(row.cumulative_epsilon) for row in record.ledgers)
    limit = max(LEDGER_ROWS // max(len(chosen), 1), 10)
    tables = [
        {
            "party": name,
            "epsilon": spent.get(name, parties[name][-1].cumulative_epsilon),
            "rows": parties[name][:limit],
            "left_out": max(len(parties[name]) - limit, 0),
            "count": len(parties[name]),
        }
        for name in chosen
    ]
    return {
        "svg": plots.staircase(record.ledgers, record.budget.epsilon) if drawn else "",
        "mechanisms": _mechanisms(record.ledgers, parties[order[0]] if order else []),
        "dearest": order[0] if order else "",
        "tables": tables,
        "parties": len(parties),
        "dotted": len({tuple(r.cumulative_epsilon for r in p) for p in parties.values()})
        <= plots.MANY,
    }


def _mechanisms(ledgers: Sequence[LedgerRow], dearest: Sequence[LedgerRow]) -> list[dict[str, Any]]:
    """Releases per mechanism, and each one's share of the dearest party's ρ when all have one."""
    total = sum(row.rho or 0.0 for row in dearest)
    whole = bool(dearest) and all(row.rho is not None for row in dearest)
    shared = whole and 0 < total < math.inf
    summary = []
    for number, name in enumerate(plots.mechanisms(ledgers)):
        spent = sum(row.rho or 0.0 for row in dearest if row.mechanism == name)
        releases = sum(row.mechanism == name for row in ledgers)
        share = spent / total if shared else None
        summary.append({"name": name, "count": releases, "share": share, "at": min(number, 5)})
    return summary


def _table(synthetic: PublicView, owner: OwnerView | None) -> dict[str, Any]:
    """One chart per column."""
    real = {m.column: m for m in owner.marginals} if owner else {}
    charts = []
    for marginal in synthetic.marginals[:COLUMNS]:
        match = real.get(marginal.column)
        if match and match.labels != marginal.labels:
            match = None
        away = plots.total_variation(marginal.proportions, match.proportions) if match else None
        charts.append(
            {
                "column": marginal.column,
                "kind": marginal.kind,
                "svg": plots.distribution(marginal, match),
                "tvd": away,
            }
        )
    return {"charts": charts, "left_out": max(len(synthetic.marginals) - COLUMNS, 0)}


def _pairs(synthetic: PublicView, owner: OwnerView | None) -> dict[str, Any] | None:
    """Heat maps and the list of pairs."""
    ours = synthetic.association
    if ours is None or len(ours.names) < 2:
        return None
    theirs = owner.association if owner else None
    if theirs and theirs.names != ours.names:
        theirs = None
    wide = len(ours.names) > plots.CELLS
    return {
        "svg": plots.heat_maps(ours, theirs, synthetic.cliques),
        "list": plots.strongest_pairs(ours, theirs),
        "measure": ours.measure,
        "compared": theirs is not None,
        "dotted": bool(synthetic.cliques) and not wide,
        "left_out": max(len(ours.names) - plots.WIDEST, 0),
    }


def _errors(owner: OwnerView | None) -> dict[str, str]:
    """Bars of workload error and total variation distance, for the owner's copy."""
    found = {"workload": "", "tvd": ""}
    if owner is None:
        return found
    if owner.workload_errors:
        found["workload"] = plots.error_bars(
            owner.workload_errors, 2.0, title="Workload error, mean L1 distance of marginals"
        )
    if owner.tvd:
        found["tvd"] = plots.error_bars(
            owner.tvd, 1.0, title="Mean total variation distance of random marginals"
        )
    return found


def _costs(parties: Sequence[PartyCost]) -> dict[str, Any]:
    """Bytes plot, the parties to list, and what all of them add up to."""
    folded = len(parties) > PARTIES
    dear = sorted(parties, key=lambda p: (-p.epsilon, -p.bytes_sent - p.bytes_received))
    amounts = ("epsilon", "bytes_sent", "bytes_received", "messages", "rounds")
    summary = {}
    for name in amounts:
        values = [getattr(party, name) for party in parties] or [0]
        summary[name] = {
            "min": min(values),
            "median": median(values),
            "max": max(values),
            "total": sum(values),
        }
    return {
        "svg": plots.party_bytes(parties) if parties else "",
        "folded": folded,
        "listed": dear[:PARTIES] if folded else list(parties),
        "summary": summary,
        "heads": any(party.ledger_head for party in parties),
    }
