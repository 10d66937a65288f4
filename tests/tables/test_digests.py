"""What a party holds has one digest, and whatever it held in its place has another."""

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from siloweave.tables.codes import Codes, Domain
from siloweave.tables.read import read
from siloweave.tables.table import digest_of

FRAME = pl.DataFrame(
    {
        "town": ["Ulm", None, "Bonn"],
        "age": [30, 40, None],
        "pay": [1.5, None, 2.5],
        "member": [True, False, None],
        "seen": [datetime(2020, 1, 1, tzinfo=UTC), None, datetime(2021, 1, 1, tzinfo=UTC)],
        "gone": [None, None, None],
    }
)


def test_the_same_rows_agree_whatever_frame_they_come_in(tmp_path):
    known = digest_of(read(FRAME))
    FRAME.drop("gone").write_parquet(tmp_path / "rows.parquet")
    assert digest_of(read(FRAME.clone())) == known
    assert digest_of(read(FRAME.to_arrow())) == known
    plain = FRAME.select("town", "pay")
    assert digest_of(read(plain.to_pandas())) == digest_of(read(plain))
    assert digest_of(read(tmp_path / "rows.parquet")) == digest_of(read(FRAME.drop("gone")))


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.reverse(),
        lambda frame: frame.head(2),
        lambda frame: frame.select(reversed(frame.columns)),
        lambda frame: frame.rename({"age": "old"}),
        lambda frame: frame.with_columns(town=pl.Series(["Ulm", "", "Bonn"])),
        lambda frame: frame.with_columns(town=pl.Series(["UlmB", None, "onn"])),
        lambda frame: frame.with_columns(age=pl.Series([30, 40, 0])),
        lambda frame: frame.with_columns(age=pl.Series([30.0, 40.0, None])),
        lambda frame: frame.with_columns(pay=pl.Series([1.5, 0.0, 2.5])),
        lambda frame: frame.with_columns(member=pl.Series([True, None, False])),
        lambda frame: frame.with_columns(gone=pl.Series(["", None, None])),
    ],
)
def test_other_rows_or_columns_differ(change):
    assert digest_of(read(change(FRAME))) != digest_of(read(FRAME))


def test_facts_are_kept_apart():
    rows = read(FRAME)
    found = [(rows,), (rows, "a"), (rows, "b"), ("a", rows), (rows, ["a"]), (rows, "a", "")]
    assert len({digest_of(*facts) for facts in found}) == len(found)


def test_codes_of_another_domain_differ():
    column = np.array([0, 1, 1])
    made = [
        Codes(Domain((name,), (size,)), (column,)) for name, size in [("a", 2), ("a", 3), ("b", 2)]
    ]
    made.append(made[0].take([1, 0, 1]))
    assert len({codes.digest() for codes in made}) == len(made)
    assert made[0].digest() == made[0].take([0, 1, 2]).digest()
