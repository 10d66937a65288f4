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

from siloweave.models.nets import (
    MLP,
    Array,
    Dense,
    Groups,
    Options,
    ResidualBlocks,
    TimeEmbedding,
)
from siloweave.models.settings import DiffusionSettings
from siloweave.models.sphere_codes import curve
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.features import SphereCodes

# The largest float32 below 1: at 1 the inverse error function is infinite.
_EDGE = 1.0 - 2.0**-24
# Angle of the slowest wave, per standard deviation of a number: one period in 8 of them.
_SLOWEST = 2.0 * np.pi / 8.0
# Stands for probability 0, whose logarithm and slope would be infinite.
_NOTHING = 1e-30
_Size = int | npt.NDArray[np.int32]


# Multinomial diffusion


def log_kept_or_fresh(log_p: Array, survival: Array, size: _Size) -> Array:
    """Return log(survival x p + (1 - survival) / K) without leaving log space.

    `survival` is the probability that an option was not replaced on the way; K, the `size`, may
    differ between entries.
    """
    log_survivor = log_p + jnp.log(jnp.maximum(survival, _NOTHING))
    log_replaced = jnp.log(jnp.maximum(1.0 - survival, _NOTHING))
    log_size = np.log(size).astype(np.float32)
    return jnp.logaddexp(log_survivor, log_replaced - log_size)


def forward_codes(uniform: Array, codes: Array, survival: Array, size: _Size) -> Array:
    """Draw x_t from q(x_t | x_0) by `uniform` (2, ..., c): keep a code or not, and draw which."""
    # Hoogeboom et al. 2021, equation 12, as a mixture of the old code and a uniform one.
    is_survivor = uniform[0] < survival
    replacements = uniform_codes(uniform[1], size)
    return jnp.where(is_survivor, codes, replacements)


def uniform_codes(uniform: Array, size: _Size) -> Array:
    """Return integers below `size`, from uniform numbers in [0, 1)."""
    codes = (uniform * size).astype(jnp.int32)
    return jnp.minimum(codes, size - 1)


def posterior(
    log_x0: Array, codes: Array, alpha_bar: Array, alpha_bar_next: Array
) -> Array:
    """Return log q(x_s | x_t, x̂_0), (..., c, K), for an earlier time s.

    From log x̂_0 (..., c, K), the codes x_t (..., c), and ᾱ at times t and s.
    """
    # Hoogeboom et al. 2021, equation 13, where s need not be the time just before t.
    K = log_x0.shape[-1]
    from_start = log_kept_or_fresh(log_x0, jnp.asarray(alpha_bar_next)[..., None], K)
    is_code = codes[..., None] == jnp.arange(K)
    step_survival = jnp.asarray(alpha_bar / alpha_bar_next)[..., None]
    to_code = _log_transition(is_code, step_survival, K)
    return jax.nn.log_softmax(to_code + from_start, axis=-1)


def row_cross_entropy(
    options: Options, log_x0: Array, clean: Array, noisy: Array, alpha_bar: Array
) -> Array:
    """Return the cross-entropy of each row's clean options given its noisy values, (batch,) nats.

    `log_x0` are the network's log-probabilities, (batch, options); `clean` and `noisy` are x_0 and
    x_t, (batch, c), and `alpha_bar` is ᾱ_t, (batch, 1).
    """
    sizes = options.sizes[options.categorical]
    # The network's x̂_0 leaves out the categorical's own noisy value: Bayes' rule adds it.
    log_likelihood = _log_transition(options.flags(noisy), alpha_bar, sizes)
    log_posterior = options.log_softmax(log_x0 + log_likelihood)
    log_clean = jnp.where(options.flags(clean), log_posterior, 0.0)
    return -log_clean.sum(-1)


def row_bound(
    options: Options,
    log_x0: Array,
    clean: Array,
    noisy: Array,
    alpha_bar: Array,
    alpha_bar_next: Array,
) -> Array:
    """Return the bound's term of each row: KL(true posterior || model's).

    With r the chain's distribution of x_s given x_0 and m the model's, both times that of x_t given
    x_s, and Z their sums over the options, the divergence is that of r and m under the true
    posterior plus log Z_m - log Z_r. No sum is below 1e-30 / K: one option of m and one of r has
    1 / K or more, and the chain reaches x_t from every x_s with `_NOTHING` or more.

    Arguments and result are those of `row_cross_entropy`, with `alpha_bar_next` (batch, 1) ᾱ_{t-1};
    where that is 1 (t is 0), it is `row_cross_entropy`. Never negative but for rounding.
    """
    sizes = options.sizes[options.categorical]
    is_clean = options.flags(clean)

    # The factors of both posteriors: to x_t from every option, and to every option from x_0.
    is_noisy = options.flags(noisy)
    to_noisy = _log_transition(is_noisy, alpha_bar / alpha_bar_next, sizes)
    true_start = _log_transition(is_clean, alpha_bar_next, sizes)
    model_start = log_kept_or_fresh(log_x0, alpha_bar_next, sizes)

    true_sum = options.sums(jnp.exp(to_noisy + true_start))
    # Computed again on purpose: with one `exp` for both its slope would be rounded otherwise.
    true_joint = jnp.exp(to_noisy + true_start)
    true_posterior = true_joint / true_sum[..., options.categorical]
    model_sum = options.sums(jnp.exp(to_noisy + model_start))
    log_sums = jnp.log(model_sum) - jnp.log(true_sum)
    starts = true_posterior * (true_start - model_start)
    divergence = starts.sum(-1) + log_sums.sum(-1)

    # At time 0 there is no earlier time: the term is the decoder's, -log p(x_0 | x_1).
    decoding = row_cross_entropy(options, log_x0, clean, noisy, alpha_bar)
    return jnp.where(alpha_bar_next[..., 0] == 1.0, decoding, divergence)


def prior_divergence(alpha_bar_last: float, size: int) -> float:
    """Return KL(q(x_T | x_0) || uniform) of one categorical: a constant of the schedule, nats."""
    clean = np.eye(size)[0]  # any option: the divergence is the same for all
    p = alpha_bar_last * clean + (1.0 - alpha_bar_last) / size
    divergence = np.sum(p * np.log(np.maximum(p, _NOTHING) * size))
    return float(max(divergence, 0.0))


def draw(uniform: Array, log_p: Array) -> Array:
    """Draw one option per categorical by inversion, (..., c), from normalised `log_p` (..., c, K).

    Its distribution is that of Gumbel-argmax, at one uniform number (..., c) each.
    """
    cumulative = jnp.cumsum(jnp.exp(log_p), axis=-1)
    # Rounding leaves the last sum beside 1, so the uniform number is scaled to it.
    level = uniform * cumulative[..., -1]
    is_above = level[..., None] >= cumulative[..., :-1]
    return jnp.sum(is_above, axis=-1).astype(jnp.int32)


def _log_transition(is_option: Array, survival: Array, size: _Size) -> Array:
    """Return log q of every option at one end of a chain, given the option at the other end.

    The chain is symmetric, so either end may be the given one; `is_option` marks its option.
    """
    replaced = jnp.maximum((1.0 - survival) / size, _NOTHING)
    return jnp.where(is_option, jnp.log(survival + replaced), jnp.log(replaced))


# The network


class Rows(NamedTuple):
    """Rows in the layout's order."""

    numbers: Array  # (n, d) float32
    codes: Array  # (n, c) int32
    labels: Array  # (n,) int32; zeros without labels


class Denoiser(eqx.Module):
    """A network from a noisy row, its time and its label to what was there before the noise."""

    project: Dense  # noisy row to the units that the body reads
    time: TimeEmbedding  # time to `embed` units
    # One-hot label to `embed` units, through a SiLU, added to the time's; None without one.
    label: Dense | None
    # To one output per number and one per option. Dense layers read the sum of row and time;
    # residual blocks read the row, and each is conditioned on the time.
    body: MLP | ResidualBlocks

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        labels: int,
        settings: DiffusionSettings,
        *,
        key: Array,
    ) -> None:
        row_key, time_key, label_key, body_key = jax.random.split(key, 4)
        embed = settings.embed
        width = settings.hidden[0] if settings.residual else embed
        self.project = Dense(fan_in, width, key=row_key)
        self.time = TimeEmbedding(embed, key=time_key)
        self.label = None
        if labels:
            # One input of a one-hot row is 1, so first weights are those of a fan-in of 1.
            self.label = Dense(labels, embed, key=label_key, scale=labels**0.5)
        if settings.residual:
            self.body = ResidualBlocks(
                width,
                len(settings.hidden),
                fan_out,
                condition=embed,
                key=body_key,
                act=settings.act,
                dropout=settings.dropout,
            )
        else:
            self.body = MLP(
                width,
                settings.hidden,
                fan_out,
                key=body_key,
                act=settings.act,
                dropout=settings.dropout,
            )

    def __call__(
        self, x: Array, t: Array, labels: Array, *, key: Array | None = None
    ) -> Array:
        """Map (batch, fan_in), times in 0 ... 1000 (batch,) or (1,), labels (batch,)."""
        h = self.project(x)
        if isinstance(self.body, MLP):
            summed = self._with_label(h + self.time(t), labels)
            return self.body(summed, key=key)
        condition = self._with_label(self.time(t), labels)
        return self.body(h, jax.nn.silu(condition), key=key)

    def _with_label(self, h: Array, labels: Array) -> Array:
        """Return h with what the network makes of labels added to it; h itself without a label."""
        if self.label is None:
            return h
        one_hot = jax.nn.one_hot(labels, self.label.weight.shape[0])
        return h + jax.nn.silu(self.label(one_hot))


def grouped(groups: Groups, codes: Array) -> list[Array]:
    """Cut (..., all categoricals) into one array for each of their sizes."""
    if not groups:
        return []
    counts = [count for count, _ in groups]
    edges = np.cumsum(counts)[:-1]
    return list(jnp.split(codes, edges, axis=-1))


def joined(parts: list[Array], n: int) -> Array:
    """Return the inverse of `grouped` for n rows; (n, 0) without categoricals."""
    if not parts:
        return jnp.zeros((n, 0), jnp.int32)
    return jnp.concatenate(parts, -1)


def inputs(groups: Groups, numbers: Array, codes: Array) -> Array:
    """Return the network's input: numbers beside one-hot categoricals, (batch, fan_in)."""
    flags = Options(groups).flags(codes).astype(numbers.dtype)
    return jnp.concatenate([numbers, flags], axis=-1)


def outputs(groups: Groups, out: Array, d: int) -> tuple[Array, list[Array]]:
    """Split the network's output: of numbers (batch, d), log x̂_0 (batch, count, size) per group."""
    logs: list[Array] = []
    start = d
    for count, size in groups:
        stop = start + count * size
        logits = out[:, start:stop].reshape(len(out), count, size)
        logs.append(jax.nn.log_softmax(logits, axis=-1))
        start = stop
    return out[:, :d], logs


def normal_scores(uniform: Array) -> Array:
    """Return standard normal numbers from uniform ones in [0, 1), up to 5.4 standard deviations."""
    centred = jnp.clip(2.0 * uniform - 1.0, -_EDGE, _EDGE)
    scores: Array = 2.0**0.5 * jax.lax.erf_inv(centred)
    return scores


def target(prediction: str, clean: Array, noise: Array, alpha_bar: Array) -> Array:
    """Return what the network should give for numbers, (batch, d), at noise level ᾱ_t (batch, 1).

    "noise", "clean", or "velocity" √ᾱ noise - √(1-ᾱ) clean (Salimans & Ho 2022), from which both
    follow at every time without dividing by something small.
    """
    if prediction == "noise":
        return noise
    if prediction == "clean":
        return clean
    return jnp.sqrt(alpha_bar) * noise - jnp.sqrt(1.0 - alpha_bar) * clean


def clean_numbers(
    prediction: str, output: Array, numbers: Array, alpha_bar: Array
) -> Array:
    """Return x̂_0 of noisy numbers from the network's output: the inverse of `target`."""
    if prediction == "noise":
        # Ho, Jain & Abbeel 2020, equation 15.
        scaled_clean = numbers - jnp.sqrt(1.0 - alpha_bar) * output
        return scaled_clean / jnp.sqrt(alpha_bar)
    if prediction == "clean":
        return output
    return jnp.sqrt(alpha_bar) * numbers - jnp.sqrt(1.0 - alpha_bar) * output


@dataclass(frozen=True)
class Evidence:
    """What noisy sphere codes among a row's `count` numbers say of their options.

    Example:
        >>> from siloweave.tables.features import SphereCode
        >>> evidence = Evidence(3, (SphereCode(1, 1, 2),))
        >>> logs = evidence.alone(jnp.array([[9.0, 1.0, 9.0]]), jnp.array([[0.5]]))
        >>> [round(float(x), 2) for x in logs[0]]
        [-1.91, 0.91]
    """

    count: int
    sphere_codes: SphereCodes

    @cached_property
    def options(self) -> Options:
        """The options of all codes, in the codes' order."""
        return Options.of(code.options for code in self.sphere_codes)

    @cached_property
    def plain(self) -> Ints:
        """Which numbers are no part of a code."""
        places = np.arange(self.count)
        code_places = [
            range(code.start, code.start + code.dimensions)
            for code in self.sphere_codes
        ]
        return np.setdiff1d(places, np.concatenate([[], *code_places]))

    def alone(self, x: Array, alpha_bar: Array) -> Array:
        """Return log-evidence of the options by their own noisy codes, up to a constant.

        Rows x are (batch, d), and `alpha_bar` is ᾱ_t, (batch, 1) or (), below 1; the result is
        (batch, options).
        """
        # evidence_k(x) of this module's docstring, for every option k at once.
        products = jnp.sqrt(alpha_bar) * self._products(x)
        scaled = products - alpha_bar * self._half_squares
        log_evidence: Array = scaled / (1.0 - alpha_bar)
        return log_evidence

    def likely(self, others: Array, x: Array, alpha_bar: Array) -> Array:
        """Return log-probabilities of the options, (batch, options).

        `others` is the network's output for the other columns, alike.
        """
        return self.options.log_softmax(others + self.alone(x, alpha_bar))

    def expected(self, logs: Array) -> Array:
        """Return mean codes under these log-probabilities, (batch, d); 0 at plain numbers."""
        return jnp.matmul(jnp.exp(logs), self._points.T, precision="highest")

    def truth(self, clean: Array) -> Array:
        """Return which option each clean code is nearest to, one-hot, (batch, options)."""
        # |x - p|² is least where <x, p> - |p|² / 2 is largest.
        nearness = self._products(clean) - self._half_squares
        nearest = self.options.largest(nearness)
        return nearness >= nearest[..., self.options.categorical]

    def _products(self, x: Array) -> Array:
        """Return the products <x, p_k> with the code of every option, (batch, options)."""
        return jnp.matmul(x, self._points, precision="highest")

    @cached_property
    def _points(self) -> npt.NDArray[np.float32]:
        """The code of each option at its place, 0 elsewhere, (d, options)."""
        categorical = self.options.categorical
        points = np.zeros((self.count, len(categorical)), np.float32)
        for number, code in enumerate(self.sphere_codes):
            stop = code.start + code.dimensions
            code_points = curve(code.options, code.dimensions)
            points[code.start : stop, categorical == number] = code_points.T
        return points

    @cached_property
    def _half_squares(self) -> npt.NDArray[np.float32]:
        """Half the squared length |p_k|² of every option's code, (options,)."""
        half_squares: npt.NDArray[np.float32] = 0.5 * (self._points**2).sum(0)
        return half_squares


def expected_waves(numbers: Array, alpha_bar: Array, count: int) -> Array:
    """Return expected sines and cosines of the clean numbers, (batch, 2 count d).

    With x = √a x_0 + √(1-a) noise and no other knowledge, x_0 is normal around x / √a with variance
    (1-a) / a, and the mean of sin(ω x_0) is sin(ω x / √a) exp(-ω² (1-a) / 2a). So waves that the
    noise has drowned are 0. Periods are 8, 4, 2, ... standard deviations of a number.
    """
    frequencies = _SLOWEST * 2.0 ** np.arange(count, dtype=np.float32)
    means = numbers / jnp.sqrt(alpha_bar)
    angles = means[..., None] * frequencies
    variance = jnp.reshape((1.0 - alpha_bar) / alpha_bar, (-1, 1, 1))
    damping = jnp.exp(-0.5 * variance * frequencies**2)
    sines = damping * jnp.sin(angles)
    cosines = damping * jnp.cos(angles)
    waves = jnp.concatenate([sines, cosines], axis=-1)
    return waves.reshape(len(numbers), -1)


@dataclass(frozen=True)
class NumberHead:
    """How the network's outputs for numbers are read; equal ones share a compiled program."""

    count: int  # d
    prediction: str = "noise"  # what it gives for a number, see `target`
    # Categoricals among the numbers: it gives logarithms for them.
    sphere_codes: SphereCodes = ()
    waves: int = 0  # frequencies at which a plain number is shown as well
    # Whether the network is shown what it last said of the sphere codes.
    self_conditioned: bool = False

    @classmethod
    def of(
        cls, count: int, sphere_codes: SphereCodes, settings: DiffusionSettings
    ) -> NumberHead:
        """Return how settings have the outputs for so many numbers read."""
        return cls(
            count,
            settings.prediction,
            sphere_codes,
            settings.waves,
            settings.self_conditioned,
        )

    @cached_property
    def evidence(self) -> Evidence:
        """What noisy sphere codes say of their options."""
        return Evidence(self.count, self.sphere_codes)

    @property
    def plain(self) -> Ints:
        """Which numbers are no part of a sphere code."""
        return self.evidence.plain

    @cached_property
    def shown(self) -> Ints:
        """Which numbers the network's last estimates are shown of: those of sphere codes."""
        if not self.self_conditioned:
            return np.arange(0)
        return np.setdiff1d(np.arange(self.count), self.plain)

    @property
    def parts(self) -> int:
        """How many plain numbers and sphere codes there are."""
        return len(self.plain) + len(self.sphere_codes)

    @property
    def inputs(self) -> int:
        """How many inputs `network_input` makes of the numbers."""
        options = len(self.evidence.options.categorical)
        waves = 2 * self.waves * len(self.plain)  # a sine and a cosine each
        return self.count + options + waves + len(self.shown)

    @property
    def outputs(self) -> int:
        """How many outputs belong to the numbers."""
        options = len(self.evidence.options.categorical)
        return len(self.plain) + options

    def network_input(
        self, numbers: Array, alpha_bar: Array, estimates: Array
    ) -> Array:
        """Return the network's input, (batch, inputs): numbers, options by evidence, and waves.

        A self-conditioned network also reads its last `estimates` of the clean sphere codes. They
        are (batch, d): zeros before the first.
        """
        parts = [numbers]
        if self.sphere_codes:
            log_evidence = self.evidence.alone(numbers, alpha_bar)
            logs = self.evidence.options.log_softmax(log_evidence)
            parts.append(jnp.exp(logs))
        if self.waves:
            plain_numbers = numbers[:, self.plain]
            parts.append(expected_waves(plain_numbers, alpha_bar, self.waves))
        if len(self.shown):
            parts.append(estimates[:, self.shown])
        if len(parts) == 1:
            return numbers
        return jnp.concatenate(parts, axis=-1)

    def clean(self, out: Array, numbers: Array, alpha_bar: Array) -> Array:
        """Return x̂_0, (batch, d), from the network's (batch, outputs) at noise level ᾱ_t."""
        if not self.sphere_codes:
            return clean_numbers(self.prediction, out, numbers, alpha_bar)
        of_numbers, of_codes = jnp.split(out, [len(self.plain)], axis=-1)
        plain_numbers = numbers[:, self.plain]
        plain_clean = clean_numbers(
            self.prediction, of_numbers, plain_numbers, alpha_bar
        )
        # Score interpolation (Dieleman et al. 2022): a clean code is the options' mean.
        logs = self.evidence.likely(of_codes, numbers, alpha_bar)
        codes = self.evidence.expected(logs)
        return codes.at[:, self.plain].set(plain_clean)

    def losses(
        self,
        out: Array,
        clean: Array,
        noise: Array,
        numbers: Array,
        alpha_bar: Array,
        weight: float,
    ) -> Array:
        """Return squared errors and cross-entropies, summed over a row's parts, (batch,).

        At noise level `alpha_bar`, (batch, 1) ᾱ_t, `numbers` are the sum of `clean` and `noise`,
        all (batch, d). Squared errors are weighed by (1 - ᾱ)^weight.
        """
        of_numbers, of_codes = jnp.split(out, [len(self.plain)], axis=-1)
        plain_clean = clean[:, self.plain]
        plain_noise = noise[:, self.plain]
        targets = target(self.prediction, plain_clean, plain_noise, alpha_bar)
        level_weight = (1.0 - alpha_bar[:, 0]) ** weight
        squared_errors = jnp.sum((of_numbers - targets) ** 2, axis=-1)
        loss = level_weight * squared_errors
        if self.sphere_codes:
            logs = self.evidence.likely(of_codes, numbers, alpha_bar)
            log_clean = jnp.where(self.evidence.truth(clean), logs, 0.0)
            loss -= log_clean.sum(-1)
        return loss


class _Noised(NamedTuple):
    """Rows with noise added, each at a time of its own."""

    times: Array  # (batch,) int32, in 0 ... T - 1
    alpha_bar: Array  # (batch, 1), ᾱ_t
    alpha_bar_before: Array  # (batch, 1), ᾱ_{t-1}; 1 at time 0
    noise: Array  # (batch, d), standard normal
    numbers: Array  # (batch, d), x_t of the numbers
    codes: Array  # (batch, c), x_t of the categoricals


def row_losses(
    net: Denoiser,
    rows: Rows,
    key: Array,
    groups: Groups,
    alpha_bars: Floats,
    settings: DiffusionSettings,
    sphere_codes: SphereCodes = (),
) -> Array:
    """Return the loss of each row at one random time, (batch,).

    A number costs its squared error, a sphere code and a categorical the cross-entropy of the clean
    option, and the row the mean over its columns. With ``choices="bound"`` it is, as in the paper,
    the mean over numbers plus the mean over categoricals of the bound: its term at time t times T
    (times are uniform) plus the prior's constant. Within a batch the times are spread evenly; each
    by itself is uniform. `alpha_bars` are ᾱ of every time; the key draws times, noise and dropout.
    """
    d = rows.numbers.shape[1]
    c = rows.codes.shape[1]
    T = len(alpha_bars)
    head = NumberHead.of(d, sphere_codes, settings)
    options = Options(groups)
    noise_key, dropout_key = jax.random.split(key)

    # Ho, Jain & Abbeel 2020, Algorithm 1: a time, the row's noise at it, and the prediction.
    noised = _noised(rows, noise_key, alpha_bars, options)
    # The network's clock runs from 0 to 1000, however many times there are.
    clock = noised.times * (1000 / T)
    estimates = jnp.zeros_like(noised.numbers)
    if len(head.shown):
        estimates = _estimates(net, noised, clock, rows.labels, groups, head)
    numbers_input = head.network_input(noised.numbers, noised.alpha_bar, estimates)
    x = inputs(groups, numbers_input, noised.codes)
    out = net(x, clock, rows.labels, key=dropout_key)
    of_numbers = out[:, : head.outputs]
    logits = out[:, head.outputs :]

    loss = head.losses(
        of_numbers,
        rows.numbers,
        noised.noise,
        noised.numbers,
        noised.alpha_bar,
        settings.loss_weight,
    )
    if not groups:
        return loss / head.parts

    log_x0 = options.log_softmax(logits)
    if settings.choices == "cross-entropy":
        entropy = row_cross_entropy(
            options, log_x0, rows.codes, noised.codes, noised.alpha_bar
        )
        return (loss + entropy) / (head.parts + c)

    # TabDDPM's sum: the numbers' mean, and the mean of the categoricals' terms.
    # A uniform time has probability 1 / T, so one term stands for the sum of T.
    bound = T * row_bound(
        options,
        log_x0,
        rows.codes,
        noised.codes,
        noised.alpha_bar,
        noised.alpha_bar_before,
    )
    last = float(alpha_bars[-1])
    prior = sum(prior_divergence(last, size) for size in options.sizes)
    return loss / max(head.parts, 1) + (bound + prior) / c


def _estimates(
    net: Denoiser,
    noised: _Noised,
    clock: Array,
    labels: Array,
    groups: Groups,
    head: NumberHead,
) -> Array:
    """Return what the network makes of every second row's clean numbers, and zeros, (batch, d).

    So it learns both: to begin, and to go on from an estimate. No gradient passes through (Chen,
    Zhang & Hinton 2023, algorithm 1, where a coin decides for a batch). Times are spread evenly
    over the batch, and so over every second row of it.
    """
    every_second = slice(None, None, 2)
    none = jnp.zeros_like(noised.numbers)
    numbers = noised.numbers[every_second]
    alpha_bar = noised.alpha_bar[every_second]
    numbers_input = head.network_input(numbers, alpha_bar, none[every_second])
    x = inputs(groups, numbers_input, noised.codes[every_second])
    out = net(x, clock[every_second], labels[every_second])
    clean = head.clean(out[:, : head.outputs], numbers, alpha_bar)
    return none.at[every_second].set(jax.lax.stop_gradient(clean))


def spread_times(start: Array, n: int, T: int) -> Array:
    """Return n times in 0 ... T - 1, evenly spread from a uniform `start` in [0, 1), (n,) int32.

    Each by itself is uniform; spread evenly, they make the mean loss of a batch vary less.
    """
    clock = (start + jnp.arange(n) / n) % 1.0
    return jnp.minimum((clock * T).astype(jnp.int32), T - 1)


def _noised(rows: Rows, key: Array, alpha_bars: Floats, options: Options) -> _Noised:
    """Add noise to rows, each at a random time."""
    n, d = rows.numbers.shape
    c = rows.codes.shape[1]
    # One draw for all: each compiles for long.
    uniform = jax.random.uniform(key, (n, 1 + d + 2 * c))
    of_numbers = slice(1, 1 + d)
    of_survival = slice(1 + d, 1 + d + c)
    of_replacements = slice(1 + d + c, None)

    times = spread_times(uniform[0, 0], n, len(alpha_bars))
    bars_before = np.append(1.0, alpha_bars[:-1])
    alpha_bar = jnp.asarray(alpha_bars, jnp.float32)[times][:, None]
    alpha_bar_before = jnp.asarray(bars_before, jnp.float32)[times][:, None]

    # Ho, Jain & Abbeel 2020, equation 4.
    noise = normal_scores(uniform[:, of_numbers])
    swaps = jnp.stack([uniform[:, of_survival], uniform[:, of_replacements]])
    signal = jnp.sqrt(alpha_bar) * rows.numbers
    numbers = signal + jnp.sqrt(1.0 - alpha_bar) * noise
    codes = forward_codes(swaps, rows.codes, alpha_bar, options.sizes)
    return _Noised(times, alpha_bar, alpha_bar_before, noise, numbers, codes)
