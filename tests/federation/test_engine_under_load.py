"""What the engine holds in memory and carries where much comes at once, in its own processes."""

import os
import socket
import ssl
from collections import Counter
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
SENT = 2 * 2**20
"""Bytes that each of them tries to send, which are 240 MB in all."""
MOST_MB = 80
"""By which a SuperLink may grow; its gate holds 1 MB of strangers' bodies, TLS takes the rest."""


def peak_mb(number):
    """The most memory that a process has had, in MB."""
    for line in Path(f"/proc/{number}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {number} has no memory")


def stranger(context, port, announced):
    """A connection whose request is sent as far as it is taken, and how many bytes that were."""
    plain = socket.create_connection(("127.0.0.1", port), 10.0)
    end = context.wrap_socket(plain, server_hostname="localhost")
    head = ["POST /v1/fleet/push-object HTTP/1.1", "host: localhost", announced]
    end.sendall("\r\n".join([*head, "", ""]).encode())
    end.settimeout(0.2)
    count, piece = 0, os.urandom(2**15)
    most = 2**15 if announced.endswith(" 65536") else SENT
    with suppress(OSError):  # it was refused, or nobody reads on
        while count < most:
            count += end.send(piece)
    return end, count


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

        # A size that is refused, none at all, and one that is allowed of which half never comes.
        ways = [f"content-length: {2**23}", "transfer-encoding: chunked", "content-length: 65536"]
        with ThreadPoolExecutor(16) as threads:
            begun = [
                threads.submit(stranger, context, port, ways[i % len(ways)])
                for i in range(STRANGERS)
            ]
            sent = Counter()
            for i, one in enumerate(begun):
                end, count = one.result()
                stack.enter_context(end)
                sent[ways[i % len(ways)]] += count
        assert all(sent[way] for way in ways)

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
