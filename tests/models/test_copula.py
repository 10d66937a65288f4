import numpy as np
import pytest
from scipy import stats

from siloweave.errors import DataError, InputError
from siloweave.models.copula import (
    CategoryMargin,
    Copula,
    Margin,
    positive_definite,
)
from siloweave.models.settings import FAMILIES, CopulaSettings
from siloweave.tables.features import Block
from siloweave.tables.keys import generator

LAWS = {
    "beta": stats.beta(2.0, 5.0, 10.0, 3.0),
    "norm": stats.norm(3.0, 2.0),
    "truncnorm": stats.truncnorm(-1.0, 2.0),
    "uniform": stats.uniform(1.0, 4.0),
    "gamma": stats.gamma(2.0, 5.0),
    "kde": stats.norm(-40.0, 0.1),
}
PAIR = (Block("x", 0, 1, "number"), Block("y", 1, 1, "number"))
MIXED = (
    Block("x", 0, 1, "number"),
    Block("c", 1, 3, "categorical"),
    Block("d", 4, 2, "categorical"),
)


def drawn(law, n=4000, seed=3):
    return law.ppf(generator(seed).random(n))


def pair(r, n=20_000):
    z = stats.norm.ppf(generator(1).random((n, 2)))
    return np.stack([z[:, 0], r * z[:, 0] + np.sqrt(1 - r * r) * z[:, 1]], axis=1)


def one_hot(codes, size):
    return np.eye(size, dtype=np.float32)[codes]


def mixed(n=6000):
    z = pair(0.8, n)
    c = np.digitize(z[:, 1], [-0.5, 0.8])
    d = (generator(8).random(n) < np.where(c == 2, 0.9, 0.2)).astype(int)
    return np.concatenate([z[:, :1], one_hot(c, 3), one_hot(d, 2)], axis=1).astype(np.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_fits_its_own_distribution(family):
    x = drawn(LAWS[family])
    law = Margin.fit(x, family)
    assert stats.kstest(law.cdf(x), "uniform").statistic < 0.035


@pytest.mark.parametrize("family", ["norm", "uniform", "gamma"])
def test_a_wrong_family_is_seen_to_be_wrong(family):
    x = drawn(stats.beta(0.3, 0.3))
    assert stats.kstest(Margin.fit(x, family).cdf(x), "uniform").statistic > 0.05


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("law", ["beta", "truncnorm", "uniform"])
def test_values_come_back_from_their_normal_scores(family, law):
    x = drawn(LAWS[law])
    margin = Margin.fit(x, family)
    gap = np.abs(margin.from_normal(margin.to_normal(x)) - x)
    inside = np.abs(margin.to_normal(x)) < 5.0  # beyond, probabilities are cut off
    assert inside.mean() > 0.99
    assert gap[inside].max() < 1e-4
    assert np.isfinite(margin.to_normal(np.array([-1e30, 1e30]))).all()


@pytest.mark.parametrize("skewed", [1.0, -1.0])
def test_a_truncated_normal_distribution_far_in_one_tail_stays_exact(skewed):
    x = skewed * drawn(stats.expon())
    law = Margin.fit(x, "truncnorm")
    u = np.linspace(0.01, 0.99, 50)
    np.testing.assert_allclose(law.cdf(law.ppf(u)), u, atol=1e-9)
    assert (np.diff(law.ppf(u)) > 0).all()


def test_the_beta_distribution_has_the_shapes_of_greatest_likelihood():
    x = drawn(stats.beta(2.0, 5.0))
    a, b, low, high = Margin.fit(x, "beta").parameters
    x = np.quantile(x, (np.arange(2000) + 0.5) / 2000)
    best = stats.beta.fit(x, floc=low, fscale=high - low)[:2]
    np.testing.assert_allclose((a, b), best, rtol=1e-3)


def test_a_spike_at_the_edge_is_fitted_without_nan():
    x = np.concatenate([np.zeros(9000), drawn(stats.expon(), 1000) * 1e4])
    for family in FAMILIES:
        law = Margin.fit(x, family)
        assert np.isfinite(law.from_normal(law.to_normal(x))).all()


def test_a_constant_column_comes_back_constant():
    law = Margin.fit(np.full(5, 7.5), "beta")
    assert law.family == "constant"
    assert set(law.from_normal(np.array([-3.0, 0.0, 3.0]))) == {7.5}


@pytest.mark.parametrize("values", [[], [1.0, np.nan], [np.inf, 1.0]])
def test_a_distribution_needs_finite_values(values):
    with pytest.raises(InputError, match="finite"):
        Margin.fit(np.array(values))


def test_categories_are_pieces_as_wide_as_their_frequency():
    law = CategoryMargin.fit(np.array([2] * 6 + [0] * 3 + [3]), 4)
    assert law.order[:3].tolist() == [2, 0, 3]
    np.testing.assert_allclose(law.edges, [0, 0.6, 0.9, 1, 1])
    u = generator(0).random(50_000)
    np.testing.assert_allclose(
        np.bincount(law.codes(u), minlength=4) / 50_000, law.shares, atol=0.01
    )
    assert law.codes(np.array([1.0 - 1e-16, 1.0])).tolist() == [3, 3]


def test_the_score_of_a_category_is_the_normal_mean_of_its_piece():
    law = CategoryMargin.fit(np.array([0] * 7 + [1] * 2 + [2]), 3)
    low, high = law.bounds(np.arange(3))
    z = stats.norm.ppf(
        np.clip(low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 40_001), 1e-9, 1 - 1e-9)
    )
    np.testing.assert_allclose(law.scores, z.mean(axis=1), atol=2e-3)


@pytest.mark.parametrize("r", [-0.9, 0.0, 0.6])
@pytest.mark.parametrize("family", ["norm", "beta", "kde"])
def test_a_known_correlation_and_known_marginals_are_reproduced(r, family):
    X = pair(r).astype(np.float32)
    copula = Copula.fit(X, PAIR, CopulaSettings(family=family), key=0)
    drawn = copula.sample(20_000, key=5)
    assert copula.correlation[0, 1] == pytest.approx(r, abs=0.03)
    assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(r, abs=0.04)
    for i in range(2):
        assert stats.ks_2samp(drawn[:, i], X[:, i]).statistic < 0.025


def test_equal_binary_columns_stay_equal_by_mean_scores_and_not_by_uniform_ones():
    codes = (generator(0).random(4000) < 0.5).astype(int)
    X = np.concatenate([one_hot(codes, 2), one_hot(codes, 2)], axis=1)
    blocks = (Block("a", 0, 2, "categorical"), Block("b", 2, 2, "categorical"))
    same = {}
    for scores in ("mean", "uniform"):
        copula = Copula.fit(X, blocks, CopulaSettings(scores=scores), key=0)
        drawn = copula.sample(4000, key=1)
        same[scores] = (drawn[:, 0] == drawn[:, 2]).mean()
    assert same["mean"] > 0.99
    assert 0.65 < same["uniform"] < 0.75


SPIKED = (Block("x", 0, 1, "number"), Block("x", 1, 2, "categorical"), Block("y", 3, 1, "number"))


def spiked_rows(n=10_000):
    """A number that is spiked in 7 of 10 rows, and another that follows it."""
    value = drawn(stats.norm(5.0, 1.0), n)
    spiked = generator(4).random(n) < 0.7
    other = value + stats.norm.ppf(generator(5).random(n))
    parts = [np.where(spiked, 0, value)[:, None], one_hot(spiked.astype(int), 2), other[:, None]]
    return np.concatenate(parts, axis=1).astype(np.float32)


def test_the_number_of_a_spiked_column_is_fitted_where_it_is_in_use():
    copula = Copula.fit(spiked_rows(), SPIKED, CopulaSettings(family="norm"), key=0)
    np.testing.assert_allclose(copula.margins[0].parameters, [5.0, 1.0], atol=0.05)
    assert copula.correlation[0, 2] == pytest.approx(0.5**0.5, abs=0.03)


def test_a_given_spike_says_nothing_by_the_number_that_it_leaves_unused():
    X = spiked_rows()
    copula = Copula.fit(X, SPIKED, CopulaSettings(family="norm"), key=0)
    given = np.full((8_000, 4), np.nan, np.float32)
    given[:4_000, :3], given[4_000:, :3] = [0, 0, 1], [6.5, 1, 0]
    drawn = copula.sample(8_000, key=1, given=given)
    assert (drawn[:, :3] == given[:, :3]).all()
    assert drawn[:4_000, 3].mean() == pytest.approx(X[:, 3].mean(), abs=0.1)
    assert drawn[:4_000, 3].std() == pytest.approx(X[:, 3].std(), abs=0.1)
    assert drawn[4_000:, 3].mean() == pytest.approx(6.5, abs=0.1)


def test_given_a_number_the_others_follow_the_conditional_normal():
    copula = Copula.fit(pair(0.8), PAIR, CopulaSettings(family="norm"), key=0)
    given = np.full((20_000, 2), np.nan, np.float32)
    given[:, 0] = 1.5
    drawn = copula.sample(20_000, key=3, given=given)
    assert set(drawn[:, 0]) == {np.float32(1.5)}
    assert drawn[:, 1].mean() == pytest.approx(1.2, abs=0.03)
    assert drawn[:, 1].std() == pytest.approx(0.6, abs=0.02)


def test_given_categories_the_rows_are_those_that_rejection_would_leave():
    copula = Copula.fit(mixed(), MIXED, key=0)
    free = copula.sample(120_000, key=1)
    kept = free[(free[:, 3] == 1) & (free[:, 5] == 1)]
    given = np.full((8_000, 6), np.nan, np.float32)
    given[:, 1:] = [0, 0, 1, 0, 1]
    drawn = copula.sample(8_000, key=2, given=given)
    assert (drawn[:, 1:] == given[:, 1:]).all()
    assert stats.ks_2samp(drawn[:, 0], kept[:, 0]).statistic < 0.03
    assert abs(drawn[:, 0].mean() - free[:, 0].mean()) > 0.3


def test_rows_may_be_given_different_columns():
    copula = Copula.fit(mixed(), MIXED, key=0)
    given = np.full((3, 6), np.nan, np.float32)
    given[0, 0], given[1, 4:] = 0.25, [0, 1]
    drawn = copula.sample(3, key=2, given=given)
    assert drawn[0, 0] == np.float32(0.25)
    assert drawn[1, 5] == 1.0
    assert (drawn[:, 1:4].sum(1) == 1).all()


def test_what_no_real_row_had_cannot_be_asked_for():
    X = mixed()
    X[:, 1:4] = [1, 0, 0]
    copula = Copula.fit(X, MIXED, key=0)
    given = np.full((1, 6), np.nan, np.float32)
    given[0, 1:4] = [0, 1, 0]
    with pytest.raises(InputError, match="'c'"):
        copula.sample(1, key=0, given=given)
    with pytest.raises(InputError, match="shape"):
        copula.sample(2, key=0, given=given)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_rows_constant_columns_and_one_category_are_no_trouble(n):
    X = np.tile(np.array([[3.0, 1.0, 1.0, 0.0]], np.float32), (n, 1))
    blocks = (
        Block("x", 0, 1, "number"),
        Block("c", 1, 1, "categorical"),
        Block("d", 2, 2, "categorical"),
    )
    copula = Copula.fit(X, blocks, key=0)
    np.testing.assert_array_equal(copula.sample(7, key=1), np.tile(X[:1], (7, 1)))
    assert copula.sample(0, key=1).shape == (0, 4)


def test_one_column_is_enough():
    X = pair(0.0)[:, :1]
    drawn = Copula.fit(X, PAIR[:1], key=0).sample(5000, key=1)
    assert stats.ks_2samp(drawn[:, 0], X[:, 0]).statistic < 0.03


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_refused_with_its_place(bad):
    X = pair(0.1)[:9]
    X[4, 1] = bad
    with pytest.raises(InputError, match="'y', row 4"):
        Copula.fit(X, PAIR, key=0)


def test_a_matrix_that_does_not_fit_its_blocks_is_refused():
    with pytest.raises(InputError, match="shape"):
        Copula.fit(np.zeros((3, 5)), PAIR, key=0)
    with pytest.raises(InputError, match="no rows"):
        Copula.fit(np.zeros((0, 2)), PAIR, key=0)
    with pytest.raises(InputError, match="n=-1"):
        Copula.fit(pair(0.1)[:9], PAIR, key=0).sample(-1, key=0)


def test_settings_are_checked_and_families_can_differ_by_column():
    with pytest.raises(InputError, match="cauchy"):
        CopulaSettings(family="cauchy")
    with pytest.raises(InputError, match="scores"):
        CopulaSettings(scores="median")
    settings = CopulaSettings(families={"y": "uniform"})
    copula = Copula.fit(pair(0.1), PAIR, settings, key=0)
    assert [law.family for law in copula.margins] == ["beta", "uniform"]


def test_a_copula_comes_back_from_its_file_and_draws_the_same(tmp_path):
    copula = Copula.fit(mixed(), MIXED, key=0)
    copula.save(tmp_path / "copula")
    again = Copula.load(tmp_path / "copula")
    np.testing.assert_array_equal(again.sample(99, key=4), copula.sample(99, key=4))
    data = (tmp_path / "copula").read_bytes()
    (tmp_path / "copula").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="copula"):
        Copula.load(tmp_path / "copula")


def test_keys_reproduce_and_differ():
    copula = Copula.fit(mixed(), MIXED, CopulaSettings(scores="uniform"), key=6)
    twin = Copula.fit(mixed(), MIXED, CopulaSettings(scores="uniform"), key=6)
    np.testing.assert_array_equal(copula.correlation, twin.correlation)
    np.testing.assert_array_equal(copula.sample(20, key=1), twin.sample(20, key=1))
    assert (copula.sample(20, key=1) != copula.sample(20, key=2)).any()


def test_an_impossible_correlation_is_made_positive_definite():
    R = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    fixed = positive_definite(R)
    assert np.linalg.eigvalsh(R)[0] < -0.5
    assert np.linalg.eigvalsh(fixed)[0] > 0
    np.testing.assert_array_equal(fixed.diagonal(), 1.0)
    good = np.array([[1.0, 0.3], [0.3, 1.0]])
    np.testing.assert_allclose(positive_definite(good), good)


def bell(n=6000, r=0.75, size=5, seed=4):
    """Two columns of codes whose most frequent values are in the middle, and their links."""
    z = pair(r, n) if seed == 1 else np.random.default_rng(seed).multivariate_normal(
        [0, 0], [[1, r], [r, 1]], n
    )  # fmt: skip
    cuts = stats.norm.ppf(np.arange(1, size) / size) * 0.6
    return np.digitize(z[:, 0], cuts), np.digitize(z[:, 1], cuts)


def of_codes(X, start, size):
    return X[:, start : start + size].argmax(axis=1)


@pytest.mark.parametrize("size", [4, 7, 20])
@pytest.mark.parametrize("r", [-0.75, 0.3, 0.95])
def test_rank_correlations_of_few_ordered_values_are_kept(size, r):
    a, b = bell(r=r, size=size)
    blocks = (Block("a", 0, size, "categorical"), Block("b", size, size, "categorical"))
    X = np.concatenate([one_hot(a, size), one_hot(b, size)], axis=1)
    orders = {"a": tuple(range(size)), "b": tuple(range(size))}
    drawn = Copula.fit(X, blocks, key=0, orders=orders).sample(8000, key=1)
    found = stats.spearmanr(of_codes(drawn, 0, size), of_codes(drawn, size, size)).statistic
    assert found == pytest.approx(stats.spearmanr(a, b).statistic, abs=0.03)


def test_a_rare_binary_category_keeps_its_correlation_with_a_number():
    z = pair(0.7, 20_000)
    rare = (z[:, 1] > 1.3).astype(int)
    X = np.concatenate([z[:, :1], one_hot(rare, 2)], axis=1).astype(np.float32)
    blocks = (Block("x", 0, 1, "number"), Block("c", 1, 2, "categorical"))
    drawn = Copula.fit(X, blocks, CopulaSettings(family="norm"), key=0).sample(20_000, key=1)
    real = abs(np.corrcoef(X[:, 0], rare)[0, 1])
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 2])[0, 1]) == pytest.approx(real, abs=0.02)


def test_a_missing_value_has_no_place_in_the_order():
    a, b = bell(r=0.8)
    gone = generator(2).random(len(a)) < np.where(b == 0, 0.4, 0.1)
    size = 6  # the last code is the missing one
    X = np.concatenate([one_hot(np.where(gone, 5, a), size), one_hot(b, 5)], axis=1)
    blocks = (Block("a", 0, size, "categorical"), Block("b", size, 5, "categorical"))
    orders = {"a": tuple(range(5)), "b": tuple(range(5))}
    copula = Copula.fit(X, blocks, key=0, orders=orders)
    drawn = copula.sample(20_000, key=1)
    made, other = of_codes(drawn, 0, size), of_codes(drawn, size, 5)
    missing = made == 5
    assert missing.mean() == pytest.approx(gone.mean(), abs=0.02)
    assert missing[other == 0].mean() > 2 * missing[other > 0].mean()
    found = stats.spearmanr(made[~missing], other[~missing]).statistic
    assert found == pytest.approx(stats.spearmanr(a[~gone], b[~gone]).statistic, abs=0.06)
    np.testing.assert_allclose(copula.shares(blocks[0]), X[:, :size].mean(axis=0), atol=1e-6)


def test_given_ordered_values_and_missing_ones_are_kept(tmp_path):
    a, b = bell(r=0.8)
    gone = generator(2).random(len(a)) < 0.2
    X = np.concatenate([one_hot(np.where(gone, 5, a), 6), one_hot(b, 5)], axis=1)
    blocks = (Block("a", 0, 6, "categorical"), Block("b", 6, 5, "categorical"))
    orders = {"a": tuple(range(5)), "b": tuple(range(5))}
    Copula.fit(X, blocks, key=0, orders=orders).save(tmp_path / "copula")
    copula = Copula.load(tmp_path / "copula")
    for code, mean in ((0, b[(a == 0) & ~gone].mean()), (5, b[gone].mean())):
        given = np.full((4000, 11), np.nan, dtype=np.float32)
        given[:, :6] = one_hot(np.full(4000, code), 6)
        drawn = copula.sample(4000, key=1, given=given)
        assert (of_codes(drawn, 0, 6) == code).all()
        assert of_codes(drawn, 6, 5).mean() == pytest.approx(mean, abs=0.15)


@pytest.mark.parametrize("orders", [{"z": (0, 1)}, {"c": (0, 0, 1)}, {"c": (0,)}, {"x": (0,)}])
def test_an_order_that_does_not_fit_its_block_is_refused(orders):
    with pytest.raises(InputError, match="orders"):
        Copula.fit(mixed(50), MIXED, key=0, orders=orders)


@pytest.mark.parametrize("scores", ["mean", "uniform"])
def test_a_name_stands_where_its_number_does_unless_the_releases_way_is_asked_for(scores):
    level, other = bell(size=6)
    name = np.array([3, 0, 5, 1, 4, 2])[level]  # one name for each number, in another order
    X = np.concatenate([one_hot(level, 6), one_hot(name, 6), one_hot(other, 6)], axis=1)
    blocks = tuple(Block(c, 6 * i, 6, "categorical") for i, c in enumerate(("level", "name", "z")))
    orders = {"level": tuple(range(6)), "z": tuple(range(6))}
    settings = CopulaSettings(scores=scores)
    drawn = Copula.fit(X, blocks, settings, key=0, orders=orders).sample(4000, key=1)
    kept = np.array([3, 0, 5, 1, 4, 2])[of_codes(drawn, 0, 6)] == of_codes(drawn, 6, 6)
    assert kept.mean() > 0.99 if scores == "mean" else kept.mean() < 0.5
