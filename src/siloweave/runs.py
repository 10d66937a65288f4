"""A study's run in its folder: rows in; ledgers, model, synthetic table and reports out.

::

    run/
      run.json            what it cost and where things are; written last
      synthetic.csv       the synthetic table
      model/              what `siloweave sample` draws from
      report.html         for everyone      record.json        what it was made from
      report-owner.html   for the owners    record-owner.json  (real statistics: keep it there)
      parties/            every party's ledger and memory; outlive every run

Outputs appear together when a run has finished. Only the parties' folders grow while it runs, so a
run that was cut short still counts what it released, and goes on from there.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, Literal

import msgspec

from siloweave.errors import BudgetError, DataError, InputError, RosterError
from siloweave.files import put, write_text
from siloweave.privacy.ledger import Ledger
from siloweave.starter import same_columns
from siloweave.study import PartyTable, Study
from siloweave.tables.codes import Encoder
from siloweave.tables.read import Table, read, write
from siloweave.tables.schema import Schema

__all__ = [
    "PartySummary",
    "Summary",
    "check_roster",
    "execute",
    "has_finished",
    "ledger_files",
    "load_rows",
    "make_report",
    "open_run",
    "spent",
]

#: Called with a text and the share that is done.
Progress = Callable[[str, float], None]


class PartySummary(msgspec.Struct, frozen=True):
    """What one party spent and moved."""

    name: str
    epsilon: float
    releases: int
    bytes_sent: int
    bytes_received: int


class Summary(msgspec.Struct, frozen=True):
    """A finished run: what it was, what it cost, where it is. Holds nothing of real rows."""

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
    version: int = 1


def execute(study: Study, *, progress: Progress = lambda text, done: None) -> tuple[Summary, bool]:
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
    schema, synth, folder = study.read_schema(), study.synthesizer(), study.folder
    if has_finished(study):
        spent(study)
        return open_run(folder), True
    from siloweave.algorithms.prediction import predict

    check_roster(study, synth)
    predict(synth, schema, len(study.parties), study.terms())
    spent(study)
    progress("reading", 0.0)
    tables = load_rows(study, schema, synth.bins)
    existed, finished = folder.exists(), False
    try:
        _same_rows(study)
        fitted = synth.fit(
            tables,
            schema,
            budget=study.terms(),
            seed=study.output.seed,
            folder=folder,
            run=study.run_name,
            progress=progress,
        )
        summary = _write_outputs(study, fitted, tables, progress)
        finished = True
    finally:
        if not existed and not finished and not any(spent(study).values()):
            shutil.rmtree(folder, ignore_errors=True)
    progress("done", 1.0)
    return summary, False


def check_roster(study: Study, synth: Any) -> None:
    """Check that a method for one party gets one.

    Raises:
        RosterError: It gets more.
    """
    if synth.info.split == "central" and len(study.parties) > 1:
        raise RosterError(
            f"[method] name = {study.method['name']!r} takes one party that sees all rows; the "
            f"study has {len(study.parties)}. Keep one, or use a method for split rows."
        )


def load_rows(study: Study, schema: Schema, bins: int) -> dict[str, Table]:
    """Every party's rows, checked against the schema.

    Raises:
        RosterError: Parties hold different columns, or one has no rows.
        SchemaError: Rows do not fit the schema; names the party.
        DataError: A file is missing or unreadable, or a column has no value at any party.
    """
    tables: dict[str, Table] = {}
    for party in study.parties:
        with _blaming(party.name):
            tables[party.name] = read(study.path(party), columns=party.columns or None)
    same_columns({name: table.names for name, table in tables.items()})
    encoder = Encoder(schema, bins=bins)
    for name, table in tables.items():
        if table.num_rows < 2:
            count = "no rows" if table.num_rows == 0 else "one row"
            raise RosterError(
                f"party {name!r} has {count}; it needs two or more. Leave it out of "
                "the study, or give its rows."
            )
        with _blaming(name):
            encoder.encode(table)
    for column in encoder.domain.names:
        if all(table.missing(column).all() for table in tables.values()):
            raise DataError(
                f"column {column!r} has no value in any row of any party. Drop it from "
                "the schema and the files."
            )
    return tables


class _blaming:  # noqa: N801  reads as a word in a with statement
    """Says which party an error is about."""

    def __init__(self, party: str) -> None:
        self._party = party

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InputError):
            raise type(error)(f"party {self._party!r}: {error}") from error


def ledger_files(folder: str | Path) -> dict[str, Path]:
    """Every ledger in a run's folder, by its owner.

    Raises:
        LedgerError: A ledger was edited.
    """
    files = sorted(Path(folder).glob("parties/*/ledger.jsonl"))
    return {Ledger.read(file).owner: file for file in files if file.stat().st_size}


def spent(study: Study) -> dict[str, int]:
    """Check the ledgers that are there already.

    Returns:
        How many releases of this very run each party's ledger holds.

    Raises:
        BudgetError: Other runs have spent what this one needs.
        LedgerError: A ledger was edited.
    """
    from siloweave.privacy.accountants import epsilon

    budget, files = study.terms(), ledger_files(study.folder)
    found = dict.fromkeys(study.names, 0)
    for name in (name for name in study.names if name in files):
        path = files[name]
        entries = Ledger.read(path).entries
        others = [entry for entry in entries if entry.run != study.run_name]
        found[name] = len(entries) - len(others)
        if others and budget.private:
            before = epsilon([entry.event for entry in others], budget.delta)
            runs = ", ".join(sorted({entry.run for entry in others}))
            raise BudgetError(
                f"party {name!r} has already spent epsilon = {before} of {budget.epsilon} at delta "
                f"= {budget.delta} (ledger {path}, run {runs}), and this run asks for all of it. "
                "Nothing was released. Go on with the study as it was, or agree on a new budget "
                "and keep it in a folder of its own: what both release adds up."
            )
    return found


def _same_rows(study: Study) -> None:
    """A run that goes on must meet the rows that it began with.

    Raises:
        InputError: A party's rows changed since.
    """
    note, counts = study.folder / "rows.json", spent(study)
    now = {party.name: _digest(study, party) for party in study.parties}
    if note.is_file():
        before = msgspec.json.decode(note.read_bytes(), type=dict[str, str])
        for name in study.names:
            if counts[name] and before.get(name, now[name]) != now[name]:
                raise InputError(
                    f"party {name!r}: its rows changed since this run began, and part of the run "
                    "is paid for. Put the file back, or agree on a new budget and folder."
                )
    note.parent.mkdir(parents=True, exist_ok=True)
    write_text(note, msgspec.json.encode(now).decode(), private=True)


def _digest(study: Study, party: PartyTable) -> str:
    """Of a party's file and the columns taken from it; stays in the folder, never sent."""
    with study.path(party).open("rb") as file:
        digest = file_digest(file, lambda: blake2b(digest_size=20))
    digest.update(repr(party.columns).encode())
    return digest.hexdigest()


def _write_outputs(
    study: Study, fitted: Any, tables: dict[str, Table], progress: Progress
) -> Summary:
    """Make everything in a folder beside, then move it to its place; run.json goes last."""
    from siloweave.recording import record_of
    from siloweave.report import render

    folder, stage = study.folder, study.folder / f".new-{os.getpid()}"
    stage.mkdir(parents=True)
    try:
        progress("sampling", 0.0)
        synthetic = fitted.sample_table(study.output.rows, seed=study.output.seed)
        write(synthetic, stage / "synthetic.csv")
        fitted.save(stage / "model")
        progress("report", 0.0)
        record = record_of(fitted, study.study.name, owner=list(tables.values()))
        public = record.public()
        write_text(stage / "record.json", public.to_json())
        write_text(stage / "record-owner.json", record.to_json(), private=True)
        write_text(stage / "report.html", render(public))
        write_text(stage / "report-owner.html", render(record, audience="owner"), private=True)
        names = sorted(path.name for path in stage.iterdir())
        summary = _summary(study, fitted, synthetic.num_rows)
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


def spelled(result: Any) -> Any:
    """JSON has no infinity; it is written as a word."""

    def walk(value: Any) -> Any:
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return repr(value)
        if isinstance(value, Mapping):
            return {key: walk(item) for key, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list | tuple) else value

    return walk(msgspec.to_builtins(result))


def _summary(study: Study, fitted: Any, rows: int) -> Summary:
    budget, folder = study.terms(), study.folder
    parties, ledgers = [], ledger_files(folder)
    for name in study.names:
        ledger, traffic = Ledger.read(ledgers[name]), fitted.cost.parties[name]
        parties.append(
            PartySummary(
                name,
                ledger.epsilon(budget.delta),
                len(ledger.entries),
                traffic.bytes_from_party,
                traffic.bytes_to_party,
            )
        )
    files = {
        "synthetic table": "synthetic.csv",
        "report": "report.html",
        "owner's report": "report-owner.html",
        "model": "model",
        "ledgers": "parties",
    }
    return Summary(
        run=study.run_name,
        study=study.study.name,
        method=fitted.info.title,
        guarantee=fitted.info.guarantee,
        private=fitted.private,
        epsilon=max(party.epsilon for party in parties),
        epsilon_allowed=budget.epsilon,
        delta=budget.delta,
        unit=budget.unit,
        relation=str(budget.relation),
        rounds=fitted.cost.rounds,
        rows=rows,
        seconds=dict(fitted.cost.phases),
        parties=tuple(parties),
        files={what: str(folder / name) for what, name in files.items()},
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def has_finished(study: Study) -> bool:
    """Whether the study's folder holds this very run, finished."""
    found = _finished(study.folder)
    return found is not None and found.run == study.run_name


def _finished(folder: Path) -> Summary | None:
    path = folder / "run.json"
    if not path.is_file():
        return None
    try:
        return msgspec.convert(msgspec.json.decode(path.read_bytes()), Summary, strict=False)
    except msgspec.MsgspecError as error:
        raise InputError(
            f"{path}: is no run's summary ({error}). Put back the file, or choose another folder."
        ) from error


def open_run(folder: str | Path) -> Summary:
    """A finished run's summary.

    Args:
        folder: The run's folder.

    Raises:
        InputError: There is no finished run.
    """
    found = _finished(Path(folder))
    if found is None:
        raise InputError(
            f"{folder}: holds no finished run (no run.json). Give the folder that "
            "`siloweave run` named, or run the study again to go on with it."
        )
    return found


def make_report(folder: str | Path, out: Path, audience: Literal["public", "owner"]) -> None:
    """Write a finished run's report again, whole or not at all.

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
    if not out.parent.is_dir():
        raise InputError(f"cannot write {out}: its folder does not exist; create it first.")
    page = render(Record.from_json(path.read_bytes()), audience=audience)
    write_text(out, page, private=audience == "owner")
