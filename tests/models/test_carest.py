"""Counts of cross-party marginals against clear counts."""

import tracemalloc

import numpy as np
import pytest

from siloweave.models.carest import (
    bins_of,
    carest,
    histogram_recovered,
    made_consistent,
    union_sizes,
    unrandomised,
)
from siloweave.privacy.mechanisms import SeededEntropy, kept_share, randomised_response
from siloweave.privacy.sketches import SketchNoise, encode_rows

REPETITIONS, ROWS = 4000, 6000
NOISE = SketchNoise(2e-3)
SIZES = (2, 5, 3)


def columns(seed=0):
    rng = np.random.default_rng(seed)
    one = rng.choice(SIZES[0], ROWS, p=[0.7, 0.3])
    two = np.where(rng.random(ROWS) < 0.7, one * 2, rng.integers(0, SIZES[1], ROWS))
    return [one, two, (one + rng.integers(0, 2, ROWS)) % SIZES[2]]


def sketched(values, seed=0):
    seen = encode_rows(values, SIZES, key=bytes([seed]) * 32, repetitions=REPETITIONS)
    drawn = NOISE.draw(seen.size, entropy=SeededEntropy(seed)).reshape(seen.shape)
    return np.split(np.maximum(seen, drawn), np.cumsum(SIZES)[:-1], axis=1)


def clear(values, chosen):
    counts = np.zeros([SIZES[i] for i in chosen])
    np.add.at(counts, tuple(values[i] for i in chosen), 1)
    return counts


@pytest.mark.parametrize("chosen", [(0,), (0, 1), (1, 2), (0, 1, 2)])
def test_counts_are_right_within_their_noise(chosen):
    values = columns()
    parts = [sketched(values)[i] for i in chosen]
    table, sigma = carest(parts, NOISE.phantoms, ROWS)
    truth = clear(values, chosen)
    assert table.sum() == pytest.approx(ROWS)
    assert np.sqrt(np.mean((table - truth) ** 2)) < 2 * sigma
    assert 0.01 * ROWS < sigma < 0.05 * ROWS


def test_many_values_take_no_memory_for_all_their_unions_at_once():
    """Else two columns of 3,000 values took 17 GB, and then ended a run without a word."""
    rng = np.random.default_rng(0)
    parts = [rng.integers(1, 20, (200, size), dtype=np.uint8) for size in (300, 200)]
    tracemalloc.start()
    table, _ = carest(parts, 100, ROWS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert table.shape == (300, 200)
    assert peak < 200 * 300 * 200  # bytes, one for each


def test_phantoms_are_counted_by_each_attributes_own_number_of_values():
    """The published code has the first attribute's number for all, which is wrong by far."""
    values = columns()
    parts, truth = [sketched(values)[i] for i in (1, 0)], clear(values, (1, 0))
    table, sigma = carest(parts, NOISE.phantoms, ROWS)
    wrong = 2 * (SIZES[1] - 1) * NOISE.phantoms  # instead of (5 - 1) + (2 - 1)
    right = (SIZES[0] + SIZES[1] - 2) * NOISE.phantoms
    assert np.abs(table - truth).max() < 4 * sigma
    assert wrong - right > 8 * sigma


def test_the_noise_that_is_stated_is_the_noise_there_is(monkeypatch):
    """Before negative counts are cut off and the sum is restored, which biases large ones."""
    monkeypatch.setattr("siloweave.models.carest.scaled", lambda counts, rows: counts)
    values = columns()
    truth = clear(values, (0, 1))
    found = [carest(sketched(values, seed)[:2], NOISE.phantoms, ROWS) for seed in range(12)]
    errors = np.array([table - truth for table, _ in found])
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(found[0][1], rel=0.35)


def test_theorem_3_bounds_errors_only_where_there_are_many_other_rows():
    """Its bound, gamma (n / T - 1) of T with gamma = 1, is all other rows: it says next to nothing.

    And it leaves out phantoms: a cell with nearly all rows is further off than it allows.
    """
    values = [np.zeros(ROWS, np.int64), (np.arange(ROWS) < 5).astype(np.int64), columns()[2]]
    parts, truth = sketched(values), clear(values, (0, 1))
    union = union_sizes(np.maximum(parts[0][:, 1], parts[1][:, [1, 2, 3, 4]].max(1)))
    estimate = ROWS - (union - 5 * NOISE.phantoms)
    full = truth[0, 0]
    assert abs(estimate - full) > ROWS - full  # the bound, which does not hold
    ordinary, _ = carest([sketched(columns())[i] for i in (0, 1)], NOISE.phantoms, ROWS)
    counts = clear(columns(), (0, 1))
    inside = (counts > 0) & (counts < ROWS / 2)
    assert (np.abs(ordinary - counts)[inside] < (ROWS - counts)[inside] / 4).all()  # far below it


def test_answers_give_unbiased_counts():
    values, epsilon = columns(), 1.5
    sizes = [SIZES[0], SIZES[1]]
    kept = [kept_share(epsilon, size) for size in sizes]
    found = []
    for seed in range(30):
        entropy = SeededEntropy(seed)
        drawn = [
            randomised_response(v, size, epsilon, entropy=entropy)
            for v, size in zip(values, sizes, strict=False)
        ]
        counts = np.zeros(sizes)
        np.add.at(counts, tuple(drawn), 1)
        found.append(unrandomised(counts, kept))
    errors = np.array([table for table, _ in found]) - clear(values, (0, 1))
    sigma = found[0][1]
    assert np.abs(errors.mean(0)).max() < 5 * sigma / np.sqrt(30)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(sigma, rel=0.4)
    assert unrandomised(np.array([3.0, 4.0]), [1.0])[0].tolist() == [3.0, 4.0]


def test_values_are_recovered_inside_their_bins():
    """Exact where values inside a bin do not depend on the other column."""
    rng = np.random.default_rng(0)
    bins = [bins_of(6, 3), bins_of(2, 3)]
    coarse = rng.random((3, 2)) * 100
    inside = [np.array([1.0, 3.0, 2.0, 2.0, 9.0, 1.0]), np.array([4.0, 6.0])]
    found = histogram_recovered(coarse, bins, inside)
    assert found.sum(axis=1).reshape(3, 2).sum(axis=1) == pytest.approx(coarse.sum(axis=1))
    assert found[0] * 3 == pytest.approx(found[1])
    nothing = histogram_recovered(coarse, bins, [np.array([0.0, -5, 1, 1, 1, 1]), inside[1]])
    assert nothing[0] == pytest.approx(nothing[1])  # a bin without counts is spread evenly


def test_consistent_tables_agree_and_move_towards_each_other():
    rng = np.random.default_rng(1)
    truth = rng.random((3, 4)) * 1000
    one = {("a", "b"): np.maximum(truth + rng.normal(0, 60, (3, 4)), 0)}
    one["a", "b"] *= truth.sum() / one["a", "b"].sum()
    two = {("a",): truth.sum(1), ("b", "c"): np.repeat(truth.sum(0)[:, None] / 2, 2, axis=1)}
    before = np.abs(one["a", "b"].sum(1) - two["a",]).sum()
    first, second = made_consistent(one, two)
    assert np.abs(first["a", "b"].sum(1) - second["a",]).sum() < 0.1 * before
    assert np.abs(first["a", "b"] - truth).sum() < np.abs(one["a", "b"] - truth).sum()
    for tables in (first, second):
        assert all(t.sum() == pytest.approx(truth.sum()) and t.min() >= 0 for t in tables.values())


def test_one_value_and_no_bins():
    assert bins_of(1, 4).tolist() == [0]
    assert bins_of(5, None).tolist() == [0, 1, 2, 3, 4]
    alone = np.full((10, 1), 9, np.uint8)
    table, _ = carest([alone, alone], 100, 50)
    assert table == pytest.approx(np.array([[50.0]]))
