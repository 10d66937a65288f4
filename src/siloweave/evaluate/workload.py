"""How far marginals of a synthetic table, or of a model, are from the real ones; likelihoods.

Rows are `Codes`, or a `Table`, frame or path that an encoder turns into codes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.shares import coded, overlap
from siloweave.statistics.marginals import (
    closure,
    marginal,
    random_workload,
    sparse_marginal,
)
from siloweave.tables.aligned import align
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, Codes, Encoder
from siloweave.tables.keys import Key

SPARSE_FROM = 1 << 22
"""A clique with more cells than this is compared over the cells that have rows."""


class MarginalSource(Protocol):
    """Anything that answers marginals: a fitted model."""

    def marginal(self, clique: Clique, /) -> Floats:
        """Return non-negative weights of shape ``domain.shape(clique)``, not all zero."""


class WorkloadError(NamedTuple):
    """Mean L1 distance of normalised marginals, each in [0, 2], under both readings.

    Args:
        closure: Mean over every non-empty subset of every query: what FLAIM's code reports.
        queries: Mean over the queries alone: what FLAIM's text says.
    """

    closure: float
    queries: float


def workload_error(
    real: Any,
    synthetic: Any,
    cliques: Iterable[Sequence[str]],
    *,
    encoder: Encoder | None = None,
) -> float:
    """Return the mean L1 distance between normalised marginals.

    ``(1/|Q|) Σ_q ‖M_q(real)/n − M_q(synthetic)/m‖₁``: 0 when all agree, 2 when no cell is shared.
    Maddock, Cormode and Maple, *FLAIM*, KDD 2024.

    Args:
        real: Real rows, at least one: a `Table`, frame or path, or `Codes`.
        synthetic: Synthetic rows of the same kind, or a model.
        cliques: The marginals to compare, at least one; attributes in any order.
        encoder: How rows become codes; without it, numbers are cut at 20 real quantiles,
            as `score` does. A model needs the one that it was fitted with.

    Raises:
        InputError: When a table is empty, domains differ, a marginal has another shape or no
            mass, or there is no clique.

    Example:
        >>> from siloweave.tables import Codes, Domain
        >>> domain = Domain(("a",), (2,))
        >>> real = Codes(domain, (np.array([0, 0, 1, 1]),))
        >>> workload_error(real, Codes(domain, (np.array([0, 0, 0, 1]),)), [("a",)])
        0.5
    """
    real, synthetic = _as_codes(real, synthetic, encoder)
    queries = [real.domain.canonical(clique) for clique in cliques]
    distances = _distances(real, synthetic, queries)
    return _mean([distances[clique] for clique in queries], "cliques")


def workload_errors(
    real: Any,
    synthetic: Any,
    workload: Iterable[Sequence[str]],
    *,
    encoder: Encoder | None = None,
) -> WorkloadError:
    """Return the workload error over the downward closure and over the queries.

    Counts each marginal once. Takes tables, models and encoders, and raises errors, as
    `workload_error`; `workload` lists the queries, at least one.

    Example:
        >>> from siloweave.tables import Codes, Domain
        >>> domain = Domain(("a", "b"), (2, 2))
        >>> real = Codes(domain, (np.array([0, 1]), np.array([0, 1])))
        >>> crossed = Codes(domain, (np.array([0, 1]), np.array([1, 0])))
        >>> workload_errors(real, crossed, [("a", "b")])
        WorkloadError(closure=0.6666666666666666, queries=2.0)
    """
    real, synthetic = _as_codes(real, synthetic, encoder)
    queries = [real.domain.canonical(clique) for clique in workload]
    # The closure holds the queries themselves, so that their distances are among these.
    closed = closure(queries, real.domain)
    distances = _distances(real, synthetic, closed)
    return WorkloadError(
        closure=_mean([distances[clique] for clique in closed], "workload"),
        queries=_mean([distances[clique] for clique in queries], "workload"),
    )


def tvd(
    real: Any,
    synthetic: Any,
    ways: int,
    *,
    max_cliques: int = 300,
    key: Key,
    encoder: Encoder | None = None,
) -> float:
    """Return the mean total variation distance over random marginals of one size, in [0, 1].

    As VertiMRF's experiments: 300 random 3- or 4-way marginals, half their L1 distance.

    Args:
        real: Real rows, at least one: a `Table`, frame or path, or `Codes`.
        synthetic: Synthetic rows of the same kind, or a model.
        ways: Attributes per marginal, from 1 to the domain's.
        max_cliques: How many marginals to draw; all when there are no more.
        key: Which ones.
        encoder: As `workload_error` takes it.

    Raises:
        InputError: As `workload_error`, or when `ways` or `max_cliques` is out of range.

    Example:
        >>> from siloweave.tables import Codes, Domain
        >>> domain = Domain(("a", "b"), (2, 2))
        >>> real = Codes(domain, (np.array([0, 1]), np.array([0, 1])))
        >>> tvd(real, Codes(domain, (np.array([0, 1]), np.array([1, 0]))), 2, key=0)
        1.0
    """
    real, synthetic = _as_codes(real, synthetic, encoder)
    cliques = random_workload(real.domain, ways, max_cliques, seed=key)
    # Total variation is half the L1 distance.
    return workload_error(real, synthetic, cliques) / 2


def _as_codes(
    real: Any, synthetic: Any, encoder: Encoder | None
) -> tuple[Codes, Codes | MarginalSource]:
    """Encode both sides in one domain; a fitted model stays as it is."""
    is_model = callable(getattr(type(synthetic), "marginal", None))
    real_is_coded = isinstance(real, Codes)
    synthetic_is_coded = isinstance(synthetic, Codes)
    if real_is_coded and (is_model or synthetic_is_coded):
        return real, synthetic
    if encoder is not None:
        real_codes = _encoded(real, encoder)
        if is_model:
            return real_codes, synthetic
        return real_codes, _encoded(synthetic, encoder)
    # Without an encoder, rows are coded by the real table, which gives other codes than these.
    if is_model or real_is_coded or synthetic_is_coded:
        raise InputError(
            "codes or a model are compared with rows; give encoder=, which made those codes"
        )
    tables = align({"real": real, "synthetic": synthetic})
    return coded(tables, "real", "synthetic")


def _encoded(rows: Any, encoder: Encoder) -> Codes:
    """Encode rows as codes; rows that are codes already stay as they are."""
    return rows if isinstance(rows, Codes) else encoder.encode(rows)


def _distances(
    real: Codes, synthetic: Codes | MarginalSource, cliques: Sequence[Clique]
) -> dict[Clique, float]:
    """Return the L1 distance of each distinct clique's normalised marginals."""
    require_rows(real, "real")
    if isinstance(synthetic, Codes):
        require_rows(synthetic, "synthetic")
        require_same_domain(real, synthetic)
    return {
        clique: _distance(real, synthetic, clique) for clique in dict.fromkeys(cliques)
    }


def _distance(real: Codes, synthetic: Codes | MarginalSource, clique: Clique) -> float:
    """Return the L1 distance of one clique's normalised marginals.

    Checks a model's marginal, as its code need not be ours.
    """
    synthetic_counts: NDArray[Any]
    if not isinstance(synthetic, Codes):
        synthetic_counts = np.asarray(synthetic.marginal(clique), dtype=np.float64)
    elif real.domain.size(clique) > SPARSE_FROM:
        # Memory grows with rows, not with the domain. L1 is twice the total variation distance.
        shared = overlap(
            sparse_marginal(real, clique), sparse_marginal(synthetic, clique)
        )
        return 2 - 2 * shared
    else:
        synthetic_counts = marginal(synthetic, clique)

    shape = real.domain.shape(clique)
    if synthetic_counts.shape != shape:
        raise InputError(
            f"the model's marginal of {', '.join(clique)} has shape {synthetic_counts.shape}, "
            f"the real table needs {shape}; compare a model with rows of the domain it was "
            "fitted on"
        )
    total = float(synthetic_counts.sum())
    if not (np.isfinite(total) and total > 0):
        raise InputError(
            f"the model's marginal of {', '.join(clique)} sums to {total}; it must be positive"
        )

    real_shares = marginal(real, clique) / real.num_rows
    synthetic_shares = synthetic_counts / total
    return float(np.abs(real_shares - synthetic_shares).sum())


def require_rows(codes: Codes, name: str) -> None:
    """Refuse a table without rows."""
    if codes.num_rows == 0:
        raise InputError(f"{name} has 0 rows; it needs at least 1")


def require_same_domain(real: Codes, synthetic: Codes) -> None:
    """Refuse two tables coded differently, naming what differs."""
    if real.domain == synthetic.domain:
        return
    real_sizes = dict(zip(real.domain.names, real.domain.sizes, strict=True))
    synthetic_sizes = dict(
        zip(synthetic.domain.names, synthetic.domain.sizes, strict=True)
    )
    differing = [
        name
        for name in {**real_sizes, **synthetic_sizes}
        if real_sizes.get(name) != synthetic_sizes.get(name)
    ]
    place = (
        f"in {', '.join(differing)}"
        if differing
        else "in the order of their attributes"
    )
    raise InputError(
        f"real and synthetic have different domains, {place}; encode both with the same Encoder"
    )


def _mean(values: Sequence[float], name: str) -> float:
    """Return the mean of distances; refuse a workload without a clique, whose mean would be NaN."""
    if not values:
        raise InputError(f"{name} is empty; give at least one clique")
    return float(np.mean(values))


class DensitySource(Protocol):
    """Anything that has a probability for each row: a fitted model."""

    def log_density(self, codes: Codes, /) -> Floats:
        """Return the log of the model's probability of each row; −inf for an impossible row."""


def negative_log_likelihood(
    model: DensitySource, codes: Any, *, encoder: Encoder | None = None
) -> float:
    """Return the mean negative log-likelihood of rows under a model, in nats per row.

    Lower is better. A row that the model holds impossible makes the mean infinite; the warning
    then says how many rows these are and the mean over the others.

    Args:
        model: A fitted model.
        codes: Held-out rows, at least one, in the model's domain; or a `Table`, frame or path.
        encoder: How the model codes rows; needed unless they are codes already.

    Raises:
        InputError: When there is no row, or the model gives something that is no log-probability.

    Example:
        >>> from siloweave.tables import Codes, Domain
        >>> class Coin:
        ...     def log_density(self, codes):
        ...         return np.log(np.full(codes.num_rows, 0.5))
        >>> rows = Codes(Domain(("side",), (2,)), (np.array([0, 1, 1]),))
        >>> round(negative_log_likelihood(Coin(), rows), 4)
        0.6931
    """
    if not isinstance(codes, Codes):
        if encoder is None:
            raise InputError(
                "rows that are no codes need encoder=, which the model was fitted with"
            )
        codes = encoder.encode(codes)
    require_rows(codes, "codes")

    log_densities = np.asarray(model.log_density(codes), dtype=np.float64)
    if log_densities.shape != (codes.num_rows,):
        raise InputError(
            f"log_density gave shape {log_densities.shape} for {codes.num_rows} rows; it must give "
            "one number per row"
        )
    # Rounding may lift a probability of 1 a little above it.
    is_wrong = np.isnan(log_densities) | (log_densities > 1e-6)
    num_wrong = int(is_wrong.sum())
    if num_wrong:
        raise InputError(
            f"log_density gave {num_wrong} of {codes.num_rows} rows a value that is NaN or above "
            "0; a log-probability is at most 0, so the model is damaged: fit it again"
        )

    num_impossible = int(np.isneginf(log_densities).sum())
    if num_impossible:
        possible = log_densities[np.isfinite(log_densities)]
        rest = f"{-float(possible.mean()):.4f} nats" if len(possible) else "undefined"
        warnings.warn(
            f"{num_impossible} of {codes.num_rows} rows have probability 0 under the model, so the "
            f"mean is infinite; over the other rows it is {rest}",
            stacklevel=2,
        )
        return float("inf")
    return -float(log_densities.mean())
