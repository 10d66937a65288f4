"""Multinomial diffusion of categoricals, in log space (Hoogeboom et al. 2021).

At each time a categorical is either still what it was or drawn anew, uniformly among K options:

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
were replaced so far (decision 0018).

In training, `Options` puts the options of all categoricals side by side: one program serves every
size, where a kernel for each size takes a third of a second to compile. Sums over the options of
one categorical are products with a matrix of zeros and ones. Drawing works on the categoricals of
one size K at a time: codes (..., c) and logarithms (..., c, K).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Array = jax.Array

Groups = tuple[tuple[int, int], ...]
"""(how many, of which size) of categoricals that follow one another."""


@dataclass(frozen=True)
class Options:
    """Where each option of each categorical is."""

    groups: Groups

    @classmethod
    def of(cls, sizes: Iterable[int]) -> Options:
        """Categoricals of these sizes, in this order."""
        return cls(tuple((len(list(run)), size) for size, run in groupby(sizes)))

    @cached_property
    def sizes(self) -> npt.NDArray[np.int32]:
        """Of each categorical, (categoricals,)."""
        counts, sizes = np.array(self.groups, np.int32).reshape(-1, 2).T
        return np.repeat(sizes, counts)

    @cached_property
    def categorical(self) -> npt.NDArray[np.int32]:
        """Which categorical each option belongs to, (options,)."""
        return np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)

    @cached_property
    def place(self) -> npt.NDArray[np.int32]:
        """Its number in its categorical, (options,)."""
        return np.concatenate([np.arange(0, dtype=np.int32), *map(np.arange, self.sizes)])

    def flags(self, codes: Array) -> Array:
        """One-hot rows: (..., categoricals) integers to (..., options) truth values."""
        return codes[..., self.categorical] == self.place

    def sums(self, x: Array) -> Array:
        """Sums over each categorical's options: (..., options) to (..., categoricals)."""
        if len(self.groups) == 1:  # 300 binary columns need no product
            return x.reshape(*x.shape[:-1], *self.groups[0]).sum(-1)
        return jnp.matmul(x, self._member, precision="highest")

    def largest(self, x: Array) -> Array:
        """The largest entry of each categorical: (..., options) to (..., categoricals)."""
        found, start = [x[..., :0]], 0
        for count, size in self.groups:
            part = x[..., start : start + count * size]
            found.append(part.reshape(*part.shape[:-1], count, size).max(-1))
            start += count * size
        return jnp.concatenate(found, axis=-1)

    def log_softmax(self, logits: Array) -> Array:
        """Logarithms of each categorical's distribution, (..., options)."""
        low = logits - self.largest(jax.lax.stop_gradient(logits))[..., self.categorical]
        total = jnp.log(self.sums(jnp.exp(low)))
        if len(self.groups) == 1:
            return low - jnp.repeat(total, self.groups[0][1], axis=-1)
        return low - jnp.matmul(total, self._member.T, precision="highest")

    @cached_property
    def _member(self) -> npt.NDArray[np.float32]:
        """(options, categoricals), 1 where an option belongs to a categorical."""
        belongs: npt.NDArray[np.bool_] = self.categorical[:, None] == np.arange(len(self.sizes))
        return belongs.astype(np.float32)


_NOTHING = 1e-30  # a probability of nothing
_Size = int | npt.NDArray[np.int32]


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
    """Integers below `size`, from uniform numbers in [0, 1)."""
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
    options: Options, log_x0: Array, clean: Array, noisy: Array, kept: Array, kept_next: Array
) -> Array:
    """The bound's term of each row: KL(true posterior || model's).

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
    """KL(q(x_T | x_0) || uniform) of one categorical: a constant of the schedule, nats."""
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
