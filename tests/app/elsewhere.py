"""Nodes that do not run beside their party: as another user, or as Flower's own SuperNode."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from siloweave.federation import engine
from tests.federation.engines import free_port

NOBODY, STRANGER = 65534, 65533
"""Users that own nothing on any machine."""


@cache
def interpreter_of_all():
    """An interpreter, and the places of its modules, that another user can start; None if none.

    A virtual environment may link to one in a home folder, which others cannot enter.
    """
    places = os.pathsep.join(place for place in sys.path if place)
    number = f"python3.{sys.version_info.minor}"
    for program in filter(None, (sys.executable, shutil.which(number, path="/usr/bin"))):
        try:
            subprocess.run(
                [program, "-P", "-c", "import flwr, msgspec, siloweave"],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                env={"PYTHONPATH": places},
                cwd="/",
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return program, places
    return None


def shared_folder(path):
    """A folder for a socket that a node of `NOBODY` can enter, and its way there."""
    path.mkdir(mode=0o710)
    os.chown(path, os.geteuid(), NOBODY)
    path.chmod(0o710)
    for folder in path.parents:
        if folder.stat().st_mode & 0o001 == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    return path


@contextmanager
def as_user(user, *words, log):
    """A command of ours as another user, without any group of this one."""
    program, places = interpreter_of_all()
    with log.open("ab") as file:
        running = subprocess.Popen(
            [program, "-P", "-m", "siloweave", *words, "--attached"],
            user=user,
            group=NOBODY,
            extra_groups=[],
            env={"PYTHONPATH": places, "PATH": "/usr/bin:/bin"},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
        )
    with ended(running):
        yield running


@contextmanager
def supernode(folder, port, authority, key, socket):
    """Flower's own SuperNode, whose configuration names a party's socket."""
    programs = Path(sys.executable).parent
    command = [str(programs / "flower-supernode"), "--superlink", f"127.0.0.1:{port}"]
    command += ["--root-certificates", str(authority), "--auth-supernode-private-key", str(key)]
    command += ["--port", str(free_port()), "--node-config", f"siloweave-socket='{socket}'"]
    environment = os.environ | engine._SETTINGS
    environment |= {"FLWR_HOME": str(folder / "flower-home"), "FLWR_LOG_LEVEL": "INFO"}
    environment["PATH"] = os.pathsep.join([str(programs), os.environ["PATH"]])  # flower-superexec
    environment["PYTHONPATH"] = os.pathsep.join(place for place in sys.path if place)
    with (folder / "supernode.log").open("ab") as log:
        running = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    with ended(running):
        yield running


@contextmanager
def ended(running):
    """Let a process end with the block."""
    try:
        yield
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        running.stdin.close()
