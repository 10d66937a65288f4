"""The ``[alignment]`` of a study: common rows are found before parties with different columns run.

**Guarantee** (none): as algorithms/align_rows.py. Ledgers of an alignment lie in the run's folder
beside those of the method, in ``alignment/parties``, since no bound covers who is in the common
table; run.json, the reports, ``check`` and ``siloweave ledger`` say so and name them.

A study's run in its folder: rows in; ledgers, model, synthetic table and reports out.

::

    run/
      run.json            what it cost and where things are; written last
      synthetic.csv       the synthetic table
      model/              what `siloweave sample` draws from
      report.html         for everyone      record.json        what it was made from
      report-owner.html   for the owners    record-owner.json  (real statistics: keep it there)
      parties/            every party's ledger and memory; outlive every run
      coordinator/        the replies it received, and receipts of the payments in them
      alignment/          the same of an alignment, if there was one

Outputs appear together when a run has finished. Only the parties' folders grow while it runs, so a
run that was cut short still counts what it released, and goes on from there.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from siloweave.app.files import put, write_text
from siloweave.app.init import same_columns
from siloweave.app.ledgers import (
    ALIGNED,
    AlignmentSummary,
    RunSummary,
    check_receipts,
    find_run,
    ledger_files,
    open_run,
    party_summaries,
    row_epsilon,
    spelled,
    verify_ledgers,
)
from siloweave.app.pages import check_page, disjoined, owner_rows
from siloweave.app.study import Study, check_parties, check_schema, split_columns_of
from siloweave.core.method import Case
from siloweave.errors import DataError, InputError, RosterError, SchemaError, naming_party
from siloweave.privacy.ledger import Ledger
from siloweave.tables.codes import Encoder
from siloweave.tables.read import Table, read, write
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.app.study import Study
    from siloweave.protocols.alignment import AlignedRows
    from siloweave.report import Record


_LEAST = 2  # common rows that a method needs


def check_alignment(study: Study, synth: Any, columns: Mapping[str, tuple[str, ...]]) -> None:
    """Check that a study with an alignment can be aligned, before a row is read.

    Args:
        study: The study.
        synth: Its method.
        columns: Names of every party's columns.

    Raises:
        InputError: The method takes rows that are not aligned.
        DataError: A party lacks an id column.
        RosterError: There is one party alone.
    """
    if study.alignment is None:
        return
    if not split_columns_of(synth):
        raise InputError(
            f"[alignment] is for parties that hold different columns, and {synth.info.title} takes "
            "rows of different people. Leave [alignment] out, or use a method for split columns."
        )
    if len(columns) < 2:
        raise RosterError(
            "[alignment] needs two [[parties]] or more; one has nobody to align with."
        )
    for name, names in columns.items():
        for one in study.alignment.on:
            if one not in names:
                raise DataError(
                    f"party {name!r} has no column {one!r}, which [alignment] on names; it has "
                    f"{', '.join(names)}. Name the id columns alike in all files."
                )


def aligned(
    study: Study,
    schema: Schema,
    tables: Mapping[str, Table],
    progress: Callable[[str, float], None],
) -> tuple[dict[str, Table], AlignmentSummary]:
    """Align the parties' tables, or go on with an alignment that was cut short.

    Args:
        study: The study.
        schema: Of all columns.
        tables: Every party's rows.
        progress: Called with a text and the share that is done.

    Returns:
        The common rows without the ids that they were found by, unless these are no ids in the
        schema; and what it took.

    Raises:
        DataError: Ids are missing or repeated, or fewer than two rows are common to all.
    """
    from siloweave.protocols.alignment import align_rows

    asked = study.alignment
    assert asked is not None
    found = align_rows(
        tables,
        asked.on,
        rules=asked.rules,
        missing=asked.missing,
        duplicates=asked.duplicates,
        most=asked.most,
        folder=study.folder / ALIGNED,
        run=study.run_name,
        progress=progress,
    )
    if found.report.common < _LEAST:
        raise DataError(
            f"{found.report.common} row is common to all parties; a study needs {_LEAST} or more. "
            "Check the rules in [alignment], and that the files are about the same people."
        )
    _note(study, found)
    gone = {name for name in asked.on if name in schema.names and schema[name].kind == "id"}
    kept = {
        name: table.select([one for one in table.names if one not in gone])
        for name, table in found.tables.items()
    }
    return kept, _alignment_summary(study, found)


def _alignment_summary(study: Study, found: AlignedRows) -> AlignmentSummary:
    folder, delta = study.folder / ALIGNED, study.terms().delta
    parties = party_summaries(folder, study.names, found.cost.parties, delta)
    return AlignmentSummary(found.cost.rounds, sum(found.cost.phases.values()), parties)


def _note(study: Study, found: AlignedRows) -> None:
    """Write down what the alignment found and moved; all of it was released."""
    moved = {
        name: {"bytes_sent": one.bytes_from_party, "bytes_received": one.bytes_to_party}
        for name, one in found.cost.parties.items()
    }
    facts = {**asdict(found.report), "questions": found.cost.rounds, "parties": moved}
    text = msgspec.json.format(msgspec.json.encode(facts), indent=2).decode()
    write_text(study.folder / ALIGNED / "alignment.json", text + "\n")


def aligned_before(study: Study) -> dict[str, int]:
    """How many releases of this run's alignment each party's ledger holds."""
    files: dict[str, Path] = ledger_files(study.folder / ALIGNED)
    check_receipts(study.folder / ALIGNED, files)
    return {
        name: sum(entry.run == study.run_name for entry in Ledger.read(path).entries)
        for name, path in files.items()
    }


def recorded(study: Study, record: Record, found: AlignmentSummary | None) -> Record:
    """The record of a run, with what its alignment released and took, if there was one."""
    if found is None:
        return record
    from siloweave.report.record import AlignmentCost, Phase

    return msgspec.structs.replace(
        record,
        warnings=(*record.warnings, uncovered(study)),
        phases=(Phase(name="alignment", seconds=found.seconds), *record.phases),
        alignment=tuple(
            AlignmentCost(
                name=one.name,
                releases=one.releases,
                bytes_sent=one.bytes_sent,
                bytes_received=one.bytes_received,
                messages=one.messages,
                ledger_head=one.ledger_head,
            )
            for one in found.parties
        ),
    )


def uncovered(study: Study) -> str:
    """What no epsilon of a study with an alignment covers, in a sentence."""
    on = ", ".join(study.alignment.on) if study.alignment else ""
    return (
        f"Which people are in the common table was found by comparing {on}: parties know which of "
        "their rows all of them have, and how many ids each brought. No epsilon covers that"
    )


#: Called with a text and the share that is done.
Progress = Callable[[str, float], None]
_BINS = 32  # to check a generator's rows with
_READ, _FITTED, _SAMPLED = 0.05, 0.85, 0.9  # shares of the progress bar


def execute(
    study: Study, *, progress: Progress = lambda text, done: None
) -> tuple[RunSummary, bool]:
    """Run a study, or go on with one that was cut short.

    Args:
        study: What to run.
        progress: Told how far it is.

    Returns:
        What it cost, and whether it had finished before (then nothing was done).

    Raises:
        InputError: Something that was given cannot be used; nothing is written.
        LedgerError: A ledger was edited.
    """
    schema, synth = study.read_schema(), study.synthesizer()
    if (before := finished(study)) is not None:
        return before, True
    check_parties(study.method["name"], synth, len(study.parties))
    check_schema(synth, schema, study.schema.learn)
    case = Case(schema, study.terms(), len(study.parties), learn=study.schema.learn)
    synth.method.forecast(synth, case)  # refuses a workload that does not fit
    spent(study)
    progress("reading", 0.0)
    start = time.perf_counter()
    tables = load_rows(study, schema, getattr(synth, "bins", _BINS), synth)
    seconds = {"reading rows": time.perf_counter() - start}
    with _claimed(study):
        found = None
        if study.alignment is not None:
            tables, found = aligned(study, schema, tables, lambda text, _: progress(text, _READ))
            seconds["alignment"] = found.seconds
        fitted = synth.fit(
            tables,
            schema,
            budget=study.terms(),
            seed=study.output.seed,
            folder=study.folder,
            run=study.run_name,
            progress=lambda text, done: progress(text, _READ + (_FITTED - _READ) * done),
            **({"learn": study.schema.learn} if study.schema.learn else {}),
        )
        seconds.update(fitted.cost.phases)
        summary = _write_outputs(study, fitted, tables, seconds, progress, found)
    progress("done", 1.0)
    return summary, False


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
        verify_ledgers(found.alignment.parties, ledger_files(study.folder / ALIGNED))
    return found


def outdated(study: Study, summary: RunSummary) -> tuple[str, ...]:
    """What a finished run no longer has, or has otherwise than the study now says."""
    gone = [name for name in summary.files.values() if not (study.folder / name).exists()]
    found = [f"{study.folder / name} is not there any more" for name in gone]
    if summary.rows != (study.output.rows or summary.rows):
        found.append(f"[output] rows = {study.output.rows}, and this run drew {summary.rows}")
    advice = "`siloweave sample` and `siloweave report` make files again, at no cost"
    return tuple(f"{one}; {advice}." for one in found)


def load_rows(study: Study, schema: Schema, bins: int, synth: Any) -> dict[str, Table]:
    """Every party's rows, checked against the schema, or against its part of it.

    Raises:
        RosterError: Parties hold different columns; or, without a guarantee, one has fewer than two
            rows.
        SchemaError: Rows do not fit the schema; names the party.
        DataError: A file is missing or unreadable; or, without a guarantee, a column has no value
            at any party.
    """
    tables: dict[str, Table] = {}
    for party in study.parties:
        with naming_party(party.name):
            tables[party.name] = read(study.path(party), columns=party.columns or None)
    columns = {name: table.names for name, table in tables.items()}
    check_alignment(study, synth, columns)
    check_all_columns(synth, columns, schema)
    encoder = Encoder(_declared(schema, study.schema.learn), bins=bins)
    guaranteed = synth.info.guarantee == "dp"  # then no number of rows may stop a run
    for name, table in tables.items():
        if table.num_rows < 2 and not guaranteed:
            count = "no rows" if table.num_rows == 0 else "one row"
            raise RosterError(
                f"party {name!r} has {count}; it needs two or more. Leave it out of "
                "the study, or give its rows."
            )
        with naming_party(name):
            own = [n for n in table.names if n in encoder.schema.names]
            split = split_columns_of(synth)
            coder = Encoder(encoder.schema.select(own), bins=bins) if split else encoder
            coder.encode(table.select(own))
    for column in encoder.domain.names if not guaranteed else ():
        held = [table for table in tables.values() if column in table.names]
        if all(table.missing(column).all() for table in held):
            raise DataError(
                f"column {column!r} has no value in any row of any party. Drop it from "
                "the schema and the files."
            )
    return tables


def check_all_columns(synth: Any, columns: Mapping[str, Sequence[str]], schema: Schema) -> None:
    """Check every party's columns: the same everywhere, or each at one party.

    Args:
        synth: What will run.
        columns: Names of every party's columns.
        schema: The study's.

    Raises:
        RosterError, SchemaError: Naming parties and columns.
    """
    if split_columns_of(synth):
        from siloweave.core.run import owners_of

        owners_of(columns, schema)
        return
    same_columns(columns)
    for party, names in columns.items():
        check_columns(party, tuple(names), schema)


def _declared(schema: Schema, learn: float) -> Schema:
    """The columns about which nothing is left to be learned."""
    from siloweave.protocols.schema import open_facts

    still_open = open_facts(schema) if learn else {}
    return Schema(tuple(c for c in schema.columns if c.name not in still_open))


def check_columns(party: str, names: tuple[str, ...], schema: Schema) -> None:
    """Check that a party's columns are those of the schema.

    Raises:
        SchemaError: Naming those that only one of both has.
    """
    extra = [name for name in names if name not in schema.names]
    if extra:
        raise SchemaError(
            f"party {party!r}: the schema lacks its columns {', '.join(map(repr, extra))}. "
            "Declare them in the schema, or choose others with columns = [...]."
        )
    absent = [c.name for c in schema.columns if c.kind != "id" and c.name not in names]
    if absent:
        raise SchemaError(
            f"party {party!r} lacks the schema's columns {', '.join(map(repr, absent))}. "
            "Add them to its file, or take them out of the schema."
        )


def spent(study: Study) -> dict[str, int]:
    """Check the ledgers that are there already.

    Returns:
        How many releases of this very run each party's ledger holds.

    Raises:
        BudgetError: Other runs have spent what this one needs.
        LedgerError: A ledger was edited, or lacks what the coordinator saw of it.
    """
    from siloweave.core.run import Job, require_unspent

    budget, files = study.terms(), ledger_files(study.folder)
    job = Job(budget, run=study.run_name)
    found = dict.fromkeys(study.names, 0)
    check_receipts(study.folder, files)
    for name in (name for name in study.names if name in files):
        path = files[name]
        entries = Ledger.read(path).entries
        found[name] = sum(entry.run in job.runs for entry in entries)
        if budget.private:
            require_unspent(name, entries, job.runs, budget)
    for name, number in aligned_before(study).items():
        found[name] = found.get(name, 0) + number
    return found


def _write_outputs(
    study: Study,
    fitted: Any,
    tables: dict[str, Table],
    seconds: dict[str, float],
    progress: Progress,
    found: AlignmentSummary | None,
) -> RunSummary:
    """Make everything in a folder beside, then move it to its place; run.json goes last."""
    from siloweave.report import render

    folder, stage = study.folder, study.folder / f".new-{os.getpid()}"
    stage.mkdir(parents=True)
    try:
        progress("sampling", _FITTED)
        start = time.perf_counter()
        synthetic, files = _drawn(study, fitted, stage)
        fitted.save(stage / "model")
        sampled = time.perf_counter()
        progress("report", _SAMPLED)
        record = recorded(study, _record(study, fitted, tables, synthetic), found)
        public = record.public()
        write_text(stage / "record.json", public.to_json())
        write_text(stage / "record-owner.json", record.to_json(), private=True)
        write_text(stage / "report.html", render(public))
        write_text(stage / "report-owner.html", render(record, audience="owner"), private=True)
        seconds.update(sampling=sampled - start, report=time.perf_counter() - sampled)
        names = sorted(path.name for path in stage.iterdir())
        summary = _summary(study, fitted, synthetic.num_rows, seconds, files, found)
        (folder / "run.json").unlink(missing_ok=True)
        for name in names:
            put(stage / name, folder / name)
        write_text(
            folder / "run.json",
            msgspec.json.format(msgspec.json.encode(spelled(summary)), indent=2).decode() + "\n",
        )
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return summary


def _drawn(study: Study, fitted: Any, stage: Path) -> tuple[Table, dict[str, str]]:
    """Write synthetic rows, for each party its own where columns stay with their parties.

    Returns:
        Rows for the report, of which parts of different parties are then not joined; and files.
    """
    rows, seed = study.output.rows, study.output.seed
    if fitted.shared:
        table = fitted.sample_table(rows, seed=seed)
        write(table, stage / "synthetic.csv")
        return table, {"synthetic table": "synthetic.csv"}
    files, parts = {}, fitted.part_tables(rows, seed=seed)
    for name, part in parts.items():
        files[f"synthetic table of {name}"] = f"synthetic-{name}.csv"
        write(part, stage / f"synthetic-{name}.csv")
        (stage / f"synthetic-{name}.csv").chmod(0o600)  # rows of all parties are in one order
    return disjoined(parts, seed), files


def _record(study: Study, fitted: Any, tables: dict[str, Table], synthetic: Table) -> Record:
    """What the reports are made from."""
    from siloweave.app.record import record_of

    owner, measured = _for_owners(study, fitted, tables)
    return record_of(fitted, study.study.name, owner=owner, synthetic=synthetic, measured=measured)


def _for_owners(
    study: Study, fitted: Any, tables: dict[str, Table]
) -> tuple[list[Table], dict[str, float]]:
    """Real rows for the owners' report, and what was measured on them."""
    if fitted.info.split != "columns":
        return owner_rows(fitted, tables), {}
    from siloweave.audit.transcripts import recovered_shares
    from siloweave.core.run import TRANSCRIPT

    return owner_rows(fitted, tables), recovered_shares(study.folder / TRANSCRIPT, fitted, tables)


def _summary(
    study: Study,
    fitted: Any,
    rows: int,
    seconds: dict[str, float],
    files: dict[str, str],
    found: AlignmentSummary | None,
) -> RunSummary:
    budget, ledgers = study.terms(), ledger_files(study.folder)
    spent = [Ledger.read(ledgers[name]) for name in study.names]
    return RunSummary(
        run=study.run_name,
        study=study.study.name,
        method=fitted.info.title,
        guarantee=fitted.info.guarantee,
        private=fitted.private,
        epsilon=row_epsilon(spent, budget.delta, fitted.info.split),
        epsilon_allowed=budget.epsilon,
        delta=budget.delta,
        unit=budget.unit,
        relation=str(budget.relation),
        rounds=fitted.cost.rounds,
        rows=rows,
        seconds=seconds,
        parties=party_summaries(study.folder, study.names, fitted.cost.parties, budget.delta),
        files=files | _FILES | (_ALIGNED if found else {}),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        split=fitted.info.split,
        alignment=found,
    )


_FILES = {
    "report": "report.html",
    "owner's report": "report-owner.html",
    "model": "model",
    "ledgers": "parties",
}
_ALIGNED = {
    "alignment": f"{ALIGNED}/alignment.json",
    "ledgers of the alignment": f"{ALIGNED}/parties",
}


def make_report(folder: str | Path, out: Path | None, audience: Literal["public", "owner"]) -> Path:
    """Write a finished run's report again, whole or not at all.

    Args:
        folder: The run's folder.
        out: The file to write; in the run's folder if None.
        audience: For whom.

    Returns:
        The file.

    Raises:
        InputError: There is no finished run, or its record for this audience is not here.
    """
    from siloweave.report import Record, render

    open_run(folder)
    name = "record.json" if audience == "public" else "record-owner.json"
    path = Path(folder) / name
    if not path.is_file():
        raise InputError(
            f"{path}: is not there, so the {audience}'s report cannot be made here. "
            "Make it where the run was made."
        )
    if out is None:
        out = Path(folder) / ("report.html" if audience == "public" else "report-owner.html")
    check_page(out)
    try:
        record = Record.from_json(path.read_bytes())
    except InputError as error:
        raise InputError(f"{path}: {error}. The run's other files are as before.") from error
    write_text(out, render(record, audience=audience), private=audience == "owner")
    return out
