"""Sphere codes: a coder of single columns that learns nothing from rows.

The construction is ours, and in none of the papers that the package follows. A categorical with K
options becomes one of K points on a sphere of about log2 K dimensions, in the options' order along
a curve that winds over it; a number stays as it is, and decoding takes the nearest point. It is the
coder of a latent diffusion whose latents hold everything about a row: diffusion of such points is
the "analog bits" of Chen, Zhang & Hinton 2023 with neighbours side by side, so the effect of one
count on another is smooth in both (decision 0024; with five options or fewer all points are about
as far from one another). The coder depends on the blocks alone. So it costs no privacy, it is the
same whoever holds the column, and how columns are split between parties changes nothing about a
latent row.

How a denoiser reads noisy codes is `denoiser.Evidence`.
"""

from __future__ import annotations

from functools import lru_cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from siloweave.models.nets import Array
from siloweave.models.settings import SphereCodeSettings
from siloweave.tables.arrays import Floats, Matrix
from siloweave.tables.features import Block, Layout, SphereCode, SphereCodes

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
