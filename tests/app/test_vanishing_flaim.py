"""FLAIM over a real network engine, with parties killed after they masked their words of a sum."""

import re
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from siloweave.federation.course import STATUS, read_status
from siloweave.privacy.ledger import LEDGER_FILE, Ledger
from tests.app.processes import Ends, below, lives, over_network, provisioned, small, until
from tests.federation.engines import free_port

pytestmark = pytest.mark.engine
pytest.importorskip("flwr", reason="needs the flower extra: make engine")

WAIT = 40
"""Seconds after which a party that does not answer has vanished, or ends the study."""

PAID = ("bins/columns", "sum/count", "flaim/select", "flaim/measure")
"""Questions of which each answer is a release."""


class Study:
    """Four parties, of which some are killed at a question of the method, in the first round.

    Attributes:
        code: What the coordinator exited with.
        ending: Processes of the coordinator and of those that are killed.
        waiting: Those of the other parties, which answer until the study has its result.
    """

    def __init__(self, ends, victims, question):
        self.ends, self.victims, self.question = ends, victims, question
        self.ending, self.waiting, self.before = set(), set(), ""
        ends.start_all()
        self.code = ends.ended(self.kill)
        assert self.ending, ends.said("coordinator")

    @property
    def office(self):
        return Path(self.ends.made["coordinator"])

    def kill(self, number):
        """Kill the victims once they have masked what they chose, and were asked on."""
        now = read_status(self.office / "run" / STATUS)
        if not self.ending and (self.before, now.question) == ("flaim/measure", self.question):
            for name, process in self.ends.running.items():
                group = self.ending if name in ("coordinator", *self.victims) else self.waiting
                group.update({process.pid} | below(process.pid))
            for name in self.victims:
                self.ends.kill(name)
        self.before = now.question

    def entries(self, name):
        """What a party paid for: run and step, and the event."""
        found = Ledger.read(Path(self.ends.made[name]) / LEDGER_FILE).entries
        return [((one.run, one.step), one.event) for one in found]

    def check_ledgers(self):
        """Every release that reached the coordinator, or did not, is in its party's ledger."""
        text, asked, count = (self.office / "log.txt").read_text(), {}, 0
        for run, step, name, what in re.findall(r"run (\S+), step (\d+): asked (\w+) (\S+)", text):
            asked[run, step, name] = what
        for run, step, name in re.findall(r"run (\S+), step (\d+): (\w+) answered", text):
            if asked[run, step, name] in PAID:
                assert (run, f"{step}.1") in dict(self.entries(name)), (name, step)
                count += 1
        assert count >= 4 * len(PAID)
        self.ends.check_accounts()
        for name in self.victims:  # the same as a party that goes on, as far as it came
            mine = self.entries(name)
            assert mine == self.entries("north")[: len(mine)]

    def check_gone(self):
        """A minute later nothing runs but parties of a study without a result.

        Of those nothing stays when they are stopped; others have ended by themselves.
        """
        until(lambda: not any(map(lives, self.ending)), 60)
        if self.code == 0:
            until(lambda: not any(map(lives, self.waiting)), 60)
        else:
            assert all(map(lives, self.waiting))
        for name in set(self.ends.running):
            self.ends.stop(name, signal.SIGTERM)
        until(lambda: not any(map(lives, self.waiting)), 60)


@contextmanager
def killed(folder, dropouts, victims, question):
    small(folder, ("north", "south", "east", "west"))
    text = f'name = "flaim"\nrounds = 2\nparticipation = 1.0\ndropouts = {dropouts}'
    folder.replace("study.toml", 'name = "two_round"', text)
    made = provisioned(folder, "127.0.0.1")
    with Ends(folder.path, made, over_network(free_port()), wait=WAIT) as ends:
        yield Study(ends, victims, question)


def test_a_study_goes_on_without_a_party_that_was_killed_after_it_masked(folder):
    with killed(folder, 1, ["west"], "sum/open") as study:
        assert study.code == 0, study.ends.said("coordinator")
        study.check_gone()
        assert "Vanished on the way: west" in study.ends.said("coordinator")
        summary = study.ends.summary()
        assert summary["vanished"] == ["west"]
        assert summary["epsilon"] == summary["epsilon_allowed"]  # what west spent is not known
        assert len(study.ends.rows().split()) > 2
        study.check_ledgers()
        assert len(study.entries("west")) < len(study.entries("north"))
        for i, name in enumerate(("north", "south", "east")):
            assert summary["parties"][i]["name"] == name
            copy = study.office / "run" / "parties" / f"{i:04d}" / LEDGER_FILE
            assert copy.read_bytes() == (study.ends.made[name] / LEDGER_FILE).read_bytes()


@pytest.mark.parametrize(
    ("dropouts", "victims", "question", "words"),
    [
        (0, ["west"], "sum/count", r"party 'west' did not answer within 40 s"),
        pytest.param(
            1, ["east", "west"], "sum/open",
            r"party 'east', party 'west' did not answer, and 1 may vanish .* Nothing was opened",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["none tolerated", "one more than tolerated"],
)  # fmt: skip
def test_a_study_that_cannot_do_without_them_ends_at_its_deadline(
    dropouts, victims, question, words, folder
):
    with killed(folder, dropouts, victims, question) as study:
        assert study.code == 2
        assert re.search(words, " ".join(study.ends.said("coordinator").split()))
        assert not (study.office / "run" / "run.json").exists()
        study.check_ledgers()
        study.check_gone()
