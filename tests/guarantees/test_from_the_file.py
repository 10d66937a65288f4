"""What a party of each private method works with differs by one row where its file does.

The tests of neighbours begin at codes; these begin at the file, see decision 0056.
"""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import siloweave as sw
from siloweave.core.method import Setup
from siloweave.core.party import OwnerData
from siloweave.methods.registry import METHODS
from siloweave.tables import Encoder, read
from tests.tables.databases import in_sqlite

COLUMNS = (
    sw.Column("code", "categorical", ("1", "2", "rest"), other="rest"),
    sw.Column("age", "integer", low=0, high=99, missing=True, missing_values=("-9", "unknown")),
    sw.Column("pay", "continuous", low=0, high=9000, fallback=0.0, format="1.234,5"),
    sw.Column("smoker", "boolean", missing=True),
)
SCHEMA = sw.Schema(COLUMNS)
ROWS = [[" 1", "-9.0", "1.234", "true"], [" 2", "41", "7", "0"]] * 30
ODD = [["?", "unknown", "1.5", "yes"], ["", "1.5", "inf", ""], ["1.0", " 7", "abc", "TRUE"]]
PRIVATE = sorted(
    name for name, synth in METHODS.items() if synth.method.guarantee(synth()).kind == "dp"
)
PARTS = {"north": ("code", "age"), "south": ("pay", "smoker")}


def counts_at_parties(name: str, rows: list[list[str]], folder: Path) -> list[np.ndarray]:
    """How many rows have each code, by column, of what parties prepare from a CSV."""
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    (folder / "rows.csv").write_text("\n".join([",".join(SCHEMA.names), *lines]) + "\n")
    synth = METHODS[name]()
    parts = PARTS if synth.method.split == "columns" else {"north": SCHEMA.names}
    held = parts if synth.method.split == "columns" else {}
    setup = Setup(synth, SCHEMA, sw.Budget(epsilon=1.0, delta=1e-6), tuple(parts), held)
    counts: list[np.ndarray] = []
    for party, columns in parts.items():
        table = read(folder / "rows.csv", names=SCHEMA.names).select(columns)
        counts += counts_of(synth.method.prepare(table, setup, party))
    return counts


def counts_of(data) -> list[np.ndarray]:
    """Counts of codes that are counted, of those that train, or of columns of one party."""
    if isinstance(data, OwnerData):
        data = Encoder(data.schema).encode(data.table)
    rows = getattr(data, "rows", None)
    rows = rows if hasattr(rows, "count") else getattr(data, "codes", data)
    return rows.count([(name,) for name in rows.domain.names])


@pytest.mark.parametrize("name", PRIVATE)
def test_a_party_has_one_row_more_where_its_file_has_one(name, tmp_path):
    before = counts_at_parties(name, ROWS, tmp_path)
    assert [int(count.sum()) for count in before] == [60] * 4
    assert before[0].tolist() == [30, 30, 0]
    for odd in ODD:
        after = counts_at_parties(name, [*ROWS, odd], tmp_path)
        for old, new in zip(before, after, strict=True):
            assert (new - old).min() >= 0
            assert (new - old).sum() == 1


def test_categories_that_are_learned_are_the_same_with_an_odd_row_more(tmp_path):
    """Codes were named with their blanks where one cell was no number, and without them else."""
    schema = sw.Schema((sw.Column("code", "categorical", ("rest",), other="rest"),))
    budget = sw.Budget(epsilon=5.0, delta=1e-3)
    named = []
    for cells in ([" 1", " 2"] * 200, [*[" 1", " 2"] * 200, "?"]):
        path = tmp_path / "rows.csv"
        path.write_text("code\n" + "".join(f'"{cell}"\n' for cell in cells))
        model = sw.AIM().fit(path, schema, budget=budget, learn=0.5, noise="seeded")
        named.append(model.schema["code"].categories)
    assert named[0] == named[1] == ("1", "2", "rest")


@pytest.mark.parametrize(
    ("other", "cells", "odd", "named"),
    [
        # Texts that are numbers were missing where all others were numbers, too.
        ("rest", ["-9.0", "1"], "?", ("-9.0", "1", "rest")),
        (0, ["-9.0", "1"], "?", (0, 1)),
        (0.5, ["-9", "1"], "x", (0.5, 1.0)),
    ],
)
def test_a_missing_value_is_named_or_not_whatever_a_row_more_holds(
    other, cells, odd, named, tmp_path
):
    column = sw.Column(
        "code", "categorical", (other,), other=other, missing=True, missing_values=("-9",)
    )
    path = tmp_path / "rows.csv"
    for rows in (cells * 200, [*cells * 200, odd]):
        path.write_text("code\n" + "".join(f'"{cell}"\n' for cell in rows))
        model = sw.AIM().fit(
            path,
            sw.Schema((column,)),
            budget=sw.Budget(epsilon=5.0, delta=1e-3),
            learn=0.5,
            noise="seeded",
        )
        assert sorted(map(str, model.schema["code"].categories)) == sorted(map(str, named))


def test_whoever_gives_rows_is_told_how_many_cells_were_moved(tmp_path):
    """A Parquet file that is read in pieces, and a database that counts, are no exceptions."""
    schema = sw.Schema(
        (
            sw.Column("age", "integer", low=0, high=99, fallback=0),
            sw.Column("sex", "categorical", ("f", "m"), missing=True),
        )
    )
    frame = pl.DataFrame({"age": [1, 200, 30] * 50, "sex": ["f", "m", "x"] * 50})
    frame.write_parquet(tmp_path / "rows.parquet")
    for rows in (frame, tmp_path / "rows.parquet", in_sqlite(read(frame), tmp_path)):
        with pytest.warns(UserWarning, match="moved .*: 50 in 'age', 50 in 'sex'"):
            sw.AIM().fit(rows, schema, budget=sw.Budget(1.0, 1e-6))
