"""What each end of a study says of its seconds, and that a party's reach nobody else."""

import json
import logging
import re
import shutil
import time
from contextlib import ExitStack, contextmanager

import msgspec
import pytest

from siloweave import progress
from siloweave.app.cli import main
from siloweave.app.console import print_summary
from siloweave.app.ledgers import open_run
from siloweave.app.network import office_in
from siloweave.app.run import execute
from siloweave.app.status_facts import status_of
from siloweave.federation import frames
from siloweave.federation.exchanges import exchanges_in
from siloweave.federation.site import Site
from siloweave.privacy import ledger
from siloweave.progress import Stopwatch
from siloweave.report import words
from siloweave.report.record import Overhead, Record
from tests.app.processes import party_at
from tests.synthesizers.networked import Framed, over_files

NAMES = ("north", "south")
SLOW_S = 0.02  # that each answer takes more, in the tests that need it to be seen


@contextmanager
def direct(seals, hosts, folder):
    yield Framed(seals, hosts)


def run(ends, over=over_files, slow=0.0):
    """The study, its wall time, what its carrier holds, and both parties slower by so much."""
    office = office_in(ends["coordinator"])
    with ExitStack() as stack:
        hosts = {n: stack.enter_context(party_at(ends[n], noise="seeded")) for n in NAMES}
        for host, _ in hosts.values():
            host.reply = slowly(host.reply, slow)
        carrier = stack.enter_context(over(office.seals, hosts, ends["north"] / ".." / "spool"))
        start = time.perf_counter()
        summary, _ = execute(office.study, carrier=office.carrier(carrier), noise="seeded")
        return summary, time.perf_counter() - start, carrier


def slowly(reply, seconds):
    def answer(question):
        time.sleep(seconds)
        return reply(question)

    return answer


@pytest.mark.parametrize("over", [over_files, direct])
def test_seconds_add_up_to_no_more_than_the_run_took(ends, over):
    summary, wall, _ = run(ends, over, SLOW_S)
    found = summary.overhead
    assert min(found.own, found.sealing, found.waiting) > 0
    assert found.own + found.sealing + found.waiting <= wall
    assert (found.questions, found.messages) == (summary.rounds, 2 * summary.rounds)
    asking = found.waiting + found.sealing  # of one answer, while another party computes
    assert asking >= SLOW_S * summary.rounds  # parties are asked at the same time
    for name in NAMES:
        made = exchanges_in(ends[name] / "nonces")
        assert all(one.computing >= SLOW_S and one.sealing > 0 for one in made)
        assert sum(one.computing + one.sealing for one in made) <= wall
        assert asking >= sum(one.computing for one in made) - 0.001


def test_they_stand_in_the_summary_the_report_and_the_status(ends, capsys):
    summary, _, _ = run(ends)
    folder = ends["coordinator"] / "run"
    found = summary.overhead
    assert open_run(folder).overhead == found
    assert Record.from_json((folder / "record.json").read_bytes()).overhead == found
    said = words.overhead(found)
    page = (folder / "report.html").read_text()
    section = page.partition('aria-labelledby="bytes"')[2].partition("</section>")[0]
    assert said in section
    print_summary(summary, folder, json=False, before=False)
    assert said in capsys.readouterr().out
    print_summary(summary, folder, json=True, before=False)
    assert json.loads(capsys.readouterr().out)["overhead"] == msgspec.to_builtins(found)
    party = status_of(ends["north"])
    made = exchanges_in(ends["north"] / "nonces")
    assert party.computing == sum(one.computing for one in made) > 0
    assert party.sealing == sum(one.sealing for one in made) > 0
    assert main(["status", str(ends["north"])]) == 0
    assert f"{progress.duration(party.computing)} of its own computing" in capsys.readouterr().out


def test_a_run_in_one_process_says_nothing_of_parties_that_are_elsewhere(folder):
    folder.call("run", "study.toml")
    assert open_run(folder.path / "run").overhead is None
    assert "computing at the parties" not in (folder.path / "run" / "report.html").read_text()


def test_a_sentence_has_each_figure_for_one_message():
    said = words.overhead(Overhead(own=2.0, sealing=0.5, waiting=30.0, questions=10, messages=100))
    assert "computed for 2.0 s" in said
    assert "for 500 ms (5.0 ms a message)" in said
    assert "waited 30.0 s for parties and for what carries messages (3.0 s a question)" in said
    assert "since it may depend on rows" in said
    words.overhead(Overhead(own=0.0, sealing=0.0, waiting=0.0, questions=0, messages=0))


def test_a_party_says_its_own_at_the_end_of_the_study(ends, caplog):
    caplog.set_level(logging.INFO, "siloweave")
    run(ends)
    said = [one.getMessage() for one in caplog.records if "to its end" in one.getMessage()]
    assert len(said) == len(NAMES)
    for name in NAMES:
        made = exchanges_in(ends[name] / "nonces")
        (line,) = [one for one in said if f"'{name}'" in one]
        computing, sealing = (sum(getattr(m, n) for m in made) for n in ("computing", "sealing"))
        assert f"{len(made)} questions, {computing:.2f} s of its own computing" in line
        assert f"and {sealing:.2f} s of sealing" in line


class Clock:
    """A clock of another speed."""

    def __init__(self, speed):
        self.speed = speed

    def perf_counter(self):
        return self.speed * time.perf_counter()

    def __getattr__(self, name):
        return getattr(time, name)


def crossed(ends, speed, monkeypatch):
    """All that was sealed for the coordinator and the parties, while clocks have this speed."""
    heard, seal, made = [], frames.Seals.seal, Site.__init__

    def hear(self, to, kind, data, *args, **named):
        heard.append((self.name, to, kind, data))
        return seal(self, to, kind, data, *args, **named)

    def make(self, *args, **named):
        made(self, *args, **named)
        self._seal_key = bytes(32)  # else it is another one in every process

    with monkeypatch.context() as patch:
        patch.setattr(Site, "__init__", make)
        patch.setattr(frames.Seals, "seal", hear)
        patch.setattr(ledger, "_now", lambda: "2026-01-01T00:00:00.000+00:00")
        patch.setattr(frames, "time", Clock(speed))
        patch.setattr(progress, "time", Clock(speed))
        run(ends, direct)
    return sorted(heard)


def test_nothing_that_a_party_sends_depends_on_how_long_it_computed(ends, monkeypatch):
    for name in NAMES:  # whose account has both runs
        policy = ends[name] / "policy.toml"
        text = re.sub(r"(?m)^delta = .*$", "delta = 0.5", policy.read_text())
        policy.write_text(re.sub(r"(?m)^epsilon_in_all = .*$", "epsilon_in_all = 4.0", text))
    first = crossed(ends, 1.0, monkeypatch)
    took = {name: exchanges_in(ends[name] / "nonces") for name in NAMES}
    for name in NAMES:  # the same study, anew
        for one in ("ledger.jsonl", "nonces", "begun"):
            (ends[name] / one).unlink()
        shutil.rmtree(ends[name] / "store")
    shutil.rmtree(ends["coordinator"] / "run")
    second = crossed(ends, 1000.0, monkeypatch)
    again = {name: exchanges_in(ends[name] / "nonces") for name in NAMES}
    assert first == second
    assert len(first) > 10
    for name in NAMES:
        one, two = (sum(m.computing for m in made[name]) for made in (took, again))
        assert two > 100 * one > 0


def test_a_watch_counts_threads_and_nested_times_once(monkeypatch):
    now = iter([1.0, 4.0, 10.0, 10.5])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(now))
    watch = Stopwatch()
    with watch, watch:
        pass
    assert watch.seconds == 3.0
    with pytest.raises(ZeroDivisionError), watch:
        raise ZeroDivisionError
    assert watch.seconds == 3.5
