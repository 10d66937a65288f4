"""Singling out: predicates that fit one synthetic row, and how many of them fit one real row.

After Giomi et al. (2023), "A unified framework for quantifying privacy risk in synthetic data",
PoPETs 2023(2), and Cohen and Nissim (2020), "Towards formalizing the GDPR's notion of
singling out", PNAS 117(15). Repeated rows of a table count once, as in the authors' tool.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from siloweave.attacks.neighbours import Ordinals, row_ids
from siloweave.attacks.results import RiskPart, compared
from siloweave.errors import InputError
from siloweave.tables.arrays import Bools, Ints
from siloweave.tables.keys import Key, fold_in, generator

FEWEST = 10
"""Predicates without which the attack is not made."""

ATTEMPTS = 1_000_000  # that are made at most, whatever number of predicates is wanted
_BATCH = 2048  # predicates made at a time
_PAIRS = 1 << 20  # of predicates and rows that are tried at a time
_FEW = 200_000  # predicates of which all are made, in random order

Row = list[int]  # one number for each condition of a predicate


@dataclass(frozen=True, eq=False)
class Predicates:
    """Conjunctions of conditions: the value's place in each of some columns is in an interval.

    Attributes:
        columns: int64, (predicates, conditions): the columns.
        low: The first place that fits, of the same shape.
        high: The last one.
        negated: Whether places outside are meant.
    """

    columns: Ints
    low: Ints
    high: Ints
    negated: Bools

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def fields(self) -> tuple[NDArray[Any], ...]:
        """The four arrays."""
        return self.columns, self.low, self.high, self.negated

    def take(self, places: Any) -> "Predicates":
        """Some of the predicates."""
        return Predicates(*(field[places] for field in self.fields))


def singling_out(
    values: Ordinals,
    variant: Literal["univariate", "multivariate"],
    *,
    attacks: int,
    key: Key,
    columns: int = 3,
    confidence: float = 0.95,
    owners: Mapping[str, Ints] | None = None,
) -> RiskPart:
    """Single training rows out by predicates that fit exactly one synthetic row.

    *Univariate* predicates say that a value is one that occurs once, is missing where one row's
    is, or is as extreme as any. *Multivariate* ones take a synthetic row and some columns: numbers
    are at least or at most the row's, on its side of the median, other values equal the row's.
    A predicate succeeds if it fits exactly one real row. The control's successes are rescaled to
    the number of training rows: exactly in expectation where there are fewer of these, else by
    the model of uniqueness of Giomi et al.

    So many predicates are wanted as `attacks` says, of `columns` conditions if multivariate. The
    result's note says if there are fewer, and fewer than `FEWEST` raise `InputError`.

    With `owners`, whose each row of training and control is, a predicate succeeds if it fits rows
    of exactly one unit, however many; and the control is rescaled to the number of training units.
    """
    rng = generator(fold_in(key, "singling_out", variant))
    tables = _indexes(values, owners)
    synthetic = tables["synthetic"]
    width = 1 if variant == "univariate" else min(columns, len(values.names))
    if variant == "univariate":
        found = _univariate(values, synthetic, attacks, rng)
    else:
        found = _multivariate(values, synthetic, attacks, width, rng)
    if len(found) < FEWEST:
        raise InputError(
            f"only {len(found)} {variant} predicates fit exactly one row of the synthetic table; "
            f"{FEWEST} or more are needed to say anything"
        )
    guesses = _random(values, synthetic, attacks, width, rng)
    singled = tables["control"].counts(found)
    sizes = (tables["control"].units, tables["train"].units)
    short = f"only {len(found)} of {attacks} predicates could be made"
    return compared(
        "singling_out",
        variant,
        (int((tables["train"].counts(found) == 1).sum()), len(found)),
        (_rescaled(singled, *sizes), len(found)),
        (int((tables["train"].counts(guesses) == 1).sum()), len(guesses)),
        attacks=len(found),
        note=short if len(found) < attacks else "",
        confidence=confidence,
    )


class _Index:
    """Counts the rows, or units, of a table that fit predicates, narrowest condition first."""

    def __init__(self, codes: NDArray[np.int32], owners: Ints | None = None) -> None:
        self.codes, self.rows, self.owners = codes, codes.shape[1], owners
        self.units = self.rows if owners is None else len(np.unique(owners))
        self._order = np.argsort(codes, axis=1, kind="stable")
        self._sorted = np.take_along_axis(codes, self._order, axis=1)

    def bounds(self, predicates: Predicates) -> tuple[Ints, Ints]:
        """For each condition, where the rows in its interval begin and end in sorted order."""
        first, last = np.empty_like(predicates.low), np.empty_like(predicates.high)
        for column in np.unique(predicates.columns):
            here = predicates.columns == column
            ordered = self._sorted[column]
            first[here] = np.searchsorted(ordered, predicates.low[here])
            last[here] = np.searchsorted(ordered, predicates.high[here], side="right")
        return first, np.maximum(first, last)

    def counts(self, predicates: Predicates) -> Ints:
        """How many rows, or units with such a row, fit each predicate."""
        first, last = self.bounds(predicates)
        sizes = np.where(predicates.negated, self.rows - (last - first), last - first)
        if predicates.columns.shape[1] == 1 and self.owners is None:
            return sizes[:, 0]
        starts = np.where(predicates.negated, self.rows + 1, sizes).argmin(axis=1)
        rows = zip(*(a.tolist() for a in (*predicates.fields, first, last, starts)), strict=True)
        return np.array([self._count(*row) for row in rows], np.int64)

    def _count(
        self, columns: Row, low: Row, high: Row, negated: Row, first: Row, last: Row, start: int
    ) -> int:
        """Rows or units that fit one predicate; `start` is its narrowest condition."""
        fits = self._order[columns[start], first[start] : last[start]]
        if negated[start]:
            outside = np.ones(self.rows, np.bool_)
            outside[fits] = False
            fits = np.flatnonzero(outside)
        for w, column in enumerate(columns):
            if w != start:
                codes = self.codes[column].take(fits)
                inside = (codes >= low[w]) & (codes <= high[w])
                fits = fits[~inside if negated[w] else inside]
        return len(fits) if self.owners is None else len(np.unique(self.owners[fits]))


def _alone(predicates: Predicates, codes: NDArray[Any]) -> Predicates:
    """Keep predicates, none negated and all of which fit some row, that fit no other.

    They are tried on a few rows first, and those that are left on four times as many, until rows
    run out.
    """
    size = 32
    while len(predicates):
        step = max(1, _PAIRS // size)
        parts = [predicates.take(slice(i, i + step)) for i in range(0, len(predicates), step)]
        counts = np.concatenate([_fitting(part, codes[:, :size]) for part in parts])
        predicates = predicates.take(np.flatnonzero(counts <= 1))
        if size >= codes.shape[1]:
            break
        size *= 4
    return predicates


def _fitting(predicates: Predicates, codes: NDArray[Any]) -> Ints:
    """How many of some rows fit each predicate, none of which is negated."""
    low: NDArray[Any] = predicates.low.astype(codes.dtype)
    span: NDArray[Any] = (predicates.high - predicates.low).astype(codes.dtype)
    fits = np.ones((len(predicates), codes.shape[1]), np.bool_)
    for w in range(low.shape[1]):
        above = codes[predicates.columns[:, w]]
        above -= low[:, [w]]  # what is below the interval wraps round to a large number
        fits &= above <= span[:, [w]]
    counts: Ints = np.count_nonzero(fits, axis=1)
    return counts


def _indexes(values: Ordinals, owners: Mapping[str, Ints] | None) -> dict[str, _Index]:
    """Each table's rows, repeated ones once; those of different units are different rows."""
    by_unit = owners if owners is not None and _several_rows(owners) else {}
    found = {table: _Index(codes) for table, codes in _distinct(values).items()}
    for table, whose in by_unit.items():
        found[table] = _Index(values.codes[table], whose)
    return found


def _several_rows(owners: Mapping[str, Ints]) -> bool:
    """Whether any unit has more than one row."""
    return any(len(np.unique(whose)) < len(whose) for whose in owners.values())


def _distinct(values: Ordinals) -> dict[str, NDArray[np.int32]]:
    """Each table's rows, repeated ones once."""
    kept = {t: np.sort(np.unique(ids, return_index=True)[1]) for t, ids in row_ids(values).items()}
    return {table: values.codes[table][:, rows] for table, rows in kept.items()}


def _univariate(
    values: Ordinals, synthetic: _Index, wanted: int, rng: np.random.Generator
) -> Predicates:
    """Conditions on rare values and on the ends of the range, in random order."""
    rows = []
    for column, numeric in enumerate(values.numeric):
        codes, counts = np.unique(synthetic.codes[column], return_counts=True)
        once = codes[counts == 1]
        rows += [(column, code, code) for code in once]
        known = codes[codes < values.missing(column)]
        if numeric and len(known):
            rows += [(column, 0, known[0]), (column, known[-1], values.missing(column) - 1)]
    if not rows:
        return _single(np.empty((0, 3), np.int64))
    found = _single(rng.permutation(np.unique(np.array(rows, np.int64), axis=0)))
    return found.take(np.flatnonzero(synthetic.counts(found) == 1)[:wanted])


def _single(rows: Ints) -> Predicates:
    column, low, high = (rows[:, [k]] for k in range(3))
    return Predicates(column, low, high, np.zeros((len(rows), 1), np.bool_))


def _multivariate(
    values: Ordinals, synthetic: _Index, wanted: int, width: int, rng: np.random.Generator
) -> Predicates:
    """Conditions that random synthetic rows meet, kept where no other synthetic row does."""
    kind: Any = np.uint16 if synthetic.codes.max() < 1 << 16 else np.uint32
    shuffled = synthetic.codes.astype(kind)[:, rng.permutation(synthetic.rows)]
    above = np.array([_median(values, synthetic, c) for c in range(len(values.names))])
    seen: set[bytes] = set()
    kept: list[Predicates] = []
    for drawn in _drawn(values, synthetic, width, above, rng):
        drawn = _alone(drawn, shuffled)
        kept.append(drawn.take(_fresh(drawn, seen)))
        if sum(map(len, kept)) >= wanted:
            break
    fields = zip(*(some.fields for some in kept), strict=True)
    return Predicates(*(np.concatenate(parts)[:wanted] for parts in fields))


def _drawn(
    values: Ordinals, synthetic: _Index, width: int, above: Ints, rng: np.random.Generator
) -> Iterator[Predicates]:
    """Batches of predicates made from random rows and columns."""
    numeric = np.array(values.numeric)
    gap = np.array([values.missing(c) for c in range(len(values.names))])
    for rows, columns in _choices(synthetic.rows, len(values.names), width, rng):
        codes = synthetic.codes[columns, rows[:, None]].astype(np.int64)
        ordered = numeric[columns] & (codes < gap[columns])
        upper = codes >= above[columns]
        low = np.where(ordered & ~upper, 0, codes)
        high = np.where(ordered & upper, gap[columns] - 1, codes)
        yield Predicates(columns, low, high, np.zeros(columns.shape, np.bool_))


def _choices(
    rows: int, columns: int, width: int, rng: np.random.Generator
) -> Iterator[tuple[Ints, Ints]]:
    """Batches of random rows and sets of columns; each pair once where there are few pairs."""
    if rows * comb(columns, width) <= _FEW:
        sets = np.array(list(combinations(range(columns), width)), np.int64)
        order = rng.permutation(rows * len(sets))
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            yield part % rows, sets[part // rows]
        return
    for _ in range(0, ATTEMPTS, _BATCH):
        chosen = rng.random((_BATCH, columns)).argpartition(width - 1, axis=1)[:, :width]
        yield rng.integers(rows, size=_BATCH), np.sort(chosen, axis=1)


def _fresh(drawn: Predicates, seen: set[bytes]) -> Ints:
    """Places of predicates that were not seen before; they are seen now."""
    places = []
    for place, row in enumerate(np.hstack([drawn.columns, drawn.low, drawn.high])):
        text = row.tobytes()
        if text not in seen:
            seen.add(text)
            places.append(place)
    return np.array(places, np.int64)


def _median(values: Ordinals, synthetic: _Index, column: int) -> int:
    """The first place above the median of a column of numbers."""
    codes = synthetic.codes[column]
    known = codes[codes < values.missing(column)]
    if not values.numeric[column] or not len(known):
        return 0
    levels = values.levels[column]
    return int(np.searchsorted(levels, np.median(levels[known]), side="right"))


def _random(
    values: Ordinals, synthetic: _Index, wanted: int, width: int, rng: np.random.Generator
) -> Predicates:
    """Conditions with random columns, operators and values that occur."""
    columns = rng.random((wanted, len(values.names))).argsort(axis=1)[:, :width]
    low = np.empty(columns.shape, np.int64)
    high = np.empty_like(low)
    negated = np.empty(columns.shape, np.bool_)
    for column in np.unique(columns):
        here = columns == column
        size, gap = int(here.sum()), values.missing(column)
        code = rng.choice(np.unique(synthetic.codes[column]), size).astype(np.int64)
        # Equal, unequal; and for numbers >, <, >= and <=.
        operator = rng.integers(6 if values.numeric[column] else 2, size=size)
        operator = np.where(code == gap, operator % 2, operator)
        upper, lower = np.isin(operator, (2, 4)), np.isin(operator, (3, 5))
        low[here] = np.where(lower, 0, code + (operator == 2))
        high[here] = np.where(upper, gap - 1, code - (operator == 3))
        negated[here] = operator == 1
    return Predicates(columns, low, high, negated)


def expected_singled(counts: Ints, rows: int, size: int) -> float:
    """How many predicates fit exactly one of `size` rows drawn from a table of `rows`, on average.

    `counts` says how many rows of the table each predicate fits; this is a sum of hypergeometric
    chances.
    """
    from scipy.special import gammaln

    fits = counts[(counts > 0) & (rows - counts >= size - 1)].astype(np.float64)
    log = gammaln(rows - fits + 1) - gammaln(size) - gammaln(rows - fits - size + 2)
    log -= gammaln(rows + 1) - gammaln(size + 1) - gammaln(rows - size + 1)
    return float((fits * np.exp(log)).sum())


def _rescaled(counts: Ints, rows: int, wanted: int) -> float:
    """Predicates that would fit exactly one row if the control had as many as wanted."""
    singled = float((counts == 1).sum())
    if wanted <= rows:
        return expected_singled(counts, rows, wanted) if wanted < rows else singled
    if not singled:
        return 0.0
    from scipy.optimize import curve_fit

    sizes = np.unique(np.linspace(min(1000, rows), rows, 10).astype(np.int64))
    means = [expected_singled(counts, rows, int(size)) for size in sizes]
    # Weights of predicates spread evenly from 0 to a largest one: Giomi et al., appendix A.
    start = (1 / rows, singled / _uniqueness(np.float64(rows), 1 / rows, 1.0))
    if len(sizes) < 3:
        fitted: Any = start
    else:
        fitted, _ = curve_fit(
            _uniqueness, sizes, means, p0=start, bounds=(0, (1, np.inf)), max_nfev=10_000
        )
    ratio = _uniqueness(np.float64(wanted), *fitted) / _uniqueness(np.float64(rows), *fitted)
    return min(float(len(counts)), singled * float(ratio))


def _uniqueness(size: Any, widest: float, scale: float) -> Any:
    """Mean chance that a predicate fits exactly one of `size` rows."""
    return scale * (1 - (size * widest + 1) * (1 - widest) ** size) / (size + 1)
