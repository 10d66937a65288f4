import numpy as np
import polars as pl
import pytest
from scipy.spatial.distance import cdist
from sklearn.neighbors import KernelDensity

from siloweave.attacks.membership import judged, membership, membership_part, scores
from siloweave.attacks.rates import noise_attacker, roc
from siloweave.tables.aligned import align
from tests.attacks.people import people

TABLES = ("train", "synthetic", "control")


def features(of, table):
    """Standardised numbers and one-hot codes, each spelt out."""
    parts = []
    for column in of.columns:
        values = column.values[table]
        pooled = np.concatenate(list(column.values.values()))
        if column.numeric:
            gap = np.isnan(values)
            mean, spread = np.nanmean(pooled), np.nanstd(pooled)
            parts.append(np.where(gap, 0, (values - mean) / spread)[:, None])
            if np.isnan(pooled).any():
                parts.append(np.eye(2)[gap.astype(int)])
        else:
            width = len(column.labels) + (pooled == len(column.labels)).any()
            parts.append(np.eye(width)[values])
    return np.hstack(parts)


@pytest.mark.parametrize("gaps", [False, True])
def test_scores_are_those_of_scipy_and_scikit_learn(gaps):
    of = align(
        {
            "train": people(1, 80, gaps),
            "synthetic": people(2, 5000, gaps),
            "control": people(3, 300, gaps),
        }
    )
    targets = {"train": np.arange(80), "control": np.arange(70)}
    reference = np.arange(100, 300)
    found = scores(of, targets, reference, key=0)
    synthetic, others = features(of, "synthetic"), features(of, "control")[reference]
    for table, rows in targets.items():
        wanted = features(of, table)[rows]
        np.testing.assert_allclose(
            found["l2"][table], -cdist(wanted, synthetic).min(axis=1), rtol=1e-5, atol=1e-5
        )
        density = KernelDensity(bandwidth=1.0).fit(synthetic).score_samples(wanted)
        np.testing.assert_allclose(found["density"][table], density, rtol=1e-6, atol=1e-4)
        # One leaf, for the tree's bounds go wrong by tens of nats where kernels hardly overlap.
        exact = KernelDensity(bandwidth=0.1, leaf_size=10_000)
        narrow = exact.fit(synthetic).score_samples(wanted)
        np.testing.assert_allclose(found["narrow density"][table], narrow, rtol=1e-4, atol=1e-2)
        density = density - KernelDensity(bandwidth=1.0).fit(others).score_samples(wanted)
        np.testing.assert_allclose(found["density ratio"][table], density, rtol=1e-4, atol=1e-4)
        codes = [np.stack([c.values[t] for c in of.columns], 1) for t in (table, "synthetic")]
        codes = [np.where(np.isnan(c), -1e9, c) for c in codes]
        mismatch = cdist(codes[0][rows], codes[1], "hamming").min(axis=1)
        np.testing.assert_allclose(found["hamming"][table], -mismatch, atol=1e-6)


def test_neighbours_are_counted_among_as_many_rows_of_either_kind():
    of = align({name: people(seed, 60, True) for seed, name in enumerate(TABLES, 1)})
    targets = {"train": np.arange(30), "control": np.arange(10)}
    found = scores(of, targets, np.arange(10, 60), key=0)["neighbours"]
    others = features(of, "control")[10:]
    for table, rows in targets.items():
        wanted = features(of, table)[rows]
        counts = []
        for seed in range(20):  # the 50 of 60 synthetic rows that are compared are not known
            places = np.random.default_rng(seed).choice(60, 50, replace=False)
            synthetic = features(of, "synthetic")[places]
            both = np.hstack([cdist(wanted, synthetic), cdist(wanted, others)])
            counts.append((both.argsort(axis=1)[:, :20] < 50).sum(axis=1))
        assert np.corrcoef(np.mean(counts, axis=0), found[table])[0, 1] > 0.9
        assert np.abs(np.mean(counts, axis=0) - found[table]).max() < 3


@pytest.mark.parametrize("attack", ["classifier", "neighbours"])
def test_an_attack_with_reference_rows_finds_rows_that_were_nearly_copied(attack):
    rows = people(1, 400, False)
    of = align({"train": rows, "synthetic": rows, "control": people(3, 800, False)})
    targets = {"train": np.arange(400), "control": np.arange(400)}
    reference = np.arange(400, 800)
    for copied, least, most in ((of, 0.6, 1.0), (align(fresh_tables()), 0.42, 0.58)):
        found = scores(copied, targets, reference, key=0)[attack]
        assert least < roc(found["train"], found["control"]).auc.value <= most


def fresh_tables():
    """Return three tables that have nothing to do with each other."""
    return {name: people(seed, 800, False) for seed, name in enumerate(TABLES, 11)}


def roomy(seed, rows):
    """Rows with so many columns that no two are near each other."""
    rng = np.random.default_rng(seed)
    numbers = {f"x{k}": rng.normal(size=rows) for k in range(30)}
    return pl.DataFrame({**numbers, "c": rng.integers(5, size=rows).astype(str)})


def attacked(train, synthetic, control, count=300):
    of = align({"train": train, "synthetic": synthetic, "control": control})
    targets = {t: np.arange(count) for t in ("train", "control")}
    return membership(of, targets, np.arange(count, of.num_rows["control"]), key=0)


def test_every_score_sees_a_copy():
    train = roomy(1, 600)
    for found in attacked(train, train, roomy(2, 600)):
        # Trees remember less than distances do, and one copy is one of twenty neighbours.
        if found.attack in ("classifier", "neighbours"):
            assert found.roc.auc.low > 0.5
        else:
            assert found.threshold.risk > 0.95, found.attack
            assert found.roc.auc.value > 0.99, found.attack
            assert found.at[0].tpr.value > 0.9, found.attack
            assert not membership_part(found).note
        part = membership_part(found)
        assert (part.attack, part.variant) == ("membership", found.attack)


@pytest.mark.parametrize("seed", range(3))
def test_no_score_sees_anything_in_a_fresh_sample(seed):
    """Seven attacks in three runs: an interval at 99.7% each leaves 6% for a false alarm."""
    train, synthetic, control = (people(10 * seed + k, 900) for k in range(3))
    of = align({"train": train, "synthetic": synthetic, "control": control})
    targets = {t: np.arange(400) for t in ("train", "control")}
    found = membership(of, targets, np.arange(400, 900), key=seed, confidence=0.997)
    assert len(found) == 7
    for item in found:
        assert item.roc.auc.holds(0.5), item.attack
        assert item.threshold.low == 0, item.attack
        assert item.above_all.p_value > 0.003, item.attack


def test_a_risk_that_coins_show_is_called_so():
    rng = np.random.default_rng(3)
    found = judged("noise", rng.random(100), rng.random(100), attacks=5, key=1)
    assert found.noise == noise_attacker(100, 5)
    assert found.threshold.risk <= found.noise
    assert "no leak" in membership_part(found).note


def test_without_further_control_rows_there_is_no_ratio():
    train = people(1, 50)
    of = align({"train": train, "synthetic": train, "control": people(2, 50)})
    targets = {t: np.arange(50) for t in ("train", "control")}
    names = [found.attack for found in membership(of, targets, np.arange(0), key=0)]
    assert names == ["hamming", "l2", "density", "narrow density"]
