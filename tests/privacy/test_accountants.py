import itertools
import math

import dp_accounting as dpa
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from siloweave.errors import InputError, LedgerError
from siloweave.privacy import accountants as ac
from siloweave.privacy import events as ev
from siloweave.privacy.events import (
    Exponential,
    Gaussian,
    Laplace,
    NonPrivate,
    SampledSharedGaussian,
    SharedGaussian,
    ThresholdGaussian,
)
from siloweave.privacy.ledger import Ledger
from tests.privacy.composed import composed, translated

SINGLE = [
    Gaussian(sigma=7.3, sensitivity=1.0),
    SharedGaussian(share_sigma=1.2, shares=4, tolerated=1, sensitivity=1.4, dimension=40),
    Exponential(epsilon=0.1),
    Laplace(scale=9.1, sensitivity=1.0),
    Laplace(scale=9.1, sensitivity=1.5),
    ThresholdGaussian(sigma=7.3, sensitivity=1.0, threshold=46),
    SampledSharedGaussian(130.0, 1, 0, 100.0, 1, 0.02),
    ev.SharedCoins((1, 2, 5), 12, 16, 2.0**-40, "r"),
    NonPrivate(reason="test"),
]
READINGS = {
    "epsilon": lambda events: ac.epsilon(events, 1e-6),
    "rho": ac.rho,
    "replayed": lambda events: ledger_of(events).epsilon(1e-6),
}


def named(event):
    return type(event).__name__


def ledger_of(events):
    ledger = Ledger("test")
    for number, event in enumerate(events):
        ledger.charge(event, run="r", step=str(number), what="x", to="y")
    return ledger


def exact_conversion(rho, delta):
    """Canonne, Kamath and Steinke 2020, Corollary 13, minimised without a grid."""

    def epsilon(log_excess):
        alpha = 1 + math.exp(log_excess)
        gain = math.log1p(-1 / alpha) - math.log(delta * alpha) / (alpha - 1)
        return rho * alpha + gain

    grid = np.linspace(-5, 16, 2001)
    best = grid[int(np.argmin([epsilon(x) for x in grid]))]
    found = minimize_scalar(epsilon, bounds=(best - 0.02, best + 0.02), method="bounded")
    return max(0.0, found.fun)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("event", SINGLE, ids=named)
def test_loop_count_and_replayed_ledger_agree(event, reading):
    read = READINGS[reading]
    loop = read([event] * 12)
    if not isinstance(event, NonPrivate):
        assert read([type(event)(**{**_fields(event), "count": 12})]) == loop
        assert read([type(event)(**{**_fields(event), "count": c}) for c in (7, 1, 4)]) == loop
    events = ledger_of([event] * 12).events
    assert read(events) == loop
    assert read([ev.decode(ev.encode(event)) for event in events]) == loop


def _fields(event):
    return {name: getattr(event, name) for name in event.__struct_fields__}


@pytest.mark.parametrize(
    "accountant", [dpa.rdp.RdpAccountant, dpa.pld.PLDAccountant], ids=["rdp", "pld"]
)
@pytest.mark.parametrize("event", SINGLE, ids=named)
def test_events_for_dp_accounting_fold_as_well(event, accountant):
    def read(events):
        fresh = accountant()
        fresh.compose(composed(events))
        return fresh.get_epsilon(1e-6)

    if not accountant().supports(translated(event)):
        with pytest.raises(dpa.UnsupportedEventError):
            read([event])
        return
    loop = read([event] * 5)
    if not isinstance(event, NonPrivate):
        assert read([type(event)(**{**_fields(event), "count": 5})]) == pytest.approx(loop, 1e-6)
    assert ac.epsilon([event] * 5, 1e-6) <= loop * 1.001


@given(st.permutations(SINGLE[:-1] * 2))
def test_the_order_of_events_does_not_matter(events):
    assert ac.rho(events) == ac.rho(SINGLE[:-1] * 2)
    assert ac.epsilon(events, 1e-7) == ac.epsilon(SINGLE[:-1] * 2, 1e-7)


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9, 1e-12])
def test_the_grid_of_orders_loses_next_to_nothing(delta):
    for rho in np.geomspace(1e-7, 1e3, 41):
        exact = exact_conversion(float(rho), delta)
        ours = ac.epsilon_of_rho(float(rho), delta)
        assert exact * (1 - 1e-12) <= ours
        assert ours <= exact * 1.001 + 2e-5


def test_known_values():
    assert ac.epsilon([], 1e-6) == 0.0
    assert ac.rho([]) == 0.0
    assert ac.epsilon([NonPrivate(reason="x"), SINGLE[0]], 1e-6) == math.inf
    assert ac.rho([NonPrivate(reason="x")]) == math.inf
    rho = 0.0306
    sigma = 1 / math.sqrt(2 * rho)
    assert ac.epsilon([Gaussian(sigma=sigma, sensitivity=1.0)], 1e-5) == pytest.approx(1.0, 2e-3)


def test_a_pure_ledger_reads_no_more_than_the_sum():
    assert ac.epsilon([Exponential(epsilon=0.5)], 1e-6) == 0.5
    assert ac.epsilon([Exponential(epsilon=0.1)] * 3, 1e-12) == pytest.approx(0.3)
    assert ac.epsilon([Laplace(scale=0.01, sensitivity=1.0)], 1e-6) == 100.0


def exact_delta_of_discrete_laplace(epsilon, releases, at):
    """With sensitivity 1 the loss of one release is +epsilon or -epsilon: a random walk."""
    up = np.arange(releases + 1)
    choose = gammaln(releases + 1) - gammaln(up + 1) - gammaln(releases - up + 1)
    log_p = up * epsilon - releases * np.logaddexp(0, epsilon) + choose
    loss = (2 * up - releases) * epsilon
    over = loss > at
    return float(np.sum(np.exp(log_p[over]) * -np.expm1(at - loss[over])))


@pytest.mark.parametrize(("scale", "releases"), [(1.0, 1), (2.0, 5), (10.0, 50), (50.0, 400)])
def test_discrete_laplace_is_read_exactly_and_never_as_continuous(scale, releases):
    ours = ac.epsilon([Laplace(scale=scale, sensitivity=1.0, count=releases)], 1e-6)
    assert exact_delta_of_discrete_laplace(1 / scale, releases, ours) <= 1e-6 * (1 + 1e-9)
    assert exact_delta_of_discrete_laplace(1 / scale, releases, ours * 0.99 - 0.002) > 1e-6
    continuous = dpa.pld.PLDAccountant()
    continuous.compose(dpa.LaplaceDpEvent(scale), releases)
    assert continuous.get_epsilon(1e-6) < ours + 1e-3


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_the_reading_of_a_discrete_gaussian_holds(sigma):
    x = np.arange(-200, 201)
    p = np.exp(-(x**2) / (2 * sigma**2))
    p /= p.sum()
    q = np.roll(p, 1)
    ours = ac.epsilon([Gaussian(sigma=sigma, sensitivity=1.0)], 1e-5)
    assert np.maximum(p - math.exp(ours) * q, 0).sum() <= 1e-5


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_rounding_goes_up_and_keeps_seven_digits(value):
    rounded = ac.round_up(value)
    assert value * (1 - 1e-11) <= rounded <= value * (1 + 1.01e-6)
    assert ac.round_up(rounded) == rounded
    assert len(f"{rounded:.12g}".replace(".", "").split("e")[0].strip("0")) <= ac.DIGITS


def test_sums_of_floats_do_not_spill_over():
    assert ac.epsilon([Laplace(scale=10.0, sensitivity=1.0)] * 10, 1e-300) == 1.0
    assert ac.epsilon([Exponential(epsilon=0.1)] * 10, 1e-300) == 1.0


def test_a_tally_is_cheap_to_copy_and_agrees():
    tally = ac.Tally()
    for event in itertools.islice(itertools.cycle(SINGLE[:-1]), 30):
        twin = tally.copy()
        twin.add(event)
        tally.add(event)
        assert twin.epsilon(1e-6) == tally.epsilon(1e-6)
    assert ac.Tally(itertools.islice(itertools.cycle(SINGLE[:-1]), 30)).rho == tally.rho


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_an_impossible_delta_is_refused(delta):
    with pytest.raises(InputError, match=f"delta = {delta}"):
        ac.epsilon([SINGLE[0]], delta)


def test_an_unknown_event_is_refused_and_not_counted():
    tally = ac.Tally([SINGLE[0]])
    before = tally.rho
    with pytest.raises(LedgerError, match="unknown"):
        tally.add("gaussian")
    assert tally.rho == before


def test_probabilities_of_escaping_add_up_and_come_out_of_delta():
    event = ThresholdGaussian(sigma=7.3, sensitivity=1.0, threshold=36)
    escape = event.delta
    tally = ac.Tally([event] * 3)
    assert 3 * escape <= tally.delta <= 3 * escape * (1 + 1e-12)
    assert tally.copy().delta == tally.delta
    assert tally.epsilon(1e-5) == ac.epsilon_of_rho(tally.rho, 1e-5 - tally.delta)
    assert tally.epsilon(1e-5) > ac.Tally([Gaussian(sigma=7.3, sensitivity=1.0)] * 3).epsilon(1e-5)
    assert ac.Tally([event, Exponential(epsilon=0.1)]).epsilon(tally.delta) < math.inf
    assert tally.epsilon(tally.delta) == math.inf


def test_an_escape_forbids_the_pure_reading():
    """Pure epsilons would be far less than zCDP at a tiny delta."""
    cheap = [Exponential(epsilon=1e-3)]
    far = ThresholdGaussian(sigma=1e4, sensitivity=1.0, threshold=200_000)
    assert ac.epsilon(cheap, 1e-12) <= 1e-3
    assert ac.epsilon([*cheap, far], 1e-12) == ac.epsilon_of_rho(ac.rho([*cheap, far]), 1e-12)


# A unit with rows at several parties


SUMS = [
    ev.SharedGaussian(40.0, 4, 1, 5.0, 16, 3),
    ev.SharedGaussian(25.0, 4, 1, 5.0, 90),
]


@pytest.mark.parametrize("parties", [2, 3])
def test_masked_sums_at_several_parties_cost_their_sensitivities_times_as_many(parties):
    far = [msgspec.structs.replace(one, sensitivity=5.0 * parties) for one in SUMS]
    found = ac.epsilon_at_parties([SUMS] * 4, parties, 1e-6)
    assert found == pytest.approx(ac.epsilon(far, 1e-6), rel=1e-6)
    assert ac.epsilon(SUMS, 1e-6) * parties < found  # more than so many times the epsilon
    assert ac.epsilon_at_parties([SUMS] * 4, 1, 1e-6) == ac.epsilon(SUMS, 1e-6)
    assert ac.epsilon_at_parties([SUMS] * parties, 99, 1e-6) == found


def test_what_parties_with_other_sums_release_is_covered():
    """Every pair of three ledgers: sums move by both, what one releases alone adds its own."""
    alone = [ev.Gaussian(30.0, 5.0), ev.Exponential(0.1, 4)]
    joint = [ev.SharedGaussian(s, 3, 1, 5.0, 16) for s in (20.0, 60.0, 35.0)]
    ledgers = [[joint[0], joint[2]], [joint[0], joint[1], *alone], [joint[1], joint[2]]]
    found = ac.epsilon_at_parties(ledgers, 2, 1e-6)
    for one, two in ((0, 1), (0, 2), (1, 2)):
        both = []
        for release in joint:
            times = (release in ledgers[one]) + (release in ledgers[two])
            if times:
                both.append(msgspec.structs.replace(release, sensitivity=5.0 * times))
        both += alone * (1 in (one, two))
        assert ac.epsilon(both, 1e-6) <= found


def test_lists_of_values_at_several_parties_escape_as_often():
    event = ev.UnitThresholdGaussian(30.0, 5.0, 200, 5)
    delta = 1e-6
    found = ac.epsilon_at_parties([[event]] * 3, 2, delta)
    assert found == pytest.approx(ac.epsilon_of_rho(4 * event.rho, delta - 2 * event.delta))
    assert ac.epsilon_at_parties([[event]] * 3, 2, 1.9 * event.delta) == math.inf
    assert ac.epsilon_at_parties([[ev.NonPrivate("x")], [event]], 2, delta) == math.inf


def test_steps_on_samples_at_several_parties_are_priced_one_after_the_other():
    """By group privacy of the reading itself, at the smaller delta that this takes."""
    step = SampledSharedGaussian(300.0, 5, 1, 400.0, 10, 0.02, False, 40)
    found = ac.epsilon_at_parties([[step]] * 2, 2, 1e-5)
    once = ac.epsilon([step], 1e-5)
    assert found > 2 * once
    part = next(d for d in np.geomspace(1e-5, 1e-12, 4000) if group(step, d) <= 1e-5)
    assert found == pytest.approx(2 * ac.epsilon([step], float(part)), rel=0.01)
    assert ac.epsilon_at_parties([[step]] * 2, 2, 1e-5) < math.inf


def group(step, delta):
    epsilon = ac.epsilon([step], float(delta))
    return delta * math.expm1(2 * epsilon) / math.expm1(epsilon)
