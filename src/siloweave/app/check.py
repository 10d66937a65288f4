"""A dry run: what a study would take and cost, found without reading its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isinf
from pathlib import Path
from sys import float_info
from typing import Any

import msgspec

from siloweave.app import plan as plans
from siloweave.app.ledgers import finished, spent
from siloweave.app.parties import Difference, costs, differences, misfits, overlaps
from siloweave.app.study import PartyTable, Study
from siloweave.core.method import GUARANTEED, ErrorForecast, MethodSettings
from siloweave.core.party import own_columns, too_few
from siloweave.errors import DataError, InputError, RosterError, SchemaError, naming_party
from siloweave.privacy.budget import Budget
from siloweave.protocols.schema import coded_part
from siloweave.report import words
from siloweave.tables.bins import has_implied_days
from siloweave.tables.cells import moved_cells, without_others
from siloweave.tables.codes import Encoder
from siloweave.tables.counted import counted
from siloweave.tables.database import Database
from siloweave.tables.detect import AMBIGUOUS
from siloweave.tables.display import listed
from siloweave.tables.drawn import drawn_as
from siloweave.tables.modelled import Modelled
from siloweave.tables.queries import query_warnings
from siloweave.tables.read import (
    ParquetFile,
    Table,
    Unread,
    file_kind,
    is_text_file,
    names_after,
    names_in,
    packed_lines,
    rows_declared,
    rows_of,
    stored,
    table_file,
    unread,
)
from siloweave.tables.schema import Schema, place_words

_NO_ERROR = (
    "how far drawn rows will be from the real ones is not forecast for {}: `siloweave score` shows "
    "it after the run. To see it before, run the study on public or made-up rows, as many of them"
)
_BINS = 32  # to check a generator's rows with
_LEAST = 2  # rows that a method needs
_HELD = "the files hold about"  # so many rows, by their sizes
_NOT_READ = "rows were not read: `siloweave check --rows` compares what the files hold"

# Bytes of a value, in a file of that kind, and bytes in memory for each of the file.
_TEXT, _LINES, _PACKED = (6.0, 10.0), (15.0, 5.0), (1.0, 60.0)
_DUCKDB_MB = 1000.0  # at most, while it counts
_VALUE = 16.0  # bytes of a value in memory
_BATCH_ROWS = 1_000_000  # of a Parquet file that is coded piece by piece
_MOST_READ = 1_000_000  # rows of a table in a database or a Parquet file
_HEAD = 1 << 16  # bytes of a text file by which its lines are counted
_JSON = (".jsonl", ".ndjson")  # whose first line is a row
_EIGHTS = (8.0, 5.0)  # of SAS transport files, where a number takes eight bytes
_SIZES = {
    ".csv": _TEXT, ".tsv": _TEXT, ".txt": _TEXT, ".jsonl": _LINES, ".ndjson": _LINES,
    ".xpt": _EIGHTS, ".sas7bdat": _EIGHTS,
}  # fmt: skip


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
        every_step: Whether there is a question at every gradient step.
        warnings: What to look at before running.
        resumes: Releases of this very run that are paid for already.
        finished: Whether it has finished, so that running it does nothing.
        error: How far the table is expected to be from the rows, where the method has a forecast of
            it; rows are those of the files, by their sizes, or counted where they were read.
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
    every_step: bool
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
    sources, tables = {}, {}
    for party in study.parties:
        with naming_party(party.name):
            sources[party.name] = party.rows(study.source(party), schema.names)
            tables[party.name] = rows_of(sources[party.name], _MOST_READ)
    own = schema.select(declared_names(study, schema))
    bins, alike = getattr(synth, "bins", None) or _BINS, synth.method.split != "columns"
    marked = {name: _marked(table, schema) for name, table in tables.items()}
    return RowsRead(
        {name: source.num_rows for name, source in sources.items()},
        tuple(line for one in tables.items() for line in misfits(*one, own, bins)),
        tuple(differences(marked)) if alike else (),
        tuple(one.said(study.terms()) for one in overlaps(marked)) if alike else (),
    )


def _marked(table: Table, schema: Schema) -> Table:
    """The schema's columns of a table, where declared spellings of missing values are missing."""
    names = [name for name in schema.names if name in table.names]
    table = table.select(names)
    for name in names:
        table = table.blanked(name, schema[name].missing_values)
    return table


def forecast(study: Study, *, rows: bool = False) -> StudyForecast:
    """Check everything about a study that needs no rows, and forecast what a run would take.

    Args:
        study: As its file says.
        rows: Whether to read the rows as well; see `read_rows`.

    Raises:
        InputError: Something cannot work; the message names it.
        CapacityError: The model would not fit.
        BudgetError: The budget does not pay for it.
        LedgerError: A ledger was edited.
    """
    schema, synth = study.checked()
    info, budget, names = synth.info, study.terms(), study.names
    columns = columns_of(study)
    check_columns(study, synth, columns, schema)
    setup, resumes = study.setup(columns), sum(spent(study).values())
    read_here = read_rows(study) if rows else None
    sources = [study.source(one) for one in study.parties]
    held = [rows_in(s, len(own)) for s, own in zip(sources, columns.values(), strict=True)]
    held = list(read_here.count.values()) if read_here else held
    shares = [study.share(source) for source in sources]
    counts = [round(rows * share) for rows, share in zip(held, shares, strict=True)]
    found = plans.forecast_of(setup, study.schema.learn, counts)
    widths = map(len, columns.values())
    facts = zip(columns, widths, sources, held, shares, strict=True)
    places = [_place(study, *each) for each in facts]
    alike = 0 if setup.columns or rows else sum(isinstance(source, Path) for source in sources)
    plan = plans.plan_of(study, setup, names[0], counts, found)
    aligning = plans.aligned_by(study, counts)
    return StudyForecast(
        study=study.study.name,
        method=info.title,
        guarantee=info.guarantee,
        trust=info.trust,
        parties=names,
        epsilon_per_party=found.epsilon_per_party if info.guarantee == "dp" else inf,
        delta=budget.delta,
        unit=budget.unit,
        rows_per_unit=budget.neighbours.rows,
        parties_per_unit=budget.parties_per_unit,
        rounds=plan.rounds - aligning.rounds,
        messages_per_party=plan.count,
        memory_mb=found.memory_mb + sum(memory for memory, _ in places),
        seconds=found.seconds,
        bytes_per_party=plan.size - aligning.bytes_leader,
        seconds_on_engine=plan.lasts(plans.ENGINE_S),
        seconds_on_sockets=plan.lasts(plans.SOCKET_S),
        every_step=plan.every_step,
        domain_cells=_in_floats(found.domain_cells),
        workload_queries=found.workload_queries,
        workload_cells=found.workload_cells,
        largest_query=found.largest_query,
        notes=(
            *found.notes,
            *_of_columns(schema),
            *_places(schema, synth),
            *_days(schema),
            *[_NO_ERROR.format(info.title)] * (_buys(study, synth) and found.error is None),
            *_of_unit(schema, synth, budget),
            *(note for _, note in places if note),
            *[_NOT_READ] * (alike > 1),
        ),
        columns=tuple((c.name, c.kind, c.why) for c in study.read_schema().columns if c.why),
        warnings=(
            *warnings(study),
            *too_few(_HELD, counts, synth, budget),
            *_empty(study, held),
            *_of_queries(study),
            *found.warnings,
            *(found.error.warnings if found.error else ()),
        ),
        resumes=resumes,
        finished=finished(study) is not None,
        alignment=aligning if study.alignment else None,
        error=found.error,
        rows=read_here,
    )


def _in_floats(cells: int | None) -> float | None:
    """A number of cells; that of a few hundred columns is beyond all floats, and is the largest."""
    return None if cells is None else float(min(cells, int(float_info.max)))


def rows_in(source: Path | Database, columns: int) -> int:
    """How many rows a database or Parquet file has, or any other may have by its size."""
    if (kept := unread(source)) is not None:
        return kept.num_rows
    assert isinstance(source, Path)
    if file_kind(source) in _JSON or is_text_file(source):
        return max(_lines(source) - (file_kind(source) not in _JSON), 2)
    if (declared := rows_declared(source)) is not None:
        return max(declared, 2)
    values = _size(source) / _SIZES.get(file_kind(source), _PACKED)[0]
    return max(round(values / max(columns, 1)), 2)


def _lines(file: Path) -> int:
    """How many lines a text file has, by the length of those at its beginning, or counted."""
    if file_kind(file) not in _SIZES:
        return packed_lines(table_file(file))
    with table_file(file).open("rb") as data:
        head = data.read(_HEAD)
    ends = head.count(b"\n") or head.count(b"\r")
    if (size := _size(file)) > len(head):
        return round(size * ends / len(head))
    return ends + (head[-1:] not in (b"\n", b"\r", b"\0", b""))


def rows_taken(study: Study, source: Path | Database, columns: int) -> int:
    """About how many of a party's rows take part in a study."""
    return round(rows_in(source, columns) * study.share(source))


def _size(file: Path) -> int:
    there = table_file(file)
    parts = there.glob("**/*.parquet") if there.is_dir() else [stored(there)]
    return sum(part.stat().st_size for part in parts)


def _place(
    study: Study, name: str, columns: int, source: Path | Database, rows: int, share: float
) -> tuple[float, str]:
    """A party's rows: MB that they take in memory; what to say unless they are in a small file."""
    synth, kept, most = study.synthesizer(), unread(source), study.study.sample
    if study.counts and kept and not study.terms().by_row:
        where = kept.kind if isinstance(kept, Database) else "its file"
        taken = rows * columns * _VALUE / 1e6
        return taken, f"{name}: all rows are read from {where}, to leave out what a unit has beyond"
    if study.counts and isinstance(kept, Database):
        read = "columns with open facts are read" if study.schema.learn else "no row is loaded"
        return _DUCKDB_MB, f"{name}: counted in {kept.kind}, {read}"
    if study.counts and kept:
        taken = min(rows, _BATCH_ROWS) * columns * _VALUE + rows * columns
        return taken / 1e6, ""
    if kept is None and isinstance(source, Path):
        taken = _SIZES.get(file_kind(source), _PACKED)[1] * _size(source) / 1e6
    else:
        piece = _BATCH_ROWS if share < 1 and isinstance(kept, ParquetFile) else 0
        taken = _VALUE * columns * (rows * share + min(rows, piece)) / 1e6
    large = kept is not None and rows > most > 1
    if share == 1 and not large and not isinstance(kept, Database):
        return taken, ""
    who = "a constraint" if synth.method.counts else synth.info.title
    where = kept.kind if isinstance(kept, Database) else "its file"
    which = f"all {rows:,} are loaded from {where}"
    if share < 1 and kept is None:
        which = f"each row of its file is drawn with a chance of {share:g}"
    elif share < 1:
        which = f"about {rows * share:,.0f} of {rows:,} are drawn at random from {where}"
    note = f"{name}: {who} needs rows: {which}, about {taken:,.0f} MB"
    if share < 1 or not large:
        return taken, note
    if synth.method.split == "columns":
        return taken, f"{note}. Rows must be the same at all parties, so none is drawn"
    note += (
        ". Their number is private, so a limit draws none; sample = 0.1 in [study] lets each row "
        "take part with that chance, and its epsilon stays the same"
    )
    return taken, note


# Columns


def columns_of(study: Study) -> dict[str, tuple[str, ...]]:
    """Every party's column names, from the head of its file."""
    names = study.read_schema().names
    return {party.name: columns_in(party, study.source(party), names) for party in study.parties}


def columns_in(party: PartyTable, source: Path | Database, known: Sequence[str]) -> tuple[str, ...]:
    """A party's column names, where its rows are in a file or a database.

    Args:
        party: Its entry in the study.
        source: Where its rows are.
        known: Names of the schema's columns, by which a text file's line of names is found.
    """
    with naming_party(party.name):
        if isinstance(source, Database):
            names = source.names
        else:
            own_names = {new: old for old, new in party.rename.items()}
            wanted = tuple(own_names.get(name, name) for name in known)
            names = names_in(source, replace(party.dialect, names=wanted))
            names = names_after(names, party.rename, f"its file {str(source)!r}")
    absent = [name for name in party.columns if name not in names]
    if absent:
        where = source.address if isinstance(source, Database) else source
        raise DataError(
            f"party {party.name!r}: {where} has no column {absent[0]!r}, which "
            f"columns = [...] names; it has {', '.join(names)}."
        )
    return party.columns or names


def same_columns(columns: Mapping[str, Sequence[str]]) -> None:
    """Check that all parties hold the same columns.

    Raises:
        RosterError: Naming two parties and the columns that only one of them has.
    """
    (first, mine), *others = columns.items()
    for other, theirs in others:
        parts = [
            f"only {who!r} has {', '.join(map(repr, found))}"
            for who, found in (
                (first, [name for name in mine if name not in theirs]),
                (other, [name for name in theirs if name not in mine]),
            )
            if found
        ]
        if parts:
            raise RosterError(
                f"parties {first!r} and {other!r} hold different columns: {'; '.join(parts)}. "
                'Parties must hold the same ones: rename them (rename = {theirs = "ours"} in the '
                "study, below the party), or choose with columns = [...]. "
                "Columns of the same people have nothing in common but ids, which no two rows "
                "of a file share, no row lacks, and none of which could be left out."
            )


def declared_names(study: Study, schema: Schema) -> list[str]:
    """Columns that the study does not leave to be learned."""
    from siloweave.protocols.schema import open_facts

    still_open = open_facts(schema) if study.schema.learn else {}
    return [column.name for column in schema.columns if column.name not in still_open]


def check_rows(
    study: Study, schema: Schema, synth: MethodSettings, name: str, table: Table | Unread
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
    if synth.info.guarantee in GUARANTEED:
        schema = schema.placed()
    declared = declared_names(study, schema)
    with naming_party(name):
        own = [n for n in declared if n in table.names or synth.method.split != "columns"]
        encoder = Encoder(schema.select(own), bins=getattr(synth, "bins", None) or _BINS)
        rows = table.select([n for n in table.names if n in own])
        moved = Counter[str]()
        if isinstance(rows, Database):
            moved.update(counted(rows, encoder).moved)
        if isinstance(rows, ParquetFile):
            coded_part(rows, encoder)  # whose error counts the rows of all pieces
            for piece in rows.batches():
                moved.update(moved_cells(piece, encoder.schema))
        if isinstance(rows, Table):
            moved.update(encoder.read(rows).moved)
            if encoder.schema.constraints:
                Modelled(encoder.schema).check(rows)
    return without_others(moved, encoder.schema)


def check_columns(
    study: Study, synth: MethodSettings, columns: Mapping[str, Sequence[str]], schema: Schema
) -> None:
    """Check the names of every party's columns: the same everywhere, or each at one party.

    Raises:
        RosterError, SchemaError, DataError: Naming parties and columns.
        InputError: The study aligns rows of different people.
    """
    split = synth.method.split == "columns"
    if study.alignment is not None:
        _check_alignment(study.alignment.on, columns, synth.info.title, split=split)
    if split:
        own_columns(columns, schema)
        return
    same_columns(columns)
    party, names = next(iter(columns.items()))
    extra = [name for name in names if name not in schema.names]
    if extra:
        other = "Is it the schema of another table? " if len(extra) == len(names) else ""
        raise SchemaError(
            f"party {party!r}: the schema lacks its columns {', '.join(map(repr, extra))}. {other}"
            "Declare them in the schema, or choose others with columns = [...]."
        )
    absent = [c.name for c in schema.coded if c.name not in names]
    if absent:
        raise SchemaError(
            f"party {party!r} lacks the schema's columns {', '.join(map(repr, absent))}. "
            "Add them to its file, or take them out of the schema."
        )


def _check_alignment(
    on: Sequence[str], columns: Mapping[str, Sequence[str]], title: str, *, split: bool
) -> None:
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
        absent = [one for one in on if one not in names]
        if absent:
            raise DataError(
                f"party {party!r} has no column {absent[0]!r}, which [alignment] on names; it has "
                f"{', '.join(names)}. Name the id columns alike in all files."
            )


# Warnings


def _of_columns(schema: Schema) -> Iterator[str]:
    """A sentence about columns that no method learns, and one about constraints, if any."""
    if left := [f"{one.name} ({drawn_as(one)})" for one in schema.columns if not one.modelled]:
        yield f"drawn anew, not modelled: {listed(left)}"
    if rules := [rule.words for rule in schema.constraints]:
        yield f"every drawn row keeps: {'; '.join(rules)}"


def _of_unit(schema: Schema, synth: MethodSettings, budget: Budget) -> Iterator[str]:
    """A sentence about ids of which one may have several rows, if a row is protected."""
    ids = [column.name for column in schema.columns if column.kind == "id"]
    if budget.by_row and ids and synth.method.needs_budget(synth):
        yield (
            f"one row is protected; if one {listed(ids, 3)} may have several, name it as the unit "
            "in [budget], with rows_per_unit"
        )
    if (parties := budget.parties_per_unit) > 1:
        yield (
            f"ε is that of the rows of a {budget.unit} at one party; the report has what it is at "
            f"{parties} of them"
        )


def few_rows(study: Study) -> list[str]:
    """Sentences about rows that are too few for the budget, or none; errors as of `forecast`."""
    owned = zip(study.parties, columns_of(study).values(), strict=True)
    counts = [rows_taken(study, study.source(one), len(own)) for one, own in owned]
    return [*too_few(_HELD, counts, study.synthesizer(), study.terms()), *_empty(study, counts)]


def _empty(study: Study, counts: Sequence[int]) -> list[str]:
    """A sentence about each query that gives no row."""
    return [
        f"{party.name}: the query gives no row at the moment; check it"
        for party, rows in zip(study.parties, counts, strict=True)
        if not rows and isinstance(study.source(party), Database)
    ]


def _of_queries(study: Study) -> Iterator[str]:
    """Sentences about queries by which one row may move others, where a guarantee is for a row."""
    synth = study.synthesizer()
    for party in study.parties if synth.method.needs_budget(synth) else ():
        source = study.source(party)
        if isinstance(source, Database):
            yield from (f"{party.name}: {sentence}" for sentence in query_warnings(source))


def warnings(study: Study) -> tuple[str, ...]:
    """What a reviewer should look at before a study runs."""
    from siloweave.protocols.schema import open_facts
    from siloweave.protocols.workload import COARSE

    schema, synth, learn, found = study.read_schema(), study.synthesizer(), study.schema.learn, []
    learned = [column.name for column in schema.columns if column.from_data]
    if learned:
        found.append(
            f"facts about {len(learned)} column{'s' * (len(learned) > 1)} in the schema were taken "
            f"from rows, and nobody paid for them "
            f"({', '.join(learned[:5])}{', ...' if len(learned) > 5 else ''}). "
            "epsilon does not cover them: review them, and delete their from_data"
        )
    if rules := [rule.words for rule in schema.constraints if rule.from_data]:
        found.append(
            f"of the constraints {len(rules)} came from rows, and nobody paid for that "
            f"({'; '.join(rules)}). epsilon does not cover them: delete what only these rows keep, "
            "and the from_data of the others"
        )
    found += [f"{c.name}: {c.why}" for c in schema.columns if c.why.startswith(AMBIGUOUS)]
    if learn and synth.method.learns:
        modelled = Modelled(schema).schema if schema.constraints else schema
        facts, bins = ", ".join(open_facts(modelled)), getattr(synth, "bins", None) or COARSE
        found.append(
            f"{learn:.0%} of the budget goes to facts that the schema leaves open ({facts}); the "
            f"forecast takes each such column to have {bins} codes"
            if facts
            else f"[schema] learn = {learn} is not used: the schema leaves nothing "
            "open, and the whole budget goes to the run"
        )
    if study.alignment is not None:
        found.append(uncovered(study.alignment.on))
    found += _refusing(schema, synth)
    if synth.method.split != "columns":
        found += _same_files(study)
    return (*found, *_of_the_guarantee(synth, study.terms()))


def _refusing(schema: Schema, synth: MethodSettings) -> Iterator[str]:
    """A sentence about columns that refuse a table, where a guarantee would not have it."""
    names = [column.name for column in schema.coded if column.outside == "refuse"]
    if names and synth.info.guarantee in GUARANTEED:
        yield words.refusing(names).rstrip(".")


def _places(schema: Schema, synth: MethodSettings) -> Iterator[str]:
    """A sentence about where cells go that do not fit their columns, under a guarantee."""
    if synth.info.guarantee not in GUARANTEED:
        return
    placed = schema.placed()
    where = [place_words(column) for column in placed.coded if column.outside == "move"]
    if where:
        yield f"a cell that does not fit its column counts as: {listed(where)}"


def _buys(study: Study, synth: MethodSettings) -> bool:
    """Whether a study spends a budget, for which one would like to know the error."""
    return synth.info.guarantee in GUARANTEED and not isinf(study.terms().epsilon)


def _days(schema: Schema) -> Iterator[str]:
    """A sentence about datetimes that are days since nothing but their bounds says how fine."""
    declared = [c for c in schema.coded if c.kind == "datetime" and "low" not in c.from_data]
    dated = [column.name for column in declared if has_implied_days(column)]
    if dated:
        yield (
            f"{listed(dated)}: drawn as days without times, since the bounds are dates; where rows "
            "have times of day, declare a resolution, such as 'minute', or they are lost"
        )


def _same_files(study: Study) -> Iterator[str]:
    """A sentence about parties that name one file."""
    named: dict[Path | Database, list[str]] = {}
    for party in study.parties:
        if party.data:
            source = study.source(party)
            place = source.resolve() if isinstance(source, Path) else source
            named.setdefault(place, []).append(party.name)
    for place, names in named.items():
        if len(names) > 1:
            what = f"file, {place.name}" if isinstance(place, Path) else f"rows of {place.address}"
            yield f"{' and '.join(names)} name the same {what}. " + costs(len(names), study.terms())


def uncovered(on: Sequence[str]) -> str:
    """What no epsilon of a study with an alignment covers, in a sentence."""
    return (
        f"Which people are in the common table was found by comparing {', '.join(on)}: parties "
        "know which of their rows all of them have, and how many ids each brought. No epsilon "
        "covers that"
    )


def _of_the_guarantee(synth: Any, budget: Budget) -> list[str]:
    """What is unusual about the guarantee."""
    title, kind = synth.info.title, synth.info.guarantee
    if not synth.method.needs_budget(synth):
        text = (
            f"{title} is trained without noise, so epsilon is infinite: its model and "
            "its table may repeat real rows. Treat both as if they were the rows"
        )
        return [text]
    found = []
    if budget.delta > 1e-4:
        found.append(f"delta = {budget.delta} is large: keep it far below 1 / number of rows")
    if budget.epsilon > 10:
        found.append(f"epsilon = {budget.epsilon} promises little: 1 is a usual choice")
    if kind != "dp":
        found.append(f"{title} has the guarantee {kind!r}, not 'dp'")
    return found
