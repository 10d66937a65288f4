"""A study under a guarantee runs whatever number of rows a party has."""

import json

import pytest

from siloweave.app.check import large_delta
from siloweave.methods.secure_two_round.method import SecureTwoRound
from siloweave.methods.two_round.method import TwoRound
from siloweave.privacy.budget import Budget
from tests.app.processes import small
from tests.app.test_bad_input import drop_rows


@pytest.mark.parametrize(
    ("counts", "bound"),
    [([4_000, 5_000], None), ([6_000, 5_000], "9.09e-6"), ([0], None)],
)
def test_a_delta_that_is_large_for_the_rows_is_named(counts, bound):
    sentences = list(large_delta(TwoRound(), Budget(1.0, 1e-5), counts))
    assert len(sentences) == (bound is not None)
    assert all(f"at most {bound} here" in sentence for sentence in sentences)
    # Parties of split columns hold the same rows.
    spread = list(large_delta(SecureTwoRound(), Budget(1.0, 1e-5), counts))
    assert spread == []
    assert list(large_delta(TwoRound(), Budget(1.0, 2e-4), [10])) != []


def no_rows(folder):
    drop_rows(folder, "north.csv", 0)


def one_row(folder):
    drop_rows(folder, "north.csv", 1)


def no_rows_at_all(folder):
    for name in ("north.csv", "south.csv"):
        drop_rows(folder, name, 0)


def a_column_without_a_value(folder):
    for name in ("north.csv", "south.csv"):
        head, *rows = (folder.path / name).read_text().splitlines()
        folder.write(name, "\n".join([head, *(row.rsplit(",", 1)[0] + "," for row in rows)]) + "\n")


@pytest.mark.parametrize(
    "change", [no_rows, one_row, no_rows_at_all, a_column_without_a_value], ids=lambda c: c.__name__
)
def test_it_runs_and_reports(folder, change):
    change(folder)
    assert folder.call("check", "study.toml")[0] == 0
    code, _, err = folder.call("run", "study.toml")
    assert code == 0, err
    run = folder.path / "run"
    assert json.loads((run / "run.json").read_text())["epsilon"] <= 1.0
    head, *rows = (run / "synthetic.csv").read_text().splitlines()
    assert head == "age,sex,job"
    assert rows
    for name in ("report.html", "report-owner.html"):
        assert (run / name).is_file()


def test_a_check_warns_of_relations_with_the_target_that_could_not_be_seen(folder):
    assert "could not be seen" not in folder.call("check", "study.toml")[1]
    small(folder)
    folder.replace("study.toml", "[method]\n", "[method]\ntarget = 'sex'\n")
    code, out, _ = folder.call("check", "study.toml")
    assert code == 0
    part = "a relation of more than two columns with 'sex' could not be seen"
    assert any(part in warning for warning in folder.json("check", "study.toml")["warnings"])
    assert "look at this first: a relation" in " ".join(out.split())
