"""Whole fits over a real network engine: the same as in one process, also where it is killed."""

import os
import signal
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import msgspec
import numpy as np
import pytest

from siloweave.federation import engine, flower
from tests.federation.engines import SuperLink, cable, children, free_port
from tests.synthesizers.networked import fit_over_frames
from tests.synthesizers.test_network import check_same
from tests.synthesizers.test_network_faults import DRAWN, holds, planted_case
from tests.synthesizers.test_visibility import CASES

pytestmark = pytest.mark.engine
pytest.importorskip("flwr", reason="needs the flower extra: make engine")


class Counted:
    """An engine whose every question is counted and timed, and before some of which it is hurt."""

    def __init__(self, link, hurts):
        self.link, self.hurts, self.asked, self.seconds = link, hurts, 0, []
        self._lock = threading.Lock()

    def send(self, name, frame, facts=b""):
        with self._lock:
            hurt = self.hurts.get(self.asked, lambda link: None)
            self.asked += 1
        hurt(self.link)
        began = time.monotonic()
        answer = self.link.send(name, frame, facts)
        self.seconds.append(time.monotonic() - began)
        return answer


@contextmanager
def over_engine(
    seals,
    hosts,
    folder,
    *,
    hurts=None,
    counted=None,
    port=None,
    seconds=120.0,
    joined=None,
    **named,
):
    """A SuperLink, or one that is joined, and a node for each party, which answers in this process.

    All nodes connect over one line, which is cut while the link's `cut` is set.
    """
    homes = {name: folder / name for name in hosts}
    for home in (folder / "office", *homes.values()):
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
    authority = joined and joined.folder / "ca.crt"
    engine.provision(folder / "office", homes, [], authority=authority)
    to = port or (joined.port if joined else free_port())
    with ExitStack() as stack:
        office, address = folder / "office", f"127.0.0.1:{to}"
        made = engine.Engine(
            office, seals, address, seconds=seconds, joined=joined is not None, **named
        )
        link = stack.enter_context(made)
        link.cut, line = stack.enter_context(cable(to))
        through = f"127.0.0.1:{stack.enter_context(recording(to)) if port else line}"
        for name, (host, own) in hosts.items():
            party = engine.answering(homes[name], own, host.reply, through, **named)
            stack.enter_context(stack.enter_context(party))
        carrier = Counted(link, hurts or {})
        yield carrier
        if counted is not None:
            counted.append(carrier)


@pytest.mark.parametrize(
    "name", ["two_round", "flaim", "silofuse", "fed_tgan", "secure_two_round", "vertigan"]
)
def test_a_run_over_the_engine_is_that_of_one_process(name, tmp_path, capsys):
    counted, began = [], time.monotonic()
    check_same(name, tmp_path, over=partial(over_engine, counted=counted))
    (carrier,) = counted
    with capsys.disabled():
        print(
            f"\n{name}: {carrier.asked} questions, {np.median(carrier.seconds):.2f} s each, "
            f"{time.monotonic() - began:.0f} s with the start and the run in one process"
        )


def killed(which):
    def kill(link):
        os.kill(link.processes[which].number, signal.SIGKILL)

    return kill


def nodes_killed(link):
    for one in children(os.getpid()) - {one.number for one in link.processes}:
        os.kill(one, signal.SIGKILL)


@pytest.mark.parametrize("name", ["two_round", "silofuse"])
def test_an_engine_that_is_killed_again_and_again_changes_nothing(name, tmp_path):
    hurts = {1: killed(0), 3: killed(1), 4: nodes_killed, 5: killed(0)}
    counted = []
    check_same(name, tmp_path, over=partial(over_engine, hurts=hurts, counted=counted))
    assert counted[0].asked > max(hurts)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "while it is asked"])
@pytest.mark.parametrize("which", ["superlink", "pairing", "nodes"])
@pytest.mark.parametrize("name", ["two_round", "silofuse"])
def test_a_part_of_the_engine_that_is_killed_at_every_question_changes_nothing(
    name, which, moment, tmp_path, capsys
):
    hurt = {"superlink": killed(0), "pairing": killed(1), "nodes": nodes_killed}[which]

    def later(link):
        threading.Timer(0.3, hurt, [link]).start()

    counted, began, parties = [], time.monotonic(), len(CASES[name].data(0))
    hurts = dict.fromkeys(range(0, 99, parties), hurt if moment == "before" else later)
    check_same(name, tmp_path, over=partial(over_engine, hurts=hurts, counted=counted))
    with capsys.disabled():
        times = -(-counted[0].asked // parties)
        print(f"\n{name}, {which} killed {times} times: {time.monotonic() - began:.0f} s")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [10, 60])
@pytest.mark.parametrize("name", ["two_round", "silofuse"])
def test_a_link_that_is_cut_at_every_question_changes_nothing(name, seconds, tmp_path, capsys):
    def cut(link):
        link.cut.set()
        threading.Timer(seconds, link.cut.clear).start()

    counted, began, parties = [], time.monotonic(), len(CASES[name].data(0))
    hurts = dict.fromkeys(range(0, 99, parties), cut)
    over = partial(over_engine, hurts=hurts, counted=counted, seconds=300.0)
    check_same(name, tmp_path, over=over)
    assert max(counted[0].seconds) > seconds / 2
    with capsys.disabled():
        times = -(-counted[0].asked // parties)
        print(f"\n{name}, cut {times} times: {time.monotonic() - began:.0f} s")


# A SuperLink that others run


@pytest.mark.parametrize("name", ["two_round", "silofuse"])
def test_a_run_over_a_superlink_of_others_is_that_of_one_process(name, tmp_path, capsys):
    counted, began = [], time.monotonic()
    with SuperLink(tmp_path / "others") as joined:
        check_same(name, tmp_path, over=partial(over_engine, joined=joined, counted=counted))
    (carrier,) = counted
    with capsys.disabled():
        print(
            f"\n{name}: {carrier.asked} questions, {np.median(carrier.seconds):.2f} s each, "
            f"{time.monotonic() - began:.0f} s"
        )


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "while it is asked"])
@pytest.mark.parametrize("name", ["two_round", "silofuse"])
def test_a_superlink_of_others_that_is_killed_at_every_question_changes_nothing(
    name, moment, tmp_path, capsys
):
    """It is started again on its state, as its operator would."""
    counted, began, parties = [], time.monotonic(), len(CASES[name].data(0))
    with SuperLink(tmp_path / "others") as joined:

        def later(link):
            threading.Timer(0.3, joined.kill_and_start).start()

        hurts = dict.fromkeys(
            range(0, 99, parties), joined.kill_and_start if moment == "before" else later
        )
        over = partial(over_engine, joined=joined, hurts=hurts, counted=counted, seconds=300.0)
        check_same(name, tmp_path, over=over)
    assert joined.kills == -(-counted[0].asked // parties)
    with capsys.disabled():
        print(f"\n{name}, killed {joined.kills} times: {time.monotonic() - began:.0f} s")


SEEN = []


@contextmanager
def recording(to):
    """A port that carries to another, and remembers all that it carries."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def carry(one, other):
            with suppress(OSError):
                while data := one.recv(65536):
                    SEEN.append(data)
                    other.sendall(data)
            for end in (one, other):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def take():
            with suppress(OSError), ExitStack() as stack:
                while True:
                    one = stack.enter_context(listening.accept()[0])
                    other = socket.create_connection(("127.0.0.1", to))
                    stack.enter_context(other)
                    for pair in ((one, other), (other, one)):
                        threading.Thread(target=carry, args=pair, daemon=True).start()

        threading.Thread(target=take, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("silofuse", "secure_two_round")]


@pytest.mark.parametrize("method", ["two_round", "flaim", *SLOW])
def test_the_engines_whole_view_has_nothing_of_the_rows(method, tmp_path, monkeypatch):
    """Without TLS, so that what a hostile SuperLink sees is what is recorded."""
    over = partial(over_engine, port=free_port(), plaintext=True)
    names, numbers = planted(method, tmp_path, monkeypatch, over)
    homes = [one for one in tmp_path.rglob(engine.HOME) if one.is_dir()]
    assert len(homes) == 3
    files = [one for home in homes for one in home.rglob("*") if one.is_file()]
    assert any(one.name == "superlink.log" for one in files)
    seen = b"\n".join([*SEEN, *(one.read_bytes() for one in files)])
    assert len(seen) > 50_000
    assert b"/v1/fleet/push-object" in seen  # this is the traffic, readable but for the frames
    check_unreadable(seen, names, numbers)


@pytest.mark.parametrize("method", ["two_round", pytest.param("flaim", marks=pytest.mark.slow)])
def test_a_superlink_of_others_has_nothing_of_the_rows_on_its_disk(method, tmp_path, monkeypatch):
    """Its database and log are read at every question and answer, since it deletes messages."""
    with SuperLink(tmp_path / "others") as joined:
        over = partial(over_engine, joined=joined)
        disk = []
        found = planted(
            method, tmp_path / "ends", monkeypatch, over, lambda: disk.append(joined.seen())
        )
        files = [one.name for one in joined.folder.iterdir()]
    assert {"state.db", "log"} <= set(files)
    disk.append(joined.seen())
    seen = b"\n".join(disk)
    pieces = [one.frame[at : at + 32] for one in SENT for at in (99, len(one.frame) // 2)]
    there = sum(piece in seen for piece in pieces)
    assert there > len(pieces) / 2, (there, len(pieces))  # frames are there as they were sent
    check_unreadable(seen, *found)


SENT = []


def planted(method, folder, monkeypatch, over, look=lambda: None):
    """A run on rows with canaries, and what they are; `look` is called whenever something moves."""
    case, names, numbers = planted_case(method)
    reported = engine.Engine._reported

    def heard(self, data):
        answer = reported(self, data)
        report = msgspec.msgpack.decode(data, type=flower.Report)
        asked = msgspec.msgpack.decode(answer, type=flower.Orders).questions
        SENT.extend(asked)
        SEEN.extend((data, answer))
        if report.known or report.outcomes or asked:
            look()
        return answer

    monkeypatch.setattr(engine.Engine, "_reported", heard)
    SEEN.clear()
    SENT.clear()
    fit_over_frames(case, folder, over=over, rows=DRAWN)
    office = [one.read_bytes() for one in (folder / "office").rglob("*") if one.is_file()]
    assert office  # all that the coordinator stores, its synthetic rows' columns among it
    assert not [name for name in names if any(name.encode() in one for one in office)]
    assert not holds(b"".join(office), numbers)
    return names, numbers


def check_unreadable(seen, names, numbers):
    for value in (*map(str.encode, names), *(repr(float(x)).encode() for x in numbers)):
        assert value not in seen
    for number in numbers:
        assert np.float64(number).tobytes() not in seen
    for word in (
        b"flaim/",
        b"sum/",
        b"silofuse/",
        b"secure/",
        b"run/close",
    ):  # no message of ours is readable
        assert word not in seen
