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
    NumberHead,
    grouped,
    inputs,
    joined,
    normal_scores,
    outputs,
)
from siloweave.models.multinomial import draw, forward_codes, posterior, uniform_codes
from siloweave.models.nets import Array
from siloweave.models.options import Groups, Options
from siloweave.models.schedules import Walk

__all__ = ["ReverseKind", "denoise", "padded", "table"]


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


_Carry = tuple[Array, Array, Array]


@dataclass(frozen=True)
class ReverseKind:
    """What is compiled in: rows, how numbers are read, and groups of choices."""

    rows: int
    numbers: NumberHead
    groups: Groups


@partial(jax.jit, static_argnames="kind")
def denoise(
    net: Denoiser,
    plan: dict[str, Array],
    key: Array,
    labels: Array,
    given: tuple[Array, ...] | None,
    reach: tuple[Array, Array],
    kind: ReverseKind,
) -> tuple[Array, Array]:
    """From noise to clean rows: numbers (n, d) and codes (n, c)."""
    n, reading, groups = kind.rows, kind.numbers, kind.groups
    d = reading.count
    keys = jax.random.split(key, 1 + len(plan["t"]))
    uniform = jax.random.uniform(keys[0], (n, d + sum(count for count, _ in groups)))
    codes = uniform_codes(uniform[:, d:], Options(groups).sizes)
    start = (normal_scores(uniform[:, :d]), codes, jnp.zeros((n, d)))

    def step(carry: _Carry, now: tuple[dict[str, Array], Array]) -> tuple[_Carry, None]:
        (numbers, codes, last), (p, key) = carry, now
        drawing, replacing = (key, key) if given is None else jax.random.split(key)
        uniform = jax.random.uniform(drawing, (n, d + codes.shape[1]))
        shown = reading.seen(numbers, p["kept"])
        out = net(inputs(groups, shown, codes), p["t"][None], labels)
        told, logs = outputs(groups, out, reading.outputs)
        clean = jnp.clip(reading.clean(told, numbers, p["kept"]), *reach)
        z = normal_scores(uniform[:, :d])
        earlier = p["x"] * numbers + p["clean"] * clean + p["last"] * last + p["noise"] * z
        chosen = _earlier_codes(uniform[:, d:], groups, logs, codes, p)
        if given is not None:
            earlier, chosen = _replaced(replacing, groups, (earlier, chosen), given, p)
        return (earlier, chosen, clean), None

    (numbers, codes, *_), _ = jax.lax.scan(step, start, (plan, keys[1:]))
    return numbers, codes


def _earlier_codes(
    uniform: Array, groups: Groups, logs: list[Array], codes: Array, p: dict[str, Array]
) -> Array:
    """Choices one step earlier, from the posterior."""
    drawn = [
        draw(u, posterior(log_x0, part, p["kept"], p["next"]))
        for u, log_x0, part in zip(
            grouped(groups, uniform), logs, grouped(groups, codes), strict=True
        )
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
    d, c = x0.shape[1], c0.shape[1]
    uniform = jax.random.uniform(key, (len(x0), 2 * d + 4 * c))
    z, again = normal_scores(uniform[:, :d]), normal_scores(uniform[:, d : 2 * d])
    swaps = jnp.split(uniform[:, 2 * d :], [2 * c], axis=1)
    own = jnp.sqrt(p["next"]) * x0 + jnp.sqrt(1 - p["next"]) * z
    numbers = jnp.where(number_known, own, numbers)
    codes = jnp.where(code_known, _forward(swaps[0], groups, c0, p["next"]), codes)
    a = p["kept"] / p["next"]
    numbers = jnp.where(p["back"], jnp.sqrt(a) * numbers + jnp.sqrt(1 - a) * again, numbers)
    return numbers, jnp.where(p["back"], _forward(swaps[1], groups, codes, a), codes)


def _forward(uniform: Array, groups: Groups, codes: Array, kept: Array) -> Array:
    pairs = jnp.stack(jnp.split(uniform, 2, axis=1))
    return forward_codes(pairs, codes, kept, Options(groups).sizes)
