"""Tables as codes in, numbers out: how close a synthetic table is, and how useful.

Every number here is computed from real rows and nobody pays for it: it is the owner's to see, not
to publish.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from siloweave.evaluate.discriminator import Discriminator, discriminate
    from siloweave.evaluate.predictive import (
        svm_misclassification,
        train_on_synthetic,
        utility_ratio,
    )
    from siloweave.evaluate.scores import NotMeasured, Score, Scores
    from siloweave.evaluate.scoring import score
    from siloweave.evaluate.similarity import (
        associations,
        average_jsd,
        average_wasserstein,
        column_pair_trends,
        column_shapes,
        column_similarity,
        correlation_similarity,
        jensen_shannon_similarity,
        kolmogorov_smirnov_similarity,
        marginal_error,
        marginal_tvd,
        statistical_similarity,
    )
    from siloweave.evaluate.workload import (
        DensitySource,
        MarginalSource,
        WorkloadError,
        negative_log_likelihood,
        tvd,
        workload_error,
        workload_errors,
    )

__all__ = [
    "DensitySource",
    "Discriminator",
    "MarginalSource",
    "NotMeasured",
    "Score",
    "Scores",
    "WorkloadError",
    "associations",
    "average_jsd",
    "average_wasserstein",
    "column_pair_trends",
    "column_shapes",
    "column_similarity",
    "correlation_similarity",
    "discriminate",
    "jensen_shannon_similarity",
    "kolmogorov_smirnov_similarity",
    "marginal_error",
    "marginal_tvd",
    "negative_log_likelihood",
    "score",
    "statistical_similarity",
    "svm_misclassification",
    "train_on_synthetic",
    "tvd",
    "utility_ratio",
    "workload_error",
    "workload_errors",
]

_FILES: tuple[Callable[[], Any], ...] = (
    lambda: import_module("siloweave.evaluate.workload"),
    lambda: import_module("siloweave.evaluate.similarity"),
    lambda: import_module("siloweave.evaluate.scores"),
    lambda: import_module("siloweave.evaluate.predictive"),
    lambda: import_module("siloweave.evaluate.discriminator"),
    lambda: import_module("siloweave.evaluate.scoring"),
)


def __getattr__(name: str) -> Any:
    """A name of `__all__`; no file is read before, as a fit needs none but the first."""
    if name not in __all__:
        raise AttributeError(f"module 'siloweave.evaluate' has no attribute {name!r}")
    return next(vars(file)[name] for file in (one() for one in _FILES) if name in vars(file))
