"""Scores that fit no model, and the two papers' means over some of them."""

import numpy as np

from siloweave.errors import InputError
from siloweave.evaluate.measures import DP_TLDM, MEASURES, OF_100, SILOFUSE, Measure
from siloweave.evaluate.scores import Score
from siloweave.evaluate.sides import (
    JACKKNIFE,
    Band,
    Sheet,
    Sides,
    jackknife,
    within,
    without_tenths,
)
from siloweave.tables.aligned import Aligned
from siloweave.tables.keys import Key, fold_in

__all__ = ["add_measures"]

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
