"""All rules by which a column's kind is proposed: the first rule of a table that holds decides.

There is a table for each family of columns: stored types, texts, numbers and times written as text,
numbers with decimals, and whole numbers. What a rule asks is a test of the family's class; words
that tests look for are in `words`, forms of values in `patterns`, and numbers of rows and values in
`thresholds`. A sentence has counts of rows but no value, except marks and formats.

`tools/kinds_page.py` writes all rules into `docs/reference/kinds-of-columns.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from siloweave.tables.kinds.numbers import RealNumbers, WholeNumbers
from siloweave.tables.kinds.rule import Rule
from siloweave.tables.kinds.stored import StoredColumn
from siloweave.tables.kinds.texts import Texts
from siloweave.tables.kinds.times import DigitTimes, WrittenTimes
from siloweave.tables.kinds.written_numbers import WrittenNumbers

_NOT_INTEGER = "declare it integer if that is wrong"
_UNALIKE = "not modelled until all are written alike"
_IDENTIFIER = "an identifier, left out of the model and drawn anew"
_REPEATED = f"{_IDENTIFIER} in every row, so rows of one person are not linked"


class _MayBeIds(Protocol):
    """A column as rules of identifiers see it."""

    @property
    def name(self) -> str:
        """The column's name."""

    @property
    def spread(self) -> str:
        """The number of different values and of rows, in words."""

    @property
    def pattern(self) -> str | None:
        """A regular expression of the values, if they have one form."""

    @property
    def shape(self) -> str:
        """That regular expression, in words; empty without one."""


IdsT = TypeVar("IdsT", bound=_MayBeIds)


def _ids(
    name: str,
    test: Callable[[IdsT], bool],
    reason: str,
    otherwise: str,
    verdict: str = _IDENTIFIER,
    note: str = "",
) -> Rule[IdsT]:
    """Make a rule of identifiers.

    Args:
        name: What is recognised.
        test: Whether a column holds that.
        reason: What says so, in the words of the sentence; may be empty.
        otherwise: The kind to declare if it is wrong.
        verdict: What becomes of the column.
        note: What else is said; may be empty.
    """
    because = f", {reason}" if reason else ""
    not_so = f"declare it {otherwise} if that is wrong"
    sentence = f"{{column.spread}}{{column.shape}}{because}: {verdict}; {not_so}{note}"
    return Rule(name, test, "id", sentence, lambda column: {"format": column.pattern})


def _repeated_ids(
    name: str, test: Callable[[IdsT], bool], reason: str, otherwise: str, note: str = ""
) -> Rule[IdsT]:
    """Make a rule of identifiers of people or things that have several rows."""
    return _ids(
        name, test, f"{reason}, with several rows each", otherwise, _REPEATED, note
    )


def _left_out(
    name: str, test: Callable[[Texts], bool], reason: str, form: str | None = None
) -> Rule[Texts]:
    """Make a rule of texts that are not modelled, of a form that has a name or of none."""
    not_so = "declare it categorical if that is wrong"
    sentence = f"{{column.spread}}, {reason}: not modelled; {not_so}"
    return Rule(name, test, "text", sentence, lambda column: {"format": form})


def _codes(
    name: str, test: Callable[[WholeNumbers], bool], reason: str
) -> Rule[WholeNumbers]:
    """Make a rule of whole numbers that are codes."""
    sentence = f"{{column.spread}}, {reason}: codes of categories; {_NOT_INTEGER}"
    return Rule(name, test, "categorical", sentence)


# The tables are laid out by hand: a rule's name, test, kind and sentence, and further facts if any.
# fmt: off

# Types of a frame or a file

STORED: tuple[Rule[StoredColumn], ...] = (
    Rule("empty column", StoredColumn.is_empty, "text",
         "no value in any row: not modelled, and drawn empty"),
    Rule("categorical type", StoredColumn.has_levels, "categorical",
         "a categorical type: its values are the categories"),
    Rule("booleans", StoredColumn.has_booleans, "boolean",
         "booleans"),
    Rule("datetimes", StoredColumn.has_datetimes, "datetime",
         "datetimes{column.zone_note}{column.steps.note}{column.far}{column.months_note}",
         lambda column: {"resolution": column.steps.resolution, "zone": column.zone}),
    Rule("durations of whole units", StoredColumn.has_whole_durations, "integer",
         "durations, in {column.unit}: whole numbers",
         lambda column: {"format": column.unit}),
    Rule("durations", StoredColumn.has_durations, "continuous",
         "durations, in {column.unit}",
         lambda column: {"format": column.unit, "decimals": column.decimals}),
)
"""Rules for the types of a frame or a file; none holds for numbers and texts. Before them, texts of
a categorical type are asked whether they name people or rows."""


# Texts

TWO_WORDS: tuple[Rule[Texts], ...] = (
    Rule("marks of missing values alone", Texts.has_no_text, "text",
         "nothing but marks of missing values: not modelled, and drawn empty"),
    Rule("true and false in several spellings", Texts.are_true_and_false, "boolean",
         "booleans in several spellings"),
    Rule("no and yes", Texts.are_no_and_yes, "boolean",
         "{column.no_and_yes[0]} and {column.no_and_yes[1]}: a boolean",
         lambda column: {"categories": column.no_and_yes}),
)
"""Rules for texts that are asked before numbers and times are looked for."""

NOT_MODELLED: tuple[Rule[Texts], ...] = (
    # By the form of each text, and by what the column is called.
    _left_out("numbers with a power of ten as text", Texts.are_powers,
              "numbers with a power of ten, such as 1.2e-05, as text (give them as numbers: "
              "pandas.to_numeric, or a cast to Float64 in polars)"),
    _left_out("digits of another script", Texts.have_other_digits,
              "numbers, some in digits of another script (write them with 0 to 9)"),
    _ids("device addresses", Texts.are_devices, "MAC addresses", "categorical"),
    _left_out("email addresses", lambda column: column.are_written_like("email"),
              "each written like an email", "email"),
    _left_out("URLs", lambda column: column.are_written_like("url"),
              "each written like a URL", "url"),
    _left_out("UUIDs", lambda column: column.are_written_like("uuid"),
              "each written like a UUID", "uuid"),
    _left_out("IP addresses", lambda column: column.are_written_like("ip"),
              "each written like an IP address", "ip"),
    _left_out("IBANs", lambda column: column.are_written_like("iban"),
              "each written like an IBAN", "iban"),
    _left_out("phone numbers", Texts.are_phones, "each written like a phone", "phone"),
    _left_out("postcodes", Texts.are_postcodes, "each written like a postcode", "postcode"),
    _left_out("postal addresses", Texts.are_addresses, "each written like an address", "address"),
    _left_out("names by the column's name", Texts.are_names_by_name,
              "each written like a name", "name"),
    _left_out("names by their form", Texts.are_names_by_form,
              "each written like a name", "name"),
    _left_out("durations as text", Texts.are_durations,
              "durations (write each as a number, such as minutes)"),
    _left_out("several numbers in one field", Texts.are_several_numbers,
              "several numbers in one field (give each a column of its own)"),
    _left_out("degrees of a place", Texts.are_degrees,
              "degrees of a place (write them as numbers, below 0 in the west and the south)"),
    _left_out("flags in one field", Texts.are_flags,
              "flags of 0 and 1 in one field (give each a column of its own)"),
    _left_out("dates beside day numbers", Texts.are_dates_and_day_numbers,
              "dates, and days as a spreadsheet counts them (format all cells as dates)"),
    _left_out("dates in other forms", Texts.are_dated,
              "dates in several forms, or in one that is not read (write all alike, as "
              "2024-01-31 or 2024-01-31 18:05)"),
    # By how many differ.
    _ids("unique ids", Texts.are_ids, "", "categorical"),
    _left_out("unique texts", Texts.are_nearly_all_different, "nearly all different"),
    _repeated_ids("person ids by the column's name", Texts.are_people_by_name,
                  "named as one", "categorical"),
    _repeated_ids("repeated ids by the column's name", Texts.are_units_by_name,
                  "named as one", "categorical"),
    _repeated_ids("repeated letters with a number", Texts.are_numbered,
                  "letters and a number each", "categorical"),
    _repeated_ids("repeated texts of one shape", Texts.are_alike,
                  "written as identifiers are", "categorical"),
    # By their length.
    _left_out("free text", Texts.are_free, "free text"),
    _left_out("texts of one row each", Texts.are_mostly_single, "many of one row alone"),
)
"""Rules for texts that are personal, nearly unique or free."""

CATEGORIES: tuple[Rule[Texts], ...] = (
    Rule("one text", Texts.is_constant, "categorical",
         "constant: one text in every row"),
    Rule("no and yes in several words", Texts.are_mixed_truths, "categorical",
         "{column.num_spellings:,} different texts in {column.rows:,} rows: categories; all mean "
         "no or yes: write them alike in the file if they mean the same"),
    Rule("categories in several spellings", Texts.are_alike_in_part, "categorical",
         "{column.num_spellings:,} different texts in {column.rows:,} rows: categories; "
         "{column.alike_in_words} from another in capital letters, spaces or look-alikes alone: "
         "write them alike in the file if they mean the same"),
    Rule("categories", lambda column: True, "categorical",
         "{column.num_spellings:,} different texts in {column.rows:,} rows: categories"),
)
"""Rules for all other texts."""


# Numbers and times that are written as text

DIGIT_TIMES: tuple[Rule[DigitTimes], ...] = (
    Rule("times of digits in several forms", DigitTimes.have_several_forms, "text",
         f"times written as {{column.forms_in_words}}: {_UNALIKE}"),
    Rule("times of digits", DigitTimes.have_one_form, "datetime",
         "times written as {column.form_in_words}{column.zone_note}{column.steps.note}"
         f"{{column.far}}; {_NOT_INTEGER}",
         lambda column: {"format": column.form, "resolution": column.steps.resolution}),
)
"""Rules for times such as 20240131093000, of texts and of numbers; the first to be asked."""

WRITTEN_NUMBERS: tuple[Rule[WrittenNumbers], ...] = (
    _ids("long digits as text", WrittenNumbers.are_too_long,
         "of more digits than are modelled", "categorical"),
    Rule("0 and 1 as text", WrittenNumbers.are_zero_and_one, "boolean",
         "0 and 1: a boolean",
         lambda column: {"categories": ("0", "1")}),
    Rule("whole numbers with marks or a unit", WrittenNumbers.are_whole, "integer",
         "whole {column.form_in_words}{column.note}",
         lambda column: {"format": column.form, "padded": column.padded or None,
                         "strays": column.strays}),
    Rule("numbers with decimals as text", WrittenNumbers.are_numbers, "continuous",
         "{column.form_in_words}, of up to {column.decimals_in_words}{column.note}",
         lambda column: {"format": column.form, "decimals": column.decimals,
                         "padded": column.padded, "strays": column.strays}),
    Rule("numbers with commas and points", WrittenNumbers.have_several_marks, "text",
         "{column.column.spread}, numbers of which some have a comma and others a point: "
         f"{_UNALIKE}"),
)
"""Rules for numbers that are written as text; digits alone are whole numbers."""

WRITTEN_TIMES: tuple[Rule[WrittenTimes], ...] = (
    Rule("dates and times", WrittenTimes.have_one_form, "datetime",
         "{column.things} written as {column.form_in_words}{column.reading_note}{column.steps.note}"
         "{column.far}",
         lambda column: {"format": column.form, "otherwise": column.otherwise,
                         "resolution": column.steps.resolution}),
    Rule("times with and without a zone", WrittenTimes.have_zones_in_part, "text",
         "{column.num_zoned:,} of {column.kinds:,} different times have a zone, such as Z, "
         f"and the others have none: {_UNALIKE}"),
    Rule("days with and without a time", WrittenTimes.are_iso, "datetime",
         "dates as ISO 8601 has them, some with a time of day and others without"
         "{column.iso_steps.note}; drawn ones all have a time",
         lambda column: {"resolution": column.iso_steps.resolution}),
)
"""Rules for dates and times that are written as text."""


# Numbers

REAL_NUMBERS: tuple[Rule[RealNumbers], ...] = (
    Rule("one number with decimals", RealNumbers.is_constant, "continuous",
         "constant: one number of {column.decimals_in_words} in every row",
         lambda column: {"decimals": column.decimals}),
    Rule("few codes with decimals", RealNumbers.are_codes, "categorical",
         "{column.spread}, named as a list of codes: categories; declare it continuous if that "
         "is wrong"),
    Rule("many codes with decimals", RealNumbers.are_rare_codes, "text",
         "{column.spread}, named as a list of codes: not modelled; declare it continuous if that "
         "is wrong"),
    Rule("few numbers with decimals", RealNumbers.are_few, "continuous",
         "numbers of {column.decimals_in_words}, {column.kinds} different ones; if no other can "
         "occur, declare it categorical",
         lambda column: {"decimals": column.decimals}),
    Rule("times of a spreadsheet", RealNumbers.may_be_sheet_times, "continuous",
         "numbers of {column.decimals_in_words}; if a spreadsheet counted days from 1900 on, write "
         "dates into the file",
         lambda column: {"decimals": column.decimals}),
    Rule("seconds with decimals", RealNumbers.may_be_instants, "continuous",
         "numbers of {column.decimals_in_words}; if they are seconds from 1970 on, write dates "
         "into the file",
         lambda column: {"decimals": column.decimals}),
    Rule("numbers with decimals", lambda column: True, "continuous",
         "numbers of {column.decimals_in_words}",
         lambda column: {"decimals": column.decimals}),
)
"""Rules for numbers of which some are not whole."""

WHOLE_NUMBERS: tuple[Rule[WholeNumbers], ...] = (
    Rule("one whole number", WholeNumbers.is_constant, "integer",
         "constant: one whole number in every row"),
    Rule("0 and 1", WholeNumbers.is_zero_and_one, "boolean",
         "0 and 1: a boolean",
         lambda column: {"categories": (0, 1)}),
    Rule("days and months", WholeNumbers.are_days, "datetime",
         "whole numbers such as {column.day_example}: dates{column.far_days}; "
         f"{_NOT_INTEGER}",
         lambda column: {"format": column.day_form}),
    Rule("seconds from 1970 on", WholeNumbers.may_be_instants, "integer",
         "{column.spread}: modelled as numbers; if they are {column.instant_unit} from 1970 on, "
         "write dates into the file"),
    Rule("many postcodes", WholeNumbers.are_rare_postcodes, "text",
         "{column.spread}, named as a postcode: not modelled; declare it categorical if that is "
         "wrong",
         lambda column: {"format": "postcode"}),
    Rule("many codes", WholeNumbers.are_rare_codes, "text",
         f"{{column.spread}}, named as a list of codes: not modelled; {_NOT_INTEGER}"),
    Rule("few postcodes", WholeNumbers.are_postcodes, "categorical",
         f"{{column.spread}}, named as a postcode: categories; {_NOT_INTEGER}"),
    # Identifiers, by the column's name and by their form.
    _ids("unique ids by the column's name", WholeNumbers.are_ids_by_name,
         "named as one", "integer"),
    _ids("long digits", WholeNumbers.are_too_large,
         "of more digits than are modelled", "integer"),
    _repeated_ids("person ids by the column's name", WholeNumbers.are_people_by_name,
                  "named as one", "integer"),
    _ids("unique numbers of ten digits", WholeNumbers.are_long_and_differ,
         "of ten digits or more, nearly all different", "integer",
         note="{column.instants_note}"),
    _repeated_ids("repeated ids by the column's name", WholeNumbers.are_units_by_name,
                  "named as one", "integer"),
    _repeated_ids("repeated evenly spread numbers", WholeNumbers.are_even_units,
                  "all of as many digits and evenly spread", "integer",
                  "{column.instants_note}"),
    _ids("numbers without a gap", WholeNumbers.have_no_gap, "without a gap", "integer"),
    _ids("rising numbers", WholeNumbers.rise, "rising from row to row", "integer",
         note="{column.instants_note}"),
    _ids("numbers that chance would have repeated", WholeNumbers.differ_beyond_chance,
         "where chance would have repeated some", "integer"),
    _ids("evenly spread numbers", WholeNumbers.are_even,
         "all of as many digits and evenly spread", "integer"),
    # Codes of categories.
    _codes("two codes", WholeNumbers.are_two_codes, "just two"),
    _codes("codes by the column's name", WholeNumbers.are_codes_by_name, "named as one"),
    Rule("scale with codes of a missing value", WholeNumbers.are_scale, "integer",
         "{column.spread}: a scale from {column.low} to {column.scale_end}, and "
         "{column.unknown_in_words}, far above it, taken for a missing value: correct "
         "missing_values if that is wrong, or declare the column categorical",
         lambda column: {"missing_values": column.unknown}),
    _codes("codes with gaps", WholeNumbers.are_codes_with_gaps,
           "with gaps that counts and measures do not have"),
    _codes("codes without order", WholeNumbers.are_codes_without_order,
           "in no order that another column knows"),
    # Really numbers.
    Rule("few whole numbers", WholeNumbers.are_few, "integer",
         "{column.spread}: modelled as numbers; if they are codes of something, declare the column "
         "categorical"),
    Rule("counters", WholeNumbers.may_count_rows, "integer",
         "{column.spread}: modelled as numbers; they rise from row to row as counters do: if they "
         "number rows, declare it id"),
    Rule("days of a spreadsheet", WholeNumbers.may_be_sheet_days, "integer",
         "{column.spread}: modelled as numbers; if a spreadsheet counted days from 1900 on, write "
         "dates into the file"),
    Rule("whole numbers", lambda column: True, "integer",
         "{column.spread}: modelled as numbers{column.multiples_note}"),
)
"""Rules for whole numbers."""

# fmt: on

FAMILIES: Mapping[str, tuple[Rule[Any], ...]] = {
    "Types of a frame or a file": STORED,
    "Texts of two words": TWO_WORDS,
    "Times of digits": DIGIT_TIMES,
    "Numbers as text": WRITTEN_NUMBERS,
    "Dates and times as text": WRITTEN_TIMES,
    "Texts that are not modelled": NOT_MODELLED,
    "Categories": CATEGORIES,
    "Numbers with decimals": REAL_NUMBERS,
    "Whole numbers": WHOLE_NUMBERS,
}
"""All tables, in the order in which a column meets them."""
