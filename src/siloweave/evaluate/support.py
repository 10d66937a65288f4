"""Do synthetic rows lie where real rows lie, and the other way round: alpha-precision, beta-recall.

Distances are between rows of numbers scaled to the real range and one indicator per category, as
TabSyn's benchmark embeds them ("naive" in synthcity), so figures compare with those published for
it. Nothing is stored per indicator: two rows that differ in a category are 2 apart in the square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.predictive import pick
from siloweave.evaluate.shares import require_tables
from siloweave.tables.aligned import Aligned
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.keys import Key, fold_in

LEVELS = 30
"""Values of alpha and of beta, evenly from 0 to 1, as synthcity has."""
LEAST_ROWS = 2
_CHUNK_CELLS = 1 << 18  # distances held at once: they stay in a core's cache


@dataclass(frozen=True)
class Support:
    """The degree to which the rows of two tables lie in the same places.

    Attributes:
        alpha_precision: 1 where, for every share alpha, the ball around the mean real row that
            holds the share alpha of the real rows holds the share alpha of the synthetic ones; 0
            where it holds all or none of them.
        beta_recall: The same with real rows in balls of the synthetic ones, where a real row
            counts if its nearest synthetic row is at least as near as its nearest real one. Real
            rows of the same source reach about 1/2, and copies of the real rows 1.
        rows: Rows of either table that were compared.
    """

    alpha_precision: float
    beta_recall: float
    rows: int


def support(
    tables: Aligned, real: str, synthetic: str, *, key: Key, max_rows: int = 6_000
) -> Support:
    """Measure alpha-precision and beta-recall of a synthetic table.

    As many rows of either table, at most `max_rows`, which the key draws. Numbers are scaled so
    that the real ones run from 0 to 1; a missing number is the real mean and 1 in an indicator of
    its own. Every category, and a missing one, has an indicator. Seconds grow with the square of
    the rows.

    Args:
        tables: Where the tables are.
        real: The real table's name.
        synthetic: The synthetic table's name.
        key: Draws the rows.
        max_rows: Rows of either table at most; at least 2.

    Raises:
        InputError: There is no such table, or one has a single row, or `max_rows` is below 2.

    Source:
        Alaa, van Breugel, Saveliev and van der Schaar, *How Faithful is your Synthetic Data?*, ICML
        2022; 30 levels and the embedding after synthcity's and TabSyn's code, which leave out the
        last indicator or, of tables of numbers alone, the last column. Here every column counts,
        and equal distances are equal, not apart by rounding.

    Example:
        >>> from siloweave.tables import Table, align
        >>> low = Table.from_columns({"x": (np.linspace(0.5, 1, 50), None)})
        >>> high = Table.from_columns({"x": (np.linspace(9.5, 10, 50), None)})
        >>> tables = align({"real": low, "synthetic": high})
        >>> support(tables, "real", "real", key=0).beta_recall > 0.95
        True
        >>> support(tables, "real", "synthetic", key=0).beta_recall < 0.1
        True
    """
    require_tables(tables, real, synthetic)
    count = min(tables.num_rows[real], tables.num_rows[synthetic], max_rows)
    if count < LEAST_ROWS:
        raise InputError(
            f"{count} row of each table has no neighbour in it; give {LEAST_ROWS} rows or more"
        )
    real_places = pick(tables.num_rows[real], count, fold_in(key, "rows", 0))
    synthetic_places = pick(tables.num_rows[synthetic], count, fold_in(key, "rows", 1))
    real_rows = _Rows.of(tables, real, real, real_places)
    synthetic_rows = _Rows.of(tables, real, synthetic, synthetic_places)
    levels = np.linspace(0, 1, LEVELS)

    # Alpha-precision: balls around the mean real row.
    centre = real_rows.centre()
    radii = np.quantile(real_rows.from_centre(centre), levels)
    distances = synthetic_rows.from_centre(centre)
    precision = [(distances <= radius).mean() for radius in radii]

    # Beta-recall: balls around the mean synthetic row, over each real row's nearest synthetic one.
    to_real, _ = nearest(real_rows, real_rows, apart=True)
    to_synthetic, neighbours = nearest(real_rows, synthetic_rows)
    is_covered = to_synthetic <= to_real
    distances = synthetic_rows.from_centre(synthetic_rows.centre())[neighbours]
    radii = np.quantile(distances, levels)
    recall = [(is_covered & (distances <= radius)).mean() for radius in radii]
    return Support(
        alpha_precision=_agreement(levels, np.array(precision)),
        beta_recall=_agreement(levels, np.array(recall)),
        rows=count,
    )


def _agreement(levels: Floats, shares: Floats) -> float:
    """Return one minus the mean distance of shares from their levels, over the mean level."""
    return 1.0 - float(np.abs(levels - shares).sum() / levels.sum())


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows as numbers of about unit size, and as codes that are equal or not."""

    numbers: Floats
    codes: Ints

    @classmethod
    def of(cls, tables: Aligned, real: str, table: str, rows: Ints) -> _Rows:
        """Return some rows of a table, scaled by all rows of the real one."""
        # An array without columns: there is something to join where a kind has none.
        numbers = [np.empty((len(rows), 0))]
        codes = [np.empty((len(rows), 0), dtype=np.int64)]
        for column in tables.columns:
            values = column.values[table][rows]
            if not column.numeric:
                codes.append(values[:, None].astype(np.int64))
                continue
            is_missing = np.isnan(values)
            scaled = _scaled(values, column.values[real][~column.missing(real)])
            numbers.append(scaled[:, None])
            codes.append(is_missing[:, None].astype(np.int64))
        return cls(np.concatenate(numbers, axis=1), np.concatenate(codes, axis=1))

    def centre(self) -> tuple[Floats, list[Floats]]:
        """Return the mean row: the mean of each number, and the share of each code."""
        shares = [np.bincount(codes) / len(codes) for codes in self.codes.T]
        return self.numbers.mean(axis=0), shares

    def from_centre(self, centre: tuple[Floats, list[Floats]]) -> Floats:
        """Return the distance of every row from a mean row."""
        means, shares_by_column = centre
        squares: Floats = ((self.numbers - means) ** 2).sum(axis=1)
        for codes, shares in zip(self.codes.T, shares_by_column, strict=True):
            # Of an indicator: (1 - p)^2 where the row has the code, and p^2 of all other codes.
            has_share = codes < len(shares)
            share_of_code = shares[np.minimum(codes, len(shares) - 1)]
            share_of_code = np.where(has_share, share_of_code, 0.0)
            squares += 1.0 - 2.0 * share_of_code + (shares**2).sum()
        return np.sqrt(np.maximum(squares, 0.0))


def _scaled(values: Floats, real_values: Floats) -> Floats:
    """Scale numbers so that the real ones run from 0 to 1; a missing one is the real mean."""
    low = 0.0
    span = 1.0
    mean = 0.0
    if len(real_values):
        low = real_values.min()
        # A column of one real value stays in its own unit, as scikit-learn's scaler has it.
        span = np.ptp(real_values) or 1.0
        mean = ((real_values - low) / span).mean()
    return np.where(np.isnan(values), mean, (values - low) / span)


def nearest(rows: _Rows, others: _Rows, *, apart: bool = False) -> tuple[Floats, Ints]:
    """Return each row's squared distance from the nearest of other rows, and the place of that.

    `apart`: both are the same rows, and a row is no neighbour of itself.
    """
    num_others = len(others.numbers)
    distances = np.empty(len(rows.numbers))
    places = np.empty(len(rows.numbers), dtype=np.int64)
    code_pairs = _differing_codes(rows, others)
    chunk = max(1, _CHUNK_CELLS // num_others)
    for start in range(0, len(distances), chunk):
        part = slice(start, start + chunk)
        squares: NDArray[np.float64] = np.zeros((len(distances[part]), num_others))
        for column, other_column in zip(rows.numbers.T, others.numbers.T, strict=True):
            gap = column[part, None] - other_column
            gap *= gap  # in place: a second array of this size would leave the cache
            squares += gap
        for codes, other_codes in code_pairs:
            # Two indicators differ by one each.
            squares += 2.0 * (codes[part, None] != other_codes)
        if apart:
            diagonal = np.arange(len(squares))
            squares[diagonal, start + diagonal] = np.inf
        places[part] = squares.argmin(axis=1)
        distances[part] = squares.min(axis=1)
    return distances, places


def _differing_codes(
    rows: _Rows, others: _Rows
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Return both sides' codes of the columns in which any two rows differ.

    Columns that are equal in all rows say nothing, and cost as much as others.
    """
    pairs = []
    for codes, other_codes in zip(rows.codes.T, others.codes.T, strict=True):
        varies = codes.min() != codes.max() or other_codes.min() != other_codes.max()
        if varies or codes[0] != other_codes[0]:
            pairs.append((codes.astype(np.int32), other_codes.astype(np.int32)))
    return pairs
