"""Run a small study on Adult and write its pages into build/examples, for the site.

python tools/example_pages.py    # `make docs` calls it before it builds the site

The pages are made anew with the site and not stored, so they are never older than the program.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import siloweave as sw
from siloweave.app.cli import main as siloweave
from siloweave.datasets import adult, adult_schema
from siloweave.tables.write import write

FOLDER = Path(__file__).parent.parent / "build" / "examples"
PAGES = ("report.html", "owners-report.html", "score.html", "attack.html")
PARTIES = ("north", "east", "south")

STUDY = """\
[study]
name = "example"

[schema]
file = "schema.json"

[budget]
epsilon = 1.0
delta = 1e-6

[method]
name = "two_round"

[output]
run_by = "an example, nobody signs"
"""
PARTY = """
[[parties]]
name = "{name}"
data = "{name}.csv"
"""


def write_study(folder: Path) -> None:
    """Write the study, its schema and its tables.

    A fifth of Adult's rows is spread over three parties, like rows together. Another fifth is held
    out: scores and attacks compare with it.
    """
    rows, holdout, *_ = sw.split_rows(adult(), 5, by="iid", seed=0)
    write(rows, folder / "rows.csv")
    write(holdout, folder / "holdout.csv")

    tables = sw.split_rows(rows, len(PARTIES), by="clusters", method="pca", seed=0)
    for name, table in zip(PARTIES, tables, strict=True):
        write(table, folder / f"{name}.csv")

    (folder / "schema.json").write_text(adult_schema().to_json(), "utf-8")
    parties = "".join(PARTY.format(name=name) for name in PARTIES)
    (folder / "study.toml").write_text(STUDY + parties, "utf-8")


def run(*words: str | Path) -> None:
    """Run one command without what it prints, and stop if it fails."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = siloweave([str(word) for word in words])
    if code != 0:
        raise SystemExit(f"siloweave {words[0]} failed, so there are no example pages")


def main() -> None:
    """Run the study, score and attack its table, and store the four pages."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_study(folder)
        real, synthetic = folder / "rows.csv", folder / "run" / "synthetic.csv"
        holdout, schema = folder / "holdout.csv", folder / "schema.json"
        score, attack = folder / "score.html", folder / "attack.html"

        run("run", folder)
        run("score", real, synthetic, "--holdout", holdout, "--schema", schema, "-o", score)
        run("attack", real, synthetic, "--control", holdout, "--schema", schema, "-o", attack)

        run_folder = folder / "run"
        made = (run_folder / "report.html", run_folder / "report-owner.html", score, attack)
        FOLDER.mkdir(parents=True, exist_ok=True)
        for source, page in zip(made, PAGES, strict=True):
            shutil.copyfile(source, FOLDER / page)


if __name__ == "__main__":
    main()
