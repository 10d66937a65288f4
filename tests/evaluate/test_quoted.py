import numpy as np
import polars as pl
import pytest
from tests.evaluate.made import noisy, pair, people, shuffled

from siloweave.errors import InputError
from siloweave.evaluate import column_pair_trends, column_shapes
from siloweave.evaluate.similarity import cramers_v

BOTH = ("real", "synthetic")


def test_column_shapes_by_hand():
    both = pair(
        {"x": [1.5, 2.5, 3.5, 4.5], "c": ["a", "a", "b", None]},
        {"x": [1.5, 2.5, 9.5, 9.5], "c": ["a", "b", "b", None]},
    )
    # KS 1/2; TVD 1/3 of the known values.
    assert column_shapes(both, *BOTH) == pytest.approx(100 * (0.5 + 2 / 3) / 2)


def test_correlations_are_compared_on_their_whole_range():
    x = np.array([1.0, 2.0, 3.0, 4.5])
    y = np.array([1.0, 3.0, 2.0, 4.5])
    both = pair({"x": x, "y": y}, {"x": x, "y": x})
    expected = 100 * (1 - (1 - np.corrcoef(x, y)[0, 1]) / 2)
    assert column_pair_trends(both, *BOTH) == (pytest.approx(expected), 1)


def test_joint_counts_of_categories_keep_missing_values():
    real = {"a": ["x", "x", "y", None], "b": ["u", "u", "v", "v"]}
    other = {"a": ["x", "x", "y", "y"], "b": ["u", "u", "v", "v"]}
    found = column_pair_trends(pair(real, other), *BOTH, strong=False)
    assert found == (pytest.approx(75.0), 1)


def test_numbers_have_ten_cells_between_their_own_or_the_real_extremes():
    real = {"x": np.arange(10) + 0.5, "c": list("aabbaabbaa")}
    moved = {"x": np.arange(10) + 100.5, "c": list("aabbaabbaa")}
    both = pair(real, moved)
    assert column_pair_trends(both, *BOTH, strong=False) == (100.0, 1)
    # Cut at the real extremes, all moved rows fall into the last cell.
    found = column_pair_trends(both, *BOTH, strong=False, edges="real")
    assert found == (pytest.approx(10.0), 1)


def test_only_pairs_that_go_together_count():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    real = {"x": x, "y": x + 0.1 * rng.normal(size=200), "z": rng.normal(size=200)}
    both = pair(real, {name: rng.permutation(column) for name, column in real.items()})
    assert column_pair_trends(both, *BOTH).pairs == 1
    assert column_pair_trends(both, *BOTH, strong=False).pairs == 3
    apart = {name: column for name, column in real.items() if name != "y"}
    with pytest.raises(InputError, match="none of the 1 pairs of columns goes together strongly"):
        column_pair_trends(pair(apart, apart), *BOTH)


def test_a_number_that_does_not_vary_has_no_trend():
    real = {"x": [1.5, 1.5, 1.5], "y": [1.5, 2.5, 3.5]}
    with pytest.raises(InputError, match="none of the 1 pairs of columns can be compared"):
        column_pair_trends(pair(real, real), *BOTH, strong=False)


def test_cramers_v_is_scipys_without_the_empty_cells():
    from scipy.stats.contingency import association

    rng = np.random.default_rng(0)
    table = rng.integers(0, 4, size=(5, 3))
    rows, columns = np.nonzero(table)
    expected = association(table[table.any(axis=1)], method="cramer")
    assert cramers_v((rows, columns, table[rows, columns])) == pytest.approx(expected)


def test_wide_categories_need_no_table_of_all_pairs():
    rng = np.random.default_rng(0)
    columns = {c: [f"v{i}" for i in rng.integers(60_000, size=20_000)] for c in "ab"}
    found = column_pair_trends(pair(columns, columns), *BOTH, strong=False)
    assert found == (pytest.approx(100.0), 1)


@pytest.mark.parametrize("strong", [True, False])
def test_more_noise_is_worse_down_to_the_floor(strong):
    real = people(0, 2000)

    def trends(other):
        return column_pair_trends(pair(real, other), *BOTH, strong=strong).percent

    found = [trends(noisy(real, 1, share)) for share in (0, 0.1, 0.3, 0.6, 1)]
    assert found == sorted(found, reverse=True)
    assert found[0] == 100
    assert found[-1] == pytest.approx(trends(shuffled(real, 3)), abs=0.1 * (100 - found[-1]))


def test_frozen_figures_of_the_quality_report_of_sdmetrics():
    """Made with SDMetrics 0.32.0 on these very tables; the last with its thresholds at 0."""
    real, other = people(0, 1000), noisy(people(1, 800), 2, 0.5)
    other = other.with_columns(pay=pl.when(pl.col("pay") > 1500).then(None).otherwise("pay"))
    real = real.with_columns(luck=np.sin(np.arange(1000.0)))
    other = other.with_columns(luck=np.cos(np.arange(800.0)) ** 3)
    both = pair(real, other)
    assert column_shapes(both, *BOTH) == pytest.approx(SHAPES, abs=0.005)
    assert column_pair_trends(both, *BOTH).percent == pytest.approx(TRENDS, abs=0.005)
    found = column_pair_trends(both, *BOTH, strong=False).percent
    assert found == pytest.approx(ALL_TRENDS, abs=0.005)


SHAPES, TRENDS, ALL_TRENDS = 91.7096, 55.0052, 66.9797
