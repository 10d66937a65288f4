import math
from itertools import product

import msgspec
import numpy as np
import pytest

from siloweave.errors import BudgetError, InputError
from siloweave.privacy.budget import (
    Budget,
    Neighbours,
    Relation,
    enough_epsilon,
    l1_score_sensitivity,
    marginal_sensitivity,
    r_score_sensitivity,
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
        ({"epsilon": 1.0, "delta": 1e-6, "unit": "patient"}, "rows_per_unit is missing"),
        *(
            ({"epsilon": 1.0, "delta": 1e-6, "unit": "patient", "rows_per_unit": rows}, "whole")
            for rows in (0, -1, True, 2.0, "5", math.inf)
        ),
        *(
            (
                {"epsilon": 1.0, "delta": 1e-6, "unit": "patient", "rows_per_unit": 5}
                | {"parties_per_unit": parties},
                "parties_per_unit = .* must be a whole number",
            )
            for parties in (0, -2, True, 1.5, None)
        ),
        ({"epsilon": 1.0, "delta": 1e-6, "rows_per_unit": 0}, "rows_per_unit = 0"),
        ({"epsilon": 1.0, "delta": 1e-6, "rows_per_unit": 5}, "rows_per_unit = 5, but unit"),
        ({"epsilon": 1.0, "delta": 1e-6, "parties_per_unit": 2}, "parties_per_unit = 2, but unit"),
        (
            {"epsilon": 1.0, "delta": 1e-6, "unit": "patient", "rows_per_unit": 5}
            | {"relation": Relation.REPLACE_ONE},
            "number of rows is not public",
        ),
    ],
)
def test_an_impossible_budget_is_refused_by_name(fields, words):
    with pytest.raises(BudgetError, match=words.replace("(", r"\(")):
        Budget(**fields)


def test_a_budget_survives_json_and_can_be_infinite():
    budget = Budget(epsilon=2.0, delta=1e-9, relation=Relation.REPLACE_ONE)
    assert msgspec.json.decode(msgspec.json.encode(budget), type=Budget) == budget
    budget = Budget(2.0, 1e-9, "patient", rows_per_unit=5, parties_per_unit=2)
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
        near = Neighbours(relation)
        assert marginal_sensitivity(near, norm="l1") == seen["l1"]
        assert marginal_sensitivity(near, norm="l2") == pytest.approx(seen["l2"], rel=1e-15)
        assert size_sensitivity(near) == seen["size"]
        assert l1_score_sensitivity(near) == pytest.approx(seen["score"], rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_sensitivities_of_a_person_are_the_distances_of_all_her_rows(k):
    """Brute force: every table of up to two rows over two pairs of values, and every person."""
    shape, fixed = (2, 2), np.array([[0.3, 1.1], [5.0, 0.0]])
    cells = list(np.ndindex(*shape))

    def table(rows):
        counts = np.zeros(shape, dtype=int)
        for row in rows:
            counts[row] += 1
        return counts

    worst = dict.fromkeys(("l1", "l2", "size", "score", "r"), 0.0)
    for n, j in product(range(1, 12), range(1, k + 1)):
        tables = product(cells, repeat=n) if n < 3 else [[cell] * n for cell in cells]
        for others, person in product(tables, product(cells, repeat=j)):
            a, added = table(others), table(person)
            b = a + added
            worst["l1"] = max(worst["l1"], np.abs(added).sum())
            worst["l2"] = max(worst["l2"], np.linalg.norm(added))
            worst["size"] = max(worst["size"], b.sum() - a.sum())
            moved = abs(np.abs(a - fixed).sum() - np.abs(b - fixed).sum())
            worst["score"] = max(worst["score"], moved)
            worst["r"] = max(worst["r"], abs(r_distance(a) - r_distance(b)))
    near = Neighbours(rows=k)
    assert marginal_sensitivity(near, norm="l1") == worst["l1"] == k
    assert marginal_sensitivity(near, norm="l2") == worst["l2"] == k
    assert size_sensitivity(near) == worst["size"] == k
    assert l1_score_sensitivity(near) == pytest.approx(worst["score"], rel=1e-12)
    assert 0.75 * r_score_sensitivity(near) < worst["r"] <= r_score_sensitivity(near)


def r_distance(table):
    """(n / 2) || P - P_1 x P_2 ||_1, not rounded."""
    independent = np.outer(table.sum(1), table.sum(0)) / table.sum()
    return np.abs(table - independent).sum() / 2


def test_a_sensitivity_is_not_computed_from_a_relation_alone():
    for sensitivity in (size_sensitivity, l1_score_sensitivity, r_score_sensitivity):
        with pytest.raises(InputError, match="must be a Neighbours"):
            sensitivity(Relation.ADD_REMOVE)
    with pytest.raises(BudgetError, match="number of rows is not public"):
        Neighbours(Relation.REPLACE_ONE, rows=2)


def test_an_unknown_norm_is_refused():
    with pytest.raises(InputError, match="norm = 'l3'"):
        marginal_sensitivity(Neighbours(), norm="l3")


@pytest.mark.parametrize("epsilon", [1e-300, 1e-9, 0.03, 0.99])
def test_an_epsilon_that_suffices_is_found_soon_however_small_the_budget_is(epsilon):
    tried = []

    def suffices(budget):
        tried.append(budget.epsilon)
        return budget.epsilon >= 1.0

    assert 1.0 <= enough_epsilon(Budget(epsilon, 1e-6), suffices) <= 1.17
    assert len(tried) < 150
