"""MD-TGAN: one generator at the coordinator, one critic at every party; critics change places.

Hardy, Le Merrer & Sericola 2019, "MD-GAN: Multi-discriminator generative adversarial networks for
distributed datasets", Algorithm 1, with CTGAN's networks and losses as in section 5.1 of Zhao,
Birke, Kunar & Chen 2021, "Fed-TGAN", whose baseline it is.

In every step the coordinator sends two batches of generated rows; each party's critic learns from
the first beside real rows and answers how its judgement of the second changes with every entry.
The generator follows the mean of these answers. After an epoch every critic moves to the next
party of the roster, its moments stay behind.

**Guarantee**: none, for the reasons of fed_tgan.py, and one more: critics, which remember rows
best, are handed from party to party.

Departures: all parties get the same two batches (k = 1 of the paper); conditions of generated rows
follow everyone's frequencies, those of real rows the party's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from siloweave.algorithms.central import OwnerData
from siloweave.algorithms.fed_tgan import (
    RoundsKind,
    RoundsPlan,
    RoundsResult,
    agree,
    networks,
    party,
    unpaid,
    work_of,
)
from siloweave.algorithms.outcome import Info
from siloweave.algorithms.party_weights import Weights
from siloweave.algorithms.rows_split import FedTGAN, without_noise
from siloweave.algorithms.visibility import Views, bare_rounds
from siloweave.errors import InputError, WireError, naming_party
from siloweave.federation.expected import WORDS, CheckedReply
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site

if TYPE_CHECKING:
    from siloweave.models.gan import Critics

__all__ = ["MDTGAN"]


# Messages


class Judged(Reply, frozen=True):
    """How the critic's dislike changes with every entry of the rows judged, (batch, width)."""

    feedback: Released[Array]


class Judge(Request[Judged], frozen=True, tag="md_tgan/judge"):
    """Learn from the first rows beside your own, and judge the second.

    `places` and `again_places` say what each row was asked for.
    """

    number: int
    fake: Array
    places: Array
    again: Array
    again_places: Array


class Handed(Reply, frozen=True):
    """A party's critic, as safetensors bytes."""

    critic: Released[bytes]


class Hand(Request[Handed], frozen=True, tag="md_tgan/hand"):
    """Give your critic away after this many steps."""

    number: int


class Took(Reply, frozen=True):
    """The critic is in use."""

    done: Public[bool]


class Take(Request[Took], frozen=True, tag="md_tgan/take"):
    """Go on with this critic after so many steps."""

    number: int
    critic: bytes


# Party


def _recalled(site: Site[OwnerData], kind: RoundsKind, number: int) -> Critics:
    """The critic after so many steps."""
    from siloweave.models.gan import Critics
    from siloweave.models.rounds import Facts, own_key, unpacked

    work = work_of(kind, site)
    if work.started is None:  # every party begins with a critic of its own
        start = work.learner.start(own_key(work.keys.initial, work.place), 1)
        work.started = Critics(start.critic, start.critic_moments)
        work.rows = work.learner.rows(work.vectors, Facts.of(work.vectors))
    if number == 0:
        return Critics(*work.started)
    kept = site.recall(f"critic/{number % 2}") or b""
    if kept[:8] != number.to_bytes(8, "big"):
        raise WireError(
            f"party {site.name!r}: step {number} does not follow the last one; start a new run"
        )
    return Critics(*unpacked(kept[8:], work.started))


def _keep(site: Site[OwnerData], number: int, critics: Critics) -> None:
    from siloweave.models.rounds import packed

    site.remember(f"critic/{number % 2}", number.to_bytes(8, "big") + packed(critics))


def judge(kind: RoundsKind, request: Judge, site: Site[OwnerData]) -> Judged:
    """One step of the critic, and its feedback."""
    entry = unpaid(site, kind.title)

    def feedback() -> Array:
        import jax
        import jax.numpy as jnp

        from siloweave.models.gan import AskedRows, MadeRows, judged
        from siloweave.models.rounds import own_key

        critics, work = _recalled(site, kind, request.number), work_of(kind, site)
        rows, sampler = work.rows
        # The step's own key is the coordinator's, so no party is the first of its owners.
        key = own_key(jax.random.fold_in(work.keys.steps, request.number), work.place + 1)
        learner: Any = work.learner
        said, size = CheckedReply("the coordinator"), learner.settings.batch
        places = {"places": request.places, "again_places": request.again_places}
        wide = {"fake": request.fake, "again": request.again}
        wanted = (size, learner.layout.width)
        at = [said.array(n, x, WORDS, (size,)).astype(np.int32) for n, x in places.items()]
        asked = AskedRows(*(jnp.asarray(one) for one in at))
        made = MadeRows(*(jnp.asarray(said.reals(n, x, wanted)) for n, x in wide.items()))
        after, told = judged(learner.step, sampler, critics, rows, asked, made, key)
        _keep(site, request.number + 1, after)
        return Array.of(np.asarray(told), "<f4")

    return Judged(site.release_under(entry, feedback))


def hand(kind: RoundsKind, request: Hand, site: Site[OwnerData]) -> Handed:
    """Give the critic away, without its moments."""
    from siloweave.models.rounds import packed

    entry = unpaid(site, kind.title)
    return Handed(
        site.release_under(entry, lambda: packed(_recalled(site, kind, request.number).net))
    )


def take(kind: RoundsKind, request: Take, site: Site[OwnerData]) -> Took:
    """Go on with another party's critic and one's own moments."""
    from siloweave.models.gan import Critics
    from siloweave.models.rounds import unpacked

    own = _recalled(site, kind, request.number)
    with naming_party(site.name):
        critic = unpacked(request.critic, own.net)
    _keep(site, request.number, Critics(critic, own.moments))
    return Took(Public(True, "says that a message came"))


def handlers_of(kind: RoundsKind) -> Handlers:
    """A party's side: encoders as in Fed-TGAN, then judging and changing places."""
    own: dict[Any, Any] = {Judge: partial(judge, kind), Hand: partial(hand, kind)}
    own[Take] = partial(take, kind)
    return {**party(kind), **own}


# Coordinator


def md_tgan(parties: Session, kind: RoundsKind, plan: RoundsPlan) -> RoundsResult:
    """Run all epochs over a roster.

    Args:
        parties: Who holds the rows.
        kind: CTGAN.
        plan: How; a round is an epoch of the mean number of rows that a party has.

    Raises:
        WireError: A party sent what is no answer; names it.
        InputError: The generator diverged.
    """
    agreed = agree(parties, kind, plan)
    learner, keys = agreed.learner, agreed.keys
    server = _Server.of(learner, agreed.facts, keys)
    steps = plan.epochs * learner.epoch(agreed.facts.rows // len(parties.roster))
    for number in range(plan.rounds * steps):
        if number % steps == 0:
            at, all_ = number // steps, plan.rounds
            plan.progress(f"round {at + 1:,} of {all_:,}", at / all_)
            if number:
                _change_places(parties, number, server.critic)
        server.step(parties, number, agreed.weights, plan.at_once if number else 1)
    model = learner.finish((server.state.net, None), agreed.facts, keys.end)
    return RoundsResult(model, agreed.features, agreed.facts.rows, agreed.weights, agreed.one_way)


@dataclass
class _Server:
    """The generator, what critics are like, and what it draws conditions by."""

    learner: Any
    state: Any
    critic: Any
    frequencies: Any
    steps: Any

    @classmethod
    def of(cls, learner: Any, facts: Any, keys: Any) -> _Server:
        from siloweave.models.conditional import drawing
        from siloweave.models.gan import Critics

        start = learner.start(keys.initial, 1)
        frequencies = drawing(learner.conditions(facts))
        state = Critics(start.generator, start.generator_moments)
        return cls(learner, state, start.critic, frequencies, keys.steps)

    def step(self, parties: Session, number: int, weights: Any, at_once: int) -> None:
        """One update of everything."""
        import jax
        import jax.numpy as jnp

        from siloweave.models.gan import asked_rows, followed

        step, key = self.learner.step, jax.random.fold_in(self.steps, number)
        asked, made = asked_rows(step, self.state.net, self.frequencies, key)
        rows = [Array.of(np.asarray(x), "<f4") for x in made]
        places = [Array.of(np.asarray(x), "<u4") for x in asked]
        request = Judge(number, rows[0], places[0], rows[1], places[1])
        replies = parties.ask(request, at_once=at_once)
        mean = np.zeros(np.shape(made.again))
        for name, reply, weight in zip(parties.roster, replies, weights, strict=True):
            told = reply.feedback.value
            mean += weight * CheckedReply(name).reals("feedback", told, mean.shape)
        self.state, finite = followed(step, self.state, asked, jnp.float32(mean), key)
        if not finite:
            raise InputError(f"training diverged in step {number + 1}; lower settings.rate")


def _change_places(parties: Session, number: int, like: Any) -> None:
    """Every critic moves to the next party of the roster."""
    given = [reply.critic.value for reply in parties.ask(Hand(number))]
    for name, critic in zip(parties.roster, given, strict=True):
        networks(name, critic, like, number)
    moved = zip(parties.roster, [given[-1], *given[:-1]], strict=True)
    parties.ask_each({name: Take(number, critic) for name, critic in moved})


@dataclass(frozen=True)
class MDTGAN(FedTGAN):
    """CTGAN with its generator at the coordinator and a critic at every party.

    Args:
        settings: Of CTGAN; its `epochs` do not count, and it has no moving average.
        rounds, epochs: How often critics change places, and epochs between.
        weights: Of the parties' feedback.
    """

    rounds: int = 150
    weights: Weights = "equal"
    info: ClassVar[Info] = without_noise(
        "md_tgan",
        "MD-TGAN",
        "GAN",
        "Hardy, Le Merrer & Sericola 2019, MD-GAN, IPDPS, with CTGAN's networks as in Zhao, Birke, "
        "Kunar & Chen 2021, Fed-TGAN",
    )

    @property
    def visibility(self) -> Views:
        """Who sees what of a run at these settings; in one round no critic changes places."""
        judged, made = "how its critic judges generated rows", "generated rows, which follow them"
        heard, told = f"and in every step {judged}", f"in every step {made}"
        if self.rounds == 1:
            return bare_rounds(heard, told, ("Judged.feedback",), ("Judge",))
        return bare_rounds(
            f"in every step {judged}, and after every round but the last its critic",
            f"{told}, and after every round but the last the critic of another party",
            ("Judged.feedback", "Handed.critic"),
            ("Judge", "Take"),
        )

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong or unknown."""
        made = super().chosen()
        if made["average"] or made["identifiability"]:
            raise InputError("settings.average and settings.identifiability: MD-TGAN has neither")
        return made

    def handlers(self) -> Handlers:
        """A party's side."""
        return handlers_of(self.kind)

    def coordinate(self, parties: Session, plan: RoundsPlan) -> RoundsResult:
        """The coordinator's side."""
        return md_tgan(parties, self.kind, plan)

    @staticmethod
    def load(path: Path) -> Any:
        """Read a model that was saved."""
        return FedTGAN.load(path)
