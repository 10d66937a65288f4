"""Fit AIM of mbi's authors to a coded table; runs where mbi 2.0.0 can be imported.

    python mbi_aim.py JOB

JOB is JSON: checkout (of https://github.com/ryan112358/mbi), table (a CSV file of codes), domain (a
JSON file with the number of codes of every column), epsilon, delta, max_model_size (megabytes),
max_cells, compile_candidates, seed, save (the CSV file to write). Prints the script's own progress.

mbi 2.0.0 estimates, and has no mechanisms: AIM is the script mechanisms/aim.py of its repository.
"""

import importlib
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from mbi import Dataset, Domain, estimation, marginal_oracles

MODEL_MB = 80
"""The script's default."""
MOST_CELLS = 10_000
"""Pairs with more cells are left out of the workload, as the script's command line does."""


class MirrorDescent(estimation.MirrorDescent):
    """The estimate of mbi 2.0.0, by the words in which the script of commit 361705d asks for it."""

    def estimate(self, domain, measurements, potentials=None, **options):
        # Release 2.0.0 renamed the argument; the start that it gives is the same.
        return super().estimate(domain, measurements, warm_start=potentials, **options)


def script(checkout):
    """Return the checkout's module of the mechanism, which the installed mbi serves."""
    sys.path.insert(0, str(Path(checkout) / "mechanisms"))
    module = importlib.import_module("aim")
    module.estimation = SimpleNamespace(MirrorDescent=MirrorDescent)
    return module


def fit(
    checkout, codes, sizes, epsilon, delta, seed,
    max_model_size=MODEL_MB, max_cells=MOST_CELLS, compile_candidates=True,
):  # fmt: skip
    """Fit AIM to every pair of columns of up to `max_cells` cells.

    Args:
        checkout: A folder with mbi's repository.
        codes: Codes of every column, by name.
        sizes: The number of codes of every column, by name.
        epsilon: Of the budget, under addition or removal of a row.
        delta: Of the budget.
        seed: Of selection, noise and rows.
        max_model_size: Megabytes of the model.
        max_cells: Cells of a pair in the workload.
        compile_candidates: Whether every candidate of a round is compiled before its table is
            computed, as mbi does. Without it the same tables are computed step by step, in a
            fraction of the seconds.

    Returns:
        mbi's model.
    """
    if not compile_candidates:
        plain = marginal_oracles.variable_elimination.__wrapped__
        marginal_oracles.variable_elimination = plain
    domain = Domain.fromdict(sizes)
    data = Dataset({name: np.asarray(codes[name]) for name in sizes}, domain)
    pairs = [pair for pair in itertools.combinations(sizes, 2) if domain.size(pair) <= max_cells]
    mechanism = script(checkout).AIM(
        epsilon,
        delta,
        prng=np.random.default_rng(seed),  # noise; rows are drawn from mbi's own generator
        max_model_size=max_model_size,
    )
    # The script draws rows at its end, and here they are drawn later.
    model, _ = mechanism.run(data, [(pair, 1.0) for pair in pairs], num_synth_rows=1)
    return model


def main():
    """Fit to a CSV file of codes, and write as many rows as the model estimates."""
    job = json.loads(sys.argv[1])
    sizes = json.loads(Path(job["domain"]).read_text())
    table = pd.read_csv(job["table"], usecols=list(sizes))
    model = fit(
        job["checkout"], table, sizes, job["epsilon"], job["delta"], job["seed"],
        job["max_model_size"], job["max_cells"], job["compile_candidates"],
    )  # fmt: skip
    drawn = pd.DataFrame(model.synthetic_data().to_dict())
    drawn[list(sizes)].to_csv(job["save"], index=False)


if __name__ == "__main__":
    main()
