from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.spatial import distance
from sklearn.metrics import normalized_mutual_info_score
from tests.evaluate.made import noisy, pair, people, shuffled

from siloweave.errors import InputError
from siloweave.evaluate import shares
from siloweave.evaluate.shares import coded, column_shares, quantiles
from siloweave.evaluate.similarity import (
    _coupled_theils_u,
    associations,
    average_jsd,
    average_wasserstein,
    column_pair_trends,
    column_shapes,
    column_similarity,
    correlation_similarity,
    cramers_v,
    entropy,
    information_error,
    jensen_shannon_similarity,
    kolmogorov_smirnov_similarity,
    marginal_error,
    marginal_tvd,
    statistical_similarity,
)
from siloweave.tables import align

BOTH = ("real", "synthetic")
MEASURES = [
    column_similarity,
    correlation_similarity,
    jensen_shannon_similarity,
    kolmogorov_smirnov_similarity,
    statistical_similarity,
]


def numeric(x, y):
    return pair({"x": np.asarray(x, float)}, {"x": np.asarray(y, float)})


def categorical(x, y):
    return pair({"c": list(x) * 2}, {"c": list(y) * 2})  # values that differ would be ids


@pytest.mark.parametrize("measure", MEASURES)
def test_a_copy_in_another_order_of_rows_and_columns_is_1(measure):
    real = people(0)
    other = real.sample(len(real), shuffle=True, seed=1).select("rich", "job", "pay", "age")
    assert measure(pair(real, other), *BOTH) == pytest.approx(1.0)


@pytest.mark.parametrize("measure", MEASURES)
def test_an_unknown_table_is_named(measure):
    with pytest.raises(InputError, match=r"no table 'fake'; there are real, synthetic"):
        measure(pair(people(0), people(1)), "real", "fake")


def test_numeric_columns_are_paired_by_quantiles():
    # Sorted: 1 2 3 4 against 1 1 2 8.
    both = numeric([4, 1, 3, 2.5], [8, 1.5, 1, 2])
    expected = np.corrcoef([1, 2.5, 3, 4], [1, 1.5, 2, 8])[0, 1]
    assert column_similarity(both, *BOTH) == pytest.approx(expected)


def test_unequal_numbers_of_rows_are_paired_at_equal_levels():
    x = np.arange(1000.0) + 0.5
    assert column_similarity(numeric(x, x[::10]), *BOTH) > 0.9999


def test_theils_u_of_the_pairing_that_agrees_most_by_hand():
    # Shares 1/2 1/2 against 3/4 1/4: 1/2 (a, a), 1/4 (b, b), and the rest 1/4 is (b, a).
    joint = entropy(np.array([0.5, 0.25, 0.25]))
    expected = (np.log(2) + entropy(np.array([0.75, 0.25])) - joint) / np.log(2)
    assert column_similarity(categorical("aabb", "aaab"), *BOTH) == pytest.approx(expected)


def test_theils_u_equals_that_of_the_whole_table_of_pairs():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, q = rng.dirichlet(np.ones(6), 2)
        same = np.minimum(p, q)
        joint = np.diag(same) + np.outer(p - same, q - same) / (1 - same.sum())
        np.testing.assert_allclose([joint.sum(axis=1), joint.sum(axis=0)], [p, q])
        shared = entropy(p) + entropy(q) - entropy(joint.ravel())
        assert _coupled_theils_u(p, q) == pytest.approx(shared / entropy(p))


def test_other_categories_tell_nothing_even_with_the_same_shares():
    assert column_similarity(categorical("aabb", "ccdd"), *BOTH) == pytest.approx(0.0, abs=1e-9)


def test_columns_of_one_value():
    assert column_similarity(numeric([2.5, 2.5], [2.5, 2.5]), *BOTH) == 1.0
    assert column_similarity(numeric([2.5, 2.5], [2.5, 3.5]), *BOTH) == 0.0
    assert column_similarity(categorical("aaaa", "aaab"), *BOTH) == pytest.approx(0.75)
    with pytest.raises(InputError, match="equal"):
        statistical_similarity(numeric([0.0, 0.0], [1.5, 2.5]), *BOTH)


def test_associations_by_hand():
    frame = pl.DataFrame(
        {"x": [1.0, 2.5, 3.0, 4.0], "y": [4.0, 2.0, 2.5, 0.0], "c": list("aabb"), "d": list("abcc")}
    )
    found = associations(align({"real": frame}), "real")
    assert found[0, 1] == found[1, 0] == pytest.approx(np.corrcoef(frame["x"], frame["y"])[0, 1])
    x = frame["x"].to_numpy()
    between = 2 * (x[:2].mean() - x.mean()) ** 2 + 2 * (x[2:].mean() - x.mean()) ** 2
    assert found[0, 2] == pytest.approx(np.sqrt(between / ((x - x.mean()) ** 2).sum()))
    # d tells c; c tells d but for a against b.
    assert found[2, 3] == pytest.approx(1.0)
    assert found[3, 2] == pytest.approx(np.log(2) / entropy(np.array([1, 1, 2])))


def test_associations_leave_missing_numbers_out_and_keep_missing_categories():
    frame = pl.DataFrame(
        {
            "x": [1.0, 2.5, None, 4.0, 5.5],
            "y": [2.0, 5.0, 9.0, None, 11.0],
            "c": ["a", "a", None, None, "a"],
            "d": ["u", "u", "v", "v", "u"],
        }
    )
    found = associations(align({"real": frame}), "real")
    assert found[0, 1] == pytest.approx(np.corrcoef([1, 2.5, 5.5], [2, 5, 11])[0, 1])
    assert found[2, 3] == pytest.approx(1.0)


def test_correlation_similarity_correlates_the_coefficients():
    both = pair(people(0), people(1, noise=0.5))
    ours, theirs = (associations(both, name) for name in BOTH)
    apart = ~np.eye(4, dtype=bool)
    expected = np.corrcoef(ours[apart], theirs[apart])[0, 1]
    assert correlation_similarity(both, *BOTH) == pytest.approx(expected)


def test_too_few_columns_to_correlate():
    with pytest.raises(InputError, match="2 columns have too few pairs"):
        correlation_similarity(pair(people(0)[:, :2], people(1)[:, :2]), *BOTH)


def test_synthetic_columns_of_one_value_have_no_correlation():
    flat = people(1).select(pl.all().first().repeat_by(400).explode(empty_as_null=True))
    assert correlation_similarity(pair(people(0), flat), *BOTH) == 0.0


def test_kolmogorov_smirnov_and_wasserstein_are_scipys():
    rng = np.random.default_rng(0)
    x, y = np.round(rng.normal(size=300), 1), np.round(rng.normal(0.3, 2, size=170), 1)
    both = numeric(x, y)
    expected = stats.ks_2samp(x, y, method="asymp").statistic
    assert kolmogorov_smirnov_similarity(both, *BOTH) == pytest.approx(1 - expected)
    expected = stats.wasserstein_distance(x, y) / np.ptp(x)
    assert average_wasserstein(both, *BOTH).mean == pytest.approx(expected)


def test_jensen_shannon_is_scipys_to_base_2():
    both = categorical("aaabbc", "abcccd")
    expected = distance.jensenshannon([3, 2, 1, 0], [1, 1, 3, 1], base=2)
    assert average_jsd(both, *BOTH) == pytest.approx(expected)
    assert jensen_shannon_similarity(both, *BOTH) == pytest.approx(1 - expected)
    assert average_jsd(categorical("ab", "cd"), *BOTH) == pytest.approx(1.0)


def test_missing_values_are_a_cell():
    both = pair({"c": ["a", "a", None, None]}, {"c": ["a", "a", "a", "a"]})
    expected = distance.jensenshannon([0.5, 0.5], [1, 0], base=2)
    assert average_jsd(both, *BOTH) == pytest.approx(expected)
    both = pair({"x": [1.5, 2.5, None, None]}, {"x": [1.5, 2.5, 1.5, 2.5]})
    p, q = column_shares(both.columns[0], *BOTH)
    assert (p[-1], q[-1]) == (0.5, 0.0)


def test_cells_are_cut_at_real_quantiles():
    both = numeric([0.0] * 90 + [1.0, 2.0, 3.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0], [-1.0, 99.0])
    p, q = column_shares(both.columns[0], *BOTH)
    assert p[0] == 0.9
    assert (q[0], q[-2], q[-1]) == (0.5, 0.5, 0.0)


def test_quantiles_are_numpys():
    values = np.sort(np.random.default_rng(0).normal(size=37))
    levels = np.arange(1, 20) / 20
    expected = np.quantile(values, levels, method="inverted_cdf")
    np.testing.assert_array_equal(quantiles(values, levels), expected)


def test_statistical_similarity_ranks_all_statistics_together():
    rng = np.random.default_rng(0)
    real = {"x": rng.normal(size=50), "y": rng.normal(3, 5, size=50)}
    other = {"x": rng.normal(2, 9, size=60), "y": rng.normal(size=60)}
    both = pair(real, other)
    pick = (np.min, np.max, np.median, np.mean, np.std)
    x, y = ([f(side[c]) for c in "xy" for f in pick] for side in (real, other))
    expected = max(0.0, stats.spearmanr(x, y).statistic)
    assert statistical_similarity(both, *BOTH) == pytest.approx(expected)


def test_wasserstein_names_columns_without_a_range():
    both = pair({"x": [1.5, 2.5], "y": [3.5, 3.5]}, {"x": [1.5, 2.5], "y": [3.5, 4.5]})
    assert average_wasserstein(both, *BOTH) == (0.0, ("y",))
    with pytest.raises(InputError, match="no range"):
        average_wasserstein(numeric([3.5, 3.5], [3.5, 4.5]), *BOTH)


@pytest.mark.parametrize("measure", [kolmogorov_smirnov_similarity, average_wasserstein])
def test_no_numeric_column(measure):
    with pytest.raises(InputError, match="no numeric column"):
        measure(categorical("ab", "ab"), *BOTH)


def test_no_categorical_column():
    with pytest.raises(InputError, match="no categorical column"):
        average_jsd(numeric([1.5, 2.5], [1.5, 2.5]), *BOTH)


def test_tvd_and_workload_error_by_hand():
    both = pair({"a": list("xxyy"), "b": list("uvuv")}, {"a": list("xxyy"), "b": list("uuvv")})
    assert marginal_tvd(both, *BOTH, 2, key=0) == pytest.approx(0.5)
    assert marginal_tvd(both, *BOTH, 1, key=0) == 0.0
    closure, queries = marginal_error(both, *BOTH, key=0)
    assert (closure, queries) == (pytest.approx(1 / 3), pytest.approx(1.0))
    with pytest.raises(InputError, match="3-way marginals take 3 columns; the tables have 2"):
        marginal_tvd(both, *BOTH, 3, key=0)


def test_rare_values_share_a_code_and_a_missing_one_keeps_its_own(monkeypatch):
    monkeypatch.setattr(shares, "LEVELS", 4)
    values = ["a"] * 5 + ["b"] * 3 + ["c", "d", None]
    real, _ = coded(pair({"c": values}, {"c": values}), *BOTH)
    assert np.bincount(real.column("c")).tolist() == [5, 3, 2, 1]


@pytest.mark.parametrize(
    ("measure", "room"),
    [
        (correlation_similarity, 0.35),  # of coefficients that are noise there are only twelve
        (lambda *args: -marginal_tvd(*args, 2, key=0), 0.1),
        (lambda *args: -marginal_error(*args, key=0).queries, 0.1),
    ],
)
def test_more_noise_is_worse_down_to_the_floor(measure, room):
    real = people(0, 2000)
    found = [measure(pair(real, noisy(real, 1, share)), *BOTH) for share in (0, 0.1, 0.3, 0.6, 1)]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 5
    floor = measure(pair(real, shuffled(real, 2)), *BOTH)
    assert found[-1] == pytest.approx(floor, abs=room * abs(found[0] - floor))


@pytest.mark.parametrize(
    "measure",
    [
        column_similarity,
        jensen_shannon_similarity,
        kolmogorov_smirnov_similarity,
        lambda *args: -average_wasserstein(*args).mean,
        lambda *args: -average_jsd(*args),
    ],
)
def test_columns_that_move_away_are_worse(measure):
    real = people(0, 2000)

    def moved(by):
        return real.with_columns(
            age=pl.col("age") + by * 10 + by * (pl.col("age") - 40) ** 2 / 20,
            pay=pl.col("pay") * (1 + by) ** 2,
            job=pl.when(pl.col("pay") < 2_000 * by).then(pl.lit("pilot")).otherwise(pl.col("job")),
        )

    found = [measure(pair(real, moved(by)), *BOTH) for by in (0, 0.1, 0.3, 0.6)]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 4


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


def test_numbers_have_ten_cells_between_their_own_extremes():
    real = {"x": np.arange(10) + 0.5, "c": list("aabbaabbaa")}
    moved = {"x": np.arange(10) + 100.5, "c": list("aabbaabbaa")}
    both = pair(real, moved)
    assert column_pair_trends(both, *BOTH, strong=False) == (100.0, 1)


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
    common = (rng.random((2, 20_000)) ** 2 * 9_000).astype(int)  # some, as ids never are
    columns = {c: [f"v{i}" for i in values] for c, values in zip("ab", common, strict=True)}
    found = column_pair_trends(pair(columns, columns), *BOTH, strong=False)
    assert found == (pytest.approx(100.0), 1)


@pytest.mark.parametrize("strong", [True, False])
def test_trends_of_more_noise_are_worse_down_to_the_floor(strong):
    real = people(0, 2000)

    def trends(other):
        return column_pair_trends(pair(real, other), *BOTH, strong=strong).percent

    found = [trends(noisy(real, 1, share)) for share in (0, 0.1, 0.3, 0.6, 1)]
    assert found == sorted(found, reverse=True)
    assert found[0] == 100
    assert found[-1] == pytest.approx(trends(shuffled(real, 3)), abs=0.1 * (100 - found[-1]))


def test_mutual_information_is_weighted_by_what_pairs_share():
    real, other = people(0, 500), noisy(people(1, 400), 2, 0.4)
    names = real.columns

    def cells(frame):
        edges = {name: np.histogram_bin_edges(real[name], 10) for name in ("age", "pay")}
        found = {}
        for name in names:
            values = frame[name].to_numpy()
            if name in edges:
                cuts = edges[name]
                inside = (values >= cuts[0]) & (values <= cuts[-1])
                places = np.clip(np.searchsorted(cuts, values) - 1, 0, 9)
                values = np.where(inside, places, 10)
            found[name] = values
        return found

    ours, theirs = cells(real), cells(other)
    shared = np.array(
        [
            [normalized_mutual_info_score(side[a], side[b]) for side in (ours, theirs)]
            for a, b in combinations(names, 2)
        ]
    )
    expected = np.average(np.abs(shared[:, 0] - shared[:, 1]), weights=shared.sum(axis=1))
    assert information_error(pair(real, other), *BOTH) == pytest.approx(expected)


def test_mutual_information_of_copies_shuffled_columns_and_gaps():
    real = people(0, 500)
    assert information_error(pair(real, real), *BOTH) == 0
    assert information_error(pair(real, shuffled(real, 1)), *BOTH) > 0.1
    # A column without values but one shares nearly nothing; few numbers are a cell each.
    x = np.repeat([0.5, 1.5], 50)
    linked, empty = {"x": x, "y": x}, {"x": x, "y": np.append(np.full(99, np.nan), 0.5)}
    assert information_error(pair(linked, empty), *BOTH) > 0.9
    assert information_error(pair(linked, {"x": x, "y": x + 5}), *BOTH) == pytest.approx(1)


def test_mutual_information_without_pairs_or_links():
    x = {"x": [1.5, 2.5, 3.5]}
    with pytest.raises(InputError, match="one column shares no information"):
        information_error(pair(x, x), *BOTH)
    flat = {"x": [1.5, 1.5], "y": [2.5, 2.5]}
    with pytest.raises(InputError, match="no two columns share information"):
        information_error(pair(flat, flat), *BOTH)


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
