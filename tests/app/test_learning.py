"""A study whose schema leaves facts open."""

import json

import numpy as np
import pytest

from siloweave.report.record import Record


@pytest.fixture
def open_study(folder):
    """Many rows, and a schema that does not know how old people are."""
    rng = np.random.default_rng(1)
    for name in ("north", "south"):
        ages, sexes = rng.integers(18, 90, 4000), rng.choice(list("fm"), 4000)
        jobs = rng.choice(list("xy"), 4000)
        ages[0] = 5000  # alone so far out: the learned bounds leave it out
        rows = [",".join(map(str, row)) for row in zip(ages, sexes, jobs, strict=True)]
        folder.write(f"{name}.csv", "\n".join(["age,sex,job", *rows, ""]))
    schema = json.loads((folder.path / "schema.json").read_text())
    schema["columns"][0] = {"name": "age", "kind": "integer", "fallback": 0}
    schema["columns"][2] = {"name": "job", "kind": "categorical", "categories": ["?"], "other": "?"}
    folder.write("schema.json", json.dumps(schema))
    return folder


def test_open_facts_without_a_share_of_the_budget_are_refused(open_study):
    before = open_study.files()
    for command in ("check", "run"):
        code, _, err = open_study.call(command)
        assert code == 2
        assert "column 'age' has no declared low and high" in err
        assert "learn = 0.1" in err
    assert open_study.files() == before


def test_open_facts_are_learned_and_in_the_ledger(open_study):
    open_study.replace("study.toml", 'file = "schema.json"', 'file = "schema.json"\nlearn = 0.3')
    code, out, err = open_study.call("check")
    assert code == 0, err
    assert "30% of the budget goes to facts that the schema leaves open (age, job)" in out
    code, _, err = open_study.call("run")
    assert code == 0, err
    ledger = (open_study.path / "run/parties/0000/ledger.jsonl").read_text()
    assert "frequent values of job" in ledger
    assert "how large numbers are: age" in ledger
    record = Record.from_json((open_study.path / "run/record.json").read_bytes())
    assert [(f.column, f.facts, f.how) for f in record.schema_facts] == [
        ("age", "low, high", "paid"),
        ("sex", "kind and domain", "declared"),
        ("job", "categories", "paid"),
    ]
    assert record.assumed_public[0].endswith("but for what was learned and paid for")
    assert "Distributions" in (open_study.path / "run/report-owner.html").read_text()
    synthetic = (open_study.path / "run/synthetic.csv").read_text().splitlines()[1:]
    assert max(int(row.split(",")[0]) for row in synthetic) < 5000
    assert {row.split(",")[2] for row in synthetic} <= {"x", "y", "?"}
    code, out, _ = open_study.call("run")
    assert code == 0
    assert (open_study.path / "run/parties/0000/ledger.jsonl").read_text() == ledger


def test_a_share_that_is_none_is_refused(open_study):
    open_study.replace("study.toml", 'file = "schema.json"', 'file = "schema.json"\nlearn = 1.5')
    code, _, err = open_study.call("run")
    assert code == 2
    assert "learn=1.5 must be a number in [0, 1)" in err
    assert not (open_study.path / "run").exists()


def test_a_share_for_which_there_is_no_use_is_said(folder):
    folder.replace("study.toml", 'file = "schema.json"', 'file = "schema.json"\nlearn = 0.3')
    found = folder.json("check")
    assert "[schema] learn = 0.3 is not used" in " ".join(found["warnings"])
