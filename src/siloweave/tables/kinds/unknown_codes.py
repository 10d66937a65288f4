"""Codes of a missing value among numbers, such as 998 and 999, -99, or -7, -8 and -9."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.kinds.patterns import UNKNOWN_CODE

# Codes of a missing value in one column, at each end.
_MOST_UNKNOWN = 5
# So many different numbers stand beside codes of a missing value.
_FEWEST = 3
# Codes are so many times as far from other numbers as these mostly are from each other.
_APART = 3
# A gap is judged by so many numbers below it.
_NEIGHBOURS = 9


def codes_in_words(numbers: Floats, *, are_categories: bool) -> str:
    """Describe values that look like codes for "missing", such as 998 and 999; empty if none do.

    Args:
        numbers: A column's, without missing values.
        are_categories: Whether the column's numbers are categories, which have no bounds.
    """
    distinct, counts = np.unique(numbers, return_counts=True)
    num_low = _num_low_codes(distinct, counts)
    num_high = num_high_codes(distinct[num_low:], counts[num_low:])
    low_codes = distinct[:num_low][::-1]
    high_codes = distinct[len(distinct) - num_high :]
    codes = [f"{code:.10g}" for code in (*low_codes, *high_codes)]
    if not codes:
        return ""

    *first_codes, last_code = codes
    listed_codes = last_code
    it = "it"
    stands = "it stands"
    if first_codes:
        listed_codes = f"{', '.join(first_codes)} and {last_code}"
        it = "them"
        stands = "they stand"
    correct = "correct the bounds"
    if are_categories:
        correct = f"take {it} out of the categories"
    return (
        f"; {listed_codes}, far from all others: list {it} in missing_values if {stands} for a "
        f"missing value, and {correct}"
    )


def _num_low_codes(distinct: NDArray[Any], counts: Ints) -> int:
    """Count the smallest different numbers that look like codes, such as -99, or -8 and -9.

    Below numbers of which none is negative they need not lie as far away.
    """
    num_negative = int((distinct < 0).sum())
    has_both = 0 < num_negative < len(distinct)
    if has_both:
        # -7, -8 and -9 are refusals in surveys, wherever the other numbers are.
        are_refusals = {*distinct[:num_negative]} <= {-7.0, -8.0, -9.0}
        if are_refusals and counts[0] > 2:
            return num_negative

    most_codes = min(_MOST_UNKNOWN, len(distinct) - _FEWEST)
    for num_codes in range(most_codes, 0, -1):
        # A code is of several rows: one or two may be typing errors.
        if counts[:num_codes].min() <= 2:
            continue
        codes = distinct[:num_codes]
        rest = distinct[num_codes:]
        gap = rest[0] - codes[-1]
        sizes = [f"{-code:.10g}" for code in codes]
        has_long = any(map(UNKNOWN_CODE.fullmatch, sizes))
        are_codes = all(
            UNKNOWN_CODE.fullmatch(size) or size in "123456789" for size in sizes
        )
        is_far = gap > np.ptp(rest) and has_long
        is_apart = rest[0] >= 0 and gap > _APART * np.median(np.diff(rest))
        is_several = has_long or num_codes > 1
        if are_codes and (is_far or (is_apart and is_several)):
            return num_codes
    return 0


def num_high_codes(distinct: NDArray[Any], counts: Ints) -> int:
    """Count the largest different numbers that look like codes, such as 998 and 999.

    They lie far from all others; or they are at least two in a row up to 99 or such, above a gap
    that is no chance, and each is more frequent than the numbers below the gap.
    """
    most_codes = min(_MOST_UNKNOWN, len(distinct) - _FEWEST)
    for num_codes in range(most_codes, 0, -1):
        codes = distinct[-num_codes:]
        least_count = counts[-num_codes:].min()
        rest = distinct[:-num_codes]
        rest_counts = counts[:-num_codes]
        texts = [f"{code:.10g}" for code in codes]
        if least_count <= 2 or not all(map(UNKNOWN_CODE.fullmatch, texts)):
            continue
        gap = codes[0] - rest[-1]
        if gap > np.ptp(rest):
            return num_codes

        # Rows that each value of the gap would have, were it as those below; absent by chance?
        spacing = float(np.median(np.diff(rest)))
        is_near = rest >= rest[-1] - _NEIGHBOURS * spacing
        usual = rest_counts[is_near].sum() / (_NEIGHBOURS + 1)
        absent = (gap / spacing - 1) * usual
        is_wide = gap > _APART * spacing and absent > 16
        is_frequent = least_count > usual
        is_row_of_nines = set(texts[-1]) == {"9"} and (np.diff(codes) == 1).all()
        if num_codes > 1 and is_row_of_nines and is_wide and is_frequent:
            return num_codes
    return 0
