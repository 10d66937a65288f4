"""Write docs/reference/commands.md from the command line.

python tools/commands_page.py
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer

from siloweave.app.cli import app

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "commands.md"
HEAD = """# Commands

<!-- tools/commands_page.py writes this page from the command line: change that. -->

Every command with its options, as `siloweave COMMAND --help` prints them. [A first
study](../guides/first-study.md) shows the first of them one after the other, and [between
organisations](../guides/between-organisations.md) those of a coordinator and a party.

Results go to standard output, everything else to standard error; `--json` makes the result JSON.

| exit code | meaning | what a script can do |
|---|---|---|
| 0 | done | go on |
| 1 | a fault of siloweave's own | report it |
| 2 | what was given cannot be used, or a party did not answer | correct it, or start again |
| 3 | a study is refused: by a policy, not approved, or not as begun | ask the party's owner |
| 4 | ε is spent, or a budget is not valid | ask for less, or agree on a new study |
| 5 | a ledger, an account or a message was altered, or is not whole | look at it first |
| 130 | Ctrl-C | start the same command again: it continues |

Several studies of one `party start` that end with different codes end it with 2.
"""


def commands(group: Any, above: str = "siloweave") -> Iterator[tuple[str, Any]]:
    """Every command below a group, with all its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{above} {name}")
        else:
            yield f"{above} {name}", command


def described(words: str, command: Any) -> str:
    """A command's part of the page."""
    hints = get_type_hints(inspect.unwrap(command.callback))
    shown = [one for one in command.params if not one.hidden]
    positional = [one for one in shown if not one.opts[0].startswith("-")]
    options = [one for one in shown if one not in positional]
    usage = [words]
    for one in positional:
        value = _value(one) + ("..." if one.nargs == -1 else "")
        usage.append(value if one.required else f"[{value}]")
    usage += [f"{one.opts[0]} {_value(one)}" for one in options if one.required]
    text = f"\n## {words}\n\n{command.help}\n\n```\n{' '.join(usage)} [options]\n```\n\n"
    text += "| argument or option | meaning | if absent |\n|---|---|---|\n"
    for one in positional + options:
        names = [*one.opts, *one.secondary_opts] if one in options else [_value(one)]
        value = "" if one in positional or one.is_flag else f" {_value(one)}"
        hint, meaning = hints[one.name], one.help
        if get_origin(hint) is Literal:
            meaning += f" One of {', '.join(f'`{choice}`' for choice in get_args(hint))}."
        text += f"| `{', '.join(names)}{value}` | {meaning} | {_absent(one)} |\n"
    return text


def _value(one: Any) -> str:
    return str(one.metavar or one.name.upper().replace("_", "-"))


def _absent(one: Any) -> str:
    if one.required:
        return "must be given"
    if one.default in (None, "") or getattr(one, "is_flag", False):
        return ""
    return "this folder" if one.default == Path() else f"`{one.default}`"


def page() -> str:
    """The page, for the commands that there are now."""
    group = typer.main.get_command(app)
    return HEAD + "".join(described(words, command) for words, command in commands(group))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
