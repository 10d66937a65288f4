"""One column of a table as codes or as float64, and back; what `Features` is made of.

Whole numbers and moments are counted from the column's low bound, so that float64 tells them
apart as long as the bounds are less than 2**53 apart.

Where to cut a column of numbers into bins, by counts of narrow ones.

Bins of equal width leave nearly all rows of a skewed column in one of them. Here bins hold rows as
evenly as their number allows, and rows lie inside a bin as the counts say. What many rows share has
a bin of its own: 0 and the bounds exactly, all else as narrowly as was counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError, SchemaError
from siloweave.tables.bins import (
    BINNED,
    Cuts,
    Edges,
    above,
    as_moments,
    edges_of,
    last_of,
    numbers_of,
)
from siloweave.tables.codes import Encoder
from siloweave.tables.plans import Bins, Floats, Numbers, Plan, Points, Settings, learned, ranked
from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Schema

_DECIMALS = 7
_FINE = 1024  # so many bins are narrow enough for one to hold one value alone
_ALONE = 4.0  # times its neighbours, what such a bin holds
LARGEST = 1e100
"""Of a number, so that its square, and sums of many, are numbers too."""
_Mask = NDArray[np.bool_]


def check_columns(schema: Schema, table: Table) -> None:
    """Refuse a table of other columns than the schema's (ids may be absent).

    Raises:
        SchemaError: When columns differ.
    """
    absent = [
        one.name for one in schema.columns if one.kind != "id" and one.name not in table.names
    ]
    if absent:
        raise SchemaError(
            f"the table lacks columns of the schema: {', '.join(absent)}; add them, or use "
            "Schema.select"
        )
    extra = [name for name in table.names if name not in schema.names]
    if extra:
        raise SchemaError(
            f"the schema lacks columns of the table: {', '.join(extra)}; declare them, or "
            "leave them out with Table.select"
        )


def check_rows(table: Table) -> None:
    """Refuse a table without rows.

    Raises:
        DataError: It has none.
    """
    if table.num_rows == 0:
        raise DataError("the table has no rows; features need at least one")


def check_learnable(schema: Schema) -> None:
    """Refuse a schema that nothing can be learnt about.

    Raises:
        SchemaError: There is no column but ids.
    """
    if all(column.kind == "id" for column in schema.columns):
        raise SchemaError("schema has no column but ids; there is nothing to learn")


def options_of(column: Column) -> int:
    """Return how many codes a categorical or boolean column has, a missing one included."""
    known = 2 if column.kind == "boolean" else len(column.categories)
    return known + column.missing


def codes_of(column: Column, table: Table) -> NDArray[np.int64]:
    """Return a categorical or boolean column's codes; missing is the last."""
    encoder = Encoder(Schema((column,)))
    return encoder.encode(table.select([column.name])).columns[0].astype(np.int64)


def labels_of(column: Column, codes: NDArray[np.int64]) -> tuple[Any, _Mask | None]:
    """Return the values of codes, and which are missing."""
    options = (False, True) if column.kind == "boolean" else column.categories
    gone = codes >= len(options)
    values = np.empty(len(options), dtype=object)
    values[:] = options
    return values[np.where(gone, 0, codes)], gone if column.missing else None


def blank(column: Column) -> Numbers:
    """Return the plan of a column of numbers with what its schema says, and no scale.

    Raises:
        SchemaError: When a bound is not declared, or squares of its values would overflow.
    """
    if column.low is None or column.high is None:
        raise SchemaError(
            f"column {column.name!r} has no declared low and high; add both to the schema "
            "(Schema.detect proposes them from data)"
        )
    for name, bound in (("low", column.low), ("high", column.high)):
        if column.kind == "continuous" and abs(float(bound)) > LARGEST:
            raise SchemaError(
                f"column {column.name!r}: {name}={bound!r} is beyond {LARGEST:g} in size, and "
                "float64 holds no sums of squares of such numbers; give the column in a larger "
                "unit, or as its logarithm"
            )
    low, high = edges_of(column, 1)[0].item(), last_of(column)
    if column.kind == "continuous":
        return Numbers(column.name, low, float(high), missing=column.missing)
    return Numbers(column.name, 0.0, float(high - low), int(low), 1.0, missing=column.missing)


def values_of(column: Column, plan: Numbers, table: Table) -> tuple[Floats, _Mask]:
    """Return a column's values less the plan's origin, and which are missing.

    Raises:
        DataError: When values are infinite.
        SchemaError: When values are outside the bounds, or missing where the schema has none.
    """
    where = f"column {column.name!r}"
    raw, gone = numbers_of(column, table)
    values = (raw - plan.origin if plan.origin else raw).astype(np.float64)
    wild = int(np.count_nonzero(~np.isfinite(values)))
    if wild:
        raise DataError(f"{where}: {wild} rows hold infinite numbers; replace or drop them")
    wrong = int(np.count_nonzero(((values < plan.low) | (values > plan.high)) & ~gone))
    if wrong:
        raise SchemaError(
            f"{where}: {wrong} rows are outside its bounds {column.low!r} to {column.high!r}; "
            "widen low and high in the schema, or clip"
        )
    empty = int(np.count_nonzero(gone))
    if empty and not plan.missing:
        raise SchemaError(
            f"{where}: {empty} rows have no value, but the schema says missing=False; declare "
            "missing=True, or drop those rows"
        )
    return values, gone


def typed(column: Column, plan: Numbers, values: Floats, like: Table | None) -> Any:
    """Return a column's values in its own type; values are less the plan's origin."""
    if column.kind == "continuous":
        return values
    # The largest double below 2**63, which a rounded sum of bounds may exceed.
    whole = np.minimum(values, 2.0**63 - 1024.0).astype(np.int64)
    whole = np.minimum(whole, int(last_of(column)) - plan.origin) + plan.origin
    return as_moments(column, whole, like) if column.kind == "datetime" else whole


GRAINS = tuple(float(f"1e-{decimals}") for decimals in range(_DECIMALS + 1))
"""What the values of a column may be multiples of."""


def grain_of(values: Floats) -> float:
    """Return 10**-d for the fewest decimals d, at most 7, that all values have; else 0."""
    if not len(values):
        return 0.0  # of nothing but missing values no grain is known
    largest = np.abs(values).max(initial=0.0)
    for decimals in range(_DECIMALS + 1):
        if largest * 10.0**decimals > 2.0**50:
            break
        if (np.round(values, decimals) == values).all():
            return GRAINS[decimals]
    return 0.0


def whole_range(plan: Numbers, points: Points, most: int) -> Points:
    """Add the values of the bounds that never occur, where there are at most so many in all."""
    count = plan.high - plan.low + 1.0
    if plan.grain != 1.0 or count > most or plan.low != round(plan.low):
        return points
    values = plan.low + np.arange(int(count), dtype=np.float64)
    weights = np.zeros(len(values))
    weights[np.searchsorted(values, points.values)] = points.weights
    return Points(values, weights)


def binned(column: Column, weights: Floats) -> Points:
    """Return counts over a column's declared equal-width bins as points.

    Args:
        column: With both bounds.
        weights: One count per bin, 0 or more, without the missing ones.

    Returns:
        Points less the plan's origin; exact ones where each bin holds one value.
    """
    plan = blank(column)
    if plan.low == plan.high:
        return Points(np.array([plan.low]), weights)
    edges = edges_of(column, len(weights))
    if plan.grain != 1.0:
        return _middles(edges.astype(np.float64), weights)
    first = (edges - plan.origin).astype(np.float64)
    if int(edges[-1] - edges[0]) == len(weights):
        return Points(first[:-1], weights)
    return _middles(first - 0.5, weights)


def _middles(edges: Floats, weights: Floats) -> Points:
    """Neighbours that hold as much are one bin."""
    density = weights / np.diff(edges)
    starts = np.concatenate([[True], ~np.isclose(density[1:], density[:-1], rtol=1e-9, atol=0.0)])
    kept = np.append(edges[:-1][starts], edges[-1])
    summed = np.add.reduceat(weights, np.flatnonzero(starts))
    return Points((kept[1:] + kept[:-1]) / 2.0, summed, kept)


def landmarks(
    column: Column, weights: Floats, share: float = Settings.spike_share
) -> dict[int, float]:
    """Return narrow bins that most likely hold one value alone, and that value.

    Counts do not tell where in its bin a value lies, but 0 and the bounds are where columns have
    spikes: unused amounts, and numbers that were cut off.

    Args:
        column: Any column.
        weights: One count per code, 0 or more.
        share: Of all rows, what such a bin holds at least.

    Returns:
        Bins that hold 0 or a bound, many rows, and several times what their neighbours hold; none
        where bins are wide or single values.
    """
    size = len(weights) - column.missing
    if column.kind not in BINNED or size < _FINE:
        return {}
    edges, last = edges_of(column, size), last_of(column)
    if column.kind != "continuous" and int(edges[-1] - edges[0]) == size:
        return {}
    found: dict[int, float] = {}
    known = [edges[0].item(), last] if column.kind == "datetime" else [0, edges[0].item(), last]
    for value in known:
        place = int(np.searchsorted(edges[1:-1], value, side="right"))
        beside = [weights[i] for i in (place - 1, place + 1) if 0 <= i < size]
        heavy = weights[place] >= max(share * float(weights.sum()), _ALONE * max(beside))
        if edges[0] <= value <= last and heavy:
            found.setdefault(place, value)
    return found


def declared_plan(column: Column, bins: int, spikes: Sequence[float], settings: Settings) -> Plan:
    """Return a column's plan from its schema alone; see `Features.declared`."""
    if column.kind not in ("integer", "continuous", "datetime"):
        return ranked(column.name, None, options_of(column), settings.wide)
    plan = blank(column)
    known = tuple(sorted({float(value - plan.origin) for value in spikes}))
    if known and column.kind == "datetime":
        raise DataError(f"spikes of column {column.name!r}: moments have none; leave it out")
    if any(not plan.low <= value <= plan.high for value in known) or (
        plan.grain == 1.0 and any(value != round(value) for value in known)
    ):
        raise DataError(
            f"spikes of column {column.name!r} are {list(spikes)}; they must be values from "
            f"{column.low!r} to {column.high!r}"
        )
    if plan.low == plan.high:
        return msgspec.structs.replace(plan, spikes=(plan.low,))
    every = whole_range(plan, Points(np.zeros(0), np.zeros(0)), settings.few_values)
    if len(every.values):
        return msgspec.structs.replace(plan, spikes=tuple(every.values.tolist()))
    plan = msgspec.structs.replace(plan, spikes=known)
    if bins == 1:
        return learned(plan, every, settings)
    edges = edges_of(column, bins)
    places = edges - plan.origin - 0.5 if plan.grain == 1.0 else edges
    return msgspec.structs.replace(plan, scale=Bins(tuple(places.tolist())))


def beside(column: Column, weights: Floats, marks: Mapping[int, float]) -> Floats:
    """Return counts of a column's bins without its landmarks and missing values.

    What such a bin holds beside the landmark is taken for as much as a neighbour does.
    """
    bins = weights[: len(weights) - column.missing].astype(np.float64)
    for place in marks:
        bins[place] = min(bins[i] for i in (place - 1, place + 1) if 0 <= i < len(bins))
    return bins


def counted_plan(column: Column, weights: Floats, settings: Settings) -> Numbers:
    """Return the plan of a column of numbers that was counted over its declared bins.

    Args:
        column: With both bounds.
        weights: One count per code, 0 or more.
        settings: How it is learned.
    """
    plan, marks = blank(column), landmarks(column, weights, settings.spike_share)
    bins = beside(column, weights, marks)
    spikes = tuple(sorted(value - plan.origin for value in marks.values()))
    return learned(msgspec.structs.replace(plan, spikes=spikes), binned(column, bins), settings)


_HALVINGS = 40  # of the range in which the heaviest bin is sought
_EMPTY = 1e-9  # share of the rows that empty bins are taken to hold together


def cuts_of(column: Column, weights: Floats, bins: int) -> Cuts:
    """Cut a column so that its heaviest bin of several values is as light as can be.

    Args:
        column: Integer, continuous or datetime, with both bounds.
        weights: Counts of equally wide bins, and of missing values where it may have some; 0 or
            more.
        bins: How many there may be.

    Returns:
        Cuts with which 0 and the bounds have bins of their own where they are landmarks
        (`columns.landmarks`), and so has any single bin of `weights` that is heavier than others
        are together.

    Example:
        >>> pay = Column("pay", "integer", low=0, high=7)
        >>> cuts_of(pay, np.array([50.0, 0, 0, 9, 1, 1, 1, 2]), 4).starts
        (1, 3, 4)
    """
    marks = landmarks(column, weights)
    starts = _fitting(column, weights, marks, bins)
    if starts is None:  # not even the landmarks have room
        marks = {}
        starts = _fitting(column, weights, marks, bins)
    return Cuts(starts or (), *_knots(column, beside(column, weights, marks)))


def _fitting(
    column: Column, weights: Floats, marks: Mapping[int, float], bins: int
) -> tuple[int | float, ...] | None:
    """Where bins begin but the first; None if there are more than wanted however they are cut."""
    known = weights[: len(weights) - column.missing]
    edges = edges_of(column, len(known))
    low, high = 0.0, float(known.sum())
    found = _begun(column, edges, known, marks, high)
    if len(found) >= bins:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        tried = _begun(column, edges, known, marks, middle)
        if len(tried) < bins:
            high, found = middle, tried
        else:
            low = middle
    return found


def _begun(
    column: Column, edges: Edges, weights: Floats, marks: Mapping[int, float], most: float
) -> tuple[int | float, ...]:
    """Beginnings of bins of no more than `most` rows, single values and narrow bins excepted."""
    found = {
        edges[i].item()
        for i in _groups(weights.tolist(), marks, most)
        if i not in marks and i - 1 not in marks
    }
    for value in marks.values():
        found |= {value, above(value).item() if column.kind == "continuous" else value + 1}
    return tuple(sorted(value for value in found if edges[0] < value <= last_of(column)))


def _groups(weights: list[float], alone: Collection[int], most: float) -> list[int]:
    """Where groups of bins begin, from left to right: each takes what it can."""
    starts, held, single = [0], 0.0, False
    for i, weight in enumerate(weights):
        before, single = single, i in alone or weight >= most
        if i and (single or before or held + weight > most):
            starts.append(i)
            held = 0.0
        held += weight
    return starts


def _knots(column: Column, weights: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The distribution function of bins in which rows lie evenly; neighbours alike are one."""
    edges = edges_of(column, len(weights)).astype(np.float64)
    filled = weights + max(float(weights.sum()), 1.0) * _EMPTY / len(weights)
    density = filled / np.diff(edges)
    bends = np.concatenate([[True], ~np.isclose(density[1:], density[:-1], rtol=1e-9), [True]])
    levels = np.concatenate([[0.0], np.cumsum(filled) / filled.sum()])
    return tuple(edges[bends].tolist()), tuple(levels[bends].tolist())
