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
from siloweave.models.denoiser import Denoiser, Rows, inputs, spread_times
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
_POOL = 1024
# Flags of a class are divided by this, numbers by their spread: another class costs more than any
# difference of numbers.
_CLASS_SCALE = 0.01
_TIE = 1e-3  # squared distances that are no different
_CHUNK = 4096  # rows whose distances are computed at once
_LEAST_SPREAD = 1e-4  # with less, a latent counts as constant and is not scaled up
RANGE = 3.0**0.5
"""Joint training: tanh times this, so a latent spread evenly over its range has variance 1."""


def latent_blocks(latent: int, options: int) -> tuple[Block, ...]:
    """Return the blocks of a latent row, followed by a label of so many options; by none if 0."""
    blocks = [Block(f"latent {i}", i, 1, "number") for i in range(latent)]
    if options:
        blocks.append(Block(LABEL, latent, options, "categorical"))
    return tuple(blocks)


def latent_layout(
    latent: int, options: int, codes: SphereCodes = ()
) -> tuple[Layout, Block | None]:
    """Return the layout of a latent row, and its label."""
    layout = Layout(latent_blocks(latent, options), codes)
    label = layout.categorical_of(LABEL) if options else None
    return layout, label


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
        cls, ddpm: TabDDPMModel, facts: Mapping[str, Any] | None = None
    ) -> LatentDistribution:
        """Return the distribution of latents that were diffused as they are."""
        latent = len(ddpm.layout.numbers)
        shift = np.zeros(latent, np.float32)
        scale = np.ones(latent, np.float32)
        return cls(ddpm, shift, scale, facts or {})

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
        shift = np.asarray(self.shift)
        scale = np.asarray(self.scale)
        latent = self.latent
        cells: Matrix | None = None
        has_latents = False
        if given is not None:
            cells = np.array(given, dtype=np.float32)  # a copy, since it is scaled
            cells[:, :latent] = (cells[:, :latent] - shift) / scale
            has_latents = not np.isnan(cells[:, :latent]).all()
        if sampler is None and not has_latents:
            # A label conditions the network: no latent is replaced, so the best sampler serves.
            sampler = "solver"
        rows = self.diffusion.sample(n, key=key, sampler=sampler, given=cells, **way)
        Z = rows[:, :latent] * scale + shift
        return np.concatenate([Z, rows[:, latent:]], 1).astype(np.float32)

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
            latent = facts["latent"]
            options = len(facts["label_shares"])
            layout, label = latent_layout(latent, options, codes_of(facts))
            settings = DiffusionSettings(**facts["settings"])
            ddpm = TabDDPMModel.of_facts(facts, layout, settings, label)
            zeros = jnp.zeros(latent)  # replaced by stored arrays
            return cls(ddpm, zeros, zeros, facts["facts"])

        return load_arrays(path, build)


def _shift_and_scale(
    Z: Matrix, codes: SphereCodes, *, scaled: bool
) -> tuple[Matrix, Matrix]:
    """Return the shift and scale of latents; sphere codes stay where the network expects them."""
    shift = np.zeros(Z.shape[1], np.float32)
    scale = np.ones(Z.shape[1], np.float32)
    if scaled:
        shift = Z.mean(0)
        scale = Z.std(0)
        scale[scale <= _LEAST_SPREAD] = 1.0
    for code in codes:
        place = slice(code.start, code.start + code.dimensions)
        shift[place] = 0.0
        scale[place] = 1.0
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
    Z = V[:, :latent]
    flags = V[:, latent:]
    options = flags.shape[1]
    shift, scale = _shift_and_scale(Z, sphere_codes, scaled=scaled)
    rows = np.concatenate([(Z - shift) / scale, flags], 1)
    label = LABEL if options else None
    ddpm = diffusion.fit(
        rows,
        latent_blocks(latent, options),
        settings,
        sphere_codes=sphere_codes,
        labels=label,
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
        bound: float,
    ) -> LatentDiffusion:
        """Return a latent diffusion of trained networks, its latents unscaled and within ±bound."""
        net = coder_of(rest_of(layout, label), settings.autoencoder, coder)
        rows = RowCoder(net, layout, label, settings.numbers)
        options = label.size if label else 0
        latent_rows, latent_label = latent_layout(rows.latent, options)
        ranges = ((-bound, bound),) * rows.latent
        ddpm = TabDDPMModel(
            denoiser,
            latent_rows,
            settings.diffusion,
            latent_label,
            label_shares,
            ranges,
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
        # Options of one class stand side by side, one for each owner.
        by_owner = np.reshape(shares, (-1, self.owners))
        return tuple(by_owner.sum(1).tolist())

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
        latent_key, decoding_key = jax.random.split(key)
        cells: Matrix | None = None
        if given is not None:
            if np.shape(given) != (n, self.layout.width):
                raise InputError(
                    f"given has shape {np.shape(given)}, but {n} rows need "
                    f"({n}, {self.layout.width})"
                )
            cells = self.rows.encode_known(given)
            if self.owners > 1:
                owner_key = jax.random.fold_in(latent_key, 1)
                cells = self._with_owners(cells, owner_key)
        V = self.distribution.sample(n, key=latent_key, given=cells, **way)
        return self.rows.decode(self._without_owners(V), key=decoding_key)

    def _without_owners(self, V: Matrix) -> Matrix:
        """Return latent rows whose label is the class alone."""
        if self.owners == 1:
            return V
        latent = self.distribution.latent
        if self.label is None:
            return V[:, :latent]
        flags = V[:, latent:].reshape(len(V), -1, self.owners)
        return np.concatenate([V[:, :latent], flags.sum(2)], axis=1)

    def _with_owners(self, cells: Matrix, key: Array) -> Matrix:
        """Return latent rows that are given in part, with the label that they are drawn under.

        A label is a class and an owner. An owner comes as often as its rows look like what is
        given, see `_likely_labels`. Rows of which nothing is given are drawn under any.
        """
        latent = self.distribution.latent
        options = len(self.distribution.diffusion.label_shares)
        flags = np.full((len(cells), options), np.nan, np.float32)
        is_set = ~np.isnan(cells)
        if is_set.any():
            labels = self._likely_labels(cells, key)
            places = np.flatnonzero(is_set.any(1))
            one_hot = np.eye(options, dtype=np.float32)
            flags[places] = one_hot[labels[places]]
        return np.concatenate([cells[:, :latent], flags], axis=1)

    def _likely_labels(self, cells: Matrix, key: Array) -> Ints:
        """Return the label of the row most like each row given in part, among `_POOL` drawn rows.

        Where the class is given, only the owner is that row's.
        """
        latent = self.distribution.latent
        drawing_key, ties_key = jax.random.split(key)
        pool = self.distribution.sample(_POOL, key=drawing_key)
        pool_labels = pool[:, latent:].argmax(1)
        nearest = self._most_like(cells, self._without_owners(pool), ties_key)
        labels: Ints = pool_labels[nearest]
        if self.label is None:
            return labels
        # Option number: class times owners, plus owner.
        classes = cells[:, latent:]
        has_class = ~np.isnan(classes).any(1)
        class_numbers = np.nan_to_num(classes).argmax(1)
        owners = labels % self.owners
        labels_of_class = class_numbers * self.owners + owners
        likely_labels: Ints = np.where(has_class, labels_of_class, labels)
        return likely_labels

    def _most_like(self, cells: Matrix, pool: Matrix, key: Array) -> Ints:
        """Return places of the pool's rows that are nearest to rows given in part."""
        scale = np.asarray(self.distribution.scale)
        class_scale = np.full(cells.shape[1] - len(scale), _CLASS_SCALE)
        scale = np.append(scale, class_scale)
        scaled_pool = pool / scale
        scaled_cells = cells / scale

        nearest = []
        for start in range(0, len(scaled_cells), _CHUNK):
            rows = scaled_cells[start : start + _CHUNK]
            is_set = (~np.isnan(rows)).astype(rows.dtype)
            # Squared distances over what is given, less what is the same for the whole pool.
            squares = is_set @ (scaled_pool**2).T
            distances = squares - 2.0 * np.nan_to_num(rows) @ scaled_pool.T
            # Any of the rows that are equally near may be taken.
            chunk_key = jax.random.fold_in(key, start)
            ties = jax.random.uniform(chunk_key, distances.shape)
            nearest.append((distances + _TIE * np.asarray(ties)).argmin(1))
        return np.concatenate(nearest)

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
            options = len(facts["label_shares"])
            latent_rows, latent_label = latent_layout(
                rows.latent, options, rows.sphere_codes
            )
            ddpm = TabDDPMModel.of_facts(
                facts, latent_rows, settings.diffusion, latent_label
            )
            zeros = jnp.zeros(rows.latent)  # replaced by stored arrays
            return cls(rows, LatentDistribution(ddpm, zeros, zeros), settings)

        model = load_arrays(path, build)
        model.rows.checked()
        return model


def settings_of_facts(raw: Mapping[str, Any]) -> LatentSettings:
    """Return settings from what `dataclasses.asdict` made of them."""
    rest = dict(raw)
    coder = settings_from(rest.pop("autoencoder"))
    denoiser = DiffusionSettings(**rest.pop("diffusion"))
    return LatentSettings(coder, denoiser, **rest)


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
    settings = settings or LatentSettings()
    layout = Layout(tuple(blocks))
    X = layout.check(X)
    label = layout.label_of(labels)
    coder_key, diffusion_key = jax.random.split(key)
    if settings.joint:
        # One training has one key: the first.
        return _fit_joint(
            X, layout, label, settings, key=coder_key, progress=progress, store=store
        )

    # Sphere codes learn nothing: all of the time is the diffusion's.
    learns = not isinstance(settings.autoencoder, SphereCodeSettings)
    coder_share = 0.5 if learns else 0.0
    coder_store = None if store is None else store / "autoencoder"
    diffusion_store = None if store is None else store / "diffusion"

    def coder_progress(text: str, done: float) -> None:
        progress(f"autoencoder: {text}", done / 2)

    def diffusion_progress(text: str, done: float) -> None:
        progress(f"diffusion: {text}", coder_share + (1 - coder_share) * done)

    # SiloFuse, Algorithm 1, with a single client: the coder first, then, of latents that no longer
    # change, their distribution.
    rows = coders.fit(
        X,
        layout,
        settings.autoencoder,
        label=label,
        numbers=settings.numbers,
        key=coder_key,
        progress=coder_progress,
        store=coder_store,
    )
    distribution = fit_latents(
        rows.encode(X),
        rows.latent,
        settings.diffusion,
        scaled=settings.scaled,
        sphere_codes=rows.sphere_codes,
        key=diffusion_key,
        label_shares=label_shares,
        progress=diffusion_progress,
        store=diffusion_store,
    )
    return LatentDiffusion(rows, distribution, settings)


def latents(net: Coder, rows: Rows, groups: Groups) -> Array:
    """Return latents within their range, (batch, latent)."""
    means, _ = net.encode(inputs(groups, rows.numbers, rows.codes))
    return RANGE * jnp.tanh(means)


def denoised(
    net: Denoiser, z: Array, labels: Array, key: Array, settings: DiffusionSettings
) -> Array:
    """Return latents that were noised at one random time each and denoised, (batch, latent)."""
    T = settings.timesteps
    alpha_bars = jnp.asarray(kept_variance(settings.schedule, T), jnp.float32)
    time_key, noise_key, dropout_key = jax.random.split(key, 3)
    t = spread_times(jax.random.uniform(time_key), len(z), T)
    alpha_bar = alpha_bars[t][:, None]
    # Ho, Jain & Abbeel 2020, equation 4.
    signal = jnp.sqrt(alpha_bar) * z
    spread = jnp.sqrt(1.0 - alpha_bar)
    noisy = signal + spread * jax.random.normal(noise_key, z.shape)
    return net(noisy, t * (1000 / T), labels, key=dropout_key)


def cross_entropy(net: Coder, back: Array, rows: Rows, groups: Groups) -> Array:
    """Return the negative log-likelihood of rows given their denoised latents, (batch,), nats."""
    # `reconstruction` is a mean over blocks; the likelihood is of all together.
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

        def mean_loss(denoised_latents: Array) -> Array:
            return self.losses(state.net, rows, denoised_latents).mean()

        loss, slope = jax.value_and_grad(mean_loss)(back)
        return slope, loss

    @eqx.filter_jit
    def turned(self, state: State, rows: Rows, back: Array, slope: Array) -> State:
        """Return the state after a step, given the whole loss's gradient `slope` at its latents."""

        def surrogate(net: Coder) -> Array:
            # By the chain rule its gradient is that of the whole loss: through the decoder
            # directly, and through the encoder by the slope that came back.
            decoder_loss = self.losses(net, rows, back).mean()
            return decoder_loss + (latents(net, rows, self.groups) * slope).sum()

        return self.moved(state, eqx.filter_grad(surrogate)(state.net))


class DenoiserSide(Descent):
    """The coordinator's side of a step of joint training."""

    def losses(self, net: Denoiser, rows: tuple[Array, Array], key: Array) -> Array:
        """Return the squared error of each row's latent."""
        z, labels = rows
        error = denoised(net, z, labels, key, self.settings) - z
        return (error**2).mean(-1)

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

        def surrogate(parts: tuple[Denoiser, Array]) -> Array:
            # Its gradient is that of the whole loss: the squared error's, and the decoders'
            # through the denoised latents.
            net, z = parts
            back = denoised(net, z, labels, key, self.settings)
            error = ((back - z) ** 2).mean(-1).mean()
            return error + (back * slope).sum()

        gradient, latent_gradient = eqx.filter_grad(surrogate)((state.net, z))
        return self.moved(state, gradient), latent_gradient


class _Networks(eqx.Module):
    """What is trained as one."""

    coder: Coder
    denoiser: Denoiser


class _Joint(Descent):
    """The steps of `CoderSide` and `DenoiserSide` in one place."""

    def losses(self, net: _Networks, rows: Rows, key: Array) -> Array:
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
    coder_key, denoiser_key, key = jax.random.split(key, 3)
    coder = fresh(Coder, rest, settings.dense, key=coder_key)
    options = label.size if label else 0
    latent_rows, latent_label = latent_layout(coder.latent, options)
    denoiser = diffusion.network(
        latent_rows, settings.diffusion, latent_label, denoiser_key
    )

    networks = _Networks(coder, denoiser)
    rows = diffusion.rows_of(X, layout, label)
    update = _Joint(settings.diffusion, rest.groups)
    net, _ = update.trained(networks, rows, key=key, progress=progress, store=store)

    shares: tuple[float, ...] = ()
    if label:
        flags = X[:, label.start : label.stop]
        shares = tuple(float(share) for share in flags.mean(0))
    return LatentDiffusion.of_networks(
        net.coder, net.denoiser, layout, settings, label, shares, RANGE
    )
