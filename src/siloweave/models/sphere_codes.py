"""Sphere codes: a coder of single columns that learns nothing from rows.

A categorical with K options becomes one of K points on a sphere of about log2 K dimensions, in the
options' order along a curve that winds over it; a number stays as it is, and decoding takes the
nearest point. It is the coder of a latent diffusion whose latents hold everything about a row:
diffusion of such points is the "analog bits" of Chen, Zhang & Hinton 2023 with neighbours side by
side, so the effect of one count on another is smooth in both (decision 0024; with five options or
fewer all points are about as far from one another). The coder depends on the blocks alone. So it
costs no privacy, it is the same whoever holds the column, and how columns are split between parties
changes nothing about a latent row.

A code with options p_k is seen, with Gaussian noise at level a = ᾱ_t, as x = √a p_k + √(1-a) noise.
By Bayes' rule x alone gives option k, up to a constant, the logarithm

    evidence_k(x) = (√a <x, p_k> - a |p_k|² / 2) / (1 - a),

and the other columns' noisy values come on top, because each column gets noise of its own:
log p(k | noisy row) = log p(k | the other columns) + evidence_k. So the network's input has the
options' probabilities by evidence alone beside x, its output is the logarithms to which the
evidence is added, and it has only the first summand to learn. The clean point is the mean of the
options' points under the softmax of the sum, and its loss is cross-entropy (score interpolation,
Dieleman et al. 2022, "Continuous diffusion for categorical data"; the evidence is ours).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from siloweave.models.layout import Layout, Matrix, SphereCode, SphereCodes
from siloweave.models.multinomial import Options
from siloweave.models.nets import Array
from siloweave.models.settings import SphereCodeSettings
from siloweave.tables.features import Block

Floats = npt.NDArray[np.float64]
_FINE = 4001  # places at which the curve's length is measured
_CHUNK = 8192


@lru_cache(maxsize=256)
def curve(size: int, dimensions: int) -> Floats:
    """Points along a curve over the sphere of radius sqrt(dimensions), evenly spaced on it.

    They are (size, dimensions), in order, the same on every call, and read only; with one dimension
    they are evenly spaced numbers from -1 to 1.
    """
    if dimensions == 1:
        points = np.linspace(-1.0, 1.0, size)[:, None] if size > 1 else np.zeros((1, 1))
    else:
        places = np.linspace(0.0, 1.0, _FINE)
        steps = np.linalg.norm(np.diff(_sphere(places, dimensions), axis=0), axis=1)
        length = np.append(0.0, np.cumsum(steps))
        even = np.interp(np.linspace(0.0, length[-1], size), length, places)
        points = _sphere(even, dimensions)
    points.setflags(write=False)
    return points


def _sphere(places: Floats, dimensions: int) -> Floats:
    """Cosines of 1, 2, 3, ... half turns between places 0 and 1, scaled to the sphere."""
    waves = np.cos(np.pi * np.outer(places, np.arange(1, dimensions + 1)))
    found: Floats = waves * (dimensions**0.5 / np.linalg.norm(waves, axis=1, keepdims=True))
    return found


def sphere_codes_of(layout: Layout, settings: SphereCodeSettings) -> SphereCodes:
    """Where the codes of categoricals are in a latent row; no code is computed."""
    found, start = [], 0
    for b in layout.blocks:
        size = 1 if b.kind == "number" else settings.dimensions(b.size)
        if b.kind == "categorical":
            found.append(SphereCode(start, size, b.size))
        start += size
    return tuple(found)


class _Tables(eqx.Module):
    """Codes of every categorical, in the layout's order of blocks."""

    tables: tuple[Array, ...]
    latent: int = eqx.field(static=True)


class SphereCodeCoder(eqx.Module):
    """The coder of the blocks of a layout; `net` holds the codes."""

    net: _Tables
    layout: Layout = eqx.field(static=True)
    settings: SphereCodeSettings = eqx.field(static=True)

    @classmethod
    def of(cls, layout: Layout, settings: SphereCodeSettings) -> SphereCodeCoder:
        """The coder of these blocks."""
        codes = sphere_codes_of(layout, settings)
        tables = [curve(code.options, code.dimensions) for code in codes]
        latent = sum(code.dimensions for code in codes) + len(layout.numbers)
        return cls(
            _Tables(tuple(jnp.asarray(t, jnp.float32) for t in tables), latent), layout, settings
        )

    def _parts(self) -> list[tuple[Block, slice, Matrix | None]]:
        """Every block, its place in a latent row, and the codes of its options."""
        tables = iter(self.net.tables)
        parts: list[tuple[Block, slice, Matrix | None]] = []
        start = 0
        for b in self.layout.blocks:
            codes = None if b.kind == "number" else np.asarray(next(tables))
            size = 1 if codes is None else codes.shape[1]
            parts.append((b, slice(start, start + size), codes))
            start += size
        return parts

    @property
    def columns(self) -> tuple[str, ...]:
        """Which column each entry of a latent row stands for."""
        sizes = [(b.column, place.stop - place.start) for b, place, _ in self._parts()]
        return tuple(column for column, size in sizes for _ in range(size))

    @property
    def sphere_codes(self) -> SphereCodes:
        """Where the codes of categoricals are in a latent row."""
        return sphere_codes_of(self.layout, self.settings)

    def encode(self, X: Matrix) -> Matrix:
        """Latent rows, (n, latent) float32; NaN where a block is NaN."""
        Z = np.empty((len(X), self.net.latent), np.float32)
        for b, place, codes in self._parts():
            block = X[:, b.start : b.stop]
            Z[:, place] = block if codes is None else codes[np.nan_to_num(block).argmax(1)]
            Z[np.isnan(block).any(1), place] = np.nan
        return Z

    def decode(self, Z: Matrix, *, key: Array, numbers: str = "mean") -> Matrix:
        """Rows (n, width) of latent rows: each categorical's nearest code, one-hot.

        Nothing is drawn: `key` and `numbers` are for coders with heads, and not used here.
        """
        X = np.zeros((len(Z), self.layout.width), np.float32)
        for b, place, codes in self._parts():
            if codes is None:
                X[:, b.start] = Z[:, place.start]
                continue
            size = (codes**2).sum(1)
            for i in range(0, len(Z), _CHUNK):
                z = Z[i : i + _CHUNK, place]
                nearest = (size - 2 * z @ codes.T).argmin(1)
                X[i + np.arange(len(z)), b.start + nearest] = 1.0
        return X


@dataclass(frozen=True)
class Evidence:
    """What noisy sphere codes among a row's `count` numbers say of their options.

    Example:
        >>> evidence = Evidence(3, (SphereCode(1, 1, 2),))
        >>> found = evidence.alone(jnp.array([[9.0, 1.0, 9.0]]), jnp.array([[0.5]]))
        >>> [round(float(x), 2) for x in found[0]]
        [-1.91, 0.91]
    """

    count: int
    sphere_codes: SphereCodes

    @cached_property
    def options(self) -> Options:
        """Those of all codes, in their order."""
        return Options.of(s.options for s in self.sphere_codes)

    @cached_property
    def plain(self) -> npt.NDArray[np.int64]:
        """Which numbers are no part of a code."""
        taken = [range(s.start, s.start + s.dimensions) for s in self.sphere_codes]
        return np.setdiff1d(np.arange(self.count), np.concatenate([[], *taken]))

    def alone(self, x: Array, kept: Array) -> Array:
        """Logarithms of the options by their own noisy codes, (batch, options), up to a constant.

        Rows x are (batch, d), and `kept` is ᾱ_t, (batch, 1) or (), below 1.
        """
        near = jnp.sqrt(kept) * self._near(x)
        found: Array = (near - kept * self._norms) / (1.0 - kept)
        return found

    def likely(self, others: Array, x: Array, kept: Array) -> Array:
        """Log-probabilities of the options, (batch, options).

        `others` is the network's output for the other columns, alike.
        """
        return self.options.log_softmax(others + self.alone(x, kept))

    def expected(self, logs: Array) -> Array:
        """Mean codes under these log-probabilities, (batch, d); 0 at plain numbers."""
        return jnp.matmul(jnp.exp(logs), self._points.T, precision="highest")

    def truth(self, clean: Array) -> Array:
        """Which option each clean code is nearest to, one-hot, (batch, options)."""
        near = self._near(clean) - self._norms
        return near >= self.options.largest(near)[..., self.options.categorical]

    def _near(self, x: Array) -> Array:
        return jnp.matmul(x, self._points, precision="highest")

    @cached_property
    def _points(self) -> npt.NDArray[np.float32]:
        """(d, options), each option's code at its place, 0 elsewhere."""
        found = np.zeros((self.count, len(self.options.categorical)), np.float32)
        for j, s in enumerate(self.sphere_codes):
            own = curve(s.options, s.dimensions).T
            found[s.start : s.start + s.dimensions, self.options.categorical == j] = own
        return found

    @cached_property
    def _norms(self) -> npt.NDArray[np.float32]:
        norms: npt.NDArray[np.float32] = 0.5 * (self._points**2).sum(0)
        return norms
