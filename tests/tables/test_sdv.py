"""Metadata of SDV 1 and 2: `tools/check_sdv.py` compares what is here with the packages."""

import json

import pandas as pd
import pytest

import siloweave as sw
from siloweave import Inequality
from siloweave.errors import SchemaError
from siloweave.tables import Column, Schema
from siloweave.tables.forms import SEMANTIC


def declared():
    """Every fact that SDV 2 has a key for, and none that it has no key for."""
    columns = (
        Column("who", "id", format="P[0-9]{3}"),
        Column("city", "categorical", ("a", "b"), missing=True),
        Column("grade", "categorical", (3, 1, 2)),
        Column("age", "integer", low=0, high=120),
        Column("height", "continuous", low=0.5, high=2.5, missing=True, decimals=2),
        Column("ill", "boolean", missing=True),
        Column("born", "datetime", low="1900-01-01", high="2024-12-31", format="%d.%m.%Y"),
        Column("day", "datetime", low="2000-01-01", high="2024-12-31"),
        Column("seen", "datetime", low="2000-01-01T08:00:00", high="2024-12-31T10:30:00"),
        Column("clock", "datetime", low="1970-01-01T08:00:00", high="1970-01-01T17:30:00",
               format="%H:%M"),
        Column("mail", "text", format="email", missing=True),
        Column("note", "text"),
    )  # fmt: skip
    return Schema(columns).with_fallbacks()


def records(metadata):
    return metadata["tables"]["table"]["columns"]


def test_what_sdv_2_has_a_key_for_survives():
    metadata = json.loads(json.dumps(declared().to_sdv()))
    schema = Schema.from_sdv(metadata)
    assert schema.declared() == declared()
    # SDV detects such facts from rows, and its file does not say who wrote it.
    assert schema["age"].from_data == ("low", "high", "missing")
    assert schema["city"].from_data == ("categories", "missing")


def test_sdv_2_is_given_the_keys_that_it_knows_and_no_other():
    metadata = declared().to_sdv()
    assert set(metadata) == {"METADATA_SPEC_VERSION", "tables", "relationships"}
    assert metadata["METADATA_SPEC_VERSION"] == "V2"
    assert set(metadata["tables"]["table"]) == {"columns", "primary_key"}
    assert metadata["tables"]["table"]["primary_key"] == "who"
    columns = records(metadata)
    assert columns["age"] == {
        "sdtype": "numerical",
        "decimal_places": 0,
        "range_min": 0,
        "range_max": 120,
        "range_is_nullable": False,
    }
    assert columns["grade"]["sdtype"] == "ordinal"
    assert columns["grade"]["range_values"] == [3, 1, 2]
    assert columns["born"]["range_max"] == "31.12.2024"
    assert columns["clock"]["range_min"] == "08:00"


def test_version_1_brings_the_whole_schema_back():
    columns = (
        Column("age", "integer", low=0, high=120, missing_values=("999",), padded=0),
        Column("pay", "continuous", low=0.0, high=9.5, format="1234.5 €", decimals=2),
        Column("town", "categorical", ("a", "rest"), other="rest", from_data=("categories",)),
    )
    schema = Schema(columns, (Inequality("age", "pay"),))
    metadata = json.loads(json.dumps(schema.to_sdv(version=1)))
    assert Schema.from_sdv(metadata) == schema
    assert metadata["METADATA_SPEC_VERSION"] == "V1"
    assert records(metadata)["age"] == {
        "sdtype": "numerical",
        "computer_representation": "Int64",
    }


@pytest.mark.parametrize(
    ("column", "record"),
    [
        # SDV refuses rows with other values than those that are listed.
        (
            Column("x", "categorical", ("a", "rest"), other="rest"),
            {"sdtype": "categorical", "high_cardinality": True},
        ),
        # Its booleans are true and false.
        (
            Column("x", "boolean", ("N", "Y")),
            {"sdtype": "categorical", "range_values": ["N", "Y"]},
        ),
        # A bound must have the format, which SDV cannot read here.
        (
            Column("x", "datetime", low="2020-01-01", high="2020-12-31", format="%-d.%-m.%Y"),
            {"sdtype": "datetime", "datetime_format": "%-d.%-m.%Y"},
        ),
        # SDV's bounds are nanoseconds in 64 bits.
        (
            Column("x", "datetime", low="1600-01-01", high="2020-12-31"),
            {"sdtype": "datetime", "range_max": "2020-12-31 00:00:00"},
        ),
        # A date includes its whole day.
        (
            Column("x", "datetime", low="2020-01-01", high="2020-12-31", resolution="minute"),
            {
                "sdtype": "datetime",
                "range_min": "2020-01-01 00:00:00",
                "range_max": "2020-12-31 23:59:59",
            },
        ),
        (
            Column("x", "datetime", low="2020-01-01T00:00:00", zone="Europe/Berlin"),
            {"sdtype": "datetime", "range_min": "2020-01-01 00:00:00+00:00"},
        ),
        (Column("x", "text", format="[0-9]{4} [A-Z]{2}"),
         {"sdtype": "id", "regex_format": "[0-9]{4} [A-Z]{2}"}),
    ],
)  # fmt: skip
def test_what_sdv_2_cannot_read_is_left_out(column, record):
    written = records(Schema((column,)).to_sdv())["x"]
    assert written == {**record, "range_is_nullable": False}


def test_an_id_that_may_be_missing_is_no_key():
    metadata = Schema((Column("x", "id", missing=True),)).to_sdv()
    assert "primary_key" not in metadata["tables"]["table"]
    assert records(metadata)["x"]["range_is_nullable"] is True


def test_another_version_is_refused():
    with pytest.raises(SchemaError, match="version=3"):
        declared().to_sdv(version=3)


DETECTED = {
    "METADATA_SPEC_VERSION": "V2",
    "relationships": [],
    "tables": {
        "table": {
            "primary_key": "key",
            "columns": {
                "key": {"sdtype": "id"},
                "sex": {
                    "sdtype": "categorical",
                    "range_is_nullable": False,
                    "range_values": ["f", "m"],
                    "high_cardinality": False,
                },
                "age": {
                    "sdtype": "numerical",
                    "range_is_nullable": False,
                    "range_min": 17,
                    "range_max": 76,
                    "decimal_places": 0,
                },
                "gap": {
                    "sdtype": "ordinal",
                    "range_is_nullable": True,
                    "range_values": [1.0, 3.0],
                    "high_cardinality": False,
                },
                "height": {
                    "sdtype": "numerical",
                    "range_is_nullable": False,
                    "range_min": 1.5,
                    "range_max": 3.125,
                    "decimal_places": 3,
                },
                "seen": {
                    "sdtype": "datetime",
                    "range_is_nullable": False,
                    "range_min": "2020-01-01 10:00:00",
                    "range_max": "2022-03-03 12:00:00.250000",
                },
                "day": {
                    "sdtype": "datetime",
                    "range_is_nullable": False,
                    "range_min": "2020-01-01 00:00:00",
                    "range_max": "2022-03-03 00:00:00",
                },
                "mail": {"sdtype": "email", "pii": True, "range_is_nullable": False},
            },
        }
    },
}
"""As SDV 2.0.0 detects it."""


def test_what_sdv_2_detects_needs_no_rows():
    schema = Schema.from_sdv(DETECTED)
    kinds = {column.name: column.kind for column in schema}
    assert kinds == {
        "key": "id",
        "sex": "categorical",
        "age": "integer",
        "gap": "categorical",
        "height": "continuous",
        "seen": "datetime",
        "day": "datetime",
        "mail": "text",
    }
    # pandas has whole numbers beside a gap as floats.
    assert (schema["gap"].categories, schema["gap"].missing) == ((1, 3), True)
    assert (schema["age"].low, schema["age"].high, schema["age"].missing) == (17, 76, False)
    assert schema["height"].decimals == 3
    assert schema["height"].from_data == ("low", "high", "missing", "decimals")
    assert schema["seen"].high == "2022-03-03T12:00:00.250"
    assert (schema["day"].low, schema["day"].high) == ("2020-01-01", "2022-03-03")
    assert schema["mail"].format == "email"
    # Every cell has a place, so that a method with a guarantee takes the schema.
    assert all(column.has_place for column in schema)


def test_rows_are_read_only_for_what_metadata_lack():
    rows = pd.DataFrame({"age": [30, 40], "sex": ["x", "y"], "score": [1.5, 2.5]})
    columns = {
        "age": {"sdtype": "numerical", "range_min": 0, "decimal_places": 0},
        "sex": {"sdtype": "categorical", "range_values": ["f", "m"], "range_is_nullable": False},
        "score": {"sdtype": "numerical"},
    }
    metadata = {"METADATA_SPEC_VERSION": "V2", "tables": {"people": {"columns": columns}}}
    schema = Schema.from_sdv(metadata, table=rows)
    assert (schema["age"].low, schema["age"].high) == (0, 40)
    assert schema["sex"].categories == ("f", "m")
    assert schema["score"].kind == "continuous"
    assert (schema["score"].low, schema["score"].high) == (1.5, 2.5)


def test_a_value_may_be_missing_where_metadata_of_sdv_2_do_not_say():
    columns = {"a": {"sdtype": "boolean"}}
    bare = {"tables": {"t": {"columns": columns}}}
    assert Schema.from_sdv(bare | {"METADATA_SPEC_VERSION": "V2"})["a"].missing
    assert not Schema.from_sdv(bare | {"METADATA_SPEC_VERSION": "V1"})["a"].missing


def test_a_method_learns_an_ordinal_column():
    rows = pd.DataFrame({"stage": ["I", "II", "III", "I"] * 25, "ill": [True, False] * 50})
    columns = {
        "stage": {"sdtype": "ordinal", "range_values": ["I", "II", "III"]},
        "ill": {"sdtype": "boolean"},
    }
    metadata = {"METADATA_SPEC_VERSION": "V2", "tables": {"t": {"columns": columns}}}
    schema = Schema.from_sdv(metadata)
    assert schema["stage"].modelled
    model = sw.AIM(workload=[("stage", "ill")]).fit(rows, schema, budget=sw.Budget(100.0, 1e-6))
    stages = model.sample(100, seed=0)["stage"]
    assert 30 <= (stages == "I").sum() <= 70


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"sdtype": "categorical", "range_values": "ab"}, "range_values of column 'x'"),
        ({"sdtype": "categorical", "range_values": ["a", 1]}, "column 'x': categories mix"),
        ({"sdtype": "datetime", "range_min": "soon"}, "'soon' of column 'x'"),
        ({"sdtype": "numerical", "range_min": 9, "range_max": 1}, "'x': low=9.0 is above"),
        ({"sdtype": "ordinal", "high_cardinality": True}, "no categories, needed for: x"),
    ],
)
def test_contradictions_in_metadata_name_the_column(record, words):
    with pytest.raises(SchemaError) as caught:
        Schema.from_sdv({"tables": {"t": {"columns": {"x": record}}}})
    assert words in str(caught.value)


def older():
    return {
        "METADATA_SPEC_VERSION": "V1",
        "tables": {
            "people": {
                "primary_key": "key",
                "columns": {
                    "key": {"sdtype": "id", "regex_format": "[0-9]{3}"},
                    "mail": {"sdtype": "email", "pii": True},
                    "sex": {"sdtype": "categorical"},
                    "age": {"sdtype": "numerical"},
                    "score": {"sdtype": "numerical", "computer_representation": "Float"},
                    "when": {"sdtype": "datetime", "datetime_format": "%d/%m/%Y"},
                },
            }
        },
    }


def test_foreign_sdv_metadata_take_facts_from_data_and_say_so():
    frame = pd.DataFrame(
        {
            "key": ["001", "002"],
            "mail": ["a@b", "c@d"],
            "sex": ["f", "m"],
            "age": [30, 40],
            "score": [1, 2],
            "when": ["01/02/2020", "03/02/2020"],
        }
    )
    schema = Schema.from_sdv(older(), table=frame)
    assert [c.kind for c in schema.columns] == [
        "id",
        "text",
        "categorical",
        "integer",
        "continuous",
        "datetime",
    ]
    assert (schema["key"].format, schema["mail"].format) == ("[0-9]{3}", "email")
    assert "format" not in schema["key"].from_data
    assert schema["sex"].from_data == ("categories", "missing")
    assert schema["age"].from_data == ("kind", "low", "high", "missing")
    assert (schema["when"].low, schema["when"].high) == ("2020-02-01", "2020-02-03")
    with pytest.raises(SchemaError, match=r"no categories.*sex"):
        Schema.from_sdv(older())


def test_foreign_sdv_metadata_without_categories_need_no_table():
    metadata = older()
    del metadata["tables"]["people"]["columns"]["sex"]
    schema = Schema.from_sdv(metadata)
    assert schema["age"].kind == "continuous"
    assert schema["age"].low is None


def test_columns_that_are_drawn_anew_survive_sdv_metadata_without_our_entry():
    texts = [Column(form, "text", format=form) for form in SEMANTIC]
    schema = Schema((*texts, Column("note", "text"), Column("key", "id", format="[A-Z]{2}[0-9]+")))
    metadata = schema.to_sdv(version=1)
    assert metadata["tables"]["table"]["primary_key"] == "key"
    columns = records(metadata)
    assert columns["key"] == {"sdtype": "id", "regex_format": "[A-Z]{2}[0-9]+"}
    assert columns["phone"] == {"sdtype": "phone_number", "pii": True}
    assert columns["note"] == {"sdtype": "unknown", "pii": True}
    del metadata["siloweave"]
    assert Schema.from_sdv(metadata) == schema


@pytest.mark.parametrize(
    ("record", "kind", "form"),
    [
        ({"sdtype": "ssn", "pii": True}, "text", None),
        ({"sdtype": "text"}, "text", None),
        ({"sdtype": "text", "regex_format": "[0-9]{4}"}, "id", "[0-9]{4}"),
        ({"sdtype": "last_name"}, "text", "name"),
        ({"sdtype": "city", "pii": False}, "categorical", None),
    ],
)
def test_other_sdtypes_are_personal_unless_they_say_otherwise(record, kind, form):
    metadata = {"columns": {"x": record, "b": {"sdtype": "boolean"}}}
    rows = pd.DataFrame({"x": ["a", "b"], "b": [True, False]})
    column = Schema.from_sdv(metadata, table=rows)["x"]
    assert (column.kind, column.format) == (kind, form)


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({}, ["text", "text"]),
        ({"primary_key": "a"}, ["id", "text"]),
        ({"primary_key": "b", "alternate_keys": ["a"]}, ["id", "text"]),
        ({"primary_key": ["a", "b"]}, ["text", "text"]),
        ({"primary_key": ["a"]}, ["id", "text"]),
    ],
)
def test_a_personal_column_that_is_a_key_is_an_id(keys, kinds):
    columns = {"a": {"sdtype": "ssn"}, "b": {"sdtype": "email"}}
    schema = Schema.from_sdv({"columns": columns, **keys})
    assert [column.kind for column in schema.columns] == kinds


def test_a_key_that_is_no_column_and_a_pattern_that_cannot_be_drawn_are_refused():
    columns = {"a": {"sdtype": "id", "regex_format": "A.*"}}
    with pytest.raises(
        SchemaError, match=r"'a': format: .*'A\.\*': texts cannot be drawn from \.;"
    ):
        Schema.from_sdv({"columns": columns})
    with pytest.raises(SchemaError, match="the key 'z' is no column"):
        Schema.from_sdv({"columns": {"a": {"sdtype": "id"}}, "primary_key": "z"})
    with pytest.raises(SchemaError, match="the key 5 is no column"):
        Schema.from_sdv({"columns": {"a": {"sdtype": "id"}}, "primary_key": 5})
    with pytest.raises(SchemaError, match="alternate_keys must be a list"):
        Schema.from_sdv({"columns": {"a": {"sdtype": "id"}}, "alternate_keys": "a"})


@pytest.mark.parametrize(
    "metadata",
    [{}, {"columns": {}}, {"tables": {}}, {"tables": {"a": {}, "b": {}}}, {"columns": {"a": {}}}],
)
def test_what_is_no_sdv_metadata_is_refused(metadata):
    with pytest.raises(SchemaError):
        Schema.from_sdv(metadata)


def test_edited_sdv_metadata_are_not_trusted():
    metadata = declared().to_sdv(version=1)
    del records(metadata)["age"]
    with pytest.raises(SchemaError, match="differ"):
        Schema.from_sdv(metadata)
