import numpy as np
import polars as pl
import pytest

from siloweave.attacks.inference import chance_to_meet, linkability
from siloweave.attacks.neighbours import nearest, space
from siloweave.tables.aligned import align
from tests.attacks.people import people

LEFT, RIGHT = ("group", "age", "visits", "owner"), ("city", "income", "balance")


def linked(train, synthetic, control, left=LEFT, right=RIGHT):
    tables = align({"train": train, "synthetic": synthetic, "control": control})
    targets = {t: np.arange(min(300, tables.num_rows[t])) for t in ("train", "control")}
    spaces = [space(tables, "gower", side) for side in (left, right)]
    return linkability(*spaces, targets), spaces, targets


def test_a_link_is_a_neighbour_on_both_sides():
    (part, _), spaces, targets = linked(
        people(1, 300, True), people(2, 500, True), people(3, 300, True)
    )
    for table, rate in (("train", part.train), ("control", part.control)):
        one, two = (
            nearest(s, s.points[table].take(targets[table]), s.points["synthetic"]).places
            for s in spaces
        )
        expected = sum(a == b for a, b in zip(one.tolist(), two.tolist(), strict=True))
        assert rate.successes == expected
    assert part.variant == "nearest 1"
    assert part.baseline.successes == pytest.approx(300 / 500)


def test_all_nearest_rows_count_as_neighbours():
    """Two synthetic rows tie on the left; the second is nearest on the right."""
    synthetic = pl.DataFrame({"a": ["x", "x"] * 20, "b": [1.0, 2.0] * 20})
    train = pl.DataFrame({"a": ["x"] * 10, "b": [2.0] * 10})
    (first, every), _, _ = linked(train, synthetic, train, left=("a",), right=("b",))
    assert (first.train.successes, every.train.successes) == (0, 10)
    assert every.baseline.successes == pytest.approx(10)  # all 40 rows are nearest on the left


def test_a_copy_links_and_a_fresh_sample_does_not():
    train, control = people(1, 600), people(2, 600)
    (_, copied), _, _ = linked(train, train, control)
    assert copied.risk > 0.95
    (first, fresh), _, _ = linked(train, people(3, 600), control)
    assert first.low == fresh.low == 0


def test_chance_to_meet_is_that_of_random_sets():
    rng = np.random.default_rng(0)
    met = [bool(set(rng.permutation(30)[:4]) & set(rng.permutation(30)[:6])) for _ in range(20_000)]
    assert float(chance_to_meet(30, np.array(4), np.array(6))) == pytest.approx(
        np.mean(met), abs=0.01
    )
    assert float(chance_to_meet(30, np.array(20), np.array(11))) == 1
    assert float(chance_to_meet(30, np.array(1), np.array(1))) == pytest.approx(1 / 30)
