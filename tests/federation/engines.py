"""A coordinator and parties over a real network engine, on this machine's loopback."""

import http.client
import os
import secrets
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from siloweave.federation import certificates, engine
from siloweave.federation.frames import Seals, keys_for, signed_roster
from siloweave.federation.messages import Envelope, decode, encode
from tests.federation.rosters import identity_of

NAMES = ("clinic", "lab")


def free_port():
    """A port that nobody has, and that no connection will be given, as those have higher ones."""
    for port in (20_000 + secrets.randbelow(10_000) for _ in range(100)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("no free port")


def children(parent):
    """Numbers of a process's children that still run."""
    command = ["ps", "-o", "pid=,stat=,comm=", "--ppid", str(parent)]
    listed = subprocess.run(command, capture_output=True)
    rows = [line.split() for line in listed.stdout.decode().splitlines()]
    return {int(one[0]) for one in rows if one[1][0] != "Z" and one[2] != "ps"}


def roster_of(names=NAMES):
    parties = {name: keys_for("flu", identity_of(name)) for name in names}
    return signed_roster("flu", identity_of("coordinator"), parties)


def seals_of(name, names=NAMES):
    return Seals(name, identity_of(name), roster_of(names))


def echo(question):
    """Answer every envelope with its own body."""
    asked = decode(question.data, Envelope)
    return encode(Envelope(asked.run, asked.step, asked.to, asked.sender, asked.body))


def envelope(name, body=b"...", step=0):
    return encode(Envelope("r1", step, "coordinator", name, body))


def body_in(answer):
    return decode(answer, Envelope).body


def provisioned(folder, names=NAMES, **named):
    """Folders of a coordinator and its parties."""
    for name in ("office", *names):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    engine.provision(folder / "office", {name: folder / name for name in names}, [], **named)
    return folder


@contextmanager
def coordinator(folder, port, *, seconds=60.0, **named):
    seals, address = seals_of("coordinator"), f"127.0.0.1:{port}"
    with engine.Engine(folder / "office", seals, address, seconds=seconds, **named) as found:
        yield found


@contextmanager
def party(folder, name, port, *, reply=echo, **named):
    """A party that answers in this process, and its node in another."""
    seals, address = seals_of(name), f"127.0.0.1:{port}"
    with engine.answering(folder / name, seals, reply, address, **named) as server, server:
        yield server


def serve(*args, **named):
    with engine.answering(*args, **named) as server:
        server.serve()


@contextmanager
def study(folder, **named):
    """A coordinator and two parties that echo."""
    port = free_port()
    provisioned(folder)
    with ExitStack() as stack:
        found = stack.enter_context(coordinator(folder, port, **named))
        for name in NAMES:
            stack.enter_context(party(folder, name, port))
        yield found


class SuperLink:
    """A SuperLink of Flower's own command, with its state in a file; others run it.

    Its folder has all that it writes, and the certificates of its authority.
    """

    def __init__(self, folder, *options, nodes=True):
        self.folder, self.port = folder, free_port()
        certificates.make_certificates(folder, [])
        self._command = [str(Path(sys.executable).with_name("flower-superlink"))]
        self._command += ["--port", str(self.port), "--database", str(folder / "state.db")]
        files = zip(("certfile", "keyfile", "ca-certfile"), certificates.FILES, strict=True)
        for option, name in files:
            self._command += [f"--ssl-{option}", str(folder / name)]
        self._command += ["--isolation", "process", *options]
        self._command += ["--enable-supernode-auth"] if nodes else []
        self.kills = 0

    def start(self):
        home = {"FLWR_HOME": str(self.folder / "home")}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=os.environ | engine._SETTINGS | home, stdout=log, stderr=log
            )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return
            time.sleep(0.05)
        raise RuntimeError((self.folder / "log").read_text())

    def kill(self):
        self._process.kill()
        self._process.wait()
        self.kills += 1

    def kill_and_start(self, *_):
        self.kill()
        self.start()

    def post(self, path, body=b""):
        """What it answers to an order of anyone who reaches it."""
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        end = http.client.HTTPSConnection("localhost", self.port, context=context, timeout=30)
        with closing(end):
            end.request("POST", f"/v1/{path}", body, {"content-type": "application/protobuf"})
            with end.getresponse() as response:
                answer = response.read()
        assert response.status == 200, answer
        return answer

    def seen(self):
        """All that it has written."""
        return b"\n".join(one.read_bytes() for one in self.folder.rglob("*") if one.is_file())

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()


@contextmanager
def cable(to):
    """Carries bytes from a port to another; while the event is set, none pass and none connect."""
    cut, ends = threading.Event(), []

    def carry(one, other):
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        shut(one, other)

    def take():
        with suppress(OSError):
            while True:
                pair = [listening.accept()[0]]
                if not cut.is_set():
                    try:
                        pair.append(socket.create_connection(("127.0.0.1", to)))
                    except OSError:  # nobody listens there now
                        shut(*pair)
                        continue
                    threading.Thread(target=carry, args=pair, daemon=True).start()
                    threading.Thread(target=carry, args=pair[::-1], daemon=True).start()
                ends.extend(pair)

    def watch():
        while not closed.wait(0.05):
            while cut.is_set() and ends:
                shut(ends.pop())

    closed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for work in (take, watch):
            threading.Thread(target=work, daemon=True).start()
        yield cut, listening.getsockname()[1]
        closed.set()


def shut(*ends):
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
