"""Results in, one self-contained HTML page out: a run's report, or scores and attacks.

A report's public copy shows what was paid for or comes from the synthetic table; its owner's copy
adds statistics of real rows, and what attacks found. The page of scores and attacks has only an
owner's copy: all of its numbers come from real rows and nobody paid for them, down to where plots
are cut into cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from itertools import accumulate, groupby, pairwise
from statistics import median
from typing import Any, Literal

from siloweave.errors import InputError
from siloweave.progress import duration
from siloweave.report import plots, words
from siloweave.report.record import (
    Association,
    LedgerRow,
    Marginal,
    OwnerView,
    PartyCost,
    PublicView,
    Record,
)

Audience = Literal["public", "owner"]

PARTIES = 20
"""Parties listed one by one; of more, the most expensive."""
LEDGER_ROWS = 1200
"""Ledger lines printed on one page, over all parties."""
COLUMNS = 80
"""Columns drawn one by one."""
LOST, LINKS = 0.3, 6
"""A link of two columns is lost if that much of its strength is; so many are listed."""
INVENTED = 0.15
"""A link is invented if its strength is larger by so much than in the real rows."""

_RULE = "constraint"  # the kind of a fact that is of several columns


def _page(name: str, **values: Any) -> str:
    """Fill a template: escaping everything, refusing unknown names."""
    import jinja2  # late: only a page needs it

    folder = resources.files("siloweave.report")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda file: folder.joinpath(file).read_text("utf-8")),
    )
    filters = ("epsilon", "relation", "whom", "small", "count", "size", "percent", "overhead")
    environment.filters.update({name: getattr(words, name) for name in filters})
    values["css"] = folder.joinpath("style.css").read_text("utf-8")
    template = environment.get_template(name)
    return template.render(terms=words.terms_in(template.render(terms=[], **values)), **values)


# The report of a run


def render(
    record: Record, *, audience: Audience = "public", risks: Mapping[str, Any] | None = None
) -> str:
    """Make the report.

    Args:
        record: The run's record.
        audience: ``"public"`` shows only what was paid for or comes from the synthetic table;
            ``"owner"`` adds the real rows' statistics and says on every screen that it is local.
        risks: What attacks found, as `Risks.to_dict` gives it; for the owner's copy.

    Returns:
        An HTML page that needs no network: styles and pictures are inside, scripts are not used.

    Raises:
        InputError: If `audience` is neither, the owner's copy is asked for and the record has
            no `owner` part, or the public one is to show risks.
    """
    if audience not in ("public", "owner"):
        raise InputError(f'audience is {audience!r}; it must be "public" or "owner"')
    if audience == "owner" and record.owner is None:
        raise InputError(
            "this record has no owner part, so there is no owner's copy to make; "
            'render audience="public", or make the record where the real rows are'
        )
    if audience == "public":
        if risks is not None:
            raise InputError(
                "risks are measured on real rows, so they are for the owner's copy: leave risks "
                'out, or give audience="owner"'
            )
        record = record.public()
    verdict, owner = _verdict(record), record.owner
    return _page(
        "template.html",
        r=record,
        owner=owner,
        digest=record.digest(),
        verdict=verdict,
        tone=words.TONES[verdict.tone],
        reasons=_reasons(record, verdict),
        plain=_plain(record),
        risks=_risks(risks) if risks else None,
        undeclared=_undeclared(record) if verdict is words.UNDECLARED else [],
        counted=_counted(record),
        simulated=record.simulated and record.method.split != "central",
        warnings=_warnings(record),
        facts=_facts(record),
        power=_power(record),
        ledger=_ledger(record),
        table=_table(record.synthetic, owner),
        pairs=_pairs(record.synthetic, owner),
        costs=_costs(record.parties),
        training=plots.training_curve(owner.training) if owner and len(owner.training) > 1 else "",
        phases=_phases(record),
        how=words.HOW,
        trust=words.TRUST[record.method.trust],
    )


def _verdict(record: Record) -> words.Verdict:
    """The headline: the method's label, unless this run undercuts it."""
    claimed = record.method.guarantee
    if not record.private:
        return words.PARTIAL_ONLY if claimed == "partial" else words.NOT_PRIVATE
    if claimed == "dp" and _overspent(record):
        return words.OVERSPENT
    if claimed == "dp" and _undeclared(record):
        return words.UNDECLARED
    if claimed == "dp" and _reservations(record):
        return words.RESERVED
    return words.VERDICTS[claimed]


def _reservations(record: Record) -> list[str]:
    """What weakens a bound that holds, other than a schema from rows."""
    spent, delta, found = record.epsilon_spent, record.budget.delta, []
    if spent > words.LARGE_EPSILON:
        found.append(f"ε = {words.epsilon(spent)} is so large that the bound promises little.")
    if delta > words.LARGE_DELTA:
        found.append(
            f"δ = {words.small(delta)} is large: the bound leaves out a probability of "
            f"{words.one_in(delta)} for every {_whom(record)}."
        )
    if record.alignment:
        found.append("Who is in the common table was found by comparing ids. No ε covers that.")
    return found


def _reasons(record: Record, verdict: words.Verdict) -> list[tuple[str, str]]:
    """Why the badge has its colour: the tone of each reason, and the reason."""
    if verdict.tone == "bad" or record.method.guarantee != "dp":
        given = [record.not_private_reason] if record.not_private_reason else []
        return [(verdict.tone, text) for text in (verdict.meaning, *given)]
    spent, allowed = words.epsilon(record.epsilon_spent), words.epsilon(record.budget.epsilon)
    good = [
        "Everything computed from rows that left a party is in its ledger.",
        f"Recomputed from the ledgers, ε is {spent} of {allowed} allowed.",
        "The noise came from the operating system, not from a seed.",
    ]
    amber = _reservations(record)
    if _undeclared(record):
        amber = ["ε does not cover what the schema says of the columns above.", *amber]
    elif record.schema_facts:
        paid = any(fact.how == "paid" for fact in record.schema_facts)
        some = "What of the schema came from rows was paid for."
        good.append(some if paid else "The schema was declared: nothing in it came from rows.")
    return [("good", text) for text in good] + [("caution", text) for text in amber]


def _plain(record: Record) -> list[tuple[str, str]]:
    """What an officer asks first, and the answers, in plain words."""
    spent = record.epsilon_spent
    sound = record.private and record.method.guarantee == "dp" and math.isfinite(spent)
    what = _what(record)
    if not sound:
        use = (
            f"{what} Use them only as the real rows may be used, and give them only to those who "
            "may see the real rows, for instance to write and test programs."
        )
        learnt = (
            "Nothing bounds it: a synthetic row may repeat a real one, and an attacker may learn "
            "anything that the real rows hold."
        )
        return [("What may it be used for?", use), ("What could an attacker learn?", learnt)]
    use = (
        f"{what} They may be used for counts and averages of large groups, for how columns go "
        "together, for teaching, and to write and test programs and first models. Check on the "
        "real rows whatever matters: noise hides small groups, and links that were not measured "
        "are missing. No row is a fact about a person."
    )
    return [
        ("What may it be used for?", use),
        ("What could an attacker learn?", _learnt(record)),
        ("What do ε and δ say?", _bound(record)),
        ("Who is protected?", _protected(record)),
    ]


def _what(record: Record) -> str:
    parties = len(record.parties)
    whose = "one party" if parties == 1 else f"{words.count(parties)} parties"
    rows = words.count(record.synthetic.num_rows)
    drawn = f"{rows} synthetic rows, drawn from a model that {record.method.name} fitted to the "
    return f"{drawn}rows of {whose}. They stand for nobody."


def _learnt(record: Record) -> str:
    unit, budget = _whom(record), record.budget
    best = words.at_most(words.attacker_power(0.01, record.epsilon_spent, budget.delta))
    covered = "Of what ε covers: someone" if _undeclared(record) else "Someone"
    return (
        f"{covered} who knows all other rows, and sees all that was released, may ask whether one "
        f"{unit} was used. An attack that wrongly accuses 1% of those that were not finds at most "
        f"{best} of those that were; guessing finds 1%. What holds for many people can be learnt, "
        "and applied to anyone, in the table or not."
    )


def _bound(record: Record) -> str:
    unit, spent = record.budget.unit, record.epsilon_spent
    whom = _whom(record)
    other = "with another one instead" if "replace" in record.budget.relation else "without it"
    return (
        f"Whatever was released is at most {words.factor(spent)} times as likely with a {whom} as "
        f"{other} (e to the power of ε = {words.epsilon(spent)}), apart from a probability of "
        f"{words.one_in(record.budget.delta)} (δ). A factor of 1 would mean that the {unit} made "
        "no difference."
    )


def _whom(record: Record) -> str:
    """One of those that ε protects."""
    return words.whom(record.budget.unit, record.budget.rows_per_unit)


def _protected(record: Record) -> str:
    unit, several = record.budget.unit, len(record.parties) > 1 and record.method.split == "rows"
    if unit != "row" and record.budget.rows_per_unit is not None:
        return _protected_unit(record, several=several)
    two, delta = words.of_rows(record.epsilon_spent, record.budget.delta, 2)
    whom = "One row, and a row is not a person."
    if unit != "row":
        whom = f"One {unit}: the study says that a row stands for one {unit}; nothing checked it."
    return (
        f"{whom} For someone with two rows{', wherever they are' if several else ''}, ε is "
        f"{words.epsilon(two)} and δ {words.one_in(delta)}."
    )


def _protected_unit(record: Record, *, several: bool) -> str:
    """Who is protected where all rows with one id are."""
    unit, most = record.budget.unit, record.budget.rows_per_unit
    whom = (
        f"One {unit} with all its rows that took part, {most} at most: before anything was "
        "counted, each party left out the others."
    )
    if not several:
        return whom
    at_parties, parties = record.epsilon_at_parties, record.budget.parties_per_unit
    if at_parties is None:
        return (
            f"{whom} That is of the rows at one party. The study says that no {unit} has rows at "
            "two parties; nothing checked it."
        )
    return (
        f"{whom} That is of the rows at one party. For a {unit} with rows at up to "
        f"{min(parties, len(record.parties))} parties, ε is {words.epsilon(at_parties)}."
    )


def _lost_links(record: Record) -> list[str]:
    """Pairs of columns that go together in the real rows, and no longer in the synthetic ones."""
    ours, owner = record.synthetic.association, record.owner
    theirs = owner.association if owner else None
    if ours is None or theirs is None or ours.names != theirs.names or record.synthetic.kept:
        return []
    pairs = [
        (one, two, mine, real)
        for one, two, mine, real in plots.strongest_pairs(ours, theirs, len(ours.names) ** 2)
        if real is not None and real - mine >= LOST
    ]
    found = [
        f"{one} and {two} go together in the real rows ({real:.2f}), and "
        f"{'not' if mine < real / 10 else 'less'} in the synthetic ones ({mine:.2f})."
        for one, two, mine, real in pairs[:LINKS]
    ]
    more = len(pairs) - LINKS
    return [*found, f"{more} more pairs have lost their link."] if more > 0 else found


def _invented_links(record: Record) -> list[str]:
    """Return pairs of columns that go together in the synthetic rows more than in the real ones."""
    synthetic, owner = record.synthetic.association, record.owner
    real = owner.association if owner else None
    if synthetic is None or real is None or synthetic.names != real.names:
        return []
    if record.synthetic.kept:
        return []
    pairs = plots.strongest_pairs(synthetic, real, len(synthetic.names) ** 2)
    sentences = [
        f"{first} and {second} go together in the synthetic rows ({drawn:.2f}), and "
        f"{'not' if known < drawn / 10 else 'less'} in the real ones ({known:.2f}): do not take "
        "this link for a finding."
        for first, second, drawn, known in pairs
        if known is not None and drawn - known >= INVENTED
    ]
    more = len(sentences) - LINKS
    if more > 0:
        return [*sentences[:LINKS], f"{more} more pairs have an invented link."]
    return sentences


def _undeclared(record: Record) -> list[str]:
    """Columns, then constraints, of which something was taken from rows and paid by nobody."""
    free = [f for f in record.schema_facts if f.how == "free"]
    rules = [f.column.replace(", ", " + ") for f in free if f.kind == _RULE]
    return [*dict.fromkeys(f.column for f in free if f.kind != _RULE), *rules]


def _counted(record: Record) -> str:
    """How many columns and constraints are undeclared, in words."""
    free = [f for f in record.schema_facts if f.how == "free"]
    columns = len({f.column for f in free if f.kind != _RULE})
    rules = sum(f.kind == _RULE for f in free)
    parts = [(columns, "column"), (rules, "constraint")]
    return " and ".join(f"{n} {one}{'s' * (n != 1)}" for n, one in parts if n)


def _overspent(record: Record) -> bool:
    most = max([record.epsilon_spent, *(party.epsilon for party in record.parties)])
    return most > record.budget.epsilon * (1 + 1e-9)


def _warnings(record: Record) -> list[str]:
    """The record's warnings, and those that its own numbers give."""
    found = [*_lost_links(record), *_invented_links(record), *record.warnings]
    if free := _undeclared(record):
        named = ", ".join(free[:6]) + (" …" if len(free) > 6 else "")
        found.append(
            f"Facts of {_counted(record)} were taken from the rows and paid by nobody "
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
    asked = max((party.messages for party in parties), default=0)
    asked += max((party.messages for party in aligned), default=0)
    moved = sum(party.bytes_sent + party.bytes_received for party in parties)
    moved += sum(party.bytes_sent + party.bytes_received for party in aligned)
    releases = len(record.ledgers) + sum(party.releases for party in aligned)
    return [
        ("party" if len(parties) == 1 else "parties", words.count(len(parties))),
        ("question asked" if asked == 1 else "questions asked", words.count(asked)),
        ("releases", words.count(releases)),
        ("on the wire", words.size(moved)),
        ("time", duration(sum(phase.seconds for phase in record.phases))),
        ("synthetic rows", words.count(record.synthetic.num_rows)),
    ]


def _power(record: Record) -> dict[str, Any]:
    """The best attack that ε and δ leave open, and the share of the allowed ε that is spent."""
    spent, budget = record.epsilon_spent, record.budget
    claimed = record.method.guarantee == "dp"
    sound = claimed and record.private and math.isfinite(spent)
    epsilon = spent if sound else math.inf
    return {
        "svg": plots.power_curve(epsilon, budget.delta),
        "sound": sound,
        "broken": claimed and not sound,
        "best": words.at_most(words.attacker_power(0.01, epsilon, budget.delta)),
        "unbounded": math.isinf(budget.epsilon),
        "share": 1.0 if math.isinf(spent) else min(1.0, spent / budget.epsilon),
    }


def _ledger(record: Record) -> dict[str, Any]:
    """Plot, summary per mechanism, and the tables of the most expensive parties."""
    parties = plots.by_party(record.ledgers)
    spent = {party.name: party.epsilon for party in record.parties}
    order = sorted(parties, key=lambda name: -spent.get(name, 0.0))
    chosen = list(parties) if len(parties) <= PARTIES else order[:PARTIES]
    drawn = any(math.isfinite(row.cumulative_epsilon) for row in record.ledgers)
    limit = max(LEDGER_ROWS // max(len(chosen), 1), 10)
    curves = {tuple(row.cumulative_epsilon for row in rows) for rows in parties.values()}
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
        "dotted": len(curves) <= plots.MANY,
    }


def _mechanisms(ledgers: Sequence[LedgerRow], dearest: Sequence[LedgerRow]) -> list[dict[str, Any]]:
    """Releases per mechanism, and each one's share of the dearest party's ρ when all have one."""
    total = sum(row.rho or 0.0 for row in dearest)
    shared = all(row.rho is not None for row in dearest) and 0 < total < math.inf
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
        chart = {
            "column": marginal.column,
            "kind": marginal.kind,
            "svg": plots.distribution(marginal, match),
            "tvd": match and plots.total_variation(marginal.proportions, match.proportions),
        }
        charts.append(chart)
    return {"charts": charts, "left_out": max(len(synthetic.marginals) - COLUMNS, 0)}


def _pairs(synthetic: PublicView, owner: OwnerView | None) -> dict[str, Any] | None:
    """Heat maps and the list of pairs."""
    ours = synthetic.association
    if ours is None or len(ours.names) < 2:
        return None
    theirs = owner.association if owner else None
    if theirs and theirs.names != ours.names:
        theirs = None
    return {
        "svg": plots.heat_maps(ours, theirs, synthetic.cliques),
        "list": plots.strongest_pairs(ours, theirs),
        "measure": ours.measure,
        "compared": theirs is not None,
        "dotted": bool(synthetic.cliques) and len(ours.names) <= plots.CELLS,
        "left_out": max(len(ours.names) - plots.WIDEST, 0),
    }


def _costs(parties: Sequence[PartyCost]) -> dict[str, Any]:
    """The parties to list, what all of them add up to, and a plot where they are many."""
    folded = len(parties) > PARTIES
    dear = sorted(parties, key=lambda p: (-p.epsilon, -p.bytes_sent - p.bytes_received))
    summary = {}
    for name in ("epsilon", "bytes_sent", "bytes_received", "messages"):
        values = [getattr(party, name) for party in parties] or [0]
        found = {"min": min(values), "median": median(values), "max": max(values)}
        summary[name] = {**found, "total": sum(values)}
    return {
        "svg": plots.byte_profile(parties) if folded else "",
        "most": max(summary[name]["max"] for name in ("bytes_sent", "bytes_received")) or 1,
        "folded": folded,
        "listed": dear[:PARTIES] if folded else list(parties),
        "summary": summary,
        "heads": any(party.ledger_head for party in parties),
    }


def _phases(record: Record) -> list[tuple[str, float, float, str]]:
    """Name, start, share of the time, and how long it took, phase by phase."""
    seconds = [phase.seconds for phase in record.phases]
    total, starts = sum(seconds) or 1.0, accumulate(seconds, initial=0.0)
    return [
        (phase.name, start / total, phase.seconds / total, duration(phase.seconds))
        for phase, start in zip(record.phases, starts, strict=False)
    ]


# The page of scores and attacks


def render_comparison(
    scores: Mapping[str, Any] | None = None,
    risks: Mapping[str, Any] | None = None,
    *,
    title: str,
    version: str,
) -> str:
    """Make the page of scores and attacks, for the owner; it needs no network.

    Takes what `Scores.to_dict` and `Risks.to_dict` give; InputError without either.
    """
    if scores is None and risks is None:
        raise InputError("there is nothing to show: give scores=, risks= or both")
    return _page(
        "comparison.html",
        title=title,
        version=version,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        scores=_scores(scores) if scores else None,
        risks=_risks(risks) if risks else None,
    )


def _scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "sentence": words.scored(scores["parts"]),
        "families": [
            {"name": family, "parts": [{**part, "strip": words.has_room(part)} for part in parts]}
            for family, parts in groupby(scores["parts"], key=lambda part: part["family"])
        ],
        "charts": [column_chart(column) for column in scores["columns"][:COLUMNS]],
        "more_columns": max(len(scores["columns"]) - COLUMNS, 0),
        "pairs": pairs_chart(scores["associations"]),
        "settings": scores["settings"],
        "not_measured": scores["not_measured"],
        "distinguishing": scores["distinguishing"][:12],
    }


def column_chart(column: Mapping[str, Any]) -> dict[str, Any]:
    """How one column of `Scores.columns`, as a dictionary, spreads in both tables, drawn."""
    synthetic, real = (_marginal(column, side) for side in ("synthetic", "real"))
    return {
        "column": column["name"],
        "kind": column["kind"],
        "distance": column["distance"],
        "svg": plots.distribution(synthetic, real),
    }


def _marginal(column: Mapping[str, Any], side: str) -> Marginal:
    numeric, missing = column["kind"] == "numeric", any(share > 0 for share in column["missing"])
    labels, shares = list(column["cells"]), list(column[side])
    if numeric:
        labels = [f"{_number(a)} to {_number(b)}" for a, b in pairwise(column["edges"])]
    if missing:
        labels.append("missing")
        shares.append(column["missing"][side == "synthetic"])
    return Marginal(
        column=column["name"],
        kind=column["kind"],
        labels=tuple(labels),
        proportions=tuple(shares),
        ordered=numeric,
        missing=missing,
        logarithmic=numeric and _growing(column["edges"]),
    )


def _growing(edges: Sequence[float]) -> bool:
    """Whether cells, the first excepted, grow by a factor instead of being equally wide."""
    widths = [b - a for a, b in pairwise(edges[1:])]
    return len(widths) > 2 and widths[-1] > 2 * widths[0]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def pairs_chart(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """How columns go together in both tables, drawn; None for a single column."""
    if len(found["names"]) < 2:
        return None
    ours, theirs = (
        Association(
            names=tuple(found["names"]),
            values=tuple(tuple(abs(v) for v in row) for row in found[side]),
            measure="strength of association",
        )
        for side in ("synthetic", "real")
    )
    return {"svg": plots.heat_maps(ours, theirs), "list": plots.strongest_pairs(ours, theirs)}


def _risks(risks: Mapping[str, Any]) -> dict[str, Any]:
    curves = {m["attack"]: (m["roc"]["fpr"], m["roc"]["tpr"]) for m in risks["memberships"]}
    closest, histogram = risks["closest"], ""
    if closest:
        train, control = closest["to_train"], closest["to_control"]
        histogram = plots.distances(train["edges"], train["counts"], control["counts"])
    parts = sorted(risks["parts"], key=lambda part: (-part["low"], -part["risk"]))
    tone, sentence = words.found_by_attacks(risks)
    return {
        **risks,
        "tone": tone,
        "sentence": sentence,
        "parts": parts,
        "strongest": parts[0] if parts else None,
        "curves": plots.receiver_curves(curves) if curves else "",
        "distances": histogram,
    }
