"""What a synthesizer of split columns gets without any link: exact shares, and nothing else.

    python benchmarks/columns_split_floors.py
    python benchmarks/columns_split_floors.py --data FOLDER --table nltcs
    python benchmarks/results_page.py

Two tables without noise, on the tables of VertiMRF's experiments (Zhao et al. 2024, KDD 2024):
*independent columns* have every column's exact shares, and no pair; *independent parties* have the
exact joint shares of each party's columns, and nothing that links two parties. Their total
variation distance to the real rows is computed from these products, so no row is drawn. Marginals
are those of columns_split.py: 300 random ones of three, four and five columns for each of its
seeds, and `all3` is over all of three columns. Neither table is private. A method whose error is
above the first is no better than shares of single columns, and one above the second gains nothing
from having rows that are linked. The ceiling, *resampled*, is as many real rows, drawn with
repetition: what the number of drawn rows alone makes of an exact model.

Parties hold neighbouring columns as in columns_split.py; where their number is odd the last of two
parties has one more, and "larger first" is the other way round, as in the paper.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import sources
from columns_split import Coded, coded

import siloweave as sw
from siloweave.evaluate.workload import tvd, workload_error
from siloweave.statistics.marginals import marginal
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Codes

HERE = Path(__file__).parent
OUT = HERE / "results" / "columns_split_floors.jsonl"
TABLES = ("nltcs", "br2000_privmrf", "adult_privmrf")
RESAMPLED = "resampled"
LARGER_FIRST = "2, larger first"
PARTIES: tuple[int | str, ...] = (2, LARGER_FIRST, 4, 8, "each")
SEEDS = 5
WAYS = (3, 4, 5)


@dataclass(frozen=True)
class IndependentParties:
    """Exact counts within each party's columns; columns of different parties are independent."""

    real: Codes
    party_of: Mapping[str, int]  # which party holds a column

    def marginal(self, clique: tuple[str, ...]) -> Floats:
        """Return expected counts of a clique's cells, one axis for each of its columns."""
        rows = self.real.num_rows
        operands: list[Any] = []
        for party in sorted({self.party_of[name] for name in clique}):
            held = tuple(name for name in clique if self.party_of[name] == party)
            operands += [marginal(self.real, held) / rows, [clique.index(name) for name in held]]
        return np.asarray(rows * np.einsum(*operands, list(range(len(clique)))))


def floor(data: Coded, parties: int | str) -> IndependentParties:
    """Return the exact table of parties that know nothing of each other."""
    names = data.table.names
    if parties == LARGER_FIRST:
        first = (len(names) + 1) // 2
        party_of = {name: int(place >= first) for place, name in enumerate(names)}
    else:
        parts = sw.split_columns(data.table, parties)  # type: ignore[arg-type]
        party_of = {name: i for i, part in enumerate(parts) for name in part.names}
    return IndependentParties(data.codes, party_of)


def resampled(name: str, data: Coded) -> dict[str, Any]:
    """Return mean distances of real rows drawn with repetition, each seed its own draw."""
    rows = data.table.num_rows
    known: dict[str, Any] = {"table": name, "rows": rows, "parties": RESAMPLED}
    draws = [
        data.codes.take(np.random.default_rng(seed).integers(0, rows, rows))
        for seed in range(SEEDS)
    ]
    for ways in WAYS:
        known[f"{ways}way"] = [
            tvd(data.codes, drawn, ways, key=seed) for seed, drawn in enumerate(draws)
        ]
    return known


def line(name: str, data: Coded, parties: int | str) -> dict[str, Any]:
    """Return mean distances over the marginals of each seed."""
    model = floor(data, parties)
    distances = {
        f"{ways}way": [tvd(data.codes, model, ways, key=seed) for seed in range(SEEDS)]
        for ways in WAYS
    }
    every = workload_error(data.codes, model, list(combinations(data.table.names, 3))) / 2
    known = {"table": name, "rows": data.table.num_rows, "parties": parties}
    return {**known, "all3": every, **distances}


def main() -> None:
    """Compute and store the lines of every table asked for."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources.add_data(parse)
    parse.add_argument("--table", nargs="*", default=list(TABLES), choices=TABLES)
    parse.add_argument("--out", type=Path, default=OUT)
    asked = parse.parse_args()
    tables = sources.present(asked.table, asked.data)
    stored = asked.out.read_text().splitlines() if asked.out.is_file() else []
    kept = [text for text in stored if json.loads(text)["table"] not in tables]
    for name in tables:
        data = coded(name, asked.data)
        for parties in (*PARTIES, RESAMPLED):
            row = resampled(name, data) if parties == RESAMPLED else line(name, data, parties)
            kept.append(json.dumps(row))
            means = ", ".join(f"{ways}-way {np.mean(row[f'{ways}way']):.4f}" for ways in WAYS)
            print(f"{name}, parties: {parties}: {means}", flush=True)
    asked.out.write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
