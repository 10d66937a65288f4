"""Commands for a study between organisations, each end on its own machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path
from shlex import quote
from threading import Thread
from typing import IO, Annotated, Any

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
        help="No TLS: for trials on one machine, and refused otherwise.",
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
_ANSWER_S = 3600.0  # for a party's answer, where --wait does not say
_END_S = 10.0  # for the other end to hear that this one has ended, or refuses
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

    def exit_at_end_of_input() -> None:
        while os.read(0, 1):
            pass
        # `sys.exit` would end this thread alone.
        os._exit(2)

    if attached:
        Thread(target=exit_at_end_of_input, daemon=True).start()


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
    public_key = spelled_keys(keys_for(name, identity))
    key_fingerprint = fingerprint(identity.public)
    facts = {"study": name, "key": public_key, "fingerprint": key_fingerprint}
    print_result(facts, public_key, json=json)
    typer.echo(f"fingerprint: {key_fingerprint}", err=True)


@party.command("start")
@reported(releases=True)
def start(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER", help="This party's folder of each study."),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", help="The party's rows, for each study: a file, or address#table."
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
            help="When to end: 8h, 45min, 18:30, or 2026-12-01T18:30. Without it, Ctrl-C ends it."
        ),
    ] = None,
    plaintext: Plaintext = False,
    wait: Wait = _ANSWER_S,
    seeded_noise: Seeded = False,
    attached: Attached = False,
) -> None:
    """Answer the questions of one study or several until each has ended, or this is stopped.

    With several folders, --data is given once for each, in the same order. The party leaves a study
    once its coordinator has its result. Ctrl-C stops it before; start it again to continue.

    A party whose policy, ledger or rows do not allow the study answers the coordinator's first
    question with that, and ends with exit code 3.
    """
    from siloweave.app.door import Door, ends_at, open_doors
    from siloweave.app.network import member
    from siloweave.app.party_files import require_known_files
    from siloweave.app.status import log_into

    # What the owner wrote, for each study.
    spools = _each("--spool", spool, folders)
    addresses = _each("--superlink", superlink, folders)
    sockets = _each("--socket", socket, folders, is_shared=False)
    sources = _each("--data", data, folders, is_shared=False)
    for files, address, path in zip(spools, addresses, sockets, strict=True):
        _check_way(files, address, wait, path)
    user = _user_number(node_user, socket)
    if proxy and superlink is None:
        from siloweave.errors import InputError

        raise InputError("--proxy: files need none; it is for a party with --superlink")
    seconds = ends_at(until) if until else inf
    _end_with_starter(attached)

    # Before anything is written: each folder is a party's, and has no files that others put there.
    for folder, source in zip(folders, sources, strict=True):
        member(folder)
        # Without --data, `answers_in` refuses the study before it opens anything.
        if source is not None:
            require_known_files(folder, source)
    for folder in folders:
        log_into(folder)

    doors: list[Door] = []
    for index, folder in enumerate(folders):
        door = Door(
            folder=folder,
            data=sources[index],
            files=spools[index],
            address=addresses[index],
            socket=sockets[index],
            node_user=user,
            proxy=proxy,
            plaintext=plaintext,
            wait=wait,
            noise="seeded" if seeded_noise else "os",
        )
        doors.append(door)
    open_doors(doors, seconds)


def _each(
    option: str, values: Any, folders: list[Path], *, is_shared: bool = True
) -> list[Any]:
    """Return an option's value for each folder; InputError where there are too few or too many."""
    from siloweave.errors import InputError

    listed = list(values or [None])
    holds_for_all = is_shared or listed == [None]
    if len(listed) == 1 and holds_for_all:
        return listed * len(folders)
    if len(listed) != len(folders):
        or_once = ", or once for all" if is_shared else ""
        raise InputError(
            f"{option} is given {len(listed)} times for {len(folders)} studies; give it once for "
            f"each folder, in the same order{or_once}"
        )
    return listed


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
    wait: Wait = _ANSWER_S,
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
    ways = [way for way in (spool, superlink, socket) if way is not None]
    if len(ways) != 1:
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
        # Not on Windows.
        from pwd import getpwnam

        return getpwnam(name).pw_uid
    except (ImportError, KeyError):
        raise InputError(
            f"--node-user {name}: this machine has no such user; give the number (`id -u`) that it "
            "has, or that its container runs as"
        ) from None


@reported(releases=True)
def coordinator(
    folder: EndFolder,
    spool: Spool = None,
    superlink: Superlink = None,
    join: Join = False,
    join_secret: JoinSecret = None,
    plaintext: Plaintext = False,
    wait: Wait = _ANSWER_S,
    seeded_noise: Seeded = False,
    attached: Attached = False,
    json: AsJson = False,
) -> None:
    """Run a study with parties on other machines; the same command continues it."""
    from siloweave.app.console import print_summary
    from siloweave.app.door import keeping_facts, waiting
    from siloweave.app.network import office_in
    from siloweave.app.presence import Running
    from siloweave.app.run import execute
    from siloweave.app.status import in_a_sentence, log_into
    from siloweave.federation.engine import Engine
    from siloweave.federation.spool import Spool as Files
    from siloweave.federation.watch import Watch
    from siloweave.progress import Bar

    _check_way(spool, superlink, wait)
    _end_with_starter(attached)
    office = office_in(folder)
    log_into(folder)
    with ExitStack() as stack:
        running = stack.enter_context(Running(folder, "this coordinator"))
        stack.enter_context(keeping_facts(folder, running))
        progress = stack.enter_context(Bar(quiet=json))
        watch = Watch("coordinator", progress.line)

        # The way to the parties.
        post: Any = None
        if spool is not None:
            post = stack.enter_context(Files(spool, office.seals, seconds=wait))
        elif superlink is not None:
            activity = "joining" if join else "listening at"
            watch.waits(f"{activity} {superlink}")
            network = Engine(
                folder,
                office.seals,
                superlink,
                join_secret,
                seconds=wait,
                plaintext=plaintext,
                joined=join,
                watch=watch,
            )
            post = stack.enter_context(network)
        carrier = office.carrier(post)

        # The run, which may have finished before.
        noise = "seeded" if seeded_noise else "os"
        with waiting(office.study.folder, office.study.names, post, watch):
            summary, was_finished = execute(
                office.study, carrier=carrier, noise=noise, progress=progress
            )

        # Parties end by themselves once they hear that the result is stored.
        parted = office.part_from(post, _END_S)
        absent = [name for name in office.study.names if name not in parted]
        if absent:
            watch.ended(
                f"{in_a_sentence(absent)} did not confirm it: stop what still waits"
            )
    print_summary(summary, office.study.folder, json=json, before=was_finished)


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
    keys = _by_name(key or [], "--key", "KEY")
    node_files = _by_name(node or [], "--node", "FILE")
    folders = make(
        study,
        out,
        keys,
        addresses=address or (),
        authority=authority,
        nodes={name: Path(file) for name, file in node_files.items()},
        keys_made_here=keys_made_here,
    )

    lines = [f"{name}: {folder}" for name, folder in folders.items()]
    lines.append("Keys, to compare by telephone:")
    fingerprints = fingerprints_in(folders[COORDINATOR])
    lines += [f"{name}: {words}" for name, words in fingerprints.items()]
    lines.append(
        "Then send each party its folder. There its owner approves what `siloweave party plan` "
        "shows, and runs `siloweave party start` with --data."
    )
    call = f"siloweave coordinator {quote(str(folders[COORDINATOR]))}"
    keyless = [name for name in folders if name not in (*keys, COORDINATOR)]
    if keyless:
        print_warning(
            f"the private keys of {', '.join(keyless)} are made here: whoever has {out} can sign "
            "as these parties, read what is sealed to them and take off their masks. The plan at "
            "every party says so"
        )
    facts = {name: str(folder) for name, folder in folders.items()}
    print_result(facts, "\n".join(lines), json=json, call=("Here:", call))


def _by_name(words: list[str], option: str, value_name: str) -> dict[str, str]:
    """Return values by name, from words such as "north=KEY"; InputError for one without "="."""
    from siloweave.errors import InputError

    values: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise InputError(f"{option} {word!r} must be NAME={value_name}")
        values[name] = value
    return values


@reported(releases=True)
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

    if network:
        # Before a folder is made: each of the processes would say it otherwise.
        from siloweave.federation.engine import need_flower

        need_flower()
    loaded_study = Study.load(study)
    host = "127.0.0.1"
    addresses = [host] if network else []
    folders = provision(study, out, trial=True, addresses=addresses)

    # Words that every end takes.
    words = ["--spool", f"{out}/spool"]
    if network:
        words = ["--superlink", f"{host}:{_free_port(host)}"]
    words += ["--wait", str(wait)]
    if seeded_noise:
        words.append("--seeded-noise")

    with ExitStack() as stack:
        party_processes = []
        for table in loaded_study.parties:
            rows = _spelled_source(loaded_study.source(table))
            folder = str(folders[table.name])
            running = _process("party", "start", folder, "--data", rows, *words)
            party_processes.append(stack.enter_context(running))
        if json:
            words.append("--json")
        running = _process("coordinator", str(folders[COORDINATOR]), *words)
        coordinator_process = stack.enter_context(running)

        # A party that ends well has heard of the result; any other ends the trial.
        while coordinator_process.poll() is None:
            if any(process.poll() for process in party_processes):
                break
            time.sleep(0.1)

        # A party that refused the study has sent why, which the coordinator prints.
        with suppress(subprocess.TimeoutExpired):
            coordinator_process.wait(_END_S)
        code = coordinator_process.returncode
        raise typer.Exit(2 if code is None else code)


def _spelled_source(rows: Any) -> str:
    """Return a file's path, or a `Database`'s address and table, as --data takes it."""
    if isinstance(rows, Path):
        return str(rows)
    return f"{rows.address}#{rows.table or rows.query}"


def _free_port(host: str) -> int:
    """Return a port that nothing uses at the moment."""
    with socket.socket() as listener:
        # Port 0: the system chooses.
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


@contextmanager
def _process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of ours in a process of its own, which ends with the block."""
    from siloweave.federation import processes

    # With --attached, it also ends when this process is killed, since its input then closes.
    process = subprocess.Popen(  # noqa: S603
        processes.command("siloweave", *words, "--attached"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=processes.environment(),
    )
    # Several processes in one terminal would write into each other's lines and progress bars.
    relay = Thread(target=_pass_on_lines, args=(process.stderr,), daemon=True)
    relay.start()
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # What the process started may still have its standard error open.
        relay.join(1.0)


def _pass_on_lines(stream: IO[bytes]) -> None:
    """Print each line of another process's standard error on this one's, whole."""
    for line in stream:
        sys.stderr.write(line.decode(errors="replace"))
        sys.stderr.flush()


def add_to(app: Any) -> None:
    """Add these commands to the command line."""
    for command in (coordinator, provision, poc):
        app.command()(command)
