"""Clipped per-row gradients as factors of matrix products, after one backward pass.

A model's dense layers are replaced by tapped ones for the time of a call. A tap is a zero added to
a layer's output; the gradient with respect to it is the loss's gradient there. Rows are mapped, so
taps and inputs of a row depend on nothing but that row, the model and the row's key.

A layer may be called backwards too, `layer.transposed(d)` for d W^T, as a critic's penalty needs it
that writes slopes out. The gradient for W is again an outer product, of the gradient at the output
and of d, so such a call is one more among the layer's calls, of which the bias is no part.

**Guarantee**: see `siloweave.privacy.exact_sums`, which multiplies and adds. Norms are computed
with a margin of 0.01 percent above what rounding can hide, so no clipped gradient is longer than
`clip`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from siloweave.errors import InputError

__all__ = ["Factors", "factors"]

Array = jax.Array
_Loss = Callable[[Any, Any, Array], Array]
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
                f"clipped sums: layer = {layer.__name__}, but the model has no such layer. Give "
                "the type of its dense layers."
            )
        for found in self.dense:
            known = 1 if found.bias is None else 2
            if len(jax.tree.leaves(eqx.filter(found, eqx.is_inexact_array))) != known:
                raise InputError(
                    f"clipped sums: a {layer.__name__} holds more arrays than weight and bias; "
                    "book-keeping would miss them. Use layers that hold nothing else."
                )

    def tapped(self, rest: Sequence[Any], calls: list[_Call], taps: Any) -> Any:
        """The model with tapped layers and other arrays as given."""
        leaves = list(self.leaves)
        for number, place in enumerate(self.places):
            leaves[place] = _Tapped(self.leaves[place], number, calls, taps)
        for place, value in zip(self.others, rest, strict=True):
            leaves[place] = value
        return jax.tree.unflatten(self.structure, leaves)


class Factors(NamedTuple):
    """Every row's gradient, not multiplied out, and what it is scaled with.

    Attributes:
        dense: Per dense layer its inputs, (batch, calls, fan_in), and the gradients at its outputs,
            (batch, calls, fan_out); the gradient of a row is the product, summed over calls. Where
            there is a bias it has the last place of the inputs: 1, or 0 in a call backwards.
        rest: Of all other arrays a gradient per row.
        scale: (batch,), at most 1 and such that no row's gradient is longer than the clip; 0 for
            rows that do not count.
        norms: (batch,), of every row's gradient before clipping; an upper bound within 0.01
            percent. 0 for rows that do not count.
    """

    dense: list[tuple[Array, Array]]
    rest: list[Array]
    scale: Array
    norms: Array


def factors(
    loss: _Loss, model: Any, rows: Any, mask: Array, *, clip: float | Array, key: Array, layer: Any
) -> Factors:
    """What the clipped sum is made of.

    Args:
        loss: Loss of one row, a number.
        model: A pytree; its floating point arrays are trained.
        rows: A pytree of arrays with equal leading axis.
        mask: (batch,), which rows count.
        clip: Largest norm of a row's gradient, > 0.
        key: The i-th row gets the i-th of its children.
        layer: Type of dense layers, called with (..., fan_in), with attributes `weight` (fan_in,
            fan_out) and `bias` (fan_out,) or None; or `equinox.nn.Linear`. Calls backwards,
            `layer.transposed(d)` for d W^T, are calls like any other.

    Raises:
        InputError: The model has no such layer, or a loss runs one where book-keeping cannot
            follow.
    """
    parts = _Parts(model, layer)
    keys = jax.random.split(key, mask.shape[0])

    def one(taps: Any, rest: Any, row: Any, key: Array) -> tuple[Array, Any]:
        calls: list[_Call] = []
        value = loss(parts.tapped(rest, calls, taps), row, key)
        return value, [call.inputs for call in calls]

    def backward(row: Any, key: Array) -> Any:
        return jax.grad(one, argnums=(0, 1), has_aux=True)(taps, parts.rest, row, key)

    used, shapes = _calls(loss, parts, rows, keys)
    taps = [jnp.zeros(shape) for shape in shapes]
    try:
        (deltas, rest), inputs = jax.vmap(backward)(rows, keys)
    except jax.errors.UnexpectedTracerError as error:
        raise _nested() from error
    gathered = [_gather(i, used, inputs, deltas, x) for i, x in enumerate(parts.dense)]
    squares = [*(_square(x, d) for x, d in gathered), *(_flat(x) for x in rest)]
    norms, scale = _scale(sum(squares), mask, clip)
    return Factors(gathered, list(rest), scale, norms)


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
        "clipped sums: a dense layer runs inside another gradient or loop of the loss (a gradient "
        "penalty?), where book-keeping cannot follow. Write the inner gradient out in calls of the "
        "layers, as models.critic.layered_losses does."
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
