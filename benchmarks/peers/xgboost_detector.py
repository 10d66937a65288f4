"""XGBoost as a detector of synthetic rows, in three folds; runs where it can be imported.

    python xgboost_detector.py JOB

JOB is JSON: real and synthetic (Parquet files with the same columns and as many rows), categorical
(names), seed, threads. Prints one line of JSON: by encoding, 100 (1 - (2 max(AUC, .5) - 1)) over
three folds and its seconds.

Encodings: `codes` has one number per category, the most frequent one first, and gaps as they
are; `indicators` has one column per category and the real mean in a gap, as SDMetrics' detection
encodes a table. XGBoost's own defaults: 100 rounds, depth 6, learning rate .3.
"""

import json
import sys
import time

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from xgboost import XGBClassifier


def coded(_, both, categorical):
    columns = []
    for name in both:
        if name in categorical:
            # Of both tables, ties by name: else a code would say which row is a real one.
            counts = both[name].value_counts()
            order = sorted(counts.index, key=lambda value: (-counts[value], value))
            columns.append(both[name].map({v: float(i) for i, v in enumerate(order)}).to_numpy())
        else:
            columns.append(both[name].to_numpy(dtype=float))
    return np.column_stack(columns)


def indicated(real, both, categorical):
    columns = []
    for name in both:
        if name in categorical:
            seen = real[name].fillna("").unique()  # unknown ones have no indicator
            values = both[name].fillna("").to_numpy()
            columns += [(values == value).astype(float) for value in seen]
        else:
            columns.append(both[name].fillna(real[name].mean()).to_numpy(dtype=float))
    return np.column_stack(columns).astype(np.float32)


def detection(X, y, job):
    start, scores = time.perf_counter(), []
    folds = StratifiedKFold(3, shuffle=True, random_state=job["seed"])
    for train, test in folds.split(X, y):
        model = XGBClassifier(random_state=job["seed"], n_jobs=job["threads"])
        chance = model.fit(X[train], y[train]).predict_proba(X[test])[:, 1]
        scores.append(2 * max(roc_auc_score(y[test], chance), 0.5) - 1)
    return {"c2st": 100 * (1 - float(np.mean(scores))), "seconds": time.perf_counter() - start}


def main():
    job = json.loads(sys.argv[1])
    real, synthetic = (pd.read_parquet(job[name]) for name in ("real", "synthetic"))
    for table in (real, synthetic):
        for name in job["categorical"]:
            table[name] = table[name].astype(object).where(table[name].notna(), None)
            table[name] = table[name].map(str, na_action="ignore")
    both = pd.concat([real, synthetic], ignore_index=True)
    y = np.repeat([0, 1], [len(real), len(synthetic)])
    found = {}
    for name, encode in (("codes", coded), ("indicators", indicated)):
        found[name] = detection(encode(real, both, set(job["categorical"])), y, job)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
