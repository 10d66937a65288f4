from itertools import permutations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import siloweave as sw
from siloweave.datasets import adult
from siloweave.errors import DataError, InputError
from siloweave.tables.split import (
    contiguous,
    correlations,
    cross_correlation,
    drawn_by_importance,
    matched_correlation,
)

WAYS = ("contiguous", "permuted", "importance", "correlation")


@pytest.fixture(scope="module")
def table():
    return adult().take(range(300))


def grouped(per_group=4, groups=2, rows=400):
    """Columns that go together within groups and not across."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(groups, rows))
    columns = {
        f"c{k}{g}": common[g] + 0.3 * rng.normal(size=rows)
        for k in range(per_group)
        for g in range(groups)
    }
    return sw.read(pl.DataFrame(columns))


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("parties", [1, 2, 4, 8, "each"])
def test_every_column_is_at_one_party_with_all_its_rows(table, by, parties):
    parts = sw.split_columns(table, parties, by=by, seed=3)
    assert len(parts) == (len(table.names) if parties == "each" else parties)
    names = [name for part in parts for name in part.names]
    assert sorted(names) == sorted(table.names)
    for part in parts:
        assert part.num_rows == table.num_rows
        assert [*part.names] == [name for name in table.names if name in part.names]
        for name in part.names:
            assert part.values(name).tolist() == table.values(name).tolist()


@pytest.mark.parametrize("by", WAYS)
def test_the_same_seed_gives_the_same_split(table, by):
    table = table.select(table.names[:8])
    first, again, other = (
        [part.names for part in sw.split_columns(table, 3, by=by, seed=seed, alpha=5.0)]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert (first == other) == (by == "contiguous")


def test_contiguous_parts_leave_the_remainder_to_the_last(table):
    assert [len(one) for one in contiguous(15, 4)] == [3, 3, 3, 6]
    parts = sw.split_columns(table, 4)
    assert [name for part in parts for name in part.names] == [*table.names]


def test_permuted_takes_the_seed_of_the_paper(table):
    named = [part.names for part in sw.split_columns(table, 4, by="permuted")]
    seeded = [part.names for part in sw.split_columns(table, 4, by="permuted", seed=12343)]
    assert named == seeded
    assert [len(one) for one in named] == [3, 3, 3, 6]
    assert named != [part.names for part in sw.split_columns(table, 4)]


def test_every_party_keeps_the_ids(table):
    parts = sw.split_columns(table, 4, keep=["income", "age"])
    assert all(part.names[:2] == ("age", "income") for part in parts)
    assert [len(part.names) for part in parts] == [5, 5, 5, 6]
    assert len(sw.split_columns(table, "each", keep=["age"])) == len(table.names) - 1


@pytest.mark.parametrize(
    ("frame", "kind"),
    [("to_pandas", pd.DataFrame), ("clone", pl.DataFrame)],
    ids=["pandas", "polars"],
)
def test_frames_come_back_as_they_were(frame, kind):
    whole = getattr(pl.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.5, 1.5]}), frame)()
    parts = sw.split_columns(whole, 2)
    assert all(isinstance(part, kind) for part in parts)
    assert [list(part.columns) for part in parts] == [["a"], ["b", "c"]]


def test_a_small_alpha_is_uneven_and_a_large_one_even():
    def spread(alpha):
        sizes = [[len(p) for p in drawn_by_importance(80, 4, alpha, key=k)] for k in range(40)]
        return float(np.mean([np.max(one) for one in sizes]))

    assert spread(0.1) > 55
    assert spread(1000.0) < 28
    assert spread(1e-300) == 77, "one takes all but what the others need"


def test_importance_gives_each_party_its_share_on_average():
    sizes = np.mean(
        [[len(p) for p in drawn_by_importance(30, 3, 1.0, key=k)] for k in range(300)], 0
    )
    np.testing.assert_allclose(sizes, 10, atol=1.5)


def test_correlation_of_parties_is_that_of_the_paper():
    same, apart = np.ones((4, 4)), np.eye(4)
    halves = [np.array([0, 1]), np.array([2, 3])]
    assert cross_correlation(same, halves) == pytest.approx(0)
    blocks = np.kron(np.eye(2), np.ones((2, 2)))
    assert cross_correlation(blocks, halves) == pytest.approx(-1)
    crossed = [np.array([0, 2]), np.array([1, 3])]
    assert cross_correlation(blocks, crossed) == pytest.approx(0)
    assert cross_correlation(apart, [np.arange(4)]) == 0
    single = np.array([[1.0, -0.4], [-0.4, 1.0]])
    assert cross_correlation(single, [np.array([0]), np.array([1])]) == pytest.approx(0.4 - 1)


def test_singular_values_by_hand():
    """Between two parties of two columns: singular values 3/4 and 1/4, deviation 1/(2 sqrt 2)."""
    between = np.array([[0.5, 0.25], [0.25, 0.5]])
    matrix = np.block([[np.eye(2), between], [between.T, np.eye(2)]])
    wanted = np.std([0.75, 0.25], ddof=1) / np.sqrt(2)
    halves = [np.array([0, 1]), np.array([2, 3])]
    assert cross_correlation(matrix, halves) == pytest.approx(wanted)
    assert wanted == pytest.approx(0.25)


def test_rank_correlations_are_those_of_scipy():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 5, size=(60, 3)) + rng.normal(size=(60, 3)).round()
    found = correlations(sw.read(pl.DataFrame(numbers, schema=["a", "b", "c"])))
    np.testing.assert_allclose(found, spearmanr(numbers).statistic, atol=1e-12)


def test_constant_and_missing_columns_go_together_with_nothing_and_come_first():
    table = sw.read(pl.DataFrame({"a": [1, 1, 1], "b": [None, "y", "z"], "c": [0.0, 1.0, 2.0]}))
    found = correlations(table)
    assert found[0].tolist() == [0, 0, 0]
    assert found[1, 2] == pytest.approx(1)


def test_beta_goes_from_least_to_most():
    matrix = correlations(grouped())
    values = [
        cross_correlation(matrix, matched_correlation(matrix, 2, beta, key=0))
        for beta in (0, 0.25, 0.5, 0.75, 1)
    ]
    assert values == sorted(values)
    every = [
        cross_correlation(matrix, [np.array(order[:4]), np.array(order[4:])])
        for order in {(*sorted(o[:4]), *sorted(o[4:])) for o in permutations(range(8))}
    ]
    assert values[0] == pytest.approx(min(every))
    assert values[-1] == pytest.approx(max(every))
    for beta, value in zip((0.25, 0.5, 0.75), values[1:4], strict=True):
        wanted = (1 - beta) * values[0] + beta * values[-1]
        nearest = min(every, key=lambda one, wanted=wanted: abs(one - wanted))
        assert abs(value - wanted) <= abs(nearest - wanted) + 0.05 * (values[-1] - values[0])


def test_the_least_correlation_puts_groups_together():
    table = grouped()
    parts = sw.split_columns(table, 2, by="correlation", beta=0, seed=0)
    assert all(len({name[-1] for name in part.names}) == 1 for part in parts)
    mixed = sw.split_columns(table, 2, by="correlation", beta=1, seed=0)
    assert all(len({name[-1] for name in part.names}) == 2 for part in mixed)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"by": "hand"}, InputError, "by='hand' is unknown; use one of contiguous"),
        ({"parties": 0}, InputError, "parties=0 must be a whole number, 1 or more"),
        ({"parties": "all"}, InputError, "parties='all' must be a whole number"),
        ({"parties": 2.5, "by": "permuted"}, InputError, "parties=2.5 must be a whole number"),
        ({"keep": "age"}, InputError, "keep='age' must be a list of columns"),
        ({"parties": 16}, DataError, "15 columns cannot be spread over 16 parties"),
        ({"parties": 15, "keep": ["age"]}, DataError, "14 columns cannot be spread over 15"),
        ({"by": "permuted", "parties": 99}, DataError, "15 columns cannot be spread over 99"),
        ({"by": "importance"}, InputError, "draws at random; give seed="),
        ({"by": "correlation"}, InputError, "draws at random; give seed="),
        ({"by": "importance", "seed": 0, "alpha": 0}, InputError, "alpha=0 must be a number in"),
        ({"by": "importance", "seed": 0, "alpha": float("nan")}, InputError, "alpha=nan"),
        ({"by": "correlation", "seed": 0, "beta": 1.5}, InputError, "beta=1.5 must be a number in"),
        ({"by": "correlation", "seed": 0, "parties": 16}, DataError, "15 columns cannot be"),
        ({"keep": ["nobody"]}, DataError, "keep names 'nobody'; the columns are age"),
    ],
    ids=str,
)
def test_bad_input_names_what_is_wrong(table, arguments, kind, words):
    with pytest.raises(kind, match=words):
        sw.split_columns(table, **({"parties": 2} | arguments))
