"""Scores where a person has several rows: she is held out whole, and folds keep her together."""

import numpy as np
import polars as pl
import pytest

from siloweave.errors import DataError, InputError
from siloweave.evaluate.discriminator import discriminate
from siloweave.evaluate.predictive import folds_of
from siloweave.evaluate.scoring import score
from siloweave.tables.aligned import align
from siloweave.tables.persons import numbered, owners_in
from siloweave.tables.read import read


def visits(seed, persons=80, most=4, first=0):
    """Rows of persons whose two numbers are their own, whatever the visit."""
    rng = np.random.default_rng(seed)
    owners = rng.permutation(np.repeat(np.arange(persons), rng.integers(1, most + 1, persons)))
    own = rng.normal(size=(persons, 2))
    return pl.DataFrame(
        {
            "patient": [f"p{first + i}" for i in owners],
            "height": own[owners, 0],
            "weight": own[owners, 1],
            "ward": np.array(["a", "b", "c"])[rng.integers(3, size=len(owners))],
            "dose": rng.normal(size=len(owners)),
        }
    )


REAL, HOLDOUT, MADE = visits(1), visits(2, first=1000), visits(3, first=2000)


def test_persons_are_held_out_and_folds_and_halves_keep_them_together():
    found = score(REAL, MADE, holdout=HOLDOUT, unit="patient", max_rows=100)
    assert found.settings.unit == "patient"
    assert "80 persons held out" in found.settings.ceiling
    assert "patient" not in found.associations.names
    halved = score(REAL, MADE.drop("patient"), unit="patient", max_rows=100)
    assert "half of the real persons" in halved.settings.ceiling


def test_a_person_in_both_real_tables_is_refused():
    both = pl.concat([HOLDOUT, REAL[:1]])
    with pytest.raises(DataError, match=r"^1 person has rows in both real and holdout") as error:
        score(REAL, MADE, holdout=both, unit="patient")
    assert REAL["patient"][0] not in str(error.value)
    assert score(REAL, MADE, holdout=both, max_rows=60).settings.unit == "row"


def test_a_unit_that_is_no_id_column_is_refused():
    with pytest.raises(DataError, match="real has no column 'who'"):
        score(REAL, MADE, unit="who")
    with pytest.raises(InputError, match="unit="):
        score(REAL, MADE, unit=None)


def test_no_person_is_in_two_folds_and_folds_have_as_many_persons():
    owners = numbered(REAL["patient"].to_list())
    folds = folds_of(owners, 0)
    people = [set(owners[fold].tolist()) for fold in folds]
    assert sorted(np.concatenate(folds).tolist()) == list(range(len(owners)))
    assert not people[0] & people[1]
    assert not people[2] & (people[0] | people[1])
    assert sorted(map(len, people)) == [26, 27, 27]


def test_a_discriminator_that_knows_persons_by_heart_gains_nothing_on_others():
    """With folds of rows the trees know persons, whose rows are alike; with folds of persons not.

    Both tables are of one population, so an area above 1/2 is nothing but memory.
    """
    tables = {"real": visits(5, 60, 8).drop("patient"), "synthetic": visits(6, 480, 1)}
    tables["synthetic"] = tables["synthetic"].drop("patient")[: len(tables["real"])]
    aligned = align(tables)
    owners = owners_in({"real": read(visits(5, 60, 8))}, "patient")
    by_row = discriminate(aligned, "real", "synthetic", key=0).auc
    grouped = type(aligned)(aligned.columns, aligned.num_rows, aligned.left_out, owners)
    by_person = discriminate(grouped, "real", "synthetic", key=0).auc
    assert by_row > 0.8
    assert by_person < by_row - 0.1


def test_with_a_single_person_there_is_no_half_and_no_fold():
    alone = REAL.with_columns(patient=pl.lit("p"))
    found = score(alone, MADE, unit="patient", max_rows=100)
    assert found.settings.ceiling == "none: one person has no other half"
    gaps = {gap.name: gap.reason for gap in found.not_measured}
    assert "1 real persons are fewer than 3 folds" in gaps["utility"]
