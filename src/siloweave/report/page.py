"""Results in, one self-contained HTML page out: a run's report, or scores and attacks.

A report's public copy shows what was paid for or comes from the synthetic table; its owner's copy
adds statistics of real rows, and what attacks found. The page of scores and attacks has only an
owner's copy: all of its numbers come from real rows and nobody paid for them, down to where plots
are cut into cells.

Here are numbers and plots; the sentences are those of the templates beside this file. A sentence
that the terminal prints too is in `words` or `results`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from itertools import accumulate, chain
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from siloweave.errors import InputError
from siloweave.progress import duration
from siloweave.report import results, run_plots, table_plots, words
from siloweave.report.facts import facts_of
from siloweave.report.record import (
    Association,
    LedgerRow,
    Marginal,
    OwnerView,
    PartyCost,
    Phase,
    PublicView,
    Record,
)
from siloweave.report.text_table import TextTable

if TYPE_CHECKING:
    from jinja2 import Environment

Audience = Literal["public", "owner"]

PARTIES = 20
"""Parties listed one by one; of more, the most expensive."""
LEDGER_ROWS = 1200
"""Ledger lines printed on one page, over all parties."""
COLUMNS = 80
"""Columns drawn one by one."""

# Columns that give synthetic rows away, as many as the page has bars for.
_DISTINGUISHING = 12
# Macros that all pages share.
_PARTS = "parts.html"
# How templates write numbers and names: functions of `words`, by their names.
_FILTERS = (
    *("epsilon", "small", "factor", "one_in", "at_most", "percent", "count", "size"),
    *("parties", "relation", "whom", "overhead", "rounded_down", "css_text"),
)


def text_of(file: str, package: str = "siloweave.report") -> str:
    """Return the text of a file that lies beside a package's code."""
    return resources.files(package).joinpath(file).read_text("utf-8")


def templates(package: str) -> Environment:
    """Return the templates beside a package's code, filled in as every page is.

    Everything is escaped, and names that a template is not given are refused. What pages share,
    `parts.html` here, is at hand for the templates of every package.
    """
    # Imported here: only a page needs it.
    import jinja2

    def text(file: str) -> str:
        return text_of(file, "siloweave.report" if file == _PARTS else package)

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(text),
    )
    environment.filters["duration"] = duration
    for name in _FILTERS:
        environment.filters[name] = getattr(words, name)
    return environment


def _page(name: str, **values: Any) -> str:
    """Fill in a template of this folder, with the terms that the page uses."""
    values["css"] = text_of("style.css")
    template = templates("siloweave.report").get_template(name)

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

    owner = record.owner
    training = ""
    if owner and len(owner.training) > 1:
        training = run_plots.training_curve(owner.training)
    facts = facts_of(record)
    # Where no sound ε covers the run, nothing limits an attack.
    bound = record.epsilon_spent if facts.is_sound else math.inf
    return _page(
        "report.html",
        record=record,
        facts=facts,
        owner=owner,
        version=record.siloweave_version,
        created=record.created,
        digest=record.digest(),
        trust=words.TRUST[record.method.trust],
        is_simulation=record.simulated and record.method.split != "central",
        power=run_plots.power_curve(bound, record.budget.delta),
        ledgers=_ledger_view(record),
        charts=_charts(record.synthetic, owner),
        hidden_columns=max(len(record.synthetic.marginals) - COLUMNS, 0),
        pairs=_pairs_view(record.synthetic, owner),
        costs=_cost_view(record.parties),
        training=training,
        phases=_spans(record.phases),
        risks=_risk_view(risks) if risks else None,
    )


@dataclass(frozen=True)
class MechanismShare:
    """How many releases a mechanism made, and what they cost.

    Attributes:
        name: The mechanism's.
        count: Releases of all parties.
        share: Of the dearest party's ρ; None where not all of its releases have one.
        colour: Number of its colour in the plot.
    """

    name: str
    count: int
    share: float | None
    colour: int


@dataclass(frozen=True)
class PartyLedger:
    """The lines of a party's ledger that the page prints.

    Attributes:
        party: Its name.
        epsilon: What the ledger costs.
        rows: The first lines.
        count: How many lines there are in all.
    """

    party: str
    epsilon: float
    rows: Sequence[LedgerRow]
    count: int

    @property
    def num_left_out(self) -> int:
        """How many lines are not printed."""
        return self.count - len(self.rows)


@dataclass(frozen=True)
class LedgerView:
    """What the page shows of all ledgers.

    Attributes:
        svg: The curve of ε; empty where no release has a finite cost.
        mechanisms: Their releases.
        dearest: The most expensive party.
        listed: Ledgers of all parties in their own order, or of the most expensive ones.
        num_parties: How many parties have a ledger.
        is_dotted: Whether the curve marks each release.
    """

    svg: str
    mechanisms: Sequence[MechanismShare]
    dearest: str
    listed: Sequence[PartyLedger]
    num_parties: int
    is_dotted: bool

    @property
    def has_cut_names(self) -> bool:
        """Whether a line that is printed names only the first of its marginals."""
        lines = chain.from_iterable(ledger.rows for ledger in self.listed)
        return any(line.what.endswith("…") for line in lines)


def _ledger_view(record: Record) -> LedgerView:
    """Return a plot, a summary per mechanism, and the ledgers of the most expensive parties."""
    parties = run_plots.by_party(record.ledgers)
    epsilons = {party.name: party.epsilon for party in record.parties}
    by_cost = sorted(parties, key=lambda name: -epsilons.get(name, 0.0))
    dearest = by_cost[0] if by_cost else ""

    # All parties in their own order, or the most expensive ones.
    names = list(parties) if len(parties) <= PARTIES else by_cost[:PARTIES]
    limit = max(LEDGER_ROWS // max(len(names), 1), 10)
    listed = []
    for name in names:
        rows = parties[name]
        epsilon = epsilons.get(name, rows[-1].cumulative_epsilon)
        listed.append(PartyLedger(name, epsilon, rows[:limit], len(rows)))

    # Parties whose releases cost alike share one curve.
    curves = {
        tuple(row.cumulative_epsilon for row in rows) for rows in parties.values()
    }
    has_curve = any(math.isfinite(row.cumulative_epsilon) for row in record.ledgers)
    return LedgerView(
        svg=run_plots.staircase(record.ledgers, record.budget.epsilon)
        if has_curve
        else "",
        mechanisms=_mechanisms(record.ledgers, parties.get(dearest, [])),
        dearest=dearest,
        listed=listed,
        num_parties=len(parties),
        is_dotted=len(curves) <= run_plots.MANY,
    )


def _mechanisms(
    ledgers: Sequence[LedgerRow], dearest: Sequence[LedgerRow]
) -> list[MechanismShare]:
    """Count releases per mechanism, with its share of the dearest party's ρ if all have one."""
    total = sum(row.rho or 0.0 for row in dearest)
    has_shares = all(row.rho is not None for row in dearest) and 0 < total < math.inf
    mechanisms = []
    for number, name in enumerate(run_plots.mechanisms(ledgers)):
        count = sum(row.mechanism == name for row in ledgers)
        rho = sum(row.rho or 0.0 for row in dearest if row.mechanism == name)
        share = rho / total if has_shares else None
        mechanisms.append(
            MechanismShare(name, count, share, run_plots.colour_of(number))
        )
    return mechanisms


@dataclass(frozen=True)
class ColumnChart:
    """A plot of how one column is distributed.

    Attributes:
        column: Its name.
        kind: Its kind.
        svg: The plot.
        distance: From the real rows; None where these are not shown.
    """

    column: str
    kind: str
    svg: str
    distance: float | None


def _charts(synthetic: PublicView, owner: OwnerView | None) -> list[ColumnChart]:
    """Return a chart for each of the first columns of the synthetic table."""
    real_marginals = (
        {marginal.column: marginal for marginal in owner.marginals} if owner else {}
    )
    charts = []
    for marginal in synthetic.marginals[:COLUMNS]:
        # Other labels would be other bars.
        real = real_marginals.get(marginal.column)
        if real and real.labels != marginal.labels:
            real = None
        distance = None
        if real:
            distance = table_plots.total_variation(
                marginal.proportions, real.proportions
            )
        svg = table_plots.distribution(marginal, real)
        charts.append(ColumnChart(marginal.column, marginal.kind, svg, distance))
    return charts


@dataclass(frozen=True)
class PairsView:
    """How all pairs of columns go together.

    Attributes:
        svg: Heat maps.
        links: Pairs of columns: those furthest from the real rows, or the strongest.
        measure: What the numbers are.
        is_compared: Whether the real rows are beside the synthetic ones.
        is_dotted: Whether dots mark the model's cliques.
        num_left_out: How many columns are not drawn.
        is_dense: Whether the cells are so small that a reader may want a larger picture.
    """

    svg: str
    links: Sequence[table_plots.ColumnLink]
    measure: str
    is_compared: bool
    is_dotted: bool = False
    num_left_out: int = 0
    is_dense: bool = False


def _pairs_view(synthetic: PublicView, owner: OwnerView | None) -> PairsView | None:
    """Return heat maps and the list of pairs; None where there is nothing to draw."""
    association = synthetic.association
    if association is None or len(association.names) < 2:
        return None
    real = owner.association if owner else None
    if real and real.names != association.names:
        real = None
    columns = len(association.names)
    return PairsView(
        svg=table_plots.heat_maps(association, real, synthetic.cliques),
        links=table_plots.strongest_pairs(association, real),
        measure=association.measure,
        is_compared=real is not None,
        is_dotted=bool(synthetic.cliques) and columns <= table_plots.CELLS,
        num_left_out=max(columns - table_plots.WIDEST, 0),
        is_dense=columns > table_plots.CELLS,
    )


@dataclass(frozen=True)
class CostSummary:
    """The sum of a cost over all parties, and how it is spread."""

    least: float
    median: float
    most: float
    total: float


@dataclass(frozen=True)
class CostView:
    """What the run cost the parties.

    Attributes:
        svg: A plot, if they are many.
        listed: Those that are listed.
        summary: Of every cost, by name.
        most_bytes: The largest number of bytes, of which bars are shares; at least 1.
        is_folded: Whether only the most expensive are listed.
        has_heads: Whether the last lines of their ledgers are known.
    """

    svg: str
    listed: Sequence[PartyCost]
    summary: Mapping[str, CostSummary]
    most_bytes: float
    is_folded: bool
    has_heads: bool


def _cost_view(parties: Sequence[PartyCost]) -> CostView:
    """Return the parties to list, the sums over all of them, and a plot if they are many."""
    is_folded = len(parties) > PARTIES
    by_cost = sorted(
        parties, key=lambda p: (-p.epsilon, -p.bytes_sent - p.bytes_received)
    )

    summary = {}
    for name in ("epsilon", "bytes_sent", "bytes_received", "messages"):
        values = [getattr(party, name) for party in parties] or [0]
        summary[name] = CostSummary(
            min(values), median(values), max(values), sum(values)
        )
    # Bars are shares of the largest; 0 bytes leave no bar.
    most_bytes = max(summary["bytes_sent"].most, summary["bytes_received"].most) or 1
    return CostView(
        svg=run_plots.byte_profile(parties) if is_folded else "",
        listed=by_cost[:PARTIES] if is_folded else list(parties),
        summary=summary,
        most_bytes=most_bytes,
        is_folded=is_folded,
        has_heads=any(party.ledger_head for party in parties),
    )


@dataclass(frozen=True)
class PhaseSpan:
    """A phase of the fit: when it began, as a share of all the time, its share, and its seconds."""

    name: str
    start: float
    share: float
    seconds: float


def _spans(phases: Sequence[Phase]) -> list[PhaseSpan]:
    """Return each phase's place in the time of all."""
    seconds = [phase.seconds for phase in phases]
    total = sum(seconds) or 1.0
    starts = accumulate(seconds, initial=0.0)
    return [
        PhaseSpan(phase.name, start / total, phase.seconds / total, phase.seconds)
        for phase, start in zip(phases, starts, strict=False)
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
        scores=_score_view(scores) if scores else None,
        risks=_risk_view(risks) if risks else None,
    )


@dataclass(frozen=True)
class ScoreView:
    """Scores as the page shows them.

    Attributes:
        sentence: What they come to.
        table: All of them.
        rows: How many rows each table has.
        seed: Of every draw.
        ceiling: What the ceiling compares.
        not_measured: Measures that do not apply, with the reason.
        distinguishing: Columns that give synthetic rows away, the clearest first.
        charts: Of the first columns.
        num_left_out: How many columns are not drawn.
        pairs: How columns go together; None for a single column.
        worst_pairs: The pairs that differ most.
    """

    sentence: str
    table: TextTable
    rows: Mapping[str, int]
    seed: int
    ceiling: str
    not_measured: Sequence[Mapping[str, str]]
    distinguishing: Sequence[tuple[str, float]]
    charts: Sequence[ColumnChart]
    num_left_out: int
    pairs: PairsView | None
    worst_pairs: Sequence[PairChart]


@dataclass(frozen=True)
class PairChart:
    """A plot of how two columns are distributed together, and how strongly they depend.

    Attributes:
        title: Both names.
        real: Strength of the association in the real rows.
        synthetic: The same in the synthetic table.
        svg: The plot.
        is_dense: Whether it has so many cells that a reader may want a larger picture.
    """

    title: str
    real: float
    synthetic: float
    svg: str
    is_dense: bool


def _score_view(scores: Mapping[str, Any]) -> ScoreView:
    """Return scores as the page shows them."""
    settings = scores["settings"]
    columns = scores["columns"]
    return ScoreView(
        sentence=words.scored(scores),
        table=results.score_table(scores["parts"]),
        rows=settings["rows"],
        seed=settings["seed"],
        ceiling=settings["ceiling"],
        not_measured=scores["not_measured"],
        distinguishing=scores["distinguishing"][:_DISTINGUISHING],
        charts=[column_chart(column) for column in columns[:COLUMNS]],
        num_left_out=max(len(columns) - COLUMNS, 0),
        pairs=pairs_view(scores["associations"]),
        worst_pairs=[pair_chart(pair) for pair in scores["pairs"]],
    )


def column_chart(column: Mapping[str, Any]) -> ColumnChart:
    """Draw how one column is distributed in both tables, from a part of `Scores.columns`."""
    synthetic = _marginal(column, "synthetic")
    real = _marginal(column, "real")
    svg = table_plots.distribution(synthetic, real)
    return ColumnChart(column["name"], column["kind"], svg, column["distance"])


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


def pairs_view(associations: Mapping[str, Any]) -> PairsView | None:
    """Draw how columns depend on each other in both tables; None for a single column."""
    if len(associations["names"]) < 2:
        return None
    synthetic = _association(associations, "synthetic")
    real = _association(associations, "real")
    return PairsView(
        svg=table_plots.heat_maps(synthetic, real),
        links=table_plots.strongest_pairs(synthetic, real),
        measure=synthetic.measure,
        is_compared=True,
        is_dense=len(synthetic.names) > table_plots.CELLS,
    )


def pair_chart(pair: Mapping[str, Any]) -> PairChart:
    """Draw how two columns are distributed together, from a part of `Scores.pairs`."""
    first, second = pair["columns"]
    first_labels, second_labels = pair["labels"]
    in_real, in_synthetic = pair["strengths"]
    svg = table_plots.pair_grids(
        (first, second), (first_labels, second_labels), pair["real"], pair["synthetic"]
    )
    cells = len(first_labels) * len(second_labels)
    is_dense = cells > table_plots.GRID_CELLS
    return PairChart(f"{first} and {second}", in_real, in_synthetic, svg, is_dense)


def _association(associations: Mapping[str, Any], side: str) -> Association:
    """Return one table's associations without signs, which not every measure has."""
    return Association(
        names=tuple(associations["names"]),
        values=tuple(tuple(map(abs, row)) for row in associations[side]),
        measure="strength of association",
    )


@dataclass(frozen=True)
class RiskView:
    """What attacks found, as a page shows it.

    Attributes:
        risks: All of it, as `Risks.to_dict` gives it.
        tone: Whether anything was found, as a colour.
        sentence: The same in words.
        strongest: The attack whose interval has the highest lower end; None without attacks.
        table: The attacks.
        memberships: Membership attacks; None without any.
        copies: Rows that the synthetic table holds exactly; None if they were not counted.
        curves: A plot of the membership attacks' curves; empty without any.
        distances: A plot of distances to the closest record; empty if they were not measured.
    """

    risks: Mapping[str, Any]
    tone: str
    sentence: str
    strongest: Mapping[str, Any] | None
    table: TextTable
    memberships: TextTable | None
    copies: TextTable | None
    curves: str
    distances: str


def _risk_view(risks: Mapping[str, Any]) -> RiskView:
    """Return what attacks found as a page shows it."""
    curves = {}
    for membership in risks["memberships"]:
        roc = membership["roc"]
        curves[membership["attack"]] = (roc["fpr"], roc["tpr"])

    closest = risks["closest"]
    histogram = ""
    if closest:
        train = closest["to_train"]
        control = closest["to_control"]
        histogram = run_plots.distances(
            train["edges"], train["counts"], control["counts"]
        )

    worst = risks["worst"]
    parts = results.ranked(risks["parts"])
    tone, sentence = words.found_by_attacks(risks)
    return RiskView(
        risks=risks,
        tone=tone,
        sentence=sentence,
        strongest=parts[0] if parts else None,
        table=results.risk_table(risks),
        memberships=results.membership_table(risks) if curves else None,
        copies=results.copies_table(risks) if worst and worst["copies"] else None,
        curves=run_plots.receiver_curves(curves) if curves else "",
        distances=histogram,
    )
