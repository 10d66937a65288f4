"""`siloweave score` and `siloweave attack` on files."""

import json

import numpy as np
import pytest


@pytest.fixture
def tables(folder):
    for number, name in enumerate(("train", "control", "synthetic")):
        rng = np.random.default_rng(number)
        age = rng.integers(18, 90, 80)
        sex = rng.choice(list("fm"), 80)
        job = np.where(age > 50, "x", rng.choice(list("xyz"), 80))
        rows = [",".join(map(str, row)) for row in zip(age, sex, job, strict=True)]
        folder.write(f"{name}.csv", "\n".join(["age,sex,job", *rows, ""]))
    return folder


def place(folder, name):
    return folder.path / name


def test_score_prints_and_draws(tables):
    page = place(tables, "scores.html")
    words = ("score", place(tables, "train.csv"), place(tables, "synthetic.csv"))
    code, out, err = tables.call(*words, "--holdout", place(tables, "control.csv"), "-o", page)
    assert code == 0, err
    assert "column shapes" in out
    assert "ceiling: the 80 holdout rows" in out
    assert "Keep it where the rows are" in page.read_text()
    assert page.stat().st_mode & 0o077 == 0
    again = tables.call(*words, "--holdout", place(tables, "control.csv"))[1]
    assert again.splitlines() == [line for line in out.splitlines() if "page is" not in line]


def test_score_as_json_and_for_the_owner(tables):
    page = place(tables, "scores.html")
    code, out, _ = tables.call(
        "score", place(tables, "train.csv"), place(tables, "synthetic.csv"),
        "--target", "job", "--json", "--report", page,
    )  # fmt: skip
    found = json.loads(out)
    assert code == 0
    assert {part["name"] for part in found["parts"]} >= {"column shapes", "utility of 'job'"}
    assert found["page"] == str(page)
    assert "Keep it where the rows are" in page.read_text()
    assert page.stat().st_mode & 0o077 == 0


def test_attack_prints_and_draws(tables):
    page = place(tables, "risks.html")
    words = (
        "attack", place(tables, "train.csv"), place(tables, "synthetic.csv"),
        "--control", place(tables, "control.csv"), "--targets", 50,
    )  # fmt: skip
    code, out, err = tables.call(*words, "--secret", "job", "--only", "inference", "-o", page)
    assert code == 0, err
    assert "inference" in out
    assert "Risks" in page.read_text()
    code, out, _ = tables.call(*words, "--known", "age", "--known", "sex", "--json")
    found = json.loads(out)
    assert code == 0
    assert {part["attack"] for part in found["parts"]} >= {"singling_out", "membership"}
    assert found["worst"]["measures"] > 0


def test_a_copy_is_caught(tables):
    code, out, _ = tables.call(
        "attack", place(tables, "train.csv"), place(tables, "train.csv"),
        "--control", place(tables, "control.csv"), "--json",
    )  # fmt: skip
    found = json.loads(out)
    assert code == 0
    assert found["worst"]["caught"]


def test_a_run_shows_its_owner_what_attacks_found(done):
    for name in ("train", "control"):
        done.write(f"{name}.csv", (done.path / "north.csv").read_text())
    done.replace("control.csv", "age,sex,job\n", "age,sex,job\n" + "91,m,y\n92,f,x\n" * 30)
    run, public = done.path / "run", (done.path / "run" / "report.html").read_bytes()
    assert 'id="risks"' not in (run / "report-owner.html").read_text()
    words = ("attack", done.path / "train.csv", run / "synthetic.csv", "--allow-overlap")
    words = (*words, "--control", done.path / "control.csv", "--targets", 20, "--run", run)
    code, out, err = done.call(*words, "--only", "membership")
    assert code == 0, err
    assert "report-owner.html" in out
    page = (run / "report-owner.html").read_text()
    assert 'id="risks"' in page
    assert out.splitlines()[0] in page  # whether anything was found, in a sentence
    for private in ("attacks.json", "report-owner.html"):
        assert (run / private).stat().st_mode & 0o077 == 0
    assert (run / "report.html").read_bytes() == public
    assert done.call("report", run, "--audience", "owner")[0] == 0
    assert (run / "report-owner.html").read_text() == page
    assert done.call("report", run)[0] == 0
    assert (run / "report.html").read_bytes() == public

    code, _, err = done.call(*words[:2], done.path / "north.csv", *words[3:])
    assert code == 2
    assert "is another table than the run's" in " ".join(err.split())
    (run / "attacks.json").write_text("{}")
    code, _, err = done.call("report", run, "--audience", "owner")
    assert code == 2
    assert "holds no results of attacks" in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("score", "train.csv", "nowhere.csv"), "nowhere.csv"),
        (("score", "train.csv", "other.csv"), "different columns: real lacks 'height'"),
        (("score", "train.csv", "synthetic.csv", "--target", "height"), "height"),
        (("score", "train.csv", "synthetic.csv", "--schema", "none.json"), "none.json"),
        (("score", "train.csv", "synthetic.csv", "-o", "no/where.html"), "folder does not exist"),
        (("attack", "train.csv", "synthetic.csv", "--control", "short.csv"), "control"),
        (("attack", "train.csv", "synthetic.csv", "--control", "train.csv"), "overlap"),
        (("attack", "train.csv", "synthetic.csv", "--control", "control.csv", "--only", "x"), "x"),
        (
            ("attack", "train.csv", "synthetic.csv", "--control", "control.csv", "--secret", "q"),
            "q",
        ),
    ],
)
def test_bad_input(tables, words, said):
    tables.write("other.csv", "age,sex,job,height\n" + "30,f,x,180\n" * 20)
    tables.write("short.csv", "age,sex,job\n30,f,x\n")
    before = tables.files()
    places = [str(tables.path / w) if w.endswith((".csv", ".json", ".html")) else w for w in words]
    code, out, err = tables.call(*places)
    assert (code, out) == (2, "")
    assert said in err
    assert tables.files() == before


@pytest.fixture
def visits(tables):
    """The same tables with an id that two rows in a row have; ids of control are others."""
    for name, first in (("train", 0), ("control", 1000), ("synthetic", 2000)):
        lines = place(tables, f"{name}.csv").read_text().splitlines()
        rows = [f"p{first + i // 2},{line}" for i, line in enumerate(lines[1:])]
        tables.write(f"{name}.csv", "\n".join([f"patient,{lines[0]}", *rows, ""]))
    return tables


def test_persons_are_attacked_and_scored_where_they_are_the_unit(visits):
    three = [place(visits, f"{name}.csv") for name in ("train", "synthetic", "control")]
    words = ("attack", *three[:2], "--control", three[2], "--unit", "patient")
    code, out, err = visits.call(*words, "--only", "membership")
    assert code == 0, err
    assert "40 persons with 80 rows in train and 40 persons with 80 rows in control" in out
    code, out, err = visits.call("score", *three[:2], "--holdout", three[2], "--unit", "patient")
    assert code == 0, err
    assert "40 persons held out" in out


@pytest.mark.parametrize("command", ["attack", "score"])
def test_a_person_who_is_not_held_out_ends_a_command_with_a_clear_message(visits, command):
    train, made = (place(visits, f"{name}.csv") for name in ("train", "synthetic"))
    other = {"attack": "--control", "score": "--holdout"}[command]
    code, out, err = visits.call(command, train, made, other, train, "--unit", "patient")
    assert code == 2
    assert not out
    assert "40 persons have rows in both" in err
    code, _, err = visits.call(command, train, made, other, train, "--unit", "job")
    assert code == 2
    code, _, err = visits.call(command, train, made, other, train, "--unit", "who")
    assert code == 2
    assert "has no column 'who'" in err
