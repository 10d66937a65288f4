"""Floor and ceiling of FLAIM's measures: exact shares of single columns, and rows held out.

    python benchmarks/flaim_floors.py
    python benchmarks/flaim_floors.py --table adult
    python benchmarks/results_page.py

On the tables, bins, split and queries of flaim_adult.py. The floor has every column's exact shares
in the training rows, and nothing that links two; its likelihood counts half a row for a code that
no training row has. The ceiling is the error of the rows held out, a tenth as many as the training
rows, so as many rows would be nearer. Rows have no likelihood: its ceiling is that of AIM with all
rows in one place and a budget whose noise is one row a cell. Neither end is private.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sources
from columns_split_floors import IndependentParties
from flaim_adult import PUBLISHED
from tables import TABLES, Prepared, prepare

import siloweave as sw
from siloweave.evaluate.workload import negative_log_likelihood, workload_errors
from siloweave.protocols.workloads import workload_for
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Codes

# With so much the noise of a cell has a standard deviation of one row.
AMPLE_BUDGET = sw.Budget(epsilon=1000, delta=1e-5)
OUT = Path(__file__).parent / "results" / "flaim_floors.jsonl"


@dataclass(frozen=True)
class IndependentColumns:
    """The likelihood of rows whose columns are independent, from exact counts."""

    real: Codes

    def log_density(self, codes: Codes) -> Floats:
        """Return nats per row; a code that no row has counts as half a row."""
        density = np.zeros(codes.num_rows)
        for ours, theirs, size in zip(
            self.real.columns, codes.columns, self.real.domain.sizes, strict=True
        ):
            counts = np.maximum(np.bincount(ours, minlength=size), 0.5)
            density += np.log(counts / counts.sum())[theirs]
        return density


def line(name: str, table: Prepared) -> dict[str, Any]:
    """Return the floor and the ceiling of a table."""
    real, held, domain = table.train, table.test, table.encoder.domain
    megabytes = sw.AIM(**PUBLISHED).max_model_mb
    queries = workload_for(domain, PUBLISHED["degree"], PUBLISHED["queries"], "auto", megabytes)
    columns = IndependentParties(real, {column: i for i, column in enumerate(domain.names)})
    floor = workload_errors(real, columns, queries)
    ceiling = workload_errors(real, held, queries)
    best = sw.AIM(**PUBLISHED).fit(real, table.encoder, budget=AMPLE_BUDGET, seed=0)
    return {
        "table": name, "rows": real.num_rows, "held_out": held.num_rows,
        "floor": {"closure": floor.closure, "queries": floor.queries,
                  "nll": negative_log_likelihood(IndependentColumns(real), held)},
        "ceiling": {"closure": ceiling.closure, "queries": ceiling.queries,
                    "nll": negative_log_likelihood(best.model.mrf, held)},
    }  # fmt: skip


def main() -> None:
    """Compute and store the line of every table asked for that is there."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources.add_data(parse)
    parse.add_argument("--table", nargs="*", default=list(TABLES), choices=list(TABLES))
    parse.add_argument("--out", type=Path, default=OUT)
    asked = parse.parse_args()
    there = sources.present((TABLES[name].file for name in asked.table), asked.data)
    names = [name for name in asked.table if TABLES[name].file in there]
    stored = asked.out.read_text().splitlines() if asked.out.is_file() else []
    kept = [text for text in stored if json.loads(text)["table"] not in names]
    for name in names:
        found = line(name, prepare(name, asked.data))
        kept.append(json.dumps(found))
        print(json.dumps(found), flush=True)
    asked.out.write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
