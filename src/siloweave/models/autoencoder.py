"""Autoencoders of mixed rows: Gaussian heads for numbers, categorical heads for categoricals.

As in the papers on tabular latent diffusion (SiloFuse, Shankar et al. 2024; DP-TLDM, Zhu et al.
2024): dense encoder and decoder, negative log-likelihood of the row under the decoder's heads, and
optionally the divergence of the latent distribution from N(0, I) (Kingma & Welling 2014).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from siloweave.errors import InputError
from siloweave.models.denoiser import Rows, draw, grouped, inputs, joined, outputs
from siloweave.models.nets import MLP, Array, Groups, Options, fresh, padded, pieces
from siloweave.models.settings import AutoencoderSettings
from siloweave.models.train import Descent
from siloweave.progress import Progress, silent
from siloweave.tables.arrays import Matrix
from siloweave.tables.features import Block, Layout, SphereCodes

_CHUNK = 4096
# Nats; a number known to 3 % of a unit is known well enough.
_LOG_VARIANCES = (-7.0, 3.0)


def latent_size(settings: AutoencoderSettings, layout: Layout) -> int:
    """Return the length of a latent row: one number for each block if no length is set."""
    return settings.latent or max(len(layout.blocks), 1)


class Coder(eqx.Module):
    """Encoder and decoder."""

    # From a row to latent means, and log-variances when there is a divergence.
    encoder: MLP
    # From a latent row to means and log-variances of numbers and logits of options.
    decoder: MLP
    latent: int = eqx.field(static=True)  # size of a latent row

    def __init__(
        self, layout: Layout, settings: AutoencoderSettings, *, key: Array
    ) -> None:
        first, second = jax.random.split(key)
        d, categories = len(layout.numbers), sum(b.size for b in layout.categoricals)
        self.latent = latent_size(settings, layout)
        codes = self.latent * (2 if settings.divergence else 1)
        hidden = settings.hidden
        self.encoder = MLP(d + categories, hidden, codes, key=first, act=settings.act)
        out = 2 * d + categories
        self.decoder = MLP(self.latent, hidden[::-1], out, key=second, act=settings.act)

    def encode(self, x: Array) -> tuple[Array, Array | None]:
        """Return latent means (batch, latent), and log-variances if the encoder has them."""
        out = self.encoder(x)
        if out.shape[-1] == self.latent:
            return out, None
        return out[:, : self.latent], jnp.clip(out[:, self.latent :], -15.0, 5.0)

    def decode(self, z: Array) -> Array:
        """Return the parameters of the heads, (batch, 2 numbers + categories)."""
        return self.decoder(z)


def reconstruction(out: Array, rows: Rows, groups: Groups) -> Array:
    """Negative log-likelihood of each row under the decoder's heads, nats per block, (batch,).

    A number that its column's categorical leaves unused (a spike, a missing value) is 0 and is not
    counted: a head would learn that 0 ever more exactly, at the cost of all else.
    """
    d = rows.numbers.shape[1]
    blocks = d + rows.codes.shape[1]
    mean, spread = out[:, :d], jnp.clip(out[:, d : 2 * d], *_LOG_VARIANCES)
    options = Options(groups)
    logs = options.log_softmax(out[:, 2 * d :])
    gauss = 0.5 * (
        jnp.log(2 * jnp.pi) + spread + (rows.numbers - mean) ** 2 * jnp.exp(-spread)
    )
    entropy = -jnp.where(options.flags(rows.codes), logs, 0.0).sum(-1)
    return (jnp.where(rows.numbers != 0.0, gauss, 0.0).sum(-1) + entropy) / blocks


class _Descent(Descent):
    def losses(self, net: Coder, rows: Rows, key: Array) -> Array:
        return row_losses(net, rows, key, self.groups, self.settings)


def descent(settings: AutoencoderSettings, layout: Layout) -> Descent:
    """Return one step of training, as `models.train` takes it."""
    return _Descent(settings, layout.groups)


def row_losses(
    net: Coder, rows: Rows, key: Array, groups: Groups, settings: AutoencoderSettings
) -> Array:
    """Return the reconstruction plus weighted divergence of each row, (batch,)."""
    mean, spread = net.encode(inputs(groups, rows.numbers, rows.codes))
    noise = jax.random.normal(key, mean.shape)
    if spread is None:
        return reconstruction(net.decode(mean + settings.jitter * noise), rows, groups)
    z = mean + jnp.exp(0.5 * spread) * noise
    divergence = 0.5 * (mean**2 + jnp.exp(spread) - spread - 1.0).sum(-1)
    return (
        reconstruction(net.decode(z), rows, groups) + settings.divergence * divergence
    )


class Autoencoder(eqx.Module):
    """A fitted autoencoder of the blocks of a layout; its weights are averaged."""

    net: Coder
    layout: Layout = eqx.field(static=True)
    settings: AutoencoderSettings = eqx.field(static=True)

    @property
    def sphere_codes(self) -> SphereCodes:
        """Which latents are codes of categoricals: none, because it mixes columns."""
        return ()

    def encode(self, X: Matrix) -> Matrix:
        """Return latent means, (n, latent) float32; raises InputError for rows that do not fit."""
        rows, groups = self.layout.split(self.layout.check(X)), self.layout.groups
        parts = [
            np.asarray(_encoded(self.net, *padded(rows, i, j, size), groups))[: j - i]
            for i, j, size in pieces(len(X), _CHUNK)
        ]
        return np.concatenate(parts)

    def decode(self, Z: Matrix, *, key: Array, numbers: str = "mean") -> Matrix:
        """Rows (n, width) of latent rows: draws from categorical heads, or their likeliest options.

        `numbers` is the "mean" of the Gaussian heads, or a "draw" from them.
        """
        if numbers not in {"mean", "draw"}:
            raise InputError(f"numbers={numbers!r} is neither 'mean' nor 'draw'")
        d, groups = len(self.layout.numbers), self.layout.groups
        drawn = (numbers == "draw", self.settings.heads == "draw")
        found = [
            (
                np.zeros((0, d), np.float32),
                np.zeros((0, sum(n for n, _ in groups)), np.int32),
            )
        ]
        for i, j, size in pieces(len(Z), _CHUNK):
            inner = jax.random.fold_in(key, i)
            out = _decoded(self.net, padded(Z, i, j, size), inner, d, groups, drawn)
            found.append((np.asarray(out[0])[: j - i], np.asarray(out[1])[: j - i]))
        values, codes = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return self.layout.join(values, codes)


@partial(jax.jit, static_argnames="groups")
def _encoded(net: Coder, numbers: Array, codes: Array, groups: Groups) -> Array:
    return net.encode(inputs(groups, numbers, codes))[0]


@partial(jax.jit, static_argnames=("d", "groups", "drawn"))
def _decoded(
    net: Coder, z: Array, key: Array, d: int, groups: Groups, drawn: tuple[bool, bool]
) -> tuple[Array, Array]:
    out = net.decode(z)
    numbers, spread = out[:, :d], jnp.clip(out[:, d : 2 * d], *_LOG_VARIANCES)
    first, key = jax.random.split(key)
    if drawn[0]:
        numbers += jnp.exp(0.5 * spread) * jax.random.normal(first, numbers.shape)
    _, logs = outputs(groups, out[:, 2 * d :], 0)
    if not drawn[1]:
        return numbers, joined(
            [log_p.argmax(-1).astype(jnp.int32) for log_p in logs], len(z)
        )
    uniform = jax.random.uniform(key, (len(z), sum(count for count, _ in groups)))
    codes = [
        draw(u, log_p) for u, log_p in zip(grouped(groups, uniform), logs, strict=True)
    ]
    return numbers, joined(codes, len(z))


def fit(
    X: Matrix,
    blocks: tuple[Block, ...],
    settings: AutoencoderSettings | None = None,
    *,
    key: Array,
    progress: Progress = silent,
    store: Path | None = None,
) -> Autoencoder:
    """Fit an autoencoder to the rows of a feature matrix, (n, width) float32, of these blocks.

    The key draws first weights, batches and latent noise. An interrupted fit resumes from the
    checkpoints in `store`. Raises InputError for rows that are not finite or not one-hot.
    """
    settings = settings or AutoencoderSettings()
    layout = Layout(tuple(blocks))
    numbers, codes = layout.split(layout.check(X))
    rows = Rows(jnp.asarray(numbers), jnp.asarray(codes), jnp.zeros(len(X), jnp.int32))
    first, key = jax.random.split(key)
    update, start = descent(settings, layout), fresh(Coder, layout, settings, key=first)
    net, _ = update.trained(start, rows, key=key, progress=progress, store=store)
    return Autoencoder(net, layout, settings)
