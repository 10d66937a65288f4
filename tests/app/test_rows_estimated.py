"""How many rows a text file is taken to have before it is read."""

import gzip

import polars as pl
import pytest

from siloweave.app.check import rows_in
from siloweave.errors import DataError


@pytest.mark.parametrize(("name", "end"), [("a.csv", "\n"), ("a.csv", ""), ("a.jsonl", "\n")])
@pytest.mark.parametrize("rows", [3, 1_500])
def test_rows_of_a_small_text_file_are_counted(tmp_path, name, end, rows):
    head = [] if name == "a.jsonl" else ["age,education"]
    lines = [*head, *(f"{20 + i % 60},some words" for i in range(rows))]
    (tmp_path / name).write_text("\n".join(lines) + end)
    assert rows_in(tmp_path / name, 2) == rows


def test_rows_of_a_large_text_file_are_estimated_from_its_lines(tmp_path):
    lines = ["age,education", *(f"{20 + i % 90},some words" for i in range(50_000))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert rows_in(tmp_path / "a.csv", 2) == pytest.approx(50_000, rel=0.02)


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("rows", [3, 50_000])
def test_rows_of_a_compressed_text_file_are_counted(tmp_path, rows, end):
    """Long lines that are packed small were taken for few rows; short ones for many."""
    for words in ("a", "the same long words again and again " * 9):
        lines = ["age,education", *(f"{20 + i % 60},{words}" for i in range(rows))]
        (tmp_path / "a.csv.gz").write_bytes(gzip.compress(("\n".join(lines) + end).encode()))
        frame = pl.DataFrame({"age": [30] * rows, "education": [words] * rows})
        frame.write_csv(tmp_path / "a.csv.zst", compression="zstd")
        assert [rows_in(tmp_path / f"a.csv.{kind}", 2) for kind in ("gz", "zst")] == [rows] * 2


def test_a_compressed_file_that_is_cut_off_is_named(tmp_path):
    whole = gzip.compress("".join(f"{i}\n" for i in range(90_000)).encode())
    (tmp_path / "a.csv.gz").write_bytes(whole[:9000])
    with pytest.raises(
        DataError, match=r"cannot read '.*a.csv.gz' as a table: .* it may be cut off"
    ):
        rows_in(tmp_path / "a.csv.gz", 1)
