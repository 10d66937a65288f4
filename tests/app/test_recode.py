"""A party's names and values in its study file: checked, run, and kept to itself."""

import logging
import shutil

import pytest

from siloweave.app.network import plan_in, provision
from siloweave.app.run import execute
from siloweave.app.study import Study
from siloweave.errors import InputError, SiloweaveError
from tests.app.processes import Ends
from tests.app.test_network import run

RECODE = '\n[parties.south.recode]\nsex = {"1" = "f", "2" = "m"}\n'


def german(folder):
    """Make the south's file one of its own names and values."""
    lines = (folder.path / "south.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    own = [f"{age},{'12'[sex == 'm']},{job}" for age, sex, job in rows]
    folder.write("south.csv", "\n".join(["age,geschlecht,job", *own, ""]))


def mapped(folder, recode=RECODE):
    german(folder)
    study = (folder.path / "study.toml").read_text()
    folder.write("study.toml", study + 'rename = {geschlecht = "sex"}\n' + recode)


def test_a_recoded_file_gives_the_rows_that_the_schema_names(folder):
    plain = folder.path / "run" / "synthetic.csv"
    execute(Study.load(folder.path), noise="seeded")
    before = plain.read_text()
    mapped(folder)
    assert folder.call("check", "--rows")[0] == 0
    shutil.rmtree(folder.path / "run")
    execute(Study.load(folder.path), noise="seeded")
    assert plain.read_text() == before


def test_both_ways_of_writing_a_recode_are_one(folder):
    mapped(folder)
    named = Study.load(folder.path).parties
    folder.replace("study.toml", RECODE, '[parties.recode]\nsex = {"1" = "f", "2" = "m"}\n')
    assert Study.load(folder.path).parties == named
    assert named[1].recode == {"sex": {"1": "f", "2": "m"}}
    assert not named[0].maps


def test_a_recode_before_other_parties_goes_to_the_party_that_it_names(folder):
    study = (folder.path / "study.toml").read_text()
    recode = '[parties.north.recode]\nsex = {"1" = "f"}\n'
    folder.write("study.toml", study + recode)
    north, south = Study.load(folder.path).parties
    assert north.recode == {"sex": {"1": "f"}}
    assert not south.recode


@pytest.mark.parametrize(
    ("recode", "match"),
    [
        ('[parties.south.recode]\nsex = {"1" = "woman"}\n', "makes 'woman', which is not among"),
        ('[parties.south.recode]\ngender = {"1" = "f"}\n', "names the column 'gender'"),
        ("[parties.west.recode]\nsex = {}\n", "west is unknown"),
        ('[parties.south]\nrename = {geschlecht = "sex"}\n', "has rename twice"),
    ],
)
def test_a_recode_that_cannot_be_right_is_refused_before_a_row_is_read(folder, recode, match):
    mapped(folder, recode)
    (folder.path / "south.csv").write_text("age,geschlecht,job\n")
    with pytest.raises(InputError, match=match):
        Study.load(folder.path).checked()


def test_a_database_is_mapped_by_its_query(folder):
    folder.replace("study.toml", 'data = "south.csv"',
                   'data = {database = "duckdb:///x.db", table = "t"}')  # fmt: skip
    study = (folder.path / "study.toml").read_text()
    folder.write("study.toml", study + RECODE)
    with pytest.raises(InputError, match="values in its query, as in: CASE"):
        Study.load(folder.path)


def test_an_unknown_value_is_named_to_whoever_has_the_rows_alone(folder, caplog):
    mapped(folder)
    folder.replace("south.csv", "age,geschlecht,job\n", "age,geschlecht,job\n30,7,x\n31,7,y\n")
    assert "'7'" not in folder.call("check")[1]
    code, out, _ = folder.call("check", "--rows")
    assert code == 0
    assert "south, line 2 ('7'), line 3 ('7'): column 'sex'" in out
    with caplog.at_level(logging.WARNING, "siloweave"):
        assert folder.call("run")[0] == 0
    notes = [one.getMessage() for one in caplog.records]
    assert any(
        "'south': column 'sex': 2 rows hold values" in one and "'7' (2)" in one for one in notes
    )
    for name in ("report.html", "synthetic.csv"):
        assert "neither the recode" not in (folder.path / "run" / name).read_text()


def test_without_a_guarantee_an_unknown_value_is_refused_with_a_count(folder):
    mapped(folder)
    folder.replace("study.toml", 'name = "flaim"\nrounds = 2\nparticipation = 1.0\nbins = 4',
                   'name = "fed_tgan"\nrounds = 2\nbatch = 20\npac = 2\ngenerator = [8]\n'
                   "critic = [8]")  # fmt: skip
    folder.replace("study.toml", "epsilon = 1", "epsilon = inf")
    folder.replace("south.csv", "age,geschlecht,job\n", "age,geschlecht,job\n30,7,x\n")
    code, _, err = folder.call("run")
    assert code != 0
    assert "party 'south': column 'sex': 1 row holds none of its 2 categories" in err


def test_files_of_different_columns_say_how_to_rename(folder):
    german(folder)
    code, _, err = folder.call("check")
    assert code != 0
    assert 'rename = {theirs = "ours"}' in err


def test_a_party_of_a_network_maps_its_own_file_and_nobody_else_learns_it(folder):
    made = provision(folder.path, folder.path / "ends", trial=True)
    ends = Ends(made) if not isinstance(made, dict) else made
    for name in ("north", "south"):
        (ends[name] / f"{name}.csv").write_bytes((folder.path / f"{name}.csv").read_bytes())
    plain = run(ends)[0]
    assert plain.rows

    other = provision(folder.path, folder.path / "others", trial=True)
    german(folder)
    for name in ("north", "south"):
        (other[name] / f"{name}.csv").write_bytes((folder.path / f"{name}.csv").read_bytes())
    own = other["south"] / "study.toml"
    own.write_text(own.read_text() + 'rename = {geschlecht = "sex"}\n' + RECODE)
    assert plan_in(other["south"], other["south"] / "south.csv").reading == {
        "rename": {"geschlecht": "sex"},
        "recode": {"sex": {"1": "f", "2": "m"}},
    }
    summary = run(other)[0]
    assert summary.rows == plain.rows
    study = Study.load(other["coordinator"])
    assert "geschlecht" not in str(study.facts())
    rows = [
        (Study.load(one["coordinator"]).folder / "synthetic.csv").read_text()
        for one in (ends, other)
    ]
    assert rows[0] == rows[1]


def test_a_study_that_nobody_can_read_is_an_error_of_ours():
    with pytest.raises(SiloweaveError, match="recode"):
        Study.parse({"parties": [{"name": "a", "recode": 3}], "study": {"name": "x"},
                     "schema": {"file": "s"}, "method": {"name": "aim"}})  # fmt: skip
