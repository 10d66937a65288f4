"""A party's own names and values become the schema's, cell by cell."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import siloweave as sw
from siloweave.errors import DataError, InputError, SchemaError
from siloweave.tables import Column, Encoder, Schema
from siloweave.tables.recoding import check_recode, recode, unknown_values

SCHEMA = Schema(
    (
        Column("sex", "categorical", ("female", "male"), missing=True),
        Column("age", "integer", low=0, high=99, fallback="low"),
        Column("smoker", "boolean", ("no", "yes"), fallback="no"),
        Column("level", "categorical", (1, 2, 3), fallback=1),
    )
)
VALUES = {
    "sex": {"1": "male", "2": "female", "9": ""},
    "age": {"k.A.": 0},
    "smoker": {"ja": "yes", "nein": "no"},
    "level": {"1": 3, "3": 1},
}
RENAME = {"geschlecht": "sex"}


def codes(table, schema=SCHEMA):
    return {name: Encoder(schema).encode(table).column(name).tolist() for name in schema.names}


def rows():
    return {
        "geschlecht": ["1", "2", "9", " 1"],
        "age": ["41", "7", "k.A.", "12"],
        "smoker": ["ja", "nein", "ja", "no"],
        "level": ["1", "2", "3", "2"],
    }


RIGHT = {"sex": [1, 0, 2, 1], "age": [13, 2, 0, 3], "smoker": [1, 0, 1, 0], "level": [2, 1, 0, 1]}


def in_csv(folder):
    path = Path(folder) / "rows.csv"
    path.write_text(pl.DataFrame(rows()).write_csv())
    return path


def in_polars(folder):
    return pl.DataFrame(rows())


def in_pandas_of_numbers(folder):
    frame = pd.DataFrame(rows())
    return frame.assign(geschlecht=[1, 2, 9, 1], level=[1.0, 2.0, 3.0, 2.0])


def in_lines_of_json(folder):
    path = Path(folder) / "rows.jsonl"
    in_pandas_of_numbers(folder).to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("made", [in_csv, in_polars, in_pandas_of_numbers, in_lines_of_json])
def test_every_source_is_recoded_alike(made, tmp_path):
    source = made(tmp_path)
    recoded = recode(source, VALUES, rename=RENAME)
    assert codes(recoded) == RIGHT
    assert recoded.names == SCHEMA.names
    assert recode(source).names == ("geschlecht", *SCHEMA.names[1:])


def test_codes_of_a_survey_are_named_by_number_or_label(tmp_path):
    pyreadstat = pytest.importorskip("pyreadstat", reason="pip install 'siloweave[stats]'")
    path = tmp_path / "s.sav"
    frame = pd.DataFrame({"sex": [1, 2, 1, 2], "level": [1, 2, 3, 2]})
    labels = {"sex": {1: "Mann", 2: "Frau"}, "level": {1: "low", 2: "mid", 3: "high"}}
    pyreadstat.write_sav(frame, str(path), variable_value_labels=labels)
    schema = SCHEMA.select(["sex", "level"])
    right = {"sex": [1, 0, 1, 0], "level": [0, 1, 2, 1]}
    for mapping in ({"Mann": "male", "Frau": "female"}, {1: "male", 2: "female"}):
        assert codes(recode(path, {"sex": mapping}), schema) == right
    half = recode(path, {"sex": {1: "Mrs"}})
    assert half.values("sex").tolist() == ["Mrs", "Frau", "Mrs", "Frau"]


def test_one_row_more_is_recoded_by_itself(tmp_path):
    schema = SCHEMA.placed()
    before = codes(recode(pl.DataFrame(rows()), VALUES, rename=RENAME), schema)
    for odd in ("", "?", "3", "1.0", "male", "99999999999999999999", "x" * 300):
        longer = {name: [*cells, odd] for name, cells in rows().items()}
        path = tmp_path / "rows.csv"
        path.write_text(pl.DataFrame(longer).write_csv())
        for source in (pl.DataFrame(longer), path):
            after = codes(recode(source, VALUES, rename=RENAME), schema)
            assert {name: cells[:-1] for name, cells in after.items()} == before, odd


def test_rows_without_a_label_do_not_change_how_labelled_ones_are_read(tmp_path):
    """Most rows of the second file have a code without a label, so its view is of numbers."""
    pyreadstat = pytest.importorskip("pyreadstat", reason="pip install 'siloweave[stats]'")
    categories = ("male", "Frau", "rest")
    schema = Schema((Column("sex", "categorical", categories, other="rest", outside="move"),))
    for others in ([], [7.0, 8.0, 9.0] * 5):
        path = tmp_path / f"{len(others)}.sav"
        frame = pd.DataFrame({"sex": [1.0, 2.0, 1.0, 2.0, *others]})
        labels = {"sex": {1.0: "Mann", 2.0: "Frau"}}
        pyreadstat.write_sav(frame, str(path), variable_value_labels=labels)
        recoded = recode(path, {"sex": {"Mann": "male"}})
        assert codes(recoded, schema)["sex"][:4] == [0, 1, 0, 1]


def test_a_value_that_nobody_knows_goes_where_unknown_cells_go_and_is_named():
    cells = {"geschlecht": ["1", "3", "3", None, "male"], "age": ["k.A.", "??", "7", "7", "7"]}
    schema = SCHEMA.select(["sex", "age"])
    recoded = recode(pl.DataFrame(cells), {n: VALUES[n] for n in schema.names}, rename=RENAME)
    assert codes(recoded, schema.placed())["sex"] == [1, 2, 2, 2, 1]
    with pytest.raises(SchemaError, match="2 rows hold none of its 2 categories"):
        codes(recoded.select(["sex"]), schema.select(["sex"]))
    for said in (schema, schema.placed()):
        sex, age = unknown_values(VALUES, recoded, said)
        assert "'sex': 2 rows hold values that neither the recode nor the schema knows" in sex
        assert "'3' (2)" in sex
        assert "'age': 1 row holds a value" in age
        assert "'??' (1)" in age


def test_a_fit_gives_back_the_frame_that_was_given():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"geschlecht": rng.integers(1, 3, 300), "age": rng.integers(0, 90, 300)})
    schema = SCHEMA.select(["sex", "age"])
    own = sw.recode(frame, {"sex": VALUES["sex"]}, rename=RENAME)
    drawn = sw.AIM().fit(own, schema, budget=sw.Budget(epsilon=3.0, delta=1e-5)).sample(40)
    assert isinstance(drawn, pd.DataFrame)
    assert set(drawn["sex"].dropna()) == {"male", "female"}


def test_a_categorical_type_has_the_new_values():
    frame = pd.DataFrame({"sex": pd.Categorical(["m", "f", "m"], categories=["m", "f", "x"])})
    recoded = sw.recode(frame, {"sex": {"m": "male", "f": "female"}})
    assert recoded.levels("sex") is None
    assert recoded.to_native()["sex"].tolist() == ["male", "female", "male"]


@pytest.mark.parametrize(
    ("values", "rename", "match"),
    [
        ({}, {"gender": "sex"}, "no column 'gender', which rename names"),
        ({}, {"geschlecht": "age"}, "a second column 'age'"),
        ({"gender": {"1": "male"}}, {}, "no column 'gender'"),
    ],
)
def test_columns_that_are_not_there_are_named(values, rename, match):
    with pytest.raises(DataError, match=match):
        recode(pl.DataFrame(rows()), values, rename=rename)


def test_dates_are_not_recoded():
    frame = pl.DataFrame({"born": ["2020-01-31"]}).with_columns(pl.col("born").str.to_date())
    with pytest.raises(InputError, match="'born' holds datetimes"):
        recode(frame, {"born": {"2020-01-31": ""}})


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"gender": {"1": "male"}}, "names the column 'gender', and the schema has sex"),
        ({"sex": {"1": "mail"}}, "makes 'mail', which is not among its categories: female, male"),
        ({"level": {"1": 4}}, "makes '4'"),
    ],
)
def test_a_recode_that_leads_nowhere_is_refused_without_rows(values, match):
    check_recode(VALUES, SCHEMA)
    with pytest.raises(InputError, match=match):
        check_recode(values, SCHEMA)
    born = Column("born", "datetime", low="2000-01-01", high="2020-01-01", missing=True)
    with pytest.raises(InputError, match="kind datetime is not recoded"):
        check_recode({"born": {"x": ""}}, Schema((born,)))
