"""TabDDPM: diffusion of mixed rows (Kotelnikov, Baranchuk, Rubachev & Babenko 2023).

Numbers get Gaussian noise (Ho, Jain & Abbeel 2020), categoricals are replaced by uniform draws
(Hoogeboom et al. 2021, see `denoiser`), and one dense network undoes both: it predicts the noise of
the numbers and the log-probabilities of the clean options. A column that the caller names as labels
is not diffused: the network is conditioned on it, and sampling draws it from its distribution in
the data.

Time runs from 0 (a little noise) to T - 1 (nearly only noise); the clean row lies before time 0.
`kept[t]` is the share of the clean row's variance that is left at time t, the papers' ᾱ_t. Every
sampler of the Gaussian part is affine in what it knows, so a sampler is a table:

    x_s = A x_t + B x̂_0 + C x̂_0(last step) + D z,   z ~ N(0, I).

Ancestral steps are Ho, Jain & Abbeel 2020, their strided and deterministic relatives are DDIM
(Song, Meng & Ermon 2021), and the second-order multistep solver is DPM-Solver++(2M), of the
deterministic equation or of the stochastic one (Lu et al. 2022). Tables are computed in float64 and
used in float32; the walk is compiled as one scan.

Where this departs from the authors' code: sampling uses the averaged weights (theirs has an average
and samples without it), hidden units are SiLU, noisy categoricals enter as zeros and ones instead
of log-probabilities of -69 and 0, the times of one batch are spread evenly instead of drawn
independently, and categoricals are learnt by a cross-entropy whose optimum is the bound's
(``choices="bound"`` is the paper's; decision 0018).

With `DiffusionSettings.matched`, which no paper has, numbers are rescaled at every step of a walk
to the mean and spread that the rows have at that step's noise. A network that was trained on a few
thousand rows answers too weakly to rows that it has not met, so that drawn numbers spread less than
real ones, step by step. (Ning et al. 2024, "Elucidating the exposure bias in diffusion models",
scale the network's answer for a like reason.) Sphere codes are not rescaled: a pilot has too few
rows of a rare category to say how far its code should spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from siloweave.errors import InputError, whole
from siloweave.models.denoiser import (
    Denoiser,
    NumberHead,
    Rows,
    draw,
    forward_codes,
    grouped,
    inputs,
    joined,
    normal_scores,
    outputs,
    posterior,
    row_losses,
    uniform_codes,
)
from siloweave.models.nets import (
    Array,
    Groups,
    Options,
    ResidualBlocks,
    fresh,
    load_arrays,
    padded,
    pieces,
    save_arrays,
)
from siloweave.models.settings import SCHEDULES, DiffusionSettings
from siloweave.models.train import Descent, Look
from siloweave.progress import Progress, silent
from siloweave.tables.arrays import Floats, Matrix
from siloweave.tables.features import Block, Layout, SphereCode, SphereCodes

SAMPLERS = ("ancestral", "ddim", "solver")
"""Names of the samplers."""
Ranges = tuple[tuple[float, float], ...]
_CHUNK = 2048  # rows denoised at once; more does not fit the caches
_LARGEST_BETA = 0.999  # Nichol & Dhariwal 2021, section 3.2
# Measured on normals of spreads 0.05 to 1: evens out the solver's errors.
_SPACING = 1.5
_FURTHEST = 0.5  # extrapolation by no more than a step as long as the last one
# Share of variance left where fast samplers start; with less, x̂_0 is noise.
_SOLVER_START = 1e-4
# Rows of a pilot walk: with 512, chance moves a spread by some three per cent.
_FEWEST_PILOT = 512
_PILOT = 1  # which key of a fit's is that of its pilot walk
_LEAST_SPREAD = 1e-6  # of numbers that are divided by their spread


# Noise schedules, and the walk back from noise to rows


def kept_variance(schedule: str, timesteps: int) -> Floats:
    """Return the share of clean variance left at each time, (T,): strictly decreasing, in (0, 1).

    The schedule is "cosine" (Nichol & Dhariwal 2021, β capped at 0.999) or "linear" (Ho et al.
    2020, β from 1e-4 to 0.02 at T = 1000, scaled with 1000 / T otherwise); T is at least 2.
    """
    if timesteps < 2:
        raise InputError(
            f"timesteps={timesteps} is too few: give at least 2, usually 100 to 1000"
        )
    if schedule == "cosine":
        # Nichol & Dhariwal 2021, equation 17, with their offset s = 0.008.
        clock = (np.arange(timesteps + 1) / timesteps + 0.008) / 1.008
        variance = np.cos(clock * np.pi / 2) ** 2
        beta = 1.0 - variance[1:] / variance[:-1]
    elif schedule == "linear":
        scale = 1000 / timesteps
        beta = np.linspace(1e-4 * scale, 0.02 * scale, timesteps)
    else:
        raise InputError(
            f"schedule={schedule!r} is not known: choose one of {SCHEDULES}"
        )
    alpha = 1.0 - np.minimum(beta, _LARGEST_BETA)
    return np.asarray(np.cumprod(alpha), dtype=np.float64)


@dataclass(frozen=True)
class Walk:
    """The k steps of one sampler, in their order; all fields are (k,)."""

    # Times t at which the network is evaluated; the last is 0.
    times: npt.NDArray[np.int32]
    kept: Floats  # ᾱ at those times
    kept_next: Floats  # ᾱ_s after each step; 1 after the last
    x: Floats  # the coefficients A
    clean: Floats  # B
    last: Floats  # C
    noise: Floats  # D


class _Coefficients(NamedTuple):
    """The last four fields of a `Walk`."""

    x: Floats
    clean: Floats
    last: Floats
    noise: Floats


def walk(
    alpha_bars: Floats, sampler: str, steps: int | None = None, eta: float = 0.0
) -> Walk:
    """Plan the walk from noise to a clean row.

    Args:
        alpha_bars: ᾱ of every time, as `kept_variance` gives it.
        sampler: "ancestral" (all of its noise comes back), "ddim" (a share `eta` of it), or
            "solver" (alike, of second order). The plan holds for the Gaussian part; discrete
            columns draw from their posterior over the same times.
        steps: Times visited, at most T; None is all T for "ancestral", else 50. Unless "ancestral"
            visits all T, the walk starts where a ten-thousandth of the variance is left.
        eta: For "ddim" and "solver": 0 is deterministic, 1 has the noise of the ancestral sampler.

    Raises:
        InputError: For an unknown sampler, steps not in 2 ... T, or `eta` not in [0, 1].
    """
    T = len(alpha_bars)
    if sampler not in SAMPLERS:
        raise InputError(f"sampler={sampler!r} is not known: choose one of {SAMPLERS}")
    if not 0 <= eta <= 1:
        raise InputError(
            f"eta={eta!r} is not in [0, 1]: 0 is deterministic, 1 has all the noise"
        )
    is_ancestral = sampler == "ancestral"
    if not steps:
        steps = T if is_ancestral else min(50, T)
    if not 2 <= steps <= T:
        raise InputError(
            f"steps={steps} of the sampler is not in 2 ... {T}: the model was trained on {T} "
            "timesteps"
        )

    first = T - 1
    if not is_ancestral or steps < T:
        with_signal = int(np.sum(alpha_bars >= _SOLVER_START))
        first = max(with_signal - 1, 1)
    times = _times(first, min(steps, first + 1))

    a = alpha_bars[times]
    a_next = np.append(alpha_bars[times[1:]], 1.0)
    if sampler == "solver":
        coefficients = _multistep(a, a_next, eta)
    elif sampler == "ddim":
        coefficients = _implicit(a, a_next, eta)
    else:
        coefficients = _implicit(a, a_next, 1.0)
    return Walk(times, a, a_next, *coefficients)


def _times(first: int, steps: int) -> npt.NDArray[np.int32]:
    """Return the times from `first` to 0, closer together towards 0 where there is room."""
    power = _SPACING
    if steps == first + 1:
        power = 1.0  # every time is visited
    even = np.linspace(first ** (1 / power), 0, steps)
    times = np.round(even**power)
    # Rounding may repeat a time near 0. A time is at least as many steps from 0 as it has to walk.
    steps_to_go = np.arange(steps)[::-1]
    return np.asarray(np.maximum(times, steps_to_go), dtype=np.int32)


def _implicit(a: Floats, a_next: Floats, eta: float) -> _Coefficients:
    """Return DDIM's step; eta = 1 is the posterior of the forward chain between the two times."""
    # Song, Meng & Ermon 2021: σ of equation 16, then equation 12. The predicted noise there is
    # (x_t - √ᾱ_t x̂_0) / √(1 - ᾱ_t), so its factor is shared out between x_t and x̂_0.
    noise = eta * np.sqrt((1 - a_next) / (1 - a) * (1 - a / a_next))
    x = np.sqrt(np.maximum(1 - a_next - noise**2, 0.0) / (1 - a))
    clean = np.sqrt(a_next) - x * np.sqrt(a)
    return _Coefficients(x, clean, np.zeros_like(a), noise)


def _multistep(a: Floats, a_next: Floats, eta: float) -> _Coefficients:
    """Return DPM-Solver++(2M), and its SDE form: DDIM's step, the clean row extrapolated linearly.

    Linearly in the log signal-to-noise ratio, to the middle of the step. The first step has no past
    and the last ends at an infinite ratio; both are first order.
    """
    x, clean, last, noise = _implicit(a, a_next, eta)
    # Lu et al. 2022, Algorithm 2: λ, h, and D = (1 + 1 / 2r) x̂_0 - (1 / 2r) x̂_0(last step), where
    # r is the last step's length by this one's; `half` is 1 / 2r.
    log_ratio = 0.5 * np.log(a / (1 - a))
    h = np.diff(log_ratio)  # of the steps but the last
    half = np.minimum(0.5 * h[1:] / h[:-1], _FURTHEST)
    inner = slice(1, len(a) - 1)
    first_order = clean[inner].copy()
    clean[inner] = first_order * (1 + half)
    last[inner] = -first_order * half
    return _Coefficients(x, clean, last, noise)


def table(steps: Walk, repeats: int, T: int) -> dict[str, Array]:
    """Return a walk as arrays to scan over, each step `repeats` times.

    Columns are the walk's fields, with times on the network's clock, 0 to 1000; and `back`, whether
    a step is undone afterwards, to be walked again.
    """
    columns = {**vars(steps), "times": steps.times * (1000 / T)}
    is_repeated = np.arange(repeats) < repeats - 1
    plan = {"back": jnp.asarray(np.tile(is_repeated, len(steps.times)))}
    for name, column in columns.items():
        repeated = np.repeat(column, repeats)
        plan[name] = jnp.asarray(repeated.astype(np.float32))
    return plan


# Numbers, codes, and the last step's clean numbers.
_Carry = tuple[Array, Array, Array]


class _FixedCells(NamedTuple):
    """Cells of rows that are not drawn."""

    numbers: Array  # (n, d); any value where not fixed
    codes: Array  # (n, c), alike
    is_fixed_number: Array  # (n, d) truth values
    is_fixed_code: Array  # (n, c)

    def any(self) -> bool:
        """Return whether a cell of any row is fixed."""
        return bool(self.is_fixed_number.any() or self.is_fixed_code.any())


@dataclass(frozen=True)
class ReverseKind:
    """What is compiled in: rows, how numbers are read, and groups of categoricals."""

    rows: int
    numbers: NumberHead
    groups: Groups


class Moments(NamedTuple):
    """The mean and spread of the numbers of clean rows, and which of them are plain numbers."""

    mean: Array  # (d,)
    spread: Array  # (d,) standard deviations
    is_plain: Array  # (d,) truth values: no part of a sphere code

    def scaling(self, numbers: Array, kept: Array) -> dict[str, Array]:
        """Return the gain and shift that give noisy numbers the moments that rows have there.

        `kept` is the share of the clean rows' variance at the numbers' noise. Parts of sphere codes
        keep the moments that they have.
        """
        mean = jnp.sqrt(kept) * self.mean
        spread = jnp.sqrt(kept * self.spread**2 + 1 - kept)
        gain = spread / jnp.maximum(numbers.std(0), _LEAST_SPREAD)
        shift = mean - gain * numbers.mean(0)
        return {
            "gain": jnp.where(self.is_plain, gain, 1.0),
            "shift": jnp.where(self.is_plain, shift, 0.0),
        }


class ReverseWalk(NamedTuple):
    """What a walk from noise to clean rows begins with."""

    net: Denoiser
    plan: dict[str, Array]  # a `table` of steps
    key: Array
    labels: Array  # (n,)
    ranges: tuple[Array, Array]  # ends of clean numbers, from below and above


@partial(jax.jit, static_argnames="kind")
def denoise(
    reverse: ReverseWalk, fixed: _FixedCells | None, kind: ReverseKind
) -> tuple[Array, Array]:
    """Walk from noise to clean rows: numbers (n, d) and codes (n, c)."""
    rows, _ = _walked(reverse, kind, fixed=fixed)
    return rows


@partial(jax.jit, static_argnames="kind")
def scalings(
    reverse: ReverseWalk, moments: Moments, kind: ReverseKind
) -> dict[str, Array]:
    """Walk as `denoise` does, matched to `moments`, and return every step's gain and shift.

    Each is (steps, d). What earlier steps lacked is made good before a later one is measured.
    """
    _, scaling = _walked(reverse, kind, moments=moments)
    return scaling


def _walked(
    reverse: ReverseWalk,
    kind: ReverseKind,
    *,
    fixed: _FixedCells | None = None,
    moments: Moments | None = None,
) -> tuple[tuple[Array, Array], dict[str, Array]]:
    """Return the rows at the end of a walk, and how numbers were scaled at every step of it.

    Numbers are scaled as the plan says, or, where there are moments, to these.
    """
    net, plan, first_key, labels, ranges = reverse
    n = kind.rows
    head = kind.numbers
    groups = kind.groups
    d = head.count
    c = sum(count for count, _ in groups)
    keys = jax.random.split(first_key, 1 + len(plan["times"]))

    # Pure noise: standard normal numbers, and uniform codes.
    uniform = jax.random.uniform(keys[0], (n, d + c))
    codes = uniform_codes(uniform[:, d:], Options(groups).sizes)
    start = (normal_scores(uniform[:, :d]), codes, jnp.zeros((n, d)))

    def step(
        carry: _Carry, step_input: tuple[dict[str, Array], Array]
    ) -> tuple[_Carry, dict[str, Array]]:
        numbers, codes, last = carry
        now, key = step_input
        drawing_key = key
        if fixed is not None:
            drawing_key, fixing_key = jax.random.split(key)
        uniform = jax.random.uniform(drawing_key, (n, d + codes.shape[1]))

        # What the network says of the clean row.
        numbers_input = head.network_input(numbers, now["kept"], last)
        x = inputs(groups, numbers_input, codes)
        out = net(x, now["times"][None], labels)
        of_numbers, logs = outputs(groups, out, head.outputs)
        clean = head.clean(of_numbers, numbers, now["kept"])
        clean = jnp.clip(clean, *ranges)

        # One step earlier: x_s = A x_t + B x̂_0 + C x̂_0(last step) + D z, codes by posterior.
        z = normal_scores(uniform[:, :d])
        earlier = now["x"] * numbers + now["clean"] * clean
        earlier = earlier + now["last"] * last + now["noise"] * z
        earlier_codes = _earlier_codes(uniform[:, d:], groups, logs, codes, now)
        if fixed is not None:
            earlier, earlier_codes = _with_fixed(
                fixing_key, groups, (earlier, earlier_codes), fixed, now
            )

        # Numbers get the mean and spread of rows with as much noise.
        scaling: dict[str, Array] = {}
        if "gain" in now:
            scaling = {"gain": now["gain"], "shift": now["shift"]}
        if moments is not None:
            scaling = moments.scaling(earlier, now["kept_next"])
        if scaling:
            earlier = scaling["gain"] * earlier + scaling["shift"]
        return (earlier, earlier_codes, clean), scaling

    end, scaling = jax.lax.scan(step, start, (plan, keys[1:]))
    numbers, codes, _ = end
    return (numbers, codes), scaling


def _earlier_codes(
    uniform: Array,
    groups: Groups,
    logs: list[Array],
    codes: Array,
    now: dict[str, Array],
) -> Array:
    """Draw categoricals one step earlier, from the posterior."""
    uniform_parts = grouped(groups, uniform)
    code_parts = grouped(groups, codes)
    earlier = []
    for u, log_x0, part in zip(uniform_parts, logs, code_parts, strict=True):
        log_p = posterior(log_x0, part, now["kept"], now["kept_next"])
        earlier.append(draw(u, log_p))
    return joined(earlier, len(codes))


def _with_fixed(
    key: Array,
    groups: Groups,
    rows: tuple[Array, Array],
    fixed: _FixedCells,
    now: dict[str, Array],
) -> tuple[Array, Array]:
    """Overwrite fixed cells by themselves at this step's noise; go a step back where planned."""
    numbers, codes = rows
    n, d = fixed.numbers.shape
    c = fixed.codes.shape[1]
    sizes = Options(groups).sizes
    uniform = jax.random.uniform(key, (n, 2 * d + 4 * c))
    z = normal_scores(uniform[:, :d])
    z_back = normal_scores(uniform[:, d : 2 * d])
    swaps = uniform[:, 2 * d :].reshape(n, 4, c)
    swaps = jnp.moveaxis(swaps, 1, 0)

    # Lugmayr et al. 2022, equation 8: fixed cells come from the forward chain, others from the
    # walk.
    alpha_bar = now["kept_next"]
    fixed_numbers = jnp.sqrt(alpha_bar) * fixed.numbers + jnp.sqrt(1 - alpha_bar) * z
    numbers = jnp.where(fixed.is_fixed_number, fixed_numbers, numbers)
    fixed_codes = forward_codes(swaps[:2], fixed.codes, alpha_bar, sizes)
    codes = jnp.where(fixed.is_fixed_code, fixed_codes, codes)

    # Their Algorithm 1, line 10: back to the noise before this step, to walk it again.
    survival = now["kept"] / now["kept_next"]
    later = jnp.sqrt(survival) * numbers + jnp.sqrt(1 - survival) * z_back
    numbers = jnp.where(now["back"], later, numbers)
    later_codes = forward_codes(swaps[2:], codes, survival, sizes)
    codes = jnp.where(now["back"], later_codes, codes)
    return numbers, codes


# The model


def _in_blocks(net: Denoiser) -> Any:
    """Return for each array of a denoiser, or of a step of one, whether a residual block has it."""
    assert isinstance(net.body, ResidualBlocks)
    nowhere = jax.tree.map(lambda _: False, net)
    blocks = jax.tree.map(lambda _: True, net.body.blocks)
    return eqx.tree_at(lambda denoiser: denoiser.body.blocks, nowhere, blocks)


class _Descent(Descent):
    sphere_codes: SphereCodes = eqx.field(static=True, default=())

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """That of all descents, but residual blocks move at their own rate."""
        moving = super().optimiser
        block_rate = self.settings.block_rate
        if block_rate == 1:
            return moving
        return optax.chain(moving, optax.masked(optax.scale(block_rate), _in_blocks))

    def losses(self, net: Denoiser, rows: Rows, key: Array) -> Array:
        settings = self.settings
        alpha_bars = kept_variance(settings.schedule, settings.timesteps)
        return row_losses(
            net, rows, key, self.groups, alpha_bars, settings, self.sphere_codes
        )


class TabDDPMModel(eqx.Module):
    """A fitted diffusion model."""

    net: Denoiser  # the denoiser with averaged weights
    layout: Layout = eqx.field(static=True)  # all blocks of a row
    settings: DiffusionSettings = eqx.field(static=True)  # those of the fit
    # That conditions the network.
    label: Block | None = eqx.field(static=True, default=None)
    label_shares: tuple[float, ...] = eqx.field(static=True, default=())  # in the data
    # Of each number; sampling clips to them.
    ranges: Ranges = eqx.field(static=True, default=())
    # At rows held back, in training.
    looks: tuple[Look, ...] = eqx.field(static=True, default=())
    # Gain and shift of the numbers at every step of the default walk, (steps, d) each, by name;
    # empty where nothing is matched.
    scaling: dict[str, Array] = eqx.field(default_factory=dict)

    @property
    def diffused(self) -> Layout:
        """The blocks that noise is added to."""
        return self.layout.without(self.label)

    def sample(
        self,
        n: int,
        *,
        key: Array,
        sampler: str | None = None,
        steps: int | None = None,
        eta: float | None = None,
        given: Matrix | None = None,
        resamples: int = 1,
    ) -> Matrix:
        """Draw rows, (n, width) float32, categoricals one-hot.

        Columns that are given are handled by replacement: at every step they are overwritten by
        themselves at that step's noise, and the other columns follow (RePaint, Lugmayr et al.
        2022). That is not the exact conditional distribution; walking every step `resamples` times
        comes closer. A given label is exact, because the network is conditioned on it.

        Args:
            n: Rows.
            key: A key of JAX.
            sampler: See `walk`; None is "solver", or "ddim" with `eta` 1
                where columns are given.
            steps: Times visited; None is 50, or all of them for "ancestral".
            eta: Noise of "solver" and "ddim", 0 to 1; None is that of the settings.
            given: (n, width) as the features encode it, NaN where a value is to be drawn.
            resamples: How often each step is walked when columns are given.

        Raises:
            InputError: For a sampler, `steps`, `eta`, `given` or `resamples` that cannot be used.
        """
        whole("n", n)
        has_given = given is not None
        plan = self._plan(sampler, steps, eta, resamples, has_given=has_given)
        label_key, key = jax.random.split(key)
        labels = self._labels(n, label_key, given)
        fixed = self._fixed_cells(n, given)
        # Scaling was measured on this very walk; given cells are exact, and others follow them.
        is_default = sampler in (None, "solver") and steps is None and eta is None
        if is_default and (fixed is None or not fixed.any()):
            plan = plan | self.scaling

        chunks = []
        for i, (start, stop, size) in enumerate(pieces(n, _CHUNK)):
            chunk_labels, chunk_fixed = padded((labels, fixed), start, stop, size)
            chunk_key = jax.random.fold_in(key, i)
            chunk_walk = ReverseWalk(
                self.net, plan, chunk_key, chunk_labels, self._ends
            )
            out = denoise(chunk_walk, chunk_fixed, self._reverse_kind(size))
            chunks.append(jax.tree.map(np.asarray, out))
        return self._joined(n, chunks, labels)

    @property
    def _ends(self) -> tuple[Array, Array]:
        """The lower and the upper end of every number's range."""
        low, high = jnp.asarray(np.reshape(self.ranges, (-1, 2)).T, jnp.float32)
        return low, high

    def _reverse_kind(self, rows: int) -> ReverseKind:
        """Return what is compiled into a walk of so many rows."""
        head = _number_head(self.diffused, self.settings)
        return ReverseKind(rows, head, self.diffused.groups)

    def matched_to(
        self, num_rows: int, mean: Floats, spread: Floats, *, key: Array
    ) -> TabDDPMModel:
        """Return the model with scalings that a pilot walk shows to be needed.

        The pilot draws as many rows as were learned from, but `_FEWEST_PILOT` at least, and
        `settings.matched` at most.

        Args:
            num_rows: How many rows were learned from.
            mean: Of their numbers, as the network sees these; (d,).
            spread: Their standard deviations, (d,).
            key: Which trained the network.
        """
        pilot = min(self.settings.matched, max(num_rows, _FEWEST_PILOT))
        kind = self._reverse_kind(pilot)
        is_plain = np.isin(np.arange(kind.numbers.count), kind.numbers.plain)
        if not is_plain.any():
            return self

        plan = self._plan(None, None, None, 1, has_given=False)
        label_key, walk_key = jax.random.split(jax.random.fold_in(key, _PILOT))
        labels = self._labels(pilot, label_key, None)
        pilot_walk = ReverseWalk(self.net, plan, walk_key, labels, self._ends)
        moments = Moments(
            jnp.asarray(mean, jnp.float32),
            jnp.asarray(spread, jnp.float32),
            jnp.asarray(is_plain),
        )
        scaling = scalings(pilot_walk, moments, kind)
        return replace(self, scaling=scaling)

    def _plan(
        self,
        sampler: str | None,
        steps: int | None,
        eta: float | None,
        resamples: int,
        *,
        has_given: bool,
    ) -> dict[str, Array]:
        """Return the steps of a walk as `denoise` scans them; raises InputError."""
        if eta is None:
            eta = self.settings.eta
        if sampler is None and has_given:
            # As in RePaint all of DDPM's noise comes back: with it the other columns follow.
            sampler = "ddim"
            eta = 1.0
        elif sampler is None:
            sampler = "solver"
        # The solver extrapolates over two steps, whose spacing a step back would break.
        can_resample = has_given and sampler != "solver"
        if resamples < 1 or (resamples > 1 and not can_resample):
            raise InputError(
                f"resamples={resamples} cannot be used here: it is 1 or more, and above 1 only "
                "with given columns and the sampler 'ddim' or 'ancestral'"
            )
        timesteps = self.settings.timesteps
        alpha_bars = kept_variance(self.settings.schedule, timesteps)
        return table(walk(alpha_bars, sampler, steps, eta), resamples, timesteps)

    def _labels(self, n: int, key: Array, cells: Matrix | None) -> Array:
        """Draw the label of each row by its shares, or return the one that its cells name, (n,)."""
        if self.label is None:
            return jnp.zeros(n, jnp.int32)
        shares = np.asarray(self.label_shares)
        p = jnp.asarray(shares / shares.sum())
        labels = jax.random.choice(key, len(shares), (n,), p=p)
        if cells is None:
            return labels
        flags = np.asarray(cells)[:, self.label.start : self.label.stop]
        is_named = ~np.isnan(flags).any(1)
        named_labels = np.nan_to_num(flags).argmax(1)
        return jnp.where(is_named, named_labels, labels)

    def _fixed_cells(self, n: int, cells: Matrix | None) -> _FixedCells | None:
        """Return the cells that are no NaN, None for no cells; raises InputError."""
        if cells is None:
            return None
        cells = np.asarray(cells, dtype=np.float32)
        if cells.shape != (n, self.layout.width):
            raise InputError(
                f"given has shape {cells.shape}, but {n} rows need ({n}, {self.layout.width})"
            )
        masks: Any = self.diffused.known(cells)
        parts: Any = self.diffused.split(np.nan_to_num(cells))
        return _FixedCells(*parts, *masks)

    def _joined(self, n: int, chunks: list[tuple[Any, Any]], labels: Array) -> Matrix:
        """Return n rows from numbers and codes of padded chunks, and their labels."""
        if not chunks:
            return np.zeros((0, self.layout.width), dtype=np.float32)
        numbers = np.concatenate([chunk_numbers for chunk_numbers, _ in chunks])[:n]
        codes = np.concatenate([chunk_codes for _, chunk_codes in chunks])[:n]
        if not np.isfinite(numbers).all():
            raise InputError("the model drew numbers that are not finite: fit it again")
        X = self.diffused.join(numbers, codes, self.layout.width)
        if self.label is not None:
            X[np.arange(n), self.label.start + np.asarray(labels)] = 1.0
        return X

    def facts(self) -> dict[str, Any]:
        """Return what a file says of the model beside its blocks; `of_facts` reads it."""
        facts: dict[str, Any] = {"label_shares": list(self.label_shares)}
        facts["ranges"] = self.ranges
        # Files without looks or scaling, as older ones are, have no such entries.
        if self.looks:
            facts["looks"] = self.looks
        if self.scaling:
            facts["scaled_steps"] = len(self.scaling["gain"])
        return facts

    @classmethod
    def of_facts(
        cls,
        facts: Mapping[str, Any],
        layout: Layout,
        settings: DiffusionSettings,
        label: Block | None,
    ) -> TabDDPMModel:
        """Return a model with first weights instead of its own."""
        shares = tuple(facts["label_shares"])
        ranges = tuple((low, high) for low, high in facts["ranges"])
        looks = tuple(Look(*look) for look in facts.get("looks", ()))
        net = network(layout, settings, label)
        scaling = {}
        if "scaled_steps" in facts:
            # Where it differs from the default walk's, the file's arrays do not fit.
            alpha_bars = kept_variance(settings.schedule, settings.timesteps)
            steps = len(walk(alpha_bars, "solver").times)
            shape = (steps, len(layout.without(label).numbers))
            scaling = {"gain": jnp.ones(shape), "shift": jnp.zeros(shape)}
        return cls(net, layout, settings, label, shares, ranges, looks, scaling)

    def save(self, path: Path) -> None:
        """Write one safetensors file: arrays, settings and blocks."""
        facts = {
            "model": "TabDDPMModel",
            "settings": asdict(self.settings),
            **self.layout.facts(self.label),
            "sphere_codes": self.layout.sphere_codes,
            **self.facts(),
        }
        save_arrays(path, self, facts)

    @classmethod
    def load(cls, path: Path) -> TabDDPMModel:
        """Read what `save` wrote; raises DataError where the file is no such model."""

        def build(facts: Mapping[str, Any]) -> TabDDPMModel:
            layout, label = Layout.of_facts(facts)
            layout = replace(layout, sphere_codes=codes_of(facts))
            settings = DiffusionSettings(**facts["settings"])
            return cls.of_facts(facts, layout, settings, label)

        return load_arrays(path, build)


def codes_of(facts: Mapping[str, Any]) -> SphereCodes:
    """Return sphere codes that a file's facts name."""
    return tuple(SphereCode(*code) for code in facts["sphere_codes"])


def network(
    layout: Layout,
    settings: DiffusionSettings,
    label: Block | None,
    key: Array | None = None,
) -> Denoiser:
    """Return the denoiser that a layout and settings ask for, with first weights from `key`."""
    diffused = layout.without(label)
    head = _number_head(diffused, settings)
    options = sum(block.size for block in diffused.categoricals)
    fan_in = head.inputs + options
    fan_out = head.outputs + options
    labels = 0 if label is None else label.size
    if key is None:
        key = jax.random.key(0)  # the weights are replaced by stored ones
    return fresh(Denoiser, fan_in, fan_out, labels, settings, key=key)


def _number_head(diffused: Layout, settings: DiffusionSettings) -> NumberHead:
    """Return how the network's outputs for the numbers of a layout are read."""
    return NumberHead.of(len(diffused.numbers), diffused.sphere_codes, settings)


def fit(
    X: Matrix,
    blocks: tuple[Block, ...],
    settings: DiffusionSettings | None = None,
    *,
    sphere_codes: SphereCodes = (),
    key: Array,
    labels: str | None = None,
    label_shares: Sequence[float] | None = None,
    progress: Progress = silent,
    store: Path | None = None,
) -> TabDDPMModel:
    """Fit TabDDPM to the rows of a feature matrix, (n, width) float32, of these blocks.

    The network is conditioned on `labels`, a column that is one categorical, instead of diffusing
    it, unless it is the only column; sampling draws it by `label_shares`, or by its shares in the
    rows. The key draws first weights, batches, times and noise. An interrupted fit resumes from the
    checkpoints in `store`. Raises InputError for rows that are not finite or not one-hot, or an
    unknown label column.
    """
    settings = settings or DiffusionSettings()
    layout = Layout(tuple(blocks), sphere_codes)
    X = layout.check(X)
    label = None if labels is None else layout.categorical_of(labels)
    if len(layout.blocks) == 1:
        label = None  # nothing would be left to diffuse
    first, key = jax.random.split(key)
    start = network(layout, settings, label, first)
    settings = replace(settings, steps=settings.taken(len(X), _weights(start)))

    update = descent(settings, layout, label)
    rows = rows_of(X, layout, label)
    net, looks = update.trained(start, rows, key=key, progress=progress, store=store)

    ranges = _ranges(rows, settings)
    if label is None:
        label_shares = ()
    elif label_shares is None:
        counts = np.bincount(np.asarray(rows.labels), minlength=label.size)
        label_shares = tuple(counts / len(X))
    shares = tuple(float(share) for share in label_shares)
    model = TabDDPMModel(net, layout, settings, label, shares, ranges, looks)
    if not settings.matched:
        return model
    mean = np.asarray(rows.numbers.mean(0))
    spread = np.asarray(rows.numbers.std(0))
    return model.matched_to(len(X), mean, spread, key=key)


def _weights(net: Denoiser) -> int:
    """Count the numbers of a network that training moves."""
    trained = eqx.filter(net, eqx.is_inexact_array)
    return sum(array.size for array in jax.tree.leaves(trained))


def _ranges(rows: Rows, settings: DiffusionSettings) -> Ranges:
    """Return the range of each number: that of the settings, or that of the rows."""
    columns = np.asarray(rows.numbers).T
    if settings.clip_range is not None:
        return ((-settings.clip_range, settings.clip_range),) * len(columns)
    return tuple((float(column.min()), float(column.max())) for column in columns)


def rows_of(X: Matrix, layout: Layout, label: Block | None) -> Rows:
    """Return feature vectors as training reads them: numbers, codes, and the label apart."""
    numbers, codes = layout.without(label).split(X)
    labels = np.zeros(len(X), np.int32)
    if label is not None:
        flags = X[:, label.start : label.stop]
        labels = flags.argmax(1).astype(np.int32)
    return Rows(jnp.asarray(numbers), jnp.asarray(codes), jnp.asarray(labels))


def descent(
    settings: DiffusionSettings, layout: Layout, label: Block | None
) -> Descent:
    """Return one step of training, as `models.train` takes it."""
    diffused = layout.without(label)
    return _Descent(settings, diffused.groups, diffused.sphere_codes)
