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

# Rows of a compiled program; larger batches take several turns.
CHUNK = 256
# Relative, of squared norms; far above float32's rounding of sums of squares.
_MARGIN = 1e-4
# Relative, what a sum of floats may lose with each number that it adds up: float32 keeps 24 bits.
_LOST = 2.0**-23
# Just above the least normal float32, 2^-126: squares below it are lost, so every number is taken
# for at least its root.
_TINY = 1.2e-38
# Least norm that a clip is divided by, so that a gradient of 0 is not divided by 0. Its scale is 1.
_LEAST_NORM = 1e-30


class _Call(NamedTuple):
    """One use of a dense layer, recorded while a row passes the model."""

    layer: int
    inputs: Array  # (..., fan_in), or (..., fan_out) of a call backwards
    shape: tuple[int, ...]  # of the output
    back: bool


class _Tapped:
    """A stand-in for a dense layer, which adds the next tap to its output and records its input."""

    def __init__(self, layer: Any, index: int, calls: list[_Call], taps: Any) -> None:
        self._layer = layer
        self._index = index
        self._calls = calls
        self._taps = taps

    @property
    def weight(self) -> Any:
        """Shape and type only: arithmetic with it would escape the clip, and fails."""
        return jax.eval_shape(lambda: self._layer.weight)

    @property
    def bias(self) -> Any:
        return jax.eval_shape(lambda: self._layer.bias)

    def __call__(self, x: Array, *_: Any, **__: Any) -> Array:
        output = self._layer(x)
        return self._record(x, output, back=False)

    def transposed(self, d: Array) -> Array:
        output = self._layer.transposed(d)
        return self._record(d, output, back=True)

    def _record(self, inputs: Array, output: Array, *, back: bool) -> Array:
        """Record a call, and return its output with the tap of this call added."""
        number = len(self._calls)
        self._calls.append(_Call(self._index, inputs, output.shape, back))
        if self._taps is None:
            return output
        tapped: Array = output + self._taps[number]
        return tapped


class _Parts:
    """A model as its dense layers and the other arrays that are trained."""

    def __init__(self, model: Any, layer: type) -> None:
        leaves, self.structure = jax.tree.flatten(
            model, is_leaf=lambda x: isinstance(x, layer)
        )
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

        # An array that is neither weight nor bias would be trained, yet in no norm.
        for dense_layer in self.dense:
            expected = 1 if dense_layer.bias is None else 2
            arrays = jax.tree.leaves(eqx.filter(dense_layer, eqx.is_inexact_array))
            if len(arrays) != expected:
                raise InputError(
                    f"clipped sums: a {layer.__name__} holds more arrays than weight and bias; "
                    "book-keeping would miss them. Use layers that hold nothing else."
                )

    def tapped(self, rest: Sequence[Any], calls: list[_Call], taps: Any) -> Any:
        """Return the model with tapped layers, and `rest` as its other arrays."""
        leaves = list(self.leaves)
        for number, place in enumerate(self.places):
            leaves[place] = _Tapped(self.leaves[place], number, calls, taps)
        for place, value in zip(self.others, rest, strict=True):
            leaves[place] = value
        return jax.tree.unflatten(self.structure, leaves)


class Factors(NamedTuple):
    """Every unit's gradient, not multiplied out, and the factor that clips it.

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
    """Compute what a clipped sum is made of: every unit's gradient as factors, and its scale.

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

    # Pass 1: which layers run for one row, in which order, and how large their outputs are.
    used, shapes = _calls(loss, parts, rows, keys)
    taps = [jnp.zeros(shape) for shape in shapes]

    def tapped_loss(taps: Any, rest: Any, row: Any, key: Array) -> tuple[Array, Any]:
        calls: list[_Call] = []
        value = loss(parts.tapped(rest, calls, taps), row, key)
        return value, [call.inputs for call in calls]

    def row_gradients(row: Any, key: Array) -> Any:
        differentiated = jax.grad(tapped_loss, argnums=(0, 1), has_aux=True)
        return differentiated(taps, parts.rest, row, key)

    # Pass 2: the gradient at every tap, and every layer's inputs. Rows are mapped, not batched, so
    # that none can reach another row's gradient.
    try:
        (deltas, rest), inputs = jax.vmap(row_gradients)(rows, keys)
    except jax.errors.UnexpectedTracerError as error:
        raise InputError(
            "clipped sums: a dense layer runs inside another gradient or loop of the loss (a "
            "gradient penalty?), where book-keeping cannot follow. Write the inner gradient out in "
            "calls of the layers, as models.gan_networks.layered_losses does."
        ) from error
    gathered = [
        _gather(number, used, inputs, deltas, dense_layer)
        for number, dense_layer in enumerate(parts.dense)
    ]
    others = list(rest)

    # A unit's rows are put together before the norm is taken: it is the sum of their gradients that
    # is clipped, and not each of them.
    if rows_per_unit > 1:
        gathered = [
            (_by_unit(x, mask, rows_per_unit), _by_unit(d, mask, rows_per_unit))
            for x, d in gathered
        ]
        others = [_unit_sums(x, mask, rows_per_unit) for x in others]
        mask = mask.reshape(-1, rows_per_unit).any(axis=1)

    # One norm over all parameters together.
    layer_squares = [_square(x, d) for x, d in gathered]
    other_squares = [_flat_square(x) for x in others]
    squares = sum([*layer_squares, *other_squares])
    norms, scale = _scale(squares, mask, clip)
    return Factors(gathered, others, scale, norms)


def _by_unit(x: Array, mask: Array, rows: int) -> Array:
    """Group the calls of a unit's rows into calls of the unit; 0 for rows that do not count."""
    counted = jnp.where(mask[:, None, None], x, 0.0)
    batch, calls, width = counted.shape
    return counted.reshape(batch // rows, rows * calls, width)


def _unit_sums(x: Array, mask: Array, rows: int) -> Array:
    """Add up the gradients of a unit's rows, for an array outside of dense layers."""
    counts = mask.reshape(-1, *[1] * (x.ndim - 1))
    counted = jnp.where(counts, x, 0.0)
    return counted.reshape(-1, rows, *x.shape[1:]).sum(axis=1)


def _calls(
    loss: _Loss, parts: _Parts, rows: Any, keys: Array
) -> tuple[list[tuple[int, bool]], list[tuple[int, ...]]]:
    """Return which layers run for a row, in order, which of them backwards, and output shapes."""
    calls: list[_Call] = []

    def trace(row: Any, key: Array) -> Array:
        return loss(parts.tapped(parts.rest, calls, None), row, key)

    # Traced for one row, and nothing is computed. All rows run the same layers, as the loss is
    # mapped over them.
    first_row, first_key = jax.tree.map(lambda x: x[0], (rows, keys))
    value = jax.eval_shape(trace, first_row, first_key)
    if value.shape != ():
        raise InputError(
            f"loss: gives shape {value.shape} for one row; it must be one number."
        )
    used = [(call.layer, call.back) for call in calls]
    shapes = [call.shape for call in calls]
    return used, shapes


def _gather(
    index: int, used: list[tuple[int, bool]], inputs: Any, deltas: Any, layer: Any
) -> tuple[Array, Array]:
    """Collect the inputs and output gradients of all calls of a layer, as `Factors` has them."""
    own_calls = [(i, back) for i, (number, back) in enumerate(used) if number == index]
    has_bias = layer.bias is not None

    # A layer that never ran has a gradient of 0.
    if not own_calls:
        fan_in, fan_out = layer.weight.shape
        if isinstance(layer, eqx.nn.Linear):
            fan_in, fan_out = fan_out, fan_in
        batch = jax.tree.leaves(deltas)[0].shape[0] if deltas else 1
        x = jnp.zeros((batch, 1, fan_in + has_bias))
        d = jnp.zeros((batch, 1, fan_out))
        return x, d

    all_inputs = []
    all_deltas = []
    for i, back in own_calls:
        x = _flat_calls(inputs[i])
        d = _flat_calls(deltas[i])
        # Backwards, d W^T: what went in has the width of the outputs, and the gradient there that
        # of the inputs. The gradient for W is the same outer product with both exchanged.
        if back:
            x, d = d, x
        # The gradient of a bias is that of the output, as if it were a weight of an input 1. A call
        # backwards does not use the bias.
        last = 0.0 if back else 1.0
        padding = ((0, 0), (0, 0), (0, int(has_bias)))
        all_inputs.append(jnp.pad(x, padding, constant_values=last))
        all_deltas.append(d)
    return jnp.concatenate(all_inputs, 1), jnp.concatenate(all_deltas, 1)


def _flat_calls(x: Array) -> Array:
    """Flatten the calls of an array (rows, ..., width) to (rows, calls, width)."""
    return x.reshape(x.shape[0], -1, x.shape[-1])


def _square(x: Array, d: Array) -> Array:
    """Return the squared norms of a layer's gradients, or slightly more; (units,)."""
    # (units, calls): squared lengths of inputs and of output gradients, one call at a time.
    energy_x = jnp.sum(x * x, -1) + _TINY * x.shape[-1]
    energy_d = jnp.sum(d * d, -1) + _TINY * d.shape[-1]

    # Of one call the gradient is one outer product, whose norm is the product of both norms
    # (Goodfellow 2015).
    if x.shape[1] == 1:
        return (energy_d * energy_x)[:, 0]

    # Of several calls: the sum over all pairs t, s of (x_t . x_s)(d_t . d_s).
    inputs = jnp.einsum("bti,bsi->bts", x, x, precision="highest")
    deltas = jnp.einsum("bto,bso->bts", d, d, precision="highest")

    # Terms may cancel and leave only their rounding, which is a part of this size (Cauchy and
    # Schwarz, see `summed`). As many products as pairs of calls are added up, so many calls need a
    # wider margin.
    slack = energy_x.sum(1) * energy_d.sum(1)
    margin = max(_MARGIN, _LOST * x.shape[1] ** 2)
    squares = jnp.sum(inputs * deltas, (1, 2))
    return jnp.maximum(squares, 0.0) + margin * slack


def _flat_square(x: Array) -> Array:
    """Return the squared norms of one array's gradients (units, ...), or slightly more."""
    squares = jnp.sum(x.reshape(x.shape[0], -1) ** 2, -1)
    return squares + _TINY * (x.size // x.shape[0])


def _scale(squares: Any, mask: Array, clip: float | Array) -> tuple[Array, Array]:
    """Return each unit's gradient norm and clipping factor; 0 for a unit that does not count."""
    norms = jnp.sqrt(squares * (1 + _MARGIN))
    # A gradient that is not finite cannot be clipped, so such a unit does not count. That is a
    # function of this unit alone.
    counts = mask & jnp.isfinite(norms)
    scale = jnp.minimum(1.0, clip / jnp.maximum(norms, _LEAST_NORM))
    return jnp.where(counts, norms, 0.0), jnp.where(counts, scale, 0.0)


def drawn(units: int, rate: float, *, entropy: Entropy) -> NDArray[np.int64]:
    """Draw which units (rows or persons) are in a step, each by a coin of its own.

    **Guarantee**: exact Poisson sampling at `rate` rounded down to a multiple of 2^-64. Where a
    unit is a person, all her rows come with one coin.
    """
    # At rate 1 the threshold would be 2^64, which no 64-bit word holds.
    if rate >= 1:
        return np.arange(units)

    # A word below the threshold has the probability threshold / 2^64; int() rounds it down, so no
    # unit is drawn more often than was paid for.
    threshold = np.uint64(int(rate * 2.0**64))
    words = np.frombuffer(entropy.bytes(8 * units), dtype="<u8")
    return np.flatnonzero(words < threshold)


def flat_size(model: Any) -> int:
    """Count the trained numbers of a model."""
    trained = eqx.filter(model, eqx.is_inexact_array)
    return sum(x.size for x in jax.tree.leaves(trained))


def unflattened(flat: Floats, model: Any) -> Any:
    """Return a gradient in the order of `summed` as a tree with the model's shapes; float32."""
    trained = eqx.filter(model, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(trained)
    ends = np.cumsum([x.size for x in leaves])
    pieces = np.split(flat.astype(np.float32), ends[:-1])
    shaped = []
    for piece, leaf in zip(pieces, leaves, strict=True):
        array = jnp.asarray(piece.reshape(leaf.shape))
        shaped.append(array)
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

    # (units, k); single rows have k = 1.
    members = np.atleast_2d(picked.T).T
    rows_per_unit = members.shape[1]
    units_per_chunk = max(1, CHUNK // rows_per_unit)

    for start in range(0, len(members), units_per_chunk):
        # Every chunk has the same shape, so that the program is compiled once; -1 is no row.
        part = members[start : start + units_per_chunk]
        places = np.full((units_per_chunk, rows_per_unit), -1, np.int32)
        places[: len(part)] = part
        flat_places = places.ravel()
        mask = jnp.asarray(flat_places >= 0)
        # Row 0 stands where there is no row; the mask keeps it out of norms and sums.
        chunk_rows = _rows_at(rows, np.maximum(flat_places, 0))

        # A key of its own for every chunk, from the party's entropy alone.
        words = np.frombuffer(entropy.bytes(8), dtype="<u4")
        key = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
        chunk = _compiled(
            loss, model, chunk_rows, mask, jnp.float32(clip), key, layer, rows_per_unit
        )

        # 64 bits for this thread, and for these products alone: networks stay in 32 bits.
        with jax.enable_x64(True):
            total = _added(total, chunk.dense, chunk.rest, chunk.scale, order=order)
    return np.array(total)


def _rows_at(rows: Any, places: NDArray[np.int32]) -> Any:
    """Select the rows at some places from every array of a pytree."""
    return jax.tree.map(lambda x: np.asarray(x)[places], rows)


@eqx.filter_jit
def _compiled(
    loss: Any, model: Any, rows: Any, mask: Array, clip: Array, key: Array, layer: type,
    rows_per_unit: int = 1,
) -> Factors:  # fmt: skip
    """Compute `factors`, compiled once for each loss, model's shapes and type of layers."""
    return factors(
        loss,
        model,
        rows,
        mask,
        clip=clip,
        key=key,
        layer=layer,
        rows_per_unit=rows_per_unit,
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
    """Return the dense layers and other trained arrays of a model, in the order of its leaves.

    The flat sum has that order, and so have the leaves that `unflattened` fills.
    """
    nodes = []
    for node in jax.tree.leaves(model, is_leaf=lambda x: isinstance(x, layer)):
        if isinstance(node, layer):
            names = {id(getattr(node, name, None)): name for name in ("weight", "bias")}
            leaves = jax.tree.leaves(node)
            fields = tuple(names[id(leaf)] for leaf in leaves if id(leaf) in names)
            nodes.append(_Node(fields, isinstance(node, eqx.nn.Linear)))
        elif eqx.is_inexact_array(node):
            nodes.append(_Node())
    return tuple(nodes)


@partial(jax.jit, static_argnames="order")
def _added(
    total: Array, dense: Any, rest: Any, scale: Array, *, order: tuple[_Node, ...]
) -> Array:
    """Add the clipped sum of a chunk to the sum so far, leaf after leaf; in 64 bits."""
    layers = iter(dense)
    arrays = iter(rest)
    pieces: list[Array] = []
    for node in order:
        if node.fields:
            sums = _product(next(layers), scale, node)
            pieces += [sums[name].ravel() for name in node.fields]
        else:
            weights = _wide(scale)
            gradients = _where_counted(next(arrays), scale)
            pieces.append(jnp.tensordot(weights, gradients, 1).ravel())
    return total + jnp.concatenate(pieces)


def _product(pair: tuple[Array, Array], scale: Array, node: _Node) -> dict[str, Array]:
    """Return the clipped sums for weight and bias of one dense layer, from its `Factors`."""
    x, d = pair
    # Only one of both factors is scaled, as the gradient is their product.
    inputs = _where_counted(x, scale)
    deltas = _where_counted(d, scale) * _wide(scale)[:, None, None]

    # One matrix product adds up all calls of all units (book-keeping: Bu et al. 2023).
    flat_inputs = inputs.reshape(-1, inputs.shape[-1])
    flat_deltas = deltas.reshape(-1, deltas.shape[-1])
    whole = jnp.matmul(flat_inputs.T, flat_deltas, precision="highest")

    # Where there is a bias, its 1 has the last place of the inputs.
    weight = whole[:-1] if "bias" in node.fields else whole
    if node.turned:
        weight = weight.T
    return {"weight": weight, "bias": whole[-1]}


def _wide(x: Array) -> Array:
    """Convert an array to 64 bits."""
    return x.astype(jnp.float64)


def _where_counted(x: Array, scale: Array) -> Array:
    """Return values in 64 bits, with 0 for units that do not count, where they may be infinite."""
    # A product with a scale of 0 would not do: 0 times infinity is not a number.
    counts = scale.reshape(-1, *[1] * (x.ndim - 1)) > 0
    return jnp.where(counts, _wide(x), 0.0)
