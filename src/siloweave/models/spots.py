"""Choices that are points among a row's numbers: what is known before a network is asked.

A choice whose options are points p_k (models/points.py) reads, with Gaussian noise at level
a = ᾱ_t, x = √a p_k + √(1-a) noise. By Bayes' rule x alone says of option k, up to a constant,

    evidence_k(x) = (√a <x, p_k> - a |p_k|² / 2) / (1 - a),

and the other columns' noisy values come on top, since each column gets noise of its own:
log p(k | noisy row) = log p(k | the other columns) + evidence_k. So the network is given the
options' probabilities by evidence alone beside x, tells logarithms to which the evidence is added,
and has only the first summand to learn. The clean point is the mean of the options' points under
the softmax of the sum, and its loss is cross-entropy (score interpolation, Dieleman et al. 2022,
"Continuous diffusion for categorical data"; the evidence is ours).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from siloweave.models.layout import Spots
from siloweave.models.points import spread

__all__ = ["Alike", "alike", "evidence", "expected", "likely", "truth"]

Array = jax.Array


@dataclass(frozen=True)
class Alike:
    """Spots of the same shape, side by side.

    Attributes:
        places: (count, dimensions) which numbers they are.
        points: (options, dimensions) float32.
    """

    places: npt.NDArray[np.int64]
    points: npt.NDArray[np.float32]

    @property
    def outputs(self) -> int:
        """How many numbers tell of their options."""
        return len(self.places) * len(self.points)


def alike(spots: Spots) -> list[Alike]:
    """Spots by shape, so that a hundred binary columns are one array.

    Example:
        >>> from siloweave.models.layout import Spot
        >>> [a.places.tolist() for a in alike((Spot(0, 1, 2), Spot(1, 2, 4), Spot(3, 1, 2)))]
        [[[0], [3]], [[1, 2]]]
    """
    found = []
    for dimensions, options in sorted({(s.dimensions, s.options) for s in spots}):
        starts = [s.start for s in spots if s[1:] == (dimensions, options)]
        places = np.add.outer(np.array(starts), np.arange(dimensions))
        found.append(Alike(places, spread(options, dimensions).astype(np.float32)))
    return found


def evidence(group: Alike, x: Array, kept: Array) -> Array:
    """What noisy points alone say of each option, logarithms up to a constant.

    Args:
        group: Spots of one shape.
        x: (batch, d) noisy rows.
        kept: (batch, 1) or () ᾱ_t, below 1.

    Returns:
        (batch, count, options).
    """
    kept = jnp.asarray(kept)[..., None]
    norms = 0.5 * (group.points**2).sum(1)
    near = jnp.sqrt(kept) * (x[:, group.places] @ group.points.T)
    found: Array = (near - kept * norms) / (1.0 - kept)
    return found


def likely(group: Alike, told: Array, x: Array, kept: Array) -> Array:
    """Logarithms of the options' probabilities, (batch, count, options).

    Args:
        group: Spots of one shape.
        told: (batch, count x options), what the network tells of the other columns.
        x: (batch, d) noisy rows.
        kept: As `evidence` takes it.
    """
    before = told.reshape(len(told), len(group.places), -1)
    return jax.nn.log_softmax(before + evidence(group, x, kept), axis=-1)


def expected(group: Alike, logs: Array) -> Array:
    """Mean points under these probabilities, (batch, count x dimensions), in order of `places`."""
    return (jnp.exp(logs) @ group.points).reshape(len(logs), -1)


def truth(group: Alike, clean: Array) -> Array:
    """Which option each clean point is nearest to, (batch, count)."""
    norms = 0.5 * (group.points**2).sum(1)
    nearest: Array = (clean[:, group.places] @ group.points.T - norms).argmax(-1)
    return nearest
