"""A party's side of SiloFuse and E2EDistr: code rows, send latents, keep the decoder.

Shankar et al. 2024, "SiloFuse" (ICDE), Algorithm 1 and section 5.1.

**Guarantee**: see method.py. A party reads every setting from its own study, computes sensitivities
itself, and pays for each release before it is drawn.
"""

from __future__ import annotations

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
from siloweave.methods.silofuse import messages
from siloweave.methods.silofuse.settings import E2EDistrSettings, SiloFuseSettings
from siloweave.models.settings import (
    AutoencoderSettings,
    LatentSettings,
    SphereCodeSettings,
)
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.events import Gaussian, NonPrivate
from siloweave.protocols import columns, networks
from siloweave.tables.arrays import Ints, Matrix
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in, generator

if TYPE_CHECKING:
    from siloweave.models.coders import RowCoder
    from siloweave.models.latent import CoderSide
    from siloweave.models.train import State
    from siloweave.tables.features import Layout

# Largest number that half precision is used for: beyond 65,504 it has none.
_HALF = 60_000.0
_HUGE = 1e9  # beyond any latent
_MOST = 2**24  # integers whose squares add up without overflow


def code(
    synth: SiloFuseSettings, request: messages.Code, site: Site[OwnerData]
) -> messages.Coded:
    """Fit a coder, store it here, and send latents (a client's part of Algorithm 1)."""
    from siloweave.models import coders
    from siloweave.tables.features import Layout

    data = site.rows
    key = fold_in(request.seed, "train")
    site.require_first()

    # Step 1: train the autoencoder on the party's own columns alone.
    features_key = fold_in(key, "features")
    features = Features.fit(
        data.table, data.schema, numeric=synth.numeric, key=features_key
    )
    X = features.encode(data.table, key=fold_in(key, "encode"))
    layout = Layout(features.blocks)
    coding = _coding(synth.target, synth.latent, layout, request.seed, site)
    coder = coders.fit(
        X, layout, progress=site.progress, store=site.checkpoints, **coding
    )
    # The decoder stays here, and is stored before anything is sent: without it the latents that
    # come back cannot be decoded.
    columns.keep_decoder(site, features, coder)

    # Step 2: send the latents of all rows, once.
    V = coder.encode(X)
    Z = V[:, : coder.latent]
    one_hots = V[:, coder.latent :]
    event = NonPrivate("a code of every row is sent as it is, and may be inverted")
    is_half = synth.half and np.abs(Z).max(initial=0.0) < _HALF
    kind: Any = "<f2" if is_half else "<f4"
    latents = site.release(event, "latents of all rows", lambda: Array.of(Z, kind))
    latent_columns = site.release(
        event, "which column a latent stands for", lambda: coder.columns
    )
    codes = site.release(
        event,
        "how many options a latent's choice has",
        lambda: tuple((s.start, s.dimensions, s.options) for s in coder.sphere_codes),
    )
    if coder.label is None:
        return messages.Coded(latents, latent_columns, codes)

    # The diffusion is conditioned on the target, so its classes travel beside the latents.
    event = NonPrivate("the classes of every row are told")
    classes = site.release(
        event, "classes of the target", lambda: class_codes(one_hots)
    )
    options = site.release(event, "number of classes", lambda: one_hots.shape[1])
    return messages.Coded(latents, latent_columns, codes, (classes,), (options,))


def class_codes(V: Matrix) -> Array:
    """Return the classes of one-hot rows, in the smallest integer type that holds them."""
    kind: Any = "<u1" if V.shape[1] <= 256 else "<u4"
    return Array.of(V.argmax(1), kind)


def _coding(
    target: str | None,
    settings: LatentSettings,
    layout: Layout,
    seed: int,
    site: Site[OwnerData],
) -> dict[str, Any]:
    """Return the settings to which a party's own coder is fitted.

    These are its share of the widths, the target if it is its own, and a key of its columns.
    """
    names = site.rows.schema.names
    condition = columns.condition_of(target, site.terms.facts["parts"])
    label = layout.categorical_of(condition) if condition in names else None
    return {
        "settings": divided(settings.autoencoder, len(site.terms.roster)),
        "label": label,
        "numbers": settings.numbers,
        "key": networks.jax_key(fold_in(seed, "coder", *names)),
    }


def divided(
    settings: AutoencoderSettings | SphereCodeSettings, parties: int
) -> AutoencoderSettings | SphereCodeSettings:
    """Return a party's share of an autoencoder's widths (section 5.1: divided equally)."""
    # Sphere codes have no widths.
    if isinstance(settings, SphereCodeSettings):
        return settings
    latent = None if settings.latent is None else max(1, settings.latent // parties)
    hidden = tuple(max(1, width // parties) for width in settings.hidden)
    return replace(settings, hidden=hidden, latent=latent)


def handlers(synth: SiloFuseSettings) -> Handlers:
    """Return the functions that answer requests, by request; none for what the study excludes."""
    if synth.privacy == "latents":
        return {messages.CodeNoised: partial(code_noised, synth)}
    answers: dict[Any, Any] = {messages.Code: partial(code, synth)}
    if synth.shared:
        answers[columns.ShareColumns] = columns.share_columns
    return answers


# Latents with noise


def bounded(Z: Matrix, grid: float, most: int) -> Ints:
    """Round latent rows to integers whose norm is at most `most`.

    **Guarantee**: exact: every row of the result has an L2 norm of at most `most`, whatever Z
    holds, and depends on its own row of Z alone.
    """
    Z = np.nan_to_num(Z.astype(np.float64), nan=0.0, posinf=_HUGE, neginf=-_HUGE)
    K: Ints = np.rint(np.clip(Z, -_HUGE, _HUGE) / grid).astype(np.int64)
    K = np.clip(K, -_MOST, _MOST)
    # The first may round up by a hair, the last cannot.
    for shrink in (1.0, 1.0 - 1e-9, 0.5):
        # Row by row: no row moves because another does.
        is_long = (K * K).sum(1) > most * most
        norms = np.sqrt((K[is_long].astype(np.float64) ** 2).sum(1, keepdims=True))
        K[is_long] = np.trunc(K[is_long] * (shrink * most / norms)).astype(np.int64)
    # In integers, and so exact: what is paid for rests on it.
    assert ((K * K).sum(1) <= most * most).all()
    return K


def code_noised(
    synth: SiloFuseSettings, request: messages.CodeNoised, site: Site[OwnerData]
) -> messages.Noised:
    """Pay for all rows' latents, then draw their noise and send them."""
    data = site.rows
    features = Features.declared(data.schema)
    coder = messages.declared_coder(data.schema, synth)
    most = messages.radius(coder, synth.clip)
    site.require_first()
    _check_together(synth, request, site)

    # A row that is replaced moves from one side of the ball to the other, at most.
    event = Gaussian(sigma=request.sigma, sensitivity=2.0 * most)
    # Declared features draw nothing.
    Z = coder.encode(features.encode(data.table, key=0))
    # Rows that do not fit are refused before they are paid for.
    K = bounded(Z, messages.GRID, most)

    def draw() -> Array:
        noisy = mechanisms.add_gaussian(
            K.reshape(-1), request.sigma, entropy=site.entropy
        )
        return Array.of(noisy.reshape(K.shape), "<i4")

    columns.keep_decoder(site, features, coder)
    return messages.Noised(
        site.release(event, "latents of all rows, bounded and noised", draw)
    )


def _check_together(
    synth: SiloFuseSettings, request: messages.CodeNoised, site: Site[OwnerData]
) -> None:
    """Refuse noise with which all parties together would pass this party's limit."""
    limit = site.ledger.limit
    if limit is None:
        return
    columns.require_replacing(limit, "every row sends a latent")
    together = messages.released_together(
        request.sigma, site.terms.facts["parts"], synth
    )
    total = epsilon([together], limit.delta)
    if total > limit.epsilon:
        raise BudgetError(
            f"party {site.name!r}: all parties together would release epsilon = {total} at delta "
            f"= {limit.delta} about a row, more than the limit of {limit.epsilon}. Nothing was "
            "released. Ask for more noise."
        )


# E2EDistr


# Forward and backward of all parties of a process read the same permutation in turn.
@lru_cache(maxsize=4)
def _order(epoch: int, rows: int, seed: int) -> Ints:
    """Draw the order of the rows in one epoch."""
    return generator(fold_in(seed, "epoch", epoch)).permutation(rows)


def batch_of(step: int, rows: int, batch: int, seed: int) -> Ints:
    """Return the places of the rows in one step.

    Every epoch is a permutation that all parties know, cut evenly; a rest of rows is left out.
    """
    size = min(batch, rows)
    batches = max(1, rows // size)
    order = _order(step // batches, rows, seed)
    start = size * (step % batches)
    return order[start : start + size]


def begin(
    synth: E2EDistrSettings, request: messages.BeginJoint, site: Site[OwnerData]
) -> messages.JointBegun:
    """Fit encoders, make a coder, and pay for all that every step will send."""
    data = site.rows
    key = fold_in(request.seed, "train", "features")
    features = Features.fit(data.table, data.schema, key=key)
    event = NonPrivate("latents and gradients of every batch are sent as they are")
    entry = site.pay(event, "latents and gradients of every step")
    begun = _Begun(request.seed, entry, features.to_json())
    site.remember(_BEGUN, msgspec.json.encode(begun))
    state = _state_of(synth, site)
    _keep(site, state, 0, state.side.start(state.coder.coder.net))

    release = partial(site.release_under, entry)
    latents = state.coder.latent if state.trained else 0
    released_rows = release(lambda: data.table.num_rows)
    released_latents = release(lambda: latents)
    label = state.coder.label
    if label is None:
        return messages.JointBegun(released_rows, released_latents)

    one_hots = state.V[:, label.start : label.stop]
    classes = release(lambda: class_codes(one_hots))
    options = release(lambda: one_hots.shape[1])
    return messages.JointBegun(released_rows, released_latents, (classes,), (options,))


_BEGUN = "begun"  # what a party remembers


class _Begun(msgspec.Struct, frozen=True):
    """The request that began the run, the entry that paid, and the encoders."""

    seed: int
    entry: str
    features: str


@dataclass(frozen=True)
class _PartyState:
    """A party's rows and coder in one run, which are made again from what it remembers."""

    begun: _Begun  # what was asked
    features: Features  # rows to vectors and back
    coder: RowCoder  # with its first weights
    rows: Any  # what is encoded, as the network reads it
    V: Matrix  # feature vectors
    side: CoderSide  # its side of a step
    steps: int  # of the training
    batch: int  # of the training
    # The last two with their numbers of steps, as stored.
    states: dict[int, tuple[int, State]]

    @property
    def trained(self) -> bool:
        """Whether there is anything to train: the party may hold the target alone."""
        return bool(self.coder.coder.layout.blocks)

    def batch_rows(self, step: int) -> Any:
        """Return the rows of a step's batch as the network reads them."""
        import jax

        places = batch_of(step, len(self.V), self.batch, self.begun.seed)
        return jax.tree.map(lambda x: x[places], self.rows)

    def like_latents(self, field: str, array: Array) -> Any:
        """Check numbers that belong to a batch's latents; raises WireError for another shape."""
        import jax.numpy as jnp

        shape = (min(self.batch, len(self.V)), self.coder.latent)
        numbers = CheckedReply("the coordinator").reals(field, array, shape)
        return jnp.asarray(numbers, jnp.float32)


def _state_of(synth: E2EDistrSettings, site: Site[OwnerData]) -> _PartyState:
    """Return the party's state in this run, made once a process."""
    memo_key = ("work", site.run)
    state = site.memo.get(memo_key)
    if not isinstance(state, _PartyState):
        state = _new_state(synth, site)
        site.memo[memo_key] = state
    return state


def _new_state(synth: E2EDistrSettings, site: Site[OwnerData]) -> _PartyState:
    """Make the state of a party again, from what it remembers of the beginning.

    Raises:
        WireError: Naming the party; the run has not begun.
    """
    import jax

    from siloweave.models.coders import RowCoder
    from siloweave.models.diffusion import rows_of
    from siloweave.models.latent import CoderSide
    from siloweave.tables.features import Layout

    stored = site.recall(_BEGUN)
    if stored is None:
        raise WireError(
            f"party {site.name!r}: a step was asked for before the beginning"
        )
    begun = msgspec.json.decode(stored, type=_Begun)
    features = Features.from_json(begun.features)
    key = fold_in(begun.seed, "train", "encode")
    V = features.encode(site.rows.table, key=key)
    layout = Layout(features.blocks)
    coder = RowCoder.untrained(
        layout, **_coding(synth.target, synth, layout, begun.seed, site)
    )
    return _PartyState(
        begun=begun,
        features=features,
        coder=coder,
        rows=jax.tree.map(np.asarray, rows_of(V, layout, coder.label)),
        V=V,
        side=CoderSide(synth.diffusion, coder.coder.layout.groups),
        steps=synth.diffusion.steps,
        batch=synth.diffusion.batch,
        states={},
    )


def _keep(site: Site[OwnerData], state: _PartyState, step: int, network: State) -> None:
    """Store the network after so many steps, in place of the last but one."""
    from siloweave.models.rounds import packed

    networks.remember_step("state-", step, packed(network), site)
    state.states[step % 2] = (step, network)


def _network(site: Site[OwnerData], state: _PartyState, step: int) -> State:
    """Return the network after so many steps; WireError if the party is at another step."""
    from siloweave.models.rounds import unpacked

    if step % 2 in state.states:
        memo_step, memo_network = state.states[step % 2]
        if memo_step == step:
            return memo_network

    stored = networks.recalled_step("state-", step, site)
    if stored is None:
        raise WireError(
            f"party {site.name!r} has no state after step {step}: a stale or early message. Ask "
            "the steps in order, or start a new run."
        )
    network: State = unpacked(stored, state.side.start(state.coder.coder.net))
    return network


def forward(
    synth: E2EDistrSettings, request: messages.Forward, site: Site[OwnerData]
) -> messages.Activations:
    """Take the step before, and send the latents of a batch."""
    state = _state_of(synth, site)
    if request.step == 0:
        network = _network(site, state, 0)
    else:
        network = _turned(site, state, request.step - 1, request.slope)
        _keep(site, state, request.step, network)
    z = state.side.forward(network, state.batch_rows(request.step))
    latents = site.release_under(
        state.begun.entry, lambda: Array.of(np.asarray(z), "<f4")
    )
    return messages.Activations(latents)


def _turned(
    site: Site[OwnerData], state: _PartyState, step: int, slope: Array | None
) -> State:
    """Return the network after a step whose latents were decoded.

    `slope` is the coordinator's: how the loss changes with the latents that this party sent.

    Raises:
        WireError: Naming the party; it decoded another step, or none.
    """
    stored = site.recall(f"back-{step % 2}")
    if stored is None or slope is None:
        raise WireError(
            f"party {site.name!r}: step {step} was not decoded; ask it in order"
        )
    decoded = msgspec.msgpack.decode(stored, type=messages.Backward)
    if decoded.step != step:
        raise WireError(
            f"party {site.name!r}: step {step} is stale; ask the steps in order"
        )
    network = _network(site, state, step)
    rows = state.batch_rows(step)
    denoised = state.like_latents("back", decoded.back)
    latent_slope = state.like_latents("slope", slope)
    return state.side.turned(network, rows, denoised, latent_slope)


def backward(
    synth: E2EDistrSettings, request: messages.Backward, site: Site[OwnerData]
) -> messages.Slopes:
    """Decode denoised latents, and send the loss and its slope."""
    state = _state_of(synth, site)
    if request.step >= state.steps:
        raise WireError(f"party {site.name!r}: the study has {state.steps:,} steps")
    network = _network(site, state, request.step)
    rows = state.batch_rows(request.step)
    denoised = state.like_latents("back", request.back)
    # The step is taken at the next question, which brings the slope at the encoder.
    site.remember(f"back-{request.step % 2}", msgspec.msgpack.encode(request))
    slope, loss = state.side.backward(network, rows, denoised)

    release = partial(site.release_under, state.begun.entry)
    released_slope = release(lambda: Array.of(np.asarray(slope), "<f4"))
    released_loss = release(lambda: float(loss))
    return messages.Slopes(released_slope, released_loss)


def end(
    synth: E2EDistrSettings, request: messages.End, site: Site[OwnerData]
) -> messages.Ended:
    """Store the coder with its averaged weights."""
    state = _state_of(synth, site)
    coder = state.coder
    if state.trained:
        network = _turned(site, state, request.step - 1, request.slope)
        coder = replace(coder, coder=replace(coder.coder, net=network.average))
    columns.keep_decoder(site, state.features, coder)
    return messages.Ended(Public(request.step, "it was asked for"))


def step_handlers(synth: E2EDistrSettings) -> Handlers:
    """Return the functions that answer requests of E2EDistr, by request."""
    answers: dict[Any, Any] = {
        messages.BeginJoint: partial(begin, synth),
        messages.Forward: partial(forward, synth),
        messages.Backward: partial(backward, synth),
        messages.End: partial(end, synth),
    }
    if synth.shared:
        answers[columns.ShareColumns] = columns.share_columns
    return answers
