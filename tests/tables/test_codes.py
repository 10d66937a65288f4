import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siloweave.datasets import adult, adult_schema
from siloweave.errors import CapacityError, DataError, SchemaError
from siloweave.tables import Codes, Column, Domain, Encoder, Schema, Table, read
from siloweave.tables.features import Features


def encoder(*columns, **options):
    return Encoder(Schema(columns), **options)


def frame(**columns):
    return read(pl.DataFrame(columns, strict=False))


def test_domain():
    domain = Domain(("a", "b", "c"), (2, 3, 4))
    assert domain.shape(("c", "a")) == (4, 2)
    assert (domain.size(), domain.size(("a", "b")), domain.size(())) == (24, 6, 1)
    assert domain.size_of("b") == 3
    assert domain.canonical(["c", "a", "c"]) == ("a", "c")
    assert domain.project(["c", "a"]) == Domain(("a", "c"), (2, 4))
    with pytest.raises(SchemaError, match="no attribute 'z'"):
        domain.canonical(["z"])
    for names, sizes in ((("a", "a"), (1, 1)), (("a",), (1, 2)), (("a",), (0,))):
        with pytest.raises(SchemaError):
            Domain(names, sizes)


def test_codes_are_checked_and_small():
    domain = Domain(("a", "b"), (256, 257))
    codes = Codes(domain, (np.array([255]), np.array([256])))
    assert [column.dtype for column in codes.columns] == [np.uint8, np.uint16]
    for columns in (
        (np.array([256]), np.array([0])),
        (np.array([-1]), np.array([0])),
        (np.array([0]), np.array([0, 0])),
        (np.array([0]),),
        (np.array([0.0]), np.array([0])),
    ):
        with pytest.raises(DataError):
            Codes(domain, columns)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 20), st.data())
def test_flat_is_c_order(sizes, rows, data):
    names = tuple(f"a{i}" for i in range(len(sizes)))
    random = np.random.default_rng(rows)
    columns = tuple(random.integers(0, size, rows) for size in sizes)
    codes = Codes(Domain(names, tuple(sizes)), columns)
    order = data.draw(st.permutations(range(len(sizes))))
    clique = tuple(names[i] for i in order)
    expected = np.ravel_multi_index([columns[i] for i in order], [sizes[i] for i in order])
    flat = codes.flat(clique)
    assert flat.dtype == np.int64
    assert flat.tolist() == expected.tolist()


def test_flat_of_no_attribute_and_of_too_many():
    names = tuple(f"a{i}" for i in range(8))
    codes = Codes(Domain(names, (256,) * 8), tuple(np.array([255]) for _ in names))
    assert codes.flat(()).tolist() == [0]
    assert codes.flat(names[:7]).tolist() == [256**7 - 1]
    with pytest.raises(CapacityError):
        codes.flat(names)


def test_take_and_concat():
    codes = Codes(Domain(("a", "b"), (3, 2)), (np.array([0, 1, 2]), np.array([0, 1, 0])))
    assert codes.take([2, 2]).column("a").tolist() == [2, 2]
    both = Codes.concat([codes, codes.take([0])])
    assert both.column("a").tolist() == [0, 1, 2, 0]
    with pytest.raises(DataError, match="domain"):
        Codes.concat([codes, Codes(Domain(("a",), (3,)), codes.columns[:1])])
    with pytest.raises(DataError):
        Codes.concat([])


def test_adult_codes():
    made = Encoder(adult_schema()).encode(adult())
    sizes = dict(zip(made.domain.names, made.domain.sizes, strict=True))
    assert (sizes["age"], sizes["education-num"], sizes["workclass"], sizes["sex"]) == (
        32,
        16,
        9,
        2,
    )
    assert int((made.column("workclass") == 8).sum()) == 2799
    assert {column.dtype for column in made.columns} == {np.dtype(np.uint8)}


def test_adult_comes_back_in_its_types_and_bins():
    table, own = adult().take(range(3000)), Encoder(adult_schema())
    made = own.encode(table)
    again = own.decode(made, key=3, like=table)
    native, before = again.to_native(), table.to_native()
    assert native.dtypes.tolist() == before.dtypes.tolist()
    pd.testing.assert_frame_equal(native.isna(), before.isna())
    assert all((a == b).all() for a, b in zip(own.encode(again).columns, made.columns, strict=True))
    assert native["education-num"].tolist() == before["education-num"].tolist()
    assert native["fnlwgt"].tolist() != before["fnlwgt"].tolist()
    pd.testing.assert_frame_equal(own.decode(made, key=3, like=table).to_native(), native)


@given(st.integers(-50, 50), st.integers(0, 400), st.integers(1, 40))
def test_whole_bins_are_equal_within_one_and_cover(low, width, bins):
    own = encoder(Column("x", "integer", low=low, high=low + width), bins=bins)
    codes = own.encode(frame(x=list(range(low, low + width + 1)))).column("x")
    sizes = np.bincount(codes, minlength=own.domain.size_of("x"))
    assert own.domain.size_of("x") == min(bins, width + 1)
    assert sizes.max() - sizes.min() <= 1
    assert (np.diff(codes.astype(int)) >= 0).all()


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(
    st.floats(-1e9, 1e9),
    st.floats(1e-3, 1e9),
    st.integers(1, 64),
    st.lists(st.floats(0, 1), min_size=1),
)
def test_continuous_values_return_to_their_bin(low, width, bins, shares):
    high = low + width
    own = encoder(Column("x", "continuous", low=low, high=high), bins=bins)
    values = [min(high, low + share * width) for share in shares]
    made = own.encode(frame(x=values))
    again = own.decode(made, key=0)
    assert own.encode(again).column("x").tolist() == made.column("x").tolist()
    drawn = again.values("x")
    assert (drawn >= low).all()
    assert (drawn <= high).all()
    assert (np.abs(drawn - values) <= width / bins * (1 + 1e-6) + 1e-6).all()


def test_values_are_uniform_inside_a_bin():
    own = encoder(Column("x", "integer", low=0, high=99), bins=10)
    made = Codes(own.domain, (np.full(20_000, 3),))
    counts = np.bincount(own.decode(made, key=1).values("x"), minlength=40)
    assert counts[:30].sum() == 0
    assert ((counts[30:] - 2000) ** 2 / 2000).sum() < 27.9  # chi-square, 9 degrees, 0.1 %


def test_a_constant_column_has_one_code():
    own = encoder(
        Column("i", "integer", low=7, high=7),
        Column("f", "continuous", low=0.5, high=0.5),
        Column("d", "datetime", low="2020-01-01", high="2020-01-01"),
    )
    assert own.domain.sizes == (1, 1, 1)
    again = own.decode(Codes(own.domain, (np.zeros(2, int),) * 3), key=0)
    assert (again.values("i") == 7).all()
    assert (again.values("f") == 0.5).all()
    assert (again.values("d") == np.datetime64("2020-01-01")).all()


def test_missing_is_the_last_code_of_every_kind():
    own = encoder(
        Column("c", "categorical", ("a", "b"), missing=True),
        Column("i", "integer", low=0, high=9, missing=True),
        Column("f", "continuous", low=0.0, high=1.0, missing=True),
        Column("b", "boolean", missing=True),
        Column("d", "datetime", low="2020-01-01", high="2020-12-31", missing=True),
        bins=4,
    )
    assert own.domain.sizes == (3, 5, 5, 3, 5)
    empty = frame(**{name: [None, None] for name in own.schema.names})
    made = own.encode(empty)
    assert [column.tolist() for column in made.columns] == [[2, 2], [4, 4], [4, 4], [2, 2], [4, 4]]
    again = own.decode(made, key=0)
    assert all(again.missing(name).all() for name in again.names)
    assert again.kind("i") == "whole numbers"


def test_ids_are_left_out():
    own = encoder(Column("who", "id"), Column("b", "boolean"))
    made = own.encode(frame(who=["x", "y"], b=[True, False]))
    assert made.domain.names == ("b",)
    assert own.encode(frame(b=[True])).num_rows == 1
    assert own.decode(made, key=0).names == ("b",)


@pytest.mark.parametrize(
    ("low", "high", "texts", "size"),
    [
        ("2020-01-01", "2020-01-03", ["2020-01-01", "2020-01-03"], 3),
        ("2020-01-01T00:00:00", "2020-01-01T00:00:04", ["2020-01-01 00:00:03"], 5),
        ("2020-01-01T00:00:00.000000", "2020-01-01T00:00:00.5", ["2020-01-01 00:00:00.25"], 32),
        ("1900-01-01", "2100-01-01", ["1950-06-01"], 32),
    ],
)
def test_datetime_resolution_follows_the_bounds(low, high, texts, size):
    own = encoder(Column("d", "datetime", low=low, high=high))
    assert own.domain.size_of("d") == size
    made = own.encode(read(pd.DataFrame({"d": pd.to_datetime(texts, format="ISO8601")})))
    again = own.decode(made, key=0)
    assert own.encode(again).column("d").tolist() == made.column("d").tolist()


def test_datetimes_written_as_text_come_back_as_text():
    own = encoder(
        Column("d", "datetime", low="1990-01-01", high="1990-01-31", format="%d.%m.%y"), bins=31
    )
    table = read(pd.DataFrame({"d": ["05.01.90", "31.01.90"]}))
    again = own.decode(own.encode(table), key=0, like=table)
    assert again.values("d").tolist() == ["05.01.90", "31.01.90"]
    moments = read(pd.DataFrame({"d": pd.to_datetime(["1990-01-05"])}))
    assert own.decode(own.encode(moments), key=0, like=moments).kind("d") == "datetimes"
    assert own.decode(own.encode(moments), key=0).values("d").tolist() == ["05.01.90"]


SECRET = "Mallory"


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        (Column("x", "categorical", ("a",)), ["a", SECRET, SECRET], "2 rows"),
        (Column("x", "integer", low=0, high=9), [1, 10, -1], "2 rows are outside"),
        (Column("x", "continuous", low=0.0, high=1.0), [0.5, -1.0, 1.5], "2 rows"),
        (Column("x", "continuous", low=0.0, high=1.0), [0.5, np.inf, 1.5], "1 row holds infinite"),
        (Column("x", "datetime", low="2020-01-01", high="2020-01-02"), ["2020-01-03"], "1 row is"),
        (Column("x", "integer", low=0, high=9), [1, None], "1 row has no value"),
        (Column("x", "boolean"), [1, 0, 2], "1 row holds none"),
        (Column("x", "integer", low=0, high=9), ["a"], "holds text"),
        (Column("x", "integer", low=0, high=9), [None, None], "2 rows have no value"),
    ],
)
def test_rows_outside_the_schema_are_refused_without_showing_them(column, values, words):
    with pytest.raises(SchemaError, match="column 'x'") as caught:
        encoder(column).encode(frame(x=values))
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_number_beyond_a_bound_by_a_rounding_error_is_on_it():
    """3 * 1.1 is 3.3000000000000003, where the bound is 3.3."""
    column = Column("x", "continuous", low=-3.3, high=3.3, decimals=1)
    computed = Table.from_columns({"x": (np.array([3 * 1.1, -3 * 1.1, 0.1]), None)})
    encoder = Encoder(Schema((column,)), bins=4)
    assert encoder.encode(computed).column("x").tolist() == [3, 0, 2]
    moving = Schema((column,)).with_fallbacks().placed()
    assert not Encoder(moving, bins=4).read(computed).moved
    Features.fit(computed, Schema((column,)), key=0)
    beyond = Table.from_columns({"x": (np.array([3.3000001, 0.0, 0.0]), None)})
    with pytest.raises(SchemaError, match="1 row is outside its bounds"):
        encoder.encode(beyond)


def test_unseen_goes_to_other_if_declared():
    own = encoder(Column("x", "categorical", ("a", "rest", "b"), other="rest", missing=True))
    assert own.encode(frame(x=["b", "new", None, "rest"])).column("x").tolist() == [2, 1, 3, 1]


def test_columns_must_be_the_schemas():
    own = encoder(Column("a", "boolean"), Column("b", "boolean"))
    with pytest.raises(SchemaError, match="table lacks columns of the schema: b"):
        own.encode(frame(a=[True]))
    with pytest.raises(SchemaError, match="schema lacks columns of the table: c"):
        own.encode(frame(a=[True], b=[True], c=[True]))
    assert own.encode(frame(a=[True], b=[True]).take([])).num_rows == 0
    assert own.encode(frame(b=[True], a=[False])).column("a").tolist() == [0]


def test_settings_are_checked():
    with pytest.raises(SchemaError, match="'x' has no declared low and high"):
        encoder(Column("x", "integer", low=0))
    with pytest.raises(SchemaError, match="bins: 0"):
        encoder(Column("x", "boolean"), bins=0)
    with pytest.raises(SchemaError, match="no column 'y'"):
        encoder(Column("x", "boolean"), bins_per_column={"y": 3})
    with pytest.raises(SchemaError, match="'x' is not binned"):
        encoder(Column("x", "boolean"), bins_per_column={"x": 3})
    with pytest.raises(SchemaError, match="float64"):
        encoder(Column("x", "continuous", low=-1.7e308, high=1.7e308))
    with pytest.raises(SchemaError, match="float64"):
        encoder(Column("x", "continuous", low=1.0, high=1.0 + 2**-52))
    own = encoder(Column("x", "boolean"))
    with pytest.raises(DataError, match="another encoder"):
        own.decode(Codes(Domain(("x",), (3,)), (np.array([0]),)), key=0)


def test_json_round_trip():
    own = Encoder(adult_schema(), bins=16, bins_per_column={"age": 5})
    again = Encoder.from_json(own.to_json())
    assert again == own
    assert again.domain.size_of("age") == 5
    data = json.loads(own.to_json())
    for broken in ("{}", json.dumps(data | {"version": 2}), json.dumps(data | {"bins": "many"})):
        with pytest.raises(SchemaError):
            Encoder.from_json(broken)


def test_wide_whole_ranges_do_not_overflow():
    own = encoder(Column("x", "integer", low=-(2**61), high=2**61))
    table = Table.from_columns({"x": (np.array([-(2**61), 0, 2**61]), None)})
    made = own.encode(table)
    assert made.column("x").tolist() == [0, 15, 31]
    assert own.encode(own.decode(made, key=0)).column("x").tolist() == [0, 15, 31]


KINDS = Schema(
    (
        Column("c", "categorical", categories=("b", "a", "rest"), other="rest"),
        Column("n", "integer", low=0, high=9),
    )
)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("coder", [Encoder, Features.declared])
def test_categorical_types_list_what_is_declared_and_nothing_from_rows(coder, ordered):
    """A synthetic frame's type would otherwise name values of real rows, an unseen one too."""
    made = []
    for values in (["a", "b", "secret"], ["a", "b", "a"]):
        rows = pd.DataFrame({"c": values, "n": [1, 2, 7]}).astype("category")
        rows["c"] = pd.Categorical(rows["c"], ordered=ordered)
        table, own = read(rows), coder(KINDS)
        coded = own.encode(table) if coder is Encoder else own.encode(table, key=0)
        made.append(own.decode(coded, key=0, like=table).to_native())
    for frame in made:
        assert frame["c"].dtype == pd.CategoricalDtype(["b", "a", "rest"], ordered=ordered)
        assert frame["n"].dtype == np.int64
    assert made[0]["c"].tolist() == ["a", "b", "rest"]


def test_an_enum_lists_what_is_declared():
    table = read(pl.DataFrame({"c": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"]))}))
    own = Encoder(Schema((KINDS["c"],)))
    again = own.decode(own.encode(table), key=0, like=table).to_native()
    assert again["c"].dtype == pl.Enum(["b", "a", "rest"])
    assert again["c"].to_list() == ["a", "b"]
