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
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from math import log10

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError, count_of
from siloweave.privacy.budget import Budget
from siloweave.report import words
from siloweave.tables.codes import Encoder
from siloweave.tables.detect import ColumnEvidence, evidence
from siloweave.tables.display import listed
from siloweave.tables.modelled import Modelled
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema

_SHOWN = 5  # values of a column, and rows that misfit it
_NUMBERS = 20  # of a party, from which ranges and shares mean something
# Between typical sizes: of ranges that do not meet, and that may.
_APART, _FACTOR = 1.5, 5.0
_GAP, _SURE = 0.1, 5.0  # between shares of missing values, and in standard errors
_EXPECTED = 10.0  # rows that a party would have of a category that it lacks
# Ids in common that are never named; standard errors beyond chance.
_FEW, _BEYOND = 10, 4.5
_RARE = 10  # times that a row may occur, to be evidence that two parties hold it
OTHER_TEXT = "other text"
"""What `form_of` says of neither numbers nor dates."""
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
        parts = "; ".join(f"{party} has {held}" for party, held in self.held.items())
        return f"{self.column}: {parts}: {self.advice}"


class Overlap(msgspec.Struct, frozen=True):
    """Rows or people that two parties or more hold.

    Attributes:
        parties: Who holds them.
        what: What is alike: all columns, or an id by its name.
        count: How many rows, or ids, are alike.
        same: Whether the parties hold the same rows and no others.
    """

    parties: tuple[str, ...]
    what: str
    count: int
    same: bool

    def said(self, budget: Budget | None = None) -> str:
        """Describe it, with what it does to ε for a person where a budget bounds that."""
        who, times = " and ".join(self.parties), len(self.parties)
        if self.same:
            text = (
                f"{who} hold the same {self.count:,} rows: "
                f"was one file given to {times} parties?"
            )
        elif self.what:
            text = f"{self.count:,} values of {self.what} are at {who}: are they the same people?"
        else:
            text = f"{self.count:,} rows are at {who}, more than chance would give."
        return f"{text} {costs(times, budget)}"


def costs(times: int, budget: Budget | None) -> str:
    """Return what several rows of a person at different parties mean, in a sentence."""
    if budget is not None and not budget.by_row:
        if times <= budget.parties_per_unit:
            return f"The study says so: parties_per_unit = {budget.parties_per_unit}."
        return (
            f"The study says that a {budget.unit} has rows at no more than "
            f"{count_of(budget.parties_per_unit, 'party', 'parties')}: ε does not hold for more. "
            f"Leave them out, or set parties_per_unit = {times}."
        )
    rows = f"A person with a row at each of {times} parties"
    if budget is None or not budget.private:
        return f"{rows} has {times} times the ε of a row, at a larger δ."
    epsilon, delta = words.of_rows(budget.epsilon, budget.delta, times)
    return (
        f"{rows} has ε = {words.epsilon(epsilon)} at δ = {words.small(delta)}, not "
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
    return [
        found
        for name in next(iter(tables.values())).names
        for found in _of_column(name, tables)
    ]


def _of_column(name: str, tables: Mapping[str, Table]) -> Iterator[Difference]:
    gone = {party: table.missing(name) for party, table in tables.items()}
    filled = {party: table for party, table in tables.items() if not gone[party].all()}
    seen = {party: evidence(table, (name,))[name] for party, table in filled.items()}
    marked = {
        p: table.blanked(name, seen[p].missing_values) for p, table in filled.items()
    }
    forms = {
        party: form_of(one, tables[party].kind(name)) for party, one in seen.items()
    }
    kinds = {one.kind for one in seen.values()}
    named = kinds <= {"categorical", "boolean"} and list(_of_categories(name, marked))
    if named:
        yield from named
    elif len(set(forms.values())) > 1:
        yield Difference(name, "kind", forms, _ALIKE)
    elif kinds <= {"integer", "continuous"}:
        yield from _of_numbers(name, marked, seen)
    yield from _of_missing(name, {**tables, **marked})


def form_of(one: ColumnEvidence, held: str) -> str:
    """Return how a column is written, as far as two parties must agree."""
    numeric = one.kind in ("integer", "continuous")
    if numeric or (one.kind != "datetime" and "numbers" in held):
        return (
            f"numbers written like {one.format}"
            if numeric and one.format
            else "numbers"
        )
    if one.kind == "datetime":
        # Leading zeros may be there or not.
        form = (one.format or "").replace("%-", "%")
        return f"dates written as {form}" if form else "dates"
    return OTHER_TEXT


def _of_categories(name: str, tables: Mapping[str, Table]) -> Iterator[Difference]:
    """Yield categories in no common spelling, in several, or at some parties alone."""
    counts = {
        party: {str(value): n for value, n in zip(*table.counts(name), strict=True)}
        for party, table in tables.items()
    }
    held = {party: set(found) for party, found in counts.items()}
    shown = {party: listed(sorted(found), _SHOWN) for party, found in held.items()}
    every = {value.casefold() for value in set().union(*held.values())}
    if len(held) < 2 or every <= {"true", "false"}:  # which are read in every spelling
        return
    if len(set().union(*held.values())) == sum(map(len, held.values())):
        yield Difference(name, "categories", shown, _ALIKE)
        return
    spelled: dict[str, set[str]] = {}
    for value in set().union(*held.values()):
        spelled.setdefault(_plain(value), set()).add(value)
    several = {one for found in spelled.values() if len(found) > 1 for one in found}
    if several:
        own = {p: listed(sorted(found & several), _SHOWN) for p, found in held.items()}
        own = {party: text for party, text in own.items() if text}
        yield Difference(name, "spelling", own, _ALIKE)
    rows = {party: sum(found.values()) for party, found in counts.items()}
    total = sum(map(Counter, counts.values()), Counter[str]())
    lacking = {
        party: sorted(
            value
            for value in total.keys() - found.keys() - several
            if total[value] / (sum(rows.values()) - rows[party]) * rows[party]
            >= _EXPECTED
        )
        for party, found in counts.items()
    }
    if any(lacking.values()):
        absent = {
            party: f"no {listed(lack, _SHOWN)}"
            for party, lack in lacking.items()
            if lack
        }
        advice = "is it written otherwise there, or not recorded?"
        yield Difference(name, "categories", absent, advice)


def _plain(text: str) -> str:
    """Return a category without case, spaces around it, and what divides its words."""
    return re.sub(r"(?<=[^\W\d])[\s._/-]+(?=[^\W\d])", " ", text.strip().casefold())


def _of_numbers(
    name: str, tables: Mapping[str, Table], seen: Mapping[str, ColumnEvidence]
) -> Iterator[Difference]:
    """Yield numbers that are larger at one party by a factor, or have other decimals."""
    sizes = {}
    for party, table in tables.items():
        clean = table.blanked(name, seen[party].strays)
        values, gone = clean.floats(name, seen[party].format)
        if ((found := np.abs(values[~gone])) > 0).sum() >= _NUMBERS:
            sizes[party] = np.quantile(found[found > 0], (0.05, 0.25, 0.5, 0.75, 0.95))
    if len(sizes) < 2:
        return
    least, *_, most = sorted(sizes, key=lambda party: float(sizes[party][2]))
    low, high = sizes[least], sizes[most]
    factor = float(high[2] / low[2])
    if (high[0] > low[4] and factor >= _APART) or (
        high[1] > low[3] and factor >= _FACTOR
    ):
        tens = 10.0 ** round(log10(factor))
        about = tens if tens > 1 and 1 / 1.6 < factor / tens < 1.6 else factor
        held = {
            p: f"mostly {_number(q[0])} to {_number(q[4])}" for p, q in sizes.items()
        }
        times = f"{about:,.0f}" if about >= 10 else f"{about:.2g}"
        advice = (
            f"{most} has about {times} times as much as {least}: are units the same, as in "
            "grams and kilograms?"
        )
        yield Difference(name, "size", held, advice)
    digits = {party: seen[party].decimals or 0 for party in sizes}
    if min(digits.values()) == 0 < max(digits.values()):
        held = {p: count_of(n, "decimal", "decimals") for p, n in digits.items()}
        yield Difference(
            name, "decimals", held, "was one rounded? Declare the fewer decimals"
        )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _of_missing(name: str, tables: Mapping[str, Table]) -> Iterator[Difference]:
    """Yield values that are missing far more often at one party than at another."""
    found = {
        party: table.missing(name) for party, table in tables.items() if table.num_rows
    }
    shares = {party: float(mask.mean()) for party, mask in found.items()}
    if len(shares) < 2:
        return
    least, *_, most = sorted(shares, key=shares.__getitem__)
    counts = [len(found[party]) for party in (least, most)]
    pooled = (found[least].sum() + found[most].sum()) / sum(counts)
    error = (pooled * (1 - pooled) * sum(1 / count for count in counts)) ** 0.5
    gap = shares[most] - shares[least]
    if gap >= _GAP and gap > _SURE * error:
        held = {
            party: f"{words.percent(share)} missing" for party, share in shares.items()
        }
        yield Difference(
            name, "missing values", held, "is it recorded in the same way?"
        )


# Rows and people in common


def overlaps(tables: Mapping[str, Table]) -> list[Overlap]:
    """Return rows, and values of ids, that several parties hold, where they are more than chance.

    Args:
        tables: Each party's rows; all have the same columns.
    """
    names = next(iter(tables.values())).names if tables else ()
    seen = [evidence(table) for table in tables.values()]
    ids = [name for name in names if any(one[name].kind == "id" for one in seen)]
    compared = [name for name in names if name not in ids]
    keys = {party: table.row_keys(compared or names) for party, table in tables.items()}
    alike: dict[bytes, list[str]] = {}
    for party, own in keys.items():
        if len(own) > 1:
            alike.setdefault(np.sort(own).tobytes(), []).append(party)
    same = [who for who in alike.values() if len(who) > 1]
    found = [Overlap(tuple(who), "", len(keys[who[0]]), same=True) for who in same]
    for pair in combinations(tables, 2):
        if any(set(pair) <= set(who) for who in same):
            continue
        if (count := _common(keys[pair[0]], keys[pair[1]])) and compared:
            found.append(Overlap(pair, "", count, same=False))
        for name in ids:
            if count := _common_ids(name, tables[pair[0]], tables[pair[1]]):
                found.append(Overlap(pair, name, count, same=False))
    return found


def _common(one: NDArray[np.uint64], two: NDArray[np.uint64]) -> int:
    """Count rows of the first that the second has, if they are more than chance; see above."""
    if min(len(one), len(two)) < 2:
        return 0
    keys, places = np.unique(np.concatenate((one, two)), return_inverse=True)
    ours, others = (
        np.bincount(at, minlength=len(keys)) for at in np.split(places, [len(one)])
    )
    times = ours + others
    rare = (times > 1) & (times <= _RARE)
    ours, others, times = ours[rare], others[rare], times[rare]
    pairs = (ours * others / (times - 1.0)).sum()
    chance, error = times.sum() / 4.0, (times / (times - 1.0) / 8.0).sum() ** 0.5
    return int(ours[others > 0].sum()) if pairs > chance + _BEYOND * error else 0


def _common_ids(name: str, one: Table, two: Table) -> int:
    """Return ids that both have, if they are more than chance would give in so wide a range."""
    own = [
        {str(value).strip() for value in table.counts(name)[0]} for table in (one, two)
    ]
    common, whole = own[0] & own[1], own[0] | own[1]
    if len(common) <= _FEW:
        return 0
    if all(value.isdecimal() for value in whole):
        room = float(max(map(int, whole)) - min(map(int, whole)) + 1)
    else:
        width = max(map(len, whole))
        places = zip(*(value.ljust(width) for value in whole), strict=True)
        room = float(np.prod([min(float(len(set(place))), 1e3) for place in places]))
    expected = len(own[0]) * len(own[1]) / room
    return len(common) if len(common) > 3.0 * expected + _FEW else 0


# Rows that do not fit


def misfits(party: str, table: Table, schema: Schema, bins: int) -> list[str]:
    """Return rows that the schema does not allow, with places and values; for their owner alone."""
    schema = schema.refusing()
    names = [n for n in table.names if n in schema.names and schema[n].modelled]
    found, all_odd, place = [], 0, places(table)
    for name in names:
        odd = _refused(table.select([name]), Encoder(schema.select([name]), bins))
        all_odd += [row for row, _ in odd] == list(range(min(table.num_rows, _SHOWN)))
        for reason in dict.fromkeys(why for _, why in odd):
            rows = [row for row, why in odd if why == reason]
            values, gone = (
                table.take(rows).values(name).tolist(),
                table.take(rows).missing(name),
            )
            shown = [
                "no value" if g else repr(v) for v, g in zip(values, gone, strict=True)
            ]
            where = ", ".join(
                f"{place(row)} {v}" for row, v in zip(rows, shown, strict=True)
            )
            found.append(f"{party}, {where}: {reason}")
    if all_odd and all_odd * 2 >= len(names) and table.num_rows >= _SHOWN:
        found.append(
            f"{party}: none of the first {_SHOWN} rows fits {all_odd} columns: is it the schema of "
            "another table?"
        )
    return found or list(_breaking(party, table, schema))


def _breaking(party: str, table: Table, schema: Schema) -> Iterator[str]:
    """Yield constraints that rows break, once every value is the schema's."""
    if not schema.constraints:
        return
    place = places(table)
    for rule, wrong in Modelled(schema).broken(table).items():
        if rows := np.flatnonzero(wrong).tolist():
            where = ", ".join(map(place, rows[:_SHOWN])) + (
                ", ..." if len(rows) > _SHOWN else ""
            )
            yield f"{party}, {where}: {count_of(len(rows), 'row breaks', 'rows break')} {rule}"


def places(table: Table) -> Callable[[int], str]:
    """Return where a row is: its line in a text file, counted as if no field held a line break."""
    if table.dialect is None:
        drawn = " of the sample" if table.drawn_of else ""
        return lambda row: f"row {row + 1}{drawn}"
    return lambda row: f"line {table.line(row)}"


def _refused(table: Table, encoder: Encoder) -> list[tuple[int, str]]:
    """Return the first rows that an encoder refuses, found by halving, and why it does.

    Where the reason is the same for each, it is that of all rows, which counts them.
    """

    def why(first: int, last: int) -> str:
        try:
            encoder.encode(table.take(np.arange(first, last)))
        except InputError as error:
            return str(error)
        return ""

    found: list[tuple[int, str]] = []
    start, whole = 0, why(0, table.num_rows)
    left = whole
    while left and len(found) < _SHOWN:
        low, high = start, table.num_rows
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if why(low, middle) else (middle, high)
        found.append((low, why(low, high)))
        start = low + 1
        left = why(start, table.num_rows) if start < table.num_rows else ""
    alike = len({reason for _, reason in found}) == 1
    return [(row, whole if alike else reason) for row, reason in found]
