"""Samples of one population are told from samples of two, by each column on its own."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from siloweave.attacks.attack import attack
from siloweave.evaluate.scoring import score
from siloweave.tables.aligned import align
from siloweave.tables.populations import differing_columns, population_words, shared_words


def sample(seed, count, shift=0.0, share=0.5):
    """Draw rows of an age, a sex and a code of many values."""
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "age": random.normal(shift, 1.0, count),
            "sex": np.where(random.random(count) < share, "f", "m"),
            "code": [f"c{value}" for value in random.integers(0, 40, count)],
        }
    )


def differences(first, second):
    return differing_columns(align({"first": first, "second": second}), "first", "second")


@pytest.mark.parametrize("count", [30, 300, 3000])
def test_samples_of_one_population_do_not_differ(count):
    for seed in range(50):
        assert differences(sample(seed, count), sample(1000 + seed, 2 * count)) == {}


def test_the_column_that_differs_most_comes_first():
    found = differences(sample(0, 2000), sample(1, 2000, shift=2.0, share=0.8))
    assert list(found) == ["age", "sex"]
    # Two normal distributions whose means are two deviations apart.
    assert found["age"] == pytest.approx(0.683, abs=0.04)
    assert found["sex"] == pytest.approx(0.3, abs=0.04)


def test_missing_values_are_a_part_of_a_distribution():
    first, second = sample(0, 2000), sample(1, 2000)
    second = second.with_columns(pl.when(pl.col("sex") == "f").then("age"))
    assert list(differences(first, second)) == ["age"]


def test_rows_of_few_persons_are_few():
    first, second = sample(0, 2000), sample(1, 2000, shift=0.5)
    tables = align({"first": first, "second": second})
    assert list(differing_columns(tables, "first", "second")) == ["age"]
    persons = np.arange(2000) // 100
    owners = {"first": persons, "second": persons}
    assert differing_columns(replace(tables, owners=owners), "first", "second") == {}


def test_the_sentence_counts_the_other_columns():
    text = population_words({"age": 0.5}, "control", "the training rows")
    assert text == (
        "Control looks like another population than the training rows: age differs by 0.50 of 1"
    )
    text = population_words({"age": 0.5, "sex": 0.2, "b": 0.1}, "control", "the training rows")
    assert text.endswith(", and 2 more columns by more than chance")
    assert population_words({}, "control", "the training rows") == ""


def shared(rows, others):
    return shared_words(align({"others": others, "rows": rows}), "rows", "others")


@pytest.mark.parametrize("columns", [["sex"], ["sex", "code"], ["age", "sex", "code"]])
def test_rows_that_are_alike_by_chance_are_not_shared(columns):
    for seed in range(50):
        rows, others = sample(seed, 100), sample(1000 + seed, 300)
        assert shared(rows.select(columns), others.select(columns)) == ""


def test_rows_that_are_in_both_tables_are_counted():
    others = sample(0, 300).with_columns(pl.when(pl.col("age") > -2).then("age"))
    rows = pl.concat([others.head(60), sample(1, 40)])
    assert shared(rows, others).startswith("60 of 100 rows rows equal a others row; ")
    assert shared(rows.select("code", "age"), others.select("age", "code")) != ""
    # Rows of one person may be alike, and who is in both tables is refused elsewhere.
    tables = replace(align({"others": others, "rows": rows}), owners={"rows": np.arange(100)})
    assert shared_words(tables, "rows", "others") == ""


def test_a_holdout_that_was_learned_from_is_no_ceiling():
    rows, others = sample(0, 400), sample(1, 400)
    scores = score(rows, others, holdout=rows.tail(100), max_rows=100)
    assert scores.settings.caution.startswith("The holdout overlaps the real rows: 100 of 100 ")
    assert str(scores).startswith(scores.settings.caution)


def test_attacks_and_scores_say_so_first():
    rows, others = sample(0, 400), sample(1, 400)
    elsewhere = sample(2, 400, shift=3.0)
    risks = attack(rows, others, control=elsewhere, attacks=["linkability"], targets=50)
    assert risks.caution.startswith("Control looks like another population")
    assert str(risks).index("Control looks") < str(risks).index("attack")
    assert (
        attack(
            rows, others, control=others, attacks=["linkability"], targets=50, allow_overlap=True
        ).caution
        == ""
    )

    scores = score(rows, others, holdout=elsewhere, max_rows=100)
    assert "The holdout looks like another population" in str(scores)
    assert scores.settings.caution.startswith("The holdout looks like another population")
    assert score(rows, others, holdout=sample(3, 400), max_rows=100).settings.caution == ""
