import numpy as np
import pandas as pd
import polars as pl
import pytest

from siloweave.errors import DataError, SchemaError
from siloweave.tables import Column, Schema, align


def frame(**columns):
    return pl.DataFrame(columns)


REAL = frame(x=[1, 2, None, 4], c=["a", "b", "b", None], f=[True, False, True, True])
OTHER = frame(x=[1.5, 2.0, 3.0, 3.0], c=["b", "z", "a", "a"], f=[True, None, True, True])


def test_columns_become_numbers_or_shared_codes():
    both = align({"real": REAL, "synthetic": OTHER})
    x, c, f = both.columns
    assert (x.kind, x.whole, c.kind, f.kind) == ("numeric", True, "categorical", "categorical")
    np.testing.assert_array_equal(x.values["real"], [1.0, 2.0, np.nan, 4.0])
    assert c.labels == ("b", "a", "z")
    assert c.values["real"].tolist() == [1, 0, 0, 3]
    assert c.values["synthetic"].tolist() == [0, 2, 1, 1]
    assert c.missing("real").tolist() == [False, False, False, True]
    assert f.labels == (True, False)
    assert f.values["synthetic"].tolist() == [0, 2, 0, 0]
    assert (c.levels, both.num_rows) == (4, {"real": 4, "synthetic": 4})


def test_the_order_of_columns_does_not_matter():
    both = align({"real": REAL, "synthetic": OTHER.select("f", "c", "x")})
    assert both.names == ("x", "c", "f")


def test_pandas_and_polars_go_together():
    theirs = pd.DataFrame({"x": [1.0, 2.0], "c": ["a", None], "f": [True, False]})
    both = align({"real": REAL, "synthetic": theirs})
    assert both.column("c").values["synthetic"].tolist() == [1, 2]


def test_moments_are_days_and_text_dates_are_moments():
    days = frame(d=["1970-01-01", "1970-01-02", "1970-01-02"])
    column = align({"real": days, "synthetic": days}).columns[0]
    assert column.datetimes
    assert column.values["real"].tolist() == [0.0, 1.0, 1.0]


def test_ids_are_left_out_and_named():
    table = frame(who=["p1", "p2", "p3"], x=[1.0, 2.0, 2.5])
    assert align({"real": table, "synthetic": table}).left_out == ("who",)
    with pytest.raises(DataError, match="all hold ids"):
        align({"real": table.select("who"), "synthetic": table.select("who")})


def test_a_schema_says_the_kinds():
    schema = Schema(
        (
            Column("x", "categorical", categories=(1, 2, 4)),
            *(Column(n, "categorical", categories=("a",)) for n in ("c",)),
            Column("f", "boolean"),
        )
    )
    both = align({"real": REAL, "synthetic": REAL}, schema)
    assert both.column("x").labels == (1, 2, 4)
    with pytest.raises(SchemaError, match="lacks column 'f'"):
        align({"real": REAL, "synthetic": REAL}, schema.select(("x", "c")))


def test_a_wide_categorical_costs_its_rows_only():
    wide = frame(name=[f"n{i % 99_999}" for i in range(100_000)])
    schema = Schema((Column("name", "categorical", ("n0",)),))  # not taken for an identifier
    column = align({"real": wide, "synthetic": wide[:10]}, schema).columns[0]
    assert column.levels == 100_000
    assert column.values["real"].nbytes == 400_000


@pytest.mark.parametrize(
    ("other", "error", "words"),
    [
        (OTHER.drop("c"), SchemaError, "synthetic lacks 'c'"),
        (OTHER.with_columns(y=1), SchemaError, "real lacks 'y'"),
        (OTHER[:0], DataError, "synthetic has no rows"),
        (
            OTHER.with_columns(x=pl.lit("one")),
            SchemaError,
            "synthetic: column 'x': 4 rows hold text",
        ),
        (OTHER.with_columns(c=pl.lit(3)), SchemaError, "'c' holds text in real, whole numbers in"),
        (OTHER.with_columns(x=pl.lit(None)), DataError, "'x' has no value in any row of synth"),
        (OTHER.with_columns(x=pl.lit(float("inf"))), DataError, "infinite"),
    ],
)
def test_tables_that_do_not_go_together(other, error, words):
    with pytest.raises(error, match=words):
        align({"real": REAL, "synthetic": other})


def test_further_rows_of_a_table():
    both = align({"real": REAL, "synthetic": OTHER})
    more = both.with_rows("half", "real", np.array([3, 0]))
    assert more.num_rows["half"] == 2
    assert more.column("x").values["half"].tolist() == [4.0, 1.0]
    assert "half" not in both.num_rows
    with pytest.raises(DataError, match="no column 'q'"):
        more.column("q")
