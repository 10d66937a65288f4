"""What the name of a column says of its values, by the lists in `words`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from siloweave.tables.kinds import words as lists
from siloweave.tables.table import Table

_PEOPLE = re.compile(rf"(?P<who>{lists.PEOPLE})|{lists.CASES}")
_PUPILS = re.compile(lists.PUPILS)
_ID_ENDING = re.compile(rf"(?:{lists.ID_ENDINGS})$")
_SEVERAL = re.compile(rf"(?:{lists.SEVERAL_ENDINGS})$")
_DAY_ENDING = re.compile(rf"(?:{lists.DAY_ENDINGS})$")
# A field of HL7, with its component, such as PID-3 or PID_5_1.
_PATIENT_FIELD = re.compile(r"PID[-._]?(\d+(?:[-._]\d+)?)")
_TIME_ENDING = re.compile(rf"(?:{lists.TIME_ENDINGS})$")


def words_of(name: str) -> list[str]:
    """Split a column's name into words: patient_id, PatientID and patientId alike.

    Example:
        >>> words_of("PatientID"), words_of("patient_id"), words_of("7")
        (['patient', 'id'], ['patient', 'id'], [''])
        >>> words_of("PID-3"), words_of("PID-8")
        (['patient', 'id'], [''])
    """
    field = _PATIENT_FIELD.fullmatch(name)
    if field is not None:
        place = field[1].replace("_", ".").replace("-", ".")
        return lists.PATIENT_FIELDS.get(place, "").split() or [""]
    parts = re.sub(r"(?<=[^\W\d_A-Z])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W\d_]+", parts.lower()) or [""]


def words_in(table: Table, name: str) -> list[str]:
    """Split a column's name into words, and leave out a school subject.

    A subject numbers people, unless the table has a column of more pupils, who learn it.
    """
    words = words_of(name)
    if words[0] != "subject":
        return words
    pupil_columns = [c for c in table.names if _PUPILS.match(words_of(c)[0])]
    pupil_counts = [_num_kinds(table, column) for column in pupil_columns]
    most_pupils = max(pupil_counts, default=0)
    if most_pupils > _num_kinds(table, name):
        return words[1:] or [""]
    return words


def _num_kinds(table: Table, name: str) -> int:
    """Count the different values of a column."""
    distinct, _ = table.counts(name)
    return len(distinct)


def has_word(words: Sequence[str], vocabulary: frozenset[str]) -> bool:
    """Return whether one of a name's words is in a list."""
    return not vocabulary.isdisjoint(words)


def numbers_people(words: Sequence[str]) -> bool:
    """Return whether a column's name says that it numbers people, or their cases: patient_id."""
    last = words[-1]
    if _PEOPLE.match(last):
        has_ending = bool(_ID_ENDING.search(last))
        is_number = words[0] in lists.NUMBERED_FIRST or last in ("pid", "kvnr")
        return has_ending or is_number
    if len(words) < 2:
        return False
    who = words[-2]
    # How many students there are, say.
    is_count = who.endswith("s") and not last.startswith("id")
    names_people = _PEOPLE.match(who) and _ID_ENDING.fullmatch(last)
    return bool(names_people) and not is_count


def begins_with_people(word: str) -> bool:
    """Return whether a word names people, or what numbers them."""
    return bool(_PEOPLE.match(word))


def names_people(words: Sequence[str]) -> bool:
    """Return whether one of a name's words is for people, and not for their cases alone."""
    matches = [match for match in map(_PEOPLE.match, words) if match]
    return any(match["who"] for match in matches)


def names_several(words: Sequence[str]) -> bool:
    """Return whether one of a name's words is for several people, or for nobody."""
    return any(map(_SEVERAL.search, words))


def names_id(words: Sequence[str]) -> bool:
    """Return whether a column's name calls its values identifiers, such as `loan_id`."""
    last = words[-1]
    is_person = begins_with_people(last) and not last.endswith("s")
    is_id = has_word(words, lists.IDS - {"index", "idx"})
    return is_person or is_id or last in lists.NUMBERED


def names_things(words: Sequence[str]) -> bool:
    """Return whether a column's name calls its values places, products, sorts or periods."""
    things = lists.POSTCODES | lists.CODES | lists.THINGS | lists.PERIODS
    return has_word(words, things - {"id", "code"})


def names_days(words: Sequence[str]) -> bool:
    """Return whether one of a name's words ends as those of days do, such as Geburtsdatum."""
    return any(map(_DAY_ENDING.search, words))


def names_times(words: Sequence[str]) -> bool:
    """Return whether one of a name's words ends as those of times do, such as Uhrzeit."""
    return any(map(_TIME_ENDING.search, words))


def names_instants(words: Sequence[str]) -> bool:
    """Return whether a column's name says that its values are days or times: created_at."""
    return names_days(words) or names_times(words) or has_word(words, lists.INSTANTS)
