"""Every rule by which a kind is proposed has a column for which it decides, and is on a page."""

import re
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from siloweave.tables import Schema, read
from siloweave.tables.detect import evidence
from siloweave.tables.kinds import words
from siloweave.tables.kinds.names import words_of
from siloweave.tables.kinds.rule import Rule
from siloweave.tables.kinds.rules import FAMILIES

ROWS = 240
RNG = np.random.default_rng(7)
WIDE = ("\uff11", "\uff12", "\uff13")  # 1, 2 and 3 as wide as other Japanese signs
START = datetime(2019, 1, 1, tzinfo=UTC)


def whole(low, high, rows=ROWS):
    return RNG.integers(low, high, rows)


def unique(low, high):
    return low + RNG.choice(high - low, ROWS, replace=False)


def pick(values, shares=None):
    return RNG.choice(np.array(values), ROWS, p=shares)


def texts(form, *columns):
    return [form.format(*row) for row in zip(*columns, strict=True)]


def moments(form, step=1.0, rows=ROWS):
    """Times of four years, in steps of so many days."""
    days = step * RNG.integers(0, int(1460 / step), rows)
    return [(START + timedelta(days=float(day))).strftime(form) for day in days]


def letters():
    """Words of eight to eleven letters, one for each row."""
    return ["".join(RNG.choice([*"abcdefgh"], 8 + row % 4)) for row in range(ROWS)]


def notes():
    """Texts of eight words."""
    return [" ".join(RNG.choice(NOTES, 8)) for _ in range(ROWS)]


def table_of(name, values):
    return read(pd.DataFrame({name: values}))


FIRST = ("Anna", "Ben", "Carla", "David", "Elif", "Fatou", "Georg", "Hana", "Ivan", "Julia")
FIRST += ("Kofi", "Lea", "Mehmet", "Nina", "Omar", "Paula", "Quentin", "Rosa", "Sven", "Tara")
LAST = ("Abel", "Costa", "Dubois", "Fischer", "Garcia", "Ito", "Jansen", "Keller", "Lopez", "Novak")
LAST += ("Okafor", "Petrov", "Quinn", "Rossi", "Schmidt", "Tanaka", "Vogel", "Weber", "Young")
PEOPLE = [f"{first} {last}" for first in FIRST for last in LAST]
NOTES = ("patient", "reports", "mild", "pain", "after", "second", "visit", "no", "change", "since")

SIX_DIGITS = unique(10**5, 10**6)[: ROWS // 3]

#: Family and rule -> a column's name and its values, in a frame.
FRAMES = {
    "Types of a frame or a file": {
        "empty column": ("x", [None] * ROWS),
        "categorical type": ("x", pd.Categorical(pick(["a", "b"]))),
        "booleans": ("x", whole(0, 2).astype(bool)),
        "datetimes": ("x", pd.Timestamp("2019-01-01") + pd.to_timedelta(whole(0, 10**8), unit="s")),
        "durations of whole units": ("x", pd.to_timedelta(whole(0, 99), unit="D")),
        "durations": ("x", pd.to_timedelta(whole(0, 99999), unit="ms")),
    },
    "Texts of two words": {
        "marks of missing values alone": ("x", pick(["-", "?"])),
        "no and yes": ("x", pick(["Nein", "Ja"])),
    },
    "Times of digits": {
        "times of digits in several forms": (
            "x", [*moments("%Y%m%d%H%M", 0.01, 120), *moments("%Y%m%d%H%M%S", 0.01, 120)],
        ),
        "times of digits": ("x", moments("%Y%m%d%H%M%S", 0.01)),
    },
    "Numbers as text": {
        "long digits as text": ("x", [f"1{n:024d}" for n in unique(0, 10**6)]),
        "0 and 1 as text": ("x", pick(["0", "1"])),
        "whole numbers with marks or a unit": ("x", texts("{} kg", whole(1, 90))),
        "numbers with decimals as text": ("x", texts("{:.2f}", RNG.normal(70, 9, ROWS))),
        "numbers with commas and points": (
            "x", [*texts("{},5", whole(0, 99, 120)), *texts("{}.5", whole(0, 99, 120))],
        ),
    },
    "Dates and times as text": {
        "dates and times": ("x", moments("%d.%m.%Y")),
        "times with and without a zone": (
            "x", [*moments("%Y-%m-%dT%H:%M", 0.01, 120), *moments("%Y-%m-%dT%H:%MZ", 0.01, 120)],
        ),
        "days with and without a time": (
            "x", [*moments("%Y-%m-%d", 1.0, 120), *moments("%Y-%m-%d %H:%M:%S", 0.01, 120)],
        ),
    },
    "Texts that are not modelled": {
        "device addresses": ("x", texts("00:1b:63:84:{:02x}:{:02x}", whole(0, 256), whole(0, 256))),
        "email addresses": ("x", texts("user{}@example.org", unique(0, 999))),
        "URLs": ("x", texts("https://example.org/{}", whole(0, 999))),
        "UUIDs": ("x", texts("6fa459ea-ee8a-3ca4-894e-{:012x}", whole(0, 10**9))),
        "IP addresses": ("x", texts("10.0.{}.{}", whole(0, 256), whole(0, 256))),
        "IBANs": ("x", texts("DE8937040044{}", unique(10**9, 2 * 10**9))),
        "phone numbers": ("x", texts("+43 660 {}", unique(10**6, 10**7))),
        "postcodes": ("x", texts("SW{} {}AB", whole(1, 10), whole(1, 10))),
        "postal addresses": ("x", texts("{} Oak Avenue", unique(1, 999))),
        "names by the column's name": ("surname", [f"{n}son" for n in np.resize(FIRST, ROWS)]),
        "names by their form": ("x", pick(PEOPLE)),
        "several numbers in one field": ("x", texts("{}/{}", whole(90, 180), whole(50, 110))),
        "numbers with a power of ten as text": ("x", texts("{:.2e}", 1.1 ** np.arange(ROWS))),
        "digits of another script": ("x", [*texts("{}", whole(10, 999)), "".join(WIDE)]),
        "durations as text": ("x", texts("{}h {}min", whole(0, 9), whole(0, 60))),
        "degrees of a place": ("x", texts("{:.4f}N", RNG.normal(48, 1, ROWS))),
        "flags in one field": ("x", texts("{:08b}", whole(0, 256))),
        "dates beside day numbers": (
            "x", [*moments("%Y-%m-%d", rows=120), *whole(43000, 45000, rows=120)],
        ),
        "dates in other forms": (
            "x", [*moments("%d/%m/%Y", rows=120), *moments("%Y-%m-%d", rows=120)],
        ),
        "unique ids": ("x", texts("P{:07d}", unique(0, 10**6))),
        "unique texts": ("x", letters()),
        "person ids by the column's name": ("patient_id", pick(["Pa", "Pb", "Pc", "Pd"])),
        "repeated ids by the column's name": ("loan_id", texts("{}-A", whole(0, 80))),
        "repeated letters with a number": ("x", texts("P{:05d}", whole(0, 80))),
        "repeated texts of one shape": ("x", texts("{}-A", np.repeat(SIX_DIGITS, 3))),
        "free text": ("x", [*notes()[:160], *["no change since the last visit"] * 80]),
        "texts of one row each": ("x", [*letters()[:160], *["none of it"] * 80]),
    },
    "Categories": {
        "one text": ("x", ["Austria"] * ROWS),
        "no and yes in several words": ("x", pick(["True", "yes", "1", "no", "False"])),
        "categories in several spellings": ("x", pick(["low", "Low", "high"])),
        "categories": ("x", pick(["low", "middle", "high"])),
    },
    "Numbers with decimals": {
        "one number with decimals": ("x", [2.5] * ROWS),
        "few codes with decimals": ("icd9", pick([250.1, 401.9, 414.5])),
        "many codes with decimals": ("icd9", (unique(1001, 9999) / 10).round(1)),
        "few numbers with decimals": ("x", pick([0.5, 1.5, 2.25])),
        "times of a spreadsheet": ("Datum", RNG.uniform(43_000, 45_000, ROWS).round(4)),
        "seconds with decimals": ("x", RNG.uniform(1.5e9, 1.7e9, ROWS).round(3)),
        "numbers with decimals": ("x", RNG.normal(70, 9, ROWS).round(1)),
    },
    "Whole numbers": {
        "one whole number": ("x", [3] * ROWS),
        "0 and 1": ("x", whole(0, 2)),
        "days and months": ("x", [int(day) for day in moments("%Y%m%d")]),
        "seconds from 1970 on": ("created_at", unique(1_500_000_000, 1_700_000_000)),
        "many postcodes": ("zip", unique(10_000, 99_999)),
        "many codes": ("snomed", unique(10**6, 10**9)),
        "few postcodes": ("zip", pick([8010, 8020, 8041])),
        "unique ids by the column's name": ("customer_id", unique(0, 999)),
        "long digits": ("x", unique(2**62, 2**62 + 10**6)),
        "person ids by the column's name": ("patient_id", whole(1, 30)),
        "unique numbers of ten digits": ("x", [*unique(10**9, 9 * 10**9)[1:], 10**9 + 1]),
        "repeated ids by the column's name": ("loan_id", whole(1000, 1099)),
        "repeated evenly spread numbers": ("x", np.repeat(np.arange(80) * 11_173 + 100_000, 3)),
        "numbers without a gap": ("x", RNG.permutation(ROWS)),
        "rising numbers": ("x", np.cumsum(whole(1, 4))),
        "numbers that chance would have repeated": ("x", RNG.permutation(ROWS + 20)[:ROWS]),
        "evenly spread numbers": ("x", RNG.permutation(np.arange(ROWS) * 370 + 10_000)),
        "two codes": ("x", whole(1, 3)),
        "codes by the column's name": ("region", whole(1, 6)),
        "scale with codes of a missing value": (
            "x", pick([*range(11), 77, 88], [0.07] * 11 + [0.115] * 2),
        ),
        "codes with gaps": ("x", pick([1, 3, 6, 11, 18], [0.4, 0.2, 0.2, 0.1, 0.1])),
        "few whole numbers": ("x", RNG.poisson(4, ROWS)),
        "counters": ("x", np.cumsum(whole(55, 66))),
        "days of a spreadsheet": ("Datum", whole(43_000, 45_000)),
        "whole numbers": ("x", RNG.normal(500, 150, ROWS).astype(int)),
    },
}  # fmt: skip

#: What no frame of one column shows.
ELSEWHERE = {
    ("Texts of two words", "true and false in several spellings"),
    ("Whole numbers", "codes without order"),
}
RULES = {(family, rule.name): rule for family, rules in FAMILIES.items() for rule in rules}
EXAMPLES = {(family, rule): FRAMES[family][rule] for family in FRAMES for rule in FRAMES[family]}


@pytest.fixture
def deciding(monkeypatch):
    """The rules that were followed, in order."""
    rules = []
    judge = Rule.judge

    def watched(rule, column):
        rules.append(rule)
        return judge(rule, column)

    monkeypatch.setattr(Rule, "judge", watched)
    return rules


def check(table, name, key, deciding):
    column = evidence(table)[name]
    assert deciding[-1] is RULES[key], (deciding[-1].name, column.why)
    assert column.kind == RULES[key].kind
    # What it says is what a schema says, too.
    assert Schema.detect(table)[name].why.startswith(column.why)


@pytest.mark.parametrize("key", EXAMPLES, ids=": ".join)
def test_a_rule_decides_for_its_column(key, deciding):
    name, values = EXAMPLES[key]
    check(table_of(name, values), name, key, deciding)


def test_true_and_false_in_several_spellings_of_a_csv(tmp_path, deciding):
    flags = pick(["True", "TRUE", "false", "NA"]).tolist()
    path = tmp_path / "table.csv"
    pd.DataFrame({"x": flags}).to_csv(path, index=False)
    check(read(path), "x", ("Texts of two words", "true and false in several spellings"), deciding)
    # A frame holds them as they are spelled.
    assert evidence(table_of("x", flags))["x"].kind == "categorical"


def test_codes_without_order_are_known_by_another_column(deciding):
    """Without it they are few numbers."""
    codes = whole(1, 7)
    effect = np.array([0, 9, 2, 7, 1, 8, 3])[codes]
    table = read(pd.DataFrame({"x": codes, "y": effect + RNG.normal(size=ROWS).round(2)}))
    assert evidence(table)["x"].kind == "categorical"
    assert RULES["Whole numbers", "codes without order"] in deciding
    check(table_of("x", codes), "x", ("Whole numbers", "few whole numbers"), deciding)


def test_all_rules_have_a_name_of_their_own_and_an_example():
    assert set(RULES) == set(EXAMPLES) | ELSEWHERE
    assert len(RULES) == sum(map(len, FAMILIES.values()))


def test_the_page_of_rules_is_what_the_tables_give(monkeypatch):
    root = Path(__file__).parent.parent.parent
    monkeypatch.syspath_prepend(str(root / "tools"))
    kinds_page = import_module("kinds_page")
    assert kinds_page.PAGE.read_text("utf-8") == kinds_page.page(), (
        "the rules changed: run python tools/kinds_page.py"
    )


#: Lists of words that are looked for in names of columns.
OF_NAMES = {
    name: value
    for name, value in vars(words).items()
    if isinstance(value, frozenset) and "MISSING" not in name
}


@pytest.mark.parametrize("name", OF_NAMES)
def test_a_word_of_a_list_can_be_found_in_a_name(name):
    assert OF_NAMES[name]
    assert [word for word in OF_NAMES[name] if words_of(f"{word}_7") != [word]] == []


def test_marks_and_pairs_are_in_small_letters():
    assert [mark for mark in words.MISSING if mark != mark.lower() or len(mark) >= 10] == []
    assert words.MAYBE_MISSING <= words.MISSING
    pairs = words.NO_AND_YES
    assert [pair for pair in pairs if pair != tuple(word.lower() for word in pair)] == []
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize("name", ["NO_ANSWER", "PEOPLE", "CASES", "PUPILS", "ID_ENDINGS"])
def test_parts_of_words_are_regular_expressions_that_match_no_empty_text(name):
    assert not re.search(getattr(words, name), "")
