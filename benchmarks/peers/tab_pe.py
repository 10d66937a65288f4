"""Run Tab-PE on a table of codes; runs where the package `private-evolution` can be imported.

    python tab_pe.py JOB

JOB is JSON: train (CSV of codes), label (a column), sample (the CSV file to write), epsilon, delta,
threads, and perhaps checkout (a folder from which the package is imported). Prints one line
of JSON: processor seconds, and how many rows were drawn.

Rounds, rows and rates are those of the package's own example of parities. It takes the labels'
shares as public, and categories from the table. What it draws has no seed.
"""

import importlib.util
import json
import resource
import sys
import tempfile
from pathlib import Path
from unittest.mock import MagicMock

import pandas as pd

ROUNDS, ROWS = 20, 1000
SAMPLED_ROUNDS = 5  # of them, those that select by chance; the others take the best


FOR_IMAGES = (
    "torchvision", "torchvision.transforms", "torchvision.datasets", "azure", "azure.identity",
    "fld", "fld.features", "fld.features.InceptionFeatureExtractor", "clip",
)  # fmt: skip
"""What the package imports for images and texts; a table needs none of it."""


def leave_out_images():
    """Put something empty in the place of modules for images that are not installed."""
    missing = {
        name for name in FOR_IMAGES if "." not in name and importlib.util.find_spec(name) is None
    }
    for name in FOR_IMAGES:
        if name.partition(".")[0] in missing:
            sys.modules[name] = MagicMock()


def evolved(table, job, folder):
    """Return the rows of the last round."""
    from pe.api import TabularAPI
    from pe.constant.data import (
        LABEL_ID_COLUMN_NAME,
        TABULAR_DATA_COLUMN_NAME,
        VARIATION_API_FOLD_ID_COLUMN_NAME,
    )
    from pe.data import TabularCSV
    from pe.embedding import TabularEmbedding
    from pe.histogram import NearestNeighbors
    from pe.population import CompositePopulation, PEPopulation
    from pe.runner import PE

    names = [name for name in table if name != job["label"]]
    kinds = {"cat_columns": names, "int_columns": [], "float_columns": []}
    facts = folder / "facts.json"
    facts.write_text(json.dumps(kinds | {"label_columns": [job["label"]]}))
    data = TabularCSV(csv_path=job["train"], metadata_path=str(facts))
    info = data.get_tab_info()

    api = TabularAPI(info=info, num_iterations=ROUNDS)
    histogram = NearestNeighbors(
        embedding=TabularEmbedding(info=info), mode="L2", lookahead_degree=0, backend="torch"
    )
    first = PEPopulation(
        api=api, initial_variation_api_fold=0, next_variation_api_fold=1,
        keep_selected=False, selection_mode="sample", histogram_threshold=0,
    )  # fmt: skip
    later = PEPopulation(
        api=api, initial_variation_api_fold=3, next_variation_api_fold=3,
        keep_selected=True, selection_mode="rank",
    )  # fmt: skip
    rounds = [first] * SAMPLED_ROUNDS + [later] * (ROUNDS - SAMPLED_ROUNDS)
    population = CompositePopulation(populations=rounds)
    runner = PE(priv_data=data, population=population, histogram=histogram)
    last = runner.run(
        num_samples_schedule=[ROWS] * ROUNDS, delta=job["delta"], epsilon=job["epsilon"],
        save_checkpoint=False,
    )  # fmt: skip

    # What was selected; beside it are variations that nothing has voted for.
    frame = last.data_frame
    selected = frame[frame[VARIATION_API_FOLD_ID_COLUMN_NAME] == -1]
    rows = pd.DataFrame(selected[TABULAR_DATA_COLUMN_NAME].tolist(), columns=names)
    labels = [
        last.metadata.label_info[int(i)]["column_values"][job["label"]]
        for i in selected[LABEL_ID_COLUMN_NAME]
    ]
    rows[job["label"]] = labels
    return rows.astype(int)[list(table)]


def main():
    """Fit, draw and report."""
    import torch

    job = json.loads(sys.argv[1])
    sys.path.insert(0, job.get("checkout", "."))
    leave_out_images()
    torch.set_num_threads(job["threads"])

    table = pd.read_csv(job["train"])
    start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with tempfile.TemporaryDirectory() as folder:
        rows = evolved(table, job, Path(folder))
    seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - start
    rows.to_csv(job["sample"], index=False)
    print(json.dumps({"seconds": seconds, "drawn": len(rows)}))


if __name__ == "__main__":
    main()
