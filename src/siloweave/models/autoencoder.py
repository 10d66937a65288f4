"""Autoencoders of mixed rows: Gaussian heads for numbers, categorical heads for categoricals.

As in the papers on tabular latent diffusion (SiloFuse, Shankar et al. 2024; DP-TLDM, Zhu et al.
2024): dense encoder and decoder, negative log-likelihood of the row under the decoder's heads, and
optionally the divergence of the latent distribution from N(0, I) (Kingma & Welling 2014).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

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

_CHUNK = 4096  # rows coded at once
# Nats; a number known to 3 % of a unit is known well enough.
_LOG_VARIANCES = (-7.0, 3.0)
# Of latents, nats; a variance is between 3e-7 and 148, so that losses and slopes stay finite.
_LATENT_LOG_VARIANCES = (-15.0, 5.0)


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
        encoder_key, decoder_key = jax.random.split(key)
        act = settings.act
        hidden = settings.hidden
        numbers = len(layout.numbers)
        options = sum(block.size for block in layout.categoricals)
        self.latent = latent_size(settings, layout)

        codes = self.latent
        if settings.divergence:
            codes = 2 * self.latent  # a mean and a log-variance each
        row = numbers + options
        self.encoder = MLP(row, hidden, codes, key=encoder_key, act=act)
        heads = 2 * numbers + options
        mirrored = hidden[::-1]
        self.decoder = MLP(self.latent, mirrored, heads, key=decoder_key, act=act)

    def encode(self, x: Array) -> tuple[Array, Array | None]:
        """Return latent means (batch, latent), and log-variances if the encoder has them."""
        out = self.encoder(x)
        if out.shape[-1] == self.latent:
            return out, None
        means = out[:, : self.latent]
        log_variances = jnp.clip(out[:, self.latent :], *_LATENT_LOG_VARIANCES)
        return means, log_variances

    def decode(self, z: Array) -> Array:
        """Return the parameters of the heads, (batch, 2 numbers + categories)."""
        return self.decoder(z)


def reconstruction(out: Array, rows: Rows, groups: Groups) -> Array:
    """Return the negative log-likelihood of each row under the decoder's heads, nats per block.

    It is (batch,). A number that its column's categorical leaves unused (a spike, a missing value)
    is 0 and is not counted: a head would learn that 0 ever more exactly, at the cost of all else.
    """
    d = rows.numbers.shape[1]
    blocks = d + rows.codes.shape[1]
    options = Options(groups)

    means = out[:, :d]
    log_variances = jnp.clip(out[:, d : 2 * d], *_LOG_VARIANCES)
    logs = options.log_softmax(out[:, 2 * d :])

    log_scales = jnp.log(2 * jnp.pi) + log_variances
    squares = (rows.numbers - means) ** 2 * jnp.exp(-log_variances)
    gaussian = 0.5 * (log_scales + squares)
    log_options = jnp.where(options.flags(rows.codes), logs, 0.0)
    entropy = -log_options.sum(-1)
    counted = jnp.where(rows.numbers != 0.0, gaussian, 0.0)
    return (counted.sum(-1) + entropy) / blocks


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
    x = inputs(groups, rows.numbers, rows.codes)
    means, log_variances = net.encode(x)
    noise = jax.random.normal(key, means.shape)
    if log_variances is None:
        z = means + settings.jitter * noise
        return reconstruction(net.decode(z), rows, groups)
    # Kingma & Welling 2014, equation 10: a draw from the latent distribution, and its divergence
    # from N(0, I).
    z = means + jnp.exp(0.5 * log_variances) * noise
    terms = means**2 + jnp.exp(log_variances) - log_variances - 1.0
    divergence = 0.5 * terms.sum(-1)
    loss = reconstruction(net.decode(z), rows, groups)
    return loss + settings.divergence * divergence


class _Draws(NamedTuple):
    """Which heads are drawn from; of the others, what is likeliest is taken."""

    numbers: bool
    codes: bool


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
        rows = self.layout.split(self.layout.check(X))
        groups = self.layout.groups
        parts = []
        for start, stop, size in pieces(len(X), _CHUNK):
            numbers, codes = padded(rows, start, stop, size)
            part = np.asarray(_encoded(self.net, numbers, codes, groups))
            parts.append(part[: stop - start])
        return np.concatenate(parts)

    def decode(self, Z: Matrix, *, key: Array, numbers: str = "mean") -> Matrix:
        """Return rows (n, width) of latent rows.

        Their categoricals are draws from the heads, or the likeliest options, as the settings say.
        `numbers` is the "mean" of the Gaussian heads, or a "draw" from them.
        """
        if numbers not in {"mean", "draw"}:
            raise InputError(f"numbers={numbers!r} is neither 'mean' nor 'draw'")
        groups = self.layout.groups
        d = len(self.layout.numbers)
        c = sum(count for count, _ in groups)
        draws = _Draws(numbers == "draw", self.settings.heads == "draw")

        # Begun with no rows, so that there is something to join where Z has none.
        number_parts = [np.zeros((0, d), np.float32)]
        code_parts = [np.zeros((0, c), np.int32)]
        for start, stop, size in pieces(len(Z), _CHUNK):
            piece_key = jax.random.fold_in(key, start)
            z = padded(Z, start, stop, size)
            values, codes = _decoded(self.net, z, piece_key, d, groups, draws)
            count = stop - start  # without the padding
            number_parts.append(np.asarray(values)[:count])
            code_parts.append(np.asarray(codes)[:count])
        all_numbers = np.concatenate(number_parts)
        all_codes = np.concatenate(code_parts)
        return self.layout.join(all_numbers, all_codes)


@partial(jax.jit, static_argnames="groups")
def _encoded(net: Coder, numbers: Array, codes: Array, groups: Groups) -> Array:
    x = inputs(groups, numbers, codes)
    means, _ = net.encode(x)
    return means


@partial(jax.jit, static_argnames=("d", "groups", "draws"))
def _decoded(
    net: Coder, z: Array, key: Array, d: int, groups: Groups, draws: _Draws
) -> tuple[Array, Array]:
    """Return numbers (n, d) and codes (n, c) of latent rows."""
    n = len(z)
    out = net.decode(z)
    numbers = out[:, :d]
    log_variances = jnp.clip(out[:, d : 2 * d], *_LOG_VARIANCES)
    number_key, code_key = jax.random.split(key)
    if draws.numbers:
        spread = jnp.exp(0.5 * log_variances)
        numbers += spread * jax.random.normal(number_key, numbers.shape)

    _, logs = outputs(groups, out[:, 2 * d :], 0)
    if not draws.codes:
        likeliest = [log_p.argmax(-1).astype(jnp.int32) for log_p in logs]
        return numbers, joined(likeliest, n)
    c = sum(count for count, _ in groups)
    uniform = jax.random.uniform(code_key, (n, c))
    uniform_parts = grouped(groups, uniform)
    pairs = zip(uniform_parts, logs, strict=True)
    codes = [draw(u, log_p) for u, log_p in pairs]
    return numbers, joined(codes, n)


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
    labels = jnp.zeros(len(X), jnp.int32)  # no network here reads them
    rows = Rows(jnp.asarray(numbers), jnp.asarray(codes), labels)
    first, key = jax.random.split(key)
    update = descent(settings, layout)
    start = fresh(Coder, layout, settings, key=first)
    net, _ = update.trained(start, rows, key=key, progress=progress, store=store)
    return Autoencoder(net, layout, settings)
