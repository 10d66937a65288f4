"""One column's public facts: its kind, categories, bounds, and where a cell goes that fits none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import force_setattr

from siloweave.errors import SchemaError
from siloweave.tables.decimals import MOST_DECIMALS
from siloweave.tables.forms import (
    RESOLUTIONS,
    SEMANTIC,
    number_form,
    resolution_of,
    text_form,
)
from siloweave.tables.parsing import UNITS, check_zone

Kind = Literal[
    "categorical", "integer", "continuous", "boolean", "datetime", "id", "text"
]
"""What sort of values a column holds."""
Category = str | int | float | bool
"""One value of a categorical column."""
Value = Category | None
"""A value as JSON has it; None is a missing one, and datetimes are ISO-8601 text."""
LOW = "low"
"""The fallback of a column of numbers or datetimes that is its lower bound."""
Outside = Literal["move", "refuse"]
"""What becomes of a cell that a column has no place for."""
KINDS = get_args(Kind)
"""All kinds."""
_FAMILIES = {bool: "boolean", int: "whole number", float: "number", str: "text"}
# What `from_data` and `learned` may name.
FACTS = (
    "kind",
    "categories",
    "low",
    "high",
    "missing",
    "decimals",
    "padded",
    "format",
    "missing_values",
    "resolution",
    "zone",
)
"""Facts that may come from data."""


class Column(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The public facts about one column.

    Args:
        name: The column's name.
        kind: ``categorical``, ``integer``, ``continuous``, ``boolean``, ``datetime``, ``id`` (it
            names a row or a person) or ``text`` (anything else that is not modelled). Ids and
            texts are drawn anew, as `tables.drawn` says.
        categories: All values of a categorical column, of one type (text, whole numbers, numbers
            or booleans), in the order of their codes. Of a boolean column, how false and true are
            written, such as ``("N", "Y")`` or ``(0, 1)``; without them they are booleans.
        low: Smallest value (integer, continuous), or an ISO-8601 text without time zone
            (datetime).
        high: Largest value, inclusive. Of datetimes a date includes that whole day.
        missing: Whether a value may be missing.
        other: The category that stands for every unseen one; it must be in ``categories``.
        outside: What becomes of a cell that the column has no place for. "move": a number beyond
            the bounds becomes the nearest bound; whatever else does not fit becomes `fallback`,
            else `other`, else missing. "refuse": the whole table is refused, so that one row
            decides whether there is a run. None: "move" where a method keeps a guarantee, and
            "refuse" where it keeps none.
        fallback: A value of the column that stands for every cell without a place: for what is no
            number in a column of numbers, and for a missing value where none may be missing.
            "low" stands for the lower bound of numbers and datetimes, whatever it is. Where
            bounds were learned and leave the value out, the nearest bound stands for it.
        format: How the column is written as text. Datetimes: ``strptime`` codes, and ``%-d`` and
            such without a leading zero, ``%^b`` in capital letters, ``%P`` for am and pm; a time
            of day is one of 1970-01-01. Without a format datetimes are ISO-8601, with T or a blank
            before the time. Numbers: how 1234.5 (or 1234) is written, such as ``"1.234,5 €"`` or
            ``"1234.5 %"``; or a unit of time (days, hours, minutes, seconds, milliseconds,
            microseconds): durations are numbers of it, and drawn ones are durations again, but in
            a CSV. Ids: a regular expression, such as ``P[0-9]{7}`` (`forms.text_form` lists what
            it may have). Texts: email, phone, name, address, postcode, iban, url, ip or uuid, or
            such an expression with a class, such as ``[0-9]{4} [A-Z]{2}``.
        from_data: Which facts were taken from data and not yet reviewed.
        learned: Which facts were learned privately, and are in the parties' ledgers. Facts that
            are neither `from_data` nor `learned` are declared.
        decimals: The most that a continuous column has; drawn values have no more.
        padded: The fewest that a number is written with, zeros at the end among them: 2 as in 1.50
            or 80 beside 80.50, 0 as in 12 beside 5.5. None for all `decimals` in a form, and as a
            frame has them else.
        missing_values: Texts that stand for a missing value, such as ``"n/a"``, or ``"999"``.
        resolution: The finest part of a datetime that is modelled: day, hour, 30 minutes, 15
            minutes, 10 minutes, 5 minutes, minute, second, millisecond or microsecond. Without one
            it is the finest part that the format writes. Without a format bounds decide: dates
            mean days, times seconds, times with a fraction of three digits milliseconds, of any
            other microseconds; a time of day has no place in a column that has days for this
            reason alone.
        zone: The time zone in which a frame has the datetimes, such as ``Europe/Berlin`` or
            ``+01:00``: drawn ones are in it. Bounds are in UTC all the same.
        why: What `Schema.detect` saw in the rows, and how to correct what it decided. It is from
            data, no fact, and `Schema.declared` removes it.

    Raises:
        SchemaError: When the facts contradict each other.

    Example:
        >>> Column("age", "integer", low=17, high=90).high
        90
    """

    name: str
    kind: Kind
    categories: tuple[Category, ...] = ()
    low: int | float | str | None = None
    high: int | float | str | None = None
    missing: bool = False
    other: Category | None = None
    format: str | None = None
    from_data: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()
    decimals: int | None = None
    missing_values: tuple[str, ...] = ()
    why: str = ""
    padded: int | None = None
    outside: Outside | None = None
    fallback: Category | None = None
    resolution: str | None = None
    zone: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise SchemaError("a column needs a name")
        if self.kind not in KINDS:
            raise SchemaError(
                f"column {self.name!r}: kind={self.kind!r} is unknown; "
                f"use one of {', '.join(KINDS)}"
            )
        for origin in ("from_data", "learned"):
            unknown = set(getattr(self, origin)) - set(FACTS)
            if unknown:
                raise SchemaError(
                    f"column {self.name!r}: {origin} names {sorted(unknown)}; facts are {FACTS}"
                )
        self._check_decimals()
        self._check_format()
        self._check_times()
        self._check_categories()
        self._check_bounds()
        # Last: a fallback is compared with the categories and bounds as they were put in order.
        self._check_outside()

    @property
    def has_place(self) -> bool:
        """Whether every possible cell has a place in the column, or it refuses by choice."""
        if not self.modelled or self.outside == "refuse":
            return True
        return self.missing or self.other is not None or self.fallback is not None

    @property
    def options(self) -> tuple[Category, ...]:
        """The values of a categorical or boolean column, in the order of their codes."""
        if self.categories:
            return self.categories
        if self.kind == "boolean":
            return False, True
        return ()

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers."""
        return self.kind in ("integer", "continuous")

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return self.kind == "integer"

    @property
    def is_continuous(self) -> bool:
        """Whether its values are floats, with or without a number of decimals."""
        return self.kind == "continuous"

    @property
    def is_binned(self) -> bool:
        """Whether it is coded by bins: numbers and datetimes are."""
        return self.is_number or self.is_datetime

    @property
    def is_datetime(self) -> bool:
        """Whether its values are datetimes, dates or times of day."""
        return self.kind == "datetime"

    @property
    def is_choice(self) -> bool:
        """Whether its values are options that are listed: categories and booleans are."""
        return self.kind in ("categorical", "boolean")

    @property
    def is_id(self) -> bool:
        """Whether it names a row or a person."""
        return self.kind == "id"

    @property
    def modelled(self) -> bool:
        """Whether methods learn the column: no id and no text is ever learned."""
        return self.kind not in ("id", "text")

    def _check_decimals(self) -> None:
        """Raise SchemaError for decimals, or zeros at the end, where a column may have none."""
        option_types = {type(option) for option in self.options}
        has_number_options = not option_types.isdisjoint({int, float})
        has_numbers = self.is_whole or has_number_options
        rules = (
            ("decimals", "continuous column", self.is_continuous),
            ("padded", "column of numbers", self.is_continuous or has_numbers),
        )
        for fact, which, has_any in rules:
            value = getattr(self, fact)
            if value is None:
                continue
            if not has_any or value not in range(MOST_DECIMALS + 1):
                raise SchemaError(
                    f"column {self.name!r}: {fact}={value!r}; a {which} may have 0 to "
                    f"{MOST_DECIMALS}, and no other has any"
                )

    def _check_format(self) -> None:
        """Raise SchemaError for a format that a column cannot have; a datetime may have any."""
        if self.format is None:
            return
        # msgspec checks the types of what it decodes, not of what a caller passes.
        if not isinstance(self.format, str):
            raise SchemaError(
                f"column {self.name!r}: format={self.format!r} must be text or None"
            )
        if self.is_datetime:
            return
        try:
            self._check_form(self.format)
        except SchemaError as error:
            raise SchemaError(f"column {self.name!r}: format: {error}") from None

    def _check_form(self, form: str) -> None:
        """Raise SchemaError, which does not name the column, for a format that its kind lacks."""
        is_pattern = not {"[", "\\"}.isdisjoint(form)
        if self.is_number and form in UNITS:
            return
        if self.is_number:
            number_form(form)
        elif self.is_id or (self.kind == "text" and is_pattern):
            text_form(form)
        elif self.kind != "text" or form not in SEMANTIC:
            allowed = ""
            if self.kind == "text":
                allowed = f" but {', '.join(SEMANTIC)} or a pattern such as "
                allowed += "'[0-9]{4} [A-Z]{2}'"
            raise SchemaError(
                f"a {self.kind} column takes no format{allowed}, not {form!r}"
            )

    def _check_times(self) -> None:
        """Raise SchemaError for a resolution or zone that the column cannot have."""
        where = f"column {self.name!r}"
        for fact in ("resolution", "zone"):
            value = getattr(self, fact)
            if value is not None and not self.is_datetime:
                raise SchemaError(
                    f"{where}: kind {self.kind!r} takes no {fact}; drop it"
                )
        if self.zone is not None:
            check_zone(where, self.zone)
        if self.resolution is None:
            return
        if self.resolution not in RESOLUTIONS:
            raise SchemaError(
                f"{where}: resolution={self.resolution!r} is unknown; use one of "
                f"{', '.join(RESOLUTIONS)}"
            )
        if self.format is None:
            return
        # Drawn values would lose what the format does not write.
        written = resolution_of(self.format)
        if RESOLUTIONS[self.resolution] < RESOLUTIONS[written]:
            raise SchemaError(
                f"{where}: resolution={self.resolution!r} is finer than {self.format!r} writes; "
                f"use {written!r} or a coarser one"
            )

    def _check_categories(self) -> None:
        """Raise SchemaError for categories that contradict each other or the column's kind."""
        where = f"column {self.name!r}"
        if self.kind == "boolean" and self.categories:
            if len(self.categories) != 2 or self.other is not None:
                raise SchemaError(
                    f"{where}: a boolean has two categories, false first, and no other; declare it "
                    "categorical"
                )
        elif self.kind != "categorical":
            if self.categories or self.other is not None:
                raise SchemaError(
                    f"{where}: kind {self.kind!r} takes no categories and no other; "
                    "declare it categorical, or drop them"
                )
            return
        if not self.categories:
            raise SchemaError(
                f"{where}: categories is empty; list every value it may take, or one that is also "
                "its other, and let a method learn the frequent ones (learn = 0.1)"
            )

        values = _of_one_family(tuple(self.categories), where)
        family = _family(values[0])
        if family == "number" and not _are_finite(values):
            raise SchemaError(f"{where}: categories must be finite numbers")
        if len(set(values)) < len(values):
            repeated = {repr(value) for value in values if values.count(value) > 1}
            raise SchemaError(
                f"{where}: categories repeat {', '.join(sorted(repeated))}; list each once"
            )
        # Of one family, too: True == 1, and they are no equals in a file.
        other = self.other
        is_listed = other in values and _family(other) == family
        if other is not None and not is_listed:
            raise SchemaError(
                f"{where}: other={other!r} is not among its categories; add it to them"
            )
        force_setattr(self, "categories", values)

    def _check_bounds(self) -> None:
        """Raise SchemaError for bounds of another type, or whose order is wrong."""
        where = f"column {self.name!r}"
        for bound in ("low", "high"):
            value = getattr(self, bound)
            if value is None:
                continue
            if not self.is_binned:
                raise SchemaError(
                    f"{where}: kind {self.kind!r} takes no {bound}; drop it"
                )
            number = _bound(self.kind, value, where, bound)
            force_setattr(self, bound, number)

        low: Any = self.low
        high: Any = self.high
        if low is None or high is None:
            return
        if self.is_datetime:
            is_reversed = datetime.fromisoformat(low) > datetime.fromisoformat(high)
        else:
            is_reversed = low > high
        if is_reversed:
            raise SchemaError(
                f"{where}: low={low!r} is above high={high!r}; swap or correct them"
            )

    def _check_outside(self) -> None:
        """Raise SchemaError for a fallback that is no value of the column, or is never used."""
        where = f"column {self.name!r}"
        value = self.fallback
        if self.outside not in (None, *get_args(Outside)):
            raise SchemaError(
                f"{where}: outside={self.outside!r} must be 'move' or 'refuse'"
            )
        if value is None:
            return
        if not self.modelled:
            raise SchemaError(
                f"{where}: kind {self.kind!r} is not modelled and takes no fallback; drop it"
            )
        if self.outside == "refuse":
            raise SchemaError(
                f"{where}: fallback={value!r} is never used where outside='refuse'; drop one of "
                "them"
            )
        if self.is_choice:
            # Of one family, too: True == 1.
            is_option = value in self.options
            if not is_option or _family(value) != _family(self.options[0]):
                raise SchemaError(
                    f"{where}: fallback={value!r} is not among its values; give one of them"
                )
        elif value != LOW:
            number = _bound(self.kind, value, where, "fallback")
            force_setattr(self, "fallback", number)
            self._check_fallback_bounds(number)

    def _check_fallback_bounds(self, value: int | float | str) -> None:
        """Raise SchemaError for a fallback outside the declared bounds."""
        # Which nobody knew when it was declared.
        if {"low", "high"} <= set(self.learned):
            return
        for bound, beyond in ((self.low, -1), (self.high, 1)):
            if bound is not None and _order(self.kind, value, bound) == beyond:
                raise SchemaError(
                    f"column {self.name!r}: fallback={value!r} is outside its bounds {self.low!r} "
                    f"to {self.high!r}; give a value within them"
                )


def _order(kind: str, value: Any, bound: Any) -> int:
    """Return -1, 0 or 1 for a value of a column below, at or above a bound.

    A time of day lies within the date that it has.
    """
    if kind == "datetime":
        if len(bound) == len("2024-01-31"):
            value = value[: len(bound)]
        value = datetime.fromisoformat(value)
        bound = datetime.fromisoformat(bound)
    is_above = value > bound
    is_below = value < bound
    return int(is_above) - int(is_below)


def _family(value: object) -> str:
    """Return the sort of value that a category is, in words."""
    # Booleans are asked for first, since they are whole numbers for Python.
    for kind, name in _FAMILIES.items():
        if isinstance(value, kind):
            return name
    raise SchemaError(f"a category must be text, a number or a boolean, not {value!r}")


def _of_one_family(values: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    """Return categories of one family; whole numbers beside others become floats.

    SchemaError for others that mix.
    """
    families = {_family(value) for value in values}
    if families == {"whole number", "number"}:
        return tuple(float(value) for value in values)
    if len(families) > 1:
        raise SchemaError(f"{where}: categories mix {sorted(families)}; use one type")
    return values


def _are_finite(numbers: Sequence[Any]) -> bool:
    """Return whether all numbers are finite."""
    return all(abs(number) < float("inf") for number in numbers)


def _bound(kind: str, value: object, where: str, bound: str) -> int | float | str:
    """Convert a bound to the type of a column's kind; SchemaError for a wrong one."""
    if kind == "datetime":
        try:
            if not isinstance(value, str):
                raise ValueError
            when = datetime.fromisoformat(value)
        except ValueError:
            raise SchemaError(
                f"{where}: {bound}={value!r} must be ISO-8601 text such as '2024-01-31'"
            ) from None
        if when.tzinfo is not None:
            raise SchemaError(
                f"{where}: {bound}={value!r} names a time zone; give it in UTC"
            )
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"{where}: {bound}={value!r} must be a number")
    if not abs(value) < float("inf"):
        raise SchemaError(f"{where}: {bound}={value!r} must be finite")
    if kind == "continuous":
        return float(value)
    if value != int(value) or abs(value) >= 2**62:
        raise SchemaError(
            f"{where}: {bound}={value!r} must be a whole number below 2**62 in size"
        )
    return int(value)
