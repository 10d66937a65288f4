"""Certificates of the link between coordinator and parties, and what strangers can ask of it."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from siloweave.errors import InputError, RosterError
from siloweave.federation import certificates, engine, flower
from siloweave.federation.watch import Watch
from tests.federation.engines import envelope, free_port, provisioned, seals_of, serve
from tests.federation.tls import server


@pytest.fixture
def home(tmp_path):
    certificates.make_certificates(tmp_path / "office", ["office.example.org", "192.0.2.7"])
    return tmp_path / "office"


def test_the_coordinator_is_known_by_its_authority(home):
    with server(home) as port:
        for name in certificates.LOCAL[:2]:
            certificates.check_server(name, port, home / "ca.crt")
    for name in (*certificates.LOCAL, "office.example.org", "192.0.2.7"):
        certificates.check_own(home, name)
    with pytest.raises(InputError, match=r"is not for 'other\.example\.org'; parties would refuse"):
        certificates.check_own(home, "other.example.org")


def test_keys_are_for_their_owner_alone_and_stay_when_certificates_are_made_anew(home):
    keys = {one: one.read_bytes() for one in home.glob("*.key")}
    assert len(keys) == 2
    assert all(one.stat().st_mode & 0o077 == 0 for one in home.iterdir())
    authority = (home / "ca.crt").read_bytes()
    certificates.make_certificates(home, ["elsewhere.example.org"])
    assert keys == {one: one.read_bytes() for one in keys}
    assert (home / "ca.crt").read_bytes() == authority
    certificates.check_own(home, "elsewhere.example.org")


def test_another_authority_and_a_wrong_name_are_refused(home, tmp_path):
    certificates.make_certificates(tmp_path / "other", [])
    with server(home) as port:
        with pytest.raises(InputError, match=r"is not for '127\.0\.0\.2'; use a name"):
            certificates.check_server("127.0.0.2", port, home / "ca.crt")
        with pytest.raises(InputError, match=r"was not issued by .*ca\.crt"):
            certificates.check_server("127.0.0.1", port, tmp_path / "other" / "ca.crt")
    (home / "ca.crt").write_bytes((tmp_path / "other" / "ca.crt").read_bytes())
    with pytest.raises(InputError, match="was not issued by"):
        certificates.check_own(home, "localhost")


def test_an_expired_certificate_is_refused_at_both_ends(home):
    certificates.make_certificates(home, [], days=0)
    with pytest.raises(InputError, match=r"server\.crt: expired on .*; make a new one"):
        certificates.check_own(home, "localhost")
    with (
        server(home) as port,
        pytest.raises(InputError, match=r"has expired \(by this machine's clock, 20.*; ask"),
    ):
        certificates.check_server("127.0.0.1", port, home / "ca.crt")


def test_a_certificate_about_to_expire_is_said_at_both_ends(home, caplog):
    certificates.make_certificates(home, [], days=20)
    certificates.check_own(home, "127.0.0.1")
    with server(home) as port:
        certificates.check_server("127.0.0.1", port, home / "ca.crt")
    assert "server.crt: expires on" in caplog.text
    assert f"the certificate of 127.0.0.1:{port}: expires on" in caplog.text
    assert caplog.text.count("in 19 days") == 2


def test_no_tls_and_nobody_there(home):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def speak():
            end, _ = listening.accept()
            with end:
                end.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                end.recv(1000)

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(InputError, match="speaks no TLS"):
            certificates.check_server("127.0.0.1", port, home / "ca.crt")
        thread.join()
    with pytest.raises(ConnectionError):
        certificates.check_server("127.0.0.1", port, home / "ca.crt")


@pytest.mark.parametrize("word", ["", "AAAA", "?", "A" * 68])
def test_what_is_no_key_of_a_node(word, tmp_path):
    good = certificates.node_key(tmp_path / "node.key")
    assert certificates.node_key(tmp_path / "node.key") == good
    assert certificates.node_key_in(good)
    with pytest.raises(InputError, match="is no public key of an engine node"):
        certificates.node_key_in(word)


def test_names_and_files_that_cannot_be_used(home):
    with pytest.raises(InputError, match="must be a DNS name in ASCII, or an IP address"):
        certificates.make_certificates(home, ["büro.example.org"])
    (home / "server.key").write_bytes(b"cut")
    with pytest.raises(InputError, match=r"server\.key: cannot be read as a key"):
        certificates.make_certificates(home, [])


# The engine's ends, before anything is started


def made(folder, address="127.0.0.1:9092", **named):
    return engine.Engine(folder / "office", seals_of("coordinator"), address, seconds=1, **named)


def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
    for start in (
        lambda: made(tmp_path),
        lambda: serve(tmp_path, seals_of("lab"), lambda question: b"", "localhost:1"),
    ):
        with pytest.raises(InputError, match=r"run: pip install '\.\[flower\]'"):
            start()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def provided(tmp_path, monkeypatch):
    """Folders of all ends; Flower counts as installed, and is not needed."""
    monkeypatch.setattr(engine, "need_flower", lambda: None)
    return provisioned(tmp_path)


def test_what_an_engine_cannot_start_with(provided):
    with pytest.raises(InputError, match="address='office' must be HOST:PORT"):
        made(provided, "office")
    with pytest.raises(InputError, match=r"is for trials on one machine alone"):
        made(provided, "0.0.0.0:9092", plaintext=True)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match=r"cannot be listened at .*in use.*Give another port"),
    ):
        made(provided, f"127.0.0.1:{taken.getsockname()[1]}")
    with pytest.raises(InputError, match=r"is not for '127\.0\.0\.3'"):
        made(provided, f"127.0.0.3:{free_port()}")
    nodes = provided / "office" / "engine" / "nodes.json"
    nodes.write_text("{}")
    with pytest.raises(
        InputError, match=r"nodes\.json: has no public key of the engine node of 'clinic'"
    ):
        made(provided)
    nodes.unlink()
    with pytest.raises(InputError, match=r"nodes\.json: cannot be read .* provision the study"):
        made(provided)


def test_a_party_waits_for_the_coordinator_only_so_long(provided):
    with pytest.raises(InputError, match=r"nobody answered for 0\.5 s .*may connect to it"):
        serve(provided / "lab", seals_of("lab"), lambda question: b"", "127.0.0.1:1", seconds=0.5)
    assert not (provided / "lab" / "party.sock").exists()


async def whole_body():
    """A body that has come whole."""
    return {"type": "http.request", "body": bytes(10), "more_body": False}


def status(path, *headers, kind="http"):
    """What a guarded application answers; None where the application itself was reached."""

    async def app(scope, receive, send):
        reached.append(scope)

    async def send(message):
        sent.append(message)

    reached, sent = [], []
    scope = {"type": kind, "path": path, "headers": [(k, v) for k, v in headers]}
    asyncio.run(flower._guarded(app, "secret")(scope, whole_body, send))
    assert len(reached) + (len(sent) > 0) <= 1
    return None if reached else sent[0]["status"] if sent else "closed"


SIZE, SECRET = (b"content-length", b"10"), (b"x-siloweave-engine", b"secret")


def test_strangers_reach_only_what_nodes_talk_to():
    assert status("/v1/fleet/pull-messages", SIZE) is None
    assert status("/v1/control/start-run", SIZE, SECRET) is None
    for path in ("/v1/control/start-run", "/v1/runtime/acquire-task", "/docs", "/v1/fleets"):
        assert status(path, SIZE) == 404
        assert status(path, SIZE, (SECRET[0], b"secreT")) == 404
    for size in ((), [(b"content-length", b"x")], [(b"content-length", b"%d" % (2**23 + 1))]):
        assert status("/v1/fleet/push-object", *size) == 413
    assert status("/v1/fleet/x", kind="websocket") == "closed"
    assert status("", kind="lifespan") is None


def polled(*requests, status=200, body=b"", meanwhile=None):
    """Whether a poll of node 7 has been answered, first and after each request; its header."""

    async def flowers(scope, receive, send):
        if scope["path"] == flower._POLL and meanwhile:
            await ask(*meanwhile)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def ask(path, *headers):
        async def send(part):
            sent.append(part)

        sent = []
        await guarded({"type": "http", "path": path, "headers": [SIZE, *headers]}, whole_body, send)
        return sent

    async def all_asked():
        poll = asyncio.create_task(ask(flower._POLL, (WAITS, b"7")))
        await asyncio.wait([poll], timeout=0.1)
        found = [poll.done()]
        for one in requests:
            await ask(*one)
            await asyncio.wait([poll], timeout=0.1)
            found.append(poll.done())
        poll.cancel()  # as where the SuperLink ends
        return found, (WAITS, b"1") in (await poll)[0]["headers"]

    guarded = flower._guarded(flowers, "secret")
    return asyncio.run(all_asked())


WAITS = b"x-siloweave-waits"


def test_a_poll_waits_until_the_coordinator_has_a_message_for_this_node(monkeypatch):
    def came(nodes, *more, path="/v1/runtime/pull-messages"):
        return path, (b"x-siloweave-came", nodes), *more

    strangers = came(b"7"), came(b"7", path="/v1/fleet/x"), came(b"7", SECRET, path="/v1/fleet/x")
    others = came(b"", SECRET), came(b"5 77", SECRET)
    answered = [False] * 6 + [True]
    assert polled(*strangers, *others, came(b"5 7", SECRET)) == (answered, True)
    assert polled() == ([False], True)
    assert polled(meanwhile=came(b"7", SECRET)) == ([True], True)
    monkeypatch.setattr(flower, "_HELD_S", 0.001)
    assert polled() == ([True], True)


def test_a_poll_that_found_a_message_or_was_refused_does_not_wait():
    assert polled(body=b"a message") == ([True], False)
    assert polled(status=401) == ([True], False)


def test_clocks_that_are_apart_are_said():
    late = format_datetime(datetime.now(UTC) - timedelta(seconds=90), usegmt=True)
    text = flower._clocks(SimpleNamespace(headers={"date": late}), "office:9092")
    assert "This machine's clock is +90 s" in text or "is +91 s" in text


def told(*requests):
    """What the pairing is answered with beside what it asked, after requests of nodes.

    Each has a status that Flower answers with, and who has signed it, a name for a key.
    """

    async def flowers(scope, receive, send):
        await send({"type": "http.response.start", "status": scope["status"], "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(path, status, *headers):
        async def send(part):
            sent.append(part)

        sent = []
        scope = {"type": "http", "path": path, "headers": [SIZE, *headers], "status": status}
        await guarded(scope, whole_body, send)
        return [msgspec.json.decode(v) for k, v in sent[0]["headers"] if k == REFUSED]

    async def all_asked():
        for path, status, who in requests:
            assert await ask(path, status, (b"flwr-public-key", who)) == []
        return [await ask("/v1/control/list-runs", 200, SECRET) for _ in range(2)]

    guarded = flower._guarded(flowers, "secret")
    return asyncio.run(all_asked())


REFUSED, ACTIVATE = b"x-siloweave-refused", "/v1/fleet/activate-node"


def test_nodes_that_were_refused_are_named_to_the_pairing_once(monkeypatch):
    monkeypatch.setattr(
        flower, "_signed", lambda headers: (headers[b"flwr-public-key"].decode(), -900.0)
    )
    asked = (ACTIVATE, 401, b"late"), (ACTIVATE, 412, b"unknown"), (ACTIVATE, 200, b"fine")
    forged = (ACTIVATE, 401, b"")
    assert told(*asked, forged) == [[{"late": -900.0, "unknown": 0.0}], []]
    assert told() == [[], []]
    (found,), _ = told(*((ACTIVATE, 412, b"%d" % i) for i in range(50)))
    assert len(found) == 20


FINE, WRONG = (-299.0, -0.2, 3.0), (-306.0, 5.1)


@pytest.mark.parametrize("ahead", FINE + WRONG)
def test_a_node_that_a_new_superlink_does_not_know_has_no_wrong_clock(ahead, monkeypatch):
    monkeypatch.setattr(flower, "_signed", lambda headers: ("lab", ahead))
    said = ahead if ahead in WRONG else 0.0
    assert told((ACTIVATE, 401, b"lab"))[0] == [{"lab": said}]


def lines_while_awaited(monkeypatch, **named):
    """What a terminal shows while a server starts that answers the seventh time."""
    shown, answers = [], iter([ConnectionRefusedError(111, "Connection refused")] * 6)

    def check(host, port, authority, proxy):
        for error in answers:
            raise ConnectionError(f"{host}:{port}: {error.strerror}")

    monkeypatch.setattr(certificates, "check_server", check)
    monkeypatch.setattr(engine, "_FIRST_S", 1e-3)
    facts = "office", 9092, Path("ca.crt"), 60.0, "the coordinator", None
    engine._await_server(*facts, Watch("party 'north'", shown.append), **named)
    return shown


def test_a_server_that_does_not_answer_yet_is_named_by_its_reason(monkeypatch):
    line = "party 'north': not connected (Connection refused); trying again"
    assert lines_while_awaited(monkeypatch) == [line]


def test_a_superlink_of_this_ends_own_is_given_time_to_start(monkeypatch):
    assert lines_while_awaited(monkeypatch, is_own=True) == []


def test_a_party_has_its_time_from_when_its_question_was_taken(provided, monkeypatch):
    """Here the pairing takes its time, and is then cut off; nothing of the engine runs."""
    monkeypatch.setattr(engine, "_Supervised", lambda *_: SimpleNamespace(fatal="", stop=lambda: 0))
    monkeypatch.setattr(engine, "_await_server", lambda *_, **__: None)
    monkeypatch.setattr(engine, "_PATIENCE_S", 0.2)
    seconds, queued = 1.0, 1.6

    def late():
        began = time.monotonic()
        with pytest.raises(RosterError, match="'lab' did not answer within 1 s"):
            link.send("lab", envelope("lab"))
        return time.monotonic() - began

    with made(provided, f"127.0.0.1:{free_port()}") as link:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(late)
            time.sleep(queued)
            assert not asked.done()
            orders = link._reported(msgspec.msgpack.encode(flower.Report([], [], 0.1)))
            (given,) = msgspec.msgpack.decode(orders, type=flower.Orders).questions
            assert given.party == "lab"
            assert queued + seconds <= asked.result()
        monkeypatch.setattr(engine, "_SILENT_S", 0.0)
        assert late() >= seconds
