"""The ends of a study as processes of their own, which tests kill and start again."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from siloweave.app.account import read_account
from siloweave.app.ledgers import check_receipts
from siloweave.app.network import party_in, provision
from siloweave.app.policy import promised
from siloweave.app.study import Study
from siloweave.federation.course import STATUS, read_status
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.ledger import KEY_FILE, LEDGER_FILE, Identity, Ledger

LAST_S = 240.0
"""Longest time that a test waits for something that must happen."""


def small(folder, names=("north", "south"), **settings):
    """Make the folder's study one of TwoRound between these parties, with rows for each."""
    more = "".join(f"\n{name} = {value}" for name, value in settings.items())
    folder.replace(
        "study.toml", 'name = "flaim"\nrounds = 2\nparticipation = 1.0', f'name = "two_round"{more}'
    )
    text = (folder.path / "study.toml").read_text()
    for name in names[2:]:
        text += f'\n[[parties]]\nname = "{name}"\ndata = "{name}.csv"\n'
        (folder.path / f"{name}.csv").write_bytes((folder.path / "north.csv").read_bytes())
    folder.write("study.toml", text)


class Ends:
    """A coordinator and parties, each started by its command; they end with this process.

    `way` is how questions travel, as words of a command, by end; `within` is what comes before a
    command, by end.
    """

    def __init__(self, path, made, way, *, wait=LAST_S, within=None):
        self.path, self.made, self.way = path, made, way
        self.wait, self.within, self.running = wait, within or {}, {}

    @property
    def parties(self):
        return [name for name in self.made if name != "coordinator"]

    def start(self, name):
        words = ["coordinator"] if name == "coordinator" else ["party", "start"]
        words += [str(self.made[name]), *self.way(name), "--wait", str(self.wait)]
        if name != "coordinator":
            own = Path(self.made[name]) / f"{name}.csv"
            words += ["--data", str(own if own.exists() else self.path / f"{name}.csv")]
        command = [sys.executable, "-m", "siloweave", *words, "--seeded-noise", "--attached"]
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*self.within.get(name, []), *command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.path,
            )  # fmt: skip

    def start_all(self):
        """The parties, and once they answer the coordinator."""
        for name in self.parties:
            self.start(name)
        if "--spool" in self.way("coordinator"):  # over a network they wait for the coordinator
            until(lambda: all("waiting for the first" in self.said(n) for n in self.parties))
        self.start("coordinator")

    def log(self, name):
        return self.path / f"{name}.log"

    def said(self, name):
        return self.log(name).read_text(errors="replace")

    def step(self):
        """The question that the coordinator is at: the stage's run, and the step."""
        now = read_status(Path(self.made["coordinator"]) / "run" / STATUS)
        return (now.run, now.step) if now is not None and now.step >= 0 else None

    def kill(self, name):
        self.stop(name, signal.SIGKILL)

    def stop(self, name, how=signal.SIGINT):
        self.running[name].send_signal(how)
        self._over(self.running.pop(name))

    def over(self, name):
        """The exit code of an end that ends by itself."""
        return self._over(self.running.pop(name))

    def _over(self, process):
        """Its exit code, once it has ended."""
        try:
            return process.wait(60)
        finally:
            process.kill()
            process.wait()
            process.stdin.close()

    def ended(self, hurt=lambda step: None):
        """The coordinator's exit code; `hurt` is called at every new question, by its number."""
        seen, end = set(), time.monotonic() + 3 * LAST_S
        while self.running["coordinator"].poll() is None:
            assert time.monotonic() < end, self.said("coordinator")
            if (step := self.step()) is not None and step not in seen:
                seen.add(step)
                hurt(len(seen))
            time.sleep(0.01)
        return self._over(self.running.pop("coordinator"))

    def rows(self):
        return (Path(self.made["coordinator"]) / "run" / "synthetic.csv").read_text()

    def summary(self):
        file = Path(self.made["coordinator"]) / "run" / "run.json"
        return msgspec.json.decode(file.read_bytes())

    def check_accounts(self):
        """Ledgers have every payment that the coordinator saw, and accounts cover the ledgers.

        An account has its study once and whole, however often an end was killed, and also covers
        all that the study's result states of a row or person, to whomever.
        """
        folders = {name: Path(self.made[name]) for name in self.parties}
        files = {name: folder / LEDGER_FILE for name, folder in folders.items()}
        written = {name: file for name, file in files.items() if file.is_file()}
        run = Path(self.made["coordinator"]) / "run"
        check_receipts(run, written)
        stated = []
        if (run / "run.json").is_file():
            summary = self.summary()
            names = ("epsilon", "epsilon_to_parties", "epsilon_at_parties")
            stated = [summary[name] for name in names if summary[name] is not None]
        for name, file in written.items():
            study = Study.load(folders[name])
            account = read_account(folders[name], Identity.load(folders[name] / KEY_FILE))
            (entry,) = account.entries
            most = promised(study)
            assert (entry.kind, entry.study) == ("study", study.study.name)
            assert entry.cost == (most.epsilon, most.delta)
            events = [line.event for line in Ledger.read(file).entries]
            spent = epsilon(events, most.delta) if events else 0.0
            for value in (spent, *map(float, stated)):
                assert value <= entry.cost.epsilon, (name, value)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.running.values():
            one.stdin.close()
        for one in self.running.values():
            self._over(one)


def told(text):
    """What an end printed, in one line."""
    return " ".join(text.split())


def until(holds, seconds=LAST_S):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def below(number):
    """Numbers of all processes that a process has started, and they, and so on."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.decode().splitlines()]
    found, new = set(), {number}
    while new:
        new = {child for child, parent in pairs if parent in new} - found
        found |= new
    return found


def lives(number):
    """Whether a process runs, and is not a dead one that nobody has asked for."""
    state = Path(f"/proc/{number}/stat")
    with suppress(OSError):
        return state.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def first(folder, code):
    """What comes before the command of an end, so that it runs some code first.

    So do all processes that the end starts.
    """
    place = folder.path / "first"
    place.mkdir()
    (place / "sitecustomize.py").write_text(code)
    return ["env", f"PYTHONPATH={os.pathsep.join([str(place), *filter(None, sys.path)])}"]


def over_network(port):
    return lambda name: ["--superlink", f"127.0.0.1:{port}"]


def provisioned(folder, *addresses):
    return provision(folder.path, folder.path / "ends", trial=True, addresses=addresses)


def party_at(end, **settings):
    """The party of an end's folder in which its rows lie, too."""
    return party_in(end, end / f"{end.name}.csv", **settings)


def is_root():
    return os.geteuid() == 0
