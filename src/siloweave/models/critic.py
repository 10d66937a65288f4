"""The critic of a Wasserstein GAN: packed rows, a gradient penalty, one loss per pack.

Losses are per pack and never averaged here, because a pack is what private training clips: with
`pac` rows in a pack, one row moves one pack's gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from siloweave.models.nets import Dense, Tape

__all__ = ["Critic", "critic_losses", "gradient_penalty", "layered_losses", "packed"]

Array = jax.Array


class Critic(eqx.Module):
    """Scores packs of rows: dense layers with leaky ReLU (0.2) and dropout.

    Attributes:
        layers: From `pac` rows joined to one number.
        pac: Rows in a pack (PacGAN: Lin, Khetan, Fanti & Oh, NeurIPS 2018).
        dropout: Share of hidden units that are dropped when a key is given.

    Example:
        >>> critic = Critic(3, (8, 8), pac=2, dropout=0.5, key=jax.random.key(0))
        >>> critic(packed(jnp.ones((10, 3)), 2)).shape
        (5,)
    """

    layers: tuple[Dense, ...]
    pac: int = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(
        self, width: int, hidden: Sequence[int], *, pac: int, dropout: float, key: Array
    ) -> None:
        sizes = [width * pac, *hidden, 1]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Dense(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.pac, self.dropout = pac, dropout

    def masks(self, packs: int, key: Array) -> Array | None:
        """Dropout of each hidden unit, (packs, all hidden units); None where nothing is dropped.

        All layers share one draw: a random draw costs as much to compile as to run.
        """
        units = sum(layer.bias.shape[0] for layer in self.layers[:-1])
        if self.dropout == 0.0 or units == 0:
            return None
        kept = jax.random.uniform(key, (packs, units)) >= self.dropout
        # Without the barrier the draw is fused into all that uses it, and drawn again for each.
        scaled: Array = jax.lax.optimization_barrier(  # type: ignore[no-untyped-call]
            kept / (1.0 - self.dropout)
        )
        return scaled

    def __call__(self, x: Array, tape: Tape | None = None, *, masks: Array | None = None) -> Array:
        """Score packs, (packs, pac x width) -> (packs,)."""
        return self.above(self.layers[0](x, tape), tape, masks=masks)

    def above(self, pre: Array, tape: Tape | None = None, *, masks: Array | None = None) -> Array:
        """Scores by what the first layer gave, before its activation: (packs, units) -> (packs,).

        The first layer is the widest by far, and what it gives of a mixture of packs is the mixture
        of what it gives of them.
        """
        start = 0
        for layer in self.layers[1:]:
            x = jax.nn.leaky_relu(pre, 0.2)
            if masks is not None:
                x = x * masks[:, start : start + x.shape[1]]
                start += x.shape[1]
            pre = layer(x, tape)
        return pre[:, 0]

    def slopes(self, x: Array) -> Array:
        """How each score changes along its pack, (packs, pac x width), without dropout.

        What `jax.grad` gives, as calls of the layers alone: leaky ReLU is straight on either side
        of 0, so its own slope is a constant there.

        Example:
            >>> critic = Critic(3, (8,), pac=1, dropout=0.0, key=jax.random.key(0))
            >>> x = jax.random.normal(jax.random.key(1), (5, 3))
            >>> bool(jnp.allclose(critic.slopes(x), jax.grad(lambda x: critic(x).sum())(x)))
            True
        """
        marks = []
        for layer in self.layers[:-1]:
            pre = layer(x)
            marks.append(jnp.where(pre >= 0, 1.0, 0.2))
            x = pre * marks[-1]
        back = self.layers[-1].transposed(jnp.ones((x.shape[0], 1)))
        for layer, mark in zip(reversed(self.layers[:-1]), reversed(marks), strict=True):
            back = layer.transposed(back * mark)
        return back


def packed(rows: Array, pac: int) -> Array:
    """Join each run of `pac` rows: (n, width) -> (n / pac, pac x width).

    Example:
        >>> packed(jnp.arange(4.0)[:, None], 2).tolist()
        [[0.0, 1.0], [2.0, 3.0]]
    """
    return rows.reshape(rows.shape[0] // pac, pac * rows.shape[1])


def gradient_penalty(
    critic: Critic, real: Array, fake: Array, *, key: Array, masks: Array | None = None
) -> Array:
    """How far the slope between real and generated packs is from 1, squared.

    Gulrajani, Ahmed, Arjovsky, Dumoulin & Courville, Improved Training of Wasserstein GANs,
    NeurIPS 2017. One interpolation coefficient per pack, one norm per pack.

    Where a pack is a single number only slopes above 1 are penalised (Petzka, Fischer & Lukovnikov,
    On the regularization of Wasserstein GANs, ICLR 2018). With several numbers a slope of the wrong
    direction turns while its norm stays 1; a single one can only pass 0, and the penalty there held
    critics at slope -1 for good: everything generated then went to one end.

    Args:
        critic: The critic.
        real: What its first layer gave of real packs, before the activation, (packs, units). What
            it gives of a mixture of packs is the mixture of that, so no pack is passed twice.
        fake: The same of as many generated packs.
        key: The coefficients.
        masks: Dropout, as `Critic.masks` draws it.

    Returns:
        (packs,), not yet weighted.

    Example:
        >>> critic = Critic(2, (), pac=1, dropout=0.0, key=jax.random.key(0))
        >>> steep = eqx.tree_at(lambda c: c.layers[0].weight, critic, jnp.array([[3.0], [0.0]]))
        >>> pre = steep.layers[0](jnp.zeros((2, 2)))
        >>> gradient_penalty(steep, pre, pre, key=jax.random.key(0)).tolist()
        [4.0, 4.0]
    """
    slope = jax.grad(lambda pre: critic.above(pre, masks=masks).sum())
    return _excess(critic.layers[0].transposed(slope(_between(real, fake, key))))


def _between(real: Array, fake: Array, key: Array) -> Array:
    share = jax.random.uniform(key, (real.shape[0], 1))
    return share * real + (1.0 - share) * fake


def _excess(slope: Array) -> Array:
    # The square root has no slope at 0; a critic that is flat there is pushed by nothing else.
    norm = jnp.sqrt(jnp.sum(slope**2, axis=-1) + 1e-12)
    excess = norm - 1.0 if slope.shape[1] > 1 else jax.nn.relu(norm - 1.0)
    return excess**2


def critic_losses(critic: Critic, real: Array, fake: Array, *, weight: float, key: Array) -> Array:
    """Wasserstein loss with gradient penalty of each pack.

    Args:
        critic: The critic.
        real: Packs of real rows, (packs, pac x width).
        fake: As many packs of generated rows.
        weight: Of the penalty.
        key: Dropout and interpolation.

    Returns:
        (packs,): score(fake) - score(real) + weight x penalty.
    """
    a, b = jax.random.split(key)
    many = real.shape[0]
    masks = critic.masks(3 * many, a)
    pair = slice(2 * many), slice(2 * many, None)
    first, last = (None, None) if masks is None else (masks[part] for part in pair)
    pre = critic.layers[0](jnp.concatenate([fake, real]))
    penalty = gradient_penalty(critic, pre[many:], pre[:many], key=b, masks=last)
    scores = critic.above(pre, masks=first)
    return scores[:many] - scores[many:] + weight * penalty


def layered_losses(critic: Critic, real: Array, fake: Array, *, weight: float, key: Array) -> Array:
    """`critic_losses` of a critic without dropout, as calls of its layers alone.

    No gradient is taken inside, so that a private training can book-keep each pack's gradient
    (siloweave.privacy.bookkeeping) instead of forming it.
    """
    many = real.shape[0]
    penalty = _excess(critic.slopes(_between(real, fake, jax.random.split(key)[1])))
    scores = critic(jnp.concatenate([fake, real]))
    return scores[:many] - scores[many:] + weight * penalty
