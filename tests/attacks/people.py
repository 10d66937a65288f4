"""A population to draw tables from, with a column of every kind."""

import numpy as np
import polars as pl

LETTERS = np.array(list("abcdefgh"))


def people(seed, rows, gaps=False):
    """Draw rows of one population; different seeds give different people."""
    rng = np.random.default_rng(seed)
    group = rng.integers(4, size=rows)
    age = np.clip(rng.normal(30 + 10 * group, 8), 18, 90).round()
    frame = pl.DataFrame(
        {
            "group": LETTERS[group],
            "city": LETTERS[np.minimum(7, rng.geometric(0.4, rows) - 1 + (group == 3))],
            "owner": rng.random(rows) < 0.2 + 0.15 * group,
            "age": age.astype(int),
            "income": np.exp(rng.normal(8 + 0.02 * age, 0.4)),
            "balance": rng.normal(-50, 400, rows).round(2),
            "visits": rng.poisson(2 + group, rows),
        }
    )
    if not gaps:
        return frame
    return frame.with_columns(
        pl.when(pl.Series(rng.random(rows) > 0.2)).then(pl.col("income")).alias("income"),
        pl.when(pl.Series(rng.random(rows) > 0.1)).then(pl.col("city")).alias("city"),
    )
