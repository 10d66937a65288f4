"""What SDMetrics and anonymeter say of three tables; runs in an environment of their own.

    python quality_and_risk.py FOLDER ATTACKS

reads train.parquet, synthetic.parquet and control.parquet from FOLDER and prints one line of JSON.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import pandas as pd
from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator
from sdmetrics.reports.single_table import QualityReport


def timed(make):
    start = time.perf_counter()
    value = make()
    return value, time.perf_counter() - start


def risk(evaluator, **named):
    def make():
        evaluator.evaluate(**named)
        return evaluator.risk(confidence_level=0.95)

    found, seconds = timed(make)
    rates = evaluator.results(confidence_level=0.95)
    return {
        "risk": found.value,
        "low": found.ci[0],
        "high": found.ci[1],
        "train": rates.attack_rate.value,
        "control": rates.control_rate.value,
        "seconds": seconds,
    }


def main():
    warnings.simplefilter("ignore")
    folder, attacks = Path(sys.argv[1]), int(sys.argv[2])
    train, synthetic, control = (
        pd.read_parquet(folder / f"{name}.parquet") for name in ("train", "synthetic", "control")
    )
    numeric = [n for n in train if pd.api.types.is_numeric_dtype(train[n])]
    for table in (train, synthetic, control):
        for name in table.columns:
            if name not in numeric:
                table[name] = table[name].astype(object)
    names = list(train.columns)
    found = {}
    for mode in ("univariate", "multivariate"):
        evaluator = SinglingOutEvaluator(
            train, synthetic, control=control, n_attacks=attacks, n_cols=3
        )
        found[f"singling_out {mode}"] = risk(evaluator, mode=mode)
    sides = names[::2], names[1::2]
    found["linkability"] = risk(
        LinkabilityEvaluator(
            train, synthetic, control=control, n_attacks=attacks, aux_cols=sides, n_neighbors=1
        ),
        n_jobs=1,
    )
    for secret in names:
        evaluator = InferenceEvaluator(
            train,
            synthetic,
            control=control,
            aux_cols=[n for n in names if n != secret],
            secret=secret,
            regression=secret in numeric,
            n_attacks=attacks,
        )
        found[f"inference {secret}"] = risk(evaluator, n_jobs=1)
    kinds = {n: {"sdtype": "numerical" if n in numeric else "categorical"} for n in names}
    report = QualityReport()

    def quality():
        report.generate(train, synthetic, {"columns": kinds}, verbose=False)
        return report.get_properties().set_index("Property")["Score"].to_dict()

    scores, seconds = timed(quality)
    print(json.dumps({"risks": found, "scores": scores, "score_seconds": seconds}))


if __name__ == "__main__":
    main()
