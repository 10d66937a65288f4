"""Numbers whose shared values are drawn exactly, and relations among numbers."""

import warnings

import numpy as np
import pytest

from siloweave.errors import DataError
from siloweave.tables import Column, Schema, Table
from siloweave.tables.codes import Encoder
from siloweave.tables.encodings import ATOM_ROWS, NumberLink, Quotient, Ranks, ranks_of_values
from siloweave.tables.features import Features
from siloweave.tables.summaries import agreed_features, summarise

RANDOM = np.random.default_rng(5)


def continuous(**columns):
    """Return a table of numbers and its schema, with room beyond all values."""
    table = Table.from_columns({name: (values, None) for name, values in columns.items()})
    bounds = {n: (float(v.min()) - 1e3, float(v.max()) + 1e3) for n, v in columns.items()}
    made = [Column(n, "continuous", low=low, high=high) for n, (low, high) in bounds.items()]
    return table, Schema(tuple(made))


def drawn(features, rows):
    """Return values of independent normal scores and of options by chance."""
    vectors = RANDOM.standard_normal((rows, features.width))
    return features.decode(vectors, key=0)


def test_values_that_five_rows_share_are_drawn_exactly_and_as_often():
    rates = 1.0 / RANDOM.integers(1, 400, 6000)
    table, schema = continuous(rate=np.concatenate([rates, RANDOM.gamma(2.0, 0.1, 6000)]))
    features = Features.fit(table, schema, numeric="ranks", key=0)
    values, times = np.unique(table.values("rate"), return_counts=True)
    atoms = values[times >= ATOM_ROWS]
    assert len(atoms) > 300
    X = features.encode(table, key=0)
    assert abs(X[:, 0].mean()) < 0.01
    assert abs(X[:, 0].std() - 1.0) < 0.01
    # Atoms come back to the last bit, and a drawn table has as many rows with one.
    back = features.decode(X, key=0).values("rate")
    is_atom = np.isin(table.values("rate"), atoms)
    assert (back[is_atom] == table.values("rate")[is_atom]).all()
    made = drawn(features, 20_000).values("rate")
    assert np.isin(made, atoms).mean() == pytest.approx(is_atom.mean(), abs=0.015)


def test_a_value_of_four_rows_is_drawn_no_more_than_its_neighbours():
    smooth = RANDOM.normal(size=3000)
    often, seldom = np.full(ATOM_ROWS, 0.25), np.full(ATOM_ROWS - 1, 0.75)
    table, schema = continuous(x=np.concatenate([smooth, often, seldom]))
    features = Features.fit(table, schema, numeric="ranks", key=0)
    made = drawn(features, 200_000).values("x")
    assert np.count_nonzero(made == 0.25) > 100  # 333 are expected
    assert np.count_nonzero(made == 0.75) == 0


def test_a_column_of_one_atom_and_one_of_a_hundred_thousand():
    one = ranks_of_values(np.array([3.25]), np.array([900.0]))
    numbers = one.split(np.full(50, 3.25), RANDOM)[1]
    assert len(np.unique(numbers)) == 50
    assert (one.join(np.zeros(9, np.int64), np.linspace(-9, 9, 9)) == 3.25).all()

    values = np.sort(RANDOM.gamma(1.0, size=100_000))
    many = ranks_of_values(values, np.full(100_000, 5.0))
    assert many.takes(float(values[0]), float(values[-1]))
    assert len(many.values) < 40_000
    made = many.join(np.zeros(10_000, np.int64), RANDOM.standard_normal(10_000))
    assert np.quantile(made, [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(values, [0.1, 0.5, 0.9]), rel=0.1
    )


def test_numbers_near_the_largest_double_keep_their_order():
    values = np.array([-1e300, -1.0, 0.0, 1e-300, 1.0, 1e300])
    ranks = ranks_of_values(values, np.array([1.0, 5.0, 1.0, 7.0, 1.0, 6.0]))
    assert isinstance(ranks, Ranks)
    assert ranks.takes(-1e300, 1e300)
    numbers = ranks.split(values, RANDOM)[1]
    assert np.isfinite(numbers).all()
    assert (np.diff(numbers) > 0).all()
    assert (ranks.join(np.zeros(6, np.int64), numbers) == values)[[1, 3, 5]].all()


def test_a_copy_in_some_rows_and_a_sum_that_one_row_breaks_are_drawn_exactly():
    rows = 4000
    first = np.round(RANDOM.gamma(2.0, 100.0, rows), 2)
    second = np.round(RANDOM.gamma(2.0, 100.0, rows), 2)
    other = np.round(RANDOM.gamma(2.0, 100.0, rows), 2)
    copied = np.where(RANDOM.random(rows) < 0.14, first, other)
    total = first + second
    total[7] += 1.0
    table, schema = continuous(first=first, second=second, copied=copied, total=total)
    features = Features.fit(table, schema, numeric="ranks", key=0)
    assert Features.from_json(features.to_json()) == features
    links = {encoding.column: encoding.relations for encoding in features.encodings}
    assert links["first"] == links["second"] == ()
    assert links["copied"] == (NumberLink(("first",), (1,)),)
    assert links["total"] == (NumberLink(("first", "second"), (1, 1)),)

    vectors = features.encode(table, key=0)
    (option,) = (b for b in features.blocks if b.column == "total" and b.kind == "categorical")
    options = vectors[:, option.start : option.stop].argmax(1)
    assert np.flatnonzero(options == 0).tolist() == [7]
    # Numbers are drawn, and what has the option follows them to the last decimal.
    vectors[:, [b.start for b in features.blocks if b.kind == "number"]] = RANDOM.normal(
        size=(rows, 4)
    )
    made = features.decode(vectors, key=0)
    sums = made.values("first") + made.values("second")
    assert np.isclose(made.values("total"), sums, rtol=1e-12).mean() > 0.999
    copies = made.values("copied") == made.values("first")
    assert copies.mean() == pytest.approx(0.14, abs=0.02)


def rates(rows, decimals):
    """Return two counts, of which most rows have the same total, and their rounded quotient."""
    total = np.where(RANDOM.random(rows) < 0.5, 255, RANDOM.integers(1, 255, rows)).astype(float)
    part = np.floor(RANDOM.random(rows) * (total + 1))
    rate = part / total
    if decimals is not None:
        rate = np.round(rate, decimals)
    broken = RANDOM.random(rows) < 0.1
    rate[broken] = np.round(RANDOM.random(broken.sum()), 2)
    return continuous(part=part, total=total, rate=rate)


@pytest.mark.parametrize("decimals", [2, None])
def test_a_quotient_of_two_columns_is_drawn_as_one(decimals):
    rows = 4000
    table, schema = rates(rows, decimals)
    features = Features.fit(table, schema, numeric="ranks", key=0)
    found = features.encodings[2]
    assert found.relations == found.quotients == (Quotient(("part", "total"), decimals),)
    assert Features.from_json(features.to_json()) == features

    vectors = features.encode(table, key=0)
    (option,) = (b for b in features.blocks if b.column == "rate" and b.kind == "categorical")
    is_linked = vectors[:, option.start : option.stop].argmax(1) == found.options - 1
    assert is_linked.mean() == pytest.approx(0.9, abs=0.05)
    # The rate is drawn by chance; a row that has the option has the quotient nevertheless.
    numbers = [b.start for b in features.blocks if b.kind == "number"]
    vectors[:, numbers[-1]] = RANDOM.normal(size=rows)
    made = features.decode(vectors, key=0)
    quotients = made.values("part") / made.values("total")
    if decimals is not None:
        quotients = np.round(quotients, decimals)
    assert np.array_equal(made.values("rate")[is_linked], quotients[is_linked])


def test_a_quotient_by_zero_is_drawn_as_the_number_that_it_is():
    table, schema = rates(4000, 2)
    features = Features.fit(table, schema, numeric="ranks", key=0)
    values = {name: table.values(name).copy() for name in table.names}
    values["total"][:50] = 0.0
    zeros, _ = continuous(**values)
    vectors = features.encode(zeros, key=0)
    made = features.decode(vectors, key=0)
    assert np.isfinite(made.values("rate")).all()
    assert np.abs(made.values("rate")[:50] - values["rate"][:50]).max() < 0.02


def test_the_largest_and_the_smallest_numbers_are_divided_without_a_word():
    rows = 400
    largest, smallest = (RANDOM.uniform(1, 1.7, rows) * size for size in (1e99, 1e-300))
    columns = {"a": largest, "b": smallest, "c": RANDOM.random(rows)}
    table = Table.from_columns({name: (values, None) for name, values in columns.items()})
    made = [Column(n, "continuous", low=v.min(), high=v.max()) for n, v in columns.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features = Features.fit(table, Schema(tuple(made)), numeric="ranks", key=0)
    assert all(encoding.relations == () for encoding in features.encodings)


def test_quotients_that_are_0_or_1_or_a_copy_say_nothing():
    rows = 3000
    part = RANDOM.integers(0, 2, rows) * RANDOM.integers(30, 90, rows)
    total = np.where(RANDOM.random(rows) < 0.7, part, RANDOM.integers(30, 90, rows)) + 0.0
    # It is part / total wherever that is 0 or 1, and has nothing to do with it elsewhere.
    is_plain = (part == 0) | (part == total)
    rate = np.where(is_plain, (part > 0) + 0.0, np.round(RANDOM.random(rows), 2))
    table, schema = continuous(part=part + 0.0, total=total, rate=rate)
    features = Features.fit(table, schema, numeric="ranks", key=0)
    assert features.encodings[2].relations == ()


def test_whole_numbers_are_no_quotients():
    rows = 3000
    first, second = (RANDOM.integers(1, 400, rows) + 0.0 for _ in range(2))
    table, schema = continuous(a=first, b=second, c=np.round(first / second))
    features = Features.fit(table, schema, numeric="ranks", key=0)
    assert features.encodings[2].relations == ()


def test_a_sum_in_the_later_half_of_a_sorted_table_is_found():
    rows = 4000
    a, b = (np.round(RANDOM.normal(size=rows) * 40, 2) for _ in range(2))
    total = np.where(np.arange(rows) < rows / 2, np.round(RANDOM.normal(size=rows), 2), a + b)
    table, schema = continuous(a=a, b=b, total=total)
    features = Features.fit(table, schema, numeric="ranks", key=0)
    assert features.encodings[2].relations == (NumberLink(("a", "b"), (1, 1)),)


def test_chance_and_a_code_for_missing_are_no_relation():
    rows = 3000
    codes = RANDOM.random(rows) < 0.06
    numbers = [RANDOM.integers(0, 60, rows) + 100 * place for place in range(3)]
    same_range = RANDOM.integers(0, 60, rows)
    columns = {f"x{i}": np.where(codes, -9, values) for i, values in enumerate(numbers)}
    columns["y"] = np.where(codes, -9, same_range)
    table = Table.from_columns({name: (values, None) for name, values in columns.items()})
    schema = Schema(tuple(Column(name, "integer", low=-9, high=400) for name in columns))
    features = Features.fit(table, schema, numeric="ranks", key=0)
    assert all(encoding.relations == () for encoding in features.encodings)


def test_a_linked_column_is_missing_or_out_of_bounds_as_its_own_value_is():
    rows = 2000
    a = np.round(RANDOM.normal(50.0, 10.0, rows), 1)
    gone = RANDOM.random(rows) < 0.2
    table = Table.from_columns({"a": (a, gone), "b": (a, None)})
    schema = Schema(
        (
            Column("a", "continuous", low=0.0, high=200.0, missing=True),
            Column("b", "continuous", low=0.0, high=100.0),
        )
    )
    features = Features.fit(table, schema, numeric="ranks", key=0)
    assert features.encodings[1].relations == (NumberLink(("a",), (1,)),)
    made = features.decode(features.encode(table, key=0), key=0)
    assert np.abs(made.values("b") - a).max() < 2.0  # an end of one row is nearer to the next
    assert (made.missing("a") == gone).all()
    # One column alone, as a condition gives it, has no row in which the relation is known.
    alone = Features(Schema((schema["b"],)), features.encodings[1:])
    vectors = alone.encode(table.select(["b"]), key=0)
    assert vectors[:, 2].sum() == 0
    vectors[:, 1:] = [0.0, 1.0]
    assert np.abs(alone.decode(vectors, key=0).values("b") - a).max() < 2.0


def test_only_rows_tell_which_values_are_shared():
    table, schema = continuous(x=RANDOM.normal(size=300))
    encoder = Encoder(schema, bins=8)
    with pytest.raises(DataError, match="ranks"):
        Features.from_counts(encoder, {"x": np.ones(8)}, numeric="ranks")
    with pytest.raises(DataError, match="ranks"):
        agreed_features(schema, [summarise(table, schema)], numeric="ranks")


def test_features_with_relations_are_not_taken_from_others():
    a = np.round(RANDOM.normal(size=500), 3)
    table, schema = continuous(a=a, b=a)
    features = Features.fit(table, schema, numeric="ranks", key=0)
    assert features.encodings[1].relations
    assert not features.cover(schema)
    assert Features.fit(table, schema, key=0).cover(schema)
