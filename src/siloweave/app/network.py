"""A study between organisations: folders for its ends, and what runs in each.

Each end has a folder for the study (`provision` makes them all). A party that takes part in several
studies has a folder with its key and policy, and the studies' folders in it:

==================  ==========================================================================
``study.toml``      the study, the same at all ends
``schema.json``     its columns
``roster.json``     who takes part, by which keys; signed by the coordinator
``policy.toml``     at a party: what its owner allows, whatever a study asks for
``account.jsonl``   at a party, beside its key: what each study that it started may cost
``coordinator.pub`` at a party: the coordinator's public key, which its owner has compared
``party.key``       a party's private key, or ``coordinator.key``: never leaves the folder
``engine``          certificates and keys by which the engine's processes meet, over a network
``ledger.jsonl``    what a party has released, and beside it all it needs to continue
``results``         at a party: the study's table and public report, if its policy takes them
``synthetic.csv``   at a party: its synthetic columns, where they stay with their parties
``begun``           at a party: its signature, by which it knows that all this is its own, what its
                    ledger is known by, and the ledger's first line, once there is one
==================  ==========================================================================

**Guarantee**: none of its own; see core/party.py, federation/frames.py, and the method.
"""

from __future__ import annotations

import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import isinf
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import msgspec

from siloweave.app.account import (
    ACCOUNT_FILE,
    Account,
    AccountEntry,
    Charged,
    added_up,
    lines_of,
    load_or_create_home,
    open_account,
    read_account,
    read_record,
    require_file,
)
from siloweave.app.check import check_columns, check_rows, columns_in, rows_taken
from siloweave.app.plan import (
    Plan,
    forecast_of,
    most_asked,
    plan_of,
    require_approved,
    sends_results,
)
from siloweave.app.policy import POLICY_FILE, promised, read_policy, write_policy
from siloweave.app.seen_ledgers import SeenLedger, require_newest
from siloweave.app.study import PartyTable, Study
from siloweave.core.method import Setup
from siloweave.core.party import (
    ALIGNMENT,
    PARTING,
    Party,
    lost_ledger,
    study_party,
    synthetic_columns,
)
from siloweave.core.settings import SEEDED, agreed
from siloweave.errors import (
    InputError,
    LedgerError,
    RosterError,
    SiloweaveError,
    StudyError,
    naming_party,
)
from siloweave.federation import engine, frames
from siloweave.federation.alignment_party import AlignmentData
from siloweave.federation.carriers.sealed import Post, SealedCarrier
from siloweave.federation.exchanges import NONCES, Nonces
from siloweave.federation.masking import KEY
from siloweave.federation.session import Part
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.journal import write_whole
from siloweave.privacy.ledger import (
    KEY_FILE,
    LEDGER_FILE,
    Entry,
    Identity,
    Ledger,
    fingerprint,
    verify,
)
from siloweave.privacy.mechanisms import OSEntropy
from siloweave.tables.cells import moved_note
from siloweave.tables.database import source_of
from siloweave.tables.drawn import drawn_anew, listed_instead
from siloweave.tables.ids import IdPolicy
from siloweave.tables.read import read, write

COORDINATOR = "coordinator"
"""What the coordinator is called, and its folder."""
STUDY_FILE = "study.toml"
COORDINATOR_KEY, COORDINATOR_PUBLIC = "coordinator.key", "coordinator.pub"
"""In the coordinator's folder its private key; in a party's folder the public one."""
KEPT = "synthetic.csv"
"""In a party's folder: its synthetic columns, where these stay with their parties."""
RESULTS = "results"
"""In a party's folder: the synthetic table and the public report, if its policy takes them."""
MOST_SENT = 64 * 2**20
"""Bytes of both that a coordinator sends to parties at the end; larger ones it keeps."""
_BEGUN = "begun"
_SIGNED, _NUMBER = 64, 32  # bytes of a signature in it, then those of the ledger's number
_POLICY, _LEDGER = (f"its {one} does not allow this study" for one in ("policy", "ledger"))
_ROWS = "its rows do not fit this study"
_PURPOSE = b"siloweave begun"
_REMEMBERED = ("store", ALIGNMENT, "training-*", KEPT)
OWN_FILES = (NONCES, KEPT, _BEGUN, SEEDED)
"""Files that a party writes into a study's folder for itself; the key, policy and ledger apart."""
_log = logging.getLogger("siloweave")


# Keys and folders


def spelled_keys(keys: frames.PublicKeys) -> str:
    """Both public keys of an end as one word.

    Example:
        >>> keys = frames.keys_for("flu", Identity.seeded(b"only for an example"))
        >>> keys_in(spelled_keys(keys)) == keys
        True
    """
    return b64encode(keys.signing + keys.sealing).decode()


def keys_in(word: str) -> frames.PublicKeys:
    """What `spelled_keys` wrote; InputError for another word."""
    try:
        both = b64decode(word, validate=True)
    except ValueError:
        both = b""
    if len(both) != 2 * KEY:
        raise InputError(
            f"{word[:40]!r} is no pair of public keys. Give the whole word that `siloweave party "
            "key` printed at the party"
        )
    return frames.PublicKeys(both[:KEY], both[KEY:])


def provision(
    path: Path,
    out: Path,
    keys: Mapping[str, str] | None = None,
    *,
    trial: bool = False,
    addresses: Sequence[str] = (),
    authority: Path | None = None,
    nodes: Mapping[str, Path] | None = None,
    keys_made_here: bool = False,
) -> dict[str, Path]:
    """Make a folder for the coordinator and for each party, with keys, the study and its roster.

    Args:
        path: The study's file, or its folder.
        out: Where the folders are made. Keys that are there are kept.
        keys: What `siloweave party key` printed at parties, which then keep their private keys to
            themselves.
        trial: Whether all ends stay on this machine, and policies allow the study as it is.
        addresses: Names and IP addresses by which parties reach the coordinator over a network;
            certificates are made for these. Without any, frames travel as files.
        authority: The certificate of the authority of a SuperLink that others run, in place of
            addresses: the coordinator joins it, and all ends trust it.
        nodes: Files with the public keys of engine nodes that parties made, by party.
        keys_made_here: Whether keys are made here for parties without one, as in a trial. Whoever
            has them can sign as these parties and read what they are sent, which the roster says;
            and their folders must travel in safety.

    Returns:
        Every end's folder, by name.

    Raises:
        InputError: The study cannot run over a network, or a key is malformed, or is missing.
        RosterError: A key is of no party, or two parties have one.
    """
    study, keys = Study.load(path), keys or {}
    source = path / STUDY_FILE if path.is_dir() else path
    nodes = nodes or {}
    if strangers := [name for name in (*keys, *nodes) if name not in study.names]:
        option = "--key" if strangers[0] in keys else "--node"
        raise RosterError(
            f"{option} {strangers[0]}: the study has the parties {', '.join(study.names)}"
        )
    without = [name for name in study.names if name not in keys]
    if without and not (trial or keys_made_here):
        raise InputError(
            f"--key is missing for {', '.join(without)}. Let each party run `siloweave party key "
            f"{quote(study.study.name)}` and give what that prints as --key {without[0]}=KEY. Or "
            "say --keys-made-here: whoever has this folder can then sign as these parties, read "
            "what is sealed to them and take off their masks"
        )
    schema = Path(study.schema.file)
    if schema.is_absolute() or len(schema.parts) > 1:
        raise InputError(
            f"[schema] file = {study.schema.file!r} must be the name of a file beside the study's, "
            "which every end gets a copy of"
        )
    study.setup()  # refuses a study that cannot run over a network
    declared = study.read_schema().without_reasons().to_json()  # reasons count someone's rows
    folders = {name: out / name for name in (COORDINATOR, *study.names)}
    office = Identity.load_or_create(folders[COORDINATOR] / COORDINATOR_KEY)
    public = {}
    for name in study.names:
        if name in keys:
            public[name] = keys_in(keys[name])
        else:
            identity = load_or_create_home(folders[name])
            public[name] = frames.keys_for(study.study.name, identity)
    roster = frames.signed_roster(study.study.name, office, public, COORDINATOR, without)
    for name, folder in folders.items():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        roster.store(folder / frames.ROSTER_FILE)
        write_whole(folder / STUDY_FILE, source.read_bytes())
        write_whole(folder / schema.name, declared.encode())
        if name != COORDINATOR:
            write_whole(folder / COORDINATOR_PUBLIC, b64encode(office.public) + b"\n")
            if name not in keys and not (folder / POLICY_FILE).exists():
                write_policy(folder, study if trial else None)
    if addresses or authority is not None:
        parties = {name: folders[name] for name in study.names}
        engine.provision(folders[COORDINATOR], parties, addresses, authority, nodes)
    return folders


def _roster(folder: Path, study: Study, coordinator: bytes) -> frames.Roster:
    """The roster in a folder; RosterError where it is not the study's."""
    roster = frames.read_roster(folder / frames.ROSTER_FILE, coordinator)
    if (roster.study, tuple(roster.parties)) != (study.study.name, study.names):
        raise RosterError(
            f"{folder / frames.ROSTER_FILE}: is of study {roster.study!r} with the parties "
            f"{', '.join(roster.parties)}; study.toml is {study.study.name!r} with "
            f"{', '.join(study.names)}. Ask the coordinator for both again"
        )
    return roster


def public_key_in(path: Path) -> bytes:
    """The coordinator's public key in a file; InputError for a file without one."""
    try:
        return b64decode(path.read_text().strip(), validate=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: holds no public key ({getattr(error, 'strerror', error)}). Ask the "
            "coordinator for the key, by another way than the one that brought this folder, and "
            "write it into this file"
        ) from error


def fingerprints_in(folder: Path) -> dict[str, str]:
    """Every end's key as people read it to each other, from the coordinator's folder."""
    keys = office_in(folder).seals.roster.keys
    return {name: fingerprint(end.signing) for name, end in keys.items()}


# The ends


@contextmanager
def party_in(
    folder: Path, data: str | Path | None = None, *, noise: str = "os"
) -> Iterator[tuple[Party, frames.Seals]]:
    """A party, from its folder: what answers, and what opens and seals frames.

    Args:
        folder: The party's.
        data: Its rows, as its owner names them: a file, or ``address#table`` of a database. What
            study.toml names is not read, since others wrote that.
        noise: "seeded" protects nothing and is for tests.

    Raises:
        InputError: A file is missing or damaged, or no rows are named.
        RosterError: The roster does not know the party's key.
        SiloweaveError: Rows do not fit the study, or policy or ledger do not allow it; its
            `declined` is what the coordinator may know.
    """
    study, home, roster, identity, entry = member(folder)
    name, policy = entry.name, read_policy(home)
    read_account(home, identity)  # what is wrong with it is the owner's to mend before anyone knows
    if data is None:
        raise InputError(
            f"party {name!r}: say where its rows are: --data FILE, or --data ADDRESS#TABLE of a "
            "database. What study.toml names is not read, since others wrote that file"
        )
    setup, job = study.setup(), study.job(noise=noise, identity=identity)
    with _declining(_LEDGER):
        require_known_ledger(folder, study, identity)
        broken = _refusal(folder)
    with _declining(_POLICY):
        if broken:
            raise StudyError(broken)
    begun = _begin(folder, study, identity)
    seals = frames.Seals(name, identity, roster, Nonces(folder / NONCES))
    source, plan = source_of(data), plan_in(folder, data)
    if policy.studies.approval == "by hand":  # before the coordinator could learn anything of rows
        require_approved(folder, plan, identity)
    if not setup.columns:  # those of the study alone are read, where it names them
        columns = {name: columns_in(entry, source, setup.declared.names)}
        with _declining(_ROWS):
            check_columns(study, setup.synth, columns, setup.declared)
    with naming_party(name):
        table = study.rows(entry, source, job, folder)
    with _declining(_ROWS):  # what is wrong is said here alone
        moved = check_rows(study, setup.declared, setup.synth, name, table)
    if moved:
        _log.warning("%s", moved_note(moved, setup.declared))

    used = setup.held.get(name, ())

    def allow(ledger: Ledger) -> None:
        others = _beside(read_account(home, identity), begun.number, study)
        policy.check(study, setup.declared, setup.synth, ledger.entries, used, others)

    facts, common = agreed(study.facts()), None
    if (asked := study.alignment) is not None:
        rule = IdPolicy(asked.missing, asked.duplicates)
        common = AlignmentData(read(table), asked.on, rule, os.cpu_count() or 1, asked.most)
    most = most_asked(plan.messages)

    def end(party: Party) -> None:
        _store_synthetic(party, setup, (*(asked.on if asked else ()), *entry.columns))
        seals.end()

    def part(message: Part) -> None:
        seals.part()
        if policy.studies.results and sends_results(setup):
            _store_results(folder / RESULTS, message)

    with open_account(home, identity) as opened:  # no other study of this party starts meanwhile
        spent = _entries_in(folder)
        others = _beside(opened.account, begun.number, study)
        with _declining(_POLICY):
            policy.check(study, setup.declared, setup.synth, spent, used, others)
        opened.require(
            begun.number, _most_spent(study, spent), study=study.study.name,
            coordinator=roster.keys[roster.coordinator].signing, parties=roster.parties,
        )  # fmt: skip
    with _declining(_LEDGER):
        seen = SeenLedger(begun.number)
        opened_party = study_party(
            name,
            setup,
            facts,
            table,
            job,
            folder,
            roster.parties,
            allow=allow,
            aligned=common,
            asked=most,
            note=seen.note,
            end=end,
            part=part,
        )
    try:
        seen.note(opened_party.ledger)
        write_whole(folder / _BEGUN, begun.mark + opened_party.ledger.header)
        yield opened_party, seals
    finally:
        opened_party.close()


def _store_synthetic(party: Party, setup: Setup, names: Sequence[str]) -> None:
    """Write synthetic columns that stay with a party into its folder, with ids drawn anew.

    Args:
        party: Who has them, once its run is over.
        setup: The study's public facts.
        names: The party's columns, ids among them.
    """
    columns = synthetic_columns(party, setup)
    if columns is None or party.home is None:
        return
    rows, seed = columns
    schema = setup.declared.select([name for name in names if name in setup.declared.names])
    rows = drawn_anew(listed_instead(rows, schema, key=seed), schema, key=seed)
    file = party.home / KEPT
    write(rows, file, schema.padded)
    file.chmod(0o600)  # rows of all parties are in one order
    _log.info("%d rows of synthetic columns are in %s", rows.num_rows, KEPT)


def _store_results(place: Path, message: Part) -> None:
    """Store what a coordinator sends at the end; others made it, so that nothing here reads it."""
    files = {"synthetic.csv": message.table, "report.html": message.report}
    place.mkdir(mode=0o700, exist_ok=True)
    for name, data in files.items():
        if data:
            write_whole(place / name, data)
    _log.warning("the study's results are in %s", place)


@contextmanager
def answers_in(
    folder: Path, data: str | Path | None = None, *, noise: str = "os"
) -> Iterator[tuple[frames.Seals, Callable[[frames.Opened], bytes], str]]:
    """A party as of `party_in`; or where it declines the study, what refuses the first question.

    The third is why, for the owner alone; empty if it takes part. What it would be refused for, and
    is the owner's to mend before anyone knows, such as a file that is not there, is raised.
    """
    with ExitStack() as stack:
        try:
            party, seals = stack.enter_context(party_in(folder, data, noise=noise))
            reply, why = party.reply, ""
        except SiloweaveError as error:
            if not error.declined:
                raise
            _, _, roster, identity, entry = member(folder)
            seals = frames.Seals(entry.name, identity, roster, Nonces(folder / NONCES))
            why = str(error)
            refusal = StudyError(
                f"party {entry.name!r} does not take part: {error.declined}. Its owner sees why "
                "there; once that is mended, start both ends again"
            )

            def reply(question: frames.Opened) -> bytes:
                raise refusal

        yield seals, reply, why


@contextmanager
def _declining(why: str) -> Iterator[None]:
    """Let the coordinator know of an error in here by these words alone; of no file or disk."""
    try:
        yield
    except SiloweaveError as error:
        if not isinstance(error.__cause__, OSError):
            error.declined = why
        raise


class StudyMark(NamedTuple):
    """How a party knows a study's folder as its own.

    Attributes:
        mark: Its signature of the study's name and of the number, and the number.
        number: What the study's ledger is known by in the party's account; drawn at random.
        header: The first line of the ledger that it began with; empty before there is one.
    """

    mark: bytes
    number: str
    header: bytes


def begun_in(folder: Path, study: Study, identity: Identity) -> StudyMark | None:
    """What a party noted in a study's folder when it began the study; None where it did not."""
    try:
        noted = (folder / _BEGUN).read_bytes()
    except FileNotFoundError:
        return None
    signature, number = noted[:_SIGNED], noted[_SIGNED : _SIGNED + _NUMBER]
    if not verify(identity.public, _PURPOSE, _begun_message(study, number), signature):
        return None
    header = noted[_SIGNED + _NUMBER :]
    return StudyMark(signature + number, number.decode(), header)


def _begun_message(study: Study, number: bytes) -> bytes:
    return study.study.name.encode() + b"\0" + number


def _begin(folder: Path, study: Study, identity: Identity) -> StudyMark:
    """Begin the study in a folder, or continue it; the party's signature is there from now on.

    Raises:
        InputError: The party did not begin the study there, and the folder comes with what a party
            remembers, such as its secret for masks.
    """
    begun = begun_in(folder, study, identity)
    if begun is None:
        if came := [one.name for what in _REMEMBERED for one in folder.glob(what)]:
            raise InputError(
                f"{folder}: has {', '.join(came)}, and this party never began study "
                f"{study.study.name!r} there. Whoever wrote that would know what protects the "
                "rows. Ask the coordinator for the folder again, and use a new one"
            )
        number = OSEntropy().bytes(_NUMBER // 2).hex().encode()
        mark = identity.sign(_PURPOSE, _begun_message(study, number)) + number
        write_whole(folder / _BEGUN, mark)
        begun = StudyMark(mark, number.decode(), b"")
    return begun


def require_known_ledger(folder: Path, study: Study, identity: Identity) -> None:
    """Refuse a party's folder whose ledger is gone, is an old copy, or is unknown to its account.

    Its first line is noted once it is on disk, and before a question is answered: a party that was
    killed earlier starts anew.
    """
    ledger, begun = folder / LEDGER_FILE, begun_in(folder, study, identity)
    is_there = ledger.is_file() and ledger.stat().st_size > 0
    if begun is not None and begun.header:
        if not (is_there and ledger.read_bytes().startswith(begun.header)):
            raise lost_ledger(ledger, "is gone, or is another than this party began with")
    elif begun is None and not is_there:
        return
    if begun is not None:
        require_newest(begun.number, ledger)
    account = read_account(home_of(folder), identity)
    is_unknown = begun is None or not account.knows(begun.number)
    # Before the account has the study there is no ledger, so one that is there is somebody else's.
    if is_there and is_unknown:
        raise LedgerError(
            f"{ledger}: this party's account, {account.folder / ACCOUNT_FILE}, does not know it: "
            "it was begun before there were accounts, or with another copy of the account. "
            "Nothing was released. Use a new folder of the study, whose budget is then entered "
            "anew; if this ledger's releases are not in the account yet, state them with "
            "`siloweave party account --spent-since EPSILON --delta DELTA`"
        )


def member(folder: Path) -> tuple[Study, Path, frames.Roster, Identity, PartyTable]:
    """A party's study, the folder of its key, the roster, its key, and its entry in the study."""
    study, home = Study.load(folder), home_of(folder)
    roster = _roster(folder, study, public_key_in(folder / COORDINATOR_PUBLIC))
    identity = Identity.load(home / KEY_FILE)
    names = [name for name, key in roster.parties.items() if key == identity.public]
    if not names:
        raise RosterError(
            f"{home / KEY_FILE}: has the key {fingerprint(identity.public)}, which the roster "
            "does not name. Give the coordinator this party's key, and ask for a new roster"
        )
    entry = next(party for party in study.parties if party.name == names[0])
    return study, home, roster, identity, entry


def known_keys(folder: Path) -> dict[str, str]:
    """Say of every end of the study in a party's folder whether an earlier study had its key.

    Studies are those of the party's account but for this one, also if it cannot be used at present.
    """
    study, home, roster, identity, entry = member(folder)
    try:
        account = lines_of(require_file(home), home, identity.public)
    except LedgerError:
        return dict.fromkeys(roster.keys, "its account cannot be read")
    begun = begun_in(folder, study, identity)
    number = begun.number if begun else ""
    notes = {
        name: account.seen_key(name, keys.signing, number) for name, keys in roster.keys.items()
    }
    return notes | {entry.name: "this party's own"}


def refusal_in(folder: Path) -> str:
    """What policy or account of a party say against the study in a folder; empty for nothing."""
    try:
        return _refusal(folder)
    except LedgerError as error:
        return str(error)


def _refusal(folder: Path) -> str:
    study, home, _, identity, entry = member(folder)
    setup, account = study.setup(), read_account(home, identity)
    used = setup.held.get(entry.name, ())
    begun = begun_in(folder, study, identity)
    others = _beside(account, begun.number if begun else "", study)
    try:
        read_policy(home).check(
            study, setup.declared, setup.synth, _entries_in(folder), used, others
        )
    except InputError as error:
        return str(error)
    return ""


def _entries_in(folder: Path) -> tuple[Entry, ...]:
    """The entries of a study's ledger; none before it was begun."""
    ledger = folder / LEDGER_FILE
    begun = ledger.exists() and ledger.stat().st_size
    return Ledger.read(ledger).entries if begun else ()


def _most_spent(study: Study, entries: Sequence[Entry]) -> Charged:
    """What a study may cost, or what its ledger holds where that is more."""
    budget = promised(study)
    spent = epsilon([entry.event for entry in entries], budget.delta) if entries else 0.0
    return Charged(max(budget.epsilon, spent), budget.delta)


def _beside(account: Account, number: str, study: Study) -> list[Charged]:
    """What counts beside a study: all other studies, and what it asked for itself before."""
    others = account.others(number)
    budget = promised(study)
    charged = account.charged(number)
    epsilon_before = 0.0 if isinf(budget.epsilon) else charged.epsilon - budget.epsilon
    before = Charged(max(0.0, epsilon_before), max(0.0, charged.delta - budget.delta))
    return [*others, before] if max(before) > 0 else others


def plan_in(folder: Path, data: str | Path | None = None) -> Plan:
    """What the study in a party's folder will send; arguments and errors as of `party_in`.

    Without `data`, what follows from the number of rows is not right; no approval is of that.
    """
    study, _, roster, _, entry = member(folder)
    setup, rows = study.setup(), 2
    if data is not None:
        columns = setup.held.get(entry.name, setup.declared.names)
        rows = rows_taken(study, source_of(data), len(columns))
    of_all = [rows] * len(study.names)
    found = forecast_of(setup, study.schema.learn, of_all)
    return plan_of(study, setup, entry.name, of_all, found, roster)


def home_of(folder: Path) -> Path:
    """Where a party's key and policy lie: in a study's folder, or above all of its studies'.

    InputError if there is no key in either, or the study's folder, which someone else made, brings
    a key or a policy beside the party's own.
    """
    own, above = folder / KEY_FILE, folder.absolute().parent
    if (above / KEY_FILE).exists():
        brought = [own, folder / POLICY_FILE, folder / ACCOUNT_FILE]
        if brought := [file for file in brought if file.exists()]:
            raise InputError(
                f"{brought[0]}: this party has its key, policy and account in {above}, and a "
                "study's folder may bring no others. Ask whoever made the folder, and remove the "
                "file"
            )
        return above
    if own.exists():
        return folder
    raise InputError(
        f"{folder}: there is no {KEY_FILE}, here or in the folder above. Make the party's key with "
        "`siloweave party key`, or ask the coordinator for the whole folder"
    )


def studies_below(home: Path) -> list[Charged]:
    """Add up what ledgers in a party's folder, and in those below it, hold or may still cost.

    That is a proposal for an owner whose account is missing, and no bound: folders that were moved
    or removed are not seen.
    """
    files = sorted(home.rglob(LEDGER_FILE))
    # A study that aligns rows has a ledger of that in a folder of its own, without a budget.
    return [_reserved(file.parent) for file in files if (file.parent / STUDY_FILE).exists()]


def _reserved(folder: Path) -> Charged:
    return _most_spent(Study.load(folder), _entries_in(folder))


class AccountView(msgspec.Struct, frozen=True):
    """What a party's account holds, for its owner.

    Attributes:
        folder: The party's.
        fingerprint: Of its key.
        entries: All lines but the first.
        epsilon: What they add up to, of a unit of each study.
        delta: The same of delta.
        epsilon_left: What `policy.toml` leaves for further studies, of a row; None without one.
        delta_left: The same of delta.
        trouble: Why the account cannot be used, and what to do; empty if it can.
        proposal: Where there is trouble: what may have been spent besides, by what this machine
            knows of the account, or else by the studies' folders below the party's.
    """

    folder: str
    fingerprint: str
    entries: tuple[AccountEntry, ...]
    epsilon: float
    delta: float
    epsilon_left: float | None
    delta_left: float | None
    trouble: str
    proposal: Charged | None


def account_in(home: Path) -> AccountView:
    """Show the account of a party, and what is wrong with it.

    Raises:
        InputError: There is no key, or the policy is wrong.
        LedgerError: The account was edited, or belongs to another key.
    """
    identity, trouble, proposal = Identity.load(home / KEY_FILE), "", None
    is_there = (home / ACCOUNT_FILE).exists()
    account = lines_of(home / ACCOUNT_FILE, home, identity.public) if is_there else None
    total = account.total if account else Charged(0.0, 0.0)
    try:
        read_account(home, identity)
    except LedgerError as error:
        trouble, record = str(error), read_record(identity.public)
        spent = added_up(studies_below(home)) if record is None else record.cost
        missing = 0.0 if isinf(total.epsilon) else spent.epsilon - total.epsilon
        proposal = Charged(max(0.0, missing), max(0.0, spent.delta - total.delta))
    left: tuple[float | None, float | None] = None, None
    if (home / POLICY_FILE).exists():
        limit = read_policy(home).limit
        counted = 0.0 if isinf(limit.epsilon) else total.epsilon
        left = max(0.0, limit.epsilon - counted), max(0.0, limit.delta - total.delta)
    return AccountView(
        str(home), fingerprint(identity.public), account.entries if account else (),
        *total, *left, trouble, proposal,
    )  # fmt: skip


@dataclass(frozen=True)
class Office:
    """The coordinator's end: the study, and what seals its frames."""

    study: Study
    seals: frames.Seals

    def carrier(self, post: Post) -> SealedCarrier:
        """Return what carries questions to the study's parties and answers back."""
        return SealedCarrier(post, self.seals)

    def part_from(self, post: Post, seconds: float) -> list[str]:
        """Let all parties know that the coordinator has its result; return who heard it.

        The synthetic table and the public report go along, unless columns stay with their parties
        (`sends_results`) or both are too large. Each party's answer is awaited for so many seconds.
        """
        message = Part()
        if sends_results(self.study.setup()):
            message = _results_in(self.study.folder)
        return self.carrier(post).part(self.study.job().named(PARTING), message, seconds)


def _results_in(folder: Path) -> Part:
    """Read the synthetic table and the public report of a run; neither if both are too large."""
    table, report = folder / "synthetic.csv", folder / "report.html"
    if not (table.is_file() and report.is_file()):
        return Part()
    if table.stat().st_size + report.stat().st_size > MOST_SENT:
        return Part()
    return Part(table.read_bytes(), report.read_bytes())


def office_in(folder: Path) -> Office:
    """The coordinator, from its folder.

    Raises:
        InputError: A file is missing or damaged.
        RosterError: The roster is of another study, or is not signed by the folder's key.
    """
    study, identity = Study.load(folder), Identity.load(folder / COORDINATOR_KEY)
    roster = _roster(folder, study, identity.public)
    return Office(study, frames.Seals(roster.coordinator, identity, roster))
