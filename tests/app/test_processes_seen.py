"""What `siloweave status` says of processes: that one which is gone is not taken for a busy one."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from siloweave.app.ends import ends_below
from siloweave.app.network import party_in, provision, spelled_keys
from siloweave.app.presence import PRESENCE, Running, look
from siloweave.app.status import CoordinatorStatus, PartyLine, state_words, time_left_words
from siloweave.app.status_facts import status_of
from siloweave.errors import InputError
from siloweave.federation.course import STATUS, StatusFile
from siloweave.federation.exchanges import LAST, Exchange, Nonces
from siloweave.federation.frames import keys_for
from siloweave.privacy.ledger import Identity
from tests.app.processes import Ends, small, told, until


@pytest.fixture
def made(folder):
    small(folder)
    return provision(folder.path, folder.path / "ends", trial=True)


def answered(end, seconds_ago, **facts):
    """Let a party have answered a question so many seconds ago."""
    nonces = Nonces(end / "nonces")
    number = len(nonces.made)
    ended = time.time() - seconds_ago
    nonces.add(Exchange(number.to_bytes(32), 500, 700, ended, **facts))


def shown(folder, end):
    code, out, _ = folder.call("status", end)
    assert code == 0
    return told(out)


KILLED = """
import os, signal, sys
from pathlib import Path
from siloweave.app.presence import Running
Running(Path(sys.argv[1]), "this party").__enter__()
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(end):
    """Let a process run in an end's folder, and be killed there."""
    process = subprocess.run([sys.executable, "-c", KILLED, str(end)], check=False)
    assert process.returncode == -signal.SIGKILL


def test_a_party_that_was_never_started(folder, made):
    north = made["north"]
    assert "at party north: never started" in shown(folder, north)
    policy = (north / "policy.toml").read_text()
    (north / "policy.toml").write_text(policy.replace('"auto"', '"by hand"'))
    _, out, _ = folder.call("party", "plan", north, "--json")
    folder.call("party", "approve", north, json.loads(out)["digest"])
    assert "at party north: approved, never started" in shown(folder, north)


def test_a_party_that_was_killed_is_not_said_to_answer(folder, made):
    north = made["north"]
    killed(north)
    clock = time.strftime("%H:%M", time.localtime(look(north).presence.seen))
    said = shown(folder, north)
    assert f"at party north: not running here (last seen {clock}:" in said
    assert f"start it with siloweave party start {north} ...)" in said
    answered(north, 5.0)
    _, out, _ = folder.call("status", north, "--json")
    status = json.loads(out)
    assert (status["state"], status["running"], status["left"]) == ("not running", False, None)
    assert "time left" not in shown(folder, north)


@pytest.mark.parametrize(
    ("ago", "is_busy", "state"),
    [
        (None, False, "waiting for questions"),
        (5.0, False, "answering"),
        (540.0, True, "answering"),
        (540.0, False, "waiting for the coordinator"),
    ],
)
def test_a_party_that_runs(folder, made, ago, is_busy, state):
    north = made["north"]
    if ago is not None:
        answered(north, ago)
    with Running(north, "this party") as running:
        running.note(is_busy=is_busy)
        status = status_of(north)
        assert (status.state, status.running) == (state, True)
        words = "running, waits for the coordinator: nothing asked for 9 min"
        assert (words in shown(folder, north)) == (state == "waiting for the coordinator")
    assert status_of(north).state == "not running"


def test_a_party_that_takes_no_part_says_so(made):
    with Running(made["north"], "this party") as running:
        running.note(declines=True)
        assert status_of(made["north"]).state == "takes no part"


def test_an_error_that_ended_a_party(folder, made):
    north = made["north"]
    with pytest.raises(InputError), Running(north, "this party"):
        raise InputError("no")
    clock = time.strftime("%H:%M", time.localtime(look(north).presence.ended))
    assert f"at party north: not running: ended at {clock}:" in shown(folder, north)
    assert " with an error " in shown(folder, north)
    assert folder.call("status", north, "--watch")[0] == 2


def test_one_process_at_a_time_runs_in_a_folder(folder, made, monkeypatch):
    monkeypatch.setattr("siloweave.app.presence._STARTING_S", 0.0)
    north = made["north"]
    words = "party", "start", north, "--data", "north.csv", "--spool", "spool", "--wait", "0.2"
    with Running(north, "this party"):
        code, _, said = folder.call(*words)
        assert (code, f"this party already runs (process {os.getpid()})" in told(said)) == (2, True)
        assert look(north).is_running
    assert not look(north).is_running


def test_looking_does_not_keep_a_party_from_starting(made):
    north = made["north"]
    with Running(north, "this party"):
        pass
    for _ in range(20):
        assert not look(north).is_running
        with Running(north, "this party"):
            assert look(north).is_running


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]"])
def test_a_damaged_file_of_a_process_says_nothing(made, damaged):
    (made["north"] / PRESENCE).write_bytes(damaged)
    assert look(made["north"]) is None
    assert status_of(made["north"]).state == "never started"


def test_where_files_cannot_be_locked_the_last_sign_of_life_counts(made, monkeypatch):
    north = made["north"]
    monkeypatch.setattr("siloweave.app.presence.fcntl", None)
    with Running(north, "this party"):
        assert look(north).is_running
        monkeypatch.setattr("siloweave.app.presence._FRESH_S", 0.0)
        assert not look(north).is_running
    assert not look(north).is_running


# A coordinator


def test_a_coordinator_that_was_killed(folder, made):
    office = made["coordinator"]
    StatusFile(office / "run" / STATUS, "small-x").asked(0, "sum/count", "north")
    with Running(office, "this coordinator"):
        assert status_of(office).state == "running"
    # The process that wrote the course down, this one, lives: its number alone would say so.
    killed(office)
    said = shown(folder, office)
    assert "at the coordinator: not running here (last seen " in said
    assert f"start it with siloweave coordinator {office} ...)" in said
    assert "left" not in said
    assert status_of(office).state == "stopped"


def line(name, waited=None, refused=""):
    return PartyLine(name, 0, 0, 0, 0, waited, refused)


def at_coordinator(state, *parties, running=False):
    return CoordinatorStatus(
        "flu", state, "bins", "sum/count", 0, 1, 4, 1.0, 1.0, 1e-5, 9.0, None, parties,
        ended="2020-11-29 06:13:07+00:00", running=running,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "parties", "words"),
    [
        ("ended by StudyError", [line("north"), line("south", 1.0, "no")], "ended: south refused"),
        (
            "ended by RosterError",
            [line("north", 9.0), line("south", 9.0)],
            "ended: north and south did not answer",
        ),
        ("ended by KeyboardInterrupt", [line("north", 9.0)], "stopped by Ctrl-C at 2020-11-29 "),
        ("ended by OSError", [line("north")], "ended with an error (OSError), which its term"),
        ("not begun", [line("north")], "not begun"),
    ],
)
def test_ends_of_a_run_are_told_in_words(state, parties, words):
    assert state_words(at_coordinator(state, *parties)).startswith(words)


def test_time_left_is_told_while_it_is_known():
    late = at_coordinator("running", line("north"), line("south", 99.0), running=True)
    assert time_left_words(late) == "time left: not known, as south has not answered"
    ended = at_coordinator("ended by RosterError", line("north"), line("south", 99.0))
    assert time_left_words(ended) == ""


# Folders that are no end


def refused(folder, *words):
    code, _, said = folder.call(*words)
    assert code == 2
    assert "siloweave init" not in said
    return told(said)


def test_a_study_folder_names_its_ends_and_gets_no_file(folder, made):
    said = refused(folder, "status", ".")
    assert "this folder has the study, and is no end of it. Ends: ends/coordinator (not beg" in said
    assert "ends/north, ends/south" in said
    assert not (folder.path / "status.facts").exists()


def test_a_study_folder_without_ends_gets_no_file_either(folder):
    assert "is no end of it; nor did it run here" in refused(folder, "status", ".")
    assert not (folder.path / "status.facts").exists()


def test_a_folder_of_ends_names_them(folder, made):
    said = refused(folder, "status", "ends")
    assert "ends has the ends coordinator, north and south: name one of them" in said
    assert "`siloweave status ends/coordinator`" in said
    assert [end.name for end in ends_below(folder.path)] == ["coordinator", "north", "south"]
    assert "has the ends" in refused(folder, "coordinator", "ends", "--spool", "spool")


def test_a_party_home_names_its_studies(folder, made):
    home = folder.path / "home"
    home.mkdir()
    (home / "party.key").write_bytes((made["north"] / "party.key").read_bytes())
    assert "has the key, and no study's folder in it" in refused(folder, "party", "plan", "home")
    made["north"].rename(home / "flu")
    said = refused(folder, "party", "plan", "home")
    assert "home has the key; name the study's folder: home/flu" in said


# Words


def test_a_key_that_is_cut_off_is_named_with_its_party(folder, made):
    key = spelled_keys(keys_for("small", Identity.seeded(b"north")))
    words = "provision", "study.toml", "--out", "others", "--keys-made-here", "--key"
    _, _, said = folder.call(*words, f"north={key[:30]}")
    assert "--key north: the word is cut off (30 of 88 characters)" in told(said)
    _, _, said = folder.call(*words, f"north={'?' * 90}")
    assert "--key north: '???" in told(said)


def test_a_finished_study_that_is_started_again_has_nothing_to_do(folder, made):
    north = made["north"]
    with party_in(north, "north.csv"):
        pass
    answered(north, 5.0, kind=LAST)
    words = "party", "start", north, "--data", "north.csv", "--spool", "spool", "--until", "0.01s"
    _, _, said = folder.call(*words)
    assert "study 'small' has finished here (" in told(said)
    assert "It stays only for a coordinator that lost its result" in told(said)


def test_a_trial_over_a_network_asks_for_the_engine_before_it_makes_a_folder(folder, monkeypatch):
    small(folder)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, said = folder.call("poc", "--network", "--out", "poc")
    assert code == 2
    assert told(said).count("pip install '.[flower]'") == 1
    assert "siloweave[flower]" not in said
    assert not (folder.path / "poc").exists()


@pytest.mark.slow
def test_ends_that_are_killed_are_seen_as_such(folder, made):
    files = lambda name: ["--spool", str(folder.path / "spool")]  # noqa: E731
    with Ends(folder.path, made, files) as ends:
        ends.start("north")
        until(lambda: "waiting for the first" in ends.said("north"))
        assert status_of(made["north"]).state == "waiting for questions"
        ends.start("coordinator")
        until(lambda: status_of(made["north"]).answered > 0)
        assert status_of(made["coordinator"]).state == "running"
        ends.kill("north")
        ends.kill("coordinator")
        assert status_of(made["north"]).state == "not running"
        assert status_of(made["coordinator"]).state == "stopped"
