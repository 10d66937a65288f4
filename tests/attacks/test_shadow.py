import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from sklearn.neighbors import KernelDensity

from siloweave.attacks.groundhog import (
    SummaryLayout,
    exposed_records,
    histogram_summary,
    naive_summary,
    nearness,
)
from siloweave.attacks.rates import noise_attacker
from siloweave.attacks.shadow import SHADOW_ATTACKS, Sampler, shadow_attack, side_by_side
from siloweave.datasets import adult, adult_schema
from siloweave.errors import InputError, SchemaError
from siloweave.methods.aim.method import AIM
from siloweave.methods.central.method import GaussianCopula
from siloweave.methods.flaim.method import FLAIM
from siloweave.privacy.budget import Budget
from siloweave.tables.column import Column
from siloweave.tables.keys import generator
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table


def people(count, seed=0):
    """Ordinary rows, and one last that stands far out in every column."""
    rng = np.random.default_rng(seed)
    amount, small = rng.random(count) * 10, rng.integers(0, 5, count)
    kind = np.array(["a", "b", "c"])[rng.integers(3, size=count)]
    amount[-1], small[-1], kind[-1] = 1000.0, 90, "rare"
    gone = np.zeros(count, bool)
    gone[:5] = True
    return Table.from_columns({"x": (amount, gone), "y": (small, None), "c": (kind, None)})


PEOPLE = people(300)
LAST = PEOPLE.num_rows - 1


def copies(table, key):
    return table


def bootstrap(table, key):
    """Draws its training rows with replacement."""
    places = generator(key).integers(table.num_rows, size=table.num_rows)
    return table.take(places)


def ignores(table, key):
    """Samples a fixed table, whatever it was given."""
    return PEOPLE.take(generator(key).integers(LAST, size=60))


def attacked(generator_, targets=(LAST,), **options):
    chosen = {"training_size": 60, "train_sets": 20, "test_sets": 20, "key": 3, "workers": 1}
    return shadow_attack(generator_, PEOPLE, targets, **{**chosen, **options})


def test_a_generator_that_copies_is_caught_by_every_attack():
    found = attacked(copies)
    assert found.attacks == SHADOW_ATTACKS
    for one in found.risks:
        assert one.risk == one.raw == 1.0, one.attack
        assert one.curve.auc.value == 1.0
        assert [point.tpr.value for point in one.at] == [1.0, 1.0]
        assert one.low > 0.5
    assert found.worst_low > 0


def test_an_ordinary_record_is_caught_by_distance_when_rows_are_copied():
    found = attacked(copies, [100, 101], attacks=["ClosestDistance-Hamming"])
    assert [one.raw for one in found.risks] == [1.0, 1.0]
    assert found.mean("ClosestDistance-Hamming") == 1.0


def test_a_generator_that_ignores_its_rows_shows_no_risk():
    found = attacked(ignores, [LAST, 7, 8], train_sets=40, test_sets=60)
    assert len(found.risks) == 15
    assert found.worst_low <= 0 <= found.worst_high
    assert any(one.raw < 0 for one in found.risks)
    assert all(one.risk == max(0.0, one.raw) for one in found.risks)
    assert all(
        one.curve.auc.low <= 0.5 <= one.curve.auc.high for one in found.of(SHADOW_ATTACKS[2])
    )
    assert found.noise == noise_attacker(60)
    assert found.noise_record == noise_attacker(60, 5)
    assert found.noise_worst == noise_attacker(60, 15)
    assert found.worst.raw < 2 * found.noise_worst


@pytest.mark.parametrize("name", ["train_sets", "test_sets"])
@pytest.mark.parametrize("count", [7, 0, 1, -2])
def test_sets_that_cannot_be_halved_are_refused(name, count):
    with pytest.raises(InputError, match=f"{name}={count} must be even"):
        attacked(copies, **{name: count})


@pytest.mark.parametrize("replace", [True, False])
def test_half_of_the_sets_hold_each_record_and_sizes_show_nothing(replace):
    drawn = []

    def keep(table, key):
        drawn.append(table)
        return table

    found = attacked(keep, [LAST, 4], train_sets=6, test_sets=10, replace_target=replace)
    amounts = [table.values("x") for table in drawn]
    for split in (amounts[:6], amounts[6:]):
        assert sum(1000.0 in values for values in split) == len(split) / 2
    missing = [table.missing("x") for table in drawn]
    assert all(len(set(values)) >= 58 for values in amounts)
    sizes = {len(m) for m in missing}
    assert sizes == {60} if replace else sizes <= {60, 61, 62}
    assert all(one.curve.members == one.curve.others == 5 for one in found.risks)


def test_a_twin_of_a_record_is_never_drawn():
    doubled = Table.from_columns(
        {n: (np.append(PEOPLE.values(n), PEOPLE.values(n)[-1]), None) for n in ("y", "c")}
    )
    found = shadow_attack(
        copies, doubled, [LAST], training_size=60, train_sets=10, test_sets=10, key=0, workers=1
    )
    assert found.twins == 1
    assert found.worst.raw == 1.0


def test_records_may_come_as_a_table():
    ours = attacked(copies, PEOPLE.take([LAST]), attacks=["ClosestDistance-L2"])
    assert ours.worst.raw == 1.0
    assert ours.twins == 1  # the row itself, which is in the auxiliary rows too


def test_results_depend_on_the_key_alone():
    options = {"train_sets": 6, "test_sets": 6, "attacks": ["NaiveGroundhog"]}
    first = attacked(bootstrap, [LAST, 3], **options)
    assert attacked(bootstrap, [LAST, 3], **options) == first
    assert attacked(bootstrap, [LAST, 3], **options, key=4) != first


def test_what_cannot_travel_runs_in_threads():
    lock = threading.Lock()

    def locked(table, key):
        with lock:
            return bootstrap(table, key)

    with pytest.warns(UserWarning, match="cannot be sent to another process"):
        found = attacked(locked, train_sets=6, test_sets=6, workers=2)
    assert found == attacked(bootstrap, train_sets=6, test_sets=6)


def fails_on_odd(shared, job):
    if job == shared:
        raise ValueError("no luck")
    return job


@pytest.mark.parametrize("workers", [1, 2])
def test_a_fit_that_fails_is_named_and_nothing_more_starts(workers):
    with pytest.raises(InputError, match=r"^3: ValueError: no luck"):
        side_by_side(fails_on_odd, 3, range(6), workers=workers)


STOPPED = r"""
import os, signal, sys, time
from siloweave.attacks.shadow import side_by_side

def slow(shared, job):
    os.write(1, b"begun\n")  # in one piece, though two workers write
    time.sleep(3600)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    side_by_side(slow, None, range(6), workers=2)
"""


def test_ctrl_c_ends_the_workers_too(tmp_path):
    """What a terminal does: the signal goes to every process of the group."""
    script = tmp_path / "script.py"
    script.write_text(STOPPED)
    running = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert [running.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
    os.killpg(running.pid, signal.SIGINT)
    try:
        _, errors = running.communicate(timeout=120)  # no job is waited for
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode != 0
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_failing_generator_names_its_set():
    seen = []

    def fails(table, key):
        seen.append(table)
        if len(seen) == 3:
            raise RuntimeError("out of luck")
        return table

    with pytest.raises(InputError, match="training shadow set 3 of 20: RuntimeError: out of luck"):
        attacked(fails)
    assert len(seen) == 3
    with pytest.raises(InputError, match="returned 60 rows, fewer than synthetic_size=61"):
        attacked(copies, synthetic_size=61)


def test_progress_reaches_the_end():
    calls = []
    attacked(copies, train_sets=2, test_sets=2, progress=lambda *what: calls.append(what))
    assert calls[-1] == ("test shadow set 2 of 2", 1.0)
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attacks": ["Magic"]}, "choose from NaiveGroundhog"),
        ({"attacks": []}, "choose from NaiveGroundhog"),
        ({"targets": []}, "at least one"),
        ({"targets": [300]}, "auxiliary has rows 0 to 299"),
        ({"targets": [1, 1]}, "twice"),
        ({"training_size": 400}, "exceeds the 299 auxiliary rows"),
        ({"training_size": 1}, "2 or more"),
        ({"targets": list(range(40))}, "at most half"),
        ({"workers": 0}, "workers=0"),
        ({"synthetic_size": 0}, "synthetic_size=0"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(InputError, match=message):
        attacked(copies, **options)


def test_records_of_other_columns_are_refused():
    with pytest.raises(SchemaError, match="targets has the columns y, x"):
        attacked(copies, PEOPLE.select(["y", "x"]))
    text = Table.from_columns({n: (np.array(["a"]), None) for n in PEOPLE.names})
    with pytest.raises(SchemaError, match="numbers in auxiliary and text in targets"):
        attacked(copies, text)


# What the attacks look at.


def one_hot(rows, layout):
    """Numbers and one-hot categories, written out."""
    blocks = [rows.numbers]
    for column, place in zip(rows.codes.T, layout.categorical, strict=True):
        blocks.append(np.eye(len(place.labels) + 2)[column])
    return np.hstack(blocks)


@pytest.mark.parametrize("scaled", [True, False])
def test_nearness_is_what_the_definitions_say(scaled):
    table = people(40).take(range(5, 40))
    layout = SummaryLayout.of(table, scaled=scaled)
    rows, record = layout.read(table.take(range(30))), layout.read(table.take([31]))
    vectors, point = one_hot(rows, layout), one_hot(record, layout)
    hamming, distance, density = nearness(rows, record, layout)
    different = (rows.numbers != record.numbers).sum(axis=1) + (rows.codes != record.codes).sum(1)
    assert hamming == -(different / 3).min()
    assert distance == pytest.approx(-np.linalg.norm(vectors - point, axis=1).min())
    oracle = KernelDensity(bandwidth=1.0, kernel="gaussian").fit(vectors).score_samples(point)
    assert density == pytest.approx(oracle[0])


def test_a_missing_number_is_one_range_away():
    layout = SummaryLayout.of(PEOPLE)
    rows = layout.read(PEOPLE.take([0, 0]))
    here, gone = layout.read(PEOPLE.take([50])), layout.read(PEOPLE.take([0]))
    assert nearness(rows, gone, layout)[0] == 0
    assert nearness(rows, gone, layout)[1] == 0
    assert nearness(rows, here, layout)[1] <= -1


def test_summaries_are_what_the_definitions_say():
    table = people(40).take(range(5, 40))
    schema = Schema(
        (Column("x", "continuous", low=0.0, high=2000.0), *rest(table))
    ).with_fallbacks()
    layout = SummaryLayout.of(table, schema)
    rows = layout.read(table)
    vectors = one_hot(rows, layout)
    means, medians, variances = vectors.mean(0), np.median(vectors, 0), vectors.var(0)
    naive = naive_summary(rows, layout)
    assert naive[:4] == pytest.approx([means[0], medians[0], variances[0], 0])
    expected = np.concatenate([means[2:], medians[2:], variances[2:]])
    assert naive[8:] == pytest.approx(expected)
    histogram = histogram_summary(rows, layout)
    amounts = np.histogram(table.values("x") / 2000, bins=10, range=(0, 1))[0] / 35
    assert histogram[:10] == pytest.approx(amounts)
    assert histogram[22:] == pytest.approx(means[2:])


def rest(table):
    return Schema.detect(table).select(["y", "c"]).columns


def test_numbers_beyond_the_bounds_fall_into_the_outermost_bins():
    layout = SummaryLayout.of(Table.from_columns({"x": (np.array([0.0, 10.0]), None)}))
    far = layout.read(Table.from_columns({"x": (np.array([-5.0, 99.0, 3.0]), None)}))
    assert histogram_summary(far, layout)[[0, 3, 9]] == pytest.approx([1 / 3] * 3)


def test_many_categories_do_not_widen_summaries():
    names = np.array([f"n{i % 5000}" for i in range(10_000)])
    table = Table.from_columns({"c": (names, None)})
    schema = Schema(
        (Column("c", "categorical", categories=tuple(sorted(set(names)))),)
    ).with_fallbacks()
    layout = SummaryLayout.of(table, schema)
    assert len(histogram_summary(layout.read(table), layout)) == 258


def test_a_category_that_nobody_saw_is_read():
    layout = SummaryLayout.of(PEOPLE)
    strange = Table.from_columns(
        {"x": (np.array([1.0]), None), "y": (np.array([2]), None), "c": (np.array(["new"]), None)}
    )
    assert layout.read(strange).codes[0, 0] == len(layout.categorical[0].labels) + 1


@pytest.mark.parametrize("sample", [20, 5000])
def test_the_most_exposed_record_is_the_outlier(sample):
    assert exposed_records(PEOPLE, 3, key=0, sample=sample)[0] == LAST


def test_a_number_of_targets_attacks_the_most_exposed_records():
    options = {"train_sets": 6, "test_sets": 6, "attacks": ["NaiveGroundhog"]}
    places = exposed_records(PEOPLE, 2, key=0)
    assert attacked(bootstrap, 2, **options) == attacked(bootstrap, places, **options)
    with pytest.raises(InputError, match="count=0"):
        attacked(copies, 0)


def test_the_loneliest_records_are_exact_whatever_the_sample():
    table = people(250, seed=4)
    layout = SummaryLayout.of(table)
    rows = layout.read(table)
    nearest = [
        -nearness(rows.take([j for j in range(250) if j != i]), rows.take([i]), layout)[1]
        for i in range(250)
    ]
    expected = sorted(range(250), key=lambda i: (-nearest[i], i))[:6]
    for sample in (10, 100, 250):
        assert exposed_records(table, 6, key=1, sample=sample).tolist() == expected


def test_exposed_records_bad_input():
    with pytest.raises(InputError, match="count=300"):
        exposed_records(PEOPLE, 300, key=0)
    with pytest.raises(InputError, match="sample=1 "):
        exposed_records(PEOPLE, 3, key=0, sample=1)


def test_our_own_synthesizer_gives_the_same_whatever_the_workers():
    names = ["age", "sex", "income"]
    table, schema = adult().take(range(600)).select(names), adult_schema().select(names)
    sampler = Sampler(AIM(workload=[("sex", "income")], bins=8), schema, Budget(1.0, 1e-6))
    options = {"training_size": 100, "train_sets": 4, "test_sets": 4, "schema": schema}
    found = shadow_attack(sampler, table, [5], **options, key=0, workers=1)
    assert found == shadow_attack(sampler, table, [5], **options, key=0, workers=2)
    assert len(found.risks) == 5
    assert found.worst_low <= 0


def test_a_synthesizer_of_several_parties():
    names = ["sex", "income"]
    table, schema = adult().take(range(60)).select(names), adult_schema().select(names)
    flaim = FLAIM(rounds=1, participation=1.0, workload=[("sex", "income")])
    sampler = Sampler(flaim, schema, Budget(1.0, 1e-6), num_rows=25, parties=3)
    made = sampler(table, np.random.SeedSequence(4))
    assert made.num_rows == 25
    again = sampler(table, np.random.SeedSequence(4))
    assert made.values("sex").tolist() == again.values("sex").tolist()


def test_a_synthesizer_without_noise_is_attacked_too():
    """Its fit has nothing to seed but itself."""
    names = ["sex", "income"]
    table, schema = adult().take(range(60)).select(names), adult_schema().select(names)
    sampler = Sampler(GaussianCopula(), schema, None, num_rows=25)
    made = sampler(table, np.random.SeedSequence(4))
    again = sampler(table, np.random.SeedSequence(4))
    assert made.num_rows == 25
    assert made.values("sex").tolist() == again.values("sex").tolist()
    found = shadow_attack(
        sampler, table, [5], training_size=20, train_sets=2, test_sets=2, key=0, workers=1,
        attacks=["ClosestDistance-Hamming"], schema=schema,
    )  # fmt: skip
    assert len(found.risks) == 1
