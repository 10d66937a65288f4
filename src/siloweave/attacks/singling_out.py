"""Singling out: predicates that fit one synthetic row, and how many of them fit one real row.

After Giomi et al. (2023), "A unified framework for quantifying privacy risk in synthetic data",
PoPETs 2023(2), and Cohen and Nissim (2020), "Towards formalizing the GDPR's notion of
singling out", PNAS 117(15). Repeated rows of a table count once, as in the authors' tool.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, Literal, NamedTuple

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


@dataclass(frozen=True, eq=False)
class Predicates:
    """Conjunctions of conditions: in each of some columns, the value's code is in an interval.

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
        """The four arrays of the predicates."""
        return self.columns, self.low, self.high, self.negated

    def take(self, places: Any) -> "Predicates":
        """Select some of the predicates by place."""
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

    # Predicates from the synthetic table, and as a baseline from random values.
    if variant == "univariate":
        width = 1
        predicates = _univariate(values, synthetic, attacks, rng)
    else:
        width = min(columns, len(values.names))
        predicates = _multivariate(values, synthetic, attacks, width, rng)
    count = len(predicates)
    if count < FEWEST:
        raise InputError(
            f"only {count} {variant} predicates fit exactly one row of the synthetic table; "
            f"{FEWEST} or more are needed to say anything"
        )
    guesses = _random(values, synthetic, attacks, width, rng)

    # How many of them single a real unit out.
    train = tables["train"]
    control = tables["control"]
    train_successes = int((train.counts(predicates) == 1).sum())
    control_successes = _rescaled(
        control.counts(predicates), control.units, train.units
    )
    guess_successes = int((train.counts(guesses) == 1).sum())
    note = ""
    if count < attacks:
        note = f"only {count} of {attacks} predicates could be made"
    return compared(
        "singling_out",
        variant,
        (train_successes, count),
        (control_successes, count),
        (guess_successes, len(guesses)),
        attacks=count,
        note=note,
        confidence=confidence,
    )


class _Condition(NamedTuple):
    """One condition of a predicate, and where the rows in its interval are in sorted order."""

    column: int
    low: int
    high: int
    negated: bool
    first: int
    last: int


class _Index:
    """An index that counts the rows, or units, of a table that fit a predicate.

    It looks at the narrowest condition first.
    """

    def __init__(self, codes: NDArray[np.int32], owners: Ints | None = None) -> None:
        self.codes = codes
        self.rows = codes.shape[1]
        self.owners = owners
        self.units = self.rows if owners is None else len(np.unique(owners))
        self._order = np.argsort(codes, axis=1, kind="stable")
        self._sorted = np.take_along_axis(codes, self._order, axis=1)

    def bounds(self, predicates: Predicates) -> tuple[Ints, Ints]:
        """Return where the rows of each condition's interval begin and end in sorted order."""
        first = np.empty_like(predicates.low)
        last = np.empty_like(predicates.high)
        for column in np.unique(predicates.columns):
            is_column = predicates.columns == column
            ordered = self._sorted[column]
            first[is_column] = np.searchsorted(ordered, predicates.low[is_column])
            last[is_column] = np.searchsorted(
                ordered, predicates.high[is_column], side="right"
            )
        # An empty interval, whose high end is below its low one, has no row.
        return first, np.maximum(first, last)

    def counts(self, predicates: Predicates) -> Ints:
        """Count the rows, or units with such a row, that fit each predicate."""
        first, last = self.bounds(predicates)
        sizes = np.where(predicates.negated, self.rows - (last - first), last - first)
        num_conditions = predicates.columns.shape[1]
        if num_conditions == 1 and self.owners is None:
            return sizes[:, 0]

        # Rows are gathered by the narrowest condition, a negated one only where all are.
        starts = np.where(predicates.negated, self.rows + 1, sizes).argmin(axis=1)
        arrays = (*predicates.fields, first, last)
        lists = [array.tolist() for array in arrays]
        counts = []
        for start, *predicate in zip(starts.tolist(), *lists, strict=True):
            conditions = [
                _Condition(*fields) for fields in zip(*predicate, strict=True)
            ]
            narrowest = conditions.pop(start)
            counts.append(self._count(narrowest, conditions))
        return np.array(counts, np.int64)

    def _count(self, narrowest: _Condition, others: Sequence[_Condition]) -> int:
        """Count the rows or units that fit one predicate, from those of its narrowest condition."""
        rows = self._order[narrowest.column, narrowest.first : narrowest.last]
        if narrowest.negated:
            outside = np.ones(self.rows, np.bool_)
            outside[rows] = False
            rows = np.flatnonzero(outside)
        for condition in others:
            codes = self.codes[condition.column].take(rows)
            is_inside = (codes >= condition.low) & (codes <= condition.high)
            fits = ~is_inside if condition.negated else is_inside
            rows = rows[fits]
        return len(rows) if self.owners is None else len(np.unique(self.owners[rows]))


def _alone(predicates: Predicates, codes: NDArray[Any]) -> Predicates:
    """Return the predicates that fit exactly one row; each fits some row, and none is negated.

    They are tried on a few rows first, and those that remain on four times as many, until rows
    run out.
    """
    num_rows = 32
    while len(predicates):
        step = max(1, _PAIRS // num_rows)
        counts = []
        for start in range(0, len(predicates), step):
            part = predicates.take(slice(start, start + step))
            counts.append(_num_fitting(part, codes[:, :num_rows]))
        # One that fits no row so far is tried on more.
        predicates = predicates.take(np.flatnonzero(np.concatenate(counts) <= 1))
        if num_rows >= codes.shape[1]:
            break
        num_rows *= 4
    return predicates


def _num_fitting(predicates: Predicates, codes: NDArray[Any]) -> Ints:
    """Count how many of some rows fit each predicate, none of which is negated."""
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
    """Index each table's rows, repeated ones once; those of different units are different rows."""
    indexes = {table: _Index(codes) for table, codes in _distinct(values).items()}
    if owners is not None and _has_shared_units(owners):
        for table, table_owners in owners.items():
            indexes[table] = _Index(values.codes[table], table_owners)
    return indexes


def _has_shared_units(owners: Mapping[str, Ints]) -> bool:
    """Return whether any unit has more than one row."""
    return any(
        len(np.unique(table_owners)) < len(table_owners)
        for table_owners in owners.values()
    )


def _distinct(values: Ordinals) -> dict[str, NDArray[np.int32]]:
    """Return each table's rows, repeated ones once."""
    distinct = {}
    for table, ids in row_ids(values).items():
        _, first_rows = np.unique(ids, return_index=True)
        # In the order of the table: the draws of predicates depend on it.
        distinct[table] = values.codes[table][:, np.sort(first_rows)]
    return distinct


def _univariate(
    values: Ordinals, synthetic: _Index, count: int, rng: np.random.Generator
) -> Predicates:
    """Make conditions on rare values and on the ends of the range, in random order."""
    conditions = []  # column, low and high
    for column, is_numeric in enumerate(values.numeric):
        codes, counts = np.unique(synthetic.codes[column], return_counts=True)
        conditions += [(column, code, code) for code in codes[counts == 1]]
        missing = values.missing(column)
        present = codes[codes < missing]
        if is_numeric and len(present):
            conditions.append((column, 0, present[0]))
            conditions.append((column, present[-1], missing - 1))
    if not conditions:
        return _single(np.empty((0, 3), np.int64))

    # The lowest number may be rare too: each condition once.
    distinct = np.unique(np.array(conditions, np.int64), axis=0)
    predicates = _single(rng.permutation(distinct))
    places = np.flatnonzero(synthetic.counts(predicates) == 1)
    return predicates.take(places[:count])


def _single(conditions: Ints) -> Predicates:
    """Return predicates of one condition each, from columns, lows and highs, (conditions, 3)."""
    columns = conditions[:, [0]]
    low = conditions[:, [1]]
    high = conditions[:, [2]]
    negated = np.zeros((len(conditions), 1), np.bool_)
    return Predicates(columns, low, high, negated)


def _multivariate(
    values: Ordinals,
    synthetic: _Index,
    count: int,
    width: int,
    rng: np.random.Generator,
) -> Predicates:
    """Make conditions that random synthetic rows meet and no other synthetic row does."""
    # Small codes, in random order: most candidates fit a second row among the first few.
    code_type: Any = np.uint16 if synthetic.codes.max() < 1 << 16 else np.uint32
    order = rng.permutation(synthetic.rows)
    shuffled = synthetic.codes.astype(code_type)[:, order]
    above = np.array(
        [_median(values, synthetic, column) for column in range(len(values.names))]
    )

    fingerprints: set[bytes] = set()
    batches: list[Predicates] = []
    for candidates in _candidates(values, synthetic, width, above, rng):
        alone = _alone(candidates, shuffled)
        batches.append(alone.take(_new_places(alone, fingerprints)))
        if sum(len(batch) for batch in batches) >= count:
            break
    fields_by_kind = zip(*(batch.fields for batch in batches), strict=True)
    return Predicates(*(np.concatenate(parts)[:count] for parts in fields_by_kind))


def _candidates(
    values: Ordinals,
    synthetic: _Index,
    width: int,
    above: Ints,
    rng: np.random.Generator,
) -> Iterator[Predicates]:
    """Yield batches of predicates made from random rows and columns."""
    num_columns = len(values.names)
    is_numeric = np.array(values.numeric)
    missing = np.array([values.missing(column) for column in range(num_columns)])
    for rows, columns in _choices(synthetic.rows, num_columns, width, rng):
        codes = synthetic.codes[columns, rows[:, None]].astype(np.int64)
        # Numbers: on the row's side of the median, up to the end of the range. Others: equal.
        is_number = is_numeric[columns] & (codes < missing[columns])
        is_upper = codes >= above[columns]
        low = np.where(is_number & ~is_upper, 0, codes)
        high = np.where(is_number & is_upper, missing[columns] - 1, codes)
        yield Predicates(columns, low, high, np.zeros(columns.shape, np.bool_))


def _choices(
    rows: int, columns: int, width: int, rng: np.random.Generator
) -> Iterator[tuple[Ints, Ints]]:
    """Yield random pairs of a row and a set of columns in batches; few pairs come once each."""
    if rows * comb(columns, width) <= _FEW:
        column_sets = np.array(list(combinations(range(columns), width)), np.int64)
        order = rng.permutation(rows * len(column_sets))
        for start in range(0, len(order), _BATCH):
            pairs = order[start : start + _BATCH]
            yield pairs % rows, column_sets[pairs // rows]
        return
    for _ in range(0, ATTEMPTS, _BATCH):
        # The places of the `width` smallest of random numbers are a random set of columns.
        smallest = rng.random((_BATCH, columns)).argpartition(width - 1, axis=1)[
            :, :width
        ]
        yield rng.integers(rows, size=_BATCH), np.sort(smallest, axis=1)


def _new_places(predicates: Predicates, fingerprints: set[bytes]) -> Ints:
    """Return the places of predicates without a fingerprint yet, and add their fingerprints."""
    places = []
    fields = np.hstack([predicates.columns, predicates.low, predicates.high])
    for place, row in enumerate(fields):
        fingerprint = row.tobytes()
        if fingerprint not in fingerprints:
            fingerprints.add(fingerprint)
            places.append(place)
    return np.array(places, np.int64)


def _median(values: Ordinals, synthetic: _Index, column: int) -> int:
    """Return the first place above the median of a column of numbers; 0 for other columns."""
    codes = synthetic.codes[column]
    present = codes[codes < values.missing(column)]
    if not values.numeric[column] or not len(present):
        return 0
    levels = values.levels[column]
    median = np.median(levels[present])
    return int(np.searchsorted(levels, median, side="right"))


def _random(
    values: Ordinals,
    synthetic: _Index,
    count: int,
    width: int,
    rng: np.random.Generator,
) -> Predicates:
    """Make conditions with random columns, operators and values that occur."""
    columns = rng.random((count, len(values.names))).argsort(axis=1)[:, :width]
    low = np.empty(columns.shape, np.int64)
    high = np.empty_like(low)
    negated = np.empty(columns.shape, np.bool_)
    for column in np.unique(columns):
        is_column = columns == column
        size = int(is_column.sum())
        missing = values.missing(column)
        code = rng.choice(np.unique(synthetic.codes[column]), size).astype(np.int64)

        # 0: equal, 1: unequal; and for numbers 2: >, 3: <, 4: >=, 5: <=. A missing value has no
        # order, so that only the first two are left for it.
        num_operators = 6 if values.numeric[column] else 2
        operator = rng.integers(num_operators, size=size)
        operator = np.where(code == missing, operator % 2, operator)
        is_upper = np.isin(operator, (2, 4))
        is_lower = np.isin(operator, (3, 5))
        low[is_column] = np.where(is_lower, 0, code + (operator == 2))
        high[is_column] = np.where(is_upper, missing - 1, code - (operator == 3))
        negated[is_column] = operator == 1
    return Predicates(columns, low, high, negated)


def expected_singled(counts: Ints, rows: int, size: int) -> float:
    """Return how many predicates fit exactly one of `size` rows drawn from `rows`, on average.

    `counts` says how many rows of the whole table each predicate fits; this is a sum of
    hypergeometric chances.
    """
    from scipy.special import gammaln

    # Drawing one of k fitting rows and all others from the rest: k C(rows - k, size - 1) over
    # C(rows, size). Predicates that leave too few others have no chance.
    is_possible = (counts > 0) & (rows - counts >= size - 1)
    k = counts[is_possible].astype(np.float64)
    log = gammaln(rows - k + 1) - gammaln(size) - gammaln(rows - k - size + 2)
    log -= gammaln(rows + 1) - gammaln(size + 1) - gammaln(rows - size + 1)
    return float((k * np.exp(log)).sum())


def _rescaled(counts: Ints, rows: int, target_rows: int) -> float:
    """Return how many predicates would fit exactly one of as many control rows as are wanted."""
    singled = float((counts == 1).sum())
    if target_rows == rows:
        return singled
    if target_rows < rows:
        return expected_singled(counts, rows, target_rows)
    if not singled:
        return 0.0
    from scipy.optimize import curve_fit

    # More rows than there are: extrapolate from the means over parts of the control.
    sizes = np.unique(np.linspace(min(1000, rows), rows, 10).astype(np.int64))
    means = [expected_singled(counts, rows, int(size)) for size in sizes]

    # Weights of predicates spread evenly from 0 to a largest one: Giomi et al., appendix A.
    start = (1 / rows, singled / _uniqueness(np.float64(rows), 1 / rows, 1.0))
    parameters: Any = start
    if len(sizes) >= 3:  # two parameters take more points than two
        parameters, _ = curve_fit(
            _uniqueness,
            sizes,
            means,
            p0=start,
            bounds=(0, (1, np.inf)),
            max_nfev=10_000,
        )
    of_target = _uniqueness(np.float64(target_rows), *parameters)
    of_rows = _uniqueness(np.float64(rows), *parameters)
    rescaled = singled * float(of_target / of_rows)
    return min(float(len(counts)), rescaled)


def _uniqueness(size: Any, widest: float, scale: float) -> Any:
    """Return the mean chance that a predicate fits exactly one of `size` rows.

    The mean of n w (1 - w)^(n - 1) over weights w from 0 to `widest`, but for a factor.
    """
    return scale * (1 - (size * widest + 1) * (1 - widest) ** size) / (size + 1)
