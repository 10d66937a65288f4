"""A first study file and schema, proposed from the files that hold the rows; and the demo's study.

The demo spreads the embedded census table over four parties.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log10
from pathlib import Path
from string import whitespace
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import msgspec
import numpy as np
from msgspec.structs import replace

from siloweave.app.check import same_columns
from siloweave.app.parties import OTHER_TEXT, differences, form_of, overlaps, places
from siloweave.app.study import plain_name
from siloweave.errors import InputError, RosterError, count_of, naming_party
from siloweave.privacy.journal import write_whole
from siloweave.progress import Progress, silent
from siloweave.report import words
from siloweave.report.facts import largest_delta
from siloweave.tables.column import Column
from siloweave.tables.constraints import Constraint, FixedCombinations
from siloweave.tables.database import Database, source_of
from siloweave.tables.detect import AMBIGUOUS, BRACKETS, evidence
from siloweave.tables.dialect import Dialect
from siloweave.tables.display import bound_words, listed
from siloweave.tables.files import is_text_file, table_file
from siloweave.tables.forms import pattern_words
from siloweave.tables.ids import IdPolicy, normal_ids, shape_of
from siloweave.tables.joining import stacked
from siloweave.tables.parsing import texts_of
from siloweave.tables.read import read_as, readings, rows_of, unread
from siloweave.tables.relations import BLOCK, WIDE, proposed
from siloweave.tables.schema import Schema, describe
from siloweave.tables.table import Table
from siloweave.tables.text_encoding import encoding_of
from siloweave.tables.units import Share, differ_plainly, rows_by_unit, shares_kept
from siloweave.tables.write import write

# With fewer values in all files, a column that is an id in each may be categories.
_FEW = 20
_TOTALS = (
    "total",
    "totals",
    "sum",
    "summe",
    "gesamt",
    "insgesamt",
    "totale",
    "somma",
    "totaal",
    "subtotal",
    "grand total",
    "zwischensumme",
    "gesamtsumme",
    "sous-total",
    "total général",
    "toplam",
    "итого",
    "合计",
    "合計",
    "mean",
    "average",
    "mittelwert",
    "durchschnitt",
    "moyenne",
)
# A row of subtotals, as Excel writes it below each group: "North Total".
_SUBTOTALS = (" total", " subtotal", " ergebnis", " summe")
_SHOWN = 3  # stray texts of a column
# Columns, from which every one of AIM's rounds looks at more than 10,000 pairs.
_WIDE = 150
_LEAST_COLUMNS = 3  # of which a note below a table has one
_BOUNDS = (1, 2, 5, 10, 20, 50, 100)  # rows of one id
_ENOUGH = 0.9  # share of the rows that the proposed bound keeps
_MOST = 1_000_000  # rows of a database or a Parquet file that are read


class Proposal(NamedTuple):
    """What `propose` found: the texts of two files, and what must be reviewed."""

    study: str  # study.toml
    schema: Schema
    review: tuple[tuple[str, str], ...]  # a column, and what was taken from its rows
    files: tuple[str, ...] = ()  # how each text file is written
    constraints: tuple[str, ...] = ()  # what all rows keep, in words
    # Values that do not fit, for those who may see them alone.
    cautions: tuple[str, ...] = ()


def propose(
    files: Sequence[str | Path],
    *,
    folder: str | Path = ".",
    name: str = "",
    dialect: Dialect | None = None,
) -> Proposal:
    """Propose a study from one file for each party.

    Files with the same columns are different people's rows. Files with different columns are the
    same people's, and columns that all of them have are ids, by which rows will be aligned: no two
    rows of a file may have the same. Without any, files are taken to be in one order already.

    The schema is detected in the rows of all files together, which only someone who may see them
    all can do; every fact in it is marked as taken from data.

    Args:
        files: Tables, one for each party; see `siloweave.read` for their kinds. A table of a
            database is ``address#table``. Of a larger one, or a larger Parquet file, about a
            million random rows are read.
        folder: Where the study file will be; paths in it are relative to this.
        name: Of the study; that of the folder if empty. Letters, digits, spaces, '.', '_', '-'.
        dialect: How CSV files are written; decided from each file where it is not said.

    Raises:
        RosterError: Files have the same name, or hold columns that fit neither case (names them).
        InputError: A file is missing or no table, or a database is named without a table.
    """
    if not files:
        raise InputError(
            "init needs at least one CSV or Parquet file, one for each party."
        )
    target = Path(folder)
    sources = [source_of(file) for file in files]
    source_tables = [_read(source, dialect or Dialect()) for source in sources]
    tables = dict(zip(_names(sources), source_tables, strict=True))
    for source, table in zip(sources, source_tables, strict=True):
        if table.num_rows == 0:
            raise RosterError(
                f"{_shown(source)} has no rows. Leave it out, or give its rows."
            )
    for party, table in tables.items():
        with naming_party(party):
            table.check_nested()
    _check_headers(tables)
    on = ids_of(tables)
    for party, table in tables.items():
        if set(table.names) <= set(on or ()):
            raise RosterError(
                f"party {party!r} has no column but ids; leave its file out."
            )

    schema = _detected(list(tables.values()), on)
    data = {
        party: _named(source, target)
        for party, source in zip(tables, sources, strict=True)
    }
    units = repeated_ids(tables, schema) if on is None else ()
    # A sheet, or a file of SPSS, Stata or SAS, decides nothing and has no separator or encoding.
    told = dialect or Dialect()
    as_given = dataclasses.replace(told, separator=None, encoding=None)
    dialects = {}
    for (party, table), source in zip(tables.items(), sources, strict=True):
        if not isinstance(source, Database):
            dialects[party] = table.dialect or as_given
    study = _study(_title(name, target), data, on, tables, units, dialects)

    # What the owner of all these rows is to look at.
    marked = [column for column in schema.columns if column.from_data]
    review = [(column.name, ", ".join(_learned(column))) for column in marked]
    file_lines = []
    for party, table in tables.items():
        words_of_file = _file_words(table)
        if words_of_file:
            file_lines.append(f"{party}: {words_of_file}")
    constraints = [rule.why for rule in schema.constraints]
    cautions = _cautions(schema, units, tables, on)
    return Proposal(
        study=study,
        schema=schema,
        review=tuple(review),
        files=tuple(file_lines),
        constraints=tuple(constraints),
        cautions=tuple(cautions),
    )


def _check_headers(tables: Mapping[str, Table]) -> None:
    """Check that all text files have a line of names, or none has; raise RosterError otherwise."""
    dialects = {party: table.dialect for party, table in tables.items()}
    nameless = [
        party for party, dialect in dialects.items() if dialect and not dialect.header
    ]
    if 0 < len(nameless) < len(tables):
        raise RosterError(
            f"party {nameless[0]!r}: the first line of its file looks like a row and not like "
            "names, and other files have names. Write the columns' names into line 1, or give "
            "--header if they are there."
        )


def _cautions(
    schema: Schema,
    units: Sequence[RepeatedId],
    tables: Mapping[str, Table],
    on: Sequence[str] | None,
) -> Iterator[str]:
    """Yield what does not fit, or is an open question, for those who may see all rows.

    Args:
        schema: What was detected.
        units: Ids of which one has several rows.
        tables: Every party's rows.
        on: The id columns by which tables of different columns are aligned; None where all have
            the same columns, so that they can be compared.
    """
    num_columns = max(len(table.names) for table in tables.values())
    if num_columns > WIDE:
        yield (
            f"constraints were looked for among each {BLOCK} neighbouring columns alone, since "
            f"there are {num_columns:,}: declare others in the schema"
        )
    for column in schema.columns:
        if _is_question(column.why):
            yield f"{column.name}: {column.why}."
    yield from map(str, units)
    for party, table in tables.items():
        repeated_names = _repeated_names(table)
        if repeated_names:
            place = _places_of(table, repeated_names)
            yield f"{party}, {place}: the columns' names again, and no row. Delete the line"
        yield from _strays(party, table, schema, repeated_names)
        yield from _totals(party, table)
        notes = _notes(table)
        if notes:
            yield (
                f"{party}, {_places_of(table, notes)}: text in one column alone, as a source or a "
                "note below a table has it. Delete the line if it is no row"
            )
    if on is not None:
        yield from _row_cautions(schema, tables, on)
    elif len(tables) > 1:
        yield from map(str, differences(tables))
        for overlap in overlaps(tables):
            yield overlap.said()


def _row_cautions(
    schema: Schema, tables: Mapping[str, Table], on: Sequence[str]
) -> Iterator[str]:
    """Yield why rows of files with different columns may be of different people.

    Args:
        schema: What was detected.
        tables: Every party's rows.
        on: The id columns that all files have; empty where rows are in one order.
    """
    if not on:
        ids = []
        for party, table in tables.items():
            names = [name for name in table.names if schema[name].is_id]
            if names:
                ids.append(f"{listed(names, 3)} ({party!r})")
        advice = ""
        if len(ids) == len(tables):
            advice = (
                f" If these are one id, {', '.join(ids)}, give it one name in all files, and run "
                "init again: rows are then found by it."
            )
        yield (
            "no column is in every file, so row i of one file is taken to be the same person as "
            f"row i of the others, and nothing checks that.{advice}"
        )
        return
    # Of random rows of two large tables few are of the same people.
    if any(table.drawn_of is not None for table in tables.values()):
        return

    policy = IdPolicy(missing="drop", duplicates="first")
    common: set[bytes] = set()
    shapes: list[str] = []
    for party, table in tables.items():
        with naming_party(party):
            values = normal_ids(table, on, policy=policy).values
        common = common & set(values) if shapes else set(values)
        shapes.append(f"{party!r} has {shape_of(values)}")
    if not common:
        yield (
            f"no id in {', '.join(on)} is common to all files: {'; '.join(shapes)}. If they are of "
            "the same people, write ids alike, or give rules below [alignment] in the study"
        )


@dataclass(frozen=True)
class RepeatedId:
    """An id column that names several rows of a file, and what bounds on these keep.

    Attributes:
        name: The column's.
        most: Rows of one id in one file.
        shares: What each bound keeps, of all files together.
    """

    name: str
    most: int
    shares: tuple[Share, ...]

    @property
    def proposed(self) -> int:
        """The least bound that keeps nine rows of ten, or all rows of nine ids of ten."""
        # The last bound is the most rows of an id, and keeps them all.
        return next(
            share.most
            for share in self.shares
            if max(share.rows, share.whole) >= _ENOUGH
        )

    def kept(self) -> Iterator[str]:
        """Yield what each bound keeps, in words."""
        for share in self.shares:
            rows = words.percent(share.rows)
            whole = words.percent(share.whole)
            yield f"{share.most}: {rows} of the rows, and all rows of {whole} of them"

    def __str__(self) -> str:
        return (
            f"{self.name}: one {self.name} has up to {self.most:,} rows in a file. If it is a "
            f"person, protect that and not a row: set unit = {self.name!r} and rows_per_unit in "
            "[budget]. A larger rows_per_unit keeps more rows and needs more noise. It keeps, at "
            f"{'; '.join(self.kept())}"
        )


def repeated_ids(tables: Mapping[str, Table], schema: Schema) -> tuple[RepeatedId, ...]:
    """Find id columns of which one id has several rows in a file, that of most ids first.

    What bounds keep is of these rows: for someone who may see them all.
    """
    repeated: list[RepeatedId] = []
    id_counts: dict[str, int] = {}
    for column in schema.columns:
        if not column.is_id:
            continue
        if all(differ_plainly(table, column.name) for table in tables.values()):
            continue
        id_column = replace(column, missing=True)
        party_ids = [rows_by_unit(table, id_column) for table in tables.values()]
        counters = [Counter(id_ for id_ in ids if id_ is not None) for ids in party_ids]
        most = max(
            (max(counter.values(), default=0) for counter in counters), default=0
        )
        if most < 2:
            continue

        # One id at two parties is two units: a party bounds its own rows.
        units: list[str | None] = []
        for index, ids in enumerate(party_ids):
            units += [None if id_ is None else f"{index}/{id_}" for id_ in ids]
        bounds = [bound for bound in _BOUNDS if bound < most]
        shares = shares_kept(units, [*bounds, most])
        repeated.append(RepeatedId(column.name, most, tuple(shares)))
        id_counts[column.name] = sum(map(len, counters))
    repeated.sort(key=lambda unit: -id_counts[unit.name])
    return tuple(repeated)


def _read(source: Path | Database, dialect: Dialect) -> Table:
    """Read a party's rows, or about a million of a larger database's or Parquet file's."""
    unread_rows = unread(source)
    if unread_rows is not None:
        return rows_of(unread_rows, _MOST)
    assert isinstance(source, Path)
    # What is guessed here is declared in the study: a run would not guess otherwise.
    if dialect.encoding is None and is_text_file(source):
        dialect = dataclasses.replace(dialect, encoding=encoding_of(table_file(source)))
    # The reason of a column says what its table hints at.
    return read_as(source, dialect)


def _is_question(why: str) -> bool:
    """Return whether a column's reason leaves open what its values are, for its owner to say."""
    return why.startswith(AMBIGUOUS) or f" {BRACKETS}" in why


def _file_words(table: Table) -> str:
    """Say how a text file is written, or what of another table was not read."""
    dialect = table.dialect
    if dialect is None:
        unread_parts = []
        if table.drawn_of is not None:
            unread_parts.append(
                f"{table.num_rows:,} random rows of {table.drawn_of:,} were read"
            )
        if table.has_index:
            unread_parts.append(
                "the index of pandas, which has no name, is left out; name it where the file is "
                "written if drawn rows are to have it"
            )
        unread_parts += table.notes
        return "; ".join(unread_parts)
    names = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
    separator = names.get(dialect.separator or "", repr(dialect.separator))
    skipped_lines = dialect.skip or 0
    header = f"names in line {skipped_lines + 1}"
    if not dialect.header:
        header = (
            f"no line of names (give --header if line {skipped_lines + 1} has them)"
        )
    more = "; what lies above it is skipped" if skipped_lines else ""
    if table.left_out:
        more += (
            f"; {table.left_out} empty columns at the end without a name are left out"
        )
    word_readings = readings(table)
    if word_readings:
        word = " or, in mac-roman, ".join(map(repr, word_readings))
        more += (
            f"; a word of it reads {word}: if that is wrong, give --encoding, such as cp1250 "
            "(Central Europe), cp1254 (Turkish) or cp1257 (Baltic)"
        )
    return f"fields divided by {separator}, {dialect.encoding}, {header}{more}"


def _places_of(table: Table, rows: Sequence[int]) -> str:
    """Write where some rows are, the first few of them."""
    row_places = list(map(places(table), rows[:_SHOWN]))
    if len(rows) > _SHOWN:
        row_places.append(f"and {len(rows) - _SHOWN:,} more")
    return ", ".join(row_places)


def _repeated_names(table: Table) -> list[int]:
    """Return rows that repeat all columns' names, as joined files and sheets have them."""
    if table.dialect is None and not table.is_sheet:
        return []
    rows = set(range(table.num_rows))
    for name in table.names:
        cells = texts_of(table.cells(name)).str.strip_chars(f"{whitespace}\ufeff")
        is_name = (cells == name).fill_null(False).to_numpy()
        rows &= set(np.flatnonzero(is_name).tolist())
    return sorted(rows)


def _notes(table: Table) -> list[int]:
    """Return the last rows that have a text in one column alone, where all others have more."""
    is_typed = table.dialect is not None or table.is_sheet
    if not is_typed or len(table.names) < _LEAST_COLUMNS:
        return []
    num_filled = np.zeros(table.num_rows, dtype=np.int64)
    for name in table.names:
        num_filled += ~table.missing(name)
    short_rows = np.flatnonzero(num_filled == 1)
    # Rows before them with as little are rows of a sparse table.
    num_last = len(short_rows)
    first = table.num_rows - num_last
    are_last = num_last and short_rows[0] == first
    if not are_last or num_last > _SHOWN:
        return []
    last_rows = table.take(short_rows)
    is_note = np.ones(num_last, dtype=np.bool_)
    for name in table.names:
        # A total is named as such.
        texts = texts_of(last_rows.cells(name)).fill_null("")
        is_note &= ~np.array(list(map(_is_total, texts)), dtype=np.bool_)
    rows: list[int] = short_rows[is_note].tolist()
    return rows


def _strays(
    party: str, table: Table, schema: Schema, skipped: Sequence[int]
) -> Iterator[str]:
    """Yield texts in columns of numbers, and infinite numbers, with places; for the owner alone.

    Rows that are named otherwise are skipped.
    """
    strays: dict[int, dict[str, Any]] = {}
    for column in schema.columns:
        kind = table.kind(column.name) if column.name in table.names else ""
        is_number = column.is_number
        if kind == "numbers" or (kind == "text" and is_number):
            blanked = table.blanked(column.name, column.missing_values)
            rows = blanked.unread(column.name, column.format)[:_SHOWN]
            cells = table.select([column.name]).take(rows).values(column.name)
            for row, cell in zip(rows.tolist(), cells, strict=True):
                strays.setdefault(row, {})[column.name] = cell

    place = places(table)
    for row, row_cells in sorted(strays.items()):
        if row in skipped:
            continue
        texts = [cell for cell in row_cells.values() if isinstance(cell, str)]
        # Several texts in one row are no slips of a pen: the row is no row.
        if len(texts) > 1:
            columns = listed(tuple(row_cells))
            shown_texts = listed(tuple(map(repr, texts)))
            yield (
                f"{party}, {place(row)}: {columns} hold {shown_texts} "
                "and no numbers. Delete the line if it has units, names or a total; correct it "
                "otherwise"
            )
            continue
        for name, cell in row_cells.items():
            advice = f"{cell!r} is no number. Correct it, or list it in the column's missing_values"
            if not texts:
                advice = f"{cell} is infinite. Correct it, or make it missing"
            yield f"{party}, {place(row)}, {name}: {advice}"


def _totals(party: str, table: Table) -> Iterator[str]:
    """Yield a sentence about each row that sums up others, as spreadsheets have them."""
    place = places(table)
    for name in table.names:
        if table.kind(name) != "text":
            continue
        counts = table.text_counts(name)
        # A word that several rows have is a category of the column.
        totals = [text for text in counts if _is_total(text) and counts[text] == 1]
        if not totals:
            continue
        cells = texts_of(table.cells(name)).str.strip_chars()
        for row in np.flatnonzero(cells.is_in(totals).fill_null(False)).tolist():
            yield (
                f"{party}, {place(row)}, {name}: {cells[row]!r} seems to begin a total or a mean, "
                "which is no row. Delete the line"
            )


def _is_total(text: str) -> bool:
    """Return whether a text is a word for a sum or a mean, or ends as one of a group does."""
    word = text.strip(" :").lower()
    return word in _TOTALS or word.endswith(_SUBTOTALS)


def write_proposal(
    proposal: Proposal, folder: str | Path, *, force: bool = False
) -> list[Path]:
    """Write study.toml and schema.json into a folder, which is made if it is not there.

    Returns:
        The two paths.

    Raises:
        InputError: A file is there already and `force` is false; nothing is written.
    """
    target = Path(folder)
    texts = {
        "study.toml": proposal.study,
        "schema.json": proposal.schema.to_json() + "\n",
    }
    paths = [target / name for name in texts]
    existing = [str(path) for path in paths if path.exists()]
    if existing and not force:
        raise InputError(
            f"{' and '.join(existing)} already there. "
            "Give --force to replace, or --folder for another place."
        )
    target.mkdir(parents=True, exist_ok=True)
    for path, text in zip(paths, texts.values(), strict=True):
        write_whole(path, text.encode(), private=False)
    return paths


def _named(source: Path | Database, folder: Path) -> str:
    """Write a party's ``data`` as it stands in a study file in `folder`."""
    if isinstance(source, Path):
        return _text(_inside(source, folder))
    address = source.address
    if source.file is not None:
        address = f"{source.kind}:///{quote(_inside(source.file, folder))}"
    rows = (
        f"query = {_text(source.query)}"
        if source.query
        else f"table = {_text(source.table)}"
    )
    return f"{{ database = {_text(address)}, {rows} }}"


def _inside(path: Path, folder: Path) -> str:
    """Write a path as it stands in a file in `folder`."""
    if not path.is_absolute():
        path = Path(os.path.relpath(path, folder))
    return path.as_posix()


def ids_of(tables: Mapping[str, Table]) -> tuple[str, ...] | None:
    """Return the id columns by which files of different columns are aligned; None for the same.

    Raises:
        RosterError: They differ, and are no columns of the same people either.
    """
    columns = {party: table.names for party, table in tables.items()}
    holder_counts: Counter[str] = Counter()
    for names in columns.values():
        holder_counts.update(names)
    if set(holder_counts.values()) == {len(tables)}:
        return None

    # A column is one party's, or all parties have it and it is an id: else files of the same
    # columns were meant, and what differs is named.
    on = tuple(name for name, count in holder_counts.items() if count == len(tables))
    if set(holder_counts.values()) - {1, len(tables)}:
        same_columns(columns)
    if not _ids(tables, on):
        same_columns(columns, _almost_ids(tables, on))
    row_counts = {
        party: table.drawn_of or table.num_rows for party, table in tables.items()
    }
    if not on and len(set(row_counts.values())) > 1:
        rows = ", ".join(f"{count} ({party!r})" for party, count in row_counts.items())
        raise RosterError(
            f"parties hold different columns, none in common, and {rows} rows. Give all "
            "files a column of ids, by which rows are aligned, or the same rows in one order."
        )
    return on


def _ids(tables: Mapping[str, Table], on: Sequence[str]) -> bool:
    """Return whether columns identify every row of every file, and none could be left out."""
    if not all(_identify(table, on) for table in tables.values()):
        return False
    if len(on) < 2:
        return True
    for omitted in on:
        remaining = [name for name in on if name != omitted]
        if all(_identify(table, remaining) for table in tables.values()):
            return False
    return True


def _almost_ids(tables: Mapping[str, Table], on: Sequence[str]) -> str:
    """Name the few rows by which columns that all files have are no ids; empty if they are many."""
    for party, table in tables.items():
        columns = [table.values(name).tolist() for name in on]
        rows = list(zip(*columns, strict=True))
        counts = Counter(rows)
        is_missing = np.zeros(table.num_rows, dtype=bool)
        for name in on:
            is_missing |= table.missing(name)

        odd_rows = []
        for place, row in enumerate(rows):
            if is_missing[place] or counts[row] > 1:
                odd_rows.append(place)
        # A column that tells few rows apart was never meant as an id.
        if 0 < len(odd_rows) <= table.num_rows / 2:
            count = count_of(len(odd_rows), "row", "rows")
            return (
                f" The file of {party!r} has {count} without {', '.join(on)}, or with that of "
                f"another row ({_places_of(table, odd_rows)}): mend them, if it is the id."
            )
    return ""


def _identify(table: Table, on: Sequence[str]) -> bool:
    """Return whether no two rows have the same values in these columns, and none is missing."""
    columns = [table.values(name).tolist() for name in on]
    rows = list(zip(*columns, strict=True))
    if any(table.missing(name).any() for name in on):
        return False
    # A single row differs from all others whatever its columns are.
    has_several = len(rows) > 1
    return len(set(rows)) == len(rows) and (has_several or not on)


def _title(name: str, folder: Path) -> str:
    """Return the study's name; raise InputError for one that it cannot have."""
    if not name:
        return plain_name(folder.resolve().name, "study")
    if plain_name(name, "") != name:
        raise InputError(
            f"--name {name!r} may hold 1 to 64 letters a to z, digits, spaces, '.', '_' and '-' "
            f"only; for example {plain_name(name, 'study')!r}."
        )
    return name


def _names(sources: Sequence[Path | Database]) -> list[str]:
    """Name parties after their files, tables or databases.

    Raises:
        RosterError: Two would have one name, or a file is given twice.
    """
    stems = []
    for source in sources:
        stem = (
            source.stem if isinstance(source, Path) else source.table.rpartition(".")[2]
        )
        stems.append(stem)

    names = []
    for source, stem in zip(sources, stems, strict=True):
        # Tables that are called alike are told apart by their databases.
        if isinstance(source, Database) and stems.count(stem) > 1:
            stem = Path(unquote(urlsplit(source.address).path)).stem
        names.append(plain_name(stem, "party"))

    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        places = [
            source.resolve() if isinstance(source, Path) else source
            for source in sources
        ]
        for source, place in zip(sources, places, strict=True):
            if places.count(place) > 1:
                raise RosterError(
                    f"{_shown(source)} is given twice. Give each party its own rows."
                )
        raise RosterError(
            f"two files would make a party {repeated[0]!r}: parties are named after their "
            "files, tables or databases. Rename one."
        )
    return names


def _shown(source: Path | Database) -> str:
    """Quote a file, table or query, as it was given."""
    if isinstance(source, Database):
        return repr(source.query or source.table)
    return repr(str(source))


def _learned(column: Column) -> list[str]:
    """Return what of a column was taken from rows, in words."""
    facts = {
        "kind": column.kind,
        "categories": count_of(len(column.categories), "category", "categories"),
        "low": f"low {bound_words(column.low)}",
        "high": f"high {bound_words(column.high)}",
        "missing": "missing values" if column.missing else "no missing values",
        "decimals": count_of(column.decimals or 0, "decimal", "decimals"),
        "format": f"written like {column.format}",
        "padded": f"decimals written: at least {column.padded}",
        "missing_values": f"missing: {', '.join(column.missing_values)}",
        "resolution": f"resolution: {column.resolution}",
        "zone": f"time zone {column.zone}",
    }
    return [facts[fact] for fact in column.from_data]


def _detected(tables: Sequence[Table], on: Sequence[str] | None) -> Schema:
    """Detect the schema of all files: of their rows together, or of each one's columns.

    Args:
        tables: Every party's rows.
        on: The ids by which files of different columns are aligned; None for the same columns.
    """
    if on is None:
        pooled = stacked(tables)
        if len(tables) == 1:
            return Schema.detect(pooled)
        # What a column is in each file by itself decides first which constraints there are.
        schema = Schema.detect(pooled, constraints=False)
        schema = _with_file_kinds(schema, pooled, tables)
        return Schema(schema.columns, proposed(pooled, schema.columns))

    columns = [_shared_id(tables, name) for name in on]
    rules: list[Constraint] = []
    for table in tables:
        names = [name for name in table.names if name not in on]
        schema = Schema.detect(table.select(names))
        columns += schema.columns
        rules += schema.constraints
    return Schema(tuple(columns), tuple(rules))


def _with_file_kinds(schema: Schema, pooled: Table, tables: Sequence[Table]) -> Schema:
    """Return a schema of all rows, with what a column is in each file by itself.

    Parties may each number their own rows, or write dates or numbers in ways of their own.
    """
    file_columns = [evidence(table) for table in tables]
    columns = []
    for column in schema.columns:
        name = column.name
        # A column without a value in a file says nothing there.
        detected = []
        forms = set()
        for table, by_name in zip(tables, file_columns, strict=True):
            if not table.missing(name).all():
                detected.append(by_name[name])
                forms.add(form_of(by_name[name], table.kind(name)))

        is_id_by_file = {file_column.kind for file_column in detected} == {"id"}
        is_id = is_id_by_file and not column.is_id
        if is_id and len(pooled.counts(name)[0]) >= _FEW:
            formats = {file_column.format for file_column in detected}
            column = _id_by_file(
                column, detected[0].format if len(formats) == 1 else None
            )
        elif len(forms) > 1 and OTHER_TEXT not in forms and not column.is_binned:
            why = f"{', or '.join(sorted(forms))}, by file: not modelled until written alike"
            column = Column(
                name, "text", missing=column.missing, from_data=("kind",), why=why
            )
        columns.append(column)
    return Schema(tuple(columns))


def _id_by_file(column: Column, form: str | None) -> Column:
    """Return a column as an id, which it is in every file by itself."""
    facts: tuple[str, ...] = ("kind",)
    shape = ""
    if form:
        facts = ("kind", "format")
        shape = f", of the form {pattern_words(form)}"
    why = (
        f"in every file by itself{shape}: an identifier, left out of the model and "
        "drawn anew; declare it integer or categorical if that is wrong"
    )
    return replace(
        column,
        kind="id",
        categories=(),
        low=None,
        high=None,
        decimals=None,
        other=None,
        fallback=None,
        format=form,
        from_data=facts,
        why=why,
    )


def _shared_id(tables: Sequence[Table], name: str) -> Column:
    """Return an id column of all parties, with the form that it has at each of them."""
    forms = set()
    for table in tables:
        column = describe(table.select([name]), name)
        forms.add(column.format if column.is_id else None)
    form = forms.pop() if len(forms) == 1 else None
    if form is None:
        return Column(name, "id")
    why = f"in every file, of the form {form}: an identifier, left out of the model and drawn anew"
    return Column(name, "id", format=form, from_data=("format",), why=why)


def _study(
    name: str,
    data: Mapping[str, str],
    on: Sequence[str] | None,
    tables: Mapping[str, Table],
    units: Sequence[RepeatedId],
    dialects: Mapping[str, Dialect | None],
) -> str:
    """Write the text of a study file.

    Args:
        name: The study's.
        data: Where each party's rows are, as the file has it.
        on: The ids by which files of different columns are aligned; None for the same columns.
        tables: Every party's rows.
        units: Ids of which one has several rows.
        dialects: How each party's file is written.
    """
    method = _budget(units, len(data))
    if len(data) > 1:
        method += _ROWS
    elif any(len(table.names) >= _WIDE for table in tables.values()):
        method += _WIDE_TABLE
    else:
        method += _AIM
    alignment = ""
    if on is not None:
        method = _COLUMNS
        alignment = _ORDER
    if on:
        alignment = _ALIGNMENT.format(on=", ".join(map(_text, on)))
    entries = []
    for party, place in data.items():
        table = tables[party]
        entry = f"[[parties]]\nname = {_text(party)}\ndata = {place}\n"
        if on is not None:
            entry += f"columns = [{', '.join(map(_text, table.names))}]\n"
        entries.append(entry + _dialect_lines(dialects.get(party)))
    head = _HEAD.format(name=_text(name))
    method = method.replace(f"delta = {_USUAL_DELTA}", f"delta = {_delta(tables)}")
    return head + method + _PARTIES + "\n".join(entries) + alignment + _OUTPUT


def _delta(tables: Mapping[str, Table]) -> str:
    """Return a power of ten that no report calls large for so many rows.

    More than 100,000 rows alone make it smaller than usual, so of their number it shows the order
    of magnitude at most.
    """
    rows = sum(table.drawn_of or table.num_rows for table in tables.values())
    delta = float(_USUAL_DELTA)
    while delta > largest_delta(rows):
        delta /= 10
    return f"1e-{round(-log10(delta))}"


def _budget(units: Sequence[RepeatedId], parties: int) -> str:
    """Write the budget of a study; it protects the id of most rows where one has several."""
    if not units:
        return _BUDGET
    first, *others = units
    lines = [
        f"# One {first.name} has several rows in a file. A party takes rows_per_unit of them at",
        "# most; noise grows with that. To protect a single row, write 'row', and delete the rest.",
        *(f"# One {unit.name} has several rows, too." for unit in others),
        f"unit = {_text(first.name)}",
        f"rows_per_unit = {first.proposed}",
    ]
    if parties > 1:
        lines.append(
            "parties_per_unit = 1       # at how many parties one of them may have rows"
        )
    return _BUDGET.replace(_UNIT, "\n".join(lines) + "\n")


def _dialect_lines(dialect: Dialect | None) -> str:
    """Write how a text file is written, where that is not as usual: commas, UTF-8, names."""
    if dialect is None:
        return ""
    usual = asdict(Dialect(",", "utf-8", True, skip=0))
    lines = []
    for name, value in asdict(dialect).items():
        if value is not None and value != usual[name]:
            lines.append(f"{name} = {msgspec.json.encode(value).decode()}\n")
    return "".join(lines)


def _text(value: str) -> str:
    """Write a TOML basic string; JSON's escapes are valid in it."""
    return msgspec.json.encode(value).decode()


_HEAD = """\
# A study: whose rows, what may be learned, and how. Every field is explained here.
#   siloweave check study.toml     memory, time, bytes and epsilon, before a row is read
#   siloweave run study.toml       the synthetic table, the ledgers and the report

[study]
name = {name}
# roster = ["a", "b"]      # the parties that must be there; without it, those listed below
# sample = 1000000         # rows that networks train from, about, of a larger database or Parquet
#                          # file; or 0.1: each row of each party, with this chance

[schema]
# Columns, categories and bounds are public. Those in this file were taken from the rows by
# `siloweave init` and are marked "from_data": check each one with `siloweave review`, write what
# was known beforehand (ages 0 to 120, not 17 to 90), and tick it. So are "constraints", which every
# drawn row keeps; take out those that only these rows happen to keep.
file = "schema.json"
# learn = 0.1              # share of the budget for facts that the file leaves open: bounds that
#                          # are not there, categories of which only "other" is named

"""
_UNIT = """\
unit = "row"               # or an id column, whose rows are one person's; with rows_per_unit = 5
"""
_USUAL_DELTA = "1e-6"
_BUDGET = f"""\
[budget]
epsilon = 1.0              # the most that anyone can learn about one unit; smaller is safer
delta = {_USUAL_DELTA}               # far below 1 / number of rows
relation = "add_remove"    # or "replace_one": the number of rows is public then
{_UNIT}
"""
_WORKLOAD = """\
# target = "..."           # a column that is to be predicted: triples with it are asked for, too
# degree = 2               # columns in one query of the workload, instead of what is chosen
# queries = 64             # only so many queries, chosen at random
# bins = 16                # of a column of numbers at most, instead of what rows and budget carry
# counts_share = 0.2       # share of the budget for noisy histograms, by which such columns are
#                          # cut into bins

"""
_ROWS = f"""\
[method]
name = "two_round"         # several parties, asked four times each; `siloweave list` shows others
# name = "flaim"           # instead, where some parties come and go: in each of its `rounds`, a
#                          # party takes part with the probability `participation`
{_WORKLOAD}"""
_AIM = f"""\
[method]
name = "aim"               # one party that sees all rows; `siloweave list` shows the others. One
#                          # without a guarantee, such as "ctgan", needs epsilon = inf above; its
#                          # settings are written here too, such as epochs = 300
{_WORKLOAD}"""
_WIDE_TABLE = f"""\
[method]
name = "two_round"         # one party that sees all rows, of many columns; "aim" takes hours there.
#                          # `siloweave list` shows the others
{_WORKLOAD}"""
_SHARED = _BUDGET.replace(
    '"add_remove"    # or "replace_one": the number of rows is public then',
    '"replace_one"   # parties that share people know how many there are',
)
_COLUMNS = f"""\
{_SHARED}[method]
name = "secure_two_round"  # parties with different columns; `siloweave list` shows the others
{_WORKLOAD}\
# name = "silofuse"        # instead, with epsilon = inf above: a diffusion, which promises
#                          # nothing; its coordinator receives a code of every row, and most cells
#                          # can be recovered from it

"""
_ALIGNMENT = """
[alignment]
# Rows of the same person are found before the method runs, without showing ids;
# docs/concepts/alignment.md lists who learns what.
on = [{on}]
# rules = {{ id = ["strip", "casefold"] }}  # where parties write ids differently
# missing = "drop"         # rows without an id; they are an error unless this is written
# duplicates = "drop"      # rows that share an id; they are an error unless this is written
"""
_ORDER = """
# There is no [alignment]: row i of one file must be the same person as row i of the others.
"""
_PARTIES = """\
# Who holds the rows: CSV, TSV, JSON lines, Arrow, Parquet, Excel, or a file of SPSS, Stata or SAS;
# `columns = ["a", "b"]` takes some of them. `rename` and `recode` map names and values of a file
# to the schema's. A CSV is UTF-8 unless its encoding is declared, such as encoding = "latin-1".
# What divides its fields, and where its names are, is decided from the file unless it is declared:
# separator = ";", header = false, decimal = ",", missing = ["n/a"], short_lines = true, skip = 2
# (lines above the names).
"""
_OUTPUT = """
[output]
folder = "run"
# rows = 1000              # as many as the model stands for, if absent
seed = 0                   # of everything but the noise, which no seed decides
# run_by = "name, role"    # for the sign-off of the reports; no name is read from a machine
"""


# The demo


DEMO_PARTIES = ("north", "east", "south", "west")
"""Names of the demo's four parties."""

_STUDY = """\
# The demo: UCI Adult (48,842 rows, 15 columns), spread over four parties.
# Change it, choose another folder below, and: siloweave run study.toml

[study]
name = "census demo {split}"
roster = ["north", "east", "south", "west"]

[schema]
file = "schema.json"       # UCI's categories; bounds are those of the public table

[budget]
epsilon = 1.0
delta = 1e-6               # below 1 / (10 times the number of rows)

[method]
name = "two_round"         # every party is asked four times, and must be there; else "flaim"

{parties}
[output]
folder = "run"
rows = 48842
"""
_PARTY = """\
[[parties]]
name = "{name}"
data = "data/{name}.parquet"
"""


def demo_schema() -> Schema:
    """Return the census table's schema, and that education-num numbers the levels of education."""
    from siloweave.datasets import adult_schema

    schema = adult_schema()
    levels = schema["education"].categories
    rows = tuple((level, number) for number, level in enumerate(levels, start=1))
    return Schema(
        schema.columns, (FixedCombinations(("education", "education-num"), rows),)
    )


def prepare(
    folder: str | Path, *, split: str = "clusters", progress: Progress = silent
) -> Path:
    """Write the demo's study, schema and one file for each party; nothing if they are there.

    Args:
        folder: Where; made if it is not there.
        split: ``clusters`` (like rows together) or ``iid``.
        progress: Called with a text and the share that is done.

    Returns:
        The study file.

    Raises:
        InputError: The folder holds something else, or another split.
    """
    from siloweave.datasets import adult
    from siloweave.tables.split import split_rows

    target = Path(folder)
    study = target / "study.toml"
    if study.is_file():
        if f'name = "census demo {split}"' not in study.read_text("utf-8"):
            raise InputError(
                f"{study} is there already, and is no demo with --split {split}. Name another "
                "folder with --folder."
            )
        return study
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(
            f"{target} is there already and holds no demo. Name another with --folder."
        )
    progress("splitting rows", 0.0)
    method = "pca" if split == "clusters" else None
    parts = split_rows(adult(), len(DEMO_PARTIES), by=split, seed=0, method=method)
    (target / "data").mkdir(parents=True)
    for name, part in zip(DEMO_PARTIES, parts, strict=True):
        write(part, target / "data" / f"{name}.parquet")
    write_whole(
        target / "schema.json", (demo_schema().to_json() + "\n").encode(), private=False
    )
    parties = "\n".join(_PARTY.format(name=name) for name in DEMO_PARTIES)
    write_whole(
        study, _STUDY.format(parties=parties, split=split).encode(), private=False
    )
    return study
