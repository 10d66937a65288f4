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

Latents of several parties as one table's: what SiloFuse and E2EDistr hear, checked and in order.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse" (ICDE), Algorithm 1, line 6: latents side by side.

**Guarantee**: none of its own; it reads what was sent.

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
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.algorithms.generated import Matrix
from siloweave.errors import BudgetError, WireError, number
from siloweave.federation.expected import CheckedReply
from siloweave.federation.messages import Array, Public, Released
from siloweave.federation.site import Handlers, Site
from siloweave.methods.silofuse.messages import (
    Activations,
    Backward,
    BeginJoint,
    Code,
    Coded,
    CodeNoised,
    End,
    Ended,
    Forward,
    JointBegun,
    Noised,
    Share,
    Shared,
    Slopes,
)
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import Gaussian, NonPrivate
from siloweave.protocols.columns import ColumnsPart, keep_home, kept_features
from siloweave.protocols.networks import jax_key
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in, generator
from siloweave.tables.one_way import OneWay
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.coders import RowCoder
    from siloweave.models.descent import State
    from siloweave.models.latent import CoderSide
    from siloweave.models.settings import LatentSettings


_HALF = 60_000.0  # largest number that half precision is used for


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
    return tuple((s.start, s.dimensions, s.options) for s in coder.spots)


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
        label=None if mine is None else layout.choice_of(mine),
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
SILOFUSE_HANDLERS: Handlers = {Code: code, CodeNoised: code_noised, Share: share}


def told_classes(V: Matrix) -> Array:
    """Classes of one-hot rows, in the smallest numbers that hold them; `one_hot` reads them."""
    return Array.of(V.argmax(1), "<u1" if V.shape[1] <= 256 else "<u4")


_GRID = 2.0**-6  # of a latent whose points lie about 1 from 0


_HUGE, _MOST = 1e9, 2**24  # beyond any latent; integers whose squares add up without overflow


Ints = npt.NDArray[np.int64]


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


_T = TypeVar("_T")


@lru_cache(maxsize=4)
def _order(epoch: int, rows: int, seed: int) -> npt.NDArray[np.int64]:
    return generator(fold_in(seed, "epoch", epoch)).permutation(rows)


def batch_of(step: int, rows: int, batch: int, seed: int) -> npt.NDArray[np.int64]:
    """Which rows are in a step: every epoch is a permutation that all parties know, cut evenly.

    Example:
        >>> sorted(np.concatenate([batch_of(k, 6, 2, 0) for k in range(3)]).tolist())
        [0, 1, 2, 3, 4, 5]
    """
    size = min(batch, rows)
    cuts = max(1, rows // size)
    order = _order(step // cuts, rows, seed)
    place = size * (step % cuts)
    return order[place : place + size]


def begin(request: BeginJoint, site: Site[ColumnsPart]) -> JointBegun:
    """Fit encoders, make a coder, and pay for all that will be sent at every step."""
    held, key = site.rows, fold_in(request.seed, "train")
    own = msgspec.json.decode(request.settings)
    site.terms.require(site.name, target=request.target, shared=request.shared, **own)
    if request.parties != len(site.terms.roster):
        raise WireError(f"party {site.name!r} is told of {request.parties} parties, not of all")
    features = Features.fit(held.table, held.schema, key=fold_in(key, "features"))
    keep_home(site, features)
    event = NonPrivate("latents and gradients of every batch are sent as they are")
    entry = site.pay(event, "latents and gradients of every step")
    site.remember("entry", entry.encode())
    site.remember("begin", msgspec.json.encode(request))
    work = _work(site)
    _keep(site, work, 0, work.start())
    told, options = work.told()
    return JointBegun(
        site.release_under(entry, lambda: held.table.num_rows),
        site.release_under(entry, lambda: work.coder.latent if work.trained else 0),
        tuple(site.release_under(entry, partial(_itself, codes)) for codes in told),
        tuple(site.release_under(entry, partial(_itself, count)) for count in options),
        one_way_of(site) if request.shared else (),
    )


def _itself(value: _T) -> _T:
    return value


@dataclass(frozen=True)
class _Work:
    """A party's rows and coder in one run, made again from what it remembers.

    `states` holds the last two, each with its number of steps, as they are kept.
    """

    request: BeginJoint
    part: ColumnsPart
    settings: LatentSettings
    coder: RowCoder
    rows: Any
    V: Matrix
    states: dict[int, tuple[int, State]]

    @property
    def trained(self) -> bool:
        """Whether there is anything to train: the target may be all that the party holds."""
        return bool(self.coder.coder.layout.blocks)

    def told(self) -> tuple[list[Array], list[int]]:
        """Classes of the target and how many there are, if it is this party's."""
        if self.coder.label is None:
            return [], []
        told = self.V[:, self.coder.label.start : self.coder.label.stop]
        return [told_classes(told)], [told.shape[1]]

    def side(self) -> CoderSide:
        """Its side of a step."""
        from siloweave.models.latent import CoderSide

        return CoderSide(self.settings.diffusion, self.coder.coder.layout.groups)

    def start(self) -> State:
        """Before the first step."""
        return self.side().start(self.coder.coder.net)

    def batch(self, step: int) -> Any:
        """Rows of a batch."""
        import jax

        at = batch_of(step, len(self.V), self.settings.diffusion.batch, self.request.seed)
        return jax.tree.map(lambda x: x[at], self.rows)


def _work(site: Site[ColumnsPart]) -> _Work:
    run = site.context.rpartition("/")[0]
    found = site.memo.get(("work", run))
    if isinstance(found, _Work):
        return found
    import jax

    from siloweave.models import coders
    from siloweave.models.diffusion import rows_of
    from siloweave.models.latent import settings_of_facts
    from siloweave.models.layout import Layout

    kept = site.recall("begin")
    if kept is None:
        raise WireError(f"party {site.name!r}: a step was asked for before the beginning")
    request, held, features = (
        msgspec.json.decode(kept, type=BeginJoint),
        site.rows,
        kept_features(site),
    )
    key = fold_in(fold_in(request.seed, "train"), "encode")
    V = features.encode(held.table, key=key)
    settings = settings_of_facts(msgspec.json.decode(request.settings))
    layout = Layout(features.blocks)
    mine = request.target if request.target in held.table.names else None
    coder = coders.first(
        layout,
        divided(settings.autoencoder, request.parties),
        label=None if mine is None else layout.choice_of(mine),
        numbers=settings.numbers,
        key=jax_key(fold_in(request.seed, "coder", *held.table.names)),
    )
    kept_rows = V[:, coders.places_of(layout, coder.label)]
    rows = jax.tree.map(np.asarray, rows_of(kept_rows, coder.coder.layout, None))
    made = _Work(request, held, settings, coder, rows, V, {})
    site.memo["work", run] = made
    return made


def _keep(site: Site[ColumnsPart], work: _Work, step: int, state: State) -> None:
    from siloweave.models.rounds import packed

    site.remember(f"state-{step % 2}", step.to_bytes(8, "big") + packed(state))
    work.states[step % 2] = (step, state)


def _state(site: Site[ColumnsPart], work: _Work, step: int) -> State:
    """The state after so many steps.

    Raises:
        WireError: The party is at another step.
    """
    found = work.states.get(step % 2)
    if found is not None and found[0] == step:
        return found[1]
    from siloweave.models.rounds import unpacked

    kept = site.recall(f"state-{step % 2}")
    if kept is None or int.from_bytes(kept[:8], "big") != step:
        raise WireError(
            f"party {site.name!r} has no state after step {step}: a stale or early message. Ask "
            "the steps in order, or start a new run."
        )
    state: State = unpacked(kept[8:], work.start())
    return state


def _under(site: Site[ColumnsPart]) -> str:
    return (site.recall("entry") or b"").decode()


def forward(request: Forward, site: Site[ColumnsPart]) -> Activations:
    """Take the step before, and code a batch."""
    work = _work(site)
    if request.step == 0:
        state = _state(site, work, 0)
    else:
        state = _turned(site, work, request.step - 1, request.slope)
        _keep(site, work, request.step, state)
    z = work.side().forward(state, work.batch(request.step))
    return Activations(site.release_under(_under(site), lambda: Array.of(np.asarray(z), "<f4")))


def _turned(site: Site[ColumnsPart], work: _Work, step: int, slope: Array | None) -> State:
    kept = site.recall(f"back-{step % 2}")
    if kept is None or slope is None:
        raise WireError(f"party {site.name!r}: step {step} was not decoded; ask it in order")
    asked = msgspec.msgpack.decode(kept, type=Backward)
    if asked.step != step:
        raise WireError(f"party {site.name!r}: step {step} is stale; ask the steps in order")
    state, rows = _state(site, work, step), work.batch(step)
    back, along = _like(work, "back", asked.back), _like(work, "slope", slope)
    return work.side().turned(state, rows, back, along)


def _like(work: _Work, field: str, array: Array) -> Any:
    """Numbers of a batch's latents; raises WireError where they are of another shape."""
    import jax.numpy as jnp

    batch = min(work.settings.diffusion.batch, len(work.V))
    rows = CheckedReply("the coordinator").reals(field, array, (batch, work.coder.latent))
    return jnp.asarray(rows, jnp.float32)


def backward(request: Backward, site: Site[ColumnsPart]) -> Slopes:
    """Decode, and say how the loss changes."""
    work = _work(site)
    if request.step >= work.settings.diffusion.steps:
        raise WireError(
            f"party {site.name!r}: the study has {work.settings.diffusion.steps:,} steps"
        )
    state, rows = _state(site, work, request.step), work.batch(request.step)
    back = _like(work, "back", request.back)
    site.remember(f"back-{request.step % 2}", msgspec.msgpack.encode(request))
    slope, loss = work.side().backward(state, rows, back)
    entry = _under(site)
    return Slopes(
        site.release_under(entry, lambda: Array.of(np.asarray(slope), "<f4")),
        site.release_under(entry, lambda: float(loss)),
    )


def end(request: End, site: Site[ColumnsPart]) -> Ended:
    """Keep the coder with its averaged weights."""
    work = _work(site)
    coder = work.coder
    if work.trained:
        state = _turned(site, work, request.step - 1, request.slope)
        coder = replace(coder, coder=replace(coder.coder, net=state.average))
    keep_home(site, kept_features(site), coder.to_bytes())
    return Ended(Public(request.step, "it was asked for"))


# A party's side: which function answers which request.
E2E_HANDLERS: Handlers = {
    BeginJoint: begin,
    Forward: forward,
    Backward: backward,
    End: end,
    Share: share,
}
