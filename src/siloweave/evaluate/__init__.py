"""Tables as codes in, numbers out: how close a synthetic table is, and how useful.

Every number here is computed from real rows and nobody pays for it: it is the owner's to see, not
to publish.
"""

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
