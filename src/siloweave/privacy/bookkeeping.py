"""Sums of clipped per-row gradients: one backward pass and matrix products, or a gradient per row.

A model's dense layers are replaced by tapped ones for the time of a call. A tap is a zero added to
a layer's output; the gradient with respect to it is the loss's gradient there. Rows are mapped, so
taps and inputs of a row depend on nothing but that row, the model and the row's key.

A layer may be called backwards too, `layer.transposed(d)` for d W^T, as a critic's penalty needs it
that writes slopes out. The gradient for W is again an outer product, of the gradient at the output
and of d, so such a call is one more among the layer's calls, of which the bias is no part.

**Guarantee**: see `siloweave.privacy.gradients`. Norms are computed with a margin of 0.01 percent
above what rounding can hide, so no clipped gradient is longer than `clip`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from siloweave.errors import InputError

__all__ = ["Factors", "bookkept", "factors", "plain"]

Array = jax.Array
_Loss = Callable[[Any, Any, Array], Array]
_Result = tuple[Any, Array, Array]
_MARGIN = 1e-4  # relative, of squared norms; far above float32's rounding of sums of squares
_TINY = 1.2e-38  # squares below it are lost; every number is taken for at least its root


class _Call(NamedTuple):
    """One use of a dense layer while a row passes."""

    layer: int
    inputs: Array  # (..., fan_in), or (..., fan_out) of a call backwards
    shape: tuple[int, ...]  # of the output
    back: bool


class _Tapped:
    """Stands in for a dense layer, adds the next tap, and keeps what went in."""

    def __init__(self, layer: Any, index: int, calls: list[_Call], taps: Any) -> None:
        self._layer, self._index, self._calls, self._taps = layer, index, calls, taps

    @property
    def weight(self) -> Any:
        """Shape and type only: arithmetic with it would escape the clip, and fails."""
        return jax.eval_shape(lambda: self._layer.weight)

    @property
    def bias(self) -> Any:
        return jax.eval_shape(lambda: self._layer.bias)

    def __call__(self, x: Array, *_: Any, **__: Any) -> Array:
        return self._noted(x, self._layer(x), back=False)

    def transposed(self, d: Array) -> Array:
        return self._noted(d, self._layer.transposed(d), back=True)

    def _noted(self, inputs: Array, output: Array, *, back: bool) -> Array:
        self._calls.append(_Call(self._index, inputs, output.shape, back))
        return output if self._taps is None else output + self._taps[len(self._calls) - 1]


class _Parts:
    """A model as its dense layers and the other arrays that are trained."""

    def __init__(self, model: Any, layer: type) -> None:
        leaves, self.structure = jax.tree.flatten(model, is_leaf=lambda x: isinstance(x, layer))
        self.leaves = leaves
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, layer)]
        self.others = [i for i, x in enumerate(leaves) if eqx.is_inexact_array(x)]
        self.dense = [leaves[i] for i in self.places]
        self.rest = [leaves[i] for i in self.others]
        if not self.dense:
            raise InputError(
                f"clipped_sum: layer = {layer.__name__}, but the model has no such layer. Give "
                "the type of its dense layers, or None."
            )
        for found in self.dense:
            known = 1 if found.bias is None else 2
            if len(jax.tree.leaves(eqx.filter(found, eqx.is_inexact_array))) != known:
                raise InputError(
                    f"clipped_sum: a {layer.__name__} holds more arrays than weight and bias; "
                    "book-keeping would miss them. Use layer=None."
                )

    def tapped(self, rest: Sequence[Any], calls: list[_Call], taps: Any) -> Any:
        """The model with tapped layers and other arrays as given."""
        leaves = list(self.leaves)
        for number, place in enumerate(self.places):
            leaves[place] = _Tapped(self.leaves[place], number, calls, taps)
        for place, value in zip(self.others, rest, strict=True):
            leaves[place] = value
        return jax.tree.unflatten(self.structure, leaves)

    def gradient(self, dense: Sequence[Any], rest: Sequence[Any]) -> Any:
        """A tree shaped as the model, None where nothing is trained."""
        leaves: list[Any] = [None] * len(self.leaves)
        for place, value in zip([*self.places, *self.others], [*dense, *rest], strict=True):
            leaves[place] = value
        return jax.tree.unflatten(self.structure, leaves)


def bookkept(
    loss: _Loss, model: Any, rows: Any, mask: Array, *, clip: float | Array, key: Array, layer: Any
) -> _Result:
    """Clipped sum, losses and norms, without a gradient per row for dense layers."""
    found = factors(loss, model, rows, mask, clip=clip, key=key, layer=layer)
    parts, scale = _Parts(model, layer), found.scale
    gathered = zip(found.dense, parts.dense, strict=True)
    dense = [_sum(x, d, scale, layer) for (x, d), layer in gathered]
    return parts.gradient(dense, [_weighted(x, scale) for x in found.rest]), *found.told


class Factors(NamedTuple):
    """Every row's gradient, not multiplied out, and what it is scaled with.

    Attributes:
        dense: Per dense layer its inputs, (batch, calls, fan_in), and the gradients at its outputs,
            (batch, calls, fan_out); the gradient of a row is the product, summed over calls. Where
            there is a bias it has the last place of the inputs: 1, or 0 in a call backwards.
        rest: Of all other arrays a gradient per row.
        scale: (batch,), at most 1 and such that no row's gradient is longer than the clip; 0 for
            rows that do not count.
        told: Losses and norms, as `bookkept` gives them.
    """

    dense: list[tuple[Array, Array]]
    rest: list[Array]
    scale: Array
    told: tuple[Array, Array]


def factors(
    loss: _Loss, model: Any, rows: Any, mask: Array, *, clip: float | Array, key: Array, layer: Any
) -> Factors:
    """What the clipped sum is made of; the arguments are those of `clipped_sum`."""
    parts = _Parts(model, layer)
    keys = jax.random.split(key, mask.shape[0])

    def one(taps: Any, rest: Any, row: Any, key: Array) -> tuple[Array, Any]:
        calls: list[_Call] = []
        value = loss(parts.tapped(rest, calls, taps), row, key)
        return value, (value, [call.inputs for call in calls])

    def backward(row: Any, key: Array) -> Any:
        return jax.grad(one, argnums=(0, 1), has_aux=True)(taps, parts.rest, row, key)

    used, shapes = _calls(loss, parts, rows, keys)
    taps = [jnp.zeros(shape) for shape in shapes]
    try:
        (deltas, rest), (losses, inputs) = jax.vmap(backward)(rows, keys)
    except jax.errors.UnexpectedTracerError as error:
        raise _nested() from error
    gathered = [_gather(i, used, inputs, deltas, x) for i, x in enumerate(parts.dense)]
    squares = [*(_square(x, d) for x, d in gathered), *(_flat(x) for x in rest)]
    norms, scale = _scale(sum(squares), mask, clip)
    return Factors(gathered, list(rest), scale, (losses, norms))


def plain(
    loss: _Loss,
    model: Any,
    rows: Any,
    mask: Array,
    *,
    clip: float | Array,
    key: Array,
    layer: Any = None,
) -> _Result:
    """The same from a gradient per row: batch times parameters in memory."""
    keys = jax.random.split(key, mask.shape[0])
    trained, static = eqx.partition(model, eqx.is_inexact_array)

    def one(trained: Any, row: Any, key: Array) -> Array:
        return loss(eqx.combine(trained, static), row, key)

    losses, gradients = jax.vmap(jax.value_and_grad(one), in_axes=(None, 0, 0))(trained, rows, keys)
    squares = sum(_flat(x) for x in jax.tree.leaves(gradients))
    norms, scale = _scale(squares, mask, clip)
    return jax.tree.map(lambda x: _weighted(x, scale), gradients), losses, norms


def _calls(
    loss: _Loss, parts: _Parts, rows: Any, keys: Array
) -> tuple[list[tuple[int, bool]], list[tuple[int, ...]]]:
    """Which layers run for a row, in order, whether backwards, and the shapes of their outputs."""
    calls: list[_Call] = []

    def trace(row: Any, key: Array) -> Array:
        return loss(parts.tapped(parts.rest, calls, None), row, key)

    value = jax.eval_shape(trace, *jax.tree.map(lambda x: x[0], (rows, keys)))
    if value.shape != ():
        raise InputError(f"loss: gives shape {value.shape} for one row; it must be one number.")
    return [(call.layer, call.back) for call in calls], [call.shape for call in calls]


def _nested() -> InputError:
    return InputError(
        "clipped_sum: a dense layer runs inside another gradient or loop of the loss (a gradient "
        "penalty?), where book-keeping cannot follow. Use layer=None."
    )


def _gather(
    index: int, used: list[tuple[int, bool]], inputs: Any, deltas: Any, layer: Any
) -> tuple[Array, Array]:
    """All calls of a layer, as `Factors` has them."""
    mine = [(i, back) for i, (number, back) in enumerate(used) if number == index]
    biased = layer.bias is not None
    if not mine:  # it never ran: its gradient is 0
        fan_in, fan_out = layer.weight.shape[:: -1 if isinstance(layer, eqx.nn.Linear) else 1]
        batch = jax.tree.leaves(deltas)[0].shape[0] if deltas else 1
        return jnp.zeros((batch, 1, fan_in + biased)), jnp.zeros((batch, 1, fan_out))
    xs, ds = [], []
    for i, back in mine:
        x, d = (y.reshape(y.shape[0], -1, y.shape[-1]) for y in (inputs[i], deltas[i]))
        x, d = (d, x) if back else (x, d)
        xs.append(jnp.pad(x, ((0, 0), (0, 0), (0, int(biased))), constant_values=float(not back)))
        ds.append(d)
    return jnp.concatenate(xs, 1), jnp.concatenate(ds, 1)


def _square(x: Array, d: Array) -> Array:
    """(batch,), squared norms of the layer's gradients, or a little above."""
    energy_x = jnp.sum(x * x, -1) + _TINY * x.shape[-1]  # (batch, calls)
    energy_d = jnp.sum(d * d, -1) + _TINY * d.shape[-1]
    if x.shape[1] == 1:
        return (energy_d * energy_x)[:, 0]
    between = jnp.einsum("bti,bsi->bts", x, x, precision="highest")
    deltas = jnp.einsum("bto,bso->bts", d, d, precision="highest")
    slack = energy_x.sum(1) * energy_d.sum(1)  # what cancels may hide rounding of this size
    return jnp.maximum(jnp.sum(between * deltas, (1, 2)), 0.0) + _MARGIN * slack


def _flat(x: Array) -> Array:
    return jnp.sum(x.reshape(x.shape[0], -1) ** 2, -1) + _TINY * (x.size // x.shape[0])


def _scale(squares: Any, mask: Array, clip: float | Array) -> tuple[Array, Array]:
    """Norms, and what every row's gradient is multiplied with; 0 for a row that does not count."""
    norms = jnp.sqrt(squares * (1 + _MARGIN))
    good = mask & jnp.isfinite(norms)
    scale = jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-30))
    return jnp.where(good, norms, 0.0), jnp.where(good, scale, 0.0)


def _weighted(x: Array, scale: Array) -> Array:
    """Sum over rows of scaled arrays; what is not finite has scale 0 and counts 0."""
    wide = scale.reshape(-1, *[1] * (x.ndim - 1))
    total: Array = jnp.tensordot(scale, jnp.where(wide > 0, x, 0.0), 1, precision="highest")
    return total


def _sum(x: Array, d: Array, scale: Array, layer: Any) -> Any:
    """The layer's part of the clipped sum, as a layer."""
    wide = scale[:, None, None]
    d = jnp.where(wide > 0, d, 0.0) * wide
    x = jnp.where(wide > 0, x, 0.0)
    flat_x, flat_d = x.reshape(-1, x.shape[-1]), d.reshape(-1, d.shape[-1])
    whole = jnp.matmul(flat_x.T, flat_d, precision="highest")
    weight = whole if layer.bias is None else whole[:-1]
    if isinstance(layer, eqx.nn.Linear):
        weight = weight.T
    empty = eqx.filter(layer, eqx.is_inexact_array)
    filled = eqx.tree_at(lambda part: part.weight, empty, weight)
    return filled if layer.bias is None else eqx.tree_at(lambda part: part.bias, filled, whole[-1])
