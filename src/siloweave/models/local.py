"""Move a model towards one more noisy marginal, everything else left as it is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from siloweave.models.estimate import Measurement, solve_block
from siloweave.models.mrf import MRF

__all__ = ["block_step", "moved_towards"]


def block_step(
    model: MRF, measurement: Measurement, *, shrinkage: float = 0.5
) -> npt.NDArray[np.float64]:
    """The marginal after one exact block step on a measurement of it (see estimate.py).

    Args:
        model: Where to start.
        measurement: A noisy marginal in the model's own total.
        shrinkage: Weight of entropy against residual, per unit of noise.

    Returns:
        Counts that sum to the model's total, axes as in the measurement's clique.
    """
    mu = np.maximum(model.marginal(measurement.clique), 1e-300)
    slack = max(shrinkage * measurement.sigma, 1e-6)
    base = measurement.counts / slack + np.log(mu / slack)
    return np.asarray(solve_block(base.reshape(-1), slack, model.total).reshape(mu.shape))


def moved_towards(model: MRF, measurement: Measurement, *, shrinkage: float = 0.5) -> MRF:
    """The model after one exact block step on a measurement (see estimate.py).

    Args:
        model: Where to start; its other potentials stay.
        measurement: A noisy marginal in the model's own total.
        shrinkage: Weight of entropy against residual, per unit of noise.

    Returns:
        A model with one more potential, or a changed one if the clique had one.
    """
    mu = np.maximum(model.marginal(measurement.clique), 1e-300)
    table = np.maximum(block_step(model, measurement, shrinkage=shrinkage), 1e-9)
    step = np.log(table / mu)
    before = model.potentials.get(measurement.clique)
    potentials = model.potentials | {measurement.clique: step if before is None else before + step}
    return MRF(model.domain, potentials, model.total)
