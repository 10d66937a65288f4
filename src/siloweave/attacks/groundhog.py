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
from siloweave.tables.column import Column
from siloweave.tables.keys import Key, generator
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

WIDEST = 256
"""Categories of a column that a summary counts one by one; rarer ones are taken together."""
_BINS = 10
_TREES = 100
_BLOCK = 1 << 18  # distances held at a time, so that they stay near the processor


@dataclass(frozen=True, eq=False)
class CodedTable:
    """The rows of a table as numbers and codes, one array each.

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
        """The number of rows."""
        return len(self.numbers)

    def take(self, places: Sequence[int] | Ints) -> CodedTable:
        """Return the rows at some positions."""
        rows = np.asarray(places, dtype=np.int64)
        return CodedTable(self.numbers[rows], self.codes[rows])

    def same(self, place: int) -> Bools:
        """Return which rows equal the row at one position, missing values included."""
        record = self.numbers[place]
        is_missing = np.isnan(self.numbers) & np.isnan(record)
        numbers_equal = ((self.numbers == record) | is_missing).all(axis=1)
        codes_equal = (self.codes == self.codes[place]).all(axis=1)
        is_same: Bools = numbers_equal & codes_equal
        return is_same


@dataclass(frozen=True, eq=False)
class _ColumnLayout:
    """The way in which one column is read: over its bounds, or as places in its labels."""

    column: Column
    labels: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, eq=False)
class SummaryLayout:
    """The one way to read every table of an attack, fixed before the first table is seen.

    Bounds are those of the schema, else those of the adversary's own rows; categories are those
    of the adversary's rows.

    Args:
        numeric: Numeric columns and their bounds.
        categorical: Categorical columns and their labels.
        scaled: Whether numbers are scaled to 0 to 1 before distances and moments are taken. TAPAS
            takes raw numbers, so the column of the widest range decides alone.
    """

    numeric: tuple[_ColumnLayout, ...]
    categorical: tuple[_ColumnLayout, ...]
    scaled: bool = True

    @staticmethod
    def of(
        table: Table, schema: Schema | None = None, *, scaled: bool = True
    ) -> SummaryLayout:
        """Make a layout of the adversary's rows; bounds are the schema's if one is given."""
        facts = Schema.detect(table, constraints=False) if schema is None else schema
        aligned = align({"auxiliary": table}, facts)
        numeric = [_numeric(column, facts) for column in aligned.numeric]
        categorical = [
            _ColumnLayout(facts[column.name], column.labels)
            for column in aligned.categorical
        ]
        return SummaryLayout(tuple(numeric), tuple(categorical), scaled)

    @property
    def levels(self) -> tuple[int, ...]:
        """The number of codes of each categorical column, those of missing and unseen included."""
        return tuple(len(layout.labels) + 2 for layout in self.categorical)

    @property
    def dimensions(self) -> int:
        """The length of a row with one-hot categories, missing ones included."""
        return len(self.numeric) + sum(self.levels)

    def read(self, table: Table) -> CodedTable:
        """Read a table's rows as numbers and codes."""
        # Arrays without columns: there is something to join where a kind has none.
        numbers = [np.zeros((table.num_rows, 0))]
        numbers += [self._numbers(layout, table)[:, None] for layout in self.numeric]
        codes = [np.zeros((table.num_rows, 0), dtype=np.int32)]
        codes += [_codes(layout, table)[:, None] for layout in self.categorical]
        return CodedTable(np.hstack(numbers), np.hstack(codes))

    def _numbers(self, layout: _ColumnLayout, table: Table) -> Floats:
        """Return a column's numbers, scaled to its bounds if the layout scales."""
        values = floats_of(layout.column, table)
        if not self.scaled:
            return values
        span = (layout.high - layout.low) or 1.0
        return (values - layout.low) / span

    def unit(self, rows: CodedTable) -> Floats:
        """Return numbers scaled to 0 to 1 over the bounds, whether or not the layout scales."""
        if self.scaled or not self.numeric:
            return rows.numbers
        low = np.array([layout.low for layout in self.numeric])
        high = np.array([layout.high for layout in self.numeric])
        scaled: Floats = (rows.numbers - low) / np.where(high == low, 1.0, high - low)
        return scaled

    def frequencies(self, rows: CodedTable) -> list[Floats]:
        """Return each column's share of rows in each category, rarer than 256 others together."""
        frequencies = []
        for codes, levels in zip(rows.codes.T, self.levels, strict=True):
            # Labels are in the order of their frequency, so that the last codes are the rarest.
            num_counted = min(levels, WIDEST + 2)
            counts = np.bincount(
                np.minimum(codes, num_counted - 1), minlength=num_counted
            )
            frequencies.append(counts / max(1, rows.num_rows))
        return frequencies


def _numeric(column: AlignedColumn, schema: Schema) -> _ColumnLayout:
    """Return the layout of a numeric column, with its declared bounds or else those of the rows."""
    declared = schema[column.name]
    # Declared bounds of datetimes are no numbers of days.
    if not column.datetimes and declared.low is not None and declared.high is not None:
        return _ColumnLayout(declared, (), float(declared.low), float(declared.high))
    values = column.values["auxiliary"]
    return _ColumnLayout(
        declared, (), float(np.nanmin(values)), float(np.nanmax(values))
    )


def _codes(layout: _ColumnLayout, table: Table) -> NDArray[np.int32]:
    """Return each value's place in the labels; missing and unseen values have two codes more."""
    name = layout.column.name
    places = table.blanked(name, layout.column.missing_values).lookup(
        name, layout.labels
    )
    after_labels = len(layout.labels) - 1 - places
    codes: NDArray[np.int32] = np.where(places < 0, after_labels, places).astype(
        np.int32
    )
    return codes


def naive_summary(rows: CodedTable, layout: SummaryLayout) -> Floats:
    """Return NaiveGroundhog's mean, median and variance of numeric and of one-hot columns.

    Missing numbers are left out of the three; their share is a fourth summary. The vector has the
    same length for all tables of one layout.
    """
    parts = [np.zeros(0)]
    parts += [_moments(column) for column in rows.numbers.T]
    for shares in layout.frequencies(rows):
        # Of a column of zeros and ones, mean, median and variance follow from the share of ones.
        median = np.where(shares == 0.5, 0.5, (shares > 0.5).astype(np.float64))
        variance = shares * (1 - shares)
        parts += [shares, median, variance]
    return np.concatenate(parts)


def _moments(column: Floats) -> Floats:
    """Return mean, median and variance of a column's numbers, and the share of missing ones."""
    present = column[~np.isnan(column)]
    missing_share = 1 - len(present) / max(1, len(column))
    if not len(present):
        return np.array([0.0, 0.0, 0.0, missing_share])
    return np.array([present.mean(), np.median(present), present.var(), missing_share])


def histogram_summary(rows: CodedTable, layout: SummaryLayout) -> Floats:
    """Return HistGroundhog's category frequencies and bins, ten between a column's bounds.

    Numbers beyond the bounds fall into the outermost bins; missing ones have a bin of their own.
    The vector has the same length for all tables of one layout.
    """
    parts = [np.zeros(0)]
    for column in layout.unit(rows).T:
        is_missing = np.isnan(column)
        places = np.clip(column[~is_missing] * _BINS, 0, _BINS - 1).astype(np.int64)
        counts = np.append(np.bincount(places, minlength=_BINS), is_missing.sum())
        parts.append(counts / max(1, rows.num_rows))
    parts += layout.frequencies(rows)
    return np.concatenate(parts)


def nearness(rows: CodedTable, record: CodedTable, layout: SummaryLayout) -> Floats:
    """Measure how near a table of at least one row comes to one record; greater is nearer.

    Minus the least share of columns that differ (Hamming); minus the least Euclidean distance of
    numbers and one-hot categories (L2); the log-density at the record under a Gaussian kernel of
    bandwidth 1 on the same vectors. A number that is missing on one side only is one range away.
    """
    if not rows.num_rows:
        raise InputError("the synthetic table has no rows; there is nothing to attack")
    num_mismatches = (rows.codes != record.codes).sum(axis=1, dtype=np.int64)
    gaps = _gaps_between(rows.numbers, record.numbers, layout)

    # Hamming.
    num_columns = rows.numbers.shape[1] + rows.codes.shape[1]
    least_share = ((gaps > 0).sum(axis=1) + num_mismatches).min() / num_columns

    # L2: two categories that differ are 1 apart in two one-hot columns.
    squares = (gaps**2).sum(axis=1) + 2.0 * num_mismatches
    least_square = squares.min()

    # Kernel: exponents less the largest, which is added again as a logarithm.
    kernel = np.exp((least_square - squares) / 2).mean()
    log_density = (
        np.log(kernel) - least_square / 2 - layout.dimensions / 2 * np.log(2 * np.pi)
    )
    return np.array([-least_share, -np.sqrt(least_square), log_density])


def _gaps_between(numbers: Floats, record: Floats, layout: SummaryLayout) -> Floats:
    """Return how far numbers are from a record's; a missing value is one range from any number."""
    gaps = np.abs(numbers - record)
    is_missing = np.isnan(numbers)
    is_missing_in_record = np.isnan(record)
    if not (is_missing.any() or is_missing_in_record.any()):
        return gaps
    ranges = [1.0] * len(layout.numeric)
    if not layout.scaled:
        ranges = [column.high - column.low for column in layout.numeric]
    gaps = np.where(is_missing & is_missing_in_record, 0.0, gaps)
    return np.where(is_missing != is_missing_in_record, ranges, gaps)


def forest_scores(
    train: Floats, members: Bools, test: Floats, *, key: Key
) -> tuple[Floats, float]:
    """Learn from summaries (sets, length) which tables were fitted with a record.

    Returns the probability that each test set held the record, by a forest of 100 trees, and the
    threshold above which it says so: just above one half, as half the trees do not make a majority.
    """
    from sklearn.ensemble import RandomForestClassifier

    seed = int(generator(key).integers(2**31))
    forest = RandomForestClassifier(n_estimators=_TREES, random_state=seed)
    forest.fit(train, members)
    member_column = list(forest.classes_).index(True)
    scores: Floats = forest.predict_proba(test)[:, member_column]
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
    coded_rows = SummaryLayout.of(rows, schema).read(rows)
    all_places = np.arange(rows.num_rows)
    if owners is None:
        owners = all_places

    # The nearest row of a sample gives each row an upper bound.
    sampled_places = all_places
    if sample < rows.num_rows:
        sampled_places = generator(key).choice(
            rows.num_rows, size=sample, replace=False
        )
        sampled_places = np.sort(sampled_places)
    bounds = _to_nearest(coded_rows, all_places, sampled_places, owners)
    order = np.argsort(-bounds, kind="stable")

    # Exact distances in the order of the bounds, until no further bound reaches the farthest ones.
    distances: dict[int, float] = {}
    batch_size = 4 * count
    for start in range(0, len(order), batch_size):
        farthest = sorted(distances.values(), reverse=True)[:count]
        if len(farthest) == count and bounds[order[start]] <= farthest[-1]:
            break
        batch = order[start : start + batch_size]
        batch_distances = _to_nearest(coded_rows, batch, all_places, owners)
        distances.update(zip(batch.tolist(), batch_distances, strict=True))
    ranked = sorted(distances, key=lambda place: (-distances[place], place))
    return np.array(ranked[:count], dtype=np.int64)


def _to_nearest(rows: CodedTable, places: Ints, others: Ints, owners: Ints) -> Floats:
    """Return the squared distance from each row to the nearest row of another unit.

    `places` are those of the rows, and `others` those of the rows that may be nearest.
    """
    block_size = max(1, _BLOCK // len(others))
    other_rows = rows.take(others)
    other_owners = owners[others]
    parts = []
    for start in range(0, len(places), block_size):
        block = places[start : start + block_size]
        squares = _squares(rows.take(block), other_rows)
        is_same_unit = owners[block][:, None] == other_owners[None, :]
        squares[is_same_unit] = np.inf
        parts.append(squares.min(axis=1))
    return np.concatenate(parts)


def _squares(rows: CodedTable, others: CodedTable) -> Floats:
    """Return squared distances between scaled numbers and one-hot categories, (rows, others)."""
    num_mismatches = np.zeros((rows.num_rows, others.num_rows), dtype=np.uint16)
    for codes, other_codes in zip(rows.codes.T, others.codes.T, strict=True):
        num_mismatches += codes[:, None] != other_codes[None, :]
    squares = num_mismatches.astype(np.float64)
    squares *= 2
    for numbers, other_numbers in zip(rows.numbers.T, others.numbers.T, strict=True):
        gaps = numbers[:, None] - other_numbers[None, :]
        gaps *= gaps
        is_missing = np.isnan(numbers)
        is_other_missing = np.isnan(other_numbers)
        if is_missing.any() or is_other_missing.any():
            # One range, which is 1, where one of the two is missing, and 0 where both are.
            gaps[np.isnan(gaps)] = 0.0
            gaps += is_missing[:, None] != is_other_missing[None, :]
        squares += gaps
    return squares
