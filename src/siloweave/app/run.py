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
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from siloweave.app.check import (
    check_columns,
    check_rows,
    columns_of,
    declared_names,
    uncovered,
)
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
from siloweave.core.method import Setup
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
from siloweave.tables.read import Unread, read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table, digest_of
from siloweave.tables.write import write

if TYPE_CHECKING:
    from siloweave.attacks.results import Risks

_LEAST = 2  # common rows that a method needs

# Where the progress bar stands when rows are read, the model is fitted and rows are sampled.
_READ = 0.05
_FITTED = 0.85
_SAMPLED = 0.9

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
    earlier_summary = finished(study)
    if earlier_summary is not None:
        return earlier_summary, True

    learn = study.schema.learn
    setup = Setup(synth, schema, study.terms(), study.names, learn=learn)
    # A workload that does not fit is refused here, before a folder is made or a row is read.
    synth.method.forecast(setup, 1)

    def report_fitting(text: str, done: float) -> None:
        progress(text, _READ + (_FITTED - _READ) * done)

    job = study.job(
        folder=study.folder,
        noise=noise,
        progress=report_fitting,
        rows=study.output.rows,
        at_once=os.cpu_count() or 1,
    )

    if carrier is not None:
        # What was answered stays in the folder if the run is ended.
        study.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _run_over(study, job, carrier, progress), False

    # Only for its errors: ledgers that were edited, or whose budget other runs have spent.
    spent(study)
    progress("reading", 0.0)
    start = time.perf_counter()
    is_aligned = study.alignment is not None
    with _claimed(study):
        tables = load_rows(study, schema, synth, noise)
        columns = {name: table.names for name, table in tables.items()}
        setup = study.setup(columns)
        sentences = check_tables(setup, tables, job, aligned=is_aligned)
        for sentence in sentences:
            warnings.warn(sentence, stacklevel=2)
        seconds = {"reading rows": time.perf_counter() - start}

        with closing(_open_here(study, setup, tables, job)) as parties_here:
            summary = _run_here(
                study, setup, job, parties_here, seconds, progress, tables
            )

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
        id_columns = tuple(alignment.on)
        processes = os.cpu_count() or 1
        for name, side in sides.items():
            table = read(tables[name])
            side.aligned = AlignmentData(
                table, id_columns, policy, processes, alignment.most
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
    alignment = _align_parties(study, setup, job, carrier, seconds, progress)
    facts = agreed(study.facts())
    fitted = run_study(setup, job, carrier, study=facts)
    seconds |= fitted.cost.phases

    # Reports compare with the rows that the method had: after an alignment, the common ones.
    if alignment is not None:
        tables = common_tables(carrier)
    fitted = with_tables(fitted, tables, setup, job)
    return _write_outputs(study, fitted, tables, seconds, progress, alignment)


def _run_over(
    study: Study, job: Job, carrier: Carrier, progress: Progress
) -> RunSummary:
    """Run a study whose rows are elsewhere, and write what comes of it.

    Args:
        study: As its file says.
        job: The run.
        carrier: Asks the parties.
        progress: Called with a text and the share that is done.
    """
    setup = study.setup()
    seconds: dict[str, float] = {}
    alignment = _align_parties(study, setup, job, carrier, seconds, progress)
    facts = agreed(study.facts())
    fitted = run_study(setup, job, carrier, study=facts)
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
    traffics: list[Any] = list(fitted.cost.parties.values())
    questions = fitted.cost.rounds
    if alignment is not None:
        traffics += alignment.parties
        questions += alignment.rounds
    messages = sum(traffic.messages for traffic in traffics)

    # Seconds of asking hold those of sealing, and both are parts of what the phases took.
    total = sum(seconds.values())
    asking = job.asking.seconds
    sealing = carrier.sealing.seconds
    return Overhead(
        own=max(total - asking, 0.0),
        sealing=sealing,
        waiting=max(asking - sealing, 0.0),
        questions=questions,
        messages=messages,
    )


@contextmanager
def _claimed(study: Study) -> Iterator[None]:
    """Make the run's folder, and take it away again if the run fails before its first release.

    Raises:
        InputError: The folder is a file.
    """
    folder = study.folder
    paths = (folder, *folder.parents)
    new_folders = [path for path in paths if not path.exists()]
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        if not folder.is_dir():
            raise InputError(
                f"[output] folder = {study.output.folder!r} cannot be made: {error.strerror}. "
                "Name another."
            ) from error
        # The folder was there, or another process made it just now: it is never taken away.
        new_folders = []

    has_finished = False
    try:
        yield
        has_finished = True
    finally:
        # With a release in it, the folder is all that still counts what was spent.
        if new_folders and not has_finished and not any(spent(study).values()):
            shutil.rmtree(folder, ignore_errors=True)
            # Folders above go too, up to the first that someone uses for something else.
            with suppress(OSError):
                for parent in new_folders[1:]:
                    parent.rmdir()


# Rows


def load_rows(
    study: Study, schema: Schema, synth: Synthesizer, noise: str = "os"
) -> dict[str, Any]:
    """Return every party's rows, or samples, by name, checked against its part of the schema.

    What is counted where it is, and not read, is checked when the method prepares it.

    Raises:
        RosterError: Parties hold different columns; or, without a guarantee, one has fewer than two
            rows.
        SchemaError: Rows do not fit the schema; names the party.
        DataError: A file is missing or unreadable; or, without a guarantee, a column has no value
            at any party.
    """
    # What names of columns show is refused before a table is loaded, and what the budget does not
    # pay for before ids are compared.
    columns = columns_of(study)
    check_columns(study, synth, columns, schema)
    study.setup(columns)

    tables: dict[str, Table | Unread] = {}
    job = study.job(noise=noise)
    for index, party in enumerate(study.parties):
        with naming_party(party.name):
            home = study.folder / "parties" / f"{index:04d}"
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

    # With a guarantee, whether a column has values is a fact of rows that nobody may state; and of
    # tables that were not read it is unknown.
    all_are_loaded = len(loaded) == len(tables)
    if synth.info.guarantee != "dp" and all_are_loaded:
        declared = declared_names(study, schema)
        _check_values(schema, declared, list(loaded.values()))
    return tables


def _check_values(
    schema: Schema, declared: Container[str], tables: Sequence[Table]
) -> None:
    """Check that every column that a method models has a value in a row of a party.

    Raises:
        DataError: A column has none; names it.
    """
    for column in schema.columns:
        if not column.modelled or column.name not in declared:
            continue
        holders = [table for table in tables if column.name in table.names]
        if all(table.missing(column.name).all() for table in holders):
            raise DataError(
                f"column {column.name!r} has no value in any row of any party. Drop it from "
                "the schema and the files."
            )


def _align_parties(
    study: Study,
    setup: Setup,
    job: Job,
    carrier: Carrier,
    seconds: dict[str, float],
    progress: Progress,
) -> AlignmentSummary | None:
    """Let the parties find their common rows, or continue that; do nothing if no study asks for it.

    The rows stay with the parties. What it took is added to `seconds`.

    Raises:
        DataError: Ids are missing or repeated, or fewer than two rows are common to all.
    """
    from siloweave.federation.alignment import align

    alignment = study.alignment
    if alignment is None:
        return None

    def report_aligning(text: str, done: float) -> None:
        progress(text, _READ)

    start = time.perf_counter()
    aligning = replace(setup, stage=ALIGNED)
    # Its ledgers are apart from the method's, since no epsilon covers what they hold.
    aligning_job = replace(job, folder=study.folder / ALIGNED)
    facts = agreed(study.facts())
    with open_session(aligning, aligning_job, carrier, facts) as session:
        report = align(
            session,
            alignment.on,
            rules=alignment.rules,
            progress=report_aligning,
        )
        ledgers = session.close()

    # Parties in this process have written theirs; of others, these are copies.
    if not carrier.simulated:
        write_ledgers(aligning_job, study.names, ledgers)
    phases = {ALIGNED: time.perf_counter() - start}
    seconds |= phases
    cost = Cost(session.traffic, session.rounds, phases)
    return _store_alignment(study, report, cost)


def _store_alignment(study: Study, report: Alignment, cost: Cost) -> AlignmentSummary:
    """Write down what an alignment found; raise DataError where that is too little."""
    if report.common < _LEAST:
        raise DataError(
            f"{report.common} row is common to all parties; a study needs {_LEAST} or more. "
            "Check the rules in [alignment], and that the files are about the same people."
        )
    folder = study.folder / ALIGNED
    party_bytes = {}
    for name, traffic in cost.parties.items():
        party_bytes[name] = {
            "bytes_sent": traffic.bytes_from_party,
            "bytes_received": traffic.bytes_to_party,
        }
    facts = {**asdict(report), "questions": cost.rounds, "parties": party_bytes}
    text = json_of(facts) + "\n"
    # Not private: all of it was released to the parties.
    write_whole(folder / "alignment.json", text.encode(), private=False)

    delta = study.terms().delta
    parties = party_summaries(folder, study.names, cost.parties, delta)
    seconds = sum(cost.phases.values())
    return AlignmentSummary(cost.rounds, seconds, parties)


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
    folder = study.folder
    stage = folder / f".new-{os.getpid()}"
    stage.mkdir(parents=True)
    try:
        progress("sampling", _FITTED)
        start = time.perf_counter()
        synthetic, files = _write_synthetic(study, fitted, stage)
        if not isinstance(fitted.model, DrawnRows):
            fitted.save(stage / "model")
        sampling_end = time.perf_counter()

        progress("report", _SAMPLED)
        record = _record(study, fitted, tables, synthetic, alignment)
        record = msgspec.structs.replace(record, overhead=overhead)
        _write_reports(record, stage, has_rows=bool(tables))
        seconds["sampling"] = sampling_end - start
        seconds["report"] = time.perf_counter() - sampling_end

        row_count = fitted.model.num_rows if synthetic is None else synthetic.num_rows
        summary = _summary(study, fitted, row_count, seconds, files, alignment)
        summary = msgspec.structs.replace(summary, overhead=overhead)
        # An earlier run is no longer whole once its first file is replaced, so its summary goes
        # first; what attacks on its table found does not hold of the new one.
        for stale in ("run.json", _ATTACKS):
            (folder / stale).unlink(missing_ok=True)
        _move_into(folder, stage)
        text = json_of(summary) + "\n"
        write_whole(folder / "run.json", text.encode(), private=False)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return summary


def _write_reports(record: Record, folder: Path, *, has_rows: bool) -> None:
    """Write records and reports into a folder; the owners' only where real rows are here."""
    public = record.public()
    write_whole(folder / "record.json", public.to_json().encode(), private=False)
    write_whole(folder / "report.html", render(public).encode(), private=False)
    if has_rows:
        write_whole(folder / "record-owner.json", record.to_json().encode())
        page = render(record, audience="owner")
        write_whole(folder / "report-owner.html", page.encode())


def _move_into(folder: Path, stage: Path) -> None:
    """Move all that is in a stage's folder into another, in place of what has its name there."""
    for path in sorted(stage.iterdir()):
        place = folder / path.name
        # A folder cannot be replaced by another one that is not empty; files can.
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        path.replace(place)


def _write_synthetic(
    study: Study, fitted: Fit, stage: Path
) -> tuple[Table | None, dict[str, str]]:
    """Write synthetic rows, for each party its own where columns stay with their parties.

    Returns:
        Rows for the report, in which parts of different parties are then not joined, or None where
        all parts are elsewhere; and files.
    """
    rows = study.output.rows
    seed = study.output.seed
    if isinstance(fitted.model, DrawnRows) and not fitted.shared:
        return None, {}

    if fitted.shared:
        table = fitted.sample_table(rows, seed=seed)
        write(table, stage / "synthetic.csv", fitted.schema.padded)
        return table, {"synthetic table": "synthetic.csv"}

    parts = fitted.part_tables(rows, seed=seed)
    files = {}
    for name, part in parts.items():
        file_name = f"synthetic-{name}.csv"
        path = stage / file_name
        write(part, path, fitted.schema.padded)
        # Rows of all parties are in one order: whoever can read all files can join them.
        path.chmod(0o600)
        files[f"synthetic table of {name}"] = file_name
    return disjoined(parts, seed), files


def _record(
    study: Study,
    fitted: Fit,
    tables: Mapping[str, Any],
    synthetic: Table | None,
    alignment: AlignmentSummary | None,
) -> Record:
    """Return what the reports are made from, an alignment among it."""
    real_rows: Sequence[Table] = ()
    if tables:
        real_rows = owner_rows(fitted, tables)

    measures: dict[str, float] = {}
    if fitted.columns and tables:
        from siloweave.audit.transcripts import recovered_shares

        measures = recovered_shares(study.folder / TRANSCRIPT, fitted, tables)
    for name, table in tables.items():
        if isinstance(table, Table) and table.drawn_of:
            counts = f"{table.num_rows:,} of {table.drawn_of:,}"
            measure = f"share of the rows of {name} that took part: {counts}"
            measures[measure] = table.num_rows / table.drawn_of

    record = record_of(
        fitted,
        study.study.name,
        owner=real_rows,
        synthetic=synthetic,
        measured=measures,
        run_by=study.output.run_by,
    )
    if alignment is None or study.alignment is None:
        return record

    phase = Phase(name="alignment", seconds=alignment.seconds)
    costs = msgspec.convert(
        alignment.parties, tuple[AlignmentCost, ...], from_attributes=True
    )
    return msgspec.structs.replace(
        record,
        warnings=(*record.warnings, uncovered(study.alignment.on)),
        phases=(phase, *record.phases),
        alignment=costs,
    )


def _summary(
    study: Study,
    fitted: Fit,
    rows: int,
    seconds: dict[str, float],
    files: dict[str, str],
    alignment: AlignmentSummary | None,
) -> RunSummary:
    """Return what run.json says of a finished run: what it cost, and where its files are."""
    info = fitted.info
    budget = study.terms()
    ledgers = ledger_files(study.folder)

    # A party that vanished may have left no ledger; of any other, a missing one is an error.
    vanished = tuple(fitted.settings.get("vanished", ()))
    names = [name for name in study.names if name in ledgers or name not in vanished]
    entries = {name: Ledger.read(ledgers[name]).entries for name in names}

    row_epsilon = epsilon_of_row(entries, info.split, budget.delta)
    # What no ledger accounts for, the fit alone states.
    unaccounted_epsilon = fitted.epsilon if fitted.unaccounted else 0.0
    parties = party_summaries(study.folder, names, fitted.cost.parties, budget.delta)

    absent = _absent_files(fitted)
    all_files = dict(files)
    for label, file_name in _FILES.items():
        if label not in absent:
            all_files[label] = file_name
    if alignment:
        all_files |= _ALIGNED_FILES

    return RunSummary(
        run=study.run_name,
        study=study.study.name,
        method=info.title,
        guarantee=info.guarantee,
        private=fitted.private,
        epsilon=max(row_epsilon, unaccounted_epsilon),
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
        parties=parties,
        files=all_files,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        split=info.split,
        alignment=alignment,
        vanished=vanished,
        sample=str(fitted.settings.get("sample", "")),
    )


def _absent_files(fitted: Fit) -> set[str]:
    """Return which of `_FILES` a run does not have whose rows, or decoders, are elsewhere."""
    absent = set()
    if not fitted.simulated:
        absent.add(_OWNERS)
    if isinstance(fitted.model, DrawnRows):
        absent.add("model")
    return absent


def outdated(study: Study, summary: RunSummary) -> tuple[str, ...]:
    """Describe what a finished run no longer has, or has otherwise than the study now asks."""
    paths = [study.folder / file_name for file_name in summary.files.values()]
    differences = [
        f"{path} is not there any more" for path in paths if not path.exists()
    ]
    wanted_rows = study.output.rows or summary.rows
    if summary.rows != wanted_rows:
        differences.append(
            f"[output] rows = {wanted_rows}, and this run drew {summary.rows}"
        )
    advice = "`siloweave sample` and `siloweave report` make files again, at no cost"
    return tuple(f"{difference}; {advice}." for difference in differences)


def check_attacked(folder: str | Path, synthetic: str | Path) -> None:
    """Refuse a run whose owner's report could not show what attacks on a table find.

    Raises:
        InputError: There is no finished run or no owner's record, or the table is another one.
    """
    open_run(folder)
    owner_record = Path(folder) / "record-owner.json"
    run_table = Path(folder) / "synthetic.csv"
    if not owner_record.is_file() or not run_table.is_file():
        raise InputError(
            f"--run {folder}: has no owner's report of one synthetic table. Write a page of its "
            "own with --report instead."
        )
    # By contents, not by path: a copy of the run's table is the run's table.
    if digest_of(read(synthetic)) != digest_of(read(run_table)):
        raise InputError(
            f"--run {folder}: {synthetic} is another table than the run's. Attack {run_table}, or "
            "leave --run out."
        )


def add_risks(folder: str | Path, risks: Risks) -> Path:
    """Store what attacks found beside a run, and make its owner's report with it."""
    text = json_of(risks) + "\n"
    write_whole(Path(folder) / _ATTACKS, text.encode())
    return make_report(folder, None, "owner")


def _risks_of(folder: Path) -> dict[str, Any] | None:
    """Return what attacks on a run found, or None without any; InputError for a damaged file."""
    from siloweave.attacks.results import Risks

    file = folder / _ATTACKS
    if not file.is_file():
        return None
    wrong = "holds no results of attacks ({}). Delete it, or attack again with --run."
    return stored(file, Risks, wrong).to_dict()


def make_report(folder: str | Path, out: Path | None, audience: Audience) -> Path:
    """Write the report of a finished run again, whole or not at all; in its folder without `out`.

    Raises:
        InputError: There is no finished run, or its record for this audience is not here.
    """
    open_run(folder)
    is_owners = audience == "owner"
    suffix = "-owner" if is_owners else ""
    path = Path(folder) / f"record{suffix}.json"
    if not path.is_file():
        raise InputError(
            f"{path}: is not there, so the {audience}'s report cannot be made here. "
            "Make it where the run was made."
        )

    # Whether a page can be written there is checked before it is made, which takes a while.
    if out is None:
        out = Path(folder) / f"report{suffix}.html"
    check_page(out)

    try:
        record = Record.from_json(path.read_bytes())
    except InputError as error:
        raise InputError(
            f"{path}: {error}. The run's other files are as before."
        ) from error
    risks = _risks_of(Path(folder)) if is_owners else None
    page = render(record, audience=audience, risks=risks)
    write_whole(out, page.encode(), private=is_owners)
    return out
