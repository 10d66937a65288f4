"""Steps a second of one autoencoder: without privacy, with book-keeping, with a gradient per row.

Run: ``python benchmarks/dp_sgd.py``. The variants take turns, so that a busy machine slows all of
them; the best and the median of the rounds are printed, and the ratio of the medians.
"""

import argparse
import json
import statistics
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from siloweave.models.nets import MLP, Dense
from siloweave.models.train import Poisson, mean_gradient, train
from siloweave.privacy import OSEntropy
from siloweave.privacy.gradients import Private, secret_key

INPUT, WIDTH = 100, 512


def loss(model, row, key):
    return jnp.mean((model(row) - row) ** 2)


class Update(eqx.Module):
    gradient: object
    optimiser: optax.GradientTransformation = eqx.field(static=True)

    def __call__(self, state, batch, key):
        model, moments = state
        gradient, value = self.gradient(loss, model, batch, key)
        change, moments = self.optimiser.update(gradient, moments)
        return (eqx.apply_updates(model, change), moments), value


class Plain(eqx.Module):
    def __call__(self, loss, model, batch, key):
        return mean_gradient(loss, model, batch, key)


def variants(batch, rows):
    private = Private(secret_key(OSEntropy()), clip=1.0, noise_multiplier=1.0, batch=batch)
    booked = Private(private.secret, clip=1.0, noise_multiplier=1.0, batch=batch, layer=Dense)
    poisson = Poisson(batch / rows)
    return {
        "no privacy": (Plain(), "shuffled"),
        "no privacy, Poisson": (Plain(), poisson),
        "book-keeping": (booked, poisson),
        "gradient per row": (private, poisson),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow", type=int, default=3, help="steps with a gradient per row")
    given = parser.parse_args()
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(given.rows, INPUT)).astype(np.float32))
    optimiser = optax.adam(1e-3)
    model = MLP(INPUT, (WIDTH, WIDTH, WIDTH), INPUT, key=jax.random.key(0))
    state = (model, optimiser.init(eqx.filter(model, eqx.is_array)))
    runs = {n: (Update(g, optimiser), s) for n, (g, s) in variants(given.batch, given.rows).items()}
    pace = {name: [] for name in runs}
    for round_ in range(given.rounds + 1):
        for name, (update, sampler) in runs.items():
            steps = given.slow if name == "gradient per row" else given.steps
            if steps == 0:
                continue
            began = time.perf_counter()
            train(state, update, rows, steps=steps, batch=given.batch, key=jax.random.key(round_),
                  sampler=sampler)  # fmt: skip
            took = time.perf_counter() - began
            if round_:  # the first round compiles
                pace[name].append(steps / took)
            else:
                print(f"{name}: first call {took:.1f} s", flush=True)
    base = statistics.median(pace["no privacy"])
    result = {}
    for name, values in pace.items():
        if values:
            middle = statistics.median(values)
            result[name] = {"best": max(values), "median": middle, "slower": base / middle}
            print(f"{name:22} best {max(values):7.1f}  median {middle:7.1f} steps a second"
                  f"  {base / middle:5.2f} times slower")  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    main()
