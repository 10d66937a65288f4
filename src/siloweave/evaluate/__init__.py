"""Tables as codes in, numbers out: how close a synthetic table is, and how useful.

Every number here is computed from real rows and nobody pays for it: it is the owner's to see, not
to publish.
"""

from siloweave.evaluate.likelihood import DensitySource, negative_log_likelihood
from siloweave.evaluate.utility import train_on_synthetic
from siloweave.evaluate.workload import (
    MarginalSource,
    WorkloadError,
    tvd,
    workload_error,
    workload_errors,
)

__all__ = [
    "DensitySource",
    "MarginalSource",
    "WorkloadError",
    "negative_log_likelihood",
    "train_on_synthetic",
    "tvd",
    "workload_error",
    "workload_errors",
]
