"""VertiGAN as other parties see it: a row is replaced elsewhere, runs are replayed, and mutants.

Such a party holds the same people, so for it no row comes or goes; the values of one change at all
other parties. It knows every number that it drew itself, and every stream that follows from what it
is sent. It can subtract such noise, so that is drawn afresh in the replay, and protects nothing:
only what others draw from their own entropy is replayed. Then the two worlds must look alike to it,
byte for byte, and other parties' noise must pay for how far their own inputs moved. Parties that
pool what they know, with the server or without it, are one such viewer: the server adds what all
others reply.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from math import ceil, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import msgspec
import numpy as np
import pandas as pd
import pytest
from msgspec import UNSET

from siloweave.core import party as core
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope, reply_type
from siloweave.methods.vertigan import method, party
from siloweave.methods.vertigan.messages import (
    BeginVertiGAN,
    CountOwnColumns,
    TrainCritics,
    VertiGANPlan,
)
from siloweave.methods.vertigan.method import VertiGAN
from siloweave.models.gan_networks import RowLoss
from siloweave.privacy import gradients, mechanisms, shared_steps
from siloweave.privacy.accountants import Tally, epsilon, epsilon_to_parties
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import Gaussian, SampledSharedGaussian
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.tables import Column, Schema
from tests.federation.sites import handlers_of
from tests.federation.small import reply_in
from tests.guarantees.replay import Call, record, replay
from tests.guarantees.test_private_rounds import coins
from tests.guarantees.test_vertigan import unclipped
from tests.guarantees.whole import claimed_sigma, plain
from tests.methods.test_vertigan import NET

NAMES = ("north", "south", "east", "west")
OPTIONS = {"kind": ("a", "b", "c"), "sex": ("f", "m")}
MADE = VertiGAN(**{**NET, "rounds": 2, "batch": 30}, clip=0.01, finest_bins=8)
ROWS = 40
SERVER = "the server"
REPLIES = (CountOwnColumns, BeginVertiGAN, TrainCritics)  # of which the server sees every reply


class Own(SeededEntropy):
    """Entropy of one party alone, and all that follows from it."""

    def __init__(self, seed, owner=None):
        super().__init__(seed)
        self.owner = seed.partition(b"/")[2].decode() if owner is None else owner

    def at(self, step):
        return Own(self._key + step.encode(), self.owner)


@dataclass
class View:
    """What viewers receive, draw and can make again, and who drew the batches."""

    received: list = field(default_factory=list)  # requests, as bytes
    replied: list = field(default_factory=list)  # by all, where the server is one of the viewers
    known: list = field(default_factory=list)  # exact numbers, noisy ones, and noise's width
    batches: Counter = field(default_factory=Counter)  # how many, by whose entropy draws them
    fitted: Any = None


def worlds(number, viewers):
    """A table split over parties, and one whose last person is another one to all but viewers."""
    rng = np.random.default_rng(number)
    one, other = {}, {}
    for name in NAMES[:number]:
        frame = pd.DataFrame({f"{name} {c}": rng.choice(o, ROWS) for c, o in OPTIONS.items()})
        frame.loc[ROWS - 1] = ["c", "f"]
        one[name], other[name] = frame, frame.copy()
        if name not in viewers:
            other[name].loc[ROWS - 1] = ["a", "m"]
    return one, other


@contextmanager
def seen_by(viewers, roster):
    """Watch a run; what viewers can make again bypasses mechanisms that are replayed."""
    view, send, noisy = View(), Direct.send, mechanisms.add_gaussian
    unknown = {str(k) for k, name in enumerate(roster) if name not in viewers}

    def sent(transport, name, frame):
        body, answer = messages.decode(frame, Envelope).body, send(transport, name, frame)
        if name in viewers:
            view.received.append(body)
        request = messages.decode_request(body, handlers_of(transport))
        if SERVER in viewers and type(request) in REPLIES:
            reply = reply_in(answer, reply_type(type(request)))
            view.replied.append((name, [plain(getattr(reply, n)) for n in reply.__struct_fields__]))
        return answer

    def add_gaussian(values, sigma, *, entropy):
        if getattr(entropy, "owner", None) in unknown:
            return noisy(values, sigma, entropy=entropy)
        answer = _REAL(values, sigma, entropy=entropy)
        view.known.append((np.asarray(values).tolist(), np.asarray(answer).tolist(), sigma))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "SeededEntropy", Own)
        patch.setattr(Direct, "send", sent)
        patch.setattr(mechanisms, "add_gaussian", add_gaussian)
        DRAWN.clear()
        yield view
        view.batches.update(DRAWN)


_REAL = mechanisms.add_gaussian
DRAWN: list[str | None] = []  # from whose entropy batches of a run are drawn


def run_of(data, viewers, budget):
    columns = [
        Column(f"{name} {c}", "categorical", categories=o) for name in data
        for c, o in OPTIONS.items()
    ]  # fmt: skip
    with seen_by(viewers, list(data)) as view:
        view.fitted = MADE.fit(
            data, Schema(tuple(columns)).with_fallbacks(), budget=budget, noise="seeded"
        )
    return view


def replaced(event):
    """A release of columns or of steps as it is priced where a row is replaced."""
    if isinstance(event, SampledSharedGaussian):
        return msgspec.structs.replace(event, replace_one=True, order=UNSET)
    assert isinstance(event, Gaussian)
    return msgspec.structs.replace(event, sensitivity=sqrt(2) * event.sensitivity)


def towards(viewers, ledgers, relation):
    """What the claim towards viewers is read from: releases of all others, for a replaced row.

    Their number of rows is no part of it: it is the same in both worlds, and so is its release.
    """
    found = {name: list(events) for name, events in ledgers.items()}
    if relation is Relation.ADD_REMOVE:
        del found[next(iter(found))][0]
        found = {name: [replaced(one) for one in events] for name, events in found.items()}
    return [one for name, events in found.items() if name not in viewers for one in events]


@dataclass(frozen=True)
class Charged:
    """A charge, and how far inputs moved of the noise after it that viewers do not know."""

    owner: str
    event: Any
    moved: list[tuple[Call, np.ndarray]]


def charged(tape, moves: Iterable[tuple[Call, np.ndarray]]):
    """Every charge of a run with its noise."""
    found, left = [], iter(moves)
    for call in tape.calls:
        if call.name == "charge":
            found.append(Charged(call.settings["owner"], call.settings["event"], []))
        else:
            then, moved = next(left)
            assert then is call
            found[-1].moved.append((call, moved))
    return found


def check(viewers, number=2, relation=Relation.ADD_REMOVE):
    """Fail unless parties see nothing of a row replaced elsewhere but what others paid for.

    Returns how much of its price a step costs at most, and how much all releases do.
    """
    budget, runs = Budget(4.0, 1e-5, relation=relation), []
    one, other = worlds(number, viewers)
    tape = record(lambda: runs.append(run_of(one, viewers, budget)))
    twin = replay(tape, lambda: runs.append(run_of(other, viewers, budget)))
    first, second = runs
    ledgers = {n: [e.event for e in own] for n, own in first.fitted.ledgers.items()}
    assert ledgers == {n: [e.event for e in own] for n, own in second.fitted.ledgers.items()}
    names, used, spent = " and ".join(viewers), [], 0.0
    charges = charged(tape, twin.moved)
    for paid in charges:
        if paid.owner in viewers:
            assert not paid.moved
            continue
        hides = isinstance(paid.event, SampledSharedGaussian)
        claimed = claimed_sigma(paid.event) if hides else paid.event.sigma
        calls = [call.settings["sigma"] for call, _ in paid.moved]
        assert calls == [claimed] * paid.event.count, f"{names} can subtract noise that is counted"
        rows = paid is charges[0] and relation is Relation.ADD_REMOVE  # how many there are
        as_read = replaced(paid.event) if relation is Relation.ADD_REMOVE else paid.event
        for call, moved in paid.moved:
            cost = float((moved.astype(float) ** 2).sum()) / (2 * call.settings["sigma"] ** 2)
            assert cost <= (0 if rows else as_read.rho * (1 + 1e-9)), "inputs moved too far"
            spent += cost
            used += [cost / as_read.rho] * hides
    read = towards(viewers, ledgers, relation)
    price = sum(event.rho * event.count for event in read)
    assert spent <= price * (1 + 1e-9)
    assert relation is Relation.ADD_REMOVE or epsilon(read, budget.delta) <= budget.epsilon
    batches = {str(k): MADE.steps for k in range(number)}
    assert first.batches == batches, f"{names} knows which rows are drawn for a step"
    assert first.received == second.received, f"what {names} is sent depends on others' rows"
    assert first.replied == second.replied, f"what {names} is sent depends on others' rows"
    assert first.known == second.known
    pd.testing.assert_frame_equal(first.fitted.sample(9, seed=0), second.fitted.sample(9, seed=0))
    return max(used), spent / price


def factors(loss, model, rows, mask, clip, key, layer, rows_per_unit):
    return gradients.factors(
        loss, model, rows, mask, clip=clip, key=key, layer=layer, rows_per_unit=rows_per_unit
    )


TURNED = eqx.filter_jit(factors)  # another program than that of the honest loss


@pytest.fixture(autouse=True)
def worst_case(monkeypatch):
    """Neighbours draw the same rows, and gradients of the two people point away from each other."""
    real = RowLoss.__call__

    def turned(self, critic, row, key):
        return real(self, critic, row, key) * jnp.where(row[0] > 0.5, 1.0, -1.0)

    def drawn(number, rate, *, entropy):
        DRAWN.append(getattr(entropy, "owner", None))
        return coins(number, rate, entropy=entropy)

    monkeypatch.setattr(RowLoss, "__call__", turned)
    monkeypatch.setattr(gradients, "_compiled", TURNED)
    monkeypatch.setattr(gradients, "drawn", drawn)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(
    ("number", "viewers"),
    [
        (2, ["north"]),
        (2, ["south"]),
        (2, ["south", SERVER]),
        (4, ["south"]),
        (4, ["west"]),
        (4, ["north", "east"]),
        (4, ["south", "east", "west"]),
        (4, ["south", "west", SERVER]),
    ],
)
def test_to_other_parties_a_replaced_row_costs_what_others_paid_and_hardly_less(
    number, viewers, relation
):
    step, all_of_it = check(viewers, number, relation)
    assert step > 0.8
    assert all_of_it > 0.5  # the row is not in every batch


# Mutants


def noise_of_the_seed(patch):
    """It follows from a number that every party is sent, 0 here."""

    def add_gaussian(values, sigma, *, entropy):
        return mechanisms.add_gaussian(values, sigma, entropy=SeededEntropy(0))

    patch.setattr(party, "mechanisms", SimpleNamespace(add_gaussian=add_gaussian))


def half_of_it_shared_by_all(patch):
    """Noise as wide as it is charged for, but all parties know one of its two shares."""

    def add_gaussian(values, sigma, *, entropy):
        own = mechanisms.add_gaussian(values, sigma / sqrt(2), entropy=entropy)
        return mechanisms.add_gaussian(own, sigma / sqrt(2), entropy=SeededEntropy(0))

    patch.setattr(party, "mechanisms", SimpleNamespace(add_gaussian=add_gaussian))


def a_share_that_nobody_adds(patch):
    """Two shares are counted, as if another party's noise lay on the same numbers."""
    honest = VertiGANPlan.steps_event

    def steps_event(plan, request, count):
        return msgspec.structs.replace(honest(plan, request, count), shares=2)

    def noise(plan, rows, dimension):
        return shared_steps.plan_steps(
            plan.budget, rate=plan.rate(rows), steps=plan.steps, shares=2, tolerated=0,
            dimension=dimension, others=plan._all, order=plan.order,
        )  # fmt: skip

    patch.setattr(VertiGANPlan, "steps_event", steps_event)
    patch.setattr(VertiGANPlan, "noise", noise)


def batches_that_all_can_make(patch):
    honest = gradients.drawn
    patch.setattr(gradients, "drawn", lambda *of, entropy: honest(*of, entropy=SeededEntropy(0)))


def slopes_that_follow_a_row(patch):
    honest = party._privately

    def privately(state, *how):
        own, slope = honest(state, *how)
        return own, slope if state.rows[-1, 0] > 0.5 else -slope

    patch.setattr(party, "_privately", privately)


def a_row_priced_as_if_it_came_or_went(patch):
    patch.setattr("tests.guarantees.test_vertigan_views.replaced", lambda event: event)


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        (a_row_priced_as_if_it_came_or_went, "inputs moved too far"),
        (noise_of_the_seed, "south can subtract noise that is counted"),
        (half_of_it_shared_by_all, "south can subtract noise that is counted"),
        (a_share_that_nobody_adds, "south can subtract noise that is counted"),
        (batches_that_all_can_make, "south knows which rows are drawn"),
        (unclipped, "inputs moved too far"),
        (slopes_that_follow_a_row, "what south is sent depends on others' rows"),
    ],
)
def test_mutants_are_seen(mutant, words, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        check(["south"])


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        (half_of_it_shared_by_all, "south and west can subtract noise that is counted"),
        (batches_that_all_can_make, "south and west knows which rows are drawn"),
        (slopes_that_follow_a_row, "what south and west is sent depends on others' rows"),
    ],
)
def test_mutants_are_seen_by_parties_that_pool_what_they_know(mutant, words, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        check(["south", "west"], 4)


# What is stated


@cache
def reading(number, pooled=1):
    """The largest epsilon towards so many parties together, where rows added or removed cost 1."""
    kinds = [Column(f"c{k}", "categorical", categories=("a", "b", "c")) for k in range(7)]
    columns = [*kinds, *(Column(f"n{k}", "continuous", low=0.0, high=1.0) for k in range(7))]
    parts = {
        name: Schema(tuple(columns[k::number])).with_fallbacks()
        for k, name in enumerate(NAMES[:number])
    }
    synth, budget = VertiGAN(), Budget(1.0, 1e-6)
    plan = VertiGANPlan.of(synth, parts, budget)
    ledgers = plan.ledgers(plan.begin(0, 40_000, 8_000), synth.steps)
    assert 0.99 < epsilon([one for own in ledgers.values() for one in own], 1e-6) <= 1
    found = []
    for viewers in combinations(parts, pooled):
        replaced_row = epsilon(towards(viewers, ledgers, Relation.ADD_REMOVE), budget.delta)
        # A replaced row is one that goes and one that comes, so that bound holds, too.
        seen = [event for name in parts if name not in viewers for event in ledgers[name]]
        found.append(min(replaced_row, Tally(seen).epsilon_of_several(2, budget.delta)))
    if pooled == 1:  # as every run of these settings states it
        stated = epsilon_to_parties(ledgers.values(), budget.delta)
        assert max(found) <= stated < 1.02 * max(found)
    return max(found)


def test_the_threat_model_says_what_other_parties_could_reach():
    two, four, pooled = (ceil(10 * reading(*of)) / 10 for of in ((2,), (4,), (4, 2)))
    page = Path(__file__).parents[2] / "docs" / "concepts" / "threat-model.md"
    text = " ".join(page.read_text("utf-8").split())
    assert f"becomes {two} there with two parties, and {four} with four" in text
    assert f"For two of four parties that is ε = {pooled}" in text
    assert f"is {two} with two parties and {four} with four" in " ".join(method.__doc__.split())
