"""What is kept of a table of two columns, and what is taken for noise."""

import numpy as np
import pytest

from siloweave.models.estimate import Measurement, fit
from siloweave.models.pair_noise import cleaned, dependence, margins_of, without_noise
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
