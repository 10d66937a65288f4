"""What the command line reads in `--given`."""

import numpy as np
import pytest

from siloweave.app.sample import numbered_ids, parse_given
from siloweave.errors import InputError
from siloweave.tables import Column, Schema

SCHEMA = Schema(
    (
        Column("weight", "continuous", low=0, high=2000, decimals=1, format="1.234,5 kg"),
        Column("size", "continuous", low=0, high=2000, decimals=1),
        Column("fee", "integer", low=0, high=9000, format="$1,234"),
        Column("born", "datetime", low="1900-01-01", high="2020-12-31", format="%d.%m.%Y"),
        Column("seen", "datetime", low="1900-01-01", high="2020-12-31"),
        Column("adult", "boolean"),
    )
).with_fallbacks()
DAY = np.datetime64("1980-04-03", "us")


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("weight=1.234,5 kg", 1234.5),
        ("weight=1.234 kg", 1234.0),
        ("weight=70.5", 70.5),
        ("size=70.5", 70.5),
        ("fee=$1,234", 1234),
        ("fee=1234", 1234),
        ("born=03.04.1980", DAY),
        ("born=1980-04-03", DAY),
        ("seen=1980-04-03", DAY),
        ("adult=True", True),
    ],
)
def test_a_value_is_written_plainly_or_as_the_column_writes_it(item, value):
    (found,) = parse_given([item], SCHEMA).values()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("weight=abc", "must be a number, or written like 1.234,5 kg."),
        ("weight=9.999,0 kg", "must lie between 0.0 and 2000.0"),
        ("size=70,5", "must be a number."),
        ("size=nan", "must lie between 0.0 and 2000.0"),
        ("fee=12.5", "must be a whole number, or written like $1,234."),
        ("born=04/03/1980", "must be an ISO-8601 time, or written like %d.%m.%Y."),
        ("adult=yes", "must be true or false."),
    ],
)
def test_what_is_neither_is_refused_with_both_ways(item, problem):
    with pytest.raises(InputError) as error:
        parse_given([item], SCHEMA)
    assert problem in str(error.value)


def named(*columns):
    return Schema(tuple(Column(name, "categorical", values) for name, values in columns))


def test_names_and_values_may_have_an_equals_sign():
    schema = named(("a=b", ("3", "c=4")), ("a", ("x", "b=9")))
    assert parse_given(["a=b=3"], schema) == {"a=b": "3"}
    assert parse_given(["a=b=c=4"], schema) == {"a=b": "c=4"}
    assert parse_given(["a=b=9", "a=b=3"], schema) == {"a": "b=9", "a=b": "3"}


def test_a_text_that_fits_two_columns_is_refused():
    with pytest.raises(InputError, match="'a=b' and 'a'"):
        parse_given(["a=b=3"], named(("a=b", ("3",)), ("a", ("b=3",))))


def test_a_value_that_fits_no_column_is_refused_for_the_longest_name():
    with pytest.raises(InputError, match="not a category of 'a=b'"):
        parse_given(["a=b=7"], named(("a=b", ("3",)), ("a", ("x",))))


def test_ids_that_count_from_one_are_named():
    schema = Schema((Column("who", "id"), Column("code", "id", format="P[0-9]{7}")))
    assert "who counts from 1" in numbered_ids(schema)
    assert numbered_ids(schema.select(["code"])) == ""
