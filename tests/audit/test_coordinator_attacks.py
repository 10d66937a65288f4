"""The coordinator's view of a run, attacked."""

import numpy as np
import pytest

import siloweave as sw
from siloweave.audit.transcripts import (
    attack_run,
    noisy_marginals,
    secure_marginals,
    shared_counts,
)
from siloweave.core.settings import TRANSCRIPT
from siloweave.errors import InputError, RosterError
from siloweave.privacy.budget import Budget
from siloweave.statistics.marginals import marginal
from siloweave.tables import Column, Schema, Table

COLUMNS = 6
SCHEMA = Schema(
    tuple(Column(f"c{i}", "integer", low=0, high=9) for i in range(COLUMNS))
).with_fallbacks()
WORKLOAD = [(f"c{i}", f"c{i + 1}") for i in range(COLUMNS - 1)]
SETTINGS = {"workload": WORKLOAD, "bins": 10}


def people(rows, seed):
    """Rows that hardly repeat, so that each stands out in some cell."""
    rng = np.random.default_rng(seed)
    return Table.from_columns({f"c{i}": (rng.integers(0, 10, rows), None) for i in range(COLUMNS)})


def run(method, data, folder, epsilon, seed=1):
    """Noise of a seed: the subject here is the attack, and one run's risk is far from its mean."""
    fitted = method.fit(
        data, SCHEMA, budget=Budget(epsilon, 1e-5), folder=folder, seed=seed, noise="seeded"
    )
    fitted.save(folder / "model")
    return fitted


PARTS = {"north": people(120, 1), "south": people(200, 2)}


@pytest.mark.parametrize(
    "method",
    [
        sw.FLAIM(participation=1.0, **SETTINGS),
        sw.DistAIM(participation=1.0, **SETTINGS),
        sw.TwoRound(**SETTINGS),
    ],
)
def test_each_party_is_attacked_within_what_its_ledger_allows(method, tmp_path):
    run(method, PARTS, tmp_path, 3.0)
    found = attack_run(tmp_path, PARTS, people(400, 3), targets=200)
    assert [one.party for one in found] == ["north", "south"]
    for one in found:
        assert one.marginals > 0
        assert one.risk.low <= one.risk.allowed < 1
        assert one.risk.curve.members + one.risk.curve.others <= 200


def test_a_run_with_little_noise_gives_rows_away(tmp_path):
    rows = people(300, 1)

    def risk(epsilon, seed):
        folder = tmp_path / f"{epsilon} {seed}"
        run(sw.AIM(**SETTINGS), rows, folder, epsilon, seed)
        (exposure,) = attack_run(folder, rows, people(300, 2), targets=200)
        return exposure.risk

    assert np.mean([risk(500.0, seed).low for seed in range(4)]) > 0.3
    for seed in range(4):
        quiet = risk(0.1, seed)
        assert quiet.low < 0.1
        assert quiet.allowed < 0.1


def test_who_is_behind_a_sum(tmp_path):
    """Taking out the rows of all that are said to be behind a sum leaves nothing but noise."""
    data = {f"p{k}": people(60 + k, k) for k in range(5)}
    encoder = run(
        sw.FLAIM(participation=0.6, rounds=4, **SETTINGS), data, tmp_path, 200.0
    ).model.encoder
    coded = {name: encoder.encode(part) for name, part in data.items()}
    seen = noisy_marginals(tmp_path / TRANSCRIPT, encoder.domain)
    some = [one for one in seen if len(one.contributors) < len(one.cohort)]
    assert some
    for one in seen:
        m = one.measurement
        rows = sum(coded[name].num_rows for name in one.contributors)
        spread = m.sigma * np.sqrt(m.counts.size)
        assert abs(m.counts.sum() - rows) < 6 * spread + 1e-9


def test_counts_that_were_shared_are_attacked_as_they_were_opened(tmp_path):
    data = {f"p{k}": people(60 + k, k) for k in range(5)}
    run(sw.DistAIM(participation=0.3, rounds=2, **SETTINGS), data, tmp_path, 8.0)
    fitted = sw.load(tmp_path / "model")
    seen = shared_counts(tmp_path / TRANSCRIPT, fitted)
    measured = [(c, taken.sigma) for taken in fitted.model.measured for c in taken.cliques]
    assert sorted((o.measurement.clique, o.measurement.sigma) for o in seen) == sorted(measured)
    assert 0 < len(seen[0].contributors) < 5
    for one in seen:
        m = one.measurement
        behind = [fitted.model.encoder.encode(data[name]) for name in one.contributors]
        assert np.abs(m.counts - sum(marginal(c, m.clique) for c in behind)).max() < 7 * m.sigma


def test_bad_input(tmp_path):
    with pytest.raises(InputError, match="targets=3 must be a whole number, 16 or more"):
        attack_run(tmp_path, PARTS, people(20, 3), targets=3)
    run(sw.FLAIM(**SETTINGS), PARTS, tmp_path, 3.0)
    with pytest.raises(RosterError, match="the run's parties are north, south"):
        attack_run(tmp_path, {"north": PARTS["north"]}, people(40, 3))
    with pytest.raises(RosterError, match="one table per party"):
        attack_run(tmp_path, PARTS["north"], people(40, 3))
    found = attack_run(tmp_path, PARTS, people(5, 3))
    assert [(one.risk, one.note) for one in found] == [
        (None, one.note) for one in found if "fewer than 16" in one.note or "no sum" in one.note
    ]
    (tmp_path / TRANSCRIPT).unlink()
    with pytest.raises(InputError, match="no transcript"):
        attack_run(tmp_path, PARTS, people(40, 3))


def test_a_run_of_another_method_is_refused_by_name(tmp_path):
    fitted = sw.GaussianCopula().fit(people(40, 1), SCHEMA)
    fitted.save(tmp_path / "model")
    with pytest.raises(InputError, match="a run of GaussianCopula"):
        attack_run(tmp_path, people(40, 1), people(40, 2))


def test_rows_that_lie_at_all_parties_are_attacked_whole(tmp_path):
    rng = np.random.default_rng(3)
    schema = sw.Schema(
        tuple(sw.Column(name, "integer", low=0, high=2) for name in "abcd")
    ).with_fallbacks()
    values = {name: (rng.integers(0, 3, 400), None) for name in "abcd"}
    whole = sw.Table.from_columns(values)
    data, control = whole.take(range(200)), whole.take(range(200, 400))
    parts = {
        "north": data.select(["a", "d"]),
        "south": data.select(["b"]),
        "west": data.select(["c"]),
    }
    budget = sw.Budget(8.0, 1e-5)
    fitted = sw.SecureTwoRound().fit(parts, schema, budget=budget, folder=tmp_path)
    fitted.save(tmp_path / "model")
    (found,) = sw.attack_run(tmp_path, parts, control, targets=200)
    assert found.party == "all parties together"
    assert found.marginals > 10
    assert found.risk.low <= found.risk.allowed
    seen = secure_marginals(tmp_path / TRANSCRIPT, sw.load(tmp_path / "model"))
    codes = fitted.model.encoder.encode(data)
    for one in seen:
        gap = one.measurement.counts - marginal(codes, one.measurement.clique)
        assert np.abs(gap).max() < 8 * one.measurement.sigma


def visits(rows, seed, most):
    """Rows of persons who have so many each."""
    table = people(rows, seed)
    columns = {name: (table.values(name), None) for name in table.names}
    return Table.from_columns({"who": (np.arange(rows) // most + 1000 * seed, None), **columns})


def test_rows_of_persons_are_attacked_where_all_of_them_took_part(tmp_path):
    """What the ledger allows is for all rows of a person, so a single row is below it."""
    schema = Schema((Column("who", "id"), *SCHEMA.columns))
    budget = Budget(3.0, 1e-5, unit="who", rows_per_unit=2)
    parts = {"north": visits(120, 1, 2), "south": visits(200, 2, 2)}
    fitted = sw.TwoRound(**SETTINGS).fit(
        parts, schema, budget=budget, folder=tmp_path, seed=1, noise="seeded"
    )
    fitted.save(tmp_path / "model")
    for one in attack_run(tmp_path, parts, visits(400, 3, 2), targets=200):
        assert one.risk.low <= one.risk.allowed < 1
    crowded = {**parts, "south": visits(200, 2, 4)}
    with pytest.raises(InputError, match="party 'south': 50 of 'who' have more than rows_per_unit"):
        attack_run(tmp_path, crowded, visits(400, 3, 2), targets=200)
