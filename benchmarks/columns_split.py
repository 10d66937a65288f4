"""Private synthesis over split columns: how far marginals are off, seconds and bytes.

The protocol of Zhao et al. 2024, "VertiMRF: Differentially private vertical federated data
synthesis" (KDD 2024), section 7: total variation distance over 300 random marginals of three, four
and five columns, with as many synthetic rows as real ones, delta = 1/n. Tables are coded as
PrivMRF's authors publish them; others have 16 bins between their smallest and largest value, which
are taken as public, and no identifiers. Errors of SVMs are columns_split_svm.py's.

    python benchmarks/columns_split.py --table nltcs --runs 5
    python benchmarks/columns_split.py --table abalone --methods two_round aim_triples --runs 2
    python benchmarks/columns_split.py --table nltcs --methods secure_two_round --splits
    python benchmarks/columns_split.py --table adult_privmrf --rows 1000000
    python benchmarks/columns_split.py --table adult_privmrf --columns 8
    python benchmarks/results_page.py

Every run is one line of `results/columns_split.jsonl`; a run that was stopped goes on where it was.
Some of the first lines have an `svm`, of linear SVMs tried on rows that were not held out; it is
no longer shown.
Give a line a `label` by hand once its method has changed, and move it to
`results/columns_split_before.jsonl`: it is then kept, and no longer shown.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import sources
from flaim_adult import commit

import siloweave as sw
from siloweave.errors import BudgetError
from siloweave.evaluate.workload import tvd
from siloweave.federation.session import Session
from siloweave.models.carest import bins_of
from siloweave.privacy.mechanisms import OSEntropy
from siloweave.privacy.sketches import SketchNoise, encode_rows
from siloweave.tables.codes import Codes

HERE = Path(__file__).parent
OUT = HERE / "results" / "columns_split.jsonl"
EPSILONS = (0.4, 0.8, 1.6, 3.2)
PARTIES: tuple[int | str, ...] = (2, 4, 8, "each")
_BINS = 16
_NUMERIC = 40  # distinct values from which a column of numbers is cut

METHODS: Mapping[str, Callable[[], Any]] = {
    "aim": sw.AIM,
    "aim_triples": partial(sw.AIM, degree=3),
    "privmrf": sw.PrivMRF,
    "privmrf_wide": partial(sw.PrivMRF, widest=10),
    "two_round": sw.TwoRound,
    "secure_two_round": sw.SecureTwoRound,
    "vertimrf_fm": partial(sw.VertiMRF, encoding="fm"),
    "vertimrf_fo": partial(sw.VertiMRF, encoding="fo"),
    "vertigan": sw.VertiGAN,
    "vertimrf_fm_8000": partial(sw.VertiMRF, encoding="fm", repetitions=8000),
    "vertimrf_fm_consistent": partial(sw.VertiMRF, encoding="fm", consistent=True),
    "vertimrf_fm_unbinned": partial(sw.VertiMRF, encoding="fm", encoded_bins=None),
}
# Randomised response is stated for rows that are replaced; all others for rows added or removed.
REPLACED = ("vertimrf_fo",)


@dataclass(frozen=True)
class Coded:
    """A table of codes, which are its values, and its schema."""

    table: sw.Table
    schema: sw.Schema

    @property
    def codes(self) -> Codes:
        """The rows, as they are measured."""
        return sw.Encoder(self.schema, bins=2**20).encode(self.table)


def coded(
    name: str, folder: Path, rows: int | None = None, columns_kept: int | None = None
) -> Coded:
    """A benchmark table, or its first columns, in which every column has its codes for values."""
    table = sources.read(name, folder)
    identifiers = sources.facts(name)["identifiers"]
    columns, kinds = {}, []
    for column in [name for name in table.names if name not in identifiers][:columns_kept]:
        values, missing = table.values(column), table.missing(column)
        known, codes = np.unique(values[~missing], return_inverse=True)
        if len(known) > _NUMERIC and values.dtype.kind in "iuf":
            edges = np.linspace(known[0], known[-1], _BINS + 1)[1:-1]
            codes = np.searchsorted(edges, values[~missing].astype(np.float64), side="right")
            known = np.arange(_BINS)
        found = np.full(len(values), len(known))
        found[~missing] = codes
        columns[column] = (found.astype(np.int64), None)
        size = len(known) + bool(missing.any())
        kinds.append(sw.Column(column, "categorical", categories=tuple(range(size))))
    whole = sw.Table.from_columns(columns)
    if rows is not None:
        whole = whole.take(np.random.default_rng(0).integers(0, whole.num_rows, rows).tolist())
    return Coded(whole, sw.Schema(tuple(kinds)).with_fallbacks())


@contextmanager
def phases() -> Iterator[dict[str, float]]:
    """Core seconds meanwhile, by question: what comes before it, and until all have answered it."""
    spent: dict[str, float] = defaultdict(float)
    since = time.process_time()

    def lap(name: str) -> None:
        nonlocal since
        now = time.process_time()
        spent[name] += now - since
        since = now

    def timed(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(session: Session, requests: Mapping[str, Any], *args: Any, **named: Any) -> Any:
            name = type(next(iter(requests.values()))).__name__
            lap(f"before {name}")
            replies = ask(session, requests, *args, **named)
            lap(name)
            return replies

        return asked

    with ExitStack() as stack:
        for name in ("ask_each", "ask_present"):
            stack.enter_context(patch.object(Session, name, timed(getattr(Session, name))))
        yield spent
    lap("after the last")


def one(
    data: Coded,
    method: str,
    parties: int | str,
    epsilon: float,
    seed: int,
    split: Mapping[str, Any],
) -> tuple[sw.Fit, dict[str, Any]]:
    """Fit once; the fit, and how long it took: seconds, those of a core, and shares of these."""
    synth = METHODS[method]()
    relation = sw.Relation.REPLACE_ONE if method in REPLACED else sw.Relation.ADD_REMOVE
    budget = sw.Budget(epsilon, 1 / data.table.num_rows, relation=relation)
    given: Any = data.table
    if synth.method.split == "columns":
        given = sw.split_columns(data.table, parties, **split)  # type: ignore[arg-type]
    elif synth.method.split == "rows":
        given = [data.table]
    start = time.perf_counter()
    with phases() as spent:
        fitted = synth.fit(given, data.schema, budget=budget, seed=seed, progress=False)
    core = sum(spent.values())
    return fitted, {
        "seconds": time.perf_counter() - start,
        "core_seconds": core,
        "phases": {name: round(part / core, 4) for name, part in spent.items()},
    }


def distances(data: Coded, fitted: sw.Fit, seed: int) -> dict[str, float]:
    """Mean total variation distance over marginals of three, four and five columns."""
    drawn = fitted.sample(data.table.num_rows, seed=seed)
    encoder = sw.Encoder(data.schema, bins=2**20)
    synthetic = encoder.encode(drawn)
    return {f"{k}way": tvd(data.codes, synthetic, k, key=seed) for k in (3, 4, 5)}


def described(fitted: sw.Fit, times: dict[str, Any], busy: bool) -> dict[str, Any]:
    """What a run cost; where others kept the machine busy, of its times the shares alone."""
    traffic = fitted.cost.parties.values()
    times = times | {
        "wide_area": fitted.cost.over_network(),
        "engine": fitted.cost.over_network(latency=0, megabits=1e9, message=5.0),
    }
    return ({"phases": times["phases"]} if busy else times) | {
        "epsilon_spent": fitted.epsilon,
        "rounds": fitted.cost.rounds,
        "megabytes_up": max(t.bytes_from_party for t in traffic) / 1e6,
        "megabytes_down": max(t.bytes_to_party for t in traffic) / 1e6,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "load": os.getloadavg()[0],
        "commit": commit(),
    }


def cases(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is to be run."""
    for seed in range(args.runs):
        for method in args.methods:
            own = METHODS[method]().method.split == "columns"
            for parties in args.parties if own else (1,):
                for epsilon in args.epsilons:
                    yield {"method": method, "parties": parties, "epsilon": epsilon, "seed": seed}


def splits(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """VertiBench's ways to divide columns between two parties, at epsilon 0.8."""
    ways = [("importance", "alpha", a) for a in (0.1, 1.0, 10.0, 100.0)]
    ways += [("correlation", "beta", b) for b in (0.0, 0.3, 0.6, 1.0)]
    for seed in range(args.runs):
        for method in args.methods:
            for by, name, value in ways:
                yield {
                    "method": method, "parties": 2, "epsilon": 0.8, "seed": seed,
                    "split": {"by": by, name: value, "seed": seed},
                }  # fmt: skip


def encoding(data: Coded, repetitions: int) -> None:
    """Print how long a party of VertiMRF takes to sketch half of the columns."""
    encoder = sw.Encoder(data.schema, bins=2**20)
    half = (len(data.table.names) + 1) // 2
    codes, sizes = encoder.encode(data.table).columns[:half], encoder.domain.sizes[:half]
    bins = [bins_of(size, 4) for size in sizes]
    columns = [where[column] for where, column in zip(bins, codes, strict=True)]
    start, cpu = time.perf_counter(), time.process_time()
    widths = [int(where[-1]) + 1 for where in bins]
    found = encode_rows(columns, widths, key=bytes(32), repetitions=repetitions)
    SketchNoise(1e-4).draw(found.size, entropy=OSEntropy())
    print(
        f"{half} columns, {len(columns[0]):,} rows, t = {repetitions}: "
        f"{time.perf_counter() - start:.2f} s, {time.process_time() - cpu:.2f} s of a core, "
        f"{found.nbytes / 1e6:.3f} MB"
    )


def main() -> None:
    """Run what is missing."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources.add_data(parse)
    parse.add_argument("--table", default="nltcs", choices=list(sources.FACTS))
    parse.add_argument("--runs", type=int, default=5)
    parse.add_argument("--methods", nargs="*", default=["secure_two_round", "two_round", "aim"])
    parse.add_argument("--parties", nargs="*", type=_number, default=list(PARTIES))
    parse.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parse.add_argument("--rows", type=int, help="so many rows, drawn with repetition")
    parse.add_argument("--columns", type=int, help="the first so many columns")
    parse.add_argument("--splits", action="store_true", help="VertiBench's splits instead")
    parse.add_argument("--busy", action="store_true", help="others use the machine: keep no times")
    parse.add_argument("--out", type=Path, default=OUT)
    parse.add_argument("--encode", action="store_true", help="only time a party's sketches")
    args = parse.parse_args()
    data = coded(args.table, args.data, args.rows, args.columns)
    if args.encode:
        for repetitions in (2000, 8000):
            encoding(data, repetitions)
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = args.out.read_text().splitlines() if args.out.is_file() else []
    done = [json.loads(line) for line in lines]
    for case in (splits if args.splits else cases)(args):
        key = {"table": args.table, "rows": data.table.num_rows, **case}
        if args.columns:
            key["columns"] = args.columns
        same = (*key, "columns", "label")
        if any(all(row.get(k) == key.get(k) for k in same) for row in done):
            continue
        try:
            fitted, times = one(
                data, case["method"], case["parties"], case["epsilon"], case["seed"],
                case.get("split", {}),
            )  # fmt: skip
        except BudgetError as error:
            row = key | {"refused": str(error), "commit": commit()}
            told = f"refused: {error}"
        else:
            row = key | described(fitted, times, args.busy)
            row |= distances(data, fitted, case["seed"])
            told = (
                f"3-way {row['3way']:.4f}, 4-way {row['4way']:.4f}, 5-way {row['5way']:.4f}; "
                f"{times['seconds']:.1f} s, {times['core_seconds']:.1f} of a core, "
                f"{row['megabytes_up']:.1f} MB up"
            )
        with args.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(
            f"{case['method']:18} {case['parties']} parties, epsilon {case['epsilon']}, seed "
            f"{case['seed']}: {told}",
            flush=True,
        )


def _number(text: str) -> int | str:
    return text if text == "each" else int(text)


if __name__ == "__main__":
    main()
