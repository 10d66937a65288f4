"""The list of measures that need no model of their own, each with what a reader must know.

Scores that fit no model, and the two papers' means over some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from siloweave.errors import InputError
from siloweave.evaluate import distances, similarity
from siloweave.evaluate.scores import (
    JACKKNIFE,
    Band,
    Better,
    Score,
    Sheet,
    Sides,
    jackknife,
    within,
    without_tenths,
)
from siloweave.tables.aligned import Aligned
from siloweave.tables.keys import Key, fold_in

SILOFUSE = "SiloFuse, ICDE 2024"
DP_TLDM = "DP-TLDM, 2024"
OF_100 = "of 100"


@dataclass(frozen=True)
class Measure:
    """One measure: what it is called, how it is computed and how it is read.

    Attributes:
        compute: From the tables, the names of the real and the synthetic one, and a key.
        note: From the tables and both names, where there is something to say.
        most: The largest possible value; infinite where there is none.
        spread: Whether it is quick enough to be computed again without a tenth of the rows.
    """

    name: str
    family: str
    compute: Callable[[Aligned, str, str, Key], float]
    better: Better
    unit: str
    source: str
    most: float
    note: Callable[[Aligned, str, str], str] = lambda tables, real, synthetic: ""
    spread: bool = True


def _part(name: str, compute: Callable[[Aligned, str, str], float], source: str) -> Measure:
    return Measure(
        name, "resemblance", lambda t, a, b, key: 100 * compute(t, a, b), "higher", OF_100, source,
        100.0,
    )  # fmt: skip


def _tvd(ways: int) -> Measure:
    return Measure(
        f"{ways}-way TVD", "marginals", lambda t, a, b, key: distances.marginal_tvd(
            t, a, b, ways, key=key
        ), "lower", "0 to 1", "VertiMRF, 2024", 1.0, spread=False,
    )  # fmt: skip


def _workload(reading: str) -> Measure:
    def compute(tables: Aligned, real: str, synthetic: str, key: Key) -> float:
        found = distances.marginal_error(tables, real, synthetic, key=key)
        return found.closure if reading == "closure" else found.queries

    return Measure(
        f"workload error ({reading})", "marginals", compute, "lower", "0 to 2", "FLAIM, KDD 2024",
        2.0, spread=False,
    )  # fmt: skip


def _trends(name: str, strong: bool) -> Measure:
    def compute(tables: Aligned, real: str, synthetic: str, key: Key) -> float:
        return similarity.column_pair_trends(tables, real, synthetic, strong=strong).percent

    def note(tables: Aligned, real: str, synthetic: str) -> str:
        found = similarity.column_pair_trends(tables, real, synthetic, strong=strong)
        which = " that go together strongly in the real table" if strong else ""
        return f"over {found.pairs} pairs of columns{which}"

    return Measure(
        name, "quoted percentages", compute, "higher", "%", "SDMetrics 0.32, 2026", 100.0, note
    )


def _unscaled(tables: Aligned, real: str, synthetic: str) -> str:
    left_out = distances.average_wasserstein(tables, real, synthetic).left_out
    return f"without columns of one real value: {', '.join(left_out)}" if left_out else ""


def _without_categories(tables: Aligned, real: str, synthetic: str) -> str:
    return "over numeric columns only; categories have no order" if tables.categorical else ""


# In the order in which they are shown.
MEASURES = (
    _part("column similarity", similarity.column_similarity, f"{SILOFUSE}; {DP_TLDM}"),
    _part("correlation similarity", similarity.correlation_similarity, f"{SILOFUSE}; {DP_TLDM}"),
    _part("statistical similarity", similarity.statistical_similarity, DP_TLDM),
    _part(
        "Jensen-Shannon similarity",
        similarity.jensen_shannon_similarity,
        f"{SILOFUSE}; {DP_TLDM}",
    ),
    Measure(
        "Kolmogorov-Smirnov similarity",
        "resemblance",
        lambda t, a, b, key: 100 * similarity.kolmogorov_smirnov_similarity(t, a, b),
        "higher",
        OF_100,
        f"{SILOFUSE}; {DP_TLDM}",
        100.0,
        _without_categories,
    ),
    Measure(
        "average JSD",
        "distances",
        lambda t, a, b, key: distances.average_jsd(t, a, b),
        "lower",
        "0 to 1",
        "Fed-TGAN, 2021",
        1.0,
        lambda t, a, b: "over categorical columns",
    ),
    Measure(
        "average Wasserstein distance",
        "distances",
        lambda t, a, b, key: distances.average_wasserstein(t, a, b).mean,
        "lower",
        "real range",
        "Fed-TGAN, 2021",
        float("inf"),
        _unscaled,
    ),
    *map(_tvd, (3, 4, 5)),
    *map(_workload, ("closure", "queries")),
    Measure(
        "column shapes",
        "quoted percentages",
        lambda t, a, b, key: similarity.column_shapes(t, a, b),
        "higher",
        "%",
        "SDMetrics 0.32, 2026",
        100.0,
    ),
    _trends("column pair trends", strong=True),
    _trends("column pair trends (all pairs)", strong=False),
)


SHARED = (
    *("column similarity", "correlation similarity", "Jensen-Shannon similarity"),
    "Kolmogorov-Smirnov similarity",
)
WHOLES = {
    "resemblance (SiloFuse)": (SILOFUSE, (*SHARED, "propensity")),
    "resemblance (DP-TLDM)": (DP_TLDM, (*SHARED, "statistical similarity")),
}
Replicates = dict[str, list[float]]


def add_measures(sheet: Sheet, sides: Sides, key: Key) -> None:
    """Add every measure that fits no model, then the means; propensity must be there before."""
    tenths = without_tenths(sides, fold_in(key, "jackknife"))
    draws = fold_in(key, "marginals")
    without: Replicates = {}
    for measure in MEASURES:
        found = _replicates(measure, sides, tenths, draws)
        if _add(sheet, sides, measure, found, draws):
            without[measure.name] = found
    for name, (source, parts) in WHOLES.items():
        _add_mean(sheet, name, source, parts, without)


def _add(sheet: Sheet, sides: Sides, measure: Measure, found: list[float], draws: Key) -> bool:
    return sheet.add(
        measure.name,
        measure.family,
        sides,
        lambda a, b: measure.compute(sides.tables, a, b, draws),
        measure.better,
        measure.unit,
        measure.source,
        note=lambda: measure.note(sides.tables, *sides.value),
        interval=lambda value: jackknife(value, found, measure.most),
    )


def _replicates(measure: Measure, sides: Sides, tenths: list[Aligned], draws: Key) -> list[float]:
    """The value without each tenth of the rows; empty where that is slow or not defined."""
    if not measure.spread:
        return []
    try:
        return [measure.compute(less, *sides.value, draws) for less in tenths]
    except InputError:
        return []


def _add_mean(
    sheet: Sheet, name: str, source: str, names: tuple[str, ...], without: Replicates
) -> None:
    """Add a mean of parts; one that lacks a part says so."""
    known = {part.name: part for part in sheet.parts}
    there = [known[part] for part in names if part in known]
    lacking = [part for part in names if part not in known]
    note = f"the mean of {', '.join(part.name for part in there)}"
    if lacking:
        note += f"; NOT the whole: {', '.join(lacking)} could not be measured"
    value = float(np.mean([part.value for part in there]))
    band = _mean_band(value, there, without)
    ceiling, floor = (
        _mean_of([getattr(part, side) for part in there]) for side in ("ceiling", "floor")
    )
    sheet.parts.append(
        Score(
            name, "resemblance", value, ceiling, floor, "higher", OF_100, source, note,
            band, JACKKNIFE if band else "",
        )
    )  # fmt: skip


def _mean_band(value: float, parts: list[Score], without: Replicates) -> Band:
    """Interval of a mean: the quick parts together, and propensity, whose rows are others."""
    quick = [without[part.name] for part in parts if part.name in without]
    rest = [part for part in parts if part.name not in without]
    if not quick or not all(quick) or any(part.interval is None for part in rest):
        return None
    joint = jackknife(50.0, np.mean(quick, axis=0).tolist(), 100.0)
    halves = [0.0 if joint is None else (joint[1] - joint[0]) / 2 * len(quick)]
    halves += [max(abs(end - part.value) for end in part.interval or ()) for part in rest]
    return within(value, float(np.hypot.reduce(halves)) / len(parts), 100.0)


def _mean_of(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None
