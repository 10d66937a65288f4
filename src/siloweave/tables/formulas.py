"""How a column that is computed from others follows from them, and what a source must then be.

Each value is a function of its row's sources alone. Ages are counted in birthdays, and stays in
days as calendars have them, since that is how registers and hospitals fill such columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from siloweave.tables.arrays import Bools
from siloweave.tables.bins import coarser_step, step_of
from siloweave.tables.column import Column

DATED = ("years", "days", "hours")
"""Formulas whose sources are two datetimes."""
CALENDAR: tuple[Literal["year", "quarter", "month"], ...] = ("year", "quarter", "month")
"""Formulas whose source is one datetime, and whose result is a number."""
OF_ONE = ("copy", *CALENDAR)
"""Formulas of one source."""
_DAY = 86_400_000_000  # microseconds
_HOUR = 3_600_000_000
# A number that is below a whole one by this share of a unit still counts as it.
_SLACK = 1e-9
# What floats lose in sums, products and ratios, as a share.
_LOST = 1e-14
# By which share numbers without a unit may differ.
_NEAR = 1e-9
_Array = NDArray[Any]


class Calculation(Protocol):
    """How a column is computed. Conforming: `constraints.Computed`."""

    @property
    def formula(self) -> str:
        """The name of the formula, such as "ratio"."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the columns that it takes, in its order."""

    @property
    def factor(self) -> float:
        """What its result is multiplied by."""

    @property
    def offset(self) -> float:
        """What is added to the product."""

    @property
    def rounding(self) -> str:
        """How the sum is rounded: "nearest", "down" or "up"."""


def raw_values(
    rule: Calculation, columns: Sequence[Column], sources: Sequence[_Array]
) -> tuple[_Array, Bools]:
    """Compute a column from its sources, without rounding.

    Args:
        rule: The formula, its factor and its offset.
        columns: How the sources are declared.
        sources: Their values: numbers, or datetimes in steps; one array each.

    Returns:
        One number per row, for a copied datetime in microseconds since 1970, and in which rows a
        division by 0 gives no number.
    """
    with np.errstate(all="ignore"):
        result = _formula(rule, columns, sources) * rule.factor + rule.offset
        values = np.asarray(result, dtype=np.float64)
    is_undefined = ~np.isfinite(values)
    return np.where(is_undefined, 0.0, values), is_undefined


def _formula(
    rule: Calculation, columns: Sequence[Column], sources: Sequence[_Array]
) -> Any:
    """Compute a formula without its factor; infinite or NaN after a division by 0."""
    first = sources[0]
    if rule.formula in OF_ONE:
        return _of_one(rule, columns[0], first)
    second = sources[1]
    if rule.formula in ("years", "days"):
        start_day = _days(columns[0], first)
        end_day = _days(columns[1], second)
        if rule.formula == "years":
            return _birthdays(start_day, end_day)
        return end_day - start_day
    if rule.formula == "hours":
        # Both times are cut to the coarser resolution, then counted in microseconds.
        coarse = coarser_step(columns[0], columns[1])
        start = first * step_of(columns[0]) // coarse * coarse
        end = second * step_of(columns[1]) // coarse * coarse
        return (end - start) / _HOUR
    if rule.formula == "difference":
        return first - second
    if rule.formula == "ratio":
        return first / np.asarray(second, dtype=np.float64)
    if rule.formula == "bmi":
        return first / np.asarray(second, dtype=np.float64) ** 2
    return np.prod(np.array(sources, dtype=np.float64), axis=0)


def _of_one(rule: Calculation, column: Column, values: _Array) -> _Array:
    """Compute a formula of one source without its factor."""
    if rule.formula == "copy":
        return values * step_of(column) if column.is_datetime else values
    months = _months(_days(column, values))
    if rule.formula == "year":
        return months // 12 + 1970
    if rule.formula == "quarter":
        return months % 12 // 3 + 1
    return months % 12 + 1


def _months(days: _Array) -> _Array:
    """Convert days since 1970 to months since then."""
    dates = np.asarray(days).astype("datetime64[D]")
    return dates.astype("datetime64[M]").astype(np.int64)


def _days(column: Column, values: _Array) -> _Array:
    """Convert datetimes to days since 1970."""
    return values * step_of(column) // _DAY


def _birthdays(start: _Array, end: _Array) -> _Array:
    """Count the whole years between days; a birthday on 29 February is 1 March in other years."""
    start_year, start_day = _calendar(start)
    end_year, end_day = _calendar(end)
    is_before_birthday = end_day < start_day
    return np.asarray(end_year - start_year - is_before_birthday)


def _calendar(days: _Array) -> tuple[_Array, _Array]:
    """Return each day's year, and a number that rises with the days of any year."""
    dates = np.asarray(days).astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    day = (dates - months).astype(np.int64)
    years = dates.astype("datetime64[Y]")
    month = (months - years.astype("datetime64[M]")).astype(np.int64)
    # Months of 31 days each keep days of all years in one order.
    return years.astype(np.int64), month * 31 + day


def rounded_values(rule: Calculation, column: Column, values: _Array) -> _Array:
    """Round computed numbers as the column is declared: to whole numbers, or its decimals.

    Datetimes come in microseconds, and are cut to the column's steps.
    """
    if column.is_datetime:
        return np.asarray(values // step_of(column), dtype=np.int64)
    is_whole = column.is_whole
    if not is_whole and column.decimals is None:
        return values
    decimals = 0
    if not is_whole and column.decimals:
        decimals = column.decimals
    unit = 10.0**-decimals
    units = values / unit
    # A quotient that floats put just below 3 counts as 3.
    slack = _SLACK + np.abs(units) * 1e-12
    if rule.rounding == "down":
        units = np.floor(units + slack)
    elif rule.rounding == "up":
        units = np.ceil(units - slack)
    else:
        units = np.rint(units)
    if is_whole:
        return units.astype(np.int64)
    return np.round(units * unit, decimals)


def smallest_size(column: Column) -> float:
    """Return the size up to which numbers of a column count as near 0: 1, or that of its bounds.

    What floats lose is a share of a number, and of this for numbers near 0.
    """
    if column.is_datetime or column.low is None or column.high is None:
        return 1.0
    return min(1.0, max(abs(float(column.low)), abs(float(column.high))))


def does_follow(
    rule: Calculation, column: Column, values: _Array, raw: _Array
) -> Bools:
    """Return which values of a column equal what its sources give, up to rounding."""
    if column.is_datetime:
        return np.asarray(values == rounded_values(rule, column, raw))
    has_unit = column.is_whole or column.decimals is not None
    # Large whole numbers that differ by one differ by a tiny share.
    share = _LOST if has_unit else _NEAR
    tolerance = share * np.maximum(np.abs(raw), smallest_size(column))
    if rule.rounding != "nearest":
        expected = rounded_values(rule, column, raw)
        return np.asarray(np.abs(values - expected) <= tolerance)
    if has_unit:
        # Half a unit either way: programs round 2.5 to 2 or to 3.
        decimals = 0 if column.is_whole else (column.decimals or 0)
        tolerance = tolerance + 0.5 * 10.0**-decimals
    return np.asarray(np.abs(values - raw) <= tolerance)


def solved_source(
    rule: Calculation,
    target: Column,
    columns: Mapping[str, Column],
    values: Mapping[str, _Array],
    wanted: _Array,
    name: str,
    random: np.random.Generator,
) -> _Array:
    """Find the values of one source with which a computed column has the wanted values.

    Args:
        rule: The formula.
        target: How the computed column is declared.
        columns: How the sources are declared, by name.
        values: The sources' values; of datetimes in steps. The time of day of the source that is
            sought stays as it is here.
        wanted: What the column is to be.
        name: The source that is sought.
        random: Chooses a day within the year that an age allows.

    Returns:
        Values that may lie beyond the source's bounds, and that rounding may have moved.
    """
    if target.is_datetime:
        return _solved_copy(target, columns[name], values[name], wanted)
    # What the formula must give before its factor and its offset.
    result = (wanted - rule.offset) / rule.factor
    if rule.formula == "copy":
        return np.asarray(result)
    if rule.formula in CALENDAR:
        return _solved_calendar(rule, columns[name], values[name], result)
    index = rule.sources.index(name)
    if rule.formula in DATED:
        return _solved_time(rule, columns, values, result, index, random)
    other_names = [source for source in rule.sources if source != name]
    others = [np.asarray(values[source], dtype=np.float64) for source in other_names]
    with np.errstate(all="ignore"):
        if rule.formula == "product":
            solution = result / np.prod(np.array(others), axis=0)
        else:
            solution = _solved_of_two(rule, result, others[0], is_first=index == 0)
    # Where a division by 0 leaves no solution, the source stays.
    unsolved = np.asarray(values[name], dtype=np.float64)
    return np.where(np.isfinite(solution), solution, unsolved)


def _solved_of_two(
    rule: Calculation, result: _Array, sibling: _Array, *, is_first: bool
) -> _Array:
    """Solve a difference, ratio or BMI for one source, from the other source and the result."""
    # The result is first - second, first / second, or first / second**2.
    if rule.formula == "difference":
        return result + sibling if is_first else sibling - result
    if rule.formula == "ratio":
        return result * sibling if is_first else sibling / result
    return result * sibling**2 if is_first else np.sqrt(sibling / result)


def _solved_copy(
    target: Column, source: Column, values: _Array, wanted: _Array
) -> _Array:
    """Find the datetimes whose copies are the wanted ones; what a copy does not say stays."""
    target_step = step_of(target)
    source_step = step_of(source)
    unsaid = values * source_step % target_step
    moment = wanted * target_step + unsaid
    return np.asarray(moment // source_step, dtype=np.int64)


def _solved_calendar(
    rule: Calculation, column: Column, values: _Array, result: _Array
) -> _Array:
    """Move datetimes to another year, or to another quarter or month of their year.

    The day of the month stays as far as the other month has it.
    """
    days = _days(column, values)
    months = _months(days)
    whole_result = np.rint(result).astype(np.int64)
    if rule.formula == "year":
        moved = (whole_result - 1970) * 12 + months % 12
    elif rule.formula == "quarter":
        moved = months - months % 12 + (whole_result - 1) * 3 + months % 3
    else:
        moved = months - months % 12 + whole_result - 1
    days_into_month = days - _first_days(months)
    last = _first_days(moved + 1) - _first_days(moved) - 1
    moved_days = _first_days(moved) + np.minimum(days_into_month, last)
    # The time of day stays as it is.
    steps_a_day = _DAY // step_of(column)
    return np.asarray(moved_days * steps_a_day + values % steps_a_day)


def _first_days(months: _Array) -> _Array:
    """Convert months since 1970 to the days on which they begin."""
    dates = months.astype("datetime64[M]").astype("datetime64[D]")
    return dates.astype(np.int64)


def _solved_time(
    rule: Calculation,
    columns: Mapping[str, Column],
    values: Mapping[str, _Array],
    result: _Array,
    index: int,
    random: np.random.Generator,
) -> _Array:
    """Find the datetimes that are so many years, days or hours before or after others."""
    sought = rule.sources[index]
    base = rule.sources[1 - index]
    step = step_of(columns[sought])
    sign = -1 if index == 0 else 1
    if rule.formula == "hours":
        base_time = values[base] * step_of(columns[base])
        moment = base_time + sign * np.rint(result * _HOUR)
        return np.asarray(moment // step, dtype=np.int64)

    base_day = _days(columns[base], values[base])
    whole_result = np.rint(result).astype(np.int64)
    if rule.formula == "days":
        day = base_day + sign * whole_result
    else:
        # The same day of the month so many years away, then any day within the year beyond it.
        dates = base_day.astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        num_months = sign * whole_result * 12
        shifted_months = months + num_months.astype("timedelta64[M]")
        within_year = random.integers(0, 365, len(base_day))
        birthday = shifted_months.astype("datetime64[D]") + (dates - months)
        day = birthday.astype(np.int64) + sign * within_year

    # The time of day stays as it is.
    steps_a_day = _DAY // step
    time_of_day = values[sought] % steps_a_day
    return np.asarray(day * steps_a_day + time_of_day, dtype=np.int64)
