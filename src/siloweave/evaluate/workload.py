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
from siloweave.statistics.marginals import closure, marginal, random_workload, sparse_marginal
from siloweave.tables.aligned import align
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, Codes, Encoder
from siloweave.tables.keys import Key

SPARSE_FROM = 1 << 22
"""A clique with more cells than this is compared over the cells that have rows."""


class MarginalSource(Protocol):
    """Anything that answers marginals: a fitted model."""

    def marginal(self, clique: Clique, /) -> Floats:
        """Non-negative weights of shape ``domain.shape(clique)``, not all zero."""


class WorkloadError(NamedTuple):
    """Mean L1 distance of normalised marginals, each in [0, 2], under both readings.

    Args:
        closure: Mean over every non-empty subset of every query: what FLAIM's code reports.
        queries: Mean over the queries alone: what FLAIM's text says.
    """

    closure: float
    queries: float


def workload_error(
    real: Any, synthetic: Any, cliques: Iterable[Sequence[str]], *, encoder: Encoder | None = None
) -> float:
    """Mean L1 distance between normalised marginals.

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
    wanted = [real.domain.canonical(clique) for clique in cliques]
    distances = _distances(real, synthetic, wanted)
    return _mean([distances[clique] for clique in wanted], "cliques")


def workload_errors(
    real: Any, synthetic: Any, workload: Iterable[Sequence[str]], *, encoder: Encoder | None = None
) -> WorkloadError:
    """Workload error over the downward closure and over the queries, counting each marginal once.

    Takes tables, models and encoders, and raises errors, as `workload_error`; `workload` lists the
    queries, at least one.

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
    below = closure(queries, real.domain)
    distances = _distances(real, synthetic, below)
    return WorkloadError(
        closure=_mean([distances[clique] for clique in below], "workload"),
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
    """Mean total variation distance over random marginals of one size, in [0, 1].

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
    return workload_error(real, synthetic, cliques) / 2


def _as_codes(
    real: Any, synthetic: Any, encoder: Encoder | None
) -> tuple[Codes, Codes | MarginalSource]:
    """Both sides as codes of one domain; a model stays what it is."""
    model = callable(getattr(type(synthetic), "marginal", None))
    if isinstance(real, Codes) and (model or isinstance(synthetic, Codes)):
        return real, synthetic
    if encoder is not None:
        return _encoded(real, encoder), synthetic if model else _encoded(synthetic, encoder)
    if model or isinstance(real, Codes) or isinstance(synthetic, Codes):
        raise InputError(
            "codes or a model are compared with rows; give encoder=, which made those codes"
        )
    return coded(align({"real": real, "synthetic": synthetic}), "real", "synthetic")


def _encoded(rows: Any, encoder: Encoder) -> Codes:
    return rows if isinstance(rows, Codes) else encoder.encode(rows)


def _distances(
    real: Codes, synthetic: Codes | MarginalSource, cliques: Sequence[Clique]
) -> dict[Clique, float]:
    """L1 distance of each distinct clique's normalised marginals."""
    require_rows(real, "real")
    if isinstance(synthetic, Codes):
        require_rows(synthetic, "synthetic")
        require_same_domain(real, synthetic)
    return {clique: _distance(real, synthetic, clique) for clique in dict.fromkeys(cliques)}


def _distance(real: Codes, synthetic: Codes | MarginalSource, clique: Clique) -> float:
    ours: NDArray[Any]
    if not isinstance(synthetic, Codes):
        ours = np.asarray(synthetic.marginal(clique), dtype=np.float64)
    elif real.domain.size(clique) > SPARSE_FROM:  # memory grows with rows, not with the domain
        return 2 - 2 * overlap(sparse_marginal(real, clique), sparse_marginal(synthetic, clique))
    else:
        ours = marginal(synthetic, clique)
    shape = real.domain.shape(clique)
    if ours.shape != shape:
        raise InputError(
            f"the model's marginal of {', '.join(clique)} has shape {ours.shape}, the real table "
            f"needs {shape}; compare a model with rows of the domain it was fitted on"
        )
    total = float(ours.sum())
    if not (np.isfinite(total) and total > 0):
        raise InputError(
            f"the model's marginal of {', '.join(clique)} sums to {total}; it must be positive"
        )
    return float(np.abs(marginal(real, clique) / real.num_rows - ours / total).sum())


def require_rows(codes: Codes, name: str) -> None:
    """Refuse an empty table."""
    if codes.num_rows == 0:
        raise InputError(f"{name} has 0 rows; it needs at least 1")


def require_same_domain(real: Codes, synthetic: Codes) -> None:
    """Refuse two tables coded differently, naming what differs."""
    if real.domain == synthetic.domain:
        return
    ours, theirs = (
        dict(zip(rows.domain.names, rows.domain.sizes, strict=True)) for rows in (real, synthetic)
    )
    differing = [n for n in {**ours, **theirs} if ours.get(n) != theirs.get(n)]
    raise InputError(
        "real and synthetic have different domains, "
        + (f"in {', '.join(differing)}" if differing else "in the order of their attributes")
        + "; encode both with the same Encoder"
    )


def _mean(values: Sequence[float], name: str) -> float:
    if not values:
        raise InputError(f"{name} is empty; give at least one clique")
    return float(np.mean(values))


class DensitySource(Protocol):
    """Anything that has a probability for each row: a fitted model."""

    def log_density(self, codes: Codes, /) -> Floats:
        """Natural log of the model's probability of each row; −inf for an impossible row."""


def negative_log_likelihood(
    model: DensitySource, codes: Any, *, encoder: Encoder | None = None
) -> float:
    """Mean negative log-likelihood of rows under a model, in nats per row.

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
    density = np.asarray(model.log_density(codes), dtype=np.float64)
    if density.shape != (codes.num_rows,):
        raise InputError(
            f"log_density gave shape {density.shape} for {codes.num_rows} rows; it must give one "
            "number per row"
        )
    wrong = int((np.isnan(density) | (density > 1e-6)).sum())
    if wrong:
        raise InputError(
            f"log_density gave {wrong} of {codes.num_rows} rows a value that is NaN or above 0; "
            "a log-probability is at most 0, so the model is damaged: fit it again"
        )
    impossible = int(np.isneginf(density).sum())
    if impossible:
        possible = density[np.isfinite(density)]
        rest = f"{-float(possible.mean()):.4f} nats" if len(possible) else "undefined"
        warnings.warn(
            f"{impossible} of {codes.num_rows} rows have probability 0 under the model, so the "
            f"mean is infinite; over the other rows it is {rest}",
            stacklevel=2,
        )
        return float("inf")
    return -float(density.mean())
