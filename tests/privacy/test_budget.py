import math

import msgspec
import numpy as np
import pytest

from siloweave.errors import BudgetError, InputError
from siloweave.privacy.budget import (
    Budget,
    Relation,
    l1_score_sensitivity,
    marginal_sensitivity,
    size_sensitivity,
)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"epsilon": 0.0, "delta": 1e-6}, "epsilon = 0.0 must be greater than 0"),
        ({"epsilon": -1.0, "delta": 1e-6}, "epsilon = -1.0"),
        ({"epsilon": math.nan, "delta": 1e-6}, "epsilon = nan"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta = 0.0 must lie strictly between 0 and 1"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta = 1.0"),
        ({"epsilon": 1.0, "delta": math.nan}, "delta = nan"),
        ({"epsilon": 1.0, "delta": 1e-6, "unit": ""}, "unit = ''"),
        ({"epsilon": 1.0, "delta": 1e-6, "relation": "neighbours"}, "relation = 'neighbours'"),
    ],
)
def test_an_impossible_budget_is_refused_by_name(fields, words):
    with pytest.raises(BudgetError, match=words.replace("(", r"\(")):
        Budget(**fields)


def test_a_budget_survives_json_and_can_be_infinite():
    budget = Budget(epsilon=2.0, delta=1e-9, unit="patient", relation=Relation.REPLACE_ONE)
    assert msgspec.json.decode(msgspec.json.encode(budget), type=Budget) == budget
    assert not Budget(epsilon=math.inf, delta=1e-6).private
    with pytest.raises(BudgetError, match="epsilon"):
        msgspec.json.decode(b'{"epsilon": -1, "delta": 0.1}', type=Budget)


def test_sensitivities_are_the_distances_of_all_neighbours():
    """Brute force: every table of up to three rows over three values, and every neighbour."""
    fixed = np.array([0.3, 1.1, 5.0])
    tables = [
        np.bincount(rows, minlength=3)
        for n in range(4)
        for rows in np.ndindex(*[3] * n)
        for rows in [np.array(rows, dtype=int)]
    ]
    worst = {relation: dict.fromkeys(("l1", "l2", "size", "score"), 0.0) for relation in Relation}
    for a in tables:
        for b in tables:
            step = np.abs(a - b).sum()
            if step == 1:
                relation = Relation.ADD_REMOVE
            elif step == 2 and a.sum() == b.sum():
                relation = Relation.REPLACE_ONE
            else:
                continue
            seen = worst[relation]
            seen["l1"] = max(seen["l1"], float(step))
            seen["l2"] = max(seen["l2"], float(np.linalg.norm(a - b)))
            seen["size"] = max(seen["size"], float(abs(a.sum() - b.sum())))
            moved = abs(np.abs(a - fixed).sum() - np.abs(b - fixed).sum())
            seen["score"] = max(seen["score"], float(moved))
    for relation, seen in worst.items():
        assert marginal_sensitivity(relation, norm="l1") == seen["l1"]
        assert marginal_sensitivity(relation, norm="l2") == pytest.approx(seen["l2"], rel=1e-15)
        assert size_sensitivity(relation) == seen["size"]
        assert l1_score_sensitivity(relation) == pytest.approx(seen["score"], rel=1e-12)


def test_an_unknown_norm_is_refused():
    with pytest.raises(InputError, match="norm = 'l3'"):
        marginal_sensitivity(Relation.ADD_REMOVE, norm="l3")
