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
from siloweave.tables.persons import ROW, owners_in, relabelled, rows_of_units, without_ids
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Schema

PERMUTED = 12343
"""Seed of SiloFuse's permuted split."""
Parts = list[Ints]
"""Positions of each party's rows or columns."""
_Matrix = Floats
_ROW_WAYS = ("iid", "clusters", "label_skew")
_COLUMN_WAYS = ("contiguous", "permuted", "importance", "correlation")
_ITERATIONS = 12  # of subspace iteration; the plane is settled long before
_COPIES = 0.01  # with more of one row, all are moved by a hair: equal neighbours never settle
_HAIR = 1e-3  # codes
_STARTS = 2  # of the search for a split with a certain correlation
_TRIES = 15  # exchanges tried per column and start
_CLOSE = 1e-4  # of the range between least and most correlation: near enough


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
            raise InputError(f"unit={unit!r}: codes do not say whose rows they are; give the table")
        owners, _ = relabelled(owners_in({"the table": rows}, unit)["the table"])
        # An id says whose row it is, and nothing about what rows are alike.
        like = without_ids(rows, unit)
        units = _unit_parts(like, owners, parties, by, seed, method, label, beta)
        return _as_given(table, [rows.take(rows_of_units(owners, part)) for part in units])
    if by == "iid":
        parts = iid(rows.num_rows, parties, key=seed)
    elif by == "clusters":
        parts = clusters(rows, parties, key=seed, method=_plane_of(method))
    else:
        parts = label_skew(_labels(rows, label), parties, beta, key=seed)
    return _as_given(table, [rows.take(part) for part in parts])


def _plane_of(method: str | None) -> str:
    """The way to a plane: the paper's where it is installed."""
    return method or ("umap" if find_spec("umap") else "pca")


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
    """The units of each party; units are numbered from 0, and `owners` has one for each row."""
    units = int(owners.max(initial=-1)) + 1
    _check("person", units, parties)
    if by == "iid":
        return iid(units, parties, key=key)
    if by == "label_skew":
        classes = np.unique(_labels(rows, label).astype(str), return_inverse=True)[1]
        return label_skew(_most_frequent(owners, classes, units), parties, beta, key=key)
    cluster = np.empty(len(owners), dtype=np.int64)
    for place, part in enumerate(clusters(rows, parties, key=key, method=_plane_of(method))):
        cluster[part] = place
    chosen = _most_frequent(owners, cluster, units)
    parts = [np.flatnonzero(chosen == place) for place in range(parties)]
    return _filled(parts, fold_in(key, "fill"))


def _most_frequent(owners: Ints, values: Ints, units: int) -> Ints:
    """The most frequent value of each unit's rows; of equally frequent ones the least."""
    counts = np.zeros((units, int(values.max(initial=0)) + 1), dtype=np.int64)
    np.add.at(counts, (owners, values), 1)
    found: Ints = counts.argmax(axis=1)
    return found


def _as_given(table: Any, pieces: list[Any]) -> list[Any]:
    """Tables for a table or a path, codes for codes, frames for a frame."""
    if isinstance(table, Codes | Table | str) or hasattr(table, "__fspath__"):
        return pieces
    return [piece.to_native() for piece in pieces]


def iid(num_rows: int, parties: int, *, key: Key) -> Parts:
    """Spread rows at random, in parts of equal size (at most one row apart).

    Returns ascending positions of each party's rows.

    Raises:
        DataError: When there are fewer rows than parties.
    """
    _check("row", num_rows, parties)
    order = generator(fold_in(key, "iid")).permutation(num_rows)
    return [np.sort(part) for part in np.array_split(order, parties)]


def clusters(codes: Any, parties: int, *, key: Key, method: str = "umap") -> Parts:
    """Give each party the rows of one cluster: plane coordinates, then k-means with K clusters.

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
        raise InputError(f"method={method!r} is unknown; use one of {', '.join(_PLANES)}")
    if parties == 1:
        return [np.arange(codes.num_rows)]
    plane = _PLANES[method](codes, fold_in(key, method))
    sklearn = import_module("sklearn.cluster")
    state = _state(fold_in(key, "means"))
    means = sklearn.MiniBatchKMeans(
        parties, batch_size=4096, n_init=1, max_iter=50, random_state=state, reassignment_ratio=0.0
    )
    found = means.fit_predict(plane)
    return _filled([np.flatnonzero(found == k) for k in range(parties)], fold_in(key, "fill"))


def label_skew(
    labels: NDArray[Any] | Sequence[Any], parties: int, beta: float, *, key: Key
) -> Parts:
    """Spread each class by shares drawn from Dirichlet(beta, ..., beta), with beta > 0.

    The paper's table uses 0.1 (uneven) and 0.8. Shares are floored and the rows left over go to the
    largest remainders. Takes one class per row; returns ascending positions of each party's rows,
    at least one.

    Raises:
        DataError: When there are fewer rows than parties.
        InputError: When ``beta`` is not a positive number.
    """
    classes = np.unique(np.asarray(labels).astype(str), return_inverse=True)[1]
    _check("row", len(classes), parties)
    number("beta", beta, 0, inf, "()")
    random = generator(fold_in(key, "label_skew"))
    parts: list[Parts] = [[] for _ in range(parties)]
    for label in range(int(classes.max()) + 1):
        rows = random.permutation(np.flatnonzero(classes == label))
        exact = random.dirichlet(np.full(parties, beta)) * len(rows)
        if not np.isfinite(exact).all():  # beta so small that every share underflows
            exact = np.eye(parties)[random.integers(parties)] * len(rows)
        sizes = np.floor(exact).astype(np.int64)
        sizes[np.argsort(sizes - exact, kind="stable")[: len(rows) - sizes.sum()]] += 1
        for part, piece in zip(parts, np.split(rows, np.cumsum(sizes)[:-1]), strict=True):
            part.append(piece)
    return _filled([np.sort(np.concatenate(part)) for part in parts], fold_in(key, "fill"))


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
    domain = Domain(tuple(f"f{i}" for i in range(features)), (values + 1,) * features)
    zipf = np.arange(1, values + 1, dtype=float) ** -exponent
    random = generator(fold_in(key, "synth_fs"))
    means = random.choice(np.arange(1, values + 1), size=(parties, features), p=zipf / zipf.sum())
    drawn = means[:, :, None] + random.standard_normal((parties, features, rows))
    found = np.clip(np.rint(drawn), 0, values).astype(np.int64)
    return [Codes(domain, tuple(party)) for party in found]


def _check(what: str, number: int, parties: int) -> None:
    whole("parties", parties, 1)
    if number < parties:
        raise DataError(
            f"{number} {what}s cannot be spread over {parties} parties, one {what} each at least; "
            "use fewer parties"
        )


def _state(key: Key) -> int:
    """Return a 32-bit seed for a library that takes one."""
    return int(fold_in(key, "state").generate_state(1)[0])


def _filled(parts: Parts, key: Key) -> Parts:
    """Give every empty part one row, drawn from the part that is largest then."""
    random = generator(key)
    for k in range(len(parts)):
        if not len(parts[k]):
            largest = max(range(len(parts)), key=lambda i: len(parts[i]))
            chosen = int(random.integers(len(parts[largest])))
            parts[k] = parts[largest][chosen : chosen + 1]
            parts[largest] = np.delete(parts[largest], chosen)
    return parts


def _umap_plane(codes: Codes, key: Key) -> _Matrix:
    if not find_spec("umap"):
        raise InputError(
            "method='umap' needs the extra umap: pip install 'siloweave[umap]'; or use the "
            "fallback method='pca', whose clusters differ from the paper's"
        )
    rows: _Matrix = np.stack([column.astype(np.float64) for column in codes.columns], axis=1)
    if len(rows) <= 3:
        return rows
    copies = np.unique(rows, axis=0, return_counts=True)[1]
    crowded = copies.max() > _COPIES * len(rows)
    if crowded:
        rows += _HAIR * generator(fold_in(key, "hair")).random(rows.shape)
    init = "pca" if crowded else "spectral"  # a crowd is an island; islands have no spectrum
    near, state = min(15, len(rows) - 1), _state(key)
    umap = import_module("umap").UMAP(
        n_neighbors=near, min_dist=0.1, random_state=state, n_jobs=1, init=init
    )
    plane: _Matrix = umap.fit_transform(rows).astype(np.float64)
    return plane


def _pca_plane(codes: Codes, key: Key) -> _Matrix:
    """Two principal components of the one-hot codes, by subspace iteration on a sparse matrix."""
    n, sizes = codes.num_rows, codes.domain.sizes
    starts = np.cumsum((0, *sizes[:-1]))
    places = [column + start for column, start in zip(codes.columns, starts, strict=True)]
    pointers = np.arange(0, n * len(sizes) + 1, len(sizes))
    hot = import_module("scipy.sparse").csr_array(
        (np.ones(n * len(sizes)), np.stack(places, axis=1).ravel(), pointers), shape=(n, sum(sizes))
    )
    mean = hot.sum(axis=0) / n
    axes = generator(key).standard_normal((sum(sizes), min(8, sum(sizes))))
    for _ in range(_ITERATIONS):
        plane = hot @ axes - mean @ axes
        axes = np.linalg.qr(hot.T @ plane - np.outer(mean, plane.sum(axis=0)))[0]
    plane = hot @ axes - mean @ axes
    vectors = np.linalg.eigh(plane.T @ plane)[1]
    flat: _Matrix = plane @ vectors[:, ::-1][:, :2]
    return flat


_PLANES: dict[str, Callable[[Codes, Key], _Matrix]] = {"umap": _umap_plane, "pca": _pca_plane}


def _coded(rows: Any) -> Codes:
    """Code rows by their own values: a simulation's split needs no declared schema."""
    if isinstance(rows, Codes):
        return rows
    table = read(rows)
    table = table.select([name for name in table.names if not table.missing(name).all()])
    return Encoder(Schema.detect(table, constraints=False)).encode(table)


def _labels(rows: Table | Codes, label: str | None) -> NDArray[Any]:
    names = rows.domain.names if isinstance(rows, Codes) else rows.names
    name = names[-1] if label is None else label
    return rows.column(name) if isinstance(rows, Codes) else rows.values(name)


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
            raise DataError(f"keep names {name!r}; the columns are {', '.join(rows.names)}")
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
        parts = matched_correlation(correlations(rows.select(spread)), number, beta, key=key)
    kept = [name for name in rows.names if name in keep]
    names = [[*kept, *(spread[i] for i in np.sort(part))] for part in parts]
    return _as_given(table, [rows.select(some) for some in names])


def contiguous(columns: int, parties: int) -> Parts:
    """Neighbouring columns, the same number each; the last party takes the remainder too."""
    _check("column", columns, parties)
    each = columns // parties
    return np.split(np.arange(columns), [each * k for k in range(1, parties)])


def drawn_by_importance(columns: int, parties: int, alpha: float, *, key: Key) -> Parts:
    """Give each column to a party with probability r_k, where r is drawn from Dirichlet(alpha).

    VertiBench may leave a party without any column; here it then gets one of the party with the
    most.
    """
    _check("column", columns, parties)
    number("alpha", alpha, 0, inf, "()")
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


def cross_correlation(matrix: _Matrix, parts: Parts) -> float:
    """How much columns of different parties correlate, less how much they do within parties.

    VertiBench's Icor, from -1 (all within parties) upwards and 0 for one party: the mean over pairs
    of parties i != j of Pcor(i, j) - Pcor(i, i), where Pcor of two parties with d columns in the
    smaller one is the standard deviation (over d - 1) of the d singular values of the correlations
    between them, divided by the root of d: 0 where all columns are equally related, 1 where they
    are all the same. With d = 1, where the paper's formula has no value, it is the norm of the
    correlations over the root of their number.
    """
    return _mean(_pcors(matrix, parts))


def _mean(pcors: _Matrix) -> float:
    parties, own = len(pcors), np.diag(pcors)
    if parties < 2:
        return 0.0
    return float((pcors.sum() - own.sum()) / (parties * (parties - 1)) - own.mean())


def _pcors(
    matrix: _Matrix, parts: Parts, known: _Matrix | None = None, changed: Sequence[int] = ()
) -> _Matrix:
    """Pcor of every two parties; with those that are known, of the changed parties alone."""
    number = len(parts)
    found = np.zeros((number, number)) if known is None else known.copy()
    every = combinations_with_replacement(range(number), 2)
    for i, j in every if known is None else product(changed, range(number)):
        found[i, j] = found[j, i] = _together(matrix[np.ix_(parts[i], parts[j])])
    return found


def _together(block: _Matrix) -> float:
    """Pcor of the correlations between two parties."""
    smaller = min(block.shape)
    if smaller == 1:
        return float(np.sqrt((block**2).mean()))
    return float(np.linalg.svd(block, compute_uv=False).std(ddof=1) / np.sqrt(smaller))


def matched_correlation(matrix: _Matrix, parties: int, beta: float, *, key: Key) -> Parts:
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
    tried = []
    for _ in range(_STARTS):
        order = random.permutation(len(matrix))
        tried.append(_exchanged(matrix, [order[part] for part in sizes], worse, random))
    return min(tried, key=lambda one: worse(one[0]))


def _exchanged(
    matrix: _Matrix, parts: Parts, worse: Callable[[float], float], random: np.random.Generator
) -> tuple[float, Parts]:
    known = _pcors(matrix, parts)
    now = _mean(known)
    for _ in range(_TRIES * len(matrix)):
        if worse(now) == 0:
            break
        a, b = random.choice(len(parts), size=2, replace=False)
        i, j = random.integers(len(parts[a])), random.integers(len(parts[b]))
        tried = [part.copy() for part in parts]
        tried[a][i], tried[b][j] = parts[b][j], parts[a][i]
        pcors = _pcors(matrix, tried, known, (a, b))
        then = _mean(pcors)
        if worse(then) < worse(now):
            now, parts, known = then, tried, pcors
    return now, parts
