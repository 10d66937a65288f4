"""Latent diffusion of tables: an autoencoder, then Gaussian diffusion of its latent rows.

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

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from siloweave.errors import InputError
from siloweave.models import bounds, coders, diffusion, latent_law
from siloweave.models.autoencoder import Autoencoder, AutoencoderSettings, Coder
from siloweave.models.coders import RowCoder, assembled, checked, settings_from, untrained
from siloweave.models.coders import places_of as _places
from siloweave.models.coders import rest_of as _rest
from siloweave.models.denoiser import Denoiser, Rows
from siloweave.models.descent import Descent
from siloweave.models.diffusion import DiffusionSettings, TabDDPMModel
from siloweave.models.end_to_end import REACH, denoised, latents, surprise
from siloweave.models.latent_law import LatentLaw, frame_of, latent_blocks, told_block
from siloweave.models.layout import Layout, Matrix
from siloweave.models.nets import Array, fresh, load_arrays, save_arrays
from siloweave.models.points import PointCoder, PointSettings
from siloweave.models.train import train
from siloweave.tables.features import Block

__all__ = ["LatentDiffusion", "LatentSettings", "fit", "put_together", "settings_of_facts"]

Progress = Callable[[str, float], None]
_SEPARATE = {  # what counts only where coder and diffusion are trained one after the other
    "autoencoder": ("jitter", "steps", "batch", "learning_rate", "weight_decay", "decay"),
    "diffusion": ("passes", "focus", "choices", "reach"),
}
_Facts = tuple[tuple[float, ...], tuple[tuple[float, float], ...]]  # label law, reach


@dataclass(frozen=True)
class LatentSettings:
    """Settings of a latent diffusion.

    Attributes:
        autoencoder: Settings of the autoencoder, or of points in its place.
        diffusion: Settings of the diffusion; its `prediction` is "clean" when `joint`. Its steps,
            batch and rates are those of the joint training too.
        joint: Whether both are trained as one. Settings that then do nothing are refused.
        scaled: Whether latents are standardised by their mean and spread over the rows. These are
            statistics of the rows: a private fit sets this to False and uses a divergence.
        numbers: What is read from the Gaussian heads: their "mean" or a "draw".
    """

    autoencoder: AutoencoderSettings | PointSettings = field(default_factory=AutoencoderSettings)
    diffusion: DiffusionSettings = field(default_factory=DiffusionSettings)
    joint: bool = False
    scaled: bool = True
    numbers: str = "mean"

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        bounds.check(self, numbers=bounds.one_of("mean", "draw"))
        points = isinstance(self.autoencoder, PointSettings)
        if self.joint and points:
            raise InputError("joint=True needs an autoencoder to train: points learn nothing")
        if self.numbers == "draw" and points:
            raise InputError("numbers='draw' needs an autoencoder: points have numbers as they are")
        if self.joint and self.diffusion.prediction != "clean":
            raise InputError(
                "joint=True needs diffusion.prediction='clean': the decoder is given the denoised "
                "latent"
            )
        if self.joint and self.dense.divergence:
            raise InputError("joint=True has no divergence: set autoencoder.divergence=0")
        if self.joint:
            self._refuse_unused()

    def _refuse_unused(self) -> None:
        """Refuse settings that a joint training makes no use of."""
        names = ("scaled", *(f"{part}.{name}" for part, own in _SEPARATE.items() for name in own))
        usual = LatentSettings()
        for name in names:
            value, default = attrgetter(name)(self), attrgetter(name)(usual)
            if value != default:
                raise InputError(
                    f"{name}={value!r} does nothing where joint=True trains all as one: leave it "
                    f"at {default!r}. Steps, batch and rates are those of diffusion"
                )

    @property
    def dense(self) -> AutoencoderSettings:
        """Settings of the autoencoder where there is one."""
        assert isinstance(self.autoencoder, AutoencoderSettings)
        return self.autoencoder


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

    coder: Autoencoder | PointCoder
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
            sampler: "solver" (the default), "ddim" or "ancestral", as `TabDDPMModel.sample` takes it.
            steps: Times visited; None is 50, or all of them for "ancestral".
            eta: As `TabDDPMModel.sample` takes it.
            balanced: Whether every label is equally likely.
            given: (n, width), NaN where a value is to be drawn. The diffusion is told labels; other
                columns are kept in place while rows are drawn (see `TabDDPMModel.sample`), which points
                can do and an autoencoder cannot.
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
    def law(self) -> LatentLaw:
        """The law of latent rows."""
        return LatentLaw(self.diffusion, self.shift, self.scale)

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
            "reach": self.diffusion.reach,
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
            reach = tuple((low, high) for low, high in facts["reach"])
            read.extend((layout, settings, label, (tuple(facts["label_law"]), reach)))
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


def _latents(coder: Autoencoder | PointCoder, label: Block | None) -> Layout:
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
    before = 0.0 if isinstance(settings.autoencoder, PointSettings) else 0.5
    rows = coders.fit(
        X, layout, settings.autoencoder, label=label, numbers=settings.numbers,
        key=first,
        progress=lambda text, done: progress(f"autoencoder: {text}", done / 2),
        store=None if store is None else store / "autoencoder",
    )  # fmt: skip
    law_ = latent_law.fit(
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
        return error + surprise(net.coder, back, rows, self.groups)


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
    facts = (law, ((-REACH, REACH),) * coder.latent)
    return put_together((net.coder, net.denoiser), layout, settings, label, facts, frame)
