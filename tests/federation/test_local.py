"""Frames over a socket of this machine: limits, permissions, slow and broken senders."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from siloweave.errors import InputError, RosterError, WireError
from siloweave.federation import local


@pytest.fixture
def path(tmp_path):
    return tmp_path / "party.sock"


def head(kind, size):
    return bytes([kind]) + size.to_bytes(8, "big")


def connected(path):
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(10.0)
    end.connect(str(path))
    return end


def closed_by_server(end):
    """Whether the other end closes without an answer."""
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


def still_answers(path):
    return local.ask(path, b"frame", 5.0) == b"FRAME"


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_a_frame_crosses_whole(path, size):
    frame = os.urandom(size)
    with local.Server(path, lambda asked: asked[::-1]):
        assert local.ask(path, frame, 20.0) == frame[::-1]


def test_socket_and_folder_are_for_their_owner_alone(tmp_path):
    path = tmp_path / "new" / "party.sock"
    with local.Server(path, bytes.upper):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not path.exists()


def test_a_folder_that_others_can_enter_is_refused(tmp_path):
    tmp_path.chmod(0o750)
    with pytest.raises(InputError, match=r"others can enter this folder.*chmod 700"):
        local.Server(tmp_path / "party.sock", bytes.upper)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    not hasattr(socket, "SO_PEERCRED") or os.geteuid() != 0,
    reason="only the superuser of a Linux can become somebody else",
)
def test_another_user_is_refused_even_where_the_folder_lets_it_in(path):
    code = f"""
import os, socket
os.setuid(65534)
end = socket.socket(socket.AF_UNIX)
end.settimeout(5)
end.connect({str(path)!r})
end.sendall({head(1, 1) + b"x"!r})
print(end.recv(1))
"""
    # The test's folders are the superuser's alone; somebody else needs a way to the socket.
    above = [one for one in path.parents if one.stat().st_mode & 0o001 == 0]
    modes = [one.stat().st_mode for one in above]
    with local.Server(path, bytes.upper):
        try:
            for one in above:
                one.chmod(0o711)
            path.chmod(0o666)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        finally:
            for one, mode in zip(above, modes, strict=True):
                one.chmod(mode)
        gone = any(f"{kind}Error" in done.stderr for kind in ("ConnectionReset", "BrokenPipe"))
        assert done.stdout.strip() == "b''" or gone
        assert still_answers(path)


PARTY, NODE, OTHER, GROUP = 65534, 65533, 65532, 65533
ASKS = """
import os, sys
from pathlib import Path
from siloweave.federation import local
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[3]))
try:
    print(local.ask(Path(sys.argv[1]), b"frame", 5.0))
except Exception as error:
    print(type(error).__name__)
"""
SHARES = """
import os, sys
from pathlib import Path
from siloweave.federation import local
os.setgroups([]); os.setgid(65534); os.setuid(65534)
local.Server(Path(sys.argv[1]), bytes.upper, node_user=65533).serve()
"""


@pytest.fixture
def shared(tmp_path):
    """A folder as the superuser makes it for a party and a node of two other users."""
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chown(folder, PARTY, GROUP)
    folder.chmod(0o2710)
    above = [one for one in folder.parents if one.stat().st_mode & 0o001 == 0]
    for one in above:
        one.chmod(0o711)
    return folder


@pytest.mark.skipif(
    not hasattr(socket, "SO_PEERCRED") or os.geteuid() != 0,
    reason="only the superuser of a Linux can become somebody else",
)
def test_a_node_of_another_user_is_answered_and_nobody_else(shared):
    """Not another user of its group, who can enter, nor the party's own, nor the superuser."""
    path = shared / "party.sock"
    server = subprocess.Popen([sys.executable, "-c", SHARES, str(path)], stderr=subprocess.PIPE)

    def asked(user, group):
        words = [sys.executable, "-c", ASKS, str(path), str(group), str(user)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        while not path.exists():
            assert server.poll() is None, server.stderr.read()
            time.sleep(0.01)
        time.sleep(0.2)
        facts = path.stat()
        assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (PARTY, GROUP, 0o660)
        assert asked(NODE, GROUP) == "b'FRAME'"
        assert asked(NODE, GROUP) == "b'FRAME'"
        for user, group in ((OTHER, GROUP), (PARTY, PARTY), (OTHER, OTHER), (0, 0)):
            assert asked(user, group) == "RosterError"
        assert asked(NODE, GROUP) == "b'FRAME'"
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="only Linux says who connects")
@pytest.mark.parametrize(
    ("mode", "match"),
    [
        (0o711, "used by nobody else"),
        (0o714, "used by nobody else"),
        (0o730, "written by its owner"),
        (0o700, "the node cannot enter it.*chgrp GROUP .*chmod 2710"),
    ],
)
def test_a_folder_for_a_node_of_another_user_is_for_it_alone(mode, match, tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(InputError, match=match):
        local.Server(folder / "party.sock", bytes.upper, node_user=os.geteuid() + 1)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="only Linux says who connects")
def test_a_folder_with_more_than_the_socket_is_not_shared(tmp_path):
    folder = tmp_path / "shared"
    with pytest.raises(InputError, match="is no folder that the node's user can enter"):
        local.Server(folder / "party.sock", bytes.upper, node_user=os.geteuid() + 1)
    folder.mkdir(mode=0o710)
    (folder / "party.key").touch()
    with pytest.raises(InputError, match=r"has party\.key beside the socket.*of its own"):
        local.Server(folder / "party.sock", bytes.upper, node_user=os.geteuid() + 1)


def test_a_system_that_says_not_who_connects_shares_no_socket(tmp_path, monkeypatch):
    monkeypatch.delattr(socket, "SO_PEERCRED", raising=False)
    tmp_path.chmod(0o710)
    with pytest.raises(InputError, match="only Linux says which user connects"):
        local.Server(tmp_path / "party.sock", bytes.upper, node_user=os.geteuid() + 1)


def test_a_length_over_the_limit_is_refused_before_a_byte_is_read(path):
    with local.Server(path, bytes.upper), connected(path) as end:
        end.sendall(head(1, local.LIMIT + 1))
        assert closed_by_server(end)
        assert still_answers(path)


def test_a_large_length_takes_no_memory(path):
    """The server waits for data that is announced, and holds no room for it."""
    with local.Server(path, bytes.upper):
        before = peak()
        ends = [connected(path) for _ in range(20)]
        for end in ends:
            end.sendall(head(1, local.LIMIT) + b"begun")
        assert still_answers(path)
        assert peak() - before < 50_000_000
        for end in ends:
            end.close()


def peak():
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, head(2, 1) + b"x", head(1, 4) + b"x"]
)
def test_garbage_is_refused_and_the_server_goes_on(path, garbage):
    asked = []
    with local.Server(path, lambda frame: asked.append(frame) or b"FRAME"):
        with connected(path) as end:
            end.sendall(garbage)
            end.shutdown(socket.SHUT_WR)
            assert closed_by_server(end)
        assert asked == []
        assert still_answers(path)


def test_a_sender_of_single_bytes_gains_no_time(path):
    with local.Server(path, bytes.upper, seconds=0.5), connected(path) as end:
        began = time.monotonic()
        end.sendall(head(1, 10**6))
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - began < 20:
                end.sendall(b"x")
                time.sleep(0.05)
        assert 0.4 < time.monotonic() - began < 5
        assert still_answers(path)


def test_who_takes_no_answer_is_given_up(path):
    with local.Server(path, lambda _: bytes(10**7), seconds=0.3):
        with connected(path) as end:
            end.sendall(head(1, 1) + b"x")
            time.sleep(0.8)
            got = sum(len(piece) for piece in iter(lambda: end.recv(2**20), b""))
        assert got < 10**7


def test_answers_are_given_one_at_a_time(path):
    busy, most = [], []

    def answer(frame):
        busy.append(frame)
        most.append(len(busy))
        time.sleep(0.002)
        busy.remove(frame)
        return frame

    with local.Server(path, answer), ThreadPoolExecutor(20) as pool:
        frames = [str(number).encode() for number in range(200)]
        assert list(pool.map(lambda frame: local.ask(path, frame, 20.0), frames)) == frames
    assert max(most) == 1


def test_idle_connections_leave_room_until_they_are_given_up(path):
    with local.Server(path, bytes.upper, seconds=0.5):
        idle = [connected(path) for _ in range(local.AT_ONCE)]
        assert still_answers(path)  # it waits in line until the idle ones are given up
        assert all(closed_by_server(end) for end in idle)
        for end in idle:
            end.close()


def test_a_wire_error_refuses_and_says_no_reason(path, caplog):
    def answer(frame):
        raise WireError("the frame is of study 'flu'")

    with local.Server(path, answer):
        for _ in range(2):
            with pytest.raises(WireError, match="was refused; the log of who serves") as found:
                local.ask(path, b"frame", 5.0)
            assert "flu" not in str(found.value)
        with connected(path) as end:
            end.sendall(head(1, 1) + b"x")
            assert end.recv(100) == head(3, 0)
    assert "of study 'flu'" in caplog.text


def test_any_other_error_ends_the_server_which_raises_it(path):
    def answer(frame):
        raise InputError("the disk is full")

    def asked():
        with pytest.raises(RosterError, match="has ended; its log says why"):
            local.ask(path, b"frame", 5.0)

    server = local.Server(path, answer)
    thread = threading.Thread(target=asked)
    thread.start()
    with pytest.raises(InputError, match="the disk is full"):
        server.serve()
    thread.join()
    assert not path.exists()


def test_an_answer_that_was_begun_is_finished_before_the_server_ends(path):
    begun, done = threading.Event(), []

    def answer(frame):
        begun.set()
        time.sleep(0.3)
        done.append(frame)
        return frame

    with local.Server(path, answer), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(local.ask, path, b"frame", 5.0)
        begun.wait(5.0)
    assert done == [b"frame"]
    assert asked.result() == b"frame"


def test_nobody_there_and_no_answer_in_time(path):
    with pytest.raises(RosterError, match=r"nobody answers there.*start `siloweave party`"):
        local.ask(path, b"frame", 1.0)
    with local.Server(path, lambda frame: time.sleep(0.5) or frame):
        began = time.monotonic()
        with pytest.raises(RosterError, match=r"no answer within 0\.1 s"):
            local.ask(path, b"frame", 0.1)
        assert time.monotonic() - began < 0.4


def test_a_frame_over_the_limit_is_not_sent(path, monkeypatch):
    monkeypatch.setattr(local, "LIMIT", 10)
    with pytest.raises(WireError, match="a frame of 11 bytes exceeds 10"):
        local.ask(path, bytes(11), 1.0)


def test_two_servers_at_one_path(path):
    with local.Server(path, bytes.upper):
        with pytest.raises(InputError, match="another process answers there"):
            local.Server(path, bytes.upper)
        assert still_answers(path)


def test_a_file_in_the_place_of_the_socket_is_left_alone(path):
    path.write_text("mine")
    with pytest.raises(InputError, match="is no socket"):
        local.Server(path, bytes.upper)
    assert path.read_text() == "mine"


def test_a_path_too_long_for_a_socket(tmp_path, monkeypatch):
    """Linux takes it by a descriptor of its folder; elsewhere one can start nearer to it."""
    folder = tmp_path / ("x" * 90)
    if local._DESCRIPTORS.is_dir():
        with local.Server(folder / "party.sock", bytes.upper):
            assert still_answers(folder / "party.sock")
    monkeypatch.setattr(local, "_DESCRIPTORS", tmp_path / "none")
    with pytest.raises(InputError, match="is too long for a socket, which may have 100 bytes"):
        local.Server(folder / "party.sock", bytes.upper)
    monkeypatch.chdir(folder)
    with local.Server(folder / "party.sock", bytes.upper):
        assert still_answers(folder / "party.sock")


SERVE = "import sys, pathlib; from siloweave.federation import local; "


def started(path, answer):
    code = f"{SERVE}local.Server(pathlib.Path(sys.argv[1]), {answer}).serve()"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)])
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.05)
    return process


def test_a_killed_server_is_noticed_and_its_socket_taken_over(path):
    process = started(path, "lambda frame: __import__('time').sleep(60)")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(local.ask, path, b"frame", 30.0)
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with pytest.raises(RosterError, match="nobody answers there"):
            asked.result(5.0)
    assert path.exists()
    with local.Server(path, bytes.upper):
        assert still_answers(path)


def test_killed_clients_do_no_harm(path):
    process = started(path, "bytes.upper")
    try:
        code = f"{SERVE}local.ask(pathlib.Path(sys.argv[1]), bytes(200_000_000), 60)"
        for _ in range(3):
            client = subprocess.Popen([sys.executable, "-c", code, str(path)])
            time.sleep(0.4)
            client.kill()
            client.wait()
        assert still_answers(path)
    finally:
        process.kill()
        process.wait()
