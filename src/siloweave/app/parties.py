"""Parties' files side by side: where they disagree, rows that several hold, and rows that misfit.

All of this reads rows and shows some of their values: it is for someone who may see every file, and
no report has it. Files whose parties hold different columns are about the same people on purpose,
so they are not compared.

Whether rows in common are more than chance is judged by rows that occur two to ten times in both
files together. Each of m such rows is in the first file with one probability t, if nobody is in
both, so of their m (m - 1) / 2 pairs a share of 2 t (1 - t) is expected to be of different files:
at most a half, whatever the files are of. Each row counts alike, and so a pair 1 / (m - 1).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from math import log10
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError, count_of
from siloweave.privacy.budget import Budget
from siloweave.report import words
from siloweave.tables.codes import Encoder
from siloweave.tables.detect import ColumnEvidence, evidence
from siloweave.tables.display import listed
from siloweave.tables.forms import time_words
from siloweave.tables.modelled import Modelled
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

_SHOWN = 5  # values of a column, and rows that misfit it
_LEAST_NUMBERS = 20  # of a party, from which its range means something
_FACTOR_APART = 1.5  # between medians, where ranges do not meet
_FACTOR_MEETING = 5.0  # between medians, where only the middle halves do not meet
_LEAST_GAP = 0.1  # between shares of missing values
_GAP_ERRORS = 5.0  # the same gap in its standard errors
_EXPECTED_ROWS = 10.0  # that a party would have of a category that it lacks
_CHANCE_IDS = 10  # in common, which are never named
_PAIR_ERRORS = 4.5  # standard errors of the pairs in two files that are beyond chance
_MOST_ALIKE = 10  # equal rows that are still evidence that two parties hold one
OTHER_TEXT = "other text"
"""What `form_of` says of neither numbers nor dates."""
_Keys = NDArray[np.uint64]
_ALIKE = (
    "map them first, so that equal values are written alike: "
    "[parties.NAME.recode] in the study"
)


class Difference(msgspec.Struct, frozen=True):
    """A column that parties hold differently.

    Attributes:
        column: Its name.
        what: What differs: kind, spelling, categories, size, decimals or missing values.
        held: What each party has, in words that show values.
        advice: What to do about it, or to ask.
    """

    column: str
    what: str
    held: dict[str, str]
    advice: str

    def __str__(self) -> str:
        clauses = [f"{party} has {text}" for party, text in self.held.items()]
        parties = "; ".join(clauses)
        return f"{self.column}: {parties}: {self.advice}"


class Overlap(msgspec.Struct, frozen=True):
    """Rows or people that two parties or more hold.

    Attributes:
        parties: Who holds them.
        what: What is alike: an id by its name; empty for all columns.
        count: How many rows, or ids, are alike.
        same: Whether the parties hold the same rows and no others.
    """

    parties: tuple[str, ...]
    what: str
    count: int
    same: bool

    def said(self, budget: Budget | None = None) -> str:
        """Describe it, with what it does to ε for a person where a budget bounds that."""
        names = " and ".join(self.parties)
        times = len(self.parties)
        if self.same:
            text = (
                f"{names} hold the same {self.count:,} rows: "
                f"was one file given to {times} parties?"
            )
        elif self.what:
            text = (
                f"{self.count:,} values of {self.what} are at {names}: "
                "are they the same people?"
            )
        else:
            text = f"{self.count:,} rows are at {names}, more than chance would give."
        return f"{text} {costs(times, budget)}"


def costs(times: int, budget: Budget | None) -> str:
    """Return what several rows of a person at different parties mean, in a sentence."""
    if budget is not None and not budget.by_row:
        limit = budget.parties_per_unit
        if times <= limit:
            return f"The study says so: parties_per_unit = {limit}."
        return (
            f"The study says that a {budget.unit} has rows at no more than "
            f"{count_of(limit, 'party', 'parties')}: ε does not hold for more. "
            f"Leave them out, or set parties_per_unit = {times}."
        )

    person = f"A person with a row at each of {times} parties"
    if budget is None or not budget.private:
        return f"{person} has {times} times the ε of a row, at a larger δ."
    epsilon, delta = words.of_rows(budget.epsilon, budget.delta, times)
    return (
        f"{person} has ε = {words.epsilon(epsilon)} at δ = {words.small(delta)}, not "
        f"{words.epsilon(budget.epsilon)}. Leave them out at all but one."
    )


# Columns


def differences(tables: Mapping[str, Table]) -> list[Difference]:
    """Return how parties that hold the same columns hold them differently, column by column.

    Args:
        tables: Each party's rows, in which missing values are missing.
    """
    if len(tables) < 2:
        return []
    column_differences: list[Difference] = []
    for name in next(iter(tables.values())).names:
        column_differences += _of_column(name, tables)
    return column_differences


def _of_column(name: str, tables: Mapping[str, Table]) -> Iterator[Difference]:
    """Yield how parties hold one column differently."""
    # A party without a value can differ in its missing values alone.
    filled = {
        party: table for party, table in tables.items() if not table.missing(name).all()
    }
    evidences: dict[str, ColumnEvidence] = {}
    forms: dict[str, str] = {}
    blanked: dict[str, Table] = {}
    for party, table in filled.items():
        column = evidence(table, (name,))[name]
        evidences[party] = column
        forms[party] = form_of(column, table.kind(name))
        blanked[party] = table.blanked(name, column.missing_values)
    kinds = {column.kind for column in evidences.values()}

    # Categories come first: 0 and 1 instead of words are other categories, not another kind.
    category_differences: list[Difference] = []
    if kinds <= {"categorical", "boolean"}:
        category_differences += _of_categories(name, blanked)
    if category_differences:
        yield from category_differences
    elif len(set(forms.values())) > 1:
        yield Difference(name, "kind", forms, _ALIKE)
    elif kinds <= {"integer", "continuous"}:
        yield from _of_numbers(name, blanked, evidences)
    yield from _of_missing(name, {**tables, **blanked})


def form_of(column: ColumnEvidence, cell_kind: str) -> str:
    """Return how a column is written, as far as two parties must agree.

    Args:
        column: What it seems to be.
        cell_kind: What its cells are in the table, as `Table.kind` names it.
    """
    if column.kind in ("integer", "continuous"):
        if column.format:
            return f"numbers written like {column.format}"
        return "numbers"
    if column.kind == "datetime":
        # Leading zeros may be there or not.
        pattern = (column.format or "").replace("%-", "%")
        return f"dates written as {time_words(pattern)}" if pattern else "dates"
    # A column of few numbers seems to hold categories, and is written in numbers all the same.
    return "numbers" if "numbers" in cell_kind else OTHER_TEXT


def _of_categories(name: str, tables: Mapping[str, Table]) -> Iterator[Difference]:
    """Yield categories in no common spelling, in several, or at some parties alone."""
    counts = {party: _category_counts(name, table) for party, table in tables.items()}
    categories = {party: set(by_value) for party, by_value in counts.items()}
    all_categories: set[str] = set().union(*categories.values())
    # Booleans are read in every spelling.
    folded = {value.casefold() for value in all_categories}
    if len(tables) < 2 or folded <= {"true", "false"}:
        return

    # No category is at two parties: each writes all of them in its own way.
    if len(all_categories) == sum(map(len, categories.values())):
        texts = {
            party: listed(sorted(values), _SHOWN)
            for party, values in categories.items()
        }
        yield Difference(name, "categories", texts, _ALIKE)
        return

    variants = _variants(all_categories)
    if variants:
        texts = {}
        for party, values in categories.items():
            text = listed(sorted(values & variants), _SHOWN)
            if text:
                texts[party] = text
        yield Difference(name, "spelling", texts, _ALIKE)

    # Another spelling of a category is not one that a party lacks.
    lacking = _lacking(counts, variants)
    if lacking:
        texts = {
            party: f"no {listed(values, _SHOWN)}" for party, values in lacking.items()
        }
        advice = "is it written otherwise there, or not recorded?"
        yield Difference(name, "categories", texts, advice)


def _category_counts(name: str, table: Table) -> dict[str, int]:
    """Count a column's rows by category, written as text."""
    values, counts = table.counts(name)
    return dict(zip(map(str, values), counts, strict=True))


def _variants(categories: set[str]) -> set[str]:
    """Return the categories that are there in more than one spelling."""
    spellings: dict[str, set[str]] = {}
    for value in categories:
        spellings.setdefault(_plain(value), set()).add(value)
    repeated = [values for values in spellings.values() if len(values) > 1]
    return set().union(*repeated)


def _plain(text: str) -> str:
    """Return a category without case, spaces around it, and what divides its words."""
    # Between letters alone: in 1-2, <=5 or A+ these marks mean something.
    folded = text.strip().casefold()
    return re.sub(r"(?<=[^\W\d])[\s._/-]+(?=[^\W\d])", " ", folded)


def _lacking(
    counts: Mapping[str, Mapping[str, int]], ignored: set[str]
) -> dict[str, list[str]]:
    """Return categories that a party lacks although it would have rows of them, sorted.

    A party is expected to have as large a share of its rows in a category as all others together.

    Args:
        counts: Every party's rows, by category.
        ignored: Categories that are not looked for.
    """
    totals = sum(map(Counter, counts.values()), Counter[str]())
    row_count = sum(totals.values())
    lacking: dict[str, list[str]] = {}
    for party, party_counts in counts.items():
        rows = sum(party_counts.values())
        absent = []
        for value in totals.keys() - party_counts.keys() - ignored:
            share = totals[value] / (row_count - rows)
            if share * rows >= _EXPECTED_ROWS:
                absent.append(value)
        if absent:
            lacking[party] = sorted(absent)
    return lacking


class _Quantiles(NamedTuple):
    """Quantiles of the sizes of a party's numbers: 5 %, 25 %, 50 %, 75 % and 95 %."""

    bottom: float
    lower: float
    median: float
    upper: float
    top: float


def _of_numbers(
    name: str, tables: Mapping[str, Table], evidences: Mapping[str, ColumnEvidence]
) -> Iterator[Difference]:
    """Yield numbers that are larger at one party by a factor, or have other decimals."""
    sizes: dict[str, _Quantiles] = {}
    for party, table in tables.items():
        quantiles = _sizes(name, table, evidences[party])
        if quantiles is not None:
            sizes[party] = quantiles
    if len(sizes) < 2:
        return

    least, *_, most = sorted(sizes, key=lambda party: sizes[party].median)
    small = sizes[least]
    large = sizes[most]
    factor = large.median / small.median
    # Whole ranges that do not meet say more than middle halves, so that a smaller factor will do.
    is_apart = large.bottom > small.top and factor >= _FACTOR_APART
    is_larger = large.lower > small.upper and factor >= _FACTOR_MEETING
    if is_apart or is_larger:
        ranges = {
            party: f"mostly {_number(quantiles.bottom)} to {_number(quantiles.top)}"
            for party, quantiles in sizes.items()
        }
        advice = (
            f"{most} has about {_times(factor)} times as much as {least}: are units the same, as "
            "in grams and kilograms?"
        )
        yield Difference(name, "size", ranges, advice)

    decimals = {party: evidences[party].decimals or 0 for party in sizes}
    if min(decimals.values()) == 0 < max(decimals.values()):
        texts = {
            party: count_of(number, "decimal", "decimals")
            for party, number in decimals.items()
        }
        advice = "was one rounded? Declare the fewer decimals"
        yield Difference(name, "decimals", texts, advice)


def _sizes(name: str, table: Table, column: ColumnEvidence) -> _Quantiles | None:
    """Return the usual sizes of a column's numbers; None where there are too few of them."""
    numbers = table.blanked(name, column.strays)
    values, is_missing = numbers.floats(name, column.format)
    sizes = np.abs(values[~is_missing])
    # Zeros have no unit.
    sizes = sizes[sizes > 0]
    if len(sizes) < _LEAST_NUMBERS:
        return None
    quantiles = np.quantile(sizes, (0.05, 0.25, 0.5, 0.75, 0.95))
    return _Quantiles(*quantiles.tolist())


def _times(factor: float) -> str:
    """Write a factor roughly: as a power of ten, if it is near one, as between two units."""
    power = 10.0 ** round(log10(factor))
    if power > 1 and 1 / 1.6 < factor / power < 1.6:
        factor = power
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.2g}"


def _number(value: float) -> str:
    """Write a number to three digits, or to the unit if it is large."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _of_missing(name: str, tables: Mapping[str, Table]) -> Iterator[Difference]:
    """Yield values that are missing far more often at one party than at another."""
    masks = {
        party: table.missing(name) for party, table in tables.items() if table.num_rows
    }
    shares = {party: float(mask.mean()) for party, mask in masks.items()}
    if len(shares) < 2:
        return

    # The standard error of a difference of two shares that are one, estimated from both parties.
    least, *_, most = sorted(shares, key=shares.__getitem__)
    rows = [len(masks[least]), len(masks[most])]
    pooled = (masks[least].sum() + masks[most].sum()) / sum(rows)
    error = (pooled * (1 - pooled) * sum(1 / count for count in rows)) ** 0.5
    gap = shares[most] - shares[least]
    if gap >= _LEAST_GAP and gap > _GAP_ERRORS * error:
        texts = {
            party: f"{words.percent(share)} missing" for party, share in shares.items()
        }
        advice = "is it recorded in the same way?"
        yield Difference(name, "missing values", texts, advice)


# Rows and people in common


def overlaps(tables: Mapping[str, Table]) -> list[Overlap]:
    """Return rows, and values of ids, that several parties hold, where they are more than chance.

    Args:
        tables: Each party's rows; all have the same columns.
    """
    if not tables:
        return []
    names = next(iter(tables.values())).names
    evidences = [evidence(table) for table in tables.values()]
    ids = [
        name
        for name in names
        if any(columns[name].kind == "id" for columns in evidences)
    ]
    # A person may have another id at each party, which would hide a row in common.
    compared = [name for name in names if name not in ids]
    keys = {party: table.row_keys(compared or names) for party, table in tables.items()}

    groups = _same_rows(keys)
    common = []
    for group in groups:
        row_count = len(keys[group[0]])
        common.append(Overlap(group, "", row_count, same=True))
    for pair in combinations(tables, 2):
        if any(set(pair) <= set(group) for group in groups):
            continue
        first, second = pair
        row_count = _common(keys[first], keys[second]) if compared else 0
        if row_count:
            common.append(Overlap(pair, "", row_count, same=False))
        for name in ids:
            id_count = _common_ids(name, tables[first], tables[second])
            if id_count:
                common.append(Overlap(pair, name, id_count, same=False))
    return common


def _same_rows(keys: Mapping[str, _Keys]) -> list[tuple[str, ...]]:
    """Return groups of parties that hold the same rows, in whatever order; one row is no file."""
    groups: dict[bytes, list[str]] = {}
    for party, party_keys in keys.items():
        if len(party_keys) > 1:
            groups.setdefault(np.sort(party_keys).tobytes(), []).append(party)
    return [tuple(parties) for parties in groups.values() if len(parties) > 1]


def _common(first_keys: _Keys, second_keys: _Keys) -> int:
    """Count rows of the first that the second has, if they are more than chance; see above."""
    if min(len(first_keys), len(second_keys)) < 2:
        return 0
    all_keys = np.concatenate((first_keys, second_keys))
    distinct, places = np.unique(all_keys, return_inverse=True)
    first_places, second_places = np.split(places, [len(first_keys)])
    first = np.bincount(first_places, minlength=len(distinct))
    second = np.bincount(second_places, minlength=len(distinct))

    # Rows that occur once are at one party; of those that occur often, many are alike by chance.
    times = first + second
    is_rare = (times > 1) & (times <= _MOST_ALIKE)
    first = first[is_rare]
    second = second[is_rare]
    times = times[is_rare]

    # With t = 1/2, m equal rows have m (m - 1) / 4 pairs in the mean, and their variance is
    # m (m - 1) / 8. Both are weighed with 1 / (m - 1), the variance with its square.
    pairs = (first * second / (times - 1.0)).sum()
    chance = times.sum() / 4.0
    error = (times / (times - 1.0) / 8.0).sum() ** 0.5
    if pairs <= chance + _PAIR_ERRORS * error:
        return 0
    return int(first[second > 0].sum())


def _common_ids(name: str, first: Table, second: Table) -> int:
    """Return ids that both have, if they are more than chance would give in so wide a range."""
    first_ids = _id_texts(name, first)
    second_ids = _id_texts(name, second)
    common = first_ids & second_ids
    if len(common) <= _CHANCE_IDS:
        return 0
    room = _id_room(first_ids | second_ids)
    expected = len(first_ids) * len(second_ids) / room
    return len(common) if len(common) > 3.0 * expected + _CHANCE_IDS else 0


def _id_texts(name: str, table: Table) -> set[str]:
    """Return the values of a column of ids as text."""
    values, _ = table.counts(name)
    return {str(value).strip() for value in values}


def _id_room(ids: set[str]) -> float:
    """Estimate how many ids of their form there could be, taken or not."""
    if all(value.isdecimal() for value in ids):
        numbers = [int(value) for value in ids]
        return float(max(numbers) - min(numbers) + 1)
    # By the characters that occur at each place of an id.
    width = max(map(len, ids))
    padded = [value.ljust(width) for value in ids]
    room = 1.0
    for characters in zip(*padded, strict=True):
        room *= min(float(len(set(characters))), 1e3)
    return room


# Rows that do not fit


class _Misfit(NamedTuple):
    """A row that a schema does not allow, by its place in the table, and why."""

    row: int
    reason: str


def misfits(party: str, table: Table, schema: Schema, bins: int) -> list[str]:
    """Return rows that the schema does not allow, with places and values; for their owner alone."""
    schema = schema.refusing()
    names = [
        name for name in table.names if name in schema.names and schema[name].modelled
    ]
    first_rows = list(range(min(table.num_rows, _SHOWN)))
    sentences = []
    unfit_columns = 0
    for name in names:
        column = table.select([name])
        refused = _refused(column, Encoder(schema.select([name]), bins))
        unfit_columns += [misfit.row for misfit in refused] == first_rows
        # One sentence for each reason, with the rows that it is of.
        for reason in dict.fromkeys(misfit.reason for misfit in refused):
            rows = [misfit.row for misfit in refused if misfit.reason == reason]
            cells = _places_and_values(name, table, rows)
            sentences.append(f"{party}, {cells}: {reason}")

    # Where the first rows fit hardly any column, single rows are not what is wrong.
    is_other_table = unfit_columns and unfit_columns * 2 >= len(names)
    if is_other_table and table.num_rows >= _SHOWN:
        sentences.append(
            f"{party}: none of the first {_SHOWN} rows fits {unfit_columns} columns: is it the "
            "schema of another table?"
        )
    # Constraints speak of values that the schema has, so that they come after these.
    return sentences or list(_breaking(party, table, schema))


def _places_and_values(name: str, table: Table, rows: Sequence[int]) -> str:
    """Write where some rows are, and what they have in a column."""
    place = places(table)
    cells = table.take(rows)
    values = cells.values(name).tolist()
    mask = cells.missing(name)
    texts = []
    for row, value, is_missing in zip(rows, values, mask, strict=True):
        shown = "no value" if is_missing else repr(value)
        texts.append(f"{place(row)} ({shown})")
    return ", ".join(texts)


def _breaking(party: str, table: Table, schema: Schema) -> Iterator[str]:
    """Yield constraints that rows break, once every value is the schema's."""
    if not schema.constraints:
        return
    place = places(table)
    for rule, is_broken in Modelled(schema).broken(table).items():
        rows = np.flatnonzero(is_broken).tolist()
        if not rows:
            continue
        row_places = ", ".join(map(place, rows[:_SHOWN]))
        if len(rows) > _SHOWN:
            row_places += ", ..."
        count = count_of(len(rows), "row breaks", "rows break")
        yield f"{party}, {row_places}: {count} {rule}"


def places(table: Table) -> Callable[[int], str]:
    """Return a function that names a row's place: its line in a text file, its row in a sheet.

    Elsewhere it is the row's number. Lines are counted as if no field held a line break.
    """
    if table.is_sheet:
        return lambda row: f"row {table.line(row)} of the sheet"
    if table.dialect is None:
        suffix = " of the sample" if table.drawn_of else ""
        return lambda row: f"row {row + 1}{suffix}"
    return lambda row: f"line {table.line(row)}"


def _refused(table: Table, encoder: Encoder) -> list[_Misfit]:
    """Return the first rows that an encoder refuses, found by halving, and why it does.

    Where the reason is the same for each, it is that of all rows, which counts them.
    """

    def why(start: int, stop: int) -> str:
        try:
            encoder.encode(table.take(np.arange(start, stop)))
        except InputError as error:
            return str(error)
        return ""

    whole_reason = why(0, table.num_rows)
    refused: list[_Misfit] = []
    start = 0
    reason = whole_reason
    while reason and len(refused) < _SHOWN:
        # The first row that is refused is always one of those from low to before high.
        low = start
        high = table.num_rows
        while high - low > 1:
            middle = (low + high) // 2
            if why(low, middle):
                high = middle
            else:
                low = middle
        refused.append(_Misfit(low, why(low, high)))
        start = low + 1
        reason = why(start, table.num_rows) if start < table.num_rows else ""

    reasons = {misfit.reason for misfit in refused}
    if len(reasons) == 1:
        return [misfit._replace(reason=whole_reason) for misfit in refused]
    return refused
