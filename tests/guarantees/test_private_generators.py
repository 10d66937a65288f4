"""DP-CTGAN, DP-TabDDPM and DP-TLDM on neighbours: the whole run, from rows to weights, replayed."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import msgspec
import numpy as np
import pandas as pd
import pytest

import siloweave
from siloweave.core.method import Setup, Task
from siloweave.errors import WireError
from siloweave.federation.session import Session
from siloweave.methods.dp_sgd.coordinator import counts_event
from siloweave.methods.dp_sgd.messages import BeginTraining, Step
from siloweave.models import diffusion
from siloweave.models.rounds import packed
from siloweave.privacy import accountants as ac
from siloweave.privacy import gradients
from siloweave.privacy.budget import Budget, Relation, rho_for
from siloweave.privacy.events import SampledSharedGaussian, SharedGaussian, order_of
from siloweave.protocols.histograms import (
    CountColumns,
    CountRows,
    HistogramData,
    NoisyHistogram,
    count_columns,
)
from siloweave.protocols.secure_sums import KeyRequest
from siloweave.tables import Column, Schema
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.read import read
from tests.guarantees.replay import record
from tests.guarantees.test_private_rounds import coins, of_steps, unclipped
from tests.guarantees.whole import paid_calls, run_of, sums_of, twins
from tests.synthesizers.families import PRIVATE_GENERATORS, takes_target

SCHEMA = (
    Schema(
        (
            Column("size", "continuous", low=-4.0, high=4.0),
            Column("kind", "categorical", categories=("a", "b", "c")),
            Column("sex", "categorical", categories=("f", "m")),
        )
    )
    .with_fallbacks()
    .placed()
)
ENCODER = Encoder(SCHEMA, 6)
NET = {"hidden": (4,), "embed": 4, "timesteps": 4, "steps": 4}
SETTINGS = {
    "dp_ctgan": {"batch": 99, "steps": 4, "ratio": 2, "generator": (4,), "critic": (4,)},
    "dp_tabddpm": {"batch": 12, **NET},
    "dp_tldm": {
        "autoencoder": {"batch": 99, "steps": 3, "hidden": (4,), "latent": 2},
        "diffusion": {"batch": 99, **NET},
    },
}
PAID = {"dp_ctgan": 4, "dp_tabddpm": 4, "dp_tldm": 7}
BUDGET = Budget(epsilon=5.0, delta=1e-5)
CLIP = 0.01  # every row reaches it
every = pytest.mark.parametrize("name", PRIVATE_GENERATORS)


def frame(rows=40):
    """Rows whose last one is far from all others."""
    rng = np.random.default_rng(1)
    made = pd.DataFrame(
        {
            "size": rng.uniform(-1, 0, rows),
            "kind": rng.choice(["a", "b"], rows),
            "sex": rng.choice(["f", "m"], rows),
        }
    )
    made.loc[rows - 1] = [4.0, "c", "f"]
    return made


def part(data):
    table = read(data)
    return {"curator": HistogramData(table, ENCODER, ENCODER.encode(table))}


def neighbours(relation=Relation.ADD_REMOVE):
    whole = frame()
    if relation is Relation.REPLACE_ONE:
        other = whole.copy()
        other.loc[len(other) - 1] = [-4.0, "a", "m"]
        return part(whole), part(other)
    return part(whole), part(whole[:-1])


@dataclass(frozen=True)
class Study:
    """The rounds of a central generator: a roster of one."""

    name: str = "dp_tabddpm"
    budget: Budget = BUDGET
    clip: float = CLIP

    changes: tuple = ()
    handlers: object = None

    @property
    def made(self):
        kind = PRIVATE_GENERATORS[self.name]
        target = {"target": "sex"} if takes_target(kind) else {}
        settings = SETTINGS[self.name] | target | dict(self.changes)
        return kind(**settings, clip=self.clip, finest_bins=6)

    def opened(self, roster, seed=0):
        """The owner, who waits for a coordinator; and the run's public facts."""
        made = self.made
        setup = Setup(made, SCHEMA, self.budget, ("curator",))
        answers = self.handlers or made.method.handlers(made)
        facts = made.method.facts(setup)
        return run_of(roster, answers, budget=self.budget, seed=seed, facts=facts), setup

    def __call__(self, roster, seed=0):
        run, setup = self.opened(roster, seed)
        session = Session(("curator",), run.wire, run="r")
        run.model = setup.synth.method.coordinate(session, Task(setup, rho_for(self.budget), seed))
        return run


@pytest.fixture(autouse=True)
def same_coins(monkeypatch):
    """Here neighbours draw alike; sampling itself is tested with the rounds of several parties."""
    monkeypatch.setattr(gradients, "drawn", coins)


def weights_of(run):
    network = run.model.model.net.net
    arrays = eqx.filter([getattr(network, n) for n in vars(network)], eqx.is_array)
    return packed(arrays) + packed(_nets(network)) + run.model.model.one_way.to_json().encode()


def _nets(network):
    inner = [getattr(network, name, None) for name in ("net", "generator", "coder", "diffusion")]
    return [getattr(one, "net", one) for one in inner]


@every
def test_a_row_moves_what_was_paid_for_and_nothing_else(name):
    pair = twins(Study(name), *neighbours())
    pair.check()
    events = pair.first.ledger("curator").events
    assert [type(e) for e in events] == [SharedGaussian, *PAID[name] * [SampledSharedGaussian]]
    assert {(e.shares, e.tolerated) for e in events} == {(1, 0)}
    far = [
        np.linalg.norm(moved.astype(float)) / p.event.sensitivity
        for p, (_, moved) in zip(paid_calls(pair.tape), pair.twin.moved, strict=True)
        if isinstance(p.event, SampledSharedGaussian)
    ]
    assert 0.9 < max(far) <= 1  # a row at the clip: the bound is no fantasy
    assert pair.first.ledger("curator").epsilon() > 0.9 * BUDGET.epsilon
    assert weights_of(pair.first) == weights_of(pair.second)


def test_under_replace_one_the_number_of_rows_is_public_and_costs_nothing():
    budget = replace_one()
    pair = twins(Study(budget=budget), *neighbours(Relation.REPLACE_ONE))
    pair.check()
    counts, *steps = pair.first.ledger("curator").events
    assert counts.sensitivity == pytest.approx(np.sqrt(2 * len(SCHEMA.columns)))
    assert all(step.replace_one for step in steps)
    assert pair.first.model.num_rows == len(frame())
    hidden, _ = Study().opened(neighbours()[0])
    with pytest.raises(WireError, match="'curator' hides its number of rows"):
        Session(("curator",), hidden.wire, run="r").ask(CountRows())


def replace_one():
    return Budget(2.0, 1e-5, relation=Relation.REPLACE_ONE)


@pytest.mark.parametrize("relation", Relation)
def test_the_noise_is_the_least_that_the_ledger_reads_as_the_budget(relation):
    budget, texts = Budget(2.0, 1e-5, relation=relation), []
    made = Study(clip=0.5).made
    fitted = made.fit(frame(), SCHEMA, budget=budget, noise="seeded",
                      progress=lambda text, done: texts.append(text))  # fmt: skip
    assert any("step 4 of 4" in text for text in texts)
    assert not any("loss" in text for text in texts)
    assert 0.99 * budget.epsilon < fitted.epsilon <= budget.epsilon
    counts, *steps = [entry.event for entry in fitted.ledgers["curator"]]
    less = [msgspec.structs.replace(e, share_sigma=e.share_sigma * 0.997) for e in steps]
    assert (order_of(steps[0]) is None) is (relation is Relation.REPLACE_ONE)
    assert ac.epsilon([counts, *less], budget.delta) > budget.epsilon
    assert fitted.settings["share_sigma"] == steps[0].share_sigma


def another_program():
    """Compiled anew, so that what a test changed is part of it."""

    def factors(loss, model, rows, mask, clip, key, layer, rows_per_unit):
        return gradients.factors(
            loss, model, rows, mask, clip=clip, key=key, layer=layer, rows_per_unit=rows_per_unit
        )

    return eqx.filter_jit(factors)


# What the noise looks like


def test_every_released_number_is_whole_wherever_the_clipped_sum_is_0():
    """Float noise would single rows out at such coordinates, here noise is alike everywhere.

    A class of the label that nobody has who was drawn gets no gradient at all.
    """
    runs = []
    tape = record(lambda: runs.append(Study(changes=(("batch", 2),))(neighbours()[0])))
    found = [s for s in sums_of(runs[0], tape) if isinstance(s.request, Step)]
    exact, noise = (np.concatenate([getattr(s, n) for s in found]) for n in ("exact", "noise"))
    sigma = found[0].event.share_sigma
    still = exact == 0
    assert 16 <= still.sum() < still.size
    assert noise.dtype.kind == "i" or (noise == np.rint(noise)).all()
    for some in (noise[still], noise[~still]):
        assert 0.6 < some.std() / sigma < 1.5
    assert sigma > 1000  # units: the grid is far finer than the noise


def test_a_sum_of_real_losses_that_overflows_aborts_nothing(monkeypatch):
    """Each row's loss is finite, their float32 sum is not, and no gradient is any other."""
    plain = Study(clip=0.5).made.fit(frame(), SCHEMA, budget=BUDGET, noise="seeded")
    real = diffusion._Descent.losses

    def huge(self, net, rows, key):
        return real(self, net, rows, key) + 3e38 * jax.lax.stop_gradient(rows.numbers[:, 0] < 9)

    monkeypatch.setattr(diffusion._Descent, "losses", huge)
    monkeypatch.setattr(gradients, "_compiled", another_program())
    heavy = Study(clip=0.5).made.fit(frame(), SCHEMA, budget=BUDGET, noise="seeded")
    one, other = (packed(fitted.model.net.net.net) for fitted in (plain, heavy))
    assert one == other
    assert heavy.epsilon == plain.epsilon


# Known faults are seen


@pytest.mark.parametrize("name", ["dp_tabddpm", "dp_tldm"])
def test_mutants_whose_clip_does_not_bound_what_is_summed_are_caught(monkeypatch, name):
    monkeypatch.setattr(gradients, "_scale", unclipped(gradients._scale))
    monkeypatch.setattr(gradients, "_compiled", another_program())
    with pytest.raises(AssertionError, match="above the declared"):
        twins(Study(name), *neighbours()).check()


def test_the_mutant_that_rounds_to_another_grid_than_it_pays_for_is_caught(monkeypatch):
    of_steps(monkeypatch, lambda event, x: (event, 2 * x))
    with pytest.raises(AssertionError, match=r"above|was charged"):
        twins(Study(), *neighbours()).check()


def test_the_mutant_whose_shares_of_the_label_nobody_paid_for_is_caught(monkeypatch):
    honest, counted = NoisyHistogram.shares, []

    def peeking(self, features):
        return {k: [counted[-1], 1.0] if len(v) == 2 else v
                for k, v in honest(self, features).items()}  # fmt: skip

    def count(request, site):
        counted.append(float(np.bincount(site.rows.codes.column("sex"), minlength=2)[0]))
        return count_columns(request, site)

    monkeypatch.setattr(NoisyHistogram, "shares", peeking)
    made = Study().made
    study = Study(handlers=made.method.handlers(made) | {CountColumns: count})
    pair = twins(study, *neighbours())
    one, other = (run.model.model.net.net.label_shares for run in (pair.first, pair.second))
    assert one != other


# What a party refuses

BEGIN = BeginTraining(Features.declared(SCHEMA).to_json(), 100, 0.1)


@pytest.mark.parametrize("large", [("steps", 2**30), ("hidden", (60_000, 60_000))])
def test_a_study_that_a_party_cannot_hold_or_finish_is_refused(large):
    run, _ = Study(changes=(large,)).opened(neighbours()[0])
    with pytest.raises(WireError, match=r"party 'curator'.*more than the"):
        Session(("curator",), run.wire, run="r").ask(BEGIN)


def test_a_request_that_is_not_of_the_study_is_refused():
    run, setup = Study().opened(neighbours()[0])
    parties = Session(("curator",), run.wire, run="r")
    other = (
        Schema((Column("size", "continuous", low=0.0, high=9.0), *SCHEMA.columns[1:]))
        .with_fallbacks()
        .placed()
    )
    for wrong in (
        {"features": "{}"},
        {"features": Features.declared(other).to_json()},
        {"levels": 2**40},
        {"rate": float("nan")},
    ):
        with pytest.raises(WireError, match="party 'curator'"):
            parties.ask(msgspec.structs.replace(BEGIN, **wrong))
    assert not run.ledger("curator").entries
    parties.ask(BEGIN)
    (greeting,) = parties.ask(KeyRequest())
    keys, features = {"curator": greeting.key.value}, Features.declared(SCHEMA)
    synth, trainer = setup.synth.method.handlers(setup.synth)[BeginTraining].args
    empty = packed(trainer.build(synth, features, None).empty())
    for wrong in (
        Step(keys, 2.0**40, 0, 0, empty),
        Step(keys, float("nan"), 0, 0, empty),
        Step(keys, 100.0, 0, -1, empty),
        Step(keys, 100.0, 0, 99, empty),
        Step(keys, 100.0, 0, 0, b"none"),
        Step(keys, 100.0, 5, 0, empty),
        Step({}, 100.0, 0, 0, empty),
    ):
        with pytest.raises(WireError, match="party 'curator'"):
            parties.ask(wrong)
    assert not run.ledger("curator").entries


def test_no_message_says_how_rows_are_clipped_or_at_which_order_they_are_paid_for():
    """A party takes both from its own study, and there is no order where a row is replaced."""
    asked = {*BeginTraining.__struct_fields__, *Step.__struct_fields__}
    assert not asked & {"settings", "clip", "order", "target"}
    _, setup = Study(budget=replace_one()).opened(neighbours()[0])
    counts = counts_event(setup)
    assert setup.synth.method.facts(setup) == {"order": None, "counts_sigma": counts.share_sigma}


# Nobody can choose what is to be secret


def test_two_runs_of_the_operating_systems_entropy_differ(monkeypatch):
    """The same seed, and yet other counts, batches and noise; a test's noise is marked."""
    monkeypatch.undo()
    made = Study(clip=0.5).made
    one, other = (made.fit(frame(), SCHEMA, budget=BUDGET, seed=3) for _ in range(2))
    assert one.private
    assert one.info.guarantee == "dp"
    assert not one.sample(30, seed=0).equals(other.sample(30, seed=0))
    assert not made.fit(frame(), SCHEMA, budget=BUDGET, noise="seeded").private


@pytest.mark.parametrize(
    "made",
    [
        siloweave.DPTabDDPM(),
        siloweave.DPTLDM(),
        siloweave.DPFedTabDDPM(),
        siloweave.DPFedPointDiff(),
    ],
)
def test_private_diffusions_take_all_paid_steps_and_draw_as_they_were_measured(made):
    """Decisions 0022 and 0023: whose figures are on record, and whose steps tell no count."""
    own = getattr(made, "diffusion", made)
    assert (own.passes, own.eta) == (None, 0.0)


def test_rows_are_drawn_and_noise_is_added_at_the_party_alone():
    """A step's message carries weights, and nothing of a seed or a secret."""
    fields = set(Step.__struct_fields__) | set(BeginTraining.__struct_fields__)
    assert not fields & {"seed", "key", "secret", "entropy"}
    assert replace(Study(), clip=1.0).made.clip == 1.0
