from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siloweave.errors import InputError, SchemaError
from siloweave.statistics.marginals import (
    closure,
    cramers_v,
    marginal,
    random_workload,
    sparse_marginal,
)
from siloweave.tables import Codes, Domain

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))


def some(rows, seed=0):
    random = np.random.default_rng(seed)
    return Codes(DOMAIN, tuple(random.integers(0, size, rows) for size in DOMAIN.sizes))


@given(st.integers(0, 30), st.integers(0, 9), st.permutations(("a", "b", "c")), st.integers(0, 3))
def test_marginal_counts_every_row_once(rows, seed, order, size):
    codes, clique = some(rows, seed), tuple(order[:size])
    expected = np.zeros(DOMAIN.shape(clique), dtype=int)
    for row in range(rows):
        expected[tuple(codes.column(name)[row] for name in clique)] += 1
    counts = marginal(codes, clique)
    assert counts.dtype == np.int64
    assert counts.shape == DOMAIN.shape(clique)
    assert (counts == expected).all()
    cells, positive = sparse_marginal(codes, clique)
    assert (cells.dtype, positive.dtype) == (np.int64, np.int64)
    assert cells.tolist() == np.flatnonzero(counts).tolist()
    assert positive.tolist() == counts.ravel()[cells].tolist()


def test_sparse_marginal_of_a_domain_too_large_to_hold():
    names = tuple(f"x{i}" for i in range(7))
    codes = Codes(Domain(names, (200,) * 7), tuple(np.array([199, 0, 199]) for _ in names))
    cells, counts = sparse_marginal(codes, names)
    assert cells.tolist() == [0, 200**7 - 1]
    assert counts.tolist() == [1, 2]


def test_unknown_attribute():
    with pytest.raises(SchemaError, match="'z'"):
        marginal(some(1), ("a", "z"))


def test_closure_order():
    domain = Domain(("z", "y", "x"), (2, 2, 2))
    cliques = [("z", "y"), ("y", "x"), ("z", "y")]
    assert closure(cliques, domain) == [("z",), ("y",), ("x",), ("z", "y"), ("y", "x")]
    assert closure([("x", "z")], domain) == [("z",), ("x",), ("z", "x")]
    assert closure([], domain) == closure([()], domain) == []
    triple = closure([("x", "y", "z")], domain)
    assert triple == [*closure([("z", "y"), ("z", "x"), ("y", "x")], domain), ("z", "y", "x")]
    with pytest.raises(SchemaError, match="'w'"):
        closure([("z", "w")], domain)


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 40), st.integers(0, 5))
def test_random_workload(width, degree, count, seed):
    domain = Domain(tuple(f"a{i}" for i in range(width)), (2,) * width)
    if degree > width:
        with pytest.raises(InputError, match="degree"):
            random_workload(domain, degree, count, seed=seed)
        return
    everything = list(combinations(domain.names, degree))
    drawn = random_workload(domain, degree, count, seed=seed)
    assert len(drawn) == min(count, len(everything))
    assert drawn == [clique for clique in everything if clique in set(drawn)]
    assert drawn == random_workload(domain, degree, count, seed=seed)


def test_random_workload_is_uniform_and_needs_no_list_of_all():
    domain = Domain(tuple(f"a{i}" for i in range(6)), (2,) * 6)
    seen = [c for seed in range(2000) for c in random_workload(domain, 2, 3, seed=seed)]
    counts = np.array([seen.count(clique) for clique in combinations(domain.names, 2)])
    assert ((counts - 400) ** 2 / 400).sum() < 36.1  # chi-square, 14 degrees, 0.1 %
    wide = Domain(tuple(f"a{i}" for i in range(5000)), (2,) * 5000)
    assert len(random_workload(wide, 5, 4, seed=0)) == 4
    with pytest.raises(InputError, match="count=0"):
        random_workload(domain, 2, 0, seed=0)


def columns_of(*columns):
    names = tuple(f"x{i}" for i in range(len(columns)))
    arrays = tuple(np.asarray(column) for column in columns)
    return Codes(Domain(names, tuple(int(array.max()) + 3 for array in arrays)), arrays)


def test_association_at_its_extremes():
    random = np.random.default_rng(0)
    a, b = random.integers(0, 4, 5000), random.integers(0, 3, 5000)
    matrix = cramers_v(columns_of(a, (a * 3 + 1) % 4, b, np.zeros(5000, int)))
    assert (matrix == matrix.T).all()
    assert np.diag(matrix).tolist() == [1, 1, 1, 1]
    assert matrix[0, 1] == pytest.approx(1)
    assert matrix[0, 2] < 0.03
    assert matrix[0, 3] == 0


def test_the_bias_correction_matters():
    random = np.random.default_rng(1)
    values = [cramers_v(columns_of(*random.integers(0, 10, (2, 60))))[0, 1] for _ in range(50)]
    assert np.mean(values) < 0.2  # uncorrected: about 0.4


def test_cramers_v_by_hand():
    # counts [[30, 10], [10, 30]]: chi-square 20, n 80, phi2 0.25 - 1/79, size 2 - 1/79
    a = np.repeat([0, 0, 1, 1], [30, 10, 10, 30])
    b = np.repeat([0, 1, 0, 1], [30, 10, 10, 30])
    expected = np.sqrt((0.25 - 1 / 79) / (1 - 1 / 79))
    assert cramers_v(columns_of(a, b))[0, 1] == pytest.approx(expected)


def test_association_of_few_rows():
    assert cramers_v(columns_of([0], [1])).tolist() == [[1, 0], [0, 1]]
    assert np.isfinite(cramers_v(columns_of([0, 1], [1, 0]))).all()
