"""Common rows of parties that hold different columns of the same people, before any study.

Private set intersection by Diffie-Hellman (Meadows 1986; Huberman, Franklin and Hogg 1999) among
any number of parties; federation/alignment.py has the protocol and its citations.

**Guarantee** (none): which rows all parties have in common is released exactly, to the parties; the
coordinator learns how many ids each has, how many rows of each lack an id or repeat one, and how
many rows are common. Without a common row it also learns the form of each party's ids (lengths and
kinds of characters), which the error then shows. Every ledger says so with an infinite epsilon.
Nobody learns which ids, or how many, only some of the parties share. Ids never leave in the clear.
federation/alignment.py says under which assumptions, and what a cheating party can learn. A study's
(epsilon, delta) does not cover who is in the common table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from siloweave.core.fit import Cost, Ledgers
from siloweave.core.party import Party, PartySide, direct_parties, named_parties
from siloweave.core.run import session_with
from siloweave.core.settings import Job
from siloweave.errors import InputError, RosterError, count_of, naming_party, whole
from siloweave.federation import alignment_party
from siloweave.federation.alignment import Alignment, align
from siloweave.privacy.budget import UNBOUNDED
from siloweave.privacy.ledger import Entry
from siloweave.progress import shows_progress
from siloweave.tables.ids import IdPolicy, check_rules
from siloweave.tables.read import read
from siloweave.tables.table import Table

On = Sequence[str] | Mapping[str, Sequence[str]]
"""Id columns: their names, or their names at each party where these differ."""


@dataclass(frozen=True)
class AlignedRows:
    """The result of an alignment; prints as its report.

    Attributes:
        tables: Each party's common rows, in one order, of the type that was given (a path gives
            Tables).
        ledgers: Every party's record.
        cost: Bytes, questions and seconds.
        report: How many rows are common, and what was omitted.
    """

    tables: Mapping[str, Any]
    ledgers: Ledgers
    cost: Cost
    report: Alignment

    def __str__(self) -> str:
        return str(self.report)


@shows_progress
def align_rows(
    data: Any,
    on: On,
    *,
    rules: Sequence[str] | Mapping[str, Sequence[str]] = (),
    missing: Literal["error", "drop"] = "error",
    duplicates: Literal["error", "drop", "first"] = "error",
    most: int | None = None,
    names: Sequence[str] | None = None,
    folder: str | Path | None = None,
    run: str = "alignment",
    workers: int | None = None,
    chunk: int = alignment_party.CHUNK,
    progress: Any = None,
) -> AlignedRows:
    """Find the rows that all parties have, without showing any other row.

    Args:
        data: One table per party, by name or as a list: Tables, frames or paths.
        on: The id columns, or for each party what it calls them (in one order; the first party's
            names are the study's).
        rules: How ids are normalised: ``strip``, ``casefold``, ``digits``, ``letters-digits``,
            ``no-leading-zeros``, ``date``, or ``date:`` and strptime codes; for all columns, or
            by the study's name of each.
        missing: Rows without an id: refuse, or omit them.
        duplicates: Rows that share an id: refuse, omit them all, or retain the first.
        most: Largest number of ids that a party lets another bring; no limit if None.
        names: Names for a list of tables; "party-1" and so on if not given.
        folder: Run folder; in memory only if None. The same folder and run resume.
        run: Name of the run. Ids are hashed with it.
        workers: Processes that compute; as many as there are cores if None.
        chunk: Points in one message, of 32 bytes each.
        progress: As of `Synthesizer.fit`.

    Returns:
        The tables with common rows in one order, random and the same for all.

    Raises:
        RosterError: Fewer than two parties, one without ids, or more ids than `most`.
        DataError: Missing or repeated ids that are refused, or no id is common to all.
        InputError: An argument is out of range, or ids are named differently.
        WireError: A party answers wrongly, or `folder` holds another run of this name.

    Example:
        >>> import polars as pl
        >>> bank = pl.DataFrame({"id": [3, 1, 2], "credit": [30, 10, 20]})
        >>> shop = pl.DataFrame({"id": [2, 9, 3], "spent": [2.0, 9.0, 3.0]})
        >>> found = align_rows({"bank": bank, "shop": shop}, ["id"])
        >>> found.report.common, found.tables["bank"]["id"].equals(found.tables["shop"]["id"])
        (2, True)
    """
    parts = named_parties(data, names)
    columns = _columns(on, list(parts))
    study_columns = columns[next(iter(parts))] if parts else ()
    column_rules = _rules(rules, study_columns)
    _check(most, workers, chunk)

    # Every table is read, and named in what is wrong with it, before any party is asked.
    policy = IdPolicy(missing, duplicates)
    processes = workers or os.cpu_count() or 1
    party_data: dict[str, alignment_party.AlignmentData] = {}
    for name, part in parts.items():
        with naming_party(name):
            party_data[name] = alignment_party.AlignmentData(
                read(part), columns[name], policy, processes, most
            )
    if len(party_data) < 2:
        raise RosterError(
            f"data has {count_of(len(party_data), 'party', 'parties')}; an alignment needs two or "
            "more"
        )

    # No ledger has a limit: what an alignment releases has no finite epsilon.
    run_folder = Path(folder) if folder else None
    job = Job(UNBOUNDED, folder=run_folder, run=run, limited=False)
    start = time.perf_counter()
    sides = {
        name: partial(_alignment_side, side_data)
        for name, side_data in party_data.items()
    }
    with closing(direct_parties(sides, job)) as carrier:
        carrier.open(run, b"")
        session = session_with(carrier, job, run)
        sites = {name: party.site(run) for name, party in carrier.parties.items()}
        report = align(
            session, study_columns, rules=column_rules, chunk=chunk, progress=progress
        )
        tables: dict[str, Any] = {}
        entries: dict[str, tuple[Entry, ...]] = {}
        for name, site in sites.items():
            tables[name] = _native(alignment_party.common_rows(site, run), parts[name])
            entries[name] = tuple(site.ledger.entries)
    seconds = time.perf_counter() - start
    cost = Cost(session.traffic, session.rounds, {"alignment": seconds})
    progress("aligned", 1.0)
    return AlignedRows(tables, Ledgers(entries, UNBOUNDED.delta), cost, report)


def _alignment_side(
    data: alignment_party.AlignmentData, party: Party, run: str, facts: bytes
) -> PartySide:
    """Build a party's side of an alignment."""
    return PartySide(data, alignment_party.PARTY)


def _check(most: int | None, workers: int | None, chunk: int) -> None:
    for name, value in (("most", most), ("workers", workers)):
        if value is not None:
            whole(name, value, 1)
    if whole("chunk", chunk, 1) > alignment_party.MOST_POINTS:
        raise InputError(
            f"chunk={chunk} must be {alignment_party.MOST_POINTS:,} at most"
        )


def _columns(on: On, parties: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return each party's own names of the id columns."""
    if not isinstance(on, Mapping):
        check_rules(on, {})
        return dict.fromkeys(parties, tuple(on))
    odd = sorted(set(parties) ^ set(on))
    if odd:
        raise InputError(
            f"on must name the id columns of every party; {odd[0]!r} is only in one"
        )
    for names in on.values():
        check_rules(names, {})
    lengths = {len(names) for names in on.values()}
    if len(lengths) > 1:
        raise InputError(
            f"on names {' or '.join(map(str, sorted(lengths)))} id columns per party; all parties "
            "put an id together from the same parts, in the same order"
        )
    return {name: tuple(on[name]) for name in parties}


def _rules(
    rules: Sequence[str] | Mapping[str, Sequence[str]], on: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Return the rules of each id column; a list alone is of every column in `on`."""
    if isinstance(rules, str):
        raise InputError(
            f"rules={rules!r} must be a list, such as ['strip', {rules!r}]"
        )
    if not isinstance(rules, Sequence | Mapping):
        raise InputError(f"rules={rules!r} must be a list, or lists by column")
    by_column: Mapping[str, Sequence[str]] = {}
    if isinstance(rules, Mapping):
        by_column = rules
    elif rules:
        by_column = dict.fromkeys(on, rules)
    check_rules(on, by_column)
    return {name: tuple(column_rules) for name, column_rules in by_column.items()}


def _native(table: Table, original: Any) -> Any:
    """Return a table as the kind of frame that the user gave; where a path was given, as it is."""
    if isinstance(original, Table | str) or hasattr(original, "__fspath__"):
        return table
    return table.to_native()
