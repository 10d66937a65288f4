"""A dry run: what a study would take and cost, found without reading its rows."""

import csv
from itertools import islice
from pathlib import Path

import msgspec

from siloweave.errors import DataError, InputError
from siloweave.runs import check_columns, check_roster, finished, spent
from siloweave.starter import same_columns
from siloweave.study import PartyTable, Study
from siloweave.tables.files import csv_header, table_file, unreadable
from siloweave.tables.read import read_batches

__all__ = ["Forecast", "cautions", "foretell"]


class Forecast(msgspec.Struct, frozen=True):
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
        seconds: Of one core, roughly.
        bytes_per_party: Sent and received, roughly.
        domain_cells: Of the whole table; the product of all columns' codes.
        workload_queries, workload_cells: Queries, and cells of all of them.
        largest_query: Columns of the largest query.
        warnings: What to look at before running.
        resumes: Releases of this very run that are paid for already.
        finished: Whether it has finished, so that running it does nothing.
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
    seconds: float
    bytes_per_party: int
    domain_cells: float
    workload_queries: int
    workload_cells: int
    largest_query: tuple[str, ...]
    warnings: tuple[str, ...]
    resumes: int
    finished: bool


def foretell(study: Study) -> Forecast:
    """Check everything about a study that needs no rows, and foretell the rest.

    Args:
        study: What would be run.

    Returns:
        The forecast.

    Raises:
        InputError: Something cannot work; the message names it.
        LedgerError: A ledger was edited.
    """
    from siloweave.algorithms.prediction import predict

    schema, synth, budget = study.read_schema(), study.synthesizer(), study.terms()
    check_roster(study, synth)
    columns = {party.name: _columns(study, party) for party in study.parties}
    same_columns(columns)
    for party, names in columns.items():
        check_columns(party, names, schema)
    resumes = sum(spent(study).values())
    found = predict(synth, schema, len(study.parties), budget, study.schema.learn)
    return Forecast(
        study.study.name,
        synth.info.title,
        synth.info.guarantee,
        synth.info.trust,
        study.names,
        found.epsilon_per_party,
        budget.delta,
        found.rounds,
        found.memory_mb + _rows_mb(study),
        found.seconds,
        found.bytes_per_party,
        float(found.domain_cells),
        found.workload_queries,
        found.workload_cells,
        tuple(found.largest_query),
        cautions(study),
        resumes,
        finished(study) is not None,
    )


def _rows_mb(study: Study) -> float:
    """What the rows may need: a number of 8 bytes for each value."""
    files = [study.path(party) for party in study.parties]
    grows = {".csv": 10.0, ".parquet": 60.0}
    return sum(grows[file.suffix.lower()] * file.stat().st_size / 1e6 for file in files)


def _columns(study: Study, party: PartyTable) -> tuple[str, ...]:
    """A file's column names, from its head."""
    try:
        file = table_file(study.path(party))
        try:
            names = _head(file)
        except UnicodeDecodeError as error:
            raise unreadable(file, error) from error
    except InputError as error:
        raise type(error)(f"party {party.name!r}: {error}") from error
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
    if first is None:
        raise DataError(f"{str(file)!r} has no rows; a party needs at least two")
    return first.names


def cautions(study: Study) -> tuple[str, ...]:
    """What a reviewer should look at before a study runs."""
    from siloweave.algorithms.agree_schema import open_facts

    schema, synth, found = study.read_schema(), study.synthesizer(), []
    learned = [column.name for column in schema.columns if column.from_data]
    if learned:
        found.append(
            f"facts about {len(learned)} columns in the schema were taken from rows, and nobody "
            f"paid for them ({', '.join(learned[:5])}{', ...' if len(learned) > 5 else ''}). "
            "epsilon does not cover them: review them, and delete their from_data"
        )
    if study.schema.learn:
        open_ones = ", ".join(open_facts(schema)) or "nothing"
        found.append(
            f"{study.schema.learn:.0%} of the budget goes to facts that the schema leaves open "
            f"({open_ones}); the forecast takes each such column to have {synth.bins} codes"
        )
    if study.budget.delta > 1e-4:
        found.append(f"delta = {study.budget.delta} is large: keep it far below 1 / number of rows")
    if study.budget.epsilon > 10:
        found.append(f"epsilon = {study.budget.epsilon} promises little: 1 is a usual choice")
    if synth.info.guarantee != "dp":
        found.append(f"{synth.info.title} has the guarantee {synth.info.guarantee!r}, not 'dp'")
    return tuple(found)
