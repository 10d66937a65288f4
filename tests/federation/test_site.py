"""The order of a release: charge, draw, persist, send; and what a crash between any two leaves."""

import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from siloweave.errors import BudgetError, InputError, LedgerError, WireError
from siloweave.federation import masking, messages
from siloweave.federation.messages import Envelope, Public
from siloweave.federation.site import FolderStore, MemoryStore
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import BaseEvent, Gaussian, NonPrivate
from siloweave.privacy.ledger import Identity, Ledger
from tests.federation.rosters import site_with, terms_of
from tests.federation.small import (
    HANDLERS,
    KNOWN,
    LIMIT,
    Ask,
    Hello,
    Key,
    Part,
    Size,
    Sum,
    frame,
    reply_in,
    site_of,
)

POINTS = [
    "before begun",
    "in begun",
    "after begun",
    "before charge",
    "after charge",
    "before draw",
    "after draw",
    "before persist",
    "in persist",
    "after persist",
]


class Crash(BaseException):
    """The process is gone."""


class Party:
    """A party on disk. It notes what it does, may crash at a point, and can be started again."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.done, self.draws, self.crash_at = folder, [], [], None
        self.what = None  # that is stored
        self._patch(monkeypatch)
        self.start()

    def start(self):
        self.ledger = Ledger("clinic", path=self.folder / "ledger.jsonl", limit=LIMIT)
        self.store = FolderStore(self.folder / "site")
        self.site = site_of(ledger=self.ledger, store=self.store)

    def restart(self):
        self.ledger.close()
        self.crash_at = None
        self.start()

    def at(self, point):
        self.done.append(point)
        if point == self.crash_at:
            raise Crash(point)

    def _patch(self, monkeypatch):
        charge, noise = Ledger.charge, mechanisms.add_gaussian
        put, replace = FolderStore.put, Path.replace

        def charged(ledger, *args, **kwargs):
            self.at("before charge")
            entry = charge(ledger, *args, **kwargs)
            self.at("after charge")
            return entry

        def drawn(*args, **kwargs):
            self.at("before draw")
            self.draws.append(noise(*args, **kwargs))
            self.at("after draw")
            return self.draws[-1]

        def stored(store, name, data):
            self.what = "begun" if name.startswith("begun/") else "persist"
            self.at(f"before {self.what}")
            put(store, name, data)
            self.at(f"after {self.what}")

        def replaced(path, target):
            if self.what:  # not the key, before anything is stored
                self.at(f"in {self.what}")
            return replace(path, target)

        monkeypatch.setattr(Ledger, "charge", charged)
        monkeypatch.setattr(mechanisms, "add_gaussian", drawn)
        monkeypatch.setattr(FolderStore, "put", stored)
        monkeypatch.setattr(Path, "replace", replaced)


@pytest.fixture
def party(tmp_path, monkeypatch):
    party = Party(tmp_path, monkeypatch)
    yield party
    party.ledger.close()


def value_in(reply):
    return reply_in(reply, Size).value.value


def test_the_order_of_a_release(party):
    party.site.answer(frame(Ask(50.0)), HANDLERS)
    assert party.done == POINTS


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_costs_one_entry_and_sends_one_draw(party, point):
    question = frame(Ask(50.0))
    party.crash_at = point
    with pytest.raises(Crash):
        party.site.answer(question, HANDLERS)
    party.restart()
    paid_before = len(party.ledger.entries)
    assert paid_before == (POINTS.index(point) >= POINTS.index("after charge"))
    drawn_before = len(party.draws)
    first = party.site.answer(question, HANDLERS)
    party.restart()
    again = party.site.answer(question, HANDLERS)
    assert first == again, "a second draw was sent"
    assert len(party.ledger.entries) == 1
    assert value_in(first) == int(party.draws[-1][0])
    kept = point == "after persist"
    assert len(party.draws) == drawn_before + (not kept)


def test_a_draw_is_paid_for_on_disk_before_it_is_made(party):
    party.crash_at = "before draw"
    with pytest.raises(Crash):
        party.site.answer(frame(Ask(50.0)), HANDLERS)
    on_disk = Ledger.read(party.folder / "ledger.jsonl")
    assert on_disk.events == (Gaussian(sigma=50.0, sensitivity=1.0),)
    assert not party.draws


def test_a_reply_is_on_disk_before_it_is_sent(party):
    reply = party.site.answer(frame(Ask(50.0)), HANDLERS)
    stored = FolderStore(party.folder / "site").get("reply/r1/0")
    assert stored is not None
    assert stored.endswith(reply)


def test_the_entry_in_a_reply_is_in_the_ledger(party):
    reply = reply_in(party.site.answer(frame(Ask(50.0)), HANDLERS), Size)
    party.ledger.verify([reply.value.entry])
    (entry,) = party.ledger.entries
    assert (entry.run, entry.step, entry.to) == ("r1", "0.1", "coordinator")


def test_a_changed_repetition_is_refused(party):
    party.site.answer(frame(Ask(50.0)), HANDLERS)
    for other in (Ask(51.0), Hello()):
        with pytest.raises(WireError, match="answered before for another request"):
            party.site.answer(frame(other), HANDLERS)
    assert len(party.draws) == len(party.ledger.entries) == 1


def test_after_a_crash_a_changed_request_cannot_use_what_was_paid_for_another(party):
    party.crash_at = "after charge"
    with pytest.raises(Crash):
        party.site.answer(frame(Ask(50.0)), HANDLERS)
    party.restart()
    with pytest.raises(LedgerError, match="was charged as"):
        party.site.answer(frame(Ask(40.0)), HANDLERS)
    with pytest.raises(LedgerError, match="was charged as"):
        party.site.answer(frame(Ask(50.0), sender="stranger"), HANDLERS)
    assert not party.draws


def test_another_step_or_run_is_another_release(party):
    replies = [
        party.site.answer(frame(Ask(50.0), step=step, run=run), HANDLERS)
        for step, run in [(0, "r1"), (1, "r1"), (0, "r2"), (0, "r1/0")]
    ]
    assert len(party.ledger.entries) == len(party.draws) == len(replies)


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_an_old_step_is_never_drawn_again(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else FolderStore(tmp_path)
    site = site_of(store=store)
    old = site.answer(frame(Ask(1000.0), step=0), HANDLERS)
    last = site.answer(frame(Ask(1000.0), step=1), HANDLERS)
    assert site.answer(frame(Ask(1000.0), step=1), HANDLERS) == last
    if kind == "folder":
        assert site.answer(frame(Ask(1000.0), step=0), HANDLERS) == old
    else:
        with pytest.raises(WireError, match="a second draw would be a second release"):
            site.answer(frame(Ask(1000.0), step=0), HANDLERS)
    with pytest.raises(WireError, match="for another request"):
        site.answer(frame(Ask(999.0), step=0), HANDLERS)
    assert len(site.ledger.entries) == 2


def test_over_budget_nothing_is_drawn_or_stored(monkeypatch):
    site = site_of(ledger=Ledger("clinic", limit=Budget(epsilon=0.1, delta=1e-6)))
    monkeypatch.setattr(mechanisms, "add_gaussian", None)
    with pytest.raises(BudgetError, match="Nothing was released"):
        site.answer(frame(Ask(1.0)), HANDLERS)
    assert not site.ledger.entries


def test_a_message_for_someone_else_is_refused():
    with pytest.raises(WireError, match=r"for 'other' came to 'clinic'"):
        site_of().answer(frame(Ask(50.0), to="other"), HANDLERS)
    with pytest.raises(WireError, match="not a Envelope"):
        site_of().answer(b"\xc1", HANDLERS)
    with pytest.raises(WireError, match="not a"):
        site_of().answer(messages.encode(Envelope("r", 0, "c", "clinic", b"\x80")), HANDLERS)


def test_a_number_kept_private_is_drawn_once_a_run_and_survives_a_crash(party):
    event = Gaussian(sigma=50.0, sensitivity=1.0)
    drawn = []

    def keep(request, site):
        site.keep_private(event, "size", lambda: drawn.append(7) or 7)
        return Key(site.mask_key())

    party.crash_at = "before persist"
    with pytest.raises(Crash):
        party.site.answer(frame(Hello()), {Hello: keep})
    party.restart()
    for step in range(3):
        party.site.answer(frame(Hello(), step=step), {Hello: keep})
        party.restart()
    assert drawn == [7, 7]  # the first was lost before anyone could have seen what it steers
    assert len(party.ledger.entries) == 1
    party.site.answer(frame(Hello(), run="r2"), {Hello: keep})
    assert len(party.ledger.entries) == 2


def test_memory_belongs_to_a_run(tmp_path):
    site = site_of(store=FolderStore(tmp_path))
    site.begin(Envelope("r1", 0, "c", "clinic", b""))
    site.remember("chosen", b"x")
    again = site_of(store=FolderStore(tmp_path))
    again.begin(Envelope("r1", 5, "c", "clinic", b""))
    assert again.recall("chosen") == b"x"
    again.begin(Envelope("r2", 0, "c", "clinic", b""))
    assert again.recall("chosen") is None


def test_names_from_peers_stay_inside_the_folder(tmp_path):
    folder = tmp_path / "site"
    store = FolderStore(folder)
    for name in ("../../escape", "/etc/x", "a\0b", "x" * 5000, ""):
        store.put(name, name.encode())
        assert store.get(name) == name.encode()
    assert {p.parent for p in tmp_path.rglob("*") if p.is_file()} == {folder}
    assert len(list(folder.iterdir())) == 5
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_sum_for_another_cohort_is_refused():
    site = site_of(rows=[1, 2])
    key = reply_in(site.answer(frame(Hello()), HANDLERS), Key).key.value
    for cohort in ({"a": key}, {"clinic": key, "stranger": key}):
        with pytest.raises(WireError, match=r"'clinic' was asked for a sum over .*the roster"):
            site.answer(frame(Sum(cohort, 20.0), step=1), HANDLERS)
    assert not site.ledger.entries


@pytest.mark.parametrize("change", ["flip", "cut", "empty"])
def test_a_damaged_memory_is_refused(party, change):
    question = frame(Ask(50.0))
    party.site.answer(question, HANDLERS)
    file = party.store._path("reply/r1/0")
    data = bytearray(file.read_bytes())
    data[-40] ^= 4  # in the reply, so a number would only be another number
    file.write_bytes({"flip": bytes(data), "cut": bytes(data[:-1]), "empty": b""}[change])
    party.restart()
    with pytest.raises(WireError, match="is damaged or cut off"):
        party.site.answer(question, HANDLERS)
    assert len(party.draws) == len(party.ledger.entries) == 1


def test_a_stored_reply_is_not_sent_when_what_paid_for_it_was_cut_from_the_ledger(party):
    question = frame(Ask(50.0))
    party.site.answer(question, HANDLERS)
    path = party.folder / "ledger.jsonl"
    party.ledger.close()
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    party.start()
    with pytest.raises(LedgerError, match="is gone"):
        party.site.answer(question, HANDLERS)


def test_a_reply_that_was_sent_and_is_gone_is_not_drawn_anew(party):
    """A part of a party's memory was deleted, or an old copy of it was put back."""
    first = frame(Ask(50.0))
    party.site.answer(first, HANDLERS)
    party.site.answer(frame(Ask(60.0), step=1), HANDLERS)
    party.store._path("reply/r1/0").unlink()
    party.restart()
    with pytest.raises(LedgerError, match="the reply is gone"):
        party.site.answer(first, HANDLERS)
    assert len(party.draws) == len(party.ledger.entries) == 2


def steered(request, site):
    site.keep_private(Gaussian(sigma=50.0, sensitivity=1.0), "size", lambda: 7)
    return Key(site.mask_key())


def under(request, site):
    entry = site.pay(NonPrivate("as it is"), "all of it")
    return Size(site.release_under(entry, lambda: 7), Public("hello", "the same for any rows"))


@pytest.mark.parametrize("when", [None, "after charge", "in persist"])
@pytest.mark.parametrize(
    ("question", "handlers"),
    [
        (lambda party: Ask(50.0), HANDLERS),
        (lambda party: Sum({"clinic": party.key}, 50.0), HANDLERS),
        (lambda party: Hello(), {Hello: steered}),
        (lambda party: Ask(50.0), {Ask: under}),
    ],
    ids=["release", "masked", "kept", "under"],
)
def test_a_store_that_is_gone_gives_no_second_draw(party, question, handlers, when):
    """The ledger is there: to charge the same step again would cost nothing."""
    party.key, party.ledger.limit = party.site.mask_key().value, None  # one kind has no bound
    asked, party.crash_at = frame(question(party)), when
    with suppress(Crash):
        party.site.answer(asked, handlers)
    paid = party.ledger.events
    assert len(paid) == 1
    rmtree(party.folder / "site")
    party.restart()
    party.ledger.limit = None
    party.draws.clear()
    for one in (asked, frame(Hello(), step=5)):
        with pytest.raises(LedgerError, match="'clinic': its ledger holds releases of run r1, and"):
            party.site.answer(one, HANDLERS | handlers)
    assert party.ledger.events == paid
    assert not party.draws
    party.site.answer(frame(Ask(90.0), run="r2"), HANDLERS)  # another run is paid for anew
    assert len(party.ledger.events) == 2


def keep_and_release(request, site):
    event = Gaussian(sigma=50.0, sensitivity=1.0)
    number = site.keep_private(event, "size", lambda: int(site.entropy.bytes(2).hex(), 16))
    return Size(site.release(event, "size", lambda: number), Public("hello", "the same"))


def test_a_number_kept_private_is_not_drawn_anew_by_a_store_that_lacks_it(party):
    """The next step would show a second draw, for which nobody paid."""
    first = value_in(party.site.answer(frame(Ask(50.0)), {Ask: keep_and_release}))
    party.store._path("kept/r1/size").unlink()
    party.restart()
    with pytest.raises(LedgerError, match=r"'size' .* is gone"):
        party.site.answer(frame(Ask(50.0), step=1), {Ask: keep_and_release})
    assert len(party.ledger.entries) == 2
    assert value_in(party.site.answer(frame(Ask(50.0)), {Ask: keep_and_release})) == first


def test_a_store_older_than_the_last_answer_pays_for_nothing_more(party):
    """What it forgot decides later answers: numbers that stay here, and lists that were shown."""
    party.site.answer(frame(Ask(50.0)), HANDLERS)
    copytree(party.folder / "site", party.folder / "copy")
    party.site.answer(frame(Ask(60.0), step=1), HANDLERS)
    rmtree(party.folder / "site")
    (party.folder / "copy").rename(party.folder / "site")
    party.restart()
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"step 1 of run r1 was paid for, .* is gone"):
            party.site.answer(frame(Ask(70.0), step=2), HANDLERS)
    assert len(party.draws) == len(party.ledger.entries) == 2
    # What pays for nothing, such as the answer that closes a run, is still given.
    party.site.answer(frame(Hello(), step=3), HANDLERS)


@pytest.mark.parametrize("point", POINTS)
def test_a_step_that_a_crash_left_may_be_followed_once_it_is_answered(party, point):
    party.crash_at = point
    with suppress(Crash):
        party.site.answer(frame(Ask(50.0)), HANDLERS)
    party.restart()
    party.site.answer(frame(Ask(50.0)), HANDLERS)
    party.site.answer(frame(Ask(60.0), step=1), HANDLERS)
    assert len(party.ledger.entries) == 2


def test_a_run_that_was_paid_for_meets_the_rows_that_it_began_with(party):
    def held(rows):
        settings = {"ledger": party.ledger, "store": party.store}
        return site_of(rows=rows, digest=lambda: bytes(rows), **settings)

    held([1]).answer(frame(Hello()), HANDLERS)  # no row enters, and nothing is paid
    held([1, 2]).answer(frame(Ask(50.0), step=1), HANDLERS)
    stored = held([1, 2]).answer(frame(Ask(50.0), step=1), HANDLERS)
    for step in (1, 2):
        with pytest.raises(InputError, match=r"'clinic': its rows changed .* run r1 is paid for"):
            held([1, 3]).answer(frame(Ask(50.0), step=step), HANDLERS)
    assert held([1, 2]).answer(frame(Ask(50.0), step=1), HANDLERS) == stored
    assert len(party.draws) == len(party.ledger.entries) == 1
    held([1, 3]).answer(frame(Ask(50.0), run="r2"), HANDLERS)
    party.store._path("begun/r1").unlink()
    with pytest.raises(LedgerError, match="its store does not know that run"):
        held([1, 2]).answer(frame(Ask(50.0), step=1), HANDLERS)


def test_what_a_run_began_with_stays_at_the_party():
    site = site_of(digest=lambda: b"digest of the rows")
    for one in (site.answer(frame(Ask(50.0)), HANDLERS), *map(repr, site.ledger.entries)):
        assert "digest of the rows" not in str(one)


def test_a_run_that_resumes_reads_the_ledger_once(party, monkeypatch):
    """A thousand stored replies do not each read a ledger of a thousand entries."""
    questions = [frame(Ask(500.0), step=step) for step in range(5)]
    replies = [party.site.answer(question, HANDLERS) for question in questions]
    party.restart()
    read, reads = Ledger.read, []
    monkeypatch.setattr(Ledger, "read", lambda path, key: reads.append(path) or read(path, key=key))
    assert [party.site.answer(question, HANDLERS) for question in questions] == replies
    assert len(reads) == 1


def failing_after(event):
    """A handler that draws, and fails by what it drew."""

    def handler(request, site):
        drawn = site.release(event, "x", lambda: int(mechanisms.OSEntropy().bytes(1)[0]))
        raise ValueError(f"{drawn.value} is too large")

    return {Ask: handler}


def test_a_step_that_fails_after_its_charge_fails_alike_for_ever(party):
    """A retry used to draw anew under the entry that was there, and to say whether it passed."""
    handlers, texts = failing_after(Gaussian(sigma=50.0, sensitivity=1.0)), set()
    for again in range(4):
        if again == 2:
            party.restart()
        with pytest.raises(WireError, match="Ask failed after it was paid for") as refused:
            party.site.answer(frame(Ask(50.0)), handlers)
        texts.add(str(refused.value))
    assert len(texts) == 1
    assert "too large" not in texts.pop()
    assert len(party.ledger.entries) == 1
    assert party.done.count("after charge") == 1
    with pytest.raises(WireError, match="was refused before for another request"):
        party.site.answer(frame(Ask(90.0)), HANDLERS)
    party.site.answer(frame(Ask(90.0), step=1), HANDLERS)
    assert len(party.ledger.entries) == 2


def test_a_step_that_was_paid_for_before_a_crash_and_fails_after_it_is_not_drawn_for_ever(party):
    """The entry was there already, so that no refusal was stored and each retry drew anew."""
    handlers, party.crash_at = failing_after(Gaussian(sigma=50.0, sensitivity=1.0)), "after charge"
    with pytest.raises(Crash):
        party.site.answer(frame(Ask(50.0)), handlers)
    party.restart()
    texts = set()
    for _ in range(3):
        with pytest.raises(WireError, match="Ask failed after it was paid for") as refused:
            party.site.answer(frame(Ask(50.0)), handlers)
        texts.add(str(refused.value))
        party.restart()
    assert len(texts) == len(party.ledger.entries) == 1
    assert party.store.get("refused/r1/0") is not None


def test_a_step_below_0_is_refused(party):
    """What a party compares steps with, to notice a reply that is gone, counts from 0."""
    with pytest.raises(WireError, match="not a Envelope"):
        party.site.answer(frame(Ask(50.0), step=-1), HANDLERS)
    assert not party.ledger.entries


class Wide(BaseEvent, frozen=True, tag="wide"):
    """A new event, which the site has never heard of."""

    mechanism = "wide noise"

    @property
    def width(self):
        return 0.05


def test_noise_of_a_new_event_that_cannot_be_drawn_is_refused_unpaid(party):
    def handler(request, site):
        return Size(site.release(Wide(), "x", lambda: 3), None)

    with pytest.raises(InputError, match="must lie between"):
        party.site.answer(frame(Ask(50.0)), {Ask: handler})
    assert not party.ledger.entries


def test_a_failure_without_protection_says_why(party):
    party.ledger.limit = None
    for _ in range(2):
        with pytest.raises(
            WireError, match="'clinic', step 0 of run r1: its Ask cannot be answered"
        ):
            party.site.answer(frame(Ask(50.0)), failing_after(NonPrivate("as it is")))
    assert len(party.ledger.entries) == 1


def test_a_release_beyond_the_budget_is_refused_as_such_when_asked_again(party):
    def twice(request, site):
        site.release(Gaussian(sigma=50.0, sensitivity=1.0), "x", lambda: 3)
        return Size(site.release(Gaussian(sigma=0.15, sensitivity=1.0), "y", lambda: 4), None)

    for _ in range(2):
        with pytest.raises(BudgetError, match="would have spent"):
            party.site.answer(frame(Ask(50.0)), {Ask: twice})
    assert len(party.ledger.entries) == 1


def test_whatever_fails_in_a_handler_ends_in_our_own_errors(party, caplog):
    def broken(request, site):
        raise KeyError("n" + "o" * request_size)

    request_size = 3
    with pytest.raises(WireError, match="its Ask cannot be answered") as refused:
        party.site.answer(frame(Ask(50.0)), {Ask: broken})
    assert "nooo" not in str(refused.value)
    assert "nooo" not in caplog.text  # it may be a value of a row
    assert "KeyError in" in caplog.text
    assert "broken (test_site.py:" in caplog.text
    assert not party.ledger.entries


def test_a_count_too_large_for_a_masked_sum_is_cut_and_not_redrawn():
    """It used to be refused after its noise was drawn, by the noisy value, at no further cost."""
    largest = masking.room(1, 50.0)
    site = site_of(rows=[2**31 - 1, 5])
    key = reply_in(site.answer(frame(Hello()), HANDLERS), Key).key.value
    answer = site.answer(frame(Sum({"clinic": key}, 50.0), step=1), HANDLERS)
    first, second = masking.unmask_sum([reply_in(answer, Part).sums.words.numpy()]).tolist()
    assert abs(first - largest) < 50 * 13
    assert abs(second - 5) < 50 * 13
    assert len(site.ledger.entries) == 1


def keys_of(*sites, run="r1"):
    return {
        one.name: reply_in(
            one.answer(frame(Hello(), to=one.name, run=run), HANDLERS), Key
        ).key.value
        for one in sites
    }


def refused_sum(site, keys, match, **request):
    paid = len(site.ledger.entries)
    asked = frame(Sum(keys, 20.0, **request), step=1, to=site.name)
    with pytest.raises(WireError, match=match):
        site.answer(asked, HANDLERS)
    assert len(site.ledger.entries) == paid


def test_a_key_that_another_party_did_not_sign_is_refused():
    """With a key of its own in the place of each peer's, a coordinator would take masks away."""
    clinic, other = site_of("clinic"), site_of("a")
    keys = keys_of(clinic, other)
    own = masking.public_key(masking.new_secret())
    stranger = site_of("a", ledger=Ledger("a", limit=LIMIT, identity=Identity.create()))
    forged = [
        own + keys["a"][masking.KEY :],  # another key under the signature
        keys_of(stranger)["a"],  # signed by somebody else
        keys_of(site_of("b"))["b"],  # of another party
        keys_of(site_of("a"), run="r2")["a"],  # of another run
        keys["a"][: masking.KEY],
        b"",
    ]
    for key in forged:
        refused_sum(clinic, {**keys, "a": key}, "a key that party 'a' did not sign")
    clinic.answer(frame(Sum(keys, 20.0), step=1), HANDLERS)


def test_less_noise_than_the_study_promises_is_refused():
    clinic, *others = (site_of(name) for name in ("clinic", "a", "b"))
    keys = keys_of(clinic, *others)
    for tolerated in (0, 2):
        refused_sum(clinic, keys, r"withstands \d colluders; the study says 1", tolerated=tolerated)


def test_a_question_is_counted_at_the_step_of_another_that_was_refused():
    """Else a coordinator would have as many answers as it can think of questions to be refused."""
    terms = replace(terms_of(KNOWN), question_limits={"Ask": 2, "Hello": 1})
    site = site_with("clinic", (1, 2, 3), terms)
    site.answer(frame(Hello(), step=0), HANDLERS)
    for step in (1, 2):
        with pytest.raises(InputError):
            site.answer(frame(Ask(-1.0), step=step), HANDLERS)
        with pytest.raises(WireError, match="was asked 'Hello' 2 times"):
            site.answer(frame(Hello(), step=step), HANDLERS)
