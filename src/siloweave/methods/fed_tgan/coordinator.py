"""The coordinator's side of Fed-TGAN and MD-TGAN: encoders, weights of parties, and all rounds.

Zhao et al. 2021, McMahan et al. 2017 and Hardy et al. 2019, see method.py. There is no guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from siloweave.core.method import Result, Task
from siloweave.core.model import FeatureModel
from siloweave.errors import InputError, WireError
from siloweave.federation.expected import FLOATS, LARGEST, MOST_ROWS, CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.methods.fed_tgan.messages import Describe, Hand, Judge, Prepare, Round, Take
from siloweave.methods.fed_tgan.party import RoundTrainer, keys_of
from siloweave.tables.arrays import Floats
from siloweave.tables.features import Features, OneWay
from siloweave.tables.schema import Schema
from siloweave.tables.summaries import ColumnSummary, agreed_features, agreed_shares, distances

if TYPE_CHECKING:
    from siloweave.models.rounds import Facts, Keys, Learner

Weights = Literal["similarity and size", "similarity", "size", "equal", "rows", "typical"]
"""How parties are weighted in a mean."""
_FAR = 0.05  # how far beyond the middle party's distance a weight falls by e


def weights_of(S: Floats, rows: Sequence[int], weights: Weights = "similarity and size") -> Floats:
    """The weights of Fed-TGAN, section 4.2, or one of its ablations.

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
        found = n * np.exp(-np.maximum(mean - np.median(mean), 0.0) / _FAR)
        return np.asarray(found / found.sum())
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


# Before the first round


@dataclass(frozen=True)
class Agreed:
    """What all parties have agreed on before the first round."""

    features: Features  # encoders of every column
    learner: Learner  # what trains on their vectors
    facts: Facts  # what everyone's vectors add up to
    weights: Floats  # of the parties in a mean
    one_way: OneWay  # distributions of single columns, over all parties
    keys: Keys  # of the whole training

    def result(self, trainer: RoundTrainer, shared: Any, synth: Any) -> Result:
        """The model of the trained networks."""
        net = trainer.model(self.learner.finish(shared, self.facts, self.keys.end))
        target = getattr(synth, "target", None)
        model = FeatureModel(net, self.features, self.one_way, target)
        return Result(model, self.facts.rows, {"party_weights": self.weights.tolist()})


def agree(trainer: RoundTrainer, session: Session, task: Task) -> Agreed:
    """Encoders, weights, and what everyone's vectors add up to.

    Raises WireError, naming the party, where it sent what does not fit.
    """
    synth: Any = task.setup.synth
    schema = task.setup.schema
    task.progress("agreeing on encoders", 0.0)
    summaries, rows = _summaries(session, schema)
    features = agreed_features(schema, summaries, numeric=trainer.numeric)
    alike = distances(schema, summaries, alike=True)
    S = alike if synth.weights == "typical" else distances(schema, summaries)
    # Rows are raked to the single columns of all parties together. Where the weights doubt far
    # parties, or leave rows out of account, far parties count less there, too.
    pooling: Weights = "rows" if synth.weights == "rows" else "typical"
    one_way = agreed_shares(schema, summaries, weights_of(alike, rows, pooling).tolist())
    learner = trainer.learner(synth, features.blocks, len(session.roster))
    facts = _facts(session, features, rows, learner, task.seed)
    keys = keys_of(learner, task.seed)
    return Agreed(features, learner, facts, weights_of(S, rows, synth.weights), one_way, keys)


def _summaries(
    session: Session, schema: Schema
) -> tuple[list[tuple[ColumnSummary, ...]], list[int]]:
    """Every party's summaries of all columns, and its number of rows."""

    def read(text: bytes) -> tuple[ColumnSummary, ...]:
        columns = msgspec.json.decode(text, type=tuple[ColumnSummary, ...])
        distances(schema, [columns])  # refuses summaries of other columns
        return columns

    summaries, rows = [], []
    for name, reply in zip(session.roster, session.ask(Describe()), strict=True):
        sent = CheckedReply(name)
        rows.append(sent.number("rows", reply.rows.value, least=1, most=MOST_ROWS))
        summaries.append(sent.json("columns", reply.columns.value, read))
        for one in summaries[-1]:
            sent.number(f"rows of column {one.column!r}", one.rows, least=rows[-1], most=rows[-1])
    return summaries, rows


def _facts(
    session: Session, features: Features, rows: Sequence[int], learner: Learner, seed: int
) -> Facts:
    """Send everyone the features, and add up the vectors that they make of them."""
    from siloweave.models.rounds import Facts

    parts, layout = [], learner.layout
    replies = session.ask(Prepare(features.to_json(), seed))
    for name, n, reply in zip(session.roster, rows, replies, strict=True):
        sent = CheckedReply(name)
        parts.append(Facts(n, sent.array("sums", reply.sums.value, FLOATS, (4, layout.width))))
        if not parts[-1].possible(layout, LARGEST):
            raise sent.wrong("sums", f"those of {n:,} rows between the least and the largest")
    return Facts.together(parts)


# Fed-TGAN


def coordinate(trainer: RoundTrainer, session: Session, task: Task) -> Result:
    """Run all rounds over the roster; one party alone is the central case.

    Raises WireError, naming the party, for what is no answer, or networks that are not finite.
    """
    from siloweave.models.rounds import packed

    synth: Any = task.setup.synth
    agreed = agree(trainer, session, task)
    learner, facts = agreed.learner, agreed.facts
    sums = Array.of(facts.sums, "<f8")
    start = learner.start(agreed.keys.initial, 1)
    shared, _ = learner.split(start)
    for number in range(synth.rounds):
        task.progress(f"round {number + 1:,} of {synth.rounds:,}", number / synth.rounds)
        request = Round(number, facts.rows, sums, packed(shared))
        # The first round compiles: one after the other, so that it is done once.
        replies = session.ask(request, at_once=task.at_once if number else 1)
        is_last = number == synth.rounds - 1
        like = learner.result(start) if is_last else shared
        trees = []
        for name, reply in zip(session.roster, replies, strict=True):
            trees.append(networks(name, reply.networks.value, like, number))
            fault = None if is_last else learner.fault(trees[-1])
            if fault:
                raise WireError(f"party {name!r}, round {number}: {fault}")
        shared = learner.together(trees, agreed.weights.tolist())
    return agreed.result(trainer, shared, synth)


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
            "which no training leaves; lower the learning rate, or check which software this "
            "party runs"
        )
    return found


# MD-TGAN


def coordinate_critics(trainer: RoundTrainer, session: Session, task: Task) -> Result:
    """Run all steps of MD-TGAN; a round is an epoch of the mean number of rows of a party.

    Raises WireError, naming the party, for what is no answer, and InputError where it diverged.
    """
    from siloweave.models.conditional import drawing
    from siloweave.models.gan import Critics

    synth: Any = task.setup.synth
    agreed = agree(trainer, session, task)
    learner: Any = agreed.learner
    start, rounds = learner.start(agreed.keys.initial, 1), synth.rounds
    conditions = drawing(learner.conditions(agreed.facts))
    state = Critics(start.generator, start.generator_moments)
    steps = synth.epochs * learner.epoch(agreed.facts.rows // len(session.roster))
    for number in range(rounds * steps):
        if number % steps == 0:
            done = number // steps
            task.progress(f"round {done + 1:,} of {rounds:,}", done / rounds)
            if number:
                _change_places(session, number, start.critic)
        at_once = task.at_once if number else 1
        state = _step(session, agreed, conditions, state, number, at_once)
    return agreed.result(trainer, (state.net, None), synth)


def _step(
    session: Session, agreed: Agreed, conditions: Any, state: Any, number: int, at_once: int
) -> Any:
    """One update of every critic, and of the generator and its moments, which are returned."""
    import jax
    import jax.numpy as jnp

    from siloweave.models.gan import asked_rows, followed

    learner: Any = agreed.learner
    key = jax.random.fold_in(agreed.keys.steps, number)
    asked, made = asked_rows(learner.step, state.net, conditions, key)
    fake, again = (Array.of(np.asarray(x), "<f4") for x in made)
    places, again_places = (Array.of(np.asarray(x), "<u4") for x in asked)
    replies = session.ask(Judge(number, fake, places, again, again_places), at_once=at_once)
    mean = np.zeros(np.shape(made.again))
    for name, reply, weight in zip(session.roster, replies, agreed.weights, strict=True):
        mean += weight * CheckedReply(name).reals("feedback", reply.feedback.value, mean.shape)
    state, finite = followed(learner.step, state, asked, jnp.float32(mean), key)
    if not finite:
        raise InputError(f"training diverged in step {number + 1}; lower rate")
    return state


def _change_places(session: Session, number: int, like: Any) -> None:
    """Every critic moves to the next party of the roster."""
    critics = [reply.critic.value for reply in session.ask(Hand(number))]
    for name, critic in zip(session.roster, critics, strict=True):
        networks(name, critic, like, number)
    moved = zip(session.roster, [critics[-1], *critics[:-1]], strict=True)
    session.ask_each({name: Take(number, critic) for name, critic in moved})
