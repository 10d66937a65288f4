"""A party's side of SiloFuse and E2EDistr: code rows, send latents, keep the decoder.

Shankar et al. 2024, "SiloFuse" (ICDE), Algorithm 1 and section 5.1.

**Guarantee**: see method.py. A party reads every setting from its own study, computes sensitivities
itself, and pays for each release before it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from siloweave.core.party import OwnerData
from siloweave.errors import BudgetError, WireError
from siloweave.federation.expected import CheckedReply
from siloweave.federation.messages import Array, Public
from siloweave.federation.site import Handlers, Site
from siloweave.methods.silofuse.messages import (
    GRID,
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
    Slopes,
    declared_coder,
    radius,
    released_together,
)
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.events import Gaussian, NonPrivate
from siloweave.protocols.columns import (
    ShareColumns,
    condition_of,
    keep_decoder,
    require_replacing,
    share_columns,
)
from siloweave.protocols.networks import jax_key, recalled_step, remember_step
from siloweave.tables.arrays import Ints, Matrix
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in, generator

if TYPE_CHECKING:
    from siloweave.methods.silofuse.method import E2EDistr, SiloFuse
    from siloweave.models.coders import RowCoder
    from siloweave.models.latent import CoderSide
    from siloweave.models.train import State
    from siloweave.tables.features import Layout

_HALF = 60_000.0  # largest number that half precision is used for
_HUGE, _MOST = 1e9, 2**24  # beyond any latent; integers whose squares add up without overflow


def code(synth: SiloFuse, request: Code, site: Site[OwnerData]) -> Coded:
    """Fit a coder, keep it, and send latents."""
    from siloweave.models import coders
    from siloweave.tables.features import Layout

    data, key = site.rows, fold_in(request.seed, "train")
    site.require_first()
    features = Features.fit(
        data.table, data.schema, numeric=synth.numeric, key=fold_in(key, "features")
    )
    X = features.encode(data.table, key=fold_in(key, "encode"))
    settings, layout = synth.latent, Layout(features.blocks)
    coding = _coding(synth.target, settings, layout, request.seed, site)
    coder = coders.fit(X, layout, progress=data.progress, store=data.store, **coding)
    keep_decoder(site, features, coder)
    V = coder.encode(X)
    Z, label = V[:, : coder.latent], V[:, coder.latent :]
    event = NonPrivate("a code of every row is sent as it is, and may be inverted")
    kind: Any = "<f2" if synth.half and np.abs(Z).max(initial=0.0) < _HALF else "<f4"
    sent = site.release(event, "latents of all rows", lambda: Array.of(Z, kind))
    columns = site.release(event, "which column a latent stands for", lambda: coder.columns)
    codes = site.release(
        event,
        "how many options a latent's choice has",
        lambda: tuple((s.start, s.dimensions, s.options) for s in coder.sphere_codes),
    )
    if coder.label is None:
        return Coded(sent, columns, codes)
    event = NonPrivate("the classes of every row are told")
    classes = site.release(event, "classes of the target", lambda: class_codes(label))
    options = site.release(event, "number of classes", lambda: label.shape[1])
    return Coded(sent, columns, codes, (classes,), (options,))


def class_codes(V: Matrix) -> Array:
    """Classes of one-hot rows, in the smallest numbers that hold them."""
    return Array.of(V.argmax(1), "<u1" if V.shape[1] <= 256 else "<u4")


def _coding(
    target: str | None, settings: Any, layout: Layout, seed: int, site: Site[OwnerData]
) -> dict[str, Any]:
    """A party's own coder: its share of the widths, the target if it is its own, and a key."""
    names, roster = site.rows.schema.names, site.terms.roster
    told = condition_of(target, site.terms.facts["parts"])
    return {
        "settings": divided(settings.autoencoder, len(roster)),
        "label": layout.categorical_of(told) if told in names else None,
        "numbers": settings.numbers,
        "key": jax_key(fold_in(seed, "coder", *names)),
    }


def divided(settings: Any, parties: int) -> Any:
    """A party's share of the widths of an autoencoder."""
    if not hasattr(settings, "hidden"):
        return settings
    latent = None if settings.latent is None else max(1, settings.latent // parties)
    hidden = tuple(max(1, width // parties) for width in settings.hidden)
    return replace(settings, hidden=hidden, latent=latent)


def handlers(synth: SiloFuse) -> Handlers:
    """A party's side: which function answers which request, and nothing that its study excludes."""
    if synth.privacy == "latents":
        return {CodeNoised: partial(code_noised, synth)}
    return {Code: partial(code, synth), **({ShareColumns: share_columns} if synth.shared else {})}


# Latents with noise


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


def code_noised(synth: SiloFuse, request: CodeNoised, site: Site[OwnerData]) -> Noised:
    """Pay for all rows' latents, then draw their noise."""
    data, features = site.rows, Features.declared(site.rows.schema)
    coder = declared_coder(data.schema, synth)
    most = radius(coder, synth.clip)
    site.require_first()
    _check_together(synth, request, site)
    event = Gaussian(sigma=request.sigma, sensitivity=2.0 * most)
    Z = coder.encode(features.encode(data.table, key=0))  # declared features draw nothing
    K = bounded(Z, GRID, most)  # rows that do not fit are refused before they are paid for

    def draw() -> Array:
        noisy = mechanisms.add_gaussian(K.reshape(-1), request.sigma, entropy=site.entropy)
        return Array.of(noisy.reshape(K.shape), "<i4")

    keep_decoder(site, features, coder)
    return Noised(site.release(event, "latents of all rows, bounded and noised", draw))


def _check_together(synth: SiloFuse, request: CodeNoised, site: Site[OwnerData]) -> None:
    """Refuse noise with which all parties together would go beyond this party's limit."""
    if (limit := site.ledger.limit) is None:
        return
    require_replacing(limit, "every row sends a latent")
    together = released_together(request.sigma, site.terms.facts["parts"], synth)
    total = epsilon([together], limit.delta)
    if total > limit.epsilon:
        raise BudgetError(
            f"party {site.name!r}: all parties together would release epsilon = {total} at delta "
            f"= {limit.delta} about a row, more than the limit of {limit.epsilon}. Nothing was "
            "released. Ask for more noise."
        )


# E2EDistr


@lru_cache(maxsize=4)
def _order(epoch: int, rows: int, seed: int) -> Ints:
    return generator(fold_in(seed, "epoch", epoch)).permutation(rows)


def batch_of(step: int, rows: int, batch: int, seed: int) -> Ints:
    """Which rows are in a step: every epoch is a permutation that all parties know, cut evenly."""
    size = min(batch, rows)
    cuts = max(1, rows // size)
    order = _order(step // cuts, rows, seed)
    place = size * (step % cuts)
    return order[place : place + size]


def begin(synth: E2EDistr, request: BeginJoint, site: Site[OwnerData]) -> JointBegun:
    """Fit encoders, make a coder, and pay for all that will be sent at every step."""
    data = site.rows
    key = fold_in(request.seed, "train", "features")
    features = Features.fit(data.table, data.schema, key=key)
    event = NonPrivate("latents and gradients of every batch are sent as they are")
    entry = site.pay(event, "latents and gradients of every step")
    begun = _Begun(request.seed, entry, features.to_json())
    site.remember(_BEGUN, msgspec.json.encode(begun))
    state = _state_of(synth, site)
    _keep(site, state, 0, state.side.start(state.coder.coder.net))
    label, release = state.coder.label, partial(site.release_under, entry)
    V = state.V[:, label.start : label.stop] if label else state.V[:, :0]
    return JointBegun(
        release(lambda: data.table.num_rows),
        release(lambda: state.coder.latent if state.trained else 0),
        (release(lambda: class_codes(V)),) if label else (),
        (release(lambda: V.shape[1]),) if label else (),
    )


_BEGUN = "begun"  # what a party remembers


class _Begun(msgspec.Struct, frozen=True):
    """What was asked at the beginning, the entry that paid, and the encoders."""

    seed: int
    entry: str
    features: str


@dataclass(frozen=True)
class _PartyState:
    """A party's rows and coder in one run, made again from what it remembers."""

    begun: _Begun  # what was asked
    features: Features  # rows to vectors and back
    coder: RowCoder  # with its first weights
    rows: Any  # what is encoded, as the network reads it
    V: Matrix  # feature vectors
    side: CoderSide  # its side of a step
    steps: int  # of the training
    batch: int  # of the training
    states: dict[int, tuple[int, State]]  # the last two with their numbers of steps, as stored

    @property
    def trained(self) -> bool:
        """Whether there is anything to train: the target may be all that the party holds."""
        return bool(self.coder.coder.layout.blocks)

    def picked(self, step: int) -> Any:
        """Rows of a batch."""
        import jax

        at = batch_of(step, len(self.V), self.batch, self.begun.seed)
        return jax.tree.map(lambda x: x[at], self.rows)

    def like_latents(self, field: str, array: Array) -> Any:
        """Numbers of a batch's latents; raises WireError where they are of another shape."""
        import jax.numpy as jnp

        shape = (min(self.batch, len(self.V)), self.coder.latent)
        return jnp.asarray(CheckedReply("the coordinator").reals(field, array, shape), jnp.float32)


def _state_of(synth: E2EDistr, site: Site[OwnerData]) -> _PartyState:
    place = ("work", site.run)
    if isinstance(found := site.memo.get(place), _PartyState):
        return found
    import jax

    from siloweave.models.coders import RowCoder
    from siloweave.models.diffusion import rows_of
    from siloweave.models.latent import CoderSide
    from siloweave.tables.features import Layout

    kept = site.recall(_BEGUN)
    if kept is None:
        raise WireError(f"party {site.name!r}: a step was asked for before the beginning")
    begun = msgspec.json.decode(kept, type=_Begun)
    features, key = Features.from_json(begun.features), fold_in(begun.seed, "train", "encode")
    V, layout = features.encode(site.rows.table, key=key), Layout(features.blocks)
    coder = RowCoder.untrained(layout, **_coding(synth.target, synth, layout, begun.seed, site))
    made = _PartyState(
        begun, features, coder, jax.tree.map(np.asarray, rows_of(V, layout, coder.label)),
        V, CoderSide(synth.diffusion, coder.coder.layout.groups), synth.diffusion.steps,
        synth.diffusion.batch, {},
    )  # fmt: skip
    site.memo[place] = made
    return made


def _keep(site: Site[OwnerData], state: _PartyState, step: int, network: State) -> None:
    from siloweave.models.rounds import packed

    remember_step("state-", step, packed(network), site)
    state.states[step % 2] = (step, network)


def _network(site: Site[OwnerData], state: _PartyState, step: int) -> State:
    """The network after so many steps; raises WireError where the party is at another."""
    found = state.states.get(step % 2)
    if found is not None and found[0] == step:
        return found[1]
    from siloweave.models.rounds import unpacked

    kept = recalled_step("state-", step, site)
    if kept is None:
        raise WireError(
            f"party {site.name!r} has no state after step {step}: a stale or early message. Ask "
            "the steps in order, or start a new run."
        )
    network: State = unpacked(kept, state.side.start(state.coder.coder.net))
    return network


def forward(synth: E2EDistr, request: Forward, site: Site[OwnerData]) -> Activations:
    """Take the step before, and code a batch."""
    state = _state_of(synth, site)
    if request.step == 0:
        network = _network(site, state, 0)
    else:
        network = _turned(site, state, request.step - 1, request.slope)
        _keep(site, state, request.step, network)
    z = state.side.forward(network, state.picked(request.step))
    return Activations(
        site.release_under(state.begun.entry, lambda: Array.of(np.asarray(z), "<f4"))
    )


def _turned(site: Site[OwnerData], state: _PartyState, step: int, slope: Array | None) -> State:
    """The network after a step that was decoded."""
    kept = site.recall(f"back-{step % 2}")
    if kept is None or slope is None:
        raise WireError(f"party {site.name!r}: step {step} was not decoded; ask it in order")
    asked = msgspec.msgpack.decode(kept, type=Backward)
    if asked.step != step:
        raise WireError(f"party {site.name!r}: step {step} is stale; ask the steps in order")
    network, rows = _network(site, state, step), state.picked(step)
    back, along = state.like_latents("back", asked.back), state.like_latents("slope", slope)
    return state.side.turned(network, rows, back, along)


def backward(synth: E2EDistr, request: Backward, site: Site[OwnerData]) -> Slopes:
    """Decode, and answer with the loss and its slope."""
    state = _state_of(synth, site)
    if request.step >= state.steps:
        raise WireError(f"party {site.name!r}: the study has {state.steps:,} steps")
    network, rows = _network(site, state, request.step), state.picked(request.step)
    back = state.like_latents("back", request.back)
    site.remember(f"back-{request.step % 2}", msgspec.msgpack.encode(request))
    slope, loss = state.side.backward(network, rows, back)
    release = partial(site.release_under, state.begun.entry)
    return Slopes(release(lambda: Array.of(np.asarray(slope), "<f4")), release(lambda: float(loss)))


def end(synth: E2EDistr, request: End, site: Site[OwnerData]) -> Ended:
    """Keep the coder with its averaged weights."""
    state = _state_of(synth, site)
    coder = state.coder
    if state.trained:
        network = _turned(site, state, request.step - 1, request.slope)
        coder = replace(coder, coder=replace(coder.coder, net=network.average))
    keep_decoder(site, state.features, coder)
    return Ended(Public(request.step, "it was asked for"))


def step_handlers(synth: E2EDistr) -> Handlers:
    """A party's side of E2EDistr: which function answers which request."""
    steps: Mapping[Any, Any] = {
        BeginJoint: begin, Forward: forward, Backward: backward, End: end,
    }  # fmt: skip
    own = {kind: partial(answer, synth) for kind, answer in steps.items()}
    return {**own, **({ShareColumns: share_columns} if synth.shared else {})}
