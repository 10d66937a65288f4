"""Parts of networks: dense layers, time embeddings, categoricals side by side; batches, and files.

Every parameter of these networks belongs to a dense layer. So the norm of one row's gradient is
known without the gradient, see `siloweave.privacy.gradients`.

`Options` puts the options of all categoricals side by side: one program serves every size, where a
kernel for each size takes a third of a second to compile. Sums over the options of one categorical
are products with a matrix of zeros and ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from siloweave.errors import DataError, InputError
from siloweave.tables.arrays import Bools

Array = jax.Array
Activation = Callable[[Array], Array]
Groups = tuple[tuple[int, int], ...]
"""(how many, of which size) of categoricals that follow one another."""
_Tree = TypeVar("_Tree")
# Added to a variance that is divided by, so that equal entries stay finite.
_LEAST_VARIANCE = 1e-5
_ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
    "leaky_relu": lambda x: jax.nn.leaky_relu(x, 0.2),
}


class Dense(eqx.Module):
    """An affine map of the last axis, x W + b."""

    weight: Array  # (fan_in, fan_out)
    bias: Array  # (fan_out,)
    bound: float = eqx.field(static=True)  # first weights and biases lie within ±bound

    def __init__(
        self, fan_in: int, fan_out: int, *, key: Array, scale: float = 1.0
    ) -> None:
        """Draw weights and biases uniformly from ±scale/√fan_in; 0 makes the layer zero."""
        self.bound = scale / max(fan_in, 1) ** 0.5
        rows = jax.random.uniform(key, (fan_in + 1, fan_out), minval=-1.0, maxval=1.0)
        self.weight = self.bound * rows[:-1]
        self.bias = self.bound * rows[-1]

    def __call__(self, x: Array) -> Array:
        """Map (..., fan_in) to (..., fan_out)."""
        return x @ self.weight + self.bias

    def transposed(self, d: Array) -> Array:
        """Map gradients (..., fan_out) back to (..., fan_in), d W^T."""
        return d @ self.weight.T


class MLP(eqx.Module):
    """Dense layers with an activation between them, but not after the last."""

    layers: tuple[Dense, ...]  # the dense layers
    act: str = eqx.field(static=True)  # name of the activation
    # Share of hidden units dropped when a key is given.
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        fan_in: int,
        hidden: Sequence[int],
        fan_out: int,
        *,
        key: Array,
        act: str = "relu",
        dropout: float = 0.0,
    ) -> None:
        # An unknown name is refused now, not in the first call.
        activation(act)
        sizes = [fan_in, *hidden, fan_out]
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = zip(sizes[:-1], sizes[1:], keys, strict=True)
        self.layers = tuple(
            Dense(width, next_width, key=layer_key)
            for width, next_width, layer_key in shapes
        )
        self.act = act
        self.dropout = dropout

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """Map (batch, fan_in) to (batch, fan_out); `key` switches dropout on."""
        act = activation(self.act)
        count = len(self.layers)
        keys: Sequence[Array | None] | Array = [None] * count
        if key is not None and self.dropout:
            keys = jax.random.split(key, count)
        # The last layer has no activation and no dropout: its key is not used.
        for layer, layer_key in zip(self.layers[:-1], keys, strict=False):
            x = dropped(act(layer(x)), self.dropout, layer_key)
        return self.layers[-1](x)


class _Block(eqx.Module):
    """Two dense layers whose output is added to their input; see `ResidualBlocks`."""

    modulation: Dense  # condition to a scale and a shift of every unit
    first: Dense
    second: Dense

    def __init__(self, width: int, condition: int, *, key: Array) -> None:
        modulation_key, first_key, second_key = jax.random.split(key, 3)
        self.modulation = Dense(condition, 2 * width, key=modulation_key)
        self.first = Dense(width, width, key=first_key)
        self.second = Dense(width, width, key=second_key)

    def __call__(
        self,
        x: Array,
        condition: Array,
        act: Activation,
        dropout: float,
        key: Array | None,
    ) -> Array:
        scale, shift = jnp.split(self.modulation(condition), 2, axis=-1)
        modulated = (1.0 + scale) * normalised(x) + shift
        hidden = dropped(act(self.first(modulated)), dropout, key)
        return x + self.second(hidden)


class ResidualBlocks(eqx.Module):
    """Blocks of two dense layers each, and a dense layer behind them.

    A block adds to its input what it makes of it. It reads its input normalised, each row by
    itself, and scaled and shifted unit by unit as a condition says (adaptive layer normalisation;
    Peebles & Xie 2023, "Scalable diffusion models with transformers", section 3.2; first weights
    are those of other dense layers here, where theirs are 0).
    """

    blocks: tuple[_Block, ...]
    last: Dense
    act: str = eqx.field(static=True)  # name of the activation
    # Share of hidden units dropped when a key is given.
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        width: int,
        count: int,
        fan_out: int,
        *,
        condition: int,
        key: Array,
        act: str = "silu",
        dropout: float = 0.0,
    ) -> None:
        """Make `count` blocks of `width` units, conditioned on vectors of `condition` entries."""
        # An unknown name is refused now, not in the first call.
        activation(act)
        last_key, *block_keys = jax.random.split(key, count + 1)
        self.blocks = tuple(
            _Block(width, condition, key=block_key) for block_key in block_keys
        )
        self.last = Dense(width, fan_out, key=last_key)
        self.act = act
        self.dropout = dropout

    def __call__(
        self, x: Array, condition: Array, *, key: Array | None = None
    ) -> Array:
        """Map (batch, width) to (batch, fan_out); `key` switches dropout on.

        The condition is (batch, its entries), or (1, its entries) for one that all rows have.
        """
        act = activation(self.act)
        keys: Sequence[Array | None] | Array = [None] * len(self.blocks)
        if key is not None and self.dropout:
            keys = jax.random.split(key, len(self.blocks))
        for block, block_key in zip(self.blocks, keys, strict=True):
            x = block(x, condition, act, self.dropout, block_key)
        return self.last(act(normalised(x)))


def normalised(x: Array) -> Array:
    """Return x with mean 0 and variance 1 along the last axis (Ba, Kiros & Hinton 2016)."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + _LEAST_VARIANCE)


class TimeEmbedding(eqx.Module):
    """`size` sinusoids of the time, then Dense, SiLU, Dense (as Ho, Jain & Abbeel 2020)."""

    first: Dense
    second: Dense

    def __init__(self, size: int, *, key: Array) -> None:
        first_key, second_key = jax.random.split(key)
        self.first = Dense(size, size, key=first_key)
        self.second = Dense(size, size, key=second_key)

    def __call__(self, t: Array) -> Array:
        """Map times (batch,) to (batch, size)."""
        waves = sinusoids(t, self.first.weight.shape[0])
        return self.second(jax.nn.silu(self.first(waves)))


def sinusoids(t: Array, size: int) -> Array:
    """Return cosines and sines of t (batch,) at `size` / 2 frequencies, from 1 to 1 / 10,000.

    They are (batch, size); where `size` is odd, the last entry is 0.
    """
    # Vaswani et al. 2017, section 3.5, as Ho, Jain & Abbeel 2020 use it for time.
    half = size // 2
    frequencies = jnp.exp(-jnp.log(10_000.0) * jnp.arange(half) / half)
    angles = t.astype(jnp.float32)[:, None] * frequencies
    waves = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)
    return jnp.pad(waves, ((0, 0), (0, size - 2 * half)))


def activation(name: str) -> Activation:
    """Return the activation of that name; an InputError for an unknown one."""
    if name not in _ACTIVATIONS:
        names = ", ".join(_ACTIVATIONS)
        raise InputError(f"act={name!r} is not known: choose one of {names}")
    return _ACTIVATIONS[name]


def dropped(x: Array, share: float, key: Array | None) -> Array:
    """Return x after dropout of a share of its units; x itself without a key.

    Dropout is inverted: units that stay are scaled up, so that their mean is that of x.
    """
    if key is None or share == 0.0:
        return x
    stays = jax.random.bernoulli(key, 1.0 - share, x.shape)
    return jnp.where(stays, x / (1.0 - share), 0.0)


@dataclass(frozen=True)
class Options:
    """Where each option of each categorical is."""

    groups: Groups

    @classmethod
    def of(cls, sizes: Iterable[int]) -> Options:
        """Return categoricals of these sizes, in this order."""
        groups = tuple((len(list(run)), size) for size, run in groupby(sizes))
        return cls(groups)

    @cached_property
    def sizes(self) -> npt.NDArray[np.int32]:
        """How many options each categorical has, (categoricals,)."""
        counts, sizes = np.array(self.groups, np.int32).reshape(-1, 2).T
        return np.repeat(sizes, counts)

    @cached_property
    def categorical(self) -> npt.NDArray[np.int32]:
        """Which categorical each option belongs to, (options,)."""
        numbers = np.arange(len(self.sizes), dtype=np.int32)
        return np.repeat(numbers, self.sizes)

    @cached_property
    def place(self) -> npt.NDArray[np.int32]:
        """The number of each option in its categorical, (options,)."""
        ranges = [np.arange(size) for size in self.sizes]
        return np.concatenate([np.arange(0, dtype=np.int32), *ranges])

    def flags(self, codes: Array) -> Array:
        """Return one-hot rows: (..., categoricals) integers to (..., options) truth values."""
        return codes[..., self.categorical] == self.place

    def sums(self, x: Array) -> Array:
        """Return sums over each categorical's options: (..., options) to (..., categoricals)."""
        if len(self.groups) == 1:  # 300 binary columns need no product
            by_categorical = x.reshape(*x.shape[:-1], *self.groups[0])
            return by_categorical.sum(-1)
        return jnp.matmul(x, self._member, precision="highest")

    def largest(self, x: Array) -> Array:
        """Return each categorical's largest entry: (..., options) to (..., categoricals)."""
        largest = [
            x[..., :0]
        ]  # so that there is something to join without categoricals
        start = 0
        for count, size in self.groups:
            stop = start + count * size
            part = x[..., start:stop]
            by_categorical = part.reshape(*x.shape[:-1], count, size)
            largest.append(by_categorical.max(-1))
            start = stop
        return jnp.concatenate(largest, axis=-1)

    def log_softmax(self, logits: Array) -> Array:
        """Return logarithms of each categorical's distribution, (..., options)."""
        # Less the largest of its categorical no exponential overflows. What is subtracted cancels
        # in the result, so no gradient goes through it.
        largest = self.largest(jax.lax.stop_gradient(logits))
        shifted = logits - largest[..., self.categorical]
        log_sums = jnp.log(self.sums(jnp.exp(shifted)))
        if len(self.groups) == 1:
            _, size = self.groups[0]
            return shifted - jnp.repeat(log_sums, size, axis=-1)
        return shifted - jnp.matmul(log_sums, self._member.T, precision="highest")

    @cached_property
    def _member(self) -> npt.NDArray[np.float32]:
        """A matrix (options, categoricals) of 1 where an option belongs to a categorical."""
        numbers = np.arange(len(self.sizes))
        belongs: Bools = self.categorical[:, None] == numbers
        return belongs.astype(np.float32)


@eqx.filter_jit
def fresh(make: Callable[..., _Tree], *args: Any, key: Array) -> _Tree:
    """Return `make(*args, key=key)` as one program, with one draw for all its dense layers.

    A draw takes longer to compile than to run, and every layer has a shape of its own. `make` is a
    class or function of a module; a closure is compiled anew. Arguments that are not arrays are
    hashable; equal ones share a program.
    """
    drawing_key, making_key = jax.random.split(key)
    # The compiler drops the draws that are replaced below.
    tree = make(*args, key=making_key)
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_dense)
    places = [place for place, leaf in enumerate(leaves) if _is_dense(leaf)]
    if not places:
        return tree

    sizes = [leaves[i].weight.size + leaves[i].bias.size for i in places]
    total = sum(sizes)
    numbers = jax.random.uniform(drawing_key, (total,), minval=-1.0, maxval=1.0)
    edges = np.cumsum(sizes)[:-1]
    parts = jnp.split(numbers, edges)
    for place, part in zip(places, parts, strict=True):
        layer = leaves[place]
        rows = layer.bound * part.reshape(-1, layer.bias.size)
        weight = rows[:-1]
        bias = rows[-1]
        leaves[place] = eqx.tree_at(_parameters, layer, (weight, bias))
    return cast("_Tree", jax.tree.unflatten(structure, leaves))


def _is_dense(leaf: Any) -> bool:
    """Return whether a part of a tree is a dense layer."""
    return isinstance(leaf, Dense)


def _parameters(layer: Dense) -> tuple[Array, Array]:
    """Return the weights and biases of a layer."""
    return layer.weight, layer.bias


def averaged(average: _Tree, tree: _Tree, decay: float, step: Array | int) -> _Tree:
    """Return the parameters' moving average: share x average + (1 - share) x tree.

    The share is `decay`, but less in the first steps, (1 + step) / (10 + step): with a constant
    share the random first weights would stay in the average for long.
    """
    share = jnp.minimum(decay, (1.0 + step) / (10.0 + step))

    def mixed(average_leaf: Any, leaf: Any) -> Any:
        if not eqx.is_inexact_array(leaf):
            return leaf  # counts and names have no average
        return share * average_leaf + (1.0 - share) * leaf

    return cast("_Tree", jax.tree.map(mixed, average, tree))


def pieces(n: int, most: int) -> list[tuple[int, int, int]]:
    """Return (start, stop, padded size) of n rows in pieces of at most `most`.

    Every size is a power of 2 or `most`. A size is a program to compile, so they are few.
    """
    # The least power of 2 that holds n rows.
    power_of_2 = 1 << max(n - 1, 0).bit_length()
    size = min(most, power_of_2)
    ranges = []
    for start in range(0, n, size):
        stop = min(start + size, n)
        ranges.append((start, stop, size))
    return ranges


def padded(tree: Any, start: int, stop: int, size: int) -> Any:
    """Return rows start ... stop of every array in a tree, and zeros up to `size` rows."""

    def cut(x: Any) -> Array:
        part = jnp.asarray(x[start:stop])
        padding = [(0, 0)] * part.ndim
        padding[0] = (0, size - (stop - start))
        return jnp.pad(part, padding)

    return jax.tree.map(cut, tree)


def save_arrays(path: Path, tree: Any, facts: Mapping[str, Any]) -> None:
    """Write the arrays of a tree, in the order of its leaves, and JSON facts as safetensors."""
    leaves = [
        np.asarray(leaf)
        for leaf in jax.tree.leaves(tree)
        if isinstance(leaf, np.ndarray | Array)
    ]
    # With leading zeros the order of names, by which `load_arrays` reads, is that of the leaves.
    arrays = {f"{i:04d}": np.ascontiguousarray(leaf) for i, leaf in enumerate(leaves)}
    save_file(arrays, path, metadata={"facts": json.dumps(facts)})


def load_arrays(path: Path, build: Callable[[dict[str, Any]], _Tree]) -> _Tree:
    """Read what `save_arrays` wrote.

    `build` makes a tree of the same structure of the facts. It is traced, not run: only the shapes
    of its arrays matter. Raises DataError where the file is missing, another one, or does not fit
    its own facts.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            facts = json.loads(metadata["facts"])
            arrays = [file.get_tensor(name) for name in sorted(file.keys())]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise DataError(
            f"{path} is not a stored model of siloweave ({error})"
        ) from error
    try:
        shapes = eqx.filter_eval_shape(build, facts)
    except (KeyError, TypeError, InputError) as error:
        raise DataError(
            f"{path} is a model of another kind or of an older siloweave ({error}): fit it again"
        ) from error
    dynamic, static = eqx.partition(shapes, _is_shape)
    leaves, structure = jax.tree.flatten(dynamic)
    # Facts and arrays of one file may still contradict each other.
    if [leaf.shape for leaf in leaves] != [array.shape for array in arrays]:
        raise DataError(
            f"{path} is damaged: its arrays do not fit the settings stored with them"
        )
    stored_leaves = [jnp.asarray(array) for array in arrays]
    stored = jax.tree.unflatten(structure, stored_leaves)
    return cast("_Tree", eqx.combine(stored, static))


def _is_shape(leaf: Any) -> bool:
    """Return whether a part of a traced tree stands for an array."""
    return isinstance(leaf, jax.ShapeDtypeStruct)
