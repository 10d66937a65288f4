"""Fit one peer to a table and draw as many rows; runs where the peers can be imported.

    python tabular_peers.py JOB

JOB is JSON: peer, train (Parquet), sample (the Parquet file to write), categorical and whole (names
of columns), bounds (of each number), rows (to draw), seed, threads, settings; for a peer with a
guarantee epsilon, delta, checkout (mbi_aim.py says of what) and domain (of every column its
categories as texts, or its bounds and decimals). Prints one line of JSON: the release, seconds and
processor seconds of the fit and of drawing.

Each peer gets the table as its documentation asks, and its own defaults but for the settings in
`SETTINGS`, which keep a fit of 10,000 rows within minutes of two cores.
"""

import json
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from itertools import pairwise

import numpy as np
import pandas as pd

RELEASES = {
    "TabularARGN": "mostlyai-engine",
    "ARF": "arfpy",
    "NRGBoost": "nrgboost",
    "UnmaskingTrees": "utrees",
    "ForestFlow": "ForestDiffusion",
    "AIM of mbi": "mbi",
}
NUMBER_BINS = 32
"""Bins of equal width that a number is cut into for peers that know codes only."""
SETTINGS = {
    # Its protection of rare values is off: the other peers, and ours here, have none.
    "TabularARGN": {"value_protection": False, "max_training_time": 5.0},
    "ARF": {},
    # The readme's, but for fewer leaves and chains.
    "NRGBoost": {
        "num_trees": 100, "shrinkage": 0.15, "max_leaves": 256, "max_ratio_in_leaf": 2,
        "num_model_samples": 40_000, "p_refresh": 0.1, "num_chains": 16, "burn_in": 100,
    },
    "UnmaskingTrees": {"duplicate_K": 2},  # 50: 25 times the seconds and memory
    "ForestFlow": {"n_t": 20, "duplicate_K": 10},  # 50 and 100
    # Each round compiles each candidate for about a second; the same tables come without.
    "AIM of mbi": {"compile_candidates": False},
}  # fmt: skip


def as_matrix(table, categorical):
    """Return a matrix of numbers and codes, and what gives texts back for the codes."""
    columns, labels = [], {}
    for name in table:
        if name in categorical:
            codes, known = pd.factorize(table[name], use_na_sentinel=False)
            labels[name] = known
            columns.append(codes.astype(float))
        else:
            columns.append(table[name].to_numpy(dtype=float))
    return np.column_stack(columns), labels


def decoded(matrix, table, labels):
    found = {}
    for name, values in zip(table.columns, np.asarray(matrix).T, strict=True):
        if name in labels:
            codes = np.clip(np.round(values.astype(float)), 0, len(labels[name]) - 1).astype(int)
            found[name] = np.asarray(labels[name], dtype=object)[codes]
        else:
            found[name] = values.astype(float)
    return pd.DataFrame(found)


def tabular_argn(table, job, settings):
    from mostlyai.engine import TabularARGN

    model = TabularARGN(random_state=job["seed"], verbose=0, **settings)
    model.fit(X=table)
    return lambda: model.sample(n_samples=job["rows"])


def arf(table, job, settings):
    from arfpy import arf as package

    # The seed is of the forests alone: what the peer draws itself has none.
    words = {name: table[name].fillna("missing").astype("category") for name in job["categorical"]}
    forest = {"n_jobs": job["threads"], "random_state": job["seed"]}
    model = package.arf(x=table.assign(**words), verbose=False, **forest, **settings)
    model.forde()
    return lambda: model.forge(n=job["rows"])


def nrgboost(table, job, settings):
    from nrgboost import Dataset, NRGBooster

    words = {name: table[name].astype("category") for name in job["categorical"]}
    model = NRGBooster.fit(Dataset(table.assign(**words)), settings, seed=job["seed"])
    return lambda: model.sample(job["rows"], num_steps=100, seed=job["seed"])


def unmasking_trees(table, job, settings):
    from utrees import UnmaskingTrees

    matrix, labels = as_matrix(table, job["categorical"])
    kinds = [
        "categorical" if name in labels else "integer" if name in job["whole"] else "continuous"
        for name in table
    ]
    model = UnmaskingTrees(random_state=job["seed"], **settings).fit(matrix, quantize_cols=kinds)
    return lambda: decoded(model.generate(n_generate=job["rows"]), table, labels)


def forest_flow(table, job, settings):
    from ForestDiffusion import ForestDiffusionModel

    matrix, labels = as_matrix(table, job["categorical"])
    places = {name: place for place, name in enumerate(table.columns)}
    two = [places[name] for name, known in labels.items() if len(known) <= 2]
    model = ForestDiffusionModel(
        matrix,
        bin_indexes=two,
        cat_indexes=[places[name] for name in labels if places[name] not in two],
        int_indexes=[places[name] for name in job["whole"]],
        n_jobs=job["threads"],
        seed=job["seed"],
        **settings,
    )
    return lambda: decoded(model.generate(batch_size=job["rows"]), table, labels)


def coded(values, facts, whole):
    """Return a column's codes, how many there are, and what gives values back for codes.

    Numbers are cut into bins of equal width between the declared bounds, and drawn evenly inside
    a bin. Whole numbers of few values have a code each. A missing value has a code after all
    others, where the table has one.
    """
    is_missing = pd.isna(values).to_numpy()
    if "categories" in facts:
        known = np.asarray(facts["categories"], dtype=object)
        codes = pd.Index(known).get_indexer(values)
        if (codes[~is_missing] < 0).any():
            raise ValueError(f"column {values.name!r} has a value outside its declared categories")
        count = len(known)

        def decode(drawn, _):
            return np.append(known, [None])[drawn]

    else:
        # Bounds of whole numbers are moved out by a half, so that each value has as much room.
        margin = 0.5 if whole else 0.0
        low, high = facts["low"] - margin, facts["high"] + margin
        count = NUMBER_BINS
        if whole:
            count = min(count, round(high - low))
        width = (high - low) / count
        places = (values.to_numpy(dtype=float) - low) / width
        codes = np.clip(np.where(is_missing, 0, places), 0, count - 1).astype(int)

        def decode(drawn, random):
            numbers = low + width * (drawn + random.uniform(size=len(drawn)))
            numbers = np.clip(numbers, facts["low"], facts["high"])
            if facts["decimals"] is not None:
                numbers = np.round(numbers, facts["decimals"])
            return np.where(drawn == count, np.nan, numbers)

    if is_missing.any():
        codes = np.where(is_missing, count, codes)
        return codes, count + 1, decode
    return codes, count, decode


def aim(table, job, settings):
    import mbi_aim

    codes, sizes, decoders = {}, {}, {}
    for name in table:
        facts, whole = job["domain"][name], name in job["whole"]
        codes[name], sizes[name], decoders[name] = coded(table[name], facts, whole)
    model = mbi_aim.fit(
        job["checkout"], codes, sizes, job["epsilon"], job["delta"], job["seed"], **settings
    )

    def draw():
        drawn = model.synthetic_data(rows=job["rows"]).to_dict()
        random = np.random.default_rng(job["seed"])
        rows = {name: decoders[name](np.asarray(drawn[name]), random) for name in table}
        return pd.DataFrame(rows)

    return draw


def release_of(job):
    """Return the release of the peer's package, and the commit of its checkout."""
    package = RELEASES[job["peer"]]
    release = f"{package} {version(package)}"
    if not job.get("checkout"):
        return release
    ask = ["git", "-C", job["checkout"], "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
    return f"{job['peer']} {commit or 'of an unknown commit'} with {release}"


PEERS = {
    "TabularARGN": tabular_argn,
    "ARF": arf,
    "NRGBoost": nrgboost,
    "UnmaskingTrees": unmasking_trees,
    "ForestFlow": forest_flow,
    "AIM of mbi": aim,
}


def spent():
    """Wall and processor seconds, those of ended children too."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime


def main():
    job = json.loads(sys.argv[1])
    table = pd.read_parquet(job["train"])
    # Codes are numbers in some tables: peers get them as texts, and ours gets numbers back.
    numbered = [n for n in job["categorical"] if pd.api.types.is_numeric_dtype(table[n])]
    for name in job["categorical"]:
        table[name] = table[name].map(str, na_action="ignore").astype(object)
    settings = {**SETTINGS[job["peer"]], **job["settings"]}
    marks = [spent()]
    draw = PEERS[job["peer"]](table, job, settings)
    marks.append(spent())
    rows = draw()
    marks.append(spent())
    rows = pd.DataFrame(rows)[list(table.columns)]
    for name in rows:
        if name in numbered:
            rows[name] = pd.to_numeric(rows[name])
        elif name in job["categorical"]:
            rows[name] = rows[name].astype(object).where(rows[name].notna(), None)
        else:
            rows[name] = pd.to_numeric(rows[name]).astype(float)
            if name in job["whole"]:
                rows[name] = rows[name].round()
            # Some peers draw beyond all rows; ours know the bounds.
            rows[name] = rows[name].clip(*job["bounds"][name])
    rows.to_parquet(job["sample"])
    fit, sample = (
        [after - before for before, after in zip(*pair, strict=True)] for pair in pairwise(marks)
    )
    answer = {
        "release": release_of(job), "settings": settings,
        "fit_seconds": fit[0], "fit_cpu": fit[1],
        "sample_seconds": sample[0], "sample_cpu": sample[1],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
