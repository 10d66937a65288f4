"""What a coordinator that may lie learns from a sum whose parties vanish; known faults are caught.

Each check plays a coordinator that keeps every answer and shows parties what it likes. It passes on
the code as it is, and fails on an implementation with one fault.
"""

from itertools import combinations, product

import msgspec
import numpy as np
import pytest

from siloweave.errors import SiloweaveError, WireError
from siloweave.federation import dropouts, masking
from siloweave.federation import site as site_file
from siloweave.federation.dropouts import SEED, MaskPlan, digests_of, joined
from siloweave.federation.site import Site
from siloweave.privacy.events import SharedGaussian
from siloweave.protocols.secure_sums import Count, Counts, MaskShares, OpenSum
from siloweave.statistics.marginals import marginal
from tests.protocols.vanishing import CLIQUES, NAMES, at, study_of

STEP = 1  # of the first sum


class Curious:
    """A coordinator with every answer of one sum, that asks parties to open it as it likes."""

    def __init__(self, study, cliques=CLIQUES, without=()):
        self.study, self.plan = study, study.plan
        share, missing = study.noise.share(len(NAMES), 1240)
        request = Count(dict(study.keys), share, missing, cliques)
        self.event = None
        self.masked = {n: self.asked(request, n) for n in NAMES if n not in without}
        self.shares = []  # (who answered, of whom, which seeds, their shares)

    def asked(self, request, name, step=None):
        session = self.study.session
        session.rounds = STEP if step is None else step
        (reply,) = session.ask(request, [name])
        return reply

    def open(self, name, active, dead, *, step=2, sealed=None):
        """Ask one party to open the sum, and keep what it answers; False if it refuses."""
        if sealed is None:
            sealed = {p: self.masked[p].sums.recovery.sealed[name] for p in active}
        request = OpenSum(STEP, tuple(active), tuple(dead), sealed)
        try:
            reply = self.asked(request, name, step)
        except SiloweaveError:
            return False
        for party, data in reply.shares.value.items():
            places = self.plan.opened(party, dead)
            if len(data) != SEED * len(places):
                places = range(len(data) // SEED)
            for i, place in enumerate(places):
                self.shares.append((name, party, place, data[SEED * i : SEED * (i + 1)]))
        return True

    def seeds(self):
        """Every seed that shares so far join to, by party and place, as its digest proves."""
        found = {}
        held = {}
        for name, party, place, share in self.shares:
            held.setdefault((party, place), {})[name] = share
        for (party, place), of in held.items():
            said = self.masked[party].sums.recovery.digests[SEED * place : SEED * (place + 1)]
            for number in range(2, len(of) + 1):
                for some in list(combinations(sorted(of), number))[:20]:
                    seed = joined([NAMES.index(n) + 1 for n in some])([of[n] for n in some])
                    if digests_of([seed]) == said:
                        found[party, place] = seed
        return found

    def unmasked(self, name):
        """A party's words without all masks whose seeds are known."""
        words = self.masked[name].sums.words.numpy().astype(np.uint32)
        near, context = self.plan.neighbours, f"r/{STEP}/1".encode()
        for (party, place), seed in self.seeds().items():
            if party == name and place == 0:
                words = words - dropouts.own_mask(name, seed, context, words.size)
            elif place and name in (party, near[party][place - 1]):
                other = near[party][place - 1] if party == name else party
                words = words - masking.mask(name, {other: seed}, context, words.size)
        return words.astype(np.int32).astype(np.int64)

    def exposed(self, name):
        """Whether what is left is a party's own counts and its noise."""
        wanted = np.concatenate([marginal(self.study.tables[name], c).reshape(-1) for c in CLIQUES])
        return bool(np.abs(self.unmasked(name) - wanted).max() < 10_000)


# Checks


def late_words_stay_hidden():
    """A party's words came, and it is called dead: all its masks with others open."""
    seen = Curious(study_of())
    active = [n for n in NAMES if n != "dan"]
    assert all(seen.open(n, active, ["dan"]) for n in active)
    assert len(seen.seeds()) == len(active) * 2
    assert not seen.exposed("dan"), "words of a party that was called dead are readable"
    assert not any(seen.exposed(n) for n in active), "words of one party are readable"


def no_lists_open_both_masks_of_a_party():
    """Every way to show some parties that one is dead, and the others that it is not."""
    others = [n for n in NAMES if n != "dan"]
    for size in range(len(others) + 1):
        seen = Curious(study_of())
        for n in others[:size]:
            seen.open(n, others, ["dan"])
        for n in [*others[size:], "dan"]:
            seen.open(n, NAMES, [])
        check_apart(seen, "dan")
    seen = Curious(study_of())
    for n in others:
        seen.open(n, NAMES, ["dan"])
    check_apart(seen, "dan")


def check_apart(seen, name):
    seeds, near = seen.seeds(), seen.plan.neighbours
    pairs = [p for p, i in seeds if i and near[p][i - 1] == name]
    assert not ((name, 0) in seeds and pairs), "both masks of a party opened"
    assert not seen.exposed(name), "words of one party are readable"


def a_second_question_opens_nothing_more():
    seen = Curious(study_of())
    others = [n for n in NAMES if n != "dan"]
    for n in NAMES:
        seen.open(n, NAMES, [])
    before = seen.seeds()
    for n in others:
        assert not seen.open(n, others, ["dan"], step=3), "a sum opened twice"
    assert seen.seeds() == before


def nothing_of_a_sum_opens_another():
    study = study_of()
    study.count()
    study.count()
    pieces = []
    for number in (0, 1):
        for reply in study.line.masked(number).values():
            said = reply.sums.recovery.digests
            pieces += [said[i : i + SEED] for i in range(0, len(said), SEED)]
    seen = {piece: pieces.count(piece) for piece in pieces}
    # a mask of a pair has one seed, of which both say so
    assert max(seen.values()) <= 2, "a seed was used twice"
    assert sum(seen.values()) == 2 * len(NAMES) * (1 + len(study.plan.neighbours["ada"]))
    assert sum(n == 1 for n in seen.values()) == 2 * len(NAMES), "own seeds of two sums are alike"


def only_masks_with_the_dead_open():
    seen = Curious(study_of(), without=["fay"])
    active = [n for n in NAMES if n != "fay"]
    for n in active:
        assert seen.open(n, active, ["fay"])
    near = seen.plan.neighbours
    assert {near[p][i - 1] for p, i in seen.seeds() if i} == {"fay"}, "a mask of two active opened"


def other_requests_open_nothing():
    """One party was asked for other tables, and its noise is in the sum of the others."""

    def change(name, step, request):
        if name == "dan" and type(request) is Count:
            return msgspec.structs.replace(request, cliques=CLIQUES[:1])
        return request

    seen = Curious(study_of(change=change))
    for n in NAMES:
        assert not seen.open(n, NAMES, []), "parties that were asked for other sums open one"
    assert not seen.seeds()


def the_worst_lists_leave_the_noise_that_is_paid_for():
    """All lists that honest parties may be shown; one helps the coordinator."""
    study = study_of()
    study.count()
    event = study.line.sites["ada"].ledger.entries[0].event
    plan = study.plan
    honest, need = plan.names[1:], plan.threshold - plan.colluders
    lists = [
        [set(d) for k in range(plan.vanish + 1) for d in combinations(others, k)]
        for others in ([q for q in honest if q != p] for p in honest)
    ]
    votes = ([sum(p in dead for dead in shown) for p in honest] for shown in product(*lists))
    dead = max(sum(v >= need for v in said) for said in votes)
    left = len(honest) - dead
    worst = SharedGaussian(event.share_sigma, left, 0, event.sensitivity, event.dimension)
    assert worst.rho <= event.rho * (1 + 1e-12), "less noise is left than was paid for"
    for without in combinations(plan.names, plan.missing):
        rest = set(plan.names) - set(without)
        found, open_ = set(), {min(rest)}
        while open_:
            found |= open_
            open_ = {n for one in open_ for n in plan.neighbours[one]} & rest - found
        assert found == rest, "masks of those who are left come apart"


def few_shares_join_nothing():
    seen = Curious(study_of())
    for n in NAMES[: seen.plan.threshold - 1]:
        assert seen.open(n, NAMES, [])
    assert not seen.seeds(), "fewer shares than are needed join a seed"


def forged_keys_are_refused():
    study = study_of()
    secret = masking.new_secret()
    study.keys["bob"] = masking.public_key(secret) + study.keys["bob"][masking.KEY :]
    with pytest.raises(WireError, match="did not sign"):
        Curious(study)
    assert not study.line.replies(Count, Counts), "a forged key was used"


CHECKS = (
    late_words_stay_hidden,
    no_lists_open_both_masks_of_a_party,
    a_second_question_opens_nothing_more,
    nothing_of_a_sum_opens_another,
    only_masks_with_the_dead_open,
    other_requests_open_nothing,
    the_worst_lists_leave_the_noise_that_is_paid_for,
    few_shares_join_nothing,
    forged_keys_are_refused,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_coordinator_that_lies_learns_nothing_but_one_sum(check):
    check()


# Faults


def no_own_mask(name, seed, context, size):
    return np.zeros(size, np.uint32)


def any_lists(self, party, active, dead):
    """The lists are taken as they come."""


SPLIT, PAIR = dropouts.split, dropouts.pair_seed


def thin_split(secrets, holders, threshold, entropy):
    return SPLIT(secrets, holders, 2, entropy)


def same_pair_seed(secret, info):
    return PAIR(secret, b"")


def same_seed(entropy):
    return bytes(31) + b"1"


def forgetful(self, name, run=None):
    return None if name == "lists" else RECALL(self, name, run)


RECALL = Site.recall


def everything(self, name, dead):
    return tuple(range(1 + len(self.neighbours[name])))


def ring_of_two(self):
    size = len(self.names)
    return {n: (self.names[i - 1], self.names[(i + 1) % size]) for i, n in enumerate(self.names)}


def any_key(self, name, signed, purpose):
    return signed[: masking.KEY]


def naming(where, **values):
    return lambda patch: [patch.setattr(where, name, value) for name, value in values.items()]


FAULTS = {
    "no mask of one's own": (
        naming(dropouts, own_mask=no_own_mask), late_words_stay_hidden, "readable",
    ),
    "lists that overlap": (
        naming(MaskPlan, check_lists=any_lists), no_lists_open_both_masks_of_a_party,
        "both masks|readable",
    ),
    "half of the parties open a sum": (
        naming(MaskPlan, threshold=property(lambda self: len(self.names) // 2)),
        no_lists_open_both_masks_of_a_party, "both masks",
    ),
    "lists are forgotten": (
        naming(Site, recall=forgetful), a_second_question_opens_nothing_more, "opened twice",
    ),
    "one seed for every pair": (
        naming(site_file, pair_seed=same_pair_seed), nothing_of_a_sum_opens_another, "used twice",
    ),
    "one seed of one's own": (
        naming(site_file, new_seed=same_seed), nothing_of_a_sum_opens_another, "used twice",
    ),
    "all masks open": (
        naming(MaskPlan, opened=everything), only_masks_with_the_dead_open, "two active",
    ),
    "requests are not compared": (
        naming(site_file._Sum, bound=lambda self, *ends: f"{ends} of step {self.step}".encode()),
        other_requests_open_nothing, "other sums",
    ),
    "noise for those who help alone": (
        naming(MaskPlan, missing=property(lambda self: self.colluders)),
        the_worst_lists_leave_the_noise_that_is_paid_for, "less noise",
    ),
    "noise as if all were shown one list": (
        naming(MaskPlan, missing=property(lambda self: self.colluders + self.vanish)),
        the_worst_lists_leave_the_noise_that_is_paid_for, "less noise",
    ),
    "too few neighbours": (
        naming(MaskPlan, neighbours=property(ring_of_two)),
        the_worst_lists_leave_the_noise_that_is_paid_for, "come apart",
    ),
    "two shares join a seed": (
        naming(site_file, split=thin_split), few_shares_join_nothing, "join a seed",
    ),
    "keys are not verified": (naming(Site, key_of=any_key), forged_keys_are_refused, "DID NOT"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_caught(fault, monkeypatch):
    patch, check, found = FAULTS[fault]
    patch(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception), match=found):
        check()


def test_every_check_catches_something():
    assert {check for _, check, _ in FAULTS.values()} == set(CHECKS)


def test_a_study_of_vanishing_parties_is_what_is_checked():
    """The helper does lose parties: without that the checks above would see nothing."""
    study = study_of(gone={"ada": at(0, "asked to mask")})
    assert "ada" not in study.count().parties
    assert len(study.line.replies(OpenSum, MaskShares)) == len(NAMES) - 1
