"""Names of the kinds of NumPy arrays that signatures speak of, and ranks of numbers."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
"""Numbers."""
Ints = NDArray[np.int64]
"""Codes, counts or places of rows."""
Bools = NDArray[np.bool_]
"""Which rows, or cells, have something."""
Matrix = NDArray[np.float32]
"""Feature vectors, one per row."""


def standard_ranks(values: Floats) -> Floats:
    """Return the ranks of values, with mean 0 and standard deviation 1; equal ones in order."""
    ranks = np.empty(len(values))
    order = np.argsort(values, kind="stable")
    ranks[order] = np.arange(len(values))
    standard: Floats = (ranks - ranks.mean()) / ranks.std()
    return standard
