"""The network that undoes noise, and its loss: what every diffusion model here trains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

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
from siloweave.models.sphere_codes import Evidence

__all__ = [
    "CHOICE_LOSSES",
    "PREDICTIONS",
    "Denoiser",
    "NumberHead",
    "Rows",
    "Shape",
    "clean_numbers",
    "grouped",
    "inputs",
    "joined",
    "normal_scores",
    "outputs",
    "row_losses",
    "target",
]

PREDICTIONS = ("noise", "clean", "velocity")
"""What a network may give for numbers: see `target`."""

CHOICE_LOSSES = ("cross-entropy", "bound")
"""What may be minimised for choices: see `multinomial`."""

_EDGE = 1.0 - 2.0**-24  # the largest float32 below 1


class Rows(NamedTuple):
    """Rows in the layout's order.

    Attributes:
        numbers: (n, d) float32.
        codes: (n, c) int32.
        labels: (n,) int32; zeros without labels.
    """

    numbers: Array
    codes: Array
    labels: Array


class Shape(Protocol):
    """The settings that give a denoiser its shape."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""

    @property
    def embed(self) -> int:
        """Width of the first projection."""

    @property
    def act(self) -> str:
        """Activation."""

    @property
    def dropout(self) -> float:
        """Share of hidden units dropped in training."""

    @property
    def residual(self) -> bool:
        """Whether hidden layers add to their input."""


class Denoiser(eqx.Module):
    """From a noisy row, its time and its label to what was there before the noise.

    Attributes:
        project: Noisy row to `embed` units.
        time: Time to `embed` units, added.
        label: One-hot label to `embed` units, through a SiLU, added; None without labels.
        body: To one output per number and one per category.
    """

    project: Dense
    time: TimeEmbedding
    label: Dense | None
    body: MLP

    def __init__(
        self, fan_in: int, fan_out: int, labels: int, settings: Shape, *, key: Array
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

    def __call__(
        self,
        x: Array,
        t: Array,
        labels: Array,
        *,
        key: Array | None = None,
    ) -> Array:
        """Map (batch, fan_in), times in 0 ... 1000 (batch,) or (1,), labels (batch,)."""
        h = self.project(x) + self.time(t)
        if self.label is not None:
            told = jax.nn.one_hot(labels, self.label.weight.shape[0])
            h = h + jax.nn.silu(self.label(told))
        return self.body(h, key=key)


def grouped(groups: Groups, codes: Array) -> list[Array]:
    """Cut (..., all choices) into one array for each size of choice."""
    edges = np.cumsum([count for count, _ in groups])[:-1]
    return list(jnp.split(codes, edges, axis=-1)) if groups else []


def joined(parts: list[Array], n: int) -> Array:
    """The inverse of `grouped` for n rows; (n, 0) without choices."""
    return jnp.concatenate(parts, -1) if parts else jnp.zeros((n, 0), jnp.int32)


def inputs(groups: Groups, numbers: Array, codes: Array) -> Array:
    """The network's input: numbers beside one-hot choices, (batch, fan_in)."""
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
    """What the network should give for numbers.

    Args:
        prediction: "noise", "clean", or "velocity" √ᾱ noise - √(1-ᾱ) clean (Salimans & Ho 2022),
            from which both follow at every time without dividing by something small.
        clean: (batch, d).
        noise: (batch, d).
        kept: (batch, 1) ᾱ_t.
    """
    if prediction == "noise":
        return noise
    if prediction == "clean":
        return clean
    return jnp.sqrt(kept) * noise - jnp.sqrt(1.0 - kept) * clean


def clean_numbers(prediction: str, told: Array, numbers: Array, kept: Array) -> Array:
    """x̂_0 of the numbers, from what the network told of them at noise level ᾱ_t."""
    if prediction == "noise":
        return (numbers - jnp.sqrt(1.0 - kept) * told) / jnp.sqrt(kept)
    if prediction == "clean":
        return told
    return jnp.sqrt(kept) * numbers - jnp.sqrt(1.0 - kept) * told


@dataclass(frozen=True)
class NumberHead:
    """How the network's outputs for numbers are read; equal ones share a compiled program.

    Attributes:
        count: d.
        prediction: What it gives for a number, one of `PREDICTIONS`.
        spots: Choices that are points among the numbers: it gives logarithms for their options.
    """

    count: int
    prediction: str = "noise"
    spots: SphereCodes = ()

    @cached_property
    def evidence(self) -> Evidence:
        """What is said of the spots."""
        return Evidence(self.count, self.spots)

    @property
    def plain(self) -> npt.NDArray[np.int64]:
        """Which numbers are no part of a point."""
        return self.evidence.plain

    @property
    def parts(self) -> int:
        """How many numbers and points there are."""
        return len(self.plain) + len(self.spots)

    @property
    def inputs(self) -> int:
        """How many inputs `seen` makes of them."""
        return self.count + len(self.evidence.options.choice)

    @property
    def outputs(self) -> int:
        """How many outputs tell of them."""
        return len(self.plain) + len(self.evidence.options.choice)

    def seen(self, numbers: Array, kept: Array) -> Array:
        """What the network is shown, (batch, inputs): points' options by evidence alone as well."""
        if not self.spots:
            return numbers
        logs = self.evidence.options.log_softmax(self.evidence.alone(numbers, kept))
        return jnp.concatenate([numbers, jnp.exp(logs)], axis=-1)

    def clean(self, told: Array, numbers: Array, kept: Array) -> Array:
        """x̂_0, (batch, d), from what the network told, (batch, outputs), at noise level ᾱ_t."""
        if not self.spots:
            return clean_numbers(self.prediction, told, numbers, kept)
        of_numbers, of_spots = jnp.split(told, [len(self.plain)], axis=-1)
        own = clean_numbers(self.prediction, of_numbers, numbers[:, self.plain], kept)
        points = self.evidence.expected(self.evidence.likely(of_spots, numbers, kept))
        return points.at[:, self.plain].set(own)

    def losses(
        self,
        told: Array,
        clean: Array,
        noise: Array,
        numbers: Array,
        kept: Array,
        loss_weight: float,
    ) -> Array:
        """Summed over numbers and points, (batch,): squared errors, and cross-entropies.

        Args:
            told: (batch, outputs).
            clean: (batch, d), what was there.
            noise: (batch, d), what came.
            numbers: (batch, d), what both make.
            kept: (batch, 1) ᾱ_t.
            loss_weight: Squared errors are weighed by (1 - ᾱ)^loss_weight.
        """
        of_numbers, of_spots = jnp.split(told, [len(self.plain)], axis=-1)
        wanted = target(self.prediction, clean[:, self.plain], noise[:, self.plain], kept)
        loss = (1.0 - kept[:, 0]) ** loss_weight * jnp.sum((of_numbers - wanted) ** 2, axis=-1)
        if self.spots:
            logs = self.evidence.likely(of_spots, numbers, kept)
            loss -= jnp.where(self.evidence.truth(clean), logs, 0.0).sum(-1)
        return loss


def row_losses(
    net: Denoiser,
    rows: Rows,
    key: Array,
    groups: Groups,
    kept: npt.NDArray[np.float64],
    *,
    prediction: str = "noise",
    loss_weight: float = 0.0,
    spots: SphereCodes = (),
    choices: str = "cross-entropy",
) -> Array:
    """The loss of each row at one random time.

    A number costs its squared error, a point and a choice the cross-entropy of the clean option,
    and the row the mean over its columns. With ``choices="bound"`` it is, as in the paper, the mean
    over numbers plus the mean over choices of the bound: its term at time t times T (times are
    uniform) plus the prior's constant. Within a batch the times are spread evenly; each by itself
    is uniform.

    Args:
        net: The denoiser.
        rows: A batch.
        key: Draws times, noise and dropout.
        groups: (how many, of which size) of the choices.
        kept: ᾱ of every time.
        prediction: What the network gives for numbers, one of `PREDICTIONS`.
        loss_weight: Errors of numbers are weighed by (1 - ᾱ)^loss_weight. With "velocity", 1 is the
            error of the clean row: early times count more than late ones.
        spots: Choices that are points among the numbers.
        choices: What is minimised for choices, one of `CHOICE_LOSSES`.

    Returns:
        (batch,).
    """
    reading, options = NumberHead(rows.numbers.shape[1], prediction, spots), Options(groups)
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
    told, logits = out[:, : reading.outputs], out[:, reading.outputs :]
    loss = reading.losses(told, rows.numbers, noise, numbers, a, loss_weight)
    if not groups:
        return loss / reading.parts
    log_x0 = options.log_softmax(logits)
    if choices == "cross-entropy":
        entropy = row_cross_entropy(options, log_x0, rows.codes, noisy, a)
        return (loss + entropy) / (reading.parts + c)
    bound = T * row_bound(options, log_x0, rows.codes, noisy, a, earlier)
    prior = sum(prior_divergence(float(kept[-1]), size) for size in options.sizes)
    return loss / max(reading.parts, 1) + (bound + prior) / c
