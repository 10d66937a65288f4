"""Fit AIM of mbi's authors to a coded table; runs where mbi 2.0.0 can be imported.

    python mbi_aim.py JOB

JOB is JSON: checkout, table (a CSV file of codes), domain (a JSON file with the number of codes of
every column), epsilon, delta, max_model_size (megabytes), max_cells, seed, save (the CSV file to
write). Prints the mechanism's own progress.

mbi estimates, and has no mechanisms. Its authors have AIM in two places, and the checkout is one of

- https://github.com/ryan112358/mbi: the script mechanisms/aim.py that the paper's readers use;
- https://github.com/google/dpsynth: the same authors' package, which builds on mbi and prepares all
  candidates of a round at once. It wants `dp-accounting more-itertools pydantic pyyaml tqdm etils
  importlib_resources fsspec`, too.
"""

import importlib
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from mbi import Dataset, Domain, estimation

MODEL_MB = 80
"""The default of both mechanisms."""
MOST_CELLS = 10_000
"""Pairs with more cells are left out of the workload, as the script's command line does."""


class MirrorDescent(estimation.MirrorDescent):
    """The estimate of mbi 2.0.0, by the words in which the script of commit 361705d asks for it."""

    def estimate(self, domain, measurements, potentials=None, **options):
        # Release 2.0.0 renamed the argument; the start that it gives is the same.
        return super().estimate(domain, measurements, warm_start=potentials, **options)


def by_script(checkout, data, pairs, epsilon, delta, seed, max_model_size):
    """Return the model that the script of mbi's repository fits."""
    sys.path.insert(0, str(Path(checkout) / "mechanisms"))
    script = importlib.import_module("aim")
    script.estimation = SimpleNamespace(MirrorDescent=MirrorDescent)
    mechanism = script.AIM(
        epsilon,
        delta,
        prng=np.random.RandomState(seed),
        max_model_size=max_model_size,
    )
    # The script draws rows at its end, and here they are drawn later.
    model, _ = mechanism.run(data, [(pair, 1.0) for pair in pairs], num_synth_rows=1)
    return model


def by_dpsynth(checkout, data, pairs, epsilon, delta, seed, max_model_size):
    """Return the model that dpsynth's AIM fits, after the one-way tables that dpsynth counts."""
    sys.path.insert(0, str(checkout))
    logging = importlib.import_module("absl.logging")
    logging.set_verbosity(logging.INFO)
    mechanisms = importlib.import_module("dpsynth.discrete_mechanisms")
    accounting = importlib.import_module("dpsynth.discrete_mechanisms.accounting")
    aim = mechanisms.AIMConfig(workload=pairs, max_model_size=max_model_size)
    # The budget by the rule that the script and siloweave use, so that all have the same.
    mechanism = mechanisms.DiscreteConfig(mechanism=aim).configure(
        zcdp_rho=accounting.zcdp_rho(epsilon, delta)
    )
    return mechanism(np.random.default_rng(seed), data).model


def fit(
    checkout, codes, sizes, epsilon, delta, seed, max_model_size=MODEL_MB, max_cells=MOST_CELLS
):
    """Fit AIM to every pair of columns of up to `max_cells` cells.

    Args:
        checkout: A folder with mbi's repository, or dpsynth's.
        codes: Codes of every column, by name.
        sizes: The number of codes of every column, by name.
        epsilon: Of the budget, under addition or removal of a row.
        delta: Of the budget.
        seed: Of selection, noise and rows.
        max_model_size: Megabytes of the model.
        max_cells: Cells of a pair in the workload.

    Returns:
        mbi's model.
    """
    domain = Domain.fromdict(sizes)
    data = Dataset({name: np.asarray(codes[name]) for name in sizes}, domain)
    pairs = [pair for pair in itertools.combinations(sizes, 2) if domain.size(pair) <= max_cells]
    np.random.seed(seed)  # noqa: NPY002 - mbi draws rows from the global generator
    mechanism = by_dpsynth if (Path(checkout) / "dpsynth").is_dir() else by_script
    return mechanism(checkout, data, pairs, epsilon, delta, seed, max_model_size)


def main():
    """Fit to a CSV file of codes, and write as many rows as the model estimates."""
    job = json.loads(sys.argv[1])
    sizes = json.loads(Path(job["domain"]).read_text())
    table = pd.read_csv(job["table"], usecols=list(sizes))
    model = fit(
        job["checkout"], table, sizes, job["epsilon"], job["delta"], job["seed"],
        job["max_model_size"], job["max_cells"],
    )  # fmt: skip
    drawn = pd.DataFrame(model.synthetic_data().to_dict())
    drawn[list(sizes)].to_csv(job["save"], index=False)


if __name__ == "__main__":
    main()
