"""study.toml: what it takes, what it refuses, and in which words."""

import math
import re
import shutil
import sqlite3
import sys
import tomllib
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from siloweave.app.check import forecast
from siloweave.app.init import propose, write_proposal
from siloweave.app.run import load_rows
from siloweave.app.study import Study, method_of
from siloweave.errors import BudgetError, DataError, InputError, RosterError, SchemaError
from siloweave.privacy.budget import Budget, Relation
from siloweave.tables import Column, Schema
from siloweave.tables.database import Database
from siloweave.tables.dialect import Dialect
from siloweave.tables.read import read
from siloweave.tables.write import write

SCHEMA = Schema(
    (Column("age", "integer", low=0, high=99), Column("ill", "boolean"))
).with_fallbacks()
BEGINS = "seems to begin a total or a mean, which is no row. Delete the line"
TEXT = """\
[study]
name = "admissions"

[schema]
file = "schema.json"

[budget]
epsilon = 1
delta = 1e-5

[method]
name = "flaim"
rounds = 3

[[parties]]
name = "north"
data = "north.csv"

[[parties]]
name = "south"
data = "south.csv"
columns = ["age", "ill"]

[output]
rows = 10
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    (tmp_path / "study.toml").write_text(TEXT)
    return tmp_path / "study.toml"


def test_a_study_says_what_its_file_says(file: Path):
    study = Study.load(file)
    assert study.names == ("north", "south")
    assert study.terms() == Budget(1.0, 1e-5, "row", Relation.ADD_REMOVE)
    assert study.read_schema() == SCHEMA
    assert study.synthesizer().rounds == 3
    assert study.folder == file.parent / "run"
    assert study.source(study.parties[0]) == file.parent / "north.csv"
    assert study.parties[1].columns == ("age", "ill")
    assert (study.output.rows, study.output.seed) == (10, 0)


def test_the_schema_may_be_sdv_metadata(file: Path):
    import json

    for version in (1, 2):
        metadata = json.dumps(SCHEMA.to_sdv(version=version))
        (file.parent / "schema.json").write_text(metadata)
        assert Study.load(file).read_schema().declared() == SCHEMA


@pytest.mark.parametrize(
    ("old", "new", "kind", "words"),
    [
        ("epsilon = 1\n", "epsilom = 1\n", InputError, "[budget] epsilom is unknown; did you mean"),
        ("epsilon = 1\n", "", InputError, "[budget] epsilon is missing"),
        ("epsilon = 1\n", "epsilon = 0\n", BudgetError, "epsilon = 0.0 must be greater than 0"),
        ("epsilon = 1\n", "epsilon = -1\n", BudgetError, "epsilon = -1.0"),
        ("epsilon = 1\n", "epsilon = nan\n", BudgetError, "epsilon = nan"),
        ("epsilon = 1\n", 'epsilon = "1"\n', InputError, "[budget] epsilon: must be a number, not"),
        ("delta = 1e-5", "delta = 1", BudgetError, "delta = 1.0 must lie strictly between"),
        ("delta = 1e-5", "delta = 1e-5\nrelation = 'add'", InputError, "one of add_remove, replac"),
        ("[output]", "[outputs]", InputError, "did you mean 'output'?"),
        ("rows = 10", "row = 10", InputError, "[output] row is unknown; did you mean 'rows'?"),
        ("rows = 10", "rows = 0", InputError, "1 or more; without it, as many as"),
        ("rows = 10", "seed = -1", InputError, "[output] seed=-1"),
        ('name = "north"', "", InputError, "[[parties]] name is missing"),
        ('name = "north"', 'naem = "north"', InputError, "[[parties]] naem is unknown"),
        ('name = "north"', 'name = "south"', RosterError, "'south' is there twice"),
        ('name = "north"', 'name = "../x"', InputError, "[[parties]] name = '../x'"),
        (
            '"north.csv"',
            "3",
            InputError,
            "[[parties]] data: must be text or a table, not a whole number",
        ),
        ('name = "flaim"', "", InputError, "[method] needs a name"),
        ('name = "admissions"', 'name = ""', InputError, "[study] name = ''"),
        ("[study]", 'base = "x"\n[study]', InputError, "base is unknown"),
        ("[study]", "[study", InputError, "is not TOML"),
    ],
)
def test_a_wrong_field_is_named(file: Path, old: str, new: str, kind: type, words: str):
    file.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(kind) as caught:
        Study.load(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"flaim"', '"flame"', "'flame' is unknown; did you mean 'flaim'?"),
        ("rounds = 3", "round = 3", "[method] round is unknown; did you mean 'rounds'?"),
        (
            "rounds = 3",
            'rounds = "3"',
            "rounds='3' cannot be used: must be a whole number",
        ),
        ("rounds = 3", "rounds = 0", "rounds=0"),
        ('"flaim"\nrounds = 3', '"e2e"\njoint = true', "[method] joint is unknown"),
        ("rounds = 3", 'variant = "best"', "[method] variant"),
        ("rounds = 3", "participation = 0", "participation=0"),
    ],
)
def test_a_wrong_setting_is_named(file: Path, old: str, new: str, words: str):
    file.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        Study.load(file).synthesizer()
    assert words in str(caught.value)


def test_all_settings_of_a_method_are_keys_below_it(file: Path):
    file.write_text(TEXT.replace('"flaim"\nrounds = 3', '"aim"\nmax_model_mb = 5\nbins = 8'))
    synth = Study.load(file).synthesizer()
    assert synth.bins == 8
    assert synth.max_model_mb == 5


def test_everyone_on_the_roster_must_be_there(file: Path):
    with_roster = TEXT.replace("[schema]", 'roster = ["north", "south", "east"]\n[schema]')
    file.write_text(with_roster)
    with pytest.raises(RosterError, match=r"names 3 parties.* for east\."):
        Study.load(file)
    file.write_text(TEXT.replace("[schema]", 'roster = ["north"]\n[schema]'))
    with pytest.raises(RosterError, match="'south' is not in"):
        Study.load(file)


def test_a_study_without_privacy_is_possible_but_has_to_say_so(file: Path):
    file.write_text(TEXT.replace("epsilon = 1\n", "epsilon = inf\n"))
    assert Study.load(file).terms().epsilon == math.inf


def test_the_run_is_named_by_public_facts_alone(file: Path):
    name = Study.load(file).run_name
    for old, new in (
        ("epsilon = 1\n", "epsilon = 2\n"),
        ("rounds = 3", "rounds = 4"),
        ('"south"', '"east"'),
        ("rows = 10", "seed = 1"),
        ('"schema.json"', '"schema.json"\nlearn = 0.1'),
    ):
        file.write_text(TEXT.replace(old, new, 1))
        assert Study.load(file).run_name != name
    for old, new in (("rows = 10", "rows = 11"), ("north.csv", "n.csv")):
        file.write_text(TEXT.replace(old, new, 1))
        assert Study.load(file).run_name == name


def test_a_schema_that_is_none_is_named(file: Path):
    (file.parent / "schema.json").write_text("[1]")
    with pytest.raises(SchemaError, match=r"schema\.json"):
        Study.load(file).read_schema()
    (file.parent / "schema.json").unlink()
    with pytest.raises(InputError, match="there is no file"):
        Study.load(file).read_schema()


# A first study from data.


def test_a_proposed_study_loads_and_its_schema_says_what_came_from_rows(tmp_path: Path):
    (tmp_path / "a.csv").write_text("age,ill\n30,true\n41,false\n41,true\n")
    (tmp_path / "b.csv").write_text("age,ill\n55,false\n,true\n41,true\n")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    proposal = propose(files, folder=tmp_path, name="first")
    write_proposal(proposal, tmp_path)
    study = Study.load(tmp_path / "study.toml")
    assert study.names == ("a", "b")
    assert study.method["name"] == "two_round"
    assert study.synthesizer().tolerated == 1
    schema = study.read_schema()
    assert (schema["age"].low, schema["age"].high, schema["age"].missing) == (30, 55, True)
    assert all(column.from_data for column in schema.columns)
    assert dict(proposal.review)["age"] == "integer, low 30, high 55, missing values"


def test_an_index_that_pandas_stored_is_said_to_be_left_out(tmp_path: Path, recwarn):
    rows = pd.DataFrame({"age": [1, 2] * 20}, index=[*"abcd"] * 10)
    rows.to_parquet(tmp_path / "north.parquet")
    proposal = propose([tmp_path / "north.parquet"], folder=tmp_path)
    assert proposal.schema.names == ("age",)
    assert proposal.files[0].startswith("north: the index of pandas, which has no name, is left")
    assert not recwarn.list


def test_no_study_is_proposed_for_nested_values_of_json_lines(tmp_path: Path):
    for name, value in (("north", "2"), ("south", "[2]")):
        lines = f'{{"age": 1, "tags": 1}}\n{{"age": 2, "tags": {value}}}\n'
        (tmp_path / f"{name}.jsonl").write_text(lines)
    with pytest.raises(DataError, match=r"'south': column 'tags' holds lists .*row 2"):
        propose([tmp_path / "north.jsonl", tmp_path / "south.jsonl"], folder=tmp_path)


def test_a_study_is_proposed_from_a_table_of_a_database(tmp_path: Path, monkeypatch):
    with closing(sqlite3.connect(tmp_path / "my ward.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE stays (age, ill)")
        rows = [(20 + i % 40, "yn"[i % 2]) for i in range(2000)]
        connection.executemany("INSERT INTO stays VALUES (?, ?)", rows)
    monkeypatch.chdir(tmp_path)
    proposal = propose(["sqlite:///my%20ward.sqlite#stays"], folder="mine")
    write_proposal(proposal, "mine")
    study = Study.load(tmp_path / "mine")
    assert study.names == ("stays",)
    assert not proposal.files
    (party,) = study.parties
    assert study.source(party).file == tmp_path / "mine" / ".." / "my ward.sqlite"
    assert party.rows(study.source(party)).num_rows == 2000
    assert study.read_schema()["age"].high == 59
    monkeypatch.setattr("siloweave.app.init._MOST", 500)
    (said,) = propose(["sqlite:///my%20ward.sqlite#stays"]).files
    assert re.fullmatch(r"stays: \d+ random rows of 2,000 were read", said)
    rows = read(Database("sqlite:///my%20ward.sqlite", "stays"))
    write(rows, tmp_path / "file.parquet")
    (said,) = propose(["file.parquet"]).files
    assert re.fullmatch(r"file: \d+ random rows of 2,000 were read", said)
    for word, problem in (
        ("sqlite:///my%20ward.sqlite", "say which table or view"),
        ("sqlite:///nowhere.sqlite#stays", "there is no database 'nowhere.sqlite'"),
        ("mysql://ward#stays", "must begin with duckdb://"),
    ):
        with pytest.raises(InputError, match=problem):
            propose([word])


def test_a_query_or_file_without_rows_is_named(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "ward.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE stays (age)")
    write(pl.DataFrame({"age": [1]}).clear(), tmp_path / "bare.parquet")
    query = "SELECT age FROM stays WHERE age > 9"
    for word, shown in (
        (f"sqlite:///{tmp_path}/ward.sqlite#{query}", f"'{query}'"),
        (f"sqlite:///{tmp_path}/ward.sqlite#stays", "'stays'"),
        (str(tmp_path / "bare.parquet"), "bare.parquet'"),
    ):
        with pytest.raises(RosterError, match=f"{re.escape(shown)} has no rows"):
            propose([word])


def test_two_databases_with_one_table_name_are_parties_of_their_own_names(tmp_path: Path):
    for name, ages in {"north": [30, 41], "south": [50, 61]}.items():
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as connection, connection:
            connection.execute("CREATE TABLE stays (age)")
            connection.executemany("INSERT INTO stays VALUES (?)", [(age,) for age in ages])
    words = [f"sqlite:///{tmp_path}/{name}.sqlite#stays" for name in ("north", "south")]
    write_proposal(propose(words, folder=tmp_path), tmp_path)
    study = Study.load(tmp_path)
    assert study.names == ("north", "south")
    rows = {party.name: party.rows(study.source(party)) for party in study.parties}
    assert read(rows["south"]).values("age").tolist() == [50, 61]
    assert study.read_schema()["age"].high == 61
    with pytest.raises(RosterError, match=r"'stays' is given twice"):
        propose([words[0], words[0]])
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "north.sqlite", tmp_path / "other")
    with pytest.raises(RosterError, match=r"would make a party 'north'.*Rename one"):
        propose([words[0], words[0].replace("north", "other/north")])


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_a_large_parquet_file_is_read_in_pieces_and_not_whole(tmp_path: Path, monkeypatch, folder):
    monkeypatch.setattr("siloweave.app.init._MOST", 500)
    monkeypatch.setattr(sys.modules["siloweave.tables.read"], "_BATCH_ROWS", 300)
    monkeypatch.setattr("siloweave.app.init.read_as", None)  # the whole file
    home = tmp_path / "stays" if folder else tmp_path
    home.mkdir(exist_ok=True)
    rows = pl.DataFrame({"age": [20 + i % 40 for i in range(2000)]})
    rows.write_parquet(home / "stays.parquet")
    if folder:
        rows.write_parquet(home / "two.parquet")
    asked = [home if folder else home / "stays.parquet"]
    proposal = propose(asked, dialect=Dialect(separator=";"))  # of CSV files beside it
    (said,) = proposal.files
    assert re.fullmatch(rf"stays: \d+ random rows of {'4' if folder else '2'},000 were read", said)
    assert proposal == propose(asked)
    assert all(column.from_data for column in proposal.schema.columns)


def test_large_files_of_one_order_need_as_many_rows_as_each_other(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("siloweave.app.init._MOST", 500)
    for name, count in {"age": 2000, "size": 2000, "dose": 1999}.items():
        rows = pl.DataFrame({name: [20 + i % 40 for i in range(count)]})
        rows.write_parquet(tmp_path / f"{name}.parquet")
    (tmp_path / "kind.csv").write_text("kind\n" + "\n".join("xy"[i % 2] for i in range(2000)))
    assert len(propose([tmp_path / "age.parquet", tmp_path / "size.parquet"]).files) == 2
    propose([tmp_path / "age.parquet", tmp_path / "kind.csv"])  # read whole, and as long
    with pytest.raises(RosterError, match=r"2000 \('age'\), 1999 \('dose'\) rows"):
        propose([tmp_path / "age.parquet", tmp_path / "dose.parquet"])


@pytest.mark.parametrize("files", [("a",), ("a", "b"), ("a", "c")], ids="-".join)
def test_settings_in_the_comments_of_a_proposal_are_taken(tmp_path: Path, files: tuple[str, ...]):
    for name, head in (("a", "who,age"), ("b", "who,age"), ("c", "who,size")):
        (tmp_path / f"{name}.csv").write_text(f"{head}\n1,30\n2,41\n")
    text = propose([tmp_path / f"{name}.csv" for name in files]).study
    section = text[text.index("[method]") : text.index("# Who holds")]
    names = re.findall(r"^# (?!name)(\w+) = ", section, flags=re.M)
    assert len(names) > 3
    for name in names:
        written = re.sub(rf"^# (?={name} = |\[)", "", section, flags=re.M)
        table = tomllib.loads(written)["method"]
        assert name in table or any(name in one for one in table.values() if isinstance(one, dict))
        assert method_of(table).method.name == table["name"]


def test_one_file_proposes_a_central_method(tmp_path: Path):
    (tmp_path / "a.csv").write_text("age,ill\n30,true\n41,false\n")
    write_proposal(propose([tmp_path / "a.csv"], folder=tmp_path), tmp_path)
    assert Study.load(tmp_path / "study.toml").method["name"] == "aim"


@pytest.mark.parametrize(
    ("a", "b", "kinds"),
    [
        ("x\n1\n2\n", "x\n1.5\n2\n", "continuous"),
        ("x\n1\n2\n", "x\none\ntwo\none\n", "categorical"),
        ("x,y\n,1\n,1\n", "x,y\n3,1\n4,2\n", "integer"),
        ("x\n2020-01-01\n2020-01-02\n", "x\n2021-01-01\n2021-01-02\n", "datetime"),
    ],
)
def test_files_of_different_types_are_pooled(tmp_path: Path, a: str, b: str, kinds: str):
    (tmp_path / "a.csv").write_text(a)
    (tmp_path / "b.csv").write_text(b)
    proposal = propose([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert proposal.schema["x"].kind == kinds


def test_a_second_line_of_names_and_a_total_are_pointed_out(tmp_path: Path):
    """As spreadsheets have them: units below the names, sums below the rows."""
    rows = [f"a{i},{i * 7 % 90},{i * 3 % 80},x" for i in range(100)]
    (tmp_path / "a.csv").write_text("\n".join(["k,age,dose,z", ",years,mg,", *rows, "Summe:,,,"]))
    found = propose([tmp_path / "a.csv"]).cautions
    assert found[0].startswith("a, line 2: age, dose hold 'years', 'mg' and no numbers. Delete the")
    assert found[1:] == (f"a, line 103, k: 'Summe:' {BEGINS}",)
    rows += ["Total,5,7,x", "Total,1,2,x"]  # which may be a category
    (tmp_path / "a.csv").write_text("\n".join(["k,age,dose,z", *rows]))
    (only,) = propose([tmp_path / "a.csv"]).cautions  # an id that repeats, and no total
    assert only.startswith("k: one k has up to 2 rows in a file")


def test_subtotals_a_note_below_and_repeated_names_are_pointed_out(tmp_path: Path):
    """As reports have them, and files that were put one behind the other."""
    rows = [f"{'abc'[i % 3]},{i * 7 % 90},{i * 3 % 80}" for i in range(60)]
    middle = ["Zwischensumme,900,", "k,age,dose", "\ufeffk,age,dose"]
    last = ["Summe,1800,", '"Source: office, 2023",,']
    text = "\n".join(["k,age,dose", *rows[:30], *middle, *rows[30:], *last])
    (tmp_path / "a.csv").write_text(text, "utf-8")
    cautions = propose([tmp_path / "a.csv"]).cautions
    assert f"a, line 32, k: 'Zwischensumme' {BEGINS}" in cautions
    assert f"a, line 65, k: 'Summe' {BEGINS}" in cautions
    assert "a, line 33, line 34: the columns' names again, and no row. Delete the line" in cautions
    (note,) = [caution for caution in cautions if "text in one column alone" in caution]
    assert note.startswith("a, line 66: ")
    sparse = [f"{'abc'[i % 3]},," for i in range(30)]  # rows of few answers are no notes
    (tmp_path / "a.csv").write_text("\n".join(["k,age,dose", *rows, *sparse]))
    assert propose([tmp_path / "a.csv"]).cautions == ()


@pytest.mark.parametrize("first", [10001, 11001, 99500])
def test_ids_of_parties_that_number_their_own_rows_are_ids(tmp_path: Path, first: int):
    """Also of one file that is given twice: what is an id in each file is one in all."""
    for name, start in {"n": 10001, "s": first}.items():
        rows = (f"{i},{start + i - 1},C{i:05d},{20 + i % 60}\n" for i in range(1, 1001))
        (tmp_path / f"{name}.csv").write_text("id,patient_id,case,age\n" + "".join(rows))
    schema = propose([tmp_path / "n.csv", tmp_path / "s.csv"]).schema
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {"id": "id", "patient_id": "id", "case": "id", "age": "integer"}
    assert re.fullmatch(schema["case"].format, "C00042")
    assert schema["patient_id"].format == (None if first == 99500 else "[1-9][0-9]{4}")
    assert not {"id", "patient_id", "case"} & {n for c in schema.constraints for n in c.columns}


@pytest.mark.parametrize(
    ("forms", "said"),
    [
        (
            ("%Y-%m-%d", "%d.%m.%Y"),
            "dates written as 2024-01-31 (%Y-%m-%d), or dates written as 31.01.2024 (%d.%m.%Y)",
        ),
        (("%Y%m%d5.1", "%Y%m%d,5"), "numbers, or numbers written like 1234,5"),
    ],
)
def test_what_parties_write_in_different_ways_is_no_id(tmp_path: Path, forms, said):
    """Its line says what the comparison of the files says."""
    for name, form in zip("ns", forms, strict=True):
        days = [date(2020, 1, 1) + timedelta(i * (7 if name == "n" else 5)) for i in range(300)]
        rows = (f'"{day.strftime(form)}",{i % 9}' for i, day in enumerate(days))
        (tmp_path / f"{name}.csv").write_text("\n".join(["seen,age", *rows]))
    found = propose([tmp_path / "n.csv", tmp_path / "s.csv"])
    seen = found.schema["seen"]
    assert (seen.kind, seen.format, seen.why) == (
        "text", None, f"{said}, by file: not modelled until written alike",
    )  # fmt: skip
    assert any(one.startswith("seen: n has ") and "map them first" in one for one in found.cautions)
    same = propose([tmp_path / "n.csv"]).schema["seen"]
    assert same.kind in ("datetime", "continuous")


def test_categories_that_few_rows_of_each_file_hold_once_are_no_ids(tmp_path: Path):
    for party in range(8):
        (tmp_path / f"p{party}.csv").write_text("sex,age\nmale,30\nfemale,41\n")
    schema = propose([tmp_path / f"p{party}.csv" for party in range(8)]).schema
    assert schema["sex"].categories == ("female", "male")


def test_different_columns_of_the_same_people_are_aligned_on_what_all_have(tmp_path: Path):
    (tmp_path / "a.csv").write_text("who,age\n7,30\n8,41\n9,41\n")
    (tmp_path / "b.csv").write_text("ill,who\ntrue,9\nfalse,6\nfalse,8\n")
    proposal = propose([tmp_path / "a.csv", tmp_path / "b.csv"], folder=tmp_path)
    write_proposal(proposal, tmp_path)
    study = Study.load(tmp_path)
    assert (study.method["name"], study.alignment.on) == ("secure_two_round", ("who",))
    schema = study.read_schema()
    assert schema["who"].kind == "id"
    assert schema.names == ("who", "age", "ill")
    assert [name for name, _ in proposal.review] == ["age", "ill"]
    assert forecast(study).resumes == 0
    assert [party.columns for party in study.parties] == [("who", "age"), ("ill", "who")]
    assert study.setup().columns == {"a": ("age",), "b": ("ill",)}
    tables = load_rows(study, schema, study.synthesizer())
    assert {name: table.num_rows for name, table in tables.items()} == {"a": 3, "b": 3}


def test_different_columns_without_ids_are_rows_in_one_order(tmp_path: Path):
    (tmp_path / "a.csv").write_text("age\n30\n41\n")
    (tmp_path / "b.csv").write_text("ill\ntrue\nfalse\n")
    proposal = propose([tmp_path / "a.csv", tmp_path / "b.csv"], folder=tmp_path)
    write_proposal(proposal, tmp_path)
    study = Study.load(tmp_path)
    assert study.alignment is None
    assert study.setup().columns == {"a": ("age",), "b": ("ill",)}
    assert "row i of one file must be the same person" in proposal.study
    (tmp_path / "b.csv").write_text("ill\ntrue\nfalse\nfalse\n")
    with pytest.raises(RosterError, match=r"2 \('a'\), 3 \('b'\) rows. Give all files a column"):
        propose([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_files_with_ids_of_different_names_say_that_rows_must_be_in_one_order(tmp_path: Path):
    """Rows of different people would be taken for one, and nothing would look wrong."""
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("pid,age\n" + "".join(f"P{i:03d},{30 + i}\n" for i in range(20)))
    paths[1].write_text("person,ill\n" + "".join(f"P{i:03d},no\n" for i in range(19, -1, -1)))
    (caution,) = propose(paths).cautions
    assert "row i of one file is taken to be the same person as row i of the others" in caution
    assert "If these are one id, pid ('a'), person ('b'), give it one name" in caution
    # Without ids nothing can be advised.
    paths[1].write_text("ill\n" + "no\nyes\n" * 10)
    (caution,) = propose(paths).cautions
    assert caution.endswith("nothing checks that.")


@pytest.mark.parametrize(
    ("ids", "shape"),
    [
        (["x7", "x8", "x9"], "2 characters: small letters, digits"),
        (["007", "008", "009"], "3 characters: digits, some with leading zeros"),
        (["7", "x8", "x9"], None),
    ],
)
def test_files_without_a_common_id_say_how_ids_are_written(tmp_path: Path, ids, shape):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("who,age\n7,30\n8,41\n9,52\n")
    paths[1].write_text("who,ill\n" + "".join(f"{who},no\n" for who in ids))
    cautions = [line for line in propose(paths).cautions if "is common to all" in line]
    if shape is None:
        assert cautions == []
        return
    (caution,) = cautions
    assert (
        f"no id in who is common to all files: 'a' has 1 character: digits; 'b' has {shape}"
        in caution
    )
    assert "give rules below [alignment] in the study" in caution


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (
            ["7", "8", "9", "8", "5"],
            "2 rows without who, or with that of another row (line 3, line 5)",
        ),
        (["7", "8", "", "9"], "1 row without who, or with that of another row (line 4)"),
    ],
)
def test_an_id_that_a_few_rows_lack_or_share_is_named_with_these(tmp_path: Path, ids, said):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("who,age\n7,30\n8,41\n9,52\n")
    paths[1].write_text("who,ill\n" + "".join(f"{who},no\n" for who in ids))
    with pytest.raises(RosterError) as raised:
        propose(paths)
    assert str(raised.value).endswith(f"'b' has {said}: mend them, if it is the id.")


def test_a_column_that_tells_few_rows_apart_was_not_meant_as_an_id(tmp_path: Path):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("who,age\n7,30\n8,41\n9,52\n")
    paths[1].write_text("who,ill\n7,no\n7,no\n7,no\n8,no\n")
    with pytest.raises(RosterError, match=r"could be left out\.$"):
        propose(paths)


@pytest.mark.parametrize("ids", [["7", "8", "8"], ["7", "", "9"]])
def test_columns_that_do_not_tell_rows_apart_are_no_ids(tmp_path: Path, ids: list[str]):
    rows = "".join(f"{who},{age}\n" for who, age in zip(ids, (30, 41, 52), strict=True))
    (tmp_path / "a.csv").write_text(f"who,age\n{rows}")
    (tmp_path / "b.csv").write_text("who,ill\n7,true\n8,false\n9,false\n")
    with pytest.raises(RosterError, match="nothing in common but ids, which no two rows"):
        propose([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_a_misspelt_column_is_no_column_of_the_same_people(tmp_path: Path):
    """Rows of different people have columns in common that are no part of an id."""
    (tmp_path / "a.csv").write_text("who,age,ill\n7,30,true\n8,41,false\n")
    (tmp_path / "b.csv").write_text("who,age,il\n1,30,true\n2,41,false\n")
    with pytest.raises(RosterError, match="only 'a' has 'ill'; only 'b' has 'il'"):
        propose([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_two_columns_may_be_one_id(tmp_path: Path):
    (tmp_path / "a.csv").write_text("name,born,age\nAda,1,30\nAda,2,41\nBo,2,41\n")
    (tmp_path / "b.csv").write_text("name,born,ill\nAda,2,true\nBo,2,false\nBo,1,false\n")
    proposal = propose([tmp_path / "a.csv", tmp_path / "b.csv"], folder=tmp_path)
    write_proposal(proposal, tmp_path)
    assert Study.load(tmp_path).alignment.on == ("name", "born")


def test_a_proposal_needs_the_same_columns_everywhere(tmp_path: Path):
    (tmp_path / "a.csv").write_text("age,ill\n30,true\n")
    (tmp_path / "b.csv").write_text("age,sick\n30,true\n")
    with pytest.raises(RosterError, match="only 'a' has 'ill'; only 'b' has 'sick'"):
        propose([tmp_path / "a.csv", tmp_path / "b.csv"])


@pytest.mark.parametrize("name", ["study.toml", "schema.json"])
def test_a_file_that_was_emptied_is_said_to_be_empty(folder, name):
    folder.write(name, " \n")
    code, _, err = folder.call("check")
    assert (code, f"{name}: is empty. Put its last copy back" in " ".join(err.split())) == (2, True)
    assert err.count(name) == 1
