"""How strongly each pair of attributes goes together, from codes: exact, not private."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from siloweave.statistics.marginals import marginal
from siloweave.tables.codes import Codes

__all__ = ["cramers_v", "mutual_information"]

Counts = NDArray[np.int64] | NDArray[np.float64]


def cramers_v(codes: Codes) -> NDArray[np.float64]:
    """Return the bias-corrected Cramer's V of every pair of attributes.

    Bergsma, W. (2013), "A bias-correction for Cramer's V and Tschuprow's T", Journal of the Korean
    Statistical Society 42(3).

    Args:
        codes: The rows.

    Returns:
        Symmetric float64 matrix in domain order, 0 (independent) to 1; the diagonal is 1. A pair
        with an attribute of one value only has 0.

    Example:
        >>> from siloweave.tables.codes import Domain
        >>> same = np.tile([0, 1], 50)
        >>> cramers_v(Codes(Domain(("a", "b"), (2, 2)), (same, same))).round(2).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    return _pairs(codes, _v)


def mutual_information(codes: Codes) -> NDArray[np.float64]:
    """Return the normalised mutual information of every pair of attributes.

    Args:
        codes: The rows.

    Returns:
        Symmetric float64 matrix in domain order: mutual information over the geometric mean of
        both entropies, 0 (independent) to 1; the diagonal is 1. A pair with an attribute of one
        value only has 0.

    Example:
        >>> from siloweave.tables.codes import Domain
        >>> a, b = np.tile([0, 1], 50), np.tile([0, 0, 1, 1], 25)
        >>> float(mutual_information(Codes(Domain(("a", "b"), (2, 2)), (a, b)))[0, 1])
        0.0
    """
    return _pairs(codes, _nmi)


def _pairs(codes: Codes, measure: Callable[[Counts], float]) -> NDArray[np.float64]:
    width = len(codes.domain.names)
    matrix = np.eye(width)
    for i, j in combinations(range(width), 2):
        counts = marginal(codes, (codes.domain.names[i], codes.domain.names[j]))
        kept = counts[counts.any(axis=1)][:, counts.any(axis=0)]
        matrix[i, j] = matrix[j, i] = measure(kept) if min(kept.shape) > 1 else 0.0
    return matrix


def _v(counts: Counts) -> float:
    n = float(counts.sum())
    if n < 2:
        return 0.0
    rows, columns = counts.shape
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / n
    phi = float(((counts - expected) ** 2 / expected).sum()) / n
    phi = max(0.0, phi - (rows - 1) * (columns - 1) / (n - 1))
    rows_left = rows - (rows - 1) ** 2 / (n - 1)
    columns_left = columns - (columns - 1) ** 2 / (n - 1)
    left = min(rows_left, columns_left) - 1
    return min(1.0, float(np.sqrt(phi / left))) if left > 0 else 0.0


def _nmi(counts: Counts) -> float:
    from scipy.special import entr

    joint = counts / counts.sum()
    rows, columns = (float(entr(joint.sum(axis=axis)).sum()) for axis in (1, 0))
    information = rows + columns - float(entr(joint).sum())
    scale = float(np.sqrt(rows * columns))
    return min(1.0, max(0.0, information / scale)) if scale > 0 else 0.0
