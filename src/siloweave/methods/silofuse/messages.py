"""SiloFuse: latent diffusion over parties that hold different columns of the same people.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse: cross-silo synthetic data generation with latent
tabular diffusion models" (ICDE), Algorithms 1 and 2. Every party codes its rows at home and sends
the latents once; the coordinator trains a diffusion on the latents side by side, and what it draws
is cut into the parties' parts, which they decode at home. With one party it is PointDiff, or with
autoencoders LatentDiff, whose code (models/coders.py, models/latent_law.py) this is.

**Guarantee** (none by default): the coordinator sees a code of every row, one real person each.
The paper's theorem says that an unknown encoder cannot be inverted for sure; it does not rule out
that almost all cells come back (see latent_insiders.py, which measures it). With
``privacy="latents"`` (dp, replace-one row, towards everyone, the other parties among them): each
party bounds its integer latent rows and adds discrete Gaussian noise before they leave, see
latent_noise.py. Assumed public: schema, settings, number and order of rows.

Where this departs from the paper:

* `coder` "points" (models/points.py) codes every column by itself, so latents do not depend on who
  holds it, and the diffusion is the same whatever the split: it is `PointDiff`. "autoencoders" are
  the paper's, widths divided equally among the parties.
* Latents travel in half precision. The classes of `target` are told, not coded, as LatentDiff's.

Latents that are bounded and noised row by row before they leave a party.

The sound way to send a code of every row to a coordinator that nobody trusts: the local model of
Kasiviswanathan, Lee, Nissim, Raskhodnikova & Smith 2011 ("What can we learn privately?"), with the
discrete Gaussian of Canonne, Kamath & Steinke 2020.

**Guarantee** (dp, replace-one row): towards everyone: readers, the coordinator, and the other
parties, also where these pool what they know. (All parties hold something of each row. What a party
holds itself it knows; what the others hold is protected from it by their noise, which it does not
know.) The coder is `points` of declared features, so it reads no row. A latent row is rounded to a
grid of integers and shrunk into a ball whose radius follows from the schema, so replacing a row
moves the integers by at most the diameter, and each integer gets discrete Gaussian noise from the
party's own entropy, once a run. A person's row lies at all parties, whose costs add up;
`LatentNoise.for_budget` shares the budget out so that the sum meets it. A party's ledger holds its
own share; before it pays, it adds up what all parties would release, and refuses if that is beyond
its
limit; every party's radius follows from its columns, so it computes them all.
Assumed public: schema, which party holds which columns, number and order of rows.

Ours, not the paper's. Noise of one row's size on every row leaves little to learn at a small
epsilon; that is the price of a coordinator that sees rows one by one.

E2EDistr: encoders, denoiser and decoders trained as one, parties holding different columns.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse" (ICDE), section 5.1: the baseline that sends forward
activations and gradients over the wire at every step, where SiloFuse sends latents once. Its steps
are those of the central E2E (models/end_to_end.py), cut where a party ends, so bytes grow with the
number of steps: four matrices of (batch, latents) each. The coordinator's side is in
end_to_end_rounds.py.

**Guarantee** (none): the coordinator sees latents of every row over and over, and gradients too.
A party pays once, without bound, for all it sends at all steps (`Site.release_under`), and once
more each for the shares of its columns and its synthetic columns where these are put together.
Assumed public: schema, settings, order of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import TYPE_CHECKING

from msgspec import Struct

from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.methods.silofuse.party import (
    _GRID,
    _radii,
    require_replacing,
)
from siloweave.privacy.budget import Budget
from siloweave.privacy.calibrate import gaussian_sigma, rho_for
from siloweave.privacy.events import Gaussian
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    pass


class Coded(Reply, frozen=True):
    """A party's latent rows.

    Attributes:
        latents: (rows, latents).
        columns: Which column each latent stands for; "" where an autoencoder mixes them.
        spots: (first, dimensions, options) of the choices that are points among them.
        classes: (rows,) of the target, at the party that holds it; empty elsewhere.
        options: How many classes there are, alike.
        one_way: How single columns are distributed, as `OneWay.to_json`; only where they are
            put together, since that is what whole rows are raked to.
    """

    latents: Released[Array]
    columns: Released[tuple[str, ...]]
    spots: Released[tuple[tuple[int, int, int], ...]]
    classes: tuple[Released[Array], ...] = ()
    options: tuple[Released[int], ...] = ()
    one_way: tuple[Released[str], ...] = ()


class Code(Request[Coded], frozen=True, tag="silofuse/code"):
    """Code your rows.

    Attributes:
        coder: Settings of the coder, widths of all parties together.
        numbers: What is read from Gaussian heads.
        parties: How many divide the widths.
        target: A column that is told, whoever holds it.
        seed: First weights and batches.
        half: Whether latents travel in half precision.
        shared: Whether synthetic columns will be put together.
    """

    coder: bytes
    numbers: str
    parties: int
    target: str | None
    seed: int
    half: bool
    shared: bool


class Shared(Reply, frozen=True):
    """Consent that synthetic columns are put together, and how many there are."""

    columns: Released[int]


class Share(Request[Shared], frozen=True, tag="silofuse/share"):
    """Let the columns that you decode of made-up latents be put together with the others'."""


class LatentNoise(Struct, frozen=True, forbid_unknown_fields=True):
    """Bound and noise of latent rows.

    Attributes:
        sigma: Of the discrete Gaussian noise, in steps of the grid.
        grid: Step of the integers, in units of a latent.
        clip: Radius of the ball, as a share of the largest norm that the schema allows.
        radii: Of every party's ball, by name, in steps of the grid.
    """

    sigma: float
    grid: float
    clip: float
    radii: dict[str, int]

    @property
    def together(self) -> Gaussian:
        """What all parties release about a row: replacing it moves their integers so far."""
        return Gaussian(self.sigma, 2.0 * sqrt(sum(r * r for r in self.radii.values())))

    @classmethod
    def for_budget(
        cls, budget: Budget, parts: Mapping[str, Schema], per_bit: float, clip: float
    ) -> LatentNoise:
        """The least noise, equal at all parties, with which all together keep to a budget.

        Args:
            budget: What all parties together may release about a row.
            parts: Every party's columns, by name.
            per_bit: Of the points.
            clip: See `LatentNoise`.

        Raises:
            BudgetError: The budget's neighbours differ in the number of rows, which is public here.
        """
        require_replacing(budget)
        radii = _radii(parts, per_bit, clip)
        distance = cls(1.0, _GRID, clip, radii).together.sensitivity
        return cls(gaussian_sigma(rho_for(budget), distance), _GRID, clip, radii)


class Noised(Reply, frozen=True):
    """A party's latent rows, as integers on the grid."""

    latents: Released[Array]


class CodeNoised(Request[Noised], frozen=True, tag="silofuse/code_noised"):
    """Code your rows with points that are `per_bit` wide, bound them, and add noise."""

    per_bit: float
    noise: LatentNoise


class JointBegun(Reply, frozen=True):
    """What a party's part of a row is: latents; and its number of rows, and classes."""

    rows: Released[int]
    latent: Released[int]
    classes: tuple[Released[Array], ...] = ()
    options: tuple[Released[int], ...] = ()
    one_way: tuple[Released[str], ...] = ()


class BeginJoint(Request[JointBegun], frozen=True, tag="e2e/begin"):
    """Make a coder with these settings; widths are those of all parties together."""

    settings: bytes
    parties: int
    target: str | None
    seed: int
    shared: bool


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
    """The coder is kept at home."""

    steps: Public[int]


class End(Request[Ended], frozen=True, tag="e2e/end"):
    """Take the last step, and keep the coder."""

    step: int
    slope: Array
