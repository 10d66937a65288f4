"""Scores of a synthetic table by parties that hold the real rows, as a user asks for them.

Workload error of Maddock, Cormode & Maple 2024, "FLAIM" (KDD 2024); messages and the party's side
are in score.py, the coordinator's in scored.py.

**Guarantee**: that of score.py. This file opens every party's ledger, a fit's own or one that
continues it, with the total that is allowed as its limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from siloweave.algorithms.outcome import Outcome
from siloweave.algorithms.running import Progress
from siloweave.algorithms.score import PARTY, ScoredRows, check_price, price_for, priced
from siloweave.algorithms.scored import FederatedScore, PartyScore, ask_scores, summed_up
from siloweave.core.run import Job, PartyStores, coded_rows, in_process, named_parties
from siloweave.errors import BudgetError, InputError, RosterError, SchemaError, naming_party
from siloweave.evaluate.workload import require_rows
from siloweave.federation.site import MemoryStore, Site
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Entry, Ledger
from siloweave.progress import silent
from siloweave.tables.codes import Clique, Codes, Encoder
from siloweave.tables.read import Frame, Table, read
from siloweave.tables.schema import Schema

__all__ = ["score_parties"]


def score_parties(
    data: Any,
    synthetic: Any,
    schema: Schema | Encoder,
    *,
    budget: Budget,
    split: Literal["rows", "columns"] = "rows",
    queries: Sequence[Sequence[str]] | None = None,
    bins: int = 32,
    total: Budget | None = None,
    after: Outcome | FederatedScore | None = None,
    seed: int = 0,
    names: Sequence[str] | None = None,
    folder: Path | str | None = None,
    run: str = "score",
    noise: str = "os",
    progress: Progress = silent,
) -> FederatedScore:
    """Ask every party how far a synthetic table is from its rows, and pay for the answer.

    One ledger holds what a fit and its scores cost: give the fit's `folder`, or, for a fit that
    kept its ledgers in memory, `after=fit` and for the next score ``after=`` the last one.

    Args:
        data: One table per party, as a list or by name: the same columns each (``"rows"``), or
            columns of the same people (``"columns"``).
        synthetic: The table to judge, with the columns of all parties.
        schema: Public facts about all columns.
        budget: Most that this score may cost a row; over split columns at all parties together.
        split: How the table is spread.
        queries: Sets of columns to compare; all single columns and pairs if None.
        bins: Equal-width bins of a numeric column, where `schema` is no encoder.
        total: Most that everything in the ledgers, this score included, may cost a row;
            `budget` if None, so that a score beside other releases needs it.
        after: The fit, or the score, whose ledgers this one goes on; not with `folder`.
        seed: Of the noise, where `noise` is "seeded".
        names: Of the parties, when `data` is a list.
        folder: Keeps ledgers and replies, a fit's own may be given; the same folder and run get
            the same answer. In memory if None.
        run: Name of the score in the ledgers; each needs its own.
        noise: "os" for the operating system's entropy; "seeded" protects nothing.
        progress: Called with a text and the share that is done.

    Raises:
        InputError: There is no query that a party can answer, or the run's name is taken.
        RosterError: Parties are not those of the ledgers.
        SchemaError: Parties hold columns that do not fit the split or the schema.
        BudgetError: The score would cost more than `budget`, or everything more than `total`;
            nothing is released.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> rows = adult().take(range(4000))
        >>> found = score_parties([rows, rows], rows, adult_schema(), budget=Budget(1.0, 1e-6))
        >>> abs(found.error) < 0.02, found.epsilon <= 1.0
        (True, True)
        >>> both = Budget(1.2, 1e-6)
        >>> again = score_parties([rows, rows], rows, adult_schema(), budget=Budget(0.5, 1e-6),
        ...                       total=both, after=found, run="score again")
        >>> again.epsilon <= 0.5, 1.0 < again.total_epsilon <= 1.2
        (True, True)
    """
    encoder = schema if isinstance(schema, Encoder) else Encoder(schema, bins)
    judged, frame = _judged(synthetic, encoder)
    codes = _coded(named_parties(data, names), encoder, split)
    asked = _queries(queries, judged)
    before = _before(after, folder, run, codes)
    allowed = _allowed(budget, total, after)
    homes = {name: _home_after(name, entries, allowed) for name, entries in before.items()}
    home = _of_parties(folder, codes)
    job = Job(budget, seed, home, run, noise, progress, homes=homes, total=allowed)
    found, entries = _run(codes, judged, asked, job, split)
    ledgers = {name: _after(before.get(name, ()), es) for name, es in entries.items()}
    paid = {name: [e for e in entries if e.run == run] for name, entries in ledgers.items()}
    return FederatedScore(
        *summed_up(found, asked),
        budget=budget,
        total=allowed,
        epsilon=_of_a_row(paid, split, budget.delta),
        total_epsilon=_of_a_row(ledgers, split, allowed.delta),
        private=noise == "os",
        ledgers=ledgers,
        frame=frame,
    )


def _run(
    codes: Mapping[str, Codes], judged: Codes, asked: Sequence[Clique], job: Job, split: str
) -> tuple[dict[str, tuple[list[Clique], PartyScore]], dict[str, tuple[Entry, ...]]]:
    """Open the ledgers, let every party check what it is going to pay, then ask for the scores."""
    together = len(codes) if split == "columns" else 1
    rows = {name: ScoredRows(one, job.budget, together) for name, one in codes.items()}
    with in_process(rows, PARTY, job, job.run) as (parties, sites):
        if split == "columns":
            _inform(sites, job.run)
        price, relation = price_for(job.budget, together), job.budget.relation
        for site in sites.values():  # all of them before the first one pays
            check_price(site, job.run, priced(*price, relation))
        found = ask_scores(parties, judged, asked, price, relation, job.progress)
        return found, {name: site.ledger.entries for name, site in sites.items()}


def _allowed(budget: Budget, total: Budget | None, after: Any) -> Budget:
    """Most that everything may cost; raises BudgetError where budgets cannot be added up."""
    for name, one in (("budget", budget), ("total", budget if total is None else total)):
        if not isinstance(one, Budget):
            raise BudgetError(f"{name}={one!r} is no Budget; give Budget(epsilon, delta)")
    if not budget.private:
        raise BudgetError("budget: a score adds noise and needs a finite epsilon; give one")
    others = {"total": total, "the budget of after": after.budget if after is not None else None}
    for name, other in others.items():
        if other is None or not other.private:  # what costs infinity adds up under any relation
            continue
        if (other.relation, other.unit) != (budget.relation, budget.unit):
            raise BudgetError(
                f"budget: protects a {budget.unit!r} under {str(budget.relation)!r}, and {name} a "
                f"{other.unit!r} under {str(other.relation)!r}, so their costs do not add up. Give "
                "a budget of the same unit and relation."
            )
    return budget if total is None else total


def _before(
    after: Any, folder: Path | str | None, run: str, codes: Mapping[str, Codes]
) -> Mapping[str, tuple[Entry, ...]]:
    """What the ledgers hold of the fit or score that this one comes after."""
    if after is None:
        return {}
    if not isinstance(after, Outcome | FederatedScore):
        raise InputError(f"after is a {type(after).__name__}; give a fit or a score of parties")
    if folder is not None:
        raise InputError(
            "folder and after both say which ledgers to go on with; give folder for a fit that "
            "kept its ledgers there, and after for one that kept them in memory"
        )
    if set(after.ledgers) != set(codes):
        raise RosterError(
            f"data has the parties {', '.join(codes)}, and the ledgers of after are of "
            f"{', '.join(after.ledgers)}; give each party's table under its name there"
        )
    if any(entry.run == run for entries in after.ledgers.values() for entry in entries):
        raise InputError(f"run={run!r} is in the ledgers already; give this score its own name")
    return after.ledgers


def _home_after(name: str, entries: Sequence[Entry], limit: Budget) -> PartyStores:
    """What a party keeps, in memory; its ledger holds what was charged before."""
    ledger = Ledger(name)
    for e in entries:
        ledger.charge(e.event, run=e.run, step=e.step, what=e.what, to=e.to)
    ledger.limit = limit
    return ledger, MemoryStore()


def _after(before: Sequence[Entry], entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """A ledger's entries, those from before as they were charged then."""
    return (*before, *entries[len(before) :])


def _of_parties(folder: Path | str | None, codes: Mapping[str, Codes]) -> Path | None:
    """The folder; raises RosterError if it holds ledgers of more parties than are scored."""
    if folder is None:
        return None
    number = len(list((Path(folder) / "parties").glob("*/ledger.jsonl")))
    if number > len(codes):
        raise RosterError(
            f"{folder} holds the ledgers of {number} parties, and data has {len(codes)} tables; "
            "give those of all parties, in the order of the fit"
        )
    return Path(folder)


def _inform(sites: Mapping[str, Site[ScoredRows]], run: str) -> None:
    """Give every party what the others have spent on the same people before this score."""
    spent = {n: [e.event for e in s.ledger.entries if e.run != run] for n, s in sites.items()}
    for name, site in sites.items():
        others = tuple(e for other, events in spent.items() if other != name for e in events)
        site.rows = replace(site.rows, others=others)


def _of_a_row(ledgers: Mapping[str, Sequence[Entry]], split: str, delta: float) -> float:
    """Epsilon of a row, which lies at one party, or at all of them."""
    events = [[entry.event for entry in entries] for entries in ledgers.values()]
    if split == "columns":
        return epsilon([event for of_one in events for event in of_one], delta)
    return max(epsilon(of_one, delta) for of_one in events)


def _judged(synthetic: Any, encoder: Encoder) -> tuple[Codes, Frame]:
    """The synthetic table's codes, and what kind of frame it was."""
    table = None if isinstance(synthetic, Codes) else read(synthetic)
    codes = encoder.encode(table) if table else synthetic
    require_rows(codes, "synthetic")
    return codes, table.frame if table else "file"


def _coded(parts: Mapping[str, Any], encoder: Encoder, split: str) -> dict[str, Codes]:
    if split not in ("rows", "columns"):
        raise InputError(f'split={split!r} must be "rows" or "columns"')
    found, owner = dict[str, Codes](), dict[str, str]()
    for name, part in parts.items():
        mine, table = encoder, part
        if not isinstance(part, Codes):
            with naming_party(name):
                table = read(part)
        if split == "columns" and isinstance(table, Table):
            mine = encoder.select([n for n in encoder.schema.names if n in table.names])
        found[name] = coded_rows(name, table, mine)
    for name, codes in found.items():
        for column in codes.domain.names if split == "columns" else ():
            if owner.setdefault(column, name) != name:
                raise SchemaError(f"column {column!r} is held by {owner[column]!r} and {name!r}")
    return found


def _queries(queries: Sequence[Sequence[str]] | None, judged: Codes) -> list[Clique]:
    domain = judged.domain
    if queries is None:
        return [c for size in (1, 2) for c in combinations(domain.names, size)]
    if not queries or not all(queries):
        raise InputError("queries is empty, or one of them; give at least one set of columns")
    return list(dict.fromkeys(domain.canonical(q) for q in queries))
