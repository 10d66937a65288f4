"""TabDDPM: diffusion of mixed rows (Kotelnikov, Baranchuk, Rubachev & Babenko 2023).

Numbers get Gaussian noise (Ho, Jain & Abbeel 2020), categoricals are replaced by uniform draws
(Hoogeboom et al. 2021, see `multinomial`), and one dense network undoes both: it predicts the noise
of the numbers and the log-probabilities of the clean options. A column that the caller names as
labels is not diffused: the network is conditioned on it, and sampling draws it from its
distribution in the data.

Where this departs from the authors' code: sampling uses the averaged weights (theirs has an average
and samples without it), hidden units are SiLU, noisy categoricals enter as zeros and ones instead
of log-probabilities of -69 and 0, the times of one batch are spread evenly instead of drawn
independently, and categoricals are learnt by a cross-entropy whose optimum is the bound's
(``choices="bound"`` is the paper's; decision 0018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from siloweave.errors import InputError
from siloweave.models.denoiser import Denoiser, NumberHead, Rows, row_losses
from siloweave.models.layout import Layout, Matrix, SphereCode, SphereCodes
from siloweave.models.nets import Array, fresh, load_arrays, padded, pieces, save_arrays
from siloweave.models.schedules import ReverseKind, denoise, kept_variance, table, walk
from siloweave.models.settings import DiffusionSettings
from siloweave.models.train import Descent, Progress, train
from siloweave.tables.features import Block

_CHUNK = 2048  # rows denoised at once; more does not fit the caches
Ranges = tuple[tuple[float, float], ...]


class _Descent(Descent):
    sphere_codes: SphereCodes = eqx.field(static=True, default=())

    def losses(self, net: Denoiser, rows: Rows, key: Array) -> Array:
        kept = kept_variance(self.settings.schedule, self.settings.timesteps)
        return row_losses(net, rows, key, self.groups, kept, self.settings, self.sphere_codes)


class TabDDPMModel(eqx.Module):
    """A fitted diffusion model."""

    net: Denoiser  # the denoiser with averaged weights
    layout: Layout = eqx.field(static=True)  # all blocks of a row
    settings: DiffusionSettings = eqx.field(static=True)  # those of the fit
    label: Block | None = eqx.field(static=True, default=None)  # that conditions the network
    label_shares: tuple[float, ...] = eqx.field(static=True, default=())  # in the data
    ranges: Ranges = eqx.field(static=True, default=())  # of each number; sampling clips to them

    @property
    def diffused(self) -> Layout:
        """The blocks that noise is added to."""
        return self.layout.without(self.label)

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
        """Draw rows, (n, width) float32, categoricals one-hot.

        Columns that are given are handled by replacement: at every step they are overwritten by
        themselves at that step's noise, and the other columns follow (RePaint, Lugmayr et al.
        2022). That is not the exact conditional distribution; walking every step `resamples` times
        comes closer. A given label is exact, because the network is conditioned on it.

        Args:
            n: Rows.
            key: A key of JAX.
            sampler: See `schedules.walk`; None is "solver", or "ddim" with `eta` 1
                where columns are given.
            steps: Times visited; None is 50, or all of them for "ancestral".
            eta: Noise of "solver" and "ddim", 0 to 1; None is that of the settings.
            balanced: Whether every label is equally likely.
            given: (n, width) as the features encode it, NaN where a value is to be drawn.
            resamples: How often each step is walked when columns are given.

        Raises:
            InputError: For a sampler, `steps`, `eta`, `given` or `resamples` that cannot be used.
        """
        if n < 0:
            raise InputError(f"n={n} rows cannot be drawn: give 0 or more")
        plan = self._plan(sampler, steps, eta, given, resamples)
        first, key = jax.random.split(key)
        labels = self._labels(n, first, balanced, given)
        known = self._known(n, given)
        head, groups = _numbers(self.diffused, self.settings), self.diffused.groups
        low, high = jnp.asarray(np.reshape(self.ranges, (-1, 2)).T, jnp.float32)
        chunks = []
        for i, (start, stop, size) in enumerate(pieces(n, _CHUNK)):
            piece = padded((labels, known), start, stop, size)
            kind = ReverseKind(size, head, groups)
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
        shares = np.asarray(self.label_shares)
        shares = (shares > 0).astype(float) if balanced else shares
        drawn = jax.random.choice(key, len(shares), (n,), p=jnp.asarray(shares / shares.sum()))
        if given is None:
            return drawn
        flags = np.asarray(given)[:, self.label.start : self.label.stop]
        return jnp.where(~np.isnan(flags).any(1), np.nan_to_num(flags).argmax(1), drawn)

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

    def facts(self) -> dict[str, Any]:
        """What a file says of the model beside its blocks; `of_facts` reads it."""
        return {"label_shares": list(self.label_shares), "ranges": self.ranges}

    @classmethod
    def of_facts(
        cls,
        facts: Mapping[str, Any],
        layout: Layout,
        settings: DiffusionSettings,
        label: Block | None,
    ) -> TabDDPMModel:
        """A model with first weights instead of its own."""
        ranges = tuple((low, high) for low, high in facts["ranges"])
        net = network(layout, settings, label)
        return cls(net, layout, settings, label, tuple(facts["label_shares"]), ranges)

    def save(self, path: Path) -> None:
        """Write one safetensors file: arrays, settings and blocks."""
        facts = {
            "model": "TabDDPMModel",
            "settings": asdict(self.settings),
            **self.layout.facts(self.label),
            "sphere_codes": self.layout.sphere_codes,
            **self.facts(),
        }
        save_arrays(path, self, facts)

    @classmethod
    def load(cls, path: Path) -> TabDDPMModel:
        """Read what `save` wrote; raises DataError where the file is no such model."""

        def build(facts: Mapping[str, Any]) -> TabDDPMModel:
            layout, label = Layout.of_facts(facts)
            layout = replace(layout, sphere_codes=codes_of(facts))
            return cls.of_facts(facts, layout, DiffusionSettings(**facts["settings"]), label)

        return load_arrays(path, build)


def codes_of(facts: Mapping[str, Any]) -> SphereCodes:
    """Sphere codes that a file's facts name."""
    return tuple(SphereCode(*code) for code in facts["sphere_codes"])


def network(
    layout: Layout, settings: DiffusionSettings, label: Block | None, key: Array | None = None
) -> Denoiser:
    """The denoiser that a layout and settings ask for, with first weights from `key`."""
    diffused = layout.without(label)
    reading, options = _numbers(diffused, settings), sum(b.size for b in diffused.categoricals)
    fan_in, fan_out = reading.inputs + options, reading.outputs + options
    key = jax.random.key(0) if key is None else key
    labels = 0 if label is None else label.size
    return fresh(Denoiser, fan_in, fan_out, labels, settings, key=key)


def _numbers(diffused: Layout, settings: DiffusionSettings) -> NumberHead:
    return NumberHead(len(diffused.numbers), settings.prediction, diffused.sphere_codes)


def fit(
    X: Matrix,
    blocks: tuple[Block, ...],
    settings: DiffusionSettings | None = None,
    *,
    sphere_codes: SphereCodes = (),
    key: Array,
    labels: str | None = None,
    label_shares: Sequence[float] | None = None,
    progress: Progress = lambda text, done: None,
    store: Path | None = None,
) -> TabDDPMModel:
    """Fit TabDDPM to the rows of a feature matrix, (n, width) float32, of these blocks.

    The network is conditioned on `labels`, a column that is one categorical, instead of diffusing
    it, unless it is the only column; sampling draws it by `label_shares`, or by its shares in the
    rows. The key draws first weights, batches, times and noise. An interrupted fit resumes from the
    checkpoints in `store`. Raises InputError for rows that are not finite or not one-hot, or an
    unknown label column.
    """
    settings = settings or DiffusionSettings()
    layout = Layout(tuple(blocks), sphere_codes)
    X = layout.check(X)
    settings = replace(settings, steps=settings.taken(len(X)))
    label = None if labels is None else layout.categorical_of(labels)
    label = None if len(layout.blocks) == 1 else label
    first, key = jax.random.split(key)
    update, rows = descent(settings, layout, label), rows_of(X, layout, label)
    start = update.start(network(layout, settings, label, first))
    batch = min(settings.batch, len(X))
    state = train(
        start, update, rows, steps=settings.steps, batch=batch, key=key, progress=progress,
        store=store,
    )  # fmt: skip
    if settings.clip_range is not None:
        ranges = ((-settings.clip_range, settings.clip_range),) * rows.numbers.shape[1]
    else:
        columns = np.asarray(rows.numbers).T
        ranges = tuple((float(column.min()), float(column.max())) for column in columns)
    shares: Sequence[float] = ()
    if label is not None:
        counts = np.bincount(np.asarray(rows.labels), minlength=label.size)
        shares = tuple(counts / len(X)) if label_shares is None else label_shares
    shares = tuple(map(float, shares))
    return TabDDPMModel(state.average, layout, settings, label, shares, ranges)


def rows_of(X: Matrix, layout: Layout, label: Block | None) -> Rows:
    """Feature vectors as training reads them: numbers, codes, and the label apart."""
    numbers, codes = layout.without(label).split(X)
    labels = np.zeros(len(X), np.int32)
    if label is not None:
        labels = X[:, label.start : label.stop].argmax(1).astype(np.int32)
    return Rows(jnp.asarray(numbers), jnp.asarray(codes), jnp.asarray(labels))


def descent(settings: DiffusionSettings, layout: Layout, label: Block | None) -> Descent:
    """One step of training, as `models.train` takes it."""
    diffused = layout.without(label)
    return _Descent(settings, diffused.groups, diffused.sphere_codes)
