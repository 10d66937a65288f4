"""The law of latent rows: Gaussian diffusion of a matrix of numbers, told a label.

It asks nothing of where latents come from: one autoencoder (LatentDiff, TLDM), points, or the
coders of several parties side by side (SiloFuse, Shankar et al. 2024, Algorithm 1).

Encoder, denoiser and decoder trained as one: in one place, or cut where parties end.

E2E and E2EDistr of Shankar et al. 2024 ("SiloFuse", section 5.1): latents are noised and denoised,
and the loss is the likelihood of the row under the decoder of the denoised latent, plus the
latent's squared error. The likelihood is that of all columns together: their mean weighs too little
against the squared error, which is least where latents say nothing. Cut, a party sends latents and
the slope of its decoder's loss, and the coordinator sends denoised latents and the slope at the
latents; the steps are those of the whole.

Latent diffusion of tables: an autoencoder, then Gaussian diffusion of its latent rows.

TLDM (Zhu et al. 2024) predicts the noise; LatentDiff (Shankar et al. 2024, the centralised form of
SiloFuse) shows a loss on the clean latent, and its text speaks of noise: both are here, as
`DiffusionSettings.prediction`. With `joint` encoder, denoiser and decoder are trained as one (their
E2E): the loss is the likelihood of the row decoded from the denoised latent, plus the latent's
squared error.

The coder is that autoencoder, or `points`: fixed points for choices and numbers as they are. Points
keep everything about a row, learn nothing, and code every column by itself, so columns can be given
when rows are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from siloweave.errors import InputError
from siloweave.models import coders, diffusion
from siloweave.models.autoencoder import Autoencoder, Coder, reconstruction
from siloweave.models.coders import RowCoder, assembled, checked, settings_from, untrained
from siloweave.models.coders import places_of as _places
from siloweave.models.coders import rest_of as _rest
from siloweave.models.denoiser import Denoiser, Rows, inputs
from siloweave.models.descent import Descent, State
from siloweave.models.diffusion import TabDDPMModel
from siloweave.models.layout import Layout, Matrix, SphereCode, SphereCodes
from siloweave.models.multinomial import Groups
from siloweave.models.nets import Array, fresh, load_arrays, save_arrays
from siloweave.models.schedules import kept_variance
from siloweave.models.settings import (
    DiffusionSettings,
    LatentSettings,
    SphereCodeSettings,
)
from siloweave.models.sphere_codes import SphereCodeCoder
from siloweave.models.train import train
from siloweave.tables.features import Block

Progress = Callable[[str, float], None]
LABEL = "label"
"""What the label is called among a latent row's blocks."""


def latent_blocks(latent: int, options: int) -> tuple[Block, ...]:
    """Blocks of a latent row with a label of so many options behind it; none if 0."""
    numbers = [Block(f"latent {i}", i, 1, "number") for i in range(latent)]
    return (*numbers, *([Block(LABEL, latent, options, "categorical")] if options else []))


def told_block(latents: Layout, options: int) -> Block | None:
    """The label among a latent row's blocks."""
    return latents.choice_of(LABEL) if options else None


def frame_of(Z: Matrix, scaled: bool, spots: SphereCodes = ()) -> tuple[Matrix, Matrix]:
    """What is taken from latents before the diffusion, and what they are divided by.

    Points stay where they are, since the network is told what they are.
    """
    shift, scale = np.zeros(Z.shape[1], np.float32), np.ones(Z.shape[1], np.float32)
    if scaled:
        shift, scale = Z.mean(0), Z.std(0)
        scale[scale <= 1e-4] = 1.0
    for s in spots:
        there = slice(s.start, s.start + s.dimensions)
        shift[there], scale[there] = 0.0, 1.0
    return shift, scale


@dataclass(frozen=True)
class LatentDistribution:
    """A fitted law.

    Attributes:
        diffusion: Of scaled latents, told the label if there is one.
        shift: (latent,) what was taken from latents before the diffusion.
        scale: (latent,) what they were divided by.
        facts: What the caller keeps beside it: anything that JSON can hold.
    """

    diffusion: TabDDPMModel
    shift: Matrix
    scale: Matrix
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def latent(self) -> int:
        """Length of a latent row."""
        return len(self.shift)

    @property
    def width(self) -> int:
        """Length of a latent row with the label behind it."""
        return self.diffusion.layout.width

    def sample(
        self,
        n: int,
        *,
        key: Array,
        given: Matrix | None = None,
        sampler: str | None = None,
        **way: Any,
    ) -> Matrix:
        """Draw latent rows, the label behind them.

        Args:
            n: Rows.
            key: A key of JAX.
            given: (n, width), NaN where a value is to be drawn.
            sampler: As `TabDDPMModel.sample` takes it; "solver" where only labels are given.
            way: `steps`, `eta`, `balanced` and `resamples`, alike.

        Returns:
            (n, width) float32, in the units of the latents that were fitted.

        Raises:
            InputError: For a sampler, `steps` or shape that cannot be used.
        """
        told, latent = None, self.latent
        if given is not None:
            told = np.array(given, dtype=np.float32)
            told[:, :latent] = (told[:, :latent] - self.shift) / self.scale
        if sampler is None and (told is None or np.isnan(told[:, :latent]).all()):
            sampler = "solver"
        drawn = self.diffusion.sample(n, key=key, sampler=sampler, given=told, **way)
        Z = drawn[:, :latent] * self.scale + self.shift
        return np.concatenate([Z, drawn[:, latent:]], 1).astype(np.float32)

    def save(self, path: Path) -> None:
        """Write one safetensors file."""
        facts = {
            "model": "LatentDistribution",
            "settings": asdict(self.diffusion.settings),
            "latent": self.latent,
            "spots": self.diffusion.layout.spots,
            "label_law": list(self.diffusion.label_law),
            "ranges": self.diffusion.ranges,
            "facts": dict(self.facts),
        }
        arrays = (self.diffusion.net, jnp.array(self.shift), jnp.array(self.scale))
        save_arrays(path, arrays, facts)

    @classmethod
    def load(cls, path: Path) -> LatentDistribution:
        """Read what `save` wrote.

        Raises:
            DataError: When the file is not such a law.
        """
        read: list[Any] = []

        def build(facts: dict[str, Any]) -> Any:
            size, law = facts["latent"], tuple(facts["label_law"])
            spots = tuple(SphereCode(*s) for s in facts["spots"])
            layout = Layout(latent_blocks(size, len(law)), spots)
            settings, label = DiffusionSettings(**facts["settings"]), told_block(layout, len(law))
            ranges = tuple((low, high) for low, high in facts["ranges"])
            read.extend((layout, settings, label, law, ranges, facts["facts"]))
            net = diffusion.network(layout, settings, label)
            return net, jnp.zeros(size), jnp.zeros(size)

        net, shift, scale = load_arrays(path, build)
        *parts, facts = read
        return cls(TabDDPMModel(net, *parts), np.asarray(shift), np.asarray(scale), facts)


def fit_latents(
    V: Matrix,
    latent: int,
    settings: DiffusionSettings | None = None,
    *,
    scaled: bool = True,
    spots: SphereCodes = (),
    facts: Mapping[str, Any] | None = None,
    **training: Any,
) -> LatentDistribution:
    """Fit the law of latent rows.

    Args:
        V: (n, latent + options): latents, and a one-hot label behind them if there is one.
        latent: How many entries are latents.
        settings: Sizes and training of the diffusion.
        scaled: Whether latents are standardised by their mean and spread over the rows.
        spots: Choices that are points among the latents.
        facts: Kept beside the law.
        training: What `diffusion.fit` takes: key, law, progress, store.

    Raises:
        InputError: For latents that are not finite, or a label that is not one-hot.
    """
    Z, told = V[:, :latent], V[:, latent:]
    shift, scale = frame_of(Z, scaled, spots)
    ddpm = diffusion.fit(
        np.concatenate([(Z - shift) / scale, told], 1),
        latent_blocks(latent, told.shape[1]),
        settings,
        spots=spots,
        labels=LABEL if told.shape[1] else None,
        **training,
    )
    return LatentDistribution(ddpm, shift, scale, facts or {})


RANGE = 3.0**0.5
"""tanh times this: a latent spread evenly over its range has variance 1."""


def latents(net: Coder, rows: Rows, groups: Groups) -> Array:
    """Latents within their range, (batch, latent)."""
    code = net.encode(inputs(groups, rows.numbers, rows.codes))[0]
    return RANGE * jnp.tanh(code)


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


def cross_entropy(net: Coder, back: Array, rows: Rows, groups: Groups) -> Array:
    """Negative log-likelihood of rows given their denoised latents, (batch,), nats."""
    blocks = rows.numbers.shape[1] + rows.codes.shape[1]
    return blocks * reconstruction(net.decode(back), rows, groups)


class CoderSide(Descent):
    """A party's side of a step."""

    def losses(self, net: Coder, rows: Rows, back: Array) -> Array:
        """Of each row, given its denoised latent."""
        return cross_entropy(net, back, rows, self.groups)

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


_Facts = tuple[tuple[float, ...], tuple[tuple[float, float], ...]]  # label law, ranges


class _Pair(eqx.Module):
    coder: Coder
    denoiser: Denoiser


@dataclass(frozen=True)
class LatentDiffusion:
    """A fitted latent diffusion.

    Attributes:
        coder: Encoder and decoder of the blocks that are not the label.
        diffusion: The diffusion of latent rows, told the label if there is one.
        layout: All blocks of a row.
        settings: What it was fitted with.
        shift: (latent,) what was taken from latents before the diffusion.
        scale: (latent,) what they were divided by.
        label: The choice that the diffusion is told, or None.
    """

    coder: Autoencoder | SphereCodeCoder
    diffusion: TabDDPMModel
    layout: Layout
    settings: LatentSettings
    shift: Matrix
    scale: Matrix
    label: Block | None = None

    def sample(
        self,
        n: int,
        *,
        key: Array,
        sampler: str | None = None,
        steps: int | None = None,
        eta: float | None = None,
        balanced: bool = False,
        given: Matrix | None = None,
        resamples: int = 1,
    ) -> Matrix:
        """Draw rows.

        Args:
            n: Rows.
            key: A key of JAX.
            sampler: "solver" (the default), "ddim" or "ancestral", see `TabDDPMModel.sample`.
            steps: Times visited; None is 50, or all of them for "ancestral".
            eta: As `TabDDPMModel.sample` takes it.
            balanced: Whether every label is equally likely.
            given: (n, width), NaN where a value is to be drawn. The diffusion is told labels; other
                columns are kept in place while rows are drawn, which points can do and an
                autoencoder cannot.
            resamples: How often each step is walked when columns are given.

        Returns:
            (n, width) float32, choices one-hot.

        Raises:
            InputError: For a sampler, `steps` or shape that cannot be used.
            NotImplementedError: When another column than the label is given to an autoencoder.
        """
        first, second = jax.random.split(key)
        told = None if given is None else self._told(n, given)
        V = self.law.sample(
            n, key=first, given=told, sampler=sampler, steps=steps, eta=eta, balanced=balanced,
            resamples=resamples,
        )  # fmt: skip
        return self.rows.decode(V, key=second)

    @property
    def law(self) -> LatentDistribution:
        """The law of latent rows."""
        return LatentDistribution(self.diffusion, self.shift, self.scale)

    @property
    def rows(self) -> RowCoder:
        """Rows to latent rows and back."""
        return RowCoder(self.coder, self.layout, self.label, self.settings.numbers)

    def _told(self, n: int, given: Matrix) -> Matrix:
        if np.shape(given) != (n, self.layout.width):
            raise InputError(
                f"given has shape {np.shape(given)}, but {n} rows need ({n}, {self.layout.width})"
            )
        return self.rows.told(given)

    def save(self, path: Path) -> None:
        """Write one safetensors file: arrays, settings and blocks."""
        facts = {
            "model": "LatentDiffusion",
            "settings": asdict(self.settings),
            "blocks": [asdict(b) for b in self.layout.blocks],
            "label": None if self.label is None else self.label.column,
            "label_law": list(self.diffusion.label_law),
            "ranges": self.diffusion.ranges,
        }
        arrays = (self.coder.net, self.diffusion.net, jnp.array(self.shift), jnp.array(self.scale))
        save_arrays(path, arrays, facts)

    @classmethod
    def load(cls, path: Path) -> LatentDiffusion:
        """Read what `save` wrote; it samples the same rows.

        Raises:
            DataError: When the file is not such a model.
        """
        read: list[Any] = []

        def build(facts: dict[str, Any]) -> Any:
            settings = settings_of_facts(facts["settings"])
            layout = Layout(tuple(Block(**b) for b in facts["blocks"]))
            label = None if facts["label"] is None else layout.choice_of(facts["label"])
            ranges = tuple((low, high) for low, high in facts["ranges"])
            read.extend((layout, settings, label, (tuple(facts["label_law"]), ranges)))
            coder = untrained(_rest(layout, label), settings.autoencoder)
            rows = assembled(coder, _rest(layout, label), settings.autoencoder)
            latents = _latents(rows, label)
            net = diffusion.network(latents, settings.diffusion, _told_block(latents, label))
            return coder, net, jnp.zeros(coder.latent), jnp.zeros(coder.latent)

        coder, net, shift, scale = load_arrays(path, build)
        layout, settings, label, facts = read
        frame = (np.asarray(shift), np.asarray(scale))
        made = put_together((coder, net), layout, settings, label, facts, frame)
        checked(made.coder)
        return made


def settings_of_facts(raw: dict[str, Any]) -> LatentSettings:
    """Settings from what `dataclasses.asdict` made of them."""
    raw = dict(raw)
    coder = settings_from(raw.pop("autoencoder"))
    return LatentSettings(coder, DiffusionSettings(**raw.pop("diffusion")), **raw)


def put_together(
    nets: tuple[Any, Denoiser],
    layout: Layout,
    settings: LatentSettings,
    label: Block | None,
    facts: _Facts,
    frame: tuple[Matrix, Matrix],
) -> LatentDiffusion:
    """A latent diffusion of its trained parts: coder and denoiser, label law and range, frame."""
    coder = assembled(nets[0], _rest(layout, label), settings.autoencoder)
    latents = _latents(coder, label)
    told = _told_block(latents, label)
    ddpm = TabDDPMModel(nets[1], latents, settings.diffusion, told, *facts)
    return LatentDiffusion(coder, ddpm, layout, settings, *frame, label)


def _latents(coder: Autoencoder | SphereCodeCoder, label: Block | None) -> Layout:
    return Layout(latent_blocks(coder.net.latent, label.size if label else 0), coder.spots)


def _told_block(latents: Layout, label: Block | None) -> Block | None:
    return told_block(latents, label.size if label else 0)


def fit(
    X: Matrix,
    blocks: tuple[Block, ...],
    settings: LatentSettings | None = None,
    *,
    key: Array,
    labels: str | None = None,
    law: Sequence[float] | None = None,
    progress: Progress = lambda text, done: None,
    store: Path | None = None,
) -> LatentDiffusion:
    """Fit a latent diffusion to the rows of a feature matrix.

    Args:
        X: (n, width) float32, as the features encode a table.
        blocks: What its entries are.
        settings: Sizes and training.
        key: A key of JAX.
        labels: A column that is one choice; it is not encoded, and the diffusion is told it.
        law: Shares of the labels' categories to draw them by; those of the rows if None.
        progress: Called with a text and the share done.
        store: Folder for checkpoints.

    Raises:
        InputError: For rows that are not finite or not one-hot, or an unknown label column.
    """
    settings, layout = settings or LatentSettings(), Layout(tuple(blocks))
    X = layout.check(X)
    label = None if labels is None or len(layout.blocks) == 1 else layout.choice_of(labels)
    first, second = jax.random.split(key)
    if settings.joint:
        return _fit_joint(
            X, (layout, _rest(layout, label), label), settings,
            key=first, progress=progress, store=store,
        )  # fmt: skip
    before = 0.0 if isinstance(settings.autoencoder, SphereCodeSettings) else 0.5
    rows = coders.fit(
        X, layout, settings.autoencoder, label=label, numbers=settings.numbers,
        key=first,
        progress=lambda text, done: progress(f"autoencoder: {text}", done / 2),
        store=None if store is None else store / "autoencoder",
    )  # fmt: skip
    law_ = fit_latents(
        rows.encode(X), rows.latent, settings.diffusion, scaled=settings.scaled, spots=rows.spots,
        key=second, law=law,
        progress=lambda text, done: progress(f"diffusion: {text}", before + (1 - before) * done),
        store=None if store is None else store / "diffusion",
    )  # fmt: skip
    return LatentDiffusion(
        rows.coder, law_.diffusion, layout, settings, law_.shift, law_.scale, label
    )


class _Joint(Descent):
    def losses(self, net: _Pair, rows: Rows, key: Array) -> Array:
        z = latents(net.coder, rows, self.groups)
        back = denoised(net.denoiser, z, rows.labels, key, self.settings)
        error = jnp.mean((back - z) ** 2, axis=-1)
        return error + cross_entropy(net.coder, back, rows, self.groups)


def _fit_joint(
    X: Matrix,
    parts: tuple[Layout, Layout, Block | None],
    settings: LatentSettings,
    *,
    key: Array,
    **training: Any,
) -> LatentDiffusion:
    layout, rest, label = parts
    told = X[:, label.start : label.stop] if label else X[:, :0]
    X = X[:, _places(layout, label)]
    first, second, key = jax.random.split(key, 3)
    coder = fresh(Coder, rest, settings.dense, key=first)
    latents = Layout(latent_blocks(coder.latent, label.size if label else 0))
    block = _told_block(latents, label)
    pair = _Pair(coder, diffusion.network(latents, settings.diffusion, block, second))
    numbers, codes = rest.split(X)
    classes = told.argmax(1) if label else np.zeros(len(X))
    rows = Rows(jnp.asarray(numbers), jnp.asarray(codes), jnp.asarray(classes, jnp.int32))
    descent = _Joint(settings.diffusion, rest.groups)
    steps, batch = settings.diffusion.steps, min(settings.diffusion.batch, len(X))
    state = train(descent.start(pair), descent, rows, steps=steps, batch=batch, key=key, **training)
    law = tuple(float(p) for p in told.mean(0)) if label else ()
    net, frame = state.average, frame_of(np.zeros((1, coder.latent), np.float32), False)
    facts = (law, ((-RANGE, RANGE),) * coder.latent)
    return put_together((net.coder, net.denoiser), layout, settings, label, facts, frame)
