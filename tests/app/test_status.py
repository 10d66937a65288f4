"""`siloweave status` at either end: how far a study is, from files alone."""

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import datetime

import pytest

from siloweave.app.cli import main
from siloweave.app.door import _past_line
from siloweave.app.ledgers import open_run
from siloweave.app.network import office_in
from siloweave.app.presence import PRESENCE, Running
from siloweave.app.run import execute
from siloweave.app.status import FACTS, LOG, known_status, log_into, logging_for
from siloweave.app.status_facts import status_of
from siloweave.errors import InputError, RosterError, StudyError, WireError
from siloweave.federation import messages
from siloweave.federation.course import FINISHED, STATUS, StatusFile, read_status
from siloweave.federation.exchanges import (
    ANSWER,
    LAST,
    PARTING,
    REFUSAL,
    Exchange,
    Nonces,
    exchanges_in,
)
from siloweave.federation.frames import FRAME, Opened
from siloweave.federation.messages import Envelope
from tests.app.processes import party_at
from tests.synthesizers.networked import over_files


def run(ends, *names, seconds=60.0):
    """The study, with these parties there."""
    office = office_in(ends["coordinator"])
    with ExitStack() as stack:
        hosts = {n: stack.enter_context(party_at(ends[n], noise="seeded")) for n in names}
        carrier = stack.enter_context(
            over_files(office.seals, hosts, ends["north"] / ".." / "spool")
        )
        carrier._seconds = seconds
        return execute(office.study, carrier=office.carrier(carrier), noise="seeded")


def clock(status):
    """When a status says that something ended, as it is printed on the same day."""
    return datetime.fromisoformat(status.ended).astimezone().strftime("%H:%M:%S")


def lines(folder):
    return {one.name: one for one in status_of(folder).parties}


def test_before_it_begins(ends):
    found = status_of(ends["coordinator"])
    assert (found.state, found.questions, found.at_most) == ("not begun", 0, 4)
    assert found.left is None
    found = status_of(ends["north"])
    assert (found.state, found.answered, found.at_most) == ("never started", 0, 4)
    assert (found.party, found.epsilon, found.allowed, found.quiet) == ("north", 0.0, 1.0, None)
    assert (found.received, found.sent, found.left) == (0, 0, None)


def test_a_party_that_is_late_is_named_and_the_run_continues(ends):
    with pytest.raises(RosterError, match="party 'south' did not answer"):
        run(ends, "north", seconds=1.0)
    found = status_of(ends["coordinator"])
    assert found.state == "ended by RosterError"
    assert (found.stage, found.question, found.step) == ("bins", "sum/send_key", 0)
    by_name = lines(ends["coordinator"])
    assert by_name["south"].waited > 0.9
    assert by_name["south"].messages == 0
    assert (by_name["north"].waited, by_name["north"].messages) == (None, 1)
    run(ends, "north", "south")
    assert status_of(ends["coordinator"]).state == FINISHED


def test_a_refusal_is_shown_when_it_arrives_and_waits_for_nobody(ends, capsys):
    study = ends["north"] / "study.toml"
    study.write_text(study.read_text().replace("epsilon = 1", "epsilon = 0.5"))
    began = time.monotonic()
    with pytest.raises(StudyError, match="party 'north' has another study than the coordinator"):
        run(ends, "north", seconds=40.0)  # south is not there
    assert time.monotonic() - began < 30.0
    by_name = lines(ends["coordinator"])
    assert "budget.epsilon = 0.5, and there 1.0" in by_name["north"].refused
    assert by_name["south"].refused == ""
    assert by_name["south"].waited is not None
    assert main(["status", str(ends["coordinator"])]) == 0
    assert "budget.epsilon = 0.5" in "".join(capsys.readouterr().out.split("\n")).replace("  ", "")


def test_a_finished_study_has_the_numbers_of_its_summary(ends, capsys):
    run(ends, "north", "south")
    summary, found = open_run(ends["coordinator"] / "run"), status_of(ends["coordinator"])
    assert (found.state, found.questions, found.left) == (FINISHED, summary.rounds, 0.0)
    assert found.epsilon == summary.epsilon
    for one in summary.parties:
        line = lines(ends["coordinator"])[one.name]
        assert (line.messages, line.bytes_sent) == (one.messages, one.bytes_sent)
        assert (line.bytes_received, line.payments) == (one.bytes_received, one.releases)
        party = status_of(ends[one.name])
        assert (party.answered, party.releases) == (one.messages, one.releases)
        assert party.epsilon == one.epsilon
        assert (party.received, party.sent) == (one.bytes_received, one.bytes_sent)
        assert (party.answered, party.left) == (party.at_most, 0.0)
        assert (party.state, party.why) == (FINISHED, "")
        assert 0 <= time.time() - datetime.fromisoformat(party.ended).timestamp() < 600
        assert party.stored > 1000
        assert 0 <= party.quiet < 600
    for name, end in ends.items():
        assert main(["status", str(end)]) == 0
        shown = capsys.readouterr().out
        assert ("small at the coordinator" in shown) == (name == "coordinator")
        assert (f"at party {name}: finished at {clock(party)}" in shown) != (name == "coordinator")
        assert main(["status", str(end), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["study"] == "small"


def test_a_run_in_one_process_has_the_numbers_of_its_summary_too(folder):
    folder.call("run", "study.toml")
    summary, found = open_run(folder.path / "run"), status_of(folder.path)
    assert (found.state, found.questions, found.left) == (FINISHED, summary.rounds, 0.0)
    assert found.seconds == pytest.approx(sum(summary.seconds.values()), abs=1e-3)
    for one, line in zip(summary.parties, found.parties, strict=True):
        assert (one.name, one.messages) == (line.name, line.messages)
        assert (one.bytes_sent, one.bytes_received) == (line.bytes_sent, line.bytes_received)
        assert line.messages > 0


def test_a_party_that_is_asked_again_has_not_finished(ends, capsys):
    """A coordinator that lost its result asks all again; nothing is paid for twice."""
    run(ends, "north", "south")
    before = status_of(ends["north"])
    shutil.rmtree(ends["coordinator"] / "run")
    made = exchanges_in(ends["north"] / "nonces")
    assert [one.kind for one in made] == [ANSWER] * (len(made) - 1) + [LAST]
    with pytest.raises(RosterError, match="party 'south' did not answer"):
        run(ends, "north", seconds=1.0)
    found = status_of(ends["north"])
    assert (found.state, found.running, found.releases) == ("not running", False, before.releases)
    with Running(ends["north"], "this party"):
        assert status_of(ends["north"]).state == "answering"
    asked_again = len(exchanges_in(ends["north"] / "nonces")) - found.at_most
    assert found.repeated == asked_again > 0
    assert main(["status", str(ends["north"])]) == 0
    said = f"{found.at_most} questions answered, {asked_again} of them asked again"
    assert said in capsys.readouterr().out
    run(ends, "north", "south")
    again = status_of(ends["north"])
    assert (again.state, again.releases) == (FINISHED, before.releases)
    assert again.ended >= before.ended


def test_a_party_that_refused_a_question_says_when(ends, capsys):
    study = ends["north"] / "study.toml"
    study.write_text(study.read_text().replace("epsilon = 1", "epsilon = 0.5"))
    with pytest.raises(StudyError, match="party 'north' has another study than the coordinator"):
        run(ends, "north", seconds=40.0)
    found = status_of(ends["north"])
    assert (found.state, found.left) == ("refused a question", None)
    assert 0 <= time.time() - datetime.fromisoformat(found.ended).timestamp() < 600
    assert [one.kind for one in exchanges_in(ends["north"] / "nonces")] == [REFUSAL]
    assert main(["status", str(ends["north"])]) == 0
    assert f"refused a question at {clock(found)}: its terminal" in capsys.readouterr().out


def test_a_party_whose_answers_were_deleted_is_not_told_to_start(ends, capsys):
    run(ends, "north", "south")
    north = ends["north"]
    shutil.rmtree(north / "store")
    (north / "nonces").unlink()
    (north / PRESENCE).unlink(missing_ok=True)
    status = status_of(north)
    assert (status.state, status.ended, status.running) == ("not running", "", False)
    assert main(["status", str(north)]) == 0
    shown = capsys.readouterr().out
    assert "not running here (its answers were deleted, so it cannot continue)" in shown


def test_a_party_that_is_started_again_says_how_far_it_is(ends):
    north = ends["north"]
    assert _past_line(north, "small") == ""
    noted = Nonces(north / "nonces")
    noted.add(Exchange(bytes(32), 500, 700, 1e9))
    assert _past_line(north, "small") == "study 'small' continues here: 1 question answered so far"
    noted.add(Exchange(bytes(31) + b"1", 600, 900, 1e9 + 7))
    assert "2 questions answered so far" in _past_line(north, "small")


def test_a_party_that_hears_of_the_result_after_it_was_asked_again_has_finished(ends, capsys):
    """A coordinator that is started again asks only what it has no answer to, and then parts."""
    north = ends["north"]
    noted = Nonces(north / "nonces")
    for number, kind in enumerate((ANSWER, LAST, ANSWER)):
        noted.add(Exchange(bytes([number]) * 32, 500, 700, 1e9 + number, kind=kind))
    assert status_of(north).state == "not running"
    noted.add(Exchange(bytes([9]) * 32, 500, 700, 1e9 + 9, kind=PARTING))
    found = status_of(north)
    assert (found.state, found.why, found.left) == (FINISHED, "", 0.0)
    assert datetime.fromisoformat(found.ended).timestamp() == 1e9 + 1
    assert main(["status", str(north)]) == 0
    shown = capsys.readouterr().out
    assert "at party north: finished at " in shown
    assert "start it with" not in shown
    # With its day, as a party may be started again weeks later.
    assert "study 'small' has finished here (2001-09-09 " in _past_line(north, "small")


def test_time_that_is_left_at_a_party_follows_from_its_pace(ends, capsys):
    """What it noted outlives it; a record that was cut short counts for nothing."""
    noted = Nonces(ends["north"] / "nonces")
    noted.add(Exchange(bytes(32), 500, 700, 1e9))
    assert status_of(ends["north"]).left is None
    noted.add(Exchange(bytes(31) + b"1", 600, 900, 1e9 + 7, 2.5, 0.125))
    with (ends["north"] / "nonces").open("ab") as file:
        file.write(bytes(50))
    assert status_of(ends["north"]).left is None
    with Running(ends["north"], "this party"):
        found = status_of(ends["north"])
        assert (found.answered, found.received, found.sent) == (2, 1100, 1600)
        waiting = "waiting for the coordinator"
        assert (found.computing, found.sealing, found.state) == (2.5, 0.125, waiting)
        assert found.left == pytest.approx(14.0)  # two of four questions at 7 s
        assert main(["status", str(ends["north"])]) == 0
    shown = capsys.readouterr().out
    assert "running, waits for the coordinator: nothing asked for" in shown
    assert "1.1 kB received and 1.6 kB sent" in shown
    assert "2.5 s of its own computing and 125 ms of sealing, opening and signing" in shown
    assert "questions still take at most 14.0 s at this pace" in shown


def test_a_party_says_what_keeps_it_from_taking_part(ends):
    file = ends["north"] / "policy.toml"
    file.write_text('[studies]\napproval = "by hand"\n')
    assert status_of(ends["north"]).state == "not approved"
    file.write_text("[budget]\nepsilon_per_study = 0.1\n")
    found = status_of(ends["north"])
    assert found.state == "refused by the policy"
    assert "epsilon_per_study = 0.1" in found.why


def test_a_schema_that_cannot_be_read_is_not_said_to_be_refused_by_the_policy(ends):
    (ends["north"] / "schema.json").write_text("{")
    with pytest.raises(InputError, match=r"schema\.json"):
        status_of(ends["north"])


def test_stages_add_up_and_a_new_process_starts_anew(tmp_path):
    first = StatusFile(tmp_path / STATUS, "r-bins")
    first.asked(0, "a/b", "north")
    first.asked(0, "a/b", "south")
    first.answered("north", 10, 20)
    found = read_status(tmp_path / STATUS)
    assert (found.questions, found.step, list(found.asked)) == (1, 0, ["north", "south"])
    assert list(found.answered) == ["north"]
    second = StatusFile(tmp_path / STATUS, "r")
    second.asked(0, "c/d", "north")
    second.answered("north", 1, 2)
    found = read_status(tmp_path / STATUS)
    assert (found.run, found.questions, found.process) == ("r", 2, os.getpid())
    assert (found.traffic["north"].messages, found.traffic["north"].bytes_from_party) == (2, 22)
    second.end(FINISHED)
    StatusFile(tmp_path / STATUS, "r").asked(0, "a/b", "north")
    assert read_status(tmp_path / STATUS).questions == 1
    (tmp_path / STATUS).write_text("{")
    assert read_status(tmp_path / STATUS) is None


HEAVY = ("jax", "numpy", "polars", "cryptography", "siloweave.core", "siloweave.methods", "rich")
LIGHTLY = f"""
import sys
from siloweave.app.cli import main
code = main(["status", sys.argv[1], "--json"])
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def said_by(folder):
    """What `siloweave status --json` prints in a process of its own, and what it loaded."""
    command = [sys.executable, "-c", LIGHTLY, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), done.stderr.strip()


@pytest.mark.parametrize("name", ["north", "coordinator"])
def test_a_status_of_which_nothing_changed_loads_no_arrays_and_no_methods(ends, name):
    """And says the same as one that computes all of it."""
    run(ends, "north", "south")
    facts = ends[name] / FACTS
    fresh, _ = said_by(ends[name])
    assert facts.stat().st_mode & 0o777 == 0o600
    again, loaded = said_by(ends[name])
    assert loaded == "[]"
    for one in (fresh, again):
        one.pop("quiet", None)
    assert again == fresh
    if name == "north":
        (ends[name] / "policy.toml").write_text("[budget]\nepsilon_per_study = 0.1\n")
        changed, loaded = said_by(ends[name])
        assert changed["state"] == "refused by the policy"
        assert "siloweave.methods" in loaded


@pytest.mark.parametrize("damaged", [b"", b"{", b"\x93\x01"])
def test_facts_that_were_damaged_are_computed_again(ends, damaged):
    before = status_of(ends["north"])
    (ends["north"] / FACTS).write_bytes(damaged)
    assert known_status(ends["north"]) is None
    assert status_of(ends["north"]) == before
    assert known_status(ends["north"]) == before


def test_a_coordinator_that_was_killed_is_seen(ends):
    path = ends["coordinator"] / "run" / STATUS
    code = (
        "from pathlib import Path; from siloweave.federation.course import StatusFile;"
        f"StatusFile(Path({str(path)!r}), 'small-x').asked(3, 'sum/count', 'north')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert status_of(ends["coordinator"]).state == "stopped"
    StatusFile(path, "small-x").asked(0, "sum/count", "north")
    assert status_of(ends["coordinator"]).state == "running"


def test_a_coordinator_that_was_killed_after_the_last_answer_is_not_finishing(ends):
    coordinator = ends["coordinator"]
    path = coordinator / "run" / STATUS
    with Running(coordinator, "this coordinator"):
        StatusFile(path, "small-x").end(FINISHED)
        assert status_of(coordinator).state == "finishing"
    status = status_of(coordinator)
    assert status.state == "stopped"
    assert status.why.startswith("start it with siloweave coordinator")
    assert status.ended


def test_the_log_has_steps_names_and_sizes(ends):
    log_into(ends["north"])
    run(ends, "north", "south")
    text = (ends["north"] / LOG).read_text()
    assert "asked north sum/count" in text
    assert "a question of" in text
    assert (ends["north"] / LOG).stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_written_says_so_once_and_stops_nothing(tmp_path, capsys):
    log, handler = logging.getLogger("siloweave"), log_into(tmp_path)
    handler.close()
    handler.baseFilename, named = "/dev/full", handler.baseFilename
    handler.stream = None  # which the next record opens
    log.info("one")
    log.info("two")
    said = capsys.readouterr().err
    assert named == str(tmp_path / LOG)
    assert said == "/dev/full: nothing more is logged there (No space left on device)\n"


def test_a_log_is_put_aside_when_it_is_large(tmp_path, monkeypatch):
    monkeypatch.setattr("siloweave.app.status.LOG_BYTES", 2000)
    log, _ = logging.getLogger("siloweave"), log_into(tmp_path)
    for number in range(200):
        log.info("line %d of many", number)
    logs = sorted(one.name for one in tmp_path.iterdir())
    assert logs == [LOG, f"{LOG}.1", f"{LOG}.2", f"{LOG}.3"]
    for name in logs:
        assert (tmp_path / name).stat().st_size <= 2000
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert "line 199 of many" in (tmp_path / LOG).read_text()


def test_what_one_study_logs_is_in_no_log_of_another(tmp_path):
    log, folders = logging.getLogger("siloweave"), [tmp_path / "flu", tmp_path / "stroke"]
    for folder in folders:
        folder.mkdir()
        log_into(folder)
    with logging_for(folders[0]):
        log.info("of flu")
    log.info("of both")
    texts = [(folder / LOG).read_text() for folder in folders]
    assert [text.count("of flu") for text in texts] == [1, 0]
    assert [text.count("of both") for text in texts] == [1, 1]


def test_what_a_coordinator_sends_adds_no_line_to_the_log_of_a_party(ends, capsys):
    run_name = "x\n2026-01-01 00:00:00,000 INFO approved \x1b[2J"
    question = messages.encode(Envelope(run_name, 0, "coordinator", "north", b""))
    log_into(ends["north"])
    with party_at(ends["north"]) as (host, _), pytest.raises(WireError):
        host.reply(Opened(FRAME, question, bytes(32)))
    (line,) = (ends["north"] / LOG).read_text().splitlines()
    assert r"run x\n2026-01-01" in line
    assert "\x1b" not in line + capsys.readouterr().err
