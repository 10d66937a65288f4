"""How many rows a text file is taken to have before it is read."""

import pytest

from siloweave.app.check import rows_in


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
