"""A question that brings the next one along: both are answered as if they came one by one."""

import msgspec
import pytest

from siloweave.errors import WireError
from siloweave.federation import messages
from siloweave.federation.messages import Envelope
from siloweave.federation.records import FolderTranscript, RunRecords, read_transcript
from siloweave.federation.session import Close, Closed, with_closing
from siloweave.federation.site import FolderStore
from tests.federation.small import HANDLERS, Ask, Size, frame, reply_in, session_of, site_of

ALL = with_closing(HANDLERS)
CLOSE = messages.encode(Close())


def both(request, then=CLOSE, step=0):
    one = messages.decode(frame(request, step=step), Envelope)
    return messages.encode(msgspec.structs.replace(one, then=then))


@pytest.fixture
def site(tmp_path):
    return site_of(store=FolderStore(tmp_path / "store"))


def test_both_are_answered_and_the_ledger_holds_the_first(site):
    answer = messages.decode(site.answer(both(Ask(50.0)), ALL), Envelope)
    (entry,) = site.ledger.entries
    assert messages.decode(answer.body, Size).value.entry == entry.hash
    closed = messages.decode(answer.then, Closed)
    assert closed.head.value == site.ledger.head
    assert entry.hash.encode() in closed.entries.value


def test_each_has_a_step_of_its_own_and_comes_again_as_it_was(site):
    answer = site.answer(both(Ask(50.0)), ALL)
    assert site.answer(both(Ask(50.0)), ALL) == answer
    first, second = site.answer(frame(Ask(50.0)), ALL), site.answer(frame(Close(), step=1), ALL)
    together = messages.decode(answer, Envelope)
    assert messages.decode(first, Envelope).body == together.body
    assert messages.decode(second, Envelope).body == together.then
    assert len(site.ledger.entries) == 1
    with pytest.raises(WireError, match="step 1 of run r1 was answered before for another"):
        site.answer(both(Ask(50.0), messages.encode(Ask(60.0))), ALL)


def test_a_first_question_that_was_answered_alone_is_not_drawn_again(site):
    before = reply_in(site.answer(frame(Ask(50.0)), ALL), Size)
    after = messages.decode(site.answer(both(Ask(50.0)), ALL), Envelope)
    assert messages.decode(after.body, Size) == before
    assert len(site.ledger.entries) == 1


def test_where_the_first_is_refused_nothing_of_the_second_is_answered(site):
    with pytest.raises(WireError):
        site.answer(both(Ask(50.0), messages.encode(Ask(60.0))), {Close: ALL[Close]})
    assert not site.ledger.entries


def test_too_large_together_the_first_comes_alone(site, monkeypatch):
    alone, second = (
        site.answer(frame(one, step=i), ALL) for i, one in enumerate([Ask(50.0), Close()])
    )
    monkeypatch.setattr(messages, "MAX_BYTES", len(second) + 50)
    assert site.answer(both(Ask(50.0)), ALL) == alone


@pytest.mark.parametrize("fits", [True, False])
def test_the_last_question_of_a_run_brings_its_ledgers(tmp_path, monkeypatch, fits):
    """And where they do not fit beside the answers, one more question does."""
    sites = [site_of(name) for name in ("a", "b")]
    session = session_of(sites, stored=RunRecords(FolderTranscript(tmp_path / "transcript")))
    if not fits:
        second = site_of("a")
        second.answer(frame(Ask(50.0), to="a"), ALL)
        size = len(second.answer(frame(Close(), to="a", step=1), ALL))
        monkeypatch.setattr(messages, "MAX_BYTES", size + 50)
    session.ask(Ask(50.0), last=True)
    closing = session.close()
    assert session.rounds == (1 if fits else 2)
    assert {traffic.messages for traffic in session.traffic.values()} == {session.rounds}
    for one in sites:
        assert closing.ledgers[one.name] == one.ledger.entries
        assert closing.heads[one.name] == one.ledger.head
    written = [(r.step, r.party) for r in read_transcript(tmp_path / "transcript")]
    assert written == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]


def test_a_question_after_the_last_one_needs_ledgers_anew():
    session = session_of([site_of("a")])
    session.ask(Ask(50.0), last=True)
    session.ask(Ask(70.0))  # as step 2: the party has answered step 1 already
    closing = session.close()
    assert len(closing.ledgers["a"]) == 2
    assert session.rounds == 4


def test_a_question_to_some_parties_does_not_close_a_run():
    session = session_of([site_of("a"), site_of("b")])
    session.ask(Ask(50.0), ["a"], last=True)
    session.close()
    assert session.rounds == 2
