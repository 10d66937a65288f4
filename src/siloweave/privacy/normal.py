"""Gaussian noise in 32-bit floats, from a jax key, with tails far enough out.

The usual generator of jax makes no number beyond 5.4 standard deviations. An output there would
tell a neighbour for sure, with a probability that many steps turn into more than delta. Here 64
random bits make one number, up to 9.2 standard deviations.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["add_normal", "normal", "threefry"]

Array = jax.Array

# Acklam's rational approximation of the inverse normal distribution (2003), relative error 1.2e-9.
_CENTRE = (
    (-39.69683028665376, 220.9460984245205, -275.9285104469687),
    (138.3577518672690, -30.66479806614716, 2.506628277459239),
)
_CENTRE_BELOW = (
    *(-54.47609879822406, 161.5858368580409, -155.6989798598866),
    *(66.80131188771972, -13.28068155288572, 1.0),
)
_TAIL = (
    *(-0.007784894002430293, -0.3223964580411365, -2.400758277161838),
    *(-2.549732539343734, 4.374664141464968, 2.938163982698783),
)
_TAIL_BELOW = (
    *(0.007784695709041462, 0.3224671290700398, 2.445134137142996),
    *(3.754408661907416, 1.0),
)
_SPLIT = 0.02425

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = value * x + c
    return value


def _lower(p: Array) -> Array:
    """The quantile of probabilities in (0, 1/2)."""
    q = p - 0.5
    r = q * q
    centre = q * _polynomial((*_CENTRE[0], *_CENTRE[1]), r) / _polynomial(_CENTRE_BELOW, r)
    t = jnp.sqrt(-2.0 * jnp.log(p))
    tail = _polynomial(_TAIL, t) / _polynomial(_TAIL_BELOW, t)
    return jnp.where(p < _SPLIT, tail, centre)


def threefry(key: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw 2011), written out.

    The compiler fuses it with what follows; jax's own keeps every fourth round in memory.

    Args:
        key: Two 32-bit words.
        first: 32-bit words of the counter.
        second: As many, or one for all.
    """
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    x, y = first + keys[0], second + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << rotation) | (y >> (32 - rotation)))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y


def normal(key: Array, shape: tuple[int, ...], stream: int = 0) -> Array:
    """Independent standard normal numbers, float32.

    Args:
        key: A jax key of the default kind (Threefry).
        shape: How many.
        stream: Calls with the same key and another stream share no number.

    **Guarantee**: approximate. 63 bits choose the quantile (the least probability is 2^-65, 9.2
    standard deviations) and one the sign; arithmetic is in 32-bit floats.

    Example:
        >>> normal(jax.random.key(0), (3,)).shape
        (3,)
    """
    size = math.prod(shape)
    counter = jax.lax.iota(jnp.uint32, size)
    high, low = threefry(jax.random.key_data(key), counter, jnp.uint32(stream))
    p = (high >> 1).astype(jnp.float32) * 2.0**-32 + (low.astype(jnp.float32) + 0.5) * 2.0**-64
    magnitude = _lower(jnp.minimum(p, 0.5))
    return jnp.where(high & 1 == 1, magnitude, -magnitude).reshape(shape)


def add_normal(tree: Any, deviation: float | Array, *, key: Array) -> Any:
    """Every number of a tree plus independent Gaussian noise.

    Args:
        tree: A pytree of float32 arrays.
        deviation: Standard deviation of the noise.
        key: Used for this call alone.

    **Guarantee**: that of `normal`; no two numbers share noise.
    """
    leaves, structure = jax.tree.flatten(tree)
    # One draw for all, and no fusion beyond it: a program for each leaf takes long to compile.
    fresh = normal(key, (sum(x.size for x in leaves),))
    drawn: Array = jax.lax.optimization_barrier(fresh)  # type: ignore[no-untyped-call]
    noisy, start = [], 0
    for leaf in leaves:
        part = jax.lax.slice(drawn, (start,), (start + leaf.size,)).reshape(leaf.shape)
        noisy.append(leaf + deviation * part)
        start += leaf.size
    return jax.tree.unflatten(structure, noisy)
