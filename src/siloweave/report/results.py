"""Tables and lines of scores and of attacks, as `str()`, the terminal and the pages show them.

Scores and risks are taken as `to_dict` gives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from siloweave.report import words
from siloweave.report.text_table import Strip, TextRow, TextTable, text_table

# Scores


def score_table(parts: Sequence[Mapping[str, Any]]) -> TextTable:
    """Return scores beside their floors and ceilings, by family; `parts` are those of `Scores`."""
    rows = []
    for part in parts:
        strip = None
        # Where a shuffled table does as well as real rows, there is no way from floor to ceiling.
        if words.has_room(part):
            strip = Strip(
                part["value"], part["interval"], part["floor"], part["ceiling"]
            )
        shown = ("value", "floor", "ceiling")
        decimals = _decimals([part[name] for name in shown])
        cells = (
            part["name"],
            *(_number(part[name], decimals) for name in shown),
            part["better"],
            part["unit"],
            _interval(part["interval"], decimals),
        )
        row = TextRow(
            cells,
            group=part["family"],
            note=part["note"],
            source=part["source"],
            strip=strip,
        )
        rows.append(row)
    heads = (
        *("measure", ">value", ">floor", ">ceiling", "better", "unit"),
        ">95% interval or spread",
    )
    return text_table(heads, rows, spare=("better", "unit", "95% interval or spread"))


def score_lines(scores: Mapping[str, Any]) -> Iterator[str]:
    """Yield what stands below a table of scores: what is missing, and how it was made."""
    for gap in scores["not_measured"]:
        yield f"not measured: {gap['name']}: {gap['reason']}"
    settings = scores["settings"]
    counts = [f"{count:,} {name}" for name, count in settings["rows"].items()]
    yield (
        f"rows: {', '.join(counts)}; at most {settings['max_rows']:,} in each fit; "
        f"seed {settings['seed']}"
    )
    yield f"ceiling: {settings['ceiling']}"
    yield f"floor: {settings['floor']}"
    if settings["left_out"]:
        yield f"ids and texts, not compared: {', '.join(settings['left_out'])}"


def _decimals(values: Sequence[float | None]) -> int:
    """Return with how many decimals the numbers of one measure are written, all alike."""
    sizes = [abs(value) for value in values if value]
    # One decimal is enough for percentages, unless it would make a small number 0.
    is_large = max(sizes, default=0.0) >= 10 and min(sizes) >= 0.1
    return 1 if is_large else 4


def _number(value: float | None, decimals: int) -> str:
    """Write a number; a dash if it is missing."""
    return "–" if value is None else f"{value:.{decimals}f}"


def _interval(ends: Sequence[float] | None, decimals: int) -> str:
    """Write an interval; nothing if it is missing."""
    if ends is None:
        return ""
    low, high = ends
    return f"{_number(low, decimals)} to {_number(high, decimals)}"


# Attacks


def risk_table(risks: Mapping[str, Any]) -> TextTable:
    """Return the attacks, those first that surely found something."""
    rows = []
    for part in ranked(risks["parts"]):
        cells = (
            f"{attack_name(part)}: {part['variant']}",
            f"{part['risk']:.3f}",
            _shares(part),
            f"{part['train']['value']:.3f}",
            f"{part['control']['value']:.3f}",
            f"{part['baseline']['value']:.3f}",
            f"{part['attacks']:,}",
        )
        strip = Strip(part["risk"], (part["low"], part["high"]))
        rows.append(TextRow(cells, note=part["note"], strip=strip))
    spare = ("train", "control", "guess", "tries")
    heads = (
        *("attack", ">risk", f">{risks['confidence']:.0%} interval"),
        *(f">{name}" for name in spare),
    )
    return text_table(heads, rows, spare=spare)


def ranked(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return attacks by the lower ends of their intervals, the highest first."""
    return sorted(parts, key=lambda part: (-part["low"], -part["risk"]))


def attack_name(part: Mapping[str, Any]) -> str:
    """Return the name of an attack in words."""
    return str(part["attack"]).replace("_", " ")


def membership_table(risks: Mapping[str, Any]) -> TextTable:
    """Return the areas of membership attacks' curves, and points on these; there is an attack."""
    memberships = risks["memberships"]
    rates = [point["asked"] for point in memberships[0]["at"]]
    spare = [
        *(f"found at {100 * rate:g}% false" for rate in rates),
        "risk",
        "guesses reach",
        f"test {unit_of(risks)}",
        "above all",
    ]
    heads = ["membership", ">AUC", f">{risks['confidence']:.0%} interval"]
    heads += [f">{name}" for name in spare]
    rows = [_membership_cells(membership) for membership in memberships]
    return text_table(heads, rows, spare=spare)


def _membership_cells(membership: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line of the table of membership attacks."""
    auc = membership["roc"]["auc"]
    rates = [point["tpr"] for point in membership["at"]]
    return (
        membership["attack"],
        f"{auc['value']:.3f}",
        _shares(auc),
        *(f"{rate['value']:.3f} ({_shares(rate)})" for rate in rates),
        f"{membership['threshold']['risk']:.3f}",
        f"{membership['noise']:.3f}",
        f"{membership['threshold']['test_sets']:,}",
        f"{membership['above_all']['count']:,}",
    )


def copies_table(risks: Mapping[str, Any]) -> TextTable:
    """Return how many rows the synthetic table holds exactly; the worst record was asked for."""
    rows = []
    for copies in risks["worst"]["copies"]:
        kind = "rows that occur once" if copies["rows"] == "once" else "all rows"
        train = _count(copies["train"])
        control = _count(copies["control"])
        rows.append((kind, train, control, f"{copies['p_value']:.2g}"))
    unit = unit_of(risks)
    heads = ("exact copies of", f">training {unit}", f">control {unit}", ">chance")
    return text_table(heads, rows)


def risk_tables(risks: Mapping[str, Any]) -> list[TextTable]:
    """Return the tables of attacks that have lines, in the order in which they are printed."""
    tables = [risk_table(risks)]
    if risks["memberships"]:
        tables.append(membership_table(risks))
    if risks["worst"] and risks["worst"]["copies"]:
        tables.append(copies_table(risks))
    return tables


def risk_lines(risks: Mapping[str, Any]) -> Iterator[str]:
    """Yield what stands below the tables of attacks: single records, and how to read intervals."""
    worst = risks["worst"]
    if worst:
        verdict = "given away" if worst["caught"] else "no more than chance"
        chance = f"p = {worst['p_value']:.2g} over {worst['measures']} measures, by {worst['by']}"
        yield f"worst record: {verdict} ({chance})"
    closest = risks["closest"]
    if closest:
        rate = closest["closer_to_train"]
        interval = f"{rate['low']:.1%} to {rate['high']:.1%}"
        yield (
            f"distance to closest record: median {closest['median_to_train']:.4f} to training "
            f"rows, {closest['median_to_control']:.4f} to control rows; {rate['value']:.1%} "
            f"({interval}) are closer to training rows, 50% if nothing is copied"
        )
    for name, reason in risks["not_measured"].items():
        yield f"not measured: {name}: {reason}"

    # The sentence above the tables says how many are above 0 by chance, if any is.
    if not words.hits_of(risks):
        # An interval lies above the truth in half of the cases in which it misses it.
        count = len(risks["parts"])
        false_alarms = count * (1 - risks["confidence"]) / 2
        yield (
            f"Each interval is a {risks['confidence']:.0%} one on its own: if nothing leaked, "
            f"about {false_alarms:.1f} of these {count} would still be wholly above 0."
        )
    yield from risks["notes"]


def unit_of(risks: Mapping[str, Any]) -> str:
    """Return what is attacked, in words: rows or persons."""
    return "rows" if risks["unit"] == "row" else "persons"


def _shares(rate: Mapping[str, Any]) -> str:
    """Write the interval of a share."""
    return f"{rate['low']:.3f} to {rate['high']:.3f}"


def _count(rate: Mapping[str, Any]) -> str:
    """Write how many of how many a share is of."""
    return f"{rate['successes']:,.0f} of {rate['trials']:,.0f}"
