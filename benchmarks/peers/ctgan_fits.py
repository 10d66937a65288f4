"""Fits of the reference CTGAN, timed; runs where it can be imported.

    python ctgan_fits.py JOB

JOB is JSON: table (Parquet), discrete, batch, epochs (one fit each), threads, seed, rows and sample
(rows to draw from the last fit, and the Parquet file they go to). Prints one line of JSON.
"""

import json
import sys
import time

import pandas as pd
import torch
from ctgan import CTGAN


def timed(make):
    wall, own = time.perf_counter(), time.process_time()
    value = make()
    return value, time.perf_counter() - wall, time.process_time() - own


def main():
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    table = pd.read_parquet(job["table"])
    fits = []
    for epochs in job["epochs"]:
        torch.manual_seed(job["seed"])
        model = CTGAN(epochs=epochs, batch_size=job["batch"], enable_gpu=False)
        _, wall, own = timed(lambda m=model: m.fit(table, job["discrete"]))
        steps = epochs * max(len(table) // job["batch"], 1)
        fits.append({"steps": steps, "seconds": wall, "cpu": own})
    found = {"fits": fits}
    if job["rows"]:
        rows, wall, own = timed(lambda: model.sample(job["rows"]))
        rows.to_parquet(job["sample"])
        found |= {"sample_seconds": wall, "sample_cpu": own}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
