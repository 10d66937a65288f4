"""A fit as its report shows it: columns as codes with labels, few enough to draw.

**Guarantee**: which categories of a wide column are shown is decided by the synthetic table alone,
so nothing of real rows enters the labels (post-processing, Dwork & Roth 2014, proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from siloweave.algorithms.fitted import Fitted
from siloweave.algorithms.generated import Generated
from siloweave.algorithms.outcome import Outcome
from siloweave.tables.bins import BINNED, above, as_moments
from siloweave.tables.codes import Codes, Domain, Encoder
from siloweave.tables.keys import fold_in
from siloweave.tables.read import Table
from siloweave.tables.schema import Column

__all__ = ["Shown", "labels_of", "shown"]

_BINS = 32  # of a column of numbers, where the model has none
_TINY = 1e-300  # below it in size is 0: bins may be cut just above
_WIDE, _KEPT = 64, 40  # a column with more codes is shown by its most frequent ones
_ROWS = 20_000  # that pictures are made of
_MANY = 200_000  # rows that errors are measured on; exact marginals can need gigabytes


@dataclass(frozen=True)
class Shown:
    """Synthetic rows as codes, and real rows as the same codes.

    Attributes:
        encoder: Table to codes.
        bars: The same for single columns: a model's bins may hold rows evenly, and bars of such
            bins would all be of one height, so here bins are equally wide.
        codes: Synthetic rows, for what columns have to do with each other.
        singles: The same rows by `bars`.
        many: Synthetic rows for errors; empty if they were not asked for.
        rows: How many rows the synthetic table has; where none was given, as many as the model
            stands for.
        kept: Per wide column the codes that are shown one by one; the others are one code.
    """

    encoder: Encoder
    bars: Encoder
    codes: Codes
    singles: Codes
    many: Codes
    rows: int
    kept: Mapping[str, NDArray[np.intp]] = field(default_factory=dict)

    def encode(self, table: Table) -> Codes:
        """Real rows in the codes of the synthetic ones."""
        return _gathered(self.encoder.encode(table), self.kept)

    def single(self, table: Table) -> Codes:
        """Real rows in the codes of `singles`."""
        return _gathered(self.bars.encode(table), self.kept)

    def labels(self, name: str) -> tuple[str, ...]:
        """One label per code of a column of `singles`."""
        labels = labels_of(self.bars, name)
        if name not in self.kept:
            return labels
        return (*(labels[code] for code in self.kept[name]), "all others")


def shown(fitted: Outcome, synthetic: Table | None = None, *, errors: bool = False) -> Shown:
    """How a fit is shown.

    Args:
        fitted: The fit.
        synthetic: Rows that were drawn from it, so that a slow sampler is not asked twice.
        errors: Whether errors will be measured.
    """
    if isinstance(fitted, Fitted):
        total = round(fitted.model.total)
        codes = fitted.sample_codes(min(total, _ROWS), seed=0)
        rows = total if synthetic is None else synthetic.num_rows
        bars, singles = fitted.encoder, codes
        if bars.cuts:
            drawn = bars.decode(codes, key=fold_in(0, "bars"))
            bars = replace(bars, cuts={})
            singles = bars.encode(drawn)
        many = fitted.sample_codes(_MANY if errors else 1, seed=0)
        return Shown(fitted.encoder, bars, codes, singles, many, rows)
    assert isinstance(fitted, Generated)
    encoder = Encoder(fitted.features.schema, _BINS)
    table = fitted.sample_table(seed=0) if synthetic is None else synthetic
    rows = fitted.num_rows if synthetic is None else synthetic.num_rows
    if table.num_rows > _MANY:
        table = table.take(range(_MANY))
    codes = encoder.encode(table)
    sizes = zip(codes.domain.names, codes.domain.sizes, strict=True)
    kept = {name: _frequent(codes.column(name), size) for name, size in sizes if size > _WIDE}
    many = _gathered(codes, kept)
    few = many.take(np.arange(min(many.num_rows, _ROWS)))
    return Shown(encoder, encoder, few, few, many, rows, kept)


def _frequent(column: NDArray[np.unsignedinteger], size: int) -> NDArray[np.intp]:
    counts = np.bincount(column, minlength=size)
    return np.sort(np.argsort(-counts, kind="stable")[:_KEPT])


def _gathered(codes: Codes, kept: Mapping[str, NDArray[np.intp]]) -> Codes:
    if not kept:
        return codes
    sizes, columns = [], []
    for name, size in zip(codes.domain.names, codes.domain.sizes, strict=True):
        column = codes.column(name)
        if name in kept:
            place = np.full(size, len(kept[name]))
            place[kept[name]] = np.arange(len(kept[name]))
            column, size = place[column], len(kept[name]) + 1
        sizes.append(size)
        columns.append(column)
    return Codes(Domain(codes.domain.names, tuple(sizes)), tuple(columns))


def labels_of(encoder: Encoder, name: str) -> tuple[str, ...]:
    """One label per code of a column."""
    column = encoder.schema[name]
    if column.kind in BINNED:
        labels = [_span(column, a, b) for a, b in pairwise(encoder.edges(name).tolist())]
    elif column.kind == "boolean":
        labels = ["False", "True"]
    else:
        labels = [str(c) for c in column.categories]
    return tuple(labels + (["missing"] if column.missing else []))


def _span(column: Column, start: float, end: float) -> str:
    """A bin, from its first to its last value."""
    if column.kind == "continuous":
        if end <= above(start):
            return _number(start)
        return f"{_number(start)} to {_number(end)}"
    first, last = int(start), int(end) - 1
    if column.kind == "datetime":
        moments = as_moments(column, np.array([first, last]), None).tolist()
        texts = [str(moment).removesuffix(" 00:00:00") for moment in moments]
    else:
        texts = [str(first), str(last)]
    return texts[0] if first == last else " to ".join(texts)


def _number(value: float) -> str:
    value = value if abs(value) > _TINY else 0.0
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
