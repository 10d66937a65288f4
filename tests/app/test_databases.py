"""A study whose parties' rows are in databases: checked, counted there, and run as from files."""

import re
import sqlite3
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from siloweave.app import network_cli
from siloweave.app.check import few_rows, forecast
from siloweave.app.console import print_summary
from siloweave.app.network import party_in, provision
from siloweave.app.run import execute
from siloweave.app.study import Study
from siloweave.errors import InputError
from siloweave.protocols.marginals import coded
from siloweave.tables.database import Database, source_of
from siloweave.tables.read import read
from siloweave.tables.table import digest_of
from siloweave.tables.write import write

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


def test_check_names_what_in_a_query_lets_one_row_move_others(stored):
    few = ROWS.replace("FROM stays", "FROM stays LIMIT 30")
    stored.replace("study.toml", f"data = {ROWS}", f"data = {few}")
    (warning,) = (one for one in forecast(Study.load(stored.path)).warnings if "LIMIT" in one)
    assert warning.startswith("north: the query has LIMIT: which rows it gives depends on other")
    stored.replace("study.toml", f"data = {few}", f"data = {ROWS}")
    assert not any("the query has" in one for one in forecast(Study.load(stored.path)).warnings)


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
    stored.refuse_misfits()
    with pytest.raises(InputError, match="'north': column 'age': 3 rows are outside its bounds"):
        execute(Study.load(stored.path))
    assert not (stored.path / "run").exists()


def test_a_query_without_rows_is_warned_of_and_runs_under_a_guarantee(stored):
    empty = ROWS.replace("FROM stays", "FROM stays WHERE age > 1000")
    stored.replace("study.toml", f"data = {ROWS}", f"data = {empty}")
    study = Study.load(stored.path)
    for found in (forecast(study).warnings, few_rows(study)):
        assert any("north: the query gives no row" in one for one in found)
    execute(Study.load(stored.path), noise="seeded")


def test_a_party_of_a_network_counts_in_its_database(stored):
    ends = provision(stored.path, stored.path / "ends", trial=True)
    for what in ("SELECT age, sex, job FROM stays", "stays"):
        with party_in(ends["north"], f"sqlite:///ward.sqlite#{what}") as (host, _):
            assert isinstance(host.prepare.table, Database)
            assert (host.prepare.table.query or host.prepare.table.table) == what
    with (
        pytest.raises(InputError, match="say which table or view"),
        party_in(ends["north"], "sqlite:///ward.sqlite"),
    ):
        pass


def test_a_party_sees_misfits_in_its_database_by_its_own_command(stored):
    with closing(sqlite3.connect(stored.path / "ward.sqlite")) as connection, connection:
        connection.execute("UPDATE stays SET age = 999 WHERE rowid = 1")
    north = provision(stored.path, stored.path / "ends", trial=True)["north"]
    with party_in(north, "sqlite:///ward.sqlite#stays") as (host, _):
        side = host.prepare
        with pytest.warns(UserWarning, match=f"1 in 'age'. `siloweave party check {north} --data"):
            coded(side.table, side.setup, "north")


def test_a_trial_hands_each_party_its_database(stored, monkeypatch):
    started = []

    @contextmanager
    def process(*words):
        started.append(words)
        yield SimpleNamespace(poll=lambda: 0, wait=lambda seconds: 0, returncode=0)

    monkeypatch.setattr(network_cli, "_process", process)
    assert stored.call("poc", "--out", "poc")[0] == 0
    north, south = [w[w.index("--data") + 1] for w in started if "--data" in w]
    assert source_of(north) == Study.load(stored.path).source(Study.load(stored.path).parties[0])
    assert south.endswith("south.csv")


# Methods that need rows


@pytest.fixture
def training(stored):
    """The same study, of a network, and with more rows than shall be loaded."""
    with closing(sqlite3.connect(stored.path / "ward.sqlite")) as connection, connection:
        for _ in range(3):
            connection.execute("INSERT INTO stays SELECT * FROM stays")
    stored.replace("study.toml", 'name = "small"', 'name = "small"\nsample = 60')
    stored.replace(
        "study.toml",
        'name = "flaim"\nrounds = 2\nparticipation = 1.0\nbins = 4',
        'name = "fed_tgan"\nrounds = 1\nbatch = 20\npac = 2\ngenerator = [8]\ncritic = [8]',
    )
    stored.replace("study.toml", "[budget]\nepsilon = 1\ndelta = 1e-5\n", "")
    return stored


def test_check_says_how_many_rows_are_drawn(training):
    (note,) = (one for one in forecast(Study.load(training.path)).notes if "north" in one)
    assert "Fed-TGAN needs rows: about 60 of 320 are drawn at random from sqlite" in note
    training.replace("study.toml", "sample = 60", "sample = 0.25")
    notes = forecast(Study.load(training.path)).notes
    assert "about 80 of 320 are drawn at random from sqlite" in " ".join(notes)
    assert (
        "south: Fed-TGAN needs rows: each row of its file is drawn with a chance of 0.25"
        in " ".join(notes)
    )


def test_check_says_why_none_is_drawn(training):
    old = 'name = "fed_tgan"\nrounds = 1\nbatch = 20\npac = 2\ngenerator = [8]\ncritic = [8]'
    training.replace("study.toml", old, 'name = "dp_fed_tgan"\nsteps = 10')
    training.replace("study.toml", "[method]", "[budget]\nepsilon = 9\ndelta = 1e-4\n\n[method]")
    (note,) = (one for one in forecast(Study.load(training.path)).notes if "north" in one)
    assert "all 320 are loaded" in note
    assert "Their number is private, so a limit draws none; sample = 0.1 in [study]" in note
    training.replace("study.toml", "sample = 60", "sample = 0.5")
    notes = forecast(Study.load(training.path)).notes
    assert "about 160 of 320 are drawn at random" in " ".join(notes)


def test_a_run_trains_from_the_sample_and_says_so(training, capsys):
    study, run = Study.load(training.path), training.path / "run"
    summary, _ = execute(study, noise="seeded")
    print_summary(summary, run, json=False, before=False)
    assert "Trained from a sample: of a larger table" in " ".join(capsys.readouterr().out.split())
    rows = (run / "synthetic.csv").read_bytes()
    assert 60 < summary.rows < 160  # about 60 and 40, of 360
    public, owner = ((run / f"report{one}.html").read_text() for one in ("", "-owner"))
    assert "Trained from a sample: of a larger table" in public
    assert not re.search(r"\b320\b", public)  # which a digest may have inside
    assert "share of the rows of north that took part: " in owner
    assert " of 320" in owner
    training.replace("study.toml", "[method]", '[output]\nfolder = "again"\n\n[method]')
    execute(Study.load(training.path), noise="seeded")
    assert (training.path / "again" / "synthetic.csv").read_bytes() == rows


def test_a_run_that_fails_over_its_rows_leaves_no_folder(training):
    with closing(sqlite3.connect(training.path / "ward.sqlite")) as connection, connection:
        connection.execute("UPDATE stays SET age = 120")
    with pytest.raises(InputError, match=r"'north': column 'age'.*rows are outside its bounds"):
        execute(Study.load(training.path))
    assert not (training.path / "run").exists()


def test_a_party_of_a_network_has_the_same_sample_after_a_restart(training, caplog):
    caplog.set_level("INFO", "siloweave")
    ends = provision(training.path, training.path / "ends", trial=True)
    seen = []
    for _ in range(2):
        with party_in(ends["north"], "sqlite:///ward.sqlite#stays") as (host, _seals):
            seen.append(digest_of(host.prepare.table))
            assert f"north: a sample of {host.prepare.table.num_rows} of 320 rows" in caplog.text
            assert 30 < host.prepare.table.num_rows < 100
    assert seen[0] == seen[1]


def test_a_sample_is_a_public_fact_of_a_study(training):
    study = Study.load(training.path)
    assert study.facts()["study"]["sample"] == 60
    name = study.run_name
    training.replace("study.toml", "sample = 60", "sample = 61")
    assert Study.load(training.path).run_name != name
    training.replace("study.toml", "sample = 61", "sample = 1.5")
    with pytest.raises(InputError, match=r"\[study\] sample=1.5 must be a share of the rows"):
        Study.load(training.path)


SPLIT = """\
[study]
name = "split"
[schema]
file = "schema.json"
[budget]
epsilon = 1
delta = 1e-5
relation = "replace_one"
[method]
name = "secure_two_round"
bins = 4
[[parties]]
name = "north"
data = { database = "sqlite:///ward.sqlite", table = "stays" }
columns = ["age", "sex"]
[[parties]]
name = "south"
data = "job.csv"
columns = ["job"]
"""


def test_of_split_columns_those_of_the_study_alone_are_loaded(stored, monkeypatch):
    loaded, honest = [], Database.read

    def noted(self, *words):
        loaded.append(self.names)
        return honest(self, *words)

    monkeypatch.setattr(Database, "read", noted)
    write(read(stored.path / "north.csv").select(["job"]), stored.path / "job.csv")
    named = 'columns = ["age", "sex"]\n'
    stored.write("study.toml", SPLIT.replace(named, ""))
    with pytest.raises(InputError, match="'job'"):
        execute(Study.load(stored.path))
    assert not loaded
    stored.write("study.toml", SPLIT)
    execute(Study.load(stored.path))
    made = provision(stored.path, stored.path / "ends", trial=True)
    with party_in(made["north"], f"sqlite:///{stored.path}/ward.sqlite#stays"):
        assert loaded == [("age", "sex")] * 2
