import numpy as np
import polars as pl
import pytest
from scipy.stats import fisher_exact

from siloweave.attacks.membership import closest_records, copies, judged, worst_record
from siloweave.attacks.neighbours import ordinals
from siloweave.tables.aligned import align
from tests.attacks.people import people


def side_by_side(train, synthetic, control):
    return align({"train": train, "synthetic": synthetic, "control": control})


def test_copies_are_counted_and_compared_with_the_control():
    train, control = people(1, 500), people(2, 400)
    synthetic = pl.concat([people(3, 300), train[40:60], control[:3], train[:1], control[:1]])
    twice = pl.concat([train, train[:1]])
    found, places = copies(ordinals(side_by_side(twice, synthetic, control)))
    every, once = found
    assert (every.rows, every.train.successes, every.control.successes) == ("all", 22, 3)
    assert (once.rows, once.train.successes, once.train.trials) == ("once", 20, 499)
    assert (once.control.successes, once.control.trials) == (3, 400)
    table = [[20, 479], [3, 397]]
    assert once.p_value == pytest.approx(fisher_exact(table, alternative="greater").pvalue)
    assert places.tolist() == [*range(40, 60), 0, 500]


def test_common_rows_alone_give_nothing_away():
    """A table of few distinct rows is full of copies; the control is as full of them."""
    rng = np.random.default_rng(0)
    drawn = [
        pl.DataFrame({"a": rng.integers(6, size=900), "b": rng.integers(5, size=900).astype(str)})
        for _ in range(3)
    ]
    values = ordinals(side_by_side(*drawn))
    (every,), places = copies(values)
    assert every.train.successes == every.control.successes == 900
    assert every.p_value == 1
    assert len(places) == 900
    assert not worst_record(values, (), np.arange(0)).caught


def test_chances_of_copies_are_those_of_shuffled_rows():
    """With nothing learnt, one in twenty p values is below 0.05, or fewer as counts are whole."""
    alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        train, synthetic, control = (
            pl.DataFrame({"a": rng.integers(40, size=120), "b": rng.integers(9, size=120)})
            for _ in range(3)
        )
        found, _ = copies(ordinals(side_by_side(train, synthetic, control)))
        alarms += found[0].p_value < 0.05
    assert 1 <= alarms <= 18


def test_one_leaking_measure_is_enough_and_its_rows_are_named():
    values = ordinals(side_by_side(people(1, 200), people(2, 200), people(3, 200)))
    rng = np.random.default_rng(0)
    noise, peaked = rng.random(100), rng.random(100)
    peaked[[7, 3]] = 5
    peaked[11:25] = 3
    quiet = judged("quiet", rng.random(100), rng.random(100), attacks=2, key=0)
    loud = judged("loud", peaked, noise, attacks=2, key=0)
    members = np.arange(100) + 50
    found = worst_record(values, [quiet, loud], members)
    assert found.caught
    assert found.by == "loud above all"
    assert found.measures == 4
    assert found.p_value == pytest.approx(4 * loud.above_all.p_value)
    assert loud.above_all.p_value == pytest.approx(2.0**-16, rel=0.6)
    shown = set(found.rows)
    assert {53, 57} <= shown
    assert len(found.rows) == 10
    assert not worst_record(values, [quiet], members).caught


def test_distances_to_the_closest_record():
    train, control = people(1, 400), people(2, 700)
    fresh = closest_records(side_by_side(train, people(3, 600), control), 300, key=0)
    assert fresh.closer_to_train.holds(0.5)
    assert fresh.rows == 400
    for histogram in (fresh.to_train, fresh.to_control):
        assert sum(histogram.counts) == 300
        assert len(histogram.edges) == len(histogram.counts) + 1
    copied = closest_records(side_by_side(train, train, control), 300, key=0)
    assert copied.to_train.counts[0] == 300
    assert copied.closer_to_train.value > 0.98
    assert copied.median_to_train == 0 < copied.median_to_control


def test_equal_tables_are_equally_close():
    rows = people(1, 50)
    found = closest_records(side_by_side(rows, rows, rows), 50, key=0)
    assert found.closer_to_train.value == pytest.approx(0.5)
    assert found.to_train == found.to_control
