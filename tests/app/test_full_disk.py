"""A full disk, at the first write of every file: one clear message that names it, and exit code 2.

The system itself refuses the writes: from a given moment on no file of this process may grow
(`RLIMIT_FSIZE`), so "File too large" stands for "No space left on device". The same command is run
again and again in one folder. Each time the disk fills up as it begins to write a file at which
that has not happened yet, until nothing is left at which it could. So no write is missed, and each
failure leaves what the next command continues from.
"""

import json
import logging
import os
import re
import signal
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from siloweave.app.cli import main
from siloweave.app.status import FACTS, LOG
from siloweave.app.status_facts import status_of
from siloweave.federation.course import FINISHED
from siloweave.federation.engine import HOME
from siloweave.privacy.journal import NEW
from siloweave.privacy.ledger import LEDGER_FILE, Ledger
from tests.app.processes import Ends, over_network, provisioned, small
from tests.federation.engines import free_port
from tests.federation.spooled import stop

resource = pytest.importorskip("resource")  # not on Windows

FULL = "File too large"
TIMES = 4
"""That the disk is full at a file, until what fails is that file."""
MOST = 200
"""Commands of one end that a test begins at most."""


class Disk:
    """What is written below some folders: it fills up when a file is begun, at each file once.

    One folder may be spared: what other processes write there.
    """

    def __init__(self, *folders, spared=None):
        self.folders, self.spared = tuple(str(one) for one in folders), f"{spared}/"
        self.tried, self.full, self.on = Counter(), None, False

    def heard(self, event, args):
        """What Python tells of files that are opened for writing, and of folders made.

        A library that is no Python writes into a folder that a run has made for its results, and
        tells nothing.
        """
        if not self.on or self.full or isinstance(args[0], int):
            return
        path = str(Path(os.fsdecode(args[0])).absolute())
        written = event == "open" and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        made = event == "os.mkdir" and Path(path).name == f".new-{os.getpid()}"
        if path.startswith(self.folders) and (written or made) and self.spared not in path:
            self.begun(event, plain(path), args[2], Path(path.removesuffix(NEW)).exists())

    def begun(self, *what):
        """Files of a folder that digests name are one; one more time is for what comes between."""
        self.tried[what] += 1
        if self.tried[what] <= TIMES:
            self.full = what
            limit(0)

    @contextmanager
    def filling(self):
        """Let it fill up once within the block."""
        self.full, self.on = None, True
        try:
            yield
        finally:
            self.on = False
            limit(resource.getrlimit(resource.RLIMIT_FSIZE)[1])

    def met(self, said):
        """Note that a failure named the file at which the disk was full."""
        if self.full is not None and self.full[1] in plain(said):
            self.tried[self.full] = TIMES


def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def plain(text):
    """Paths in a text without digests, what is drawn for a name, and what marks a file as new."""
    text = re.sub(r"/\.([\w.-]+?)\.\d+(\.[0-9a-f]{8})?\.(new|tmp)\b", r"/\1", text)
    text = re.sub(r"/\.[\w.]+-\w{8}(?=/|$)(/new)?", "/(new)", text)
    return re.sub(r"[0-9a-f]{40}", "*", text.removesuffix(NEW))


OPEN = LOG, LEDGER_FILE, FACTS  # the last is a cache: whoever cannot write it computes anew
"""Written long after they were opened: test_status.py and test_ledger.py fill the disk there."""
disks = []


def heard(event, args):
    if event in ("open", "os.mkdir"):
        for one in disks:
            one.heard(event, args)


sys.addaudithook(heard)  # which stays, and does nothing without a disk


def until_written(disk, capsys, *words, last=0):
    """Run a command until the disk fails no more: what it said each time.

    `last` is the exit code, beside 0, where nothing failed.
    """
    said, log = [], logging.getLogger("siloweave")
    before, level, threads = list(log.handlers), log.level, set(threading.enumerate())
    disks.append(disk)
    try:
        for _ in range(MOST):
            with disk.filling():
                code = main([str(word) for word in words])
            for one in set(threading.enumerate()) - threads:
                if one.daemon:  # not of a pool, whose threads stay
                    one.join(20)  # which takes an answer that the next command waits for
            for one in [one for one in log.handlers if one not in before]:
                log.removeHandler(one)
                one.close()
            err = capsys.readouterr().err
            assert "Traceback" not in err
            assert "Logging error" not in err
            if disk.full is None:
                assert code in (0, last), err
                return said
            disk.met(err)
            if code not in (0, last):
                assert code == 2, err
                assert re.search(rf"/\S+.*{FULL}", err), err
                half_written(disk)
            said.append(err)
    finally:
        disks.remove(disk)
        log.setLevel(level)
    raise AssertionError(said[-3:])


def half_written(disk):
    """Nothing under a name of its own is half a file, and nothing lies beside it."""
    for one in (one for folder in disk.folders for one in Path(folder).rglob("*")):
        assert not re.search(r"\.new|\.tmp$", one.name)
        if one.suffix in (".json", ".safetensors", ".csv", ".html"):
            assert one.stat().st_size > 0, one
        if one.suffix == ".json":
            json.loads(one.read_text())


def files_in(folder):
    return {
        plain(str(one)) for one in Path(folder).rglob("*") if one.is_file() and one.stat().st_size
    }


def unnamed(said, folder, before=()):
    """Files that are new in a folder and that no failure has named, nor the folder of a model."""
    text = plain("\n".join(said)).replace(f"/.new-{os.getpid()}", "")
    new = files_in(folder) - set(before)
    assert new
    new = {one for one in new if Path(one).name not in OPEN}
    return {one for one in new if f"{one}: " not in text and f"{Path(one).parent}: " not in text}


def test_init(folder, capsys):
    out = folder.path / "new"
    said = until_written(Disk(out), capsys, "init", "north.csv", "--folder", out, "--force")
    assert len(said) >= 2
    assert not unnamed(said, out)


def test_provision_and_what_a_partys_owner_runs(folder, capsys):
    out, home = folder.path / "ends", folder.path / "home"
    words = "provision", "study.toml", "--keys-made-here", "--out", out, "--address", "127.0.0.1"
    said = until_written(Disk(out), capsys, *words)
    assert not unnamed(said, out)
    home.mkdir()
    for command in (["policy", "--folder", home], ["key", "small", "--folder", home]):
        before = files_in(home)
        said = until_written(Disk(home), capsys, "party", *command)
        assert not unnamed(said, home, before)
    north = out / "north"
    (north / "policy.toml").write_text('[studies]\napproval = "by hand"\n')
    _, shown, _ = folder.call("party", "plan", north, "--json")
    digest = json.loads(shown)["digest"]
    before = files_in(north)
    said = until_written(Disk(north), capsys, "party", "approve", north, digest)
    assert not unnamed(said, north, before)


@pytest.mark.slow
def test_a_run_on_one_machine(folder, capsys):
    folder.replace(
        "study.toml", 'name = "flaim"\nrounds = 2\nparticipation = 1.0', 'name = "two_round"'
    )
    run = folder.path / "run"
    said = until_written(Disk(run), capsys, "run", folder.path / "study.toml")
    assert not unnamed(said, run)


@pytest.fixture
def ends_of(ends, folder):
    """The ends as processes, and their spool folder."""
    with Ends(folder.path, ends, lambda name: ["--spool", folder.path / "spool"]) as made:
        yield made, folder.path / "spool"


@pytest.mark.slow  # half a minute: it fills up at every file; a party's takes a third
def test_the_coordinator(ends_of, capsys):
    made, files = ends_of
    own = made.made["coordinator"]
    before = files_in(own)
    for name in made.parties:
        made.start(name)
    disk = Disk(own, *(files / f"to-{name}" for name in made.parties))
    words = "coordinator", own, "--spool", files, "--wait", 20, "--seeded-noise"
    said = until_written(disk, capsys, *words)
    assert not unnamed(said, own, before)
    for name in made.parties:
        assert any(f"{files}/to-{name}" in one for one in said)
    assert status_of(own).state == FINISHED


@pytest.mark.slow
def test_a_party(ends_of, capsys):
    made, files = ends_of
    for name in ("south", "coordinator"):
        made.start(name)

    def ended():
        made.ended()
        stop(files, "north")

    ending = threading.Thread(target=ended, daemon=True)
    ending.start()
    own = made.made["north"]
    before = files_in(own)
    words = "party", "start", own, "--data", own / "north.csv", "--spool", files, "--seeded-noise"
    said = until_written(Disk(own, files / "from-north"), capsys, *words)
    ending.join()
    assert not unnamed(said, own, before)
    assert any(f"{files}/from-north" in one for one in said)
    assert status_of(made.made["coordinator"]).state == FINISHED
    entries = Ledger.read(own / "ledger.jsonl").entries
    assert len({(one.run, one.step) for one in entries}) == len(entries)


# Over a network


@pytest.fixture
def over_engine(folder):
    """The ends as processes, and how questions travel."""
    pytest.importorskip("flwr", reason="needs the flower extra: make engine")
    small(folder)
    way = over_network(free_port())
    with Ends(folder.path, provisioned(folder, "127.0.0.1"), way) as made:
        yield made, way("any")


@pytest.mark.engine
@pytest.mark.slow
def test_the_coordinator_over_a_network(over_engine, capsys):
    made, way = over_engine
    own = made.made["coordinator"]
    before = files_in(own)
    for name in made.parties:
        made.start(name)
    disk = Disk(own, spared=own / HOME)
    said = until_written(disk, capsys, "coordinator", own, *way, "--wait", 120, "--seeded-noise")
    assert len(said) > 5
    assert not unnamed(said, own, before | files_in(own / HOME))
    assert status_of(own).state == FINISHED


@pytest.mark.engine
@pytest.mark.slow
def test_a_party_over_a_network(over_engine, capsys):
    made, way = over_engine
    for name in ("south", "coordinator"):
        made.start(name)
    own = made.made["north"]
    disk, before, over = Disk(own, spared=own / HOME), files_in(own), threading.Event()

    def interrupt():
        """Stop a start of the party that did not hear that the coordinator has its result."""
        made.ended()
        while not over.wait(1.0):
            if "answered the study" in (own / LOG).read_text() and disk.on:
                os.kill(os.getpid(), signal.SIGINT)

    stopping = threading.Thread(target=interrupt, daemon=True)
    stopping.start()
    words = "party", "start", own, "--data", made.path / "north.csv", *way, "--seeded-noise"
    said = until_written(disk, capsys, *words, last=130)
    over.set()
    stopping.join()
    assert len(said) > 3
    assert not unnamed(said, own, before | files_in(own / HOME))
    assert status_of(made.made["coordinator"]).state == FINISHED
    entries = Ledger.read(own / LEDGER_FILE).entries
    assert len({(one.run, one.step) for one in entries}) == len(entries)
