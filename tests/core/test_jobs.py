"""What every run checks before it begins, whatever the method."""

from pathlib import Path

import numpy as np
import pytest

from siloweave.core.method import Setup
from siloweave.core.party import named_parties
from siloweave.core.settings import Job
from siloweave.errors import (
    DataError,
    InputError,
    RosterError,
    WireError,
    naming_party,
    number,
    whole,
)
from siloweave.methods.aim.method import AIM
from siloweave.models.train import TrainingError
from siloweave.privacy.budget import Budget
from siloweave.tables.column import Column
from siloweave.tables.schema import Schema

BUDGET = Budget(1.0, 1e-6)


@pytest.mark.parametrize(
    ("data", "names", "said"),
    [
        ([1, 2, 3], ["clinic", "lab", "clinic"], "two parties are called 'clinic'"),
        ({1: "a", "1": "b"}, None, "two parties are called '1'"),
        ([1, 2], "ab", "names='ab' is one text"),
        ([1, 2], ["a"], "names has 1 entries for 2 tables"),
        (1, None, "data is a int"),
    ],
)
def test_no_party_is_lost(data, names, said):
    with pytest.raises(RosterError, match=said):
        named_parties(data, names)


def test_names_are_text():
    assert named_parties([1, 2], [7, "x"]) == {"7": 1, "x": 2}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": 1.0}, "budget=1.0 is no Budget"),
        ({"seed": 1.5}, "seed=1.5 must be a whole number, 0 or more"),
        ({"seed": -1}, "seed=-1 must be a whole number"),
        ({"seed": True}, "seed=True"),
        ({"noise": "Seeded"}, "noise='Seeded' must be 'os'"),
    ],
)
def test_a_job_is_refused(given, said):
    with pytest.raises(InputError, match=said):
        Job(**{"budget": BUDGET, **given})


def test_not_all_of_a_budget_may_go_to_open_facts():
    schema = Schema((Column("x", "boolean"),)).with_fallbacks()
    with pytest.raises(InputError, match=r"learn=1\.0 must be a number in \[0, 1\)"):
        Setup(AIM(), schema, BUDGET, ("a",), learn=1.0)


def test_a_folder_may_be_text():
    assert Job(BUDGET, folder="runs/x").folder == Path("runs/x")
    assert Job(BUDGET, seed=np.int64(3)).seed == 3


@pytest.mark.parametrize("value", ["1", None, True, float("nan"), float("inf"), 0, 2, 1j])
def test_a_number_lies_within_its_bounds(value):
    with pytest.raises(InputError, match=r"x=.* must be a number in \(0, 1\]"):
        number("x", value, 0, 1, "(]")
    assert number("x", np.float32(1.0), 0, 1, "(]") == 1.0
    with pytest.raises(InputError, match=r"must be a number in \[0, 1\)"):
        number("x", 1, 0, 1, "[)")


def test_a_whole_number_is_one():
    assert whole("x", np.int32(4)) == 4
    for value in (1.0, "1", None, False, -1):
        with pytest.raises(InputError, match=r"x=.* must be a whole number, 0 or more"):
            whole("x", value)


def test_an_error_keeps_its_kind_where_it_can():
    for kind in (DataError, RosterError, InputError, WireError):
        with pytest.raises(kind, match=r"^party 'a': odd$") as found, naming_party("a"):
            raise kind("odd")
        assert type(found.value) is kind
    diverged = TrainingError("diverged", step=1, state=None, state_step=0)
    with pytest.raises(InputError, match=r"^party 'a': diverged$"), naming_party("a"):
        raise diverged
    with pytest.raises(KeyError), naming_party("a"):
        raise KeyError("not ours")
