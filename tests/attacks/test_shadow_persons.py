"""Shadow attacks on persons: a set holds all rows of a record or none of them."""

import numpy as np
import polars as pl
import pytest

from siloweave.attacks.shadow import Sampler, shadow_attack
from siloweave.errors import DataError, InputError
from siloweave.tables.read import read
from tests.attacks.test_persons import visits

ROWS = visits(11, persons=120)
SETTINGS = {"key": 0, "training_size": 40, "train_sets": 10, "test_sets": 10, "workers": 1,
            "unit": "patient", "attacks": ["ClosestDistance-Hamming"]}  # fmt: skip


def one_row_each(table, key):
    """A generator that lets one row of every person out, and hides her others."""
    return read(table.to_native().unique("patient", keep="first", maintain_order=True))


def nothing_of(table, key):
    return read(visits(99, persons=30))


def attacked(fit, targets, **changed):
    return shadow_attack(fit, ROWS, targets, **{**SETTINGS, **changed})


def test_one_row_of_a_person_that_comes_out_gives_her_away():
    several = ROWS.with_row_index().filter(pl.len().over("patient") == 4)["index"].to_list()
    found = attacked(one_row_each, several[:2] + several[4:5])
    assert found.records == 2  # two rows of one person are one record
    assert all(one.risk == 1.0 for one in found.risks)
    assert found.unit == "patient"


def test_a_generator_that_lets_nobody_out_finds_nobody():
    found = attacked(nothing_of, 2, train_sets=20, test_sets=20)
    assert found.worst_low <= 0


def test_sets_hold_all_rows_of_a_person_or_none_and_as_many_persons():
    counts = ROWS.group_by("patient").len()
    known = dict(zip(counts["patient"], counts["len"], strict=True))
    seen = []

    def watched(table, key):
        held = table.to_native().group_by("patient").len()
        seen.append(dict(zip(held["patient"], held["len"], strict=True)))
        return table

    found = attacked(watched, 3)
    assert len(seen) == 20
    for held in seen:
        assert len(held) == 40
        assert all(held[one] == known[one] for one in held)
    assert found.records == 3


def test_the_most_exposed_persons_are_those_of_the_most_exposed_rows():
    """All her rows are alike and far from everybody else's, so that none of them hides another."""
    hers = pl.col("patient") == "id-7"
    odd = ROWS.with_columns(
        pl.when(hers).then(pl.lit("odd")).otherwise(name).alias(name) for name in ("group", "city")
    )
    found = shadow_attack(one_row_each, odd, 1, **SETTINGS)
    assert found.records == 1
    places = odd.with_row_index().filter(pl.col("patient") == "id-7")["index"].to_list()
    same = shadow_attack(one_row_each, odd, places[:1], **SETTINGS)
    assert found.risks == same.risks


def test_records_given_as_a_table_are_its_persons():
    records = visits(12, persons=2, first=500)
    assert attacked(one_row_each, records).records == 2
    with pytest.raises(DataError, match="persons have rows in both auxiliary and targets"):
        attacked(one_row_each, ROWS[:9])


def test_a_person_with_a_twin_row_is_left_out_of_the_sets():
    twin = ROWS[:1].with_columns(patient=pl.lit("twin"))
    rows = pl.concat([ROWS, twin])
    found = shadow_attack(one_row_each, rows, [0], **SETTINGS)
    assert found.twins == 1


def test_sizes_count_persons():
    with pytest.raises(InputError, match="auxiliary persons that are not targets"):
        attacked(one_row_each, [0], training_size=120)
    with pytest.raises(InputError, match="targets=120 must be from 1 to 119"):
        attacked(one_row_each, 120)


class Budget:
    unit = "patient"


class Kept:
    """A synthesizer that keeps what its parties are given."""

    def __init__(self):
        self.parts = []

    def fit(self, data, schema, **named):
        self.parts = data
        return self

    def sample_table(self, rows, seed):
        return read(ROWS[:rows])


def test_a_sampler_deals_persons_and_not_rows_to_parties():
    kept = Kept()
    Sampler(kept, None, Budget(), parties=3)(read(ROWS), np.random.SeedSequence(0))
    people = [set(part.to_native()["patient"]) for part in kept.parts]
    assert sum(map(len, people)) == ROWS["patient"].n_unique()
    assert all(len(one) == 40 for one in people)
