"""Exact relations among numbers that hold in some rows: copies, and sums and quotients of two.

A bill may equal last month's in one row of seven, three parts may add up to a total in all rows but
those with an error, and a rate may be one count by another. A generator of real numbers draws such
rows near the relation and never on it. So a relation is an option of the column's categorical,
learned with everything else, and a row that has this option is computed from the other columns when
it is decoded.

**Guarantee**: none. Relations are read from rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations

import msgspec
import numpy as np

from siloweave.tables.arrays import Bools, Floats
from siloweave.tables.encodings import (
    ColumnEncoding,
    LinkedEncoding,
    NumberLink,
    NumericEncoding,
    Quotient,
    Relation,
)

# Values of columns, and which are missing.
_Numbers = Mapping[str, tuple[Floats, Bools]]

# In so many rows a relation holds, and in this share of them.
_LEAST_ROWS = 50
_LEAST_SHARE = 0.02
# It holds so many times as often as between values of different rows.
_TIMES_CHANCE = 4.0
_MOST_LINKS = 4
# Columns between which sums and quotients are looked for: their pairs are candidates.
_MOST_COLUMNS = 40
# Rows in which a sum or a quotient is looked for first, evenly spread over the table.
_FIRST_ROWS = 1000
# Share of the largest term: sums of decimals are not exact in float64.
_TOLERANCE = 1e-9
# A column that needs more decimals than this is not rounded.
_MOST_DECIMALS = 6


def holds(link: Relation, column: str, numbers: _Numbers) -> Bools:
    """Return the rows in which a column equals what a link computes; never those without a term."""
    values, is_missing = numbers[column]
    computed, has_terms = link.computed(numbers)
    is_near = np.abs(values - computed) <= _tolerance(values, link, numbers)
    rows: Bools = ~is_missing & has_terms & is_near
    return rows


def _tolerance(values: Floats, link: Relation, numbers: _Numbers) -> Floats:
    """Return how far values may be from what a link computes: by rounding alone."""
    if isinstance(link, Quotient):
        half_unit = 0.0
        if link.decimals is not None:
            half_unit = 0.5 * 10.0**-link.decimals
        return half_unit + _TOLERANCE * np.abs(values)
    # Copies are the same to the last bit.
    if len(link.columns) == 1:
        return np.zeros(len(values))
    sizes = [np.abs(numbers[name][0]) for name in link.columns]
    largest: Floats = np.max([np.abs(values), *sizes], axis=0)
    return _TOLERANCE * largest


def with_links(
    encodings: Sequence[ColumnEncoding],
    numbers: _Numbers,
    spikes: Mapping[str, Bools],
) -> list[ColumnEncoding]:
    """Add to encodings the relations that rows show, each to columns before its own.

    A relation holds in 2 % of the rows or more, in 50 at least, and four times as often as between
    values of rows that have nothing to do with each other. Rows that break it are learned as they
    are, however few or many they are.

    Args:
        encodings: The encodings of all columns, in order.
        numbers: Values of the columns to look at, in order, and where they are missing.
        spikes: In which rows a column has a value with an option of its own. Options draw these,
            so no relation need say them.
    """
    names = list(numbers)
    without_spikes = {
        name: (values, is_missing | spikes[name])
        for name, (values, is_missing) in numbers.items()
    }
    linked: list[ColumnEncoding] = []
    for encoding in encodings:
        is_numeric = isinstance(encoding, NumericEncoding)
        if not is_numeric or encoding.column not in numbers:
            linked.append(encoding)
            continue
        column = encoding.column
        earlier_names = names[: names.index(column)]
        # A count that is the same in most rows may divide another, so terms keep their spikes.
        of_quotients = {**numbers, column: without_spikes[column]}
        relations = _relations(column, earlier_names, without_spikes, of_quotients)
        if relations:
            fields = msgspec.structs.asdict(encoding)
            sums = tuple(found for found in relations if isinstance(found, NumberLink))
            quotients = tuple(
                found for found in relations if isinstance(found, Quotient)
            )
            encoding = LinkedEncoding(**fields, links=sums, quotients=quotients)
        linked.append(encoding)
    return linked


def _relations(
    column: str,
    earlier_names: Sequence[str],
    of_sums: _Numbers,
    of_quotients: _Numbers,
) -> list[Relation]:
    """Find the relations of one column, that of most rows first; each must add rows of its own.

    Copies and sums are looked for in some numbers, and quotients in others.
    """
    candidates: list[Relation] = [NumberLink((name,), (1,)) for name in earlier_names]
    # The nearest columns: a total mostly follows its parts.
    nearest_names = earlier_names[-_MOST_COLUMNS:]
    candidates += _likely(_sums(nearest_names), column, of_sums)
    quotients = _quotients(nearest_names, column, of_quotients)
    candidates += _likely(quotients, column, of_quotients)

    def read(link: Relation) -> _Numbers:
        return of_quotients if isinstance(link, Quotient) else of_sums

    values, is_missing = of_sums[column]
    candidate_rows = {link: holds(link, column, read(link)) for link in candidates}
    is_unexplained = ~is_missing
    fewest_rows = max(_LEAST_ROWS, _LEAST_SHARE * len(values))
    relations: list[Relation] = []
    while candidate_rows and len(relations) < _MOST_LINKS:
        counts = {}
        for link, rows in candidate_rows.items():
            is_new = rows & is_unexplained & _is_telling(link, read(link))
            counts[link] = _num_varied(values[is_new])
        # A copy is the simpler reading of rows in which a third column is 0.
        best = max(candidate_rows, key=lambda link: (counts[link], -len(link.columns)))
        if counts[best] < fewest_rows:
            break
        if counts[best] >= _TIMES_CHANCE * _num_by_chance(best, column, read(best)):
            relations.append(best)
            is_unexplained = is_unexplained & ~candidate_rows[best]
        del candidate_rows[best]
    return relations


def _is_telling(link: Relation, numbers: _Numbers) -> Bools:
    """Return the rows in which a relation could not hold for a simpler reason.

    A quotient of 0, of equal numbers, or by 1 is 0, 1, or a copy.
    """
    first, _ = numbers[link.columns[0]]
    if not isinstance(link, Quotient):
        return np.ones(len(first), dtype=np.bool_)
    by, _ = numbers[link.columns[1]]
    is_telling: Bools = (first != 0) & (first != by) & (by != 1)
    return is_telling


def _num_by_chance(link: Relation, column: str, numbers: _Numbers) -> int:
    """Count the rows in which a relation holds by chance: with the column taken from other rows."""
    values, is_missing = numbers[column]
    # Half a table away: neighbours may be related, as visits of one person are.
    distance = len(values) // 2
    other_values = np.roll(values, distance)
    other_missing = np.roll(is_missing, distance)
    moved = {**numbers, column: (other_values, other_missing)}
    rows = holds(link, column, moved) & _is_telling(link, numbers)
    return _num_varied(other_values[rows])


def _num_varied(values: Floats) -> int:
    """Count the rows without the most frequent value, such as -9 in all columns."""
    _, row_counts = np.unique(values, return_counts=True)
    return int(row_counts.sum() - row_counts.max(initial=0))


def _decimals(values: Floats) -> int | None:
    """Return with how many decimals all values can be written; None for more than a few."""
    for decimals in range(_MOST_DECIMALS + 1):
        if np.allclose(values, np.round(values, decimals), rtol=_TOLERANCE, atol=0.0):
            return decimals
    return None


def _sums(names: Sequence[str]) -> list[Relation]:
    """Return all sums and differences of two columns."""
    sums: list[Relation] = []
    for pair in combinations(names, 2):
        for signs in ((1, 1), (1, -1), (-1, 1)):
            sums.append(NumberLink(pair, signs))
    return sums


def _quotients(names: Sequence[str], column: str, numbers: _Numbers) -> list[Relation]:
    """Return all quotients of two columns with the decimals of a third.

    A whole number has no candidates: by chance, many quotients are rounded to it.
    """
    values, is_missing = numbers[column]
    decimals = _decimals(values[~is_missing])
    if decimals == 0:
        return []
    return [Quotient(pair, decimals) for pair in permutations(names, 2)]


def _likely(
    links: Sequence[Relation], column: str, numbers: _Numbers
) -> list[Relation]:
    """Return the links that hold in some of the rows looked at first."""
    num_all = len(numbers[column][0])
    # A table may be sorted, so its first rows are like no others.
    spread = np.linspace(0, num_all - 1, min(num_all, _FIRST_ROWS)).astype(np.intp)
    first_numbers = {}
    for name, (values, is_missing) in numbers.items():
        first_numbers[name] = (values[spread], is_missing[spread])
    num_rows = len(spread)
    # Half the share that all rows need: among few, a relation may be rarer by chance.
    fewest_rows = 0.5 * _LEAST_SHARE * num_rows

    likely = []
    for link in links:
        rows = holds(link, column, first_numbers) & _is_telling(link, first_numbers)
        if np.count_nonzero(rows) >= fewest_rows:
            likely.append(link)
    return likely
