"""TAPAS's summaries and scores of some tables; runs where TAPAS can be imported.

    python shadow_definitions.py FOLDER

reads description.json, record.parquet and set-*.parquet from FOLDER, prints one line of JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.neighbors import KernelDensity
from tapas.attacks import HammingDistance, HistSetFeature, LpDistance, NaiveSetFeature
from tapas.attacks.synthinference import sklearnDensityEstimator
from tapas.datasets import DataDescription, TabularDataset


def main():
    folder = Path(sys.argv[1])
    description = DataDescription(json.loads((folder / "description.json").read_text()))

    def read(path):
        return TabularDataset(pd.read_parquet(path), description)

    record = read(folder / "record.parquet")
    sets = [read(path) for path in sorted(folder.glob("set-*.parquet"))]
    density = []
    for one in sets:
        model = sklearnDensityEstimator(KernelDensity())
        model.fit(one)
        density.append(float(model.score(record)[0]))
    found = {
        "naive": NaiveSetFeature()(sets).tolist(),
        "histogram": HistSetFeature(10, (0, 1))(sets).tolist(),
        "hamming": [-float(np.min(HammingDistance()(record, one))) for one in sets],
        "l2": [-float(np.min(LpDistance(2)(record, one))) for one in sets],
        "density": density,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
