"""What a status takes of a study, a policy and a ledger, which are slow to load.

**Guarantee**: nothing here reads a row, and nothing is changed but the file of these facts.
"""

from __future__ import annotations

from pathlib import Path

from siloweave.app import network
from siloweave.app.account import read_account
from siloweave.app.ledgers import find_run
from siloweave.app.party_files import unknown_files
from siloweave.app.plan import forecast_of, plan_of, require_approved
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
from siloweave.errors import InputError, LedgerError
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
    known = known_status(folder, data)
    return status_by(folder, remembered(folder, data)) if known is None else known


def remembered(
    folder: Path, data: str | Path | None = None
) -> CoordinatorFacts | PartyFacts:
    """Compute an end's facts, and store them for later calls; errors as of `status_of`."""
    study = Study.load(folder)
    facts: CoordinatorFacts | PartyFacts
    if (folder / network.COORDINATOR_PUBLIC).exists():
        facts = _of_party(folder, study, data)
    else:
        facts = _of_coordinator(folder, study)
    store_facts(folder, facts)
    return facts


def _of_coordinator(folder: Path, study: Study) -> CoordinatorFacts:
    run, ended = str(study.folder.absolute()), find_run(study.folder)
    key = key_of(folder, None, run)  # before anything is read: a later change counts
    setup, rows = study.setup(), [2] * len(study.names)
    most = plan_of(
        study, setup, study.names[0], rows, forecast_of(setup, study.schema.learn, rows)
    )
    summary = None
    if ended is not None:
        sums = {one.name: (one.messages, one.bytes_received, one.bytes_sent)
                for one in ended.parties}  # fmt: skip
        traffic = {name: Traffic(*counts) for name, counts in sums.items()}
        seconds = sum(ended.seconds.values())
        summary = EndedRun(ended.run, ended.epsilon, seconds, ended.rounds, traffic)
    return CoordinatorFacts(
        key=key,
        folder=run,
        study=study.study.name,
        names=study.names,
        run=study.run_name,
        at_most=most.rounds,
        epsilon=most.epsilon,
        delta=most.delta,
        ended=summary,
    )


def _of_party(folder: Path, study: Study, data: str | Path | None) -> PartyFacts:
    key, plan = key_of(folder, data), network.plan_in(folder, data)
    state, why = _hindrance(folder)
    file, terms = folder / LEDGER_FILE, study.terms()
    entries = Ledger.read(file).entries if file.exists() and file.stat().st_size else ()
    return PartyFacts(
        key=key,
        study=study.study.name,
        party=network.member(folder)[-1].name,
        state=state,
        why=why,
        count=plan.questions,
        is_guessed=data is None and any(one.guessed for one in plan.messages),
        run=entries[-1].run if entries else "",
        step=entries[-1].step if entries else "",
        epsilon=Ledger.read(file).epsilon(terms.delta) if entries else 0.0,
        allowed=terms.epsilon,
        delta=terms.delta,
        releases=len(entries),
        unexpected=tuple(str(path) for path in unknown_files(folder, data)),
    )


def _hindrance(folder: Path) -> tuple[str, str]:
    """Return what keeps a party from taking part, and why; empty for nothing."""
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
