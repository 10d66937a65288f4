import json
from datetime import datetime

import msgspec
import pandas as pd
import polars as pl
import pytest

from siloweave import Unique
from siloweave.datasets import adult, adult_schema
from siloweave.errors import DataError, SchemaError
from siloweave.tables import Column, Schema


def mixed():
    return Schema(
        (
            Column("who", "id"),
            Column("city", "categorical", ("a", "b", "rest"), other="rest", missing=True),
            Column("grade", "categorical", (3, 1, 2)),
            Column("ratio", "categorical", (0.5, 1.0)),
            Column("flagged", "categorical", (True, False)),
            Column("age", "integer", low=0, high=120),
            Column("height", "continuous", low=0.5, high=2.5, missing=True),
            Column("ill", "boolean", missing=True),
            Column("born", "datetime", low="1900-01-01", high="2024-12-31", format="%d.%m.%Y"),
            Column("open", "integer"),
        )
    )


def test_json_round_trip_keeps_types():
    schema = mixed()
    again = Schema.from_json(schema.to_json())
    assert again == schema
    assert again.digest() == schema.digest()
    assert [type(v) for v in again["ratio"].categories] == [float, float]
    assert [type(v) for v in again["flagged"].categories] == [bool, bool]
    assert json.loads(schema.to_json())["version"] == 1


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"kind": "number"}, "kind='number'"),
        ({"kind": "categorical"}, "categories is empty"),
        ({"kind": "categorical", "categories": ("a", "b", "a")}, "repeat 'a'"),
        ({"kind": "categorical", "categories": ("a", 1)}, "mix"),
        ({"kind": "categorical", "categories": (True, 1)}, "mix"),
        ({"kind": "categorical", "categories": (1.0, float("nan"))}, "finite"),
        ({"kind": "categorical", "categories": ("a",), "other": "b"}, "other='b'"),
        ({"kind": "categorical", "categories": (1, 2), "other": True}, "other=True"),
        ({"kind": "integer", "categories": ("a",)}, "takes no categories"),
        ({"kind": "integer", "low": 5, "high": 4}, "low=5 is above high=4"),
        ({"kind": "integer", "low": 0.5}, "whole number"),
        ({"kind": "integer", "low": 2**62}, "below 2"),
        ({"kind": "integer", "low": "0"}, "must be a number"),
        ({"kind": "integer", "low": True}, "must be a number"),
        ({"kind": "continuous", "high": float("inf")}, "finite"),
        ({"kind": "boolean", "low": 0}, "takes no low"),
        ({"kind": "datetime", "low": 5}, "ISO-8601"),
        ({"kind": "datetime", "low": "yesterday"}, "ISO-8601"),
        ({"kind": "datetime", "low": "2024-01-01T00:00:00+02:00"}, "time zone"),
        ({"kind": "datetime", "low": "2024-01-02", "high": "2024-01-01"}, "above"),
        ({"kind": "integer", "format": "%Y"}, "format"),
        ({"kind": "integer", "from_data": ("mood",)}, "mood"),
    ],
)
def test_contradictions_are_refused_by_name(facts, words):
    with pytest.raises(SchemaError, match="column 'x'") as caught:
        Column("x", **facts)
    assert words in str(caught.value)


def test_a_constant_column_is_allowed():
    assert Column("x", "integer", low=3, high=3).low == 3


def test_schema_names():
    with pytest.raises(SchemaError, match="repeat 'a'"):
        Schema((Column("a", "id"), Column("a", "id")))
    with pytest.raises(SchemaError, match="at least one"):
        Schema(())
    with pytest.raises(SchemaError, match="a name"):
        Column("", "id")
    with pytest.raises(SchemaError, match="no column 'b'"):
        Schema((Column("a", "id"),))["b"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": "siloweave-schema", "version": 9, "columns": [{"name": "a", "kind": "id"}]}',
        '{"format": "siloweave-schema", "version": 1, "columns": [{"name": "a", "kind": "sex"}]}',
        '{"format": "siloweave-schema", "version": 1, "columns": []}',
    ],
)
def test_broken_json_is_a_schema_error(text):
    with pytest.raises(SchemaError):
        Schema.from_json(text)


@pytest.mark.parametrize(
    ("key", "where"),
    [
        ("constraint", ()),
        ("lo", ("columns", 0)),
        ("missing_value", ("columns", 0)),
        ("strictly", ("constraints", 0)),
    ],
)
def test_a_key_that_a_schema_file_does_not_know_is_refused_not_ignored(key, where):
    schema = Schema((Column("a", "integer", low=0, high=9),), (Unique(("a",)),))
    file = json.loads(schema.to_json())
    part = file
    for step in where:
        part = part[step]
    part[key] = []
    with pytest.raises(SchemaError, match=f"unknown field `{key}`"):
        Schema.from_json(json.dumps(file))


def test_an_unknown_kind_is_an_error_that_lists_those_there_are():
    schema = Schema((Column("a", "integer", low=0, high=9),), (Unique(("a",)),)).to_json()
    with pytest.raises(SchemaError, match=r"'integr' .* use one of categorical, integer, .*, text"):
        Schema.from_json(schema.replace('"integer"', '"integr"'))
    with pytest.raises(SchemaError, match=r"'only' .* use one of fixed_combinations, .*, unique,"):
        Schema.from_json(schema.replace('"unique"', '"only"'))


def test_differences_name_the_columns():
    first = mixed()
    changed = [
        msgspec.structs.replace(first["city"], categories=("a", "c", "rest")),
        msgspec.structs.replace(first["age"], high=99),
        Column("new", "boolean"),
    ]
    second = Schema(tuple(changed))
    lines = "\n".join(first.select(("city", "age", "ill")).differences(second))
    assert "'city': categories only in the first: ['b']; only in the second: ['c']" in lines
    assert "'age': high 120 against 99" in lines
    assert "'ill': only in the first" in lines
    assert "'new': only in the second" in lines
    assert first.differences(first) == []
    swapped = first.select(tuple(reversed(first.names)))
    assert "order" in first.differences(swapped)[0]
    assert swapped.digest() != first.digest()


def test_where_a_fact_came_from_is_no_difference():
    detected = Schema.detect(adult())
    assert detected.declared().differences(detected) == []
    assert detected.declared().digest() == detected.digest()
    assert all(column.from_data == () for column in detected.declared().columns)


def test_detect_agrees_with_the_reviewed_schema_and_marks_everything():
    detected, reviewed = Schema.detect(adult()), adult_schema()
    assert detected.differences(reviewed) == [
        "column 'education': categories are the same in another order",
        "column 'education': fallback '10th' against 'Preschool'",
        "constraint fixed combinations of education, education-num: only in the first",
    ]
    assert detected["age"].from_data == ("kind", "low", "high", "missing")
    assert detected["sex"].from_data == ("kind", "categories", "missing")


def test_detect_kinds():
    frame = pd.DataFrame(
        {
            "id": ["x1", "x2", "x3", "x4"],
            "text": ["a", "b", None, "a"],
            "whole": [3, 1, 2, 2],
            "gap": [1, None, 3, 4],
            "real": [0.5, 1.0, 2.0, None],
            "flag": [True, False, True, True],
            "day": pd.to_datetime(["2020-01-01", "2021-05-05", None, "2020-02-02"]),
            "second": pd.to_datetime(["2020-01-01 10:00:01"] * 4),
            "written": ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"],
            "level": pd.Categorical(["lo", "hi", "lo", "lo"], categories=["lo", "mid", "hi"]),
            "coded": pd.Categorical([1, 2, 1, 1]),
        }
    )
    schema = Schema.detect(frame)
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {
        "id": "id",
        "text": "categorical",
        "whole": "integer",
        "gap": "integer",
        "real": "continuous",
        "flag": "boolean",
        "day": "datetime",
        "second": "datetime",
        "written": "datetime",
        "level": "categorical",
        "coded": "categorical",
    }
    assert (schema["text"].categories, schema["text"].missing) == (("a", "b"), True)
    assert (schema["gap"].low, schema["gap"].high, schema["gap"].missing) == (1, 4, True)
    assert (schema["day"].low, schema["day"].high) == ("2020-01-01", "2021-05-05")
    assert schema["second"].low == "2020-01-01T10:00:01"
    assert schema["written"].format == "%Y-%m-%d"
    assert schema["level"].categories == ("lo", "mid", "hi")
    assert schema["coded"].categories == (1, 2)


def test_detect_keeps_microseconds():
    moments = pl.DataFrame({"t": [datetime(2020, 1, 1, 0, 0, 0, 5), datetime(2020, 1, 2)]})  # noqa: DTZ001
    assert Schema.detect(moments)["t"].low == "2020-01-01T00:00:00.000005"


def test_detect_sends_rare_categories_to_other():
    names = [f"v{i % 40}" for i in range(400)] + ["v0"] * 3 + ["v7"] * 2
    column = Schema.detect(pl.DataFrame({"x": names}), max_categories=3)["x"]
    assert column.categories == ("v0", "v7", "__other__")
    assert column.other == "__other__"


def test_detect_refuses_what_tells_nothing():
    with pytest.raises(DataError, match="empty"):
        Schema.detect(pl.DataFrame({"a": []}))
    with pytest.raises(DataError, match="empty"):
        Schema.detect(pl.DataFrame())
    empty = Schema.detect(pl.DataFrame({"a": [None, None]}))["a"]
    assert (empty.kind, empty.missing) == ("text", True)
    assert "no value in any row" in empty.why
    with pytest.raises(SchemaError, match="max_categories=1"):
        Schema.detect(pl.DataFrame({"a": [1]}), max_categories=1)


def test_one_row_is_enough():
    schema = Schema.detect(pl.DataFrame({"a": ["x"], "b": [1]}))
    assert [column.kind for column in schema.columns] == ["categorical", "integer"]


def test_a_schema_goes_through_its_columns_in_order():
    schema = mixed()
    assert [column.name for column in schema] == list(schema.names)
    assert tuple(schema) == schema.columns
    assert len(schema) == 10
    assert ("age" in schema, "Age" in schema) == (True, False)
    # A column is looked up by its name, not by itself or its place.
    assert schema["age"] not in schema
    assert 0 not in schema


@pytest.mark.parametrize("kind", ["text", "id", "integer", "categorical", "datetime"])
def test_a_format_of_another_type_than_text_is_refused(kind):
    with pytest.raises(SchemaError, match=r"format=\['\['\] must be text"):
        Column("a", kind, format=["["])
