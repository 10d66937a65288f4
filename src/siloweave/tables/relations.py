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
from itertools import chain, permutations
from math import lgamma, log
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from siloweave.errors import SchemaError
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.bins import coarser_step, step_of
from siloweave.tables.cells import (
    CellValues,
    NumberRows,
    bound_text,
    cells_of,
    groups_of,
    options_of,
    value_of,
)
from siloweave.tables.column import Column
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
from siloweave.tables.conversions import conversions, varied_rows
from siloweave.tables.formulas import (
    CALENDAR,
    does_follow,
    raw_values,
    smallest_size,
)
from siloweave.tables.table import Table

WIDE = 300
"""Of more columns, not all pairs are compared, which would take minutes for thousands."""
BLOCK = 100
"""Neighbouring columns of such a table that are compared."""
# So many pairs of rows are compared at once.
_PAIRS = 16
# Fewer rows show no rule.
_ROWS = 50
# So many rows rule out most pairs of columns.
_FIRST = 2_000
# Of two columns of one category, one decides the other: that is another rule.
_FEWEST_DUMMIES = 3
# A column that decides others has at most so many values.
_LEVELS = 256
# Each of its values has so many rows, on average.
_REPEATED = 10
# How unlikely chance must be: minus the logarithm of its probability.
_EVIDENCE = 20.0
# At least this share of pairs of unrelated rows would break a rule.
_CROSSED = 0.1
# An order of dates needs fewer: their ranges often overlap but little.
_CROSSED_DATES = 0.01
# Words of dates before which, and after which, a person has no other: their names are evidence.
_BIRTH = frozenset(
    {"birth", "born", "birthday", "birthdate", "dob", "geburt", "geboren"}
)
_DEATH = frozenset({"death", "died", "deceased", "dod", "tod", "gestorben"})
# Unrelated rows are this share of the table apart: a table may repeat by a simple one.
_APART = 0.382
# Whole numbers that are all within these are years.
_YEARS = (1700, 2100)
# A category on which others depend has at most so many values.
_FEW = 20
# At least this share of other rows lack a category's single value.
_DIFFERENT = 0.5
# So many rows would be expected just beyond a range, were it none.
_EDGE = 100
# So many whole numbers lie just beyond a range.
_UNITS = 3
# An edge means something where a category has so many values or more.
_LONG = 10
# Sums are looked up by so many rows.
_PROBES = 32
# At most so many pairs and runs of columns are searched for sums.
_SEARCHED = 600_000
# Numbers that are added up have at most so many decimals.
_DIGITS = 6
# Whole numbers up to here are all float64.
_EXACT = 2**53
# So many numbers are compared by a category at once.
_CELLS = 5_000_000
# One word of a column's name.
_WORD = re.compile("[A-Z]?[a-z]{2,}|[A-Z]{2,}")
# A sentence names at most so many columns.
_SHOWN = 4
_Codes = Ints
_Cells = Mapping[str, CellValues]


def proposed(table: Table, declared: Sequence[Column]) -> tuple[Constraint, ...]:
    """Propose constraints that all rows keep, marked as from data.

    Args:
        table: All rows; some may hold nothing in a column.
        declared: Its columns. One that rows do not fit is left out: `check` shows these rows.

    Returns:
        Fixed combinations, sums, computed columns, inequalities, columns missing together, columns
        missing unless a category has some value, and ranges by a category. `Constraint.why` has
        what was seen. Of more than `WIDE` columns, those of each `BLOCK` are compared.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> [rule.words for rule in proposed(adult(), adult_schema().columns)]
        ['fixed combinations of education, education-num']
    """
    if len(declared) <= WIDE:
        return _proposed_among(table, declared)
    rules: list[Constraint] = []
    for start in range(0, len(declared), BLOCK):
        rules += _proposed_among(table, declared[start : start + BLOCK])
    return tuple(rules)


def _proposed_among(table: Table, declared: Sequence[Column]) -> tuple[Constraint, ...]:
    """Propose constraints of some columns of a table, see `proposed`."""
    if table.num_rows < _ROWS:
        return ()
    cells = {}
    columns = []
    for column in declared:
        if column.modelled and column.name in table.names:
            with suppress(SchemaError):
                cells[column.name] = cells_of(column, table)
                columns.append(column)
    by_name = {column.name: column for column in declared}

    # Columns of a group of dummy variables are in no sum or order.
    dummies = _dummies(columns, cells)
    in_dummies = set(chain(*dummies))
    alone = [c for c in columns if c.name not in in_dummies]

    # Numbers with decimals that follow from others have a formula, which says more than a list of
    # combinations does. What is left of them may still have a few values that others decide.
    discrete = [c for c in alone if not c.is_continuous]
    groups = _with_dummies(discrete, dummies, cells)
    converted = _converted([c for c in alone if c.is_binned], cells, groups)
    free = _numbers_but(alone, groups)
    sums = _new_sums(_sums(free, cells), converted)
    computed = [*converted, *_computed(free, cells, [*converted, *sums])]
    order = [column.name for column in columns]
    computed.sort(key=lambda rule: order.index(rule.column))
    formulas: list[ColumnSum | Computed] = [*sums, *computed]
    in_formulas = set(chain(*(rule.columns for rule in formulas)))
    rest = [c for c in alone if c.name not in in_formulas]
    groups = _with_dummies(rest, dummies, cells)
    groups = _with_decided_gaps(groups, rest, cells)
    free = _numbers_but(alone, groups)
    combinations = [_combinations(by_name, cells, names) for names in groups]
    combined: dict[str, int] = {}
    for place, names in enumerate(groups):
        combined |= dict.fromkeys(names, place)

    # A part of a sum is smaller than its total anyway.
    within: set[tuple[str, str]] = set()
    for rule in sums:
        within |= {(part, rule.total) for part in rule.parts}
    # A copy says more than that it is at most its source, or at least.
    for copy in converted:
        source, target = copy.columns
        within |= {(source, target), (target, source)}

    optional = [c for c in columns if c.missing]
    together = _together(optional, cells, combined)
    rules: list[Constraint] = [*combinations, *formulas]
    rules += _ordered(free, cells, within)
    rules += together
    rules += _unless(columns, cells, together, combined)
    rules += _ranges(columns, cells, combined)
    possible = [rule for rule in rules if _is_possible(rule, by_name)]
    return tuple(replace(rule, from_data=True) for rule in possible)


def _is_possible(rule: Constraint, columns: Mapping[str, Column]) -> bool:
    """Return whether the declared columns can have a constraint that all rows keep."""
    try:
        rule.check(columns)
    except SchemaError:
        return False
    return True


def _numbers_but(
    columns: Sequence[Column], groups: Sequence[Sequence[str]]
) -> list[Column]:
    """Return the columns of numbers and datetimes that are in none of some groups."""
    grouped = set(chain(*groups))
    return [c for c in columns if c.is_binned and c.name not in grouped]


def _gap_pattern(cells: CellValues) -> bytes:
    """Return bytes that are equal for columns which are missing in the same rows."""
    return np.packbits(cells.gone).tobytes()


def _dummies(columns: Sequence[Column], cells: _Cells) -> list[tuple[str, ...]]:
    """Find groups of neighbouring columns of which exactly one is set in every row.

    They are the dummy variables of one category, made by most tools in this order. A column is set
    where it has the later of its two codes: 1, true or "yes".
    """
    groups: list[tuple[str, ...]] = []
    window: list[tuple[str, Bools]] = []
    # How many columns of the window are set, row by row.
    set_columns = np.zeros(0, dtype=np.int64)
    for column in columns:
        is_set = _is_set(column, cells[column.name])
        if is_set is None:
            window = []
            continue
        if not window:
            set_columns = np.zeros(len(is_set), dtype=np.int64)
        set_columns = set_columns + is_set
        window.append((column.name, is_set))
        # A row with two set columns: the group, if there is one, begins after the earlier of them.
        while set_columns.max() > 1:
            _, first_is_set = window.pop(0)
            set_columns = set_columns - first_is_set
        if not np.all(set_columns == 1):
            continue
        varied = sum(bool(cells_set.any()) for _, cells_set in window)
        if varied >= _FEWEST_DUMMIES:
            groups.append(tuple(name for name, _ in window))
            window = []
    return groups


def _is_set(column: Column, cells: CellValues) -> Bools | None:
    """Return the rows in which a column of two codes has the later one; None for others."""
    if cells.gone.any():
        return None
    codes = cells.values
    has_two = False
    if column.is_choice:
        has_two = options_of(column) == 2
    if column.is_whole:
        has_two = codes.min() >= 0 and codes.max() <= 1
    return np.asarray(codes == 1) if has_two else None


def _with_dummies(
    columns: Sequence[Column], dummies: Sequence[tuple[str, ...]], cells: _Cells
) -> list[tuple[str, ...]]:
    """Find groups of columns in which one decides the others, dummy variables among them.

    The dummy variables of one category count as one column: a table may have the category, too.

    Args:
        columns: Those that are no dummy variables.
        dummies: The names of each group of dummy variables.
        cells: Of all columns, in the table's order.
    """
    codes: dict[str, CellValues] = {
        column.name: cells[column.name] for column in columns
    }
    for names in dummies:
        # Exactly one of them is set in each row. The first one's name stands for all of them.
        flags = np.stack([cells[name].values == 1 for name in names])
        codes[names[0]] = CellValues(flags.argmax(axis=0), cells[names[0]].gone)
    members = {names[0]: names for names in dummies}

    groups = _deciding(codes)
    in_groups = set(chain(*groups))
    groups += [(first,) for first in members if first not in in_groups]
    whole = []
    for group in groups:
        joined = set(chain(*(members.get(name, (name,)) for name in group)))
        whole.append(tuple(name for name in cells if name in joined))
    order = list(cells)
    return sorted(whole, key=lambda names: order.index(names[0]))


def _deciding(cells: _Cells) -> list[tuple[str, ...]]:
    """Find groups of columns in which one decides the others; no column is in two groups."""
    codes: dict[str, _Codes] = {}
    for name, (values, is_missing) in cells.items():
        levels, places = np.unique(values, return_inverse=True)
        num_levels = len(levels) + is_missing.any()
        if 1 < num_levels <= _LEVELS:
            codes[name] = np.where(is_missing, len(levels), places.reshape(-1))

    if not codes:
        return []
    names = list(codes)
    most = [np.bincount(column).max() / len(column) for column in codes.values()]
    # A few rows rule out most pairs of columns.
    num_rows = len(codes[names[0]])
    few = slice(None, None, max(num_rows // _FIRST, 1))
    few_codes = np.stack([codes[name][few] for name in names], axis=1).astype(np.int32)
    decided = {}
    for place, name in enumerate(names):
        candidates = _may_be_decided(few_codes, np.array(most), place, codes[name])
        decided[name] = [
            names[candidate]
            for candidate in candidates
            if _decides(codes[name], codes[names[candidate]])
        ]
    groups: list[tuple[str, ...]] = []
    used: set[str] = set()
    # Who decides most columns is asked first, so that groups are as large as they can be.
    for decider in sorted(decided, key=lambda name: -len(decided[name])):
        free = [name for name in decided[decider] if name not in used]
        if decider not in used and free:
            group = tuple(name for name in cells if name == decider or name in free)
            groups.append(group)
            used |= set(group)

    order = list(cells)
    return sorted(groups, key=lambda names: order.index(names[0]))


def _with_decided_gaps(
    groups: Sequence[tuple[str, ...]], columns: Sequence[Column], cells: _Cells
) -> list[tuple[str, ...]]:
    """Join groups where a category and an instrument decide together whether another one is filled.

    In an export of several instruments, a visit may have one row for its form and one for each
    adverse event. Then neither the visit nor the event decides alone which rows have the form.

    Args:
        groups: Columns in which one decides the others; no column is in two groups.
        columns: Those that are no dummy variables.
        cells: Of all columns, in the table's order.
    """
    choices = [c for c in columns if 1 <= len(c.options) <= _FEW]
    leads = _leads_of_gaps(choices, cells)
    visits = [c for c in choices if len(c.options) > 1 and not cells[c.name].gone.any()]
    tests = len(leads) ** 2 * len(visits)
    joined = list(groups)
    for lead in leads:
        deciding = _deciding_gaps(lead, leads, visits, cells, tests)
        if deciding is None:
            continue
        # Columns of one combination cannot follow the gaps of another one.
        pattern = _gap_pattern(cells[lead.name])
        grouped = chain(*joined)
        followed = [name for name in grouped if _gap_pattern(cells[name]) == pattern]
        names = {*deciding, *(followed or [lead.name])}
        apart = [group for group in joined if names.isdisjoint(group)]
        together = names.union(*(group for group in joined if group not in apart))
        group = tuple(name for name in cells if name in together)
        first_rows, _ = groups_of([cells[name] for name in group])
        if len(first_rows) * _REPEATED <= len(cells[lead.name].gone):
            joined = [*apart, group]

    order = list(cells)
    return sorted(joined, key=lambda names: order.index(names[0]))


def _leads_of_gaps(choices: Sequence[Column], cells: _Cells) -> list[Column]:
    """Return a column for each way in which columns of few categories are missing."""
    leads: dict[bytes, Column] = {}
    for column in choices:
        is_missing = cells[column.name].gone
        if min(is_missing.sum(), (~is_missing).sum()) >= _REPEATED:
            leads.setdefault(_gap_pattern(cells[column.name]), column)
    return list(leads.values())


def _deciding_gaps(
    lead: Column,
    others: Sequence[Column],
    visits: Sequence[Column],
    cells: _Cells,
    tests: int,
) -> tuple[str, str] | None:
    """Return a category and another column that together, and not alone, decide a column's gaps.

    The column has values in all rows in which the category allows them and the second column is
    missing, and in no other row.
    """
    is_there = ~cells[lead.name].gone
    rivals = [c for c in others if not (is_there & ~cells[c.name].gone).any()]
    if not rivals:
        return None
    for visit in visits:
        codes = cells[visit.name].values
        filled = np.bincount(codes[is_there], minlength=len(visit.options))
        is_allowed = (filled > 0)[codes]
        # Of a category that decides alone, or not at all, other rules are proposed.
        if is_allowed.all() or (is_allowed == is_there).all():
            continue
        share = float(is_there[is_allowed].mean())
        for rival in rivals:
            is_left = is_allowed & cells[rival.name].gone
            decides = (is_left == is_there).all()
            if decides and _is_unlikely(int(is_left.sum()), 1.0 - share, tests):
                return visit.name, rival.name
    return None


def _may_be_decided(
    few_codes: NDArray[np.int32], most: Floats, decider: int, deciding: _Codes
) -> list[int]:
    """Return the places of columns that a column decides in a few rows, by more than chance.

    Args:
        few_codes: Codes of these rows, a column for each column.
        most: The share of each column's commonest value.
        decider: The place of the column that may decide others.
        deciding: Its codes in all rows.
    """
    num_rows = len(deciding)
    levels = np.count_nonzero(np.bincount(deciding))
    if levels * _REPEATED > num_rows:
        return []

    # The commonest value's share is what chance gives a pair of rows.
    evidence = (num_rows - levels) * -np.log(most)
    is_evident = evidence > _EVIDENCE
    is_evident[decider] = False
    candidates = np.flatnonzero(is_evident)

    # Beside each other, rows with one code of the decider show whether another column differs.
    order = np.argsort(few_codes[:, decider], kind="stable")
    is_same = np.diff(few_codes[order, decider]) == 0
    first = order[:-1][is_same]
    second = order[1:][is_same]
    # Of a wide table, a few pairs leave hardly any column for the others.
    for start in range(0, len(first), _PAIRS):
        if not len(candidates):
            break
        pairs = slice(start, start + _PAIRS)
        before = few_codes[np.ix_(first[pairs], candidates)]
        behind = few_codes[np.ix_(second[pairs], candidates)]
        candidates = candidates[(before == behind).all(axis=0)]
    return [int(place) for place in candidates]


def _decides(deciding: _Codes, column: _Codes) -> bool:
    """Return whether each value of the deciding column goes with a single value of the other."""
    num_levels = int(column.max()) + 1
    pairs = deciding * num_levels + column
    num_pairs = np.count_nonzero(np.bincount(pairs))
    num_deciding = np.count_nonzero(np.bincount(deciding))
    return bool(num_pairs == num_deciding)


def _combinations(
    columns: Mapping[str, Column], cells: _Cells, names: Sequence[str]
) -> FixedCombinations:
    """Return the combinations of values in rows, in the order of the columns' values."""
    first_rows, _ = groups_of([cells[name] for name in names])
    distinct = [cells[name].take(first_rows) for name in names]
    # The last key of lexsort is the first to sort by.
    keys = []
    for column_cells in reversed(distinct):
        keys += [column_cells.values, column_cells.gone]
    order = np.lexsort(keys)

    value_lists = []
    for name, column_cells in zip(names, distinct, strict=True):
        ordered_cells = column_cells.take(order)
        values = _values_or_none(columns[name], ordered_cells)
        value_lists.append(values)
    rows = tuple(zip(*value_lists, strict=True))
    num_rows = len(cells[names[0]].gone)
    listed_names = " and ".join(names)
    why = (
        f"{listed_names} occur in {len(rows)} combinations only, in all "
        f"{num_rows:,} rows: drawn rows will have these"
    )
    return FixedCombinations(tuple(names), rows, why=why)


def _values_or_none(column: Column, cells: CellValues) -> list[Any]:
    """Return a column's values as plain data for JSON, None for missing ones."""
    values = []
    for number, is_missing in zip(*cells, strict=True):
        value = None if is_missing else value_of(column, number)
        values.append(value)
    return values


# Orders


def _ordered(
    columns: Sequence[Column], cells: _Cells, within: set[tuple[str, str]]
) -> list[Inequality]:
    """Find inequalities between columns of one kind that neither others nor a sum imply.

    Args:
        columns: Numbers and datetimes.
        cells: Of the columns.
        within: Parts and totals of sums, of which a part is smaller anyway.
    """
    rules: dict[tuple[str, str], Inequality] = {}
    names = {}
    for column in columns:
        has_years = _are_years(column, cells)
        names[column.name] = _Name(_words(column), has_years)
    for low, high in permutations(columns, 2):
        if not _alike(low, high, names):
            continue
        rule = _below(low, high, cells, names)
        if rule:
            rules[low.name, high.name] = rule

    # Each of two equal columns is at most the other: neither is between the other and a third one,
    # or the order of both against the third would be implied, and be left out.
    strict = {(low, high) for low, high in rules if (high, low) not in rules}
    needed = []
    for low_name, high_name in sorted(strict):
        pair = (low_name, high_name)
        above_low = {name for name in names if (low_name, name) in strict}
        is_implied = any((name, high_name) in strict for name in above_low)
        if not is_implied and pair not in within:
            needed.append(rules[pair])
    return needed


class _Name(NamedTuple):
    """The words of a column's name, and whether its numbers are years."""

    words: set[str]
    has_years: bool


def _alike(low: Column, high: Column, names: Mapping[str, _Name]) -> bool:
    """Return whether two columns can be compared: datetimes, years, or names that share a word."""
    if "datetime" in (low.kind, high.kind):
        return low.kind == high.kind
    low_name = names[low.name]
    high_name = names[high.name]
    if low_name.has_years and high_name.has_years:
        return True
    return not low_name.words.isdisjoint(high_name.words)


def _words(column: Column) -> set[str]:
    """Return the words of a column's name."""
    name = column.name.replace("_", " ")
    return {word.lower() for word in _WORD.findall(name)}


def _are_years(column: Column, cells: _Cells) -> bool:
    """Return whether all of a column's whole numbers are years."""
    values, is_missing = cells[column.name]
    if not column.is_whole or is_missing.all():
        return False
    present = values[~is_missing]
    return bool(present.min() >= _YEARS[0] and present.max() <= _YEARS[1])


def _below(
    low: Column, high: Column, cells: _Cells, names: Mapping[str, _Name]
) -> Inequality | None:
    """Return an inequality if one column is at most the other in every row; else None.

    It must be more than what bounds say already: rows paired at random would often break it.
    """
    has_both = ~cells[low.name].gone & ~cells[high.name].gone
    lows = cells[low.name].values[has_both]
    highs = cells[high.name].values[has_both]
    is_dated = low.is_datetime
    if is_dated:
        coarse = coarser_step(low, high)
        lows = lows * step_of(low) // coarse
        highs = highs * step_of(high) // coarse
    # The first rows rule out most pairs of columns.
    if len(lows) < _ROWS or (lows[:_FIRST] > highs[:_FIRST]).any():
        return None
    if (lows > highs).any():
        return None

    # Bounds alone say it where no pair of unrelated rows breaks it.
    crossed = float((lows > _unrelated(highs)).mean())
    low_name = names[low.name]
    high_name = names[high.name]
    is_calendar = is_dated or (low_name.has_years and high_name.has_years)
    has_life_word = bool(low_name.words & _BIRTH or high_name.words & _DEATH)
    is_life = is_calendar and has_life_word
    least = _CROSSED_DATES if is_calendar else _CROSSED
    is_evident = crossed > least and _is_unlikely(len(lows), crossed)
    if not is_life and not is_evident:
        return None
    # Bounds of a life's dates that do not overlap say it already.
    if is_life and lows.max() <= highs.min():
        return None
    why = (
        f"{low.name} <= {high.name} in all {len(lows):,} rows that have both, and {crossed:.1%} of "
        "rows paired at random break it: drawn rows will keep it"
    )
    return Inequality(low.name, high.name, why=why)


def _unrelated(values: NDArray[Any]) -> NDArray[Any]:
    """Return, for each row, the value of another row."""
    return np.roll(values, round(_APART * len(values)))


def _is_unlikely(rows: int, share: float, tests: int = 1) -> bool:
    """Return whether all rows would hardly keep a rule by chance.

    Args:
        rows: That keep it.
        share: Of unrelated rows that would break it.
        tests: Of which the rule is the best; the more there are, the more evidence it needs.
    """
    if share >= 1:
        return True
    # No row breaks the rule by chance with probability (1 - share) ** rows.
    evidence = rows * -np.log1p(-share)
    return bool(evidence > _EVIDENCE + log(max(tests, 1)))


# Sums


def _sums(columns: Sequence[Column], cells: _Cells) -> list[ColumnSum]:
    """Find totals of two columns, or of several neighbouring columns."""
    scaled = _scaled(columns, cells)
    order = [column.name for column in columns]

    # A total is missing where a part is, so parts are there wherever it is.
    totals: dict[bytes, list[str]] = defaultdict(list)
    for name in scaled:
        totals[_gap_pattern(cells[name])].append(name)

    rules: dict[str, ColumnSum] = {}  # by total, of which each has one
    searched = 0
    for names in totals.values():
        is_present = ~cells[names[0]].gone
        parts = []
        for name in scaled:
            has_gap = (cells[name].gone & is_present).any()
            if not has_gap:
                parts.append(name)
        searched += len(parts) ** 2
        if is_present.sum() < _ROWS or len(parts) < 3 or searched > _SEARCHED:
            continue
        present = {name: scaled[name][is_present] for name in parts}
        for total, adders in _candidates(present, names):
            rule = _sum_of(present, adders, total, order)
            if rule is not None and _gaps_agree(cells, adders, total):
                rules.setdefault(total, rule)
    return sorted(rules.values(), key=lambda rule: order.index(rule.total))


def _new_sums(
    sums: Sequence[ColumnSum], computed: Sequence[Computed]
) -> list[ColumnSum]:
    """Return the sums whose totals are not computed, and whose parts do not follow from them."""
    sources_of = _sources_of(computed)
    new = []
    for rule in sums:
        is_source = any(rule.total in _reached(sources_of, part) for part in rule.parts)
        if rule.total not in sources_of and not is_source:
            new.append(rule)
    return new


def _scaled(columns: Sequence[Column], cells: _Cells) -> dict[str, Floats]:
    """Convert numbers to whole multiples of the finest decimal, whose float sums are exact.

    Columns without decimals of their own, with one value, or too large to be exact are left out.
    """
    decimals = {column.name: _decimals(column) for column in columns}
    numbers = [c for c in columns if 0 <= decimals[c.name] <= _DIGITS]
    digits = min(max(decimals.values(), default=0), _DIGITS)
    unit = 10.0 ** max(digits, 0)

    scaled: dict[str, Floats] = {}
    for column in numbers:
        raw, is_missing = cells[column.name]
        values = np.rint(np.where(is_missing, 0, raw) * unit)
        is_exact = len(values) and np.abs(values).max() < _EXACT / len(numbers)
        if is_exact and np.ptp(values) > 0:
            scaled[column.name] = values + 0.0  # no -0, whose bytes differ
    return scaled


def _decimals(column: Column) -> int:
    """Return the number of decimals of a numeric column; -1 for floats and other columns."""
    if column.is_whole:
        return column.decimals or 0
    if column.is_continuous and column.decimals is not None:
        return column.decimals
    return -1


def _gaps_agree(cells: _Cells, parts: Sequence[str], total: str) -> bool:
    """Return whether a total is missing exactly where one of its parts is."""
    lacks_part = np.any([cells[name].gone for name in parts], axis=0)
    return bool((lacks_part == cells[total].gone).all())


def _candidates(
    columns: Mapping[str, Floats], totals: Sequence[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield totals and parts that agree in a few rows, those of two parts first.

    Rows are those with the fewest zeros, which say the most.
    """
    names = list(columns)
    few = slice(None, None, max(len(columns[names[0]]) // _FIRST, 1))
    num_nonzero = np.sum([columns[name][few] != 0 for name in names], axis=0)
    rows = np.argsort(-num_nonzero, kind="stable")[:_PROBES]
    probes = np.array([columns[name][few][rows] for name in names])

    # Sums are looked up by their bytes: all pairs of a hundred columns are 5,000 look-ups.
    by_bytes: dict[bytes, list[str]] = defaultdict(list)
    for total in totals:
        values = probes[names.index(total)] + 0.0
        by_bytes[values.tobytes()].append(total)

    # Two columns anywhere.
    for i, name in enumerate(names):
        pairs = probes[i] + probes[i + 1 :]
        for j, values in enumerate(pairs, start=i + 1):
            for total in by_bytes.get(values.tobytes(), ()):
                if total not in (name, names[j]):
                    yield total, (name, names[j])
    # Three columns or more that stand beside each other.
    for i in range(len(names)):
        for j, values in enumerate(np.cumsum(probes[i:], axis=0), start=i):
            if j < i + 2:
                continue
            for total in by_bytes.get(values.tobytes(), ()):
                if total not in names[i : j + 1]:
                    yield total, tuple(names[i : j + 1])


def _sum_of(
    columns: Mapping[str, Floats],
    parts: Sequence[str],
    total: str,
    order: Sequence[str],
) -> ColumnSum | None:
    """Return a sum that holds in every row and in which each part matters; else None."""
    totals = columns[total]
    summed = np.sum([columns[name] for name in parts], axis=0)
    if (summed != totals).any() or len(np.unique(totals)) < _REPEATED:
        return None
    # A part that is nearly always the same number could be any other column.
    crossed = 1.0
    for name in parts:
        is_changed = _unrelated(columns[name]) != columns[name]
        crossed = min(crossed, float(is_changed.mean()))
    if crossed <= _CROSSED or not _is_unlikely(len(summed), crossed):
        return None
    names = tuple(sorted(parts, key=order.index))
    adders = " + ".join(names)
    why = (
        f"{adders} = {total} in all {len(summed):,} rows that have them: "
        f"{total} will be computed in drawn rows"
    )
    return ColumnSum(names, total, why=why)


# Columns computed from others


def _sources_of(rules: Sequence[ColumnSum | Computed]) -> dict[str, set[str]]:
    """Return the sources of each column that some rules compute."""
    sources = {}
    for rule in rules:
        *names, computed = rule.columns
        sources[computed] = set(names)
    return sources


def _converted(
    columns: Sequence[Column], cells: _Cells, groups: Sequence[tuple[str, ...]]
) -> list[Computed]:
    """Find columns that are another one in every row, in its unit or in another one.

    Each has one rule, and none goes round in a circle.

    Args:
        columns: Numbers and datetimes.
        cells: Of these columns.
        groups: Columns in which one decides the others. A group stays one, unless all of its
            columns follow from a column outside it.
    """
    by_name = {column.name: column for column in columns}
    tests = len(columns) ** 2
    candidates: list[Computed] = []
    for candidate in conversions(columns, cells):
        source = by_name[candidate.sources[0]]
        target = by_name[candidate.column]
        rule = _kept(candidate, (source,), target, cells, tests)
        if rule is not None:
            candidates.append(rule)

    barred: set[str] = set()
    while True:
        rules = _without_circles(candidates, set(chain(*groups)), barred)
        split_groups = [g for g in groups if 0 < len(rules.keys() & set(g)) < len(g)]
        if not split_groups:
            return [rules[name] for name in by_name if name in rules]
        barred = barred.union(*split_groups)


def _without_circles(
    candidates: Sequence[Computed], grouped: set[str], barred: set[str]
) -> dict[str, Computed]:
    """Choose rules that begin at columns of no group, by the column that each computes.

    Args:
        candidates: Rules of one source each, the better ones first.
        grouped: Columns of groups: one is a source only where it is computed itself.
        barred: Columns that are not to be computed.
    """
    rules: dict[str, Computed] = {}
    sources_of: dict[str, set[str]] = {}
    is_longer = True
    while is_longer:
        is_longer = False
        for rule in candidates:
            (source,) = rule.sources
            target = rule.column
            if target in rules or target in barred:
                continue
            is_begun = source not in grouped or source in rules
            if is_begun and target not in _reached(sources_of, source):
                rules[target] = rule
                sources_of[target] = {source}
                is_longer = True
    return rules


class _Recipe(NamedTuple):
    """A way in which a column may follow from two others.

    Attributes:
        formula: As of `Computed`.
        factor: By which its result is multiplied.
        rounding: To the column's decimals.
    """

    formula: Formula
    factor: int | float = 1
    rounding: Rounding = "nearest"


# A recipe, its sources and its target.
_Candidate = tuple[_Recipe, tuple["Column", "Column"], "Column"]
# In the order in which they are tried: what needs no rounding first.
_OF_NUMBERS = (
    _Recipe("product"),
    # Metres, centimetres, pounds.
    *(_Recipe("bmi", factor) for factor in (1, 10_000, 703)),
    # Also per cent and per thousand.
    *(_Recipe("ratio", factor) for factor in (1, 100, 1_000)),
)
_OF_DATES = (
    _Recipe("years"),
    _Recipe("days"),
    _Recipe("hours"),
    *(_Recipe("days", 1 / size) for size in (7, 365.25, 365)),
    *(_Recipe("days", 1 / size, "down") for size in (7, 365.25, 365)),
)


def _computed(
    columns: Sequence[Column],
    cells: _Cells,
    earlier: Sequence[ColumnSum | Computed],
) -> list[Computed]:
    """Find columns that follow from two dates or two numbers in every row: an age, a BMI.

    Each has one rule, none goes round in a circle, and three columns are in one rule at most.

    Args:
        columns: Numbers and datetimes.
        cells: Of these columns.
        earlier: Rules that compute columns already.
    """
    dates = [column for column in columns if column.is_datetime]
    numbers = [column for column in columns if not column.is_datetime]
    num_date_rules = len(dates) ** 2 * len(_OF_DATES)
    num_number_rules = len(numbers) ** 2 * len(_OF_NUMBERS)
    tests = len(numbers) * (num_date_rules + num_number_rules)

    rules: dict[str, Computed] = {}
    used: set[frozenset[str]] = {frozenset(rule.columns) for rule in earlier}
    sources_of = _sources_of(earlier)
    order = (*_OF_DATES, *_OF_NUMBERS)
    candidates = list(_promising(dates, numbers, cells))
    candidates.sort(key=lambda candidate: order.index(candidate[0]))
    for recipe, sources, target in candidates:
        source_names = {source.name for source in sources}
        names = frozenset((*source_names, target.name))
        if target.name in sources_of or names in used:
            continue
        # Sources that are computed from the target would go round in a circle.
        if any(target.name in _reached(sources_of, name) for name in source_names):
            continue
        candidate_rule = _rule(recipe, sources, target)
        rule = _kept(candidate_rule, sources, target, cells, tests)
        if rule is not None:
            rules[target.name] = rule
            sources_of[target.name] = set(rule.sources)
            used.add(names)
    return [rules[column.name] for column in columns if column.name in rules]


def _reached(sources_of: Mapping[str, set[str]], name: str) -> set[str]:
    """Return the columns from which a column is computed, itself among them."""
    reached = {name}
    waiting = [name]
    while waiting:
        sources = sources_of.get(waiting.pop(), set()) - reached
        reached |= sources
        waiting += sources
    return reached


class _Sample(NamedTuple):
    """The values of some columns in a few rows in which all have one.

    Attributes:
        columns: The columns.
        values: Of each column, in these rows: numbers, or datetimes in steps.
    """

    columns: tuple[Column, ...]
    values: Floats


def _promising(
    dates: Sequence[Column], numbers: Sequence[Column], cells: _Cells
) -> Iterator[_Candidate]:
    """Yield recipes, sources and targets that agree in a few rows."""
    # A column is missing where a source is, so sources are there wherever it is.
    targets: dict[bytes, list[Column]] = defaultdict(list)
    for column in numbers:
        targets[_gap_pattern(cells[column.name])].append(column)
    searched = 0
    for group in targets.values():
        rows = np.flatnonzero(~cells[group[0].name].gone)
        if len(rows) < _ROWS:
            continue
        all_columns = (*dates, *numbers)
        filled = [c for c in all_columns if not cells[c.name].gone[rows].any()]
        times = [column for column in filled if column.is_datetime]
        few = rows[:: len(rows) // _PROBES][:_PROBES]
        time_sample = _sample(times, cells, few)
        target_sample = _sample(group, cells, few)
        yield from _of_pairs(time_sample, target_sample)

        sources = [column for column in filled if not column.is_datetime]
        searched += len(sources) ** 2 * len(group)
        if len(sources) < 3 or searched > _SEARCHED:
            continue
        for target in group:
            few = varied_rows(cells[target.name].values, rows)
            if len(few) >= _REPEATED:
                yield from _of_numbers(_sample(sources, cells, few), target)


def _sample(columns: Sequence[Column], cells: _Cells, rows: Ints) -> _Sample:
    """Take some columns in some rows as a sample."""
    values = np.zeros((len(columns), len(rows)))
    for place, column in enumerate(columns):
        values[place] = cells[column.name].values[rows]
    return _Sample(tuple(columns), values)


def _of_pairs(dates: _Sample, targets: _Sample) -> Iterator[_Candidate]:
    """Yield recipes of two dates, with the columns that agree with them."""
    units = _units(targets.columns)[:, None]
    sizes = _sizes(targets.columns)[:, None]
    for recipe in _OF_DATES:
        for first, second in permutations(range(len(dates.columns)), 2):
            sources = (dates.columns[first], dates.columns[second])
            steps = [dates.values[place].astype(np.int64) for place in (first, second)]
            rule = _rule(recipe, sources, targets.columns[0])
            raw, _ = raw_values(rule, sources, steps)
            # A column that is the same in all of these rows would agree with too much.
            if not np.ptp(raw):
                continue
            agrees = _agrees(recipe, raw, targets.values, units, sizes).all(axis=1)
            for place in np.flatnonzero(agrees):
                yield recipe, sources, targets.columns[place]


def _of_numbers(numbers: _Sample, target: Column) -> Iterator[_Candidate]:
    """Yield pairs of numbers from which a column may follow, trying all pairs row by row."""
    columns = numbers.columns
    count = len(columns)
    target_place = [column.name for column in columns].index(target.name)
    unit = _units((target,))
    size = _sizes((target,))
    pairs = np.arange(count * count)
    for recipe in _OF_NUMBERS:
        first = pairs // count
        second = pairs % count
        # A product is the same whichever is first.
        is_pair = first < second if recipe.formula == "product" else first != second
        is_pair &= (first != target_place) & (second != target_place)
        first = first[is_pair]
        second = second[is_pair]
        rule = _rule(recipe, (columns[0], columns[1]), target)
        for values in numbers.values.T:
            pair_values = [values[first], values[second]]
            raw, is_undefined = raw_values(rule, columns[:2], pair_values)
            agrees = _agrees(recipe, raw, values[target_place], unit, size)
            agrees &= ~is_undefined
            first = first[agrees]
            second = second[agrees]
            if not first.size:
                break
        for i, j in zip(first, second, strict=True):
            yield recipe, (columns[i], columns[j]), target


def _units(columns: Sequence[Column]) -> Floats:
    """Return the unit of each column's last place; 0 for numbers without one."""
    units = []
    for column in columns:
        decimals = 0 if column.is_whole else column.decimals
        unit = 0.0 if decimals is None else 10.0**-decimals
        units.append(unit)
    return np.array(units)


def _sizes(columns: Sequence[Column]) -> Floats:
    """Return the size up to which numbers of each column count as near 0."""
    return np.array([smallest_size(column) for column in columns])


def _agrees(
    recipe: _Recipe,
    raw: NDArray[Any],
    values: NDArray[Any],
    units: NDArray[Any],
    sizes: NDArray[Any],
) -> Bools:
    """Return whether values may be a recipe's results after rounding."""
    # What floats lose in a product or a ratio.
    near = 1e-9 * np.maximum(np.abs(raw), sizes)
    # By how many units rounding may make a number smaller.
    below = 1.0 if recipe.rounding == "down" else 0.5
    is_high_enough = values >= raw - below * units - near
    is_low_enough = values <= raw + (1.0 - below) * units + near
    return np.asarray(is_high_enough & is_low_enough)


def _rule(recipe: _Recipe, sources: tuple[Column, Column], target: Column) -> Computed:
    """Build the constraint of a recipe for some columns."""
    names = (sources[0].name, sources[1].name)
    return Computed(target.name, recipe.formula, names, recipe.factor, recipe.rounding)


def _kept(
    rule: Computed,
    sources: Sequence[Column],
    target: Column,
    cells: _Cells,
    tests: int,
) -> Computed | None:
    """Return a rule that all rows keep, and that another row's source would often break."""
    source_cells = [cells[column.name] for column in sources]
    lacks_source = np.any([source.gone for source in source_cells], axis=0)
    source_values = [source.values for source in source_cells]
    raw, is_undefined = raw_values(rule, sources, source_values)
    is_missing = lacks_source | is_undefined
    is_present = ~is_missing
    has_other_gaps = (is_missing != cells[target.name].gone).any()
    if has_other_gaps or is_present.sum() < _ROWS:
        return None
    values = cells[target.name].values[is_present]
    if not does_follow(rule, target, values, raw[is_present]).all():
        return None
    # A year or a month of a date says much by few values.
    fewest = 2 if rule.formula in CALENDAR else _REPEATED
    if len(np.unique(values)) < fewest:
        return None

    # Each source must decide: with that of another row, the result is mostly another.
    crossed = 1.0
    for place in range(len(sources)):
        mixed = [numbers[is_present] for numbers in source_values]
        mixed[place] = _unrelated(mixed[place])
        mixed_raw, is_undefined = raw_values(rule, sources, mixed)
        follows = does_follow(rule, target, values, mixed_raw) & ~is_undefined
        crossed = min(crossed, float((~follows).mean()))
    rows = int(is_present.sum())
    if crossed <= _CROSSED or not _is_unlikely(rows, crossed, tests):
        return None
    why = f"{rule.words} in all {rows:,} rows that have them: it will be computed in drawn rows"
    return replace(rule, why=why)


# What is missing


def _together(
    columns: Sequence[Column], cells: _Cells, combined: Mapping[str, int]
) -> list[MissingTogether]:
    """Find columns that are missing in the same rows, such as those of one questionnaire.

    Args:
        columns: That may be missing.
        cells: Of the columns.
        combined: By column of a fixed combination, the place of that combination.
    """
    groups: dict[bytes, list[str]] = defaultdict(list)
    for column in columns:
        is_missing = cells[column.name].gone
        if min(is_missing.sum(), (~is_missing).sum()) >= _REPEATED:
            groups[_gap_pattern(cells[column.name])].append(column.name)

    rules = []
    for names in groups.values():
        # Columns of one combination are missing together by it; those of another cannot follow.
        places = [combined[name] for name in names if name in combined]
        lead = places[0] if places else None
        followers = [name for name in names if combined.get(name, lead) == lead]
        is_missing = cells[names[0]].gone
        rows = len(is_missing)
        num_missing = int(is_missing.sum())
        is_redundant = all(name in combined for name in followers)
        evidence = _log_choices(rows, num_missing)
        if len(followers) < 2 or is_redundant or evidence <= _EVIDENCE:
            continue
        why = (
            f"{_some(followers)} are missing together in {num_missing:,} of {rows:,} rows, and all "
            "there in the others: drawn rows will have all of them or none"
        )
        rules.append(MissingTogether(tuple(followers), why=why))
    return rules


def _log_choices(rows: int, chosen: int) -> float:
    """Return the logarithm of the number of ways to choose `chosen` of so many rows."""
    return lgamma(rows + 1) - lgamma(chosen + 1) - lgamma(rows - chosen + 1)


def _some(names: Sequence[str]) -> str:
    """List names of columns in words, the first ones if there are many."""
    if len(names) == 1:
        return names[0]
    if len(names) <= _SHOWN:
        last = names[-1]
        listed_names = ", ".join(names[:-1])
        return f"{listed_names} and {last}"
    shown = names[: _SHOWN - 1]
    listed_names = ", ".join(shown)
    return f"{listed_names} and {len(names) - len(shown)} more"


def _unless(
    columns: Sequence[Column],
    cells: _Cells,
    together: Sequence[MissingTogether],
    combined: Mapping[str, int],
) -> list[MissingUnless]:
    """Find columns that are missing unless a category has some value, or others are there."""
    grouped = set(chain(*(rule.columns for rule in together)))
    alone = [(c.name,) for c in columns if c.missing and c.name not in grouped]
    fields = [*(rule.columns for rule in together), *alone]
    deciding = [c for c in columns if 2 <= len(c.options) <= _FEW]
    leads = {rule.columns: _lead(rule.columns, columns) for rule in together}
    leads |= _opposite_leads(alone, columns, cells)
    tests = len(fields) * (len(deciding) + len(leads))

    rules: list[MissingUnless] = []
    apart: set[frozenset[tuple[str, ...]]] = set()
    for names in fields:
        dependent = tuple(name for name in names if name not in combined)
        if not dependent:
            continue
        is_missing = cells[dependent[0]].gone
        if min(is_missing.sum(), (~is_missing).sum()) < _REPEATED:
            continue

        is_barred = np.zeros(len(is_missing), dtype=np.bool_)
        # What is missing itself is no such category.
        outer = [c for c in deciding if c.name not in names]
        outer = [c for c in outer if not cells[c.name].gone.any()]
        best = _best_category(dependent, outer, cells, tests)
        if best is not None:
            rules.append(best)
            by = next(c for c in deciding if c.name == best.by)
            allowed = [by.options.index(value) for value in best.values]
            is_barred = ~np.isin(cells[by.name].values, allowed)

        # Other columns that are never there with these, which that does not say already.
        for group, lead in leads.items():
            pair = frozenset((names, group))
            if lead is None or len(pair) < 2 or pair in apart:
                continue
            rule = _unless_missing(dependent, lead, cells, is_barred, tests)
            if rule:
                rules.append(rule)
                apart.add(pair)
    return rules


def _best_category(
    dependent: tuple[str, ...], deciding: Sequence[Column], cells: _Cells, tests: int
) -> MissingUnless | None:
    """Return the rule of the category that explains most, if any decides the columns."""
    candidates = [_unless_by(dependent, by, cells, tests) for by in deciding]
    rules = [rule for rule in candidates if rule]

    def looseness(rule: MissingUnless) -> tuple[bool, int]:
        return not rule.required, len(rule.values)

    return min(rules, key=looseness, default=None)


def _opposite_leads(
    alone: Sequence[tuple[str]], columns: Sequence[Column], cells: _Cells
) -> dict[tuple[str, ...], Column | None]:
    """Find categories that are present exactly where some column is missing."""
    gap_patterns = {_gap_pattern(cells[c.name]) for c in columns if c.missing}
    leads: dict[tuple[str, ...], Column | None] = {}
    for names in alone:
        value_pattern = np.packbits(~cells[names[0]].gone).tobytes()
        lead = _lead(names, columns)
        if value_pattern in gap_patterns and lead:
            leads[names] = lead
    return leads


def _lead(names: Sequence[str], columns: Sequence[Column]) -> Column | None:
    """Return the first of some columns that has few categories; None if none has."""
    for column in columns:
        if column.name in names and 1 <= len(column.options) <= _FEW:
            return column
    return None


def _unless_missing(
    dependent: tuple[str, ...], by: Column, cells: _Cells, is_barred: Bools, tests: int
) -> MissingUnless | None:
    """Return a rule for columns that are never there where another column is, or None.

    Where they are there in all other rows, the rule says that, too: exactly one of the two is.

    Args:
        dependent: The columns, missing in the same rows.
        by: The other one.
        cells: Of all columns.
        is_barred: Rows in which another rule makes the columns missing.
        tests: Rules of this kind that are tried.
    """
    is_missing = cells[dependent[0]].gone
    has_other = ~cells[by.name].gone
    if (has_other & ~is_missing).any():
        return None
    rows = int((has_other & ~is_barred).sum())
    share = float((~is_missing[~is_barred]).mean())
    if rows < _REPEATED or not _is_unlikely(rows, share, tests):
        return None
    num_with = int(has_other.sum())
    num_without = int((~has_other).sum())
    is_opposite = bool((has_other == is_missing).all())
    is_required = is_opposite and num_without >= _ROWS
    others = ""
    if is_required:
        others = f", and there in all {num_without:,} others"
    why = (
        f"{_some(dependent)}: missing in all {num_with:,} rows that have a {by.name}"
        f"{others}: drawn rows will keep it"
    )
    return MissingUnless(dependent, by.name, (None,), is_required, why=why)


def _unless_by(
    dependent: tuple[str, ...], by: Column, cells: _Cells, tests: int
) -> MissingUnless | None:
    """Return a rule for columns that are there only with some of a category's values, or None."""
    is_missing = cells[dependent[0]].gone
    codes = cells[by.name].values
    rows = np.bincount(codes, minlength=len(by.options))
    filled = np.bincount(codes[~is_missing], minlength=len(by.options))
    is_empty = (rows > 0) & (filled == 0)
    is_filled = filled > 0
    barred = int(rows[is_empty].sum())
    share = float((~is_missing).mean())
    if not is_empty.any() or not _is_unlikely(barred, share, tests):
        return None
    # A category of a few rows may be empty or filled by chance.
    if rows[is_empty].min() < _REPEATED or filled[is_filled].min() < _REPEATED:
        return None

    values = tuple(by.options[code] for code in np.flatnonzero(filled))
    value_words = " or ".join(map(repr, values))
    is_required = bool((rows == filled)[is_filled].all())
    others = ", and there in all others" if is_required else ""
    why = (
        f"{_some(dependent)}: missing in all {barred:,} rows in which {by.name} is not "
        f"{value_words}{others}: drawn rows will keep it"
    )
    return MissingUnless(dependent, by.name, values, is_required, why=why)


# Ranges


class _Ends:
    """A column's values by the category of another: their number, the least and the largest.

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
        cells: CellValues,
        categories: CellValues,
        ordered: Floats,
    ) -> None:
        has_both = (~cells.gone & ~categories.gone)[order]
        self.column = column
        self.by = by
        self.values = cells.values[order][has_both].astype(np.float64)
        self.codes = categories.values[order][has_both]
        self.ordered = np.sort(self.values) if categories.gone.any() else ordered
        options = len(by.options)
        self.rows = np.bincount(self.codes, minlength=options)
        self.low = np.zeros(options)
        self.high = np.zeros(options)
        filled = np.flatnonzero(self.rows)
        if filled.size:
            # Rows are in the categories' order, so that each category is one run of them.
            starts = np.searchsorted(self.codes, filled)
            self.low[filled] = np.minimum.reduceat(self.values, starts)
            self.high[filled] = np.maximum.reduceat(self.values, starts)

    def beyond(self, category: int) -> tuple[float, float]:
        """Return the shares of other categories' rows below and above a category's values."""
        rest = len(self.values) - self.rows[category]
        below = np.searchsorted(self.ordered, self.low[category], side="left")
        up_to = np.searchsorted(self.ordered, self.high[category], side="right")
        above = len(self.values) - up_to
        return float(below / rest), float(above / rest)


def _ranges(
    columns: Sequence[Column], cells: _Cells, combined: Mapping[str, int]
) -> list[CategoryRanges]:
    """Find columns whose range a category decides, with the category that has most such rows."""
    deciding = [c for c in columns if 2 <= len(c.options) <= _FEW]
    numbers = [c for c in columns if c.is_binned]
    tests = sum(len(by.options) for by in deciding) * len(numbers)
    best: dict[str, tuple[int, CategoryRanges]] = {}
    if not deciding or not numbers:
        return []
    # Columns are compared in blocks, which bounds the memory.
    num_rows = len(cells[numbers[0].name].gone)
    block_size = max(_CELLS // num_rows, 1)
    for start in range(0, len(numbers), block_size):
        block = numbers[start : start + block_size]
        sorted_values = {c.name: _sorted_values(cells[c.name]) for c in block}
        number_rows = NumberRows([cells[c.name] for c in block])
        for by in deciding:
            categories = cells[by.name]
            places = _worth_a_look(number_rows, block, categories)
            if not places:
                continue
            # Codes of a byte are sorted several times as fast.
            order = np.argsort(categories.values.astype(np.int8), kind="stable")
            for place in places:
                column = block[place]
                # A fixed combination says more than a range does.
                if _are_combined(column, by, combined):
                    continue
                values = sorted_values[column.name]
                ends = _Ends(column, by, order, cells[column.name], categories, values)
                ranges = _bands(ends) or _limits(ends, tests)
                codes = [by.options.index(category) for category, _, _ in ranges]
                rows = int(ends.rows[codes].sum())
                most_rows, _ = best.get(column.name, (0, None))
                if ranges and rows > most_rows:
                    why = _ranges_in_words(column, by, ranges, rows)
                    rule = CategoryRanges(column.name, by.name, ranges, why=why)
                    best[column.name] = rows, rule
    return [best[column.name][1] for column in numbers if column.name in best]


def _sorted_values(cells: CellValues) -> Floats:
    """Return a column's values as floats, ascending, without missing ones."""
    return np.sort(cells.values[~cells.gone].astype(np.float64))


def _are_combined(column: Column, by: Column, combined: Mapping[str, int]) -> bool:
    """Return whether two columns are parts of one fixed combination."""
    place = combined.get(column.name)
    return place is not None and place == combined.get(by.name)


def _worth_a_look(
    numbers: NumberRows, columns: Sequence[Column], by: CellValues
) -> list[int]:
    """Return the places of columns that may have a range by a category, of many at once.

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
    highs = np.take_along_axis(high, order, axis=0)
    reached = np.maximum.accumulate(highs, axis=0)
    # A category without a value has an infinite least one.
    is_filled = np.isfinite(lows[1:])
    is_above = lows[1:] > reached[:-1]
    is_apart = (is_above & is_filled).any(axis=0)
    has_many = rows >= _ROWS
    is_single = ((low == high) & has_many).any(axis=0)

    # An edge has many rows on both sides.
    is_whole = np.array([column.is_whole for column in columns])
    is_inner = (low > low.min(axis=0)) | (high < high.max(axis=0))
    may_end = (is_inner & has_many).any(axis=0)
    has_enough = rows.sum(axis=0) >= 2 * _EDGE
    has_edge = is_whole & may_end & has_enough
    return np.flatnonzero(is_apart | is_single | has_edge).tolist()


# A category, its least value and its largest.
_Range = tuple[Any, Any, Any]


def _bands(ends: _Ends) -> tuple[_Range, ...]:
    """Return ranges that do not overlap, each of one category or several; open at the ends."""
    filled = np.flatnonzero(ends.rows).tolist()
    filled.sort(key=lambda i: ends.low[i])
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
        low = float(ends.low[band].min())
        high = float(ends.high[band].max())
        # The outermost ends are the column's own bounds, but for a band of a single value.
        is_open = low != high
        least = value_of(ends.column, low)
        most = value_of(ends.column, high)
        if is_open and place == 0:
            least = None
        if is_open and place == len(bands) - 1:
            most = None
        ranges += [(ends.by.options[i], least, most) for i in band]
    return tuple(ranges)


def _limits(ends: _Ends, tests: int) -> tuple[_Range, ...]:
    """Return ranges of one value at an end, and ranges with an edge that many rows reach."""
    ranges: list[_Range] = []
    for i in np.flatnonzero(ends.rows >= _ROWS).tolist():
        if ends.rows[i] == len(ends.values):
            continue
        below, above = ends.beyond(i)
        first = ends.low[i]
        last = ends.high[i]
        if first == last:
            different = below + above
            is_at_end = first in (ends.ordered[0], ends.ordered[-1])
            is_rule = is_at_end and _is_unlikely(int(ends.rows[i]), different, tests)
            is_single = is_rule and different > _DIFFERENT
            has_low = is_single
            has_high = is_single
        else:
            has_low = below > _CROSSED and _is_edge(ends, i, 1)
            has_high = above > _CROSSED and _is_edge(ends, i, -1)
        if has_low or has_high:
            least = value_of(ends.column, first) if has_low else None
            most = value_of(ends.column, last) if has_high else None
            ranges.append((ends.by.options[i], least, most))
    return tuple(ranges)


def _is_edge(ends: _Ends, category: int, sign: int) -> bool:
    """Return whether many rows would lie just beyond a category's end, if it were like others.

    How many follows from its rows within three units of the edge, and from the others' on both
    sides. The others must be about as many on both: a scale that ends there for all has no edge.
    Numbers that are not whole, or have few values, have no edge either: a category may just be rare
    at their end.

    Args:
        ends: The column and the category.
        category: Its code.
        sign: 1 for its least value, -1 for its largest.
    """
    if not ends.column.is_whole:
        return False
    edge = ends.low[category]
    all_values = ends.ordered
    if sign == -1:
        # The largest value is looked at in the mirror, as the least of the negative numbers.
        edge = -ends.high[category]
        all_values = -ends.ordered[::-1]
    category_values = sign * ends.values[ends.codes == category]
    places = [edge - _UNITS, edge, edge + _UNITS]
    before, at_edge, past = np.searchsorted(all_values, places)
    inside = int((category_values < edge + _UNITS).sum())
    others = int(past - at_edge) - inside
    beyond = int(at_edge - before)
    # The others may not end there as well.
    if min(others, beyond) < _EDGE or not 0.5 <= beyond / others <= 2:
        return False
    expected_beyond = inside * beyond / others
    return expected_beyond >= _EDGE and len(np.unique(category_values)) >= _LONG


def _ranges_in_words(
    column: Column, by: Column, ranges: Sequence[_Range], rows: int
) -> str:
    """Describe all ranges by a category, as rows have them."""
    parts = []
    for category, low, high in ranges:
        least = bound_text(column, low)
        most = bound_text(column, high)
        if low == high:
            words = least
        elif low is None:
            words = f"at most {most}"
        elif high is None:
            words = f"at least {least}"
        else:
            words = f"{least} to {most}"
        parts.append(f"{words} where {by.name} is {category!r}")
    range_words = ", ".join(parts)
    return (
        f"{column.name} is {range_words}, in all {rows:,} such rows: "
        "drawn rows will keep it"
    )
