import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from siloweave.errors import DataError, SchemaError
from siloweave.models.mrf import MRF
from siloweave.statistics.marginals import marginal
from siloweave.tables.keys import fold_in
from tests.models.small import domain_of, joint, models, random_model, summed

SURE = 1e-6  # a right model is rejected once in a million keys; the keys are fixed
DOMAIN = domain_of(2, 3, 2)
MODEL = random_model(DOMAIN, [("a", "b"), ("b", "c")], 4, total=50.0)


def p_value(counts, expected):
    """Pearson's chi-squared test, cells that cannot be counted apart."""
    counts, expected = np.ravel(counts), np.ravel(expected)
    assert not counts[expected == 0].any()
    kept = expected > 0
    statistic = float(((counts - expected)[kept] ** 2 / expected[kept]).sum())
    return float(chi2.sf(statistic, kept.sum() - 1))


@given(models(), st.integers(0, 60), st.integers(0, 99))
def test_counts_are_rounded_expectations_given_the_separator(model, rows, key):
    drawn = model.sample(rows, key=key)
    assert drawn.num_rows == rows
    assert drawn.domain == model.domain
    for clique, separator in zip(model.tree.cliques, model.tree.separators, strict=True):
        counts = marginal(drawn, clique)
        gone = tuple(i for i, a in enumerate(clique) if a not in separator)
        expected = model.marginal(clique)
        above = expected.sum(axis=gone, keepdims=True)
        conditional = np.divide(expected, above, out=np.zeros_like(expected), where=above > 0)
        expected = counts.sum(axis=gone, keepdims=True) * conditional
        assert np.abs(counts - expected).max() < 1 + 1e-6


def independent_rows(model, number):
    """One row from each of many samples: rows of one sample are not independent."""
    cells = [model.sample(3, key=fold_in(99, i)).take([1]) for i in range(number)]
    return np.bincount([int(c.flat(DOMAIN.names)[0]) for c in cells], minlength=DOMAIN.size())


@pytest.fixture(scope="module")
def row_counts():
    return independent_rows(MODEL, 2500)


def test_a_row_by_itself_has_the_distribution_of_the_model(row_counts):
    assert p_value(row_counts, joint(MODEL) * 2500) > SURE


def test_the_test_of_the_distribution_rejects_another_model(row_counts):
    independent = random_model(DOMAIN, [("a",), ("b",), ("c",)], 4)
    flatter = MRF(DOMAIN, {c: 0.8 * t for c, t in MODEL.potentials.items()}, 50.0)
    for wrong in (independent, flatter, MRF.uniform(DOMAIN, 50.0)):
        assert p_value(row_counts, joint(wrong) * 2500) < SURE


def test_rows_come_in_random_order():
    codes = MODEL.sample(4000, key=3)
    for name in DOMAIN.names:
        share = MODEL.marginal((name,)) / 50.0
        head = np.bincount(codes.column(name)[:2000], minlength=len(share))
        assert p_value(head, 2000 * share) > SURE


def test_counts_vary_far_less_than_multinomial_ones():
    p = summed(joint(MODEL), DOMAIN, ("a", "b"))
    counts = marginal(MODEL.sample(10_000, key=8), ("a", "b"))
    assert np.abs(counts - 10_000 * p).max() < 3
    assert (10_000 * p * (1 - p)).min() ** 0.5 > 10


def test_keys_reproduce_and_differ():
    columns = [np.stack(MODEL.sample(500, key=key).columns) for key in (1, 1, 2)]
    np.testing.assert_array_equal(columns[0], columns[1])
    assert (columns[0] != columns[2]).any()


def test_how_many_rows():
    assert MODEL.sample(key=0).num_rows == 50
    assert MODEL.sample(0, key=0).num_rows == 0
    assert MODEL.sample(1, key=0).num_rows == 1
    with pytest.raises(DataError, match="num_rows is -1"):
        MODEL.sample(-1, key=0)


def test_impossible_cells_are_never_drawn():
    table = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    model = MRF(domain_of(2, 2, 2), {("a", "b"): table, ("b", "c"): table}, 9.0)
    codes = model.sample(999, key=1)
    np.testing.assert_array_equal(codes.column("a"), codes.column("c"))


def conditional(model, **known):
    """Joint table of the free attributes, given the known ones, by brute force."""
    where = tuple(known.get(a, slice(None)) for a in model.domain.names)
    table = joint(model)[where]
    return table / table.sum()


@pytest.mark.parametrize(
    "known", [{"b": 1}, {"a": 0, "c": 1}, {"a": 1}, {"c": 0}, {"b": 2, "c": 0}]
)
def test_completed_rows_have_the_exact_conditional(known):
    rows = 2000
    given_codes = {a: np.full(rows, v) for a, v in known.items()}
    codes = MODEL.sample_given(given_codes, key=5)
    free = tuple(a for a in DOMAIN.names if a not in known)
    for name, value in known.items():
        assert (codes.column(name) == value).all()
    expected = rows * conditional(MODEL, **known)
    assert p_value(marginal(codes, free), expected) > SURE
    for axis, name in enumerate(free):
        gone = tuple(i for i in range(len(free)) if i != axis)
        assert np.abs(marginal(codes, (name,)) - expected.sum(axis=gone)).max() < 4


def test_one_completed_row_at_a_time_follows_the_conditional():
    """Both patterns are asked at once, so that a mix-up of patterns would show."""
    known = {"b": np.array([0, 2])}
    drawn = [MODEL.sample_given(known, key=fold_in(7, i)) for i in range(800)]
    right, wrong = conditional(MODEL, b=0), conditional(MODEL, b=2)
    cells = [int(codes.flat(("a", "c"))[0]) for codes in drawn]
    counts = np.bincount(cells, minlength=4)
    assert p_value(counts, 800 * right) > SURE
    assert p_value(counts, 800 * wrong) < SURE


def test_completed_rows_stay_in_their_place():
    known = {"c": np.array([1, 0, 0, 1, 0]), "a": np.array([0, 1, 0, 1, 1])}
    codes = MODEL.sample_given(known, key=0)
    for name, values in known.items():
        np.testing.assert_array_equal(codes.column(name), values)
    everything = known | {"b": np.array([2, 1, 0, 0, 1])}
    same = MODEL.sample_given(everything, key=0)
    np.testing.assert_array_equal(same.column("b"), everything["b"])


def test_what_cannot_be_completed_is_refused():
    one = np.array([1])
    with pytest.raises(DataError, match="known is empty"):
        MODEL.sample_given({}, key=0)
    with pytest.raises(SchemaError, match="'z'"):
        MODEL.sample_given({"z": one}, key=0)
    with pytest.raises(DataError, match="outside 0"):
        MODEL.sample_given({"a": np.array([2])}, key=0)
    with pytest.raises(DataError, match="different lengths"):
        MODEL.sample_given({"a": one, "b": np.array([1, 2])}, key=0)
    table = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    model = MRF(domain_of(2, 2, 2), {("a", "b"): table}, 9.0)
    with pytest.raises(DataError, match="probability 0"):
        model.sample_given({"a": one, "b": np.array([0])}, key=0)
