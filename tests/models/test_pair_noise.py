"""What is kept of a table of two columns, and what is taken for noise."""

import numpy as np
import pytest

from siloweave.models.estimate import Measurement, fit
from siloweave.models.mrf import MRF
from siloweave.models.pair_noise import (
    cleaned,
    dependence,
    margins_of,
    raked_to_columns,
    without_noise,
    without_wide_noise,
)
from siloweave.tables.codes import Domain
from siloweave.tables.keys import generator

ROWS = 7_000
CLIQUE = ("code", "died")


def shares_of(codes: int, tail: float) -> np.ndarray:
    """Return shares of eight frequent codes, and of others that share the tail."""
    return np.r_[np.full(8, (1 - tail) / 8), np.full(codes - 8, tail / (codes - 8))]


def table_of(codes: int, rate: np.ndarray | float, tail: float = 0.1) -> np.ndarray:
    """Return expected counts of codes beside a class of this rate."""
    rows = ROWS * shares_of(codes, tail)
    died = rows * rate
    return np.stack([rows - died, died], axis=1)


def measured(table: np.ndarray, sigma: float, seed: int) -> list[Measurement]:
    """Return the pair in noise, and both columns in the same noise."""
    rng = generator(seed)
    singles = [(("code",), table.sum(axis=1)), (("died",), table.sum(axis=0))]
    tables = [*singles, (CLIQUE, table)]
    return [Measurement(c, y + rng.normal(0, sigma, y.shape), sigma) for c, y in tables]


def class_in_rare_codes(table: np.ndarray) -> float:
    """Return the share of the class in codes that are not frequent."""
    return float(table[8:, 1].sum() / table[8:].sum())


@pytest.mark.parametrize("codes", [20, 60, 256])
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_independent_columns_are_seldom_taken_for_dependent(codes, rate):
    found = 0
    for seed in range(60):
        answers = measured(table_of(codes, rate), 12.0, seed)
        found += dependence(answers[-1], margins_of(answers, None)) > 0
    assert found <= 9  # one in 24 is expected; ten of 60 have probability .0003


@pytest.mark.parametrize("codes", [20, 60, 256])
def test_a_class_that_depends_on_nothing_is_as_frequent_in_rare_codes(codes):
    drawn = []
    for seed in range(8):
        answers = measured(table_of(codes, 0.03), 12.0, seed)
        clean = without_noise(
            answers[:2], answers[2:], None, lambda tables: pytest.fail("no table is wide")
        )
        singles = [m for m in clean if len(m.clique) == 1]
        domain = Domain(CLIQUE, (codes, 2))
        model = fit(domain, clean, warm_start=fit(domain, singles, sweeps=9), sweeps=60)
        drawn.append(class_in_rare_codes(model.marginal(CLIQUE)))
    assert np.mean(drawn) == pytest.approx(0.03, abs=0.01)


def test_what_stands_far_above_its_noise_stays():
    rates = np.r_[np.full(4, 0.6), np.full(4, 0.1), np.full(12, 0.1)]
    table = table_of(20, rates)
    answers = measured(table, 12.0, 0)
    margins = margins_of(answers, None)
    variance = dependence(answers[-1], margins)
    clean = cleaned(answers[-1], margins, variance)
    assert variance > 0
    assert clean.counts[:8, 1] / clean.counts[:8].sum(axis=1) == pytest.approx(rates[:8], abs=0.05)


def test_rare_values_keep_no_noise_and_columns_keep_their_counts():
    rates = np.r_[np.full(4, 0.12), np.full(4, 0.01), np.full(248, 0.06)]
    answers = measured(table_of(256, rates), 12.0, 3)
    margins = margins_of(answers, None)
    clean = cleaned(answers[-1], margins, dependence(answers[-1], margins))
    for axis, column in ((1, "code"), (0, "died")):
        assert clean.counts.sum(axis=axis) == pytest.approx(margins[column].possible)
    by_code = clean.counts[8:, 1] - margins["code"].possible[8:] * 0.06
    assert np.std(by_code) < 0.25 * 12.0


def test_a_pair_is_judged_by_the_second_round_alone():
    """The first answer was chosen among many because it looked dependent."""
    lucky = measured(table_of(20, np.r_[np.full(10, 0.3), np.full(10, 0.01)]), 12.0, 0)
    rate = lucky[1].counts[1] / ROWS
    fair = measured(table_of(20, rate), 6.0, 1)[-1]
    clean = without_noise(lucky, [fair], None, lambda tables: pytest.fail("no table is wide"))
    assert [m.clique for m in clean] == [("code",), ("died",)]


def test_exact_counts_stay_as_they_are():
    table = table_of(20, np.linspace(0.1, 0.6, 20))
    answers = [
        Measurement(("code",), table.sum(axis=1), 0.0),
        Measurement(("died",), table.sum(axis=0), 0.0),
        Measurement(CLIQUE, table, 0.0),
    ]
    margins = margins_of(answers, float(ROWS))
    clean = cleaned(answers[-1], margins, dependence(answers[-1], margins))
    assert clean.counts == pytest.approx(table, abs=1e-3)


@pytest.mark.parametrize("strength", [0.0, 400.0])
def test_wide_tables_keep_interactions_that_stand_above_their_noise(strength):
    """Of order three: gone where they are noise, as measured where they are far above it."""
    domain = Domain(("a", "b", "c", "d"), (3, 3, 3, 3))
    cliques = [("a", "b", "c"), ("b", "c", "d"), ("a", "b", "d")]
    model, rng = MRF.uniform(domain, 27_000.0), generator(5)
    wave = np.array([-1.0, 0.0, 1.0])
    real = strength * np.einsum("i,j,k->ijk", wave, wave, wave)
    noisy = [Measurement(c, 1000 + real + 40 * rng.normal(size=(3, 3, 3)), 40.0) for c in cliques]
    margins = margins_of(noisy, 27_000.0)
    clean = without_wide_noise(model, noisy, {}, margins)
    errors = [[np.abs(m.counts - 1000 - real).mean() for m in tables] for tables in (noisy, clean)]
    assert np.mean(errors[1]) < (0.7 if strength else 0.3) * np.mean(errors[0])


def test_a_class_keeps_its_share_in_rare_codes_of_a_wide_table():
    """Rows vary by more than the noise where a code is frequent, and by less where it is rare."""
    sizes = {"code": 20, "died": 2, "age": 16}
    domain = Domain(tuple(sizes), tuple(sizes.values()))
    shares = [shares_of(20, 0.1), np.array([0.97, 0.03]), np.full(16, 1 / 16)]
    expected = 50_000 * np.einsum("i,j,k->ijk", *shares)
    drawn = []
    for seed in range(4):
        rng = generator(seed)
        table = rng.poisson(expected).astype(float)
        noisy = Measurement(domain.names, table + rng.normal(0, 5.0, table.shape), 5.0)
        singles = [
            Measurement(m.clique, m.counts + rng.normal(0, 8.0, m.counts.shape), 8.0)
            for m in (Measurement(domain.names, table, 0.0).onto((name,)) for name in sizes)
        ]
        clean = without_noise(singles, [noisy], None, lambda tables: fit(domain, tables))
        held = [m for m in clean if len(m.clique) == 1]
        model = fit(domain, clean, warm_start=fit(domain, held, sweeps=9), sweeps=60)
        drawn.append(class_in_rare_codes(model.marginal(CLIQUE)))
    assert np.mean(drawn) == pytest.approx(0.03, abs=0.003)


def test_tables_of_some_rows_are_raked_to_the_columns_of_all():
    """A third of the rows, which are mostly of the first code, still show the dependence."""
    joint = np.array([[900.0, 100.0, 0.0], [200.0, 400.0, 400.0]])
    some = joint * [[3.0], [0.2]]
    some *= joint.sum() / some.sum()
    columns = {"a": joint.sum(axis=1), "b": joint.sum(axis=0)}
    singles = [Measurement((name,), counts, 1.0) for name, counts in columns.items()]
    table = Measurement(("a", "b"), some + generator(0).normal(0, 5, some.shape), 5.0)
    *held, raked = raked_to_columns([*singles, table], joint.sum())
    assert np.allclose(raked.counts.sum(axis=1), columns["a"], atol=1)
    assert np.allclose(raked.counts.sum(axis=0), columns["b"], atol=1)
    assert raked.counts.min() > 0
    assert raked.sigma == table.sigma
    assert max(m.sigma for m in held) < 1.0
    domain = Domain(("a", "b"), joint.shape)

    def error(measurements):
        model = fit(domain, measurements, total=joint.sum(), sweeps=60)
        return np.abs(model.marginal(("a", "b")) - joint).sum()

    assert error([*held, raked]) < 0.7 * error([*singles, table])


def test_raking_leaves_no_dependence_in_a_pair_of_noise_and_no_negative_cell_in_a_triple():
    rng = generator(1)
    shares = {"a": [0.7, 0.3], "b": [0.5, 0.4, 0.1], "c": [0.9, 0.1]}
    singles = [Measurement((n,), 300.0 * np.array(s), 1.0) for n, s in shares.items()]
    pair = Measurement(("a", "b"), rng.normal(50, 80, (2, 3)), 80.0)
    triple = Measurement(("a", "b", "c"), rng.normal(25, 80, (2, 3, 2)), 80.0)
    *_, clean, wide = raked_to_columns([*singles, pair, triple], 300.0)
    assert np.allclose(clean.counts, 300 * np.outer(shares["a"], shares["b"]), atol=0.5)
    assert wide.counts.min() > 0
    for axes, name in (((1, 2), "a"), ((0, 2), "b"), ((0, 1), "c")):
        assert np.allclose(wide.counts.sum(axis=axes), 300 * np.array(shares[name]), atol=0.5)
