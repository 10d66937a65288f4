"""A frame is opened once, by the one it was sealed to, as it was sealed; all else is refused."""

import struct
from contextlib import suppress
from itertools import count

import msgspec
import numpy as np
import pytest

from siloweave.errors import RosterError, StudyError, WireError
from siloweave.federation import frames, messages
from siloweave.federation.exchanges import Exchange, Nonces, exchanges_in
from siloweave.federation.frames import (
    FRAME,
    REFUSED,
    PublicKeys,
    Seals,
    keys_for,
    read_roster,
    signed_roster,
)
from siloweave.federation.messages import Envelope
from siloweave.privacy.ledger import Identity
from tests.federation.rosters import identity_of
from tests.federation.small import Ask, frame, reply_in, site_of

from tests.federation.small import HANDLERS, Size  # isort: skip

OFFICE = identity_of("coordinator")
PARTIES = ("clinic", "lab")


def roster_of(study="flu", office=OFFICE, parties=PARTIES):
    return signed_roster(study, office, {n: keys_for(study, identity_of(n)) for n in parties})


def ends(roster=None, nonces=None):
    """The coordinator's seals and the clinic's."""
    roster = roster or roster_of()
    return (
        Seals("coordinator", OFFICE, roster),
        Seals("clinic", identity_of("clinic"), roster, nonces),
    )


def question(step=0, body=b"how many?", sender="coordinator", to="clinic"):
    return messages.encode(Envelope("r1", step, sender, to, body))


def taken(seals, sealed):
    """The question that a party opens, and answers with its own bytes."""
    found = []

    def reply(opened):
        found.append(opened)
        return opened.data

    with seals.answered(sealed, reply):
        return found[0]


def test_a_question_and_its_answer_cross():
    office, clinic = ends()
    sealed = office.seal("clinic", FRAME, question())
    opened = taken(clinic, sealed)
    assert (opened.kind, opened.data) == (FRAME, question())
    back = clinic.seal("coordinator", FRAME, question(sender="clinic", to="coordinator"),
                       opened.nonce)  # fmt: skip
    nonce = office.checked(sealed, "coordinator", "clinic").nonce
    answer = office.open(back, "clinic", nonce)
    assert messages.decode(answer.data, Envelope).sender == "clinic"
    refusal = clinic.seal("coordinator", REFUSED, b"no", opened.nonce)
    assert office.open(refusal, "clinic", nonce).kind == REFUSED


def test_who_carries_a_frame_reads_nothing_of_the_envelope():
    office, _ = ends()
    sealed = office.seal("clinic", FRAME, question(body=b"canary-7b1f"))
    assert b"canary-7b1f" not in sealed
    assert b"r1" not in msgspec.msgpack.encode(
        msgspec.structs.replace(office.checked(sealed, "coordinator", "clinic"), data=b"")
    )
    again = office.seal("clinic", FRAME, question(body=b"canary-7b1f"))
    assert sum(a == b for a, b in zip(sealed[-32:], again[-32:], strict=True)) < 8


def test_frames_of_one_size_are_all_that_two_messages_have_in_common():
    """Each has a key of its own: the streams of two frames are not the same."""
    office, _ = ends()
    one, two = (office.seal("clinic", FRAME, question(body=bytes(500))) for _ in range(2))
    assert len(one) == len(two)
    first, second = (np.frombuffer(f[-500:], np.uint8) for f in (one, two))
    assert (first == second).mean() < 0.05


def test_only_the_receiver_can_open():
    office, _ = ends()
    sealed = office.seal("clinic", FRAME, question())
    lab = Seals("lab", identity_of("lab"), roster_of())
    with pytest.raises(WireError, match="meant for someone else"):
        taken(lab, sealed)
    lab.name = "clinic"  # a lab that passes itself off as the clinic has not its key
    with pytest.raises(WireError, match="was changed, or is meant for someone else"):
        taken(lab, sealed)


def test_a_frame_of_another_study_or_another_roster_is_refused():
    _, clinic = ends()
    for other in (roster_of("asthma"), roster_of(parties=("clinic",))):
        office, _ = ends(other)
        with pytest.raises(WireError, match=r"of another study .*one alone\) or of another roster"):
            clinic.open(office.seal("clinic", FRAME, question()), "coordinator")


def never(question):
    raise AssertionError("a question of another roster reached the party's side")


def answer_in(seals, sealed, reply=never):
    with seals.answered(sealed, reply) as answer:
        return answer


def changed_since(name):
    """The coordinator's seals, once this party has another key than in `roster_of()`."""
    keys = {n: keys_for("flu", identity_of("new " * (n == name) + n)) for n in PARTIES}
    return Seals("coordinator", OFFICE, signed_roster("flu", OFFICE, keys))


def test_a_party_with_another_roster_says_so_in_an_answer_that_its_coordinator_opens():
    office, (_, clinic) = changed_since("lab"), ends()
    sealed = office.seal("clinic", FRAME, question())
    nonce = office.checked(sealed, "coordinator", "clinic").nonce
    answer = office.open(answer_in(clinic, sealed), "clinic", nonce)
    here, there = (one.digest[16:].hex()[:16] for one in (clinic.roster, office.roster))
    with pytest.raises(StudyError, match=f"another roster than the .*: {here}, and there {there}"):
        answer.envelope()
    assert str(here) in str(clinic.refused)
    with pytest.raises(WireError, match="comes again"):
        answer_in(clinic, sealed)


def test_a_party_whose_key_is_another_one_says_so_and_is_not_believed():
    office, (_, clinic) = changed_since("clinic"), ends()
    sealed = office.seal("clinic", FRAME, question())
    answer = answer_in(clinic, sealed)
    assert "'clinic' has the key" in str(clinic.refused)
    with pytest.raises(WireError, match=r"'clinic' did not sign; .* another key than the roster"):
        office.open(answer, "clinic", office.checked(sealed, "coordinator", "clinic").nonce)


def test_only_the_coordinator_of_this_study_can_make_a_party_say_that_its_roster_is_another():
    _, clinic = ends()
    office, _ = ends(roster_of("asthma"))
    with pytest.raises(WireError, match="of another study"):
        answer_in(clinic, office.seal("clinic", FRAME, question()))
    sealed = changed_since("lab").seal("clinic", FRAME, question())
    with pytest.raises(WireError, match="did not sign"):
        answer_in(clinic, bytes(64) + sealed[64:])
    assert clinic.refused is None


def test_a_question_of_an_earlier_roster_ends_no_party_that_gets_one_of_its_own():
    """Such a question may lie in a folder since before the party got its new roster."""
    office, clinic = ends()
    answer_in(clinic, changed_since("lab").seal("clinic", FRAME, question()))
    assert clinic.refused is not None
    reply = question(sender="clinic", to="coordinator")
    answer_in(clinic, office.seal("clinic", FRAME, question()), lambda asked: reply)
    assert clinic.refused is None


def test_a_frame_of_another_sender_is_refused():
    _, clinic = ends()
    lab = Seals("lab", identity_of("lab"), roster_of())
    with pytest.raises(WireError, match="another sender"):
        taken(clinic, lab.seal("clinic", FRAME, question(sender="lab")))
    lab.name = "coordinator"  # says so, and signs with its own key
    with pytest.raises(WireError, match="'coordinator' did not sign"):
        taken(clinic, lab.seal("clinic", FRAME, question()))


def test_another_party_cannot_sign_a_frame_that_it_cannot_read():
    """Its data stay bound to who sealed them."""
    office, _ = ends()
    lab = Seals("lab", identity_of("lab"), roster_of())
    sealed = office.checked(office.seal("clinic", FRAME, question()), "coordinator", "clinic")
    body = messages.encode(msgspec.structs.replace(sealed, sender="lab"))
    stolen = identity_of("lab").sign(frames._PURPOSE, frames._digest(body)) + body
    _, clinic = ends()
    assert lab.checked(stolen, "lab", "clinic")
    with pytest.raises(WireError, match="was changed, or is meant for someone else"):
        clinic.open(stolen, "lab")


@pytest.mark.parametrize(
    "inner", [question(sender="lab"), question(to="lab")], ids=["sender", "receiver"]
)
def test_a_message_of_another_sender_or_receiver_in_a_frame_is_refused(inner):
    office, clinic = ends()
    with pytest.raises(WireError, match="sealed a message from"):
        taken(clinic, office.seal("clinic", FRAME, inner))


@pytest.mark.parametrize("kind", [b"\4", b"", REFUSED], ids=["unknown", "none", "a refusal"])
def test_a_question_is_a_message(kind):
    office, clinic = ends()
    with pytest.raises(WireError, match=r"no message|not a Envelope"):
        taken(clinic, office.seal("clinic", kind, b"\xff"))


def test_an_answer_to_another_question_is_refused():
    office, clinic = ends()
    asked = [office.seal("clinic", FRAME, question(i)) for i in range(2)]
    nonces = [taken(clinic, one).nonce for one in asked]
    back = question(sender="clinic", to="coordinator")
    answer = clinic.seal("coordinator", FRAME, back, nonces[0])
    assert office.open(answer, "clinic", nonces[0])
    with pytest.raises(WireError, match="answers another question, or comes again"):
        office.open(answer, "clinic", nonces[1])
    with pytest.raises(WireError, match="answers another question"):
        taken(clinic, office.seal("clinic", FRAME, question(), nonces[0]))


def test_a_frame_that_is_too_long_is_not_read(monkeypatch):
    office, clinic = ends()
    sealed = office.seal("clinic", FRAME, question(body=bytes(5_000)))
    monkeypatch.setattr(frames, "MAX_BYTES", len(sealed) - 1)
    with pytest.raises(WireError, match="refused unread"):
        taken(clinic, sealed)
    with pytest.raises(WireError, match="exceeds"):
        office.seal("clinic", FRAME, question(body=bytes(5_000)))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200])
def test_a_frame_that_was_cut_short_or_made_up_is_refused(size):
    office, clinic = ends()
    for wrong in (office.seal("clinic", FRAME, question())[:size], bytes(size), b"\xff" * size):
        with pytest.raises(WireError):
            taken(clinic, wrong)


def flipped(sealed, bits):
    wrong = np.frombuffer(sealed, np.uint8).copy()
    for bit in bits:
        wrong[bit // 8] ^= 1 << bit % 8
        yield wrong.tobytes()
        wrong[bit // 8] ^= 1 << bit % 8


def refused_flips(number):
    """Flipped bits, of so many, that are refused: each bit of one frame first, then of others."""
    office, clinic = ends()
    done, sizes = 0, count(1)
    while done < number:
        sealed = office.seal("clinic", FRAME, question(body=bytes(next(sizes) % 40)))
        for wrong in flipped(sealed, range(min(8 * len(sealed), number - done))):
            with pytest.raises(WireError):
                taken(clinic, wrong)
            done += 1
        taken(clinic, sealed)
    return done


def test_a_flipped_bit_is_refused_wherever_it_is():
    assert refused_flips(4_000) == 4_000


@pytest.mark.slow
def test_a_hundred_thousand_flipped_bits_are_refused():
    assert refused_flips(100_000) == 100_000


def refused_replays(number, path):
    """Frames, of so many, that are refused when they come again; every 100th time after a start."""
    office, clinic = ends(nonces=Nonces(path))
    answered = []
    for i in range(number):
        if i < number // 10:
            answered.append(office.seal("clinic", FRAME, question(i)))
            taken(clinic, answered[-1])
        if i % 100 == 99:
            clinic = ends(nonces=Nonces(path))[1]
        with pytest.raises(WireError, match="comes again"):
            taken(clinic, answered[i % len(answered)])
    return number


def test_a_frame_that_comes_again_is_refused(tmp_path):
    assert refused_replays(500, tmp_path / "nonces") == 500


@pytest.mark.slow
def test_ten_thousand_frames_that_come_again_are_refused(tmp_path):
    assert refused_replays(10_000, tmp_path / "nonces") == 10_000


def test_a_question_whose_answer_was_not_written_may_come_again():
    office, clinic = ends()
    sealed = office.seal("clinic", FRAME, question())
    with suppress(OSError), clinic.answered(sealed, lambda opened: opened.data):
        raise OSError
    assert taken(clinic, sealed).data == question()


def test_nonces_survive_a_write_that_was_cut_short(tmp_path):
    path = tmp_path / "nonces"
    nonces = [bytes([i]) * 32 for i in range(4)]
    for nonce in nonces[:2]:
        Nonces(path).add(Exchange(nonce, 224, 300, 1e9))
    with path.open("ab") as file:
        file.write(nonces[2] + bytes(20))
    found = Nonces(path)
    assert nonces[2] not in found
    assert [(one.received, one.sent) for one in exchanges_in(path)] == [(224, 300)] * 2
    found.add(Exchange(nonces[3], 1, 2, 1e9))
    assert [one.sent for one in exchanges_in(path)] == [300, 300, 2]
    assert all((nonce in Nonces(path)) == (nonce != nonces[2]) for nonce in nonces)
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("record", ["<32s", "<32sQQd", "<32sQQdddB"])
@pytest.mark.parametrize("number", [1, 2, 73])
def test_nonces_that_another_version_wrote_are_refused_and_not_misread(record, number, tmp_path):
    """A party that took them for others would answer a frame that it answered before."""
    path, more = tmp_path / "nonces", (224, 300, 1e9, 0.5, 0.125, 0)
    fields = more[: len(record) - len("<32s")]
    path.write_bytes(b"".join(struct.pack(record, bytes([i]) * 32, *fields) for i in range(number)))
    before = path.read_bytes()
    for read in (exchanges_in, Nonces):
        with pytest.raises(StudyError, match="nonces: was written by another version of siloweave"):
            read(path)
    assert path.read_bytes() == before


def test_the_same_question_in_a_new_frame_gets_the_stored_bytes():
    """Nothing is drawn twice, though each frame has a nonce of its own."""
    office, clinic = ends()
    site = site_of()
    asked = frame(Ask(50.0))
    answers, opened = [], set()
    for _ in range(3):
        sealed = office.seal("clinic", FRAME, asked)
        answers.append(answer_in(clinic, sealed, lambda one: site.answer(one.data, HANDLERS)))
        nonce = office.checked(sealed, "coordinator", "clinic").nonce
        opened.add(office.open(answers[-1], "clinic", nonce).data)
    assert len(set(answers)) == 3
    assert len(opened) == 1
    assert reply_in(*opened, Size)
    assert len(site.ledger.entries) == 1


def test_a_mark_of_a_frame_is_one_that_only_its_sender_can_make():
    office, clinic = ends()
    assert office.mark(b"x") == office.mark(b"x") != office.mark(b"y")
    assert office.mark(b"x") != clinic.mark(b"x")


# The roster


def test_a_roster_is_stored_and_read(tmp_path):
    path, roster = tmp_path / "roster.json", roster_of()
    roster.store(path)
    found = read_roster(path, OFFICE.public)
    assert found == roster
    assert list(found.parties) == list(PARTIES)
    assert found.digest == roster.digest
    assert path.stat().st_mode & 0o077 == 0


def changed(roster):
    """The roster with something else in one of its fields."""
    keys = dict(roster.keys)
    stranger = keys_for("flu", identity_of("stranger"))
    return {
        "study": msgspec.structs.replace(roster, study="asthma"),
        "a key": msgspec.structs.replace(roster, keys={**keys, "lab": stranger}),
        "a party more": msgspec.structs.replace(roster, keys={**keys, "stranger": stranger}),
        "a party less": msgspec.structs.replace(roster, keys={n: keys[n] for n in list(keys)[:2]}),
        "order": msgspec.structs.replace(roster, keys=dict(reversed(keys.items()))),
        "coordinator": msgspec.structs.replace(roster, coordinator="lab"),
        "no coordinator": msgspec.structs.replace(roster, coordinator="nobody"),
        "signature": msgspec.structs.replace(roster, signature=bytes(64)),
        "another's": roster_of(office=identity_of("stranger")),
    }


@pytest.mark.parametrize("what", changed(roster_of()))
def test_a_roster_that_was_changed_or_signed_by_another_is_refused(tmp_path, what):
    path = tmp_path / "roster.json"
    changed(roster_of())[what].store(path)
    with pytest.raises(RosterError, match="not signed by the coordinator's key"):
        read_roster(path, OFFICE.public)


def test_a_roster_with_one_key_for_two_is_refused_though_it_is_signed(tmp_path):
    path, roster = tmp_path / "roster.json", roster_of()
    twice = msgspec.structs.replace(roster, keys={**roster.keys, "lab": roster.keys["clinic"]})
    signature = OFFICE.sign(frames._ROSTER, twice.unsigned())
    msgspec.structs.replace(twice, signature=signature).store(path)
    with pytest.raises(RosterError, match="'clinic' and 'lab' have one key"):
        read_roster(path, OFFICE.public)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is no roster"),
        (b"\xff{", "is no roster"),
        (b'{"study": "flu"}', "is no roster"),
        (b" " * (2**20 + 1), "at most"),
    ],
    ids=["empty", "no text", "fields", "long"],
)
def test_a_file_that_is_no_roster_is_refused(tmp_path, text, words):
    path = tmp_path / "roster.json"
    with pytest.raises(RosterError, match="ask the coordinator"):
        read_roster(path, OFFICE.public)
    path.write_bytes(text)
    with pytest.raises(RosterError, match=words):
        read_roster(path, OFFICE.public)


@pytest.mark.parametrize(
    ("parties", "words"),
    [
        ({}, "one party or more"),
        ({"coordinator": keys_for("flu", identity_of("a"))}, "the coordinator's name"),
        ({n: keys_for("flu", identity_of("a")) for n in "ab"}, "'a' and 'b' have one key"),
        ({"a": keys_for("flu", OFFICE)}, "'coordinator' and 'a' have one key"),
        ({"a": PublicKeys(b"", b"1" * 32)}, "'a': a public key has 0 bytes"),
    ],
    ids=["nobody", "name", "one key", "the coordinator's key", "short"],
)
def test_a_roster_with_impossible_parties_is_not_signed(parties, words):
    with pytest.raises(RosterError, match=words):
        signed_roster("flu", OFFICE, parties)


def test_a_party_that_the_roster_knows_otherwise_does_not_start():
    for name in ("clinic", "nobody"):
        with pytest.raises(RosterError, match="does not know it so"):
            Seals(name, Identity.create(), roster_of())


def test_a_receiver_without_a_usable_key_is_refused():
    bad = {"clinic": PublicKeys(identity_of("clinic").public, bytes(32))}
    office = Seals("coordinator", OFFICE, signed_roster("flu", OFFICE, bad))
    with pytest.raises(WireError, match="not usable"):
        office.seal("clinic", FRAME, question())
    with pytest.raises(WireError, match="not in the roster"):
        office.seal("nobody", FRAME, question())
