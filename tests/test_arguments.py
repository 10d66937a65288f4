"""What is forgotten or of another type is refused in words that say what to do."""

import copy
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import siloweave as sw
from siloweave.app.cli import app
from siloweave.errors import BudgetError, InputError, RosterError, SchemaError
from siloweave.methods.registry import METHODS
from tests.architecture.source import ROOT, all_sources

TABLE = sw.Table.from_columns({"x": (np.arange(40) % 7, None)})
SCHEMA = sw.Schema((sw.Column("x", "integer", low=0, high=6),)).with_fallbacks()
PRIVATE_CENTRAL = {"dp_ctgan", "dp_tabddpm", "dp_tldm"}
BARE = {name: kind for name, kind in METHODS.items() if name not in PRIVATE_CENTRAL}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("1", 1e-6), "epsilon = '1' is a str, not a number"),
        ((1.0, "1e-6"), "delta = '1e-6' is a str, not a number"),
        ((None, 1e-6), "epsilon = None"),
        ((True, 1e-6), "epsilon = True is a bool"),
    ],
)
def test_a_budget_is_made_of_numbers(arguments, words):
    with pytest.raises(BudgetError, match=words):
        sw.Budget(*arguments)
    assert sw.Budget(np.float32(1), np.float64(1e-6)).private


@pytest.mark.parametrize("name", BARE)
def test_a_forgotten_schema_or_budget_is_named(name):
    method = METHODS[name]()
    data = TABLE if method.method.split == "central" else [TABLE, TABLE]
    for schema, words in (
        (None, "schema is missing"),
        (TABLE, "schema is a Table"),
        ({"x": "integer"}, "schema is a dict"),
    ):
        with pytest.raises(SchemaError, match=f"{words}; .* give a Schema"):
            method.fit(data, schema, budget=sw.Budget(1.0, 1e-6))
    with pytest.raises(SchemaError, match="schema is missing"):
        method.fit(data)
    with pytest.raises(BudgetError, match=r"budget=1\.0 is a float; give a Budget"):
        method.fit(data, SCHEMA, budget=1.0)
    if method.info.guarantee == "dp":
        with pytest.raises(BudgetError, match=r"budget is missing; .* adds noise|needs a finite"):
            method.fit(data, SCHEMA)


@pytest.mark.parametrize("name", METHODS)
def test_an_argument_that_a_method_does_not_take_is_named(name):
    kind = METHODS[name]
    with pytest.raises(InputError, match=f"{kind.__name__} takes no colour; leave .* out"):
        kind(colour="red")
    assert replace(kind()) == copy.deepcopy(kind()) == kind()


@pytest.mark.parametrize("method", [sw.FedTGAN])
def test_a_target_that_a_method_does_not_take_is_named(method):
    with pytest.raises(InputError, match="takes no target; leave target='x' out"):
        method(target="x").fit([TABLE], SCHEMA, budget=None)


def test_names_are_held_against_the_tables():
    fit = sw.AIM(workload=[("x",)]).fit
    budget = sw.Budget(4.0, 1e-5)
    assert list(fit(TABLE, SCHEMA, budget=budget, names=["us"]).ledgers) == ["us"]
    with pytest.raises(RosterError, match="names='us' is one text"):
        fit(TABLE, SCHEMA, budget=budget, names="us")
    with pytest.raises(RosterError, match="names has 2 entries for 1 tables"):
        fit(TABLE, SCHEMA, budget=budget, names=["us", "them"])


@pytest.mark.parametrize("seed", ["1", 1.5, -1, True])
def test_a_seed_is_a_whole_number(seed):
    fitted = sw.GaussianCopula().fit(TABLE, SCHEMA)
    with pytest.raises(InputError, match="give a whole number >= 0"):
        fitted.sample(3, seed=seed)


def test_the_package_runs_as_a_module():
    code = [sys.executable, "-m", "siloweave", "--version"]
    place = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(code, capture_output=True, text=True, check=True, env=place)
    assert done.stdout.split()[0] == "siloweave"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_the_commands(shell):
    name = "_SILOWEAVE_COMPLETE"
    found = CliRunner().invoke(
        app, [], prog_name="siloweave", env={
            name: f"complete_{shell}", "COMP_WORDS": "siloweave sc", "COMP_CWORD": "1",
            "_TYPER_COMPLETE_ARGS": "siloweave sc", "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
    )  # fmt: skip
    assert "score" in found.output


# Loggers of other packages, whose lines are filtered.
_OTHER_LOGGERS = ("absl", "flwr", "fastexcel.types.dtype")


def test_there_is_one_logger():
    named = [
        (source.path, line)
        for source in all_sources()
        if source.in_package
        for line in source.text.splitlines()
        if "getLogger(" in line and not any(f'("{other}")' in line for other in _OTHER_LOGGERS)
    ]
    assert named
    assert all('getLogger("siloweave")' in line for _, line in named)
