"""How values are written, as regular expressions and formats of dates: data, like `words`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product

from siloweave.tables.kinds.words import STREET_ENDINGS, STREET_WORDS

# Missing values

ERROR = re.compile(r"#(?:n/?[av]|¡?[^\W\d_/]+(?:/0)?[!?])", re.I)
"""An error of a spreadsheet, such as #DIV/0!."""
UNKNOWN_CODE = re.compile(r"(?:9+[6-9]|66+|77+|88+)(?:\.9+)?|9\.9+")
"""A number that mostly stands for no value: 99, 998, 77, 88."""
LIMIT = re.compile(r"[<>≤≥]=?\s?\d\S*(?: \S+)?|\d+\s?\+")
"""A limit of what can be measured, such as <0.5 or 90+."""


INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u2060\ufeff]")
"""A mark that no screen shows, such as a byte-order mark or a soft hyphen."""


# Numbers

_UNIT = (
    r"%|‰|[$€£¥₹]|[A-Z]{3}|k|kr\.?|Fr\.|zł|mmHg|bpm|km/h|°[CF]?|µ?[gl]|[kcm]?[gml]|km|h|min|sec|s|ms|"
    r"k?Wh?|[kMGT]?B|[km]?V|[kMG]?Hz|h?Pa|[a-z]{1,4}/[a-z]{1,4}|"
    # Signs of Chinese, Japanese and Korean, which write no space before a unit.
    r"[\u4e00-\u9fff\uac00-\ud7af]{1,3}"
)
# Any word behind a space: `UNIT` and `words.UNITS` say which of them are units.
_ANY_UNIT = r"[^\W\d_]{1,12}\.?"
# Other capital letters, such as PAT-1024, begin an identifier.
_MONEY = (
    "EUR|USD|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|ISK|PLN|CZK|HUF|RON|BGN|TRY|RUB|UAH|CAD|AUD|NZD|BRL|MXN|"
    "ARS|CLP|COP|PEN|ZAR|NGN|KES|EGP|MAD|ILS|AED|SAR|QAR|KRW|SGD|HKD|TWD|THB|IDR|MYR|PHP|VND|PKR|BDT"
)
UNIT = re.compile(
    rf"[A-Z]{{0,3}}[$€£¥₹]|{_MONEY}|°[CF]?|[CFKLVW]|[kMGT]Wh?|Wh|[kmM]V|m?Ah|mA|kVA|[kMGT]?Hz|"
    r"[hkM]?Pa|[kKMGT]i?B|[kMGT]bit|k?J|dB|Bq|Gy|m?Sv|m?IU|IE|m?Eq|mmHg|Torr|"
    r"(?:[a-zµ]{1,4}|m?IU|k?U|m?Eq)/(?:\d*[a-z]{1,4}|[dm]?L)|[dmµ]L"
)
"""A unit that has capital letters or signs; one of small letters alone is a word of any sort."""
NUMBER = re.compile(
    r"(?P<open>\()?(?P<sign>[-+\u2212]?)\s?"
    rf"(?P<prefix>(?:[A-Z]{{0,3}}[$€£¥₹]|{_MONEY}|Fr\.|kr\.?|%)\s?)?"
    r"(?P<sign2>[-+\u2212]?)(?P<body>\d[\d.,'\u2019 \u00a0\u202f]*(?<![ \u00a0\u202f])|[.,]\d+)"
    rf"(?P<behind>[-\u2212]?)(?P<suffix>\s?(?:{_UNIT})|\s{_ANY_UNIT}(?:/\d*{_ANY_UNIT})?)?"
    r"(?P<close>\))?"
)
"""A number with a sign, brackets, marks and a unit, if it has them."""
POWER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
"""A number such as 1.2E-05."""
OTHER_DIGIT = re.compile(r"(?![0-9])\d")
"""A digit of another script, such as the wide ones of Japanese files."""
NUMBER_OF_ANY_DIGITS = re.compile(r"[-+\u2212\uff0d]?\d[\d.,\u066b\u066c\uff0c\uff0e]*")
"""A number in digits of any script, with its marks of thousands and of decimals."""
FLAGGED_NUMBER = re.compile(r"([-+]?\d[\d.,]*) ?([^\W\d]{1,3}|[*†‡]{1,3})?")
"""A number with a mark behind it, such as the flags p and e of official statistics."""
DIGIT = re.compile(r"\d")
"""A digit."""
SEVERAL_NUMBERS = re.compile(
    r"\d{1,3}(?:[.,]\d+)? ?[/x×] ?\d{1,3}(?:[.,]\d+)?(?: ?mmHg)?|\d{1,2}(?:/\d{1,2}){2,3}|"
    r"(?:POINT ?)?\(?[-+]?\d{1,3}\.\d+[,; ] ?[-+]?\d{1,3}\.\d+\)?"
)
"""Several numbers in one field, such as 120/80, or the degrees of a place: 48.2083, 16.3731."""
DEGREES = re.compile(
    r"\d{1,3}(?:\.\d+)? ?°? ?(?:\d{1,2}(?:\.\d+)? ?['′’] ?(?:\d{1,2}(?:\.\d+)? ?(?:[\"″”]|'') ?)?)?"
    r"[NSEW]"
)
"""Degrees of a place with the half of the globe, such as 48.2083N or 48°12'30\"N."""
YEARS = re.compile(r"(?:19|20)\d\d ?[-/–] ?(?:19|20)?\d\d")
"""A period of years, such as 2011-2012 or 2011/12."""
COLON_PAIR = re.compile(r"\d{1,3} ?: ?\d{1,3}")
"""Two numbers with a colon between them, such as a chapter and its verse."""
FLAGS = re.compile(r"[01]{2,}")
"""Flags of 0 and 1 in one field, such as 0110."""


# Identifiers and personal data

MAC = re.compile(r"[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}", re.IGNORECASE)
"""The address of a device."""
LETTERS_AND_NUMBER = re.compile(r"(\D*[^\W\d_]\D*)(\d+)")
"""Letters with a number behind them, such as P00017."""
SHAPES: Mapping[str, re.Pattern[str]] = {
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
"""What a text is by its form alone, whatever its column is called."""
E164 = re.compile(r"\+[1-9]\d{9,14}")
"""A phone number as E.164 has it."""
PHONE = re.compile(
    r"(?:\+|00?|\()?\d[\d\s()/.\u2013-]{5,20}\d(?:\s?(?:x|ext\.?)\s?\d{1,6})?",
    re.IGNORECASE,
)
"""What may be a phone number."""
DIALLED = re.compile(
    r"[+(]|00[1-9]\d{0,2}[\s/.-]|(?:1-)?\d{3}[-.]\d{3}[-.]\d{4}(?!\d)|0[1-9](?:[ .]\d\d){4}(?!\d)|"
    # Of one country: 06 12 34 56 78, 030 1234567.
    r"0[1-9]\d{1,3}[ /-]\d{3,4} ?\d{3,4}(?!\d)"
)
"""How a phone number begins that is surely one."""
POSTCODE = re.compile(
    r"[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|\d{4} ?[A-Z]{2}|[A-Z]\d[A-Z] ?\d[A-Z]\d"
)
"""A postcode of the United Kingdom, the Netherlands or Canada."""
PERSON = re.compile(r"(?:[^\W\d_][\w.'\u2019-]*)(?:,? [^\W\d_][\w.'\u2019-]*){1,3}")
"""A name of two to four words."""
STREET = re.compile(rf"\b(?:{STREET_WORDS})\b|{STREET_ENDINGS}", re.IGNORECASE)
"""A street in an address."""


# Dates and times

DAY_NUMBER = re.compile(r"[1-6]\d{4}(?:\.\d+)?")
"""A day as a spreadsheet counts it, such as 45231: of the years 1927 to 2091."""
DURATION = re.compile(
    r"[-+\u2212]?(?:\d+ days?,? )?\d+:[0-5]\d(?::[0-5]\d)?(?:\.\d+)?|"
    r"(?:\d+ ?(?:d|days?|hours?|hrs?|h|std|mins?|m|secs?|s)\.? ?){2,}|"
    r"P(?=.*\d)(?:\d+[YMWD])*(?:T(?:\d+(?:\.\d+)?[HMS])+)?",
    re.I,
)
"""A duration, such as 25:10, -0:30, 5h 25m, or PT5H25M as ISO 8601 has it."""
DIGIT_TIME = re.compile(r"(\d{12}|\d{14}|\d{17}|\d{20})(?:\.\d{1,6})?(?:[+-]\d{4})?")
"""A time of digits alone, such as 20240131093000 of HL7."""
ZEROS = r"\.0+$"
"""What stands behind whole numbers in a column of floats."""
ZONE = re.compile(r"(?<=\d) ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)$")
"""A time zone behind a time."""
DAYS = (
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
    # As SAS and Stata write them: 31JAN2024.
    "%d%b%Y",
    # Chinese, Japanese and Korean.
    "%Y年%m月%d日",
    "%Y년 %m월 %d일",
    "%Y. %m. %d.",
    # Digits alone.
    "%Y%m%d",
)
"""Formats of days. The first that fits all dates is taken: where days and months may be swapped,
days come first, unless the table's other dates say otherwise."""
MONTHS = (
    "%Y-%m",
    "%Y/%m",
    "%m/%Y",
    "%m.%Y",
    "%b %Y",
    "%B %Y",
    "%b-%Y",
    "%b-%y",
    "%Ym%m",
    "%Y年%m月",
)
"""Formats of months."""
FIRST_DAYS = (
    "%Y-%m-01",
    "%Y/%m/01",
    "01.%m.%Y",
    "01/%m/%Y",
    "%m/01/%Y",
    "01-%m-%Y",
    "01-%b-%Y",
    "01%b%Y",
    "%Y-%m-01 00:00:00",
    "%Y-%m-01T00:00:00",
)
"""Formats of months that are written as their first day."""
RARE_DAYS = ("%Y-%d-%m", "%Y/%d/%m", "%Y.%d.%m")
"""Forms of days that are looked at last."""
YEAR_LAST_DAYS = ("%d%m%Y", "%m%d%Y")
"""Formats of days of eight digits with the year behind them, as banks write them."""
YEAR_DAYS = ("%Y-%j",)
"""Forms of days that are counted within their year."""
SHORT_DAYS = ("%y%m%d", "%d%m%y", "%m%d%y")
"""Formats of days of six digits, as many codes are written, too."""
COMPACT_MOMENTS = ("%Y%m%dT%H%M%S", "%Y%m%dT%H%M%SZ", "%Y%m%dT%H%M", "%Y%m%d %H%M%S")
"""Formats of ISO 8601 without marks, such as 20240131T093000Z."""
WEEK_DAYS = ("%G-W%V-%u", "%GW%V%u")
"""Formats of days by their ISO week, such as 2024-W05-3."""
WEEKS = ("%G-W%V", "%GW%V")
"""Formats of ISO weeks, such as 2024-W05; each stands for its Monday."""
NAMED_DAYS = (*(f"%a {day}" for day in DAYS), *(f"%a, {day}" for day in DAYS))
"""Formats of days with the name of the day before them."""
_CLOCKS = (
    "%H:%M",
    "%H:%M:%S",
    "%H:%M:%S.%f",
    "%I:%M %p",
    "%I:%M:%S %p",
    "%I:%M%p",
    "%I:%M:%S%p",
)
WORD_CLOCKS = ("%Hh%M", "%H h %M", "%H:%M Uhr", "%H.%M Uhr")
"""Formats of times of day with a letter or word."""
BARE_CLOCKS = ("%H%M", "%H.%M")
"""Formats of times of day that codes such as 0101 and 01.11 have, too."""


def _moments() -> tuple[str, ...]:
    """Return the formats of times: of a clock alone, and of days with a clock."""
    forms = [*_CLOCKS]
    for day, clock, gap in product(DAYS, _CLOCKS, (" ", ", ")):
        forms.append(f"{day}{gap}{clock}")
    # ISO 8601, where a zone may follow.
    zones = ("", "Z", " UTC", "%z", " %z")
    for gap, clock, zone in product("T ", _CLOCKS[:3], zones):
        forms.append(f"%Y-%m-%d{gap}{clock}{zone}")
    # As mail and web servers write them.
    for day, zone in product(("%a, ", ""), ("GMT", "UTC", "%z")):
        forms.append(f"{day}%d %b %Y %H:%M:%S {zone}")
    # As logs of web servers and SAS write them: 31/Jan/2024:18:05:00 +0000.
    for day, clock in product(("%d%b%Y", "%d/%b/%Y", "%d-%b-%Y"), _CLOCKS[:3]):
        forms += [f"{day}:{clock}", f"{day}:{clock} %z"]
    # As Unix and JavaScript write them, and with a comma before the fraction of a second.
    forms += [
        "%a %b %d %H:%M:%S %Y",
        "%a %b %d %H:%M:%S UTC %Y",
        "%a %b %d %Y %H:%M:%S",
    ]
    forms += ["%Y-%m-%d %H:%M:%S,%f", "%Y-%m-%dT%H:%M:%S,%f"]
    return tuple(forms)


MOMENTS = _moments()
"""Formats of times of day, with a day or without."""
YEAR = re.compile(r"(?:19|20)\d\d")
"""A year with four digits."""
TIME_MARKS = re.compile(r"[\w\s./:,+()-]+")
"""A text with no other marks than dates and times have."""
ZONE_NAME = re.compile(r"\[[A-Za-z_/]+\]$")
"""The name of a time zone behind a time, as Java writes it."""
EDGES = ((1, 1), (12, 30), (12, 31))
"""Months and days of years that stand for no date, such as 9999-12-31."""
CHARACTER_CLASSES = (
    "[0-9]",
    "[A-Z]",
    "[a-z]",
    "[0-9a-f]",
    "[0-9A-F]",
    "[A-Z0-9]",
    "[a-z0-9]",
    "[A-Za-z0-9]",
)
"""Classes of characters in the form of an identifier, narrow ones first."""
