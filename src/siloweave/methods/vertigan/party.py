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
from siloweave.methods.vertigan import messages
from siloweave.methods.vertigan.settings import VertiGANFitSettings
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
    from siloweave.models.gan_networks import GANState, Heads

# What a party remembers.
_BEGIN = "begin"
_COUNTS = "counts"
_KEY = "key"
_ENTRY = "entry"


def plan_of(synth: VertiGANFitSettings, site: Site[OwnerData]) -> messages.VertiGANPlan:
    """Compute the plan from the study's public facts and this party's budget."""
    limit = site.ledger.limit
    if limit is None or not limit.private:
        raise WireError(
            f"party {site.name!r} has no budget from which noise would follow"
        )
    parts = {name: site.terms.facts["parts"][name] for name in site.terms.roster}
    return messages.VertiGANPlan.of(synth, parts, limit)


def count(
    synth: VertiGANFitSettings, request: messages.CountOwnColumns, site: Site[OwnerData]
) -> messages.Counted:
    """Pay for the number of rows, if this party is the first, then for all counts at once."""
    site.require_first()
    plan = plan_of(synth, site)
    table = site.rows.table
    # The event of the counts is the last; the first party may have one of its rows before.
    *rows_events, counts_event = plan.before[site.name]
    rows_event = next(iter(rows_events), None)
    paid_rows, public_rows = release_rows(site, table.num_rows, rows_event)
    encoder = Encoder(site.rows.schema, synth.finest_bins)
    counts = release_counts(site, encoder, table, counts_event)
    site.remember(_COUNTS, counts.value.data)
    return messages.Counted(paid_rows, public_rows, counts)


def begin(
    synth: VertiGANFitSettings, request: messages.BeginVertiGAN, site: Site[OwnerData]
) -> messages.VertiGANReady:
    """Check what all parties will pay together, and store the request."""
    rows: tuple[Released[int], ...] = ()
    if synth.private:
        _check_prices(synth, request, site)
        # The secret by which rows are encoded: where in its bin a value lies.
        site.remember(_KEY, site.entropy.bytes(8))
    else:
        event = NonPrivate("VertiGAN's critic is trained without noise")
        size = site.release(
            event, "training without noise", lambda: site.rows.table.num_rows
        )
        rows = (size,)
        # One entry, of infinite cost, covers all rounds.
        site.remember(_ENTRY, size.entry.encode())
        site.remember(_KEY, b"")
    site.remember(_BEGIN, msgspec.msgpack.encode(request))
    return messages.VertiGANReady(rows, Public(True, "says nothing"))


def _check_prices(
    synth: VertiGANFitSettings, request: messages.BeginVertiGAN, site: Site[OwnerData]
) -> None:
    """Refuse noise that no event has, or with which all parties pass this party's limit."""
    who = f"party {site.name!r}"
    plan = plan_of(synth, site)
    limit = site.ledger.limit
    if not (1 <= request.dimension <= MOST_NUMBERS and 1 <= request.rows <= MOST_ROWS):
        raise WireError(
            f"{who}: dimension={request.dimension} or rows={request.rows} cannot be"
        )
    refuse_unpayable(
        who, clip=synth.clip, levels=request.levels, rate=plan.rate(request.rows),
        share_sigma=request.share_sigma,
    )  # fmt: skip
    # The plan reckons with these events, and with none besides.
    paid_events = tuple(e.event for e in site.ledger.entries if e.run == site.run)
    if plan.before[site.name] != paid_events:
        raise WireError(f"{who} trains once, right after it has counted its columns")
    try:
        ledgers = plan.ledgers(request, synth.steps)
    except InputError as error:
        raise WireError(f"{who}: {error}") from error
    # A row lies at all parties, so all ledgers together are what it pays.
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
    """A party's rows and networks, which are made again from what it remembers."""

    synth: VertiGANFitSettings  # the study's settings
    settings: VertiGANSettings  # those of the networks
    begun: messages.BeginVertiGAN  # what was asked
    rate: float  # probability of each row to be in a step
    event: Event | None  # what a round costs; None for training without noise
    features: Features  # rows to vectors and back
    heads: Heads  # what the columns are
    rows: Any  # (rows, width), real rows in inner order
    first: GANState  # the networks before the first round


def _state_of(synth: VertiGANFitSettings, site: Site[OwnerData]) -> _PartyState:
    """Return the party's rows and networks, made once a process."""
    stored = site.recall(_BEGIN)
    key = site.recall(_KEY)
    if stored is None or key is None:
        raise WireError(
            f"party {site.name!r}: a round was asked for before the beginning"
        )
    if stored not in site.memo:
        begun = msgspec.msgpack.decode(stored, type=messages.BeginVertiGAN)
        site.memo[stored] = _new_state(synth, site, begun, key)
    state: _PartyState = site.memo[stored]
    return state


def _new_state(
    synth: VertiGANFitSettings,
    site: Site[OwnerData],
    begun: messages.BeginVertiGAN,
    encoding_key: bytes,
) -> _PartyState:
    """Encode the party's rows, and make its first networks.

    Raises:
        WireError: Naming the party; its critic has more numbers than a step pays for.
    """
    import jax.numpy as jnp

    from siloweave.models.vertigan import heads_of, own_start
    from siloweave.privacy.gradients import flat_size

    data = site.rows
    settings = part_of(VertiGANSettings, synth)
    seed = fold_in(begun.seed, "party", site.name)
    rate = 1.0
    event: Event | None = None
    if synth.private:
        # Encoders follow from the noisy counts alone, which are paid for.
        plan = plan_of(synth, site)
        rate = plan.rate(begun.rows)
        event = plan.steps_event(begun, synth.critic_steps)
        counts = np.frombuffer(site.recall(_COUNTS) or b"", "<i8")
        encoder = Encoder(data.schema, synth.finest_bins)
        histogram = NoisyHistogram(
            encoder, counts, plan.counts_sigma, begun.rows, begun.seed
        )
        features = histogram.features("modes")
        shares = histogram.shares(features)
        key = int.from_bytes(encoding_key, "little")
        # Not bounded: whether a table is refused would tell how many rows it has.
        X = features.encode(data.table, key=key, bounded=False)
    else:
        features = Features.fit(
            data.table, data.schema, numeric="modes", key=fold_in(seed, "fit")
        )
        X = features.encode(data.table, key=fold_in(seed, "encode"))
        choices = [block for block in features.blocks if block.kind == "categorical"]
        shares = {b.start: X[:, b.start : b.stop].mean(0).tolist() for b in choices}

    heads = heads_of(features.blocks)
    first = own_start(settings, heads, shares, jax_key(fold_in(seed, "weights")))
    # Noise is planned for so many numbers: rounding adds to the sensitivity with each.
    if event and flat_size(first.critic) > begun.dimension:
        raise WireError(
            f"party {site.name!r}: its critic has {flat_size(first.critic):,} numbers, and "
            f"{begun.dimension:,} would be paid for"
        )
    rows = jnp.asarray(X[:, heads.order])
    return _PartyState(
        synth, settings, begun, rate, event, features, heads, rows, first
    )


def train(
    synth: VertiGANFitSettings, request: messages.TrainCritics, site: Site[OwnerData]
) -> messages.Moved:
    """Pay for the critic's steps, take them, move the head, and send the slope."""
    state = _state_of(synth, site)
    number = request.number
    networks = _before(state, site, number)
    hidden = messages.like_hidden(
        "the coordinator", "hidden", request.hidden, state.settings
    )
    play = partial(_played, state, site, number, networks, hidden)
    if state.event is None:
        entry = site.recall(_ENTRY) or b""
        return messages.Moved(site.release_under(entry.decode(), play))
    title = (
        f"round {number + 1} of {state.settings.rounds}: how hidden rows should move"
    )
    return messages.Moved(site.release(state.event, title, play))


def _before(state: _PartyState, site: Site[OwnerData], number: int) -> GANState:
    """Return the networks as they are before a round.

    The last two are stored, so that a round can be done again.

    Raises:
        WireError: Naming the party; its last round is another one.
    """
    from siloweave.models.rounds import unpacked

    if number == 0 and site.recall("round/1") is None:
        return state.first
    stored = site.recall(f"round/{(number - 1) % 2}")
    networks = state.first
    last_round = -1
    if stored is not None:
        networks, stored_round = unpacked(stored, (state.first, np.array(0)))
        last_round = int(stored_round)
    if last_round != number - 1 or number >= state.settings.rounds:
        raise WireError(
            f"party {site.name!r}: round {number + 1} of {state.settings.rounds} was asked for, "
            f"and what it has is that of round {last_round + 1}"
        )
    return networks


def _played(
    state: _PartyState,
    site: Site[OwnerData],
    number: int,
    networks: GANState,
    hidden: Matrix,
) -> Array:
    """Take all steps of the critic, and one of the head; return the slope at the hidden rows.

    Where a bound is kept, nothing here raises for a row.
    """
    import jax.numpy as jnp

    from siloweave.models.rounds import packed
    from siloweave.models.vertigan import Head, play

    generated = jnp.asarray(hidden)
    if state.event:
        after, slope = _privately(state, site, networks, generated)
    else:
        key = jax_key(fold_in(state.begun.seed, "party", site.name, "round", number))
        try:
            after, slope = play(
                state.settings, state.heads, networks, generated, state.rows, key=key
            )
        except InputError as error:
            raise InputError(
                f"party {site.name!r}, round {number + 1}: {error}"
            ) from error
    site.remember(f"round/{number % 2}", packed((after, np.array(number))))
    if number == state.settings.rounds - 1:
        head = Head(state.settings, state.heads, after.average)
        keep_decoder(site, state.features, head)
    return Array.of(np.asarray(slope), "<f4")


def _privately(
    state: _PartyState, site: Site[OwnerData], networks: GANState, hidden: Any
) -> tuple[GANState, Any]:
    """Take critic steps along sums of clipped gradients, rounded to integers, with exact noise."""
    import jax

    from siloweave.models import vertigan as maths
    from siloweave.models.nets import Dense
    from siloweave.privacy import gradients

    begun = state.begun
    settings = state.settings
    heads = state.heads
    clip = state.synth.clip
    # From an integer of the sum to a clipped gradient, and by the expected batch to the mean.
    unit = clip / begun.levels / (state.rate * begun.rows)
    # Of what a step draws besides its batch and its noise, such as the generated rows.
    key = jax.random.key(int.from_bytes(site.entropy.bytes(4), "little"))
    for step in range(settings.critic_steps):
        entropy = site.entropy.at(f"critic step {step}")
        loss = maths.beside(
            settings, heads, networks, hidden, jax.random.fold_in(key, step)
        )
        batch = gradients.drawn(len(state.rows), state.rate, entropy=entropy)
        # The penalty is per row, inside its loss: a batch's mean would move with every row.
        gradient_sum = gradients.summed(
            loss,
            networks.critic,
            state.rows,
            batch,
            clip=clip,
            layer=Dense,
            entropy=entropy,
        )
        integers = quantised(gradient_sum, clip=clip, levels=begun.levels, parties=1)
        noisy_sum = mechanisms.add_gaussian(
            integers, begun.share_sigma, entropy=entropy
        )
        slope = gradients.unflattened(
            noisy_sum.astype(np.float64) * unit, networks.critic
        )
        networks = maths.judged(settings, networks, slope)

    # The critic is noised by now, so what the head and the trunk learn from it costs nothing.
    head_key = jax.random.fold_in(key, settings.critic_steps)
    return maths.answered(settings, heads, networks, hidden, head_key)


def handlers(synth: VertiGANFitSettings) -> Handlers:
    """Return the functions that answer requests, by request; counts are for noise alone."""
    answers: dict[Any, Any] = {
        messages.BeginVertiGAN: partial(begin, synth),
        messages.TrainCritics: partial(train, synth),
    }
    if synth.private:
        answers[messages.CountOwnColumns] = partial(count, synth)
    return answers
