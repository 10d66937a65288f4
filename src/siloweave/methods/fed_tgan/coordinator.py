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

How much each party's network counts in the mean of a round.

Zhao, Birke, Kunar & Chen 2021, "Fed-TGAN", section 4.2, and its ablations; McMahan et al. 2017,
"Communication-efficient learning of deep networks from decentralized data".

**Guarantee**: none of its own; distances and numbers of rows are what parties released.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.errors import InputError, WireError
from siloweave.federation.expected import FLOATS, LARGEST, MOST_ROWS, CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.methods.fed_tgan.messages import Describe, Hand, Judge, Prepare, Round, Take
from siloweave.methods.fed_tgan.party import RoundsKind, _keys
from siloweave.tables.features import Features
from siloweave.tables.one_way import OneWay
from siloweave.tables.schema import Schema
from siloweave.tables.summaries import ColumnSummary, agreed_features, agreed_shares, distances

if TYPE_CHECKING:
    from siloweave.models.layout import Layout
    from siloweave.models.rounds import Facts, Learner


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
    shared, _ = learner.split(learner.start(agreed.keys.born, 1))
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


Floats = npt.NDArray[np.float64]


Weights = Literal["similarity and size", "similarity", "size", "equal", "rows", "typical"]

"""How parties are weighted in a mean."""


WEIGHTS: tuple[str, ...] = Weights.__args__  # type: ignore[attr-defined]

_REACH = 0.05  # how far beyond the middle party's distance a weight falls by e


def weights_of(S: Floats, rows: Sequence[int], weights: Weights = "similarity and size") -> Floats:
    """The weights of section 4.2, or one of its ablations.

    Args:
        S: (parties, columns), distances.
        rows: Of each party.
        weights: ``similarity and size`` is the paper's; ``similarity`` and ``size`` drop the other
            factor, ``equal`` is vanilla federated learning, ``rows`` the weights n_i / N of
            federated averaging. ``typical`` is ours: n_i, times less the farther a party's mean
            distance is beyond the middle party's.

    Returns:
        (parties,), of sum 1.

    Example:
        >>> S = np.array([[0.1], [0.1], [0.8]])
        >>> weights_of(S, [10, 10, 20]).round(3).tolist()
        [0.347, 0.347, 0.306]
    """
    n = np.array(rows, dtype=np.float64) / sum(rows)
    if weights == "rows":
        return n
    if weights == "typical":
        mean = S.mean(1) if S.size else np.zeros(len(n))
        kept = n * np.exp(-np.maximum(mean - np.median(mean), 0.0) / _REACH)
        return np.asarray(kept / kept.sum())
    totals = S.sum(0)
    scaled = np.where(totals > 0, S / np.where(totals > 0, totals, 1.0), 1.0 / len(n))
    away = scaled.sum(1)
    share = away / away.sum() if away.sum() > 0 else np.full(len(n), 1.0 / len(n))
    near = 1.0 - share
    factors: dict[str, Floats] = {
        "similarity and size": near * n,
        "similarity": near,
        "size": n,
        "equal": np.zeros(len(n)),
    }
    odds = np.exp(factors[weights])
    return np.asarray(odds / odds.sum())


def md_tgan(parties: Session, kind: RoundsKind, plan: RoundsPlan) -> RoundsResult:
    """Run all epochs over a roster.

    Args:
        parties: Who holds the rows.
        kind: CTGAN.
        plan: How; a round is an epoch of the mean number of rows that a md_party has.

    Raises:
        WireError: A md_party sent what is no answer; names it.
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
    law: Any
    steps: Any

    @classmethod
    def of(cls, learner: Any, facts: Any, keys: Any) -> _Server:
        from siloweave.models.conditional import RowTable, drawing
        from siloweave.models.gan import Critics

        start = learner.start(keys.born, 1)
        nobody = np.zeros((0, 0), np.int32)
        law = drawing(RowTable(nobody, learner.conditions(facts)))
        state = Critics(start.generator, start.generator_moments)
        return cls(learner, state, start.critic, law, keys.steps)

    def step(self, parties: Session, number: int, weights: Any, at_once: int) -> None:
        """One update of everything."""
        import jax
        import jax.numpy as jnp

        from siloweave.models.gan import asked_rows, followed

        step, key = self.learner.step, jax.random.fold_in(self.steps, number)
        asked, made = asked_rows(step, self.state.net, self.law, key)
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
    """Every critic moves to the next md_party of the roster."""
    given = [reply.critic.value for reply in parties.ask(Hand(number))]
    for name, critic in zip(parties.roster, given, strict=True):
        networks(name, critic, like, number)
    moved = zip(parties.roster, [given[-1], *given[:-1]], strict=True)
    parties.ask_each({name: Take(number, critic) for name, critic in moved})
