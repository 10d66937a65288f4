"""Names of the kinds of NumPy arrays that signatures speak of."""

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
