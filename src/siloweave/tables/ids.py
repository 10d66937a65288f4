"""Ids made comparable: what two parties write differently about the same person, by declared rules.

A rule is public and part of the study; nothing is guessed from rows. Without rules an id is its
text (in Unicode form NFC), a whole number its digits, a datetime its ISO-8601 text in UTC, so the
number 7 and the text ``"7"`` are the same id, and ``"007"`` is another. Midnight is its day, and
text that is an ISO-8601 datetime is that datetime: ``2020-01-31``, ``2020-01-31 00:00:00`` and a
day or datetime of that value are one id, whatever else is in their columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal
from unicodedata import normalize

import numpy as np

from siloweave.errors import DataError, InputError
from siloweave.tables.arrays import Ints
from siloweave.tables.parsing import texts_of
from siloweave.tables.table import Table

# Rules by name; a date format is given as "date:" and strptime codes.
RULES = ("strip", "casefold", "digits", "letters-digits", "no-leading-zeros", "date")

Rules = Mapping[str, Sequence[str]]
_DATE = "date:"
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?:(:\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_WHOLE_NUMBER = re.compile(r"\s*(0|-?[1-9]\d*)(?:\.0+)?\s*", re.ASCII)
# Whole numbers beyond are not all float64.
_LARGEST_EXACT = 2**53
# Positions of rows that are named in an error.
_MOST_SHOWN = 3


@dataclass(frozen=True)
class IdPolicy:
    """A party's policy for rows that cannot be matched one to one.

    Rows where a part of the id is missing are refused or left out; rows that share an id are
    refused, all left out, or left out but the first.
    """

    missing: Literal["error", "drop"] = "error"
    duplicates: Literal["error", "drop", "first"] = "error"

    def __post_init__(self) -> None:
        if self.missing not in ("error", "drop"):
            raise InputError(
                f"missing={self.missing!r} is unknown; use 'error' or 'drop'"
            )
        if self.duplicates not in ("error", "drop", "first"):
            raise InputError(
                f"duplicates={self.duplicates!r} is unknown; use 'error', 'drop' or 'first'"
            )


@dataclass(frozen=True)
class Ids:
    """The ids of those rows of a table that can be matched.

    Attributes:
        values: One per row that is kept, all different; the columns of an id are kept apart.
        rows: int64, which row of the table each belongs to.
        missing: Rows left out because a part of the id is missing.
        duplicated: Rows left out because another row has the same id.
    """

    values: tuple[bytes, ...]
    rows: Ints
    missing: int
    duplicated: int


def check_rules(on: Sequence[str], rules: Rules) -> None:
    """Check the columns that an id is made of, and the rules of each; raises InputError."""
    if not (_is_list_of_texts(on) and on):
        raise InputError(
            f"on={on!r} must be a list of one or more id columns, such as ['id']"
        )
    name_counts = Counter(on)
    repeated_names = [name for name, count in name_counts.items() if count > 1]
    if repeated_names:
        raise InputError(
            f"on names {repeated_names[0]!r} twice; name each id column once"
        )

    for name, column_rules in rules.items():
        if name not in on:
            raise InputError(
                f"rules are given for {name!r}, which is not in on={list(on)}"
            )
        if not _is_list_of_texts(column_rules):
            raise InputError(
                f"rules of {name!r} must be a list such as ['strip'], not {column_rules!r}"
            )
        for rule in column_rules:
            is_date_format = rule.startswith(_DATE) and len(rule) > len(_DATE)
            if rule not in RULES and not is_date_format:
                raise InputError(
                    f"rule {rule!r} of {name!r} is unknown; use {', '.join(RULES)}, or "
                    "'date:' with strptime codes, such as 'date:%d.%m.%Y'"
                )


def normal_ids(
    table: Table,
    on: Sequence[str],
    *,
    rules: Rules | None = None,
    policy: IdPolicy | None = None,
    columns: Sequence[str] | None = None,
) -> Ids:
    """Read a table's ids, and normalise them.

    A composite id keeps its parts apart, so ("1", "23") is not ("12", "3"). What is empty once the
    rules were applied is missing.

    Args:
        table: The rows.
        on: Names of the id columns in the study.
        rules: Per column: ``strip`` (white space around), ``casefold`` (case and Unicode width),
            ``digits`` (nothing but digits), ``letters-digits``, ``no-leading-zeros``, ``date``
            (the day, from ISO text or a datetime) or ``date:`` and strptime codes (or ISO).
        policy: What to do with missing and repeated ids; an error when None.
        columns: What the columns are called in this table, if otherwise.

    Raises:
        InputError: A rule is unknown, or on and columns differ in length.
        DataError: No such column, a number that is not whole, a text that is no date, or missing
            or repeated ids that the policy does not allow. Names numbers of rows, never an id.
    """
    rules = rules or {}
    policy = policy or IdPolicy()
    local_names = columns or on
    check_rules(on, rules)
    if len(local_names) != len(on):
        raise InputError(
            f"ids are made of {list(on)}, and this party names {list(local_names)}"
        )

    parts = []
    for study_name, local_name in zip(on, local_names, strict=True):
        parts.append(_part(table, local_name, rules.get(study_name, ())))
    ids = [_joined(row) for row in zip(*parts, strict=True)]
    names_text = ", ".join(map(repr, local_names))
    num_missing = ids.count(None)
    if num_missing and policy.missing == "error":
        raise DataError(
            f"{num_missing} of {len(ids)} rows have no id in {names_text}; fill them in, or leave "
            "such rows out with missing='drop'"
        )

    counts = Counter(id_bytes for id_bytes in ids if id_bytes is not None)
    if policy.duplicates == "error":
        _check_distinct(ids, counts, names_text)
    first_rows: dict[bytes, int] = {}
    for row, id_bytes in enumerate(ids):
        if id_bytes is None:
            continue
        if policy.duplicates == "first" or counts[id_bytes] == 1:
            first_rows.setdefault(id_bytes, row)
    rows = np.fromiter(first_rows.values(), dtype=np.int64, count=len(first_rows))
    num_duplicated = len(ids) - num_missing - len(first_rows)
    return Ids(tuple(first_rows), rows, num_missing, num_duplicated)


def _check_distinct(
    ids: Sequence[bytes | None], counts: Mapping[bytes, int], names_text: str
) -> None:
    """Raise DataError for rows that share an id; it names some of the rows, and no id."""
    places = []
    for place, id_bytes in enumerate(ids):
        if id_bytes is not None and counts[id_bytes] > 1:
            places.append(place)
    num_repeated = len(places)
    if num_repeated:
        shown_places = ", ".join(str(place) for place in places[:_MOST_SHOWN])
        ellipsis = ", …" if num_repeated > _MOST_SHOWN else ""
        raise DataError(
            f"{num_repeated} of {len(ids)} rows share an id in {names_text} with another (rows "
            f"{shown_places}{ellipsis}, from 0); keep one row per id, add "
            "a column in which they differ, or use duplicates='drop' or 'first'"
        )


def _is_list_of_texts(value: Any) -> bool:
    """Return whether a value is a list of texts, and not a single text."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and all(isinstance(item, str) for item in value)


def _joined(parts: Sequence[str | None]) -> bytes | None:
    """Join the parts of one id into bytes; None where a part is missing.

    The length of each part is before it, so that no two ids have the same bytes.
    """
    pieces = []
    for part in parts:
        if part is None:
            return None
        text = part.encode()
        pieces.append(len(text).to_bytes(4, "big") + text)
    return b"".join(pieces)


def _part(table: Table, name: str, rules: Sequence[str]) -> list[str | None]:
    """Read one column of ids, and apply its rules; None for an empty result."""
    if name not in table.names:
        raise DataError(
            f"there is no id column {name!r}; name one that every party has"
        )
    check_exact(table, name)

    texts = id_texts(table, name)
    for rule in rules:
        if rule in _CHANGES:
            change = _CHANGES[rule]
        else:
            pattern = rule[len(_DATE) :] or None
            change = partial(_day, name, pattern)
        for place, text in enumerate(texts):
            if text is not None:
                texts[place] = change(text)
    return [text or None for text in texts]


def id_texts(table: Table, name: str) -> list[str | None]:
    """Read one column of ids as text, before any rule; None for a missing one.

    Each is read by itself, so that no other row decides whose a row is: 7, 7.0 and the texts "7",
    " 7" and "7.0" are one id, whatever else the column holds, and "007" is another.
    """
    texts: list[str | None] = texts_of(table.cells(name)).to_list()
    for place, text in enumerate(texts):
        if text is not None:
            texts[place] = _plain_id(text)
    return texts


def _plain_id(text: str) -> str:
    """Write an id plainly: a whole number by its digits, a datetime in UTC, other texts in NFC."""
    number = _WHOLE_NUMBER.fullmatch(text)
    if number is not None:
        return number[1]
    return _in_utc(normalize("NFC", text))


def _in_utc(text: str) -> str:
    """Write a datetime in UTC, without zeros at its end, midnight as a day; other texts stay."""
    match = _ISO.fullmatch(text)
    if match is None:
        return text
    day, minute, second, fraction, zone = match.groups("")
    if zone:
        # Where there is no such datetime, it is a text.
        with suppress(ValueError, OverflowError):
            local_time = datetime.fromisoformat(f"{day}T{minute}{second}{zone}")
            utc_time = local_time.astimezone(UTC).replace(tzinfo=None)
            # The fraction has up to nine digits, and a datetime of Python six.
            fraction_text = f".{fraction}" if fraction else ""
            return _in_utc(f"{utc_time.isoformat()}{fraction_text}")
        return text

    digits = fraction.rstrip("0")
    point = "." if digits else ""
    clock = f"{minute}{second or ':00'}{point}{digits}"
    return day if clock == "00:00:00" else f"{day}T{clock}"


def check_exact(table: Table, name: str) -> None:
    """Raise DataError for a column of booleans, or of numbers whose digits no two parties share."""
    kind = table.kind(name)
    if kind == "booleans":
        raise DataError(f"the id column {name!r} holds booleans, which name nobody")
    if kind != "numbers":
        return
    try:
        numbers, is_missing = table.integers(name)
    except InputError as error:
        raise DataError(
            f"the id column {name!r} holds numbers that are not whole, which no two parties write "
            "alike; give text or whole numbers"
        ) from error
    sizes = np.abs(numbers[~is_missing])
    if (sizes >= _LARGEST_EXACT).any():
        raise DataError(
            f"the id column {name!r} holds floats of 2**53 and more, whose last digits are lost; "
            "give text, or whole numbers of a type that can be missing, such as pandas' Int64"
        )


def _day(name: str, pattern: str | None, text: str) -> str:
    """Return the day of a date or datetime, as ISO-8601 writes it."""
    text = text.strip()
    if pattern is not None:
        with suppress(ValueError):
            # Nothing but the day is used, so the zone does not matter.
            return datetime.strptime(text, pattern).date().isoformat()  # noqa: DTZ007
    with suppress(ValueError):
        return datetime.fromisoformat(text).date().isoformat()

    wanted = "an ISO-8601 date"
    if pattern is not None:
        wanted = f"a date as {pattern!r} says, nor one of ISO-8601"
    raise DataError(
        f"the id column {name!r} holds text that is not {wanted}; correct the rule or the rows"
    )


def _casefolded(text: str) -> str:
    """Remove differences of case and of Unicode width from a text."""
    return normalize("NFKC", text).casefold()


def _digits(text: str) -> str:
    """Keep the decimal digits of a text; those of any script become 0 to 9."""
    return "".join(str(int(letter)) for letter in text if letter.isdecimal())


def _letters_and_digits(text: str) -> str:
    """Remove white space, signs and marks from a text."""
    return "".join(letter for letter in text if letter.isalnum())


def _without_leading_zeros(text: str) -> str:
    """Remove zeros at the beginning of a text; of zeros alone, one stays."""
    return re.sub(r"^0+(?=.)", "", text)


_CHANGES: dict[str, Callable[[str], str]] = {
    "strip": str.strip,
    "casefold": _casefolded,
    "digits": _digits,
    "letters-digits": _letters_and_digits,
    "no-leading-zeros": _without_leading_zeros,
}


def shape_of(values: Sequence[bytes]) -> str:
    """Describe the lengths and kinds of characters of `Ids.values`, without any id."""
    parts = zip(*map(_split, values), strict=True)
    return "; ".join(_shape(texts) for texts in parts) or "no ids"


def _split(value: bytes) -> list[str]:
    """Split an id into the parts that `_joined` joined."""
    parts = []
    while value:
        size = int.from_bytes(value[:4], "big")
        parts.append(value[4 : 4 + size].decode())
        value = value[4 + size :]
    return parts


def _is_punctuation(letter: str) -> bool:
    """Return whether a character is no letter, no digit and no white space."""
    return not (letter.isalnum() or letter.isspace())


_KINDS: dict[str, Callable[[str], bool]] = {
    "capitals": str.isupper,
    "small letters": str.islower,
    "digits": str.isdecimal,
    "white space": str.isspace,
    "punctuation": _is_punctuation,
}


def _shape(texts: Sequence[str]) -> str:
    """Describe texts by their lengths and kinds of characters."""
    sizes = [len(text) for text in texts]
    shortest = min(sizes)
    longest = max(sizes)
    letters = sorted(set("".join(texts)))
    kinds = []
    for kind, is_of_kind in _KINDS.items():
        if any(map(is_of_kind, letters)):
            kinds.append(kind)
    # A 0 alone is a number of its own.
    has_leading_zeros = any(text.startswith("0") and text != "0" for text in texts)
    if kinds == ["digits"] and has_leading_zeros:
        kinds = ["digits, some with leading zeros"]
    sizes_text = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
    characters = "character" if longest == 1 else "characters"
    # Letters of scripts without capitals are of no kind.
    return f"{sizes_text} {characters}: {', '.join(kinds) or 'letters'}"
