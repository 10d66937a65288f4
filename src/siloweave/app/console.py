"""What the command line prints: tables for people, JSON for programs."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from math import isfinite, isinf
from pathlib import Path
from sys import float_info
from typing import Any

import msgspec
from rich.markup import escape

from siloweave.app.check import RowsRead, StudyForecast
from siloweave.app.init import Proposal
from siloweave.app.ledgers import Reading, RunSummary, Trail, json_of
from siloweave.app.network import AccountView
from siloweave.app.parties import Difference
from siloweave.app.plan import ENGINE_S, SOCKET_S, Plan, PlannedMessage
from siloweave.app.status import (
    CoordinatorStatus,
    PartyStatus,
    party_table,
    state_words,
    time_left_words,
)
from siloweave.app.study import AboutMethod
from siloweave.app.terminal import Terminal, quoted
from siloweave.core.method import ErrorForecast
from siloweave.errors import count_of, first_few
from siloweave.federation.course import FINISHED
from siloweave.privacy.ledger import fingerprint
from siloweave.progress import duration, expected_duration
from siloweave.report import words
from siloweave.report.text_table import text_table
from siloweave.tables.column import Column
from siloweave.tables.display import bound_words, listed

# What a run's time has beside that of the fit, which its report shows.
_AROUND_A_FIT = ("reading rows", "sampling", "report")
_COLUMNS = 10  # whose errors are shown one by one: the noisiest
_PARTIES = 12  # shown one by one; of more, the most expensive
_FIRST = "[yellow]look at this first:[/]"
# What a method's label promises, in words.
_PROMISES = {
    "dp": "differential privacy",
    "partial": "private in part",
    "refuted": "its claim was refuted",
    "none": "no guarantee",
}


def print_error(message: str, label: str = "[bold red]error:[/]") -> None:
    """Print on standard error what went wrong."""
    # The label is markup. A message may quote what others wrote, and is printed as it stands.
    Terminal(stderr=True).say(f"{label} {escape(message)}")


def print_warning(message: str) -> None:
    """Print on standard error what to look at."""
    print_error(message, _FIRST)


def print_note(message: str) -> None:
    """Print on standard error what an owner may want to know."""
    Terminal(stderr=True).say(escape(message))


def print_json(value: Any) -> None:
    """Print a result for a program."""
    Terminal().print(json_of(value), markup=False, soft_wrap=True)


def print_result(
    data: Mapping[str, Any],
    text: str,
    *,
    json: bool,
    call: tuple[str, str] | None = None,
) -> None:
    """Print one small result, and a command to be copied behind its introduction."""
    if json:
        print_json(data)
        return
    console = Terminal()
    console.say(escape(text))
    if call is not None:
        console.command(*call)


def print_summary(
    summary: RunSummary, folder: Path, *, json: bool, before: bool
) -> None:
    """Print what a run cost and where its files are."""
    files = {}
    for label, name in summary.files.items():
        files[label] = str(folder / name)
    if json:
        facts = {"files": files, "finished_before": before}
        print_json({**msgspec.structs.asdict(summary), **facts})
        return

    console = Terminal()
    if before:
        finished = bound_words(summary.finished[:16])
        console.say(f"This run finished on {finished} UTC; nothing was released again.")
    # What must not be overlooked comes before what a run cost.
    if not summary.private:
        console.say("[bold red]NOT PRIVATE[/]: see the report for why.")
    study = escape(summary.study)
    method = escape(summary.method)
    rows = f"{summary.rows:,} synthetic rows"
    parties = count_of(len(summary.parties), "party", "parties")
    console.say(f"[bold]{study}[/]: {rows} from {parties} by {method}")
    if summary.sample:
        sample = escape(summary.sample)
        console.say(f"Trained from a sample: {sample}")
    for line in _promise(summary):
        console.say(line)
    for line in _other_epsilons(summary):
        console.say(line)

    _print_questions(console, summary)
    _print_parties(console, summary)
    _print_vanished(console, summary)

    console.facts("written", files.items())
    console.command("Every release:", f"siloweave ledger {quoted(folder)}")
    if "model" in summary.files:
        call, end = _more_rows(summary, folder)
        console.command("More rows, at no cost:", call, end)


def _print_questions(console: Terminal, summary: RunSummary) -> None:
    """Print how many questions a run took, and how long."""
    questions = count_of(summary.rounds, "question", "questions")
    receivers = "party" if len(summary.parties) == 1 else "parties"
    text = f"{questions} to the {receivers}"
    if summary.alignment is not None:
        rounds = summary.alignment.rounds
        text += f", {rounds:,} before to align their rows,"
    around = sum(summary.seconds.get(name, 0.0) for name in _AROUND_A_FIT)
    fitting = sum(summary.seconds.values()) - around
    console.say(
        f"Took {text} and {duration(fitting)}, as in the report, and {duration(around)} more to "
        "read rows, draw rows and write reports"
    )


def _print_vanished(console: Terminal, summary: RunSummary) -> None:
    """Print which parties vanished during a run, and how epsilon counts them."""
    if not summary.vanished:
        return
    names = ", ".join(summary.vanished)
    console.say(f"Vanished on the way: {escape(names)}")
    # A party whose ledger came before it vanished is among the parties.
    with_ledger = {party.name for party in summary.parties}
    if not with_ledger.issuperset(summary.vanished):
        console.say(
            "No ledger came from there: ε counts the study's whole budget for it."
        )


def _more_rows(summary: RunSummary, folder: Path) -> tuple[str, str]:
    """Return what draws from the model, and what stands behind it."""
    if "synthetic table" in summary.files:
        return f"siloweave sample {quoted(folder)} --out more.csv", ""
    # Where columns stay at their parties, no command joins them.
    model = repr(str(folder / summary.files["model"]))
    return f"siloweave.load({model}).sample_parts(1000)", " in Python"


def _promise(summary: RunSummary) -> Iterator[str]:
    """Say what a run promises, and of whom; in two lines, so that neither is broken."""
    is_unbounded = isinf(summary.epsilon_allowed)
    if summary.guarantee == "none" and is_unbounded:
        yield "Privacy: none was asked for and none is given (ε = ∞)"
        return
    spent = words.epsilon(summary.epsilon)
    allowed = words.epsilon(summary.epsilon_allowed)
    delta = words.small(summary.delta)
    whom = escape(words.whom(summary.unit, summary.rows_per_unit))
    yield f"Privacy: ε = {spent} of {allowed} allowed, at δ = {delta}, for each {whom}"

    promise = _PROMISES.get(summary.guarantee, f"guarantee: {summary.guarantee}")
    # The relation is worded "one added or removed": what is one, is the unit.
    change = words.relation(summary.relation).replace("one", f"one {summary.unit}", 1)
    yield f"({promise}; neighbours: {escape(change)})"


def _towards(party_epsilon: float) -> str:
    """Say what epsilon is towards another party."""
    shown = words.epsilon(party_epsilon)
    return f"Towards another party, which knows whose rows these are: ε = {shown}"


def _at_parties(unit_epsilon: float, unit: str, parties: int) -> str:
    """Say what epsilon is of a unit with rows at so many parties."""
    places = count_of(parties, "party", "parties")
    shown = words.epsilon(unit_epsilon)
    return f"For a {escape(unit)} with rows at up to {places}: ε = {shown}"


def _other_epsilons(summary: RunSummary) -> Iterator[str]:
    """Say what else ε is, beside that of one party's rows towards all who see the result."""
    if summary.epsilon_to_parties is not None:
        yield _towards(summary.epsilon_to_parties)
    # A unit may have rows at more parties than a study has.
    if summary.epsilon_at_parties is not None:
        parties = min(summary.parties_per_unit, len(summary.parties))
        yield _at_parties(summary.epsilon_at_parties, summary.unit, parties)


def _print_parties(console: Terminal, summary: RunSummary) -> None:
    """Print what every party spent and sent; of very many, those that spent most."""
    count = len(summary.parties)
    parties = list(summary.parties)
    if count > _PARTIES:
        parties.sort(key=lambda party: -party.epsilon)
        del parties[_PARTIES:]

    # An alignment has ledgers of its own, and the same parties.
    labelled = [(party.name, party) for party in parties]
    if summary.alignment is not None:
        aligned = {party.name: party for party in summary.alignment.parties}
        for party in parties:
            label = f"{party.name}, alignment"
            labelled.append((label, aligned[party.name]))

    rows = []
    for label, party in labelled:
        spent = words.epsilon(party.epsilon)
        sent = words.size(party.bytes_sent)
        received = words.size(party.bytes_received)
        rows.append((label, spent, party.releases, sent, received))
    heads = ("party", ">ε spent", ">releases", ">sent", ">received")
    console.table(text_table(heads, rows))
    if count > _PARTIES:
        console.say(f"(the {_PARTIES} that spent most of {count})")
    if summary.overhead is not None:
        console.say(words.overhead(summary.overhead))


def print_forecast(
    forecast: StudyForecast, place: Path, *, json: bool, network: bool = False
) -> None:
    """Print what a run would take; and over a network, if asked.

    Args:
        forecast: What is printed.
        place: The study's file or folder, as it was given.
        json: Whether to print it for a program.
        network: Whether to print what it would take over a network.
    """
    if json:
        print_json(forecast)
        return
    console = Terminal()
    _print_cost(console, forecast)
    title = "of the whole run, all parties in one process"
    console.facts(title, _whole_run(forecast))
    if forecast.error is not None:
        _print_error_forecast(console, forecast, forecast.error)
    if network:
        _print_network_forecast(console, forecast)
    for note in forecast.notes:
        console.say(escape(f"({note})"), hanging=1)
    console.say(_guarantee(forecast))
    if forecast.finished:
        console.say("This run has finished; running it again releases nothing.")
    elif forecast.resumes:
        releases = count_of(forecast.resumes, "release is", "releases are")
        console.say(
            f"This run began before: {releases} paid for, and it continues from there."
        )
    # Last, so that a terminal shows them without scrolling.
    for warning in forecast.warnings:
        console.say(f"{_FIRST} {escape(warning)}")
    if forecast.rows is None:
        console.say("Nothing was written.")
        console.command(_before_reading(forecast), _rows_command(place))
        return
    _print_rows(console, forecast.rows)


def _in_short(forecast: StudyForecast) -> Iterator[str]:
    """Yield what a newcomer looks for: ε, time, and how far off the table is expected to be."""
    if isinf(forecast.epsilon_per_party):
        yield "ε is not bounded"
    else:
        yield f"ε at most {words.epsilon(forecast.epsilon_per_party)}"
    if forecast.seconds is not None:
        yield expected_duration(forecast.seconds)
    error = forecast.error
    if error is not None:
        # What noise does, and what drawing rows adds to it.
        share = words.points(error.share + error.share_drawn)
        yield f"a share is off by about ± {share} percentage points"


def _guarantee(forecast: StudyForecast) -> str:
    """Say what the method promises, and whom its parties trust."""
    promise = _PROMISES.get(forecast.guarantee, forecast.guarantee)
    # A single party sees all rows, and they are its own.
    if len(forecast.parties) == 1:
        return f"guarantee: {promise}"
    trust = words.TRUST.get(forecast.trust, forecast.trust)
    return f"guarantee: {promise}; trust: {trust}"


def _before_reading(forecast: StudyForecast) -> str:
    """Say that rows were not read, and when it is time for that."""
    if forecast.finished or isinf(forecast.epsilon_per_party):
        return "Rows were not read. To see which do not fit:"
    return "Rows were not read. Before you spend ε:"


def _rows_command(place: Path) -> str:
    """Return what shows which rows of a study do not fit."""
    if place == Path("study.toml"):
        return "siloweave check --rows"
    return f"siloweave check {quoted(place)} --rows"


def _print_cost(console: Terminal, forecast: StudyForecast) -> None:
    """Print what a run would take of each party: epsilon and traffic."""
    study = escape(forecast.study)
    method = escape(forecast.method)
    party_count = len(forecast.parties)
    parties = count_of(party_count, "party", "parties")
    console.say(f"[bold]{study}[/]: {method}, {parties}")
    console.say(" · ".join(_in_short(forecast)))

    epsilon = words.epsilon(forecast.epsilon_per_party)
    delta = words.small(forecast.delta)
    whom = escape(words.whom(forecast.unit, forecast.rows_per_unit))
    bound = (f"ε of a {whom} at δ = {delta}", f"at most {epsilon}")
    if isinf(forecast.epsilon_per_party):
        bound = ("ε", "∞: nothing bounds it")
    size = words.size(forecast.bytes_per_party)
    traffic = ("bytes sent and received", f"about {size}")
    whose = "of each party" if party_count > 1 else "of the party"
    console.facts(whose, [bound, traffic])


def _print_network_forecast(console: Terminal, forecast: StudyForecast) -> None:
    """Print what a run would take over a network; its computing is that of this machine."""
    messages = f"at most {forecast.messages_per_party:,}"
    engine_time = expected_duration(forecast.seconds_on_engine)
    socket_time = expected_duration(forecast.seconds_on_sockets)
    rows = [
        ("messages to each party", messages),
        ("an engine, at 1 s a message", engine_time),
        ("sockets, at 50 ms a message", socket_time),
    ]
    console.facts("of the run over a network", rows)
    if forecast.one_room:
        console.say(escape(_ONE_ROOM))


def _print_error_forecast(
    console: Terminal, forecast: StudyForecast, error: ErrorForecast
) -> None:
    """Print what epsilon buys: how far shares, pairs and means are expected to be from the rows."""
    title = f"expected error, for {error.rows:,} rows"
    if forecast.rows_guessed:
        title = f"expected error, for about {error.rows:,} rows"
    share = f"± {words.points(error.share)}"
    share_drawn = f"± {words.points(error.share_drawn)}"
    pair = f"± {words.points(error.pair)}"
    pair_drawn = f"± {words.points(error.pair_drawn)}"
    wrong = f"{error.wrong:.1%}"
    measured = f"about {error.pairs_measured:,}"
    lines = [
        ("of a share in one column", share, share_drawn),
        ("of a share in a table of two columns", pair, pair_drawn),
        ("rows in a wrong category or bin of a column", wrong, ""),
        ("tables of two columns that are measured", measured, ""),
    ]
    console.table(text_table((title, ">noise", ">drawing rows"), lines))
    console.say("(± in percentage points: 0.5 at a share of 12% is 11.5% to 12.5%)")
    if forecast.rows_guessed:
        files = "the files' sizes" if len(forecast.parties) > 1 else "the file's size"
        console.say(f"(the number of rows is guessed from {files})")
    _print_noisiest(console, error)


def _print_noisiest(console: Terminal, error: ErrorForecast) -> None:
    """Print the expected errors of the columns that have the largest ones."""
    columns = list(error.columns)
    columns.sort(key=lambda column: -column.share * column.codes)
    noisiest = columns[:_COLUMNS]
    rows = []
    for column in noisiest:
        # A row that is missing in one code is too many in another, so that two errors are one row.
        misplaced_share = min(1.0, column.share * column.codes / 2)
        codes = f"{column.codes:,}"
        share = f"± {words.points(column.share)}"
        misplaced = f"{misplaced_share:.1%}"
        mean = "" if column.mean is None else f"± {words.rounded(column.mean)}"
        rows.append((column.name, codes, share, misplaced, mean))
    title = "column"
    if len(noisiest) < len(columns):
        title = f"the {_COLUMNS} noisiest columns"
    heads = (title, ">codes", ">a share", ">rows misplaced", ">the mean")
    console.table(text_table(heads, rows))


def print_party_rows(rows: RowsRead, *, json: bool) -> None:
    """Print what the rows of one party show, for their owner."""
    if json:
        print_json(rows)
        return
    _print_rows(Terminal(), rows)


def _print_rows(console: Terminal, rows: RowsRead) -> None:
    """Print what the parties' rows show, beside each other."""
    for line in (*rows.overlaps, *rows.misfits):
        console.say(f"{_FIRST} {escape(line)}")
    for difference in rows.differences:
        _print_difference(console, difference)

    counts = [f"{name} {count:,}" for name, count in rows.count.items()]
    parties = escape(", ".join(counts))
    is_odd = rows.overlaps or rows.misfits or rows.differences
    verdict = "" if is_odd else ", and nothing is odd"
    console.say(f"Rows were read here{verdict}: {parties}. Nothing was written.")
    if is_odd:
        console.say(
            "These lines show values of rows: for those who may see every file alone."
        )


def _print_difference(console: Terminal, difference: Difference) -> None:
    """Print a difference between parties; those that hold the same share a line."""
    parties_by_text: dict[str, list[str]] = {}
    for party, text in difference.held.items():
        parties_by_text.setdefault(text, []).append(party)

    console.say(f"[bold]{escape(difference.column)}[/]: {escape(difference.what)}")
    for text, parties in parties_by_text.items():
        names = listed(parties, 3)
        console.say(escape(f"{names}: {text}"), indent=4, hanging=2)
    console.say(escape(f"→ {difference.advice}"), indent=4, hanging=2)


def _whole_run(forecast: StudyForecast) -> Iterator[tuple[str, str]]:
    """Yield what a whole run takes, each with its name."""
    time = "not known"
    if forecast.seconds is not None:
        time = expected_duration(forecast.seconds)
    # Forecasts are in MB, and sizes are written from bytes.
    memory = words.size(forecast.memory_mb * 1e6)
    yield "memory", f"about {memory}"
    yield "time", time
    yield "questions, one after the other", f"at most {forecast.rounds:,}"
    alignment = forecast.alignment
    if alignment is not None:
        size = words.size(alignment.bytes_leader)
        yield "rounds of the alignment before", f"about {alignment.rounds}"
        yield "bytes of it at the party that leads", f"about {size}"
    domain_cells = forecast.domain_cells
    if forecast.largest_query is not None and domain_cells is not None:
        queries = f"{forecast.workload_queries:,}"
        cells = f"{forecast.workload_cells:,}"
        yield "queries in the workload", queries
        yield "cells of these, and of queries inside", cells
        # More cells than a float holds were cut to the largest one, see `check.forecast`.
        cells = words.rounded(domain_cells)
        if domain_cells == float_info.max:
            cells = f"more than {cells}"
        yield "cells of the whole table", cells
        yield "largest query", ", ".join(forecast.largest_query)


_ONE_ROOM = (
    "There are more than a thousand questions one after the other: this run is for parties in one "
    "machine room, over sockets."
)


def print_plan(
    plan: Plan,
    folder: Path,
    data: str | None,
    refusal: str,
    key_notes: Mapping[str, str],
    header: tuple[str, bool] | None = None,
    *,
    json: bool,
) -> None:
    """Print all messages of a study to and from a party, what its policy says, what approves it.

    Args:
        plan: What the study will send.
        folder: The study's, at the party.
        data: Names the party's rows.
        refusal: Why the party does not take part; empty if it may.
        key_notes: Says of each key whether earlier studies had it.
        header: Whether the names of the rows' columns fit, in a sentence, and whether they do;
            None where no rows are named.
        json: Whether to print it for a program.
    """
    if json:
        answer = dict(plan.shown)
        answer["digest"] = plan.digest
        answer["refusal"] = refusal
        answer["known_keys"] = key_notes
        if header is not None:
            answer["header"], answer["fits"] = header
        print_json(answer)
        return

    console = Terminal()
    facts = plan.facts
    study = escape(facts["study"]["name"])
    party = escape(plan.party)
    method = escape(facts["method"]["name"])
    version = f"siloweave {facts['siloweave']}"
    console.say(f"[bold]{study}[/] at party {party}: {method}, {version}")
    heads = ("question", "stage", ">at most", "reply", "protected by", "in the ledger")
    console.table(text_table(heads, map(_planned, plan.messages)))
    console.facts("in all", _totals(plan))
    views = [(view.who, view.sees, view.protected_by) for view in plan.sees]
    console.table(text_table(("who", "can see", "protected by"), views))
    console.facts("what you say yes to", _settled(plan))
    console.say(escape(f"guarantee {plan.guarantee}"))
    console.say(escape(_columns_used(plan)))
    console.say(escape(_reading(plan, data)))
    _print_keys(console, facts, key_notes)
    if header is not None:
        sentence, fits = header
        label = "" if fits else f"{_FIRST} "
        console.say(f"{label}{escape(sentence)}")

    # A study that the policy refuses has nothing to approve.
    if refusal:
        console.say(f"[bold red]refused:[/] {escape(refusal)}")
        return
    # The last line before a yes: a folder that came to the wrong party is noticed here or never.
    console.say(
        f"You would take part as '{party}'. If you are not {party}, do not approve."
    )
    call = f"siloweave party approve {quoted(folder)} {plan.digest}"
    # A file in the study's folder may be somebody else's, so that its name is confirmed, too.
    if data is not None and _is_inside(Path(data), folder):
        call += f" --data {quoted(Path(data))}"
    console.command("The policy here allows it. To approve exactly this:", call)


def _is_inside(file: Path, folder: Path) -> bool:
    """Return whether a file lies in a folder or below it, wherever links lead."""
    return file.resolve().is_relative_to(folder.resolve())


def _columns_used(plan: Plan) -> str:
    """Say what becomes of each of a party's columns that a study uses."""
    alignment = plan.facts["alignment"] or {}
    compared = [name for name in plan.columns if name in alignment.get("on", ())]
    ids = set()
    for column in plan.facts["schema"]["columns"]:
        if column["kind"] == "id":
            ids.add(column["name"])
    read = [name for name in plan.columns if name in ids and name not in compared]
    others = (*compared, *read)
    counted = [name for name in plan.columns if name not in others]

    clauses = [f"counted: {', '.join(counted)}"]
    if compared:
        names = ", ".join(compared)
        clauses.append(f"compared, to find the rows that all parties have: {names}")
    if read:
        clauses.append(f"read, and never counted or sent: {', '.join(read)}")
    return f"columns of your rows that are {'; '.join(clauses)}"


def _reading(plan: Plan, data: str | None) -> str:
    """Say how a party's text file is read, and where its owner corrects that."""
    file = "your text file" if data is None else Path(data).name
    clauses = [f"{name} = {_value(value)}" for name, value in plan.reading.items()]
    if not clauses:
        return (
            f"separator, encoding and header of {file} are detected, as the study declares "
            "none"
        )
    clauses.append(
        "as study.toml in this folder says: correct it there if your file is not so"
    )
    return f"{file} is read with {', '.join(clauses)}"


def _totals(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what a plan adds up to, each with its name."""
    bound = f"at most {plan.epsilon:g}"
    if isinf(plan.epsilon):
        bound = "∞: nothing bounds it"
    whom = _whom_in(plan.facts)
    delta = words.small(plan.delta)
    results = " and the results" if plan.brings_results else ""
    size = words.size(plan.size)
    engine_time = expected_duration(plan.lasts(ENGINE_S))
    socket_time = expected_duration(plan.lasts(SOCKET_S))

    yield "messages to this party", f"at most {plan.count:,}"
    yield f"ε of a {whom} at δ = {delta}", bound
    # The first of what is stated is that of a row or a unit, which the line above has.
    for label in list(plan.stated)[1:]:
        epsilon = words.epsilon(plan.stated[label])
        yield f"ε {label}", f"at most {epsilon}"
    yield "bytes sent and received", f"about {size}{results}"
    yield "time over an engine, at 1 s a message", engine_time
    yield "time over sockets, at 50 ms", socket_time


def _print_keys(
    console: Terminal, facts: Mapping[str, Any], key_notes: Mapping[str, str]
) -> None:
    """Print the keys of a study's ends, and which of them the coordinator made."""
    for name, key in facts.get("keys", {}).items():
        note = f" ({key_notes[name]})" if name in key_notes else ""
        shown = fingerprint(b64decode(key))
        console.say(escape(f"key of {name}: {shown}{note}"))
    # Whoever makes a key can use it, so that a party's masks hide nothing from the coordinator.
    owners = facts.get("keys_made_here")
    if owners:
        names = escape(", ".join(owners))
        console.say(f"[bold red]the coordinator made the keys of {names}:[/] ")
        console.say(
            "it can sign as they do, read what is sealed to them, and take off the masks that hide "
            "your sums behind theirs"
        )


def _settled(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield all of a study that an approval holds for, but for keys and messages, by name."""
    facts = plan.facts
    yield "trust", plan.trust
    # A question that only one party would answer shows that party's sum.
    cohort = "takes no sum over parties"
    if plan.smallest_cohort is not None:
        cohort = str(plan.smallest_cohort)
    yield "smallest_cohort: parties of a sum, at least", cohort
    for name, value in (*plan.budget.items(), *plan.settings.items()):
        yield name, _value(value)
    for name in ("parties", "alignment", "learn", "seed"):
        yield name, _value(facts[name])
    for name, value in facts["study"].items():
        yield f"study.{name}", _value(value)
    # A schema is too long to be read here, and its digest shows whether two parties have the same.
    schema = facts["schema"]
    columns = count_of(len(schema["columns"]), "column", "columns")
    content = msgspec.json.encode(schema, order="sorted")
    digest = blake2b(content, digest_size=8).hexdigest()
    yield "schema", f"{columns}, {digest}"


def _value(value: Any) -> str:
    """Write a value as JSON, with blanks at which it can be wrapped."""
    if value is None:
        return "not set"
    compact = msgspec.json.encode(value)
    return msgspec.json.format(compact, indent=0).decode()


def print_account(account: AccountView, *, json: bool) -> None:
    """Print what a party's studies may cost in all, line by line, and what its policy leaves."""
    if json:
        print_json(account)
        return
    console = Terminal()
    folder = escape(account.folder)
    console.say(f"account of the party in {folder}, key {account.fingerprint}")
    notes = {
        "study": "",
        "more": ", which asked for more",
        "stated": "stated by the owner",
    }
    lines = []
    for entry in account.entries:
        day = entry.time[:10]
        study = f"{entry.study}{notes[entry.kind]}"
        epsilon = words.epsilon(entry.cost.epsilon)
        lines.append((day, study, epsilon, _delta(entry.delta)))
    total_epsilon = words.epsilon(account.epsilon)
    lines.append(("", "in all", total_epsilon, _delta(account.delta)))
    console.table(text_table(("date", "study", ">ε at most", ">δ"), lines))

    if account.epsilon_left is not None and account.delta_left is not None:
        # Down: what is left must not seem to be more.
        epsilon_left = words.rounded_down(account.epsilon_left)
        delta_left = words.rounded_down(account.delta_left)
        remainder = f"ε = {epsilon_left} of a row at δ = {delta_left}"
        if not account.epsilon_left:
            remainder = "nothing"
        until = ", until its owner has said what was spent" if account.trouble else ""
        console.say(f"policy.toml leaves {remainder} for other studies{until}")
    if not account.trouble:
        return
    print_warning(account.trouble)
    # A proposal can only be of what this machine has seen.
    if account.proposal is not None:
        cost = account.proposal
        # With all digits: fewer may be less than was spent.
        epsilon, delta = (str(value).removesuffix(".0") for value in cost)
        options = f"--spent-since {epsilon} --delta {delta}"
        console.command("By what is known here, this was spent besides:", options)
        console.say("State more if rows were used elsewhere.")


def _delta(delta: float) -> str:
    """Write a delta, which may be 0."""
    return words.small(delta) if delta else "0"


def _whom_in(facts: Mapping[str, Any]) -> str:
    """Say what a study protects, by its public facts."""
    budget = facts["budget"] or {}
    unit = budget.get("unit", "row")
    whom = words.whom(unit, budget.get("rows_per_unit"))
    parties = budget.get("parties_per_unit", 1)
    if parties > 1:
        whom += f", which may have rows at {parties} parties,"
    return escape(whom)


def _planned(message: PlannedMessage) -> tuple[str, ...]:
    """Return a line of a plan."""
    # Fields of a reply are often protected alike, which is said once.
    protections = dict.fromkeys(field.protected_by for field in message.fields)
    question = f"{message.asks} ({message.tag})"
    times = f"{message.times:,}" if message.times else "with the last"
    if message.guessed:
        times = f"about {times}"
    return (
        question,
        message.stage,
        times,
        message.replies,
        "; ".join(protections),
        message.ledger,
    )


def print_status(status: CoordinatorStatus | PartyStatus) -> None:
    """Print how far a study is, at one of its ends."""
    if isinstance(status, PartyStatus):
        _print_at_party(status)
    else:
        _print_at_coordinator(status)


def _print_at_coordinator(status: CoordinatorStatus) -> None:
    """Print how far a study is at the coordinator, and what each party did."""
    console = Terminal()
    study = escape(status.study)
    state = escape(state_words(status))
    console.say(f"[bold]{study}[/] at the coordinator: {state}")
    if status.question:
        step = f"{status.question}, step {status.step} of stage {status.stage}"
        progress = f"question {status.questions} of at most {status.at_most}"
        console.say(escape(f"{step}; {progress}"))
    elapsed = duration(status.seconds)
    elapsed_words = f"{elapsed} so far"
    if status.state == FINISHED:
        elapsed_words = f"{elapsed} in all"
    console.say(_clauses(elapsed_words, time_left_words(status)))
    epsilon = words.epsilon(status.epsilon)
    delta = words.small(status.delta)
    allowed = words.epsilon(status.allowed)
    console.say(f"a row costs at most ε = {epsilon} of {allowed} at δ = {delta}")

    console.table(party_table(status))


def _print_at_party(status: PartyStatus) -> None:
    """Print how far a study is at a party, and what the party spent."""
    console = Terminal()
    study = escape(status.study)
    party = escape(status.party)
    state = escape(state_words(status))
    console.say(f"[bold]{study}[/] at party {party}: {state}")

    answers = count_of(status.answered - status.repeated, "question", "questions")
    if status.at_most is not None and not status.repeated:
        answers += f" of at most {status.at_most:,}"
    answers += " answered"
    if status.repeated:
        answers += f", {status.repeated:,} of them asked again"
    if status.quiet is not None:
        answers += f", the last {duration(status.quiet)} ago"
    console.say(answers)

    spent = words.epsilon(status.epsilon)
    allowed = words.epsilon(status.allowed)
    delta = words.small(status.delta)
    releases = count_of(status.releases, "release", "releases")
    cost = f"{spent} of {allowed} at δ = {delta}"
    console.say(f"ε of a row by the ledger: {cost}, {releases}")
    if status.run:
        payment = f"step {status.step} of {status.run}"
        console.say(f"last paid: {escape(payment)}")
    _print_work(console, status)
    if status.unexpected:
        paths = escape(first_few(status.unexpected))
        console.say(f"[bold red]unexpected in its folder:[/] {paths}")
        console.say(
            "the party does not start beside that; its rows are named by --data"
        )


def _print_work(console: Terminal, status: PartyStatus) -> None:
    """Print what a party sent, computed and stored, and what is left to do."""
    received = words.size(status.received)
    sent = words.size(status.sent)
    console.say(f"{received} received and {sent} sent")
    # How long computing takes may depend on rows, so that only the party's owner sees it.
    computing = duration(status.computing)
    sealing = duration(status.sealing)
    console.say(
        f"{computing} of its own computing and {sealing} of sealing, opening and signing; "
        "no other end learns these"
    )
    stored = words.size(status.stored)
    console.say(_clauses(f"{stored} of answers are stored", time_left_words(status)))


def _clauses(*clauses: str) -> str:
    """Join the clauses of a line that are not empty."""
    return "; ".join(clause for clause in clauses if clause)


def print_proposal(proposal: Proposal, paths: Sequence[Path], *, json: bool) -> None:
    """Print what `init` wrote, and which facts must be reviewed."""
    study, schema = map(str, paths)
    columns = proposal.schema.columns
    if json:
        reasons = {column.name: column.why for column in columns}
        answer = {
            "study": study,
            "schema": schema,
            "from_data": dict(proposal.review),
            "reasons": reasons,
            "constraints": proposal.constraints,
            "files": proposal.files,
            "warnings": proposal.cautions,
        }
        print_json(answer)
        return

    console = Terminal()
    for line in proposal.files:
        console.say(escape(line))
    _print_proposed(console, proposal)
    for line in proposal.constraints:
        console.say(f"constraint: {escape(line)}")
    for line in proposal.cautions:
        print_warning(line)
    console.say(f"Wrote {escape(study)} and {escape(schema)}.")
    console.say(
        "[yellow]Review the schema:[/] every fact above came from rows and nobody paid for it. "
        "Correct each to what was known beforehand, on a page that this machine alone serves."
    )
    console.command("Review:", f"siloweave review {quoted(paths[0])}")
    console.command("Then:", f"siloweave check {quoted(paths[0])}")


def _print_proposed(console: Terminal, proposal: Proposal) -> None:
    """Print every column's proposed kind, why, and what was taken from rows.

    Advice on missing values that several columns share stands below them, once.
    """
    facts_from_rows = dict(proposal.review)
    columns_by_advice = _shared_advice(proposal.schema.columns)
    console.say("[bold]columns, their kinds, and why[/]")
    for column in proposal.schema.columns:
        clauses = column.why.split("; ")
        own_clauses = [clause for clause in clauses if clause not in columns_by_advice]
        why = "; ".join(own_clauses)
        reason = f": {why}" if why else ""
        name = escape(column.name)
        text = escape(f", {column.kind}{reason}")
        console.say(f"[bold]{name}[/]{text}", indent=2, hanging=2)
        facts = facts_from_rows.get(column.name, "")
        if facts:
            console.say(f"[dim]from rows: {escape(facts)}[/]", indent=4, hanging=2)
    for advice, names in columns_by_advice.items():
        console.say(escape(f"{', '.join(names)}: {advice}"), hanging=2)


def _shared_advice(columns: Sequence[Column]) -> dict[str, list[str]]:
    """Return the advice on missing values that several columns have, and these columns' names."""
    columns_by_advice: dict[str, list[str]] = {}
    for column in columns:
        for clause in column.why.split("; "):
            if "missing_values" in clause:
                columns_by_advice.setdefault(clause, []).append(column.name)
    return {
        advice: names for advice, names in columns_by_advice.items() if len(names) > 1
    }


def print_ledgers(trail: Trail, *, json: bool, entries: bool) -> None:
    """Print verified ledgers; with their entries if asked, or if there is only one."""
    if json:
        print_json(trail)
        return
    console = Terminal()
    rows = []
    for ledger in trail.ledgers:
        chain = f"whole ({ledger.note})" if ledger.note else "whole"
        spent = words.epsilon(ledger.epsilon)
        entry_count = len(ledger.entries)
        rows.append((_owner(ledger), entry_count, spent, chain, ledger.file))
    bound = f">ε at δ = {words.small(trail.delta)}"
    heads = ("party", ">entries", bound, "chain", "file")
    console.table(text_table(heads, rows, spare=("file",)))
    for line in _trail_epsilons(trail):
        console.say(line)
    if entries or len(trail.ledgers) == 1:
        for ledger in trail.ledgers:
            _print_entries(console, ledger)
    else:
        console.say("--party NAME shows every entry.")
    console.say(
        "Every ledger's signature was checked, and ε recomputed from the events."
    )
    _print_compared(console, trail.ledgers)
    for line in _paid(trail):
        console.say(line)


def _paid(trail: Trail) -> Iterator[str]:
    """Say what a single owner has paid, of how much if that is known."""
    of_method = [ledger for ledger in trail.ledgers if ledger.stage == "method"]
    if len(of_method) != 1:
        return
    cost = f"ε = {words.epsilon(of_method[0].epsilon)}"
    if trail.allowed is not None and isfinite(trail.allowed):
        cost += f" of {words.epsilon(trail.allowed)}"
    yield f"paid: {cost} at δ = {words.small(trail.delta)}"


def _trail_epsilons(trail: Trail) -> Iterator[str]:
    """Say what else ε is beside that of each ledger, and what none of them covers."""
    # Parties of split rows hold other people each, so that their epsilons are not added.
    if trail.whole_row is not None and trail.split == "columns":
        epsilon = words.epsilon(trail.whole_row)
        yield f"A row lies at every party: ε = {epsilon} in all."
    if trail.to_parties is not None:
        yield _towards(trail.to_parties)
    if trail.whole_row is not None and trail.whom != "row":
        yield f"Each ε is that of one {escape(trail.whom)}."
    if trail.at_parties is not None:
        # The unit alone: how many rows it has, which `whom` says too, is for each party.
        unit = escape(trail.whom.partition(" ")[0])
        parties = "as many parties as the study says"
        epsilon = words.epsilon(trail.at_parties)
        yield f"For a {unit} with rows at {parties}: ε = {epsilon}"
    if any(ledger.stage == "alignment" for ledger in trail.ledgers):
        yield "No ε covers the alignment, which found the rows that all parties have."


def _print_compared(console: Terminal, ledgers: Sequence[Reading]) -> None:
    """Print what ledgers were compared with: a file alone cannot show that it was written anew."""
    owners_by_sources: dict[tuple[str, ...], list[str]] = {}
    for ledger in ledgers:
        owners = owners_by_sources.setdefault(ledger.compared, [])
        owners.append(_owner(ledger))
    for sources, owners in owners_by_sources.items():
        # Owners are named where not all ledgers were compared with the same.
        suffix = ""
        if len(owners) < len(ledgers):
            suffix = escape(f" ({'; '.join(owners)})")
        if sources:
            names = escape(" and ".join(sources))
            console.say(f"Compared with {names}{suffix}.")
        else:
            console.say(
                f"[yellow]Compared with nothing{suffix}:[/] no key and no hash of it was kept "
                "here. Ask the owner for the public key, and compare it with the one in line 1."
            )


def _print_entries(console: Terminal, ledger: Reading) -> None:
    """Print the lines of a ledger, and by what its end and its owner are known."""
    rows = []
    for line in ledger.entries:
        mechanism = _event(line.event)
        # A release without noise has no rho.
        cost = "∞" if line.rho is None else words.rounded(line.rho)
        entry = f"{line.index}: {words.counted(line.what)}"
        rows.append((entry, line.step, line.to, cost, mechanism))
    heads = ("entry", "step", "to", ">ρ", "mechanism")
    console.table(text_table(heads, rows))
    owner = escape(_owner(ledger))
    console.say(f"last line of {owner}: {ledger.head}")
    console.say(f"signed with the key {fingerprint(ledger.key)}")


def _owner(ledger: Reading) -> str:
    """Name a ledger by its owner, and by the part of the run that it is of."""
    suffix = ", alignment" if ledger.stage == "alignment" else ""
    return ledger.party + suffix


def _event(event: Mapping[str, Any]) -> str:
    """Describe the mechanism of a release and its parameters."""
    if "reason" in event:
        return f"no noise: {event['reason']}"
    facts = []
    for name, value in event.items():
        # A count of 1 is usual, and goes without saying.
        if name == "type" or (name, value) == ("count", 1):
            continue
        shown = words.axis_number(value) if isinstance(value, float) else str(value)
        facts.append(f"{name} {shown}")
    text = f"{event['type']}: {', '.join(facts)}"
    return text.replace("_", " ")


def print_methods(methods: Mapping[str, Any], *, json: bool) -> None:
    """Print every method in a line, those for the same kind of parties together."""
    if json:
        print_json(methods)
        return
    console = Terminal()
    by_split: dict[str, list[tuple[str, str, str]]] = {}
    for name, info in methods.items():
        phrase = f"{info.title}: {info.family}"
        # Where one owner has all rows, nobody else is trusted.
        if info.split != "central":
            phrase += f", {_TRUST.get(info.trust, info.trust)}"
        by_split.setdefault(info.split, []).append((name, info.guarantee, phrase))
    for split, rows in by_split.items():
        console.say(f"[bold]{escape(_SPLITS.get(split, split))}[/]")
        for name, guarantee, phrase in rows:
            line = f"  {name:<18}{guarantee:<9}{phrase}"
            console.say(escape(line), hanging=29)
    console.say(
        "The second word is the guarantee. dp: differential privacy covers all that is released. "
        "none: nothing is promised."
    )
    console.command("All about one:", "siloweave list NAME")


def print_method(method: AboutMethod, *, json: bool) -> None:
    """Print all about one method."""
    if json:
        print_json(method)
        return
    console = Terminal()
    info = method.info
    console.say(f"[bold]{escape(info.name)}[/]: {escape(method.summary)}")
    facts = [
        ("class in Python", f"siloweave.{method.class_name}"),
        ("for", _SPLITS.get(info.split, info.split)),
        ("kind of model", info.family),
        ("trust", words.TRUST.get(info.trust, info.trust)),
        ("guarantee", info.guarantee),
        ("what it covers", info.statement),
        ("paper", info.paper),
    ]
    console.facts("what it is", facts)
    console.say("[bold]who can see what[/]")
    for view in info.visibility:
        line = f"{view.who}: {view.sees}; protected by: {view.protected_by}"
        console.say(escape(line), indent=2, hanging=2)
    console.say("[bold]settings, with their defaults[/]")
    for name, default in method.settings.items():
        line = f"{name} = {default}"
        if name in method.meanings:
            line += f": {method.meanings[name]}"
        console.say(escape(line), indent=2, hanging=2)


# What a method's parties hold, and whom they trust, in the list of all methods.
_SPLITS = {
    "central": "one owner has all rows and columns",
    "rows": "parties have different rows, with the same columns",
    "columns": "parties have different columns of the same rows",
}
_TRUST = {
    "curator": "trusts a curator",
    "secure-sum": "masked sums",
    "mpc": "computed together",
    "local": "noise at parties",
}
