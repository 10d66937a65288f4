import errno
import json
import math
import os
import stat
import threading

import pytest

from siloweave.errors import BudgetError, InputError, LedgerError
from siloweave.privacy import journal
from siloweave.privacy.accountants import Tally, epsilon
from siloweave.privacy.budget import Budget, gaussian_sigma, rho_for
from siloweave.privacy.events import (
    Exponential,
    Gaussian,
    Laplace,
    NonPrivate,
    SampledSharedGaussian,
    ThresholdGaussian,
)
from siloweave.privacy.ledger import Ledger
from tests.privacy.left import left

LIMIT = Budget(epsilon=1.0, delta=1e-6)
EVENTS = [
    Gaussian(sigma=40.0, sensitivity=1.0),
    Exponential(epsilon=0.05),
    Laplace(scale=50.0, sensitivity=1.0),
    Gaussian(sigma=40.0, sensitivity=1.0, count=2),
]


def charge(ledger, event, step, run="r1"):
    return ledger.charge(event, run=run, step=step, what="a marginal", to="coordinator")


@pytest.fixture
def path(tmp_path):
    """A ledger of four entries."""
    file = tmp_path / "clinic.jsonl"
    with Ledger("clinic", path=file, limit=LIMIT) as ledger:
        for number, event in enumerate(EVENTS):
            charge(ledger, event, f"s{number}")
    return file


def test_a_ledger_on_disk_is_the_one_that_was_written(path):
    read = Ledger.read(path)
    assert read.owner == "clinic"
    assert list(read.events) == EVENTS
    assert [entry.index for entry in read.entries] == [0, 1, 2, 3]
    with Ledger("clinic", path=path, limit=LIMIT) as again:
        assert again.entries == read.entries
        assert again.head == read.head
        assert again.epsilon() == read.epsilon(LIMIT.delta)
        charge(again, EVENTS[0], "s4")
    assert len(Ledger.read(path).entries) == 5
    assert not read.recovered


def test_memory_and_file_read_the_same(path):
    ledger = Ledger("clinic", limit=LIMIT)
    for number, event in enumerate(EVENTS):
        charge(ledger, event, f"s{number}")
    assert ledger.path is None
    assert ledger.epsilon() == Ledger.read(path).epsilon(LIMIT.delta)
    ledger.verify()


def test_the_file_is_for_its_owner_only_and_holds_no_values(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first, *rest = [json.loads(line) for line in path.read_text().splitlines()]
    assert first["owner"] == "clinic"
    fields = {"index", "time", "run", "step", "what", "to", "event", "previous"}
    assert all(set(line) == fields | {"hash", "signature"} for line in rest)


def test_a_charge_above_the_limit_writes_nothing(path):
    before = path.read_bytes()
    with Ledger("clinic", path=path, limit=LIMIT) as ledger:
        spent = ledger.epsilon()
        with pytest.raises(BudgetError, match=f"spent epsilon = {spent}.*limit of 1.0"):
            charge(ledger, Gaussian(sigma=1.0, sensitivity=1.0), "big")
        with pytest.raises(BudgetError, match="inf"):
            charge(ledger, NonPrivate(reason="metrics"), "free")
        assert ledger.epsilon() == spent
        assert path.read_bytes() == before
        charge(ledger, EVENTS[0], "small")


def test_the_limit_can_be_spent_to_the_end_and_not_beyond():
    ledger = Ledger("clinic", limit=LIMIT)
    sigma = gaussian_sigma(rho_for(LIMIT) / 10, 1.0)
    for number in range(10):
        charge(ledger, Gaussian(sigma=sigma, sensitivity=1.0), str(number))
    assert 0.9999 < ledger.epsilon() <= 1.0
    with pytest.raises(BudgetError):
        charge(ledger, Gaussian(sigma=100 * sigma, sensitivity=1.0), "more")


def test_a_pure_limit_counts_pure_releases():
    """One release of epsilon 1 fits a limit of 1, though its zCDP alone would read as more."""
    ledger = Ledger("clinic", limit=LIMIT)
    charge(ledger, Laplace(scale=1.0, sensitivity=1.0), "all")
    assert 0.99 < ledger.epsilon() <= 1.0
    with pytest.raises(BudgetError):
        charge(ledger, Laplace(scale=100.0, sensitivity=1.0), "more")


def test_a_ledger_without_a_limit_records_everything():
    ledger = Ledger("curator")
    charge(ledger, NonPrivate(reason="baseline"), "0")
    assert ledger.epsilon(1e-6) == math.inf
    with pytest.raises(InputError, match="delta"):
        ledger.epsilon()


def test_an_unlimited_budget_is_no_limit():
    ledger = Ledger("curator", limit=Budget(epsilon=math.inf, delta=1e-6))
    charge(ledger, NonPrivate(reason="baseline"), "0")
    assert ledger.epsilon() == math.inf


@pytest.mark.parametrize("limit", [None, Budget(epsilon=math.inf, delta=1e-6)])
@pytest.mark.parametrize("bare", [{0}, {0, 1}, {2}, {0, 4}, set()])
def test_releases_without_protection_are_totalled_wherever_they_stand(limit, bare):
    """No total is kept while every cost is infinite; what is read is that of all entries."""
    ledger = Ledger("curator", limit=limit)
    events = [NonPrivate("a release") if i in bare else EVENTS[i % 4] for i in range(5)]
    for number, event in enumerate(events):
        charge(ledger, event, f"s{number}")
        whole = Tally(events[: number + 1])
        assert (ledger.rho, ledger.epsilon(1e-6)) == (whole.rho, whole.epsilon(1e-6))
    ledger.limit = LIMIT  # as for scores of a fit whose ledgers are in memory
    if bare:
        with pytest.raises(BudgetError, match="has spent epsilon = inf"):
            charge(ledger, EVENTS[0], "s5")
    else:
        charge(ledger, EVENTS[0], "s5")


def test_an_event_of_an_unknown_type_is_not_charged_without_a_limit_either():
    ledger = Ledger("curator")
    charge(ledger, NonPrivate("a release"), "s0")
    with pytest.raises(LedgerError, match="unknown"):
        charge(ledger, "an event", "s1")
    assert len(ledger.entries) == 1


def test_the_probability_of_an_escape_comes_out_of_the_limit():
    """A list of values whose threshold is too low is refused although its zCDP would fit."""
    ledger = Ledger("clinic", limit=LIMIT)
    with pytest.raises(BudgetError, match="would have spent inf"):
        charge(ledger, ThresholdGaussian(sigma=20.0, sensitivity=1.0, threshold=60), "low")
    charge(ledger, ThresholdGaussian(sigma=20.0, sensitivity=1.0, threshold=100), "enough")
    rest = left(ledger)
    assert rest < rho_for(LIMIT) - (1 / 20.0) ** 2 / 2
    charge(ledger, Gaussian(sigma=gaussian_sigma(rest, 1.0), sensitivity=1.0), "rest")
    assert 0.999 < ledger.epsilon() <= 1.0


def test_a_retry_gets_the_entry_that_is_there(path):
    before = path.read_bytes()
    with Ledger("clinic", path=path, limit=LIMIT) as ledger:
        assert charge(ledger, EVENTS[1], "s1") == ledger.entries[1]
        assert path.read_bytes() == before
        with pytest.raises(LedgerError, match="step 's1' was charged as"):
            charge(ledger, EVENTS[0], "s1")
        with pytest.raises(LedgerError, match="'stranger'"):
            ledger.charge(EVENTS[1], run="r1", step="s1", what="a marginal", to="stranger")
        assert charge(ledger, EVENTS[1], "s1", run="r2").index == 4


def test_a_retry_is_answered_even_when_the_budget_is_gone():
    ledger = Ledger("clinic", limit=LIMIT)
    everything = Gaussian(sigma=gaussian_sigma(rho_for(LIMIT), 1.0), sensitivity=1.0)
    assert charge(ledger, everything, "0") is charge(ledger, everything, "0")


# What must not go unnoticed.


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def edit_sigma(lines):
    lines[1] = lines[1].replace(b'"sigma":40.0', b'"sigma":90.0')
    return 2


def edit_name(lines):
    lines[2] = lines[2].replace(b"coordinator", b"coordinat0r")
    return 3


def edit_and_rehash(lines):
    """An editor who knows the format, but does not rewrite all that follows."""
    from siloweave.privacy import ledger as module

    entry = module._entries.decode(lines[2].replace(b"0.05", b"0.01"))
    lines[2] = module._encoder.encode(module._seal(entry)) + b"\n"
    return 4


def remove_middle(lines):
    del lines[2]
    return 3


def swap(lines):
    lines[2], lines[3] = lines[3], lines[2]
    return 3


def repeat(lines):
    lines.insert(2, lines[1])
    return 3


def repeat_last(lines):
    lines.append(lines[-1])
    return 6


def space(lines):
    lines[3] = lines[3].replace(b",", b", ", 1)
    return 4


def blank(lines):
    lines.insert(3, b"\n")
    return 4


def garbage(lines):
    lines[4] = b"\xff\x00{]\n"
    return 5


def new_field(lines):
    lines[4] = lines[4].replace(b'"run"', b'"free":true,"run"')
    return 5


def unknown_event(lines):
    lines[1] = lines[1].replace(b'"gaussian"', b'"magic"')
    return 2


def cut_middle(lines):
    lines[2] = lines[2][:40] + b"\n"
    return 3


def no_header(lines):
    del lines[0]
    return 1


def other_header(lines):
    lines[0] = lines[0].replace(b'"created":"2', b'"created":"1')
    return 1


def future(lines):
    lines[0] = lines[0].replace(b'ledger":2', b'ledger":3')
    return 1


def edited_end(lines):
    lines[-1] = lines[-1].rstrip(b"\n") + b"\x0b"
    return 5


CORRUPTIONS = [
    edit_sigma, edit_name, edit_and_rehash, remove_middle, swap, repeat, repeat_last, space, blank,
    garbage, new_field, unknown_event, cut_middle, no_header, other_header, future, edited_end,
]  # fmt: skip


@pytest.mark.parametrize("corrupt", CORRUPTIONS)
def test_a_changed_ledger_is_refused_and_the_line_named(path, corrupt):
    lines = lines_of(path)
    number = corrupt(lines)
    path.write_bytes(b"".join(lines))
    before = path.read_bytes()
    for open_it in (Ledger.read, lambda p: Ledger("clinic", path=p)):
        with pytest.raises(LedgerError, match=f"line {number}:"):
            open_it(path)
    assert path.read_bytes() == before


def test_no_flipped_bit_goes_unnoticed(path):
    data = path.read_bytes()
    for position in sorted({*range(0, len(data), 3), *range(len(data) - 90, len(data))}):
        changed = bytearray(data)
        changed[position] ^= 1 << (position % 8)
        path.write_bytes(changed)
        try:
            read = Ledger.read(path)
        except LedgerError:
            continue
        raise AssertionError(f"byte {position} of {len(data)}: read {len(read.entries)} entries")


def test_a_ledger_of_somebody_else_is_refused(path, tmp_path):
    with pytest.raises(LedgerError, match="belongs to 'clinic', not to 'lab'"):
        Ledger("lab", path=path)
    other = tmp_path / "lab.jsonl"
    with Ledger("lab", path=other) as lab:
        charge(lab, EVENTS[0], "s0")
    mixed = lines_of(path)
    mixed[1] = lines_of(other)[1]
    path.write_bytes(b"".join(mixed))
    with pytest.raises(LedgerError, match="line 2:"):
        Ledger("clinic", path=path)


def test_an_old_copy_is_noticed_by_whoever_kept_a_hash(path):
    with Ledger("clinic", path=path) as ledger:
        hashes = [entry.hash for entry in ledger.entries]
        ledger.verify(hashes)
    path.write_bytes(b"".join(lines_of(path)[:-1]))
    with Ledger("clinic", path=path) as ledger:
        ledger.verify(hashes[:-1])
        with pytest.raises(LedgerError, match="is gone"):
            ledger.verify(hashes)


def test_verify_notices_a_change_behind_its_back(path):
    with Ledger("clinic", path=path) as ledger:
        path.write_bytes(b"".join(lines_of(path)[:-1]))
        with pytest.raises(LedgerError, match="replaced or cut"):
            ledger.verify()


# Crashes.


def test_a_write_cut_anywhere_by_a_crash_is_repaired(path):
    *kept, last = lines_of(path)
    start = b"".join(kept)
    for length in range(1, len(last)):
        for zeros in (0, 3):
            path.write_bytes(start + last[:length] + bytes(zeros))
            whole = length == len(last) - 1
            seen = Ledger.read(path)
            assert len(seen.entries) == (4 if whole else 3)
            assert bool(seen.recovered) is True
    for length in (1, 30, len(last) - 2, len(last) - 1):
        path.write_bytes(start + last[:length])
        with Ledger("clinic", path=path, limit=LIMIT) as ledger:
            assert ledger.recovered
            charge(ledger, EVENTS[3], "s3")
        assert [entry.event for entry in Ledger.read(path).entries] == EVENTS
        assert not Ledger.read(path).recovered


def test_a_crash_while_the_file_was_new_is_repaired(path):
    header = lines_of(path)[0]
    for length in (0, 1, 9, 40, len(header) - 2, len(header) - 1):
        path.write_bytes(header[:length])
        with Ledger("clinic", path=path) as ledger:
            charge(ledger, EVENTS[0], "s0")
        assert len(Ledger.read(path).entries) == 1


def test_a_full_disk_releases_nothing_and_leaves_a_ledger_that_opens(path, monkeypatch):
    ledger = Ledger("clinic", path=path, limit=LIMIT)
    real, spent = os.write, ledger.epsilon()

    def full(descriptor, data):
        if len(data) > 50:
            return real(descriptor, data[:50])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(LedgerError, match="could not be written"):
            charge(ledger, EVENTS[0], "s4")
    assert ledger.epsilon() == spent
    with pytest.raises(LedgerError, match="closed"):
        charge(ledger, EVENTS[0], "s4")
    with Ledger("clinic", path=path, limit=LIMIT) as again:
        assert len(again.entries) == 4
        charge(again, EVENTS[0], "s4")
    assert len(Ledger.read(path).entries) == 5


def test_a_charge_is_on_disk_before_it_returns(path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(descriptor):
        real(descriptor)
        synced.append(path.read_bytes())

    monkeypatch.setattr(os, "fsync", fsync)
    with Ledger("clinic", path=path) as ledger:
        entry = charge(ledger, EVENTS[0], "s4")
    assert entry.hash.encode() in synced[-1]


def test_one_writer_at_a_time(path):
    with Ledger("clinic", path=path):
        with pytest.raises(LedgerError, match="open in another process"):
            Ledger("clinic", path=path)
        assert len(Ledger.read(path).entries) == 4
    Ledger("clinic", path=path).close()


def test_one_writer_at_a_time_where_files_cannot_be_locked(path, monkeypatch):
    monkeypatch.setattr(journal, "fcntl", None)
    with Ledger("clinic", path=path) as ledger:
        with pytest.raises(LedgerError, match="open in another process"):
            Ledger("clinic", path=path)
        charge(ledger, EVENTS[0], "s4")
    Ledger("clinic", path=path).close()


def test_a_closed_or_read_ledger_cannot_be_charged(path):
    ledger = Ledger("clinic", path=path)
    ledger.close()
    for one in (ledger, Ledger.read(path)):
        with pytest.raises(LedgerError, match="closed or read-only"):
            charge(one, EVENTS[0], "s9")


def test_threads_do_not_tear_the_chain(path):
    with Ledger("clinic", path=path) as ledger:
        threads = [
            threading.Thread(target=charge, args=(ledger, EVENTS[0], f"t{number}"))
            for number in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(Ledger.read(path).entries) == 20


def test_what_cannot_be_a_ledger_is_refused(tmp_path):
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger.read(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with pytest.raises(LedgerError, match="is empty"):
        Ledger.read(tmp_path / "empty.jsonl")
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger("clinic", path=tmp_path)
    with pytest.raises(InputError, match="owner"):
        Ledger("")


def test_what_remains_beside_steps_on_samples_can_be_spent():
    """As zCDP the steps alone are beyond the limit; what they cost at its delta is not."""
    ledger = Ledger("clinic", limit=LIMIT)
    charge(ledger, SampledSharedGaussian(200.0, 1, 0, 100.0, 1, 0.002, count=20), "steps")
    assert ledger.rho > rho_for(LIMIT)
    rest = left(ledger)
    assert rest > 0.3 * rho_for(LIMIT)
    charge(ledger, Gaussian(sigma=gaussian_sigma(rest, 1.0), sensitivity=1.0), "rest")
    assert 0.99 < ledger.epsilon() <= 1.0
    assert left(ledger) < 0.01 * rest


def test_steps_of_a_training_in_rounds_are_refused_where_one_reading_of_all_would_be(monkeypatch):
    """Also: paying in many parts takes few readings."""
    limit, other = Budget(2.0, 1e-5), Gaussian(sigma=8.0, sensitivity=1.0)

    def steps(count):
        return SampledSharedGaussian(100.0, 1, 0, 100.0, 1, 0.01, count=count)

    readings, read = [], Tally.epsilon
    monkeypatch.setattr(Tally, "epsilon", lambda self, d: readings.append(1) or read(self, d))
    ledger = Ledger("clinic", limit=limit)
    ledger.charge(other, run="r", step="0", what="n", to="c")

    def spend_all():
        for step in range(1, 100):
            ledger.charge(steps(20), run="r", step=str(step), what="w", to="c")

    with pytest.raises(BudgetError, match="more than its limit"):
        spend_all()
    made = len(ledger.events) - 1
    assert 5 < len(readings) < made / 2
    assert ledger.epsilon() <= 2.0 < epsilon([*ledger.events, steps(20)], 1e-5)
    with pytest.raises(BudgetError):  # what was known of steps says nothing of something else
        ledger.charge(Gaussian(sigma=1.0, sensitivity=1.0), run="r", step="x", what="w", to="c")


def test_a_page_is_written_beside_a_file_that_has_its_name_and_new(tmp_path):
    other = tmp_path / "report.html.new"
    other.write_text("of the user")
    journal.write_whole(tmp_path / "report.html", b"page", private=False)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "report.html": "page", "report.html.new": "of the user",
    }  # fmt: skip
