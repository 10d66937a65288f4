"""How long scores and attacks take on the embedded Adult table, each in a process of its own.

    python benchmarks/score_speed.py
    python benchmarks/comparison_page.py

Wall and processor seconds, and peak memory of the whole process, start of Python included.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from reference_aim import measured

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "score_speed.json"
SETUP = """
import numpy as np
import siloweave as sw
from siloweave.attacks.shadow import Sampler
from siloweave.datasets import adult, adult_schema
if __name__ == "__main__":
    whole = adult()
    order = np.random.default_rng(0).permutation(whole.num_rows)
    half = whole.num_rows // 2
    train, control = whole.take(order[:half]), whole.take(order[half:])
    mixed = whole.take(np.random.default_rng(1).integers(0, whole.num_rows, whole.num_rows))
"""
CASES = {
    "score, 48,842 real and as many synthetic rows": """
    sw.score(whole, mixed, target="income")
""",
    "score, 24,421 rows each and a holdout": """
    sw.score(train, mixed.take(range(half)), holdout=control, target="income")
""",
    "attack, all without shadow models, 1,000 targets": """
    sw.attack(train, mixed, control=control, targets=1000)
""",
    "shadow attack, 100 models of AIM, 1,000 rows each, five records": """
    generator = Sampler(sw.AIM(degree=3, queries=64), adult_schema(), sw.Budget(1.0, 1e-6))
    sw.shadow_attack(generator, whole, range(5), train_sets=50, test_sets=50, key=0)
""",
    "score and attack, a column of 100,000 categories": """
    rng = np.random.default_rng(0)
    names = np.array([f"n{i}" for i in range(100_000)], dtype=object)
    wide = {
        "name": (names[rng.integers(0, 100_000, 60_000)], None),
        "age": (rng.integers(0, 99, 60_000), None),
        "sex": (names[rng.integers(0, 2, 60_000)], None),
    }
    table = sw.Table.from_columns(wide)
    schema = sw.Schema((
        sw.Column("name", "categorical", categories=tuple(names)),
        sw.Column("age", "integer", low=0, high=99),
        sw.Column("sex", "categorical", categories=("n0", "n1")),
    ))
    parts = [table.take(range(i, 60_000, 3)) for i in range(3)]
    sw.score(parts[0], parts[1], holdout=parts[2], schema=schema)
    sw.attack(parts[0], parts[1], control=parts[2], schema=schema)
""",
}


def main() -> None:
    """Run every case."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--only", default="", help="Cases whose name holds this.")
    args = parse.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name, code in CASES.items():
            if args.only not in name:
                continue
            script = Path(folder) / "case.py"
            script.write_text(SETUP + code)
            found[name] = measured([sys.executable, str(script)], Path(folder) / "log", limit=3600)
            print(f"{name}: {found[name]['seconds']:.0f} s", flush=True)
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
