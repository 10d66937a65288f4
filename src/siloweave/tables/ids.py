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
from siloweave.tables.read import Table

# Rules by name; a date format is given as "date:" and strptime codes.
RULES = ("strip", "casefold", "digits", "letters-digits", "no-leading-zeros", "date")

Rules = Mapping[str, Sequence[str]]
_DATE = "date:"
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?:(:\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_WHOLE_NUMBER = re.compile(r"\s*(0|-?[1-9]\d*)(?:\.0+)?\s*", re.ASCII)
_EXACT = 2**53  # whole numbers beyond are not all float64
_MOST_SHOWN = 3  # positions of rows named in an error


@dataclass(frozen=True)
class IdPolicy:
    """What a party does with rows that cannot be matched one to one.

    Rows where a part of the id is missing are refused or left out; rows that share an id are
    refused, all left out, or left out but the first.
    """

    missing: Literal["error", "drop"] = "error"
    duplicates: Literal["error", "drop", "first"] = "error"

    def __post_init__(self) -> None:
        if self.missing not in ("error", "drop"):
            raise InputError(f"missing={self.missing!r} is unknown; use 'error' or 'drop'")
        if self.duplicates not in ("error", "drop", "first"):
            known = "use 'error', 'drop' or 'first'"
            raise InputError(f"duplicates={self.duplicates!r} is unknown; {known}")


@dataclass(frozen=True)
class Ids:
    """The ids of a table that can be matched.

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
    if not (_texts(on) and on):
        raise InputError(f"on={on!r} must be a list of one or more id columns, such as ['id']")
    twice = [name for name, count in Counter(on).items() if count > 1]
    if twice:
        raise InputError(f"on names {twice[0]!r} twice; name each id column once")
    for name, given in rules.items():
        if name not in on:
            raise InputError(f"rules are given for {name!r}, which is not in on={list(on)}")
        if not _texts(given):
            raise InputError(f"rules of {name!r} must be a list such as ['strip'], not {given!r}")
        for rule in given:
            if rule not in RULES and not (rule.startswith(_DATE) and len(rule) > len(_DATE)):
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
    """Read and normalise a table's ids.

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
    rules, policy, local = rules or {}, policy or IdPolicy(), columns or on
    check_rules(on, rules)
    if len(local) != len(on):
        raise InputError(f"ids are made of {list(on)}, and this party names {list(local)}")
    parts = [_part(table, here, rules.get(name, ())) for name, here in zip(on, local, strict=True)]
    whole = [None if None in row else _joined(row) for row in zip(*parts, strict=True)]
    names = ", ".join(map(repr, local))
    absent = sum(one is None for one in whole)
    if absent and policy.missing == "error":
        raise DataError(
            f"{absent} of {len(whole)} rows have no id in {names}; fill them in, or leave "
            "such rows out with missing='drop'"
        )
    counts = Counter(one for one in whole if one is not None)
    repeated = sum(count for count in counts.values() if count > 1)
    if repeated and policy.duplicates == "error":
        places = [i for i, one in enumerate(whole) if one is not None and counts[one] > 1]
        shown = ", ".join(str(i) for i in places[:_MOST_SHOWN])
        raise DataError(
            f"{repeated} of {len(whole)} rows share an id in {names} with another (rows "
            f"{shown}{', …' if repeated > _MOST_SHOWN else ''}, from 0); keep one row per id, add "
            "a column in which they differ, or use duplicates='drop' or 'first'"
        )
    kept: dict[bytes, int] = {}
    for row, one in enumerate(whole):
        if one is not None and (policy.duplicates == "first" or counts[one] == 1):
            kept.setdefault(one, row)
    rows = np.fromiter(kept.values(), dtype=np.int64, count=len(kept))
    return Ids(tuple(kept), rows, absent, len(whole) - absent - len(kept))


def _texts(given: Any) -> bool:
    """Whether it is a list of texts, and not one text."""
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    return listed and all(isinstance(one, str) for one in given)


def _joined(parts: Sequence[str | None]) -> bytes:
    """Parts with their lengths before them, so that no two lists of parts have the same bytes."""
    texts = [(part or "").encode() for part in parts]
    return b"".join(len(text).to_bytes(4, "big") + text for text in texts)


def _part(table: Table, name: str, rules: Sequence[str]) -> list[str | None]:
    """One column's texts; None for an empty one."""
    if name not in table.names:
        raise DataError(f"there is no id column {name!r}; name one that every party has")
    check_exact(table, name)
    texts = id_texts(table, name)
    for rule in rules:
        change = _PLAIN.get(rule) or partial(_day, name, rule[len(_DATE) :] or None)
        texts = [None if text is None else change(text) for text in texts]
    return [text or None for text in texts]


def id_texts(table: Table, name: str) -> list[str | None]:
    """Return one column's ids as text, before any rule; None where one is missing.

    Each is read by itself, so that no other row decides whose a row is: 7, 7.0 and the texts "7",
    " 7" and "7.0" are one id, whatever else the column holds, and "007" is another.
    """
    texts = texts_of(table.cells(name)).to_list()
    return [None if text is None else _plain_id(text) for text in texts]


def _plain_id(text: str) -> str:
    """A whole number as its digits, a datetime in UTC, any other text as it is, in form NFC."""
    if (number := _WHOLE_NUMBER.fullmatch(text)) is not None:
        return number[1]
    return _in_utc(normalize("NFC", text))


def _in_utc(text: str) -> str:
    """A datetime in UTC, without zeros at its end, a midnight as its day; other text as it is."""
    found = _ISO.fullmatch(text)
    if found is None:
        return text
    day, minute, second, fraction, zone = found.groups("")
    if zone:
        with suppress(ValueError, OverflowError):  # else there is no such datetime: a text
            at = datetime.fromisoformat(f"{day}T{minute}{second}{zone}").astimezone(UTC)
            rest = f".{fraction}" if fraction else ""
            return _in_utc(f"{at.replace(tzinfo=None).isoformat()}{rest}")
        return text
    second, rest = second or ":00", fraction.rstrip("0")
    clock = f"{minute}{second}{'.' if rest else ''}{rest}"
    return day if clock == "00:00:00" else f"{day}T{clock}"


def check_exact(table: Table, name: str) -> None:
    """Raise DataError for a column of booleans, or of numbers whose digits no two parties share."""
    kind = table.kind(name)
    if kind == "booleans":
        raise DataError(f"the id column {name!r} holds booleans, which name nobody")
    if kind != "numbers":
        return
    try:
        found, missing = table.integers(name)
    except InputError as error:
        raise DataError(
            f"the id column {name!r} holds numbers that are not whole, which no two parties write "
            "alike; give text or whole numbers"
        ) from error
    if (np.abs(found[~missing]) >= _EXACT).any():
        raise DataError(
            f"the id column {name!r} holds floats of 2**53 and more, whose last digits are lost; "
            "give text, or whole numbers of a type that can be missing, such as pandas' Int64"
        )


def _day(name: str, pattern: str | None, text: str) -> str:
    """The day of a date or datetime, as ISO-8601 writes it."""
    text = text.strip()
    if pattern is not None:
        with suppress(ValueError):
            return datetime.strptime(text, pattern).date().isoformat()  # noqa: DTZ007  a day
    with suppress(ValueError):
        return datetime.fromisoformat(text).date().isoformat()
    wanted = f"a date as {pattern!r} says, nor one of ISO-8601" if pattern else "an ISO-8601 date"
    raise DataError(
        f"the id column {name!r} holds text that is not {wanted}; correct the rule or the rows"
    )


_PLAIN: dict[str, Callable[[str], str]] = {
    "strip": str.strip,
    "casefold": lambda text: normalize("NFKC", text).casefold(),
    "digits": lambda text: "".join(str(int(one)) for one in text if one.isdecimal()),
    "letters-digits": lambda text: "".join(one for one in text if one.isalnum()),
    "no-leading-zeros": lambda text: re.sub(r"^0+(?=.)", "", text),
}


def shape_of(values: Sequence[bytes]) -> str:
    """What `Ids.values` look like, in words: lengths and kinds of characters, no id."""
    return "; ".join(_shape(part) for part in zip(*map(_split, values), strict=True)) or "no ids"


def _split(value: bytes) -> list[str]:
    parts = []
    while value:
        size = int.from_bytes(value[:4], "big")
        parts.append(value[4 : 4 + size].decode())
        value = value[4 + size :]
    return parts


def _shape(texts: Sequence[str]) -> str:
    low, high = min(map(len, texts)), max(map(len, texts))
    seen = "".join(sorted({one for text in texts for one in text}))
    tests: dict[str, Callable[[str], bool]] = {
        "capitals": str.isupper,
        "small letters": str.islower,
        "digits": str.isdecimal,
        "white space": str.isspace,
        "punctuation": lambda one: not (one.isalnum() or one.isspace()),
    }
    kinds = [word for word, test in tests.items() if any(test(one) for one in seen)]
    if kinds == ["digits"] and any(text.startswith("0") for text in texts):
        kinds = ["digits, some with leading zeros"]
    sizes = f"{low}" if low == high else f"{low} to {high}"
    return f"{sizes} characters: {', '.join(kinds) or 'letters'}"
