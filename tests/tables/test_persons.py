"""Whose rows are whose, over several tables; and splits that keep a person's rows together."""

import numpy as np
import pandas as pd
import pytest

from siloweave.errors import DataError, InputError, SchemaError
from siloweave.tables import Column, Schema, read, split_rows
from siloweave.tables.codes import Codes, Domain
from siloweave.tables.persons import (
    numbered,
    owners_in,
    places_of,
    refuse_shared,
    relabelled,
    without_ids,
)


def visits(persons=30, seed=0):
    """One to five visits of each person, in random order; a class and a number by person."""
    rng = np.random.default_rng(seed)
    owners = rng.permutation(np.repeat(np.arange(persons), rng.integers(1, 6, persons)))
    return pd.DataFrame(
        {
            "patient": [f"p{i}" for i in owners],
            "age": 20.0 + owners + rng.random(len(owners)),
            "ward": np.array(["a", "b", "c"])[owners % 3],
        }
    )


def test_equal_ids_of_any_tables_are_one_person_and_rows_without_one_are_their_own():
    one = read(pd.DataFrame({"p": [7.0, 8.0, None, 7.0, None]}))
    two = read(pd.DataFrame({"p": ["8", "9", None, ""]}))
    owners = owners_in({"one": one, "two": two}, "p")
    assert owners["one"].tolist() == [0, 1, 2, 0, 3]
    assert owners["two"][0] == 1
    assert len({*owners["two"].tolist(), *owners["one"].tolist()}) == 7


def test_a_schema_says_how_a_missing_id_is_written():
    table = read(pd.DataFrame({"p": ["?", "?", "a"]}))
    schema = Schema((Column("p", "id", missing_values=("?",), missing=True),))
    assert len(set(owners_in({"t": table}, "p", schema)["t"].tolist())) == 3
    assert len(set(owners_in({"t": table}, "p")["t"].tolist())) == 2


def test_a_unit_that_is_no_id_column_is_refused():
    table = read(visits())
    with pytest.raises(DataError, match=r"t has no column 'person'.*patient, age, ward"):
        owners_in({"t": table}, "person")
    with pytest.raises(DataError, match=r"t: unit='age'.*not whole"):
        owners_in({"t": table}, "age")
    for wrong in ("", None, 3):
        with pytest.raises(InputError, match="unit="):
            owners_in({"t": table}, wrong)
    schema = Schema((Column("patient", "id"), Column("age", "integer", low=0, high=99)))
    with pytest.raises(SchemaError, match="'age' is a column of kind integer"):
        owners_in({"t": table}, "age", schema)


def test_places_are_gathered_by_person():
    owners = numbered(["b", None, "a", "b", None, "b"])
    assert places_of(owners, most=3).tolist() == [
        [0, 3, 5], [1, -1, -1], [2, -1, -1], [4, -1, -1]
    ]  # fmt: skip
    assert places_of(owners[:0], most=2).shape == (0, 2)
    with pytest.raises(InputError, match="most=2"):
        places_of(owners, most=2)
    assert relabelled(np.array([9, 4, 9]))[0].tolist() == [1, 0, 1]


def test_shared_persons_are_counted_and_never_named():
    one, two = read(visits()), read(visits().iloc[:3])
    owners = owners_in({"train": one, "control": two}, "patient")
    shared = len(set(visits()["patient"][:3]))
    with pytest.raises(DataError, match=f"^{shared} person") as error:
        refuse_shared(owners, "train", "control", "patient")
    assert not any(one in str(error.value) for one in set(visits()["patient"][:3]))
    assert "patient" not in without_ids(one, "patient").names
    assert without_ids(one, "row").names == one.names


@pytest.mark.parametrize("by", ["iid", "clusters", "label_skew"])
def test_a_split_by_person_keeps_each_persons_rows_together(by):
    data = visits(60)
    parts = split_rows(data, 4, by=by, seed=0, method="pca", label="ward", unit="patient")
    people = [set(part["patient"]) for part in parts]
    assert sum(map(len, people)) == 60
    assert set.union(*people) == set(data["patient"])
    assert all(people)
    assert sum(map(len, parts)) == len(data)
    if by == "iid":
        assert {len(one) for one in people} == {15}
    if by == "clusters":  # a ward is the person's own, and clusters follow it
        assert all(part["ward"].value_counts(normalize=True).max() > 0.9 for part in parts)
    again = split_rows(data, 4, by=by, seed=0, method="pca", label="ward", unit="patient")
    assert all(a.equals(b) for a, b in zip(parts, again, strict=True))


def test_rows_are_split_as_before_where_the_unit_is_a_row():
    data = visits(20)
    one = split_rows(data, 3, seed=1)
    assert all(a.equals(b) for a, b in zip(one, split_rows(data, 3, seed=1, unit="row"),
                                           strict=True))  # fmt: skip
    shared = set(one[0]["patient"]) & set(one[1]["patient"])
    assert shared  # which is why there is a unit


def test_what_cannot_be_split_by_person_is_refused():
    with pytest.raises(DataError, match="3 persons cannot be spread over 4 parties"):
        split_rows(visits(3), 4, seed=0, unit="patient")
    with pytest.raises(DataError, match="no column 'who'"):
        split_rows(visits(), 2, seed=0, unit="who")
    with pytest.raises(InputError, match="codes do not say whose"):
        split_rows(Codes(Domain(("x",), (2,)), (np.zeros(4, np.uint8),)), 2, seed=0,
                   unit="patient")  # fmt: skip
