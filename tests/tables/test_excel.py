"""Sheets of Excel files: read with their types, and refused where they are no table."""

import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from siloweave.app.init import propose
from siloweave.errors import DataError, InputError
from siloweave.tables.codes import Encoder
from siloweave.tables.column import Column
from siloweave.tables.dialect import Dialect
from siloweave.tables.read import read
from siloweave.tables.schema import Schema

pytest.importorskip("fastexcel", reason="pip install 'siloweave[excel]'")

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def workbook(
    path: Path, sheets: dict[str, list[list[object]]], merged: str = "", shown: str = ""
) -> Path:
    """A file as Excel writes it, with some sheets; None is an empty cell.

    Numbers are shown in a format of Excel's if one is given, such as [h]:mm:ss.
    """
    names = list(sheets)
    ids = range(1, len(names) + 1)
    listed = "".join(
        f'<sheet name="{n}" sheetId="{i}" r:id="r{i}"/>' for i, n in zip(ids, names, strict=True)
    )
    links = "".join(
        f'<Relationship Id="r{i}" Type="{OFFICE}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i in ids
    )
    kinds = "".join(
        f'<Override PartName="/xl/worksheets/sheet{i}.xml" ContentType="{TYPE}.worksheet+xml"/>'
        for i in ids
    )
    if shown:
        links += f'<Relationship Id="rs" Type="{OFFICE}/styles" Target="styles.xml"/>'
        kinds += f'<Override PartName="/xl/styles.xml" ContentType="{TYPE}.styles+xml"/>'
    with zipfile.ZipFile(path, "w") as file:
        if shown:
            file.writestr(
                "xl/styles.xml",
                f'<styleSheet xmlns="{MAIN}"><numFmts count="1"><numFmt numFmtId="164" '
                f'formatCode="{shown}"/></numFmts><cellXfs count="1"><xf numFmtId="164"/></cellXfs>'
                "</styleSheet>",
            )
        file.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType='
            '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName='
            f'"/xl/workbook.xml" ContentType="{TYPE}.sheet.main+xml"/>{kinds}</Types>',
        )
        file.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
            f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        file.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{listed}</sheets></workbook>',
        )
        file.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{PACKAGE}/relationships">{links}</Relationships>',
        )
        for i, rows in zip(ids, sheets.values(), strict=True):
            lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
            if shown:
                lines = lines.replace("<c><v>", '<c s="0"><v>')
            joined = f'<mergeCells><mergeCell ref="{merged}"/></mergeCells>' if merged else ""
            file.writestr(
                f"xl/worksheets/sheet{i}.xml",
                f'<worksheet xmlns="{MAIN}"><sheetData>{lines}</sheetData>{joined}</worksheet>',
            )
    return path


class Raw(str):
    """A cell as it stands in the file."""


def edited(path: Path, part: str, old: str, new: str) -> Path:
    """A file in which a text of one of its parts is another."""
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    assert old.encode() in parts[part]
    parts[part] = parts[part].replace(old.encode(), new.encode())
    with zipfile.ZipFile(path, "w") as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return path


def cell(value: object) -> str:
    if isinstance(value, Raw):
        return value
    if value is None:
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float):
        return f"<c><v>{value}</v></c>"
    return f'<c t="inlineStr"><is><t>{escape(str(value))}</t></is></c>'


ROWS = [
    ["age", "weight", "ward", "fit", "score"],
    [30, 70.5, "a", True, "1"],
    [41, None, "n/a", False, "n/a"],
    [None, 61.25, "b", True, "3"],
]


def test_a_sheet_is_read_with_types(tmp_path):
    table = read(workbook(tmp_path / "a.xlsx", {"Stays": ROWS}), missing=["n/a"])
    assert table.names == ("age", "weight", "ward", "fit", "score")
    kinds = [table.kind(name) for name in table.names]
    assert kinds == ["whole numbers", "numbers", "text", "booleans", "whole numbers"]
    assert table.missing("ward").tolist() == [False, True, False]
    assert table.missing("age").tolist() == [False, False, True]
    assert Schema.detect(table)["age"].high == 41


def test_one_of_several_sheets_is_named(tmp_path):
    path = workbook(tmp_path / "a.xlsx", {"First": [["x"], [1]], "Second one": [["y"], [2]]})
    assert read(f"{path}#Second one").names == ("y",)
    with pytest.raises(DataError, match=r"has 2 sheets; write a.xlsx#First, or another of First"):
        read(path)
    with pytest.raises(DataError, match="has no sheet 'Third'"):
        read(f"{path}#Third")


def test_a_sheet_without_names_is_read_if_that_is_said(tmp_path):
    table = read(workbook(tmp_path / "a.xlsx", {"S": [[1, "a"], [2, "b"]]}), header=False)
    assert table.names == ("column_1", "column_2")
    assert table.num_rows == 2


@pytest.mark.parametrize(
    ("rows", "merged", "problem"),
    [
        ([], "", "sheet 'S' .* has no rows"),
        ([["age", "ward"]], "", "has no rows; it needs a row of column names, and rows below"),
        (
            [["Stays", None], ["age", "ward"], ["three", "a"]],
            "A1:B1",
            r"column 2 has no name in row 1. .* if others lie above .*, or count them: --skip",
        ),
        ([["age", "age"], [3, 4]], "", "has column names twice: age"),
        (
            [["ward", "pressure"], [None, "mmHg"], ["a", 120], ["b", 130]],
            "A1:A2",
            r"sheet 'S' of '.*a.xlsx': cells A1:A2 are merged, .* write each value into each",
        ),
        ([["ward", "age"], ["a", 30], [None, 41]], "A2:A3", "cells A2:A3 are merged"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, rows, merged, problem):
    with pytest.raises(DataError, match=problem):
        read(workbook(tmp_path / "a.xlsx", {"S": rows}, merged))


TITLE = [["Stays of 2024", None, None], [None, None, None]]
STAYS = [["age", "ward", "note"], *([30 + i, "ab"[i % 2], "x"] for i in range(9))]


@pytest.mark.parametrize("merged", ["", "A1:C1"])
@pytest.mark.parametrize("above", [1, 2])
def test_a_title_may_lie_above_the_names(tmp_path, above, merged):
    path = workbook(tmp_path / "a.xlsx", {"S": [*TITLE[:above], *STAYS]}, merged)
    expected = read(workbook(tmp_path / "b.xlsx", {"S": STAYS}))
    for options in ({}, {"skip": above}, {"names": ("age", "note")}):
        table = read(path, **options)
        assert table.names == ("age", "ward", "note")
        assert table.kind("age") == "whole numbers"
        assert table.values("age").tolist() == expected.values("age").tolist()


def test_no_row_decides_where_the_names_are_if_they_are_known(tmp_path):
    rows = [["note", None, None], ["age", "ward", "note"], ["x", None, None]]
    path = workbook(tmp_path / "a.xlsx", {"S": rows})
    assert read(path, names=("age", "ward", "note"), skip=1).num_rows == 1
    assert read(path, names=("age", "ward", "text")).num_rows == 1
    with pytest.raises(DataError, match="column 2 has no name in row 1"):
        read(path, skip=0)


def test_rows_above_are_skipped_without_names_too(tmp_path):
    path = workbook(tmp_path / "a.xlsx", {"S": [*TITLE, *STAYS[1:]]})
    assert read(path, header=False, skip=2).num_rows == 9


def test_a_time_of_day_is_a_clock_and_no_datetime(tmp_path):
    clocks = ["1899-12-31 08:30:00", "1899-12-31 18:05:00", None]
    rows = [["at", "day"], *([clocks[i % 3], "1899-12-31"] for i in range(60))]
    table = read(workbook(tmp_path / "a.xlsx", {"S": rows}))
    assert table.values("at").tolist()[:3] == ["08:30:00", "18:05:00", None]
    at = Schema.detect(table)["at"]
    assert (at.kind, at.format, at.high) == ("datetime", "%H:%M:%S", "1970-01-01T18:05:00")


def test_only_merged_cells_of_the_sheet_that_is_read_matter(tmp_path):
    """Its part of the file may have any name, and be named from the root of the file."""
    whole = workbook(tmp_path / "a.xlsx", {"One": [["x"], [1]], "Two": [["y"], [2]]}, "A1:A2")
    moved = tmp_path / "b.xlsx"
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(moved, "w") as new:
        for name in old.namelist():
            data = old.read(name).replace(b'"worksheets/sheet1.xml"', b'"/xl/worksheets/table.xml"')
            if name.endswith("sheet1.xml"):
                name, data = "xl/worksheets/table.xml", data.partition(b"<mergeCells>")[0]
                data += b"</worksheet>"
            new.writestr(
                name, data.replace(b"/xl/worksheets/sheet1.xml", b"/xl/worksheets/table.xml")
            )
    assert read(f"{moved}#One").num_rows == 1
    with pytest.raises(DataError, match=r"sheet 'Two' of .*: cells A1:A2 are merged"):
        read(f"{moved}#Two")


def test_merged_cells_are_found_behind_many_rows(tmp_path):
    rows = [["age", "note"], *([i, "a" * 60] for i in range(20_000))]
    with pytest.raises(DataError, match="cells A19999:A20001 are merged"):
        read(workbook(tmp_path / "a.xlsx", {"S": rows}, "A19999:A20001"))


def test_a_file_that_is_no_excel_file_is_refused(tmp_path):
    (tmp_path / "a.xlsx").write_text("age,ward\n")
    with pytest.raises(DataError, match=r"cannot read '.*a.xlsx' as an Excel file"):
        read(tmp_path / "a.xlsx")
    with pytest.raises(DataError, match="there is no file"):
        read(tmp_path / "b.xlsx#S")


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    import sys

    path = workbook(tmp_path / "a.xlsx", {"S": ROWS})
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(InputError, match=r"pip install '\.\[excel\]'"):
        read(path)


def test_init_writes_what_it_was_told_of_a_sheet(tmp_path):
    rows = [["Stays", None], ["age", "ward"], *([30 + i, "ab?"[i % 3]] for i in range(30))]
    path = workbook(tmp_path / "a.xlsx", {"S": rows})
    told = Dialect(missing=("?",), skip=1)
    proposal = propose([str(path)], folder=tmp_path / "study", dialect=told)
    assert proposal.schema["ward"].categories == ("a", "b")
    assert 'missing = ["?"]\nskip = 1\n' in proposal.study


def test_durations_of_a_day_and_more_are_numbers_of_a_unit(tmp_path):
    """Excel counts them from 1899-12-31 on, with a day in 1900 that never was."""
    minutes = [37 * row for row in range(60)] + [61 * 24 * 60 + 30]
    rows = [["worked"], *([number / (24 * 60)] for number in minutes)]
    path = workbook(tmp_path / "hours.xlsx", {"Hours": rows}, shown="[h]:mm:ss")
    table = read(path)
    worked = Schema.detect(table)["worked"]
    assert (worked.kind, worked.format, worked.low, worked.high) == (
        "integer", "minutes", 0, minutes[-1],
    )  # fmt: skip
    # Under a schema each cell is read by itself.
    numbers, _ = table.integers("worked", "minutes")
    assert numbers.tolist() == minutes
    numbers, _ = table.take([60]).integers("worked", "minutes")
    assert numbers.tolist() == minutes[-1:]


@pytest.mark.parametrize("more", ["lost", 0.25, 100.25, 40_000.5, -1.5, "12:30:00"])
def test_one_row_more_moves_no_duration(tmp_path, more):
    """A text beside durations is refused by the reader of sheets: the column is then text."""
    column = Column(
        "worked", "continuous", low=0, high=100, format="hours", missing=True, outside="move"
    )
    encoder = Encoder(Schema((column,)).with_fallbacks(), 16)
    codes = []
    for name, first in (("fewer", []), ("more", [[more]])):
        rows = [["worked"], *first, *([hours / 24] for hours in (0.5, 5.5, 23.5, 36.5, 80.5))]
        path = workbook(tmp_path / f"{name}.xlsx", {"Hours": rows}, shown="[h]:mm:ss")
        codes.append(encoder.read(read(path)).codes.column("worked")[len(first) :].tolist())
    assert codes[0] == codes[1]
    assert len(set(codes[0])) > 2


def test_dates_of_excel_stay_dates(tmp_path):
    rows = [["day"], *([44_000 + row] for row in range(60))]
    path = workbook(tmp_path / "days.xlsx", {"Days": rows}, shown="yyyy-mm-dd")
    assert Schema.detect(read(path))["day"].low == "2020-06-18"


FORMULA = '<c r="B{0}"{1}><f>A{0}*2</f>{2}</c>'


def test_formulas_without_a_value_are_said_to_be_missing(tmp_path, caplog):
    values = ["<v/>", "<v></v>", "", "<v>8</v>"]
    rows = [
        ["age", "double"],
        *([i, Raw(FORMULA.format(i, "", values[i % 4]))] for i in range(2, 42)),
    ]
    path = workbook(tmp_path / "a.xlsx", {"S": rows})
    proposal = propose([path], folder=tmp_path)
    assert proposal.files[0].startswith(
        "a: 30 cells (the first is B2) hold a formula without a value"
    )
    assert not caplog.records
    assert read(path).missing("double").sum() == 30
    assert "open the file in Excel and save it" in caplog.text

    empty = [Raw(FORMULA.format(i, ' t="str"', "<v></v>")) for i in range(2, 12)]
    path = workbook(tmp_path / "b.xlsx", {"S": [["age", "double"], *([3, cell] for cell in empty)]})
    assert not read(path).notes


def test_many_formulas_are_counted_once_each(tmp_path):
    long_name = "A" * 8000
    formula = '<c r="B{0}"><f>{1}</f></c>'
    rows = [["age", "x"], *([i, Raw(formula.format(i, long_name))] for i in range(2, 502))]
    path = workbook(tmp_path / "a.xlsx", {"S": rows})
    assert read(path).notes[0].startswith("500 cells (the first is B2) hold")


def test_errors_and_hidden_rows_are_named(tmp_path):
    error = Raw('<c r="B3" t="e"><v>#N/A</v></c>')
    title = Raw('<c r="A1" t="e"><v>#REF!</v></c>')
    path = workbook(tmp_path / "a.xlsx", {"S": [[title], ["age", "ward"], [30, error], [41, "b"]]})
    edited(path, "xl/worksheets/sheet1.xml", "<row><c><v>41", '<row r="4" hidden="1"><c><v>41')
    table = read(path, skip=1)
    assert table.missing("ward").tolist() == [True, False]
    assert table.notes == (
        "1 cell (the first is B3) holds an error such as #N/A, which counts as missing",
        "1 row is hidden in Excel, and read like others",
    )


def test_zeros_that_only_a_format_shows_are_named(tmp_path):
    rows = [["zip"], *([number] for number in (1234, 80331, 99))]
    path = workbook(tmp_path / "a.xlsx", {"S": rows}, shown="00000")
    (note,) = read(path).notes
    assert note.startswith("2 cells hold a number that Excel shows with zeros before it")
    assert not read(workbook(tmp_path / "b.xlsx", {"S": rows}, shown="0.00")).notes


def test_the_only_sheet_that_excel_shows_is_read(tmp_path):
    sheets = {"Lists": [["ward"], ["a"]], "Stays": [["age"], [30]], "Old": [["x"], [1]]}
    path = workbook(tmp_path / "a.xlsx", sheets)
    edited(path, "xl/workbook.xml", '<sheet name="Lists"', '<sheet state="hidden" name="Lists"')
    with pytest.raises(DataError, match=r"write a.xlsx#Stays, or another of Stays, Old, Lists"):
        read(path)
    edited(path, "xl/workbook.xml", '<sheet name="Old"', '<sheet state="veryHidden" name="Old"')
    assert read(path).names == ("age",)
    assert read(f"{path}#Lists").names == ("ward",)


def test_places_are_those_of_the_sheet(tmp_path):
    rows = [
        ["Stays", None, None],
        ["ward", "age", "kg"],
        [None, "years", "kg"],
        ["a", 3, 4],
        [None] * 3,
    ]
    rows += [["ab"[i % 2], 40 + i * i % 31, 70.5 + i * i % 37] for i in range(90)]
    rows += [["a total", 40, 50], ["Mean", 40, 50], ["Source: ward", None, None]]
    path = workbook(tmp_path / "a.xlsx", {"S": rows})
    proposal = propose([path], folder=tmp_path, dialect=Dialect(skip=1))
    cautions = "\n".join(proposal.cautions)
    for words in (
        "row 3 of the sheet: age, kg hold 'years', 'kg'",
        "row 96 of the sheet, ward: 'a total' seems to begin a total or a mean",
        "row 97 of the sheet, ward: 'Mean' seems to begin a total or a mean",
        "row 98 of the sheet: text in one column alone",
    ):
        assert words in cautions


def test_names_that_are_repeated_among_the_rows_are_named(tmp_path):
    rows = [["ward", "age"], *(["ab"[i % 2], i % 37] for i in range(90))]
    rows.insert(40, rows[0])
    proposal = propose([workbook(tmp_path / "a.xlsx", {"S": rows})], folder=tmp_path)
    assert proposal.cautions == (
        "a, row 41 of the sheet: the columns' names again, and no row. Delete the line",
    )


def test_numbers_that_may_be_days_of_excel_are_named(tmp_path):
    rows = [["admitted", "score"], *([44_000 + i % 50, 41_000 + 900 * i] for i in range(60))]
    schema = Schema.detect(read(workbook(tmp_path / "a.xlsx", {"S": rows})))
    said = "if they are days that Excel counts from 1900 on, give the cells a format of dates"
    assert said in schema["admitted"].why
    assert said not in schema["score"].why


def test_dates_above_columns_are_days(tmp_path):
    day = Raw("<c s='0'><v>44197</v></c>")
    rows = [["ward", day], *(["ab"[i % 2], Raw(f"<c><v>{i}</v></c>")] for i in range(9))]
    path = workbook(tmp_path / "a.xlsx", {"S": rows}, shown="yyyy-mm-dd")
    assert read(path).names == ("ward", "2021-01-01")
    assert read(path, names=("ward", "2021-01-01")).num_rows == 9


def test_days_beside_a_word_are_days(tmp_path):
    cells = [Raw(f'<c s="0"><v>{44_000 + row}</v></c>') for row in range(60)]
    rows = [["day"], ["n/a"], *([cell] for cell in cells)]
    path = workbook(tmp_path / "days.xlsx", {"Days": rows}, shown="yyyy-mm-dd")
    day = Schema.detect(read(path))["day"]
    assert (day.kind, day.format, day.low) == ("datetime", "%Y-%m-%d", "2020-06-18")


@pytest.mark.parametrize("shown", ["", "yyyy-mm-dd"])
@pytest.mark.parametrize("mark", ["n/a", "NULL"])
def test_a_mark_of_a_missing_value_beside_numbers_or_dates_is_proposed(tmp_path, mark, shown):
    """The reader of sheets takes such texts for none, and gave the column a type."""
    rows = [["x"], *([44_000 + row % 50] for row in range(60)), [mark]]
    table = read(workbook(tmp_path / "a.xlsx", {"S": rows}, shown=shown))
    schema = Schema.detect(table)
    assert schema["x"].missing_values == (mark,)
    assert Encoder(schema, 4).encode(table).num_rows == 61


def test_a_duration_of_whole_days_beside_a_word_stays_one(tmp_path):
    rows = [["worked"], ["n/a"], *([1.0 + row / 4] for row in range(40))]
    table = read(workbook(tmp_path / "a.xlsx", {"S": rows}, shown="[h]:mm"))
    assert table.numbers("worked", "hours")[1:6].to_list() == [24.0, 30.0, 36.0, 42.0, 48.0]


def test_a_column_without_a_value_is_not_guessed_at(tmp_path, caplog):
    path = workbook(tmp_path / "a.xlsx", {"S": [["age", "gap"], [30, None], [41, None]]})
    assert read(path).missing("gap").all()
    assert not caplog.records
