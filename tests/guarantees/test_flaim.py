"""FLAIM whole: record and replay of every variant over random neighbours, what the coordinator
sees of a query that one party alone chose, who pays when, and mutants that must be caught.
"""

import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from scipy.stats import chi2

from siloweave.algorithms import flaim as flaim_file
from siloweave.algorithms import flaim_rounds, secure_sum
from siloweave.algorithms.flaim import Measure, Select
from siloweave.algorithms.flaim_settings import FLAIMSettings
from siloweave.algorithms.secure_sum import Greeting, Hello
from siloweave.algorithms.synthesizers import FLAIM
from siloweave.errors import BudgetError
from siloweave.federation import Public, Released, Site, masking
from siloweave.federation import site as site_file
from siloweave.models.mrf import MRF
from siloweave.privacy import (
    Budget,
    Exponential,
    Gaussian,
    Relation,
    SeededEntropy,
    SharedGaussian,
    mechanisms,
)
from siloweave.privacy.calibrate import rho_for
from siloweave.privacy.events import rho_once
from siloweave.tables import Column, Schema
from siloweave.tables.codes import Domain
from tests.guarantees.replay import DivergenceError, record
from tests.guarantees.whole import (
    BUDGET,
    DOMAIN,
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

RELATIONS = [Relation.ADD_REMOVE, Relation.REPLACE_ONE]
GENEROUS = Budget(epsilon=40.0, delta=1e-5)
FAST = {"sweeps": 2, "final_sweeps": 1}


def everyone(**named):
    return FLAIMSettings(**{"rounds": 2, "participation": 1.0} | FAST | named)


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
    settings = FLAIMSettings(rounds=2, participation=0.2, **FAST)
    asked = set()
    run = FLAIMStudy(settings)(roster)
    for name, request, _ in run.messages():
        if not isinstance(request, Hello):
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
    capped = FLAIMStudy(FLAIMSettings(variant=variant, rounds=4, cap=1, **FAST))(roster)
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
        FLAIMStudy(FLAIMSettings(rounds=4, cap=cap, **FAST))(roster).ledger("p0").events[0]
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
    monkeypatch.setattr(FLAIMSettings, "variant", "oracle")
    study = FLAIMStudy(everyone(variant="oracle"))
    site = Site.__init__

    def limited(self, *args, ledger, **named):
        ledger.limit = BUDGET
        site(self, *args, ledger=ledger, **named)

    monkeypatch.setattr(Site, "__init__", limited)
    with pytest.raises(BudgetError, match="Nothing was released"):
        study({"p0": codes([(0, 0, 0)])})


# What the coordinator sees


LONE = Domain(("a", "b", "c"), (3, 4, 3))


def lonely(tolerated, seed, parties=4, epsilon=2.0):
    """Runs in which some query is chosen by one party alone, and all their masked sums."""
    rng = np.random.default_rng(seed)
    roster = {f"p{k}": codes(random_rows(rng, 6, LONE), LONE) for k in range(parties)}
    study = FLAIMStudy(
        everyone(variant="naive", tolerated=tolerated),
        budget_of(Relation.ADD_REMOVE, epsilon),
        workload=(("a", "b"), ("b", "c"), ("a", "c")),
        key=seed,
    )
    runs = []
    tape = record(lambda: runs.append(study(roster, seed)))
    return runs[0], tape


def alone_in(run):
    """Cells of every Measure that one party alone chose, as a mask over its flat words."""
    chosen = {}
    for name, request, reply in run.messages():
        if isinstance(request, Select):
            chosen[name] = {request.candidates[i.value] for i in reply.indices}
        elif isinstance(request, Measure) and name == next(iter(request.keys)):
            behind = [sum(q in mine for mine in chosen.values()) for q in request.queries]
            sizes = [LONE.size(q) for q in request.queries]
            yield np.repeat(np.array(behind) == 1, sizes)


def residuals(tolerated, runs=12):
    """Noise of lonely cells in units of what is claimed: all of it, and without colluders'."""
    whole, left = [], []
    for seed in range(runs):
        run, tape = lonely(tolerated, seed)
        sums = [s for s in sums_of(run, tape) if isinstance(s.request, Measure)]
        for one, alone in zip(sums, alone_in(run), strict=True):
            same = (one.noise == one.shares.sum(axis=0)).all()
            assert same, "the wire has other noise than was drawn"
            assert len(one.shares) == one.event.shares == len(run.sites)
            assert one.event.tolerated == tolerated
            sigma = claimed_sigma(one.event)
            for gone in range(len(one.shares)):
                colluders = [(gone + i) % len(one.shares) for i in range(tolerated)]
                rest = one.noise - one.shares[colluders].sum(axis=0)
                left.append((rest / sigma)[alone])
            whole.append((one.noise / sigma)[alone])
    return np.concatenate(whole), np.concatenate(left)


def require_noisy(z, level=1e-5):
    """Fail if numbers are too small to be noise of deviation 1, or hardly ever different."""
    assert z.size > 100
    assert chi2.cdf(float((z**2).sum()), z.size) > level, "less noise than claimed"
    assert np.mean(z == 0) < 0.3, "an exact marginal is on the wire"


@pytest.mark.parametrize("tolerated", [1, 2])
def test_what_one_party_alone_chose_is_as_noisy_as_claimed(tolerated):
    whole, left = residuals(tolerated)
    require_noisy(whole)
    require_noisy(left[: whole.size], level=1e-5)  # every colluder in turn


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
    assert kinds == {"Greeting", "Counts", "Chosen"}
    paid = {entry.hash for name in run.sites for entry in run.ledger(name).entries}
    for _, _, reply in run.messages():
        for field in reply.__struct_fields__:
            value = getattr(reply, field)
            for item in value if isinstance(value, tuple) else (value,):
                assert isinstance(item, Public) or item.entry in paid


def thin(**named):
    """A small budget makes noise wide enough to tell draws from each other."""
    return FLAIMStudy(
        everyone(**{"rounds": 2} | named), budget_of(Relation.ADD_REMOVE, 0.2),
        workload=(("a", "b"), ("b", "c")), entropy=named.get("entropy"),
    )  # fmt: skip


@pytest.mark.parametrize("steps", [1, 2])
def test_no_two_draws_and_no_two_masks_are_the_same(steps):
    rng = np.random.default_rng(8)
    roster = {f"p{k}": codes(random_rows(rng, 6, LONE), LONE) for k in range(3)}
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
                tables, Schema(tuple(columns)), budget=budget, noise=noise, seed=seed, run=run,
                names=[f"{seed}{run}{k}" for k in range(3)],
            )  # fmt: skip

    require_fresh_noise(record(fit))


# Mutants of the implementation; every one must be caught by the checks above.


def half(values, sigma, *, entropy):
    return mechanisms.add_gaussian(values, sigma / 2, entropy=entropy)


def skewed(seed):
    """One party far from the others: there a row moves distances furthest."""
    rng = np.random.default_rng(seed)
    cells = [(i, j, k) for i in range(2) for j in range(3) for k in range(2)]
    number = int(rng.integers(1, 40))
    rows, others = (
        [cells[i] for i in rng.choice(12, size=n, p=rng.dirichlet(np.full(12, 0.2)))]
        for n in (number, 200)
    )
    rest = {"p1": codes(others)}
    more = [*rows, cells[int(rng.integers(12))]]
    return {"p0": codes(rows), **rest}, {"p0": codes(more), **rest}


SKEWED = (51, 138, 180, 392)  # the worst of 400, found with the exact size in the scores


def replayed(settings, relation=Relation.ADD_REMOVE):
    """The replay of random neighbours, as in the tests above, the worst ones first."""
    study = FLAIMStudy(settings, budget_of(relation))
    if relation is Relation.ADD_REMOVE:
        rest = {"p1": codes([(1, 1, 1)] * 4)}
        for rows in ([], [(0, 0, 0)] * 2):
            more = {"p0": codes([*rows, (0, 0, 0)]), **rest}
            twins(study, {"p0": codes(rows), **rest}, more).check()
        for seed in SKEWED:
            twins(FLAIMStudy(settings, GENEROUS), *skewed(seed), seed=seed).check()
    rng = np.random.default_rng(0)
    for i in range(12):
        twins(study, *rosters(rng, relation, parties=2), seed=i).check()


def redrawn(self, event, what, draw):
    """Paid once, drawn whenever it is needed."""
    self.ledger.charge(event, run=self._at.run, step=f"kept {what}", what=what, to="stays")
    return draw()


RELEASE, MASKED, PAY = Site.release, secure_sum.masked_reply, Site.pay


def free_choice(self, event, what, draw):
    if not isinstance(event, Exponential):
        return RELEASE(self, event, what, draw)
    value = draw()
    return Released(value, "", self._sealed("", value))


def free_steps(self, event, what):
    """What the paper does: local measurements that steer a later choice cost nothing."""
    return "" if "local" in what else PAY(self, event, what)


def masked_once(request, site, tables, what, *, contributes):
    return MASKED(request, site, tables, what, contributes=1)


def exact_size(site, sigma):
    return float(site.rows.num_rows)


def loud_hello(request, site):
    n = site.rows.num_rows
    return Greeting(site.mask_key(), Public(DOMAIN.names, f"{n} rows"), Public(DOMAIN.sizes, ""))


def weighted_by_rows(request, site):
    """A share of noise that grows with the party's rows."""
    share = 1.0 + request.share_sigma * (1 + site.rows.num_rows / 100)
    return secure_sum.count(msgspec.structs.replace(request, share_sigma=share), site)


def halved(relation):
    return 0.5 if Relation(relation) is Relation.ADD_REMOVE else 1.0


def one_party_less(self, size, cells):
    """Noise that meets the claim only if everyone's share stays."""
    return max(1.0, self.sigma / math.sqrt(size)), 0


def handler(kind, function):
    return lambda patch: patch.setitem(flaim_file.PARTY, kind, function)


def names(where, **values):
    def patch_all(patch):
        for name, value in values.items():
            patch.setattr(where, name, value)

    return patch_all


def choose(scores, **named):
    return mechanisms.exponential(scores, **named)


HALF = SimpleNamespace(add_gaussian=half, exponential=choose)
MUTANTS = {
    "half noise in the sums": (names(site_file, mechanisms=HALF), {}, "was charged"),
    "half noise on the size": (names(flaim_file, mechanisms=HALF), {}, "was charged"),
    "half noise in local steps": (
        names(flaim_file, mechanisms=HALF), {"variant": "naive", "local_steps": 2}, "was charged",
    ),
    "one marginal charged for all one-ways": (
        names(secure_sum, masked_reply=masked_once), {}, "l2 distance 1.7",
    ),
    "one query charged for two": (
        names(flaim_file, masked_reply=masked_once),
        {"variant": "naive", "local_steps": 2}, "l2 distance 1.41|charged for",
    ),
    "exact n in scores": (names(flaim_file, _noisy_size=exact_size), {}, "a score moved by"),
    "exact n in naive scores": (
        names(flaim_file, _noisy_size=exact_size), {"variant": "naive"}, "a score moved by",
    ),
    "score sensitivity halved": (
        names(flaim_file, l1_score_sensitivity=halved), {}, "a score moved by",
    ),
    "naive score sensitivity halved": (
        names(flaim_file, l1_score_sensitivity=halved), {"variant": "naive"}, "a score moved by",
    ),
    "selection not charged": (names(Site, release=free_choice), {}, "without a charge"),
    "local steps not charged": (
        names(Site, pay=free_steps), {"local_steps": 2}, "without a charge",
    ),
    "a size that is drawn again": (
        names(Site, keep_private=redrawn), {"rounds": 2}, "drew twice for what it paid",
    ),
    "a public reply that tells the number of rows": (
        handler(Hello, loud_hello), {}, "unpaid depends on the rows",
    ),
    "noise that depends on rows": (handler(secure_sum.Count, weighted_by_rows), {}, "became"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    mutate, settings, words = MUTANTS[name]
    settings = everyone(rounds=1) if not settings else everyone(**{"rounds": 1} | settings)
    replayed(settings)
    mutate(monkeypatch)
    with pytest.raises((AssertionError, DivergenceError), match=words):
        replayed(settings)


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (secure_sum, "marginal_sensitivity"),
        (flaim_file, "marginal_sensitivity"),
        (flaim_file, "l1_score_sensitivity"),
    ],
)
def test_the_forgotten_factor_of_replace_one_is_caught(where, name, monkeypatch):
    settings = everyone(rounds=1, local_steps=2)
    replayed(settings, Relation.REPLACE_ONE)
    monkeypatch.setattr(where, name, lambda relation, norm="l1": 1.0)
    with pytest.raises(AssertionError, match=r"l2 distance|a score moved|was charged for"):
        replayed(settings, Relation.REPLACE_ONE)


def silent(values, sigma, *, entropy):
    """Noise only where this party has something to say."""
    return np.where(values == 0, 0, mechanisms.add_gaussian(values, sigma, entropy=entropy))


def test_shares_that_stay_away_are_caught(monkeypatch):
    monkeypatch.setattr(site_file, "mechanisms", SimpleNamespace(add_gaussian=silent))
    with pytest.raises(AssertionError, match="other noise than was drawn"):
        residuals(1)


def test_colluders_who_were_forgotten_are_caught(monkeypatch):
    """Enough noise for outsiders, too little once a colluder subtracts its share."""
    monkeypatch.setattr(flaim_rounds.Noise, "share", one_party_less)
    with pytest.raises(AssertionError):
        residuals(1)


@pytest.mark.parametrize("who", ["every draw", "every party"])
def test_noise_that_is_used_again_is_caught(who, monkeypatch):
    rng = np.random.default_rng(8)
    roster = {f"p{k}": codes(random_rows(rng, 6, LONE), LONE) for k in range(3)}
    study = thin()
    if who == "every draw":

        def again(values, sigma, *, entropy):
            return mechanisms.add_gaussian(values, sigma, entropy=SeededEntropy(99))

        monkeypatch.setattr(site_file, "mechanisms", SimpleNamespace(add_gaussian=again))
    else:
        study = FLAIMStudy(
            study.settings, study.budget, workload=study.workload,
            entropy=lambda k: SeededEntropy(1),
        )  # fmt: skip
    with pytest.raises(AssertionError, match="have the same noise"):
        require_fresh_noise(record(lambda: study(roster)))


@pytest.mark.parametrize("fault", ["no context", "no mask"])
def test_masks_that_are_used_twice_or_missing_are_caught(fault, monkeypatch):
    rng = np.random.default_rng(8)
    roster = {f"p{k}": codes(random_rows(rng, 6, LONE), LONE) for k in range(3)}
    real = masking.mask

    def same(name, shared, context, size):
        words = real(name, shared, b"", size)
        return np.zeros_like(words) if fault == "no mask" else words

    monkeypatch.setattr(masking, "mask", same)
    run = thin()(roster)
    assert isinstance(run.model, MRF)
    with pytest.raises(AssertionError, match="missing or was used twice"):
        require_fresh_masks(run)


def test_an_event_says_what_a_sum_costs_without_its_colluders():
    run, tape = lonely(2, 0)
    for one in sums_of(run, tape):
        price = rho_once(one.event)
        assert price >= one.event.sensitivity**2 / (2 * claimed_sigma(one.event) ** 2)
    assert any(isinstance(e, Gaussian) for e in run.ledger("p0").events)
