import numpy as np
import pytest
from sklearn.decomposition import PCA

from siloweave.attacks.inversion import invert
from siloweave.attacks.rates import wilson
from siloweave.datasets import adult, adult_schema
from siloweave.errors import InputError
from siloweave.tables.table import Table

COUNT = 600


def sheet(count=COUNT, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.integers(4, size=count)
    amount = 20 + 10 * rng.random(count) + 5 * kind
    gone = np.zeros(count, bool)
    gone[::50] = True
    return Table.from_columns(
        {
            "kind": (np.array(["a", "b", "c", "d"])[kind], None),
            "flag": (rng.random(count) < 0.7, None),
            "amount": (amount, gone),
            "size": (rng.integers(10, 60, count), None),
        }
    )


def vectors(table):
    """Numbers and one-hot categories, standardised."""
    kind = table.values("kind")
    parts = [kind == label for label in "abcd"]
    parts += [table.values("flag"), np.nan_to_num(table.values("amount")), table.values("size")]
    found = np.column_stack(parts).astype(float)
    return (found - found.mean(axis=0)) / found.std(axis=0)


ROWS = sheet()
LOSSLESS = PCA(6, random_state=0).fit_transform(vectors(ROWS))
NOISE = np.random.default_rng(9).random((COUNT, 6))
QUICK = ("ridge", "neighbours")


def test_latents_that_lose_nothing_are_inverted():
    found = invert(LOSSLESS, ROWS, 100, key=1, methods=QUICK)
    assert found.known == 100
    assert found.judged == 500
    assert found.categorical.recovered.value > 0.97
    assert found.numeric.recovered.value > 0.9
    assert found.rows.recovered.low > 0.75 > found.rows.baseline.high
    assert found.categorical.risk.low > 0.9
    assert all(column.method != "constant" for column in found.columns)
    amount = found.columns[2]
    assert amount.missing + amount.found.cells == 500
    assert amount.missing > 0


def test_noise_gives_away_nothing():
    found = invert(NOISE, ROWS, 200, key=1)
    for share in (found.categorical, found.numeric):
        assert share.risk.low == 0.0
        assert share.recovered.holds(share.baseline.value)
        assert share.baseline.holds(share.recovered.value)
    assert found.categorical.baseline.value == pytest.approx((0.27 + 0.7) / 2, abs=0.06)


def test_a_quarter_of_the_dimensions_gives_away_part():
    part = invert(LOSSLESS[:, :1], ROWS, 200, key=1, methods=QUICK)
    whole = invert(LOSSLESS, ROWS, 200, key=1, methods=QUICK)
    assert 0.1 < part.categorical.risk.value < whole.categorical.risk.value
    assert part.worst.found.risk.excess >= max(c.found.risk.excess for c in part.columns)


def test_synthetic_pairs_replace_leaked_ones():
    more = sheet(200, seed=5)
    mixed = vectors(Table.from_columns(
        {
            name: (
                np.concatenate([ROWS.values(name), more.values(name)]),
                np.concatenate([ROWS.missing(name), more.missing(name)]),
            )
            for name in ROWS.names
        }
    ))  # fmt: skip
    found = invert(mixed[:COUNT], ROWS, 0, key=0, synthetic=(mixed[COUNT:], more), methods=QUICK)
    assert (found.known, found.synthetic, found.judged) == (0, 200, COUNT)
    assert found.categorical.recovered.value > 0.97
    assert found.numeric.recovered.value > 0.9


def test_trees_invert_what_is_not_linear():
    first = LOSSLESS[:, 0]
    target = np.where(np.abs(first) > np.median(np.abs(first)), "far", "near")
    hidden = np.column_stack([first, NOISE])
    rows = Table.from_columns({"side": (target, None)})
    found = invert(hidden, rows, 300, key=0)
    assert found.columns[0].method == "boosting"
    assert found.categorical.risk.low > 0.5


def test_shares_and_intervals_are_wilsons():
    found = invert(LOSSLESS, ROWS, 100, key=1, methods=QUICK)
    flag = found.columns[1].found
    rate = wilson(flag.recovered.successes, 500)
    assert (flag.recovered.low, flag.recovered.high) == (rate.low, rate.high)
    assert flag.recovered.value == flag.recovered.successes / 500
    assert found.categorical.cells == 1000
    assert found.categorical.recovered.trials == 500  # a row is one trial, as its cells depend


def test_only_the_key_and_the_known_rows_decide():
    first = invert(LOSSLESS, ROWS, 60, key=3, methods=QUICK)
    assert invert(LOSSLESS, ROWS, 60, key=3, methods=QUICK) == first
    assert invert(LOSSLESS, ROWS, 60, key=4, methods=QUICK) != first
    hidden = np.arange(60, COUNT)
    shuffled = ROWS.take(np.concatenate([np.arange(60), hidden[::-1]]))
    named = invert(LOSSLESS, shuffled, range(60), key=3, methods=QUICK)
    assert [c.method for c in named.columns] == [
        c.method for c in invert(LOSSLESS, ROWS, range(60), key=3, methods=QUICK).columns
    ]


def test_what_cannot_be_judged_says_why():
    gone = np.ones(COUNT, bool)
    gone[:2] = False
    rows = Table.from_columns(
        {"kind": (ROWS.values("kind"), None), "rare": (ROWS.values("size"), gone)}
    )
    found = invert(LOSSLESS, rows, 50, key=0, methods=QUICK)
    assert "known values; 6 are needed" in found.not_measured["rare"]
    assert found.numeric is None
    assert [column.name for column in found.columns] == ["kind"]


def test_a_constant_column_is_its_own_baseline():
    rows = Table.from_columns(
        {"kind": (ROWS.values("kind"), None), "same": (np.full(COUNT, 7), None)}
    )
    found = invert(LOSSLESS, rows, 50, key=0, methods=QUICK)
    same = found.columns[1]
    assert same.method == "constant"
    assert same.found.recovered.value == same.found.baseline.value == 1.0


def test_negative_numbers_and_datetimes():
    days = np.datetime64("2020-01-01", "us") + (ROWS.values("size") * 86400e6).astype(int)
    rows = Table.from_columns({"cold": (-ROWS.values("size"), None), "day": (days, None)})
    lossless = ROWS.values("size")[:, None].astype(float)
    found = invert(lossless, rows, 100, key=0, methods=QUICK)
    assert all(column.found.recovered.value > 0.95 for column in found.columns)
    assert all(column.found.baseline.value < 0.4 for column in found.columns)


def test_a_real_table():
    table = adult().take(range(800)).select(["age", "sex", "income", "workclass"])
    schema = adult_schema().select(table.names)
    sex, income = (table.lookup(n, schema[n].categories) for n in ("sex", "income"))
    latents = np.column_stack([table.values("age"), sex + 0.3 * income, income])
    found = invert(latents, table, 200, key=0, schema=schema, methods=QUICK)
    by = {column.name: column.found for column in found.columns}
    assert by["sex"].recovered.value > 0.99
    assert by["income"].recovered.value > 0.99
    assert by["age"].recovered.value > 0.95
    assert by["workclass"].risk.value < 0.2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latents": NOISE[:5]}, "one vector for each of the 600 rows"),
        ({"latents": NOISE.ravel()}, "one vector for each"),
        ({"latents": np.where(NOISE > 0.99, np.nan, NOISE)}, "not finite"),
        ({"known": 600}, "known=600"),
        ({"known": 5}, "5 pairs are known; at least 6"),
        ({"known": [1, 1, 2]}, "twice"),
        ({"known": [600]}, "rows beyond 0 to 599"),
        ({"known": list(range(600))}, "none is left"),
        ({"methods": ["magic"]}, "choose from ridge"),
        ({"methods": []}, "choose from ridge"),
        ({"tolerance": 1.0}, "tolerance=1.0"),
        ({"synthetic": (NOISE[:20, :3], ROWS.take(range(20)))}, "dimensions"),
    ],
)
def test_bad_input(change, message):
    settings = {"latents": LOSSLESS, "rows": ROWS, "known": 50, "key": 0, "methods": QUICK}
    with pytest.raises(InputError, match=message):
        invert(**{**settings, **change})
