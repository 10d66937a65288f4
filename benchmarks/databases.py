"""AIM over a table of a DuckDB file, counted there or loaded: seconds, CPU seconds and peak memory.

    python benchmarks/databases.py build rows.duckdb 1e8      Adult, repeated
    python benchmarks/databases.py count rows.duckdb          AIM, all pairs, epsilon = 1
    python benchmarks/databases.py load rows.duckdb           the same, after the table was loaded
    python benchmarks/databases.py parquet rows.parquet       the same over Parquet, in batches
    python benchmarks/databases.py whole rows.parquet         the same, after the file was loaded
    python benchmarks/databases.py count rows.duckdb default  AIM as it is by default

Each prints one line. The synthetic table of `count` and `load` is the same, as its digest shows.
"""

import resource
import sys
import time
from pathlib import Path
from typing import Any

import sources

import siloweave as sw
from siloweave.datasets import adult, adult_schema
from siloweave.tables.table import digest_of
from siloweave.tables.write import write


def build(path: Path, rows: int) -> None:
    """Write Adult, repeated, into a DuckDB file or a Parquet file."""
    sources.require_module("duckdb", "sql")
    import duckdb

    source = path.with_suffix(".one.parquet")
    write(adult(), source)
    times = -(-rows // adult().num_rows)
    query = f"SELECT a.* FROM range({times}) AS r, '{source}' AS a LIMIT {rows}"
    if path.suffix == ".parquet":
        with duckdb.connect() as connection:
            connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)").fetchall()
    else:
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"CREATE TABLE adult AS {query}").fetchall()
    source.unlink()


def main(what: str, path: Path, settings: str = "") -> None:
    start, parquet = time.perf_counter(), what in ("parquet", "whole")
    data: Any = path if parquet else sw.Database(f"duckdb:///{path.absolute()}", table="adult")
    if what in ("load", "whole"):
        data = sw.read(data)
    read = time.perf_counter()
    budget = sw.Budget(1.0, 1e-6)
    synth = sw.AIM() if settings == "default" else sw.AIM(degree=2, bins=16)
    fitted = synth.fit(data, adult_schema(), budget=budget, noise="seeded", progress=False)
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = time.perf_counter() - start
    digest = digest_of(fitted.sample_table(1000, seed=0)).hex()[:12]
    print(
        f"{what}: {seconds:.0f} s ({read - start:.0f} s to load), "
        f"{used.ru_utime + used.ru_stime:.0f} s of CPU, peak {used.ru_maxrss / 1e6:.2f} GB, "
        f"{ {name: round(took, 1) for name, took in fitted.cost.phases.items()} }, table {digest}"
    )


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(Path(sys.argv[2]), int(float(sys.argv[3])))
    else:
        main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
