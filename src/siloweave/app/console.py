"""What the command line prints: tables for people, JSON for programs."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from math import isinf
from pathlib import Path
from shlex import quote
from shutil import get_terminal_size
from sys import float_info
from typing import Any, Literal

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from siloweave.app.check import RowsRead, StudyForecast
from siloweave.app.init import Proposal
from siloweave.app.ledgers import Reading, RunSummary, Trail, json_of
from siloweave.app.network import AccountView
from siloweave.app.parties import Difference
from siloweave.app.plan import ENGINE_S, SOCKET_S, Plan, PlannedMessage
from siloweave.app.status import CoordinatorStatus, PartyStatus
from siloweave.core.method import ErrorForecast
from siloweave.errors import count_of, first_few, printable
from siloweave.privacy.ledger import fingerprint
from siloweave.progress import duration
from siloweave.report import words
from siloweave.tables.display import listed

_COLUMNS = 10  # whose errors are shown one by one: the noisiest
_GAP = 2  # blanks between a table's columns
_PARTIES = 12  # shown one by one; of more, the most expensive
_FIRST = "[yellow]look at this first:[/]"


class _Terminal(Console):
    """A console on which names that others wrote cannot move the cursor, or hide what they are."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Render a text, also one in a table's cell, with what is not printable escaped."""
        return super().render_str(printable(text), **how)


def _out() -> Console:
    """Return a console that leaves sentences whole: whoever shows them wraps and searches them."""
    # Without highlighting, which would colour numbers and paths in a sentence.
    return _Terminal(highlight=False, soft_wrap=True)


def print_error(message: str, label: str = "[bold red]error:[/]") -> None:
    """Print on standard error what went wrong."""
    # The label is markup. A message may quote what others wrote, and is printed as it stands.
    console = _Terminal(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"{label} {escape(message)}")


def print_warning(message: str) -> None:
    """Print on standard error what to look at."""
    print_error(message, _FIRST)


def _print_json(value: Any) -> None:
    """Print a result for a program."""
    _out().print(json_of(value), markup=False)


def print_result(data: Mapping[str, Any], text: str, *, json: bool) -> None:
    """Print one small result."""
    if json:
        _print_json(data)
    else:
        _out().print(escape(text))


def print_compared(result: Any, page: Path | None, *, json: bool) -> None:
    """Print scores or risks, as they print themselves, and where their page is."""
    if json:
        page_name = None if page is None else str(page)
        _print_json({**result.to_dict(), "page": page_name})
        return
    _out().print(str(result), markup=False)
    if page is not None:
        _out().print(f"The page is {escape(str(page))}")


def print_summary(
    summary: RunSummary, folder: Path, *, json: bool, before: bool
) -> None:
    """Print what a run cost and where its files are."""
    files = {}
    for label, name in summary.files.items():
        files[label] = str(folder / name)
    if json:
        facts = {"files": files, "finished_before": before}
        _print_json({**msgspec.structs.asdict(summary), **facts})
        return

    console = _out()
    if before:
        console.print(
            f"This run had finished ({summary.finished}); nothing was released again."
        )
    # What must not be overlooked comes before what a run cost.
    if not summary.private:
        console.print("[bold red]NOT PRIVATE[/]: see the report for why.")
    study = escape(summary.study)
    method = escape(summary.method)
    rows = f"{summary.rows:,} synthetic rows"
    parties = count_of(len(summary.parties), "party", "parties")
    console.print(f"[bold]{study}[/]: {rows} from {parties} by {method}")
    if summary.sample:
        sample = escape(summary.sample)
        console.print(f"Trained from a sample: {sample}")
    console.print(_promise(summary))
    for line in _other_epsilons(summary):
        console.print(line)

    _print_questions(console, summary)
    _print_parties(console, summary)
    _print_vanished(console, summary)

    places = Grid.grid(padding=(0, _GAP))
    for label, path in files.items():
        places.add_row(label, escape(path))
    console.print(places)
    call = f"siloweave ledger {_quoted(folder)}"
    console.print(f"Every release: [bold]{call}[/]")
    if "model" in summary.files:
        call = _more_rows(summary, folder)
        console.print(f"More rows, at no cost: {call}")


def _print_questions(console: Console, summary: RunSummary) -> None:
    """Print how many questions a run took, and how long."""
    questions = count_of(summary.rounds, "question", "questions")
    text = f"{questions} to the parties"
    if summary.alignment is not None:
        rounds = summary.alignment.rounds
        text += f", {rounds:,} before to align their rows,"
    seconds = sum(summary.seconds.values())
    console.print(f"Took {text} and {duration(seconds)}")


def _print_vanished(console: Console, summary: RunSummary) -> None:
    """Print which parties vanished during a run, and how epsilon counts them."""
    if not summary.vanished:
        return
    names = ", ".join(summary.vanished)
    console.print(f"Vanished on the way: {escape(names)}")
    # A party whose ledger came before it vanished is among the parties.
    with_ledger = {party.name for party in summary.parties}
    if not with_ledger.issuperset(summary.vanished):
        console.print(
            "No ledger came from there: ε counts the study's whole budget for it."
        )


def _more_rows(summary: RunSummary, folder: Path) -> str:
    """Say what draws from the model: where columns stay at their parties, no command joins them."""
    if "synthetic table" in summary.files:
        call = f"siloweave sample {_quoted(folder)} --out more.csv"
        return f"[bold]{call}[/]"
    model = repr(str(folder / summary.files["model"]))
    call = f"siloweave.load({escape(model)}).sample_parts(1000)"
    return f"[bold]{call}[/] in Python"


def _promise(summary: RunSummary) -> str:
    """Say what a run promises, and of whom."""
    is_unbounded = isinf(summary.epsilon_allowed)
    if summary.guarantee == "none" and is_unbounded:
        return "Privacy: none was asked for and none is given (ε = ∞)"
    spent = words.epsilon(summary.epsilon)
    allowed = words.epsilon(summary.epsilon_allowed)
    delta = words.small(summary.delta)
    whom = escape(words.whom(summary.unit, summary.rows_per_unit))
    relation = summary.relation.replace("_", "/")
    promise = f"{relation} neighbours, guarantee: {summary.guarantee}"
    cost = f"ε = {spent} of {allowed} at δ = {delta}"
    return f"Privacy: {cost} for each {whom} ({promise})"


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


def _print_parties(console: Console, summary: RunSummary) -> None:
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
    _print_grid(console, heads, rows)
    if count > _PARTIES:
        console.print(f"(the {_PARTIES} that spent most of {count})")
    if summary.overhead is not None:
        console.print(words.overhead(summary.overhead))


def print_forecast(
    forecast: StudyForecast, *, json: bool, network: bool = False
) -> None:
    """Print what a run would take; and over a network, if asked."""
    if json:
        _print_json(forecast)
        return
    console = _out()
    _print_cost(console, forecast)
    heads = ("of the whole run, all parties in one process", ">")
    _print_grid(console, heads, _whole_run(forecast))
    if forecast.error is not None:
        _print_error_forecast(console, forecast.error)
    if network:
        _print_network_forecast(console, forecast)
    for note in forecast.notes:
        console.print(escape(f"({note})"))
    if forecast.columns:
        _print_grid(
            console, ("column", "kind", "why it was proposed"), forecast.columns
        )

    console.print(f"guarantee: {forecast.guarantee}; trust: {forecast.trust}")
    if forecast.finished:
        console.print("This run has finished; running it again releases nothing.")
    elif forecast.resumes:
        releases = f"{forecast.resumes} releases"
        console.print(
            f"This run began before: {releases} are paid for, "
            "and it continues from there."
        )
    # Last, so that a terminal shows them without scrolling.
    for warning in forecast.warnings:
        console.print(f"{_FIRST} {escape(warning)}")
    if forecast.rows is None:
        console.print("No row was counted and nothing was written.")
        return
    _print_rows(console, forecast.rows)


def _print_cost(console: Console, forecast: StudyForecast) -> None:
    """Print what a run would take of each party: epsilon and traffic."""
    study = escape(forecast.study)
    method = escape(forecast.method)
    party_count = len(forecast.parties)
    parties = count_of(party_count, "party", "parties")
    console.print(f"[bold]{study}[/]: {method}, {parties}")

    epsilon = words.epsilon(forecast.epsilon_per_party)
    delta = words.small(forecast.delta)
    whom = escape(words.whom(forecast.unit, forecast.rows_per_unit))
    bound = (f"ε of a {whom} at δ = {delta}", f"at most {epsilon}")
    if isinf(forecast.epsilon_per_party):
        bound = ("ε", "∞: nothing bounds it")
    size = words.size(forecast.bytes_per_party)
    traffic = ("bytes sent and received", f"about {size}")
    whose = "of each party" if party_count > 1 else "of the party"
    _print_grid(console, (whose, ">"), [bound, traffic])


def _print_network_forecast(console: Console, forecast: StudyForecast) -> None:
    """Print what a run would take over a network; its computing is that of this machine."""
    messages = f"at most {forecast.messages_per_party:,}"
    engine_time = f"about {duration(forecast.seconds_on_engine)}"
    socket_time = f"about {duration(forecast.seconds_on_sockets)}"
    rows = [
        ("messages to each party", messages),
        ("an engine, at 1 s a message", engine_time),
        ("sockets, at 50 ms a message", socket_time),
    ]
    _print_grid(console, ("of the run over a network", ">"), rows)
    if forecast.every_step:
        console.print(escape(_ONE_ROOM))


def _print_error_forecast(console: Console, error: ErrorForecast) -> None:
    """Print what epsilon buys: how far shares, pairs and means are expected to be from the rows."""
    title = f"expected error, for {error.rows:,} rows"
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
    _print_grid(console, (title, ">noise", ">drawing rows"), lines)
    _print_noisiest(console, error)


def _print_noisiest(console: Console, error: ErrorForecast) -> None:
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
        mean = "" if column.mean is None else f"± {column.mean:.3g}"
        rows.append((column.name, codes, share, misplaced, mean))
    title = "column"
    if len(noisiest) < len(columns):
        title = f"the {_COLUMNS} noisiest columns"
    heads = (title, ">codes", ">a share", ">rows misplaced", ">the mean")
    _print_grid(console, heads, rows)


def _print_rows(console: Console, rows: RowsRead) -> None:
    """Print what the parties' rows show, beside each other."""
    for line in (*rows.overlaps, *rows.misfits):
        console.print(f"{_FIRST} {escape(line)}")
    if rows.differences:
        lines: list[tuple[str, ...]] = []
        for difference in rows.differences:
            lines += _difference_lines(difference)
        heads = ("column", "what differs", "party", "holds")
        _print_grid(console, heads, lines)

    counts = [f"{name} {count:,}" for name, count in rows.count.items()]
    parties = escape(", ".join(counts))
    is_odd = rows.overlaps or rows.misfits or rows.differences
    verdict = "" if is_odd else ", and nothing is odd"
    console.print(f"Rows were read here{verdict}: {parties}. Nothing was written.")
    if is_odd:
        console.print(
            "These lines show values of rows: for those who may see every file alone."
        )


def _difference_lines(difference: Difference) -> Iterator[tuple[str, ...]]:
    """Yield lines of a table on a difference: parties that hold the same share a line."""
    parties_by_text: dict[str, list[str]] = {}
    for party, text in difference.held.items():
        parties_by_text.setdefault(text, []).append(party)
    # The column and what differs stand in the first line alone.
    heads = (difference.column, difference.what)
    for text, parties in parties_by_text.items():
        yield (*heads, listed(parties, 3), text)
        heads = ("", "")
    yield ("", "", "", f"→ {difference.advice}")


def _whole_run(forecast: StudyForecast) -> Iterator[tuple[str, str]]:
    """Yield what a whole run takes, each with its name."""
    time = "not known"
    if forecast.seconds is not None:
        time = f"about {duration(forecast.seconds)}"
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
    if forecast.largest_query is not None:
        queries = f"{forecast.workload_queries:,}"
        cells = f"{forecast.workload_cells:,}"
        yield "queries in the workload", queries
        yield "cells of these and all queries inside them", cells
        # More cells than a float holds were cut to the largest one, see `check.forecast`.
        cells = f"{forecast.domain_cells:.3g}"
        if forecast.domain_cells == float_info.max:
            cells = f"more than {cells}"
        yield "cells of the whole table", cells
        yield "largest query", ", ".join(forecast.largest_query)


_ONE_ROOM = (
    "There is a question at every gradient step: this method is for parties in one machine room, "
    "over sockets."
)


def print_plan(
    plan: Plan,
    folder: Path,
    data: str | None,
    refusal: str,
    key_notes: Mapping[str, str],
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
        json: Whether to print it for a program.
    """
    if json:
        answer = dict(plan.shown)
        answer["digest"] = plan.digest
        answer["refusal"] = refusal
        answer["known_keys"] = key_notes
        _print_json(answer)
        return

    console = _out()
    facts = plan.facts
    study = escape(facts["study"]["name"])
    party = escape(plan.party)
    method = escape(facts["method"]["name"])
    version = f"siloweave {facts['siloweave']}"
    console.print(f"[bold]{study}[/] at party {party}: {method}, {version}")
    heads = ("stage", "question", ">at most", "reply", "protected by", "in the ledger")
    _print_grid(console, heads, map(_planned, plan.messages))
    _print_grid(console, ("in all", ">"), _totals(plan))
    views = [(view.who, view.sees, view.protected_by) for view in plan.sees]
    _print_grid(console, ("who", "sees", "protected by"), views)
    _print_grid(console, ("what you say yes to", "value"), _settled(plan))
    console.print(escape(f"guarantee: {plan.guarantee}"))
    columns = ", ".join(plan.columns)
    console.print(escape(f"columns of your rows that it uses: {columns}"))
    console.print(escape(f"your text file is read with {_reading(plan)}"))
    _print_keys(console, facts, key_notes)

    # A study that the policy refuses has nothing to approve.
    if refusal:
        console.print(f"[bold red]refused:[/] {escape(refusal)}")
        return
    call = f"siloweave party approve {_quoted(folder)} {plan.digest}"
    # A file in the study's folder may be somebody else's, so that its name is confirmed, too.
    if data is not None and _is_inside(Path(data), folder):
        call += f" --data {_quoted(Path(data))}"
    console.print(
        f"The policy here allows it. To approve exactly this: [bold]{call}[/]"
    )


def _is_inside(file: Path, folder: Path) -> bool:
    """Return whether a file lies in a folder or below it, wherever links lead."""
    return file.resolve().is_relative_to(folder.resolve())


def _reading(plan: Plan) -> str:
    """Say how a party's text file is read, and where its owner corrects that."""
    clauses = [f"{name} = {_value(value)}" for name, value in plan.reading.items()]
    if not clauses:
        return "what is decided from the file alone"
    clauses.append(
        "as study.toml in this folder says: correct it there if your file is not so"
    )
    return ", ".join(clauses)


def _totals(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what a plan adds up to, each with its name."""
    bound = f"at most {plan.epsilon:g}"
    if isinf(plan.epsilon):
        bound = "∞: nothing bounds it"
    whom = _whom_in(plan.facts)
    delta = words.small(plan.delta)
    results = " and the results" if plan.brings_results else ""
    size = words.size(plan.size)
    engine_time = duration(plan.lasts(ENGINE_S))
    socket_time = duration(plan.lasts(SOCKET_S))

    yield "messages to this party", f"at most {plan.count:,}"
    yield f"ε of a {whom} at δ = {delta}", bound
    # The first of what is stated is that of a row or a unit, which the line above has.
    for label in list(plan.stated)[1:]:
        epsilon = words.epsilon(plan.stated[label])
        yield f"ε {label}", f"at most {epsilon}"
    yield "bytes sent and received", f"about {size}{results}"
    yield "time over an engine, at 1 s a message", f"about {engine_time}"
    yield "time over sockets, at 50 ms", f"about {socket_time}"


def _print_keys(
    console: Console, facts: Mapping[str, Any], key_notes: Mapping[str, str]
) -> None:
    """Print the keys of a study's ends, and which of them the coordinator made."""
    for name, key in facts.get("keys", {}).items():
        note = f" ({key_notes[name]})" if name in key_notes else ""
        shown = fingerprint(b64decode(key))
        console.print(escape(f"key of {name}: {shown}{note}"))
    # Whoever makes a key can use it, so that a party's masks hide nothing from the coordinator.
    owners = facts.get("keys_made_here")
    if owners:
        names = escape(", ".join(owners))
        console.print(f"[bold red]the coordinator made the keys of {names}:[/] ")
        console.print(
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
    """Write a value as JSON."""
    return msgspec.json.encode(value).decode()


def print_account(account: AccountView, *, json: bool) -> None:
    """Print what a party's studies may cost in all, line by line, and what its policy leaves."""
    if json:
        _print_json(account)
        return
    console = _out()
    folder = escape(account.folder)
    console.print(f"account of the party in {folder}, key {account.fingerprint}")
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
    _print_grid(console, ("date", "study", ">ε at most", ">δ"), lines)

    if account.epsilon_left is not None and account.delta_left is not None:
        epsilon_left = words.epsilon(account.epsilon_left)
        delta_left = words.small(account.delta_left)
        console.print(
            f"policy.toml leaves ε = {epsilon_left} of a row at δ = {delta_left}"
        )
    if not account.trouble:
        return
    print_warning(account.trouble)
    # A proposal can only be of what this machine has seen.
    if account.proposal is not None:
        cost = account.proposal
        options = f"--spent-since {cost.epsilon:g} --delta {cost.delta:g}"
        console.print(
            f"By what is known here, this was spent besides: [bold]{options}[/]. "
            "State more if rows were used elsewhere."
        )


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
        message.stage,
        question,
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


def _time_left(seconds: float | None) -> str:
    """Say how long a study still takes at its pace."""
    if seconds is None:
        return "not known"
    return f"at most {duration(seconds)}"


def _print_at_coordinator(status: CoordinatorStatus) -> None:
    """Print how far a study is at the coordinator, and what each party did."""
    console = _out()
    study = escape(status.study)
    state = escape(status.state)
    console.print(f"[bold]{study}[/] at the coordinator: {state}")
    if status.question:
        step = f"{status.question}, step {status.step} of stage {status.stage}"
        progress = f"question {status.questions} of at most {status.at_most}"
        console.print(escape(f"{step}; {progress}"))
    elapsed = duration(status.seconds)
    time_left = _time_left(status.left)
    console.print(f"{elapsed} so far; left at this pace: {time_left}")
    epsilon = words.epsilon(status.epsilon)
    delta = words.small(status.delta)
    allowed = words.epsilon(status.allowed)
    console.print(f"a row costs at most ε = {epsilon} of {allowed} at δ = {delta}")

    lines = []
    for party in status.parties:
        # A party that refused a question is not awaited.
        state = party.refused
        if not state and party.waited is not None:
            state = f"awaited for {duration(party.waited)}"
        sent = words.size(party.bytes_sent)
        received = words.size(party.bytes_received)
        # What its ledger cost is known here once the run has finished.
        spent = f"<= {epsilon}"
        if party.epsilon is not None:
            spent = words.epsilon(party.epsilon)
        counts = (party.messages, sent, received, party.payments, spent)
        lines.append((party.name, *counts, state))
    heads = ("party", ">answers", ">sent", ">received", ">payments", ">ε", "now")
    _print_grid(console, heads, lines)


def _print_at_party(status: PartyStatus) -> None:
    """Print how far a study is at a party, and what the party spent."""
    console = _out()
    study = escape(status.study)
    party = escape(status.party)
    state = status.state
    if status.ended:
        state += f" at {status.ended}"
    if status.why:
        state += f": {status.why}"
    console.print(f"[bold]{study}[/] at party {party}: {escape(state)}")

    answers = count_of(status.answered, "question", "questions")
    if status.at_most is not None:
        answers += f" of at most {status.at_most:,}"
    answers += " answered"
    if status.quiet is not None:
        answers += f", the last {duration(status.quiet)} ago"
    console.print(answers)

    spent = words.epsilon(status.epsilon)
    allowed = words.epsilon(status.allowed)
    delta = words.small(status.delta)
    releases = count_of(status.releases, "release", "releases")
    cost = f"{spent} of {allowed} at δ = {delta}"
    console.print(f"ε of a row by the ledger: {cost}, {releases}")
    if status.run:
        payment = f"step {status.step} of {status.run}"
        console.print(f"last paid: {escape(payment)}")
    _print_work(console, status)
    if status.unexpected:
        paths = escape(first_few(status.unexpected))
        console.print(f"[bold red]unexpected in its folder:[/] {paths}")
        console.print(
            "the party does not start beside that; its rows are named by --data"
        )


def _print_work(console: Console, status: PartyStatus) -> None:
    """Print what a party sent, computed and stored, and what is left to do."""
    received = words.size(status.received)
    sent = words.size(status.sent)
    console.print(f"{received} received and {sent} sent")
    # How long computing takes may depend on rows, so that only the party's owner sees it.
    computing = duration(status.computing)
    sealing = duration(status.sealing)
    console.print(
        f"{computing} of its own computing "
        f"and {sealing} of sealing, opening and signing; nobody is sent that"
    )
    stored = words.size(status.stored)
    time_left = _time_left(status.left)
    console.print(f"answers that are kept: {stored}; left at this pace: {time_left}")


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
        _print_json(answer)
        return

    console = _out()
    for line in proposal.files:
        console.print(escape(line))
    _print_proposed(console, proposal)
    for line in proposal.constraints:
        console.print(f"constraint: {escape(line)}")
    for line in proposal.cautions:
        print_warning(line)
    console.print(f"Wrote {escape(study)} and {escape(schema)}.")
    console.print(
        "[yellow]Review the schema:[/] every fact above came from rows and nobody paid for it. "
        "Correct each to what was known beforehand, and delete its from_data."
    )
    call = f"siloweave check {_quoted(paths[0])}"
    console.print(f"Then: [bold]{call}[/]")


def _print_proposed(console: Console, proposal: Proposal) -> None:
    """Print every column's proposed kind, why, and what was taken from rows."""
    facts_from_rows = dict(proposal.review)
    width = get_terminal_size().columns
    padding = (0, _GAP, 0, 0)
    grid = Grid(box=None, padding=padding, header_style="bold", width=width)
    # Long names are folded, so that reasons have room.
    grid.add_column("column", overflow="fold", max_width=width // 4)
    grid.add_column("kind", no_wrap=True)
    grid.add_column("why", overflow="fold", ratio=1)
    for column in proposal.schema.columns:
        lines = []
        if column.why:
            lines.append(escape(column.why))
        facts = facts_from_rows.get(column.name, "")
        if facts:
            lines.append(f"[dim]from rows: {escape(facts)}[/]")
        text = "\n".join(lines)
        grid.add_row(escape(column.name), column.kind, text)
    console.print(grid, soft_wrap=False, width=width)


def print_ledgers(trail: Trail, *, json: bool, entries: bool) -> None:
    """Print verified ledgers; with their entries if asked, or if there is only one."""
    if json:
        _print_json(trail)
        return
    console = _out()
    rows = []
    for ledger in trail.ledgers:
        chain = f"whole ({ledger.note})" if ledger.note else "whole"
        spent = words.epsilon(ledger.epsilon)
        entry_count = len(ledger.entries)
        rows.append((_owner(ledger), entry_count, spent, chain, ledger.file))
    bound = f">ε at δ = {words.small(trail.delta)}"
    heads = ("party", ">entries", bound, "chain", "file")
    _print_grid(console, heads, rows)
    for line in _trail_epsilons(trail):
        console.print(line)
    if entries or len(trail.ledgers) == 1:
        for ledger in trail.ledgers:
            _print_entries(console, ledger)
    else:
        console.print("--party NAME shows every entry.")
    console.print(
        "Every ledger's signature was checked, and ε recomputed from the events."
    )
    _print_compared(console, trail.ledgers)


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


def _print_compared(console: Console, ledgers: Sequence[Reading]) -> None:
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
            console.print(f"Compared with {names}{suffix}.")
        else:
            console.print(
                f"[yellow]Compared with nothing{suffix}:[/] no key and no hash of it was kept "
                "here. Ask the owner for the public key, and compare it with the one in line 1."
            )


def _print_entries(console: Console, ledger: Reading) -> None:
    """Print the lines of a ledger, and by what its end and its owner are known."""
    rows = []
    for line in ledger.entries:
        mechanism = _event(line.event)
        # A release without noise has no rho.
        cost = "∞" if line.rho is None else f"{line.rho:.3g}"
        rows.append((line.index, line.step, line.what, line.to, mechanism, cost))
    heads = (">#", "step", "what", "to", "mechanism", ">ρ")
    _print_grid(console, heads, rows)
    owner = escape(_owner(ledger))
    console.print(f"last line of {owner}: {ledger.head}")
    console.print(f"signed with the key {fingerprint(ledger.key)}")


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
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        facts.append(f"{name} {shown}")
    text = f"{event['type']}: {', '.join(facts)}"
    return text.replace("_", " ")


def print_methods(methods: Mapping[str, Any], *, json: bool) -> None:
    """Print every method."""
    if json:
        _print_json(methods)
        return
    heads = ("split", "family", "guarantee", "trust", "paper")
    rows = []
    for name, info in methods.items():
        facts = [getattr(info, head) for head in heads]
        rows.append((name, *facts))
    _print_grid(_out(), ("name", *heads), rows)


def _print_grid(
    console: Console, heads: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Print a table that fits the terminal; ``>`` before a head aligns its column to the right.

    Cells are wrapped, not cut. Where there is no terminal, the table is as wide as the environment
    variable COLUMNS says, or 80 characters.
    """
    names = [head.removeprefix(">") for head in heads]
    cells = [[str(cell) for cell in row] for row in rows]
    terminal_width = get_terminal_size().columns
    widths = _column_widths([names, *cells], terminal_width)
    padding = (0, _GAP, 0, 0)
    grid = Grid(box=None, padding=padding, pad_edge=False, header_style="bold")
    for head, name, width in zip(heads, names, widths, strict=True):
        justify: Literal["right", "left"] = "left"
        if head.startswith(">"):
            justify = "right"
        grid.add_column(name, justify=justify, overflow="fold", width=width)
    for row in cells:
        grid.add_row(*map(escape, row))
    console.print(grid, soft_wrap=False, width=terminal_width)


def _column_widths(lines: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the widths of a table's columns, so that all are within `width` with their gaps.

    The widest are narrowed first: to their longest word, and only if that is too much, further.
    """
    widths = []
    longest_words = []
    for cells in zip(*lines, strict=True):
        all_words = " ".join(cells).split()
        widths.append(max(map(cell_len, cells)))
        longest_words.append(max(map(cell_len, all_words), default=0))

    places = range(len(widths))
    # In a terminal that is too narrow for anything, each column has one character.
    available = max(width - _GAP * (len(widths) - 1), len(widths))
    while sum(widths) > available:
        wrapped = [place for place in places if widths[place] > longest_words[place]]
        # Of columns that are as wide, the last one is narrowed.
        widest = max(wrapped or places, key=lambda place: (widths[place], place))
        widths[widest] -= 1
    return widths


def _quoted(path: Path) -> str:
    """Write a path as it stands in a command line."""
    return escape(quote(str(path)))
