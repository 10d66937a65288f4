"""The benchmark tables: what each is, where it is on this machine, and what to do where it is not.

`datasets.json` lists them. Adult comes with the package; every other table is a Parquet file in one
folder, which fetch.py makes. The folder is `--data`, else what the variable SILOWEAVE_DATA names,
else `../shared/data` beside the checkout where that is, else `benchmarks/data`.

The digest of a table is a SHA-256 of its cells as the package reads them, so the same table has the
same digest in every file format. For each column in order it takes the name, a line feed, a byte
for every row that says whether the cell is missing, and then the cells: numbers as little-endian
64-bit floats, 0 where missing; words in UTF-8, each followed by a line feed, none where missing.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import siloweave as sw
from siloweave.datasets import adult

HERE = Path(__file__).parent
FACTS: dict[str, dict[str, Any]] = json.loads((HERE / "datasets.json").read_text())
OWN = HERE / "data"  # where fetch.py writes
PACKAGED = "adult"


def folder() -> Path:
    """Return the folder in which tables are looked for where no `--data` names one."""
    named = os.environ.get("SILOWEAVE_DATA")
    if named:
        return Path(named)
    beside = HERE.parent.parent / "shared" / "data"
    return beside if beside.is_dir() else OWN


def add_data(parse: argparse.ArgumentParser) -> None:
    """Add the argument `--data`."""
    parse.add_argument(
        "--data", type=Path, default=folder(), help="folder of the tables that fetch.py makes"
    )


def facts(name: str) -> dict[str, Any]:
    """Return what is known of a table: its target, task, and each column's kind."""
    return FACTS[name]


def is_there(name: str, data: Path) -> bool:
    """Whether a table can be read without any more ado."""
    return name == PACKAGED or (data / f"{name}.parquet").is_file()


def present(names: Iterable[str], data: Path) -> list[str]:
    """Return those of these tables that can be read; say in a sentence which cannot.

    Ends the program, with status 1, where none of them can.
    """
    asked = list(dict.fromkeys(names))
    missing = [name for name in asked if not is_there(name, data)]
    if missing:
        told = (
            f"not in {data}: {', '.join(missing)}. `python benchmarks/fetch.py NAME` says how to "
            "get one, and --data names another folder; Adult comes with the package."
        )
        if len(missing) == len(asked):
            raise SystemExit(f"Nothing was run. Tables that are {told}")
        print(f"Left out, since they are {told}", file=sys.stderr, flush=True)
    return [name for name in asked if name not in missing]


def read(name: str, data: Path) -> sw.Table:
    """Read a table from its file in a folder, or Adult from the package.

    Ends the program with a sentence where it is not there.
    """
    present([name], data)
    file = data / f"{name}.parquet"
    return sw.read(file) if file.is_file() else adult()


def require_path(path: Path, what: str) -> None:
    """End the program with a sentence where a peer's environment or checkout is not there."""
    if not path.exists():
        raise SystemExit(
            f"Nothing was run: {what} is not at {path}. The head of the script says how to make it."
        )


def require_module(name: str, extra: str) -> None:
    """End the program with a sentence where an optional package is not installed."""
    if importlib.util.find_spec(name) is None:
        raise SystemExit(
            f"Nothing was run: {name} is not installed. Install it with "
            f"`pip install '.[{extra}]'` in the clone."
        )


def digest(table: sw.Table) -> str:
    """Return the SHA-256 of a table's cells, as this module's docstring defines it."""
    found = hashlib.sha256()
    for name in table.names:
        values, missing = table.values(name), table.missing(name)
        found.update(f"{name}\n".encode())
        found.update(missing.astype(np.uint8).tobytes())
        if values.dtype.kind in "biuf":
            found.update(np.where(missing, 0, values).astype("<f8").tobytes())
        else:
            words = ("" if gap else str(value) for value, gap in zip(values, missing, strict=True))
            found.update("".join(f"{word}\n" for word in words).encode())
    return found.hexdigest()
