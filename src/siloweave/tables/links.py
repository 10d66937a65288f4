"""Exact relations among numbers that hold in some rows: copies of a column, and sums of two.

A bill may equal last month's in one row of seven, or three parts may add up to a total in all rows
but those with an error. A generator of real numbers draws such rows near the relation and never on
it. So a relation is an option of the column's categorical, learned with everything else, and a row
that has this option is computed from the other columns when it is decoded.

**Guarantee**: none. Relations are read from rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np

from siloweave.tables.arrays import Bools, Floats
from siloweave.tables.encodings import (
    ColumnEncoding,
    LinkedEncoding,
    NumberLink,
    NumericEncoding,
)

# Values of columns, and which are missing.
_Numbers = Mapping[str, tuple[Floats, Bools]]

# In so many rows a relation holds, and in this share of them.
_LEAST_ROWS = 50
_LEAST_SHARE = 0.02
# It holds so many times as often as between values of different rows.
_TIMES_CHANCE = 4.0
_MOST_LINKS = 4
# Columns between which sums are looked for: their pairs are candidates, each with three signs.
_MOST_COLUMNS = 40
# Rows in which a sum is looked for first.
_FIRST_ROWS = 1000
# Share of the largest term: sums of decimals are not exact in float64.
_TOLERANCE = 1e-9


def holds(link: NumberLink, column: str, numbers: _Numbers) -> Bools:
    """Return the rows in which a column equals a link's sum; never those that lack a term."""
    values, is_missing = numbers[column]
    sums, has_terms = link.sums(numbers)
    is_near = _near(values, sums, link, numbers)
    rows: Bools = ~is_missing & has_terms & is_near
    return rows


def _near(values: Floats, sums: Floats, link: NumberLink, numbers: _Numbers) -> Bools:
    """Return where values equal sums, as exactly as float64 can add them."""
    # Copies are the same to the last bit.
    tolerance = np.zeros(len(values))
    if len(link.columns) > 1:
        sizes = [np.abs(numbers[name][0]) for name in link.columns]
        tolerance = _TOLERANCE * np.max([np.abs(values), *sizes], axis=0)
    is_near: Bools = np.abs(values - sums) <= tolerance
    return is_near


def with_links(
    encodings: Sequence[ColumnEncoding], numbers: _Numbers
) -> list[ColumnEncoding]:
    """Add to encodings the relations that rows show, each to columns before its own.

    A relation holds in 2 % of the rows or more, in 50 at least, and four times as often as between
    values of rows that have nothing to do with each other. Rows that break it are learned as they
    are, however few or many they are.

    Args:
        encodings: The encodings of all columns, in order.
        numbers: Values of the columns to look at, in order, and where they are missing.
    """
    names = list(numbers)
    linked: list[ColumnEncoding] = []
    for encoding in encodings:
        is_numeric = isinstance(encoding, NumericEncoding)
        if not is_numeric or encoding.column not in numbers:
            linked.append(encoding)
            continue
        earlier_names = names[: names.index(encoding.column)]
        links = _links(encoding.column, earlier_names, numbers)
        if links:
            fields = msgspec.structs.asdict(encoding)
            encoding = LinkedEncoding(**fields, links=links)
        linked.append(encoding)
    return linked


def _links(
    column: str, earlier_names: Sequence[str], numbers: _Numbers
) -> tuple[NumberLink, ...]:
    """Find the relations of one column, that of most rows first; each must add rows of its own."""
    candidates = [NumberLink((name,), (1,)) for name in earlier_names]
    # The nearest columns: a total mostly follows its parts.
    nearest_names = earlier_names[-_MOST_COLUMNS:]
    candidates += _likely_sums(column, nearest_names, numbers)
    candidate_rows = {link: holds(link, column, numbers) for link in candidates}

    values, is_missing = numbers[column]
    is_unexplained = ~is_missing
    fewest_rows = max(_LEAST_ROWS, _LEAST_SHARE * len(values))
    links: list[NumberLink] = []
    while candidate_rows and len(links) < _MOST_LINKS:
        counts = {}
        for link, rows in candidate_rows.items():
            counts[link] = _num_varied(values[rows & is_unexplained])
        # A copy is the simpler reading of rows in which a third column is 0.
        best = max(candidate_rows, key=lambda link: (counts[link], -len(link.columns)))
        if counts[best] < fewest_rows:
            break
        if counts[best] >= _TIMES_CHANCE * _num_by_chance(best, column, numbers):
            links.append(best)
            is_unexplained = is_unexplained & ~candidate_rows[best]
        del candidate_rows[best]
    return tuple(links)


def _num_by_chance(link: NumberLink, column: str, numbers: _Numbers) -> int:
    """Count the rows in which a relation holds by chance: with the column taken from other rows."""
    values, is_missing = numbers[column]
    # Half a table away: neighbours may be related, as visits of one person are.
    distance = len(values) // 2
    other_values = np.roll(values, distance)
    other_missing = np.roll(is_missing, distance)
    moved = {**numbers, column: (other_values, other_missing)}
    return _num_varied(other_values[holds(link, column, moved)])


def _num_varied(values: Floats) -> int:
    """Count the rows without the most frequent value, such as -9 in all columns."""
    _, row_counts = np.unique(values, return_counts=True)
    return int(row_counts.sum() - row_counts.max(initial=0))


def _likely_sums(
    column: str, earlier_names: Sequence[str], numbers: _Numbers
) -> list[NumberLink]:
    """Return sums and differences of two columns that hold in some of the first rows."""
    first_numbers = {}
    for name, (values, is_missing) in numbers.items():
        first_numbers[name] = (values[:_FIRST_ROWS], is_missing[:_FIRST_ROWS])
    num_rows = len(first_numbers[column][0])
    # Half the share that all rows need: among few, a relation may be rarer by chance.
    fewest_rows = 0.5 * _LEAST_SHARE * num_rows

    links = []
    for pair in combinations(earlier_names, 2):
        for signs in ((1, 1), (1, -1), (-1, 1)):
            link = NumberLink(pair, signs)
            rows = holds(link, column, first_numbers)
            if np.count_nonzero(rows) >= fewest_rows:
                links.append(link)
    return links
