"""Latent diffusion of tables: a coder, then Gaussian diffusion of its latent rows.

The coder is an autoencoder, or sphere codes, which hold everything about a row, learn nothing, and
code every column by itself, so columns can be given when rows are drawn. The distribution of latent
rows does not depend on where they come from: one coder (LatentDiff, TLDM), or those of several
parties side by side (SiloFuse, Shankar et al. 2024, Algorithm 1). TLDM (Zhu et al. 2024) predicts
the noise; LatentDiff (Shankar et al. 2024, the centralised form of SiloFuse) shows a loss on the
clean latent, and its text speaks of noise: both are here, as `DiffusionSettings.prediction`.

With `joint`, encoder, denoiser and decoder are trained as one (E2E and E2EDistr of Shankar et al.
2024, section 5.1): latents are noised and denoised, and the loss is the likelihood of the row under
the decoder of the denoised latent, plus the latent's squared error. The likelihood is that of all
columns together: their mean weighs too little against the squared error, which is least where
latents carry no information. Where parties hold the columns, a party sends latents and the gradient
of its decoder's loss, and the coordinator sends denoised latents and the gradient at the latents;
the steps are those of training in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from siloweave.errors import InputError
from siloweave.models import coders, diffusion
from siloweave.models.autoencoder import Coder, reconstruction
from siloweave.models.coders import RowCoder, coder_of, rest_of, settings_from
from siloweave.models.denoiser import Denoiser, Rows, inputs
from siloweave.models.diffusion import TabDDPMModel, codes_of, kept_variance
from siloweave.models.nets import Array, Groups, fresh, load_arrays, save_arrays
from siloweave.models.settings import (
    DiffusionSettings,
    LatentSettings,
    SphereCodeSettings,
)
from siloweave.models.train import Descent, Look, State
from siloweave.progress import Progress, silent
from siloweave.tables.arrays import Ints, Matrix
from siloweave.tables.features import Block, Layout, SphereCodes

LABEL = "label"
"""Column of the label among a latent row's blocks."""
# Drawn rows among which one is looked for that is like a row given in part.
_LIKE = 1024
_CLASS = 0.01  # what flags of a class are divided by, where numbers are by their spread
_TIE = 1e-3  # squared distances that are no different
_ROWS = 4096  # rows whose distances are computed at once
RANGE = 3.0**0.5
"""Joint training: tanh times this, so a latent spread evenly over its range has variance 1."""


def latent_blocks(latent: int, options: int) -> tuple[Block, ...]:
    """Return the blocks of a latent row, followed by a label of so many options; by none if 0."""
    numbers = [Block(f"latent {i}", i, 1, "number") for i in range(latent)]
    return (
        *numbers,
        *([Block(LABEL, latent, options, "categorical")] if options else []),
    )


def latent_layout(
    latent: int, options: int, codes: SphereCodes = ()
) -> tuple[Layout, Block | None]:
    """Return the layout of a latent row, and its label."""
    layout = Layout(latent_blocks(latent, options), codes)
    return layout, layout.categorical_of(LABEL) if options else None


class LatentDistribution(eqx.Module):
    """A fitted distribution of latent rows."""

    # Of scaled latents, conditioned on the label if there is one.
    diffusion: TabDDPMModel
    shift: Any  # (latent,) what was subtracted from latents before the diffusion
    scale: Any  # (latent,) what they were divided by
    # The caller's, as JSON.
    facts: Mapping[str, Any] = eqx.field(static=True, default_factory=dict)

    @classmethod
    def unscaled(
        cls, diffusion: TabDDPMModel, facts: Mapping[str, Any] | None = None
    ) -> LatentDistribution:
        """Return the distribution of latents that were diffused as they are."""
        size = len(diffusion.layout.numbers)
        return cls(
            diffusion,
            np.zeros(size, np.float32),
            np.ones(size, np.float32),
            facts or {},
        )

    @property
    def latent(self) -> int:
        """Length of a latent row."""
        return len(self.shift)

    def sample(
        self,
        n: int,
        *,
        key: Array,
        given: Matrix | None = None,
        sampler: str | None = None,
        **way: Any,
    ) -> Matrix:
        """Draw latent rows and their label, (n, latent + options) float32, in their own units.

        `given` is of the same shape, NaN where a value is to be drawn. The sampler is "solver"
        where only labels are given; it, `way` and the errors are those of `TabDDPMModel.sample`.
        """
        shift, scale, latent = (
            np.asarray(self.shift),
            np.asarray(self.scale),
            self.latent,
        )
        if given is not None:
            given = np.array(given, dtype=np.float32)
            given[:, :latent] = (given[:, :latent] - shift) / scale
        if sampler is None and (given is None or np.isnan(given[:, :latent]).all()):
            sampler = "solver"
        drawn = self.diffusion.sample(n, key=key, sampler=sampler, given=given, **way)
        Z = drawn[:, :latent] * scale + shift
        return np.concatenate([Z, drawn[:, latent:]], 1).astype(np.float32)

    def save(self, path: Path) -> None:
        """Write one safetensors file."""
        facts = {
            "model": "LatentDistribution",
            "settings": asdict(self.diffusion.settings),
            "latent": self.latent,
            "sphere_codes": self.diffusion.layout.sphere_codes,
            **self.diffusion.facts(),
            "facts": dict(self.facts),
        }
        save_arrays(path, self, facts)

    @classmethod
    def load(cls, path: Path) -> LatentDistribution:
        """Read what `save` wrote; raises DataError where the file is no such distribution."""

        def build(facts: Mapping[str, Any]) -> LatentDistribution:
            latent, codes = facts["latent"], codes_of(facts)
            layout, label = latent_layout(latent, len(facts["label_shares"]), codes)
            settings = DiffusionSettings(**facts["settings"])
            ddpm = TabDDPMModel.of_facts(facts, layout, settings, label)
            return cls(ddpm, jnp.zeros(latent), jnp.zeros(latent), facts["facts"])

        return load_arrays(path, build)


def _frame(Z: Matrix, scaled: bool, codes: SphereCodes) -> tuple[Matrix, Matrix]:
    """Return the shift and scale of latents; sphere codes stay where the network expects them."""
    shift, scale = np.zeros(Z.shape[1], np.float32), np.ones(Z.shape[1], np.float32)
    if scaled:
        shift, scale = Z.mean(0), Z.std(0)
        scale[scale <= 1e-4] = 1.0
    for s in codes:
        place = slice(s.start, s.start + s.dimensions)
        shift[place], scale[place] = 0.0, 1.0
    return shift, scale


def fit_latents(
    V: Matrix,
    latent: int,
    settings: DiffusionSettings | None = None,
    *,
    scaled: bool = True,
    sphere_codes: SphereCodes = (),
    facts: Mapping[str, Any] | None = None,
    key: Array,
    label_shares: Sequence[float] | None = None,
    progress: Progress = silent,
    store: Path | None = None,
) -> LatentDistribution:
    """Fit the distribution of latent rows, (n, latent + options), a one-hot label at their end.

    Where `scaled`, latents are standardised by their mean and spread over the rows. `facts` are
    stored beside the distribution; key, label_shares, progress and store as in `diffusion.fit`.
    Raises InputError for latents that are not finite, or a label that is not one-hot.
    """
    Z, flags = V[:, :latent], V[:, latent:]
    shift, scale = _frame(Z, scaled, sphere_codes)
    ddpm = diffusion.fit(
        np.concatenate([(Z - shift) / scale, flags], 1),
        latent_blocks(latent, flags.shape[1]),
        settings,
        sphere_codes=sphere_codes,
        labels=LABEL if flags.shape[1] else None,
        key=key,
        label_shares=label_shares,
        progress=progress,
        store=store,
    )
    return LatentDistribution(ddpm, shift, scale, facts or {})


class LatentDiffusion(eqx.Module):
    """A fitted latent diffusion."""

    rows: RowCoder  # rows to latent rows and back
    # Of latent rows, conditioned on the label if there is one.
    distribution: LatentDistribution
    settings: LatentSettings = eqx.field(static=True)  # those of the fit

    @classmethod
    def of_networks(
        cls,
        coder: Coder,
        denoiser: Denoiser,
        layout: Layout,
        settings: LatentSettings,
        label: Block | None,
        label_shares: tuple[float, ...],
        most: float,
    ) -> LatentDiffusion:
        """Return a latent diffusion of trained networks, its latents unscaled and within ±most."""
        net = coder_of(rest_of(layout, label), settings.autoencoder, coder)
        rows = RowCoder(net, layout, label, settings.numbers)
        latents, block = latent_layout(rows.latent, label.size if label else 0)
        ranges = ((-most, most),) * rows.latent
        ddpm = TabDDPMModel(
            denoiser, latents, settings.diffusion, block, label_shares, ranges
        )
        return cls(rows, LatentDistribution.unscaled(ddpm), settings)

    @property
    def layout(self) -> Layout:
        """All blocks of a row."""
        return self.rows.layout

    @property
    def label(self) -> Block | None:
        """The categorical that the diffusion is conditioned on, or None."""
        return self.rows.label

    @property
    def owners(self) -> int:
        """How many owners' rows the diffusion distinguishes, by an option for each; 1 for none."""
        options = len(self.distribution.diffusion.label_shares)
        classes = self.label.size if self.label else 1
        return max(options // classes, 1)

    @property
    def label_shares(self) -> tuple[float, ...]:
        """Shares of the label's options in the data; empty without a label."""
        shares = self.distribution.diffusion.label_shares
        if self.owners == 1:
            return shares
        if self.label is None:
            return ()
        return tuple(np.reshape(shares, (-1, self.owners)).sum(1).tolist())

    @property
    def looks(self) -> tuple[Look, ...]:
        """How well rows held back were learned, at several times of the diffusion's training."""
        return self.distribution.diffusion.looks

    def sample(
        self, n: int, *, key: Array, given: Matrix | None = None, **way: Any
    ) -> Matrix:
        """Draw rows, (n, width) float32, categoricals one-hot.

        `given` is of the same shape, NaN where a value is to be drawn. The diffusion is conditioned
        on labels; other columns are fixed while rows are drawn, which sphere codes can do and an
        autoencoder cannot. `way` is as `LatentDistribution.sample` takes it. Where the diffusion
        distinguishes owners' rows, they come as often as in the data, or as their rows look like
        what is given.

        Raises:
            InputError: For a sampler, `steps` or shape that cannot be used, or when another column
                than the label is given to an autoencoder.
        """
        first, second = jax.random.split(key)
        if given is not None:
            if np.shape(given) != (n, self.layout.width):
                raise InputError(
                    f"given has shape {np.shape(given)}, but {n} rows need "
                    f"({n}, {self.layout.width})"
                )
            given = self.rows.encode_known(given)
            if self.owners > 1:
                given = self._with_owners(given, jax.random.fold_in(first, 1))
        V = self.distribution.sample(n, key=first, given=given, **way)
        return self.rows.decode(self._without_owners(V), key=second)

    def _without_owners(self, V: Matrix) -> Matrix:
        """Return latent rows whose label is the class alone."""
        if self.owners == 1:
            return V
        latent = self.distribution.latent
        if self.label is None:
            return V[:, :latent]
        classes = V[:, latent:].reshape(len(V), -1, self.owners).sum(2)
        return np.concatenate([V[:, :latent], classes], axis=1)

    def _with_owners(self, given: Matrix, key: Array) -> Matrix:
        """Latent rows that are given in part, with the class and owner that they are drawn under.

        An owner comes as often as its rows look like what is given: it is that of the row most
        like it among `_LIKE` drawn rows, and so is the class where none is given. Rows of which
        nothing is given are drawn under any.
        """
        latent, options = (
            self.distribution.latent,
            len(self.distribution.diffusion.label_shares),
        )
        labels = np.full((len(given), options), np.nan, np.float32)
        is_known = ~np.isnan(given)
        if is_known.any():
            drawing, ties = jax.random.split(key)
            pool = self.distribution.sample(_LIKE, key=drawing)
            pool_label = pool[:, latent:].argmax(1)
            label = pool_label[self._most_like(given, self._without_owners(pool), ties)]
            if self.label is not None:
                classes = given[:, latent:]
                has_class = ~np.isnan(classes).any(1)
                asked = (
                    np.nan_to_num(classes).argmax(1) * self.owners + label % self.owners
                )
                label = np.where(has_class, asked, label)
            is_asked = np.flatnonzero(is_known.any(1))
            labels[is_asked] = np.eye(options, dtype=np.float32)[label[is_asked]]
        return np.concatenate([given[:, :latent], labels], axis=1)

    def _most_like(self, given: Matrix, pool: Matrix, key: Array) -> Ints:
        """Places of the pool's rows that are nearest to rows given in part, in what is given."""
        scale = np.asarray(self.distribution.scale)
        # Another class is farther than any numbers are.
        scale = np.append(scale, np.full(given.shape[1] - len(scale), _CLASS))
        drawn, wanted = pool / scale, given / scale
        found = []
        for start in range(0, len(wanted), _ROWS):
            rows = wanted[start : start + _ROWS]
            known = (~np.isnan(rows)).astype(rows.dtype)
            # Squared distances over what is given, less what is the same for the whole pool.
            away = known @ (drawn**2).T - 2.0 * np.nan_to_num(rows) @ drawn.T
            # Any of the rows that are equally near may be taken.
            ties = jax.random.uniform(jax.random.fold_in(key, start), away.shape)
            found.append((away + _TIE * np.asarray(ties)).argmin(1))
        return np.concatenate(found)

    def save(self, path: Path) -> None:
        """Write one safetensors file: arrays, settings and blocks."""
        facts = {
            "model": "LatentDiffusion",
            "settings": asdict(self.settings),
            **self.layout.facts(self.label),
            **self.distribution.diffusion.facts(),
        }
        save_arrays(path, self, facts)

    @classmethod
    def load(cls, path: Path) -> LatentDiffusion:
        """Read what `save` wrote; raises DataError where the file is no such model."""

        def build(facts: Mapping[str, Any]) -> LatentDiffusion:
            settings = settings_of_facts(facts["settings"])
            layout, label = Layout.of_facts(facts)
            rows = RowCoder.untrained(
                layout, settings.autoencoder, label=label, numbers=settings.numbers
            )
            options, codes = len(facts["label_shares"]), rows.sphere_codes
            latents, block = latent_layout(rows.latent, options, codes)
            ddpm = TabDDPMModel.of_facts(facts, latents, settings.diffusion, block)
            zeros = jnp.zeros(rows.latent)
            return cls(rows, LatentDistribution(ddpm, zeros, zeros), settings)

        model = load_arrays(path, build)
        model.rows.checked()
        return model


def settings_of_facts(raw: Mapping[str, Any]) -> LatentSettings:
    """Return settings from what `dataclasses.asdict` made of them."""
    raw = dict(raw)
    coder = settings_from(raw.pop("autoencoder"))
    return LatentSettings(coder, DiffusionSettings(**raw.pop("diffusion")), **raw)


def fit(
    X: Matrix,
    blocks: tuple[Block, ...],
    settings: LatentSettings | None = None,
    *,
    key: Array,
    labels: str | None = None,
    label_shares: Sequence[float] | None = None,
    progress: Progress = silent,
    store: Path | None = None,
) -> LatentDiffusion:
    """Fit a latent diffusion to the rows of a feature matrix, (n, width) float32, of these blocks.

    The diffusion is conditioned on `labels`, a column that is one categorical, which is then not
    encoded unless it is the only column; sampling draws it by `label_shares`, or by its shares in
    the rows. Raises InputError for rows that are not finite or not one-hot, or an unknown label
    column.
    """
    settings, layout = settings or LatentSettings(), Layout(tuple(blocks))
    X = layout.check(X)
    label = layout.label_of(labels)
    first, second = jax.random.split(key)
    if settings.joint:
        return _fit_joint(
            X, layout, label, settings, key=first, progress=progress, store=store
        )
    before = 0.0 if isinstance(settings.autoencoder, SphereCodeSettings) else 0.5
    rows = coders.fit(
        X, layout, settings.autoencoder, label=label, numbers=settings.numbers,
        key=first,
        progress=lambda text, done: progress(f"autoencoder: {text}", done / 2),
        store=None if store is None else store / "autoencoder",
    )  # fmt: skip
    distribution = fit_latents(
        rows.encode(X), rows.latent, settings.diffusion, scaled=settings.scaled,
        sphere_codes=rows.sphere_codes, key=second, label_shares=label_shares,
        progress=lambda text, done: progress(f"diffusion: {text}", before + (1 - before) * done),
        store=None if store is None else store / "diffusion",
    )  # fmt: skip
    return LatentDiffusion(rows, distribution, settings)


def latents(net: Coder, rows: Rows, groups: Groups) -> Array:
    """Return latents within their range, (batch, latent)."""
    return RANGE * jnp.tanh(net.encode(inputs(groups, rows.numbers, rows.codes))[0])


def denoised(
    net: Denoiser, z: Array, labels: Array, key: Array, settings: DiffusionSettings
) -> Array:
    """Return latents that were noised at one random time each and denoised, (batch, latent)."""
    kept = jnp.asarray(
        kept_variance(settings.schedule, settings.timesteps), jnp.float32
    )
    when, noise, drop = jax.random.split(key, 3)
    n, T = len(z), settings.timesteps
    clock = (jax.random.uniform(when) + jnp.arange(n) / n) % 1.0
    t = jnp.minimum((clock * T).astype(jnp.int32), T - 1)
    a = kept[t][:, None]
    noisy = jnp.sqrt(a) * z + jnp.sqrt(1.0 - a) * jax.random.normal(noise, z.shape)
    return net(noisy, t * (1000 / T), labels, key=drop)


def cross_entropy(net: Coder, back: Array, rows: Rows, groups: Groups) -> Array:
    """Return the negative log-likelihood of rows given their denoised latents, (batch,), nats."""
    blocks = rows.numbers.shape[1] + rows.codes.shape[1]
    return blocks * reconstruction(net.decode(back), rows, groups)


class CoderSide(Descent):
    """A party's side of a step of joint training."""

    def losses(self, net: Coder, rows: Rows, back: Array) -> Array:
        """Return the loss of each row, given its denoised latent."""
        return cross_entropy(net, back, rows, self.groups)

    @eqx.filter_jit
    def forward(self, state: State, rows: Rows) -> Array:
        """Return latents of a batch."""
        return latents(state.net, rows, self.groups)

    @eqx.filter_jit
    def backward(self, state: State, rows: Rows, back: Array) -> tuple[Array, Array]:
        """Return the gradient of the decoder's mean loss at denoised latents, and the loss."""

        def mean_loss(denoised: Array) -> Array:
            return self.losses(state.net, rows, denoised).mean()

        loss, slope = jax.value_and_grad(mean_loss)(back)
        return slope, loss

    @eqx.filter_jit
    def turned(self, state: State, rows: Rows, back: Array, slope: Array) -> State:
        """The state after a step; `slope` is the gradient of the whole loss at its latents."""

        def mean(net: Coder) -> Array:
            own = self.losses(net, rows, back).mean()
            return own + (latents(net, rows, self.groups) * slope).sum()

        return self.moved(state, eqx.filter_grad(mean)(state.net))


class DenoiserSide(Descent):
    """The coordinator's side of a step of joint training."""

    def losses(self, net: Denoiser, rows: tuple[Array, Array], key: Array) -> Array:
        """Return the squared error of each row's latent."""
        z, labels = rows
        return ((denoised(net, z, labels, key, self.settings) - z) ** 2).mean(-1)

    @eqx.filter_jit
    def forward(self, state: State, z: Array, labels: Array, key: Array) -> Array:
        """Return denoised latents of a batch."""
        return denoised(state.net, z, labels, key, self.settings)

    @eqx.filter_jit
    def turned(
        self, state: State, z: Array, labels: Array, key: Array, slope: Array
    ) -> tuple[State, Array]:
        """Return the state after a step, and the gradient of the whole loss at the latents.

        The key is that of `forward`; `slope` is the gradient of the decoders' losses at the
        denoised latents.
        """

        def mean(parts: tuple[Denoiser, Array]) -> Array:
            net, z = parts
            back = denoised(net, z, labels, key, self.settings)
            return ((back - z) ** 2).mean(-1).mean() + (back * slope).sum()

        gradient, at_latents = eqx.filter_grad(mean)((state.net, z))
        return self.moved(state, gradient), at_latents


class _Pair(eqx.Module):
    coder: Coder
    denoiser: Denoiser


class _Joint(Descent):
    def losses(self, net: _Pair, rows: Rows, key: Array) -> Array:
        z = latents(net.coder, rows, self.groups)
        back = denoised(net.denoiser, z, rows.labels, key, self.settings)
        error = jnp.mean((back - z) ** 2, axis=-1)
        return error + cross_entropy(net.coder, back, rows, self.groups)


def _fit_joint(
    X: Matrix,
    layout: Layout,
    label: Block | None,
    settings: LatentSettings,
    *,
    key: Array,
    progress: Progress,
    store: Path | None,
) -> LatentDiffusion:
    rest = rest_of(layout, label)
    first, second, key = jax.random.split(key, 3)
    coder = fresh(Coder, rest, settings.dense, key=first)
    latents, block = latent_layout(coder.latent, label.size if label else 0)
    pair = _Pair(coder, diffusion.network(latents, settings.diffusion, block, second))
    rows, update = (
        diffusion.rows_of(X, layout, label),
        _Joint(settings.diffusion, rest.groups),
    )
    net, _ = update.trained(pair, rows, key=key, progress=progress, store=store)
    shares = tuple(map(float, X[:, label.start : label.stop].mean(0))) if label else ()
    return LatentDiffusion.of_networks(
        net.coder, net.denoiser, layout, settings, label, shares, RANGE
    )
