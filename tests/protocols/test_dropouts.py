"""A masked sum is that of the parties that answered, whoever vanished when, or it never opens."""

import threading
from collections import Counter
from itertools import combinations, product

import msgspec
import numpy as np
import pytest
from scipy.stats import chi2

from siloweave.errors import BudgetError, RosterError, WireError
from siloweave.federation import messages
from siloweave.federation import site as site_file
from siloweave.federation.dropouts import SEED, digests_of, joined, own_mask
from siloweave.federation.messages import Recovery
from siloweave.federation.session import Close, with_closing
from siloweave.federation.site import FolderStore
from siloweave.privacy import mechanisms
from siloweave.privacy.events import SharedGaussian
from siloweave.protocols.secure_sums import (
    HANDLERS,
    Count,
    Counts,
    KeyRequest,
    MaskShares,
    OpenSum,
    opened_sum,
)
from tests.federation.rosters import site_with, terms_of
from tests.federation.sites import Sites
from tests.federation.test_masking import uniform_p
from tests.protocols.vanishing import (
    BUDGET,
    CLIQUES,
    DOMAIN,
    FACTS,
    MOMENTS,
    NAMES,
    Line,
    at,
    study_of,
    tables_of,
)

SURE = 1e-6


@pytest.fixture
def exact(monkeypatch):
    """Sums without noise."""

    class Silent:
        add_gaussian = staticmethod(lambda values, sigma, *, entropy: np.asarray(values))
        StoredEntropy = mechanisms.StoredEntropy

    monkeypatch.setattr(site_file, "mechanisms", Silent)


def same(found, wanted):
    return all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


# What opens


@pytest.mark.usefixtures("exact")
def test_the_sum_is_the_clear_one_whoever_vanishes_at_which_moment():
    moments = [None, *MOMENTS]
    for (one, other), (first, then) in product(
        [("ada", "fay"), ("cleo", "dan")], product(moments, moments)
    ):
        when = {n: at(0, m) for n, m in ((one, first), (other, then)) if m}
        study = study_of(gone=when)
        found = study.count()
        dead = {n for n, w in when.items() if w < at(0, "asked to open")}
        assert set(found.parties) == set(NAMES) - dead
        assert same(found.tables, study.exact(found.parties)), when
        assert study.session.gone == set(when)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("moment", MOMENTS)
def test_one_more_than_may_vanish_ends_the_study_and_nothing_opens(moment):
    gone = dict.fromkeys(("bob", "eve"), at(0, "asked to mask")) | {"fay": at(0, moment)}
    study = study_of(gone=gone)
    with pytest.raises(RosterError, match="'bob', party 'eve', party 'fay' did not answer"):
        study.count()
    opened = study.line.replies(OpenSum, MaskShares)
    assert len(opened) < study.plan.threshold + (moment == "opened")
    if moment in MOMENTS[:2]:
        assert not opened


def test_where_too_few_answer_no_seed_can_be_joined():
    study = study_of(gone={"ada": at(0, "asked to open")})
    study.count()
    answers = {n: r.shares.value for n, _, _, r in study.line.replies(OpenSum, MaskShares)}
    digests = {n: r.sums.recovery.digests for n, r in study.line.masked().items()}
    for some in combinations(sorted(answers), study.plan.threshold - 1):
        join = joined([NAMES.index(n) + 1 for n in some])
        for name, said in digests.items():
            assert digests_of([join([answers[n][name][:SEED] for n in some])]) != said[:SEED]


@pytest.mark.usefixtures("exact")
def test_a_party_that_vanished_is_not_asked_again_and_its_rows_are_in_no_later_sum():
    study = study_of(gone={"ada": at(0, "opened"), "bob": at(1, "masked")})
    assert set(study.count().parties) == set(NAMES)
    for _ in range(2):
        found = study.count()
        assert set(found.parties) == set(NAMES) - {"ada", "bob"}
        assert same(found.tables, study.exact(found.parties))
    asked = [n for n, step, *_ in study.line.heard if step > 4]
    assert "ada" not in asked
    assert "bob" not in asked


def test_a_party_that_is_back_at_the_end_sends_its_ledger_and_another_one_does_not():
    study = study_of(gone={"ada": at(0, "asked to open"), "bob": at(0, "asked to mask")})
    study.count()
    study.line.lost.remove("ada")
    study.line._handlers = {**study.line._handlers}
    closing = study.session.close()
    assert set(closing.ledgers) == set(NAMES) - {"bob"}
    assert closing.ledgers["ada"][0].event == closing.ledgers["cleo"][0].event


@pytest.mark.usefixtures("exact")
def test_many_parties_mask_with_few_and_the_sum_is_right():
    names = tuple(f"p{i:02d}" for i in range(40))
    gone = {"p03": at(0, "asked to mask"), "p04": at(0, "masked"), "p39": at(0, "asked to open")}
    study = study_of(names=names, dropouts=3, gone=gone)
    found = study.count()
    assert len(study.plan.neighbours["p00"]) < 10
    assert set(found.parties) == set(names) - {"p03", "p04"}
    assert same(found.tables, study.exact(found.parties))


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("moment", MOMENTS)
def test_parties_that_are_asked_at_the_same_time_may_vanish_too(moment):
    study = study_of(gone=dict.fromkeys(("bob", "eve"), at(0, moment)))
    study.session._at_once = 4
    found = study.count()
    assert same(found.tables, study.exact(found.parties))
    assert study.session.gone == {"bob", "eve"}
    study.line.gone["fay"] = at(1, moment)
    with pytest.raises(RosterError, match="'bob', party 'eve', party 'fay' did not answer"):
        study.count()


# What it costs


def test_without_dropouts_a_sum_takes_one_message_as_before_and_two_with_them():
    for dropouts, messages_each in ((0, 2), (2, 3)):
        study = study_of(dropouts=dropouts)
        study.count()
        assert {t.messages for t in study.session.traffic.values()} == {messages_each}
        recoveries = [r.sums.recovery for r in study.line.masked().values()]
        assert all(isinstance(r, Recovery) == bool(dropouts) for r in recoveries)


def test_in_a_cohort_too_small_for_it_nobody_may_vanish():
    study = study_of(gone={"ada": at(0, "asked to mask")})
    with pytest.raises(RosterError, match="'ada' is not there"):
        study.count(names=NAMES[:3])
    assert all(len(s.ledger.entries) <= 1 for s in study.line.sites.values())


@pytest.mark.parametrize("dropouts", [1, 2])
def test_the_ledger_pays_for_the_noise_that_is_left_at_the_worst(dropouts):
    study = study_of(dropouts=dropouts)
    study.count()
    event = study.line.sites["ada"].ledger.entries[0].event
    left = len(NAMES) - study.plan.missing
    assert left <= len(NAMES) - 1 - dropouts  # one helps the coordinator
    alone = SharedGaussian(event.share_sigma, left, 0, event.sensitivity, event.dimension)
    assert event.rho == alone.rho
    assert event.rho == pytest.approx(2 / (2 * 30.0**2), rel=1e-6)


def test_a_request_with_noise_for_colluders_alone_is_refused_before_it_is_paid_for():
    def thinner(name, step, request):
        return msgspec.structs.replace(request, tolerated=1) if type(request) is Count else request

    study = study_of(change=thinner)
    with pytest.raises(WireError, match="withstands 1 colluders and dropouts; the study says 4"):
        study.count()
    assert not study.line.sites["ada"].ledger.entries


def test_the_noise_in_a_sum_is_that_of_the_parties_in_it():
    """Variance of many cells; a share more or less is rejected."""
    study = study_of(gone={"ada": at(0, "masked"), "bob": at(0, "asked to open")}, sigma=20.0)
    noise, share = [], 0.0
    for _ in range(20):
        found = study.count()
        wanted = study.exact(found.parties)
        noise += [(a - b).ravel() for a, b in zip(found.tables, wanted, strict=True)]
        share, _ = study.noise.share(len(NAMES), 1240)
    squares, cells = float((np.concatenate(noise) ** 2).sum()), sum(map(len, noise))

    def plausible(shares):
        ratio = squares / (shares * share**2)
        return min(chi2.cdf(ratio, cells), chi2.sf(ratio, cells)) > SURE

    first = study.line.replies(OpenSum, MaskShares)[0][2]
    assert len(first.active) == 5
    assert plausible(4.05)  # 5 shares in the first sum, 4 in all others
    assert not plausible(3)
    assert not plausible(5.5)


# What the coordinator sees


@pytest.mark.usefixtures("exact")
def test_words_stay_uniform_when_all_that_opens_is_taken_away():
    names = NAMES[:5]
    big = (("a", "b"),)
    study = study_of(names=names, dropouts=1, gone={"eve": at(0, "masked")}, rows=3)
    heads = {name: [] for name in names}
    for number in range(16):
        study.line.lost.clear()
        study.session.gone.clear()
        study.line.gone = {"eve": at(number, "masked")}
        found = study.count(big)
        assert set(found.parties) == set(names) - {"eve"}
        masked = study.line.masked(number)
        step = sorted({s for _, s, _, _ in study.line.replies(Count, Counts)})[number]
        answers = {
            n: r.shares.value
            for n, s, _, r in study.line.replies(OpenSum, MaskShares)
            if s == step + 1
        }
        context = f"r/{step}/1".encode()
        for name in names:
            words = masked[name].sums.words.numpy().astype(np.uint32)
            if name in found.parties:
                some = sorted(answers)[: study.plan.threshold]
                join = joined([names.index(n) + 1 for n in some])
                seed = join([answers[n][name][:SEED] for n in some])
                assert digests_of([seed]) == masked[name].sums.recovery.digests[:SEED]
                words = words - own_mask(name, seed, context, words.size)
            heads[name].append(words)
    for words in heads.values():
        flat = np.concatenate([w.ravel() for w in words])
        for shift in (0, 8, 16, 24):
            assert uniform_p(flat << shift) > SURE


def test_nothing_of_a_sum_is_used_in_another_one():
    study = study_of()
    study.count()
    study.count()
    first, second = study.line.masked(0), study.line.masked(1)
    for name in NAMES:
        a, b = (r[name].sums for r in (first, second))
        pieces = [x.recovery.digests[i : i + SEED] for x in (a, b)
                  for i in range(0, len(x.recovery.digests), SEED)]  # fmt: skip
        assert len(set(pieces)) == len(pieces)
        assert not set(a.recovery.sealed.values()) & set(b.recovery.sealed.values())
        assert not np.array_equal(a.words.numpy(), b.words.numpy())


# Lies


def open_as(**changes):
    """Ask the first party to open something else than the others; refused by it alone."""

    def change(name, step, request):
        if name == "ada" and isinstance(request, OpenSum):
            made = {field: make(request) for field, make in changes.items()}
            return msgspec.structs.replace(request, **made)
        return request

    return change


LIES = {
    "both masks of one party": open_as(dead=lambda r: ("bob",)),
    "more dead than may be": open_as(
        active=lambda r: NAMES[:3], dead=lambda r: NAMES[3:],
        sealed=lambda r: {n: r.sealed[n] for n in NAMES[:3]},
    ),
    "itself dead": open_as(active=lambda r: NAMES[1:], dead=lambda r: NAMES[:1]),
    "a sum before the last": open_as(sum_step=lambda r: r.sum_step - 2),
    "another's share": open_as(sealed=lambda r: {**r.sealed, "bob": r.sealed["dan"]}),
    "no share": open_as(sealed=lambda r: {n: s for n, s in r.sealed.items() if n != "bob"}),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_party_that_is_lied_to_opens_nothing(lie):
    study = study_of()
    study.count()
    study.line.change = LIES[lie]
    with pytest.raises(WireError, match=r"party 'ada'.*Nothing was opened"):
        study.count()
    assert all(r.sum_step < 3 for _, _, r, _ in study.line.replies(OpenSum, MaskShares))


def test_a_second_question_with_other_lists_is_refused_and_with_the_same_ones_is_not():
    study = study_of()
    study.count()
    name, _, request, reply = study.line.replies(OpenSum, MaskShares)[0]
    for _ in range(2):
        (again,) = study.session.ask(request, [name])
        assert again == reply
    active = tuple(n for n in request.active if n != "dan")
    other = msgspec.structs.replace(request, active=active, dead=("dan",))
    with pytest.raises(WireError, match="a second time, over other parties"):
        study.session.ask(other, [name])


def test_parties_that_were_told_different_things_open_no_sum():
    """Other tables, another cohort or other noise, for one party or half of them."""

    def tables(request):
        return msgspec.structs.replace(request, cliques=(("a", "b"),), times=(1,))

    def cohort(request):
        keys = {n: k for n, k in request.keys.items() if n != "fay"}
        return msgspec.structs.replace(request, keys=keys, tolerated=2)

    def noise(request):
        return msgspec.structs.replace(request, share_sigma=request.share_sigma * 2)

    for lie, fooled in product((tables, cohort, noise), (("cleo",), ("ada", "bob", "cleo"))):

        def change(name, step, request, lie=lie, fooled=fooled):
            return lie(request) if type(request) is Count and name in fooled else request

        study = study_of(change=change)
        with pytest.raises(WireError, match=r"asked both something else|bytes|shape|sealed"):
            study.count((("a", "b"), ("b",)))
        assert len(study.line.replies(OpenSum, MaskShares)) < study.plan.threshold


def test_parties_that_were_shown_other_lists_refuse_the_next_sum():
    def change(name, step, request):
        if isinstance(request, OpenSum) and step == 2 and name == "ada":
            active = tuple(n for n in request.active if n != "fay")
            return msgspec.structs.replace(request, active=active, dead=("fay",))
        return request

    study = study_of(change=change)
    with pytest.raises(WireError, match="'ada' sent 5 shares"):  # the coordinator is honest here
        study.count()
    with pytest.raises(WireError, match="'ada' and 'bob' were shown other lists"):
        study.count()


@pytest.mark.parametrize("who", ["bob", "ada"])
def test_a_key_that_its_party_did_not_sign_is_refused_before_anything_is_paid(who):
    study = study_of()
    forged = study.keys[who][:3] + bytes([study.keys[who][3] ^ 1]) + study.keys[who][4:]
    study.keys[who] = forged
    with pytest.raises(WireError, match=f"a key that party '{who}' did not sign"):
        study.count()
    assert not any(s.ledger.entries for s in study.line.sites.values())


def test_a_share_of_an_earlier_sum_is_refused():
    study = study_of()
    study.count()
    old = study.line.replies(OpenSum, MaskShares)[0][2].sealed
    study.line.change = open_as(sealed=lambda r: old)
    with pytest.raises(WireError, match="cannot read the share of 'ada'"):
        study.count()


# Parties that lie


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_wrong_share_is_noticed_and_the_sum_is_not_used(place):
    study = study_of()
    study.count()
    step = 1
    masked = study.line.masked()
    opened = {n: r for n, _, _, r in study.line.replies(OpenSum, MaskShares)}
    shapes = [DOMAIN.shape(c) for c in CLIQUES]
    opened_sum(f"r/{step}/1", masked, opened, study.plan, shapes)
    liar = NAMES[0]
    shares = dict(opened[liar].shares.value)
    told = shares["cleo"]
    shares["cleo"] = bytes([told[0] ^ 1]) + told[1:] if place == "first" else told[:-1] + b"\0\0"
    if place == "last":
        shares["cleo"] = shares["cleo"][:-1]
    wrong = {**opened, liar: MaskShares(messages.Public(shares, "made up"))}
    if shares["cleo"] == told:
        pytest.skip("the share ends in 0")
    with pytest.raises(WireError, match="mask of party 'cleo' cannot be opened"):
        opened_sum(f"r/{step}/1", masked, wrong, study.plan, shapes)


def test_replies_without_shares_or_with_too_few_are_refused_by_name():
    study = study_of()
    study.count()
    masked = study.line.masked()
    opened = {n: r for n, _, _, r in study.line.replies(OpenSum, MaskShares)}
    shapes = [DOMAIN.shape(c) for c in CLIQUES]
    sums = masked["bob"].sums
    bare = Counts(messages.Masked(sums.words, sums.entry, sums.seal))
    cut = Counts(msgspec.structs.replace(sums, recovery=Recovery(b"", sums.recovery.sealed)))
    for wrong in (bare, cut):
        with pytest.raises(WireError, match="party 'bob' sent"):
            opened_sum("r/1/1", {**masked, "bob": wrong}, opened, study.plan, shapes)
    for shares in ({}, {**opened["bob"].shares.value, "ada": b""}):
        wrong = MaskShares(messages.Public(shares, ""))
        with pytest.raises(WireError, match="party 'bob' sent"):
            opened_sum("r/1/1", masked, {**opened, "bob": wrong}, study.plan, shapes)


def test_a_changed_reply_has_no_seal():
    site = site_with("ada", tables_of()["ada"], terms_of(NAMES, dropouts=2), limit=BUDGET)
    study = study_of()
    study.count()
    sums = study.line.masked()["ada"].sums
    ours = study.line.sites["ada"]
    assert ours.sealed_here(sums)
    other = msgspec.structs.replace(sums.recovery, digests=bytes(len(sums.recovery.digests)))
    for changed in (other, msgspec.UNSET):
        assert not ours.sealed_here(msgspec.structs.replace(sums, recovery=changed))
    assert not site.sealed_here(sums)


# Crashes


@pytest.mark.usefixtures("exact")
def test_a_party_that_was_killed_between_both_questions_opens_what_it_masked(tmp_path):
    tables, terms = tables_of(), terms_of(NAMES, dropouts=2, facts=FACTS)

    def site(name):
        store = FolderStore(tmp_path / name)
        return site_with(name, tables[name], terms, limit=BUDGET, store=store)

    study = study_of()
    sites = {n: site(n) for n in NAMES}
    ledgers = {n: s.ledger for n, s in sites.items()}
    study.line = Line(sites)
    study.session._carrier = study.line
    study.session.rounds = 0
    study.session.run = "killed"
    for name, reply in study.session.ask_present(dict.fromkeys(NAMES, KeyRequest()), 0).items():
        study.keys[name] = reply.key.value

    def killed(name, step, request):
        if isinstance(request, OpenSum):
            again = FolderStore(tmp_path / name)
            study.line.parties[name].site = site_with(
                name, tables[name], terms, ledger=ledgers[name], store=again
            )
        return request

    study.line.change = killed
    found = study.count()
    assert same(found.tables, study.exact(NAMES))


def test_a_budget_that_is_spent_ends_the_sum_at_every_party():
    study = study_of(sigma=1.0)
    study.count()
    for site in study.line.sites.values():
        site.ledger.limit = msgspec.structs.replace(BUDGET, epsilon=1e-3)
    with pytest.raises(BudgetError):
        study.count()
    assert len(study.line.masked(0)) == len(NAMES)


class Slow:
    """Parties that answer nothing from a moment on, until they are let go; then they are gone."""

    sizes = {}

    def __init__(self, line, names, kind):
        self.line, self.names, self.kind = line, names, kind
        self.released, self.asked = threading.Event(), Counter()

    def send(self, name, frame):
        body = messages.decode(frame, messages.Envelope).body
        request = messages.decode_request(body, with_closing(HANDLERS))
        self.asked[name, type(request)] += 1
        if name in self.names and isinstance(request, self.kind):
            assert self.released.wait(60)
            raise RosterError(f"party {name!r} did not answer in time")
        return self.line.send(name, frame)


@pytest.mark.usefixtures("exact")
def test_nobody_is_waited_for_whose_shares_are_not_needed():
    """Two deadlines are one: a party that vanished before it opened a sum is given up at the next.

    Nothing else would end this test: who is silent stays so until the sum is there.
    """
    study = study_of()
    session, slow = study.session, Slow(study.line, ("bob", "eve"), OpenSum)
    session._carrier, session._at_once = slow, len(NAMES)
    found = study.count()
    assert same(found.tables, study.exact(NAMES))
    assert session.gone == set()
    threading.Timer(0.5, slow.released.set).start()
    found = study.count()  # which waits for the question before
    assert session.gone == {"bob", "eve"}
    assert found.parties == ("ada", "cleo", "dan", "fay")
    assert same(found.tables, study.exact(found.parties))
    assert (slow.asked["bob", Count], slow.asked["bob", OpenSum]) == (1, 1)
    assert (slow.asked["ada", Count], slow.asked["ada", OpenSum]) == (2, 2)


def test_who_is_gone_is_not_waited_for_again_when_a_run_is_closed():
    study = study_of(gone={"bob": at(0, "asked to mask")})
    session = study.session
    session._at_once = len(NAMES)
    study.count()
    assert session.gone == {"bob"}
    session._carrier = slow = Slow(Sites(study.line.sites, HANDLERS), ("bob",), Close)
    closing = session.close()
    assert sorted(closing.ledgers) == sorted(set(NAMES) - {"bob"})
    slow.released.set()
