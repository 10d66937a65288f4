"""mbi 2.x in a process of its own: it wants JAX in float64, which no other test shall see.

Reads cases as JSON from standard input and writes JSON to standard output::

    {"names", "sizes", "total", "potentials": [[clique, table], ...], "wanted": [clique, ...]}
    {"names", "sizes", "total", "measured": [[clique, table, sigma], ...], "wanted": [...]}

The first asks for marginals of a model, the second for those of mbi's own fit to measurements.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ITERATIONS = 1000


def ask(cases):
    """Marginals as mbi has them: for each case a list of arrays in the order of `wanted`."""
    settings = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__))],
        input=json.dumps(cases),
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [[np.array(table) for table in answer] for answer in json.loads(done.stdout)]


def case(domain, total, wanted, **rest):
    return {
        "names": domain.names,
        "sizes": domain.sizes,
        "total": total,
        "wanted": wanted,
    } | {
        kind: [[part.tolist() if isinstance(part, np.ndarray) else part for part in m] for m in ms]
        for kind, ms in rest.items()
    }


def _answer(case):
    import mbi

    domain = mbi.Domain(case["names"], case["sizes"])
    if "measured" in case:
        noisy = [
            mbi.LinearMeasurement(np.array(y).reshape(-1), tuple(c), stddev=sigma)
            for c, y, sigma in case["measured"]
        ]
        estimator = mbi.estimation.MirrorDescent()
        model = estimator.estimate(domain, noisy, known_total=case["total"], iters=ITERATIONS)
    else:
        tables = {
            tuple(c): mbi.Factor(domain.project(tuple(c)), np.array(t))
            for c, t in case["potentials"]
        }
        potentials = mbi.CliqueVector(domain, list(tables), tables)
        marginals = mbi.marginal_oracles.message_passing_stable(potentials, case["total"])
        model = mbi.MarkovRandomField(
            potentials=potentials, marginals=marginals, total=case["total"]
        )
    tables = [model.project(tuple(c)).datavector(flatten=False) for c in case["wanted"]]
    assert all(t.dtype == np.float64 for t in tables)
    return [np.asarray(t).tolist() for t in tables]


if __name__ == "__main__":
    print(json.dumps([_answer(case) for case in json.load(sys.stdin)]))
