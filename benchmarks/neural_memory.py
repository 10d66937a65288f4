"""Memory of a fit on tables of awkward shapes, each in a process of its own; kept by neural.py.

    python benchmarks/neural.py memory
    python benchmarks/neural_memory.py MODEL CASE

The tables are made here: 50,000 rows with one column of 100,000 categories, with 300 of two, or
with 15 mixed columns. Few steps are taken: memory does not depend on how many.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from siloweave.tables import Column, Schema, Table

ROWS, STEPS = 50_000, 50
MODELS = ("ctgan", "tabddpm", "latent_diff", "point_diff")
Made = tuple[Table, Schema]


def wide(rng: np.random.Generator) -> Made:
    """One column of 100,000 categories, and a number."""
    names = tuple(f"value {i}" for i in range(100_000))
    values = np.array(names, dtype=object)[rng.integers(0, len(names), ROWS)]
    columns = {"wide": (values, None), "number": (rng.normal(size=ROWS).clip(-5, 5), None)}
    kinds = (Column("wide", "categorical", categories=names),
             Column("number", "continuous", low=-5.0, high=5.0))  # fmt: skip
    return Table.from_columns(columns), Schema(kinds).with_fallbacks()


def binary(rng: np.random.Generator) -> Made:
    """300 columns of two values."""
    names = [f"flag {i}" for i in range(300)]
    table = Table.from_columns({name: (rng.random(ROWS) < 0.3, None) for name in names})
    return table, Schema(tuple(Column(name, "boolean") for name in names)).with_fallbacks()


def mixed(rng: np.random.Generator) -> Made:
    """Eight numbers and seven columns of twenty categories."""
    numbers = {f"number {i}": (rng.gamma(2.0, size=ROWS).clip(0, 20), None) for i in range(8)}
    names = tuple(f"value {i}" for i in range(20))
    made = {
        f"choice {i}": (np.array(names, dtype=object)[rng.integers(0, 20, ROWS)], None)
        for i in range(7)
    }
    columns = [Column(name, "continuous", low=0.0, high=20.0) for name in numbers]
    columns += [Column(name, "categorical", categories=names) for name in made]
    return Table.from_columns({**numbers, **made}), Schema(tuple(columns)).with_fallbacks()


CASES: dict[str, Callable[[np.random.Generator], Made]] = {
    "50,000 x 15": mixed,
    "100,000 categories": wide,
    "300 binary columns": binary,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "ctgan": {"epochs": 1, "batch": 500},
    "tabddpm": {"steps": STEPS},
    "latent_diff": {"autoencoder": {"steps": STEPS}, "diffusion": {"steps": STEPS}},
    "point_diff": {"diffusion": {"steps": STEPS}},
}


def measure(model: str, case: str) -> dict[str, Any]:
    """Fit, draw a thousand rows, and say what it took at most."""
    from siloweave.methods.registry import METHODS

    table, schema = CASES[case](np.random.default_rng(0))
    start = time.process_time()
    fitted = METHODS[model](**SETTINGS[model]).fit(table, schema)
    fitted.sample_table(1_000)
    return {
        "model": model, "case": case, "rows": ROWS, "width": fitted.model.features.width,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "cpu": time.process_time() - start,
    }  # fmt: skip


def page(rows: list[dict[str, Any]]) -> str:
    """The part of the results page."""
    body = "".join(
        f"| {row['case']} | {row['model']} | {row['width']:,} | {row['peak_mb']:,.0f} |\n"
        for row in rows
    )
    return (
        "\n### Memory of a fit\n\nLargest resident set of a process that makes 50,000 rows, fits "
        "for some steps and draws 1,000\nrows; the goal is less than 3 GB for 15 columns.\n\n"
        "| table | model | numbers in a row | MB |\n| --- | --- | --- | --- |\n" + body
    )


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2])))
