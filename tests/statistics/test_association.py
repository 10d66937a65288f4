import numpy as np
import pytest

from siloweave.statistics import cramers_v
from siloweave.tables import Codes, Domain


def codes(*columns):
    names = tuple(f"x{i}" for i in range(len(columns)))
    arrays = tuple(np.asarray(column) for column in columns)
    return Codes(Domain(names, tuple(int(array.max()) + 3 for array in arrays)), arrays)


def test_extremes():
    random = np.random.default_rng(0)
    a, b = random.integers(0, 4, 5000), random.integers(0, 3, 5000)
    matrix = cramers_v(codes(a, (a * 3 + 1) % 4, b, np.zeros(5000, int)))
    assert (matrix == matrix.T).all()
    assert np.diag(matrix).tolist() == [1, 1, 1, 1]
    assert matrix[0, 1] == pytest.approx(1)
    assert matrix[0, 2] < 0.03
    assert matrix[0, 3] == 0


def test_the_bias_correction_matters():
    random = np.random.default_rng(1)
    values = [cramers_v(codes(*random.integers(0, 10, (2, 60))))[0, 1] for _ in range(50)]
    assert np.mean(values) < 0.2  # uncorrected: about 0.4


def test_cramers_v_by_hand():
    # counts [[30, 10], [10, 30]]: chi-square 20, n 80, phi2 0.25 - 1/79, size 2 - 1/79
    a = np.repeat([0, 0, 1, 1], [30, 10, 10, 30])
    b = np.repeat([0, 1, 0, 1], [30, 10, 10, 30])
    expected = np.sqrt((0.25 - 1 / 79) / (1 - 1 / 79))
    assert cramers_v(codes(a, b))[0, 1] == pytest.approx(expected)


def test_few_rows():
    assert cramers_v(codes([0], [1])).tolist() == [[1, 0], [0, 1]]
    assert np.isfinite(cramers_v(codes([0, 1], [1, 0]))).all()
