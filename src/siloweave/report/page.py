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
from itertools import accumulate, groupby
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

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

if TYPE_CHECKING:
    from jinja2 import Environment

Audience = Literal["public", "owner"]

PARTIES = 20
"""Parties listed one by one; of more, the most expensive."""
LEDGER_ROWS = 1200
"""Ledger lines printed on one page, over all parties."""
COLUMNS = 80
"""Columns drawn one by one."""
LOST = 0.3
"""A link of two columns is lost if that much of its strength is."""
LINKS = 6
"""Lost links listed, and invented ones."""
INVENTED = 0.15
"""A link is invented if its strength is larger by so much than in the real rows."""

# The kind of a fact that is of several columns.
_RULE = "constraint"
# Columns named in a warning about facts that nobody paid for.
_NAMED = 6
# Columns that give synthetic rows away, as many as the page has bars for.
_DISTINGUISHING = 12
# Relative; what adding up a ledger's floats may put above the allowed epsilon.
_ROUNDING = 1e-9
# False alarms of the attacker whose best result is printed: 1%.
_FALSE_ALARMS = 0.01


def text_of(file: str, package: str = "siloweave.report") -> str:
    """Return the text of a file that lies beside a package's code."""
    return resources.files(package).joinpath(file).read_text("utf-8")


def templates(package: str) -> Environment:
    """Return the templates beside a package's code, filled in as every page is.

    Everything is escaped, and names that a template is not given are refused.
    """
    # Imported here: only a page needs it.
    import jinja2

    return jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda file: text_of(file, package)),
    )


def _page(name: str, **values: Any) -> str:
    """Fill in a template of this folder, with the terms that the page uses."""
    environment = templates("siloweave.report")
    filters = (
        "epsilon",
        "relation",
        "whom",
        "small",
        "count",
        "size",
        "percent",
        "overhead",
    )
    environment.filters.update({name: getattr(words, name) for name in filters})
    values["css"] = text_of("style.css")
    template = environment.get_template(name)

    # Once without terms, to see which ones the page uses, and once with their meanings.
    page = template.render(terms=[], **values)
    return template.render(terms=words.terms_in(page), **values)


# The report of a run


def render(
    record: Record,
    *,
    audience: Audience = "public",
    risks: Mapping[str, Any] | None = None,
) -> str:
    """Make the report of a run as one HTML page.

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
        # From here on there is nothing of the owner that the public copy could show.
        record = record.public()

    verdict = _verdict(record)
    owner = record.owner
    is_undeclared = verdict is words.UNDECLARED
    training = ""
    if owner and len(owner.training) > 1:
        training = plots.training_curve(owner.training)
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
        undeclared=_undeclared(record) if is_undeclared else [],
        counted=_undeclared_counts(record),
        simulated=record.simulated and record.method.split != "central",
        warnings=_warnings(record),
        facts=_facts(record),
        power=_power(record),
        ledger=_ledger(record),
        table=_table(record.synthetic, owner),
        pairs=_pairs(record.synthetic, owner),
        costs=_costs(record.parties),
        training=training,
        phases=_phases(record),
        how=words.HOW,
        trust=words.TRUST[record.method.trust],
    )


def _verdict(record: Record) -> words.Verdict:
    """Return the headline: the method's label, unless this run undercuts it."""
    claim = record.method.guarantee
    if not record.private:
        return words.PARTIAL_ONLY if claim == "partial" else words.NOT_PRIVATE
    if claim == "dp" and _overspent(record):
        return words.OVERSPENT
    if claim == "dp" and _undeclared(record):
        return words.UNDECLARED
    if claim == "dp" and _reservations(record):
        return words.RESERVED
    return words.VERDICTS[claim]


def _reservations(record: Record) -> list[str]:
    """Return what weakens a bound that holds, apart from a schema taken from rows."""
    spent = record.epsilon_spent
    delta = record.budget.delta
    reservations = []
    if spent > words.LARGE_EPSILON:
        reservations.append(
            f"ε = {words.epsilon(spent)} is so large that the bound promises little."
        )
    if delta > words.LARGE_DELTA:
        reservations.append(
            f"δ = {words.small(delta)} is large: the bound leaves out a probability of "
            f"{words.one_in(delta)} for every {_whom(record)}."
        )
    if record.alignment:
        reservations.append(
            "The rows that all parties have were found by comparing ids, and ε does not cover that."
        )
    return reservations


def _reasons(record: Record, verdict: words.Verdict) -> list[tuple[str, str]]:
    """Return the reasons for the badge's colour, each as its tone and its text."""
    if verdict.tone == "bad" or record.method.guarantee != "dp":
        texts = [verdict.meaning]
        if record.not_private_reason:
            texts.append(record.not_private_reason)
        return [(verdict.tone, text) for text in texts]

    spent = words.epsilon(record.epsilon_spent)
    allowed = words.epsilon(record.budget.epsilon)
    good = [
        "Everything computed from rows that left a party is in its ledger.",
        f"Recomputed from the ledgers, ε is {spent} of {allowed} allowed.",
        "The noise came from the operating system, not from a seed.",
    ]
    amber = _reservations(record)

    if _undeclared(record):
        amber = ["ε does not cover what the schema says of the columns above.", *amber]
    elif any(fact.how == "paid" for fact in record.schema_facts):
        good.append("What of the schema came from rows was paid for.")
    elif record.schema_facts:
        good.append("The schema was declared: nothing in it came from rows.")
    return [("good", text) for text in good] + [("caution", text) for text in amber]


def _plain(record: Record) -> list[tuple[str, str]]:
    """Return the questions that an officer asks first, with answers in plain words."""
    spent = record.epsilon_spent
    is_sound = (
        record.private and record.method.guarantee == "dp" and math.isfinite(spent)
    )
    table = _described_table(record)
    if not is_sound:
        use = (
            f"{table} Use them only as the real rows may be used, and give them only to those who "
            "may see the real rows, for instance to write and test programs."
        )
        learnt = (
            "Nothing bounds it: a synthetic row may repeat a real one, and an attacker may learn "
            "anything that the real rows hold."
        )
        return [
            ("What may it be used for?", use),
            ("What could an attacker learn?", learnt),
        ]
    use = (
        f"{table} They may be used for counts and averages of large groups, for how columns go "
        "together, for teaching, and to write and test programs and first models. Check results "
        "that matter on the real rows: noise hides small groups, and links between columns that "
        "were not measured are missing."
    )
    return [
        ("What may it be used for?", use),
        ("What could an attacker learn?", _learnt(record)),
        ("What do ε and δ say?", _bound(record)),
        ("Who is protected?", _protected(record)),
    ]


def _described_table(record: Record) -> str:
    """Describe the synthetic table: how many rows, and from whose."""
    parties = len(record.parties)
    owners = "one party" if parties == 1 else words.parties(parties)
    rows = words.count(record.synthetic.num_rows)
    return (
        f"{rows} synthetic rows, drawn from a model that {record.method.name} fitted to the "
        f"rows of {owners}. Each is a draw and no record of a person."
    )


def _learnt(record: Record) -> str:
    """Describe what the best attacker could learn about one unit."""
    unit = _whom(record)
    power = words.attacker_power(
        _FALSE_ALARMS, record.epsilon_spent, record.budget.delta
    )
    best = words.at_most(power)
    someone = "Of what ε covers: someone" if _undeclared(record) else "Someone"
    return (
        f"{someone} who knows all other rows, and sees all that was released, may ask whether one "
        f"{unit} was used. An attack that wrongly accuses 1% of those that were not finds at most "
        f"{best} of those that were; guessing finds 1%. What holds for many people can be learnt, "
        "and applied to anyone, in the table or not."
    )


def _bound(record: Record) -> str:
    """Describe what epsilon and delta bound, as a factor and a probability."""
    budget = record.budget
    spent = record.epsilon_spent
    unit = _whom(record)
    neighbour = (
        "with another one instead" if "replace" in budget.relation else "without it"
    )
    return (
        f"Whatever was released is at most {words.factor(spent)} times as likely with a {unit} as "
        f"{neighbour} (e to the power of ε = {words.epsilon(spent)}), apart from a probability of "
        f"{words.one_in(budget.delta)} (δ). A factor of 1 would mean that the {budget.unit} made "
        "no difference."
    )


def _whom(record: Record) -> str:
    """Name one of those that ε protects, in words."""
    return words.whom(record.budget.unit, record.budget.rows_per_unit)


def _protected(record: Record) -> str:
    """Describe who is protected, and what holds for someone with two rows."""
    unit = record.budget.unit
    has_several = len(record.parties) > 1 and record.method.split == "rows"
    if unit != "row" and record.budget.rows_per_unit is not None:
        return _protected_unit(record, has_several=has_several)

    protected = "One row, and a row is not a person."
    if unit != "row":
        protected = (
            f"One {unit}: the study says that a row stands for one {unit}; "
            "nothing checked it."
        )
    wherever = ", wherever they are" if has_several else ""
    epsilon, delta = words.of_rows(record.epsilon_spent, record.budget.delta, 2)
    return (
        f"{protected} For someone with two rows{wherever}, ε is "
        f"{words.epsilon(epsilon)} and δ {words.one_in(delta)}."
    )


def _protected_unit(record: Record, *, has_several: bool) -> str:
    """Describe who is protected where all rows with one id are."""
    unit = record.budget.unit
    protected = (
        f"One {unit} with all its rows that took part, {record.budget.rows_per_unit} at most: "
        "before anything was counted, each party left out the others."
    )
    if not has_several:
        return protected

    epsilon = record.epsilon_at_parties
    if epsilon is None:
        return (
            f"{protected} That is of the rows at one party. The study says that no {unit} has rows "
            "at two parties; nothing checked it."
        )
    parties = min(record.budget.parties_per_unit, len(record.parties))
    return (
        f"{protected} That is of the rows at one party. For a {unit} with rows at up to "
        f"{parties} parties, ε is {words.epsilon(epsilon)}."
    )


def _comparable(record: Record) -> tuple[Association, Association] | None:
    """Return the synthetic and the real associations, if links can be compared on this page.

    Where synthetic columns stay with their parties, their links are not listed.
    """
    synthetic = record.synthetic.association
    real = record.owner.association if record.owner else None
    if synthetic is None or real is None or record.synthetic.kept:
        return None
    if synthetic.names != real.names:
        return None
    return synthetic, real


def _lost_links(record: Record) -> list[str]:
    """Return the pairs of columns that depend on each other in real rows, and less in synthetic."""
    associations = _comparable(record)
    if associations is None:
        return []
    synthetic, _ = associations
    pairs = plots.strongest_pairs(*associations, len(synthetic.names) ** 2)
    sentences = [
        f"{first} and {second} go together in the real rows ({in_real:.2f}), and "
        f"{_not_or_less(in_synthetic, in_real)} in the synthetic ones ({in_synthetic:.2f})."
        for first, second, in_synthetic, in_real in pairs
        if in_real is not None and in_real - in_synthetic >= LOST
    ]
    return _first_links(sentences, "pairs have lost their link.")


def _not_or_less(weak: float, strong: float) -> str:
    """Return the word by which a weak link compares with a strong one: "not" or "less"."""
    return "not" if weak < strong / 10 else "less"


def _first_links(sentences: list[str], ending: str) -> list[str]:
    """Return sentences about the first links, and one that counts the others."""
    more = len(sentences) - LINKS
    if more <= 0:
        return sentences
    return [*sentences[:LINKS], f"{more} more {ending}"]


def _invented_links(record: Record) -> list[str]:
    """Return the pairs of columns that depend on each other in synthetic rows more than in real."""
    associations = _comparable(record)
    if associations is None:
        return []
    synthetic, _ = associations
    pairs = plots.strongest_pairs(*associations, len(synthetic.names) ** 2)
    sentences = [
        f"{first} and {second} go together in the synthetic rows ({in_synthetic:.2f}), and "
        f"{_not_or_less(in_real, in_synthetic)} in the real ones ({in_real:.2f}): do not take "
        "this link for a finding."
        for first, second, in_synthetic, in_real in pairs
        if in_real is not None and in_synthetic - in_real >= INVENTED
    ]
    return _first_links(sentences, "pairs have an invented link.")


def _undeclared(record: Record) -> list[str]:
    """Return the columns, then the constraints, whose facts came from rows unpaid."""
    free = [fact for fact in record.schema_facts if fact.how == "free"]
    # Several facts may be about one column.
    columns = dict.fromkeys(fact.column for fact in free if fact.kind != _RULE)
    rules = [fact.column.replace(", ", " + ") for fact in free if fact.kind == _RULE]
    return [*columns, *rules]


def _undeclared_counts(record: Record) -> str:
    """Describe in words how many columns and constraints are undeclared."""
    free = [fact for fact in record.schema_facts if fact.how == "free"]
    columns = len({fact.column for fact in free if fact.kind != _RULE})
    rules = sum(fact.kind == _RULE for fact in free)
    parts = []
    if columns:
        parts.append(f"{columns} column{'s' * (columns != 1)}")
    if rules:
        parts.append(f"{rules} constraint{'s' * (rules != 1)}")
    return " and ".join(parts)


def _overspent(record: Record) -> bool:
    """Return whether a ledger costs more than the study allowed."""
    epsilons = [party.epsilon for party in record.parties]
    most = max([record.epsilon_spent, *epsilons])
    return most > record.budget.epsilon * (1 + _ROUNDING)


def _warnings(record: Record) -> list[str]:
    """Return the record's warnings, and further ones that follow from its numbers."""
    warnings = [*_lost_links(record), *_invented_links(record), *record.warnings]

    undeclared = _undeclared(record)
    if undeclared:
        names = ", ".join(undeclared[:_NAMED])
        if len(undeclared) > _NAMED:
            names += " …"
        warnings.append(
            f"Facts of {_undeclared_counts(record)} were taken from the rows and paid by nobody "
            f"({names}). ε does not cover them: declare them, or pay for them."
        )

    if record.method.guarantee == "none" and math.isinf(record.budget.epsilon):
        warnings.append(
            "Nothing that was released is protected, and the synthetic table may repeat real rows: "
            "pass it and this page on only to those who may see the rows."
        )
    elif math.isinf(record.epsilon_spent):
        warnings.append(
            "At least one release has no privacy cost that is finite: ε = ∞."
        )
    elif _overspent(record):
        warnings.append(
            f"The ledgers cost ε = {words.epsilon(record.epsilon_spent)}, more than the allowed "
            f"{words.epsilon(record.budget.epsilon)}."
        )
    return warnings


def _facts(record: Record) -> list[tuple[str, str]]:
    """Return the tiles under the verdict: the name of each number, and the number."""
    parties = record.parties
    aligned = record.alignment
    # A question goes to several parties at once, so the party that got most of them counts.
    questions = max((party.messages for party in parties), default=0)
    questions += max((party.messages for party in aligned), default=0)
    wire = sum(party.bytes_sent + party.bytes_received for party in parties)
    wire += sum(party.bytes_sent + party.bytes_received for party in aligned)
    releases = len(record.ledgers) + sum(party.releases for party in aligned)
    seconds = sum(phase.seconds for phase in record.phases)
    party_noun = "party" if len(parties) == 1 else "parties"
    question_noun = "question asked" if questions == 1 else "questions asked"
    return [
        (party_noun, words.count(len(parties))),
        (question_noun, words.count(questions)),
        ("releases", words.count(releases)),
        ("on the wire", words.size(wire)),
        ("time of the fit", duration(seconds)),
        ("synthetic rows", words.count(record.synthetic.num_rows)),
    ]


def _power(record: Record) -> dict[str, Any]:
    """Return the best attack that ε and δ leave open, and the spent share of the allowed ε."""
    spent = record.epsilon_spent
    budget = record.budget
    claims = record.method.guarantee == "dp"
    is_sound = claims and record.private and math.isfinite(spent)
    epsilon = spent if is_sound else math.inf
    power = words.attacker_power(_FALSE_ALARMS, epsilon, budget.delta)
    return {
        "svg": plots.power_curve(epsilon, budget.delta),
        "sound": is_sound,
        "broken": claims and not is_sound,
        "best": words.at_most(power),
        "unbounded": math.isinf(budget.epsilon),
        "share": 1.0 if math.isinf(spent) else min(1.0, spent / budget.epsilon),
    }


def _ledger(record: Record) -> dict[str, Any]:
    """Return a plot, a summary per mechanism, and the tables of the most expensive parties."""
    parties = plots.by_party(record.ledgers)
    epsilons = {party.name: party.epsilon for party in record.parties}
    by_cost = sorted(parties, key=lambda name: -epsilons.get(name, 0.0))
    dearest = by_cost[0] if by_cost else ""

    # All parties in their own order, or the most expensive ones.
    names = list(parties) if len(parties) <= PARTIES else by_cost[:PARTIES]
    limit = max(LEDGER_ROWS // max(len(names), 1), 10)
    tables = []
    for name in names:
        rows = parties[name]
        table = {
            "party": name,
            "epsilon": epsilons.get(name, rows[-1].cumulative_epsilon),
            "rows": rows[:limit],
            "left_out": max(len(rows) - limit, 0),
            "count": len(rows),
        }
        tables.append(table)

    # Parties whose releases cost alike share one curve.
    curves = {
        tuple(row.cumulative_epsilon for row in rows) for rows in parties.values()
    }
    has_curve = any(math.isfinite(row.cumulative_epsilon) for row in record.ledgers)
    svg = plots.staircase(record.ledgers, record.budget.epsilon) if has_curve else ""
    return {
        "svg": svg,
        "mechanisms": _mechanisms(record.ledgers, parties.get(dearest, [])),
        "dearest": dearest,
        "tables": tables,
        "parties": len(parties),
        "dotted": len(curves) <= plots.MANY,
    }


def _mechanisms(
    ledgers: Sequence[LedgerRow], dearest: Sequence[LedgerRow]
) -> list[dict[str, Any]]:
    """Count releases per mechanism, with its share of the dearest party's ρ if all have one."""
    total = sum(row.rho or 0.0 for row in dearest)
    has_shares = all(row.rho is not None for row in dearest) and 0 < total < math.inf
    summary = []
    for number, name in enumerate(plots.mechanisms(ledgers)):
        rho = sum(row.rho or 0.0 for row in dearest if row.mechanism == name)
        mechanism = {
            "name": name,
            "count": sum(row.mechanism == name for row in ledgers),
            "share": rho / total if has_shares else None,
            "at": plots.colour_of(number),
        }
        summary.append(mechanism)
    return summary


def _table(synthetic: PublicView, owner: OwnerView | None) -> dict[str, Any]:
    """Return one chart per column of the synthetic table."""
    real_marginals = (
        {marginal.column: marginal for marginal in owner.marginals} if owner else {}
    )
    charts = []
    for marginal in synthetic.marginals[:COLUMNS]:
        # Other labels would be other bars.
        real = real_marginals.get(marginal.column)
        if real and real.labels != marginal.labels:
            real = None
        distance = real and plots.total_variation(
            marginal.proportions, real.proportions
        )
        chart = {
            "column": marginal.column,
            "kind": marginal.kind,
            "svg": plots.distribution(marginal, real),
            "tvd": distance,
        }
        charts.append(chart)
    return {"charts": charts, "left_out": max(len(synthetic.marginals) - COLUMNS, 0)}


def _pairs(synthetic: PublicView, owner: OwnerView | None) -> dict[str, Any] | None:
    """Return heat maps and the list of pairs; None where there is nothing to draw."""
    association = synthetic.association
    if association is None or len(association.names) < 2:
        return None
    real = owner.association if owner else None
    if real and real.names != association.names:
        real = None
    columns = len(association.names)
    return {
        "svg": plots.heat_maps(association, real, synthetic.cliques),
        "list": plots.strongest_pairs(association, real),
        "measure": association.measure,
        "compared": real is not None,
        "dotted": bool(synthetic.cliques) and columns <= plots.CELLS,
        "left_out": max(columns - plots.WIDEST, 0),
    }


def _costs(parties: Sequence[PartyCost]) -> dict[str, Any]:
    """Return the parties to list, the sums over all of them, and a plot if they are many."""
    is_folded = len(parties) > PARTIES
    by_cost = sorted(
        parties, key=lambda p: (-p.epsilon, -p.bytes_sent - p.bytes_received)
    )

    summary = {}
    for name in ("epsilon", "bytes_sent", "bytes_received", "messages"):
        values = [getattr(party, name) for party in parties] or [0]
        summary[name] = {
            "min": min(values),
            "median": median(values),
            "max": max(values),
            "total": sum(values),
        }
    # Bars are shares of the largest; 0 bytes leave no bar.
    most = max(summary[name]["max"] for name in ("bytes_sent", "bytes_received")) or 1
    return {
        "svg": plots.byte_profile(parties) if is_folded else "",
        "most": most,
        "folded": is_folded,
        "listed": by_cost[:PARTIES] if is_folded else list(parties),
        "summary": summary,
        "heads": any(party.ledger_head for party in parties),
    }


def _phases(record: Record) -> list[tuple[str, float, float, str]]:
    """Return each phase's name, start, share of the time, and duration."""
    seconds = [phase.seconds for phase in record.phases]
    total = sum(seconds) or 1.0
    starts = accumulate(seconds, initial=0.0)
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
    """Make the page of scores and attacks, for the owner alone; it needs no network.

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
    """Return scores as the template shows them, by family."""
    families = []
    for family, parts in groupby(scores["parts"], key=lambda part: part["family"]):
        with_strips = [{**part, "strip": words.has_room(part)} for part in parts]
        families.append({"name": family, "parts": with_strips})
    return {
        "sentence": words.scored(scores["parts"]),
        "families": families,
        "charts": [column_chart(column) for column in scores["columns"][:COLUMNS]],
        "more_columns": max(len(scores["columns"]) - COLUMNS, 0),
        "pairs": pairs_chart(scores["associations"]),
        "worst_pairs": [pair_chart(pair) for pair in scores["pairs"]],
        "settings": scores["settings"],
        "not_measured": scores["not_measured"],
        "distinguishing": scores["distinguishing"][:_DISTINGUISHING],
    }


def column_chart(column: Mapping[str, Any]) -> dict[str, Any]:
    """Draw how one column is distributed in both tables, from a part of `Scores.columns`."""
    synthetic = _marginal(column, "synthetic")
    real = _marginal(column, "real")
    return {
        "column": column["name"],
        "kind": column["kind"],
        "distance": column["distance"],
        "svg": plots.distribution(synthetic, real),
    }


def _marginal(column: Mapping[str, Any], side: str) -> Marginal:
    """Return one table's distribution of a column; missing values have the last label."""
    place = ("real", "synthetic").index(side)
    is_numeric = column["kind"] == "numeric"
    labels = list(column["cells"])
    shares = list(column[side])
    if is_numeric:
        edges = column["edges"]
        is_whole = column["whole"]
        dates = column["datetimes"]
        labels = list(words.spans(edges, whole=is_whole, dates=dates))

        # What lies outside has no place on the axis, and is described below it.
        write = words.day if dates else words.axis_number
        last = edges[-1] - 1 if is_whole else edges[-1]
        labels += [f"below {write(edges[0])}", f"above {write(last)}"]
        shares += [column["below"][place], column["above"][place]]

    # Both tables have the label if one of them has such values: shares stand side by side.
    has_missing = any(share > 0 for share in column["missing"])
    if has_missing:
        labels.append("missing")
        shares.append(column["missing"][place])
    return Marginal(
        column=column["name"],
        kind=_axis_kind(column),
        labels=tuple(labels),
        proportions=tuple(shares),
        ordered=is_numeric,
        missing=has_missing,
        logarithmic=column["growing"],
        edges=tuple(column["edges"]),
        others=column["others"],
    )


def _axis_kind(column: Mapping[str, Any]) -> str:
    """Return a column's kind as histograms take it."""
    if column["datetimes"]:
        return "datetime"
    if column["whole"]:
        return "integer"
    return str(column["kind"])


def pairs_chart(associations: Mapping[str, Any]) -> dict[str, Any] | None:
    """Draw how columns depend on each other in both tables; None for a single column."""
    if len(associations["names"]) < 2:
        return None
    synthetic = _association(associations, "synthetic")
    real = _association(associations, "real")
    return {
        "svg": plots.heat_maps(synthetic, real),
        "list": plots.strongest_pairs(synthetic, real),
    }


def pair_chart(pair: Mapping[str, Any]) -> dict[str, Any]:
    """Draw how two columns are distributed together, from a part of `Scores.pairs`."""
    first, second = pair["columns"]
    first_labels, second_labels = pair["labels"]
    in_real, in_synthetic = pair["strengths"]
    svg = plots.pair_grids(
        (first, second), (first_labels, second_labels), pair["real"], pair["synthetic"]
    )
    return {
        "title": f"{first} and {second}",
        "real": in_real,
        "synthetic": in_synthetic,
        "svg": svg,
    }


def _association(associations: Mapping[str, Any], side: str) -> Association:
    """Return one table's associations without signs, which not every measure has."""
    return Association(
        names=tuple(associations["names"]),
        values=tuple(tuple(map(abs, row)) for row in associations[side]),
        measure="strength of association",
    )


def _risks(risks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attacks' findings as the template shows them, the highest lower end first."""
    curves = {}
    for membership in risks["memberships"]:
        roc = membership["roc"]
        curves[membership["attack"]] = (roc["fpr"], roc["tpr"])

    closest = risks["closest"]
    histogram = ""
    if closest:
        train = closest["to_train"]
        control = closest["to_control"]
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
