"""A dry run: what a study would take and cost, found without reading its rows."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from siloweave.app.run import check_alignment, check_all_columns, finished, spent, uncovered
from siloweave.app.study import PartyTable, Study, check_parties, check_schema, split_columns_of
from siloweave.core.method import Case, Forecast, Setup
from siloweave.errors import DataError, naming_party
from siloweave.privacy.budget import Budget
from siloweave.tables.read import csv_header, read, read_batches, table_file, unreadable
from siloweave.tables.schema import Schema

_BYTES = {".csv": 6.0, ".parquet": 1.0}  # of a value, in a file of that kind


class AlignmentForecast(msgspec.Struct, frozen=True):
    """What finding the common rows would take, roughly, going by the sizes of the files.

    Args:
        rounds: How often parties are asked.
        bytes_leader: Sent and received by the party with the fewest ids, which has most to do.
    """

    rounds: int
    bytes_leader: int


class StudyForecast(msgspec.Struct, frozen=True):
    """What a run would take and cost, and what a reviewer should look at first.

    Args:
        study: Its name.
        method: The synthesizer's full name.
        guarantee: dp, partial, refuted or none.
        trust: Who is trusted with what.
        parties: Names, in order.
        epsilon_per_party: What each party will have spent at the end.
        delta: At which.
        rounds: How often parties are asked.
        memory_mb: Peak, of one process that simulates all parties, roughly; for the rows it goes
            by the sizes of the files.
        seconds: Of one core, roughly; None where that cannot be told.
        bytes_per_party: Sent and received, roughly.
        domain_cells: Of the whole table, the product of all columns' codes; None for a generator,
            as the next three.
        workload_queries, workload_cells: Queries, and cells of all of them.
        largest_query: Columns of the largest query.
        notes: How figures were found.
        warnings: What to look at before running.
        resumes: Releases of this very run that are paid for already.
        finished: Whether it has finished, so that running it does nothing.
        alignment: What comes before all that, in a study with an alignment.
    """

    study: str
    method: str
    guarantee: str
    trust: str
    parties: tuple[str, ...]
    epsilon_per_party: float
    delta: float
    rounds: int
    memory_mb: float
    seconds: float | None
    bytes_per_party: int
    domain_cells: float | None
    workload_queries: int | None
    workload_cells: int | None
    largest_query: tuple[str, ...] | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    resumes: int
    finished: bool
    alignment: AlignmentForecast | None = None


def forecast_study(study: Study) -> StudyForecast:
    """Check everything about a study that needs no rows, and forecast_study the rest.

    Args:
        study: What would be run.

    Returns:
        The forecast.

    Raises:
        InputError: Something cannot work; the message names it.
        LedgerError: A ledger was edited.
    """
    schema, synth, budget = study.read_schema(), study.synthesizer(), study.terms()
    check_parties(study.method["name"], synth, len(study.parties))
    check_schema(synth, schema, study.schema.learn)
    columns = {party.name: _columns(study, party) for party in study.parties}
    check_alignment(study, synth, columns)
    check_all_columns(synth, columns, schema)
    resumes = sum(spent(study).values())
    counts = [len(names) for names in columns.values()]
    count = sum(counts) if split_columns_of(synth) else counts[0]
    found = predicted(study, synth, schema, count)
    cells = found.domain_cells
    return StudyForecast(
        study.study.name,
        synth.info.title,
        synth.info.guarantee,
        synth.info.trust,
        study.names,
        found.epsilon_per_party if synth.info.guarantee == "dp" else inf,
        budget.delta,
        found.rounds,
        found.memory_mb + _rows_mb(study),
        found.seconds,
        found.bytes_per_party,
        None if cells is None else float(cells),
        found.workload_queries,
        found.workload_cells,
        found.largest_query,
        found.notes,
        warnings_of(study),
        resumes,
        finished(study) is not None,
        _aligning(study, columns),
    )


def _aligning(study: Study, columns: Mapping[str, tuple[str, ...]]) -> AlignmentForecast | None:
    if study.alignment is None:
        return None
    from siloweave.federation.alignment import foreseen

    ids = [_rows([study.path(one)], len(columns[one.name])) for one in study.parties]
    return AlignmentForecast(*foreseen(ids))


def predicted(study: Study, synth: Any, schema: Schema, columns: int) -> Forecast:
    """What a run will take; checks on the way that it can be run at all.

    Raises:
        CapacityError: The model would not fit.
        BudgetError: The budget does not pay for it.
        InputError: A setting does not fit the schema.
    """
    budget, names = study.terms(), study.names
    synth.method.affordable(Setup(synth, schema, budget, names))
    rows = _rows([study.path(party) for party in study.parties], columns)
    case = Case(schema, budget, len(names), rows, study.schema.learn)
    found: Forecast = synth.method.forecast(synth, case)
    return found


def _rows(files: Sequence[Path], columns: int) -> int:
    """How many rows there may be, from the sizes of files."""
    values = sum(file.stat().st_size / _BYTES[file.suffix.lower()] for file in files)
    return max(round(values / max(columns, 1)), 2)


def _rows_mb(study: Study) -> float:
    """What the rows may need: a number of 8 bytes for each value."""
    files = [study.path(party) for party in study.parties]
    grows = {".csv": 10.0, ".parquet": 60.0}
    return sum(grows[file.suffix.lower()] * file.stat().st_size / 1e6 for file in files)


def _columns(study: Study, party: PartyTable) -> tuple[str, ...]:
    """A file's column names, from its head."""
    with naming_party(party.name):
        file = table_file(study.path(party))
        try:
            names = _head(file)
        except UnicodeDecodeError as error:
            raise unreadable(file, error) from None
    absent = [name for name in party.columns if name not in names]
    if absent:
        raise DataError(
            f"party {party.name!r}: {party.data} has no column {absent[0]!r}, which "
            f"columns = [...] names; it has {', '.join(names)}."
        )
    return party.columns or names


def _head(file: Path) -> tuple[str, ...]:
    if file.suffix.lower() == ".csv":
        csv_header(file)
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return tuple(next(csv.reader(lines), []))
    first = next(islice(read_batches(file, 1), 1), None)
    return (read(file) if first is None else first).names


def warnings_of(study: Study) -> tuple[str, ...]:
    """What a reviewer should look at before a study runs."""
    from siloweave.protocols.schema import open_facts

    schema, synth, found = study.read_schema(), study.synthesizer(), []
    learned = [column.name for column in schema.columns if column.from_data]
    if learned:
        found.append(
            f"facts about {len(learned)} columns in the schema were taken from rows, and nobody "
            f"paid for them ({', '.join(learned[:5])}{', ...' if len(learned) > 5 else ''}). "
            "epsilon does not cover them: review them, and delete their from_data"
        )
    if study.schema.learn and synth.method.learns:
        facts = ", ".join(open_facts(schema))
        found.append(
            f"{study.schema.learn:.0%} of the budget goes to facts that the schema leaves open "
            f"({facts}); the forecast takes each such column to have {synth.bins} codes"
            if facts
            else f"[schema] learn = {study.schema.learn} is not used: the schema leaves nothing "
            "open, and the whole budget goes to the run"
        )
    if study.alignment is not None:
        found.append(uncovered(study))
    return (*found, *_promises(synth, study.terms()))


def _promises(synth: Any, budget: Budget) -> list[str]:
    """What is odd about the guarantee."""
    if not synth.method.needs_budget(synth):
        text = (
            f"{synth.info.title} is trained without noise, so epsilon is infinite: its model and "
            "its table may repeat real rows. Treat both as if they were the rows"
        )
        return [text]
    found = []
    if budget.delta > 1e-4:
        found.append(f"delta = {budget.delta} is large: keep it far below 1 / number of rows")
    if budget.epsilon > 10:
        found.append(f"epsilon = {budget.epsilon} promises little: 1 is a usual choice")
    if (kind := synth.info.guarantee) != "dp":
        found.append(f"{synth.info.title} has the guarantee {kind!r}, not 'dp'")
    return found
