"""run.json and the ledgers of a run: what it cost, and whether its ledgers are whole.

**Guarantee**: holds nothing of real rows. run.json names the head of every ledger and its owner's
public key, so a ledger whose end was cut off, that was put back from an old copy, or that was
written anew with whatever key, is noticed as long as run.json is there. The coordinator's receipts
do the same for every payment that it saw, also where the run did not finish.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isinf
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from siloweave.app.study import Study, close_match
from siloweave.core.fit import Ledgers, epsilon_of_row
from siloweave.core.party import require_unspent
from siloweave.core.settings import Job
from siloweave.errors import InputError, LedgerError, count_of, number
from siloweave.federation import course, records
from siloweave.privacy.accountants import epsilon, rho
from siloweave.privacy.ledger import Entry, Ledger, fingerprint
from siloweave.report import words
from siloweave.report.record import Overhead, spelled

T = TypeVar("T")

# A folder's name, and the number that it ends with.
_NUMBERED = re.compile(r"(.*?)(\d*)", re.DOTALL)
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
        )
    return summary


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
    names = _owners(stages.values())
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
    if not delta:
        delta = summary.delta if summary else _DELTA

    # Which parties' ledgers are compared: a single file says nothing of the others.
    compared_names = None
    if party:
        compared_names = {party}
    elif path.is_file():
        compared_names = set(names)

    readings: list[Reading] = []
    method_entries: dict[str, tuple[Entry, ...]] = {}
    for stage, files in stages.items():
        sources = _compared(summary, folder, stage, files, compared_names)
        for name, file in files.items():
            if party is not None and name != party:
                continue
            ledger = Ledger.read(file)
            readings.append(_reading(ledger, file, stage, delta, sources[name]))
            if stage == "method":
                method_entries[name] = ledger.entries
    return _trail(summary, delta, readings, method_entries)


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


def _trail(
    summary: RunSummary | None,
    delta: float,
    readings: Sequence[Reading],
    method_entries: Mapping[str, tuple[Entry, ...]],
) -> Trail:
    """Add up ledgers over all parties, where the run is known and all of them were read."""
    if summary is None:
        return Trail(delta, tuple(readings))
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
