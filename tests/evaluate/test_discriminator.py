import numpy as np
import polars as pl
import pytest
from scipy.stats import chi2_contingency
from sklearn.metrics import roc_auc_score
from tests.evaluate.made import pair, people, shuffled

from siloweave.errors import InputError
from siloweave.evaluate.discriminator import discriminate
from siloweave.evaluate.predictive import LIGHTGBM, XGBOOST, boosted

BOTH = ("real", "synthetic")


def test_fresh_rows_cannot_be_told_apart_and_shuffled_ones_can():
    real = people(0)
    fresh = discriminate(pair(real, people(1)), *BOTH, key=0)
    mixed = discriminate(pair(real, shuffled(real, 1)), *BOTH, key=0, rank_columns=True)
    assert abs(fresh.auc - 0.5) < 0.06
    assert mixed.auc > 0.7
    assert mixed.propensity < fresh.propensity
    assert [name for name, _ in mixed.distinguishing][-1] in ("age", "pay", "job", "rich")


def test_the_column_that_distinguishes_rows_is_found():
    real = people(0)
    other = people(1).with_columns(age=pl.col("age") + 100)
    found = discriminate(pair(real, other), *BOTH, key=0, rank_columns=True)
    assert found.distinguishing[0][0] == "age"
    assert found.distinguishing[0][1] > 0.3
    assert (found.auc, found.propensity) == (1.0, pytest.approx(0.5, abs=0.01))


def test_a_missing_value_is_seen():
    real = people(0)
    other = people(1).with_columns(job=pl.when(pl.col("rich")).then(None).otherwise("job"))
    assert discriminate(pair(real, other), *BOTH, key=0).auc > 0.6


def test_every_row_is_scored_once_out_of_fold():
    found = discriminate(pair(people(0), people(1, 100)), *BOTH, key=0, max_rows=80)
    assert found.truth.tolist() == [0] * 80 + [1] * 80
    assert found.auc == pytest.approx(roc_auc_score(found.truth, found.probability))
    assert found.propensity == pytest.approx(1 - np.abs(found.probability - 0.5).mean())
    for part in found.per_fold:
        assert 26 <= part.truth.sum() <= 27
        assert 26 <= (1 - part.truth).sum() <= 27


def test_copies_score_below_a_half():
    real = people(0)
    assert discriminate(pair(real, real), *BOTH, key=0).auc < 0.5


def test_counts_that_agree_better_than_chance_deceive_a_detector():
    real = people(0)
    fresh = [discriminate(pair(real, people(seed)), *BOTH, key=0) for seed in range(1, 6)]
    values = [found.reduced_chi_square for found in fresh]
    assert np.mean(values) == pytest.approx(1, abs=0.4)
    assert not any(found.is_deceived for found in fresh)
    # All values of the real columns, each once: what raking comes near to.
    same = discriminate(pair(real, shuffled(real, 1)), *BOTH, key=0)
    assert same.reduced_chi_square == 0
    assert same.is_deceived


def test_the_chi_square_of_counts_is_that_of_contingency_tables():
    rng = np.random.default_rng(0)
    sides = [{name: rng.integers(0, 20, 2_000) for name in "xy"} for _ in range(2)]
    texts = [{name: codes.astype(str) for name, codes in side.items()} for side in sides]
    found = discriminate(pair(*texts), *BOTH, key=0, trees=XGBOOST)
    total = 0.0
    for name in "xy":
        counts = [np.bincount(side[name]) for side in sides]
        total += chi2_contingency(counts).statistic
    assert found.reduced_chi_square == pytest.approx(total / 38)


def test_columns_of_few_values_say_nothing_of_chance():
    sides = {"x": ["a", "b"] * 200}
    found = discriminate(pair(sides, sides), *BOTH, key=0)
    assert np.isnan(found.reduced_chi_square)
    assert not found.is_deceived


def test_seeds_change_the_fits():
    both = pair(people(0), people(1))
    first, again, other = (discriminate(both, *BOTH, key=k).auc for k in (1, 1, 2))
    assert first == again != other


def test_a_linear_judge_sees_shares_and_no_relation():
    real, of = people(0), {"key": 0, "linear": True}
    mixed = discriminate(pair(real, shuffled(real, 1)), *BOTH, **of)
    older = people(1).with_columns(age=pl.col("age") + 5)
    told = discriminate(pair(real, older), *BOTH, **of)
    richer = people(1).with_columns(rich=pl.lit(True))
    assert mixed.detection > 0.9
    assert told.detection < 0.8
    assert discriminate(pair(real, richer), *BOTH, **of).detection < 0.7
    assert mixed.detection == pytest.approx(
        1 - np.mean([2 * max(fold.auc, 0.5) - 1 for fold in mixed.per_fold])
    )


def test_fewer_rows_than_folds():
    few = pair({"x": [1.5, 2.5], "y": [2.5, 1.5]}, {"x": [1.5, 2.5], "y": [2.5, 1.5]})
    with pytest.raises(InputError, match="2 rows of each table are fewer than 3 folds"):
        discriminate(few, *BOTH, key=0)


def test_a_linear_judge_takes_missing_values_and_many_categories():
    other = people(1).with_columns(
        name=pl.Series([f"n{i % 150}" for i in range(people(1).height)]),
    )
    real = other.with_columns(age=pl.when(pl.col("rich")).then(pl.col("age")))
    found = discriminate(pair(real, other), *BOTH, key=0, linear=True)
    assert np.isfinite(found.probability).all()
    assert found.detection < 0.5


@pytest.mark.parametrize("trees", [XGBOOST, LIGHTGBM])
def test_other_trees_see_what_shuffling_took_away(trees):
    real = people(0)
    fresh = discriminate(pair(real, people(1)), *BOTH, key=0, trees=trees)
    mixed = discriminate(pair(real, shuffled(real, 1)), *BOTH, key=0, trees=trees)
    far = discriminate(pair(real, people(1).with_columns(age=1e3)), *BOTH, key=0, trees=trees)
    assert fresh.detection > 0.85
    assert mixed.detection < 0.7
    assert far.detection == pytest.approx(0, abs=0.02)


def test_all_rounds_are_grown_to_the_stated_depth():
    """A detector that stopped early, or grew smaller trees, would call more rows real."""
    X = np.random.default_rng(0).normal(size=(600, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    for trees, depth, leaves in ((XGBOOST, 6, 64), (LIGHTGBM, 30, 31)):
        model = boosted(X, y, 0, trees)
        assert model.n_iter_ == trees.count
        grown = [each[0] for each in model._predictors]
        assert max(tree.get_max_depth() for tree in grown) <= depth
        assert max(tree.get_n_leaf_nodes() for tree in grown) <= leaves
    assert max(tree.get_n_leaf_nodes() for tree in grown) > 15


def test_names_that_only_one_table_has_do_not_give_its_rows_away():
    def names(first):
        column = [f"{i * 7919 % 600:03d}" for i in range(first, first + 300)]
        return {"name": column, "x": np.sin(np.arange(first, first + 300))}

    found = discriminate(pair(names(0), names(300)), *BOTH, key=0, trees=XGBOOST)
    assert found.detection > 0.8
