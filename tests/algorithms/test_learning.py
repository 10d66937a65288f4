"""A run that learns what its schema leaves open, on the ledger that the run itself goes on with."""

import numpy as np
import pytest

from siloweave.algorithms.synthesizers import SYNTHESIZERS, TwoRound
from siloweave.errors import InputError, RosterError, SchemaError
from siloweave.privacy import Budget
from siloweave.tables import Column, Schema, Table

OPEN = Schema(
    (
        Column("sex", "categorical", categories=("f", "m")),
        Column("town", "categorical", categories=("?",), other="?"),
        Column("age", "integer"),
    )
)
BUDGET = Budget(epsilon=2.0, delta=1e-5)


def tables(parties=3, number=2000):
    rng = np.random.default_rng(5)
    return [
        Table.from_columns(
            {
                "sex": (rng.choice(["f", "m"], size=number).astype(object), None),
                "town": (rng.choice(["Ulm", "Bonn"], size=number).astype(object), None),
                "age": (rng.integers(20, 80, size=number), None),
            }
        )
        for _ in range(parties)
    ]


@pytest.mark.parametrize("name", ["flaim", "two_round"])
def test_open_facts_are_learned_within_the_budget(name, tmp_path):
    synthesizer = SYNTHESIZERS[name](workload=[("sex", "town"), ("town", "age")], bins=8)
    fit = synthesizer.fit(tables(), OPEN, budget=BUDGET, learn=0.2, folder=tmp_path)
    town, age = (fit.encoder.schema[n] for n in ("town", "age"))
    assert set(town.categories) == {"?", "Ulm", "Bonn"}
    assert town.learned == ("categories",)
    assert set(age.learned) == {"low", "high"}
    assert age.low <= 20
    assert age.high >= 79
    assert all(0 < cost <= BUDGET.epsilon for cost in fit.epsilons.values())
    steps = [entry.what for entry in fit.ledgers["party-1"]]
    assert any("town" in what for what in steps)
    assert len(list(tmp_path.rglob("ledger.jsonl"))) == 3
    assert set(fit.sample_table(200).values("town").tolist()) <= {"?", "Ulm", "Bonn"}


def test_a_run_without_a_folder_learns_too():
    fit = TwoRound(workload=[("sex", "town")]).fit(tables(), OPEN, budget=BUDGET, learn=0.2)
    assert all(len(entries) == 4 for entries in fit.ledgers.values())


def test_open_facts_need_a_share_of_the_budget():
    with pytest.raises(SchemaError, match="'age' has no declared low and high"):
        TwoRound().fit(tables(), OPEN, budget=BUDGET)
    with pytest.raises(InputError, match=r"learn=1 must lie in \[0, 1\)"):
        TwoRound().fit(tables(), OPEN, budget=BUDGET, learn=1)


def test_nobody_learns_from_an_empty_party():
    with pytest.raises(RosterError, match="'party-2' has no rows"):
        TwoRound().fit([tables()[0], tables()[0].take([])], OPEN, budget=BUDGET, learn=0.2)
