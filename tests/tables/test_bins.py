from itertools import pairwise

import numpy as np
import pytest

from siloweave.errors import SchemaError
from siloweave.tables import Codes, Column, Encoder, Schema, Table
from siloweave.tables.bins import (
    Cuts,
    above,
    bin_means,
    cut_edges,
    cuts_of,
    draw,
    edges_of,
    last_of,
    log_density,
    octave_starts,
    octaves,
    spike_bins,
)

PAY = Column("pay", "continuous", low=0.0, high=99_999.0)
COUNT = Column("count", "integer", low=-5_000, high=94_999)
DAY = Column("day", "datetime", low="1990-01-01", high="2020-12-31")
DEBT = Column("debt", "continuous", low=-50.0, high=50.0, missing=True)
FINE = 4096
TAIL = Column("tail", "integer", low=0, high=62_825_648)
BALANCE = Column("balance", "continuous", low=-2e6, high=9e4, decimals=2, missing=True)
COLUMNS = [PAY, COUNT, DAY, DEBT, TAIL, BALANCE]


def fine_edges(column):
    """Of the bins that a histogram counts."""
    starts = octave_starts(column, FINE)
    return cut_edges(column, Cuts(starts)) if starts else edges_of(column, FINE)


def spread(column, seed):
    """Counts of fine bins: a lump, a tail, and 0 and the bounds now and then."""
    rng = np.random.default_rng(seed)
    size = len(fine_edges(column)) - 1
    far = (np.arange(size) - rng.integers(size)) / rng.integers(5, 900)
    weights = 1e4 * np.exp(-0.5 * far**2)
    weights[rng.integers(0, size, 50)] += rng.exponential(3e3, 50)
    zero = int(np.searchsorted(fine_edges(column)[1:-1], 0, side="right"))
    for place in (0, zero, size - 1):
        weights[place] += rng.integers(0, 2) * weights.sum()
    return np.append(weights, [7.0] * column.missing)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: c.name)
@pytest.mark.parametrize("seed", range(6))
def test_bins_are_as_light_as_their_number_allows(column, seed):
    weights = spread(column, seed)
    fine, known = fine_edges(column), weights[: len(weights) - column.missing]
    spikes = spike_bins(column, fine, weights)
    for bins in (1, 2, 3, 8, 32, 100):
        edges = cut_edges(column, cuts_of(column, fine, weights, bins))
        assert len(edges) - 1 <= bins
        if bins < 8:
            continue
        for value in spikes.values():
            assert value in edges.tolist()[:-1], "a spike begins a bin"
        places = np.searchsorted(edges[1:-1], fine[:-1], side="right")
        masses = np.bincount(places, weights=known, minlength=len(edges) - 1)
        several = np.bincount(places[known > 0], minlength=len(edges) - 1) > 1
        # Neighbours of which no two fit into one bin are at least half full on average.
        room = bins - 1 - 3 * len(spikes) - 2 * 60
        if room > 0:
            assert masses[several].max() <= 2 * known.sum() / room


def test_a_value_that_many_share_has_a_bin_of_its_own():
    hours = Column("hours", "integer", low=1, high=99)
    weights = np.ones(99)
    weights[39] = 500.0
    edges = cut_edges(hours, cuts_of(hours, edges_of(hours, 99), weights, 8)).tolist()
    assert (40, 41) in list(pairwise(edges))


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: c.name)
def test_rows_come_back_into_their_bin_and_spikes_exactly(column):
    weights = spread(column, 3)
    size = len(weights) - column.missing
    zero = int(np.searchsorted(fine_edges(column)[1:-1], 0, side="right"))
    weights[[0, zero, size - 1]] = weights.sum()
    cuts = cuts_of(column, fine_edges(column), weights, 32)
    encoder = Encoder(Schema((column,)), 32, cuts={column.name: cuts})
    codes = encoder.encode(table_of(column, encoder))
    again = encoder.encode(encoder.decode(codes, key=5))
    np.testing.assert_array_equal(again.columns[0], codes.columns[0])
    if column.kind != "datetime":
        values = encoder.decode(codes, key=6).values(column.name)[~np.isnan(given(column))]
        known = given(column)[~np.isnan(given(column))]
        for exact in {0, column.low, column.high} & set(known.tolist()):
            assert (values[known == exact] == exact).all()
    back = Encoder.from_json(encoder.to_json())
    assert back == encoder
    assert back.select([column.name]) == encoder


def given(column):
    rng = np.random.default_rng(8)
    low, high = float(edges_of(column, 1)[0]), float(last_of(column))
    values = np.concatenate([rng.uniform(low, high, 500), [low, high, 0.0, low, high, 0.0]])
    values = values if column.kind == "continuous" else np.floor(values)
    if column.missing:
        values[::9] = np.nan
    return np.clip(values, low, high)


def table_of(column, encoder):
    values = given(column)
    if column.kind == "datetime":
        days = values.astype(np.int64).astype("datetime64[D]")
        return Table.from_columns({column.name: (days, None)})
    gone = np.isnan(values)
    if column.kind == "integer":
        return Table.from_columns({column.name: (values.astype(np.int64), None)})
    return Table.from_columns({column.name: (values, gone)})


def test_a_bin_of_one_number_gives_that_number():
    for value in (0.0, -0.1, 1e9, 1e-320):
        assert value < above(value)
        assert above(value) - value <= max(abs(value) * 1e-15, np.finfo(float).tiny)
    encoder = Encoder(Schema((DEBT,)), 4, cuts={"debt": Cuts((0.0, float(above(0.0)), 50.0))})
    codes = encoder.encode(Table.from_columns({"debt": (np.array([0.0, 50.0, -1.0, 49.9]), None)}))
    assert codes.columns[0].tolist() == [1, 3, 0, 2]
    values = encoder.decode(codes, key=1).values("debt")
    assert values[:2].tolist() == [0.0, 50.0]


@pytest.mark.parametrize(
    ("cuts", "what"),
    [((-5_000,), "rise"), ((3, 3), "rise"), ((4, 3), "rise"), ((95_000,), "rise"), ((1.5,), "who")],
)
def test_cuts_that_do_not_rise_from_bound_to_bound_are_refused(cuts, what):
    with pytest.raises(SchemaError, match=what):
        Encoder(Schema((COUNT,)), cuts={"count": Cuts(cuts)})


def test_cuts_of_a_column_without_bins_are_refused():
    sex = Column("sex", "categorical", categories=("f", "m"))
    with pytest.raises(SchemaError, match="cuts: column 'sex' is not binned"):
        Encoder(Schema((sex,)), cuts={"sex": Cuts((1,))})


@pytest.mark.parametrize("column", [PAY, COUNT], ids=lambda c: c.name)
def test_rows_lie_inside_bins_as_the_counts_say(column):
    fine = fine_edges(column).astype(float)
    weights = np.exp(-np.arange(len(fine) - 1) / 200.0)
    cuts = cuts_of(column, fine_edges(column), weights, 4)
    encoder = Encoder(Schema((column,)), cuts={column.name: cuts})
    number = 40_000
    drawn = encoder.decode(Codes(encoder.domain, (np.arange(number) % 4,)), key=2)
    values = np.sort(drawn.values(column.name).astype(float))
    inside = np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()
    edges = cut_edges(column, cuts).astype(float)
    known = np.interp(edges, fine, inside)
    for i, (low, high) in enumerate(pairwise(edges)):
        mine = values[(values >= low) & (values < high)]
        assert len(mine) == pytest.approx(number / 4, abs=2)
        share = (np.interp(mine, fine, inside) - known[i]) / (known[i + 1] - known[i])
        assert abs(np.sort(share) - np.linspace(0, 1, len(mine))).max() < 0.02
    again = encoder.encode(drawn).columns[0]
    np.testing.assert_array_equal(again, np.arange(number) % 4)


def test_knots_that_are_no_distribution_function_are_refused():
    for values, levels in (
        ((0.0, 1.0), (0.0,)),
        ((1.0, 0.0), (0.0, 1.0)),
        ((0.0, 1.0), (1.0, 1.0)),
    ):
        with pytest.raises(SchemaError, match="no distribution function"):
            Cuts((), values, levels)


@pytest.mark.parametrize(
    "column",
    [
        PAY,
        COUNT,
        TAIL,
        BALANCE,
        Column("loss", "integer", low=-999_999, high=-3),
        Column("weight", "integer", low=12_285, high=1_490_400),
        Column("rate", "continuous", low=1e-300, high=1.0),
        Column("any", "integer", low=-(2**62) + 1, high=2**62 - 1),
    ],
    ids=lambda c: c.name,
)
def test_fine_bins_are_narrow_beside_the_range_and_beside_their_numbers(column):
    arrays, low, high = octaves(column, FINE), float(edges_of(column, 1)[0]), float(last_of(column))
    assert [a[-1] for a in arrays[:-1]] == [b[0] for b in arrays[1:]]
    edges = cut_edges(column, Cuts(octave_starts(column, FINE)))
    np.testing.assert_array_equal(
        edges, np.append(np.concatenate([a[:-1] for a in arrays]), edges[-1])
    )
    widths = np.diff(edges.astype(float))
    unit = 1.0 if column.kind == "integer" else 10.0**-column.decimals if column.decimals else 0.0
    assert (widths <= (high - low) / FINE + unit + 1e-9 * (high - low)).all()
    near = np.minimum(np.abs(edges[:-1].astype(float)), np.abs(edges[1:].astype(float)))
    least = max(-low, high) / 2**20 / 32
    assert (widths <= np.maximum(near / 64, least) * (1 + 1e-9) + unit).all()
    assert (widths[near < 1024 * unit] <= unit * (1 + 1e-6)).all(), "a bin for each small value"
    assert len(widths) <= FINE + 2 * (2048 + 64 * 53)


@pytest.mark.parametrize(
    "column",
    [
        DAY,
        DEBT,
        Column("age", "integer", low=0, high=4 * FINE - 1),
        Column("rate", "continuous", low=0.0, high=1.0, decimals=4),
        Column("year", "integer", low=1_000_000, high=63_999_999),
        Column("cold", "continuous", low=-300.0, high=-5.0),
        Column("one", "continuous", low=3.0, high=3.0),
    ],
    ids=lambda c: c.name,
)
def test_fine_bins_are_equal_where_narrower_ones_near_0_gain_nothing(column):
    assert octaves(column, FINE) == []
    assert octave_starts(column, FINE) == ()


SMALL = [
    Column("count", "integer", low=-20, high=400),
    Column("day", "datetime", low="1990-01-01", high="1990-12-31"),
    DEBT,
    PAY,
]


def cut_in(column, bins, *, even):
    """Edges of bins, and how rows lie inside them."""
    if even:
        return edges_of(column, bins), None
    cuts = cuts_of(column, fine_edges(column), spread(column, 0), bins)
    return cut_edges(column, cuts), cuts


@pytest.mark.parametrize("even", [True, False], ids=["even", "cut"])
@pytest.mark.parametrize("column", SMALL, ids=lambda c: c.name)
def test_values_are_drawn_as_densely_as_is_said(column, even):
    edges, cuts = cut_in(column, 12, even=even)
    whole = column.kind != "continuous"
    for code in range(len(edges) - 1):
        low, high = float(edges[code]), float(edges[code + 1])
        drawn = draw(column, edges, np.full(4000, code), np.random.default_rng(code), cuts=cuts)
        if whole:
            values, steps = np.arange(int(low), int(high)), np.ones(int(high) - int(low))
        elif high <= above(low):
            assert set(drawn.tolist()) == {low}
            alone = log_density(column, edges, np.array([code]), drawn[:1], cuts)
            assert alone.tolist() == [0.0]
            continue
        else:
            knots = np.concatenate([np.linspace(low, high, 1000), cuts.values if cuts else []])
            places = np.unique(knots[(knots >= low) & (knots <= high)])
            values, steps = (places[1:] + places[:-1]) / 2.0, np.diff(places)
        codes = np.full(len(values), code)
        density = np.exp(log_density(column, edges, codes, values, cuts))
        assert (density * steps).sum() == pytest.approx(1.0)

        # Half of the draws lie where half of the density is, within five standard deviations.
        reached = np.cumsum(density * steps)
        middle = np.searchsorted(reached, 0.5)
        share, end = reached[middle], values[middle] + (0.0 if whole else steps[middle] / 2.0)
        assert (drawn <= end).mean() == pytest.approx(share, abs=0.04)
        error = 5.0 * drawn.std() / 4000**0.5 + 1e-9
        assert bin_means(column, edges, cuts)[code] == pytest.approx(drawn.mean(), abs=error)
