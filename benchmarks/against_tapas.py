"""The definitions of the five shadow attacks here and in TAPAS, on the same tables.

TAPAS (https://github.com/alan-turing-institute/tapas) is no package of the index; it is imported
from a clone, in an environment of its own. Compared are the summaries that NaiveGroundhog and
HistGroundhog learn from, and the scores of the three others, over twelve tables and one record.

    git clone https://github.com/alan-turing-institute/tapas && git -C tapas checkout a7069d7
    python3.11 -m venv peer && peer/bin/pip install pandas pyarrow scikit-learn matplotlib \
        seaborn palettable tqdm
    python benchmarks/against_tapas.py --python peer/bin/python --tapas tapas
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import sources

from siloweave.attacks.groundhog import SummaryLayout, histogram_summary, naive_summary, nearness
from siloweave.tables import Column, Schema, Table, write

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "against_tapas.json"
SETS, ROWS = 12, 300
LABELS = {"job": ("a", "b", "c", "d"), "town": ("x", "y", "z")}


def table(rows: int, seed: int) -> Table:
    """Two columns of numbers from 0 to 1, and two of categories, of which none is missing."""
    rng = np.random.default_rng(seed)
    columns: dict[str, tuple[np.ndarray, None]] = {
        "height": (rng.beta(2, 3, rows), None),
        "weight": (rng.beta(5, 2, rows), None),
    }
    for name, labels in LABELS.items():
        chance = rng.dirichlet(np.full(len(labels), 3.0))
        columns[name] = (rng.choice(np.array(labels, dtype=object), rows, p=chance), None)
    return Table.from_columns(columns)


def theirs(sets: list[Table], record: Table, python: Path, tapas: Path) -> dict[str, list]:
    """What TAPAS says."""
    numbers = [
        {"name": n, "type": "real", "representation": "number"} for n in ("height", "weight")
    ]
    words = [
        {"name": n, "type": "finite", "representation": list(labels)}
        for n, labels in LABELS.items()
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "description.json").write_text(json.dumps(numbers + words))
        write(record, folder / "record.parquet")
        for i, one in enumerate(sets):
            write(one, folder / f"set-{i:02d}.parquet")
        command = [str(python), str(HERE / "peers" / "shadow_definitions.py"), name]
        environment = {**os.environ, "PYTHONPATH": str(tapas.resolve())}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    answer: dict[str, list] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Compare."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--python", type=Path, required=True, help="Of the peer's environment.")
    parse.add_argument("--tapas", type=Path, required=True, help="A clone of TAPAS.")
    args = parse.parse_args()
    sources.require_path(args.python, "the peer's interpreter")
    sources.require_path(args.tapas, "a clone of TAPAS")
    schema = Schema(
        tuple(Column(n, "continuous", low=0.0, high=1.0) for n in ("height", "weight"))
        + tuple(Column(n, "categorical", categories=labels) for n, labels in LABELS.items())
    ).with_fallbacks()
    sets = [table(ROWS, seed) for seed in range(SETS)]
    record, layout = sets[0].take([7]), SummaryLayout.of(table(3000, 99), schema)
    other = theirs(sets[1:], record, args.python, args.tapas)
    rows, one = [layout.read(s) for s in sets[1:]], layout.read(record)
    near = np.array([nearness(r, one, layout) for r in rows])
    unused = layout.dimensions - 2 - sum(map(len, LABELS.values()))
    ours = {
        "naive": [naive_summary(r, layout) for r in rows],
        "histogram": [histogram_summary(r, layout) for r in rows],
        "hamming": near[:, 0] * 4,  # a share here, a number of columns there
        "l2": near[:, 1],
        "density": near[:, 2] + unused / 2 * np.log(2 * np.pi),  # no codes for missing there
    }
    found = {}
    for name, values in other.items():
        if name in ("naive", "histogram"):  # the same numbers in another order, zeros apart
            gaps = [
                np.abs(np.sort(a[a != 0]) - np.sort(np.array(b)[np.array(b) != 0])).max()
                for a, b in zip(ours[name], values, strict=True)
            ]
        else:
            gaps = np.abs(np.asarray(ours[name]) - np.array(values))
        found[name] = float(np.max(gaps))
        print(f"{name}: largest difference {found[name]:.2g}")
    RESULTS.write_text(json.dumps({"sets": SETS - 1, "largest difference": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
