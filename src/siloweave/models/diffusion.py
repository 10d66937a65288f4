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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

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
_LARGEST_BETA = 0.999
# Measured on normals of spreads 0.05 to 1: evens out the solver's errors.
_SPACING = 1.5
_FURTHEST = 0.5  # extrapolation by no more than a step as long as the last one
# Share of variance left where fast samplers start; with less, x̂_0 is noise.
_SOLVER_START = 1e-4


# Noise schedules, and the walk back from noise to rows


def kept_variance(schedule: str, timesteps: int) -> Floats:
    """Share of the clean variance left at each time, (T,): strictly decreasing, in (0, 1).

    The schedule is "cosine" (Nichol & Dhariwal 2021, β capped at 0.999) or "linear" (Ho et al.
    2020, β from 1e-4 to 0.02 at T = 1000, scaled with 1000 / T otherwise); T is at least 2.
    """
    if timesteps < 2:
        raise InputError(
            f"timesteps={timesteps} is too few: give at least 2, usually 100 to 1000"
        )
    if schedule == "cosine":
        clock = (np.arange(timesteps + 1) / timesteps + 0.008) / 1.008
        left = np.cos(clock * np.pi / 2) ** 2
        beta = 1.0 - left[1:] / left[:-1]
    elif schedule == "linear":
        scale = 1000 / timesteps
        beta = np.linspace(1e-4 * scale, 0.02 * scale, timesteps)
    else:
        raise InputError(
            f"schedule={schedule!r} is not known: choose one of {SCHEDULES}"
        )
    return np.asarray(
        np.cumprod(1.0 - np.minimum(beta, _LARGEST_BETA)), dtype=np.float64
    )


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


def walk(
    kept: Floats, sampler: str, steps: int | None = None, eta: float = 0.0
) -> Walk:
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
        raise InputError(
            f"eta={eta!r} is not in [0, 1]: 0 is deterministic, 1 has all the noise"
        )
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
    return Walk(
        times, a, a_next, *_implicit(a, a_next, 1.0 if sampler == "ancestral" else eta)
    )


def _times(first: int, steps: int) -> npt.NDArray[np.int32]:
    """Return the times from `first` to 0, closer together towards 0 where there is room."""
    power = 1.0 if steps == first + 1 else _SPACING
    times = np.round(np.linspace(first ** (1 / power), 0, steps) ** power)
    # A time is at least as many steps from 0 as it has to walk.
    later = np.arange(steps)[::-1]
    return np.asarray(np.maximum(times, later), dtype=np.int32)


def _implicit(
    a: Floats, a_next: Floats, eta: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return DDIM's step; eta = 1 is the posterior of the forward chain between the two times."""
    noise = eta * np.sqrt((1 - a_next) / (1 - a) * (1 - a / a_next))
    x = np.sqrt(np.maximum(1 - a_next - noise**2, 0.0) / (1 - a))
    return x, np.sqrt(a_next) - x * np.sqrt(a), np.zeros_like(a), noise


def _multistep(
    a: Floats, a_next: Floats, eta: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return DPM-Solver++(2M), and its SDE form: DDIM's step, the clean row extrapolated linearly.

    Linearly in the log signal-to-noise ratio, to the middle of the step. The first step has no past
    and the last ends at an infinite ratio; both are first order.
    """
    x, clean, last, noise = _implicit(a, a_next, eta)
    ratio = 0.5 * np.log(a / (1 - a))
    h = np.diff(ratio)  # of the steps but the last
    inner = slice(1, len(a) - 1)
    # 1 / (2 r), r = last length / this one.
    half = np.minimum(0.5 * h[1:] / h[:-1], _FURTHEST)
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
    """Walk from noise to clean rows: numbers (n, d) and codes (n, c)."""
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
        earlier = (
            p["x"] * numbers + p["clean"] * clean + p["last"] * last + p["noise"] * z
        )
        chosen = _earlier_codes(uniform[:, d:], groups, logs, codes, p)
        if given is not None:
            earlier, chosen = _replaced(replacing, groups, (earlier, chosen), given, p)
        return (earlier, chosen, clean), None

    (numbers, codes, *_), _ = jax.lax.scan(step, start, (plan, keys[1:]))
    return numbers, codes


def _earlier_codes(
    uniform: Array, groups: Groups, logs: list[Array], codes: Array, p: dict[str, Array]
) -> Array:
    """Draw categoricals one step earlier, from the posterior."""
    parts = zip(grouped(groups, uniform), logs, grouped(groups, codes), strict=True)
    drawn = [
        draw(u, posterior(log, part, p["kept"], p["kept_next"]))
        for u, log, part in parts
    ]
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
    numbers = jnp.where(
        p["back"], jnp.sqrt(a) * numbers + jnp.sqrt(1 - a) * again, numbers
    )
    return numbers, jnp.where(
        p["back"], forward_codes(swaps[2:], codes, a, sizes), codes
    )


# The model


class _Descent(Descent):
    sphere_codes: SphereCodes = eqx.field(static=True, default=())

    def losses(self, net: Denoiser, rows: Rows, key: Array) -> Array:
        kept = kept_variance(self.settings.schedule, self.settings.timesteps)
        return row_losses(
            net, rows, key, self.groups, kept, self.settings, self.sphere_codes
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
        plan = self._plan(sampler, steps, eta, given, resamples)
        first, key = jax.random.split(key)
        labels = self._labels(n, first, given)
        known = self._known(n, given)
        head, groups = _numbers(self.diffused, self.settings), self.diffused.groups
        low, high = jnp.asarray(np.reshape(self.ranges, (-1, 2)).T, jnp.float32)
        chunks = []
        for i, (start, stop, size) in enumerate(pieces(n, _CHUNK)):
            piece = padded((labels, known), start, stop, size)
            kind = ReverseKind(size, head, groups)
            out = denoise(
                self.net, plan, jax.random.fold_in(key, i), *piece, (low, high), kind
            )
            chunks.append(jax.tree.map(np.asarray, out))
        return self._joined(n, chunks, labels)

    def _plan(
        self,
        sampler: str | None,
        steps: int | None,
        eta: float | None,
        given: Matrix | None,
        times: int,
    ) -> dict[str, Array]:
        eta = self.settings.eta if eta is None else eta
        if sampler is None:
            sampler, eta = ("solver", eta) if given is None else ("ddim", 1.0)
        if times < 1 or (times > 1 and (given is None or sampler == "solver")):
            raise InputError(
                f"resamples={times} cannot be used here: it is 1 or more, and above 1 only with "
                "given columns and the sampler 'ddim' or 'ancestral'"
            )
        settings = self.settings
        way = walk(
            kept_variance(settings.schedule, settings.timesteps), sampler, steps, eta
        )
        return table(way, times, settings.timesteps)

    def _labels(self, n: int, key: Array, given: Matrix | None) -> Array:
        if self.label is None:
            return jnp.zeros(n, jnp.int32)
        shares = np.asarray(self.label_shares)
        drawn = jax.random.choice(
            key, len(shares), (n,), p=jnp.asarray(shares / shares.sum())
        )
        if given is None:
            return drawn
        flags = np.asarray(given)[:, self.label.start : self.label.stop]
        return jnp.where(~np.isnan(flags).any(1), np.nan_to_num(flags).argmax(1), drawn)

    def _known(self, n: int, given: Matrix | None) -> tuple[Any, ...] | None:
        if given is None:
            return None
        given = np.asarray(given, dtype=np.float32)
        if given.shape != (n, self.layout.width):
            raise InputError(
                f"given has shape {given.shape}, but {n} rows need ({n}, {self.layout.width})"
            )
        masks = self.diffused.known(given)
        numbers, codes = self.diffused.split(np.nan_to_num(given))
        return numbers, codes, *masks

    def _joined(self, n: int, chunks: list[tuple[Any, Any]], labels: Array) -> Matrix:
        if not chunks:
            return np.zeros((0, self.layout.width), dtype=np.float32)
        numbers, codes = (
            np.concatenate(parts)[:n] for parts in zip(*chunks, strict=True)
        )
        if not np.isfinite(numbers).all():
            raise InputError("the model drew numbers that are not finite: fit it again")
        X = self.diffused.join(numbers, codes, self.layout.width)
        if self.label is not None:
            X[np.arange(n), self.label.start + np.asarray(labels)] = 1.0
        return X

    def facts(self) -> dict[str, Any]:
        """Return what a file says of the model beside its blocks; `of_facts` reads it."""
        facts = {"label_shares": list(self.label_shares), "ranges": self.ranges}
        return facts | {"looks": self.looks} if self.looks else facts

    @classmethod
    def of_facts(
        cls,
        facts: Mapping[str, Any],
        layout: Layout,
        settings: DiffusionSettings,
        label: Block | None,
    ) -> TabDDPMModel:
        """Return a model with first weights instead of its own."""
        ranges = tuple((low, high) for low, high in facts["ranges"])
        looks = tuple(Look(*look) for look in facts.get("looks", ()))
        net = network(layout, settings, label)
        return cls(
            net, layout, settings, label, tuple(facts["label_shares"]), ranges, looks
        )

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
            return cls.of_facts(
                facts, layout, DiffusionSettings(**facts["settings"]), label
            )

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
    reading, options = (
        _numbers(diffused, settings),
        sum(b.size for b in diffused.categoricals),
    )
    fan_in, fan_out = reading.inputs + options, reading.outputs + options
    key = jax.random.key(0) if key is None else key
    labels = 0 if label is None else label.size
    return fresh(Denoiser, fan_in, fan_out, labels, settings, key=key)


def _numbers(diffused: Layout, settings: DiffusionSettings) -> NumberHead:
    return NumberHead(
        len(diffused.numbers),
        settings.prediction,
        diffused.sphere_codes,
        settings.waves,
    )


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
    label = None if len(layout.blocks) == 1 else label
    first, key = jax.random.split(key)
    start = network(layout, settings, label, first)
    weights = sum(
        x.size for x in jax.tree.leaves(eqx.filter(start, eqx.is_inexact_array))
    )
    settings = replace(settings, steps=settings.taken(len(X), weights))
    update, rows = descent(settings, layout, label), rows_of(X, layout, label)
    net, looks = update.trained(start, rows, key=key, progress=progress, store=store)
    if settings.clip_range is not None:
        ranges = ((-settings.clip_range, settings.clip_range),) * rows.numbers.shape[1]
    else:
        columns = np.asarray(rows.numbers).T
        ranges = tuple((float(column.min()), float(column.max())) for column in columns)
    shares: Sequence[float] = ()
    if label is not None:
        counts = np.bincount(np.asarray(rows.labels), minlength=label.size)
        shares = tuple(counts / len(X)) if label_shares is None else label_shares
    shares = tuple(map(float, shares))
    return TabDDPMModel(net, layout, settings, label, shares, ranges, looks)


def rows_of(X: Matrix, layout: Layout, label: Block | None) -> Rows:
    """Return feature vectors as training reads them: numbers, codes, and the label apart."""
    numbers, codes = layout.without(label).split(X)
    labels = np.zeros(len(X), np.int32)
    if label is not None:
        labels = X[:, label.start : label.stop].argmax(1).astype(np.int32)
    return Rows(jnp.asarray(numbers), jnp.asarray(codes), jnp.asarray(labels))


def descent(
    settings: DiffusionSettings, layout: Layout, label: Block | None
) -> Descent:
    """Return one step of training, as `models.train` takes it."""
    diffused = layout.without(label)
    return _Descent(settings, diffused.groups, diffused.sphere_codes)
