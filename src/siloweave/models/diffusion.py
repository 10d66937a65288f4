"""TabDDPM: diffusion of mixed rows (Kotelnikov, Baranchuk, Rubachev & Babenko 2023).

Numbers get Gaussian noise (Ho, Jain & Abbeel 2020), choices are replaced by uniform draws
(Hoogeboom et al. 2021, see `multinomial`), and one dense network undoes both: it predicts the
noise of the numbers and the log-probabilities of the clean choices. A column that the caller names
as labels is not diffused; the network is told it, and sampling draws it from its law in the data.

Where this departs from the authors' code: sampling uses the averaged weights (theirs keeps an
average and samples without it), hidden units are SiLU, noisy choices enter as zeros and ones
instead of log-probabilities of -69 and 0, the times of one batch are spread evenly instead of
drawn independently, and choices are learnt by a cross-entropy whose optimum is the bound's
(``choices="bound"`` is the paper's; decision 0018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from siloweave.errors import InputError
from siloweave.models.denoiser import (
    Denoiser,
    NumberHead,
    Rows,
    row_losses,
)
from siloweave.models.descent import Descent
from siloweave.models.layout import Layout, Matrix, SphereCode, SphereCodes
from siloweave.models.nets import Array, fresh, load_arrays, save_arrays
from siloweave.models.schedules import ReverseKind, denoise, kept_variance, padded, table, walk
from siloweave.models.settings import DiffusionSettings
from siloweave.models.train import train
from siloweave.tables.features import Block

__all__ = ["DiffusionSettings", "TabDDPMModel", "descent", "fit", "network", "rows_of"]

Progress = Callable[[str, float], None]
_CHUNK = 2048  # rows denoised at once; more does not fit the caches


class _Descent(Descent):
    spots: SphereCodes = eqx.field(static=True, default=())

    def losses(self, net: Denoiser, rows: Rows, key: Array) -> Array:
        s = self.settings
        return row_losses(
            net, rows, key, self.groups, kept_variance(s.schedule, s.timesteps),
            prediction=s.prediction, loss_weight=s.loss_weight, spots=self.spots, choices=s.choices,
        )  # fmt: skip


@dataclass(frozen=True)
class TabDDPMModel:
    """A fitted diffusion model.

    Attributes:
        net: The denoiser with averaged weights.
        layout: All blocks of a row.
        settings: What it was fitted with.
        label: The choice that the network is told, or None.
        label_law: Shares of the labels' categories in the data; empty without labels.
        ranges: Lowest and highest value of each number that sampling keeps to.
    """

    net: Denoiser
    layout: Layout
    settings: DiffusionSettings
    label: Block | None = None
    label_law: tuple[float, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()

    @property
    def diffused(self) -> Layout:
        """The blocks that noise is added to."""
        return self.layout if self.label is None else self.layout.without(self.label)

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

        Columns that are given are handled by replacement: at every step of the way they are
        overwritten by themselves at that step's noise, and the other columns follow (the way of
        RePaint, Lugmayr et al. 2022). That is not the exact conditional law; walking every step
        `resamples` times comes closer. A given label is exact, because the network is told it.

        Args:
            n: Rows.
            key: A key of JAX.
            sampler: "solver" (second order; the default), "ddim", or "ancestral"; with given
                columns the default is "ddim" with `eta` 1. Choices draw from their posterior over
                the same times.
            steps: Times visited; None is 50, or all of them for "ancestral".
            eta: Noise of "solver" and "ddim", 0 to 1; None is the settings' own.
            balanced: Whether every label is equally likely.
            given: (n, width) as the features encode it, NaN where a value is to be drawn.
            resamples: How often each step is walked when columns are given.

        Returns:
            (n, width) float32, choices one-hot.

        Raises:
            InputError: For a sampler, `steps`, `eta`, `given` or `resamples` that cannot be used.
        """
        if n < 0:
            raise InputError(f"n={n} rows cannot be drawn: give 0 or more")
        plan = self._plan(sampler, steps, eta, given, resamples)
        first, key = jax.random.split(key)
        labels = self._labels(n, first, balanced, given)
        known = self._known(n, given)
        size = min(_CHUNK, 1 << max(n - 1, 0).bit_length())
        parts = self.diffused
        kind = ReverseKind(size, _numbers(parts, self.settings), parts.groups)
        low, high = jnp.asarray(np.reshape(self.ranges, (-1, 2)).T, jnp.float32)
        chunks = []
        for i, start in enumerate(range(0, n, size)):
            piece = padded((labels, known), start, min(start + size, n), size)
            out = denoise(self.net, plan, jax.random.fold_in(key, i), *piece, (low, high), kind)
            chunks.append(jax.tree.map(np.asarray, out))
        return self._joined(n, chunks, labels)

    def _plan(
        self,
        sampler: str | None,
        steps: int | None,
        eta: float | None,
        given: Matrix | None,
        times: int,
    ) -> dict[str, Array]:
        eta = self.settings.eta if eta is None else eta
        if sampler is None:
            sampler, eta = ("solver", eta) if given is None else ("ddim", 1.0)
        if times < 1 or (times > 1 and (given is None or sampler == "solver")):
            raise InputError(
                f"resamples={times} cannot be used here: it is 1 or more, and above 1 only with "
                "given columns and the sampler 'ddim' or 'ancestral'"
            )
        settings = self.settings
        way = walk(kept_variance(settings.schedule, settings.timesteps), sampler, steps, eta)
        return table(way, times, settings.timesteps)

    def _labels(self, n: int, key: Array, balanced: bool, given: Matrix | None) -> Array:
        if self.label is None:
            if balanced:
                raise InputError("balanced=True needs labels: fit with labels=<a column> first")
            return jnp.zeros(n, jnp.int32)
        law = np.asarray(self.label_law) ** (0.0 if balanced else 1.0)
        if balanced:
            law = (np.asarray(self.label_law) > 0).astype(float)
        drawn = jax.random.choice(key, len(law), (n,), p=jnp.asarray(law / law.sum()))
        if given is None:
            return drawn
        told = np.asarray(given)[:, self.label.start : self.label.start + self.label.size]
        fixed = ~np.isnan(told).any(1)
        return jnp.where(fixed, np.nan_to_num(told).argmax(1), drawn)

    def _known(self, n: int, given: Matrix | None) -> tuple[Any, ...] | None:
        if given is None:
            return None
        given = np.asarray(given, dtype=np.float32)
        if given.shape != (n, self.layout.width):
            raise InputError(
                f"given has shape {given.shape}, but {n} rows need ({n}, {self.layout.width})"
            )
        masks = self.diffused.known(given)
        numbers, codes = self.diffused.split(np.nan_to_num(given))
        return numbers, codes, *masks

    def _joined(self, n: int, chunks: list[tuple[Any, Any]], labels: Array) -> Matrix:
        if not chunks:
            return np.zeros((0, self.layout.width), dtype=np.float32)
        numbers, codes = (np.concatenate(parts)[:n] for parts in zip(*chunks, strict=True))
        if not np.isfinite(numbers).all():
            raise InputError("the model drew numbers that are not finite: fit it again")
        X = self.diffused.join(numbers, codes, self.layout.width)
        if self.label is not None:
            X[np.arange(n), self.label.start + np.asarray(labels)] = 1.0
        return X

    def save(self, path: Path) -> None:
        """Write one safetensors file: arrays, settings and blocks."""
        facts = {
            "model": "TabDDPMModel",
            "settings": asdict(self.settings),
            "blocks": [asdict(b) for b in self.layout.blocks],
            "spots": self.layout.spots,
            "label": None if self.label is None else self.label.column,
            "label_law": list(self.label_law),
            "ranges": self.ranges,
        }
        save_arrays(path, self.net, facts)

    @classmethod
    def load(cls, path: Path) -> TabDDPMModel:
        """Read what `save` wrote; it samples the same rows.

        Raises:
            DataError: When the file is not such a model.
        """
        made: list[TabDDPMModel] = []

        def build(facts: dict[str, Any]) -> Denoiser:
            spots = tuple(SphereCode(*s) for s in facts["spots"])
            layout = Layout(tuple(Block(**b) for b in facts["blocks"]), spots)
            settings = DiffusionSettings(**facts["settings"])
            label = None if facts["label"] is None else layout.choice_of(facts["label"])
            net = network(layout, settings, label, jax.random.key(0))
            ranges = tuple((low, high) for low, high in facts["ranges"])
            made.append(cls(net, layout, settings, label, tuple(facts["label_law"]), ranges))
            return net

        net = load_arrays(path, build)
        return replace(made[0], net=net)


def network(
    layout: Layout, settings: DiffusionSettings, label: Block | None, key: Array | None = None
) -> Denoiser:
    """The denoiser that a layout and settings ask for, with first weights from `key`."""
    diffused = layout if label is None else layout.without(label)
    reading, options = _numbers(diffused, settings), sum(b.size for b in diffused.choices)
    fan_in, fan_out = reading.inputs + options, reading.outputs + options
    key = jax.random.key(0) if key is None else key
    told = 0 if label is None else label.size
    net: Denoiser = fresh(Denoiser, fan_in, fan_out, told, settings, key=key)
    return net


def _numbers(diffused: Layout, settings: DiffusionSettings) -> NumberHead:
    return NumberHead(len(diffused.numbers), settings.prediction, diffused.spots)


def fit(
    X: Matrix,
    blocks: tuple[Block, ...],
    settings: DiffusionSettings | None = None,
    *,
    spots: SphereCodes = (),
    key: Array,
    labels: str | None = None,
    law: Sequence[float] | None = None,
    progress: Progress = lambda text, done: None,
    store: Path | None = None,
) -> TabDDPMModel:
    """Fit TabDDPM to the rows of a feature matrix.

    Args:
        X: (n, width) float32, as the features encode a table.
        blocks: What its entries are.
        settings: Sizes and training.
        spots: Choices that are points among the numbers.
        key: A key of JAX: first weights, batches, times and noise.
        labels: A column that is one choice; the network is told it instead of diffusing it.
            It is diffused like the others when it is the only column.
        law: Shares of the labels' categories to draw them by; those of the rows if None.
        progress: Called with a text and the share done.
        store: Folder for checkpoints; an interrupted fit resumes there.

    Raises:
        InputError: For rows that are not finite or not one-hot, or an unknown label column.
    """
    settings = settings or DiffusionSettings()
    layout = Layout(tuple(blocks), spots)
    X = layout.check(X)
    settings = replace(settings, steps=settings.taken(len(X)))
    label = None if labels is None else layout.choice_of(labels)
    label = None if len(layout.blocks) == 1 else label
    born, key = jax.random.split(key)
    net = network(layout, settings, label, born)
    update, rows = descent(settings, layout, label), rows_of(X, layout, label)
    state = train(
        update.start(net), update, rows, steps=settings.steps, batch=min(settings.batch, len(X)),
        key=key, progress=progress, store=store,
    )  # fmt: skip
    ranges = _ranges(np.asarray(rows.numbers), settings.clip_range)
    law = _law(label, np.asarray(rows.labels), law)
    return TabDDPMModel(state.average, layout, settings, label, law, ranges)


def rows_of(X: Matrix, layout: Layout, label: Block | None) -> Rows:
    """Feature vectors as training reads them: numbers, codes, and the label apart."""
    diffused = layout if label is None else layout.without(label)
    numbers, codes = diffused.split(X)
    told = np.zeros(len(X), np.int32)
    if label is not None:
        told = X[:, label.start : label.start + label.size].argmax(1).astype(np.int32)
    return Rows(jnp.asarray(numbers), jnp.asarray(codes), jnp.asarray(told))


def descent(settings: DiffusionSettings, layout: Layout, label: Block | None) -> Descent:
    """One step of training, as `models.train` takes it."""
    diffused = layout if label is None else layout.without(label)
    return _Descent(settings, diffused.groups, diffused.spots)


def _law(label: Block | None, told: Any, given: Sequence[float] | None) -> tuple[float, ...]:
    if label is None:
        return ()
    return tuple(np.bincount(told, minlength=label.size) / len(told) if given is None else given)


def _ranges(numbers: Matrix, declared: float | None) -> tuple[tuple[float, float], ...]:
    if declared is not None:
        return tuple([(-declared, declared)] * int(numbers.shape[1]))
    return tuple([(float(column.min()), float(column.max())) for column in numbers.T])
