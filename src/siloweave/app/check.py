"""A dry run: what a study would take and cost, found without reading its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isinf
from pathlib import Path
from sys import float_info
from typing import NamedTuple

import msgspec

from siloweave.app import plan as plans
from siloweave.app.ledgers import finished, spent
from siloweave.app.parties import Difference, costs, differences, misfits, overlaps
from siloweave.app.study import PartyTable, Study
from siloweave.core.method import GUARANTEED, ErrorForecast, MethodSettings
from siloweave.core.party import own_columns, too_few
from siloweave.errors import (
    BudgetError,
    DataError,
    InputError,
    RosterError,
    SchemaError,
    count_of,
    naming_party,
)
from siloweave.privacy.budget import Budget
from siloweave.protocols.schema import coded_part
from siloweave.report import words
from siloweave.report.facts import LARGE_DELTA, LARGE_EPSILON, largest_delta
from siloweave.tables.bins import has_implied_days
from siloweave.tables.codes import Encoder
from siloweave.tables.column_names import names_after
from siloweave.tables.counted import counted
from siloweave.tables.database import Database
from siloweave.tables.detect import AMBIGUOUS
from siloweave.tables.display import MOST, listed
from siloweave.tables.drawn import drawn_as
from siloweave.tables.files import file_kind, is_text_file, stored, table_file
from siloweave.tables.modelled import Modelled
from siloweave.tables.moved import moved_cells, without_others
from siloweave.tables.queries import query_warnings
from siloweave.tables.read import (
    ParquetFile,
    Unread,
    names_in,
    rows_declared,
    rows_of,
    unread,
)
from siloweave.tables.schema import Schema, place_words
from siloweave.tables.table import Table
from siloweave.tables.text_encoding import packed_lines

_NO_ERROR = (
    "how far drawn rows will be from the real ones is not forecast for {}: `siloweave score` shows "
    "it after the run. To see it before, run the study on as many public or made-up rows"
)
_BINS = 32  # to check rows with, where the method has no bins
_LEAST = 2  # rows that a method needs
_ROW_COUNTS_OF = "the files hold about"  # so many rows, by their sizes
_MB = 1e6  # bytes


class _ValueSize(NamedTuple):
    """How large values are in files of a kind.

    Attributes:
        file_bytes: Of a value, in the file.
        growth: Bytes in memory for each byte of the file.
    """

    file_bytes: float
    growth: float


# Rough figures of usual tables; what is not named is taken to be compressed.
_TEXT = _ValueSize(6.0, 10.0)
_JSON_LINES = _ValueSize(15.0, 5.0)  # every row repeats the names of columns
_SAS = _ValueSize(8.0, 5.0)  # a number takes eight bytes
_COMPRESSED = _ValueSize(1.0, 60.0)
_SIZES = {
    ".csv": _TEXT,
    ".tsv": _TEXT,
    ".txt": _TEXT,
    ".jsonl": _JSON_LINES,
    ".ndjson": _JSON_LINES,
    ".xpt": _SAS,
    ".sas7bdat": _SAS,
}
_DUCKDB_MB = 1000.0  # at most, while it counts
_VALUE_BYTES = 16.0  # of a value in memory
_BATCH_ROWS = 1_000_000  # of a Parquet file that is coded piece by piece
_MOST_READ = 1_000_000  # rows of a table in a database or a Parquet file
_HEAD_BYTES = 1 << 16  # of a text file, by which its lines are counted
_JSON = (".jsonl", ".ndjson")  # whose first line is a row


class StudyForecast(msgspec.Struct, frozen=True):
    """What a run would take and cost, and what a reviewer should look at first.

    Figures are those of `siloweave.core.method.Forecast`, with the rows' memory, which goes by the
    sizes of the files.

    Attributes:
        epsilon_per_party: What each party will have spent at the end, at `delta`.
        unit, rows_per_unit, parties_per_unit: What that is of, see `Budget`.
        rounds: Questions one after the other, without those of the alignment.
        messages_per_party: Questions to a party in all, at most.
        seconds_on_engine, seconds_on_sockets: Of a run over a network, at 1 s, and at 0.05 s, a
            question, and with as much computing.
        one_room: As of `Plan`.
        warnings: What to look at before running.
        resumes: Releases of this very run that are paid for already.
        finished: Whether it has finished, so that running it does nothing.
        error: How far the table is expected to be from the rows, where the method has a forecast of
            it; rows are those of the files, by their sizes, or counted where they were read.
        rows_guessed: Whether the number of these rows is a guess, by the size of a file.
        columns: Name, kind and reason of each column that was proposed and not reviewed.
        rows: What the rows show, if they were read.
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
    messages_per_party: int
    memory_mb: float
    seconds: float | None
    bytes_per_party: int
    seconds_on_engine: float
    seconds_on_sockets: float
    one_room: bool
    domain_cells: float | None
    workload_queries: int | None
    workload_cells: int | None
    largest_query: tuple[str, ...] | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    resumes: int
    finished: bool
    alignment: plans.AlignmentForecast | None = None
    error: ErrorForecast | None = None
    columns: tuple[tuple[str, str, str], ...] = ()
    rows: RowsRead | None = None
    rows_guessed: bool = False
    unit: str = "row"
    rows_per_unit: int = 1
    parties_per_unit: int = 1


class RowsRead(msgspec.Struct, frozen=True):
    """What the rows of a study show; for someone who may see every party's file.

    Attributes:
        count: How many each party has.
        misfits: Rows that the schema does not allow, in sentences with places and values.
        differences: How parties that hold the same columns hold them differently.
        overlaps: Rows or people that several parties hold, in sentences.
    """

    count: dict[str, int]
    misfits: tuple[str, ...]
    differences: tuple[Difference, ...]
    overlaps: tuple[str, ...]


def read_rows(study: Study) -> RowsRead:
    """Read every party's rows, and compare them with the schema and with each other.

    Parties with different columns hold the same people on purpose, and are not compared. Of a
    large table in a database or a Parquet file, a million random rows are read.

    Raises:
        SiloweaveError: A file cannot be read.
    """
    schema, synth = study.checked()
    row_counts = {}
    tables = {}
    for party in study.parties:
        with naming_party(party.name):
            rows = party.rows(study.source(party), schema.names)
            row_counts[party.name] = rows.num_rows
            tables[party.name] = rows_of(rows, _MOST_READ)

    declared = schema.select(declared_names(study, schema))
    bins = _bins_of(synth)
    misfit_lines: list[str] = []
    for name, table in tables.items():
        misfit_lines += misfits(name, table, declared, bins)
    if synth.method.split == "columns":
        return RowsRead(row_counts, tuple(misfit_lines), (), ())

    # Cells that count as missing must be alike before parties are compared.
    blanked_tables = {name: _blanked(table, schema) for name, table in tables.items()}
    party_differences = differences(blanked_tables)
    budget = study.terms()
    overlap_sentences = [overlap.said(budget) for overlap in overlaps(blanked_tables)]
    return RowsRead(
        row_counts,
        tuple(misfit_lines),
        tuple(party_differences),
        tuple(overlap_sentences),
    )


def read_party_rows(
    study: Study, party: PartyTable, source: Path | Database
) -> RowsRead:
    """Read the rows of one party where they are, and compare them with the schema.

    Arguments and errors as of `read_rows`, of which this is one party's part.
    """
    schema, synth = study.checked()
    with naming_party(party.name):
        rows = party.rows(source, schema.names)
        table = rows_of(rows, _MOST_READ)
    declared = schema.select(declared_names(study, schema))
    misfit_lines = misfits(party.name, table, declared, _bins_of(synth))
    return RowsRead({party.name: rows.num_rows}, tuple(misfit_lines), (), ())


def _bins_of(synth: MethodSettings) -> int:
    """Return how many bins a method cuts numbers into; a usual number for one without bins."""
    bins: int | None = getattr(synth, "bins", None)
    return bins or _BINS


def _blanked(table: Table, schema: Schema) -> Table:
    """Return the schema's columns, where declared spellings of missing values are missing."""
    names = [name for name in schema.names if name in table.names]
    table = table.select(names)
    for name in names:
        table = table.blanked(name, schema[name].missing_values)
    return table


def forecast(study: Study, *, rows: bool = False) -> StudyForecast:
    """Check everything about a study that needs no rows, and forecast what a run would take.

    Args:
        study: As its file says.
        rows: Whether to read the rows as well; see `read_rows`. A budget that is spent is then a
            warning, so that rows can be looked at.

    Raises:
        InputError: Something cannot work; the message names it.
        CapacityError: The model would not fit.
        BudgetError: The budget does not pay for it, or other runs have spent it.
        LedgerError: A ledger was edited.
    """
    # Everything that a run would be refused for comes first, as it does in a run.
    schema, synth = study.checked()
    info = synth.info
    budget = study.terms()
    columns = columns_of(study)
    check_columns(study, synth, columns, schema)
    setup = study.setup(columns)
    resumed_releases = 0
    refusal = ""
    try:
        resumed_releases = sum(spent(study).values())
    except BudgetError as error:
        # Rows that do not fit are looked for after a run has warned of them, too.
        if not rows:
            raise
        refusal = str(error).rstrip(".")
    rows_read = read_rows(study) if rows else None

    # What the run takes: by the method's own forecast, and by the plan of its messages, which has
    # those of an alignment too.
    parties = list(_party_rows(study, columns, rows_read))
    counts = [party.expected_rows for party in parties]
    cost = plans.forecast_of(setup, counts)
    places = [_rows_place(study, party) for party in parties]
    rows_mb = sum(place.memory_mb for place in places)
    plan = plans.plan_of(study, setup, study.names[0], counts, cost)
    aligning = plans.aligned_by(study, counts)

    notes = [*cost.notes, *_column_notes(schema)]
    notes += _cell_places(schema, synth)
    notes += _implied_days(schema)
    if _spends_budget(study, synth) and cost.error is None:
        notes.append(_NO_ERROR.format(info.title))
    notes += _unit_notes(schema, synth, budget)
    notes += [place.note for place in places if place.note]

    sentences = list(warnings(study))
    if refusal:
        sentences.append(f"A run would be refused. {refusal}")
    sentences += too_few(_ROW_COUNTS_OF, counts, synth, budget)
    sentences += large_delta(synth, budget, counts)
    sentences += _empty_queries(study, [party.rows for party in parties])
    sentences += _moving_queries(study)
    sentences += cost.warnings
    if cost.error is not None:
        sentences += cost.error.warnings

    # Another guarantee than "dp" has no epsilon that a party spends.
    epsilon = cost.epsilon_per_party if info.guarantee == "dp" else inf
    unreviewed = [column for column in study.read_schema().columns if column.why]
    return StudyForecast(
        study=study.study.name,
        method=info.title,
        guarantee=info.guarantee,
        trust=info.trust,
        parties=study.names,
        epsilon_per_party=epsilon,
        delta=budget.delta,
        unit=budget.unit,
        rows_per_unit=budget.neighbours.rows,
        parties_per_unit=budget.parties_per_unit,
        rounds=plan.rounds - aligning.rounds,
        messages_per_party=plan.count,
        memory_mb=cost.memory_mb + rows_mb,
        seconds=cost.seconds,
        bytes_per_party=plan.size - aligning.bytes_leader,
        seconds_on_engine=plan.lasts(plans.ENGINE_S),
        seconds_on_sockets=plan.lasts(plans.SOCKET_S),
        one_room=plan.one_room,
        domain_cells=_in_floats(cost.domain_cells),
        workload_queries=cost.workload_queries,
        workload_cells=cost.workload_cells,
        largest_query=cost.largest_query,
        notes=tuple(notes),
        columns=tuple((column.name, column.kind, column.why) for column in unreviewed),
        warnings=tuple(sentences),
        resumes=resumed_releases,
        finished=finished(study) is not None,
        alignment=aligning if study.alignment else None,
        error=cost.error,
        rows=rows_read,
        rows_guessed=rows_read is None and any(map(_is_guessed, parties)),
    )


def _in_floats(cells: int | None) -> float | None:
    """Return a number of cells as a float; the largest one for the cells of very many columns."""
    if cells is None:
        return None
    return float(min(cells, int(float_info.max)))


def rows_in(source: Path | Database, columns: int) -> int:
    """Count the rows of a database or Parquet file, or estimate those of any other by its size."""
    unread_rows = unread(source)
    if unread_rows is not None:
        return unread_rows.num_rows
    assert isinstance(source, Path)

    kind = file_kind(source)
    if kind in _JSON:
        return max(_lines(source), _LEAST)
    if is_text_file(source):
        # The first line has the columns' names.
        return max(_lines(source) - 1, _LEAST)
    declared_count = rows_declared(source)
    if declared_count is not None:
        return max(declared_count, _LEAST)

    value_size = _SIZES.get(kind, _COMPRESSED)
    values = _size(source) / value_size.file_bytes
    return max(round(values / max(columns, 1)), _LEAST)


def _is_guessed(party: _PartyRows) -> bool:
    """Return whether `rows_in` goes by the size of a party's file, and counts nothing in it."""
    source = party.source
    if unread(source) is not None:
        return False
    assert isinstance(source, Path)
    kind = file_kind(source)
    if kind in _JSON or is_text_file(source):
        # Of a packed file, all lines are counted; of a small one, too.
        return kind in _SIZES and _size(source) > _HEAD_BYTES
    return rows_declared(source) is None


def _lines(file: Path) -> int:
    """Count the lines of a text file, or estimate them by the length of those at its beginning."""
    if file_kind(file) not in _SIZES:
        return packed_lines(table_file(file))
    with table_file(file).open("rb") as data:
        head = data.read(_HEAD_BYTES)
    line_ends = head.count(b"\n") or head.count(b"\r")
    size = _size(file)
    if size > len(head):
        return round(size * line_ends / len(head))

    # A last line may have no end; in UTF-16 the byte after a line's end is 0.
    is_cut = head[-1:] not in (b"\n", b"\r", b"\0", b"")
    return line_ends + 1 if is_cut else line_ends


def rows_taken(study: Study, source: Path | Database, columns: int) -> int:
    """Estimate how many of a party's rows take part in a study."""
    row_count = rows_in(source, columns)
    return round(row_count * study.share(source))


def _size(file: Path) -> int:
    """Return the bytes of a file, or of the Parquet files in a folder."""
    path = table_file(file)
    parts = path.glob("**/*.parquet") if path.is_dir() else [stored(path)]
    return sum(part.stat().st_size for part in parts)


class _PartyRows(NamedTuple):
    """Where a party's rows are, and how many.

    Attributes:
        name: The party's.
        columns: How many it has.
        source: Where its rows are.
        rows: How many there are: read, or by the size of the file.
        share: The chance with which each takes part.
    """

    name: str
    columns: int
    source: Path | Database
    rows: int
    share: float

    @property
    def expected_rows(self) -> int:
        """How many rows take part, in the mean."""
        return round(self.rows * self.share)


def _party_rows(
    study: Study, columns: Mapping[str, Sequence[str]], rows_read: RowsRead | None
) -> Iterator[_PartyRows]:
    """Yield where every party's rows are, and how many."""
    for party in study.parties:
        source = study.source(party)
        column_count = len(columns[party.name])
        row_count = rows_in(source, column_count)
        if rows_read is not None:
            row_count = rows_read.count[party.name]
        share = study.share(source)
        yield _PartyRows(party.name, column_count, source, row_count, share)


class _RowsPlace(NamedTuple):
    """What a party's rows take in memory, in MB, and what to say of them; empty for nothing."""

    memory_mb: float
    note: str


def _rows_place(study: Study, party: _PartyRows) -> _RowsPlace:
    """Forecast what a party's rows take; say where they are unless that is a small file."""
    unread_rows = unread(party.source)
    if study.counts and unread_rows is not None:
        return _counted_place(study, party, unread_rows)

    memory_mb = _loaded_mb(party)
    # More rows than [study] sample, where that is a limit and no chance.
    limit = study.study.sample
    is_large = unread_rows is not None and party.rows > limit > 1
    is_database = isinstance(unread_rows, Database)
    if party.share == 1 and not is_large and not is_database:
        return _RowsPlace(memory_mb, "")

    synth = study.synthesizer()
    reader = "a constraint" if synth.method.counts else synth.info.title
    place = _place_name(unread_rows)
    which = f"all {party.rows:,} are loaded from {place}"
    if party.share < 1 and unread_rows is None:
        which = f"each row of its file is drawn with a chance of {party.share:g}"
    elif party.share < 1:
        expected = f"about {party.rows * party.share:,.0f} of {party.rows:,}"
        which = f"{expected} are drawn at random from {place}"
    note = f"{party.name}: {reader} needs rows: {which}, about {memory_mb:,.0f} MB"
    if party.share < 1 or not is_large:
        return _RowsPlace(memory_mb, note)

    # Why a limit draws no rows here.
    if synth.method.split == "columns":
        note += ". Rows must be the same at all parties, so none is drawn"
        return _RowsPlace(memory_mb, note)
    note += (
        ". Their number is private, so a limit draws none; sample = 0.1 in [study] lets each row "
        "take part with that chance, and its epsilon stays the same"
    )
    return _RowsPlace(memory_mb, note)


def _counted_place(study: Study, party: _PartyRows, unread_rows: Unread) -> _RowsPlace:
    """Forecast what rows take that a method counts where they are; see `_rows_place`."""
    values = party.rows * party.columns
    # Which of a unit's rows take part is chosen by reading them all.
    if not study.terms().by_row:
        place = _place_name(unread_rows)
        note = f"all rows are read from {place}, to leave out what a unit has beyond"
        memory_mb = values * _VALUE_BYTES / _MB
        return _RowsPlace(memory_mb, f"{party.name}: {note}")
    if isinstance(unread_rows, Database):
        loading = "no row is loaded"
        if study.schema.learn:
            loading = "columns with open facts are read"
        note = f"{party.name}: counted in {unread_rows.kind}, {loading}"
        return _RowsPlace(_DUCKDB_MB, note)

    # A piece of a Parquet file at a time, and the codes of all of it, of about a byte each.
    batch_rows = min(party.rows, _BATCH_ROWS)
    batch_bytes = batch_rows * party.columns * _VALUE_BYTES
    return _RowsPlace((batch_bytes + values) / _MB, "")


def _loaded_mb(party: _PartyRows) -> float:
    """Forecast the MB that a party's rows take once they are loaded."""
    unread_rows = unread(party.source)
    if unread_rows is None and isinstance(party.source, Path):
        kind = file_kind(party.source)
        value_size = _SIZES.get(kind, _COMPRESSED)
        return value_size.growth * _size(party.source) / _MB
    # A sample of a Parquet file is drawn piece by piece, and a piece is in memory beside it.
    batch_rows = 0
    if party.share < 1 and isinstance(unread_rows, ParquetFile):
        batch_rows = min(party.rows, _BATCH_ROWS)
    loaded_rows = party.rows * party.share + batch_rows
    return _VALUE_BYTES * party.columns * loaded_rows / _MB


def _place_name(unread_rows: Unread | None) -> str:
    """Name the place of rows in a sentence."""
    return unread_rows.kind if isinstance(unread_rows, Database) else "its file"


# Columns


def columns_of(study: Study) -> dict[str, tuple[str, ...]]:
    """Return every party's column names, from the head of its file."""
    names = study.read_schema().names
    return {
        party.name: columns_in(party, study.source(party), names)
        for party in study.parties
    }


def columns_in(
    party: PartyTable, source: Path | Database, schema_names: Sequence[str]
) -> tuple[str, ...]:
    """Return a party's column names, where its rows are in a file or a database.

    Args:
        party: Its entry in the study.
        source: Where its rows are.
        schema_names: Names of the schema's columns, by which a text file's line of names is found.
    """
    with naming_party(party.name):
        if isinstance(source, Database):
            names = source.names
        else:
            file_names = {new: old for old, new in party.rename.items()}
            expected_names = tuple(file_names.get(name, name) for name in schema_names)
            dialect = replace(party.dialect, names=expected_names)
            names = names_in(source, dialect)
            names = names_after(names, party.rename, f"its file {str(source)!r}")
    # By the names that the study gives them, after what it renames.
    absent = [name for name in party.columns if name not in names]
    if absent:
        place = source.address if isinstance(source, Database) else source
        raise DataError(
            f"party {party.name!r}: {place} has no column {absent[0]!r}, which "
            f"columns = [...] names; it has {', '.join(names)}."
        )
    return party.columns or names


def same_columns(columns: Mapping[str, Sequence[str]], note: str = "") -> None:
    """Check that all parties hold the same columns.

    Args:
        columns: By party.
        note: A sentence that an error ends with, after a space.

    Raises:
        RosterError: Naming two parties and the columns that only one of them has.
    """
    (first, first_names), *others = columns.items()
    for second, second_names in others:
        only_first = [name for name in first_names if name not in second_names]
        only_second = [name for name in second_names if name not in first_names]
        parts = []
        for party, names in ((first, only_first), (second, only_second)):
            if names:
                parts.append(f"only {party!r} has {', '.join(map(repr, names))}")
        if parts:
            raise RosterError(
                f"parties {first!r} and {second!r} hold different columns: {'; '.join(parts)}. "
                "Parties must hold the same ones: rename them in the files or in the study "
                '(rename = {theirs = "ours"}, below the party), or choose with columns = [...]. '
                "Columns of the same people have nothing in common but ids, which no two rows "
                f"of a file share, no row lacks, and none of which could be left out.{note}"
            )


def declared_names(study: Study, schema: Schema) -> list[str]:
    """Return the names of columns that the study does not leave to be learned."""
    from siloweave.protocols.schema import open_facts

    if not study.schema.learn:
        return list(schema.names)
    undeclared = open_facts(schema)
    return [name for name in schema.names if name not in undeclared]


def check_rows(
    study: Study,
    schema: Schema,
    synth: MethodSettings,
    name: str,
    table: Table | Unread,
) -> dict[str, int]:
    """Check one party's rows against the schema, or against its part of it, where they are.

    Returns:
        By column, how many cells have no place of their own and are moved; for the party alone.

    Raises:
        RosterError: Without a guarantee, it has fewer than two rows; under one, no number of rows
            may stop a run.
        SchemaError, DataError: Rows do not fit the schema; names the party.
    """
    if table.num_rows < _LEAST and synth.info.guarantee != "dp":
        count = "no rows" if table.num_rows == 0 else "one row"
        raise RosterError(
            f"party {name!r} has {count}; it needs two or more. Leave it out of "
            "the study, or give its rows."
        )
    # With a guarantee no cell may stop a run, so that cells without a place are moved to one.
    if synth.info.guarantee in GUARANTEED:
        schema = schema.placed()
    names = declared_names(study, schema)
    with naming_party(name):
        # Of split columns a party has some; else a declared column that it lacks is an error.
        if synth.method.split == "columns":
            names = [column for column in names if column in table.names]
        encoder = Encoder(schema.select(names), bins=_bins_of(synth))
        rows = table.select([column for column in table.names if column in names])
        moved_counts = Counter[str]()
        if isinstance(rows, Database):
            moved_counts.update(counted(rows, encoder).moved)
        if isinstance(rows, ParquetFile):
            # Only for its error, which counts the rows of all pieces.
            coded_part(rows, encoder)
            for batch in rows.batches():
                moved_counts.update(moved_cells(batch, encoder.schema))
        if isinstance(rows, Table):
            moved_counts.update(encoder.read(rows).moved)
            if encoder.schema.constraints:
                Modelled(encoder.schema).check(rows)
    return without_others(moved_counts, encoder.schema)


def check_columns(
    study: Study,
    synth: MethodSettings,
    columns: Mapping[str, Sequence[str]],
    schema: Schema,
) -> None:
    """Check the names of every party's columns: the same everywhere, or each at one party.

    Raises:
        RosterError, SchemaError, DataError: Naming parties and columns.
        InputError: The study aligns rows of different people.
    """
    is_split = synth.method.split == "columns"
    if study.alignment is not None:
        _check_alignment(study.alignment.on, columns, synth.info.title, split=is_split)
    if is_split:
        own_columns(columns, schema)
        return

    # All parties have the first one's columns, so that its names are compared with the schema's.
    same_columns(columns)
    party, names = next(iter(columns.items()))
    extra = [name for name in names if name not in schema.names]
    if extra:
        guess = ""
        if len(extra) == len(names):
            guess = "Is it the schema of another table? "
        raise SchemaError(
            f"party {party!r}: the schema lacks its columns {', '.join(map(repr, extra))}. {guess}"
            "Declare them in the schema, or choose others with columns = [...]."
        )
    absent = [column.name for column in schema.coded if column.name not in names]
    if absent:
        raise SchemaError(
            f"party {party!r} lacks the schema's columns {', '.join(map(repr, absent))}. "
            "Add them to its file, or take them out of the schema."
        )


def _check_alignment(
    on: Sequence[str], columns: Mapping[str, Sequence[str]], title: str, *, split: bool
) -> None:
    """Check that a study's parties can be aligned by these id columns; errors as `check_columns`.

    Args:
        on: The id columns.
        columns: Every party's column names.
        title: The method's.
        split: Whether the method is for split columns.
    """
    if not split:
        raise InputError(
            f"[alignment] is for parties that hold different columns, and {title} takes "
            "rows of different people. Leave [alignment] out, or use a method for split columns."
        )
    if len(columns) < 2:
        raise RosterError(
            "[alignment] needs two [[parties]] or more; one has nobody to align with."
        )
    for party, names in columns.items():
        absent = [column for column in on if column not in names]
        if absent:
            raise DataError(
                f"party {party!r} has no column {absent[0]!r}, which [alignment] on names; it has "
                f"{', '.join(names)}. Name the id columns alike in all files."
            )


# Warnings


def _column_notes(schema: Schema) -> Iterator[str]:
    """Describe columns that no method learns, and constraints, in a sentence each, if any."""
    unmodelled = [column for column in schema.columns if not column.modelled]
    if unmodelled:
        descriptions = [f"{column.name} ({drawn_as(column)})" for column in unmodelled]
        yield f"drawn anew, not modelled: {listed(descriptions)}"
    rules = [rule.words for rule in schema.constraints]
    if rules:
        yield f"every drawn row keeps: {'; '.join(rules)}"


def _unit_notes(schema: Schema, synth: MethodSettings, budget: Budget) -> Iterator[str]:
    """Say that a unit may have more rows than a budget that is for a row, or one party, covers."""
    ids = [column.name for column in schema.columns if column.is_id]
    if budget.by_row and ids and synth.method.needs_budget(synth):
        yield (
            "one row is protected; where a person has several rows, name the column with the "
            f"person's id as the unit in [budget], with rows_per_unit (ids: {listed(ids, 3)})"
        )
    parties = budget.parties_per_unit
    if parties > 1:
        yield (
            f"ε is that of the rows of a {budget.unit} at one party; the report has what it is at "
            f"{parties} of them"
        )


def few_rows(study: Study) -> list[str]:
    """Describe rows that are too few for the budget, or too many for its delta, if they are.

    Errors as of `forecast`.
    """
    columns = columns_of(study)
    counts = []
    for party in study.parties:
        source = study.source(party)
        counts.append(rows_taken(study, source, len(columns[party.name])))
    synth = study.synthesizer()
    budget = study.terms()
    few = too_few(_ROW_COUNTS_OF, counts, synth, budget)
    return [
        *few,
        *large_delta(synth, budget, counts),
        *_empty_queries(study, counts),
    ]


def _empty_queries(study: Study, counts: Sequence[int]) -> list[str]:
    """Describe each query that gives no row."""
    sentences = []
    for party, count in zip(study.parties, counts, strict=True):
        if count == 0 and isinstance(study.source(party), Database):
            sentences.append(
                f"{party.name}: the query gives no row at the moment; check it"
            )
    return sentences


def _moving_queries(study: Study) -> Iterator[str]:
    """Describe queries by which one row may move others, where a guarantee is for a row."""
    synth = study.synthesizer()
    if not synth.method.needs_budget(synth):
        return
    for party in study.parties:
        source = study.source(party)
        if isinstance(source, Database):
            for sentence in query_warnings(source):
                yield f"{party.name}: {sentence}"


def warnings(study: Study) -> tuple[str, ...]:
    """Return what a reviewer should look at before a study runs, in sentences."""
    schema = study.read_schema()
    synth = study.synthesizer()
    sentences = list(_unpaid_facts(schema))
    for column in schema.columns:
        if column.why.startswith(AMBIGUOUS):
            sentences.append(f"{column.name}: {column.why}")
    if study.schema.learn and synth.method.learns:
        sentences.append(_learning(schema, synth, study.schema.learn))
    if study.alignment is not None:
        sentences.append(uncovered(study.alignment.on))
    sentences += _refusing_columns(schema, synth)
    # Parties of split columns have the same people on purpose, and may have them in one file.
    parties_by_source = _parties_by_source(study)
    share_one_file = len(study.parties) < 2 or len(parties_by_source) == 1
    if synth.method.split != "columns":
        sentences += _same_files(study, parties_by_source)
    elif study.alignment is None and not share_one_file:
        sentences.append(
            "there is no [alignment]: row i of one party's file is taken to be the same person as "
            "row i of the others', and nothing checks that"
        )
    sentences += _guarantee_warnings(synth, study.terms())
    return tuple(sentences)


def _unpaid_facts(schema: Schema) -> Iterator[str]:
    """Describe what a schema holds from rows although no budget was spent on it."""
    names = [column.name for column in schema.columns if column.from_data]
    if names:
        count = count_of(len(names), "column", "columns")
        shown = ", ".join(names[:5])
        if len(names) > 5:
            shown += ", ..."
        yield (
            f"facts about {count} in the schema were taken from rows ({shown}), and epsilon does "
            "not cover them. Correct each with `siloweave review`, and tick what was known "
            "beforehand"
        )
    rules = [rule.words for rule in schema.constraints if rule.from_data]
    if rules:
        yield (
            f"{count_of(len(rules), 'constraint was', 'constraints were')} taken from rows "
            f"({'; '.join(rules)}), and epsilon does not cover that. With `siloweave review`, take "
            "out each that only these rows keep, and tick the others"
        )


def _learning(schema: Schema, synth: MethodSettings, learn: float) -> str:
    """Say what the share of a budget that is for open facts goes to."""
    from siloweave.protocols.schema import open_facts
    from siloweave.protocols.workloads import COARSE

    facts = ", ".join(open_facts(Modelled(schema).schema))
    if not facts:
        return (
            f"[schema] learn = {learn} is not used: the schema leaves nothing open, so the "
            "whole budget goes to the run"
        )
    bins = getattr(synth, "bins", None) or COARSE
    return (
        f"{learn:.0%} of the budget goes to facts that the schema leaves open ({facts}); the "
        f"forecast takes each such column to have {bins} codes"
    )


def _refusing_columns(schema: Schema, synth: MethodSettings) -> Iterator[str]:
    """Describe columns that refuse a table, where a guarantee would not have it."""
    names = [column.name for column in schema.coded if column.outside == "refuse"]
    if names and synth.info.guarantee in GUARANTEED:
        yield words.refusing(names).rstrip(".")


def _cell_places(schema: Schema, synth: MethodSettings) -> Iterator[str]:
    """Say where cells go that do not fit their columns, under a guarantee."""
    if synth.info.guarantee not in GUARANTEED:
        return
    coded = schema.placed().coded
    places = [place_words(column) for column in coded if column.outside == "move"]
    if places:
        shown = places[:MOST]
        if len(places) > len(shown):
            shown.append(f"{len(places) - len(shown)} more")
        yield f"a cell that does not fit its column counts as: {'; '.join(shown)}"


def _spends_budget(study: Study, synth: MethodSettings) -> bool:
    """Return whether a study spends a budget, for which one would like to know the error."""
    return synth.info.guarantee in GUARANTEED and not isinf(study.terms().epsilon)


def _implied_days(schema: Schema) -> Iterator[str]:
    """Describe datetimes that are days since nothing but their bounds says how fine they are."""
    datetimes = [column for column in schema.coded if column.is_datetime]
    # Bounds from rows are as fine as the rows; those that someone declared may be coarser.
    declared = [column for column in datetimes if "low" not in column.from_data]
    names = [column.name for column in declared if has_implied_days(column)]
    if names:
        yield (
            f"{listed(names)}: drawn as days without times, since the bounds are dates; where rows "
            "have times of day, declare a resolution, such as 'minute', or they are lost"
        )


def _parties_by_source(study: Study) -> dict[Path | Database, list[str]]:
    """Return the parties that name each file, or the same rows of a database."""
    parties_by_source: dict[Path | Database, list[str]] = {}
    for party in study.parties:
        if not party.data:
            continue
        source = study.source(party)
        if isinstance(source, Path):
            source = source.resolve()
        parties_by_source.setdefault(source, []).append(party.name)
    return parties_by_source


def _same_files(
    study: Study, parties_by_source: Mapping[Path | Database, Sequence[str]]
) -> Iterator[str]:
    """Describe parties that name one file, or the same rows of a database."""
    for source, names in parties_by_source.items():
        if len(names) < 2:
            continue
        owners = " and ".join(names)
        consequence = costs(len(names), study.terms())
        yield f"{owners} name the same {_source_name(source)}. {consequence}"


def _source_name(source: Path | Database) -> str:
    """Name what several parties share: a file, or rows of a database."""
    if isinstance(source, Path):
        return f"file, {source.name}"
    return f"rows of {source.address}"


def uncovered(on: Sequence[str]) -> str:
    """Say what no epsilon of a study with an alignment covers."""
    return (
        f"The parties' common people are found by comparing {', '.join(on)}. Each party learns "
        "which of its rows all others have too, and how many ids each of them brought. No "
        "epsilon covers that"
    )


def large_delta(
    synth: MethodSettings, budget: Budget, counts: Sequence[int]
) -> Iterator[str]:
    """Say that a delta is large for so many rows at the parties, by the report's own bound."""
    if not synth.method.needs_budget(synth):
        return
    # Parties of split columns hold the same rows.
    is_spread = synth.method.split != "columns"
    rows = sum(counts) if is_spread else max(counts, default=0)
    if budget.delta > largest_delta(rows):
        bound = words.rounded_down(largest_delta(rows))
        yield (
            f"delta = {budget.delta} is large for about {rows:,} rows: keep it below "
            f"1 / (10 x rows), and below {LARGE_DELTA}; at most {bound} here"
        )


def _guarantee_warnings(synth: MethodSettings, budget: Budget) -> list[str]:
    """Describe what is unusual about the guarantee."""
    title = synth.info.title
    guarantee = synth.info.guarantee
    if not synth.method.needs_budget(synth):
        text = (
            f"{title} is trained without noise, so epsilon is infinite: its model and "
            "its table may repeat real rows. Treat both as if they were the rows"
        )
        return [text]
    sentences = []
    if budget.epsilon > LARGE_EPSILON:
        sentences.append(
            f"epsilon = {budget.epsilon} promises little: 1 is a usual choice"
        )
    if guarantee != "dp":
        sentences.append(f"{title} has the guarantee {guarantee!r}, not 'dp'")
    return sentences
