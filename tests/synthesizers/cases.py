"""One small study for every synthesizer, and the tables that the shared tests fit.

A new family adds its name to `FAST` if its defaults are slow, and to `PARTIES` if its parties do
not hold different rows; nothing else.
"""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from siloweave.core.fit import Fit
from siloweave.privacy.budget import Budget
from siloweave.tables import Column, Schema
from tests.synthesizers.families import SYNTHESIZERS

# Settings with which a fit takes a moment.
FAST: dict[str, dict[str, Any]] = {
    "aim": {},
    "privmrf": {},
    "flaim": {"rounds": 2, "participation": 1.0},
    "distaim": {"rounds": 2, "participation": 1.0},
    "two_round": {},
    "secure_two_round": {},
}
BUDGET = Budget(epsilon=4.0, delta=1e-5)
ROWS = 60
WORKLOAD = (("sex", "town"), ("town", "age"), ("visits", "member"), ("pay", "sex"), ("seen",))
TOWNS = ("Ulm", "Bonn", "Jena", "elsewhere")
SCHEMA = Schema(
    (
        Column("sex", "categorical", categories=("f", "m"), missing=True),
        Column("town", "categorical", categories=TOWNS, other="elsewhere"),
        Column("age", "integer", low=18, high=90),
        Column("visits", "integer", low=0, high=9, missing=True),
        Column("pay", "continuous", low=-3.0, high=3.0, missing=True),
        Column("member", "boolean"),
        Column("seen", "datetime", low="2020-01-01", high="2023-01-01"),
    )
).with_fallbacks()


def pandas_frame(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """A frame with every kind of column, and missing values in three of them."""
    rng = np.random.default_rng(seed)
    gone = rng.random((3, rows)) < 0.3
    gone[:, :2] = [True, False]  # both occur, however few the rows
    days = pd.to_timedelta(rng.integers(0, 1000, rows), unit="D")
    return pd.DataFrame(
        {
            "sex": pd.Series(np.where(gone[0], None, rng.choice(["f", "m"], rows)), dtype="str"),
            "town": pd.Categorical(rng.choice(TOWNS[:3], rows), categories=TOWNS),
            "age": rng.integers(18, 91, rows),
            "visits": pd.array(np.where(gone[1], None, rng.integers(0, 10, rows)), dtype="Int64"),
            "pay": np.where(gone[2], np.nan, rng.uniform(-3, 3, rows)),
            "member": rng.random(rows) < 0.5,
            "seen": pd.Timestamp("2020-01-01") + days,
        }
    )


def polars_frame(rows: int = ROWS, seed: int = 0) -> pl.DataFrame:
    """The same in polars."""
    frame = pandas_frame(rows, seed).astype({"town": "str"})
    return pl.from_pandas(frame).with_columns(pl.col("visits").cast(pl.Int16))


def info_of(name: str) -> Any:
    return SYNTHESIZERS[name].method


def parties_of(name: str, frame: Any, parties: int = 3) -> Any:
    """The frame as the synthesizer wants it: whole, or parties with rows or columns of it."""
    if info_of(name).split == "central":
        return frame
    if info_of(name).split == "columns":
        names = list(frame.columns)
        return [frame[names[i::parties]] for i in range(min(parties, len(names)))]
    step = -(-len(frame) // parties)
    return [frame[i : i + step] for i in range(0, len(frame), step)]


def fit(
    name: str,
    data: Any = None,
    *,
    schema: Schema = SCHEMA,
    workload: Any = WORKLOAD,
    budget: Budget = BUDGET,
    settings: dict[str, Any] | None = None,
    **named: Any,
) -> Fit:
    """Fit a synthesizer to a small frame, or to parts of it."""
    if data is None:
        data = parties_of(name, pandas_frame())
    make = SYNTHESIZERS[name](bins=5, workload=workload, **FAST.get(name, {}) | (settings or {}))
    return make.fit(data, schema, budget=budget, **named)


def seeded(name: str, data: Any = None, *, seed: int = 0, **named: Any) -> Fit:
    """The same with noise that can be repeated."""
    return fit(name, data, seed=seed, noise="seeded", **named)
