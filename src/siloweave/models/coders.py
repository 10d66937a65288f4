"""Rows to latent rows and back: an autoencoder, or points, with a label kept apart.

What a latent diffusion needs of either coder, whoever holds the columns: one party all of them
(LatentDiff), or each of several parties its own (SiloFuse, Shankar et al. 2024, section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np

from siloweave.errors import DataError, InputError
from siloweave.models import autoencoder
from siloweave.models.autoencoder import Autoencoder, Coder
from siloweave.models.layout import Layout, Matrix, SphereCodes
from siloweave.models.nets import Array, fresh, load_arrays, save_arrays
from siloweave.models.settings import AutoencoderSettings, SphereCodeSettings
from siloweave.models.sphere_codes import SphereCodeCoder
from siloweave.tables.features import Block

__all__ = [
    "CoderSettings",
    "RowCoder",
    "assembled",
    "checked",
    "first",
    "fit",
    "places_of",
    "rest_of",
    "settings_from",
    "untrained",
]

Progress = Callable[[str, float], None]
CoderSettings = AutoencoderSettings | SphereCodeSettings
"""Settings of either coder."""


def places_of(layout: Layout, label: Block | None) -> list[int]:
    """Positions of the blocks that are encoded, in the feature vector."""
    return [i for b in layout.blocks if b != label for i in range(b.start, b.stop)]


def rest_of(layout: Layout, label: Block | None) -> Layout:
    """The blocks that are encoded, moved together."""
    blocks, start = [], 0
    for b in layout.blocks:
        if b != label:
            blocks.append(replace(b, start=start))
            start += b.size
    return Layout(tuple(blocks))


def untrained(rest: Layout, settings: CoderSettings, key: Array | None = None) -> Any:
    """A network with first weights, or a table of points, of the right shape."""
    if isinstance(settings, SphereCodeSettings):
        return SphereCodeCoder.of(rest, settings).net
    return fresh(Coder, rest, settings, key=jax.random.key(0) if key is None else key)


@dataclass(frozen=True)
class RowCoder:
    """Feature vectors to latent rows and back; a label goes along as it is, behind the latents.

    Attributes:
        coder: Of the blocks that are not the label.
        layout: All blocks of a row.
        label: The choice that is not encoded, or None.
        numbers: What is read from an autoencoder's Gaussian heads: their "mean" or a "draw".
    """

    coder: Autoencoder | SphereCodeCoder
    layout: Layout
    label: Block | None = None
    numbers: str = "mean"

    @property
    def latent(self) -> int:
        """Length of a latent row."""
        size: int = self.coder.net.latent
        return size

    @property
    def width(self) -> int:
        """Length of a latent row with the label behind it."""
        return self.latent + (self.label.size if self.label else 0)

    @property
    def columns(self) -> tuple[str, ...]:
        """Which column each latent stands for; "" where an autoencoder mixes them."""
        if isinstance(self.coder, SphereCodeCoder):
            return self.coder.columns
        return ("",) * self.latent

    @property
    def spots(self) -> SphereCodes:
        """Which latents are the points of a choice; none where an autoencoder mixes columns."""
        return self.coder.spots

    def encode(self, X: Matrix) -> Matrix:
        """Latent rows, (n, width) float32; the label as it is.

        Raises:
            InputError: For rows that are not finite or not one-hot.
        """
        Z = self.coder.encode(self.layout.check(X, least=0)[:, places_of(self.layout, self.label)])
        return np.concatenate([Z, self._label(X)], 1).astype(np.float32)

    def told(self, given: Matrix) -> Matrix:
        """The same of rows that are known in part: NaN where they are NaN.

        Raises:
            InputError: When a choice is given in part.
            NotImplementedError: When another column than the label is given to an autoencoder.
        """
        given = np.asarray(given, dtype=np.float32)
        V = np.full((len(given), self.width), np.nan, np.float32)
        if isinstance(self.coder, SphereCodeCoder):
            self.layout.known(given)
            V[:, : self.latent] = self.coder.encode(given[:, places_of(self.layout, self.label)])
        else:
            self._refuse(given)
        V[:, self.latent :] = self._label(given)
        return V

    def _label(self, X: Matrix) -> Matrix:
        return X[:, self.label.start : self.label.stop] if self.label else X[:, :0]

    def _refuse(self, given: Matrix) -> None:
        for b in self.layout.blocks:
            if b != self.label and not np.isnan(given[:, b.start : b.stop]).all():
                raise NotImplementedError(
                    f"column {b.column!r} cannot be given to an autoencoder's latent diffusion, "
                    "whose latents mix all columns: only the column it was fitted with as labels "
                    "can, or any column with SphereCodeSettings in the place of the autoencoder"
                )

    def decode(self, V: Matrix, *, key: Array) -> Matrix:
        """Rows of latent rows with their label, (n, layout.width), choices one-hot."""
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
            "blocks": [asdict(b) for b in self.layout.blocks],
            "label": None if self.label is None else self.label.column,
            "numbers": self.numbers,
        }
        save_arrays(path, self.coder.net, facts)

    def to_bytes(self) -> bytes:
        """The file of `save`, for where there are no files."""
        with TemporaryDirectory() as folder:
            self.save(Path(folder) / "coder.safetensors")
            return (Path(folder) / "coder.safetensors").read_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> RowCoder:
        """Read what `to_bytes` gave; raises DataError when it is something else."""
        with TemporaryDirectory() as folder:
            (Path(folder) / "coder.safetensors").write_bytes(data)
            return cls.load(Path(folder) / "coder.safetensors")

    @classmethod
    def load(cls, path: Path) -> RowCoder:
        """Read what `save` wrote.

        Raises:
            DataError: When the file is not such a coder.
        """
        read: list[Any] = []

        def build(facts: dict[str, Any]) -> Any:
            layout = Layout(tuple(Block(**b) for b in facts["blocks"]))
            label = None if facts["label"] is None else layout.choice_of(facts["label"])
            settings = settings_from(facts["settings"])
            read.extend((layout, label, settings, facts["numbers"]))
            return untrained(rest_of(layout, label), settings)

        net = load_arrays(path, build)
        layout, label, settings, numbers = read
        coder = checked(assembled(net, rest_of(layout, label), settings))
        return cls(coder, layout, label, numbers)


def settings_from(facts: dict[str, Any]) -> CoderSettings:
    """Settings from what `dataclasses.asdict` made of them."""
    kind = SphereCodeSettings if set(facts) == {"per_bit"} else AutoencoderSettings
    return kind(**facts)


def assembled(net: Any, rest: Layout, settings: CoderSettings) -> Autoencoder | SphereCodeCoder:
    """A coder of a network or table of points."""
    if isinstance(settings, SphereCodeSettings):
        return SphereCodeCoder(net, rest, settings)
    return Autoencoder(net, rest, settings)


def checked(coder: Autoencoder | SphereCodeCoder) -> Autoencoder | SphereCodeCoder:
    """A coder that was loaded, if its points are where a denoiser takes them to be.

    Raises:
        DataError: When they were saved by a version that placed them otherwise.
    """
    if isinstance(coder, SphereCodeCoder):
        own = SphereCodeCoder.of(coder.layout, coder.settings).net.tables
        if not all(
            np.allclose(*pair, atol=1e-4) for pair in zip(coder.net.tables, own, strict=True)
        ):
            raise DataError("the model was saved when points lay elsewhere: fit it again")
    return coder


def first(
    layout: Layout,
    settings: CoderSettings,
    *,
    label: Block | None = None,
    numbers: str = "mean",
    key: Array,
) -> RowCoder:
    """A coder that has not seen a row; points where there is nothing but the label."""
    rest = rest_of(layout, label)
    if not rest.blocks:
        settings = SphereCodeSettings()
    net = untrained(rest, settings, key)
    return RowCoder(assembled(net, rest, settings), layout, label, numbers)


def fit(
    X: Matrix,
    layout: Layout,
    settings: CoderSettings,
    *,
    label: Block | None = None,
    numbers: str = "mean",
    **training: Any,
) -> RowCoder:
    """Fit a coder to the rows of a feature matrix; points are made and learn nothing.

    Args:
        X: (n, width) float32, as the features encode a table.
        layout: What its entries are.
        settings: Of an autoencoder or of points.
        label: A choice that is not encoded.
        numbers: See `RowCoder`.
        training: What `autoencoder.fit` takes: key, progress, store.

    Raises:
        InputError: For rows that are not finite or not one-hot.
    """
    if numbers not in {"mean", "draw"}:
        raise InputError(f"numbers={numbers!r} is neither 'mean' nor 'draw'")
    X, rest = layout.check(X), rest_of(layout, label)
    if isinstance(settings, SphereCodeSettings) or not rest.blocks:
        return first(layout, settings, label=label, numbers=numbers, key=training["key"])
    kept = X[:, places_of(layout, label)]
    coder = autoencoder.fit(kept, rest.blocks, settings, **training)
    return RowCoder(coder, layout, label, numbers)
