"""Encoders that owners of different rows agree on: as if all rows lay at one place, or nearly."""

import msgspec
import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon
from scipy.stats import ks_2samp

from siloweave.errors import DataError, SchemaError
from siloweave.tables import Column, Schema, Table
from siloweave.tables.encodings import Mixture
from siloweave.tables.features import Features
from siloweave.tables.summaries import ColumnSummary, agreed_features, distances, summarise

LISTED = Schema(
    (
        Column("town", "categorical", ("a", "b", "c"), missing=True),
        Column("few", "integer", low=0, high=9),
        Column("age", "integer", low=18, high=80, missing=True),
        Column("flag", "boolean"),
    )
)
SMOOTH = Schema((Column("pay", "continuous", low=-50.0, high=50.0),))


def listed(rows, seed):
    rng = np.random.default_rng(seed)
    town = rng.choice(["a", "b"], rows).astype(object)
    return Table.from_columns(
        {
            "town": (town, rng.random(rows) < 0.2),
            "few": (rng.integers(0, 5, rows), None),
            "age": (rng.integers(18, 81, rows), rng.random(rows) < 0.1),
            "flag": (rng.random(rows) < 0.3, None),
        }
    )


def smooth(values):
    return Table.from_columns({"pay": (np.asarray(values, dtype=float), None)})


@pytest.mark.parametrize("numeric", ["quantile", "modes", "standard"])
def test_what_is_listed_gives_the_encoders_of_all_rows(numeric):
    whole = listed(3_000, 0)
    parts = [whole.take(range(700)), whole.take(range(700, 3_000))]
    summaries = [summarise(part, LISTED) for part in parts]
    ours = agreed_features(LISTED, summaries, numeric=numeric)
    central = Features.fit(whole, LISTED, numeric=numeric, key=0)
    assert ours == central


def test_summaries_survive_the_wire():
    rng = np.random.default_rng(1)
    summaries = summarise(smooth(np.append(rng.normal(size=500), np.zeros(50))), SMOOTH)
    assert (
        msgspec.json.decode(msgspec.json.encode(summaries), type=tuple[ColumnSummary, ...])
        == summaries
    )
    (pay,) = summaries
    assert pay.values == (0.0,)  # the only value that 2 % of the rows hold
    assert pay.rows == 550
    assert pay.mixture is not None


def test_groups_of_neighbours_stand_for_numbers_where_no_modes_are_wanted():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.gamma(0.5, size=3_000), np.full(300, 2.5), [40.0]])
    (summary,) = summarise(smooth(values), SMOOTH, numeric="quantile")
    assert summary.values == (2.5,)
    assert summary.rest == 3_001
    modes = summary.mixture
    rows = np.array(modes.weights) * summary.rest
    assert rows.min() >= 5 - 1e-6
    assert len(rows) <= 1_024
    assert np.array(modes.means) @ rows == pytest.approx(values[values != 2.5].sum())
    few = summarise(smooth(rng.normal(size=23)), SMOOTH, numeric="quantile")[0].mixture
    assert np.min(np.array(few.weights) * 23) >= 5 - 1e-6


def test_a_curve_of_groups_is_nearer_to_the_values_than_one_of_modes():
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.gamma(0.5, size=4_000), rng.uniform(3, 3.1, 2_000)])
    distances_to = {}
    for numeric in ("modes", "quantile"):
        sent = [summarise(smooth(part), SMOOTH, numeric=numeric) for part in np.split(values, 3)]
        scale = agreed_features(SMOOTH, sent, numeric="quantile").encodings[0].scale
        drawn = scale.join(np.zeros(6_000, np.int64), rng.normal(size=6_000))
        distances_to[numeric] = ks_2samp(values, drawn).statistic
    assert distances_to["quantile"] < 0.03
    assert distances_to["quantile"] < distances_to["modes"]


def test_mixtures_of_two_owners_are_fitted_again_together():
    rng = np.random.default_rng(2)
    low, high = rng.normal(-20, 1, 4_000), rng.normal(20, 2, 8_000)
    summaries = [summarise(smooth(part), SMOOTH) for part in (low, high)]
    scale = agreed_features(SMOOTH, summaries, numeric="modes").encodings[0].scale
    weights, means = np.array(scale.weights), np.array(scale.means)
    assert weights[means < 0].sum() == pytest.approx(1 / 3, abs=0.01)
    assert weights @ means == pytest.approx((low.sum() + high.sum()) / 12_000, abs=0.2)


def test_distances_are_those_of_the_rows():
    whole = listed(3_000, 3)
    parts = [whole.take(range(500)), whole.take(range(500, 3_000))]
    S = distances(LISTED, [summarise(part, LISTED) for part in parts])
    assert S.shape == (2, 4)
    for i, part in enumerate(parts):
        few = stats.wasserstein_distance(part.values("few"), whole.values("few"))
        assert S[i, 1] == pytest.approx(few)
        p, q = (np.bincount(t.values("flag").astype(int)) / t.num_rows for t in (part, whole))
        assert S[i, 3] == pytest.approx(jensenshannon(p, q, base=2))


def test_owners_may_count_alike():
    small, large = smooth(np.zeros(5)), smooth(np.full(95, 10.0))
    summaries = [summarise(one, SMOOTH) for one in (small, large)]
    by_rows, alike = distances(SMOOTH, summaries), distances(SMOOTH, summaries, alike=True)
    np.testing.assert_allclose(by_rows[:, 0], [9.5, 0.5])
    np.testing.assert_allclose(alike[:, 0], [1.0, 1.0])  # 5 each, and the deviation is 5


def test_an_owner_without_numbers_is_as_far_as_the_farthest():
    schema = Schema((Column("pay", "continuous", low=0.0, high=9.0, missing=True),))

    def held(values, gone):
        return Table.from_columns({"pay": (np.array(values, dtype=float), np.array(gone))})

    tables = [held([1, 2], [0, 0]), held([8, 9], [0, 0]), held([0, 0], [1, 1])]
    summaries = [summarise(t, schema) for t in tables]
    S = distances(schema, summaries)[:, 0]
    assert S[2] == max(S[:2]) > 0
    assert agreed_features(schema, summaries).width > 0


def test_one_row_is_enough():
    summaries = [
        summarise(smooth([3.5]), SMOOTH),
        summarise(smooth(np.linspace(-5, 5, 400)), SMOOTH),
    ]
    assert summaries[0][0].values == (3.5,)
    X = agreed_features(SMOOTH, summaries).encode(smooth([3.5]), key=0)
    assert np.isfinite(X).all()


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (ColumnSummary("other"), "summaries are of"),
        (ColumnSummary("town", counts=(1, 2)), "has 2 counts, and the schema knows 4 categories"),
        (ColumnSummary("town", counts=(1, 0, 0, 0), values=(1.0,), times=(1,)), "lists numbers"),
        (ColumnSummary("pay", values=(1.0,), times=(1,), missing=2), "counts 2 missing values"),
        (ColumnSummary("pay", values=(2.0, 1.0), times=(1, 1)), "must ascend within"),
        (ColumnSummary("pay", values=(1.0, 1e9), times=(1, 1)), "must ascend within"),
    ],
)
def test_summaries_of_something_else_are_refused(column, message):
    pay = Schema((Column("pay", "continuous", low=0.0, high=10.0),))
    schema = pay if column.column == "pay" else LISTED.select(["town"])
    with pytest.raises(DataError, match=message):
        agreed_features(schema, [[column]])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"counts": (3, -1)}, "below 0"),
        ({"values": (1.0,)}, "without counts"),
        ({"values": (float("nan"),), "times": (1,)}, "not finite"),
        ({"counts": (10**400,)}, "beyond 9,007,199,254,740,992"),
        ({"resolution": 1e-320}, "has the resolution"),
        ({"rest": 3}, "needs a mixture for 3 numbers"),
        ({"mixture": Mixture((0.0,), (1.0,), (1.0,))}, "needs a mixture for 0 numbers"),
        ({"rest": 3, "mixture": Mixture((0.0, 1.0), (1.0,), (1.0,))}, "no valid mixture"),
        ({"rest": 3, "mixture": Mixture((), (), ())}, "no valid mixture"),
        ({"rest": 3, "mixture": Mixture((0.0,), (-1.0,), (1.0,))}, "no valid mixture"),
        ({"rest": 3, "mixture": Mixture((np.nan,), (1.0,), (1.0,))}, "no valid mixture"),
        ({"rest": 3, "mixture": Mixture((0.0,), (1.0,), (1e12,))}, "no valid mixture"),
    ],
)
def test_an_invalid_summary_is_refused(wrong, message):
    with pytest.raises(DataError, match=message):
        ColumnSummary("town", **wrong)


def test_rows_outside_the_schema_are_refused():
    with pytest.raises(SchemaError, match="outside its bounds"):
        summarise(smooth([99.0]), SMOOTH)
