"""Tables that stay in a database: DuckDB, SQLite or PostgreSQL, from which is only read.

DuckDB and PostgreSQL are reached through ADBC, SQLite through the standard library. An address has
no password: libpq takes it from PGPASSWORD, ~/.pgpass or a service file. What a database says of an
error is repeated where it is about the query or the connection, not where it may quote a row.

A cell is read by itself: texts are compared byte by byte whatever a column's collation is, no cell
stops a query that this file writes, and in SQLite, where every cell has a type of its own, no cell
gets the type of another.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from math import frexp, isinf
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import polars as pl

from siloweave.errors import DataError, InputError
from siloweave.tables.parsing import DURATION

Family = Literal["whole", "number", "boolean", "datetime", "duration", "text", "nothing", "cells"]
"""What sort of values a column of a database holds; "cells" of SQLite have a type each."""

_MEMORY = "1GB"  # that DuckDB takes; what needs more goes to the system's temporary files
_TOGETHER = 32  # groupings of one query
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITHOUT TIME ZONE")
_FAMILIES: dict[str, Family] = {
    **dict.fromkeys(_WHOLE, "whole"),
    **dict.fromkeys(("DOUBLE", "DOUBLE PRECISION"), "number"),
    **dict.fromkeys(_TIMES, "datetime"),
    **dict.fromkeys(("VARCHAR", "TEXT", "CHARACTER VARYING"), "text"),
    "BOOLEAN": "boolean",
    '"NULL"': "nothing",
}
# What no double holds is infinite or 0, where a plain cast would stop the query.
_NUMERIC = (
    "CASE WHEN {0} = 'NaN' THEN 'NaN' WHEN {0} > 1.7976931348623157e308 THEN 'Infinity' "
    "WHEN {0} < -1.7976931348623157e308 THEN '-Infinity' "
    "WHEN {0} > -5e-324 AND {0} < 5e-324 THEN 0 ELSE CAST({0} AS DOUBLE PRECISION) END"
)
_DOUBLE = "CAST({0} AS DOUBLE PRECISION)"
# An interval by the seconds that the database gives it: a month has 30 days, a year 365.25. What is
# longer than 290,000 years is as long as that.
_LASTS = "CAST(EXTRACT(EPOCH FROM {0}) AS DOUBLE PRECISION)"
_MICROSECONDS = (
    f"CASE WHEN {_LASTS} > 9.2e12 THEN 9200000000000000000 "
    f"WHEN {_LASTS} < -9.2e12 THEN -9200000000000000000 "
    f"ELSE CAST(ROUND({_LASTS} * 1000000) AS BIGINT) END"
)
# Other types are cast: to one of these, or to text.
_CAST: dict[str, tuple[Family, str]] = {
    **dict.fromkeys(("REAL", "FLOAT", "DECIMAL"), ("number", _DOUBLE)),
    **dict.fromkeys(("HUGEINT", "UBIGINT", "UHUGEINT"), ("number", _DOUBLE)),
    "NUMERIC": ("number", _NUMERIC),
    **dict.fromkeys(
        ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), ("datetime", "TRY_CAST({0} AS TIMESTAMP)")
    ),
    "INTERVAL": ("duration", _MICROSECONDS),
    "zoned timestamp": ("datetime", "({0} AT TIME ZONE 'UTC')"),
}
_FIRST, _LAST = "0001-01-01", "9999-12-31"  # days that Python has; there are infinite ones, too
_CELLS = "cells"  # the type of every column of SQLite
# Texts come in UTF-8, and a backslash in one stands for itself.
_SETTINGS = (
    "SELECT set_config('client_encoding', 'UTF8', TRUE) AS a, "
    "set_config('standard_conforming_strings', 'on', TRUE) AS b"
)
_ZONED = "zoned timestamp"  # PostgreSQL's, which is compared in UTC
_BINARY = "binary text"  # that of texts which PostgreSQL compares byte by byte
# Its collations for which texts are equal only if their bytes are; a database's own is so, too.
_DETERMINISTIC = ('"default"', '"C"', '"POSIX"')
_BYTES = "<bytes>"  # how a cell of bytes in SQLite is read: as a text that is no value
_EXACT = 2**53  # whole numbers up to here are float64
_PIECE = 200_000  # rows of a piece of a table that is read piece by piece
_FRAMES: dict[Family, Any] = {
    "whole": pl.Int64,
    "number": pl.Float64,
    "boolean": pl.Boolean,
    "datetime": pl.Datetime("us"),
    "duration": DURATION,
    "text": pl.String,
    "nothing": pl.Null,
    "cells": pl.Null,
}
_DESCRIBED = "SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {} AS asked)"  # DuckDB
# How PostgreSQL numbers, and DuckDB names, errors that are about a query, a connection or a server.
_TELLING = ("08", "28", "3D", "42", "53", "57", "0A", "25")
_TELLING_NAMES = ("Parser", "Binder", "Catalog", "IO", "Connection", "Permission", "Out of Memory")


def quoted(name: str) -> str:
    """A name as SQL has it; a quotation mark in it is doubled."""
    return '"' + name.replace('"', '""') + '"'


class _Line(NamedTuple):
    """An open connection: what a SELECT gives, whole or in pieces, and its columns' names."""

    frame: Callable[[str], pl.DataFrame]
    pieces: Callable[[str], Iterator[pl.DataFrame]]
    names: Callable[[str], list[str]]


@dataclass(frozen=True)
class Database:
    """A table, or what a query gives, in a database; nothing is read before it is needed.

    Methods that only count rows (AIM, TwoRound, FLAIM, PrivMRF, DistAIM) let the database count,
    and load no row. Others load the table, or a sample of it (`sample` of `Synthesizer.fit`).

    Args:
        address: ``duckdb:///file.db`` or ``sqlite:///file.db`` (four slashes before an absolute
            path), or ``postgresql://user@host/name``. Without a password.
        table: Name of a table or view, also as ``schema.table``.
        query: A SELECT, instead of a table.

    Raises:
        InputError: The address is no such one or has a password, or it is not clear what to read.

    Example:
        >>> Database("postgresql://ana:secret@db/ward", table="stays")
        Traceback (most recent call last):
        ...
        siloweave.errors.InputError: the address of a database holds a password; ...
    """

    address: str
    table: str = ""
    query: str = ""

    def __post_init__(self) -> None:
        kind, mark, rest = self.address.partition("://")
        if not mark or kind not in _KINDS:
            known = ", ".join(f"{one}://" for one in _KINDS)
            raise InputError(f"the address of a database must begin with {known}")
        if _has_password(self.address):
            raise InputError(
                "the address of a database holds a password; take it out, and put it into the "
                "environment (PGPASSWORD) or into ~/.pgpass, so that no file or log has it"
            )
        if kind != "postgresql" and not rest.removeprefix("/"):
            raise InputError(f"address={self.address!r} names no file; write {kind}:///file.db")
        if bool(self.table) == bool(self.query.strip()):
            raise InputError(f"{self.address}: give a table or a query, and not both")

    @property
    def kind(self) -> str:
        """Duckdb, sqlite or postgresql."""
        return self.address.partition("://")[0]

    @property
    def file(self) -> Path | None:
        """Where the database is, if it is a file."""
        path = unquote(self.address.partition("://")[2].removeprefix("/"))
        return None if self.kind == "postgresql" else Path(path)

    def below(self, folder: str | Path) -> Database:
        """The same database, where the path of its file is relative to a folder."""
        if (file := self.file) is None or file.is_absolute():
            return self
        address = f"{self.kind}:///{quote(str(Path(folder).absolute() / file))}"
        return Database(address, self.table, self.query)

    def select(self, names: Sequence[str]) -> Database:
        """The same rows, some columns in the order given; itself if these are all.

        Raises:
            DataError: There is no such column.
        """
        if absent := [name for name in names if name not in self.names]:
            raise DataError(
                f"{self.address} has no column {absent[0]!r}; it has {', '.join(self.names)}"
            )
        columns = ", ".join(map(quoted, names))
        whole = tuple(names) == self.names
        query = f"SELECT {columns} FROM {self._source} AS asked"
        return self if whole else Database(self.address, query=query)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(self._columns)

    @property
    def sql(self) -> DatabaseKind:
        """What this kind of database writes in its own way."""
        return _KINDS[self.kind]

    def family(self, name: str) -> Family:
        """What sort of values a column holds, by its type."""
        return self._columns[name][0]

    @cached_property
    def num_rows(self) -> int:
        """How many rows there are, as the database counts them."""
        return int(self.frame(f"SELECT COUNT(*) AS n FROM {self.rows}")["n"].item())

    @property
    def rows(self) -> str:
        """All rows in SQL, to be selected from; what has no plain type is text or a number.

        Texts are compared byte by byte, whatever collation their column has. No cell stops the
        query: datetimes beyond the years 1 to 9999 are the nearest ones within, numbers that no
        double holds are infinite or 0.
        """
        columns = ", ".join(one for _, one in self._columns.values())
        # What is computed is computed once a row, and not at each place where it is compared.
        plain = all(one == f"{quoted(n)} AS {quoted(n)}" for n, (_, one) in self._columns.items())
        fence = "" if plain else self.sql.fence
        return f"(SELECT {columns} FROM {self._source} AS asked{fence}) AS siloweave"

    def frame(self, select: str) -> pl.DataFrame:
        """What a SELECT gives.

        Raises:
            DataError: The database is away, or refuses the query.
            InputError: A package is not installed.
        """
        with self._opened() as line:
            return line.frame(select)

    def grouped(
        self,
        values: Sequence[str],
        head: str = "",
        rows: str = "",
        *,
        most: int | None = None,
        numbers: bool = False,
    ) -> list[pl.DataFrame]:
        """Count rows by each of some expressions, in as few queries as the database allows.

        Args:
            values: SQL over `rows`.
            head: What comes before the SELECT.
            rows: What to select from; all rows of the table if empty.
            most: Groups that a query may give.
            numbers: Whether all expressions are whole numbers, which then come in one column.

        Returns:
            A frame for each expression: its values in column ``v``, and how many rows in ``n``.
            Where there are more groups, there is no frame.
        """
        found: list[pl.DataFrame] = []
        limit = "" if most is None else f" LIMIT {most}"
        with self._opened() as line:
            for start in range(0, len(values), self.sql.together):
                some = values[start : start + self.sql.together]
                names = [f"v{i}" for i in range(len(some))]
                made = ", ".join(f"{one} AS {n}" for one, n in zip(some, names, strict=True))
                which, groups = "0", names[0]
                if len(some) > 1:
                    cases = (f"WHEN GROUPING({n}) = 0 THEN {i}" for i, n in enumerate(names))
                    which = f"CASE {' '.join(cases)} END"
                    groups = f"GROUPING SETS ({', '.join(f'({n})' for n in names)})"
                one = f"COALESCE({', '.join(names)}, NULL) AS v" if numbers else ", ".join(names)
                frame = line.frame(
                    f"{head}SELECT {one}, {which} AS g, COUNT(*) AS n FROM "
                    f"(SELECT {made} FROM {rows or self.rows}) AS made GROUP BY {groups}{limit}"
                )
                for i, name in enumerate(names):
                    own = pl.col("v" if numbers else name).alias("v")
                    found.append(frame.filter(pl.col("g") == i).select(own, "n"))
                if frame.height == most:
                    return []
        return found

    def pieces(self) -> Iterator[pl.DataFrame]:
        """Return the rows in an order that is the same each time, some at a time."""
        with self._opened() as line:
            if self.sql.ordered:
                line.frame(self.sql.ordered)
            held: list[pl.DataFrame] = []
            for piece in line.pieces(f"SELECT * FROM {self.rows}"):
                held.append(piece)
                if sum(part.height for part in held) >= _PIECE:
                    yield self._readable(pl.concat(held))
                    held = []
            if held:
                yield self._readable(pl.concat(held))

    def read(self, share: float = 1.0, secret: bytes = b"") -> pl.DataFrame:
        """The rows as the query orders them, each with a chance of its own; see `read.sampled`.

        The database draws: a row is there if SHA-256 of the secret and of its place is small. A row
        that is added moves the places of others, so with this secret other rows are drawn.

        **Guarantee**: places have chances that are independent of each other and of the rows, as
        far as nobody distinguishes SHA-256 under a secret key from random bits, and every row has a
        place of its own. So whatever places the rows have, each is drawn with the chance `share`,
        independently of all others: with one row more the drawn rows have the distribution of the
        same draw with or without that row. That holds for one secret and one order of the rows. A
        secret must be fresh for each run and never be used where the query gives its rows in
        another order, since rows that meet at a place at two times are drawn together.
        """
        if not share:
            return pl.DataFrame(schema={n: _FRAMES[kind] for n, (kind, _) in self._columns.items()})
        rows, place = f"SELECT * FROM {self.rows}", quoted("place of siloweave")
        if share < 1:
            digest = self.sql.digest.format(f"'{secret.hex()}/' || CAST({place} AS TEXT)")
            placed = f"SELECT *, ROW_NUMBER() OVER () AS {place} FROM {self.rows}"
            names = ", ".join(map(quoted, self.names))
            limit = f"'{int(share * 2**64):016x}'"
            rows = f"SELECT {names} FROM ({placed}) AS placed WHERE {digest} < {limit}"
        with self._opened() as line:
            if self.sql.ordered:
                line.frame(self.sql.ordered)
            return self._readable(line.frame(rows))

    def _readable(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame of `rows` with durations as such, and cells of several types as text."""
        lasting = [name for name in self.names if self.family(name) == "duration"]
        return _with_texts(frame).with_columns(pl.col(name).cast(DURATION) for name in lasting)

    @property
    def _source(self) -> str:
        if self.table:
            return ".".join(quoted(part) for part in self.table.split("."))
        return f"(\n{self.query.strip().rstrip(';')}\n)"

    @cached_property
    def _columns(self) -> dict[str, tuple[Family, str]]:
        """What each column holds, and the column in SQL."""
        with self._opened() as line:
            names = line.names(f"SELECT * FROM {self._source} AS asked LIMIT 0")
            if len(set(names)) < len(names):
                raise DataError(f"{self.address}: two columns have one name; rename one of them")
            types = self.sql.types(line.frame, self._source, names)
        found: dict[str, tuple[Family, str]] = {}
        for name, kind in types.items():
            family, column = _in_sql(kind, quoted(name))
            found[name] = family, f"{column} AS {quoted(name)}"
        return found

    @contextmanager
    def _opened(self) -> Iterator[_Line]:
        """A connection with one transaction, which only reads."""
        if (file := self.file) is not None and not file.is_file():
            raise DataError(f"there is no database {str(file)!r}; check the path in {self.address}")
        try:
            caught = (self.sql.error(), pl.exceptions.PolarsError)
        except ModuleNotFoundError as error:
            raise InputError(
                f"{self.address} needs the package {error.name}: pip install 'siloweave[sql]'"
            ) from None
        try:
            with self.sql.connect(self) as line:
                yield line
        except caught as error:
            raise DataError(f"{self.address}: {_why(error)}") from None


def _in_sql(kind: str, column: str) -> tuple[Family, str]:
    """What a column of a type holds, and the column in SQL, where no cell stops a query."""
    if kind == _CELLS:
        # The sign takes away the type that the table declares, by which texts become numbers.
        return "cells", f"+{column}"
    bare = kind.partition("(")[0]
    family, target = _CAST.get(bare, (_FAMILIES.get(kind, "text"), "{0}"))
    if family == "text":
        return family, column if kind == _BINARY else f'CAST({column} AS TEXT) COLLATE "C"'
    column = target.format(column)
    if family == "datetime":
        first, last = _ends(kind)
        column = (
            f"CASE WHEN {column} < {first} THEN {first} WHEN {column} > {last} THEN {last} "
            f"ELSE {column} END"
        )
    return family, column


def _ends(kind: str) -> tuple[str, str]:
    """The first and last datetime that is read, as a type has them."""
    if kind == "DATE":
        return f"DATE '{_FIRST}'", f"DATE '{_LAST}'"
    first, last = f"{_FIRST} 00:00:00", f"{_LAST} 23:59:59.999999"
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"TIMESTAMPTZ '{first}+00'", f"TIMESTAMPTZ '{last}+00'"
    return f"TIMESTAMP '{first}'", f"TIMESTAMP '{last}'"


def source_of(word: str | Path) -> Path | Database:
    """Rows as a word of the command line names them.

    Example:
        >>> source_of("sqlite:///ward.db#SELECT age FROM stays").query
        'SELECT age FROM stays'
    """
    address, _, what = str(word).partition("#")
    if "://" not in address:
        return Path(word)
    if not what.strip():
        raise InputError(f"{word}: say which table or view of the database, as in {word}#stays")
    asks = what.split()[0].upper() in ("SELECT", "WITH") and len(what.split()) > 1
    return Database(address, query=what) if asks else Database(address, what)


def _has_password(address: str) -> bool:
    """Whether an address has one, or is no URL and so may have."""
    try:
        url = urlsplit(address)
        return url.password is not None or "password" in url.query.lower()
    except ValueError:
        return True


def _why(error: Exception) -> str:
    """What went wrong and what to do, without what may quote a row."""
    text = str(error).partition("\n")[0]
    text = text.partition(": ")[2] if text.partition(": ")[0].isupper() else text  # ADBC's status
    state = getattr(error, "sqlstate", None) or ""
    named = text.partition(" Error:")[0] in _TELLING_NAMES
    if state[:2] in _TELLING or named or isinstance(error, sqlite3.OperationalError):
        return f"{text}. Check the address, the table or query, and that you may read it"
    if not state and "connection to server" in text:
        return f"{text}. Check that the server runs, the address, and where the password is"
    what = f"{type(error).__name__} {state}".strip()
    return (
        f"the query was stopped by an error ({what}), whose text is left out since it may quote a "
        "row. Run the query in the database's own program to see it"
    )


# Each kind of database


def _dbapi() -> Any:
    return import_module("adbc_driver_manager.dbapi")


class DatabaseKind(NamedTuple):
    """How a kind of database is reached, and what it writes in its own way."""

    error: Callable[[], type[Exception]]  # what it raises; ModuleNotFoundError without its package
    connect: Callable[[Database], AbstractContextManager[_Line]]
    types: Callable[[Callable[[str], pl.DataFrame], str, Sequence[str]], dict[str, str]]
    binary: str  # a text, or a cell of SQLite, as what is equal where bytes are
    microseconds: str  # a date or timestamp since 1970, UTC
    nan: str  # whether a number is NaN
    digest: str  # SHA-256 of a text, in hexadecimal
    ordered: str = ""  # a SELECT after which all of a table comes in one order each time
    time: str = ""  # a timestamp by its text, where it is not compared faster in microseconds
    divided: str = "/"  # the sign of a division of whole numbers
    fence: str = ""  # ends a subquery that shall be computed once
    together: int = _TOGETHER  # groupings of a query

    def real(self, value: float) -> str:
        """A float64, exactly; SQLite's own reading of decimals may err in the last bit."""
        if self.together > 1:
            return f"CAST('{value!r}' AS DOUBLE PRECISION)"
        if isinf(value):
            return "9e999" if value > 0 else "-9e999"
        mantissa, power = frexp(value)
        text, power = f"{int(mantissa * 2**53)}.0", power - 53
        while power:
            some = max(-60, min(60, power))
            text, power = f"{text}{'*' if some > 0 else '/'}{2 ** abs(some)}.0", power - some
        return f"({text})"


@contextmanager
def _duckdb(database: Database) -> Iterator[_Line]:
    options = {
        "path": str(database.file),
        "access_mode": "READ_ONLY",
        "memory_limit": _MEMORY,
        "temp_directory": tempfile.gettempdir(),
    }
    connected = _dbapi().connect(
        driver=import_module("adbc_driver_duckdb").driver_path(),
        entrypoint="duckdb_adbc_init",
        db_kwargs=options,
        autocommit=True,
    )
    with connected as connection, connection.cursor() as cursor:
        yield _adbc(cursor)


@contextmanager
def _postgresql(database: Database) -> Iterator[_Line]:
    connected = import_module("adbc_driver_postgresql.dbapi").connect(database.address)
    with connected as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute(_SETTINGS)
        yield _adbc(cursor)


def _adbc(cursor: Any) -> _Line:
    def frame(sql: str) -> pl.DataFrame:
        cursor.execute(sql)
        return pl.DataFrame(cursor.fetch_arrow())

    def pieces(sql: str) -> Iterator[pl.DataFrame]:
        cursor.execute(sql)
        for batch in cursor.fetch_record_batch():
            yield pl.DataFrame(batch)

    def names(sql: str) -> list[str]:
        cursor.execute(sql)
        return [one[0] for one in cursor.description or ()]

    return _Line(frame, pieces, names)


@contextmanager
def _sqlite(database: Database) -> Iterator[_Line]:
    file = quote(str(Path(database.file or "").absolute()))
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        connection.create_function("sha256", 1, lambda text: sha256(text.encode()).hexdigest())
        # A byte that is no UTF-8 would stop the query.
        connection.text_factory = lambda held: held.decode(errors="replace")

        def names(sql: str) -> list[str]:
            return [one[0] for one in connection.execute(sql).description or ()]

        def frame_of(cursor: sqlite3.Cursor, rows: Sequence[Any]) -> pl.DataFrame:
            found = [one[0] for one in cursor.description]
            columns = list(zip(*rows, strict=True)) or [()] * len(found)
            return pl.DataFrame([_series(n, v) for n, v in zip(found, columns, strict=True)])

        def pieces(sql: str) -> Iterator[pl.DataFrame]:
            cursor = connection.execute(sql)
            while rows := cursor.fetchmany(_PIECE):
                yield frame_of(cursor, rows)

        def frame(sql: str) -> pl.DataFrame:
            cursor = connection.execute(sql)
            return frame_of(cursor, cursor.fetchall())

        yield _Line(frame, pieces, names)


def _series(name: str, values: Sequence[Any]) -> pl.Series:
    """A column of SQLite, where every value has a type of its own; objects where these differ."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int, float} and all(abs(v) <= _EXACT for v in values if isinstance(v, int)):
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    if len(kinds) > 1 or bytes in kinds:
        return pl.Series(name, values, dtype=pl.Object)
    return pl.Series(name, values, dtype=None if kinds else pl.Null)


def _with_texts(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame in which columns of several types are text, each cell as it is read by itself."""
    mixed = [name for name, dtype in frame.schema.items() if dtype == pl.Object]
    return frame.with_columns(
        pl.Series(name, [as_text(cell) for cell in frame[name].to_list()], dtype=pl.String)
        for name in mixed
    )


def as_text(cell: str | int | float | bytes | None) -> str | None:
    """Return a cell of SQLite as text: a whole number by its digits, bytes as no value.

    Example:
        >>> as_text(3.0), as_text(0.5), as_text(b"3")
        ('3', '0.5', '<bytes>')
    """
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        return _BYTES
    whole = isinstance(cell, int) or cell.is_integer()
    return str(int(cell)) if whole else repr(cell)


def _duckdb_types(run: Any, source: str, _: Sequence[str]) -> dict[str, str]:
    return dict(run(_DESCRIBED.format(source)).rows())


def _postgresql_types(run: Any, source: str, names: Sequence[str]) -> dict[str, str]:
    columns = [f"s.{quoted(name)}" for name in names]
    empty = f"(SELECT 1) AS o LEFT JOIN {source} AS s ON FALSE"
    of_types = (f"pg_typeof({c})::text AS t{i}" for i, c in enumerate(columns))
    encoding = "current_setting('server_encoding') AS encoding"
    ((*row, encoding),) = run(f"SELECT {', '.join(of_types)}, {encoding} FROM {empty}").rows()
    types = {name: kind.upper() for name, kind in zip(names, row, strict=True)}
    types |= {name: _ZONED for name, kind in types.items() if kind == "TIMESTAMP WITH TIME ZONE"}

    # Texts are grouped fastest as plain columns, where their collation is known to be binary.
    texts = [name for name, kind in types.items() if kind in ("TEXT", "CHARACTER VARYING")]
    if texts:
        rules = (f"pg_collation_for(s.{quoted(t)}) AS t{i}" for i, t in enumerate(texts))
        (found,) = run(f"SELECT {', '.join(rules)} FROM {empty}").rows()
        binary = {t for t, rule in zip(texts, found, strict=True) if rule in _DETERMINISTIC}
        types |= dict.fromkeys(binary, _BINARY)

    # Without an encoding, one cell could hold bytes that are no text, and stop every query.
    texts = [name for name, kind in types.items() if _in_sql(kind, name)[0] == "text"]
    if encoding == "SQL_ASCII" and texts:
        raise DataError(
            f"column {texts[0]!r} is text in a database without an encoding (SQL_ASCII), where one "
            "cell may hold bytes that are no text; copy the table to a database in UTF8"
        )
    return types


def _sqlite_types(run: Any, source: str, names: Sequence[str]) -> dict[str, str]:
    for name in names:
        column = quoted(name)
        try:
            run(f"SELECT {column} = {column} AS a FROM {source} AS asked LIMIT 0")
        except sqlite3.OperationalError as error:
            if "no such collation" not in str(error):
                raise
            raise DataError(
                f"column {name!r} is compared by rules of the program that wrote the file "
                f"({error}), so it cannot be grouped byte by byte; make it a plain text in the "
                f"query: SELECT {column} || '' AS {column}"
            ) from None
    return dict.fromkeys(names, _CELLS)


_KINDS = {
    "duckdb": DatabaseKind(
        lambda: (import_module("adbc_driver_duckdb"), _dbapi().Error)[1],
        _duckdb,
        _duckdb_types,
        "encode({})",
        "epoch_us({})",
        "isnan({})",
        "sha256({})",
        divided="//",
    ),
    "sqlite": DatabaseKind(
        lambda: sqlite3.Error,
        _sqlite,
        _sqlite_types,
        "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) WHEN 'blob' THEN '' ELSE {0} END",
        "",
        "({} IS NULL)",
        "sha256({})",
        together=1,
    ),
    "postgresql": DatabaseKind(
        lambda: (import_module("adbc_driver_postgresql"), _dbapi().Error)[1],
        _postgresql,
        _postgresql_types,
        "{}",
        "CAST(EXTRACT(EPOCH FROM {}) * 1000000 AS BIGINT)",
        "({} = 'NaN')",
        "(encode(sha256(convert_to({}, 'UTF8')), 'hex') COLLATE \"C\")",
        "SELECT set_config('max_parallel_workers_per_gather', '0', TRUE) AS a, "
        "set_config('synchronize_seqscans', 'off', TRUE) AS b",
        time="TIMESTAMP '{}'",
        fence=" OFFSET 0",
    ),
}
