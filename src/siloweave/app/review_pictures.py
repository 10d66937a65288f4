"""A small picture of each column's real values, for the eyes of whoever reviews a schema.

**Guarantee**: none: a picture shows shares of rows, which nobody paid for. It is drawn on the
owner's machine, is part of no file, and leaves that machine never.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from siloweave.app.review_rows import values_of
from siloweave.report import svg, words
from siloweave.tables.column import Column
from siloweave.tables.table import Table

_WIDTH = 300.0
_HEIGHT = 92.0
_BINS = 24
_CATEGORIES = 6
_PITCH = 17.0
_LABEL = 17  # characters of a category's label
_LABEL_WIDTH = 132.0  # left of the bars
_LABEL_GAP = 7.0  # between a label and its bar
# How wide letters are at the size of an axis, 11: of DejaVu Sans, which is wide.
_WIDE_LETTERS = frozenset("MWmw@%")
_WIDE_LETTER = 11.0
_CAPITAL = 8.6
_LETTER = 7.0
_IDEOGRAPHS = 0x2E80  # from here on letters are as wide as they are high
_SHARE_WIDTH = 46.0  # of a share behind its bar


def picture_of(column: Column, table: Table) -> str:
    """Draw how a column's values are distributed in a table; empty for ids and texts.

    Numbers and datetimes are drawn as they are; their bins are equally wide, and of whole numbers
    each but the last has as many of them. Categories are drawn by their frequency.
    """
    if not column.modelled:
        return ""
    values = values_of(column, table)
    present = values.present
    has_bins = not column.is_choice
    if has_bins and values.have_order and len(present):
        return _histogram(column.name, present, values.missing_share)
    return _bars(column.name, present.tolist(), values.missing_share)


def _histogram(name: str, values: np.ndarray[Any, Any], missing_share: float) -> str:
    """Draw numbers or datetimes in bins that are equally wide."""
    is_time = values.dtype.kind == "M"
    is_whole = values.dtype.kind in "iu"
    numbers = values.astype("datetime64[us]").astype(np.int64) if is_time else values
    edges = _edges(numbers, is_whole=is_whole)
    counts, _ = np.histogram(numbers, edges)
    # The last bin of whole numbers may have fewer of them: its bar is narrower, and no lower.
    heights = counts / np.diff(edges)
    tallest = float(heights.max()) or 1.0

    bottom = _HEIGHT - 18
    starts = _WIDTH * (edges - edges[0]) / (edges[-1] - edges[0])
    body = svg.line(0, bottom, _WIDTH, bottom, "base")
    for number, count in enumerate(counts):
        height = (bottom - 4) * heights[number] / tallest
        share = words.percent(count / max(len(numbers), 1))
        low = _label(edges[number], is_time=is_time)
        high = _label(edges[number + 1], is_time=is_time)
        tip = f"{low} to below {high}: {share}"
        x = starts[number] + 0.5
        bar_width = max(starts[number + 1] - starts[number] - 1, 0.8)
        body += svg.rect(x, bottom - height, bar_width, height, "real", tip=tip)

    least = _label(numbers.min(), is_time=is_time)
    most = _label(numbers.max(), is_time=is_time)
    body += svg.text(0, _HEIGHT - 4, least, "ax")
    body += svg.text(_WIDTH, _HEIGHT - 4, most, "ax", "end")
    if missing_share:
        label = f"{words.percent(missing_share)} missing"
        body += svg.text(_WIDTH / 2, _HEIGHT - 4, label, "ax", "middle")
    title = f"{name} in the rows"
    desc = f"Values from {least} to {most}; {words.percent(missing_share)} are missing."
    return svg.figure(_WIDTH, _HEIGHT, body, title=title, desc=desc)


def _edges(numbers: np.ndarray[Any, Any], *, is_whole: bool) -> np.ndarray[Any, Any]:
    """Return the ends of bins; of whole numbers each bin but the last has as many."""
    low = float(numbers.min())
    high = float(numbers.max())
    if is_whole:
        count = high - low + 1
        step = np.ceil(count / _BINS)
        bins = int(np.ceil(count / step))
        ends: np.ndarray[Any, Any] = low + step * np.arange(bins + 1)
        ends[-1] = high + 1
        return ends
    if high <= low:
        return np.array([low - 0.5, low + 0.5])
    return np.linspace(low, high, _BINS + 1)


def _label(value: Any, *, is_time: bool) -> str:
    """Write a number or a datetime for an axis."""
    if is_time:
        day = np.datetime64(int(value), "us")
        return str(day.astype("datetime64[D]"))
    number = float(value)
    if number.is_integer() and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def _fitting(labels: Sequence[str]) -> list[str]:
    """Return labels, shortened until the widest one has room before the bars."""
    short_labels = list(labels)
    for length in range(_LABEL, 3, -1):
        short_labels = words.shorten_apart(labels, length)
        widest = max(map(_text_width, short_labels), default=0.0)
        if widest <= _LABEL_WIDTH - _LABEL_GAP:
            break
    return short_labels


def _text_width(text: str) -> float:
    """Return about how wide a text is on an axis; in a wide typeface, so that it fits in others."""
    width = 0.0
    for letter in text:
        if letter in _WIDE_LETTERS or ord(letter) >= _IDEOGRAPHS:
            width += _WIDE_LETTER
        elif letter.isupper():
            width += _CAPITAL
        else:
            width += _LETTER
    return width


def _bars(name: str, values: Sequence[Any], missing_share: float) -> str:
    """Draw the most frequent values, each with its share of all rows; the others as one."""
    counts = Counter(map(str, values))
    most_frequent = counts.most_common(_CATEGORIES)
    shown = sum(count for _, count in most_frequent)
    bars = list(most_frequent)
    others = len(counts) - len(most_frequent)
    if others:
        noun = "other" if others == 1 else "others"
        bars.append((f"{others:,} {noun}", len(values) - shown))
    present_share = 1 - missing_share
    shares = [present_share * count / max(len(values), 1) for _, count in bars]
    labels = [label for label, _ in bars]
    if missing_share:
        labels.append("missing")
        shares.append(missing_share)

    left = _LABEL_WIDTH
    span = _WIDTH - left - _SHARE_WIDTH
    longest = max(shares, default=0.0) or 1.0
    short_labels = _fitting(labels)
    body = ""
    for number, share in enumerate(shares):
        y = _PITCH * number + 2
        label = short_labels[number]
        body += svg.text(
            left - _LABEL_GAP, y + 11, label, "ax", "end", whole=labels[number]
        )
        width = span * share / longest
        body += svg.rect(left, y + 2, width, 11, "real", rx=1.5)
        body += svg.text(left + width + 5, y + 11, words.percent(share), "ax")
    if not shares:
        body = svg.text(0, 13, "no rows", "ax")
    height = _PITCH * max(len(shares), 1) + 4
    title = f"{name} in the rows"
    desc = f"{len(counts):,} values; {words.percent(missing_share)} are missing."
    return svg.figure(_WIDTH, height, body, title=title, desc=desc)
