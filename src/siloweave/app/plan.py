"""A study's plan: every message to and from a party, before it begins; and its owner's approval.

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
from siloweave.core.method import Forecast, QuestionCounts, Setup, smallest_sum
from siloweave.core.party import PARTING
from siloweave.core.settings import NAMING_DELTA, agreed, differences
from siloweave.core.views import View, Views
from siloweave.errors import InputError, StudyError
from siloweave.federation.course import Traffic
from siloweave.federation.frames import Roster
from siloweave.federation.messages import (
    Masked,
    Public,
    Relayed,
    Released,
    Request,
    reply_type,
)
from siloweave.federation.session import Close, Part
from siloweave.privacy.accountants import epsilon_of_rho
from siloweave.privacy.budget import Relation, rho_for
from siloweave.privacy.journal import write_whole
from siloweave.privacy.ledger import Identity, spelled_key, verify
from siloweave.protocols.columns import DecodeColumns, KeepColumns, most_decoded
from siloweave.protocols.schema import open_facts
from siloweave.tables.column import Column
from siloweave.tables.dialect import Dialect
from siloweave.tables.schema import Schema

APPROVAL = "approved.json"
"""In a study's folder at a party: the plan that its owner has approved."""

ENGINE_S = 1.0
"""Seconds that an engine adds to every question; an idle engine adds half of it."""
SOCKET_S = 0.05
"""Seconds that a socket adds to every question."""

# Bytes of a question and its answer besides what they are about: envelopes and seals.
_AROUND = 900
_ENTRY = 500  # bytes of a line of the ledger
# From so many questions one after the other, parties should be in one machine room: over an engine
# they would take a quarter of an hour without any computing.
_MANY_ROUNDS = 1000
_FAR = 2**20  # a bound that nobody has declared
_PUBLIC = "follows from no row"
_MADE = "made of what the run has released before, and of no row"
_RESULT = "public: what every reader of the study's result sees"
_RELAYED = "a mask, and a key that the coordinator lacks"
_INFINITE = "without noise: epsilon is infinite"
_SEALS = (Released, Masked, Relayed, Public)
_PURPOSE = b"siloweave approval"
# Epsilons that were forecast, by a study's facts: a forecast takes a fifth of a second.
_STATED: dict[bytes, float] = {}


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
        return sum(field.protected_by not in free for field in self.fields)


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
        return sum(
            message.times for message in self.messages if message.stage != PARTING
        )

    @property
    def brings_results(self) -> bool:
        """Whether the synthetic table and the public report come with the last message."""
        return any(
            message.fields for message in self.messages if message.stage == PARTING
        )

    @property
    def shown(self) -> dict[str, Any]:
        """The whole plan and what follows from it, for a program."""
        derived = {
            "count": self.count,
            "seconds_on_engine": self.lasts(ENGINE_S),
            "seconds_on_sockets": self.lasts(SOCKET_S),
        }
        return {**msgspec.to_builtins(self), **derived}

    @property
    def one_room(self) -> bool:
        """Whether so many questions follow each other that one machine room is the place for it."""
        return self.rounds > _MANY_ROUNDS

    @property
    def approved(self) -> dict[str, Any]:
        """What an approval is of: all but guesses."""
        facts: dict[str, Any] = msgspec.to_builtins(self)
        for guess in ("size", "seconds"):
            del facts[guess]
        # How many rounds there are then follows from the rows of all parties.
        if any(message.guessed for message in self.messages):
            del facts["rounds"]
        for message in facts["messages"]:
            if message["guessed"]:
                message["times"] = "by rows"
        return facts

    @property
    def digest(self) -> str:
        """The digest that an owner gives to approve exactly this plan."""
        facts = agreed(self.approved)
        return blake2b(facts, digest_size=12).hexdigest()

    def lasts(self, message: float) -> float:
        """Return the seconds that the run takes, if every question takes so many besides."""
        traffic = {self.party: Traffic(self.count, self.size, 0)}
        cost = Cost(traffic, self.rounds, {"computing": self.seconds or 0.0})
        return cost.over_network(latency=0.0, message=message)


def most_asked(messages: Sequence[PlannedMessage]) -> dict[str, dict[str, float]]:
    """Return how often a party answers each question at most, by stage and tag.

    The question that closes a run may come along with the last one, and once more by itself if a
    party vanished. The parting is no question of the run: nothing is paid for it, and a party
    hears it again if it starts anew.
    """
    most: dict[str, dict[str, float]] = {}
    for message in messages:
        if message.stage == PARTING:
            continue
        stage = message.stage
        times = inf if message.guessed else message.times
        if stage == "closing":
            stage = "method"
            times += 1
        most.setdefault(stage, {})[message.tag] = times
    return most


# From a study


def forecast_of(setup: Setup, rows: Sequence[int]) -> Forecast:
    """Forecast what the method takes, if parties have so many rows, each its number."""
    method = setup.synth.method
    party_count = len(rows)
    row_count = sum(rows)
    # Parties that hold columns of the same people have the same rows: the mean of their guesses.
    if method.split == "columns":
        row_count = round(row_count / party_count)
    return method.forecast(setup, row_count)


def plan_of(
    study: Study,
    setup: Setup,
    party: str,
    rows: Sequence[int],
    forecast: Forecast,
    roster: Roster | None = None,
) -> Plan:
    """Plan all that a study sends to and from a party.

    Args:
        study: The party's own copy.
        setup: What is known of it before it begins.
        party: Its name.
        rows: Guesses of every party's number of rows.
        forecast: What the method takes, by `forecast_of`.
        roster: Whose keys an approval is bound to.

    Raises:
        SiloweaveError: The study cannot run; the message names what is wrong.
    """
    synth = setup.synth
    info = synth.info
    run = messages_over(setup, forecast)
    messages = (*_aligning(study, rows), *run, parting_over(setup))
    facts = study.facts()
    if roster is not None:
        facts["keys"] = {
            name: spelled_key(keys.signing) for name, keys in roster.keys.items()
        }
        facts["keys_made_here"] = list(roster.keys_made_here)

    # The forecast has the method's rounds; those before it are counted by their messages.
    stage_names = {stage.name for stage in synth.method.before}
    stage_rounds = sum(
        message.times for message in messages if message.stage in stage_names
    )
    aligning = aligned_by(study, rows)
    rounds = aligning.rounds + stage_rounds + forecast.rounds

    # Each stage begins with facts of the study.
    stages = {message.stage for message in messages} - {"closing", PARTING}
    facts_bytes = len(stages) * (len(agreed(facts)) + len(setup.schema.to_json()))
    size = (
        aligning.bytes_leader
        + forecast.bytes_per_party
        + around(messages)
        + facts_bytes
    )

    # Ids are used too: those to align by, and that of the unit of the budget.
    ids: list[str] = []
    if study.alignment is not None:
        ids += study.alignment.on
    if not setup.budget.by_row:
        ids.append(setup.budget.unit)
    party_columns = setup.held.get(party, setup.declared.names)
    columns = tuple(dict.fromkeys([*ids, *party_columns]))
    return Plan(
        party=party,
        facts=facts,
        columns=columns,
        reading=_reading(study, party),
        guarantee=f"{info.guarantee}: {info.statement}",
        sees=info.visibility,
        messages=messages,
        epsilon=forecast.epsilon_per_party if info.guarantee == "dp" else inf,
        delta=setup.budget.delta,
        size=size,
        rounds=rounds,
        seconds=forecast.seconds,
        stated=statements_of(study, setup),
        budget=msgspec.to_builtins(study.terms()),
        trust=info.trust,
        smallest_cohort=smallest_sum(synth, len(study.names)),
        settings=synth.settings(),
    )


def _reading(study: Study, party: str) -> dict[str, Any]:
    """Return how the study's folder says that a party's file is read, where that is not usual."""
    entry = next(entry for entry in study.parties if entry.name == party)
    usual = asdict(Dialect())
    dialect = asdict(entry.dialect)
    reading = {name: value for name, value in dialect.items() if value != usual[name]}
    if entry.rename:
        reading["rename"] = entry.rename
    if entry.recode:
        reading["recode"] = entry.recode
    return reading


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
    budget = study.terms()
    synth = study.synthesizer()
    party_count = len(study.names)
    if synth.info.guarantee != "dp":
        return {"of a row": inf}

    epsilons = {f"of a {budget.unit}": budget.epsilon}
    together = min(budget.parties_per_unit, party_count)
    if synth.method.split == "rows" and together > 1:
        setup = setup or study.setup()
        label = f"of a {budget.unit} with rows at {together} parties"
        epsilons[label] = _at_parties(study, setup, together)
    if (
        synth.info.same_people
        and budget.relation is Relation.ADD_REMOVE
        and party_count > 1
    ):
        setup = setup or study.setup()
        epsilons["of a row towards another party"] = _to_parties(study, setup)
    return epsilons


def _at_parties(study: Study, setup: Setup, together: int) -> float:
    """Return a unit's epsilon with rows at several parties, as `accountants.epsilon_at_parties`."""
    facts = agreed({**study.facts(), "columns": setup.columns, "together": together})
    if facts not in _STATED:
        _STATED[facts] = _bound_at_parties(study, setup, together)
    return _STATED[facts]


def _bound_at_parties(study: Study, setup: Setup, together: int) -> float:
    """Compute what `_at_parties` returns."""
    # The method's own bound, where its releases have no zCDP at all orders. It holds for every
    # number of rows, so that any will do here.
    row_counts = [2] * len(study.names)
    method_bound = forecast_of(setup, row_counts).epsilon_at_parties
    if method_bound is not None:
        return method_bound

    # A group of k: rho grows with k squared.
    budget = setup.budget
    bound = epsilon_of_rho(together**2 * rho_for(budget), budget.delta)
    if not study.schema.learn:
        return bound

    # What names categories may escape at each party, and does so at them together.
    escape_delta = together * NAMING_DELTA * budget.delta
    remaining_delta = budget.delta - escape_delta
    if remaining_delta <= 0:
        return inf
    with_escapes = epsilon_of_rho(together**2 * setup.rho, remaining_delta)
    return max(bound, with_escapes)


def _to_parties(study: Study, setup: Setup) -> float:
    """Return the epsilon towards another party, which knows whose rows these are."""
    facts = agreed({**study.facts(), "columns": setup.columns})
    if facts not in _STATED:
        row_counts = [2] * len(study.names)
        bound = forecast_of(setup, row_counts).epsilon_to_parties
        _STATED[facts] = study.terms().epsilon if bound is None else bound
    return _STATED[facts]


class AlignmentForecast(msgspec.Struct, frozen=True):
    """What finding the common rows would take, roughly, going by the sizes of the files.

    `bytes_leader` are sent and received by the party with the fewest ids, which has most to do.
    """

    rounds: int
    bytes_leader: int


def aligned_by(study: Study, ids: Sequence[int]) -> AlignmentForecast:
    """Forecast what a study's alignment takes, if it has one and parties bring so many ids."""
    if study.alignment is None:
        return AlignmentForecast(0, 0)
    from siloweave.federation.alignment import expected_traffic

    return AlignmentForecast(*expected_traffic(ids))


def around(messages: Sequence[PlannedMessage]) -> int:
    """Count the bytes of frames, and of the ledger at the end.

    What is without noise is paid for once, however often it is sent.
    """
    questions = 0
    ledger_lines = 0
    for message in messages:
        questions += message.times
        payments = 1 if message.ledger == _INFINITE else message.times
        ledger_lines += message.pays * payments
    return _AROUND * questions + _ENTRY * ledger_lines


def messages_over(setup: Setup, forecast: Forecast) -> Iterator[PlannedMessage]:
    """Yield the messages of a whole run over a network, up to the one that closes it."""
    yield from messages_of(setup, forecast)
    decoding = tuple(_decoding(setup))
    yield from decoding

    # The closing comes along with the last question, where that is sure to be asked once.
    (closing,) = _described("closing", {Close: 1}, (), "")
    decodes_once = [message.times for message in decoding] == [1]
    comes_along = forecast.closes or decodes_once
    yield msgspec.structs.replace(closing, times=0 if comes_along else 1)


def sends_results(setup: Setup) -> bool:
    """Say whether parties are sent the synthetic table: not where each keeps its own columns."""
    return setup.shared


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


def messages_of(setup: Setup, forecast: Forecast) -> Iterator[PlannedMessage]:
    """Yield the messages of all stages, and of the method, as a run plans them."""
    synth = setup.synth
    views = synth.info.visibility
    is_private = setup.budget.private
    remaining = 1.0
    for stage in synth.method.before:
        planned = stage.plan(setup)
        if planned is None:
            # A schema with nothing open: what was to be spent on it stays with the method.
            if stage.name == "schema":
                setup = replace(setup, learn=0.0)
            continue
        if stage.name == "schema":
            setup = replace(setup, schema=_widest(setup.schema))

        # Each stage spends its share of what the stages before it left.
        share = stage.share(setup)
        stage_views = stage.views(views, setup)
        payment = _payment(remaining * share, private=is_private)
        yield from _described(
            stage.name, stage.questions(planned), stage_views, payment
        )
        remaining *= 1 - share

    tags_by_rows = [_tag(request) for request in forecast.by_rows]
    payment = _payment(remaining, private=is_private)
    for message in _described("method", forecast.questions, views, payment):
        yield msgspec.structs.replace(message, guessed=message.tag in tags_by_rows)


def _decoding(setup: Setup) -> Iterator[PlannedMessage]:
    """Yield what draws rows where their decoders are at the parties; it closes the run."""
    if setup.synth.method.decode is None:
        return
    if setup.shared:
        questions: QuestionCounts = {DecodeColumns: most_decoded(setup)}
        field = PlannedField("columns", _MADE)
    else:
        questions = {KeepColumns: 1}
        field = PlannedField("rows", _PUBLIC)
    (message,) = _described("method", questions, (), "")
    yield msgspec.structs.replace(message, fields=(field,), ledger="nothing")


def _widest(schema: Schema) -> Schema:
    """Return a schema with open bounds so far apart that columns are cut into bins.

    A plan is a bound, and no bounds that are learned make more messages than these.
    """
    unbounded = [name for name, facts in open_facts(schema).items() if "low" in facts]
    columns = []
    for column in schema.columns:
        if column.name in unbounded:
            column = Column(
                column.name,
                "integer",
                low=0,
                high=_FAR,
                missing=column.missing,
                fallback=0,
            )
        columns.append(column)
    return Schema(tuple(columns))


def _payment(share: float, *, private: bool) -> str:
    """Describe what a stage enters in the ledger; empty where the budget is infinite."""
    if not private:
        return ""
    return (
        f"its noise; the whole stage spends at most {share:.3g} of the study's budget"
    )


def _described(
    stage: str, questions: QuestionCounts, views: Views, payment: str
) -> Iterator[PlannedMessage]:
    """Describe the questions of a stage that are asked at all.

    Args:
        stage: Its name.
        questions: Its questions, and how often each is asked.
        views: The lines of visibility that cover its replies.
        payment: What a reply that is paid for enters in the ledger.
    """
    for request, times in questions.items():
        if times:
            fields = tuple(_fields(request, views))
            yield PlannedMessage(
                stage=stage,
                tag=_tag(request),
                asks=_sentence(request),
                replies=_sentence(reply_type(request)),
                fields=fields,
                times=times,
                ledger=_ledger_words(fields, payment),
            )


def _ledger_words(fields: Sequence[PlannedField], payment: str) -> str:
    """Say what a reply with these fields enters in the ledger."""
    protections = [field.protected_by for field in fields]
    # A single field without noise makes the whole reply one.
    if any(words.startswith("nothing") or words == _INFINITE for words in protections):
        return _INFINITE
    if all(words in (_PUBLIC, _RELAYED) for words in protections):
        return "nothing"
    return payment


def _tag(request: type[Request[Any]]) -> str:
    """Return the name of a question on the wire."""
    return str(request.__struct_config__.tag)


def _sentence(kind: type) -> str:
    """Return the first sentence of a message's docstring, which says what it asks or holds."""
    text = " ".join((kind.__doc__ or "").split())
    return text.split(". ")[0].rstrip(".") + "."


def _fields(request: type[Request[Any]], views: Views) -> Iterator[PlannedField]:
    """Yield what a reply may have at these settings: a field that no line covers is never sent."""
    reply = reply_type(request)
    protections = {}
    for view in views:
        for name in view.carries:
            protections[name] = view.protected_by
    # An alignment's replies are covered by no method's lines, and are without noise.
    uncovered = _INFINITE if request.__module__.endswith("alignment_party") else None
    for name, hint in get_type_hints(reply).items():
        # A field is one sealed value, or a tuple of them.
        value_type = get_args(hint)[0] if get_origin(hint) is tuple else hint
        value_class = get_origin(value_type) or value_type
        seal = next(seal for seal in _SEALS if value_class is seal)
        if seal is Public:
            yield PlannedField(name, _PUBLIC)
            continue
        if seal is Relayed:
            yield PlannedField(name, _RELAYED)
            continue
        protection = protections.get(f"{reply.__name__}.{name}", uncovered)
        if protection is not None:
            yield PlannedField(name, protection)


def _aligning(study: Study, ids: Sequence[int]) -> Iterator[PlannedMessage]:
    """Yield the messages of the alignment, whoever leads it; its ledger has an infinite cost."""
    if study.alignment is None:
        return
    from siloweave.federation.alignment import expected_questions

    # Nobody brings more ids than the study says: parties refuse it. Where it says nothing, what
    # would be asked otherwise with very many ids is a guess.
    bound = study.alignment.most
    most_ids: Sequence[int] = [_FAR**2] * len(ids)
    if bound is not None:
        ids = [bound] * len(ids)
        most_ids = ids

    # Which party leads follows from their ids: each may be asked as the leader, or as another.
    leader, follower = expected_questions(ids)
    most_leader, most_follower = expected_questions(most_ids)
    questions: dict[type[Request[Any]], int] = {**follower, **leader, Close: 1}
    most_questions = {**most_follower, **most_leader}
    guessed_tags = set()
    for request, times in most_questions.items():
        if times != questions[request]:
            guessed_tags.add(_tag(request))

    for message in _described("alignment", questions, (), ""):
        payment = _INFINITE if message.pays else "nothing"
        is_guessed = message.tag in guessed_tags
        yield msgspec.structs.replace(message, ledger=payment, guessed=is_guessed)


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
            f"{_how_to_approve(folder)}"
        )
    file = folder / APPROVAL
    # Stored whole, so that `require_approved` can name what differs later.
    approved = agreed(plan.approved)
    signature = identity.sign(_PURPOSE, approved)
    approval = Approval(msgspec.Raw(approved), signature)
    write_whole(file, msgspec.json.format(msgspec.json.encode(approval)) + b"\n")
    return file


# How names of what differs begin, if someone changed the study and not the program.
_OF_THE_STUDY = ("facts.", "columns.", "reading.", "party ")


def _how_to_approve(folder: Path) -> str:
    """Return a sentence that says how an owner sees the plan of a folder's study."""
    call = f"siloweave party plan {quote(str(folder))}"
    return f"Read what `{call}` prints, and approve it."


def require_approved(folder: Path, plan: Plan, identity: Identity) -> None:
    """Refuse a plan that the owner has not approved, and say what differs from one that was.

    Raises:
        StudyError: There is no approval of this plan by this party's key, or its file is damaged.
    """
    file = folder / APPROVAL
    name = plan.facts["study"]["name"]
    advice = f"Nothing was released. {_how_to_approve(folder)}"
    if not file.is_file():
        raise StudyError(
            f"party {plan.party!r}: its owner has not approved study {name!r}. {advice}"
        )
    approved = agreed(plan.approved)
    try:
        approval = msgspec.json.decode(file.read_bytes(), type=Approval)
        changes = differences(approval.plan, approved)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StudyError(f"{file}: holds no approval ({error}). {advice}") from error
    if changes:
        cause = ""
        if not any(change.startswith(_OF_THE_STUDY) for change in changes):
            cause = (
                "The study is the same: it was approved with another version of siloweave, which "
                "words plans differently or has other defaults. "
            )
        raise StudyError(
            f"party {plan.party!r}: study {name!r} is not as its owner approved it (as approved, "
            f"and there now): {'; '.join(changes[:5])}. {cause}{advice}"
        )
    # The same plan is not enough: whoever sent the folder could have put the file into it.
    if not verify(identity.public, _PURPOSE, approved, approval.signature):
        raise StudyError(
            f"{file}: was not signed by the key of party {plan.party!r}, so somebody else wrote "
            f"it. {advice}"
        )
