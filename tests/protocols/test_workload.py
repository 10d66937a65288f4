"""Which queries AIM, FLAIM and TwoRound get right when nobody names any."""

from itertools import combinations

import numpy as np
import pytest

import siloweave as sw
from siloweave.core.method import Case
from siloweave.errors import CapacityError, InputError
from siloweave.protocols.workload import workload_for
from siloweave.statistics.marginals import random_workload
from siloweave.tables.codes import Codes, Domain, Encoder
from tests.synthesizers.families import SYNTHESIZERS

NAMES = ("a", "b", "c", "d", "e")
BUDGET = sw.Budget(4.0, 1e-5)


def schema(*wide):
    """Five columns of three values, but for wide ones of 200."""
    return sw.Schema(tuple(
        sw.Column(n, "integer", low=0, high=199 if n in wide else 2) for n in NAMES
    ))  # fmt: skip


def table():
    rng = np.random.default_rng(0)
    return sw.Table.from_columns({name: (rng.integers(0, 3, 60), None) for name in NAMES})


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_every_pair_is_a_query_by_default(name):
    kind = SYNTHESIZERS[name]
    data = table() if kind.method.split == "central" else [table(), table()]
    if kind.method.split == "columns":
        data = [table().select(NAMES[:2]), table().select(NAMES[2:])]
    extra = {"participation": 1.0, "rounds": 2} if name == "flaim" else {}
    fitted = kind(bins=4, **extra).fit(data, schema(), budget=BUDGET)
    assert list(fitted.model.workload) == list(combinations(NAMES, 2))
    three = kind(bins=4, degree=3, **extra).fit(data, schema(), budget=BUDGET)
    assert list(three.model.workload) == list(combinations(NAMES, 3))


def test_the_published_setting_is_the_random_triples_of_before():
    domain = Domain(tuple(f"c{i}" for i in range(14)), (3,) * 14)
    drawn = workload_for(domain, 3, 64, None, 80.0)
    assert drawn == random_workload(domain, 3, 64, seed=123)
    assert len(drawn) == 64


def test_pairs_that_do_not_fit_are_left_out_and_said():
    wide, limit = ("a", "b"), 8 * 2_000e-6  # 2,000 cells: 200 x 200 do not fit, 200 x 3 do
    aim = sw.FLAIM(bins=200, counts_share=0, participation=1.0, rounds=2, max_model_mb=limit)
    fitted = aim.fit([table(), table()], schema(*wide), budget=BUDGET)
    assert list(fitted.model.workload) == [q for q in combinations(NAMES, 2) if q != wide]
    (note,) = aim.method.forecast(aim, Case(schema(*wide), BUDGET, 2)).notes
    assert "1 sets of 2 columns do not fit into 0.016 MB" in note
    assert not sw.FLAIM.method.forecast(sw.FLAIM(), Case(schema(*wide), BUDGET, 2)).notes


def test_a_column_whose_every_pair_is_too_large_is_a_query_by_itself():
    domain = Domain(NAMES, (200, 3, 3, 3, 3))
    found = workload_for(domain, 2, None, None, 8 * 300e-6)
    assert found == [*combinations(NAMES[1:], 2), ("a",)]
    with pytest.raises(CapacityError, match=r"the query over a \(200\)"):
        workload_for(domain, 2, None, None, 8 * 100e-6)


def test_what_is_asked_for_must_fit():
    domain = Domain(NAMES, (200, 200, 3, 3, 3))
    with pytest.raises(CapacityError, match="a \\(200\\), b \\(200\\)"):
        workload_for(domain, 2, None, [("a", "b")], 8 * 2_000e-6)
    with pytest.raises(CapacityError, match="a \\(200\\), b \\(200\\)"):
        workload_for(domain, 2, 10, None, 8 * 2_000e-6)


def test_many_columns_stay_within_the_model():
    names = tuple(f"c{i}" for i in range(55))
    domain = Domain(names, (16,) * 55)
    rng = np.random.default_rng(0)
    codes = Codes(domain, tuple(rng.integers(0, 16, 40) for _ in names))
    columns = tuple(sw.Column(n, "integer", low=0, high=15) for n in names)
    encoder = Encoder(sw.Schema(columns), bins=16)
    fitted = sw.TwoRound(max_model_mb=1.0).fit([codes, codes], encoder, budget=BUDGET)
    assert len(fitted.model.workload) == 55 * 54 // 2
    assert fitted.model.mrf.tree.cells * 8 <= 1e6


@pytest.mark.parametrize("wrong", [{"queries": 0}, {"degree": 0}, {"queries": "all"}])
def test_settings_out_of_bounds_are_named(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        sw.AIM(**wrong)
