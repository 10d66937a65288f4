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


class _Terminal(Console):
    """A console on which names that others wrote cannot move the cursor, or hide what they are."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Render a text, also one in a table's cell, with what is not printable escaped."""
        return super().render_str(printable(text), **how)


def _out() -> Console:
    """Return a console that leaves sentences whole: whoever shows them wraps and searches them."""
    return _Terminal(highlight=False, soft_wrap=True)


def print_error(message: str, label: str = "[bold red]error:[/]") -> None:
    """Print on standard error what went wrong."""
    _Terminal(stderr=True, highlight=False, soft_wrap=True).print(
        f"{label} {escape(message)}"
    )


def print_warning(message: str) -> None:
    """Print on standard error what to look at."""
    print_error(message, "[yellow]look at this first:[/]")


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
        page_name = str(page) if page else None
        _print_json({**result.to_dict(), "page": page_name})
        return
    _out().print(str(result), markup=False)
    if page is not None:
        _out().print(f"The page is {escape(str(page))}")


def print_summary(
    summary: RunSummary, folder: Path, *, json: bool, before: bool
) -> None:
    """Print what a run cost and where its files are."""
    files = {label: str(folder / name) for label, name in summary.files.items()}
    if json:
        _print_json(
            {
                **msgspec.structs.asdict(summary),
                "files": files,
                "finished_before": before,
            }
        )
        return
    console = _out()
    if before:
        console.print(
            f"This run had finished ({summary.finished}); nothing was released again."
        )
    if not summary.private:
        console.print("[bold red]NOT PRIVATE[/]: see the report for why.")
    console.print(
        f"[bold]{escape(summary.study)}[/]: {summary.rows:,} synthetic rows from "
        f"{count_of(len(summary.parties), 'party', 'parties')} by {escape(summary.method)}"
    )
    if summary.sample:
        console.print(f"Trained from a sample: {escape(summary.sample)}")
    console.print(_promise(summary))
    for line in _other_epsilons(summary):
        console.print(line)

    questions = f"{count_of(summary.rounds, 'question', 'questions')} to the parties"
    if summary.alignment is not None:
        questions += f", {summary.alignment.rounds:,} before to align their rows,"
    seconds = sum(summary.seconds.values())
    console.print(f"Took {questions} and {duration(seconds)}")
    _print_parties(console, summary)
    if summary.vanished:
        console.print(f"Vanished on the way: {escape(', '.join(summary.vanished))}")
        # A party whose ledger came before it vanished is among the parties.
        names = {party.name for party in summary.parties}
        if not names.issuperset(summary.vanished):
            console.print(
                "No ledger came from there: ε counts the study's whole budget for it."
            )

    places = Grid.grid(padding=(0, 2))
    for label, path in files.items():
        places.add_row(label, escape(path))
    console.print(places)
    console.print(f"Every release: [bold]siloweave ledger {_quoted(folder)}[/]")
    if "model" in summary.files:
        console.print(f"More rows, at no cost: {_more_rows(summary, folder)}")


def _more_rows(summary: RunSummary, folder: Path) -> str:
    """Say what draws from the model: where columns stay at their parties, no command joins them."""
    if "synthetic table" in summary.files:
        return f"[bold]siloweave sample {_quoted(folder)} --out more.csv[/]"
    model = escape(repr(str(folder / summary.files["model"])))
    return f"[bold]siloweave.load({model}).sample_parts(1000)[/] in Python"


def _promise(summary: RunSummary) -> str:
    """Say what a run promises, and of whom."""
    if summary.guarantee == "none" and isinf(summary.epsilon_allowed):
        return "Privacy: none was asked for and none is given (ε = ∞)"
    whom = words.whom(summary.unit, summary.rows_per_unit)
    return (
        f"Privacy: ε = {words.epsilon(summary.epsilon)} of {words.epsilon(summary.epsilon_allowed)}"
        f" at δ = {words.small(summary.delta)} for each {escape(whom)} "
        f"({summary.relation.replace('_', '/')} neighbours, guarantee: {summary.guarantee})"
    )


def _towards(party_epsilon: float) -> str:
    """Say what epsilon is towards another party."""
    shown = words.epsilon(party_epsilon)
    return f"Towards another party, which knows whose rows these are: ε = {shown}"


def _at_parties(unit_epsilon: float, unit: str, parties: int) -> str:
    """Say what epsilon is of a unit with rows at so many parties."""
    places = count_of(parties, "party", "parties")
    return f"For a {escape(unit)} with rows at up to {places}: ε = {words.epsilon(unit_epsilon)}"


def _other_epsilons(summary: RunSummary) -> Iterator[str]:
    """Say what else ε is, beside that of one party's rows towards all who see the result."""
    if summary.epsilon_to_parties is not None:
        yield _towards(summary.epsilon_to_parties)
    if summary.epsilon_at_parties is not None:
        parties = min(summary.parties_per_unit, len(summary.parties))
        yield _at_parties(summary.epsilon_at_parties, summary.unit, parties)


def _print_parties(console: Console, summary: RunSummary) -> None:
    """Print what every party spent and sent; of very many, those that spent most."""
    count = len(summary.parties)
    parties = list(summary.parties)
    if count > _PARTIES:
        parties = sorted(parties, key=lambda party: -party.epsilon)[:_PARTIES]
    labelled = [(party.name, party) for party in parties]
    if summary.alignment is not None:
        aligned = {party.name: party for party in summary.alignment.parties}
        labelled += [
            (f"{party.name}, alignment", aligned[party.name]) for party in parties
        ]
    rows = []
    for label, party in labelled:
        sent = words.size(party.bytes_sent)
        received = words.size(party.bytes_received)
        rows.append(
            (label, words.epsilon(party.epsilon), party.releases, sent, received)
        )
    _print_grid(console, ("party", ">ε spent", ">releases", ">sent", ">received"), rows)
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
    party_count = len(forecast.parties)
    console.print(
        f"[bold]{escape(forecast.study)}[/]: {escape(forecast.method)}, "
        f"{count_of(party_count, 'party', 'parties')}"
    )
    most = f"at most {words.epsilon(forecast.epsilon_per_party)}"
    whom = words.whom(forecast.unit, forecast.rows_per_unit)
    bound = (f"ε of a {escape(whom)} at δ = {words.small(forecast.delta)}", most)
    if isinf(forecast.epsilon_per_party):
        bound = ("ε", "∞: nothing bounds it")
    traffic = (
        "bytes sent and received",
        f"about {words.size(forecast.bytes_per_party)}",
    )
    whose = "of each party" if party_count > 1 else "of the party"
    _print_grid(console, (whose, ">"), [bound, traffic])
    heads = ("of the whole run, all parties in one process", ">")
    _print_grid(console, heads, _whole_run(forecast))
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
        console.print(
            f"This run began before: {forecast.resumes} releases are paid for, and it continues "
            "from there."
        )
    for warning in forecast.warnings:
        console.print(f"[yellow]look at this first:[/] {escape(warning)}")
    if forecast.rows is None:
        console.print("No row was counted and nothing was written.")
        return
    _print_rows(console, forecast.rows)


def _print_network_forecast(console: Console, forecast: StudyForecast) -> None:
    """Print what a run would take over a network; its computing is that of this machine."""
    rows = [
        ("messages to each party", f"at most {forecast.messages_per_party:,}"),
        (
            "an engine, at 1 s a message",
            f"about {duration(forecast.seconds_on_engine)}",
        ),
        (
            "sockets, at 50 ms a message",
            f"about {duration(forecast.seconds_on_sockets)}",
        ),
    ]
    _print_grid(console, ("of the run over a network", ">"), rows)
    if forecast.every_step:
        console.print(escape(_ONE_ROOM))


def _print_error_forecast(console: Console, error: ErrorForecast | None) -> None:
    """Print what epsilon buys: how far shares, pairs and means are expected to be from the rows."""
    if error is None:
        return
    heads = (f"expected error, for {error.rows:,} rows", ">noise", ">drawing rows")
    share = words.points(error.share)
    share_drawn = words.points(error.share_drawn)
    pair = words.points(error.pair)
    pair_drawn = words.points(error.pair_drawn)
    lines = [
        ("of a share in one column", f"± {share}", f"± {share_drawn}"),
        ("of a share in a table of two columns", f"± {pair}", f"± {pair_drawn}"),
        ("rows in a wrong category or bin of a column", f"{error.wrong:.1%}", ""),
        (
            "tables of two columns that are measured",
            f"about {error.pairs_measured:,}",
            "",
        ),
    ]
    _print_grid(console, heads, lines)

    noisiest = sorted(error.columns, key=lambda column: -column.share * column.codes)[
        :_COLUMNS
    ]
    rows = []
    for column in noisiest:
        # A row that is missing in one code is too many in another, so that two errors are one row.
        misplaced = min(1.0, column.share * column.codes / 2)
        mean = "" if column.mean is None else f"± {column.mean:.3g}"
        column_share = f"± {words.points(column.share)}"
        rows.append(
            (column.name, f"{column.codes:,}", column_share, f"{misplaced:.1%}", mean)
        )
    title = "column"
    if len(noisiest) < len(error.columns):
        title = f"the {_COLUMNS} noisiest columns"
    _print_grid(
        console, (title, ">codes", ">a share", ">rows misplaced", ">the mean"), rows
    )


def _print_rows(console: Console, rows: RowsRead) -> None:
    """Print what the parties' rows show, beside each other."""
    for line in (*rows.overlaps, *rows.misfits):
        console.print(f"[yellow]look at this first:[/] {escape(line)}")
    if rows.differences:
        lines: list[tuple[str, ...]] = []
        for difference in rows.differences:
            lines += _difference_lines(difference)
        _print_grid(console, ("column", "what differs", "party", "holds"), lines)

    counts = ", ".join(f"{name} {count:,}" for name, count in rows.count.items())
    is_clean = not (rows.overlaps or rows.misfits or rows.differences)
    verdict = ", and nothing is odd" if is_clean else ""
    console.print(
        f"Rows were read here{verdict}: {escape(counts)}. Nothing was written."
    )
    if not is_clean:
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
    time = (
        "not known"
        if forecast.seconds is None
        else f"about {duration(forecast.seconds)}"
    )
    yield "memory", f"about {words.size(forecast.memory_mb * 1e6)}"
    yield "time", time
    yield "questions, one after the other", f"at most {forecast.rounds:,}"
    if forecast.alignment is not None:
        yield "rounds of the alignment before", f"about {forecast.alignment.rounds}"
        size = words.size(forecast.alignment.bytes_leader)
        yield "bytes of it at the party that leads", f"about {size}"
    if forecast.largest_query is not None:
        yield "queries in the workload", f"{forecast.workload_queries:,}"
        yield (
            "cells of these and all queries inside them",
            f"{forecast.workload_cells:,}",
        )
        beyond = "more than " if forecast.domain_cells == float_info.max else ""
        yield "cells of the whole table", f"{beyond}{forecast.domain_cells:.3g}"
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
        answer = {"digest": plan.digest, "refusal": refusal, "known_keys": key_notes}
        _print_json({**plan.shown, **answer})
        return
    console = _out()
    facts = plan.facts
    console.print(
        f"[bold]{escape(facts['study']['name'])}[/] at party {escape(plan.party)}: "
        f"{escape(facts['method']['name'])}, siloweave {facts['siloweave']}"
    )
    heads = ("stage", "question", ">at most", "reply", "protected by", "in the ledger")
    _print_grid(console, heads, map(_planned, plan.messages))
    _print_grid(console, ("in all", ">"), _totals(plan))
    views = [(view.who, view.sees, view.protected_by) for view in plan.sees]
    _print_grid(console, ("who", "sees", "protected by"), views)
    _print_grid(console, ("what you say yes to", "value"), _settled(plan))
    console.print(escape(f"guarantee: {plan.guarantee}"))
    console.print(
        escape(f"columns of your rows that it uses: {', '.join(plan.columns)}")
    )
    reading = [f"{name} = {_value(value)}" for name, value in plan.reading.items()]
    if reading:
        reading.append(
            "as study.toml in this folder says: correct it there if your file is not so"
        )
    else:
        reading.append("what is decided from the file alone")
    console.print(escape(f"your text file is read with {', '.join(reading)}"))
    _print_keys(console, facts, key_notes)

    if refusal:
        console.print(f"[bold red]refused:[/] {escape(refusal)}")
        return
    call = f"siloweave party approve {_quoted(folder)} {plan.digest}"
    # A file in the study's folder may be somebody else's, so that its name is confirmed, too.
    if data is not None and Path(data).resolve().is_relative_to(folder.resolve()):
        call += f" --data {_quoted(Path(data))}"
    console.print(
        f"The policy here allows it. To approve exactly this: [bold]{call}[/]"
    )


def _totals(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what a plan adds up to, each with its name."""
    bound = (
        "∞: nothing bounds it" if isinf(plan.epsilon) else f"at most {plan.epsilon:g}"
    )
    results = " and the results" if plan.brings_results else ""
    yield "messages to this party", f"at most {plan.count:,}"
    yield f"ε of a {_whom_in(plan.facts)} at δ = {words.small(plan.delta)}", bound
    # The first of what is stated is that of a row or a unit, which the line above has.
    for label in list(plan.stated)[1:]:
        yield f"ε {label}", f"at most {words.epsilon(plan.stated[label])}"
    yield "bytes sent and received", f"about {words.size(plan.size)}{results}"
    yield (
        "time over an engine, at 1 s a message",
        f"about {duration(plan.lasts(ENGINE_S))}",
    )
    yield "time over sockets, at 50 ms", f"about {duration(plan.lasts(SOCKET_S))}"


def _print_keys(
    console: Console, facts: Mapping[str, Any], key_notes: Mapping[str, str]
) -> None:
    """Print the keys of a study's ends, and which of them the coordinator made."""
    for name, key in facts.get("keys", {}).items():
        note = f" ({key_notes[name]})" if name in key_notes else ""
        console.print(escape(f"key of {name}: {fingerprint(b64decode(key))}{note}"))
    names = facts.get("keys_made_here")
    if names:
        console.print(
            f"[bold red]the coordinator made the keys of {escape(', '.join(names))}:[/] "
        )
        console.print(
            "it can sign as they do, read what is sealed to them, and take off the masks that hide "
            "your sums behind theirs"
        )


def _settled(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield all of a study that an approval holds for, but for keys and messages, by name."""
    facts = plan.facts
    yield "trust", plan.trust
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
    columns = facts["schema"]["columns"]
    digest = blake2b(
        msgspec.json.encode(facts["schema"], order="sorted"), digest_size=8
    )
    yield (
        "schema",
        f"{count_of(len(columns), 'column', 'columns')}, {digest.hexdigest()}",
    )


def _value(value: Any) -> str:
    """Write a value as JSON."""
    return msgspec.json.encode(value).decode()


def print_account(account: AccountView, *, json: bool) -> None:
    """Print what a party's studies may cost in all, line by line, and what its policy leaves."""
    if json:
        _print_json(account)
        return
    console = _out()
    console.print(
        f"account of the party in {escape(account.folder)}, key {account.fingerprint}"
    )
    notes = {
        "study": "",
        "more": ", which asked for more",
        "stated": "stated by the owner",
    }
    lines = []
    for entry in account.entries:
        day = entry.time[:10]
        study = f"{entry.study}{notes[entry.kind]}"
        lines.append(
            (day, study, words.epsilon(entry.cost.epsilon), _delta(entry.delta))
        )
    lines.append(("", "in all", words.epsilon(account.epsilon), _delta(account.delta)))
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
    if account.proposal is not None:
        epsilon, delta = account.proposal
        console.print(
            "By what is known here, this was spent besides: "
            f"[bold]--spent-since {epsilon:g} --delta {delta:g}[/]. State more if rows were used "
            "elsewhere."
        )


def _delta(delta: float) -> str:
    """Write a delta, which may be 0."""
    return words.small(delta) if delta else "0"


def _whom_in(facts: Mapping[str, Any]) -> str:
    """Say what a study protects, by its public facts."""
    budget = facts["budget"] or {}
    whom = words.whom(budget.get("unit", "row"), budget.get("rows_per_unit"))
    parties = budget.get("parties_per_unit", 1)
    if parties > 1:
        whom += f", which may have rows at {parties} parties,"
    return escape(whom)


def _planned(message: PlannedMessage) -> tuple[str, ...]:
    """Return a line of a plan."""
    protections = dict.fromkeys(field.protected_by for field in message.fields)
    question = f"{message.asks} ({message.tag})"
    times = f"{message.times:,}" if message.times else "with the last"
    if message.guessed:
        times = f"about {times}"
    protected_by = "; ".join(protections)
    return message.stage, question, times, message.replies, protected_by, message.ledger


def print_status(status: CoordinatorStatus | PartyStatus) -> None:
    """Print how far a study is, at one of its ends."""
    if isinstance(status, PartyStatus):
        _print_at_party(status)
    else:
        _print_at_coordinator(status)


def _time_left(seconds: float | None) -> str:
    """Say how long a study still takes at its pace."""
    return "not known" if seconds is None else f"at most {duration(seconds)}"


def _print_at_coordinator(status: CoordinatorStatus) -> None:
    """Print how far a study is at the coordinator, and what each party did."""
    console = _out()
    console.print(
        f"[bold]{escape(status.study)}[/] at the coordinator: {escape(status.state)}"
    )
    if status.question:
        step = f"{status.question}, step {status.step} of stage {status.stage}"
        console.print(
            escape(f"{step}; question {status.questions} of at most {status.at_most}")
        )
    time_left = _time_left(status.left)
    console.print(f"{duration(status.seconds)} so far; left at this pace: {time_left}")
    bound = "ε = ∞" if isinf(status.epsilon) else f"ε = {words.epsilon(status.epsilon)}"
    console.print(f"a row costs at most {bound} at δ = {words.small(status.delta)}")
    lines = []
    for party in status.parties:
        state = party.refused
        if not state and party.waited is not None:
            state = f"awaited for {duration(party.waited)}"
        sent = words.size(party.bytes_sent)
        received = words.size(party.bytes_received)
        lines.append(
            (party.name, party.messages, sent, received, party.payments, state)
        )
    heads = ("party", ">answers", ">sent", ">received", ">payments", "now")
    _print_grid(console, heads, lines)


def _print_at_party(status: PartyStatus) -> None:
    """Print how far a study is at a party, and what the party spent."""
    console = _out()
    state = status.state
    if status.ended:
        state += f" at {status.ended}"
    if status.why:
        state += f": {status.why}"
    console.print(
        f"[bold]{escape(status.study)}[/] at party {escape(status.party)}: {escape(state)}"
    )
    most = "" if status.at_most is None else f" of at most {status.at_most:,}"
    quiet = "" if status.quiet is None else f", the last {duration(status.quiet)} ago"
    console.print(
        f"{count_of(status.answered, 'question', 'questions')}{most} answered{quiet}"
    )
    console.print(
        f"ε of a row by the ledger: {words.epsilon(status.epsilon)} of "
        f"{words.epsilon(status.allowed)} at δ = {words.small(status.delta)}, "
        f"{count_of(status.releases, 'release', 'releases')}"
    )
    if status.run:
        console.print(escape(f"last paid: step {status.step} of {status.run}"))
    console.print(
        f"{words.size(status.received)} received and {words.size(status.sent)} sent"
    )
    console.print(
        f"{duration(status.computing)} of its own computing and "
        f"{duration(status.sealing)} of sealing, opening and signing; nobody is sent that"
    )
    stored = words.size(status.stored)
    time_left = _time_left(status.left)
    console.print(f"answers that are kept: {stored}; left at this pace: {time_left}")
    if status.unexpected:
        console.print(
            f"[bold red]unexpected in its folder:[/] {escape(first_few(status.unexpected))}"
        )
        console.print(
            "the party does not start beside that; its rows are named by --data"
        )


def print_proposal(proposal: Proposal, paths: Sequence[Path], *, json: bool) -> None:
    """Print what `init` wrote, and which facts must be reviewed."""
    study, schema = map(str, paths)
    if json:
        reasons = {column.name: column.why for column in proposal.schema.columns}
        _print_json(
            {
                "study": study,
                "schema": schema,
                "from_data": dict(proposal.review),
                "reasons": reasons,
                "constraints": proposal.constraints,
                "files": proposal.files,
                "warnings": proposal.cautions,
            }
        )
        return
    console = _out()
    for line in proposal.files:
        console.print(escape(line))
    facts_from_rows = dict(proposal.review)
    width = get_terminal_size().columns
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="bold", width=width)
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
        grid.add_row(escape(column.name), column.kind, "\n".join(lines))
    console.print(grid, soft_wrap=False, width=width)
    for line in proposal.constraints:
        console.print(f"constraint: {escape(line)}")
    for line in proposal.cautions:
        print_warning(line)
    console.print(f"Wrote {escape(study)} and {escape(schema)}.")
    console.print(
        "[yellow]Review the schema:[/] every fact above came from rows and nobody paid for it. "
        "Correct each to what was known beforehand, and delete its from_data."
    )
    console.print(f"Then: [bold]siloweave check {_quoted(paths[0])}[/]")


def print_ledgers(trail: Trail, *, json: bool, entries: bool) -> None:
    """Print verified ledgers; with their entries if asked, or if there is only one."""
    if json:
        _print_json(trail)
        return
    console = _out()
    rows = []
    for ledger in trail.ledgers:
        chain = f"whole ({ledger.note})" if ledger.note else "whole"
        spent_epsilon = words.epsilon(ledger.epsilon)
        rows.append(
            (_owner(ledger), len(ledger.entries), spent_epsilon, chain, ledger.file)
        )
    bound = f">ε at δ = {words.small(trail.delta)}"
    _print_grid(console, ("party", ">entries", bound, "chain", "file"), rows)
    if trail.whole_row is not None and trail.split == "columns":
        console.print(
            f"A row lies at every party: ε = {words.epsilon(trail.whole_row)} in all."
        )
    if trail.to_parties is not None:
        console.print(_towards(trail.to_parties))
    if trail.whole_row is not None and trail.whom != "row":
        console.print(f"Each ε is that of one {escape(trail.whom)}.")
    if trail.at_parties is not None:
        # The unit alone: how many rows it has, which `whom` says too, is for each party.
        unit = escape(trail.whom.partition(" ")[0])
        most = words.epsilon(trail.at_parties)
        console.print(
            f"For a {unit} with rows at as many parties as the study says: ε = {most}"
        )
    if any(ledger.stage == "alignment" for ledger in trail.ledgers):
        console.print(
            "No ε covers the alignment, which found the rows that all parties have."
        )
    if entries or len(trail.ledgers) == 1:
        for ledger in trail.ledgers:
            _print_entries(console, ledger)
    else:
        console.print("--party NAME shows every entry.")
    console.print(
        "Every ledger's signature was checked, and ε recomputed from the events."
    )
    _print_compared(console, trail.ledgers)


def _print_compared(console: Console, ledgers: Sequence[Reading]) -> None:
    """Print what ledgers were compared with: a file alone cannot show that it was written anew."""
    for sources in dict.fromkeys(ledger.compared for ledger in ledgers):
        owners = [_owner(ledger) for ledger in ledgers if ledger.compared == sources]
        suffix = ""
        if len(owners) < len(ledgers):
            suffix = escape(f" ({'; '.join(owners)})")
        if sources:
            console.print(f"Compared with {escape(' and '.join(sources))}{suffix}.")
        else:
            console.print(
                f"[yellow]Compared with nothing{suffix}:[/] no key and no hash of it was kept "
                "here. Ask the owner for the public key, and compare it with the one in line 1."
            )


def _print_entries(console: Console, ledger: Reading) -> None:
    """Print the lines of a ledger, and by what its end and its owner are known."""
    rows = []
    for line in ledger.entries:
        cost = "∞" if line.rho is None else f"{line.rho:.3g}"
        rows.append(
            (line.index, line.step, line.what, line.to, _event(line.event), cost)
        )
    _print_grid(console, (">#", "step", "what", "to", "mechanism", ">ρ"), rows)
    console.print(f"last line of {escape(_owner(ledger))}: {ledger.head}")
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
        facts.append(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        )
    return f"{event['type']}: {', '.join(facts)}".replace("_", " ")


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
    width = get_terminal_size().columns
    widths = _column_widths([names, *cells], width)
    grid = Grid(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for head, name, room in zip(heads, names, widths, strict=True):
        justify: Literal["right", "left"] = "right" if head.startswith(">") else "left"
        grid.add_column(name, justify=justify, overflow="fold", width=room)
    for row in cells:
        grid.add_row(*map(escape, row))
    console.print(grid, soft_wrap=False, width=width)


def _column_widths(lines: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the widths of a table's columns, so that all are within `width` with their gaps.

    The widest are narrowed first: to their longest word, and only if that is too much, further.
    """
    columns = list(zip(*lines, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    longest_words = [
        max(map(cell_len, " ".join(column).split()), default=0) for column in columns
    ]
    available = max(width - _GAP * (len(columns) - 1), len(columns))
    while sum(widths) > available:
        wrapped = [i for i in range(len(columns)) if widths[i] > longest_words[i]]
        widest = max(
            wrapped or range(len(columns)), key=lambda place: (widths[place], place)
        )
        widths[widest] -= 1
    return widths


def _quoted(path: Path) -> str:
    """Write a path as it stands in a command line."""
    return escape(quote(str(path)))
