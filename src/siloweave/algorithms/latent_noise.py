"""Latents that are bounded and noised row by row before they leave a party.

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
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from siloweave.algorithms.columns_split import ColumnsPart, keep_home
from siloweave.algorithms.generated import Matrix
from siloweave.errors import BudgetError, WireError, number
from siloweave.federation.messages import Array, Released, Reply, Request
from siloweave.federation.site import Site
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.calibrate import gaussian_sigma, rho_for
from siloweave.privacy.events import Gaussian
from siloweave.tables.features import Features
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.coders import RowCoder

__all__ = [
    "CodeNoised",
    "LatentNoise",
    "Noised",
    "bounded",
    "code_noised",
    "declared_coder",
    "radius",
    "require_replacing",
]

_GRID = 2.0**-6  # of a latent whose points lie about 1 from 0
_HUGE, _MOST = 1e9, 2**24  # beyond any latent; integers whose squares add up without overflow
Ints = npt.NDArray[np.int64]


# Messages


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


# Party


def require_replacing(budget: Budget) -> None:
    """Refuse neighbours that differ in the number of rows."""
    if budget.relation is not Relation.REPLACE_ONE:
        raise BudgetError(
            f"budget: relation = {str(budget.relation)!r}, but every row sends a latent, so their "
            "number is known to all. Give Budget(..., relation=sw.Relation.REPLACE_ONE)."
        )


def declared_coder(schema: Schema, per_bit: float) -> RowCoder:
    """The coder of a party's columns, from public facts alone."""
    from siloweave.models.coders import RowCoder
    from siloweave.models.layout import Layout
    from siloweave.models.settings import SphereCodeSettings
    from siloweave.models.sphere_codes import SphereCodeCoder

    layout = Layout(Features.declared(schema).blocks)
    return RowCoder(SphereCodeCoder.of(layout, SphereCodeSettings(per_bit)), layout)


def radius(coder: RowCoder, grid: float, clip: float) -> int:
    """Radius of the ball that integer rows lie in: a share of the largest norm of a row's points.

    A number lies in [-1, 1]; a choice's points have a norm that its table tells.
    """
    number("clip", clip, 0, 1, "(]")
    net: Any = coder.coder.net
    squares = [float((np.asarray(table) ** 2).sum(1).max()) for table in net.tables]
    largest = sqrt(sum(squares) + len(coder.layout.numbers)) / grid
    return max(1, ceil(clip * largest))


def _radii(parts: Mapping[str, Schema], per_bit: float, clip: float) -> dict[str, int]:
    """Every party's radius, from its columns."""
    return {
        name: radius(declared_coder(part, per_bit), _GRID, clip) for name, part in parts.items()
    }


def bounded(Z: Matrix, grid: float, most: int) -> Ints:
    """Latent rows as integers of norm at most `most`.

    **Guarantee**: exact: every row of the result has an L2 norm of at most `most`, whatever Z
    holds, and depends on its own row of Z alone.
    """
    Z = np.nan_to_num(Z.astype(np.float64), nan=0.0, posinf=_HUGE, neginf=-_HUGE)
    K: Ints = np.rint(np.clip(Z, -_HUGE, _HUGE) / grid).astype(np.int64)
    K = np.clip(K, -_MOST, _MOST)
    for shrink in (1.0, 1.0 - 1e-9, 0.5):  # the first may round up by a hair, the last cannot
        over = (K * K).sum(1) > most * most  # row by row: no row moves because another does
        norms = np.sqrt((K[over].astype(np.float64) ** 2).sum(1, keepdims=True))
        K[over] = np.trunc(K[over] * (shrink * most / norms)).astype(np.int64)
    assert ((K * K).sum(1) <= most * most).all()
    return K


def code_noised(request: CodeNoised, site: Site[ColumnsPart]) -> Noised:
    """Pay for all rows' latents, then draw their noise."""
    held, noise = site.rows, request.noise
    site.terms.require(site.name, privacy="latents", clip=noise.clip)
    site.terms.require(site.name, autoencoder={"per_bit": request.per_bit})
    if noise.grid != _GRID:
        raise WireError(f"party {site.name!r} was told of a grid of {noise.grid}; it is {_GRID}")
    features = Features.declared(held.schema)
    coder = declared_coder(held.schema, request.per_bit)
    most = radius(coder, noise.grid, noise.clip)
    site.require_first()
    _check_together(request, site)
    event = Gaussian(sigma=noise.sigma, sensitivity=2.0 * most)
    Z = coder.encode(features.encode(held.table, key=0))  # declared features draw nothing
    K = bounded(Z, noise.grid, most)  # rows that do not fit are refused before they are paid for

    def draw() -> Array:
        noisy = mechanisms.add_gaussian(K.reshape(-1), noise.sigma, entropy=site.entropy)
        return Array.of(noisy.reshape(K.shape), "<i4")

    keep_home(site, features, coder.to_bytes())
    return Noised(site.release(event, "latents of all rows, bounded and noised", draw))


def _check_together(request: CodeNoised, site: Site[ColumnsPart]) -> None:
    """Refuse noise with which all parties together would go beyond this party's limit.

    Radii follow from which party holds which columns, so a party computes them all.
    """
    noise, parts = request.noise, site.terms.facts["parts"]
    if noise.radii != _radii(parts, request.per_bit, noise.clip):
        raise WireError(
            f"party {site.name!r}: the radii that it was told of do not follow from the parties' "
            "columns. Nothing was released"
        )
    limit = site.ledger.limit
    if limit is None:
        return
    require_replacing(limit)
    total = epsilon([noise.together], limit.delta)
    if total > limit.epsilon:
        raise BudgetError(
            f"party {site.name!r}: all parties together would release epsilon = {total} at delta "
            f"= {limit.delta} about a row, more than the limit of {limit.epsilon}. Nothing was "
            "released. Ask for more noise."
        )
