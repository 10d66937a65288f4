"""Common rows of several parties: what comes out, and what crosses the wire."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from siloweave.errors import BudgetError, DataError, RosterError
from siloweave.federation import alignment_party
from siloweave.federation.alignment import align, expected_questions, expected_traffic
from siloweave.federation.alignment_party import Blind, DescribeIds, Piece, common_rows
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import NonPrivate
from tests.federation.aligning import CHUNK, drawn, ids_found, run_of
from tests.federation.small import reply_in


@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_what_is_found_is_what_sets_have_in_common(number):
    sets = drawn(number, seed=number)
    session, sites, _ = run_of(sets)
    found = align(session, ["id"], chunk=CHUNK)
    common = reduce(set.intersection, map(set, sets))
    assert 0 < len(common) < min(map(len, sets))
    assert found.common == len(common)
    assert found.leader == f"p{np.argmin([len(one) for one in sets])}"
    for one in ids_found(sites):
        assert set(one) == common
        assert one == ids_found(sites)[0], "one order for all"


def test_rows_keep_their_columns_together():
    sets = drawn(3)
    session, sites, _ = run_of(sets)
    align(session, ["id"], chunk=CHUNK)
    for ids, site in zip(sets, sites.values(), strict=True):
        table = common_rows(site, "r1")
        assert [ids[row] for row in table.values("row")] == table.values("id").tolist()


@pytest.mark.parametrize(
    ("sets", "common"),
    [
        ([[5], [5]], [5]),
        ([[1, 2, 3], [3, 2, 1]], [1, 2, 3]),
        ([list(range(30)), [7]], [7]),
        ([[1, 2], [2, 3], [2, 4], [2, 5], [2, 6]], [2]),
    ],
    ids=["one row", "all rows", "one of many", "five parties"],
)
def test_small_sets(sets, common):
    session, sites, _ = run_of(sets)
    assert align(session, ["id"], chunk=CHUNK).common == len(common)
    assert all(sorted(one) == common for one in ids_found(sites))


@pytest.mark.parametrize("sizes", [(400, 500), (90, 70, 80, 400)])
def test_the_expected_traffic_is_what_it_takes(sizes):
    session, _, line = run_of([list(range(size)) for size in sizes])
    leader = align(session, ["id"], chunk=CHUNK).leader
    asked = Counter((name, type(request)) for name, request, _, _ in line.log)
    for name in session.roster:
        most = expected_questions(sizes, CHUNK)[name != leader]
        mine = {kind: times for (party, kind), times in asked.items() if party == name}
        assert mine.keys() == most.keys() - {DescribeIds}  # which is asked if nothing is common
        assert all(times <= most[kind] for kind, times in mine.items())
    rounds, size = expected_traffic(sizes, CHUNK)
    traffic = session.traffic[leader]
    frames = 1000 * traffic.messages  # every message repeats the session
    assert session.rounds == rounds
    assert size < traffic.bytes_from_party + traffic.bytes_to_party < size + frames


def test_the_agreed_order_is_random():
    sets = [list(range(40))] * 2
    orders = []
    for _ in range(3):
        session, sites, _ = run_of(sets)
        align(session, ["id"], chunk=CHUNK)
        orders.append(tuple(ids_found(sites)[0]))
    assert len({*orders, tuple(range(40))}) == 4


def test_no_id_and_no_digest_of_one_crosses_the_wire():
    sets = [[f"PATIENT-{i:05d}" for i in range(60)], [f"PATIENT-{i:05d}" for i in range(20, 90)]]
    session, sites, line = run_of(sets)
    align(session, ["id"], chunk=CHUNK)
    crossed = b"".join(frame + answer for _, _, frame, answer in line.log)
    assert b"PATIENT" not in crossed
    assert b"00021" not in crossed
    for site in sites.values():
        for digest in alignment_party.hashed_ids(site).values:
            assert digest[:8] not in crossed


def blinded(line):
    return [answer for _, request, _, answer in line.log if isinstance(request, Blind)]


def test_points_are_sent_in_an_order_that_says_nothing_of_rows(monkeypatch):
    """The digests that are blinded are all ids of the leader, in a fresh random order each run."""
    raised, plain = [], alignment_party.curve.hashed_powers
    monkeypatch.setattr(
        alignment_party.curve, "hashed_powers", lambda d, *a: raised.append(d) or plain(d, *a)
    )
    orders = []
    for _ in range(3):
        raised.clear()
        session, sites, _ = run_of([list(range(30)), list(range(50))])
        align(session, ["id"], chunk=CHUNK)
        rows = {d: i for i, d in enumerate(alignment_party.hashed_ids(sites["p0"]).values)}
        sent = b"".join(one for one in raised if len(one) < 50 * 64)
        orders.append(tuple(rows[sent[i : i + 64]] for i in range(0, len(sent), 64)))
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert len({*orders, tuple(range(30))}) == 4


def test_two_runs_have_nothing_in_common_on_the_wire():
    """Fresh secrets each run; the run's name and the columns enter every digest."""
    texts = []
    for run in ("r1", "r1", "r2"):
        session, _, line = run_of([[1, 2, 3], [2, 3, 4]], run=run)
        align(session, ["id"])
        points = b"".join(reply_in(one, Piece).data.value for one in blinded(line))
        texts.append({points[i : i + 32] for i in range(0, len(points), 32)})
    assert len(texts[0] | texts[1] | texts[2]) == 9
    known = []
    for run, on in (("r1", "id"), ("r2", "id"), ("r1", "row")):
        session, sites, _ = run_of([[0, 1], [0, 1]], run=run)
        align(session, [on])
        known.append(set(alignment_party.hashed_ids(sites["p0"]).values))
    assert not known[0] & known[1]
    assert not known[0] & known[2]


def test_the_leader_cannot_tell_which_party_lacks_an_id(monkeypatch):
    """Ids 0-9 are at p1 only, 10-19 at p2 only, 20-29 at nobody, 30-39 at both.

    All that the leader reads is random, also once it has taken away what it knows of the shares;
    only both parties' together are zero, and only where both hold the id.
    """
    sets = [
        list(range(40)),
        [*range(10), *range(30, 40), *range(100, 130)],
        [*range(10, 20), *range(30, 40), *range(200, 230)],
    ]
    keys, pair_keys = {}, alignment_party._pair_keys
    monkeypatch.setattr(
        alignment_party,
        "_pair_keys",
        lambda session, site: keys.setdefault(site.name, pair_keys(session, site)),
    )
    session, sites, _ = run_of(sets)
    kept, remember = {}, sites["p0"].remember
    sites["p0"].remember = lambda name, value: (kept.setdefault(name, value), remember(name, value))
    align(session, ["id"])
    ids, known = alignment_party.hashed_ids(sites["p0"]), keys["p0"]
    order = np.frombuffer(kept["order"], dtype="<i8")
    digests = [ids.values[i] for i in order]
    read, left = [], []
    for party in ("p1", "p2"):
        found = np.frombuffer(kept[f"share/{party}/0"], dtype="<u8").reshape(-1, 2)
        read.append(found)
        left.append(found ^ alignment_party._hashes(digests, known[party], b"siloweave zero"))
    for one in (*read, *left):
        assert len(np.unique(one[:, 0])) == 40
        assert one.any(axis=1).all()
    both = left[0] ^ left[1]
    assert {int(i) for i in order[~both.any(axis=1)]} == set(range(30, 40))
    assert len(np.unique(both[both.any(axis=1), 0])) == 30
    assert sorted(ids_found(sites)[0]) == list(range(30, 40))


def test_releases_are_in_every_ledger_under_their_names():
    session, sites, _ = run_of(drawn(3))
    found = align(session, ["id"], chunk=CHUNK)
    for name, site in sites.items():
        entries = site.ledger.entries
        assert all(isinstance(entry.event, NonPrivate) for entry in entries)
        assert site.ledger.epsilon(1e-6) == float("inf")
        told = " ".join(entry.what for entry in entries)
        assert "how many ids" in told
        assert ("common to all parties" in told) == (name == found.leader)
        assert ("hidden table" in told) == (name != found.leader)


def test_a_party_with_a_bound_releases_nothing():
    session, _, line = run_of([[1, 2], [2, 3]], limit=Budget(1.0, 1e-6))
    with pytest.raises(BudgetError, match="Nothing was released"):
        align(session, ["id"])
    assert not line.log


@pytest.mark.parametrize("common", [True, False])
def test_secrets_are_forgotten_at_the_end(common):
    session, sites, _ = run_of([[1, 2, 3], [2, 3, 4] if common else [4, 5, 6]])
    with nullcontext() if common else pytest.raises(DataError, match="no id in id is common"):
        align(session, ["id"])
    for site in sites.values():
        for name in ("pair", "power", "blinds", "group", "common", "table"):
            assert site.recall(name) in (None, b"forgotten")
    assert sites["p0"].recall("blinds") == sites["p1"].recall("power") == b"forgotten"


def test_a_party_limits_what_others_bring():
    session, sites, _ = run_of([[1, 2], [2, 3, 4, 5]], most=3)
    with pytest.raises(RosterError, match="most = 3 ids, and one announced 4"):
        align(session, ["id"])
    assert all(len(site.ledger.entries) == 1 for site in sites.values())


def test_one_party_has_nothing_to_align_with():
    session, _, _ = run_of([[1, 2]])
    with pytest.raises(RosterError, match="needs two parties"):
        align(session, ["id"])


def test_nothing_in_common_says_what_ids_look_like_and_releases_it():
    session, sites, _ = run_of([["A-1", "A-2"], ["3", "4"]])
    with pytest.raises(DataError, match="no id in id is common to all 2 parties") as error:
        align(session, ["id"])
    assert "'p0' has 3 characters: capitals, digits, punctuation" in str(error.value)
    assert "give rules" in str(error.value)
    for site in sites.values():
        assert "kinds of characters" in site.ledger.entries[-1].what


def test_what_is_found_prints_and_says_where_little_is_common():
    session, _, _ = run_of([[1, *range(10, 30)], [1, *range(50, 90)]])
    found = align(session, ["id"])
    assert "few: 4.8 %" in str(found)
    assert "few" not in str(replace(found, common=20))
