"""A party that does not take part: both ends are told so at once, and end with exit code 2."""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from siloweave.app.ends import public_key_in
from siloweave.app.network import party_in, provision
from siloweave.app.status_facts import status_of
from siloweave.privacy.ledger import Ledger, fingerprint
from tests.app.processes import Ends, first, over_network, small, told, until
from tests.federation.engines import free_port

OVER = 3
"""The exit code of both ends."""
ROWS = "age,sex,job\n4711,f,x\n41,f,x\n"


def replaced(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def forbidden(end, rows):
    replaced(end / "policy.toml", "smallest_roster = 1", "smallest_roster = 7")


def misfit(end, rows):
    rows.write_text(ROWS)


def lost(end, rows):
    with party_in(end, rows, noise="seeded"):
        pass
    (end / "ledger.jsonl").unlink()


def other(end, rows):
    replaced(end / "study.toml", "epsilon = 1", "epsilon = 0.5")


def provisioned_anew(end, whose):
    """Provision again with a new key for a party; what north had before, its key included."""
    names = ("roster.json", "party.key", "account.jsonl")
    before = {name: (end / name).read_bytes() for name in names}
    for name in names[1:]:
        (end.parent / whose / name).unlink()
    provision(end.parent.parent, end.parent, trial=True)
    return before


def outdated(end, rows):
    (end / "roster.json").write_bytes(provisioned_anew(end, "south")["roster.json"])


def aged(end, rows):
    """It runs an earlier version."""


EARLIER = "import siloweave; siloweave.__version__ = '0.0.1'"
FIXED = "party 'north' does not take part: its {} study. "
REASONS = {
    "policy": (forbidden, FIXED.format("policy does not allow this"), "smallest_roster = 7: it"),
    "rows": (misfit, FIXED.format("rows do not fit this"), "'age': 1 row is outside"),
    "ledger": (lost, FIXED.format("ledger does not allow this"), "ledger.jsonl: is gone"),
    "study": (other, "party 'north' has another study than the coordinator: budget.epsilon", ""),
    "version": (aged, "party 'north' has another study than the coordinator: siloweave = ", ""),
    "roster": (outdated, "party 'north' has another roster than the coordinator: ", ""),
}
SLOW = {"ledger", "study", "roster", "version"}
"""Reasons that are tried among the slow tests: each takes three processes."""
CASES = [pytest.param(why, marks=[pytest.mark.slow] * (why in SLOW)) for why in REASONS]
WAYS = ["files", pytest.param("network", marks=pytest.mark.engine)]
SLOW_ENGINE = [pytest.mark.slow, pytest.mark.engine]
SLOW_FILES = pytest.param("files", marks=pytest.mark.slow)
"""There the coordinator waits for seconds for a party that does not answer."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("why", CASES)
def test_a_party_that_declines_ends_the_study_at_both_ends_at_once(folder, why, way):
    small(folder)
    if why == "rows":
        folder.refuse_misfits()
    network = way == "network"
    addresses = ["127.0.0.1"] if network else []
    made = provision(folder.path, folder.path / "ends", trial=True, addresses=addresses)
    spoil, both, here = REASONS[why]
    spoil(made["north"], folder.path / "north.csv")
    files = lambda name: ["--spool", str(folder.path / "spool")]  # noqa: E731
    way = over_network(free_port()) if network else files
    within = {"north": first(folder, EARLIER)} if spoil is aged else {}
    with Ends(folder.path, made, way, within=within) as ends:
        for name in ("north", "south"):
            ends.start(name)
        if here:  # its owner reads why before anyone asks
            until(lambda: here in told(ends.said("north")))
            assert ends.running["north"].poll() is None
        ends.start("coordinator")
        began = time.monotonic()
        assert ends.ended() == OVER
        assert ends.over("north") == OVER
        assert time.monotonic() - began < ends.wait / 2
        seen = told(ends.said("coordinator"))
        assert both in seen
        assert both in told(ends.said("north"))
        for secret in ("4711", "1 row", "= 7", str(made["north"])):
            assert secret not in seen
        assert ends.running["south"].poll() is None  # it waits for the study to go on
    if here:
        log = (made["north"] / "log.txt").read_text()
        assert "this party takes no part: " in log
        assert here in log
    found = status_of(made["coordinator"])
    assert found.state == "ended by StudyError"
    assert both in {one.name: one for one in found.parties}["north"].refused + " "
    assert not (made["coordinator"] / "run" / "run.json").exists()
    assert not list(Path(made["north"]).glob("store/*.reply"))


@pytest.mark.parametrize("way", WAYS)
def test_a_trial_says_why_a_party_declines_and_its_coordinator_does(folder, way):
    small(folder)
    folder.refuse_misfits()
    (folder.path / "north.csv").write_text(ROWS)
    out = folder.path / "poc"
    words = ["poc", "--out", out, "--wait", "200", *(["--network"] if way == "network" else [])]
    command = [sys.executable, "-m", "siloweave", *map(str, words)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder.path)
    assert said.returncode == OVER
    assert "'age': 1 row is outside" in told(said.stderr)
    assert REASONS["rows"][1] in told(said.stderr)
    assert status_of(out / "coordinator").state == "ended by StudyError"


def test_a_party_that_nobody_asks_ends_by_itself(folder):
    small(folder)
    made = provision(folder.path, folder.path / "ends", trial=True)
    forbidden(made["north"], None)
    words = "party", "start", made["north"], "--data", "north.csv", "--spool", "spool"
    code, _, said = folder.call(*words, "--wait", "0.2")
    assert code == OVER
    assert "smallest_roster = 7" in told(said)
    assert not (made["north"] / "ledger.jsonl").exists()


@pytest.mark.parametrize("fits", [True, False])
def test_a_study_that_its_owner_has_not_approved_yet_is_no_refusal(folder, fits):
    """The coordinator waits, since the owner may still say yes; nor is it sent whether rows fit."""
    small(folder)
    if not fits:
        (folder.path / "north.csv").write_text(ROWS)
    made = provision(folder.path, folder.path / "ends", trial=True)
    replaced(made["north"] / "policy.toml", 'approval = "auto"', 'approval = "by hand"')
    words = "party", "start", made["north"], "--data", "north.csv", "--spool", "spool"
    code, _, said = folder.call(*words, "--wait", "0.2")
    assert code == OVER
    assert "has not approved" in told(said)
    assert not (folder.path / "spool").exists()


@pytest.mark.parametrize("way", [SLOW_FILES, WAYS[1]])
def test_a_party_whose_key_is_another_than_the_coordinators_roster_has_is_named_at_both_ends(
    folder, way
):
    """Neither end can trust the other, so the coordinator goes on waiting."""
    small(folder)
    network = way == "network"
    addresses = ["127.0.0.1"] if network else []
    made = provision(folder.path, folder.path / "ends", trial=True, addresses=addresses)
    for name, data in provisioned_anew(made["north"], "north").items():
        (made["north"] / name).write_bytes(data)
    files = lambda name: ["--spool", str(folder.path / "spool")]  # noqa: E731
    way = over_network(free_port()) if network else files
    seen = "a frame came to 'coordinator' that 'north' did not sign"
    with Ends(folder.path, made, way, wait=40 if network else 8) as ends:
        ends.start_all()
        assert ends.over("north") == OVER
        assert "'north' has the key" in told(ends.said("north"))
        until(lambda: seen in told(ends.said("coordinator")))
        until(lambda: seen in status_of(made["coordinator"]).parties[0].refused)
        assert ends.running["coordinator"].poll() is None
        assert ends.ended() == OVER
        assert seen in told(ends.said("coordinator")).rpartition("did not answer within")[2]


@pytest.mark.parametrize("way", [SLOW_FILES, pytest.param("network", marks=SLOW_ENGINE)])
def test_a_party_with_another_coordinators_public_key_is_told_and_the_coordinator_names_it(
    folder, way
):
    """It cannot read its roster, so it ends, and nobody can be sent why."""
    small(folder)
    network = way == "network"
    addresses = ["127.0.0.1"] if network else []
    made = provision(folder.path, folder.path / "ends", trial=True, addresses=addresses)
    own = fingerprint(public_key_in(made["north"] / "coordinator.pub"))
    other = provision(folder.path, folder.path / "others", trial=True)["north"] / "coordinator.pub"
    (made["north"] / "coordinator.pub").write_bytes(other.read_bytes())
    files = lambda name: ["--spool", str(folder.path / "spool")]  # noqa: E731
    way = over_network(free_port()) if network else files
    with Ends(folder.path, made, way, wait=40 if network else 5) as ends:
        for name in ends.parties:
            ends.start(name)
        until(lambda: network or "waiting for the first" in ends.said("south"))
        ends.start("coordinator")
        assert ends.over("north") == OVER
        wrong = fingerprint(public_key_in(other))
        assert f"was not signed by the coordinator's key {wrong}" in told(ends.said("north"))
        assert ends.ended() == OVER
        _, late, seen = told(ends.said("coordinator")).rpartition("party 'north' did not answer")
        assert late
        assert f"that the key in its coordinator.pub is {own}, as" in seen
        assert wrong not in seen


@pytest.mark.parametrize("way", [SLOW_FILES, WAYS[1]])
def test_a_party_with_another_coordinators_folder_is_told_and_the_coordinator_names_it(folder, way):
    """Its roster holds, and the questions that come are of nobody it knows."""
    small(folder)
    network = way == "network"
    addresses = ["127.0.0.1"] if network else []
    made = provision(folder.path, folder.path / "ends", trial=True, addresses=addresses)
    shutil.copytree(made["north"], folder.path / "others" / "north")
    other = provision(folder.path, folder.path / "others", trial=True)["north"]
    own = fingerprint(public_key_in(made["north"] / "coordinator.pub"))
    for name in ("coordinator.pub", "roster.json"):
        (made["north"] / name).write_bytes((other / name).read_bytes())
    files = lambda name: ["--spool", str(folder.path / "spool")]  # noqa: E731
    way = over_network(free_port()) if network else files
    with Ends(folder.path, made, way, wait=60 if network else 8) as ends:
        ends.start_all()
        assert ends.ended() == OVER
        seen = told(ends.said("coordinator")).rpartition("party 'north' ")[2]
        why = "refused the frame, for a reason that its own log.txt alone says. See "
        assert seen.startswith(why if network else "did not answer within 8 s")
        assert f"that the key in its coordinator.pub is {own}, as" in seen
        assert "that 'coordinator' did not sign" in told(ends.said("north"))
        assert ends.running["north"].poll() is None  # a stranger may have sent that


@pytest.mark.engine
def test_a_port_that_something_else_uses_ends_both_ends(folder):
    """Which is no coordinator, so the party finds nobody there."""
    small(folder)
    made = provision(folder.path, folder.path / "ends", trial=True, addresses=["127.0.0.1"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Ends(folder.path, made, over_network(port), wait=3) as ends:
            for name in ("coordinator", "north"):
                ends.start(name)
                assert ends.over(name) == OVER
        where = f"127.0.0.1:{port}"
        assert f"address: {where} cannot be listened at (Address" in told(ends.said("coordinator"))
        assert f"address={where}: nobody answered for 3 s" in told(ends.said("north"))
    assert not (made["coordinator"] / "run" / "run.json").exists()
    assert Ledger.read(made["north"] / "ledger.jsonl").entries == ()
