"""XGB-C2ST by scikit-learn's trees beside XGBoost itself, on rows of several qualities.

    python -m venv peer && peer/bin/pip install xgboost scikit-learn pandas pyarrow
    python benchmarks/detector_agreement.py --peer-python peer/bin/python
    python benchmarks/results_page.py

Half of a table's rows are the real ones. Beside them stand the same rows with every column
shuffled on its own, rows of a Gaussian copula and of TabDDPM after few steps and after more, and
the other half of the real rows. XGBoost sees the same rows, once with one code per category, as
here, and once with an indicator per category, as SDMetrics' detection encodes them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import Any

import numpy as np
import sources
from flaim_adult import commit
from marked import table as markdown
from neural_tables import column

import siloweave as sw
from siloweave.evaluate.discriminator import discriminate
from siloweave.evaluate.predictive import LIGHTGBM, XGBOOST
from siloweave.tables import align
from siloweave.tables.keys import generator
from siloweave.tables.write import write

HERE = Path(__file__).parent
OUT = HERE / "results" / "detector_agreement.jsonl"
PEER = HERE / "peers" / "xgboost_detector.py"
TABLES = ("adult", "churn", "heloc", "california_housing")
SPLIT_SEED = 2026
STEPS = {"TabDDPM, 300 steps": 300, "TabDDPM, 3,000 steps": 3_000}
TEXT = """
### XGB-C2ST by scikit-learn's trees

From `detector_agreement.py`: 100 for rows that a detector cannot distinguish from as many real
ones, 0 for rows that it always recognises. **ours**: the trees of `score`, scikit-learn's with
XGBoost's defaults. **codes**: XGBoost {version} itself on the same numbers. **indicators**:
XGBoost with an indicator per category, as SDMetrics' detection has it, and so the published
figures. **LightGBM-C2ST**: the second detector of `score --thorough`. One draw each, three folds.

"""


def halves(name: str, data: Path) -> tuple[sw.Schema, sw.Table, sw.Table, list[str]]:
    """Return a table's schema, its two halves, and the columns that are categories."""
    table = sources.read(name, data)
    words = set(sources.facts(name)["categorical"])
    order = generator(SPLIT_SEED).permutation(table.num_rows)
    count = table.num_rows // 2
    real = table.take(np.sort(order[:count]))
    other = table.take(np.sort(order[count : 2 * count]))
    whole = table.take(np.sort(order[: 2 * count]))
    numeric = {n for n in table.names if table.kind(n) in ("numbers", "whole numbers")} - words
    schema = sw.Schema(tuple(column(whole, n, n in numeric) for n in table.names))
    schema = schema.with_fallbacks()
    categorical = [c.name for c in schema.columns if c.kind in ("categorical", "boolean")]
    return schema, real, other, categorical


def drawn(schema: sw.Schema, real: sw.Table) -> Iterator[tuple[str, sw.Table]]:
    """Draw rows of several qualities, with seed 0; each with its name."""
    rng = generator(SPLIT_SEED + 1)
    shuffled: dict[str, Any] = {}
    for name in real.names:
        order = rng.permutation(real.num_rows)
        shuffled[name] = real.values(name)[order], real.missing(name)[order]
    yield "shuffled columns", sw.Table.from_columns(shuffled)
    copula = sw.GaussianCopula().fit(real, schema, seed=0, progress=False)
    yield "Gaussian copula", copula.sample_table(real.num_rows, seed=0)
    for name, steps in STEPS.items():
        fitted = sw.TabDDPM(steps=steps).fit(real, schema, seed=0, progress=False)
        yield name, fitted.sample_table(real.num_rows, seed=0)


def ours(schema: sw.Schema, real: sw.Table, other: sw.Table) -> dict[str, Any]:
    """Return both detectors' scores of 100, and their seconds."""
    tables = align({"real": real, "other": other}, schema)
    line: dict[str, Any] = {}
    for name, trees in (("ours", XGBOOST), ("second", LIGHTGBM)):
        start = time.perf_counter()
        found = discriminate(tables, "real", "other", key=0, max_rows=real.num_rows, trees=trees)
        line[name] = {
            "c2st": 100 * found.detection,
            "seconds": time.perf_counter() - start,
        }
    return line


def theirs(python: Path, real: sw.Table, other: sw.Table, categorical: list[str]) -> dict[str, Any]:
    """Return what XGBoost itself finds, by encoding."""
    with tempfile.TemporaryDirectory() as folder:
        files = {"real": Path(folder) / "real.parquet", "synthetic": Path(folder) / "other.parquet"}
        for file, rows in zip(files.values(), (real, other), strict=True):
            write(rows, file)
        job: dict[str, Any] = {name: str(file) for name, file in files.items()}
        job |= {"categorical": categorical, "seed": 0, "threads": 1}
        command = [str(python), str(PEER), json.dumps(job)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def page(results: Path) -> str:
    """Return the section of the results page; it says so where nothing was run."""
    file = results / OUT.name
    text = TEXT.format(version="")
    if not file.is_file():
        return text + "Not run.\n"
    lines = [json.loads(row) for row in file.read_text().splitlines()]
    cells = ("ours", "codes", "indicators", "second")
    body = [
        [line["table"], line["rows"], *(f"{line[cell]['c2st']:.1f}" for cell in cells)]
        for line in lines
    ]
    head = ["table", "rows", "ours", "codes", "indicators", "LightGBM-C2ST"]
    text = TEXT.format(version=lines[0]["version"])
    text += markdown(head, body, words=2) + "\n\n"
    apart = {cell: [abs(x["ours"]["c2st"] - x[cell]["c2st"]) for x in lines] for cell in cells[1:3]}
    absent = [name for name in TABLES if name not in {line["table"] for line in lines}]
    if absent:
        text += f"Not run: {', '.join(absent)}.\n\n"
    seconds = {cell: sum(line[cell]["seconds"] for line in lines) for cell in cells}
    return (
        text
        + fill(
            f"Ours is {mean(apart['codes']):.1f} from XGBoost on the same codes in the mean of "
            f"{len(lines)} comparisons, {max(apart['codes']):.1f} at most; from XGBoost on "
            f"indicators {mean(apart['indicators']):.1f}, {max(apart['indicators']):.1f} at most. "
            f"All {len(lines)} took {seconds['ours']:.0f} s of one core with ours, "
            f"{seconds['codes']:.0f} s and {seconds['indicators']:.0f} s with XGBoost, "
            f"{seconds['second']:.0f} s with the second detector.",
            100,
        )
        + "\n"
    )


def main() -> None:
    """Compare what is missing, and store each comparison as it ends."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources.add_data(parse)
    parse.add_argument("--peer-python", type=Path, required=True, help="it has XGBoost")
    parse.add_argument("--table", nargs="*", choices=TABLES, default=list(TABLES))
    parse.add_argument("--out", type=Path, default=OUT)
    asked = parse.parse_args()
    sources.require_path(asked.peer_python, "the peer's interpreter")
    version = subprocess.run(
        [str(asked.peer_python), "-c", "import xgboost; print(xgboost.__version__)"],
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout.strip()  # fmt: skip
    done = set()
    if asked.out.is_file():
        lines = [json.loads(row) for row in asked.out.read_text().splitlines()]
        done = {(line["table"], line["rows"]) for line in lines}
    for table in sources.present(asked.table, asked.data):
        schema, real, other, categorical = halves(table, asked.data)
        for name, rows in [*drawn(schema, real), ("real rows held out", other)]:
            if (table, name) in done:
                continue
            line: dict[str, Any] = {
                "table": table,
                "rows": name,
                "num_rows": real.num_rows,
                "version": version,
            }
            line |= ours(schema, real, rows)
            line |= theirs(asked.peer_python, real, rows, categorical)
            with asked.out.open("a") as kept:
                kept.write(json.dumps({**line, "commit": commit()}) + "\n")
            figures = ", ".join(
                f"{cell} {line[cell]['c2st']:.1f}"
                for cell in ("ours", "codes", "indicators", "second")
            )
            print(f"{table}, {name}: {figures}", flush=True)


if __name__ == "__main__":
    main()
