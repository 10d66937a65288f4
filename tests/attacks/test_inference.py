import datetime

import numpy as np
import polars as pl
import pytest

from siloweave.attacks.inference import _effective, guessed, inference, without_each
from siloweave.attacks.neighbours import nearest, space
from siloweave.tables.aligned import align
from tests.attacks.people import people


def tables(train, synthetic, control):
    return align({"train": train, "synthetic": synthetic, "control": control})


def attacked(of, secrets, known=None):
    targets = {t: np.arange(min(300, of.num_rows[t])) for t in ("train", "control")}
    return inference(of, space(of, "gower", known), secrets, targets)


def test_nearest_rows_are_found_without_the_secret():
    of = tables(people(1, 50, True), people(2, 5000, True), people(3, 50, True))
    places = np.arange(50)
    found = without_each(space(of, "gower"), "train", places, of.names)
    for s, secret in enumerate(of.names):
        rest = space(of, "gower", [name for name in of.names if name != secret])
        expected = nearest(rest, rest.points["train"], rest.points["synthetic"]).places
        np.testing.assert_array_equal(found[:, s], expected)


def test_a_secret_that_is_not_known_is_left_out_already():
    of = tables(people(1, 50), people(2, 500), people(3, 50))
    known = space(of, "gower", ["age", "income"])
    found = without_each(known, "train", np.arange(50), ["city"])
    expected = nearest(known, known.points["train"], known.points["synthetic"]).places
    np.testing.assert_array_equal(found[:, 0], expected)


def test_negative_guesses_are_right_only_near_the_truth():
    """Dividing by the signed guess makes every negative guess a hit; here none of them is."""
    truth = pl.DataFrame({"x": [100.0, -100.0, -100.0, -100.0, 0.0, 0.0]})
    guess = pl.DataFrame({"x": [-500.0, -104.0, -106.0, -96.0, 0.0, -0.01]})
    of = tables(truth, guess, truth)
    rows = np.arange(6)
    right = guessed(of.column("x"), "synthetic", rows, "train", rows)
    assert right.tolist() == [False, True, False, True, True, False]
    g, t = guess["x"].to_numpy(), truth["x"].to_numpy()
    signed = np.abs(g - t) / (g + 1e-12) <= 0.05
    assert signed.tolist() == [True, True, True, True, True, True]


def test_missing_values_datetimes_and_categories():
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    later = [day + datetime.timedelta(days=d) for d in (0, 100, 200)]
    truth = pl.DataFrame({"x": [1.0, None, None], "when": later, "c": ["a", None, "b"]})
    guess = pl.DataFrame(
        {
            "x": [None, 1.0, None],
            "when": [
                later[0],
                later[1] + datetime.timedelta(days=6),
                later[2] - datetime.timedelta(days=9),
            ],
            "c": ["a", None, "a"],
        }
    )
    of = tables(truth, guess, truth)
    rows = np.arange(3)
    answers = {
        name: guessed(of.column(name), "synthetic", rows, "train", rows).tolist()
        for name in of.names
    }
    assert answers == {
        "x": [False, False, True],
        "when": [True, False, True],
        "c": [True, True, False],
    }


def test_guessing_at_random_is_exact():
    of = tables(people(1, 80, True), people(2, 150, True), people(3, 80, True))
    rows = np.arange(80)
    for part in attacked(of, of.names)[1:]:
        column = of.column(part.variant)
        every = [
            guessed(column, "synthetic", np.full(80, place), "train", rows).mean()
            for place in range(150)
        ]
        assert part.baseline.successes / part.baseline.trials == pytest.approx(np.mean(every))


def test_a_copy_shows_secrets_and_a_fresh_sample_does_not():
    train, control = people(1, 1000), people(2, 1000)
    copied = attacked(tables(train, train, control), train.columns)
    assert [part.variant for part in copied] == ["all secrets", *train.columns]
    assert min(part.risk for part in copied) > 0.9
    fresh = attacked(tables(train, people(3, 1000), control), train.columns)
    assert fresh[0].low == 0
    assert sum(part.low > 0 for part in fresh[1:]) <= 1


def test_an_attack_no_better_than_guessing_says_so():
    rng = np.random.default_rng(0)
    noise = [pl.DataFrame({"a": rng.random(400), "b": rng.integers(2, size=400)}) for _ in range(3)]
    noise = [frame.with_columns(pl.col("b").cast(pl.String)) for frame in noise]
    part = attacked(tables(*noise), ["b"])[0]
    assert (part.train.value > part.baseline.value) == ("no better than guessing" not in part.note)
    rows = pl.DataFrame({"a": ["x", "y"] * 20, "b": ["p", "q"] * 20})
    wrong = rows.with_columns(b=rows["b"].reverse())
    part = attacked(tables(rows, wrong, rows), ["b"])[0]
    assert part.train.successes == 0
    assert "no better than guessing" in part.note


def test_guesses_about_one_row_count_as_much_as_they_are_worth():
    rng = np.random.default_rng(0)
    once = rng.random(500) < 0.4
    apart = [rng.random(500) < 0.4 for _ in range(8)]
    assert _effective([once] * 8)[1] == pytest.approx(500, rel=0.01)
    assert _effective(apart)[1] == pytest.approx(4000, rel=0.15)
    assert _effective([np.ones(500, bool)] * 2) == (500, 500)
