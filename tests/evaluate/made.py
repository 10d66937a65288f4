"""Tables for the tests of quality."""

import numpy as np
import polars as pl

from siloweave.tables import align


def people(seed, count=400, noise=0.0):
    """Numbers and categories that go together; more noise, more independent."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=count)
    blur = rng.normal(size=(4, count)) * (0.3 + noise)
    return pl.DataFrame(
        {
            "age": np.round(40 + 12 * (hidden + blur[0]), 1),
            "pay": np.exp(0.5 * (hidden + blur[1])) * 1_000,
            "job": np.array(["clerk", "nurse", "pilot"])[
                np.digitize(hidden + blur[2], [-0.5, 0.8])
            ],
            "rich": hidden + blur[3] > 0.7,
        }
    )


def shuffled(frame, seed):
    rng = np.random.default_rng(seed)
    return frame.select(
        pl.Series(c, frame[c].gather(rng.permutation(len(frame)))) for c in frame.columns
    )


def noisy(frame, seed, share):
    """Replace a share of every column's values by values of other rows."""
    rng = np.random.default_rng(seed)
    out = {}
    for name in frame.columns:
        values = frame[name].to_numpy().copy()
        hit = rng.random(len(values)) < share
        values[hit] = rng.permutation(values)[hit]
        out[name] = values
    return pl.DataFrame(out)


def pair(real, synthetic, **others):
    return align({"real": frame(real), "synthetic": frame(synthetic), **others})


def frame(columns):
    return columns if isinstance(columns, pl.DataFrame) else pl.DataFrame(columns, strict=False)
