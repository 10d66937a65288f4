"""A run whose coordinator has no table, with parties that answer sealed frames."""

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from threading import Thread

from siloweave.app.plan import forecast_of, messages_over, most_asked
from siloweave.core.method import Setup, job_for
from siloweave.core.party import (
    OwnerHooks,
    columns_of,
    parties_of,
    study_party,
    synthetic_columns,
)
from siloweave.core.run import run_study
from siloweave.core.settings import agreed
from siloweave.errors import StudyError
from siloweave.federation.carriers.sealed import SealedCarrier
from siloweave.federation.exchanges import Nonces
from siloweave.federation.frames import Seals, keys_for, signed_roster
from siloweave.federation.spool import STOP, Spool, serve
from siloweave.privacy.ledger import Identity
from siloweave.tables import read, write
from tests.federation.spooled import stop


class Framed:
    """Carries sealed frames by a call; `crossed` has all of them."""

    def __init__(self, seals, hosts):
        self.seals, self.hosts, self.crossed = seals, hosts, []
        self.noticed = lambda name, why: None

    def send(self, name, frame, facts=b""):
        question = self.seals.ask(name, frame, facts)
        nonce = self.seals.checked(question, self.seals.name, name).nonce
        answer = self.answered(name, question)
        self.crossed += [question, answer]
        return self.seals.open(answer, name, nonce).envelope()

    def answered(self, name, question):
        host, seals = self.hosts[name]
        with seals.answered(question, host.reply) as answer:
            return answer


@contextmanager
def over_files(seals, hosts, folder):
    """A spool folder, and a thread for each party that looks into it."""
    folder = folder / "spool"

    def served(host, own):
        with suppress(StudyError):  # which a party ends with, once the coordinator has it
            serve(folder, own, host.reply, pause=0.004)

    threads = [Thread(target=served, args=pair, daemon=True) for pair in hosts.values()]
    for thread in threads:
        thread.start()
    try:
        yield Spool(folder, seals, seconds=60.0, pause=0.004)
    finally:
        for name in hosts:
            stop(folder, name)
        for thread in threads:
            thread.join(20)
        for name in hosts:  # of a party that had ended before
            (folder / f"to-{name}" / STOP).unlink(missing_ok=True)


def jobs_of(case, **more):
    facts = {key: value for key, value in case.fit.items() if key not in ("budget", "learn")}
    return job_for(case.synth, case.fit.get("budget"), noise="seeded", run="run", **facts, **more)


def setup_of(case):
    """A study's public facts, and every party's table."""
    synth = case.synth
    tables = {n: read(one) for n, one in parties_of(synth.method, case.data(0), None).items()}
    budget = synth.method.allowed(synth, case.fit.get("budget"))
    split = synth.method.split == "columns"
    columns = columns_of(tables, case.schema, empty=True) if split else {}
    learn = case.fit.get("learn", 0.0)
    return Setup(synth, case.schema, budget, tuple(tables), columns, learn=learn), tables


def plan_of(case, setup):
    """How often a party may be asked each question, by stage and tag."""
    found = forecast_of(setup, [60] * len(setup.roster))
    return most_asked(list(messages_over(setup, found)))


@contextmanager
def ends(case, folder, study=b"{}"):
    """The coordinator's seals, and every party with its own."""
    setup, tables = setup_of(case)
    office = Identity.seeded(b"office")
    own = {name: Identity.seeded(f"0/{name}".encode()) for name in tables}
    roster = signed_roster("flu", office, {n: keys_for("flu", one) for n, one in own.items()})
    with ExitStack() as stack:
        hosts = {}
        for name, table in tables.items():
            home = folder / name
            home.mkdir(parents=True, exist_ok=True)
            host = study_party(
                name, setup, study, table, jobs_of(case, identity=own[name]), home, roster.parties,
                question_limits=plan_of(case, setup),
                owner=OwnerHooks(end=lambda party, home=home: write_kept(party, setup, home)),
            )  # fmt: skip
            stack.callback(host.close)
            hosts[name] = host, Seals(name, own[name], roster, Nonces(home / "nonces"))
        yield setup, Seals(roster.coordinator, office, roster), hosts


def in_frames(setup, tables, job):
    """Open parties that answer sealed frames by a call; an `Opener` of `core.run`."""
    office = Identity.seeded(b"office")
    own = {name: Identity.seeded(f"{job.seed}/{name}".encode()) for name in tables}
    roster = signed_roster("flu", office, {n: keys_for("flu", one) for n, one in own.items()})
    parties = {}
    for name, table in tables.items():
        home = job.folder / "homes" / name
        home.mkdir(parents=True)
        party = study_party(
            name, setup, b"{}", table, replace(job, identity=own[name]), home, roster.parties
        )
        parties[name] = party, Seals(name, own[name], roster, Nonces(home / "nonces"))
    seals = Seals(roster.coordinator, office, roster)
    return SealedCarrier(Framed(seals, parties), seals)


def write_kept(party, setup, home):
    """Write synthetic columns that stay with a party into its folder."""
    columns = synthetic_columns(party, setup)
    if columns is not None:
        write(columns[0], home / "kept.parquet")


def fit_over_frames(case, folder, *, over=None, rows=None):
    """A fit over sealed frames, and all that crossed if by a call; else `over` carries them."""
    study = agreed({"a": "study"})
    with ends(case, folder, study) as (setup, seals, hosts), ExitStack() as stack:
        post = Framed(seals, hosts)
        if over is not None:
            post = stack.enter_context(over(seals, hosts, folder))
        job = jobs_of(case, folder=folder / "office", rows=rows)
        fitted = run_study(setup, job, SealedCarrier(post, seals), study=study)
        return fitted, getattr(post, "crossed", [])
