"""What constraints cost: error, seconds, and rows that break them without.

    python benchmarks/constraints.py > benchmarks/results/constraints.jsonl
    python benchmarks/constraints.py --method FLAIM CTGAN --table stays >> more.jsonl

Adult with and without its fixed combination of education and education-num; and stays in a
hospital that are made here, with one constraint of each kind, with all of them, and without any.
Errors are mean total variation distances of 150 random marginals of three declared columns
(`siloweave.tvd`) from the rows that were fitted, with as many bins with constraints as without;
seconds are those of one core. Rows of FLAIM and TwoRound are spread over three parties at random,
columns of SecureTwoRound over two, each constraint at one of them. Networks are far smaller than by
default, and have one seed: what counts is the difference.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

import siloweave as sw
from siloweave.app.init import demo_schema
from siloweave.datasets import adult, adult_schema
from siloweave.models.settings import AutoencoderSettings, DiffusionSettings
from siloweave.tables import Column, Schema, Table
from siloweave.tables.modelled import Modelled

SEEDS, STAYS, BINS = 3, 30_000, 32
BUDGET = sw.Budget(epsilon=1.0, delta=1e-6)
METHODS = {"AIM": sw.AIM(), "GaussianCopula": sw.GaussianCopula(), "TwoRound": sw.TwoRound(),
           "FLAIM": sw.FLAIM(participation=1.0), "SecureTwoRound": sw.SecureTwoRound()}  # fmt: skip
SMALL = DiffusionSettings(hidden=(128, 128), timesteps=50, steps=1000)
NETWORKS = {
    "CTGAN": sw.CTGAN(generator=(128, 128), critic=(128, 128), epochs=5),
    "TabDDPM": sw.TabDDPM(hidden=(128, 128), timesteps=50, steps=1000),
    "LatentDiff": sw.LatentDiff(
        autoencoder=AutoencoderSettings(hidden=(128, 128), steps=1000), diffusion=SMALL
    ),
}
FIRST = ("age", "education", "education-num", "ward", "floor", "admission", "discharge", "unit")
"""Columns at the first of two parties."""
RULES = (
    sw.FixedCombinations(("ward", "floor"), tuple((f"w{i}", i // 3) for i in range(12))),
    sw.Inequality("admission", "discharge", most=120),
    sw.ColumnSum(("drugs", "care"), "bill"),
    sw.CategoryRanges("age", "unit", (("children", 0, 17), ("adults", 18, None))),
    sw.MissingTogether(("test", "result")),
    sw.Unique(("case",)),
)


def stays() -> tuple[Table, Schema]:
    """A table that keeps all of `RULES`, whose columns depend on each other besides."""
    rng = np.random.default_rng(0)
    ward, child = rng.integers(0, 12, STAYS), rng.random(STAYS) < 0.2
    start = np.datetime64("2020-01-01") + rng.integers(0, 1461, STAYS)
    stay = np.minimum(rng.gamma(1.0 + ward / 4, 4.0, STAYS).astype(int), 120)
    age = np.where(child, rng.integers(0, 18, STAYS), rng.integers(18, 100, STAYS))
    drugs = np.round(np.minimum(rng.gamma(2.0, 20.0, STAYS) * (1 + ward % 4), 2000.0), 1)
    care = np.round(stay * 250.0 + rng.random(STAYS) * 100.0, 1)
    tested = rng.random(STAYS) < np.where(child, 0.3, 0.7)
    columns: dict[str, tuple[Any, Any]] = {
        "ward": (np.array([f"w{i}" for i in ward], dtype=object), None),
        "floor": (ward // 3, None),
        "admission": (start.astype("datetime64[us]"), None),
        "discharge": ((start + stay).astype("datetime64[us]"), None),
        "drugs": (drugs, None),
        "care": (care, None),
        "bill": (np.round(drugs + care, 1), None),
        "unit": (np.where(child, "children", "adults").astype(object), None),
        "age": (age, None),
        "test": (np.where(ward % 2 == 0, "a", "b").astype(object), ~tested),
        "result": (rng.integers(0, 20, STAYS) + ward, ~tested),
        "case": (rng.permutation(10_000_000)[:STAYS], None),
    }
    kinds = (
        Column("ward", "categorical", categories=tuple(f"w{i}" for i in range(12))),
        Column("floor", "integer", low=0, high=3),
        Column("admission", "datetime", low="2020-01-01", high="2023-12-31"),
        Column("discharge", "datetime", low="2020-01-01", high="2024-12-31"),
        Column("drugs", "continuous", low=0.0, high=2000.0, decimals=1),
        Column("care", "continuous", low=0.0, high=31_000.0, decimals=1),
        Column("bill", "continuous", low=0.0, high=33_000.0, decimals=1),
        Column("unit", "categorical", categories=("children", "adults")),
        Column("age", "integer", low=0, high=120),
        Column("test", "categorical", categories=("a", "b"), missing=True),
        Column("result", "integer", low=0, high=40, missing=True),
        Column("case", "integer", low=0, high=9_999_999),
    )
    return Table.from_columns(columns), Schema(kinds).with_fallbacks()


def cases() -> Iterator[tuple[str, str, Table, Schema, Schema]]:
    """Table, constraints, rows, the schema that is fitted, and that with all constraints."""
    bare, kept = adult_schema(), demo_schema()
    yield "adult", "none", adult(), bare, kept
    yield "adult", "fixed combinations", adult(), kept, kept
    table, schema = stays()
    whole = Schema(schema.columns, RULES).with_fallbacks()
    yield "stays", "none", table, schema, whole
    for rule in RULES:
        one = Schema(schema.columns, (rule,)).with_fallbacks()
        yield "stays", rule.words, table, one, one
    yield "stays", "all", table, whole, whole


def measured(method: Any, table: Table, schema: Schema, whole: Schema, seed: int) -> dict[str, Any]:
    """One fit and as many rows as were fitted."""
    data: Any = table
    if method.info.split == "rows":
        data = sw.split_rows(table, 3, seed=seed)
    if method.info.split == "columns":
        first = [name for name in table.names if name in FIRST]
        rest = [name for name in table.names if name not in FIRST]
        data = {"first": table.select(first), "second": table.select(rest)}
    start = time.process_time()
    budget = BUDGET if method.info.guarantee == "dp" else None
    fitted = method.fit(data, schema, budget=budget, seed=seed)
    fit = time.process_time() - start
    start = time.process_time()
    rows = fitted.sample_table(table.num_rows, seed=seed)
    seconds = time.process_time() - start
    found = Modelled(whole).broken(rows)
    encoder = sw.Encoder(Schema(schema.columns).with_fallbacks(), BINS)
    error = sw.tvd(table, rows, 3, max_cliques=150, key=0, encoder=encoder)
    broken = np.any(list(found.values()), axis=0).mean()
    return {"error": error, "fit_cpu_s": fit, "sample_cpu_s": seconds, "broken": float(broken)}


def main() -> None:
    """Print a line of JSON for each method, table, set of constraints and seed."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = METHODS | NETWORKS
    parse.add_argument("--method", nargs="*", choices=list(every), default=list(every))
    parse.add_argument("--table", nargs="*", choices=("adult", "stays"), default=["adult", "stays"])
    parse.add_argument("--rules", nargs="*", help="such as none or all; each if not given")
    args = parse.parse_args()
    for name, seed in product(args.method, range(SEEDS)):
        few = name in NETWORKS
        for table, rules, rows, schema, whole in cases() if not (few and seed) else ():
            if table not in args.table or rules not in (args.rules or (rules,)):
                continue
            facts = {"method": name, "table": table, "constraints": rules, "seed": seed}
            found = measured(every[name], rows, schema, whole, seed)
            print(json.dumps({**facts, **found}), flush=True)


if __name__ == "__main__":
    main()
