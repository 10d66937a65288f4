"""What a study will send: every message to and from a party, before it begins; and the owner's yes.

A plan is computed from the method's record and public facts: its stages, how often a party is asked
each question at most, the fields of the replies, and the method's lines of visibility, which say
what protects them. Bytes and times are guesses, and so is how often a question is asked where that
follows from the number of rows. All else is a bound, to which the tests hold runs of every method,
and a party holds every coordinator.

**Guarantee**: a plan reads no row. What the ledger may hold at the end is bounded by the study's
budget, or by nothing where the method promises nothing. An approval holds for exactly one plan: the
study with all its settings, the schema, the parties' keys, this version and every message; only
guesses of bytes and time may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from siloweave.app.study import Study
from siloweave.core.fit import Cost
from siloweave.core.method import Asked, Case, Forecast, Setup, View, Views, smallest_sum
from siloweave.core.party import PARTING
from siloweave.core.settings import NAMING_DELTA, agreed, differences
from siloweave.errors import InputError
from siloweave.federation.course import Traffic
from siloweave.federation.frames import Roster
from siloweave.federation.messages import Masked, Public, Relayed, Released, Request, reply_type
from siloweave.federation.session import Close, Part
from siloweave.privacy.accountants import epsilon_of_rho
from siloweave.privacy.budget import Relation, rho_for
from siloweave.privacy.journal import write_whole
from siloweave.privacy.ledger import Identity, spelled_key, verify
from siloweave.protocols.columns import DecodeColumns, KeepColumns, most_decoded
from siloweave.protocols.schema import open_facts
from siloweave.tables.read import Dialect
from siloweave.tables.schema import Column, Schema

APPROVAL = "approved.json"
"""In a study's folder at a party: the plan that its owner has approved."""

ENGINE_S, SOCKET_S = 1.0, 0.05
"""Seconds that an engine, and a socket, add to every question; an idle engine adds half of it."""

_AROUND = 900  # bytes of a question and its answer besides what they are about: envelopes and seals
_ENTRY = 500  # bytes of a line of the ledger
_FAR = 2**20  # a bound that nobody has declared
_PUBLIC = "follows from no row"
_MADE = "made of what the run has released before, and of no row"
_RESULT = "public: what every reader of the study's result sees"
_RELAYED = "a mask, and a key that the coordinator lacks"
_INFINITE = "without noise: epsilon is infinite"
_SEALS = (Released, Masked, Relayed, Public)
_PURPOSE = b"siloweave approval"
_STATED: dict[bytes, float] = {}  # by a study's facts: a forecast takes a fifth of a second


class PlannedField(msgspec.Struct, frozen=True):
    """A part of a reply, and what protects it."""

    name: str
    protected_by: str


class PlannedMessage(msgspec.Struct, frozen=True):
    """One question, and the reply to it.

    Attributes:
        stage: Of the run: "alignment", a stage before the method, "method", "closing", or "parting"
            once it is over.
        tag: Of the question, as it is on the wire.
        asks: The question in words.
        replies: The reply in words.
        fields: What the reply has; at the parting, what the coordinator sends along.
        times: How often this party is asked it, at most; 0 if it comes along with the last one.
        ledger: What that enters in the party's ledger.
        guessed: Whether `times` is no bound, since it follows from the number of rows.
    """

    stage: str
    tag: str
    asks: str
    replies: str
    fields: tuple[PlannedField, ...]
    times: int
    ledger: str
    guessed: bool = False

    @property
    def pays(self) -> int:
        """Lines of the ledger that a reply adds, roughly."""
        free = (_PUBLIC, _RELAYED, _MADE, _RESULT)
        return sum(one.protected_by not in free for one in self.fields)


class Plan(msgspec.Struct, frozen=True):
    """What a study will send to and from a party.

    Attributes:
        party: Its name.
        facts: Everything public that the study is, with the parties' keys where they are known.
        columns: Of its rows that are used.
        reading: How the study's folder says that its file is written, and which of its names and
            values are which of the schema's (rename, recode); all else is decided from the file.
        guarantee: What the method promises, in words.
        sees: Who sees what, and what protects that.
        messages: In the order of the stages.
        epsilon: Most that a unit will have cost at the end, at `delta`.
        stated: Every epsilon that the study states, by whom it is for; see `statements_of`.
        budget: What a unit may cost, and what a unit is, in full.
        trust: The method's trust model.
        smallest_cohort: Fewest parties of a masked sum; None for a method that takes none.
        settings: All settings of the method, those that the study leaves out, too.
        size: Bytes that the party sends and receives, roughly, without a table at the parting.
        rounds: Questions of the whole run, one after the other, at most.
        seconds: That it computes, roughly; None where that is not known.
        every_step: Whether there is a question at every gradient step.
    """

    party: str
    facts: dict[str, Any]
    columns: tuple[str, ...]
    reading: dict[str, Any]
    guarantee: str
    sees: tuple[View, ...]
    messages: tuple[PlannedMessage, ...]
    epsilon: float
    delta: float
    size: int
    rounds: int
    seconds: float | None
    every_step: bool
    stated: dict[str, float]
    budget: dict[str, Any]
    trust: str
    smallest_cohort: int | None
    settings: dict[str, Any]

    @property
    def count(self) -> int:
        """Messages to this party, and as many answers, at most."""
        return sum(message.times for message in self.messages)

    @property
    def questions(self) -> int:
        """Messages to this party up to the one that closes the run, at most."""
        return sum(message.times for message in self.messages if message.stage != PARTING)

    @property
    def brings_results(self) -> bool:
        """Whether the synthetic table and the public report come with the last message."""
        return any(message.fields for message in self.messages if message.stage == PARTING)

    @property
    def shown(self) -> dict[str, Any]:
        """All of it, for a program."""
        both = {
            "seconds_on_engine": self.lasts(ENGINE_S),
            "seconds_on_sockets": self.lasts(SOCKET_S),
        }
        return {**msgspec.to_builtins(self), "count": self.count, **both}

    @property
    def approved(self) -> dict[str, Any]:
        """What an approval is of: all but guesses."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        for guess in ("size", "seconds"):
            del found[guess]
        if any(one.guessed for one in self.messages):
            del found["rounds"]  # as the rows of all make it
        for one in found["messages"]:
            one["times"] = "by rows" if one["guessed"] else one["times"]
        return found

    @property
    def digest(self) -> str:
        """By which what an owner approves is known."""
        return blake2b(agreed(self.approved), digest_size=12).hexdigest()

    def lasts(self, message: float) -> float:
        """Seconds that the run takes, if every question takes so many of them besides."""
        traffic = {self.party: Traffic(self.count, self.size, 0)}
        cost = Cost(traffic, self.rounds, {"computing": self.seconds or 0.0})
        return cost.over_network(latency=0.0, message=message)


def most_asked(messages: Sequence[PlannedMessage]) -> dict[str, dict[str, float]]:
    """How often a party answers each question at most, by stage and tag.

    The question that closes a run may come along with the last one, and once more by itself if a
    party vanished. The parting is no question of the run: nothing is paid for it, and a party
    hears it again if it starts anew.
    """
    most: dict[str, dict[str, float]] = {}
    for message in messages:
        if message.stage == PARTING:
            continue
        closes = message.stage == "closing"
        stage = "method" if closes else message.stage
        times = inf if message.guessed else message.times + closes
        most.setdefault(stage, {})[message.tag] = times
    return most


# From a study


def forecast_of(setup: Setup, learn: float, rows: Sequence[int]) -> Forecast:
    """What the method takes, if every party has so many rows."""
    method, parties = setup.synth.method, len(rows)
    of_all = round(sum(rows) / parties) if method.split == "columns" else sum(rows)
    case = Case(setup.schema, setup.budget, parties, of_all, learn, setup.columns)
    return method.forecast(setup.synth, case)


def plan_of(
    study: Study,
    setup: Setup,
    party: str,
    rows: Sequence[int],
    found: Forecast,
    roster: Roster | None = None,
) -> Plan:
    """The plan of a study for a party.

    Args:
        study: The party's own copy.
        setup: What is known of it before it begins.
        party: Its name.
        rows: Guesses of every party's number of rows.
        found: What the method takes, by `forecast_of`.
        roster: Whose keys an approval is bound to.

    Raises:
        SiloweaveError: The study cannot run; the message names what is wrong.
    """
    synth, learn = setup.synth, study.schema.learn
    method, info = synth.method, synth.info
    run = messages_over(setup, learn, found)
    messages = (*_aligning(study, rows), *run, parting_over(setup))
    facts = study.facts()
    if roster is not None:
        facts["keys"] = {name: spelled_key(keys.signing) for name, keys in roster.keys.items()}
        facts["keys_made_here"] = list(roster.keys_made_here)
    before = sum(one.times for one in messages if one.stage in {s.name for s in method.before})
    aligning, usual = aligned_by(study, rows), asdict(Dialect())
    (entry,) = (one for one in study.parties if one.name == party)
    # Each stage begins with facts of the study.
    stages = {message.stage for message in messages} - {"closing", PARTING}
    begun = len(stages) * (len(agreed(facts)) + len(setup.schema.to_json()))
    ids = [*study.alignment.on] if study.alignment else []
    if not setup.budget.by_row:
        ids.append(setup.budget.unit)
    return Plan(
        party=party,
        facts=facts,
        columns=tuple(dict.fromkeys([*ids, *setup.held.get(party, setup.declared.names)])),
        reading={n: value for n, value in asdict(entry.dialect).items() if value != usual[n]}
        | {n: getattr(entry, n) for n in ("rename", "recode") if getattr(entry, n)},
        guarantee=f"{info.guarantee}: {info.statement}",
        sees=info.visibility,
        messages=messages,
        epsilon=found.epsilon_per_party if info.guarantee == "dp" else inf,
        delta=setup.budget.delta,
        size=aligning.bytes_leader + found.bytes_per_party + around(messages) + begun,
        rounds=aligning.rounds + before + found.rounds,
        seconds=found.seconds,
        every_step=method.every_step,
        stated=statements_of(study, setup),
        budget=msgspec.to_builtins(study.terms()),
        trust=info.trust,
        smallest_cohort=smallest_sum(synth, len(study.names)),
        settings=synth.settings(),
    )


def statements_of(study: Study, setup: Setup | None = None) -> dict[str, float]:
    """Return every epsilon that a study states of a unit, by whom it is for; infinite without "dp".

    That of one ledger is the budget's. Another party that knows whose rows are in the table may
    learn more, and so may everyone about a unit with rows at several parties. Each is a bound: what
    a run's ledgers then say is no more, whatever the number of rows.

    Args:
        study: The party's own copy.
        setup: What is known of it before it begins; from the study alone if None.

    Raises:
        SiloweaveError: The study cannot run; the message names what is wrong.
    """
    budget, synth, parties = study.terms(), study.synthesizer(), len(study.names)
    if synth.info.guarantee != "dp":
        return {"of a row": inf}
    stated = {f"of a {budget.unit}": budget.epsilon}
    together = min(budget.parties_per_unit, parties)
    if synth.method.split == "rows" and together > 1:
        most = _at_parties(study, setup or study.setup(), together)
        stated[f"of a {budget.unit} with rows at {together} parties"] = most
    if synth.info.same_people and budget.relation is Relation.ADD_REMOVE and parties > 1:
        stated["of a row towards another party"] = _to_parties(study, setup or study.setup())
    return stated


def _at_parties(study: Study, setup: Setup, together: int) -> float:
    """The epsilon of a unit with rows at so many parties; see `accountants.epsilon_at_parties`."""
    facts = agreed({**study.facts(), "columns": setup.columns, "together": together})
    if facts not in _STATED:
        # The method's own where its releases have no zCDP at all orders.
        most = forecast_of(setup, study.schema.learn, [2] * len(study.names)).epsilon_at_parties
        if most is None:
            budget = setup.budget
            most = epsilon_of_rho(together**2 * rho_for(budget), budget.delta)
            if study.schema.learn:
                # What names categories may escape at each party, and does so at them together.
                escapes = together * NAMING_DELTA * budget.delta
                left = budget.delta - escapes
                rho = study.job().rho
                with_escapes = epsilon_of_rho(together**2 * rho, left) if left > 0 else inf
                most = max(most, with_escapes)
        _STATED[facts] = most
    return _STATED[facts]


def _to_parties(study: Study, setup: Setup) -> float:
    """The epsilon towards another party, which knows whose rows these are."""
    facts = agreed({**study.facts(), "columns": setup.columns})
    if facts not in _STATED:
        most = forecast_of(setup, study.schema.learn, [2] * len(study.names)).epsilon_to_parties
        _STATED[facts] = study.terms().epsilon if most is None else most
    return _STATED[facts]


class AlignmentForecast(msgspec.Struct, frozen=True):
    """What finding the common rows would take, roughly, going by the sizes of the files.

    `bytes_leader` are sent and received by the party with the fewest ids, which has most to do.
    """

    rounds: int
    bytes_leader: int


def aligned_by(study: Study, ids: Sequence[int]) -> AlignmentForecast:
    """What the alignment of a study takes, if parties bring so many ids; nothing without one."""
    if study.alignment is None:
        return AlignmentForecast(0, 0)
    from siloweave.federation.alignment import expected_traffic

    return AlignmentForecast(*expected_traffic(ids))


def around(messages: Sequence[PlannedMessage]) -> int:
    """Bytes of frames, and of the ledger at the end.

    What is without noise is paid for once, however often it is sent.
    """
    lines = sum(one.pays * (1 if one.ledger == _INFINITE else one.times) for one in messages)
    return _AROUND * sum(one.times for one in messages) + _ENTRY * lines


def messages_over(setup: Setup, learn: float, found: Forecast) -> Iterator[PlannedMessage]:
    """Those of a whole run over a network, up to the one that closes it."""
    yield from messages_of(setup, learn, found)
    decoding = tuple(_decoding(setup))
    yield from decoding
    (closing,) = _described("closing", {Close: 1}, (), "")
    along = found.closes or [one.times for one in decoding] == [1]  # else it may come once more
    yield msgspec.structs.replace(closing, times=0 if along else 1)


def sends_results(setup: Setup) -> bool:
    """Say whether parties are sent the synthetic table: not where each keeps its own columns."""
    return bool(getattr(setup.synth, "shared", True))


def parting_over(setup: Setup) -> PlannedMessage:
    """Return the message after a run over a network: it has ended, and here are its results."""
    (parting,) = _described(PARTING, {Part: 1}, (), "")
    if not sends_results(setup):
        return parting
    asks = (
        f"{parting.asks} The synthetic table and the public report come with it; they are stored "
        "if policy.toml has results = true."
    )
    fields = tuple(PlannedField(name, _RESULT) for name in Part.__struct_fields__)
    return msgspec.structs.replace(parting, asks=asks, fields=fields)


def messages_of(setup: Setup, learn: float, found: Forecast) -> Iterator[PlannedMessage]:
    """Those of all stages, and of the method, as a run plans them."""
    synth, views, rest = setup.synth, setup.synth.info.visibility, 1.0
    private = setup.budget.private
    for stage in synth.method.before:
        if (planned := stage.plan(setup, learn)) is None:
            learn = 0.0 if stage.name == "schema" else learn
            continue
        if stage.name == "schema":
            setup = replace(setup, schema=_widest(setup.schema))
        share, seen = stage.share(synth, learn), stage.views(views, setup)
        paid = _paid(rest * share, private=private)
        yield from _described(stage.name, stage.asked(planned), seen, paid)
        rest *= 1 - share
    for one in _described("method", found.asked, views, _paid(rest, private=private)):
        yield msgspec.structs.replace(one, guessed=one.tag in map(_tag, found.by_rows))


def _decoding(setup: Setup) -> Iterator[PlannedMessage]:
    """The one that draws rows where what decodes them is at the parties; it closes the run."""
    if setup.synth.method.decode is not None:
        shared = getattr(setup.synth, "shared", True)
        asked: Asked = {DecodeColumns: most_decoded(setup)} if shared else {KeepColumns: 1}
        (one,) = _described("method", asked, (), "")
        part = PlannedField("columns", _MADE) if shared else PlannedField("rows", _PUBLIC)
        yield msgspec.structs.replace(one, fields=(part,), ledger="nothing")


def _widest(schema: Schema) -> Schema:
    """A schema whose open bounds turned out to be so far apart that columns are cut into bins."""
    unbounded = [name for name, facts in open_facts(schema).items() if "low" in facts]
    columns = [
        Column(c.name, "integer", low=0, high=_FAR, missing=c.missing, fallback=0)
        if c.name in unbounded
        else c
        for c in schema.columns
    ]
    return Schema(tuple(columns))


def _paid(share: float, *, private: bool) -> str:
    return (
        f"noise: with all of this stage at most {share:.3g} of the study's budget"
        if private
        else ""
    )


def _described(stage: str, asked: Asked, views: Views, paid: str) -> Iterator[PlannedMessage]:
    for request, times in asked.items():
        if times:
            fields = tuple(_fields(request, views))
            yield PlannedMessage(
                stage,
                _tag(request),
                _sentence(request),
                _sentence(reply_type(request)),
                fields,
                times,
                _entered([one.protected_by for one in fields], paid),
            )


def _entered(protected: Sequence[str], paid: str) -> str:
    if any(one.startswith("nothing") or one == _INFINITE for one in protected):
        return _INFINITE
    return paid if any(one not in (_PUBLIC, _RELAYED) for one in protected) else "nothing"


def _tag(request: type[Request[Any]]) -> str:
    return str(request.__struct_config__.tag)


def _sentence(kind: type) -> str:
    """The first sentence of a message's docstring, which says what it asks or holds."""
    text = " ".join((kind.__doc__ or "").split())
    return text.split(". ")[0].rstrip(".") + "."


def _fields(request: type[Request[Any]], views: Views) -> Iterator[PlannedField]:
    """What a reply may have at these settings: a field that no line covers is never sent."""
    reply = reply_type(request)
    covered = {name: view.protected_by for view in views for name in view.carries}
    # An alignment's replies are covered by no method's lines, and are without noise.
    bare = _INFINITE if request.__module__.endswith("alignment_party") else None
    for name, hint in get_type_hints(reply).items():
        one = get_args(hint)[0] if get_origin(hint) is tuple else hint
        seal = next(kind for kind in _SEALS if (get_origin(one) or one) is kind)
        if seal is Public:
            yield PlannedField(name, _PUBLIC)
        elif seal is Relayed:
            yield PlannedField(name, _RELAYED)
        elif (why := covered.get(f"{reply.__name__}.{name}", bare)) is not None:
            yield PlannedField(name, why)


def _aligning(study: Study, ids: Sequence[int]) -> Iterator[PlannedMessage]:
    """Those of the alignment, whoever leads it; its ledger has an infinite cost."""
    if study.alignment is None:
        return
    from siloweave.federation.alignment import expected_questions

    if (bound := study.alignment.most) is not None:  # nobody brings more ids: parties refuse it
        ids = [bound] * len(ids)
    far = ids if bound else [_FAR**2] * len(ids)
    (leader, other), (most, more) = map(expected_questions, (ids, far))
    asked: dict[type[Request[Any]], int] = {**other, **leader, Close: 1}
    by_ids = {_tag(kind) for kind, times in {**more, **most}.items() if times != asked[kind]}
    for one in _described("alignment", asked, (), ""):
        paid, guessed = _INFINITE if one.pays else "nothing", one.tag in by_ids
        yield msgspec.structs.replace(one, ledger=paid, guessed=guessed)


# Approval


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan that a party's owner said yes to, and the party's signature of it."""

    plan: msgspec.Raw
    signature: bytes


def approve(folder: Path, plan: Plan, digest: str, identity: Identity) -> Path:
    """Store the owner's yes to the plan of this digest in the study's folder.

    The party's key signs it, as the folder comes from somebody else.

    Raises:
        InputError: The plan has another digest: it is not what was shown.
    """
    if digest != plan.digest:
        raise InputError(
            f"{digest!r} is another plan than that of {folder}, which is {plan.digest!r}. "
            f"{_read(folder)}"
        )
    file, yes = folder / APPROVAL, agreed(plan.approved)
    approval = Approval(msgspec.Raw(yes), identity.sign(_PURPOSE, yes))
    write_whole(file, msgspec.json.format(msgspec.json.encode(approval)) + b"\n")
    return file


def _read(folder: Path) -> str:
    call = f"siloweave party plan {quote(str(folder))}"
    return f"Read what `{call}` prints, and approve it."


def require_approved(folder: Path, plan: Plan, identity: Identity) -> None:
    """Refuse a plan that the owner has not approved, and say what differs from one that was.

    Raises:
        InputError: There is no approval of this plan by this party's key, or its file is damaged.
    """
    file, name = folder / APPROVAL, plan.facts["study"]["name"]
    see = f"Nothing was released. {_read(folder)}"
    if not file.is_file():
        raise InputError(f"party {plan.party!r}: its owner has not approved study {name!r}. {see}")
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Approval)
        odd = differences(found.plan, agreed(plan.approved))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: holds no approval ({error}). {see}") from error
    if odd:
        raise InputError(
            f"party {plan.party!r}: study {name!r} is not as its owner approved it (as approved, "
            f"and there now): {'; '.join(odd[:5])}. {see}"
        )
    if not verify(identity.public, _PURPOSE, agreed(plan.approved), found.signature):
        raise InputError(
            f"{file}: was not signed by the key of party {plan.party!r}, so somebody else wrote "
            f"it. {see}"
        )
