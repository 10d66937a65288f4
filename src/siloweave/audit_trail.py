"""Ledgers of a run, verified and added up anew."""

from pathlib import Path
from typing import Any, Literal

import msgspec

from siloweave.errors import InputError
from siloweave.federation.receipts import RECEIPTS
from siloweave.privacy.accountants import epsilon, rho
from siloweave.privacy.events import Event
from siloweave.privacy.ledger import Ledger
from siloweave.study import close_match
from siloweave.summaries import (
    ALIGNED,
    PartySummary,
    RunSummary,
    check_receipts,
    find_run,
    ledger_files,
    row_epsilon,
    verify_ledgers,
)

__all__ = ["Reading", "Stage", "Trail", "TrailLine", "read_ledgers"]

_DELTA = 1e-6
_SUMMARY = "run.json (key, last line)"

Stage = Literal["method", "alignment"]
"""Which part of a run a ledger is of."""


class TrailLine(msgspec.Struct, frozen=True):
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
    """One ledger: verified, and its epsilon recomputed from its events.

    `stage` says whether it is the method's, or of the alignment before it; `compared` names what
    the ledger was compared with beside itself. Without any, whoever replaced the file could have
    replaced its `key` too.
    """

    party: str
    file: str
    epsilon: float
    verified: bool
    note: str
    head: str
    entries: tuple[TrailLine, ...]
    stage: Stage = "method"
    key: bytes = b""
    compared: tuple[str, ...] = ()


class Trail(msgspec.Struct, frozen=True):
    """All ledgers that were asked for, and the delta of their epsilons.

    `whole_row` is the epsilon of a row over all parties, without an alignment, which no epsilon
    covers; None where not all ledgers were asked for.
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
        LedgerError: A ledger was edited or written anew, or entries that a run relied on are gone.
    """
    path = Path(source)
    if delta is not None and not 0 < delta < 1:
        raise InputError(f"--delta {delta} must lie strictly between 0 and 1, for example 1e-6.")
    folder, stages = _stages(path)
    names = list(dict.fromkeys(name for files in stages.values() for name in files))
    if not names:
        raise InputError(
            f"{path}: is no run's folder and no ledger file. Give the folder that "
            "`siloweave run` named, or a ledger.jsonl."
        )
    if party is not None and party not in names:
        raise InputError(
            f"--party {party!r} has no ledger here{close_match(party, names)} "
            f"There is {', '.join(names)}."
        )
    summary = find_run(folder)
    at = delta or (summary.delta if summary else _DELTA)
    only = {party} if party else set(names) if path.is_file() else None
    compared = _verify(summary, folder, stages, only)
    found = {
        stage: {n: Ledger.read(file) for n, file in files.items() if party in (None, n)}
        for stage, files in stages.items()
    }
    shown = tuple(
        _reading(stage, one, stages[stage][name], at, compared.get((stage, name), ()))
        for stage, ledgers in found.items()
        for name, one in ledgers.items()
    )
    of_rows = found.get("method", {})
    if summary is None or len(of_rows) < len(summary.parties):
        return Trail(at, shown)
    return Trail(at, shown, summary.split, row_epsilon(of_rows.values(), at, summary.split))


def _stages(path: Path) -> tuple[Path, dict[Stage, dict[str, Path]]]:
    """The run's folder, and by owner the ledgers that are asked for, of each part of the run."""
    one = path.is_file()
    home = path.parent.parent.parent if one else path
    files = {Ledger.read(path).owner: path} if one else ledger_files(path)
    ended = (home / f"{ALIGNED}.json").is_file() or (home.parent / "run.json").is_file()
    if home.name == ALIGNED and ended:  # and not a run's folder that is called so
        return home.parent, {"alignment": files}
    if one:
        return home, {"method": files}
    return home, {"method": files, "alignment": ledger_files(home / ALIGNED)}


def _verify(
    summary: RunSummary | None,
    folder: Path,
    stages: dict[Stage, dict[str, Path]],
    names: set[str] | None,
) -> dict[tuple[Stage, str], tuple[str, ...]]:
    """Compare ledgers with how the run ended, and with what its coordinator saw.

    Returns:
        What each ledger was compared with.
    """
    ended: dict[Stage, tuple[PartySummary, ...]] = {"method": (), "alignment": ()}
    if summary is not None:
        aligned = summary.alignment.parties if summary.alignment else ()
        ended = {"method": summary.parties, "alignment": aligned}
    compared: dict[tuple[Stage, str], tuple[str, ...]] = {}
    for stage, files in stages.items():
        verify_ledgers(ended[stage], files, names)
        home = folder / ALIGNED if stage == "alignment" else folder
        seen = check_receipts(home, files, names)
        for name in files:
            in_summary = [_SUMMARY] if any(one.name == name for one in ended[stage]) else []
            place = (home / RECEIPTS).relative_to(folder).as_posix()
            at_coordinator = [f"{place} (key, payments seen)"] if name in seen else []
            compared[stage, name] = (*in_summary, *at_coordinator)
    return compared


def _reading(
    stage: Stage, ledger: Ledger, file: Path, delta: float, compared: tuple[str, ...]
) -> Reading:
    lines = tuple(
        TrailLine(
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
    end = (ledger.recovered, ledger.head, lines, stage, ledger.key, compared)
    return Reading(ledger.owner, str(file), spent, True, *end)


def _finite(event: Event) -> float | None:
    cost = rho([event])
    return cost if cost < float("inf") else None
