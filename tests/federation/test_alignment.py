"""Common rows of several parties: what comes out, what crosses the wire, and who is refused."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from siloweave.errors import BudgetError, DataError, RosterError, WireError
from siloweave.federation import InProcess, MemoryStore, Parties, Site, alignment_party, wire
from siloweave.federation.alignment import PARTY, Holding, align, common_rows
from siloweave.federation.alignment_messages import (
    Blind,
    Confirm,
    Greet,
    Hide,
    Match,
    Piece,
    Raise,
    Raised,
    Session,
    Tell,
)
from siloweave.federation.messages import Envelope
from siloweave.privacy import Budget, Ledger, mechanisms
from siloweave.privacy.events import NonPrivate
from siloweave.tables.read import Table

CHUNK = 40  # so that small sets are sent in parts


def holding(ids, **settings):
    ids = np.asarray(ids, dtype=object if isinstance(ids[0], str) else np.int64)
    numbers = np.arange(len(ids))
    return Holding(Table.from_columns({"id": (ids, None), "row": (numbers, None)}), **settings)


def site_of(name, held, limit=None):
    return Site(
        name,
        held,
        ledger=Ledger(name, limit=limit),
        entropy=mechanisms.OSEntropy(),
        store=MemoryStore(),
    )


class Wire:
    """A transport that keeps what it carries, and may change answers."""

    def __init__(self, sites, change=None):
        self.inner, self.change, self.log = InProcess(sites, PARTY), change, []

    def send(self, name, frame):
        answer = self.inner.send(name, frame)
        request = wire.decode_request(wire.decode(frame, Envelope).body, PARTY)
        if self.change is not None:
            answer = self.change(name, request, answer)
        self.log.append((name, request, frame, answer))
        return answer


def run_of(sets, *, change=None, run="r1", limit=None, **settings):
    sites = {
        f"p{i}": site_of(f"p{i}", holding(ids, **settings), limit) for i, ids in enumerate(sets)
    }
    line = Wire(sites, change)
    return Parties(list(sites), line, run=run), sites, line


def ids_found(sites):
    return [common_rows(site, "r1").values("id").tolist() for site in sites.values()]


def drawn(parties, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(50, 90, parties)
    return [rng.choice(100, size=size, replace=False).tolist() for size in sizes]


@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_what_is_found_is_what_sets_have_in_common(number):
    sets = drawn(number, seed=number)
    parties, sites, _ = run_of(sets)
    found = align(parties, ["id"], chunk=CHUNK)
    common = reduce(set.intersection, map(set, sets))
    assert 0 < len(common) < min(map(len, sets))
    assert found.common == len(common)
    assert found.leader == f"p{np.argmin([len(one) for one in sets])}"
    for one in ids_found(sites):
        assert set(one) == common
        assert one == ids_found(sites)[0], "one order for all"


def test_rows_keep_their_columns_together():
    sets = drawn(3)
    parties, sites, _ = run_of(sets)
    align(parties, ["id"], chunk=CHUNK)
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
    parties, sites, _ = run_of(sets)
    assert align(parties, ["id"], chunk=CHUNK).common == len(common)
    assert all(sorted(one) == common for one in ids_found(sites))


def test_the_agreed_order_is_random():
    sets = [list(range(40))] * 2
    orders = []
    for _ in range(3):
        parties, sites, _ = run_of(sets)
        align(parties, ["id"], chunk=CHUNK)
        orders.append(tuple(ids_found(sites)[0]))
    assert len({*orders, tuple(range(40))}) == 4


def test_no_id_and_no_digest_of_one_crosses_the_wire():
    sets = [[f"PATIENT-{i:05d}" for i in range(60)], [f"PATIENT-{i:05d}" for i in range(20, 90)]]
    parties, sites, line = run_of(sets)
    align(parties, ["id"], chunk=CHUNK)
    crossed = b"".join(frame + answer for _, _, frame, answer in line.log)
    assert b"PATIENT" not in crossed
    assert b"00021" not in crossed
    for site in sites.values():
        for digest in alignment_party.known(site).digests:
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
        parties, sites, _ = run_of([list(range(30)), list(range(50))])
        align(parties, ["id"], chunk=CHUNK)
        rows = {d: i for i, d in enumerate(alignment_party.known(sites["p0"]).digests)}
        sent = b"".join(one for one in raised if len(one) < 50 * 64)
        orders.append(tuple(rows[sent[i : i + 64]] for i in range(0, len(sent), 64)))
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert len({*orders, tuple(range(30))}) == 4


def test_two_runs_have_nothing_in_common_on_the_wire():
    """Fresh secrets each run; the run's name and the columns enter every digest."""
    texts = []
    for run in ("r1", "r1", "r2"):
        parties, _, line = run_of([[1, 2, 3], [2, 3, 4]], run=run)
        align(parties, ["id"])
        points = b"".join(wire.decode(one, Piece).data.value for one in blinded(line))
        texts.append({points[i : i + 32] for i in range(0, len(points), 32)})
    assert len(texts[0] | texts[1] | texts[2]) == 9
    known = []
    for run, on in (("r1", "id"), ("r2", "id"), ("r1", "row")):
        parties, sites, _ = run_of([[0, 1], [0, 1]], run=run)
        align(parties, [on])
        known.append(set(alignment_party.known(sites["p0"]).digests))
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
    parties, sites, _ = run_of(sets)
    kept, remember = {}, sites["p0"].remember
    sites["p0"].remember = lambda name, value: (kept.setdefault(name, value), remember(name, value))
    align(parties, ["id"])
    ids, known = alignment_party.known(sites["p0"]), keys["p0"]
    order = np.frombuffer(kept["order"], dtype="<i8")
    digests = [ids.digests[i] for i in order]
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
    parties, sites, _ = run_of(drawn(3))
    found = align(parties, ["id"], chunk=CHUNK)
    for name, site in sites.items():
        entries = site.ledger.entries
        assert all(isinstance(entry.event, NonPrivate) for entry in entries)
        assert site.ledger.epsilon(1e-6) == float("inf")
        told = " ".join(entry.what for entry in entries)
        assert "how many ids" in told
        assert ("common to all parties" in told) == (name == found.leader)
        assert ("hidden table" in told) == (name != found.leader)


def test_a_party_with_a_bound_releases_nothing():
    parties, _, line = run_of([[1, 2], [2, 3]], limit=Budget(1.0, 1e-6))
    with pytest.raises(BudgetError, match="Nothing was released"):
        align(parties, ["id"])
    assert not line.log


def test_secrets_are_forgotten_at_the_end():
    parties, sites, _ = run_of([[1, 2, 3], [2, 3, 4]])
    align(parties, ["id"])
    for site in sites.values():
        for name in ("pair", "power", "blinds", "group", "common", "table"):
            assert site.recall(name) in (None, b"forgotten")
    assert sites["p0"].recall("blinds") == sites["p1"].recall("power") == b"forgotten"


def edited(kind, edit, to=None):
    """Change the answers to one kind of request."""

    def change(name, request, answer):
        if not isinstance(request, kind) or (to and name != to):
            return answer
        return wire.encode(edit(wire.decode(answer, Raised if kind is Raise else Piece)))

    return change


def with_points(edit):
    def change(reply):
        points = replace_public(reply.points, edit(reply.points.value))
        return type(reply)(reply.session, points)

    return change


def with_data(edit):
    def change(reply):
        sealed = type(reply.data)(edit(reply.data.value), reply.data.entry, reply.data.seal)
        return type(reply)(reply.session, sealed)

    return change


def replace_public(public, value):
    return type(public)(value, public.why)


MINUS_ONE = (2**255 - 20).to_bytes(32, "little")
UNREDUCED = (2**255 - 18).to_bytes(32, "little")
BAD = {
    "zero": (lambda points: bytes(32) + points[32:], "a point that is zero"),
    "unreduced": (lambda points: UNREDUCED + points[32:], "written in a foreign way"),
    "top bit": (lambda points: points[:31] + b"\xff" + points[32:], "written in a foreign way"),
    "small order": (lambda points: MINUS_ONE + points[32:], "of small order"),
    "twice": (lambda points: points[32:64] + points[32:], "sent a point twice"),
    "too few": (lambda points: points[32:], "sent 64 bytes where 3 points take 96"),
    "too many": (lambda points: points + points[:32], "sent 128 bytes where 3 points take 96"),
    "nothing": (lambda points: b"", "sent 0 bytes"),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("who", ["leader", "other"])
def test_points_that_are_wrong_name_the_party(bad, who):
    edit, words = BAD[bad]
    kind, change = (Blind, with_data(edit)) if who == "leader" else (Raise, with_points(edit))
    parties, sites, _ = run_of([[1, 2, 3], [2, 3, 4, 5]], change=edited(kind, change))
    sender = "p0" if who == "leader" else "p1"
    with pytest.raises(WireError, match=words) as error:
        align(parties, ["id"])
    assert f"party '{sender}' sent" in str(error.value)
    with pytest.raises(WireError, match="have not been aligned"):
        common_rows(sites["p1"], "r1")


def test_a_party_that_sends_what_another_sent_is_found_out():
    heard = {}

    def copied(name, request, answer):
        if isinstance(request, Raise):
            return heard.setdefault(request.part, answer)
        return answer

    parties, _, _ = run_of([[1, 2], [2, 3, 4], [2, 5, 6]], change=copied)
    with pytest.raises(WireError, match="party 'p2' sent points that came from 'p1'"):
        align(parties, ["id"])


@pytest.mark.parametrize("kind", [Hide, Blind, Raise, Tell], ids=lambda kind: kind.__name__)
def test_an_answer_of_another_session_names_the_party(kind):
    def stale(reply):
        rest = [getattr(reply, field) for field in reply.__struct_fields__[1:]]
        return type(reply)(replace_public(reply.session, b"another"), *rest)

    parties, _, _ = run_of([[1, 2, 3], [2, 3, 4, 5]], change=edited(kind, stale))
    with pytest.raises(WireError, match=r"party 'p[01]' answered for another alignment"):
        align(parties, ["id"])


@pytest.mark.parametrize(
    "edit",
    [lambda d: d[:-16], lambda d: d + bytes(16), lambda d: b""],
    ids=["cut", "longer", "empty"],
)
def test_a_table_of_another_size_names_the_party(edit):
    parties, _, _ = run_of([[1, 2, 3], [2, 3, 4, 5]], change=edited(Hide, with_data(edit)))
    with pytest.raises(WireError, match="party 'p1' sent a table of"):
        align(parties, ["id"])


def test_a_leader_that_tells_parties_different_orders_is_found_out():
    def turned(reply):
        data = reply.data.value
        return with_data(lambda _: data[:32] + data[48:64] + data[32:48])(reply)

    def change(name, request, answer):
        other = isinstance(request, Tell) and request.party == "p2"
        return wire.encode(turned(wire.decode(answer, Piece))) if other else answer

    parties, _, _ = run_of([[1, 2], [1, 2, 3], [1, 2, 4]], change=change)
    with pytest.raises(WireError, match="party 'p2' was told of other common rows"):
        align(parties, ["id"])


def test_a_leader_that_names_rows_that_are_not_there_is_found_out():
    def invented(reply):
        return with_data(lambda data: data[:-16] + bytes(16))(reply)

    parties, _, _ = run_of([[1, 2], [1, 2, 3]], change=edited(Tell, invented))
    with pytest.raises(WireError, match="are not 2 different rows of this party"):
        align(parties, ["id"])


def ask(site, request, step=0):
    return site.answer(
        wire.encode(Envelope("r1", step, "c", site.name, wire.encode(request))), PARTY
    )


def greeted(sizes=(3, 4), most=None):
    """Two sites that were greeted, and the session that an honest coordinator would announce."""
    sites = [
        site_of(f"p{i}", holding(list(range(size)), most=most)) for i, size in enumerate(sizes)
    ]
    keys = []
    for site in sites:
        reply = wire.decode(ask(site, Greet(("id",), {})), alignment_party.Present)
        keys.append(reply.key.value)
    return sites, Session(("p0", "p1"), sizes, tuple(keys), "p0", 2)


def changed(session, **fields):
    return Session(**{name: getattr(session, name) for name in session.__struct_fields__} | fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sizes": (5, 4)}, "leads with 5 ids, more than another"),
        ({"sizes": (3, 9)}, "announced it with other facts"),
        ({"keys": (b"k" * 32, b"k" * 32)}, "announced it with other facts"),
        ({"leader": "p1"}, "'p1' leads, and a message mixes it up"),
        ({"names": ("p1", "p1")}, "announced it with other facts"),
    ],
    ids=["leader has more", "size", "key", "leader", "name twice"],
)
def test_a_session_that_cannot_be_is_refused(fields, words):
    (_, other), session = greeted()
    with pytest.raises(WireError, match=words):
        ask(other, Hide(changed(session, **fields), 0), 1)
    assert len(other.ledger.entries) == 1


def test_a_session_does_not_change():
    (_, other), session = greeted()
    ask(other, Hide(session, 0), 1)
    with pytest.raises(WireError, match="of another alignment came, or of an older one"):
        ask(other, Raise(changed(session, chunk=3), 0, bytes(64)), 2)


def test_a_leader_gets_no_more_points_raised_than_it_announced():
    (leader, other), session = greeted()
    points = [
        wire.decode(ask(leader, Blind(session, part), 1 + part), Piece).data.value
        for part in (0, 1)
    ]
    ask(other, Raise(session, 0, points[0]), 1)
    with pytest.raises(WireError, match="raised part 0 before, for other points"):
        ask(other, Raise(session, 0, points[0][:32] + points[1]), 2)
    with pytest.raises(WireError, match="asked about part 2 of 2"):
        ask(other, Raise(session, 2, points[0]), 3)
    with pytest.raises(WireError, match="sent 64 bytes where 1 points take 32"):
        ask(other, Raise(session, 1, points[0]), 4)


def test_a_party_that_is_not_the_leader_is_not_asked_to_lead():
    (leader, other), session = greeted()
    for request in (Blind(session, 0), Match(session)):
        with pytest.raises(WireError, match="mixes it up"):
            ask(other, request, 1)
    with pytest.raises(WireError, match="mixes it up"):
        ask(leader, Hide(session, 0), 1)


def test_nothing_is_matched_before_all_have_answered():
    (leader, _), session = greeted()
    with pytest.raises(WireError, match="was not told all that 'p1' answered"):
        ask(leader, Match(session), 1)
    assert len(leader.ledger.entries) == 1


def test_a_finished_alignment_is_not_asked_again():
    parties, sites, line = run_of([[1, 2, 3], [2, 3, 4]])
    align(parties, ["id"])
    session = next(r.session for _, r, _, _ in line.log if isinstance(r, Confirm))
    with pytest.raises(WireError, match="has finished this alignment; start a new run"):
        ask(sites["p1"], Hide(session, 0), 99)


def test_other_ids_are_not_asked_for_in_the_same_run():
    (site, _), _ = greeted()
    with pytest.raises(WireError, match="was asked for other ids before"):
        ask(site, Greet(("row",), {}), 1)


def test_a_party_limits_what_others_bring():
    parties, sites, _ = run_of([[1, 2], [2, 3, 4, 5]], most=3)
    with pytest.raises(RosterError, match="most = 3 ids, and one announced 4"):
        align(parties, ["id"])
    assert all(len(site.ledger.entries) == 1 for site in sites.values())


def test_one_party_has_nothing_to_align_with():
    parties, _, _ = run_of([[1, 2]])
    with pytest.raises(RosterError, match="needs two parties"):
        align(parties, ["id"])


def test_nothing_in_common_says_what_ids_look_like_and_releases_it():
    parties, sites, _ = run_of([["A-1", "A-2"], ["3", "4"]])
    with pytest.raises(DataError, match="no id in id is common to all 2 parties") as error:
        align(parties, ["id"])
    assert "'p0' has 3 characters: capitals, digits, punctuation" in str(error.value)
    assert "give rules" in str(error.value)
    for site in sites.values():
        assert "kinds of characters" in site.ledger.entries[-1].what


def test_what_is_found_prints_and_says_where_little_is_common():
    parties, _, _ = run_of([[1, *range(10, 30)], [1, *range(50, 90)]])
    found = align(parties, ["id"])
    assert "few: 4.8 %" in str(found)
    assert "few" not in str(replace(found, common=20))
