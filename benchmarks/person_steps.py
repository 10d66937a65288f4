"""What a person as the unit costs DP-CTGAN: fidelity beside row level, on rows grouped under ids.

    python benchmarks/person_steps.py                         # all that is missing
    python benchmarks/person_steps.py --table adult --seed 0 1
    python benchmarks/results_page.py

Rows of adult and bank_marketing are put in a random order and given to persons of 1 to 8 rows each,
as many of each number (seed 571). A fifth of the persons is held out, with all their rows. DP-CTGAN
is fitted to the others at epsilon 1 and delta 1e-5 (add/remove): with a row as the unit, and with a
person of at most k = 1, 2 and 5 rows. All settings are the defaults. Bounds and categories are read
off the tables and taken as public.

Written down are the mean total variation of tables of one, two and three columns (in 20 bins at
most, 300 of each number of columns), to the rows of the persons that were fitted, all of them and
not the k that took part; of as many rows drawn; and the macro-F1 of boosted trees that learn the
target from drawn rows, on held-out persons. Rows of one person have nothing in common here: what is
measured is what the bound and the noise cost, and not what it costs to see few rows of a person.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import sources
from flaim_adult import commit
from marked import table as markdown
from tables import column_of

import siloweave as sw
from siloweave.evaluate.predictive import utilities
from siloweave.evaluate.similarity import marginal_tvd
from siloweave.tables.aligned import align
from siloweave.tables.keys import generator
from siloweave.tables.split import split_rows

HERE = Path(__file__).parent
FILE = "person_steps.jsonl"
RESULTS = HERE / "results" / FILE
TABLES = ("adult", "bank_marketing")
UNITS: tuple[int | None, ...] = (None, 1, 2, 5)  # rows of a person that take part; None for a row
SEED = 571
MOST_ROWS = 8  # of one person
DELTA = 1e-5
EPSILON = 1.0
ID = "person"

Row = dict[str, Any]


def grouped(name: str, data: Path) -> tuple[sw.Table, sw.Schema, str]:
    """Read a table, and give its rows to persons; returns the schema and the target, too."""
    facts = sources.facts(name)
    rows = sources.read(name, data)
    random = generator(SEED)
    sizes = random.integers(1, MOST_ROWS + 1, rows.num_rows)
    owners = np.repeat(np.arange(rows.num_rows), sizes)[: rows.num_rows]
    rows = rows.take(random.permutation(rows.num_rows))
    columns = {one: (rows.values(one), rows.missing(one)) for one in rows.names}
    table = sw.Table.from_columns({ID: (owners, None), **columns})
    numeric = set(facts["continuous"])
    known = [column_of(rows, one, one in numeric) for one in rows.names]
    return table, sw.Schema((sw.Column(ID, "id"), *known)).with_fallbacks(), facts["target"]


def run(name: str, most: int | None, seed: int, data: Path) -> Row:
    """Fit once, draw as many rows as were fitted, and compare."""
    table, schema, target = grouped(name, data)
    *fitted_parts, holdout = split_rows(table, 5, seed=SEED, unit=ID)
    fitted = sw.Table.from_columns(
        {
            one: (
                np.concatenate([part.values(one) for part in fitted_parts]),
                np.concatenate([part.missing(one) for part in fitted_parts]),
            )
            for one in table.names
        }
    )
    unit: dict[str, Any] = {} if most is None else {"unit": ID, "rows_per_unit": most}
    budget = sw.Budget(epsilon=EPSILON, delta=DELTA, **unit)
    start = time.perf_counter()
    model = sw.DPCTGAN().fit(fitted, schema, budget=budget, seed=seed)
    seconds = time.perf_counter() - start
    drawn = model.sample_table(fitted.num_rows, seed=seed)
    names = [one for one in schema.names if one != ID]
    tables = {
        "real": holdout.select(names), "fitted": fitted.select(names),
        "synthetic": drawn.select(names),
    }  # fmt: skip
    aligned = align(tables, schema.select(names))
    found = utilities(aligned, "real", ("synthetic",), key=SEED, targets=[target])
    return {
        "table": name, "unit": "row" if most is None else "person", "most": most, "seed": seed,
        "rows": fitted.num_rows, "epsilon": model.epsilon,
        "tvd": [
            marginal_tvd(aligned, "fitted", "synthetic", ways=ways, key=SEED)
            for ways in (1, 2, 3)
        ],
        "utility": float(np.mean(found.trained_on["synthetic"][target])),
        "real_utility": float(np.mean(found.real[target])),
        "noise_multiplier": model.settings["noise_multiplier"], "rate": model.settings["rate"],
        "seconds": seconds, "commit": commit(),
    }  # fmt: skip


def lines(path: Path = RESULTS) -> list[Row]:
    """What was measured so far."""
    return [json.loads(one) for one in path.read_text().splitlines()] if path.is_file() else []


def page(results: Path) -> str:
    """The part of docs/reference/results/; empty without runs."""
    found = lines(results / FILE)
    if not found:
        return ""
    rows = []
    for name in TABLES:
        for most in UNITS:
            runs = [one for one in found if (one["table"], one["most"]) == (name, most)]
            if runs:
                rows.append(_line(name, most, runs))
    head = ["table", "unit", "runs", "1-way TVD", "2-way TVD", "3-way TVD", "macro-F1",
            "real rows", "noise", "rate", "ε"]  # fmt: skip
    return f"{_WORDS}\n\n{markdown(head, rows, words=2)}\n"


_WORDS = """## A person as the unit

### DP-CTGAN

`benchmarks/person_steps.py` puts rows of a table in random order and groups them under synthetic
ids: 1 to 8 rows a person, as many persons of each number. A fifth of the persons is held out. ε =
1, δ = 1e-5, all settings the defaults; at most k rows of a person take part. Figures are mean ±
standard deviation over the runs.

- **TVD** is to all rows of the persons that were fitted, of as many rows drawn.
- **macro-F1** is that of the target, learned from drawn rows and tested on persons held out.
- **noise** is the noise multiplier.
- **rate** is the probability with which a unit is in a step. With few of a person's rows taking
  part, a batch of as many rows is a larger share of the persons.

A step has the same sensitivity for any k. What k costs is noise in the histogram before the steps
(k times as wide), and what it gives is rows. Rows of one person have nothing in common here, so
that nothing is lost by seeing few of them but their number.

A patient with 100 rows and k = 5 (`tests/guarantees/test_person_audit.py`, 200 fits with her and
200 without, ε = 1): by the likelihood of all noisy counts and steps, for an adversary who knows all
rows, the area under the curve is 0.519 (99.9 % interval 0.424 to 0.615); chance is 0.5. With a row
as the unit the same attack separates all fits that were made (4 each way)."""


def _line(name: str, most: int | None, runs: list[Row]) -> list[str]:
    def over(values: list[float]) -> str:
        spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
        return f"{mean(values):.3f}{spread}"

    unit = "row" if most is None else f"person, k = {most}"
    tvds = [over([one["tvd"][ways] for one in runs]) for ways in range(3)]
    utility = over([one["utility"] for one in runs])
    real = f"{mean(one['real_utility'] for one in runs):.3f}"
    epsilon = f"{max(one['epsilon'] for one in runs):.3f}"
    noise, rate = (f"{mean(one[key] for one in runs):.3g}" for key in ("noise_multiplier", "rate"))
    return [name, unit, str(len(runs)), *tvds, utility, real, noise, rate, epsilon]


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources.add_data(parser)
    parser.add_argument("--table", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--seed", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--out", type=Path, default=RESULTS, help="where lines are kept")
    asked = parser.parse_args()
    tables = sources.present(asked.table, asked.data)
    done = {(one["table"], one["most"], one["seed"]) for one in lines(asked.out)}
    for seed in asked.seed:
        for name in tables:
            for most in UNITS:
                if (name, most, seed) in done:
                    continue
                line = run(name, most, seed, asked.data)
                print(json.dumps(line), flush=True)
                with asked.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
