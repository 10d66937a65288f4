"""The pictures of a table: a chart for each column, and heat maps of how columns are associated.

Each function takes plain records and gives one ``<svg>`` with a title and a description, of the
synthetic table and, where it is given, the real one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from statistics import median
from textwrap import wrap
from typing import NamedTuple

from siloweave.report import svg, words
from siloweave.report.record import Association, Marginal

CATEGORIES = 8
"""Categories drawn one by one; the rest are one bar."""
CELLS = 24
"""Heat maps up to this many columns have a tooltip per cell."""
GRID_CELLS = 40
"""A grid of two columns with more cells than these can be enlarged."""
LABELLED = 60
"""Heat maps up to this many columns have names beside them."""
WIDEST = 100
"""Heat maps show the first columns up to this many."""
# Characters that fit before the bar of a category.
_BEFORE = 17
# Lines of a category's name, at most, and how far apart they are.
_LINES = 3
_LINE = 11.0
# Width of a chart of one column.
_CHART = 300.0
# A bin is a single number, and no stretch of the axis, up to this share of the axis.
_POINT = 1e-9
# A smaller number ends a bin that holds 0 alone.
_TINY = 1e-300
# Steps between the marks of a histogram's axis, about.
_MARKS = 5
# Marks in this share of the axis at its ends are written inwards.
_CORNER = 0.08
# A gap of the associations that has the darkest colour.
_DARKEST_GAP = 0.5
# Width of one of the two grids of a pair of columns.
_GRID = 300.0
# Letters of a label beside or below a grid, at most; a name of this length is about 220 wide.
_LABEL = 36
# Least height of a cell that has a label beside it.
_PITCH = 10.0
# A picture of heat maps is drawn at no less than this share of its size; the page scrolls instead.
_LEAST_SCALE = 0.75
# Width of a single heat map with its labels, beside which the page has a table.
_ONE_MAP = 620.0
# Where heat maps begin, below their titles, and how far they are apart.
_HEAT_TOP = 22
_BETWEEN_MAPS = 22


# The table itself: one chart per column, and association heat maps


def distribution(synthetic: Marginal, real: Marginal | None) -> str:
    """Draw one column's distribution, 300 pixels wide, with the real one behind it if given."""
    draw = _histogram if synthetic.ordered else _categories
    body, height = draw(synthetic, real)

    desc = _most_of(synthetic)
    tables = "synthetic against real" if real else "synthetic"
    title = f"{synthetic.column}, {tables}"
    return svg.figure(_CHART, height, body, title=title, desc=desc)


def _most_of(column: Marginal) -> str:
    """Describe where most rows of a column are, for a reader who does not see the picture."""
    if not column.labels:
        return "No values."
    if not column.ordered:
        place = max(range(len(column.labels)), key=column.proportions.__getitem__)
        noun = "value" if len(column.labels) == 1 else "values"
        return (
            f"{len(column.labels)} {noun}; the most frequent is {column.labels[place]}."
        )

    scale = _scale(column)
    heights = scale.densities(column.proportions)
    if not heights:
        return "Every row has the same value, or none."
    place = scale.bins[heights.index(max(heights))].number
    noun = "bin" if len(heights) == 1 else "bins"
    return f"{len(heights)} {noun}; most rows per unit are in {column.labels[place]}."


def total_variation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the total variation distance of two distributions over the same labels.

    >>> total_variation([0.5, 0.5], [0.75, 0.25])
    0.25
    """
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) / 2


class _Bin(NamedTuple):
    """A bin on an axis: which label it has, and where it begins and ends on the axis."""

    number: int
    start: float
    end: float


class _Scale(NamedTuple):
    """A histogram's axis of values, and the unit that heights are shares of rows per.

    Attributes:
        bins: In order. On a logarithmic axis ends are powers of ten.
        unit: In units of the axis; None for plain shares, as on a logarithmic one.
        marks: Places on the axis, in the same numbers as the ends of bins, and their labels.
        per: The unit in words.
    """

    bins: tuple[_Bin, ...]
    unit: float | None
    marks: tuple[tuple[float, str], ...]
    per: str

    def densities(self, proportions: Sequence[float]) -> list[float]:
        """Return the share of rows per unit of every bin, or its plain share."""
        if self.unit is None:
            return [proportions[column_bin.number] for column_bin in self.bins]
        return [
            proportions[number] * self.unit / (end - start)
            for number, start, end in self.bins
        ]


def densities(column: Marginal) -> list[float]:
    """Return the heights of a histogram: shares of rows per unit of the axis, bin by bin.

    A bin of three years that holds .09 of the rows has .03 a year. On a logarithmic axis heights
    are plain shares. Bins of a single number beside wider ones have no height, and neither has 0 on
    a logarithmic axis: both are left out.

    >>> ages = Marginal(column="age", kind="integer", labels=("38 to 40", "41 to 42"),
    ...                 proportions=(0.6, 0.4), ordered=True, edges=(38.0, 41.0, 43.0))
    >>> [round(density, 6) for density in densities(ages)]
    [0.2, 0.2]
    """
    return _scale(column).densities(column.proportions)


def _scale(column: Marginal) -> _Scale:
    """Return the axis of a histogram."""
    if not column.edges:
        return _even_scale(column)
    bins = _bins_with_width(column, column.edges)
    if not bins:
        return _Scale((), 1.0, (), "unit")
    first = bins[0].start
    stop = bins[-1].end
    if column.logarithmic:
        decades = range(math.ceil(first - 1e-9), math.floor(stop + 1e-9) + 1)
        every = math.ceil(len(decades) / _MARKS)
        powers = tuple((float(k), words.axis_number(10.0**k)) for k in decades[::every])
        # Shares of a factor of ten would be above 100% where bins are narrower than that.
        return _Scale(bins, None, powers, "bin")

    # The power of ten next to the width of bins, so that heights are shares one can read.
    sizes = sorted(column_bin.end - column_bin.start for column_bin in bins)
    unit = 10.0 ** math.floor(math.log10(sizes[len(sizes) // 2]))
    if column.kind == "datetime":
        dates = ((first, words.day(first)), (stop, words.day(stop)))
        return _Scale(bins, unit, dates, _days(unit))
    marks = ticks_between(first, stop, whole=column.kind == "integer")
    numbers = tuple((mark, words.axis_number(mark)) for mark in marks)
    per = "unit" if unit == 1 else words.axis_number(unit)
    return _Scale(bins, unit, numbers, per)


def _even_scale(column: Marginal) -> _Scale:
    """Return an axis of bins of one width, since records of earlier versions say none."""
    count = len(column.labels) - column.missing
    if not count:
        return _Scale((), 1.0, (), "bin")
    bins = tuple(_Bin(i, float(i), float(i + 1)) for i in range(count))
    marks = ((0.0, column.labels[0]), (float(count), column.labels[count - 1]))
    return _Scale(bins, 1.0, marks, "bin")


def _bins_with_width(column: Marginal, edges: Sequence[float]) -> tuple[_Bin, ...]:
    """Return the bins that have a height, where they begin and end on the axis."""
    is_whole = column.kind == "integer"
    # A whole number is the middle of its bar: 38 to 40 is drawn from 37.5 to 40.5.
    shift = 0.5 if is_whole else 0.0
    # A whole 0 by itself, beside wider bins.
    widths = [end - start for start, end in pairwise(edges)]
    has_lone_zero = is_whole and median(widths or [1.0]) > 1
    bins: list[_Bin] = []
    for number, (start, end) in enumerate(pairwise(edges)):
        is_point = end - start <= _POINT * (edges[-1] - edges[0])
        if has_lone_zero and start == 0 and end == 1:
            is_point = True
        # Logarithms begin above 0, and above the end of a bin that holds 0 alone.
        if is_point or (column.logarithmic and start <= _TINY):
            continue
        first = start - shift
        stop = end - shift
        if column.logarithmic:
            first = math.log10(first)
            stop = math.log10(stop)
        bins.append(_Bin(number, first, stop))
    return tuple(bins)


def ticks_between(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return up to seven round axis values from `low` to `high`; whole ones if asked.

    >>> ticks_between(16.5, 90.5, whole=True)
    [20.0, 40.0, 60.0, 80.0]
    """
    exact_step = (high - low) / _MARKS
    power = 10.0 ** math.floor(math.log10(exact_step))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= exact_step)
    if whole:
        step = max(step, 1.0)
    first = math.ceil(low / step)
    last = math.floor(high / step)
    return [round(step * i, 12) for i in range(first, last + 1)]


def _days(unit: float) -> str:
    """Write a number of days that is a power of ten."""
    return "day" if unit == 1 else f"{words.axis_number(unit)} days"


def _histogram(synthetic: Marginal, real: Marginal | None) -> tuple[str, float]:
    """Draw bins as wide as they are, with shares of rows per unit as heights.

    The real ones are an outline. What has no place on the axis is described in words below it.

    Returns:
        The shapes, and their height.
    """
    scale = _scale(synthetic)
    heights = scale.densities(synthetic.proportions)
    real_heights = scale.densities(real.proportions) if real else []
    high = _height(heights, real_heights)
    axes = svg.Panel(40.0, 20.0, _CHART - 44.0, 100.0)

    body = svg.text(0, 10, f"share of rows per {scale.per}", "ax")
    if synthetic.logarithmic:
        body += svg.text(_CHART, 10, "logarithmic axis", "ax", "end")
    marks = [(mark / high, f"{100 * mark:.4g}%") for mark in svg.ticks(high, 2)]
    body += axes.upwards([mark for mark in marks if mark[0] <= 1], grid=True)

    if scale.bins:
        body += _histogram_bars(axes, scale, synthetic, real, high)
    body += svg.line(axes.x(0), axes.y(0), axes.x(1), axes.y(0), "base")
    lines = _off_the_axis(synthetic, real, scale)
    bottom = axes.y(0) + 22
    for number, sentence in enumerate(lines, 1):
        body += svg.text(0, bottom + 14 * number - 4, sentence, "ax")
    return body, bottom + 14 * len(lines)


def _histogram_bars(
    axes: svg.Panel,
    scale: _Scale,
    synthetic: Marginal,
    real: Marginal | None,
    high: float,
) -> str:
    """Draw the bars of a histogram, the outline of the real ones, and the axis below them."""
    low = scale.bins[0].start
    span = scale.bins[-1].end - low
    heights = scale.densities(synthetic.proportions)
    outline: svg.Points = [(0.0, 0.0)]
    real_heights = scale.densities(real.proportions) if real else []

    body = ""
    for place, (number, start, end) in enumerate(scale.bins):
        left = axes.x((start - low) / span)
        width = axes.width * (end - start) / span
        share = synthetic.proportions[number]
        label = synthetic.labels[number]
        tip = f"{label}: {words.percent(share)} synthetic"
        if real:
            tip += f", {words.percent(real.proportions[number])} real"
            y = min(real_heights[place] / high, 1.0)
            outline += [((start - low) / span, y), ((end - low) / span, y)]

        top = axes.y(min(heights[place] / high, 1.0))
        # A hair between wide bars; narrow ones would lose too much of their width to it.
        gap = min(1.0, width / 8)
        body += svg.rect(
            left + gap / 2, top, width - gap, axes.y(0) - top, "syn", tip=tip
        )
        if heights[place] > high:
            body += _cut_off(axes, left, width, f"{label}: {words.percent(share)}")
    if real:
        body += axes.path([*outline, (1.0, 0.0)], "real-line")
    return body + _axis_marks(axes, scale)


def _axis_marks(axes: svg.Panel, scale: _Scale) -> str:
    """Draw the marks below a histogram; those at its ends stay inside the picture."""
    low = scale.bins[0].start
    span = scale.bins[-1].end - low
    body = ""
    for mark, label in scale.marks:
        share = (mark - low) / span
        x = axes.x(share)
        body += svg.line(x, axes.y(0), x, axes.y(0) + 3, "base")
        anchor = "middle"
        if share < _CORNER:
            anchor = "start"
        elif share > 1 - _CORNER:
            anchor = "end"
        short = words.shorten(label, 20)
        body += svg.text(x, axes.y(0) + 15, short, "ax", anchor, whole=label)
    return body


def _cut_off(axes: svg.Panel, left: float, width: float, label: str) -> str:
    """Draw a break in a bar that is cut off so that the others can be seen, and its share."""
    body = svg.rect(left, axes.top + 12, width, 3, "cut")
    short = words.shorten(label, 26)
    if left > axes.x(0.5):
        return body + svg.text(left - 4, axes.top + 18, short, "ax", "end", whole=label)
    return body + svg.text(left + width + 4, axes.top + 18, short, "ax", whole=label)


def _off_the_axis(
    synthetic: Marginal, real: Marginal | None, scale: _Scale
) -> list[str]:
    """Describe the shares that have no place on the axis: missing values, and single numbers."""
    drawn_numbers = {column_bin.number for column_bin in scale.bins}
    sentences = []
    for number, label in enumerate(synthetic.labels):
        share = synthetic.proportions[number]
        real_share = real.proportions[number] if real else 0.0
        if number in drawn_numbers or not share + real_share:
            continue
        sentence = f"{label}: {words.percent(share)}"
        if real:
            sentence += f" synthetic, {words.percent(real_share)} real"
        sentences.append(words.shorten(sentence, 50))
    return sentences


def _height(synthetic: Sequence[float], real: Sequence[float]) -> float:
    """Return the share that the full height stands for: the largest, or less if that is far off."""
    shares = [max(pair) for pair in zip(synthetic, real or synthetic, strict=True)]
    largest, *others = sorted(shares, reverse=True) or [1.0]
    second = others[0] if others else largest
    if largest > 5 * second > 0:
        return 1.5 * second
    return largest or 1.0


class _Category(NamedTuple):
    """One bar of a chart of categories, with the real share if tables are compared."""

    label: str
    share: float
    real: float | None


def _categories(synthetic: Marginal, real: Marginal | None) -> tuple[str, float]:
    """Draw a bar per category, and a thinner one for the real share.

    Returns:
        The shapes, and their height.
    """
    categories = _fold(synthetic, real)
    longest = [max(category.share, category.real or 0.0) for category in categories]
    high = max(longest, default=1.0) or 1.0
    # A name that is too long for all its lines is cut.
    labels = words.shorten_apart(
        [category.label for category in categories], _BEFORE * (_LINES - 1)
    )

    left = 112.0
    span = 142.0
    pitch = 17.0
    y = 2.0
    body = ""
    for number, category in enumerate(categories):
        lines = wrap(labels[number], _BEFORE) or [""]
        for place, piece in enumerate(lines):
            height = y + 11 + _LINE * place
            body += svg.text(left - 7, height, piece, "ax", "end", whole=category.label)
        tip = f"{category.label}: {words.percent(category.share)} synthetic"
        width = span * category.share / high
        if category.real is None:
            body += svg.rect(left, y + 2, width, 11, "syn", tip=tip, rx=1.5)
        else:
            tip += f", {words.percent(category.real)} real"
            real_width = span * category.real / high
            body += svg.rect(left, y + 1, width, 7.5, "syn", tip=tip, rx=1.5)
            body += svg.rect(left, y + 9.5, real_width, 4, "real", tip=tip, rx=1.5)
        end = left + span * longest[number] / high
        body += svg.text(end + 5, y + 11, words.percent(category.share), "ax")
        y += pitch + _LINE * (len(lines) - 1)
    return body, y + 2


def _fold(synthetic: Marginal, real: Marginal | None) -> list[_Category]:
    """Return the largest categories, by the synthetic table, and all others as one."""
    places = list(range(len(synthetic.labels)))
    # Categories that the table itself folded go into the same bar as those folded here.
    folded_before = synthetic.others or 0
    rest = []
    if folded_before:
        place = len(places) - 1 - synthetic.missing
        places.remove(place)
        rest.append(place)

    places.sort(key=lambda i: -synthetic.proportions[i])
    # One bar for a single other category would be no shorter than the category itself.
    count = CATEGORIES
    if not rest and len(places) <= CATEGORIES + 1:
        count = CATEGORIES + 1

    categories = []
    for i in places[:count]:
        real_share = real.proportions[i] if real else None
        categories.append(
            _Category(synthetic.labels[i], synthetic.proportions[i], real_share)
        )

    rest += places[count:]
    if rest:
        folded_here = len(places[count:])
        share = sum(synthetic.proportions[i] for i in rest)
        real_share = sum(real.proportions[i] for i in rest) if real else None
        label = f"{words.count(folded_before + folded_here)} others"
        categories.append(_Category(label, share, real_share))
    return categories


def heat_maps(
    synthetic: Association,
    real: Association | None,
    cliques: Sequence[Sequence[str]] = (),
) -> str:
    """Draw the association of all pairs of columns, and how far it is from the real one if given.

    Real and synthetic names are the same; pairs inside a clique of the model are dotted. The
    picture is as wide as it takes.
    """
    synthetic = _trim(synthetic)
    panels = [("synthetic", synthetic.values, "heat")]
    if real:
        real = _trim(real)
        gaps = _differences(synthetic.values, real.values)
        panels = [
            ("real", real.values, "heat"),
            *panels,
            ("synthetic − real", gaps, "gap"),
        ]

    names = synthetic.names
    width = len(names)
    has_labels = width <= LABELLED
    labelled = names if has_labels else ()
    labels = words.shorten_apart(labelled, _LABEL)
    longest = max(map(svg.text_width, labels), default=0.0)

    # Maps share the width that the labels leave. Cells are 3 to 26 pixels wide, and no lower than
    # the labels beside them.
    left = longest + 10
    room = _ONE_MAP - left
    if real:
        room = (svg.WIDTH - left) / len(panels) - _BETWEEN_MAPS
    least = _PITCH if has_labels else 3.0
    side = max(min(room / max(width, 1), 26.0), least)
    edge = side * width

    body = _labels_beside(labelled, labels, left - 6, side)
    x = left
    for title, values, kind in panels:
        body += svg.text(x, 14, title, "lab strong")
        body += _cells(names, values, kind, x, side)
        if title == "synthetic":
            body += _dots(names, cliques, x, side)
        body += _labels_below(labelled, labels, x, side, _HEAT_TOP + edge + 6)
        x += edge + _BETWEEN_MAPS

    height = _HEAT_TOP + edge + longest + 10
    titles = ", ".join(title for title, _, _ in panels)
    desc = f"{width} columns; {titles}. The strongest "
    desc += "pairs are listed in the table beside it."
    title = f"{synthetic.measure} of every pair of columns"
    whole_width = max(x - _BETWEEN_MAPS, left + 120)
    return svg.figure(
        whole_width,
        height,
        body,
        title=title,
        desc=desc,
        least_width=_LEAST_SCALE * whole_width,
    )


def _differences(
    synthetic: Sequence[Sequence[float]], real: Sequence[Sequence[float]]
) -> tuple[tuple[float, ...], ...]:
    """Return how far synthetic associations are above the real ones, cell by cell."""
    rows = []
    for synthetic_row, real_row in zip(synthetic, real, strict=True):
        pairs = zip(synthetic_row, real_row, strict=True)
        rows.append(tuple(a - b for a, b in pairs))
    return tuple(rows)


def _trim(association: Association) -> Association:
    """Return the first columns, up to as many as a picture can show."""
    return Association(
        names=association.names[:WIDEST],
        values=tuple(row[:WIDEST] for row in association.values[:WIDEST]),
        measure=association.measure,
    )


def _labels_beside(
    names: Sequence[str], labels: Sequence[str], right: float, side: float
) -> str:
    """Draw labels left of the rows of a grid, each in the middle of its row."""
    body = ""
    for i, (label, name) in enumerate(zip(labels, names, strict=True)):
        # Down by a third of a letter, which is then in the middle.
        y = _HEAT_TOP + side * (i + 0.5) + 3.5
        body += svg.text(right, y, label, "ax", "end", whole=name)
    return body


def _labels_below(
    names: Sequence[str], labels: Sequence[str], x: float, side: float, top: float
) -> str:
    """Draw labels below the columns of a grid, turned by a quarter."""
    body = ""
    for i, (label, name) in enumerate(zip(labels, names, strict=True)):
        turned = svg.text(0, 0, label, "ax", "end", whole=name)
        place = f"{svg.num(x + side * (i + 0.5) + 3.5)},{svg.num(top)}"
        body += f'<g transform="translate({place}) rotate(-90)">{turned}</g>'
    return body


def _cells(
    names: Sequence[str],
    values: Sequence[Sequence[float]],
    kind: str,
    x: float,
    side: float,
) -> str:
    """Draw coloured cells: each with a tooltip, or, of a wide table, one shape per colour."""
    width = len(names)
    body = svg.rect(x, _HEAT_TOP, side * width, side * width, "backdrop")
    shapes: dict[str, list[str]] = {}
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            cls = "self" if i == j else _level(value, kind)
            if width <= CELLS:
                tip = f"{names[i]} × {names[j]}: {value:.2f}"
                left = x + side * j + 0.5
                top = _HEAT_TOP + side * i + 0.5
                body += svg.rect(left, top, side - 1, side - 1, cls, tip=tip)
            else:
                shapes.setdefault(cls, []).append(f"M{j} {i}h1v1h-1z")
    if width <= CELLS:
        return body

    # Thousands of rectangles would make a page of megabytes.
    paths = ""
    for cls, squares in shapes.items():
        paths += f'<path class="{cls}" d="{"".join(squares)}"/>'
    place = f"translate({svg.num(x)},{_HEAT_TOP}) scale({side:.3f})"
    return body + f'<g transform="{place}">{paths}</g>'


def pair_grids(
    columns: tuple[str, str],
    labels: tuple[Sequence[str], Sequence[str]],
    real: Sequence[Sequence[float]],
    synthetic: Sequence[Sequence[float]],
) -> str:
    """Draw how two columns are distributed together: real rows beside synthetic ones.

    Args:
        columns: The first column's cells are rows of a grid.
        labels: Of the cells of both columns.
        real: Shares of rows, one row of the grid after the other.
        synthetic: The same of the synthetic table.
    """
    row_labels, column_labels = labels
    short_rows = words.shorten_apart(row_labels, _LABEL)
    short_columns = words.shorten_apart(column_labels, _LABEL)
    short_name = words.shorten(columns[0], _LABEL)
    left = max(map(svg.text_width, [*short_rows, short_name])) + 14
    side = min(_GRID / max(len(column_labels), 1), 30.0)
    width = side * len(column_labels)
    height = side * len(row_labels)
    below = _HEAT_TOP + height + max(map(svg.text_width, short_columns)) + 24

    # The largest share of both grids is the darkest colour of both.
    most = max(max(map(max, real)), max(map(max, synthetic))) or 1.0

    body = ""
    places = (("real", real, left), ("synthetic", synthetic, left + _GRID + 30))
    for title, shares, x in places:
        body += svg.text(x, 14, title, "lab strong")
        body += svg.rect(x, _HEAT_TOP, width, height, "backdrop")
        for i, row in enumerate(shares):
            for j, share in enumerate(row):
                tip = f"{row_labels[i]}, {column_labels[j]}: {words.percent(share)} {title}"
                # Roots: where few cells hold most rows, the others are not all white.
                cls = _level(math.sqrt(share / most), "heat")
                top = _HEAT_TOP + side * i + 0.5
                body += svg.rect(
                    x + side * j + 0.5, top, side - 1, side - 1, cls, tip=tip
                )
        bottom = _HEAT_TOP + height
        body += _labels_below(column_labels, short_columns, x, side, bottom + 6)
        body += svg.text(x + width / 2, below, columns[1], "ax", "middle")

    body += _labels_beside(row_labels, short_rows, left - 6, side)
    body += svg.text(0, 14, short_name, "ax", whole=columns[0])

    desc = _differing_cell(labels, real, synthetic)
    title = f"{columns[0]} and {columns[1]}, real beside synthetic"
    return svg.figure(left + 2 * _GRID + 30, below + 6, body, title=title, desc=desc)


def _differing_cell(
    labels: tuple[Sequence[str], Sequence[str]],
    real: Sequence[Sequence[float]],
    synthetic: Sequence[Sequence[float]],
) -> str:
    """Describe the cell of two grids whose shares differ most."""
    row_labels, column_labels = labels
    gaps = []
    for i, (real_row, row) in enumerate(zip(real, synthetic, strict=True)):
        gaps += [
            (abs(a - b), i, j)
            for j, (a, b) in enumerate(zip(real_row, row, strict=True))
        ]
    _, i, j = max(gaps)
    return (
        f"The shares differ most at {row_labels[i]}, {column_labels[j]}: "
        f"{words.percent(real[i][j])} of the real rows and "
        f"{words.percent(synthetic[i][j])} of the synthetic ones."
    )


def _level(value: float, kind: str) -> str:
    """Return the CSS class of a cell: h0..h10, or g0..g10 above and l0..l10 below zero."""
    if kind == "heat":
        share = min(max(value, 0.0), 1.0)
        return f"h{round(10 * share)}"
    sign = "g" if value >= 0 else "l"
    share = min(abs(value) / _DARKEST_GAP, 1.0)
    return f"{sign}{round(10 * share)}"


def _dots(
    names: Sequence[str], cliques: Sequence[Sequence[str]], x: float, side: float
) -> str:
    """Draw a dot on every pair inside a clique."""
    if len(names) > CELLS:
        return ""
    places = {name: i for i, name in enumerate(names)}
    pairs = {frozenset(pair) for clique in cliques for pair in combinations(clique, 2)}
    body = ""
    # A set has no order of its own, and the same page has the same bytes.
    for pair in sorted(sorted(pair) for pair in pairs):
        if all(name in places for name in pair):
            i, j = sorted(places[name] for name in pair)
            body += svg.circle(
                x + side * (j + 0.5), _HEAT_TOP + side * (i + 0.5), 2, "dot"
            )
    return body


class ColumnLink(NamedTuple):
    """How strongly two columns depend on each other, from 0 to 1, in either table."""

    first: str
    second: str
    synthetic: float
    real: float | None


def strongest_pairs(
    synthetic: Association, real: Association | None, count: int = 10
) -> list[ColumnLink]:
    """List pairs of columns, the strongest or, with real rows, those furthest from them first."""
    names = synthetic.names
    weighted: list[tuple[float, ColumnLink]] = []
    for i, j in combinations(range(len(names)), 2):
        value = synthetic.values[i][j]
        real_value = real.values[i][j] if real else None
        weight = value if real_value is None else abs(value - real_value)
        weighted.append((weight, ColumnLink(names[i], names[j], value, real_value)))
    weighted.sort(key=lambda pair: (-pair[0], pair[1].first, pair[1].second))
    return [link for _, link in weighted[:count]]
