"""Exact functions of codes: marginals, workloads and association. Nothing here is private."""

from siloweave.statistics.marginals import (
    closure,
    cramers_v,
    marginal,
    random_workload,
    sparse_marginal,
)

__all__ = [
    "closure",
    "cramers_v",
    "marginal",
    "random_workload",
    "sparse_marginal",
]
