"""A privacy claim begins at the file: one row more changes how no other row is read.

Each source is written without and with one odd row, read, and coded by one schema. Counts of every
column differ by that row alone.
"""

import csv
import datetime as dt
import io
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from siloweave.errors import SchemaError
from siloweave.tables import Column, Encoder, Schema, read

KINDS = {
    "age": Column("age", "integer", low=0, high=99, missing=True),
    "visits": Column(
        "visits", "integer", low=-5, high=50, fallback=0, missing_values=("-9", "unknown")
    ),
    "weight": Column("weight", "continuous", low=0, high=300, missing=True),
    "price": Column("price", "continuous", low=-10, high=5000, fallback=0, format="1.234,5"),
    "ward": Column("ward", "categorical", ("1", "2", "A", "Zürich", "rest"), other="rest"),
    "code": Column("code", "categorical", (1, 2, 3), missing=True, missing_values=("-9",)),
    "dose": Column("dose", "categorical", (0.5, 1.0, 1.5), fallback=0.5),
    "smoker": Column("smoker", "boolean", missing=True),
    "answer": Column("answer", "boolean", ("N", "Y"), fallback="N"),
    "born": Column(
        "born", "datetime", low="1900-01-01", high="2030-12-31", format="%d.%m.%Y", missing=True
    ),
    "seen": Column("seen", "datetime", low="1990-01-01", high="2030-12-31", fallback="1990-01-01"),
}  # fmt: skip
SCHEMA = Schema(tuple(KINDS.values())).placed()
ROWS = {
    "age": ["41", "7", " 12", "41", "99"],
    "visits": ["3", "-9.0", "4", "-5", "0"],
    "weight": ["70.5", "71", "3.25", "80", "299.9"],
    "price": ["1.234,5", "12", "-1,5", "4.000", "0"],
    "ward": [" 1", " 2", "A", "Zürich", "1"],
    "code": ["1", "2", " 3", "-9", "2"],
    "dose": ["0.5", "1", "1.50", "1.0", "0.5"],
    "smoker": ["true", "False", "1", "0", "TRUE"],
    "answer": ["Y", "N", "N", " Y", "Y"],
    "born": ["31.01.1980", "01.02.1990", "05.05.2005", "31.12.2030", "01.01.1900"],
    "seen": ["2020-01-31", "2021-02-28", "2020-01-31 10:27:00", "1990-01-01", "2030-12-31"],
}
ODD = (
    "", " ", "?", "NA", "NULL", "unknown", "nan", "NaN", "inf", "-inf", "-0", "+1", "01", " 1 ",
    "1.0", "1.5", "2.5", "1e3", "1e308", "1e400", "-9", "-9.0", "-99", "1,5", "1.234", "1.234,5",
    "true", "TRUE", "False", "yes", "A", "a", " A", "A ", "ä", "Zürich", "2020-01-31", "31.01.2020",
    "2020-02-30", "20200131", "0198-01-01", "9223372036854775807", "99999999999999999999", "\ufffd",
    'a"b', "a,b;c|d", "\u00a0", "x" * 300,
)  # fmt: skip
"""Cells that a file may have anywhere."""


def counts(source, schema=SCHEMA, **declared):
    """How many rows have each code, by column; or the refusal."""
    try:
        codes = Encoder(schema, 16).encode(read(source, **declared))
    except SchemaError as error:
        return str(error)
    sizes = zip(codes.domain.names, codes.domain.sizes, strict=True)
    return {name: np.bincount(codes.column(name), minlength=size) for name, size in sizes}


def assert_one_row_apart(before, after):
    assert set(before) == set(after)
    changes = {name: after[name] - count for name, count in before.items()}
    assert all(change.min() >= 0 for change in changes.values()), changes
    rows = {int(change.sum()) for change in changes.values()}
    assert rows in ({1}, {0}), changes  # an empty last line of a sheet is no row


# Sources: each writes columns of texts, and says how they are read


def delimited(mark, encoding="utf-8", **declared):
    def written(columns, folder):
        text = io.StringIO()
        writer = csv.writer(text, delimiter=mark, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        path = Path(folder) / "rows.csv"
        path.write_bytes(text.getvalue().encode(encoding, "replace"))
        return path, {"separator": mark, "encoding": encoding, **declared}

    return written


def lines_of_json(columns, folder):
    path = Path(folder) / "rows.jsonl"
    pl.DataFrame(columns).write_ndjson(path)
    return path, {}


def values_in_json(columns, folder):
    """Numbers and booleans as JSON has them."""
    rows = zip(*columns.values(), strict=True)
    lines = ["{" + ",".join(map(pair, columns, row)) + "}" for row in rows]
    path = Path(folder) / "rows.ndjson"
    path.write_text("\n".join(lines) + "\n")
    return path, {}


def pair(name, text):
    try:
        plain = np.isfinite(float(text)) and float(text) == float(repr(float(text)))
    except ValueError:
        plain = text in ("true", "false", "null")
    plain = plain and text.strip() == text and not text.startswith(("+", "0", "-0"))
    value = text if plain and "x" not in text else pl.Series([text]).to_frame("v").write_ndjson()
    return f'"{name}":{value}' if plain else f'"{name}":{value.strip()[5:-1]}'


def sheet(columns, folder):
    pytest.importorskip("fastexcel", reason="pip install 'siloweave[excel]'")
    from tests.tables.test_excel import workbook

    cells = [
        list(columns),
        *(list(map(excel_cell, row)) for row in zip(*columns.values(), strict=True)),
    ]
    return workbook(Path(folder) / "rows.xlsx", {"S": cells}), {}


def excel_cell(text):
    """A number where Excel would make one of what is typed."""
    if text == "":
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return number if np.isfinite(number) and text.strip() == text else text


def python_value(text):
    """What pandas would make of a field, each by itself."""
    if text in ("", "NA", "NULL", "nan", "NaN"):
        return None
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if abs(value) < 2**63 else text
    return {"true": True, "TRUE": True, "False": False}.get(text, text)


def in_pandas(columns, folder):
    """Frames whose types follow from all their cells, as pandas has them."""
    return pd.DataFrame({n: list(map(python_value, cells)) for n, cells in columns.items()}), {}


def texts_in_pandas(columns, folder):
    return pd.DataFrame(columns), {}


def in_polars(columns, folder):
    return pl.DataFrame(columns), {}


def in_arrow(columns, folder):
    return pa.table(columns), {}


def in_parquet(columns, folder):
    pl.DataFrame(columns).write_parquet(Path(folder) / "rows.parquet")
    return Path(folder) / "rows.parquet", {}


def texts_in_stata(columns, folder):
    pyreadstat = pytest.importorskip("pyreadstat", reason="pip install 'siloweave[stats]'")
    path = Path(folder) / "rows.dta"
    pyreadstat.write_dta(pd.DataFrame(columns), str(path))
    return path, {}


def texts_in_spss(columns, folder):
    pyreadstat = pytest.importorskip("pyreadstat", reason="pip install 'siloweave[stats]'")
    path = Path(folder) / "rows.sav"
    pyreadstat.write_sav(pd.DataFrame(columns), str(path))
    return path, {}


SOURCES = {
    "commas": delimited(","),
    "semicolons, decimal commas": delimited(";", decimal=","),
    "tabs": delimited("\t"),
    "bars, UTF-16": delimited("|", "utf-16"),
    "cp1252, marks of missing values": delimited(",", "cp1252", missing=("?", "NA")),
    "Excel": sheet,
    "JSON lines of texts": lines_of_json,
    "JSON lines of values": values_in_json,
    "pandas": in_pandas,
    "pandas of texts": texts_in_pandas,
    "polars": in_polars,
    "Arrow": in_arrow,
    "Parquet": in_parquet,
    "SPSS": texts_in_spss,
    "Stata": texts_in_stata,
}


@pytest.mark.parametrize("name", SOURCES)
def test_one_row_more_changes_how_no_other_row_is_read(name, tmp_path):
    def made(columns):
        source, declared = SOURCES[name](columns, tmp_path)
        return counts(source, **declared)

    before = made(ROWS)
    assert all(count.sum() == 5 for count in before.values())
    for odd in ODD:
        assert_one_row_apart(before, made({n: [*cells, odd] for n, cells in ROWS.items()}))


def test_the_odd_row_may_stand_anywhere(tmp_path):
    before = counts(*delimited(",")(ROWS, tmp_path)[:1])
    for odd in ("?", "1.5", "1,5", "unknown", "Zürich", "2020-01-31"):
        for place in (0, 2):
            columns = {n: [*c[:place], odd, *c[place:]] for n, c in ROWS.items()}
            assert_one_row_apart(before, counts(delimited(",")(columns, tmp_path)[0]))


@pytest.mark.parametrize("broken", [b"\xfc", b"\xe4\xf6", b"\x81", b"\xc3"])
def test_a_byte_that_is_not_in_the_encoding_changes_its_own_cell(tmp_path, broken):
    path = tmp_path / "rows.csv"
    rows = "ward\n" + "Zürich\n" * 50
    schema = SCHEMA.select(["ward"])
    path.write_bytes(rows.encode())
    before = counts(path, schema)
    assert before["ward"].tolist() == [0, 0, 0, 50, 0]
    path.write_bytes(rows.encode() + b"Z" + broken + b"rich\n")
    assert counts(path, schema)["ward"].tolist() == [0, 0, 0, 50, 1]


def test_the_examples_of_the_issue_keep_their_counts(tmp_path):
    """Codes " 1" and " 2" beside "?"; "-9.0" beside "unknown"; "1.234" beside "1.5"."""
    path = tmp_path / "rows.csv"

    def code_counts(column, cells, **declared):
        path.write_text("x\n" + "".join(f'"{cell}"\n' for cell in cells))
        return counts(path, Schema((column,)).placed(), **declared)["x"].tolist()

    codes = Column("x", "categorical", ("1", "2", "?"), other="?")
    assert code_counts(codes, [" 1"] * 50 + [" 2"] * 50) == [50, 50, 0]
    assert code_counts(codes, [" 1"] * 50 + [" 2"] * 50 + ["?"]) == [50, 50, 1]

    number = Column("x", "integer", low=0, high=1, missing=True, missing_values=("-9", "unknown"))
    assert code_counts(number, ["-9.0"] * 30 + ["1"] * 20) == [0, 20, 30]
    assert code_counts(number, ["-9.0"] * 30 + ["1"] * 20 + ["unknown"]) == [0, 20, 31]

    pay = Column("x", "continuous", low=0, high=1600, missing=True)
    thousands = ["1.234"] * 10
    commas = {"separator": ";", "decimal": ","}
    expected = code_counts(pay, thousands, **commas)
    assert expected[12] == 10  # 1,234 lies in the bin from 1,200 on
    one_more = code_counts(pay, [*thousands, "1.5"], **commas)
    assert np.subtract(one_more, expected).tolist() == [0] * 16 + [1]  # no number there


def test_a_key_that_one_line_of_json_has_alone_changes_nothing(tmp_path):
    path = tmp_path / "rows.jsonl"
    lines = '{"age": 41}\n{"age": 7}\n'
    schema = SCHEMA.select(["age", "ward"])
    path.write_text(lines)
    before = counts(path, schema)
    path.write_text(lines + '{"age": 7, "more": [1, {"a": 2}], "ward": "A"}\n')
    assert_one_row_apart(before, counts(path, schema))
    assert read(path).select(["code", "age"]).missing("code").all()


@pytest.mark.parametrize("value", ['[1, {"a": 2}]', "[[]]", '{"a": [1]}', "true"])
def test_a_value_of_json_that_is_like_no_other_is_one_cell(tmp_path, value):
    """No type fits a number and a list, and the file was none of a table."""
    path = tmp_path / "rows.jsonl"
    lines = '{"age": 41, "ward": "A"}\n{"age": 7}\n'
    schema = SCHEMA.select(["age", "ward"])
    path.write_text(lines)
    before = counts(path, schema, names=schema.names)
    for text in (f'{lines}{{"age": {value}}}\n', f'{{"age": {value}}}\n{lines}'):
        path.write_text(text)
        assert_one_row_apart(before, counts(path, schema, names=schema.names))


def test_what_refuses_by_choice_refuses_every_table_alike():
    """Neighbours that both hold such a cell are refused with one sentence."""
    strict = Schema((Column("x", "integer", low=0, high=9, outside="refuse"),)).placed()
    for cells in (["1", "a"], ["1", "3", "a"]):
        with pytest.raises(SchemaError, match="'x': 1 row holds text"):
            Encoder(strict).encode(pl.DataFrame({"x": cells}))


def test_every_cell_has_one_place(tmp_path):
    """A few right values, so that the property cannot hold by counting everything as missing."""
    encoder = Encoder(SCHEMA.select(["age", "visits", "ward", "code", "smoker"]), 128)
    cells = ["7.6", "-3", "250", "inf", "abc", ""]
    frame = pl.DataFrame(dict.fromkeys(encoder.domain.names, cells))
    codes = encoder.read(frame)
    ages = codes.codes.column("age").tolist()
    assert ages == [8, 0, 99, 99, 100, 100]  # rounded, clipped, and missing
    visits = codes.codes.column("visits").tolist()
    assert visits == [13, 2, 55, 55, 5, 5]  # from -5 on; what is no number counts as 0
    assert codes.codes.column("ward").tolist() == [4] * 6
    assert codes.codes.column("code").tolist() == [3] * 6
    assert codes.moved == {"age": 6, "visits": 5, "ward": 6, "code": 6, "smoker": 6}


def test_names_that_are_known_cut_a_file_into_cells_whatever_its_rows_are(tmp_path):
    """Rows that would turn a guess at the separator, or at the line of names, change nothing."""
    path = tmp_path / "rows.csv"
    schema = Schema(
        (
            Column("town;a", "categorical", ("x", "y"), other="y"),
            Column("kind", "categorical", ("p", "q"), other="q"),
        )
    ).placed()
    title = "Report of 2020\n\n"
    rows = 'town;a,kind\nx,p\n"y;1",q\n'
    for text in (rows, title + rows):
        path.write_text(text)
        before = counts(path, schema, names=schema.names)
        assert before["kind"].tolist() == [1, 1]
        for odd in ("kind,town;a", "x;1;2;3;4;5,p", "1,2", ","):
            path.write_text(text + f"{odd}\n" * 1)
            assert_one_row_apart(before, counts(path, schema, names=schema.names))


@pytest.mark.parametrize("title", ["", "Report of 2020\n\n", "# age, sex\n", ",,,\n"])
@pytest.mark.parametrize("names", ["age,ward", "age", "ward,age,visits"])
def test_a_row_that_holds_names_of_columns_is_no_line_of_names(tmp_path, title, names):
    """The line with most known names was taken for theirs, and all rows above it were gone."""
    path = tmp_path / "rows.csv"
    known = ("age", "ward", "visits", "weight")
    kinds = [column for column in SCHEMA.columns if column.name in names.split(",")]
    schema = Schema(tuple(kinds))
    width = names.count(",") + 1
    rows = "".join(",".join([str(number)] * width) + "\n" for number in range(1, 4))
    path.write_text(f"{title}{names}\n{rows}")
    before = counts(path, schema, names=known)
    # A line of another number of fields is no row, and refused.
    cells = known[::-1][:width]
    texts = ["age;ward;visits;weight" if width > 1 else "weight"] + [""] * (width - 1)
    for odd in (cells, texts):
        path.write_text(f"{title}{names}\n{rows}{','.join(odd)}\n")
        assert_one_row_apart(before, counts(path, schema, names=known))


def test_a_column_without_a_name_is_none_of_the_schema_whatever_a_row_has_there(tmp_path):
    path = tmp_path / "rows.csv"
    schema = SCHEMA.select(["age", "ward"])
    path.write_text("age,ward,\n41,A,\n7,1,\n")
    before = counts(path, schema, names=schema.names)
    path.write_text("age,ward,\n41,A,\n7,1,\n8,2,note\n")
    assert_one_row_apart(before, counts(path, schema, names=schema.names))


def test_a_line_break_in_a_cell_is_no_end_of_all_lines(tmp_path):
    """A file of an old Macintosh had no row at all once a cell of it held a line feed."""
    path = tmp_path / "rows.csv"
    schema = SCHEMA.select(["age", "ward"])
    for end, other in (("\r", "\n"), ("\n", "\r"), ("\r\n", "\n"), ("\r\n", "\r")):
        for title in ("", f"Report{end}{end}"):
            lines = [f"{title}age,ward", "41,A", "7,1", ""]
            path.write_text(end.join(lines), newline="")
            before = counts(path, schema, names=schema.names)
            for row in (f'8,"a{other}b"', f'"{other}",A', "8,"):
                for place in (1, 3):
                    more = end.join([*lines[:place], row, *lines[place:]])
                    path.write_text(more, newline="")
                    after = counts(path, schema, names=schema.names)
                    assert_one_row_apart(before, after)
                    assert after["ward"].sum() == 3


@pytest.mark.parametrize(("end", "other"), [("\r", "\n"), ("\n", "\r"), ("\r\n", "\r")])
def test_a_missing_last_value_finds_no_fault_with_marks_in_other_lines(tmp_path, end, other):
    """It makes lines be counted, and these were cut at each mark that ends a line anywhere."""
    path = tmp_path / "rows.csv"
    schema = SCHEMA.select(["age", "ward"])
    lines = ["age,ward", f"4{other}1,A", "7,1", f'8,"{other}"', ""]
    path.write_text(end.join(lines), newline="")
    before = counts(path, schema, names=schema.names)
    assert before["ward"].sum() == 3
    for more in (["8,"], ["8,", ""]):
        path.write_text(end.join([*lines[:-1], *more, ""]), newline="")
        assert_one_row_apart(before, counts(path, schema, names=schema.names))


class Answer(Enum):
    YES = "yes"
    SEVEN = 7


OBJECTS = (
    7, 2**53 + 1, 2**70, True, 1e-7, 0.5, 1e22, np.float32(0.1), Decimal("1.50"), b"7", "7", None,
    dt.date(2020, 1, 31), dt.datetime.fromisoformat("2020-01-31T10:05"), dt.time(10, 5), [7],
    dt.time(10, 5, 0, 6), dt.timedelta(days=2), dt.timedelta(hours=-1, microseconds=5),
    dt.timedelta(days=999_999_999), pd.Timedelta(hours=1), np.timedelta64(90, "s"), Decimal("NaN"),
    Decimal("1e400"), Fraction(1, 2), np.longdouble(0.5), np.array([1, 2]), Answer.YES,
    Answer.SEVEN, np.datetime64("2020-01-31"),
)  # fmt: skip


@pytest.mark.parametrize("cell", OBJECTS, ids=repr)
def test_an_object_of_pandas_is_read_whatever_objects_stand_beside_it(cell):
    """A day was none under a declared format, and a Decimal another category, beside a text."""

    def readings(*cells):
        table = read(pd.DataFrame({"x": pd.Series(cells, dtype=object)}))
        columns = (
            table.labels("x", str),
            table.labels("x", bool),
            table.numbers("x"),
            table.numbers("x", "hours"),
            table.whole_numbers("x")[0],
            table.times("x"),
            table.times("x", "%d.%m.%Y"),
        )
        return [column[0] for column in columns]

    alone = readings(cell, cell)
    for other in OBJECTS:
        assert str(readings(cell, other)) == str(alone)


def test_durations_are_numbers_also_beside_a_text():
    schema = Schema((Column("stay", "integer", low=0, high=9, missing=True, format="hours"),))
    hours = [dt.timedelta(hours=number) for number in (1, 2, 3)]
    for odd in ("x", 5, dt.timedelta(seconds=30), Answer.YES):
        frame = pd.DataFrame({"stay": pd.Series([*hours, odd], dtype=object)})
        codes = Encoder(schema.placed(), 10).encode(read(frame))
        assert codes.column("stay").tolist()[:3] == [1, 2, 3]


@pytest.mark.parametrize("odd", [[5, "A", "note"], [1e308, 1e19], [5]], ids=str)
def test_a_row_of_a_sheet_decides_neither_its_columns_nor_whether_it_is_read(tmp_path, odd):
    pytest.importorskip("fastexcel", reason="pip install 'siloweave[excel]'")
    from tests.tables.test_excel import workbook

    schema = SCHEMA.select(["age", "ward"])
    rows = [["age", "ward"], [41, "A"], [7, 1], [8.0, "1"]]
    path = tmp_path / "rows.xlsx"
    before = counts(workbook(path, {"S": rows}), schema, names=schema.names)
    after = counts(workbook(path, {"S": [*rows, odd]}), schema, names=schema.names)
    assert_one_row_apart(before, after)
    # Without a line of names, columns are called by their places.
    assert read(workbook(path, {"S": [*rows[1:], odd]}), header=False).num_rows == 4
