"""Clipped sums of gradients of rows or persons: Poisson samples, book-kept norms, 64-bit sums.

DP-SGD (Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang, "Deep Learning with
Differential Privacy", 2016) without a gradient per row in memory. The gradient of one row for the
weight of a dense layer is the outer product of the layer's input and of the loss's gradient at the
layer's output, so its norm is the product of two norms (Goodfellow, "Efficient Per-Example Gradient
Computations", 2015), and the clipped sum is one matrix product of what the backward pass left
behind (book-keeping: Bu, Wang, Zha and Karypis, "Differentially Private Optimization on Large
Model at Small Cost", 2023). That product is taken in 64-bit floats, so that the order of rows and
the size of a batch leave no trace above the margin of `shared_steps.moved`.

For the time of a call the dense layers are replaced by tapped ones. A tap is a zero added to a
layer's output; the gradient with respect to it is the loss's gradient there. A loss is a function
of *one* row, `loss(model, row, key)`, and rows are mapped over it, so taps and inputs of a row
depend on nothing but that row, the model and the row's key, and no row can reach another row's
gradient (batch normalisation and means over a batch cannot be written). A layer may be called
backwards too, `layer.transposed(d)` for d W^T, as a critic's penalty needs it that writes slopes
out: the gradient for W is again an outer product, of the gradient at the output and of d.

What is drawn and clipped is a *unit*: a row, or a person with at most k rows. A person's gradient
is the sum of her rows' gradients (McMahan, Ramage, Talwar and Zhang, "Learning Differentially
Private Recurrent Language Models", 2018, for whole persons as examples). For a dense layer it is
sum_r a_r b_r^T, whose squared norm is sum_{r,s} (a_r . a_s)(b_r . b_s): the same book-keeping as of
a layer that is called several times for one row, so a person's rows are counted as further calls.
Batches are units times k rows, padded; a padded row has inputs and gradients of 0.

**Guarantee**: see `drawn` and `summed`. Norms are computed with a margin of 0.01 percent above what
rounding can hide, so no clipped gradient is longer than `clip`. Nothing here is private before
noise is added: that of `siloweave.privacy.mechanisms`, integers on the grid of
`siloweave.privacy.shared_steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.privacy.mechanisms import Entropy

Array = jax.Array
Floats = NDArray[np.float64]
_Loss = Callable[[Any, Any, Array], Array]

CHUNK = 256  # rows of a compiled program; larger batches take several turns
_MARGIN = 1e-4  # relative, of squared norms; far above float32's rounding of sums of squares
_LOST = 2.0**-23  # relative, what a sum of floats may lose with each number that it adds up
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
    """Every unit's gradient, not multiplied out, and what it is scaled with.

    Attributes:
        dense: Per dense layer its inputs, (units, calls, fan_in), and the gradients at its outputs,
            (units, calls, fan_out); the gradient of a unit is the product, summed over calls, those
            of all its rows. Where there is a bias it has the last place of the inputs: 1, or 0 in a
            call backwards.
        rest: Of all other arrays a gradient per unit.
        scale: (units,), at most 1 and such that no unit's gradient is longer than the clip; 0 for
            units that do not count.
        norms: (units,), of every unit's gradient before clipping; an upper bound, for single rows
            within 0.01 percent. 0 for units that do not count.
    """

    dense: list[tuple[Array, Array]]
    rest: list[Array]
    scale: Array
    norms: Array


def factors(
    loss: _Loss, model: Any, rows: Any, mask: Array, *, clip: float | Array, key: Array, layer: Any,
    rows_per_unit: int = 1,
) -> Factors:  # fmt: skip
    """What the clipped sum is made of.

    Args:
        loss: Loss of one row, a number.
        model: A pytree; its floating point arrays are trained.
        rows: A pytree of arrays with equal leading axis, a unit's rows one after the other.
        mask: (batch,), which rows count.
        clip: Largest norm of a unit's gradient, > 0.
        key: The i-th row gets the i-th of its children.
        layer: Type of dense layers, called with (..., fan_in), with attributes `weight` (fan_in,
            fan_out) and `bias` (fan_out,) or None; or `equinox.nn.Linear`. Calls backwards,
            `layer.transposed(d)` for d W^T, are calls like any other.
        rows_per_unit: How many neighbouring rows are one unit's; a divisor of the batch.

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
        raise InputError(
            "clipped sums: a dense layer runs inside another gradient or loop of the loss (a "
            "gradient penalty?), where book-keeping cannot follow. Write the inner gradient out in "
            "calls of the layers, as models.gan_networks.layered_losses does."
        ) from error
    gathered = [_gather(i, used, inputs, deltas, x) for i, x in enumerate(parts.dense)]
    others = list(rest)
    if rows_per_unit > 1:
        gathered = [
            (_together(x, mask, rows_per_unit), _together(d, mask, rows_per_unit))
            for x, d in gathered
        ]
        others = [_added_up(x, mask, rows_per_unit) for x in others]
        mask = mask.reshape(-1, rows_per_unit).any(axis=1)
    squares = [*(_square(x, d) for x, d in gathered), *(_flat(x) for x in others)]
    norms, scale = _scale(sum(squares), mask, clip)
    return Factors(gathered, others, scale, norms)


def _together(x: Array, mask: Array, rows: int) -> Array:
    """Calls of a unit's rows as calls of the unit; 0 for rows that do not count."""
    counted = jnp.where(mask[:, None, None], x, 0.0)
    batch, calls, width = counted.shape
    return counted.reshape(batch // rows, rows * calls, width)


def _added_up(x: Array, mask: Array, rows: int) -> Array:
    """The sum of a unit's rows' gradients for an array outside of dense layers."""
    counted = jnp.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0)
    return counted.reshape(-1, rows, *x.shape[1:]).sum(axis=1)


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
    """(units,), squared norms of the layer's gradients, or a little above."""
    energy_x = jnp.sum(x * x, -1) + _TINY * x.shape[-1]  # (units, calls)
    energy_d = jnp.sum(d * d, -1) + _TINY * d.shape[-1]
    if x.shape[1] == 1:
        return (energy_d * energy_x)[:, 0]
    between = jnp.einsum("bti,bsi->bts", x, x, precision="highest")
    deltas = jnp.einsum("bto,bso->bts", d, d, precision="highest")
    slack = energy_x.sum(1) * energy_d.sum(1)  # what cancels may hide rounding of this size
    # As many products as pairs of calls are added up, so many calls need a wider margin.
    margin = max(_MARGIN, _LOST * x.shape[1] ** 2)
    return jnp.maximum(jnp.sum(between * deltas, (1, 2)), 0.0) + margin * slack


def _flat(x: Array) -> Array:
    return jnp.sum(x.reshape(x.shape[0], -1) ** 2, -1) + _TINY * (x.size // x.shape[0])


def _scale(squares: Any, mask: Array, clip: float | Array) -> tuple[Array, Array]:
    """Norms, and what every unit's gradient is multiplied with; 0 for one that does not count."""
    norms = jnp.sqrt(squares * (1 + _MARGIN))
    good = mask & jnp.isfinite(norms)
    scale = jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-30))
    return jnp.where(good, norms, 0.0), jnp.where(good, scale, 0.0)


def drawn(units: int, rate: float, *, entropy: Entropy) -> NDArray[np.int64]:
    """Draw which units, rows or persons, are in a step: each by a coin of its own.

    **Guarantee**: exact Poisson sampling at `rate` rounded down to a multiple of 2^-64. Where a
    unit is a person, all her rows come with one coin.
    """
    if rate >= 1:
        return np.arange(units)
    words = np.frombuffer(entropy.bytes(8 * units), dtype="<u8")
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
    loss: _Loss,
    model: Any,
    rows: Any,
    picked: NDArray[np.int64],
    *,
    clip: float,
    layer: type,
    entropy: Entropy,
) -> Floats:
    """Add up the clipped gradients of the units that were drawn.

    Args:
        loss: Of one row, `loss(model, row, key)`; one that is equal from call to call is compiled
            once.
        model: A pytree; its floating point arrays are trained.
        rows: All rows, a pytree of arrays with equal leading axis.
        picked: Places of the rows of those that were drawn; may be empty. (units,) where a unit is
            a row; (units, k) where it is a person with at most k rows, -1 after her last one. No
            row is named twice.
        clip: Largest norm of a unit's gradient, over all parameters together.
        layer: Type of dense layers.
        entropy: The party's own: what a row's loss draws comes from it.

    Returns:
        (size,) float64, the leaves of the model in order.

    **Guarantee**: adding or removing one unit of `picked`, a row or a person with all her rows,
    moves the sum by at most `clip` in L2 over all parameters together, up to the arithmetic that
    `shared_steps.moved` adds. Let G be the sum over her rows r and their calls t of x_rt d_rt^T,
    layer by layer, and s her scale: she adds s G, and abs(s G) <= clip since s <= clip / N with N
    at least abs(G). N^2 is the sum over pairs of calls of (x . x')(d . d') plus a margin of (sum
    abs(x)^2)(sum abs(d)^2), which by Cauchy and Schwarz is at least the sum of the absolute values
    of all these products, so that it covers their rounding also where they cancel. A padded row's
    x and d are 0 in N and in G. Inputs and gradients of one row depend on that row, the model and
    the row's key, so no other unit's term changes. That holds for any number of rows that a unit
    has: k bounds the memory of a step, and the clip bounds what a person adds, once and not k
    times over.
    What is clipped is what is summed: both come from the same inputs and output gradients, so the
    bound holds even for a model that is differentiated wrongly. A unit more moves others to other
    places of a batch, and what their losses draw goes by place: all draws come from the party's
    entropy, so they are alike for every place, and two neighbours differ only by what one unit
    adds. A unit with a row whose gradient is not finite counts nothing, so the sum is finite. No
    loss is returned.
    """
    total = np.zeros(flat_size(model))
    order = _order_of(model, layer)
    members = np.atleast_2d(picked.T).T  # (units, k), of which k is 1 for single rows
    rows_per_unit = members.shape[1]
    units_per_chunk = max(1, CHUNK // rows_per_unit)
    for start in range(0, len(members), units_per_chunk):
        part = members[start : start + units_per_chunk]
        places = np.full((units_per_chunk, rows_per_unit), -1, np.int32)
        places[: len(part)] = part
        flat_places = places.ravel()
        taken = jax.tree.map(lambda x, at=flat_places: np.asarray(x)[np.maximum(at, 0)], rows)
        mask = jnp.asarray(flat_places >= 0)
        words = np.frombuffer(entropy.bytes(8), dtype="<u4")
        key = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
        found = _compiled(loss, model, taken, mask, jnp.float32(clip), key, layer, rows_per_unit)
        with jax.enable_x64(True):  # for this thread, and these products alone
            total = _added(total, found.dense, found.rest, found.scale, order=order)
    return np.array(total)


@eqx.filter_jit
def _compiled(
    loss: Any, model: Any, rows: Any, mask: Array, clip: Array, key: Array, layer: type,
    rows_per_unit: int = 1,
) -> Factors:  # fmt: skip
    return factors(
        loss, model, rows, mask, clip=clip, key=key, layer=layer, rows_per_unit=rows_per_unit
    )


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
    """What belongs to units that count, in 64 bits; 0 elsewhere, where it may be infinite."""
    return jnp.where(scale.reshape(-1, *[1] * (x.ndim - 1)) > 0, _wide(x), 0.0)
