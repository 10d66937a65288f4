"""Constraints that the rows of a table seem to keep, to be proposed and reviewed.

A column that decides another (a functional dependency, Armstrong 1974, "Dependency structures of
data base relationships") gives fixed combinations, and so do dummy variables, of which exactly one
is set in every row. A column that is at most another in every row gives an inequality. Columns may
add up to a total, follow from two others, be missing in the same rows, be missing unless a category
has some value, or have a range that a category decides. Each must be more than chance would give,
and more than bounds say already; its sentence has the numbers.

**Guarantee**: none. What is proposed is from the rows, and marked so.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import permutations
from math import lgamma, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from siloweave.errors import SchemaError
from siloweave.tables.arrays import Bools, Ints
from siloweave.tables.bins import BINNED, coarser_step, step_of
from siloweave.tables.cells import (
    CellValues,
    NumberRows,
    cells_of,
    groups_of,
    options_of,
    value_of,
)
from siloweave.tables.constraints import (
    CategoryRanges,
    ColumnSum,
    Computed,
    Constraint,
    FixedCombinations,
    Formula,
    Inequality,
    MissingTogether,
    MissingUnless,
    Rounding,
)
from siloweave.tables.formulas import does_follow, raw_values
from siloweave.tables.read import Table

if TYPE_CHECKING:
    from siloweave.tables.schema import Column, Schema

_ROWS = 50  # fewer show no rule
_FIRST = 2_000  # rows by which most pairs of columns are ruled out
_FEWEST_DUMMIES = 3  # columns of one category; of two, one decides the other
_LEVELS = 256  # values of a column that decides others, at most
_REPEATED = 10  # rows for each of them, on average
_EVIDENCE = 20.0  # how unlikely chance must be: minus the logarithm
_CROSSED = 0.1  # share of pairs of unrelated rows that would break a rule, at least
_CROSSED_DATES = 0.01  # and an order of dates, of which the ranges often overlap but little
# Words of dates before which, and after which, a person has no other: their names are evidence.
_BIRTH = frozenset({"birth", "born", "birthday", "birthdate", "dob", "geburt", "geboren"})
_DEATH = frozenset({"death", "died", "deceased", "dod", "tod", "gestorben"})
_APART = 0.382  # share of a table between unrelated rows; by no simple one may a table repeat
_YEARS = (1700, 2100)  # whole numbers that are all within these are years
_FEW = 20  # values of a category on which others depend, at most
_DIFFERENT = 0.5  # share of other rows without a category's single value, at least
_EDGE = 100  # rows expected just beyond a range, were it none
_UNITS = 3  # whole numbers that are just beyond it
_LONG = 10  # values of a category whose edge means something, at least
_PROBES = 32  # rows by which sums are looked up
_SEARCHED = 600_000  # pairs and runs of columns that may add up, at most
_DIGITS = 6  # decimals of numbers that are added up, at most
_EXACT = 2**53
_CELLS = 5_000_000  # numbers that are compared by a category at once
_WORD = re.compile("[A-Z]?[a-z]{2,}|[A-Z]{2,}")  # of a column's name
_SHOWN = 4  # columns that a sentence names
_Codes = Ints
_Cells = Mapping[str, CellValues]


def proposed(table: Table, schema: Schema) -> tuple[Constraint, ...]:
    """Return constraints that all rows keep, marked as from data.

    Args:
        table: All rows; some may hold nothing in a column.
        schema: Of its columns. One that rows do not fit is left out: `check` shows these rows.

    Returns:
        Fixed combinations, sums, computed columns, inequalities, columns missing together, columns
        missing unless a category has some value, and ranges by a category. `Constraint.why` has
        what was seen.

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

    dummies = _dummies(columns, cells)
    in_dummies = {name for names in dummies for name in names}
    alone = [c for c in columns if c.name not in in_dummies]

    # Numbers with decimals that follow from others have a formula, which says more than a list of
    # combinations does. What is left of them may still have a few values that others decide.
    groups = _deciding({c.name: cells[c.name] for c in alone if c.kind != "continuous"})
    free = _numbers_but(alone, groups)
    sums = _sums(free, cells)
    computed = _computed(free, cells, sums)
    formulas: list[ColumnSum | Computed] = [*sums, *computed]
    in_formulas = {name for rule in formulas for name in rule.columns}
    groups = _deciding({c.name: cells[c.name] for c in alone if c.name not in in_formulas})
    free = _numbers_but(alone, groups)

    groups = [*dummies, *groups]
    combinations = [_combinations(schema, cells, names) for names in groups]
    combined = {name: place for place, names in enumerate(groups) for name in names}
    within = {(part, rule.total) for rule in sums for part in rule.parts}
    together = _together([c for c in columns if c.missing], cells, combined)
    rules: list[Constraint] = [*combinations, *sums, *computed]
    rules += [*_ordered(free, cells, within), *together]
    rules += _unless(columns, cells, together, combined)
    rules += _ranges(columns, cells, combined)
    return tuple(replace(rule, from_data=True) for rule in rules if _is_possible(rule, schema))


def _is_possible(rule: Constraint, schema: Schema) -> bool:
    """Whether the declared columns can have a constraint that the rows keep."""
    try:
        rule.check({column.name: column for column in schema.columns})
    except SchemaError:
        return False
    return True


def _numbers_but(columns: Sequence[Column], groups: Sequence[Sequence[str]]) -> list[Column]:
    """Return the columns of numbers and datetimes that are in no group."""
    grouped = {name for names in groups for name in names}
    return [c for c in columns if c.kind in BINNED and c.name not in grouped]


def _dummies(columns: Sequence[Column], cells: _Cells) -> list[tuple[str, ...]]:
    """Return groups of columns beside each other of which exactly one is set in every row.

    They are the dummy variables of one category, made by most tools in this order. A column is set
    where it has the later of its two codes: 1, true or "yes".
    """
    groups: list[tuple[str, ...]] = []
    window: list[tuple[str, Bools]] = []
    set_columns = np.zeros(0, dtype=np.int64)  # of each row, among the columns of the window
    for column in columns:
        is_set = _is_set(column, cells[column.name])
        if is_set is None:
            window = []
            continue
        set_columns = set_columns + is_set if window else is_set.astype(np.int64)
        window.append((column.name, is_set))
        # A row with two set columns: the group, if there is one, begins after the earlier of them.
        while set_columns.max() > 1:
            _, first_is_set = window.pop(0)
            set_columns = set_columns - first_is_set
        if not np.all(set_columns == 1):
            continue
        varied = sum(bool(is_set_there.any()) for _, is_set_there in window)
        if varied >= _FEWEST_DUMMIES:
            groups.append(tuple(name for name, _ in window))
            window = []
    return groups


def _is_set(column: Column, values: CellValues) -> Bools | None:
    """Return in which rows a column of two codes has the later one; None for other columns."""
    codes, gone = values
    if gone.any():
        return None
    if column.kind in ("boolean", "categorical"):
        return np.asarray(codes == 1) if options_of(column) == 2 else None
    if column.kind == "integer" and codes.min() >= 0 and codes.max() <= 1:
        return np.asarray(codes == 1)
    return None


def _deciding(cells: _Cells) -> list[tuple[str, ...]]:
    """Groups of columns, of which one decides the others; no column is in two."""
    codes: dict[str, _Codes] = {}
    for name, (values, gone) in cells.items():
        levels, places = np.unique(values, return_inverse=True)
        found = np.where(gone, len(levels), places.reshape(-1))
        if 1 < len(levels) + gone.any() <= _LEVELS:
            codes[name] = found
    most = {name: np.bincount(one).max() / len(one) for name, one in codes.items()}
    decided = {one: _decided(codes, most, one) for one in codes}
    groups: list[tuple[str, ...]] = []
    used: set[str] = set()
    for one in sorted(decided, key=lambda name: -len(decided[name])):
        others = [other for other in decided[one] if other not in used]
        if one not in used and others:
            names = tuple(name for name in cells if name == one or name in others)
            groups.append(names)
            used |= set(names)
    return sorted(groups, key=lambda names: list(cells).index(names[0]))


def _decided(codes: Mapping[str, _Codes], most: Mapping[str, float], one: str) -> list[str]:
    """Columns of which equal values go with equal ones of `one`, by more than chance."""
    own = codes[one]
    rows, levels = len(own), np.count_nonzero(np.bincount(own))
    if levels * _REPEATED > rows:
        return []
    found, few = [], slice(None, None, max(rows // _FIRST, 1))
    for name, other in codes.items():
        # The commonest value's share is what chance gives a pair of rows.
        if name == one or (rows - levels) * -np.log(most[name]) <= _EVIDENCE:
            continue
        if _decides(own[few], other[few]) and _decides(own, other):
            found.append(name)
    return found


def _decides(one: _Codes, other: _Codes) -> bool:
    """Whether no value of one column goes with two of the other."""
    pairs = np.bincount(one * (int(other.max()) + 1) + other)
    return bool(np.count_nonzero(pairs) == np.count_nonzero(np.bincount(one)))


def _combinations(schema: Schema, cells: _Cells, names: Sequence[str]) -> FixedCombinations:
    """The combinations that rows have, in the order of the columns' values."""
    columns, own = [schema[name] for name in names], [cells[name] for name in names]
    first, _ = groups_of(own)
    found = [one.take(first) for one in own]
    order = np.lexsort([key for one in reversed(found) for key in (one.values, one.gone)])
    lists = [
        [None if gone else value_of(c, n) for n, gone in zip(*one.take(order), strict=True)]
        for c, one in zip(columns, found, strict=True)
    ]
    rows = tuple(zip(*lists, strict=True))
    why = (
        f"{' and '.join(names)} occur in {len(rows)} combinations only, in all "
        f"{len(own[0].gone):,} rows: drawn rows will have these"
    )
    return FixedCombinations(tuple(names), rows, why=why)


# Orders


def _ordered(
    columns: Sequence[Column], cells: _Cells, within: set[tuple[str, str]]
) -> list[Inequality]:
    """Inequalities between columns of one kind that no others imply, nor a sum."""
    found: dict[tuple[str, str], Inequality] = {}
    names = {column.name: _Name(_words(column), _are_years(column, cells)) for column in columns}
    for low in columns:
        for high in columns:
            if low is high or not _alike(low, high, names):
                continue
            if rule := _below(low, high, cells, names):
                found[low.name, high.name] = rule
    return [
        found[low, high]
        for low, high in sorted(found)
        if (high, low) not in found
        and (low, high) not in within
        and not any((low, name) in found and (name, high) in found for name in names)
    ]


class _Name(NamedTuple):
    """What a column's name and its numbers say of its kind."""

    words: set[str]
    has_years: bool


def _alike(low: Column, high: Column, names: Mapping[str, _Name]) -> bool:
    """Whether two columns hold datetimes, or years, or numbers that share a word."""
    if "datetime" in (low.kind, high.kind):
        return low.kind == high.kind
    one, other = names[low.name], names[high.name]
    if one.has_years and other.has_years:
        return True
    return not one.words.isdisjoint(other.words)


def _words(column: Column) -> set[str]:
    """The words of a column's name."""
    return {word.lower() for word in _WORD.findall(column.name.replace("_", " "))}


def _are_years(column: Column, cells: _Cells) -> bool:
    """Whether all of a column's whole numbers are years."""
    values, gone = cells[column.name]
    if column.kind != "integer" or gone.all():
        return False
    there = values[~gone]
    return bool(there.min() >= _YEARS[0] and there.max() <= _YEARS[1])


def _below(
    low: Column, high: Column, cells: _Cells, names: Mapping[str, _Name]
) -> Inequality | None:
    """An inequality if one column is at most the other in every row, and not by range alone."""
    there = ~cells[low.name].gone & ~cells[high.name].gone
    a, b = cells[low.name].values[there], cells[high.name].values[there]
    dated = low.kind == "datetime"
    if dated:
        coarse = coarser_step(low, high)
        a, b = a * step_of(low) // coarse, b * step_of(high) // coarse
    if len(a) < _ROWS or (a[:_FIRST] > b[:_FIRST]).any() or (a > b).any():
        return None
    crossed = float((a > _unrelated(b)).mean())
    one, other = names[low.name], names[high.name]
    is_calendar = dated or (one.has_years and other.has_years)
    is_life = is_calendar and bool(one.words & _BIRTH or other.words & _DEATH)
    least = _CROSSED_DATES if is_calendar else _CROSSED
    if not is_life and (crossed <= least or not _is_unlikely(len(a), crossed)):
        return None
    if is_life and a.max() <= b.min():  # which the bounds say already
        return None
    why = (
        f"{low.name} <= {high.name} in all {len(a):,} rows that have both, and {crossed:.1%} of "
        "rows paired at random break it: drawn rows will keep it"
    )
    return Inequality(low.name, high.name, why=why)


def _unrelated(values: NDArray[Any]) -> NDArray[Any]:
    """Values of other rows, one for each row."""
    return np.roll(values, round(_APART * len(values)))


def _is_unlikely(rows: int, share: float, tests: int = 1) -> bool:
    """Whether no row of many breaks a rule that this share of unrelated rows would break.

    A rule that is the best of many tests needs more evidence.
    """
    return share >= 1 or rows * -np.log1p(-share) > _EVIDENCE + log(max(tests, 1))


# Sums


def _sums(columns: Sequence[Column], cells: _Cells) -> list[ColumnSum]:
    """Totals of two columns, or of several columns that stand beside each other."""
    numbers = [
        column
        for column in columns
        if column.kind == "integer" or (column.kind == "continuous" and column.decimals is not None)
    ]
    digits = max((column.decimals or 0 for column in numbers), default=0)
    if digits > _DIGITS:
        numbers = [column for column in numbers if (column.decimals or 0) <= _DIGITS]
        digits = _DIGITS
    scaled: dict[str, NDArray[np.float64]] = {}
    for column in numbers:
        values = np.rint(
            np.where(cells[column.name].gone, 0, cells[column.name].values) * 10.0**digits
        )
        if len(values) and np.abs(values).max() < _EXACT / len(numbers) and np.ptp(values) > 0:
            scaled[column.name] = values + 0.0  # no -0, whose bytes differ

    # A total is missing where a part is, so parts are there wherever it is.
    totals: dict[bytes, list[str]] = defaultdict(list)
    for name in scaled:
        totals[np.packbits(cells[name].gone).tobytes()].append(name)
    found: list[ColumnSum] = []
    searched = 0
    for names in totals.values():
        there = ~cells[names[0]].gone
        parts = [name for name in scaled if not (cells[name].gone & there).any()]
        searched += len(parts) ** 2
        if there.sum() < _ROWS or len(parts) < 3 or searched > _SEARCHED:
            continue
        own = {name: scaled[name][there] for name in parts}
        for total, adders in _candidates(own, names):
            rule = _sum_of(own, adders, total, [column.name for column in columns])
            is_exact = rule is not None and _gaps_agree(cells, adders, total)
            if rule is not None and is_exact and all(one.total != total for one in found):
                found.append(rule)
    order = [column.name for column in columns]
    return sorted(found, key=lambda rule: order.index(rule.total))


def _gaps_agree(cells: _Cells, parts: Sequence[str], total: str) -> bool:
    """Whether a total is missing exactly where a part is."""
    lost = np.any([cells[name].gone for name in parts], axis=0)
    return bool((lost == cells[total].gone).all())


def _candidates(
    own: Mapping[str, NDArray[np.float64]], totals: Sequence[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Totals and parts that agree in a few rows, those of two parts first.

    Rows are those with the fewest zeros, which say the most.
    """
    names = list(own)
    few = slice(None, None, max(len(own[names[0]]) // _FIRST, 1))
    filled = np.sum([own[name][few] != 0 for name in names], axis=0)
    rows = np.argsort(-filled, kind="stable")[:_PROBES]
    probes = np.array([own[name][few][rows] for name in names])
    wanted: dict[bytes, list[str]] = defaultdict(list)
    for total in totals:
        wanted[(probes[names.index(total)] + 0.0).tobytes()].append(total)

    # Two columns anywhere.
    for i, name in enumerate(names):
        pairs = probes[i] + probes[i + 1 :]
        for j, values in enumerate(pairs, start=i + 1):
            for total in wanted.get(values.tobytes(), ()):
                if total not in (name, names[j]):
                    yield total, (name, names[j])
    # Three columns or more that stand beside each other.
    for i in range(len(names)):
        for j, values in enumerate(np.cumsum(probes[i:], axis=0), start=i):
            if j < i + 2:
                continue
            for total in wanted.get(values.tobytes(), ()):
                if total not in names[i : j + 1]:
                    yield total, tuple(names[i : j + 1])


def _sum_of(
    own: Mapping[str, NDArray[np.float64]], parts: Sequence[str], total: str, order: Sequence[str]
) -> ColumnSum | None:
    """A sum if it holds in every row, and each part has its share in it."""
    summed = np.sum([own[name] for name in parts], axis=0)
    if (summed != own[total]).any() or len(np.unique(own[total])) < _REPEATED:
        return None
    crossed = min(float((_unrelated(own[name]) != own[name]).mean()) for name in parts)
    if crossed <= _CROSSED or not _is_unlikely(len(summed), crossed):
        return None
    names = tuple(sorted(parts, key=order.index))
    why = (
        f"{' + '.join(names)} = {total} in all {len(summed):,} rows that have them: {total} will "
        "be computed in drawn rows"
    )
    return ColumnSum(names, total, why=why)


# Columns computed from others


class _Recipe(NamedTuple):
    """How a column may follow from two others.

    Attributes:
        formula: As of `Computed`.
        factor: By which its result is multiplied.
        rounding: To the column's decimals.
    """

    formula: Formula
    factor: int | float = 1
    rounding: Rounding = "nearest"


_Candidate = tuple[_Recipe, tuple["Column", "Column"], "Column"]  # a recipe, sources and target
# In the order in which they are tried: what needs no rounding first.
_OF_NUMBERS = (
    _Recipe("product"),
    *(_Recipe("bmi", factor) for factor in (1, 10_000, 703)),  # metres, centimetres, pounds
    *(_Recipe("ratio", factor) for factor in (1, 100, 1_000)),  # also per cent and per thousand
)
_OF_DATES = (
    _Recipe("years"),
    _Recipe("days"),
    _Recipe("hours"),
    *(_Recipe("days", 1 / size) for size in (7, 365.25, 365)),
    *(_Recipe("days", 1 / size, "down") for size in (7, 365.25, 365)),
)


def _computed(
    columns: Sequence[Column], cells: _Cells, sums: Sequence[ColumnSum]
) -> list[Computed]:
    """Columns that follow from two dates or two numbers in every row: an age, a stay, a BMI.

    Each has one rule, none goes round in a circle, and three columns are in one rule at most.
    """
    dates = [column for column in columns if column.kind == "datetime"]
    numbers = [column for column in columns if column.kind != "datetime"]
    found: dict[str, Computed] = {}
    used: set[frozenset[str]] = {frozenset(rule.columns) for rule in sums}
    above: dict[str, set[str]] = {rule.total: set(rule.parts) for rule in sums}
    tests = len(numbers) * (len(dates) ** 2 * len(_OF_DATES) + len(numbers) ** 2 * len(_OF_NUMBERS))
    order = (*_OF_DATES, *_OF_NUMBERS)
    candidates = sorted(_promising(dates, numbers, cells), key=lambda one: order.index(one[0]))
    for recipe, sources, target in candidates:
        names = frozenset((sources[0].name, sources[1].name, target.name))
        if target.name in above or names in used:
            continue
        if any(target.name in _reached(above, source.name) for source in sources):
            continue
        if rule := _rule_of(recipe, sources, target, cells, tests):
            found[target.name] = rule
            above[target.name] = set(rule.sources)
            used.add(names)
    return [found[column.name] for column in columns if column.name in found]


def _reached(above: Mapping[str, set[str]], name: str) -> set[str]:
    """The columns from which one is computed, itself among them."""
    reached, waiting = {name}, [name]
    while waiting:
        sources = above.get(waiting.pop(), set()) - reached
        reached |= sources
        waiting += sources
    return reached


class _Sample(NamedTuple):
    """Columns in a few rows in which all of them have a value.

    Attributes:
        columns: The columns.
        values: Of each column, in these rows: numbers, or datetimes in steps.
    """

    columns: tuple[Column, ...]
    values: NDArray[np.float64]


def _promising(
    dates: Sequence[Column], numbers: Sequence[Column], cells: _Cells
) -> Iterator[_Candidate]:
    """Recipes, sources and targets that agree in a few rows."""
    # A column is missing where a source is, so sources are there wherever it is.
    targets: dict[bytes, list[Column]] = defaultdict(list)
    for column in numbers:
        targets[np.packbits(cells[column.name].gone).tobytes()].append(column)
    searched = 0
    for group in targets.values():
        rows = np.flatnonzero(~cells[group[0].name].gone)
        if len(rows) < _ROWS:
            continue
        filled = [c for c in (*dates, *numbers) if not cells[c.name].gone[rows].any()]
        times = [column for column in filled if column.kind == "datetime"]
        few = rows[:: len(rows) // _PROBES][:_PROBES]
        yield from _of_pairs(_sample(times, cells, few), _sample(group, cells, few))

        sources = [column for column in filled if column.kind != "datetime"]
        searched += len(sources) ** 2 * len(group)
        if len(sources) < 3 or searched > _SEARCHED:
            continue
        for target in group:
            few = _varied_rows(cells[target.name].values, rows)
            if len(few) >= _REPEATED:
                yield from _of_numbers(_sample(sources, cells, few), target)


def _sample(columns: Sequence[Column], cells: _Cells, rows: Ints) -> _Sample:
    """Some columns in some rows."""
    values = [cells[column.name].values[rows].astype(np.float64) for column in columns]
    return _Sample(tuple(columns), np.array(values).reshape(len(columns), len(rows)))


def _varied_rows(values: NDArray[Any], rows: Ints) -> Ints:
    """A few rows in which a column has different values, the largest first.

    Rows of one value, mostly 0, agree with too many recipes.
    """
    some = rows[:: max(len(rows) // (_PROBES * _PROBES), 1)]
    _, first = np.unique(values[some], return_index=True)
    return some[first[::-1]][:: max(len(first) // _PROBES, 1)][:_PROBES]


def _of_pairs(dates: _Sample, targets: _Sample) -> Iterator[_Candidate]:
    """Columns that agree with a recipe of two dates."""
    units = _units(targets.columns)[:, None]
    for recipe in _OF_DATES:
        for pair in permutations(range(len(dates.columns)), 2):
            sources = (dates.columns[pair[0]], dates.columns[pair[1]])
            steps = [dates.values[place].astype(np.int64) for place in pair]
            raw, _ = raw_values(_rule(recipe, sources, targets.columns[0]), sources, steps)
            agreeing = _agrees(recipe, raw, targets.values, units).all(axis=1)
            for place in np.flatnonzero(agreeing if np.ptp(raw) else []):
                yield recipe, sources, targets.columns[place]


def _of_numbers(numbers: _Sample, target: Column) -> Iterator[_Candidate]:
    """Pairs of numbers from which a column may follow: all pairs at once, row by row."""
    columns, count = numbers.columns, len(numbers.columns)
    own = [column.name for column in columns].index(target.name)
    unit = _units((target,))
    pairs = np.arange(count * count)
    for recipe in _OF_NUMBERS:
        first, second = pairs // count, pairs % count
        # A product is the same whichever is first.
        is_pair = first < second if recipe.formula == "product" else first != second
        is_pair &= (first != own) & (second != own)
        first, second = first[is_pair], second[is_pair]
        rule = _rule(recipe, (columns[0], columns[1]), target)
        for values in numbers.values.T:
            raw, is_undefined = raw_values(rule, columns[:2], [values[first], values[second]])
            agrees = _agrees(recipe, raw, values[own], unit) & ~is_undefined
            first, second = first[agrees], second[agrees]
            if not first.size:
                break
        for one, other in zip(first, second, strict=True):
            yield recipe, (columns[one], columns[other]), target


def _units(columns: Sequence[Column]) -> NDArray[np.float64]:
    """The unit of each column's last place; 0 for numbers without one."""
    decimals = [0 if column.kind == "integer" else column.decimals for column in columns]
    return np.array([0.0 if places is None else 10.0**-places for places in decimals])


def _agrees(recipe: _Recipe, raw: NDArray[Any], values: NDArray[Any], units: NDArray[Any]) -> Bools:
    """Whether values may be what a recipe gives, once it is rounded."""
    near = 1e-9 * np.maximum(np.abs(raw), 1.0)
    below = 1.0 if recipe.rounding == "down" else 0.5
    is_low = values >= raw - below * units - near
    return np.asarray(is_low & (values <= raw + (1.0 - below) * units + near))


def _rule(recipe: _Recipe, sources: tuple[Column, Column], target: Column) -> Computed:
    """A recipe for some columns."""
    names = (sources[0].name, sources[1].name)
    return Computed(target.name, recipe.formula, names, recipe.factor, recipe.rounding)


def _rule_of(
    recipe: _Recipe, sources: tuple[Column, Column], target: Column, cells: _Cells, tests: int
) -> Computed | None:
    """A rule that holds in every row, and that rows with another row's source would often break."""
    rule = _rule(recipe, sources, target)
    gone = cells[sources[0].name].gone | cells[sources[1].name].gone
    own = [cells[column.name].values for column in sources]
    raw, is_undefined = raw_values(rule, sources, own)
    is_missing = gone | is_undefined
    values = cells[target.name]
    if (is_missing != values.gone).any() or (~is_missing).sum() < _ROWS:
        return None
    there = ~is_missing
    if not does_follow(rule, target, values.values[there], raw[there]).all():
        return None
    if len(np.unique(values.values[there])) < _REPEATED:
        return None

    # Each source must decide: with that of another row, the result is mostly another.
    crossed = 1.0
    for place in range(2):
        mixed = [array[there] for array in own]
        mixed[place] = _unrelated(mixed[place])
        other, is_none = raw_values(rule, sources, mixed)
        follows = does_follow(rule, target, values.values[there], other) & ~is_none
        crossed = min(crossed, float((~follows).mean()))
    rows = int(there.sum())
    if crossed <= _CROSSED or not _is_unlikely(rows, crossed, tests):
        return None
    why = f"{rule.words} in all {rows:,} rows that have them: it will be computed in drawn rows"
    return replace(rule, why=why)


# What is missing


def _together(
    columns: Sequence[Column], cells: _Cells, combined: Mapping[str, int]
) -> list[MissingTogether]:
    """Columns that are missing in the same rows, as those of one questionnaire are."""
    groups: dict[bytes, list[str]] = defaultdict(list)
    for column in columns:
        gone = cells[column.name].gone
        if min(gone.sum(), (~gone).sum()) >= _REPEATED:
            groups[np.packbits(gone).tobytes()].append(column.name)
    found = []
    for names in groups.values():
        # Columns of one combination are missing together by it; those of another cannot follow.
        lead = next((combined[name] for name in names if name in combined), None)
        kept = [name for name in names if combined.get(name, lead) == lead]
        gone = cells[names[0]].gone
        rows, lost = len(gone), int(gone.sum())
        is_known = all(name in combined for name in kept)
        if len(kept) < 2 or is_known or _log_choices(rows, lost) <= _EVIDENCE:
            continue
        why = (
            f"{_some(kept)} are missing together in {lost:,} of {rows:,} rows, and all there in "
            "the others: drawn rows will have all of them or none"
        )
        found.append(MissingTogether(tuple(kept), why=why))
    return found


def _log_choices(rows: int, chosen: int) -> float:
    """The logarithm of in how many ways so many rows can be chosen: of chance's inverse."""
    return lgamma(rows + 1) - lgamma(chosen + 1) - lgamma(rows - chosen + 1)


def _some(names: Sequence[str]) -> str:
    """Names of columns, the first of them where there are many."""
    if len(names) == 1:
        return names[0]
    if len(names) <= _SHOWN:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[: _SHOWN - 1])} and {len(names) - _SHOWN + 1} more"


def _unless(
    columns: Sequence[Column],
    cells: _Cells,
    together: Sequence[MissingTogether],
    combined: Mapping[str, int],
) -> list[MissingUnless]:
    """Columns that are missing unless a category has some value, or another questionnaire is."""
    grouped = {name for rule in together for name in rule.columns}
    alone = [(c.name,) for c in columns if c.missing and c.name not in grouped]
    fields = [*(rule.columns for rule in together), *alone]
    deciding = [c for c in columns if 2 <= len(c.options) <= _FEW]
    leads = {group: _lead(group, columns) for group in (rule.columns for rule in together)}
    leads |= _opposite_leads(alone, columns, cells)
    tests = len(fields) * (len(deciding) + len(leads))
    found: list[MissingUnless] = []
    apart: set[frozenset[tuple[str, ...]]] = set()
    for names in fields:
        dependent = tuple(name for name in names if name not in combined)
        if not dependent:
            continue
        gone = cells[dependent[0]].gone
        if min(gone.sum(), (~gone).sum()) < _REPEATED:
            continue

        # The category that says most; what is missing itself is no such category.
        rules = []
        for by in deciding:
            is_plain = by.name not in names and not cells[by.name].gone.any()
            if is_plain and (rule := _unless_by(dependent, by, cells, tests)):
                rules.append(rule)
        barred = np.zeros(len(gone), dtype=np.bool_)
        if rules:
            best = min(rules, key=lambda rule: (not rule.required, len(rule.values)))
            found.append(best)
            by = next(c for c in deciding if c.name == best.by)
            allowed = [by.options.index(value) for value in best.values]
            barred = ~np.isin(cells[by.name].values, allowed)

        # Other columns that are never there with these, which that does not say already.
        for group, lead in leads.items():
            pair = frozenset((names, group))
            if lead is None or len(pair) < 2 or pair in apart:
                continue
            if rule := _unless_gone(dependent, lead, cells, barred, tests):
                found.append(rule)
                apart.add(pair)
    return found


def _opposite_leads(
    alone: Sequence[tuple[str]], columns: Sequence[Column], cells: _Cells
) -> dict[tuple[str, ...], Column | None]:
    """Categories, each a column by itself, that are there exactly where some column is missing."""
    lost = {np.packbits(cells[c.name].gone).tobytes() for c in columns if c.missing}
    leads: dict[tuple[str, ...], Column | None] = {}
    for names in alone:
        is_opposite = np.packbits(~cells[names[0]].gone).tobytes() in lost
        if is_opposite and (lead := _lead(names, columns)):
            leads[names] = lead
    return leads


def _lead(names: Sequence[str], columns: Sequence[Column]) -> Column | None:
    """The first of some columns that has few categories."""
    return next((c for c in columns if c.name in names and 1 <= len(c.options) <= _FEW), None)


def _unless_gone(
    dependent: tuple[str, ...], by: Column, cells: _Cells, barred: Bools, tests: int
) -> MissingUnless | None:
    """A rule for columns that are never there where another one is, and are often there else.

    Where they are there in all other rows, the rule says that, too: exactly one of the two is.
    """
    gone, there = cells[dependent[0]].gone, ~cells[by.name].gone
    if (there & ~gone).any():
        return None
    rows = int((there & ~barred).sum())
    share = float((~gone[~barred]).mean())
    if rows < _REPEATED or not _is_unlikely(rows, share, tests):
        return None
    required = bool((there == gone).all()) and int((~there).sum()) >= _ROWS
    others = f", and there in all {int((~there).sum()):,} others" if required else ""
    why = (
        f"{_some(dependent)}: missing in all {int(there.sum()):,} rows that have a {by.name}"
        f"{others}: drawn rows will keep it"
    )
    return MissingUnless(dependent, by.name, (None,), required, why=why)


def _unless_by(
    dependent: tuple[str, ...], by: Column, cells: _Cells, tests: int
) -> MissingUnless | None:
    """A rule for columns that are there in some of a category's values alone, and often there."""
    gone, codes = cells[dependent[0]].gone, cells[by.name].values
    rows = np.bincount(codes, minlength=len(by.options))
    filled = np.bincount(codes[~gone], minlength=len(by.options))
    empty = (rows > 0) & (filled == 0)
    barred, share = int(rows[empty].sum()), float((~gone).mean())
    if not empty.any() or not _is_unlikely(barred, share, tests):
        return None
    if rows[empty].min() < _REPEATED or filled[filled > 0].min() < _REPEATED:
        return None
    values = tuple(by.options[i] for i in np.flatnonzero(filled))
    required = bool((rows == filled)[filled > 0].all())
    others = ", and there in all others" if required else ""
    why = (
        f"{_some(dependent)}: missing in all {barred:,} rows in which {by.name} is not "
        f"{' or '.join(map(repr, values))}{others}: drawn rows will keep it"
    )
    return MissingUnless(dependent, by.name, values, required, why=why)


# Ranges


class _Ends:
    """A column's values in each category of another: how many, the least and the largest.

    Attributes:
        column: The column.
        by: The other.
        values: Of rows that have both; as floats.
        codes: Of the categories in these rows.
        ordered: The values, ascending.
        low, high, rows: By category; the first two mean nothing where there is no row.
    """

    def __init__(
        self,
        column: Column,
        by: Column,
        order: Ints,
        one: CellValues,
        other: CellValues,
        ordered: NDArray[np.float64],
    ) -> None:
        there = (~one.gone & ~other.gone)[order]
        self.column, self.by = column, by
        self.values = one.values[order][there].astype(np.float64)
        self.codes = other.values[order][there]
        self.ordered = np.sort(self.values) if other.gone.any() else ordered
        options = len(by.options)
        self.rows = np.bincount(self.codes, minlength=options)
        self.low, self.high = np.zeros(options), np.zeros(options)
        filled = np.flatnonzero(self.rows)
        if filled.size:
            starts = np.searchsorted(self.codes, filled)
            self.low[filled] = np.minimum.reduceat(self.values, starts)
            self.high[filled] = np.maximum.reduceat(self.values, starts)

    def beyond(self, category: int) -> tuple[float, float]:
        """Shares of the other categories' rows that are below its least and above its largest."""
        rest = len(self.values) - self.rows[category]
        below = np.searchsorted(self.ordered, self.low[category], side="left")
        above = np.searchsorted(self.ordered, self.high[category], side="right")
        return float(below / rest), float((len(self.values) - above) / rest)


def _ranges(
    columns: Sequence[Column], cells: _Cells, combined: Mapping[str, int]
) -> list[CategoryRanges]:
    """Columns whose range a category decides, by the category that does so in most rows."""
    deciding = [c for c in columns if 2 <= len(c.options) <= _FEW]
    numbers = [c for c in columns if c.kind in BINNED]
    tests = sum(len(by.options) for by in deciding) * len(numbers)
    best: dict[str, tuple[int, CategoryRanges]] = {}
    if not deciding or not numbers:
        return []
    wide = max(_CELLS // len(cells[numbers[0].name].gone), 1)
    for first in range(0, len(numbers), wide):
        some = numbers[first : first + wide]
        sorted_values = {
            c.name: np.sort(cells[c.name].values[~cells[c.name].gone].astype(np.float64))
            for c in some
        }
        number_rows = NumberRows([cells[c.name] for c in some])
        for by in deciding:
            places = _worth_a_look(number_rows, some, cells[by.name])
            if not places:
                continue
            # Codes of a byte are sorted several times as fast.
            order = np.argsort(cells[by.name].values.astype(np.int8), kind="stable")
            for place in places:
                column = some[place]
                if combined.get(column.name, -1) == combined.get(by.name, -2):
                    continue
                one, other = cells[column.name], cells[by.name]
                ends = _Ends(column, by, order, one, other, sorted_values[column.name])
                ranges = _bands(ends) or _limits(ends, tests)
                codes = [by.options.index(category) for category, _, _ in ranges]
                rows = int(ends.rows[codes].sum())
                if ranges and rows > best.get(column.name, (0, None))[0]:
                    why = _said(column, by, ranges, rows)
                    best[column.name] = rows, CategoryRanges(column.name, by.name, ranges, why=why)
    return [best[column.name][1] for column in numbers if column.name in best]


def _worth_a_look(numbers: NumberRows, columns: Sequence[Column], by: CellValues) -> list[int]:
    """Which columns may have a range by a category, of many columns at once.

    Args:
        numbers: The columns.
        columns: How these are declared.
        by: The category of each row.

    Returns:
        Places of columns with ranges that do not overlap, a category of one value, or enough rows
        to show an edge.
    """
    low, high, rows = numbers.ends(by)
    if len(rows) < 2:
        return []

    order = np.argsort(low, axis=0)
    lows = np.take_along_axis(low, order, axis=0)
    reached = np.maximum.accumulate(np.take_along_axis(high, order, axis=0), axis=0)
    is_apart = ((lows[1:] > reached[:-1]) & np.isfinite(lows[1:])).any(axis=0)
    is_single = ((low == high) & (rows >= _ROWS)).any(axis=0)
    # An edge has many rows on both sides.
    is_whole = np.array([column.kind == "integer" for column in columns])
    may_end = ((low > low.min(axis=0)) | (high < high.max(axis=0))) & (rows >= _ROWS)
    has_edge = is_whole & may_end.any(axis=0) & (rows.sum(axis=0) >= 2 * _EDGE)
    return np.flatnonzero(is_apart | is_single | has_edge).tolist()


_Range = tuple[Any, Any, Any]  # a category, its least value and its largest


def _bands(ends: _Ends) -> tuple[_Range, ...]:
    """Ranges of which no two overlap, each of one category or of several; open at both ends."""
    filled = sorted(np.flatnonzero(ends.rows).tolist(), key=lambda i: ends.low[i])
    bands: list[list[int]] = []
    last = -np.inf
    for i in filled:
        if ends.low[i] > last:
            bands.append([])
        bands[-1].append(i)
        last = max(last, ends.high[i])
    sizes = [int(ends.rows[band].sum()) for band in bands]
    if len(bands) < 2 or min(sizes) < _REPEATED or sum(sizes) < _ROWS:
        return ()
    ranges: list[_Range] = []
    for place, band in enumerate(bands):
        low, high = float(ends.low[band].min()), float(ends.high[band].max())
        is_open = low != high
        least = None if place == 0 and is_open else value_of(ends.column, low)
        most = None if place == len(bands) - 1 and is_open else value_of(ends.column, high)
        ranges += [(ends.by.options[i], least, most) for i in band]
    return tuple(ranges)


def _limits(ends: _Ends, tests: int) -> tuple[_Range, ...]:
    """Single values at an end, and edges that many rows of a category reach and none passes."""
    ranges: list[_Range] = []
    for i in np.flatnonzero(ends.rows >= _ROWS).tolist():
        if ends.rows[i] == len(ends.values):
            continue
        below, above = ends.beyond(i)
        first, last = ends.low[i], ends.high[i]
        if first == last:
            at_end = first in (ends.ordered[0], ends.ordered[-1])
            is_rule = at_end and _is_unlikely(int(ends.rows[i]), below + above, tests)
            has_low = has_high = is_rule and below + above > _DIFFERENT
        else:
            has_low = below > _CROSSED and _is_edge(ends, i, 1)
            has_high = above > _CROSSED and _is_edge(ends, i, -1)
        if has_low or has_high:
            least = value_of(ends.column, first) if has_low else None
            most = value_of(ends.column, last) if has_high else None
            ranges.append((ends.by.options[i], least, most))
    return tuple(ranges)


def _is_edge(ends: _Ends, category: int, sign: int) -> bool:
    """Whether many rows of a category would lie just beyond its least value, were it as others are.

    How many follows from its rows within three units of the edge, and from the others' on both
    sides. The others must be about as many on both: a scale that ends there for all has no edge.
    Numbers that are not whole, or have few values, have no edge either: a category may just be rare
    at their end.

    Args:
        ends: The column and the category.
        category: Its code.
        sign: 1 for its least value, -1 for its largest.
    """
    if ends.column.kind != "integer":
        return False
    edge = sign * (ends.low[category] if sign == 1 else ends.high[category])
    own = sign * ends.values[ends.codes == category]
    everything = ends.ordered if sign == 1 else -ends.ordered[::-1]
    before, at_edge, past = np.searchsorted(everything, [edge - _UNITS, edge, edge + _UNITS])
    inside = int((own < edge + _UNITS).sum())
    others = int(past - at_edge) - inside
    beyond = int(at_edge - before)
    if min(others, beyond) < _EDGE or not 0.5 <= beyond / others <= 2:
        return False
    return inside * beyond / others >= _EDGE and len(np.unique(own)) >= _LONG


def _said(column: Column, by: Column, ranges: Sequence[_Range], rows: int) -> str:
    """What was seen of ranges by a category."""
    parts = []
    for category, low, high in ranges[:_SHOWN]:
        if low == high:
            words = f"{low}"
        elif low is None or high is None:
            words = f"at most {high}" if low is None else f"at least {low}"
        else:
            words = f"{low} to {high}"
        parts.append(f"{words} where {by.name} is {category!r}")
    more = ", and so on" if len(ranges) > _SHOWN else ""
    return (
        f"{column.name} is {', '.join(parts)}{more}, in all {rows:,} such rows: drawn rows will "
        "keep it"
    )
