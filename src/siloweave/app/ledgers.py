"""run.json and the ledgers of a run: what it cost, and whether its ledgers are whole.

**Guarantee**: holds nothing of real rows. run.json names the head of every ledger and its owner's
public key, so a ledger whose end was cut off, that was put back from an old copy, or that was
written anew with whatever key, is noticed as long as run.json is there. The coordinator's receipts
do the same for every payment that it saw, also where the run did not finish.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import isinf
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from siloweave.app.ends import COORDINATOR_PUBLIC, STUDY_FILE, public_key_in
from siloweave.app.study import Study, close_match
from siloweave.core.fit import Ledgers, epsilon_of_row
from siloweave.core.party import require_unspent
from siloweave.core.settings import Job
from siloweave.errors import InputError, LedgerError, SiloweaveError, count_of, number
from siloweave.federation import course, records
from siloweave.federation.frames import ROSTER_FILE, read_roster
from siloweave.privacy.accountants import epsilon, rho
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Entry, Ledger, fingerprint
from siloweave.report import words
from siloweave.report.record import Overhead, spelled

T = TypeVar("T")

# A folder's name, and the number that it ends with.
_NUMBERED = re.compile(r"(.*?)(\d*)", re.DOTALL)
_DELTA = 1e-6  # for a ledger file of no run
_SUMMARY = "run.json (key, last line)"
_ROSTER = f"{ROSTER_FILE} (key)"

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
    """Return the summary of a finished run, or None without one.

    Raises:
        InputError: There is one, and it cannot be read.
    """
    path = Path(folder) / "run.json"
    if not path.is_file():
        return None
    wrong = "is no run's summary ({}). Put back the file, or choose another folder."
    return stored(path, RunSummary, wrong)


def open_run(folder: str | Path) -> RunSummary:
    """Return a finished run's summary.

    Raises:
        InputError: There is no finished run in this folder.
    """
    summary = find_run(folder)
    if summary is None:
        raise InputError(
            f"{folder}: holds no finished run (no run.json). Give the folder that "
            "`siloweave run` named, or run the study again to continue it."
            f"{_runs_below(folder)}"
        )
    return summary


def _runs_below(folder: str | Path) -> str:
    """Name the finished runs that lie one folder deeper, as a sentence; empty without any."""
    runs = [str(file.parent) for file in sorted(Path(folder).glob("*/run.json"))]
    if not runs:
        return ""
    return f" Finished runs below it: {', '.join(runs)}."


def json_of(result: Any) -> str:
    """Write a result as JSON, in which infinity, which JSON lacks, is a word."""
    return msgspec.json.format(msgspec.json.encode(spelled(result)), indent=2).decode()


def stored(path: Path, kind: type[T], wrong: str) -> T:
    """Read what `json_of` wrote into a file.

    Args:
        path: The file.
        kind: The type of what was written.
        wrong: What to say of any other file; the error takes the place of ``{}`` in it.

    Raises:
        InputError: The file holds something else.
    """
    try:
        return msgspec.convert(
            msgspec.json.decode(path.read_bytes()), kind, strict=False
        )
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: {wrong.format(error)}") from error


def ledger_files(folder: str | Path) -> dict[str, Path]:
    """Return every ledger in a run's folder, by its owner.

    Raises:
        LedgerError: A ledger was edited.
    """
    files = sorted(Path(folder).glob("parties/*/ledger.jsonl"))
    # A ledger is empty where a party was ended before it had written its first line.
    return {Ledger.read(file).owner: file for file in files if file.stat().st_size}


def party_summaries(
    folder: Path,
    names: Sequence[str],
    traffic: Mapping[str, course.Traffic],
    delta: float,
) -> tuple[PartySummary, ...]:
    """Sum up what every party spent and sent in a run, or in its alignment.

    Args:
        folder: That of the run, or of the alignment.
        names: The parties.
        traffic: What each sent and received.
        delta: At which epsilon is computed.
    """
    files = ledger_files(folder)
    summaries = []
    for name in names:
        ledger = Ledger.read(files[name])
        summary = PartySummary(
            name=name,
            epsilon=ledger.epsilon(delta),
            releases=len(ledger.entries),
            messages=traffic[name].messages,
            bytes_sent=traffic[name].bytes_from_party,
            bytes_received=traffic[name].bytes_to_party,
            ledger_head=ledger.head,
            public_key=ledger.key,
        )
        summaries.append(summary)
    return tuple(summaries)


def finished(study: Study) -> RunSummary | None:
    """Return the summary of this very run, if it has finished; its ledgers are verified.

    Raises:
        LedgerError: A ledger was edited, cut or taken away since.
    """
    summary = find_run(study.folder)
    if summary is None or summary.run != study.run_name:
        return None
    verify_ledgers(summary.parties, ledger_files(study.folder))
    if summary.alignment is not None:
        aligned_files = ledger_files(study.folder / course.ALIGNED)
        verify_ledgers(summary.alignment.parties, aligned_files)
    return summary


def spent(study: Study) -> dict[str, int]:
    """Count the releases of this very run, and of its alignment, in each party's ledger.

    Raises:
        BudgetError: Other runs have spent what this one needs.
        LedgerError: A ledger was edited, or lacks what the coordinator saw of it.
    """
    job = Job(study.terms(), run=study.run_name)
    run_names = (*job.runs, job.named(course.ALIGNED))
    releases = dict.fromkeys(study.names, 0)
    for folder in (study.folder, study.folder / course.ALIGNED):
        files = ledger_files(folder)
        check_receipts(folder, files)
        # No budget covers an alignment's ledgers, so that nothing of theirs can be overspent.
        has_budget = job.budget.private and folder == study.folder
        for name in study.names:
            if name not in files:
                continue
            entries = Ledger.read(files[name]).entries
            releases[name] += sum(entry.run in run_names for entry in entries)
            if has_budget:
                new_folder = f'set folder = "{_new_folder(study)}" under [output]'
                require_unspent(name, entries, job.runs, job.budget, new_folder)
    return releases


def _new_folder(study: Study) -> str:
    """Return the name of a folder for a run beside this one, such as run2, that is not there."""
    folder = study.output.folder
    match = _NUMBERED.fullmatch(folder)
    assert match is not None
    stem, digits = match.groups()
    number = int(digits or 1) + 1
    while (Path(study.base) / f"{stem}{number}").exists():
        number += 1
    return f"{stem}{number}"


# Whether ledgers are whole


def verify_ledgers(
    parties: Iterable[PartySummary],
    files: Mapping[str, Path],
    names: Iterable[str] | None = None,
) -> None:
    """Check that ledgers still hold all that a finished run, or its alignment, put into them.

    Args:
        parties: How each party's ledger ended.
        files: The ledgers, by owner.
        names: Only these parties'; all if None.

    Raises:
        LedgerError: A ledger is gone, was cut or written anew, or is an old copy.
    """
    for party in parties:
        if names is not None and party.name not in names:
            continue
        if party.name not in files:
            raise LedgerError(
                f"the ledger of party {party.name!r} is gone or empty; the run ended with "
                f"{party.releases} releases in it. Put back the file from the last backup."
            )
        ledger = _read(party.name, files[party.name], party.public_key, "run.json")
        # Later runs may have added lines, each of which names the hash of the line before it.
        heads = {entry.previous for entry in ledger.entries} | {ledger.head}
        if party.ledger_head not in heads:
            raise LedgerError(
                f"{files[party.name]}: has {count_of(len(ledger.entries), 'entry', 'entries')}, "
                "and not those with which the run ended "
                f"({count_of(party.releases, 'release', 'releases')}). Its end was cut off, or "
                "another copy was put in its place. Put back the file from the last backup."
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
    receipts_by_party: dict[str, list[course.Receipt]] = {}
    vanished = records.Absences(folder / records.ABSENCES).names
    for receipt in course.read_receipts(folder / course.RECEIPTS):
        if names is None or receipt.party in names:
            receipts_by_party.setdefault(receipt.party, []).append(receipt)

    for name, receipts in receipts_by_party.items():
        payments = [receipt for receipt in receipts if receipt.entry]
        if name not in files:
            # Nothing was released, or the party could not send its ledger any more.
            if not payments or name in vanished:
                continue
            raise LedgerError(
                f"the ledger of party {name!r} is gone or empty; the coordinator saw "
                f"{count_of(len(payments), 'payment', 'payments')} from it. Put back the file "
                "from the last backup."
            )
        ledger = _read(name, files[name], receipts[0].key, str(course.RECEIPTS))
        hashes = {entry.hash for entry in ledger.entries}
        for payment in payments:
            if payment.entry not in hashes:
                raise LedgerError(
                    f"{files[name]}: lacks entry {payment.entry[:16]}, which paid for the reply to "
                    f"step {payment.step} of run {payment.run} ({course.RECEIPTS}). Its end was "
                    "cut off, or another copy was put in its place. Put back the file from the "
                    "last backup."
                )
    return set(receipts_by_party)


def _read(name: str, file: Path, key: bytes, source: str) -> Ledger:
    """Read a ledger; raise LedgerError if it was changed, or its key is not that in `source`."""
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
    `whom` says what is protected, where the run is known, and `allowed` which epsilon the study
    allowed at this very delta.
    """

    delta: float
    ledgers: tuple[Reading, ...]
    split: str = "rows"
    whole_row: float | None = None
    to_parties: float | None = None
    at_parties: float | None = None
    whom: str = "row"
    allowed: float | None = None


def read_ledgers(
    source: str | Path, *, party: str | None = None, delta: float | None = None
) -> Trail:
    """Read, verify and add up ledgers.

    Args:
        source: A run's folder, a party's folder of a study, or one ledger file.
        party: Only this party's.
        delta: At which epsilon is computed; the run's, or the study's, if None (1e-6 for a file of
            neither).

    Raises:
        InputError: Nothing is there, there is no such party, or delta is out of range.
        LedgerError: A ledger was edited or written anew, or entries that a run relied on are gone.
        RosterError: A party's folder has a roster that its coordinator did not sign.
    """
    path = _ledger_of_party(Path(source))
    if delta is not None:
        number("delta", delta, 0, 1, "()")
    folder, stages = _stages(path)
    names = _owners(stages.values())
    if not names:
        raise InputError(
            f"{path}: is no run's folder and no ledger file. Give the folder that "
            "`siloweave run` named, a party's folder of a study, or a ledger.jsonl."
            f"{_runs_below(path)}"
        )
    _check_party(party, names)
    summary = find_run(folder)
    budget = _budget_beside(path)
    if not delta:
        delta = _usual_delta(summary, budget)

    compared_names = {party} if party else None
    if path.is_file() and not party:
        # A single file says nothing of other parties' ledgers.
        compared_names = set(names)

    readings: list[Reading] = []
    method_entries: dict[str, tuple[Entry, ...]] = {}
    for stage, files in stages.items():
        sources = _compared(summary, folder, stage, files, compared_names)
        for name, file in files.items():
            if party is not None and name != party:
                continue
            ledger = Ledger.read(file)
            known_by = (*sources[name], *_roster_beside(name, file))
            readings.append(_reading(ledger, file, stage, delta, known_by))
            if stage == "method":
                method_entries[name] = ledger.entries
    if summary is None:
        return _trail_outside_runs(budget, delta, readings)
    return _trail(summary, delta, readings, method_entries)


def _check_party(party: str | None, names: Sequence[str]) -> None:
    """Refuse a party without a ledger here."""
    if party is not None and party not in names:
        raise InputError(
            f"--party {party!r} has no ledger here{close_match(party, names)} "
            f"There is {', '.join(names)}."
        )


def _ledger_of_party(path: Path) -> Path:
    """Return the ledger in a party's folder of a study, where it lies beside the study."""
    file = path / "ledger.jsonl"
    return file if file.is_file() else path


def _usual_delta(summary: RunSummary | None, budget: Budget | None) -> float:
    """Return the delta of a run, or of a study; a usual one without either."""
    if summary is not None:
        return summary.delta
    if budget is not None:
        return budget.delta
    return _DELTA


def _budget_beside(path: Path) -> Budget | None:
    """Return the budget of the study in whose folder a party's ledger lies; None without one."""
    folder = path.parent
    if not path.is_file() or not (folder / STUDY_FILE).is_file():
        return None
    # A study that cannot be read is no reason not to read a ledger.
    with suppress(SiloweaveError):
        return Study.load(folder).terms()
    return None


def _roster_beside(name: str, file: Path) -> tuple[str, ...]:
    """Compare a ledger's key with the roster in the same folder; return its name if it is there.

    Raises:
        LedgerError: The ledger is signed with another key.
        RosterError: The roster is not of the coordinator whose key lies beside it.
    """
    roster_file = file.with_name(ROSTER_FILE)
    coordinator_file = file.with_name(COORDINATOR_PUBLIC)
    if not roster_file.is_file() or not coordinator_file.is_file():
        return ()
    roster = read_roster(roster_file, public_key_in(coordinator_file))
    if name not in roster.parties:
        return ()
    _read(name, file, roster.parties[name], ROSTER_FILE)
    return (_ROSTER,)


def _owners(stage_files: Iterable[Mapping[str, Path]]) -> list[str]:
    """Return the owners of all ledgers, each once, in their order."""
    names: list[str] = []
    for files in stage_files:
        names += [name for name in files if name not in names]
    return names


def _reading(
    ledger: Ledger, file: Path, stage: StageName, delta: float, sources: tuple[str, ...]
) -> Reading:
    """Describe a ledger that was verified; `sources` are what it was compared with."""
    return Reading(
        party=ledger.owner,
        file=str(file),
        epsilon=epsilon(ledger.events, delta),
        note=ledger.recovered,
        head=ledger.head,
        entries=tuple(_lines(ledger)),
        stage=stage,
        key=ledger.key,
        compared=sources,
    )


def _trail_outside_runs(
    budget: Budget | None, delta: float, readings: Sequence[Reading]
) -> Trail:
    """Return what ledgers hold where no finished run is known, but perhaps the study."""
    allowed = None
    if budget is not None and budget.delta == delta:
        allowed = budget.epsilon
    return Trail(delta, tuple(readings), allowed=allowed)


def _trail(
    summary: RunSummary,
    delta: float,
    readings: Sequence[Reading],
    method_entries: Mapping[str, tuple[Entry, ...]],
) -> Trail:
    """Add up ledgers over all parties of a run, if all of them were read."""
    allowed = summary.epsilon_allowed if delta == summary.delta else None
    names = {party.name for party in summary.parties} | set(summary.vanished)
    if len(method_entries) < len(names):
        return Trail(delta, tuple(readings), allowed=allowed)
    ledgers = Ledgers(
        method_entries,
        delta,
        summary.split,
        summary.epsilon_to_parties is not None,
        summary.parties_per_unit,
    )
    return Trail(
        delta=delta,
        ledgers=tuple(readings),
        split=summary.split,
        whole_row=epsilon_of_row(method_entries, summary.split, delta),
        to_parties=ledgers.epsilon_to_parties,
        at_parties=ledgers.epsilon_at_parties,
        whom=words.whom(summary.unit, summary.rows_per_unit),
        allowed=allowed,
    )


def _stages(path: Path) -> tuple[Path, dict[StageName, dict[str, Path]]]:
    """Return the run's folder, and by owner the ledgers asked for, of each part of the run."""
    is_file = path.is_file()
    if is_file:
        home = path.parent.parent.parent  # of parties/0000/ledger.jsonl
        files = {Ledger.read(path).owner: path}
    else:
        home = path
        files = ledger_files(path)

    # A run's folder may be called as an alignment's is, and has neither of these files there.
    has_aligned = (home / f"{course.ALIGNED}.json").is_file()
    is_below_run = (home.parent / "run.json").is_file()
    if home.name == course.ALIGNED and (has_aligned or is_below_run):
        return home.parent, {"alignment": files}
    if is_file:
        return home, {"method": files}
    return home, {"method": files, "alignment": ledger_files(home / course.ALIGNED)}


def _compared(
    summary: RunSummary | None,
    folder: Path,
    stage: StageName,
    files: Mapping[str, Path],
    names: set[str] | None,
) -> dict[str, tuple[str, ...]]:
    """Compare ledgers with run.json and the coordinator's receipts; return which knew each.

    Args:
        summary: The run's, if it has finished.
        folder: The run's.
        stage: Which part of the run the ledgers are of.
        files: The ledgers, by owner.
        names: Only these parties'; all of the run's if None, also those whose ledger is gone.
    """
    home = folder
    parties: tuple[PartySummary, ...] = ()
    if stage == "alignment":
        home = folder / course.ALIGNED
        if summary is not None and summary.alignment is not None:
            parties = summary.alignment.parties
    elif summary is not None:
        parties = summary.parties

    verify_ledgers(parties, files, names)
    receipt_names = check_receipts(home, files, names)
    summary_names = {party.name for party in parties}
    receipts_path = (home / course.RECEIPTS).relative_to(folder).as_posix()
    receipts = f"{receipts_path} (key, payments seen)"

    sources = {}
    for name in files:
        name_sources = []
        if name in summary_names:
            name_sources.append(_SUMMARY)
        if name in receipt_names:
            name_sources.append(receipts)
        sources[name] = tuple(name_sources)
    return sources


def _lines(ledger: Ledger) -> Iterator[TrailLine]:
    """Yield a ledger's releases; an event without zCDP has no rho (None)."""
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
