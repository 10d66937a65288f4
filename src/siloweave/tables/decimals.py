"""Decimals of numbers: how many a column has, in text or in doubles, and numbers with that many."""

from __future__ import annotations

import re
from collections.abc import Set

import numpy as np
import polars as pl
from numpy.typing import NDArray

MOST_DECIMALS = 15
"""Decimals of a number, at most: a double holds no more digits."""


def padded_decimals(texts: pl.Series, decimal: str) -> int:
    """Return the fewest decimals of a number, counting zeros at its end.

    Numbers with a power, such as 1e-3, do not count.
    """
    is_plain = texts.str.contains(r"^[^a-zA-Z]+$")
    tail_pattern = rf"{re.escape(decimal)}(\d+)\s*$"
    tails = texts.filter(is_plain).str.extract(tail_pattern).fill_null("")
    counts = tails.str.len_chars()
    zero_counts = counts.filter(tails.str.ends_with("0"))
    return fewest_decimals({*counts.unique()}, {*zero_counts.unique()})


def fewest_decimals(counts: Set[int], zeros: Set[int]) -> int:
    """Return the fewest decimals that any number of a column is written with.

    Whole numbers without a mark are passed over where two or more are padded: 80 beside 80.50.

    Args:
        counts: How many decimals numbers have.
        zeros: How many those have that end with a zero.
    """
    fewest = min(counts, default=0)
    fewest_with_mark = min(counts - {0}, default=0)
    # One decimal that is 0, as in 80.0, is how programs write a whole number in a double.
    if fewest_with_mark in zeros - {1}:
        fewest = fewest_with_mark
    return min(MOST_DECIMALS, fewest)


def decimals_of(numbers: NDArray[np.float64], most: int, bits: int) -> int | None:
    """Return the fewest decimals, up to a limit, that write all numbers of so many bits exactly.

    None if they have more.
    """
    largest = float(np.abs(numbers).max(initial=0.0))
    for decimals in range(most + 1):
        # Beyond so many bits, a double has no place for the last decimal.
        if not largest * 10.0**decimals < 2.0**bits:
            break
        if (np.round(numbers, decimals) == numbers).all():
            return decimals
    return None


def with_zeros(series: pl.Series, digits: int) -> pl.Series:
    """Write values as text; numbers have at least so many decimals, and no further zeros."""
    if not series.dtype.is_numeric():
        return series.cast(pl.String)
    texts = series.cast(pl.String).str.replace("^-0.0$", "0.0")

    # 12.50 has the decimal 5; zeros are added behind it until there are as many as are asked for.
    decimals = texts.str.extract(r"\.(\d*?)0*$").fill_null("")
    decimals = decimals.str.pad_end(digits, "0")
    whole_parts = texts.str.extract(r"^(-?\d+)(?:\.\d+)?$")
    plain = whole_parts + decimals.str.replace("^(.)", ".$1")

    # Numbers with a power, such as 9e-6 and 1e16, are written out where that says the same.
    powers = texts.filter(plain.is_null()).drop_nulls()
    written_out = {}
    for power in powers:
        fixed = f"{float(power):.{digits}f}"
        if float(fixed) == float(power):
            written_out[power] = fixed
    return plain.fill_null(texts.replace(written_out))
