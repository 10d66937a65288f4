"""The pictures of a run: what epsilon means, ledgers, bytes, training; and of attacks.

Each function takes plain records or numbers and gives one ``<svg>`` with a title and a description,
924 pixels wide where it says nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from textwrap import wrap

from siloweave.report import svg, words
from siloweave.report.record import LedgerRow, PartyCost, TrainingLook

Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Name of an attack to false positive rates and true positive rates, both from 0 to 1."""
MANY = 8
"""More ledgers than this are drawn as an envelope."""

# Dots of a ledger's curve, at most.
_DOTS = 400
# Colours of mechanisms (classes m0 to m5) and of curves (p0 to p7) in style.css.
_MECHANISM_COLOURS = 6
_CURVE_COLOURS = 8
# Characters that fit beside the end of a curve.
_BESIDE = 22
# Points of a curve between two of a ROC curve, on a logarithmic axis.
_BETWEEN = 24


def colour_of(number: int) -> int:
    """Return the colour number of a mechanism by its place; late ones share the last colour."""
    return min(number, _MECHANISM_COLOURS - 1)


# Cost: what epsilon means to an attacker, the ledger, bytes


def power_curve(epsilon: float, delta: float) -> str:
    """Draw the best attack that ε and δ leave: true positives by false alarms; 240 by 230."""
    axes = svg.Panel(38.0, 24.0, 184.0, 170.0)
    rates = [i / 200 for i in range(201)]
    power = [(rate, words.attacker_power(rate, epsilon, delta)) for rate in rates]
    curve = [(0.0, 0.0), *power]

    marks = [(0.0, "0%"), (0.5, "50%"), (1.0, "100%")]
    body = axes.backdrop()
    body += axes.across(marks, "false alarms")
    body += axes.upwards(marks)
    body += axes.path([*curve, (1.0, 1.0), (0.0, 0.0)], "reach", close=True)
    body += svg.line(axes.x(0), axes.y(0), axes.x(1), axes.y(1), "chance")
    body += axes.path(curve, "bound")
    # Above the panel, where no curve crosses it: that of a large ε rises along the axis.
    body += svg.text(axes.x(0), axes.y(1) - 8, "found", "ax")
    body += svg.text(axes.x(1) - 8, axes.y(0) - 10, "guessing", "ax", "end")

    best = words.at_most(words.attacker_power(0.01, epsilon, delta))
    desc = f"With ε = {words.epsilon(epsilon)}, a test that raises 1% false alarms finds at "
    desc += f"most {best} of the rows it looks for."
    return svg.figure(240, 230, body, title="Best possible attack", desc=desc)


def by_party(ledgers: Sequence[LedgerRow]) -> dict[str, list[LedgerRow]]:
    """Return the ledger rows of each party, in order of index."""
    parties: dict[str, list[LedgerRow]] = {}
    for row in ledgers:
        parties.setdefault(row.party, []).append(row)
    return {
        name: sorted(rows, key=lambda row: row.index) for name, rows in parties.items()
    }


def mechanisms(ledgers: Iterable[LedgerRow]) -> list[str]:
    """Return names of the mechanisms used, the most frequent first."""
    counts = Counter(row.mechanism for row in ledgers)
    return sorted(counts, key=lambda name: (-counts[name], name))


# Where the curve of ledgers is drawn; to its right is room for the names of parties.
_LEDGER = svg.Panel(44.0, 12.0, 716.0, 216.0)


def staircase(ledgers: Sequence[LedgerRow], allowed: float) -> str:
    """Draw the cumulative ε of releases, below the ε that the budget allows.

    Up to eight different curves are drawn one by one (equal ones share a line); more become the
    highest curve over the band of the middle 80% of parties.
    """
    # Who has which curve; curves that differ in the last bits are one.
    parties = by_party(ledgers)
    curves: dict[tuple[float, ...], list[str]] = {}
    for name, rows in parties.items():
        curve = tuple(round(row.cumulative_epsilon, 9) for row in rows)
        curves.setdefault(curve, []).append(name)

    finite = [value for curve in curves for value in curve if math.isfinite(value)]
    limit = allowed if math.isfinite(allowed) else 0.0
    high = 1.09 * max([*finite, limit, 1e-6])
    longest = max((len(curve) for curve in curves), default=1)

    # Axes: ε upwards, whole numbers of releases to the right.
    marks = [
        (mark / high, words.rounded(mark))
        for mark in svg.ticks(high, 5)
        if mark <= high
    ]
    body = _LEDGER.upwards(marks, grid=True)
    inside = [mark for mark in svg.ticks(longest, 6) if 0 < mark <= longest]
    marks = [
        (mark / longest, words.count(mark)) for mark in inside if mark == int(mark)
    ]
    body += _LEDGER.across(marks, "releases of one party, in order")

    if math.isfinite(allowed):
        y = _LEDGER.y(allowed / high)
        body += svg.line(_LEDGER.x(0), y, _LEDGER.x(1), y, "limit")
        body += svg.text(
            _LEDGER.x(0) + 6, y - 5, f"allowed ε = {allowed:g}", "limit-text"
        )

    if len(curves) > MANY:
        weights = [len(names) for names in curves.values()]
        body += _envelope(list(curves), weights, longest, high)
    else:
        body += _curves(curves, parties, longest, high)

    top = max((curve[-1] for curve in curves if curve), default=0.0)
    noun = "release" if longest == 1 else "releases"
    desc = f"{words.parties(len(parties))}, up to {longest} {noun} each; the highest ends at "
    desc += f"ε = {words.epsilon(top)} of {words.epsilon(allowed)} allowed."
    return svg.figure(svg.WIDTH, 270, body, title="Cumulative ε by release", desc=desc)


def _stairs(curve: Sequence[float], longest: int, high: float) -> svg.Points:
    """Turn a curve into steps, in shares of the longest curve and of the largest value."""
    points = [(0.0, 0.0)]
    last = 0.0
    for place, value in enumerate(curve):
        share = min(value / high, 1.0)
        points += [(place / longest, last), (place / longest, share)]
        last = share
    return [*points, (len(curve) / longest, last)]


def _beside(ends: Sequence[tuple[float, str]]) -> tuple[str, float]:
    """Draw labels beside the ends of curves, moved apart where they would overlap.

    Returns:
        The texts, and how far down the last one stands.
    """
    body = ""
    floor = _LEDGER.top - 4
    for share, label in sorted(ends, key=lambda end: -end[0]):
        # Each at least a line below the one above it.
        floor = max(_LEDGER.y(share) + 4, floor + 14)
        body += svg.text(_LEDGER.x(1) + 8, floor, label, "lab")
    return body, floor


def _curves(
    curves: Mapping[tuple[float, ...], list[str]],
    parties: Mapping[str, list[LedgerRow]],
    longest: int,
    high: float,
) -> str:
    """Draw one staircase per distinct curve, the highest with a dot per release, by mechanism."""
    body = ""
    ends = []
    dearest = max(curves, key=lambda curve: curve[-1:])
    for curve, names in curves.items():
        stairs = _stairs(curve, longest, high)
        cls = "curve p0" if curve == dearest else "curve faint"
        body += _LEDGER.path(stairs, cls)

        # The names of the parties, or how many there are where names need too much room.
        spent = words.epsilon(curve[-1] if curve else 0.0)
        label = f"ε = {spent}: {', '.join(names)}"
        if len(names) > 1 and len(label) > _BESIDE:
            crowd = words.parties(len(names))
            if len(names) == len(parties):
                crowd = f"all {crowd}"
            label = f"ε = {spent}: {crowd}"
        # A long name goes on in the lines below.
        for piece in wrap(label, _BESIDE):
            ends.append((stairs[-1][1], piece))

    kinds = mechanisms(row for rows in parties.values() for row in rows)
    first_party = curves[dearest][0]
    for position, row in enumerate(parties[first_party][:_DOTS]):
        colour = colour_of(kinds.index(row.mechanism))
        # A release is the middle of its step.
        x = (position + 0.5) / longest
        y = min(row.cumulative_epsilon / high, 1.0)
        body += svg.circle(_LEDGER.x(x), _LEDGER.y(y), 3, f"m{colour}")

    labels, _ = _beside(ends)
    return body + labels


def _envelope(
    curves: Sequence[tuple[float, ...]],
    weights: Sequence[int],
    longest: int,
    high: float,
) -> str:
    """Draw the highest curve over the band between the 10th and 90th percentile of parties."""
    lower = _quantiles(curves, weights, longest, 0.1)
    median = _quantiles(curves, weights, longest, 0.5)
    upper = _quantiles(curves, weights, longest, 0.9)
    highest = _quantiles(curves, weights, longest, 1.0)

    low_stairs = _stairs(lower, longest, high)
    median_stairs = _stairs(median, longest, high)
    upper_stairs = _stairs(upper, longest, high)
    highest_stairs = _stairs(highest, longest, high)
    body = _LEDGER.path([*upper_stairs, *reversed(low_stairs)], "band", close=True)
    body += _LEDGER.path(median_stairs, "curve faint")
    body += _LEDGER.path(highest_stairs, "curve p0")

    ends = [
        (highest_stairs[-1][1], f"{words.epsilon(highest[-1])}  highest party"),
        (median_stairs[-1][1], f"{words.epsilon(median[-1])}  median party"),
    ]
    labels, floor = _beside(ends)
    return (
        body + labels + svg.text(_LEDGER.x(1) + 8, floor + 14, "band: middle 80%", "ax")
    )


def _quantiles(
    curves: Sequence[tuple[float, ...]],
    weights: Sequence[int],
    longest: int,
    share: float,
) -> list[float]:
    """Return, release by release, the ε that such a share of the parties does not exceed.

    Args:
        curves: Cumulative ε; a party without further releases stays where it is.
        weights: How many parties have each curve.
        longest: Releases of the longest curve.
        share: From 0 to 1.
    """
    quantiles = []
    for position in range(longest):
        values = [_value_at(curve, position) for curve in curves]
        pairs = sorted(zip(values, weights, strict=True))
        masses = list(accumulate(weight for _, weight in pairs))
        place = next(i for i, mass in enumerate(masses) if mass >= share * masses[-1])
        quantiles.append(pairs[place][0])
    return quantiles


def _value_at(curve: tuple[float, ...], position: int) -> float:
    """Return a curve's value at a release, or its last value if it ended before."""
    if not curve:
        return 0.0
    return curve[min(position, len(curve) - 1)]


def byte_profile(parties: Sequence[PartyCost]) -> str:
    """Draw the bytes that parties sent and received, each sorted from most to least."""
    axes = svg.Panel(60.0, 12.0, 700.0, 164.0)
    most = max(max(p.bytes_sent, p.bytes_received) for p in parties) or 1
    marks = [(share, words.size(most * share)) for share in (0.0, 0.5, 1.0)]
    body = axes.upwards(marks, grid=True)
    label = f"{words.parties(len(parties))}, each line from most to least"
    body += axes.across((), label)

    # A line of thousands of parties needs no more points than it has pixels.
    last = len(parties) - 1
    places = sorted({round(i * last / 200) for i in range(201)})
    for kind in ("received", "sent"):
        amounts = sorted((getattr(p, f"bytes_{kind}") for p in parties), reverse=True)
        points = [(i / last, amounts[i] / most) for i in places]
        body += axes.path(points, f"curve line-{kind}")

    total = words.size(sum(p.bytes_sent + p.bytes_received for p in parties))
    desc = f"{words.parties(len(parties))}, {total} sent and received in total."
    return svg.figure(
        svg.WIDTH, 214, body, title="Bytes on the wire by party", desc=desc
    )


def training_curve(looks: Sequence[TrainingLook]) -> str:
    """Draw the loss on rows held back by seconds of training, with a dot at the least.

    It takes losses at two times or more.
    """
    axes = svg.Panel(60.0, 12.0, 700.0, 164.0)
    longest = max(look.seconds for look in looks)
    seconds = svg.ticks(longest)
    end = seconds[-1]

    losses = [look.loss for look in looks]
    least = min(losses)
    spread = (max(losses) - least) or 1.0
    points = [(look.seconds / end, (look.loss - least) / spread) for look in looks]

    marks = [
        (share, words.rounded(least + spread * share)) for share in (0.0, 0.5, 1.0)
    ]
    body = axes.upwards(marks, grid=True)
    body += axes.across([(mark / end, f"{mark:g} s") for mark in seconds], "training")
    body += axes.path(points, "curve line-sent")

    best = min(looks, key=lambda look: look.loss)
    x, y = points[list(looks).index(best)]
    body += svg.circle(axes.x(x), axes.y(y), 4, "dot")
    desc = f"The loss of rows held back was {words.rounded(best.loss)} at best, after "
    desc += f"{best.seconds:.0f} seconds and {best.step:,} steps; "
    desc += f"training ended after {longest:.0f} seconds."
    return svg.figure(svg.WIDTH, 214, body, title="Loss of rows held back", desc=desc)


# Attacks


def receiver_curves(curves: Curves) -> str:
    """Draw ROC curves of membership attacks, plain and with few false alarms spread out."""
    side = 300.0
    top = 26.0
    left = 46.0
    body = _roc_panel(curves, left, top, side, least=None)
    body += _roc_panel(curves, left + side + 70, top, side, least=1e-3)

    # The names of the attacks, to the right of both.
    x = left + 2 * side + 92
    labels = words.shorten_apart(list(curves), 24)
    for number, name in enumerate(curves):
        y = top + 14 + 18 * number
        body += svg.line(x, y - 4, x + 16, y - 4, f"curve p{number % _CURVE_COLOURS}")
        body += svg.text(x + 22, y, labels[number], "lab", whole=name)

    desc = f"True positives against false positives of {', '.join(curves)}; the dashed line is "
    desc += "guessing."
    return svg.figure(
        svg.WIDTH,
        top + side + 40,
        body,
        title="ROC of each membership attack",
        desc=desc,
    )


def _roc_panel(
    curves: Curves, left: float, top: float, side: float, least: float | None
) -> str:
    """Draw ROC curves on plain axes, or on logarithmic ones from a least rate on."""

    def place(rate: float) -> float:
        if least is None:
            return rate
        return 1 - math.log10(max(rate, least)) / math.log10(least)

    title = "few false alarms (logarithmic)"
    rates: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0)
    if least is None:
        title = "all false alarms"
        rates = (0.0, 0.25, 0.5, 0.75, 1.0)

    axes = svg.Panel(left, top, side, side)
    marks = [(place(rate), f"{100 * rate:g}%") for rate in rates]
    body = svg.text(left, top - 8, title, "lab strong")
    body += axes.backdrop()
    body += axes.across(marks, "others called members", grid=True)
    body += axes.upwards(marks, grid=True)
    body += axes.path([(0.0, 0.0), (1.0, 1.0)], "curve chance")
    for number, (fpr, tpr) in enumerate(curves.values()):
        points = [(place(a), place(b)) for a, b in _roc_points(fpr, tpr, least)]
        body += axes.path(points, f"curve p{number % _CURVE_COLOURS}")
    return body


def _roc_points(
    fpr: Sequence[float], tpr: Sequence[float], least: float | None
) -> svg.Points:
    """Return a ROC curve's points; from a least rate on with points between, as logarithms bend.

    Rows with equal scores raise both rates at once. Who breaks such ties by a coin is on the
    straight line between both points, which a logarithmic axis shows as a curve and not as a step.
    """
    points = list(zip(fpr, tpr, strict=True))
    if least is None:
        return points
    bent = []
    for (a, b), (next_a, next_b) in pairwise(points):
        # A line to the right, or up, has the same shape on any axis.
        steps = _BETWEEN if next_a > a and next_b > b else 1
        for step in range(steps):
            # Most points near the left end, where the axis is widest.
            share = (step / steps) ** 2
            bent.append((a + (next_a - a) * share, b + (next_b - b) * share))
    bent += points[-1:]
    return _from_rate(bent, least)


def _from_rate(points: svg.Points, least: float) -> svg.Points:
    """Return the part of a curve from a least rate on, which begins where the curve is there."""
    cut = []
    for (a, b), (next_a, next_b) in pairwise(points):
        if a < least < next_a:
            share = (least - a) / (next_a - a)
            cut.append((least, b + (next_b - b) * share))
    return [*cut, *((a, b) for a, b in points if a >= least)]


def distances(
    edges: Sequence[float], to_train: Sequence[int], to_control: Sequence[int]
) -> str:
    """Draw how far synthetic rows are from the closest training row, and the closest control row.

    Takes synthetic rows per cell, and edges, one more than cells.
    """
    axes = svg.Panel(46.0, 12.0, 854.0, 184.0)
    cells = max(len(to_train), 1)
    high = max([*to_train, *to_control, 1])

    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    span = edges[-1] - edges[0]
    marks = [(share, f"{edges[0] + span * share:.3g}") for share in shares]
    body = svg.line(axes.x(0), axes.y(0), axes.x(1), axes.y(0), "base")
    body += axes.across(marks, "Gower distance")

    # Training rows as bars, control rows as the outline of theirs.
    width = axes.width / cells
    outline = [(0.0, 0.0)]
    for i, (train, control) in enumerate(zip(to_train, to_control, strict=True)):
        x = axes.x(i / cells)
        y = axes.y(train / high)
        tip = f"{edges[i]:.3g} to {edges[i + 1]:.3g}: "
        tip += f"{train} to training, {control} to control rows"
        body += svg.rect(x + 0.5, y, max(width - 1, 0.6), axes.y(0) - y, "syn", tip=tip)
        outline += [(i / cells, control / high), ((i + 1) / cells, control / high)]
    body += axes.path([*outline, (1.0, 0.0)], "real-line")

    desc = "How far synthetic rows are from the closest training row and control row."
    title = "Distance to the closest record"
    return svg.figure(svg.WIDTH, 236, body, title=title, desc=desc)
