"""The report's pictures of cost: the ledger, bytes, time, and what ε means to an attacker.

Each function takes plain records and gives one inline SVG with a title and a description.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

from siloweave.report import svg, words
from siloweave.report.record import LedgerRow, PartyCost, Phase

WIDTH = 924.0
MANY = 8
"""More ledgers than this are drawn as an envelope."""
BARS = 20
"""More parties than this are drawn as a sorted profile."""


def power_curve(epsilon: float, delta: float) -> str:
    """What ε and δ leave to the best attacker: true positives against false alarms.

    Args:
        epsilon: ε, may be infinite.
        delta: δ.

    Returns:
        SVG, 240 by 226 pixels.
    """
    side, left, top = 184.0, 34.0, 10.0
    grid = [i / 200 for i in range(201)]
    curve = [(a, words.attacker_power(a, epsilon, delta)) for a in grid]
    points = [(left + side * a, top + side * (1 - power)) for a, power in curve]
    corner, origin = (left + side, top), (left, top + side)
    body = svg.rect(left, top, side, side, "backdrop")
    body += svg.path([origin, *points, corner, origin], "reach", close=True)
    body += svg.line(*origin, *corner, "chance") + svg.path([origin, *points], "bound")
    for value in (0.0, 0.5, 1.0):
        at = f"{100 * value:.0f}%"
        body += svg.text(left + side * value, top + side + 14, at, "ax", "middle")
        body += svg.text(left - 5, top + side * (1 - value) + 4, at, "ax", "end")
    body += svg.text(left + side / 2, top + side + 28, "false alarms", "ax", "middle")
    body += svg.text(left + 8, top + 16, "found", "ax")
    body += svg.text(left + side - 8, top + side - 10, "guessing", "ax", "end")
    best = words.attacker_power(0.01, epsilon, delta)
    return svg.figure(
        240,
        226,
        body,
        title="Best possible attack",
        desc=f"With ε = {words.epsilon(epsilon)}, a test that raises 1% false alarms finds at "
        f"most {words.percent(best)} of the rows it looks for.",
    )


def by_party(ledgers: Sequence[LedgerRow]) -> dict[str, list[LedgerRow]]:
    """Ledger rows of each party, in order of index."""
    found: dict[str, list[LedgerRow]] = {}
    for row in ledgers:
        found.setdefault(row.party, []).append(row)
    return {name: sorted(rows, key=lambda row: row.index) for name, rows in found.items()}


def staircase(ledgers: Sequence[LedgerRow], allowed: float) -> str:
    """Cumulative ε, release by release.

    Up to eight different curves are drawn one by one (equal ones share a line); more become the
    highest curve over the band of the middle 80% of parties.

    Args:
        ledgers: All releases.
        allowed: The budget's ε.

    Returns:
        SVG, 924 pixels wide.
    """
    parties = by_party(ledgers)
    curves: dict[tuple[float, ...], list[str]] = {}
    for name, rows in parties.items():
        curves.setdefault(tuple(round(r.cumulative_epsilon, 9) for r in rows), []).append(name)
    finite = [e for curve in curves for e in curve if math.isfinite(e)]
    high = max([*finite, allowed if math.isfinite(allowed) else 0.0, 1e-6])
    longest = max((len(curve) for curve in curves), default=1)
    axes = _Axes(longest, high * 1.09)
    body = axes.draw("releases of one party, in order")
    if math.isfinite(allowed):
        y = axes.y(allowed)
        body += svg.line(axes.left, y, axes.right, y, "limit")
        body += svg.text(axes.left + 6, y - 5, f"allowed ε = {allowed:g}", "limit-text")
    if len(curves) > MANY:
        body += _envelope(list(curves), [len(names) for names in curves.values()], axes)
    else:
        body += _curves(curves, parties, axes)
    top = max((curve[-1] for curve in curves if curve), default=0.0)
    return svg.figure(
        WIDTH,
        270,
        body,
        title="Cumulative ε by release",
        desc=f"{len(parties)} parties, up to {longest} releases each; the highest ends at "
        f"ε = {words.epsilon(top)} of {words.epsilon(allowed)} allowed.",
    )


class _Axes:
    """Frame of the staircase: release number across, ε up."""

    left, right, top, bottom = 44.0, 760.0, 12.0, 228.0

    def __init__(self, longest: int, high: float) -> None:
        self.longest, self.high = longest, high
        self.marks = [mark for mark in svg.ticks(high, 5) if mark <= high]

    def x(self, position: float) -> float:
        return self.left + (self.right - self.left) * position / self.longest

    def y(self, value: float) -> float:
        share = min(value / self.high, 1.0)
        return self.bottom - (self.bottom - self.top) * share

    def draw(self, label: str) -> str:
        body = "".join(
            svg.line(self.left, self.y(mark), self.right, self.y(mark), "grid")
            + svg.text(self.left - 7, self.y(mark) + 4, f"{mark:g}", "ax", "end")
            for mark in self.marks
        )
        for mark in svg.ticks(self.longest, 6):
            if 0 < mark <= self.longest and mark == int(mark):
                body += svg.text(self.x(mark), self.bottom + 16, f"{mark:g}", "ax", "middle")
        middle = (self.left + self.right) / 2
        return body + svg.text(middle, self.bottom + 34, label, "ax", "middle")

    def steps(self, curve: Sequence[float]) -> list[tuple[float, float]]:
        points, last = [(self.x(0), self.y(0))], 0.0
        for position, value in enumerate(curve):
            points += [(self.x(position), self.y(last)), (self.x(position), self.y(value))]
            last = value
        return [*points, (self.x(len(curve)), self.y(last))]


def _curves(
    curves: dict[tuple[float, ...], list[str]], parties: dict[str, list[LedgerRow]], axes: _Axes
) -> str:
    """One staircase per distinct curve; the highest has a dot per release, by mechanism."""
    kinds = mechanisms([row for rows in parties.values() for row in rows])
    body, ends = "", []
    dearest = max(curves, key=lambda curve: curve[-1:])
    for curve, names in curves.items():
        body += svg.path(axes.steps(curve), "curve p0" if curve == dearest else "curve faint")
        together = ", ".join(names[:3])
        crowd = len(names) > 3 or (len(names) > 1 and len(together) > 18)
        who = f"{words.count(len(names))} parties" if crowd else together
        ends.append((axes.y(curve[-1] if curve else 0.0), who, curve[-1] if curve else 0.0))
    for position, row in enumerate(parties[curves[dearest][0]][:400]):
        x, y = axes.x(position + 0.5), axes.y(row.cumulative_epsilon)
        kind = min(kinds.index(row.mechanism), 5)
        body += f'<circle cx="{svg.num(x)}" cy="{svg.num(y)}" r="3" class="m{kind}"/>'
    ends.sort()
    floor = axes.top - 4
    for y, who, value in ends:
        floor = max(y + 4, floor + 14)
        label = f"ε = {words.epsilon(value)}: {words.shorten(who, 16)}"
        body += svg.text(axes.right + 8, floor, label, "lab")
    return body


def _envelope(curves: list[tuple[float, ...]], weights: list[int], axes: _Axes) -> str:
    """Highest curve over the band between the 10th and 90th percentile of parties."""
    low: list[float] = []
    middle: list[float] = []
    high: list[float] = []
    most: list[float] = []
    for position in range(axes.longest):
        held = [(curve[min(position, len(curve) - 1)] if curve else 0.0) for curve in curves]
        pairs = sorted(zip(held, weights, strict=True))
        reach = list(accumulate(weight for _, weight in pairs))
        for share, into in ((0.1, low), (0.5, middle), (0.9, high), (1.0, most)):
            spot = next(i for i, mass in enumerate(reach) if mass >= share * reach[-1])
            into.append(pairs[spot][0])
    upper, lower = axes.steps(high), axes.steps(low)
    body = svg.path([*upper, *reversed(lower)], "band", close=True)
    body += svg.path(axes.steps(middle), "curve faint") + svg.path(axes.steps(most), "curve p0")
    ends = sorted(
        [
            (axes.y(most[-1]), f"{words.epsilon(most[-1])}  highest party"),
            (axes.y(middle[-1]), f"{words.epsilon(middle[-1])}  median party"),
        ]
    )
    floor = axes.top - 4
    for y, label in ends:
        floor = max(y + 4, floor + 14)
        body += svg.text(axes.right + 8, floor, label, "lab")
    return body + svg.text(axes.right + 8, floor + 14, "band: middle 80%", "ax")


def mechanisms(ledgers: Sequence[LedgerRow]) -> list[str]:
    """Names of the mechanisms used, the most frequent first."""
    seen: dict[str, int] = {}
    for row in ledgers:
        seen[row.mechanism] = seen.get(row.mechanism, 0) + 1
    return sorted(seen, key=lambda name: (-seen[name], name))


def party_bytes(parties: Sequence[PartyCost]) -> str:
    """Bytes sent and received: a bar pair per party, or all parties sorted when there are many.

    Args:
        parties: Costs in roster order.

    Returns:
        SVG, 924 pixels wide.
    """
    most = max([max(p.bytes_sent, p.bytes_received) for p in parties], default=0) or 1
    if len(parties) > BARS:
        body, height = _profile(parties, most), 210.0
    else:
        body, height = _byte_bars(parties, most), 28.0 * len(parties) + 4
    total = sum(p.bytes_sent + p.bytes_received for p in parties)
    return svg.figure(
        WIDTH,
        height,
        body,
        title="Bytes on the wire by party",
        desc=f"{len(parties)} parties, {words.size(total)} sent and received in total.",
    )


def _byte_bars(parties: Sequence[PartyCost], most: int) -> str:
    body, left, span = "", 150.0, 660.0
    for number, party in enumerate(parties):
        y = 28.0 * number + 2
        body += svg.text(left - 10, y + 14, words.shorten(party.name, 20), "lab", "end")
        for offset, amount, kind in (
            (0.0, party.bytes_sent, "sent"),
            (11.0, party.bytes_received, "received"),
        ):
            length = max(span * amount / most, 1.0)
            tip = f"{party.name} {kind} {words.size(amount)}"
            body += svg.rect(left, y + offset, length, 9, kind, tip=tip, rx=2)
            body += svg.text(left + length + 6, y + offset + 8.5, words.size(amount), "ax")
    return body


def _profile(parties: Sequence[PartyCost], most: int) -> str:
    left, right, top, bottom = 60.0, 760.0, 12.0, 176.0
    body = ""
    for share in (0.0, 0.5, 1.0):
        y = bottom - (bottom - top) * share
        body += svg.line(left, y, right, y, "grid")
        body += svg.text(left - 6, y + 4, words.size(most * share), "ax", "end")
    for kind in ("received", "sent"):
        amounts = sorted((getattr(p, f"bytes_{kind}") for p in parties), reverse=True)
        last = len(amounts) - 1
        picks = sorted({round(i * last / 200) for i in range(201)})
        points = [
            (left + (right - left) * i / last, bottom - (bottom - top) * amounts[i] / most)
            for i in picks
        ]
        body += svg.path(points, f"curve line-{kind}")
    label = f"{words.count(len(parties))} parties, each line from most to least"
    return body + svg.text((left + right) / 2, bottom + 20, label, "ax", "middle")


def phase_timeline(phases: Sequence[Phase]) -> str:
    """Phases one after the other, on one time axis.

    Args:
        phases: In the order they ran.

    Returns:
        SVG, 924 pixels wide.
    """
    total = sum(phase.seconds for phase in phases) or 1.0
    left, span, body, start = 190.0, 600.0, "", 0.0
    for number, phase in enumerate(phases):
        y = 24.0 * number + 2
        x, width = left + span * start / total, max(span * phase.seconds / total, 1.5)
        spent = words.duration(phase.seconds)
        body += svg.line(left, y + 18.5, left + span, y + 18.5, "grid")
        body += svg.text(left - 10, y + 12, words.shorten(phase.name, 28), "lab", "end")
        body += svg.rect(x, y, width, 16, "time", tip=f"{phase.name}: {spent}", rx=3)
        share = words.percent(phase.seconds / total)
        body += svg.text(left + span + 12, y + 12, spent, "lab")
        body += svg.text(WIDTH, y + 12, share, "ax", "end")
        start += phase.seconds
    return svg.figure(
        WIDTH,
        24.0 * len(phases) + 2,
        body,
        title="Seconds per phase",
        desc=f"{len(phases)} phases, {words.duration(total)} in all.",
    )


def error_bars(errors: dict[str, float], high: float, *, title: str) -> str:
    """Named errors on a scale from 0 to `high`.

    Args:
        errors: Name to value.
        high: Largest possible value.
        title: Name of the picture.

    Returns:
        SVG, 924 pixels wide.
    """
    left, span, body = 190.0, 600.0, ""
    for number, (name, value) in enumerate(errors.items()):
        y = 26.0 * number + 2
        body += svg.text(left - 10, y + 13, words.shorten(name, 28), "lab", "end")
        body += svg.rect(left, y + 3, span, 12, "track", rx=3)
        if math.isfinite(value):
            share = max(span * min(value / high, 1), 1.5)
            body += svg.rect(left, y + 3, share, 12, "error", tip=f"{name}: {value:.4f}", rx=3)
        body += svg.text(left + span + 12, y + 13, f"{value:.4f}", "lab")
        body += svg.text(WIDTH, y + 13, f"of {high:g}", "ax", "end")
    listed = ", ".join(f"{name} {value:.4f}" for name, value in errors.items())
    return svg.figure(WIDTH, 26.0 * len(errors) + 2, body, title=title, desc=listed)
