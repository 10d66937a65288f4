"""Attacks on persons: all rows of one are attacked together, and rates count persons."""

import re

import numpy as np
import polars as pl
import pytest

from siloweave.attacks.attack import attack
from siloweave.attacks.membership import copies, joined
from siloweave.attacks.neighbours import ordinals
from siloweave.attacks.singling_out import singling_out
from siloweave.errors import DataError, InputError, SchemaError
from siloweave.tables import Column, Schema
from siloweave.tables.aligned import align
from tests.attacks.people import people

PERSONS, VISITS = 500, 4


def visits(seed, persons=PERSONS, most=VISITS, first=0):
    """One to four rows a person, which have group, city and owner in common."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(persons), rng.integers(1, most + 1, persons))
    homes, rows = people(seed, persons), people(seed + 100, len(owners))
    kept = homes[owners].select("group", "city", "owner", "age")
    ids = pl.Series("patient", [f"id-{first + i}" for i in owners])
    return pl.concat([kept, rows.select("income", "balance", "visits")],
                     how="horizontal").with_columns(ids)  # fmt: skip


TRAIN, CONTROL = visits(1), visits(2, first=10_000)
FRESH = visits(3, first=20_000)


def run(synthetic, train=TRAIN, **changed):
    settings = {"control": CONTROL, "targets": 300, "unit": "patient", **changed}
    return attack(train, synthetic, **settings)


@pytest.fixture(scope="module")
def copied():
    return run(TRAIN)


@pytest.fixture(scope="module")
def fresh():
    return run(FRESH, confidence=0.998)


def test_a_copy_gives_every_person_away(copied):
    assert copied.part("membership", "hamming").low > 0.9
    assert copied.part("inference", "all secrets").low > 0.3
    assert copied.worst.caught
    (every, _) = copied.worst.copies
    assert (every.train.successes, every.train.trials) == (PERSONS, PERSONS)
    assert copied.units == {"train": PERSONS, "control": PERSONS}
    assert copied.unit == "patient"
    assert copied.rows["train"] == len(TRAIN)
    text = str(copied)
    assert re.search(r"test persons.*\n.* 300 ", text)
    assert "At least one training person is given away" in text
    assert any(
        f"{PERSONS} persons with {len(TRAIN)} rows in train" in note for note in copied.notes
    )


def test_a_fresh_sample_gives_nobody_away(fresh):
    assert [(p.attack, p.variant) for p in fresh.parts if p.low > 0] == []
    assert [m.attack for m in fresh.memberships if not m.roc.auc.holds(0.5)] == []
    assert not fresh.worst.caught


def test_trials_are_persons_and_never_rows(copied):
    for found in copied.memberships:
        assert (found.roc.members, found.roc.others) == (300, 300)
    assert copied.part("linkability", "all nearest").train.trials == 300
    one_column = run(TRAIN, attacks=["inference"], secret="city").part("inference", "city")
    assert one_column.train.trials == 300


def test_one_row_that_is_copied_finds_its_person():
    """A single visit of every tenth person is in the table, and nothing else of theirs."""
    first = TRAIN.unique("patient", keep="first", maintain_order=True)[::10]
    found = run(pl.concat([FRESH, *[first] * 2]), targets=500)
    assert found.worst.caught
    assert found.worst.copies[0].train.successes >= 50
    assert found.membership("hamming").above_all.count >= 45


def test_persons_in_both_tables_are_refused_with_how_many_and_not_which():
    both = pl.concat([CONTROL, TRAIN.filter(pl.col("patient").is_in(["id-3", "id-4"]))])
    for allowed in (False, True):
        with pytest.raises(DataError, match=r"^2 persons have rows in both train and control"
                           r".*Hold out persons") as error:  # fmt: skip
            run(FRESH, control=both, allow_overlap=allowed)
        assert "id-3" not in str(error.value)


def test_holding_out_rows_hides_what_holding_out_persons_shows():
    """The generator knows persons: a held-out row of one it saw looks like her other rows."""
    kept = ("group", "city", "owner", "age")
    mixed = np.random.default_rng(0).permutation(len(TRAIN))
    train, rows_held_out = TRAIN[mixed[::2]], TRAIN[mixed[1::2]]
    noise = people(9, len(train)).select("income", "balance", "visits")
    made = pl.concat([train.select(kept), noise], how="horizontal")
    names = [name for name in TRAIN.columns if name != "patient"]
    by_row = attack(train.select(names), made.select(names), control=rows_held_out.select(names),
                    targets=300, attacks=["membership"], allow_overlap=True)  # fmt: skip
    wide = made.with_columns(patient=pl.lit("none")).select(TRAIN.columns)
    by_person = run(wide, train=train, attacks=["membership"])
    best = [max(m.roc.auc.value for m in found.memberships) for found in (by_row, by_person)]
    assert best[1] > best[0] + 0.05


def test_a_synthetic_table_may_lack_the_ids():
    names = [name for name in TRAIN.columns if name != "patient"]
    found = run(FRESH.select(names), attacks=["membership"])
    assert found.units["train"] == PERSONS


def test_rows_without_an_id_are_persons_of_their_own_and_it_is_said():
    holes = TRAIN.with_columns(
        pl.when(pl.int_range(pl.len()) < 40).then(None).otherwise("patient").alias("patient")
    )
    found = run(FRESH, train=holes, attacks=["membership"])
    assert "40 rows of train have no id: each is a person of its own" in found.notes
    assert found.units["train"] == holes["patient"].drop_nulls().n_unique() + 40


def test_a_unit_that_is_no_id_column_is_refused():
    with pytest.raises(DataError, match=r"train has no column 'who'"):
        run(FRESH, unit="who")
    with pytest.raises(InputError, match="unit="):
        run(FRESH, unit="")
    schema = Schema(tuple(Column(n, "categorical", ("a",)) for n in TRAIN.columns)).with_fallbacks()
    with pytest.raises(SchemaError, match="is a column of kind categorical, not id"):
        run(FRESH, schema=schema)
    few = TRAIN.filter(pl.col("patient").is_in([f"id-{i}" for i in range(9)]))
    with pytest.raises(DataError, match="train has rows of 9 persons"):
        run(FRESH, train=pl.concat([few, few]))


def test_the_same_seed_gives_the_same_numbers():
    settings = {"attacks": ["linkability", "membership"]}
    assert run(FRESH, **settings).to_dict() == run(FRESH, **settings).to_dict()


def test_a_row_as_the_unit_is_what_it_was():
    names = [name for name in TRAIN.columns if name != "patient"]
    tables = {"train": TRAIN.select(names), "control": CONTROL.select(names)}
    one = attack(tables["train"], FRESH.select(names), control=tables["control"], targets=200)
    two = attack(tables["train"], FRESH.select(names), control=tables["control"], targets=200,
                 unit="row")  # fmt: skip
    assert one.to_dict() == two.to_dict()
    assert one.unit == "row"


def coded(train, control, synthetic):
    frames = {"train": train, "synthetic": synthetic, "control": control}
    return ordinals(align({name: pl.DataFrame({"x": x}) for name, x in frames.items()}))


def test_a_persons_score_is_that_of_the_row_that_gives_her_away():
    assert joined(np.array([-3.0, -1.0, -9.0, 2.0]), np.array([1, 0, 1, 0])).tolist() == [2, -3]


def test_a_row_that_two_persons_have_occurs_more_than_once_and_two_of_one_person_do_not():
    values = coded([1, 1, 2, 3, 3], [7, 8, 9, 9, 9], [1, 2, 3, 4, 5])
    owners = {"train": np.array([0, 0, 1, 1, 2]), "control": np.array([0, 1, 2, 2, 2])}
    (every, once), _ = copies(values, owners=owners)
    assert (every.train.successes, every.train.trials) == (3, 3)
    assert (once.train.successes, once.train.trials) == (2, 2)  # 3 is two persons' own
    assert (every.control.successes, every.control.trials) == (0, 3)


def test_predicates_single_a_person_out_by_any_number_of_her_rows():
    """Every value of the synthetic table is one person's, who has it in two rows."""
    values = coded(np.repeat(np.arange(40), 2), np.repeat(np.arange(100, 140), 2), np.arange(40))
    owners = {table: np.repeat(np.arange(40), 2) for table in ("train", "control")}
    found = singling_out(values, "univariate", attacks=30, key=0, owners=owners)
    assert found.train.successes >= 28
    assert found.control.successes <= 2
    shared = {table: np.tile(np.arange(2), 40) for table in ("train", "control")}
    apart = singling_out(values, "univariate", attacks=30, key=0, owners=shared)
    assert apart.train.successes <= 2  # both persons have every value
