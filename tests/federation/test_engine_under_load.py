"""What the engine holds in memory and carries where much comes at once, in its own processes."""

import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from siloweave.federation import engine
from siloweave.federation.messages import Envelope, decode, encode
from tests.federation.engines import (
    body_in,
    coordinator,
    envelope,
    free_port,
    party,
    provisioned,
    seals_of,
)

pytestmark = pytest.mark.engine
pytest.importorskip("flwr", reason="needs the flower extra: make engine")

STRANGERS = 120
SENT = 6 * 2**20
"""Bytes that most of them try to send, which are 500 MB in all."""
MOST_MB = 150
"""By which a SuperLink may grow: it grew by 55, and by 565 without its gate."""


def peak_mb(number):
    """The most memory that a process has had, in MB."""
    for line in Path(f"/proc/{number}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {number} has no memory")


CHUNKED = "transfer-encoding: chunked"
WAYS = (f"content-length: {2 * SENT}", CHUNKED, "content-length: 65536")
"""A size that is refused, none at all, and one that is allowed, of which half never comes."""


def stranger(context, port, way):
    """A connection whose request is sent as far as it is taken, and never ends."""
    plain = socket.create_connection(("127.0.0.1", port), 10.0)
    end = context.wrap_socket(plain, server_hostname="localhost")
    head = ["POST /v1/fleet/push-object HTTP/1.1", "host: localhost", way]
    end.sendall("\r\n".join([*head, "content-type: application/protobuf", "", ""]).encode())
    end.settimeout(1.0)
    piece = bytes(2**15)
    part = b"%x\r\n%s\r\n" % (len(piece), piece) if way == CHUNKED else piece
    with suppress(OSError):  # it was refused, or nobody reads on
        for _ in range(1 if way == WAYS[-1] else SENT // len(piece)):
            end.sendall(part)
    return end


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_a_hundred_strangers_take_little_memory_and_a_party_is_served(tmp_path):
    """They had taken 1.2 GB: each body was read whole before it was asked who sends it."""
    port = free_port()
    provisioned(tmp_path)
    with coordinator(tmp_path, port) as link, party(tmp_path, "lab", port), ExitStack() as stack:
        assert body_in(link.send("lab", envelope("lab"))) == b"..."
        context = ssl.create_default_context(cafile=tmp_path / "office" / "engine" / "ca.crt")
        number = link.processes[0].number
        before = peak_mb(number)

        with ThreadPoolExecutor(16) as threads:
            ways = [WAYS[i % len(WAYS)] for i in range(STRANGERS)]
            for end in threads.map(lambda way: stranger(context, port, way), ways):
                stack.enter_context(end)

        assert body_in(link.send("lab", envelope("lab", b"beside them"))) == b"beside them"
        assert link.processes[0].number == number  # it was not started again
        assert peak_mb(number) - before < MOST_MB


def test_large_answers_of_several_parties_at_once_arrive(tmp_path):
    """Together they are more than one report of the pairing's may have."""
    names = ("clinic", "lab", "north", "south")
    bodies = {name: os.urandom(17 * 2**20) for name in names}
    assert sum(map(len, bodies.values())) > engine.flower._REPORT_BYTES
    port = free_port()
    provisioned(tmp_path, names)

    def reply(question):
        asked = decode(question.data, Envelope)
        body = bodies[asked.to]
        return encode(Envelope(asked.run, asked.step, asked.to, asked.sender, body))

    with ExitStack() as stack:
        seals = seals_of("coordinator", names)
        address = f"127.0.0.1:{port}"
        link = stack.enter_context(
            engine.Engine(tmp_path / "office", seals, address, seconds=120.0)
        )
        for name in names:
            own = seals_of(name, names)
            server = stack.enter_context(engine.answering(tmp_path / name, own, reply, address))
            stack.enter_context(server)
        pairing = link.processes[1].number
        with ThreadPoolExecutor(len(names)) as threads:
            asked = {name: threads.submit(link.send, name, envelope(name)) for name in names}
            for name, answer in asked.items():
                assert body_in(answer.result()) == bodies[name]
        assert link.processes[1].number == pairing
