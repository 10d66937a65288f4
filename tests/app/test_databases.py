"""A study whose parties' rows are in databases: checked, counted there, and run as from files."""

import sqlite3
from contextlib import ExitStack, closing

import pytest

from siloweave.app.check import forecast
from siloweave.app.network import party_in, provision
from siloweave.app.run import execute
from siloweave.app.study import Study
from siloweave.errors import InputError
from siloweave.tables.database import Database
from siloweave.tables.read import read

ROWS = '{ database = "sqlite:///ward.sqlite", query = "SELECT age, sex, job FROM stays" }'


@pytest.fixture
def stored(folder):
    """The study's folder, where north's rows are in a database."""
    table = read(folder.path / "north.csv")
    columns = [table.values(name).tolist() for name in table.names]
    with closing(sqlite3.connect(folder.path / "ward.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE stays (age INTEGER, sex TEXT, job TEXT)")
        rows = zip(*columns, strict=True)
        connection.executemany("INSERT INTO stays VALUES (?, ?, ?)", rows)
    folder.replace("study.toml", 'data = "north.csv"', f"data = {ROWS}")
    return folder


def test_a_run_is_that_of_the_same_rows_in_a_file(folder, stored):
    there, _ = execute(Study.load(stored.path), noise="seeded")
    rows = (stored.path / "run" / "synthetic.csv").read_bytes()
    owner = (stored.path / "run" / "report-owner.html").read_text()
    stored.replace("study.toml", f"data = {ROWS}", 'data = "north.csv"')
    stored.replace("study.toml", "[method]", '[output]\nfolder = "again"\n\n[method]')
    here, _ = execute(Study.load(stored.path), noise="seeded")
    assert (stored.path / "again" / "synthetic.csv").read_bytes() == rows
    assert there.epsilon == here.epsilon
    assert "north" in owner


def test_check_says_what_is_counted_and_what_is_loaded(stored):
    found = forecast(Study.load(stored.path))
    assert "north: counted in sqlite, no row is loaded" in found.notes
    stored.replace("study.toml", "[schema]", "[schema]\nlearn = 0.1")
    found = forecast(Study.load(stored.path))
    assert "north: counted in sqlite, columns with open facts are read" in found.notes
    stored.replace("study.toml", "learn = 0.1\n", "")
    stored.replace("study.toml", 'name = "flaim"\nrounds = 2\nparticipation = 1.0\nbins = 4',
                   'name = "fed_tgan"')  # fmt: skip
    stored.replace("study.toml", "[budget]\nepsilon = 1\ndelta = 1e-5\n", "")
    (note,) = (one for one in forecast(Study.load(stored.path)).notes if "north" in one)
    assert "Fed-TGAN needs rows: all 40 are loaded from sqlite" in note


def test_rows_that_are_checked_are_read(stored):
    found = forecast(Study.load(stored.path), rows=True)
    assert found.rows is not None
    assert found.rows.count == {"north": 40, "south": 40}
    assert not found.rows.misfits


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ('{ database = "postgresql://ana:hunter2@db/ward", table = "stays" }', "holds a password"),
        ('{ database = "postgresql://db/ward?password=hunter2", table = "a" }', "holds a password"),
        ('{ database = "mysql://db/ward", table = "stays" }', "must begin with duckdb://"),
        ('{ database = "sqlite:///ward.sqlite" }', "give a table or a query"),
        ('{ database = "sqlite:///ward.sqlite", tabel = "a" }', "tabel"),
        ('{ database = "sqlite:///nowhere.sqlite", table = "a" }', "there is no database"),
        ('{ database = "sqlite:///ward.sqlite", table = "visits" }', "no such table: visits"),
        ('{ database = "sqlite:///ward.sqlite", query = "SELEC 1" }', "syntax error"),
        ('{ database = "sqlite:///ward.sqlite", query = "SELECT 1 AS a" }', "different columns"),
    ],
)
def test_what_is_wrong_is_named_without_a_password(stored, data, problem):
    stored.replace("study.toml", f"data = {ROWS}", f"data = {data}")
    with pytest.raises(InputError, match=problem) as caught:
        forecast(Study.load(stored.path))
    assert "hunter2" not in str(caught.value)
    assert "study.toml" in str(caught.value) or "north" in str(caught.value)


def test_rows_outside_the_schema_are_named_with_their_number(stored):
    with closing(sqlite3.connect(stored.path / "ward.sqlite")) as connection, connection:
        connection.execute("UPDATE stays SET age = 120 WHERE rowid <= 3")
    with pytest.raises(InputError, match="'north': column 'age': 3 rows are outside its bounds"):
        execute(Study.load(stored.path))
    assert not (stored.path / "run").exists()


def test_a_query_without_rows_is_warned_of_and_runs_under_a_guarantee(stored):
    empty = ROWS.replace("FROM stays", "FROM stays WHERE age > 1000")
    stored.replace("study.toml", f"data = {ROWS}", f"data = {empty}")
    found = forecast(Study.load(stored.path))
    assert any("north: the query gives no row" in one for one in found.warnings)
    execute(Study.load(stored.path), noise="seeded")


def test_a_party_of_a_network_counts_in_its_database(stored):
    ends = provision(stored.path, stored.path / "ends", trial=True)
    absolute = ROWS.replace("sqlite:///", f"sqlite:///{stored.path}/")
    file = ends["north"] / "study.toml"
    file.write_text(file.read_text().replace(ROWS, absolute))
    with ExitStack() as stack:
        host, _ = stack.enter_context(party_in(ends["north"]))
        assert isinstance(host._table, Database)
