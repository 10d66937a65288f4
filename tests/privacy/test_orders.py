"""One Renyi order for a training whose noise follows from a noisy number of rows."""

import math
from inspect import signature

import numpy as np
import pytest

from siloweave.errors import BudgetError, InputError, LedgerError
from siloweave.privacy import accountants as ac
from siloweave.privacy import events as ev
from siloweave.privacy import sampled
from siloweave.privacy.budget import Budget, Relation, falls_to, rho_for
from siloweave.privacy.events import (
    Exponential,
    Gaussian,
    SampledSharedGaussian,
    SharedGaussian,
    ThresholdGaussian,
)
from siloweave.privacy.ledger import Ledger
from siloweave.privacy.shared_steps import moved, order_for, plan_steps
from tests.guarantees.exact import float_masses
from tests.privacy.left import left

DELTA = 1e-5
OTHERS = [Gaussian(sigma=40.0, sensitivity=1.0), Exponential(epsilon=0.02, count=9)]


def masked(order=None, count=1, **more):
    said = {} if order is None else {"order": order}
    return SampledSharedGaussian(300.0, 5, 1, 400.0, 10, 0.05, count=count, **said, **more)


def alone(order=None, count=1, *, multiplier=1.2, rate=0.02, **more):
    """Steps of one party."""
    said = {} if order is None else {"order": order}
    return SampledSharedGaussian(1e4 * multiplier, 1, 0, 1e4, 1, rate, count=count, **said, **more)


# Why: the order may not be chosen afterwards


def toy(order_of, sigma, epsilon, delta):
    """A noisy count, then a mechanism that has just the divergence left at the order of the count.

    Its rare outcome has the loss at which the bound on delta is sharp. Returns the true delta at
    epsilon, and the largest epsilon that is read when every count brings its own order.
    """
    reach = int(12 * sigma)
    y = np.arange(-reach, reach + 1)
    here = float_masses(sigma, reach)
    loss = (2 * y + 1) / (2 * sigma**2)  # of the count, against noise that is moved by one
    rho, true, read = 1 / (2 * sigma**2), 0.0, 0.0
    for place, own in zip(loss, here, strict=True):
        order = order_of(place)
        far = epsilon + math.log(order / (order - 1)) - place
        left = (order - 1) * (epsilon - order * rho) - _conversion(order, delta)
        p = math.exp(left - (order - 1) * far) - math.exp(-(order - 1) * far)
        if not 0 < p < 1 or far <= 0:
            continue
        q = p * math.exp(-far)
        moment = p * math.exp((order - 1) * far) + (1 - p) ** order * (1 - q) ** (1 - order)
        spent = order * rho + math.log(moment) / (order - 1)
        read = max(read, spent + _conversion(order, delta) / (order - 1))
        true += own * max(0.0, p - math.exp(epsilon - place) * q)
        true += own * max(0.0, (1 - p) - math.exp(epsilon - place) * (1 - q))
    return true, read


def _conversion(order, delta):
    """(order - 1) times what the conversion adds to a divergence."""
    return (order - 1) * math.log1p(-1 / order) - math.log(delta * order)


def test_an_order_chosen_after_the_count_gives_less_than_the_truth():
    """The flaw, and the mend: at any one order the same mechanisms keep to delta."""
    sigma, epsilon, delta = 4.0, 6.0, 1e-4
    orders, rho = range(3, 40), 1 / (2 * sigma**2)

    def afterwards(loss):
        return max(orders, key=lambda a: (a - 1) * loss - a * (a - 1) * rho)

    true, read = toy(afterwards, sigma, epsilon, delta)
    assert read <= epsilon * (1 + 1e-9)  # every single reading is within the budget
    assert true > 1.7 * delta  # and the whole is not
    for order in (3, 8, 12):
        true, read = toy(lambda _, order=order: order, sigma, epsilon, delta)
        assert read <= epsilon * (1 + 1e-9)
        assert 0.5 * delta < true <= delta * (1 + 1e-9)  # the toy is as bad as one order allows


def test_older_ledgers_whose_order_moved_as_far_as_was_allowed_keep_to_the_factor():
    """Why a reading at one order still divides delta: it reads those ledgers too."""
    sigma, epsilon, delta = 40.0, 3.0, 1e-4
    apart = math.floor((sampled.CHOICE - 1) * sigma * math.sqrt(2 * math.pi))
    worst = 0.0
    for border in np.linspace(-0.01, 0.05, 13):
        for down in (False, True):
            true, read = toy(
                lambda loss, b=border, d=down: 6 + apart * ((loss > b) ^ d), sigma, epsilon, delta
            )
            assert read <= epsilon * (1 + 1e-9)
            worst = max(worst, true / delta)
    assert 1.05 < worst <= sampled.CHOICE


# Which order


def plan(epsilon, rho_share=0.01, delta=DELTA):
    budget = Budget(epsilon, delta)
    sigma = math.sqrt(1 / (2 * rho_share * rho_for(budget)))
    return budget, [Gaussian(sigma, 1.0), Gaussian(math.sqrt(5 / rho_for(budget)), 1.0)]


def test_the_order_follows_from_budget_and_steps():
    """And from what is paid before them; it takes nothing that was released."""
    budget, counts = plan(1.0)
    facts = {"steps": 500, "others": counts}
    orders = [
        order_for(budget, **facts),
        order_for(Budget(8.0, DELTA), **facts),
        order_for(budget, **(facts | {"steps": 2})),
        order_for(Budget(1.0, 1e-9), **facts),
    ]
    assert len(set(orders)) == 4
    assert set(signature(order_for).parameters) == {"budget", "steps", "others"}


def multiplier(budget, order, *, rate, steps, others):
    """The least noise with which the steps cost the budget, read at this order; None for none."""

    def cost(noise):
        one = alone(order, steps, multiplier=noise, rate=rate)
        return ac.epsilon([*others, one], budget.delta)

    return falls_to(cost, budget.epsilon)


def free_step(order):
    """A step that shows nothing, so that only the reading's order counts."""
    return alone(order, multiplier=1e6, rate=0.01)


@pytest.mark.parametrize(("epsilon", "most"), [(0.5, 1.01), (1.0, 1.01), (3.0, 1.05)])
@pytest.mark.parametrize("steps", [400, 1000])
def test_the_order_is_that_of_the_least_noise_or_near_it(epsilon, most, steps):
    """For a batch of 1024 of up to 60,000 rows; tables of very many rows pay more."""
    budget, counts = plan(epsilon)
    for rate in (0.0171, 0.0314, 0.3, 1.0):
        facts = {"rate": rate, "steps": steps, "others": counts}
        order = order_for(budget, steps=steps, others=counts)
        fitting = [a for a in range(2, 48) if ac.epsilon([*counts, free_step(a)], DELTA) < epsilon]
        around = [a for a in fitting if abs(a - order) in (0, 1, 2, 3, 6)]
        assert len(around) > 2
        least = min(multiplier(budget, a, **facts) for a in around)
        assert multiplier(budget, order, **facts) <= least * (most + 0.001)


def test_replaced_rows_need_no_order_and_looks_that_cost_all_leave_one():
    budget, counts = plan(1.0)
    replaced = Budget(1.0, DELTA, relation=Relation.REPLACE_ONE)
    assert order_for(replaced, steps=10, others=counts) is None
    spent = [Gaussian(1.0, 1.0)]
    order = order_for(budget, steps=10, others=spent)
    assert multiplier(budget, order, rate=0.1, steps=10, others=spent) is None
    with pytest.raises(InputError, match="order_for: steps = 0"):
        order_for(budget, steps=0, others=counts)


# The reading


@pytest.mark.parametrize("make", [masked, alone])
@pytest.mark.parametrize("others", [[], OTHERS], ids=["alone", "beside others"])
def test_one_order_is_never_read_below_all_and_the_best_is_near(make, others):
    free = ac.epsilon([make(count=400), *others], DELTA)
    fixed = [ac.epsilon([make(order, 400), *others], DELTA) for order in range(2, 60)]
    assert min(fixed) >= free
    assert min(fixed) <= free * 1.2
    assert max(fixed) > 2 * free
    whole = ac.epsilon([make(14, 400), *others], DELTA)
    for part in ([make(14, c) for c in (150, 249, 1)], [make(14, 1)] * 400):
        assert ac.epsilon([*others, *part], DELTA) == whole
    assert ac.epsilon([make(14, 399), *others], DELTA) < whole
    far = ThresholdGaussian(sigma=30.0, sensitivity=1.0, threshold=180)
    assert ac.epsilon([make(14, 400), *others, far], DELTA) > whole


@pytest.mark.parametrize("order", [2, 5, 13, 64, 300])
def test_it_is_the_sum_of_divergences_at_that_order(order):
    import dp_accounting as dpa

    accountant = dpa.rdp.RdpAccountant([order])
    accountant.compose(dpa.ZCDpEvent(0.002))
    step = dpa.PoissonSampledDpEvent(0.02, dpa.GaussianDpEvent(2.0))
    accountant.compose(step, 100)
    steps = alone(order, 100, multiplier=2.0)
    ours = ac.epsilon([Gaussian(math.sqrt(250), 1.0), steps], DELTA)
    assert ours == pytest.approx(accountant.get_epsilon(DELTA / sampled.CHOICE), rel=1e-6)


def test_of_several_orders_the_dearest_counts():
    both = ac.epsilon([alone(8, 100), masked(20, 100)], DELTA)
    alike = [ac.epsilon([alone(a, 100), masked(a, 100)], DELTA) for a in (8, 20)]
    assert both == max(alike)
    assert ac.epsilon([alone(8, 100), masked(None, 100)], DELTA) == alike[0]
    replaced = masked(None, 1, replace_one=True)
    rho = replaced.rho
    with_it = ac.epsilon([alone(8, 100), replaced], DELTA)
    assert with_it == ac.epsilon([alone(8, 100), Gaussian(math.sqrt(0.5 / rho), 1.0)], DELTA)


@pytest.mark.parametrize("order", [1, 0, 2049])
def test_orders_out_of_bounds_and_for_replaced_rows_are_refused(order):
    for make in (masked, alone):
        with pytest.raises(InputError, match=f"order = {order} must be"):
            make(order)
        with pytest.raises(InputError, match="no meaning"):
            make(8, replace_one=True)


# Ledgers


def test_the_order_is_in_the_ledger_and_old_lines_read_as_before(tmp_path):
    written = ev.encode(SampledSharedGaussian(8.0, 5, 1, 3.0, 72, 0.25, count=80, order=12))
    assert written == (
        b'{"type":"sampled_shared_gaussian","share_sigma":8.0,"shares":5,"tolerated":1,'
        b'"sensitivity":3.0,"dimension":72,"sampling_rate":0.25,"replace_one":false,"count":80,'
        b'"order":12}'
    )
    old = written.replace(b',"order":12', b"")
    assert ev.order_of(ev.decode(old)) is None
    assert ev.encode(ev.decode(old)) == old
    for wrong in (b"1.5", b"null", b"1", b'"8"'):
        with pytest.raises(LedgerError):
            ev.decode(written.replace(b"12", wrong))
    steps = [alone(12, 30), masked(12, 20), alone(None, 10), *OTHERS]
    with Ledger("north", path=tmp_path / "ledger") as ledger:
        for number, event in enumerate(steps):
            ledger.charge(event, run="r", step=str(number), what="w", to="c")
        spent = ledger.epsilon(DELTA)
    again = Ledger.read(tmp_path / "ledger")
    assert list(again.events) == steps
    assert again.epsilon(DELTA) == spent == ac.epsilon(steps, DELTA)


def test_lists_without_an_order_cost_what_they_did():
    """Readings made before there were orders."""
    before = [1.294508, 11.47894]
    shared = SampledSharedGaussian(300.0, 5, 1, 400.0, 10, 0.05, count=40)
    replaced = alone(None, 100, multiplier=0.8, replace_one=True)
    assert [ac.epsilon(x, DELTA) for x in ([shared, *OTHERS], [shared, replaced])] == before


def test_a_ledger_stops_at_the_reading_of_the_order():
    """Also where the zCDP of all events alone would be within the limit."""
    limit = Budget(2.0, DELTA)
    cheap = alone(3, multiplier=50.0, rate=0.01)  # of an order that fits no such budget
    ledger = Ledger("north", limit=limit)
    assert ac.rho([cheap]) < rho_for(limit) / 100
    with pytest.raises(BudgetError, match="Nothing was released"):
        ledger.charge(cheap, run="r", step="0", what="w", to="c")
    ledger.charge(alone(10), run="r", step="1", what="w", to="c")
    rest = left(ledger)
    assert 0 < rest < rho_for(limit)
    with pytest.raises(BudgetError, match="Nothing was released"):
        ledger.charge(
            Gaussian(0.99 / math.sqrt(2 * rest), 1.0), run="r", step="2", what="w", to="c"
        )
    ledger.charge(Gaussian(1 / math.sqrt(2 * rest), 1.0), run="r", step="3", what="w", to="c")
    assert 1.99 < ledger.epsilon() <= 2.0


# Plans


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_every_noisy_number_of_rows_gives_a_plan_within_the_budget(epsilon):
    budget = Budget(epsilon, DELTA)
    unit = math.sqrt(16)
    counted = SharedGaussian(unit / math.sqrt(0.8 * rho_for(budget)), 5, 1, unit, 300)
    for rows in (1, 150, 900, 4_000, 20_000, 100_000):
        rate = min(1.0, 200 / rows)
        order = order_for(budget, steps=100, others=[counted])
        facts = {"shares": 5, "tolerated": 1, "dimension": 900, "others": [counted]}
        found = plan_steps(budget, rate=rate, steps=100, order=order, **facts)
        step = SampledSharedGaussian(
            found.share_sigma, 5, 1, moved(found.levels, 900), 900, rate, False, 100, order
        )
        most, near = (1.08, 0.99) if rate >= 0.02 else (1.35, 0.95)  # many rows: decision 0014
        assert near * epsilon < ac.epsilon([counted, step], DELTA) <= epsilon
        free = plan_steps(budget, rate=rate, steps=100, **facts)
        assert free.multiplier * 0.999 <= found.multiplier <= free.multiplier * most
        noise = multiplier(budget, order, rate=rate, steps=100, others=[counted])
        paid = alone(order, 100, multiplier=noise, rate=rate)
        assert near * epsilon < ac.epsilon([counted, paid], DELTA) <= epsilon
