"""A network engine as a carrier of sealed frames: Flower, in processes that this module supervises.

At the coordinator, `Engine` starts Flower's SuperLink, or joins one that others run, and what pairs
it with the session; at a party, `answering` starts the node that connects to it, outwards only.
federation/flower.py says what these processes do. They hold no key of the study and no row, and may
crash, restart, or carry what a hostile SuperLink sends. They run as the end's own user, but from
another folder than the study's, without its modules (federation/processes.py). A node of another
user, or in a container, connects to a socket of its own (`awaiting_node`, `carrying_to`).
A message that is lost with one of them is sealed anew and asked again, and a party answers it with
the stored bytes.

Each process is started again when it ends, after a pause that doubles, and ends when this one does.
What it prints goes to a file beside its state.

**Guarantee**: none of its own, see federation/frames.py. Telemetry, checks for updates and
installing of packages are switched off in every process of the engine.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path

import msgspec

from siloweave.errors import InputError, RosterError, WireError
from siloweave.federation import certificates, flower, local, processes
from siloweave.federation.frames import Opened, Seals
from siloweave.federation.messages import MAX_BYTES
from siloweave.federation.proxies import Proxy, connected, proxy_for
from siloweave.federation.watch import Watch
from siloweave.privacy.journal import for_its_owner, write_whole

HOME = "engine"
"""In an end's folder: the engine's own."""
FLOWER_HOME = "home"
"""In the engine's folder: where Flower would look for settings and store programs; it has none."""
SOCKET = "engine.sock"
"""In the coordinator's engine folder."""
PARTY_SOCKET = "party.sock"
"""In a party's folder."""
NODES = "nodes.json"
"""In the coordinator's engine folder: the public key of every party's node, by party."""

# Before a process is started, or a question asked, again.
_FIRST_S = 0.2
_LONGEST_S = 5.0
_LASTED_S = 30.0  # after which a process that ends is started at once
_ENDING_S = 9.0  # for a process to end
_SILENT_S = 60.0  # without a report, which comes every second at the latest
_READY_S = 60.0  # for a SuperLink to listen
# Of a log that a process adds to, and of the older one that is kept.
_LOG_BYTES = 10 * 2**20
_LOOKED_S = 10.0  # between two looks at the size of a log
_PATIENCE_S = 30.0  # for a question's first outcome; a node that was killed gives none
_BYTES_PER_S = 1e6  # that a slow link carries
_AT_ONCE = 16  # questions that the pairing is given before it reports again
_REFUSALS = 3  # of one question, before it is given up
_SAID_S = 60.0  # between two times that something which hinders a party is said
_WHY = {
    flower.REFUSED: "refused the frame, for a reason that its own log.txt alone says",
    flower.MALFORMED: "has a node whose reply is malformed; see that it runs this siloweave",
    flower.ABSENT: "has an engine node that is connected, and does not run itself",
    flower.AWAY: "has no engine node that is connected",
}
_STRANGER = (
    "a node whose key the coordinator does not know asks to be let in. If it is this party's, put "
    "back its engine/node.key, or send it its folder again"
)
_UNTOLD = "only a party's terminal says whether a SuperLink of others refused its key or clock"
_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_LOG_LEVEL": "WARNING",
}
_log = logging.getLogger("siloweave")


def need_flower() -> None:
    """Raise InputError, which says what to install, if Flower is not there."""
    if importlib.util.find_spec("flwr") is None:
        raise InputError(
            "the network engine is not installed; in the clone of siloweave run: pip install "
            "'.[flower]'. A spool folder needs no engine"
        )


def _parted(address: str) -> tuple[str, int]:
    """Split an address ``HOST:PORT``, or ``[HOST]:PORT``, into host and port."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise InputError(
            f"address={address!r} must be HOST:PORT, such as office.example.org:9092"
        )
    return host.strip("[]"), int(port)


def _on_this_machine(host: str) -> bool:
    """Return whether a host is this machine, by its name alone; no name server is asked."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _check_plaintext(host: str, *, plaintext: bool, joined: bool = False) -> None:
    """Raise InputError for a link without TLS that leaves this machine."""
    if plaintext and (joined or not _on_this_machine(host)):
        raise InputError(
            f"plaintext=True with host {host!r}: a link without TLS is for trials on one machine "
            "alone, with a SuperLink of ours, so give 127.0.0.1, or leave plaintext out"
        )


class _Supervised:
    """A process of the engine that is started again whenever it ends.

    Args:
        facts: What it is to be, see federation/flower.py.
        folder: Of the engine, for its home and logs.
        name: Of its log.
        given_up: Called once it must not be started again; `fatal` then says why.
    """

    def __init__(
        self,
        facts: flower.LinkFacts | flower.PairingFacts | flower.NodeFacts,
        folder: Path,
        name: str,
        given_up: Callable[[], object] = lambda: None,
    ) -> None:
        self.log = folder / f"{name}.log"
        self.fatal = ""
        self._given_up = given_up
        self._facts = msgspec.json.encode(facts) + b"\n"
        self._folder = folder
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        """Start the process again whenever it ends, until `stop`, or until it cannot go on."""
        wait = _FIRST_S
        while not self._stopped.is_set():
            began = time.monotonic()
            code = self._run()
            if code == flower.FATAL:
                self.fatal = self._last_words()
                self._given_up()
                return
            has_lasted = time.monotonic() - began > _LASTED_S
            wait = _FIRST_S if has_lasted else min(2 * wait, _LONGEST_S)
            self._stopped.wait(wait)

    def _run(self) -> int:
        """Start the process, wait for its end, and return its exit code."""
        environment = processes.environment(self._folder.parent) | _SETTINGS
        environment["FLWR_HOME"] = str(self._folder / FLOWER_HOME)
        # The lock is `stop`'s, too: no process is started once that has looked for one to end.
        with open(self.log, "ab", opener=for_its_owner) as log, self._lock:
            if self._stopped.is_set():
                return 0
            self._process = subprocess.Popen(  # noqa: S603
                processes.command(flower.__name__),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=processes.WORKING,
                # An interrupt from the keyboard is for its supervisor.
                start_new_session=True,
            )
        assert self._process.stdin is not None
        # Over its standard input, as arguments of a process are there for every user to read.
        with suppress(OSError, ValueError):  # it ended already, or was stopped
            self._process.stdin.write(self._facts)
            self._process.stdin.flush()

        code = None
        while code is None:
            try:
                code = self._process.wait(_LOOKED_S)
            except subprocess.TimeoutExpired:
                self._rotate()
        with suppress(OSError):
            self._process.stdin.close()
        return code

    def _rotate(self) -> None:
        """Copy the end of a large log to an older file, and empty the log.

        The process has the file open to add to its end, so that it is copied and cut, not renamed.
        """
        with suppress(OSError):
            if self.log.stat().st_size > _LOG_BYTES:
                for_older = self.log.with_suffix(".log.old")
                write_whole(
                    for_older, self.log.read_bytes()[-_LOG_BYTES:], forced=False
                )
                os.truncate(self.log, 0)

    def _last_words(self) -> str:
        """Return why the process cannot go on, from the end of its log."""
        text = self.log.read_bytes()[-4096:].decode("utf-8", "replace")
        _, mark, why = text.rpartition(flower.FATAL_MARK)
        return why.strip() if mark else f"see {self.log}"

    @property
    def number(self) -> int:
        """The process's number in the operating system; 0 before it was started."""
        return self._process.pid if self._process else 0

    def stop(self, *, carried: bool = False) -> None:
        """End the process: ask it first, and kill it if it does not end.

        A node ends once its answer was `carried`.
        """
        with self._lock:  # see `_run`
            self._stopped.set()
        process = self._process
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):
                if carried:
                    process.stdin.write(b"carry\n")
                process.stdin.close()  # which it watches
            try:
                process.wait(_ENDING_S + carried * flower.CARRIED_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join()


class Engine:
    """A transport over a network, at the coordinator, with a SuperLink of its own or one joined.

    Args:
        folder: The coordinator's; `provision` has made `engine` in it, with certificates and keys.
        seals: The coordinator's, with the study's roster.
        address: ``HOST:PORT`` to listen at, or of the SuperLink that is joined.
        join_secret: The file of what that SuperLink wants of those who take tasks, if it does.
        seconds: For which an answer is awaited once its question is sent; and a joined SuperLink.
        plaintext: No TLS; on this machine alone, for trials. Frames are sealed all the same.
        joined: Whether others run the SuperLink; `engine/ca.crt` is then its authority.
        watch: Says what is waited for until the SuperLink is there.

    Attributes:
        noticed: Called with a party and what hinders it, while its answer is awaited.

    Raises:
        InputError: Flower is not installed, the port is in use, a certificate does not hold or is
            not for this host, a party has no node, or there is no SuperLink that can be joined.
        WireError: There is no roster yet.
    """

    def __init__(
        self,
        folder: Path,
        seals: Seals,
        address: str,
        join_secret: Path | None = None,
        *,
        seconds: float,
        plaintext: bool = False,
        joined: bool = False,
        watch: Watch | None = None,
    ) -> None:
        need_flower()
        watch = watch or Watch("coordinator")
        # The engine's processes have another working folder.
        folder = folder.absolute() / HOME
        nodes = _nodes_in(folder / NODES)
        lacking = sorted(set(seals.roster.parties) - set(nodes))
        if lacking:
            raise InputError(
                f"{folder / NODES}: has no public key of the engine node of {lacking[0]!r}, so the "
                "node would be refused; ask the party for it"
            )
        self._seals = seals
        self._seconds = seconds
        self._parties = tuple(seals.roster.parties)
        self._news = threading.Condition()
        self._open: dict[int, flower.Question] = {}
        self._done: dict[int, flower.Outcome] = {}
        self._began: dict[str, float] = {}  # when a party's question was asked first,
        self._taken: dict[str, float] = {}  # and when the pairing took it
        self._count = 0  # questions so far, by which they are numbered
        self._heard = time.monotonic()  # when the pairing reported last
        self._states = dict.fromkeys(self._parties, "was not asked yet")
        self.noticed: Callable[[str, str], object] = lambda name, why: None
        self._untold = _UNTOLD if joined else ""
        self._stranger = -inf  # when a node of nobody's was refused
        # By party, when it is said again.
        self._hindered: dict[str, tuple[float, str]] = {}

        # All that can be refused is, before a process is started.
        host, port = _parted(address)
        _check_plaintext(host, plaintext=plaintext, joined=joined)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        listens_everywhere = host in ("0.0.0.0", "::") and not joined  # noqa: S104
        reached = "127.0.0.1" if listens_everywhere else host
        files = ["" if plaintext else str(folder / name) for name in certificates.FILES]
        if not joined:
            if not plaintext:
                certificates.check_own(folder, reached)
            _check_free(host, port)

        # The socket is there before the pairing, which connects to it.
        self._server = local.Server(folder / SOCKET, self._reported)
        self._server.__enter__()
        shared = join_secret.read_bytes().hex() if join_secret else ""
        secret = shared if joined else secrets.token_hex(32)
        proxy = proxy_for(
            host, port, None, is_local=not joined or _on_this_machine(host)
        )
        admitted = {name: nodes[name] for name in self._parties}
        certificate, key, authority = files
        pairing = flower.PairingFacts(
            address=f"[{reached}]:{port}" if ":" in reached else f"{reached}:{port}",
            secret=secret,
            authority=authority,
            socket=str(folder / SOCKET),
            nodes=admitted,
            joined=joined,
            proxy=proxy.url if proxy else "",
        )
        self.processes: list[_Supervised] = []
        try:
            server = "the SuperLink"
            if not joined:
                keys = list(admitted.values())
                link = flower.LinkFacts(
                    host, port, secret, certificate, key, authority, keys
                )
                self.processes.append(_Supervised(link, folder, "superlink"))
                server = f"the SuperLink (see {folder / 'superlink.log'})"
            trusted = None if plaintext else folder / certificates.AUTHORITY
            patience = seconds if joined else _READY_S
            _await_server(
                reached,
                port,
                trusted,
                patience,
                server,
                proxy,
                watch,
                is_own=not joined,
            )
            if joined:
                watch.connected()
            self.processes.append(_Supervised(pairing, folder, "pairing"))
        except BaseException:
            self.close()
            raise

    def send(self, name: str, frame: bytes, facts: bytes = b"") -> bytes:
        """Send a frame to a party, and return its answer.

        `facts` come with the first question of a stage.

        Several threads may ask at once, each another party. What a node held when it was killed is
        lost, and nothing says so; so a question without an outcome is asked again, after 30 seconds
        and what its bytes may take, then twice as long.

        Raises:
            RosterError: The party is unknown, refuses frames, or did not answer in time. The same
                question, asked again, gets the answer that the party has stored.
            InputError: A process of the engine cannot go on.
            SiloweaveError: What the party refused the question with.
        """
        if name not in self._states:
            raise RosterError(
                f"party {name!r} is not there; present are {sorted(self._states)}"
            )
        self._began[name] = time.monotonic()
        self._taken.pop(name, None)
        self._states[name] = "has not answered yet"
        wait = _FIRST_S
        refusals = 0
        patience = _PATIENCE_S + (len(frame) + len(facts)) / _BYTES_PER_S
        while True:
            began = time.monotonic()
            opened = self._asked(name, frame, facts, patience)
            if opened is not None:
                break
            end = self._since(name) + self._seconds
            if time.monotonic() >= began + patience:
                patience *= 2
            # A node's word alone, and perhaps of one frame: it is asked again before it counts.
            refusals += self._states[name] in (
                _WHY[flower.REFUSED],
                _WHY[flower.MALFORMED],
            )
            if refusals == _REFUSALS:
                raise RosterError(
                    f"party {name!r} {self._states[name]}. See {self._seals.again}"
                )
            if time.monotonic() >= end:
                _, hindrance = self._hindered.get(name, (0.0, self._untold))
                noticed = f". Noticed: {hindrance}" if hindrance else ""
                raise RosterError(
                    f"party {name!r} did not answer within {self._seconds:g} s: it "
                    f"{self._states[name]}. See that the party runs and reaches this machine, and "
                    f"{self._seals.again}{noticed}"
                )
            time.sleep(min(wait, max(0.0, end - time.monotonic())))
            wait = min(2 * wait, _LONGEST_S)
        self._states[name] = "answered"
        self._hindered.pop(name, None)
        return opened.envelope()

    def await_for(self, seconds: float) -> None:
        """Set how many seconds the answers to later questions are awaited."""
        self._seconds = seconds

    def seen(self, name: str) -> str:
        """Describe how a party answered last, in words that follow "it"."""
        return self._states[name]

    def _hinders(self, name: str, why: str) -> None:
        """Report what hinders a party, at most once a minute, and at its deadline."""
        now = time.monotonic()
        due, _ = self._hindered.get(name, (0.0, ""))
        if now >= due:
            due = now + _SAID_S
            _log.warning("party %r: %s", name, why)
            self.noticed(name, why)
        self._hindered[name] = (due, why)

    def _since(self, name: str) -> float:
        """Return the time at which the pairing took a party's question.

        That is now, while the pairing reports and has not taken it yet, so that no time of a party
        passes in a queue; and when the question was asked, where no report comes.
        """
        now = time.monotonic()
        is_reporting = now - self._heard < _SILENT_S
        return self._taken.get(name, now if is_reporting else self._began[name])

    def _asked(
        self, name: str, frame: bytes, facts: bytes, patience: float
    ) -> Opened | None:
        """Ask a party once, and open its answer; None if it gave none, or a frame was lost."""
        # Anew: a party answers no frame twice.
        sealed = self._seals.ask(name, frame, facts)
        nonce = self._seals.checked(sealed, self._seals.name, name).nonce
        outcome = self._outcome(name, sealed, patience)
        if outcome is None:
            if time.monotonic() - self._heard > _SILENT_S:
                self._states[name] = (
                    "cannot be asked, since the SuperLink is not reached"
                )
            return None
        if outcome.kind != flower.ANSWERED:
            why = _WHY[outcome.kind]
            if self._states[name] != why:
                _log.warning("party %r %s", name, why)
            self._states[name] = why
            # Perhaps the stranger is this party's node, with a key that was made anew.
            if (
                outcome.kind == flower.AWAY
                and time.monotonic() - self._stranger < _SAID_S
            ):
                self._hinders(name, _STRANGER)
            return None
        try:
            return self._seals.open(outcome.frame, name, nonce)
        except WireError as error:
            # Asked again, not given up: the engine carries what a hostile SuperLink sends, too.
            self._hinders(name, str(error))
            self._states[name] = "sent what it did not sign, or someone else did"
            return None

    def _outcome(
        self, name: str, sealed: bytes, patience: float
    ) -> flower.Outcome | None:
        """Await the outcome of a question; None if nothing is known in time."""
        with self._news:
            self._count += 1
            number = self._count
            began = time.monotonic()
            remaining = max(1.0, self._since(name) + self._seconds - began)
            self._open[number] = flower.Question(number, name, sealed, remaining)
            self._news.notify_all()
            try:
                while number not in self._done:
                    # Both bounds move while the pairing has not taken the question.
                    since = self._since(name)
                    end = min(since + self._seconds, max(since, began) + patience)
                    now = time.monotonic()
                    if now >= end:
                        break
                    self._check()
                    self._news.wait(min(1.0, end - now))
            finally:
                self._open.pop(number, None)
            return self._done.pop(number, None)

    def _check(self) -> None:
        """Raise InputError if a process of the engine cannot go on."""
        for process in self.processes:
            if process.fatal:
                raise InputError(f"the engine cannot go on: {process.fatal}")

    def _refused(self, name: str, seconds: float) -> None:
        """Note that the SuperLink refused a party's node for its clock, or a node of nobody."""
        if not name:
            self._stranger = time.monotonic()
        elif seconds:
            direction = "ahead of" if seconds > 0 else "behind"
            difference = f"{abs(seconds):,.0f} s {direction} this machine's"
            self._hinders(
                name, f"its clock is {difference}; set both by the network's time"
            )

    def _reported(self, data: bytes) -> bytes:
        """Take a report of the pairing, and return the questions that it does not have yet."""
        report = msgspec.msgpack.decode(data, type=flower.Report)
        self._heard = time.monotonic()
        for name, seconds in report.refused.items():
            self._refused(name, seconds)
        with self._news:
            for outcome in report.outcomes:
                # Else nobody waits for it any more.
                if self._open.pop(outcome.number, None):
                    self._done[outcome.number] = outcome
            self._news.notify_all()
            in_hand = set(report.known)
            if not self._open.keys() - in_hand:
                self._news.wait(report.seconds)

            # As many as one message holds, and one at least, however large.
            new = list[flower.Question]()
            room = MAX_BYTES
            for number, question in self._open.items():
                room -= len(question.frame)
                fits = (room >= 0 or not new) and len(new) < _AT_ONCE
                if number not in in_hand and fits:
                    new.append(question)
                    self._taken.setdefault(question.party, time.monotonic())
            return msgspec.msgpack.encode(flower.Orders(new, list(self._open)))

    def close(self) -> None:
        """End all processes of the engine."""
        # The pairing before the SuperLink, in which it ends its run.
        for process in reversed(self.processes):
            process.stop()
        self._server.__exit__()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def provision(
    office: Path,
    parties: Mapping[str, Path],
    names: Sequence[str],
    authority: Path | None = None,
    nodes: Mapping[str, Path] | None = None,
) -> None:
    """Make the keys and certificates that the engine needs, in the folders of a study's ends.

    Args:
        office: The coordinator's folder.
        parties: Every party's folder; `engine/ca.crt` in it must reach the party.
        names: DNS names and IP addresses by which parties reach the coordinator.
        authority: The certificate of the authority of a SuperLink that others run, and that the
            coordinator joins; by default the study gets an authority of its own.
        nodes: Files with the public keys of nodes that parties made themselves, by party; for all
            others a key is made here.

    Raises:
        InputError: A name, a key or the authority's certificate is malformed.
    """
    party_keys = {
        name: certificates.public_node_key(path) for name, path in (nodes or {}).items()
    }
    if authority is None:
        certificates.make_certificates(office / HOME, names)
    else:
        certificates.trust(office / HOME, authority)
    trusted = (office / HOME / certificates.AUTHORITY).read_bytes()
    keys = {}
    for name, folder in parties.items():
        home = folder / HOME
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(home / certificates.AUTHORITY, trusted)
        # A key that a party made itself stays there: the coordinator has its public half alone.
        keys[name] = party_keys.get(name) or certificates.node_key(
            home / certificates.NODE_KEY
        )
    write_whole(
        office / HOME / NODES, msgspec.json.format(msgspec.json.encode(keys)) + b"\n"
    )


def _nodes_in(path: Path) -> dict[str, str]:
    """Read the public key of every party's node, as a word, from the coordinator's file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}); provision the study with an address first"
        ) from error


def _check_free(host: str, port: int) -> None:
    """Raise InputError if a port is not free; the engine would say so only in a log."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(kind) as end:
        # As the SuperLink does: connections that have just ended do not keep a port.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            end.bind((host, port))
        except OSError as error:
            raise InputError(
                f"address: {host}:{port} cannot be listened at ({error.strerror}). Give another "
                "port, or end what uses it"
            ) from error


@contextmanager
def answering(
    folder: Path,
    seals: Seals,
    reply: Callable[[Opened], bytes],
    address: str,
    *,
    plaintext: bool = False,
    seconds: float = 600.0,
    proxy: str | None = None,
    watch: Watch | None = None,
) -> Iterator[local.Server]:
    """Open a party's end: its socket, and its node as a process beside it.

    The party listens at a socket in its own folder; what connects to the coordinator, outwards
    only, is a process beside it.

    Args:
        folder: The party's; `engine/ca.crt` in it is the study's authority, and `engine/node.key`
            is made if absent.
        seals: The party's, with the study's roster and a file for its nonces.
        reply: Answers a question that was opened.
        address: ``HOST:PORT`` of the coordinator.
        plaintext: No TLS; on this machine alone, for trials.
        seconds: For which the coordinator is awaited, if nobody answers there.
        proxy: ``http://HOST:PORT`` of a proxy on the way; by default that of the environment
            (HTTPS_PROXY, NO_PROXY), which is for no coordinator on this machine.
        watch: Says how the link is, and what the party waits for.

    Raises:
        InputError: Flower is not installed; the address is malformed; the proxy refuses; nobody
            answers there in time, or someone who is not the coordinator, or whose certificate does
            not hold; the coordinator does not let the node in; or an answer cannot be stored.
        StudyError: What the study was refused with, once the coordinator was sent that.
    """
    need_flower()
    folder = folder.absolute()
    home = folder / HOME
    path = folder / PARTY_SOCKET
    watch = watch or Watch(f"party {seals.name!r}")
    certificates.node_key(home / certificates.NODE_KEY)
    facts = _node_facts(
        home,
        path,
        address,
        plaintext=plaintext,
        seconds=seconds,
        proxy=proxy,
        watch=watch,
    )
    server = _party_server(seals, reply, path, watch)
    node = _Supervised(facts, home, "node", server.stop)
    try:
        yield server
    finally:
        # After its last answer the node ends once that is sent: the coordinator waits for it.
        has_last_answer = seals.refused is not None or seals.has_ended
        node.stop(carried=has_last_answer)
        server.close()
    if seals.refused is not None:
        raise seals.refused
    if node.fatal:
        raise InputError(node.fatal)


def _show_note(text: bytes, watch: Watch, question: str) -> None:
    """Show a note of a party's node about its link; WireError if it is malformed."""
    try:
        note = msgspec.msgpack.decode(text[len(flower.NOTE) :], type=flower.Note)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"a note of the node cannot be read: {error}") from error
    if note.is_connected:
        watch.connected()
        watch.waits(f"waiting for {question}")
    else:
        watch.lost(note.why)


@contextmanager
def awaiting_node(
    seals: Seals,
    reply: Callable[[Opened], bytes],
    path: Path,
    node_user: int | None = None,
    watch: Watch | None = None,
) -> Iterator[local.Server]:
    """Open a party's socket without a node, which another user or a container runs.

    The node is `carrying_to` this socket, or a SuperNode of Flower's own with the application in
    federation/clientapp.py.

    Args:
        seals: The party's, with the study's roster and a file for its nonces.
        reply: Answers a question that was opened.
        path: Of the socket, in a folder with nothing else.
        node_user: The number of the node's user, by default this one.
        watch: Says how the link is, and what the party waits for.

    Raises:
        InputError: No socket can be made there, or others could use it; or an answer cannot be
            stored.
        StudyError: What the study was refused with, once the node was given that.
    """
    watch = watch or Watch(f"party {seals.name!r}")
    watch.notes(f"listening at {path}")
    watch.waits("waiting for its node")
    server = _party_server(seals, reply, path.absolute(), watch, node_user)
    try:
        yield server
    finally:
        server.close()
    if seals.refused is not None:
        raise seals.refused


def carrying_to(
    path: Path,
    home: Path,
    address: str,
    *,
    plaintext: bool = False,
    seconds: float = 600.0,
    proxy: str | None = None,
    watch: Watch | None = None,
) -> None:
    """Run a party's node beside a party that is `awaiting_node`, until an interrupt.

    Args:
        path: The party's socket.
        home: A folder of the node's own, with `node.key`, and `ca.crt` of the study's authority;
            its log is written there.
        address: ``HOST:PORT`` of the coordinator.
        plaintext: No TLS; on this machine alone, for trials.
        seconds: For which the coordinator is awaited, if nobody answers there.
        proxy: As of `answering`.
        watch: Says what the node waits for until the coordinator answers.

    Raises:
        InputError: As of `answering`; or the folder has no key.
    """
    need_flower()
    home = home.absolute()
    key = home / certificates.NODE_KEY
    if not key.is_file():
        raise InputError(
            f"{key}: is not there. Give the node the folder `engine` of the party's, with its files"
        )
    watch = watch or Watch("node")
    facts = _node_facts(
        home,
        path.absolute(),
        address,
        plaintext=plaintext,
        seconds=seconds,
        proxy=proxy,
        watch=watch,
    )
    watch.waits(f"carrying between {address} and the party; more is in node.log")
    ended = threading.Event()
    node = _Supervised(facts, home, "node", ended.set)
    try:
        ended.wait()
    finally:
        node.stop()
    raise InputError(node.fatal)


def _node_facts(
    home: Path,
    path: Path,
    address: str,
    *,
    plaintext: bool,
    seconds: float,
    proxy: str | None,
    watch: Watch,
) -> flower.NodeFacts:
    """Return a node's facts, once the coordinator's server is seen to be the study's."""
    host, port = _parted(address)
    _check_plaintext(host, plaintext=plaintext)
    if proxy and plaintext:
        raise InputError(
            "--proxy: a link without TLS stays on this machine, so leave the proxy out"
        )
    tunnel = (
        None
        if plaintext
        else proxy_for(host, port, proxy, is_local=_on_this_machine(host))
    )
    authority = home / certificates.AUTHORITY
    through = f" through {tunnel.address}" if tunnel else ""
    watch.waits(f"connecting to {address}{through}")
    # Here, where the owner reads it: what a node finds wrong stands in its log.
    if not plaintext:
        _await_server(host, port, authority, seconds, "the coordinator", tunnel, watch)
    return flower.NodeFacts(
        address=address,
        authority="" if plaintext else str(authority),
        socket=str(path),
        key=str(home / certificates.NODE_KEY),
        proxy=tunnel.url if tunnel else "",
    )


def _party_server(
    seals: Seals,
    reply: Callable[[Opened], bytes],
    path: Path,
    watch: Watch,
    node_user: int | None = None,
) -> local.Server:
    """Open a party's socket, which closes after an answer that ends the study for the party."""
    has_answered = False

    def answer(frame: bytes) -> bytes:
        nonlocal has_answered
        if frame.startswith(flower.NOTE):
            question = "a question" if has_answered else "the first question"
            _show_note(frame, watch, question)
            return b""
        watch.waits("answering a question", is_said=False)
        with seals.answered(frame, reply) as sealed:
            if seals.refused is not None or seals.has_ended:
                server.stop()  # the node carries this answer before it ends
            has_answered = True
            watch.waits("waiting for the next question", is_said=False)
            return sealed

    server = local.Server(path, answer, node_user=node_user)
    server.looked = watch.look
    return server


def _await_server(
    host: str,
    port: int,
    authority: Path | None,
    seconds: float,
    server: str,
    proxy: Proxy | None,
    watch: Watch,
    *,
    is_own: bool = False,
) -> None:
    """Wait until a server answers; one that this end started takes some seconds."""
    end = time.monotonic() + seconds
    wait = _FIRST_S
    while True:
        try:
            if authority is None:
                connected(host, port, 1.0, proxy).close()
            else:
                certificates.check_server(host, port, authority, proxy)
            return
        except OSError as error:
            if time.monotonic() >= end:
                raise InputError(
                    f"address={host}:{port}: nobody answered for {seconds:g} s ({error}). See that "
                    f"{server} runs, and that this machine may connect to it"
                ) from error
            if wait == 16 * _FIRST_S:  # after 3 s
                _log.info("waiting for %s: %s", server, error)
                if not is_own:
                    why = error.strerror or str(error)
                    watch.lost(why.removeprefix(f"{host}:{port}: "))
            watch.look()
        time.sleep(wait)
        wait = min(2 * wait, _LONGEST_S)
