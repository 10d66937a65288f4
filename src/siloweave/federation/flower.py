"""Flower as a carrier of sealed frames: what runs in processes of the engine's own.

federation/engine.py starts and supervises them; each gets its facts as one line on its standard
input, and ends when that closes. They hold no key of a study, no row and no ledger.

* `LinkFacts`, at the coordinator: Flower's SuperLink, with TLS and node authentication. What it has
  in hand is in its memory alone: no traffic stays on a disk, and a new one is sent all it needs.
* `PairingFacts`, at the coordinator: admits the parties' nodes by their keys, starts a run, and
  carries questions and answers between the SuperLink and the coordinator's local socket. The
  SuperLink may also be one that somebody else runs, see `_check_joined`.
* `NodeFacts`, at a party: fetches questions from the SuperLink, and hands them to the party's
  socket.

Flower's own executors are not used, since they run whatever program the SuperLink names: at the
coordinator, anyone who reaches the port could start one; at a party, the SuperLink could. Here the
application that Flower asks for is a few lines of text. No process of ours runs it; a site that
runs Flower's own SuperNode has it start federation/clientapp.py, which it has installed. All that
the network reaches of a SuperLink of ours is the part that nodes talk to, see `_guarded`.

What is used of Flower, most of it no public interface, is listed in federation/flower_parts.py.

**Guarantee**: none of its own, see federation/frames.py. These processes run as the user who starts
them: beside a party, whoever takes one over by a fault in Flower could read the party's files. Of a
node of another user, or in a container, that does not hold.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import logging
import os
import signal
import ssl
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from siloweave.errors import InputError, RosterError, WireError
from siloweave.federation import gate, local, processes
from siloweave.federation.certificates import node_key_in, private_key
from siloweave.federation.messages import MAX_BYTES

ANSWERED, REFUSED, ABSENT, AWAY, MALFORMED = range(5)
"""What became of a question: a frame; the party refused it; it, or its node, does not run; the
node's reply was malformed."""

FATAL = 2
"""Exit code of a process that must not be started again as it was."""
FATAL_MARK = "cannot go on: "
"""What the log of such a process ends with, before the reason."""

CARRIED_S = 60.0
"""For a party's last answer to be sent, once its node is asked to end with that."""

_log = logging.getLogger("siloweave")
_carrying = threading.Lock()  # a question, at a party
_SECRET_HEADER = "x-siloweave-engine"  # noqa: S105 - a header's name
_CAME_HEADER = "x-siloweave-came"  # of the pairing: nodes whose message is there
# To the pairing: nodes that were, and their clocks.
_REFUSED_HEADER = "x-siloweave-refused"
# Of a poll: whose it is; of its answer: that it waited.
_WAITS_HEADER = "x-siloweave-waits"
_MOST_REFUSED = 20  # nodes in `_REFUSED_HEADER`
_SIGNED_BYTES = 1000  # of each of Flower's headers of a node
_NODES = "/v1/fleet/"  # the part of a SuperLink that nodes talk to
_POLL = _NODES + "pull-messages"
_REPORT_BYTES = 64 * 2**20  # of answers in one report, if it has several
_UNREADABLE = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    IndexError,
)
"""What reading a reply raises that is not as ours are, whichever of Flower's functions does it."""
_FETCHED = 4  # replies that are fetched at a time
_LOOKED_S = 5.0  # between two looks whether the SuperLink still knows this run
_PIECE_BYTES = 4 * 2**20  # of a message
_REQUEST_BYTES = 8 * 2**20  # of any request
# The least that Flower takes; a node that missed two counts as gone.
_HEARTBEAT_S = 10.0
_FIRST_S = 0.05  # between two polls for a message, at first
_LONGEST_S = 1.0  # and in the end
_IDLE_S = 5.0  # longest, at a party, where the SuperLink lets no poll wait
_HELD_S = 10.0  # that a poll waits at a SuperLink of ours
_SHARE = 0.1  # of the time since the last message that a poll may wait
# Without a piece of it, after which a message that is being sent is given up.
_PUSHED_S = 30.0
# Without an answer of the SuperLink's, after which the party's terminal says so.
_LOST_S = 3.0
_NOTED_S = 5.0  # for the party to take a note
_AHEAD_S = 4.0  # by which a clock is never why: Flower allows 5
_BEHIND_S = 300.0  # by which a clock is never why: Flower allows 305
_REFUSED_S = 60.0  # for which a node asks to be let in
_ENDING_S = 5.0  # for a process to end in good order
# Flower's headers of a node, after flwr-.
_SIGNED = (b"public-key", b"signature", b"timestamp")
_KIND = "query"  # of Flower's messages, which a stock SuperNode hands to an application
_PIECE = "frame"  # name of a piece's bytes
_FIRST = "000000"  # name of a message's first piece
_IDLE = "ControlEventLog ControlLicense ControlSensitiveResponse FleetEventLog RuntimeTracing"
_NO_ORDER = (
    "takes orders from accounts alone (FLWR_OIDC_ENABLED), and siloweave has none"
)
_NO_TASK = "give the file of its --superexec-auth-secret-file with --join-secret"
_APPLICATION = """[project]
name = "siloweave"
version = "1.0.0"
description = "carries the frames of a study; parties have the keys DIGEST"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "siloweave"
[tool.flwr.app.components]
serverapp = "nothing.here:runs"
clientapp = "siloweave.federation.clientapp:app"
"""


class LinkFacts(msgspec.Struct, frozen=True, tag=True):
    """The facts of a SuperLink of ours; without a certificate it is plaintext.

    `nodes` are the public keys of those that may send much, as words.
    """

    host: str
    port: int
    secret: str
    certificate: str
    key: str
    authority: str
    nodes: list[str] = []


class PairingFacts(msgspec.Struct, frozen=True, tag=True):
    """The facts of the coordinator's end, among them each node's public key, as a word.

    Where others run the SuperLink, `secret` is what it wants of who takes a task, as hex, and
    `proxy` is the URL of the proxy on the way to it, or empty.
    """

    address: str
    secret: str
    authority: str
    socket: str
    nodes: dict[str, str]
    joined: bool
    proxy: str = ""


class NodeFacts(msgspec.Struct, frozen=True, tag=True):
    """The facts of a party's end; `key` is a file of the node; `proxy` is a URL, or empty."""

    address: str
    authority: str
    socket: str
    key: str
    proxy: str = ""


NOTE = b"siloweave node: "
"""What a node's note to the party begins with, where a frame has a signature."""


class Note(msgspec.Struct, frozen=True):
    """A node's note to its party: whether the coordinator is reached, and `why` it is not."""

    is_connected: bool
    why: str = ""


class Question(msgspec.Struct, frozen=True):
    """A frame for a party, with a number that its answer has, too."""

    number: int
    party: str
    frame: bytes
    seconds: float


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a question; it has a `frame` if it was `ANSWERED`."""

    number: int
    kind: int
    frame: bytes = b""


class Report(msgspec.Struct, frozen=True):
    """The pairing's report: outcomes, and the numbers of the questions that it has in hand.

    It waits at most so many seconds for a question that it does not have. Nodes that the SuperLink
    has `refused` are named by their party, others by nothing, with the seconds by which their clock
    is ahead, or 0 where that is not why.
    """

    outcomes: list[Outcome]
    known: list[int]
    seconds: float
    refused: dict[str, float] = {}


class Orders(msgspec.Struct, frozen=True):
    """Orders to the pairing: new questions, and the numbers of all that still count."""

    questions: list[Question]
    open: list[int]


# The SuperLink


class _Polls:
    """Long polling: a node that asks for messages gets an answer once there are any.

    Flower answers at once, so nodes would have to poll often. Only an answer without a message
    waits, and only after Flower has authenticated the node.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._waiting: dict[asyncio.Event, bytes] = {}  # nodes, by what ends their poll

    def came(self, nodes: Sequence[bytes]) -> None:
        """End the polls of these nodes, as there are messages for them."""
        for event, node in self._waiting.items():
            if node in nodes:
                event.set()

    async def answer(self, node: bytes, scope: Any, receive: Any, send: Any) -> None:
        """Answer a poll; an answer that waited says so in a header."""
        parts: list[Any] = []

        async def collect(part: Any) -> None:
            parts.append(part)

        event = asyncio.Event()
        # Before Flower answers, so that no message is missed.
        self._waiting[event] = node
        try:
            await self._app(scope, receive, collect)
            # A refusal does not wait: whom Flower does not know could hold polls open.
            if parts[0]["status"] == 200 and not any(
                part.get("body") for part in parts
            ):
                parts[0]["headers"] = [
                    *parts[0]["headers"],
                    (_WAITS_HEADER.encode(), b"1"),
                ]
                # Cancelled: all ends.
                with suppress(TimeoutError, asyncio.CancelledError):
                    await asyncio.wait_for(event.wait(), _HELD_S)
        finally:
            del self._waiting[event]
        for part in parts:
            await send(part)


def _guarded(app: Any, secret: str, nodes: Sequence[str] = ()) -> Any:
    """Wrap Flower's application so that strangers reach only what nodes talk to.

    Flower authenticates nodes; it takes orders from anyone, who could start and stop runs, admit
    nodes and read logs. Here orders need the secret, which the pairing has. How much is read of
    whom is bounded, see federation/gate.py; whoever has signed as one of the nodes may send most.
    """
    polls = _Polls(app)
    refusals = _Refusals(app)
    keys = {b64encode(_public(word)) for word in nodes}

    def is_known(headers: Mapping[bytes, bytes]) -> bool:
        if _shows_secret(headers, secret):
            return True
        # A public key alone anyone can show; a signature takes its time to verify.
        if headers.get(b"flwr-public-key", b"") not in keys:
            return False
        signer, _ = _signed(headers)
        return bool(signer)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        headers = dict(scope["headers"])
        node = headers.get(_WAITS_HEADER.encode())
        if path == _POLL and node:
            await polls.answer(node, scope, receive, send)
            return
        if not path.startswith(_NODES):  # so it came with the secret
            polls.came(headers.get(_CAME_HEADER.encode(), b"").split())
        await refusals.answer(headers, scope, receive, send)

    bounded = gate.Gate(
        answer, is_known, gate.for_nodes(_REQUEST_BYTES), gate.for_strangers()
    )

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
        # Nothing else is Flower's, such as websockets.
        if scope["type"] != "http":
            return
        # Orders without the secret look as if there were none to give.
        is_of_node = scope["path"].startswith(_NODES)
        if not is_of_node and not _shows_secret(dict(scope["headers"]), secret):
            await gate.refuse(send, 404)
        else:
            await bounded(scope, receive, send)

    return guarded


def _shows_secret(headers: Mapping[bytes, bytes], secret: str) -> bool:
    """Return whether a request has the secret of those who give the SuperLink orders."""
    # In constant time: how long a comparison takes would else tell how much of it is right.
    shown = headers.get(_SECRET_HEADER.encode(), b"")
    return hmac.compare_digest(shown, secret.encode())


class _Refusals:
    """A reporter of nodes that Flower has refused, in the answer to the pairing's next request.

    By their key: the seconds by which their clock is ahead, or 0 where that is not why.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._refused: dict[str, float] = {}

    async def answer(
        self, headers: Mapping[bytes, bytes], scope: Any, *ways: Any
    ) -> None:
        """Have Flower answer a node, or the pairing, over its functions to receive and to send."""
        receive, send = ways
        is_of_node = scope["path"].startswith(_NODES)

        async def pass_on(part: Any) -> None:
            status = part.get("status")
            if not is_of_node:
                self._add_header(part)
            # Bounded, as strangers with keys of their own could fill the memory.
            elif status in (401, 412) and len(self._refused) < _MOST_REFUSED:
                self._note(headers, status)
            await send(part)

        await self._app(scope, receive, pass_on)

    def _add_header(self, part: Any) -> None:
        """Name the refused nodes once, in the first part of an answer to the pairing."""
        if part.get("status") and self._refused:
            header = (_REFUSED_HEADER.encode(), msgspec.json.encode(self._refused))
            part["headers"] = [*part["headers"], header]
            self._refused.clear()

    def _note(self, headers: Mapping[bytes, bytes], status: int) -> None:
        """Note a node that Flower has refused, if it signed its request."""
        key, ahead = _signed(headers)
        if key:  # 401 is for a node, too, that a new SuperLink has not let in yet
            is_clock = status == 401 and not -_BEHIND_S < ahead < _AHEAD_S
            self._refused[key] = ahead if is_clock else 0.0


def _signed(headers: Mapping[bytes, bytes]) -> tuple[str, float]:
    """Return whose key signed the time of a node's request, and how many seconds ahead that is.

    An empty key where none has: what a stranger says of a clock, or of a key, counts for nothing.
    """
    # Cut before they are read: the headers are anyone's.
    key, signature, at = (
        headers.get(b"flwr-" + name, b"")[:_SIGNED_BYTES] for name in _SIGNED
    )
    with suppress(ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        public = load_pem_public_key(b64decode(key))
        if isinstance(public, ec.EllipticCurvePublicKey):
            public.verify(b64decode(signature), at, ec.ECDSA(SHA256()))
            ahead = datetime.fromisoformat(at.decode()) - datetime.now(UTC)
            return key.decode("ascii"), ahead.total_seconds()
    return "", 0.0


def _link(facts: LinkFacts) -> None:
    """Run the SuperLink in this process, until it is ended."""
    import uvicorn
    from flwr.supercore.corestate import in_memory_corestate
    from flwr.superlink.cli.flower_superlink import (
        SuperLinkLifespan,
        _parse_superlink_lifespan_config,
    )
    from flwr.superlink.main import create_app

    # Flower has no setting for it. Who waits for a message whose sender was killed while it sent it
    # waits so long, and for nothing else meanwhile: three minutes, by default.
    in_memory_corestate.OBJECT_PUSH_SESSION_TTL_SECONDS = _PUSHED_S
    # So it starts no executor.
    words = ["", "--host", facts.host, "--isolation", "process"]
    if facts.certificate:
        words += ["--ssl-certfile", facts.certificate, "--ssl-keyfile", facts.key]
        words += ["--ssl-ca-certfile", facts.authority, "--enable-supernode-auth"]
    else:
        words.append("--insecure")
    sys.argv = words  # its settings have no other door
    config = _parse_superlink_lifespan_config()
    config.enable_supernode_auth = True  # which the command line refuses without TLS
    app = create_app(config, SuperLinkLifespan)
    # Every request passes through all layers, and each takes a tenth of its time. These do nothing.
    idle = {f"{name}Middleware" for name in _IDLE.split()}
    app.user_middleware = [
        layer for layer in app.user_middleware if layer.cls.__name__ not in idle
    ]
    logging.getLogger("flwr").setLevel(logging.WARNING)  # it would log every request
    uvicorn.run(
        _guarded(app, facts.secret, facts.nodes),
        host=facts.host,
        port=facts.port,
        ssl_certfile=facts.certificate or None,
        ssl_keyfile=facts.key or None,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=0,  # for polls that wait
    )


# The coordinator's end


class _Secret:
    """An interceptor that shows the SuperLink the secret of its orders, and whose messages came."""

    #: What came back, see `_Refusals`.
    refused: ClassVar[dict[str, float]] = {}

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._sent: list[str] = []  # nodes of the messages that were announced last

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        """Add headers to a request of Flower's client, and read one from its response."""
        context.request.headers[_SECRET_HEADER] = self._secret
        # All pieces of those before are there.
        if context.rpc_method.endswith("Messages"):
            context.request.headers[_CAME_HEADER] = " ".join(self._sent)
            announced = getattr(context.message, "messages_list", ())
            self._sent = [str(message.metadata.dst_node_id) for message in announced]
        response = call_next(context)
        refused = response.headers.get(_REFUSED_HEADER)
        if refused:
            self.refused.update(msgspec.json.decode(refused, type=dict[str, float]))
        return response


_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
"""Variables by which Flower's client looks for a proxy, in either case."""


def _use_proxy(url: str) -> None:
    """Let the clients in this process use this proxy, or none.

    Flower has no argument for it. Its client (httpx) reads these variables, opens a tunnel by
    CONNECT, and begins TLS with the SuperLink in it.
    """
    # What was decided of the proxy holds, whatever the environment says, in either case.
    for name in _PROXIES:
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)
    if url:
        os.environ["HTTPS_PROXY"] = url
    else:
        os.environ["NO_PROXY"] = "*"


def _client(kind: Any, facts: PairingFacts | NodeFacts, *interceptors: Any) -> Any:
    """Make a client of the SuperLink, of one of Flower's classes."""
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    is_plaintext = not facts.authority
    authority = None if is_plaintext else Path(facts.authority).read_bytes()
    version_interceptor = RuntimeVersionHttpInterceptor(component_name="siloweave")
    return kind.from_server_address(
        facts.address,
        is_plaintext,
        authority,
        [version_interceptor, *interceptors],
    )


def _public(word: str) -> bytes:
    """Return a node's public key in Flower's form."""
    return _flower_key(node_key_in(word))


def _flower_key(public: ec.EllipticCurvePublicKey) -> bytes:
    """Return a public key in the form in which Flower compares and sends it."""
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _admitted(client: Any, nodes: Mapping[str, str]) -> dict[str, int]:
    """Register every party's node with the SuperLink, and return its number there, by party."""
    from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest

    node_ids = {
        bytes(node.public_key): node.node_id
        for node in client.ListNodes(ListNodesRequest()).nodes_info
        if node.status != "unregistered"
    }
    party_nodes = {}
    for name, key in nodes.items():
        public = _public(key)
        if public not in node_ids:
            order = RegisterNodeRequest(public_key=public, name=name)
            node_ids[public] = client.RegisterNode(order).node_id
        party_nodes[name] = node_ids[public]
    return party_nodes


def _permission(facts: PairingFacts) -> Any:
    """Return the interceptor that lets this process give the SuperLink orders, or take a task."""
    from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

    if not facts.joined:
        return _Secret(facts.secret)
    # To others' SuperLink the secret is shown for the one request that wants it, and no other.
    return SuperExecAuthHttpInterceptor(
        master_secret=bytes.fromhex(facts.secret),
        protected_methods=["/flwr.proto.Runtime/AcquireTask"],
    )


def _check_joined(facts: PairingFacts) -> None:
    """Raise InputError if a joined SuperLink has another version, or lets anyone in."""
    import httpx
    from flwr.proto.fleet_pb2 import (
        RegisterNodeFleetRequest,
        UnregisterNodeFleetRequest,
    )
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    # What is used of Flower is no public interface: another version may do something else with it.
    flower_version = version("flwr")
    where = facts.address
    trusted = ssl.create_default_context(cafile=facts.authority)
    try:
        url = f"https://{where}/openapi.json"
        page = httpx.get(url, verify=trusted, timeout=_PUSHED_S).text
    except httpx.RemoteProtocolError as error:
        page = repr(error)
    if f'"version":"{flower_version}"' not in page:
        raise InputError(
            f"{where}: is no SuperLink of Flower {flower_version}: /openapi.json is {page[:99]!r}"
        )

    # A key that was made this moment must be refused. Where it is not, any stranger could be a
    # party's node, and hold up the study.
    key = ec.generate_private_key(ec.SECP384R1())
    public = _flower_key(key.public_key())
    with _client(
        FleetHttpClient, facts, NodeAuthHttpInterceptor(key, key.public_key())
    ) as client:
        try:
            admitted = client.RegisterNode(RegisterNodeFleetRequest(public_key=public))
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 401:
                raise InputError(_clocks(error.response, where)) from error
            if error.response.status_code != 412:  # how it refuses an unknown node
                raise
            return
        client.UnregisterNode(UnregisterNodeFleetRequest(node_id=admitted.node_id))
    raise InputError(
        f"{where}: lets in any node. Start it with --enable-supernode-auth"
    )


def _grid(facts: PairingFacts, control: Any) -> Any:
    """Start a new run at the SuperLink, take its task, and return the grid for its messages."""
    from flwr.common.serde import run_from_proto
    from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest
    from flwr.proto.fab_pb2 import Fab
    from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid

    # Runs of this study that a killed process has left: their messages would be delivered, too.
    bundle = _application(facts)
    permission = _permission(facts)
    digest = hashlib.sha256(bundle).hexdigest()
    for run_facts in control.ListRuns(ListRunsRequest(limit=1000)).run_dict.values():
        if run_facts.fab_hash == digest and run_facts.status.status != "finished":
            _stop(control, run_facts.run_id)

    # A new run, whose task is taken before another takes it.
    start_order = StartRunRequest(fab=Fab(hash_str=digest, content=bundle))
    task_request = AcquireTaskRequest(agentapp_fab_hashes=[digest])
    with _client(RuntimeHttpClient, facts, permission) as client:
        for _ in range(3):
            run = control.StartRun(start_order).run_id
            acquired = client.AcquireTask(task_request)
            if acquired.task.run_id == run:
                break
            _stop(control, run)
        else:
            raise InputError(
                f"{facts.address}: gave the study's task to another, three times. Start it with "
                "--isolation process and --superexec-auth-secret-file, so that only those who have "
                "that file can take tasks"
            )

    # With the task's token this process counts as the application, until its heartbeat ends.
    token = RuntimeTokenHttpInterceptor(acquired.token)
    client = _client(RuntimeHttpClient, facts, permission, token)
    HeartbeatSender(make_task_heartbeat_fn_http(client)).start()
    grid = HttpGrid(facts.address, token=acquired.token)
    grid._client = client  # it would make one that does not know the secret
    task_input = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id = task_input.task_id
    TaskIdentity.run_id = task_input.run.run_id
    TaskIdentity.node_id = task_input.context.node_id
    grid.set_run(run_from_proto(task_input.run))
    return grid


def _stop(control: Any, run: int) -> None:
    """End a run, so that the SuperLink deletes its messages."""
    import httpx
    from flwr.proto.control_pb2 import StopRunRequest

    with suppress(httpx.HTTPError):  # it has ended, or the SuperLink has
        control.StopRun(StopRunRequest(run_id=run))


def _application(facts: PairingFacts) -> bytes:
    """Make the bundle that Flower wants of a run; nobody runs it. Each study has its own."""
    from flwr.cli.build import build_fab_from_files

    nodes = msgspec.json.encode(facts.nodes, order="sorted")
    digest = hashlib.sha256(nodes).hexdigest()
    text = _APPLICATION.replace("DIGEST", digest)
    bundle = build_fab_from_files({"pyproject.toml": text.encode()})
    return bytes(bundle[0])


def _pairing(facts: PairingFacts) -> None:
    """Carry questions from the coordinator to the SuperLink, and outcomes back, in a new run."""
    import httpx
    from flwr.supercore.control import ControlHttpClient

    _use_proxy(facts.proxy)
    if facts.joined:
        _check_joined(facts)
    control = _client(ControlHttpClient, facts, _permission(facts))
    try:
        nodes = _admitted(control, facts.nodes)
        grid = _grid(facts, control)
    except httpx.HTTPStatusError as error:
        if not facts.joined or error.response.status_code not in (401, 403):
            raise
        is_of_task = error.request.url.path.endswith("acquire-task")
        reason = _NO_TASK if is_of_task else _NO_ORDER
        raise InputError(f"{facts.address}: {reason}") from error
    _log.warning("admitted %s; a run was started", sorted(nodes))
    try:
        _carry_on(facts, nodes, grid)
    finally:
        _stop(control, grid.run.run_id)


def _carry_on(facts: PairingFacts, nodes: Mapping[str, int], grid: Any) -> None:
    """Carry questions and outcomes until the process is ended."""
    sent: dict[str, Question] = {}  # by the SuperLink's name of the message
    outcomes: list[Outcome] = []
    parties = {
        b64encode(_public(key)).decode(): name for name, key in facts.nodes.items()
    }
    pace = _Pace()
    looked = time.monotonic()
    while True:
        # What is too large for one report waits for the next one, which then waits for nothing.
        reported, outcomes = _piece(outcomes)
        in_hand = [question.number for question in sent.values()]
        in_hand += [outcome.number for outcome in outcomes]
        refused = {
            parties.get(key, ""): ahead for key, ahead in _Secret.refused.items()
        }
        _Secret.refused.clear()
        wait = pace.wait() if sent else _LONGEST_S
        if outcomes:
            wait = 0.0
        report = Report(reported, in_hand, wait, refused)
        answer = local.ask(Path(facts.socket), msgspec.msgpack.encode(report), 60.0)
        orders = msgspec.msgpack.decode(answer, type=Orders)

        # Replies to questions that nobody waits for any more are not fetched.
        sent = {
            name: question
            for name, question in sent.items()
            if question.number in orders.open
        }
        present = set[int]()
        # Also without a question: a SuperLink that was started anew answers with an error, upon
        # which this process starts again, and lets the nodes in.
        if orders.questions or time.monotonic() > looked + _LOOKED_S:
            present = set(grid.get_node_ids())
            looked = time.monotonic()
        for question in orders.questions:
            node = nodes[question.party]
            # Said at once: of an absent node no reply would come.
            if node not in present or not _pushed(grid, node, question, sent):
                outcomes.append(Outcome(question.number, AWAY))
        if not outcomes:
            outcomes = _fetched(grid, sent)
        if orders.questions or outcomes:
            pace = _Pace()


def _piece(outcomes: Sequence[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    """Divide outcomes into those that one report can carry, at least one, and the rest."""
    size = 0
    count = 0
    for outcome in outcomes:
        size += len(outcome.frame)
        if count and size > _REPORT_BYTES:
            break
        count += 1
    return list(outcomes[:count]), list(outcomes[count:])


def _fetched(grid: Any, sent: dict[str, Question]) -> list[Outcome]:
    """Fetch the replies that have come, a few messages at a time, until there are some.

    Nobody knows the size of a reply before it is there, so that all at once could be too many.
    """
    names = list(sent)
    for start in range(0, len(names), _FETCHED):
        batch = names[start : start + _FETCHED]
        try:
            replies = list(grid.pull_messages(batch))
        except _UNREADABLE as error:
            _log.warning("a reply cannot be read: %r", error)
            return _fetched_alone(grid, batch, sent)
        # A reply counts where its question still does.
        outcomes = [
            _outcome(reply, sent) for reply in replies if _question_of(reply) in sent
        ]
        if outcomes:
            return outcomes
    return []


def _fetched_alone(
    grid: Any, names: Sequence[str], sent: dict[str, Question]
) -> list[Outcome]:
    """Fetch replies one by one, as one of them cannot be read."""
    outcomes = []
    for name in names:
        try:
            replies = list(grid.pull_messages([name]))
            outcomes += [
                _outcome(reply, sent)
                for reply in replies
                if _question_of(reply) in sent
            ]
        except _UNREADABLE:
            outcomes.append(Outcome(sent.pop(name).number, MALFORMED))
    return outcomes


def _question_of(reply: Any) -> str:
    """Return the SuperLink's name of the message that a reply answers."""
    return str(reply.metadata.reply_to_message_id)


def _pushed(
    grid: Any, node: int, question: Question, sent: dict[str, Question]
) -> bool:
    """Send a question; return whether the SuperLink took it."""
    message = _message(
        question.frame, dst_node_id=node, message_type=_KIND, ttl=question.seconds
    )
    for name in grid.push_messages([message]):
        if name:
            sent[name] = question
            return True
    return False


def _outcome(reply: Any, sent: dict[str, Question]) -> Outcome:
    """Read the outcome of a question from a node's reply, which may be malformed."""
    number = sent.pop(_question_of(reply)).number
    if reply.has_error():
        return Outcome(number, AWAY)
    try:
        kind = int(reply.content[_FIRST]["kind"])
        frame = _frame(reply) if kind == ANSWERED else b""
    except _UNREADABLE as error:
        _log.warning("a node's reply is malformed: %r", error)
        return Outcome(number, MALFORMED)
    if kind not in (ANSWERED, REFUSED, ABSENT) or len(frame) > MAX_BYTES:
        _log.warning("a node's reply is malformed: kind %d, %d bytes", kind, len(frame))
        return Outcome(number, MALFORMED)
    return Outcome(number, kind, frame)


class _Pace:
    """The pauses between polls, which grow while nothing comes."""

    def __init__(self, longest: float = _LONGEST_S) -> None:
        self._since = time.monotonic()
        self._longest = longest

    def wait(self) -> float:
        """Return the seconds until the next poll: a share of the time since something came."""
        idle = time.monotonic() - self._since
        return min(max(_FIRST_S, _SHARE * idle), self._longest)


def _message(frame: bytes, kind: int = ANSWERED, **to: Any) -> Any:
    """Make a message of Flower's that carries a frame in pieces, each of them a request."""
    from flwr.app import ConfigRecord, Message, RecordDict

    # One piece at least, also of an empty frame: the first says what kind of message it is.
    starts = range(0, max(len(frame), 1), _PIECE_BYTES)
    pieces = [frame[start : start + _PIECE_BYTES] for start in starts]
    # Six digits, so that names are in the order of the pieces.
    records = {
        f"{i:06}": ConfigRecord({_PIECE: piece}) for i, piece in enumerate(pieces)
    }
    records[_FIRST]["kind"] = kind
    return Message(RecordDict(records), **to)


def _frame(message: Any) -> bytes:
    """Join the pieces of a frame in a message; raises one of `_UNREADABLE` if it has none."""
    return b"".join(message.content[name][_PIECE] for name in sorted(message.content))


# A party's end


def _node(facts: NodeFacts) -> None:
    """Run a party's node: hand questions to the party one after the other, and send its answers."""
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    _use_proxy(facts.proxy)
    key = private_key(Path(facts.key))
    signer = NodeAuthHttpInterceptor(key, key.public_key())
    waits = _Waits()
    with _client(FleetHttpClient, facts, signer, waits) as client:
        processes.return_memory()
        node = _Carrying(client, key.public_key(), facts, waits)
        node.go_on()


class _Waits:
    """An interceptor that lets a node's poll wait at a SuperLink of ours.

    `waited` is whether the last poll did.
    """

    waited = False

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        """Add a header to a poll, and note whether the response has one."""
        if context.request.url.path != _POLL:
            return call_next(context)
        context.request.headers[_WAITS_HEADER] = str(context.message.node.node_id)
        response = call_next(context)
        self.waited = _WAITS_HEADER in response.headers
        return response


def handed_over(message: Any, socket: Path) -> Any:
    """Hand the frame in a message of Flower's to the party's socket, and return the reply."""
    kind = REFUSED
    frame = b""
    try:
        frame = local.ask(socket, _frame(message), message.metadata.ttl)
        kind = ANSWERED
    # Or a stranger's message.
    except (WireError, KeyError, TypeError, ValueError) as error:
        _log.warning("refused: %r", error)
    except RosterError as error:
        kind = ABSENT
        _log.warning("%s", error)
    return _message(frame, kind, reply_to=message)


def application_of(answer: Callable[[Any, Any], Any]) -> Any:
    """Build the application that a SuperNode of Flower's own runs; see federation/clientapp.py."""
    from flwr.clientapp import ClientApp

    application = ClientApp()
    application.query()(answer)  # messages of the kind that `_KIND` names
    return application


class _Carrying:
    """The node of a party, at work."""

    def __init__(
        self, client: Any, public: Any, facts: NodeFacts, waits: _Waits
    ) -> None:
        self._client = client
        self._facts = facts
        self._waits = waits
        self._public = _flower_key(public)
        self._node: Any = None
        self._missed = 0.0  # when the SuperLink was last not reached
        # Why it is not reached, as the party was told last.
        self._told: str | None = None
        threading.Thread(target=self._beat, daemon=True).start()

    def _activate(self) -> None:
        """Wait until the SuperLink lets this node in.

        It refuses a key that the coordinator has not named yet, and a node that was killed and
        started again, until it counts as gone. A SuperLink that comes back may take its time anew.
        """
        import httpx
        from flwr.proto.fleet_pb2 import ActivateNodeRequest
        from flwr.proto.node_pb2 import Node

        order = ActivateNodeRequest(
            public_key=self._public, heartbeat_interval=_HEARTBEAT_S
        )
        began = time.monotonic()
        while True:
            try:
                activated = self._called(self._client.ActivateNode, order)
                self._node = Node(node_id=activated.node_id)
                _log.warning("connected to %s", self._facts.address)
                self._note()
                return
            except httpx.HTTPStatusError as error:
                if error.response.status_code == 401:
                    raise InputError(
                        _clocks(error.response, self._facts.address)
                    ) from error
                if time.monotonic() > max(began, self._missed) + _REFUSED_S:
                    raise InputError(
                        f"{self._facts.address}: has refused this node's key for "
                        f"{_REFUSED_S:g} s. Give the coordinator the public key of "
                        f"{self._facts.key}, and see that no other node uses it"
                    ) from error
                # A terminal's line has room for little more.
                self._note("not let in yet")
            time.sleep(_LONGEST_S)

    def _note(self, why: str = "") -> None:
        """Let the party know that the SuperLink is reached, or why it is not, if that is news."""
        if why == self._told:
            return
        self._told = why
        text = NOTE + msgspec.msgpack.encode(Note(not why, why))
        # The party's terminal alone would have shown it.
        with suppress(WireError, RosterError):
            local.ask(Path(self._facts.socket), text, _NOTED_S)

    def _called(self, call: Callable[[Any], Any], request: Any) -> Any:
        """Call the SuperLink, again while the link is cut, and return its response."""
        import httpx

        wait = _FIRST_S
        began = time.monotonic()
        is_told = False
        while True:
            try:
                response = call(request)
                if is_told and self._node is not None:
                    self._note()
                return response
            except httpx.TransportError as error:
                why = _why_lost(error, self._facts)
            except httpx.HTTPStatusError as error:
                # Below 500 it is an answer: the request itself is refused.
                if error.response.status_code < 500:
                    raise
                why = f"its answer is {error.response.status_code}"
            self._missed = time.monotonic()
            if not is_told and self._missed - began > _LOST_S:
                _log.warning("%s is not reached: %s", self._facts.address, why)
                self._note(why)
                is_told = True
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_S)

    def _beat(self) -> None:
        """Show the SuperLink that this node lives, for as long as the process does."""
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest

        while True:
            # Two may be lost before the node counts as gone.
            time.sleep(_HEARTBEAT_S / 3)
            if self._node is not None:
                beat = SendNodeHeartbeatRequest(
                    node=self._node, heartbeat_interval=_HEARTBEAT_S
                )
                with suppress(Exception):  # the next may succeed
                    self._client.SendNodeHeartbeat(beat)

    def go_on(self) -> None:
        """Carry questions until this process is ended."""
        import httpx
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest

        try:
            while True:
                self._activate()
                try:
                    self._carry_all()
                # A new SuperLink knows this node not yet.
                except httpx.HTTPStatusError as error:
                    _log.warning(
                        "%s: %s", self._facts.address, error.response.status_code
                    )
        finally:
            if self._node is not None:
                with suppress(httpx.HTTPError):
                    order = DeactivateNodeRequest(node_id=self._node.node_id)
                    self._client.DeactivateNode(order)

    def _carry_all(self) -> None:
        """Poll for messages, and carry each; HTTPStatusError if this node is not let in."""
        import httpx
        from flwr.proto.fleet_pb2 import PullMessagesRequest
        from flwr.supercore.inflatable.inflatable_utils import (
            ObjectPullError,
            ObjectPushError,
        )

        request = PullMessagesRequest(node=self._node)
        pace = _Pace(_IDLE_S)
        while True:
            pulled = self._called(self._client.PullMessages, request)
            if pulled.messages_list:
                run = pulled.messages_list[0].metadata.run_id
                try:
                    # Held until the answer is sent, which `_watch` waits for.
                    with _carrying:
                        self._carry(run, pulled.message_object_trees[0])
                except (
                    httpx.HTTPStatusError,
                    ObjectPullError,
                    ObjectPushError,
                ) as error:
                    _log.warning("a message was given up: %s", error)
                pace = _Pace(_IDLE_S)
            elif not self._waits.waited:
                time.sleep(pace.wait())

    def _carry(self, run: int, tree: Any) -> None:
        """Carry one question to the party, and its answer back; a lost question comes again.

        What the party says is awaited as long as the message lives.
        """
        from flwr.app import Message
        from flwr.supercore.inflatable import inflatable_protobuf_utils as wire
        from flwr.supercore.inflatable.inflatable_utils import (
            pull_and_inflate_object_from_tree,
        )

        pull = wire.make_pull_object_fn_protobuf(
            self._calling("PullObject"), self._node, run
        )
        confirm = wire.make_confirm_message_received_fn_protobuf(
            self._calling("ConfirmMessageReceived"), self._node, run
        )
        message = pull_and_inflate_object_from_tree(
            tree, pull, confirm, return_type=Message
        )
        # As Flower's own node does.
        message.metadata.__dict__["_message_id"] = tree.object_id
        reply = handed_over(message, Path(self._facts.socket))
        self._push(run, reply)

    def _push(self, run: int, reply: Any) -> None:
        """Announce a reply, then send those of its pieces that the SuperLink does not have."""
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.supercore.inflatable import inflatable_object as objects
        from flwr.supercore.inflatable.inflatable_protobuf_utils import (
            make_push_object_fn_protobuf,
        )
        from flwr.supercore.inflatable.inflatable_utils import push_objects

        # As Flower's own node does.
        reply.metadata.__dict__["_message_id"] = reply.object_id
        # Once for the whole reply, not for each use.
        with objects.no_object_id_recompute():
            announcement = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[objects.get_object_tree(reply)],
                clientapp_runtime_list=[0.0],
            )
            response = self._called(self._client.PushMessages, announcement)
            push = make_push_object_fn_protobuf(
                self._calling("PushObject"), self._node, run, response.session_id
            )
            missing = set(response.objects_to_push)
            push_objects(
                objects.get_all_nested_objects(reply), push, object_ids_to_push=missing
            )

    def _calling(self, name: str) -> Callable[[Any], Any]:
        """Return one of the client's calls as a function that waits while the link is cut."""
        return lambda request: self._called(getattr(self._client, name), request)


def _why_lost(error: Any, facts: NodeFacts) -> str:
    """Explain in a few words why the SuperLink is not reached, without a proxy's password."""
    import httpx

    if isinstance(error, httpx.ProxyError):
        return f"the proxy says: {error}"
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.ConnectError):
        peer = "the proxy" if facts.proxy else "the coordinator"
        return f"{peer} is not reached"
    return type(error).__name__


def _clocks(response: Any, address: str) -> str:
    """Explain why a signature was refused: it signs the time, which the response has as well."""
    server_time = parsedate_to_datetime(response.headers["date"])
    ahead = (datetime.now(UTC) - server_time).total_seconds()
    return (
        f"{address}: refuses what this node signs. This machine's clock is {ahead:+.0f} s "
        "from the SuperLink's, and a few seconds are allowed: set both clocks by the network's "
        "time. If they agree, the node's key file was changed"
    )


# Processes


def _watch(started: io.FileIO) -> None:
    """End this process when its standard input closes: the process that started it has ended.

    A last line on it asks for the answer in hand, as of what a party refuses, to be sent first. The
    node then does not say that it leaves, since Flower gives nobody an answer of one that has left.
    """
    last_line = started.read()
    # Never released: no other question is taken from here on. Without a last line the node need
    # not be idle, and this only tries.
    _carrying.acquire(timeout=CARRIED_S if last_line else 0)
    if last_line:
        os._exit(0)
    # As an interrupt, which lets the process leave in good order; then at once.
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_ENDING_S)
    os._exit(1)


def main() -> None:
    """Run the process whose facts come as the first line of standard input."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    started = io.FileIO(0)  # unbuffered: the last line is `_watch`'s to read
    facts = msgspec.json.decode(
        started.readline(), type=LinkFacts | PairingFacts | NodeFacts
    )
    threading.Thread(target=_watch, args=(started,), daemon=True).start()
    import httpx

    try:
        match facts:
            case LinkFacts():
                _link(facts)
            case PairingFacts():
                _pairing(facts)
            case NodeFacts():
                _node(facts)
    except KeyboardInterrupt:
        return
    except (httpx.HTTPError, RosterError) as error:
        _log.warning("started again, as it lost the other end: %s", error)
        sys.exit(1)
    except InputError as error:
        _log.error("%s%s", FATAL_MARK, error)
        sys.exit(FATAL)


if __name__ == "__main__":
    main()
