"""Run MargNet on a table of codes; runs in a checkout of KaiChen9909/margnet, with torch.

    python margnet.py JOB

JOB is JSON: checkout (a folder), train (CSV of codes), sizes (codes of each column), sample (the
CSV file to write), rows (to draw), rho (zCDP), seed, threads. Prints one line of JSON: processor
seconds of the fit, and how many pairs were measured.

The seed is of the network alone: noise has none. Layers, steps and rate are those that the checkout
has for Adult at epsilon 1. The table is coded already, so all of rho goes to the method and none to
the checkout's preprocessing.
"""

import contextlib
import io
import json
import resource
import sys
import tempfile
from argparse import Namespace

import pandas as pd

CONFIG = {
    "train": {
        "selection_iterations": 200, "final_iterations": 200, "lr": 0.001, "batch_size": 512,
    },
    "model_params": {"d_layers": [256, 256], "dropout": 0.0},
}  # fmt: skip


def main():
    """Fit, draw and report."""
    import torch

    job = json.loads(sys.argv[1])
    sys.path.insert(0, job["checkout"])
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])
    # The checkout asks a GPU for its memory; there is none.
    torch.cuda.reset_peak_memory_stats = lambda *ignored, **also: None
    torch.cuda.max_memory_allocated = lambda *ignored, **also: 0

    from method.MargDL.main import MargDLGen

    table = pd.read_csv(job["train"])
    settings = Namespace(iter=None, lr=None, batch=None, test=False, resample=False)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        generator = MargDLGen(
            settings, table, job["sizes"], "cpu", CONFIG, parent_dir=folder, model_type="gan"
        )
        measured = generator.fit_adaptive(job["rho"])
        rows = generator.model.sample(job["rows"])
    seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - start
    pd.DataFrame(rows, columns=list(table)).to_csv(job["sample"], index=False)
    pairs = {clique for clique, *_ in measured if len(clique) == 2}
    print(json.dumps({"seconds": seconds, "pairs": len(pairs), "tables": len(measured)}))


if __name__ == "__main__":
    main()
