"""What a record's numbers come to: the facts of which the report's templates make sentences.

Numbers, names and lists alone; `verdict.html` has the words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Literal

import msgspec

from siloweave.report import table_plots, words
from siloweave.report.record import AlignmentCost, PartyCost, Record, SchemaFact

Verdict = Literal[
    "dp",
    "undeclared",
    "reserved",
    "partial",
    "refuted",
    "none",
    "overspent",
    "partial_only",
    "not_private",
]
"""What the badge says: a method's guarantee, or what keeps this run from having it."""
Tone = Literal["good", "caution", "bad"]
"""The colour of a badge or a sentence: green, amber or red."""

LARGE_EPSILON = 10.0
"""Above this ε a bound says little, whatever it is a bound of."""
LARGE_DELTA = 1e-4
"""Above this δ likewise, however few rows there are."""
ROWS_PER_DELTA = 10.0
"""δ is to stay below one in so many times the number of rows."""
FACT_LINE = 96
"""Characters of what is public of a column, on the page's line; the annex has all of it."""
LOST = 0.3
"""A link of two columns is lost if that much of its strength is."""
INVENTED = 0.15
"""A link is invented if its strength is larger by so much than in the real rows."""
FALSE_ALARMS = 0.01
"""False alarms of the attacker whose best result is printed: 1%."""

_TONES: dict[Verdict, Tone] = {
    "dp": "good",
    "undeclared": "caution",
    "reserved": "caution",
    "partial": "caution",
}
# The kind of a fact that is of several columns.
_RULE = "constraint"
# Relative; what adding up a ledger's floats may put above the allowed epsilon.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class PublicFact:
    """What the schema makes public of one column or constraint.

    Attributes:
        column: Its name.
        kind: Its kind.
        line: What is public, cut to a line.
        rest: All of it, if that is longer than the line; else empty.
        how: How it became public.
        from_rows: Which of it came from rows; empty if all was declared.
    """

    column: str
    kind: str
    line: str
    rest: str
    how: Literal["declared", "paid", "free"]
    from_rows: str


@dataclass(frozen=True)
class RunFacts:
    """What follows from a record, beside what stands in it.

    Attributes:
        verdict: What the badge says.
        tone: The badge's colour.
        is_sound: Whether a finite ε bounds all that was released.
        is_finite: Whether the spent ε is finite.
        is_unbounded: Whether the study allowed an infinite ε.
        is_overspent: Whether a ledger costs more than the study allowed.
        has_large_epsilon: Whether the spent ε is so large that it promises little.
        has_large_delta: Whether δ is.
        noisy_rows: How many real rows there are, counted with noise; None where nobody counted.
        delta_for_rows: The δ that is large for so many rows, if this run's is larger and no larger
            than `LARGE_DELTA`; else None.
        rho: zCDP cost from which ε follows; None where releases are priced otherwise.
        pairs: Pairs of columns; 0 where the model's cliques are not known.
        joined_pairs: Those that a clique of the model joins.
        spent_share: The spent part of the allowed ε, 0 to 1.
        best_attack: True positive rate that ε and δ leave open at 1% false alarms; 1 if nothing is
            bounded.
        epsilon_of_two: ε for someone with two rows; `delta_of_two` likewise.
        undeclared_columns: Columns whose facts came from rows, unpaid.
        undeclared_rules: The same of constraints, each by its columns.
        lost_links: Pairs whose link the synthetic rows lack, the strongest first; for the owner.
        invented_links: Pairs whose link the real rows lack.
        public_facts: What the schema makes public, and how.
        questions: Asked one after the other, those of an alignment among them.
        releases: Of all parties, likewise.
        bytes_on_wire: Sent and received by all parties, likewise.
        seconds: Of the fit.
    """

    verdict: Verdict
    tone: Tone
    is_sound: bool
    is_finite: bool
    is_unbounded: bool
    is_overspent: bool
    has_large_epsilon: bool
    has_large_delta: bool
    noisy_rows: int | None
    delta_for_rows: float | None
    rho: float | None
    pairs: int
    joined_pairs: int
    spent_share: float
    best_attack: float
    epsilon_of_two: float
    delta_of_two: float
    undeclared_columns: tuple[str, ...]
    undeclared_rules: tuple[str, ...]
    lost_links: tuple[table_plots.ColumnLink, ...]
    invented_links: tuple[table_plots.ColumnLink, ...]
    public_facts: tuple[PublicFact, ...]
    questions: int
    releases: int
    bytes_on_wire: int
    seconds: float

    @property
    def undeclared(self) -> tuple[str, ...]:
        """The columns, then the constraints, whose facts came from rows unpaid."""
        return (*self.undeclared_columns, *self.undeclared_rules)


def largest_delta(rows: float | None) -> float:
    """Return the δ above which a bound leaves out too much; None for an unknown number of rows.

    A tenth of one in the number of rows: with a δ of 1 / rows, publishing one random row would pass
    for private.

    >>> largest_delta(None), largest_delta(50_000), largest_delta(20)
    (0.0001, 2e-06, 0.0001)
    """
    if rows is None or rows <= 0:
        return LARGE_DELTA
    return min(LARGE_DELTA, 1 / (ROWS_PER_DELTA * rows))


def facts_of(record: Record) -> RunFacts:
    """Return what follows from a record's numbers."""
    spent = record.epsilon_spent
    budget = record.budget
    is_finite = math.isfinite(spent)
    is_sound = record.private and record.method.guarantee == "dp" and is_finite
    # Where no sound ε covers the run, nothing limits an attack.
    epsilon = spent if is_sound else math.inf
    epsilon_of_two, delta_of_two = words.of_rows(spent, budget.delta, 2)

    free_facts = [fact for fact in record.schema_facts if fact.how == "free"]
    # Several facts may be about one column.
    columns = dict.fromkeys(fact.column for fact in free_facts if fact.kind != _RULE)
    rules = [fact.column for fact in free_facts if fact.kind == _RULE]

    noisy_rows = _noisy_rows(record)
    delta_for_rows = None
    if largest_delta(noisy_rows) < budget.delta <= LARGE_DELTA:
        delta_for_rows = largest_delta(noisy_rows)
    columns_of_model = set(chain.from_iterable(record.synthetic.cliques))

    verdict = _verdict(record, has_undeclared=bool(free_facts))
    gaps = _gaps(record)
    return RunFacts(
        verdict=verdict,
        tone=_TONES.get(verdict, "bad"),
        is_sound=is_sound,
        is_finite=is_finite,
        is_unbounded=math.isinf(budget.epsilon),
        is_overspent=_is_overspent(record),
        has_large_epsilon=spent > LARGE_EPSILON,
        has_large_delta=budget.delta > largest_delta(noisy_rows),
        noisy_rows=noisy_rows,
        delta_for_rows=delta_for_rows,
        rho=None if record.rho is msgspec.UNSET else record.rho,
        pairs=math.comb(len(columns_of_model), 2),
        joined_pairs=len(_joined_pairs(record)),
        spent_share=min(1.0, spent / budget.epsilon) if is_finite else 1.0,
        best_attack=words.attacker_power(FALSE_ALARMS, epsilon, budget.delta),
        epsilon_of_two=epsilon_of_two,
        delta_of_two=delta_of_two,
        undeclared_columns=tuple(columns),
        undeclared_rules=tuple(rule.replace(", ", " + ") for rule in rules),
        lost_links=tuple(link for link, gap in gaps if gap >= LOST),
        invented_links=tuple(link for link, gap in gaps if -gap >= INVENTED),
        public_facts=tuple(map(_public_fact, record.schema_facts)),
        questions=_most_messages(record.parties) + _most_messages(record.alignment),
        releases=len(record.ledgers)
        + sum(party.releases for party in record.alignment),
        bytes_on_wire=_traffic(record.parties) + _traffic(record.alignment),
        seconds=sum(phase.seconds for phase in record.phases),
    )


def _verdict(record: Record, *, has_undeclared: bool) -> Verdict:
    """Return what the badge says: the method's label, unless this run undercuts it."""
    claim = record.method.guarantee
    if not record.private:
        return "partial_only" if claim == "partial" else "not_private"
    if claim != "dp":
        return claim
    if _is_overspent(record):
        return "overspent"
    if has_undeclared:
        return "undeclared"
    # An alignment found common rows by comparing ids, which no ε covers.
    has_large_delta = record.budget.delta > largest_delta(_noisy_rows(record))
    if record.epsilon_spent > LARGE_EPSILON or has_large_delta or record.alignment:
        return "reserved"
    return "dp"


def _public_fact(fact: SchemaFact) -> PublicFact:
    """Return a fact of a record with the values themselves, where the record has them."""
    text = fact.facts
    if fact.values is not msgspec.UNSET:
        text = "; ".join(fact.values)
    # A constraint's facts are its words, and early records have nothing else.
    has_values = fact.values is not msgspec.UNSET
    is_from_rows = has_values and fact.how != "declared"
    line = words.first_line(text, FACT_LINE)
    return PublicFact(
        column=fact.column,
        kind=fact.kind,
        line=line,
        rest=text if line != text else "",
        how=fact.how,
        from_rows=fact.facts if is_from_rows else "",
    )


def _noisy_rows(record: Record) -> int | None:
    """Return how many rows the parties have, where that was counted with noise."""
    if record.noisy_rows is msgspec.UNSET or record.noisy_rows <= 0:
        return None
    return record.noisy_rows


def _joined_pairs(record: Record) -> set[frozenset[str]]:
    """Return the pairs of columns that some clique of the model joins."""
    pairs: set[frozenset[str]] = set()
    for clique in record.synthetic.cliques:
        pairs.update(frozenset(pair) for pair in combinations(clique, 2))
    return pairs


def _is_overspent(record: Record) -> bool:
    """Return whether a ledger costs more than the study allowed."""
    epsilons = [party.epsilon for party in record.parties]
    most = max([record.epsilon_spent, *epsilons])
    return most > record.budget.epsilon * (1 + _ROUNDING)


def _gaps(record: Record) -> list[tuple[table_plots.ColumnLink, float]]:
    """Return how much stronger each two columns go together in the real rows, if a page shows that.

    Empty on a public page, and where synthetic columns stay with their parties.
    """
    synthetic = record.synthetic.association
    real = record.owner.association if record.owner else None
    if synthetic is None or real is None or record.synthetic.kept:
        return []
    if synthetic.names != real.names:
        return []
    links = table_plots.strongest_pairs(synthetic, real, len(synthetic.names) ** 2)
    return [
        (link, link.real - link.synthetic) for link in links if link.real is not None
    ]


def _most_messages(parties: Sequence[PartyCost | AlignmentCost]) -> int:
    """Return the questions of a run: one goes to several parties, so the party with most counts."""
    return max((party.messages for party in parties), default=0)


def _traffic(parties: Sequence[PartyCost | AlignmentCost]) -> int:
    """Return the bytes that parties sent and received."""
    return sum(party.bytes_sent + party.bytes_received for party in parties)
