"""What a column holds, judged by its values and its name, with the reason in a sentence.

Everything here is read from rows, and nothing is private: `Schema.detect` marks it so. A sentence
has counts of rows but no value, except marks and formats.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from itertools import groupby, product
from math import ceil, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import SchemaError, count_of
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.display import listed
from siloweave.tables.forms import RESOLUTIONS, resolution_of, written_time
from siloweave.tables.parsing import texts_of, times_of
from siloweave.tables.read import MOST_DECIMALS, Table, decimals_of, fewest_decimals

# So many distinct values rule out most readings.
_PROBE = 60
# From so many rows on, shares of distinct values mean something.
_SOME = 20
# A column with this share of distinct values is nearly unique.
_NEAR = 0.95
# This share of rows may hold something else in a column of numbers.
_STRAY = 0.02
# Codes that the column's name does not call so have no more different numbers.
_FEW_CODES = 40
# Codes that the column's name calls so have no more different numbers.
_MOST_CODES = 256
# A float holds whole numbers of so many binary digits exactly.
_FLOAT_BITS = 53
# A schema has no bounds from here on.
_HUGE = 2**62
# Identifiers that are no running numbers have so many digits.
_LONG = 4
# With this share of distinct values each has few rows, as people have visits.
_EACH = 0.1
_SECOND = RESOLUTIONS["second"]
# So seldom would all of some times be on whole hours by chance.
_SURPRISE = log(1e5)
# Order in other columns is judged by so many rows.
_ROWS = 5000
# So many threads judge columns side by side; more would hold more copies of columns.
_THREADS = 4


def _lexicon(words: str) -> frozenset[str]:
    """Split a text at blanks into a set of words."""
    return frozenset(words.split())


_BLANKS = _lexicon(
    "na n/a #n/a nan <na> null nil none - -- ? . missing k.a. n.a. n.v. s.o. nd"
)
# Errors of a spreadsheet, such as #DIV/0!.
_ERROR = re.compile(r"#(?:n/?[av]|¡?[^\W\d_/]+(?:/0)?[!?])", re.I)
# Value labels of codes for an unknown answer, in surveys of several languages.
_UNKNOWN = re.compile(
    r"\b(?:refus\w*|don.?t know|do not know|dk|no (?:answer|response|reply|data|opinion)|"
    r"not (?:answered|applicable|asked|available|ascertained|stated|known|reported)|"
    r"(?:un|not )known|inapplicable|missing|skipped|n\.?/?a\.?|dna|nk|"
    r"wei(?:ß|ss) nicht|keine angaben?|verweigert|trifft nicht zu|k\.? ?a\.?|entf(?:ällt|aellt)|"
    r"ne sait pas|nsp|sans (?:réponse|objet)|non réponse|no sabe|no contesta|ns/nc|non so|"
    r"non risponde|weet niet|geen antwoord|vet ej|vet inte|ved ikke|nie wiem|brak odpowiedzi)\b",
    re.IGNORECASE,
)
# Blanks that may well be categories.
_MAYBE = frozenset({"none", ".", "missing", "nil", "nd"})
# False and true. The first pair that a column has is taken.
_PAIRS = (
    ("n", "y"),
    ("no", "yes"),
    ("f", "t"),
    ("false", "true"),
    ("nein", "ja"),  # German
    ("non", "oui"),  # French
    ("no", "sí"),  # Spanish
    ("no", "si"),  # Spanish and Italian, without the accent
    ("no", "sì"),  # Italian
    ("nee", "ja"),  # Dutch
    ("nej", "ja"),  # Danish and Swedish
    ("não", "sim"),  # Portuguese
    ("off", "on"),
    ("faux", "vrai"),  # French
    ("falsch", "wahr"),  # German
    ("falso", "vero"),  # Italian
    ("onwaar", "waar"),  # Dutch
    ("falso", "verdadero"),  # Spanish
    ("falso", "verdadeiro"),  # Portuguese
    ("n", "j"),  # German, Dutch and Nordic
    ("n", "o"),  # French
    ("n", "s"),  # Italian, Portuguese and Spanish
    ("nei", "ja"),  # Norwegian
    ("ei", "kyllä"),  # Finnish
    ("ei", "jah"),  # Estonian
    ("nie", "tak"),  # Polish
    ("ne", "ano"),  # Czech
    ("nie", "áno"),  # Slovak
    ("nem", "igen"),  # Hungarian
    ("ne", "da"),  # Croatian, Serbian and Slovene
    ("nu", "da"),  # Romanian
    ("hayır", "evet"),  # Turkish
    ("нет", "да"),  # Russian
    ("не", "да"),  # Bulgarian, Macedonian and Serbian
    ("όχι", "ναι"),  # Greek
    ("n", "t"),  # Polish
)

# Words in the names of columns.
_IDS = _lexicon(
    "id ids uuid guid idx index key identifier ssn mrn serial rowid login username plate vin imei "
    "kennzeichen barcode"
)
# Words that number something where they come last.
_NUMBERED = _lexicon("no nr nbr number nummer num ref reference numéro numero número")
# Words that come before what they number.
_FIRST = _lexicon("id nr numéro numero número codigo código code")
_PEOPLE = re.compile(
    r"(?P<who>pat$|patient|pa[cz]ient|pasient|person|kunde|cust(?!om$|oms|od)|client|klient|"
    r"member|mitglied|proband|particip|teilnehm|user|usuari|usager|utilis|employ(?!er|ment)|staff|"
    r"caller|benutz|assignee|manager|supervisor|physician|mitarb|versichert|insured|assur|"
    r"student|pupil|schüler|alunn|alumn[oa]|élève|estudiant|étudiant|leerling|teacher|donor|"
    r"resident|citizen|bürger|respond)|pat(?:id|nr|no)$|"
    r"(?:pid|mrn|ssn|bsn|kvnr)$|u?subj|sujet|househ|account|kont[oa]|case(?!load)|fall|dossier"
)  # how words begin that name people, or what numbers them
# How words end that name several people, or nobody.
_MANY = re.compile(r"(?:s|ship|tion|ance|ity)$")
# Words that, alone, number people if the column is one of numbers.
_ALONE = _lexicon("patient subject participant proband respondent pupil")
# Who learns what a subject is, which is then no person.
_TAUGHT = re.compile(r"student|pupil|schüler|élève|alu[mn]n")
_MARK = re.compile(
    r"(?:id|ids|nr|nbr|num|number|nummer|n[uú]m[eé]ro|(?<!alu[nm])no|hash|mrn|ssn|bsn)$"
)
_CODES = _lexicon(
    "code codes recode type class category cat group status state sex gender race region district "
    "zone ward dept department product method mode reason source kind branch store site room id "
    "country occupation industry workclass marital relationship ethnicity religion nationality "
    "diagnosis procedure centre center"
)
_COUNTS = _lexicon(
    "num number count counts n age year years month months day days hour hours week weeks minute "
    "minutes second seconds time times amount total sum qty quantity size score rate rank "
    "percent pct length width height weight distance price cost timestamp epoch cumulative far "
    "odometer mileage reading uptime elapsed zählerstand"
)
_HOW_MANY = _lexicon("num number count n no")
_THINGS = _lexicon(
    "article artikel item sku produkt produit line model version county commune gemeinde fips drug "
    "hospital clinic company brand medication medicine substance test course cve job position "
    "disease condition club league city town school university college"
)
_NAMES = _lexicon(
    "surname lastname firstname fullname forename nachname vorname prénom prenom apellido cognome"
)
_SEVERAL = "with several rows each"
_NAMED = f"named as one, {_SEVERAL}"
# Of people, unless another word says of what.
_NAME = _lexicon("name nom nombre")
_WHOSE = _lexicon(
    "full first last given family middle maiden contact doctor owner parent mother"
)
_PHONES = _lexicon("phone telephone tel telefon mobile handy fax cell")
_STREETS = _lexicon("address addr street strasse straße adresse rue anschrift")
_POST = _lexicon(
    "zip zipcode postcode postal plz postleitzahl postnummer postnr pocztowy psč"
)
# How words end that name days.
_DATED = re.compile(r"(?:date|datum|dato|data|fecha)$")

_UNIT = (
    r"%|‰|[$€£¥₹]|[A-Z]{3}|kr\.?|Fr\.|zł|mmHg|bpm|km/h|°[CF]?|µ?[gl]|[kcm]?[gml]|km|h|min|sec|s|ms|"
    r"k?Wh?|[kMGT]?B|[km]?V|[kMG]?Hz|h?Pa|[a-z]{1,4}/[a-z]{1,4}"
)
# A unit, whatever it is, behind a space.
_WORD = r"[^\W\d_]{1,12}\.?"
_MONEY = (
    "EUR|USD|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|ISK|PLN|CZK|HUF|RON|TRY|RUB|UAH|CAD|AUD|NZD|BRL|MXN|ZAR|"
    "ILS|AED|SAR|KRW|SGD|HKD"
)  # other capital letters, such as PAT-1024, begin an identifier
_NUMBER = re.compile(
    r"(?P<open>\()?(?P<sign>[-+\u2212]?)\s?"
    rf"(?P<prefix>(?:[A-Z]{{0,3}}[$€£¥₹]|{_MONEY}|Fr\.|kr\.?)\s?)?"
    r"(?P<sign2>[-+\u2212]?)(?P<body>\d[\d.,'\u2019 \u00a0\u202f]*(?<![ \u00a0\u202f])|[.,]\d+)"
    rf"(?P<behind>[-\u2212]?)(?P<suffix>\s?(?:{_UNIT})|\s{_WORD}(?:/\d*{_WORD})?)?(?P<close>\))?"
)
# Numbers such as 1.2E-05.
_POWER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
# Numbers that mostly stand for no value: 99, 998, 77, 88.
_CODED = re.compile(r"(?:9+[6-9]|66+|77+|88+)(?:\.9+)?|9\.9+")
# Codes of a missing value in one column, at each end.
_MOST_UNKNOWN = 5
# Numbers of so many values are a scale, beside codes of a missing value.
_SCALE = 10
_GAPS = "with gaps that counts and measures do not have"
# So many different numbers stand beside codes of a missing value.
_FEWEST = 3
# Codes are so many times as far from other numbers as these mostly are from each other.
_APART = 3
# A gap is judged by so many numbers below it.
_NEIGHBOURS = 9
_LIMIT = re.compile(r"[<>≤≥]=?\s?\d\S*(?: \S+)?|\d+\s?\+")
# So many marks of missing values may stand among numbers.
_MARKS = 5
_DIGIT = re.compile(r"\d")
_MAC = re.compile(r"[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}", re.IGNORECASE)
_SHAPES: Mapping[str, re.Pattern[str]] = {
    "email": re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}"),
    "url": re.compile(r"(?:https?|ftp)://\S+|www\.\S+", re.IGNORECASE),
    "uuid": re.compile(
        r"\{?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?", re.IGNORECASE
    ),
    "ip": re.compile(
        r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:/\d{1,2})?"
        r"|(?=.*:.*:)(?!\d+:\d\d:\d\d$)[0-9a-f:]{3,39}",
        re.IGNORECASE,
    ),
    "iban": re.compile(
        r"(?=.{15})[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?", re.I
    ),
}
# Phone numbers as E.164 has them.
_E164 = re.compile(r"\+[1-9]\d{9,14}")
# Two numbers in one field, such as 120/80.
_TWO = re.compile(r"\d{1,3}(?:[.,]\d+)? ?[/x×] ?\d{1,3}(?:[.,]\d+)?")
_LASTS = re.compile(  # 25:10, -0:30, 5h 25m
    r"[-+\u2212]?(?:\d+ days?,? )?\d+:[0-5]\d(?::[0-5]\d)?|"
    r"(?:\d+ ?(?:d|days?|hours?|hrs?|h|std|mins?|m|secs?|s)\.? ?){2,}",
    re.I,
)
_PHONE = re.compile(
    r"(?:\+|00?|\()?\d[\d\s()/.\u2013-]{5,20}\d(?:\s?(?:x|ext\.?)\s?\d{1,6})?",
    re.IGNORECASE,
)
_DIALLED = re.compile(
    r"[+(]|00[1-9]\d{0,2}[\s/.-]|(?:1-)?\d{3}[-.]\d{3}[-.]\d{4}(?!\d)|0[1-9](?:[ .]\d\d){4}(?!\d)|"
    # Of one country: 06 12 34 56 78, 030 1234567.
    r"0[1-9]\d{1,3}[ /-]\d{3,4} ?\d{3,4}(?!\d)"
)
_COMPACT = re.compile(r"(\d{12}|\d{14}|\d{17}|\d{20})(?:\.\d{1,6})?(?:[+-]\d{4})?")
# Behind whole numbers in a column of floats.
_ZEROS = r"\.0+$"
_ZONE = re.compile(r"(?<=\d) ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)$")
_POSTCODE = re.compile(
    r"[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|\d{4} ?[A-Z]{2}|[A-Z]\d[A-Z] ?\d[A-Z]\d"
)
_PERSON = re.compile(r"(?:[^\W\d_][\w.'\u2019-]*)(?:,? [^\W\d_][\w.'\u2019-]*){1,3}")
_STREET = re.compile(
    r"\b(?:st|street|ave|avenue|road|rd|lane|drive|dr|blvd|way|court|rue|via|calle|place)\b|"
    r"stra(?:ß|ss)e|str\.|weg\b|platz\b|gasse\b|allee\b",
    re.IGNORECASE,
)
_CALLED = {
    "email": "an email",
    "address": "an address",
    "iban": "an IBAN",
    "url": "a URL",
    "ip": "an IP address",
    "uuid": "a UUID",
}
BRACKETS = "in brackets"
"""What the reason of a column has whose numbers in brackets are taken for negative ones."""
AMBIGUOUS = "dates that are ambiguous"
"""What the reason of a column begins with whose days and months may be swapped."""

# The first that fits all dates is taken: where days and months may be swapped, days come first,
# unless the table's other dates say otherwise (`_settled`).
_DAYS = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    # Years of two digits.
    "%d.%m.%y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d-%m-%y",
    "%m-%d-%y",
    # Months by name.
    "%d %b %Y",
    "%d %B %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%d. %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%b %d %Y",
    "%B %d %Y",
    # Digits alone.
    "%Y%m%d",
)
_MONTHS = (
    "%Y-%m",
    "%Y/%m",
    "%m/%Y",
    "%m.%Y",
    "%b %Y",
    "%B %Y",
    "%b-%Y",
    "%b-%y",
)
# With the name of the day before it.
_NAMED_DAYS = (*(f"%a {day}" for day in _DAYS), *(f"%a, {day}" for day in _DAYS))
# In days.
_DECADE = 3652
# Months and days of years that stand for no date, such as 9999-12-31.
_EDGES = ((1, 1), (12, 30), (12, 31))
# In microseconds.
_DAY = 86_400_000_000
# So many far dates are named at each end.
_ODD_DATES = 3
_CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")


def _moments() -> tuple[str, ...]:
    """Return the formats of times: of a clock alone, and of days with a clock."""
    forms = [*_CLOCKS]
    for day, clock, gap in product(_DAYS, _CLOCKS, (" ", ", ")):
        forms.append(f"{day}{gap}{clock}")
    # ISO 8601, where a zone may follow.
    zones = ("", "Z", " UTC", "%z", " %z")
    for gap, clock, zone in product("T ", _CLOCKS[:3], zones):
        forms.append(f"%Y-%m-%d{gap}{clock}{zone}")
    # As mail and web servers write them.
    for day, zone in product(("%a, ", ""), ("GMT", "UTC", "%z")):
        forms.append(f"{day}%d %b %Y %H:%M:%S {zone}")
    return tuple(forms)


_MOMENTS = _moments()


@dataclass(frozen=True)
class ColumnEvidence:
    """The kind that a column seems to have, and why; see `Column` for the facts.

    Attributes:
        otherwise: The other reading of its dates, where both fit all of them.
        strays: Texts in a column of numbers that are no number.
    """

    name: str
    kind: Any
    why: str = ""
    categories: tuple[Any, ...] = ()
    format: str | None = None
    decimals: int | None = None
    padded: int | None = None
    missing_values: tuple[str, ...] = ()
    otherwise: str | None = None
    strays: tuple[str, ...] = ()
    resolution: str | None = None
    zone: str | None = None


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
    if table.hint:
        why += f"; {table.hint}"
    return replace(finding, why=why)


def _judged(table: Table, name: str) -> ColumnEvidence:
    """Judge one column, which may be empty or have value labels."""
    if table.missing(name).all():
        why = "no value in any row: not modelled, and drawn empty"
        return ColumnEvidence(name, "text", why)
    if table.value_labels(name):
        return _labelled(table, name)
    return _unlabelled(table, name)


def _labelled(table: Table, name: str) -> ColumnEvidence:
    """Judge a column whose file has value labels: categories, or a scale of numbers.

    It is a scale where labels are at its ends alone, or name missing values alone.
    """
    labels = table.value_labels(name)
    unknown = {code: label for code, label in labels.items() if _UNKNOWN.search(label)}
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


def _unlabelled(table: Table, name: str) -> ColumnEvidence:
    """Judge a column by its values and its name."""
    kind = table.kind(name)
    if table.levels(name) is not None:
        return _of_levels(table, name)
    if kind == "booleans":
        return ColumnEvidence(name, "boolean", "booleans")
    if kind == "datetimes":
        return _of_datetimes(table, name)
    if kind == "text":
        return _with_unlike(table, _of_text(table, name))
    unit = table.unit(name)
    if unit is not None:
        return _of_durations(table, name, unit)
    compact = _compact_times(table, name, None)
    if compact is not None:
        return compact
    finding = _with_unlike(table, _of_numbers(table, name))
    return replace(finding, padded=table.padded(name))


def _of_levels(table: Table, name: str) -> ColumnEvidence:
    """Judge a column of a categorical type, which may still be of identifiers."""
    core: Mapping[str, int] = {}
    if table.kind(name) == "text":
        core = table.text_counts(name)
    if sum(core.values()) >= _SOME:
        finding = _not_modelled(table, name, core)
        if finding and (finding.kind == "id" or finding.format):
            return finding
    why = "a categorical type: its values are the categories"
    return ColumnEvidence(name, "categorical", why)


def _of_datetimes(table: Table, name: str) -> ColumnEvidence:
    """Judge a column of a frame's datetimes."""
    values, _ = table.datetimes(name)
    when = np.unique(values[~table.missing(name)])
    times = when.view("datetime64[us]")
    days = np.datetime_as_string(times, unit="D").tolist()
    zone = table.zone(name)
    zone_words = f" of the time zone {zone}" if zone else ""
    resolution, whole = _resolution(when, None)
    far = _far_off(when, days, "make it missing in the table")
    why = f"datetimes{zone_words}{whole}{far}"
    return ColumnEvidence(name, "datetime", why, resolution=resolution, zone=zone)


def _of_durations(table: Table, name: str, unit: str) -> ColumnEvidence:
    """Judge a column of a frame's durations, as numbers of a unit."""
    why = f"durations, in {unit}"
    if table.kind(name) == "whole numbers":
        return ColumnEvidence(name, "integer", f"{why}: whole numbers", format=unit)
    values, is_missing = table.floats(name, unit)
    distinct = np.unique(values[~is_missing])
    decimals = decimals_of(distinct, MOST_DECIMALS, _FLOAT_BITS)
    return ColumnEvidence(name, "continuous", why, format=unit, decimals=decimals)


def _with_unlike(table: Table, finding: ColumnEvidence) -> ColumnEvidence:
    """Add the likely codes of a missing value among a column's numbers to its reason."""
    name = finding.name
    is_number = finding.kind in ("integer", "continuous")
    is_number_code = finding.kind == "categorical" and table.kind(name) != "text"
    if not is_number and not is_number_code:
        return finding
    no_numbers = (*finding.missing_values, *finding.strays)
    plain = table.blanked(name, no_numbers)
    numbers, is_missing = plain.floats(name, finding.format)
    note = _codes_in_words(finding, numbers[~is_missing])
    return replace(finding, why=finding.why + note)


def _codes_in_words(finding: ColumnEvidence, numbers: Floats) -> str:
    """Describe values that look like codes for "missing", such as 998 and 999; empty if none do."""
    distinct, counts = np.unique(numbers, return_counts=True)
    num_low = _low_codes(distinct, counts)
    num_high = _high_codes(distinct[num_low:], counts[num_low:])
    low_codes = distinct[:num_low][::-1]
    high_codes = distinct[len(distinct) - num_high :]
    codes = [f"{code:.10g}" for code in (*low_codes, *high_codes)]
    if not codes:
        return ""

    listed_codes = " and ".join(codes)
    it = "them"
    stands = "they stand"
    if len(codes) == 1:
        it = "it"
        stands = "it stands"
    correct = "correct the bounds"
    if finding.kind == "categorical":
        correct = "take it from the categories"
    return (
        f"; {listed_codes}, far from all others: list {it} in missing_values if {stands} for a "
        f"missing value, and {correct}"
    )


def _low_codes(distinct: NDArray[Any], counts: Ints) -> int:
    """Count the smallest different numbers that look like codes, such as -99, or -8 and -9.

    Below numbers of which none is negative they need not lie as far away.
    """
    num_negative = int((distinct < 0).sum())
    has_both = 0 < num_negative < len(distinct)
    if has_both:
        # -7, -8 and -9 are refusals in surveys, wherever the other numbers are.
        are_refusals = {*distinct[:num_negative]} <= {-7.0, -8.0, -9.0}
        if are_refusals and counts[0] > 2:
            return num_negative

    most_codes = min(_MOST_UNKNOWN, len(distinct) - _FEWEST)
    for num_codes in range(most_codes, 0, -1):
        # A code is of several rows: one or two may be typing errors.
        if counts[:num_codes].min() <= 2:
            continue
        codes = distinct[:num_codes]
        rest = distinct[num_codes:]
        gap = rest[0] - codes[-1]
        sizes = [f"{-code:.10g}" for code in codes]
        has_long = any(map(_CODED.fullmatch, sizes))
        are_codes = all(_CODED.fullmatch(size) or size in "123456789" for size in sizes)
        is_far = gap > np.ptp(rest) and has_long
        is_apart = rest[0] >= 0 and gap > _APART * np.median(np.diff(rest))
        is_several = has_long or num_codes > 1
        if are_codes and (is_far or (is_apart and is_several)):
            return num_codes
    return 0


def _high_codes(distinct: NDArray[Any], counts: Ints) -> int:
    """Count the largest different numbers that look like codes, such as 998 and 999.

    They lie far from all others; or they are at least two in a row up to 99 or such, above a gap
    that is no chance, and each is more frequent than the numbers below the gap.
    """
    most_codes = min(_MOST_UNKNOWN, len(distinct) - _FEWEST)
    for num_codes in range(most_codes, 0, -1):
        codes = distinct[-num_codes:]
        least_count = counts[-num_codes:].min()
        rest = distinct[:-num_codes]
        rest_counts = counts[:-num_codes]
        texts = [f"{code:.10g}" for code in codes]
        if least_count <= 2 or not all(map(_CODED.fullmatch, texts)):
            continue
        gap = codes[0] - rest[-1]
        if gap > np.ptp(rest):
            return num_codes

        # Rows that each value of the gap would have, were it as those below; absent by chance?
        spacing = float(np.median(np.diff(rest)))
        is_near = rest >= rest[-1] - _NEIGHBOURS * spacing
        usual = rest_counts[is_near].sum() / (_NEIGHBOURS + 1)
        absent = (gap / spacing - 1) * usual
        is_wide = gap > _APART * spacing and absent > 16
        is_frequent = least_count > usual
        is_row_of_nines = set(texts[-1]) == {"9"} and (np.diff(codes) == 1).all()
        if num_codes > 1 and is_row_of_nines and is_wide and is_frequent:
            return num_codes
    return 0


# Numbers


@dataclass(frozen=True)
class _WholeNumbers:
    """The whole numbers in a column, without missing values.

    Attributes:
        values: Of each row.
        distinct: The different ones, ascending.
        counts: How many rows have each of these.
    """

    values: Ints
    distinct: Ints
    counts: Ints

    @classmethod
    def of(cls, values: Ints) -> _WholeNumbers:
        """Count the values of some rows."""
        distinct, counts = np.unique(values, return_counts=True)
        return cls(values, distinct, counts)

    @property
    def rows(self) -> int:
        """The number of rows with a number."""
        return len(self.values)

    @property
    def kinds(self) -> int:
        """The number of different numbers."""
        return len(self.distinct)

    @property
    def spread(self) -> str:
        """The number of different values and of rows, in words."""
        return f"{_different(self.kinds)} in {self.rows:,} rows"


def _of_numbers(table: Table, name: str) -> ColumnEvidence:
    """Judge a column of numbers."""
    floats, is_missing = table.floats(name)
    numbers = floats[~is_missing]
    is_exact = (np.abs(numbers) < 2.0**_FLOAT_BITS).all()
    is_whole = is_exact and (numbers == np.round(numbers)).all()
    if is_whole or table.kind(name) != "numbers":
        values, _ = table.integers(name)
        whole_numbers = _WholeNumbers.of(values[~is_missing])
        return _of_whole(name, whole_numbers, table)

    distinct = np.unique(numbers)
    kinds = len(distinct)
    decimals = decimals_of(distinct, MOST_DECIMALS, _FLOAT_BITS)
    why = "numbers of more than 15 decimals"
    if decimals is not None:
        why = f"numbers of up to {count_of(decimals, 'decimal', 'decimals')}"
    if 4 * kinds <= len(numbers) and kinds <= _FEW_CODES:
        why = f"{why}, {kinds} different ones; if no other can occur, declare it categorical"
    return ColumnEvidence(name, "continuous", why, decimals=decimals)


def _of_whole(name: str, numbers: _WholeNumbers, table: Table) -> ColumnEvidence:
    """Judge a column of whole numbers: dates, postcodes, ids, codes, or really numbers."""
    words = _words_in(table, name)
    distinct = numbers.distinct
    if numbers.kinds == 1:
        why = "constant: one whole number in every row"
        return ColumnEvidence(name, "integer", why)
    if distinct.tolist() == [0, 1]:
        return ColumnEvidence(name, "boolean", "0 and 1: a boolean", categories=(0, 1))
    dates = _of_day_numbers(name, numbers, table)
    if dates:
        return dates
    if _POST & {*words} and not _COUNTS & {*words}:
        return _of_postcodes(name, numbers)

    reason = _is_key(words, numbers)
    if reason:
        form = None
        if _as_long(distinct) >= _LONG:
            num_digits = len(str(distinct[0]))
            form = f"[1-9][0-9]{{{num_digits - 1}}}"
        return _id(name, numbers.spread, form, f", {reason}", "integer")
    codes = _of_codes(name, words, numbers, table)
    if codes:
        return codes

    why = f"{numbers.spread}: modelled as numbers"
    is_dated = any(map(_DATED.search, words))
    if numbers.kinds <= _FEW_CODES:
        why += "; if they are codes of something, declare the column categorical"
    elif _counts_up(numbers.values):
        why += "; they rise from row to row as counters do: if they number rows, declare it id"
    elif is_dated and 10_000 < distinct[0] <= distinct[-1] < 80_000:
        # Days from 1927 to 2119.
        why += "; if a spreadsheet counted days from 1900 on, write dates into the file"
    return ColumnEvidence(name, "integer", why)


def _of_day_numbers(
    name: str, numbers: _WholeNumbers, table: Table
) -> ColumnEvidence | None:
    """Judge whole numbers that are days or months, such as 20240131; None if they are not."""
    distinct = numbers.distinct
    days = distinct
    form = "%Y%m%d"
    example = "20240131"
    # Months of a few years are codes.
    if numbers.kinds > _FEW_CODES and 0 < distinct[0] <= distinct[-1] < 10**6:
        days = distinct * 100 + 1
        form = "%Y%m"
        example = "202401"
    if not _are_days(days, numbers.counts) or not _fits(table, name, form):
        return None

    texts = list(map(str, distinct.tolist()))
    dates = Table.from_columns({name: (texts, None)})
    when, _ = dates.datetimes(name, form)
    far = _far_off(when, texts, "name it as missing where the file is read")
    why = f"whole numbers such as {example}: dates{far}; {_if_not('integer')}"
    return ColumnEvidence(name, "datetime", why, format=form)


def _of_postcodes(name: str, numbers: _WholeNumbers) -> ColumnEvidence:
    """Judge whole numbers that the name calls postcodes: categories if there are few."""
    why = f"{numbers.spread}, named as a postcode: "
    most_categories = min(0.2 * numbers.rows, _MOST_CODES)
    if numbers.kinds > most_categories:
        why += f"not modelled; {_if_not('categorical')}"
        return ColumnEvidence(name, "text", why, format="postcode")
    why += f"categories; {_if_not('integer')}"
    return ColumnEvidence(name, "categorical", why)


def _of_codes(
    name: str, words: Sequence[str], numbers: _WholeNumbers, table: Table
) -> ColumnEvidence | None:
    """Judge whole numbers as codes of categories, or as a scale with codes beside it."""
    reason = _are_codes(name, words, numbers, table)
    if not reason:
        return None
    if reason == _GAPS:
        scale = _scale_of(name, words, numbers, table)
        if scale:
            return scale
    why = f"{numbers.spread}, {reason}: codes of categories; {_if_not('integer')}"
    return ColumnEvidence(name, "categorical", why)


def _scale_of(
    name: str, words: Sequence[str], numbers: _WholeNumbers, table: Table
) -> ColumnEvidence | None:
    """Judge whole numbers as a scale of ten values or more, with a few codes far above it.

    Scales of surveys go from 0 to 10, say, and 77 and 88 are refusals. Of fewer values they may as
    well be categories: nothing between them is drawn then.
    """
    distinct = numbers.distinct
    num_codes = _high_codes(distinct, numbers.counts)
    size = len(distinct) - num_codes
    scale = distinct[:size]
    if not num_codes or size < _SCALE or (np.diff(scale) != 1).any():
        return None

    # What is left of the scale must not look like codes itself.
    unknown = tuple(map(str, distinct[size:].tolist()))
    plain = table.blanked(name, unknown)
    values, is_missing = plain.integers(name)
    rest = _WholeNumbers(values[~is_missing], scale, numbers.counts[:size])
    if _are_codes(name, words, rest, plain):
        return None
    unknown_words = " and ".join(unknown)
    why = (
        f"{numbers.spread}: a scale from {scale[0]} to {scale[-1]}, "
        f"and {unknown_words}, far above it, taken for a missing value: correct "
        "missing_values if that is wrong, or declare the column categorical"
    )
    return ColumnEvidence(name, "integer", why, missing_values=unknown)


def _id(
    name: str, spread: str, form: str | None, reason: str, alternative: str
) -> ColumnEvidence:
    """Return the evidence of an identifier; `alternative` is a kind that it may be instead."""
    shape = f" of the form {form}" if form else ""
    why = f"{spread}{shape}{reason}: an identifier, "
    why += "left out of the model and drawn anew"
    if reason.endswith(_SEVERAL):
        why += " in every row, so rows of one person are not linked"
    why += f"; {_if_not(alternative)}"
    return ColumnEvidence(name, "id", why, format=form)


def _are_days(distinct: Ints, counts: Ints) -> bool:
    """Return whether whole numbers are days written as 20240131.

    Years are those of our time, but for typing errors, and for first and last days of a year.
    """
    if distinct[0] < 1000_01_01 or distinct[-1] > 9999_12_31:
        return False
    days = []
    for number in distinct.tolist():
        try:
            day = datetime.strptime(str(number), "%Y%m%d")  # noqa: DTZ007
        except ValueError:
            return False
        days.append(day)

    years = np.array([day.year for day in days])
    is_far = (years < 1900) | (years > 2100)
    if is_far.sum() >= min(3, len(days) - 1):
        return False
    far_days = [days[place] for place in np.flatnonzero(is_far)]
    are_edges = {(day.month, day.day) for day in far_days} <= {*_EDGES}
    num_far = counts[is_far].sum()
    return are_edges or num_far <= _STRAY * counts.sum()


def _as_long(distinct: Ints) -> int:
    """Return the number of digits that all of some positive numbers have; 0 if they differ."""
    shortest = len(str(distinct[0]))
    longest = len(str(distinct[-1]))
    if distinct[0] <= 0 or shortest != longest:
        return 0
    return shortest


def _even(distinct: Ints) -> bool:
    """Return whether different numbers are evenly spread (Kolmogorov-Smirnov)."""
    count = len(distinct)
    width = distinct[-1] - distinct[0] + 1
    levels = (distinct - distinct[0] + 0.5) / width
    expected = (np.arange(count) + 0.5) / count
    distance = np.abs(levels - expected).max()
    # 1.4 is about the test's critical value at 4 %.
    return bool(distance < 1.4 / count**0.5)


def _counts_up(values: Ints) -> bool:
    """Return whether numbers rise from row to row, more evenly than at random."""
    steps = np.diff(values)
    if len(steps) < _SOME or steps.min() <= 0:
        return False
    # Rows that are left out by chance make steps geometric, whose variance is mean * (mean - 1).
    steps = steps // np.gcd.reduce(steps)
    mean = steps.mean()
    chance_variance = mean * (mean - 1.0)
    return bool(mean > 4.0 and 2.0 * steps.var() < chance_variance)


def _is_key(words: Sequence[str], numbers: _WholeNumbers) -> str:
    """Return why whole numbers look like identifiers of rows or of units; empty if they do not."""
    rows = numbers.rows
    kinds = numbers.kinds
    is_alone = len(words) == 1 and words[0] in _ALONE
    names_people = _numbers_people(words) or is_alone
    has_name = names_people or _IDS & {*words} or words[-1] in _NUMBERED
    is_nearly_unique = kinds >= _NEAR * rows
    if rows > 1 and is_nearly_unique and has_name:
        return "named as one"
    low = int(numbers.distinct[0])
    high = int(numbers.distinct[-1])
    if max(-low, high) >= _HUGE:
        return "of more digits than are modelled"
    if names_people and kinds > 2:
        return _NAMED

    # From here on by their form alone.
    if rows < _SOME or _COUNTS & {*words} or _counts_up(numbers.values):
        return ""
    if is_nearly_unique and low >= 10**9 and high < 20 * low:
        # Numbers of cards, phones or people.
        return "of ten digits or more, nearly all different"
    if kinds < rows:
        return _repeats(words, numbers)
    return _is_key_by_form(numbers, high - low + 1)


def _is_key_by_form(numbers: _WholeNumbers, width: int) -> str:
    """Return why different whole numbers look like identifiers by form; empty if they do not."""
    rows = numbers.rows
    if width == rows:
        return "without a gap"
    if (np.diff(numbers.values) > 0).all():
        return "rising from row to row"
    # Chance gives so many pairs of equal numbers (the birthday problem).
    num_equal_pairs = rows * rows / (2.0 * width)
    if num_equal_pairs > 8.0:
        return "where chance would have repeated some"
    least_digits = 4 if rows * rows > 8.0 * width else 5
    if _as_long(numbers.distinct) >= least_digits and _even(numbers.distinct):
        return "all of as many digits and evenly spread"
    return ""


def _repeats(words: Sequence[str], numbers: _WholeNumbers) -> str:
    """Return why whole numbers look like identifiers of units with several rows, or empty.

    By their form alone they do, if they are spread as evenly as numbers that were given out, and
    repeat more often than chance could repeat a measure.
    """
    rows = numbers.rows
    kinds = numbers.kinds
    digits = _as_long(numbers.distinct)
    if kinds < max(_SOME, _EACH * rows) or _kind_of_things(words):
        return ""
    if _named_id(words) and (_IDS & {*words} or digits >= _LONG):
        return _NAMED

    width = int(numbers.distinct[-1] - numbers.distinct[0]) + 1
    # Four times the equal pairs that chance gives.
    most_by_chance = 2.0 * rows * rows / width
    is_sparse = width > 20 * kinds and most_by_chance < rows - kinds
    is_balanced = numbers.counts.max() * kinds < 10 * rows
    is_regular = digits > 5 and is_sparse and is_balanced
    if is_regular and _even(numbers.distinct):
        return f"all of as many digits and evenly spread, {_SEVERAL}"
    return ""


def _are_codes(
    name: str, words: Sequence[str], numbers: _WholeNumbers, table: Table
) -> str:
    """Return why whole numbers look like codes of categories; empty if they do not."""
    kinds = numbers.kinds
    if kinds * 4 > numbers.rows or numbers.distinct[0] < 0:
        return ""
    if kinds == 2:
        return "just two"
    names_codes = words[-1] in _CODES and words[0] not in _HOW_MANY
    is_count = bool(_COUNTS & {*words}) and not names_codes
    if is_count or kinds > _MOST_CODES:
        return ""
    if _CODES & {*words}:
        return "named as one"
    if kinds > _FEW_CODES or numbers.rows < _SOME:
        return ""
    if _has_valley(numbers) or _has_unknown(numbers):
        return _GAPS
    if _without_order(name, numbers, table):
        return "in no order that another column knows"
    return ""


def _has_valley(numbers: _WholeNumbers) -> bool:
    """Return whether a value is far rarer than values on both of its sides, or never occurs."""
    # 99 and 999 may stand for no answer; many numbers are 0 more often than 1.
    texts = list(map(str, numbers.distinct.tolist()))
    is_ordinary = np.array([len(text) < 2 or set(text) != {"9"} for text in texts])
    is_ordinary &= (numbers.distinct > 0) | (len(texts) <= 12)
    distinct = numbers.distinct[is_ordinary]
    if len(distinct) < 3 or distinct[-1] - distinct[0] > 10_000:
        return False

    # How many rows each whole number has, those between included.
    places = distinct - distinct[0]
    counts = np.zeros(int(places[-1]) + 1)
    counts[places] = numbers.counts[is_ordinary]
    most_before = np.maximum.accumulate(counts)
    most_after = np.maximum.accumulate(counts[::-1])[::-1]
    beside = np.minimum(most_before, most_after)
    # Less than half, and by four deviations of a count.
    is_half = counts < beside / 2.0
    is_rare = is_half & (beside - counts > 4.0 * np.sqrt(beside))
    return bool(is_rare.any())


def _has_unknown(numbers: _WholeNumbers) -> bool:
    """Return whether the last of few numbers look like codes: 7, 8, 9, 98, 99, far above the rest.

    Surveys write unknown answers so. Values between them would not all be absent by chance.
    """
    distinct = numbers.distinct
    gaps = np.diff(distinct) - 1
    place = int(gaps.argmax()) + 1
    gap = gaps[place - 1]
    texts_above = map(str, distinct[place:].tolist())
    digits = {*"".join(texts_above)}
    is_far = digits <= {*"789"} and gap > 1
    is_short = len(distinct) <= 12 and distinct[place - 1] < 12
    rows_above = numbers.counts[place:].sum()
    return bool(is_far and is_short and rows_above > 2 and gap * rows_above > 16)


def _without_order(name: str, numbers: _WholeNumbers, table: Table) -> bool:
    """Return whether other columns depend on these values, but not on their order.

    A column of numbers is explained by them as categories (the correlation ratio) or as numbers
    (the squared correlation); it counts where the first is beyond chance and far larger.
    """
    rows = np.flatnonzero(~table.missing(name))[:_ROWS]
    num_rows = len(rows)
    kinds = numbers.kinds
    place = np.searchsorted(numbers.distinct, numbers.values[:num_rows])
    sizes = np.bincount(place, minlength=kinds)
    if num_rows < 20 * kinds:
        return False

    verdicts = []
    numeric_kinds = ("whole numbers", "numbers", "booleans")
    for column in table.names:
        if column == name or table.kind(column) not in numeric_kinds:
            continue
        y = table.values(column)[rows].astype(np.float64)
        is_missing = table.missing(column)[rows]
        y = np.where(np.isfinite(y) & ~is_missing, y, np.nan)
        if np.isnan(y).any() or not y.std():
            continue
        ranks = _standard_ranks(y)

        # The share of the variance between categories, and what chance gives of it.
        sums = np.bincount(place, ranks, kinds)
        squares = sums**2 / np.maximum(sizes, 1)
        between = float(squares.sum()) / num_rows
        chance = (kinds - 1) / num_rows
        deviation = (2.0 * chance / num_rows) ** 0.5
        if between < chance + 0.02 + 5.0 * deviation:
            continue
        linear = 0.0
        if kinds > 1:
            correlation = float(np.corrcoef(place, ranks)[0, 1])
            linear = correlation**2
        verdicts.append(linear < 0.4 * (between - chance))
    return len(verdicts) > 0 and sum(verdicts) > 0.5 * len(verdicts)


def _standard_ranks(values: Floats) -> Floats:
    """Return the ranks of values, with mean 0 and standard deviation 1; equal ones in order."""
    ranks = np.empty(len(values))
    order = np.argsort(values, kind="stable")
    ranks[order] = np.arange(len(values))
    standard: Floats = (ranks - ranks.mean()) / ranks.std()
    return standard


# Texts


def _of_text(table: Table, name: str) -> ColumnEvidence:
    """Judge a column of texts: written numbers or dates, categories, or personal data."""
    counts = table.text_counts(name)
    blanks = _blank_marks(counts)
    core = _without(counts, blanks)
    if not core:
        why = "nothing but marks of missing values: not modelled, and drawn empty"
        marks = tuple(sorted(blanks))
        return ColumnEvidence(name, "text", why, missing_values=marks)

    # As they are written, with a few marks of missing values among them if need be.
    finding = _two_words(table, name, core) or _written(table, name, core, blanks)
    if finding is None or finding.strays:
        most = _most_texts(core)
        gaps = _marks_of_gaps(core, most.others)
        if gaps:
            rest = _without(core, gaps)
            again = _written(table, name, rest, blanks | gaps)
            # Beside categories, a mark is one of them.
            if again and again.kind != "categorical":
                finding = again
                blanks = blanks | gaps
    if finding is None:
        # Words such as "none" may be categories, once the column is no number.
        unsure = {text for text in blanks if text.lower() in _MAYBE}
        unsure |= {text for text in blanks if set(text) == {"-"} and "+" in core}
        blanks -= unsure
        core |= {text: counts[text] for text in unsure}

        finding = _not_modelled(table, name, core) or _categories(table, name, core)
        finding = _with_advice(table, finding, core, blanks, most)
    return _with_blanks(finding, blanks)


def _without(counts: Mapping[str, int], texts: Collection[str]) -> dict[str, int]:
    """Return how many rows have each text, without some texts."""
    return {text: count for text, count in counts.items() if text not in texts}


def _blank_marks(counts: Mapping[str, int]) -> set[str]:
    """Return the texts that stand for a missing value, or for a spreadsheet's error."""
    short = [text for text in counts if len(text) < 10]
    blanks = {text for text in short if not text or text.lower() in _BLANKS}
    hashed = [text for text in short if text[:1] == "#"]
    return blanks | {text for text in hashed if _ERROR.fullmatch(text)}


def _with_blanks(finding: ColumnEvidence, blanks: set[str]) -> ColumnEvidence:
    """Add the marks of missing values to a column's evidence."""
    marks = tuple(sorted(blanks))
    if not marks:
        return finding
    texts = ", ".join(map(repr, marks))
    why = f"{finding.why}; {texts} taken for a missing value: "
    why += "correct missing_values if it is not"
    if any(map(_LIMIT.fullmatch, marks)):
        why += ", or write a number into the file instead of a limit"
    return replace(finding, why=why, missing_values=marks)


def _with_advice(
    table: Table,
    finding: ColumnEvidence,
    core: Mapping[str, int],
    blanks: set[str],
    most: _MostTexts,
) -> ColumnEvidence:
    """Explain what keeps a column from being one of numbers or dates, if most texts are such."""
    name = finding.name
    why = finding.why
    others = set(most.others)
    num_others = sum(core[text] for text in others)
    is_minority = 0 < num_others < sum(core.values()) / 3
    rest = _without(core, others)
    if is_minority and _written(table, name, rest, blanks | others):
        why += f"; all but {num_others:,} rows hold {most.things}, and it is modelled "
        why += "as such if the others are corrected, or named as missing where the file is read"
        return replace(finding, why=why)
    flags = _flags(core)
    if flags:
        why += f"; numbers with marks behind them ({listed(flags, 5)}): write these "
        why += "into a column of their own, and it is modelled"
        return replace(finding, why=why)
    return finding


def _spelled(table: Table, name: str, core: Mapping[str, int]) -> list[str]:
    """Return texts as they are written, with spaces around them."""
    spellings, _ = table.counts(name)
    return [text for text in spellings if text.strip() in core]


def _two_words(
    table: Table, name: str, core: Mapping[str, int]
) -> ColumnEvidence | None:
    """Judge a column of two words that mean false and true in some language; None for others."""
    texts: list[str] = []
    if len(core) < _PROBE:
        texts = _spelled(table, name, core)
    by_word = {text.strip().lower(): text for text in texts}
    if len(texts) > 2:
        # Of a frame they are no booleans: it holds them as they are spelled.
        if table.frame == "csv" and set(by_word) == {"true", "false"}:
            return ColumnEvidence(name, "boolean", "booleans in several spellings")
        return None
    for false_word, true_word in _PAIRS:
        if {false_word, true_word} == set(by_word):
            # As they are written, in capital letters perhaps.
            false_text = by_word[false_word]
            true_text = by_word[true_word]
            why = f"{false_text} and {true_text}: a boolean"
            options = (false_text, true_text)
            return ColumnEvidence(name, "boolean", why, categories=options)
    return None


@dataclass(frozen=True)
class _MostTexts:
    """The kind of most texts of a column, in a word, and the other texts; both may be empty."""

    things: str
    others: list[str]


def _most_texts(core: Mapping[str, int]) -> _MostTexts:
    """Return what most texts of a column are, numbers or dates, if some are neither."""
    probe = list(core)[:_PROBE]
    # Texts with digits as dates have them, and the form that fits most of these.
    dated = [text for text in probe[:6] if re.search(r"\d\W.*\d|\d{8}", text)]

    def num_following(form: str) -> int:
        return sum(_follows(text, form) for text in dated)

    def is_number(text: str) -> bool:
        return bool(_NUMBER.fullmatch(text) or _POWER.fullmatch(text))

    form = max(_MOMENTS + _DAYS, key=num_following)
    is_date = partial(_follows, form=form)
    tests: dict[str, Callable[[str], bool]] = {"numbers": is_number, "dates": is_date}
    for things, test in tests.items():
        num_passed = sum(test(text) for text in probe)
        if 2 * num_passed < len(probe):
            continue
        others = [text for text in core if not test(text)]
        if others:
            return _MostTexts(things, others)
    return _MostTexts("", [])


def _marks_of_gaps(core: Mapping[str, int], others: Sequence[str]) -> set[str]:
    """Return the texts among numbers or dates that are neither, if they are few and repeated.

    They are limits of what can be measured, such as <0.5, and words: nothing with other digits.
    """
    repeated = [text for text in others if core[text] > 2]
    limits = {text for text in repeated if _LIMIT.fullmatch(text)}
    words = {text for text in repeated if not re.search("[1-9]", text)}
    marks = limits | words
    has_many_numbers = len(core) - len(others) >= _SOME
    if has_many_numbers and len(marks) <= _MARKS:
        return marks
    return set()


def _flags(core: Mapping[str, int]) -> list[str]:
    """Return the marks that stand behind numbers, such as flags p and e in official statistics."""
    probe = list(core)[: 10 * _PROBE]
    number = re.compile(r"([-+]?\d[\d.,]*) ?([^\W\d]{1,3}|[*†‡]{1,3})?")
    matches = [match for match in map(number.fullmatch, probe) if match is not None]
    marks = {match[2] for match in matches if match[2]}
    least_matches = (1.0 - 2 * _EACH) * len(probe)
    has_most = len(matches) >= least_matches and len(probe) > _SOME
    # A single mark of letters is a unit.
    are_flags = len(marks) > 1 or not marks.isdisjoint("*†‡")
    if has_most and are_flags:
        return sorted(marks)
    return []


def _categories(table: Table, name: str, core: Mapping[str, int]) -> ColumnEvidence:
    """Return the evidence of categories, with names of those that may be slips of others."""
    texts = _spelled(table, name, core)
    rows = sum(core.values())
    if len(texts) == 1:
        return ColumnEvidence(name, "categorical", "constant: one text in every row")
    why = f"{_different(len(texts), 'texts')} in {rows:,} rows: categories"
    plain_texts = {" ".join(text.split()).casefold() for text in texts}
    num_alike = len(texts) - len(plain_texts)
    if num_alike:
        differ = "differs" if num_alike == 1 else "differ"
        why += f"; {num_alike} {differ} from another in capital letters or spaces "
        why += "alone: write them alike in the file if they mean the same"
    return ColumnEvidence(name, "categorical", why)


def _not_modelled(
    table: Table, name: str, core: Mapping[str, int]
) -> ColumnEvidence | None:
    """Judge texts that are personal, nearly unique, or free; None for categories."""
    rows = sum(core.values())
    kinds = len(core)
    share = kinds / rows
    words = _words_in(table, name)
    texts = list(core)
    probe = texts[: 10 * _PROBE]
    spread = f"{_different(kinds, 'texts')} in {rows:,} rows"

    def left_out(form: str | None, reason: str) -> ColumnEvidence:
        why = f"{spread}, {reason}: not modelled; {_if_not('categorical')}"
        return ColumnEvidence(name, "text", why, format=form)

    # By the form of each text.
    if kinds > 1 and _most(probe, _MAC.fullmatch):
        return _id(name, spread, _pattern(texts), ", MAC addresses", "categorical")
    form = _shape_of(probe) or _personal({*words}, probe, share, kinds)
    # An email address and an account are personal even where all rows have the same.
    if form and (kinds > 1 or form in ("email", "iban")):
        called = _CALLED.get(form, f"a {form}")
        return left_out(form, f"each written like {called}")
    if kinds >= _SOME and not _IDS & {*words}:
        if _most(probe, _TWO.fullmatch):
            reason = "two numbers in one field (give each a column of its own)"
            return left_out(None, reason)
        if _most(probe, _LASTS.fullmatch):
            return left_out(None, "durations (write each as a number, such as minutes)")

    # By how many differ.
    is_unique = kinds == table.num_rows > 1
    if is_unique or (share >= _NEAR and rows >= _SOME):
        pattern = _pattern(texts)
        has_name = _IDS & {*words} or _numbers_people(words)
        has_digits = pattern or _most(probe, _DIGIT.search)
        has_spaces = any(" " in text for text in probe)
        if has_name or (has_digits and not has_spaces):
            return _id(name, spread, pattern, "", "categorical")
        return left_out(None, "nearly all different")
    reason = _repeated(words, core)
    if reason:
        return _id(name, spread, _pattern(texts), f", {reason}", "categorical")

    # By their length.
    num_words = sum(len(text.split()) for text in probe)
    is_long = num_words > 4 * len(probe)
    if rows >= _SOME and (share >= 0.5 or (is_long and share > 0.2)):
        reason = "free text" if is_long else "many of one row alone"
        return left_out(None, reason)
    return None


def _shape_of(texts: Sequence[str]) -> str | None:
    """Return what nearly all texts are by form, such as email; None if nothing known."""
    for name, shape in _SHAPES.items():
        if _most(texts, shape.fullmatch):
            return name
    return None


def _repeated(words: Sequence[str], core: Mapping[str, int]) -> str:
    """Return why texts look like identifiers of units with several rows; empty if they do not."""
    texts = list(core)
    rows = sum(core.values())
    kinds = len(core)
    if kinds > 2 and _numbers_people(words):
        return _NAMED
    if kinds < max(_SOME, _EACH * rows) or _kind_of_things(words):
        return ""
    has_spaces = any(" " in text for text in texts)
    are_logins = _PEOPLE.match(words[-1]) and not has_spaces
    if _named_id(words) and (are_logins or _most(texts, _DIGIT.search)):
        return _NAMED
    # A text of ten times the mean number of rows is none of identifiers.
    if has_spaces or max(core.values()) * kinds >= 10 * rows:
        return ""
    if _numbered(texts):
        return f"letters and a number each, {_SEVERAL}"
    if _are_alike(texts):
        return f"written as identifiers are, {_SEVERAL}"
    return ""


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


def _numbered(texts: Sequence[str]) -> bool:
    """Return whether texts are equal letters with long numbers, or numbers from 1 on: P00017."""
    form = re.compile(r"(\D*[^\W\d_]\D*)(\d+)")
    matches = [match for match in map(form.fullmatch, texts) if match]
    prefixes = {match[1] for match in matches}
    if len(matches) < len(texts) or len(prefixes) > 1:
        return False
    numbers = [match[2] for match in matches]
    are_long = all(len(number) >= _LONG for number in numbers)
    # A fifth of them may be left out.
    most = 1.25 * len(texts)
    are_in_a_row = len(texts) > _FEW_CODES and max(map(int, numbers)) <= most
    (prefix,) = prefixes
    return (are_long or are_in_a_row) and not _kind_of_things(_words(prefix))


def _kind_of_things(words: Sequence[str]) -> bool:
    """Return whether a column's name calls its values places, products or sorts."""
    things = (_POST | _CODES | _THINGS) - {"id", "code"}
    return bool({*words} & things)


def _named_id(words: Sequence[str]) -> bool:
    """Return whether a column's name calls its values identifiers, such as `loan_id`."""
    last = words[-1]
    names_people = _PEOPLE.match(last) and not last.endswith("s")
    names_id = {*words} & (_IDS - {"index", "idx"})
    return bool(names_people or names_id or last in _NUMBERED)


def _numbers_people(words: Sequence[str]) -> bool:
    """Return whether a column's name says that it numbers people, or their cases: patient_id."""
    last = words[-1]
    if _PEOPLE.match(last):
        return bool(_MARK.search(last)) or words[0] in _FIRST or last in ("pid", "kvnr")
    if len(words) < 2:
        return False
    who = words[-2]
    # How many students there are, say.
    is_count = who.endswith("s") and not last.startswith("id")
    names_people = _PEOPLE.match(who) and _MARK.fullmatch(last)
    return bool(names_people) and not is_count


def _personal(
    words: set[str], probe: Sequence[str], share: float, kinds: int
) -> str | None:
    """Return the kind of personal data that texts are, by name and form, or None.

    Args:
        words: Of the column's name.
        probe: Some of its different texts.
        share: Of different texts among the rows.
        kinds: How many different texts there are.
    """
    matches = [match for match in map(_PEOPLE.match, words) if match]
    has_people = any(match["who"] for match in matches)
    # The name of a thing is no person's: `name` counts beside words of people, or alone.
    has_no_thing = not words - _NAME - _WHOSE
    is_name = _NAMES & words or (_NAME & words and (has_people or has_no_thing))
    has_people |= bool(is_name and (_NAMES | _WHOSE) & words)
    # As in a class list: a column `student`, of one name each.
    is_many = any(map(_MANY.search, words))
    is_alone = has_people and len(words) == 1 and not is_many

    # Without de, von and such.
    main = [re.sub(" [a-z]{1,3}(?= )", "", text) for text in probe]
    is_proper = _most(main, _is_proper_name)
    has_many = kinds >= _SOME
    may_vary = is_proper and has_many and not _kind_of_things([*words])
    is_varied = may_vary and _varied(probe)
    may_repeat = is_varied or (has_many and (share >= _EACH or is_alone))
    # Few texts of many rows each are categories, whatever their form is.
    if not (share > 0.2 or may_repeat or (has_people and is_name)):
        return None

    num_digits = [sum(map(str.isdigit, text)) for text in probe]
    if _most(probe, _PHONE.fullmatch) and min(num_digits) >= 5:
        num_dialled = sum(map(bool, map(_DIALLED.match, probe)))
        if _PHONES & words or 2 * num_dialled > len(probe):
            return "phone"
    if share > 0.2 and (_POST & words or _most(probe, _POSTCODE.fullmatch)):
        return "postcode"
    may_be_address = _most(probe, _has_number_and_word)
    if may_be_address and (_STREETS & words or _most(probe, _STREET.search)):
        return "address"
    if is_name and max(num_digits) == 0:
        return "name"
    names_no_thing = _NAME & words and not words & (_THINGS | _CODES)
    is_likely = share > 0.5 or is_alone or is_varied or names_no_thing
    if is_proper and is_likely:
        return "name"
    return None


def _is_proper_name(text: str) -> bool:
    """Return whether a text looks like a proper name: two words or more, all with capitals."""
    has_capitals = text.istitle() or text.isupper()
    return bool(_PERSON.fullmatch(text)) and has_capitals


def _has_number_and_word(text: str) -> bool:
    """Return whether a text has a digit and a letter, as postal addresses do."""
    return bool(re.search(r"\d", text) and re.search(r"[^\W\d]", text))


def _varied(texts: Sequence[str]) -> bool:
    """Return whether words mostly differ at both ends of texts, as in people's names.

    Gold Yearly and Gold Monthly share words. One with a point, such as Dr., does not count.
    """
    some = texts[:: max(1, len(texts) // _SOME)]
    first_words = set()
    last_words = set()
    for text in some:
        words = [word for word in text.upper().split() if word[-1] != "."]
        words = words or [text]
        first_words.add(words[0])
        last_words.add(words[-1])
    shares = (len(first_words) / len(some), len(last_words) / len(some))
    return min(shares) >= 0.5 and max(shares) >= 0.75


def _most(texts: Sequence[str], test: Callable[[str], Any]) -> bool:
    """Return whether a test holds for nearly all texts."""
    exceptions = len(texts) - ceil(_NEAR * len(texts))
    for text in texts:
        if test(text):
            continue
        exceptions -= 1
        if exceptions < 0:
            return False
    return True


def _pattern(texts: Sequence[str]) -> str | None:
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
    for option in _CHARACTER_CLASSES:
        if all(re.fullmatch(option, character) for character in characters):
            return option
    return None


_CHARACTER_CLASSES = (
    "[0-9]",
    "[A-Z]",
    "[a-z]",
    "[0-9a-f]",
    "[0-9A-F]",
    "[A-Z0-9]",
    "[a-z0-9]",
    "[A-Za-z0-9]",
)  # narrow ones first


# Numbers and dates that are written as text


def _written(
    table: Table, name: str, core: Mapping[str, int], blanks: Iterable[str]
) -> ColumnEvidence | None:
    """Judge texts that are written numbers, dates or times; None for others.

    Args:
        table: All columns.
        name: The column's.
        core: How many rows have each text, without those that stand for a missing value.
        blanks: Texts that do.
    """
    compact = _compact_times(table, name, list(core))
    if compact is not None:
        return compact
    numbers = _written_numbers(table, name, core, blanks)
    return numbers or _written_dates(table, name, core, blanks)


def _written_numbers(
    table: Table, name: str, core: Mapping[str, int], blanks: Iterable[str]
) -> ColumnEvidence | None:
    """Judge texts that are numbers, with their marks and unit; None for others."""
    if table.frame == "csv" and _have_powers(core):
        floats = [float(text) for text in core]
        numbers = np.repeat(floats, [*core.values()])
        plain = Table.from_columns({name: (numbers, None)})
        return _of_numbers(plain, name)
    probe = list(core)[:_PROBE]
    are_phones = _most(probe, _E164.fullmatch)
    num_numbers = sum(bool(_NUMBER.fullmatch(text)) for text in probe)
    if are_phones or num_numbers < 0.9 * len(probe):
        return None

    # Numbers of the commonest unit; the few others are strays.
    prefix, suffix, same = _of_commonest_unit(core)
    strays = tuple(set(core) - {match.string for match in same})
    rows = sum(core.values())
    num_stray = sum(core[text] for text in strays)
    if num_stray > _STRAY * rows:
        return None

    # Their marks and decimals.
    bodies = [match["body"] for match in same]
    is_semicolons = table.dialect is not None and table.dialect.separator == ";"
    marks = _marks(bodies, comma=is_semicolons)
    if marks is None:
        return None
    thousands, decimal = marks
    decimals, padded = _written_decimals(bodies, decimal)
    # Digits alone that no int64 holds.
    is_plain = not thousands and not decimal
    if is_plain and any(len(body) > 18 for body in bodies):
        pattern = None
        if len(core) >= _NEAR * rows:
            pattern = _pattern(list(core))
        spread = f"{_different(len(core))} in {rows:,} rows"
        reason = ", of more digits than are modelled"
        return _id(name, spread, pattern, reason, "categorical")

    # How they are written, which a CSV's numbers need no word on.
    tenth = f"{decimal}5" if decimal else ""
    form: str | None = f"{prefix}1{thousands}234{tenth}{suffix}"
    is_odd = any(map(_is_odd, same))
    is_usual = form == "1234" or (form == "1234.5" and table.decimal(name) == ".")
    if is_usual and table.frame == "csv" and not is_odd:
        form = None
    note = ""
    if num_stray:
        note = f"; other text in {num_stray:,} of {rows:,} rows: correct it"
    note += _brackets_in_words(same, core)

    if decimals == 0 and form in (None, "1234"):
        plain = table.blanked(name, (*blanks, *strays))
        return _written_whole(plain, name, core, form, padded, note, strays)
    words = f"numbers written like {form}" if form else "numbers"
    if decimals == 0:
        return ColumnEvidence(
            name,
            "integer",
            f"whole {words}{note}",
            format=form,
            padded=padded or None,
            strays=strays,
        )
    most = decimals if decimals <= MOST_DECIMALS else None
    why = f"{words}, of up to {count_of(decimals, 'decimal', 'decimals')}{note}"
    return ColumnEvidence(
        name,
        "continuous",
        why,
        format=form,
        decimals=most,
        padded=padded,
        strays=strays,
    )


def _of_commonest_unit(texts: Iterable[str]) -> tuple[str, str, list[re.Match[str]]]:
    """Return what most written numbers have before and behind them, and the numbers that do.

    A space between number and unit makes no difference.
    """
    matches = [match for match in map(_NUMBER.fullmatch, texts) if match is not None]
    affixes = [_affixes(match) for match in matches]
    (prefix, suffix), _ = Counter(affixes).most_common(1)[0]
    same = []
    for match, (before, behind) in zip(matches, affixes, strict=True):
        if before.strip() == prefix.strip() and behind.strip() == suffix.strip():
            same.append(match)
    return prefix, suffix, same


def _written_decimals(bodies: Sequence[str], mark: str) -> tuple[int, int]:
    """Return the most decimals of numbers without final zeros, and the fewest with these."""
    fractions = [""] * len(bodies)
    if mark:
        fractions = [body.partition(mark)[2] for body in bodies]
    decimals = max(len(fraction.rstrip("0")) for fraction in fractions)
    lengths = {*map(len, fractions)}
    lengths_with_zero = {len(f) for f in fractions if f[-1:] == "0"}
    return decimals, fewest_decimals(lengths, lengths_with_zero)


def _affixes(number: re.Match[str]) -> tuple[str, str]:
    """Return what a written number has before and behind its digits, such as a unit."""
    return number["prefix"] or "", number["suffix"] or ""


def _is_odd(number: re.Match[str]) -> bool:
    """Return whether a number is written as no CSV's are: in brackets, or with another minus."""
    return bool(number["open"] or number["behind"] or "\u2212" in number.string)


def _have_powers(texts: Iterable[str]) -> bool:
    """Return whether texts are numbers, some with a power of ten, such as 1.2E-05."""
    are_numbers = all(map(_POWER.fullmatch, texts))
    return are_numbers and "e" in "".join(texts).lower()


def _written_whole(
    plain: Table,
    name: str,
    core: Mapping[str, int],
    form: str | None,
    padded: int | None,
    note: str,
    strays: tuple[str, ...],
) -> ColumnEvidence | None:
    """Judge whole numbers without marks and unit that are written as text.

    Args:
        plain: The table, where what is no number is missing.
        name: The column's.
        core: How many rows have each text.
        form: How they are written; None for a CSV's numbers.
        padded: The fewest decimals that they are written with.
        note: What else is said of them.
        strays: Texts that are no number.
    """
    values, is_missing = plain.integers(name, form)
    numbers = _WholeNumbers.of(values[~is_missing])
    if form is not None and set(core) == {"0", "1"}:
        why = "0 and 1: a boolean"
        return ColumnEvidence(name, "boolean", why, categories=("0", "1"))
    # Few whole numbers that a frame holds as text are codes.
    if form is not None and numbers.kinds <= _FEW_CODES:
        return None
    finding = _of_whole(name, numbers, plain)
    number_form = form if finding.kind == "integer" else None
    return replace(
        finding,
        format=finding.format or number_form,
        padded=padded or None,
        why=finding.why + note,
        strays=strays,
    )


def _brackets_in_words(
    numbers: Sequence[re.Match[str]], counts: Mapping[str, int]
) -> str:
    """Describe numbers in brackets: negative ones in accounts, uncertain ones in statistics."""
    bracketed = [number for number in numbers if number["open"]]
    if not bracketed:
        return ""
    rows = sum(counts[number.string] for number in bracketed)
    others = ""
    if any(n["sign"] or n["sign2"] or n["behind"] for n in numbers):
        others = ", and others have a sign"
    return (
        f"; {count_of(rows, 'row is', 'rows are')} {BRACKETS}{others}: "
        "read as negative, as accounts write them. If they mark what is uncertain, "
        "as official statistics do, delete the brackets in the file"
    )


def _marks(bodies: Sequence[str], *, comma: bool) -> tuple[str, str] | None:
    """Return the thousands and decimal marks of written numbers; None if they are no numbers.

    Where `comma` is true a comma is a decimal mark, as in files of semicolons, if both may be.
    """
    characters = {*"".join(bodies)}
    marks = characters - {*"0123456789"}
    points = [mark for mark in marks if mark in ".,"]
    spaces = [mark for mark in marks if mark not in ".,"]
    if len(spaces) > 1:
        return None
    if len(points) == 2:
        # A number with both says which is the decimal mark: the last one.
        with_both = [body for body in bodies if "." in body and "," in body]
        if not with_both or spaces:
            return None
        decimal = max(points, key=with_both[0].rfind)
        thousands = "," if decimal == "." else "."
    elif len(points) == 1 and not spaces and _groups(bodies, points[0], comma):
        thousands = points[0]
        decimal = ""
    else:
        thousands = "".join(spaces)
        decimal = "".join(points)

    # A number with thousands in other places, or with a leading zero, is an identifier.
    shape = r"(?:0|[1-9]\d*)"
    if thousands:
        shape = rf"(?:[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+|0|[1-9]\d*)"
    if decimal:
        shape += rf"?(?:{re.escape(decimal)}\d+)?"
    if not all(map(re.compile(shape).fullmatch, bodies)):
        return None
    return thousands, decimal


def _groups(bodies: Sequence[str], mark: str, comma: bool) -> bool:
    """Return whether a mark surely divides thousands; in 1,234 it could be a decimal mark."""
    marked = [body for body in bodies if mark in body]
    if any(body.count(mark) > 1 for body in marked):
        return True
    one_thousand = re.compile(rf"[1-9]\d{{0,2}}[{mark}]\d{{3}}")
    if not all(map(one_thousand.fullmatch, marked)):
        return False
    unmarked = [body for body in bodies if mark not in body]
    # 1234 beside 1,234 has no mark where one of thousands would be.
    if any(len(body) > 3 for body in unmarked):
        return False
    is_english = mark == "," and not comma
    return is_english or bool(unmarked)


def _written_dates(
    table: Table, name: str, core: Mapping[str, int], blanks: Iterable[str]
) -> ColumnEvidence | None:
    """Judge texts that are dates or times of one form; None for others."""
    texts = list(core)
    probe = texts[:_PROBE]
    if not all(_DIGIT.search(text) and len(text) < 40 for text in probe):
        return None

    forms = _MOMENTS if ":" in probe[0] else _DAYS + _NAMED_DAYS
    # Months of few years are categories.
    if ":" not in probe[0] and len(core) > _FEW_CODES:
        forms += _MONTHS
    # Such as "... GMT+0200", which all dates of one season have.
    offset = re.search(r" GMT[+-]\d+$", probe[0])
    if offset:
        forms = tuple(form + offset[0] for form in forms)

    # A few texts rule out most forms; a form must then fit all of them.
    likely = [form for form in forms if _most(probe, partial(_follows, form=form))]
    plain = table.blanked(name, tuple(blanks))
    fits = [form for form in likely if _fits(plain, name, form)]
    if not fits:
        return _mixed_zones(name, texts)

    # Days and months may be swapped, where no day is above 12.
    form = _padded(fits[0], probe)
    swapped = re.sub("%[dm]", _swapped, fits[0])
    otherwise = None
    if swapped in fits and swapped != fits[0]:
        otherwise = _padded(swapped, probe)

    things = "dates" if re.search("%[Yy]", form) else "times of day"
    why = f"{things} written as {form}"
    if "%z" in form:
        why += ", read in UTC and drawn in UTC, with +00:00"
    dates = Table.from_columns({name: (texts, None)})
    when, _ = dates.datetimes(name, form)
    resolution, whole = _resolution(np.unique(when), form)
    why += whole + _far_off(when, texts, "list it in missing_values")
    return ColumnEvidence(
        name, "datetime", why, format=form, otherwise=otherwise, resolution=resolution
    )


def _swapped(code: re.Match[str]) -> str:
    """Return the code of a month for that of a day, and the other way round."""
    return "%m" if code[0] == "%d" else "%d"


def _compact_times(
    table: Table, name: str, texts: Sequence[str] | None
) -> ColumnEvidence | None:
    """Judge times of digits alone, such as 20240131093000 of HL7; None for others.

    Numbers of a day's records, such as 202401310007, look like times too, but all in one hour.

    Args:
        table: All columns.
        name: The column's.
        texts: Its different values, without those that stand for a missing one; all if None.
    """
    if texts is not None:
        values = np.array(texts, dtype=object)
        table = Table.from_columns({name: (values, None)})
    cells = texts_of(table.cells(name).drop_nulls()).str.strip_chars()
    probe = cells.head(_PROBE).str.replace(_ZEROS, "").to_list()
    words = _words(name)
    names_id = _IDS & {*words} or _numbers_people(words)
    if names_id or not all(map(_COMPACT.fullmatch, probe)):
        return None

    # Which digits each has, and how they are read.
    cells = cells.unique(maintain_order=True)
    if not cells.str.contains(r"\.0*[1-9]").any():
        cells = cells.str.replace(_ZEROS, "")
    num_digits = cells.str.extract(f"^(?:{_COMPACT.pattern})$").str.len_chars()
    has_zone = cells.str.contains(r"[+-]\d{4}$")
    shapes = num_digits * 2 + has_zone
    if len(cells) < 2 or shapes.has_nulls():
        return None
    forms = []
    times: Any = None
    for shape in shapes.unique():
        form = _compact_form(cells.filter(shapes == shape))
        forms.append(form)
        shape_times = times_of(cells.set(shapes != shape, None), form)
        times = shape_times if times is None else times.fill_null(shape_times)
    if times.has_nulls() or not _are_likely(times):
        return None

    if len(forms) > 1:
        form_words = " or ".join(sorted(forms))
        why = f"times written as {form_words}: not modelled until all are written alike"
        return ColumnEvidence(name, "text", why)
    (form,) = forms
    when = times.to_numpy().astype(np.int64)
    resolution, whole = _resolution(np.unique(when), form)
    zone = ", drawn in UTC" if "%z" in form else ""
    far = _far_off(when, cells.to_list(), "list it in missing_values")
    why = f"times written as {form}{zone}{whole}{far}; {_if_not('integer')}"
    return ColumnEvidence(name, "datetime", why, format=form, resolution=resolution)


def _are_likely(times: Any) -> bool:
    """Return whether times lie in likely years, at several hours unless they are whole days."""
    clock = times.dt.time().unique()
    is_one_hour = clock.dt.hour().n_unique() == 1 and len(clock) > 1
    years = times.dt.year()
    num_far = len(years.filter(~years.is_between(1900, 2100)))
    is_rarely_far = num_far <= max(1, int(_STRAY * len(times)))
    return not is_one_hour and is_rarely_far


def _compact_form(cells: Any) -> str:
    """Return the format of compact times of as many digits, with zeros that all have."""
    parts = cells.str.extract_groups(r"^(\d+)(\.\d+)?([+-]\d{4})?$").struct
    digits = parts[0]
    fractions = parts[1]
    zones = parts[2]
    length = int(digits.str.len_chars().max())
    form = "%Y%m%d%H%M" if length == 12 else "%Y%m%d%H%M%S"
    behind_seconds = digits.str.slice(14)
    if length > 14 and behind_seconds.str.contains("^0+$").all():
        form += "0" * (length - 14)
    elif length > 14:
        # Microseconds, of which 20 digits have three more behind them.
        has_zeros = length == 20 and behind_seconds.str.ends_with("000").all()
        form += "%f000" if has_zeros else "%f"
    elif fractions.count():
        form += ".%f"
    if zones.count():
        form += "%z"
    return form


def _mixed_zones(name: str, texts: Sequence[str]) -> ColumnEvidence | None:
    """Judge times of which only some have a zone, so that they cannot be compared."""
    probe = [_ZONE.sub("", text) for text in texts[:_PROBE]]
    if not _have_one_form(probe):
        return None
    bare = [_ZONE.sub("", text) for text in texts]
    num_zoned = sum(map(str.__ne__, bare, texts))
    is_mixed = 0 < num_zoned < len(texts)
    if not is_mixed or not _have_one_form(bare):
        return None
    why = f"{num_zoned:,} of {len(texts):,} different times have a zone, such as Z, "
    why += "and the others have none: not modelled until all are written alike"
    return ColumnEvidence(name, "text", why)


def _have_one_form(texts: Sequence[str]) -> bool:
    """Return whether all texts are times of one form."""

    def fits(form: str) -> bool:
        return all(_follows(text, form) for text in texts)

    return any(map(fits, _MOMENTS))


def _resolution(when: Ints, form: str | None) -> tuple[str | None, str]:
    """Return the resolution of times (None if it is known otherwise), and a note about it.

    Their format says it, and the days of a frame do. Times are on whole hours, or the like, only if
    chance would hardly have put all of them there.
    """
    usual_name = "day"
    usual = _SECOND
    if form is not None:
        usual_name = resolution_of(form)
        usual = max(RESOLUTIONS[usual_name], _SECOND)
    name = "microsecond"
    for name, step in RESOLUTIONS.items():
        # How seldom chance would have put all times on multiples of the step.
        surprise = len(when) * log(step / usual)
        is_likely = name == "day" or step <= usual or surprise > _SURPRISE
        if is_likely and not (when % step).any():
            break
    if name == usual_name:
        return None, ""
    if name == "day" or RESOLUTIONS[name] <= usual:
        return name, ""
    whole = f"multiples of {name}" if " " in name else f"whole {name}s"
    why = f", all on {whole}, and drawn so: declare another resolution if others can occur"
    return name, why


def _far_off(when: Ints, texts: Sequence[str], how: str) -> str:
    """Describe dates that are years away from all others; empty without such dates.

    First and last days of a year stand for no date, others are typing errors: 0198 for 1980.
    """
    days = when // _DAY
    places = np.argsort(days)
    edges: list[str] = []
    odd: list[str] = []
    # From the last day and the first in turn, as long as one is far from all that are left.
    for end in (-1, 0) * _ODD_DATES:
        rest = places[:-1] if end else places[1:]
        if len(rest) == 0:
            break
        place = places[end]
        nearest = days[rest[end]]
        gap = abs(nearest - days[place])
        if gap <= max(np.ptp(days[rest]), _DECADE):
            continue
        day = np.datetime64(int(days[place]), "D").item()
        if (day.month, day.day) in _EDGES:
            edges.append(repr(texts[place]))
        elif len(rest) >= _SOME:
            odd.append(repr(texts[place]))
        else:
            break
        places = rest

    words = ""
    if edges:
        words += f"; far from all other dates: {' and '.join(edges)}; {how} "
        words += "if it stands for a missing date, and correct the bounds"
    if odd:
        words += (
            f"; years away from all other dates: {' and '.join(odd)}; correct the year "
        )
        words += "in the file if it is a typing error, and the bounds"
    return words


def _padded(form: str, texts: Sequence[str]) -> str:
    """Return the form with or without zeros before single digits, as most texts are written."""
    if "%f" in form:
        return form
    # Days and months without zeros, then hours without them as well.
    short_days = re.sub("%([dm])", r"%-\1", form)
    short_hours = re.sub("%([HI])", r"%-\1", form)
    short_both = re.sub("%([HI])", r"%-\1", short_days)
    forms = [form, short_days, short_hours, short_both]
    # Only their form counts.
    times = [datetime.strptime(text, form) for text in texts]  # noqa: DTZ007

    def num_equal(option: str) -> int:
        written = [written_time(when, option) for when in times]
        return sum(map(str.__eq__, written, texts))

    return max(forms, key=num_equal)


def _follows(text: str, form: str) -> bool:
    """Return whether a text is a date or time of one form."""
    if not re.search(r":\d\d\.\d", text):
        form = form.replace(".%f", "")  # some writers leave off zeros
    if not _outline(form).fullmatch(text):
        return False
    try:
        when = datetime.strptime(text, form)  # noqa: DTZ007  only its form counts
    except ValueError:
        return False
    # A year of two digits beside four others is none: 2024 would be read as 20 and a rest.
    has_four_digits = "%y" in form and re.search(r"\d{4}", text)
    return when.year >= 1000 and not has_four_digits


@cache
def _outline(form: str) -> re.Pattern[str]:
    """Build a pattern that every text of a form matches, and few others.

    `strptime` keeps the patterns of five forms, and we try sixty of them: each would be compiled
    again for each column.
    """
    parts = re.split(r"(%.|\s+)", form)
    pattern = "".join(map(_outlined, parts))
    return re.compile(pattern)


def _outlined(part: str) -> str:
    """Return the pattern of one code of a form, of blanks, or of a text between codes."""
    if part.startswith("%"):
        has_digits = part[1] in "dmyYHIMSfj"
        return r"[ \d]\d*" if has_digits else ".+"
    if part.isspace():
        return r"\s+"
    return f"(?i:{re.escape(part)})"


def _fits(table: Table, name: str, form: str) -> bool:
    """Return whether all texts of a column are datetimes of one form."""
    try:
        table.datetimes(name, form)
    except SchemaError:
        return False
    return True


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
        is_month_first = "%p" in day_first
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
            f"{AMBIGUOUS}: no day is above 12, so they may be {form} or {otherwise}; read as "
            f"{form}{by_others}. Write the right one as format in the schema{note}"
        )
        findings[name] = replace(finding, format=form, otherwise=otherwise, why=why)
    return findings


# Words


def _words(name: str) -> list[str]:
    """Split a column's name into words: patient_id, PatientID and patientId alike."""
    parts = re.sub(r"(?<=[^\W\d_A-Z])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W\d_]+", parts.lower()) or [""]


def _words_in(table: Table, name: str) -> list[str]:
    """Split a column's name into words, and leave out a school subject.

    A subject numbers people, unless the table has a column of more pupils, who learn it.
    """
    words = _words(name)
    if words[0] != "subject":
        return words
    pupil_columns = [c for c in table.names if _TAUGHT.match(_words(c)[0])]
    pupil_counts = [_num_kinds(table, column) for column in pupil_columns]
    most_pupils = max(pupil_counts, default=0)
    if most_pupils > _num_kinds(table, name):
        return words[1:] or [""]
    return words


def _num_kinds(table: Table, name: str) -> int:
    """Count the different values of a column."""
    distinct, _ = table.counts(name)
    return len(distinct)


def _different(count: int, things: str = "whole numbers") -> str:
    """Write in words how many different things there are."""
    return f"{count:,} different {things}"


def _if_not(kind: str) -> str:
    """Say what to declare if a reading is wrong."""
    return f"declare it {kind} if that is wrong"
