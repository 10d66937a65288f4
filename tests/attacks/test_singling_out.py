"""Predicates against the same conditions spelt out on frames."""

import numpy as np
import polars as pl
import pytest

from siloweave.attacks import singling_out as module
from siloweave.attacks.neighbours import ordinals, row_ids
from siloweave.attacks.singling_out import Predicates, expected_singled, singling_out
from siloweave.errors import InputError
from siloweave.tables.aligned import align
from siloweave.tables.keys import generator
from tests.attacks.people import people


def values(train, synthetic, control):
    return ordinals(align({"train": train, "synthetic": synthetic, "control": control}))


@pytest.fixture(scope="module")
def drawn():
    return values(people(1, 400, True), people(2, 400, True), people(3, 400, True))


def index(of, table):
    return module._Index(module._distinct(of)[table])


def brute(of, table, predicates):
    """How many distinct rows fit, condition by condition."""
    codes = np.unique(of.codes[table], axis=1)
    counts = []
    for q in range(len(predicates)):
        fits = np.ones(codes.shape[1], bool)
        for w, column in enumerate(predicates.columns[q]):
            low, high = predicates.low[q, w], predicates.high[q, w]
            inside = (codes[column] >= low) & (codes[column] <= high)
            fits &= inside != predicates.negated[q, w]
        counts.append(fits.sum())
    return np.array(counts)


def test_equal_rows_have_equal_numbers_over_tables():
    rows = people(1, 300, True)
    of = values(rows, pl.concat([rows[:20], people(2, 50, True)]), rows[::-1])
    ids = row_ids(of)
    np.testing.assert_array_equal(ids["train"], ids["control"][::-1])
    np.testing.assert_array_equal(ids["train"][:20], ids["synthetic"][:20])
    whole = np.concatenate(list(of.codes.values()), axis=1)
    assert len(np.unique(np.concatenate(list(ids.values())))) == np.unique(whole, axis=1).shape[1]


@pytest.mark.parametrize("width", [1, 3])
def test_counts_are_those_of_all_rows(drawn, width):
    table = index(drawn, "synthetic")
    random = module._random(drawn, table, 400, width, generator(0))
    assert random.negated.any()
    for name in ("train", "synthetic", "control"):
        np.testing.assert_array_equal(index(drawn, name).counts(random), brute(drawn, name, random))


def test_multivariate_predicates_fit_one_synthetic_row_and_differ(drawn):
    table = index(drawn, "synthetic")
    found = module._multivariate(drawn, table, 300, 3, generator(1))
    assert len(found) == 300
    assert (brute(drawn, "synthetic", found) == 1).all()
    text = np.hstack([found.columns, found.low, found.high])
    assert len(np.unique(text, axis=0)) == 300
    assert all(len(set(row)) == 3 for row in found.columns.tolist())


def test_multivariate_conditions_open_away_from_the_median():
    rows = pl.DataFrame({"x": [1.0, 2.0, 3.0, 4.0, 100.0], "y": list("aabbc")})
    of = values(rows, rows, rows)
    above = np.array([module._median(of, index(of, "synthetic"), c) for c in range(2)])
    batch = next(module._candidates(of, index(of, "synthetic"), 1, above, generator(0)))
    on_x = batch.columns[:, 0] == 0
    bounds = set(zip(batch.low[on_x, 0].tolist(), batch.high[on_x, 0].tolist(), strict=True))
    assert bounds == {(0, 0), (0, 1), (0, 2), (3, 4), (4, 4)}  # up to the median: at most
    on_y = set(zip(batch.low[~on_x, 0].tolist(), batch.high[~on_x, 0].tolist(), strict=True))
    assert on_y == {(k, k) for k in range(3)}


def test_univariate_predicates_are_rare_values_gaps_and_ends():
    synthetic = pl.DataFrame(
        {
            "x": [1.0, 2.0, 2.0, None, 5.0, 4.0, 4.0],
            "y": list("aabbcdd"),
            "z": [1, 1, 2, 2, 3, 3, 4],
        }
    )
    of = values(synthetic, synthetic, synthetic)
    found = module._univariate(of, index(of, "synthetic"), 100, generator(0))
    # Of seven rows none repeats. x: 1 and 5 and the gap occur once, and are the ends; y: c.
    x_levels = of.levels[0].tolist()
    expected = {
        (0, x_levels.index(1), x_levels.index(1)),
        (0, x_levels.index(5), x_levels.index(5)),
    }
    expected |= {(0, of.missing(0), of.missing(0))}
    rows = zip(*(a[:, 0].tolist() for a in (found.columns, found.low, found.high)), strict=True)
    on_x = {row for row in rows if row[0] == 0}
    assert on_x == expected
    assert (brute(of, "synthetic", found) == 1).all()
    assert 1 in found.columns[:, 0]


def test_expected_singled_is_the_mean_over_random_parts():
    rng = np.random.default_rng(0)
    counts = np.array([0, 1, 2, 5, 40, 100])
    rows, size = 100, 30
    hits = [rng.permutation(rows)[:size] for _ in range(20_000)]
    mean = np.mean([[(part < c).sum() == 1 for c in counts] for part in hits], axis=0).sum()
    assert expected_singled(counts, rows, size) == pytest.approx(mean, abs=0.02)
    assert expected_singled(counts, rows, rows) == pytest.approx(1)


def test_control_is_rescaled_to_the_size_of_train():
    """A control of half or twice the rows gives the risk that one of the same size gives."""
    train, synthetic = people(1, 1500), people(2, 1500)
    rates = {
        rows: singling_out(
            values(train, synthetic, people(3, rows)), "multivariate", attacks=600, key=0
        ).control.value
        for rows in (700, 1500, 3000)
    }
    assert rates[700] == pytest.approx(rates[1500], abs=0.05)
    assert rates[3000] == pytest.approx(rates[1500], abs=0.05)


def test_rescaling_upwards_follows_the_truth():
    """Counts of predicates in a large table, thinned to a third, are scaled back."""
    rng = np.random.default_rng(1)
    weights = rng.random(3000) * 1e-3
    whole = rng.binomial(6000, weights)
    part = rng.binomial(whole, 1 / 3)
    assert module._rescaled(part, 2000, 6000) == pytest.approx((whole == 1).sum(), rel=0.15)
    assert module._rescaled(np.zeros(5, int), 2000, 6000) == 0


@pytest.mark.parametrize("variant", ["univariate", "multivariate"])
def test_a_copy_is_singled_out_and_a_fresh_sample_is_not(variant):
    train, control = people(1, 1000), people(2, 1000)
    copied = singling_out(values(train, train, control), variant, attacks=300, key=0)
    assert copied.risk > 0.97
    assert copied.train.successes == copied.attacks
    fresh = singling_out(values(train, people(3, 1000), control), variant, attacks=300, key=0)
    assert fresh.low == 0
    assert fresh.risk < 0.1


def test_too_few_predicates_are_said():
    rows = pl.DataFrame({"x": ["a", "b", "c"] * 10 + [f"d{k}" for k in range(12)]})
    part = singling_out(values(rows, rows, rows), "univariate", attacks=50, key=0)
    assert part.attacks == 15  # rows are counted once, so a, b and c occur once too
    assert "only 15 of 50" in part.note


def test_a_table_without_rare_values_cannot_be_attacked(monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS", 10_000)
    grid = [(a, b) for a in (0, 1) for b in (0, 1)] * 5
    rows = pl.DataFrame({"a": [str(a) for a, _ in grid], "b": [str(b) for _, b in grid]})
    three = rows.with_columns(c=pl.Series([str(k % 5) for k in range(20)]))
    of = values(three, three, three)
    with pytest.raises(InputError, match="only 0 univariate predicates fit"):
        singling_out(of, "univariate", attacks=20, key=0)
    with pytest.raises(InputError, match="only 0 multivariate predicates fit"):
        singling_out(of, "multivariate", attacks=20, key=0, columns=2)


def test_predicates_are_drawn_from_the_key(drawn):
    one, same, other = (singling_out(drawn, "multivariate", attacks=100, key=k) for k in (1, 1, 2))
    assert one == same
    assert one != other


def test_predicates_can_be_taken():
    some = Predicates(*(np.arange(3)[:, None] for _ in range(3)), np.zeros((3, 1), bool))
    assert some.take(np.array([2, 0])).low[:, 0].tolist() == [2, 0]
