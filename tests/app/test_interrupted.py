"""A run that is stopped counts what it released, and continues without a second draw."""

import signal
import subprocess
import sys
from hashlib import blake2b
from types import ModuleType

import pytest
import typer

from siloweave.__main__ import main
from siloweave.app.options import reported
from siloweave.app.study import Study
from siloweave.privacy.ledger import Ledger

STOP = """
import os, signal, sys
from siloweave.app.cli import main
from siloweave.federation.site import FolderStore

put, left = FolderStore.put, [{replies}]

def stopped(store, name, data):
    if "{when}" == "after":
        put(store, name, data)
    if name.startswith("reply/"):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.{signal})
    if "{when}" == "before":
        put(store, name, data)

FolderStore.put = stopped
sys.exit(main(["run"]))
"""


def stop(folder, number, replies, when="after"):
    code = STOP.format(replies=replies, when=when, signal=number.name)
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder.path, capture_output=True, text=True, check=False
    )


def ledgers(folder):
    return {
        path.parent.name: Ledger.read(path)
        for path in sorted((folder.path / "run").glob("parties/*/ledger.jsonl"))
    }


def replies(folder):
    """What parties keep of what they sent; the small study has a look at its bins, and 7 steps."""
    run = Study.load(folder.path).run_name
    said = [f"reply/{run}-bins/{n}" for n in range(2)] + [f"reply/{run}/{n}" for n in range(7)]
    names = [blake2b(name.encode(), digest_size=20).hexdigest() for name in said]
    found = (folder.path / "run").glob("parties/*/store/*.reply")
    return {path: path.read_bytes() for path in found if path.stem in names}


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_being_killed_the_same_command_goes_on(folder, when):
    killed = stop(folder, signal.SIGKILL, 6, when)
    assert killed.returncode == -signal.SIGKILL
    counted, kept = ledgers(folder), replies(folder)
    assert sum(len(ledger.entries) for ledger in counted.values()) > 0
    assert not (folder.path / "run/run.json").exists()
    assert not (folder.path / "run/synthetic.csv").exists()
    found = folder.json("check")
    assert found["resumes"] == sum(len(ledger.entries) for ledger in counted.values())
    assert len(folder.json("ledger", "run")["ledgers"]) == len(counted)

    summary = folder.json("run")
    assert summary["finished_before"] is False
    assert summary["epsilon"] <= 1.0
    after = ledgers(folder)
    for name, ledger in counted.items():  # what was counted is counted, once
        assert after[name].entries[: len(ledger.entries)] == ledger.entries
        steps = [(entry.run, entry.step) for entry in after[name].entries]
        assert len(set(steps)) == len(steps) == 8
    assert len(kept) == 6 - (when == "before")
    for path, data in kept.items():  # what was sent is sent again, never drawn anew
        assert path.read_bytes() == data


def test_ctrl_c_says_how_to_continue(folder):
    stopped = stop(folder, signal.SIGINT, 6)
    assert stopped.returncode == 130
    assert "Traceback" not in stopped.stderr
    assert "the same command continues" in stopped.stderr
    assert sum(len(ledger.entries) for ledger in ledgers(folder).values()) > 0
    assert folder.json("run")["epsilon"] <= 1.0


def test_ctrl_c_before_the_first_release_leaves_nothing(folder):
    before = folder.files()
    assert stop(folder, signal.SIGINT, 1).returncode == 130
    assert folder.files() == before


class Interrupted(ModuleType):
    """A module in whose loading Ctrl-C is pressed."""

    def __getattr__(self, name):
        raise KeyboardInterrupt


def test_ctrl_c_while_the_command_line_is_loaded_is_a_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "siloweave.app.cli", Interrupted("cli"))
    assert main() == 130
    assert capsys.readouterr().err == "\ninterrupted before anything was begun\n"


def test_only_a_command_that_releases_tells_of_ledgers(capsys):
    for releases in (False, True):
        with pytest.raises(typer.Exit) as end, reported(releases=releases):
            raise KeyboardInterrupt
        assert end.value.exit_code == 130
        assert ("ledgers" in capsys.readouterr().err) == releases


@pytest.mark.parametrize("reason", ["", "Unable to allocate 7.28 TiB"])
def test_too_little_memory_is_a_sentence(capsys, reason):
    with pytest.raises(typer.Exit) as end, reported():
        raise MemoryError(reason)
    assert end.value.exit_code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("error: this machine has too little memory for that")
    assert reason in said
    assert "such as fewer rows" in said


def test_what_parties_keep_is_enough_to_make_the_same_table_again(done):
    before = done.files()
    (done.path / "run/run.json").unlink()
    assert done.json("run")["finished_before"] is False
    after = done.files()
    for name in before:
        if name.endswith(("ledger.jsonl", "synthetic.csv")):
            assert after[name] == before[name], name
