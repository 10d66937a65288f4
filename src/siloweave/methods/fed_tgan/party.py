"""A party's side of Fed-TGAN and MD-TGAN: summarise, encode, train, or judge generated rows.

Zhao et al. 2021 and Hardy et al. 2019, see method.py.

**Guarantee**: none. The first release of a run enters an event of infinite cost in the party's
ledger, before anything is sent, and covers all others. Networks, seeds and numbers that a
coordinator sends are checked; how they are trained is said by the party's own study alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from siloweave.core.party import OwnerData
from siloweave.errors import WireError, naming_party
from siloweave.federation import expected
from siloweave.federation.messages import Array, Public, Released
from siloweave.federation.site import Handlers, Site
from siloweave.methods.fed_tgan import messages
from siloweave.methods.fed_tgan.settings import CriticsSynthesizer, RoundsSynthesizer
from siloweave.privacy.events import NonPrivate
from siloweave.protocols import networks
from siloweave.tables.features import Block, Features
from siloweave.tables.keys import fold_in
from siloweave.tables.summaries import summarise

if TYPE_CHECKING:
    from siloweave.models import gan, rounds

_T = TypeVar("_T")


@dataclass(frozen=True)
class RoundTrainer:
    """The way to train one kind of network in rounds."""

    # Of so many parties; loads networks.
    learner: Callable[[Any, tuple[Block, ...], int], rounds.Learner]
    model: Any  # of the trained network
    numeric: Any = "quantile"  # what a number becomes, see `Features.fit`


@dataclass
class RoundState:
    """The party's encoded rows and training, computed again after a restart."""

    learner: rounds.Learner  # what trains
    vectors: Any  # the party's rows, encoded
    place: int  # of the party, in the roster
    keys: rounds.Keys  # of the whole training
    rows: Any = None  # as steps read them, once they were needed
    started: Any = None  # the state before the first step, once it was needed


def keys_of(learner: rounds.Learner, seed: int) -> rounds.Keys:
    """Return the keys that a central fit with this seed has."""
    return learner.keys(networks.jax_key(fold_in(fold_in(seed, "train"), "model")))


def _unpaid(
    synth: RoundsSynthesizer, site: Site[OwnerData], draw: Callable[[], _T]
) -> Released[_T]:
    """Release a value under the run's one ledger entry, which has infinite cost."""
    entry = site.recall("unpaid")
    title = synth.method.title
    if entry is None:
        event = NonPrivate(f"{title} adds no noise to anything")
        entry = site.pay(event, f"all messages of {title}").encode()
        site.remember("unpaid", entry)
    return site.release_under(entry.decode(), draw)


# Agreeing on encoders


def describe(
    synth: RoundsSynthesizer,
    trainer: RoundTrainer,
    request: messages.Describe,
    site: Site[OwnerData],
) -> messages.Described:
    """Summarise every column (Fed-TGAN, step 1: frequencies and mixtures of each column)."""
    table = site.rows.table
    schema = site.rows.schema
    rows = _unpaid(synth, site, lambda: table.num_rows)

    def summary() -> bytes:
        return msgspec.json.encode(summarise(table, schema, numeric=trainer.numeric))

    return messages.Described(rows, _unpaid(synth, site, summary))


def prepare(
    synth: RoundsSynthesizer,
    trainer: RoundTrainer,
    request: messages.Prepare,
    site: Site[OwnerData],
) -> messages.Ready:
    """Store how rows are encoded, and send the sums of the encoded vectors.

    Raises:
        WireError: Naming the party; the features are of other facts than its schema's, or so wide
            that encoded rows would fill its memory.
    """
    from siloweave.models import rounds

    with naming_party(site.name):
        features = Features.from_json(request.features)
    if not features.cover(site.rows.schema) or features.width > expected.WIDEST:
        raise WireError(
            f"party {site.name!r} was asked to encode by other facts than its schema's, or in "
            f"vectors of more than {expected.WIDEST:,} numbers"
        )
    site.remember("setup", msgspec.msgpack.encode(request))

    def sums() -> Array:
        vectors = _state(synth, trainer, site).vectors
        return Array.of(rounds.Facts.of(vectors).sums, "<f8")

    return messages.Ready(_unpaid(synth, site, sums))


def _state(
    synth: RoundsSynthesizer, trainer: RoundTrainer, site: Site[OwnerData]
) -> RoundState:
    """Return the party's encoded rows and training, made once a process."""
    memo_key = ("rounds", site.run)
    if memo_key not in site.memo:
        site.memo[memo_key] = _new_state(synth, trainer, site)
    state: RoundState = site.memo[memo_key]
    return state


def _new_state(
    synth: RoundsSynthesizer, trainer: RoundTrainer, site: Site[OwnerData]
) -> RoundState:
    """Encode the party's rows as the coordinator asked; WireError if it has not asked yet."""
    stored = site.recall("setup")
    if stored is None:
        raise WireError(
            f"party {site.name!r} was asked to train before it was prepared"
        )
    setup = msgspec.msgpack.decode(stored, type=messages.Prepare)
    features = Features.from_json(setup.features)
    roster = [*site.terms.roster]
    place = roster.index(site.name)

    # The first party encodes with the key of a central fit, so that one party alone is that fit.
    path = [place] if place else []
    key = fold_in(fold_in(setup.seed, "train"), "encode", *path)
    learner = trainer.learner(synth, features.blocks, len(roster))
    encoded = features.encode(site.rows.table, key=key)
    vectors = learner.vectors(encoded, place)
    return RoundState(learner, vectors, place, keys_of(learner, setup.seed))


# Fed-TGAN


def train(
    synth: RoundsSynthesizer,
    trainer: RoundTrainer,
    request: messages.Round,
    site: Site[OwnerData],
) -> messages.Trained:
    """Train for a round, and send the networks that the learner shares; the rest stays here."""
    with naming_party(site.name):
        return messages.Trained(
            _unpaid(synth, site, lambda: _trained(synth, trainer, request, site))
        )


def _trained(
    synth: RoundsSynthesizer,
    trainer: RoundTrainer,
    request: messages.Round,
    site: Site[OwnerData],
) -> bytes:
    """Train for one round of the party's own steps, and return the networks after it, packed."""
    from siloweave.models import rounds

    state = _state(synth, trainer, site)
    number = request.number
    learner = state.learner
    size = len(state.vectors)
    facts = _facts_of(request, learner, size)
    num_rounds = learner.num_rounds(synth.rounds, facts.rows)
    if not 0 <= number < num_rounds:
        raise WireError(f"round {number} was asked for; the study has {num_rounds}")
    # Without a number of epochs, the learner's own settings say how long it trains.
    total_steps = learner.steps(size, facts.rows, synth.all_epochs or 0)
    if state.started is None:
        state.rows = learner.rows(state.vectors, facts)
        state.started = learner.start(state.keys.initial, total_steps)

    # The mean of all networks, with what stayed here (moments) after the round before.
    shared_like, local_like = learner.split(state.started)
    local = local_like
    if number:
        stored = networks.recalled_step("moments/", number - 1, site)
        if stored is None:
            raise WireError(
                f"round {number} does not follow the last one; start a new run"
            )
        local = rounds.unpacked(stored, local_like)
    before = learner.joined(rounds.unpacked(request.networks, shared_like), local)

    # Rounds cut all steps evenly, to within one.
    first = total_steps * number // num_rounds
    last = total_steps * (number + 1) // num_rounds
    lap = rounds.Lap(learner.batch(size, facts.rows), first, last, total_steps)
    after = learner.run(
        before, state.rows, lap, rounds.own_key(state.keys.steps, state.place)
    )

    shared, local = learner.split(after)
    networks.remember_step("moments/", number, rounds.packed(local), site)
    # The last round ends with what the model draws with, such as a moving average of weights.
    if number == num_rounds - 1:
        return rounds.packed(learner.result(after))
    return rounds.packed(shared)


def _facts_of(
    request: messages.Round, learner: rounds.Learner, rows: int
) -> rounds.Facts:
    """Check the sums of all parties' vectors, as the coordinator sent them, and return them."""
    from siloweave.models import rounds

    checked = expected.CheckedReply("the coordinator")
    shape = (4, learner.layout.width)
    sums = checked.array("sums", request.sums, expected.FLOATS, shape)
    sums = sums.astype(np.float64)
    all_rows = checked.number("rows", request.rows, least=rows, most=expected.MOST_ROWS)
    facts = rounds.Facts(all_rows, sums)
    if not facts.possible(learner.layout, expected.LARGEST):
        raise checked.wrong("sums", f"those of {request.rows:,} rows")
    return facts


# MD-TGAN


def judge(
    synth: CriticsSynthesizer,
    trainer: RoundTrainer,
    request: messages.Judge,
    site: Site[OwnerData],
) -> messages.Judged:
    """Take one step of the critic, and send its feedback."""
    return messages.Judged(
        _unpaid(synth, site, lambda: _feedback(synth, trainer, request, site))
    )


def _feedback(
    synth: CriticsSynthesizer,
    trainer: RoundTrainer,
    request: messages.Judge,
    site: Site[OwnerData],
) -> Array:
    """Train the critic on real rows beside the first generated ones, then judge the second."""
    import jax
    import jax.numpy as jnp

    from siloweave.models import gan, rounds

    critics = _critics(synth, trainer, request.number, site)
    state = _state(synth, trainer, site)
    learner = state.learner
    rows, sampler = state.rows
    # The step's own key is the coordinator's, so no party is the first of its owners.
    key = rounds.own_key(
        jax.random.fold_in(state.keys.steps, request.number), state.place + 1
    )

    checked = expected.CheckedReply("the coordinator")
    shape = (synth.batch, learner.layout.width)

    def conditions(field: str, array: Array) -> Any:
        return jnp.asarray(
            checked.array(field, array, expected.WORDS, shape[:1]).astype(np.int32)
        )

    def generated(field: str, array: Array) -> Any:
        return jnp.asarray(checked.reals(field, array, shape))

    places = conditions("places", request.places)
    again_places = conditions("again_places", request.again_places)
    fake = generated("fake", request.fake)
    again = generated("again", request.again)
    after, feedback = gan.judged(
        learner.update(1), sampler, critics, rows,
        gan.AskedRows(places, again_places), gan.MadeRows(fake, again), key,
    )  # fmt: skip
    networks.remember_step("critic/", request.number + 1, rounds.packed(after), site)
    return Array.of(np.asarray(feedback), "<f4")


def _critics(
    synth: CriticsSynthesizer, trainer: RoundTrainer, number: int, site: Site[OwnerData]
) -> gan.Critics:
    """Return the critic and its moments as they are after so many steps.

    Raises:
        WireError: Naming the party, which has no critic after that step.
    """
    from siloweave.models import gan, rounds

    state = _state(synth, trainer, site)
    # Every party begins with a critic of its own: they change places later.
    if state.started is None:
        start = state.learner.start(rounds.own_key(state.keys.initial, state.place), 1)
        state.started = gan.Critics(start.critic, start.critic_moments)
        state.rows = state.learner.rows(state.vectors, rounds.Facts.of(state.vectors))
    if number == 0:
        return gan.Critics(*state.started)
    stored = networks.recalled_step("critic/", number, site)
    if stored is None:
        raise WireError(
            f"party {site.name!r}: step {number} does not follow the last one; start a new run"
        )
    return gan.Critics(*rounds.unpacked(stored, state.started))


def hand(
    synth: CriticsSynthesizer,
    trainer: RoundTrainer,
    request: messages.Hand,
    site: Site[OwnerData],
) -> messages.Handed:
    """Send the critic, without its moments."""
    from siloweave.models import rounds

    def critic() -> bytes:
        return rounds.packed(_critics(synth, trainer, request.number, site).net)

    return messages.Handed(_unpaid(synth, site, critic))


def take(
    synth: CriticsSynthesizer,
    trainer: RoundTrainer,
    request: messages.Take,
    site: Site[OwnerData],
) -> messages.Took:
    """Continue with another party's critic, and with this party's own moments."""
    from siloweave.models import gan, rounds

    critics = _critics(synth, trainer, request.number, site)
    with naming_party(site.name):
        net = rounds.unpacked(request.critic, critics.net)
    networks.remember_step(
        "critic/",
        request.number,
        rounds.packed(gan.Critics(net, critics.moments)),
        site,
    )
    return messages.Took(Public(True, "says that a message came"))


# Which function answers which request

AVERAGING: dict[Any, Any] = {
    messages.Describe: describe,
    messages.Prepare: prepare,
    messages.Round: train,
}
CRITICS: dict[Any, Any] = {
    messages.Describe: describe,
    messages.Prepare: prepare,
    messages.Judge: judge,
    messages.Hand: hand,
    messages.Take: take,
}


def handlers(
    answers: dict[Any, Any], trainer: RoundTrainer, synth: RoundsSynthesizer
) -> Handlers:
    """Return the functions that answer requests, by request, at these settings."""
    return {
        request: partial(answer, synth, trainer) for request, answer in answers.items()
    }
