"""The command line.

Exit codes: 0 done; 2 something cannot be used; 3 a study is refused; 4 a budget is spent or not
valid; 5 a ledger or a message was altered; 130 interrupted; 1 a bug of ours. Results go to standard
output, everything else to standard error.
"""

from __future__ import annotations

import inspect
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from warnings import catch_warnings, filterwarnings

import typer
from typer.core import TyperArgument, TyperCommand
from typer.models import ParameterInfo

import siloweave
from siloweave.app import network_cli
from siloweave.app.options import AsJson, StudyFile, reported, stopped
from siloweave.app.party_cli import party, status

#: The command line as Typer sees it.
app = typer.Typer(
    name="siloweave",
    help="One synthetic table from parties that hold parts of it, every release paid for.",
    epilog="Begin with `siloweave demo`; with your own files, `siloweave init FILE`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help wraps at words; tables cut names of options that have to be typed.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(party)

Names = list[str] | None
Unit = Annotated[
    str,
    typer.Option(
        help="What is held out and counted: row, or the id column of a person."
    ),
]
SchemaFile = Annotated[
    Path | None, typer.Option(help="Kinds of the columns: a schema.json.")
]
ReportFile = Annotated[
    Path | None, typer.Option("--report", "-o", help="Write an HTML page here as well.")
]
Seed = Annotated[int, typer.Option(min=0, help="The same one gives the same result.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="All columns, however wide the table gets.")
]
_REVIEWED = "A study's folder, its study.toml, or a schema.json."
RunFolder = Annotated[Path, typer.Argument(help="A finished run's folder.")]


def keep_programs() -> None:
    """Store networks' compiled programs in the user's cache folder, for processes to come.

    A program depends on settings and sizes, holds no data, and fits this machine alone. A
    JAX_COMPILATION_CACHE_DIR that is set is used instead; with an empty one nothing is stored.
    Takes effect if JAX has not been imported yet.
    """
    variable = "LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME"
    configured = os.environ.get(variable)
    cache = Path(configured) if configured else Path.home() / ".cache"

    # A folder for each machine, as several may share one home.
    machine = platform.node() or "here"
    programs = cache / "siloweave" / f"programs-{machine}"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(programs))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Words after the program's name; those of the process if None.

    Returns:
        The exit code.
    """
    # Before a command imports JAX, which reads where programs are once.
    keep_programs()
    words = None if arguments is None else list(arguments)
    try:
        app(args=words, prog_name="siloweave")
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        # As Python itself ends: with 1 for a text, with 0 for nothing.
        return int(bool(end.code))
    except KeyboardInterrupt:
        return stopped()
    return 0


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"siloweave {siloweave.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """Make one synthetic table from parties that hold parts of it, every release paid for."""


@app.command()
@reported(releases=True)
def demo(
    folder: Annotated[Path, typer.Option(help="Where to put everything.")] = Path(
        "siloweave-demo"
    ),
    split: Annotated[
        Literal["clusters", "iid"],
        typer.Option(help="How rows are split: similar rows together, or at random."),
    ] = "clusters",
    json: AsJson = False,
) -> None:
    """Make a synthetic census table from four parties, with ledgers and a report."""
    from siloweave.app.console import print_summary
    from siloweave.app.init import prepare
    from siloweave.app.run import execute
    from siloweave.app.study import Study
    from siloweave.progress import Bar

    with Bar(quiet=json) as progress:
        study_file = prepare(folder, split=split, progress=progress)
        demo_study = Study.load(study_file)
        summary, was_finished = execute(demo_study, progress=progress)
    print_summary(summary, demo_study.folder, json=json, before=was_finished)


@app.command()
@reported()
def init(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="For each party a file, or a database's address#table.",
        ),
    ],
    folder: Annotated[Path, typer.Option(help="Where to write.")] = Path(),
    name: Annotated[
        str, typer.Option(help="The study's name; that of the folder if empty.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that are there.")
    ] = False,
    separator: Annotated[
        str | None, typer.Option(help="What divides fields of a CSV.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="A CSV's encoding, such as latin-1.")
    ] = None,
    decimal: Annotated[
        str, typer.Option(help="The mark before decimals of a CSV.")
    ] = ".",
    missing: Annotated[
        Names,
        typer.Option(
            help="A text that stands for a missing value; repeat it for more.",
            metavar="TEXT",
        ),
    ] = None,
    header: Annotated[
        bool | None, typer.Option(help="Whether line 1 has names.")
    ] = None,
    short_lines: Annotated[
        bool,
        typer.Option(
            "--short-lines", help="Whether empty fields may be left off at an end."
        ),
    ] = False,
    skip: Annotated[
        int | None, typer.Option(help="How many lines lie above the names.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Write a first study.toml and schema.json for files that you may see.

    How a CSV is written and what each column holds is decided from the files, and shown.
    """
    from siloweave.app.console import print_proposal
    from siloweave.app.init import propose, write_proposal
    from siloweave.tables.dialect import Dialect

    dialect = Dialect(
        separator=separator,
        encoding=encoding,
        header=header,
        decimal=decimal,
        missing=tuple(missing or ()),
        short_lines=short_lines,
        skip=skip,
    )
    proposal = propose(files, folder=folder, name=name, dialect=dialect)
    paths = write_proposal(proposal, folder, force=force)
    print_proposal(proposal, paths, json=json)


@app.command()
@reported()
def review(
    place: Annotated[
        Path,
        typer.Argument(metavar="STUDY_FOLDER_OR_SCHEMA", help=_REVIEWED),
    ] = Path(),
    data: Annotated[
        str | None,
        typer.Option(
            help="Rows to show pictures of: a file, or a database's address#table; if absent, "
            "the one file that the study names."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Where it is served; 0 takes a free port.")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open it in the browser.")] = True,
) -> None:
    """Show a schema column by column, to correct it, on a page that only this machine serves.

    Saving writes the same file. Ctrl-C ends the page.
    """
    from siloweave.app.pages import serve
    from siloweave.app.review import page_of, review_of

    opened_review = review_of(place, data)
    page = page_of(opened_review, port)
    serve(page, "The review", browser=browser)
    if opened_review.next_step:
        typer.echo(f"Next: {opened_review.next_step}")


@app.command()
@reported()
def check(
    study: StudyFile = Path("study.toml"),
    network: Annotated[
        bool,
        typer.Option(
            "--network", help="Also forecast messages and time over a network."
        ),
    ] = False,
    rows: Annotated[
        bool,
        typer.Option(
            "--rows",
            help="Also read the rows, if you may see them all, and show what disagrees.",
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Forecast memory, time, bytes, epsilon and error, before a row is read.

    With --rows, files are read, and compared with the schema and with each other.
    """
    from siloweave.app.check import forecast
    from siloweave.app.console import print_forecast
    from siloweave.app.study import Study

    study_forecast = forecast(Study.load(study), rows=rows)
    print_forecast(study_forecast, study, json=json, network=network)


@app.command()
@reported(releases=True)
def run(study: StudyFile = Path("study.toml"), json: AsJson = False) -> None:
    """Run a study; the same command continues a run that was cut short."""
    from siloweave.app.check import few_rows, warnings
    from siloweave.app.console import print_summary, print_warning
    from siloweave.app.run import execute, outdated
    from siloweave.app.study import Study
    from siloweave.progress import Bar

    loaded_study = Study.load(study)
    for text in (*warnings(loaded_study), *few_rows(loaded_study)):
        print_warning(text)

    # Warnings of the run are printed after its bar, which they would tear apart.
    with Bar(quiet=json) as progress, catch_warnings(record=True) as run_warnings:
        filterwarnings("always")
        # `few_rows` has printed the same above.
        filterwarnings("ignore", "the data have .* the noise is as large")
        summary, was_finished = execute(loaded_study, progress=progress)
    for warning in run_warnings:
        # Others, such as those of deprecated calls, are for programmers.
        if issubclass(warning.category, UserWarning):
            print_warning(str(warning.message))

    for text in outdated(loaded_study, summary):
        print_warning(text)
    print_summary(summary, loaded_study.folder, json=json, before=was_finished)


@app.command()
@reported()
def sample(
    run: RunFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .csv or .parquet file.")],
    rows: Annotated[
        int, typer.Option("--rows", "-n", min=1, help="How many rows.")
    ] = 1000,
    given: Annotated[
        Names,
        typer.Option(
            help="A value that all rows have; repeat it for more.",
            metavar="COLUMN=VALUE",
        ),
    ] = None,
    balanced: Annotated[
        str | None,
        typer.Option(help="A column whose classes shall be equally frequent."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option(help="Replace a file that is there already.")
    ] = False,
    missing: Annotated[
        bool, typer.Option(help="Draw missing values where the model has them.")
    ] = True,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The same one draws the same rows and ids again; without one, new ones.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Draw rows from a finished run's model; costs no privacy."""
    from siloweave.app.console import print_result
    from siloweave.app.sample import numbered_ids, open_model, parse_given
    from siloweave.core.fit import new_seed
    from siloweave.errors import InputError
    from siloweave.tables.write import write

    if out.exists() and not overwrite:
        raise InputError(
            f"{out} is there already; give --out another name, or add --overwrite"
        )
    fitted = open_model(run)
    conditions = parse_given(given or [], fitted.schema)
    used_seed = new_seed() if seed is None else seed
    table = fitted.sample_table(
        rows,
        seed=used_seed,
        given=conditions or None,
        balanced=balanced or False,
        missing=missing,
    )
    write(table, out, fitted.schema.padded)

    facts = {
        "file": str(out),
        "rows": table.num_rows,
        "private": fitted.private,
        "seed": used_seed,
    }
    text = f"{table.num_rows:,} rows in {out} (--seed {used_seed} draws them again)"
    text += numbered_ids(fitted.schema)
    print_result(facts, text, json=json)


@app.command()
@reported()
def impute(
    run: RunFolder,
    data: Annotated[
        Path, typer.Option(help="The rows: a file that has columns of the study.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .csv or .parquet file.")],
    column: Annotated[
        Names,
        typer.Option(
            help="Fill this column alone; repeat it for more.", metavar="COLUMN"
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option(help="Replace a file that is there already.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="The same one draws the same values again."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Fill missing cells of a file from a finished run's model; costs no privacy.

    Each is drawn given its row's other cells, which stay as they are. The file that is written has
    the rows that you gave: keep it where these are.
    """
    from siloweave.app.console import print_result
    from siloweave.app.sample import filled_cells, open_model
    from siloweave.core.fit import new_seed
    from siloweave.errors import InputError, count_of
    from siloweave.tables.read import read
    from siloweave.tables.write import write

    if out.exists() and not overwrite:
        raise InputError(
            f"{out} is there already; give --out another name, or add --overwrite"
        )
    if out.resolve() == data.resolve():
        raise InputError(
            f"--out {out}: is the file of --data, whose missing cells would be lost; give "
            "another name"
        )
    fitted = open_model(run)
    used_seed = new_seed() if seed is None else seed
    table = read(data, names=fitted.schema.names)
    imputed = fitted.impute_table(table, seed=used_seed, columns=column)
    filled_table = imputed.verbatim()
    cells = filled_cells(fitted.schema, table, filled_table)
    write(filled_table, out)

    facts = {
        "file": str(out),
        "rows": filled_table.num_rows,
        "filled": cells,
        "private": fitted.private,
        "seed": used_seed,
    }
    rows = f"{filled_table.num_rows:,} rows"
    text = (
        f"No cell of {rows} is missing that the model has; {out} has them as they are"
    )
    if cells:
        filled = count_of(cells, "cell", "cells")
        text = (
            f"{filled} of {rows} filled, in {out} (--seed {used_seed} draws them again)"
        )
    print_result(facts, text, json=json)


@app.command()
@reported()
def report(
    run: RunFolder,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The HTML file to write; in the run's folder if absent."
        ),
    ] = None,
    audience: Annotated[
        Literal["public", "owner"],
        typer.Option(
            help="public: only what was paid for; owner: real statistics too."
        ),
    ] = "public",
    json: AsJson = False,
) -> None:
    """Make a finished run's report again."""
    from siloweave.app.console import print_result
    from siloweave.app.run import make_report

    file = make_report(run, out, audience)
    text = f"The {audience} report is {file}"
    print_result({"file": str(file), "audience": audience}, text, json=json)


@app.command()
@reported()
def ledger(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run's folder, a party's folder of a study, or one ledger file."
        ),
    ],
    party: Annotated[
        str | None, typer.Option(help="Only this party, with every entry.")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Recompute epsilon at this delta; the run's if not given."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Verify ledgers, show what was released, and recompute epsilon from it."""
    from siloweave.app.console import print_ledgers
    from siloweave.app.ledgers import read_ledgers

    ledgers = read_ledgers(run, party=party, delta=delta)
    print_ledgers(ledgers, json=json, entries=party is not None)


@app.command()
@reported()
def score(
    real: Annotated[Path, typer.Argument(help="The rows that were learned from.")],
    synthetic: Annotated[Path, typer.Argument(help="The synthetic rows.")],
    holdout: Annotated[
        Path | None,
        typer.Option(help="Real rows that were not learned from: the ceiling."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="A column whose prediction is scored on its own too."),
    ] = None,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="Also a second detector, alpha-precision and beta-recall: slower.",
        ),
    ] = False,
    schema: SchemaFile = None,
    unit: Unit = "row",
    report: ReportFile = None,
    seed: Seed = 0,
    wide: Wide = False,
    json: AsJson = False,
) -> None:
    """Score a synthetic table, from any tool: each measure beside its ceiling and its floor."""
    from siloweave.app.comparisons import compared, print_scores
    from siloweave.app.console import print_json
    from siloweave.app.report import check_page, write_page
    from siloweave.app.study import schema_in
    from siloweave.evaluate.scoring import score as measure
    from siloweave.progress import Bar

    # Measuring takes minutes: a page that cannot be written is refused before.
    check_page(report)
    with Bar(quiet=json) as progress:
        declared = None if schema is None else schema_in(schema)
        scores = measure(
            real,
            synthetic,
            holdout=holdout,
            target=target,
            schema=declared,
            unit=unit,
            seed=seed,
            thorough=thorough,
            progress=progress,
        )
    title = f"{synthetic.name} beside {real.name}"
    page = write_page(report, title, scores=scores)
    if json:
        print_json(compared(scores, page))
    else:
        print_scores(scores, page, is_wide=wide)


@app.command()
@reported()
def attack(
    train: Annotated[Path, typer.Argument(help="The rows that were learned from.")],
    synthetic: Annotated[Path, typer.Argument(help="The synthetic rows.")],
    control: Annotated[
        Path, typer.Option(help="Real rows that were not learned from.")
    ],
    targets: Annotated[
        int, typer.Option(min=1, help="Rows, or persons, that each attack tries.")
    ] = 1000,
    only: Annotated[
        Names,
        typer.Option(help="An attack to make; repeat it for more.", metavar="ATTACK"),
    ] = None,
    known: Annotated[
        Names,
        typer.Option(
            help="A column that the attacker knows; repeat it for more.",
            metavar="COLUMN",
        ),
    ] = None,
    secret: Annotated[
        Names,
        typer.Option(
            help="A column to be guessed; repeat it for more.", metavar="COLUMN"
        ),
    ] = None,
    schema: SchemaFile = None,
    unit: Unit = "row",
    allow_overlap: Annotated[
        bool,
        typer.Option(
            "--allow-overlap",
            help="Allow control rows that are also among the training rows.",
        ),
    ] = False,
    report: ReportFile = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="The finished run that made it; its owner's report shows the result."
        ),
    ] = None,
    seed: Seed = 0,
    wide: Wide = False,
    json: AsJson = False,
) -> None:
    """Attack a synthetic table, from any tool: what it shows of the rows it was made from."""
    from siloweave.app.comparisons import compared, print_risks
    from siloweave.app.console import print_json
    from siloweave.app.report import check_page, write_page
    from siloweave.app.run import add_risks, check_attacked
    from siloweave.app.study import schema_in
    from siloweave.attacks.attack import attack as make
    from siloweave.progress import Bar

    # Attacks take minutes: what cannot be written is refused before.
    check_page(report)
    if run is not None:
        check_attacked(run, synthetic)
    with Bar(quiet=json) as progress:
        declared = None if schema is None else schema_in(schema)
        risks = make(
            train,
            synthetic,
            control=control,
            schema=declared,
            unit=unit,
            targets=targets,
            attacks=only,
            known=known,
            secret=secret,
            seed=seed,
            allow_overlap=allow_overlap,
            progress=progress,
        )
    page = write_page(report, f"Attacks on {synthetic.name}", risks=risks)
    owner_report = None if run is None else add_risks(run, risks)
    if json:
        print_json(compared(risks, page or owner_report))
    else:
        print_risks(risks, page or owner_report, is_wide=wide)


@app.command("list")
@reported()
def list_all(
    name: Annotated[
        str | None,
        typer.Argument(help="Show all about this method, by its name or its class."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show every method in a line, by what parties hold; or all about one.

    That is its guarantee, whom it trusts, who sees what, its paper and its settings.
    """
    from siloweave.app.console import print_method, print_methods
    from siloweave.app.study import about_method, listed

    if name is None:
        print_methods(listed(), json=json)
        return
    print_method(about_method(name), json=json)


network_cli.add_to(app)
app.command()(status)


class _Command(TyperCommand):
    """A command whose help does not show Python types, such as ``list[str]``, of arguments."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; Typer asks each argument for the type that it shows."""
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                vars(parameter)["display_type_rich"] = _no_type
        super().format_help(ctx, formatter)


def _no_type(ctx: Any) -> None:
    """Return no type for an argument."""


def _name_values(command: Callable[..., object]) -> None:
    """Let help show a value by its option's name, such as FOLDER, and not by its Python type."""
    function = inspect.unwrap(command)
    hints = get_type_hints(function, include_extras=True)
    for name, hint in hints.items():
        parts = get_args(hint)
        # Help lists the choices of a Literal by itself.
        if not parts or get_origin(parts[0]) is Literal:
            continue
        for parameter in parts[1:]:
            if isinstance(parameter, ParameterInfo) and parameter.metavar is None:
                parameter.metavar = name.upper().replace("_", "-")
    # Typer would evaluate their texts anew, without these names.
    function.__annotations__.update(hints)


# Otherwise the lists of commands cut their sentences in the middle.
for _command in (*app.registered_commands, *party.registered_commands):
    _command.cls = _Command
    if _command.callback is not None:
        _name_values(_command.callback)
    _help = inspect.getdoc(_command.callback) or ""
    _command.short_help = _help.partition("\n")[0]
