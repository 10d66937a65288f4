"""Ids and texts drawn anew: in their form, different where they are ids, and never of a row."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siloweave.errors import SchemaError
from siloweave.tables import Column, Schema, Table, drawn, read
from siloweave.tables.detect import evidence
from siloweave.tables.drawn import drawn_anew, drawn_as
from siloweave.tables.forms import SEMANTIC, text_form

FLAG = Column("flag", "boolean")


def values(*columns, count=50, key=0, like=None):
    """The values of the first column."""
    rows = Table.from_columns({"flag": (np.zeros(count, dtype=bool), None)})
    made = drawn_anew(rows, Schema((*columns, FLAG)), key=key, like=like)
    return made.values(columns[0].name).tolist()


def ids(form, **named):
    return values(Column("who", "id", format=form), **named)


# Texts of a regular expression

ATOMS = st.sampled_from(
    [
        "a",
        "-",
        r"\.",
        r"\d",
        r"\w",
        r"\s",
        "[0-9A-F]",
        "[a-c_-]",
        "[]x]",
        r"[\d.]",
        "(A|BC)",
        "(?:x|)",
    ]
)
REPEATS = st.sampled_from(["", "", "?", "*", "+", "{3}", "{1,2}", "{2,}", "{,2}"])
PATTERNS = st.lists(st.tuples(ATOMS, REPEATS).map("".join), min_size=1, max_size=4).map("".join)


@given(st.lists(PATTERNS, min_size=1, max_size=3).map("|".join), st.integers(0, 9))
def test_texts_match_their_pattern(pattern, key):
    form = text_form(pattern)
    numbers = drawn._numbers(form.size, 20, np.random.default_rng(key))
    texts = form.texts(numbers)
    assert all(re.fullmatch(pattern, text) for text in texts)
    assert max(map(len, texts)) <= form.longest


@pytest.mark.parametrize(
    ("pattern", "every"),
    [
        ("[ab]{1,2}", {"a", "b", "aa", "ab", "ba", "bb"}),
        ("^x(1|2[34])$", {"x1", "x23", "x24"}),
        (r"a?\$", {"$", "a$"}),
        ("(a|b)?c|d", {"c", "ac", "bc", "d"}),
        ("", {""}),
    ],
)
def test_every_number_has_a_text(pattern, every):
    form = text_form(pattern)
    texts = form.texts(np.arange(form.size)).tolist()
    assert len(texts) == len(every)
    assert set(texts) == every


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("A.B", r"from \.;"),
        ("[^0-9]", r"from \[\^;"),
        (r"\D", r"from \\D;"),
        (r"[\W]", r"from \\W;"),
        (r"(a)\1", r"from \\1;"),
        (r"\bx", r"from \\b;"),
        ("(?=a)", r"from \(\?=;"),
        ("(?P<n>a)", r"from \(\?P;"),
        ("(?i)a", r"from \(\?i;"),
        ("a*?", r"from \? behind a repeat;"),
        ("a^", r"from \^;"),
        ("a$b", r"from \$;"),
        ("([0-9]{100}){11}", "texts of more than 1,000 characters;"),
        ("(a", "no regular expression: missing"),
        ("[b-a]", "no regular expression: bad character range"),
        ("(" * 5000 + ")" * 5000, "no regular expression"),
        ("a{99999999999999999999}", "no regular expression"),
    ],
)
def test_what_cannot_be_drawn_is_named_when_it_is_declared(pattern, what):
    with pytest.raises(SchemaError, match=f"column 'who': format: .*{what}"):
        Column("who", "id", format=pattern)


# Ids


def test_ids_are_different_in_their_form_and_follow_the_key_alone():
    one = ids("P[0-9]{7}", count=2000)
    assert len(set(one)) == 2000
    assert all(re.fullmatch("P[0-9]{7}", text) for text in one)
    assert one == ids("P[0-9]{7}", count=2000)
    assert one != ids("P[0-9]{7}", count=2000, key=1)
    other = Column("more", "id", format="[0-9]{9}")
    assert one == values(Column("who", "id", format="P[0-9]{7}"), other, count=2000)


@pytest.mark.parametrize("count", [99, 100])
def test_a_form_is_used_up_to_its_last_text(count):
    found = ids("K[0-9]{2}", count=count)
    assert len(set(found)) == count
    assert all(re.fullmatch("K[0-9]{2}", text) for text in found)


@pytest.mark.parametrize(
    ("form", "wider"),
    [
        ("K[0-9]{2}", "K[0-9]{3}"),
        ("north|south", "(north|south)[0-9]{3}"),
        ("(a|a)*", "a*[0-9]{3}"),
    ],
)
def test_a_form_with_too_few_texts_gets_digits_at_its_end(form, wider):
    found = ids(form, count=1000)
    assert len(set(found)) == 1000
    assert all(re.fullmatch(wider, text) for text in found)


def test_ids_without_a_form_are_numbered_as_the_source_has_them():
    assert ids(None, count=3) == [1, 2, 3]
    assert ids(None, count=3, like=read(pd.DataFrame({"who": ["x"]}))) == ["1", "2", "3"]


def test_ids_of_digits_are_whole_numbers_where_the_source_has_them():
    like = read(pd.DataFrame({"who": [7]}))
    found = ids("[0-9]{3,4}", count=5000, like=like)
    assert all(isinstance(one, int) for one in found)
    assert len(set(found)) == 5000
    assert isinstance(ids("A[0-9]{4}", like=like)[0], str)
    assert isinstance(ids("[1-9][0-9]{24}", like=like)[0], str)  # int64 holds no such number
    assert isinstance(ids("[0-9]{3}")[0], str)
    like = read(pd.DataFrame({"who": [7.0, None]}))  # as pandas holds them where one is missing
    assert isinstance(ids("[0-9]{3}", like=like)[0], int)


# Texts


@pytest.mark.parametrize("form", [form for form in SEMANTIC if form != "name"])
def test_a_text_is_drawn_so_that_it_would_be_taken_for_the_same(form):
    name = "postcode" if form == "postcode" else "x"
    found = values(Column("x", "text", format=form), count=200)
    assert evidence(read(pd.DataFrame({name: found})))[name].format == form
    assert found == values(Column("x", "text", format=form), count=200)
    assert len(set(found)) == 200


def test_personal_texts_are_fictional():
    def drawn_of(form):
        return values(Column("x", "text", format=form), count=300)

    assert all(re.search(r"@example\.(com|net|org)$", one) for one in drawn_of("email"))
    assert all(re.match(r"https://example\.(com|net|org)/", one) for one in drawn_of("url"))
    assert all(" 555 01" in one for one in drawn_of("phone"))
    assert all(re.match(r"192\.0\.2\.|198\.51\.100\.|203\.0\.113\.", x) for x in drawn_of("ip"))
    for one in drawn_of("iban"):
        assert re.fullmatch(r"DE\d{2}0{8}\d{10}", one)  # no bank has this code
        digits = "".join(str(int(letter, 36)) for letter in one[4:] + one[:4])
        assert int(digits) % 97 == 1
    for one in drawn_of("uuid"):
        assert re.fullmatch(
            r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", one
        )


def test_texts_repeat_where_their_form_has_too_few():
    found = values(Column("x", "text", format="ip"), count=2000)
    assert len(set(found)) == 762


def test_postcodes_are_whole_numbers_where_the_source_has_them():
    like = read(pd.DataFrame({"x": [10115]}))
    found = values(Column("x", "text", format="postcode"), like=like)
    assert all(isinstance(one, int) for one in found)


def test_a_text_may_have_a_form_of_its_own():
    column = Column("x", "text", format="[0-9]{4} [A-Z]{2}")
    assert all(re.fullmatch(column.format, one) for one in values(column, count=50))
    assert drawn_as(column) == "like [0-9]{4} [A-Z]{2}"
    assert Schema.from_sdv(Schema((column,)).to_sdv(version=1))["x"] == column
    # SDV 2 has patterns of ids alone.
    assert Schema.from_sdv(Schema((column,)).to_sdv())["x"].format == column.format
    with pytest.raises(SchemaError, match=r"takes no format but email.*or a pattern.*'emial'"):
        Column("x", "text", format="emial")


def test_free_text_is_numbered_or_empty():
    assert values(Column("x", "text"), count=2) == ["text 1", "text 2"]
    rows = Table.from_columns({"flag": (np.zeros(2, dtype=bool), None)})
    schema = Schema((Column("x", "text", missing=True), FLAG))
    assert drawn_anew(rows, schema, key=0).missing("x").tolist() == [True, True]


def test_names_and_addresses_are_fakers_where_it_is_installed(monkeypatch):
    class Faker:
        def seed_instance(self, seed):
            self.rng = np.random.default_rng(seed)

        def name(self):
            return f"Ada {self.rng.integers(10**9)}"

        def street_address(self):
            return f"{self.rng.integers(10**9)} Main Street"

    name = Column("x", "text", format="name")
    assert values(name, count=2) == ["Person 1", "Person 2"]
    monkeypatch.setattr(drawn, "find_spec", lambda module: module)
    monkeypatch.setitem(sys.modules, "faker", SimpleNamespace(Faker=Faker))
    found = values(name, count=3)
    assert all(one.startswith("Ada ") for one in found)
    assert found == values(name, count=3)
    assert found != values(name, count=3, key=1)
    monkeypatch.setattr(drawn, "_FAKED", 10)
    assert len(set(values(name, count=500))) == 10
    assert values(Column("x", "text", format="address"))[0].endswith("Main Street")
