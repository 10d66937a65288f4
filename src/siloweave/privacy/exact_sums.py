"""One step's clipped sum at a party: Poisson sampling from entropy, and a sum in 64-bit floats.

DP-SGD (Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang, "Deep Learning with
Differential Privacy", 2016) without a gradient per row in memory. The gradient of one row for the
weight of a dense layer is the outer product of the layer's input and of the loss's gradient at the
layer's output, so its norm is the product of two norms (Goodfellow, "Efficient Per-Example Gradient
Computations", 2015), and the clipped sum is one matrix product of what the backward pass left
behind (book-keeping: Bu, Wang, Zha and Karypis, "Differentially Private Optimization on Large
Model at Small Cost", 2023). Here that product is taken in 64-bit floats, so that the order of rows
and the size of a batch leave no trace above the margin of `shared_steps.moved`.

A loss is a function of *one* row, `loss(model, row, key)`, and rows are mapped over it, so no row
can reach another row's gradient (batch normalisation and means over a batch cannot be written).

**Guarantee**: see `drawn` and `summed`; nothing here is private before noise is added. The noise is
that of `siloweave.privacy.mechanisms`, integers on the grid of `siloweave.privacy.shared_steps`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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

    **Guarantee**: adding or removing one row of `picked` moves the sum by at most `clip` in L2 over
    all parameters together, up to the arithmetic that `shared_steps.moved` adds. What is clipped is
    what is summed: both come from the same inputs and output gradients, so the bound holds even for
    a model that is differentiated wrongly. A row more moves others to other places of a batch, and
    what their losses draw goes by place: all draws come from the party's entropy, so they are alike
    for every place, and two neighbours can be told apart only by what one row adds. A row whose
    gradient is not finite counts nothing, so the sum is finite. No loss is returned.
    """
    total = np.zeros(flat_size(model))
    order = _order_of(model, layer)
    for start in range(0, len(picked), CHUNK):
        part = picked[start : start + CHUNK]
        places = np.zeros(CHUNK, np.int32)
        places[: len(part)] = part
        words = np.frombuffer(entropy.bytes(8), dtype="<u4")
        key = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
        found = _found(loss, model, rows, places, len(part), jnp.float32(clip), key, layer)
        with jax.enable_x64(True):  # for this thread, and these products alone
            total = _added(total, found.dense, found.rest, found.scale, order=order)
    return np.array(total)


@eqx.filter_jit
def _compiled(
    loss: Any, model: Any, rows: Any, mask: Array, clip: Array, key: Array, layer: type
) -> Factors:
    return factors(loss, model, rows, mask, clip=clip, key=key, layer=layer)


def _found(
    loss: Any, model: Any, rows: Any, places: Any, count: int, clip: Array, key: Array, layer: type
) -> Factors:
    taken = jax.tree.map(lambda x: np.asarray(x)[places], rows)
    mask = jnp.asarray(np.arange(CHUNK) < count)
    done: Factors = _compiled(loss, model, taken, mask, clip, key, layer)
    return done


class _Node(NamedTuple):
    """A dense layer, or an array outside of one, as the flat sum has it.

    Attributes:
        fields: Of a layer, in the order of its own leaves: "weight" and "bias". Empty for an array.
        turned: Whether the weight is (fan_out, fan_in).
    """

    fields: tuple[str, ...] = ()
    turned: bool = False


def _order_of(model: Any, layer: type) -> tuple[_Node, ...]:
    found = []
    for node in jax.tree.leaves(model, is_leaf=lambda x: isinstance(x, layer)):
        if isinstance(node, layer):
            names = {id(getattr(node, name, None)): name for name in ("weight", "bias")}
            own = tuple(names[id(leaf)] for leaf in jax.tree.leaves(node) if id(leaf) in names)
            found.append(_Node(own, isinstance(node, eqx.nn.Linear)))
        elif eqx.is_inexact_array(node):
            found.append(_Node())
    return tuple(found)


@partial(jax.jit, static_argnames="order")
def _added(total: Array, dense: Any, rest: Any, scale: Array, *, order: tuple[_Node, ...]) -> Array:
    """The sum so far and the clipped sum of a chunk, its leaves one after the other; 64-bit."""
    layers, arrays = iter(dense), iter(rest)
    pieces: list[Array] = []
    for node in order:
        if node.fields:
            made = _product(next(layers), scale, node)
            pieces += [made[name].ravel() for name in node.fields]
        else:
            pieces.append(jnp.tensordot(_wide(scale), _kept(next(arrays), scale), 1).ravel())
    return total + jnp.concatenate(pieces)


def _product(found: tuple[Array, Array], scale: Array, node: _Node) -> dict[str, Array]:
    """Of one dense layer."""
    x, d = found
    inputs, slopes = _kept(x, scale), _kept(d, scale) * _wide(scale)[:, None, None]
    flat_x, flat_d = (one.reshape(-1, one.shape[-1]) for one in (inputs, slopes))
    whole = jnp.matmul(flat_x.T, flat_d, precision="highest")
    weight = whole[:-1] if "bias" in node.fields else whole
    return {"weight": weight.T if node.turned else weight, "bias": whole[-1]}


def _wide(x: Array) -> Array:
    return x.astype(jnp.float64)


def _kept(x: Array, scale: Array) -> Array:
    """What belongs to rows that count, in 64 bits; 0 elsewhere, where it may be infinite."""
    return jnp.where(scale.reshape(-1, *[1] * (x.ndim - 1)) > 0, _wide(x), 0.0)
