"""The law of latent rows: Gaussian diffusion of a matrix of numbers, told a label.

It asks nothing of where latents come from: one autoencoder (LatentDiff, TLDM), points, or the
coders of several parties side by side (SiloFuse, Shankar et al. 2024, Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from siloweave.models import diffusion
from siloweave.models.diffusion import DiffusionSettings, TabDDPMModel
from siloweave.models.layout import Layout, Matrix, Spot, Spots
from siloweave.models.nets import Array, load_arrays, save_arrays
from siloweave.tables.features import Block

__all__ = ["LABEL", "LatentLaw", "fit", "frame_of", "latent_blocks", "told_block"]

Progress = Callable[[str, float], None]
LABEL = "label"
"""What the label is called among a latent row's blocks."""


def latent_blocks(latent: int, options: int) -> tuple[Block, ...]:
    """Blocks of a latent row with a label of so many options behind it; none if 0."""
    numbers = [Block(f"latent {i}", i, 1, "number") for i in range(latent)]
    return (*numbers, *([Block(LABEL, latent, options, "choice")] if options else []))


def told_block(latents: Layout, options: int) -> Block | None:
    """The label among a latent row's blocks."""
    return latents.choice_of(LABEL) if options else None


def frame_of(Z: Matrix, scaled: bool, spots: Spots = ()) -> tuple[Matrix, Matrix]:
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
class LatentLaw:
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
            "model": "LatentLaw",
            "settings": asdict(self.diffusion.settings),
            "latent": self.latent,
            "spots": self.diffusion.layout.spots,
            "label_law": list(self.diffusion.label_law),
            "reach": self.diffusion.reach,
            "facts": dict(self.facts),
        }
        arrays = (self.diffusion.net, jnp.array(self.shift), jnp.array(self.scale))
        save_arrays(path, arrays, facts)

    @classmethod
    def load(cls, path: Path) -> LatentLaw:
        """Read what `save` wrote.

        Raises:
            DataError: When the file is not such a law.
        """
        read: list[Any] = []

        def build(facts: dict[str, Any]) -> Any:
            size, law = facts["latent"], tuple(facts["label_law"])
            spots = tuple(Spot(*s) for s in facts["spots"])
            layout = Layout(latent_blocks(size, len(law)), spots)
            settings, label = DiffusionSettings(**facts["settings"]), told_block(layout, len(law))
            reach = tuple((low, high) for low, high in facts["reach"])
            read.extend((layout, settings, label, law, reach, facts["facts"]))
            net = diffusion.network(layout, settings, label)
            return net, jnp.zeros(size), jnp.zeros(size)

        net, shift, scale = load_arrays(path, build)
        *parts, facts = read
        return cls(TabDDPMModel(net, *parts), np.asarray(shift), np.asarray(scale), facts)


def fit(
    V: Matrix,
    latent: int,
    settings: DiffusionSettings | None = None,
    *,
    scaled: bool = True,
    spots: Spots = (),
    facts: Mapping[str, Any] | None = None,
    **training: Any,
) -> LatentLaw:
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
    return LatentLaw(ddpm, shift, scale, facts or {})
