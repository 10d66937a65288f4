"""E2EDistr: encoders, denoiser and decoders trained as one, parties holding different columns.

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

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.algorithms.columns_split import ColumnsPart, keep_home, kept_features
from siloweave.algorithms.generated import Matrix
from siloweave.algorithms.networks import jax_key
from siloweave.algorithms.sent_latents import told_classes
from siloweave.algorithms.silofuse import Share, divided, one_way_of, share
from siloweave.errors import WireError
from siloweave.federation.expected import CheckedReply
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.events import NonPrivate
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in, generator

if TYPE_CHECKING:
    from siloweave.models.coders import RowCoder
    from siloweave.models.descent import State
    from siloweave.models.latent import CoderSide
    from siloweave.models.settings import LatentSettings

_T = TypeVar("_T")

__all__ = ["PARTY", "Backward", "BeginJoint", "End", "Forward", "JointBegun", "batch_of"]


# Messages


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


# Party: a state after k steps is kept under k modulo 2, so a message can be answered again


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
    coder = coders.RowCoder.untrained(
        layout,
        divided(settings.autoencoder, request.parties),
        label=None if mine is None else layout.categorical_of(mine),
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
PARTY: Handlers = {BeginJoint: begin, Forward: forward, Backward: backward, End: end, Share: share}
