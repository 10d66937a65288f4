"""Secure marginals over small parties: exact, resumed, and what a party refuses."""

import tracemalloc
from itertools import combinations

import msgspec
import numpy as np
import pytest

import siloweave as sw
from siloweave.datasets import adult, adult_schema
from siloweave.errors import (
    BudgetError,
    CapacityError,
    LedgerError,
    RosterError,
    SchemaError,
    WireError,
)
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope, payments, reply_type
from siloweave.methods.secure_two_round.method import SecureTwoRound
from siloweave.privacy.accountants import epsilon, of_one_person
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import Gaussian, SharedCoins
from siloweave.privacy.ledger import Ledger
from siloweave.protocols import secure_products as products
from siloweave.protocols.secure_marginals import coordinator as secure_coordinator
from siloweave.protocols.secure_marginals import messages as secure_messages
from siloweave.protocols.secure_marginals import party as secure_party
from siloweave.protocols.secure_marginals import plan as secure_plan
from tests.core.kills import WHERE, KilledError, Tap
from tests.federation.sites import handlers_of
from tests.federation.small import reply_in
from tests.protocols.secure import (
    PAIR,
    RELATIONS,
    SCHEMA,
    SIZES,
    SPLITS,
    TWO,
    ask_otherwise,
    budget_of,
    exact,
    full_at,
    people,
    study_of,
    with_fields,
    without_case,
    without_noise,
    words_sent,
)
from tests.protocols.test_secure_products import UNLIKELY, p_uniform

SERVERS = {"north", "south"}
EVERY = [clique for k in (1, 2, 3) for clique in combinations(SIZES, k)]


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for clique, table in wanted.items():
        np.testing.assert_array_equal(found[clique], table, err_msg=str(clique))


# Exact


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", SPLITS)
def test_tables_without_noise_are_the_counts(split, relation, monkeypatch):
    without_noise(monkeypatch)
    study = study_of(people(), SPLITS[split], budget_of(relation))
    same(study.counts(EVERY), exact(people(), EVERY))
    padded = study.secure.rows - 30
    assert padded > 0 if relation is Relation.ADD_REMOVE else padded == 0


def test_a_table_of_all_columns_of_four_parties(monkeypatch):
    without_noise(monkeypatch)
    cliques = [tuple(SIZES), ("a", "c", "e"), ("f",)]
    study = study_of(people(), SPLITS["four parties"])
    assert study.secure.can_measure(cliques[0])
    same(study.counts(cliques), exact(people(), cliques))


@pytest.mark.parametrize("most", [1_000, 100])
def test_rows_in_many_messages_give_the_same(most, monkeypatch):
    """Ten rows in each, and one; tables of shifted codes in a message each."""
    without_noise(monkeypatch)
    full_at(monkeypatch, most)
    monkeypatch.setattr(products, "_MOST_WORDS", 50)
    study = study_of(people(), SPLITS["three parties"], budget_of(Relation.REPLACE_ONE))
    same(study.counts(EVERY), exact(people(), EVERY))
    owned = secure_plan.owned_codes(study.secure.plan, study.secure.domain)
    planned = secure_plan.slabs_of(owned, 30)
    assert any(slab.proven > slab.stop for slab in planned), "some proofs come early"
    slabs = len(planned)
    assert study.secure.session.rounds > 1 + slabs + len([q for q in EVERY if len(q) == 3])


@pytest.mark.parametrize("full", [50, 400, 5_000, 20_000])
def test_rows_and_proofs_fit_into_few_messages(full, monkeypatch):
    """Each row is shared once and after its proof, in no more messages than slabs of one size."""
    full_at(monkeypatch, full)
    rng = np.random.default_rng(full)
    for _ in range(40):
        number = int(rng.integers(1, 5))
        owned = [(int(rng.integers(1, 40)), int(rng.integers(1, 5))) for _ in range(number)]
        rows, whole = int(rng.integers(1, 300)), 4 * sum(map(sum, owned))
        slabs = secure_plan.slabs_of(owned, rows)
        starts, stops, proven = zip(*slabs, strict=True)
        assert (0, *stops[:-1]) == starts
        assert stops[-1] == proven[-1] == rows
        assert all(start < stop <= last for start, stop, last in slabs)
        if whole > 0.9 * full:  # a row and its proof are more than a message
            continue
        assert len(slabs) <= -(-rows // int(0.9 * full / whole))
        before = np.diff([0, 0, *stops])[:-1]
        for proof, sent, given in secure_plan.row_bytes_of(owned):
            assert max(given * before + proof * np.diff([0, *proven])) <= 0.9 * full
            assert max(sent, given) * max(np.diff([0, *stops])) <= 0.9 * full


def test_a_million_rows_take_five_questions():
    """Of Adult's 162 codes in 15 columns, at two parties or three: two messages share them."""
    for owned in ([(81, 8), (81, 7)], [(54, 5)] * 3):
        assert len(secure_plan.slabs_of(owned, 10**6)) == 2
        assert len(secure_plan.slabs_of(owned, 500_000)) == 1


def carried(request):
    """Bytes of what a party is sent to measure."""
    sent = [*request.deliveries.values(), *request.coins.values()]
    return sum(len(one.data) for one in sent) + len(request.seeds) + len(request.cells)


@pytest.mark.parametrize(
    ("rows", "widest", "most", "messages"),
    [
        (30, 2, 10**6, 1),
        (30, 2, 12_000, 2),  # coins of pairs
        (150, 2, 18_500, 2),  # which alone would fit, but not with the rows
        (30, 3, 30_000, 6),  # and what is dealt for wide tables
    ],
)
def test_coins_rows_and_words_of_wide_tables_fit_into_messages_together(
    rows, widest, most, messages, monkeypatch
):
    study, seen = study_of(people(rows), TWO, budget_of(Relation.REPLACE_ONE)), []
    full_at(monkeypatch, most)
    ask_otherwise(monkeypatch, "south", "MeasureTables", lambda request: (
        seen.append(carried(request)) or request
    ))  # fmt: skip
    study.counts([q for q in EVERY if len(q) <= widest])
    assert max(seen) <= 0.96 * most
    assert len(seen) == messages


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_no_rows(rows, monkeypatch):
    without_noise(monkeypatch)
    study = study_of(people(rows), TWO)
    same(study.counts(EVERY), exact(people(rows), EVERY))
    assert study.secure.rows > rows


def test_a_second_measurement_shares_no_rows_again(monkeypatch):
    without_noise(monkeypatch)
    study = study_of(people(), SPLITS["three parties"])
    same(study.counts(EVERY[:20]), exact(people(), EVERY[:20]))
    rounds = study.secure.session.rounds
    same(study.counts(EVERY[10:]), exact(people(), EVERY[10:]))
    assert study.secure.session.rounds == rounds + 1


def test_noise_is_as_wide_as_a_measurement_says():
    """Of all kinds of tables: within one party, of a pair, and by shifted codes."""
    frame = people(200)
    study = study_of(frame, SPLITS["three parties"], budget_of(epsilon=400.0), seed=1)
    found = study.secure.measure(EVERY, [20.0] * len(EVERY))
    wanted = exact(frame, EVERY)
    for kind in (1, 2, 3):
        gaps = [
            ((m.counts - wanted[m.clique]) / m.sigma).reshape(-1)
            for m in found
            if len(study.secure.plan.holders(m.clique)) == kind
        ]
        gap = np.concatenate(gaps)
        assert abs(gap.mean()) < 4 / np.sqrt(gap.size)
        assert abs(gap.std() - 1) < 4 / np.sqrt(2 * gap.size)
        assert gap.size > 10
    assert all(20.0 <= m.sigma < 20.5 for m in found)


# Ledgers


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_release_of_several_parties_is_one_in_all_of_their_ledgers(relation):
    study = study_of(people(), SPLITS["three parties"], budget_of(relation))
    study.counts(EVERY)
    ledgers = {name: site.ledger.events for name, site in study.sites.items()}
    together = of_one_person(ledgers.values())
    moved = 1 if relation is Relation.ADD_REMOVE else 2
    joint = [event for event in together if isinstance(event, SharedCoins)]
    crossing = [q for q in EVERY if len(study.secure.plan.holders(q)) > 1]
    assert sum(event.count for event in joint) == moved * len(crossing)
    assert len({event.release for event in joint}) == len(joint)
    own = [event for event in together if isinstance(event, Gaussian)]
    within = len(EVERY) - len(crossing)
    assert sum(e.sensitivity**2 for e in own) == pytest.approx(moved * within)
    for event in joint:  # who has columns of a table, or opens it, has paid for it
        holders, kind = event.release.split("/")[2:4]
        names = set(holders.split("+")) | (SERVERS if kind == "tables" else set())
        assert all((event in ledgers[n]) == (n in names) for n in ledgers)
    limit = study.secure.plan.budget
    assert epsilon(together, limit.delta) <= limit.epsilon


def test_prices_of_all_parties_together_are_held_to_the_study():
    study = study_of(people(), TWO, budget_of(epsilon=1.0))
    plan = study.secure.plan
    sigma = np.sqrt(3 / (2 * 0.99 * plan.rho_tables))  # three tables, of north, south and both
    study.counts([("a",), ("c",), ("a", "c")], sigma)
    before = [site.ledger.entries for site in study.sites.values()]
    with pytest.raises(BudgetError, match=r"was asked for 4 marginals in all, which cost all"):
        study.counts([("d",)], sigma)
    assert [site.ledger.entries for site in study.sites.values()] == before
    assert all(site.ledger.epsilon() < 0.9 for site in study.sites.values())


# What a party refuses


def tables(**fields):
    """A change of the first table in a request."""

    def changed(request):
        first = msgspec.structs.replace(request.tables[0], **fields)
        return msgspec.structs.replace(request, tables=(first, *request.tables[1:]))

    return changed


def flipped(data, place=0):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def delivered(**fields):
    """A change of what is delivered."""

    def changed(request):
        new = {
            name: msgspec.structs.replace(
                one, **{n: v(getattr(one, n)) if callable(v) else v for n, v in fields.items()}
            )
            for name, one in request.deliveries.items()
        }
        return msgspec.structs.replace(request, deliveries=new)

    return changed


def renamed(request):
    new = dict.fromkeys(("north", "nobody"), request.deliveries["north"])
    return msgspec.structs.replace(request, deliveries=new)


def twice(request):
    return msgspec.structs.replace(request, tables=request.tables * 2)


COINS = {"sigma": 0.0, "weights": (1,) * 400, "copies": 2}
REFUSED = [
    ("MeasureTables", twice, "asked about the same columns twice"),
    ("MeasureTables", tables(clique=("c", "a")), "each is named once, in this order"),
    ("MeasureTables", tables(clique=("z",)), "asked about the columns"),
    ("MeasureTables", tables(weights=()), "noise that cannot be"),
    ("MeasureTables", tables(weights=(), sigma=20.0), "noise that cannot be"),
    ("MeasureTables", tables(sigma=20.0), "noise that cannot be"),
    ("MeasureTables", tables(clique=("c",)), "noise that cannot be"),
    ("MeasureTables", tables(clique=("c",), sigma=0.001), "noise that cannot be"),
    ("MeasureTables", tables(copies=3), "noise that cannot be"),
    ("MeasureTables", tables(weights=(0, 1)), "noise that cannot be"),
    ("MeasureTables", tables(weights=(2**25,), copies=2), "noise that cannot be"),
    ("MeasureTables", tables(weights=(1,), copies=2), "cost all parties together"),
    ("MeasureTables", tables(weights=(1000,), copies=8), "rho = inf"),
    ("MeasureTables", with_fields(tables=()), "cost all parties together"),
    ("MeasureTables", with_fields(deliveries={}), "before all rows were delivered"),
    ("MeasureTables", with_fields(corrections={}), "before all rows were delivered"),
    ("MeasureTables", with_fields(coins={}), "was dealt too few coins"),
    ("MeasureTables", delivered(data=flipped), "cannot read what 'north' sent it"),
    ("MeasureTables", delivered(key=flipped), "cannot read what 'north' sent it"),
    ("MeasureTables", delivered(data=b""), "cannot read what 'north' sent it"),
    ("MeasureTables", delivered(step=0), "that nobody asked for"),
    ("MeasureTables", delivered(step=7), "that nobody asked for"),
    ("MeasureTables", delivered(seed=bytes(32)), "rows by 'north' that are no codes"),
    ("MeasureTables", renamed, "that nobody asked for"),
    ("ShareRows", with_fields(start=1), "was asked for rows 1 to"),
    ("ShareRows", with_fields(stop=0), "was asked for rows 0 to 0"),
    ("ShareRows", with_fields(stop=1), r"'secure/share' 1 times for \d+ rows, and shares rows 0"),
    ("ShareRows", with_fields(stop=10**6), "was asked for rows 0 to 1000000"),
    ("ShareRows", with_fields(rows=0), "cannot be"),
    ("ShareRows", with_fields(rows=2**31), "cannot be"),
    ("ShareRows", with_fields(keys={}), "the study has others"),
    ("ShareRows", with_fields(keys=lambda k: {**k, "nobody": k["north"]}), "has others"),
    ("ShareRows", with_fields(keys=lambda k: dict.fromkeys(k, k["south"])), "did not sign"),
    ("ShareRows", with_fields(keys=lambda k: {**k, "north": bytes(96)}), "did not sign"),
    ("ShareRows", with_fields(dealer=bytes(32)), "is not usable"),
    ("ShareRows", with_fields(sizes=()), "more codes than the study's columns can have"),
    ("ShareRows", with_fields(sizes=lambda s: (9, *s[1:])), "more codes than the study's"),
    ("ShareRows", with_fields(sizes=lambda s: (*s[:5], 1)), "codes its columns otherwise"),
]


@pytest.mark.parametrize(("question", "change", "words"), REFUSED)
def test_a_request_that_does_not_fit_is_refused_before_anything_is_paid(
    question, change, words, monkeypatch
):
    study = study_of(people(), TWO, budget_of(epsilon=2.0))
    before = study.sites["south"].ledger.entries
    ask_otherwise(monkeypatch, "south", question, change)
    with pytest.raises((WireError, BudgetError), match=words) as refused:
        study.counts(PAIR)
    assert "party 'south'" in str(refused.value) or "is not usable" in words
    assert study.sites["south"].ledger.entries == before


@pytest.mark.parametrize(("party", "field"), [("south", "seeds"), ("north", "cells"),
                                               ("south", "cells")])  # fmt: skip
def test_too_little_for_a_wide_table_is_refused(party, field, monkeypatch):
    study = study_of(people(), SPLITS["three parties"])
    cut = with_fields(**{field: lambda data: data[:-1]})
    ask_otherwise(monkeypatch, party, "MeasureTables", cut)
    with pytest.raises(WireError, match=f"party '{party}' was dealt too few {field}"):
        study.counts([("a", "c", "e")])
    assert not [e for e in study.sites[party].ledger.events if isinstance(e, SharedCoins)]


def test_only_the_first_two_parties_are_dealt_anything_for_wide_tables(monkeypatch):
    study, seen = study_of(people(), SPLITS["four parties"]), {}
    for name in study.sites:

        def noted(request, name=name):
            seen[name] = len(request.seeds), len(request.cells), sorted(request.coins)
            return request

        ask_otherwise(monkeypatch, name, "MeasureTables", noted)
    study.counts([("c", "d", "e"), ("a", "b", "c")])
    rows = study.secure.rows
    C = 2 * rows * (2 * 3 + 3 * 3)
    assert seen == {
        "north": (0, C, []), "south": (16 * rows * 4, C, ["north"]),
        "west": (0, 0, []), "east": (0, 0, []),
    }  # fmt: skip


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MOST_WORDS", "MOST_CELLS"])
def test_tables_are_measured_as_long_as_they_fit_together(limit, monkeypatch):
    study = study_of(people(), SPLITS["three parties"]).secure
    one, two = ("a", "c", "e"), ("b", "c", "e")
    assert study.can_measure([one, two])
    both = {"MAX_BYTES": secure_plan.dealt_bytes(study.domain, [one, two], study.rows)[0] / 0.9,
            "MOST_WORDS": study.rows * 72, "MOST_CELLS": 36}  # fmt: skip
    monkeypatch.setattr(secure_plan, limit, both[limit])
    assert study.can_measure([one, two])
    monkeypatch.setattr(secure_plan, limit, both[limit] - 1)
    assert not study.can_measure([one, two])
    assert study.can_measure([one]) == (limit != "MOST_CELLS")
    assert study.can_measure([("a", "b"), ("a", "c")])  # which are opened in another way


def test_a_faint_table_does_not_take_planned_ones_into_a_second_message(monkeypatch):
    """Its words are twice as wide as was assumed when it was planned."""
    study = study_of(people(3000), SPLITS["three parties"]).secure
    wide = [q for q in EVERY if len(q) == 3 and study.plan.is_shifted(q)]
    size, _ = secure_plan.dealt_bytes(study.domain, wide, study.rows)
    full_at(monkeypatch, size / 0.9)
    assert study.can_measure(wide)
    tables = [study.plan.table_for(q, 20.0) for q in wide[1:]]
    faint = study.plan.table_for(wide[0], 9_000.0)
    assert products.modulus_for(study.rows, faint.coins) == 2**32
    assert len(list(study._batches([faint, *tables]))) == 1
    every = [study.plan.table_for(q, 9_000.0) for q in wide]
    assert len(list(study._batches(every))) == 2


@pytest.mark.parametrize("rows", [5, 30, 10**6])
def test_another_bound_than_the_first_party_sent_opens_nothing(rows, monkeypatch):
    """With fewer rows than there are, one that is removed would move another one in."""
    study = study_of(people(), TWO)
    study.secure.rows = rows
    with pytest.raises(WireError, match=f"'north' was sent a bound of {rows:,} rows"):
        study.counts(PAIR)


class StoppedError(Exception):
    """A coordinator that is killed."""


def test_rows_are_shared_once_and_all_of_them():
    """A row that is shared twice would count twice; a part of the rows would move with each."""
    study = study_of(people(), TWO, budget_of(Relation.REPLACE_ONE))

    def stopped(request):
        if request.start:
            raise StoppedError
        return request

    with pytest.MonkeyPatch.context() as patch:
        full_at(patch, 15 * 4 * (17 + 6) / 0.9)
        ask_otherwise(patch, "north", "ShareRows", stopped)
        with pytest.raises(StoppedError):
            study.counts(PAIR)
    with pytest.raises(WireError, match=r"was asked to count after \d+ of its rows were shared"):
        study.counts(PAIR)
    study = study_of(people(), TWO, budget_of(Relation.REPLACE_ONE))
    study.counts(PAIR)
    study.secure._slabs.clear()
    with pytest.raises(WireError, match="was asked for rows 0 to 30 in one message"):
        study.counts([("b", "c")])


def test_noise_that_words_cannot_hold_is_refused(monkeypatch):
    study = study_of(people(), TWO, budget_of(Relation.REPLACE_ONE))
    monkeypatch.setattr(secure_party, "MOST_ROWS", 99)  # above rows, and below what noise may be
    with pytest.raises(WireError, match=r"asked for noise of up to .* which is too wide"):
        study.counts(PAIR)


def test_other_keys_or_codes_than_before_are_refused(monkeypatch):
    study = study_of(people(), TWO)
    full_at(monkeypatch, 2_000)  # two slabs or more, whatever noise rows have
    seen = []

    def later(request):
        seen.append(request)
        return (
            request if len(seen) == 1 else msgspec.structs.replace(request, rows=request.rows + 1)
        )

    ask_otherwise(monkeypatch, "south", "ShareRows", later)
    with pytest.raises(WireError, match="'south' was sent other keys, rows or codes before"):
        study.counts(PAIR)


def test_a_party_that_shares_no_codes_is_named(monkeypatch):
    real = products.one_hot

    def heavy(codes, sizes):
        """Counts the first row 4 times, and adds up to 1."""
        made = real(codes, sizes)
        if tuple(sizes) != (3, 3, 2):
            return made
        made = made.astype(np.uint32)
        column = int(codes[0][0])
        made[0, column], made[0, (column + 1) % 3] = 4, products.P - 3
        return made

    monkeypatch.setattr(secure_party.products, "one_hot", heavy)
    study = study_of(people(), {"north": "abd", "south": "cef"})
    with pytest.raises(WireError, match="'south' was sent rows by 'north' that are no codes"):
        study.counts(PAIR)


def test_parties_with_other_numbers_of_rows():
    frames = {"north": people(), "south": people()[:29]}
    study = study_of(None, TWO, budget_of(Relation.REPLACE_ONE), given=frames)
    with pytest.raises(WireError, match=r"'south' .* 30 rows, which cannot be"):
        study.counts(PAIR)
    parts = {name: frames[name][list(own)] for name, own in TWO.items()}
    with pytest.raises(RosterError, match="'south' has 29 rows"):
        SecureTwoRound().fit(parts, SCHEMA, budget=budget_of())


def test_a_workload_of_unknown_columns_stops_before_anything_is_paid():
    with pytest.raises(SchemaError, match="no attribute 'z'"):
        study_of(people(), TWO, synth=SecureTwoRound(workload=[("a", "z")]))


# A coordinator that sends parties different tables


def at_odds(study, monkeypatch):
    """Words of north for a x c and of south for b x c, put together; and what they would show.

    The coordinator lies, so it opens them itself, where ours refuses what they open to.
    """
    plan, hot = study.secure.plan, {}
    words = words_sent(monkeypatch)
    ask_otherwise(monkeypatch, "south", "MeasureTables", tables(clique=("b", "c")))
    with pytest.raises(WireError, match="'north' and 'south' sent words that open to a "):
        study.counts(PAIR)
    half = plan.table_for(PAIR[0], 20.0).coins.half
    opened = products.opened(words, half, products.P).reshape(3, 4)
    for name, site in study.sites.items():
        party = secure_party._party(plan.synth, site)
        hot[name] = party.one_hot((0, study.secure.rows)).astype(np.int64)
    V = products.masks(study.secure._shared["south"], secure_plan.in_run("r", 1),
                       study.secure.rows, 9)[:, :4].astype(np.int64)  # fmt: skip
    context = secure_plan.in_run("r", "R", "north", "south")
    R = products.masks(study.secure._shared["north"], context, 8, 9).astype(np.int64)
    a, b = hot["north"][:, :3], hot["north"][:, 3:6]
    known = (b - a).T @ (V % products.P) + R[:3, :4] - R[3:6, :4] + a.T @ hot["south"][:, :4]
    gap = (opened.astype(np.int64) - known) % products.P
    return np.minimum(gap, products.P - gap)


def test_words_for_different_tables_open_to_nothing(monkeypatch):
    found = []
    for seed in range(12):
        with monkeypatch.context() as patch:
            study = study_of(people(), TWO, budget_of(Relation.REPLACE_ONE), seed=seed)
            found.append(at_odds(study, patch))
    assert p_uniform(np.array(found), products.P / 2, bins=8) > UNLIKELY


def test_without_a_pad_of_what_was_asked_they_would_show_rows(monkeypatch):
    """What is left is noise alone, and a guess of one row that is wrong would be seen at once."""
    monkeypatch.setattr(secure_party._Party, "digest", lambda party, tables: "")
    study = study_of(people(), TWO, budget_of(Relation.REPLACE_ONE), seed=1)
    assert at_odds(study, monkeypatch).max() < 1_000


def test_own_tables_at_different_parties_are_what_it_could_take_too_much_of(monkeypatch):
    """Documented: each party holds its own limit, and takes the rest of a list on trust."""
    study = study_of(people(), TWO, budget_of(epsilon=1.0))
    sigma = 1 / np.sqrt(2 * 0.99 * study.secure.plan.rho_tables)

    def own(clique):
        table = secure_messages.NoisyTable(clique, float(sigma))
        return with_fields(tables=(table,))

    ask_otherwise(monkeypatch, "north", "MeasureTables", own(("a",)))
    ask_otherwise(monkeypatch, "south", "MeasureTables", own(("c",)))
    with pytest.raises(WireError, match="groups of tables"):  # its own check, too late
        study.counts(PAIR, 400.0)
    ledgers = [site.ledger.events for site in study.sites.values()]
    assert all(epsilon(events, 1e-6) <= 1.0 for events in ledgers)
    assert epsilon(of_one_person(ledgers), 1e-6) > 1.2


def apart(gap, cells):
    """A lie about one cell that leaves the sum as it is, and all others within the noise."""
    rest = np.full(cells - 1, -gap // (cells - 1))
    return [gap, *rest[:-1], -gap - int(rest[:-1].sum())]


LIES = [  # of tables with 30 rows, and what they add to south's words; the last one is of 2^16
    (("a", "c"), [60] * 12, "a sum"),
    (("a", "c"), [-60] * 12, "a sum"),
    (("a", "c"), apart(1_300, 12), "a count"),
    (("a", "c", "e"), apart(2_000, 36), "a count"),
]


@pytest.mark.parametrize("absent", ["", "a count", "a sum"])
@pytest.mark.parametrize(("clique", "more", "case"), LIES)
def test_words_that_open_to_impossible_counts_are_refused(clique, more, case, absent, monkeypatch):
    """Each lie by one case of the check alone: a copy without it takes the table for a good one."""
    without_noise(monkeypatch)
    monkeypatch.setattr(secure_coordinator, "_NEVER", 5)
    study, real = study_of(people(), TWO, budget_of(Relation.REPLACE_ONE)), secure_party._closed

    def lied(party, group, dealt, tables):
        sent = real(party, group, dealt, tables)
        if party.site.name == "south":
            modulus = group.modulus(30)
            sent = products.added(sent, np.array(more) % modulus, modulus)
        return sent.astype(np.uint32)

    monkeypatch.setattr(secure_party, "_closed", lied)
    without_case(monkeypatch, absent, 30)
    if absent == case:
        wanted = exact(people(), [clique])[clique] + np.reshape(
            more, study.secure.domain.shape(clique)
        )
        np.testing.assert_array_equal(study.counts([clique])[clique], wanted)
        return
    with pytest.raises(WireError, match=f"'north' and 'south' sent words that open to {case} of"):
        study.counts([clique])


# What the claim leaves out: a coordinator that deals other words than the protocol says


def test_coins_that_are_no_bits_leave_no_noise(monkeypatch):
    """With r = 1/2 modulo P, z xor r is 1/2 whatever z is."""
    study, real = study_of(people(), TWO, budget_of(Relation.REPLACE_ONE)), products.coin_bits

    def halves(secret, context, cells, coins):
        bits = real(secret, context, cells, coins)
        dealt = secret == study.secure._secret
        return np.full(bits.shape, (products.P + 1) // 2, np.uint32) if dealt else bits

    monkeypatch.setattr(products, "coin_bits", halves)
    same(study.counts(PAIR), exact(people(), PAIR))


def test_a_correction_that_is_a_thousand_too_large_shows_a_row(monkeypatch):
    clique, real = ("a", "c", "e"), products.corrections

    def heavy(seeds, info, b, shape, root, modulus):
        made = real(seeds, info, b, shape, root, modulus).copy()
        own, rest = seeds[0][0, b[0, root], 0], np.delete(b[0], root)
        more = 1_000 if own & np.uint64(1) else -1_000
        at = 0, np.ravel_multi_index(tuple(rest), np.delete(shape, root))
        made[at] = (int(made[at]) + more) % modulus
        return made

    monkeypatch.setattr(products, "corrections", heavy)
    words = words_sent(monkeypatch)
    study = study_of(people(), TWO, budget_of(Relation.REPLACE_ONE))
    with pytest.raises(WireError, match="sent words that open to a count of"):  # to ours
        study.counts([clique])
    table = study.secure.plan.table_for(clique, 20.0)
    opened = products.opened(words, table.coins.half, products.modulus_for(30, table.coins))
    opened = opened.reshape(study.secure.domain.shape(study.secure.plan.as_sent(clique)))
    clique = study.secure.plan.as_sent(clique)
    row = [SCHEMA[n].categories.index(people()[n][0]) for n in clique]
    assert list(np.unravel_index(opened.argmax(), opened.shape)) == row


def test_a_wrong_word_for_a_proof_shows_a_code_by_a_refusal(monkeypatch):
    row, refused = SCHEMA["a"].categories.index(people()["a"][0]), []
    for guess in range(3):
        study = study_of(people(), TWO, budget_of(Relation.REPLACE_ONE))
        shared = study.secure._shared["north"]
        b = products.shifts(shared, secure_plan.in_run("r", 1), 30, (3, 3, 2))[0, 0]

        def changed(request, place=(guess + b) % 3):
            words = request.proof.numpy().copy()
            words[0, place] = (int(words[0, place]) + 1) % products.P
            return msgspec.structs.replace(request, proof=secure_messages.Array.of(words, "<u4"))

        with monkeypatch.context() as patch:
            ask_otherwise(patch, "north", "ShareRows", changed)
            try:
                study.counts(PAIR)
            except WireError:
                refused.append(guess)
    assert refused == [row]


# Killed, and resumed


def fit(folder, noise="os", run="r"):
    parts = {name: people()[list(own)] for name, own in SPLITS["three parties"].items()}
    return SecureTwoRound(final_sweeps=3).fit(
        parts, SCHEMA, budget=budget_of(epsilon=3.0), folder=folder, run=run, noise=noise, at_once=1
    )


def ledgers(folder):
    paths = sorted((folder / "parties").glob("*/ledger.jsonl"))
    return [Ledger.read(path).events for path in paths]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("at", [2, 5, 8, 11])
def test_a_killed_run_sends_the_same_bytes_and_pays_once(at, where, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        first = Tap(patch, at, where)
        with pytest.raises(KilledError):
            fit(tmp_path)
    before = ledgers(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        second = Tap(patch)
        fitted = fit(tmp_path)
    for step, answer in first.answers.items():
        assert second.answers[step] == answer, "a second draw was sent"
    for old, new in zip(before, ledgers(tmp_path), strict=True):
        assert new[: len(old)] == old
    assert [sum(isinstance(e, SharedCoins) for e in own) for own in ledgers(tmp_path)] == [
        sum(isinstance(e, SharedCoins) for e in own)
        for own in ([entry.event for entry in entries] for entries in fitted.ledgers.values())
    ]
    assert 0.5 < fitted.epsilon <= 3.0
    with pytest.MonkeyPatch.context() as patch:
        third = Tap(patch)
        again = fit(tmp_path)
    assert {k: v for k, v in third.answers.items() if k in second.answers} == second.answers
    assert again.epsilon == fitted.epsilon


def test_a_party_whose_store_is_gone_answers_nothing_again(tmp_path):
    fit(tmp_path)
    for path in (tmp_path / "parties").glob("0001/store/*"):
        path.unlink()
    with pytest.raises(LedgerError, match="does not know that run"):
        fit(tmp_path)


QUESTIONS = [("Begin", 1), ("ShareRows", 1), ("MeasureTables", 1), ("MeasureTables", 2)]


@pytest.mark.parametrize("answered", [False, True], ids=["before it answers", "after it"])
@pytest.mark.parametrize("party", ["south", "west"])
@pytest.mark.parametrize(("question", "number"), QUESTIONS)
def test_a_party_that_vanishes_ends_a_run_and_nothing_is_out_that_no_ledger_has(
    question, number, party, answered, monkeypatch, tmp_path
):
    send, opens, asked, opened, sent = Direct.send, products.opened, [], [], []

    def vanishing(transport, name, frame):
        body = messages.decode(frame, Envelope).body
        request = messages.decode_request(body, handlers_of(transport))
        gone = False
        if name == party:
            asked.append(type(request).__name__)
            gone = asked[-1] == question and asked.count(question) == number
        if gone and not answered:
            raise WireError(f"party {name!r} does not answer")
        answer = send(transport, name, frame)
        paid = {entry.hash for entry in transport.parties[name].ledger.entries}
        sent.append(payments(reply_in(answer, reply_type(type(request)))) <= paid)
        if gone:  # and its answer is lost
            raise WireError(f"party {name!r} does not answer")
        return answer

    monkeypatch.setattr(products, "opened", lambda *parts: opened.append(0) or opens(*parts))
    monkeypatch.setattr(Direct, "send", vanishing)
    with pytest.raises(WireError, match=f"'{party}' does not answer"):
        fit(tmp_path)
    assert all(sent)
    assert bool(opened) == (number == 2), "what not all parties sent opens nothing"
    paid = ledgers(tmp_path)
    assert epsilon(of_one_person(paid), 1e-6) <= 3.0
    if question != "MeasureTables":
        assert not [e for own in paid for e in own if isinstance(e, SharedCoins)]


@pytest.mark.parametrize(
    ("relation", "epsilon", "rows"),
    [(Relation.REPLACE_ONE, 1.0, 9000), (Relation.ADD_REMOVE, 0.05, 3000)],
)
def test_a_forecast_of_bytes_is_that_of_a_run_to_a_factor_of_two(relation, epsilon, rows):
    """Of the second one, most rows are shared to hide how many there are."""
    names = ["age", "workclass", "education", "occupation", "sex", "income"]
    table, schema = adult().take(range(rows)).select(names), adult_schema().select(names)
    parts = {"town": table.select(names[:3]), "tax": table.select(names[3:])}
    budget = Budget(epsilon, 1e-6, relation=relation)
    synth = SecureTwoRound()
    forecast = synth.forecast(schema, rows=table.num_rows, budget=budget, parties=2)
    foretold = forecast.bytes_per_party
    cost = synth.fit(parts, schema, budget=budget, seed=0).cost
    busiest = max(t.bytes_to_party + t.bytes_from_party for t in cost.parties.values())
    assert foretold / 2 < busiest < 2 * foretold


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (100, (("age", "workclass", "education"), ("occupation", "sex", "income"))),
        (5000, (("age", "education", "marital-status"),
                ("relationship", "sex", "hours-per-week", "income"))),
        (5000, (adult_schema().names[:3], adult_schema().names[3:7], adult_schema().names[7:10])),
    ],
    ids=["6 columns", "7 columns", "10 columns of 3 parties"],
)  # fmt: skip
def test_bytes_of_a_study_that_names_columns_are_foreseen_within_a_quarter(rows, parts):
    """The party that is dealt the coins of pairs moves most; of few rows, ten times as much."""
    names = [name for own in parts for name in own]
    table, schema = adult().take(range(rows)).select(names), adult_schema().select(names)
    columns = {f"party {i}": tuple(own) for i, own in enumerate(parts)}
    budget, synth = budget_of(Relation.REPLACE_ONE, 1.0), SecureTwoRound()
    forecast = synth.forecast(schema, rows=rows, budget=budget, columns=columns)
    foreseen = forecast.bytes_per_party
    rows_of = {party: table.select(own) for party, own in columns.items()}
    cost = synth.fit(rows_of, schema, budget=budget, seed=0, noise="seeded").cost
    busiest = max(t.bytes_to_party + t.bytes_from_party for t in cost.parties.values())
    assert 0.8 < foreseen / busiest < 1.25


def memory_of(codes, split):
    """Megabytes that a run over columns of so many codes allocates, and that are foreseen of it."""
    names = [name for own in split.values() for name in own]
    schema = sw.Schema(
        tuple(sw.Column(n, "categorical", categories=tuple(range(codes))) for n in names)
    ).with_fallbacks()
    rng = np.random.default_rng(0)
    rows = {n: (rng.integers(0, codes, 200), None) for n in names}
    parts = {p: sw.Table.from_columns({n: rows[n] for n in own}) for p, own in split.items()}
    budget, synth = budget_of(Relation.REPLACE_ONE, 1.0), SecureTwoRound(final_sweeps=2)
    columns = {party: tuple(own) for party, own in split.items()}
    foreseen = synth.forecast(schema, rows=200, budget=budget, columns=columns).memory_mb
    tracemalloc.start()
    try:
        synth.fit(parts, schema, budget=budget, seed=0, at_once=1)
        return tracemalloc.get_traced_memory()[1] / 1e6, foreseen
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("split", [{"x": "a", "y": "b"}, {"x": "a", "y": "bc", "z": "d"}])
def test_a_forecast_of_memory_grows_as_what_a_run_allocates_to_a_factor_of_1_6(split):
    """From columns of 10 codes to 90 and more, where coins of pairs take nearly all of it."""
    few, many = memory_of(10, split), memory_of(240 if len(split) == 2 else 90, split)
    real, foreseen = many[0] - few[0], many[1] - few[1]
    assert real > 50
    assert foreseen / 1.6 < real < 1.6 * foreseen


def test_the_last_question_of_a_run_closes_it(tmp_path):
    assert fit(tmp_path).cost.rounds == 4  # begin, share, and measure twice


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (10_000, "columns have 20,000 codes in all"),
        (700, "takes a message of [0-9,]+ MB; one holds"),
    ],
)
def test_more_codes_than_messages_hold_are_refused_before_anything_is_paid(codes, words):
    """The model of pairs of 700 codes has room enough; no message holds their coins."""
    wide = tuple(
        sw.Column(name, "categorical", categories=tuple(range(codes))) for name in ("a", "b")
    )
    more = tuple(
        sw.Column(name, "categorical", categories=tuple(range(700))) for name in ("c", "d")
    )
    schema = sw.Schema((*wide, *more) if codes == 700 else wide).with_fallbacks()
    rows = sw.Table.from_columns({n: (np.arange(30), None) for n in schema.names})
    with pytest.raises(CapacityError, match=words):
        SecureTwoRound(max_model_mb=4000).fit(
            sw.split_columns(rows, 2), schema, budget=sw.Budget(1.0, 1e-5)
        )
