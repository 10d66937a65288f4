"""A real network engine on this machine: TLS and keys, what is refused, and what is survived."""

import hashlib
import http.client
import http.server
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from siloweave.errors import InputError, RosterError, StudyError, WireError
from siloweave.federation import certificates, engine, flower, local
from siloweave.federation.watch import Watch
from tests.federation import connecting
from tests.federation.engines import (
    NAMES,
    SuperLink,
    body_in,
    cable,
    children,
    coordinator,
    echo,
    envelope,
    free_port,
    party,
    provisioned,
    seals_of,
    serve,
    study,
)

pytestmark = pytest.mark.engine
pytest.importorskip("flwr", reason="needs the flower extra: make engine")
httpx = pytest.importorskip("httpx")  # Flower's


def test_questions_cross_and_their_cost_is_shown(tmp_path, capsys):
    with study(tmp_path) as link:
        for name in NAMES:
            assert body_in(link.send(name, envelope(name, b"first"))) == b"first"
        count, began = 10, time.monotonic()
        for step in range(count):
            link.send("clinic", envelope("clinic", b"x", step))
        each = (time.monotonic() - began) / count
        sealed = sealing_seconds(envelope("clinic", b"x"))
        body, began = secrets.token_bytes(20_000_000), time.monotonic()
        assert body_in(link.send("lab", envelope("lab", body))) == body
        large = time.monotonic() - began
        with ThreadPoolExecutor(2) as pool:
            both = pool.map(lambda n: link.send(n, envelope(n, n.encode())), NAMES)
            assert [body_in(one) for one in both] == [n.encode() for n in NAMES]
        assert link._states == dict.fromkeys(NAMES, "answered")
    with capsys.disabled():
        print(
            f"\n{each:.2f} s a message, {sealed * 1000:.1f} ms of them sealing and opening; "
            f"20 MB there and back in {large:.1f} s"
        )


def sealing_seconds(frame):
    office, clinic, began = seals_of("coordinator"), seals_of("clinic"), time.perf_counter()
    sealed = office.ask("clinic", frame)
    nonce = office.checked(sealed, "coordinator", "clinic").nonce
    with clinic.answered(sealed, echo) as answer:
        office.open(answer, "clinic", nonce)
    return time.perf_counter() - began


def test_a_refusal_of_the_party_comes_back_as_it_was(tmp_path):
    def reply(question):
        raise InputError("sigma = 0 must be above 0")

    port = free_port()
    provisioned(tmp_path)
    with (
        coordinator(tmp_path, port) as link,
        party(tmp_path, "clinic", port, reply=reply),
        pytest.raises(InputError, match="sigma = 0 must be above 0"),
    ):
        link.send("clinic", envelope("clinic"))


def test_what_a_party_refuses_a_study_with_arrives_though_it_ended_before_that_was_taken(tmp_path):
    """Of a node that has left, Flower gives nobody an answer: it says that the node is away."""
    port = free_port()
    provisioned(tmp_path)
    with coordinator(tmp_path, port) as link, ThreadPoolExecutor(1) as pool:

        def reply(question):
            os.kill(link.processes[1].number, signal.SIGSTOP)  # the pairing, which takes answers
            raise StudyError("its policy does not allow this study")

        asked = pool.submit(link.send, "lab", envelope("lab"))
        try:
            with pytest.raises(StudyError, match="its policy"):
                serve(tmp_path / "lab", seals_of("lab"), reply, f"127.0.0.1:{port}")
        finally:
            os.kill(link.processes[1].number, signal.SIGCONT)
        with pytest.raises(StudyError, match="its policy"):
            asked.result()


# What is refused


@contextmanager
def linked(folder):
    """A coordinator without parties, and its port."""
    port = free_port()
    provisioned(folder)
    with coordinator(folder, port, seconds=4.0) as link:
        yield link, port


def test_a_stranger_can_give_the_superlink_no_order(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def status(path, headers=None, body=b""):
        end = http.client.HTTPSConnection("localhost", port, context=context, timeout=10)
        headers = {"content-type": "application/x-protobuf"} | (headers or {})
        with closing(end):
            end.request("POST", path, body, headers)
            with end.getresponse() as response:
                return response.status

    with linked(tmp_path) as (_, port):
        context.load_verify_locations(tmp_path / "office" / "engine" / "ca.crt")
        for order in (
            "control/start-run",
            "control/register-node",
            "control/list-runs",
            "control/stream-logs",
            "runtime/acquire-task",
            "runtime/push-messages",
        ):
            assert status(f"/v1/{order}") == 404
            assert status(f"/v1/{order}", {"x-siloweave-engine": "0" * 64}) == 404
        assert [status(path) for path in ("/docs", "/openapi.json", "/")] == [404] * 3
        for size in (2**17, 2**22, 2**24):  # also where a node may send so much
            assert status("/v1/fleet/pull-messages", {"content-length": str(size)}) == 413
        assert status("/v1/fleet/pull-messages") in (400, 401, 415, 422)
        assert status("/v1/fleet/../control/start-run") == 404


def test_an_unknown_node_is_not_let_in_and_says_so(tmp_path):
    with linked(tmp_path) as (link, port):
        (tmp_path / "lab" / "engine" / "node.key").unlink()  # a new one is made, which nobody knows
        began = time.monotonic()
        with pytest.raises(InputError, match="has refused this node's key for 60 s"):
            serve(tmp_path / "lab", seals_of("lab"), echo, f"127.0.0.1:{port}")
        assert time.monotonic() - began < 90
        match = r"'lab' did not answer.*has no engine node.*Noticed: a node whose key the coord"
        with pytest.raises(RosterError, match=match):
            link.send("lab", envelope("lab"))


class Doors:
    """A client of a SuperLink that refuses a node's key, is away, or lets it in; 25 s each."""

    def __init__(self, *answers):
        self.answers, self.seconds = iter(answers), 0.0

    def ActivateNode(self, order):
        self.seconds += 25.0
        match next(self.answers):
            case "refused":
                where = httpx.Request("POST", "https://127.0.0.1")
                response = httpx.Response(403, request=where)
                raise httpx.HTTPStatusError("refused", request=where, response=response)
            case "away":
                raise httpx.ConnectError("away")
        return SimpleNamespace(node_id=7)


@pytest.mark.parametrize(
    ("answers", "let_in"),
    [
        (("refused", "refused", "let in"), True),
        (("refused", "refused", "refused", "let in"), False),
        (("refused", "refused", "away", "refused", "refused", "let in"), True),
        (("refused", "away", "refused", "refused", "refused", "let in"), False),
    ],
)
def test_a_superlink_that_was_away_may_take_its_time_anew(answers, let_in, tmp_path, monkeypatch):
    """Or a coordinator that is started a few times within a minute loses all its parties."""
    doors = Doors(*answers)
    clock = SimpleNamespace(monotonic=lambda: doors.seconds, sleep=time.sleep)
    monkeypatch.setattr(flower, "time", clock)
    monkeypatch.setattr(flower, "_LONGEST_S", 0.01)
    monkeypatch.setattr(flower, "_FIRST_S", 0.01)
    facts = flower.NodeFacts("127.0.0.1:9", "ca.crt", str(tmp_path / "no"), "node.key")
    public = ec.generate_private_key(ec.SECP384R1()).public_key()
    node = flower._Carrying(doors, public, facts, flower._Waits())
    if let_in:
        node._activate()
        assert node._node.node_id == 7
    else:
        with pytest.raises(InputError, match="has refused this node's key for 60 s"):
            node._activate()


def test_a_wrong_clock_is_named_with_how_wrong_it_is(tmp_path, monkeypatch):
    """The SuperLink is a real one and refuses the signature; what is set wrong is this clock."""
    late = timedelta(minutes=2)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + late

    monkeypatch.setattr(flower, "datetime", Clock)
    monkeypatch.setattr("flwr.supernode.node_auth_http_interceptor.now", lambda: Clock.now(UTC))
    with linked(tmp_path) as (link, port):
        home = tmp_path / "lab" / "engine"
        key, trusted = home / certificates.NODE_KEY, home / certificates.AUTHORITY
        certificates.check_server("127.0.0.1", port, trusted)
        with pytest.raises(InputError, match=r"clock is \+1(19|2\d) s from .* set both clocks"):
            flower._node(
                flower.NodeFacts(f"127.0.0.1:{port}", str(trusted), str(home / "no"), str(key))
            )
        said = {}
        link.noticed = said.__setitem__
        match = r"'lab' did not answer within 4 s.*Noticed: its clock is 1(19|2\d) s ahead of this"
        with pytest.raises(RosterError, match=match):
            link.send("lab", envelope("lab"))
        assert said.keys() == {"lab"}
        assert "set both by the network's time" in said["lab"]


def signed(key):
    """Headers of a node's request, as Flower's own code signs it."""
    request = SimpleNamespace(headers={})
    theirs = pytest.importorskip("flwr.supernode.node_auth_http_interceptor")
    theirs.NodeAuthHttpInterceptor(key, key.public_key()).intercept(
        SimpleNamespace(request=request), lambda context: None
    )
    return {name.encode(): value.encode() for name, value in request.headers.items()}


def test_a_clock_counts_only_if_the_node_has_signed_it(monkeypatch):
    node, other = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    monkeypatch.setattr(
        "flwr.supernode.node_auth_http_interceptor.now",
        lambda: datetime.now(UTC) - timedelta(hours=1),
    )
    headers = signed(node)
    key, ahead = flower._signed(headers)
    assert key == headers[b"flwr-public-key"].decode()
    assert -3610 < ahead <= -3600
    theirs = signed(other)
    for name in (b"flwr-signature", b"flwr-public-key"):
        assert flower._signed(headers | {name: theirs[name]}) == ("", 0.0)
        assert flower._signed(headers | {name: b"?"}) == ("", 0.0)
    assert flower._signed(headers | {b"flwr-timestamp": b"2026-01-01T00:00:00+00:00"}) == ("", 0.0)
    assert flower._signed({}) == ("", 0.0)


def test_every_process_of_the_engine_has_telemetry_and_updates_switched_off(tmp_path):
    with study(tmp_path) as link:
        link.send("lab", envelope("lab"))
        found = {}
        for number in children(os.getpid()):
            said = Path(f"/proc/{number}/environ").read_bytes().decode().split("\0")
            found[number] = dict(one.split("=", 1) for one in said if "=" in one)
        assert {one.number for one in link.processes} < found.keys()
        assert len(found) == 2 + len(NAMES)
        for own in found.values():
            assert (own["FLWR_TELEMETRY_ENABLED"], own["FLWR_DISABLE_UPDATE_CHECK"]) == ("0", "1")
            assert own["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
        assert not any(children(number) for number in found)


def refused(folder, port, match, host="127.0.0.1"):
    began = time.monotonic()
    with pytest.raises(InputError, match=match):
        serve(folder / "lab", seals_of("lab"), echo, f"{host}:{port}", seconds=1.0)
    assert time.monotonic() - began < 10


def test_plaintext_is_for_this_machine_alone(tmp_path):
    provisioned(tmp_path)
    with pytest.raises(InputError, match="a link without TLS is for trials on one machine alone"):
        engine.Engine(
            tmp_path / "office", seals_of("coordinator"), "0.0.0.0:9092", seconds=1, plaintext=True
        )
    port = free_port()
    with coordinator(tmp_path, port, plaintext=True) as link:
        refused(tmp_path, port, "speaks no TLS")
        with party(tmp_path, "lab", port, plaintext=True):
            assert body_in(link.send("lab", envelope("lab", b"all the same"))) == b"all the same"


def test_a_port_in_use_a_malformed_address_and_nobody_there(tmp_path):
    provisioned(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=r"cannot be listened at .*in use.*Give another port"):
            coordinator(tmp_path, port).__enter__()
    with pytest.raises(InputError, match="must be HOST:PORT"):
        engine.Engine(tmp_path / "office", seals_of("coordinator"), "office", seconds=1)
    refused(tmp_path, port, "nobody answered for 1 s")


# A proxy on the way, and what a terminal says


def told(lines, text, seconds=60.0):
    """Wait until a terminal has a line with this text."""
    end = time.monotonic() + seconds
    while not any(text in line for line in lines):
        assert time.monotonic() < end, lines
        time.sleep(0.05)


def test_a_party_goes_through_a_proxy_and_its_terminal_says_how_the_link_is(tmp_path):
    port, lines = free_port(), []
    provisioned(tmp_path)
    watch = Watch("party 'lab'", lines.append)
    with connecting.proxy(word=b"YW5uOmJlZQ==") as proxy:
        url = f"http://ann:bee@127.0.0.1:{proxy.port}"
        with (
            coordinator(tmp_path, port) as link,
            party(tmp_path, "lab", port, proxy=url, watch=watch),
        ):
            assert body_in(link.send("lab", envelope("lab", b"through"))) == b"through"
            told(lines, "connected")
            os.kill(link.processes[0].number, signal.SIGKILL)  # the SuperLink
            told(lines, "lost (")
            told(lines, "back after")  # although nobody is asked anything
            assert body_in(link.send("lab", envelope("lab", b"again", 1))) == b"again"
        assert len(proxy.heads) >= 2  # of the check before, and of the node
        assert all(b"CONNECT 127.0.0.1:%d " % port in head for head in proxy.heads)
    assert lines[0] == f"party 'lab': connecting to 127.0.0.1:{port} through 127.0.0.1:{proxy.port}"
    assert "party 'lab': waiting for the first question" in lines
    assert max(map(len, lines)) <= 80
    log = (tmp_path / "lab" / "engine" / "node.log").read_text()
    assert "bee" not in log


@pytest.mark.parametrize(
    ("status", "match"), [(403, "refuses to connect to 127"), (407, "asks for a password")]
)
def test_a_proxy_that_refuses_ends_the_party_at_once(tmp_path, status, match):
    provisioned(tmp_path)
    with connecting.proxy(status) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        with pytest.raises(InputError, match=match):
            serve(tmp_path / "lab", seals_of("lab"), echo, "127.0.0.1:9", proxy=url)


# Many replies, large ones, and malformed ones


class Replies:
    """A SuperLink's grid with replies by the name of what they answer; counts those at a time."""

    def __init__(self, replies):
        self.replies, self.most = replies, 0

    def pull_messages(self, names):
        found = [self.replies.pop(name) for name in names if name in self.replies]
        self.most = max(self.most, len(found))
        if any(one is ValueError for one in found):
            self.replies |= dict(zip(names, found, strict=True)) if len(names) > 1 else {}
            raise ValueError("cannot be inflated")
        return found


def reply_to(name, content, error=False):
    metadata = SimpleNamespace(reply_to_message_id=name)
    return SimpleNamespace(metadata=metadata, content=content, has_error=lambda: error)


def answer_of(name, frame=b"frame"):
    return reply_to(name, {"000000": {"kind": 0, "frame": frame}})


def sent(count):
    return {str(i): flower.Question(i, "lab", b"", 1.0) for i in range(count)}


def test_a_malformed_reply_ends_no_other_question():
    odd = [
        reply_to("0", {}),
        reply_to("1", {"000000": {"kind": "x"}}),
        reply_to("2", {"000000": {"kind": 77}}),
        reply_to("3", {"000000": {"kind": 0, "frame": "text"}}),
        reply_to("4", {"000000": {"kind": 0}}),
        reply_to("5", None),
        ValueError,
        reply_to("7", {}, error=True),
        answer_of("8"),
    ]
    grid = Replies({str(i): one for i, one in enumerate(odd)})
    asked, outcomes = sent(9), []
    while asked:
        outcomes += flower._fetched(grid, asked)
    kinds = {one.number: one.kind for one in outcomes}
    malformed = dict.fromkeys(range(7), flower.MALFORMED)
    assert kinds == {**malformed, 7: flower.AWAY, 8: flower.ANSWERED}


def test_large_answers_are_reported_in_pieces(monkeypatch):
    """Four of 100 MB at once, and a hundred of 2.7 MB, were too much for one report."""
    monkeypatch.setattr(flower, "_REPORT_BYTES", 1000)
    grid = Replies({str(i): answer_of(str(i), bytes(400)) for i in range(20)})
    grid.replies["3"] = answer_of("3", bytes(5000))
    asked, outcomes = sent(20), []
    while asked:
        outcomes += flower._fetched(grid, asked)
    assert grid.most <= 4
    sizes, left = [], outcomes
    while left:
        reported, left = flower._piece(left)
        sizes.append([len(one.frame) for one in reported])
    assert sum(map(len, sizes)) == 20
    assert [5000] in sizes
    assert all(sum(some) <= 1000 or len(some) == 1 for some in sizes)


# A SuperLink that others run


@contextmanager
def others(folder, *options, **named):
    """A SuperLink of others, and the ends' folders, which trust its authority."""
    with SuperLink(folder / "others", *options, **named) as link:
        provisioned(folder, authority=link.folder / "ca.crt")
        yield link


def joined(folder, port, **named):
    return coordinator(folder, port, joined=True, **named)


def cannot_join(folder, port, match, **named):
    with joined(folder, port, **named) as link, pytest.raises(InputError, match=match):
        link.send("lab", envelope("lab"))


def test_a_superlink_of_others_that_lets_in_any_node_is_refused(tmp_path):
    with others(tmp_path, nodes=False) as link:
        cannot_join(tmp_path, link.port, "lets in any node. Start it with --enable-supernode-auth")
        nodes = link.post("control/list-nodes")
        assert nodes.count(b"registered") == nodes.count(b"unregistered")  # none of the trial


def test_a_superlink_of_others_that_is_another_is_refused(tmp_path):
    with others(tmp_path) as link:
        certificates.make_certificates(tmp_path / "office" / "engine", [])  # of another authority
        with pytest.raises(InputError, match=r"was not issued by .*ca\.crt, so another server"):
            joined(tmp_path, link.port).__enter__()
        link.kill()
        certificates.trust(tmp_path / "office" / "engine", link.folder / "ca.crt")
        with pytest.raises(InputError, match=r"nobody answered for 1 s .* that the SuperLink runs"):
            joined(tmp_path, link.port, seconds=1.0).__enter__()
        with pytest.raises(InputError, match="with a SuperLink of ours"):
            joined(tmp_path, link.port, plaintext=True).__enter__()


def test_a_superlink_of_others_that_is_gone_for_good_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_SILENT_S", 3.0)
    with others(tmp_path) as link, joined(tmp_path, link.port, seconds=12.0) as own:
        link.kill()
        with pytest.raises(
            RosterError, match="cannot be asked, since the SuperLink is not reached"
        ):
            own.send("lab", envelope("lab"))


def test_a_secret_for_tasks_is_asked_for_and_is_enough(tmp_path):
    word = tmp_path / "secret"
    word.write_bytes(secrets.token_bytes(32))
    with others(tmp_path, "--superexec-auth-secret-file", str(word)) as link:
        cannot_join(tmp_path, link.port, "give the file of its --superexec")
        (tmp_path / "other").write_text("another")
        cannot_join(tmp_path, link.port, "give the file of its", join_secret=tmp_path / "other")
        with (
            joined(tmp_path, link.port, join_secret=word) as own,
            party(tmp_path, "lab", link.port),
        ):
            assert body_in(own.send("lab", envelope("lab", b"with it"))) == b"with it"


def test_a_task_that_others_take_is_named(tmp_path):
    """As an executor does, which looks for tasks more often than any real one."""
    ended = threading.Event()

    def take(link):
        while not ended.is_set():
            link.post("runtime/acquire-task", SERVER_APPS)

    with others(tmp_path) as link, ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(take, link)
        try:
            cannot_join(tmp_path, link.port, "gave the study's task to another")
        finally:
            ended.set()


@contextmanager
def answers(folder, found):
    """A server with a certificate that gives to each path a status and a body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            status, body = found.get(self.path, (404, b""))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *_):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.socket = context.wrap_socket(made.socket, server_side=True)
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made.server_port
        made.shutdown()


def test_another_version_and_a_superlink_with_accounts_are_named(tmp_path):
    provisioned(tmp_path)
    home = tmp_path / "office" / "engine"
    this = {"/openapi.json": (200, b'{"version":"1.42.0"}')}
    for found, match in (
        ({"/openapi.json": (200, b'{"version":"1.40.0"}')}, r"1\.42\.0: .*1\.40\.0"),
        ({}, "openapi.json is "),
        (this | {"/v1/fleet/register-node": (412, b""), "/v1/control/list-nodes": (401, b"")},
         "takes orders from accounts alone"),
    ):  # fmt: skip
        with answers(home, found) as port:
            cannot_join(tmp_path, port, match)


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")  # of a library that Flower uses
def test_what_others_do_at_their_superlink_does_not_disturb_a_study(tmp_path):
    """They keep their tasks, and may send to nodes what they like."""
    with others(tmp_path) as link:
        nodes = engine._nodes_in(tmp_path / "office" / "engine" / "nodes.json")
        authority, own = str(link.folder / "ca.crt"), str(tmp_path / "theirs.sock")
        theirs = {"theirs": nodes["lab"]}
        facts = flower.PairingFacts(f"127.0.0.1:{link.port}", "", authority, own, theirs, True)
        fab = flower._application(msgspec.structs.replace(facts, nodes={}))
        order = field(1, hashlib.sha256(fab).hexdigest().encode()) + field(2, fab)
        assert link.post("control/start-run", field(1, order))
        with joined(tmp_path, link.port) as coordinator, party(tmp_path, "lab", link.port):
            assert body_in(coordinator.send("lab", envelope("lab", b"first"))) == b"first"
            assert carried(facts, 4) == [flower.REFUSED] * 4
            assert body_in(coordinator.send("lab", envelope("lab", b"second", 1))) == b"second"
        assert link.post("control/list-runs").count(b"stopped") == 2  # with the one of `carried`
        assert link.post("runtime/acquire-task", SERVER_APPS)
        assert not link.post("runtime/acquire-task", SERVER_APPS)


SERVER_APPS = b"\x0a\x0eflwr-serverapp"


def field(number, data):
    """A field of a message in Flower's protocol, for those who have none of its code."""
    size, length = b"", len(data)
    while length > 127:
        size, length = size + bytes([length % 128 + 128]), length // 128
    return bytes([8 * number + 2]) + size + bytes([length]) + data


def odd(message):
    """Makes messages of which each lacks something else, or is no frame."""

    def made(frame, *args, **named):
        found = message(frame, *args, **named)
        what = frame.decode()
        if what == "empty":
            del found.content["000000"]
        elif what == "no frame":
            del found.content["000000"]["frame"]
        elif what == "text":
            found.content["000000"]["frame"] = "text"
        return found

    return made


OTHERS = """
from siloweave.federation import flower
from tests.federation.test_engine import odd
flower._message = odd(flower._message)
flower.main()
"""


def carried(facts, count):
    """What becomes of so many questions of another who pairs himself with a SuperLink."""
    kinds = []

    def reported(data):
        report = msgspec.msgpack.decode(data, type=flower.Report)
        kinds.extend(one.kind for one in report.outcomes)
        if len(kinds) == count:
            raise WireError("enough")
        words = ["empty", "no frame", "text", "of nobody in the roster"][:count]
        asked = [
            flower.Question(i, "theirs", one.encode(), 60.0)
            for i, one in enumerate(words)
            if i not in report.known and len(kinds) <= i
        ]
        return msgspec.msgpack.encode(flower.Orders(asked, list(range(count))))

    with local.Server(Path(facts.socket), reported):
        process = subprocess.Popen(
            [sys.executable, "-c", OTHERS], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        process.stdin.write(msgspec.json.encode(facts) + b"\n")
        process.stdin.flush()
        process.wait(60)
        process.stdin.close()
    return kinds


# What is survived


def asked(link, seconds, pause=0.2):
    """Ask both parties, again and again, for so long; the longest wait for an answer."""
    longest, step, end = 0.0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for name in NAMES:
            began = time.monotonic()
            body = f"{name} {step}".encode()
            assert body_in(link.send(name, envelope(name, body, step))) == body
            longest = max(longest, time.monotonic() - began)
        step += 1
        time.sleep(pause)
    return longest


def killed(process):
    before = process.number
    os.kill(before, signal.SIGKILL)
    return before


@pytest.mark.parametrize("which", [0, 1], ids=["superlink", "pairing"])
def test_a_process_of_the_coordinator_that_is_killed_comes_back(tmp_path, which):
    with study(tmp_path) as link:
        asked(link, 1.0)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(asked, link, 15.0)
            time.sleep(2.0)
            before = killed(link.processes[which])
            assert running.result() < 40
        assert link.processes[which].number != before


def test_a_node_that_is_killed_comes_back(tmp_path):
    port = free_port()
    provisioned(tmp_path)
    with coordinator(tmp_path, port) as link, party(tmp_path, "lab", port):
        others = children(os.getpid())
        with party(tmp_path, "clinic", port):
            asked(link, 1.0)
            (node,) = children(os.getpid()) - others
            os.kill(node, signal.SIGKILL)
            assert asked(link, 5.0) < 50  # the SuperLink lets no second one in for 20 s


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_a_link_that_is_cut_for_a_while(tmp_path, seconds):
    """After a minute the node has missed what Flower wants of it, and is let in anew."""
    port = free_port()
    provisioned(tmp_path)
    with (
        coordinator(tmp_path, port, seconds=150.0) as link,
        cable(port) as (cut, through),
        party(tmp_path, "clinic", through),
        party(tmp_path, "lab", port),
    ):
        asked(link, 1.0)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(asked, link, seconds + 4.0)
            time.sleep(1.0)
            cut.set()
            time.sleep(seconds)
            cut.clear()
            assert seconds / 2 < running.result() < seconds + 60


def test_a_party_that_does_not_run_is_named_at_the_deadline(tmp_path):
    port = free_port()
    provisioned(tmp_path)
    with coordinator(tmp_path, port, seconds=6.0) as link:
        with pytest.raises(RosterError, match="'lab' did not answer within 6 s: it has no engine"):
            link.send("lab", envelope("lab"))
        with engine.answering(tmp_path / "lab", seals_of("lab"), echo, f"127.0.0.1:{port}") as off:
            off.close()  # the node runs, and the party does not
            time.sleep(4.0)
            with pytest.raises(RosterError, match="connected, and does not run itself"):
                link.send("lab", envelope("lab"))
        link.await_for(60.0)  # its node may take longer than 6 s to start
        with party(tmp_path, "lab", port):
            assert body_in(link.send("lab", envelope("lab", b"at last"))) == b"at last"


STUDY = """
import sys, time
from pathlib import Path
from tests.federation.engines import NAMES, envelope, study
with study(Path(sys.argv[1])) as link:
    for name in NAMES:
        link.send(name, envelope(name))
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_of_the_engine_outlives_us(tmp_path, sent):
    command = [sys.executable, "-c", STUDY, str(tmp_path)]
    ours = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert ours.stdout.readline() == b"up\n"
    started = children(ours.pid)
    assert len(started) == 4
    ours.send_signal(sent)
    end = time.monotonic() + 10
    while time.monotonic() < end and any(is_running(one) for one in started):
        time.sleep(0.1)
    assert not [one for one in started if is_running(one)]
    ours.kill()
    ours.wait()
    ours.stdout.close()


def is_running(number):
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(number)], capture_output=True)
    return bool(listed.stdout.strip()) and not listed.stdout.startswith(b"Z")
