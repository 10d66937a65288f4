"""Commands for a study between organisations, each end on its own machine."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path
from shlex import quote
from threading import Thread
from typing import Annotated, Any

import typer

from siloweave.app.options import AsJson, EndFolder, StudyFile, reported
from siloweave.app.party_cli import party

Spool = Annotated[
    Path | None,
    typer.Option(help="A folder of files that something carries between both ends."),
]
Superlink = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The coordinator's address, over a network; needs the extra `flower`.",
    ),
]
Join = Annotated[
    bool,
    typer.Option("--join", help="Others run the SuperLink: join it, and start none."),
]
JoinSecret = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, help="Its --superexec-auth-secret-file, if any."
    ),
]
Plaintext = Annotated[
    bool,
    typer.Option(
        "--plaintext-on-this-machine",
        help="No TLS: for trials on one machine, and refused else.",
    ),
]
Proxy = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="http://HOST:PORT on the way to the coordinator; by default HTTPS_PROXY.",
    ),
]
NodeUser = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With --socket: the user whose node is answered, by name or number; else this one.",
    ),
]
_SECONDS, _SENT_S = 3600.0, 10.0  # for an answer; for a coordinator to end by a refusal
Wait = Annotated[
    float,
    typer.Option(
        help="Seconds after which a party that does not answer ends the study."
    ),
]
Seeded = Annotated[
    bool,
    typer.Option(
        "--seeded-noise", hidden=True, help="Noise that anyone can repeat: for tests."
    ),
]
Attached = Annotated[
    bool,
    typer.Option(
        "--attached", hidden=True, help="End with whoever started this process."
    ),
]


def _end_with_starter(attached: bool) -> None:
    """End this process when its standard input closes, as it does when its starter ends."""

    def waiting() -> None:
        while os.read(0, 1):
            pass
        os._exit(2)

    if attached:
        Thread(target=waiting, daemon=True).start()


@party.command("key")
@reported()
def key(
    name: Annotated[str, typer.Argument(help="The study's name, as its file has it.")],
    folder: Annotated[Path, typer.Option(help="This party's folder.")] = Path(),
    json: AsJson = False,
) -> None:
    """Make this party's key and account, and print the key's public half for the coordinator.

    The fingerprint, on standard error, is what others compare with theirs by telephone.
    """
    from siloweave.app.account import load_or_create_home
    from siloweave.app.console import print_result
    from siloweave.app.network import spelled_keys
    from siloweave.federation.frames import keys_for
    from siloweave.privacy.ledger import fingerprint

    identity = load_or_create_home(folder)
    word, shown = spelled_keys(keys_for(name, identity)), fingerprint(identity.public)
    print_result({"study": name, "key": word, "fingerprint": shown}, word, json=json)
    typer.echo(f"fingerprint: {shown}", err=True)


@party.command("start")
@reported()
def start(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER...", help="This party's folder of each study."),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", help="Its rows, for each study: a file, or address#table."
        ),
    ] = None,
    spool: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder of files that something carries; one for all, or for each."
        ),
    ] = None,
    superlink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The coordinator's address, over a network; one for all, or for each study.",
        ),
    ] = None,
    socket: Annotated[
        list[Path] | None,
        typer.Option(
            help="In place of --superlink, for each study: where the node of another user connects."
        ),
    ] = None,
    node_user: NodeUser = None,
    proxy: Proxy = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="When to end: 8h, 45min, 18:30, or 2026-12-01T18:30. Else with Ctrl-C."
        ),
    ] = None,
    plaintext: Plaintext = False,
    wait: Wait = _SECONDS,
    seeded_noise: Seeded = False,
    attached: Attached = False,
) -> None:
    """Answer the questions of one study or several until each has ended, or this is stopped.

    With several folders, --data is given once for each, in the same order. The party leaves a study
    once its coordinator has its result. Ctrl-C stops it before; start it again to continue.

    A party whose policy, ledger or rows do not allow the study answers the coordinator's first
    question with that, and ends with exit code 2.
    """
    from siloweave.app.door import Door, ends_at, open_doors
    from siloweave.app.network import member
    from siloweave.app.party_files import require_known_files
    from siloweave.app.status import log_into

    ways = (
        _each("--spool", spool, folders),
        _each("--superlink", superlink, folders),
        _each("--socket", socket, folders, is_shared=False),
    )
    rows = _each("--data", data, folders, is_shared=False)
    for files, address, path in zip(*ways, strict=True):
        _check_way(files, address, wait, path)
    user = _user_number(node_user, socket)
    if proxy and superlink is None:
        from siloweave.errors import InputError

        raise InputError("--proxy: files need none; it is for a party with --superlink")
    seconds = ends_at(until) if until else inf
    _end_with_starter(attached)
    for folder, source in zip(folders, rows, strict=True):
        member(folder)  # nothing is written into a folder that is not a party's
        if source is not None:  # else `answers_in` says so, before it opens anything
            # Nothing starts beside what others put there.
            require_known_files(folder, source)
    for folder in folders:
        log_into(folder)
    noise = "seeded" if seeded_noise else "os"
    doors = [
        Door(folder, source, files, address, path, user, proxy, plaintext, wait, noise)
        for folder, source, files, address, path in zip(
            folders, rows, *ways, strict=True
        )
    ]
    open_doors(doors, seconds)


def _each(
    option: str, given: Any, folders: list[Path], *, is_shared: bool = True
) -> list[Any]:
    """Return an option's value for each folder; InputError where there are too few or too many."""
    from siloweave.errors import InputError

    values = list(given or [None])
    if len(values) == 1 and (is_shared or values == [None]):
        return values * len(folders)
    if len(values) != len(folders):
        raise InputError(
            f"{option} is given {len(values)} times for {len(folders)} studies; give it once for "
            f"each folder, in the same order{', or once for all' if is_shared else ''}"
        )
    return values


@party.command("node")
@reported()
def node(
    folder: Annotated[
        Path,
        typer.Argument(
            help="The node's: the folder `engine` that came with the party's."
        ),
    ],
    socket: Annotated[
        Path, typer.Option("--socket", help="The party's, see `party start`.")
    ],
    superlink: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The coordinator's address.")
    ],
    plaintext: Plaintext = False,
    proxy: Proxy = None,
    wait: Wait = _SECONDS,
    attached: Attached = False,
) -> None:
    """Connect a party to its coordinator, as a user or in a container without the party's files."""
    from siloweave.federation import engine
    from siloweave.federation.watch import Watch

    _end_with_starter(attached)
    watch = Watch("node", lambda line: typer.echo(line, err=True))
    engine.carrying_to(
        socket,
        folder,
        superlink,
        plaintext=plaintext,
        seconds=wait,
        proxy=proxy,
        watch=watch,
    )


def _check_way(
    spool: Path | None, superlink: str | None, wait: float, socket: Path | None = None
) -> None:
    """Refuse an end whose questions travel in no way, or in two, or are awaited for no time."""
    from siloweave.errors import InputError, number

    number("--wait", wait, 0, 1e9, "(]")
    if sum(way is not None for way in (spool, superlink, socket)) != 1:
        raise InputError(
            "say how questions travel: --spool FOLDER, of files that something carries, or "
            "--superlink HOST:PORT, over a network; at a party also --socket PATH, for a node that "
            "another user runs"
        )


def _user_number(name: str | None, socket: object) -> int | None:
    """Return the number of the user who runs a party's node; None for this one."""
    from siloweave.errors import InputError

    if name is None:
        return None
    if socket is None:
        raise InputError(
            f"--node-user {name} goes with --socket PATH, where that user connects"
        )
    if name.isdecimal():
        return int(name)
    try:
        from pwd import getpwnam

        return getpwnam(name).pw_uid
    except (ImportError, KeyError):
        raise InputError(
            f"--node-user {name}: this machine has no such user; give the number (`id -u`) that it "
            "has, or that its container runs as"
        ) from None


@reported()
def coordinator(
    folder: EndFolder,
    spool: Spool = None,
    superlink: Superlink = None,
    join: Join = False,
    join_secret: JoinSecret = None,
    plaintext: Plaintext = False,
    wait: Wait = _SECONDS,
    seeded_noise: Seeded = False,
    attached: Attached = False,
    json: AsJson = False,
) -> None:
    """Run a study with parties on other machines; the same command continues it."""
    from siloweave.app.console import print_summary
    from siloweave.app.door import keeping_facts, waiting
    from siloweave.app.network import office_in
    from siloweave.app.run import execute
    from siloweave.app.status import log_into
    from siloweave.federation.engine import Engine
    from siloweave.federation.spool import Spool as Files
    from siloweave.federation.watch import Watch
    from siloweave.progress import Bar

    _check_way(spool, superlink, wait)
    _end_with_starter(attached)
    office = office_in(folder)
    log_into(folder)
    with ExitStack() as stack:
        stack.enter_context(keeping_facts(folder))
        progress = stack.enter_context(Bar(quiet=json))
        watch = Watch("coordinator", progress.line)
        post: Any = None
        if spool is not None:
            post = stack.enter_context(Files(spool, office.seals, seconds=wait))
        elif superlink is not None:
            how: dict[str, Any] = {
                "plaintext": plaintext,
                "joined": join,
                "watch": watch,
            }
            watch.waits(f"{'joining' if join else 'listening at'} {superlink}")
            network = Engine(
                folder, office.seals, superlink, join_secret, seconds=wait, **how
            )
            post = stack.enter_context(network)
        carrier = office.carrier(post)
        with waiting(office.study.folder, office.study.names, post, watch):
            summary, before = execute(
                office.study,
                carrier=carrier,
                noise="seeded" if seeded_noise else "os",
                progress=progress,
            )
        heard = office.part_from(post, _SENT_S)
        if absent := [name for name in office.study.names if name not in heard]:
            watch.ended(f"not heard by {', '.join(absent)}: they may be stopped")
    print_summary(summary, office.study.folder, json=json, before=before)


@reported()
def provision(
    study: StudyFile = Path("study.toml"),
    out: Annotated[Path, typer.Option(help="Where the folders are made.")] = Path(
        "ends"
    ),
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=KEY, as `siloweave party key` printed it there; for each party."
        ),
    ] = None,
    keys_made_here: Annotated[
        bool,
        typer.Option(
            "--keys-made-here",
            help="Make private keys of parties without --key: who has them can sign as they do.",
        ),
    ] = False,
    node: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A public key of OpenSSH, of a node whose private key the party made.",
        ),
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option(
            help="A name or IP address by which parties reach the coordinator over a network."
        ),
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option(
            help="In place of --address: the ca.crt of a SuperLink that the coordinator joins."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Make the folders of all ends of a study: the signed roster, certificates, and the study."""
    from siloweave.app.console import print_result, print_warning
    from siloweave.app.network import COORDINATOR, fingerprints_in
    from siloweave.app.network import provision as make
    from siloweave.errors import InputError

    if address and authority:
        raise InputError(
            "give --address, or --authority where a SuperLink is joined, not both"
        )
    keys = _named(key or [], "--key", "KEY")
    folders = make(
        study,
        out,
        keys,
        addresses=address or (),
        authority=authority,
        nodes={
            name: Path(file)
            for name, file in _named(node or [], "--node", "FILE").items()
        },
        keys_made_here=keys_made_here,
    )
    shown = "\n".join(f"{name}: {place}" for name, place in folders.items())
    shown += "\nKeys, to compare by telephone:"
    shown += "".join(
        f"\n{name}: {word}"
        for name, word in fingerprints_in(folders[COORDINATOR]).items()
    )
    shown += (
        "\nThen: send each party its folder. There its owner approves what `siloweave party "
        "plan` shows, and runs `siloweave party start` with --data; here: siloweave coordinator "
        f"{quote(str(folders['coordinator']))}"
    )
    made_here = [name for name in folders if name not in (*keys, COORDINATOR)]
    if made_here:
        print_warning(
            f"the private keys of {', '.join(made_here)} are made here: whoever has {out} can sign "
            "as these parties, read what is sealed to them and take off their masks. The plan at "
            "every party says so"
        )
    print_result(
        {name: str(place) for name, place in folders.items()}, shown, json=json
    )


def _named(words: list[str], option: str, what: str) -> dict[str, str]:
    from siloweave.errors import InputError

    if odd := [word for word in words if "=" not in word]:
        raise InputError(f"{option} {odd[0]!r} must be NAME={what}")
    return {name: value for name, _, value in (word.partition("=") for word in words)}


@reported()
def poc(
    study: StudyFile = Path("study.toml"),
    out: Annotated[Path, typer.Option(help="Where everything is made.")] = Path("poc"),
    network: Annotated[
        bool,
        typer.Option("--network", help="Over a network engine, not a folder of files."),
    ] = False,
    wait: Wait = 600.0,
    seeded_noise: Seeded = False,
    json: AsJson = False,
) -> None:
    """Run a study on this machine as it would run between machines: one process for each end.

    Whoever starts it owns all rows, so the parties' policies are written to allow this study.
    """
    from siloweave.app.network import COORDINATOR, provision
    from siloweave.app.study import Study

    plan = Study.load(study)
    host = "127.0.0.1"
    folders = provision(study, out, trial=True, addresses=[host] if network else ())
    way = (
        ["--superlink", f"{host}:{_free_port(host)}"]
        if network
        else ["--spool", f"{out}/spool"]
    )
    common = [*way, "--wait", str(wait), *(["--seeded-noise"] if seeded_noise else [])]
    with ExitStack() as stack:
        parties = []
        for one in plan.parties:
            rows = plan.source(one)
            named = (
                rows
                if isinstance(rows, Path)
                else f"{rows.address}#{rows.table or rows.query}"
            )
            words = [
                "party",
                "start",
                str(folders[one.name]),
                "--data",
                str(named),
                *common,
            ]
            parties.append(stack.enter_context(_process(*words)))
        asked = [str(folders[COORDINATOR]), *common]
        own = stack.enter_context(
            _process("coordinator", *asked, *(["--json"] if json else []))
        )
        while own.poll() is None and not any(one.poll() for one in parties):
            time.sleep(0.1)
        # A party that refused the study has sent why.
        with suppress(subprocess.TimeoutExpired):
            own.wait(_SENT_S)
        raise typer.Exit(2 if own.returncode is None else own.returncode)


def _free_port(host: str) -> int:
    """Return a port that nothing uses at the moment."""
    with socket.socket() as end:
        end.bind((host, 0))
        return int(end.getsockname()[1])


@contextmanager
def _process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Return a command of ours in a process of its own, which ends with the block."""
    from siloweave.federation import processes

    running = subprocess.Popen(  # noqa: S603
        processes.command("siloweave", *words, "--attached"),
        stdin=subprocess.PIPE,
        env=processes.environment(),
    )
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(10.0)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def add_to(app: Any) -> None:
    """Add these commands to the command line."""
    for command in (coordinator, provision, poc):
        app.command()(command)
