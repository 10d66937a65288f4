"""Rows to latent rows and back: an autoencoder, or sphere codes, with a label kept apart.

What a latent diffusion needs of either coder, whoever holds the columns: one party all of them
(LatentDiff), or each of several parties its own (SiloFuse, Shankar et al. 2024, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from siloweave.errors import DataError, InputError
from siloweave.models import autoencoder
from siloweave.models.autoencoder import Autoencoder, Coder
from siloweave.models.nets import Array, fresh, load_arrays, save_arrays
from siloweave.models.settings import AutoencoderSettings, SphereCodeSettings
from siloweave.models.sphere_codes import SphereCodeCoder
from siloweave.progress import Progress, silent
from siloweave.tables.arrays import Matrix
from siloweave.tables.features import Block, Layout, SphereCodes

CoderSettings = AutoencoderSettings | SphereCodeSettings
"""Settings of either coder."""


def places_of(layout: Layout, label: Block | None) -> list[int]:
    """Return positions of the blocks that are encoded, in the feature vector."""
    positions: list[int] = []
    for block in layout.blocks:
        if block != label:
            positions += range(block.start, block.stop)
    return positions


def rest_of(layout: Layout, label: Block | None) -> Layout:
    """Return the blocks that are encoded, moved together."""
    blocks = []
    start = 0
    for block in layout.blocks:
        if block != label:
            blocks.append(replace(block, start=start))
            start += block.size
    return Layout(tuple(blocks))


def coder_of(
    rest: Layout,
    settings: CoderSettings,
    net: Any = None,
    *,
    key: Array | None = None,
) -> Autoencoder | SphereCodeCoder:
    """Return a coder of these blocks with a network, or with first weights drawn by `key`."""
    if isinstance(settings, SphereCodeSettings):
        coder = SphereCodeCoder.of(rest, settings)
        if net is not None:
            coder = replace(coder, net=net)
        return coder
    if net is None:
        if key is None:
            # Where weights are then read from a file, only their shapes matter.
            key = jax.random.key(0)
        net = fresh(Coder, rest, settings, key=key)
    return Autoencoder(net, rest, settings)


class RowCoder(eqx.Module):
    """Feature vectors to latent rows and back; a label follows the latents as it is."""

    coder: Autoencoder | SphereCodeCoder  # of the blocks that are not the label
    layout: Layout = eqx.field(static=True)  # all blocks of a row
    label: Block | None = eqx.field(static=True, default=None)  # that is not encoded
    # Of Gaussian heads: "mean" or "draw".
    numbers: str = eqx.field(static=True, default="mean")

    @classmethod
    def untrained(
        cls,
        layout: Layout,
        settings: CoderSettings,
        *,
        label: Block | None = None,
        numbers: str = "mean",
        key: Array | None = None,
    ) -> RowCoder:
        """Return a coder that has not seen a row; sphere codes if there is a label alone."""
        rest = rest_of(layout, label)
        if not rest.blocks:
            # Without a column to encode there is nothing to train.
            settings = SphereCodeSettings()
        coder = coder_of(rest, settings, key=key)
        return cls(coder, layout, label, numbers)

    @property
    def latent(self) -> int:
        """Length of a latent row."""
        return self.coder.net.latent

    @property
    def width(self) -> int:
        """Length of a latent row with the label behind it."""
        if self.label is None:
            return self.latent
        return self.latent + self.label.size

    @property
    def columns(self) -> tuple[str, ...]:
        """Which column each latent stands for; "" where an autoencoder mixes them."""
        if isinstance(self.coder, SphereCodeCoder):
            return self.coder.columns
        return ("",) * self.latent

    @property
    def sphere_codes(self) -> SphereCodes:
        """Which latents are codes of categoricals; none where an autoencoder mixes columns."""
        return self.coder.sphere_codes

    def encode(self, X: Matrix) -> Matrix:
        """Return latent rows with the label as it is, (n, width) float32.

        Raises like `Layout.check`.
        """
        checked = self.layout.check(X, least=0)
        Z = self.coder.encode(checked[:, places_of(self.layout, self.label)])
        return np.concatenate([Z, self._label(X)], 1).astype(np.float32)

    def encode_known(self, rows: Matrix) -> Matrix:
        """Return latent rows of rows that are known in part: NaN where they are NaN.

        Raises InputError when only some options of a categorical are given, or another column than
        the label to an autoencoder.
        """
        rows = np.asarray(rows, dtype=np.float32)
        if isinstance(self.coder, SphereCodeCoder):
            self.layout.known(rows)  # raises InputError for a categorical known in part
            Z = self.coder.encode(rows[:, places_of(self.layout, self.label)])
        else:
            # Only the label can be given: no latent is known.
            self._check_mixed(rows)
            Z = np.full((len(rows), self.latent), np.nan, np.float32)
        return np.concatenate([Z, self._label(rows)], 1)

    def _label(self, X: Matrix) -> Matrix:
        """Return the label's entries of feature vectors, (n, options); (n, 0) without a label."""
        if self.label is None:
            return X[:, :0]
        return X[:, self.label.start : self.label.stop]

    def _check_mixed(self, rows: Matrix) -> None:
        """Refuse columns other than the label, which the latents of an autoencoder mix."""
        for block in self.layout.blocks:
            is_open = np.isnan(rows[:, block.start : block.stop]).all()
            if block != self.label and not is_open:
                raise InputError(
                    f"column {block.column!r} cannot be given to an autoencoder's latent "
                    "diffusion, whose latents mix all columns: only the column it was fitted with "
                    "as labels can, or any column with SphereCodeSettings instead of the "
                    "autoencoder's"
                )

    def decode(self, V: Matrix, *, key: Array) -> Matrix:
        """Return rows of latent rows with their label, (n, layout.width), categoricals one-hot."""
        X = np.zeros((len(V), self.layout.width), dtype=np.float32)
        rows = self.coder.decode(V[:, : self.latent], key=key, numbers=self.numbers)
        X[:, places_of(self.layout, self.label)] = rows
        if self.label is not None:
            X[:, self.label.start : self.label.stop] = V[:, self.latent :]
        return X

    def save(self, path: Path) -> None:
        """Write one safetensors file: arrays, settings and blocks."""
        facts = {
            "model": "RowCoder",
            "settings": asdict(self.coder.settings),
            **self.layout.facts(self.label),
            "numbers": self.numbers,
        }
        save_arrays(path, self, facts)  # tables of sphere codes too, see `checked`

    @classmethod
    def load(cls, path: Path) -> RowCoder:
        """Read what `save` wrote; raises DataError where the file is no such coder."""

        def build(facts: Mapping[str, Any]) -> RowCoder:
            layout, label = Layout.of_facts(facts)
            settings = settings_from(facts["settings"])
            return cls.untrained(
                layout, settings, label=label, numbers=facts["numbers"]
            )

        return load_arrays(path, build).checked()

    def checked(self) -> RowCoder:
        """Return this coder; DataError where it was saved when sphere codes lay elsewhere."""
        if isinstance(self.coder, SphereCodeCoder):
            today = SphereCodeCoder.of(self.coder.layout, self.coder.settings)
            pairs = zip(self.coder.net.tables, today.net.tables, strict=True)
            # Tables are float32, and cosines differ in their last digits between machines.
            is_same = all(
                np.allclose(stored, codes, atol=1e-4) for stored, codes in pairs
            )
            if not is_same:
                raise DataError(
                    "the model was saved when sphere codes lay elsewhere: fit it again"
                )
        return self


def settings_from(facts: dict[str, Any]) -> CoderSettings:
    """Return settings from what `dataclasses.asdict` made of them."""
    if set(facts) == {"per_bit"}:
        return SphereCodeSettings(**facts)
    return AutoencoderSettings(**facts)


def fit(
    X: Matrix,
    layout: Layout,
    settings: CoderSettings,
    *,
    label: Block | None = None,
    numbers: str = "mean",
    key: Array,
    progress: Progress = silent,
    store: Path | None = None,
) -> RowCoder:
    """Fit a coder to the rows of a feature matrix, (n, width) float32; sphere codes learn nothing.

    `label` is a categorical that is not encoded, `numbers` as in `RowCoder`; key, progress and
    store as in `autoencoder.fit`. Raises InputError for rows that do not fit.
    """
    if numbers not in {"mean", "draw"}:
        raise InputError(f"numbers={numbers!r} is neither 'mean' nor 'draw'")
    X = layout.check(X)
    rest = rest_of(layout, label)
    if isinstance(settings, SphereCodeSettings) or not rest.blocks:
        return RowCoder.untrained(
            layout, settings, label=label, numbers=numbers, key=key
        )
    # The label is not encoded: it stands behind the latents as it is.
    encoded = X[:, places_of(layout, label)]
    coder = autoencoder.fit(
        encoded, rest.blocks, settings, key=key, progress=progress, store=store
    )
    return RowCoder(coder, layout, label, numbers)
