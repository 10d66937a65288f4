"""Noise schedules of diffusion models, and the walk back from noise to rows.

Time runs from 0 (a little noise) to T - 1 (nearly only noise); the clean row lies before time 0.
`kept[t]` is the share of the clean row's variance that is left at time t, the papers' ᾱ_t.

Every sampler of the Gaussian part is affine in what it knows, so a sampler is a table:

    x_s = A x_t + B x̂_0 + C x̂_0(last step) + D z,   z ~ N(0, I).

Ancestral steps are Ho, Jain & Abbeel 2020, their strided and deterministic relatives are DDIM
(Song, Meng & Ermon 2021), and the second-order multistep solver is DPM-Solver++(2M), of the
deterministic equation or of the stochastic one (Lu et al. 2022). Tables are computed in float64 and
used in float32; the walk is compiled as one scan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from siloweave.errors import InputError
from siloweave.models.denoiser import (
    Denoiser,
    NumberHead,
    grouped,
    inputs,
    joined,
    normal_scores,
    outputs,
)
from siloweave.models.multinomial import (
    Groups,
    Options,
    draw,
    forward_codes,
    posterior,
    uniform_codes,
)
from siloweave.models.nets import Array
from siloweave.models.settings import SCHEDULES

Floats = npt.NDArray[np.float64]
SAMPLERS = ("ancestral", "ddim", "solver")
"""Names of the samplers."""
_LARGEST_BETA = 0.999
_SPACING = 1.5  # measured on normals of spreads 0.05 to 1: evens out the solver's errors
_FURTHEST = 0.5  # extrapolation by no more than a step as long as the last one
_SOLVER_START = 1e-4  # share of variance left where fast samplers start; with less, x̂_0 is noise


def kept_variance(schedule: str, timesteps: int) -> Floats:
    """Share of the clean variance left at each time, (T,): strictly decreasing, in (0, 1).

    The schedule is "cosine" (Nichol & Dhariwal 2021, β capped at 0.999) or "linear" (Ho et al.
    2020, β from 1e-4 to 0.02 at T = 1000, scaled with 1000 / T otherwise); T is at least 2.
    """
    if timesteps < 2:
        raise InputError(f"timesteps={timesteps} is too few: give at least 2, usually 100 to 1000")
    if schedule == "cosine":
        clock = (np.arange(timesteps + 1) / timesteps + 0.008) / 1.008
        left = np.cos(clock * np.pi / 2) ** 2
        beta = 1.0 - left[1:] / left[:-1]
    elif schedule == "linear":
        scale = 1000 / timesteps
        beta = np.linspace(1e-4 * scale, 0.02 * scale, timesteps)
    else:
        raise InputError(f"schedule={schedule!r} is not known: choose one of {SCHEDULES}")
    return np.asarray(np.cumprod(1.0 - np.minimum(beta, _LARGEST_BETA)), dtype=np.float64)


@dataclass(frozen=True)
class Walk:
    """The k steps of one sampler, in their order; all fields are (k,)."""

    times: npt.NDArray[np.int32]  # times t at which the network is evaluated; the last is 0
    kept: Floats  # ᾱ at those times
    kept_next: Floats  # ᾱ_s after each step; 1 after the last
    x: Floats  # the coefficients A
    clean: Floats  # B
    last: Floats  # C
    noise: Floats  # D


def walk(kept: Floats, sampler: str, steps: int | None = None, eta: float = 0.0) -> Walk:
    """Plan the walk from noise to a clean row.

    Args:
        kept: ᾱ of every time, as `kept_variance` gives it.
        sampler: "ancestral" (all of its noise comes back), "ddim" (a share `eta` of it), or
            "solver" (alike, of second order). The plan holds for the Gaussian part; discrete
            columns draw from their posterior over the same times.
        steps: Times visited, at most T; None is all T for "ancestral", else 50. Unless all T are
            visited, the walk starts where a ten-thousandth of the variance is left.
        eta: For "ddim" and "solver": 0 is deterministic, 1 has the noise of the ancestral sampler.

    Raises:
        InputError: For an unknown sampler, steps not in 2 ... T, or `eta` not in [0, 1].
    """
    T = len(kept)
    if sampler not in SAMPLERS:
        raise InputError(f"sampler={sampler!r} is not known: choose one of {SAMPLERS}")
    if not 0 <= eta <= 1:
        raise InputError(f"eta={eta!r} is not in [0, 1]: 0 is deterministic, 1 has all the noise")
    steps = steps or (T if sampler == "ancestral" else min(50, T))
    if not 2 <= steps <= T:
        raise InputError(
            f"steps={steps} of the sampler is not in 2 ... {T}: the model was trained on {T} "
            "timesteps"
        )
    whole = sampler == "ancestral" and steps == T
    first = T - 1 if whole else max(int(np.sum(kept >= _SOLVER_START)) - 1, 1)
    times = _times(first, min(steps, first + 1))
    a, a_next = kept[times], np.append(kept[times[1:]], 1.0)
    if sampler == "solver":
        return Walk(times, a, a_next, *_multistep(a, a_next, eta))
    return Walk(times, a, a_next, *_implicit(a, a_next, 1.0 if sampler == "ancestral" else eta))


def _times(first: int, steps: int) -> npt.NDArray[np.int32]:
    """Times from `first` to 0, closer together towards 0 where there is room to choose."""
    power = 1.0 if steps == first + 1 else _SPACING
    times = np.round(np.linspace(first ** (1 / power), 0, steps) ** power)
    later = np.arange(steps)[::-1]  # a time is at least as many steps from 0 as it has to walk
    return np.asarray(np.maximum(times, later), dtype=np.int32)


def _implicit(a: Floats, a_next: Floats, eta: float) -> tuple[Floats, Floats, Floats, Floats]:
    """DDIM's step; eta = 1 is the posterior of the forward chain between the two times."""
    noise = eta * np.sqrt((1 - a_next) / (1 - a) * (1 - a / a_next))
    x = np.sqrt(np.maximum(1 - a_next - noise**2, 0.0) / (1 - a))
    return x, np.sqrt(a_next) - x * np.sqrt(a), np.zeros_like(a), noise


def _multistep(a: Floats, a_next: Floats, eta: float) -> tuple[Floats, Floats, Floats, Floats]:
    """DPM-Solver++(2M), and its SDE form: DDIM's step, the clean row extrapolated linearly.

    Linearly in the log signal-to-noise ratio, to the middle of the step. The first step has no past
    and the last ends at an infinite ratio; both are first order.
    """
    x, clean, last, noise = _implicit(a, a_next, eta)
    ratio = 0.5 * np.log(a / (1 - a))
    h = np.diff(ratio)  # of the steps but the last
    inner = slice(1, len(a) - 1)
    half = np.minimum(0.5 * h[1:] / h[:-1], _FURTHEST)  # 1 / (2 r), r = last length / this one
    whole = clean[inner].copy()
    clean[inner], last[inner] = whole * (1 + half), -whole * half
    return x, clean, last, noise


def table(way: Walk, times: int, T: int) -> dict[str, Array]:
    """The walk as arrays to scan over, each step `times` times; `back`: whether to step back."""
    columns = {**vars(way), "times": way.times * (1000 / T)}
    found = {name: np.repeat(column, times) for name, column in columns.items()}
    back = np.tile(np.arange(times) < times - 1, len(way.times))
    return {
        "back": jnp.asarray(back),
        **{name: jnp.asarray(v.astype(np.float32)) for name, v in found.items()},
    }


_Carry = tuple[Array, Array, Array]


@dataclass(frozen=True)
class ReverseKind:
    """What is compiled in: rows, how numbers are read, and groups of categoricals."""

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
    ranges: tuple[Array, Array],
    kind: ReverseKind,
) -> tuple[Array, Array]:
    """From noise to clean rows: numbers (n, d) and codes (n, c)."""
    n, reading, groups = kind.rows, kind.numbers, kind.groups
    d = reading.count
    keys = jax.random.split(key, 1 + len(plan["times"]))
    uniform = jax.random.uniform(keys[0], (n, d + sum(count for count, _ in groups)))
    codes = uniform_codes(uniform[:, d:], Options(groups).sizes)
    start = (normal_scores(uniform[:, :d]), codes, jnp.zeros((n, d)))

    def step(carry: _Carry, now: tuple[dict[str, Array], Array]) -> tuple[_Carry, None]:
        (numbers, codes, last), (p, key) = carry, now
        drawing, replacing = (key, key) if given is None else jax.random.split(key)
        uniform = jax.random.uniform(drawing, (n, d + codes.shape[1]))
        seen = reading.seen(numbers, p["kept"])
        out = net(inputs(groups, seen, codes), p["times"][None], labels)
        of_numbers, logs = outputs(groups, out, reading.outputs)
        clean = jnp.clip(reading.clean(of_numbers, numbers, p["kept"]), *ranges)
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
    """Categoricals one step earlier, from the posterior."""
    parts = zip(grouped(groups, uniform), logs, grouped(groups, codes), strict=True)
    drawn = [draw(u, posterior(log, part, p["kept"], p["kept_next"])) for u, log, part in parts]
    return joined(drawn, len(codes))


def _replaced(
    key: Array,
    groups: Groups,
    drawn: tuple[Array, Array],
    given: tuple[Array, ...],
    p: dict[str, Array],
) -> tuple[Array, Array]:
    """Given values at this step's noise instead of the drawn ones; a step back if planned."""
    (numbers, codes), (x0, c0, number_known, code_known) = drawn, given
    d, c, sizes = x0.shape[1], c0.shape[1], Options(groups).sizes
    uniform = jax.random.uniform(key, (len(x0), 2 * d + 4 * c))
    z, again = normal_scores(uniform[:, :d]), normal_scores(uniform[:, d : 2 * d])
    swaps = jnp.moveaxis(uniform[:, 2 * d :].reshape(len(x0), 4, c), 1, 0)
    own = jnp.sqrt(p["kept_next"]) * x0 + jnp.sqrt(1 - p["kept_next"]) * z
    numbers = jnp.where(number_known, own, numbers)
    own_codes = forward_codes(swaps[:2], c0, p["kept_next"], sizes)
    codes = jnp.where(code_known, own_codes, codes)
    a = p["kept"] / p["kept_next"]
    numbers = jnp.where(p["back"], jnp.sqrt(a) * numbers + jnp.sqrt(1 - a) * again, numbers)
    return numbers, jnp.where(p["back"], forward_codes(swaps[2:], codes, a, sizes), codes)
