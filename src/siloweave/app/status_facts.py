"""What a status takes of a study, a policy and a ledger, which are slow to load.

**Guarantee**: nothing here reads a row, and nothing is changed but the file of these facts.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from siloweave.app import network
from siloweave.app.account import read_account
from siloweave.app.ends import (
    COORDINATOR_KEY,
    COORDINATOR_PUBLIC,
    ends_below,
    require_study_folder,
)
from siloweave.app.ledgers import RunSummary, find_run
from siloweave.app.party_files import unknown_files
from siloweave.app.plan import APPROVAL, forecast_of, plan_of, require_approved
from siloweave.app.policy import read_policy
from siloweave.app.status import (
    CoordinatorFacts,
    CoordinatorStatus,
    EndedRun,
    PartyFacts,
    PartyStatus,
    key_of,
    known_status,
    status_by,
    store_facts,
)
from siloweave.app.study import Study
from siloweave.errors import InputError, LedgerError, SiloweaveError
from siloweave.federation.course import Traffic
from siloweave.privacy.ledger import LEDGER_FILE, Ledger


def status_of(
    folder: Path, data: str | Path | None = None
) -> CoordinatorStatus | PartyStatus:
    """Return how far the study in an end's folder is; `data` names a party's rows.

    Raises:
        InputError: It is no folder of a study.
        LedgerError: A party's ledger was edited.
    """
    stored_status = known_status(folder, data)
    if stored_status is not None:
        return stored_status
    return status_by(folder, remembered(folder, data))


def remembered(
    folder: Path, data: str | Path | None = None
) -> CoordinatorFacts | PartyFacts:
    """Compute an end's facts, and store them for later calls; errors as of `status_of`."""
    require_study_folder(folder)
    study = Study.load(folder)
    facts: CoordinatorFacts | PartyFacts
    if (folder / COORDINATOR_PUBLIC).exists():
        facts = _of_party(folder, study, data)
    else:
        is_coordinator = (folder / COORDINATOR_KEY).exists()
        if not is_coordinator and find_run(study.folder) is None:
            raise _no_end(folder)
        facts = _of_coordinator(folder, study)
    store_facts(folder, facts)
    return facts


def _no_end(folder: Path) -> InputError:
    """Return the error about a study's folder in which nothing ran; names the ends below it."""
    text = f"{folder}: this folder has the study, and is no end of it"
    ends = []
    for end in ends_below(folder):
        name = end.relative_to(folder).as_posix()
        # Of the coordinator its state is shown, as it is the one that its owner most likely meant.
        with suppress(SiloweaveError):
            if (end / COORDINATOR_KEY).exists():
                name += f" ({status_of(end).state})"
        ends.append(name)
    if ends:
        return InputError(f"{text}. Ends: {', '.join(ends)}")
    return InputError(
        f"{text}; nor did it run here. `siloweave run` runs it on this machine, and `siloweave "
        "provision` makes the folders of its ends"
    )


def _of_coordinator(folder: Path, study: Study) -> CoordinatorFacts:
    """Compute what the status of a study's coordinator says beside the course of the run."""
    run_folder = str(study.folder.absolute())
    # The key before all that is read, so that a change meanwhile counts as a later one.
    key = key_of(folder, None, run_folder)
    ended = find_run(study.folder)

    # A coordinator does not know how many rows there are, and plans for two at each party.
    setup = study.setup()
    row_counts = [2] * len(study.names)
    forecast = forecast_of(setup, row_counts)
    plan = plan_of(study, setup, study.names[0], row_counts, forecast)
    return CoordinatorFacts(
        key=key,
        folder=run_folder,
        study=study.study.name,
        names=study.names,
        run=study.run_name,
        at_most=plan.rounds,
        epsilon=plan.epsilon,
        allowed=study.terms().epsilon,
        delta=plan.delta,
        ended=None if ended is None else _ended_run(ended),
    )


def _ended_run(summary: RunSummary) -> EndedRun:
    """Return what a status takes of the summary of a finished run."""
    traffic = {}
    spent = {}
    for party in summary.parties:
        spent[party.name] = party.epsilon
        traffic[party.name] = Traffic(
            messages=party.messages,
            bytes_to_party=party.bytes_received,
            bytes_from_party=party.bytes_sent,
        )
    seconds = sum(summary.seconds.values())
    return EndedRun(
        summary.run, summary.epsilon, seconds, summary.rounds, traffic, spent
    )


def _of_party(folder: Path, study: Study, data: str | Path | None) -> PartyFacts:
    """Compute what a party's status says beside the questions that it answered."""
    # The key before all that is read, as at the coordinator.
    key = key_of(folder, data)
    plan = network.plan_in(folder, data)
    state, why = _hindrance(folder)
    # Without rows their number is a guess, and what follows from it.
    is_guessed = data is None and any(message.guessed for message in plan.messages)

    terms = study.terms()
    file = folder / LEDGER_FILE
    run = ""
    step = ""
    epsilon = 0.0
    releases = 0
    # A ledger that was only opened is empty, and cannot be read as one.
    if file.exists() and file.stat().st_size:
        ledger = Ledger.read(file)
        releases = len(ledger.entries)
        if ledger.entries:
            run = ledger.entries[-1].run
            step = ledger.entries[-1].step
            epsilon = ledger.epsilon(terms.delta)
    unexpected = unknown_files(folder, data)
    return PartyFacts(
        key=key,
        study=study.study.name,
        party=network.member(folder)[-1].name,
        state=state,
        why=why,
        count=plan.questions,
        is_guessed=is_guessed,
        run=run,
        step=step,
        epsilon=epsilon,
        allowed=terms.epsilon,
        delta=terms.delta,
        releases=releases,
        unexpected=tuple(map(str, unexpected)),
        is_approved=(folder / APPROVAL).exists(),
    )


def _hindrance(folder: Path) -> tuple[str, str]:
    """Return what keeps a party from taking part, and why; empty for nothing."""
    study, home, roster, identity, _ = network.member(folder)
    # First what makes the owner's own files unusable, since a policy is judged by the account.
    try:
        read_account(home, identity)
    except LedgerError as error:
        return "its account cannot be used", str(error)
    try:
        coordinator = roster.keys[roster.coordinator].signing
        network.require_known_ledger(folder, study, identity, coordinator)
    except LedgerError as error:
        return "its ledger cannot be used", str(error)

    try:
        refusal = network.policy_refusal(folder)
    except LedgerError as error:
        return "an old or second copy", str(error)
    if refusal:
        return "refused by the policy", refusal
    if read_policy(home).studies.approval == "by hand":
        plan = network.plan_in(folder)
        try:
            require_approved(folder, plan, identity)
        except InputError as error:
            return "not approved", str(error)
    return "", ""
