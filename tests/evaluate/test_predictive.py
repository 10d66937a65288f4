import numpy as np
import polars as pl
import pytest
from sklearn.metrics import f1_score
from tests.evaluate.made import noisy, pair, people, shuffled

from siloweave.errors import DataError, InputError
from siloweave.evaluate.predictive import (
    as_classes,
    main_classes,
    pick,
    svm_misclassification,
    train_on_synthetic,
    utilities,
)
from siloweave.tables import Codes, Domain, align

BOTH = ("real", "synthetic")


def utility(tables, real="real", synthetic="synthetic", *, key=0, target=None):
    """Utility of a table as a share of the real rows' own, in percent."""
    targets = None if target is None else (target,)
    return utilities(tables, real, (synthetic,), key=key, targets=targets).ratio(synthetic)[0]


def test_fewer_rows_than_folds():
    few = pair({"x": [1.5, 2.5], "y": [2.5, 1.5]}, {"x": [1.5, 2.5], "y": [2.5, 1.5]})
    with pytest.raises(InputError, match="2 real rows are fewer than 3 folds"):
        utility(few)


def test_utility_falls_with_noise_to_the_floor():
    real = people(0, 800)
    found = [utility(pair(real, noisy(real, 1, share)), target="rich") for share in (0, 0.5, 1)]
    assert found[0] > 90
    assert found == sorted(found, reverse=True)
    floor = utility(pair(real, shuffled(real, 2)), target="rich")
    assert found[-1] == pytest.approx(floor, abs=15)
    assert floor < 70


def test_fresh_rows_are_as_useful_as_real_ones():
    assert utility(pair(people(0), people(1))) > 90


def test_the_ratio_is_of_the_90th_percentiles():
    real = people(0, 300)
    found = utilities(pair(real, noisy(real, 1, 0.4)), "real", ("synthetic",), key=0)
    ours, theirs = (
        np.quantile([np.mean(scores) for scores in side.values()], 0.9)
        for side in (found.real, found.trained_on["synthetic"])
    )
    whole, folds = found.ratio("synthetic")
    assert whole == pytest.approx(min(100, 100 * theirs / ours))
    assert len(folds) == 3
    assert set(found.real) == {"age", "pay", "job", "rich"}


def test_a_model_of_one_class_answers_that_class():
    real = people(0, 90)
    flat = people(1, 90).with_columns(rich=pl.lit(False))
    found = utilities(pair(real, flat), "real", ("synthetic",), key=0, targets=("rich",))
    truth = real["rich"].to_numpy()
    # Each fold's macro-F1 of always answering False, weighted as the folds are.
    expected = f1_score(truth, np.zeros(90, bool), average="macro", zero_division=0)
    assert np.mean(found.trained_on["synthetic"]["rich"]) == pytest.approx(expected, abs=0.03)


def test_numbers_are_scored_by_the_absolute_error_taken_away():
    x = np.linspace(0.5, 10, 300)
    real = {"x": x, "y": 3 * x}
    both = pair(real, {"x": x, "y": 3 * x[::-1]})
    found = utilities(both, "real", ("real", "synthetic"), key=0)
    assert min(found.trained_on["real"]["y"]) > 0.9
    assert found.trained_on["synthetic"]["y"] == (0.0, 0.0, 0.0)  # clipped


def test_targets_of_one_real_value_are_left_out_and_named():
    real = people(0, 100).with_columns(flat=pl.lit("same"), level=pl.lit(2.5))
    found = utilities(pair(real, real), "real", ("synthetic",), key=0)
    assert found.left_out == dict.fromkeys(("flat", "level"), "the real rows have one value")
    with pytest.raises(InputError, match=r"no target to predict \(flat: the real rows have one"):
        utility(pair(real, real), target="flat")


def test_missing_targets():
    real = people(0, 200)
    holes = real.with_columns(
        age=pl.when(pl.col("rich")).then(None).otherwise("age"),
        job=pl.when(pl.col("rich")).then(None).otherwise("job"),
    )
    found = utilities(pair(holes, holes), "real", ("synthetic",), key=0, targets=("age", "job"))
    assert min(found.real["job"]) > 0.4
    assert max(found.real["age"]) < 1


def test_an_unknown_target_is_named():
    with pytest.raises(DataError, match="there is no column 'sex'; there are age, pay, job, rich"):
        utility(pair(people(0), people(1)), target="sex")


def test_wide_targets_keep_their_main_classes():
    values = np.repeat(np.arange(6), [9, 1, 7, 5, 3, 1])
    kept = main_classes(values, 4)
    assert kept.tolist() == [0, 2, 3]
    assert as_classes(np.array([0, 1, 2, 3, 4, 9]), kept).tolist() == [0, 3, 1, 2, 3, 3]
    assert main_classes(values, 6).tolist() == [0, 2, 3, 4, 1, 5]


def test_a_support_vector_machine_learns_what_is_there():
    x = np.linspace(-1, 1, 200)
    side = np.where(x > 0, "right", "left")
    real = {"x": x, "side": side}
    assert svm_misclassification(pair(real, real), *BOTH, key=0) < 0.03
    wrong = {"x": x, "side": side[::-1]}
    assert svm_misclassification(pair(real, wrong), *BOTH, key=0) > 0.97
    flat = {"x": x, "side": ["left"] * 200}
    assert svm_misclassification(pair(real, flat), *BOTH, key=0) == 0.5


def test_what_a_classifier_cannot_predict():
    both = pair(people(0, 50), people(1, 50))
    with pytest.raises(InputError, match="target 'age' is numeric"):
        svm_misclassification(both, *BOTH, key=0, targets=("age",))
    numbers = pair(people(0, 50).select("age", "pay"), people(1, 50).select("age", "pay"))
    with pytest.raises(InputError, match="no categorical column with two values"):
        svm_misclassification(numbers, *BOTH, key=0)
    alone = align({"real": people(0, 9).select("rich"), "synthetic": people(1, 9).select("rich")})
    for measure in (svm_misclassification, utility):
        with pytest.raises(InputError, match="one column has no other"):
            measure(alone, *BOTH, key=0)


def test_rows_are_picked_without_repetition():
    assert pick(3, 5, 0).tolist() == [0, 1, 2]
    rows = pick(100, 10, 0)
    assert len(set(rows.tolist())) == 10
    assert rows.tolist() == sorted(rows.tolist())


def test_a_number_that_follows_from_a_category_is_learnt():
    """As years of education from its name on Adult, where the absolute error stops half way."""
    chance = np.random.default_rng(0)
    place = chance.choice(16, 3000, p=np.arange(1, 17)[::-1] / 136)
    years = chance.permutation(16)[place].astype(float)
    real = pl.DataFrame({"school": [f"s{i:02}" for i in place], "years": years})
    found = utilities(pair(real, real), "real", (), targets=("years",), key=0)
    assert min(found.real["years"]) > 0.95


def odd_rows(seed):
    """A school, its place in a shuffled order, noise; and the same with 2 % of places random."""
    chance, shares = np.random.default_rng(seed), 0.7 ** np.arange(16)
    place = chance.choice(16, 6000, p=shares / shares.sum())
    years = chance.permutation(16)[place].astype(float)
    noise = {f"noise {j}": chance.normal(size=6000) for j in range(8)}
    real = pl.DataFrame({"school": [f"s{i:02}" for i in place], "years": years} | noise)
    odd = np.where(chance.random(6000) < 0.02, chance.integers(16, size=6000), years)
    return real, real.with_columns(years=pl.Series(1.0 * odd))


def test_many_classes_are_learnt_from_rows_of_which_a_few_are_odd():
    """Odd rows in leaves that are sure of their class break boosting without shrunken leaves."""
    for seed in range(4):
        tables = pair(*odd_rows(seed))
        found = utilities(tables, "real", ("synthetic",), targets=("school",), key=0)
        assert min(found.trained_on["synthetic"]["school"]) > 0.95


# FLAIM's experiment: boosting trained on synthetic codes


DOMAIN = Domain(("a", "b", "c"), (3, 4, 2))


def rows(seed, count=500, domain=DOMAIN):
    rng = np.random.default_rng(seed)
    return Codes(domain, tuple(rng.integers(size, size=count) for size in domain.sizes))


def learnable(seed, count=600, flip=0.1):
    """`c` follows whether `b` is high, but for some noise."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(3, size=count), rng.integers(4, size=count)
    return Codes(DOMAIN, (a, b, ((b > 1) ^ (rng.random(count) < flip)).astype(np.uint8)))


def test_auc_of_what_can_be_learned():
    auc = train_on_synthetic(learnable(0), learnable(1), "c", key=0)
    assert 0.85 < auc < 0.95


def test_auc_of_independent_columns_is_a_coin():
    assert 0.4 < train_on_synthetic(rows(0), rows(2), "c", key=0) < 0.6


def test_auc_repeats_with_its_key():
    first = [train_on_synthetic(learnable(0), learnable(1), "c", key=3) for _ in range(2)]
    assert first[0] == first[1]


def test_many_classes_are_one_against_the_rest():
    auc = train_on_synthetic(learnable(0), learnable(1), "b", key=0)
    assert 0.65 < auc < 0.85


def test_class_never_synthesised_counts_half():
    real, synthetic = learnable(1), learnable(0)
    lacking = synthetic.take(np.flatnonzero(synthetic.column("a") != 2))
    assert 0.4 < train_on_synthetic(lacking, real, "a", key=0) < 0.6


def test_one_synthetic_class_is_nan_with_a_reason():
    synthetic = learnable(0)
    flat = synthetic.take(np.flatnonzero(synthetic.column("c") == 1))
    with pytest.warns(UserWarning, match="AUC is NaN: all .* have the same 'c'"):
        assert np.isnan(train_on_synthetic(flat, learnable(1), "c", key=0))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": "z"}, "target='z' is no attribute; choose from a, b, c"),
        ({"synthetic": rows(0, 0)}, "synthetic has 0 rows"),
        ({"real_test": rows(0, 1)}, "one class of 'c'"),
    ],
)
def test_bad_utility_input_is_named(change, said):
    given = {"synthetic": learnable(0), "real_test": learnable(1), "target": "c", "key": 0}
    with pytest.raises(InputError, match=said):
        train_on_synthetic(**{**given, **change})


def test_lone_attribute_has_no_features():
    lone = rows(0, 9, Domain(("a",), (3,)))
    with pytest.raises(InputError, match="only attribute"):
        train_on_synthetic(lone, lone, "a", key=0)


def test_every_column_beside_the_model_of_real_rows():
    real = people(0, 600)
    found = utilities(
        pair(real, shuffled(real, 1), again=people(1, 600)), "real", ("synthetic", "again"), key=0
    )
    fresh, folds = found.of_every_column("again")
    mixed, _ = found.of_every_column("synthetic")
    assert fresh == pytest.approx(100, abs=8)
    assert mixed < fresh - 15
    assert fresh == pytest.approx(np.mean(folds))
    assert set(found.relative["again"]) == {"age", "pay", "job", "rich"}


def test_a_ratio_is_of_balanced_accuracies_or_of_errors():
    x = np.linspace(0.5, 10, 300)
    side = np.where(x > 5, "right", "left")
    real = {"x": x, "y": 3 * x, "side": side}
    flat = {"x": x, "y": np.full(300, 15.75), "side": ["left"] * 300}
    found = utilities(pair(real, flat), "real", ("synthetic",), key=0)
    # One answer for two classes is right for half of them; the real model makes no error.
    assert np.mean(found.relative["synthetic"]["side"]) == pytest.approx(0.5, abs=0.02)
    # The mean of y has an error of one standard deviation, the real model nearly none.
    assert max(found.relative["synthetic"]["y"]) < 0.2


def test_utility_of_columns_of_one_value():
    flat = {"x": np.full(60, 2.5), "side": ["left"] * 60}
    found = utilities(pair(flat, flat), "real", ("synthetic",), key=0)
    with pytest.raises(InputError, match=r"no target to predict \(x: the real rows have one"):
        found.of_every_column("synthetic")
