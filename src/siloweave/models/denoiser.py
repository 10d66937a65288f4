"""The network that undoes noise, and its loss: what every diffusion model here trains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from siloweave.models.layout import SphereCodes
from siloweave.models.multinomial import (
    Groups,
    Options,
    forward_codes,
    prior_divergence,
    row_bound,
    row_cross_entropy,
)
from siloweave.models.nets import MLP, Array, Dense, TimeEmbedding
from siloweave.models.settings import DiffusionSettings
from siloweave.models.sphere_codes import Evidence

_EDGE = 1.0 - 2.0**-24  # the largest float32 below 1


class Rows(NamedTuple):
    """Rows in the layout's order."""

    numbers: Array  # (n, d) float32
    codes: Array  # (n, c) int32
    labels: Array  # (n,) int32; zeros without labels


class Denoiser(eqx.Module):
    """From a noisy row, its time and its label to what was there before the noise."""

    project: Dense  # noisy row to `embed` units
    time: TimeEmbedding  # time to `embed` units, added
    label: Dense | None  # one-hot label to `embed` units, through a SiLU, added; None without one
    body: MLP  # to one output per number and one per option

    def __init__(
        self, fan_in: int, fan_out: int, labels: int, settings: DiffusionSettings, *, key: Array
    ) -> None:
        a, b, c, d = jax.random.split(key, 4)
        self.project = Dense(fan_in, settings.embed, key=a)
        self.time = TimeEmbedding(settings.embed, key=b)
        self.label = Dense(labels, settings.embed, key=c, scale=labels**0.5) if labels else None
        self.body = MLP(
            settings.embed,
            settings.hidden,
            fan_out,
            key=d,
            act=settings.act,
            dropout=settings.dropout,
            residual=settings.residual,
        )

    def __call__(self, x: Array, t: Array, labels: Array, *, key: Array | None = None) -> Array:
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
    """The inverse of `grouped` for n rows; (n, 0) without categoricals."""
    return jnp.concatenate(parts, -1) if parts else jnp.zeros((n, 0), jnp.int32)


def inputs(groups: Groups, numbers: Array, codes: Array) -> Array:
    """The network's input: numbers beside one-hot categoricals, (batch, fan_in)."""
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
    """Standard normal numbers from uniform ones in [0, 1), up to 5.4 standard deviations."""
    scores: Array = 2.0**0.5 * jax.lax.erf_inv(jnp.clip(2.0 * uniform - 1.0, -_EDGE, _EDGE))
    return scores


def target(prediction: str, clean: Array, noise: Array, kept: Array) -> Array:
    """What the network should give for numbers, (batch, d), at noise level ᾱ_t (batch, 1).

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
class NumberHead:
    """How the network's outputs for numbers are read; equal ones share a compiled program."""

    count: int  # d
    prediction: str = "noise"  # what it gives for a number, see `target`
    sphere_codes: SphereCodes = ()  # categoricals among the numbers: it gives logarithms for them

    @cached_property
    def evidence(self) -> Evidence:
        """What noisy sphere codes say of their options."""
        return Evidence(self.count, self.sphere_codes)

    @property
    def plain(self) -> npt.NDArray[np.int64]:
        """Which numbers are no part of a sphere code."""
        return self.evidence.plain

    @property
    def parts(self) -> int:
        """How many plain numbers and sphere codes there are."""
        return len(self.plain) + len(self.sphere_codes)

    @property
    def inputs(self) -> int:
        """How many inputs `seen` makes of the numbers."""
        return self.count + len(self.evidence.options.categorical)

    @property
    def outputs(self) -> int:
        """How many outputs belong to the numbers."""
        return len(self.plain) + len(self.evidence.options.categorical)

    def seen(self, numbers: Array, kept: Array) -> Array:
        """The network's input, (batch, inputs): sphere codes' options by their evidence as well."""
        if not self.sphere_codes:
            return numbers
        logs = self.evidence.options.log_softmax(self.evidence.alone(numbers, kept))
        return jnp.concatenate([numbers, jnp.exp(logs)], axis=-1)

    def clean(self, out: Array, numbers: Array, kept: Array) -> Array:
        """x̂_0, (batch, d), from the network's (batch, outputs) at noise level ᾱ_t."""
        if not self.sphere_codes:
            return clean_numbers(self.prediction, out, numbers, kept)
        of_numbers, of_codes = jnp.split(out, [len(self.plain)], axis=-1)
        own = clean_numbers(self.prediction, of_numbers, numbers[:, self.plain], kept)
        codes = self.evidence.expected(self.evidence.likely(of_codes, numbers, kept))
        return codes.at[:, self.plain].set(own)

    def losses(
        self, out: Array, clean: Array, noise: Array, numbers: Array, kept: Array, weight: float
    ) -> Array:
        """Squared errors and cross-entropies, summed over numbers and sphere codes, (batch,).

        At noise level `kept`, (batch, 1) ᾱ_t, `numbers` are the sum of `clean` and `noise`, all
        (batch, d). Squared errors are weighed by (1 - ᾱ)^weight.
        """
        of_numbers, of_codes = jnp.split(out, [len(self.plain)], axis=-1)
        wanted = target(self.prediction, clean[:, self.plain], noise[:, self.plain], kept)
        loss = (1.0 - kept[:, 0]) ** weight * jnp.sum((of_numbers - wanted) ** 2, axis=-1)
        if self.sphere_codes:
            logs = self.evidence.likely(of_codes, numbers, kept)
            loss -= jnp.where(self.evidence.truth(clean), logs, 0.0).sum(-1)
        return loss


def row_losses(
    net: Denoiser,
    rows: Rows,
    key: Array,
    groups: Groups,
    kept: npt.NDArray[np.float64],
    settings: DiffusionSettings,
    sphere_codes: SphereCodes = (),
) -> Array:
    """The loss of each row at one random time, (batch,).

    A number costs its squared error, a sphere code and a categorical the cross-entropy of the clean
    option, and the row the mean over its columns. With ``choices="bound"`` it is, as in the paper,
    the mean over numbers plus the mean over categoricals of the bound: its term at time t times T
    (times are uniform) plus the prior's constant. Within a batch the times are spread evenly; each
    by itself is uniform. `kept` is ᾱ of every time; the key draws times, noise and dropout.
    """
    reading = NumberHead(rows.numbers.shape[1], settings.prediction, sphere_codes)
    options = Options(groups)
    chance, drop = jax.random.split(key)
    (n, d), c, T = rows.numbers.shape, rows.codes.shape[1], len(kept)
    uniform = jax.random.uniform(chance, (n, 1 + d + 2 * c))  # one draw: each compiles for long
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
    loss = reading.losses(of_numbers, rows.numbers, noise, numbers, a, settings.loss_weight)
    if not groups:
        return loss / reading.parts
    log_x0 = options.log_softmax(logits)
    if settings.choices == "cross-entropy":
        entropy = row_cross_entropy(options, log_x0, rows.codes, noisy, a)
        return (loss + entropy) / (reading.parts + c)
    bound = T * row_bound(options, log_x0, rows.codes, noisy, a, earlier)
    prior = sum(prior_divergence(float(kept[-1]), size) for size in options.sizes)
    return loss / max(reading.parts, 1) + (bound + prior) / c
