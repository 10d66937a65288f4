"""The benchmark tables as the FLAIM paper prepares them: bins, splits and a held-out part.

Maddock, Cormode & Maple 2024, "FLAIM" (KDD 2024), appendix: 32 equal-width bins between the
smallest and the largest value, which are taken as public; 90 % to train on, drawn with seed 571.

Not private: bounds and categories are read off the tables, as in every published figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sources
from safetensors.numpy import load_file, save_file

import siloweave as sw
from siloweave.tables.codes import Codes
from siloweave.tables.keys import generator
from siloweave.tables.split import clusters

SPLIT_SEED = 571


@dataclass(frozen=True)
class Source:
    """A table, and the share of its rows that the paper uses."""

    file: str
    share: float = 1.0


TABLES = {
    "adult": Source("adult"),
    "covertype": Source("covertype", 0.2),
    "credit": Source("credit_fraud"),
    "intrusion": Source("intrusion_kdd99_10pct", 0.4),
    "marketing": Source("bank_marketing"),
    "census": Source("census_income_kdd", 0.3),
}


@dataclass(frozen=True)
class Prepared:
    """Codes to train and to test on."""

    encoder: sw.Encoder
    train: Codes
    test: Codes


def column_of(table: sw.Table, name: str, numeric: bool) -> sw.Column:
    """A column's facts, with bounds and categories of the table."""
    values = table.values(name)[~table.missing(name)]
    missing = bool(table.missing(name).any())
    distinct = sorted(set(values.tolist()))
    if not numeric or len(distinct) < 2:
        return sw.Column(name, "categorical", categories=tuple(distinct), missing=missing)
    whole = np.asarray(values, dtype=float)
    kind: Any = "integer" if (whole == np.round(whole)).all() else "continuous"
    cast = int if kind == "integer" else float
    low, high = cast(whole.min()), cast(whole.max())
    return sw.Column(name, kind, low=low, high=high, missing=missing)


def prepare(name: str, data: Path, bins: int = 32) -> Prepared:
    """Read a table, take its share of rows, code it, and split off a tenth.

    Args:
        name: One of TABLES.
        data: The folder with the Parquet files (see sources.py).
        bins: Of a numeric column.
    """
    # Late: what only needs `column_of` is measured without scikit-learn's 150 MB.
    from sklearn.model_selection import train_test_split

    source = TABLES[name]
    facts = sources.facts(source.file)
    table = sources.read(source.file, data)
    if source.share < 1:
        order = generator(SPLIT_SEED).permutation(table.num_rows)
        table = table.take(np.sort(order[: round(source.share * table.num_rows)]))
    numeric = set(facts["continuous"])
    columns = tuple(column_of(table, column, column in numeric) for column in table.names)
    encoder = sw.Encoder(sw.Schema(columns).with_fallbacks(), bins)
    codes = encoder.encode(table)
    kept, held = train_test_split(np.arange(codes.num_rows), test_size=0.1, random_state=SPLIT_SEED)
    return Prepared(encoder, codes.take(kept), codes.take(held))


def parties(
    name: str, train: Codes, count: int, method: str, cache: Path, seed: int = 0
) -> dict[str, Codes]:
    """Clusters of rows, one per party; kept in `cache`, because UMAP takes minutes.

    Args:
        name: The table's, for the file in the cache.
        train: Rows to spread.
        count: Parties.
        method: "umap" as in the paper, or "pca".
        cache: Folder.
        seed: Of the clustering.
    """
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{name}-{train.num_rows}-{method}-{count}-{seed}.safetensors"
    if not path.is_file():
        parts = clusters(train, count, key=seed, method=method)
        owner = np.zeros(train.num_rows, dtype=np.int16)
        for k, rows in enumerate(parts):
            owner[rows] = k
        save_file({"owner": owner}, path)
    owner = load_file(path)["owner"]
    return {f"party-{k:03d}": train.take(np.flatnonzero(owner == k)) for k in range(count)}
