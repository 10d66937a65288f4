"""Ideas of others for private tables, tried beside AIM and TwoRound on the same rows.

    python benchmarks/private_ideas.py                     # what is missing, without peers
    python benchmarks/private_ideas.py --part parities dense --peer-python peer/bin/python \
        --tab-pe DPSDA --margnet margnet                   # with both peers
    python benchmarks/results_page.py

Six parts. `parities`: a column that is the parity of others, among columns of noise (Tab-PE's
stress test, 2606.08259). `dense`: tables in which every pair of columns is related (MargNet,
2511.13893). `bins`: a skewed column alone, by PrivTree's leaves and by the package's histogram;
`cuts`: AIM with bins cut by either. `rare`: columns of many values, whole and with rare values
merged (all three SIGMOD 2025, 2504.14061). `pairs`: all pairs with equal noise, reconstructed by
residuals (GReM, 2410.01091, 2602.05674).

Everything is of one owner, add/remove neighbours, delta = 1 / rows but for `bins` (1e-6). Columns
of numbers are cut into bins of equal mass beforehand and taken as public, but for `bins`. Seeds are
of the made rows and of what is drawn; noise of the package's own fits is new in every run. Runs
that are there are not repeated. Seconds are of the processor.

The peers' environment:

    python3.11 -m venv peer && peer/bin/pip install torch "pandas<3" scikit-learn networkx tomli \
        tqdm generalimport "omegaconf==2.3.0" matplotlib requests openai tenacity clean-fid
    git clone https://github.com/microsoft/DPSDA
    git clone https://github.com/KaiChen9909/margnet
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import sqrt
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
import private_counts
import private_ideas_page
import skewed_sums
import sources
from private_ideas_methods import Residuals, merged, privtree, thinned_leaves

import siloweave as sw
from siloweave.models.estimate import Measurement, estimate_total, fit, single_columns
from siloweave.models.pair_noise import cleaned, dependence, margins_of
from siloweave.privacy.accountants import epsilon_of_rho
from siloweave.privacy.budget import rho_for
from siloweave.protocols.histograms import NoisyHistogram, columns_to_cut, histogram_event
from siloweave.protocols.two_rounds import plan
from siloweave.protocols.workloads import bins_for, weights_of
from siloweave.tables.bins import cuts_of, spike_bins
from siloweave.tables.codes import Clique, Codes, Domain, ResolutionLevels, consistent
from siloweave.tables.keys import fold_in, generator

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Line = dict[str, Any]

OUT = private_ideas_page.OUT
PEERS = Path(__file__).parent / "peers"
SEED = 2026
SEEDS = (0, 1, 2)
BIN_SEEDS = tuple(range(10))  # a column alone takes no time
EPSILON = 1.0
LIMIT = 600
"""Seconds that a peer's fit may take."""
MOST_SETS = 150


@dataclass(frozen=True)
class Peers:
    """Where the peers are: an interpreter, and a folder of each."""

    python: Path | None
    tab_pe: Path | None
    margnet: Path | None


# Tables of codes


def coded(columns: dict[str, npt.NDArray[Any]]) -> Codes:
    """Return columns of whole numbers from 0 as codes."""
    sizes = tuple(int(values.max()) + 1 for values in columns.values())
    return Codes(Domain(tuple(columns), sizes), tuple(columns.values()))


def read_codes(name: str, data: Path, bins: int, rows: int | None = None) -> Codes:
    """Return a table whose numbers are cut into at most so many bins of equal mass."""
    facts, table = sources.facts(name), sources.read(name, data)
    if rows is not None and rows < table.num_rows:
        order = generator(SEED).permutation(table.num_rows)[:rows]
        table = table.take(np.sort(order))
    columns = {}
    for column in table.names:
        if column in facts["identifiers"]:
            continue
        values, is_missing = table.values(column), table.missing(column)
        places = np.zeros(table.num_rows, dtype=np.int64)
        known = values[~is_missing]
        distinct = np.unique(known)
        if column in facts["continuous"] and len(distinct) > bins:
            ordered = np.sort(known)
            starts = np.unique(ordered[len(ordered) * np.arange(1, bins) // bins])
            places[~is_missing] = np.searchsorted(starts, known, side="right")
        else:
            places[~is_missing] = np.searchsorted(distinct, known)
        if is_missing.any():
            places[is_missing] = places.max() + 1
        _, columns[column] = np.unique(places, return_inverse=True)
    return coded(columns)


def as_table(codes: Codes) -> tuple[sw.Table, sw.Schema]:
    """Return rows whose codes are words, and the schema that codes them alike."""
    words = {
        name: [f"{code:03d}" for code in range(size)]
        for name, size in zip(codes.domain.names, codes.domain.sizes, strict=True)
    }
    table = sw.Table.from_columns(
        {name: (np.array(words[name])[codes.column(name)], None) for name in words}
    )
    columns = [sw.Column(name, "categorical", categories=tuple(words[name])) for name in words]
    return table, sw.Schema(tuple(columns)).with_fallbacks()


def budget_of(codes: Codes) -> sw.Budget:
    """Return epsilon 1 at a delta of one in as many as there are rows."""
    return sw.Budget(EPSILON, 1 / codes.num_rows)


def fitted_by(method: Any, codes: Codes, budget: sw.Budget) -> tuple[sw.Fit, float]:
    """Return a fit of the package, and its processor seconds."""
    table, schema = as_table(codes)
    rows: Any = table if isinstance(method, sw.AIM) else [table]
    start = process_time()
    fitted = method.fit(rows, schema, budget=budget, progress=False)
    return fitted, process_time() - start


def drawn_by(method: Any, codes: Codes, budget: sw.Budget, seed: int) -> tuple[Codes, float]:
    """Return as many rows drawn as there are, and the processor seconds of the fit."""
    fitted, seconds = fitted_by(method, codes, budget)
    drawn = fitted.sample_table(codes.num_rows, seed=seed)
    return sw.Encoder(as_table(codes)[1]).encode(drawn), seconds


def some_sets(domain: Domain, size: int) -> list[Clique]:
    """Return all sets of so many columns, or as many drawn ones as are compared."""
    every = list(combinations(domain.names, size))
    if len(every) <= MOST_SETS:
        return every
    chosen = np.random.default_rng(7).choice(len(every), MOST_SETS, replace=False)
    return [every[i] for i in chosen]


def distance(real: Codes, other: Codes, size: int) -> float:
    """Return the mean total variation over sets of so many columns."""
    found = []
    for clique in some_sets(real.domain, size):
        first, second = (codes.count([clique])[0] / codes.num_rows for codes in (real, other))
        found.append(float(np.abs(first - second).sum()) / 2)
    return float(np.mean(found))


def peer_rows(python: Path, script: str, job: Line, codes: Codes) -> tuple[Codes | None, Line]:
    """Return a peer's rows, and what it says; no rows where it reached the limit."""
    with tempfile.TemporaryDirectory() as folder:
        train, sample = Path(folder) / "train.csv", Path(folder) / "sample.csv"
        with train.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(codes.domain.names)
            writer.writerows(np.column_stack([c.astype(np.int64) for c in codes.columns]).tolist())
        job = {**job, "train": str(train), "sample": str(sample), "threads": 1}
        command = ["prlimit", f"--cpu={LIMIT}", str(python), str(PEERS / script), json.dumps(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode < 0:
            return None, {"seconds": LIMIT, "ended": False}
        if done.returncode:
            raise SystemExit(f"{script} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        rows = np.loadtxt(sample, delimiter=",", skiprows=1, dtype=np.int64)
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    return Codes(codes.domain, tuple(rows.T)), facts


# Parities among noise

PARITY_ROWS, NOISE_COLUMNS = 15_000, 10
PARITY_METHODS: dict[str, Callable[[int], Any]] = {
    "AIM": lambda k: sw.AIM(),
    "AIM, target": lambda k: sw.AIM(target="y"),
    "AIM, degree k + 1": lambda k: sw.AIM(degree=k + 1),
    "TwoRound": lambda k: sw.TwoRound(),
    "TwoRound, target": lambda k: sw.TwoRound(target="y"),
    "TwoRound, degree k + 1": lambda k: sw.TwoRound(degree=k + 1),
}
TAB_PE = "Tab-PE"


def parity_rows(columns: int, seed: int) -> Codes:
    """Return fair coins, and the parity of the first few."""
    rng = generator(fold_in(SEED, "parity", columns, seed))
    coins = rng.integers(0, 2, (PARITY_ROWS, NOISE_COLUMNS))
    named = {f"x{i}": coins[:, i] for i in range(NOISE_COLUMNS)}
    return coded(named | {"y": coins[:, :columns].sum(axis=1) % 2})


def parity(columns: int, method: str, seed: int, peers: Peers) -> Line | None:
    """Fit once; return the share of drawn rows in which the parity holds."""
    codes = parity_rows(columns, seed)
    budget = budget_of(codes)
    if method == TAB_PE:
        if peers.python is None or peers.tab_pe is None:
            return None
        job = {
            "checkout": str(peers.tab_pe), "label": "y", "epsilon": EPSILON,
            "delta": budget.delta,
        }  # fmt: skip
        drawn, facts = peer_rows(peers.python, "tab_pe.py", job, codes)
        seconds = facts["seconds"]
    else:
        drawn, seconds = drawn_by(PARITY_METHODS[method](columns), codes, budget, seed)
    if drawn is None:
        return {"seconds": seconds, "ended": False}
    summed = np.sum([drawn.column(f"x{i}") for i in range(columns)], axis=0)
    holds = float(np.mean(summed % 2 == drawn.column("y")))
    return {"holds": holds, "seconds": seconds, "drawn": drawn.num_rows}


# Dense tables

DENSE = "made"
DENSE_TABLES = (DENSE, "heloc, 12 columns", "heloc")
MARGNET = "MargNet"
ALONE = "columns shuffled"


def dense_rows() -> Codes:
    """Return twelve columns that all depend on a class of six, which is in no column."""
    rng = generator(fold_in(SEED, "dense"))
    classes = rng.integers(0, 6, 20_000)
    columns = {}
    for i in range(12):
        size = int(rng.integers(4, 9))
        shares = rng.dirichlet(np.full(size, 0.5), 6).cumsum(axis=1)
        above = rng.random(len(classes))[:, None] > shares[classes]
        columns[f"c{i}"] = np.minimum(above.sum(axis=1), size - 1)
    return coded(columns)


@cache
def dense_table(name: str, data: Path) -> Codes:
    """Return a table of which every pair of columns is related."""
    if name == DENSE:
        return dense_rows()
    codes = read_codes("heloc", data, bins=8)
    if name == "heloc":
        return codes
    names = codes.domain.names[:12]
    return Codes(codes.domain.project(names), codes.columns[:12])


def dense(name: str, method: str, seed: int, data: Path, peers: Peers) -> Line | None:
    """Fit once; return the mean distance of pairs and of triples."""
    codes = dense_table(name, data)
    budget = budget_of(codes)
    facts: Line = {}
    drawn: Codes | None
    if method == MARGNET:
        if peers.python is None or peers.margnet is None:
            return None
        job = {
            "checkout": str(peers.margnet), "rows": codes.num_rows, "rho": rho_for(budget),
            "sizes": dict(zip(codes.domain.names, codes.domain.sizes, strict=True)), "seed": seed,
        }  # fmt: skip
        drawn, facts = peer_rows(peers.python, "margnet.py", job, codes)
        seconds = facts["seconds"]
    elif method == ALONE:
        rng, seconds = generator(fold_in(SEED, "alone", seed)), 0.0
        drawn = Codes(codes.domain, tuple(rng.permutation(column) for column in codes.columns))
    else:
        drawn, seconds = drawn_by(OURS[method](), codes, budget, seed)
    if drawn is None:
        return facts
    return {
        **facts,
        "pairs_error": distance(codes, drawn, 2),
        "triples_error": distance(codes, drawn, 3),
        "seconds": seconds,
    }


OURS: dict[str, Callable[[], Any]] = {"AIM": sw.AIM, "TwoRound": sw.TwoRound}

# Bins of a skewed column

BIN_COLUMNS = {
    skewed_sums.MADE: ("claims", "income", "order"),
    "credit_fraud": ("Amount",),
    "adult": ("capital-gain",),
    "census_income_kdd": ("dividends_from_stocks", "wage_per_hour"),
    "intrusion_kdd99_10pct": ("src_bytes",),
}
BIN_EPSILONS = (0.1, 0.3, 1.0)
BIN_DELTA = 1e-6
THINNED = "PrivTree, tail thinned"
BIN_METHODS = ("histogram", "PrivTree", THINNED, "PrivTree, pure")
_GRID, _FINE_BINS = 400_000, 100
_STEPS_WITHOUT_UNIT = 2**30
"""Into which a range without decimals is divided for PrivTree, which needs an end."""


@cache
def skewed_column(name: str, column: str, data: Path) -> tuple[sw.Column, Floats]:
    """Return a column's declaration and its values."""
    table, schema = skewed_sums.prepare(name, data)
    values, is_missing = table.floats(column)
    declared: sw.Column = schema[column]
    return declared, values[~is_missing].astype(np.float64)


def ends_of(column: sw.Column) -> tuple[float, float]:
    """Return a column's declared bounds."""
    assert column.low is not None
    assert column.high is not None
    return float(column.low), float(column.high)


def unit_of(column: sw.Column) -> float:
    """Return the smallest step between two values."""
    if column.kind == "integer":
        return 1.0
    if column.decimals is not None:
        return float(10.0**-column.decimals)
    return ends_of(column)[1] / _STEPS_WITHOUT_UNIT


def counted_leaves(
    column: sw.Column,
    values: Floats,
    rho: float,
    rng: np.random.Generator,
    *,
    pure: float | None = None,
    thin: bool = False,
) -> tuple[Ints, Floats]:
    """Return PrivTree's edges, in units from the lower bound, and counts of its leaves.

    Half of the budget is for the tree and half for counts of leaves: of a pure epsilon, with
    Laplace noise, or else of rho, with Gaussian noise.
    """
    unit = unit_of(column)
    low, high = ends_of(column)
    steps = np.sort(np.round((values - low) / unit).astype(np.int64))
    stop = round((high - low) / unit) + 1
    # A mechanism of pure epsilon costs epsilon^2 / 2 zCDP.
    leaves = privtree(steps, stop, sqrt(rho) if pure is None else pure / 2, rng)
    counts, sigma = leaves.counts(steps), 1 / sqrt(rho)
    if pure is None:
        noisy = counts + rng.normal(0.0, sigma, len(counts))
    else:
        noisy = counts + rng.laplace(0.0, 2 / pure, len(counts))
    clean = consistent(noisy, max(1.0, float(noisy.sum())))
    if thin:
        clean = thinned_leaves(leaves, noisy, clean, sigma)
    return leaves.edges, clean


def drawn_from_leaves(column: sw.Column, edges: Ints, counts: Floats) -> Floats:
    """Return values drawn evenly from leaves."""
    levels = np.append(0.0, np.cumsum(counts) / counts.sum())
    grid = (np.arange(_GRID) + 0.5) / _GRID
    low, high = ends_of(column)
    drawn = np.floor(_inverse(grid, levels, edges)) * unit_of(column) + low
    return np.minimum(drawn, high)


def _inverse(grid: Floats, levels: Floats, edges: Ints) -> Floats:
    """Return where a distribution function has these values; empty bins hold none."""
    place = np.clip(np.searchsorted(levels, grid, side="right") - 1, 0, len(edges) - 2)
    share = (grid - levels[place]) / np.maximum(levels[place + 1] - levels[place], 1e-300)
    placed: Floats = edges[place] + np.clip(share, 0.0, 1.0) * np.diff(edges)[place]
    return placed


def histogram_of(
    fine: sw.Encoder, table: sw.Table, rho: float, rng: np.random.Generator
) -> NoisyHistogram:
    """Return the package's histogram of the columns of `fine`, in noise that can be repeated."""
    event = histogram_event(fine, sw.Budget(EPSILON, BIN_DELTA).neighbours, rho, 1, 0)
    exact = ResolutionLevels(fine).count(fine.encode(table))
    noise = np.round(rng.normal(0.0, event.sigma_total, len(exact) + 1)).astype(np.int64)
    rows = max(1, table.num_rows + int(noise[-1]))
    return NoisyHistogram(fine, exact + noise[:-1], event.sigma_total, rows, SEED)


def drawn_from_histogram(
    column: sw.Column, values: Floats, rho: float, rng: np.random.Generator
) -> tuple[Floats, int]:
    """Return values drawn from the package's histogram, and how many cells it counts."""
    bare = sw.Schema((column,)).with_fallbacks()
    fine = columns_to_cut(sw.Encoder(bare, 16), [(column.name,)])
    assert fine is not None
    numbers = values.astype(np.int64) if column.kind == "integer" else values
    table = sw.Table.from_columns({column.name: (numbers, None)})
    histogram = histogram_of(fine, table, rho, rng)
    # As `NoisyHistogram.product` draws, but enough rows for the far end of a column.
    counts = histogram.columns[column.name]
    ends = np.floor(np.cumsum(counts) / counts.sum() * _GRID + 0.5)
    repeated = np.repeat(np.arange(len(counts)), np.diff(np.append(0.0, ends)).astype(np.int64))
    one_column = Codes(fine.domain, (repeated.astype(np.uint32),))
    spikes = {column.name: spike_bins(column, fine.edges(column.name), counts)}
    rows_drawn = fine.decode(one_column, key=SEED, spikes=spikes)
    drawn, _ = rows_drawn.floats(column.name)
    return drawn, len(histogram.counts)


def bin_errors(values: Floats, drawn: Floats) -> Line:
    """Return the distance in narrow bins, and errors of percentile and total in per cent."""
    ordered = np.sort(values)
    starts = np.unique(ordered[len(ordered) * np.arange(1, _FINE_BINS) // _FINE_BINS])
    places = [np.searchsorted(starts, v, side="right") for v in (values, drawn)]
    shares = [np.bincount(p, minlength=len(starts) + 1) / len(p) for p in places]
    real_end, drawn_end = (float(np.quantile(v, 0.99)) for v in (values, drawn))
    return {
        "l1": float(np.abs(shares[0] - shares[1]).sum()),
        "p99": 100 * (drawn_end / real_end - 1) if real_end else None,
        "total": 100 * (float(drawn.mean()) / float(values.mean()) - 1),
    }


def binned(place: tuple[str, str], method: str, epsilon: float, seed: int, data: Path) -> Line:
    """Draw one column once; the whole budget is for it."""
    column, values = skewed_column(*place, data)
    rho = rho_for(sw.Budget(epsilon, BIN_DELTA))
    rng = generator(fold_in(SEED, "bins", *place, method, str(epsilon), seed))
    start = process_time()
    if method == "histogram":
        drawn, cells = drawn_from_histogram(column, values, rho, rng)
    else:
        pure = epsilon if method.endswith("pure") else None
        thin = method == THINNED
        edges, counts = counted_leaves(column, values, rho, rng, pure=pure, thin=thin)
        drawn, cells = drawn_from_leaves(column, edges, counts), len(counts)
    seconds = process_time() - start
    return {**bin_errors(values, drawn), "cells": cells, "seconds": seconds}


# Whole runs with either way of cutting

CUT_TABLES = {
    skewed_sums.MADE: (0.3, 1.0), "adult": (0.3, 1.0), "credit_fraud": (0.3, 1.0),
    "census_income_kdd": (1.0,), "intrusion_kdd99_10pct": (1.0,),
}  # fmt: skip
IF_SKEWED = "AIM, PrivTree if skewed"
CUT_METHODS = ("AIM", "AIM, PrivTree", IF_SKEWED)
CUT_SHARE = 0.2  # of the budget, as by default


@cache
def cut_table(name: str, data: Path) -> tuple[sw.Table, sw.Schema]:
    """Return a table with skewed columns, and the bounds an owner would declare."""
    return skewed_sums.prepare(name, data)


def cut_by_leaves(
    table: sw.Table, schema: sw.Schema, rho: float, seed: int, *, only_skewed: bool
) -> sw.Encoder:
    """Return the bins that AIM would cut, by counts of PrivTree's leaves instead of its own.

    Every column gets an equal part of a fifth of rho, and its tail is thinned. Of `only_skewed`
    columns the others, of which the package's bins are equally wide, keep its histogram.
    """
    coarse = sw.Encoder(schema, 16)
    wide = columns_to_cut(coarse, [schema.names])
    if wide is None:
        return coarse
    bins = bins_for(schema, table.num_rows, rho)
    part = CUT_SHARE * rho / len(wide.schema.columns)
    cuts = {}
    even = [c for c in wide.schema.columns if only_skewed and c.name not in (wide.cuts or {})]
    if even:
        fine = wide.select([column.name for column in even])
        rng = generator(fold_in(SEED, "cuts", "even", seed))
        histogram = histogram_of(fine, table.select(fine.schema.names), len(even) * part, rng)
        for column in even:
            weights = histogram.columns[column.name]
            edges_of_bins = fine.edges(column.name)
            cuts[column.name] = cuts_of(column, edges_of_bins, weights, bins, exact=True)
    for column in wide.schema.columns:
        if column.name in cuts:
            continue
        rng = generator(fold_in(SEED, "cuts", column.name, seed))
        numbers, is_missing = table.floats(column.name)
        steps, counts = counted_leaves(column, numbers[~is_missing], part, rng, thin=True)
        low, high = ends_of(column)
        edges: Any = steps * unit_of(column) + low
        if column.kind == "integer":
            edges = np.round(edges).astype(np.int64)
        else:
            # A continuum's last bin holds its end, which a leaf of its own would hold twice.
            while edges[-2] >= high:
                edges, counts = edges[:-1], np.append(counts[:-2], counts[-2:].sum())
            edges[-1] = high
        if column.missing:
            noisy = float(is_missing.sum()) + rng.normal(0.0, 1 / sqrt(part))
            counts = np.append(counts, max(0.0, noisy))
        cuts[column.name] = cuts_of(column, edges, counts, bins, exact=True)
    return sw.Encoder(schema, 16, cuts=cuts)


def cut(name: str, method: str, epsilon: float, seed: int, data: Path) -> Line:
    """Fit AIM once; return errors of totals and percentiles, and the mean distance of pairs."""
    table, schema = cut_table(name, data)
    budget = sw.Budget(epsilon, BIN_DELTA)
    start = process_time()
    if method == "AIM":
        fitted = sw.AIM().fit(table, schema, budget=budget, progress=False)
    else:
        encoder = cut_by_leaves(
            table, schema, rho_for(budget), seed, only_skewed=method == IF_SKEWED
        )
        rest = less(budget, CUT_SHARE)
        fitted = sw.AIM(counts_share=0).fit(table, encoder, budget=rest, progress=False)
    seconds = process_time() - start
    drawn = fitted.sample_table(table.num_rows, seed=seed)
    judge = private_counts.judge(schema, table)
    errors = {}
    for column in skewed_sums.BOUNDS[name]:
        real, synthetic = (skewed_sums.figures(t, column) for t in (table, drawn))
        errors[column] = {
            what: 100 * (synthetic[what] / real[what] - 1) for what in real if real[what]
        }
    pairs_error = private_counts.distance(judge, 2, table, drawn)
    return {"errors": errors, "pairs_error": pairs_error, "seconds": seconds}


# Rare values

RARE_TABLES = ("made, 50 values", "made, 150 values", "made, 300 values", "census_income_kdd",
               "intrusion_nslkdd_test")  # fmt: skip
RARE_ROWS = 15_000
CENSUS = ("detailed_industry_recode", "detailed_occupation_recode", "education",
          "state_of_previous_residence", "country_of_birth_father", "country_of_birth_mother",
          "country_of_birth_self", "income_gt_50k")  # fmt: skip
INTRUSION = ("protocol_type", "service", "flag", "logged_in", "hot", "label")
COUNT_SHARE = 0.1
RARE_METHODS = tuple(f"{name}{how}" for name in OURS for how in ("", ", merged", ", merged .2 %"))


def many_values(size: int) -> Codes:
    """Return columns of many values, whose shares fall as one in their rank; all are related."""
    rng = generator(fold_in(SEED, "rare", size))
    classes = rng.integers(0, 6, RARE_ROWS)
    columns = {}
    for name, values in {"code": size, "ward": size // 3, "age": 8, "sex": 2, "stay": 6}.items():
        shares = 1 / np.arange(1, values + 1) * np.exp(rng.normal(0.0, 1.0, (6, values)))
        shares = (shares / shares.sum(axis=1, keepdims=True)).cumsum(axis=1)
        drawn = (rng.random(RARE_ROWS)[:, None] > shares[classes]).sum(axis=1)
        columns[name] = np.minimum(drawn, values - 1)
    # A domain is declared, so that values without a row are in it.
    sizes = (size, size // 3, 8, 2, 6)
    return Codes(Domain(tuple(columns), sizes), tuple(columns.values()))


@cache
def rare_table(name: str, data: Path) -> Codes:
    """Return a table with columns of many values."""
    if name.startswith("made"):
        return many_values(int(name.split()[1]))
    codes = read_codes(name, data, bins=16, rows=RARE_ROWS)
    names = CENSUS if name.startswith("census") else INTRUSION
    domain = codes.domain.project(names)
    return Codes(domain, tuple(codes.column(column) for column in domain.names))


def less(budget: sw.Budget, share: float) -> sw.Budget:
    """Return a budget that has lost a share of its zCDP."""
    epsilon = epsilon_of_rho((1 - share) * rho_for(budget), budget.delta)
    return sw.Budget(epsilon, budget.delta)


def rare(name: str, method: str, seed: int, data: Path) -> Line:
    """Fit once; return the mean distance of pairs in the values as they were."""
    codes = rare_table(name, data)
    budget = budget_of(codes)
    family, _, how = method.partition(", ")
    if not how:
        drawn, seconds = drawn_by(OURS[family](), codes, budget, seed)
        return {"pairs_error": distance(codes, drawn, 2), "seconds": seconds}
    rng = generator(fold_in(SEED, "merged", name, method, seed))
    least = 0.002 if how.endswith("%") else 0.0
    fewer = merged(codes, COUNT_SHARE * rho_for(budget), rng, least)
    drawn, seconds = drawn_by(OURS[family](), fewer.codes, less(budget, COUNT_SHARE), seed)
    whole = fewer.split(drawn, codes.domain, rng)
    values = {name: len(values) for name, values in fewer.rare.items()}
    return {"pairs_error": distance(codes, whole, 2), "seconds": seconds, "merged": values}


# All pairs

PAIR_TABLES = ("adult", DENSE, "heloc")
NOISY, LEAST, LOCAL = "as measured", "least squares", "not below 0"
SHRUNK, MODEL = "shrunk pair by pair", "graphical model"
PAIR_METHODS = (NOISY, LEAST, LOCAL, SHRUNK, MODEL)


@cache
def pair_table(name: str, data: Path) -> Codes:
    """Return a table whose pairs are reconstructed."""
    return read_codes("adult", data, bins=16) if name == "adult" else dense_table(name, data)


def pair_error(exact: Sequence[Floats], tables: Sequence[Floats], rows: int) -> float:
    """Return the mean total variation of pairs that are given as counts."""
    errors = [
        float(np.abs(real - table).sum()) / (2 * rows)
        for real, table in zip(exact, tables, strict=True)
    ]
    return float(np.mean(errors))


def shrunk_pairs(measured: Sequence[Measurement]) -> list[Measurement]:
    """Return pairs less what noise explains of their dependence, as TwoRound plans by them."""
    margins = margins_of(measured, None)
    return [cleaned(m, margins, dependence(m, margins)) for m in measured]


def modelled_pairs(domain: Domain, measured: Sequence[Measurement], rho: float) -> list[Floats]:
    """Return all pairs of a graphical model of the pairs that TwoRound's plan would take."""
    margins = margins_of(measured, None)
    cliques = [m.clique for m in measured]
    shrunk = shrunk_pairs(measured)
    singles = [margin.measurement(column) for column, margin in margins.items()]
    weights = weights_of(domain, cliques)
    chosen = set(plan(domain, weights, [*singles, *shrunk], rho, sw.TwoRound()))
    held = [m for m in shrunk if m.clique in chosen]
    total = estimate_total(measured)
    start = fit(domain, single_columns(measured), total=total, sweeps=60)
    model = fit(domain, [*singles, *held], total=total, warm_start=start, sweeps=60)
    return [model.marginal(clique) for clique in cliques]


def pairs(name: str, seed: int, data: Path) -> Iterator[tuple[str, Line]]:
    """Yield every way to read the same noisy pairs, then whole runs at the same budget."""
    codes = pair_table(name, data)
    domain, budget = codes.domain, budget_of(codes)
    rho = rho_for(budget)
    cliques = list(combinations(domain.names, 2))
    sigma = sqrt(len(cliques) / (2 * rho))
    rng = generator(fold_in(SEED, "pairs", name, seed))
    exact = [table.astype(np.float64) for table in codes.count(cliques)]
    noisy = [table + rng.normal(0.0, sigma, table.shape) for table in exact]
    measured = [Measurement(q, t, sigma) for q, t in zip(cliques, noisy, strict=True)]
    residuals = Residuals(domain, measured)
    ways: dict[str, Callable[[], list[Floats]]] = {
        NOISY: lambda: noisy,
        LEAST: residuals.least_squares,
        LOCAL: residuals.nonnegative,
        SHRUNK: lambda: [m.counts for m in shrunk_pairs(measured)],
        MODEL: lambda: modelled_pairs(domain, measured, rho),
    }
    for way, read in ways.items():
        start = process_time()
        error = pair_error(exact, read(), codes.num_rows)
        yield way, {"pairs_error": error, "seconds": process_time() - start}
    for way, method in OURS.items():
        fitted, seconds = fitted_by(method(), codes, budget)
        model: Any = fitted.model
        scale = codes.num_rows / model.mrf.total
        tables = [scale * model.mrf.marginal(clique) for clique in cliques]
        error = pair_error(exact, tables, codes.num_rows)
        yield way, {"pairs_error": error, "seconds": seconds}


# Runs

PARTS = ("parities", "dense", "bins", "cuts", "rare", "pairs")


def write(line: Line, out: Path) -> None:
    """Add a run to the results."""
    with out.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def wanted(part: str) -> list[tuple[str, str, float]]:
    """Return the table, the method and epsilon of every run of a part but `pairs`."""
    if part == "parities":
        methods = (*PARITY_METHODS, TAB_PE)
        return [(f"k = {k}", method, EPSILON) for k in (2, 3, 4) for method in methods]
    if part == "dense":
        methods = (*OURS, MARGNET, ALONE)
        return [(name, method, EPSILON) for name in DENSE_TABLES for method in methods]
    if part == "cuts":
        return [
            (name, m, e) for name, most in CUT_TABLES.items() for e in most for m in CUT_METHODS
        ]
    if part == "rare":
        return [(name, method, EPSILON) for name in RARE_TABLES for method in RARE_METHODS]
    places = [f"{name}: {column}" for name, columns in BIN_COLUMNS.items() for column in columns]
    return [(p, method, e) for p in places for e in BIN_EPSILONS for method in BIN_METHODS]


def one_run(
    part: str, table: str, method: str, epsilon: float, seed: int, data: Path, peers: Peers
) -> Line | None:
    """Make one run; None where it needs a peer that is not there."""
    if part == "parities":
        return parity(int(table.split()[-1]), method, seed, peers)
    if part == "dense":
        return dense(table, method, seed, data, peers)
    if part == "cuts":
        return cut(table, method, epsilon, seed, data)
    if part == "rare":
        return rare(table, method, seed, data)
    name, _, column = table.partition(": ")
    return binned((name, column), method, epsilon, seed, data)


def main() -> None:
    """Make the runs that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--table", nargs="*", help="some of a part's tables; all if not given")
    parser.add_argument("--seed", nargs="*", type=int, help="0 to 2 if not given; of bins, 0 to 9")
    parser.add_argument("--peer-python", type=Path, help="an interpreter with the peers")
    parser.add_argument("--tab-pe", type=Path, help="a checkout of microsoft/DPSDA")
    parser.add_argument("--margnet", type=Path, help="a checkout of KaiChen9909/margnet")
    parser.add_argument("--out", type=Path, default=OUT, help="where lines are kept")
    sources.add_data(parser)
    asked = parser.parse_args()
    peers = Peers(asked.peer_python, asked.tab_pe, asked.margnet)
    done = {
        tuple(run[n] for n in private_ideas_page.KEY) for run in private_ideas_page.lines(asked.out)
    }
    for part in asked.part:
        for seed in asked.seed or (BIN_SEEDS if part == "bins" else SEEDS):
            if part == "pairs":
                run_pairs(asked.table, seed, asked.data, done, asked.out)
                continue
            for table, method, epsilon in wanted(part):
                key = (part, table, method, epsilon, seed)
                if key in done or (asked.table and table not in asked.table):
                    continue
                figures = one_run(*key[:4], seed, asked.data, peers)
                if figures is not None:
                    facts = dict(zip(private_ideas_page.KEY, key, strict=True))
                    write(facts | figures, asked.out)


def run_pairs(
    tables: Sequence[str] | None, seed: int, data: Path, done: set[tuple[Any, ...]], out: Path
) -> None:
    """Make what is missing of `pairs`: all ways of a table at once, as they read the same noise."""
    for table in tables or PAIR_TABLES:
        keys = [("pairs", table, way, EPSILON, seed) for way in (*PAIR_METHODS, *OURS)]
        if done.issuperset(keys):
            continue
        for way, figures in pairs(table, seed, data):
            key = ("pairs", table, way, EPSILON, seed)
            if key not in done:
                write(dict(zip(private_ideas_page.KEY, key, strict=True)) | figures, out)


if __name__ == "__main__":
    main()
