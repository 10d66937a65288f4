"""Tables, models and settings of the benchmark of neural generators; all choices are made here.

Bounds, categories and which columns have gaps are read off the rows used, holdout included, and
taken as public, as in every published figure. Kinds of columns are those of datasets.json, but a
number that is whole in every row is declared so, and identifiers are columns like others.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import sources

import siloweave as sw
from siloweave.tables.keys import generator
from siloweave.tables.schema import describe

SPLIT_SEED = 2026
HOLDOUT = 0.2


@dataclass(frozen=True)
class Source:
    """A table, how many of its rows are used at most, and whether its target is a class."""

    file: str
    most: int | None = None
    seeds: int = 1  # what is asked for


TABLES = {
    "adult": Source("adult", seeds=3),
    "california_housing": Source("california_housing"),
    "abalone": Source("abalone", seeds=3),
    "churn": Source("churn", seeds=3),
    "covertype": Source("covertype", most=50_000),
    "diabetes": Source("diabetes", seeds=3),
    "heloc": Source("heloc"),
    "intrusion_nslkdd_test": Source("intrusion_nslkdd_test"),
}
SHORT = {"housing": "california_housing", "intrusion": "intrusion_nslkdd_test"}

MODELS = (
    *("gaussian_copula", "copula_gan", "ctgan", "ads_gan", "ctab_gan"),
    *("tabddpm", "latent_diff", "tldm", "e2e"),
)

PRIVATE = ("aim", "dp_ctgan", "dp_tabddpm", "dp_tldm")
PRIVATE_TABLES = ("adult", "california_housing")
SEPARATIONS, DELTA = (0.1, 0.15, 0.2), 1e-5
JUDGE = "squared errors, shrunken leaves"
"""The trees behind a utility (decisions 0017 and 0020); other lines have older ones."""

# Arguments of a model's class where they differ from its defaults: per model, and per model and
# table. A figure names the settings that it was made with, so lines of other settings stay.
_LONG = {"steps": 25_000}  # tables of about 40,000 training rows: chosen with --inner on Adult
_FEW = {"epochs": 120}  # of 78 steps each: about as many as 300 epochs of housing
# Of LatentDiff and TLDM on Adult: chosen with --inner, decision 0021.
_LIKELIEST = {"heads": "likeliest"}
# As many steps as fit ten minutes of two cores: tried with --inner on Adult, as TLDM.
_LONGER: dict[str, dict[str, Any]] = {
    "autoencoder": {"steps": 12_000, **_LIKELIEST},
    "diffusion": {"steps": 60_000},
}
# Wider than the preset, less divergence, early decisions count more: alike.
_WIDE = {
    "autoencoder": {"hidden": [512, 512], "divergence": 1e-4, **_LONGER["autoencoder"]},
    "diffusion": {"hidden": [512, 512], "loss_weight": 0.5, **_LONGER["diffusion"]},
}
# A quarter of the authors' channels, so that 9,000 to 12,000 steps of 100 rows fit ten minutes:
# chosen with --inner on diabetes and Adult, where 2,300 steps of 50 rows of theirs were worse.
_CTAB = {"batch": 100, "channels": 16, "rate": 1e-3, "average": 0.99}
_CTAB_EPOCHS = {
    "adult": 31, "covertype": 30, "intrusion_nslkdd_test": 50, "heloc": 144, "churn": 150,
    "abalone": 363, "diabetes": 500,
}  # fmt: skip
SETTINGS: dict[str | tuple[str, str], dict[str, Any]] = {
    **{(model, name): {"diffusion": _LONG}
       for model in ("latent_diff", "e2e")
       for name in ("adult", "covertype")},
    ("latent_diff", "adult"): _LONGER,
    ("tldm", "adult"): _WIDE,
    **{("tabddpm", name): _LONG for name in ("adult", "covertype")},
    **{("ctab_gan", name): {**_CTAB, "epochs": epochs} for name, epochs in _CTAB_EPOCHS.items()},
    **{(model, "adult"): _FEW for model in ("ctgan", "copula_gan")},
}  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """A table that is ready to be fitted.

    Attributes:
        schema: Of all rows used.
        train: Rows that a model sees.
        holdout: Rows that it does not see.
        target: The column of the table's task, and whether it holds classes.
        share: Rows used, of all.
    """

    schema: sw.Schema
    train: sw.Table
    holdout: sw.Table
    target: str
    classes: bool
    share: tuple[int, int]


def arguments(model: str, table: str, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a model's class on a table: shared, then the table's, then those given."""
    return {**SETTINGS.get(model, {}), **SETTINGS.get((model, table), {}), **given}


def models() -> list[str]:
    """Models of the benchmark, and what else the package has."""
    from siloweave.methods.registry import METHODS

    central = [
        name
        for name, kind in METHODS.items()
        if kind.method.split == "central" and kind().info.guarantee == "none"
    ]
    return [*MODELS, *(name for name in central if name not in MODELS)]


def kind_of(model: str) -> Any:
    """The class of a model; None if the package has none of that name."""
    from siloweave.methods.registry import METHODS

    return METHODS.get(model)


def told(job: dict[str, Any], classes: str | None) -> dict[str, Any]:
    """Settings of a job's model; its target is the column of classes if it takes one."""
    given = arguments(job["model"], job["table"], job["settings"])
    kind = kind_of(job["model"])
    if classes is not None and "target" in {one.name for one in fields(kind)}:
        given.setdefault("target", classes)
    return given


def settled(job: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether a line was made with the settings that its job has now, and rows were raked."""
    kind = kind_of(job["model"])
    if kind.method.family == "graphical model":  # whose lines state a part of the settings
        return True
    if not row.get("raked"):
        return False
    classes = row.get("given", {}).get("target")
    chosen = comparable(kind(**told(job, classes)).settings(), row["rows"])
    made = comparable(row["settings"], row["rows"])
    return all(made.get(name) == value for name, value in chosen.items())


OF_THE_NOISY_COUNT = ("noise_multiplier", "rate", "levels")
"""Settings of a private line that its budget and its noisy count of rows decide."""


def comparable(settings: dict[str, Any], rows: int) -> dict[str, Any]:
    """Settings of a line of so many rows, with what was the only way when older ones were made.

    Diffusions of latents have no choices, so how these are learned says nothing of their lines.
    What follows from the noisy count of rows of a private line says nothing of it either.
    """
    found = renamed(settings)
    found = {n: value for n, value in found.items() if n not in OF_THE_NOISY_COUNT}
    if "family" in found:
        found = {"families": {}, "scores": "mean", **found}
    if "timesteps" in found:
        found = taken({"choices": "bound", "eta": 0.0, **found}, rows)
    if "hidden" in found.get("autoencoder", {}):
        found["autoencoder"] = {"heads": "draw", **found["autoencoder"]}
    if "diffusion" in found:
        inner = {"eta": 0.0, **found["diffusion"]}
        inner = taken(inner | ({"passes": None} if found.get("joint") else {}), rows)
        found["diffusion"] = {name: inner[name] for name in inner if name != "choices"}
    return found


RENAMED = {
    "reach": "clip_range",
    "focus": "loss_weight",
    "surprise": "cross-entropy",
    "bins": "finest_bins",
}
"""Names and values of settings in older lines, and what they are called now."""


def renamed(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a line with today's names, those of the settings within too."""

    def today(value: Any) -> Any:
        if isinstance(value, dict):
            return renamed(value)
        return RENAMED.get(value, value) if isinstance(value, str) else value

    return {RENAMED.get(name, name): today(value) for name, value in settings.items()}


def taken(settings: dict[str, Any], rows: int) -> dict[str, Any]:
    """Settings of a diffusion with the steps that it took, instead of a bound on passes."""
    from siloweave.models.settings import DiffusionSettings

    bounds = ("passes", "passes_from")
    bound = {n: settings[n] for n in ("steps", "batch", *bounds) if n in settings}
    steps = DiffusionSettings(**{"passes": None, **bound}).taken(rows)
    return {**{n: value for n, value in settings.items() if n not in bounds}, "steps": steps}


def column(table: sw.Table, name: str, numeric: bool) -> sw.Column:
    """What is declared of one column; numbers of one value are a category."""
    values = table.values(name)[~table.missing(name)]
    if not numeric or len(np.unique(values)) < 2:
        return describe(table, name, kind="categorical", max_categories=10**6)
    whole = np.asarray(values, dtype=float)
    return describe(table, name, kind="integer" if (whole == whole.round()).all() else "continuous")


def prepare(name: str, data: Path, rows: int | None = None, inner: bool = False) -> Prepared:
    """Read a table, take a sample of its rows if it is large, and split off a fifth.

    The order of the rows is drawn once (SPLIT_SEED), so every model and seed sees the same rows.

    Args:
        name: One of TABLES.
        data: The folder with the Parquet files (see sources.py).
        rows: Rows used at most, for trials.
        inner: Whether the training rows are split again, and the holdout is not looked at:
            settings are chosen so.
    """
    source = TABLES[name]
    facts = sources.facts(source.file)
    table = sources.read(source.file, data)
    limits = [limit for limit in (source.most, rows, table.num_rows) if limit is not None]
    order = generator(SPLIT_SEED).permutation(table.num_rows)[: min(limits)]
    held = round(HOLDOUT * len(order))
    if inner:
        order = order[held:]
        held = round(HOLDOUT * len(order))
    used = table.take(np.sort(order))
    numbers = {n for n in table.names if table.kind(n) in ("numbers", "whole numbers")} - set(
        facts["categorical"]
    )
    schema = sw.Schema(tuple(column(used, n, n in numbers) for n in table.names)).with_fallbacks()
    return Prepared(
        schema,
        table.take(np.sort(order[held:])),
        table.take(np.sort(order[:held])),
        facts["target"],
        facts["task"] == "classification",
        (len(order), table.num_rows),
    )
