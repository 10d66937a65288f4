"""Files of SPSS, Stata and SAS: value labels, missing codes, dates, and what is refused."""

import sys
from datetime import date, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.tables.sas import write_catalogue, write_table

import siloweave as sw
from siloweave.errors import DataError, InputError
from siloweave.tables import Column, Encoder, Schema, read, write
from siloweave.tables.dialect import Dialect
from siloweave.tables.joining import stacked
from siloweave.tables.read import names_in, rows_declared

pyreadstat = pytest.importorskip("pyreadstat", reason="pip install 'siloweave[stats]'")

N = 240
HEALTH = {1: "Very good", 2: "Good", 3: "Bad", -8: "Don't know", -9: "Refusal"}
TRUST = {0: "No trust", 10: "Full trust", 77: "Refusal", 88: "Don't know"}
LABELS = {"health": HEALTH, "trust": TRUST}


def survey():
    """Every code in turn, so that no test depends on chance."""
    row = np.arange(N)
    return pd.DataFrame(
        {
            "caseid": row + 1,
            "health": np.array([1, 2, 3, 2, -8, -9])[row % 6],
            "trust": np.array([*range(11), 77, 88])[row % 13],
            "pay": np.where(row % 5 == 0, np.nan, np.round(900 + 7.25 * row, 2)),
            "town": np.array(["Bern", "Zürich", ""])[row % 3],
            "seen": pd.to_datetime("2023-01-10") + pd.to_timedelta(row % 90, unit="D"),
        }
    )


@pytest.fixture
def files(tmp_path):
    rows = survey()
    pyreadstat.write_sav(
        rows, str(tmp_path / "s.sav"), variable_value_labels=LABELS,
        missing_ranges={"health": [-9, -8], "trust": [{"lo": 70, "hi": 99}]},
    )  # fmt: skip
    pyreadstat.write_sav(rows, str(tmp_path / "s.zsav"), row_compress=False, compress=True)
    pyreadstat.write_dta(rows, str(tmp_path / "s.dta"), variable_value_labels=LABELS)
    pyreadstat.write_xport(rows, str(tmp_path / "s.xpt"), table_name="S")
    plain = rows.drop(columns=["town", "seen"])
    pyreadstat.write_por(plain, str(tmp_path / "s.por"))
    return tmp_path


@pytest.mark.parametrize("name", ["s.sav", "s.zsav", "s.dta", "s.xpt", "s.por"])
def test_every_format_has_the_same_rows(files, name):
    table = read(files / name)
    rows = survey()
    names = [column.lower() for column in table.names]
    assert names == list(rows)[: len(names)]
    where = dict(zip(names, table.names, strict=True))
    assert table.values(where["caseid"]).tolist() == rows["caseid"].tolist()
    assert table.missing(where["pay"]).tolist() == rows["pay"].isna().tolist()
    pay = table.values(where["pay"])[~table.missing(where["pay"])]
    assert pay.tolist() == rows["pay"].dropna().tolist()
    if "town" in where:
        assert table.values("town").tolist() == [t or None for t in rows["town"]]
        assert (table.values("seen") == rows["seen"].to_numpy("datetime64[us]")).all()
    assert names_in(files / name, Dialect()) == table.names


def test_labels_of_every_value_are_categories_and_declared_codes_are_missing(files):
    schema = Schema.detect(files / "s.sav")
    assert schema["caseid"].kind == "id"
    health, trust = schema["health"], schema["trust"]
    assert health.categories == ("Very good", "Good", "Bad")
    assert health.missing
    assert "declared missing in the file: -9, -8" in health.why
    assert (trust.kind, trust.low, trust.high, trust.missing) == ("integer", 0, 10, True)
    assert "0, 10 alone have a value label: a scale" in trust.why
    assert "declared missing in the file: 70 to 99" in trust.why
    assert schema["seen"].low == "2023-01-10"
    assert schema["town"].categories == ("Bern", "Zürich")


def test_codes_that_labels_call_unknown_are_missing_in_a_scale_and_named_among_categories(files):
    schema = Schema.detect(files / "s.dta")
    health, trust = schema["health"], schema["trust"]
    assert health.categories == ("Refusal", "Don't know", "Very good", "Good", "Bad")
    assert "-9 (Refusal), -8 (Don't know): list in missing_values" in health.why
    assert (trust.kind, trust.low, trust.high) == ("integer", 0, 10)
    assert trust.missing_values == ("77", "88")


def test_codes_far_above_a_scale_are_missing_in_a_file_without_labels(files):
    trust = Schema.detect(files / "s.xpt")["trust"]
    assert (trust.kind, trust.low, trust.high) == ("integer", 0, 10)
    assert trust.missing_values == ("77", "88")
    assert "a scale from 0 to 10, and 77 and 88, far above it, taken for a missing" in trust.why


def test_a_table_of_sas_is_read_with_its_dates_and_times(tmp_path):
    path = tmp_path / "survey.sas7bdat"
    write_table(path)
    table = read(path)
    assert table.names == ("caseid", "health", "pay", "seen", "hour", "town")
    assert table.num_rows == rows_declared(path) == 40
    assert table.values("caseid").tolist() == list(range(1, 41))
    assert np.flatnonzero(table.missing("pay")).tolist() == list(range(0, 40, 5))
    assert table.values("pay")[1] == 1012.25
    days = table.values("seen").astype("datetime64[D]").astype(str).tolist()
    assert (days[0], days[-1]) == ("2023-01-10", "2023-02-18")
    assert table.values("hour")[:2].tolist() == ["00:00:00", "00:15:00"]
    assert table.values("town")[:3].tolist() == [None, "Basel", "Bern"]
    assert table.value_labels("health") == {}


@pytest.mark.parametrize("name", ["survey.sas7bcat", "formats.sas7bcat"])
def test_labels_of_sas_are_in_a_catalogue_beside_the_table(tmp_path, name):
    path = tmp_path / "survey.sas7bdat"
    write_table(path)
    write_catalogue(tmp_path / name)
    assert read(path).values("health")[:3].tolist() == ["Very good", "Good", "Bad"]
    assert Schema.detect(path)["health"].categories == ("Very good", "Good", "Bad")
    assert read(path).value_labels("seen") == {}
    (tmp_path / name).write_bytes(b"no catalogue")
    with pytest.raises(DataError, match=rf"{name}.*as a file of SAS"):
        read(path)


def test_labels_that_no_row_has_are_categories_too(tmp_path):
    path = tmp_path / "s.sav"
    labels = {"sex": {1: "male", 2: "female", 3: "other"}}
    pyreadstat.write_sav(
        pd.DataFrame({"sex": [1, 2] * 30}), str(path), variable_value_labels=labels
    )
    assert Schema.detect(path)["sex"].categories == ("male", "female", "other")


def test_a_slip_without_a_label_is_a_category_of_its_own_and_is_named(tmp_path):
    path = tmp_path / "s.sav"
    labels = {"sex": {1: "male", 2: "female"}}
    codes = [1, 2] * 60 + [7]
    pyreadstat.write_sav(pd.DataFrame({"sex": codes}), str(path), variable_value_labels=labels)
    sex = Schema.detect(path)["sex"]
    assert sex.categories == ("male", "female", "7")
    assert "1 row has a code without a label" in sex.why


def test_texts_may_have_labels_and_missing_codes(tmp_path):
    path = tmp_path / "s.sav"
    rows = pd.DataFrame({"sex": ["m", "f", "x", "f"] * 20})
    labels = {"sex": {"m": "male", "f": "female", "x": "refused"}}
    missing = {"sex": ["x"]}
    pyreadstat.write_sav(rows, str(path), variable_value_labels=labels, missing_ranges=missing)
    table = read(path)
    assert table.values("sex").tolist() == ["male", "female", None, "female"] * 20
    assert Schema.detect(path)["sex"].categories == ("female", "male")  # in the order of codes


def test_texts_of_which_some_have_a_label_are_read_as_they_are_detected(tmp_path):
    path = tmp_path / "s.sav"
    rows = pd.DataFrame({"region": ["N", "S", "E", "S"] * 20})
    labels = {"region": {"N": "North", "S": "South"}}
    pyreadstat.write_sav(rows, str(path), variable_value_labels=labels)
    region = Schema.detect(path)["region"]
    assert region.categories == ("E", "N", "S")
    assert counts_in(read(path), region) == [20, 20, 40]
    by_label = Column("region", "categorical", ("North", "South", "E"))
    assert counts_in(read(path), by_label) == [20, 40, 20]


def test_special_missing_values_of_stata_are_missing(tmp_path):
    path = tmp_path / "s.dta"
    rows = pd.DataFrame({"age": [41, 7, "a", 12, "b"]}, dtype=object)
    pyreadstat.write_dta(
        rows, str(path), missing_user_values={"age": ["a", "b"]},
        variable_value_labels={"age": {"a": "refused", "b": "not asked"}},
    )  # fmt: skip
    table = read(path)
    assert table.missing("age").tolist() == [False, False, True, False, True]
    assert table.value_labels("age") == {}


def test_formats_of_dates_and_times_are_read(tmp_path):
    path = tmp_path / "s.sav"
    days = date(2020, 2, 29) - date(1582, 10, 14)
    seconds = (days + timedelta(hours=10, minutes=27)).total_seconds()
    rows = pd.DataFrame(
        {
            "day": [date(2020, 2, 29), date(1999, 12, 31), None],
            "time": [37_620.0, 0.0, np.nan],
            "moment": [seconds, 1e30, np.nan],
            "month": [seconds, seconds, np.nan],
            "lasted": [90_000.0, 60.0, np.nan],
        }
    )
    formats = {"time": "TIME8", "moment": "DATETIME20", "month": "MOYR8", "lasted": "DTIME12"}
    pyreadstat.write_sav(rows, str(path), variable_format=formats)
    table = read(path)
    assert table.values("day")[:2].astype(str).tolist() == [
        "2020-02-29T00:00:00.000000",
        "1999-12-31T00:00:00.000000",
    ]
    assert table.values("time").tolist() == ["10:27:00", "00:00:00", None]
    assert str(table.values("moment")[0]) == "2020-02-29T10:27:00.000000"
    assert table.missing("moment").tolist() == [False, True, True]  # beyond the year 9999
    assert table.kind("month") == "datetimes"
    assert table.unit("lasted") == "minutes"
    assert table.values("lasted")[:2].tolist() == [1500, 1]


def test_months_of_stata_are_their_first_day(tmp_path):
    path = tmp_path / "s.dta"
    months = [0.0, 721.0, -1.0, 1e9]
    pyreadstat.write_dta(pd.DataFrame({"m": months}), str(path), variable_format={"m": "%tm"})
    days = read(path).values("m")[:3].astype("datetime64[D]").astype(str).tolist()
    assert days == ["1960-01-01", "2020-02-01", "1959-12-01"]
    assert read(path).missing("m").tolist() == [False, False, False, True]


def test_numbers_of_four_bytes_are_read_by_their_digits(tmp_path):
    path = tmp_path / "s.dta"
    rows = pd.DataFrame({"x": np.array([0.1, 8.9, 2.5], dtype=np.float32)})
    rows.to_stata(path, write_index=False)
    assert read(path).values("x").tolist() == [0.1, 8.9, 2.5]


# A cell is read by its declared column


def counts(path, schema):
    codes = Encoder(schema, 16).encode(read(path))
    return {
        name: np.bincount(codes.column(name), minlength=size)
        for name, size in zip(codes.domain.names, codes.domain.sizes, strict=True)
    }


@pytest.mark.parametrize("writer", [pyreadstat.write_sav, pyreadstat.write_dta])
def test_one_row_more_changes_how_no_other_row_is_read(tmp_path, writer):
    """Odd codes, among labels of every value and at the ends of a scale."""
    schema = Schema(
        (
            Column("health", "categorical", ("Very good", "Good", "Bad"), missing=True),
            Column("code", "categorical", (1, 2, 3), fallback=1),
            Column("trust", "integer", low=0, high=10, missing=True, missing_values=("77", "88")),
            Column("seen", "datetime", low="2020-01-01", high="2020-12-31", missing=True),
        )
    ).placed()
    origin = date(1582, 10, 14) if writer is pyreadstat.write_sav else date(1960, 1, 1)
    unit = 1 if writer is pyreadstat.write_sav else 1000
    labels = {"health": HEALTH, "code": HEALTH, "trust": TRUST}
    form = {"seen": "DATETIME20" if unit == 1 else "%tc"}
    june = (date(2020, 6, 1) - origin).total_seconds() * unit

    def written(codes):
        path = tmp_path / ("s.sav" if unit == 1 else "s.dta")
        rows = pd.DataFrame({name: np.array(codes, dtype=float) for name in labels})
        rows["seen"] = [june] * 4 + codes[4:]
        writer(rows, str(path), variable_value_labels=labels, variable_format=form)
        return counts(path, schema)

    before = written([1.0, 2.0, 3.0, 2.0])
    assert before["health"].tolist() == [1, 2, 1, 0]
    assert before["trust"].tolist() == [0, 1, 2, 1, *[0] * 8]
    for odd in (2.0, 7.0, 2.5, -8.0, 77.0, 0.0, 1e300, -1e300, np.nan):
        after = written([1.0, 2.0, 3.0, 2.0, odd])
        for name, count in before.items():
            change = after[name] - count
            assert (change.min(), change.sum()) == (0, 1), (odd, name, change)


def test_a_code_is_named_as_missing_by_its_digits_or_its_label(files):
    for spelled in (("77", "88"), ("Refusal", "Don't know")):
        trust = Column("trust", "integer", low=0, high=10, missing=True, missing_values=spelled)
        found = counts_of_column(files / "s.dta", trust)
        assert found[-1] == sum(survey()["trust"] > 10)


def counts_of_column(path, column):
    return counts_in(read(path).select([column.name]), column)


def counts_in(table, column):
    codes = Encoder(Schema((column,)), 16).encode(table).column(column.name)
    return np.bincount(codes).tolist()


def test_a_label_and_a_code_are_the_same_category_as_the_schema_says(files):
    by_label = Column("health", "categorical", tuple(HEALTH.values()))
    by_code = Column("health", "categorical", tuple(HEALTH))
    expected = [survey()["health"].tolist().count(code) for code in HEALTH]
    assert counts_of_column(files / "s.dta", by_label) == expected
    assert counts_of_column(files / "s.dta", by_code) == expected


def test_parties_with_one_dictionary_are_pooled_by_it(files):
    table = read(files / "s.dta")
    pooled = stacked([table, table])
    assert Schema.detect(pooled)["trust"].missing_values == ("77", "88")
    part = table.take([0, 1]).select(["health", "caseid"])
    assert part.values("health").tolist() == ["Very good", "Good"]
    other = sw.Table.from_columns({"health": (np.array([1, 5]), None)})
    mixed = stacked([table.select(["health"]), other])
    assert mixed.values("health").tolist()[-2:] == ["1", "5"]


# With the rest of the package


def test_a_fit_and_a_score_take_the_file(files):
    schema = Schema.detect(files / "s.sav").declared()
    budget = sw.Budget(epsilon=3.0, delta=1e-5)
    rows = sw.AIM().fit(files / "s.sav", schema, budget=budget).sample(60)
    assert set(rows["health"].dropna()) <= {"Very good", "Good", "Bad"}
    assert rows["trust"].dropna().between(0, 10).all()
    assert sw.score(files / "s.sav", rows, schema=schema) is not None


def test_a_scale_whose_labels_pandas_put_in_place_of_codes_is_categories(files):
    trust = Schema.detect(pd.read_stata(files / "s.dta"))["trust"]
    assert trust.kind == "categorical"
    assert trust.categories[:2] == ("No trust", "1")


def test_rows_that_a_file_declares_are_not_estimated(files):
    assert rows_declared(files / "s.sav") == N
    assert rows_declared(files / "s.dta") == N
    assert rows_declared(files / "s.xpt") is None


# What is refused


@pytest.mark.parametrize("name", ["s.sav", "s.dta", "s.xpt"])
def test_a_damaged_file_is_named_with_what_to_do(files, name):
    path = files / name
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(DataError, match=rf"{name}.*damaged or cut off.*store it (again|as CSV)"):
        read(path)


def test_a_file_of_another_program_is_named(files):
    path = files / "other.sav"
    path.write_bytes((files / "s.dta").read_bytes())
    with pytest.raises(DataError, match=r"other\.sav.*file of SPSS.*of another program"):
        read(path)


def test_a_newer_version_is_named(files):
    path = files / "s.dta"
    data = path.read_bytes()
    assert b"<release>119</release>" in data
    path.write_bytes(data.replace(b"<release>119<", b"<release>199<"))
    with pytest.raises(DataError, match="version of Stata that is not known"):
        read(path)


def test_a_missing_package_is_named_with_its_extra(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    with pytest.raises(InputError, match=r"pip install '\.\[stats\]'"):
        read(files / "s.sav")


def test_nothing_is_written_in_these_formats(tmp_path):
    with pytest.raises(DataError, match=r"must end in \.csv or \.parquet"):
        write(pl.DataFrame({"x": [1]}), tmp_path / "drawn.sav")
