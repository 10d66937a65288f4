"""run.json and the ledgers of a run: what it cost, and whether its ledgers are whole.

**Guarantee**: holds nothing of real rows. run.json names the head of every ledger and its owner's
public key, so a ledger whose end was cut off, that was put back from an old copy, or that was
written anew with whatever key, is noticed as long as run.json is there. The coordinator's receipts
do the same for every payment that it saw, also where the run did not finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isinf
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from siloweave.app.study import Study, close_match
from siloweave.core.fit import Ledgers, epsilon_of_row
from siloweave.core.party import require_unspent
from siloweave.core.settings import Job
from siloweave.errors import InputError, LedgerError, number
from siloweave.federation import course, records
from siloweave.privacy.accountants import epsilon, rho
from siloweave.privacy.ledger import Entry, Ledger, fingerprint
from siloweave.report import words
from siloweave.report.record import Overhead, spelled

T = TypeVar("T")

_DELTA = 1e-6  # for a ledger file of no run
_SUMMARY = "run.json (key, last line)"

StageName = Literal["method", "alignment"]
"""Which part of a run a ledger is of."""


# Summaries


class PartySummary(msgspec.Struct, frozen=True):
    """What one party spent and sent, its public key, and the hash of its ledger's last line."""

    name: str
    epsilon: float
    releases: int
    messages: int
    bytes_sent: int
    bytes_received: int
    ledger_head: str
    public_key: bytes = b""


class AlignmentSummary(msgspec.Struct, frozen=True):
    """What finding the common rows took, and how its ledgers ended; no epsilon covers it."""

    rounds: int
    seconds: float
    parties: tuple[PartySummary, ...]


class RunSummary(msgspec.Struct, frozen=True):
    """A finished run; `files` are relative to its folder, `epsilon` is that of a whole row.

    Parties that `vanished` from it may have sent no ledger; `epsilon` is then the study's whole
    budget, to which their own ledgers hold them. `sample` says in words which rows took part,
    where these were drawn from all. `epsilon_to_parties` is that towards another party, where it
    differs, and `epsilon_at_parties` that of a unit with rows at several parties, where it may be
    so. `rows_per_unit` is missing in runs of versions that bounded no unit but a row. `overhead`
    is where the coordinator's time went, where the parties were elsewhere.
    """

    run: str
    study: str
    method: str
    guarantee: str
    private: bool
    epsilon: float
    epsilon_allowed: float
    delta: float
    unit: str
    relation: str
    rounds: int
    rows: int
    seconds: dict[str, float]
    parties: tuple[PartySummary, ...]
    files: dict[str, str]
    finished: str
    split: str = "rows"
    alignment: AlignmentSummary | None = None
    vanished: tuple[str, ...] = ()
    sample: str = ""
    epsilon_to_parties: float | None = None
    epsilon_at_parties: float | None = None
    rows_per_unit: int | None = None
    parties_per_unit: int = 1
    overhead: Overhead | None = None
    version: int = 1


def find_run(folder: str | Path) -> RunSummary | None:
    """The summary of a finished run, or None without one.

    Raises:
        InputError: There is one, and it cannot be read.
    """
    path = Path(folder) / "run.json"
    wrong = "is no run's summary ({}). Put back the file, or choose another folder."
    return stored(path, RunSummary, wrong) if path.is_file() else None


def open_run(folder: str | Path) -> RunSummary:
    """A finished run's summary.

    Raises:
        InputError: There is no finished run in this folder.
    """
    if (found := find_run(folder)) is None:
        raise InputError(
            f"{folder}: holds no finished run (no run.json). Give the folder that "
            "`siloweave run` named, or run the study again to continue it."
        )
    return found


def json_of(result: Any) -> str:
    """A result as JSON, in which infinity, which JSON lacks, is a word."""
    return msgspec.json.format(msgspec.json.encode(spelled(result)), indent=2).decode()


def stored(path: Path, kind: type[T], wrong: str) -> T:
    """What `json_of` wrote into a file; InputError, which says what is wrong, for anything else."""
    try:
        return msgspec.convert(msgspec.json.decode(path.read_bytes()), kind, strict=False)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: {wrong.format(error)}") from error


def ledger_files(folder: str | Path) -> dict[str, Path]:
    """Every ledger in a run's folder, by its owner.

    Raises:
        LedgerError: A ledger was edited.
    """
    files = sorted(Path(folder).glob("parties/*/ledger.jsonl"))
    return {Ledger.read(file).owner: file for file in files if file.stat().st_size}


def party_summaries(
    folder: Path, names: Sequence[str], traffic: Mapping[str, course.Traffic], delta: float
) -> tuple[PartySummary, ...]:
    """What every party spent and sent in a run, or in its alignment, whose folder is given."""
    files = ledger_files(folder)
    ledgers = [Ledger.read(files[name]) for name in names]
    return tuple(
        PartySummary(
            name=name,
            epsilon=ledger.epsilon(delta),
            releases=len(ledger.entries),
            messages=traffic[name].messages,
            bytes_sent=traffic[name].bytes_from_party,
            bytes_received=traffic[name].bytes_to_party,
            ledger_head=ledger.head,
            public_key=ledger.key,
        )
        for name, ledger in zip(names, ledgers, strict=True)
    )


def finished(study: Study) -> RunSummary | None:
    """The summary of this very run, if it has finished; its ledgers are verified.

    Raises:
        LedgerError: A ledger was edited, cut or taken away since.
    """
    found = find_run(study.folder)
    if found is None or found.run != study.run_name:
        return None
    verify_ledgers(found.parties, ledger_files(study.folder))
    if found.alignment is not None:
        verify_ledgers(found.alignment.parties, ledger_files(study.folder / course.ALIGNED))
    return found


def spent(study: Study) -> dict[str, int]:
    """How many releases of this very run, and of its alignment, each party's ledger holds.

    Raises:
        BudgetError: Other runs have spent what this one needs.
        LedgerError: A ledger was edited, or lacks what the coordinator saw of it.
    """
    job = Job(study.terms(), run=study.run_name)
    run_names = (*job.runs, job.named(course.ALIGNED))
    found = dict.fromkeys(study.names, 0)
    for folder in (study.folder, study.folder / course.ALIGNED):
        files = ledger_files(folder)
        check_receipts(folder, files)
        for name in (name for name in study.names if name in files):
            entries = Ledger.read(files[name]).entries
            found[name] += sum(entry.run in run_names for entry in entries)
            if job.budget.private and folder == study.folder:
                require_unspent(name, entries, job.runs, job.budget)
    return found


# Whether ledgers are whole


def verify_ledgers(
    parties: Iterable[PartySummary], files: Mapping[str, Path], names: Iterable[str] | None = None
) -> None:
    """Check that ledgers still hold all that a finished run, or its alignment, put into them.

    Raises:
        LedgerError: A ledger is gone, was cut or written anew, or is an old copy.
    """
    for party in (one for one in parties if names is None or one.name in names):
        if party.name not in files:
            raise LedgerError(
                f"the ledger of party {party.name!r} is gone or empty; the run ended with "
                f"{party.releases} releases in it. Put back the file from the last backup."
            )
        ledger = _read(party.name, files[party.name], party.public_key, "run.json")
        if party.ledger_head not in {ledger.head, *(e.previous for e in ledger.entries)}:
            raise LedgerError(
                f"{files[party.name]}: has {len(ledger.entries)} entries, and not those with "
                f"which the run ended ({party.releases} releases). Its end was cut off, or another "
                "copy was put in its place. Put back the file from the last backup."
            )


def check_receipts(
    folder: Path, files: Mapping[str, Path], names: Iterable[str] | None = None
) -> set[str]:
    """Check that ledgers still hold every payment that a coordinator saw, finished or not.

    Returns:
        The parties whose key was compared.

    Raises:
        LedgerError: A ledger is gone, was cut or written anew, is an old copy, or is signed with
            another key; or the receipts are damaged.
    """
    by_party = dict[str, list[course.Receipt]]()
    vanished = records.Absences(folder / records.ABSENCES).names
    for receipt in course.read_receipts(folder / course.RECEIPTS):
        if names is None or receipt.party in names:
            by_party.setdefault(receipt.party, []).append(receipt)
    for name, receipts in by_party.items():
        paid = [one for one in receipts if one.entry]
        if name not in files:
            if not paid or name in vanished:
                continue  # nothing was released, or it could not send its ledger
            raise LedgerError(
                f"the ledger of party {name!r} is gone or empty; the coordinator saw "
                f"{len(paid)} payments from it. Put back the file from the last backup."
            )
        ledger = _read(name, files[name], receipts[0].key, str(course.RECEIPTS))
        here = {entry.hash for entry in ledger.entries}
        for one in paid:
            if one.entry not in here:
                raise LedgerError(
                    f"{files[name]}: lacks entry {one.entry[:16]}, which paid for the reply to "
                    f"step {one.step} of run {one.run} ({course.RECEIPTS}). Its end was cut off, "
                    "or another copy was put in its place. Put back the file from the last backup."
                )
    return set(by_party)


def _read(name: str, file: Path, key: bytes, source: str) -> Ledger:
    """A ledger; raises LedgerError if it was changed, or its key is not the one in `source`."""
    ledger = Ledger.read(file)
    if ledger.key != key:
        raise LedgerError(
            f"{file}: is signed with the key {fingerprint(ledger.key)}, and {source} names "
            f"{fingerprint(key)} for party {name!r}. It was written anew with another key. Put "
            "back the file from the last backup."
        )
    return ledger


# What ledgers hold


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
    """One ledger, which was verified, and its epsilon recomputed from its events.

    `stage` is the part of the run that it is of: the method, or the alignment before it; `compared`
    names what the ledger was compared with beside itself. Without any, whoever replaced the file
    could have replaced its `key` too.
    """

    party: str
    file: str
    epsilon: float
    note: str
    head: str
    entries: tuple[TrailLine, ...]
    stage: StageName = "method"
    key: bytes = b""
    compared: tuple[str, ...] = ()


class Trail(msgspec.Struct, frozen=True):
    """All ledgers that were asked for, and the delta of their epsilons.

    `whole_row` is the epsilon of a row over all parties, without an alignment, which no epsilon
    covers; None where not all ledgers were asked for. `to_parties` is that towards another party,
    where it differs, and `at_parties` that of a unit with rows at several, where it may be so.
    `whom` says what is protected, where the run is known.
    """

    delta: float
    ledgers: tuple[Reading, ...]
    split: str = "rows"
    whole_row: float | None = None
    to_parties: float | None = None
    at_parties: float | None = None
    whom: str = "row"


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
    if delta is not None:
        number("delta", delta, 0, 1, "()")
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
    readings, of_rows = list[Reading](), dict[str, tuple[Entry, ...]]()
    for stage, files in stages.items():
        compared = _compared(summary, folder, stage, files, only)
        for name in (name for name in files if party in (None, name)):
            ledger = Ledger.read(files[name])
            reading = Reading(
                party=ledger.owner,
                file=str(files[name]),
                epsilon=epsilon(ledger.events, at),
                note=ledger.recovered,
                head=ledger.head,
                entries=tuple(_lines(ledger)),
                stage=stage,
                key=ledger.key,
                compared=compared[name],
            )
            readings.append(reading)
            if stage == "method":
                of_rows[name] = ledger.entries
    due = {one.name for one in summary.parties} | set(summary.vanished) if summary else set()
    if summary is None or len(of_rows) < len(due):
        return Trail(at, tuple(readings))
    own = Ledgers(
        of_rows, at, summary.split, summary.epsilon_to_parties is not None, summary.parties_per_unit
    )
    whole_row = epsilon_of_row(of_rows, summary.split, at)
    whom = words.whom(summary.unit, summary.rows_per_unit)
    return Trail(
        at, tuple(readings), summary.split, whole_row, own.epsilon_to_parties,
        own.epsilon_at_parties, whom,
    )  # fmt: skip


def _stages(path: Path) -> tuple[Path, dict[StageName, dict[str, Path]]]:
    """The run's folder, and by owner the ledgers that are asked for, of each part of the run."""
    one = path.is_file()
    home = path.parent.parent.parent if one else path
    files = {Ledger.read(path).owner: path} if one else ledger_files(path)
    ended = (home / f"{course.ALIGNED}.json").is_file() or (home.parent / "run.json").is_file()
    if home.name == course.ALIGNED and ended:  # and not a run's folder that is called so
        return home.parent, {"alignment": files}
    if one:
        return home, {"method": files}
    return home, {"method": files, "alignment": ledger_files(home / course.ALIGNED)}


def _compared(
    summary: RunSummary | None,
    folder: Path,
    stage: StageName,
    files: Mapping[str, Path],
    names: set[str] | None,
) -> dict[str, tuple[str, ...]]:
    """Compare ledgers with run.json and the coordinator's receipts; which of them knew each."""
    home, ended = folder, summary.parties if summary else ()
    if stage == "alignment":
        home = folder / course.ALIGNED
        ended = summary.alignment.parties if summary and summary.alignment else ()
    verify_ledgers(ended, files, names)
    seen = check_receipts(home, files, names)
    receipts = f"{(home / course.RECEIPTS).relative_to(folder).as_posix()} (key, payments seen)"
    in_summary = {one.name for one in ended}
    return {
        name: (*([_SUMMARY] if name in in_summary else []), *([receipts] if name in seen else []))
        for name in files
    }


def _lines(ledger: Ledger) -> Iterator[TrailLine]:
    for entry in ledger.entries:
        cost = rho([entry.event])
        yield TrailLine(
            index=entry.index + 1,
            time=entry.time,
            run=entry.run,
            step=entry.step,
            what=entry.what,
            to=entry.to,
            event=msgspec.to_builtins(entry.event),
            rho=None if isinf(cost) else cost,
        )
