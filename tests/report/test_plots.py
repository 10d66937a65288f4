import math
import re

import msgspec
import numpy as np
import pytest

from siloweave.progress import duration
from siloweave.report import run_plots, table_plots
from siloweave.report import words as w
from siloweave.report.record import Association, LedgerRow, Marginal, PartyCost
from siloweave.report.svg import text_width


def row(party, index, cumulative, mechanism="discrete Gaussian"):
    return LedgerRow(
        party=party,
        index=index,
        step="s",
        what="w",
        to="t",
        mechanism=mechanism,
        parameters="p",
        cumulative_epsilon=cumulative,
        rho=0.1,
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
def test_attack_bound_is_what_the_neyman_pearson_test_reaches(epsilon, delta):
    """Randomised response with failure δ is the worst case; its best test meets the bound."""
    e = math.exp(epsilon)
    p = np.array([delta, (1 - delta) * e / (1 + e), (1 - delta) / (1 + e), 0.0])
    q = p[::-1]
    for false_alarms in np.linspace(0, 1, 41):
        left, power = false_alarms, 0.0
        for gain, cost in sorted(zip(p, q, strict=True), key=lambda x: -x[0] / (x[1] + 1e-300)):
            share = 1.0 if cost == 0 else min(1.0, left / cost)
            power, left = power + share * gain, left - share * cost
        assert w.attacker_power(false_alarms, epsilon, delta) == pytest.approx(min(power, 1))


def test_attack_bound_at_the_ends():
    assert w.attacker_power(0.3, 0.0, 0.0) == pytest.approx(0.3)
    assert w.attacker_power(0.0, math.inf, 0.0) == 1
    assert w.attacker_power(0.0, 800.0, 0.0) == 1


@pytest.mark.parametrize("value", [0.1234567, 0.99901, 1.0, 2.5, 12345.6, 3e-7, 0.0])
def test_epsilon_is_never_understated(value):
    assert float(w.epsilon(value)) >= value
    assert float(w.epsilon(value)) <= value * 1.011


def test_small_numbers():
    assert [w.small(x) for x in (1e-5, 1e-10, 0.5, 1e6)] == ["1e-5", "1e-10", "0.5", "1e6"]
    assert duration(3725) == "1 h 2 min"
    assert w.size(0) == "0 B"
    assert w.size(5e15) == "5e+03 TB"


def test_equal_ledgers_share_a_line():
    ledgers = [row(p, i, 0.1 * i) for p in "abc" for i in (1, 2, 3)]
    svg = run_plots.staircase(ledgers, 1.0)
    assert svg.count("<polyline") == 1
    crowd = [row(f"p{p}", i, 0.1 * i) for p in range(40) for i in (1, 2, 3)]
    assert "40 parties" in run_plots.staircase(crowd, 1.0)
    assert "a, b, c" in svg


def test_many_ledgers_become_an_envelope():
    ledgers = [row(f"p{p}", i, 0.01 * i * (p + 1)) for p in range(50) for i in (1, 2, 3)]
    svg = run_plots.staircase(ledgers, 2.0)
    assert svg.count("<polyline") == 2
    assert "1.5  highest party" in svg
    assert "0.75  median party" in svg


def test_infinite_release_is_drawn_at_the_top():
    svg = run_plots.staircase([row("a", 1, 0.5), row("a", 2, math.inf)], 1.0)
    assert "ε = ∞: a" in svg
    assert "inf" not in re.sub("infinite", "", svg)
    assert "nan" not in run_plots.staircase([row("a", 1, math.inf)], math.inf)


def test_bytes_of_many_parties():
    def cost(i):
        return PartyCost(
            name=f"p{i}",
            rows_public=None,
            epsilon=1.0,
            bytes_sent=1000 * i,
            bytes_received=10,
            messages=1,
        )

    assert "<svg" in run_plots.byte_profile([cost(i) for i in range(500)])
    assert "nan" not in run_plots.byte_profile([cost(0), cost(0)])


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("count", [1, 2, 33, 500])
@pytest.mark.parametrize("missing", [True, False])
def test_any_column_can_be_drawn(ordered, count, missing):
    marginal = Marginal(
        column="c",
        kind="k",
        labels=tuple(f"label {i}" for i in range(count)),
        proportions=(1.0, *(0.0,) * (count - 1)),
        ordered=ordered,
        missing=missing,
    )
    for real in (None, marginal):
        svg = table_plots.distribution(marginal, real)
        assert "nan" not in svg
        assert ordered or svg.count("<rect") <= 2 * (table_plots.CATEGORIES + 1)


def test_rare_categories_are_one_bar():
    marginal = Marginal(
        column="c",
        kind="k",
        labels=tuple(f"v{i}" for i in range(20)),
        proportions=(0.05,) * 20,
    )
    assert "12 others" in table_plots.distribution(marginal, None)


def test_pairs_are_those_that_matter():
    names = ("a", "b", "c")
    ours = Association(names=names, values=((1, 0.9, 0.2), (0.9, 1, 0.1), (0.2, 0.1, 1)))
    real = Association(names=names, values=((1, 0.8, 0.6), (0.8, 1, 0.1), (0.6, 0.1, 1)))
    assert table_plots.strongest_pairs(ours, None)[0] == ("a", "b", 0.9, None)
    assert table_plots.strongest_pairs(ours, real)[0] == ("a", "c", 0.2, 0.6)


@pytest.mark.parametrize("width", [2, 24, 25, 70])
def test_heat_maps_of_any_width(width):
    names = tuple(f"c{i}" for i in range(width))
    values = tuple(tuple(1.0 if i == j else 0.3 for j in range(width)) for i in range(width))
    one = Association(names=names, values=values)
    assert table_plots.heat_maps(one, None).count("<svg") == 1
    assert "synthetic − real" in table_plots.heat_maps(one, one, [("c0", "c1")])


LONG_NAMES = ("NumTrades60Ever2DerogPubRec", "NumBank2NatlTradesWHighUtilization", "age")


@pytest.mark.parametrize("width", [3, 24, 60])
def test_names_of_columns_are_whole_and_inside_the_picture(width):
    names = (*LONG_NAMES, *(f"AnotherLongColumn{i:02}" for i in range(width - 3)))
    values = tuple(tuple(0.3 for _ in names) for _ in names)
    one = Association(names=names, values=values)
    for svg in (table_plots.heat_maps(one, None), table_plots.heat_maps(one, one)):
        assert "…" not in svg
        num_maps = svg.count('class="backdrop"')
        for name in names:
            assert svg.count(f">{name}</text>") == 1 + num_maps
        beside = re.findall(r'<text x="([1-9][\d.]*)"[^>]*text-anchor="end">(\w+)</text>', svg)
        rights = {label: float(right) for right, label in beside}
        assert all(rights[name] >= text_width(name) for name in names if name in rights)
        heights = re.findall(r'<rect[^>]*height="([\d.]+)" class="backdrop"', svg)
        assert float(heights[0]) / width >= 10


def test_names_that_no_picture_has_room_for_differ_and_are_shown_whole_by_pointing():
    names = tuple(f"{'very ' * 20}long name {end}" for end in ("one", "two"))
    one = Association(names=names, values=((1, 0.3), (0.3, 1)))
    svg = table_plots.heat_maps(one, None)
    labels = re.findall(r"<title>([^<]*)</title>([^<]*)</text>", svg)
    assert len(set(labels)) == 2
    assert {whole for whole, _ in labels} == set(names)


def test_a_bar_that_dwarfs_all_others_is_cut_off_and_named():
    def drawn(*shares):
        labels = tuple(map(str, range(len(shares))))
        column = Marginal(
            column="x", kind="integer", labels=labels, proportions=shares, ordered=True
        )
        return table_plots.distribution(column, None)

    cut = drawn(0.9, 0.04, 0.06)
    assert cut.count('class="cut"') == 1
    assert "90.0%</text>" in cut
    for shares in ((0.5, 0.3, 0.2), (1.0, 0.0), (1.0,)):
        assert 'class="cut"' not in drawn(*shares)


def test_labels_that_are_cut_can_be_told_apart_and_are_shown_whole():
    labels = tuple(f"Hospital of the district that is {side} of the river" for side in "NS")
    shares = Marginal(column="place", kind="text", labels=labels, proportions=(0.6, 0.4))
    svg = table_plots.distribution(shares, None)
    shown = re.findall(r"<text [^>]*>(?:<title>([^<]*)</title>)?([^<]*)</text>", svg)
    cut = [label for _, label in shown if "…" in label]
    assert len(set(cut)) == 2
    assert {whole for whole, label in shown if "…" in label} == set(labels)
    assert all(len(label) <= 17 for label in cut)


def ages(*proportions, **changes):
    """38 to 40 and 41 to 42, as bins of three years and of two."""
    fields = {
        "column": "age",
        "kind": "integer",
        "labels": ("38 to 40", "41 to 42"),
        "proportions": proportions,
        "ordered": True,
        "edges": (38.0, 41.0, 43.0),
    }
    return Marginal(**{**fields, **changes})


def bars(svg, kind="syn"):
    """Left ends, widths and heights of the bars of a picture."""
    found = re.findall(
        rf'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="([\d.]+)" '
        rf'class="{kind}"',
        svg,
    )
    return [tuple(map(float, bar)) for bar in found]


def test_heights_are_shares_per_year():
    heights = table_plots.densities(ages(0.0764, 0.0471))
    assert [round(height, 4) for height in heights] == [0.0255, 0.0236]


def test_bars_are_as_wide_as_their_bins_and_equal_shares_a_year_are_level():
    svg = table_plots.distribution(ages(0.6, 0.4), None)
    (left, wide, high), (right, narrow, low) = bars(svg)
    assert high == low
    assert wide / narrow == pytest.approx(1.5, abs=0.02)
    assert right == pytest.approx(left + wide, abs=1.2)
    assert "share of rows per unit" in svg
    assert ">38</text>" in svg


def test_a_record_without_edges_has_bars_of_one_width():
    svg = table_plots.distribution(ages(0.6, 0.4, edges=msgspec.UNSET), None)
    (_, wide, high), (_, narrow, low) = bars(svg)
    assert (wide, round(high / low, 2)) == (narrow, 1.5)
    assert "share of rows per bin" in svg


def test_shares_without_a_place_on_the_axis_are_words():
    pay = ages(
        0.9,
        0.05,
        0.05,
        kind="integer",
        labels=("0", "1 to 9", "missing"),
        edges=(0.0, 1.0, 10.0),
        logarithmic=True,
        missing=True,
    )
    svg = table_plots.distribution(pay, pay)
    assert len(bars(svg)) == 1
    assert ">0: 90.0% synthetic, 90.0% real</text>" in svg
    assert ">missing: 5.0% synthetic, 5.0% real</text>" in svg
    assert "logarithmic axis" in svg
    # Plain shares: those of a factor of ten were above 100% for narrow bins.
    assert table_plots.densities(pay) == [0.05]
    assert "share of rows per bin" in svg
    # An axis that is not logarithmic leaves out a 0 by itself, too.
    hours = ages(
        0.85, 0.1, 0.05, kind="integer", labels=("0", "1 to 9", "10 to 19"),
        edges=(0.0, 1.0, 10.0, 20.0),
    )  # fmt: skip
    assert len(table_plots.densities(hours)) == 2
    assert ">0: 85.0% synthetic, 85.0% real</text>" in table_plots.distribution(hours, hours)


def test_parties_beside_a_curve_are_named_whole_or_counted():
    names = ("north", "east", "south")
    svg = run_plots.staircase([row(name, 1, 0.5) for name in names], 1.0)
    assert ">ε = 0.5: all 3 parties</text>" in svg
    alone = run_plots.staircase([row("Hospital of the northern district", 1, 0.5)], 1.0)
    beside = re.findall(r">([^<>]+)</text>", alone)[-2:]
    assert " ".join(beside) == "ε = 0.5: Hospital of the northern district"


def test_a_long_name_of_a_category_is_wrapped():
    labels = ("Married-civ-spouse", "Never-married")
    shares = Marginal(column="status", kind="text", labels=labels, proportions=(0.6, 0.4))
    svg = table_plots.distribution(shares, None)
    assert re.findall(r">([^<>]+)</text>", svg)[:2] == ["Married-civ-", "spouse"]
    assert "…" not in svg


def test_a_single_number_of_a_continuum_has_no_height():
    spike = ages(
        0.3,
        0.5,
        0.2,
        kind="continuous",
        labels=("0 to 1", "1", "1 to 2"),
        edges=(0.0, 1.0, 1.0 + 1e-15, 2.0),
    )
    assert table_plots.densities(spike) == pytest.approx([0.3, 0.2])
    assert ">1: 50.0%</text>" in table_plots.distribution(spike, None)
    same = ages(1.0, kind="continuous", labels=("5",), edges=(5.0, 5.0))
    assert ">5: 100.0%</text>" in table_plots.distribution(same, None)


def test_heights_of_wide_bins_are_per_a_power_of_ten():
    weights = ages(0.5, 0.5, labels=("0 to 46191", "46192 to 92383"), edges=(0.0, 46192.0, 92384.0))
    assert table_plots.densities(weights) == pytest.approx([0.5 / 4.6192] * 2)
    assert "share of rows per 10,000" in table_plots.distribution(weights, None)
    days = ages(0.5, 0.5, kind="datetime", labels=("a", "b"), edges=(18262.0, 18272.0, 18282.0))
    svg = table_plots.distribution(days, None)
    assert "share of rows per 10 days" in svg
    assert ">2020-01-01</text>" in svg


def test_ticks_between_are_round_and_inside():
    assert table_plots.ticks_between(0.5, 16.5, whole=True) == [5, 10, 15]
    assert table_plots.ticks_between(0.5, 2.5, whole=True) == [1, 2]
    assert table_plots.ticks_between(0.0, 1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])


def test_rest_categories_are_folded_once():
    """30 cells of which the last is 23 others: 8 are drawn, and one bar has all the rest."""
    labels = (*(f"v{i}" for i in range(29)), "23 others", "missing")
    column = Marginal(
        column="c",
        kind="categorical",
        labels=labels,
        missing=True,
        others=23,
        proportions=(*(0.03,) * 29, 0.09, 0.04),
    )
    svg = table_plots.distribution(column, column)
    assert re.findall(r">(\d+ others)</text>", svg) == ["45 others"]
    assert "missing" in svg
    few = Marginal(
        column="c", kind="categorical", labels=("a", "3 others"), proportions=(0.2, 0.8), others=3
    )
    assert re.findall(r">(\w+|\d+ others)</text>", table_plots.distribution(few, None)) == [
        "a",
        "3 others",
    ]


def test_ties_are_straight_lines_also_on_a_logarithmic_axis():
    """At a tie from (0, 0) to (1, 1) coins decide: as many are found as are called members."""
    points = run_plots._roc_points([0.0, 1.0], [0.0, 1.0], 1e-3)
    assert points[0] == pytest.approx((1e-3, 1e-3))
    assert len(points) > 10
    assert all(a == pytest.approx(b) for a, b in points)
    steps = run_plots._roc_points([0.0, 0.0, 0.5, 0.5], [0.0, 0.4, 0.4, 1.0], 1e-3)
    assert steps == [(1e-3, 0.4), (0.5, 0.4), (0.5, 1.0)]


def test_pairs_are_drawn_real_beside_synthetic():
    labels = (("a", "b"), ("<x>", "y"))
    real = ((0.5, 0.0), (0.0, 0.5))
    synthetic = ((0.25, 0.25), (0.25, 0.25))
    svg = table_plots.pair_grids(("first", "second"), labels, real, synthetic)
    assert "a, &lt;x&gt;: 50.0% real" in svg
    assert "b, y: 25.0% synthetic" in svg
    assert "<script" not in svg
    assert "differ most" in svg
    levels = re.findall(r'class="h(\d+)"', svg)
    assert levels == ["10", "0", "0", "10", *["7"] * 4]


def test_labels_of_a_pair_are_whole():
    long_labels = ("Married, spouse absent", "Married, spouse in the forces")
    grid = ((0.5, 0.0), (0.0, 0.5))
    svg = table_plots.pair_grids(LONG_NAMES[:2], (long_labels, long_labels), grid, grid)
    assert "…" not in svg
    assert svg.count(f">{long_labels[0]}</text>") == 3


def test_one_party_is_one_party():
    assert "1 party, up to 1 releases" not in run_plots.staircase([row("a", 1, 0.5)], 1.0)
    assert "1 party, up to 1 release each" in run_plots.staircase([row("a", 1, 0.5)], 1.0)
