"""What methods of marginals share: workloads, weights and the size of a model.

Weights and the bound on the model's size are those of McKenna, Mullins, Sheldon & Miklau 2022,
"AIM: An adaptive and iterative mechanism for differentially private synthetic data" (VLDB 15(11)).

**Guarantee**: nothing to protect. No function here reads a row; all are functions of the domain,
the workload, the noise level and the cliques measured so far, which the methods that call them
assume public. Hence no neighbouring relation and no ledger entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb, pi, sqrt
from typing import Any

from siloweave.errors import CapacityError, InputError
from siloweave.models.junction_tree import maximal_cliques, tree_cells
from siloweave.statistics.marginals import closure, random_workload
from siloweave.tables.codes import Clique, Domain, Encoder
from siloweave.tables.schema import check_learnable

_CELL_BYTES = 8
_WORKLOAD_SEED = 123


def workload_for(
    domain: Domain,
    degree: int,
    queries: int | None,
    workload: Sequence[Sequence[str]] | None,
    megabytes: float,
) -> list[Clique]:
    """The queries to get right: those named, else sets of `degree` columns.

    A query that was asked for must fit. Of all sets, those that do not fit are left out, and a
    column that is then in none is a query by itself: a default must not fail.

    Args:
        domain: Attributes and sizes.
        degree: Columns in a query; fewer where the table has fewer.
        queries: How many random sets, fewer where the table has fewer; all that fit if None.
        workload: Named queries.
        megabytes: Bound on the model, at 8 bytes a cell.

    Raises:
        SchemaError: A named query has a column that is not there, or one twice.
        CapacityError: A query does not fit.
    """
    found = _asked(domain, degree, queries, workload, megabytes)
    check_capacity(domain, found, megabytes)
    return found


def queries_of(synth: Any, encoder: Encoder) -> list[Clique]:
    """The queries of a method's settings.

    Raises:
        SchemaError, CapacityError: Such codes cannot answer them.
    """
    check_learnable(encoder.schema)
    return workload_for(
        encoder.domain, synth.degree, synth.queries, synth.workload, synth.max_model_mb
    )


def too_large(domain: Domain, degree: int, megabytes: float) -> int:
    """How many of all sets of `degree` columns do not fit, and are in no default workload."""
    every = combinations(domain.names, min(degree, len(domain.names)))
    return sum(domain.size(q) > megabytes * 1e6 / _CELL_BYTES for q in every)


def _asked(
    domain: Domain,
    degree: int,
    queries: int | None,
    workload: Sequence[Sequence[str]] | None,
    megabytes: float,
) -> list[Clique]:
    if workload is not None:
        try:
            return [domain.canonical(q) for q in workload]
        except InputError as error:
            raise type(error)(f"workload: {error}") from error
    degree = min(degree, len(domain.names))
    if queries is None:
        every = combinations(domain.names, degree)
        found = [q for q in every if domain.size(q) <= megabytes * 1e6 / _CELL_BYTES]
        covered = {name for query in found for name in query}
        return [*found, *((name,) for name in domain.names if name not in covered)]
    count = min(queries, comb(len(domain.names), degree))
    return random_workload(domain, degree, count, seed=_WORKLOAD_SEED)


def expected_l1(sigma: float, cells: int) -> float:
    """Expected L1 norm of Gaussian noise of standard deviation `sigma` on `cells` numbers."""
    return sqrt(2.0 / pi) * sigma * cells


def weights_of(domain: Domain, workload: Sequence[Clique]) -> dict[Clique, float]:
    """Weight of every clique in the closure: w_r = sum over queries s of |r & s| (AIM, 4.1)."""
    if not workload:
        raise InputError("the workload is empty; name at least one set of columns")
    below = closure(workload, domain)
    return {r: float(sum(len(set(r) & set(s)) for s in workload)) for r in below}


@lru_cache(maxsize=4)
def known_weights(domain: Domain, workload: tuple[Clique, ...]) -> Mapping[Clique, float]:
    """`weights_of`, computed once for the parties of one process."""
    return weights_of(domain, workload)


def check_capacity(domain: Domain, workload: Sequence[Clique], megabytes: float) -> None:
    """Raise CapacityError where a single query does not fit, with its columns and cells."""
    limit = megabytes * 1e6 / _CELL_BYTES
    for clique in workload:
        cells = domain.size(clique)
        if cells > limit:
            sizes = ", ".join(f"{a} ({domain.size_of(a)})" for a in clique)
            raise CapacityError(
                f"the query over {sizes} has {cells:,} cells, {cells * _CELL_BYTES / 1e6:,.0f} MB; "
                f"the model may take {megabytes:g} MB. Use fewer bins for these columns, leave the "
                "query out of the workload, or raise max_model_mb"
            )


def fitting(
    domain: Domain, candidates: Mapping[Clique, float], measured: Sequence[Clique], megabytes: float
) -> list[Clique]:
    """Candidates that keep the junction tree within `megabytes`, or lie inside it already."""
    limit = megabytes * 1e6 / _CELL_BYTES
    inside = [set(c) for c in maximal_cliques(domain, measured)]
    kept = []
    for clique in candidates:
        free = any(set(clique) <= c for c in inside)
        if free or tree_cells(domain, [*measured, clique]) <= limit:
            kept.append(clique)
    return kept
