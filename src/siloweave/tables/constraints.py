"""Rules that every row of a table keeps, as a schema declares them.

A constraint is a public fact, as a column's bounds are: declared, or taken from rows and marked
so. What is checked here needs no row. `modelled.py` holds rows to constraints, and says what
methods learn instead of the columns. The Synthetic Data Vault (Patki, Wedge & Veeramachaneni 2016)
has most of these kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise, product
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from siloweave.errors import SchemaError
from siloweave.tables.bins import coarser_step, is_date, last_of, number_at
from siloweave.tables.column import Column, Value
from siloweave.tables.formulas import (
    CALENDAR,
    DATED,
    OF_ONE,
    raw_values,
    rounded_values,
)

_NUMERIC = ("integer", "continuous", "datetime")


class _Constraint(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    kw_only=True,
    tag_field="constraint",
    forbid_unknown_fields=True,
):
    """The part that all constraints share.

    Attributes:
        from_data: Whether rows proposed it and nobody has reviewed it.
        why: What was seen in the rows that proposed it. It is from data, no fact, and
            `Schema.declared` removes it.
    """

    from_data: bool = False
    why: str = ""


class FixedCombinations(_Constraint, frozen=True, tag="fixed_combinations"):
    """Columns whose values occur together only in certain combinations.

    Methods learn one column with a value for each combination.

    Args:
        columns: Two or more, of any kind that is modelled.
        rows: The allowed combinations, one value for each column; None is a missing value. Empty:
            left open, to be learned privately (`learn=`) as the categories of one column are.

    Example:
        >>> FixedCombinations(("town", "country"), (("Ulm", "DE"), ("Linz", "AT"))).words
        'fixed combinations of town, country'
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...] = ()

    @property
    def words(self) -> str:
        """The constraint in a few words."""
        return f"fixed combinations of {', '.join(self.columns)}"

    def check(self, declared: Mapping[str, Column]) -> None:
        """Raise SchemaError for columns that cannot have these combinations."""
        _check_number(self.words, self.columns)
        for number, row in enumerate(self.rows, start=1):
            where = f"{self.words}: combination {number}"
            if len(row) != len(self.columns):
                raise SchemaError(
                    f"{where} has {len(row)} values for {len(self.columns)} columns"
                )
            for name, value in zip(self.columns, row, strict=True):
                _check_value(where, declared[name], value)
        distinct = set(map(_typed, self.rows))
        if len(distinct) < len(self.rows):
            raise SchemaError(
                f"{self.words}: a combination is listed twice; list each once"
            )


class Inequality(_Constraint, frozen=True, tag="inequality"):
    """One column is at most another, or below it, wherever both have a value.

    Datetimes are compared at the coarser of the two columns' resolutions: an admission at 10:27 is
    at most a discharge that the same day's date alone says. Steps of 10 and of 15 minutes are
    compared by the half hour, which both divide.

    Methods learn the smaller column and the gap to the larger one.

    Args:
        low: The smaller one: numbers, or datetimes.
        high: The larger one.
        strict: Whether they must differ; a date and a time of the same day do not.
        most: The largest gap, where one is known; for datetimes in days, seconds, milliseconds or
            microseconds, as the bounds of the coarser column have them. Bins of the gap are then
            finer.

    Example:
        >>> Inequality("admission", "discharge").words
        'admission <= discharge'
    """

    low: str
    high: str
    strict: bool = False
    most: int | float | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in the constraint."""
        return self.low, self.high

    @property
    def words(self) -> str:
        """The constraint in a few words."""
        sign = "<" if self.strict else "<="
        most = ""
        if self.most is not None:
            most = f", by at most {self.most}"
        return f"{self.low} {sign} {self.high}{most}"

    def check(self, declared: Mapping[str, Column]) -> None:
        """Raise SchemaError for columns that cannot be compared, or can never keep the rule."""
        _check_number(self.words, self.columns)
        low = declared[self.low]
        high = declared[self.high]
        _check_kinds(self.words, (low, high), _NUMERIC)
        is_dated = low.is_datetime
        if is_dated != high.is_datetime:
            raise SchemaError(f"{self.words}: compares a datetime with a number")
        if self.most is not None and not self.most >= self.strict:
            raise SchemaError(
                f"{self.words}: most={self.most!r} must be {int(self.strict)} or more"
            )
        # Where the smaller one is missing, the gap is counted from below both columns, which
        # no bound on it allows for.
        if self.most is not None and low.missing:
            raise SchemaError(
                f"{self.words}: most={self.most!r} needs a column {self.low!r} that is never "
                "missing; leave most out"
            )
        # Only the outermost bounds can rule out every row.
        if low.low is None or high.high is None:
            return
        first = _comparable(low, low.low)
        last = _last(high, high.high)
        if is_dated:
            coarse = coarser_step(low, high)
            first = _at_step(first, coarse)
            last = _at_step(last, coarse)
        if first > last or (self.strict and first == last):
            raise SchemaError(
                f"{self.words}: no row can keep it: {self.low!r} begins at {low.low!r}, and "
                f"{self.high!r} ends at {high.high!r}"
            )


class ColumnSum(_Constraint, frozen=True, tag="column_sum"):
    """One column is the sum of others, and missing exactly where one of them is.

    Methods learn the parts; the total is computed.

    Args:
        parts: Two columns of numbers or more.
        total: Their sum, to its own decimals.

    Example:
        >>> ColumnSum(("wage", "bonus"), "pay").words
        'wage + bonus = pay'
    """

    parts: tuple[str, ...]
    total: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in the constraint."""
        return *self.parts, self.total

    @property
    def words(self) -> str:
        """The constraint in a few words."""
        return f"{' + '.join(self.parts)} = {self.total}"

    def check(self, declared: Mapping[str, Column]) -> None:
        """Raise SchemaError for columns that cannot be added up, or can never keep the rule."""
        _check_number(self.words, self.parts)
        _check_number(self.words, self.columns)
        parts = [declared[name] for name in self.parts]
        total = declared[self.total]
        _check_kinds(self.words, (*parts, total), ("integer", "continuous"))
        are_whole = all(part.is_whole for part in parts)
        if total.is_whole and not are_whole:
            raise SchemaError(
                f"{self.words}: {self.total!r} is whole and some part is not; declare it continuous"
            )
        if total.missing != any(part.missing for part in parts):
            raise SchemaError(
                f"{self.words}: {self.total!r} is missing exactly where a part is; declare "
                f"missing={not total.missing} for it, or correct the parts"
            )
        # A total is between the sums of the parts' bounds.
        if not _have_bounds((*parts, total)):
            return
        lows: list[Any] = [part.low for part in parts]
        highs: list[Any] = [part.high for part in parts]
        least = sum(lows)
        most = sum(highs)
        low: Any = total.low
        high: Any = total.high
        if least > high or most < low:
            raise SchemaError(
                f"{self.words}: no row can keep it: the parts add up to {least:g} to {most:g}, and "
                f"{self.total!r} is {low:g} to {high:g}"
            )


class CategoryRanges(_Constraint, frozen=True, tag="category_ranges"):
    """A number or datetime whose range depends on a category.

    Rows that leave their range are drawn again, with the same category as long as that succeeds.

    Args:
        column: Whose values are bounded; a missing value keeps every range.
        by: The categorical or boolean column.
        ranges: Of each category: the category, the least and the largest value, inclusive; None
            for no bound. Categories that are not listed may have every value.

    Example:
        >>> CategoryRanges("pregnancies", "sex", (("male", 0, 0),)).words
        'range of pregnancies by sex'
    """

    column: str
    by: str
    ranges: tuple[tuple[Value, int | float | str | None, int | float | str | None], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in the constraint."""
        return self.column, self.by

    @property
    def words(self) -> str:
        """The constraint in a few words."""
        return f"range of {self.column} by {self.by}"

    def check(self, declared: Mapping[str, Column]) -> None:
        """Raise SchemaError for unknown categories, and for ranges that hold no value."""
        _check_number(self.words, self.columns)
        column = declared[self.column]
        by = declared[self.by]
        _check_kinds(self.words, (column,), _NUMERIC)
        _check_kinds(self.words, (by,), ("categorical", "boolean"))
        if not self.ranges:
            raise SchemaError(f"{self.words}: ranges is empty; give one for a category")
        categories = {_typed((category,)) for category, _, _ in self.ranges}
        if len(categories) < len(self.ranges):
            raise SchemaError(f"{self.words}: a category has two ranges; give one")
        for category, low, high in self.ranges:
            where = f"{self.words}: of {category!r}"
            _check_value(where, by, category)
            self._check_range(where, column, low, high)

    @staticmethod
    def _check_range(
        where: str,
        column: Column,
        low: int | float | str | None,
        high: int | float | str | None,
    ) -> None:
        """Raise SchemaError for a range without a value between the column's bounds."""
        for bound in (low, high):
            if bound is not None:
                _check_kind_of(where, column, bound)
        # The higher of both lower bounds and the lower of both upper ones, where there are any.
        lows = [bound for bound in (column.low, low) if bound is not None]
        highs = [bound for bound in (column.high, high) if bound is not None]
        firsts = [_comparable(column, bound) for bound in lows]
        lasts = [_last(column, bound) for bound in highs]
        first = max(firsts, default=None)
        last = min(lasts, default=None)
        if first is not None and last is not None and first > last:
            raise SchemaError(
                f"{where}: {_range_words(low, high)} has no value between the column's bounds, "
                f"{_range_words(column.low, column.high)}"
            )


class Unique(_Constraint, frozen=True, tag="unique"):
    """No two rows have the same values in these columns; a missing value is like another.

    Repeated rows are drawn again. Of rows that several parties hold, each party checks its own.

    Args:
        columns: One or more, of kinds that are modelled; ids are drawn anew as they are.

    Example:
        >>> Unique(("ward", "bed")).words
        'unique: ward, bed'
    """

    columns: tuple[str, ...]

    @property
    def words(self) -> str:
        """The constraint in a few words."""
        return f"unique: {', '.join(self.columns)}"

    def check(self, declared: Mapping[str, Column]) -> None:
        """Raise SchemaError for a column that is named twice, or for no column."""
        _check_number(self.words, self.columns, least=1)


class MissingTogether(_Constraint, frozen=True, tag="missing_together"):
    """Columns that are all missing in a row, or all there.

    Methods learn where the first is missing; there the others are missing, too.

    Args:
        columns: Two or more that may be missing.

    Example:
        >>> MissingTogether(("test", "result")).words
        'missing together: test, result'
    """

    columns: tuple[str, ...]

    @property
    def words(self) -> str:
        """The constraint in a few words."""
        return f"missing together: {', '.join(self.columns)}"

    def check(self, declared: Mapping[str, Column]) -> None:
        """Raise SchemaError for a column that is never missing."""
        _check_number(self.words, self.columns)
        _check_may_be_missing(self.words, self.columns, declared)


class MissingUnless(_Constraint, frozen=True, tag="missing_unless"):
    """Columns that are missing unless a category has one of some values: skip logic.

    Where the category has another value, drawn rows have none in these columns.

    Args:
        dependent: The columns, one or more, that may be missing.
        by: The categorical or boolean column.
        values: Its values with which the columns may have one; None stands for a missing `by`.
        required: Whether the columns are always there where `by` has one of these values.

    Example:
        >>> MissingUnless(("due",), "pregnant", ("yes",)).words
        "due missing unless pregnant is 'yes'"
    """

    dependent: tuple[str, ...]
    by: str
    values: tuple[Value, ...]
    required: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in the constraint."""
        return *self.dependent, self.by

    @property
    def words(self) -> str:
        """The constraint in a few words."""
        options = []
        for value in self.values:
            option = "missing" if value is None else repr(value)
            options.append(option)
        names = ", ".join(self.dependent)
        values = " or ".join(options)
        more = ", and there where it is" if self.required else ""
        return f"{names} missing unless {self.by} is {values}{more}"

    def check(self, declared: Mapping[str, Column]) -> None:
        """Raise SchemaError for unknown values, and for columns that are never missing."""
        if not self.dependent:
            raise SchemaError(
                f"{self.words}: dependent is empty; name a column that is missing"
            )
        _check_number(self.words, self.columns)
        by = declared[self.by]
        _check_kinds(self.words, (by,), ("categorical", "boolean"))
        _check_may_be_missing(self.words, self.dependent, declared)
        if not self.values:
            raise SchemaError(
                f"{self.words}: values is empty; give a value of {self.by!r}"
            )
        for value in self.values:
            _check_value(self.words, by, value)
        distinct = {_typed((value,)) for value in self.values}
        if len(distinct) < len(self.values):
            raise SchemaError(f"{self.words}: a value is listed twice; list each once")


Formula = Literal[
    "copy",
    "year",
    "quarter",
    "month",
    "years",
    "days",
    "hours",
    "difference",
    "product",
    "ratio",
    "bmi",
]
"""How a column follows from others."""
Rounding = Literal["nearest", "down", "up"]
"""How a computed number becomes one that its column can have."""


class Computed(_Constraint, frozen=True, tag="computed"):
    """A column that follows from others: an age from two dates, a length of stay, a BMI.

    Methods learn the sources; the column is computed when rows are drawn. It is missing where a
    source is, and where it would take a division by 0.

    Args:
        column: The computed column: whole numbers, numbers, or a copy of datetimes.
        formula: ``copy`` (the source itself, also in another unit; a datetime is cut to the
            column's resolution), ``year``, ``quarter`` or ``month`` (of a date), ``years``
            (birthdays from the first date to the second), ``days`` (between their dates, whatever
            the time of day), ``hours`` (that pass, at the coarser resolution of both),
            ``difference`` (the first less the second), ``product`` (of all), ``ratio`` (the first
            by the second) or ``bmi`` (kilograms by metres squared).
        sources: The columns it follows from, in that order: two, or more for a product; one for a
            copy, a year and a month.
        factor: By which the formula's result is multiplied: 10,000 for a BMI of centimetres.
        rounding: To the column's decimals, or to whole numbers: ``nearest``, ``down`` or ``up``.
        offset: What is added to the product: 32 for degrees Fahrenheit, with the factor 1.8.

    Example:
        >>> Computed("age", "years", ("born", "visit")).words
        'age = years from born to visit'
        >>> Computed("bmi", "bmi", ("kg", "cm"), factor=10_000).words
        'bmi = kg / cm squared, times 10000'
        >>> Computed("fahrenheit", "copy", ("celsius",), factor=1.8, offset=32).words
        'fahrenheit = celsius, times 1.8, plus 32'
    """

    column: str
    formula: Formula
    sources: tuple[str, ...]
    factor: int | float = 1
    rounding: Rounding = "nearest"
    offset: int | float = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in the constraint."""
        return *self.sources, self.column

    @property
    def words(self) -> str:
        """The constraint in a few words."""
        if self.formula in DATED:
            span = " to ".join(self.sources)
            body = f"{self.formula} from {span}"
        elif self.formula in CALENDAR:
            body = f"{self.formula} of {' and '.join(self.sources)}"
        else:
            signs = {"difference": " - ", "product": " * "}
            sign = signs.get(self.formula, " / ")
            body = sign.join(self.sources)
        if self.formula == "bmi":
            body += " squared"
        if self.factor != 1:
            body += f", {_factor_words(self.factor)}"
        if self.offset != 0:
            sign_word = "plus" if self.offset > 0 else "minus"
            body += f", {sign_word} {abs(self.offset):.10g}"
        if self.rounding != "nearest":
            body += f", rounded {self.rounding}"
        return f"{self.column} = {body}"

    def check(self, declared: Mapping[str, Column]) -> None:
        """Raise SchemaError if the sources never give such a column, or no value within bounds."""
        _check_number(self.words, self.columns)
        self._check_recipe()
        sources = [declared[name] for name in self.sources]
        column = declared[self.column]
        numbers = ("integer", "continuous")
        copies_time = self.formula == "copy" and sources[0].is_datetime
        takes_time = copies_time or self.formula in (*DATED, *CALENDAR)
        _check_kinds(self.words, sources, ("datetime",) if takes_time else numbers)
        _check_kinds(self.words, (column,), ("datetime",) if copies_time else numbers)
        if copies_time and (self.factor != 1 or self.offset != 0):
            raise SchemaError(
                f"{self.words}: a copied datetime has factor=1 and offset=0; leave both out"
            )
        has_no_unit = column.is_continuous and column.decimals is None
        if self.rounding != "nearest" and has_no_unit:
            raise SchemaError(
                f"{self.words}: rounding={self.rounding!r} needs the decimals of {self.column!r}; "
                "declare them"
            )
        self._check_missing(sources, column)
        self._check_bounds(sources, column)

    def _check_recipe(self) -> None:
        """Raise SchemaError for an unknown formula or rounding, and wrong numbers for it."""
        if self.formula not in get_args(Formula):
            raise SchemaError(
                f"{self.words}: formula={self.formula!r} is unknown; use one of "
                f"{', '.join(get_args(Formula))}"
            )
        if self.rounding not in get_args(Rounding):
            raise SchemaError(
                f"{self.words}: rounding={self.rounding!r} is unknown; use one of "
                f"{', '.join(get_args(Rounding))}"
            )
        num_sources = len(self.sources)
        least = 1 if self.formula in OF_ONE else 2
        takes_more = self.formula == "product"
        if num_sources < least or (num_sources > least and not takes_more):
            how_many = "one" if least == 1 else "two"
            more = " or more" if takes_more else ""
            raise SchemaError(
                f"{self.words}: sources named: {num_sources}; name {how_many}{more}"
            )
        if not abs(self.offset) < float("inf"):
            raise SchemaError(f"{self.words}: offset={self.offset!r} must be finite")
        if self.factor == 0 or not abs(self.factor) < float("inf"):
            raise SchemaError(
                f"{self.words}: factor={self.factor!r} must be finite and not 0"
            )

    def _check_missing(self, sources: Sequence[Column], column: Column) -> None:
        """Raise SchemaError if a column is never missing and its sources may leave gaps."""
        if column.missing:
            return
        optional = [source.name for source in sources if source.missing]
        if optional:
            raise SchemaError(
                f"{self.words}: {self.column!r} is missing where {', '.join(optional)} may be; "
                "declare missing=True for it"
            )
        if self._divides and _spans_zero(sources[1]):
            divisor = sources[1]
            raise SchemaError(
                f"{self.words}: {divisor.name!r} may be 0, where {self.column!r} has no value; "
                f"declare missing=True for it, or bounds of {divisor.name!r} that leave 0 out"
            )

    @property
    def _divides(self) -> bool:
        """Whether the second source divides the first."""
        return self.formula in ("ratio", "bmi")

    def _check_bounds(self, sources: Sequence[Column], column: Column) -> None:
        """Compare the results at the sources' bounds with the column's bounds."""
        if not _have_bounds((*sources, column)):
            return
        if self._divides and _spans_zero(sources[1]):
            return
        # Months and quarters begin again with each year.
        if self.formula in ("month", "quarter"):
            return
        # Each other formula rises or falls in each source alone, so its ends are at theirs.
        ends = []
        for source in sources:
            first = number_at(source, source.low)
            ends.append((first, last_of(source)))
        corners = zip(*product(*ends), strict=True)
        source_values = [np.array(values) for values in corners]
        raw, _ = raw_values(self, sources, source_values)
        results = rounded_values(self, column, raw)
        least = results.min()
        most = results.max()
        low = number_at(column, column.low)
        high = number_at(column, column.high)
        if least <= high and most >= low:
            return
        results_range = f"{least:g} to {most:g}"
        bounds_range = f"{low:g} to {high:g}"
        if column.is_datetime:
            results_range = f"{sources[0].low} to {sources[0].high}"
            bounds_range = f"{column.low} to {column.high}"
        raise SchemaError(
            f"{self.words}: no row can keep it: the sources give {results_range}, and "
            f"{self.column!r} is {bounds_range}"
        )


Constraint = (
    FixedCombinations
    | Inequality
    | ColumnSum
    | CategoryRanges
    | Unique
    | MissingTogether
    | MissingUnless
    | Computed
)
"""What a schema may ask of rows."""
TAGS = tuple(str(kind.__struct_config__.tag) for kind in get_args(Constraint))


def check_constraints(
    constraints: Sequence[Constraint], declared: Mapping[str, Column]
) -> None:
    """Check all that can be checked of constraints without a row.

    Args:
        constraints: Of one schema.
        declared: Its columns, by name.

    Raises:
        SchemaError: A constraint names a column that is not there or not modelled, or one that
            cannot keep it; strict inequalities go round in a circle; a column is computed twice
            or from itself.
    """
    for rule in constraints:
        for name in rule.columns:
            if name not in declared:
                names = ", ".join(declared)
                raise SchemaError(
                    f"{rule.words}: the schema has no column {name!r}; it has {names}"
                )
            if not declared[name].modelled:
                raise SchemaError(
                    f"{rule.words}: column {name!r} is an {declared[name].kind}, which is not "
                    "modelled and keeps no constraint; leave it out"
                )
        rule.check(declared)
    _check_computed(constraints)

    # A strict inequality in a circle of others asks a value to be below itself.
    inequalities = [rule for rule in constraints if isinstance(rule, Inequality)]
    by_low: dict[str, list[Inequality]] = {}
    for rule in inequalities:
        by_low.setdefault(rule.low, []).append(rule)
    for rule in inequalities:
        if rule.strict and rule.low in _reached(rule.high, by_low):
            raise SchemaError(
                f"{rule.words}: no row can keep it, since other inequalities say that "
                f"{rule.high!r} is at most {rule.low!r}; remove one of them"
            )


def _check_computed(constraints: Sequence[Constraint]) -> None:
    """Raise SchemaError for a column that is computed twice, or from itself."""
    computed = [rule for rule in constraints if isinstance(rule, Computed)]
    sums = [rule for rule in constraints if isinstance(rule, ColumnSum)]
    sources: dict[str, tuple[str, ...]] = {}
    for rule in computed:
        if rule.column in sources:
            raise _computed_twice(rule, rule.column)
        sources[rule.column] = rule.sources
    # Two sums may have one total, but a computed column is no total.
    computed_names = set(sources)
    for total_rule in sums:
        if total_rule.total in computed_names:
            raise _computed_twice(total_rule, total_rule.total)
        sources[total_rule.total] = total_rule.parts

    # All that a column is computed from, at first hand or at second.
    for rule in computed:
        reached = set(rule.sources)
        waiting = list(rule.sources)
        while waiting:
            name = waiting.pop()
            further = set(sources.get(name, ())) - reached
            reached |= further
            waiting += further
        if rule.column in reached:
            raise SchemaError(
                f"{rule.words}: goes round in a circle, since {rule.column!r} is among what its "
                "sources are computed from; remove one of these constraints"
            )


def _computed_twice(rule: Constraint, name: str) -> SchemaError:
    """Return the error for a column that two constraints compute."""
    return SchemaError(
        f"{rule.words}: {name!r} is computed by another constraint, too; keep one"
    )


def _factor_words(factor: float) -> str:
    """Describe a factor, or the divisor that it stands for where that is the shorter number."""
    factor_text = f"{factor:.10g}"
    if 0 < abs(factor) < 1:
        divisor_text = f"{1 / factor:.10g}"
        if len(divisor_text) < len(factor_text):
            return f"divided by {divisor_text}"
    return f"times {factor_text}"


def _have_bounds(columns: Sequence[Column]) -> bool:
    """Return whether every column declares both bounds."""
    return not any(None in (column.low, column.high) for column in columns)


def _spans_zero(column: Column) -> bool:
    """Return whether a column of numbers may be 0, as far as its bounds say."""
    may_be_low = column.low is None or float(column.low) <= 0
    may_be_high = column.high is None or float(column.high) >= 0
    return may_be_low and may_be_high


def _reached(start: str, by_low: Mapping[str, Sequence[Inequality]]) -> set[str]:
    """Return the columns at least as large as one column, by inequalities; itself among them."""
    reached = {start}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        larger = {rule.high for rule in by_low.get(name, ())}
        waiting += larger - reached
        reached |= larger
    return reached


def _check_number(words: str, names: Sequence[str], least: int = 2) -> None:
    """Raise SchemaError for a column that is named twice, or for too few of them."""
    if len(set(names)) < len(names):
        raise SchemaError(f"{words}: names a column twice; name each once")
    if len(names) < least:
        raise SchemaError(f"{words}: columns named: {len(names)}; name {least} or more")


def _check_kinds(words: str, columns: Sequence[Column], kinds: Sequence[str]) -> None:
    """Raise SchemaError for a column of another kind than these."""
    for column in columns:
        if column.kind not in kinds:
            raise SchemaError(
                f"{words}: column {column.name!r} is {column.kind}, and must be "
                f"{' or '.join(kinds)}"
            )


def _check_may_be_missing(
    words: str, names: Sequence[str], declared: Mapping[str, Column]
) -> None:
    """Raise SchemaError for columns that are never missing."""
    never = [name for name in names if not declared[name].missing]
    if never:
        raise SchemaError(
            f"{words}: {', '.join(never)} may not be missing; declare missing=True"
        )


def _check_value(where: str, column: Column, value: Value) -> None:
    """Raise SchemaError for a value that a column never has."""
    if value is None:
        if not column.missing:
            raise SchemaError(f"{where}: column {column.name!r} is never missing")
        return
    if not column.options:
        _check_kind_of(where, column, value)
        _check_between_bounds(where, column, value)
        return
    # By type as well: 1 is no value of a boolean column, though True == 1.
    options = {_typed((option,)) for option in column.options}
    if _typed((value,)) not in options:
        raise SchemaError(
            f"{where}: {value!r} is not among the {len(column.options)} categories of column "
            f"{column.name!r}; add it there, or remove it here"
        )


def _check_between_bounds(where: str, column: Column, value: Value) -> None:
    """Raise SchemaError for a number or datetime outside its column's bounds."""
    number = _comparable(column, value)
    low = column.low
    high = column.high
    is_below = low is not None and number < _comparable(column, low)
    is_above = high is not None and number > _last(column, high)
    if is_below or is_above:
        raise SchemaError(
            f"{where}: {value!r} is outside the bounds of column {column.name!r}, {low!r} to "
            f"{high!r}"
        )


def _check_kind_of(where: str, column: Column, value: Value) -> None:
    """Raise SchemaError for a value of another type than a numeric column's."""
    if column.is_datetime:
        try:
            datetime.fromisoformat(str(value))
        except ValueError:
            raise SchemaError(
                f"{where}: {value!r} must be ISO-8601 text such as '2024-01-31'"
            ) from None
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(
            f"{where}: {value!r} must be a number, as column {column.name!r} is"
        )
    elif column.is_whole and value != int(value):
        raise SchemaError(
            f"{where}: {value!r} must be whole, as column {column.name!r} is"
        )


def _range_words(low: Value, high: Value) -> str:
    """Write a range, of which an end may be open."""
    if low is None:
        return f"at most {high!r}"
    if high is None:
        return f"at least {low!r}"
    return f"{low!r} to {high!r}"


def _comparable(column: Column, value: Value) -> Any:
    """Convert a value of a numeric column so that it can be compared with others."""
    if column.is_datetime:
        return datetime.fromisoformat(str(value))
    return value


def _last(column: Column, bound: Value) -> Any:
    """Return the largest value that an upper bound allows; of a date, the end of its day."""
    end = _comparable(column, bound)
    if column.is_datetime and is_date(bound):
        # The last microsecond, since 24:00 is the next day.
        end += timedelta(days=1) - timedelta.resolution
    return end


def _at_step(when: datetime, step: int) -> int:
    """Count the whole steps, of so many microseconds, from the first of all days to a time."""
    return (when - datetime.min) // timedelta(microseconds=step)  # noqa: DTZ901


def _typed(row: Sequence[Value]) -> tuple[tuple[bool, Value], ...]:
    """Mark the values that are bools, so that True is not 1; 1 and 1.0 are equal."""
    return tuple((isinstance(value, bool), value) for value in row)


# SDV's form: a list of classes and their parameters


def from_sdv(records: Any) -> tuple[tuple[Constraint, ...], tuple[str, ...]]:
    """Read constraints from SDV's form; return them, and the classes that are ignored.

    `records` are the dictionaries by which SDV's constraints describe themselves. Combinations
    are not listed there, so they are left open.
    """
    rules: list[Constraint] = []
    ignored = []
    if not isinstance(records, Sequence):
        return (), ()
    for record in records:
        kind = "?"
        try:
            # The first names are those of `get_constraint_dict`, the others of earlier releases.
            if "class_name" in record:
                class_key, parameters_key = "class_name", "parameters"
            else:
                class_key, parameters_key = "constraint_class", "constraint_parameters"
            kind = str(record[class_key])
            translated = _of_sdv(kind, record[parameters_key])
        except (KeyError, TypeError, AttributeError):
            raise SchemaError(
                f"not SDV metadata: constraint {kind} lacks its constraint_parameters"
            ) from None
        rules += translated
        if not translated:
            ignored.append(kind)
    return tuple(rules), tuple(dict.fromkeys(ignored))


def _of_sdv(kind: str, parameters: Any) -> list[Constraint]:
    """Convert one constraint of SDV; an empty list if it has no equal here."""
    # What SDV takes where a file does not say: only a range is strict.
    default = kind == "Range"
    is_strict = bool(parameters.get("strict_boundaries", default))
    if kind in ("FixedCombinations", "Unique"):
        columns = tuple(map(str, parameters["column_names"]))
        if kind == "Unique":
            return [Unique(columns)]
        return [FixedCombinations(columns)]
    # A range between two columns is two inequalities; one between two numbers is ignored.
    ends: tuple[str, ...]
    if kind == "Inequality":
        ends = ("low", "high")
    elif kind == "Range" and "middle_column_name" in parameters:
        ends = ("low", "middle", "high")
    else:
        return []
    names = [parameters[f"{end}_column_name"] for end in ends]
    return [Inequality(low, high, is_strict) for low, high in pairwise(names)]
