"""Columns of texts, as the rules see them: their figures, and the tests of the rules."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from siloweave.tables.forms import pattern_words
from siloweave.tables.kinds import names
from siloweave.tables.kinds.patterns import (
    CHARACTER_CLASSES,
    COLON_PAIR,
    DAY_NUMBER,
    DEGREES,
    DIALLED,
    DIGIT,
    DURATION,
    ERROR,
    FLAGS,
    INVISIBLE,
    LETTERS_AND_NUMBER,
    MAC,
    NUMBER_OF_ANY_DIGITS,
    OTHER_DIGIT,
    PERSON,
    PHONE,
    POSTCODE,
    POWER,
    SEVERAL_NUMBERS,
    SHAPES,
    STREET,
    TIME_MARKS,
    YEAR,
    YEARS,
    ZONE_NAME,
)
from siloweave.tables.kinds.thresholds import (
    ENOUGH,
    FEW_CODES,
    FEW_ROWS_EACH,
    LONG,
    NEARLY_ALL,
    PROBE,
    nearly_all,
)
from siloweave.tables.kinds.words import (
    CLOCK_WORDS,
    CODES,
    IDS,
    MAYBE_MISSING,
    MISSING,
    MONTH_STARTS,
    NAME,
    NO_AND_YES,
    PHONES,
    POSTCODES,
    STREETS,
    SURNAMES,
    THINGS,
    WEEKDAY_STARTS,
    WHOSE,
)
from siloweave.tables.origin import are_codes_like_powers
from siloweave.tables.table import Table

# Signs that look alike: hyphens and dashes, and quotation marks.
_PLAIN_MARKS = str.maketrans("‐‑‒–—−‘’´`“”„", "------''''\"\"\"")
# Two words that mean false and true.
_TRUTH = {"true", "false"}
# What means one of the two in some language, or as a digit.
_NO_WORDS = {"0", *(no for no, _ in NO_AND_YES)}
_YES_WORDS = {"1", *(yes for _, yes in NO_AND_YES)}
# A mark of a missing value has fewer characters.
_LONGEST_MARK = 10


@dataclass(frozen=True)
class Texts:
    """A column of texts.

    Attributes:
        name: The column's.
        table: All columns.
        counts: How many rows have each text, without marks of missing values.
        marks: How many rows have each text that stands for a missing value.
    """

    name: str
    table: Table
    counts: Mapping[str, int]
    marks: Mapping[str, int]

    @classmethod
    def of(cls, name: str, table: Table) -> Texts:
        """Count a column's texts, and set marks of missing values apart."""
        texts = cls(name, table, table.text_counts(name), {})
        return texts.without(_missing_marks(texts.counts))

    def without(self, marks: Collection[str]) -> Texts:
        """Return the column where some more of its texts stand for a missing value."""
        counts = dict(self.counts)
        all_marks = dict(self.marks)
        for mark in marks:
            all_marks[mark] = counts.pop(mark)
        return replace(self, counts=counts, marks=all_marks)

    def with_doubtful_marks(self) -> Texts:
        """Return the column where marks that may well be categories are texts again."""
        is_sign = "+" in self.counts
        counts = dict(self.counts)
        marks = {}
        for mark, count in self.marks.items():
            if mark.lower() in MAYBE_MISSING or (is_sign and set(mark) == {"-"}):
                counts[mark] = count
            else:
                marks[mark] = count
        return replace(self, counts=counts, marks=marks)

    # Figures

    @cached_property
    def rows(self) -> int:
        """The number of rows with a text."""
        return sum(self.counts.values())

    @property
    def kinds(self) -> int:
        """The number of different texts."""
        return len(self.counts)

    @property
    def _share(self) -> float:
        """The share of different texts among the rows."""
        return self.kinds / self.rows

    @cached_property
    def texts(self) -> list[str]:
        """The different texts."""
        return list(self.counts)

    @cached_property
    def _probe(self) -> list[str]:
        """Some of the different texts."""
        return self.texts[: 10 * PROBE]

    @cached_property
    def words(self) -> list[str]:
        """The words of the column's name."""
        return names.words_in(self.table, self.name)

    @property
    def spread(self) -> str:
        """The number of different texts and of rows, in words."""
        return f"{self.kinds:,} different texts in {self.rows:,} rows"

    @cached_property
    def pattern(self) -> str | None:
        """A regular expression of the texts, if they are alike position by position."""
        return pattern_of(self.texts)

    @property
    def shape(self) -> str:
        """That regular expression with an example, in words; empty without one."""
        return f" of the form {pattern_words(self.pattern)}" if self.pattern else ""

    @cached_property
    def spellings(self) -> list[str]:
        """The different texts as they are written, with spaces around them."""
        spellings, _ = self.table.counts(self.name)
        return [text for text in spellings if text.strip() in self.counts]

    @property
    def num_spellings(self) -> int:
        """The number of different texts, where spaces around them count."""
        return len(self.spellings)

    @cached_property
    def num_alike(self) -> int:
        """How many texts differ from another in capital letters, spaces or look-alikes alone.

        A mark that no screen shows, such as the byte-order mark of a file that was put behind
        another one, counts as a space. A letter with an accent may be stored as one sign or two.
        """
        plain_texts = {_plain(text) for text in self.spellings}
        return self.num_spellings - len(plain_texts)

    @property
    def alike_in_words(self) -> str:
        """How many texts differ from another in capital letters, spaces or look-alikes alone."""
        differ = "differs" if self.num_alike == 1 else "differ"
        return f"{self.num_alike} {differ}"

    # Two words

    @cached_property
    def _spelling_by_word(self) -> dict[str, str]:
        """How each text is written, by its word in small letters; empty if there are many."""
        if self.kinds >= PROBE:
            return {}
        return {text.strip().lower(): text for text in self.spellings}

    @cached_property
    def no_and_yes(self) -> tuple[str, str] | None:
        """The texts for false and true, as they are written; None for other texts."""
        spellings = self._spelling_by_word
        if not spellings or self.num_spellings > 2:
            return None
        for no, yes in NO_AND_YES:
            if {no, yes} == set(spellings):
                return spellings[no], spellings[yes]
        return None

    def are_mixed_truths(self) -> bool:
        """Return whether all texts mean no or yes, and one of the two is said in several words.

        Letters alone, such as N, S and O, may be other codes: they count beside a word or digit.
        """
        words = set(self._spelling_by_word)
        no_words = words & _NO_WORDS
        yes_words = words & _YES_WORDS
        is_mixed = max(len(no_words), len(yes_words)) > 1
        has_word = any(len(word) > 1 or word.isdigit() for word in words)
        has_both = bool(no_words) and bool(yes_words)
        return words == no_words | yes_words and has_both and is_mixed and has_word

    def has_no_text(self) -> bool:
        """Return whether there is nothing but marks of missing values."""
        return not self.counts

    def are_true_and_false(self) -> bool:
        """Return whether a CSV's texts are true and false, in more than two spellings.

        Those of a frame are no booleans: it holds them as they are spelled.
        """
        is_truth = set(self._spelling_by_word) == _TRUTH
        return is_truth and self.num_spellings > 2 and self.table.frame == "csv"

    def are_no_and_yes(self) -> bool:
        """Return whether the texts are two words for false and true in some language."""
        return self.no_and_yes is not None

    # Personal data and addresses, by the form of each text

    def are_devices(self) -> bool:
        """Return whether the texts are MAC addresses."""
        return self.kinds > 1 and nearly_all(self._probe, MAC.fullmatch)

    def are_written_like(self, form: str) -> bool:
        """Return whether the texts are of a form that is known by itself, such as email.

        An email address and an account are personal even where all rows have the same.
        """
        has_kinds = self.kinds > 1 or form in ("email", "iban")
        return has_kinds and nearly_all(self._probe, SHAPES[form].fullmatch)

    @cached_property
    def _word_set(self) -> frozenset[str]:
        """The different words of the column's name."""
        return frozenset(self.words)

    @cached_property
    def _has_name(self) -> bool:
        """Whether the column is called names of people.

        The name of a thing is no person's: `name` counts beside words of people, or alone.
        """
        words = self._word_set
        is_persons = names.names_people(self.words) or not words - NAME - WHOSE
        return bool(SURNAMES & words or (NAME & words and is_persons))

    @cached_property
    def _has_people(self) -> bool:
        """Whether the column's name says that its values are people."""
        is_whose = self._has_name and bool((SURNAMES | WHOSE) & self._word_set)
        return names.names_people(self.words) or is_whose

    @cached_property
    def _is_people_alone(self) -> bool:
        """Whether the column's name is one word for a person, as `student` in a class list."""
        is_single = len(self._word_set) == 1
        return self._has_people and is_single and not names.names_several(self.words)

    @cached_property
    def _are_proper(self) -> bool:
        """Whether nearly all texts look like proper names."""
        # Without de, von and such.
        main_words = [re.sub(" [a-z]{1,3}(?= )", "", text) for text in self._probe]
        return nearly_all(main_words, _is_proper_name)

    @cached_property
    def _are_varied(self) -> bool:
        """Whether texts look like proper names of many different people."""
        is_many = self.kinds >= ENOUGH and not names.names_things(self.words)
        return self._are_proper and is_many and _varied(self._probe)

    @cached_property
    def _may_be_personal(self) -> bool:
        """Whether texts may be personal: few texts of many rows each are categories."""
        has_few_rows = self._share >= FEW_ROWS_EACH or self._is_people_alone
        may_repeat = self._are_varied or (self.kinds >= ENOUGH and has_few_rows)
        is_named = self._has_people and self._has_name
        return self.kinds > 1 and (self._share > 0.2 or may_repeat or is_named)

    @cached_property
    def _num_digits(self) -> list[int]:
        """How many digits each text has."""
        return [sum(map(str.isdigit, text)) for text in self._probe]

    def are_phones(self) -> bool:
        """Return whether the texts are phone numbers."""
        if not self._may_be_personal or not nearly_all(self._probe, PHONE.fullmatch):
            return False
        num_dialled = sum(map(bool, map(DIALLED.match, self._probe)))
        is_named = bool(PHONES & self._word_set)
        is_sure = is_named or 2 * num_dialled > len(self._probe)
        return min(self._num_digits) >= 5 and is_sure

    def are_postcodes(self) -> bool:
        """Return whether the texts are postcodes, with few rows each."""
        if not self._may_be_personal or self._share <= 0.2:
            return False
        is_named = bool(POSTCODES & self._word_set)
        return is_named or nearly_all(self._probe, POSTCODE.fullmatch)

    def are_addresses(self) -> bool:
        """Return whether the texts are postal addresses."""
        has_form = self._may_be_personal and nearly_all(
            self._probe, _has_number_and_word
        )
        if not has_form:
            return False
        is_named = bool(STREETS & self._word_set)
        return is_named or nearly_all(self._probe, STREET.search)

    def are_names_by_name(self) -> bool:
        """Return whether the column is called names of people, and no text has a digit."""
        may_be_names = self._may_be_personal and self._has_name
        return may_be_names and max(self._num_digits) == 0

    def are_names_by_form(self) -> bool:
        """Return whether texts look like proper names, of people rather than of things."""
        words = self._word_set
        names_no_thing = bool(NAME & words) and not words & (THINGS | CODES)
        is_person = self._is_people_alone or self._are_varied or names_no_thing
        is_likely = self._share > 0.5 or is_person
        return self._may_be_personal and self._are_proper and is_likely

    # What is to be written otherwise

    @property
    def _may_be_divided(self) -> bool:
        """Whether texts are many, and the column's name does not call them identifiers."""
        return self.kinds >= ENOUGH and not IDS & self._word_set

    @property
    def _may_be_divided_by_colons(self) -> bool:
        """Whether texts are more than the scores of a game, such as 3:1, ever are."""
        return self._may_be_divided and self.kinds > FEW_CODES

    def are_several_numbers(self) -> bool:
        """Return whether texts are several numbers in one field, such as 120/80."""
        if self._may_be_divided_by_colons and nearly_all(
            self._probe, COLON_PAIR.fullmatch
        ):
            return True
        return self._may_be_divided and nearly_all(
            self._probe, SEVERAL_NUMBERS.fullmatch
        )

    def are_degrees(self) -> bool:
        """Return whether texts are degrees of a place, such as 48.2083N."""
        return self._may_be_divided and nearly_all(self._probe, DEGREES.fullmatch)

    @cached_property
    def _are_flags(self) -> bool:
        """Whether texts are several flags in one field, such as 0110."""
        return nearly_all(self._probe, FLAGS.fullmatch)

    def are_flags(self) -> bool:
        """Return whether texts are flags in one field, of more combinations than categories."""
        return self._may_be_divided and self.kinds > FEW_CODES and self._are_flags

    @cached_property
    def _are_dated(self) -> bool:
        """Whether texts look like dates, in whatever form."""
        return nearly_all(self._probe, looks_dated)

    def are_dates_and_day_numbers(self) -> bool:
        """Return whether texts are dates, and days as a spreadsheet counts them, such as 45231."""
        if not self._may_be_divided:
            return False
        day_numbers = set(filter(DAY_NUMBER.fullmatch, self._probe))
        others = [text for text in self._probe if text not in day_numbers]
        return bool(day_numbers and others) and nearly_all(others, looks_dated)

    def are_dated(self) -> bool:
        """Return whether texts are dates in a form that is not read, or in several forms.

        Few of them, such as months, are categories.
        """
        return self._may_be_divided and self.kinds > FEW_CODES and self._are_dated

    def are_durations(self) -> bool:
        """Return whether texts are durations, such as 5h 25m."""
        return self._may_be_divided and nearly_all(self._probe, DURATION.fullmatch)

    def are_powers(self) -> bool:
        """Return whether texts are numbers, some with a power of ten, such as 1.2E-05."""
        has_power = any("e" in text.lower() for text in self.counts)
        are_numbers = all(map(POWER.fullmatch, self.counts))
        return has_power and are_numbers and not are_codes_like_powers(self.counts)

    def have_other_digits(self) -> bool:
        """Return whether texts are numbers, some in digits of another script.

        Few of them are categories.
        """
        if not self._may_be_divided or self.kinds <= FEW_CODES:
            return False
        has_other = any(OTHER_DIGIT.search(text) for text in self.counts)
        is_number = NUMBER_OF_ANY_DIGITS.fullmatch
        return has_other and nearly_all(self._probe, is_number)

    # Identifiers

    @property
    def _are_unique(self) -> bool:
        """Whether all texts are different, or nearly all of enough."""
        are_all = self.kinds == self.table.num_rows > 1
        return are_all or (self._share >= NEARLY_ALL and self.rows >= ENOUGH)

    @property
    def _may_be_units(self) -> bool:
        """Whether texts may be identifiers of something that has several rows."""
        has_many = self.kinds >= max(ENOUGH, FEW_ROWS_EACH * self.rows)
        return has_many and not names.names_things(self.words)

    @cached_property
    def _may_be_units_by_form(self) -> bool:
        """Whether texts may be such identifiers by their form alone.

        A text of ten times the mean number of rows is no identifier.
        """
        most_rows = max(self.counts.values())
        is_balanced = most_rows * self.kinds < 10 * self.rows
        are_years = nearly_all(self._probe, YEARS.fullmatch)
        is_other = self._have_spaces or self._are_dated or self._are_flags or are_years
        return self._may_be_units and is_balanced and not is_other

    @cached_property
    def _have_spaces(self) -> bool:
        """Whether a text has a space."""
        return any(" " in text for text in self.texts)

    def are_ids(self) -> bool:
        """Return whether nearly all texts differ, and are named or written as identifiers are."""
        if not self._are_unique:
            return False
        is_named = IDS & self._word_set or names.numbers_people(self.words)
        has_digits = self.pattern or nearly_all(self._probe, DIGIT.search)
        has_spaces = any(" " in text for text in self._probe)
        return bool(is_named or (has_digits and not has_spaces))

    def are_nearly_all_different(self) -> bool:
        """Return whether nearly all texts differ."""
        return self._are_unique

    def are_people_by_name(self) -> bool:
        """Return whether the column's name says that it numbers people."""
        return self.kinds > 2 and names.numbers_people(self.words)

    def are_units_by_name(self) -> bool:
        """Return whether the column is named as an identifier, and each has several rows."""
        if not self._may_be_units or not names.names_id(self.words):
            return False
        is_person = names.begins_with_people(self.words[-1])
        are_logins = is_person and not self._have_spaces
        return are_logins or nearly_all(self.texts, DIGIT.search)

    def are_numbered(self) -> bool:
        """Return whether texts are equal letters with a number each, and have several rows."""
        return self._may_be_units_by_form and _numbered(self.texts)

    def are_alike(self) -> bool:
        """Return whether texts are written as identifiers are, and have several rows."""
        return self._may_be_units_by_form and _are_alike(self.texts)

    # Free texts and categories

    @cached_property
    def _are_long(self) -> bool:
        """Whether texts have more than four words each, on average."""
        num_words = sum(len(text.split()) for text in self._probe)
        return num_words > 4 * len(self._probe)

    @property
    def _are_many(self) -> bool:
        """Whether there are as many texts as categories never have."""
        is_free = self._share >= 0.5 or (self._are_long and self._share > 0.2)
        return self.rows >= ENOUGH and is_free

    def are_free(self) -> bool:
        """Return whether texts are many, and long."""
        return self._are_many and self._are_long

    def are_mostly_single(self) -> bool:
        """Return whether many texts have one row each."""
        return self._are_many

    def is_constant(self) -> bool:
        """Return whether all rows have the same text."""
        return self.num_spellings == 1

    def are_alike_in_part(self) -> bool:
        """Return whether some texts differ in capital letters, spaces or look-alikes alone."""
        return self.num_alike > 0


def _missing_marks(counts: Mapping[str, int]) -> list[str]:
    """Return the texts that stand for a missing value, or for a spreadsheet's error."""
    marks = []
    for text in counts:
        if len(text) >= _LONGEST_MARK:
            continue
        is_error = text[:1] == "#" and ERROR.fullmatch(text)
        if not text or text.lower() in MISSING or is_error:
            marks.append(text)
    return marks


def looks_dated(text: str) -> bool:
    """Return whether a text has the parts of a date, its year and month among them, and no others.

    Example:
        >>> looks_dated("31. Januar 2024"), looks_dated("2024m1"), looks_dated("INV-2024-01")
        (True, True, False)
    """
    bare = ZONE_NAME.sub("", text)
    if not TIME_MARKS.fullmatch(bare):
        return False
    words = [word.lower() for word in re.findall(r"[^\W\d_]+", bare)]
    months = [word for word in words if word[:3] in MONTH_STARTS]
    for word in words:
        is_calendar = word[:3] in MONTH_STARTS or word[:3] in WEEKDAY_STARTS
        if not is_calendar and word not in CLOCK_WORDS:
            return False

    # The year is one of the first three numbers; a day and a month, or one, stand beside it.
    numbers = re.findall(r"\d+", bare)
    years = [number for number in numbers[:3] if YEAR.fullmatch(number)]
    if len(years) != 1:
        return False
    others = numbers.copy()
    others.remove(years[0])
    beside = [int(number) for number in others[:2]]
    if any(len(number) > 2 for number in others[:4]) or max(beside, default=0) > 31:
        return False
    return bool(months) or (beside != [] and 1 <= min(beside) <= 12)


def _plain(text: str) -> str:
    """Return a text in small letters, with plain spaces, hyphens and quotation marks."""
    visible_text = INVISIBLE.sub(" ", text)
    words = unicodedata.normalize("NFKC", visible_text).translate(_PLAIN_MARKS).split()
    return " ".join(words).casefold()


def _is_proper_name(text: str) -> bool:
    """Return whether a text looks like a proper name: two words or more, all with capitals."""
    has_capitals = text.istitle() or text.isupper()
    return bool(PERSON.fullmatch(text)) and has_capitals


def _has_number_and_word(text: str) -> bool:
    """Return whether a text has a digit and a letter, as postal addresses do."""
    return bool(re.search(r"\d", text) and re.search(r"[^\W\d]", text))


def _varied(texts: Sequence[str]) -> bool:
    """Return whether words mostly differ at both ends of texts, as in people's names.

    Gold Yearly and Gold Monthly share words. One with a point, such as Dr., does not count.
    """
    some = texts[:: max(1, len(texts) // ENOUGH)]
    first_words = set()
    last_words = set()
    for text in some:
        words = [word for word in text.upper().split() if word[-1] != "."]
        words = words or [text]
        first_words.add(words[0])
        last_words.add(words[-1])
    shares = (len(first_words) / len(some), len(last_words) / len(some))
    return min(shares) >= 0.5 and max(shares) >= 0.75


def _numbered(texts: Sequence[str]) -> bool:
    """Return whether texts are equal letters with long numbers, or numbers from 1 on: P00017."""
    matches = [match for match in map(LETTERS_AND_NUMBER.fullmatch, texts) if match]
    prefixes = {match[1] for match in matches}
    if len(matches) < len(texts) or len(prefixes) > 1:
        return False
    numbers = [match[2] for match in matches]
    are_long = all(len(number) >= LONG for number in numbers)
    # A fifth of them may be left out.
    most = 1.25 * len(texts)
    are_in_a_row = len(texts) > FEW_CODES and max(map(int, numbers)) <= most
    (prefix,) = prefixes
    return (are_long or are_in_a_row) and not names.names_things(names.words_of(prefix))


def _are_alike(texts: Sequence[str]) -> bool:
    """Return whether texts have one shape, in which five digits or more differ."""
    lengths = {*map(len, texts)}
    width = max(lengths)
    padded_texts = [text.rjust(width) for text in texts]
    num_digits = 0
    for characters in zip(*padded_texts, strict=True):
        digits = {character for character in characters if character.isdigit()}
        num_digits += len(digits) > 1

    shapes = {re.sub(r"\d+", "0", text) for text in texts}
    has_one_shape = len(shapes) == 1 or len(lengths) == 1
    # Digits alone, of which one more is needed.
    are_numbers = shapes == {"0"}
    return has_one_shape and num_digits >= 5 + are_numbers


def pattern_of(texts: Sequence[str]) -> str | None:
    """Return a regular expression of texts that are alike position by position; else None."""
    lengths = {len(text) for text in texts}
    if len(lengths) > 1:
        return None
    parts: list[str] = []
    places = np.array(texts).view("U1").reshape(len(texts), -1)
    for place in places.T:
        part = _class_of(set(np.unique(place).tolist()))
        if part is None:
            return None
        parts.append(part)

    # Equal classes beside each other are one with a number.
    pattern = ""
    for part, run in groupby(parts):
        length = len(list(run))
        is_class = part[0] == "["
        if is_class and length > 1:
            pattern += f"{part}{{{length}}}"
        else:
            pattern += part * length
    return pattern


def _class_of(characters: set[str]) -> str | None:
    """Return a character, or the narrowest class that has all of some; None if no class has."""
    if "" in characters:  # NUL, which numpy leaves off
        return None
    if len(characters) == 1:
        return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", characters.pop())
    for option in CHARACTER_CLASSES:
        if all(re.fullmatch(option, character) for character in characters):
            return option
    return None
