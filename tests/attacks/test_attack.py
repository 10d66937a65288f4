"""The whole: what it must see, what it must not, and what it refuses."""

import json

import numpy as np
import polars as pl
import pytest

from siloweave.attacks.attack import ATTACKS, attack
from siloweave.errors import DataError, InputError, SchemaError
from siloweave.tables import Column, Schema, read
from tests.attacks.people import people

TRAIN, CONTROL, FRESH = (people(seed, 2000) for seed in (1, 2, 3))


def run(synthetic, **changed):
    settings = {"control": CONTROL, "targets": 400, **changed}
    return attack(settings.pop("train", TRAIN), synthetic, **settings)


@pytest.fixture(scope="module")
def copied():
    return run(TRAIN)


@pytest.fixture(scope="module")
def fresh():
    return run(FRESH, confidence=0.998)


def test_a_copy_is_at_risk_under_every_attack(copied):
    """Wide densities apart: between records they separate common from rare, copied or not.

    Trees and counts of neighbours see a copy, but not as surely.
    """
    low = {(p.attack, p.variant) for p in copied.parts if p.risk < 0.9}
    weaker = ("density", "density ratio", "classifier", "neighbours")
    assert low <= {*(("membership", name) for name in weaker), LINKED}
    assert copied.membership("classifier").roc.auc.low > 0.55
    assert copied.membership("neighbours").roc.auc.low > 0.5
    assert copied.part(*LINKED).low > 0.2
    assert copied.part("membership", "narrow density").low > 0.9
    assert copied.membership("density ratio").roc.auc.low > 0.5
    assert copied.worst.caught
    assert copied.worst.p_value < 1e-100
    assert copied.closest.closer_to_train.low > 0.95
    assert not copied.not_measured


LINKED = ("linkability", "nearest 1")


def test_a_fresh_sample_is_at_no_risk(fresh):
    """Sixteen risks and five areas at 99.8% each: 2% for one false alarm or more."""
    assert [(p.attack, p.variant) for p in fresh.parts if p.low > 0] == []
    assert [m.attack for m in fresh.memberships if not m.roc.auc.holds(0.5)] == []
    assert not fresh.worst.caught
    assert fresh.closest.closer_to_train.holds(0.5)


def test_five_per_cent_of_copies_are_caught_by_the_worst_record():
    """The mean risk of membership stays small; the worst record's chance does not."""
    found = run(pl.concat([FRESH[:1900], TRAIN[700:800]]), confidence=0.95)
    assert found.worst.caught
    assert found.worst.p_value < 1e-9
    assert set(found.worst.rows) <= set(range(700, 800))
    mean = [p.risk for p in found.parts if p.attack == "membership"]
    assert max(mean) < 0.2


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_caught_where_nothing_leaks(seed):
    tables = [people(100 + 3 * seed + k, 800, gaps=True) for k in range(3)]
    found = attack(
        tables[0], tables[1], control=tables[2], attacks=["membership", "worst_record"], targets=300
    )
    assert not found.worst.caught or found.worst.p_value > 0.01


def test_the_same_seed_gives_the_same_numbers(fresh):
    assert run(FRESH, confidence=0.998) == fresh
    other = run(FRESH, confidence=0.998, seed=1)
    assert other.parts != fresh.parts


def test_results_can_be_looked_up_printed_and_stored(copied):
    part = copied.part("inference", "city")
    assert (part.attack, part.variant, part.attacks) == ("inference", "city", 400)
    assert copied.highest.risk == max(p.risk for p in copied.parts)
    with pytest.raises(InputError, match="more than one part"):
        copied.part("inference")
    with pytest.raises(InputError, match="no part"):
        copied.part("guesswork")
    with pytest.raises(InputError, match="no membership attack"):
        copied.membership("guesswork")
    stored = json.loads(copied.to_json())
    assert stored["parts"] == json.loads(json.dumps(copied.to_dict()["parts"]))
    assert stored["rows"] == {"train": 2000, "synthetic": 2000, "control": 2000}
    assert len(stored["memberships"][0]["roc"]["fpr"]) == len(copied.memberships[0].roc.fpr)
    text = str(copied)
    for word in ("singling out", "all nearest", "city", "AUC", "worst record: given away", "95%"):
        assert word in text


def test_only_what_is_asked_for_is_measured():
    calls = []
    found = run(
        FRESH,
        attacks=["inference"],
        secret=["city", "balance"],
        known=["age", "income", "city"],
        progress=lambda text, done: calls.append((text, done)),
    )
    assert [p.variant for p in found.parts] == ["all secrets", "city", "balance"]
    assert found.worst is found.closest is None
    assert found.memberships == ()
    assert calls == [("inference", 0.0), ("done", 1.0)]
    linked = run(FRESH, attacks="linkability", known=(["age", "city"], ["income"]))
    assert [p.variant for p in linked.parts] == ["nearest 1", "all nearest"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attacks": ["everything"]}, "must name some of singling_out"),
        ({"attacks": []}, "must name some of"),
        ({"targets": 9}, "targets=9 must be a whole number, 10 or more"),
        ({"targets": True}, "targets=True"),
        ({"confidence": 95}, "confidence=95 must be a number in"),
        ({"known": ["age", "shoe"]}, "known='shoe' is no column; choose from group"),
        ({"known": ["age", "age"]}, "each of them once"),
        ({"known": (["age"], ["age", "city"])}, "each of them once"),
        ({"known": (["age"], "city")}, "a list of columns, or two lists"),
        ({"secret": "shoe"}, "secret='shoe' is no column"),
        ({"secret": []}, "secret is empty"),
        ({"seed": -1}, "not a key"),
    ],
)
def test_arguments_are_checked(changed, message):
    with pytest.raises(InputError, match=message):
        run(FRESH, **changed)


def test_tables_must_go_together():
    with pytest.raises(SchemaError, match="synthetic lacks 'age'"):
        run(FRESH.drop("age"))
    with pytest.raises(SchemaError, match="control"):
        run(FRESH, control=CONTROL.with_columns(pl.lit("old").alias("age")))
    with pytest.raises(DataError, match="'income' has no value in any row of control"):
        run(FRESH, control=CONTROL.with_columns(pl.lit(None, pl.Float64).alias("income")))
    with pytest.raises(DataError, match="synthetic has 9 rows; attacks need 10"):
        run(FRESH[:9])


def test_a_control_that_is_training_rows_is_refused():
    mixed = pl.concat([CONTROL[:1900], TRAIN[:100]])
    with pytest.raises(DataError, match=r"100 of 2000 control rows \(5.0%\) equal a training row"):
        run(FRESH, control=mixed)
    found = run(FRESH, control=mixed, allow_overlap=True, attacks=["worst_record"])
    assert any("risks are too low" in note for note in found.notes)


def test_rows_that_repeat_anyway_are_no_overlap():
    rng = np.random.default_rng(0)
    drawn = [
        pl.DataFrame({"a": rng.integers(9, size=500), "b": rng.integers(5, size=500).astype(str)})
        for _ in range(3)
    ]
    found = attack(drawn[0], drawn[1], control=drawn[2], targets=100)
    assert any("500 of 500 control rows" in note for note in found.notes)


def test_fewer_rows_than_targets_are_all_used_and_it_is_said():
    found = run(FRESH[:300], train=TRAIN[:60], control=CONTROL[:40], targets=100)
    assert found.part("linkability", "all nearest").attacks == 60
    assert "train has 60 rows, fewer than the 100 targets" in found.notes[0]
    assert "control has 40 rows" in found.notes[1]
    assert "membership (density ratio, classifier, neighbours)" in found.not_measured
    assert "not measured: membership (density ratio, classifier, neighbours)" in str(found)


@pytest.mark.parametrize("kind", ["numbers", "categories"])
def test_tables_of_one_kind_are_attacked_whole(kind):
    names = ["age", "income", "balance"] if kind == "numbers" else ["group", "city", "owner"]
    tables = [frame.select(names)[:500] for frame in (TRAIN, FRESH, CONTROL)]
    found = attack(tables[0], tables[1], control=tables[2], targets=100)
    measured = {p.attack for p in found.parts} | {name.split(" ")[0] for name in found.not_measured}
    assert measured == set(ATTACKS[:4])
    assert all(np.isfinite([p.risk, p.low, p.high]).all() for p in found.parts)


def test_constant_columns_and_a_single_column_are_not_measured_and_say_why():
    tables = [f.with_columns(site=pl.lit("north"))[:300] for f in (TRAIN, FRESH, CONTROL)]
    found = attack(tables[0], tables[1], control=tables[2], targets=50, attacks=["inference"])
    assert found.not_measured == {"inference (site)": "it has the same value in every row"}
    single = [frame.select("balance")[:300] for frame in (TRAIN, FRESH, CONTROL)]
    found = attack(single[0], single[1], control=single[2], targets=50)
    assert found.not_measured["linkability"] == "it needs two known columns or more"
    assert found.not_measured["inference (balance)"] == "no other column is known"
    with pytest.raises(InputError, match="not measured: it needs two known"):
        found.part("linkability")


def test_a_schema_says_the_kinds():
    schema = Schema.detect(read(TRAIN))
    found = run(FRESH, schema=schema, attacks=["linkability"], targets=50)
    assert found.parts


def test_ids_are_left_out_and_named():
    tables = [
        frame[:200].with_columns(person=pl.Series([f"p{k}{i:05d}" for i in range(200)]))
        for k, frame in enumerate((TRAIN, FRESH, CONTROL))
    ]
    found = attack(tables[0], tables[1], control=tables[2], targets=50, attacks=["linkability"])
    assert "columns of ids are left out: person" in found.notes
    with pytest.raises(InputError, match="holds ids"):
        attack(tables[0], tables[1], control=tables[2], targets=50, secret="person")


def test_a_hundred_thousand_categories_need_little_memory():
    """One-hot codes of this column would take 80 GB for the synthetic table alone."""
    rng = np.random.default_rng(0)
    drawn = [
        pl.DataFrame(
            {
                "code": [f"c{v}" for v in rng.integers(100_000, size=100_000)],
                "size": rng.integers(50, size=100_000),
            }
        ).with_columns(code=pl.col("code").cast(pl.String))
        for _ in range(3)
    ]
    size = Schema.detect(read(drawn[0]))["size"]
    code = Column("code", "categorical", tuple(f"c{v}" for v in range(100_000)))
    schema = Schema((code, size)).with_fallbacks()  # by itself it would be taken for an identifier
    small = [drawn[0][:20_000], drawn[1], drawn[2][:20_000]]
    found = attack(small[0], small[1], control=small[2], schema=schema, targets=50)
    assert {p.attack for p in found.parts} == set(ATTACKS[:4])
    assert not found.worst.caught
