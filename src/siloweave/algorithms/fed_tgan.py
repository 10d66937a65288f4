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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.algorithms.central import OwnerData
from siloweave.algorithms.networks import jax_key
from siloweave.algorithms.party_weights import Weights, weights_of
from siloweave.errors import InputError, WireError, naming_party
from siloweave.federation.expected import FLOATS, LARGEST, MOST_ROWS, WIDEST, CheckedReply
from siloweave.federation.messages import Array, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.events import NonPrivate
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in
from siloweave.tables.one_way import OneWay
from siloweave.tables.schema import Schema
from siloweave.tables.summaries import (
    ColumnSummary,
    agreed_features,
    agreed_shares,
    distances,
    summarise,
)

if TYPE_CHECKING:
    from siloweave.models.layout import Layout
    from siloweave.models.rounds import Facts, Learner

__all__ = [
    "Agreed",
    "RoundsKind",
    "RoundsPlan",
    "RoundsResult",
    "Work",
    "agree",
    "describe",
    "encoders",
    "fed_tgan",
    "networks",
    "party",
    "prepare",
    "unpaid",
    "work_of",
]

Floats = npt.NDArray[np.float64]


# Messages


class Described(Reply, frozen=True):
    """How many rows there are, and what every column looks like, as JSON."""

    rows: Released[int]
    columns: Released[bytes]


class Describe(Request[Described], frozen=True, tag="rounds/describe"):
    """Summarise your rows."""


class Ready(Reply, frozen=True):
    """Sum, sum of squares, least and largest of every entry of your vectors, (4, width)."""

    sums: Released[Array]


class Prepare(Request[Ready], frozen=True, tag="rounds/prepare"):
    """Encode your rows with these features, and get ready to train."""

    features: str
    settings: bytes
    target: str | None
    seed: int
    roster: tuple[str, ...]
    rounds: int
    epochs: int


class Trained(Reply, frozen=True):
    """Networks after an epoch of a party's rows, as safetensors bytes."""

    networks: Released[bytes]


class Round(Request[Trained], frozen=True, tag="rounds/round"):
    """Train these networks on; `rows` and `sums` are those of all parties."""

    number: int
    rows: int
    sums: Array
    networks: bytes


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


# Party


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
        work.started = learner.start(work.keys.initial, total)
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


# Coordinator


@dataclass(frozen=True)
class RoundsPlan:
    """What a coordinator is to do.

    Attributes:
        schema: Public facts about the columns.
        settings: Of the networks, as plain values.
        target: A column that the model is told, or None.
        rounds: How often networks are averaged.
        epochs: Of a party's rows in a round.
        weights: How parties are weighted.
        seed: First weights, batches, encoding.
        at_once: Parties that may be at work at the same time in this process.
        progress: Called with a text and the share that is done.
    """

    schema: Schema
    settings: dict[str, Any]
    target: str | None
    rounds: int
    epochs: int
    weights: Weights
    seed: int
    at_once: int
    progress: Callable[[str, float], None]


def encoders(
    parties: Session, schema: Schema, numeric: Any
) -> tuple[Features, list[tuple[ColumnSummary, ...]], list[int]]:
    """Agree on encoders: the features, what each party told, and how many rows it has.

    Raises:
        WireError: A party told what is no summary of these columns; names it.
    """
    told, rows = [], []
    for name, reply in zip(parties.roster, parties.ask(Describe()), strict=True):
        said = CheckedReply(name)
        rows.append(said.number("rows", reply.rows.value, least=1, most=MOST_ROWS))
        told.append(said.json("columns", reply.columns.value, partial(_summaries, schema)))
        for one in told[-1]:
            said.number(f"rows of column {one.column!r}", one.rows, least=rows[-1], most=rows[-1])
    return agreed_features(schema, told, numeric=numeric), told, rows


def _summaries(schema: Schema, text: bytes) -> tuple[ColumnSummary, ...]:
    """What a party told of the columns; raises an error of ours if it is none of these columns."""
    columns = msgspec.json.decode(text, type=tuple[ColumnSummary, ...])
    distances(schema, [columns])
    return columns


@dataclass(frozen=True)
class Agreed:
    """What all parties have agreed on before the first round."""

    features: Features
    learner: Learner
    facts: Facts
    weights: Floats
    one_way: OneWay
    keys: Any


class RoundsResult(NamedTuple):
    """What a run leaves.

    Attributes:
        network: The model.
        features: Its vectors to table and back.
        rows: How many there are.
        weights: Of the parties in a mean.
        one_way: How single columns are distributed: rows of a party far from the others count
            less, whatever the weights.
    """

    network: Any
    features: Features
    rows: int
    weights: Floats
    one_way: OneWay


def agree(parties: Session, kind: RoundsKind, plan: RoundsPlan) -> Agreed:
    """Encoders, weights, and what everyone's vectors add up to.

    Raises:
        WireError: A party told what does not fit; names it.
    """
    plan.progress("agreeing on encoders", 0.0)
    features, told, rows = encoders(parties, plan.schema, kind.numeric)
    alike = distances(plan.schema, told, alike=True)
    S = alike if plan.weights == "typical" else distances(plan.schema, told)
    one_way = agreed_shares(plan.schema, told, weights_of(alike, rows, "typical").tolist())
    learner = kind.learner(features, plan.settings, plan.target)
    facts = _facts(parties, plan, features, rows, learner.layout)
    keys = _keys(learner, plan.seed)
    return Agreed(features, learner, facts, weights_of(S, rows, plan.weights), one_way, keys)


def fed_tgan(parties: Session, kind: RoundsKind, plan: RoundsPlan) -> RoundsResult:
    """Run all rounds over a roster.

    Args:
        parties: Who holds the rows; one party alone is the central case.
        kind: What is trained.
        plan: How.

    Raises:
        WireError: A party sent what is no answer, or networks that are not finite; names it.
    """
    from siloweave.models.rounds import mean_of, packed

    agreed = agree(parties, kind, plan)
    learner, facts = agreed.learner, agreed.facts
    sums = Array.of(facts.sums, "<f8")
    shared, _ = learner.split(learner.start(agreed.keys.initial, 1))
    for number in range(plan.rounds):
        plan.progress(f"round {number + 1:,} of {plan.rounds:,}", number / plan.rounds)
        request = Round(number, facts.rows, sums, packed(shared))
        # The first round compiles: one after the other, so that it is done once.
        replies = parties.ask(request, at_once=plan.at_once if number else 1)
        found = zip(parties.roster, replies, strict=True)
        trees = [networks(name, one.networks.value, shared, number) for name, one in found]
        shared = mean_of(trees, agreed.weights.tolist())
    model = learner.finish(shared, facts, agreed.keys.end)
    return RoundsResult(model, agreed.features, facts.rows, agreed.weights, agreed.one_way)


def _facts(
    parties: Session, plan: RoundsPlan, features: Features, rows: Sequence[int], layout: Layout
) -> Facts:
    """Tell everyone the features, and add up the vectors, so laid out, that they make of them."""
    from siloweave.models.rounds import Facts

    settings, told = msgspec.json.encode(plan.settings), features.to_json()
    counts = (plan.rounds, plan.epochs)
    setup = Prepare(told, settings, plan.target, plan.seed, parties.roster, *counts)
    parts: list[Facts] = []
    for name, n, reply in zip(parties.roster, rows, parties.ask(setup), strict=True):
        said = CheckedReply(name)
        parts.append(Facts(n, said.array("sums", reply.sums.value, FLOATS, (4, layout.width))))
        if not parts[-1].possible(layout, LARGEST):
            raise said.wrong("sums", f"those of {n:,} rows between the least and the largest")
    return Facts.together(parts)


def networks(name: str, data: bytes, like: Any, number: int) -> Any:
    """What a party sent in a round, like these networks; raises WireError, naming it, otherwise."""
    import jax

    from siloweave.models.rounds import unpacked

    try:
        found = unpacked(data, like)
    except InputError as error:
        raise WireError(f"party {name!r}, round {number}: {error}") from error
    if any(np.abs(one).max(initial=0) > LARGEST for one in jax.tree.leaves(found)):
        raise WireError(
            f"party {name!r}, round {number}: its networks have weights beyond {LARGEST:,.0f}, "
            "which no training leaves; lower settings.rate, or find out what runs at this party"
        )
    return found
