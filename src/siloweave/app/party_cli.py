"""`siloweave party`: the commands of a party's owner; and `siloweave status`, at either end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from siloweave.app.options import AsJson, EndFolder, reported

#: Commands below ``siloweave party``.
party = typer.Typer(
    name="party",
    help="One party of a study: its rows, keys, ledger and policy.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PartyFolder = Annotated[
    Path, typer.Option("--folder", "-f", help="The party's folder.")
]
_ROWS_HELP = "The party's rows: a file, or a database's address#table."
Rows = Annotated[str | None, typer.Option("--data", help=_ROWS_HELP)]


@party.command()
@reported()
def policy(folder: PartyFolder = Path(), json: AsJson = False) -> None:
    """Write policy.toml, which says what this party allows, or check the one that is there."""
    from siloweave.app.console import print_result
    from siloweave.app.policy import POLICY_FILE, read_policy, write_policy

    file = folder / POLICY_FILE
    is_new = not file.exists()
    if is_new:
        write_policy(folder)
    read_policy(folder)
    text = f"Wrote {file}: read it, and change it" if is_new else f"{file} can be used"
    print_result({"policy": str(file), "written": is_new}, text, json=json)


@party.command()
@reported()
def account(
    folder: PartyFolder = Path(),
    backup: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a copy of it here.")
    ] = None,
    restore: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Put a copy back, where none or a shorter one is."
        ),
    ] = None,
    spent_since: Annotated[
        float | None,
        typer.Option(
            metavar="EPSILON",
            help="Say what was spent besides, where that is not known: 0 for nothing, or inf.",
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="The delta that goes with it.")] = 0.0,
    json: AsJson = False,
) -> None:
    """Show what all studies of this party may cost, and what its policy leaves for others.

    Its key and account lie in one folder. An account that is gone, or may be an old copy, is not
    used until its owner says what was spent besides, by --spent-since.
    """
    from siloweave.app import account as accounts
    from siloweave.app.console import print_account, print_note
    from siloweave.app.network import account_in
    from siloweave.errors import InputError
    from siloweave.privacy.ledger import KEY_FILE, Identity

    actions = (backup, restore, spent_since)
    wanted = [action for action in actions if action is not None]
    if len(wanted) > 1:
        raise InputError("give --backup, --restore or --spent-since, one at a time")
    if not (folder / KEY_FILE).exists():
        raise InputError(
            f"{folder}: there is no {KEY_FILE}: name the party's folder with --folder, or make "
            "its key with `siloweave party key`"
        )
    identity = Identity.load(folder / KEY_FILE)
    if backup is not None:
        accounts.back_up(folder, identity, backup)
        print_note(f"Wrote {backup}: a copy of the account")
    elif restore is not None:
        accounts.restore(folder, identity, restore)
        print_note(f"Wrote {folder / accounts.ACCOUNT_FILE}: as in {restore}")
    elif spent_since is not None:
        accounts.state_spent(folder, identity, spent_since, delta)
    print_account(account_in(folder), json=json)


@party.command()
@reported()
def plan(folder: EndFolder = Path(), data: Rows = None, json: AsJson = False) -> None:
    """Show every message that a study will send, and what each enters in the ledger."""
    from siloweave.app.console import print_plan, print_warning
    from siloweave.app.network import (
        counted_twice,
        header_in,
        known_keys,
        member,
        plan_in,
        refusal_in,
    )
    from siloweave.app.party_files import require_known_files
    from siloweave.tables.database import Database, source_of
    from siloweave.tables.queries import query_warnings

    # Refuses a folder that is no party's, and says what is missing there.
    member(folder)
    require_known_files(folder, data)
    if data is None:
        print_warning(
            "bytes and times below are those of few rows; --data gives those of yours"
        )
    else:
        source = source_of(data)
        if isinstance(source, Database):
            for sentence in query_warnings(source):
                print_warning(sentence)

    plan = plan_in(folder, data)
    refusal = refusal_in(folder)
    warning = "" if refusal else counted_twice(folder)
    if warning:
        print_warning(warning)
    key_notes = known_keys(folder)
    header = header_in(folder, data) if data is not None else None
    print_plan(plan, folder, data, refusal, key_notes, header, json=json)


@party.command()
@reported()
def check(
    folder: EndFolder,
    data: Annotated[str, typer.Option("--data", help=_ROWS_HELP)],
    json: AsJson = False,
) -> None:
    """Read the rows here, and name what the study's schema does not allow.

    Nothing is sent, and nothing is written. What is shown has values of rows.
    """
    from siloweave.app.console import print_party_rows
    from siloweave.app.network import check_rows_in, member
    from siloweave.app.party_files import require_known_files

    # Another end's folder is refused as such, before its files are.
    member(folder)
    require_known_files(folder, data)
    rows = check_rows_in(folder, data)
    print_party_rows(rows, json=json)


@party.command()
@reported()
def approve(
    folder: EndFolder,
    digest: Annotated[
        str, typer.Argument(help="What `siloweave party plan` printed last.")
    ],
    data: Annotated[
        str | None,
        typer.Option("--data", help="The party's rows, where their file is in FOLDER."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Say yes to a plan; a study that differs from it in anything needs a new yes."""
    from siloweave.app.console import print_result
    from siloweave.app.network import member, plan_in
    from siloweave.app.party_files import require_known_files
    from siloweave.app.plan import approve as store

    _, _, _, identity, _ = member(folder)
    # A yes is for a folder that can be started.
    require_known_files(folder, data)
    plan = plan_in(folder)
    file = store(folder, plan, digest, identity)
    text = f"Approved; party {plan.party!r} will take part in exactly this ({file})"
    print_result({"approved": plan.digest, "file": str(file)}, text, json=json)


@reported()
def status(
    folder: EndFolder = Path(),
    data: Rows = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again and again until it ends.")
    ] = False,
    page: Annotated[
        bool,
        typer.Option(
            "--page", help="Show that as a page that only this machine serves."
        ),
    ] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="How often, with either of these.")
    ] = 2.0,
    port: Annotated[
        int, typer.Option(help="Where the page is served; 0 takes a free port.")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    json: AsJson = False,
) -> None:
    """Show how far a study between organisations is, at the coordinator or at a party.

    With --watch or --page it ends when the run does, with the exit code that this had; or by
    Ctrl-C, with 130. Nothing but a file of facts is written.
    """
    from siloweave.app.watch import now, show_page, watch_terminal

    if page or watch:
        from siloweave.errors import InputError, number

        number("--every", every, 0.1, 86_400)
        if page and (watch or json):
            raise InputError(
                "--page goes without --watch and --json; leave out one or the other"
            )
        if page:
            code = show_page(folder, data, every, port, browser=browser)
        else:
            code = watch_terminal(folder, data, every, json=json)
        raise typer.Exit(code)

    study_status = now(folder, data)
    if json:
        import msgspec

        from siloweave.report.record import spelled

        encoded = msgspec.json.encode(spelled(study_status))
        typer.echo(msgspec.json.format(encoded, indent=2))
    else:
        from siloweave.app.console import print_status

        print_status(study_status)
