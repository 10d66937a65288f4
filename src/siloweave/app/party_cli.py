"""`siloweave party`: the commands of a party's owner."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from siloweave.app.options import AsJson, reported

#: Commands below ``siloweave party``.
party = typer.Typer(name="party", help="One party of a study: its rows, keys, ledger and policy.")

PartyFolder = Annotated[Path, typer.Option("--folder", "-f", help="The party's folder.")]


@party.command()
@reported()
def policy(folder: PartyFolder = Path(), json: AsJson = False) -> None:
    """Write policy.toml, which says what this party allows, or check the one that is there."""
    from siloweave.app.console import print_result
    from siloweave.app.policy import POLICY_FILE, read_policy, write_policy

    file, new = folder / POLICY_FILE, not (folder / POLICY_FILE).exists()
    if new:
        write_policy(folder)
    read_policy(folder)
    text = f"Wrote {file}: read it, and change it" if new else f"{file} can be used"
    print_result({"policy": str(file), "written": new}, text, json=json)
