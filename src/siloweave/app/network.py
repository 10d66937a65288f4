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
``rows.seen``       at a party: where the rows of the last start were, and a digest of them
``begun``           at a party: its signature, by which it knows that all this is its own, what its
                    ledger is known by, and the ledger's first line, once there is one
==================  ==========================================================================

**Guarantee**: none of its own; see core/party.py, federation/frames.py, and the method.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tomllib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import isinf
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import msgspec

from siloweave.app.account import (
    ACCOUNT_FILE,
    CHANGED,
    Account,
    AccountEntry,
    Charged,
    account_lines,
    added_up,
    load_or_create_home,
    open_account,
    read_account,
    read_record,
)
from siloweave.app.check import (
    RowsRead,
    check_columns,
    check_rows,
    columns_in,
    read_party_rows,
    rows_taken,
)
from siloweave.app.ends import (
    COORDINATOR_KEY,
    COORDINATOR_PUBLIC,
    STUDY_FILE,
    public_key_in,
    require_coordinator_folder,
    require_party_folder,
)
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
from siloweave.app.seen_rows import SEEN_ROWS, compare_rows, remember_rows
from siloweave.app.study import PartyTable, Study
from siloweave.core.method import Setup
from siloweave.core.party import (
    ALIGNMENT,
    PARTING,
    OwnerHooks,
    Party,
    lost_ledger,
    study_party,
    synthetic_columns,
)
from siloweave.core.settings import SEEDED, Job, agreed
from siloweave.errors import (
    DataError,
    InputError,
    LedgerError,
    RosterError,
    SchemaError,
    SiloweaveError,
    StudyError,
    first_few,
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
from siloweave.tables.database import Database, source_of
from siloweave.tables.drawn import drawn_anew, listed_instead
from siloweave.tables.ids import IdPolicy
from siloweave.tables.moved import moved_note
from siloweave.tables.read import Unread, read
from siloweave.tables.table import Table
from siloweave.tables.write import write

COORDINATOR = "coordinator"
"""What the coordinator is called, and its folder."""
KEPT = "synthetic.csv"
"""In a party's folder: its synthetic columns, where these stay with their parties."""
RESULTS = "results"
"""In a party's folder: the synthetic table and the public report, if its policy takes them."""
MOST_SENT = 64 * 2**20
"""Bytes of both that a coordinator sends to parties at the end; larger ones it keeps."""
_BEGUN = "begun"
_SIGNATURE_BYTES = 64  # of that file come first
# Of the ledger's number come next; the rest is the ledger's first line.
_NUMBER_BYTES = 32

# All that a coordinator may know of why a party declines: the owner sees the sentence itself.
_POLICY = "its policy does not allow this study"
_LEDGER = "its ledger does not allow this study"
_ROWS = "its rows do not fit this study"

# The path in a study's file: a text in quotes, at the first `file` below [schema].
_SCHEMA_PATH = re.compile(
    r"""(^[ \t]*\[schema\][^\n]*\n(?:[ \t]*(?!file\b|\[)[^\n]*\n)*[ \t]*file[ \t]*=[ \t]*)"""
    r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*')""",
    re.MULTILINE,
)
_PURPOSE = b"siloweave begun"
_REMEMBERED = ("store", ALIGNMENT, "training-*", KEPT)
OWN_FILES = (NONCES, KEPT, _BEGUN, SEEDED, SEEN_ROWS)
"""Files that a party writes into a study's folder for itself; the key, policy and ledger apart."""
_log = logging.getLogger("siloweave")


# Keys and folders


def spelled_keys(keys: frames.PublicKeys) -> str:
    """Return both public keys of an end as one word.

    Example:
        >>> keys = frames.keys_for("flu", Identity.seeded(b"only for an example"))
        >>> keys_in(spelled_keys(keys)) == keys
        True
    """
    return b64encode(keys.signing + keys.sealing).decode()


def keys_in(word: str, option: str = "key") -> frames.PublicKeys:
    """Return the keys that `spelled_keys` wrote as a word; InputError for another word.

    `option` names the word in errors, with the party that it is of.
    """
    try:
        key_bytes = b64decode(word, validate=True)
    except ValueError:
        key_bytes = b""
    if len(key_bytes) != 2 * KEY:
        # A pair has so many bytes in base 64, which writes three of them in four characters.
        whole_length = 4 * -(-2 * KEY // 3)
        fault = f"{word[:40]!r} is no pair of public keys"
        if len(word) < whole_length:
            fault = f"the word is cut off ({len(word)} of {whole_length} characters)"
        raise InputError(
            f"{option}: {fault}. Give the whole word that `siloweave party key` printed at the "
            "party"
        )
    return frames.PublicKeys(key_bytes[:KEY], key_bytes[KEY:])


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
        trial: Whether all ends stay on this machine, and policies allow the study as it is. Its
            schema may then be anywhere: each end gets a copy beside its study.
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
        InputError: The study cannot run over a network, or its schema is outside its folder and
            this is no trial, or a key is malformed, or is missing.
        RosterError: A key is of no party, or two parties have one.
    """
    keys = keys or {}
    nodes = nodes or {}
    study = Study.load(path)
    keyless_parties = [name for name in study.names if name not in keys]
    _check_party_options(study, keys, nodes)
    if keyless_parties and not (trial or keys_made_here):
        raise InputError(
            f"--key is missing for {', '.join(keyless_parties)}. Let each party run `siloweave "
            f"party key {quote(study.study.name)}` and give what that prints as --key "
            f"{keyless_parties[0]}=KEY. Or say --keys-made-here: whoever has this folder can then "
            "sign as these parties, read what is sealed to them and take off their masks"
        )
    schema_file = Path(study.schema.file)
    is_elsewhere = schema_file.is_absolute() or len(schema_file.parts) > 1
    # Between machines a study travels as a folder, and a path out of it leads nowhere there.
    if is_elsewhere and not trial:
        raise InputError(
            f"[schema] file = {study.schema.file!r} is outside the study's folder, and only that "
            "folder travels to the parties. Copy the schema beside the study's file and write "
            f"file = {schema_file.name!r}"
        )
    # A study that cannot run over a network is refused here, before a key is made.
    study.setup()

    # Reasons for what a schema declares count someone's rows, so no other end gets them.
    schema_json = study.read_schema().without_reasons().to_json()
    study_file = path / STUDY_FILE if path.is_dir() else path
    study_toml = study_file.read_bytes()
    if is_elsewhere:
        study_toml = _naming_schema(study_toml, schema_file.name)

    folders = {name: out / name for name in (COORDINATOR, *study.names)}
    office = Identity.load_or_create(folders[COORDINATOR] / COORDINATOR_KEY)
    public_keys = {}
    for name in study.names:
        if name in keys:
            public_keys[name] = keys_in(keys[name], f"--key {name}")
        else:
            identity = load_or_create_home(folders[name])
            public_keys[name] = frames.keys_for(study.study.name, identity)
    roster = frames.signed_roster(
        study.study.name, office, public_keys, COORDINATOR, keyless_parties
    )

    for name, folder in folders.items():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        roster.store(folder / frames.ROSTER_FILE)
        write_whole(folder / STUDY_FILE, study_toml)
        write_whole(folder / schema_file.name, schema_json.encode())
        if name == COORDINATOR:
            continue
        write_whole(folder / COORDINATOR_PUBLIC, b64encode(office.public) + b"\n")
        # A policy that is there may have its owner's changes, and is never written over.
        if name in keyless_parties and not (folder / POLICY_FILE).exists():
            allowed_study = study if trial else None
            write_policy(folder, allowed_study)

    if addresses or authority is not None:
        party_folders = {name: folders[name] for name in study.names}
        engine.provision(
            folders[COORDINATOR], party_folders, addresses, authority, nodes
        )
    return folders


def _naming_schema(study_toml: bytes, name: str) -> bytes:
    """Return a study's file in which ``[schema]`` names the file of this name beside it.

    Raises:
        InputError: The file is written so that its path cannot be replaced safely.
    """
    text = study_toml.decode()
    expected = tomllib.loads(text)
    expected["schema"]["file"] = name
    path = json.dumps(name, ensure_ascii=False)
    changed = _SCHEMA_PATH.sub(lambda match: match[1] + path, text, count=1)

    # Only the path may have changed: else a comment or another table was mistaken for it.
    try:
        is_replaced = tomllib.loads(changed) == expected
    except tomllib.TOMLDecodeError:
        is_replaced = False
    if not is_replaced:
        raise InputError(
            "[schema] file is outside the study's folder, and is not written as a line "
            f'file = "..." below [schema]. Copy the schema beside the study\'s file and write '
            f"file = {name!r}"
        )
    return changed.encode()


def _check_party_options(
    study: Study, keys: Iterable[str], nodes: Iterable[str]
) -> None:
    """Check that keys and nodes are of the study's parties.

    Raises:
        RosterError: One is of another; names it and its option.
    """
    for option, names in (("--key", keys), ("--node", nodes)):
        for name in names:
            if name not in study.names:
                raise RosterError(
                    f"{option} {name}: the study has the parties {', '.join(study.names)}"
                )


def _roster(folder: Path, study: Study, coordinator: bytes) -> frames.Roster:
    """Return the roster in a folder; RosterError where it is not the study's."""
    roster = frames.read_roster(folder / frames.ROSTER_FILE, coordinator)
    is_of_study = (
        roster.study == study.study.name and tuple(roster.parties) == study.names
    )
    if not is_of_study:
        raise RosterError(
            f"{folder / frames.ROSTER_FILE}: is of study {roster.study!r} with the parties "
            f"{', '.join(roster.parties)}; study.toml is {study.study.name!r} with "
            f"{', '.join(study.names)}. Ask the coordinator for both again"
        )
    return roster


def fingerprints_in(folder: Path) -> dict[str, str]:
    """Return every end's key as people read it to each other, from the coordinator's folder."""
    keys = office_in(folder).seals.roster.keys
    return {name: fingerprint(end.signing) for name, end in keys.items()}


# The ends


@contextmanager
def party_in(
    folder: Path,
    data: str | Path | None = None,
    *,
    noise: str = "os",
    show_rows: Callable[[str, str], object] = lambda line, warning: None,
) -> Iterator[tuple[Party, frames.Seals]]:
    """Open a party from its folder: what answers, and what opens and seals frames.

    Args:
        folder: The party's.
        data: Its rows, as its owner names them: a file, or ``address#table`` of a database. What
            study.toml names is not read, since others wrote that.
        noise: "seeded" protects nothing and is for tests.
        show_rows: Called with a line about the rows, for the owner alone, and with what is odd
            about them beside the last start; the latter is empty for nothing.

    Raises:
        InputError: A file is missing or damaged, or no rows are named.
        RosterError: The roster does not know the party's key.
        SiloweaveError: Rows do not fit the study, or policy or ledger do not allow it; its
            `declined` is what the coordinator may know.
    """
    study, home, roster, identity, entry = member(folder)
    name = entry.name
    policy = read_policy(home)
    # Outside of `_declining`: a damaged account is the owner's to mend before anyone knows of it.
    read_account(home, identity)
    if data is None:
        raise InputError(
            f"party {name!r}: say where its rows are: --data FILE, or --data ADDRESS#TABLE of a "
            "database. What study.toml names is not read, since others wrote that file"
        )
    command = f"siloweave party check {quote(str(folder))} --data ..."
    setup = replace(study.setup(), show_misfits=command)
    job = study.job(noise=noise, identity=identity)

    # The study as such: is its ledger whole, and do policy and account allow it?
    with _declining(_LEDGER):
        require_known_ledger(folder, study, identity, _coordinator_key(roster))
        refusal = policy_refusal(folder)
    if refusal:
        with _declining(_POLICY):
            raise StudyError(refusal)
    begun = _begin(folder, study, identity)
    seals = frames.Seals(name, identity, roster, Nonces(folder / NONCES))

    # An owner who approves by hand has done so before the coordinator could learn of rows.
    if policy.studies.approval == "by hand":
        require_approved(folder, plan_in(folder), identity)

    # The rows: what is wrong with them is told at this end alone.
    source = source_of(data)
    with _declining_rows(source):
        plan, table = _plan_and_rows(folder, study, setup, source, job, show_rows)
    with _declining(_ROWS):
        moved_counts = check_rows(study, setup.declared, setup.synth, name, table)
    # Rows that do not fit are none of a start, and the next one is not compared with them.
    remember_rows(folder, source)
    if moved_counts:
        note = moved_note(moved_counts, setup.declared, table.num_rows, command)
        _log.warning("%s", note)
    party_columns = setup.held.get(name, ())

    facts = agreed(study.facts())
    question_limits = most_asked(plan.messages)
    alignment = study.alignment
    alignment_data = None
    id_columns: Sequence[str] = ()
    if alignment is not None:
        id_policy = IdPolicy(alignment.missing, alignment.duplicates)
        id_columns = alignment.on
        processes = os.cpu_count() or 1
        alignment_data = AlignmentData(
            read(table), id_columns, id_policy, processes, alignment.most
        )

    def allow(ledger: Ledger) -> None:
        # The account is read anew before every stage: another study may have started meanwhile.
        account = read_account(home, identity)
        others = _beside(account, begun.number, study)
        policy.check(
            study, setup.declared, setup.synth, ledger.entries, party_columns, others
        )

    def end(party: Party) -> None:
        _store_synthetic(party, setup, (*id_columns, *entry.columns))
        seals.end()

    def part(message: Part) -> None:
        seals.part()
        if policy.studies.results and sends_results(setup):
            _store_results(folder / RESULTS, message)

    # While the account is open, no other study of this party starts: what is checked against the
    # policy is what is then charged.
    with open_account(home, identity) as opened:
        entries = _entries_in(folder)
        others = _beside(opened.account, begun.number, study)
        with _declining(_POLICY):
            policy.check(
                study, setup.declared, setup.synth, entries, party_columns, others
            )
        opened.require(
            begun.number,
            _most_spent(study, entries),
            study=study.study.name,
            coordinator=_coordinator_key(roster),
            parties=roster.parties,
        )

    with _declining(_LEDGER):
        stores = (folder / "store", folder / ALIGNMENT / "store")
        ledger_record = SeenLedger(begun.number, stores)
        opened_party = study_party(
            name,
            setup,
            facts,
            table,
            job,
            folder,
            roster.parties,
            owner=OwnerHooks(
                allow, ledger_record.note, ledger_record.answered, end, part
            ),
            question_limits=question_limits,
            aligned=alignment_data,
        )
    try:
        # From here on, a ledger that is gone or is an old copy is noticed.
        ledger_record.note_opened(opened_party.ledger)
        write_whole(folder / _BEGUN, begun.mark + opened_party.ledger.header)
        yield opened_party, seals
    finally:
        opened_party.close()


def _plan_and_rows(
    folder: Path,
    study: Study,
    setup: Setup,
    source: Path | Database,
    job: Job,
    show_rows: Callable[[str, str], object],
) -> tuple[Plan, Table | Unread]:
    """Return the plan for a party's rows, and the rows; show their owner which these are.

    Args:
        folder: The party's.
        study: Its copy of the study.
        setup: What is known of the study.
        source: Where the rows are.
        job: The study's run.
        show_rows: As of `party_in`; called even if the rows cannot be read.
    """
    entry = member(folder)[-1]
    schema_names = setup.declared.names
    rows_note = compare_rows(folder, source)
    column_count: int | None = None
    row_count: int | None = None
    try:
        # First the number of columns, which is told even if they do not fit.
        column_count = len(_names_in_rows(entry, source, schema_names))
        plan = plan_in(folder, source)
        # A study that names columns has those alone read, and checks them there.
        if not setup.columns:
            with _declining(_ROWS):
                require_header(study, setup, entry, source)
                columns = {entry.name: columns_in(entry, source, schema_names)}
                check_columns(study, setup.synth, columns, setup.declared)
        with naming_party(entry.name):
            table = study.rows(entry, source, job, folder)
        if isinstance(table, Table):
            row_count = table.num_rows
    finally:
        show_rows(
            rows_note.line(entry.name, column_count, row_count), rows_note.warning
        )
    return plan, table


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
    declared_names = [name for name in names if name in setup.declared.names]
    schema = setup.declared.select(declared_names)
    listed_rows = listed_instead(rows, schema, key=seed)
    rows = drawn_anew(listed_rows, schema, key=seed)
    file = party.home / KEPT
    write(rows, file, schema.padded)
    # Rows of all parties are in one order: whoever can read all files can join them.
    file.chmod(0o600)
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
    folder: Path,
    data: str | Path | None = None,
    *,
    noise: str = "os",
    show_rows: Callable[[str, str], object] = lambda line, warning: None,
) -> Iterator[tuple[frames.Seals, Callable[[frames.Opened], bytes], str]]:
    """Open a party as `party_in` does; where it declines the study, refuse the first question.

    The third is why, for the owner alone; empty if it takes part. Rows that cannot be read are
    refused as those that do not fit. What is the owner's to mend before anyone knows, such as a
    damaged account, a full disk or a database that does not answer, is raised.
    """
    with ExitStack() as stack:
        try:
            opened = party_in(folder, data, noise=noise, show_rows=show_rows)
            party, seals = stack.enter_context(opened)
            reply = party.reply
            reason = ""
        except SiloweaveError as error:
            if not error.declined:
                raise
            _, _, roster, identity, entry = member(folder)
            seals = frames.Seals(entry.name, identity, roster, Nonces(folder / NONCES))
            reason = str(error)
            # Not a warning: the terminal shows it already, as an error.
            _log.info("this party takes no part: %s", reason)
            # The coordinator gets this sentence, which has `declined` in place of the reason.
            refusal = StudyError(
                f"party {entry.name!r} does not take part: {error.declined}. Its owner sees why "
                f"there; once that is mended, start {entry.name} and the coordinator again"
            )

            def reply(question: frames.Opened) -> bytes:
                raise refusal

        yield seals, reply, reason


@contextmanager
def _declining(words: str) -> Iterator[None]:
    """Let the coordinator know of an error in here by these words alone; of no file or disk."""
    try:
        yield
    except SiloweaveError as error:
        # A file or disk that fails is the owner's to mend, and no reason to decline the study.
        if not isinstance(error.__cause__, OSError):
            error.declined = words
        raise


@contextmanager
def _declining_rows(source: Path | Database) -> Iterator[None]:
    """Let the coordinator know of a file of rows that cannot be read by `_ROWS` alone.

    That is a file that is missing, empty or none of a table. A database that does not answer, and a
    disk that is full, are the owner's to mend.
    """
    try:
        yield
    except SiloweaveError as error:
        cause = _system_error_behind(error)
        if isinstance(source, Path) and (cause is None or _is_about(cause, source)):
            error.declined = _ROWS
        raise
    except OSError as error:
        if not isinstance(source, Path) or not _is_about(error, source):
            raise
        unreadable = DataError(f"{source}: cannot be read ({error.strerror})")
        unreadable.declined = _ROWS
        raise unreadable from error


def _system_error_behind(error: BaseException) -> OSError | None:
    """Return the system's error that an error was made of; None for none."""
    cause = error.__cause__
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return cause


def _is_about(error: OSError, source: Path) -> bool:
    """Return whether a system's error names this file, or a file in this folder."""
    if error.filename is None:
        return False
    path = Path(os.fsdecode(error.filename))
    return path.resolve().is_relative_to(source.resolve())


class HeaderFit(NamedTuple):
    """How the names of a party's columns fit a study.

    Attributes:
        expected: Columns that the study takes of the party.
        lacking: Those of them that its rows lack.
        extra: Columns of its rows that the study does not know.
    """

    expected: tuple[str, ...]
    lacking: tuple[str, ...]
    extra: tuple[str, ...]


def _names_in_rows(
    entry: PartyTable, source: Path | Database, schema_names: Sequence[str]
) -> tuple[str, ...]:
    """Return all names of a party's columns, by the study's renames; no row is read."""
    whole_entry = msgspec.structs.replace(entry, columns=())
    return columns_in(whole_entry, source, schema_names)


def header_fit(
    study: Study, setup: Setup, entry: PartyTable, source: Path | Database
) -> HeaderFit:
    """Compare the names of a party's columns with a study's; errors as of `check.columns_in`.

    Of a text file the first lines alone are read.
    """
    schema = setup.declared
    names = _names_in_rows(entry, source, schema.names)
    # A party that has some of the columns brings those that it has, unless the study names them.
    expected = entry.columns
    if not expected and setup.synth.method.split == "columns":
        expected = tuple(name for name in names if name in schema.names)
    elif not expected:
        ids = list(study.alignment.on) if study.alignment is not None else []
        if not setup.budget.by_row:
            ids.append(setup.budget.unit)
        coded_names = [column.name for column in schema.coded]
        expected = tuple(dict.fromkeys([*ids, *coded_names]))
    lacking = tuple(name for name in expected if name not in names)
    # Named columns are read and no others, whatever these are.
    extra: tuple[str, ...] = ()
    if not entry.columns:
        extra = tuple(name for name in names if name not in schema.names)
    return HeaderFit(expected, lacking, extra)


def require_header(
    study: Study, setup: Setup, entry: PartyTable, source: Path | Database
) -> None:
    """Refuse rows whose columns are not a study's; SchemaError, in words for their owner."""
    fit = header_fit(study, setup, entry, source)
    if not (fit.lacking or fit.extra):
        return
    place = source.address if isinstance(source, Database) else source.name
    extra = first_few([repr(name) for name in fit.extra])
    lacking = first_few([repr(name) for name in fit.lacking])
    if extra and lacking:
        text = f"has {extra} and lacks {lacking}. Rename it in the file"
    elif extra:
        text = f"has {extra}, which the study does not know. Take it out of the file"
    else:
        text = f"lacks {lacking}. Add it to the file"
    error = SchemaError(f"party {entry.name!r}: {place} {text}, or ask the coordinator")
    error.declined = _ROWS
    raise error


def header_in(folder: Path, data: str | Path) -> tuple[str, bool]:
    """Say whether the names of a party's columns fit the study in a folder, for its owner.

    Returns:
        A sentence, and whether they do.
    """
    study, _, _, _, entry = member(folder)
    source = source_of(data)
    place = source.address if isinstance(source, Database) else source.name
    approve = "Approve when it does."
    try:
        fit = header_fit(study, study.setup(), entry, source)
    except SiloweaveError as error:
        reason = str(error).removeprefix(f"party {entry.name!r}: ").rstrip(".")
        return f"{place} cannot be read: {reason}. {approve}", False
    misfit = _header_misfit(fit, place)
    if misfit:
        return f"{misfit}. {approve}", False
    count = len(fit.expected)
    return f"{place}: first line read: {count} of {count} columns found", True


def _header_misfit(fit: HeaderFit, place: str) -> str:
    """Name the columns that rows lack, or have besides those of a study; empty if they fit."""
    clauses = []
    if fit.lacking:
        lacking = first_few([repr(name) for name in fit.lacking])
        clauses.append(f"it lacks {lacking}")
    if fit.extra:
        extra = first_few([repr(name) for name in fit.extra])
        clauses.append(f"has {extra}" if clauses else f"it has {extra}")
    if not clauses:
        return ""
    return f"{place} does not fit: {', and '.join(clauses)}"


def check_rows_in(folder: Path, data: str | Path) -> RowsRead:
    """Compare a party's rows with the study in a folder, for its owner.

    A start refuses rows whose columns are not the study's, so these are named first.

    Raises:
        SiloweaveError: The folder is no party's, or the rows cannot be read.
    """
    study, _, _, _, entry = member(folder)
    source = source_of(data)
    place = source.address if isinstance(source, Database) else source.name
    fit = header_fit(study, study.setup(), entry, source)
    rows = read_party_rows(study, entry, source)
    misfit = _header_misfit(fit, place)
    if not misfit:
        return rows
    sentence = f"{misfit}. A start refuses it"
    return msgspec.structs.replace(rows, misfits=(sentence, *rows.misfits))


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
    """Return what a party noted in a study's folder when it began it; None where it did not."""
    try:
        data = (folder / _BEGUN).read_bytes()
    except FileNotFoundError:
        return None
    mark_end = _SIGNATURE_BYTES + _NUMBER_BYTES
    signature = data[:_SIGNATURE_BYTES]
    number = data[_SIGNATURE_BYTES:mark_end]
    header = data[mark_end:]

    # Others made the folder, and may have put the file there: only the party can sign it.
    message = _begun_message(study, number)
    if not verify(identity.public, _PURPOSE, message, signature):
        return None
    return StudyMark(signature + number, number.decode(), header)


def _begun_message(study: Study, number: bytes) -> bytes:
    """Return what a party signs when it begins a study: the study's name and the number."""
    return study.study.name.encode() + b"\0" + number


def _begin(folder: Path, study: Study, identity: Identity) -> StudyMark:
    """Begin the study in a folder, or continue it; the party's signature is there from now on.

    Raises:
        InputError: The party did not begin the study there, and the folder comes with what a party
            remembers, such as its secret for masks.
    """
    begun = begun_in(folder, study, identity)
    if begun is not None:
        return begun

    foreign_files: list[str] = []
    for pattern in _REMEMBERED:
        foreign_files += [path.name for path in folder.glob(pattern)]
    if foreign_files:
        raise InputError(
            f"{folder}: has {', '.join(foreign_files)}, and this party never began study "
            f"{study.study.name!r} there. Whoever wrote that would know what protects the "
            "rows. Ask the coordinator for the folder again, and use a new one"
        )

    # Two characters write a byte.
    number = OSEntropy().bytes(_NUMBER_BYTES // 2).hex().encode()
    signature = identity.sign(_PURPOSE, _begun_message(study, number))
    mark = signature + number
    write_whole(folder / _BEGUN, mark)
    return StudyMark(mark, number.decode(), b"")


def require_known_ledger(
    folder: Path, study: Study, identity: Identity, coordinator: bytes
) -> None:
    """Refuse a party's folder whose ledger is gone, is an old copy, or is unknown to its account.

    Its first line is noted once it is on disk, and before a question is answered: a party that was
    killed earlier starts anew. The coordinator's public key says whether a study that the account
    has by the same name is this one.
    """
    ledger = folder / LEDGER_FILE
    begun = begun_in(folder, study, identity)
    is_there = ledger.is_file() and ledger.stat().st_size > 0
    if begun is None and not is_there:
        return

    if begun is not None:
        has_header = bool(begun.header)
        if has_header and not (
            is_there and ledger.read_bytes().startswith(begun.header)
        ):
            raise lost_ledger(
                ledger, "is gone, or is another than this party began with"
            )
        # An old copy begins with the same line, but lacks releases that this machine has noted.
        try:
            require_newest(begun.number, ledger)
        except LedgerError as error:
            raise LedgerError(
                f"{error}. The whole folder is an old or second copy: the newest copy of {folder} "
                f"is the one to put back. Do not raise {POLICY_FILE} for this"
            ) from error

    account = read_account(home_of(folder), identity)
    is_unknown = begun is None or not account.knows(begun.number)
    if is_there and is_unknown and account.ledgers_of(study.study.name, coordinator):
        raise LedgerError(_copy_sentence(folder, study, account))
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
    """Return a party's study, its key's folder, the roster, its key, and its entry in the study."""
    require_party_folder(folder)
    study = Study.load(folder)
    home = home_of(folder)
    coordinator = public_key_in(folder / COORDINATOR_PUBLIC)
    roster = _roster(folder, study, coordinator)
    identity = Identity.load(home / KEY_FILE)
    names = [name for name, key in roster.parties.items() if key == identity.public]
    if not names:
        raise RosterError(
            f"{home / KEY_FILE}: has the key {fingerprint(identity.public)}, which the roster "
            "does not name. Give the coordinator this party's key, and ask for a new roster"
        )
    # Found out before an owner approves, since no frame of the study would open.
    if roster.keys[names[0]] != frames.keys_for(roster.study, identity):
        call = f"siloweave party key {quote(roster.study)} --folder {quote(str(home))}"
        raise RosterError(
            f"{folder / frames.ROSTER_FILE}: has for party {names[0]!r} the word that this party's "
            f"key has for another study than {roster.study!r}. Send the coordinator what `{call}` "
            f"prints, to be given as --key {names[0]}=WORD, and ask for a new folder"
        )
    entry = next(party for party in study.parties if party.name == names[0])
    return study, home, roster, identity, entry


def known_keys(folder: Path) -> dict[str, str]:
    """Say of every end of the study in a party's folder whether an earlier study had its key.

    Studies are those of the party's account but for this one, also if it cannot be used at present.
    """
    study, home, roster, identity, entry = member(folder)
    try:
        account = account_lines(home, identity.public)
    except LedgerError:
        return dict.fromkeys(roster.keys, "its account cannot be read")
    begun = begun_in(folder, study, identity)
    number = begun.number if begun else ""
    notes = {}
    for name, keys in roster.keys.items():
        notes[name] = account.seen_key(name, keys.signing, number)
    own_note = f"this party's own: the study knows it as {entry.name!r}"
    earlier_note = account.seen_key(entry.name, identity.public, number)
    if earlier_note.startswith(CHANGED):
        own_note += f". {earlier_note}"
    notes[entry.name] = own_note
    return notes


def refusal_in(folder: Path) -> str:
    """Return what policy or account of a party say against a study; empty for nothing."""
    try:
        return policy_refusal(folder)
    except LedgerError as error:
        return str(error)


def policy_refusal(folder: Path) -> str:
    """Return what a policy says against a study; empty for nothing.

    Raises:
        LedgerError: The account cannot be used, or the policy allows the study but for a charge of
            this very study with another ledger: the folder is a copy.
    """
    study, home, roster, identity, entry = member(folder)
    setup = study.setup()
    account = read_account(home, identity)
    columns = setup.held.get(entry.name, ())
    begun = begun_in(folder, study, identity)
    number = begun.number if begun else ""
    others = _beside(account, number, study)
    earlier_name = account.own_name(identity.public, number)
    try:
        policy = read_policy(home)
        policy.check_name(study, entry.name, earlier_name)
    except InputError as error:
        return str(error)
    try:
        entries = _entries_in(folder)
        policy.check(study, setup.declared, setup.synth, entries, columns, others)
    except InputError as error:
        refusal = str(error)
    else:
        return ""

    # Where the study's own charge is all that stands against it, a larger budget is no remedy.
    charged_ledgers = account.ledgers_of(study.study.name, _coordinator_key(roster))
    if not charged_ledgers - {number}:
        return refusal
    others = _beside(account, number, study, charged_ledgers)
    try:
        policy.check(study, setup.declared, setup.synth, entries, columns, others)
    except InputError:
        return refusal
    raise LedgerError(_copy_sentence(folder, study, account))


def counted_twice(folder: Path) -> str:
    """Say that a party's account counts a study already, with another ledger; empty if it does not.

    That is no refusal: a study may begin anew in a new folder, where the policy leaves enough.
    """
    study, home, roster, identity, _ = member(folder)
    begun = begun_in(folder, study, identity)
    number = begun.number if begun else ""
    try:
        account = read_account(home, identity)
    except LedgerError:
        # The refusal says so.
        return ""
    name = study.study.name
    if not account.ledgers_of(name, _coordinator_key(roster)) - {number}:
        return ""
    return (
        f"{home / ACCOUNT_FILE} counts study {name!r} already, with another ledger. If {folder} is "
        "an old or second copy, put the newest one back; else the study counts once more"
    )


def _coordinator_key(roster: frames.Roster) -> bytes:
    """Return the coordinator's public key for signatures, by which an account knows a study."""
    return roster.keys[roster.coordinator].signing


def _copy_sentence(folder: Path, study: Study, account: Account) -> str:
    """Say that an account counts a study already, and that its folder is an old copy."""
    return (
        f"{account.folder / ACCOUNT_FILE} counts study {study.study.name!r} already, with another "
        "ledger: this folder is an old or second copy. Put the newest copy of "
        f"{folder} back; do not raise {POLICY_FILE} for this. Nothing was released"
    )


def _entries_in(folder: Path) -> tuple[Entry, ...]:
    """Return the entries of a study's ledger; none before it was begun."""
    ledger = folder / LEDGER_FILE
    if ledger.exists() and ledger.stat().st_size > 0:
        return Ledger.read(ledger).entries
    return ()


def _most_spent(study: Study, entries: Sequence[Entry]) -> Charged:
    """Return what a study may cost, or what its ledger holds where that is more."""
    budget = promised(study)
    spent_epsilon = 0.0
    if entries:
        spent_epsilon = epsilon([entry.event for entry in entries], budget.delta)
    return Charged(max(budget.epsilon, spent_epsilon), budget.delta)


def _beside(
    account: Account, number: str, study: Study, left_out: Iterable[str] = ()
) -> list[Charged]:
    """Return what counts beside a study: all others, and what it asked for itself before.

    Args:
        account: The party's.
        number: Of the study's ledger.
        study: The party's own copy.
        left_out: Numbers of ledgers that do not count.
    """
    others = account.others(number, *left_out)
    budget = promised(study)
    charged = account.charged(number)

    # A study that asked for more when it started counts with the difference.
    earlier_epsilon = 0.0
    if not isinf(budget.epsilon):
        earlier_epsilon = max(0.0, charged.epsilon - budget.epsilon)
    earlier_delta = max(0.0, charged.delta - budget.delta)
    earlier = Charged(earlier_epsilon, earlier_delta)
    return [*others, earlier] if max(earlier) > 0 else others


def plan_in(folder: Path, data: str | Path | Database | None = None) -> Plan:
    """Plan what the study in a party's folder will send; arguments and errors as of `party_in`.

    Without `data`, what follows from the number of rows is not right; no approval is of that.
    """
    study, _, roster, _, entry = member(folder)
    setup = study.setup()
    row_count = 2
    if data is not None:
        columns = setup.held.get(entry.name, setup.declared.names)
        source = data if isinstance(data, Database) else source_of(data)
        row_count = rows_taken(study, source, len(columns))
    # A party knows no other's rows, and plans as if all had as many.
    row_counts = [row_count] * len(study.names)
    forecast = forecast_of(setup, row_counts)
    return plan_of(study, setup, entry.name, row_counts, forecast, roster)


def home_of(folder: Path) -> Path:
    """Return where a party's key and policy lie: in a study's folder, or above all of its studies'.

    InputError if there is no key in either, or the study's folder, which someone else made, brings
    a key or a policy beside the party's own.
    """
    key = folder / KEY_FILE
    above = folder.absolute().parent
    if (above / KEY_FILE).exists():
        # With a policy of its own, a study's folder could allow what the owner's forbids.
        candidates = [key, folder / POLICY_FILE, folder / ACCOUNT_FILE]
        foreign_files = [file for file in candidates if file.exists()]
        if foreign_files:
            raise InputError(
                f"{foreign_files[0]}: this party has its key, policy and account in {above}, and "
                "a study's folder may bring no others. Ask whoever made the folder, and remove the "
                "file"
            )
        return above
    if key.exists():
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
    return [
        _reserved(file.parent) for file in files if (file.parent / STUDY_FILE).exists()
    ]


def _reserved(folder: Path) -> Charged:
    """Return what the ledger in a study's folder holds or may still cost."""
    study = Study.load(folder)
    entries = _entries_in(folder)
    return _most_spent(study, entries)


class AccountView(msgspec.Struct, frozen=True):
    """What a party's account holds, for its owner.

    Attributes:
        folder: The party's.
        fingerprint: Of its key.
        entries: All lines but the first.
        epsilon: What they add up to, of a unit of each study.
        delta: The same of delta.
        epsilon_left: What `policy.toml` leaves for further studies, of a row; None without one, and
            0 where there is trouble.
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
    identity = Identity.load(home / KEY_FILE)
    file = home / ACCOUNT_FILE
    entries: tuple[AccountEntry, ...] = ()
    total = Charged(0.0, 0.0)
    if file.exists():
        account = account_lines(home, identity.public)
        entries = account.entries
        total = account.total

    trouble = ""
    proposal = None
    try:
        read_account(home, identity)
    except LedgerError as error:
        trouble = str(error)
        proposal = _unentered(home, identity, total)

    epsilon_left: float | None = None
    delta_left: float | None = None
    if (home / POLICY_FILE).exists():
        limit = read_policy(home).limit
        epsilon_left = 0.0
        delta_left = 0.0
        # Until its owner has said what was spent, an account with trouble allows nothing.
        if not trouble:
            # Infinity less infinity is no number; of no limit, all is left.
            used_epsilon = 0.0 if isinf(limit.epsilon) else total.epsilon
            epsilon_left = max(0.0, limit.epsilon - used_epsilon)
            delta_left = max(0.0, limit.delta - total.delta)
    return AccountView(
        folder=str(home),
        fingerprint=fingerprint(identity.public),
        entries=entries,
        epsilon=total.epsilon,
        delta=total.delta,
        epsilon_left=epsilon_left,
        delta_left=delta_left,
        trouble=trouble,
        proposal=proposal,
    )


def _unentered(home: Path, identity: Identity, total: Charged) -> Charged:
    """Estimate what a party has spent beyond the total of its account."""
    record = read_record(identity.public)
    spent = added_up(studies_below(home)) if record is None else record.cost
    missing_epsilon = 0.0
    if not isinf(total.epsilon):
        missing_epsilon = max(0.0, spent.epsilon - total.epsilon)
    missing_delta = max(0.0, spent.delta - total.delta)
    return Charged(missing_epsilon, missing_delta)


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
        carrier = self.carrier(post)
        run = self.study.job().named(PARTING)
        return carrier.part(run, message, seconds)


def _results_in(folder: Path) -> Part:
    """Read the synthetic table and the public report of a run; neither if both are too large."""
    table = folder / "synthetic.csv"
    report = folder / "report.html"
    if not (table.is_file() and report.is_file()):
        return Part()
    size = table.stat().st_size + report.stat().st_size
    if size > MOST_SENT:
        return Part()
    return Part(table.read_bytes(), report.read_bytes())


def office_in(folder: Path) -> Office:
    """Open the coordinator from its folder.

    Raises:
        InputError: A file is missing or damaged.
        RosterError: The roster is of another study, or is not signed by the folder's key.
    """
    require_coordinator_folder(folder)
    study = Study.load(folder)
    identity = Identity.load(folder / COORDINATOR_KEY)
    roster = _roster(folder, study, identity.public)
    seals = frames.Seals(roster.coordinator, identity, roster)
    return Office(study, seals)
