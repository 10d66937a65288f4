"""AIM whole: record and replay over random neighbours, an audit by sampling, and mutants of both.

The audit runs AIM on eight cells over and over with and without one row, and scores every
transcript by its exact log-likelihood ratio (audits recipe: structure and threshold are fixed
beforehand). AIM is accounted in zCDP and its loss is mostly Gaussian, so what is refuted or not is
that it is mu-GDP with mu = sqrt(2 rho).
"""

import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from scipy.stats import beta, norm

from siloweave.errors import BudgetError, RosterError
from siloweave.federation import masking, messages
from siloweave.federation import site as site_file
from siloweave.federation.messages import Envelope, Released
from siloweave.federation.site import Site
from siloweave.methods.aim import coordinator
from siloweave.methods.aim import party as aim_party
from siloweave.methods.aim.messages import SelectQuery
from siloweave.methods.aim.method import AIM
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Relation, l1_score_sensitivity, rho_for
from siloweave.privacy.events import Exponential, SharedGaussian
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.protocols import secure_sums
from siloweave.protocols.workloads import expected_l1, weights_of
from siloweave.statistics.marginals import marginal
from siloweave.tables.codes import Domain
from siloweave.tables.column import Column
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table
from tests.guarantees.replay import record
from tests.guarantees.whole import (
    BUDGET,
    DOMAIN,
    AIMStudy,
    Run,
    budget_of,
    codes,
    neighbour,
    paid_calls,
    random_rows,
    require_fresh_noise,
    twins,
)

RELATIONS = [Relation.ADD_REMOVE, Relation.REPLACE_ONE]


def tables(rng, relation):
    rows = random_rows(rng, int(rng.integers(relation is Relation.REPLACE_ONE, 6)))
    return {"curator": codes(rows)}, {"curator": codes(neighbour(rng, rows, relation))}


def study(relation=Relation.ADD_REMOVE, **named):
    settings = AIM(**{"rounds_per_column": 1, "sweeps": 2, "final_sweeps": 1} | named)
    return AIMStudy(settings, budget_of(relation))


# Record and replay


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_neighbours_cost_no_more_than_the_ledger_says(relation, seed):
    rng = np.random.default_rng(seed)
    for i in range(12):
        twins(study(relation), *tables(rng, relation), seed=i).check()


@pytest.mark.parametrize("relation", RELATIONS)
def test_all_rounds_of_the_paper_too(relation):
    """16 d rounds planned, so that annealing doubles the budget of rounds and ends them early."""
    rng = np.random.default_rng(1)
    for i in range(3):
        pair = twins(study(relation, rounds_per_column=16), *tables(rng, relation), seed=i)
        pair.check()
        assert len({s for r in pair.first.rounds for s in [r.sigma]}) > 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_rounds_of_several_choices_cost_no_more_than_the_ledger_says(relation, monkeypatch):
    monkeypatch.setattr(coordinator, "_CELLS", 1)
    rng = np.random.default_rng(3)
    for i in range(3):
        pair = twins(study(relation, rounds_per_column=4), *tables(rng, relation), seed=i)
        pair.check()
        _, *rounds = pair.first.rounds
        assert max(len(r.cliques) for r in rounds) > 1
        assert all(len(set(r.cliques)) == len(r.cliques) for r in rounds)
        assert pair.first.ledger("curator").rho <= rho_for(budget_of(relation))


CUBE = Domain(("a", "b", "c"), (2, 2, 2))
PAIRS = (("a", "b"), ("a", "c"), ("b", "c"))
CUBE_SCHEMA = Schema(
    tuple(Column(n, "integer", low=0, high=1) for n in CUBE.names)
).with_fallbacks()


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_triple_that_weighs_as_a_pair_costs_no_more_than_the_ledger_says(relation):
    run = AIMStudy(
        AIM(rounds_per_column=2, sweeps=1, final_sweeps=1), budget_of(relation),
        workload=(*PAIRS, CUBE.names), heaviest=2,
    )  # fmt: skip
    rng, offered = np.random.default_rng(4), set()
    for i in range(6):
        rows = random_rows(rng, 4, CUBE)
        other = [tuple(v % 2 for v in row) for row in neighbour(rng, rows, relation)]
        pair = twins(run, {"curator": codes(rows, CUBE)}, {"curator": codes(other, CUBE)}, seed=i)
        pair.check()
        asked = [request for _, request, _ in pair.first.messages()]
        offered |= {q for one in asked if isinstance(one, SelectQuery) for q in one.candidates}
    assert CUBE.names in offered


def test_a_triple_that_nobody_asked_for_adds_no_noise_to_choices():
    """A named workload is the paper's; by default scores are no more sensitive than with pairs."""
    rows = Table.from_columns({n: (np.arange(40) // 2**k % 2, None) for k, n in enumerate("abc")})
    times = weights_of(CUBE, [*PAIRS, CUBE.names])

    def sensitivities(synth):
        tape = record(lambda: synth.fit(rows, CUBE_SCHEMA, budget=BUDGET))
        return {c.settings["sensitivity"] for c in tape.calls if c.name == "exponential"}

    paper = times[CUBE.names] * (1 + secure_sums.ROUNDING)
    assert paper in sensitivities(AIM(workload=[*PAIRS, CUBE.names]))
    pairs = weights_of(CUBE, PAIRS)
    assert sensitivities(AIM()) == {pairs["a", "b"] * (1 + secure_sums.ROUNDING)}


def test_the_worst_neighbours_cost_nearly_all_of_it():
    """Else the check would have no power: one row in an empty table is the worst there is."""
    pair = twins(study(), {"curator": codes([])}, {"curator": codes([(0, 0, 0)])})
    pair.check()
    assert pair.costs()["curator"] > 0.9 * pair.first.ledger("curator").rho


def test_the_whole_budget_is_planned_for_and_never_passed():
    rng = np.random.default_rng(2)
    for seed in range(10):
        run = study()({"curator": codes(random_rows(rng, 5))}, seed)
        ledger = run.ledger("curator")
        assert 0.98 * rho_for(BUDGET) < ledger.rho <= rho_for(BUDGET)
        assert ledger.epsilon() <= BUDGET.epsilon


def test_no_two_draws_share_their_noise():
    """A small budget makes noise wide, and columns of four values give enough of it."""
    thin = AIMStudy(
        AIM(sweeps=1, final_sweeps=1), budget_of(Relation.ADD_REMOVE, 0.1)
    )  # fmt: skip
    wide = Domain(DOMAIN.names, (4, 4, 4))
    require_fresh_noise(record(lambda: thin({"curator": codes([(0, 0, 0)], wide)})))


def test_many_parties_are_refused():
    with pytest.raises(RosterError, match="AIM runs at one curator"):
        study()({"a": codes([(0, 0, 0)]), "b": codes([(0, 0, 0)])})


def test_a_curator_who_allows_less_stops_the_run():
    ours = budget_of(Relation.ADD_REMOVE, 1.0)
    run = AIMStudy(budget=BUDGET)
    low = rho_for(ours)
    seen = []

    class Poor(Site):
        def __init__(self, *args, **named):
            super().__init__(*args, **named)
            self.ledger.limit = ours
            seen.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.federation.rosters.Site", Poor)
        with pytest.raises(BudgetError, match="Nothing was released"):
            run({"curator": codes([(0, 0, 0)])})
    assert seen[0].ledger.rho <= low


# The audit


TARGET = (0, 0, 0)
BELOW = [(1, 1, 1), (1, 1, 0)]  # rows that disagree with the target
AUDITED = AIMStudy(
    AIM(rounds_per_column=1, sweeps=1, final_sweeps=1), budget_of(Relation.ADD_REMOVE),
    workload=PAIRS,
)  # fmt: skip
WITHOUT, WITH = (
    {"curator": codes(rows, CUBE)} for rows in (BELOW, [*BELOW, TARGET])
)  # fmt: skip
CLAIMED_MU = math.sqrt(2 * rho_for(BUDGET))


def loss(run: Run) -> float:
    """log P(transcript | WITH) - log P(transcript | WITHOUT), as if noise were what is claimed."""
    total = 0.0
    for _, request, reply in run.messages():
        if isinstance(request, secure_sums.Count):
            noisy = masking.unmask_sum([np.asarray(reply.sums.words.numpy(), np.uint32)])
            means = [
                np.concatenate([marginal(t["curator"], c).ravel() for c in request.cliques])
                for t in (WITHOUT, WITH)
            ]
            squares = [float(((noisy - m) ** 2).sum()) for m in means]
            total += (squares[0] - squares[1]) / (2 * request.share_sigma**2)
        elif isinstance(request, SelectQuery):
            logits = [_logits(request, t["curator"]) for t in (WITH, WITHOUT)]
            total += logits[0][reply.index.value] - logits[1][reply.index.value]
    return total


def _logits(request, rows):
    model = secure_sums.unpacked(request.model, CUBE)
    known = weights_of(CUBE, PAIRS)
    weights = [known[q] for q in request.candidates]
    scores = np.array([
        w * (np.abs(marginal(rows, q) - model.marginal(q)).sum()
             - expected_l1(request.sigma, CUBE.size(q)))
        for q, w in zip(request.candidates, weights, strict=True)
    ]) * (request.epsilon / (2 * max(weights)))  # fmt: skip
    return scores - np.logaddexp.reduce(scores)


def bounds(runs: int, *, alpha=0.01, audited=AUDITED, seed=0):
    """Lower bounds on mu and on epsilon at delta, each with confidence 1 - alpha."""
    wrong = [
        sum((loss(audited(table, seed + 2 * i + side)) > 0) != side for i in range(runs))
        for side, table in enumerate((WITHOUT, WITH))
    ]
    fp, fn = (float(beta.ppf(1 - alpha / 2, k + 1, runs - k)) for k in wrong)
    mu = norm.ppf(1 - fp) - norm.ppf(fn)
    odds = [(1 - fn - BUDGET.delta) / fp, (1 - fp - BUDGET.delta) / fn]
    return float(mu), max(0.0, math.log(max(*odds, 1e-9)))


def epsilon_of_mu(mu, delta):
    """The epsilon at which mu-GDP has this delta."""
    low, high = 0.0, 100.0
    for _ in range(60):
        e = (low + high) / 2
        at = norm.cdf(-e / mu + mu / 2) - math.exp(e) * norm.cdf(-e / mu - mu / 2)
        low, high = (e, high) if at > delta else (low, e)
    return high


def test_an_attack_learns_less_than_claimed_and_not_much_less():
    mu, epsilon = bounds(600)
    assert epsilon <= BUDGET.epsilon
    assert mu <= CLAIMED_MU
    assert epsilon_of_mu(mu, BUDGET.delta) <= BUDGET.epsilon
    assert mu > 0.45 * CLAIMED_MU, "the attack is too weak to say anything"


def half(values, sigma, *, entropy):
    return mechanisms.add_gaussian(values, sigma / 2, entropy=entropy)


HALF = SimpleNamespace(add_gaussian=half)


def test_the_attack_refutes_half_the_noise(monkeypatch):
    monkeypatch.setattr(site_file, "mechanisms", HALF)
    mu, _ = bounds(250)
    assert mu > CLAIMED_MU


# Mutants of the implementation; every one must be caught by the checks above.


def first_check(relation=Relation.ADD_REMOVE, mutated=None):
    """The replay of a few neighbours, as in the tests above, worst ones first."""
    run = mutated or study(relation)
    more = [(0, 0, 0)]
    if relation is Relation.ADD_REMOVE:
        for rows in ([], [(0, 0, 0)], [(1, 2, 1)] * 3):
            twins(run, {"curator": codes(rows)}, {"curator": codes(rows + more)}).check()
    rng = np.random.default_rng(0)
    for i in range(15):
        twins(run, *tables(rng, relation), seed=i).check()


def free_choice(self, event, what, draw):
    if not isinstance(event, Exponential):
        return RELEASE(self, event, what, draw)
    value = draw()
    return Released(value, "", self._sealed("", value))


RELEASE = Site.release


def charged_later(self, event, what, draw):
    value = draw()
    entry = self.pay(event, what)
    return Released(value, entry, self._sealed(entry, value))


def with_exact_n(request, site):
    """The model scaled to the party's true number of rows."""
    model = msgspec.structs.replace(request.model, total=max(1.0, float(site.rows.num_rows)))
    return aim_party.select(msgspec.structs.replace(request, model=model), site)


def with_turned_candidates(request, site):
    """The order of the candidates tells whether the number of rows is odd."""
    if site.rows.num_rows % 2:
        request = msgspec.structs.replace(request, candidates=request.candidates[::-1])
    return aim_party.select(request, site)


def masked_once(request, site, tables, what, *, contributes):
    return MASKED(request, site, tables, what, contributes=1)


MASKED = secure_sums.masked_reply


def halved(neighbours):
    return l1_score_sensitivity(neighbours) / 2


def patch_of(where, name, value):
    return lambda patch: patch.setattr(where, name, value)


MUTANTS = {
    "half noise": (patch_of(site_file, "mechanisms", HALF), "was charged"),
    "one marginal charged for many": (
        patch_of(secure_sums, "masked_reply", masked_once), "l2 distance 1.7",
    ),
    "score sensitivity halved": (
        patch_of(aim_party, "l1_score_sensitivity", halved), "a score moved by",
    ),
    "selection not charged": (patch_of(Site, "release", free_choice), "without a charge"),
    "selection charged after the draw": (patch_of(Site, "release", charged_later), "without a"),
    "exact n in scores": (
        lambda patch: patch.setitem(aim_party.HANDLERS, SelectQuery, with_exact_n),
        "a score moved by",
    ),
    "rows steer the course": (
        lambda patch: patch.setitem(aim_party.HANDLERS, SelectQuery, with_turned_candidates),
        "a score moved by",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    first_check()
    mutate, words = MUTANTS[name]
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        first_check()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("marginal_sensitivity", lambda relation, norm: 1.0),
        ("l1_score_sensitivity", lambda relation: 1.0),
    ],
)
def test_the_forgotten_factor_of_replace_one_is_caught(name, value, monkeypatch):
    first_check(Relation.REPLACE_ONE)
    where = secure_sums if name == "marginal_sensitivity" else aim_party
    monkeypatch.setattr(where, name, value)
    with pytest.raises(AssertionError, match=r"l2 distance|a score moved"):
        first_check(Relation.REPLACE_ONE)


def test_a_noise_stream_that_starts_again_is_caught(monkeypatch):
    def again(values, sigma, *, entropy):
        return mechanisms.add_gaussian(values, sigma, entropy=SeededEntropy(99))

    monkeypatch.setattr(site_file, "mechanisms", SimpleNamespace(add_gaussian=again))
    with pytest.raises(AssertionError, match="same noise"):
        test_no_two_draws_share_their_noise()


def test_a_second_draw_for_the_same_step_is_not_made():
    run = study()({"curator": codes([(0, 0, 0)])})
    for name, frame, _ in run.wire.frames[-1:]:
        assert messages.decode(frame, Envelope).to == name
        before = len(run.ledger(name).entries)
        assert run.wire.send(name, frame) == run.wire.frames[-2][2]
        assert len(run.ledger(name).entries) == before


def test_events_are_what_the_docstring_says():
    run = study()({"curator": codes([(0, 0, 0)])})
    kinds = {type(event) for event in run.ledger("curator").events}
    assert kinds == {Exponential, SharedGaussian}
    tape = record(lambda: study()({"curator": codes([(0, 0, 0)])}))
    assert len(paid_calls(tape)) == len(run.ledger("curator").events)
