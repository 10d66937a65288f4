"""Raking: margins are met as far as they can be, and no row is taken twice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siloweave.errors import InputError
from siloweave.models.raking import chosen, enough, weights


def rows(n, seed=0):
    random = np.random.default_rng(seed)
    first = random.integers(0, 3, n)
    return [first, np.where(random.random(n) < 0.7, first % 2, 1 - first % 2)]


WANTED = [np.array([0.4, 0.3, 0.3]), np.array([0.6, 0.4])]


def test_margins_of_what_is_chosen_are_those_that_are_wanted():
    codes = rows(6_000)
    before = np.bincount(codes[0][:4_000], minlength=3) / 4_000
    assert abs(before - WANTED[0]).max() > 0.05
    taken = chosen(codes, WANTED, 4_000, key=0)
    assert len(np.unique(taken)) == 4_000
    for places, wanted in zip(codes, WANTED, strict=True):
        got = np.bincount(places[taken], minlength=len(wanted)) / 4_000
        np.testing.assert_allclose(got, wanted, atol=0.01)


def test_counts_are_not_left_to_chance():
    """Twenty cells of 100 rows each: sampled at once, they would be off by 6 to 9."""
    random = np.random.default_rng(5)
    codes = [random.integers(0, 20, 4_000) for _ in range(6)]
    even = np.full(20, 1 / 20)
    for key in range(3):
        taken = chosen(codes, [even] * 6, 2_000, key=key)
        counts = np.array([np.bincount(places[taken], minlength=20) for places in codes])
        assert np.sqrt(np.mean((counts - 100.0) ** 2)) < 2.5


def test_rows_are_taken_as_often_as_their_weights_say():
    """Making probabilities anew, half by half, does not favour a row: 100 draws, chance alone."""
    codes = rows(150)
    kept, draws = weights(codes, WANTED, 60), 100
    often = sum(
        np.bincount(chosen(codes, WANTED, 60, key=key), minlength=150) for key in range(draws)
    )
    chance = np.sqrt(draws * kept * (1 - kept))
    assert abs(often - draws * kept).max() < 4.5 * chance.max()
    assert np.mean((often - draws * kept) ** 2 / chance**2) < 1.4


def test_what_margins_do_not_ask_for_stays_as_it_was():
    """Weights change margins alone: how columns go together, their odds ratio, does not move."""
    n = 200_000
    random = np.random.default_rng(1)
    a = random.integers(0, 2, n)
    b = np.where(random.random(n) < 0.8, a, 1 - a)
    kept = weights([a, b], [np.array([0.45, 0.55]), np.array([0.55, 0.45])], n // 2)

    def odds(w):
        table = np.bincount(2 * a + b, w, minlength=4)
        return np.log(table[0] * table[3] / (table[1] * table[2]))

    assert odds(kept) == pytest.approx(odds(np.ones(n)), abs=0.02)


@given(st.integers(1, 60), st.integers(0, 40), st.integers(0, 2**20))
def test_any_margins_give_probabilities_that_sum_to_the_count(more, count, seed):
    random = np.random.default_rng(seed)
    codes = [random.integers(0, 4, count + more) for _ in range(3)]
    shares = [random.dirichlet(np.full(4, 0.3)) for _ in range(3)]
    kept = weights(codes, shares, count)
    assert ((kept >= 0) & (kept <= 1 + 1e-9)).all()
    assert kept.sum() == pytest.approx(count)
    assert len(np.unique(chosen(codes, shares, count, key=seed))) == count


def test_too_few_rows_of_a_cell_are_all_taken():
    codes = [np.array([0] * 90 + [1] * 10)]
    kept = weights(codes, [np.array([0.5, 0.5])], 60)
    assert kept[90:] == pytest.approx(1.0)
    assert kept[:90].sum() == pytest.approx(50)


def test_a_column_that_can_be_met_is_not_given_up_for_those_that_cannot():
    """A poor generator's rows: ten columns of ranges are far off, a rare class is nearly right."""
    random = np.random.default_rng(3)
    rare = random.random(8_000) < 0.025
    near = random.normal(size=8_000)
    ranges, even = [], np.full(40, 1 / 40)
    for _ in range(10):
        values = 0.25 * (near + random.normal(size=8_000)) + 0.3 * rare
        ranges.append(np.searchsorted(np.linspace(-2, 2, 39), values))
    codes = [*ranges, rare.astype(int)]
    shares = [even] * 10 + [np.array([0.98, 0.02])]
    taken = chosen(codes, shares, 2_000, key=0)
    assert rare[taken].mean() == pytest.approx(0.02, abs=0.004)
    for places in ranges:
        before, after = (np.bincount(x, minlength=40) for x in (places, places[taken]))
        assert abs(after / 2_000 - even).sum() < abs(before / 8_000 - even).sum()


def test_columns_without_a_wanted_row_leave_all_as_likely():
    kept = weights([np.zeros(10, int)], [np.array([0.0, 1.0])], 5)
    assert kept == pytest.approx(0.5)


def test_keys_reproduce_and_differ():
    codes = rows(600)
    same = [chosen(codes, WANTED, 400, key=key).tolist() for key in (0, 0, 1)]
    assert same[0] == same[1] != same[2]


def test_more_rows_than_there_are_cannot_be_chosen():
    with pytest.raises(InputError, match="count=5"):
        weights([np.zeros(4, int)], [np.ones(1)], 5)


def test_what_chance_leaves_out_needs_no_more_rows_and_a_rare_cell_does():
    rng = np.random.default_rng(0)
    shares = np.array([0.9, 0.09, 0.01, 0.0])
    fair = rng.choice(4, 3_000, p=shares)
    assert enough([fair], [shares], 2_000) == 1.0
    biased = rng.choice(4, 3_000, p=[0.97, 0.03, 0.0, 0.0])
    assert enough([fair, biased], [shares, shares], 2_000) == pytest.approx(20.0)
    few = rng.choice(2, 3_000, p=[0.98, 0.02])
    have = (few == 1).sum()
    assert enough([few], [np.array([0.9, 0.1])], 2_000) == pytest.approx(200 / have)
