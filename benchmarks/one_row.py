"""One row more in a file: can it be told from what a run gives, and what does reading cost?

Run: ``python benchmarks/one_row.py audit`` fits every private family to two files that differ by
one row, a hundred times each; ``python benchmarks/one_row.py reading --before OTHER/src`` times how
a large file is read and coded, by this code and by that of another checkout, in turn; ``page``
prints the audit's table, which results_page.py writes. Each line of results/one_row.jsonl is a fit.

The files are those that refuted a printed epsilon (decision 0056): codes " 1" and " 2", half of the
rows each, and one row whose code is "?". Until then that row took the blanks from all other codes,
so that they counted as the category for the rest. The statistic is the share of drawn rows whose
code is that category.
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import beta

import siloweave as sw
from siloweave.core.run import Synthesizer

RESULTS = Path(__file__).parent / "results" / "one_row.jsonl"
BUDGET = sw.Budget(epsilon=0.1, delta=1e-6)
REPLACING = sw.Budget(epsilon=0.1, delta=1e-6, relation=sw.Relation.REPLACE_ONE)
REPLACED = ("VertiMRF",)  # whose number of rows is public
HALF = 50  # rows with each code
SCHEMA = sw.Schema(
    (
        sw.Column("code", "categorical", ("1", "2", "?"), other="?"),
        sw.Column("sex", "categorical", ("f", "m"), fallback="f"),
    )
)
FLU = sw.Schema((sw.Column("code", "categorical", ("flu", "cold", "?"), other="?"), SCHEMA["sex"]))
IN_SQLITE = ", SQLite's NOCASE"  # of a family's name: its rows are in a database
OPEN = sw.Schema((sw.Column("code", "categorical", ("?",), other="?"), SCHEMA["sex"]))


def families() -> dict[str, tuple[Synthesizer, sw.Schema, dict[str, Any]]]:
    """What is audited: a method of each private family, its schema, and what `fit` is given."""
    return {
        "AIM": (sw.AIM(), SCHEMA, {}),
        "AIM, categories learned": (sw.AIM(), OPEN, {"learn": 0.5}),
        "FLAIM": (sw.FLAIM(rounds=2, participation=1.0), SCHEMA, {}),
        "TwoRound": (sw.TwoRound(), SCHEMA, {}),
        "DistAIM": (sw.DistAIM(), SCHEMA, {}),
        "PrivMRF": (sw.PrivMRF(), SCHEMA, {}),
        "SecureTwoRound": (sw.SecureTwoRound(), SCHEMA, {}),
        "VertiMRF": (sw.VertiMRF(), SCHEMA, {}),
        "DP-CTGAN": (sw.DPCTGAN(steps=5), SCHEMA, {}),
        "DP-TabDDPM": (sw.DPTabDDPM(steps=5), SCHEMA, {}),
        f"AIM{IN_SQLITE}": (sw.AIM(), FLU, {}),
        f"TwoRound{IN_SQLITE}": (sw.TwoRound(), FLU, {}),
    }


def files(folder: Path, *, odd: bool, replaced: bool) -> dict[str, Path]:
    """The table in one file, in two by rows, and in two by columns."""
    codes = [" 1"] * HALF + [" 2"] * (HALF - (odd and replaced)) + ["?"] * odd
    rows: list[tuple[str, ...]] = [(code, "fm"[i % 2]) for i, code in enumerate(codes)]
    parts: dict[str, tuple[tuple[str, ...], list[tuple[str, ...]]]] = {
        "whole": (("code", "sex"), rows),
        "rows 0": (("code", "sex"), rows[::2]),
        "rows 1": (("code", "sex"), rows[1::2]),
        "columns 0": (("code",), [row[:1] for row in rows]),
        "columns 1": (("sex",), [row[1:] for row in rows]),
    }
    paths = {}
    for name, (names, part) in parts.items():
        paths[name] = folder / f"{name}.csv"
        lines = [",".join(f'"{cell}"' for cell in row) for row in part]
        paths[name].write_text("\n".join([",".join(names), *lines]) + "\n")
    return paths


def databases(folder: Path, *, odd: bool) -> dict[str, sw.Database]:
    """The table in one database, and in two by rows; the odd row is the first."""
    codes = ["FLU"] * odd + ["flu"] * HALF + ["cold"] * HALF
    rows = [(code, "fm"[i % 2]) for i, code in enumerate(codes)]
    found = {}
    for name, part in (("whole", rows), ("rows 0", rows[::2]), ("rows 1", rows[1::2])):
        file = folder / f"{name.replace(' ', '')}{odd}.db"
        file.unlink(missing_ok=True)
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE visits (code TEXT COLLATE NOCASE, sex TEXT)")
            connection.executemany("INSERT INTO visits VALUES (?, ?)", part)
            connection.commit()
        found[name] = sw.Database(f"sqlite:///{file}", table="visits")
    return found


def fitted(name: str, paths: Mapping[str, Path | sw.Database]) -> float:
    """Fit a family to the files, and return the share of drawn rows with the rest's category."""
    synthesizer, schema, more = families()[name]
    split = synthesizer.method.split
    budget = REPLACING if name in REPLACED else BUDGET
    data = paths["whole"] if split == "central" else [paths[f"{split} {i}"] for i in range(2)]
    model = synthesizer.fit(data, schema, budget=budget, seed=int(time.time_ns() % 2**31), **more)
    drawn = model.sample(num_rows=200)
    return float(np.mean([code == "?" for code in drawn["code"]]))


def audit(fits: int, names: list[str]) -> None:
    """Fit both ways in turn, and append each fit to the results."""
    for name in names:
        lines = [line for line in results() if line["method"] == name]
        have = {side: sum(line["one_more"] == side for line in lines) for side in (False, True)}
        with TemporaryDirectory() as folder:
            for i in range(2 * fits):
                side = bool(i % 2)
                if i // 2 < have[side]:
                    continue
                if name.endswith(IN_SQLITE):
                    share = fitted(name, databases(Path(folder), odd=side))
                else:
                    replaced = name in REPLACED
                    share = fitted(name, files(Path(folder), odd=side, replaced=replaced))
                line = {"method": name, "one_more": side, "share": share}
                with RESULTS.open("a") as file:
                    file.write(json.dumps(line) + "\n")
        sys.stderr.write(f"{name}: {shown(name)}\n")


def results() -> list[dict[str, object]]:
    """All fits so far."""
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


def shown(name: str) -> str:
    """One line of the table: tables flipped without and with the row, and what that shows."""
    shares = {
        side: [
            float(str(line["share"]))
            for line in results()
            if line["method"] == name and line["one_more"] == side
        ]
        for side in (False, True)
    }
    flipped = {side: sum(share > 0.5 for share in all_) for side, all_ in shares.items()}
    fits = {side: len(all_) for side, all_ in shares.items()}
    bound = max(
        lower_bound(flipped[True], fits[True], flipped[False], fits[False]),
        lower_bound(
            fits[False] - flipped[False], fits[False], fits[True] - flipped[True], fits[True]
        ),
    )
    means = {side: float(np.mean(all_)) for side, all_ in shares.items()}
    return (
        f"| {name} | {flipped[False]} of {fits[False]} | {flipped[True]} of {fits[True]} | "
        f"{means[False]:.3f} | {means[True]:.3f} | {bound:.2f} |"
    )


def lower_bound(hits: int, tries: int, false_hits: int, false_tries: int) -> float:
    """Return the epsilon that is refuted at 95 % by two Clopper-Pearson bounds, at least 0."""
    least = beta.ppf(0.025, hits, tries - hits + 1) if hits else 0.0
    most = (
        beta.ppf(0.975, false_hits + 1, false_tries - false_hits) if false_hits < false_tries else 1
    )
    return max(float(np.log(max(least - BUDGET.delta, 1e-300) / most)), 0.0)


TEXT = """## One row more in a file

`benchmarks/one_row.py audit` fits every private family to two files that differ by one row. The
files have codes ' 1' and ' 2', fifty rows each. One of them has one row more, whose code is '?'
(VertiMRF: in place of another). ε = 0.1, δ = 1e-6, files given by their path, noise of the
operating system.

A table is *flipped* if more than half of 200 drawn rows have the category for the rest. With
learned categories nothing is named at so small an ε: all drawn rows have that category. In the two
last lines a column of SQLite takes 'FLU', the odd row's code, for 'flu'.

**ε at least**: every smaller ε is refuted at 95 % (Clopper-Pearson). Until decision 0056 AIM
flipped 0 of 100 tables without the row, and 100 of 100 with it: ε at least 3.28.

| method | flipped without | flipped with | mean share without | with | ε at least |
| --- | ---: | ---: | ---: | ---: | ---: |
{rows}
"""


def page() -> str:
    """Return the section of the results page."""
    names = dict.fromkeys(str(line["method"]) for line in results())
    return TEXT.format(rows="\n".join(map(shown, names)))


# Time to read


READ = """
import sys, time
from siloweave.tables import Column, Encoder, Schema, read
low = dict(low=0, high=100)
schema = Schema((Column("age", "integer", **low), Column("weight", "continuous", **low),
    Column("sex", "categorical", ("f", "m")), Column("ward", "categorical", tuple("abcdefgh")),
    Column("code", "categorical", (1, 2, 3)), Column("day", "datetime", low="2020-01-01",
    high="2020-12-31")))
start = time.perf_counter()
codes = Encoder(schema).encode(read(sys.argv[1]))
print(time.perf_counter() - start)
"""


def table(rows: int) -> pl.DataFrame:
    """Columns of each kind."""
    rng = np.random.default_rng(0)
    days = np.datetime64("2020-01-01") + rng.integers(0, 366, rows)
    return pl.DataFrame(
        {
            "age": rng.integers(0, 101, rows),
            "weight": rng.uniform(0, 100, rows).round(1),
            "sex": rng.choice(["f", "m"], rows),
            "ward": rng.choice(list("abcdefgh"), rows),
            "code": rng.integers(1, 4, rows),
            "day": days,
        }
    )


def reading(rows: int, before: Path, repeats: int) -> None:
    """Time both codes on a CSV and a Parquet file, in turn, each in a process of its own."""
    sources = {"before": before, "now": Path(sw.__file__).parents[1]}
    with TemporaryDirectory() as folder:
        table(rows).write_csv(Path(folder) / "rows.csv")
        table(rows).write_parquet(Path(folder) / "rows.parquet")
        for file in ("rows.csv", "rows.parquet"):
            seconds: dict[str, list[float]] = {name: [] for name in sources}
            for _ in range(repeats):
                for name, source in sources.items():
                    command = [sys.executable, "-c", READ, str(Path(folder) / file)]
                    done = subprocess.run(
                        command, env={"PYTHONPATH": str(source)}, capture_output=True, check=True
                    )
                    seconds[name].append(float(done.stdout))
            low = {name: min(all_) for name, all_ in seconds.items()}
            every = {name: [round(value, 2) for value in all_] for name, all_ in seconds.items()}
            print(f"{file}: {low['now'] / low['before']:.2f} times, by minima; {every}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("audit", "reading", "page"))
    parser.add_argument("--fits", type=int, default=100, help="fits each way")
    parser.add_argument("--method", action="append", help="of the audit; all if left out")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--before", type=Path, help="src of another checkout")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if given.what == "audit":
        audit(given.fits, given.method or list(families()))
    elif given.what == "reading":
        reading(given.rows, given.before, given.repeats)
    else:
        print(page())
