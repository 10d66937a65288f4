"""What shadow attacks look at: summaries of a table, how near it comes to a record, odd records.

Houssiau, Jordon, Cohen, Daniel, Elliott, Geddes, Mole, Rangel-Smith and Szpruch, *TAPAS: a toolbox
for adversarial privacy auditing of synthetic data*, 2022 (the five attacks); Stadler, Oprisanu and
Troncoso, *Synthetic data: anonymisation groundhog day*, USENIX Security 2022 (naive and histogram
summaries); Meeus, Guepin, Cretu and de Montjoye, *Achilles' heels: vulnerable record identification
in synthetic data publishing*, ESORICS 2023 (the records that are most exposed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError, whole
from siloweave.tables.aligned import AlignedColumn, align, floats_of
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.keys import Key, generator
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Column, Schema

WIDEST = 256
"""Categories of a column that a summary counts one by one; rarer ones are taken together."""
_BINS = 10
_TREES = 100
_BLOCK = 1 << 18  # distances held at a time, so that they stay near the processor


@dataclass(frozen=True, eq=False)
class CodedTable:
    """Rows as numbers and codes, one array each.

    Attributes:
        numbers: (rows, numeric columns), 0 to 1 over the bounds (raw where the layout is not
            scaled); NaN where missing.
        codes: (rows, categorical columns), places in the layout's labels; after them one code for
            a missing and one for an unseen value.
    """

    numbers: Floats
    codes: NDArray[np.int32]

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.numbers)

    def take(self, places: Sequence[int] | Ints) -> CodedTable:
        """Return the rows at some positions."""
        chosen = np.asarray(places, dtype=np.int64)
        return CodedTable(self.numbers[chosen], self.codes[chosen])

    def same(self, place: int) -> Bools:
        """Which rows equal the one at a position, missing values included."""
        numbers, one = self.numbers, self.numbers[place]
        equal = ((numbers == one) | (np.isnan(numbers) & np.isnan(one))).all(axis=1)
        found: Bools = equal & (self.codes == self.codes[place]).all(axis=1)
        return found


@dataclass(frozen=True, eq=False)
class _Place:
    """How one column is read."""

    column: Column
    labels: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, eq=False)
class SummaryLayout:
    """One way to read every table of an attack, fixed before the first is seen.

    Bounds are those of the schema, else those of the adversary's own rows; categories are those
    of the adversary's rows.

    Args:
        numeric: Numeric columns and their bounds.
        categorical: Categorical columns and their labels.
        scaled: Whether numbers are scaled to 0 to 1 before distances and moments are taken. TAPAS
            takes raw numbers, so the column of the widest range decides alone.
    """

    numeric: tuple[_Place, ...]
    categorical: tuple[_Place, ...]
    scaled: bool = True

    @staticmethod
    def of(table: Table, schema: Schema | None = None, *, scaled: bool = True) -> SummaryLayout:
        """Columns, kinds and bounds of the adversary's rows, and of the schema if there is one."""
        facts = Schema.detect(table, constraints=False) if schema is None else schema
        aligned = align({"auxiliary": table}, facts)
        return SummaryLayout(
            tuple(_numeric(column, facts) for column in aligned.numeric),
            tuple(_Place(facts[c.name], c.labels) for c in aligned.categorical),
            scaled,
        )

    @property
    def levels(self) -> tuple[int, ...]:
        """Codes of each categorical column, a missing and an unseen value included."""
        return tuple(len(place.labels) + 2 for place in self.categorical)

    @property
    def dimensions(self) -> int:
        """Length of a row with one-hot categories, missing ones included."""
        return len(self.numeric) + sum(self.levels)

    def read(self, table: Table) -> CodedTable:
        """Read a table's rows."""
        numbers = [self._numbers(place, table) for place in self.numeric]
        codes = [_codes(place, table) for place in self.categorical]
        return CodedTable(
            np.column_stack(numbers) if numbers else np.zeros((table.num_rows, 0)),
            np.column_stack(codes) if codes else np.zeros((table.num_rows, 0), dtype=np.int32),
        )

    def _numbers(self, place: _Place, table: Table) -> Floats:
        found = floats_of(place.column, table)
        if self.scaled:
            found = (found - place.low) / ((place.high - place.low) or 1.0)
        return found

    def unit(self, rows: CodedTable) -> Floats:
        """Numbers scaled to 0 to 1 over the bounds, whether or not the layout scales."""
        if self.scaled or not self.numeric:
            return rows.numbers
        low, high = np.array([(place.low, place.high) for place in self.numeric]).T
        scaled: Floats = (rows.numbers - low) / np.where(high == low, 1.0, high - low)
        return scaled

    def frequencies(self, rows: CodedTable) -> list[Floats]:
        """Share of rows in each category, per column; beyond the 256 most frequent together."""
        found = []
        for column, levels in zip(rows.codes.T, self.levels, strict=True):
            shown = min(levels, WIDEST + 2)
            counts = np.bincount(np.minimum(column, shown - 1), minlength=shown)
            found.append(counts / max(1, rows.num_rows))
        return found


def _numeric(column: AlignedColumn, schema: Schema) -> _Place:
    values, declared = column.values["auxiliary"], schema[column.name]
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if not column.datetimes and declared.low is not None and declared.high is not None:
        low, high = float(declared.low), float(declared.high)
    return _Place(declared, (), low, high)


def _codes(place: _Place, table: Table) -> NDArray[np.int32]:
    """Places in the labels; -1 (missing) and -2 (unseen) become the two codes after them."""
    name, blanks = place.column.name, place.column.missing_values
    found = table.blanked(name, blanks).lookup(name, place.labels)
    codes: NDArray[np.int32] = np.where(found < 0, len(place.labels) - 1 - found, found).astype(
        np.int32
    )
    return codes


def naive_summary(rows: CodedTable, layout: SummaryLayout) -> Floats:
    """NaiveGroundhog: mean, median and variance of every numeric and every one-hot column.

    Missing numbers are left out of the three; their share is a fourth summary. The vector has the
    same length for all tables of one layout.
    """
    parts = [_moments(column) for column in rows.numbers.T]
    for share in layout.frequencies(rows):
        median = np.where(share == 0.5, 0.5, (share > 0.5).astype(np.float64))
        parts += [share, median, share * (1 - share)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _moments(column: Floats) -> Floats:
    present = column[~np.isnan(column)]
    gone = 1 - len(present) / max(1, len(column))
    if not len(present):
        return np.array([0.0, 0.0, 0.0, gone])
    return np.array([present.mean(), np.median(present), present.var(), gone])


def histogram_summary(rows: CodedTable, layout: SummaryLayout) -> Floats:
    """HistGroundhog: category frequencies, and ten bins between a numeric column's bounds.

    Numbers beyond the bounds fall into the outermost bins; missing ones have a bin of their own.
    The vector has the same length for all tables of one layout.
    """
    parts = []
    for column in layout.unit(rows).T:
        gone = np.isnan(column)
        places = np.clip(column[~gone] * _BINS, 0, _BINS - 1).astype(np.int64)
        bins = np.append(np.bincount(places, minlength=_BINS), gone.sum())
        parts.append(bins / max(1, rows.num_rows))
    parts += layout.frequencies(rows)
    return np.concatenate(parts) if parts else np.zeros(0)


def nearness(rows: CodedTable, record: CodedTable, layout: SummaryLayout) -> Floats:
    """How near a table of at least one row comes to one record; greater is nearer.

    Minus the least share of columns that differ (Hamming); minus the least Euclidean distance of
    numbers and one-hot categories (L2); the log-density at the record under a Gaussian kernel of
    bandwidth 1 on the same vectors. A number that is missing on one side only is one range away.
    """
    if not rows.num_rows:
        raise InputError("the synthetic table has no rows; there is nothing to attack")
    different = (rows.codes != record.codes).sum(axis=1, dtype=np.int64)
    apart = np.abs(rows.numbers - record.numbers)
    here, there = np.isnan(rows.numbers), np.isnan(record.numbers)
    if here.any() or there.any():
        ranges = [1.0 if layout.scaled else place.high - place.low for place in layout.numeric]
        apart = np.where(here != there, ranges, np.where(here & there, 0.0, apart))
    squares = (apart**2).sum(axis=1) + 2.0 * different
    columns = rows.numbers.shape[1] + rows.codes.shape[1]
    hamming = ((apart > 0).sum(axis=1) + different).min() / columns
    least = squares.min()
    kernel = np.exp((least - squares) / 2).mean()
    density = np.log(kernel) - least / 2 - layout.dimensions / 2 * np.log(2 * np.pi)
    return np.array([-hamming, -np.sqrt(least), density])


def forest_scores(train: Floats, members: Bools, test: Floats, *, key: Key) -> tuple[Floats, float]:
    """Learn from summaries (sets, length) which tables were fitted with a record.

    Returns the probability that each test set held the record, by a forest of 100 trees, and the
    threshold above which it says so: just above one half, as half the trees do not make a majority.
    """
    from sklearn.ensemble import RandomForestClassifier

    seed = int(generator(key).integers(2**31))
    forest = RandomForestClassifier(n_estimators=_TREES, random_state=seed)
    forest.fit(train, members)
    scores: Floats = forest.predict_proba(test)[:, list(forest.classes_).index(True)]
    return scores, float(np.nextafter(0.5, 1.0))


def exposed_records(
    table: Any,
    count: int,
    *,
    key: Key,
    schema: Schema | None = None,
    sample: int = 5000,
    owners: Ints | None = None,
) -> Ints:
    """Find the rows that a membership attack is most likely to recognise: the outliers.

    These are the rows whose nearest other row is farthest, by Euclidean distance of scaled numbers
    and one-hot categories. The result is exact, though few rows are compared with all: the nearest
    row of a sample is at least as far as the nearest of all, so rows are compared with all in that
    order until no other can be farther. The key draws a sample where there are more rows than
    `sample`. With `owners`, whose each row is, rows of the same person do not count as near, since
    they hide nobody. Returns places in the table, most exposed first.
    """
    rows = read(table)
    if not 1 <= count < rows.num_rows:
        raise InputError(
            f"count={count} must be from 1 to {rows.num_rows - 1}, one less than there are rows"
        )
    whole("sample", sample, 2)
    seen, everyone = SummaryLayout.of(rows, schema).read(rows), np.arange(rows.num_rows)
    some = everyone
    if sample < rows.num_rows:
        some = np.sort(generator(key).choice(rows.num_rows, size=sample, replace=False))
    whose = everyone if owners is None else owners
    most = _to_nearest(seen, everyone, some, whose)
    order = np.argsort(-most, kind="stable")
    found: dict[int, float] = {}
    for start in range(0, len(order), 4 * count):
        kept = sorted(found.values(), reverse=True)[:count]
        if len(kept) == count and most[order[start]] <= kept[-1]:
            break
        batch = order[start : start + 4 * count]
        found.update(zip(batch.tolist(), _to_nearest(seen, batch, everyone, whose), strict=True))
    ranked = sorted(found, key=lambda place: (-found[place], place))
    return np.array(ranked[:count], dtype=np.int64)


def _to_nearest(seen: CodedTable, ours: Ints, theirs: Ints, owners: Ints) -> Floats:
    """Squared distance from each row of ours to the nearest of theirs that another unit has."""
    size = max(1, _BLOCK // len(theirs))
    others = seen.take(theirs)
    parts = []
    for start in range(0, len(ours), size):
        block = ours[start : start + size]
        squares = _squares(seen.take(block), others)
        squares[owners[block][:, None] == owners[theirs][None, :]] = np.inf
        parts.append(squares.min(axis=1))
    return np.concatenate(parts)


def _squares(ours: CodedTable, theirs: CodedTable) -> Floats:
    """Squared distances between scaled numbers and one-hot categories, (ours, theirs)."""
    different = np.zeros((ours.num_rows, theirs.num_rows), dtype=np.uint16)
    for mine, other in zip(ours.codes.T, theirs.codes.T, strict=True):
        different += mine[:, None] != other[None, :]
    squares = different.astype(np.float64)
    squares *= 2
    for mine, other in zip(ours.numbers.T, theirs.numbers.T, strict=True):
        apart = mine[:, None] - other[None, :]
        apart *= apart
        if np.isnan(mine).any() or np.isnan(other).any():
            gone = np.isnan(mine)[:, None] != np.isnan(other)[None, :]
            apart[np.isnan(apart)] = 0.0
            apart += gone
        squares += apart
    return squares
