"""Training and sampling of the authors' TabDDPM, timed; runs where torch can be imported.

    python tabddpm_fits.py JOB

JOB is JSON: checkout (of their repository), rows (safetensors with numbers, codes and labels),
sizes (categories of each code), classes (of the labels, 0 without), hidden, timesteps, batch, rate,
decay, steps (one training each), threads, seed, draws and sample (rows to draw from the last
network, and the safetensors file they go to). Prints one line of JSON.

Their modules are used as they are; the loop around them does per step what their trainer does:
a batch in shuffled order, both losses, AdamW at a linearly falling rate, the moving average.
"""

import contextlib
import copy
import io
import json
import sys
import time

import numpy as np
import torch
from safetensors.torch import load_file, save_file


def timed(make):
    wall, own = time.perf_counter(), time.process_time()
    value = make()
    return value, time.perf_counter() - wall, time.process_time() - own


def build(job, numbers):
    from tab_ddpm import GaussianMultinomialDiffusion, MLPDiffusion

    layers = {"d_layers": list(job["hidden"]), "dropout": 0.0}
    width = numbers + sum(job["sizes"])
    net = MLPDiffusion(width, job["classes"], job["classes"] > 0, layers)
    sizes = np.array(job["sizes"] or [0])
    return GaussianMultinomialDiffusion(
        sizes, numbers, net, num_timesteps=job["timesteps"], scheduler="cosine"
    )


def batches(rows, labels, size):
    while True:
        order = torch.randperm(len(rows))
        for i in range(0, len(rows) - size + 1, size):
            yield rows[order[i : i + size]], labels[order[i : i + size]]


def train(job, rows, labels, numbers, steps):
    diffusion = build(job, numbers)
    average = copy.deepcopy(diffusion._denoise_fn)
    optimiser = torch.optim.AdamW(diffusion.parameters(), lr=job["rate"], weight_decay=job["decay"])
    feed = batches(rows, labels, job["batch"])
    for step in range(steps):
        x, y = next(feed)
        optimiser.zero_grad()
        sum(diffusion.mixed_loss(x, {"y": y})).backward()
        optimiser.step()
        for group in optimiser.param_groups:
            group["lr"] = job["rate"] * (1 - step / steps)
        with torch.no_grad():
            for kept, now in zip(
                average.parameters(), diffusion._denoise_fn.parameters(), strict=True
            ):
                kept.mul_(0.999).add_(now, alpha=0.001)
    return diffusion


def main():
    job = json.loads(sys.argv[1])
    sys.path.insert(0, job["checkout"])
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])
    read = load_file(job["rows"])
    rows = torch.cat([read["numbers"], read["codes"].float()], 1)
    labels, numbers = read["labels"].long(), read["numbers"].shape[1]
    fits = []
    for steps in job["steps"]:
        model, wall, own = timed(lambda n=steps: train(job, rows, labels, numbers, n))
        fits.append({"steps": steps, "seconds": wall, "cpu": own})
    found = {"fits": fits}
    if job["draws"]:
        law = torch.bincount(labels, minlength=max(job["classes"], 1)).float()
        model.eval()
        with contextlib.redirect_stdout(io.StringIO()):
            (drawn, told), wall, own = timed(
                lambda: model.sample_all(job["draws"], min(job["draws"], 10_000), law)
            )
        parts = {"numbers": drawn[:, :numbers], "codes": drawn[:, numbers:].long(), "labels": told}
        save_file({n: v.contiguous() for n, v in parts.items()}, job["sample"])
        found |= {"sample_seconds": wall, "sample_cpu": own}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
