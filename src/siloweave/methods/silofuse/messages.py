"""What SiloFuse and E2EDistr send (Shankar et al. 2024), and the bound on latents with noise.

Settings travel in no message: every party has those of its own study.

**Guarantee**: see method.py. Radii follow from public facts alone, so all sides compute the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.methods.silofuse.settings import SiloFuseSettings
from siloweave.privacy.events import Gaussian
from siloweave.tables.features import Features
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.coders import RowCoder


# SiloFuse


class Coded(Reply, frozen=True):
    """A party's latent rows."""

    latents: Released[Array]  # (rows, latents)
    # Of each latent; "" where an autoencoder mixes them.
    columns: Released[tuple[str, ...]]
    # (first, dimensions, options)
    sphere_codes: Released[tuple[tuple[int, int, int], ...]]
    # (rows,) of the target, at its holder; else empty
    classes: tuple[Released[Array], ...] = ()
    options: tuple[Released[int], ...] = ()  # how many classes there are, alike


class Code(Request[Coded], frozen=True, tag="silofuse/code"):
    """Code your rows; `seed` is for first weights and batches."""

    seed: int


class Noised(Reply, frozen=True):
    """A party's latent rows, as integers on the grid."""

    latents: Released[Array]


class CodeNoised(Request[Noised], frozen=True, tag="silofuse/code_noised"):
    """Code your rows, bound them, and add discrete Gaussian noise of `sigma` steps of the grid."""

    sigma: float


# E2EDistr


class JointBegun(Reply, frozen=True):
    """A party's number of rows, and of latents in a row; the rest is as in `Coded`."""

    rows: Released[int]
    latent: Released[int]
    classes: tuple[Released[Array], ...] = ()
    options: tuple[Released[int], ...] = ()


class BeginJoint(Request[JointBegun], frozen=True, tag="e2e/begin"):
    """Make a coder; `seed` is for first weights and batches."""

    seed: int


class Activations(Reply, frozen=True):
    """Latents of a batch, (batch, latent)."""

    latents: Released[Array]


class Forward(Request[Activations], frozen=True, tag="e2e/forward"):
    """Take the step before, along this slope at its latents, and code the next batch."""

    step: int
    slope: Array | None


class Slopes(Reply, frozen=True):
    """The slope of the decoder's loss at denoised latents, and the loss."""

    slope: Released[Array]
    loss: Released[float]


class Backward(Request[Slopes], frozen=True, tag="e2e/backward"):
    """Decode these denoised latents of the batch."""

    step: int
    back: Array


class Ended(Reply, frozen=True):
    """A confirmation that the coder is stored at the party."""

    steps: Public[int]


class End(Request[Ended], frozen=True, tag="e2e/end"):
    """Take the last step, and store the coder."""

    step: int
    slope: Array


# The bound on latents with noise: what both sides derive from the study

GRID = 2.0**-6
"""Step of the integers, in units of a latent whose sphere codes lie about 1 from 0."""


def declared_coder(schema: Schema, synth: SiloFuseSettings) -> RowCoder:
    """Build the sphere codes of a party's columns, from public facts alone."""
    from siloweave.models.coders import RowCoder
    from siloweave.models.sphere_codes import SphereCodeCoder
    from siloweave.tables.features import Layout

    settings: Any = synth.latent.autoencoder
    layout = Layout(Features.declared(schema).blocks)
    return RowCoder(SphereCodeCoder.of(layout, settings), layout)


def radius(coder: RowCoder, clip: float) -> int:
    """Return the radius of the ball in which integer latent rows lie.

    It is a share `clip` of the largest norm that a row can have.
    """
    net: Any = coder.coder.net
    # The norm of a choice's sphere code is in its table; a number lies in [-1, 1].
    choice_squares = [
        float((np.asarray(table) ** 2).sum(1).max()) for table in net.tables
    ]
    number_squares = len(coder.layout.numbers)
    largest_norm = sqrt(sum(choice_squares) + number_squares) / GRID
    return max(1, ceil(clip * largest_norm))


def released_together(
    sigma: float, parts: Mapping[str, Schema], synth: SiloFuseSettings
) -> Gaussian:
    """Return the event of what all parties together release about one row.

    Replacing it moves each party's integers from one side of their ball to the other, at most.
    """
    radii = [radius(declared_coder(part, synth), synth.clip) for part in parts.values()]
    sensitivity = 2.0 * sqrt(sum(r * r for r in radii))
    return Gaussian(sigma, sensitivity)
