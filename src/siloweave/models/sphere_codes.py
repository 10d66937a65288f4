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
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from siloweave.models.nets import Array
from siloweave.models.settings import SphereCodeSettings
from siloweave.tables.arrays import Floats, Matrix
from siloweave.tables.features import Block, Layout, SphereCode, SphereCodes

# The curve's length is measured at so many places.
_FINE = 4001
_CHUNK = 8192  # rows decoded at once


@lru_cache(maxsize=256)
def curve(size: int, dimensions: int) -> Floats:
    """Return points evenly spaced along a curve over the sphere of radius sqrt(dimensions).

    They are (size, dimensions), in order, the same on every call, and read only; with one dimension
    they are evenly spaced numbers from -1 to 1.
    """
    if size == 1 and dimensions == 1:
        points = np.zeros((1, 1))
    elif dimensions == 1:
        points = np.linspace(-1.0, 1.0, size)[:, None]
    else:
        points = _evenly_spaced(size, dimensions)
    points.setflags(write=False)  # the cache hands out the same array
    return points


def _evenly_spaced(size: int, dimensions: int) -> Floats:
    """Return points of the curve between which its length is the same."""
    places = np.linspace(0.0, 1.0, _FINE)
    steps = np.diff(_sphere(places, dimensions), axis=0)
    lengths = np.append(0.0, np.cumsum(np.linalg.norm(steps, axis=1)))
    even_lengths = np.linspace(0.0, lengths[-1], size)
    even_places = np.interp(even_lengths, lengths, places)
    return _sphere(even_places, dimensions)


def _sphere(places: Floats, dimensions: int) -> Floats:
    """Return cosines of 1, 2, 3, ... half turns between places 0 and 1, scaled to the sphere."""
    frequencies = np.arange(1, dimensions + 1)
    waves = np.cos(np.pi * np.outer(places, frequencies))
    norms = np.linalg.norm(waves, axis=1, keepdims=True)
    points: Floats = waves * (dimensions**0.5 / norms)
    return points


def sphere_codes_of(layout: Layout, settings: SphereCodeSettings) -> SphereCodes:
    """Return the places of categoricals' codes in a latent row; no code is computed."""
    codes = []
    start = 0
    for block in layout.blocks:
        if block.kind == "number":
            start += 1
            continue
        dimensions = settings.dimensions(block.size)
        codes.append(SphereCode(start, dimensions, block.size))
        start += dimensions
    return tuple(codes)


class _Tables(eqx.Module):
    """The codes of every categorical, in the layout's order of blocks."""

    tables: tuple[Array, ...]
    latent: int = eqx.field(static=True)


class _Part(NamedTuple):
    """A block of a row, its place in a latent row, and its codes."""

    block: Block
    place: slice  # in a latent row
    codes: Matrix | None  # of its options, (options, dimensions); None for a number

    @property
    def dimensions(self) -> int:
        return int(self.place.stop - self.place.start)


class SphereCodeCoder(eqx.Module):
    """The coder of the blocks of a layout; `net` holds the codes."""

    net: _Tables
    layout: Layout = eqx.field(static=True)
    settings: SphereCodeSettings = eqx.field(static=True)

    @classmethod
    def of(cls, layout: Layout, settings: SphereCodeSettings) -> SphereCodeCoder:
        """Build the coder of these blocks."""
        codes = sphere_codes_of(layout, settings)
        points = [curve(code.options, code.dimensions) for code in codes]
        tables = tuple(jnp.asarray(table, jnp.float32) for table in points)
        latent = sum(code.dimensions for code in codes) + len(layout.numbers)
        return cls(_Tables(tables, latent), layout, settings)

    def _parts(self) -> list[_Part]:
        """Return every block, its place in a latent row, and the codes of its options."""
        tables = iter(self.net.tables)  # one for each categorical, in the blocks' order
        parts: list[_Part] = []
        start = 0
        for block in self.layout.blocks:
            codes = None
            dimensions = 1
            if block.kind == "categorical":
                codes = np.asarray(next(tables))
                dimensions = codes.shape[1]
            parts.append(_Part(block, slice(start, start + dimensions), codes))
            start += dimensions
        return parts

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that each entry of a latent row stands for."""
        columns: list[str] = []
        for part in self._parts():
            columns += [part.block.column] * part.dimensions
        return tuple(columns)

    @property
    def sphere_codes(self) -> SphereCodes:
        """The places of categoricals' codes in a latent row."""
        return sphere_codes_of(self.layout, self.settings)

    def encode(self, X: Matrix) -> Matrix:
        """Turn rows into latent rows, (n, latent) float32; NaN where a block is NaN."""
        Z = np.empty((len(X), self.net.latent), np.float32)
        for block, place, codes in self._parts():
            cells = X[:, block.start : block.stop]
            if codes is None:
                Z[:, place] = cells
            else:
                Z[:, place] = codes[np.nan_to_num(cells).argmax(1)]
            # argmax takes an open cell for some option.
            is_open = np.isnan(cells).any(1)
            Z[is_open, place] = np.nan
        return Z

    def decode(self, Z: Matrix, *, key: Array, numbers: str = "mean") -> Matrix:
        """Turn latent rows into rows (n, width), with each categorical's nearest code one-hot.

        Nothing is drawn: `key` and `numbers` are for coders with heads, and not used here.
        """
        X = np.zeros((len(Z), self.layout.width), np.float32)
        for block, place, codes in self._parts():
            if codes is None:
                X[:, block.start] = Z[:, place.start]
                continue
            # |z - c|^2 is smallest where |c|^2 - 2 z c is.
            squares = (codes**2).sum(1)
            for start in range(0, len(Z), _CHUNK):
                z = Z[start : start + _CHUNK, place]
                nearest = (squares - 2 * z @ codes.T).argmin(1)
                rows = start + np.arange(len(z))
                X[rows, block.start + nearest] = 1.0
        return X
