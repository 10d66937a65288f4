"""Decimals of numbers: how many a column has, in text or in doubles, and numbers with that many."""

from __future__ import annotations

import re
from collections.abc import Set
from math import log

import numpy as np
import polars as pl
from numpy.typing import NDArray

MOST_DECIMALS = 15
"""Decimals of a number, at most: a double holds no more digits."""
ERROR = 2.0**-46
"""Sums and products of a column's numbers are off by this share of the largest, at most."""

# What is left of numbers that cancel, such as .1 + .2 - .3, is this share of the largest.
_REST = 2.0**-50
# A number is off by no more than this share of itself: 1e-6 beside 1e9 is no error.
_OWN_ERROR = 2.0**-33
# Numbers of any decimals are within an error of one with so many with this chance, at most.
_CHANCE = 2.0**-8
# How unlikely chance must be for all of them: minus the logarithm of its probability.
_EVIDENCE = 20.0


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


def decimals_but_errors(numbers: NDArray[np.float64]) -> int | None:
    """Return the fewest decimals that write all numbers but for rounding errors.

    Doubles have no 0.3, and 0.1 + 0.2 is 0.30000000000000004. None if numbers have more decimals,
    or are too few to show it.
    """
    sizes = np.abs(numbers)
    largest = float(sizes.max(initial=0.0))
    for decimals in range(MOST_DECIMALS + 1):
        # Between two numbers with so many decimals, this share is within an error of either.
        chance = 2.0 * ERROR * largest * 10.0**decimals
        if not 0.0 < chance <= _CHANCE:
            break
        rounded = np.round(numbers, decimals)
        error = np.abs(rounded - numbers)
        is_rest = (rounded == 0.0) & (sizes <= _REST * largest)
        is_error = (error <= ERROR * largest) & (error <= _OWN_ERROR * sizes)
        if (is_error | is_rest).all():
            evidence = -len(numbers) * log(chance)
            return decimals if evidence > _EVIDENCE else None
    return None


def rounded_outwards(low: float, high: float, decimals: int) -> tuple[float, float]:
    """Round bounds to decimals, so that both stay beyond the numbers between them."""
    unit = 10.0**decimals
    rounded_low = round(low, decimals)
    if rounded_low > low:
        rounded_low = round(np.floor(low * unit).item() / unit, decimals)
    rounded_high = round(high, decimals)
    if rounded_high < high:
        rounded_high = round(np.ceil(high * unit).item() / unit, decimals)
    return rounded_low, rounded_high


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
