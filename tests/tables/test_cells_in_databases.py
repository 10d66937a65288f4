"""A cell of a database is read by itself: one row more changes no other row's codes.

For every kind of column, and a list of odd cells that a column of a database can hold, the counts
of some rows and of these with one more row differ by one row, or both are the same refusal; and
they are those of the table that the database gives.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pytest
from tests.tables.databases import SECRET, duckdb, needs_duckdb, postgresql_server

from siloweave.errors import DataError, SchemaError
from siloweave.tables.codes import Encoder
from siloweave.tables.column import Column
from siloweave.tables.counted import counted
from siloweave.tables.database import Database
from siloweave.tables.queries import query_warnings
from siloweave.tables.read import read
from siloweave.tables.schema import Schema

LARGEST = 2**63 - 1
TEXTS = (
    "", " ", "?", "n/a", " n/a", "A", "a", "a ", " a", "ä", "Ä", "a\u0308", "b", "flu", "Flu",
    "1", " 1", "01", "1.0", "1.5", "2.5", "1,5", "1e3", "1e400", "-1e400", "-0.0", "NaN", "inf",
    "999", "-9", "true", "FALSE", "0", "2020-02-29", "2020-02-30", "20200229", "0001-01-01",
    "9999-12-31", "2020-02-29T12:30:00", "+5", "٣", "'; --", "\\", "x" * 300,
)  # fmt: skip
ALIKE = ("a", "A", "a ", " a", "Ä", "ä", "A\u0308", "flu", "Flu", "FLU ", "B", "n/a", "N/A", "")
"""Texts that some collations take to be equal."""
NUMBERS = (
    0.0, -0.0, 1.0, 1.5, 2.5, -0.5, 0.5, 99.5, 100.5, 3.0, 999.0, -9.0, 1e308, -1e308, 5e-324,
    float("inf"), float("-inf"), 2.0**53, 2.0**62, 2.0**63, -(2.0**63), 1e19, 0.1, 1e-7,
    100.00000000000001, 100.000001, -1e-13, -1e-9,
)  # fmt: skip
WHOLE = (0, 1, 2, 3, -1, -9, 99, 100, 101, 999, 2**31, 2**53 + 1, 2**62, LARGEST, -LARGEST - 1)
TIMES = (
    "2020-02-29 00:00:00", "2020-02-29 12:30:00.123456", "1969-12-31 23:59:59", "0001-01-01",
    "9999-12-31 23:59:59.999999", "infinity", "-infinity", "20000-01-01", "2020-01-01",
)  # fmt: skip

BOUNDS = {"low": 0, "high": 100}
COLUMNS = (
    Column("x", "integer", **BOUNDS),
    Column("x", "continuous", **BOUNDS),
    Column("x", "categorical", categories=("a", "b", "flu", "rest"), other="rest"),
    Column("x", "categorical", categories=("a", "b", "flu", "")),
    Column("x", "categorical", categories=(1, 2, 3, 999)),
    Column("x", "categorical", categories=(0.1, 1.0, 2.5)),
    Column("x", "boolean"),
    Column("x", "boolean", categories=("a", "b")),
    Column("x", "datetime", low="2000-01-01", high="2030-12-31"),
    Column("x", "datetime", low="1969-12-31T20:00:00", high="2030-01-02T00:00:00"),
)
PLACES = (
    {"outside": "move", "missing": True},
    {"outside": "move", "missing": True, "missing_values": ("n/a", "999", "2020-02-29")},
    {"outside": "move", "fallback": True},
    {"outside": "refuse"},
    {"outside": "refuse", "missing": True, "missing_values": ("n/a", "999")},
)
"""What becomes of a cell that does not fit."""


def variants(places: Sequence[dict]) -> Schema:
    """Every column with every place; a fallback is the last value."""
    columns = []
    for column in COLUMNS:
        for place in places:
            facts = {name: getattr(column, name) for name in column.__struct_fields__} | place
            if place.get("fallback"):
                facts["fallback"] = column.options[-1] if column.options else column.high
            columns.append(Column(**facts | {"name": f"x{len(columns)}"}))
    return Schema(tuple(columns))


MOVING, REFUSING = variants(PLACES[:3]), variants(PLACES[3:])


def rows(source: Database, chosen: str, names: Sequence[str]) -> Database:
    """Some rows of `cells`, whose column `x` has many names."""
    columns = ", ".join(f'x AS "{name}"' for name in names)
    return Database(source.address, query=f"SELECT {columns} FROM cells WHERE {chosen}")


EVERY = [pytest.param(8, id="an eighth"), pytest.param(1, id="all", marks=pytest.mark.slow)]
"""Each how many cells are added by themselves: that takes a seventh of a second each."""


def check_cells(source: Database, count: int, every: int = 1) -> None:
    """Assert that rows 1 to `count` of `cells`, one more each, move no other row.

    Rows up to 0 are the rows that each of them is added to. Of the others each `every`-th is added
    by itself, and then all of them at once.
    """
    encoder, names = Encoder(MOVING, 7), MOVING.names

    def counts(chosen: str) -> tuple[list, dict]:
        codes = counted(rows(source, chosen, names), encoder)
        return codes.count([(name,) for name in names]), dict(codes.moved)

    everything = read(rows(source, "i > 0 ORDER BY i", names))
    fewer, moved = counts("i <= 0")
    for i in range(1, count + 1, every):
        alone = encoder.read(everything.take([i - 1]))
        more, moved_more = counts(f"i <= 0 OR i = {i}")
        for name, less, found in zip(names, fewer, more, strict=True):
            place = int(alone.codes.column(name)[0])
            expected = less + (np.arange(len(less)) == place)
            np.testing.assert_array_equal(found, expected, f"{name} of row {i}")
            change = moved_more.get(name, 0) - moved.get(name, 0)
            assert change == alone.moved.get(name, 0), f"{name} of row {i}"

    # All of them at once, beside a table in memory.
    found, moved = counts("i > 0")
    expected = encoder.read(everything)
    for name, table in zip(names, found, strict=True):
        np.testing.assert_array_equal(table, expected.codes.count([(name,)])[0], name)
    assert moved == dict(expected.moved)


def check_refusals(source: Database, count: int, fitting: Sequence[int]) -> None:
    """Assert that a row more is refused exactly where it is refused alone, by the same words."""
    for column in REFUSING.columns:
        encoder = Encoder(Schema((column,)), 7)

        def outcome(chosen: str, encoder: Encoder = encoder, name: str = column.name) -> str:
            try:
                counted(rows(source, chosen, [name]), encoder)
            except SchemaError as error:
                return str(error)
            return ""

        alone = {i: outcome(f"i = {i}") for i in range(1, count + 1)}
        base = [i for i in fitting if not alone[i]]
        others = f"i IN ({', '.join(map(str, base))})" if base else "i > 10000"
        for i, refusal in alone.items():
            assert outcome(f"{others} OR i = {i}") == refusal, f"{column} and row {i}"


WARDS = Schema((Column("x", "categorical", categories=("a", "rest"), other="rest"),))


def check_nine_hundred(before: Database, after: Database) -> None:
    """Assert that 900 rows stay where they are when a row is added before all of them."""
    found = [counted(one, Encoder(WARDS)).count([("x",)])[0].tolist() for one in (before, after)]
    assert found == [[900, 0], [900, 1]]


# SQLite


@pytest.mark.parametrize(("rule", "more"), [("NOCASE", "A"), ("RTRIM", "a  b")])
def test_in_sqlite_a_text_like_others_does_not_move_them(tmp_path, rule, more):
    found = []
    for name, cells in (("before", []), ("after", [more])):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as connection, connection:
            connection.execute(f"CREATE TABLE cells (x TEXT COLLATE {rule})")
            held = [[cell] for cell in [*cells, *["a"] * 450, *["a"] * 450]]
            connection.executemany("INSERT INTO cells VALUES (?)", held)
        found.append(Database(f"sqlite:///{tmp_path / name}.sqlite", table="cells"))
    check_nine_hundred(*found)


def in_sqlite(folder, declared: str, cells: Sequence) -> Database:
    """A file with cells 1, 2 and so on, and some that others are added to."""
    with closing(sqlite3.connect(folder / "a.sqlite")) as connection, connection:
        connection.execute(f"CREATE TABLE cells (i INTEGER, x {declared})")
        base = ["a", "flu", "b ", "1", 1, 2.5, "2020-02-29", None, "A", b"a"]
        held = [(-i, cell) for i, cell in enumerate(base)]
        held += [(i, cell) for i, cell in enumerate(cells, 1)]
        connection.executemany("INSERT INTO cells VALUES (?, ?)", held)
        last = len(cells) + 1
        connection.execute(f"INSERT INTO cells VALUES ({last}, CAST(X'FF41' AS TEXT))")
    return Database(f"sqlite:///{folder / 'a.sqlite'}", table="cells")


CELLS = (*TEXTS, *NUMBERS, *WHOLE, None, "a\0b", "flu\0", b"a", b"", b"\xff\x00", b"1")


DECLARED = ("TEXT COLLATE NOCASE", "TEXT COLLATE RTRIM", "INTEGER", "REAL", "NUMERIC")


@pytest.mark.parametrize("every", EVERY)
def test_in_sqlite_one_row_more_moves_no_other(tmp_path, every):
    check_cells(in_sqlite(tmp_path, "", CELLS), len(CELLS) + 1, every)


@pytest.mark.parametrize("odd", ["text", b"bytes", 2**60 + 1])
def test_in_sqlite_a_number_is_written_alike_whatever_stands_beside_it(tmp_path, odd):
    """1e-07 was another category than 1e-7, and 1e+22 one of 23 digits, beside a text."""
    numbers = [1e-07, 0.00001, 0.5, 3.0, -0.0, 1e22, 5e18]
    texts = []
    for name, cells in (("before", numbers), ("after", [*numbers, odd])):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as connection, connection:
            connection.execute("CREATE TABLE cells (x)")
            connection.executemany("INSERT INTO cells VALUES (?)", [[cell] for cell in cells])
        database = Database(f"sqlite:///{tmp_path / name}.sqlite", table="cells")
        texts.append(read(database).labels("x", str).to_list()[: len(numbers)])
    assert texts[0] == texts[1] == ["1e-7", "0.00001", "0.5", "3", "0", "1e+22", "5e+18"]


@pytest.mark.parametrize("declared", DECLARED)
def test_a_declared_type_of_sqlite_changes_nothing(tmp_path, declared):
    check_cells(in_sqlite(tmp_path, declared, CELLS), len(CELLS) + 1, 25)


@pytest.mark.slow
@pytest.mark.parametrize("declared", DECLARED)
def test_no_cell_in_a_declared_type_of_sqlite_moves_another(tmp_path, declared):
    check_cells(in_sqlite(tmp_path, declared, CELLS), len(CELLS) + 1)


def test_in_sqlite_a_refusal_is_of_one_row(tmp_path):
    cells = (*TEXTS[::3], *NUMBERS[::3], *WHOLE[::3], None, b"a", "a\0b")
    source = in_sqlite(tmp_path, "", cells)
    check_refusals(source, len(cells), range(1, len(cells)))


# DuckDB and PostgreSQL

TYPES = {
    "text": ("VARCHAR", [*TEXTS, None]),
    "double": ("DOUBLE PRECISION", [*map(repr, NUMBERS), "NaN", None]),
    "bigint": ("BIGINT", [*map(str, WHOLE), None]),
    "integer": ("INTEGER", ["0", "1", "3", "-9", "99", "101", "999", "2147483647", None]),
    "real": ("REAL", ["0", "-0.0", "1.5", "2.5", "8.9", "999", "Infinity", "NaN", None]),
    "boolean": ("BOOLEAN", ["true", "false", None]),
    "timestamp": ("TIMESTAMP", [*TIMES, None]),
    "zoned": ("TIMESTAMP WITH TIME ZONE", [*(f"{one}+02" for one in TIMES[:3]), *TIMES[3:], None]),
    "date": ("DATE", ["2020-02-29", "0001-01-01", "9999-12-31", "infinity", "-infinity",
                      "200000-01-01", None]),
}  # fmt: skip
DUCKDB = TYPES | {
    "nocase": ("VARCHAR COLLATE NOCASE", ALIKE),
    "noaccent": ("VARCHAR COLLATE NOACCENT", ALIKE),
    "both": ("VARCHAR COLLATE NOCASE.NOACCENT", ALIKE),
    "german": ("VARCHAR COLLATE de", ALIKE),
    "decimal": ("DECIMAL(18, 3)", ["0", "1", "1.5", "2.5", "-0.5", "999", "100.001", None]),
    "hugeint": ("HUGEINT", ["0", "1", "999", str(2**100), str(-(2**100)), None]),
    "bytes": ("BLOB", ["a", "flu", "", "1", None]),
    "list": ("INTEGER[]", ["[1]", "[]", None]),
    "choice": ("ENUM ('a', 'A', 'flu', '1', '?')", ["a", "flu", "1", "?", None]),
}
BASES = {
    "double": ["1.0", "2.5"], "bigint": ["1", "2"], "integer": ["1", "2"], "real": ["1", "2.5"],
    "boolean": ["true"], "timestamp": TIMES[:1], "zoned": TIMES[:1], "date": ["2020-02-29"],
    "decimal": ["1", "2.5"], "numeric": ["1", "2.5"], "hugeint": ["1", "2"], "list": ["[1]"],
}  # fmt: skip
TEXT_BASE = ["a", "a", "A", "flu", "1", "?"]


@needs_duckdb
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("kind", DUCKDB)
def test_in_duckdb_one_row_more_moves_no_other(tmp_path, kind, every):
    declared, cells = DUCKDB[kind]
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute(f"CREATE TABLE cells (i INTEGER, x {declared})")
        held = [[-i, cell] for i, cell in enumerate(BASES.get(kind, TEXT_BASE))]
        held += [[i, cell] for i, cell in enumerate(cells, 1)]
        insert = f"INSERT INTO cells VALUES (?, CAST(? AS {declared.partition(' COLLATE')[0]}))"
        connection.executemany(insert, held)
        if declared.startswith("VARCHAR"):
            zero = f"INSERT INTO cells VALUES ({len(cells) + 1}, 'flu' || chr(0))"
            connection.execute(zero)
    count = len(cells) + declared.startswith("VARCHAR")
    check_cells(Database(f"duckdb:///{tmp_path / 'a.duckdb'}", table="cells"), count, every)


@needs_duckdb
@pytest.mark.parametrize(("rule", "more"), [("NOCASE", "A"), ("NOACCENT", "ä"), ("de", "a\u00ad")])
def test_in_duckdb_a_text_like_others_does_not_move_them(tmp_path, rule, more):
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        for name, first in (("before", ""), ("after", f"('{more}'),")):
            values = f"VALUES {first} {', '.join(['(chr(97))'] * 900)}"
            connection.execute(f"CREATE TABLE {name} (x VARCHAR COLLATE {rule})")
            connection.execute(f"INSERT INTO {name} {values}")
    address = f"duckdb:///{tmp_path / 'a.duckdb'}"
    check_nine_hundred(Database(address, table="before"), Database(address, table="after"))


POSTGRESQL = TYPES | {
    "nocase": ('TEXT COLLATE "nocase"', ALIKE),
    "noaccent": ('VARCHAR COLLATE "noaccent"', ALIKE),
    "citext": ("CITEXT", ALIKE),
    "char": ("CHAR(20)", ALIKE),
    "numeric": ("NUMERIC", [*map(repr, NUMBERS), "NaN", "1e400", "-1e400", "1e-400", "-1e-400",
                            "2.5", None]),
    "bytes": ("BYTEA", ["a", "flu", "", "1", None]),
    "list": ("INTEGER[]", ["{1}", "{}", None]),
}  # fmt: skip


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL server with collations for which texts are equal that are not."""
    with postgresql_server() as address:
        yield address


@pytest.fixture
def run(server, monkeypatch):
    """What runs statements in the server."""
    from adbc_driver_postgresql import dbapi

    monkeypatch.setenv("PGPASSWORD", SECRET)

    def statements(*texts: str) -> None:
        with dbapi.connect(server) as connection, connection.cursor() as cursor:
            for text in texts:
                cursor.execute(text)
            connection.commit()

    facts = "provider = icu, deterministic = false, locale ="
    statements(
        "CREATE EXTENSION IF NOT EXISTS citext",
        f"CREATE COLLATION IF NOT EXISTS nocase ({facts} 'und-u-ks-level2')",
        f"CREATE COLLATION IF NOT EXISTS noaccent ({facts} 'und-u-ks-level1')",
    )
    return statements


@pytest.mark.slow
@pytest.mark.parametrize("kind", POSTGRESQL)
def test_in_postgresql_one_row_more_moves_no_other(server, run, kind):
    declared, cells = POSTGRESQL[kind]
    base = ["{1}"] if kind == "list" else BASES.get(kind, TEXT_BASE)
    held = [(-i, cell) for i, cell in enumerate(base)] + list(enumerate(cells, 1))

    def literal(cell: str | None) -> str:
        return "NULL" if cell is None else "'" + cell.replace("'", "''") + "'"

    bare = declared.partition(" COLLATE")[0]
    values = ", ".join(f"({i}, CAST({literal(cell)} AS {bare}))" for i, cell in held)
    run(
        "DROP TABLE IF EXISTS cells",
        f"CREATE TABLE cells (i INTEGER, x {declared})",
        f"INSERT INTO cells VALUES {values}",
    )
    check_cells(Database(server, table="cells"), len(cells))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("declared", "more"),
    [('TEXT COLLATE "nocase"', "A"), ('TEXT COLLATE "noaccent"', "ä"), ("CITEXT", "A")],
)
def test_in_postgresql_a_text_like_others_does_not_move_them(server, run, declared, more):
    for name, cells in (("before", []), ("after", [more])):
        values = ", ".join(f"('{cell}')" for cell in [*cells, *["a"] * 900])
        run(
            f"DROP TABLE IF EXISTS {name}",
            f"CREATE TABLE {name} (x {declared})",
            f"INSERT INTO {name} VALUES {values}",
        )
    check_nine_hundred(Database(server, table="before"), Database(server, table="after"))


@pytest.mark.slow
def test_a_postgresql_database_without_an_encoding_is_refused(server, run):
    address = server.rpartition("/")[0] + "/plain"
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(server, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE plain ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(DataError, match=r"column 'b' is text .* \(SQL_ASCII\).* in UTF8"):
        read(Database(address, query="SELECT 1 AS a, 'x' AS b"))
    assert read(Database(address, query="SELECT 1 AS a")).values("a").tolist() == [1]


@pytest.mark.slow
def test_texts_of_a_postgresql_database_in_latin_1_are_read(server, run):
    address = server.rpartition("/")[0] + "/latin"
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(server, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    source = Database(address, query="SELECT 'Z' || chr(252) || 'rich' AS x")
    assert read(source).values("x").tolist() == ["Zürich"]
    schema = Schema((Column("x", "categorical", categories=("Zürich", "rest"), other="rest"),))
    assert counted(source, Encoder(schema)).count([("x",)])[0].tolist() == [1, 0]


@pytest.mark.slow
def test_views_of_postgresql_are_looked_at(server, run):
    run(
        "CREATE TABLE IF NOT EXISTS seen (a INTEGER)",
        "CREATE OR REPLACE VIEW few AS SELECT DISTINCT a FROM seen",
        "CREATE OR REPLACE VIEW all_of_them AS SELECT a FROM few",
    )
    for source in (Database(server, table="public.few"), Database(server, table="all_of_them")):
        (warning,) = query_warnings(source)
        assert "the view 'few' has DISTINCT" in warning
    assert query_warnings(Database(server, table="seen")) == []
