"""A study between organisations: folders for its ends, and what runs in each.

Each end has a folder for the study (`provision` makes them all). A party that takes part in several
studies has a folder with its key and policy, and the studies' folders in it:

==================  ==========================================================================
``study.toml``      the study, the same at all ends
``schema.json``     its columns
``roster.json``     who takes part, by which keys; signed by the coordinator
``policy.toml``     at a party: what its owner allows, whatever a study asks for
``coordinator.pub`` at a party: the coordinator's public key, which its owner has compared
``party.key``       a party's private key, or ``coordinator.key``: never leaves the folder
``engine``          certificates and keys by which the engine's processes meet, over a network
``ledger.jsonl``    what a party has released, and beside it all it needs to continue
``synthetic.csv``   at a party: its synthetic columns, where they stay with their parties
``begun``           at a party: its signature, by which it knows that all this is its own, and the
                    first line of its ledger, once there is one
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
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec.structs import replace

from siloweave.app.check import check_columns, check_rows, columns_in, rows_taken
from siloweave.app.plan import Plan, forecast_of, most_asked, plan_of, require_approved
from siloweave.app.policy import POLICY_FILE, promised, read_policy, write_policy
from siloweave.app.study import PartyTable, Study
from siloweave.core.party import ALIGNMENT, Host, agreed, parties_over
from siloweave.core.run import SEEDED, Parties, lost_ledger
from siloweave.errors import InputError, RosterError, SiloweaveError, StudyError, naming_party
from siloweave.federation import engine, frames
from siloweave.federation.alignment_party import AlignmentData
from siloweave.federation.masking import KEY
from siloweave.privacy.budget import Budget
from siloweave.privacy.journal import write_whole
from siloweave.privacy.ledger import KEY_FILE, LEDGER_FILE, Identity, Ledger, spelled_key
from siloweave.tables.cells import moved_note
from siloweave.tables.database import source_of
from siloweave.tables.drawn import drawn_anew, listed_instead
from siloweave.tables.ids import IdPolicy
from siloweave.tables.read import Table, read, write

COORDINATOR = "coordinator"
"""What the coordinator is called, and its folder."""
STUDY_FILE = "study.toml"
COORDINATOR_KEY, COORDINATOR_PUBLIC = "coordinator.key", "coordinator.pub"
"""In the coordinator's folder its private key; in a party's folder the public one."""
NONCES = "nonces"
"""In a party's folder: of the questions that it has answered."""
KEPT = "synthetic.csv"
"""In a party's folder: its synthetic columns, where these stay with their parties."""
_BEGUN, _SIGNED = "begun", 64  # bytes of a signature, after which the ledger's first line stands
_POLICY, _LEDGER = (f"its {one} does not allow this study" for one in ("policy", "ledger"))
_ROWS = "its rows do not fit this study"
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
            own = Identity.load_or_create(folders[name] / KEY_FILE)
            public[name] = frames.keys_for(study.study.name, own)
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


# The ends


@contextmanager
def party_in(
    folder: Path, data: str | Path | None = None, *, noise: str = "os"
) -> Iterator[tuple[Host, frames.Seals]]:
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
    if data is None:
        raise InputError(
            f"party {name!r}: say where its rows are: --data FILE, or --data ADDRESS#TABLE of a "
            "database. What study.toml names is not read, since others wrote that file"
        )
    setup, job = study.setup(), study.job(noise=noise, identity=identity)
    with _declining(_LEDGER):
        broken = refusal_in(folder)
    with _declining(_POLICY):
        if broken:
            raise StudyError(broken)
    own = _begun(folder, study, identity)
    seals = frames.Seals(name, identity, roster, frames.Nonces(folder / NONCES))
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
        _log.warning("%s", moved_note(moved))

    def allow(ledger: Ledger) -> None:
        used, others = setup.held.get(name, ()), other_studies(home, folder)
        policy.check(study, setup.declared, setup.synth, ledger.entries, used, others)

    facts, common = agreed(study.facts()), None
    if (asked := study.alignment) is not None:
        rule = IdPolicy(asked.missing, asked.duplicates)
        common = AlignmentData(read(table), asked.on, rule, os.cpu_count() or 1, asked.most)
    most = most_asked(plan.messages)

    def keep(rows: Table, seed: int) -> None:
        names = (*(asked.on if asked else ()), *entry.columns)
        own = setup.declared.select([name for name in names if name in setup.declared.names])
        rows = listed_instead(rows, own, key=seed)
        write(drawn_anew(rows, own, key=seed), folder / KEPT, own.padded)
        (folder / KEPT).chmod(0o600)  # rows of all parties are in one order
        _log.info("%d rows of synthetic columns are in %s", rows.num_rows, KEPT)

    with _declining(_LEDGER):
        held = folder, roster.parties, allow, common, most, keep, seals.end
        host = Host(name, setup, facts, table, job, *held)
    try:
        write_whole(folder / _BEGUN, own + host.ledger.header)
        yield host, seals
    finally:
        host.close()


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
            host, seals = stack.enter_context(party_in(folder, data, noise=noise))
            reply, why = host.reply, ""
        except SiloweaveError as error:
            if not error.declined:
                raise
            _, _, roster, identity, entry = member(folder)
            seals = frames.Seals(entry.name, identity, roster, frames.Nonces(folder / NONCES))
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


def _begun(folder: Path, study: Study, identity: Identity) -> bytes:
    """The party's signature, which is in its folder from now on.

    InputError if the party did not begin the study there, and the folder comes with what a party
    remembers, such as its secret for masks.
    """
    mark, own = folder / _BEGUN, identity.sign(b"siloweave begun", study.study.name.encode())
    if not (mark.is_file() and mark.read_bytes().startswith(own)):
        if came := [one.name for what in _REMEMBERED for one in folder.glob(what)]:
            raise InputError(
                f"{folder}: has {', '.join(came)}, and this party never began study "
                f"{study.study.name!r} there. Whoever wrote that would know what protects the "
                "rows. Ask the coordinator for the folder again, and use a new one"
            )
        write_whole(mark, own)
    with _declining(_LEDGER):
        require_ledger(folder)
    return own


def require_ledger(folder: Path) -> None:
    """Refuse a party's folder whose ledger is gone, or is another than it began with.

    Its first line is noted once it is on disk, and before a question is answered: a party that was
    killed earlier starts anew.
    """
    ledger, first = folder / LEDGER_FILE, _first_line(folder)
    if first and not (ledger.is_file() and ledger.read_bytes().startswith(first)):
        raise lost_ledger(ledger, "is gone, or is another than this party began with")


def member(folder: Path) -> tuple[Study, Path, frames.Roster, Identity, PartyTable]:
    """A party's study, the folder of its key, the roster, its key, and its entry in the study."""
    study, home = Study.load(folder), home_of(folder)
    roster = _roster(folder, study, public_key_in(folder / COORDINATOR_PUBLIC))
    identity = Identity.load(home / KEY_FILE)
    names = [name for name, key in roster.parties.items() if key == identity.public]
    if not names:
        raise RosterError(
            f"{home / KEY_FILE}: has the key {spelled_key(identity.public)}, which the roster "
            "does not name. Give the coordinator this party's key, and ask for a new roster"
        )
    entry = next(party for party in study.parties if party.name == names[0])
    return study, home, roster, identity, entry


def refusal_in(folder: Path) -> str:
    """What the policy in a party's folder says against its study; empty where it allows it."""
    study, home, _, _, entry = member(folder)
    ledger, others = folder / LEDGER_FILE, other_studies(home, folder)
    begun, setup = ledger.exists() and ledger.stat().st_size, study.setup()
    entries = Ledger.read(ledger).entries if begun else ()
    used = setup.held.get(entry.name, ())
    try:
        read_policy(home).check(study, setup.declared, setup.synth, entries, used, others)
    except InputError as error:
        return str(error)
    return ""


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
        if brought := [one for one in (own, folder / POLICY_FILE) if one.exists()]:
            raise InputError(
                f"{brought[0]}: this party has its key and policy in {above}, and a study's folder "
                "may bring no others. Ask whoever made the folder, and remove the file"
            )
        return above
    if own.exists():
        return folder
    raise InputError(
        f"{folder}: there is no {KEY_FILE}, here or in the folder above. Make the party's key with "
        "`siloweave party key`, or ask the coordinator for the whole folder"
    )


def other_studies(home: Path, folder: Path) -> list[Budget]:
    """What each other study that a party has started may spend.

    Every study has a ledger of its own, so that no coordinator is sent what others have asked for.
    It counts with all of its budget, since it may still continue, or with what its ledger holds if
    that is more: its file may have asked for more before.
    """
    found = [one for one in sorted(home.iterdir()) if one.is_dir()] if home != folder else []
    found = [one for one in found if (one / LEDGER_FILE).exists() or _first_line(one)]
    return [_reserved(one) for one in found if one.absolute() != folder.absolute()]


def _first_line(folder: Path) -> bytes:
    """That of the ledger that a party began with in a study's folder; empty if it did not."""
    mark = folder / _BEGUN
    return mark.read_bytes()[_SIGNED:] if mark.is_file() else b""


def _reserved(folder: Path) -> Budget:
    budget, ledger = promised(Study.load(folder)), folder / LEDGER_FILE
    begun = ledger.exists() and ledger.stat().st_size
    spent = Ledger.read(ledger).epsilon(budget.delta) if begun else 0.0
    return replace(budget, epsilon=max(budget.epsilon, spent))


@dataclass(frozen=True)
class Office:
    """The coordinator's end: the study, and what seals its frames."""

    study: Study
    seals: frames.Seals

    def parties(self, carrier: Any) -> Parties:
        """Opens sessions with the parties over a carrier."""
        return parties_over(carrier, agreed(self.study.facts()), self.seals)


def office_in(folder: Path) -> Office:
    """The coordinator, from its folder.

    Raises:
        InputError: A file is missing or damaged.
        RosterError: The roster is of another study, or is not signed by the folder's key.
    """
    study, identity = Study.load(folder), Identity.load(folder / COORDINATOR_KEY)
    roster = _roster(folder, study, identity.public)
    return Office(study, frames.Seals(roster.coordinator, identity, roster))
