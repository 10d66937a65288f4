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
from siloweave.tables.parsing import DURATION, texts_of_mixed

Family = Literal[
    "whole", "number", "boolean", "datetime", "duration", "text", "nothing", "cells"
]
"""What sort of values a column of a database holds; "cells" of SQLite have a type each."""

# That DuckDB takes; what needs more goes to the system's temporary files.
_MEMORY = "1GB"
# Groupings of one query.
_MOST_TOGETHER = 32
# Rows of a piece of a table that is read piece by piece.
_PIECE_ROWS = 200_000

_WHOLE_TYPES = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
)
_TIME_TYPES = (
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE",
    "TIMESTAMP WITHOUT TIME ZONE",
)
# Types that are read as they are.
_FAMILIES: dict[str, Family] = {
    **dict.fromkeys(_WHOLE_TYPES, "whole"),
    **dict.fromkeys(("DOUBLE", "DOUBLE PRECISION"), "number"),
    **dict.fromkeys(_TIME_TYPES, "datetime"),
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
_SECONDS = "CAST(EXTRACT(EPOCH FROM {0}) AS DOUBLE PRECISION)"
_MICROSECONDS = (
    f"CASE WHEN {_SECONDS} > 9.2e12 THEN 9200000000000000000 "
    f"WHEN {_SECONDS} < -9.2e12 THEN -9200000000000000000 "
    f"ELSE CAST(ROUND({_SECONDS} * 1000000) AS BIGINT) END"
)
# What PostgreSQL's timestamp with a time zone is called here; it is compared in UTC.
_ZONED = "zoned timestamp"
# Other types are cast: to one of these, or to text.
_CASTS: dict[str, tuple[Family, str]] = {
    **dict.fromkeys(("REAL", "FLOAT", "DECIMAL"), ("number", _DOUBLE)),
    **dict.fromkeys(("HUGEINT", "UBIGINT", "UHUGEINT"), ("number", _DOUBLE)),
    "NUMERIC": ("number", _NUMERIC),
    **dict.fromkeys(
        ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
        ("datetime", "TRY_CAST({0} AS TIMESTAMP)"),
    ),
    "INTERVAL": ("duration", _MICROSECONDS),
    _ZONED: ("datetime", "({0} AT TIME ZONE 'UTC')"),
}
# Days that Python has. A database has others, and infinite ones.
_FIRST_DAY = "0001-01-01"
_LAST_DAY = "9999-12-31"
# The type of every column of SQLite.
_CELLS = "cells"
# Texts come in UTF-8, and a backslash in one stands for itself.
_SETTINGS = (
    "SELECT set_config('client_encoding', 'UTF8', TRUE) AS a, "
    "set_config('standard_conforming_strings', 'on', TRUE) AS b"
)
# The type of texts that PostgreSQL compares byte by byte.
_BINARY = "binary text"
# Its collations for which texts are equal only if their bytes are; a database's own is so, too.
_DETERMINISTIC = ('"default"', '"C"', '"POSIX"')
BYTES = "<bytes>"
"""How a cell of bytes in SQLite is read: as a text that is no value."""
# Whole numbers up to here are float64.
_LARGEST_EXACT = 2**53
_POLARS_TYPES: dict[Family, Any] = {
    "whole": pl.Int64,
    "number": pl.Float64,
    "boolean": pl.Boolean,
    "datetime": pl.Datetime("us"),
    "duration": DURATION,
    "text": pl.String,
    "nothing": pl.Null,
    "cells": pl.Null,
}
# DuckDB's way to name a query's columns and their types.
_DESCRIBED = "SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {} AS asked)"
# How PostgreSQL numbers, and DuckDB names, errors that are about a query, a connection or a server.
_SAFE_STATES = ("08", "28", "3D", "42", "53", "57", "0A", "25")
_SAFE_ERRORS = (
    "Parser",
    "Binder",
    "Catalog",
    "IO",
    "Connection",
    "Permission",
    "Out of Memory",
)


def quoted(name: str) -> str:
    """Quote a name for SQL; a quotation mark in it is doubled."""
    return '"' + name.replace('"', '""') + '"'


class _Connection(NamedTuple):
    """An open connection: functions that run a SELECT, whole or in pieces, or name its columns."""

    frame: Callable[[str], pl.DataFrame]
    pieces: Callable[[str], Iterator[pl.DataFrame]]
    names: Callable[[str], list[str]]


class _Column(NamedTuple):
    """A column's sort of values, and the SQL that selects it."""

    family: Family
    selected: str


@dataclass(frozen=True)
class Database:
    """A table in a database, or the result of a query; nothing is read before it is needed.

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
        kind, mark, path = self.address.partition("://")
        if not mark or kind not in _KINDS:
            beginnings = ", ".join(f"{name}://" for name in _KINDS)
            raise InputError(f"the address of a database must begin with {beginnings}")
        if _has_password(self.address):
            raise InputError(
                "the address of a database holds a password; take it out, and put it into the "
                "environment (PGPASSWORD) or into ~/.pgpass, so that no file or log has it"
            )
        if kind != "postgresql" and not path.removeprefix("/"):
            raise InputError(
                f"address={self.address!r} names no file; write {kind}:///file.db"
            )
        if bool(self.table) == bool(self.query.strip()):
            raise InputError(f"{self.address}: give a table or a query, and not both")

    @property
    def kind(self) -> str:
        """The kind of database: duckdb, sqlite or postgresql."""
        return self.address.partition("://")[0]

    @property
    def file(self) -> Path | None:
        """The database's file; None for a database on a server."""
        if self.kind == "postgresql":
            return None
        path = self.address.partition("://")[2].removeprefix("/")
        return Path(unquote(path))

    def below(self, folder: str | Path) -> Database:
        """Return the same database, with the path of its file relative to a folder."""
        file = self.file
        if file is None or file.is_absolute():
            return self
        absolute_path = Path(folder).absolute() / file
        address = f"{self.kind}:///{quote(str(absolute_path))}"
        return Database(address, self.table, self.query)

    def select(self, names: Sequence[str]) -> Database:
        """Return the same rows, some columns in the order given; itself if these are all.

        Raises:
            DataError: There is no such column.
        """
        absent_names = [name for name in names if name not in self.names]
        if absent_names:
            raise DataError(
                f"{self.address} has no column {absent_names[0]!r}; it has {', '.join(self.names)}"
            )
        if tuple(names) == self.names:
            return self
        columns = ", ".join(map(quoted, names))
        query = f"SELECT {columns} FROM {self._source} AS asked"
        return Database(self.address, query=query)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(self._columns)

    @property
    def sql(self) -> DatabaseKind:
        """The SQL that this kind of database writes in its own way."""
        return _KINDS[self.kind]

    def family(self, name: str) -> Family:
        """Return the sort of values in a column, by the column's type."""
        return self._columns[name].family

    @cached_property
    def num_rows(self) -> int:
        """The number of rows, as the database counts them."""
        count = self.frame(f"SELECT COUNT(*) AS n FROM {self.rows}")
        return int(count["n"].item())

    @property
    def rows(self) -> str:
        """SQL to select all rows from, in which every column has a plain type.

        A type that is not plain becomes text or a number.

        Texts are compared byte by byte, whatever collation their column has. No cell stops the
        query: datetimes beyond the years 1 to 9999 are the nearest ones within, numbers that no
        double holds are infinite or 0.
        """
        columns = [column.selected for column in self._columns.values()]
        names = [quoted(name) for name in self._columns]
        plain_columns = [f"{name} AS {name}" for name in names]
        # What is computed is computed once a row, and not at each place where it is compared.
        fence = "" if columns == plain_columns else self.sql.fence
        selected = ", ".join(columns)
        return f"(SELECT {selected} FROM {self._source} AS asked{fence}) AS siloweave"

    def frame(self, select: str) -> pl.DataFrame:
        """Run a SELECT, and return its result.

        Raises:
            DataError: The database is away, or refuses the query.
            InputError: A package is not installed.
        """
        with self._opened() as connection:
            return connection.frame(select)

    def grouped(
        self,
        values: Sequence[str],
        head: str = "",
        rows: str = "",
        *,
        most: int | None = None,
        numbers: bool = False,
    ) -> list[pl.DataFrame]:
        """Count the rows by each of some expressions, in as few queries as the database allows.

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
        frames: list[pl.DataFrame] = []
        limit = "" if most is None else f" LIMIT {most}"
        num_together = self.sql.together
        with self._opened() as connection:
            for start in range(0, len(values), num_together):
                query_values = values[start : start + num_together]
                select = _grouping(query_values, rows or self.rows, numbers=numbers)
                groups = connection.frame(f"{head}{select}{limit}")
                for place in range(len(query_values)):
                    is_of_value = pl.col("g") == place
                    value_column = "v" if numbers else f"v{place}"
                    value = pl.col(value_column).alias("v")
                    frames.append(groups.filter(is_of_value).select(value, "n"))
                # At the limit, groups may be missing, and with them rows.
                if groups.height == most:
                    return []
        return frames

    def pieces(self) -> Iterator[pl.DataFrame]:
        """Yield the rows some at a time, in an order that is the same each time."""
        with self._opened() as connection:
            if self.sql.ordered:
                connection.frame(self.sql.ordered)
            batches: list[pl.DataFrame] = []
            for batch in connection.pieces(f"SELECT * FROM {self.rows}"):
                batches.append(batch)
                if sum(batch.height for batch in batches) >= _PIECE_ROWS:
                    yield self._readable(pl.concat(batches))
                    batches = []
            if batches:
                yield self._readable(pl.concat(batches))

    def read(self, share: float = 1.0, secret: bytes = b"") -> pl.DataFrame:
        """Return rows as the query orders them, each with a chance of its own; see `read.sampled`.

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
            types = {}
            for name, column in self._columns.items():
                types[name] = _POLARS_TYPES[column.family]
            return pl.DataFrame(schema=types)

        select = f"SELECT * FROM {self.rows}"
        if share < 1:
            place = quoted("place of siloweave")
            placed = f"SELECT *, ROW_NUMBER() OVER () AS {place} FROM {self.rows}"
            message = f"'{secret.hex()}/' || CAST({place} AS TEXT)"
            digest = self.sql.digest.format(message)
            # Texts of hexadecimal digits are in the order of their numbers; the first 16 are 64
            # bits, which are below this bound with probability `share`.
            bound = f"'{int(share * 2**64):016x}'"
            names = ", ".join(map(quoted, self.names))
            select = (
                f"SELECT {names} FROM ({placed}) AS placed WHERE {digest} < {bound}"
            )
        with self._opened() as connection:
            if self.sql.ordered:
                connection.frame(self.sql.ordered)
            return self._readable(connection.frame(select))

    def _readable(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Give durations in a frame of `rows` their type, and write mixed columns as text."""
        durations = []
        for name in self.names:
            if self.family(name) == "duration":
                durations.append(pl.col(name).cast(DURATION))
        return _with_texts(frame).with_columns(durations)

    @property
    def _source(self) -> str:
        """SQL of the table or the query, to select from."""
        if self.table:
            return ".".join(quoted(part) for part in self.table.split("."))
        # The line break ends a comment at the end of the query.
        return f"(\n{self.query.strip().rstrip(';')}\n)"

    @cached_property
    def _columns(self) -> dict[str, _Column]:
        """The columns' sorts of values and their SQL, by name."""
        with self._opened() as connection:
            no_rows = f"SELECT * FROM {self._source} AS asked LIMIT 0"
            names = connection.names(no_rows)
            if len(set(names)) < len(names):
                raise DataError(
                    f"{self.address}: two columns have one name; rename one of them"
                )
            types = self.sql.types(connection.frame, self._source, names)

        columns = {}
        for name, column_type in types.items():
            family, expression = _in_sql(column_type, quoted(name))
            columns[name] = _Column(family, f"{expression} AS {quoted(name)}")
        return columns

    @contextmanager
    def _opened(self) -> Iterator[_Connection]:
        """Open a connection with a single transaction, which only reads."""
        file = self.file
        if file is not None and not file.is_file():
            raise DataError(
                f"there is no database {str(file)!r}; check the path in {self.address}"
            )
        try:
            errors = (self.sql.error(), pl.exceptions.PolarsError)
        except ModuleNotFoundError as error:
            raise InputError(
                f"{self.address} needs the package {error.name}: pip install '.[sql]' in the clone"
            ) from None
        try:
            with self.sql.connect(self) as connection:
                yield connection
        except errors as error:
            raise DataError(f"{self.address}: {_reason(error)}") from None


def _grouping(values: Sequence[str], rows: str, *, numbers: bool) -> str:
    """Write a SELECT that counts rows by each of some expressions.

    Column ``g`` has the expression's number, ``n`` the count. Values of the first expression are
    in column ``v0`` and so on, or of all in ``v`` where they are numbers.
    """
    names = [f"v{place}" for place in range(len(values))]
    pairs = zip(values, names, strict=True)
    columns = ", ".join(f"{value} AS {name}" for value, name in pairs)
    value_number = "0"
    groups = names[0]
    if len(values) > 1:
        # GROUPING is 0 for the expression that a row of the result is grouped by.
        cases = []
        for place, name in enumerate(names):
            cases.append(f"WHEN GROUPING({name}) = 0 THEN {place}")
        value_number = f"CASE {' '.join(cases)} END"
        sets = ", ".join(f"({name})" for name in names)
        groups = f"GROUPING SETS ({sets})"
    results = ", ".join(names)
    if numbers:
        results = f"COALESCE({results}, NULL) AS v"
    return (
        f"SELECT {results}, {value_number} AS g, COUNT(*) AS n FROM "
        f"(SELECT {columns} FROM {rows}) AS made GROUP BY {groups}"
    )


def _in_sql(column_type: str, column: str) -> tuple[Family, str]:
    """Return the sort of values of a column's type, and SQL in which no cell stops a query."""
    if column_type == _CELLS:
        # The sign takes away the type that the table declares, by which texts become numbers.
        return "cells", f"+{column}"

    type_name = column_type.partition("(")[0]
    as_it_is: tuple[Family, str] = (_FAMILIES.get(column_type, "text"), "{0}")
    family, cast = _CASTS.get(type_name, as_it_is)
    if family == "text":
        if column_type == _BINARY:
            return family, column
        return family, f'CAST({column} AS TEXT) COLLATE "C"'

    value = cast.format(column)
    if family == "datetime":
        first, last = _first_and_last(column_type)
        value = (
            f"CASE WHEN {value} < {first} THEN {first} WHEN {value} > {last} THEN {last} "
            f"ELSE {value} END"
        )
    return family, value


def _first_and_last(column_type: str) -> tuple[str, str]:
    """Return the first and the last datetime that can be read, as a type has them."""
    if column_type == "DATE":
        return f"DATE '{_FIRST_DAY}'", f"DATE '{_LAST_DAY}'"
    first = f"{_FIRST_DAY} 00:00:00"
    last = f"{_LAST_DAY} 23:59:59.999999"
    if column_type == "TIMESTAMP WITH TIME ZONE":
        return f"TIMESTAMPTZ '{first}+00'", f"TIMESTAMPTZ '{last}+00'"
    return f"TIMESTAMP '{first}'", f"TIMESTAMP '{last}'"


def source_of(word: str | Path) -> Path | Database:
    """Read the source of rows from a word of the command line: a path, or a database.

    Example:
        >>> source_of("sqlite:///ward.db#SELECT age FROM stays").query
        'SELECT age FROM stays'
    """
    address, _, selection = str(word).partition("#")
    if "://" not in address:
        return Path(word)
    if not selection.strip():
        raise InputError(
            f"{word}: say which table or view of the database, as in {word}#stays"
        )
    # A table may be called "select"; a query has more than one word.
    words = selection.split()
    is_query = words[0].upper() in ("SELECT", "WITH") and len(words) > 1
    if is_query:
        return Database(address, query=selection)
    return Database(address, table=selection)


def _has_password(address: str) -> bool:
    """Return whether an address has a password, or may have one as it is no URL."""
    try:
        url = urlsplit(address)
        return url.password is not None or "password" in url.query.lower()
    except ValueError:
        return True


def _reason(error: Exception) -> str:
    """Describe what went wrong and what to do, without text that may quote a row."""
    message = str(error).partition("\n")[0]
    # ADBC writes its status in capitals before the database's own message.
    status, _, database_message = message.partition(": ")
    if status.isupper():
        message = database_message

    state = getattr(error, "sqlstate", None) or ""
    is_safe_state = state[:2] in _SAFE_STATES
    is_safe_error = message.partition(" Error:")[0] in _SAFE_ERRORS
    is_operational = isinstance(error, sqlite3.OperationalError)
    if is_safe_state or is_safe_error or is_operational:
        return f"{message}. Check the address, the table or query, and that you may read it"
    if not state and "connection to server" in message:
        return f"{message}. Check that the server runs, the address, and where the password is"
    name = f"{type(error).__name__} {state}".strip()
    return (
        f"the query was stopped by an error ({name}), whose text is left out since it may quote a "
        "row. Run the query in the database's own program to see it"
    )


# Each kind of database


class DatabaseKind(NamedTuple):
    """The way to reach a kind of database, and the SQL that it writes in its own way.

    Attributes:
        error: Returns what it raises; raises ModuleNotFoundError without its package.
        connect: Opens a database.
        types: Returns the types of a source's columns, by way of a function that runs a SELECT.
        binary: A text, or a cell of SQLite, as what is equal where bytes are.
        microseconds: A date or timestamp since 1970, UTC.
        nan: Whether a number is NaN.
        digest: SHA-256 of a text, in hexadecimal.
        ordered: A SELECT after which all of a table comes in one order each time.
        time: A timestamp by its text, where it is not compared faster in microseconds.
        divided: The sign of a division of whole numbers.
        fence: Ends a subquery that shall be computed once.
        together: Groupings of a query.
    """

    error: Callable[[], type[Exception]]
    connect: Callable[[Database], AbstractContextManager[_Connection]]
    types: Callable[[Callable[[str], pl.DataFrame], str, Sequence[str]], dict[str, str]]
    binary: str
    microseconds: str
    nan: str
    digest: str
    ordered: str = ""
    time: str = ""
    divided: str = "/"
    fence: str = ""
    together: int = _MOST_TOGETHER

    def real(self, value: float) -> str:
        """Write a float64 in SQL, exactly: SQLite's own reading of decimals may err."""
        if self.together > 1:
            return f"CAST('{value!r}' AS DOUBLE PRECISION)"
        if isinf(value):
            return "9e999" if value > 0 else "-9e999"

        # A whole number of 53 bits, times powers of 2, none of which is rounded in SQLite.
        mantissa, exponent = frexp(value)
        text = f"{int(mantissa * 2**53)}.0"
        power = exponent - 53
        while power:
            # SQLite reads powers of 2 up to this one exactly.
            step = max(-60, min(60, power))
            sign = "*" if step > 0 else "/"
            text = f"{text}{sign}{2 ** abs(step)}.0"
            power -= step
        return f"({text})"


def _dbapi() -> Any:
    """Import the package that connects to databases by ADBC."""
    return import_module("adbc_driver_manager.dbapi")


def _duckdb_error() -> type[Exception]:
    """Return DuckDB's class of errors; ModuleNotFoundError names the package if it is missing."""
    import_module("adbc_driver_duckdb")
    error: type[Exception] = _dbapi().Error
    return error


def _postgresql_error() -> type[Exception]:
    """Return PostgreSQL's class of errors; ModuleNotFoundError names a missing package."""
    import_module("adbc_driver_postgresql")
    error: type[Exception] = _dbapi().Error
    return error


@contextmanager
def _duckdb(database: Database) -> Iterator[_Connection]:
    """Open a file of DuckDB."""
    options = {
        "path": str(database.file),
        "access_mode": "READ_ONLY",
        "memory_limit": _MEMORY,
        "temp_directory": tempfile.gettempdir(),
    }
    opened = _dbapi().connect(
        driver=import_module("adbc_driver_duckdb").driver_path(),
        entrypoint="duckdb_adbc_init",
        db_kwargs=options,
        autocommit=True,
    )
    with opened as connection, connection.cursor() as cursor:
        yield _adbc(cursor)


@contextmanager
def _postgresql(database: Database) -> Iterator[_Connection]:
    """Open a database of PostgreSQL."""
    driver = import_module("adbc_driver_postgresql.dbapi")
    opened = driver.connect(database.address)
    with opened as connection, connection.cursor() as cursor:
        # All queries of a connection see the rows of one moment.
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute(_SETTINGS)
        yield _adbc(cursor)


def _adbc(cursor: Any) -> _Connection:
    """Wrap a cursor of ADBC as a connection."""

    def frame(sql: str) -> pl.DataFrame:
        cursor.execute(sql)
        return pl.DataFrame(cursor.fetch_arrow())

    def pieces(sql: str) -> Iterator[pl.DataFrame]:
        cursor.execute(sql)
        for batch in cursor.fetch_record_batch():
            yield pl.DataFrame(batch)

    def names(sql: str) -> list[str]:
        cursor.execute(sql)
        return _names_of(cursor)

    return _Connection(frame, pieces, names)


def _names_of(cursor: Any) -> list[str]:
    """Return the names of the columns in a cursor's result."""
    return [column[0] for column in cursor.description or ()]


@contextmanager
def _sqlite(database: Database) -> Iterator[_Connection]:
    """Open a file of SQLite."""
    path = Path(database.file or "").absolute()
    address = f"file:{quote(str(path))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        connection.create_function("sha256", 1, _sha256)
        # A byte that is no UTF-8 would stop the query.
        connection.text_factory = lambda data: data.decode(errors="replace")

        def names(sql: str) -> list[str]:
            return _names_of(connection.execute(sql))

        def pieces(sql: str) -> Iterator[pl.DataFrame]:
            cursor = connection.execute(sql)
            while rows := cursor.fetchmany(_PIECE_ROWS):
                yield _sqlite_frame(cursor, rows)

        def frame(sql: str) -> pl.DataFrame:
            cursor = connection.execute(sql)
            return _sqlite_frame(cursor, cursor.fetchall())

        yield _Connection(frame, pieces, names)


def _sha256(text: str) -> str:
    """Hash a text with SHA-256, in hexadecimal: a function that SQLite lacks."""
    return sha256(text.encode()).hexdigest()


def _sqlite_frame(cursor: sqlite3.Cursor, rows: Sequence[Any]) -> pl.DataFrame:
    """Build a frame from rows of SQLite."""
    names = _names_of(cursor)
    # Without a row, there are columns all the same.
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    pairs = zip(names, columns, strict=True)
    return pl.DataFrame([_series(name, cells) for name, cells in pairs])


def _series(name: str, cells: Sequence[Any]) -> pl.Series:
    """Build a column from cells of SQLite, which have a type each; objects if the types differ."""
    types = {type(cell) for cell in cells} - {type(None)}
    if types == {int, float}:
        whole_numbers = [cell for cell in cells if isinstance(cell, int)]
        if all(abs(number) <= _LARGEST_EXACT for number in whole_numbers):
            return pl.Series(name, cells, dtype=pl.Float64, strict=False)
    if len(types) > 1 or bytes in types:
        return pl.Series(name, cells, dtype=pl.Object)
    if not types:
        return pl.Series(name, cells, dtype=pl.Null)
    return pl.Series(name, cells)


def _with_texts(frame: pl.DataFrame) -> pl.DataFrame:
    """Write the columns of a frame that mix types as text, bytes as a mark.

    Each cell has the text that it has in a column of its own type.
    """
    columns = []
    for name, dtype in frame.schema.items():
        if dtype == pl.Object:
            cells: list[Any] = frame[name].to_list()
            for place, cell in enumerate(cells):
                if isinstance(cell, bytes):
                    cells[place] = BYTES
            columns.append(pl.Series(name, texts_of_mixed(cells), dtype=pl.String))
    return frame.with_columns(columns)


def _duckdb_types(run: Any, source: str, _: Sequence[str]) -> dict[str, str]:
    """Return the type of each column of a table or a query of DuckDB."""
    return dict(run(_DESCRIBED.format(source)).rows())


def _postgresql_types(run: Any, source: str, names: Sequence[str]) -> dict[str, str]:
    """Return the type of each column of a table or a query of PostgreSQL.

    Raises:
        DataError: Bytes of a text may be no text.
    """
    # One row without a value in any column of the source, which has their types.
    empty_row = f"(SELECT 1) AS o LEFT JOIN {source} AS s ON FALSE"
    columns = []
    for place, name in enumerate(names):
        columns.append(f"pg_typeof(s.{quoted(name)})::text AS t{place}")
    columns.append("current_setting('server_encoding') AS encoding")
    (row,) = run(f"SELECT {', '.join(columns)} FROM {empty_row}").rows()
    *type_names, encoding = row
    types = {}
    for name, type_name in zip(names, type_names, strict=True):
        is_zoned = type_name.upper() == "TIMESTAMP WITH TIME ZONE"
        types[name] = _ZONED if is_zoned else type_name.upper()

    # Texts are grouped fastest as plain columns, where their collation is known to be binary.
    text_types = ("TEXT", "CHARACTER VARYING")
    texts = [name for name, type_name in types.items() if type_name in text_types]
    if texts:
        rules = []
        for place, name in enumerate(texts):
            rules.append(f"pg_collation_for(s.{quoted(name)}) AS t{place}")
        (collations,) = run(f"SELECT {', '.join(rules)} FROM {empty_row}").rows()
        for name, collation in zip(texts, collations, strict=True):
            if collation in _DETERMINISTIC:
                types[name] = _BINARY

    # Without an encoding, one cell could hold bytes that are no text, and stop every query.
    texts = []
    for name, type_name in types.items():
        family, _ = _in_sql(type_name, name)
        if family == "text":
            texts.append(name)
    if encoding == "SQL_ASCII" and texts:
        raise DataError(
            f"column {texts[0]!r} is text in a database without an encoding (SQL_ASCII), where one "
            "cell may hold bytes that are no text; copy the table to a database in UTF8"
        )
    return types


def _sqlite_types(run: Any, source: str, names: Sequence[str]) -> dict[str, str]:
    """Return the types of columns of SQLite, which all have the same one here.

    Raises:
        DataError: A column's texts are compared by rules that are not in the file.
    """
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
        error=_duckdb_error,
        connect=_duckdb,
        types=_duckdb_types,
        binary="encode({})",
        microseconds="epoch_us({})",
        nan="isnan({})",
        digest="sha256({})",
        divided="//",
    ),
    "sqlite": DatabaseKind(
        error=lambda: sqlite3.Error,
        connect=_sqlite,
        types=_sqlite_types,
        binary=(
            "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) WHEN 'blob' THEN '' ELSE {0} END"
        ),
        microseconds="",
        nan="({} IS NULL)",
        digest="sha256({})",
        together=1,
    ),
    "postgresql": DatabaseKind(
        error=_postgresql_error,
        connect=_postgresql,
        types=_postgresql_types,
        binary="{}",
        microseconds="CAST(EXTRACT(EPOCH FROM {}) * 1000000 AS BIGINT)",
        nan="({} = 'NaN')",
        digest="(encode(sha256(convert_to({}, 'UTF8')), 'hex') COLLATE \"C\")",
        ordered=(
            "SELECT set_config('max_parallel_workers_per_gather', '0', TRUE) AS a, "
            "set_config('synchronize_seqscans', 'off', TRUE) AS b"
        ),
        time="TIMESTAMP '{}'",
        fence=" OFFSET 0",
    ),
}
