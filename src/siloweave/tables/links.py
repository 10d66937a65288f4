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
from siloweave.tables.encodings import ColumnEncoding, LinkedEncoding, NumberLink, NumericEncoding

_Numbers = Mapping[str, tuple[Floats, Bools]]  # values of columns, and which are missing
_LEAST_ROWS, _LEAST_SHARE = 50, 0.02  # in which a relation holds
_TIMES_CHANCE = 4.0  # as often as between values of different rows
_MOST_LINKS = 4  # of a column
_MOST_COLUMNS = 40  # between which sums are looked for
_LOOK = 1000  # rows in which a sum is looked for first
_TOLERANCE = 1e-9  # of the largest term: sums of decimals are not exact in float64


def holds(link: NumberLink, column: str, numbers: _Numbers) -> Bools:
    """Return in which rows a column equals a link's sum; no row where a term is missing."""
    values, gone = numbers[column]
    sums, known = link.sums(numbers)
    rows: Bools = ~gone & known & _near(values, sums, link, numbers)
    return rows


def _near(values: Floats, sums: Floats, link: NumberLink, numbers: _Numbers) -> Bools:
    allowed = np.zeros(len(values))  # copies are the same to the last bit
    if len(link.columns) > 1:
        terms = [np.abs(numbers[name][0]) for name in link.columns]
        allowed = _TOLERANCE * np.max([np.abs(values), *terms], axis=0)
    is_near: Bools = np.abs(values - sums) <= allowed
    return is_near


def with_links(encodings: Sequence[ColumnEncoding], numbers: _Numbers) -> list[ColumnEncoding]:
    """Return encodings with the relations that rows show, each to columns before its own.

    A relation holds in 2 % of the rows or more, in 50 at least, and four times as often as between
    values of rows that have nothing to do with each other. Rows that break it are learned as they
    are, however few or many they are.

    Args:
        encodings: Of all columns, in order.
        numbers: Values of the columns to look at, in order, and where they are missing.
    """
    names = list(numbers)
    linked: list[ColumnEncoding] = []
    for encoding in encodings:
        if not isinstance(encoding, NumericEncoding) or encoding.column not in numbers:
            linked.append(encoding)
            continue
        earlier = names[: names.index(encoding.column)]
        links = _links(encoding.column, earlier, numbers)
        if links:
            encoding = LinkedEncoding(**msgspec.structs.asdict(encoding), links=links)
        linked.append(encoding)
    return linked


def _links(column: str, earlier: Sequence[str], numbers: _Numbers) -> tuple[NumberLink, ...]:
    """Find the relations of one column, the one of most rows first; each adds rows of its own."""
    candidates = [NumberLink((name,), (1,)) for name in earlier]
    candidates += _likely_sums(column, earlier[-_MOST_COLUMNS:], numbers)
    rows = {link: holds(link, column, numbers) for link in candidates}
    values, gone = numbers[column]
    free = ~gone
    links: list[NumberLink] = []
    while rows and len(links) < _MOST_LINKS:
        # A copy is the simpler reading of rows in which a third column is 0.
        counts = {link: _varied(values[held & free]) for link, held in rows.items()}
        best = max(rows, key=lambda link: (counts[link], -len(link.columns)))
        count = counts[best]
        if count < max(_LEAST_ROWS, _LEAST_SHARE * len(free)):
            break
        if count >= _TIMES_CHANCE * _by_chance(best, column, numbers):
            links.append(best)
            free = free & ~rows[best]
        del rows[best]
    return tuple(links)


def _by_chance(link: NumberLink, column: str, numbers: _Numbers) -> int:
    """Count in how many rows a relation holds between a row and one that is not related to it."""
    values, gone = numbers[column]
    far = len(values) // 2
    moved = {**numbers, column: (np.roll(values, far), np.roll(gone, far))}
    return _varied(moved[column][0][holds(link, column, moved)])


def _varied(values: Floats) -> int:
    """Count rows but those of the most frequent value: -9 in all columns is no relation."""
    _, times = np.unique(values, return_counts=True)
    return int(times.sum() - times.max(initial=0))


def _likely_sums(column: str, earlier: Sequence[str], numbers: _Numbers) -> list[NumberLink]:
    """Return sums and differences of two columns that hold in some of the first rows."""
    first = {name: (v[:_LOOK], gone[:_LOOK]) for name, (v, gone) in numbers.items()}
    least = 0.5 * _LEAST_SHARE * min(_LOOK, len(numbers[column][0]))
    pairs = combinations(earlier, 2)
    signs = ((1, 1), (1, -1), (-1, 1))
    candidates = [NumberLink(pair, sign) for pair in pairs for sign in signs]
    return [link for link in candidates if np.count_nonzero(holds(link, column, first)) >= least]
