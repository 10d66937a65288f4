"""A coordinator and parties over a real network engine, on this machine's loopback."""

import socket
from contextlib import ExitStack, contextmanager
from shutil import copy

from siloweave.federation import certificates, local
from siloweave.federation.engine import Engine, joined
from siloweave.federation.frames import FRAME, Seals, keys_for, signed_roster
from siloweave.federation.messages import decode, encode
from siloweave.federation.messages import Envelope
from tests.federation.rosters import identity_of

NAMES = ("clinic", "lab")


def free_port():
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return end.getsockname()[1]


def roster_of(names=NAMES):
    parties = {name: keys_for("flu", identity_of(name)) for name in names}
    return signed_roster("flu", identity_of("coordinator"), parties)


def seals_of(name, names=NAMES):
    return Seals(name, identity_of(name), roster_of(names))


def echo(name):
    """A party that answers every envelope with its own body."""
    seals = seals_of(name)

    def answer(frame):
        with seals.taken(frame) as question:
            return seals.seal("coordinator", FRAME, _back(question.data), question.nonce)

    return answer


def _back(question):
    asked = decode(question, Envelope)
    return encode(Envelope(asked.run, asked.step, asked.to, asked.sender, asked.body))


def envelope(name, body=b"...", step=0):
    return encode(Envelope("r1", step, "coordinator", name, body))


def body_in(answer):
    return decode(answer, Envelope).body


@contextmanager
def coordinator(folder, *, port, seconds=60.0, names=NAMES, **named):
    certificates.make_certificates(folder / "office", [])
    for name in names:
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    nodes = {name: certificates.node_key(folder / name / "engine" / "node.key") for name in names}
    address = f"127.0.0.1:{port}"
    with Engine(folder / "office", seals_of("coordinator"), nodes, address, seconds=seconds, **named) as engine:
        yield engine


@contextmanager
def party(folder, name, *, port, answer=None, **named):
    """A party's socket and its node."""
    home = folder / name
    authority = folder / "office" / "ca.crt"
    with (
        local.Server(home / "party.sock", answer or echo(name)),
        joined(home / "engine", home / "party.sock", f"127.0.0.1:{port}", authority=authority, **named) as node,
    ):
        yield node


@contextmanager
def study(folder, **named):
    """A coordinator and two parties that echo."""
    port = free_port()
    with ExitStack() as stack:
        engine = stack.enter_context(coordinator(folder, port=port, **named))
        for name in NAMES:
            stack.enter_context(party(folder, name, port=port))
        yield engine
