"""A party's side of VertiGAN: count columns, train a critic with noise, move the head.

Jiang, Zhang, Zhou & Grossklags 2023, PoPETs 2023(2), section 4.

**Guarantee**: see method.py. A party reads settings from its own study and computes the plan and
every sensitivity itself; counts and steps are paid for before they are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from siloweave.core.party import OwnerData
from siloweave.core.settings import part_of
from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation.expected import MOST_ROWS
from siloweave.federation.messages import Array, Public, Released
from siloweave.federation.site import Handlers, Site
from siloweave.methods.vertigan.messages import (
    BeginVertiGAN,
    Counted,
    CountOwnColumns,
    Moved,
    TrainCritics,
    VertiGANPlan,
    VertiGANReady,
    like_hidden,
)
from siloweave.models.settings import VertiGANSettings
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.events import Event, NonPrivate
from siloweave.privacy.shared_steps import quantised
from siloweave.protocols.columns import keep_decoder, release_rows
from siloweave.protocols.histograms import NoisyHistogram, release_counts
from siloweave.protocols.networks import jax_key
from siloweave.protocols.private_steps import MOST_NUMBERS, refuse_unpayable
from siloweave.tables.arrays import Matrix
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in

if TYPE_CHECKING:
    from siloweave.methods.vertigan.method import VertiGAN
    from siloweave.models.gan_networks import GANState, Heads

_BEGIN, _COUNTS, _KEY, _ENTRY = "begin", "counts", "key", "entry"  # what a party remembers


def plan_of(synth: VertiGAN, site: Site[OwnerData]) -> VertiGANPlan:
    """The plan that the study's public facts and this party's budget lead to."""
    limit = site.ledger.limit
    if limit is None or not limit.private:
        raise WireError(f"party {site.name!r} has no budget from which noise would follow")
    parts = {name: site.terms.facts["parts"][name] for name in site.terms.roster}
    return VertiGANPlan.of(synth, parts, limit)


def count(synth: VertiGAN, request: CountOwnColumns, site: Site[OwnerData]) -> Counted:
    """Pay for the number of rows, if this party is the first, then for all counts at once."""
    site.require_first()
    plan, table = plan_of(synth, site), site.rows.table
    *for_rows, for_counts = plan.before[site.name]
    paid, known = release_rows(site, table.num_rows, next(iter(for_rows), None))
    encoder = Encoder(site.rows.schema, synth.finest_bins)
    reply = Counted(paid, known, release_counts(site, encoder, table, for_counts))
    site.remember(_COUNTS, reply.counts.value.data)
    return reply


def begin(synth: VertiGAN, request: BeginVertiGAN, site: Site[OwnerData]) -> VertiGANReady:
    """Check what all parties are going to pay together, and remember what was asked."""
    rows: tuple[Released[int], ...] = ()
    if synth.private:
        _check_prices(synth, request, site)
        site.remember(_KEY, site.entropy.bytes(8))
    else:
        why = NonPrivate("VertiGAN's critic is trained without noise")
        rows = (site.release(why, "training without noise", lambda: site.rows.table.num_rows),)
        site.remember(_ENTRY, rows[0].entry.encode())
        site.remember(_KEY, b"")
    site.remember(_BEGIN, msgspec.msgpack.encode(request))
    return VertiGANReady(rows, Public(True, "says nothing"))


def _check_prices(synth: VertiGAN, request: BeginVertiGAN, site: Site[OwnerData]) -> None:
    """Refuse noise that is no event, or with which all parties go beyond this party's limit."""
    who, plan, limit = f"party {site.name!r}", plan_of(synth, site), site.ledger.limit
    if not (1 <= request.dimension <= MOST_NUMBERS and 1 <= request.rows <= MOST_ROWS):
        raise WireError(f"{who}: dimension={request.dimension} or rows={request.rows} cannot be")
    refuse_unpayable(
        who, clip=synth.clip, levels=request.levels, rate=plan.rate(request.rows),
        share_sigma=request.share_sigma,
    )  # fmt: skip
    paid = tuple(e.event for e in site.ledger.entries if e.run == site.run)
    if plan.before[site.name] != paid:
        raise WireError(f"{who} trains once, right after it has counted its columns")
    try:
        ledgers = plan.ledgers(request, synth.steps)
    except InputError as error:
        raise WireError(f"{who}: {error}") from error
    assert limit is not None  # or there were no plan
    total = epsilon(chain(*ledgers.values()), limit.delta)
    if total > limit.epsilon:
        raise BudgetError(
            f"{who}: all parties together would release epsilon = {total} at delta = {limit.delta} "
            f"about a row, more than the limit of {limit.epsilon}. Nothing was trained. Plan fewer "
            "steps or more noise."
        )


@dataclass(frozen=True)
class _PartyState:
    """What a party trains with; it can be made again from what is remembered."""

    synth: VertiGAN  # the study's settings
    settings: VertiGANSettings  # those of the networks
    begun: BeginVertiGAN  # what was asked
    rate: float  # probability of each row to be in a step
    event: Event | None  # what a round costs; None for training without noise
    features: Features  # rows to vectors and back
    heads: Heads  # what the columns are
    rows: Any  # (rows, width), real rows in inner order
    first: GANState  # the networks before the first round


def _state_of(synth: VertiGAN, site: Site[OwnerData]) -> _PartyState:
    """What `begin` was asked, ready to train."""
    asked, key = site.recall(_BEGIN), site.recall(_KEY)
    if asked is None or key is None:
        raise WireError(f"party {site.name!r}: a round was asked for before the beginning")
    if asked not in site.memo:
        begun = msgspec.msgpack.decode(asked, type=BeginVertiGAN)
        site.memo[asked] = _made(synth, site, begun, key)
    state: _PartyState = site.memo[asked]
    return state


def _made(synth: VertiGAN, site: Site[OwnerData], begun: BeginVertiGAN, kept: bytes) -> _PartyState:
    import jax.numpy as jnp

    from siloweave.models.vertigan import heads_of, own_start
    from siloweave.privacy.gradients import flat_size

    data, settings = site.rows, part_of(VertiGANSettings, synth)
    own, rate, event = fold_in(begun.seed, "party", site.name), 1.0, None
    if synth.private:
        plan = plan_of(synth, site)
        rate, event = plan.rate(begun.rows), plan.steps_event(begun, synth.critic_steps)
        counts = np.frombuffer(site.recall(_COUNTS) or b"", "<i8")
        encoder = Encoder(data.schema, synth.finest_bins)
        histogram = NoisyHistogram(encoder, counts, plan.counts_sigma, begun.rows, begun.seed)
        features = histogram.features("modes")
        shares = histogram.shares(features)
        X = features.encode(data.table, key=int.from_bytes(kept, "little"))
    else:
        features = Features.fit(data.table, data.schema, numeric="modes", key=fold_in(own, "fit"))
        X = features.encode(data.table, key=fold_in(own, "encode"))
        choices = [block for block in features.blocks if block.kind == "categorical"]
        shares = {b.start: X[:, b.start : b.stop].mean(0).tolist() for b in choices}
    heads = heads_of(features.blocks)
    first = own_start(settings, heads, shares, jax_key(fold_in(own, "weights")))
    if event and flat_size(first.critic) > begun.dimension:
        raise WireError(
            f"party {site.name!r}: its critic has {flat_size(first.critic):,} numbers, and "
            f"{begun.dimension:,} would be paid for"
        )
    rows = jnp.asarray(X[:, heads.order])
    return _PartyState(synth, settings, begun, rate, event, features, heads, rows, first)


def train(synth: VertiGAN, request: TrainCritics, site: Site[OwnerData]) -> Moved:
    """Pay for the critic's steps, take them, move the head, and answer."""
    state, number = _state_of(synth, site), request.number
    own = _before(state, site, number)
    hidden = like_hidden("the coordinator", "hidden", request.hidden, state.settings)
    draw = partial(_played, state, site, number, own, hidden)
    if state.event is None:
        return Moved(site.release_under((site.recall(_ENTRY) or b"").decode(), draw))
    what = f"round {number + 1} of {state.settings.rounds}: how hidden rows should move"
    return Moved(site.release(state.event, what, draw))


def _before(state: _PartyState, site: Site[OwnerData], number: int) -> GANState:
    """The networks before a round; the last two are kept, so that a round can be done again."""
    from siloweave.models.rounds import unpacked

    if number == 0 and site.recall("round/1") is None:
        return state.first
    kept = site.recall(f"round/{(number - 1) % 2}")
    own: GANState
    own, done = (state.first, -1) if kept is None else unpacked(kept, (state.first, np.array(0)))
    if int(done) != number - 1 or number >= state.settings.rounds:
        raise WireError(
            f"party {site.name!r}: round {number + 1} of {state.settings.rounds} was asked for, "
            f"and what it has is that of round {int(done) + 1}"
        )
    return own


def _played(
    state: _PartyState, site: Site[OwnerData], number: int, own: GANState, hidden: Matrix
) -> Array:
    """All critic steps, and the head's; where a bound is kept, nothing here raises for a row."""
    import jax.numpy as jnp

    from siloweave.models.rounds import packed
    from siloweave.models.vertigan import Head, play

    generated = jnp.asarray(hidden)
    if state.event:
        own, slope = _privately(state, site, own, generated)
    else:
        key = jax_key(fold_in(state.begun.seed, "party", site.name, "round", number))
        try:
            own, slope = play(state.settings, state.heads, own, generated, state.rows, key=key)
        except InputError as error:
            raise InputError(f"party {site.name!r}, round {number + 1}: {error}") from error
    site.remember(f"round/{number % 2}", packed((own, np.array(number))))
    if number == state.settings.rounds - 1:
        head = Head(state.settings, state.heads, own.average)
        keep_decoder(site, state.features, head)
    return Array.of(np.asarray(slope), "<f4")


def _privately(
    state: _PartyState, site: Site[OwnerData], own: GANState, hidden: Any
) -> tuple[GANState, Any]:
    """Critic steps along sums of clipped gradients, rounded to integers, with exact noise."""
    import jax

    from siloweave.models import vertigan as maths
    from siloweave.models.nets import Dense
    from siloweave.privacy import gradients

    begun, settings, heads, clip = state.begun, state.settings, state.heads, state.synth.clip
    unit = clip / begun.levels / (state.rate * begun.rows)
    key = jax.random.key(int.from_bytes(site.entropy.bytes(4), "little"))
    for step in range(settings.critic_steps):
        entropy = site.entropy.at(f"critic step {step}")
        loss = maths.beside(settings, heads, own, hidden, jax.random.fold_in(key, step))
        picked = gradients.drawn(len(state.rows), state.rate, entropy=entropy)
        total = gradients.summed(
            loss, own.critic, state.rows, picked, clip=clip, layer=Dense, entropy=entropy
        )
        whole = quantised(total, clip=clip, levels=begun.levels, parties=1)
        noisy = mechanisms.add_gaussian(whole, begun.share_sigma, entropy=entropy)
        slope = gradients.unflattened(noisy.astype(np.float64) * unit, own.critic)
        own = maths.judged(settings, own, slope)
    after = jax.random.fold_in(key, settings.critic_steps)
    return maths.answered(settings, heads, own, hidden, after)


def handlers(synth: VertiGAN) -> Handlers:
    """A party's side: which function answers which request."""
    training: Handlers = {BeginVertiGAN: partial(begin, synth), TrainCritics: partial(train, synth)}
    return {**training, **({CountOwnColumns: partial(count, synth)} if synth.private else {})}
