"""Columns of one table spread over parties: for simulations, where the whole table is at hand.

Contiguous and permuted splits are those of SiloFuse ("SiloFuse: Cross-silo synthetic data
generation with latent tabular diffusion models", Shankar, Brouwer, Hai and Chen 2024, section V).
Splits by importance and by correlation are those of VertiBench ("VertiBench: Advancing feature
distribution diversity in vertical federated learning benchmarks", Wu, Hou and He, ICLR 2024,
sections 4.1 and 4.2).
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError, InputError, whole
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import Table, read

__all__ = [
    "PERMUTED",
    "contiguous",
    "correlations",
    "cross_correlation",
    "drawn_by_importance",
    "matched_correlation",
    "split_columns",
]

PERMUTED = 12343
"""Seed of SiloFuse's permuted split."""

Parts = list[NDArray[np.int64]]
_Matrix = NDArray[np.float64]
_WAYS = ("contiguous", "permuted", "importance", "correlation")
_STARTS = 2  # of the search for a split with a certain correlation
_TRIES = 15  # exchanges tried per column and start
_CLOSE = 1e-4  # of the range between least and most correlation: near enough


def split_columns(
    table: Any,
    parties: int | Literal["each"],
    *,
    by: str = "contiguous",
    seed: Key | None = None,
    keep: Sequence[str] = (),
    alpha: float = 1.0,
    beta: float = 0.5,
) -> list[Any]:
    """Spread a table's columns over parties; every party has all rows, in their order.

    Args:
        table: A `Table`, a pandas, polars or arrow frame, or a path.
        parties: How many, from 1 to the number of columns that are spread; ``each`` for one per
            column.
        by: ``contiguous`` (equal numbers of neighbouring columns, the remainder to the last),
            ``permuted`` (the same after the columns were put in a random order), ``importance``
            (each column goes to a party with a probability drawn from Dirichlet(alpha)) or
            ``correlation`` (equal numbers, at most one apart; columns of different parties go
            together as ``beta`` says).
        seed: A key; the same one gives the same split. Importance and correlation need one;
            permuted takes the paper's, 12343, when None.
        keep: Columns that every party gets, such as ids; they are not counted as spread.
        alpha: For importance: concentration > 0. Small is uneven: the expected importance of a
            party is proportional to its share, whatever each column is worth.
        beta: For correlation: from 0 (least between different parties that the search finds) to 1
            (most).

    Returns:
        One part per party, none without columns, of the type given (a path gives Tables); columns
        keep the table's order, and ``keep`` comes first.

    Raises:
        DataError: There are fewer columns than parties, or a column of ``keep`` is not there.
        InputError: An argument is out of range, or a seed is missing.

    Example:
        >>> from siloweave.datasets import adult
        >>> [len(part.names) for part in split_columns(adult(), 4)]
        [3, 3, 3, 6]
    """
    if by not in _WAYS:
        raise InputError(f"by={by!r} is unknown; use one of {', '.join(_WAYS)}")
    if seed is None and by in ("importance", "correlation"):
        raise InputError(f"by={by!r} draws at random; give seed=, for example seed=0")
    rows = read(table)
    _check_kept(keep, rows)
    spread = [name for name in rows.names if name not in keep]
    number = len(spread) if parties == "each" else parties
    key = PERMUTED if seed is None else seed
    if by == "contiguous":
        parts = contiguous(len(spread), number)
    elif by == "permuted":
        _check(len(spread), number)
        order = generator(fold_in(key, "permuted")).permutation(len(spread))
        parts = [order[part] for part in contiguous(len(spread), number)]
    elif by == "importance":
        parts = drawn_by_importance(len(spread), number, alpha, key=key)
    else:
        _check_beta(beta)
        _check(len(spread), number)
        matrix = correlations(rows.select(spread))
        parts = matched_correlation(matrix, number, beta, key=key)
    kept = [name for name in rows.names if name in keep]
    names = [[*kept, *(spread[i] for i in np.sort(part))] for part in parts]
    pieces: list[Any] = [rows.select(some) for some in names]
    if isinstance(table, Table | str) or hasattr(table, "__fspath__"):
        return pieces
    return [piece.to_native() for piece in pieces]


def contiguous(columns: int, parties: int) -> Parts:
    """Neighbouring columns, the same number each; the last party takes the remainder too.

    Example:
        >>> [part.tolist() for part in contiguous(5, 2)]
        [[0, 1], [2, 3, 4]]
    """
    _check(columns, parties)
    each = columns // parties
    return np.split(np.arange(columns), [each * k for k in range(1, parties)])


def drawn_by_importance(columns: int, parties: int, alpha: float, *, key: Key) -> Parts:
    """Give each column to a party with probability r_k, where r is drawn from Dirichlet(alpha).

    Args:
        columns: How many there are.
        parties: K, from 1 to ``columns``.
        alpha: Concentration > 0, the same for all parties.
        key: Random key.

    Returns:
        K arrays of columns. VertiBench may leave a party without any; here it then gets one of
        the party with the most.

    Raises:
        DataError: There are fewer columns than parties.
        InputError: ``alpha`` is not a positive number.
    """
    _check(columns, parties)
    if not 0 < alpha < float("inf"):
        raise InputError(f"alpha={alpha!r} must be a positive number, such as 0.1 or 100")
    random = generator(fold_in(key, "importance"))
    shares = random.dirichlet(np.full(parties, alpha))
    if not np.isfinite(shares).all() or not shares.sum() > 0:  # alpha so small that all underflow
        shares = np.eye(parties)[random.integers(parties)]
    owner = random.choice(parties, size=columns, p=shares / shares.sum())
    for k in range(parties):
        counts = np.bincount(owner, minlength=parties)
        if not counts[k]:
            owner[random.choice(np.flatnonzero(owner == counts.argmax()))] = k
    return [np.flatnonzero(owner == k) for k in range(parties)]


def correlations(table: Table) -> _Matrix:
    """Spearman's rank correlation of every pair of columns, 0 where a column is constant.

    Categories are ranked in the order of their labels, as label encoding does; missing values
    come before all others.
    """
    ranks = import_module("scipy.stats").rankdata
    columns = []
    for name in table.names:
        absent, values = table.missing(name), table.values(name)
        if values.dtype == object:
            values = np.array(["" if one is None else str(one) for one in values])
        codes = np.unique(values, return_inverse=True)[1] + 1
        columns.append(ranks(np.where(absent, 0, codes)))
    centred = np.stack(columns) - np.mean(columns, axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1))
    unit = np.divide(centred, norms[:, None], out=np.zeros_like(centred), where=norms[:, None] > 0)
    matrix: _Matrix = unit @ unit.T
    return matrix


def cross_correlation(matrix: _Matrix, parts: Sequence[NDArray[np.int64]]) -> float:
    """How much columns of different parties go together, less what goes together within parties.

    VertiBench's Icor: the mean over pairs of parties i != j of Pcor(i, j) - Pcor(i, i), where
    Pcor of two parties with d columns in the smaller one is the standard deviation (over d - 1)
    of the d singular values of the correlations between them, divided by the root of d: 0 where
    all columns are equally related, 1 where they are all the same. With d = 1, where the paper's
    formula has no value, it is the norm of the correlations over the root of their number.

    Args:
        matrix: Correlations of all columns.
        parts: Columns of each party.

    Returns:
        From -1 (all within parties) upwards; 0 for one party.
    """
    return _mean(_blocks(matrix, parts))


def _mean(blocks: _Matrix) -> float:
    parties = len(blocks)
    if parties < 2:
        return 0.0
    own = np.diag(blocks)
    return float((blocks.sum() - own.sum()) / (parties * (parties - 1)) - own.mean())


def _blocks(matrix: _Matrix, parts: Sequence[NDArray[np.int64]]) -> _Matrix:
    found = np.zeros((len(parts), len(parts)))
    for i in range(len(parts)):
        _fill(found, matrix, parts, i, range(i, len(parts)))
    return found


def _fill(
    found: _Matrix,
    matrix: _Matrix,
    parts: Sequence[NDArray[np.int64]],
    i: int,
    others: Sequence[int],
) -> None:
    for j in others:
        found[i, j] = found[j, i] = _together(matrix[np.ix_(parts[i], parts[j])])


def _together(block: _Matrix) -> float:
    """Pcor of the correlations between two parties."""
    smaller = min(block.shape)
    if smaller == 1:
        return float(np.sqrt((block**2).mean()))
    return float(np.linalg.svd(block, compute_uv=False).std(ddof=1) / np.sqrt(smaller))


def matched_correlation(matrix: _Matrix, parties: int, beta: float, *, key: Key) -> Parts:
    """Find parts of equal size whose `cross_correlation` lies as far between its extremes as told.

    Args:
        matrix: Correlations of all columns.
        parties: K, from 1 to the number of columns.
        beta: From 0 (the least that is found) to 1 (the most).
        key: Random key.

    Returns:
        K arrays of columns, at most one apart in size. VertiBench searches with a genetic
        algorithm; here it is by exchanging columns between parties from several starts, and
        extremes are those that this search finds.

    Raises:
        DataError: There are fewer columns than parties.
        InputError: ``beta`` is not between 0 and 1.
    """
    _check_beta(beta)
    _check(len(matrix), parties)
    sizes = np.array_split(np.arange(len(matrix)), parties)
    if parties in (1, len(matrix)):  # all splits are alike
        order = generator(fold_in(key, "correlation")).permutation(len(matrix))
        return [order[part] for part in sizes]
    low, least = _searched(matrix, sizes, lambda value: value, fold_in(key, "least"))
    high, most = _searched(matrix, sizes, lambda value: -value, fold_in(key, "most"))
    if beta in (0, 1) or high - low < 1e-12:
        return most if beta > 0.5 else least
    wanted, near = (1 - beta) * low + beta * high, _CLOSE * (high - low)

    def missed(value: float) -> float:
        return max(0.0, abs(value - wanted) - near)

    return _searched(matrix, sizes, missed, fold_in(key, "between"))[1]


def _searched(
    matrix: _Matrix, sizes: Parts, worse: Callable[[float], float], key: Key
) -> tuple[float, Parts]:
    """The best split that exchanges of two columns reach from a few random starts."""
    random = generator(key)
    best, value, found = np.inf, 0.0, sizes
    for _ in range(_STARTS):
        order = random.permutation(len(matrix))
        here, parts = _exchanged(matrix, [order[part] for part in sizes], worse, random)
        if worse(here) < best:
            best, value, found = worse(here), here, parts
    return value, found


def _exchanged(
    matrix: _Matrix, parts: Parts, worse: Callable[[float], float], random: np.random.Generator
) -> tuple[float, Parts]:
    blocks = _blocks(matrix, parts)
    now = _mean(blocks)
    for _ in range(_TRIES * len(matrix)):
        if worse(now) == 0:
            break
        a, b = random.choice(len(parts), size=2, replace=False)
        i, j = random.integers(len(parts[a])), random.integers(len(parts[b]))
        tried = [part.copy() for part in parts]
        tried[a][i], tried[b][j] = parts[b][j], parts[a][i]
        changed = blocks.copy()
        for k in (a, b):
            _fill(changed, matrix, tried, k, range(len(parts)))
        then = _mean(changed)
        if worse(then) < worse(now):
            now, parts, blocks = then, tried, changed
    return now, parts


def _check(columns: int, parties: int) -> None:
    whole("parties", parties, 1)
    if columns < parties:
        raise DataError(
            f"{columns} columns cannot be spread over {parties} parties, one column each at least; "
            "use fewer parties"
        )


def _check_kept(keep: Sequence[str], rows: Table) -> None:
    if isinstance(keep, str):
        raise InputError(f"keep={keep!r} must be a list of columns, such as [{keep!r}]")
    for name in keep:
        if name not in rows.names:
            raise DataError(f"keep names {name!r}; the columns are {', '.join(rows.names)}")


def _check_beta(beta: float) -> None:
    if not 0 <= beta <= 1:
        raise InputError(f"beta={beta!r} must lie between 0 and 1")
