"""A study's run in its folder: rows in; ledgers, model, synthetic table and reports out.

::

    run/
      run.json            what it cost and where things are; written last
      synthetic.csv       the synthetic table
      model/              what `siloweave sample` draws from
      report.html         for everyone      record.json        what it was made from
      report-owner.html   for the owners    record-owner.json  (real statistics: keep it there)
      attacks.json        what attacks on it found, where some were made (the same)
      parties/            every party's ledger and memory; outlive every run
      coordinator/        the replies it received, and receipts of the payments in them
      alignment/          the same of an alignment, if there was one

Outputs appear together when a run has finished. Only the parties' folders grow while it runs, so a
run that was cut short still counts what it released, and continues from there.

**Guarantee**: that of the method; the alignment that an ``[alignment]`` asks for has none
(protocols/alignment.py). Its ledgers are in a folder of their own, since no bound covers who is in
the common table; run.json, the reports, ``check`` and ``siloweave ledger`` name them.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from siloweave.app.check import check_columns, check_rows, columns_of, declared_names, uncovered
from siloweave.app.ledgers import (
    AlignmentSummary,
    RunSummary,
    finished,
    json_of,
    ledger_files,
    open_run,
    party_summaries,
    spent,
    stored,
)
from siloweave.app.report import check_page, disjoined, owner_rows, record_of
from siloweave.app.study import Study
from siloweave.core.fit import Cost, Fit, epsilon_of_row
from siloweave.core.method import Case, Setup
from siloweave.core.party import Party, common_tables, direct_parties
from siloweave.core.run import (
    Synthesizer,
    check_tables,
    open_session,
    open_sides,
    run_study,
    with_tables,
    write_ledgers,
)
from siloweave.core.settings import TRANSCRIPT, Job, agreed
from siloweave.errors import DataError, InputError, SchemaError, naming_party
from siloweave.federation.alignment import Alignment
from siloweave.federation.alignment_party import AlignmentData
from siloweave.federation.carriers.carrier import Carrier
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.course import ALIGNED
from siloweave.privacy.journal import write_whole
from siloweave.privacy.ledger import Ledger
from siloweave.progress import Progress, silent
from siloweave.protocols.columns import DrawnRows
from siloweave.report.page import Audience, render
from siloweave.report.record import AlignmentCost, Overhead, Phase, Record
from siloweave.tables.ids import IdPolicy
from siloweave.tables.modelled import Modelled
from siloweave.tables.read import Table, Unread, digest_of, read, write
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.attacks.results import Risks

_LEAST = 2  # common rows that a method needs
_READ, _FITTED, _SAMPLED = 0.05, 0.85, 0.9  # shares of the progress bar
_OWNERS = "owner's report"
_ATTACKS = "attacks.json"
_FILES = {
    "report": "report.html",
    _OWNERS: "report-owner.html",
    "model": "model",
    "ledgers": "parties",
}
_ALIGNED_FILES = {
    "alignment": f"{ALIGNED}/alignment.json",
    "ledgers of the alignment": f"{ALIGNED}/parties",
}


def execute(
    study: Study,
    *,
    carrier: Carrier | None = None,
    noise: str = "os",
    progress: Progress = silent,
) -> tuple[RunSummary, bool]:
    """Run a study, or continue one that was cut short.

    Args:
        study: As its file says.
        carrier: Asks parties elsewhere; if None, all rows are read here. It is not closed.
        noise: As of `Synthesizer.fit`.
        progress: Called with a text and the share that is done.

    Returns:
        What it cost, and whether it had finished before (then nothing was done).

    Raises:
        InputError: Something that was given cannot be used; nothing is written.
        LedgerError: A ledger was edited.
    """
    schema, synth = study.checked()
    before = finished(study)
    if before is not None:
        return before, True
    learned = Modelled(schema).schema if schema.constraints else schema
    case = Case(learned, study.terms(), len(study.parties), learn=study.schema.learn)
    synth.method.forecast(synth, case)  # refuses a workload that does not fit

    def fitting(text: str, done: float) -> None:
        progress(text, _READ + (_FITTED - _READ) * done)

    job = study.job(
        folder=study.folder,
        noise=noise,
        progress=fitting,
        rows=study.output.rows,
        at_once=os.cpu_count() or 1,
    )
    if carrier is not None:
        # What was answered stays in the folder if the run is ended.
        study.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _run_over(study, job, carrier, progress), False
    spent(study)
    progress("reading", 0.0)
    start = time.perf_counter()
    with _claimed(study):
        tables = load_rows(study, schema, synth, noise)
        setup = study.setup({name: table.names for name, table in tables.items()})
        for sentence in check_tables(setup, tables, job, aligned=study.alignment is not None):
            warnings.warn(sentence, stacklevel=2)
        seconds = {"reading rows": time.perf_counter() - start}
        with closing(_open_here(study, setup, tables, job)) as parties_here:
            summary = _run_here(study, setup, job, parties_here, seconds, progress, tables)
    progress("done", 1.0)
    return summary, False


def _open_here(
    study: Study, setup: Setup, tables: Mapping[str, Table | Unread], job: Job
) -> Direct[Party]:
    """Open the parties of a study in this process."""
    sides = open_sides(setup, tables, job, agreed(study.facts()))
    alignment = study.alignment
    if alignment is not None:
        policy = IdPolicy(alignment.missing, alignment.duplicates)
        for name, side in sides.items():
            side.aligned = AlignmentData(
                read(tables[name]), tuple(alignment.on), policy, os.cpu_count() or 1, alignment.most
            )
    return direct_parties(sides, job, apart=study.folder / ALIGNED)


def _run_here(
    study: Study,
    setup: Setup,
    job: Job,
    carrier: Direct[Party],
    seconds: dict[str, float],
    progress: Progress,
    tables: Mapping[str, Any],
) -> RunSummary:
    """Run a study whose rows are all here, and write what comes of it; see `_run_over`."""
    alignment = _aligned(study, setup, job, carrier, seconds, progress)
    fitted = run_study(setup, job, carrier, study=agreed(study.facts()))
    seconds |= fitted.cost.phases
    if alignment is not None:
        tables = common_tables(carrier)
    fitted = with_tables(fitted, tables, setup, job)
    return _write_outputs(study, fitted, tables, seconds, progress, alignment)


def _run_over(study: Study, job: Job, carrier: Carrier, progress: Progress) -> RunSummary:
    """Run a study whose rows are elsewhere, and write what comes of it.

    Args:
        study: As its file says.
        job: The run.
        carrier: Asks the parties.
        progress: Called with a text and the share that is done.
    """
    setup = study.setup()
    seconds: dict[str, float] = {}
    alignment = _aligned(study, setup, job, carrier, seconds, progress)
    fitted = run_study(setup, job, carrier, study=agreed(study.facts()))
    seconds |= fitted.cost.phases
    overhead = _overhead(carrier, job, fitted, alignment, seconds)
    return _write_outputs(study, fitted, {}, seconds, progress, alignment, overhead)


def _overhead(
    carrier: Carrier,
    job: Job,
    fitted: Fit,
    alignment: AlignmentSummary | None,
    seconds: Mapping[str, float],
) -> Overhead:
    """Return what a run between organisations took besides the parties' own work."""
    counted: list[Any] = list(fitted.cost.parties.values())
    questions = fitted.cost.rounds
    if alignment is not None:
        counted += alignment.parties
        questions += alignment.rounds
    sealing = carrier.sealing.seconds
    return Overhead(
        own=max(sum(seconds.values()) - job.asking.seconds, 0.0),
        sealing=sealing,
        waiting=max(job.asking.seconds - sealing, 0.0),
        questions=questions,
        messages=sum(traffic.messages for traffic in counted),
    )


@contextmanager
def _claimed(study: Study) -> Iterator[None]:
    """Make the run's folder, and take it away again if the run fails before its first release.

    Raises:
        InputError: The folder is a file.
    """
    folder = study.folder
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        if not folder.is_dir():
            raise InputError(
                f"[output] folder = {study.output.folder!r} cannot be made: {error.strerror}. "
                "Name another."
            ) from error
        made = []  # someone else's: never taken away
    done = False
    try:
        yield
        done = True
    finally:
        if made and not done and not any(spent(study).values()):
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                for path in made[1:]:
                    path.rmdir()


# Rows


def load_rows(
    study: Study, schema: Schema, synth: Synthesizer, noise: str = "os"
) -> dict[str, Any]:
    """Every party's rows, or samples, checked against the schema, or against its part of it.

    What is counted where it is, and not read, is checked when the method prepares it.

    Raises:
        RosterError: Parties hold different columns; or, without a guarantee, one has fewer than two
            rows.
        SchemaError: Rows do not fit the schema; names the party.
        DataError: A file is missing or unreadable; or, without a guarantee, a column has no value
            at any party.
    """
    tables: dict[str, Table | Unread] = {}
    job = study.job(noise=noise)
    check_columns(study, synth, columns := columns_of(study), schema)  # before one is loaded
    study.setup(columns)  # refuses what the budget does not pay for, before ids are compared
    for i, party in enumerate(study.parties):
        with naming_party(party.name):
            home = study.folder / "parties" / f"{i:04d}"
            tables[party.name] = study.rows(party, study.source(party), job, home)
    loaded = {name: table for name, table in tables.items() if isinstance(table, Table)}
    for name, table in loaded.items():
        try:
            check_rows(study, schema, synth, name, table)
        except SchemaError as error:
            text = str(error).rstrip(".")
            if "counted from 1" not in text:
                text += ". `siloweave check --rows` shows which rows"
            raise SchemaError(f"{text}.") from error
    declared = declared_names(study, schema)
    for column in schema.columns if synth.info.guarantee != "dp" else ():
        held = [table for table in loaded.values() if column.name in table.names]
        coded = column.modelled and column.name in declared and len(loaded) == len(tables)
        if coded and all(table.missing(column.name).all() for table in held):
            raise DataError(
                f"column {column.name!r} has no value in any row of any party. Drop it from "
                "the schema and the files."
            )
    return tables


def _aligned(
    study: Study,
    setup: Setup,
    job: Job,
    carrier: Carrier,
    seconds: dict[str, float],
    progress: Progress,
) -> AlignmentSummary | None:
    """Let the parties find their common rows, if the study asks for that, or continue it.

    The rows stay with the parties. What it took is added to `seconds`.

    Raises:
        DataError: Ids are missing or repeated, or fewer than two rows are common to all.
    """
    from siloweave.federation.alignment import align

    alignment = study.alignment
    if alignment is None:
        return None
    start = time.perf_counter()
    aligning = replace(setup, stage=ALIGNED)
    own_job = replace(job, folder=study.folder / ALIGNED)
    with open_session(aligning, own_job, carrier, agreed(study.facts())) as session:
        report = align(
            session,
            alignment.on,
            rules=alignment.rules,
            progress=lambda text, _: progress(text, _READ),
        )
        ledgers = session.close()
    if not carrier.simulated:
        write_ledgers(own_job, study.names, ledgers)
    phases = {ALIGNED: time.perf_counter() - start}
    seconds |= phases
    return _summarised(study, report, Cost(session.traffic, session.rounds, phases))


def _summarised(study: Study, report: Alignment, cost: Cost) -> AlignmentSummary:
    """Write down what an alignment found; DataError where that is too little."""
    if report.common < _LEAST:
        raise DataError(
            f"{report.common} row is common to all parties; a study needs {_LEAST} or more. "
            "Check the rules in [alignment], and that the files are about the same people."
        )
    folder, traffic = study.folder / ALIGNED, cost.parties
    sent = {
        name: {"bytes_sent": one.bytes_from_party, "bytes_received": one.bytes_to_party}
        for name, one in traffic.items()
    }
    facts = {**asdict(report), "questions": cost.rounds, "parties": sent}
    write_whole(
        folder / "alignment.json", (json_of(facts) + "\n").encode(), private=False
    )  # all of it was released
    parties = party_summaries(folder, study.names, traffic, study.terms().delta)
    return AlignmentSummary(cost.rounds, sum(cost.phases.values()), parties)


# Outputs


def _write_outputs(
    study: Study,
    fitted: Fit,
    tables: Mapping[str, Table],
    seconds: dict[str, float],
    progress: Progress,
    alignment: AlignmentSummary | None,
    overhead: Overhead | None = None,
) -> RunSummary:
    """Make everything in a folder beside, then move it to its place; run.json goes last."""
    folder, stage = study.folder, study.folder / f".new-{os.getpid()}"
    stage.mkdir(parents=True)
    try:
        progress("sampling", _FITTED)
        start = time.perf_counter()
        synthetic, files = _drawn(study, fitted, stage)
        if not isinstance(fitted.model, DrawnRows):
            fitted.save(stage / "model")
        sampled = time.perf_counter()
        progress("report", _SAMPLED)
        record = _record(study, fitted, tables, synthetic, alignment)
        record = msgspec.structs.replace(record, overhead=overhead)
        public = record.public()
        write_whole(stage / "record.json", public.to_json().encode(), private=False)
        write_whole(stage / "report.html", render(public).encode(), private=False)
        if tables:
            write_whole(stage / "record-owner.json", record.to_json().encode())
            page = render(record, audience="owner")
            write_whole(stage / "report-owner.html", page.encode())
        seconds.update(sampling=sampled - start, report=time.perf_counter() - sampled)
        number = (fitted.model if synthetic is None else synthetic).num_rows
        summary = _summary(study, fitted, number, seconds, files, alignment)
        summary = msgspec.structs.replace(summary, overhead=overhead)
        for stale in ("run.json", _ATTACKS):
            (folder / stale).unlink(missing_ok=True)
        for path in sorted(stage.iterdir()):
            place = folder / path.name
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            path.replace(place)
        write_whole(folder / "run.json", (json_of(summary) + "\n").encode(), private=False)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return summary


def _drawn(study: Study, fitted: Fit, stage: Path) -> tuple[Table | None, dict[str, str]]:
    """Write synthetic rows, for each party its own where columns stay with their parties.

    Returns:
        Rows for the report, in which parts of different parties are then not joined, or None where
        all parts are elsewhere; and files.
    """
    rows, seed = study.output.rows, study.output.seed
    if isinstance(fitted.model, DrawnRows) and not fitted.shared:
        return None, {}
    if fitted.shared:
        table = fitted.sample_table(rows, seed=seed)
        write(table, stage / "synthetic.csv", fitted.schema.padded)
        return table, {"synthetic table": "synthetic.csv"}
    files, parts = {}, fitted.part_tables(rows, seed=seed)
    for name, part in parts.items():
        files[f"synthetic table of {name}"] = f"synthetic-{name}.csv"
        write(part, stage / f"synthetic-{name}.csv", fitted.schema.padded)
        (stage / f"synthetic-{name}.csv").chmod(0o600)  # rows of all parties are in one order
    return disjoined(parts, seed), files


def _record(
    study: Study,
    fitted: Fit,
    tables: Mapping[str, Any],
    synthetic: Table | None,
    alignment: AlignmentSummary | None,
) -> Record:
    """What the reports are made from, an alignment among it."""
    owner, measured = owner_rows(fitted, tables) if tables else (), dict[str, float]()
    if fitted.columns and tables:
        from siloweave.audit.transcripts import recovered_shares

        measured = recovered_shares(study.folder / TRANSCRIPT, fitted, tables)
    for name, table in tables.items():
        if isinstance(table, Table) and table.drawn_of:
            part = f"share of the rows of {name} that took part: {table.num_rows:,} of "
            measured[f"{part}{table.drawn_of:,}"] = table.num_rows / table.drawn_of
    record = record_of(
        fitted, study.study.name, owner=owner, synthetic=synthetic, measured=measured,
        run_by=study.output.run_by,
    )  # fmt: skip
    if alignment is None or study.alignment is None:
        return record
    return msgspec.structs.replace(
        record,
        warnings=(*record.warnings, uncovered(study.alignment.on)),
        phases=(Phase(name="alignment", seconds=alignment.seconds), *record.phases),
        alignment=msgspec.convert(
            alignment.parties, tuple[AlignmentCost, ...], from_attributes=True
        ),
    )


def _summary(
    study: Study,
    fitted: Fit,
    rows: int,
    seconds: dict[str, float],
    files: dict[str, str],
    alignment: AlignmentSummary | None,
) -> RunSummary:
    info, budget, ledgers = fitted.info, study.terms(), ledger_files(study.folder)
    vanished = tuple(fitted.settings.get("vanished", ()))
    names = [name for name in study.names if name in ledgers or name not in vanished]
    own = {name: Ledger.read(ledgers[name]).entries for name in names}
    return RunSummary(
        run=study.run_name,
        study=study.study.name,
        method=info.title,
        guarantee=info.guarantee,
        private=fitted.private,
        epsilon=max(
            epsilon_of_row(own, info.split, budget.delta),
            fitted.epsilon if fitted.unaccounted else 0.0,
        ),
        epsilon_to_parties=fitted.ledger.epsilon_to_parties,
        epsilon_at_parties=fitted.ledger.epsilon_at_parties,
        epsilon_allowed=budget.epsilon,
        delta=budget.delta,
        unit=budget.unit,
        relation=str(budget.relation),
        rows_per_unit=budget.rows_per_unit,
        parties_per_unit=budget.parties_per_unit,
        rounds=fitted.cost.rounds,
        rows=rows,
        seconds=seconds,
        parties=party_summaries(study.folder, names, fitted.cost.parties, budget.delta),
        files=files
        | {what: one for what, one in _FILES.items() if what not in _absent(fitted)}
        | (_ALIGNED_FILES if alignment else {}),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        split=info.split,
        alignment=alignment,
        vanished=vanished,
        sample=str(fitted.settings.get("sample", "")),
    )


def _absent(fitted: Fit) -> set[str]:
    """Which files a run does not have whose rows, or decoders, are elsewhere."""
    absent = set() if fitted.simulated else {_OWNERS}
    return absent | ({"model"} if isinstance(fitted.model, DrawnRows) else set())


def outdated(study: Study, summary: RunSummary) -> tuple[str, ...]:
    """What a finished run no longer has, or has otherwise than the study now asks."""
    gone = [name for name in summary.files.values() if not (study.folder / name).exists()]
    found = [f"{study.folder / name} is not there any more" for name in gone]
    if summary.rows != (study.output.rows or summary.rows):
        found.append(f"[output] rows = {study.output.rows}, and this run drew {summary.rows}")
    advice = "`siloweave sample` and `siloweave report` make files again, at no cost"
    return tuple(f"{one}; {advice}." for one in found)


def check_attacked(folder: str | Path, synthetic: str | Path) -> None:
    """Refuse a run whose owner's report could not show what attacks on a table find.

    Raises:
        InputError: There is no finished run or no owner's record, or the table is another one.
    """
    open_run(folder)
    own = Path(folder) / "synthetic.csv"
    if not (Path(folder) / "record-owner.json").is_file() or not own.is_file():
        raise InputError(
            f"--run {folder}: has no owner's report of one synthetic table. Write a page of its "
            "own with --report instead."
        )
    if digest_of(read(synthetic)) != digest_of(read(own)):
        raise InputError(
            f"--run {folder}: {synthetic} is another table than the run's. Attack {own}, or leave "
            "--run out."
        )


def add_risks(folder: str | Path, risks: Risks) -> Path:
    """Store what attacks found beside a run, and make its owner's report with it."""
    write_whole(Path(folder) / _ATTACKS, (json_of(risks) + "\n").encode())
    return make_report(folder, None, "owner")


def _risks_of(folder: Path) -> dict[str, Any] | None:
    """What attacks on a run found, if some were made; InputError if the file is damaged."""
    from siloweave.attacks.results import Risks

    file = folder / _ATTACKS
    wrong = "holds no results of attacks ({}). Delete it, or attack again with --run."
    return stored(file, Risks, wrong).to_dict() if file.is_file() else None


def make_report(folder: str | Path, out: Path | None, audience: Audience) -> Path:
    """Write the report of a finished run again, whole or not at all; in its folder without `out`.

    Raises:
        InputError: There is no finished run, or its record for this audience is not here.
    """
    open_run(folder)
    suffix = "" if audience == "public" else "-owner"
    path = Path(folder) / f"record{suffix}.json"
    if not path.is_file():
        raise InputError(
            f"{path}: is not there, so the {audience}'s report cannot be made here. "
            "Make it where the run was made."
        )
    out = Path(folder) / f"report{suffix}.html" if out is None else out
    check_page(out)
    try:
        record = Record.from_json(path.read_bytes())
    except InputError as error:
        raise InputError(f"{path}: {error}. The run's other files are as before.") from error
    risks = _risks_of(Path(folder)) if audience == "owner" else None
    page = render(record, audience=audience, risks=risks)
    write_whole(out, page.encode(), private=audience == "owner")
    return out
