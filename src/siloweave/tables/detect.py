"""What a column holds, judged by its values and its name, with the reason in a sentence.

Everything here is read from rows, and nothing is private: `Schema.detect` marks it so. A sentence
has counts of rows but no value, except marks and formats.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from itertools import groupby
from math import ceil, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import SchemaError, count_of
from siloweave.tables.display import listed
from siloweave.tables.forms import RESOLUTIONS, resolution_of, written_time
from siloweave.tables.parsing import texts_of, times_of
from siloweave.tables.read import MOST_DECIMALS, Table, decimals_of, fewest_decimals

_Ints = NDArray[np.int64]
_PROBE = 60  # distinct values by which most readings are ruled out
_SOME = 20  # rows from which shares of distinct values mean something
_NEAR = 0.95  # share of distinct values from which a column is nearly unique
_STRAY = 0.02  # share of rows that may hold something else in a column of numbers
_FEW_CODES = 40  # whole numbers that are codes have no more different values, unless the name says
_MOST_CODES = 256  # whole numbers that are codes by their name
_HUGE = 2**62  # from which on a schema has no bounds
_LONG = 4  # digits of identifiers that are no running numbers
_EACH = 0.1  # share of distinct values from which each has few rows, as people have visits
_SECOND = RESOLUTIONS["second"]
_SURPRISE = log(1e5)  # so seldom would all of some times be on whole hours by chance
_ROWS = 5000  # by which order in other columns is judged
_THREADS = 4  # that judge columns side by side; more would hold more copies of columns


def _lexicon(words: str) -> frozenset[str]:
    return frozenset(words.split())


_BLANKS = _lexicon("na n/a #n/a nan <na> null nil none - -- ? . missing k.a. n.a. n.v. s.o. nd")
_ERROR = re.compile(r"#(?:n/?[av]|¡?[^\W\d_/]+(?:/0)?[!?])", re.I)  # of a spreadsheet: #DIV/0!
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
_MAYBE = frozenset({"none", ".", "missing", "nil", "nd"})  # may well be categories
_PAIRS = (
    ("n", "y"), ("no", "yes"), ("f", "t"), ("false", "true"), ("nein", "ja"), ("non", "oui"),
    ("no", "sí"), ("no", "si"), ("no", "sì"), ("nee", "ja"), ("nej", "ja"), ("não", "sim"),
    ("off", "on"), ("faux", "vrai"), ("falsch", "wahr"), ("falso", "vero"), ("onwaar", "waar"),
    ("falso", "verdadero"), ("falso", "verdadeiro"), ("n", "j"), ("n", "o"), ("n", "s"),
    ("nei", "ja"), ("ei", "kyllä"), ("ei", "jah"), ("nie", "tak"), ("ne", "ano"), ("nie", "áno"),
    ("nem", "igen"), ("ne", "da"), ("nu", "da"), ("hayır", "evet"), ("нет", "да"), ("не", "да"),
    ("όχι", "ναι"), ("n", "t"),
)  # fmt: skip

# Words in the names of columns.
_IDS = _lexicon(
    "id ids uuid guid idx index key identifier ssn mrn serial rowid login username plate vin imei "
    "kennzeichen barcode"
)
_NUMBERED = _lexicon("no nr nbr number nummer num ref reference numéro numero número")  # at the end
_FIRST = _lexicon("id nr numéro numero número codigo código code")  # before what they number
_PEOPLE = re.compile(
    r"(?P<who>pat$|patient|pa[cz]ient|pasient|person|kunde|cust(?!om$|oms|od)|client|klient|"
    r"member|mitglied|proband|particip|teilnehm|user|usuari|usager|utilis|employ(?!er|ment)|staff|"
    r"caller|benutz|assignee|manager|supervisor|physician|mitarb|versichert|insured|assur|"
    r"student|pupil|schüler|alunn|alumn[oa]|élève|estudiant|étudiant|leerling|teacher|donor|"
    r"resident|citizen|bürger|respond)|pat(?:id|nr|no)$|"
    r"(?:pid|mrn|ssn|bsn|kvnr)$|u?subj|sujet|househ|account|kont[oa]|case(?!load)|fall|dossier"
)  # how words begin that name people, or what numbers them
_MANY = re.compile(r"(?:s|ship|tion|ance|ity)$")  # how words end that name several, or nobody
_ALONE = _lexicon("patient subject participant proband respondent pupil")  # of one, if a number
_TAUGHT = re.compile(r"student|pupil|schüler|élève|alu[mn]n")  # who learn what a subject is, then
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
_NAME = _lexicon("name nom nombre")  # of people, unless another word says of what
_WHOSE = _lexicon("full first last given family middle maiden contact doctor owner parent mother")
_PHONES = _lexicon("phone telephone tel telefon mobile handy fax cell")
_STREETS = _lexicon("address addr street strasse straße adresse rue anschrift")
_POST = _lexicon("zip zipcode postcode postal plz postleitzahl postnummer postnr pocztowy psč")
_DATED = re.compile(r"(?:date|datum|dato|data|fecha)$")  # how words end that name days

_UNIT = (
    r"%|‰|[$€£¥₹]|[A-Z]{3}|kr\.?|Fr\.|zł|mmHg|bpm|km/h|°[CF]?|µ?[gl]|[kcm]?[gml]|km|h|min|sec|s|ms|"
    r"k?Wh?|[kMGT]?B|[km]?V|[kMG]?Hz|h?Pa|[a-z]{1,4}/[a-z]{1,4}"
)
_WORD = r"[^\W\d_]{1,12}\.?"  # a unit, whatever it is, behind a space
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
_POWER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)  # 1.2E-05
_CODED = re.compile(r"(?:9+[6-9]|66+|77+|88+)(?:\.9+)?|9\.9+")  # as numbers for no value are
_MOST_UNKNOWN = 5  # codes of a missing value in one column, at each end
_SCALE = 10  # values, from which numbers beside codes of a missing value are a scale
_GAPS = "with gaps that counts and measures do not have"
_FEWEST = 3  # different numbers beside them
_APART = 3  # times as far from other numbers as these mostly are from each other
_NEIGHBOURS = 9  # numbers below a gap, by which it is judged
_LIMIT = re.compile(r"[<>≤≥]=?\s?\d\S*(?: \S+)?|\d+\s?\+")
_MARKS = 5  # of missing values that may stand among numbers
_MAC = re.compile(r"[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}", re.IGNORECASE)
_SHAPES: Mapping[str, re.Pattern[str]] = {
    "email": re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}"),
    "url": re.compile(r"(?:https?|ftp)://\S+|www\.\S+", re.IGNORECASE),
    "uuid": re.compile(r"\{?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?", re.IGNORECASE),
    "ip": re.compile(
        r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:/\d{1,2})?"
        r"|(?=.*:.*:)(?!\d+:\d\d:\d\d$)[0-9a-f:]{3,39}",
        re.IGNORECASE,
    ),
    "iban": re.compile(r"(?=.{15})[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?", re.I),
}
_TWO = re.compile(r"\d{1,3}(?:[.,]\d+)? ?[/x×] ?\d{1,3}(?:[.,]\d+)?")  # 120/80
_LASTS = re.compile(  # 25:10, -0:30, 5h 25m
    r"[-+\u2212]?(?:\d+ days?,? )?\d+:[0-5]\d(?::[0-5]\d)?|"
    r"(?:\d+ ?(?:d|days?|hours?|hrs?|h|std|mins?|m|secs?|s)\.? ?){2,}",
    re.I,
)
_PHONE = re.compile(
    r"(?:\+|00?|\()?\d[\d\s()/.\u2013-]{5,20}\d(?:\s?(?:x|ext\.?)\s?\d{1,6})?", re.IGNORECASE
)
_DIALLED = re.compile(
    r"[+(]|00[1-9]\d{0,2}[\s/.-]|(?:1-)?\d{3}[-.]\d{3}[-.]\d{4}(?!\d)|0[1-9](?:[ .]\d\d){4}(?!\d)|"
    r"0[1-9]\d{1,3}[ /-]\d{3,4} ?\d{3,4}(?!\d)"  # of one country: 06 12 34 56 78, 030 1234567
)
_COMPACT = re.compile(r"(\d{12}|\d{14}|\d{17}|\d{20})(?:\.\d{1,6})?(?:[+-]\d{4})?")
_ZONE = re.compile(r"(?<=\d) ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)$")
_POSTCODE = re.compile(r"[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|\d{4} ?[A-Z]{2}|[A-Z]\d[A-Z] ?\d[A-Z]\d")
_PERSON = re.compile(r"(?:[^\W\d_][\w.'\u2019-]*)(?:,? [^\W\d_][\w.'\u2019-]*){1,3}")
_STREET = re.compile(
    r"\b(?:st|street|ave|avenue|road|rd|lane|drive|dr|blvd|way|court|rue|via|calle|place)\b|"
    r"stra(?:ß|ss)e|str\.|weg\b|platz\b|gasse\b|allee\b",
    re.IGNORECASE,
)
SEMANTIC = ("email", "phone", "name", "address", "postcode", "iban", "url", "ip", "uuid")
"""What texts may be that are not modelled; a schema's ``format`` of a ``text`` column."""
_CALLED = {"email": "an email", "address": "an address", "iban": "an IBAN", "url": "a URL",
           "ip": "an IP address", "uuid": "a UUID"}  # fmt: skip
BRACKETS = "in brackets"
"""What the reason of a column has whose numbers in brackets are taken for negative ones."""
AMBIGUOUS = "dates that are ambiguous"
"""What the reason of a column begins with whose days and months may be swapped."""

_DAYS = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%y", "%m-%d-%y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y",
    "%d-%b-%y", "%d. %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y", "%Y%m%d",
)  # fmt: skip
_MONTHS = ("%Y-%m", "%Y/%m", "%m/%Y", "%m.%Y", "%b %Y", "%B %Y", "%b-%Y", "%b-%y")
_NAMED_DAYS = tuple(f"%a{gap}{day}" for gap in (" ", ", ") for day in _DAYS)
_DECADE, _EDGES = 3652, ((1, 1), (12, 30), (12, 31))  # in days; of years, such as 9999-12-31
_ODD_DATES = 3  # at each end, that are named
_CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
_MOMENTS = (
    *_CLOCKS,
    *(f"{day}{gap}{clock}" for day in _DAYS for clock in _CLOCKS for gap in (" ", ", ")),
    *(f"%Y-%m-%d{gap}{clock}{zone}" for gap in "T " for clock in _CLOCKS[:3]
      for zone in ("", "Z", " UTC", "%z", " %z")),
    *(f"{day}%d %b %Y %H:%M:%S {zone}" for day in ("%a, ", "") for zone in ("GMT", "UTC", "%z")),
)  # fmt: skip


@dataclass(frozen=True)
class ColumnEvidence:
    """What a column seems to be; see `Column` for the facts.

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


def evidence(table: Table, names: Sequence[str] | None = None) -> dict[str, ColumnEvidence]:
    """Judge columns, all if not named, by their own values and by the table's other columns.

    Example:
        >>> table = Table.from_columns({"paid": (["$1,250.50", "$80.00"] * 20, None)})
        >>> found = evidence(table)["paid"]
        >>> found.kind, found.format, found.decimals, found.padded
        ('continuous', '$1,234.5', 1, 2)
    """
    judged_names = list(names or table.names)
    # Columns are judged apart, and polars and NumPy let another thread run while they work.
    with ThreadPoolExecutor(_THREADS) as threads:
        judged = threads.map(lambda name: _judged(table.finite(name), name), judged_names)
        found = dict(zip(judged_names, judged, strict=True))
    for name, one in found.items():
        if codes := table.declared_missing(name):
            why = f"{one.why}; declared missing in the file: {', '.join(codes)}"
            found[name] = replace(one, why=why)
    for name, one in found.items():
        if table.kind(name) == "numbers" and (wild := len(table.unread(name))):
            why = f"{one.why}; {wild:,} of {table.num_rows:,} rows hold infinite numbers: correct "
            found[name] = replace(one, why=f"{why}them, or make them missing")
    if table.hint:
        found = {name: replace(one, why=f"{one.why}; {table.hint}") for name, one in found.items()}
    return _settled(found)


def _judged(table: Table, name: str) -> ColumnEvidence:
    if table.missing(name).all():
        return ColumnEvidence(name, "text", "no value in any row: not modelled, and drawn empty")
    if table.value_labels(name):
        return _labelled(table, name)
    return _unlabelled(table, name)


def _labelled(table: Table, name: str) -> ColumnEvidence:
    """Judge a column whose file has value labels: categories, or a scale of numbers.

    It is a scale where labels are at its ends alone, or name missing values alone.
    """
    labels = table.value_labels(name)
    unknown = {code: label for code, label in labels.items() if _UNKNOWN.search(label)}
    named = ", ".join(f"{code} ({label})" for code, label in unknown.items())
    if (levels := table.levels(name)) is not None:
        why = "value labels: the labels are the categories"
        if strays := [level for level in levels if level not in labels.values()]:
            rows = sum(n for text, n in table.text_counts(name).items() if text in strays)
            why += f"; {count_of(rows, 'row has a code', 'rows have codes')} without a label, "
            why += "which are categories of their own: correct them if they are slips"
        if named:
            why += f"; {named}: list in missing_values what stands for a missing value"
        return ColumnEvidence(name, "categorical", why)

    values = table.blanked(name, list(unknown)) if unknown else table
    if values.missing(name).all():
        values, unknown = table, {}
    seen = _unlabelled(values, name)
    at_ends = [code for code in labels if code not in unknown]
    if at_ends and values.kind(name) in ("whole numbers", "numbers"):
        whole = values.kind(name) == "whole numbers"
        why = f"numbers, of which {listed(at_ends, 4)} alone have a value label: a scale"
        seen = ColumnEvidence(name, "integer" if whole else "continuous", why)
        if not whole:
            seen = replace(seen, decimals=_of_numbers(values, name).decimals)
    if unknown and seen.kind in ("integer", "continuous", "categorical", "datetime"):
        why = f"{seen.why}; {named} taken for a missing value by the value labels"
        seen = replace(seen, why=why, missing_values=(*seen.missing_values, *unknown))
    return seen


def _unlabelled(table: Table, name: str) -> ColumnEvidence:
    """Judge a column by its values and its name."""
    gone, kind = table.missing(name), table.kind(name)
    if table.levels(name) is not None:
        core = table.text_counts(name) if kind == "text" else {}
        found = _not_modelled(table, name, core) if sum(core.values()) >= _SOME else None
        if found and (found.kind == "id" or found.format):
            return found
        why = "a categorical type: its values are the categories"
        return ColumnEvidence(name, "categorical", why)
    if kind == "booleans":
        return ColumnEvidence(name, "boolean", "booleans")
    if kind == "datetimes":
        when = np.unique(table.datetimes(name)[0][~gone])
        days = np.datetime_as_string(when.view("datetime64[us]"), unit="D").tolist()
        far = _far_off(when, days, "make it missing in the table")
        resolution, whole = _resolution(when, None)
        zone = table.zone(name)
        where = f" of the time zone {zone}" if zone else ""
        why = f"datetimes{where}{whole}{far}"
        return ColumnEvidence(name, "datetime", why, resolution=resolution, zone=zone)
    if kind == "text":
        return _with_unlike(table, _of_text(table, name))
    if (unit := table.unit(name)) is not None:
        why = f"durations, in {unit}"
        if kind == "whole numbers":
            return ColumnEvidence(name, "integer", f"{why}: whole numbers", format=unit)
        values, is_missing = table.floats(name, unit)
        decimals = decimals_of(np.unique(values[~is_missing]), MOST_DECIMALS, 53)
        return ColumnEvidence(name, "continuous", why, format=unit, decimals=decimals)
    if (compact := _compact_times(table, name, None)) is not None:
        return compact
    found = _of_numbers(table, name)
    return replace(_with_unlike(table, found), padded=table.padded(name))


def _with_unlike(table: Table, found: ColumnEvidence) -> ColumnEvidence:
    """Evidence of a column, which names codes of a missing value among its numbers."""
    name, is_coded = found.name, found.kind == "categorical"
    is_text = table.kind(name) == "text"
    if found.kind not in ("integer", "continuous") and not (is_coded and not is_text):
        return found
    plain = table.blanked(name, (*found.missing_values, *found.strays))
    numbers, is_missing = plain.floats(name, found.format)
    return replace(found, why=found.why + _unlike(found, numbers[~is_missing]))


def _unlike(found: ColumnEvidence, numbers: NDArray[np.float64]) -> str:
    """What is said of numbers that are codes of a missing value, such as 998 and 999."""
    seen, times = np.unique(numbers, return_counts=True)
    low = _low_codes(seen, times)
    high = _high_codes(seen[low:], times[low:])
    codes = [*seen[:low][::-1], *seen[len(seen) - high :]]
    if not codes:
        return ""
    it, stands = ("it", "it stands") if len(codes) == 1 else ("them", "they stand")
    listed_codes = " and ".join(f"{code:.10g}" for code in codes)
    correct = "take it from the categories" if found.kind == "categorical" else "correct the bounds"
    return (
        f"; {listed_codes}, far from all others: list {it} in missing_values if {stands} for a "
        f"missing value, and {correct}"
    )


def _low_codes(seen: NDArray[Any], times: _Ints) -> int:
    """How many of the smallest different numbers are codes, such as -99, or -8 and -9.

    Below numbers of which none is negative they need not lie as far away.
    """
    below = int((seen < 0).sum())
    if 0 < below < len(seen) and {*seen[:below]} <= {-7.0, -8.0, -9.0} and times[0] > 2:
        return below
    for count in range(min(_MOST_UNKNOWN, len(seen) - _FEWEST), 0, -1):
        if times[:count].min() <= 2:
            continue
        rest, gap = seen[count:], seen[count] - seen[count - 1]
        written = [f"{-code:.10g}" for code in seen[:count]]
        has_long = any(map(_CODED.fullmatch, written))
        are_codes = all(_CODED.fullmatch(text) or text in "123456789" for text in written)
        is_far = gap > np.ptp(rest) and has_long
        is_apart = rest[0] >= 0 and gap > _APART * np.median(np.diff(rest))
        if are_codes and (is_far or (is_apart and (has_long or count > 1))):
            return count
    return 0


def _high_codes(seen: NDArray[Any], times: _Ints) -> int:
    """How many of the largest different numbers are codes, such as 998 and 999.

    They lie far from all others; or they are at least two in a row up to 99 or such, above a gap
    that is no chance, and each is more frequent than the numbers below the gap.
    """
    for count in range(min(_MOST_UNKNOWN, len(seen) - _FEWEST), 0, -1):
        codes, rest = seen[-count:], seen[:-count]
        written = [f"{code:.10g}" for code in codes]
        if times[-count:].min() <= 2 or not all(map(_CODED.fullmatch, written)):
            continue
        gap = codes[0] - rest[-1]
        if gap > np.ptp(rest):
            return count
        in_a_row = count > 1 and set(written[-1]) == {"9"} and (np.diff(codes) == 1).all()
        spacing = float(np.median(np.diff(rest)))
        near = rest >= rest[-1] - _NEIGHBOURS * spacing
        often = times[:-count][near].sum() / (_NEIGHBOURS + 1)  # rows of a value below the gap
        absent = (gap / spacing - 1) * often
        if in_a_row and gap > _APART * spacing and absent > 16 and times[-count:].min() > often:
            return count
    return 0


# Numbers


def _of_numbers(table: Table, name: str) -> ColumnEvidence:
    numbers, gone = table.floats(name)
    numbers = numbers[~gone]
    sizes = np.abs(numbers)
    if table.kind(name) == "numbers" and not (
        (sizes < 2.0**53).all() and (numbers == np.round(numbers)).all()
    ):
        kinds = len(distinct := np.unique(numbers))
        decimals = decimals_of(distinct, MOST_DECIMALS, 53)
        why = "numbers of more than 15 decimals"
        if decimals is not None:
            why = f"numbers of up to {count_of(decimals, 'decimal', 'decimals')}"
        if 4 * kinds <= len(numbers) and kinds <= _FEW_CODES:
            why = f"{why}, {kinds} different ones; if no other can occur, declare it categorical"
        return ColumnEvidence(name, "continuous", why, decimals=decimals)
    values, _ = table.integers(name)
    values = values[~gone]
    seen, times = np.unique(values, return_counts=True)
    return _of_whole(name, values, seen, times, table)


def _of_whole(name: str, values: _Ints, seen: _Ints, times: _Ints, table: Table) -> ColumnEvidence:
    rows, kinds, words = len(values), len(seen), _words_in(table, name)
    spread = f"{_different(kinds)} in {rows:,} rows"
    if kinds == 1:
        return ColumnEvidence(name, "integer", "constant: one whole number in every row")
    if seen.tolist() == [0, 1]:
        return ColumnEvidence(name, "boolean", "0 and 1: a boolean", categories=(0, 1))
    months = kinds > _FEW_CODES and 0 < seen[0] <= seen[-1] < 10**6  # of few years: codes
    days, such = ("%Y%m", "202401") if months else ("%Y%m%d", "20240131")
    if _are_days(seen * 100 + 1 if months else seen, times) and _fits(table, name, days):
        texts, how = list(map(str, seen.tolist())), "name it as missing where the file is read"
        when, _ = Table.from_columns({name: (texts, None)}).datetimes(name, days)
        why = f"whole numbers such as {such}: dates{_far_off(when, texts, how)}"
        return ColumnEvidence(name, "datetime", f"{why}; {_if_not('integer')}", format=days)
    if _POST & {*words} and not _COUNTS & {*words}:
        why = f"{spread}, named as a postcode: "
        if kinds > min(0.2 * rows, _MOST_CODES):
            why += f"not modelled; {_if_not('categorical')}"
            return ColumnEvidence(name, "text", why, format="postcode")
        return ColumnEvidence(name, "categorical", f"{why}categories; {_if_not('integer')}")
    if reason := _is_key(words, values, seen, times):
        size = len(str(seen[0]))
        form = f"[1-9][0-9]{{{size - 1}}}" if _as_long(seen) >= _LONG else None
        return _id(name, spread, form, f", {reason}", "integer")
    if coded := _of_codes(name, words, values, seen, times, table):
        return coded
    why = f"{spread}: whole numbers"
    if kinds <= _FEW_CODES:
        why = f"{why}; if they are codes of something, declare the column categorical"
    elif _counts_up(values):
        why = f"{why} that rise from row to row as counters do; if they number rows, declare it id"
    elif any(map(_DATED.search, words)) and 10_000 < seen[0] <= seen[-1] < 80_000:
        why = f"{why}; if a spreadsheet counted days from 1900 on, write dates into the file"
    return ColumnEvidence(name, "integer", why)


def _of_codes(
    name: str, words: Sequence[str], values: _Ints, seen: _Ints, times: _Ints, table: Table
) -> ColumnEvidence | None:
    """Judge whole numbers that are codes of categories, or a scale with codes beside it."""
    reason = _are_codes(name, words, values, seen, times, table)
    if not reason:
        return None
    if reason == _GAPS and (scale := _scale_of(name, words, seen, times, table)):
        return scale
    spread = f"{_different(len(seen))} in {len(values):,} rows"
    why = f"{spread}, {reason}: codes of categories; {_if_not('integer')}"
    return ColumnEvidence(name, "categorical", why)


def _scale_of(
    name: str, words: Sequence[str], seen: _Ints, times: _Ints, table: Table
) -> ColumnEvidence | None:
    """Judge whole numbers that are a scale of ten values or more but for a few far above it.

    Scales of surveys go from 0 to 10, say, and 77 and 88 are refusals. Of fewer values they may as
    well be categories: nothing between them is drawn then.
    """
    far = _high_codes(seen, times)
    scale = seen[: len(seen) - far]
    if not far or len(scale) < _SCALE or (np.diff(scale) != 1).any():
        return None
    unknown = tuple(str(code) for code in seen[len(scale) :].tolist())
    plain = table.blanked(name, unknown)
    numbers, gone = plain.integers(name)
    if _are_codes(name, words, numbers[~gone], scale, times[: len(scale)], plain):
        return None
    why = (
        f"{_different(len(seen))} in {times.sum():,} rows: a scale from {scale[0]} to {scale[-1]}, "
        f"and {' and '.join(unknown)}, far above it, taken for a missing value: correct "
        "missing_values if that is wrong, or declare the column categorical"
    )
    return ColumnEvidence(name, "integer", why, missing_values=unknown)


def _id(name: str, spread: str, form: str | None, reason: str, other: str) -> ColumnEvidence:
    shape = f" of the form {form}" if form else ""
    why = f"{spread}{shape}{reason}: an identifier, left out of the model and drawn anew"
    if reason.endswith(_SEVERAL):
        why += " in every row, so rows of one person are not linked"
    return ColumnEvidence(name, "id", f"{why}; {_if_not(other)}", format=form)


def _are_days(seen: _Ints, times: _Ints) -> bool:
    """Whether whole numbers are days written as 20240131.

    Years are those of our time, but for typing errors, and for first and last days of a year.
    """
    if seen[0] < 1000_01_01 or seen[-1] > 9999_12_31:
        return False
    try:
        days = [datetime.strptime(str(one), "%Y%m%d") for one in seen.tolist()]  # noqa: DTZ007
    except ValueError:
        return False
    is_far = np.array([not 1900 <= day.year <= 2100 for day in days])
    if is_far.sum() >= min(3, len(days) - 1):
        return False
    edges = {(day.month, day.day) for day, far in zip(days, is_far, strict=True) if far}
    return edges <= {*_EDGES} or times[is_far].sum() <= _STRAY * times.sum()


def _as_long(seen: _Ints) -> int:
    """How many digits positive numbers have, in their order; 0 if not all have as many."""
    low, high = (len(str(one)) for one in (seen[0], seen[-1]))
    return low if seen[0] > 0 and low == high else 0


def _even(seen: _Ints) -> bool:
    """Whether different numbers, in their order, are evenly spread (Kolmogorov-Smirnov)."""
    count = len(seen)
    level = (seen - seen[0] + 0.5) / (seen[-1] - seen[0] + 1)
    return bool(np.abs(level - (np.arange(count) + 0.5) / count).max() < 1.4 / count**0.5)


def _counts_up(values: _Ints) -> bool:
    """Whether numbers rise from row to row, more evenly than if some were left out by chance."""
    steps = np.diff(values)
    if len(steps) < _SOME or steps.min() <= 0:
        return False
    steps = steps // np.gcd.reduce(steps)
    return bool(steps.mean() > 4.0 and 2.0 * steps.var() < steps.mean() * (steps.mean() - 1.0))


def _is_key(words: Sequence[str], values: _Ints, seen: _Ints, times: _Ints) -> str:
    """Why whole numbers name a row each, or what has several; or an empty text."""
    rows, kinds = len(values), len(seen)
    people = _numbers_people(words) or (len(words) == 1 and words[0] in _ALONE)
    named = people or _IDS & {*words} or words[-1] in _NUMBERED
    if rows > 1 and kinds >= _NEAR * rows and named:
        return "named as one"
    low, high = int(seen[0]), int(seen[-1])
    if max(-low, high) >= _HUGE:
        return "of more digits than are modelled"
    if people and kinds > 2:
        return _NAMED
    if rows < _SOME or _COUNTS & {*words} or _counts_up(values):
        return ""
    if kinds >= _NEAR * rows and low >= 10**9 and high < 20 * low:
        return "of ten digits or more, nearly all different"  # of cards, phones, people
    if kinds < rows:
        return _repeats(words, seen, times)
    width = high - low + 1
    if width == rows:
        return "without a gap"
    if (np.diff(values) > 0).all():
        return "rising from row to row"
    if rows * rows / (2.0 * width) > 8.0:
        return "where chance would have repeated some"
    if _as_long(seen) >= (4 if rows * rows > 8.0 * width else 5) and _even(seen):
        return "all of as many digits and evenly spread"
    return ""


def _repeats(words: Sequence[str], seen: _Ints, times: _Ints) -> str:
    """Why whole numbers are identifiers of what has several rows each, or an empty text.

    By their form alone they are, if they are spread as evenly as numbers that were given out, and
    repeat more often than chance could repeat a measure.
    """
    rows, kinds, size = int(times.sum()), len(seen), _as_long(seen)
    if kinds < max(_SOME, _EACH * rows) or _kind_of_things(words):
        return ""
    if _named_id(words) and (_IDS & {*words} or size >= _LONG):
        return _NAMED
    width = int(seen[-1] - seen[0]) + 1
    sparse = width > 20 * kinds and 2.0 * rows * rows / width < rows - kinds
    alone = size > 5 and sparse and times.max() * kinds < 10 * rows and _even(seen)
    return f"all of as many digits and evenly spread, {_SEVERAL}" if alone else ""


def _are_codes(
    name: str, words: Sequence[str], values: _Ints, seen: _Ints, times: _Ints, table: Table
) -> str:
    """Why whole numbers are codes of categories, or an empty text."""
    rows, kinds = len(values), len(seen)
    if kinds * 4 > rows or seen[0] < 0:
        return ""
    if kinds == 2:
        return "just two"
    counted = _COUNTS & {*words} and (words[-1] not in _CODES or words[0] in _HOW_MANY)
    if counted or kinds > _MOST_CODES:
        return ""
    if _CODES & {*words}:
        return "named as one"
    if kinds > _FEW_CODES or rows < _SOME:
        return ""
    if _has_valley(seen, times) or _has_unknown(seen, times):
        return _GAPS
    unordered = _without_order(name, values, seen, table)
    return "in no order that another column knows" if unordered else ""


def _has_valley(seen: _Ints, times: _Ints) -> bool:
    """Whether some value is rarer by far than values on both of its sides, or never occurs."""
    kept = np.array([len(text) < 2 or set(text) != {"9"} for text in map(str, seen.tolist())])
    kept &= (seen > 0) | (len(seen) <= 12)  # many numbers are 0 more often than 1
    seen, times = seen[kept], times[kept]
    if len(seen) < 3 or seen[-1] - seen[0] > 10_000:
        return False
    counts = np.zeros(int(seen[-1] - seen[0]) + 1)
    counts[seen - seen[0]] = times
    left = np.maximum.accumulate(counts)
    right = np.maximum.accumulate(counts[::-1])[::-1]
    beside = np.minimum(left, right)
    return bool(((counts < beside / 2.0) & (beside - counts > 4.0 * np.sqrt(beside))).any())


def _has_unknown(seen: _Ints, times: _Ints) -> bool:
    """Whether the last of few numbers are 7, 8, 9, 98, 99 or so, far above the others.

    Surveys write unknown answers so. Values between them would not all be absent by chance.
    """
    gaps = np.diff(seen) - 1
    at = int(gaps.argmax()) + 1
    far = {*"".join(map(str, seen[at:].tolist()))} <= {*"789"} and gaps[at - 1] > 1
    few = len(seen) <= 12 and seen[at - 1] < 12
    return bool(far and few and times[at:].sum() > 2 and gaps[at - 1] * times[at:].sum() > 16)


def _without_order(name: str, values: _Ints, seen: _Ints, table: Table) -> bool:
    """Whether other columns of numbers differ between these values, but not in their order.

    A column of numbers is explained by them as categories (the correlation ratio) or as numbers
    (the squared correlation); it counts where the first is beyond chance and far larger.
    """
    gone = table.missing(name)
    rows = np.flatnonzero(~gone)[:_ROWS]
    place = np.searchsorted(seen, values[: len(rows)])
    sizes = np.bincount(place, minlength=len(seen))
    if len(rows) < 20 * len(seen):
        return False
    verdicts = []
    for other in table.names:
        if other == name or table.kind(other) not in ("whole numbers", "numbers", "booleans"):
            continue
        y = table.values(other)[rows].astype(np.float64)
        y = np.where(np.isfinite(y) & ~table.missing(other)[rows], y, np.nan)
        if np.isnan(y).any() or not y.std():
            continue
        ranks = np.empty(len(y))
        ranks[np.argsort(y, kind="stable")] = np.arange(len(y))
        ranks = (ranks - ranks.mean()) / ranks.std()
        sums = np.bincount(place, ranks, len(seen))
        between = float((sums**2 / np.maximum(sizes, 1)).sum()) / len(rows)
        chance = (len(seen) - 1) / len(rows)
        if between < chance + 0.02 + 5.0 * (2.0 * chance / len(rows)) ** 0.5:
            continue
        line = float(np.corrcoef(place, ranks)[0, 1]) ** 2 if len(seen) > 1 else 0.0
        verdicts.append(line < 0.4 * (between - chance))
    return len(verdicts) > 0 and sum(verdicts) > 0.5 * len(verdicts)


# Texts


def _of_text(table: Table, name: str) -> ColumnEvidence:
    counted = table.text_counts(name)
    short = [text for text in counted if len(text) < 10]
    blanks = {t for t in short if not t or t.lower() in _BLANKS}
    blanks |= {t for t in short if t[:1] == "#" and _ERROR.fullmatch(t)}
    core = counted if not blanks else {t: n for t, n in counted.items() if t not in blanks}
    if not core:
        spelled = tuple(sorted(blanks))
        why = "nothing but marks of missing values: not modelled, and drawn empty"
        return ColumnEvidence(name, "text", why, missing_values=spelled)
    found = _two_words(table, name, core) or _written(table, name, core, blanks)
    if found is None or found.strays:
        what, others = _others(core)
        marks = _marks_of_gaps(core, others)
        rest = {text: count for text, count in core.items() if text not in marks} if marks else {}
        again = _written(table, name, rest, blanks | marks) if marks else None
        if again and again.kind != "categorical":  # of which the marks are some, too
            found, blanks = again, blanks | marks
    if found is None:
        unsure = {text for text in blanks if text.lower() in _MAYBE}
        unsure |= {text for text in blanks if set(text) == {"-"} and "+" in core}
        blanks -= unsure
        core |= {text: counted[text] for text in unsure}
        found = _not_modelled(table, name, core) or _categories(table, name, core)
        rows = sum(core[text] for text in others)
        rest = {text: count for text, count in core.items() if text not in {*others}}
        if 0 < rows < sum(core.values()) / 3 and _written(table, name, rest, {*blanks, *others}):
            why = f"{found.why}; all but {rows:,} rows hold {what}, and it is modelled as such if "
            why += "the others are corrected, or named as missing where the file is read"
            found = replace(found, why=why)
        elif flags := _flags(core):
            why = f"{found.why}; numbers with marks behind them ({listed(flags, 5)}): write these "
            found = replace(found, why=f"{why}into a column of their own, and it is modelled")
    if spelled := tuple(sorted(blanks)):
        texts = ", ".join(map(repr, spelled))
        why = f"{found.why}; {texts} taken for a missing value: correct missing_values if it is not"
        if any(map(_LIMIT.fullmatch, spelled)):
            why += ", or write a number into the file instead of a limit"
        found = replace(found, why=why, missing_values=spelled)
    return found


def _spelled(table: Table, name: str, core: Mapping[str, int]) -> list[str]:
    """Texts as they are written, with the spaces around them."""
    return [text for text in table.counts(name)[0] if text.strip() in core]


def _two_words(table: Table, name: str, core: Mapping[str, int]) -> ColumnEvidence | None:
    texts = _spelled(table, name, core) if len(core) < _PROBE else []
    by_word = {text.strip().lower(): text for text in texts}
    if len(texts) > 2:  # which a frame cannot hold as booleans
        if table.frame == "csv" and set(by_word) == {"true", "false"}:
            return ColumnEvidence(name, "boolean", "booleans in several spellings")
        return None
    pair = next((p for p in _PAIRS if set(p) == set(by_word)), None)
    if pair is None:
        return None
    words = by_word[pair[0]], by_word[pair[1]]  # as they are written
    why = f"{words[0]} and {words[1]}: a boolean"
    return ColumnEvidence(name, "boolean", why, categories=words)


def _others(core: Mapping[str, int]) -> tuple[str, list[str]]:
    """What most texts are, numbers or dates, and those that are no such; or none."""
    probe = list(core)[:_PROBE]
    texts = [text for text in probe[:6] if re.search(r"\d\W.*\d|\d{8}", text)]  # as dates have
    form = max(_MOMENTS + _DAYS, key=lambda form: sum(_follows(text, form) for text in texts))
    tests: dict[str, Callable[[str], Any]]
    tests = {"numbers": lambda text: _NUMBER.fullmatch(text) or _POWER.fullmatch(text)}
    tests["dates"] = partial(_follows, form=form)
    for what, test in tests.items():
        most = 2 * sum(map(bool, map(test, probe))) >= len(probe)
        if most and (others := [text for text in core if not test(text)]):
            return what, others
    return "", []


def _marks_of_gaps(core: Mapping[str, int], others: Sequence[str]) -> set[str]:
    """Texts among many numbers or dates that stand for none: few, and each in several rows.

    They are limits of what can be measured, such as <0.5, and words: nothing with other digits.
    """
    marks = {text for text in others if core[text] > 2}
    marks = {text for text in marks if _LIMIT.fullmatch(text) or not re.search("[1-9]", text)}
    return marks if len(core) - len(others) >= _SOME and len(marks) <= _MARKS else set()


def _flags(core: Mapping[str, int]) -> list[str]:
    """Marks behind most numbers or some, such as the flags p and e of official statistics."""
    probe = list(core)[: 10 * _PROBE]
    parts = [re.fullmatch(r"([-+]?\d[\d.,]*) ?([^\W\d]{1,3}|[*†‡]{1,3})?", text) for text in probe]
    flagged = [part for part in parts if part is not None]
    marks = {part[2] for part in flagged if part[2]}
    has_most = len(flagged) >= (1.0 - 2 * _EACH) * len(probe) and len(probe) > _SOME
    return sorted(marks) if has_most and (len(marks) > 1 or {*marks} & {*"*†‡"}) else []


def _categories(table: Table, name: str, core: Mapping[str, int]) -> ColumnEvidence:
    texts, rows = _spelled(table, name, core), sum(core.values())
    if len(texts) == 1:
        return ColumnEvidence(name, "categorical", "constant: one text in every row")
    why = f"{_different(len(texts), 'texts')} in {rows:,} rows: categories"
    if alike := len(texts) - len({" ".join(text.split()).casefold() for text in texts}):
        why += f"; {alike} differ{'s' * (alike == 1)} from another in capital letters or spaces "
        why += "alone: write them alike in the file if they mean the same"
    return ColumnEvidence(name, "categorical", why)


def _not_modelled(table: Table, name: str, core: Mapping[str, int]) -> ColumnEvidence | None:
    """What is personal, near-unique or free text; None for categories."""
    rows, kinds, whole = sum(core.values()), len(core), table.num_rows
    parts = _words_in(table, name)
    words = {*parts}
    share, texts = kinds / rows, list(core)
    probe = texts[: 10 * _PROBE]
    spread = f"{_different(kinds, 'texts')} in {rows:,} rows"

    def left_out(form: str | None, what: str) -> ColumnEvidence:
        why = f"{spread}, {what}: not modelled; {_if_not('categorical')}"
        return ColumnEvidence(name, "text", why, format=form)

    if kinds > 1 and _most(probe, _MAC.fullmatch):
        return _id(name, spread, _pattern(texts), ", MAC addresses", "categorical")
    form = next((f for f, shape in _SHAPES.items() if _most(probe, shape.fullmatch)), None)
    form = form or _personal(words, probe, share, kinds)
    if form and (kinds > 1 or form in ("email", "iban")):
        return left_out(form, f"each written like {_CALLED.get(form, f'a {form}')}")
    if kinds >= _SOME and not _IDS & words:
        if _most(probe, _TWO.fullmatch):
            return left_out(None, "two numbers in one field (give each a column of its own)")
        if _most(probe, _LASTS.fullmatch):
            return left_out(None, "durations (write each as a number, such as minutes)")
    if kinds == whole > 1 or (share >= _NEAR and rows >= _SOME):
        pattern, named = _pattern(texts), _IDS & words or _numbers_people(parts)
        code = pattern or _most(probe, re.compile(r"\d").search)
        if named or (code and not any(" " in one for one in probe)):
            return _id(name, spread, pattern, "", "categorical")
        return left_out(None, "nearly all different")
    if reason := _repeated(parts, core):
        return _id(name, spread, _pattern(texts), f", {reason}", "categorical")
    long = sum(len(text.split()) for text in probe) > 4 * len(probe)
    if rows >= _SOME and (share >= 0.5 or (long and share > 0.2)):
        return left_out(None, "free text" if long else "many of one row alone")
    return None


def _repeated(words: Sequence[str], core: Mapping[str, int]) -> str:
    """Why texts are identifiers of what has several rows each, or an empty text."""
    rows, kinds, texts = sum(core.values()), len(core), list(core)
    if kinds > 2 and _numbers_people(words):
        return _NAMED
    if kinds < max(_SOME, _EACH * rows) or _kind_of_things(words):
        return ""
    spaced = any(" " in one for one in texts)
    logins = _PEOPLE.match(words[-1]) and not spaced
    if _named_id(words) and (logins or _most(texts, re.compile(r"\d").search)):
        return _NAMED
    if spaced or max(core.values()) * kinds >= 10 * rows:
        return ""
    if _numbered(texts):
        return f"letters and a number each, {_SEVERAL}"
    width = max(map(len, texts))
    places = map(set, zip(*(text.rjust(width) for text in texts), strict=True))
    digits = sum(sum(map(str.isdigit, place)) > 1 for place in places)
    shapes = {re.sub(r"\d+", "0", text) for text in texts}
    alike = len(shapes) == 1 or len({*map(len, texts)}) == 1
    alone = alike and digits >= 5 + (shapes == {"0"})
    return f"written as identifiers are, {_SEVERAL}" if alone else ""


def _numbered(texts: Sequence[str]) -> bool:
    """Whether texts are the same letters and long numbers, or many numbers from 1 on: P00017."""
    found = [re.fullmatch(r"(\D*[^\W\d_]\D*)(\d+)", text) for text in texts]
    parts = [(one[1], one[2]) for one in found if one]
    if len(parts) < len(texts) or len({letters for letters, _ in parts}) > 1:
        return False
    long = all(len(number) >= _LONG for _, number in parts)
    in_a_row = len(texts) > _FEW_CODES and max(int(n) for _, n in parts) <= 1.25 * len(texts)
    return (long or in_a_row) and not _kind_of_things(_words(parts[0][0]))


def _kind_of_things(words: Sequence[str]) -> bool:
    """Whether a name says that values are of places, products or sorts of something."""
    return bool({*words} & (_POST | _CODES | _THINGS) - {"id", "code"})


def _named_id(words: Sequence[str]) -> bool:
    """Whether a name says that values identify what they stand for, such as `loan_id`."""
    people = _PEOPLE.match(words[-1]) and not words[-1].endswith("s")
    return bool(people or _IDS & {*words} - {"index", "idx"} or words[-1] in _NUMBERED)


def _numbers_people(words: Sequence[str]) -> bool:
    """Whether a name numbers people, or their cases: patient_id, Kundennummer, numéro client."""
    if _PEOPLE.match(words[-1]):
        return bool(_MARK.search(words[-1])) or words[0] in _FIRST or words[-1] in ("pid", "kvnr")
    what, mark = words[-2:] if len(words) > 1 else ("", "")
    counted = what.endswith("s") and not mark.startswith("id")  # how many students
    return bool(_PEOPLE.match(what) and _MARK.fullmatch(mark)) and not counted


def _personal(words: set[str], probe: Sequence[str], share: float, kinds: int) -> str | None:
    """Which personal kind texts are by their form, or by the column's name and their form."""
    people = any(found["who"] for found in map(_PEOPLE.match, words) if found)
    named = _NAMES & words or (_NAME & words and (people or not words - _NAME - _WHOSE))
    people |= bool(named and (_NAMES | _WHOSE) & words)
    alone = people and len(words) == 1 and not any(map(_MANY.search, words))  # as in a class list
    main = [re.sub(" [a-z]{1,3}(?= )", "", text) for text in probe]  # without de, von and such
    proper = _most(main, lambda t: _PERSON.fullmatch(t) and (t.istitle() or t.isupper()))
    varied = proper and kinds >= _SOME and not _kind_of_things([*words]) and _varied(probe)
    few = varied or (kinds >= _SOME and (share >= _EACH or alone))
    if not (share > 0.2 or few or (people and named)):
        return None
    digits = [sum(one.isdigit() for one in text) for text in probe]
    phones = _most(probe, _PHONE.fullmatch) and min(digits) >= 5
    if phones and (_PHONES & words or 2 * sum(map(bool, map(_DIALLED.match, probe))) > len(probe)):
        return "phone"
    if share > 0.2 and (_POST & words or _most(probe, _POSTCODE.fullmatch)):
        return "postcode"
    numbered = _most(probe, lambda text: re.search(r"\d", text) and re.search(r"[^\W\d]", text))
    if numbered and (_STREETS & words or _most(probe, _STREET.search)):
        return "address"
    likely = share > 0.5 or alone or varied or (_NAME & words and not words & (_THINGS | _CODES))
    return "name" if (named and max(digits) == 0) or (proper and likely) else None


def _varied(texts: Sequence[str]) -> bool:
    """Whether words mostly differ at both ends of texts: names of people, and no titles.

    Gold Yearly and Gold Monthly share words. One with a point, such as Dr., does not count.
    """
    some = texts[:: max(1, len(texts) // _SOME)]
    words = [[w for w in text.upper().split() if w[-1] != "."] or [text] for text in some]
    low, high = sorted(len({one[end] for one in words}) / len(some) for end in (0, -1))
    return low >= 0.5 and high >= 0.75


def _most(texts: Sequence[str], test: Callable[[str], Any]) -> bool:
    """Whether a test holds for nearly all texts."""
    exceptions = len(texts) - ceil(_NEAR * len(texts))
    for text in texts:
        if test(text):
            continue
        exceptions -= 1
        if exceptions < 0:
            return False
    return True


def _pattern(texts: Sequence[str]) -> str | None:
    """A regular expression of texts that are alike position by position; None if they are not."""
    if len({len(text) for text in texts}) > 1:
        return None
    parts: list[str] = []
    places = np.array(texts).view("U1").reshape(len(texts), -1)
    for column in (set(np.unique(place).tolist()) for place in places.T):
        options = ("[0-9]", "[A-Z]", "[a-z]", "[0-9a-f]", "[0-9A-F]", "[A-Z0-9]", "[a-z0-9]",
                   "[A-Za-z0-9]")  # fmt: skip
        if "" in column:  # NUL, which numpy leaves off
            return None
        if len(column) == 1:
            parts.append(re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", column.pop()))
        else:
            fits = (one for one in options if all(re.fullmatch(one, c) for c in column))
            if (found := next(fits, None)) is None:
                return None
            parts.append(found)
    runs = [(part, len(list(same))) for part, same in groupby(parts)]
    return "".join(f"{p}{{{n}}}" if n > 1 and p[0] == "[" else p * n for p, n in runs)


# Numbers and dates that are written as text


def _written(
    table: Table, name: str, core: Mapping[str, int], blanks: Iterable[str]
) -> ColumnEvidence | None:
    if (compact := _compact_times(table, name, list(core))) is not None:
        return compact
    found = _written_numbers(table, name, core, blanks)
    return found or _written_dates(table, name, core, blanks)


def _written_numbers(
    table: Table, name: str, core: Mapping[str, int], blanks: Iterable[str]
) -> ColumnEvidence | None:
    if table.frame == "csv" and all(map(_POWER.fullmatch, core)) and "e" in "".join(core).lower():
        numbers = np.repeat([float(text) for text in core], [*core.values()])
        return _of_numbers(Table.from_columns({name: (numbers, None)}), name)
    probe = list(core)[:_PROBE]
    phones = _most(probe, re.compile(r"\+[1-9]\d{9,14}").fullmatch)  # as E.164 has them
    if phones or sum(bool(_NUMBER.fullmatch(text)) for text in probe) < 0.9 * len(probe):
        return None
    parsed = [match for match in map(_NUMBER.fullmatch, core) if match is not None]
    affixes = Counter((m["prefix"] or "", m["suffix"] or "") for m in parsed)
    (prefix, suffix), _ = affixes.most_common(1)[0]
    same = [m for m in parsed if (m["prefix"] or "").strip() == prefix.strip()]
    same = [m for m in same if (m["suffix"] or "").strip() == suffix.strip()]
    strays = tuple(set(core) - {m.string for m in same})
    rows = sum(core.values())
    if sum(core[text] for text in strays) > _STRAY * rows:
        return None
    bodies = [m["body"] for m in same]
    marks = _marks(bodies, comma=table.dialect is not None and table.dialect.separator == ";")
    if marks is None:
        return None
    thousands, decimal = marks
    tails = [body.partition(decimal)[2] if decimal else "" for body in bodies]
    decimals = max(len(tail.rstrip("0")) for tail in tails)
    padded = fewest_decimals({*map(len, tails)}, {len(one) for one in tails if one[-1:] == "0"})
    if not (thousands or decimal) and any(len(body) > 18 for body in bodies):
        pattern = _pattern(list(core)) if len(core) >= _NEAR * rows else None
        spread = f"{_different(len(core))} in {rows:,} rows"
        return _id(name, spread, pattern, ", of more digits than are modelled", "categorical")
    form: str | None = f"{prefix}1{thousands}234{f'{decimal}5' if decimal else ''}{suffix}"
    odd = any(m["open"] or m["behind"] or "\u2212" in m.string for m in same)
    is_usual = form == "1234" or (form == "1234.5" and table.decimal(name) == ".")
    if is_usual and table.frame == "csv" and not odd:
        form = None
    plain = table.blanked(name, (*blanks, *strays))
    other = sum(core[text] for text in strays)
    note = f"; other text in {other:,} of {rows:,} rows: correct it" if other else ""
    note += _said_of_brackets(same, core)
    if decimals == 0 and form in (None, "1234"):
        values, gone = plain.integers(name, form)
        seen, times = np.unique(values[~gone], return_counts=True)
        if form is not None and set(core) == {"0", "1"}:
            return ColumnEvidence(name, "boolean", "0 and 1: a boolean", categories=("0", "1"))
        if form is not None and len(seen) <= _FEW_CODES:
            return None  # few whole numbers that a frame holds as text are codes
        judged = _of_whole(name, values[~gone], seen, times, plain)
        written = form if judged.kind == "integer" else None
        form, why = judged.format or written, judged.why + note
        return replace(judged, format=form, padded=padded or None, why=why, strays=strays)
    written = f"numbers written like {form}" if form else "numbers"
    if decimals == 0:
        why, digits = f"whole {written}{note}", padded or None
        return ColumnEvidence(name, "integer", why, format=form, padded=digits, strays=strays)
    most = decimals if decimals <= MOST_DECIMALS else None
    why = f"{written}, of up to {count_of(decimals, 'decimal', 'decimals')}{note}"
    return ColumnEvidence(
        name, "continuous", why, format=form, decimals=most, padded=padded, strays=strays
    )


def _said_of_brackets(numbers: Iterable[re.Match[str]], counts: Mapping[str, int]) -> str:
    """What is said of numbers in brackets: negative in accounts, uncertain in statistics."""
    inside = [number for number in numbers if number["open"]]
    if not inside:
        return ""
    rows = sum(counts[number.string] for number in inside)
    signed = any(number["sign"] or number["sign2"] or number["behind"] for number in numbers)
    held = count_of(rows, "row is", "rows are")
    others = ", and others have a sign" if signed else ""
    return (
        f"; {held} {BRACKETS}{others}: read as negative, as accounts write them. If they mark what "
        "is uncertain, as official statistics do, delete the brackets in the file"
    )


def _marks(bodies: Sequence[str], *, comma: bool) -> tuple[str, str] | None:
    """The thousands and decimal marks of written numbers, or None if they are no numbers.

    Where `comma` is true a comma is a decimal mark, as in files of semicolons, if both may be.
    """
    used = {*"".join(bodies)} - {*"0123456789"}
    spaced = [mark for mark in used if mark not in ".,"]
    if len(spaced) > 1:
        return None
    points = [mark for mark in used if mark in ".,"]
    if len(points) == 2:
        both = next((body for body in bodies if "." in body and "," in body), None)
        if both is None or spaced:
            return None
        last = max(points, key=both.rfind)
        marks = ("," if last == "." else "."), last
    elif len(points) == 1 and not spaced and _groups(bodies, points[0], comma):
        marks = points[0], ""
    else:
        marks = "".join(spaced), "".join(points)
    thousands, decimal = marks
    whole = re.escape(thousands)
    shape = rf"(?:[1-9]\d{{0,2}}(?:{whole}\d{{3}})+|0|[1-9]\d*)" if thousands else r"(?:0|[1-9]\d*)"
    shape += rf"?(?:{re.escape(decimal)}\d+)?" if decimal else ""
    return marks if all(map(re.compile(shape).fullmatch, bodies)) else None


def _groups(bodies: Sequence[str], mark: str, comma: bool) -> bool:
    """Whether a mark divides thousands: 1,234 could be a decimal mark, too."""
    marked = [body for body in bodies if mark in body]
    if any(body.count(mark) > 1 for body in marked):
        return True
    if not all(re.fullmatch(rf"[1-9]\d{{0,2}}[{mark}]\d{{3}}", body) for body in marked):
        return False
    unmarked = [body for body in bodies if mark not in body]
    if any(len(body) > 3 for body in unmarked):
        return False
    return (mark == "," and not comma) or bool(unmarked)


def _written_dates(
    table: Table, name: str, core: Mapping[str, int], blanks: Iterable[str]
) -> ColumnEvidence | None:
    probe = list(core)[:_PROBE]
    if not all(re.search(r"\d", text) and len(text) < 40 for text in probe):
        return None
    months = _MONTHS if len(core) > _FEW_CODES else ()  # of few years they are categories
    forms = _MOMENTS if ":" in probe[0] else _DAYS + _NAMED_DAYS + months
    if zone := re.search(r" GMT[+-]\d+$", probe[0]):  # of a form in one season
        forms = tuple(form + zone[0] for form in forms)
    forms = tuple(form for form in forms if _most(probe, partial(_follows, form=form)))
    plain = table.blanked(name, tuple(blanks))
    fits = [form for form in forms if _fits(plain, name, form)]
    if not fits:
        return _mixed_zones(name, list(core))
    form = fits[0]
    swapped = form.replace("%d", "\0").replace("%m", "%d").replace("\0", "%m")
    otherwise = swapped if swapped in fits and swapped != form else None
    form, otherwise = _padded(form, probe), otherwise and _padded(otherwise, probe)
    why = f"{'dates' if re.search('%[Yy]', form) else 'times of day'} written as {form}"
    texts = list(core)
    when, _ = Table.from_columns({name: (texts, None)}).datetimes(name, form)
    resolution, whole = _resolution(np.unique(when), form)
    if "%z" in form:
        why += ", read in UTC and drawn in UTC, with +00:00"
    why += whole + _far_off(when, texts, "list it in missing_values")
    return ColumnEvidence(
        name, "datetime", why, format=form, otherwise=otherwise, resolution=resolution
    )


def _compact_times(table: Table, name: str, texts: Sequence[str] | None) -> ColumnEvidence | None:
    """Times of digits alone, such as 20240131093000 of HL7; None if they are something else.

    Numbers of a day's records, such as 202401310007, look like times too, but all in one hour.

    Args:
        table: All columns.
        name: The column's.
        texts: Its different values, without those that stand for a missing one; all if None.
    """
    if texts is not None:
        table = Table.from_columns({name: (np.array(texts, dtype=object), None)})
    cells = texts_of(table.cells(name).drop_nulls()).str.strip_chars()
    probe = cells.head(_PROBE).str.replace(r"\.0+$", "").to_list()
    words = _words(name)
    if not all(map(_COMPACT.fullmatch, probe)) or _IDS & {*words} or _numbers_people(words):
        return None

    # Which digits each has, and how they are read.
    cells = cells.unique(maintain_order=True)
    if not cells.str.contains(r"\.0*[1-9]").any():
        cells = cells.str.replace(r"\.0+$", "")  # of a column of floats
    shapes = cells.str.extract(f"^(?:{_COMPACT.pattern})$").str.len_chars()
    shapes = shapes * 2 + cells.str.contains(r"[+-]\d{4}$")
    if len(cells) < 2 or shapes.has_nulls():
        return None
    forms = {shape: _compact_form(cells.filter(shapes == shape)) for shape in shapes.unique()}
    alike = [times_of(cells.set(shapes != shape, None), form) for shape, form in forms.items()]
    times = alike[0]
    for more in alike[1:]:
        times = times.fill_null(more)
    if times.has_nulls() or not _are_likely(times):
        return None

    texts = cells.to_list()
    if len(forms) > 1:
        why = f"times written as {' or '.join(sorted(forms.values()))}: not modelled until all are "
        return ColumnEvidence(name, "text", f"{why}written alike")
    (form,) = forms.values()
    when = times.to_numpy().astype(np.int64)
    resolution, whole = _resolution(np.unique(when), form)
    why = f"times written as {form}{', drawn in UTC' if '%z' in form else ''}{whole}"
    why += _far_off(when, texts, "list it in missing_values")
    why += f"; {_if_not('integer')}"
    return ColumnEvidence(name, "datetime", why, format=form, resolution=resolution)


def _are_likely(times: Any) -> bool:
    """Whether times lie in some years, and in several hours if they are not whole days."""
    clock = times.dt.time().unique()
    is_one_hour = clock.dt.hour().n_unique() == 1 and len(clock) > 1
    years = times.dt.year()
    far = years.filter(~years.is_between(1900, 2100))
    is_rarely_far = len(far) <= max(1, int(_STRAY * len(times)))
    return not is_one_hour and is_rarely_far


def _compact_form(cells: Any) -> str:
    """The format of compact times of as many digits; zeros that all of them have are part of it."""
    parts = cells.str.extract_groups(r"^(\d+)(\.\d+)?([+-]\d{4})?$").struct
    digits, fractions, zones = (parts[i] for i in range(3))
    length = int(digits.str.len_chars().max())
    form = "%Y%m%d%H%M" if length == 12 else "%Y%m%d%H%M%S"
    tails = digits.str.slice(14)
    if length > 14 and tails.str.contains("^0+$").all():
        form += "0" * (length - 14)
    elif length > 14:
        form += "%f000" if length == 20 and tails.str.ends_with("000").all() else "%f"
    elif fractions.count():
        form += ".%f"
    return f"{form}%z" if zones.count() else form


def _mixed_zones(name: str, texts: Sequence[str]) -> ColumnEvidence | None:
    """Times of which some have a zone and some have none, so that they cannot be compared."""
    some = [_ZONE.sub("", text) for text in texts[:_PROBE]]
    if not any(all(_follows(text, form) for text in some) for form in _MOMENTS):
        return None
    bare = [_ZONE.sub("", text) for text in texts]
    zoned = sum(map(str.__ne__, bare, texts))
    alike = any(all(_follows(text, form) for text in bare) for form in _MOMENTS)
    if not (alike and 0 < zoned < len(texts)):
        return None
    why = f"{zoned:,} of {len(texts):,} different times have a zone, such as Z, and the others have"
    return ColumnEvidence(name, "text", f"{why} none: not modelled until all are written alike")


def _resolution(when: _Ints, form: str | None) -> tuple[str | None, str]:
    """Return the resolution of different times, and what is said of it; None where it is known.

    Their format says it, and the days of a frame do. Times are on whole hours, or the like, only if
    chance would hardly have put all of them there.
    """
    known = "day" if form is None else resolution_of(form)
    usual = _SECOND if form is None else max(RESOLUTIONS[known], _SECOND)
    name = "microsecond"
    for name, step in RESOLUTIONS.items():
        surprise = len(when) * log(step / usual)
        if (name == "day" or step <= usual or surprise > _SURPRISE) and not (when % step).any():
            break
    if name == known:
        return None, ""
    if name == "day" or RESOLUTIONS[name] <= usual:
        return name, ""
    whole = f"multiples of {name}" if " " in name else f"whole {name}s"
    return name, f", all on {whole}, and drawn so: declare another resolution if others can occur"


def _far_off(when: _Ints, texts: Sequence[str], how: str) -> str:
    """What is said of dates that are years away from all others.

    First and last days of a year stand for no date, others are typing errors: 0198 for 1980.
    """
    days = when // 86_400_000_000
    left = np.argsort(days)
    edges: list[str] = []
    odd: list[str] = []
    for end in (-1, 0) * _ODD_DATES:
        near = left[:-1] if end else left[1:]
        if len(near) == 0:
            break
        if abs(days[near[end]] - days[left[end]]) <= max(np.ptp(days[near]), _DECADE):
            continue
        day = np.datetime64(int(days[left[end]]), "D").item()
        if (day.month, day.day) in _EDGES:
            edges.append(repr(texts[left[end]]))
        elif len(near) >= _SOME:
            odd.append(repr(texts[left[end]]))
        else:
            break
        left = near
    words = ""
    if edges:
        words = f"; far from all other dates: {' and '.join(edges)}; {how} if it stands for a "
        words += "missing date, and correct the bounds"
    if odd:
        words += f"; years away from all other dates: {' and '.join(odd)}; correct the year in the "
        words += "file if it is a typing error, and the bounds"
    return words


def _padded(form: str, texts: Sequence[str]) -> str:
    """The form with or without zeros before days and hours of one digit, as most texts are."""
    if "%f" in form:
        return form
    days = form, re.sub("%([dm])", r"%-\1", form)
    forms = [*days, *(re.sub("%([HI])", r"%-\1", one) for one in days)]
    times = [datetime.strptime(text, form) for text in texts]  # noqa: DTZ007  only its form counts
    again = {one: [written_time(when, one) for when in times] for one in forms}
    return max(forms, key=lambda one: sum(map(str.__eq__, again[one], texts)))


def _follows(text: str, form: str) -> bool:
    if not re.search(r":\d\d\.\d", text):
        form = form.replace(".%f", "")  # some writers leave off zeros
    if not _outline(form).fullmatch(text):
        return False
    try:
        when = datetime.strptime(text, form)  # noqa: DTZ007  only its form counts
    except ValueError:
        return False
    return when.year >= 1000 and not ("%y" in form and re.search(r"\d{4}", text))


@cache
def _outline(form: str) -> re.Pattern[str]:
    """Return a pattern that every text of a form has, and few others.

    `strptime` keeps the patterns of five forms, and we try sixty of them: each would be compiled
    again for each column.
    """
    parts = re.split(r"(%.|\s+)", form)
    return re.compile("".join(map(_outlined, parts)))


def _outlined(part: str) -> str:
    """Return the pattern of a code, a blank or what stands between."""
    if part.startswith("%"):
        return r"[ \d]\d*" if part[1] in "dmyYHIMSfj" else ".+"
    return r"\s+" if part.isspace() else f"(?i:{re.escape(part)})"


def _fits(table: Table, name: str, form: str) -> bool:
    try:
        table.datetimes(name, form)
    except SchemaError:
        return False
    return True


def _settled(found: dict[str, ColumnEvidence]) -> dict[str, ColumnEvidence]:
    """Columns of dates where day and month may be swapped are read as the other columns are."""
    sure = [one.format or "" for one in found.values() if one.format and not one.otherwise]
    month_first = any(re.match("%-?m[-/.]", form) for form in sure)
    day_first = any(re.match("%-?d[-/.]", form) for form in sure)
    for name, one in found.items():
        if one.otherwise is None or one.format is None:
            continue
        forms = sorted((one.format, one.otherwise))  # day first, month first
        asks_month = month_first > day_first or (month_first == day_first and "%p" in forms[0])
        taken, other = reversed(forms) if asks_month else forms
        other_columns = " as in the table's other dates" if month_first != day_first else ""
        why = (
            f"{AMBIGUOUS}: no day is above 12, so they may be {taken} or {other}; read as "
            f"{taken}{other_columns}. Write the right one as format in the schema"
            f"{''.join(one.why.partition(';')[1:])}"
        )
        found[name] = replace(one, format=taken, otherwise=other, why=why)
    return found


# Words


def _words(name: str) -> list[str]:
    """The words of a column's name: of patient_id, PatientID and patientId alike."""
    parts = re.sub(r"(?<=[^\W\d_A-Z])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W\d_]+", parts.lower()) or [""]


def _words_in(table: Table, name: str) -> list[str]:
    """The words of a column's name, without a subject that is taught to more pupils than these."""
    words = _words(name)
    if words[0] == "subject":
        pupils = [one for one in table.names if _TAUGHT.match(_words(one)[0])]
        most = max((len(table.counts(one)[0]) for one in pupils), default=0)
        if most > len(table.counts(name)[0]):
            return words[1:] or [""]
    return words


def _different(count: int, what: str = "whole numbers") -> str:
    return f"{count:,} different {what}"


def _if_not(kind: str) -> str:
    return f"declare it {kind} if that is wrong"
