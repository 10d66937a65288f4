"""Every error a user can cause, as one tree.

::

    SiloweaveError
    ├── InputError          what was given cannot be used (command line: exit code 2)
    │   ├── SchemaError     a schema is wrong, or rows do not fit it
    │   ├── DataError       a file or a table cannot be read as one
    │   ├── BudgetError     a budget is invalid, or would be overspent (exit code 4)
    │   ├── RosterError     parties are missing, doubled or disagree
    │   ├── CapacityError   the work would not fit in memory
    │   └── StudyError      a study is not the one that was agreed on, begun or allowed (3)
    ├── LedgerError         a ledger was edited, cut or belongs to someone else (5)
    └── WireError           a message is malformed, too large or not sealed (5)

Messages name the argument, its value, the bound, and what to do next. `whole` and `number` check
arguments from Python, whose types nothing else has checked.

A party's error reaches the coordinator with its text only if its class is one of `NAMES_NO_ROW`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite, nan
from numbers import Integral, Real
from typing import Any, ClassVar

# A character that may have to be escaped: whatever is not printable ASCII.
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")


class SiloweaveError(Exception):
    """Base of all errors raised on purpose by siloweave.

    Attributes:
        declined: Why a party takes no part in a study, in words that its coordinator may read.
        exit_code: With which the command line ends.
    """

    declined = ""
    exit_code: ClassVar[int] = 2


class InputError(SiloweaveError):
    """The user's input cannot be used."""


class SchemaError(InputError):
    """A schema is wrong, or rows do not fit it."""


class DataError(InputError):
    """A file or a table cannot be read as one."""


class BudgetError(InputError):
    """A budget is invalid, or a release would overspend it."""

    exit_code = 4


class RosterError(InputError):
    """Parties are missing, doubled, empty, or disagree with each other."""


class CapacityError(InputError):
    """The work would not fit in memory."""


class StudyError(InputError):
    """A study is not the one that was agreed on, that was begun, or that a party allows."""

    exit_code = 3


class LedgerError(SiloweaveError):
    """A ledger was edited, cut, or belongs to another party or study."""

    exit_code = 5


class WireError(SiloweaveError):
    """A message is malformed, too large, or carries a field nobody paid for."""

    exit_code = 5


class UnitError(BudgetError, NotImplementedError):
    """A method does not yet protect several rows of one unit; says what is missing."""

    # No budget of any size would do: another method, or another unit, is what to give.
    exit_code = InputError.exit_code


class QuestionError(InputError, NotImplementedError):
    """A fit's model cannot answer a question; says what it lacks."""


NAMES_NO_ROW = (BudgetError, LedgerError, StudyError, WireError)
"""Classes whose texts name no value of a row and count no rows, so that a party may send them."""


def error_named(name: str) -> type[SiloweaveError]:
    """Return this package's error class of a name, if it takes a text alone; else WireError.

    Example:
        >>> error_named("BudgetError").__name__, error_named("KeyError").__name__
        ('BudgetError', 'WireError')
    """
    by_name: dict[str, type[SiloweaveError]] = {}
    unvisited = [SiloweaveError]
    while unvisited:
        kind = unvisited.pop()
        unvisited += kind.__subclasses__()
        # A class with an `__init__` of its own may need more than a text.
        if "__init__" not in vars(kind):
            by_name[kind.__name__] = kind
    return by_name.get(name, WireError)


def shortened(text: str, most: int) -> str:
    """Cut a text to so many characters; of a longer one its beginning and its length stay."""
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text):,} characters)"


def count_of(number: int, singular: str, plural: str) -> str:
    """Return a number with the noun that it counts, such as "1 row" or "2 rows"."""
    noun = singular if number == 1 else plural
    return f"{number} {noun}"


def first_few(names: Sequence[object], most: int = 5) -> str:
    """List names in a sentence, the first ones alone if there are many, as "a, b and 3 more"."""
    listed = ", ".join(str(name) for name in names[:most])
    if len(names) <= most:
        return listed
    return f"{listed} and {len(names) - most} more"


def printable(text: str, *, lines: bool = True) -> str:
    r"""Escape what a terminal would not print but obey: control characters, and those of direction.

    Names of studies, parties and columns come from others. They are escaped as in JSON, so that
    JSON stays what it is.

    Args:
        text: What is to be shown.
        lines: Whether ends of lines and tabs stay; else they are escaped, too.

    Example:
        >>> print(printable("age\x1b[2J \u202egnp.exe"))
        age\u001b[2J \u202egnp.exe
    """
    allowed = "\n\t" if lines else ""

    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        if character in allowed or character.isprintable():
            return character
        return json.dumps(character)[1:-1]

    return _NOT_PLAIN.sub(escaped, text)


def of_system(error: OSError) -> str:
    """Describe an error of the operating system: the file that it is about, and its text."""
    reason = error.strerror or error
    if not error.filename:
        return f"{reason}"
    return f"{error.filename}: {reason}"


@contextmanager
def naming_file(path: object) -> Iterator[None]:
    """Add a file's name to errors of the system that have none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        # Without a number its text is all that it says, and a file would not be printed.
        if error.errno is not None:
            error.filename = error.filename or str(path)
        raise


@contextmanager
def naming_party(name: str) -> Iterator[None]:
    """Add the name of a party to errors about its input or its messages.

    Example:
        >>> with naming_party("clinic"):
        ...     whole("age", -1)
        Traceback (most recent call last):
        siloweave.errors.InputError: party 'clinic': age=-1 must be a whole number, 0 or more
    """
    try:
        yield
    except (InputError, WireError) as error:
        # A class with an `__init__` of its own may need more than a text: its parent stands for it.
        kinds = (kind for kind in type(error).__mro__ if "__init__" not in vars(kind))
        nearest = next(kinds)
        raise nearest(f"party {name!r}: {error}") from error


def whole(name: str, value: Any, least: int = 0, *why: str) -> int:
    """Check that a value is a whole number of `least` or more, and return it.

    `why` ends the message of the error.

    Raises:
        InputError: It is no whole number, or too small.

    Example:
        >>> whole("rounds", 1.5, 1)
        Traceback (most recent call last):
        siloweave.errors.InputError: rounds=1.5 must be a whole number, 1 or more
    """
    # To Python, True is the whole number 1.
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(
            f"{name}={value!r} must be a whole number, {least} or more{''.join(why)}"
        )
    return int(value)


def number(
    name: str, value: Any, low: float, high: float, ends: str = "[]", *why: str
) -> float:
    """Check that a value is a number between two bounds, and return it.

    Args:
        name: What it is called.
        value: As it was given.
        low: Lower bound.
        high: Upper bound.
        ends: Brackets of the interval; a round one leaves its bound out.
        *why: Texts that end the message.

    Raises:
        InputError: It is no number, or beyond them.

    Example:
        >>> number("share", "half", 0, 1, "(]")
        Traceback (most recent call last):
        siloweave.errors.InputError: share='half' must be a number in (0, 1]
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    converted = float(value) if is_number else nan
    is_above = low < converted if ends[0] == "(" else low <= converted
    is_below = converted < high if ends[1] == ")" else converted <= high
    if not (isfinite(converted) and is_above and is_below):
        bounds = f"{ends[0]}{low:g}, {high:g}{ends[1]}"
        raise InputError(f"{name}={value!r} must be a number in {bounds}{''.join(why)}")
    return converted
