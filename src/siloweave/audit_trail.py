"""Ledgers of a run, verified and added up anew."""

from pathlib import Path
from typing import Any

import msgspec

from siloweave.errors import InputError
from siloweave.privacy.accountants import epsilon, rho
from siloweave.privacy.events import Event
from siloweave.privacy.ledger import Ledger
from siloweave.study import close_match
from siloweave.summaries import find_run, ledger_files, row_epsilon, verify_ledgers

__all__ = ["Line", "Reading", "Trail", "read_ledgers"]

_DELTA = 1e-6


class Line(msgspec.Struct, frozen=True):
    """One release."""

    index: int
    time: str
    run: str
    step: str
    what: str
    to: str
    event: dict[str, Any]
    rho: float | None


class Reading(msgspec.Struct, frozen=True):
    """One ledger: verified, and its epsilon recomputed from its events."""

    party: str
    file: str
    epsilon: float
    verified: bool
    note: str
    head: str
    entries: tuple[Line, ...]


class Trail(msgspec.Struct, frozen=True):
    """All ledgers that were asked for, and the delta of their epsilons.

    `whole_row` is the epsilon of a row over all parties; None where not all ledgers were asked for.
    """

    delta: float
    ledgers: tuple[Reading, ...]
    split: str = "rows"
    whole_row: float | None = None


def read_ledgers(
    source: str | Path, *, party: str | None = None, delta: float | None = None
) -> Trail:
    """Read, verify and add up ledgers.

    Args:
        source: A run's folder, or one ledger file.
        party: Only this party's.
        delta: At which epsilon is computed; the run's if None (1e-6 for a file of no run).

    Raises:
        InputError: Nothing is there, there is no such party, or delta is out of range.
        LedgerError: A ledger was edited, or entries that a run relied on are gone.
    """
    path = Path(source)
    if delta is not None and not 0 < delta < 1:
        raise InputError(f"--delta {delta} must lie strictly between 0 and 1, for example 1e-6.")
    if path.is_file():
        folder, files = path.parent.parent.parent, {Ledger.read(path).owner: path}
    else:
        folder, files = path, ledger_files(path)
    if not files:
        raise InputError(
            f"{path}: is no run's folder and no ledger file. Give the folder that "
            "`siloweave run` named, or a ledger.jsonl."
        )
    if party is not None and party not in files:
        raise InputError(
            f"--party {party!r} has no ledger here{close_match(party, files)} "
            f"There is {', '.join(files)}."
        )
    summary = find_run(folder)
    at = delta or (summary.delta if summary else _DELTA)
    wanted = files if party is None else {party: files[party]}
    if summary is not None:
        verify_ledgers(summary, files, None if folder == path and party is None else wanted)
    ledgers = [Ledger.read(file) for file in wanted.values()]
    shown = tuple(
        _reading(one, file, at) for one, file in zip(ledgers, wanted.values(), strict=True)
    )
    if summary is None or len(wanted) < len(summary.parties):
        return Trail(at, shown)
    return Trail(at, shown, summary.split, row_epsilon(ledgers, at, summary.split))


def _reading(ledger: Ledger, file: Path, delta: float) -> Reading:
    lines = tuple(
        Line(
            e.index + 1,
            e.time,
            e.run,
            e.step,
            e.what,
            e.to,
            msgspec.to_builtins(e.event),
            _finite(e.event),
        )
        for e in ledger.entries
    )
    spent = epsilon(ledger.events, delta)
    return Reading(ledger.owner, str(file), spent, True, ledger.recovered, ledger.head, lines)


def _finite(event: Event) -> float | None:
    cost = rho([event])
    return cost if cost < float("inf") else None
