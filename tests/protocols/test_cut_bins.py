"""AIM, FLAIM and TwoRound whose columns of numbers are cut into bins by a noisy histogram."""

import os

import numpy as np
import pytest

from siloweave import load
from siloweave.app.sample import parse_given
from siloweave.errors import BudgetError, CapacityError, InputError, SchemaError
from siloweave.methods.aim.method import AIM
from siloweave.methods.flaim.method import FLAIM
from siloweave.methods.secure_two_round.method import SecureTwoRound
from siloweave.methods.two_round.method import TwoRound
from siloweave.privacy.budget import Budget
from siloweave.tables import Column, Encoder, Schema, Table

BUDGET = Budget(epsilon=2.0, delta=1e-5)
SCHEMA = Schema(
    (
        Column("pay", "continuous", low=0.0, high=1e6),
        Column("age", "integer", low=0, high=120),
        Column("sex", "categorical", categories=("f", "m")),
    )
).with_fallbacks()
WORKLOAD = [("pay", "sex"), ("age", "sex")]


def rows(number=6000, seed=0):
    rng = np.random.default_rng(seed)
    pay = rng.lognormal(9, 1, number).clip(0, 1e6) * (rng.random(number) < 0.4)
    sex = rng.choice(np.array(["f", "m"], dtype=object), number)
    return Table.from_columns(
        {"pay": (pay, None), "age": (rng.integers(20, 70, number), None), "sex": (sex, None)}
    )


METHODS = [
    AIM(workload=WORKLOAD),
    FLAIM(workload=WORKLOAD, rounds=2, participation=1.0),
    TwoRound(workload=WORKLOAD),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.method.name)
def test_a_skewed_column_comes_back_as_it_is(method, tmp_path):
    real = rows()
    data = real if isinstance(method, AIM) else [real.take(range(i, 6000, 3)) for i in range(3)]
    fit = method.fit(data, SCHEMA, budget=BUDGET, folder=tmp_path)
    pay, drawn = real.values("pay"), fit.sample_table(6000, seed=0).values("pay")
    assert (drawn == 0).mean() == pytest.approx((pay == 0).mean(), abs=0.03)
    shares = np.linspace(0.05, 0.95, 19)
    far = np.abs(np.searchsorted(np.sort(drawn), np.quantile(pay, shares)) / 6000 - shares)
    assert far[shares > 0.62].max() < 0.1
    for entries in fit.ledgers.values():
        assert entries[0].run == "run-bins"
        assert "counts of 2 columns" in entries[0].what
        assert {entry.run for entry in entries[1:]} == {"run"}
    assert max(fit.epsilons.values()) <= BUDGET.epsilon
    assert fit.settings["counts_share"] == 0.2
    assert all(moved.bytes_from_party > 4 * 4_096 for moved in fit.cost.parties.values())
    assert next(iter(fit.cost.phases)) == "histograms of columns"


@pytest.mark.parametrize("method", [*METHODS, SecureTwoRound()], ids=lambda m: m.method.name)
def test_a_long_tail_up_to_a_bound_far_away_comes_back(method):
    rng = np.random.default_rng(1)
    moved = np.rint(rng.lognormal(6, 1.5, 6000)).astype(np.int64)
    schema = Schema(
        (Column("pay", "integer", low=0, high=62_825_648), *SCHEMA.columns[1:])
    ).with_fallbacks()
    real = rows()
    real = Table.from_columns(
        {"pay": (moved, None), **{n: (real.values(n), None) for n in ("age", "sex")}}
    )
    data = real if isinstance(method, AIM) else [real.take(range(i, 6000, 3)) for i in range(3)]
    if isinstance(method, SecureTwoRound):
        data = [real.select(["pay"]), real.select(["age", "sex"])]
    fit = method.fit(data, schema, budget=BUDGET, seed=0, noise="seeded")
    drawn = fit.sample_table(6000, seed=0).values("pay")
    shares = np.linspace(0.05, 0.95, 19)
    far = np.abs(np.searchsorted(np.sort(drawn), np.quantile(moved, shares)) / 6000 - shares)
    assert far.max() < 0.06, "of 4,096 bins of equal width the first has nearly all rows"


def test_without_a_folder_all_runs_of_a_fit_share_a_ledger_in_memory(monkeypatch):
    def refuse(handle):
        raise AssertionError("something was written to disk")

    monkeypatch.setattr(os, "fsync", refuse)
    schema = Schema((Column("pay", "continuous"), *SCHEMA.columns[1:])).with_fallbacks()
    parts = [rows().take(range(i, 6000, 3)) for i in range(3)]
    fit = FLAIM(workload=WORKLOAD, rounds=2, participation=1.0).fit(
        parts, schema, budget=BUDGET, learn=0.1
    )
    for entries in fit.ledgers.values():
        assert [*dict.fromkeys(entry.run for entry in entries)] == ["run-schema", "run-bins", "run"]
        assert [entry.index for entry in entries] == list(range(len(entries)))
    stages = ["learning the schema", "histograms of columns", "rounds with the parties"]
    assert list(fit.cost.phases) == stages
    assert max(fit.epsilons.values()) <= BUDGET.epsilon


def test_numbers_that_float64_cannot_tell_apart_are_not_cut():
    low = 10**17
    rng = np.random.default_rng(0)
    table = Table.from_columns(
        {"big": (low + rng.integers(0, 9001, 500), None), "two": (rng.integers(0, 2, 500), None)}
    )
    schema = Schema(
        (
            Column("big", "integer", low=low, high=low + 9000),
            Column("two", "integer", low=0, high=1),
        )
    ).with_fallbacks()
    fit = AIM(workload=[("big", "two")]).fit(table, schema, budget=BUDGET)
    assert not fit.model.encoder.cuts
    assert low <= fit.sample_table(50, seed=0).values("big").min()


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.method.name)
def test_an_infinite_budget_is_refused(method):
    data = rows() if isinstance(method, AIM) else [rows()]
    with pytest.raises(BudgetError, match="needs a finite epsilon"):
        method.fit(data, SCHEMA, budget=Budget(float("inf"), 1e-5))
    with pytest.raises(InputError, match=r"budget=1.0 is a float; give a Budget"):
        method.fit(data, SCHEMA, budget=1.0)


def test_a_huge_budget_is_not_spent_in_vain():
    three = FLAIM(workload=WORKLOAD, rounds=2, participation=1.0)
    parts = [rows().take(range(i, 6000, 3)) for i in range(3)]
    fit = three.fit(parts, SCHEMA, budget=Budget(1e6, 1e-5))
    assert 0 < max(fit.epsilons.values()) < 1e6


def test_a_histogram_is_not_paid_where_it_shows_nothing():
    plain = AIM(workload=WORKLOAD, counts_share=0.0).fit(rows(), SCHEMA, budget=BUDGET)
    given = AIM(workload=WORKLOAD).fit(rows(), Encoder(SCHEMA, 16), budget=BUDGET)
    narrow = AIM(workload=[("age", "sex")], bins=128)
    few = narrow.fit(rows().select(["age", "sex"]), SCHEMA.select(["age", "sex"]), budget=BUDGET)
    unasked = AIM(workload=[("sex",)]).fit(rows(), SCHEMA, budget=BUDGET)
    for fit in (plain, given, few, unasked):
        (entries,) = fit.ledgers.values()
        assert {entry.run for entry in entries} == {"run"}
        assert fit.settings["counts_share"] == 0
        assert not fit.model.encoder.cuts
    assert np.diff(plain.model.encoder.edges("pay")).std() < 1e-6


def test_what_cannot_be_fitted_is_refused_before_the_histogram(tmp_path):
    wide = AIM(workload=[("pay", "age", "sex")], bins=4096)
    object.__setattr__(wide, "max_model_mb", 0.01)
    with pytest.raises(CapacityError):
        wide.fit(rows(), SCHEMA, budget=BUDGET, folder=tmp_path)
    assert not list(tmp_path.rglob("ledger.jsonl"))


@pytest.mark.parametrize("bad", ["sex", "extra"])
def test_rows_that_do_not_fit_are_refused_before_the_histogram(bad, tmp_path):
    table = rows()
    odd = np.full(table.num_rows, "x", dtype=object)
    columns = {n: (table.values(n), None) for n in table.names} | {bad: (odd, None)}
    with pytest.raises(SchemaError, match=f"party 'party-2': .*{bad}"):
        TwoRound(workload=WORKLOAD).fit(
            [table, Table.from_columns(columns)],
            SCHEMA.refusing(),
            budget=BUDGET,
            folder=tmp_path,
        )
    assert not list(tmp_path.rglob("ledger.jsonl"))


def test_a_column_too_narrow_for_fine_bins_keeps_equal_ones():
    tight = Column("pay", "continuous", low=1e16, high=1e16 + 200.0)
    with pytest.raises(SchemaError):
        Encoder(Schema((tight,)).with_fallbacks(), 4096)
    table = Table.from_columns({"pay": (np.full(300, 1e16 + 8), None)})
    fit = AIM(workload=[("pay",)]).fit(table, Schema((tight,)).with_fallbacks(), budget=BUDGET)
    assert not fit.model.encoder.cuts


@pytest.mark.parametrize("share", [-0.1, 0.91, float("nan")])
def test_a_share_out_of_bounds_is_refused(share):
    with pytest.raises(InputError, match="counts_share"):
        AIM(counts_share=share)


def test_a_fit_with_cuts_comes_back(tmp_path):
    fit = AIM(workload=WORKLOAD).fit(rows(), SCHEMA, budget=BUDGET)
    assert fit.model.encoder.cuts
    fit.save(tmp_path / "fit")
    again = load(tmp_path / "fit")
    assert again.model.encoder == fit.model.encoder
    np.testing.assert_array_equal(
        again.sample_table(50, seed=3).values("pay"), fit.sample_table(50, seed=3).values("pay")
    )
    asked = parse_given(["pay=0"], again.schema)
    assert (again.sample_table(20, seed=3, given=asked).values("pay") == 0).all()
