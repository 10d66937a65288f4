"""Columns that may be another column, in the same unit or in another one.

Exports often have a length in centimetres and in inches, a sum in two currencies, a time and its
date, or one column twice under two names. Each number then lies within the rounding of a factor
times the other one, plus an offset, which bounds both.

**Guarantee**: none. What is proposed is from the rows; `relations` tests it in all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.bins import step_of
from siloweave.tables.cells import CellValues
from siloweave.tables.column import Column
from siloweave.tables.constraints import Computed, Rounding
from siloweave.tables.formulas import (
    CALENDAR,
    does_follow,
    raw_values,
    smallest_size,
)

# So many rows rule out most pairs of columns.
_PROBES = 32
# A number of fewer different values could follow from many columns.
_FEWEST = 10
# Units that begin at another zero: a copy, years before a year, and degrees.
_OFFSET_FACTORS = (1.0, -1.0, 1.8, 1 / 1.8)
# Factors and offsets have at most so many digits.
_DIGITS = 12
# What floats lose in a product, as a share. Large whole numbers that differ by a few are no copies.
_LOST = 1e-15
# By which share numbers without a unit may differ.
_NEAR = 1e-9
_Cells = Mapping[str, CellValues]


def conversions(columns: Sequence[Column], cells: _Cells) -> Iterator[Computed]:
    """Yield rules by which a column may be another one, those of an earlier column first.

    Args:
        columns: Numbers and datetimes.
        cells: Their values.
    """
    # A copy is missing in the same rows.
    groups: dict[bytes, list[Column]] = defaultdict(list)
    for column in columns:
        groups[np.packbits(cells[column.name].gone).tobytes()].append(column)
    for group in groups.values():
        rows = np.flatnonzero(~cells[group[0].name].gone)
        if len(group) > 1 and rows.size:
            values = {c.name: cells[c.name].values[rows] for c in group}
            yield from _in_order(group, values)


class _Pair(NamedTuple):
    """Places of a source and of a target among some columns."""

    source: int
    target: int


def _in_order(
    columns: Sequence[Column], values: Mapping[str, Floats | Ints]
) -> Iterator[Computed]:
    """Yield rules between columns without gaps; a column follows rather from an earlier one."""
    places = range(len(columns))
    pairs = [_Pair(*places) for places in product(places, places)]
    forward = [pair for pair in pairs if pair.source < pair.target]
    backward = [pair for pair in pairs if pair.source > pair.target]
    are_promising = _promising(columns, values)
    for source_place, target_place in (*forward, *backward):
        source = columns[source_place]
        target = columns[target_place]
        if source.is_datetime:
            yield from _of_time(source, target, values)
        elif (source.name, target.name) in are_promising:
            rule = _of_number(source, target, values)
            if rule is not None:
                yield rule


def _of_time(
    source: Column, target: Column, values: Mapping[str, Floats | Ints]
) -> Iterator[Computed]:
    """Yield the rules by which a datetime or a whole number follows from a datetime."""
    names = (source.name,)
    rules = []
    if target.is_datetime and step_of(source) <= step_of(target):
        rules = [Computed(target.name, "copy", names)]
    elif target.is_whole and not target.is_datetime:
        rules = [Computed(target.name, formula, names) for formula in CALENDAR]
    for rule in rules:
        raw, _ = raw_values(rule, [source], [values[source.name]])
        if does_follow(rule, target, values[target.name], raw).all():
            yield rule


def varied_rows(values: Floats | Ints, rows: Ints) -> Ints:
    """Return a few rows in which a column has different values, the largest value first.

    Rows of one value, mostly 0, agree with too many rules.

    Args:
        values: Of all rows.
        rows: Those to choose from.
    """
    step = max(len(rows) // (_PROBES * _PROBES), 1)
    some = rows[::step]
    _, first = np.unique(values[some], return_index=True)
    largest_first = some[first[::-1]]
    step = max(len(first) // _PROBES, 1)
    return largest_first[::step][:_PROBES]


def _promising(
    columns: Sequence[Column], values: Mapping[str, Floats | Ints]
) -> set[tuple[str, str]]:
    """Return the names of sources and targets, both numbers, that agree in a few rows."""
    numbers = [column for column in columns if not column.is_datetime]
    names = set()
    for target in numbers:
        target_values = np.asarray(values[target.name], dtype=np.float64)
        rows = varied_rows(target_values, np.arange(len(target_values)))
        if len(rows) < _FEWEST:
            continue
        sources = np.array([values[c.name][rows] for c in numbers], dtype=np.float64)
        for rounding in _roundings(target):
            least, most = _before_rounding(target, target_values[rows], rounding)
            is_feasible = _are_feasible(*_factor_ends(sources, least, most))
            for factor in _OFFSET_FACTORS:
                ends = _offset_ends(sources, least, most, factor)
                is_feasible |= _are_feasible(*ends)
            for place in np.flatnonzero(is_feasible):
                names.add((numbers[place].name, target.name))
    return names


def _of_number(
    source: Column, target: Column, values: Mapping[str, Floats | Ints]
) -> Computed | None:
    """Return the simplest rule by which a number follows from another one in all rows, or None."""
    sources = np.asarray(values[source.name], dtype=np.float64)[None, :]
    target_values = np.asarray(values[target.name], dtype=np.float64)
    if not _decides(sources[0], target_values):
        return None
    # Without an offset first, which is the simpler rule; then the factor of fewest digits.
    rules = []
    for rounding in _roundings(target):
        least, most = _before_rounding(target, target_values, rounding)
        low, high = _factor_ends(sources, least, most)
        if _are_feasible(low, high)[0]:
            factor = _simplest_factor(float(low[0]), float(high[0]))
            rules.append(_rule(source, target, factor, 0.0, rounding))
    if rules:
        return min(rules, key=lambda rule: _digits_of_factor(rule.factor))
    for rounding in _roundings(target):
        least, most = _before_rounding(target, target_values, rounding)
        for factor in _OFFSET_FACTORS:
            low, high = _offset_ends(sources, least, most, factor)
            if _are_feasible(low, high)[0]:
                offset = _shortest(float(low[0]), float(high[0]))
                return _rule(source, target, factor, offset, rounding)
    return None


def _decides(sources: Floats, targets: Floats) -> bool:
    """Return whether rows of one source value have one target value.

    Where rounding could go either way, a rule alone would allow two.
    """
    order = np.argsort(sources, kind="stable")
    is_repeated = np.diff(sources[order]) == 0
    is_other = np.diff(targets[order]) != 0
    return not (is_repeated & is_other).any()


def _rule(
    source: Column, target: Column, factor: float, offset: float, rounding: Rounding
) -> Computed:
    """Build the rule of a factor and an offset; whole ones are written as whole numbers."""
    return Computed(
        target.name,
        "copy",
        (source.name,),
        _whole_if_it_is(factor),
        rounding,
        _whole_if_it_is(offset),
    )


def _whole_if_it_is(number: float) -> int | float:
    """Return a whole float as an int."""
    return int(number) if number.is_integer() else number


def _roundings(target: Column) -> tuple[Rounding, ...]:
    """Return the ways in which a column may have been rounded: without a unit, it was not."""
    if target.is_continuous and target.decimals is None:
        return ("nearest",)
    return ("nearest", "down")


def _before_rounding(
    target: Column, values: Floats, rounding: Rounding
) -> tuple[Floats, Floats]:
    """Return between which numbers each value of a column was before it was rounded."""
    unit = 0.0
    if target.is_whole:
        unit = 1.0
    elif target.decimals is not None:
        unit = 10.0**-target.decimals
    share = _LOST if unit else _NEAR
    near = share * np.maximum(np.abs(values), smallest_size(target))
    if rounding == "down":
        return values - near, values + unit - near
    return values - unit / 2 - near, values + unit / 2 + near


def _factor_ends(sources: Floats, least: Floats, most: Floats) -> tuple[Floats, Floats]:
    """Return the least and the largest factor that lead from each source to a column.

    Args:
        sources: Of shape (sources, rows).
        least: The least number that each row's value may have been, of shape (rows,).
        most: The largest one.

    Returns:
        Two arrays of shape (sources,); where no factor does it, the first is the larger one.
    """
    is_zero = sources == 0
    # A source near 0 allows any factor, however large.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        first = least / sources
        second = most / sources
    low = np.where(is_zero, -np.inf, np.minimum(first, second)).max(axis=1)
    high = np.where(is_zero, np.inf, np.maximum(first, second)).min(axis=1)
    # A factor leaves a zero what it is.
    allows_zero = (least <= 0) & (most >= 0)
    is_impossible = (is_zero & ~allows_zero).any(axis=1) | is_zero.all(axis=1)
    return np.where(is_impossible, np.inf, low), np.where(is_impossible, -np.inf, high)


def _offset_ends(
    sources: Floats, least: Floats, most: Floats, factor: float
) -> tuple[Floats, Floats]:
    """Return the least and the largest offset; arguments and result as of `_factor_ends`."""
    low = (least - factor * sources).max(axis=1)
    high = (most - factor * sources).min(axis=1)
    return low, high


def _are_feasible(low: Floats, high: Floats) -> Bools:
    """Return between which ends there is a number."""
    return np.asarray(low <= high)


def _simplest_factor(low: float, high: float) -> float:
    """Return the number between two others that has fewest digits, itself or as a divisor.

    Example:
        >>> _simplest_factor(0.39369, 0.39371) == 1 / 2.54
        True
    """
    factor = _shortest(low, high)
    if low <= 0 <= high:
        return factor
    divisor = _shortest(1 / high, 1 / low)
    if abs(divisor) > 1 and _digits_of(divisor) < _digits_of(factor):
        return 1 / divisor
    return factor


def _digits_of_factor(factor: float) -> int:
    """Return how many digits a factor has, itself or as a divisor.

    Example:
        >>> _digits_of_factor(0.001), _digits_of_factor(1 / 2.54)
        (1, 3)
    """
    return min(_digits_of(factor), _digits_of(1 / factor)) if factor else 1


def _digits_of(number: float) -> int:
    """Return how many digits a number has, without zeros before and behind them."""
    mantissa, _, _ = f"{abs(number):.{_DIGITS - 1}e}".partition("e")
    return len(mantissa.replace(".", "").rstrip("0")) or 1


def _shortest(low: float, high: float) -> float:
    """Return the number between two others that has fewest digits.

    Example:
        >>> _shortest(2.5393, 2.5412)
        2.54
    """
    middle = (low + high) / 2
    if low <= 0 <= high:
        return 0.0
    for digits in range(1, _DIGITS + 1):
        number = float(f"{middle:.{digits - 1}e}")
        if low <= number <= high:
            return number
    return middle
