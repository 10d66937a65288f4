from _thread import interrupt_main
from signal import SIGINT, default_int_handler, signal
from threading import Event, Timer
from types import SimpleNamespace

import msgspec
import pytest

from siloweave import progress
from siloweave.errors import RosterError, WireError
from siloweave.federation import messages
from siloweave.federation.messages import Envelope
from siloweave.federation.records import FolderTranscript, RunRecords, read_transcript
from siloweave.federation.session import Closed, Session
from siloweave.privacy.ledger import Entry
from tests.federation.sites import Sites
from tests.federation.small import (
    HANDLERS,
    Ask,
    Hello,
    Size,
    frame,
    reply_in,
    session_of,
    site_of,
    with_reply,
)


class Recorder:
    """A transport that keeps every frame, and may change the answers."""

    sizes = {}

    def __init__(self, inner, change=lambda name, answer: answer):
        self.inner, self.change, self.frames = inner, change, []

    def send(self, name, frame):
        answer = self.change(name, self.inner.send(name, frame))
        self.frames.append((name, frame, answer))
        return answer


def recorded(names=("a", "b", "c"), **settings):
    recorder = Recorder(Sites({n: site_of(n) for n in names}, HANDLERS), **settings)
    return Session(names, recorder, run="r1"), recorder


def test_a_roster_needs_parties_with_names_of_their_own():
    transport = Sites({}, HANDLERS)
    with pytest.raises(RosterError, match="roster is empty"):
        Session([], transport, run="r1")
    with pytest.raises(RosterError, match="names a twice"):
        Session(["a", "b", "a"], transport, run="r1")


@pytest.mark.parametrize("to", [[], ["z"], ["a", "z"]], ids=str)
def test_asking_nobody_or_a_stranger_is_an_error(to):
    session, recorder = recorded()
    with pytest.raises(RosterError, match="the roster is"):
        session.ask(Hello(), to)
    assert not recorder.frames


def test_a_party_is_asked_once():
    session, recorder = recorded()
    with pytest.raises(RosterError, match="a party counts once"):
        session.ask(Hello(), ["a", "b", "a"])
    assert not recorder.frames


def test_a_missing_party_is_an_error_not_a_smaller_answer():
    transport = Sites({"a": site_of("a")}, HANDLERS)
    with pytest.raises(RosterError, match=r"party 'b' is not there; present are \['a'\]"):
        Session(["a", "b"], transport, run="r1").ask(Hello())


class Late:
    """Parties on other machines that do not answer while a test waits."""

    sizes = {}

    def __init__(self, far):
        self.asked, self.ended, self.over, self.far = [], [], Event(), far

    def send(self, name, frame):
        self.asked.append(name)
        if len(self.asked) == 2:
            Timer(0.1, interrupt_main).start()
        self.over.wait(20 if self.far else 1)
        self.ended.append(name)
        raise RosterError(f"party {name!r} did not answer")


@pytest.fixture
def interrupts():
    """That Ctrl-C interrupts, which a process that was started in the background ignores."""
    before = signal(SIGINT, default_int_handler)
    yield
    signal(SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_waits_for_no_party_on_another_machine():
    late = Late(far=True)
    with pytest.raises(KeyboardInterrupt):
        Session(["a", "b"], late, run="r1", at_once=2).ask(Hello())
    assert not late.ended
    late.over.set()


@pytest.mark.usefixtures("interrupts")
def test_after_an_interrupt_parties_in_this_process_finish_and_nobody_else_is_asked():
    late = Late(far=False)
    with pytest.raises(KeyboardInterrupt):
        Session(["a", "b", "c"], late, run="r1").ask(Hello(), at_once=2)
    assert sorted(late.ended) == late.asked == ["a", "b"]


def test_what_a_party_on_another_machine_refuses_waits_for_no_other():
    late, refused = Event(), WireError("party 'b' answers nothing of this")

    class Refusing:
        sizes = {}

        def send(self, name, frame):
            if name == "b":
                raise refused
            late.wait(60)

    with pytest.raises(WireError, match="answers nothing") as caught:
        Session(["a", "b"], Refusing(), run="r1", at_once=2).ask(Hello())
    assert caught.value is refused
    late.set()


@pytest.mark.parametrize("number", [1, 3])
def test_a_party_that_is_not_waited_for_is_no_wait(number, monkeypatch):
    """What the coordinator computes while that party is late counts as its own."""
    names, now, late = ("a", "b", "c")[:number], [0.0], Event()
    inner = Sites({n: site_of(n) for n in names}, HANDLERS)

    class Slow:
        sizes = {}

        def send(self, name, frame):
            if name == "c":
                late.wait(60)
            elif name == "a":
                now[0] += 5.0
            return inner.send(name, frame)

    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    watch = progress.Stopwatch()
    session = Session(names, Slow(), run="r1", at_once=number, dropouts=1, asking=watch)
    asked = dict.fromkeys(names, Hello())
    assert list(session.ask_present(asked, 1, enough={"a", "b"}.issubset)) == list(names[:2])
    now[0] += 100.0  # the coordinator computes
    session.ask_present({"a": Hello()}, 1)
    assert watch.seconds == 10.0
    late.set()


def test_replies_come_in_the_order_asked():
    session, _ = recorded()
    keys = [r.key.value for r in session.ask(Hello())]
    backwards = [r.key.value for r in session.ask(Hello(), ["c", "a"])]
    assert backwards == [keys[2], keys[0]]
    assert len(set(keys)) == 3


def test_traffic_is_counted_on_the_bytes():
    session, recorder = recorded()
    session.ask(Hello())
    session.ask(Ask(50.0), ["b"])
    assert session.rounds == 2
    for name, seen in session.traffic.items():
        mine = [(f, a) for n, f, a in recorder.frames if n == name]
        assert seen.messages == len(mine) == (2 if name == "b" else 1)
        assert seen.bytes_to_party == sum(len(f) for f, _ in mine) > 0
        assert seen.bytes_from_party == sum(len(a) for _, a in mine) > 0


def test_frames_are_those_of_the_wire():
    session, recorder = recorded(["a"])
    (reply,) = session.ask(Ask(50.0))
    ((_, sent, answer),) = recorder.frames
    assert sent == frame(Ask(50.0), to="a")
    assert reply_in(answer, Size) == reply


@pytest.mark.parametrize(
    "change",
    [lambda _, answer: answer[:-1], lambda _, answer: b"", lambda _, answer: answer + b"\0"],
    ids=["cut", "empty", "longer"],
)
def test_a_broken_answer_names_the_party_and_the_step(change):
    session, _ = recorded(change=change)
    with pytest.raises(WireError, match="party 'a', step 0: not a Envelope"):
        session.ask(Hello())


def steps_of(names, count, run="r1", *, sites=None, change=lambda name, answer: answer):
    """Every answer of a run of so many steps, by party and step."""
    sites = sites or {n: site_of(n) for n in names}
    recorder = Recorder(Sites(sites, HANDLERS), change)
    session = Session(names, recorder, run=run)
    for _ in range(count):
        session.ask(Ask(500.0))
    return {(n, i // len(names)): a for i, (n, _, a) in enumerate(recorder.frames)}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (("b", 1), "party 'a', step 1: the answer's sender is 'b' and must be 'a'"),
        (("a", 0), "party 'a', step 1: the answer's step is 0 and must be 1: it is stale"),
        (("a", 2), "party 'a', step 1: the answer's step is 2 and must be 1"),
        (None, "party 'a', step 1: the answer's run is 'r0' and must be 'r1'"),
    ],
    ids=["another party's", "an earlier step's", "a later step's", "another run's"],
)
def test_a_reply_that_answers_another_question_is_refused_though_it_fits_its_type(other, words):
    names, sites = ["a", "b"], {n: site_of(n) for n in ("a", "b")}
    kept = steps_of(names, 3, sites=sites) if other else steps_of(names, 2, "r0", sites=sites)
    wrong, count = kept[other or ("a", 1)], iter(range(99))

    def mixed_up(name, answer):
        return wrong if name == "a" and next(count) == 1 else answer

    fresh = {n: site_of(n) for n in names}
    with pytest.raises(WireError, match=words):
        steps_of(names, 3, sites=fresh, change=mixed_up)


def strange(line):
    """A session of another coordinator in the same run."""
    session = Session(["a"], line, run="r1")
    session.sender = "stranger"
    return session


def test_an_answer_for_another_coordinator_or_a_question_sent_back_is_refused():
    sites = {"a": site_of("a")}
    recorder = Recorder(Sites(sites, HANDLERS))
    Session(["a"], recorder, run="r1").ask(Ask(50.0))
    with pytest.raises(WireError, match="was answered before for another request"):
        strange(Sites(sites, HANDLERS)).ask(Ask(50.0))

    class Kept:
        sizes = {}

        def send(self, name, frame):
            return recorder.frames[0][2]

    with pytest.raises(WireError, match="answer's to is 'coordinator' and must be 'stranger'"):
        strange(Kept()).ask(Ask(50.0))

    class Mirror:
        sizes = {}

        def send(self, name, frame):
            return frame

    with pytest.raises(WireError, match="answer's sender is 'coordinator' and must be 'a'"):
        Session(["a"], Mirror(), run="r1").ask(Ask(50.0))


def test_what_answers_another_question_is_not_written_down(tmp_path):
    """Where it would stand in the place of the answer that a resumed run hears."""
    stale, sites = steps_of(["a"], 1)["a", 0], {"a": site_of("a")}
    path, mix_up = tmp_path / "transcript", [True]
    for mix_up[0] in (True, False):
        line = Recorder(Sites(sites, HANDLERS), lambda _, a: stale if mix_up[0] else a)
        session = Session(["a"], line, run="r2", stored=RunRecords(FolderTranscript(path)))
        if mix_up[0]:
            with pytest.raises(WireError, match="answer's run is 'r1' and must be 'r2'"):
                session.ask(Ask(500.0))
        else:
            (reply,) = session.ask(Ask(500.0))
    (heard,) = read_transcript(path)
    assert messages.decode(heard.answer, Size) == reply


def test_a_run_that_is_started_again_gets_the_same_replies():
    sites = [site_of("a"), site_of("b")]
    first = session_of(sites).ask(Ask(50.0))
    assert session_of(sites).ask(Ask(50.0)) == first
    assert session_of(sites, run="r2").ask(Ask(50.0)) != first
    assert [len(s.ledger.entries) for s in sites] == [2, 2]


def dearer(entries):
    """Ledgers in which a line says something else than it was signed for."""
    first = entries[0]
    other = msgspec.structs.replace(first.event, sigma=5000.0)
    return (msgspec.structs.replace(first, event=other), *entries[1:])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dearer, "entry 0 was edited"),
        (lambda entries: entries[1:], "entry 0 was edited"),
        (lambda entries: (entries[0], *entries[2:]), "entry 0 was edited"),
        (lambda entries: entries[:-1], "entry 1 was edited"),
    ],
    ids=["a cheaper event", "no first", "no second", "no last"],
)
def test_a_ledger_that_was_edited_at_the_party_is_refused_at_the_end_of_a_run(change, words):
    """Every entry's hash was there, and only that was compared."""

    def edited(name, answer):
        envelope = messages.decode(answer, Envelope)
        if envelope.step < 3:
            return answer
        reply = messages.decode(envelope.body, Closed)
        entries = msgspec.json.decode(reply.entries.value, type=tuple[Entry, ...])
        text = msgspec.structs.replace(reply.entries, value=msgspec.json.encode(change(entries)))
        return with_reply(answer, msgspec.structs.replace(reply, entries=text))

    session, _ = recorded(["a"], change=edited)
    for _ in range(3):
        session.ask(Ask(500.0))
    with pytest.raises(WireError, match=f"party 'a' sent a ledger that cannot be read: {words}"):
        session.close()


@pytest.mark.parametrize("wrong", [b"-500.0", b'"much"', b"\xff"])
def test_a_ledger_that_cannot_be_read_names_the_party(wrong):
    def edited(name, answer):
        envelope = messages.decode(answer, Envelope)
        if envelope.step == 0:
            return answer
        reply = messages.decode(envelope.body, Closed)
        text = reply.entries.value.replace(b"500.0", wrong)
        entries = msgspec.structs.replace(reply.entries, value=text)
        return with_reply(answer, msgspec.structs.replace(reply, entries=entries))

    session, _ = recorded(["a"], change=edited)
    session.ask(Ask(500.0))
    with pytest.raises(WireError, match="party 'a' sent a ledger that cannot be read"):
        session.close()


def test_a_ledger_comes_back_at_the_end_of_a_run():
    session, _ = recorded(["a", "b"])
    session.ask(Ask(500.0), ["b"])
    closing = session.close()
    assert [len(entries) for entries in closing.ledgers.values()] == [0, 1]
    assert set(closing.heads) == {"a", "b"}
