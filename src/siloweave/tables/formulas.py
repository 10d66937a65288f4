"""How a column that is computed from others follows from them, and what a source must then be.

Each value is a function of its row's sources alone. Ages are counted in birthdays, and stays in
days as calendars have them, since that is how registers and hospitals fill such columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from siloweave.tables.arrays import Bools
from siloweave.tables.bins import coarser_step, step_of

if TYPE_CHECKING:
    from siloweave.tables.constraints import Computed
    from siloweave.tables.schema import Column

DATED = ("years", "days", "hours")
"""Formulas whose sources are two datetimes."""
_DAY, _HOUR = 86_400_000_000, 3_600_000_000  # microseconds
_SLACK = 1e-9  # of a unit, by which a number may be below a whole one and still count as it
_Array = NDArray[Any]


def raw_values(
    rule: Computed, columns: Sequence[Column], sources: Sequence[_Array]
) -> tuple[_Array, Bools]:
    """Compute a column from its sources, before it is rounded.

    Args:
        rule: The formula and its factor.
        columns: How the sources are declared.
        sources: Their values: numbers, or datetimes in steps; one array each.

    Returns:
        One number per row, and in which rows a division by 0 gives no number.
    """
    with np.errstate(all="ignore"):
        values = np.asarray(_formula(rule, columns, sources) * rule.factor, dtype=np.float64)
    is_undefined = ~np.isfinite(values)
    return np.where(is_undefined, 0.0, values), is_undefined


def _formula(rule: Computed, columns: Sequence[Column], sources: Sequence[_Array]) -> Any:
    first, second = sources[0], sources[1]
    if rule.formula == "years":
        return _birthdays(*map(_days, columns, sources))
    if rule.formula == "days":
        start, end = map(_days, columns, sources)
        return end - start
    if rule.formula == "hours":
        coarse = coarser_step(*columns)
        start, end = (
            values * step_of(column) // coarse * coarse
            for column, values in zip(columns, sources, strict=True)
        )
        return (end - start) / _HOUR
    if rule.formula == "difference":
        return first - second
    if rule.formula == "ratio":
        return first / np.asarray(second, dtype=np.float64)
    if rule.formula == "bmi":
        return first / np.asarray(second, dtype=np.float64) ** 2
    return np.prod(np.array(sources, dtype=np.float64), axis=0)


def _days(column: Column, values: _Array) -> _Array:
    """Datetimes as days since 1970."""
    return values * step_of(column) // _DAY


def _birthdays(start: _Array, end: _Array) -> _Array:
    """Count the whole years between days; who was born on 29 February has March's first, too."""
    years, month_days = zip(*map(_calendar, (start, end)), strict=True)
    return np.asarray(years[1] - years[0] - (month_days[1] < month_days[0]))


def _calendar(days: _Array) -> tuple[_Array, _Array]:
    """The year of each day, and a number that rises from day to day of any year alike."""
    dates = np.asarray(days).astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    day = (dates - months).astype(np.int64)
    years = dates.astype("datetime64[Y]")
    month = (months - years.astype("datetime64[M]")).astype(np.int64)
    return years.astype(np.int64), month * 31 + day


def rounded_values(rule: Computed, column: Column, values: _Array) -> _Array:
    """Round computed numbers as the column has them: whole, or with its decimals."""
    whole = column.kind == "integer"
    if not whole and column.decimals is None:
        return values
    unit = 1.0 if whole else 10.0 ** -(column.decimals or 0)
    units = values / unit
    slack = _SLACK + np.abs(units) * 1e-12
    if rule.rounding == "down":
        units = np.floor(units + slack)
    elif rule.rounding == "up":
        units = np.ceil(units - slack)
    else:
        units = np.rint(units)
    if whole:
        return units.astype(np.int64)
    return np.round(units * unit, column.decimals or 0)


def does_follow(rule: Computed, column: Column, values: _Array, raw: _Array) -> Bools:
    """Say which values of a column are what its sources give, but for rounding."""
    near = 1e-9 * np.maximum(np.abs(raw), 1.0)
    whole = column.kind == "integer"
    if rule.rounding != "nearest":
        return np.asarray(np.abs(values - rounded_values(rule, column, raw)) <= near)
    if whole or column.decimals is not None:
        # Half a unit either way: programs round 2.5 to 2 or to 3.
        near = near + (0.5 if whole else 0.5 * 10.0 ** -(column.decimals or 0))
    return np.asarray(np.abs(values - raw) <= near)


def solved_source(
    rule: Computed,
    columns: Mapping[str, Column],
    values: Mapping[str, _Array],
    wanted: _Array,
    name: str,
    random: np.random.Generator,
) -> _Array:
    """Find the values of one source that give a computed column the values that are wanted.

    Args:
        rule: The formula.
        columns: How the sources are declared, by name.
        values: The sources' values; of datetimes in steps. The time of day of the source that is
            sought stays as it is here.
        wanted: What the column is to be.
        name: The source that is sought.
        random: Chooses a day within the year that an age allows.

    Returns:
        Values that may lie beyond the source's bounds, and that rounding may have moved.
    """
    size = wanted / rule.factor
    index = rule.sources.index(name)
    others = [np.asarray(values[n], dtype=np.float64) for n in rule.sources if n != name]
    if rule.formula in DATED:
        return _solved_time(rule, columns, values, size, index, random)
    with np.errstate(all="ignore"):
        if rule.formula == "difference":
            found = size + others[0] if index == 0 else others[0] - size
        elif rule.formula == "ratio":
            found = size * others[0] if index == 0 else others[0] / size
        elif rule.formula == "bmi":
            found = size * others[0] ** 2 if index == 0 else np.sqrt(others[0] / size)
        else:
            found = size / np.prod(np.array(others), axis=0)
    return np.where(np.isfinite(found), found, np.asarray(values[name], dtype=np.float64))


def _solved_time(
    rule: Computed,
    columns: Mapping[str, Column],
    values: Mapping[str, _Array],
    size: _Array,
    index: int,
    random: np.random.Generator,
) -> _Array:
    """Find the datetimes that lie so many years, days or hours before or after others."""
    sought, other = rule.sources[index], rule.sources[1 - index]
    step = step_of(columns[sought])
    sign = -1 if index == 0 else 1
    if rule.formula == "hours":
        moment = values[other] * step_of(columns[other]) + sign * np.rint(size * _HOUR)
        return np.asarray(moment // step, dtype=np.int64)
    day = _days(columns[other], values[other])
    if rule.formula == "days":
        found = day + sign * np.rint(size).astype(np.int64)
    else:
        dates = day.astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        shifted = months + (sign * np.rint(size).astype(np.int64) * 12).astype("timedelta64[M]")
        within_year = random.integers(0, 365, len(day))
        found = (shifted.astype("datetime64[D]") + (dates - months)).astype(np.int64)
        found = found + sign * within_year
    time_of_day = values[sought] % (_DAY // step)
    return np.asarray(found * (_DAY // step) + time_of_day, dtype=np.int64)
