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
        drawn = jax.random.uniform(key, (fan_in + 1, fan_out), minval=-1.0, maxval=1.0)
        self.weight, self.bias = self.bound * drawn[:-1], self.bound * drawn[-1]

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
    # Whether equally wide hidden layers add their input.
    residual: bool = eqx.field(static=True)

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
    ) -> None:
        activation(act)
        sizes = [fan_in, *hidden, fan_out]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Dense(a, b, key=k)
            for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.act, self.dropout, self.residual = act, dropout, residual

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """Map (batch, fan_in) to (batch, fan_out); `key` switches dropout on."""
        act = activation(self.act)
        count = len(self.layers)
        keys = (
            [None] * count
            if key is None or not self.dropout
            else jax.random.split(key, count)
        )
        for layer, k in zip(self.layers[:-1], keys, strict=False):
            h = act(layer(x))
            h = x + h if self.residual and x.shape == h.shape else h
            x = dropped(h, self.dropout, k)
        return self.layers[-1](x)


class TimeEmbedding(eqx.Module):
    """`size` sinusoids of the time, then Dense, SiLU, Dense (as Ho, Jain & Abbeel 2020)."""

    first: Dense
    second: Dense

    def __init__(self, size: int, *, key: Array) -> None:
        a, b = jax.random.split(key)
        self.first, self.second = Dense(size, size, key=a), Dense(size, size, key=b)

    def __call__(self, t: Array) -> Array:
        """Map times (batch,) to (batch, size)."""
        waves = sinusoids(t, self.first.weight.shape[0])
        return self.second(jax.nn.silu(self.first(waves)))


def sinusoids(t: Array, size: int) -> Array:
    """Cosines and sines of t (batch,) at `size` / 2 frequencies, from 1 down to 1 / 10,000."""
    half = size // 2
    frequencies = jnp.exp(-jnp.log(10_000.0) * jnp.arange(half) / half)
    angles = t.astype(jnp.float32)[:, None] * frequencies
    waves = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)
    return jnp.pad(waves, ((0, 0), (0, size - 2 * half)))


def activation(name: str) -> Activation:
    """Return the activation of that name; an InputError for an unknown one."""
    if name not in _ACTIVATIONS:
        raise InputError(
            f"act={name!r} is not known: choose one of {', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[name]


def dropped(x: Array, share: float, key: Array | None) -> Array:
    """Return inverted dropout; nothing happens without a key."""
    if key is None or share == 0.0:
        return x
    return jnp.where(
        jax.random.bernoulli(key, 1.0 - share, x.shape), x / (1.0 - share), 0.0
    )


@dataclass(frozen=True)
class Options:
    """Where each option of each categorical is."""

    groups: Groups

    @classmethod
    def of(cls, sizes: Iterable[int]) -> Options:
        """Return categoricals of these sizes, in this order."""
        return cls(tuple((len(list(run)), size) for size, run in groupby(sizes)))

    @cached_property
    def sizes(self) -> npt.NDArray[np.int32]:
        """Of each categorical, (categoricals,)."""
        counts, sizes = np.array(self.groups, np.int32).reshape(-1, 2).T
        return np.repeat(sizes, counts)

    @cached_property
    def categorical(self) -> npt.NDArray[np.int32]:
        """Which categorical each option belongs to, (options,)."""
        return np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)

    @cached_property
    def place(self) -> npt.NDArray[np.int32]:
        """Its number in its categorical, (options,)."""
        return np.concatenate(
            [np.arange(0, dtype=np.int32), *map(np.arange, self.sizes)]
        )

    def flags(self, codes: Array) -> Array:
        """Return one-hot rows: (..., categoricals) integers to (..., options) truth values."""
        return codes[..., self.categorical] == self.place

    def sums(self, x: Array) -> Array:
        """Return sums over each categorical's options: (..., options) to (..., categoricals)."""
        if len(self.groups) == 1:  # 300 binary columns need no product
            return x.reshape(*x.shape[:-1], *self.groups[0]).sum(-1)
        return jnp.matmul(x, self._member, precision="highest")

    def largest(self, x: Array) -> Array:
        """Return each categorical's largest entry: (..., options) to (..., categoricals)."""
        found, start = [x[..., :0]], 0
        for count, size in self.groups:
            part = x[..., start : start + count * size]
            found.append(part.reshape(*part.shape[:-1], count, size).max(-1))
            start += count * size
        return jnp.concatenate(found, axis=-1)

    def log_softmax(self, logits: Array) -> Array:
        """Return logarithms of each categorical's distribution, (..., options)."""
        low = (
            logits - self.largest(jax.lax.stop_gradient(logits))[..., self.categorical]
        )
        total = jnp.log(self.sums(jnp.exp(low)))
        if len(self.groups) == 1:
            return low - jnp.repeat(total, self.groups[0][1], axis=-1)
        return low - jnp.matmul(total, self._member.T, precision="highest")

    @cached_property
    def _member(self) -> npt.NDArray[np.float32]:
        """(options, categoricals), 1 where an option belongs to a categorical."""
        belongs: Bools = self.categorical[:, None] == np.arange(len(self.sizes))
        return belongs.astype(np.float32)


@eqx.filter_jit
def fresh(make: Callable[..., _Tree], *args: Any, key: Array) -> _Tree:
    """Return `make(*args, key=key)` as one program, with one draw for all its dense layers.

    A draw takes longer to compile than to run, and every layer has a shape of its own. `make` is a
    class or function of a module; a closure is compiled anew. Arguments that are not arrays are
    hashable; equal ones share a program.
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
        leaves[i] = eqx.tree_at(
            lambda x: (x.weight, x.bias), layer, (rows[:-1], rows[-1])
        )
    return cast("_Tree", jax.tree.unflatten(structure, leaves))


def averaged(average: _Tree, tree: _Tree, decay: float, step: Array | int) -> _Tree:
    """Return the parameters' moving average: share x average + (1 - share) x tree.

    The share is `decay`, but less in the first steps, (1 + step) / (10 + step): with a constant
    share the random first weights would stay in the average for long.
    """
    share = jnp.minimum(decay, (1.0 + step) / (10.0 + step))

    def mixed(a: Any, x: Any) -> Any:
        return share * a + (1.0 - share) * x if eqx.is_inexact_array(x) else x

    return cast("_Tree", jax.tree.map(mixed, average, tree))


def pieces(n: int, most: int) -> list[tuple[int, int, int]]:
    """(from, to, padded size) of n rows in pieces; sizes are few, so that little is compiled."""
    size = min(most, 1 << max(n - 1, 0).bit_length())
    return [(i, min(i + size, n), size) for i in range(0, n, size)]


def padded(tree: Any, start: int, stop: int, size: int) -> Any:
    """Return rows start ... stop of every array in a tree, and zeros up to `size` rows."""

    def cut(x: Any) -> Array:
        part = jnp.asarray(x[start:stop])
        return jnp.pad(part, ((0, size - (stop - start)), *[(0, 0)] * (part.ndim - 1)))

    return jax.tree.map(cut, tree)


def save_arrays(path: Path, tree: Any, facts: Mapping[str, Any]) -> None:
    """Write the arrays of a tree, in the order of its leaves, and JSON facts as safetensors."""
    leaves = [
        np.asarray(x)
        for x in jax.tree.leaves(tree)
        if isinstance(x, np.ndarray | Array)
    ]
    arrays = {f"{i:04d}": np.ascontiguousarray(x) for i, x in enumerate(leaves)}
    save_file(arrays, path, metadata={"facts": json.dumps(facts)})


def load_arrays(path: Path, build: Callable[[dict[str, Any]], _Tree]) -> _Tree:
    """Read what `save_arrays` wrote.

    `build` makes a tree of the same structure of the facts. It is traced, not run: only the shapes
    of its arrays matter. Raises DataError where the file is missing, another one, or does not fit
    its own facts.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            facts = json.loads((file.metadata() or {})["facts"])
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
    dynamic, static = eqx.partition(
        shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct)
    )
    leaves, structure = jax.tree.flatten(dynamic)
    if [x.shape for x in leaves] != [x.shape for x in arrays]:
        raise DataError(
            f"{path} is damaged: its arrays do not fit the settings stored with them"
        )
    stored = jax.tree.unflatten(structure, [jnp.asarray(x) for x in arrays])
    return cast("_Tree", eqx.combine(stored, static))
