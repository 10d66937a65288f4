import numpy as np
import pytest

from siloweave.errors import InputError, SchemaError
from siloweave.evaluate import workload
from siloweave.evaluate.workload import (
    WorkloadError,
    negative_log_likelihood,
    tvd,
    workload_error,
    workload_errors,
)
from siloweave.models.mrf import MRF
from siloweave.tables import Codes, Domain

DOMAIN = Domain(("a", "b", "c"), (3, 4, 2))


def rows(seed, count=500, domain=DOMAIN):
    rng = np.random.default_rng(seed)
    return Codes(domain, tuple(rng.integers(size, size=count) for size in domain.sizes))


class Exact:
    """A model that is the table itself."""

    def __init__(self, codes, scale=1.0):
        self.codes, self.scale = codes, scale

    def marginal(self, clique):
        shape = self.codes.domain.shape(clique)
        counts = np.zeros(shape)
        np.add.at(counts, tuple(self.codes.column(name) for name in clique), self.scale)
        return counts


class Density:
    def __init__(self, values):
        self.values = np.asarray(values, dtype=float)

    def log_density(self, codes):
        return self.values


def by_hand(real, synthetic, clique):
    """L1 distance by counting tuples."""
    total = 0.0
    tables = []
    for codes in (real, synthetic):
        cells = list(zip(*(codes.column(name).tolist() for name in clique), strict=True))
        tables.append({cell: cells.count(cell) / len(cells) for cell in set(cells)})
    for cell in set(tables[0]) | set(tables[1]):
        total += abs(tables[0].get(cell, 0) - tables[1].get(cell, 0))
    return total


def test_workload_error_is_mean_l1_of_normalised_marginals():
    real, synthetic = rows(0), rows(1, 300)
    cliques = [("a",), ("a", "b"), ("b", "c"), ("a", "b", "c")]
    expected = np.mean([by_hand(real, synthetic, clique) for clique in cliques])
    assert workload_error(real, synthetic, cliques) == pytest.approx(expected)


def test_order_of_attributes_does_not_matter():
    real, synthetic = rows(0), rows(1)
    assert workload_error(real, synthetic, [("b", "a")]) == workload_error(
        real, synthetic, [("a", "b")]
    )


def test_range_is_zero_to_two():
    real = rows(0)
    other = Codes(DOMAIN, tuple(np.full(9, size - 1) for size in DOMAIN.sizes))
    first = Codes(DOMAIN, tuple(np.zeros(5, dtype=int) for _ in DOMAIN.sizes))
    assert workload_error(real, real, [("a", "b")]) == 0
    assert workload_error(first, other, [("a",), ("a", "b", "c")]) == 2


@pytest.mark.parametrize("scale", [1.0, 0.001, 7.5])
def test_model_counts_like_its_table_at_any_total(scale):
    real, synthetic = rows(0), rows(1)
    cliques = [("a", "b"), ("c",)]
    assert workload_error(real, Exact(synthetic, scale), cliques) == pytest.approx(
        workload_error(real, synthetic, cliques)
    )


def test_both_readings_are_named():
    real, synthetic = rows(0), rows(1)
    found = workload_errors(real, synthetic, [("a", "b"), ("b", "c")])
    below = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c")]
    assert isinstance(found, WorkloadError)
    assert found.closure == pytest.approx(workload_error(real, synthetic, below))
    assert found.queries == pytest.approx(workload_error(real, synthetic, below[3:]))
    assert found.queries > found.closure


def test_sparse_and_dense_paths_agree(monkeypatch):
    real, synthetic = rows(0, 60), rows(1, 45)
    cliques = [("a", "b", "c"), ("a",)]
    dense = workload_error(real, synthetic, cliques)
    monkeypatch.setattr(workload, "SPARSE_FROM", 0)
    assert workload_error(real, synthetic, cliques) == pytest.approx(dense)


def test_huge_clique_takes_memory_of_rows_only():
    domain = Domain(tuple("abcdef"), (1000,) * 6)
    assert 0 <= workload_error(rows(0, 50, domain), rows(1, 50, domain), [tuple("abcdef")]) <= 2


def test_tvd_is_half_the_error_and_follows_its_key():
    real, synthetic = rows(0), rows(1)
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    assert tvd(real, synthetic, 2, key=0) == pytest.approx(
        workload_error(real, synthetic, pairs) / 2
    )
    one = [tvd(real, synthetic, 2, max_cliques=1, key=key) for key in range(12)]
    assert one == [tvd(real, synthetic, 2, max_cliques=1, key=key) for key in range(12)]
    assert len(set(one)) > 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda r: workload_error(r, r.take(np.arange(0)), [("a",)]), "synthetic has 0 rows"),
        (lambda r: workload_error(r.take(np.arange(0)), r, [("a",)]), "real has 0 rows"),
        (lambda r: workload_error(r, r, []), "cliques is empty"),
        (lambda r: workload_errors(r, r, []), "workload is empty"),
        (lambda r: tvd(r, r, 4, key=0), "degree=4"),
        (
            lambda r: workload_error(r, rows(0, 9, Domain(("a", "b", "c"), (3, 5, 2))), [("a",)]),
            "different domains, in b",
        ),
        (lambda r: workload_error(r, Exact(r, 0.0), [("a",)]), "sums to 0.0"),
        (
            lambda r: workload_error(r, Exact(rows(0, 9, Domain(("a",), (5,)))), [("a",)]),
            "shape",
        ),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(InputError, match=said):
        call(rows(0))


def test_unknown_attribute_is_named():
    with pytest.raises(SchemaError, match="'z'"):
        workload_error(rows(0), rows(1), [("z",)])


def test_likelihood_is_mean_nats():
    codes = rows(0, 4)
    assert negative_log_likelihood(Density([-1, -2, -3, -4]), codes) == 2.5


def test_impossible_rows_are_infinite_and_said():
    with pytest.warns(UserWarning, match=r"1 of 4 rows have probability 0.*2\.0000 nats"):
        assert negative_log_likelihood(Density([-1, -2, -3, -np.inf]), rows(0, 4)) == np.inf
    with pytest.warns(UserWarning, match="undefined"):
        negative_log_likelihood(Density([-np.inf]), rows(0, 1))


@pytest.mark.parametrize("values", [[np.nan, -1], [0.5, -1], [-1]])
def test_damaged_density_is_refused(values):
    with pytest.raises(InputError, match="log_density gave"):
        negative_log_likelihood(Density(values), rows(0, 2))


def test_no_rows_no_likelihood():
    with pytest.raises(InputError, match="0 rows"):
        negative_log_likelihood(Density([]), rows(0, 0))


def test_fitted_models_fit_both_protocols():
    uniform = MRF.uniform(DOMAIN, 500.0)
    even = Codes(DOMAIN, tuple(c.ravel() for c in np.indices(DOMAIN.sizes)))
    assert workload_error(even, uniform, [("a", "b"), ("c",)]) == pytest.approx(0, abs=1e-9)
    assert negative_log_likelihood(uniform, rows(0)) == pytest.approx(np.log(3 * 4 * 2))
