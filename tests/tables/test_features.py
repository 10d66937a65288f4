from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siloweave.datasets import adult, adult_schema
from siloweave.tables import Column, Schema, Table, read
from siloweave.tables.features import Features

NUMERIC = ("quantile", "modes", "standard", "ranks")


def frame(**columns):
    return read(pl.DataFrame(columns, strict=False))


def values_of(table, name):
    """Return a column's values as a list, None where missing."""
    gone = table.missing(name)
    return [None if m else v for v, m in zip(table.values(name).tolist(), gone, strict=True)]


def twice(table):
    """Each row two times, so that no value is that of a single row."""
    return table.take(list(range(table.num_rows)) * 2)


def there_and_back(table, schema, numeric="quantile"):
    """Encode and decode through JSON, and check what holds for every table."""
    features = Features.fit(table, schema, numeric=numeric, key=1)
    read_back = Features.from_json(features.to_json())
    assert read_back == features
    assert read_back.to_json() == features.to_json()
    vectors = features.encode(table, key=2)
    assert vectors.dtype == np.float32
    assert vectors.shape == (table.num_rows, features.width)
    assert np.array_equal(vectors, read_back.encode(table, key=2))
    check_blocks(features, vectors)
    back = read_back.decode(vectors, key=3, like=table)
    assert back.names == schema.names
    return features, vectors, back


def check_blocks(features, vectors):
    """Blocks tile the vector, choices are one-hot, numbers are moderate."""
    stop = 0
    for block in features.blocks:
        assert (block.start, block.kind == "categorical" or block.size == 1) == (stop, True)
        stop = block.stop
        part = vectors[:, block.start : block.stop]
        if block.kind == "categorical":
            assert ((part == 0) | (part == 1)).all()
            assert (part.sum(axis=1) == 1).all()
    assert stop == features.width


@pytest.mark.parametrize("numeric", NUMERIC)
def test_adult_comes_back(numeric):
    table = twice(adult())
    features, vectors, back = there_and_back(table, adult_schema(), numeric)
    for name in table.names:
        assert values_of(back, name) == values_of(table, name), name
    gain = [block for block in features.blocks if block.column == "capital-gain"]
    assert [block.kind for block in gain] == ["number", "categorical"]
    # The spike at 0 has an option of its own, and no number.
    zero = vectors[table.values("capital-gain") == 0]
    choice = zero[:, gain[1].start : gain[1].stop]
    assert (choice == choice[0]).all()
    assert (zero[:, gain[0].start] == 0).all()
    assert not (vectors[table.values("capital-gain") > 0, gain[0].start] == 0).all()


def test_quantiles_of_frequent_values_are_standard_normal():
    table = adult().select(["age"])
    schema = adult_schema().select(["age"])
    numbers = Features.fit(table, schema, key=0).encode(table, key=0)[:, 0]
    levels = np.quantile(numbers, [0.025, 0.16, 0.5, 0.84, 0.975])
    assert np.allclose(levels, [-1.96, -0.994, 0.0, 0.994, 1.96], atol=0.02)


def test_standard_numbers_have_mean_0_and_deviation_1():
    table = frame(x=np.linspace(-3, 50, 101) ** 3)
    schema = Schema((Column("x", "continuous", low=-1e6, high=1e6),))
    numbers = Features.fit(table, schema, numeric="standard", key=0).encode(table, key=0)
    assert abs(numbers.mean()) < 1e-6
    assert abs(numbers.std() - 1) < 1e-6


NEW_YEAR = datetime.fromisoformat("2020-01-01")


def moments(low, high):
    return st.datetimes(datetime.fromisoformat(low), datetime.fromisoformat(high))


KINDS = (
    (
        Column("c", "categorical", tuple("abcde"), missing=True),
        st.one_of(st.none(), st.sampled_from("abcde")),
    ),
    (Column("y", "categorical", (10, 20, 40)), st.sampled_from((10, 20, 40))),
    (Column("b", "boolean", missing=True), st.one_of(st.none(), st.booleans())),
    (
        Column("i", "integer", low=-50_000, high=50_000, missing=True),
        st.one_of(st.none(), st.just(0), st.integers(-50_000, 50_000)),
    ),
    (Column("j", "integer", low=10**15, high=10**15 + 30), st.integers(10**15, 10**15 + 30)),
    (Column("k", "integer", low=0, high=1), st.integers(0, 1)),
    (
        Column("x", "continuous", low=-1e3, high=1e3, missing=True),
        st.one_of(st.none(), st.just(0.0), st.floats(-1e3, 1e3)),
    ),
    (
        Column("d", "datetime", low="2020-01-01", high="2020-12-31", missing=True),
        st.one_of(
            st.none(),
            st.integers(0, 365).map(lambda days: NEW_YEAR + timedelta(days)),
        ),
    ),
    (
        Column("t", "datetime", low="2020-01-01T00:00:00", high="2020-01-01T02:00:00"),
        moments("2020-01-01T00:00:00", "2020-01-01T02:00:00").map(
            lambda moment: moment.replace(microsecond=0)
        ),
    ),
)
TYPES = {
    "c": pl.String,
    "y": pl.Int64,
    "b": pl.Boolean,
    "i": pl.Int64,
    "j": pl.Int64,
    "k": pl.Int64,
    "x": pl.Float64,
    "d": pl.Datetime("us"),
    "t": pl.Datetime("us"),
}


@settings(max_examples=30)
@given(st.data(), st.integers(1, 40), st.sampled_from(NUMERIC), st.integers(1, 4))
def test_everything_comes_back(data, rows, numeric, wide):
    columns = {
        column.name: data.draw(st.lists(values, min_size=rows, max_size=rows), column.name)
        for column, values in KINDS
    }
    table = read(pl.DataFrame(columns, schema=TYPES))
    table = twice(table) if numeric in ("quantile", "ranks") else table
    schema = Schema(tuple(column for column, _ in KINDS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("siloweave.tables.encodings.WIDE", wide)
        _, _, back = there_and_back(table, schema, numeric)
    for column, _ in KINDS:
        was, now = values_of(table, column.name), values_of(back, column.name)
        if column.kind != "continuous":
            assert now == was
            continue
        assert [v is None for v in now] == [v is None for v in was]
        pairs = [(a, b) for a, b in zip(was, now, strict=True) if a is not None]
        assert all(abs(a - b) < 1e-2 and -1e3 <= b <= 1e3 for a, b in pairs)


@settings(max_examples=30)
@given(st.data(), st.sampled_from((*NUMERIC, "declared")), st.integers(1, 30))
def test_any_vector_is_a_row_of_the_schema(data, way, seed):
    random = np.random.default_rng(seed)
    columns = {
        column.name: data.draw(st.lists(values, min_size=12, max_size=12), column.name)
        for column, values in KINDS
    }
    table = read(pl.DataFrame(columns, schema=TYPES))
    schema = Schema(tuple(column for column, _ in KINDS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("siloweave.tables.encodings.WIDE", 2)
        features = (
            Features.fit(table, schema, numeric=way, key=0)
            if way in NUMERIC
            else Features.declared(schema)
        )
    vectors = random.standard_normal((50, features.width)) * 10.0 ** (seed % 5)
    back = features.decode(vectors, key=seed)
    features.encode(back, key=0)  # refuses what the schema does not allow
    assert back.num_rows == 50


@pytest.mark.parametrize("numeric", NUMERIC)
def test_constant_columns_and_one_row(numeric):
    schema = Schema(
        (
            Column("c", "categorical", ("only",)),
            Column("i", "integer", low=0, high=100),
            Column("x", "continuous", low=-1.0, high=1.0),
            Column("z", "continuous", low=2.5, high=2.5),
            Column("m", "integer", low=0, high=100, missing=True),
        )
    )
    whole = [("c", "only"), ("i", 7), ("x", 0.1), ("z", 2.5), ("m", None)]
    for rows in (1, 30):
        table = read(
            pl.DataFrame({name: [value] * rows for name, value in whole}).cast({"m": pl.Int64})
        )
        features, _, back = there_and_back(table, schema, numeric)
        assert all(values_of(back, name) == [value] * rows for name, value in whole)
        # A column of which nothing was seen can still hold what others have.
        other = read(pl.DataFrame({**{n: [v] for n, v in whole[:4]}, "m": [40]}))
        assert values_of(features.decode(features.encode(other, key=0), key=0), "m") == [40]


@pytest.mark.parametrize("numeric", NUMERIC)
def test_extreme_outliers_leave_the_rest_alone(numeric):
    body = np.random.default_rng(0).integers(0, 50_000, 3000) / 10.0
    table = twice(frame(x=np.append(body, [1e12, -1e12])))
    body = np.append(body, [1e12, -1e12, *body])
    schema = Schema((Column("x", "continuous", low=-1e12, high=1e12),))
    _, _, back = there_and_back(table, schema, numeric)
    now = back.values("x")
    assert np.allclose(now[-2:], [1e12, -1e12], rtol=1e-5)
    assert np.allclose(now[3000:3002], [1e12, -1e12], rtol=1e-5)
    if numeric != "standard":  # one deviation is 1e10 there, and a float32 has seven digits
        assert np.abs((now[:-2] - body)[np.abs(body) < 1e12]).max() <= 0.1


def test_a_smallest_or_largest_value_of_one_row_is_not_made_again():
    random = np.random.default_rng(0)
    x = random.normal(0, 1, 200)
    table = frame(
        x=np.append(x, [9.0, -7.0]),
        i=np.append(random.integers(100, 300, 200), [10, 900]),
        near=np.arange(100, 302),
        often=np.append(x, [9.0, 9.0]),
    )
    schema = Schema((
        Column("x", "continuous", low=-10.0, high=10.0),
        Column("i", "integer", low=0, high=1000),
        Column("near", "integer", low=0, high=1000),
        Column("often", "continuous", low=-10.0, high=10.0),
    ))  # fmt: skip
    features = Features.fit(table, schema, key=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("siloweave.tables.encodings._ending_apart", lambda points, _: points.values)
        before = Features.fit(table, schema, key=0)
    X = features.encode(table, key=0)
    np.testing.assert_array_equal(X, before.encode(table, key=0))
    now, then = features.decode(X, key=0), before.decode(X, key=0)
    moved = {"x": [200, 201], "i": [200, 201], "near": [], "often": [x.argmin()]}
    for name, rows in moved.items():
        assert np.flatnonzero(now.values(name) != then.values(name)).tolist() == rows
    far = features.decode(np.full((1, features.width), 40.0), key=0)
    assert far.values("x")[0] == pytest.approx(0.9 * 9.0 + 0.1 * x.max())
    assert far.values("i")[0] == np.rint(0.9 * 900 + 0.1 * table.values("i")[:200].max())
    assert (far.values("near")[0], far.values("often")[0]) == (301, 9.0)
    least = features.decode(np.full((1, features.width), -40.0), key=0)
    assert least.values("x")[0] == pytest.approx(0.1 * x.min() - 0.9 * 7.0)


def test_decimals_and_frequent_values_stay():
    random = np.random.default_rng(0)
    table = frame(
        cents=np.round(random.random(5000) * 900, 2), fives=random.integers(0, 90, 5000) * 5
    )
    schema = Schema(
        (
            Column("cents", "continuous", low=0.0, high=900.0),
            Column("fives", "integer", low=0, high=500),
        )
    )
    for numeric in NUMERIC:
        features = Features.fit(table, schema, numeric=numeric, key=0)
        made = features.decode(random.standard_normal((1000, features.width)), key=0)
        assert (np.round(made.values("cents"), 2) == made.values("cents")).all()
        assert (made.values("fives") % 5 == 0).all()


def test_values_nobody_fitted_count_as_the_nearest():
    schema = Schema((Column("i", "integer", low=0, high=1000),))
    features = Features.fit(frame(i=np.repeat(np.arange(100, 200, 5), 20)), schema, key=0)
    back = features.decode(features.encode(frame(i=[0, 101, 104, 1000]), key=0), key=0)
    assert values_of(back, "i") == [100, 100, 105, 195]


def test_datetimes_keep_resolution_and_text():
    schema = Schema(
        (
            Column(
                "day",
                "datetime",
                low="2020-01-01",
                high="2021-01-01",
                format="%d/%m/%Y",
            ),
            Column(
                "us", "datetime", low="2020-01-01T00:00:00.000001", high="2020-01-01T00:10:00.0"
            ),
        )
    )
    random = np.random.default_rng(0)
    days = [(NEW_YEAR + timedelta(int(d))).strftime("%d/%m/%Y") for d in range(200)]
    us = [NEW_YEAR + timedelta(microseconds=int(u) + 1) for u in random.integers(0, 10**6, 200)]
    table = twice(frame(day=days, us=us))
    _, _, back = there_and_back(table, schema, "quantile")
    assert values_of(back, "day") == days + days
    assert values_of(back, "us") == values_of(table, "us")


def test_a_hundred_thousand_categories_are_small():
    count, rows = 100_000, 20_000
    names = tuple(f"n{i}" for i in range(count))
    schema = Schema((Column("s", "categorical", names, missing=True),))
    codes = np.minimum(np.random.default_rng(0).geometric(1e-4, rows), count - 1)
    table = frame(s=[None if code % 97 == 0 else names[code] for code in codes])
    features, vectors, back = there_and_back(table, schema)
    assert [block.kind for block in features.blocks] == ["categorical"] * 3
    assert features.width == 140
    assert vectors.nbytes < 12_000_000
    assert len(features.to_json()) < 3_000_000
    assert values_of(back, "s") == values_of(table, "s")
    declared = Features.declared(schema)
    assert values_of(declared.decode(declared.encode(table, key=0), key=0), "s") == values_of(
        table, "s"
    )


def test_digits_follow_frequency_and_never_miss():
    names = tuple(f"n{i:03}" for i in range(300))
    schema = Schema((Column("s", "categorical", names),))
    table = frame(s=["n299"] * 50 + ["n250"] * 20 + ["n007"] * 3)
    features = Features.fit(table, schema, key=0)
    assert [block.size for block in features.blocks] == [17, 18]
    first = features.encode(frame(s=["n299", "n250", "n007", "n000"]), key=0)
    assert first.argmax(axis=1).tolist() == [0, 0, 0, 0]
    assert first[:, 17:].argmax(axis=1).tolist() == [0, 1, 2, 3]
    # After the last first digit, 16, come the second digits 0 to 11: the best of those is taken.
    vector = np.zeros((1, 35), dtype=np.float32)
    vector[0, 16], vector[0, 17 + 15], vector[0, 17 + 4] = 1.0, 9.0, 0.5
    untouched = vector.copy()
    # Ranks 0 to 2 were seen; the others are in the schema's order, without those three.
    unseen = [name for name in names if name not in {"n299", "n250", "n007"}]
    assert values_of(features.decode(vector, key=0), "s") == [unseen[16 * 18 + 4 - 3]]
    assert (vector == untouched).all()


def test_ties_are_broken_by_the_key():
    schema = Schema((Column("c", "categorical", tuple("abcd")),))
    features = Features.declared(schema)
    flat = np.zeros((400, 4))
    made = features.decode(flat, key=0).values("c")
    assert min((made == name).sum() for name in "abcd") > 60
    assert (made == features.decode(flat, key=0).values("c")).all()
    assert (made != features.decode(flat, key=1).values("c")).any()


def test_ids_are_left_out_and_frames_stay():
    import pandas as pd

    native = pd.DataFrame({"id": ["p7", "p8", "p9"], "n": [1, 2, 3]})
    schema = Schema((Column("id", "id"), Column("n", "integer", low=1, high=3)))
    features = Features.fit(read(native), schema, key=0)
    assert [block.column for block in features.blocks] == ["n"]
    back = features.decode(
        features.encode(read(native), key=0), key=0, like=read(native)
    ).to_native()
    assert list(back) == ["n"]
    assert back["n"].tolist() == [1, 2, 3]
    assert isinstance(back, pd.DataFrame)


def test_keys_decide():
    names = ["age", "capital-gain", "sex"]
    table, schema = adult().select(names), adult_schema().select(names)
    features = Features.fit(table, schema, numeric="modes", key=0)
    assert features == Features.fit(table, schema, numeric="modes", key=9)
    one, two = features.encode(table, key=0), features.encode(table, key=1)
    assert np.array_equal(one, features.encode(table, key=0))
    assert not np.array_equal(one, two)


def test_three_hundred_binary_columns():
    random = np.random.default_rng(0)
    columns = {f"b{i}": random.integers(0, 2, 50) for i in range(300)}
    schema = Schema(tuple(Column(name, "integer", low=0, high=1) for name in columns))
    features, _, back = there_and_back(frame(**columns), schema)
    assert features.width == 600
    assert all(values_of(back, name) == column.tolist() for name, column in columns.items())


def test_a_table_of_ids_alone_has_no_width():
    schema = Schema((Column("id", "id"),))
    table = Table.from_columns({"id": (np.array([5, 6]), None)})
    features = Features.fit(table, schema, key=0)
    assert features.width == 0
    assert features.decode(features.encode(table, key=0), key=0).names == ()


def test_codes_of_few_values_stand_in_their_order_and_texts_in_none():
    schema = Schema(
        (
            Column("level", "integer", low=1, high=4, missing=True),
            Column("day", "datetime", low="2024-01-01", high="2024-01-03"),
            Column("member", "boolean", missing=True),
            Column("grade", "categorical", ("10", "2", "1")),
            Column("size", "categorical", (3.5, 1.0), missing=True),
            Column("city", "categorical", ("b", "a")),
            Column("weight", "continuous", low=0.0, high=100.0),
        )
    )
    rows = 60
    days = np.array(["2024-01-03", "2024-01-01", "2024-01-02"], dtype="datetime64[us]")
    table = Table.from_columns(
        {
            "level": (np.arange(rows) % 4 + 1, np.arange(rows) % 5 == 0),
            "day": (days[np.arange(rows) % 3], None),
            "member": (np.arange(rows) % 2 == 0, np.arange(rows) % 7 == 0),
            "grade": (np.array(["1", "2", "10"])[np.arange(rows) % 3], None),
            "size": (np.array([1.0, 3.5])[np.arange(rows) % 2], np.arange(rows) % 9 == 0),
            "city": (np.array(["a", "b"])[np.arange(rows) % 2], None),
            "weight": (np.linspace(1.0, 99.0, rows), None),
        }
    )
    assert Features.fit(table, schema, key=0).orders == {
        "level": (0, 1, 2, 3),
        "day": (0, 1, 2),
        "member": (0, 1),
        "grade": (2, 1, 0),
        "size": (1, 0),
    }
