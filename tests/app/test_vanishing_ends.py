"""Ends in processes of their own are killed, or lose their link: a study ends all the same."""

import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import pytest

from tests.app.processes import Ends, below, is_root, lives, over_network, provisioned, small, until
from tests.app.studies import STUDIES, here, silofuse, two_round
from tests.federation.engines import free_port

METHOD = 3
"""The question of TwoRound that follows those by which columns are cut."""
engine = pytest.mark.engine
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="POSIX")]


def needs_flower():
    pytest.importorskip("flwr", reason="needs the flower extra: make engine")


@engine
@pytest.mark.parametrize("victim", ["party", "coordinator"])
@pytest.mark.parametrize("study", [two_round, silofuse])
def test_an_end_that_is_killed_at_every_question_changes_nothing(study, victim, folder, capsys):
    """Each is started again at once; the engine's processes end with it, and come back."""
    needs_flower()
    questions = study(folder)
    made, began, hurt = provisioned(folder, "127.0.0.1"), time.monotonic(), []
    with Ends(folder.path, made, over_network(free_port())) as ends:
        ends.start_all()
        victim = "south" if victim == "party" else victim

        def killed(number):
            ends.kill(victim)
            ends.check_accounts()
            ends.start(victim)
            hurt.append(number)

        assert ends.ended(killed) == 0, ends.said("coordinator")
        assert len(hurt) >= questions
        assert ends.rows() == here(folder)
        ends.check_accounts()
        for i, name in enumerate(ends.parties):
            copy = made["coordinator"] / "run" / "parties" / f"{i:04d}" / "ledger.jsonl"
            assert copy.read_bytes() == (made[name] / "ledger.jsonl").read_bytes()
    with capsys.disabled():
        print(f"\n{victim} killed at {len(hurt)} questions: {time.monotonic() - began:.0f} s")


@engine
def test_a_party_that_never_returns_ends_the_study_at_its_deadline_and_nothing_stays(folder):
    needs_flower()
    small(folder)
    made, port = provisioned(folder, "127.0.0.1"), free_port()
    with Ends(folder.path, made, over_network(port), wait=40) as ends:
        ends.start_all()
        started = []

        def gone(number):
            if number == METHOD:
                started.extend(below(ends.running["coordinator"].pid))
                ends.kill("south")

        assert ends.ended(gone) == 2
        assert "party 'south' did not answer within 40 s" in ends.said("coordinator")
        assert len(started) >= 2
        until(lambda: not any(map(lives, started)), 60)
        party = below(ends.running["north"].pid) | {ends.running["north"].pid}
        ends.stop("north", signal.SIGTERM)  # it waits for the coordinator, till then
        until(lambda: not any(map(lives, party)), 60)
        ends.check_accounts()
    assert not (made["coordinator"] / "run" / "run.json").exists()


@pytest.mark.parametrize("way", ["files", pytest.param("engine", marks=engine)])
def test_a_study_is_completed_without_a_party_that_does_not_return_in_time(way, folder):
    if way == "engine":
        needs_flower()
    small(folder, ("north", "south", "east", "west"), dropouts=1)
    made = provisioned(folder, *(["127.0.0.1"] if way == "engine" else []))
    spool = ["--spool", str(folder.path / "spool")]
    travel = over_network(free_port()) if way == "engine" else lambda name: spool
    with Ends(folder.path, made, travel, wait=60) as ends:
        ends.start_all()

        def gone(number):
            if number == METHOD:
                ends.kill("west")

        assert ends.ended(gone) == 0, ends.said("coordinator")
        assert "Vanished on the way: west" in ends.said("coordinator")
        summary = ends.summary()
        assert summary["vanished"] == ["west"]
        assert [one["name"] for one in summary["parties"]] == ["north", "south", "east"]
        assert summary["epsilon"] == summary["epsilon_allowed"]  # what west spent is not known
        assert len(ends.rows().split()) > 2
        ends.check_accounts()


# Networks of their own


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


NAMES = ("coordinator", "north", "south")


@contextmanager
def networks():
    """A network namespace for each end, of which parties are linked to the coordinator alone."""
    if not is_root() or shutil.which("ip") is None or ip("netns", "add", "sw-trial").returncode:
        pytest.skip("network namespaces cannot be made here: that needs root, and iproute2")
    ip("netns", "del", "sw-trial")
    places = {name: f"sw-{name}" for name in NAMES}
    with ExitStack() as stack:
        for place in places.values():
            assert not ip("netns", "add", place).returncode
            stack.callback(ip, "netns", "del", place)
            ip("-n", place, "link", "set", "lo", "up")
        for i, name in enumerate(NAMES[1:], start=1):
            ends = ((places["coordinator"], f"to-{name}", 1), (places[name], "out", 2))
            pair = [f"{link} netns {place}".split() for place, link, _ in ends]
            made = ip("link", "add", *pair[0], "type", "veth", "peer", "name", *pair[1])
            assert not made.returncode, made.stderr
            for place, link, last in ends:
                ip("-n", place, "address", "add", f"10.77.{i}.{last}/24", "dev", link)
                ip("-n", place, "link", "set", link, "up")
        yield places


def listening(place):
    found = ip("netns", "exec", place, "ss", "-ltnH")
    assert not found.returncode, found.stderr
    return found.stdout.split("\n")[:-1]


@engine
@pytest.mark.parametrize("study", STUDIES)
def test_three_networks_of_which_the_parties_connect_outwards_only(study, folder, capsys):
    """And whose links are cut for half a minute in the middle of it."""
    needs_flower()
    study(folder)
    addresses = {"north": "10.77.1.1", "south": "10.77.2.1"}
    made = provisioned(folder, "127.0.0.1", *addresses.values())
    began, cuts = time.monotonic(), []
    with networks() as places:
        within = {name: ["ip", "netns", "exec", place] for name, place in places.items()}

        def way(name):
            return ["--superlink", f"{addresses.get(name, '0.0.0.0')}:9092"]

        with Ends(folder.path, made, way, within=within) as ends:
            ends.start_all()

            def cut(number):
                for name in addresses:
                    assert listening(places[name]) == []
                if number == METHOD:
                    at = ends.step()
                    assert ip("-n", places["south"], "link", "set", "out", "down").returncode == 0
                    cuts.append(time.monotonic())
                    time.sleep(30)
                    assert ends.running["coordinator"].poll() is None
                    assert ends.step() == at
                    assert ip("-n", places["south"], "link", "set", "out", "up").returncode == 0

            assert ends.ended(cut) == 0, ends.said("coordinator")
            assert ends.rows() == here(folder)
            ends.check_accounts()
    with capsys.disabled():
        whole, after = time.monotonic() - began, time.monotonic() - cuts[0] - 30
        what = f"\n{study.__name__}, three networks: {whole:.0f} s"
        print(f"{what}, {after:.0f} s of them after the link was back")
