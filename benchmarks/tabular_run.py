"""One run of the tabular benchmark: read, fit, draw, judge; started by tabular.py.

    python benchmarks/tabular_run.py JOB LINE

JOB is JSON text, LINE the file that the result is written to.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import sources
from flaim_adult import commit
from margins import resampled
from neural_run import machine, peak_mb, since, spent
from neural_tables import column

import siloweave as sw
from siloweave.attacks.rates import FALSE_POSITIVES, roc
from siloweave.core.model import FeatureModel
from siloweave.evaluate import similarity
from siloweave.evaluate.discriminator import discriminate
from siloweave.evaluate.predictive import (
    CLASSES,
    LIGHTGBM,
    LONG,
    XGBOOST,
    Trees,
    as_classes,
    boosted,
    features,
    main_classes,
    one_thread,
    utilities,
)
from siloweave.evaluate.support import support
from siloweave.evaluate.workload import tvd
from siloweave.models import diffusion
from siloweave.models.diffusion import TabDDPMModel
from siloweave.models.latent import LatentDiffusion
from siloweave.tables import align
from siloweave.tables.aligned import Aligned
from siloweave.tables.codes import Encoder
from siloweave.tables.decimals import MOST_DECIMALS, decimals_of
from siloweave.tables.keys import generator
from siloweave.tables.relations import proposed
from siloweave.tables.write import write

HERE = Path(__file__).parent
PEER = HERE / "peers" / "tabular_peers.py"
SPLIT_SEED = 2026
ADULT_TRAIN = 32_561
"""Adult's own split: its first file has so many rows."""
TEST = 0.1
SUPPORT_ROWS = 10_000
"""Rows of either table whose neighbours are looked for: seconds grow with their square."""
FLOOR, CEILING = "shuffled columns", "real rows held out"
AGAIN = "training rows drawn again"
"""As many as there are, each perhaps repeatedly: what a generator without any error resembles."""
BOUNDS = (FLOOR, CEILING, AGAIN)
APART = " at each party"
"""Behind the name of a central method that every party fits to its own rows."""
PARTIES = {"columns": 4, "rows": 5}
DELTA = 1e-6
LOSSES = 64
TARGETS, FALSE_ALARMS = 1_000, 0.01
"""Rows of either kind that are attacked, and the share of others that are taken for members."""
MANTISSA_BITS = 53
"""Of a double: numbers whose decimals need more have none that are known."""
BINS = 16
"""Equal bins of a number, in triples of columns."""


@dataclass(frozen=True)
class Source:
    """A table, and how many of its rows are used at most."""

    file: str
    most: int | None = None


TABLES = {
    "adult": Source("adult"),
    "bank_marketing": Source("bank_marketing"),
    "churn": Source("churn"),
    "heloc": Source("heloc"),
    "california_housing": Source("california_housing"),
    "covertype": Source("covertype", 50_000),
    "intrusion": Source("intrusion_kdd99_10pct", 50_000),
    "census": Source("census_income_kdd", 50_000),
}


@dataclass(frozen=True)
class Prepared:
    """A table that is ready to be fitted: its schema, both parts, and its task."""

    schema: sw.Schema
    train: sw.Table
    test: sw.Table
    target: str
    classes: bool
    rows: tuple[int, int]  # used, of all


def prepare(name: str, data: Path, rows: int | None = None) -> Prepared:
    """Read a table, cut a large one to its stated rows, and split off the test rows.

    Identifiers are left out: datasets.json names them.
    Adult has its own split; of other tables a tenth of the rows is for tests. One order of the rows
    is drawn once, so every method and seed has the same rows. Bounds, categories and decimals are
    those of the rows used.

    Args:
        name: One of TABLES.
        data: The folder with the Parquet files (see sources.py).
        rows: Rows used at most, for trials.
    """
    source = TABLES[name]
    facts = sources.facts(source.file)
    table = sources.read(source.file, data)
    table = table.select([name for name in table.names if name not in facts["identifiers"]])
    limits = [limit for limit in (source.most, rows) if limit is not None]
    order = generator(SPLIT_SEED).permutation(table.num_rows)[: min([table.num_rows, *limits])]
    test = order[: round(TEST * len(order))]
    train = order[len(test) :]
    if name == "adult":
        train, test = order[order < ADULT_TRAIN], order[order >= ADULT_TRAIN]
    used = table.take(np.sort(order))
    kinds = ("numbers", "whole numbers")
    numeric = {n for n in table.names if table.kind(n) in kinds} - set(facts["categorical"])
    columns = [with_decimals(column(used, n, n in numeric), used) for n in table.names]
    schema = sw.Schema(tuple(columns)).with_fallbacks()
    training_rows = table.take(np.sort(train))
    # As `siloweave init` and `Schema.detect` do; the test rows are not looked at.
    schema = sw.Schema(schema.columns, proposed(training_rows, schema.columns))
    return Prepared(
        schema,
        training_rows,
        table.take(np.sort(test)),
        facts["target"],
        facts["task"] == "classification",
        (len(order), table.num_rows),
    )


def with_decimals(declared: sw.Column, table: sw.Table) -> sw.Column:
    """Add the decimals of a column of numbers, as `siloweave init` writes them."""
    if declared.kind != "continuous":
        return declared
    numbers = table.values(declared.name)[~table.missing(declared.name)]
    decimals = decimals_of(np.unique(numbers), MOST_DECIMALS, MANTISSA_BITS)
    return msgspec.structs.replace(declared, decimals=decimals)


def shuffled(table: sw.Table, seed: int) -> sw.Table:
    """Return the table with each column shuffled on its own."""
    columns = {}
    for place, name in enumerate(table.names):
        order = generator(seed * 1_000 + place).permutation(table.num_rows)
        columns[name] = (table.values(name)[order], table.missing(name)[order])
    return sw.Table.from_columns(columns)


# What the rows are worth


def judged(table: Prepared, drawn: sw.Table, seed: int, teacher: str = "drawn") -> dict[str, float]:
    """Return every measure of drawn rows against the training rows.

    Args:
        table: The rows that were learnt from, and the test rows.
        drawn: What to judge.
        seed: Of folds, trees and samples.
        teacher: Whose rows the utility's models learn from: ``drawn``, or ``train``.
    """
    tables = align({"train": table.train, "drawn": drawn, "test": table.test}, table.schema)
    count = min(tables.num_rows[name] for name in ("train", "drawn"))
    found = detected(tables, count, seed) | resemblance(table, drawn, tables)
    places = support(tables, "train", "drawn", key=seed, max_rows=SUPPORT_ROWS)
    found["alpha-precision"] = 100 * places.alpha_precision
    found["beta-recall"] = 100 * places.beta_recall
    if teacher == "drawn":  # beside itself, what real rows teach is 100 by definition
        every = utilities(tables, "train", (teacher,), key=seed)
        found["every column"] = every.of_every_column(teacher)[0]
    for name, trees in (("utility", LONG), ("XGB utility", XGBOOST)):
        found[name] = utility(
            tables, teacher, table.target, classes=table.classes, seed=seed, trees=trees
        )
    if teacher == "drawn":  # the held-out rows are those that members are told from
        found["leak"] = 100 * leak(table, drawn, seed)
    return found


def detected(tables: Aligned, count: int, seed: int) -> dict[str, float]:
    """Return how difficult two detectors find it to tell so many drawn rows from training rows."""
    found = {}
    for name, trees in (("XGB-C2ST", XGBOOST), ("LightGBM-C2ST", LIGHTGBM)):
        judge = discriminate(tables, "train", "drawn", key=seed, max_rows=count, trees=trees)
        found[name] = 100 * judge.detection
    return found


def resemblance(table: Prepared, drawn: sw.Table, tables: Aligned) -> dict[str, float]:
    """Return how far shares of single columns, pairs and triples are those of the training rows."""
    names = ("train", "drawn")
    triples = Encoder(table.schema, BINS)
    return {
        "Shape": similarity.column_shapes(tables, *names),
        "Trend": similarity.column_pair_trends(tables, *names, strong=False).percent,
        "information error": similarity.information_error(tables, *names),
        "three-way": tvd(table.train, drawn, 3, key=0, encoder=triples),
    }


def leak(table: Prepared, drawn: sw.Table, seed: int) -> float:
    """Return the share of training rows that the best membership attack finds at 1 % false alarms.

    The best of seven attacks on 1,000 rows of either kind finds 1 to 3 % by chance.
    """
    risks = sw.attack(
        table.train, drawn, control=table.test, schema=table.schema, attacks=["membership"],
        targets=min(TARGETS, table.test.num_rows // 2), seed=seed, allow_overlap=True,
    )  # fmt: skip
    place = FALSE_POSITIVES.index(FALSE_ALARMS)
    return max(found.at[place].tpr.value for found in risks.memberships)


def utility(
    tables: Aligned,
    teacher: str,
    target: str,
    *,
    classes: bool,
    seed: int,
    trees: Trees = LONG,
) -> float:
    """Return what trees that learn the target from drawn rows are worth on the test rows.

    Of classes the area under the ROC curve, the mean of one against the rest over ten classes at
    most; of a number the root mean squared error in standard deviations of the test rows.
    """
    goal = tables.column(target)
    parts = {}
    for name in (teacher, "test"):
        rows = np.flatnonzero(~goal.missing(name))
        X = features(tables, name, rows, without=target)
        parts[name] = (X, goal.values[name][rows])
    (X, y), (Z, truth) = parts[teacher], parts["test"]
    with one_thread():
        if not classes:
            model = boosted(X, y, seed, trees, numeric=True)
            return float(np.sqrt(np.mean((model.predict(Z) - truth) ** 2)) / truth.std())
        known = main_classes(goal.values["train"], CLASSES)
        y, truth = as_classes(y, known), as_classes(truth, known)
        if len(np.unique(y)) < 2:
            return 0.5
        model = boosted(X, y, seed, trees)
        chances = dict(zip(model.classes_.tolist(), model.predict_proba(Z).T, strict=True))
    return mean_area(truth, chances)


def mean_area(truth: Any, chances: dict[int, Any]) -> float:
    """Return the mean area of one class against the rest; 1/2 for a class that was not learnt."""
    from sklearn.metrics import roc_auc_score

    present = np.unique(truth).tolist()
    if len(present) == 2:
        present = present[1:]
    areas = [
        roc_auc_score(truth == label, chances[label]) if label in chances else 0.5
        for label in present
    ]
    return float(np.mean(areas))


# Where the rows come from


def ours(job: dict[str, Any], table: Prepared) -> dict[str, Any]:
    """Fit a method of the package, and judge its rows as drawn and, where it rakes, raked."""
    from siloweave.methods.registry import METHODS

    kind = METHODS[job["method"]]
    settings = settings_of(kind, job, table)
    budget = None if job["epsilon"] is None else sw.Budget(job["epsilon"], DELTA)
    rows = shared_out(kind.method.split, table.train, job["seed"])
    start = spent()
    fitted = kind(**settings).fit(
        rows, table.schema, budget=budget, seed=job["seed"], progress=False
    )
    fit_wall, fit_own = since(start)
    start = spent()
    drawn = fitted.sample_table(table.train.num_rows, seed=job["seed"])
    sample_wall, sample_own = since(start)
    line = {
        "settings": json.loads(json.dumps(dict(fitted.settings), default=str)),
        "given": settings, "fit_seconds": fit_wall, "fit_cpu": fit_own,
        "sample_seconds": sample_wall, "sample_cpu": sample_own, "peak_mb": peak_mb(),
        "raked": getattr(fitted.model, "one_way", None) is not None,
    }  # fmt: skip
    line["own_loss"] = own_loss_leak(fitted, table, job["seed"])
    line["scores"] = judged(table, drawn, job["seed"])
    if line["raked"]:
        raw = fitted.sample_table(table.train.num_rows, seed=job["seed"], raked=False)
        line["as_drawn"] = judged(table, raw, job["seed"])
    if isinstance(fitted.model, FeatureModel) and fitted.model.one_way is not None:
        shares = resampled(fitted.model.one_way, table.train.num_rows, job["seed"])
        again = replace(fitted, model=replace(fitted.model, one_way=shares))
        line["resampled"] = raked_to_chance(again, table, job["seed"])
    return line


def raked_to_chance(fitted: sw.Fit, table: Prepared, seed: int) -> dict[str, float]:
    """Return what detectors see of rows of a fit that is raked to the shares of a random sample.

    Rows that are raked to the shares of the training rows agree with them better than chance
    allows, which deceives detectors (raked_rows.py). These rows do not.
    """
    count = table.train.num_rows
    drawn = fitted.sample_table(count, seed=seed)
    tables = align({"train": table.train, "drawn": drawn}, table.schema)
    return detected(tables, count, seed)


def settings_of(kind: Any, job: dict[str, Any], table: Prepared) -> dict[str, Any]:
    """Return the settings of a run: those that were asked for, and the table's target."""
    settings = dict(job["settings"])
    if table.classes and "target" in kind.__dataclass_fields__:
        settings.setdefault("target", table.target)
    return settings


def apart(job: dict[str, Any], table: Prepared) -> dict[str, Any]:
    """Fit a central method at each party alone, and judge all parties' drawn rows together.

    Nothing is trained together: what a federated method loses or gains is seen beside it.
    """
    from siloweave.methods.registry import METHODS

    kind = METHODS[job["method"].removesuffix(APART)]
    settings = settings_of(kind, job, table)
    start = spent()
    fits = [
        kind(**settings).fit(rows, table.schema, seed=job["seed"] * 1_000 + place, progress=False)
        for place, rows in enumerate(shared_out("rows", table.train, job["seed"]))
    ]
    fit_wall, fit_own = since(start)
    start = spent()
    drawn = together([fitted.sample_table(seed=job["seed"]) for fitted in fits])
    sample_wall, sample_own = since(start)
    as_drawn = together([fitted.sample_table(seed=job["seed"], raked=False) for fitted in fits])
    return {
        "settings": json.loads(json.dumps(dict(fits[0].settings), default=str)),
        "given": settings, "fit_seconds": fit_wall, "fit_cpu": fit_own,
        "sample_seconds": sample_wall, "sample_cpu": sample_own, "peak_mb": peak_mb(),
        "raked": True,
        "scores": judged(table, drawn, job["seed"]),
        "as_drawn": judged(table, as_drawn, job["seed"]),
    }  # fmt: skip


def together(tables: Sequence[sw.Table]) -> sw.Table:
    """Return the rows of several tables of the same columns, one below the other."""
    columns = {}
    for name in tables[0].names:
        values = np.concatenate([table.values(name) for table in tables])
        missing = np.concatenate([table.missing(name) for table in tables])
        columns[name] = (values, missing)
    return sw.Table.from_columns(columns)


def shared_out(split: str, rows: sw.Table, seed: int) -> Any:
    """Return rows as a method takes them: whole, or in parts that parties hold.

    Columns are parted as they stand. Of rows each party has one cluster, so no two are alike.
    """
    if split == "columns":
        return sw.split_columns(rows, PARTIES["columns"])
    if split == "rows":
        return sw.split_rows(rows, PARTIES["rows"], by="clusters", method="pca", seed=seed)
    return rows


def own_loss_leak(fitted: sw.Fit, table: Prepared, seed: int) -> float | None:
    """Return the share of training rows that a diffusion's own loss finds at 1 % false alarms.

    Whoever has the network needs no drawn rows: it errs less on rows that it has learned. The loss
    of a row is the mean over LOSSES draws of time and noise, the same for all rows (Carlini et al.
    2022 call the loss alone the weakest attack). None for other models than diffusions, and for
    those conditioned on the party of a row.
    """
    net = getattr(getattr(fitted.model, "net", None), "net", None)
    if not isinstance(net, TabDDPMModel | LatentDiffusion):
        return None
    if isinstance(net, LatentDiffusion) and net.owners > 1:
        return None  # a row's loss depends on whose it is, which the attacker does not know
    count = min(TARGETS, table.test.num_rows)
    places = generator(seed).permutation(table.train.num_rows)[:count]
    sides = table.train.take(np.sort(places)), table.test.take(np.arange(count))
    members, others = (-losses_of(fitted, net, rows, seed) for rows in sides)
    return 100 * roc(members, others).tpr_at(FALSE_ALARMS).tpr.value


def losses_of(
    fitted: sw.Fit, net: TabDDPMModel | LatentDiffusion, rows: sw.Table, seed: int
) -> Any:
    """Return the mean loss of each row, under times and noise that are the same for every row."""
    model: Any = fitted.model
    vectors = model.features.encode(fitted.learned(rows), key=seed)
    if isinstance(net, LatentDiffusion):
        denoiser = net.distribution.diffusion
        latent = net.distribution.latent
        vectors = net.rows.encode(vectors)
        vectors[:, :latent] -= net.distribution.shift
        vectors[:, :latent] /= net.distribution.scale
    else:
        denoiser = net
    step = diffusion.descent(denoiser.settings, denoiser.layout, denoiser.label)
    parts = diffusion.rows_of(vectors, denoiser.layout, denoiser.label)
    keys = jax.random.split(jax.random.key(seed), LOSSES)
    # A batch of one row each, so that every row sees the noise that the key gives the first.
    alone = jax.vmap(lambda row, key: step.one(denoiser.net, row, key), in_axes=(0, None))
    return np.mean([np.asarray(jax.jit(alone)(parts, key)) for key in keys], axis=0)


def peers(job: dict[str, Any], table: Prepared) -> dict[str, Any]:
    """Fit a peer in its own environment, and judge its rows."""
    columns = table.schema.columns
    with tempfile.TemporaryDirectory() as folder:
        train, sample = Path(folder) / "train.parquet", Path(folder) / "sample.parquet"
        write(table.train, train)
        told = {
            "peer": job["method"], "train": str(train), "sample": str(sample),
            "categorical": [c.name for c in columns if c.kind in ("categorical", "boolean")],
            "whole": [c.name for c in columns if c.kind == "integer"],
            "bounds": {c.name: [c.low, c.high] for c in columns if c.low is not None},
            "rows": table.train.num_rows, "seed": job["seed"], "threads": job["threads"],
            "settings": job["settings"],
        }  # fmt: skip
        if job["epsilon"] is not None:
            told |= {"epsilon": job["epsilon"], "delta": DELTA, "checkout": job["checkout"]}
            told["domain"] = {column.name: domain_of(column) for column in columns}
        command = [job["peer_python"], str(PEER), json.dumps(told)]
        answer = output_of(command, job["limit_seconds"])
        line: dict[str, Any] = json.loads(answer.splitlines()[-1])
        drawn = sw.read(sample)
        line["scores"] = judged(table, drawn, job["seed"])
    return line | {"raked": False}


def domain_of(column: sw.Column) -> dict[str, Any]:
    """Return what is public of a column: its categories as texts, or bounds and decimals."""
    if column.kind in ("categorical", "boolean"):
        categories = column.categories or (False, True)
        return {"categories": [str(category) for category in categories]}
    return {"low": column.low, "high": column.high, "decimals": column.decimals}


def output_of(command: list[str], limit_seconds: float | None) -> str:
    """Run a command, its own processes too, and return what it prints.

    Ends this run, and says why, where the command fails or takes longer than the limit.
    """
    # In a session of its own, so that what it started ends with it.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = usage.ru_utime + usage.ru_stime
        reason = f"stopped at --limit-seconds {limit_seconds:.0f}, {used:.0f} of the processor"
        raise SystemExit(reason) from None
    if process.returncode:
        raise SystemExit((errors.strip().splitlines() or ["no reason given"])[-1])
    return output


def bound(job: dict[str, Any], table: Prepared) -> dict[str, Any]:
    """Judge rows that no method drew: the floor, the ceiling, or the training rows drawn again."""
    if job["method"] == AGAIN:
        count = table.train.num_rows
        drawn = table.train.take(generator(job["seed"]).integers(0, count, count))
        tables = align({"train": table.train, "drawn": drawn}, table.schema)
        return {"scores": resemblance(table, drawn, tables)}  # a detector knows repeated rows
    if job["method"] == FLOOR:
        return {"scores": judged(table, shuffled(table.train, job["seed"]), job["seed"])}
    return {"scores": judged(table, table.test, job["seed"], teacher="train")}


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Return the line of one run."""
    table = prepare(job["table"], Path(job["data"]), job["rows_asked"])
    load = os.getloadavg()[0]
    source: Callable[[dict[str, Any], Prepared], dict[str, Any]] = ours
    if job["method"] in BOUNDS:
        source = bound
    elif job["peer"]:
        source = peers
    elif job["method"].endswith(APART):
        source = apart
    line = {name: job[name] for name in ("table", "method", "label", "seed", "rows_asked")}
    line |= {
        "train": table.train.num_rows, "test": table.test.num_rows, "rows": table.rows,
        "columns": len(table.schema.names), "classes": table.classes, "peer": job["peer"],
    }  # fmt: skip
    line |= source(job, table)
    return line | {
        "load": [load, os.getloadavg()[0]], "commit": commit(), "machine": machine(),
    }  # fmt: skip


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(run(json.loads(sys.argv[1]))))
