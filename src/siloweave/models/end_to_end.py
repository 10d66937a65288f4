"""Encoder, denoiser and decoder trained as one: in one place, or cut where parties end.

E2E and E2EDistr of Shankar et al. 2024 ("SiloFuse", section 5.1): latents are noised and denoised,
and the loss is the likelihood of the row under the decoder of the denoised latent, plus the
latent's squared error. The likelihood is that of all columns together: their mean weighs too little
against the squared error, which is least where latents say nothing. Cut, a party sends latents and
the slope of its decoder's loss, and the coordinator sends denoised latents and the slope at the
latents; the steps are those of the whole.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from siloweave.models.autoencoder import Coder, reconstruction
from siloweave.models.denoiser import Denoiser, Rows, inputs
from siloweave.models.descent import Descent, State
from siloweave.models.diffusion import DiffusionSettings
from siloweave.models.nets import Array
from siloweave.models.options import Groups
from siloweave.models.schedules import kept_variance

__all__ = [
    "REACH",
    "CoderSide",
    "DenoiserSide",
    "denoised",
    "latents",
    "surprise",
]

REACH = 3.0**0.5
"""tanh times this: a latent spread evenly over its range has variance 1."""


def latents(net: Coder, rows: Rows, groups: Groups) -> Array:
    """Latents within their reach, (batch, latent)."""
    code = net.encode(inputs(groups, rows.numbers, rows.codes))[0]
    return REACH * jnp.tanh(code)


def denoised(
    net: Denoiser, z: Array, labels: Array, key: Array, settings: DiffusionSettings
) -> Array:
    """Latents that were noised at one random time each and denoised, (batch, latent)."""
    kept = jnp.asarray(kept_variance(settings.schedule, settings.timesteps), jnp.float32)
    when, noise, drop = jax.random.split(key, 3)
    n, T = len(z), settings.timesteps
    clock = (jax.random.uniform(when) + jnp.arange(n) / n) % 1.0
    t = jnp.minimum((clock * T).astype(jnp.int32), T - 1)
    a = kept[t][:, None]
    noisy = jnp.sqrt(a) * z + jnp.sqrt(1.0 - a) * jax.random.normal(noise, z.shape)
    return net(noisy, t * (1000 / T), labels, key=drop)


def surprise(net: Coder, back: Array, rows: Rows, groups: Groups) -> Array:
    """Negative log-likelihood of rows given their denoised latents, (batch,), nats."""
    blocks = rows.numbers.shape[1] + rows.codes.shape[1]
    return blocks * reconstruction(net.decode(back), rows, groups)


class CoderSide(Descent):
    """A party's side of a step."""

    def losses(self, net: Coder, rows: Rows, back: Array) -> Array:
        """Of each row, given its denoised latent."""
        return surprise(net, back, rows, self.groups)

    @eqx.filter_jit
    def forward(self, state: State, rows: Rows) -> Array:
        """Latents of a batch."""
        return latents(state.net, rows, self.groups)

    @eqx.filter_jit
    def backward(self, state: State, rows: Rows, back: Array) -> tuple[Array, Array]:
        """The slope of the decoder's mean loss at denoised latents, and the loss."""
        loss, slope = jax.value_and_grad(lambda b: self.losses(state.net, rows, b).mean())(back)
        return slope, loss

    @eqx.filter_jit
    def turned(self, state: State, rows: Rows, back: Array, slope: Array) -> State:
        """The state after a step; `slope` is that of the whole loss at the party's latents."""

        def mean(net: Coder) -> Array:
            own = self.losses(net, rows, back).mean()
            return own + (latents(net, rows, self.groups) * slope).sum()

        return self.moved(state, eqx.filter_grad(mean)(state.net))


class DenoiserSide(Descent):
    """The coordinator's side of a step."""

    def losses(self, net: Denoiser, rows: tuple[Array, Array], key: Array) -> Array:
        """Of each row: the squared error of its latent."""
        z, labels = rows
        return ((denoised(net, z, labels, key, self.settings) - z) ** 2).mean(-1)

    @eqx.filter_jit
    def forward(self, state: State, z: Array, labels: Array, key: Array) -> Array:
        """Denoised latents of a batch."""
        return denoised(state.net, z, labels, key, self.settings)

    @eqx.filter_jit
    def turned(
        self, state: State, z: Array, labels: Array, key: Array, slope: Array
    ) -> tuple[State, Array]:
        """The state after a step, and the slope of the whole loss at the latents.

        Args:
            state: Before.
            z: (batch, latent).
            labels: (batch,).
            key: That of `forward`.
            slope: Of the decoders' losses, at the denoised latents.
        """

        def mean(parts: tuple[Denoiser, Array]) -> Array:
            net, z = parts
            back = denoised(net, z, labels, key, self.settings)
            return ((back - z) ** 2).mean(-1).mean() + (back * slope).sum()

        moves, at_latents = eqx.filter_grad(mean)((state.net, z))
        return self.moved(state, moves), at_latents
