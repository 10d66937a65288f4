from datetime import date, datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siloweave.errors import DataError, InputError
from siloweave.tables.ids import IdPolicy, check_rules, id_texts, normal_ids, shape_of
from siloweave.tables.read import read
from siloweave.tables.table import Table


def ids_of(values, *rules, **settings):
    found = normal_ids(read(pl.DataFrame({"id": values})), ["id"], rules={"id": rules}, **settings)
    return [value[4:].decode() for value in found.values]


@pytest.mark.parametrize(
    ("rules", "given", "wanted"),
    [
        ([], " Ab-1 ", " Ab-1 "),
        (["strip"], " Ab-1\t", "Ab-1"),
        (["casefold"], "STRASSE ＡＢ", "strasse ab"),
        (["casefold"], "straße", "strasse"),
        (["digits"], "+49 (30) 12-3", "4930123"),
        (["digits"], "٣٤", "34"),
        (["letters-digits"], "a.b-C 1_2", "abC12"),
        (["no-leading-zeros"], "000120", "120"),
        (["no-leading-zeros"], "000", "0"),
        (["date"], "2020-01-31T23:59:00", "2020-01-31"),
        (["date:%d/%m/%y"], "31/01/20", "2020-01-31"),
        (["date:%d/%m/%y"], "2020-01-31", "2020-01-31"),
        (["letters-digits", "casefold", "no-leading-zeros"], "00A-7", "a7"),
        ([], "e\u0301", "\u00e9"),
    ],
    ids=str,
)
def test_rules(rules, given, wanted):
    assert ids_of([given], *rules) == [wanted]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([7, 2**53 + 1], ["7", "9007199254740993"]),
        ([7.0, None, 8.0], ["7", "8"]),
        ([date(2020, 1, 31)], ["2020-01-31"]),
        ([datetime(2020, 1, 31, 4, 5, 6)], ["2020-01-31T04:05:06"]),  # noqa: DTZ001
    ],
    ids=["whole", "floats", "days", "moments"],
)
def test_types_have_one_text(values, wanted):
    assert ids_of(values, policy=IdPolicy(missing="drop")) == wanted


def test_numbers_and_their_texts_are_one_id():
    assert ids_of([7, 12]) == ids_of(["7", "12"]) != ids_of(["07", "12"])


MIDNIGHT, MORNING = datetime(2020, 1, 31), datetime(2020, 1, 31, 4, 5, 6, 70_000)  # noqa: DTZ001


@pytest.mark.parametrize(
    "column",
    [
        [MIDNIGHT, MORNING],
        ["2020-01-31", "2020-01-31T04:05:06.07"],
        ["2020-01-31 00:00:00", "2020-01-31 04:05:06.070"],
        ["2020-01-31T00:00", "2020-01-31T04:05:06.070000000"],
    ],
    ids=["moments", "short", "spaces", "zeros"],
)
def test_an_instant_is_one_id_however_its_column_is_written(column):
    both, day = ids_of(column), ids_of(column[:1])
    assert both == ids_of([MIDNIGHT, MORNING])
    assert day == both[:1] == ids_of([date(2020, 1, 31)])
    assert both[0] != both[1]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2020-01-31T00:00:00Z", "2020-01-31"),
        ("2020-02-01T01:30:00.500+01:00", "2020-02-01T00:30:00.5"),
        ("2020-01-31 23:00-02:00", "2020-02-01T01:00:00"),
    ],
)
def test_a_moment_with_a_zone_is_that_moment_in_utc(text, same):
    assert ids_of([text]) == ids_of([same])


def test_floats_whose_last_digits_are_lost_name_nobody():
    numbers = np.array([1.0, 2.0**53])
    with pytest.raises(DataError, match=r"2\*\*53 and more, whose last digits are lost"):
        normal_ids(Table.from_columns({"id": (numbers, None)}), ["id"])
    exact = Table.from_columns({"id": (np.array([1, 2**53 + 1]), None)})
    assert id_texts(exact, "id") == ["1", str(2**53 + 1)]


@pytest.mark.parametrize("text", ["2020-01-31T", "2020-13-31T00:00:00Z", "A2020-01-31T00:00", "١"])
def test_text_that_is_no_plain_moment_stays(text):
    assert ids_of([text]) == [text]


@given(
    st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), min_size=1, unique=True),
)
@settings(max_examples=40, deadline=None)
def test_parts_of_an_id_stay_apart(pairs):
    table = read(pl.DataFrame({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}))
    found = normal_ids(table, ["a", "b"], policy=IdPolicy("drop", "drop"))
    same = {}
    for a, b in zip(*(ids_of_column(table, name) for name in "ab"), strict=True):
        same[a, b] = same.get((a, b), 0) + bool(a and b)
    assert len(found.values) == sum(count == 1 for count in same.values())


def ids_of_column(table, name):
    from unicodedata import normalize

    return [normalize("NFC", one) for one in table.values(name)]


def test_what_is_empty_after_rules_is_missing():
    with pytest.raises(DataError, match="1 of 2 rows have no id in 'id'"):
        ids_of(["n/a", "7"], "digits")
    assert ids_of(["n/a", "7"], "digits", policy=IdPolicy(missing="drop")) == ["7"]


def test_rows_point_into_the_table():
    table = read(pl.DataFrame({"id": [5, None, 6, 5, 7]}))
    found = normal_ids(table, ["id"], policy=IdPolicy("drop", "drop"))
    assert found.rows.tolist() == [2, 4]
    assert (found.missing, found.duplicated) == (1, 2)
    first = normal_ids(table, ["id"], policy=IdPolicy("drop", "first"))
    assert first.rows.tolist() == [0, 2, 4]
    assert (first.missing, first.duplicated) == (1, 1)


def test_errors_name_rows_and_never_an_id():
    with pytest.raises(DataError, match=r"4 of 5 rows share.*rows 0, 1, 3, …, from 0") as error:
        ids_of(["secret", "secret", "b", "x", "x"])
    assert "secret" not in str(error.value)
    with pytest.raises(DataError, match="not an ISO-8601 date") as error:
        ids_of(["secret"], "date")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("rule", ["", "upper", "date:", "Strip"])
def test_an_unknown_rule_is_refused(rule):
    with pytest.raises(InputError, match="is unknown; use strip"):
        check_rules(["id"], {"id": [rule]})


def test_shapes_show_no_id():
    table = read(pl.DataFrame({"a": ["AB-1", "cd 22"], "b": ["007", "12"]}))
    shape = shape_of(normal_ids(table, ["a", "b"]).values)
    assert shape == (
        "4 to 5 characters: capitals, small letters, digits, white space, punctuation; "
        "2 to 3 characters: digits, some with leading zeros"
    )
    assert shape_of(()) == "no ids"
    digits = Table.from_columns({"a": (["0", "7"], None)})
    assert shape_of(normal_ids(digits, ["a"]).values) == "1 character: digits"
