"""How far raking deceives a detector, shown on real rows, which no model drew.

    python benchmarks/raked_rows.py
    python benchmarks/raked_rows.py --table heloc --seed 0 --out trial-raked_rows.jsonl
    python benchmarks/results_page.py

Of a table's rows, two in seven are the one side. The other side has as many of the rest: taken at
random; raked to the first side's single columns; or raked to the single columns that a random
sample of the first side has (margins.py). All are real rows, so a perfect judge says .5 of each.

Raking makes counts agree better than those of two samples do. What the rows of one fold have too
many of, the rows of the others then have too few of. So what a detector learns there about single
columns is wrong for the fold in which it is judged, and its area falls below .5.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import sources
from flaim_adult import commit
from margins import resampled
from marked import table as markdown
from tabular import lines as stored
from tabular_run import TABLES, Prepared, prepare, together

import siloweave as sw
from siloweave.evaluate.discriminator import discriminate
from siloweave.evaluate.predictive import XGBOOST
from siloweave.models.raking import chosen
from siloweave.tables import align
from siloweave.tables.features import OneWay
from siloweave.tables.keys import fold_in, generator

HERE = Path(__file__).parent
OUT = HERE / "results" / "raked_rows.jsonl"
SEEDS = (0, 1, 2)
SHARE = 2 / 7
"""Of one side, so that there are 2.5 rows to choose among for each row of the other."""
RANDOM, RAKED, SAMPLED = "at random", "raked", "raked to a sample"
TEXT = """
### How far raking deceives a detector

From `raked_rows.py`: real rows against other real rows, by the trees of XGB-C2ST. The figures are
their area under the curve (AUC), the mean of three folds and of {seeds} seeds. Rows **at random**
cannot be distinguished (.5). **Raked** rows are chosen among 2.5 times as many, so that single
columns are those of the other side. **Raked to a sample**: single columns are nearly those of a
random sample of the other side, as a perfect generator's would be.

Counts of raked rows agree better than chance allows. What one fold has too many of, the others have
too few of, and a detector that learns it is wrong in the fold where it is judged. **So XGB-C2ST of
raked rows is too high**: by twice what the AUC is below .5. Compare rows as drawn with figures of
others, whose rows are not raked.

"""
DRAWN = """
The same with the rows of `point_diff`, by [TabSyn's protocol](#tables-by-tabsyns-protocol), one fit
a line. XGB-C2ST between *raked* and *raked to a sample* is what raking adds by deceiving
the detector. Between *raked to a sample* and *as drawn* is what it adds by setting columns right.

"""


def areas(table: Prepared, seed: int) -> dict[str, float]:
    """Return the detector's area under the curve for each way to choose the other side."""
    rows = together([table.train, table.test])
    random = generator(seed)
    places = random.permutation(rows.num_rows)
    count = round(SHARE * rows.num_rows)
    first, rest = rows.take(places[:count]), rows.take(places[count:])
    one_way = OneWay.of(first, table.schema)
    codes = one_way.codes(rest)
    sampled = resampled(one_way, count, fold_in(seed, "sample"))
    others = {
        RANDOM: np.arange(count),
        RAKED: chosen(codes, one_way.shares, count, key=seed),
        SAMPLED: chosen(codes, sampled.shares, count, key=seed),
    }
    found = {}
    for name, taken in others.items():
        found[name] = area(first, rest.take(taken), table.schema, seed)
    return found


def area(real: sw.Table, other: sw.Table, schema: sw.Schema, seed: int) -> float:
    """Return the mean over folds of the detector's area under the curve."""
    both = align({"real": real, "other": other}, schema)
    judge = discriminate(both, "real", "other", key=seed, max_rows=real.num_rows, trees=XGBOOST)
    return float(np.mean([fold.auc for fold in judge.per_fold]))


def page(results: Path) -> str:
    """Return the section of the results page, empty without runs."""
    rows = stored(results / OUT.name)
    if not rows:
        return ""
    kinds = (RANDOM, RAKED, SAMPLED)
    body = []
    for name in dict.fromkeys(row["table"] for row in rows):
        runs = [row for row in rows if row["table"] == name]
        figures = [f"{mean(run['auc'][kind] for run in runs):.3f}" for kind in kinds]
        body.append([name, f"{runs[0]['rows']:,}", *figures])
    seeds = len({row["seed"] for row in rows})
    text = TEXT.format(seeds=seeds)
    text += markdown(["table", "rows of a side", *kinds], body, words=1)
    return text + "\n" + drawn_rows(stored(results / "tabular.jsonl"))


def drawn_rows(runs: list[dict[str, Any]]) -> str:
    """Return XGB-C2ST of drawn rows, raked in both ways and as drawn; empty without such runs."""
    name = "XGB-C2ST"
    body = [
        [
            run["table"],
            str(run["seed"]),
            *(f"{run[scores][name]:.1f}" for scores in ("scores", "resampled", "as_drawn")),
        ]
        for table in TABLES
        for run in runs
        if run["table"] == table and "resampled" in run and not run["label"]
        if run["method"] == "point_diff" and run["rows_asked"] is None
    ]
    if not body:
        return ""
    return DRAWN + markdown(["table", "seed", RAKED, SAMPLED, "as drawn"], body, words=1) + "\n"


def main() -> None:
    """Judge each table's rows, and store the areas."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources.add_data(parse)
    parse.add_argument("--table", nargs="*", choices=TABLES, default=list(TABLES))
    parse.add_argument("--seed", nargs="*", type=int, default=list(SEEDS))
    parse.add_argument("--out", type=Path, default=OUT)
    asked = parse.parse_args()
    there = sources.present((TABLES[name].file for name in asked.table), asked.data)
    lines = []
    for name in asked.table:
        if TABLES[name].file not in there:
            continue
        table = prepare(name, asked.data)
        for seed in asked.seed:
            auc = areas(table, seed)
            count = round(SHARE * (table.train.num_rows + table.test.num_rows))
            known = {"table": name, "seed": seed, "rows": count}
            lines.append(json.dumps({**known, "auc": auc, "commit": commit()}))
            shown = ", ".join(f"{kind} {value:.3f}" for kind, value in auc.items())
            print(f"{name}, seed {seed}: {shown}", flush=True)
    asked.out.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
