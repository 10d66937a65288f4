"""FLAIM's rosters and checks that its tests and the tests of its mutants share."""

from itertools import combinations

import numpy as np
from scipy.stats import chi2

from siloweave.methods.flaim.messages import MeasureQueries, Select
from siloweave.methods.flaim.method import FLAIM
from siloweave.privacy.budget import Budget, Relation
from siloweave.tables.codes import Domain
from tests.guarantees.replay import record
from tests.guarantees.whole import (
    FLAIMStudy,
    budget_of,
    claimed_sigma,
    codes,
    random_rows,
    rosters,
    sums_of,
    twins,
)

RELATIONS = [Relation.ADD_REMOVE, Relation.REPLACE_ONE]
GENEROUS = Budget(epsilon=40.0, delta=1e-5)
FAST = {"sweeps": 2, "final_sweeps": 1}


def everyone(**named):
    return FLAIM(**{"rounds": 2, "participation": 1.0} | FAST | named)


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
    """The replay of random neighbours, the worst ones first."""
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
        elif isinstance(request, MeasureQueries) and name == next(iter(request.keys)):
            behind = [sum(q in mine for mine in chosen.values()) for q in request.queries]
            sizes = [LONE.size(q) for q in request.queries]
            yield np.repeat(np.array(behind) == 1, sizes)


def residuals(tolerated, runs=12):
    """Noise of lonely cells in units of what is claimed: all of it, and without colluders'.

    Returns:
        The first with one number per cell; the second with a row for every group of `tolerated`.
    """
    whole, left = [], []
    for seed in range(runs):
        run, tape = lonely(tolerated, seed)
        sums = [s for s in sums_of(run, tape) if isinstance(s.request, MeasureQueries)]
        for one, alone in zip(sums, alone_in(run), strict=True):
            same = (one.noise == one.shares.sum(axis=0)).all()
            assert same, "the wire has other noise than was drawn"
            assert len(one.shares) == one.event.shares == len(run.sites)
            assert one.event.tolerated == tolerated
            sigma = claimed_sigma(one.event)
            groups = combinations(range(len(one.shares)), tolerated)
            rests = [one.noise - one.shares[list(group)].sum(axis=0) for group in groups]
            left.append((np.array(rests) / sigma)[:, alone])
            whole.append((one.noise / sigma)[alone])
    return np.concatenate(whole), np.concatenate(left, axis=1)


def require_noisy(z, level=1e-5):
    """Fail if numbers are too small to be noise of deviation 1, or hardly ever different."""
    assert z.size > 100
    assert chi2.cdf(float((z**2).sum()), z.size) > level, "less noise than claimed"
    assert np.mean(z == 0) < 0.3, "an exact marginal is on the wire"


def wide_rows():
    """Three parties whose tables have cells enough to tell noise from noise."""
    rng = np.random.default_rng(8)
    return {f"p{k}": codes(random_rows(rng, 6, LONE), LONE) for k in range(3)}


def thin(**named):
    """A small budget makes noise wide enough to tell draws from each other."""
    return FLAIMStudy(
        everyone(**{"rounds": 2} | named), budget_of(Relation.ADD_REMOVE, 0.2),
        workload=(("a", "b"), ("b", "c")), entropy=named.get("entropy"),
    )  # fmt: skip
