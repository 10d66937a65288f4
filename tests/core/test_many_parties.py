"""A thousand parties in one process: all take part, and nobody pays for more than it joined."""

import numpy as np
import pytest

from siloweave.methods.flaim.method import FLAIM
from siloweave.privacy.budget import Budget
from siloweave.tables import Codes
from siloweave.tables.codes import Encoder
from siloweave.tables.column import Column
from siloweave.tables.schema import Schema

PARTIES = 1000
SCHEMA = Schema(
    tuple(Column(a, "categorical", categories=tuple("wxyz"[:n])) for a, n in (("a", 2), ("b", 4)))
).with_fallbacks()
BUDGET = Budget(epsilon=1.0, delta=1e-6)


def parties(seed=0):
    """Five rows each; b leans on a."""
    rng = np.random.default_rng(seed)
    domain = Encoder(SCHEMA).domain
    a = rng.integers(0, 2, size=(PARTIES, 5))
    b = np.where(rng.random(a.shape) < 0.8, 3 * a, rng.integers(0, 4, size=a.shape))
    return [Codes(domain, (x, y)) for x, y in zip(a, b, strict=True)]


def truth(tables):
    joint = np.zeros((2, 4))
    for codes in tables:
        np.add.at(joint, codes.columns, 1)
    return joint / joint.sum()


def test_a_thousand_parties_by_chance():
    tables = parties()
    flaim = FLAIM(rounds=4, participation=0.03, workload=[("a", "b")])
    fitted = flaim.fit(tables, SCHEMA, budget=BUDGET, seed=1, noise="seeded")
    assert len(fitted.ledgers) == PARTIES
    assert fitted.epsilon <= BUDGET.epsilon
    idle = [name for name, entries in fitted.ledgers.items() if not entries]
    assert 0.8 * PARTIES < len(idle) < 0.95 * PARTIES  # (1 - 0.03)^4 = 0.89
    assert all(fitted.epsilons[name] == 0 for name in idle)
    assert all(fitted.cost.parties[name].messages == 2 for name in idle)  # its key, its ledger


@pytest.mark.slow
def test_a_thousand_parties_once_each():
    """With a cap of one everyone takes part, in cohorts that share no party."""
    tables = parties()
    flaim = FLAIM(rounds=20, cap=1, workload=[("a", "b")])
    fitted = flaim.fit(tables, SCHEMA, budget=BUDGET, seed=1, noise="seeded")
    assert fitted.epsilon <= BUDGET.epsilon
    rounds = {name: len(entries) for name, entries in fitted.ledgers.items()}
    assert set(rounds.values()) == {4}  # one-ways, size, choice, what was chosen
    model = fitted.model.mrf.marginal(("a", "b")) / fitted.model.mrf.total
    assert np.abs(model - truth(tables)).sum() < 0.25
    assert 0.7 < fitted.model.mrf.total / (5 * PARTIES) < 1.3
