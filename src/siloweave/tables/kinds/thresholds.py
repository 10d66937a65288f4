"""Numbers of rows, values and digits at which a rule of `rules` changes its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

PROBE = 60
"""Distinct texts that are enough to rule out most readings."""
ENOUGH = 20
"""Rows, or different values, from which on shares of distinct values mean something."""
NEARLY_ALL = 0.95
"""The share of distinct values with which a column is nearly unique."""
STRAY = 0.02
"""The share of rows that may hold something else in a column of numbers."""
FEW_CODES = 40
"""Different numbers that codes have at most, if the column's name does not call them so."""
MOST_CODES = 256
"""Different numbers that codes have at most, if the column's name calls them so."""
LONG = 4
"""Digits that identifiers have which are no running numbers."""
FEW_ROWS_EACH = 0.1
"""The share of distinct values with which each has few rows, as people have visits."""
FLOAT_BITS = 53
"""Binary digits of the whole numbers that a float holds exactly."""
HUGE = 2**62
"""The size from which on a schema has no bounds."""


def nearly_all(texts: Sequence[str], test: Callable[[str], Any]) -> bool:
    """Return whether a test holds for nearly all texts.

    Example:
        >>> nearly_all(["1"] * 19 + ["x"], str.isdigit)
        True
    """
    exceptions = len(texts) - ceil(NEARLY_ALL * len(texts))
    for text in texts:
        if test(text):
            continue
        exceptions -= 1
        if exceptions < 0:
            return False
    return True
