"""Our side of the speed comparison, started by neural_speed.py as the peers' scripts are.

    python benchmarks/neural_fits.py ctgan JOB
    python benchmarks/neural_fits.py tabddpm JOB

The jobs are those of peers/ctgan_fits.py and peers/tabddpm_fits.py, with the name of one of
neural_tables.py's schemas in a file.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import siloweave as sw
from siloweave.tables import write


def timed(make: Callable[[], Any]) -> tuple[Any, float, float]:
    """A value, wall seconds and processor seconds."""
    wall, own = time.perf_counter(), time.process_time()
    value = make()
    return value, time.perf_counter() - wall, time.process_time() - own


def ctgan(job: dict[str, Any]) -> dict[str, Any]:
    """Fits of CTGAN, and rows of the last one."""
    table, schema = sw.read(job["table"]), sw.Schema.from_json(Path(job["schema"]).read_text())
    fits, model = list[dict[str, float]](), cast(Any, None)
    for epochs in job["epochs"]:
        made = sw.CTGAN(epochs=epochs, batch=job["batch"])
        model, wall, own = timed(partial(made.fit, table, schema, seed=job["seed"]))
        steps = epochs * max(table.num_rows // job["batch"], 1)
        fits.append({"steps": steps, "seconds": wall, "cpu": own})
    found: dict[str, Any] = {"fits": fits}
    if job["rows"]:
        rows, wall, own = timed(lambda: model.sample_table(job["rows"], seed=job["seed"]))
        write(rows, Path(job["sample"]))
        found |= {"sample_seconds": wall, "sample_cpu": own}
    return found


def tabddpm(job: dict[str, Any]) -> dict[str, Any]:
    """Fits of TabDDPM, and rows of the last one: ancestral, and as is the default, twice each."""
    import jax

    table, schema = sw.read(job["table"]), sw.Schema.from_json(Path(job["schema"]).read_text())
    fits, model = list[dict[str, float]](), cast(Any, None)
    for steps in job["steps"]:
        names = ("hidden", "timesteps", "batch")
        settings = {**{n: job[n] for n in names}, "steps": steps}
        settings |= {"learning_rate": job["rate"], "weight_decay": job["decay"]}
        made = sw.TabDDPM(target=job["target"], **settings)
        model, wall, own = timed(partial(made.fit, table, schema, seed=job["seed"]))
        fits.append({"steps": steps, "seconds": wall, "cpu": own})
    found: dict[str, Any] = {"fits": fits, "samplers": {}}
    if not job["draws"]:
        return found
    for sampler in ("ancestral", None):
        times = []
        for seed in (0, 1):  # the first call compiles
            key = jax.random.key(seed)
            draw = partial(model.model.net.net.sample, job["draws"], key=key, sampler=sampler)
            X, wall, own = timed(draw)
            times.append({"seconds": wall, "cpu": own})
        name = sampler or "default"
        file = f"{job['sample']}.{name}.parquet"
        write(model.model.features.decode(X, key=0, like=model.like), Path(file))
        found["samplers"][name] = {"first": times[0], "again": times[1], "rows": file}
    return found


if __name__ == "__main__":
    print(json.dumps({"ctgan": ctgan, "tabddpm": tabddpm}[sys.argv[1]](json.loads(sys.argv[2]))))
