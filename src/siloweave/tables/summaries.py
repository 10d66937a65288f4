"""Encoders that several owners of rows agree on from summaries of their columns.

Nothing here is private: a summary holds exact counts. What parties may share under noise are counts
over declared bins, for which `Features.from_counts` is made.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from siloweave.errors import DataError
from siloweave.tables.arrays import Floats
from siloweave.tables.bins import BINNED, SPIKE_SHARE
from siloweave.tables.cells import codes_of, options_of
from siloweave.tables.encodings import (
    FEW_VALUES,
    RESOLUTIONS,
    ColumnEncoding,
    Mixture,
    Numeric,
    NumericEncoding,
    Points,
    ascending,
    check_numeric,
    encoding_of_bounds,
    encoding_of_options,
    fit_mixture,
    learned,
    resolution_of,
    rounded,
)
from siloweave.tables.features import Cells, Features, OneWay, check_rows
from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Schema

_POINTS = 2048  # evenly spaced quantiles that stand for a mixture; more than a list of atoms holds
_LISTED = 1024  # distinct values that are listed with their counts, where rows support them
_SUPPORT = 10  # rows per distinct value, for the values to be all there is
_GROUPS, _GROUP_ROWS = 1024, 5  # of numbers that are not listed: at most, and rows of each
_EXACT = 2**53  # whole numbers up to here are float64


class ColumnSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one owner of rows sends about one column; DataError if it cannot be that.

    Attributes:
        column: Its name.
        counts: Rows of each code, of a categorical or boolean column; a missing one is the last.
        values: Numbers that are listed one by one: all where they are few or well supported,
            otherwise those that are frequent; less the encoding's origin, ascending.
        times: How often each occurs.
        mixture: Of the numbers that are not listed.
        rest: How many numbers it stands for.
        missing: Rows without a number.
        resolution: What all numbers are multiples of; 0 if nothing is known.
    """

    column: str
    counts: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    times: tuple[int, ...] = ()
    mixture: Mixture | None = None
    rest: int = 0
    missing: int = 0
    resolution: float = 0.0

    def __post_init__(self) -> None:
        of = f"the summary of column {self.column!r}"
        if len(self.values) != len(self.times) or not np.isfinite(self.values).all():
            raise DataError(f"{of} has values without counts, or values that are not finite")
        if any(not 0 <= n <= _EXACT for n in (*self.counts, *self.times, self.rest, self.missing)):
            raise DataError(f"{of} has counts below 0 or beyond {_EXACT:,}")
        if self.resolution and self.resolution not in RESOLUTIONS:
            raise DataError(
                f"{of} has the resolution {self.resolution}; it is 0 or one of {RESOLUTIONS}"
            )
        if (self.mixture is None) != (self.rest == 0):
            raise DataError(f"{of} needs a mixture for {self.rest:,} numbers that are not listed")
        if self.mixture is not None and not _is_mixture(self.mixture):
            raise DataError(
                f"{of} holds no valid mixture: up to {_POINTS:,} modes are wanted, each with a "
                "mean, a scale of 0 or more and a weight, all finite; weights sum to 1"
            )

    @property
    def rows(self) -> int:
        """How many rows it stands for."""
        return sum(self.counts) + sum(self.times) + self.rest + self.missing


def _is_mixture(mixture: Mixture) -> bool:
    parts = mixture.means, mixture.scales, mixture.weights
    if len({len(part) for part in parts}) > 1 or not 0 < mixture.modes <= _POINTS:
        return False
    low = min((*mixture.scales, *mixture.weights))
    return bool(np.isfinite(parts).all() and low >= 0 and abs(sum(mixture.weights) - 1) < 1e-6)


def summarise(
    table: Table, schema: Schema, *, numeric: Numeric = "modes"
) -> tuple[ColumnSummary, ...]:
    """Summarise every column but ids; exact, so not private.

    A column of categories has the count of each. A column of numbers, whose bounds must be
    declared, lists its values with counts where they are few (20 or less) or at most 1,024 with ten
    rows each; of any other it lists those that 2 % of its rows hold. For the rest stands a
    variational mixture where numbers become ``modes``, and otherwise up to 1,024 groups of
    neighbours, each with its mean, its spread and its rows, five or more. DataError without rows,
    SchemaError if they do not fit the schema.
    """
    check_rows(schema, table)
    found = []
    for column in schema.coded:
        if column.kind in BINNED:
            found.append(_of_numbers(column, table, numeric))
            continue
        counts = np.bincount(codes_of(column, table), minlength=options_of(column))
        found.append(ColumnSummary(column.name, counts=tuple(counts.tolist())))
    return tuple(found)


def _of_numbers(column: Column, table: Table, numeric: Numeric) -> ColumnSummary:
    bounds = encoding_of_bounds(column)
    values, gone = bounds.values_of(column, table)
    seen, times = np.unique(values[~gone], return_counts=True)
    total, kinds = int(times.sum()), len(seen)
    listed = times >= max(SPIKE_SHARE, 10.0 / max(kinds, 1)) * total
    if kinds <= FEW_VALUES or (kinds <= _LISTED and total >= _SUPPORT * kinds):
        listed = np.ones(kinds, dtype=np.bool_)
    rest, often = seen[~listed], times[~listed]
    known, counts = tuple(seen[listed].tolist()), tuple(times[listed].tolist())
    mixture = None
    if len(rest):
        stand_in = fit_mixture if numeric == "modes" else _groups
        mixture = stand_in(rest, often.astype(np.float64))
    return ColumnSummary(
        column.name, values=known, times=counts, mixture=mixture, rest=int(often.sum()),
        missing=int(gone.sum()), resolution=bounds.resolution or resolution_of(seen),
    )  # fmt: skip


def _groups(values: Floats, times: Floats) -> Mixture:
    """Return groups of neighbours among ascending values, as modes of a mixture.

    A curve through them is near the one through all values. Ten modes of a variational mixture are
    not: the single columns of California housing came out 8 % off.
    """
    least = max(_GROUP_ROWS, float(times.sum()) / _GROUPS)
    group = np.zeros(len(values), dtype=np.int64)
    rows, number = 0.0, 0
    for place, count in enumerate(times.tolist()):
        if rows >= least:
            rows, number = 0.0, number + 1
        group[place] = number
        rows += count
    if rows < _GROUP_ROWS and number:  # what is left over joins the group before
        group[group == number] = number - 1
    sums = np.bincount(group, times)
    means = np.bincount(group, times * values) / sums
    variances = np.bincount(group, times * (values - means[group]) ** 2) / sums
    weights = sums / sums.sum()
    return Mixture(
        tuple(means.tolist()), tuple(np.sqrt(variances).tolist()), tuple(weights.tolist())
    )


def agreed_features(
    schema: Schema, summaries: Sequence[Sequence[ColumnSummary]], *, numeric: Numeric = "quantile"
) -> Features:
    """Learn encoders from the summaries of several owners, each in the schema's order without ids.

    A mixture is represented by 2,048 evenly spaced quantiles instead of random draws, so the result
    depends on the summaries alone. Where every number is listed, it is what `Features.fit`, which
    explains `numeric`, learns from all rows at one place. DataError for summaries of other columns.
    """
    check_numeric(numeric, of_rows=False)
    encodings: list[ColumnEncoding] = []
    for column, owners in _by_column(schema, summaries):
        if column.kind not in BINNED:
            counts = _counts(owners).sum(0)
            encodings.append(encoding_of_options(column.name, counts, len(counts)))
            continue
        bounds, points = _points(column, owners)
        whole = _pooled(points).with_every_whole_number(bounds)
        encodings.append(learned(bounds, whole, numeric))
    return Features(schema, tuple(encodings))


def agreed_shares(
    schema: Schema, summaries: Sequence[Sequence[ColumnSummary]], weights: Sequence[float]
) -> OneWay:
    """How single columns are distributed over all owners, from their summaries and weights."""
    cells = []
    for column, owners in _by_column(schema, summaries):
        rows = [max(one.rows, 1) for one in owners]
        own = np.asarray(weights) / np.array(rows)  # of each row of an owner
        if column.kind not in BINNED:
            cells.append(Cells.of_options(column, own @ _counts(owners), sum(rows)))
            continue
        bounds, points = _points(column, owners)
        pool = _pooled([Points(p.values, p.weights * w) for p, w in zip(points, own, strict=True)])
        gone = float(own @ np.array([one.missing for one in owners]))
        cells.append(Cells.of_numbers(column, pool.values + bounds.origin, pool.weights, gone))
    return OneWay(tuple(cells))


def distances(
    schema: Schema, summaries: Sequence[Sequence[ColumnSummary]], *, alike: bool = False
) -> Floats:
    """How far each owner's columns are from those of all owners together, (owners, columns).

    Jensen-Shannon distance (the square root, base 2) of the categories' frequencies; Wasserstein-1
    distance of the numbers, where mixtures are represented by their quantiles. An owner without any
    number in a column is as far as the farthest of the others. If owners count alike, they do so
    in the whole, however many rows they have, and distances of numbers are in standard deviations
    of the whole. DataError if summaries are of other columns.
    """
    from scipy.stats import wasserstein_distance

    found = []
    for column, owners in _by_column(schema, summaries):
        if column.kind not in BINNED:
            counts = _counts(owners)
            if alike:
                counts /= np.maximum(counts.sum(1, keepdims=True), 1.0)
            found.append([_jensen_shannon(own, counts.sum(0)) for own in counts])
            continue
        _, own = _points(column, owners)
        if alike:
            own = [Points(p.values, p.weights / max(float(p.weights.sum()), 1.0)) for p in own]
        pool = _pooled(own)
        unit = _deviation(pool) if alike else 1.0
        away = [
            wasserstein_distance(p.values, pool.values, p.weights, pool.weights) / unit
            if p.weights.sum() > 0
            else -1.0
            for p in own
        ]
        found.append([x if x >= 0 else max(*away, 0.0) for x in away])
    return np.array(found, dtype=np.float64).reshape(-1, len(summaries)).T


def _by_column(
    schema: Schema, summaries: Sequence[Sequence[ColumnSummary]]
) -> list[tuple[Column, list[ColumnSummary]]]:
    """Every column with each owner's summary of it."""
    names = [column.name for column in schema.coded]
    for owner in summaries:
        if (found := [one.column for one in owner]) != names:
            raise DataError(f"summaries are of {found}, and the schema has {names}")
        for column, one in zip(schema.coded, owner, strict=True):
            _check(column, one)
    return [(column, [owner[j] for owner in summaries]) for j, column in enumerate(schema.coded)]


def _check(column: Column, one: ColumnSummary) -> None:
    """Refuse a summary that is not of such a column."""
    numbers, of = column.kind in BINNED, f"the summary of column {column.name!r}"
    known, wanted = len(one.counts), 0 if numbers else options_of(column)
    if known != wanted:
        raise DataError(f"{of} has {known} counts, and the schema knows {wanted} categories")
    if not numbers and (one.values or one.rest or one.missing):
        raise DataError(f"{of} lists numbers, and the column holds categories")
    if one.missing and not column.missing:
        raise DataError(f"{of} counts {one.missing:,} missing values; the schema has none")
    bounds = encoding_of_bounds(column) if numbers else None
    if bounds is not None and one.values:
        inside = bounds.low <= one.values[0] and one.values[-1] <= bounds.high
        if not (inside and ascending(one.values)):
            raise DataError(
                f"{of} lists values from {one.values[0]} to {one.values[-1]}; they must ascend "
                f"within {bounds.low} and {bounds.high}, its bounds less {bounds.origin}"
            )


def _counts(owners: Sequence[ColumnSummary]) -> Floats:
    """(owners, options) rows of each category."""
    return np.array([one.counts for one in owners], dtype=np.float64)


def _points(
    column: Column, owners: Sequence[ColumnSummary]
) -> tuple[NumericEncoding, list[Points]]:
    """Each owner's numbers: those listed, and quantiles of the mixture, less the bounds' origin.

    The column's bounds come first, with the finest resolution of an owner if all have one.
    """
    bounds = encoding_of_bounds(column)
    seen = [one.resolution for one in owners if one.values or one.rest]
    known = min(seen) if seen and min(seen) > 0 else 0.0
    bounds = msgspec.structs.replace(bounds, resolution=bounds.resolution or known)
    found = []
    for one in owners:
        parts = [Points(np.array(one.values), np.array(one.times, dtype=np.float64))]
        if one.mixture is not None and one.rest:
            drawn, share = _quantiles(one.mixture)
            drawn = np.clip(rounded(drawn, bounds.resolution), bounds.low, bounds.high)
            parts.append(Points(drawn, share * one.rest))
        found.append(_pooled(parts))
    return bounds, found


def _quantiles(mixture: Mixture) -> tuple[Floats, Floats]:
    """Evenly spaced quantiles of each mode, in number as its weight is, and their weights."""
    from scipy.special import ndtri

    places, shares = [], []
    for mean, scale, weight in zip(mixture.means, mixture.scales, mixture.weights, strict=True):
        count = max(round(weight * _POINTS), 1)
        places.append(mean + scale * ndtri((np.arange(count) + 0.5) / count))
        shares.append(np.full(count, weight / count))
    return np.concatenate(places), np.concatenate(shares)


def _pooled(parts: Sequence[Points]) -> Points:
    """Points put together; equal values are one point."""
    values = np.concatenate([p.values for p in parts])
    weights = np.concatenate([p.weights for p in parts])
    seen, place = np.unique(values, return_inverse=True)
    return Points(seen, np.bincount(place, weights, len(seen)).astype(np.float64))


def _deviation(points: Points) -> float:
    """Standard deviation, or 1 instead of 0."""
    total = float(points.weights.sum())
    if total <= 0:
        return 1.0
    mean = float(points.values @ points.weights) / total
    return float(((points.values - mean) ** 2 @ points.weights / total) ** 0.5) or 1.0


def _jensen_shannon(own: Floats, pool: Floats) -> float:
    """The distance, its square being the divergence in bits; an owner without rows is at 1."""
    if not own.sum() or not pool.sum():
        return 1.0
    p, q = own / own.sum(), pool / pool.sum()
    middle = (p + q) / 2.0
    parts = [np.where(x > 0, x, 1.0) / np.where(x > 0, middle, 1.0) for x in (p, q)]
    bits = [float((x * np.log2(r)).sum()) for x, r in zip((p, q), parts, strict=True)]
    return float(np.sqrt(max(sum(bits) / 2.0, 0.0)))
