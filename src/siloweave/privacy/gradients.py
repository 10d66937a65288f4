"""Private gradients: every row's gradient is clipped, the sum is noised, a constant divides it.

DP-SGD (Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang, "Deep Learning with
Differential Privacy", 2016) without a gradient per row in memory. The gradient of one row for the
weight of a dense layer is the outer product of the layer's input and of the loss's gradient at the
layer's output, so its norm is the product of two norms (Goodfellow, "Efficient Per-Example Gradient
Computations", 2015), and the clipped sum is one matrix product of what the backward pass left
behind (book-keeping: Bu, Wang, Zha and Karypis, "Differentially Private Optimization on Large
Model at Small Cost", 2023). Parameters outside of dense layers get a gradient per row; they are
few. `layer=None` takes a gradient per row for everything: slow, and right for any loss, such as one
with a gradient inside. A critic's gradient penalty needs that only if its slope is not written out
in calls of its layers (models/critic.py does).

A loss is a function of *one* row, `loss(model, row, key)`, and rows are mapped over it, so no row
can reach another row's gradient (batch normalisation and means over a batch cannot be written).

**Guarantee**, of one step of `Private` on a batch drawn by Poisson sampling:

* The sum of clipped gradients has sensitivity `clip` in L2 when a row is added or removed, for all
  parameters together: one joint clip. One row more in a batch moves others to other places, and the
  keys of the loss go by place. So these come from the secret too: keys that nobody knows are alike
  for every place, and two neighbours can be told apart only by what one row adds. What is
  clipped is what is summed: both come from the same inputs and output gradients, so the bound holds
  even for a model that is differentiated wrongly. A row whose gradient is not finite counts
  nothing.
* Sums are of 32-bit floats, and what rounding adds to the sensitivity is paid for: rows are clipped
  to clip / (1 + `rounding(n)`), n being the room of a batch. An addition is off by at most 2^-24 of
  its result, which is at most n clips long. If n rows that all pull one way are added one by one,
  and roundings go up or down by chance, two neighbours are n^1.5 2^-25 clips further apart, which
  `rounding(n)` covers up to n = 1,024. Compiled programs add in blocks: on CPUs less than a tenth
  of `rounding(n)` was seen up to n = 8,192. This is no proof: roundings that all go one way could
  add n^2 2^-23 clips.
* The noise is Gaussian of standard deviation `clip * noise_multiplier` on every number, and the
  divisor is a constant, never the number of rows drawn. So `SampledGaussian(noise_multiplier,
  sampling_rate, steps)` is the event, charged before the first step; it prices replacing a row too.
* Honest limits: the noise is 32-bit floats as well, and a deterministic function (Threefry, 64-bit
  keys, then the inverse of the normal distribution with tails up to 9.2 standard deviations) of a
  key that comes from the operating system. Threefry is no cipher with a proof behind it, and the
  lowest bits of a float can betray what was rounded (Mironov 2012). The exact integers of
  `siloweave.privacy.mechanisms` have neither weakness and are for counts. Who is drawn, and where
  in its bin a value is encoded, come from numpy's PCG64 seeded by 64 bits of the same secret: no
  cipher either.
* Not covered: the losses that are returned (they are for the screen of whoever holds the rows),
  and whoever learns which rows were drawn. The sampler's key must be secret as well.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from siloweave.errors import InputError
from siloweave.privacy.bookkeeping import bookkept, plain
from siloweave.privacy.mechanisms import Entropy
from siloweave.privacy.normal import add_normal

__all__ = [
    "BatchClipped",
    "ClippedSum",
    "Private",
    "batch_multiplier",
    "batch_sensitivity",
    "clipped_sum",
    "rounding",
    "secret_key",
]

Array = jax.Array
_Loss = Callable[[Any, Any, Array], Array]


def secret_key(entropy: Entropy, *, store: Path | None = None) -> Array:
    """A jax key that nobody can know, for noise and for Poisson sampling.

    Args:
        entropy: The party's own; `SeededEntropy` for tests, whose outputs are NOT PRIVATE.
        store: Folder of a run. The key is kept there (mode 0600) so that an interrupted run goes
            on to the same result; remove it with the run. Whoever reads it can subtract the noise.

    **Guarantee**: 64 bits of the operating system's entropy, used for one run.

    Example:
        >>> from siloweave.privacy import OSEntropy
        >>> secret_key(OSEntropy()).shape
        ()
    """
    path = None if store is None else store / "secret.json"
    if path is not None and path.exists():
        words = json.loads(path.read_text(encoding="utf-8"))["words"]
    else:
        words = np.frombuffer(entropy.bytes(8), dtype="<u4").tolist()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, json.dumps({"words": words}).encode())
    key: Array = jax.random.wrap_key_data(jnp.array(words, jnp.uint32), impl="threefry2x32")
    return key


def _write(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


class ClippedSum(NamedTuple):
    """What `clipped_sum` returns; nothing of it is private yet.

    Attributes:
        total: The sum of clipped gradients, shaped as the model (None where nothing is trained).
        losses: (batch,), of every row.
        norms: (batch,), of every row's gradient before clipping; an upper bound within 0.01
            percent. 0 where the mask is False.
    """

    total: Any
    losses: Array
    norms: Array


def clipped_sum(
    loss: _Loss,
    model: Any,
    rows: Any,
    mask: Array,
    *,
    clip: float | Array,
    key: Array,
    layer: type | None = None,
) -> ClippedSum:
    """The sum over rows of gradients, each scaled down to norm `clip` over all parameters.

    To be exact, to a little less: `rounding` tells how much less, and why.

    Args:
        loss: Loss of one row, a number.
        model: A pytree; its floating point arrays are trained.
        rows: A pytree of arrays with equal leading axis.
        mask: (batch,), which rows count.
        clip: Largest norm of a row's gradient, > 0; infinite for none.
        key: The i-th row gets the i-th of its children.
        layer: Type of dense layers, called with (..., fan_in), with attributes `weight` (fan_in,
            fan_out) and `bias` (fan_out,) or None; or `equinox.nn.Linear`. Calls backwards,
            `layer.transposed(d)` for d W^T, are calls like any other. Their gradients are
            book-kept. None for a gradient per row of everything.

    **Guarantee**: adding or removing one row, by its place in `mask`, moves `total` by at most
    `clip` in L2 over all parameters together; replacing one, by at most twice that.

    Example:
        >>> loss = lambda w, row, key: (w * row).sum()
        >>> rows = jnp.array([[3.0, 4.0], [0.3, 0.4]])
        >>> result = clipped_sum(loss, jnp.ones(2), rows, jnp.array([True, True]), clip=1.0,
        ...                      key=jax.random.key(0))
        >>> [round(float(x), 2) for x in result.total]
        [0.9, 1.2]
    """
    work = plain if layer is None else bookkept
    bound = clip / (1.0 + rounding(mask.shape[0]))
    total, losses, norms = work(loss, model, rows, mask, clip=bound, key=key, layer=layer)
    return ClippedSum(total, losses, norms)


def rounding(rows: int) -> float:
    """What is left free in a clip for the rounding of a 32-bit sum, relative to the clip.

    Args:
        rows: How many may be added up.

    **Guarantee**: see the head of this module: generous, and no proof.

    Example:
        >>> rounding(100) == rounding(1024) == 2**-10, rounding(4096) == 2**-8
        (True, True)
    """
    return 2.0**-10 * max(1.0, rows / 1024)


def _upward(value: float) -> Array:
    """The value as a 32-bit array, rounded up; an array, so that one program serves all values."""
    return jnp.asarray(np.float32(value * (1.0 + 2.0**-22)))


class Private(eqx.Module):
    """A gradient function that adds noise: give it to a model in the place of `mean_gradient`.

    See the head of this module for what it guarantees. Numbers are part of what the compiled
    program is given, not of the program: another budget or number of rows needs no new one.

    Attributes:
        secret: Key of the noise and of what losses draw, from `secret_key`; never from the
            user's seed.
        clip: Largest norm of a row's gradient.
        noise_multiplier: Standard deviation of the noise in units of `clip`, rounded up.
        batch: The divisor: the expected number of rows in a batch, a constant.
        layer: Type of the model's dense layers, or None for a gradient per row.
    """

    secret: Array
    clip: Array
    noise_multiplier: Array
    batch: Array
    layer: type | None = eqx.field(static=True, default=None)

    def __init__(
        self,
        secret: Array,
        clip: float,
        noise_multiplier: float,
        batch: float,
        layer: type | None = None,
    ) -> None:
        """Check the numbers and make arrays of them."""
        _positive("Private", clip=clip, noise_multiplier=noise_multiplier, batch=batch)
        self.secret, self.layer = secret, layer
        self.clip, self.batch = jnp.float32(clip), jnp.float32(batch)
        self.noise_multiplier = _upward(noise_multiplier)

    def __call__(self, loss: _Loss, model: Any, batch: Any, key: Array) -> tuple[Any, Array]:
        """The noisy gradient of a Poisson batch, and the mean loss, which is *not* private.

        Args:
            loss: Loss of one row.
            model: A pytree.
            batch: `Sampled(rows, mask)`.
            key: Key of the step: every step needs its own, or noise would be used twice.
        """
        rows, mask = _sampled(batch)
        noise, drawing = jax.random.split(_both(self.secret, key))
        found = clipped_sum(loss, model, rows, mask, clip=self.clip, key=drawing, layer=self.layer)
        noisy = add_normal(found.total, self.clip * self.noise_multiplier, key=noise)
        return jax.tree.map(lambda x: x / self.batch, noisy), _shown(found.losses, mask)


def batch_sensitivity(clip: float, parts: int = 1) -> float:
    """How far one row moves a clipped batch gradient: 2 C, or 2 sqrt(parts) C.

    The mean of a batch can be swung by one row from one side of the ball to the other, whether
    the row is added, removed or replaced; separately clipped parts all swing.

    **Guarantee**: exact.

    Example:
        >>> batch_sensitivity(1.0), round(batch_sensitivity(1.0, parts=2), 4)
        (2.0, 2.8284)
    """
    return 2 * math.sqrt(parts) * clip


def batch_multiplier(sigma: float, parts: int = 1) -> float:
    """The noise multiplier that batch clipping really has with noise N(0, (C sigma)^2).

    This is what goes into `SampledGaussian`: sigma / 2 for one clip, sigma / (2 sqrt 2) for an
    encoder and a decoder clipped separately; sigma itself, as DP-TLDM counts, is refuted.

    **Guarantee**: sigma C divided by `batch_sensitivity(C, parts)`.

    Example:
        >>> batch_multiplier(0.2), round(batch_multiplier(0.5, parts=2), 3)
        (0.1, 0.177)
    """
    return sigma / batch_sensitivity(1.0, parts)


class BatchClipped(eqx.Module):
    """Clipping of the *batch's* mean gradient, as in DP-TLDM: for comparison, not for use.

    Averaging buys no privacy here: one row moves the clipped mean by `batch_sensitivity(clip,
    parts)`, whatever the batch. Noise that per-row clipping divides by the batch stays whole.

    **Guarantee**: with Poisson sampling, `SampledGaussian(batch_multiplier(sigma, parts), rate,
    steps)` for neighbours by adding or removing a row. No guarantee with shuffled batches. The
    limits of the module's head hold as well. A row whose gradient is not finite counts nothing, so
    that no row turns the whole step into NaN; this takes a gradient per row, as `layer=None` does.

    Attributes:
        secret: Key of the noise, from `secret_key`.
        clip: C.
        sigma: Standard deviation of the noise in units of C, as the paper counts.
        parts: 1 for one clip over the whole model; else the model is a tuple of so many parts,
            each clipped to C by itself.
    """

    secret: Array
    clip: float = eqx.field(static=True)
    sigma: float = eqx.field(static=True)
    parts: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        _positive("BatchClipped", clip=self.clip, sigma=self.sigma, parts=self.parts)

    def __call__(self, loss: _Loss, model: Any, batch: Any, key: Array) -> tuple[Any, Array]:
        """The noisy clipped gradient of a Poisson batch, and the mean loss, *not* private."""
        rows, mask = _sampled(batch)
        if self.parts > 1 and not (isinstance(model, tuple) and len(model) == self.parts):
            raise InputError(f"BatchClipped: the model must be a tuple of {self.parts} parts.")
        found = clipped_sum(loss, model, rows, mask, clip=jnp.inf, key=key)
        gradient = jax.tree.map(lambda x: x / jnp.maximum(mask.sum(), 1), found.total)
        pieces = tuple(gradient) if self.parts > 1 else (gradient,)
        clipped = tuple(_clipped(piece, self.clip) for piece in pieces)
        total = clipped if self.parts > 1 else clipped[0]
        noisy = add_normal(total, self.clip * self.sigma, key=_both(self.secret, key))
        return noisy, _shown(found.losses, mask)


def _clipped(tree: Any, clip: float) -> Any:
    norm = jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(tree))) * (1.0 + rounding(1))
    factor = jnp.minimum(1.0, clip / jnp.maximum(norm, 1e-30))
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(norm), x * factor, 0.0), tree)


def _sampled(batch: Any) -> tuple[Any, Array]:
    if not hasattr(batch, "mask"):
        raise InputError(
            "a private gradient needs batches of Poisson sampling. Train with "
            "sampler=Poisson(rate, key)."
        )
    return batch.rows, batch.mask


def _both(secret: Array, key: Array) -> Array:
    """A key that nobody knows who lacks the secret, and another one for every key."""
    words = jnp.reshape(jax.random.key_data(key), -1)
    for place in range(words.size):
        secret = jax.random.fold_in(secret, words[place])
    return secret


def _shown(losses: Array, mask: Array) -> Array:
    """The mean over rows whose loss is a number; 0 without any."""
    good = mask & jnp.isfinite(losses)
    return jnp.where(good, losses, 0.0).sum() / jnp.maximum(good.sum(), 1)


def _positive(where: str, **values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{where}: {name} = {value} must be finite and greater than 0.")
