"""Dense networks, time embeddings, and their storage.

Every parameter of these networks belongs to a dense layer. That is on purpose: the gradient of
one row with respect to a dense layer is the outer product of the layer's input and of the
gradient at its pre-activation, so its norm is known without forming it (Goodfellow 2015; Bu,
Wang, Zha & Karypis 2023). A `Tape` hands both out: it adds a tap to every pre-activation and
keeps every input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from siloweave.errors import DataError, InputError

__all__ = [
    "MLP",
    "Dense",
    "Tape",
    "TimeEmbedding",
    "activation",
    "averaged",
    "dropped",
    "fresh",
    "load_arrays",
    "normalised",
    "save_arrays",
    "sinusoids",
]

Array = jax.Array
Activation = Callable[[Array], Array]
_Tree = TypeVar("_Tree")
_ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
    "leaky_relu": lambda x: jax.nn.leaky_relu(x, 0.2),
}


class Tape:
    """What book-keeping needs of a forward pass: one tap and one input per dense layer.

    Trace the network once without taps to learn `shapes`, then again with zeros of these shapes:
    the gradient with respect to tap `i` is that of the loss at pre-activation `i`, one row per
    example, and `inputs[i]` is what layer `layers[i]` was given.

    Attributes:
        taps: Arrays added to the pre-activations in order of the calls, or None.
        layers: The layers that ran, in order; a layer that runs twice is listed twice.
        inputs: Their inputs, (batch, fan_in) each.
        shapes: Shapes of their pre-activations, (batch, fan_out) each.
    """

    def __init__(self, taps: Sequence[Array] | None = None) -> None:
        self.taps = taps
        self.layers: list[Dense] = []
        self.inputs: list[Array] = []
        self.shapes: list[tuple[int, ...]] = []

    def record(self, layer: Dense, x: Array, pre: Array) -> Array:
        """Note one call; returns the pre-activation with its tap."""
        i = len(self.layers)
        self.layers.append(layer)
        self.inputs.append(x)
        self.shapes.append(pre.shape)
        return pre if self.taps is None else pre + self.taps[i]


class Dense(eqx.Module):
    """An affine map of the last axis, x W + b.

    Attributes:
        weight: (fan_in, fan_out).
        bias: (fan_out,).
        bound: First weights and biases lie within ±bound.

    Example:
        >>> layer = Dense(3, 2, key=jax.random.key(0))
        >>> tape = Tape()
        >>> layer(jnp.ones((5, 3)), tape).shape, tape.inputs[0].shape
        ((5, 2), (5, 3))
    """

    weight: Array
    bias: Array
    bound: float = eqx.field(static=True)

    def __init__(self, fan_in: int, fan_out: int, *, key: Array, scale: float = 1.0) -> None:
        """Draw weights and biases uniformly from ±scale/√fan_in; 0 makes the layer zero."""
        self.bound = scale / max(fan_in, 1) ** 0.5
        drawn = jax.random.uniform(key, (fan_in + 1, fan_out), minval=-1.0, maxval=1.0)
        self.weight, self.bias = self.bound * drawn[:-1], self.bound * drawn[-1]

    def __call__(self, x: Array, tape: Tape | None = None) -> Array:
        """Map (..., fan_in) to (..., fan_out)."""
        pre = x @ self.weight + self.bias
        return pre if tape is None else tape.record(self, x, pre)

    def transposed(self, d: Array) -> Array:
        """Map (..., fan_out) back to (..., fan_in), d W^T: what slopes pass through."""
        return d @ self.weight.T


class MLP(eqx.Module):
    """Dense layers with an activation between them, and none behind the last.

    Attributes:
        layers: The dense layers.
        act: Name of the activation.
        dropout: Share of hidden units dropped when a key is given.
        residual: Whether hidden layers of equal width add their input to their output.
        norm: Whether hidden pre-activations are normalised over their units, without parameters.

    Example:
        >>> net = MLP(4, (16, 16), 3, key=jax.random.key(0))
        >>> net(jnp.zeros((7, 4))).shape
        (7, 3)
    """

    layers: tuple[Dense, ...]
    act: str = eqx.field(static=True)
    dropout: float = eqx.field(static=True)
    residual: bool = eqx.field(static=True)
    norm: bool = eqx.field(static=True)

    def __init__(
        self,
        fan_in: int,
        hidden: Sequence[int],
        fan_out: int,
        *,
        key: Array,
        act: str = "relu",
        dropout: float = 0.0,
        residual: bool = False,
        norm: bool = False,
    ) -> None:
        activation(act)
        sizes = [fan_in, *hidden, fan_out]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Dense(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.act, self.dropout, self.residual, self.norm = act, dropout, residual, norm

    def __call__(self, x: Array, tape: Tape | None = None, *, key: Array | None = None) -> Array:
        """Map (batch, fan_in) to (batch, fan_out); `key` switches dropout on."""
        act = activation(self.act)
        count = len(self.layers)
        keys = [None] * count if key is None or not self.dropout else jax.random.split(key, count)
        for layer, k in zip(self.layers[:-1], keys, strict=False):
            pre = layer(x, tape)
            h = act(normalised(pre) if self.norm else pre)
            h = x + h if self.residual and x.shape == h.shape else h
            x = dropped(h, self.dropout, k)
        return self.layers[-1](x, tape)


class TimeEmbedding(eqx.Module):
    """Sinusoids of the time, then Dense, SiLU, Dense (the way of Ho et al. 2020).

    Attributes:
        first: From `size` sinusoids to `size` units.
        second: From `size` to `size` units.
    """

    first: Dense
    second: Dense

    def __init__(self, size: int, *, key: Array) -> None:
        a, b = jax.random.split(key)
        self.first, self.second = Dense(size, size, key=a), Dense(size, size, key=b)

    def __call__(self, t: Array, tape: Tape | None = None) -> Array:
        """Map times (batch,) to (batch, size)."""
        waves = sinusoids(t, self.first.weight.shape[0])
        return self.second(jax.nn.silu(self.first(waves, tape)), tape)


def sinusoids(t: Array, size: int, longest: float = 10_000.0) -> Array:
    """Cosines and sines of t at `size` / 2 frequencies, from 1 down to 1 / `longest`.

    Args:
        t: (batch,), usually 0 to 1000.
        size: Even number of waves.
        longest: Ratio of the longest wavelength to the shortest.

    Returns:
        (batch, size).
    """
    half = size // 2
    frequencies = jnp.exp(-jnp.log(longest) * jnp.arange(half) / half)
    angles = t.astype(jnp.float32)[:, None] * frequencies
    waves = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)
    return jnp.pad(waves, ((0, 0), (0, size - 2 * half)))


def activation(name: str) -> Activation:
    """The activation of that name.

    Raises:
        InputError: For an unknown name.
    """
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise InputError(f"act={name!r} is not known: choose one of {known}")
    return _ACTIVATIONS[name]


def normalised(x: Array) -> Array:
    """Layer normalisation without parameters: mean 0 and variance 1 over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)


def dropped(x: Array, share: float, key: Array | None) -> Array:
    """Inverted dropout; nothing happens without a key."""
    if key is None or share == 0.0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1.0 - share, x.shape), x / (1.0 - share), 0.0)


@eqx.filter_jit
def fresh(make: Callable[..., _Tree], *args: Any, key: Array) -> _Tree:
    """`make(*args, key=key)` as one program, with one draw for all its dense layers.

    A draw takes longer to compile than to run, and every layer has a shape of its own.

    Args:
        make: A class or function of a module that builds networks; a closure is compiled anew.
        args: What it is given. What is no array must be hashable; equal ones share a program.
        key: A jax key.

    Example:
        >>> net = fresh(MLP, 4, (16, 16), 3, key=jax.random.key(0))
        >>> net(jnp.zeros((7, 4))).shape
        (7, 3)
    """
    drawing, making = jax.random.split(key)
    tree = make(*args, key=making)  # the compiler drops draws that are replaced
    leaves, structure = jax.tree.flatten(tree, is_leaf=lambda x: isinstance(x, Dense))
    dense = [i for i, x in enumerate(leaves) if isinstance(x, Dense)]
    if not dense:
        return tree
    sizes = [leaves[i].weight.size + leaves[i].bias.size for i in dense]
    drawn = jax.random.uniform(drawing, (sum(sizes),), minval=-1.0, maxval=1.0)
    for i, part in zip(dense, jnp.split(drawn, np.cumsum(sizes)[:-1]), strict=True):
        layer = leaves[i]
        rows = layer.bound * part.reshape(-1, layer.bias.size)
        leaves[i] = eqx.tree_at(lambda x: (x.weight, x.bias), layer, (rows[:-1], rows[-1]))
    made: _Tree = jax.tree.unflatten(structure, leaves)
    return made


def averaged(average: _Tree, tree: _Tree, decay: float, step: Array | int) -> _Tree:
    """Exponential moving average of the parameters: share x average + (1 - share) x tree.

    The share is `decay`, but less in the first steps, (1 + step) / (10 + step): with a constant
    share the random weights that training started from would stay in the average for long.
    """
    share = jnp.minimum(decay, (1.0 + step) / (10.0 + step))
    mixed: _Tree = jax.tree.map(
        lambda a, x: share * a + (1.0 - share) * x if eqx.is_inexact_array(x) else x, average, tree
    )
    return mixed


def save_arrays(path: Path, tree: Any, facts: Mapping[str, Any]) -> None:
    """Write the arrays of a tree and some JSON facts as one safetensors file.

    Args:
        path: Where.
        tree: Any pytree; its arrays are stored in the order of its leaves.
        facts: What JSON can hold: settings, blocks, a format number.
    """
    leaves = [np.asarray(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]
    arrays = {f"{i:04d}": np.ascontiguousarray(x) for i, x in enumerate(leaves)}
    save_file(arrays, path, metadata={"facts": json.dumps(facts)})


def load_arrays(path: Path, build: Callable[[dict[str, Any]], _Tree]) -> _Tree:
    """Read what `save_arrays` wrote.

    Args:
        path: The file.
        build: From the facts to a tree of the same structure. It is traced, not run: only the
            shapes of its arrays matter.

    Raises:
        DataError: When the file is missing, is no such file, or does not fit what it says.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            facts = json.loads((file.metadata() or {})["facts"])
            arrays = [file.get_tensor(name) for name in sorted(file.keys())]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise DataError(f"{path} is not a stored model of siloweave ({error})") from error
    shapes = eqx.filter_eval_shape(build, facts)
    dynamic, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    leaves, structure = jax.tree.flatten(dynamic)
    if [x.shape for x in leaves] != [x.shape for x in arrays]:
        raise DataError(f"{path} is damaged: its arrays do not fit the settings stored with them")
    fresh = jax.tree.unflatten(structure, [jnp.asarray(x) for x in arrays])
    tree: _Tree = eqx.combine(fresh, static)
    return tree
