"""Parties and coordinators that do not keep to the protocol of an alignment."""

from collections import Counter

import msgspec
import pytest

from siloweave.errors import WireError
from siloweave.federation import alignment_party, masking, messages
from siloweave.federation.alignment import align
from siloweave.federation.alignment_party import (
    PARTY,
    AlignmentPlan,
    Blind,
    Confirm,
    Greet,
    Hide,
    Match,
    NameRows,
    Piece,
    Raise,
    Raised,
    StoreRows,
    StoreTable,
    common_rows,
)
from siloweave.federation.messages import Envelope
from tests.federation.aligning import holding, run_of, sites_of
from tests.federation.small import reply_in, with_reply


def edited(kind, edit, to=None):
    """Change the answers to one kind of request."""

    def change(name, request, answer):
        if not isinstance(request, kind) or (to and name != to):
            return answer
        return with_reply(answer, edit(reply_in(answer, Raised if kind is Raise else Piece)))

    return change


def with_points(edit):
    def change(reply):
        points = replace_public(reply.points, edit(reply.points.value))
        return type(reply)(reply.plan, points)

    return change


def with_data(edit):
    def change(reply):
        sealed = type(reply.data)(edit(reply.data.value), reply.data.entry, reply.data.seal)
        return type(reply)(reply.plan, sealed)

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
    session, sites, _ = run_of([[1, 2, 3], [2, 3, 4, 5]], change=edited(kind, change))
    sender = "p0" if who == "leader" else "p1"
    with pytest.raises(WireError, match=words) as error:
        align(session, ["id"])
    assert f"party '{sender}' sent" in str(error.value)
    with pytest.raises(WireError, match="have not been aligned"):
        common_rows(sites["p1"], "r1")


def test_a_party_that_sends_what_another_sent_is_found_out():
    heard = {}

    def copied(name, request, answer):
        if isinstance(request, Raise):
            return with_reply(answer, heard.setdefault(request.part, reply_in(answer, Raised)))
        return answer

    session, _, _ = run_of([[1, 2], [2, 3, 4], [2, 5, 6]], change=copied)
    with pytest.raises(WireError, match="party 'p2' sent points that came from 'p1'"):
        align(session, ["id"])


@pytest.mark.parametrize("kind", [Hide, Blind, Raise, NameRows], ids=lambda kind: kind.__name__)
def test_an_answer_of_another_session_names_the_party(kind):
    def stale(reply):
        rest = [getattr(reply, field) for field in reply.__struct_fields__[1:]]
        return type(reply)(replace_public(reply.plan, b"another"), *rest)

    session, _, _ = run_of([[1, 2, 3], [2, 3, 4, 5]], change=edited(kind, stale))
    with pytest.raises(WireError, match=r"party 'p[01]' answered for another alignment"):
        align(session, ["id"])


@pytest.mark.parametrize(
    "edit",
    [lambda d: d[:-16], lambda d: d + bytes(16), lambda d: b""],
    ids=["cut", "longer", "empty"],
)
def test_a_table_of_another_size_names_the_party(edit):
    session, _, _ = run_of([[1, 2, 3], [2, 3, 4, 5]], change=edited(Hide, with_data(edit)))
    with pytest.raises(WireError, match="party 'p1' sent a table of"):
        align(session, ["id"])


def test_a_leader_that_tells_parties_different_orders_is_found_out():
    def turned(reply):
        data = reply.data.value
        return with_data(lambda _: data[:32] + data[48:64] + data[32:48])(reply)

    def change(name, request, answer):
        other = isinstance(request, NameRows) and request.party == "p2"
        return with_reply(answer, turned(reply_in(answer, Piece))) if other else answer

    session, _, _ = run_of([[1, 2], [1, 2, 3], [1, 2, 4]], change=change)
    with pytest.raises(WireError, match="party 'p2' was sent other common rows"):
        align(session, ["id"])


def test_a_leader_that_names_rows_that_are_not_there_is_found_out():
    def invented(reply):
        return with_data(lambda data: data[:-16] + bytes(16))(reply)

    session, _, _ = run_of([[1, 2], [1, 2, 3]], change=edited(NameRows, invented))
    with pytest.raises(WireError, match="are not 2 different rows of this party"):
        align(session, ["id"])


def ask(site, request, step=0):
    return site.answer(
        messages.encode(Envelope("r1", step, "c", site.name, messages.encode(request))), PARTY
    )


def greeted(sizes=(3, 4), most=None):
    """Two sites that were greeted, and the plan that an honest coordinator would announce."""
    sites = list(sites_of([holding(list(range(size)), most=most) for size in sizes]).values())
    keys = []
    for site in sites:
        reply = reply_in(ask(site, Greet(("id",), {})), alignment_party.Present)
        keys.append(reply.key.value)
    return sites, AlignmentPlan(("p0", "p1"), sizes, tuple(keys), "p0", 2)


def changed(plan, **fields):
    return AlignmentPlan(**{name: getattr(plan, name) for name in plan.__struct_fields__} | fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sizes": (5, 4)}, "leads with 5 ids, more than another"),
        ({"sizes": (3, 9)}, "announced it with other facts"),
        ({"keys": (b"k" * 32, b"k" * 32)}, "announced it with other facts"),
        ({"leader": "p1"}, "'p1' leads, and a message mixes it up"),
        ({"names": ("p0", "p0")}, "announced it with other facts"),
    ],
    ids=["leader has more", "size", "key", "leader", "name twice"],
)
def test_a_session_that_cannot_be_is_refused(fields, words):
    (_, other), plan = greeted()
    with pytest.raises(WireError, match=words):
        ask(other, Hide(changed(plan, **fields), 0), 1)
    assert len(other.ledger.entries) == 1


def of_its_own(plan):
    """A key that the coordinator has the secret of, with the party's signature of another."""
    key = masking.public_key(masking.new_secret()) + plan.keys[0][masking.KEY :]
    return changed(plan, keys=(key, plan.keys[1]))


def with_another(plan):
    """A party that is not there, with the fewest ids, which would lead."""
    return AlignmentPlan(
        (*plan.names, "p2"), (*plan.sizes, 1), (*plan.keys, plan.keys[0]), "p2", plan.chunk
    )


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (of_its_own, "was given a key that party 'p0' did not sign in this run"),
        (with_another, "an alignment of p0, p1, p2 was announced; the roster of the study is"),
    ],
)
def test_a_coordinator_plays_no_party(edit, words):
    """It played every party to each of the others, and learned which ids they have in common."""
    (_, other), plan = greeted()
    for step in (1, 2):
        with pytest.raises(WireError, match=words):
            ask(other, Hide(edit(plan), 0), step)
    assert len(other.ledger.entries) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"leader": "p9"}, "a leader 'p9' who is no party"),
        ({"chunk": 0}, "parts of 0 points"),
        ({"chunk": 2**40}, "parts of 1099511627776 points"),
        ({"sizes": (3, 0)}, "1 or more each"),
        ({"sizes": (3, 4, 5)}, "of different number"),
        ({"sizes": (3, 2**40)}, "at most 2,147,483,647 ids in 65,536 parts"),
        ({"sizes": (3, 2**30)}, "at most 2,147,483,647 ids in 65,536 parts"),
    ],
    ids=str,
)
def test_a_session_that_makes_no_sense_is_refused_unread(fields, words):
    (_, other), plan = greeted()
    plain = {name: getattr(plan, name) for name in plan.__struct_fields__} | fields
    body = msgspec.msgpack.encode({"type": "alignment/hide", "plan": plain, "part": 0})
    with pytest.raises(WireError, match=words):
        other.answer(messages.encode(Envelope("r1", 1, "c", "p1", body)), PARTY)


def test_a_session_does_not_change():
    (_, other), plan = greeted()
    ask(other, Hide(plan, 0), 1)
    with pytest.raises(WireError, match="of another alignment came, or of an older one"):
        ask(other, Raise(changed(plan, chunk=3), 0, bytes(64)), 2)


def test_a_leader_gets_no_more_points_raised_than_it_announced():
    (leader, other), plan = greeted()
    points = [
        reply_in(ask(leader, Blind(plan, part), 1 + part), Piece).data.value for part in (0, 1)
    ]
    ask(other, Raise(plan, 0, points[0]), 1)
    with pytest.raises(WireError, match="raised part 0 before, for other points"):
        ask(other, Raise(plan, 0, points[0][:32] + points[1]), 2)
    with pytest.raises(WireError, match="asked about part 2 of 2"):
        ask(other, Raise(plan, 2, points[0]), 3)
    with pytest.raises(WireError, match="sent 64 bytes where 1 points take 32"):
        ask(other, Raise(plan, 1, points[0]), 4)


def test_a_party_answers_each_part_once():
    """Also where nothing new would be sent: so every question has a bound, the number of parts."""
    seen = Counter()

    def change(name, request, answer):
        if hasattr(request, "part"):
            tag, site = request.__struct_config__.tag, sites[name]
            before, words = len(site.ledger.entries), f"{tag}' for part {request.part + 1} twice"
            with pytest.raises(WireError, match=f"'{words}; it answers each part once"):
                ask(site, request, 999)
            assert len(site.ledger.entries) == before
            seen[tag] += 1
        return answer

    session, sites, _ = run_of([range(3, 8), range(9), range(1, 9)], change=change)
    assert align(session, ["id"], chunk=2).common == 5
    parts = {"blind": 3, "raise": 6, "unblind": 6, "name-rows": 6, "store-rows": 6}
    assert all(seen[f"alignment/{name}"] == number for name, number in parts.items())
    assert seen["alignment/hide"] == seen["alignment/store-table"] > 6


def test_a_party_that_is_not_the_leader_is_not_asked_to_lead():
    (leader, other), plan = greeted()
    for request in (Blind(plan, 0), Match(plan)):
        with pytest.raises(WireError, match="mixes it up"):
            ask(other, request, 1)
    with pytest.raises(WireError, match="mixes it up"):
        ask(leader, Hide(plan, 0), 1)


def test_nothing_is_matched_before_all_have_answered():
    (leader, _), plan = greeted()
    with pytest.raises(WireError, match="was not sent all that 'p1' answered"):
        ask(leader, Match(plan), 1)
    assert len(leader.ledger.entries) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda plan: StoreRows(plan, 2**60, 0, b""), "1,152,921,504,606,846,976 common rows"),
        (lambda plan: StoreRows(plan, -1, 0, b""), "-1 common rows were announced"),
        (lambda plan: StoreRows(plan, 3, 2, bytes(16)), "asked about part 2 of 2"),
        (lambda plan: StoreRows(plan, 3, 1, bytes(32)), "named rows of 32 bytes in part 2"),
        (lambda plan: Confirm(plan, 2**60), "common rows were announced, and 'p0' has 3"),
    ],
    ids=["rows", "fewer than none", "a part that is not there", "too much of one", "confirmed"],
)
def test_more_than_there_can_be_is_neither_stored_nor_looked_for(make, words):
    """A number of rows decided how many parts a party went through: one message filled a memory."""
    (_, other), plan = greeted()
    with pytest.raises(WireError, match=words):
        ask(other, make(plan), 1)
    assert other.recall("named/0", "r1") is other.recall("named/2", "r1") is None


@pytest.mark.parametrize("part", [-1, 10**9])
def test_a_part_of_a_table_that_is_not_there_is_not_stored(part):
    (leader, _), plan = greeted()
    with pytest.raises(WireError, match="'p0' was asked about part"):
        ask(leader, StoreTable(plan, "p1", part, b""), 1)
    assert leader.recall(f"table/p1/{part}", "r1") is None


def test_a_finished_alignment_is_not_asked_again():
    session, sites, line = run_of([[1, 2, 3], [2, 3, 4]])
    align(session, ["id"])
    plan = next(r.plan for _, r, _, _ in line.log if isinstance(r, Confirm))
    with pytest.raises(WireError, match="has finished this alignment; start a new run"):
        ask(sites["p1"], Hide(plan, 0), 99)


def test_other_ids_are_not_asked_for_in_the_same_run():
    (site, _), _ = greeted()
    with pytest.raises(WireError, match="was asked for other ids before"):
        ask(site, Greet(("row",), {}), 1)
