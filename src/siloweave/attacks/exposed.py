"""Which records are most exposed: those that stand alone among the others."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from siloweave.attacks.groundhog import CodedTable, SummaryLayout
from siloweave.errors import InputError
from siloweave.tables.keys import Key, generator
from siloweave.tables.read import read
from siloweave.tables.schema import Schema

__all__ = ["exposed_records"]

Floats = NDArray[np.float64]
_BLOCK = 1 << 18  # distances held at a time, so that they stay near the processor


def exposed_records(
    table: Any,
    count: int,
    *,
    key: Key,
    by: Literal["neighbour", "density"] = "neighbour",
    schema: Schema | None = None,
    sample: int = 5000,
) -> NDArray[np.int64]:
    """Find the rows that a membership attack is most likely to tell: the outliers.

    Meeus, Guepin, Cretu and de Montjoye, *Achilles' heels: vulnerable record identification in
    synthetic data publishing*, ESORICS 2023, choose by mean distance to the nearest neighbours.

    Args:
        table: A `Table`, frame or path with at least two rows.
        count: How many rows.
        key: Which rows stand for all where there are more than `sample`.
        by: "neighbour" takes rows whose nearest other row is farthest (Euclidean distance of
            scaled numbers and one-hot categories; exact); "density" those of the lowest density
            (Gaussian kernel of bandwidth 1 over the sample).
        schema: Kinds and bounds of the columns; detected if None.
        sample: Rows that every row is compared with at first.

    Returns:
        Places in the table, most exposed first.

    Raises:
        InputError: `count` or `sample` is out of range.

    Example:
        >>> from siloweave.tables.read import Table
        >>> rows = Table.from_columns({"x": (np.array([0, 1, 2, 3, 90]), None)})
        >>> exposed_records(rows, 1, key=0).tolist()
        [4]
    """
    rows = read(table)
    if not 1 <= count < rows.num_rows:
        raise InputError(
            f"count={count} must be from 1 to {rows.num_rows - 1}, one less than there are rows"
        )
    if sample < 2:
        raise InputError(f"sample={sample} must be at least 2 rows")
    if by not in ("neighbour", "density"):
        raise InputError(f'by={by!r} must be "neighbour" or "density"')
    seen = SummaryLayout.of(rows, schema).read(rows)
    some = np.arange(rows.num_rows)
    if sample < rows.num_rows:
        some = np.sort(generator(key).choice(rows.num_rows, size=sample, replace=False))
    if by == "density":
        mass = _over(seen, np.arange(rows.num_rows), some, _mass)
        return np.argsort(mass, kind="stable")[:count].astype(np.int64)
    return _loneliest(seen, some, count)


def _loneliest(seen: CodedTable, some: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The rows with the farthest nearest neighbour: exact, though few are compared with all.

    The nearest row of a sample is at least as far as the nearest of all, so rows are compared
    with all in that order until no other can be farther.
    """
    everyone = np.arange(seen.num_rows)
    most = _over(seen, everyone, some, _least)
    order = np.argsort(-most, kind="stable")
    found: dict[int, float] = {}
    for start in range(0, len(order), 4 * count):
        kept = sorted(found.values(), reverse=True)[:count]
        if len(kept) == count and most[order[start]] <= kept[-1]:
            break
        batch = order[start : start + 4 * count]
        found.update(zip(batch.tolist(), _over(seen, batch, everyone, _least), strict=True))
    ranked = sorted(found, key=lambda place: (-found[place], place))
    return np.array(ranked[:count], dtype=np.int64)


def _over(
    seen: CodedTable, ours: NDArray[np.int64], theirs: NDArray[np.int64], take: Any
) -> Floats:
    """One number per row of ours, from its squared distances to theirs, a block at a time."""
    size = max(1, _BLOCK // len(theirs))
    others = _prepared(seen.take(theirs))
    parts = []
    for start in range(0, len(ours), size):
        block = ours[start : start + size]
        squares = _squares(_prepared(seen.take(block)), others)
        squares[block[:, None] == theirs[None, :]] = np.inf
        parts.append(take(squares))
    return np.concatenate(parts)


def _least(squares: Floats) -> Floats:
    least: Floats = squares.min(axis=1)
    return least


def _mass(squares: Floats) -> Floats:
    mass: Floats = np.exp(-squares / 2).mean(axis=1)
    return mass


def _prepared(rows: CodedTable) -> tuple[list[NDArray[Any]], Floats]:
    """Codes column by column, in the smallest type, and numbers."""
    widest = int(rows.codes.max(initial=0))
    kind = np.uint8 if widest < 256 else np.uint16 if widest < 65536 else np.uint32
    return [np.ascontiguousarray(c) for c in rows.codes.astype(kind).T], rows.numbers


def _squares(
    ours: tuple[list[NDArray[Any]], Floats], theirs: tuple[list[NDArray[Any]], Floats]
) -> Floats:
    """Squared distances between scaled numbers and one-hot categories, (ours, theirs)."""
    (codes, numbers), (other_codes, other_numbers) = ours, theirs
    different = np.zeros((len(numbers), len(other_numbers)), dtype=np.uint16)
    for mine, other in zip(codes, other_codes, strict=True):
        different += mine[:, None] != other[None, :]
    squares = different.astype(np.float64)
    squares *= 2
    for mine, other in zip(numbers.T, other_numbers.T, strict=True):
        apart = mine[:, None] - other[None, :]
        apart *= apart
        if np.isnan(mine).any() or np.isnan(other).any():
            gone = np.isnan(mine)[:, None] != np.isnan(other)[None, :]
            apart[np.isnan(apart)] = 0.0
            apart += gone
        squares += apart
    return squares
