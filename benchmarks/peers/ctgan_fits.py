"""Fits of the reference CTGAN, timed; runs where it can be imported.

    python ctgan_fits.py JOB

JOB is JSON: table (Parquet), discrete, batch, epochs (one fit each), threads, seed, rows and sample
(rows to draw from the last fit, and the Parquet file they go to). Prints one line of JSON: of every
fit its steps, its seconds in all, and those after the table was encoded, which are the epochs'.
"""

import json
import sys
import time

import pandas as pd
import torch
from ctgan import CTGAN
from ctgan.synthesizers import ctgan as package


def timed(make):
    wall, own = time.perf_counter(), time.process_time()
    value = make()
    return value, time.perf_counter() - wall, time.process_time() - own


def marked(marks):
    """Note when the package has encoded a table: it then makes the sampler of its conditions."""
    made = package.DataSampler

    def sampler(*args, **kwargs):
        found = made(*args, **kwargs)
        marks.append((time.perf_counter(), time.process_time()))
        return found

    package.DataSampler = sampler


def main():
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    table = pd.read_parquet(job["table"])
    fits, marks = [], []
    marked(marks)
    for epochs in job["epochs"]:
        torch.manual_seed(job["seed"])
        model = CTGAN(epochs=epochs, batch_size=job["batch"], enable_gpu=False)
        _, wall, own = timed(lambda m=model: m.fit(table, job["discrete"]))
        steps = epochs * max(len(table) // job["batch"], 1)
        ended = (time.perf_counter(), time.process_time())
        epochs_wall, epochs_own = (end - mark for end, mark in zip(ended, marks[-1], strict=True))
        fits.append({
            "steps": steps, "seconds": wall, "cpu": own,
            "epochs_seconds": epochs_wall, "epochs_cpu": epochs_own,
        })  # fmt: skip
    found = {"fits": fits}
    if job["rows"]:
        rows, wall, own = timed(lambda: model.sample(job["rows"]))
        rows.to_parquet(job["sample"])
        found |= {"sample_seconds": wall, "sample_cpu": own}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
