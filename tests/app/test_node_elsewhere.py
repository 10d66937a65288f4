"""A party's node as another user, and as Flower's own SuperNode: rows are those of one process."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

from siloweave.app.network import provision
from tests.app.elsewhere import (
    NOBODY,
    STRANGER,
    as_user,
    interpreter_of_all,
    shared_folder,
    supernode,
)
from tests.app.processes import Ends, is_root, over_network, small, told, until
from tests.app.studies import here
from tests.federation.engines import SuperLink, free_port

pytestmark = pytest.mark.engine
pytest.importorskip("flwr", reason="needs the flower extra: make engine")

NEEDS_USERS = pytest.mark.skipif(
    not hasattr(socket, "SO_PEERCRED") or not is_root(),
    reason="only the superuser of a Linux can start a process as somebody else",
)


@NEEDS_USERS
def test_a_node_of_another_user_carries_and_cannot_read_the_partys_files(folder, tmp_path):
    if interpreter_of_all() is None:
        pytest.skip("no interpreter here, with Flower, can be started by another user")
    small(folder)
    port = free_port()
    made = provision(folder.path, folder.path / "ends", trial=True, addresses=["127.0.0.1"])
    home, path = tmp_path / "node", shared_folder(tmp_path / "shared") / "party.sock"
    shutil.move(made["north"] / "engine", home)  # the node's files, and the party has no others
    for file in (home, *home.iterdir()):
        os.chown(file, NOBODY, NOBODY)

    def way(name):
        if name != "north":
            return over_network(port)(name)
        return ["--socket", str(path), "--node-user", str(NOBODY)]

    log = tmp_path / "node.txt"
    words = ["party", "node", str(home), "--socket", str(path), "--superlink", f"127.0.0.1:{port}"]
    with Ends(folder.path, made, way) as ends, as_user(NOBODY, *words, log=log) as node:
        ends.start("north")
        until(path.exists)
        assert stranger_is_refused(path)  # before the study ends, and the socket with it
        refusal = "a process of user 65533 connected"
        until(lambda: refusal in (made["north"] / "log.txt").read_text())
        ends.start("south")
        ends.start("coordinator")
        assert ends.ended() == 0, ends.said("coordinator") + log.read_text()
        assert ends.rows() == here(folder)
        assert not (made["north"] / "engine").exists()
        assert "party 'north': waiting for its node" in ends.said("north")
        assert f"node: carrying between 127.0.0.1:{port} and the party" in log.read_text()
        assert (home / "node.log").stat().st_uid == NOBODY
        for file in (made["north"] / "party.key", made["north"] / "study.toml"):
            assert "Permission denied" in read_as(NOBODY, file)
        assert node.poll() is None


def read_as(user, path):
    done = subprocess.run(
        ["cat", str(path)], user=user, group=NOBODY, extra_groups=[], capture_output=True, text=True
    )
    return done.stderr


def stranger_is_refused(path):
    """Whether a user of the same group, who can open the socket, is given no answer."""
    code = f"""
import os, socket
os.setgroups([]); os.setgid({NOBODY}); os.setuid({STRANGER})
end = socket.socket(socket.AF_UNIX)
end.settimeout(5)
end.connect({str(path)!r})
try:
    end.sendall(bytes([1]) + (1).to_bytes(8, "big") + b"x")
    print(end.recv(1))
except OSError:
    print(b"")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "b''"


def test_a_study_with_flowers_own_superlink_and_supernode(folder, tmp_path):
    """One party's node is a stock SuperNode, which starts our application for every question."""
    small(folder)
    key, shared = tmp_path / "supernode", tmp_path / "shared"
    shared.mkdir(mode=0o700)
    make_key = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(key)]
    subprocess.run(make_key, check=True)
    word = tmp_path / "tasks.secret"
    word.write_text("of those who may take tasks")
    with SuperLink(tmp_path / "others", "--superexec-auth-secret-file", str(word)) as link:
        authority, path = link.folder / "ca.crt", shared / "party.sock"
        made = provision(
            folder.path,
            folder.path / "ends",
            trial=True,
            authority=authority,
            nodes={"north": key.with_suffix(".pub")},
        )
        assert not (made["north"] / "engine" / "node.key").exists()

        def way(name):
            if name == "north":
                return ["--socket", str(path)]
            joining = ["--join", "--join-secret", str(word)] if name == "coordinator" else []
            return ["--superlink", f"localhost:{link.port}", *joining]

        with Ends(folder.path, made, way) as ends:
            ends.start_all()
            until(lambda: path.exists())
            admitted = made["coordinator"] / "engine" / "pairing.log"
            until(lambda: admitted.exists() and "admitted" in admitted.read_text())
            with supernode(tmp_path, link.port, authority, key, path):
                assert ends.ended() == 0, ends.said("coordinator")
                assert ends.rows() == here(folder)
        started = (tmp_path / "supernode.log").read_text()
        assert "refused" not in told(ends.said("north"))
        assert started.count("Sent successfully") >= 4
