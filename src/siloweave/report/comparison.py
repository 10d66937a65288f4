"""Scores and attacks in, one self-contained HTML page out.

Takes plain values, as `Scores.to_dict` and `Risks.to_dict` give them. All of these numbers come
from real rows and nobody paid for them, down to where plots are cut into cells, so the page is the
owner's, and there is no other copy.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from itertools import groupby, pairwise
from typing import Any

from siloweave.errors import InputError
from siloweave.report import comparison_plots as plots
from siloweave.report import pictures
from siloweave.report.page import template_of
from siloweave.report.record import Association, Marginal

__all__ = ["chart", "pairs_chart", "render_comparison"]

COLUMNS = 80
"""Columns drawn one by one."""
_NO_ROOM = 0.02
"""A ceiling no further above its floor than this share of the larger leaves no room between."""


def render_comparison(
    scores: Mapping[str, Any] | None = None,
    risks: Mapping[str, Any] | None = None,
    *,
    title: str,
    version: str,
    created: datetime | None = None,
) -> str:
    """Make the page.

    Args:
        scores: What `Scores.to_dict` gives, or None.
        risks: What `Risks.to_dict` gives, or None.
        title: The page's heading.
        version: Of siloweave.
        created: When; now if None.

    Returns:
        An HTML page that needs no network.

    Raises:
        InputError: There is nothing to show.
    """
    if scores is None and risks is None:
        raise InputError("there are no scores and no risks to show; give at least one")
    folder = resources.files("siloweave.report")
    when = datetime.now(UTC) if created is None else created
    page: str = template_of(folder.joinpath("comparison.html").read_text("utf-8")).render(
        title=title,
        version=version,
        created=when.isoformat(timespec="seconds"),
        css=folder.joinpath("style.css").read_text("utf-8"),
        scores=_scores(scores) if scores else None,
        risks=_risks(risks) if risks else None,
    )
    return page


def _scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    telling = [(name, value) for name, value in scores["telling"][:12]]
    title = "Columns that give synthetic rows away"
    return {
        "families": [
            {"name": family, "parts": [_part(part) for part in parts]}
            for family, parts in groupby(scores["parts"], key=lambda part: part["family"])
        ],
        "charts": [chart(look) for look in scores["columns"][:COLUMNS]],
        "more_columns": max(len(scores["columns"]) - COLUMNS, 0),
        "pairs": pairs_chart(scores["associations"]),
        "settings": scores["settings"],
        "not_measured": scores["not_measured"],
        "telling": plots.bars(telling, title=title) if telling else "",
    }


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A score with its strip, where there is room between floor and ceiling."""
    value, ceiling, floor = part["value"], part["ceiling"], part["floor"]
    drawn, way = "", None
    if ceiling is not None and floor is not None:
        room = (ceiling - floor) * (1 if part["better"] == "higher" else -1)
        if room > _NO_ROOM * max(abs(ceiling), abs(floor)):
            way = (value - floor) / (ceiling - floor)
            drawn = plots.strip(
                value, floor, ceiling, part["interval"], name=part["name"],
                ends=("floor", "ceiling"),
            )  # fmt: skip
    return {**part, "strip": drawn, "way": way}


def chart(look: Mapping[str, Any]) -> dict[str, Any]:
    """How one column spreads in both tables, drawn."""
    synthetic, real = (_marginal(look, side) for side in ("synthetic", "real"))
    return {
        "column": look["name"],
        "kind": look["kind"],
        "distance": look["distance"],
        "svg": pictures.distribution(synthetic, real),
    }


def _marginal(look: Mapping[str, Any], side: str) -> Marginal:
    edges, gone = look["edges"], look["missing"][side == "synthetic"]
    if look["kind"] == "numeric":
        labels = [f"{_number(a)} to {_number(b)}" for a, b in pairwise(edges)]
    else:
        labels = list(look["cells"])
    shares, missing = list(look[side]), any(share > 0 for share in look["missing"])
    if missing:
        labels, shares = [*labels, "missing"], [*shares, gone]
    return Marginal(
        column=look["name"],
        kind=look["kind"],
        labels=tuple(labels),
        proportions=tuple(shares),
        ordered=look["kind"] == "numeric",
        missing=missing,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def pairs_chart(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """How columns go together in both tables, drawn; None for a single column."""
    if len(found["names"]) < 2:
        return None
    ours, theirs = (
        Association(
            names=tuple(found["names"]),
            values=tuple(tuple(abs(v) for v in row) for row in found[side]),
            measure="strength of association",
        )
        for side in ("synthetic", "real")
    )
    return {
        "svg": pictures.heat_maps(ours, theirs),
        "list": pictures.strongest_pairs(ours, theirs),
    }


def _risks(risks: Mapping[str, Any]) -> dict[str, Any]:
    parts = [{**part, "strip": _risk_strip(part)} for part in risks["parts"]]
    curves = {m["attack"]: (m["roc"]["fpr"], m["roc"]["tpr"]) for m in risks["memberships"]}
    closest = risks["closest"]
    return {
        **risks,
        "parts": parts,
        "highest": max(parts, key=lambda part: part["risk"]) if parts else None,
        "curves": plots.receiver_curves(curves) if curves else "",
        "distances": _distances(closest) if closest else "",
    }


def _risk_strip(part: Mapping[str, Any]) -> str:
    return plots.strip(
        part["risk"], 0.0, 1.0, (part["low"], part["high"]),
        name=f"{part['attack']} ({part['variant']})", ends=("none", "all"),
    )  # fmt: skip


def _distances(closest: Mapping[str, Any]) -> str:
    train, control = closest["to_train"], closest["to_control"]
    counts: Sequence[int] = control["counts"]
    return plots.distances(train["edges"], train["counts"], counts)
