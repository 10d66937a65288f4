"""How detectors that stop early judge raked rows: their AUC after few rounds and after all.

    python benchmarks/raking_trap.py
    python benchmarks/raking_trap.py --steps 200 --rows 4000 --out trial.jsonl
    python benchmarks/results_page.py

Raking sets single columns right (decision 0012). The first trees of a detector find what is wrong
in single columns, so they find little, and one that stops when its first rounds gain nothing calls
raked rows real. `sw.score` therefore always takes the same number of rounds
(`evaluate/predictive.py`, `early_stopping=False`).

Adult from the package, rows and split of the neural generators: a Gaussian copula, and PointDiff
after 3,000 steps, each with seed 0, drawn once raked and once as the model draws.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import sources
from flaim_adult import commit
from marked import table as markdown
from neural_tables import prepare

import siloweave as sw
from siloweave.evaluate import discriminator
from siloweave.evaluate.predictive import LONG
from siloweave.models.settings import DiffusionSettings
from siloweave.tables import align

HERE = Path(__file__).parent
OUT = HERE / "results" / "raking_trap.jsonl"
ROUNDS = (5, 10, 20, 50, LONG.count)
TEXT = """
### Raked rows fool a detector that stops early

From `raking_trap.py`: boosted trees learn to distinguish drawn rows of Adult from the training
rows. The figures are their area under the curve (AUC), out of fold, after so many rounds; at .5
they cannot distinguish them. One fit and one draw each.

The first trees see single columns, which [raking](../glossary.md#raking) has set right. After five
rounds PointDiff's raked rows have .516 and its rows as drawn .535; after all rounds both have .54.
So a detector that stops when its first rounds gain nothing, or that has only a few, calls raked
rows nearly real. The copula's rows, which have one correlation for each two columns, are recognised
either way.

A reader saw .489 after ten rounds with other rows, which reads as "better than real". Real rows
that are raked to other real rows have .46 to .49 after all rounds, for
[another reason](#how-far-raking-deceives-a-detector).

Detectors of all pages here run a fixed number of rounds. The exception are AIM's AUCs on two tables
in [workload and bins](#workload-and-bins), whose rows are not raked.

"""


def areas(real: sw.Table, synthetic: sw.Table, schema: sw.Schema) -> dict[str, float]:
    """Return the detector's area under the curve, by number of rounds."""
    both = align({"real": real, "synthetic": synthetic}, schema)
    found = {}
    for rounds in ROUNDS:
        with patch.object(discriminator, "LONG", replace(LONG, count=rounds)):
            judged = discriminator.discriminate(both, "real", "synthetic", key=0)
        found[str(rounds)] = judged.auc
    return found


def page(results: Path) -> str:
    """Return the section of the results page, empty without runs."""
    file = results / OUT.name
    if not file.is_file():
        return ""
    rows = [json.loads(text) for text in file.read_text().splitlines()]
    body = [
        [
            row["model"],
            "raked" if row["raked"] else "as drawn",
            *(f"{row['auc'][str(n)]:.3f}" for n in ROUNDS),
        ]
        for row in rows
    ]
    head = ["model", "rows", *(f"{n} rounds" for n in ROUNDS)]
    return TEXT + markdown(head, body, words=2) + "\n"


def main() -> None:
    """Fit both models, draw twice, and store the areas."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources.add_data(parse)
    parse.add_argument("--steps", type=int, default=3_000, help="of PointDiff")
    parse.add_argument("--rows", type=int, help="rows used at most, for trials")
    parse.add_argument("--out", type=Path, default=OUT)
    asked = parse.parse_args()
    rows = prepare("adult", asked.data, asked.rows)
    models: dict[str, Any] = {
        "gaussian_copula": sw.GaussianCopula(),
        "point_diff": sw.PointDiff(
            diffusion=DiffusionSettings(steps=asked.steps), target=rows.target
        ),
    }
    lines = []
    for name, model in models.items():
        fitted = model.fit(rows.train, rows.schema, seed=0, progress=False)
        for raked in (True, False):
            synthetic = fitted.sample_table(rows.train.num_rows, seed=0, raked=raked)
            auc = areas(rows.train, synthetic, rows.schema)
            known = {"model": name, "raked": raked, "rows": rows.train.num_rows}
            lines.append(json.dumps({**known, "auc": auc, "commit": commit()}))
            shown = ", ".join(f"{n} rounds {area:.3f}" for n, area in auc.items())
            print(f"{name}, {'raked' if raked else 'as drawn'}: {shown}", flush=True)
    asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
