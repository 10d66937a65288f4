"""The coordinator's side of Fed-TGAN and MD-TGAN: encoders, weights of parties, and all rounds.

Zhao et al. 2021, McMahan et al. 2017 and Hardy et al. 2019, see method.py. There is no guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from siloweave.core.method import Result, Task
from siloweave.core.model import FeatureModel
from siloweave.errors import InputError, WireError
from siloweave.federation.expected import FLOATS, LARGEST, MOST_ROWS, CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.methods.fed_tgan import messages
from siloweave.methods.fed_tgan.party import RoundTrainer, keys_of
from siloweave.methods.fed_tgan.settings import (
    CriticsSynthesizer,
    RoundsSynthesizer,
    Weights,
)
from siloweave.tables import summaries
from siloweave.tables.arrays import Floats
from siloweave.tables.features import Features, OneWay
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models import rounds

_FAR = 0.05  # how far beyond the middle party's distance a weight falls by e


def weights_of(
    S: Floats, rows: Sequence[int], weights: Weights = "similarity and size"
) -> Floats:
    """Return the parties' weights of Fed-TGAN, section 4.2, or of one of its ablations.

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
        mean_distances = S.mean(1) if S.size else np.zeros(len(n))
        # Only far parties lose: one that is nearer than the middle party gains nothing by it.
        excess = np.maximum(mean_distances - np.median(mean_distances), 0.0)
        masses = n * np.exp(-excess / _FAR)
        return np.asarray(masses / masses.sum())

    # Each column's distances are scaled to sum 1 over parties. Where all are 0, so are all equal.
    totals = S.sum(0)
    divisors = np.where(totals > 0, totals, 1.0)
    scaled = np.where(totals > 0, S / divisors, 1.0 / len(n))

    # SS_i, a party's distance over all columns, as a share of everyone's.
    distance = scaled.sum(1)
    if distance.sum() > 0:
        distance_share = distance / distance.sum()
    else:
        distance_share = np.full(len(n), 1.0 / len(n))

    # SD_i = (1 - SS_i / sum_k SS_k) N_i / N, of which ablations drop a factor.
    similarity = 1.0 - distance_share
    factors: dict[str, Floats] = {
        "similarity and size": similarity * n,
        "similarity": similarity,
        "size": n,
        "equal": np.zeros(len(n)),
    }

    # W = softmax(SD). As SD lies in [0, 1], no weight is more than e times another.
    odds = np.exp(factors[weights])
    return np.asarray(odds / odds.sum())


# Before the first round


@dataclass(frozen=True)
class Agreed:
    """The facts on which all parties have agreed before the first round."""

    features: Features  # encoders of every column
    learner: rounds.Learner  # what trains on their vectors
    facts: rounds.Facts  # what everyone's vectors add up to
    weights: Floats  # of the parties in a mean
    one_way: OneWay  # distributions of single columns, over all parties
    keys: rounds.Keys  # of the whole training

    def result(self, trainer: RoundTrainer, shared: Any, target: str | None) -> Result:
        """Build the result from the trained networks."""
        net = trainer.model(self.learner.finish(shared, self.facts, self.keys.end))
        model = FeatureModel(net, self.features, self.one_way, target)
        return Result(model, self.facts.rows, {"party_weights": self.weights.tolist()})


def agree(trainer: RoundTrainer, session: Session, task: Task) -> Agreed:
    """Agree with all parties on encoders and weights, and add up the facts of their vectors.

    Raises:
        WireError: Naming the party, where it sent what does not fit.
    """
    synth = cast(RoundsSynthesizer, task.setup.synth)
    schema = task.setup.schema
    task.progress("agreeing on encoders", 0.0)

    # Step 1: every party summarises its columns.
    party_summaries, rows = _summaries(session, schema)

    # Step 2: one encoder of each column, from all summaries.
    features = summaries.agreed_features(
        schema, party_summaries, numeric=trainer.numeric
    )

    # Step 3: weights, by how far each party's columns are from everyone's.
    alike = summaries.distances(schema, party_summaries, alike=True)
    S = alike
    if synth.weights != "typical":
        S = summaries.distances(schema, party_summaries)
    weights = weights_of(S, rows, synth.weights)

    # Rows are raked to the single columns of all parties together. Where the weights doubt far
    # parties, or leave rows out of account, far parties count less there, too.
    pooling: Weights = "rows" if synth.weights == "rows" else "typical"
    pooling_weights = weights_of(alike, rows, pooling)
    one_way = summaries.agreed_shares(schema, party_summaries, pooling_weights.tolist())

    learner = trainer.learner(synth, features.blocks, len(session.roster))
    facts = _facts(session, features, rows, learner, task.seed)
    keys = keys_of(learner, task.seed)
    return Agreed(features, learner, facts, weights, one_way, keys)


def _summaries(
    session: Session, schema: Schema
) -> tuple[list[tuple[summaries.ColumnSummary, ...]], list[int]]:
    """Ask every party for summaries of all its columns, and its number of rows."""

    def read(text: bytes) -> tuple[summaries.ColumnSummary, ...]:
        columns = msgspec.json.decode(text, type=tuple[summaries.ColumnSummary, ...])
        summaries.distances(schema, [columns])  # refuses summaries of other columns
        return columns

    party_summaries = []
    party_rows = []
    replies = session.ask(messages.Describe())
    for name, reply in zip(session.roster, replies, strict=True):
        checked = CheckedReply(name)
        n = checked.number("rows", reply.rows.value, least=1, most=MOST_ROWS)
        column_summaries = checked.json("columns", reply.columns.value, read)
        # Columns of more rows than the party has would count for more than its weight.
        for summary in column_summaries:
            checked.number(
                f"rows of column {summary.column!r}", summary.rows, least=n, most=n
            )
        party_rows.append(n)
        party_summaries.append(column_summaries)
    return party_summaries, party_rows


def _facts(
    session: Session,
    features: Features,
    rows: Sequence[int],
    learner: rounds.Learner,
    seed: int,
) -> rounds.Facts:
    """Send everyone the features, and add up the sums of the vectors that they give."""
    from siloweave.models import rounds

    layout = learner.layout
    party_facts = []
    replies = session.ask(messages.Prepare(features.to_json(), seed))
    for name, n, reply in zip(session.roster, rows, replies, strict=True):
        checked = CheckedReply(name)
        sums = checked.array("sums", reply.sums.value, FLOATS, (4, layout.width))
        facts = rounds.Facts(n, sums)
        if not facts.possible(layout, LARGEST):
            raise checked.wrong(
                "sums", f"those of {n:,} rows between the least and the largest"
            )
        party_facts.append(facts)
    return rounds.Facts.together(party_facts)


# Fed-TGAN


def coordinate(trainer: RoundTrainer, session: Session, task: Task) -> Result:
    """Run all rounds over the roster; with one party, that is the central method.

    Raises:
        WireError: Naming the party, for what is no answer, or networks that are not finite.
    """
    from siloweave.models import rounds

    synth = cast(RoundsSynthesizer, task.setup.synth)
    agreed = agree(trainer, session, task)
    learner = agreed.learner
    facts = agreed.facts
    sums = Array.of(facts.sums, "<f8")
    start = learner.start(agreed.keys.initial, 1)
    shared, _ = learner.split(start)
    num_rounds = learner.num_rounds(synth.rounds, facts.rows)
    for number in range(num_rounds):
        task.progress(f"round {number + 1:,} of {num_rounds:,}", number / num_rounds)

        # Step 4: all parties train for a round, from the same networks.
        request = messages.Round(number, facts.rows, sums, rounds.packed(shared))
        # The first round compiles: one after the other, so that it is done once.
        at_once = task.at_once if number else 1
        replies = session.ask(request, at_once=at_once)

        is_last = number == num_rounds - 1
        like = learner.result(start) if is_last else shared
        trees = []
        for name, reply in zip(session.roster, replies, strict=True):
            tree = networks(name, reply.networks.value, like, number)
            trees.append(tree)

        # The next round begins with the weighted mean; of a GAN, of generator and critic alike.
        shared = learner.together(trees, agreed.weights.tolist())
    return agreed.result(trainer, shared, task.setup.target)


def networks(name: str, data: bytes, like: Any, number: int) -> Any:
    """Read the networks that a party sent after a round.

    Args:
        name: Of the party.
        data: What it sent.
        like: Networks of the shapes that are expected.
        number: Of the round.

    Raises:
        WireError: Naming the party; they are not of these shapes, or beyond any training.
    """
    import jax

    from siloweave.models import rounds

    try:
        tree = rounds.unpacked(data, like)
    except InputError as error:
        raise WireError(f"party {name!r}, round {number}: {error}") from error
    # One such weight would be in everyone's mean, and soon in all weights.
    if any(
        np.abs(weights).max(initial=0) > LARGEST for weights in jax.tree.leaves(tree)
    ):
        raise WireError(
            f"party {name!r}, round {number}: its networks have weights beyond {LARGEST:,.0f}, "
            "which no training leaves; lower the learning rate, or check which software this "
            "party runs"
        )
    return tree


# MD-TGAN


def coordinate_critics(trainer: RoundTrainer, session: Session, task: Task) -> Result:
    """Run all steps of MD-TGAN; a round is an epoch of the mean number of rows of a party.

    Raises:
        WireError: Naming the party, for what is no answer.
        InputError: The training diverged.
    """
    from siloweave.models import gan
    from siloweave.models.conditional import drawing

    synth = cast(CriticsSynthesizer, task.setup.synth)
    agreed = agree(trainer, session, task)
    learner: Any = agreed.learner
    start = learner.start(agreed.keys.initial, 1)
    conditions = drawing(learner.conditions(agreed.facts))
    # The generator and its moments, which stay here; critics are the parties'.
    state = gan.Critics(start.generator, start.generator_moments)

    num_rounds = synth.rounds
    steps = synth.epochs * learner.epoch(agreed.facts.rows // len(session.roster))
    for number in range(num_rounds * steps):
        if number % steps == 0:
            finished_rounds = number // steps
            task.progress(
                f"round {finished_rounds + 1:,} of {num_rounds:,}",
                finished_rounds / num_rounds,
            )
            # Critics change places, so that none learns one party's rows by heart.
            if number:
                _change_places(session, number, start.critic)
        at_once = task.at_once if number else 1
        state = _step(session, agreed, conditions, state, number, at_once)
    return agreed.result(trainer, (state.net, None), task.setup.target)


def _step(
    session: Session,
    agreed: Agreed,
    conditions: Any,
    state: Any,
    number: int,
    at_once: int,
) -> Any:
    """Update every critic and the generator once; return the generator and its moments."""
    import jax
    import jax.numpy as jnp

    from siloweave.models import gan

    learner: Any = agreed.learner
    key = jax.random.fold_in(agreed.keys.steps, number)

    # Generated rows: the first for critics to learn from, others for them to judge.
    conditions_asked, rows = gan.asked_rows(learner.step, state.net, conditions, key)
    request = messages.Judge(
        number,
        Array.of(np.asarray(rows.fake), "<f4"),
        Array.of(np.asarray(conditions_asked.places), "<u4"),
        Array.of(np.asarray(rows.again), "<f4"),
        Array.of(np.asarray(conditions_asked.again), "<u4"),
    )
    replies = session.ask(request, at_once=at_once)

    # The generator follows the weighted mean of what all critics answer.
    mean = np.zeros(np.shape(rows.again))
    for name, reply, weight in zip(
        session.roster, replies, agreed.weights, strict=True
    ):
        feedback = CheckedReply(name).reals(
            "feedback", reply.feedback.value, mean.shape
        )
        mean += weight * feedback
    state, is_finite = gan.followed(
        learner.step, state, conditions_asked, jnp.float32(mean), key
    )
    if not is_finite:
        raise InputError(f"training diverged in step {number + 1}; lower rate")
    return state


def _change_places(session: Session, number: int, like: Any) -> None:
    """Move every critic to the next party of the roster."""
    critics = [reply.critic.value for reply in session.ask(messages.Hand(number))]
    # All are checked before any moves: no party is given what another made up.
    for name, critic in zip(session.roster, critics, strict=True):
        networks(name, critic, like, number)
    next_critics = [critics[-1], *critics[:-1]]
    moves = zip(session.roster, next_critics, strict=True)
    session.ask_each({name: messages.Take(number, critic) for name, critic in moves})
