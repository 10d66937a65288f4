"""SiloFuse: latent diffusion over parties that hold different columns of the same people.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse: cross-silo synthetic data generation with latent
tabular diffusion models" (ICDE), Algorithms 1 and 2. Every party codes its rows at home and sends
the latents once; the coordinator trains a diffusion on the latents side by side, and what it draws
is cut into the parties' parts, which they decode at home. With one party it is PointDiff, or with
autoencoders LatentDiff, whose code (models/coders.py, models/latent.py) this is.

**Guarantee** (none by default): the coordinator sees a code of every row, one real person each.
The paper's theorem says that an unknown encoder cannot be inverted for sure; it does not rule out
that almost all cells come back (see audit/transcripts.py, which measures it). With
``privacy="latents"`` (dp, replace-one row, towards everyone, the other parties among them): each
party bounds its integer latent rows and adds discrete Gaussian noise before they leave, see
latent_noise.py. Assumed public: schema, settings, number and order of rows.

Where this departs from the paper:

* `coder` "points" (models/points.py) codes every column by itself, so latents do not depend on who
  holds it, and the diffusion is the same whatever the split: it is `PointDiff`. "autoencoders" are
  the paper's, widths divided equally among the parties.
* Latents travel in half precision. The classes of `target` are told, not coded, as LatentDiff's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from siloweave.algorithms.columns_split import ColumnsPart, ColumnsTask, keep_home
from siloweave.algorithms.generated import Matrix
from siloweave.algorithms.joint import JointModel, split_key
from siloweave.algorithms.latent_noise import CodeNoised, LatentNoise, code_noised, declared_coder
from siloweave.algorithms.networks import jax_key
from siloweave.algorithms.sent_latents import (
    Sent,
    check_all_told,
    check_same_rows,
    checked_spots,
    classes_of,
    law_of,
    side_by_side,
    spots_of,
    told_classes,
)
from siloweave.errors import WireError
from siloweave.federation.expected import WHOLE, WIDEST, CheckedReply
from siloweave.federation.messages import Array, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.events import NonPrivate
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in
from siloweave.tables.one_way import OneWay

if TYPE_CHECKING:
    from siloweave.models.coders import RowCoder
    from siloweave.models.layout import SphereCodes
    from siloweave.models.settings import LatentSettings

__all__ = [
    "PARTY",
    "Code",
    "Coded",
    "Share",
    "Shared",
    "SiloFusePlan",
    "divided",
    "one_way_of",
    "silofuse",
    "trained",
]

_HALF = 60_000.0  # largest number that half precision is used for


# Messages


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


# Party


def code(request: Code, site: Site[ColumnsPart]) -> Coded:
    """Fit a coder at home, keep it, and send latents."""
    held, key, terms = site.rows, fold_in(request.seed, "train"), site.terms
    own = {"autoencoder": msgspec.json.decode(request.coder), "privacy": "none"}
    own |= {"numbers": request.numbers, "half": request.half}
    terms.require(site.name, target=request.target, shared=request.shared, **own)
    if request.parties != len(terms.roster):
        raise WireError(f"party {site.name!r} is told of {request.parties} parties, not of all")
    site.require_first()
    features = Features.fit(held.table, held.schema, key=fold_in(key, "features"))
    X = features.encode(held.table, key=fold_in(key, "encode"))
    coder = _fitted(request, held, features, X)
    keep_home(site, features, coder.to_bytes())
    V, latent = coder.encode(X), coder.latent
    event = NonPrivate("a code of every row is sent as it is, and may be inverted")
    sent = site.release(event, "latents of all rows", lambda: _array(V[:, :latent], request.half))
    columns = site.release(event, "which column a latent stands for", lambda: coder.columns)
    spots = site.release(event, "how many options a latent's choice has", lambda: _plain(coder))
    alone = one_way_of(site) if request.shared else ()
    if coder.label is None:
        return Coded(sent, columns, spots, one_way=alone)
    event = NonPrivate("the classes of every row are told")
    told = site.release(event, "classes of the target", lambda: told_classes(V[:, latent:]))
    options = site.release(event, "number of classes", lambda: V.shape[1] - latent)
    return Coded(sent, columns, spots, (told,), (options,), alone)


def _plain(coder: RowCoder) -> tuple[tuple[int, int, int], ...]:
    return tuple((s.start, s.dimensions, s.options) for s in coder.sphere_codes)


def one_way_of(site: Site[ColumnsPart]) -> tuple[Released[str], ...]:
    """How the party's columns are distributed, one by one."""
    event = NonPrivate("single columns are counted exactly")
    held = site.rows
    law = site.release(
        event, "shares of every column", lambda: OneWay.of(held.table, held.schema).to_json()
    )
    return (law,)


def _array(Z: Matrix, half: bool) -> Array:
    """Latents in half precision, where they fit into its range."""
    return Array.of(Z, "<f2" if half and np.abs(Z).max(initial=0.0) < _HALF else "<f4")


def _fitted(request: Code, held: ColumnsPart, features: Features, X: Matrix) -> RowCoder:
    from siloweave.models import coders
    from siloweave.models.layout import Layout

    settings = coders.settings_from(msgspec.json.decode(request.coder))
    layout = Layout(features.blocks)
    mine = request.target if request.target in held.table.names else None
    return coders.fit(
        X,
        layout,
        divided(settings, request.parties),
        label=None if mine is None else layout.categorical_of(mine),
        numbers=request.numbers,
        key=jax_key(fold_in(request.seed, "coder", *held.table.names)),
        progress=held.progress,
        store=held.store,
    )


def divided(settings: Any, parties: int) -> Any:
    """A party's share of the widths of an autoencoder."""
    if not hasattr(settings, "hidden"):
        return settings
    latent = None if settings.latent is None else max(1, settings.latent // parties)
    hidden = tuple(max(1, width // parties) for width in settings.hidden)
    return replace(settings, hidden=hidden, latent=latent)


def share(request: Share, site: Site[ColumnsPart]) -> Shared:
    """Pay once for all columns that will be decoded; a coder that learned nothing costs nothing."""
    site.terms.require(site.name, shared=True)
    event = NonPrivate("columns are decoded by what was learned from rows without noise")
    what = "synthetic columns, however many rows are drawn"
    return Shared(site.release(event, what, lambda: len(site.rows.schema.names)))


# A party's side: which function answers which request.
PARTY: Handlers = {Code: code, CodeNoised: code_noised, Share: share}


# Coordinator


@dataclass(frozen=True)
class SiloFusePlan:
    """What the coordinator trains, and how.

    Attributes:
        settings: Of the coder and the diffusion.
        target: A column that is told.
        half: Whether latents travel in half precision.
        shared: Whether synthetic columns are put together.
        noise: Bound and noise of latent rows; None sends them as they are.
    """

    settings: LatentSettings
    target: str | None
    half: bool
    shared: bool
    noise: LatentNoise | None = None


def silofuse(parties: Session, task: ColumnsTask, plan: SiloFusePlan) -> tuple[JointModel, int]:
    """Gather latents once, and train their law.

    Args:
        parties: Who holds the columns; one party alone is PointDiff or LatentDiff.
        task: Schema, seed, and where training is kept.
        plan: What is trained.

    Raises:
        WireError: A party sent what does not fit; the message names it.
    """
    sent = _noised(parties, task, plan) if plan.noise else _coded(parties, task, plan)
    V, latent, facts = side_by_side(sent, task.schema.names, plan.target)
    law = trained(V, latent, task, plan.settings, facts, spots_of(sent, facts["places"]))
    if plan.shared and plan.noise is None:
        parties.ask(Share())
    return JointModel(law), len(V)


def trained(
    V: Matrix,
    latent: int,
    task: ColumnsTask,
    settings: LatentSettings,
    facts: dict[str, Any],
    spots: SphereCodes = (),
) -> Any:
    """The law of latents; it reads no message and sends none."""
    from siloweave.models import latent as latents

    return latents.fit_latents(
        V,
        latent,
        settings.diffusion,
        scaled=settings.scaled,
        sphere_codes=spots,
        facts=facts,
        key=split_key(fold_in(fold_in(task.seed, "train"), "model"))[1],
        progress=task.progress,
        store=task.store,
    )


def _coded(parties: Session, task: ColumnsTask, plan: SiloFusePlan) -> Sent:
    settings = plan.settings
    request = Code(
        msgspec.json.encode(asdict(settings.autoencoder)),
        settings.numbers,
        len(parties.roster),
        plan.target,
        task.seed,
        plan.half,
        plan.shared,
    )
    replies = dict(zip(parties.roster, parties.ask(request), strict=True))
    latents: list[Matrix] = []
    columns, spots, classes, laws = [], [], None, list[str]()
    for name, reply in replies.items():
        said, own = CheckedReply(name), task.columns[name]
        latents.append(said.reals("latents", reply.latents.value, (None, None)))
        count = said.number("latents in a row", latents[-1].shape[1], most=WIDEST)
        columns.append(said.items("columns", reply.columns.value, count=count, among=("", *own)))
        check_all_told(name, columns[-1], [c for c in own if c != plan.target])
        spots.append(checked_spots(name, reply.spots.value, reply.columns.value))
        laws += law_of(name, reply, task.schema.select(own), plan.shared)
    check_same_rows({name: len(Z) for name, Z in zip(replies, latents, strict=True)})
    for i, (name, reply) in enumerate(replies.items()):  # now all agree on the number of rows
        mine = task.schema[plan.target] if plan.target in task.columns[name] else None
        told = classes_of(name, reply, mine, len(latents[0]))
        classes = classes if told is None else (i, told)
    return Sent(latents, columns, classes, laws, spots)


def _noised(parties: Session, task: ColumnsTask, plan: SiloFusePlan) -> Sent:
    assert plan.noise is not None
    per_bit = asdict(plan.settings.autoencoder)["per_bit"]
    replies = parties.ask(CodeNoised(per_bit, plan.noise))
    latents: list[Matrix] = []
    columns = []
    for name, reply in zip(parties.roster, replies, strict=True):
        coder = declared_coder(task.schema.select(task.columns[name]), per_bit)
        K = CheckedReply(name).array("latents", reply.latents.value, WHOLE, (None, coder.latent))
        latents.append((K * plan.noise.grid).astype(np.float32))
        columns.append(coder.columns)
    check_same_rows({name: len(Z) for name, Z in zip(parties.roster, latents, strict=True)})
    return Sent(latents, columns)
