"""FLAIM whole: record and replay of every variant over random neighbours, what the coordinator
sees of a query that one party alone chose, and who pays when. Mutants are in test_flaim_mutants.py.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from siloweave.errors import BudgetError, WireError
from siloweave.federation.expected import MOST_ROWS
from siloweave.federation.messages import Array, Public
from siloweave.federation.site import Site
from siloweave.methods.flaim import party as flaim_party
from siloweave.methods.flaim.messages import Baseline, Select
from siloweave.methods.flaim.method import FLAIM
from siloweave.models.mrf import MRF
from siloweave.privacy.budget import Relation, rho_for
from siloweave.privacy.events import Exponential, Gaussian, SharedGaussian
from siloweave.protocols.secure_sums import ROUNDING, KeyRequest, ModelMessage, unpacked
from siloweave.tables import Column, Schema
from siloweave.tables.codes import Codes, Domain
from tests.guarantees.flaim_whole import (
    FAST,
    GENEROUS,
    LONE,
    RELATIONS,
    everyone,
    lonely,
    require_noisy,
    residuals,
    thin,
    wide_rows,
)
from tests.guarantees.replay import record
from tests.guarantees.whole import (
    BUDGET,
    FLAIMStudy,
    budget_of,
    claimed_sigma,
    codes,
    dp_variants,
    random_rows,
    require_fresh_masks,
    require_fresh_noise,
    rosters,
    sums_of,
    twins,
)

# Record and replay


@pytest.mark.parametrize("settings", dp_variants())
@pytest.mark.parametrize("relation", RELATIONS)
def test_neighbours_cost_no_more_than_the_ledger_says(relation, settings):
    rng = np.random.default_rng(0)
    for i in range(2 if settings.rounds is None else 8):
        parties = 2 if settings.rounds is None else 3
        study = FLAIMStudy(settings, budget_of(relation), key=i)
        twins(study, *rosters(rng, relation, parties=parties), seed=i).check()


def test_a_party_that_holds_the_target_alone_is_as_safe():
    """From no row to one: weights by the number of rows would show at once."""
    rest = {f"p{k}": codes(random_rows(np.random.default_rng(k), 5)) for k in (1, 2)}
    pair = twins(
        FLAIMStudy(everyone()),
        {"p0": codes([]), **rest},
        {"p0": codes([(0, 0, 0)]), **rest},
    )  # fmt: skip
    pair.check()
    assert 0 < pair.costs()["p0"] <= pair.first.ledger("p0").rho


@pytest.mark.parametrize("variant", ["naive_bayes", "random"])
def test_the_worst_neighbours_cost_all_that_was_charged(variant):
    """Else the check would have no power; these variants release nothing but sums."""
    study = FLAIMStudy(everyone(variant=variant))
    rest = {"p1": codes([(0, 0, 0)])}
    pair = twins(study, {"p0": codes([]), **rest}, {"p0": codes([(1, 2, 1)]), **rest})
    pair.check()
    assert pair.costs()["p0"] > 0.99 * pair.first.ledger("p0").rho


@pytest.mark.parametrize("settings", dp_variants())
def test_the_plan_never_passes_the_budget_and_uses_it(settings):
    rng = np.random.default_rng(3)
    roster = {f"p{k}": codes(random_rows(rng, 4)) for k in range(3)}
    spent = []
    for key in range(3):
        run = FLAIMStudy(settings, key=key)(roster, key)
        spent += [run.ledger(name).rho for name in roster]
        assert max(run.ledger(name).epsilon() for name in roster) <= BUDGET.epsilon
    assert max(spent) <= rho_for(BUDGET) * (1 + 1e-9)
    if settings.local_steps == 1 and settings.rounds is not None:
        assert max(spent) > 0.6 * rho_for(BUDGET)


def test_annealing_goes_on_when_the_budget_is_generous():
    """Noise that halves again and again stays as wide as a share and a mechanism may be."""
    rng = np.random.default_rng(4)
    roster = {f"p{k}": codes(random_rows(rng, 30)) for k in range(2)}
    for variant in ("private", "naive"):
        for steps in (1, 2):
            settings = everyone(variant=variant, rounds=None, local_steps=steps)
            run = FLAIMStudy(settings, GENEROUS)(roster)
            assert max(run.ledger(name).epsilon() for name in roster) <= GENEROUS.epsilon


# Who pays, and when


def joined(run, name):
    """Steps in which a party released something."""
    return {r for _, r in _rounds_of(run, name)}


def _rounds_of(run, name):
    """(event, round) of a party's ledger; a round is one question about one-ways or choices."""
    return [
        (entry.event, int(entry.step.split(".")[0]))
        for entry in run.ledger(name).entries
        if not entry.step.startswith("kept")
    ]


def test_who_does_not_take_part_pays_nothing():
    rng = np.random.default_rng(5)
    roster = {f"p{k:02d}": codes(random_rows(rng, 3)) for k in range(12)}
    settings = FLAIM(rounds=2, participation=0.2, **FAST)
    asked = set()
    run = FLAIMStudy(settings)(roster)
    for name, request, _ in run.messages():
        if not isinstance(request, KeyRequest):
            asked.add(name)
    assert 0 < len(asked) < 12
    for name in roster:
        assert (name in asked) is bool(run.ledger(name).entries)
        if name not in asked:
            assert run.ledger(name).rho == run.ledger(name).epsilon() == 0


@pytest.mark.parametrize("variant", ["private", "naive_bayes"])
def test_with_a_cap_of_one_a_party_pays_for_one_round(variant):
    rng = np.random.default_rng(6)
    roster = {f"p{k}": codes(random_rows(rng, 4)) for k in range(9)}
    capped = FLAIMStudy(FLAIM(variant=variant, rounds=4, cap=1, **FAST))(roster)
    for name in roster:
        events = [event for event, _ in _rounds_of(capped, name)]
        kinds = [type(event) for event in events]
        one_round = [SharedGaussian]  # the one-ways
        if variant == "private":
            one_round += [Exponential, SharedGaussian]
        assert kinds == one_round
        assert events[0].sensitivity == pytest.approx(math.sqrt(3))
        assert capped.ledger(name).epsilon() <= BUDGET.epsilon


def test_a_cap_lowers_the_noise_of_a_round():
    rng = np.random.default_rng(7)
    roster = {f"p{k}": codes(random_rows(rng, 4)) for k in range(8)}
    narrow, wide = (
        FLAIMStudy(FLAIM(rounds=4, cap=cap, **FAST))(roster).ledger("p0").events[0]
        for cap in (1, 4)
    )
    assert claimed_sigma(narrow) < 0.55 * claimed_sigma(wide)


def test_the_oracle_protects_nothing_and_its_ledger_says_so():
    roster = {f"p{k}": codes([(0, 0, 0), (1, 1, 1)]) for k in range(2)}
    run = FLAIMStudy(everyone(variant="oracle"))(roster)
    for name in roster:
        assert run.ledger(name).epsilon(1e-5) == math.inf
        assert run.ledger(name).rho == math.inf


def test_a_party_with_a_limit_does_not_answer_the_oracle(monkeypatch):
    study = FLAIMStudy(everyone(variant="oracle"))
    site = Site.__init__

    def limited(self, *args, ledger, **named):
        ledger.limit = BUDGET
        site(self, *args, ledger=ledger, **named)

    monkeypatch.setattr(Site, "__init__", limited)
    with pytest.raises(BudgetError, match="Nothing was released"):
        study({"p0": codes([(0, 0, 0)])})


# What the coordinator sees


@pytest.mark.parametrize("tolerated", [1, 2])
def test_what_one_party_alone_chose_is_as_noisy_as_claimed(tolerated):
    whole, left = residuals(tolerated)
    require_noisy(whole)
    for rest in left:
        require_noisy(rest)


def test_a_cohort_of_one_adds_all_the_noise_itself():
    runs = []
    study = FLAIMStudy(everyone(tolerated=3))
    tape = record(lambda: runs.append(study({"p0": codes([(0, 0, 0)] * 9)})))
    for one in sums_of(runs[0], tape):
        assert one.event.shares - one.event.tolerated == 1
        assert one.event.share_sigma == claimed_sigma(one.event)
        assert (one.noise == one.shares[0]).all()


def test_replies_hold_sealed_choices_sums_and_public_facts_only():
    run, _ = lonely(1, 0)
    kinds = {type(r).__name__ for _, _, r in run.messages()}
    assert kinds == {"MaskKey", "Counts", "Chosen"}
    paid = {entry.hash for name in run.sites for entry in run.ledger(name).entries}
    for _, _, reply in run.messages():
        for field in reply.__struct_fields__:
            value = getattr(reply, field)
            for item in value if isinstance(value, tuple) else (value,):
                assert isinstance(item, Public) or item.entry in paid


@pytest.mark.parametrize("steps", [1, 2])
def test_no_two_draws_and_no_two_masks_are_the_same(steps):
    roster = wide_rows()
    runs = []
    tape = record(lambda: runs.append(thin(local_steps=steps)(roster)))
    require_fresh_noise(tape)
    require_fresh_masks(runs[0])


@pytest.mark.parametrize("noise", ["os", "seeded"])
def test_parties_of_a_fit_draw_noise_of_their_own(noise):
    """As users start it: also a seed gives every party, step and run its own stream."""
    rng = np.random.default_rng(9)
    tables = [codes(random_rows(rng, 6, LONE), LONE) for _ in range(3)]
    columns = [
        Column(a, "categorical", categories=tuple("wxyz"[:n]))
        for a, n in zip(LONE.names, LONE.sizes, strict=True)
    ]
    synthesizer = FLAIM(rounds=2, participation=1.0, workload=[("a", "b")])
    budget = budget_of(Relation.ADD_REMOVE, 0.2)

    def fit():
        for seed, run in ((1, "r1"), (1, "r2"), (2, "r1")):
            synthesizer.fit(
                tables, Schema(tuple(columns)).with_fallbacks(), budget=budget, noise=noise,
                seed=seed, run=run, names=[f"{seed}{run}{k}" for k in range(3)],
            )  # fmt: skip

    require_fresh_noise(record(fit))


def test_an_event_says_what_a_sum_costs_without_its_colluders():
    run, tape = lonely(2, 0)
    for one in sums_of(run, tape):
        price = one.event.rho
        assert price >= one.event.sensitivity**2 / (2 * claimed_sigma(one.event) ** 2)
    assert any(isinstance(e, Gaussian) for e in run.ledger("p0").events)


# Floats


WIDE = Domain(("a", "b"), (200, 200))


def asked(share):
    """A choice with the widest noise that a message may state, and the same share in each cell."""
    tables = [np.full(WIDE.shape(q), share(WIDE.size(q))) for q in (("a",), ("b",), ("a", "b"))]
    baseline = Baseline(
        (("a",), ("b",), ("a", "b")), tuple(Array.of(table, "<f4") for table in tables)
    )
    model = ModelMessage.of(MRF.uniform(WIDE, 10.0))
    return Select(model, (("a", "b"),), baseline, float(MOST_ROWS), 1.0, 2.0**39, 1)


def site_of(number):
    codes = np.arange(number) % 200
    site = SimpleNamespace(name="p", rows=Codes(WIDE, (codes, codes)), memo={})
    site.ledger = SimpleNamespace(limit=BUDGET)
    site.keep_private = lambda event, what, draw: 2**40
    return site


def test_no_message_makes_scores_so_large_that_their_rounding_shows_a_row():
    with pytest.raises(WireError, match="sum to more than 1"):
        flaim_party._check_baseline(asked(lambda cells: 1.0), site_of(1))
    request = asked(lambda cells: 1 / cells)
    flaim_party._check_baseline(request, site_of(1))
    size = flaim_party._noisy_size(site_of(1), request.size_sigma)
    model = unpacked(request.model, WIDE)
    scores = [
        flaim_party._scores(request, [1.0], site_of(number), model, size)[0] for number in range(50)
    ]
    assert np.abs(np.diff(scores)).max() <= 2 * (1 + ROUNDING)
