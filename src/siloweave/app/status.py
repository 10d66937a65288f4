"""How far a study is, at either end, from files alone: safe while it runs, and after a crash.

The coordinator writes down whom it asks and who answers (federation/records.py). A party's folder
shows what it has answered and paid for. Times are those of the machine that is asked.

**Guarantee**: nothing here reads a row, and nothing is changed.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from siloweave.app import network
from siloweave.app.account import read_account
from siloweave.app.ledgers import ALIGNED, find_run
from siloweave.app.plan import forecast_of, plan_of, require_approved
from siloweave.app.policy import read_policy
from siloweave.app.study import Study
from siloweave.errors import InputError, LedgerError, of_system
from siloweave.federation import records
from siloweave.federation.frames import LAST, REFUSAL, exchanges_in
from siloweave.privacy.ledger import LEDGER_FILE, Ledger
from siloweave.tables.display import printable

LOG = "log.txt"
"""In an end's folder: what it did, without any value of a row."""
_ENDED = {LAST: (records.FINISHED, ""), REFUSAL: ("refused a question", "its terminal says why")}


class PartyLine(msgspec.Struct, frozen=True):
    """One party as the coordinator sees it; `waited` seconds for an answer that is still due.

    `refused` is why it did not answer the last question, or what hinders it; empty if it did.
    """

    name: str
    messages: int
    bytes_sent: int
    bytes_received: int
    payments: int
    waited: float | None
    refused: str


class CoordinatorStatus(msgspec.Struct, frozen=True):
    """How far a study is at its coordinator.

    Attributes:
        state: "not begun", "running", "stopped" (start the coordinator again to continue), the kind
            of error that ended it, or "finished".
        stage: What runs: a stage before the method, or the method.
        question, step: The last question, by its tag, and its number in the stage.
        questions, at_most: How many were asked, and may be asked in all.
        epsilon: Most that a row will have cost, at `delta`; spent once a run has finished.
        seconds: Since the process began.
        left: Seconds that all other questions would take, if each took as long as those before.
    """

    study: str
    state: str
    stage: str
    question: str
    step: int
    questions: int
    at_most: int
    epsilon: float
    delta: float
    seconds: float
    left: float | None
    parties: tuple[PartyLine, ...]


class PartyStatus(msgspec.Struct, frozen=True):
    """How far a study is at a party.

    Attributes:
        state: "its account cannot be used", "its ledger is gone", "not approved", "refused by the
            policy", "waiting for questions", "answering", "refused a question" or "finished".
        why: What is refused, or where that stands; empty otherwise.
        ended: When it answered with a refusal or to the study's end, if that was the last answer.
        answered, at_most: Questions; None where that follows from rows that are not given.
        run, step: Of the last payment in the ledger.
        epsilon, allowed: What a row has cost by the ledger, and may cost, at `delta`.
        releases: Lines of the ledger.
        stored: Bytes of answers that are kept.
        quiet: Seconds since the last question was answered; None before the first.
        received, sent: Bytes of frames of questions that it answered, and of its answers.
        computing: Seconds that its answers took, and what they needed. It stays at the party.
        sealing: Seconds of sealing, opening and signing.
        left: Seconds of all other questions at the pace so far; None where that is not known.
    """

    study: str
    party: str
    state: str
    why: str
    ended: str
    answered: int
    at_most: int | None
    run: str
    step: str
    epsilon: float
    allowed: float
    delta: float
    releases: int
    stored: int
    quiet: float | None
    received: int
    sent: int
    computing: float
    sealing: float
    left: float | None


def status_of(folder: Path, data: str | Path | None = None) -> CoordinatorStatus | PartyStatus:
    """How far the study in an end's folder is; `data` names a party's rows.

    Raises:
        InputError: It is no folder of a study.
        LedgerError: A party's ledger was edited.
    """
    study = Study.load(folder)
    if (folder / network.COORDINATOR_PUBLIC).exists():
        return _at_party(folder, study, data)
    return _at_coordinator(study)


def _at_coordinator(study: Study) -> CoordinatorStatus:
    places = (study.folder, study.folder / ALIGNED)  # the second before there is the first
    seen = (records.read_status(folder / records.STATUS) for folder in places)
    found = next(filter(None, seen), None)
    ended = find_run(study.folder)
    setup = study.setup()
    rows = [2] * len(study.names)
    planned = forecast_of(setup, study.schema.learn, rows)
    most = plan_of(study, setup, study.names[0], rows, planned)
    at = time.time()
    now = found or records.Status("", 0, at)
    if found is not None and (now.ended or not _alive(now.process)):
        at = now.written
    due = {name: at - asked for name, asked in now.asked.items() if name not in now.answered}
    done = ended is not None and ended.run == study.run_name
    if done and ended and found is None:  # its parties were in one process
        sums = {p.name: (p.messages, p.bytes_received, p.bytes_sent) for p in ended.parties}
        traffic = {name: records.Traffic(*counts) for name, counts in sums.items()}
        began = at - sum(ended.seconds.values())
        now = records.Status("", 0, began, questions=ended.rounds, traffic=traffic)
    seconds, left = at - now.began, 0.0 if done else None
    if now.questions and not done:
        left = max(most.rounds - now.questions, 0) * seconds / now.questions
    stage = now.run.removeprefix(study.run_name).removeprefix("-")
    return CoordinatorStatus(
        study=study.study.name,
        state=records.FINISHED if done else _state(found),
        stage=stage or ("method" if now.run else ""),
        question=now.question,
        step=now.step if found else 0,
        questions=now.questions,
        at_most=most.rounds,
        epsilon=ended.epsilon if done and ended else most.epsilon,
        delta=most.delta,
        seconds=seconds,
        left=left,
        parties=tuple(_lines(study, now, due)),
    )


def _lines(study: Study, now: records.Status, due: Mapping[str, float]) -> Iterator[PartyLine]:
    receipts = records.read_receipts(study.folder / records.RECEIPTS)
    paid = Counter(one.party for one in receipts if one.entry)
    for name in study.names:
        seen, why = now.traffic.get(name, records.Traffic()), now.refused.get(name, "")
        counts = seen.messages, seen.bytes_from_party, seen.bytes_to_party
        yield PartyLine(name, *counts, paid[name], due.get(name), why)


def _state(now: Any) -> str:
    if now is None:
        return "not begun"
    if now.ended:
        return "finishing" if now.ended == records.FINISHED else f"ended by {now.ended}"
    return "running" if _alive(now.process) else "stopped"


def _alive(process: int) -> bool:
    """Whether there is such a process on this machine."""
    try:
        os.kill(process, 0)
    except OSError as error:  # somebody else's may not be asked, and is there
        return not isinstance(error, ProcessLookupError)
    return True


def _at_party(folder: Path, study: Study, data: str | Path | None) -> PartyStatus:
    plan = network.plan_in(folder, data)
    unknown = data is None and any(one.guessed for one in plan.messages)
    state, why = _hindrance(folder)
    file, made, left = folder / LEDGER_FILE, exchanges_in(folder / network.NONCES), None
    entries = Ledger.read(file).entries if file.exists() and file.stat().st_size else ()
    ended = ""
    if made and made[-1].kind in _ENDED and not state:
        state, why = _ENDED[made[-1].kind]
        left = 0.0 if made[-1].kind == LAST else None
        ended = datetime.fromtimestamp(made[-1].ended, UTC).isoformat(" ", "seconds")
    elif len(made) > 1 and not unknown:
        pace = (made[-1].ended - made[0].ended) / (len(made) - 1)
        left = pace * max(plan.count - len(made), 0)
    state = state or ("answering" if made else "waiting for questions")
    store, terms = folder / "store", study.terms()
    return PartyStatus(
        study=study.study.name,
        party=network.member(folder)[-1].name,
        state=state,
        why=why,
        ended=ended,
        answered=len(made),
        at_most=None if unknown else plan.count,
        run=entries[-1].run if entries else "",
        step=entries[-1].step if entries else "",
        epsilon=Ledger.read(file).epsilon(terms.delta) if entries else 0.0,
        allowed=terms.epsilon,
        delta=terms.delta,
        releases=len(entries),
        stored=sum(one.stat().st_size for one in store.iterdir()) if store.is_dir() else 0,
        quiet=time.time() - made[-1].ended if made else None,
        received=sum(one.received for one in made),
        sent=sum(one.sent for one in made),
        computing=sum(one.computing for one in made),
        sealing=sum(one.sealing for one in made),
        left=left,
    )


def _hindrance(folder: Path) -> tuple[str, str]:
    """What keeps a party from taking part, and why; empty for nothing."""
    study, home, _, identity, _ = network.member(folder)
    try:
        read_account(home, identity)
    except LedgerError as error:
        return "its account cannot be used", str(error)
    try:
        network.require_known_ledger(folder, study, identity)
    except LedgerError as error:
        return "its ledger is gone", str(error)
    if why := network.refusal_in(folder):
        return "refused by the policy", why
    if read_policy(network.home_of(folder)).studies.approval == "by hand":
        try:
            require_approved(folder, network.plan_in(folder), network.member(folder)[3])
        except InputError as error:
            return "not approved", str(error)
    return "", ""


class OneLine(logging.Formatter):
    """A line for each record, whatever names in it came from another end."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's text, with what is not printable escaped."""
        return printable(super().format(record), lines=False)


class _Log(logging.FileHandler):
    """A log that is given up where it cannot be written, and says so once: the study goes on."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's
        self.setLevel(logging.CRITICAL + 1)
        error = sys.exception()
        why = of_system(error) if isinstance(error, OSError) else repr(error)
        sys.stderr.write(f"{self.baseFilename}: nothing more is logged there ({why})\n")


def log_into(folder: Path) -> logging.Handler:
    """Let this process write what it does into a file of its folder, which names no value.

    Warnings, as of what a party refuses, are shown in the terminal too.
    """
    (folder / LOG).touch(mode=0o600)
    log, shown = logging.getLogger("siloweave"), logging.StreamHandler()
    handler = _Log(folder / LOG, encoding="utf-8")
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    shown.setFormatter(OneLine())
    shown.setLevel(logging.WARNING)
    log.addHandler(shown)
    log.setLevel(logging.INFO)
    return handler
