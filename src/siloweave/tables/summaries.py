"""Encoders that several owners of rows agree on from summaries of their columns.

Nothing here is private: a summary holds exact counts. What parties may share under noise are counts
over declared bins, for which `Features.from_counts` is made.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from siloweave.errors import DataError
from siloweave.tables.arrays import Floats
from siloweave.tables.bins import SPIKE_SHARE
from siloweave.tables.cells import codes_of, options_of
from siloweave.tables.column import Column
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
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

# Evenly spaced quantiles that stand for a mixture; more than a list of atoms holds.
_NUM_QUANTILES = 2048
# Distinct values that are listed with their counts, if there are so many rows for each: these are
# then taken to be all values there are.
_MOST_LISTED = 1024
_ROWS_PER_VALUE = 10
# Groups of numbers that are not listed, and rows of each.
_MOST_GROUPS = 1024
_LEAST_GROUP_ROWS = 5
# Whole numbers up to here are float64.
_LARGEST_EXACT = 2**53


class ColumnSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The summary of one column that one owner of rows sends; DataError if it cannot be one.

    Attributes:
        column: Its name.
        counts: Rows of each code, of a categorical or boolean column; a missing one is the last.
        values: Numbers that are listed one by one: all where they are few or well supported,
            otherwise those that are frequent; less the encoding's origin, ascending.
        times: How often each occurs.
        mixture: Stands for the numbers that are not listed.
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
        name = f"the summary of column {self.column!r}"
        are_counted = len(self.values) == len(self.times)
        are_finite = np.isfinite(self.values).all()
        if not are_counted or not are_finite:
            raise DataError(
                f"{name} has values without counts, or values that are not finite"
            )
        # Beyond float64's whole numbers, sums of counts would not be exact.
        all_counts = (*self.counts, *self.times, self.rest, self.missing)
        if any(not 0 <= count <= _LARGEST_EXACT for count in all_counts):
            raise DataError(f"{name} has counts below 0 or beyond {_LARGEST_EXACT:,}")
        if self.resolution and self.resolution not in RESOLUTIONS:
            raise DataError(
                f"{name} has the resolution {self.resolution}; it is 0 or one of {RESOLUTIONS}"
            )

        has_mixture = self.mixture is not None
        needs_mixture = self.rest != 0
        if has_mixture != needs_mixture:
            raise DataError(
                f"{name} needs a mixture for {self.rest:,} numbers that are not listed"
            )
        if self.mixture is not None and not _is_mixture(self.mixture):
            raise DataError(
                f"{name} holds no valid mixture: up to {_NUM_QUANTILES:,} modes are wanted, each "
                "with a mean, a scale of 0 or more and a weight, all finite; weights sum to 1"
            )

    @property
    def rows(self) -> int:
        """The number of rows that the summary stands for."""
        return sum(self.counts) + sum(self.times) + self.rest + self.missing


def _is_mixture(mixture: Mixture) -> bool:
    """Return whether a received mixture has finite modes, whose weights sum to 1."""
    parts = (mixture.means, mixture.scales, mixture.weights)
    lengths = {len(part) for part in parts}
    if len(lengths) > 1 or not 0 < mixture.modes <= _NUM_QUANTILES:
        return False
    smallest = min((*mixture.scales, *mixture.weights))
    are_finite = np.isfinite(parts).all()
    sums_to_1 = abs(sum(mixture.weights) - 1) < 1e-6
    return bool(are_finite and smallest >= 0 and sums_to_1)


def summarise(
    table: Table, schema: Schema, *, numeric: Numeric = "modes"
) -> tuple[ColumnSummary, ...]:
    """Summarise every column without ids, exactly and so without privacy.

    A column of categories has the count of each. A column of numbers, whose bounds must be
    declared, lists its values with counts where they are few (20 or less) or at most 1,024 with ten
    rows each; of any other it lists those that 2 % of its rows hold. For the rest stands a
    variational mixture where numbers become ``modes``, and otherwise up to 1,024 groups of
    neighbours, each with its mean, its spread and its rows, five or more. DataError without rows,
    SchemaError if they do not fit the schema.
    """
    check_rows(schema, table)
    summaries = []
    for column in schema.coded:
        if column.is_binned:
            summaries.append(_of_numbers(column, table, numeric))
            continue
        codes = codes_of(column, table)
        counts = np.bincount(codes, minlength=options_of(column))
        summary = ColumnSummary(column.name, counts=tuple(counts.tolist()))
        summaries.append(summary)
    return tuple(summaries)


def _of_numbers(column: Column, table: Table, numeric: Numeric) -> ColumnSummary:
    """Summarise a column of numbers, see `summarise`."""
    bounds = encoding_of_bounds(column)
    values, is_missing = bounds.values_of(column, table)
    distinct_values, times = np.unique(values[~is_missing], return_counts=True)
    num_rows = int(times.sum())
    num_distinct = len(distinct_values)

    # All values are listed, or those that occur often.
    are_few = num_distinct <= FEW_VALUES
    have_rows = num_rows >= _ROWS_PER_VALUE * num_distinct
    if are_few or (have_rows and num_distinct <= _MOST_LISTED):
        is_listed = np.ones(num_distinct, dtype=np.bool_)
    else:
        # Ten times as often as if all values occurred alike, and in 2 % of the rows.
        least_share = max(SPIKE_SHARE, 10.0 / max(num_distinct, 1))
        is_listed = times >= least_share * num_rows

    # A mixture stands for the rest.
    rest_values = distinct_values[~is_listed]
    rest_times = times[~is_listed]
    mixture = None
    if len(rest_values):
        fit = fit_mixture if numeric == "modes" else _groups
        mixture = fit(rest_values, rest_times.astype(np.float64))
    return ColumnSummary(
        column.name,
        values=tuple(distinct_values[is_listed].tolist()),
        times=tuple(times[is_listed].tolist()),
        mixture=mixture,
        rest=int(rest_times.sum()),
        missing=int(is_missing.sum()),
        resolution=bounds.resolution or resolution_of(distinct_values),
    )


def _groups(values: Floats, times: Floats) -> Mixture:
    """Group neighbouring ascending values, as modes of a mixture.

    A curve through them is near the one through all values. Ten modes of a variational mixture are
    not: the single columns of California housing came out 8 % off.
    """
    least_rows = max(_LEAST_GROUP_ROWS, float(times.sum()) / _MOST_GROUPS)
    groups = np.zeros(len(values), dtype=np.int64)
    group = 0
    group_rows = 0.0
    for place, value_rows in enumerate(times.tolist()):
        if group_rows >= least_rows:
            group += 1
            group_rows = 0.0
        groups[place] = group
        group_rows += value_rows
    # A last group with too few rows joins the one before.
    if group_rows < _LEAST_GROUP_ROWS and group:
        groups[groups == group] = group - 1

    sums = np.bincount(groups, times)
    means = np.bincount(groups, times * values) / sums
    squares = (values - means[groups]) ** 2
    variances = np.bincount(groups, times * squares) / sums
    weights = sums / sums.sum()
    scales = np.sqrt(variances)
    return Mixture(
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        weights=tuple(weights.tolist()),
    )


def agreed_features(
    schema: Schema,
    summaries: Sequence[Sequence[ColumnSummary]],
    *,
    numeric: Numeric = "quantile",
) -> Features:
    """Learn encoders from several owners' summaries, which have the schema's order without ids.

    A mixture is represented by 2,048 evenly spaced quantiles instead of random draws, so the result
    depends on the summaries alone. Where every number is listed, it is what `Features.fit`, which
    explains `numeric`, learns from all rows at one place. DataError for summaries of other columns.
    """
    check_numeric(numeric, of_rows=False)
    encodings: list[ColumnEncoding] = []
    for column, column_summaries in _by_column(schema, summaries):
        if not column.is_binned:
            counts = _counts(column_summaries).sum(0)
            encoding = encoding_of_options(column.name, counts, len(counts))
            encodings.append(encoding)
            continue
        bounds, points = _points(column, column_summaries)
        pool = _pooled(points)
        all_points = pool.with_every_whole_number(bounds)
        encodings.append(learned(bounds, all_points, numeric))
    return Features(schema, tuple(encodings))


def agreed_shares(
    schema: Schema,
    summaries: Sequence[Sequence[ColumnSummary]],
    weights: Sequence[float],
) -> OneWay:
    """Return the distribution of single columns over all owners, from summaries and weights."""
    cells = []
    for column, column_summaries in _by_column(schema, summaries):
        row_counts = [max(summary.rows, 1) for summary in column_summaries]
        # An owner's weight is that of all its rows together.
        row_weights = np.asarray(weights) / np.array(row_counts)
        if not column.is_binned:
            counts = row_weights @ _counts(column_summaries)
            cells.append(Cells.of_options(column, counts, sum(row_counts)))
            continue
        bounds, points = _points(column, column_summaries)
        weighted_points = []
        for owner_points, weight in zip(points, row_weights, strict=True):
            point_weights = owner_points.weights * weight
            weighted_points.append(Points(owner_points.values, point_weights))
        pool = _pooled(weighted_points)
        missing_counts = np.array([summary.missing for summary in column_summaries])
        missing_weight = float(row_weights @ missing_counts)
        values = pool.values + bounds.origin
        cells.append(Cells.of_numbers(column, values, pool.weights, missing_weight))
    return OneWay(tuple(cells))


def distances(
    schema: Schema, summaries: Sequence[Sequence[ColumnSummary]], *, alike: bool = False
) -> Floats:
    """Return how far each owner's columns are from all owners' together, (owners, columns).

    Jensen-Shannon distance (the square root, base 2) of the categories' frequencies; Wasserstein-1
    distance of the numbers, where mixtures are represented by their quantiles. An owner without any
    number in a column is as far as the farthest of the others. If owners count alike, they do so
    in the whole, however many rows they have, and distances of numbers are in standard deviations
    of the whole. DataError if summaries are of other columns.
    """
    columns = []
    for column, column_summaries in _by_column(schema, summaries):
        if column.is_binned:
            owner_distances = _distances_of_numbers(
                column, column_summaries, alike=alike
            )
        else:
            owner_distances = _distances_of_options(column_summaries, alike=alike)
        columns.append(owner_distances)
    # A schema without such columns still has a row for each owner.
    by_column = np.array(columns, dtype=np.float64).reshape(-1, len(summaries))
    return by_column.T


def _distances_of_options(
    summaries: Sequence[ColumnSummary], *, alike: bool
) -> list[float]:
    """Compute how far each owner's categories are from all owners', see `distances`."""
    counts = _counts(summaries)
    if alike:
        counts /= np.maximum(counts.sum(1, keepdims=True), 1.0)
    pool = counts.sum(0)
    return [_jensen_shannon(owner_counts, pool) for owner_counts in counts]


def _distances_of_numbers(
    column: Column, summaries: Sequence[ColumnSummary], *, alike: bool
) -> list[float]:
    """Compute how far each owner's numbers are from all owners', see `distances`."""
    from scipy.stats import wasserstein_distance

    _, points = _points(column, summaries)
    if alike:
        points = [_with_weight_1(owner_points) for owner_points in points]
    pool = _pooled(points)
    unit = 1.0
    if alike:
        unit = _deviation(pool)
    owner_distances = np.full(len(points), np.nan)
    for place, owner_points in enumerate(points):
        if owner_points.weights.sum() > 0:
            distance = wasserstein_distance(
                owner_points.values, pool.values, owner_points.weights, pool.weights
            )
            owner_distances[place] = distance / unit

    # An owner without numbers is as far as the farthest.
    has_none = np.isnan(owner_distances)
    owner_distances[has_none] = owner_distances[~has_none].max(initial=0.0)
    return owner_distances.tolist()


def _with_weight_1(points: Points) -> Points:
    """Scale the weights of points to the sum 1, or to less if they have nearly none."""
    total = max(float(points.weights.sum()), 1.0)
    return Points(points.values, points.weights / total)


def _by_column(
    schema: Schema, summaries: Sequence[Sequence[ColumnSummary]]
) -> list[tuple[Column, list[ColumnSummary]]]:
    """Return every column with the summaries of all owners; DataError for other columns."""
    names = [column.name for column in schema.coded]
    for owner_summaries in summaries:
        summary_names = [summary.column for summary in owner_summaries]
        if summary_names != names:
            raise DataError(
                f"summaries are of {summary_names}, and the schema has {names}"
            )
        for column, summary in zip(schema.coded, owner_summaries, strict=True):
            _check_summary(column, summary)

    pairs = []
    for place, column in enumerate(schema.coded):
        column_summaries = [owner_summaries[place] for owner_summaries in summaries]
        pairs.append((column, column_summaries))
    return pairs


def _check_summary(column: Column, summary: ColumnSummary) -> None:
    """Refuse a summary that cannot be one of a column."""
    name = f"the summary of column {column.name!r}"
    num_counts = len(summary.counts)
    num_options = 0 if column.is_binned else options_of(column)
    if num_counts != num_options:
        raise DataError(
            f"{name} has {num_counts} counts, and the schema knows {num_options} categories"
        )
    has_numbers = summary.values or summary.rest or summary.missing
    if has_numbers and not column.is_binned:
        raise DataError(f"{name} lists numbers, and the column holds categories")
    if summary.missing and not column.missing:
        raise DataError(
            f"{name} counts {summary.missing:,} missing values; the schema has none"
        )

    if column.is_binned and summary.values:
        bounds = encoding_of_bounds(column)
        first = summary.values[0]
        last = summary.values[-1]
        is_inside = bounds.low <= first and last <= bounds.high
        if not is_inside or not ascending(summary.values):
            raise DataError(
                f"{name} lists values from {first} to {last}; they must ascend "
                f"within {bounds.low} and {bounds.high}, its bounds less {bounds.origin}"
            )


def _counts(summaries: Sequence[ColumnSummary]) -> Floats:
    """Return the number of rows of each owner in each category, (owners, options)."""
    return np.array([summary.counts for summary in summaries], dtype=np.float64)


def _points(
    column: Column, summaries: Sequence[ColumnSummary]
) -> tuple[NumericEncoding, list[Points]]:
    """Return each owner's numbers: listed ones and quantiles of the mixture, less the origin.

    The column's bounds come first, with the finest resolution of an owner if all have one.
    """
    bounds = encoding_of_bounds(column)
    resolutions = []
    for summary in summaries:
        if summary.values or summary.rest:
            resolutions.append(summary.resolution)
    # One owner whose numbers have no resolution is enough for the whole column to have none.
    finest = min(resolutions, default=0.0)
    resolution = bounds.resolution or max(finest, 0.0)
    bounds = msgspec.structs.replace(bounds, resolution=resolution)

    points = []
    for summary in summaries:
        listed_weights = np.array(summary.times, dtype=np.float64)
        parts = [Points(np.array(summary.values), listed_weights)]
        if summary.mixture is not None and summary.rest:
            quantiles, shares = _quantiles(summary.mixture)
            multiples = rounded(quantiles, bounds.resolution)
            within_bounds = np.clip(multiples, bounds.low, bounds.high)
            parts.append(Points(within_bounds, shares * summary.rest))
        points.append(_pooled(parts))
    return bounds, points


def _quantiles(mixture: Mixture) -> tuple[Floats, Floats]:
    """Return quantiles of each mode, as many as its weight asks for, with their weights."""
    from scipy.special import ndtri

    quantiles = []
    shares = []
    modes = zip(mixture.means, mixture.scales, mixture.weights, strict=True)
    for mean, scale, weight in modes:
        count = max(round(weight * _NUM_QUANTILES), 1)
        # In the middles of `count` equal parts of the probability.
        probabilities = (np.arange(count) + 0.5) / count
        quantiles.append(mean + scale * ndtri(probabilities))
        shares.append(np.full(count, weight / count))
    return np.concatenate(quantiles), np.concatenate(shares)


def _pooled(parts: Sequence[Points]) -> Points:
    """Join points into one set, in which equal values are one point."""
    values = np.concatenate([part.values for part in parts])
    weights = np.concatenate([part.weights for part in parts])
    distinct_values, places = np.unique(values, return_inverse=True)
    sums = np.bincount(places, weights, len(distinct_values))
    return Points(distinct_values, sums.astype(np.float64))


def _deviation(points: Points) -> float:
    """Return the standard deviation; 1 if it is 0."""
    total = float(points.weights.sum())
    if total <= 0:
        return 1.0
    mean = float(points.values @ points.weights) / total
    squares = (points.values - mean) ** 2
    variance = squares @ points.weights / total
    return float(variance**0.5) or 1.0


def _jensen_shannon(counts: Floats, pool: Floats) -> float:
    """Return the Jensen-Shannon distance, whose square is in bits; 1 without rows."""
    if not counts.sum() or not pool.sum():
        return 1.0
    p = counts / counts.sum()
    q = pool / pool.sum()
    middle = (p + q) / 2.0
    bits = _relative_entropy(p, middle) + _relative_entropy(q, middle)
    # Rounding may leave it below 0.
    divergence = max(bits / 2.0, 0.0)
    return float(np.sqrt(divergence))


def _relative_entropy(p: Floats, q: Floats) -> float:
    """Return the Kullback-Leibler divergence of p from q in bits; where p is 0, it adds nothing."""
    is_possible = p > 0
    ratios = np.where(is_possible, p, 1.0) / np.where(is_possible, q, 1.0)
    terms = p * np.log2(ratios)
    return float(terms.sum())
