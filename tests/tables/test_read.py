import gzip
import re
from dataclasses import asdict
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siloweave as sw
from siloweave.errors import DataError, InputError, SchemaError
from siloweave.tables import Column, Encoder, Schema, Table, encoding_of, read, read_batches, write
from siloweave.tables.cells import placed_cells
from siloweave.tables.dialect import Dialect
from siloweave.tables.read import names_in, readings
from siloweave.tables.table import digest_of


def pandas_frame():
    return pd.DataFrame(
        {
            "whole": [1, 2, 3],
            "gap": pd.array([1, None, 3], dtype="Int64"),
            "floaty": [1.0, np.nan, 3.0],
            "small": np.array([1, 2, 3], dtype=np.int8),
            "real": [0.5, np.nan, 1.5],
            "flag": [True, False, True],
            "maybe": pd.array([True, None, False], dtype="boolean"),
            "text": ["a", None, "b"],
            "object": pd.Series(["a", None, "b"], dtype=object),
            "level": pd.Categorical(["x", "y", None], categories=["y", "x", "z"], ordered=True),
            "when": pd.to_datetime(["2020-01-01", None, "2021-01-01 10:00"], format="ISO8601"),
            "zoned": pd.to_datetime(["2020-01-01", None, "2021-06-01"]).tz_localize("Europe/Rome"),
        }
    )


def test_pandas_gives_the_same_pandas():
    frame = pandas_frame()
    pd.testing.assert_frame_equal(read(frame).to_native(), frame)


def test_polars_gives_the_same_polars():
    frame = pl.DataFrame(
        {
            "whole": [1, None, 3],
            "big": pl.Series([1, 2, 3], dtype=pl.UInt64),
            "small": pl.Series([1.5, None, 2.5], dtype=pl.Float32),
            "flag": [True, None, False],
            "text": ["a", None, "b"],
            "enum": pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a"])),
            "cat": pl.Series(["a", None, "b"], dtype=pl.Categorical),
            "day": [date(2020, 1, 1), None, date(2021, 1, 1)],
            "zoned": pl.Series([datetime(2020, 1, 1, tzinfo=UTC)] * 3).dt.convert_time_zone(
                "Europe/Rome"
            ),
            "nothing": [None, None, None],
        }
    )
    again = read(frame).to_native()
    assert again.schema == frame.schema
    assert again.equals(frame)


def test_arrow_gives_the_same_arrow():
    table = pa.table(
        {
            "whole": pa.array([1, None, 3], pa.int32()),
            "text": pa.array(["a", None, "b"], pa.string()),
            "coded": pa.array(["a", None, "b"]).dictionary_encode(),
            "day": pa.array([date(2020, 1, 1), None, date(2021, 1, 1)], pa.date32()),
            "zoned": pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("ms", "UTC")),
        }
    )
    again = read(table).to_native()
    assert again.schema == table.schema
    assert again.to_pylist() == table.to_pylist()


def test_values_and_missing():
    table = read(pandas_frame())
    assert table.num_rows == 3
    assert table.values("gap").tolist() == [1, 0, 3]
    assert table.missing("gap").tolist() == [False, True, False]
    assert table.values("text").tolist() == ["a", None, "b"]
    assert table.values("when").dtype == np.dtype("datetime64[us]")
    assert np.isnan(table.values("real")[1])
    assert table.take([2, 0, 2]).values("whole").tolist() == [3, 1, 3]
    assert table.select(["text", "whole"]).names == ("text", "whole")
    assert read(table) is table
    assert read(pandas_frame(), columns=["flag"]).names == ("flag",)
    with pytest.raises(DataError, match="no column 'nope'"):
        table.select(["nope"])


def test_a_column_that_now_has_missing_values_still_comes_back():
    like = read(pd.DataFrame({"a": [1, 2], "b": [True, False]}))
    mask = np.array([True, False])
    made = Table.from_columns({"a": (np.array([0, 5]), mask), "b": ([True, True], mask)}, like)
    native = made.to_native()
    assert [str(dtype) for dtype in native.dtypes] == ["Int64", "boolean"]


def test_new_values_widen_a_pandas_categorical():
    like = read(pd.DataFrame({"a": pd.Categorical(["x", "y"])}))
    native = Table.from_columns({"a": (["y", "w"], None)}, like).to_native()
    assert native["a"].tolist() == ["y", "w"]


def test_from_columns_refuses_ragged_and_mixed():
    with pytest.raises(DataError, match="lengths"):
        Table.from_columns({"a": (np.arange(2), None), "b": (np.arange(3), None)})
    with pytest.raises(DataError, match="'a' mixes types"):
        Table.from_columns({"a": (np.array(["x", 1], dtype=object), None)})
    with pytest.raises(DataError, match="'a'"):
        Table.from_columns({"a": (np.array([1j]), None)})


def test_csv_types(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "\ufeffwhole,padded,real,flag,zip,text,gap,none,day\n"
        '1, 39,0.5,true,01234,"a,b",,,2020-01-01\n'
        '-2,40,1e3,false,99999,"",7,,2020-01-02\n',
        encoding="utf-8",
    )
    table = read(path)
    found = {name: table.kind(name) for name in table.names}
    assert found == {
        "whole": "whole numbers",
        "padded": "whole numbers",
        "real": "numbers",
        "flag": "booleans",
        "zip": "text",
        "text": "text",
        "gap": "whole numbers",
        "none": "text",
        "day": "text",
    }
    assert table.values("zip").tolist() == ["01234", "99999"]
    assert table.missing("text").tolist() == [False, True]
    assert table.missing("none").all()
    assert isinstance(table.to_native(), pd.DataFrame)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_write_then_read(tmp_path, suffix):
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.5, np.nan], "d": [True, False]})
    path = tmp_path / f"t{suffix}"
    write(read(frame), path)
    pd.testing.assert_frame_equal(read(path).to_native(), frame)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_numbers_are_written_with_zeros_where_that_is_asked_for(tmp_path):
    columns = {"fee": (np.array([1.5, 2.25, -0.0, 0.29]), np.array([False, True, False, False]))}
    columns |= {
        "few": (np.array([12.0, -5.5, -0.0, 1e-9]), None),
        "year": (np.array([1, 2, 3, 4]), None),
        "how": (np.array(["a", "b", "c", "d"]), None),
    }
    path = tmp_path / "t.csv"
    write(Table.from_columns(columns), path, {"fee": 2, "few": 0, "year": 1, "how": 3, "other": 4})
    assert path.read_text() == (
        "fee,few,year,how\n1.50,12,1.0,a\n,-5.5,2.0,b\n0.00,0,3.0,c\n0.29,1e-9,4.0,d\n"
    )
    write(Table.from_columns(columns), path)
    assert path.read_text().splitlines()[1] == "1.5,12.0,1,a"


@pytest.mark.parametrize("unit", ["M", "Q", "D"])
def test_periods_of_pandas_are_read_as_they_are_written_and_come_back(unit):
    frame = pd.DataFrame({"when": pd.period_range("2020-01-01", periods=3, freq=unit)})
    frame.loc[1, "when"] = pd.NaT
    table = read(frame)
    texts = [None if gone else str(one) for one, gone in zip(frame["when"], [0, 1, 0], strict=True)]
    assert table.values("when").tolist() == texts
    pd.testing.assert_frame_equal(table.to_native(), frame)


def test_text_in_a_zst_file_that_is_not_utf_8_is_said_to_be_so(tmp_path):
    text = "name,age\nJosé,3\n".encode("latin-1")
    (tmp_path / "t.csv.zst").write_bytes(pa.compress(text, codec="zstd", asbytes=True))
    with pytest.raises(DataError, match=r"\.zst file must be UTF-8, and this is not"):
        read(tmp_path / "t.csv.zst")


def test_large_numbers_are_written_in_full_where_zeros_are_asked_for(tmp_path):
    columns = {name: (np.array([1e16, -2.5e17, 1.5]), None) for name in ("none", "one", "two")}
    write(Table.from_columns(columns), tmp_path / "t.csv", {"none": 0, "one": 1, "two": 2})
    first, second, third = (
        line.split(",") for line in (tmp_path / "t.csv").read_text().split()[1:]
    )
    assert first == ["10000000000000000", "10000000000000000.0", "10000000000000000.00"]
    assert second == [f"-{one.replace('10', '250', 1)}" for one in first]
    assert third == ["1.5", "1.5", "1.50"]


def test_write_refuses_early(tmp_path):
    table = read(pl.DataFrame({"a": [1]}))
    with pytest.raises(DataError, match=r"\.csv or \.parquet"):
        write(table, tmp_path / "t.xlsx")
    with pytest.raises(DataError, match="folder"):
        write(table, tmp_path / "nowhere" / "t.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", ["cp037", "unicode_escape", "utf-7", "raw_unicode_escape"])
def test_no_encoding_makes_several_rows_of_one(encoding):
    assert len(rb"a % \n \u000a +AAo- b".decode(encoding).splitlines()) > 1
    with pytest.raises(InputError, match="makes several lines of one; save the file as UTF-8"):
        Dialect(encoding=encoding)
    for one in ("utf-8", "latin-1", "utf-16", "cp932", "shift_jisx0213", "gb18030", "iso2022_jp"):
        assert Dialect(encoding=one).encoding == one


@pytest.mark.parametrize("separator", ['"', "\n", "\r"])
def test_what_ends_a_field_or_a_line_is_no_separator(separator):
    with pytest.raises(InputError, match="must be one character, such as ';', and no quote"):
        Dialect(separator=separator)


def test_unreadable_files(tmp_path):
    def file(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    with pytest.raises(DataError, match="no file"):
        read(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"must end in \.csv.*\.parquet"):
        read(file("t.doc", b"a\n1\n"))
    for name, advice in {
        "t.csv.zip": "unpack it",
        "t.csv.bz2": "unpack it, or store it as .gz",
        "t.arff": "write a CSV, in Weka",
        "t.RData": "write a CSV, by write.csv in R",
    }.items():
        with pytest.raises(DataError, match=f"must end in .*; {advice}"):
            read(file(name, b"PK"))
    with pytest.raises(DataError, match=r"cannot read a LazyFrame.*frame\.collect\(\)"):
        read(pl.LazyFrame({"a": [1]}))
    with pytest.raises(DataError, match="is empty"):
        read(file("empty.csv", b""))
    with pytest.raises(DataError, match="twice: a"):
        read(file("twice.csv", b"a,b,a\n1,2,3\n"))
    with pytest.raises(DataError, match="ragged"):
        read(file("ragged.csv", b"a,b\n1,2\n1,2,3\n"))
    with pytest.raises(DataError, match=r"encoding of .* cannot be decided.*--encoding"):
        encoding_of(file("odd.csv", b"a\n\x81\x8d\n"))
    with pytest.raises(DataError, match=r"is no text: .* \.parquet"):
        read(file("binary.csv", b"\0\1\2\3" * 100))
    with pytest.raises(DataError, match="not in the encoding"):
        read(file("plain.csv", b"a,b\n1,2\n"), encoding="utf-16")
    with pytest.raises(InputError, match="separator='ab'"):
        read(tmp_path / "latin.csv", separator="ab")
    with pytest.raises(InputError, match="decimal=','"):
        read(tmp_path / "latin.csv", separator=",", decimal=",")
    with pytest.raises(InputError, match="encoding='klingon'"):
        read(tmp_path / "latin.csv", encoding="klingon")
    with pytest.raises(DataError, match="cannot read"):
        read(file("broken.parquet", b"PAR1 not really"))
    with pytest.raises(DataError, match="no file"):
        read_batches(tmp_path / "none.csv", 5)
    with pytest.raises(DataError, match="batch_rows=0"):
        read_batches(tmp_path / "empty.csv", 0)
    with pytest.raises(DataError, match="twice"):
        list(read_batches(tmp_path / "twice.csv", 5))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n\r\n\r\n"])
def test_blank_lines_at_the_end_are_no_rows(tmp_path, encoding, end):
    (tmp_path / "a.tsv").write_bytes(f"x\té\n1\tü\n2\t{end}".encode(encoding))
    table = read(tmp_path / "a.tsv", encoding=encoding)
    assert table.names == ("x", "é")
    assert table.values("x").tolist() == [1, 2]
    pieces = read_batches(tmp_path / "a.tsv", 1, dialect=Dialect(encoding=encoding))
    assert sum(piece.num_rows for piece in pieces) == 2
    (tmp_path / "b.csv").write_bytes(b"x\n1\n\n")
    assert read(tmp_path / "b.csv").num_rows == 2  # a missing value, where there is one column


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.csv.zst"])
def test_blank_lines_between_rows_are_no_rows(tmp_path, name, end):
    """Lines of separators alone are rows; a line break in quotes is no line's end."""
    text = end.join(["", "x,y,z", '1,"a', "", 'b",', "   ", "2,é,", "", ",,", "", ""])
    zstd = partial(pa.compress, codec="zstd", asbytes=True)
    packed = {"gz": gzip.compress, "zst": zstd}.get(name[6:], bytes)
    (tmp_path / name).write_bytes(packed(text.encode()))
    if end == "\r" and name.endswith("zst"):
        return  # polars, which decompresses it, knows no such lines
    table = read(tmp_path / name)
    assert table.num_rows == sum(one.num_rows for one in read_batches(tmp_path / name, 1)) == 3
    assert table.missing("y").tolist() == [False, False, True]
    assert table.values("y")[0].split() == ["a", "b"]
    (tmp_path / "b.csv").write_text("\n\nx,y\n1,2\n\n3,4\n5,\n\n6,7\n")
    assert list(map(read(tmp_path / "b.csv").line, range(4))) == [4, 6, 7, 9]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,c\n1,2,3\n4,5,6\n7,8", "line 4 of .* has 2 of 3 fields. Complete it, or delete"),
        ("a,b,c\n1,2,3\n4\n5,6,7\n8,9\n", "line 3 of .* has 1 of 3 fields .2 lines have too few"),
        ("a;b;c\n1;2\n\n3\n4;5\n", "line 4 of .* has 1 of 2 fields"),
        ('a,b,c\n1,"2\n2",3\n4,x\ny,5\n', "line 4 of .* line break in quotes"),
        ("1,2,3\n1,2,4\n1,3", "line 3 of .* short_lines = true in the study, --short-"),
    ],
)
def test_a_line_with_too_few_fields_is_named(tmp_path, text, words):
    (tmp_path / "a.csv").write_text(text)
    for whole in (True, False):
        with pytest.raises(DataError, match=words):
            read(tmp_path / "a.csv") if whole else list(read_batches(tmp_path / "a.csv", 2))
    again = pl.read_csv(tmp_path / "a.csv", infer_schema=False, separator=text[1])
    dialect = Dialect(short_lines=True)
    for table in (
        read(tmp_path / "a.csv", short_lines=True),
        *read_batches(tmp_path / "a.csv", 9, dialect=dialect),
    ):
        assert table.num_rows == again.drop_nulls(again.columns[0]).height
        last = again.drop_nulls(again.columns[0])[again.columns[-1]].is_null()
        assert table.missing(table.names[-1]).tolist() == last.to_list()


def test_a_line_with_too_many_fields_is_refused_even_where_lines_may_be_short(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,3\n4,5\n6,7,8,9\n")
    with pytest.raises(DataError, match="more fields than the first"):
        read(tmp_path / "a.csv", short_lines=True)


def test_separators_that_all_lines_leave_off_at_their_end_are_no_fault(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,c,\n1,2\n\n3,4\n5,\n")
    table = read(tmp_path / "a.csv")
    assert table.num_rows == 3
    assert table.names == ("a", "b", "c")
    assert [table.missing(name).sum() for name in table.names] == [0, 1, 3]


def test_a_quotation_mark_that_is_not_closed_is_named(tmp_path):
    (tmp_path / "a.csv").write_text('a,b\n1,"2\n' + "3,4\n" * 50_000)
    with pytest.raises(DataError, match="quotation mark that is not closed"):
        read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('a,b,c\n1,2,3\n4,"x,5\n6,7,8\n')
    with pytest.raises(DataError, match="quotation mark that is not closed"):
        read(tmp_path / "a.csv")


def test_true_and_false_are_drawn_as_they_are_written(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z\n" + "TRUE,true,True\nFALSE,false,true\n,,FALSE\n" * 9)
    table = read(tmp_path / "a.csv")
    assert [table.kind(name) for name in table.names] == ["text", "booleans", "booleans"]
    schema = Schema.detect(table)
    assert [one.kind for one in schema.columns] == ["boolean"] * 3
    assert schema["x"].categories == ("FALSE", "TRUE")
    both = Table.from_columns({"x": (["TRUE", "FALSE", "True", "False"] * 9, None)})
    assert Schema.detect(both)["x"].kind == "categorical"
    assert Schema.detect(both.framed("csv"))["x"] == Column(
        "x",
        "boolean",
        from_data=("kind", "missing"),
        why="booleans in several spellings",
        fallback=False,
    )
    declared = Encoder(Schema((Column("x", "boolean", missing=True),)), 2)
    assert declared.encode(table.select(["x"])).column("x")[:3].tolist() == [1, 0, 2]


def test_columns_without_a_name_are_named_by_their_place(tmp_path):
    """As pandas writes its index."""
    (tmp_path / "export.txt").write_bytes(b",a,b,\n7,1,x,\n8,2,y,z\n")
    table = read(tmp_path / "export.txt")
    assert table.names == ("column_1", "a", "b", "column_4")
    assert table.values("column_1").tolist() == [7, 8]
    assert table.missing("column_4").tolist() == [True, False]
    (tmp_path / "twice.csv").write_bytes(b"column_2,,a\n1,2,3\n")
    with pytest.raises(DataError, match="twice: column_2"):
        read(tmp_path / "twice.csv")


def test_unreadable_frames():
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(DataError, match="twice: a"):
        read(twice)
    with pytest.raises(DataError, match="no text"):
        read(pd.DataFrame({0: [1]}))
    with pytest.raises(DataError, match="twice: a"):
        read(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    assert read(pd.DataFrame({"a": ["x", 1]})).values("a").tolist() == ["x", "1"]
    with pytest.raises(DataError, match="'a' has type List"):
        read(pl.DataFrame({"a": [[1]]}))
    with pytest.raises(DataError, match="cannot read a list"):
        read([1, 2])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_batches_give_every_row_once_in_order(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    frame = pl.DataFrame({"a": range(1000), "b": [f"v{i % 3}" for i in range(1000)]})
    write(read(frame), path)
    schema = Schema(
        (
            Column("a", "integer", low=0, high=999),
            Column("b", "categorical", ("v0", "v1", "v2")),
        )
    )
    encoder = Encoder(schema, bins=1000)
    parts = [encoder.encode(batch) for batch in read_batches(path, 300)]
    assert [part.num_rows for part in parts[:-1]] == [300] * (len(parts) - 1)
    rows = np.concatenate([part.column("a") for part in parts])
    assert rows.tolist() == list(range(1000))
    assert [t.names for t in read_batches(path, 500, columns=["b"])] == [("b",)] * 2


def test_lookup_lines_up_types(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("code,flag,level\n1,true,1.5\n2,false,2\n,,\n")
    whole = read(path)
    (text,) = read_batches(path, 10)
    for table in (whole, text):
        assert table.lookup("code", (2, 1)).tolist() == [1, 0, -1]
        assert table.lookup("code", ("1", "2")).tolist() == [0, 1, -1]
        assert table.lookup("code", (1.0, 7.0)).tolist() == [0, -2, -1]
        assert table.lookup("flag", (False, True)).tolist() == [1, 0, -1]
        assert table.lookup("level", (1.5, 2.0)).tolist() == [0, 1, -1]
        assert table.lookup("level", (1, 2)).tolist() == [-2, 1, -1]
    frame = read(pd.DataFrame({"code": [1.0, 2.0, np.nan], "name": ["1", "2", None]}))
    assert frame.lookup("code", (1, 2)).tolist() == [0, 1, -1]
    assert frame.lookup("code", ("1", "2")).tolist() == [0, 1, -1]
    assert frame.lookup("name", (1, 2)).tolist() == [0, 1, -1]


def test_numbers_of_another_type_are_refused():
    table = read(pd.DataFrame({"text": ["1", "b"], "half": [0.5, 1.0], "n": [1, 2]}))
    with pytest.raises(SchemaError, match="'text': 1 row holds text"):
        table.integers("text")
    with pytest.raises(SchemaError, match="'half': 1 row holds no whole number"):
        table.integers("half")
    with pytest.raises(SchemaError, match="'n' holds whole numbers"):
        table.datetimes("n")
    with pytest.raises(SchemaError, match="'text': 2 rows do not follow"):
        table.datetimes("text", "%Y-%m-%d")


def test_numbers_from_streamed_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n 1,0.5\n2.0,nan\n,x\n")
    (table,) = read_batches(path, 10)
    values, missing = table.integers("a")
    assert (values.tolist(), missing.tolist()) == ([1, 2, 0], [False, False, True])
    with pytest.raises(SchemaError, match="'b': 1 row holds text"):
        table.floats("b")
    values, missing = table.take([0, 1]).floats("b")
    assert (values.tolist(), missing.tolist()) == ([0.5, 0.0], [False, True])


def test_iso_text_is_read_in_its_usual_forms():
    texts = ["2020-01-02", "2020-01-02T03:04:05", "2020-01-02 03:04:05.5", "2020-01-02T03:04", None]
    values, missing = read(pl.DataFrame({"t": texts})).datetimes("t")
    moments = values.astype("datetime64[us]").astype(str).tolist()
    assert moments[:4] == [
        "2020-01-02T00:00:00.000000",
        "2020-01-02T03:04:05.000000",
        "2020-01-02T03:04:05.500000",
        "2020-01-02T03:04:00.000000",
    ]
    assert missing.tolist() == [False] * 4 + [True]


@pytest.mark.parametrize("gap", ["T", " "])
@pytest.mark.parametrize("clock", ["18:00", "18:00:00", "18:00:00.0", "18:00:00.000000"])
@pytest.mark.parametrize(("zone", "hour"), [("", 18), ("Z", 18), ("+01:00", 17), ("-0130", 19)])
def test_every_form_of_iso_text_is_read(gap, clock, zone, hour):
    table = read(pl.DataFrame({"t": [f"2020-01-02{gap}{clock}{zone}"]}))
    column = Column("t", "datetime", low="2020-01-01", high="2020-12-31", resolution="minute")
    minute = 30 * (zone == "-0130")
    cells = placed_cells(column, table)
    assert not cells.missing.any()
    minutes = np.datetime64(f"2020-01-02T{hour}:{minute:02d}", "m").astype(int)
    assert cells.values.tolist() == [minutes]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_separator_is_decided_from_the_file_and_an_encoding_is_guessed(
    tmp_path, separator, encoding
):
    path = tmp_path / "t.csv"
    lines = [["größe", "ort"], ["1.5", "Köln"], ["2.5", "Łódź" if "utf" in encoding else "Bâle"]]
    path.write_bytes("".join(separator.join(line) + "\n" for line in lines).encode(encoding))
    guessed = encoding_of(path)
    assert guessed in (encoding, "utf-8")
    table = read(path, encoding=guessed)
    assert table.names == ("größe", "ort")
    assert table.values("ort").tolist() == [lines[1][1], lines[2][1]]
    assert table.dialect.separator == separator
    assert table.dialect.header
    pieces = read_batches(path, 5, dialect=Dialect(encoding=encoding))
    assert [piece.num_rows for piece in pieces] == [2]
    given = read(path, separator=separator, encoding=encoding, header=True)
    assert given.values("größe").tolist() == table.values("größe").tolist() == [1.5, 2.5]


def test_an_umlaut_far_down_is_seen_by_the_guess_and_changes_no_other_cell(tmp_path, caplog):
    path = tmp_path / "t.csv"
    path.write_bytes("town\nZürich\n".encode() + b"Bonn\n" * 100_000 + b"K\xf6ln\n")
    assert read(path).values("town")[[0, -1]].tolist() == ["Zürich", "K\ufffdln"]
    assert "some bytes are not in utf-8" in caplog.text
    path.write_bytes(("town\n" + "Bonn\n" * 100_000 + "Köln\n").encode("latin-1"))
    assert encoding_of(path) == "cp1252"
    assert read(path, encoding="cp1252").values("town")[-1] == "Köln"


def test_names_that_are_not_in_the_encoding_are_refused_with_a_guess(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("größe,x\n1,2\n".encode("latin-1"))
    with pytest.raises(DataError, match="not in utf-8; declare the encoding, such as cp1252"):
        read(path)


WESTERN = "MÜLLER élève École «été» l’œuvre ¿Qué? niño Mª ação col·legi coördinatie Åsa Þór ½ µg 3€"


@pytest.mark.parametrize("word", WESTERN.split())
def test_words_of_a_western_code_page_are_read_as_such(tmp_path, word):
    path = tmp_path / "t.csv"
    path.write_bytes(f"town,x\n{word},1\n".encode("cp1252"))
    assert read(path, encoding=encoding_of(path)).values("town").tolist() == [word]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("koi8-r", "Иван Москва"),
        ("cp1251", "Иван Москва"),
        ("cp1254", "İstanbul Şişli ışık düşük göğüs"),
        ("cp1256", "الرياض جدة"),
        ("big5", "台北 高雄"),
        ("euc-kr", "서울 부산"),
        ("shift-jis", "田中 東京"),
        ("gb18030", "北京 上海"),
        ("iso8859-7", "Αθήνα"),
        ("cp437", "Zürich König Besançon"),
        ("mac-roman", "Zoë Besançon Köln"),
    ],
)
def test_an_encoding_that_cannot_be_decided_is_not_guessed(tmp_path, encoding, text):
    path = tmp_path / "t.csv"
    path.write_bytes(b"town,x\n" + f"{text},1\n".encode(encoding) * 30)
    with pytest.raises(DataError, match=r"cannot be decided: .* Name it .*store the file") as error:
        encoding_of(path)
    candidates = re.findall(r"([\w-]+) \(", str(error.value).partition("can be read as ")[2])
    assert encoding in [*candidates, "iso8859-7", "cp437", "mac-roman"]
    assert all(path.read_bytes().decode(candidate) for candidate in candidates)
    assert read(path, encoding=encoding).values("town")[0] == text


@pytest.mark.parametrize("text", ["Köln für Zoë", "München für alle", "Äpfel für Müller"])
def test_text_of_an_old_mac_is_not_taken_for_that_of_windows(tmp_path, text):
    (tmp_path / "t.csv").write_bytes(f"town,x\n{text},1\n".encode("mac-roman") * 9)
    with pytest.raises(DataError, match="can be read as mac-roman"):
        encoding_of(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zoë élève", ("Zoë",)),
        ("Größe", ("Größe",)),  # in which mac-roman has a ligature behind a sign
        ("Kšln", ("Kšln", "Köln")),
        ("Miloš " * 9 + "MŽller", ("MŽller", "Méller")),  # 0x8e, and nine of 0x9a
        ("plain", ()),
    ],
)
def test_how_a_word_of_a_guessed_encoding_is_read(tmp_path, text, shown):
    (tmp_path / "t.csv").write_bytes(f"town,x\n{text},1\n".encode("cp1252"))
    guessed = encoding_of(tmp_path / "t.csv")
    assert readings(read(tmp_path / "t.csv", encoding=guessed)) == shown
    (tmp_path / "u.csv").write_text(f"town,x\n{text},1\n")
    assert readings(read(tmp_path / "u.csv")) == ()


def test_a_file_in_two_encodings_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"town\n" + "Zürich\n".encode() * 20 + "Zürich\n".encode("latin-1") * 5)
    first = r"not UTF-8 or UTF-16 throughout \(line 22 is the first that is not UTF-8\)"
    with pytest.raises(DataError, match=first):
        encoding_of(path)


def test_a_first_line_of_the_form_of_the_others_is_no_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("P0501,2021-03-04,m\nP0107,2021-07-01,f\nP0333,2020-01-31,f\n")
    assert not read(path).dialect.header
    path.write_text("P1,Y21,sex\nP0107,2021-07-01,f\nP0333,2020-01-31,f\n")
    assert read(path).dialect.header


def test_a_first_line_like_the_others_is_no_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("39,Private,2.5\n50,Public,1.5\n38,Private,0.5\n41,Public,3.5\n")
    table = read(path)
    assert (table.names, table.num_rows) == (("column_1", "column_2", "column_3"), 4)
    assert not table.dialect.header
    assert read(path, header=True).num_rows == 3
    assert next(iter(read_batches(path, 10))).names == table.names
    path.write_text("country,2019,2020\nA,1,2\nB,3,4\nC,5,6\n")
    assert read(path).names == ("country", "2019", "2020")
    path.write_text("0,1\n1,0\n0,1\n0,0\n")  # numbered columns
    assert read(path).names == ("0", "1")
    assert read(path, header=False).num_rows == 4


def test_decimal_commas_and_missing_values_as_declared(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('x;y\n1,5;a\n-;"-"\n2,25;b\n')
    assert read(path).kind("x") == "text"
    table = read(path, decimal=",", missing=["-"])
    assert table.values("x")[[0, 2]].tolist() == [1.5, 2.25]
    assert table.missing("y").tolist() == [False, True, False]


def test_with_decimal_commas_points_divide_thousands(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b;c;d\n12.340;1.234,5;1.5;12345678901234567890\n-1.000;7;2.25;1\n")
    table = read(path, decimal=",")
    assert table.values("a").tolist() == [12340.0, -1000.0]  # had been 12.34 and -1.0
    assert table.values("b").tolist() == [1234.5, 7.0]
    assert table.values("c").tolist() == ["1.5", "2.25"]
    assert table.values("d")[0] == "12345678901234567890"
    assert Schema.detect(table)["c"].kind == "continuous"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_lines_that_end_in_a_carriage_return_alone_are_lines(tmp_path, encoding):
    """As old Macs and some laboratory devices write them; they were one line, and no row."""
    path = tmp_path / "t.csv"
    path.write_bytes("x,ort\r1,Köln\r2,Graz\r".encode(encoding))
    assert read(path).values("x").tolist() == [1, 2]
    assert read(path).names == ("x", "ort")


def test_what_is_above_the_names_is_named_in_the_error(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("Stays of 2024\na,b\nx,y\nz,w\n")  # a, b may be a row as well
    with pytest.raises(DataError, match=r"delete lines above the names.* or count them: --skip"):
        read(path)
    assert read(path, skip=1).names == ("a", "b")
    path.write_text("Stays of 2024,,\na,b,c\nx,y,z\nz,w,v\n")
    with pytest.raises(DataError, match=r"line 1 .* names 1 of 3 columns: delete lines above"):
        read(path)
    path.write_text("Stays of 2024,,\n,,\na,b,c\n1,2,3\n3,4,5\n")
    assert read(path, header=True).names == ("Stays of 2024", "column_2", "column_3")
    path.write_text(",a,b\n0,1,2\n1,3,4\n")  # an index without a name
    assert read(path).names == ("column_1", "a", "b")
    path.write_text("a,b,c\n1,2,3\n3,4,5\n\nSource: the register\n")
    with pytest.raises(DataError, match=r"line 5 .* 1 of 3 fields.* it is a note below the rows"):
        read(path)


@pytest.mark.parametrize(
    ("above", "rows", "skip"),
    [
        ("# exported by X\n", "id,name\n1,a\n2,b\n", 1),
        ("# exported by X\r\n# on 1 May\r\n\r\n", "id,name\r\n1,a\r\n\r\n2,b\r\n", 3),
        ("sep=;\r\n", "id;name\r\n1;a\r\n2;b\r\n", 1),
        ('"sep=,"\n', "id,name\nx,a\ny,b\n", 1),
        ("# X\r", "id,name\r1,a\r2,b\r", 1),
        ("# exported by X\n", "#id,name\n1,a\n2,b\n", 1),
        ("", "#id,name\n1,a\n2,b\n", 0),
        ("# exported by X,,\n# on 1 May,,\n", "a,b,c\n1,2,3\n3,4,5\n", 2),
        ("", "#id,name\n,\n1,a\n2,b\n", 0),
        ("", '#id,name\n"1\n1",a\n2,b\n', 0),
        ("", "id,name\n#1,a\n#2,b\n", 0),
        ("", "id,name\n\n1,a\n\n2,b\n", 0),
        ("", "id\n1\n\n2\n", 0),
        ("Stays of 2024\n\n", "id,name\n1,a\n2,b\n", 2),
        ("Stays of 2024,\n,\n", "id,name\n1,a\n2,b\n", 2),
        ("Stays, by ward\n\n", "a,b,c,d,e\n1,2,3,4,5\n3,4,5,6,7\n", 2),
        ("Register\n\nAs of 2024\n# draft\n\n", "id;name\n1;a\n2;b\n", 5),
        ("Stays of 2024\n", "id,name\n1,a\n2,b\n", 1),
        ("Stays of 2024,,\nBy ward\n", "id,name,x\n1,a,NA\n2,b,0.5\n", 2),
        ("# by X, on 1 May, draft\n", "id,name,x\n1,a,5\n2,b,6\n", 1),
        ("", "#name,sex,age\nAnn,f,NA\nBob,m,30\nEve,f,20\n", 0),
        ("", "#name,sex,age\nAnn,f,old\nBob,m,30\nEve,f,20\n", 0),
        ("", "#name,sex\nAnn,f\nBob,m\nEve,f\n", 0),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_comments_and_a_title_above_the_names_are_skipped(
    tmp_path, above, rows, skip, name, encoding
):
    packed = gzip.compress if name.endswith("gz") else bytes
    (tmp_path / "bare.csv").write_bytes(rows.encode())
    (tmp_path / name).write_bytes(packed((above + rows).encode(encoding)))
    bare, table = read(tmp_path / "bare.csv"), read(tmp_path / name)
    assert table.dialect.skip == skip
    assert digest_of(table) == digest_of(bare)
    assert names_in(tmp_path / name, Dialect()) == bare.names
    lines = [bare.line(row) + skip for row in range(bare.num_rows)]
    assert [table.line(row) for row in range(table.num_rows)] == lines
    again = read(tmp_path / name, **asdict(table.dialect))
    pieces = list(read_batches(tmp_path / name, 1, dialect=table.dialect))
    assert digest_of(again) == digest_of(bare)
    assert sum(one.num_rows for one in pieces) == bare.num_rows


def test_rows_that_begin_with_a_number_sign_are_rows(tmp_path):
    (tmp_path / "t.csv").write_text("#1,a\n#2,b\n3,c\n4,d\n")
    table = read(tmp_path / "t.csv", header=False)
    assert table.num_rows == 4
    with pytest.raises(InputError, match="skip=-1 must be how many lines"):
        read(tmp_path / "t.csv", skip=-1)
    with pytest.raises(DataError, match="is empty"):
        read(tmp_path / "t.csv", skip=4)


def test_columns_at_the_end_without_a_name_or_a_value_are_left_out(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,,\n1,2,, \n,,,\n\n3,4\n5,,,\n".replace("3,4\n", "3,4,,\n"))
    table = read(path)
    assert (table.names, table.num_rows, table.left_out) == (("a", "b"), 4, 2)
    assert names_in(path, Dialect()) == table.names
    assert [one.names for one in read_batches(path, 9)] == [table.names]
    path.write_text("a,b,,\n" + "1,2,,\n" * 300 + "1,2,,7\n")
    with pytest.raises(DataError, match=r"column 4 of .* has no name, and no value in the first"):
        read(path)
    path.write_text("a,,b,\n1,,2,\n3,,4,\n")
    assert read(path).names == ("a", "column_2", "b")
    path.write_text("1,2,\n2,3,\n2,4,\n1,3,\n")
    assert read(path, header=False).names == ("column_1", "column_2", "column_3")


def test_a_folder_whose_files_differ_is_refused_in_plain_words(tmp_path):
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "1.parquet")
    for other in ({"a": [1.5]}, {"a": [1], "b": [2]}):
        pl.DataFrame(other).write_parquet(tmp_path / "2.parquet")
        with pytest.raises(DataError, match="must have the same columns, of the same types") as no:
            read(tmp_path)
        assert "hint" not in str(no.value)


def test_no_digit_is_lost_of_what_is_no_number(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("account,sold\n12345678901234567890,1.250\n1,20\n22,3.000\n")
    table = read(path)
    assert table.values("account")[0] == "12345678901234567890"
    assert table.values("sold").tolist() == ["1.250", "20", "3.000"]  # thousands


def test_thousands_of_points_are_read_where_no_small_number_is_beside_them(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("sold\n12.340\n1.000\n")
    (batch,) = read_batches(path, 5)
    for table in (read(path), batch):
        assert table.integers("sold", "1.234")[0].tolist() == [12340, 1000]
        assert table.floats("sold", "1.234,5")[0].tolist() == [12340.0, 1000.0]
    assert read(path).floats("sold")[0].tolist() == [12.34, 1.0]


def test_columns_that_a_table_cannot_hold_can_be_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1, "tags": ["p", "q"], "y": "u"}\n' * 3)
    assert read(path).values("tags")[0] == '["p", "q"]'
    assert read(path, columns=["y", "x"]).names == ("y", "x")
    assert names_in(path, Dialect()) == ("x", "tags", "y")
    with pytest.raises(DataError, match="no column 'z'; it has x, tags, y"):
        read(path, columns=["x", "z"])


def test_other_files(tmp_path):
    frame = pl.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]})
    frame.write_csv(tmp_path / "t.csv.zst", compression="zstd")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(frame.write_csv().encode()))
    (tmp_path / "t.tsv").write_text(frame.write_csv(separator="\t"))
    frame.write_ndjson(tmp_path / "t.jsonl")
    frame.write_ipc(tmp_path / "t.arrow")
    (tmp_path / "parts").mkdir()
    frame[:1].write_parquet(tmp_path / "parts" / "1.parquet")
    frame[1:].write_parquet(tmp_path / "parts" / "2.parquet")
    for name in ("t.csv.zst", "t.csv.gz", "t.tsv", "t.jsonl", "t.arrow", "parts"):
        table = read(tmp_path / name)
        assert table.values("a").tolist() == [1, 2, 3], name
        assert table.missing("b").tolist() == [False, True, False], name
        assert sum(batch.num_rows for batch in read_batches(tmp_path / name, 2)) == 3, name
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"a folder without \.parquet files"):
        read(tmp_path / "empty")


def test_filled_cells_fit_their_column_and_others_stay(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('a;b;c;d\n 1;1,50;;x\n;;;\n3;2,25;;"y, z"\n')
    table = read(path, decimal=",")
    for name, cell in [("a", 2), ("b", 0.5), ("c", 7), ("d", "w")]:
        table = table.filled(name, np.array([1]), pl.Series([cell]))
    assert [table.cells(name)[1] for name in "abcd"] == ["2", "0,50", "7", "w"]
    assert table.cells("a").to_list() == [" 1", "2", "3"]
    assert table.values("b").tolist() == [1.5, 0.5, 2.25]
    assert table.kind("a") == "whole numbers"

    frame = pd.DataFrame({"n": [1.0, np.nan], "c": pd.Categorical(["u", None], ["u", "v"])})
    whole = read(frame).filled("n", np.array([1]), pl.Series([4]))
    back = whole.filled("c", np.array([1]), pl.Series(["v"])).to_native()
    assert back["n"].tolist() == [1.0, 4.0]
    assert (back.dtypes == frame.dtypes).all()
    numbers = read(pl.DataFrame({"n": pl.Series([1, None], dtype=pl.Int8)}))
    assert numbers.filled("n", np.array([1]), pl.Series([2])).to_native()["n"].dtype == pl.Int8
    half = numbers.filled("n", np.array([1]), pl.Series([2.5])).to_native()["n"]
    assert half.to_list() == [1.0, 2.5]


def test_a_file_that_begins_with_many_blank_lines_says_what_to_declare(tmp_path):
    file = tmp_path / "blank.csv"
    file.write_text("\n" * 300 + "age,pay\n30,1.5\n")
    with pytest.raises(DataError, match=r"first 200 lines are blank.*skip="):
        read(file)
    assert read(file, skip=300).names == ("age", "pay")


def test_ranges_that_pandas_cut_numbers_into_are_categories():
    ages = pd.cut(pd.Series(range(60)), [-1, 17, 64])
    age = Schema.detect(pd.DataFrame({"age": ages}))["age"]
    assert (age.kind, age.categories) == ("categorical", ("(-1, 17]", "(17, 64]"))
    codes = Encoder(Schema((age,)), 16).encode(read(pd.DataFrame({"age": ages}))).column("age")
    assert np.bincount(codes).tolist() == [18, 42]


def test_a_signalling_nan_is_a_missing_value():
    paid = [Decimal("sNaN"), *(Decimal(n) / 2 for n in range(40))]
    table = read(pd.DataFrame({"paid": paid}))
    assert table.missing("paid").tolist() == [True] + [False] * 40
    assert Schema.detect(table)["paid"].high == 19.5


def test_a_signalling_nan_leaves_other_cells_as_they_are():
    cells = [2**60 + 1, 5]
    for missing in (None, Decimal("sNaN")):
        frame = pd.DataFrame({"paid": pd.Series([*cells, missing], dtype=object)})
        assert read(frame).cells("paid").to_list() == [*cells, None]


def test_bytes_of_pandas_are_text():
    table = read(pd.DataFrame({"town": ["Zürich".encode(), b"Bern", None]}))
    assert table.values("town").tolist() == ["Zürich", "Bern", None]


@pytest.mark.parametrize(
    "cells",
    [
        [date(2024, 1, 31), date(2024, 2, 1), None],
        [time(8, 30), time(18, 5), None],
        [Decimal("1.50"), Decimal("80.00"), None],
        [Decimal("1.5"), Decimal(80)],
    ],
    ids=["dates", "times of day", "decimals of one length", "decimals"],
)
def test_objects_of_pandas_come_back_as_such_objects(cells):
    frame = pd.DataFrame({"x": pd.Series(cells, dtype=object)})
    back = read(frame).to_native()
    assert back["x"].tolist() == cells
    assert list(map(str, back["x"])) == list(map(str, cells))


@pytest.mark.parametrize("odd", ["Infinity", f"{10**30}.00"])
def test_decimals_that_cannot_be_written_alike_come_back_as_numbers(odd):
    frame = pd.DataFrame({"x": pd.Series([Decimal(odd), Decimal("1.50")], dtype=object)})
    assert read(frame).to_native()["x"].tolist() == [float(odd), 1.5]


def test_times_of_day_of_polars_come_back():
    frame = pl.DataFrame({"x": [time(8, 30), None]})
    assert read(frame).to_native().equals(frame)


def test_whole_numbers_beyond_int64_are_identifiers():
    numbers = [2**63 + 7919 * row for row in range(60)]
    for frame in (
        pl.DataFrame({"key": pl.Series(numbers, dtype=pl.UInt64)}),
        pd.DataFrame({"key": np.array(numbers, dtype=np.uint64)}),
    ):
        assert Schema.detect(frame)["key"].kind == "id"
        assert read(frame).to_native()["key"].to_list() == numbers


def test_a_single_column_is_refused_in_plain_words():
    for series in (pd.Series([1, 2], name="x"), pl.Series("x", [1, 2])):
        with pytest.raises(DataError, match="cannot read a Series"):
            read(series)


def test_a_named_index_of_pandas_is_said_to_be_no_column(recwarn):
    frame = pd.DataFrame({"who": ["a", "b"], "x": [1, 2]})
    assert read(frame[frame["x"] > 1]).names == ("who", "x")
    assert read(frame.set_index("who", drop=False)).num_rows == 2
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"index 'who' .*reset_index"):
        assert read(frame.set_index("who")).names == ("x",)


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_an_unnamed_index_that_pandas_stored_is_no_column(tmp_path, ending, recwarn):
    path = tmp_path / f"rows.{ending}"
    frame = pd.DataFrame({"x": [1, 2, 2, 1] * 5, "who": [f"p{i}" for i in range(20)]})
    selected = frame[frame["x"] > 1]
    sources = [path, pa.Table.from_pandas(selected), pl.from_arrow(pa.Table.from_pandas(selected))]
    getattr(selected, f"to_{ending}")(path)
    for source in sources:
        with pytest.warns(UserWarning, match=r"index of pandas .* no name, .* drawn rows lack it"):
            table = read(source)
        assert table.names == ("x", "who")
    recwarn.clear()
    assert Schema.detect(table).names == ("x", "who")
    assert read(path, names=("x", "who")).num_rows == 10
    assert names_in(path, Dialect()) == ("x", "who")
    assert next(read_batches(path, 5)).names == ("x", "who")
    # One with a name is a column of the file, whoever reads it.
    getattr(frame.set_index("who"), f"to_{ending}")(path)
    assert read(path).names == ("x", "who")
    assert not recwarn.list


def test_an_empty_column_name_is_said_to_be_empty():
    with pytest.raises(DataError, match=r"empty, or no text: \[''\]"):
        read(pd.DataFrame({"": [1]}))


@pytest.mark.parametrize("values", [("a", "b"), (True, False), ("a", 1), (1.5, 2.5)])
def test_every_missing_object_of_a_pandas_column_is_a_missing_cell(values):
    cells = [*values, None, np.nan, pd.NA, pd.NaT, Decimal("nan")] * 9
    frame = pd.DataFrame({"x": pd.Series(cells, dtype=object)})
    for source in (frame, frame.astype("category")):
        assert read(source).missing("x")[:7].tolist() == [False] * 2 + [True] * 5


@pytest.mark.parametrize(
    "nested",
    [{"a": 1}, [1, 2], (1, 2), {1, 2}, frozenset({1}), np.array([1, 2]), []],
    ids=lambda value: type(value).__name__,
)
def test_a_schema_is_proposed_for_no_column_of_nested_objects(nested):
    cells = pd.Series([None, "a", nested, nested], dtype=object)
    frame = pd.DataFrame({"n": range(4), "tags": cells})
    said = r"'tags' holds lists .*\(first in row 3, counted from 1\).*one column for each part"
    with pytest.raises(DataError, match=said):
        Schema.detect(frame)
    with pytest.raises(DataError, match="'marks' holds lists"):
        Schema.detect(read(frame).renamed({"tags": "marks"}))
    assert Schema.detect(frame[["n"]]).names == ("n",)
    # Under a schema it is a cell like any other that does not fit.
    tags = Column("tags", "categorical", categories=("a", "-"), other="-", missing=True)
    codes = Encoder(Schema((tags,)).placed()).encode(read(frame).select(["tags"]))
    assert codes.column("tags").tolist() == [2, 0, 1, 1]


def test_frames_of_polars_and_arrow_refuse_nested_columns_with_the_same_advice():
    frame = pl.DataFrame({"tags": [[1], [2]]})
    structs = pl.DataFrame({"tags": [{"a": 1}, {"a": 2}]})
    of_arrow = pd.DataFrame({"tags": pd.array([[1], [2]], pd.ArrowDtype(pa.list_(pa.int64())))})
    for source in (frame, structs, frame.to_arrow(), of_arrow):
        with pytest.raises(DataError, match=r"'tags' .*cannot hold; make one column for each part"):
            Schema.detect(source)


def test_a_frame_of_any_library_with_a_nameless_column_is_refused():
    """Polars itself would call it column_0."""
    frame = pl.DataFrame({"": [1, 2], "a": [3, 4]})
    for source in (frame, frame.to_arrow(), pd.DataFrame({"": [1, 2], "a": [3, 4]})):
        with pytest.raises(DataError, match=r"names that are empty, or no text: \[''\]; rename"):
            read(source)


def test_a_column_of_complex_numbers_is_refused_with_what_to_do():
    frame = pd.DataFrame({"n": [1, 2], "z": [1 + 2j, 3j]})
    with pytest.raises(DataError, match=r"'z' has type complex128, .*one of the imaginary parts"):
        Schema.detect(frame)


@pytest.mark.parametrize(
    "values", [("1", '{"a": 2}'), ('"a"', '["b"]'), ("null", "[]"), ("1", "[1]"), ('"[1]"', "[2]")]
)
def test_a_schema_is_proposed_for_no_nested_values_of_json_lines(tmp_path, values):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(f'{{"n": {row}, "tags": {v}}}' for row, v in enumerate(values)))
    with pytest.raises(DataError, match=r"'tags' holds lists .*first in row 2"):
        Schema.detect(path)
    assert Schema.detect(read(path, columns=["n"])).names == ("n",)


def test_texts_of_json_lines_that_look_like_lists_are_texts(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"tags": "[1]"}\n\n{"tags": "{}"}\n' * 20)
    assert Schema.detect(path)["tags"].categories == ("[1]", "{}")


def test_a_categorical_column_without_any_value_comes_back_in_its_type():
    gaps = pd.Series([None] * 20)
    frame = pd.DataFrame(
        {
            "gap": gaps.astype("category"),
            "ordered": gaps.astype(pd.CategoricalDtype(["a", "b"], ordered=True)),
            "number": pd.Series([*range(10)] * 2).astype("category"),
            "x": ["a", "b"] * 10,
        }
    )
    number = Column("number", "integer", low=0, high=9)
    schema = Schema.detect(frame)
    schema = Schema(tuple(number if c.name == "number" else c for c in schema.columns))
    drawn = sw.GaussianCopula().fit(frame, schema).sample(5, seed=0)
    assert drawn["gap"].dtype == "category"
    assert drawn["ordered"].dtype == pd.CategoricalDtype([], ordered=True)
    assert drawn["number"].dtype == "int64"

    enum = pl.DataFrame({"gap": pl.Series([None] * 20, dtype=pl.Enum(["a"])), "x": [1, 2] * 10})
    drawn = sw.GaussianCopula().fit(enum, Schema.detect(enum)).sample(5, seed=0)
    assert drawn["gap"].dtype == pl.Enum([])
