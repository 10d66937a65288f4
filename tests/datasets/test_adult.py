from importlib.resources import files

import pandas as pd

from siloweave.datasets import adult, adult_schema
from siloweave.tables import Encoder


def test_the_table_is_the_papers():
    table = adult()
    assert table.num_rows == 48_842
    assert table.names == adult_schema().names
    gaps = {name: int(table.missing(name).sum()) for name in table.names}
    assert {name: n for name, n in gaps.items() if n} == {
        "workclass": 2799,
        "occupation": 2809,
        "native-country": 857,
    }
    frame = table.to_native()
    assert isinstance(frame, pd.DataFrame)
    assert (frame["income"] == ">50K").sum() == 11_687
    assert (frame["income"][:32_561] == ">50K").sum() == 7841
    assert len(frame.dropna()) == 45_222
    assert frame.iloc[0, :4].tolist() == [39, "State-gov", 77516, "Bachelors"]
    assert frame.iloc[32_561, :4].tolist() == [25, "Private", 226802, "11th"]


def test_the_schema_is_declared_and_fits():
    schema = adult_schema()
    assert all(column.from_data == () for column in schema.columns)
    assert {c.name for c in schema.columns if c.missing} == {
        "workclass",
        "occupation",
        "native-country",
    }
    assert Encoder(schema).encode(adult()).num_rows == 48_842


def test_it_is_small_and_attributed():
    folder = files("siloweave.datasets")
    assert len((folder / "adult.parquet").read_bytes()) < 1_000_000
    text = (folder / "ADULT.txt").read_text()
    assert "CC BY 4.0" in text
    assert "Becker" in text
