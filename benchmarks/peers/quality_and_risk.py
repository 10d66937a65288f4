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


def attacked(tables, numeric, attacks):
    train, synthetic, control = tables
    names = list(train.columns)
    settings = {"control": control, "n_attacks": attacks}
    found = {}
    for mode in ("univariate", "multivariate"):
        evaluator = SinglingOutEvaluator(train, synthetic, n_cols=3, **settings)
        found[f"singling_out {mode}"] = risk(evaluator, mode=mode)
    sides = names[::2], names[1::2]
    evaluator = LinkabilityEvaluator(train, synthetic, aux_cols=sides, n_neighbors=1, **settings)
    found["linkability"] = risk(evaluator, n_jobs=1)
    for secret in names:
        known = [n for n in names if n != secret]
        named = {"aux_cols": known, "secret": secret, "regression": secret in numeric}
        evaluator = InferenceEvaluator(train, synthetic, **named, **settings)
        found[f"inference {secret}"] = risk(evaluator, n_jobs=1)
    return found


def quality(train, synthetic, numeric):
    kinds = {n: {"sdtype": "numerical" if n in numeric else "categorical"} for n in train}
    report = QualityReport()
    report.generate(train, synthetic, {"columns": kinds}, verbose=False)
    return report.get_properties().set_index("Property")["Score"].to_dict()


def main():
    warnings.simplefilter("ignore")
    folder, attacks = Path(sys.argv[1]), int(sys.argv[2])
    names = ("train", "synthetic", "control")
    tables = [pd.read_parquet(folder / f"{name}.parquet") for name in names]
    numeric = [n for n in tables[0] if pd.api.types.is_numeric_dtype(tables[0][n])]
    for table in tables:
        for name in set(table.columns) - set(numeric):
            table[name] = table[name].astype(object)
    scores, seconds = timed(lambda: quality(*tables[:2], numeric))
    risks = attacked(tables, numeric, attacks)
    print(json.dumps({"risks": risks, "scores": scores, "score_seconds": seconds}))


if __name__ == "__main__":
    main()
