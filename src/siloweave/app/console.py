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
    """A console that leaves sentences whole: whoever shows them wraps them, and can search them."""
    return _Terminal(highlight=False, soft_wrap=True)


def print_error(message: str, label: str = "[bold red]error:[/]") -> None:
    """Print on standard error what went wrong."""
    _Terminal(stderr=True, highlight=False, soft_wrap=True).print(f"{label} {escape(message)}")


def print_warning(message: str) -> None:
    """Print on standard error what to look at."""
    print_error(message, "[yellow]look at this first:[/]")


def _print_json(value: Any) -> None:
    _out().print(json_of(value), markup=False)


def print_result(data: Mapping[str, Any], text: str, *, json: bool) -> None:
    """One small result."""
    if json:
        _print_json(data)
    else:
        _out().print(escape(text))


def print_compared(found: Any, page: Path | None, *, json: bool) -> None:
    """Scores or risks, as they print themselves, and where their page is."""
    if json:
        _print_json({**found.to_dict(), "page": str(page) if page else None})
        return
    _out().print(str(found), markup=False)
    if page is not None:
        _out().print(f"The page is {escape(str(page))}")


def print_summary(summary: RunSummary, folder: Path, *, json: bool, before: bool) -> None:
    """What a run cost and where its files are."""
    files = {what: str(folder / name) for what, name in summary.files.items()}
    if json:
        _print_json({**msgspec.structs.asdict(summary), "files": files, "finished_before": before})
        return
    console = _out()
    if before:
        console.print(f"This run had finished ({summary.finished}); nothing was released again.")
    if not summary.private:
        console.print("[bold red]NOT PRIVATE[/]: see the report for why.")
    console.print(
        f"[bold]{escape(summary.study)}[/]: {summary.rows:,} synthetic rows from "
        f"{count_of(len(summary.parties), 'party', 'parties')} by {escape(summary.method)}"
    )
    if summary.sample:
        console.print(f"Trained from a sample: {escape(summary.sample)}")
    console.print(_promise(summary))
    for line in _besides(summary):
        console.print(line)
    asked = f"{count_of(summary.rounds, 'question', 'questions')} to the parties"
    if summary.alignment is not None:
        asked = f"{asked}, {summary.alignment.rounds:,} before to align their rows,"
    console.print(f"Took {asked} and {duration(sum(summary.seconds.values()))}")
    _print_parties(console, summary)
    if summary.vanished:
        here = {one.name for one in summary.parties}
        console.print(f"Vanished on the way: {escape(', '.join(summary.vanished))}")
        if not here.issuperset(summary.vanished):
            console.print("No ledger came from there: ε counts the study's whole budget for it.")
    places = Grid.grid(padding=(0, 2))
    for what, path in files.items():
        places.add_row(what, escape(path))
    console.print(places)
    console.print(f"Every release: [bold]siloweave ledger {_quoted(folder)}[/]")
    if "model" in summary.files:
        console.print(f"More rows, at no cost: {_more_rows(summary, folder)}")


def _more_rows(summary: RunSummary, folder: Path) -> str:
    """What draws from the model: where columns stay at their parties, no command joins them."""
    if "synthetic table" in summary.files:
        return f"[bold]siloweave sample {_quoted(folder)} --out more.csv[/]"
    model = escape(repr(str(folder / summary.files["model"])))
    return f"[bold]siloweave.load({model}).sample_parts(1000)[/] in Python"


def _promise(summary: RunSummary) -> str:
    if summary.guarantee == "none" and isinf(summary.epsilon_allowed):
        return "Privacy: none was asked for and none is given (ε = ∞)"
    whom = words.whom(summary.unit, summary.rows_per_unit)
    return (
        f"Privacy: ε = {words.epsilon(summary.epsilon)} of {words.epsilon(summary.epsilon_allowed)}"
        f" at δ = {words.small(summary.delta)} for each {escape(whom)} "
        f"({summary.relation.replace('_', '/')} neighbours, guarantee: {summary.guarantee})"
    )


def _towards(most: float) -> str:
    return f"Towards another party, which knows whose rows these are: ε = {words.epsilon(most)}"


def _at_parties(most: float, unit: str, parties: int) -> str:
    where = count_of(parties, "party", "parties")
    return f"For a {escape(unit)} with rows at up to {where}: ε = {words.epsilon(most)}"


def _besides(summary: RunSummary) -> Iterator[str]:
    """What else ε is, beside that of one party's rows towards everyone who sees the result."""
    if (most := summary.epsilon_to_parties) is not None:
        yield _towards(most)
    if (most := summary.epsilon_at_parties) is not None:
        parties = min(summary.parties_per_unit, len(summary.parties))
        yield _at_parties(most, summary.unit, parties)


def _print_parties(console: Console, summary: RunSummary) -> None:
    count, dearest = len(summary.parties), list(summary.parties)
    if count > _PARTIES:
        dearest = sorted(dearest, key=lambda party: -party.epsilon)[:_PARTIES]
    lines = [(party.name, party) for party in dearest]
    if summary.alignment is not None:
        aligned = {party.name: party for party in summary.alignment.parties}
        lines += [(f"{name}, alignment", aligned[name]) for name, _ in lines]
    rows = []
    for name, one in lines:
        sent, received = words.size(one.bytes_sent), words.size(one.bytes_received)
        rows.append((name, words.epsilon(one.epsilon), one.releases, sent, received))
    _print_grid(console, ("party", ">ε spent", ">releases", ">sent", ">received"), rows)
    if count > _PARTIES:
        console.print(f"(the {_PARTIES} that spent most of {count})")
    if summary.overhead is not None:
        console.print(words.overhead(summary.overhead))


def print_forecast(found: StudyForecast, *, json: bool, network: bool = False) -> None:
    """What a run would take; and over a network, if asked."""
    if json:
        _print_json(found)
        return
    console = _out()
    console.print(
        f"[bold]{escape(found.study)}[/]: {escape(found.method)}, "
        f"{count_of(len(found.parties), 'party', 'parties')}"
    )
    most = f"at most {words.epsilon(found.epsilon_per_party)}"
    whom = words.whom(found.unit, found.rows_per_unit)
    bound = (f"ε of a {escape(whom)} at δ = {words.small(found.delta)}", most)
    if isinf(found.epsilon_per_party):
        bound = ("ε", "∞: nothing bounds it")
    traffic = ("bytes sent and received", f"about {words.size(found.bytes_per_party)}")
    whose = "of each party" if len(found.parties) > 1 else "of the party"
    _print_grid(console, (whose, ">"), [bound, traffic])
    whole = ("of the whole run, all parties in one process", ">")
    _print_grid(console, whole, _whole_run(found))
    _print_error_forecast(console, found.error)
    if network:
        rows = [  # what computing takes is that of this machine
            ("messages to each party", f"at most {found.messages_per_party:,}"),
            ("an engine, at 1 s a message", f"about {duration(found.seconds_on_engine)}"),
            ("sockets, at 50 ms a message", f"about {duration(found.seconds_on_sockets)}"),
        ]
        _print_grid(console, ("of the run over a network", ">"), rows)
        if found.every_step:
            console.print(escape(_ONE_ROOM))
    for note in found.notes:
        console.print(escape(f"({note})"))
    if found.columns:
        _print_grid(console, ("column", "kind", "why it was proposed"), found.columns)
    console.print(f"guarantee: {found.guarantee}; trust: {found.trust}")
    if found.finished:
        console.print("This run has finished; running it again releases nothing.")
    elif found.resumes:
        console.print(
            f"This run began before: {found.resumes} releases are paid for, and it continues "
            "from there."
        )
    for warning in found.warnings:
        console.print(f"[yellow]look at this first:[/] {escape(warning)}")
    if found.rows is None:
        console.print("No row was counted and nothing was written.")
        return
    _print_rows(console, found.rows)


def _print_error_forecast(console: Console, error: ErrorForecast | None) -> None:
    """What epsilon buys: how far shares, pairs and means are expected to be from the rows."""
    if error is None:
        return
    heads = (f"expected error, for {error.rows:,} rows", ">noise", ">drawing rows")
    share, drawn, pair, pair_drawn = map(
        words.points, (error.share, error.share_drawn, error.pair, error.pair_drawn)
    )
    lines = [
        ("of a share in one column", f"± {share}", f"± {drawn}"),
        ("of a share in a table of two columns", f"± {pair}", f"± {pair_drawn}"),
        ("rows in a wrong category or bin of a column", f"{error.wrong:.1%}", ""),
        ("tables of two columns that are measured", f"about {error.pairs_measured:,}", ""),
    ]
    _print_grid(console, heads, lines)
    worst = sorted(error.columns, key=lambda one: -one.share * one.codes)[:_COLUMNS]
    noisiest = [
        (
            one.name,
            f"{one.codes:,}",
            f"± {words.points(one.share)}",
            f"{min(1.0, one.share * one.codes / 2):.1%}",
            "" if one.mean is None else f"± {one.mean:.3g}",
        )
        for one in worst
    ]
    title = "column" if len(worst) == len(error.columns) else f"the {_COLUMNS} noisiest columns"
    _print_grid(console, (title, ">codes", ">a share", ">rows misplaced", ">the mean"), noisiest)


def _print_rows(console: Console, rows: RowsRead) -> None:
    """What the parties' rows show, beside each other."""
    for line in (*rows.overlaps, *rows.misfits):
        console.print(f"[yellow]look at this first:[/] {escape(line)}")
    if rows.differences:
        lines = []
        for one in rows.differences:
            held: dict[str, list[str]] = {}
            for party, text in one.held.items():
                held.setdefault(text, []).append(party)
            first = (one.column, one.what)
            for text, parties in held.items():
                lines.append((*first, listed(parties, 3), text))
                first = ("", "")
            lines.append(("", "", "", f"→ {one.advice}"))
        _print_grid(console, ("column", "what differs", "party", "holds"), lines)
    counts = ", ".join(f"{name} {count:,}" for name, count in rows.count.items())
    clean = "" if rows.overlaps or rows.misfits or rows.differences else ", and nothing is odd"
    console.print(f"Rows were read here{clean}: {escape(counts)}. Nothing was written.")
    if not clean:
        console.print("These lines show values of rows: for those who may see every file alone.")


def _whole_run(found: StudyForecast) -> Iterator[tuple[str, str]]:
    known = found.seconds is not None
    yield "memory", f"about {words.size(found.memory_mb * 1e6)}"
    yield "time", f"about {duration(found.seconds or 0)}" if known else "not known"
    yield "questions, one after the other", f"at most {found.rounds:,}"
    if found.alignment is not None:
        yield "rounds of the alignment before", f"about {found.alignment.rounds}"
        size = words.size(found.alignment.bytes_leader)
        yield "bytes of it at the party that leads", f"about {size}"
    if found.largest_query is not None:
        yield "queries in the workload", f"{found.workload_queries:,}"
        yield "cells of these and all queries inside them", f"{found.workload_cells:,}"
        beyond = "more than " if found.domain_cells == float_info.max else ""
        yield "cells of the whole table", f"{beyond}{found.domain_cells:.3g}"
        yield "largest query", ", ".join(found.largest_query)


_ONE_ROOM = (
    "There is a question at every gradient step: this method is for parties in one machine room, "
    "over sockets."
)


def print_plan(
    plan: Plan,
    folder: Path,
    data: str | None,
    refusal: str,
    known: Mapping[str, str],
    *,
    json: bool,
) -> None:
    """Every message of a study to and from a party, what its policy says, and what approves it.

    `known` says of each key whether earlier studies had it; `data` names the party's rows.
    """
    if json:
        _print_json({**plan.shown, "digest": plan.digest, "refusal": refusal, "known_keys": known})
        return
    console, facts = _out(), plan.facts
    console.print(
        f"[bold]{escape(facts['study']['name'])}[/] at party {escape(plan.party)}: "
        f"{escape(facts['method']['name'])}, siloweave {facts['siloweave']}"
    )
    heads = ("stage", "question", ">at most", "reply", "protected by", "in the ledger")
    _print_grid(console, heads, map(_planned, plan.messages))
    bound = "∞: nothing bounds it" if isinf(plan.epsilon) else f"at most {plan.epsilon:g}"
    others = list(plan.stated)[1:]
    results = " and the results" if plan.brings_results else ""
    rows = [
        ("messages to this party", f"at most {plan.count:,}"),
        (f"ε of a {_whom_in(facts)} at δ = {words.small(plan.delta)}", bound),
        *((f"ε {whose}", f"at most {words.epsilon(plan.stated[whose])}") for whose in others),
        ("bytes sent and received", f"about {words.size(plan.size)}{results}"),
        ("time over an engine, at 1 s a message", f"about {duration(plan.lasts(ENGINE_S))}"),
        ("time over sockets, at 50 ms", f"about {duration(plan.lasts(SOCKET_S))}"),
    ]
    _print_grid(console, ("in all", ">"), rows)
    seen = [(one.who, one.sees, one.protected_by) for one in plan.sees]
    _print_grid(console, ("who", "sees", "protected by"), seen)
    _print_grid(console, ("what you say yes to", "value"), _settled(plan))
    console.print(escape(f"guarantee: {plan.guarantee}"))
    console.print(escape(f"columns of your rows that it uses: {', '.join(plan.columns)}"))
    given = [f"{n} = {msgspec.json.encode(v).decode()}" for n, v in plan.reading.items()]
    if given:
        given += ["as study.toml in this folder says: correct it there if your file is not so"]
    said = ", ".join(given) or "what is decided from the file alone"
    console.print(escape(f"your text file is read with {said}"))
    for name, key in facts.get("keys", {}).items():
        experience = f" ({known[name]})" if name in known else ""
        console.print(escape(f"key of {name}: {fingerprint(b64decode(key))}{experience}"))
    if names := facts.get("keys_made_here"):
        console.print(f"[bold red]the coordinator made the keys of {escape(', '.join(names))}:[/] ")
        console.print(
            "it can sign as they do, read what is sealed to them, and take off the masks that hide "
            "your sums behind theirs"
        )
    if refusal:
        console.print(f"[bold red]refused:[/] {escape(refusal)}")
        return
    call = f"siloweave party approve {_quoted(folder)} {plan.digest}"
    if data is not None and Path(data).resolve().is_relative_to(folder.resolve()):
        call += f" --data {_quoted(Path(data))}"  # else it would be a file of somebody else
    console.print(f"The policy here allows it. To approve exactly this: [bold]{call}[/]")


def _settled(plan: Plan) -> Iterator[tuple[str, str]]:
    """All facts and settings of a study that an approval holds for, but for keys and messages."""
    facts = plan.facts
    yield "trust", plan.trust
    least = "takes no sum over parties" if plan.smallest_cohort is None else plan.smallest_cohort
    yield "smallest_cohort: parties of a sum, at least", str(least)
    for name, value in (*plan.budget.items(), *plan.settings.items()):
        yield name, _value(value)
    for name in ("parties", "alignment", "learn", "seed"):
        yield name, _value(facts[name])
    for name, value in facts["study"].items():
        yield f"study.{name}", _value(value)
    columns = facts["schema"]["columns"]
    digest = blake2b(msgspec.json.encode(facts["schema"], order="sorted"), digest_size=8)
    yield "schema", f"{count_of(len(columns), 'column', 'columns')}, {digest.hexdigest()}"


def _value(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def print_account(found: AccountView, *, json: bool) -> None:
    """What a party's studies may cost in all, line by line, and what its policy leaves."""
    if json:
        _print_json(found)
        return
    console = _out()
    console.print(f"account of the party in {escape(found.folder)}, key {found.fingerprint}")
    notes = {"study": "", "more": ", which asked for more", "stated": "stated by the owner"}
    lines = [
        (entry.time[:10], f"{entry.study}{notes[entry.kind]}", words.epsilon(entry.cost.epsilon),
         words.small(entry.delta) if entry.delta else "0")
        for entry in found.entries
    ]  # fmt: skip
    total = words.epsilon(found.epsilon), words.small(found.delta) if found.delta else "0"
    _print_grid(console, ("date", "study", ">ε at most", ">δ"), [*lines, ("", "in all", *total)])
    if found.epsilon_left is not None and found.delta_left is not None:
        left = words.epsilon(found.epsilon_left), words.small(found.delta_left)
        console.print(f"policy.toml leaves ε = {left[0]} of a row at δ = {left[1]}")
    if not found.trouble:
        return
    print_warning(found.trouble)
    if found.proposal is not None:
        epsilon, delta = found.proposal
        console.print(
            "By what is known here, this was spent besides: "
            f"[bold]--spent-since {epsilon:g} --delta {delta:g}[/]. State more if rows were used "
            "elsewhere."
        )


def _whom_in(facts: Mapping[str, Any]) -> str:
    """What a study protects, by its public facts."""
    budget = facts["budget"] or {}
    whom = words.whom(budget.get("unit", "row"), budget.get("rows_per_unit"))
    if (parties := budget.get("parties_per_unit", 1)) > 1:
        whom += f", which may have rows at {parties} parties,"
    return escape(whom)


def _planned(one: PlannedMessage) -> tuple[str, ...]:
    """A line of a plan."""
    protected = dict.fromkeys(field.protected_by for field in one.fields)
    question, why = f"{one.asks} ({one.tag})", "; ".join(protected)
    times = f"{one.times:,}" if one.times else "with the last"
    times = f"about {times}" if one.guessed else times
    return one.stage, question, times, one.replies, why, one.ledger


def print_status(found: CoordinatorStatus | PartyStatus) -> None:
    """How far a study is, at one of its ends."""
    if isinstance(found, PartyStatus):
        _print_at_party(found)
    else:
        _print_at_coordinator(found)


def _print_at_coordinator(found: CoordinatorStatus) -> None:
    console = _out()
    console.print(f"[bold]{escape(found.study)}[/] at the coordinator: {escape(found.state)}")
    left = "not known" if found.left is None else f"at most {duration(found.left)}"
    bound = "ε = ∞" if isinf(found.epsilon) else f"ε = {words.epsilon(found.epsilon)}"
    if found.question:
        at = f"{found.question}, step {found.step} of stage {found.stage}"
        console.print(escape(f"{at}; question {found.questions} of at most {found.at_most}"))
    console.print(f"{duration(found.seconds)} so far; left at this pace: {left}")
    console.print(f"a row costs at most {bound} at δ = {words.small(found.delta)}")
    heads = ("party", ">answers", ">sent", ">received", ">payments", "now")
    lines = []
    for one in found.parties:
        awaited = "" if one.waited is None else f"awaited for {duration(one.waited)}"
        sizes = words.size(one.bytes_sent), words.size(one.bytes_received)
        lines.append((one.name, one.messages, *sizes, one.payments, one.refused or awaited))
    _print_grid(console, heads, lines)


def _print_at_party(found: PartyStatus) -> None:
    console = _out()
    most = "" if found.at_most is None else f" of at most {found.at_most:,}"
    quiet = "" if found.quiet is None else f", the last {duration(found.quiet)} ago"
    state = f"{found.state} at {found.ended}" if found.ended else found.state
    state += f": {found.why}" if found.why else ""
    console.print(f"[bold]{escape(found.study)}[/] at party {escape(found.party)}: {escape(state)}")
    console.print(f"{count_of(found.answered, 'question', 'questions')}{most} answered{quiet}")
    console.print(
        f"ε of a row by the ledger: {words.epsilon(found.epsilon)} of "
        f"{words.epsilon(found.allowed)} at δ = {words.small(found.delta)}, "
        f"{count_of(found.releases, 'release', 'releases')}"
    )
    if found.run:
        console.print(escape(f"last paid: step {found.step} of {found.run}"))
    left = "not known" if found.left is None else f"at most {duration(found.left)}"
    console.print(f"{words.size(found.received)} received and {words.size(found.sent)} sent")
    console.print(
        f"{duration(found.computing)} of its own computing and "
        f"{duration(found.sealing)} of sealing, opening and signing; nobody is sent that"
    )
    console.print(f"answers that are kept: {words.size(found.stored)}; left at this pace: {left}")
    if found.unexpected:
        console.print(
            f"[bold red]unexpected in its folder:[/] {escape(first_few(found.unexpected))}"
        )
        console.print("the party does not start beside that; its rows are named by --data")


def print_proposal(proposal: Proposal, paths: Sequence[Path], *, json: bool) -> None:
    """What `init` wrote, and which facts must be reviewed."""
    study, schema = (str(path) for path in paths)
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
    taken = dict(proposal.review)
    width = get_terminal_size().columns
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="bold", width=width)
    grid.add_column("column", overflow="fold", max_width=width // 4)
    grid.add_column("kind", no_wrap=True)
    grid.add_column("why", overflow="fold", ratio=1)
    for column in proposal.schema.columns:
        facts = taken.get(column.name, "")
        lines = [escape(column.why), f"[dim]from rows: {escape(facts)}[/]" if facts else ""]
        grid.add_row(escape(column.name), column.kind, "\n".join(filter(None, lines)))
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
    """Verified ledgers; with their entries if asked, or if there is only one."""
    if json:
        _print_json(trail)
        return
    console = _out()
    rows = []
    for one in trail.ledgers:
        chain = f"whole ({one.note})" if one.note else "whole"
        spent = words.epsilon(one.epsilon)
        rows.append((_owner(one), len(one.entries), spent, chain, one.file))
    bound = f">ε at δ = {words.small(trail.delta)}"
    _print_grid(console, ("party", ">entries", bound, "chain", "file"), rows)
    if trail.whole_row is not None and trail.split == "columns":
        console.print(f"A row lies at every party: ε = {words.epsilon(trail.whole_row)} in all.")
    if trail.to_parties is not None:
        console.print(_towards(trail.to_parties))
    if trail.whole_row is not None and trail.whom != "row":
        console.print(f"Each ε is that of one {escape(trail.whom)}.")
    if trail.at_parties is not None:
        whose = escape(trail.whom.partition(" ")[0])
        most = words.epsilon(trail.at_parties)
        console.print(f"For a {whose} with rows at as many parties as the study says: ε = {most}")
    if any(ledger.stage == "alignment" for ledger in trail.ledgers):
        console.print("No ε covers the alignment, which found the rows that all parties have.")
    if entries or len(trail.ledgers) == 1:
        for ledger in trail.ledgers:
            _print_entries(console, ledger)
    else:
        console.print("--party NAME shows every entry.")
    console.print("Every ledger's signature was checked, and ε recomputed from the events.")
    _print_compared(console, trail.ledgers)


def _print_compared(console: Console, ledgers: Sequence[Reading]) -> None:
    """What ledgers were compared with; a file alone cannot show that it was written anew."""
    for compared in dict.fromkeys(ledger.compared for ledger in ledgers):
        named = [_owner(one) for one in ledgers if one.compared == compared]
        those = "" if len(named) == len(ledgers) else escape(f" ({'; '.join(named)})")
        if compared:
            console.print(f"Compared with {escape(' and '.join(compared))}{those}.")
        else:
            console.print(
                f"[yellow]Compared with nothing{those}:[/] no key and no hash of it was kept here. "
                "Ask the owner for the public key, and compare it with the one in line 1."
            )


def _print_entries(console: Console, ledger: Reading) -> None:
    rows = []
    for line in ledger.entries:
        cost = "∞" if line.rho is None else f"{line.rho:.3g}"
        rows.append((line.index, line.step, line.what, line.to, _event(line.event), cost))
    _print_grid(console, (">#", "step", "what", "to", "mechanism", ">ρ"), rows)
    console.print(f"last line of {escape(_owner(ledger))}: {ledger.head}")
    console.print(f"signed with the key {fingerprint(ledger.key)}")


def _owner(ledger: Reading) -> str:
    return ledger.party + (", alignment" if ledger.stage == "alignment" else "")


def _event(event: Mapping[str, Any]) -> str:
    if "reason" in event:
        return f"no noise: {event['reason']}"
    facts = (
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in event.items()
        if name != "type" and (name, value) != ("count", 1)
    )
    return f"{str(event['type']).replace('_', ' ')}: {', '.join(facts)}".replace("_", " ")


def print_methods(methods: Mapping[str, Any], *, json: bool) -> None:
    """Every method."""
    if json:
        _print_json(methods)
        return
    heads = ("split", "family", "guarantee", "trust", "paper")
    rows = [(name, *(getattr(info, head) for head in heads)) for name, info in methods.items()]
    _print_grid(_out(), ("name", *heads), rows)


def _print_grid(console: Console, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
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
    longest_words = [max(map(cell_len, " ".join(column).split()), default=0) for column in columns]
    available = max(width - _GAP * (len(columns) - 1), len(columns))
    while sum(widths) > available:
        wrapped = [i for i in range(len(columns)) if widths[i] > longest_words[i]]
        widest = max(wrapped or range(len(columns)), key=lambda place: (widths[place], place))
        widths[widest] -= 1
    return widths


def _quoted(path: Path) -> str:
    return escape(quote(str(path)))
