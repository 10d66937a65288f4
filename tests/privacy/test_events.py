import math
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from siloweave.errors import InputError, LedgerError
from siloweave.privacy import events as ev
from siloweave.privacy.events import (
    Exponential,
    Gaussian,
    Laplace,
    NonPrivate,
    RandomisedResponse,
    SampledSharedGaussian,
    SharedGaussian,
    ThresholdGaussian,
)

EVERY = [
    Gaussian(sigma=3.0, sensitivity=1.0, count=4),
    SharedGaussian(share_sigma=2.0, shares=5, tolerated=2, sensitivity=1.0, dimension=12, count=2),
    Exponential(epsilon=0.25, count=3),
    Laplace(scale=8.0, sensitivity=2.0, count=5),
    NonPrivate(reason="comparison only"),
    ThresholdGaussian(sigma=6.0, sensitivity=1.0, threshold=40, count=2),
    SampledSharedGaussian(8.0, 5, 1, 3.0, 12, 0.25, replace_one=True, count=80),
    RandomisedResponse(epsilon=0.25, count=3),
    ev.SharedCoins((1, 2, 5), 12, 16, 2.0**-40, "run/2/north+south/pairs/0", count=3),
    ev.UpperBound(sigma=4.0, margin=36),
    ev.PaidAhead(total=0.1, escape=2.0**-40, largest_order=16, moved=1),
    ev.UnitThresholdGaussian(sigma=6.0, sensitivity=3.0, threshold=60, rows=3, count=2),
    ev.UnitSharedCoins((1, 2, 4, 8), 64, 16, 2.0**-40, "run/2/pairs/0", count=3, rows=3),
    ev.UnitUpperBound(sigma=4.0, margin=38, rows=3),
]


@pytest.mark.parametrize("event", EVERY, ids=lambda event: type(event).__name__)
def test_an_event_is_an_immutable_value_that_survives_json(event):
    assert ev.decode(ev.encode(event)) == event
    assert hash(ev.decode(ev.encode(event))) == hash(event)
    with pytest.raises(AttributeError):
        event.count = 2


def test_the_bytes_of_events_never_change():
    """Ledgers written by earlier versions hold exactly these lines."""
    written = [
        b'{"type":"gaussian","sigma":3.0,"sensitivity":1.0,"count":4}',
        (
            b'{"type":"shared_gaussian","share_sigma":2.0,"shares":5,"tolerated":2,'
            b'"sensitivity":1.0,"dimension":12,"count":2}'
        ),
        b'{"type":"exponential","epsilon":0.25,"count":3}',
        b'{"type":"laplace","scale":8.0,"sensitivity":2.0,"count":5}',
        b'{"type":"non_private","reason":"comparison only"}',
        b'{"type":"threshold_gaussian","sigma":6.0,"sensitivity":1.0,"threshold":40,"count":2}',
        (
            b'{"type":"sampled_shared_gaussian","share_sigma":8.0,"shares":5,"tolerated":1,'
            b'"sensitivity":3.0,"dimension":12,"sampling_rate":0.25,"replace_one":true,"count":80}'
        ),
        b'{"type":"randomised_response","epsilon":0.25,"count":3}',
        (
            b'{"type":"shared_coins","weights":[1,2,5],"copies":12,"largest_order":16,'
            b'"tail":9.094947017729282e-13,"release":"run/2/north+south/pairs/0","count":3}'
        ),
        b'{"type":"upper_bound","sigma":4.0,"margin":36}',
        (
            b'{"type":"paid_ahead","total":0.1,"escape":9.094947017729282e-13,"largest_order":16,'
            b'"moved":1}'
        ),
        (
            b'{"type":"unit_threshold_gaussian","sigma":6.0,"sensitivity":3.0,"threshold":60,'
            b'"rows":3,"count":2}'
        ),
        (
            b'{"type":"unit_shared_coins","weights":[1,2,4,8],"copies":64,"largest_order":16,'
            b'"tail":9.094947017729282e-13,"release":"run/2/pairs/0","count":3,"rows":3}'
        ),
        b'{"type":"unit_upper_bound","sigma":4.0,"margin":38,"rows":3}',
    ]
    assert [ev.encode(event) for event in EVERY] == written


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"skellam","sigma":1.0}',
        b'{"type":"gaussian","sigma":1.0,"sensitivity":1.0,"discount":0.5}',
        b'{"type":"gaussian","sigma":0.0,"sensitivity":1.0}',
        b'{"type":"gaussian","sigma":1.0,"sensitivity":1.0,"count":0}',
        b'{"type":"gaussian","sigma":"1","sensitivity":1.0}',
        b"[]",
        b"",
    ],
)
def test_what_is_not_known_is_refused(data):
    with pytest.raises(LedgerError, match="version of siloweave"):
        ev.decode(data)


def test_the_prices_are_those_of_the_papers():
    assert Gaussian(sigma=2.0, sensitivity=1.0).rho == 1 / 8
    assert Exponential(epsilon=2.0).rho == 0.5
    assert Laplace(scale=2.0, sensitivity=1.0).rho == 1 / 8
    assert RandomisedResponse(epsilon=2.0).rho == 2.0
    assert NonPrivate(reason="x").rho == math.inf
    alone = SharedGaussian(share_sigma=2.0, shares=3, tolerated=2, sensitivity=1.0, dimension=9)
    assert alone.rho == 1 / 8


def test_shares_that_may_be_missing_are_not_counted():
    fields = {"share_sigma": 4.0, "sensitivity": 1.0, "dimension": 3}
    all_there = SharedGaussian(shares=6, tolerated=3, **fields)
    assert all_there.rho == pytest.approx(1 / (2 * 3 * 16), rel=1e-9)
    assert all_there.sigma_total == pytest.approx(4 * math.sqrt(3))


def test_narrow_shares_cost_extra():
    one = {"share_sigma": 1.0, "shares": 3, "tolerated": 0, "sensitivity": 1.0}
    plain = 1 / (2 * 3)
    small = SharedGaussian(dimension=1, **one).rho
    large = SharedGaussian(dimension=10_000, **one).rho
    assert plain * 1.001 < small < large
    with pytest.raises(InputError, match=r"share_sigma = 0\.99 must be at least 1"):
        SharedGaussian(**{**one, "share_sigma": 0.99}, dimension=1)


NUMBERS = [
    (event, name)
    for event in EVERY
    for name in event.__struct_fields__
    if type(getattr(event, name)) in (int, float)
]


@pytest.mark.parametrize(("event", "name"), NUMBERS, ids=lambda one: getattr(one, "tag", str(one)))
def test_no_number_of_an_event_may_be_negative_or_no_number(event, name):
    assert {type(one) for one in EVERY} == {*get_args(ev.Event)}
    whole = isinstance(getattr(event, name), int)
    for bad in [-1] if whole else [0.0, -1.0, math.inf, math.nan]:
        with pytest.raises(InputError, match=rf"{name} = {bad}\b"):
            replace(event, **{name: bad})


@pytest.mark.parametrize("tolerated", [-1, 3, 4])
def test_at_least_one_share_has_to_remain(tolerated):
    with pytest.raises(InputError, match=f"tolerated = {tolerated}"):
        SharedGaussian(share_sigma=2.0, shares=3, tolerated=tolerated, sensitivity=1.0, dimension=1)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_values_out_of_bounds_are_refused_by_name(bad):
    with pytest.raises(InputError, match=f"sigma = {bad}"):
        Gaussian(sigma=bad, sensitivity=1.0)
    with pytest.raises(InputError, match=f"epsilon = {bad}"):
        Exponential(epsilon=bad)
    with pytest.raises(InputError, match=f"scale = {bad}"):
        Laplace(scale=bad, sensitivity=1.0)
    with pytest.raises(InputError, match="reason"):
        NonPrivate(reason="")
    with pytest.raises(InputError, match=f"sigma = {bad}"):
        ThresholdGaussian(sigma=bad, sensitivity=1.0, threshold=9)
    with pytest.raises(InputError, match=f"share_sigma = {bad}"):
        SampledSharedGaussian(bad, 5, 1, 3.0, 12, 0.5)
    with pytest.raises(InputError, match=f"sampling_rate = {bad}"):
        SampledSharedGaussian(8.0, 5, 1, 3.0, 12, bad)
    with pytest.raises(InputError, match=r"sampling_rate = 1\.5 must be at most 1"):
        SampledSharedGaussian(8.0, 5, 1, 3.0, 12, 1.5)


def test_a_threshold_that_names_single_rows_is_refused():
    with pytest.raises(InputError, match="threshold = 1 must be at least 2"):
        ThresholdGaussian(sigma=3.0, sensitivity=1.0, threshold=1)


def test_only_thresholds_bounds_and_coins_escape_their_zcdp():
    escaping = [type(event) for event in EVERY if event.delta > 0]
    assert escaping == [
        ThresholdGaussian, ev.SharedCoins, ev.UpperBound, ev.PaidAhead,
        ev.UnitThresholdGaussian, ev.UnitSharedCoins, ev.UnitUpperBound,
    ]  # fmt: skip
    event = ThresholdGaussian(sigma=2.0, sensitivity=1.0, threshold=9)
    assert event.rho == 1 / 8
    assert event.pure == math.inf


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.5, 7.0])
@pytest.mark.parametrize("threshold", [2, 3, 8, 30])
def test_the_escape_is_at_least_the_exact_tail_of_the_noise(sigma, threshold):
    reach = range(-400, 401)
    masses = {k: math.exp(-(k**2) / (2 * sigma**2)) for k in reach}
    exact = math.fsum(masses[k] for k in reach if 1 + k >= threshold) / math.fsum(masses.values())
    bound = ThresholdGaussian(sigma=sigma, sensitivity=1.0, threshold=threshold).delta
    assert exact <= bound
    tight = ThresholdGaussian(sigma=sigma, sensitivity=1.0, threshold=threshold + 1)
    assert tight.delta <= exact or exact < 1e-300


def partitions(total, most=None):
    """All ways to write a number as a sum of numbers that fall."""
    if total == 0:
        yield ()
    for first in range(min(total, most or total), 0, -1):
        yield from ((first, *rest) for rest in partitions(total - first, first))


@pytest.mark.parametrize("rows", [1, 2, 5, 8])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.5, 7.0, 40.0])
@pytest.mark.parametrize("beyond", [1, 2, 7, 60])
def test_the_escape_of_a_person_covers_every_way_to_spread_her_rows_over_new_values(
    rows, sigma, beyond
):
    threshold = rows + beyond
    reach = range(-1000, 1001)
    masses = {k: math.exp(-(k**2) / (2 * sigma**2)) for k in reach}
    whole = math.fsum(masses.values())
    named = [
        math.fsum(masses[k] for k in reach if a + k >= threshold) / whole for a in range(rows + 1)
    ]
    worst = max(math.fsum(named[a] for a in spread) for spread in partitions(rows))
    bound = ev.UnitThresholdGaussian(sigma, float(rows), threshold, rows)
    assert min(worst, 1.0) <= bound.delta
    higher = ev.UnitThresholdGaussian(sigma, float(rows), threshold + 1, rows).delta
    assert higher <= 2 * worst or worst < 1e-300
    if rows == 1:
        assert bound.delta == pytest.approx(ThresholdGaussian(sigma, 1.0, threshold).delta)


def test_a_person_alone_may_not_pass_a_threshold_or_a_bound():
    with pytest.raises(InputError, match="threshold = 5 must be above rows = 5"):
        ev.UnitThresholdGaussian(sigma=3.0, sensitivity=5.0, threshold=5, rows=5)
    with pytest.raises(InputError, match="rows = 0 must be at least 1"):
        ev.UnitThresholdGaussian(sigma=3.0, sensitivity=5.0, threshold=5, rows=0)
    with pytest.raises(InputError, match=r"margin = 11 must be at least 8 sigma \+ rows - 1 = 12"):
        ev.UnitUpperBound(sigma=1.0, margin=11, rows=5)


def test_a_threshold_far_away_still_has_an_escape():
    assert ThresholdGaussian(sigma=1.0, sensitivity=1.0, threshold=10**6).delta > 0


def test_the_guide_to_the_ledger_has_every_event():
    guide = (Path(__file__).parents[2] / "docs/guides/reading-the-ledger.md").read_text("utf-8")
    tags = [kind.__struct_config__.tag for kind in get_args(ev.Event)]
    assert [tag for tag in tags if f"| `{tag}` |" not in guide] == []
