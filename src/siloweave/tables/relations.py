"""Constraints that the rows of a table seem to keep, to be proposed and reviewed.

A column that decides another (a functional dependency, Armstrong 1974, "Dependency structures of
data base relationships") gives fixed combinations; a column that is at most another in every row
gives an inequality. Both must be more than chance would give, and more than bounds say already.

**Guarantee**: none. What is proposed is from the rows, and marked so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from siloweave.errors import SchemaError
from siloweave.tables.arrays import Ints
from siloweave.tables.bins import BINNED, step_of
from siloweave.tables.cells import CellValues, cells_of, groups_of, value_of
from siloweave.tables.constraints import Constraint, FixedCombinations, Inequality
from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Schema

_ROWS = 50  # fewer show no rule
_FIRST = 2_000  # rows by which most pairs of columns are ruled out
_LEVELS = 256  # values of a column that decides others, at most
_REPEATED = 10  # rows for each of them, on average
_EVIDENCE = 20.0  # how unlikely chance must be: minus the logarithm
_CROSSED = 0.1  # share of pairs of unrelated rows that would break an inequality, at least
_APART = 0.382  # share of a table between unrelated rows; by no simple one may a table repeat
_WORD = re.compile("[A-Z]?[a-z]{2,}|[A-Z]{2,}")  # of a column's name
_Codes = Ints


def proposed(table: Table, schema: Schema) -> tuple[Constraint, ...]:
    """Fixed combinations and inequalities that all rows keep, marked as from data.

    Args:
        table: All rows; some may hold nothing in a column.
        schema: Of its columns. One that rows do not fit is left out: `check` shows these rows.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> [one.words for one in proposed(adult(), adult_schema())]
        ['fixed combinations of education, education-num']
    """
    if table.num_rows < _ROWS:
        return ()
    cells = {}
    for column in (c for c in schema.coded if c.name in table.names):
        with suppress(SchemaError):
            cells[column.name] = cells_of(column, table)
    columns = [schema[name] for name in cells]
    groups = _deciding({c.name: cells[c.name] for c in columns if c.kind != "continuous"})
    rules: list[Constraint] = [_combinations(schema, cells, names) for names in groups]
    used = {name for names in groups for name in names}
    free = [c for c in columns if c.kind in BINNED and c.name not in used]
    return (*rules, *_ordered(free, cells))


def _deciding(cells: Mapping[str, CellValues]) -> list[tuple[str, ...]]:
    """Groups of columns, of which one decides the others; no column is in two."""
    codes: dict[str, _Codes] = {}
    for name, (values, gone) in cells.items():
        levels, places = np.unique(values, return_inverse=True)
        found = np.where(gone, len(levels), places.reshape(-1))
        if 1 < len(levels) + gone.any() <= _LEVELS:
            codes[name] = found
    decided = {one: _decided(codes, one) for one in codes}
    groups: list[tuple[str, ...]] = []
    used: set[str] = set()
    for one in sorted(decided, key=lambda name: -len(decided[name])):
        others = [other for other in decided[one] if other not in used]
        if one not in used and others:
            names = tuple(name for name in cells if name == one or name in others)
            groups.append(names)
            used |= set(names)
    return sorted(groups, key=lambda names: list(cells).index(names[0]))


def _decided(codes: Mapping[str, _Codes], one: str) -> list[str]:
    """Columns of which equal values go with equal ones of `one`, by more than chance."""
    own = codes[one]
    rows, levels = len(own), np.count_nonzero(np.bincount(own))
    if levels * _REPEATED > rows:
        return []
    found, few = [], slice(None, None, max(rows // _FIRST, 1))
    for name, other in codes.items():
        most = np.bincount(other).max() / rows  # the share that chance gives a pair of rows
        if name == one or (rows - levels) * -np.log(most) <= _EVIDENCE:
            continue
        if _decides(own[few], other[few]) and _decides(own, other):
            found.append(name)
    return found


def _decides(one: _Codes, other: _Codes) -> bool:
    """Whether no value of one column goes with two of the other."""
    pairs = np.bincount(one * (int(other.max()) + 1) + other)
    return bool(np.count_nonzero(pairs) == np.count_nonzero(np.bincount(one)))


def _combinations(
    schema: Schema, cells: Mapping[str, CellValues], names: Sequence[str]
) -> FixedCombinations:
    """The combinations that rows have, in the order of the columns' values."""
    columns, own = [schema[name] for name in names], [cells[name] for name in names]
    first, _ = groups_of(own)
    found = [one.take(first) for one in own]
    order = np.lexsort([key for one in reversed(found) for key in (one.values, one.gone)])
    lists = [
        [None if gone else value_of(c, n) for n, gone in zip(*one.take(order), strict=True)]
        for c, one in zip(columns, found, strict=True)
    ]
    return FixedCombinations(tuple(names), tuple(zip(*lists, strict=True)), from_data=True)


def _ordered(columns: Sequence[Column], cells: Mapping[str, CellValues]) -> list[Inequality]:
    """Inequalities between columns of one kind that no others imply."""
    found = {
        (low.name, high.name)
        for low in columns
        for high in columns
        if low is not high and _alike(low, high) and _below(cells[low.name], cells[high.name])
    }
    needed = [
        (low, high)
        for low, high in sorted(found)
        if (high, low) not in found
        and not any((low, c.name) in found and (c.name, high) in found for c in columns)
    ]
    return [Inequality(low, high, from_data=True) for low, high in needed]


def _alike(low: Column, high: Column) -> bool:
    """Whether two columns hold datetimes of one resolution, or numbers that share a word."""
    if "datetime" in (low.kind, high.kind):
        return low.kind == high.kind and step_of(low) == step_of(high)
    words = (set(_WORD.findall(one.name.replace("_", " "))) for one in (low, high))
    return bool(set.intersection(*({word.lower() for word in one} for one in words)))


def _below(low: CellValues, high: CellValues) -> bool:
    """Whether one column is at most the other in every row, and not by its range alone."""
    there = ~low.gone & ~high.gone
    a, b = low.values[there], high.values[there]
    if len(a) < _ROWS or (a[:_FIRST] > b[:_FIRST]).any() or (a > b).any():
        return False
    return bool((a > np.roll(b, round(_APART * len(a)))).mean() > _CROSSED)
