import math
import re

import numpy as np
import pytest

from siloweave.progress import duration
from siloweave.report import plots
from siloweave.report import words as w
from siloweave.report.record import Association, LedgerRow, Marginal, PartyCost


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
    svg = plots.staircase(ledgers, 1.0)
    assert svg.count("<polyline") == 1
    crowd = [row(f"p{p}", i, 0.1 * i) for p in range(40) for i in (1, 2, 3)]
    assert "40 parties" in plots.staircase(crowd, 1.0)
    assert "a, b, c" in svg


def test_many_ledgers_become_an_envelope():
    ledgers = [row(f"p{p}", i, 0.01 * i * (p + 1)) for p in range(50) for i in (1, 2, 3)]
    svg = plots.staircase(ledgers, 2.0)
    assert svg.count("<polyline") == 2
    assert "1.5  highest party" in svg
    assert "0.75  median party" in svg


def test_infinite_release_is_drawn_at_the_top():
    svg = plots.staircase([row("a", 1, 0.5), row("a", 2, math.inf)], 1.0)
    assert "ε = ∞: a" in svg
    assert "inf" not in re.sub("infinite", "", svg)
    assert "nan" not in plots.staircase([row("a", 1, math.inf)], math.inf)


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

    assert "<svg" in plots.byte_profile([cost(i) for i in range(500)])
    assert "nan" not in plots.byte_profile([cost(0), cost(0)])


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
        svg = plots.distribution(marginal, real)
        assert "nan" not in svg
        assert ordered or svg.count("<rect") <= 2 * (plots.CATEGORIES + 1)


def test_rare_categories_are_one_bar():
    marginal = Marginal(
        column="c",
        kind="k",
        labels=tuple(f"v{i}" for i in range(20)),
        proportions=(0.05,) * 20,
    )
    assert "12 others" in plots.distribution(marginal, None)


def test_pairs_are_those_that_matter():
    names = ("a", "b", "c")
    ours = Association(names=names, values=((1, 0.9, 0.2), (0.9, 1, 0.1), (0.2, 0.1, 1)))
    real = Association(names=names, values=((1, 0.8, 0.6), (0.8, 1, 0.1), (0.6, 0.1, 1)))
    assert plots.strongest_pairs(ours, None)[0] == ("a", "b", 0.9, None)
    assert plots.strongest_pairs(ours, real)[0] == ("a", "c", 0.2, 0.6)


@pytest.mark.parametrize("width", [2, 24, 25, 70])
def test_heat_maps_of_any_width(width):
    names = tuple(f"c{i}" for i in range(width))
    values = tuple(tuple(1.0 if i == j else 0.3 for j in range(width)) for i in range(width))
    one = Association(names=names, values=values)
    assert plots.heat_maps(one, None).count("<svg") == 1
    assert "synthetic − real" in plots.heat_maps(one, one, [("c0", "c1")])


def test_a_bar_that_dwarfs_all_others_is_cut_off_and_named():
    def drawn(*shares):
        labels = tuple(map(str, range(len(shares))))
        column = Marginal(
            column="x", kind="integer", labels=labels, proportions=shares, ordered=True
        )
        return plots.distribution(column, None)

    cut = drawn(0.9, 0.04, 0.06)
    assert cut.count('class="cut"') == 1
    assert "90.0%</text>" in cut
    for shares in ((0.5, 0.3, 0.2), (1.0, 0.0), (1.0,)):
        assert 'class="cut"' not in drawn(*shares)


def test_labels_that_are_cut_can_be_told_apart_and_are_shown_whole():
    labels = ("Hospital of the northern district", "Hospital of the southern district")
    shares = Marginal(column="place", kind="text", labels=labels, proportions=(0.6, 0.4))
    svg = plots.distribution(shares, None)
    shown = re.findall(r"<text [^>]*>(?:<title>([^<]*)</title>)?([^<]*)</text>", svg)
    cut = [label for _, label in shown if "…" in label]
    assert len(set(cut)) == 2
    assert {whole for whole, label in shown if "…" in label} == set(labels)
    assert all(len(label) <= 17 for label in cut)
