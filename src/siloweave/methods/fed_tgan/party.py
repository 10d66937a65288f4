"""Fed-TGAN: parties with different rows train one CTGAN in rounds, without showing their rows.

Zhao, Birke, Kunar & Chen 2021, "Fed-TGAN: Federated learning framework for synthesizing tabular
data", sections 4.1 to 4.3.

1. Every party tells the frequencies of its categories, how many rows it has, and a variational
   Gaussian mixture of each column of numbers; the coordinator fits encoders to all of them
   (tables/pooled.py).
2. A party counts more in the mean the more rows it has and the nearer its columns are to those of
   all parties: with S_ij the Jensen-Shannon or Wasserstein distance of party i in column j, scaled
   so that a column sums to 1, SS_i = sum_j S_ij and SD_i = (1 - SS_i / sum_k SS_k) n_i / N, the
   weights are softmax(SD).
3. In every round each party trains the networks for an epoch of its rows, and the coordinator
   averages generators and critics by these weights.

**Guarantee**: none. Frequencies, mixtures and networks leave a party as they are, and its ledger
says so with an event of infinite cost, entered before anything is sent. A category that one person
holds is visible, and so is a lone value (a mode of no width).

Departures: the quantiles of a mixture stand for draws from it; columns of few or well supported
numbers are told as counts instead of mixtures; batch statistics are those of the averaged
generator's own rows instead of a mean of the parties'; the penalty is on straight lines between
rows (CTGAN's), where the authors' code interpolates on spheres. Other networks may take CTGAN's
place: see rows_split.py. One party alone trains what a central fit trains, step for step.

MD-TGAN: one generator at the coordinator, one critic at every md_party; critics change places.

Hardy, Le Merrer & Sericola 2019, "MD-GAN: Multi-discriminator generative adversarial networks for
distributed datasets", Algorithm 1, with CTGAN's networks and losses as in section 5.1 of Zhao,
Birke, Kunar & Chen 2021, "Fed-TGAN", whose baseline it is.

In every step the coordinator sends two batches of generated rows; each md_party's critic learns
from
the first beside real rows and answers how its judgement of the second changes with every entry.
The generator follows the mean of these answers. After an epoch every critic moves to the next
md_party of the roster, its moments stay behind.

**Guarantee**: none, for the reasons of fed_tgan.py, and one more: critics, which remember rows
best, are handed from md_party to md_party.

Departures: all parties get the same two batches (k = 1 of the paper); conditions of generated rows
follow everyone's frequencies, those of real rows the md_party's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.algorithms.fed_tgan import md_party
from siloweave.errors import WireError, naming_party
from siloweave.federation.expected import FLOATS, LARGEST, MOST_ROWS, WIDEST, WORDS, CheckedReply
from siloweave.federation.messages import Array, Public
from siloweave.federation.site import Handlers, Site
from siloweave.methods.fed_tgan.messages import (
    Describe,
    Described,
    Hand,
    Handed,
    Judge,
    Judged,
    Prepare,
    Ready,
    Round,
    Take,
    Took,
    Trained,
)
from siloweave.privacy.events import NonPrivate
from siloweave.protocols.networks import OwnerData, jax_key
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in
from siloweave.tables.summaries import summarise

if TYPE_CHECKING:
    from siloweave.models.gan import Critics
    from siloweave.models.rounds import Learner


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RoundsKind:
    """What is trained in rounds.

    Attributes:
        title: What the ledger calls it.
        numeric: What a continuum becomes.
        learner: What trains, from features, settings and a target.
    """

    title: str
    numeric: Any
    learner: Callable[[Features, dict[str, Any], str | None], Learner]


def unpaid(site: Site[Any], what: str) -> str:
    """The ledger entry, of infinite cost, for all that this party sends in a run."""
    entry = site.recall("unpaid")
    if entry is None:
        made = site.pay(NonPrivate(f"{what} adds no noise to anything"), f"all messages of {what}")
        entry = made.encode()
        site.remember("unpaid", entry)
    return entry.decode()


def describe(kind: RoundsKind, request: Describe, site: Site[OwnerData]) -> Described:
    """Summarise every column."""
    entry, held = unpaid(site, kind.title), site.rows
    rows = site.release_under(entry, lambda: held.table.num_rows)
    told = site.release_under(
        entry, lambda: msgspec.json.encode(summarise(held.table, held.schema))
    )
    return Described(rows, told)


@dataclass
class Work:
    """What a party computes again from its rows after a restart.

    Attributes:
        learner: What trains.
        vectors: The party's rows, encoded.
        place: In the roster.
        setup: What it was told.
        rows: As steps read them, once they were needed.
        started: The state before the first step, once it was needed.
    """

    learner: Learner
    vectors: Any
    place: int
    setup: Prepare
    rows: Any = None
    started: Any = None

    @property
    def steps(self) -> int:
        """Steps of a round."""
        return self.setup.epochs * self.learner.epoch(len(self.vectors))

    @property
    def keys(self) -> Any:
        """Of the whole training."""
        return _keys(self.learner, self.setup.seed)


def _keys(learner: Learner, seed: int) -> Any:
    """The keys of a central fit with this seed."""
    return learner.keys(jax_key(fold_in(fold_in(seed, "train"), "model")))


def work_of(kind: RoundsKind, site: Site[OwnerData]) -> Work:
    """The party's encoded rows, made once a process."""
    name = ("fed", site.context.rpartition("/")[0])
    if name not in site.memo:
        kept = site.recall("setup")
        if kept is None:
            raise WireError(f"party {site.name!r} is asked to train, and was never told what")
        setup = msgspec.msgpack.decode(kept, type=Prepare)
        if site.name not in setup.roster:
            raise WireError(f"party {site.name!r} is not in the roster {list(setup.roster)}")
        place, features = setup.roster.index(site.name), Features.from_json(setup.features)
        key = fold_in(fold_in(setup.seed, "train"), "encode", *([place] if place else []))
        learner = kind.learner(features, msgspec.json.decode(setup.settings), setup.target)
        X = features.encode(site.rows.table, key=key)
        site.memo[name] = Work(learner, learner.vectors(X), place, setup)
    found: Work = site.memo[name]
    return found


def _check_setup(request: Prepare, site: Site[OwnerData]) -> None:
    """Refuse to train anything but what the study says, or vectors that take too much memory.

    Raises:
        WireError: Naming the party and what is wrong.
    """
    own = {"target": request.target, "rounds": request.rounds, "epochs": request.epochs}
    site.terms.require(site.name, settings=msgspec.json.decode(request.settings), **own)
    if request.roster != tuple(site.terms.roster):
        raise WireError(f"party {site.name!r} is told of another roster than the study's")
    with naming_party(site.name):
        features = Features.from_json(request.features)
    if not features.cover(site.rows.schema) or features.width > WIDEST:
        raise WireError(
            f"party {site.name!r} is told to encode by other facts than its schema's, or in "
            f"vectors of more than {WIDEST:,} numbers"
        )


def prepare(kind: RoundsKind, request: Prepare, site: Site[OwnerData]) -> Ready:
    """Keep what is trained and how, and send what the vectors add up to."""
    from siloweave.models.rounds import Facts

    _check_setup(request, site)
    site.remember("setup", msgspec.msgpack.encode(request))
    entry = unpaid(site, kind.title)

    def sums() -> Array:
        return Array.of(Facts.of(work_of(kind, site).vectors).sums, "<f8")

    return Ready(site.release_under(entry, sums))


def train(kind: RoundsKind, request: Round, site: Site[OwnerData]) -> Trained:
    """Train for a round; moments of the optimiser stay here."""
    entry = unpaid(site, kind.title)
    with naming_party(site.name):
        return Trained(site.release_under(entry, lambda: _trained(kind, request, site)))


def _trained(kind: RoundsKind, request: Round, site: Site[OwnerData]) -> bytes:
    from siloweave.models.rounds import Facts, Lap, own_key, packed, unpacked

    work, number = work_of(kind, site), request.number
    if not 0 <= number < work.setup.rounds:
        raise WireError(f"round {number} was asked for; the study has {work.setup.rounds}")
    learner, steps, total = work.learner, work.steps, work.steps * work.setup.rounds
    if work.started is None:
        said, width = CheckedReply("the coordinator"), learner.layout.width
        sums = said.array("sums", request.sums, FLOATS, (4, width)).astype(np.float64)
        facts = Facts(said.number("rows", request.rows, least=1, most=MOST_ROWS), sums)
        if not facts.possible(learner.layout, LARGEST):
            raise said.wrong("sums", f"those of {request.rows:,} rows")
        work.rows = learner.rows(work.vectors, facts)
        work.started = learner.start(work.keys.born, total)
    shared, kept = learner.split(work.started)
    if number:  # two slots, so that a round asked again starts from where it did
        before = site.recall(f"moments/{(number - 1) % 2}") or b""
        if before[:8] != (number - 1).to_bytes(8, "big"):
            raise WireError(f"round {number} does not follow the last one; start a new run")
        kept = unpacked(before[8:], kept)
    state = learner.joined(unpacked(request.networks, shared), kept)
    lap = Lap(len(work.vectors), number * steps, (number + 1) * steps, total)
    state = learner.run(state, work.rows, lap, own_key(work.keys.steps, work.place))
    shared, kept = learner.split(state)
    site.remember(f"moments/{number % 2}", number.to_bytes(8, "big") + packed(kept))
    return packed(shared)


def party(kind: RoundsKind) -> Handlers:
    """A party's side: which function answers which request."""
    return {
        Describe: partial(describe, kind),
        Prepare: partial(prepare, kind),
        Round: partial(train, kind),
    }


def _recalled(site: Site[OwnerData], kind: RoundsKind, number: int) -> Critics:
    """The critic after so many steps."""
    from siloweave.models.gan import Critics
    from siloweave.models.rounds import Facts, own_key, unpacked

    work = work_of(kind, site)
    if work.started is None:  # every md_party begins with a critic of its own
        start = work.learner.start(own_key(work.keys.born, work.place), 1)
        work.started = Critics(start.critic, start.critic_moments)
        work.rows = work.learner.rows(work.vectors, Facts.of(work.vectors))
    if number == 0:
        return Critics(*work.started)
    kept = site.recall(f"critic/{number % 2}") or b""
    if kept[:8] != number.to_bytes(8, "big"):
        raise WireError(
            f"md_party {site.name!r}: step {number} does not follow the last one; start a new run"
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
        # The step's own key is the coordinator's, so no md_party is the first of its owners.
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
    """Go on with another md_party's critic and one's own moments."""
    from siloweave.models.gan import Critics
    from siloweave.models.rounds import unpacked

    own = _recalled(site, kind, request.number)
    with naming_party(site.name):
        critic = unpacked(request.critic, own.net)
    _keep(site, request.number, Critics(critic, own.moments))
    return Took(Public(True, "says that a message came"))


def handlers_of(kind: RoundsKind) -> Handlers:
    """A md_party's side: encoders as in Fed-TGAN, then judging and changing places."""
    own: dict[Any, Any] = {Judge: partial(judge, kind), Hand: partial(hand, kind)}
    own[Take] = partial(take, kind)
    return {**md_party(kind), **own}
