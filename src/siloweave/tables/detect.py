"""What a column holds, judged by its values and its name, with the reason in a sentence.

Which rules decide, and in what order, is in `siloweave.tables.kinds.rules`; here a column finds its
family of rules, and what else was seen is added to its reason.

Everything here is read from rows, and nothing is private: `Schema.detect` marks it so. A sentence
has counts of rows but no value, except marks and formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from siloweave.errors import count_of
from siloweave.tables.display import listed
from siloweave.tables.forms import number_form, time_words
from siloweave.tables.kinds.numbers import RealNumbers, WholeNumbers
from siloweave.tables.kinds.patterns import (
    DAYS,
    FLAGGED_NUMBER,
    LIMIT,
    MOMENTS,
    NUMBER,
    POWER,
)
from siloweave.tables.kinds.rule import ColumnEvidence, judged_by, recognised_by
from siloweave.tables.kinds.rules import (
    CATEGORIES,
    DIGIT_TIMES,
    NOT_MODELLED,
    REAL_NUMBERS,
    STORED,
    TWO_WORDS,
    WHOLE_NUMBERS,
    WRITTEN_NUMBERS,
    WRITTEN_TIMES,
)
from siloweave.tables.kinds.stored import StoredColumn
from siloweave.tables.kinds.texts import Texts
from siloweave.tables.kinds.thresholds import (
    ENOUGH,
    FEW_CODES,
    FEW_ROWS_EACH,
    FLOAT_BITS,
    PROBE,
    nearly_all,
)
from siloweave.tables.kinds.times import DigitTimes, WrittenTimes, follows
from siloweave.tables.kinds.unknown_codes import codes_in_words
from siloweave.tables.kinds.words import NO_ANSWER
from siloweave.tables.kinds.written_numbers import (
    BRACKETS,
    WrittenNumbers,
    is_unit,
    units_among,
)
from siloweave.tables.origin import are_codes_like_powers
from siloweave.tables.parsing import UNITS, texts_of
from siloweave.tables.table import Table

__all__ = ["AMBIGUOUS", "BRACKETS", "ColumnEvidence", "evidence"]

AMBIGUOUS = "dates that are ambiguous"
"""What the reason of a column begins with whose days and months may be swapped."""
# So many threads judge columns side by side; more would hold more copies of columns.
_THREADS = 4
# So many marks of missing values may stand among numbers.
_MARKS = 5
_NUMBERS = ("integer", "continuous")
# 1990-01-01 and 2039-12-31, as Excel counts days.
_EXCEL_DAYS = (32_874, 51_135)
# Where a reason begins with it, a rule has said already that there is one value.
_CONSTANT = "constant"
_MIDNIGHTS = frozenset({"24:00", "24:00:00"})
# Between values of a list in one field, and how many different texts show one.
_LIST_MARKS = ";|,"
_LISTS = 6
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:\.\d{3})+")
# Marks around texts that are mostly not meant.
_MARKS_AROUND = {
    "'.*'": "in single quotes",
    '".*"': "in quotes with a blank before them",
    '=".*"': "written as formulas of a spreadsheet",
    "'[^']*": "with an apostrophe before them, as a spreadsheet marks texts",
}
# What Python and pandas write for a missing value in texts; "None" may well be a category.
_PYTHON_GAPS = frozenset({"None", "nan", "NaT", "<NA>"})
_NO_ANSWER = re.compile(rf"\b(?:{NO_ANSWER})\b", re.IGNORECASE)


def evidence(
    table: Table, names: Sequence[str] | None = None
) -> dict[str, ColumnEvidence]:
    """Judge columns (all by default) by their own values and the table's other columns.

    Example:
        >>> table = Table.from_columns({"paid": (["$1,250.50", "$80.00"] * 20, None)})
        >>> paid = evidence(table)["paid"]
        >>> paid.kind, paid.format, paid.decimals, paid.padded
        ('continuous', '$1,234.5', 1, 2)
    """
    all_names = list(names or table.names)

    def judge(name: str) -> ColumnEvidence:
        return _judged(table.finite(name), name)

    # Columns are judged apart, and polars and NumPy let another thread run while they work.
    with ThreadPoolExecutor(_THREADS) as threads:
        judged = list(threads.map(judge, all_names))

    findings = {}
    for name, finding in zip(all_names, judged, strict=True):
        findings[name] = _with_notes(table, finding)
    findings = _with_thousands(table, findings)
    return _settled(findings)


def _with_notes(table: Table, finding: ColumnEvidence) -> ColumnEvidence:
    """Add to a column's reason what its file says of it, and which values are no numbers."""
    name = finding.name
    why = finding.why
    codes = table.declared_missing(name)
    if codes:
        listed_codes = ", ".join(codes)
        why += f"; declared missing in the file: {listed_codes}"
    if table.kind(name) == "numbers":
        num_infinite = len(table.unread(name))
        if num_infinite:
            why += (
                f"; {num_infinite:,} of {table.num_rows:,} rows hold infinite numbers: "
            )
            why += "correct them, or make them missing"
    is_modelled = finding.kind not in ("id", "text")
    if is_modelled and not why.startswith(_CONSTANT) and table.is_constant(name):
        rows = "all rows that have one" if table.missing(name).any() else "every row"
        why += f"; {_CONSTANT}: one value in {rows}"
    is_plain = finding.kind == "integer" and "spreadsheet" not in why
    if is_plain and _may_be_days_of_excel(table, name):
        why += "; if they are days that Excel counts from 1900 on, give the cells a format of "
        why += "dates"
    if table.hint:
        why += f"; {table.hint}"
    return replace(finding, why=why)


def _may_be_days_of_excel(table: Table, name: str) -> bool:
    """Return whether all numbers of a sheet's column would be days from 1990 to 2039."""
    if not table.is_sheet:
        return False
    numbers = table.numbers(name).drop_nulls().to_numpy()
    first_day, last_day = _EXCEL_DAYS
    return len(numbers) > 0 and bool(
        numbers.min() >= first_day and numbers.max() <= last_day
    )


def _judged(table: Table, name: str) -> ColumnEvidence:
    """Judge one column, which may be empty or have value labels."""
    has_values = not table.missing(name).all()
    if has_values and table.value_labels(name):
        return _labelled(table, name)
    return _unlabelled(table, name)


# Value labels


def _labelled(table: Table, name: str) -> ColumnEvidence:
    """Judge a column whose file has value labels: categories, or a scale of numbers.

    It is a scale where labels are at its ends alone, or name missing values alone.
    """
    labels = table.value_labels(name)
    unknown = {
        code: label for code, label in labels.items() if _NO_ANSWER.search(label)
    }
    unknown_codes = [f"{code} ({label})" for code, label in unknown.items()]
    unknown_words = ", ".join(unknown_codes)
    levels = table.levels(name)
    if levels is not None:
        why = "value labels: the labels are the categories"
        why += _unlabelled_levels_in_words(table, name, levels)
        if unknown:
            why += f"; {unknown_words}: list in missing_values what stands for a missing value"
        return ColumnEvidence(name, "categorical", why)

    # Numbers, without those that the labels say are missing, unless that is all of them.
    values = table.blanked(name, list(unknown)) if unknown else table
    if values.missing(name).all():
        values = table
        unknown = {}
    finding = _unlabelled(values, name)
    if values.kind(name) in ("whole numbers", "numbers"):
        at_ends = [code for code in labels if code not in unknown]
        finding = _scale_with_labels(values, finding, at_ends)
    if unknown and finding.kind in ("integer", "continuous", "categorical", "datetime"):
        why = f"{finding.why}; {unknown_words} taken for a missing value by the value labels"
        missing_values = (*finding.missing_values, *unknown)
        finding = replace(finding, why=why, missing_values=missing_values)
    return finding


def _unlabelled_levels_in_words(table: Table, name: str, levels: Sequence[str]) -> str:
    """Describe rows whose code has no label, beside others that have one; else empty."""
    labels = table.value_labels(name).values()
    unlabelled = [level for level in levels if level not in labels]
    if not unlabelled:
        return ""
    counts = table.text_counts(name)
    rows = sum(count for text, count in counts.items() if text in unlabelled)
    return (
        f"; {count_of(rows, 'row has a code', 'rows have codes')} without a label, "
        "which are categories of their own: correct them if they are slips"
    )


def _scale_with_labels(
    table: Table, finding: ColumnEvidence, labelled: Sequence[str]
) -> ColumnEvidence:
    """Judge numbers of which some have a label that is not of a missing value: a scale."""
    if not labelled:
        return finding
    name = finding.name
    why = f"numbers, of which {listed(labelled, 4)} alone have a value label: a scale"
    if table.kind(name) == "whole numbers":
        return ColumnEvidence(name, "integer", why)
    decimals = _of_numbers(table, name).decimals
    return ColumnEvidence(name, "continuous", why, decimals=decimals)


# Families of columns


def _unlabelled(table: Table, name: str) -> ColumnEvidence:
    """Judge a column by its values and its name."""
    finding = _ids_of_levels(table, name)
    finding = finding or recognised_by(STORED, StoredColumn(name, table))
    if finding is not None:
        return finding
    if table.kind(name) == "text":
        return _with_unknown_codes(table, _of_text(table, name))
    finding = recognised_by(DIGIT_TIMES, DigitTimes.of(table, name))
    if finding is not None:
        return finding
    finding = _with_unknown_codes(table, _of_numbers(table, name))
    return replace(finding, padded=table.padded(name))


def _ids_of_levels(table: Table, name: str) -> ColumnEvidence | None:
    """Judge texts of a categorical type that are identifiers or personal; None for others."""
    if table.levels(name) is None or table.kind(name) != "text":
        return None
    texts = Texts(name, table, table.text_counts(name), {})
    if texts.rows < ENOUGH:
        return None
    finding = recognised_by(NOT_MODELLED, texts)
    if finding and (finding.kind == "id" or finding.format):
        return finding
    return None


def _with_unknown_codes(table: Table, finding: ColumnEvidence) -> ColumnEvidence:
    """Add the likely codes of a missing value among a column's numbers to its reason."""
    name = finding.name
    is_number = finding.kind in ("integer", "continuous")
    is_number_code = finding.kind == "categorical" and table.kind(name) != "text"
    if not is_number and not is_number_code:
        return finding
    no_numbers = (*finding.missing_values, *finding.strays)
    plain = table.blanked(name, no_numbers)
    numbers, is_missing = plain.floats(name, finding.format)
    note = codes_in_words(numbers[~is_missing], are_categories=is_number_code)
    return replace(finding, why=finding.why + note)


def _of_numbers(table: Table, name: str) -> ColumnEvidence:
    """Judge a column of numbers."""
    floats, is_missing = table.floats(name)
    numbers = floats[~is_missing]
    is_exact = (np.abs(numbers) < 2.0**FLOAT_BITS).all()
    is_whole = is_exact and (numbers == np.round(numbers)).all()
    if is_whole or table.kind(name) != "numbers":
        values, _ = table.integers(name)
        whole_numbers = WholeNumbers.of(name, values[~is_missing], table)
        return judged_by(WHOLE_NUMBERS, whole_numbers)
    return judged_by(REAL_NUMBERS, RealNumbers(name, numbers))


def _of_text(table: Table, name: str) -> ColumnEvidence:
    """Judge a column of texts: written numbers or dates, categories, or personal data."""
    texts = Texts.of(name, table)
    if not texts.counts:
        empty = judged_by(TWO_WORDS, texts)
        return replace(empty, missing_values=_marks(texts))

    # As they are written, with a few marks of missing values among them if need be.
    finding = recognised_by(TWO_WORDS, texts) or _written(texts)
    most = _MostTexts("", [])
    if finding is None or finding.strays:
        most = _most_texts(texts)
        gaps = _marks_of_gaps(texts.counts, most.others)
        if gaps:
            plain_texts = texts.without(gaps)
            again = _written(plain_texts)
            # Beside categories, a mark is one of them.
            if again and again.kind != "categorical":
                finding = again
                texts = plain_texts
    if finding is None:
        # Words such as "none" may be categories, once the column is no number.
        texts = texts.with_doubtful_marks()
        finding = judged_by((*NOT_MODELLED, *CATEGORIES), texts)
        finding = _with_advice(finding, texts, most)
    return _with_marks(finding, texts)


def _written(texts: Texts) -> ColumnEvidence | None:
    """Judge texts that are written numbers, dates or times; None for others."""
    name = texts.name
    values = np.array(texts.texts, dtype=object)
    plain = Table.from_columns({name: (values, None)})
    digit_times = DigitTimes.of(plain, name)
    finding = recognised_by(DIGIT_TIMES, digit_times) or _written_numbers(texts)
    if finding is not None:
        return finding
    times = WrittenTimes(name, texts.texts)
    return recognised_by(WRITTEN_TIMES, times)


def _written_numbers(texts: Texts) -> ColumnEvidence | None:
    """Judge texts that are numbers, with their marks and unit; None for others."""
    numbers = WrittenNumbers(texts)
    if numbers.have_powers():
        plain = Table.from_columns({texts.name: (numbers.powers, None)})
        return _of_numbers(plain, texts.name)
    finding = recognised_by(WRITTEN_NUMBERS, numbers)
    if finding is not None or not numbers.are_digits:
        return finding

    # Few whole numbers that a frame holds as text are codes, unless a mark such as NA made text of
    # them.
    form = numbers.form
    are_few = numbers.whole_numbers.kinds <= FEW_CODES
    if form is not None and are_few and not texts.marks:
        return None
    finding = judged_by(WHOLE_NUMBERS, numbers.whole_numbers)
    number_form = form if finding.kind == "integer" else None
    return replace(
        finding,
        format=finding.format or number_form,
        padded=numbers.padded or None,
        why=finding.why + numbers.note,
        strays=numbers.strays,
    )


# Texts that stand for a missing value, or keep a column from being one of numbers


def _marks(texts: Texts) -> tuple[str, ...]:
    """Return the marks of missing values of a column."""
    return tuple(sorted(texts.marks))


def _with_marks(finding: ColumnEvidence, texts: Texts) -> ColumnEvidence:
    """Add the marks of missing values to a column's evidence."""
    marks = _marks(texts)
    if not marks:
        return finding
    listed_marks = ", ".join(map(repr, marks))
    why = f"{finding.why}; {listed_marks} taken for a missing value: "
    why += "correct missing_values if it is not"
    if any(map(LIMIT.fullmatch, marks)):
        why += ", or write a number into the file instead of a limit"
    doubtful = sorted(_PYTHON_GAPS & texts.counts.keys())
    if doubtful and not _PYTHON_GAPS.isdisjoint(marks):
        why += f"; {', '.join(map(repr, doubtful))} beside it is a category: add it to "
        why += "missing_values if Python wrote it for a missing value"
    # Codes above a scale of numbers are missing values, too.
    return replace(finding, why=why, missing_values=(*finding.missing_values, *marks))


def _with_advice(
    finding: ColumnEvidence, texts: Texts, most: _MostTexts
) -> ColumnEvidence:
    """Explain what keeps a column from being one of numbers or dates, if most texts are such."""
    why = finding.why + _lists_in_words(texts) + _quotes_in_words(texts)
    why += _powers_in_words(texts)
    num_others = sum(texts.counts[text] for text in most.others)
    is_minority = 0 < num_others < texts.rows / 3
    if is_minority and _written(texts.without(most.others)):
        if _MIDNIGHTS.issuperset(most.others):
            why += f"; {num_others:,} rows hold 24:00, which is no time of day here: write 00:00, "
            why += "and it is modelled as times"
            return replace(finding, why=why)
        why += f"; all but {num_others:,} rows hold {most.things}, and it is modelled "
        why += "as such if the others are corrected, or named as missing where the file is read"
        return replace(finding, why=why)
    # A postcode or an identifier is recognised by its letters: they are no units.
    if finding.format is not None or finding.kind == "id":
        return finding
    return replace(finding, why=why + _flags_in_words(texts.counts))


@dataclass(frozen=True)
class _MostTexts:
    """The kind of most texts of a column, in a word, and the other texts; both may be empty."""

    things: str
    others: list[str]


def _most_texts(texts: Texts) -> _MostTexts:
    """Return what most texts of a column are, numbers or dates, if some are neither."""
    probe = texts.texts[:PROBE]
    # Texts with digits as dates have them, and the form that fits most of these.
    dated = [text for text in probe[:6] if re.search(r"\d\W.*\d|\d{8}", text)]

    def num_following(form: str) -> int:
        return sum(follows(text, form) for text in dated)

    def is_number(text: str) -> bool:
        return bool(NUMBER.fullmatch(text) or POWER.fullmatch(text))

    form = max(MOMENTS + DAYS, key=num_following)
    is_date = partial(follows, form=form)
    tests: dict[str, Callable[[str], bool]] = {"numbers": is_number, "dates": is_date}
    for things, test in tests.items():
        num_passed = sum(test(text) for text in probe)
        if 2 * num_passed < len(probe):
            continue
        others = [text for text in texts.texts if not test(text)]
        if others:
            return _MostTexts(things, others)
    return _MostTexts("", [])


def _marks_of_gaps(core: Mapping[str, int], others: Sequence[str]) -> set[str]:
    """Return the texts among numbers or dates that are neither, if they are few and repeated.

    They are limits of what can be measured, such as <0.5, and words: nothing with other digits.
    """
    repeated = [text for text in others if core[text] > 2]
    limits = {text for text in repeated if LIMIT.fullmatch(text)}
    words = {text for text in repeated if not re.search("[1-9]", text)}
    marks = limits | words
    has_many_numbers = len(core) - len(others) >= ENOUGH
    if has_many_numbers and len(marks) <= _MARKS:
        return marks
    return set()


def _lists_in_words(texts: Texts) -> str:
    """Describe texts that have several values each, such as a;b beside a;c; else empty.

    They are so if all texts have far fewer different parts than there are texts.
    """
    for mark in _LIST_MARKS:
        part_lists = [text.strip("[](){} ").split(mark) for text in texts.texts]
        parts = {part.strip() for part_list in part_lists for part in part_list}
        num_lists = sum(len(part_list) > 1 for part_list in part_lists)
        if 2 * num_lists > texts.kinds >= _LISTS and 2 * len(parts) < texts.kinds:
            return (
                f"; several values in one field, divided by {mark!r}: with a column of its own for "
                "each, they are modelled one by one"
            )
    return ""


def _powers_in_words(texts: Texts) -> str:
    """Describe codes such as 2E10, which another program may take for numbers; else empty."""
    are_numbers = all(map(POWER.fullmatch, texts.texts))
    if not are_numbers or not are_codes_like_powers(texts.texts):
        return ""
    return (
        "; written like 2E10, which are codes here: if they are numbers with a power of ten, "
        "declare the column continuous"
    )


def _quotes_in_words(texts: Texts) -> str:
    """Describe texts with marks that a CSV takes for a part of them, such as quotes; else empty."""
    for pattern, marks_in_words in _MARKS_AROUND.items():
        if nearly_all(texts.texts, re.compile(pattern, re.DOTALL).fullmatch):
            return (
                f"; {marks_in_words}, which a CSV takes for a part of the text: if they are not "
                "meant, leave them out in the file"
            )
    return ""


def _flags_in_words(core: Mapping[str, int]) -> str:
    """Describe what stands beside numbers in a column of texts; empty if nothing does.

    It is a flag, such as p and e in official statistics, one of several units, or the only word,
    which may be a unit or not.
    """
    probe = list(core)[: 10 * PROBE]
    flags = [_flag_of(text) for text in probe]
    num_numbers = sum(flag is not None for flag in flags)
    least_numbers = (1.0 - 2 * FEW_ROWS_EACH) * len(probe)
    if num_numbers < least_numbers or len(probe) <= ENOUGH:
        return ""
    marks = sorted({flag for flag in flags if flag})
    if len(marks) > 1 or not {*marks}.isdisjoint("*†‡"):
        return (
            f"; numbers with marks or units beside them ({listed(marks, 5)}): write these into a "
            "column of their own, or all numbers in one unit, and it is modelled as numbers"
        )
    if marks and "" in flags:
        return (
            f"; numbers with and without {marks[0]}: write all of them alike, and it is modelled "
            "as numbers"
        )
    if marks and num_numbers == len(probe) and not is_unit(marks[0]):
        return (
            f"; numbers beside {marks[0]}: if that is a unit, declare the column integer or "
            f"continuous, with a format such as '1234 {marks[0]}'"
        )
    return ""


def _flag_of(text: str) -> str | None:
    """Return the mark or unit beside a number; empty without one, and None for other texts."""
    flagged = FLAGGED_NUMBER.fullmatch(text)
    if flagged:
        return flagged[2] or ""
    number = NUMBER.fullmatch(text)
    if number:
        return "".join(units_among([text]))
    return None


# Points that may be of thousands


def _with_thousands(
    table: Table, findings: Mapping[str, ColumnEvidence]
) -> dict[str, ColumnEvidence]:
    """Read points as marks of thousands, in a text file whose other numbers have decimal commas.

    74.942 is a number with three decimals by itself, and a whole one beside 1.160,03.
    """
    has_comma = any(map(_has_decimal_comma, findings.values()))
    settled = dict(findings)
    if not has_comma or table.frame != "csv":
        return settled
    for name, finding in findings.items():
        is_plain = finding.kind == "continuous" and finding.format is None
        if not is_plain or table.kind(name) != "numbers":
            continue
        cells = texts_of(table.cells(name)).drop_nulls().str.strip_chars()
        if all(map(_GROUPED.fullmatch, cells.unique())):
            why = (
                "whole numbers written like 1.234: points divide thousands here, since other "
                "columns have a comma before decimals; declare the format '1234.5' if that is wrong"
            )
            settled[name] = ColumnEvidence(name, "integer", why, format="1.234")
    return settled


def _has_decimal_comma(finding: ColumnEvidence) -> bool:
    """Return whether a column holds written numbers with a comma before decimals."""
    form = finding.format
    if form is None or finding.kind not in _NUMBERS or form in UNITS:
        return False
    return number_form(form).decimal == ","


# Days and months that may be swapped


def _settled(findings: dict[str, ColumnEvidence]) -> dict[str, ColumnEvidence]:
    """Decide, for dates with ambiguous day and month, by the order in the table's other dates."""
    sure = [f.format for f in findings.values() if f.format and not f.otherwise]
    has_month_first = any(re.match("%-?m[-/.]", form) for form in sure)
    has_day_first = any(re.match("%-?d[-/.]", form) for form in sure)
    is_clear = has_month_first != has_day_first
    for name, finding in findings.items():
        if finding.otherwise is None or finding.format is None:
            continue
        day_first, month_first = sorted((finding.format, finding.otherwise))
        # Without another column's word, a clock of twelve hours is American, as is the month first.
        is_month_first = "%p" in day_first.lower()
        by_others = ""
        if is_clear:
            is_month_first = has_month_first
            by_others = " as in the table's other dates"
        form = day_first
        otherwise = month_first
        if is_month_first:
            form = month_first
            otherwise = day_first

        # What else is said of the column stands behind a semicolon.
        _, *rest = finding.why.partition(";")
        note = "".join(rest)
        why = (
            f"{AMBIGUOUS}: no day is above 12, so they may be {time_words(form)} or "
            f"{time_words(otherwise)}; read as {form}{by_others}. Write the right one as format "
            f"in the schema{note}"
        )
        findings[name] = replace(finding, format=form, otherwise=otherwise, why=why)
    return findings
