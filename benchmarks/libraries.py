"""What well-kept libraries would do in place of our own code: sniffing, dialects of SQL, frames.

Run: ``python benchmarks/libraries.py`` with the sql extra, and sqlglot, narwhals and pandas without
pyarrow in an environment of their own, whose interpreter is ``--python``. Decision 0002 has what
follows from the answers.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

#: SQL of DuckDB that our queries need, each of which SQLite has under another name or not at all.
QUERIES = (
    "SELECT epoch_us(moment) FROM rows",
    "SELECT sha256(name) FROM rows",
    "SELECT isnan(pay) FROM rows",
    "SELECT a, b, count(*) FROM rows GROUP BY GROUPING SETS ((a), (b))",
)
ELSEWHERE = """
import json, sys, pandas as pd, narwhals, sqlglot
translate = lambda query: sqlglot.transpile(query, read="duckdb", write="sqlite")[0]
translated = list(map(translate, json.loads(sys.argv[1])))
frames = {
    "texts": pd.DataFrame({"a": ["x", None]}),
    "whole numbers with a gap": pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
    "categories": pd.DataFrame({"a": pd.Categorical(["u", "v"])}),
    "numbers and texts": pd.DataFrame({"a": [1, "x"]}),
}
converted = {}
for name, frame in frames.items():
    try:
        narwhals.from_native(frame).to_polars()
        converted[name] = "works"
    except Exception as error:
        converted[name] = f"{type(error).__name__}: {error}"[:80]
print(json.dumps([translated, converted]))
"""


def sniff() -> None:
    """Print how many of the messy text files are opened with their columns' names, by whom."""
    import duckdb
    from tests.tables.messy.agree import HERE as MESSY

    from siloweave.tables.read import read
    from siloweave.tables.text_encoding import encoding_of

    right = {"siloweave": 0, "duckdb": 0}
    seconds = {"siloweave": 0.0, "duckdb": 0.0}
    columns = 0
    copy = HERE / "results" / "sniffed.csv"
    for facts_file in sorted(MESSY.glob("*/*.json")):
        facts = json.loads(facts_file.read_text())
        path = facts_file.with_name(facts["file"])
        if path.suffix not in (".csv", ".tsv", ".txt"):
            continue
        columns += 1
        # DuckDB reads UTF-8: the encoding is found by us for both.
        encoding = encoding_of(path) or "utf-8"
        copy.write_text(path.read_bytes().decode(encoding), newline="")
        wanted = len(facts["columns"])

        start = time.perf_counter()
        right["siloweave"] += len(read(copy).names) == wanted
        seconds["siloweave"] += time.perf_counter() - start

        start = time.perf_counter()
        query = f"SELECT len(Columns) FROM sniff_csv('{copy}')"
        found = duckdb.connect().execute(query).fetchall()
        right["duckdb"] += found == [(wanted,)]
        seconds["duckdb"] += time.perf_counter() - start
    copy.unlink()
    for name, count in right.items():
        print(f"{name}: {count} of {columns} files, {seconds[name]:.1f} s")


def elsewhere(python: str) -> None:
    """Print what sqlglot makes of our SQL, and narwhals of pandas without pyarrow."""
    command = [python, "-c", ELSEWHERE, json.dumps(QUERIES)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    translated, converted = json.loads(answer)
    for query, translation in zip(QUERIES, translated, strict=True):
        print(f"{query}\n  {translation}")
    for name, outcome in converted.items():
        print(f"{name}: {outcome}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="an interpreter with sqlglot, narwhals and pandas")
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sniff()
    if arguments.python:
        elsewhere(arguments.python)


if __name__ == "__main__":
    main()
