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
from functools import cached_property

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from siloweave.models.layout import Spots
from siloweave.models.nets import Array
from siloweave.models.options import Options
from siloweave.models.points import curve

__all__ = ["Evidence"]


@dataclass(frozen=True)
class Evidence:
    """Points among a row's numbers, and what is said of their options.

    Attributes:
        count: d, how many numbers a row has.
        spots: Where points lie among them.

    Example:
        >>> from siloweave.models.layout import Spot
        >>> evidence = Evidence(3, (Spot(1, 1, 2),))
        >>> found = evidence.alone(jnp.array([[9.0, 1.0, 9.0]]), jnp.array([[0.5]]))
        >>> [round(float(x), 2) for x in found[0]]
        [-1.91, 0.91]
    """

    count: int
    spots: Spots

    @cached_property
    def options(self) -> Options:
        """Those of all spots, in the spots' order."""
        return Options.of(s.options for s in self.spots)

    @cached_property
    def plain(self) -> npt.NDArray[np.int64]:
        """Which numbers are no part of a point."""
        taken = [range(s.start, s.start + s.dimensions) for s in self.spots]
        return np.setdiff1d(np.arange(self.count), np.concatenate([[], *taken]))

    def alone(self, x: Array, kept: Array) -> Array:
        """What noisy points alone say of each option, logarithms up to a constant.

        Args:
            x: (batch, d) noisy rows.
            kept: (batch, 1) or () ᾱ_t, below 1.

        Returns:
            (batch, options).
        """
        near = jnp.sqrt(kept) * self._near(x)
        found: Array = (near - kept * self._norms) / (1.0 - kept)
        return found

    def likely(self, told: Array, x: Array, kept: Array) -> Array:
        """Logarithms of the options' probabilities, (batch, options).

        Args:
            told: (batch, options), what the network tells of the other columns.
            x: As `alone` takes it.
            kept: As `alone` takes it.
        """
        return self.options.log_softmax(told + self.alone(x, kept))

    def expected(self, logs: Array) -> Array:
        """Mean points under these probabilities, (batch, d); 0 where there is none."""
        return jnp.matmul(jnp.exp(logs), self._points.T, precision="highest")

    def truth(self, clean: Array) -> Array:
        """Which option each clean point is nearest to, one-hot, (batch, options)."""
        near = self._near(clean) - self._norms
        return near >= self.options.largest(near)[..., self.options.choice]

    def _near(self, x: Array) -> Array:
        return jnp.matmul(x, self._points, precision="highest")

    @cached_property
    def _points(self) -> npt.NDArray[np.float32]:
        """(d, options), each option's point at its place, 0 elsewhere."""
        found = np.zeros((self.count, len(self.options.choice)), np.float32)
        for j, s in enumerate(self.spots):
            own = curve(s.options, s.dimensions).T
            found[s.start : s.start + s.dimensions, self.options.choice == j] = own
        return found

    @cached_property
    def _norms(self) -> npt.NDArray[np.float32]:
        norms: npt.NDArray[np.float32] = 0.5 * (self._points**2).sum(0)
        return norms
