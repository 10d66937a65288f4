"""One table spread over parties, by rows or by columns: for simulations.

Sources:
    Maddock, Cormode & Maple 2024, *FLAIM: AIM-based Synthetic Data Generation in the Federated
    Setting* (KDD): clusters and label skew of a real table, and its made-up SynthFS.
    Shankar, Brouwer, Hai & Chen 2024, *SiloFuse: Cross-silo synthetic data generation with latent
    tabular diffusion models*, section V: contiguous and permuted columns.
    Wu, Hou & He 2024, *VertiBench: Advancing feature distribution diversity in vertical federated
    learning benchmarks* (ICLR), sections 4.1 and 4.2: columns by importance and by correlation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations_with_replacement, product
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError, InputError, number, whole
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.codes import Codes, Domain, Encoder
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.persons import (
    ROW,
    owners_in,
    relabelled,
    rows_of_units,
    without_ids,
)
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

PERMUTED = 12343
"""Seed of SiloFuse's permuted split."""
Parts = list[Ints]
"""Positions of each party's rows or columns."""
_Matrix = Floats
_ROW_WAYS = ("iid", "clusters", "label_skew")
_COLUMN_WAYS = ("contiguous", "permuted", "importance", "correlation")
# Of subspace iteration; the plane is settled long before.
_ITERATIONS = 12
# With more copies of one row, all are moved by a hair: equal neighbours never settle.
_COPIES = 0.01
# In codes.
_HAIR = 1e-3
# So many searches for a split with a certain correlation start at random.
_STARTS = 2
# So many exchanges are tried per column and start.
_TRIES = 15
# Of the range between least and most correlation: this is near enough.
_CLOSE = 1e-4


def split_rows(
    table: Any,
    parties: int,
    *,
    by: str = "iid",
    seed: Key,
    method: str | None = None,
    label: str | None = None,
    beta: float = 0.8,
    unit: str = ROW,
) -> list[Any]:
    """Spread a table's rows over parties; all rows of a person go to one of them.

    Args:
        table: A `Table`, a pandas, polars or arrow frame, a path, or `Codes`.
        parties: How many, from 1 to the number of rows.
        by: ``iid`` (equal sizes at random), ``clusters`` (like rows together) or ``label_skew``
            (each class unevenly).
        seed: A key; the same one gives the same split.
        method: For clusters: ``umap`` or ``pca``; ``umap`` where it is installed when None.
        label: For label skew: the class column; the last one when None.
        beta: For label skew: concentration > 0; smaller is more uneven.
        unit: ``row``, or the id column that says whose row each is: then what is spread are
            persons. Equal sizes are numbers of persons, a person goes to the cluster of most of
            her rows, and her class is that of most of her rows. A row without an id is a person
            of its own.

    Returns:
        One part per party, none empty, of the type given (a path gives Tables); every row is in
        exactly one, and a part keeps the rows' order.

    Raises:
        DataError: When there are fewer rows or persons than parties, or no such id column.
        InputError: When an argument is out of range, or ``umap`` is not installed.

    Example:
        >>> from siloweave.datasets import adult
        >>> [part.num_rows for part in split_rows(adult(), 4, seed=0)]
        [12211, 12211, 12210, 12210]
    """
    if by not in _ROW_WAYS:
        raise InputError(f"by={by!r} is unknown; use one of {', '.join(_ROW_WAYS)}")
    rows = table if isinstance(table, Codes) else read(table)
    if unit != ROW:
        if isinstance(rows, Codes):
            raise InputError(
                f"unit={unit!r}: codes do not say whose rows they are; give the table"
            )
        all_owners = owners_in({"the table": rows}, unit)
        owners, _ = relabelled(all_owners["the table"])
        # An id says whose row it is, and nothing about what rows are alike.
        like = without_ids(rows, unit)
        units = _unit_parts(like, owners, parties, by, seed, method, label, beta)
        places = [rows_of_units(owners, part) for part in units]
        return _as_given(table, [rows.take(part) for part in places])
    if by == "iid":
        parts = iid(rows.num_rows, parties, key=seed)
    elif by == "clusters":
        parts = clusters(rows, parties, key=seed, method=_plane_of(method))
    else:
        parts = label_skew(_labels(rows, label), parties, beta, key=seed)
    return _as_given(table, [rows.take(part) for part in parts])


def _plane_of(method: str | None) -> str:
    """Return the way to compute the plane: UMAP, as in the paper, if it is installed."""
    if method:
        return method
    return "umap" if find_spec("umap") else "pca"


def _unit_parts(
    rows: Table,
    owners: Ints,
    parties: int,
    by: str,
    key: Key,
    method: str | None,
    label: str | None,
    beta: float,
) -> Parts:
    """Spread units over parties, and return each party's unit numbers.

    `owners` has the number of each row's unit.
    """
    units = int(owners.max(initial=-1)) + 1
    _check("person", units, parties)
    if by == "iid":
        return iid(units, parties, key=key)
    if by == "label_skew":
        labels = _labels(rows, label).astype(str)
        _, classes = np.unique(labels, return_inverse=True)
        unit_classes = _most_frequent(owners, classes, units)
        return label_skew(unit_classes, parties, beta, key=key)
    row_clusters = np.empty(len(owners), dtype=np.int64)
    row_parts = clusters(rows, parties, key=key, method=_plane_of(method))
    for place, part in enumerate(row_parts):
        row_clusters[part] = place
    unit_clusters = _most_frequent(owners, row_clusters, units)
    parts = [np.flatnonzero(unit_clusters == place) for place in range(parties)]
    return _filled(parts, fold_in(key, "fill"))


def _most_frequent(owners: Ints, values: Ints, units: int) -> Ints:
    """Return the most frequent value among each unit's rows; of several, the least."""
    counts = np.zeros((units, int(values.max(initial=0)) + 1), dtype=np.int64)
    np.add.at(counts, (owners, values), 1)
    most_frequent: Ints = counts.argmax(axis=1)
    return most_frequent


def _as_given(table: Any, pieces: list[Any]) -> list[Any]:
    """Return pieces in the form of what was split: tables, codes, or frames of its kind."""
    if isinstance(table, Codes | Table | str) or hasattr(table, "__fspath__"):
        return pieces
    return [piece.to_native() for piece in pieces]


def iid(num_rows: int, parties: int, *, key: Key) -> Parts:
    """Spread rows at random, in parts whose sizes differ by at most one row.

    Returns ascending positions of each party's rows.

    Raises:
        DataError: When there are fewer rows than parties.
    """
    _check("row", num_rows, parties)
    order = generator(fold_in(key, "iid")).permutation(num_rows)
    return [np.sort(part) for part in np.array_split(order, parties)]


def clusters(codes: Any, parties: int, *, key: Key, method: str = "umap") -> Parts:
    """Give each party the rows of one cluster: coordinates in a plane, then k-means.

    The coordinates are, by `method`,

    * ``umap``: UMAP of the codes to 2-D (15 neighbours, minimum distance 0.1), as in the paper;
      needs the extra ``umap``. Where copies of one row are more than a hundredth of all, every row
      is first moved by a hair, or the search for neighbours would never settle; a crowd of copies
      then spreads over several clusters.
    * ``pca``: two principal components of the one-hot codes, a plain fallback whose clusters differ
      from the paper's, and in which copies stay together.

    Rows are `Codes`, a `Table`, frame or path. Returns ascending positions of each party's rows, at
    least one.

    Raises:
        DataError: When there are fewer rows than parties.
        InputError: When the method is unknown, or ``umap`` is not installed.
    """
    codes = _coded(codes)
    _check("row", codes.num_rows, parties)
    if method not in _PLANES:
        raise InputError(
            f"method={method!r} is unknown; use one of {', '.join(_PLANES)}"
        )
    if parties == 1:
        return [np.arange(codes.num_rows)]
    plane = _PLANES[method](codes, fold_in(key, method))
    state = _state(fold_in(key, "means"))
    sklearn = import_module("sklearn.cluster")
    means = sklearn.MiniBatchKMeans(
        parties,
        batch_size=4096,
        n_init=1,
        max_iter=50,
        random_state=state,
        reassignment_ratio=0.0,
    )
    row_clusters = means.fit_predict(plane)
    parts = [np.flatnonzero(row_clusters == k) for k in range(parties)]
    return _filled(parts, fold_in(key, "fill"))


def label_skew(
    labels: NDArray[Any] | Sequence[Any], parties: int, beta: float, *, key: Key
) -> Parts:
    """Spread each class over parties by shares from Dirichlet(beta, ..., beta), beta > 0.

    The paper's table uses 0.1 (uneven) and 0.8. Shares are floored and the rows left over go to the
    largest remainders. Takes one class per row; returns ascending positions of each party's rows,
    at least one.

    Raises:
        DataError: When there are fewer rows than parties.
        InputError: When ``beta`` is not a positive number.
    """
    _, classes = np.unique(np.asarray(labels).astype(str), return_inverse=True)
    _check("row", len(classes), parties)
    number("beta", beta, 0, inf, "()")
    random = generator(fold_in(key, "label_skew"))
    pieces: list[Parts] = [[] for _ in range(parties)]
    for label in range(int(classes.max()) + 1):
        rows = random.permutation(np.flatnonzero(classes == label))
        exact = random.dirichlet(np.full(parties, beta)) * len(rows)
        if not np.isfinite(exact).all():  # beta so small that every share underflows
            exact = np.eye(parties)[random.integers(parties)] * len(rows)
        # Floors, and one row more for the largest remainders.
        sizes = np.floor(exact).astype(np.int64)
        num_left_over = len(rows) - sizes.sum()
        by_remainder = np.argsort(sizes - exact, kind="stable")
        sizes[by_remainder[:num_left_over]] += 1
        ends = np.cumsum(sizes)
        for party_pieces, piece in zip(pieces, np.split(rows, ends[:-1]), strict=True):
            party_pieces.append(piece)
    parts = [np.sort(np.concatenate(party_pieces)) for party_pieces in pieces]
    return _filled(parts, fold_in(key, "fill"))


def synth_fs(
    exponent: float,
    *,
    key: Key,
    parties: int = 100,
    rows: int = 500,
    features: int = 10,
    values: int = 40,
) -> list[Codes]:
    """Make the SynthFS data of the FLAIM paper: parties whose features have different means.

    Per party and feature ``f0``, ``f1`` and so on, a mean of 1 to `values` is drawn from a Zipf
    distribution with an exponent > 0 (small is more skew); values are normal around it with
    variance 1, rounded and clipped into the domain, which starts at 0.

    Raises:
        InputError: When an argument is out of range.

    Example:
        >>> parts = synth_fs(2.0, key=0, parties=3, rows=5)
        >>> len(parts), parts[0].num_rows, parts[0].domain.sizes[0]
        (3, 5, 41)
    """
    number("exponent", exponent, 0, inf, "()")
    if min(parties, rows, features, values) < 1:
        raise InputError("parties, rows, features and values must each be 1 or more")
    names = tuple(f"f{i}" for i in range(features))
    domain = Domain(names, (values + 1,) * features)
    zipf = np.arange(1, values + 1, dtype=float) ** -exponent
    random = generator(fold_in(key, "synth_fs"))
    levels = np.arange(1, values + 1)
    means = random.choice(levels, size=(parties, features), p=zipf / zipf.sum())
    normal = random.standard_normal((parties, features, rows))
    rounded = np.rint(means[:, :, None] + normal)
    codes = np.clip(rounded, 0, values).astype(np.int64)
    return [Codes(domain, tuple(party)) for party in codes]


def _check(thing: str, number: int, parties: int) -> None:
    """Raise InputError for no party; DataError for more parties than there are items to share."""
    whole("parties", parties, 1)
    if number < parties:
        raise DataError(
            f"{number} {thing}s cannot be spread over {parties} parties, one {thing} each at "
            "least; use fewer parties"
        )


def _state(key: Key) -> int:
    """Draw a 32-bit seed for a library that takes one."""
    return int(fold_in(key, "state").generate_state(1)[0])


def _filled(parts: Parts, key: Key) -> Parts:
    """Give each empty part one row from the part that is then the largest."""
    random = generator(key)
    for k in range(len(parts)):
        if not len(parts[k]):
            largest = max(range(len(parts)), key=lambda i: len(parts[i]))
            place = int(random.integers(len(parts[largest])))
            parts[k] = parts[largest][place : place + 1]
            parts[largest] = np.delete(parts[largest], place)
    return parts


def _umap_plane(codes: Codes, key: Key) -> _Matrix:
    """Compute the paper's plane, UMAP of the codes, after moving crowded copies apart."""
    if not find_spec("umap"):
        raise InputError(
            "method='umap' needs the extra umap: pip install '.[umap]' in the clone; or use the "
            "fallback method='pca', whose clusters differ from the paper's"
        )
    columns = [column.astype(np.float64) for column in codes.columns]
    rows: _Matrix = np.stack(columns, axis=1)
    if len(rows) <= 3:
        return rows
    _, copies = np.unique(rows, axis=0, return_counts=True)
    is_crowded = copies.max() > _COPIES * len(rows)
    if is_crowded:
        rows += _HAIR * generator(fold_in(key, "hair")).random(rows.shape)
    # A crowd is an island, and islands have no spectrum.
    init = "pca" if is_crowded else "spectral"
    neighbours = min(15, len(rows) - 1)
    umap = import_module("umap").UMAP(
        n_neighbors=neighbours,
        min_dist=0.1,
        random_state=_state(key),
        n_jobs=1,
        init=init,
    )
    plane: _Matrix = umap.fit_transform(rows).astype(np.float64)
    return plane


def _pca_plane(codes: Codes, key: Key) -> _Matrix:
    """Compute two principal components of the one-hot codes, by subspace iteration."""
    n = codes.num_rows
    sizes = codes.domain.sizes
    width = sum(sizes)
    starts = np.cumsum((0, *sizes[:-1]))
    places = [
        column + start for column, start in zip(codes.columns, starts, strict=True)
    ]
    # A sparse matrix: each row has a 1 for each column, so that row pointers are even.
    ones = np.ones(n * len(sizes))
    indices = np.stack(places, axis=1).ravel()
    pointers = np.arange(0, n * len(sizes) + 1, len(sizes))
    sparse = import_module("scipy.sparse")
    hot = sparse.csr_array((ones, indices, pointers), shape=(n, width))

    # Centring is subtracted from products, since the centred matrix would not be sparse.
    mean = hot.sum(axis=0) / n
    axes = generator(key).standard_normal((width, min(8, width)))
    for _ in range(_ITERATIONS):
        plane = hot @ axes - mean @ axes
        product_with_plane = hot.T @ plane - np.outer(mean, plane.sum(axis=0))
        axes, _ = np.linalg.qr(product_with_plane)
    plane = hot @ axes - mean @ axes

    # Eigenvalues ascend: the last two vectors are the principal ones.
    _, vectors = np.linalg.eigh(plane.T @ plane)
    flat: _Matrix = plane @ vectors[:, ::-1][:, :2]
    return flat


_PLANES: dict[str, Callable[[Codes, Key], _Matrix]] = {
    "umap": _umap_plane,
    "pca": _pca_plane,
}


def _coded(rows: Any) -> Codes:
    """Encode rows by their own values; a simulation's split needs no declared schema."""
    if isinstance(rows, Codes):
        return rows
    table = read(rows)
    names = [name for name in table.names if not table.missing(name).all()]
    table = table.select(names)
    schema = Schema.detect(table, constraints=False)
    return Encoder(schema).encode(table)


def _labels(rows: Table | Codes, label: str | None) -> NDArray[Any]:
    """Return the class of each row, from a named column or the last one."""
    if isinstance(rows, Codes):
        name = rows.domain.names[-1] if label is None else label
        return rows.column(name)
    name = rows.names[-1] if label is None else label
    return rows.values(name)


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
            ``correlation`` (equal numbers, at most one apart; columns of different parties
            correlate as ``beta`` says).
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
    if by not in _COLUMN_WAYS:
        raise InputError(f"by={by!r} is unknown; use one of {', '.join(_COLUMN_WAYS)}")
    if seed is None and by in ("importance", "correlation"):
        raise InputError(f"by={by!r} draws at random; give seed=, for example seed=0")
    if isinstance(keep, str):
        raise InputError(f"keep={keep!r} must be a list of columns, such as [{keep!r}]")
    rows = read(table)
    for name in keep:
        if name not in rows.names:
            raise DataError(
                f"keep names {name!r}; the columns are {', '.join(rows.names)}"
            )

    spread = [name for name in rows.names if name not in keep]
    number = len(spread) if parties == "each" else parties
    key = PERMUTED if seed is None else seed
    _check("column", len(spread), number)
    if by == "contiguous":
        parts = contiguous(len(spread), number)
    elif by == "permuted":
        order = generator(fold_in(key, "permuted")).permutation(len(spread))
        parts = [order[part] for part in contiguous(len(spread), number)]
    elif by == "importance":
        parts = drawn_by_importance(len(spread), number, alpha, key=key)
    else:
        matrix = correlations(rows.select(spread))
        parts = matched_correlation(matrix, number, beta, key=key)

    shared = [name for name in rows.names if name in keep]
    tables = []
    for part in parts:
        names = [spread[i] for i in np.sort(part)]
        tables.append(rows.select([*shared, *names]))
    return _as_given(table, tables)


def contiguous(columns: int, parties: int) -> Parts:
    """Give each party as many neighbouring columns; the last one gets the remainder, too."""
    _check("column", columns, parties)
    each = columns // parties
    return np.split(np.arange(columns), [each * k for k in range(1, parties)])


def drawn_by_importance(columns: int, parties: int, alpha: float, *, key: Key) -> Parts:
    """Give each column to party k with probability r_k, with r drawn from Dirichlet(alpha).

    VertiBench may leave a party without any column; here it then gets one of the party with the
    most.
    """
    _check("column", columns, parties)
    number("alpha", alpha, 0, inf, "()")
    random = generator(fold_in(key, "importance"))
    shares = random.dirichlet(np.full(parties, alpha))
    # With an alpha so small that all shares underflow, one party has all.
    if not np.isfinite(shares).all() or not shares.sum() > 0:
        shares = np.eye(parties)[random.integers(parties)]
    owner = random.choice(parties, size=columns, p=shares / shares.sum())
    for k in range(parties):
        counts = np.bincount(owner, minlength=parties)
        if not counts[k]:
            of_largest = np.flatnonzero(owner == counts.argmax())
            owner[random.choice(of_largest)] = k
    return [np.flatnonzero(owner == k) for k in range(parties)]


def correlations(table: Table) -> _Matrix:
    """Return Spearman's correlation of every pair of columns; 0 for constant ones.

    Categories are ranked in the order of their labels, as label encoding does; missing values
    come before all others.
    """
    rankdata = import_module("scipy.stats").rankdata
    ranks = []
    for name in table.names:
        is_missing = table.missing(name)
        values = table.values(name)
        if values.dtype == object:
            values = _as_texts(values)
        _, codes = np.unique(values, return_inverse=True)
        ranks.append(rankdata(np.where(is_missing, 0, codes + 1)))
    centred = np.stack(ranks) - np.mean(ranks, axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1))[:, None]
    unit = np.divide(centred, norms, out=np.zeros_like(centred), where=norms > 0)
    matrix: _Matrix = unit @ unit.T
    return matrix


def _as_texts(values: NDArray[Any]) -> NDArray[np.str_]:
    """Write values of any type as texts; a missing one becomes an empty text."""
    texts = []
    for value in values:
        text = "" if value is None else str(value)
        texts.append(text)
    return np.array(texts)


def cross_correlation(matrix: _Matrix, parts: Parts) -> float:
    """Return how much more columns correlate across parties than within them.

    VertiBench's Icor, from -1 (all within parties) upwards and 0 for one party: the mean over pairs
    of parties i != j of Pcor(i, j) - Pcor(i, i), where Pcor of two parties with d columns in the
    smaller one is the standard deviation (over d - 1) of the d singular values of the correlations
    between them, divided by the root of d: 0 where all columns are equally related, 1 where they
    are all the same. With d = 1, where the paper's formula has no value, it is the norm of the
    correlations over the root of their number.
    """
    return _mean(_pcors(matrix, parts))


def _mean(pcors: _Matrix) -> float:
    """Average the correlation between parties, less that within each."""
    parties = len(pcors)
    within = np.diag(pcors)
    if parties < 2:
        return 0.0
    across = (pcors.sum() - within.sum()) / (parties * (parties - 1))
    return float(across - within.mean())


def _pcors(
    matrix: _Matrix,
    parts: Parts,
    before: _Matrix | None = None,
    changed: Sequence[int] = (),
) -> _Matrix:
    """Compute Pcor of every pair of parties.

    Args:
        matrix: Correlations of all columns.
        parts: The columns of each party.
        before: Pcor before some parties changed; all are computed without it.
        changed: These parties.
    """
    number = len(parts)
    if before is None:
        pcors = np.zeros((number, number))
        pairs = list(combinations_with_replacement(range(number), 2))
    else:
        pcors = before.copy()
        pairs = list(product(changed, range(number)))
    for i, j in pairs:
        pcor = _together(matrix[np.ix_(parts[i], parts[j])])
        pcors[i, j] = pcor
        pcors[j, i] = pcor
    return pcors


def _together(block: _Matrix) -> float:
    """Compute Pcor from the correlations between two parties."""
    smaller = min(block.shape)
    if smaller == 1:
        return float(np.sqrt((block**2).mean()))
    deviation = np.linalg.svd(block, compute_uv=False).std(ddof=1)
    return float(deviation / np.sqrt(smaller))


def matched_correlation(
    matrix: _Matrix, parties: int, beta: float, *, key: Key
) -> Parts:
    """Find parts of equal size whose `cross_correlation` lies at `beta` between its extremes.

    Beta goes from 0 (the least that is found) to 1 (the most). VertiBench searches with a genetic
    algorithm; here it is by exchanging columns between parties from several starts, and extremes
    are those that this search finds.
    """
    number("beta", beta, 0, 1)
    _check("column", len(matrix), parties)
    sizes = np.array_split(np.arange(len(matrix)), parties)
    if parties in (1, len(matrix)):  # all splits are alike
        order = generator(fold_in(key, "correlation")).permutation(len(matrix))
        return [order[part] for part in sizes]

    # First the extremes, then what lies at beta between them.
    low, least = _searched(matrix, sizes, lambda value: value, fold_in(key, "least"))
    high, most = _searched(matrix, sizes, lambda value: -value, fold_in(key, "most"))
    if beta in (0, 1) or high - low < 1e-12:
        return most if beta > 0.5 else least
    wanted = (1 - beta) * low + beta * high
    tolerance = _CLOSE * (high - low)

    def distance(value: float) -> float:
        return max(0.0, abs(value - wanted) - tolerance)

    _, parts = _searched(matrix, sizes, distance, fold_in(key, "between"))
    return parts


def _searched(
    matrix: _Matrix, sizes: Parts, loss: Callable[[float], float], key: Key
) -> tuple[float, Parts]:
    """Search for the best split, by exchanges of columns from a few random starts.

    Args:
        matrix: Correlations of all columns.
        sizes: Parts of the sizes that parties get.
        loss: Of a `cross_correlation`: 0 is good enough.
        key: Decides the starts and exchanges.

    Returns:
        The split's cross-correlation, and the split.
    """
    random = generator(key)
    splits = []
    for _ in range(_STARTS):
        order = random.permutation(len(matrix))
        start = [order[part] for part in sizes]
        splits.append(_exchanged(matrix, start, loss, random))
    return min(splits, key=lambda split: loss(split[0]))


def _exchanged(
    matrix: _Matrix,
    parts: Parts,
    loss: Callable[[float], float],
    random: np.random.Generator,
) -> tuple[float, Parts]:
    """Exchange columns of two parties one for one, as long as this lowers the loss."""
    pcors = _pcors(matrix, parts)
    correlation = _mean(pcors)
    for _ in range(_TRIES * len(matrix)):
        if loss(correlation) == 0:
            break
        a, b = random.choice(len(parts), size=2, replace=False)
        i = random.integers(len(parts[a]))
        j = random.integers(len(parts[b]))
        new_parts = [part.copy() for part in parts]
        new_parts[a][i] = parts[b][j]
        new_parts[b][j] = parts[a][i]
        new_pcors = _pcors(matrix, new_parts, pcors, (a, b))
        new_correlation = _mean(new_pcors)
        if loss(new_correlation) < loss(correlation):
            correlation = new_correlation
            parts = new_parts
            pcors = new_pcors
    return correlation, parts
