"""A database's rows are coded and counted as those of the same table in memory."""

import sqlite3
import sys
from itertools import combinations

import numpy as np
import pytest
from tests.tables.databases import ODD, duckdb, in_duckdb, in_sqlite, needs_duckdb, odd_table

import siloweave as sw
from siloweave.datasets import adult, adult_schema
from siloweave.errors import CapacityError, DataError, SchemaError
from siloweave.protocols.schema import clipped
from siloweave.statistics.marginals import marginal, sparse_marginal
from siloweave.tables import counted as module
from siloweave.tables.bins import Cuts, cuts_of, edges_of, octave_starts
from siloweave.tables.codes import Encoder
from siloweave.tables.column import Column
from siloweave.tables.counted import counted
from siloweave.tables.database import Database
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table
from siloweave.tables.write import write

KINDS = [
    pytest.param(in_duckdb, marks=needs_duckdb, id="duckdb"),
    pytest.param(in_sqlite, id="sqlite"),
]
BUDGET = sw.Budget(1.0, 1e-6)


def encoders():
    weight = np.random.default_rng(1).random(4096) ** 20
    cuts = {"weight": cuts_of(ODD["weight"], edges_of(ODD["weight"], 4096), 1e4 * weight, 200)}
    yield from (Encoder(ODD, bins) for bins in (1, 7, 64, 100, 4096))
    yield Encoder(ODD, 16, cuts=cuts)


@pytest.mark.parametrize("written", KINDS)
def test_every_column_has_the_codes_of_the_table_in_memory(tmp_path, written):
    table = odd_table()
    database = written(table, tmp_path)
    for encoder in encoders():
        codes, there = encoder.encode(table), counted(database, encoder)
        assert there.num_rows == codes.num_rows
        for name in encoder.domain.names:
            np.testing.assert_array_equal(marginal(there, (name,)), marginal(codes, (name,)), name)


@pytest.mark.parametrize("written", KINDS)
@pytest.mark.parametrize("bins", [16, 4096])
def test_numbers_that_stand_for_a_missing_value_are_missing(tmp_path, written, bins):
    random = np.random.default_rng(5)
    facts = {"low": 0, "high": 90, "missing": True, "missing_values": ("999", "n/a", "-99.9")}
    schema = Schema((Column("age", "integer", **facts), Column("bmi", "continuous", **facts)))
    age = np.where(random.random(500) < 0.1, 999, random.integers(0, 91, 500))
    bmi = np.where(random.random(500) < 0.1, -99.9, random.random(500).round(3) * 90)
    table = Table.from_columns({"age": (age, random.random(500) < 0.1), "bmi": (bmi, None)})
    encoder = Encoder(schema, bins)
    codes, there = encoder.encode(table), counted(written(table, tmp_path), encoder)
    for name, gone in (("age", table.missing("age") | (age == 999)), ("bmi", bmi < 0)):
        assert marginal(codes, (name,))[-1] == gone.sum() > 20
        np.testing.assert_array_equal(marginal(there, (name,)), marginal(codes, (name,)), name)


@pytest.mark.parametrize("written", KINDS)
def test_bins_that_are_narrower_near_0_are_counted_as_in_memory(tmp_path, written, monkeypatch):
    random, arrays = np.random.default_rng(2), {}
    schema = Schema(
        (
            Column("bytes", "integer", low=0, high=62_825_648),
            Column("gain", "integer", low=-70_000, high=10**13),
            Column("debt", "integer", low=-(2**50), high=-7, learned=("low", "high")),
            Column("pay", "continuous", low=0.0, high=25_691.16, decimals=2, missing=True),
            Column("balance", "continuous", low=-1e7, high=333.3, decimals=2),
        )
    )
    starts = {c.name: octave_starts(c, 4096) for c in schema.columns}
    encoder = Encoder(schema, 4096, cuts={name: Cuts(one) for name, one in starts.items()})
    for column in schema.columns:
        edges = encoder.edges(column.name)[:-1]
        around = np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)])
        if column.kind == "integer":
            around = np.concatenate([edges, edges - 1, edges + 1])
        values = random.choice(np.clip(around, column.low, column.high), 9000)
        arrays[column.name] = values, (values < 1 if column.missing else None)
    table = Table.from_columns(arrays)
    codes, there = encoder.encode(table), counted(written(table, tmp_path), encoder)
    for name in schema.names:
        np.testing.assert_array_equal(marginal(there, (name,)), marginal(codes, (name,)), name)
        comparisons = there.values[name].count("WHEN")
        assert comparisons < 600, "within an octave a bin is found by dividing"


@pytest.mark.parametrize("written", KINDS)
def test_cliques_are_counted_as_in_memory_whatever_they_are_counted_with(tmp_path, written):
    table, encoder = odd_table(800), Encoder(ODD, 7)
    pairs = list(combinations(encoder.domain.names, 2))
    codes, there = encoder.encode(table), counted(written(table, tmp_path), encoder, pairs)
    for clique in [*pairs, ("dose", "age", "code"), ("age",), ("weight", "loss", "day", "when")]:
        np.testing.assert_array_equal(marginal(there, clique), marginal(codes, clique), clique)
        for a, b in zip(
            sparse_marginal(there, clique), sparse_marginal(codes, clique), strict=True
        ):
            np.testing.assert_array_equal(a, b)


@needs_duckdb
def test_planned_cliques_take_one_question(tmp_path, monkeypatch):
    table, encoder = odd_table(200), Encoder(ODD, 7)
    pairs = list(combinations(encoder.domain.names, 2))
    there, asked = counted(in_duckdb(table, tmp_path), encoder, pairs), []
    grouped = Database.grouped
    monkeypatch.setattr(
        Database,
        "grouped",
        lambda self, *args, **more: asked.append(1) or grouped(self, *args, **more),
    )
    for pair in pairs:
        marginal(there, pair)
    assert asked == [1]


@pytest.mark.parametrize("written", KINDS)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("age", {"high": 4000}),
        ("age", {"missing": False}),
        ("weight", {"low": 0.0}),
        ("loss", {"missing": False}),
        ("code", {"categories": (3, 1)}),
        ("code", {"missing": False}),
        ("ward's", {"other": None, "categories": ("a'b", "ü", "x y")}),
        ("day", {"low": "1970-01-01"}),
        ("weight", {"kind": "integer", "low": -2, "high": 13}),
        ("ward's", {"kind": "integer", "low": 0, "high": 13, "categories": (), "other": None}),
        ("code", {"kind": "boolean", "categories": ()}),
        ("age", {"kind": "categorical", "categories": ("a",), "low": None, "high": None}),
    ],
)
def test_what_is_outside_the_schema_is_the_error_of_the_table_in_memory(
    tmp_path, written, name, change
):
    table = odd_table(500)
    column = {f: getattr(ODD[name], f) for f in ODD[name].__struct_fields__} | change
    schema = Schema((Column(**column),))
    rows = table.select([name])
    with pytest.raises(SchemaError) as held:
        Encoder(schema, 7).encode(rows)
    with pytest.raises(SchemaError) as there:
        counted(written(rows, tmp_path), Encoder(schema, 7))
    assert str(there.value) == str(held.value)


@pytest.mark.parametrize("written", KINDS)
@pytest.mark.parametrize(
    ("kind", "learned"),
    [("integer", ()), ("continuous", ()), ("integer", ("low", "high"))],
)
def test_an_infinite_number_is_named_as_in_memory(tmp_path, written, kind, learned):
    numbers = np.array([1.0, np.inf, -np.inf, 9.0, 1e308])
    rows = Table.from_columns({"x": (numbers, np.array([False] * 4 + [True]))})
    schema = Schema((Column("x", kind, low=0, high=10, missing=True, learned=learned),))
    with pytest.raises(SchemaError, match="'x': 2 rows hold infinite numbers; correct"):
        Encoder(schema, 7).encode(rows)
    with pytest.raises(SchemaError, match="'x': 2 rows hold infinite numbers; correct"):
        counted(written(rows, tmp_path), Encoder(schema, 7))


@pytest.mark.parametrize("written", KINDS)
def test_an_infinite_number_beyond_learned_bounds_is_moved_inside(tmp_path, written):
    rows = Table.from_columns({"x": (np.array([1.0, np.inf, -np.inf, 9.0]), None)})
    schema = Schema((Column("x", "continuous", low=0, high=10, learned=("low", "high")),))
    encoder = Encoder(schema, 7)
    codes, there = encoder.encode(rows), counted(written(rows, tmp_path), encoder)
    np.testing.assert_array_equal(marginal(there, ("x",)), marginal(codes, ("x",)))


@pytest.mark.parametrize("written", KINDS)
def test_numbers_beyond_learned_bounds_are_moved_inside(tmp_path, written):
    learned = {"learned": ("low", "high")}
    schema = Schema(
        (
            Column("age", "integer", low=100, high=3000, missing=True, **learned),
            Column("weight", "continuous", low=1.0, high=8.0, **learned),
        )
    )
    rows = odd_table(500).select(["age", "weight"])
    for bins in (7, 300):
        encoder = Encoder(schema, bins)
        codes = encoder.encode(clipped(rows, schema))
        there = counted(written(rows, tmp_path), encoder)
        for name in schema.names:
            np.testing.assert_array_equal(marginal(there, (name,)), marginal(codes, (name,)))
        for file in tmp_path.iterdir():
            file.unlink()


def test_a_table_that_changes_while_it_is_counted_is_refused(tmp_path):
    table, encoder = odd_table(100), Encoder(ODD, 7)
    there = counted(in_sqlite(table, tmp_path), encoder)
    with sqlite3.connect(tmp_path / "rows.sqlite") as connection:
        connection.execute("DELETE FROM visits WHERE id = 3")
    connection.close()
    with pytest.raises(DataError, match="rows were changed while they were counted"):
        marginal(there, ("age", "code"))


def test_other_rows_have_another_digest(tmp_path):
    table, encoder = odd_table(100), Encoder(ODD, 7)
    database = in_sqlite(table, tmp_path)
    first, again = counted(database, encoder).digest(), counted(database, encoder).digest()
    with sqlite3.connect(tmp_path / "rows.sqlite") as connection:
        connection.execute("UPDATE visits SET code = 7 WHERE code = 3 AND id < 50")
    connection.close()
    assert first == again != counted(database, encoder).digest()


def test_a_clique_of_too_many_cells_is_refused(tmp_path):
    there = counted(in_sqlite(odd_table(50), tmp_path), Encoder(ODD, 4096))
    with pytest.raises(CapacityError, match="a database counts 67,108,864 at most"):
        marginal(there, ("age", "weight", "loss"))


@pytest.mark.parametrize("written", KINDS)
def test_where_values_are_too_many_to_look_up_rows_are_read_some_at_a_time(
    tmp_path, written, monkeypatch
):
    encoder, pairs = Encoder(ODD, 7), [("ward's", "code"), ("age", "day")]
    table = odd_table(300)
    database = written(table, tmp_path)
    looked_up = counted(database, encoder)
    for most in (3, 40):  # the first query has more groups, or one of the others
        monkeypatch.setattr(module, "_MOST_VALUES", most)
        monkeypatch.setattr(sys.modules["siloweave.tables.database"], "_PIECE_ROWS", 70)
        here = counted(database, encoder)
        assert type(here) is not type(looked_up)
        assert here.num_rows == 300
        assert here.digest() == looked_up.digest()
        for one, other in zip(here.count(pairs), looked_up.count(pairs), strict=True):
            np.testing.assert_array_equal(one, other)


@needs_duckdb
@pytest.mark.parametrize("method", [sw.AIM, sw.TwoRound, sw.FLAIM, sw.PrivMRF, sw.DistAIM])
def test_a_fit_is_the_same_bytes_as_from_a_csv(tmp_path, method):
    names = ["age", "sex", "income", "capital-gain"]
    table, schema = adult().take(range(3000)).select(names), adult_schema().select(names)
    write(table, tmp_path / "rows.csv")
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        rows = f"SELECT * FROM read_csv('{tmp_path / 'rows.csv'}', nullstr='')"
        connection.execute(f"CREATE TABLE rows AS {rows}").fetchall()
    database = sw.Database(f"duckdb:///{tmp_path / 'rows.duckdb'}", table="rows")
    synth = method(rounds=2, max_model_mb=1) if method is sw.FLAIM else method(max_model_mb=1)
    fits = []
    for part in (tmp_path / "rows.csv", database):
        data = part if synth.method.split == "central" else {"a": part, "b": part}
        fits.append(synth.fit(data, schema, budget=BUDGET, noise="seeded", seed=3))
    held, there = ({c: t.tobytes() for c, t in f.model.mrf.potentials.items()} for f in fits)
    assert held == there
    assert [f.epsilon for f in fits] == [fits[0].epsilon] * 2


@needs_duckdb
def test_a_method_that_needs_rows_loads_them(tmp_path):
    table = adult().take(range(300)).select(["age", "sex"])
    schema = adult_schema().select(["age", "sex"])
    fits = [
        sw.GaussianCopula().fit(part, schema, seed=1).sample_table(50, seed=0)
        for part in (table, in_duckdb(table, tmp_path))
    ]
    assert fits[0].values("age").tolist() == fits[1].values("age").tolist()


def test_an_empty_table_is_counted(tmp_path):
    table, encoder = odd_table(50).take([]), Encoder(ODD, 7)
    there = counted(in_sqlite(table, tmp_path), encoder)
    assert there.num_rows == 0
    assert int(marginal(there, ("age", "code")).sum()) == 0


def test_a_schema_of_another_table_is_refused(tmp_path):
    with pytest.raises(SchemaError, match="nothing in common"):
        counted(in_sqlite(odd_table(50), tmp_path), Encoder(adult_schema().select(["sex"])))


def test_weighted_values_count_rows():
    import polars as pl

    table = Table.of_counts("a", pl.DataFrame({"v": ["x", None, "y"], "n": [5, 7, 11]}))
    assert table.rows_of(table.missing("a")) == 7
