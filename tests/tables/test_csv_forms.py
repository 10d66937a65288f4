"""Text files that are not written as usual are named, with what to do."""

import logging

import pytest

from siloweave.app.init import propose
from siloweave.errors import DataError
from siloweave.tables import Schema, read
from siloweave.tables.text_encoding import encoding_of

ROWS = [(str(n + 1000), "ab"[n % 2], f"{n / 7:.2f}") for n in range(300)]


def text(mark=",", rows=ROWS):
    return "".join(f"{mark.join(row)}\n" for row in [("id", "grp", "val"), *rows])


@pytest.mark.parametrize("form", ["", "é"])
@pytest.mark.parametrize(
    ("byte", "words"),
    [
        ("\0", "line 107 of .* holds a NUL byte"),
        ("\x1a", r"line 107 of .* holds Ctrl-Z \(byte 1A\)"),
        ("\x02", r"line 107 of .* holds a control character \(byte 02\)"),
    ],
)
def test_a_byte_that_is_in_no_text_is_named_with_its_line(tmp_path, caplog, byte, words, form):
    path = tmp_path / "a.csv"
    whole = text().replace("1105,b", f"1105,b{byte}").replace("1001,b", f"1001,b{form}")
    for encoding in ("utf-8", "cp1252"):
        path.write_bytes(whole.encode(encoding))
        with pytest.raises(DataError, match=words):
            encoding_of(path)
        with pytest.raises(DataError, match=words):
            propose([path])
    caplog.clear()
    assert read(path, encoding="cp1252").num_rows == 300
    assert len(caplog.records) == 1
    assert "line 107" in caplog.text


def test_a_nul_in_every_row_leaves_no_doubt_about_the_encoding(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id,grp\n" + "".join(f"{n},a\0\n" for n in range(200)))
    with pytest.raises(DataError, match=r"line 2 of .* holds a NUL byte"):
        encoding_of(path)


def test_ctrl_z_at_the_end_is_no_row_that_was_cut_off(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(text() + "\x1a")
    with pytest.raises(DataError, match=r"line 302 of .* holds Ctrl-Z"):
        read(path)
    path.write_text(text() + "Source\n")
    with pytest.raises(DataError, match=r"line 302 .* has 1 of 3 fields"):
        read(path)


def test_a_file_of_many_such_bytes_is_no_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(bytes(range(32)) * 200 + b"\n")
    with pytest.raises(DataError, match=r"is no text: .* bytes that are 0"):
        encoding_of(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp500"])
def test_an_encoding_that_has_such_bytes_is_read(tmp_path, caplog, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes(text().encode(encoding))
    if encoding != "cp500":
        assert read(path, encoding=encoding).num_rows == 300
    assert "holds a" not in caplog.text


@pytest.mark.parametrize("mark", ["^", "~", " "])
def test_a_rare_separator_is_named_and_read_where_it_is_declared(tmp_path, caplog, mark):
    path = tmp_path / "a.csv"
    path.write_text(text(mark))
    with caplog.at_level(logging.WARNING):
        alone = read(path)
    assert len(alone.names) == 1
    assert f"read(separator={mark!r})" in caplog.text
    assert f"give --separator {mark!r}" in Schema.detect(alone).columns[0].why
    caplog.clear()
    declared = read(path, separator=mark)
    assert declared.names == ("id", "grp", "val")
    assert not caplog.records


def test_fields_of_fixed_width_are_named(tmp_path):
    path = tmp_path / "a.txt"
    lines = [f"{row[0]:<8}{row[1]:<6}{row[2]:>7}" for row in [("id", "grp", "val"), *ROWS]]
    path.write_text("\n".join(lines))
    why = Schema.detect(read(path)).columns[0].why
    assert "seem to have fixed widths" in why
    assert "pandas.read_fwf" in why


@pytest.mark.parametrize(
    "lines",
    [
        ["name"] + ["Mary Jones", "John Smith"] * 40,
        ["full name"] + ["Mary Jones", "John Smith"] * 40,
        ["val"] + [f"{n / 7:.2f}" for n in range(80)],
        ["note"] + ["a ^ b", "c", "d^e"] * 30,
        ["when"] + [f"2024-01-{n % 28 + 1:02d} 10:{n % 60:02d}" for n in range(80)],
    ],
)
def test_one_column_of_texts_is_one_column(tmp_path, caplog, lines):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    assert read(path).hint == ""
    assert not caplog.records


def written(folder, cells, names="id,note,val"):
    """Write a file of three columns, whose middle cells are written as they are given."""
    path = folder / "a.csv"
    rows = [f"{n},{cell},{n / 7:.2f}\n" for n, cell in enumerate(cells)]
    path.write_text(f"{names}\n{''.join(rows)}")
    return path


@pytest.mark.parametrize(
    "cells",
    [
        [r'"x \"q\", z"'] * 9,
        [r'"x \"q\" z"'] * 9,
        [r'"5\" pipe"', "y", '"z"'],
        [r'"5\""', "y", r'"6\""', "z"],
    ],
)
def test_marks_behind_a_backslash_are_refused(tmp_path, cells):
    path = written(tmp_path, cells)
    with pytest.raises(DataError, match=r'line \d .* as \\", .*escapechar='):
        read(path)


def test_marks_within_quotes_are_refused_with_their_line(tmp_path):
    path = written(tmp_path, ["x", 'a""b', '"x "q" z"'])
    with pytest.raises(DataError, match=r"line 4 .* text behind the quotation mark"):
        read(path)
    path = written(tmp_path, ["x", '"a', "b", '"c"'])
    with pytest.raises(DataError, match=r"in line 3 .* ends in line 5 .* not closed"):
        read(path)
    path = written(tmp_path, ["x", '"a', "b"])
    with pytest.raises(DataError, match=r"line 3 .* not closed"):
        read(path)


def test_marks_that_are_doubled_or_lie_within_a_plain_cell_are_read(tmp_path):
    cells = ['"a ""b"" c"', '5" pipe', 'x"', r'"C:\"', '""', '"a, b"', '"two\nlines"', '{"k": 2}']
    wanted = ['a "b" c', '5" pipe', 'x"', "C:\\", None, "a, b", "two\nlines", '{"k": 2}']
    table = read(written(tmp_path, cells))
    assert table.cells("note").to_list() == wanted
    for start, skip in (("\ufeff", 0), ('Sizes in "\n\n', 2)):
        path = written(tmp_path, cells, f"{start}id,note,val")
        assert read(path, skip=skip).cells("note").to_list() == wanted


def test_marks_are_read_the_same_way_at_the_edge_of_a_piece(tmp_path, monkeypatch):
    cells = ['"a ""b"" c"', "x", '"C:"', '""', '"a, b"', "é"] * 20
    path = written(tmp_path, cells)
    wanted = read(path).cells("note").to_list()
    monkeypatch.setattr("siloweave.tables.quotation_marks._CHUNK_BYTES", 13)
    assert read(path).cells("note").to_list() == wanted
    path = written(tmp_path, [*cells, '"x "y" z"', *cells])
    with pytest.raises(DataError, match=r"line 122 .* text behind the quotation mark"):
        read(path)


def test_single_quotes_are_named(tmp_path):
    with pytest.raises(DataError, match=r"line 2 .* single quotes.* quotechar="):
        read(written(tmp_path, ["'a, b'"] * 9))
    path = written(tmp_path, ["'ab'", "'c'"] * 20)
    assert "in single quotes" in Schema.detect(read(path))["note"].why


def test_a_blank_before_quotes_is_named(tmp_path):
    with pytest.raises(DataError, match=r"blank stands before .* skipinitialspace="):
        read(written(tmp_path, [' "a, b"'] * 9))
    path = written(tmp_path, [' "ab"', ' "c"'] * 20)
    assert "quotes with a blank before them" in Schema.detect(read(path))["note"].why


@pytest.mark.parametrize(
    ("form", "words"), [('="0{}"', "formulas of a spreadsheet"), ("'0{}", "an apostrophe before")]
)
def test_texts_as_a_spreadsheet_marks_them_are_named(tmp_path, form, words):
    path = written(tmp_path, [form.format(n % 7 + 1000) for n in range(60)])
    table = read(path)
    assert table.cells("note")[3] == form.format(1003)
    assert words in Schema.detect(table)["note"].why


@pytest.mark.parametrize("mark", ["\\N", "[NULL]", "<null>", "(null)"])
def test_marks_of_databases_for_no_value_are_proposed(tmp_path, mark):
    path = written(tmp_path, ["a", "b", mark] * 20)
    column = Schema.detect(read(path))["note"]
    assert column.missing_values == (mark,)
    assert set(column.categories) == {"a", "b"}


def test_a_line_with_too_many_fields_is_named_with_its_reason(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2,\n" * 9)
    with pytest.raises(DataError, match=r"line 2 .* more fields .* separator at the end"):
        read(path)
    path.write_text("a,b\n" + "".join(f"{n},x,y\n" for n in range(9)))
    with pytest.raises(DataError, match=r"as R writes them: write 'row,'"):
        read(path)
    path.write_text("a,b\n" + "1,2\n" * 9 + "1,2,3\n")
    with pytest.raises(DataError, match=r"line 11 .* 3 and not 2\. Put values"):
        read(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_two_marks_of_the_byte_order_are_no_part_of_a_name(tmp_path, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes(f"\ufeff\ufeff{text()}".encode(encoding))
    table = read(path)
    assert table.names == ("id", "grp", "val")
    assert table.num_rows == 300


def test_fields_divided_by_blanks_are_named_once_by_init(tmp_path, caplog):
    path = tmp_path / "a.csv"
    path.write_text(text(" "))
    proposal = propose([path])
    assert "divided by blanks" in proposal.schema.columns[0].why
    assert not caplog.records


def test_names_behind_a_blank_lose_it_and_their_quotation_marks(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id, "age group", sex\n1, 18,m\n2, 25,f\n')
    table = read(path)
    assert table.names == ("id", "age group", "sex")
    assert table.values("age group").tolist() == [18, 25]
    assert read(path, names=("age group", "sex")).names == table.names
    path.write_text("a, a,b\n1,2,3\n2,3,4\n")
    assert read(path).names == ("a", " a", "b")
