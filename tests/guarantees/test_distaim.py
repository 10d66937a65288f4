"""DistAIM whole: neighbours, what is paid ahead and by whom, each observer's view, and mutants.

No mechanism draws noise here: words and coins come from secrets. So the secrets of both runs of a
pair of neighbours are the same, and the tables that the second run opens are those of the first.
"""

import math
from dataclasses import dataclass, field
from itertools import product

import msgspec
import numpy as np
import pytest
from scipy import stats

from siloweave.errors import BudgetError, InputError, SiloweaveError, WireError
from siloweave.federation import masking, messages
from siloweave.federation.messages import Array, Public
from siloweave.federation.session import Session
from siloweave.methods.distaim import coordinator, party
from siloweave.methods.distaim.messages import CountShare, OpenTables, ServerWords, ShareCounts
from siloweave.methods.distaim.method import DistAIM
from siloweave.methods.flaim.method import FLAIM
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget, Relation, marginal_sensitivity, rho_for
from siloweave.privacy.coins import Coins
from siloweave.privacy.events import SharedCoins
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.protocols import secure_products as products
from siloweave.protocols.secure_marginals import coordinator as secure_coordinator
from siloweave.protocols.workloads import StudyWorkload
from siloweave.statistics.marginals import marginal
from siloweave.tables import Column, Schema, Table
from tests.guarantees.lying import at, changed, changes, fields_of
from tests.guarantees.whole import (
    BUDGET,
    DOMAIN,
    WORKLOAD,
    budget_of,
    codes,
    facts_of,
    random_rows,
    rosters,
    run_of,
)
from tests.protocols.secure import without_case

RELATIONS = [Relation.ADD_REMOVE, Relation.REPLACE_ONE]
PLACES = party.places_of(DOMAIN, WORKLOAD)
CELLS = sum(DOMAIN.size(q) for q in PLACES)


@dataclass(frozen=True)
class Study:
    """DistAIM over a roster; `opened` has the tables that the coordinator opened."""

    settings: DistAIM = DistAIM(rounds=2, participation=1.0, final_sweeps=2)  # noqa: RUF009
    budget: Budget = BUDGET
    handlers: object = None
    workload: object = tuple(WORKLOAD)
    opened: list = field(default_factory=list)

    def __call__(self, roster, seed=0):
        run = run_of(
            roster, self.handlers or party.HANDLERS, budget=self.budget, seed=seed,
            facts=facts_of(self),
        )  # fmt: skip
        unit = marginal_sensitivity(self.budget.neighbours, norm="l2")
        run.model, run.rounds = coordinator.distaim(
            Session(tuple(roster), run.wire, run="r"), DOMAIN, list(self.workload),
            rho_for(self.budget), self.settings, unit=unit, key=seed, budget=self.budget,
            secret=bytes([seed % 256, 2]) + bytes(30),
        )  # fmt: skip
        return run


@pytest.fixture
def tables(monkeypatch):
    """What is opened, table by table; tables in `replayed` are opened instead."""
    found, replayed, honest = [], [], products.opened

    def opened(parts, half, modulus):
        counts = honest(parts, half, modulus)
        found.append(replayed.pop(0) if replayed else counts)
        return found[-1]

    monkeypatch.setattr(products, "opened", opened)
    return found, replayed


def prices(requests):
    """Truncated zCDP and escape of all tables that were opened, as the events say."""
    asked = {(r.cliques, r.coins): r for r in requests}
    events = [
        SharedCoins(*coins, r.price.largest_order, r.tail, "x", r.price.moved)
        for r in asked.values()
        for coins in r.coins
    ]
    return sum(e.rho * e.count for e in events), sum(e.delta * e.count for e in events)


def opening(run):
    """What a run asked its servers to open."""
    return [r for _, r, _ in run.messages() if isinstance(r, OpenTables)]


def check(study, roster, other, tables, seed=0, asked=None):
    """Fail unless neighbours differ in what was paid for alone, and by no more.

    `asked` is what servers were asked, where that is not what the coordinator asked.
    """
    found, replayed = tables
    found.clear()
    first = study(roster, seed)
    replayed += found
    second = study(other, seed)
    asked = opening(first) if asked is None else asked
    moved = round(marginal_sensitivity(study.budget.neighbours, norm="l1"))
    for name in roster:
        ledger = first.ledger(name)
        assert ledger.events == second.ledger(name).events
        # words that were shared for another price make what is opened random
        total, escape = prices(one for one in asked if one.price in ledger.events)
        assert total <= ledger.rho * (1 + 1e-9)
        assert escape <= sum(e.delta for e in ledger.events) * (1 + 1e-9)
        assert ledger.epsilon() <= study.budget.epsilon
    for (name, asked, one), (_, again, two) in zip(
        first.messages(), second.messages(), strict=True
    ):
        assert asked == again
        if not isinstance(one, CountShare):
            assert one == two
            continue
        gap = (two.words.value.numpy() - one.words.value.numpy()).astype(np.int32)
        assert roster[name] is not other[name] or not gap.any()
        for place in PLACES.values():
            assert np.abs(gap[place]).max() <= 1
            assert np.abs(gap[place]).sum() <= moved


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_neighbours_move_a_cell_of_each_table_and_nothing_else(relation, tables):
    study = Study(budget=budget_of(relation))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        check(study, *rosters(rng, relation), tables, seed)


@pytest.mark.parametrize("parties", [1, 2])
def test_the_servers_may_be_the_only_parties(parties, tables):
    pair = rosters(np.random.default_rng(1), Relation.ADD_REMOVE, parties=parties)
    check(Study(), *pair, tables)


def test_tables_are_those_of_who_took_part_under_noise_of_the_claimed_width(tables):
    """Sums of some dozens of coins, so the gap is nearly normal."""
    found, _ = tables
    settings = DistAIM(rounds=2, participation=0.4, final_sweeps=1)
    gaps = []
    for seed in range(40):
        roster = {f"p{k}": codes(random_rows(np.random.default_rng(k), 9)) for k in range(6)}
        found.clear()
        run = Study(settings)(roster, seed)
        joined = {n for n, r, _ in run.messages() if isinstance(r, ShareCounts)}
        assert len(joined) > 0
        asked = {(r.cliques, r.coins): r for _, r, _ in run.messages() if isinstance(r, OpenTables)}
        each = [one for r in asked.values() for one in zip(r.cliques, r.coins, strict=True)]
        for (q, coins), noisy in zip(each, found, strict=True):
            exact = sum(marginal(roster[name], q) for name in joined).reshape(-1)
            gaps += list((noisy - exact) / coins.sigma)
    assert abs(np.mean(gaps)) < 4 / math.sqrt(len(gaps))
    assert 0.95 < np.std(gaps) < 1.05


# Who pays, and what for


def test_who_never_takes_part_pays_nothing_and_who_does_pays_once():
    roster = {f"p{k:02d}": codes(random_rows(np.random.default_rng(k), 3)) for k in range(12)}
    run = Study(DistAIM(rounds=3, participation=0.2, final_sweeps=1))(roster, seed=3)
    asked = [n for n, r, _ in run.messages() if isinstance(r, ShareCounts)]
    assert 0 < len(asked) < 12
    assert len(set(asked)) == len(asked)
    for name in roster:
        ledger = run.ledger(name)
        assert len(ledger.entries) == (name in asked)
        if name in asked:
            assert 0.99 * BUDGET.epsilon < ledger.epsilon() <= BUDGET.epsilon
            assert prices(opening(run))[0] > 0.7 * ledger.rho  # coins of narrow noise cost less
    servers = {n for n, r, _ in run.messages() if isinstance(r, OpenTables)}
    assert servers == {"p00", "p11"}


@pytest.mark.parametrize("tolerated", [1, 3])
def test_the_sum_that_cuts_columns_withstands_the_helpers_that_are_named(tolerated):
    """Parties that do not serve may help the coordinator; their shares of that noise are gone."""
    rows = Table.from_columns(
        {"age": (np.arange(200) % 97, None), "old": (np.arange(200) % 2, None)}
    )
    columns = Column("age", "integer", low=0, high=9999), Column("old", "integer", low=0, high=1)
    settings = DistAIM(rounds=1, participation=1.0, final_sweeps=2, tolerated=tolerated)
    fitted = settings.fit([rows] * 5, Schema(columns).with_fallbacks(), budget=Budget(1.0, 1e-6))
    sum_, paid = (entry.event for entry in fitted.ledgers["party-3"])
    assert (sum_.shares, sum_.tolerated) == (5, tolerated)
    for helpers in range(1, 5):
        one = msgspec.structs.replace(sum_, tolerated=helpers)
        assert (epsilon([one, paid], 1e-6) <= 1.0) is (helpers <= tolerated)
    seen = " ".join(view.protected_by for view in fitted.info.visibility)
    assert f"enough even if {tolerated} of them help" in seen


def test_servers_open_no_more_than_was_paid(monkeypatch):
    """A coordinator that measures with half of the noise is refused before anything is opened."""
    honest = coordinator.coins_for
    monkeypatch.setattr(
        coordinator, "coins_for", lambda sigma, order, tail: honest(sigma / 2, order, tail)
    )
    with pytest.raises(BudgetError, match="Nothing was opened"):
        Study()({"p0": codes([(0, 0, 0)]), "p1": codes([(1, 1, 1)])})


def test_a_server_that_does_not_add_up_prices_is_caught(monkeypatch, tables):
    honest = coordinator.coins_for
    monkeypatch.setattr(party, "_check_price", lambda request, site: None)
    monkeypatch.setattr(
        coordinator, "coins_for", lambda sigma, order, tail: honest(sigma / 2, order, tail)
    )
    with pytest.raises(AssertionError):
        check(Study(), *rosters(np.random.default_rng(0), Relation.ADD_REMOVE), tables)


def counted_twice(request, site):
    """Every row counts twice."""
    rows = site.rows
    site.rows = type(rows)(rows.domain, tuple(np.concatenate([c, c]) for c in rows.columns))
    try:
        return party.share(request, site)
    finally:
        site.rows = rows


def served_with_rows(request, site):
    """A server whose words depend on its own rows."""
    reply = party.open_tables(request, site)
    words = reply.words.value.numpy() + np.uint32(site.rows.num_rows)
    return ServerWords(Public(Array.of(words, "<u4"), reply.words.why))


@pytest.mark.parametrize(
    "mutant", [{ShareCounts: counted_twice}, {OpenTables: served_with_rows}], ids=["share", "open"]
)
def test_a_party_that_releases_more_is_caught(mutant, tables):
    study = Study(handlers={**party.HANDLERS, **mutant})
    rest = {"p1": codes([(0, 0, 0)])}
    with pytest.raises(AssertionError):
        check(study, {"p0": codes([]), **rest}, {"p0": codes([(1, 2, 1)]), **rest}, tables)


def test_the_simulation_protects_nothing_and_its_ledger_says_so():
    tables = [codes(random_rows(np.random.default_rng(k), 9)) for k in range(3)]
    sites = run_of(
        dict(zip("abc", tables, strict=True)), party.HANDLERS, budget=None,
        facts={"selection": "simulated", "workload": StudyWorkload(tuple(WORKLOAD), 80.0)},
    )  # fmt: skip
    settings = DistAIM(rounds=2, participation=1.0, selection="simulated", final_sweeps=2)
    model, measured = coordinator.simulated(
        Session(("a", "b", "c"), sites.wire, run="r"), DOMAIN, WORKLOAD, 0.5, settings, key=0,
        entropy=SeededEntropy(b"x"),
    )  # fmt: skip
    assert model.total == 27
    assert [len(m.cliques) for m in measured] == [3, 1, 1]
    assert all(math.isinf(sites.ledger(name).rho) for name in "abc")
    assert settings.info.guarantee == "none"


# Views


def views(seed):
    """A party's words, and both servers', of one run with fresh secrets."""
    roster = {f"p{k}": codes([(0, 0, 0)] * 5) for k in range(3)}
    found = {"share": [], "first": [], "last": []}
    for name, request, reply in Study()(roster, seed).messages():
        if isinstance(request, ShareCounts):
            found["share"].append(reply.words.value.numpy())
        if isinstance(request, OpenTables):
            found["first" if name == "p0" else "last"].append(reply.words.value.numpy())
    return {kind: np.concatenate(words) for kind, words in found.items()}


def test_words_of_parties_and_servers_are_uniform_to_the_coordinator():
    many = [views(seed) for seed in range(0, 256, 8)]  # X25519 reads no lower bits
    for kind in ("share", "first", "last"):
        words = np.concatenate([one[kind] for one in many])
        assert len(np.unique(words)) > 0.999 * len(words)
        for shift in (0, 8, 16, 24):
            counts = np.bincount((words >> shift) & 0xFF, minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-4


SMALL = Coins((1,), 8)


def opened_by_last():
    """Words of the last server for one table of few coins, and what the coordinator dealt it."""
    G = np.random.default_rng(0).integers(0, 2**32, (2, 8), dtype=np.uint32)
    price = coordinator.price_of(BUDGET, rho_for(BUDGET), 1)
    asked = OpenTables(
        (("a",),), (SMALL,), 2.0**-20, price, {"p0": b""}, (b"", b""), b"", G.tobytes()
    )
    return party._noise(asked, DOMAIN, b"secret" * 6, "run/1", None), G


def explained(words, G):
    """Whether the coordinator finds tosses of the servers that explain the words."""
    signs = np.array(list(product([1, 2**32 - 1], repeat=8)), dtype=np.uint32)
    return [(signs @ cell == word).any() for cell, word in zip(G, words, strict=True)]


def test_the_coordinator_cannot_find_the_tosses_of_the_servers(monkeypatch):
    assert not any(explained(*opened_by_last()))
    monkeypatch.setattr(products, "pad", lambda *_: np.zeros(2, np.uint32))
    assert all(explained(*opened_by_last()))


def test_a_coordinator_that_deals_other_words_reads_counts(monkeypatch):
    """So the claim, and the page on who sees what, are for one that follows the protocol.

    With r = -2^15 a coin's noise is z (2^16 + 1) and a number that is known: the upper half of an
    opened word shows the tosses, and the lower one the count."""
    r, seen = 2**32 - 2**15, []

    def dealt(self, release, secret, clique, coins):
        name, cells = "\0".join((release, *clique)), self.domain.size(clique)
        S = products.coin_masks(secret, name, cells, coins, party.MODULUS)
        return np.uint32(r) - S

    def opened(parts, half, modulus):
        words = (parts[0].astype(np.int64) + half - 2 * half * r) % modulus
        seen.append(words - (words >> 16) * (2**16 + 1))
        return seen[-1]

    monkeypatch.setattr(coordinator._Servers, "_dealt", dealt)
    monkeypatch.setattr(products, "opened", opened)
    rows = random_rows(np.random.default_rng(1), 30)
    run = Study()({"p0": codes(rows[:10]), "p1": codes(rows[10:])})
    cliques = [q for asked in opening(run)[::2] for q in asked.cliques]
    assert len(seen) == len(cliques)
    for clique, counts in zip(cliques, seen, strict=True):
        np.testing.assert_array_equal(counts, marginal(codes(rows), clique).reshape(-1))


def test_tables_that_are_opened_at_another_price_are_random(tables):
    def dearer(request):
        price = msgspec.structs.replace(request.price, total=1.1 * request.price.total)
        return msgspec.structs.replace(request, price=price)

    with pytest.raises(WireError, match=REFUSED):
        asked_of(dearer, OpenTables)
    assert np.abs(np.concatenate(tables[0])).min() > 1000  # of 12 rows
    tables[0].clear()
    asked_of(lambda request: request, OpenTables)
    assert np.abs(np.concatenate(tables[0])).max() < 1000


# What is refused

REFUSED = "one or more of parties 'p0', 'p2', 'p1' sent words that open to "


@pytest.mark.parametrize("absent", ["", "a count", "a sum"])
@pytest.mark.parametrize("case", ["a count", "a sum"])
@pytest.mark.parametrize("sender", ["p1", "p2"])
def test_words_that_open_to_impossible_tables_are_refused_by_name(
    sender, case, absent, monkeypatch
):
    """One count, with the sum as it is, or a sum of counts that can be; of a party or a server.

    Each by its case of the check alone: a copy without that takes the table for a good one.
    """
    monkeypatch.setattr(products, "noise_share", lambda coins, z, words, modulus, *, first: (
        np.zeros(len(words), np.uint32)
    ))  # fmt: skip
    monkeypatch.setattr(secure_coordinator, "_NEVER", 4)
    asked = opening(asked_of(lambda request: request, OpenTables))[0]
    coins = asked.coins[0]
    most = 12 + math.ceil(4 * coins.sigma * math.sqrt(2)) + coins.half
    lie = np.array([most, *[-(most // 5)] * 5] if case == "a count" else [most // 2] * 6)
    assert abs(lie).max() < coins.half + (case == "a count") * most

    roster = {f"p{k}": codes(random_rows(np.random.default_rng(k), 4)) for k in range(3)}

    def counted(rows, q):
        lies = rows is roster[sender] and q == ("a", "b")
        return marginal(rows, q) + (lie.reshape(2, 3) if lies else 0)

    monkeypatch.setattr(party, "marginal", counted)
    without_case(monkeypatch, absent, 12)
    if absent == case:
        assert Study()(roster).model.total > 0
        return
    with pytest.raises(WireError, match=f"{REFUSED}{case} of [0-9,]+ in a×b"):
        Study()(roster)


def test_settings_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match="selection='secret' must be one of planned, simulated"):
        DistAIM(selection="secret")
    with pytest.raises(InputError, match="variant='public' must be one of private, naive"):
        FLAIM(variant="public")


def asked_of(change, kind):
    """Run a study whose requests of a kind are changed before parties answer them."""
    honest = party.HANDLERS[kind]
    handlers = {**party.HANDLERS, kind: lambda request, site: honest(change(request), site)}
    roster = {f"p{k}": codes(random_rows(np.random.default_rng(k), 4)) for k in range(3)}
    return Study(handlers=handlers)(roster)


def swapped(request):
    first, last = request.servers
    return msgspec.structs.replace(request, servers=(last, first))


@pytest.mark.parametrize("kind", [ShareCounts, OpenTables])
def test_no_lie_in_any_field_opens_more_than_was_paid(kind, monkeypatch):
    """Tables that make no sense are opened as 5, so that the run goes on."""
    pair = rosters(np.random.default_rng(3), Relation.ADD_REMOVE)
    honest, refused, lies = party.HANDLERS[kind], 0, 0
    sample = [r for _, r, _ in Study()(pair[0]).messages() if isinstance(r, kind)][1]
    monkeypatch.setattr(products, "opened", lambda parts, half, modulus: 0 * parts[0] + 5.0)
    for path in fields_of(sample):
        for new in changes(at(sample, path))[:4] if path else ():
            asked = []

            def lying(request, site, path=path, new=new, asked=asked):
                lie = changed(request, path, new)
                asked.append(messages.decode(messages.encode(lie), kind))
                return honest(asked[-1], site)

            study = Study(handlers={**party.HANDLERS, kind: lying})
            lies += 1
            try:
                check(study, *pair, ([], []), asked=asked if kind is OpenTables else None)
            except SiloweaveError:
                refused += 1
    assert lies / 3 < refused < lies


LIES = {
    "another relation": (
        ShareCounts,
        lambda r: msgspec.structs.replace(r, price=msgspec.structs.replace(r.price, moved=2)),
    ),
    "a key of the coordinator": (
        ShareCounts,
        lambda r: msgspec.structs.replace(r, server=masking.new_secret() + r.server[32:]),
    ),
    "keys of others": (OpenTables, swapped),
    "nobody": (OpenTables, lambda r: msgspec.structs.replace(r, joined={})),
    "other tables": (OpenTables, lambda r: msgspec.structs.replace(r, cliques=(("a", "c"),))),
    "no coins": (OpenTables, lambda r: msgspec.structs.replace(r, coins=((),) * len(r.coins))),
    "too few dealt": (OpenTables, lambda r: msgspec.structs.replace(r, dealt=r.dealt[:-4])),
}


@pytest.mark.parametrize("lie", LIES)
def test_requests_beyond_the_study_are_refused(lie):
    with pytest.raises(WireError):
        asked_of(LIES[lie][1], LIES[lie][0])


def test_a_party_pays_no_more_than_its_limit():
    def dearer(request):
        price = msgspec.structs.replace(request.price, total=1.01 * request.price.total)
        return msgspec.structs.replace(request, price=price)

    with pytest.raises(BudgetError):
        asked_of(dearer, ShareCounts)


def test_counts_are_shared_once_a_run(monkeypatch):
    monkeypatch.setattr(
        coordinator, "rounds_of", lambda session, settings, key: [["p0"], ["p0", "p1"]]
    )
    with pytest.raises(WireError, match="may only come first"):
        Study()({"p0": codes([(0, 0, 0)]), "p1": codes([(1, 1, 1)])})


def test_a_party_that_does_not_serve_opens_nothing():
    run = Study()({f"p{k}": codes([(0, 0, 0)]) for k in range(3)})
    asked = next(r for _, r, _ in run.messages() if isinstance(r, OpenTables))
    with pytest.raises(WireError, match="not its to open"):
        party.open_tables(asked, run.sites["p1"])


@pytest.mark.parametrize("kind", [ShareCounts, OpenTables])
def test_a_reply_of_another_shape_is_refused_by_name(kind, monkeypatch):
    honest = Array.of

    def short(handler):
        def answer(request, site):
            monkeypatch.setattr(Array, "of", lambda v, dtype: honest(v[:-1], dtype))
            try:
                return handler(request, site)
            finally:
                monkeypatch.setattr(Array, "of", honest)

        return answer

    handlers = {**party.HANDLERS, kind: short(party.HANDLERS[kind])}
    with pytest.raises(WireError, match="party 'p0' sent words of shape"):
        Study(handlers=handlers)({f"p{k}": codes([(0, 0, 0)]) for k in range(2)})
