"""What a coordinator expects of an answer, and how it names a party that says something else."""

import numpy as np
import pytest

from siloweave.errors import DataError, WireError
from siloweave.federation import masking, messages
from siloweave.federation.expected import FLOATS, MOST_ROWS, WHOLE, WORDS, CheckedReply
from siloweave.federation.messages import Array

SAID = CheckedReply("clinic")


def refused(words, method, *args, **named):
    with pytest.raises(WireError, match=rf"^party 'clinic'.*{words}"):
        getattr(SAID, method)(*args, **named)


def test_numbers_within_bounds_are_returned():
    assert SAID.number("rows", 1, least=1, most=1) == 1
    assert SAID.number("loss", -0.5) == -0.5
    assert SAID.number("rows", -MOST_ROWS, least=-MOST_ROWS) == -MOST_ROWS


@pytest.mark.parametrize(
    ("value", "bounds", "words"),
    [
        (0, {"least": 1}, "sent rows = 0; it must be 1 or more"),
        (10**15, {"least": 1, "most": 9}, "sent rows = 1,000,000,000,000,000; .* from 1 to 9"),
        (10, {"most": 9}, "it must be 9 or less"),
        (np.nan, {}, "sent rows = nan; it must be a finite number"),
        (np.inf, {"least": 0}, "sent rows = inf"),
        (np.nan, {"least": 0, "most": 1}, "sent rows = nan"),
    ],
)
def test_other_numbers_are_refused(value, bounds, words):
    refused(words, "number", "rows", value, **bounds)


def test_arrays_are_returned_as_they_are():
    values = np.arange(6).reshape(2, 3)
    for dtypes in (FLOATS, WHOLE):
        for dtype in dtypes:
            found = SAID.array("sums", Array.of(values, dtype), dtypes, (2, None), least=0, most=5)
            np.testing.assert_array_equal(found, values)
    assert (
        SAID.array("sums", Array.of(np.zeros((0, 2)), "<f4"), FLOATS, (None, 2), least=1).size == 0
    )


@pytest.mark.parametrize(
    ("values", "dtype", "expected", "words"),
    [
        ([1.0], "<f4", (WORDS, (1,)), "sent sums of type <f4; it must be <u4"),
        ([1], "<i8", (WORDS, (1,)), "sent sums of type <i8"),
        ([1], "<u4", (FLOATS, (1,)), "it must be <f2 or <f4 or <f8"),
        ([1, 2], "<u4", (WORDS, (1,)), r"sums of shape \(2,\); it must be \(1\)"),
        ([[1, 2]], "<u4", (WORDS, (None,)), r"sums of shape \(1, 2\); it must be \(any\)"),
        ([[1, 2]], "<u4", (WORDS, (None, 3)), r"it must be \(any, 3\)"),
        ([1, np.nan], "<f8", (FLOATS, (2,)), "not finite"),
        ([np.inf], "<f2", (FLOATS, (1,)), "not finite"),
    ],
)
def test_other_arrays_are_refused(values, dtype, expected, words):
    refused(words, "array", "sums", Array.of(np.array(values), dtype), *expected)


def test_arrays_out_of_bounds_are_refused():
    classes, expected = Array.of(np.array([0, -1, 7]), "<i4"), (WHOLE, (3,))
    words = "sent classes with the value = -1; it must be from 0 to 9"
    refused(words, "array", "classes", classes, *expected, least=0, most=9)
    words = "the value = 7; it must be from -1 to 6"
    refused(words, "array", "classes", classes, *expected, least=-1, most=6)


def test_lists_are_returned_or_refused():
    assert SAID.items("columns", ("a", "b"), count=2, among=("b", "a")) == ("a", "b")
    assert SAID.items("columns", ()) == ()
    refused("sent 1 columns; it must be 2", "items", "columns", ("a",), count=2)
    refused("sent columns with 'z'; it must be among 'a', 'b'", "items", "columns", ("a", "z"),
            among=("a", "b"))  # fmt: skip


def test_json_is_read_or_refused(monkeypatch):
    assert SAID.json("schema", "[1]", len) == 3

    def fails(data):
        raise DataError("no schema of mine")

    refused("sent schema that cannot be read: no schema of mine", "json", "schema", b"[]", fails)
    monkeypatch.setattr(messages, "MAX_ITEMS", 3)
    refused("JSON of 4 items", "json", "schema", b"[1,2,3]", len)


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytes(32), b"\x01" + bytes(31)])
def test_a_key_that_gives_no_secret_is_refused(key):
    refused("key", "key", "key", key)


def test_a_key_is_returned():
    key = masking.public_key(masking.new_secret())
    assert SAID.key("key", key) == key
