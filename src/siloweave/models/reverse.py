"""The way back from noise to rows, compiled as one scan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from siloweave.models.denoiser import (
    Denoiser,
    Groups,
    clean_numbers,
    grouped,
    inputs,
    joined,
    outputs,
)
from siloweave.models.multinomial import draw, forward_codes, posterior, uniform_codes
from siloweave.models.nets import Array
from siloweave.models.schedules import Walk

__all__ = ["Kind", "denoise", "padded", "table"]


def padded(tree: Any, start: int, stop: int, size: int) -> Any:
    """Rows start ... stop of every array in a tree, with zeros behind up to `size` rows."""

    def cut(x: Any) -> Array:
        part = jnp.asarray(x[start:stop])
        return jnp.pad(part, ((0, size - (stop - start)), *[(0, 0)] * (part.ndim - 1)))

    return jax.tree.map(cut, tree)


def table(way: Walk, times: int, T: int) -> dict[str, Array]:
    """The walk as arrays to scan over, each step `times` times, stepping back in between."""
    back = np.tile(np.arange(times) < times - 1, len(way.times))
    columns = {
        "t": way.times * (1000 / T),
        "first": way.times == 0,
        "kept": way.kept,
        "next": way.kept_next,
        "x": way.x,
        "clean": way.clean,
        "last": way.last,
        "noise": way.noise,
    }
    found = {name: np.repeat(column, times) for name, column in columns.items()}
    return {
        name: jnp.asarray(v if v.dtype == bool else v.astype(np.float32))
        for name, v in {**found, "back": back}.items()
    }


_Carry = tuple[Array, Array, Array, Array]


@dataclass(frozen=True)
class Kind:
    """What is compiled in: rows, numbers, groups of choices, and what the network predicts."""

    rows: int
    numbers: int
    groups: Groups
    prediction: str


@partial(jax.jit, static_argnames="kind")
def denoise(
    net: Denoiser,
    plan: dict[str, Array],
    key: Array,
    labels: Array,
    given: tuple[Array, ...] | None,
    reach: tuple[Array, Array],
    kind: Kind,
) -> tuple[Array, Array]:
    """From noise to clean rows: numbers (n, d) and codes (n, c)."""
    n, d, groups = kind.rows, kind.numbers, kind.groups
    a, b, key = jax.random.split(key, 3)
    anywhere = grouped(groups, jax.random.uniform(b, (n, sum(count for count, _ in groups))))
    codes = joined([uniform_codes(u, K) for u, (_, K) in zip(anywhere, groups, strict=True)], n)
    start = (jax.random.normal(a, (n, d)), codes, jnp.zeros((n, d)), key)

    def step(carry: _Carry, p: dict[str, Array]) -> tuple[_Carry, None]:
        numbers, codes, last, key = carry
        key, *keys = jax.random.split(key, 4)
        out = net(inputs(groups, numbers, codes), p["t"][None], labels)
        told, logs = outputs(groups, out, d)
        clean = clean_numbers(kind.prediction, told, numbers, p["kept"])
        clean = jnp.clip(clean, *reach)
        z = jax.random.normal(keys[0], (n, d))
        earlier = p["x"] * numbers + p["clean"] * clean + p["last"] * last + p["noise"] * z
        chosen = _earlier_codes(keys[1], groups, logs, codes, p)
        if given is not None:
            earlier, chosen = _replaced(keys[2], groups, (earlier, chosen), given, p)
        return (earlier, chosen, clean, key), None

    (numbers, codes, *_), _ = jax.lax.scan(step, start, plan)
    return numbers, codes


def _earlier_codes(
    key: Array, groups: Groups, logs: list[Array], codes: Array, p: dict[str, Array]
) -> Array:
    """Choices one step earlier: the posterior, and x̂_0 itself at time 0."""
    uniform = grouped(groups, jax.random.uniform(key, codes.shape))
    drawn = [
        draw(u, jnp.where(p["first"], log_x0, posterior(log_x0, part, p["kept"], p["next"])))
        for u, log_x0, part in zip(uniform, logs, grouped(groups, codes), strict=True)
    ]
    return joined(drawn, len(codes))


def _replaced(
    key: Array,
    groups: Groups,
    drawn: tuple[Array, Array],
    given: tuple[Array, ...],
    p: dict[str, Array],
) -> tuple[Array, Array]:
    """Given values at this step's noise in the place of the drawn ones; a step back if planned."""
    (numbers, codes), (x0, c0, number_known, code_known) = drawn, given
    keys = jax.random.split(key, 4)
    z = jax.random.normal(keys[0], x0.shape)
    own = jnp.sqrt(p["next"]) * x0 + jnp.sqrt(1 - p["next"]) * z
    numbers = jnp.where(number_known, own, numbers)
    codes = jnp.where(code_known, _forward(keys[1], groups, c0, p["next"]), codes)
    a = p["kept"] / p["next"]
    again = jnp.sqrt(a) * numbers + jnp.sqrt(1 - a) * jax.random.normal(keys[2], x0.shape)
    numbers = jnp.where(p["back"], again, numbers)
    return numbers, jnp.where(p["back"], _forward(keys[3], groups, codes, a), codes)


def _forward(key: Array, groups: Groups, codes: Array, kept: Array) -> Array:
    uniform = grouped(groups, jax.random.uniform(key, (2, *codes.shape)))
    parts = zip(uniform, grouped(groups, codes), groups, strict=True)
    return joined([forward_codes(u, part, kept, size) for u, part, (_, size) in parts], len(codes))
