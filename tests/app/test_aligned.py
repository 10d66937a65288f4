"""A study whose parties are aligned first: forecast, run, reported, its ledgers watched."""

import csv
import json
import shutil

import pytest

import siloweave as sw
from siloweave.report.record import Record
from tests.app.conftest import Folder, ran

STUDY = """\
[study]
name = "aligned"

[schema]
file = "schema.json"

[method]
name = "silofuse"
[method.diffusion]
steps = 3
batch = 16
hidden = [8]
embed = 8
timesteps = 5

[alignment]
on = ["id"]

[[parties]]
name = "clinic"
data = "clinic.csv"

[[parties]]
name = "office"
data = "office.csv"
"""


def split(path):
    """The columns of forty people at two parties, of whom each lacks two."""
    with (path / "north.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    clinic = [f"{i},{row['age']},{row['sex']}" for i, row in enumerate(rows[2:])]
    office = [f"{i},{row['job']}" for i, row in enumerate(rows[:-2])]
    (path / "clinic.csv").write_text("\n".join(["id,age,sex", *clinic[::-1], ""]))
    (path / "office.csv").write_text("\n".join(["id,job", *office, ""]))
    schema = (path / "schema.json").read_text()
    (path / "schema.json").write_text(
        schema.replace('"columns": [', '"columns": [{"name": "id", "kind": "id"}, ')
    )


@pytest.fixture
def study(folder):
    split(folder.path)
    folder.write("study.toml", STUDY)
    return folder


@pytest.fixture(scope="module")
def aligned(tmp_path_factory):
    """The study's files after a run."""
    path = tmp_path_factory.mktemp("aligned")
    Folder(path).filled(STUDY)
    split(path)
    return ran(path, None)


@pytest.fixture
def done(aligned, copy_of):
    return copy_of(aligned)


def test_check_forecasts_the_alignment_beside_the_method(study):
    found = study.json("check")
    assert found["rounds"] == 3
    assert found["alignment"]["rounds"] == 10
    assert 2_000 < found["alignment"]["bytes_leader"] < 20_000
    out = study.call("check")[1]
    assert "rounds of the alignment before about 10" in " ".join(out.split())
    study.replace("study.toml", '[alignment]\non = ["id"]\n', "")
    assert study.json("check")["alignment"] is None


def test_the_id_of_one_synthetic_person_is_the_same_at_every_party(done):
    parts = sw.load(done.path / "run/model").sample_parts(5, seed=0)
    assert [list(part) for part in parts.values()] == [["id", "age", "sex"], ["id", "job"]]
    assert all(part["id"].tolist() == [1, 2, 3, 4, 5] for part in parts.values())


def test_init_names_a_file_of_ids_alone(folder):
    """It said that the table is empty."""
    for name, columns in (("a", "person,x"), ("b", "person,y"), ("c", "person")):
        rows = [f"P{k:03d}" + ",u" * columns.count(",") for k in range(40)]
        folder.write(f"{name}.csv", "\n".join([columns, *rows, ""]))
    code, _, error = folder.call("init", "a.csv", "b.csv", "c.csv", "--folder", "new")
    assert code == 2
    assert "party 'c' has no column but ids; leave its file out" in " ".join(error.split())
    assert not (folder.path / "new").exists()
    assert folder.call("init", "a.csv", "b.csv", "--folder", "new")[0] == 0


def test_init_takes_the_form_that_an_id_has_in_every_file(folder):
    folder.write("a.csv", "who,x\n" + "".join(f"P{i:04d},{i % 3}\n" for i in range(50)))
    folder.write("b.csv", "who,y\n" + "".join(f"P{i:04d},{i % 4}\n" for i in range(10, 60)))
    assert folder.call("init", "a.csv", "b.csv", "--folder", "new")[0] == 0
    who = json.loads((folder.path / "new/schema.json").read_text())["columns"][0]
    assert (who["name"], who["kind"], who["from_data"]) == ("who", "id", ["format"])
    assert who["format"] == "P00[0-9]{2}"
    folder.write("b.csv", "who,y\n" + "".join(f"Q{i:04d},{i % 4}\n" for i in range(10, 60)))
    assert folder.call("init", "a.csv", "b.csv", "--folder", "other")[0] == 0
    who = json.loads((folder.path / "other/schema.json").read_text())["columns"][0]
    assert who == {"name": "who", "kind": "id"}


def test_a_run_prints_what_its_alignment_took(done):
    summary, (_, out, _) = done.json("run"), done.call("run")
    aligned = {one["name"]: one for one in summary["alignment"]["parties"]}
    assert summary["alignment"]["rounds"] == 11  # the last sends the ledgers
    assert {one["epsilon"] for one in aligned.values()} == {"inf"}
    assert min(one["releases"] for one in aligned.values()) >= 3
    assert min(one["bytes_sent"] for one in aligned.values()) > 1_000
    assert "3 questions to the parties, 11 before to align their rows," in out
    assert "clinic, alignment" in out


def test_the_record_and_both_reports_name_the_ends_of_its_ledgers(done):
    run = done.path / "run"
    heads = {one["name"]: one["ledger_head"] for one in done.json("run")["alignment"]["parties"]}
    record = Record.from_json((run / "record.json").read_bytes())
    assert {one.name: one.ledger_head for one in record.alignment} == heads
    assert record.phases[0].name == "alignment"
    for page in ("report.html", "report-owner.html"):
        text = (run / page).read_text()
        assert all(head in text for head in heads.values())
        assert "clinic, alignment" in text


def test_its_ledgers_are_listed_by_party_and_by_file(done):
    trail = done.json("ledger", "run")
    stages = [(one["party"], one["stage"]) for one in trail["ledgers"]]
    names = ("clinic", "office")
    assert stages == [(name, stage) for stage in ("method", "alignment") for name in names]
    out = done.call("ledger", "run")[1]
    assert "office, alignment" in out
    assert "No ε covers the alignment" in out
    one = done.json("ledger", "run", "--party", "office")["ledgers"]
    assert [ledger["stage"] for ledger in one] == ["method", "alignment"]
    assert "how many ids" in done.call("ledger", "run", "--party", "office")[1]
    (alone,) = done.json("ledger", one[1]["file"])["ledgers"]
    assert (alone["stage"], alone["head"]) == ("alignment", one[1]["head"])


@pytest.mark.parametrize("words", [("run",), ("run", "--party", "clinic"), ("FILE",)])
def test_a_ledger_of_it_that_was_cut_is_noticed(done, words):
    file = done.path / "run" / "alignment" / "parties" / "0000" / "ledger.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    words = [str(file) if word == "FILE" else word for word in words]
    code, _, error = done.call("ledger", *words)
    assert code == 5
    assert "Its end was cut off" in " ".join(error.split())
    assert done.call("run")[0] == 5  # nor is the finished run taken as it is


def test_a_ledger_of_it_that_is_gone_is_noticed(done):
    shutil.rmtree(done.path / "run" / "alignment" / "parties" / "0001")
    for words in (("run",), ("run", "--party", "office")):
        code, _, error = done.call("ledger", *words)
        assert code == 5
        assert "ledger of party 'office' is gone" in " ".join(error.split())


def test_a_run_may_lie_in_a_folder_of_that_name(done):
    (done.path / "run").rename(done.path / "alignment")
    stages = [one["stage"] for one in done.json("ledger", "alignment")["ledgers"]]
    assert stages == ["method", "method", "alignment", "alignment"]
    (done.path / "alignment" / "run.json").unlink()  # it has not finished
    stages = [one["stage"] for one in done.json("ledger", "alignment")["ledgers"]]
    assert stages == ["method", "method", "alignment", "alignment"]
