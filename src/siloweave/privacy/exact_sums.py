"""One step's clipped sum at a party: Poisson sampling from entropy, and a sum in 64-bit floats.

Goodfellow 2015 and Bu, Wang, Zha and Karypis 2023, as in `siloweave.privacy.gradients`: the clipped
sum of a dense layer is one matrix product of what the backward pass left behind. Here that product
is taken in 64-bit floats, so that the order of rows and the size of a batch leave no trace above
the margin of `shared_steps.moved`.

**Guarantee**: see `drawn` and `summed`; nothing here is private before noise is added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from siloweave.privacy.bookkeeping import Factors, factors
from siloweave.privacy.mechanisms import Entropy

__all__ = ["CHUNK", "drawn", "flat_size", "summed", "unflattened"]

Array = jax.Array
Floats = NDArray[np.float64]

CHUNK = 256  # rows of a compiled program; larger batches take several turns


def drawn(rows: int, rate: float, *, entropy: Entropy) -> NDArray[np.int64]:
    """Which rows are in a step: each by a coin of its own.

    Args:
        rows: How many there are.
        rate: Probability of each, in (0, 1].
        entropy: The party's own.

    **Guarantee**: exact Poisson sampling at `rate` rounded down to a multiple of 2^-64.

    Example:
        >>> from siloweave.privacy import OSEntropy
        >>> drawn(3, 1.0, entropy=OSEntropy()).tolist()
        [0, 1, 2]
    """
    if rate >= 1:
        return np.arange(rows)
    words = np.frombuffer(entropy.bytes(8 * rows), dtype="<u8")
    return np.flatnonzero(words < np.uint64(int(rate * 2.0**64)))


def flat_size(model: Any) -> int:
    """How many numbers of a model are trained."""
    return sum(x.size for x in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


def unflattened(flat: Floats, model: Any) -> Any:
    """A gradient in the order of `summed`, as a tree shaped as the model; float32."""
    leaves, structure = jax.tree.flatten(eqx.filter(model, eqx.is_inexact_array))
    pieces = np.split(flat.astype(np.float32), np.cumsum([x.size for x in leaves])[:-1])
    shaped = [jnp.asarray(x.reshape(y.shape)) for x, y in zip(pieces, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def summed(
    loss: Callable[[Any, Any, Array], Array],
    model: Any,
    rows: Any,
    picked: NDArray[np.int64],
    *,
    clip: float,
    layer: type,
    entropy: Entropy,
) -> Floats:
    """The sum of the clipped gradients of the rows that were drawn.

    Args:
        loss: Of one row, `loss(model, row, key)`; one that is equal from call to call is compiled
            once.
        model: A pytree; its floating point arrays are trained.
        rows: All rows, a pytree of arrays with equal leading axis.
        picked: Places of those that were drawn; may be empty.
        clip: Largest norm of a row's gradient, over all parameters together.
        layer: Type of dense layers.
        entropy: The party's own: what a row's loss draws comes from it.

    Returns:
        (size,) float64, the leaves of the model in order.

    **Guarantee**: adding or removing one row of `picked` moves the sum by at most `clip` in L2, up
    to the arithmetic that `shared_steps.moved` adds. A row whose gradient is not finite counts
    nothing, so the sum is finite.
    """
    total = np.zeros(flat_size(model))
    for start in range(0, len(picked), CHUNK):
        part = picked[start : start + CHUNK]
        places = np.zeros(CHUNK, np.int32)
        places[: len(part)] = part
        words = np.frombuffer(entropy.bytes(8), dtype="<u4")
        key = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
        found = _found(loss, model, rows, places, len(part), jnp.float32(clip), key, layer)
        total += _multiplied(found, model, layer)
    return total


@eqx.filter_jit
def _compiled(
    loss: Any, model: Any, rows: Any, mask: Array, clip: Array, key: Array, layer: type
) -> Factors:
    return factors(loss, model, rows, mask, clip=clip, key=key, layer=layer)


def _found(
    loss: Any, model: Any, rows: Any, places: Any, count: int, clip: Array, key: Array, layer: type
) -> Factors:
    taken = jax.tree.map(lambda x: np.asarray(x)[places], rows)
    mask = jnp.arange(CHUNK) < count
    done: Factors = _compiled(loss, model, taken, mask, clip, key, layer)
    return done


def _multiplied(found: Factors, model: Any, layer: type) -> Floats:
    """The clipped sum of a chunk, its leaves one after the other."""
    scale = np.asarray(found.scale, np.float64)
    nodes = jax.tree.leaves(model, is_leaf=lambda x: isinstance(x, layer))
    dense, rest = iter(found.dense), iter(found.rest)
    pieces: list[Floats] = []
    for node in nodes:
        if isinstance(node, layer):
            pieces += _product(*next(dense), scale, node)
        elif eqx.is_inexact_array(node):
            pieces.append(_weighted(next(rest), scale).ravel())
    return np.concatenate(pieces)


def _product(x: Array, d: Array, scale: Floats, node: Any) -> list[Floats]:
    """Of one dense layer, in the order of its own leaves."""
    inputs, slopes = (_kept(np.asarray(one, np.float64), scale) for one in (x, d))
    slopes = slopes * scale[:, None, None]
    whole = inputs.reshape(-1, inputs.shape[-1]).T @ slopes.reshape(-1, slopes.shape[-1])
    weight = whole if node.bias is None else whole[:-1]
    if isinstance(node, eqx.nn.Linear):
        weight = weight.T
    named = {id(node.weight): weight, id(node.bias): whole[-1]}
    return [named[id(leaf)].ravel() for leaf in jax.tree.leaves(node) if id(leaf) in named]


def _weighted(x: Array, scale: Floats) -> Floats:
    made: Floats = np.tensordot(scale, _kept(np.asarray(x, np.float64), scale), 1)
    return made


def _kept(x: Floats, scale: Floats) -> Floats:
    """What belongs to rows that count; 0 elsewhere, where it may be infinite."""
    wide = scale.reshape(-1, *[1] * (x.ndim - 1))
    return np.where(wide > 0, x, 0.0)
