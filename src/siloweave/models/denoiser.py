"""The network that undoes noise, and its loss: what every diffusion model here trains.

Categoricals are diffused in log space (multinomial diffusion, Hoogeboom et al. 2021). At each time
a categorical is either still what it was or drawn anew, uniformly among K options:

    q(x_t | x_0) = ᾱ_t x_0 + (1 - ᾱ_t) / K,    q(x_t | x_s) = a x_s + (1 - a) / K,  a = ᾱ_t / ᾱ_s.

The network gives log x̂_0, and the model's reverse step is the forward chain's posterior with x̂_0
instead of x_0. This posterior divides by q(x_t | x_0) nowhere, so the x̂_0 that fits it best is the
distribution of the categorical given the *other* columns' noisy values (Gourevitch, Janati,
Shariatian, Simsekli & Moulines 2026, arXiv 2605.22765, call it the leave-one-out posterior). It is
the same for every earlier time s, so strided steps need no correction. The paper reads x̂_0 at time
0 as the distribution of the clean categorical itself; here it is the same as at every other time.

Two losses have this optimum. `row_bound` is the paper's. `row_cross_entropy` multiplies x̂_0 by
q(x_t | x_0) of the categorical's own noisy value, which gives the distribution of the clean option
given all columns, and takes the cross-entropy of that. The bound learns from the few categoricals
that were replaced at just this step, and weighs each by T; the cross-entropy learns from all that
were replaced so far (decision 0018). Drawing works on the categoricals of one size K at a time:
codes (..., c) and logarithms (..., c, K).

A categorical may also be a sphere code (see `sphere_codes`), a vector p_k among the numbers. With
Gaussian noise at level a = ᾱ_t it is seen as x = √a p_k + √(1-a) noise. By Bayes' rule x alone
gives option k, up to a constant, the logarithm

    evidence_k(x) = (√a <x, p_k> - a |p_k|² / 2) / (1 - a),

and the other columns' noisy values come on top, because each column gets noise of its own:
log p(k | noisy row) = log p(k | the other columns) + evidence_k. So the network's input has the
options' probabilities by evidence alone beside x, its output is the logarithms to which the
evidence is added, and it has only the first summand to learn. The clean point is the mean of the
options' points under the softmax of the sum, and its loss is cross-entropy (score interpolation,
Dieleman et al. 2022, "Continuous diffusion for categorical data"; the evidence is ours).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from siloweave.models.nets import MLP, Array, Dense, Groups, Options, TimeEmbedding
from siloweave.models.settings import DiffusionSettings
from siloweave.models.sphere_codes import curve
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.features import SphereCodes

_EDGE = 1.0 - 2.0**-24  # the largest float32 below 1
# Angle of the slowest wave, per standard deviation of a number.
_SLOWEST = 2.0 * np.pi / 8.0
_NOTHING = 1e-30  # a probability of nothing
_Size = int | npt.NDArray[np.int32]


# Multinomial diffusion


def log_kept_or_fresh(log_p: Array, kept: Array, size: _Size) -> Array:
    """log(kept x p + (1 - kept) / K), without leaving log space; K may differ between entries."""
    return jnp.logaddexp(
        log_p + jnp.log(jnp.maximum(kept, _NOTHING)),
        jnp.log(jnp.maximum(1.0 - kept, _NOTHING)) - np.log(size).astype(np.float32),
    )


def forward_codes(uniform: Array, codes: Array, kept: Array, size: _Size) -> Array:
    """Draw x_t from q(x_t | x_0) by `uniform` (2, ..., c): keep a code or not, and draw which."""
    return jnp.where(uniform[0] < kept, codes, uniform_codes(uniform[1], size))


def uniform_codes(uniform: Array, size: _Size) -> Array:
    """Return integers below `size`, from uniform numbers in [0, 1)."""
    return jnp.minimum((uniform * size).astype(jnp.int32), size - 1)


def posterior(log_x0: Array, codes: Array, kept: Array, kept_next: Array) -> Array:
    """log q(x_s | x_t, x̂_0), (..., c, K), from log x̂_0 (..., c, K), x_t (..., c), ᾱ_t and ᾱ_s."""
    K = log_x0.shape[-1]
    start = log_kept_or_fresh(log_x0, jnp.asarray(kept_next)[..., None], K)
    at = codes[..., None] == jnp.arange(K)
    reached = _log_reached(at, jnp.asarray(kept / kept_next)[..., None], K)
    return jax.nn.log_softmax(reached + start, axis=-1)


def row_cross_entropy(
    options: Options, log_x0: Array, clean: Array, noisy: Array, kept: Array
) -> Array:
    """Cross-entropy of each row's clean options given all of its noisy values, (batch,) nats.

    `log_x0` are the network's log-probabilities, (batch, options); `clean` and `noisy` are x_0 and
    x_t, (batch, c), and `kept` is ᾱ_t, (batch, 1).
    """
    own = _log_reached(options.flags(noisy), kept, options.sizes[options.categorical])
    believed = options.log_softmax(log_x0 + own)
    return -jnp.where(options.flags(clean), believed, 0.0).sum(-1)


def row_bound(
    options: Options,
    log_x0: Array,
    clean: Array,
    noisy: Array,
    kept: Array,
    kept_next: Array,
) -> Array:
    """Return the bound's term of each row: KL(true posterior || model's).

    With r the chain's distribution of x_s given x_0 and m the model's, both times that of x_t given
    x_s, and Z their sums over the options, the divergence is that of r and m under the true
    posterior plus log Z_m - log Z_r. No sum is below 1e-30 / K: one option of m and one of r has
    1 / K or more, and the chain reaches x_t from every x_s with `_NOTHING` or more.

    Arguments and result are those of `row_cross_entropy`, with `kept_next` (batch, 1) ᾱ_{t-1};
    where that is 1 (t is 0), it is `row_cross_entropy`. Never negative but for rounding.
    """
    sizes, was = options.sizes[options.categorical], options.flags(clean)
    reached = _log_reached(options.flags(noisy), kept / kept_next, sizes)
    truth = _log_reached(was, kept_next, sizes)
    model = log_kept_or_fresh(log_x0, kept_next, sizes)
    true_sum = options.sums(jnp.exp(reached + truth))
    posterior = jnp.exp(reached + truth) / true_sum[..., options.categorical]
    sums = jnp.log(options.sums(jnp.exp(reached + model))) - jnp.log(true_sum)
    divergence = (posterior * (truth - model)).sum(-1) + sums.sum(-1)
    decoding = row_cross_entropy(options, log_x0, clean, noisy, kept)
    return jnp.where(kept_next[..., 0] == 1.0, decoding, divergence)


def prior_divergence(kept_last: float, size: int) -> float:
    """Return KL(q(x_T | x_0) || uniform) of one categorical: a constant of the schedule, nats."""
    p = kept_last * np.eye(size)[0] + (1.0 - kept_last) / size
    return float(max(np.sum(p * np.log(np.maximum(p, 1e-30) * size)), 0.0))


def draw(uniform: Array, log_p: Array) -> Array:
    """One option per categorical by inversion, (..., c), from normalised `log_p` (..., c, K).

    Its distribution is that of Gumbel-argmax, at one uniform number (..., c) each.
    """
    reached = jnp.cumsum(jnp.exp(log_p), axis=-1)
    u = uniform * reached[..., -1]
    return jnp.sum(u[..., None] >= reached[..., :-1], axis=-1).astype(jnp.int32)


def _log_reached(at: Array, kept: Array, size: _Size) -> Array:
    """log q(option | other end) for both ends of a chain; `at` marks the other end's option."""
    fresh = jnp.maximum((1.0 - kept) / size, _NOTHING)
    return jnp.where(at, jnp.log(kept + fresh), jnp.log(fresh))


# The network


class Rows(NamedTuple):
    """Rows in the layout's order."""

    numbers: Array  # (n, d) float32
    codes: Array  # (n, c) int32
    labels: Array  # (n,) int32; zeros without labels


class Denoiser(eqx.Module):
    """From a noisy row, its time and its label to what was there before the noise."""

    project: Dense  # noisy row to `embed` units
    time: TimeEmbedding  # time to `embed` units, added
    # One-hot label to `embed` units, through a SiLU, added; None without one.
    label: Dense | None
    body: MLP  # to one output per number and one per option

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        labels: int,
        settings: DiffusionSettings,
        *,
        key: Array,
    ) -> None:
        a, b, c, d = jax.random.split(key, 4)
        self.project = Dense(fan_in, settings.embed, key=a)
        self.time = TimeEmbedding(settings.embed, key=b)
        self.label = (
            Dense(labels, settings.embed, key=c, scale=labels**0.5) if labels else None
        )
        self.body = MLP(
            settings.embed,
            settings.hidden,
            fan_out,
            key=d,
            act=settings.act,
            dropout=settings.dropout,
            residual=settings.residual,
        )

    def __call__(
        self, x: Array, t: Array, labels: Array, *, key: Array | None = None
    ) -> Array:
        """Map (batch, fan_in), times in 0 ... 1000 (batch,) or (1,), labels (batch,)."""
        h = self.project(x) + self.time(t)
        if self.label is not None:
            one_hot = jax.nn.one_hot(labels, self.label.weight.shape[0])
            h = h + jax.nn.silu(self.label(one_hot))
        return self.body(h, key=key)


def grouped(groups: Groups, codes: Array) -> list[Array]:
    """Cut (..., all categoricals) into one array for each of their sizes."""
    edges = np.cumsum([count for count, _ in groups])[:-1]
    return list(jnp.split(codes, edges, axis=-1)) if groups else []


def joined(parts: list[Array], n: int) -> Array:
    """Return the inverse of `grouped` for n rows; (n, 0) without categoricals."""
    return jnp.concatenate(parts, -1) if parts else jnp.zeros((n, 0), jnp.int32)


def inputs(groups: Groups, numbers: Array, codes: Array) -> Array:
    """Return the network's input: numbers beside one-hot categoricals, (batch, fan_in)."""
    flags = Options(groups).flags(codes).astype(numbers.dtype)
    return jnp.concatenate([numbers, flags], axis=-1)


def outputs(groups: Groups, out: Array, d: int) -> tuple[Array, list[Array]]:
    """Split the network's output: of numbers (batch, d), log x̂_0 (batch, count, size) per group."""
    logs, start = [], d
    for count, size in groups:
        part = out[:, start : start + count * size].reshape(len(out), count, size)
        logs.append(jax.nn.log_softmax(part, axis=-1))
        start += count * size
    return out[:, :d], logs


def normal_scores(uniform: Array) -> Array:
    """Return standard normal numbers from uniform ones in [0, 1), up to 5.4 standard deviations."""
    scores: Array = 2.0**0.5 * jax.lax.erf_inv(
        jnp.clip(2.0 * uniform - 1.0, -_EDGE, _EDGE)
    )
    return scores


def target(prediction: str, clean: Array, noise: Array, kept: Array) -> Array:
    """Return what the network should give for numbers, (batch, d), at noise level ᾱ_t (batch, 1).

    "noise", "clean", or "velocity" √ᾱ noise - √(1-ᾱ) clean (Salimans & Ho 2022), from which both
    follow at every time without dividing by something small.
    """
    if prediction == "noise":
        return noise
    if prediction == "clean":
        return clean
    return jnp.sqrt(kept) * noise - jnp.sqrt(1.0 - kept) * clean


def clean_numbers(prediction: str, given: Array, numbers: Array, kept: Array) -> Array:
    """x̂_0 of noisy numbers, from what the network gave for them: the inverse of `target`."""
    if prediction == "noise":
        return (numbers - jnp.sqrt(1.0 - kept) * given) / jnp.sqrt(kept)
    if prediction == "clean":
        return given
    return jnp.sqrt(kept) * numbers - jnp.sqrt(1.0 - kept) * given


@dataclass(frozen=True)
class Evidence:
    """What noisy sphere codes among a row's `count` numbers say of their options.

    Example:
        >>> from siloweave.tables.features import SphereCode
        >>> evidence = Evidence(3, (SphereCode(1, 1, 2),))
        >>> found = evidence.alone(jnp.array([[9.0, 1.0, 9.0]]), jnp.array([[0.5]]))
        >>> [round(float(x), 2) for x in found[0]]
        [-1.91, 0.91]
    """

    count: int
    sphere_codes: SphereCodes

    @cached_property
    def options(self) -> Options:
        """Those of all codes, in their order."""
        return Options.of(s.options for s in self.sphere_codes)

    @cached_property
    def plain(self) -> Ints:
        """Which numbers are no part of a code."""
        taken = [range(s.start, s.start + s.dimensions) for s in self.sphere_codes]
        return np.setdiff1d(np.arange(self.count), np.concatenate([[], *taken]))

    def alone(self, x: Array, kept: Array) -> Array:
        """Logarithms of the options by their own noisy codes, (batch, options), up to a constant.

        Rows x are (batch, d), and `kept` is ᾱ_t, (batch, 1) or (), below 1.
        """
        near = jnp.sqrt(kept) * self._near(x)
        found: Array = (near - kept * self._norms) / (1.0 - kept)
        return found

    def likely(self, others: Array, x: Array, kept: Array) -> Array:
        """Return log-probabilities of the options, (batch, options).

        `others` is the network's output for the other columns, alike.
        """
        return self.options.log_softmax(others + self.alone(x, kept))

    def expected(self, logs: Array) -> Array:
        """Return mean codes under these log-probabilities, (batch, d); 0 at plain numbers."""
        return jnp.matmul(jnp.exp(logs), self._points.T, precision="highest")

    def truth(self, clean: Array) -> Array:
        """Return which option each clean code is nearest to, one-hot, (batch, options)."""
        near = self._near(clean) - self._norms
        return near >= self.options.largest(near)[..., self.options.categorical]

    def _near(self, x: Array) -> Array:
        return jnp.matmul(x, self._points, precision="highest")

    @cached_property
    def _points(self) -> npt.NDArray[np.float32]:
        """(d, options), each option's code at its place, 0 elsewhere."""
        found = np.zeros((self.count, len(self.options.categorical)), np.float32)
        for j, s in enumerate(self.sphere_codes):
            own = curve(s.options, s.dimensions).T
            found[s.start : s.start + s.dimensions, self.options.categorical == j] = own
        return found

    @cached_property
    def _norms(self) -> npt.NDArray[np.float32]:
        norms: npt.NDArray[np.float32] = 0.5 * (self._points**2).sum(0)
        return norms


def expected_waves(numbers: Array, kept: Array, count: int) -> Array:
    """Return expected sines and cosines of the clean numbers, (batch, 2 count d).

    With x = √a x_0 + √(1-a) noise and no other knowledge, x_0 is normal around x / √a with variance
    (1-a) / a, and the mean of sin(ω x_0) is sin(ω x / √a) exp(-ω² (1-a) / 2a). So waves that the
    noise has drowned are 0. Periods are 8, 4, 2, ... standard deviations of a number.
    """
    frequencies = _SLOWEST * 2.0 ** np.arange(count, dtype=np.float32)
    angles = (numbers / jnp.sqrt(kept))[..., None] * frequencies
    variance = jnp.reshape((1.0 - kept) / kept, (-1, 1, 1))
    heard = jnp.exp(-0.5 * variance * frequencies**2)
    waves = jnp.concatenate([heard * jnp.sin(angles), heard * jnp.cos(angles)], axis=-1)
    return waves.reshape(len(numbers), -1)


@dataclass(frozen=True)
class NumberHead:
    """How the network's outputs for numbers are read; equal ones share a compiled program."""

    count: int  # d
    prediction: str = "noise"  # what it gives for a number, see `target`
    # Categoricals among the numbers: it gives logarithms for them.
    sphere_codes: SphereCodes = ()
    waves: int = 0  # frequencies at which a plain number is seen as well

    @cached_property
    def evidence(self) -> Evidence:
        """What noisy sphere codes say of their options."""
        return Evidence(self.count, self.sphere_codes)

    @property
    def plain(self) -> Ints:
        """Which numbers are no part of a sphere code."""
        return self.evidence.plain

    @property
    def parts(self) -> int:
        """How many plain numbers and sphere codes there are."""
        return len(self.plain) + len(self.sphere_codes)

    @property
    def inputs(self) -> int:
        """How many inputs `seen` makes of the numbers."""
        seen_waves = 2 * self.waves * len(self.plain)
        return self.count + len(self.evidence.options.categorical) + seen_waves

    @property
    def outputs(self) -> int:
        """How many outputs belong to the numbers."""
        return len(self.plain) + len(self.evidence.options.categorical)

    def seen(self, numbers: Array, kept: Array) -> Array:
        """Return the network's input, (batch, inputs): numbers, options by evidence, and waves."""
        parts = [numbers]
        if self.sphere_codes:
            logs = self.evidence.options.log_softmax(self.evidence.alone(numbers, kept))
            parts.append(jnp.exp(logs))
        if self.waves:
            parts.append(expected_waves(numbers[:, self.plain], kept, self.waves))
        return jnp.concatenate(parts, axis=-1) if len(parts) > 1 else numbers

    def clean(self, out: Array, numbers: Array, kept: Array) -> Array:
        """Return x̂_0, (batch, d), from the network's (batch, outputs) at noise level ᾱ_t."""
        if not self.sphere_codes:
            return clean_numbers(self.prediction, out, numbers, kept)
        of_numbers, of_codes = jnp.split(out, [len(self.plain)], axis=-1)
        own = clean_numbers(self.prediction, of_numbers, numbers[:, self.plain], kept)
        codes = self.evidence.expected(self.evidence.likely(of_codes, numbers, kept))
        return codes.at[:, self.plain].set(own)

    def losses(
        self,
        out: Array,
        clean: Array,
        noise: Array,
        numbers: Array,
        kept: Array,
        weight: float,
    ) -> Array:
        """Squared errors and cross-entropies, summed over numbers and sphere codes, (batch,).

        At noise level `kept`, (batch, 1) ᾱ_t, `numbers` are the sum of `clean` and `noise`, all
        (batch, d). Squared errors are weighed by (1 - ᾱ)^weight.
        """
        of_numbers, of_codes = jnp.split(out, [len(self.plain)], axis=-1)
        wanted = target(
            self.prediction, clean[:, self.plain], noise[:, self.plain], kept
        )
        loss = (1.0 - kept[:, 0]) ** weight * jnp.sum(
            (of_numbers - wanted) ** 2, axis=-1
        )
        if self.sphere_codes:
            logs = self.evidence.likely(of_codes, numbers, kept)
            loss -= jnp.where(self.evidence.truth(clean), logs, 0.0).sum(-1)
        return loss


def row_losses(
    net: Denoiser,
    rows: Rows,
    key: Array,
    groups: Groups,
    kept: Floats,
    settings: DiffusionSettings,
    sphere_codes: SphereCodes = (),
) -> Array:
    """Return the loss of each row at one random time, (batch,).

    A number costs its squared error, a sphere code and a categorical the cross-entropy of the clean
    option, and the row the mean over its columns. With ``choices="bound"`` it is, as in the paper,
    the mean over numbers plus the mean over categoricals of the bound: its term at time t times T
    (times are uniform) plus the prior's constant. Within a batch the times are spread evenly; each
    by itself is uniform. `kept` is ᾱ of every time; the key draws times, noise and dropout.
    """
    reading = NumberHead(
        rows.numbers.shape[1], settings.prediction, sphere_codes, settings.waves
    )
    options = Options(groups)
    chance, drop = jax.random.split(key)
    (n, d), c, T = rows.numbers.shape, rows.codes.shape[1], len(kept)
    # One draw: each compiles for long.
    uniform = jax.random.uniform(chance, (n, 1 + d + 2 * c))
    clock = (uniform[0, 0] + jnp.arange(n) / n) % 1.0
    t = jnp.minimum((clock * T).astype(jnp.int32), T - 1)
    a = jnp.asarray(kept, jnp.float32)[t][:, None]
    earlier = jnp.asarray(np.append(1.0, kept[:-1]), jnp.float32)[t][:, None]
    noise = normal_scores(uniform[:, 1 : 1 + d])
    swaps = jnp.stack([uniform[:, 1 + d : 1 + d + c], uniform[:, 1 + d + c :]])
    numbers = jnp.sqrt(a) * rows.numbers + jnp.sqrt(1.0 - a) * noise
    noisy = forward_codes(swaps, rows.codes, a, options.sizes)
    x = inputs(groups, reading.seen(numbers, a), noisy)
    out = net(x, t * (1000 / T), rows.labels, key=drop)
    of_numbers, logits = out[:, : reading.outputs], out[:, reading.outputs :]
    loss = reading.losses(
        of_numbers, rows.numbers, noise, numbers, a, settings.loss_weight
    )
    if not groups:
        return loss / reading.parts
    log_x0 = options.log_softmax(logits)
    if settings.choices == "cross-entropy":
        entropy = row_cross_entropy(options, log_x0, rows.codes, noisy, a)
        return (loss + entropy) / (reading.parts + c)
    bound = T * row_bound(options, log_x0, rows.codes, noisy, a, earlier)
    prior = sum(prior_divergence(float(kept[-1]), size) for size in options.sizes)
    return loss / max(reading.parts, 1) + (bound + prior) / c
