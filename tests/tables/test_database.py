"""Databases: what is read from them, what is refused, and what an error does not say."""

import sqlite3
import sys
from contextlib import closing
from itertools import combinations

import numpy as np
import pytest
from tests.tables.databases import (
    ODD,
    SECRET,
    STAYS,
    check_intervals,
    duckdb,
    in_duckdb,
    in_sqlite,
    needs_duckdb,
    odd_table,
    postgresql_server,
)

import siloweave as sw
from siloweave.datasets import adult, adult_schema
from siloweave.errors import DataError, InputError
from siloweave.statistics.marginals import marginal
from siloweave.tables.codes import Encoder
from siloweave.tables.counted import counted
from siloweave.tables.database import Database
from siloweave.tables.read import ParquetFile, read, rows_of, sampled, unread
from siloweave.tables.table import Table, digest_of
from siloweave.tables.write import write


@needs_duckdb
def test_a_table_of_duckdb_is_read_with_its_types(tmp_path):
    table = odd_table(50)
    database = in_duckdb(table, tmp_path)
    found = read(database)
    assert digest_of(found) == digest_of(table)
    whole = read(database.address, query='SELECT "ward\'s", id FROM visits ORDER BY id DESC;')
    assert whole.values("id").tolist() == list(range(49, -1, -1))
    assert read(database.address, table="main.visits", columns=["id"]).names == ("id",)


@needs_duckdb
def test_types_without_a_plain_one_are_numbers_or_texts(tmp_path):
    with duckdb.connect(str(tmp_path / "a.duckdb")):
        pass
    query = (
        "SELECT 1.5::DECIMAL(5, 2) AS a, 2::HUGEINT AS b, 'x'::ENUM('x', 'y') AS c, [1, 2] AS d,"
        " INTERVAL 1 DAY AS e, NULL AS f, TIMESTAMP_NS '2020-01-02 03:04:05' AS g, TRUE AS h"
    )
    found = read(f"duckdb:///{tmp_path / 'a.duckdb'}", query=query)
    kinds = ["numbers", "numbers", "text", "text"]
    kinds += ["whole numbers", "nothing", "datetimes", "booleans"]
    assert [found.kind(name) for name in found.names] == kinds
    assert (found.unit("e"), found.values("e").tolist()) == ("days", [1])
    assert str(found.values("g")[0]) == "2020-01-02T03:04:05.000000"


def test_a_table_of_sqlite_is_read(tmp_path):
    table = odd_table(50)
    found = read(in_sqlite(table, tmp_path))
    assert found.values("weight").tolist() == table.values("weight").tolist()
    assert found.missing("age").tolist() == table.missing("age").tolist()


def test_a_column_of_sqlite_that_mixes_types_is_read_cell_by_cell(tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection, connection:
        cells = "(1, 1), (2.0, 2.5), (0.5, NULL), ('x', 9007199254740993), (x'00', 2), (NULL, 0)"
        connection.executescript(f"CREATE TABLE t (a, b); INSERT INTO t VALUES {cells};")
        connection.execute("INSERT INTO t (a) VALUES (CAST(x'ff41' AS TEXT))")
    found = read(f"sqlite:///{tmp_path / 'a.sqlite'}", table="t")
    texts = ["1", "2", "0.5", "x", "<bytes>", None, "\ufffdA"]
    assert found.values("a").tolist() == texts
    assert found.values("b").tolist() == ["1", "2.5", None, "9007199254740993", "2", "0", None]


def test_a_collation_of_another_program_is_refused_with_its_column(tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection, connection:
        connection.create_collation("folded", lambda one, other: (one > other) - (one < other))
        connection.execute("CREATE TABLE t (age, name TEXT COLLATE folded)")
        connection.execute("INSERT INTO t VALUES (3, 'a')")
    address = f"sqlite:///{tmp_path / 'a.sqlite'}"
    with pytest.raises(DataError, match="column 'name' is compared by rules of the program") as why:
        read(address, table="t")
    query = str(why.value).partition(": SELECT ")[2]
    assert read(address, query=f"SELECT age, {query} FROM t").values("name").tolist() == ["a"]


def test_a_sample_has_about_as_many_rows_as_asked(tmp_path):
    database = in_sqlite(odd_table(4000), tmp_path)
    assert 800 < rows_of(database, 1000).num_rows < 1200
    assert rows_of(database, 5000).num_rows == 4000
    assert rows_of(database, 0).names == database.names


def test_nothing_is_written(tmp_path):
    database = in_sqlite(odd_table(5), tmp_path)
    with pytest.raises(DataError, match="near"):
        read(database.address, query="DELETE FROM visits")
    assert database.num_rows == 5


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (f"postgresql://ana:{SECRET}@db/ward", "holds a password"),
        (f"postgresql://ana@db/ward?password={SECRET}", "holds a password"),
        (f"postgresql://ana@db/ward?sslpassword={SECRET}", "holds a password"),
        (f"postgresql://[ana:{SECRET}@db/ward", "holds a password"),
        (f"ana:{SECRET}@db", "must begin with duckdb://"),
        ("duckdb:///", "names no file"),
        ("mysql://db/ward", "must begin with duckdb://"),
    ],
)
def test_an_address_with_a_password_or_of_another_kind_is_refused(address, problem):
    with pytest.raises(InputError, match=problem) as caught:
        Database(address, table="stays")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_table_or_a_query_is_named():
    for facts in ({}, {"table": "a", "query": "SELECT 1"}):
        with pytest.raises(InputError, match="give a table or a query, and not both"):
            Database("sqlite:///a.sqlite", **facts)
    with pytest.raises(InputError, match=r"give Database\(address, table=...\)"):
        read("sqlite:///a.sqlite")


@needs_duckdb
@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELEC 1", "Parser Error"),
        ("SELECT * FROM nowhere", "nowhere does not exist"),
        ("SELECT nope FROM visits", "nope"),
        ('SELECT CAST("ward\'s" AS INTEGER) AS a FROM visits', "the query was stopped by an error"),
    ],
)
def test_an_error_is_about_the_query_and_quotes_no_row(tmp_path, query, problem):
    database = in_duckdb(odd_table(50), tmp_path)
    with pytest.raises(DataError, match=problem) as caught:
        read(database.address, query=query)
    assert "x y" not in str(caught.value)
    assert "a'b" not in str(caught.value)


def test_a_package_that_is_missing_is_named(monkeypatch, tmp_path):
    (tmp_path / "a.duckdb").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "adbc_driver_duckdb", None)
    with pytest.raises(InputError, match=r"pip install '\.\[sql\]'"):
        read(f"duckdb:///{tmp_path / 'a.duckdb'}", table="a")


# Parquet


def test_parquet_is_coded_in_pieces_as_in_one(tmp_path, monkeypatch):
    from siloweave.protocols.schema import coded_part

    monkeypatch.setattr(sys.modules["siloweave.tables.read"], "_BATCH_ROWS", 300)
    table, encoder = odd_table(1000), Encoder(ODD, 7)
    write(table, tmp_path / "a.parquet")
    file = unread(tmp_path / "a.parquet")
    assert isinstance(file, ParquetFile)
    assert [one.num_rows for one in file.batches()] == [300, 300, 300, 100]
    assert coded_part(file, encoder).digest() == encoder.encode(table).digest()
    few = Encoder(ODD.select(["age"]), 7)
    wrong = Table.from_columns({"age": (np.arange(-100, 900), None)})
    write(wrong, tmp_path / "b.parquet")
    with pytest.raises(sw.SiloweaveError, match="'age': 95 rows are outside its bounds"):
        coded_part(unread(tmp_path / "b.parquet"), few)
    write(table.take([]), tmp_path / "c.parquet")
    assert coded_part(unread(tmp_path / "c.parquet"), encoder).num_rows == 0


# PostgreSQL


@pytest.fixture(scope="module")
def server():
    """The address of a PostgreSQL server of these tests."""
    with postgresql_server() as address:
        yield address


@pytest.fixture
def filled(server, monkeypatch):
    """The server, with a function that writes a table into it."""
    from adbc_driver_postgresql import dbapi

    monkeypatch.setenv("PGPASSWORD", SECRET)

    def fill(table: Table, name: str) -> Database:
        with dbapi.connect(server) as connection, connection.cursor() as cursor:
            frame = table.framed("arrow").to_native()
            cursor.adbc_ingest(name, frame, mode="replace")
            connection.commit()
        return Database(server, table=name)

    return fill


@pytest.mark.slow
def test_intervals_of_postgresql_are_durations(server, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", SECRET)
    check_intervals(Database(server, query=STAYS))


@pytest.mark.slow
def test_postgresql_counts_what_the_table_in_memory_has(filled):
    table = odd_table()
    database = filled(table, "visits")
    for bins in (1, 7, 64, 100, 4096):
        encoder = Encoder(ODD, bins)
        codes, there = encoder.encode(table), counted(database, encoder)
        for name in encoder.domain.names:
            np.testing.assert_array_equal(marginal(there, (name,)), marginal(codes, (name,)), name)
    encoder = Encoder(ODD, 7)
    pairs = list(combinations(encoder.domain.names, 2))
    codes, there = encoder.encode(table), counted(database, encoder, pairs)
    for pair in pairs:
        np.testing.assert_array_equal(marginal(there, pair), marginal(codes, pair), pair)


@pytest.mark.slow
def test_postgresql_draws_the_rows_that_sqlite_draws(filled, tmp_path):
    table, secret = odd_table(), b"s" * 32
    drawn = [sampled(one, 0.1, secret) for one in (filled(table, "visits"),
                                                   in_sqlite(table, tmp_path))]  # fmt: skip
    there, lite = (one.values("id").tolist() for one in drawn)
    assert there == lite
    assert 300 < len(there) < 500
    assert drawn[0].names == table.names


@pytest.mark.slow
def test_a_fit_in_postgresql_is_that_of_a_csv(filled, tmp_path):
    write(adult(), tmp_path / "adult.csv")
    database = filled(adult(), "adult")
    budget = sw.Budget(1.0, 1e-6)
    fits = [
        sw.AIM(max_model_mb=2).fit(part, adult_schema(), budget=budget, noise="seeded")
        for part in (tmp_path / "adult.csv", database)
    ]
    held, there = ({c: t.tobytes() for c, t in f.model.mrf.potentials.items()} for f in fits)
    assert held == there
    rows = [fit.sample_table(1000, seed=0) for fit in fits]
    assert all(rows[0].values(n).tolist() == rows[1].values(n).tolist() for n in rows[0].names)


@pytest.mark.slow
def test_postgresql_says_what_is_wrong_without_a_password_or_a_row(filled, server, monkeypatch):
    filled(odd_table(50), "visits")
    away = server.rpartition(":")[0] + ":1/postgres"
    cases = [
        (Database(away, table="visits"), "Connection refused.* Check that the server runs"),
        (Database(server, table="nowhere"), '"nowhere" does not exist'),
        (Database(server, query="SELEC 1"), "syntax error"),
        (Database(server, query="SELECT 1 AS a, 2 AS a"), "two columns have one name"),
        (Database(server, query="SELECT 1 / (id - id) AS a FROM visits"), "stopped by an error"),
        (Database(server, query="DELETE FROM visits RETURNING 1"), "syntax error"),
    ]
    for database, problem in cases:
        with pytest.raises(DataError, match=problem) as caught:
            read(database)
        assert SECRET not in str(caught.value)
    odd = read(Database(server, query="SELECT 1.5::numeric AS a, '1 day'::interval AS b"))
    assert [odd.kind(name) for name in odd.names] == ["numbers", "whole numbers"]
    assert odd.unit("b") == "days"
    monkeypatch.setenv("PGPASSWORD", "another")
    with pytest.raises(DataError, match="password authentication failed") as caught:
        read(Database(server, table="visits"))
    assert "another" not in str(caught.value)
