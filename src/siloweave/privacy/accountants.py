"""What a list of events costs: epsilon at a delta, recomputed from the events every time.

Three readings hold for every list, and the smallest of those that apply is the answer:

* the sum of pure epsilons, when every event has one;
* privacy loss distributions (PLD), when every event has a pure epsilon and such a distribution in
  ``dp_accounting`` (discrete Laplace noise);
* Renyi divergences of the total zCDP, always (``dp_accounting``, with a grid of orders so fine
  that the loss against the exact conversion stays below 0.1 percent, or 0.00002 where that is
  more).

Steps on Poisson samples (:class:`~siloweave.privacy.events.SampledSharedGaussian`) have one more,
and the third counts them as if nothing was sampled: Renyi divergences of whole orders, of the
sampled steps and of other zCDP, which discrete noise has exactly as continuous noise does
(sampled.py).

Steps whose noise and rate follow from a noisy number of rows carry a Renyi order (``order``). A
list with such steps has one reading, at that order and with everything else (sampled.py,
``at_order``): no other order and no PLD, since which of several readings is the least one depends
on that number. With several orders in a list the largest of their readings counts, which is not
below the reading at the order that was chosen first.

An event that escapes its zCDP with a probability of its own (a threshold on unknown values) leaves
only the third reading, at what remains of delta after all those probabilities. One whose zCDP holds
up to a largest Renyi order (``up_to``: coins) leaves only the orders up to the smallest of these.

Totals are kept in exact integers, so a loop, a ``count`` and a replayed ledger agree to the last
digit, in any order.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import lru_cache

import msgspec

from siloweave.errors import InputError
from siloweave.privacy import sampled
from siloweave.privacy.events import BaseEvent, Event, encode, known, order_of

#: Significant digits of a printed epsilon.
DIGITS = 7

_UNIT = 2**100  # one nat of loss, in the integers that totals are kept in
_FLOAT_SLACK = 1e-12  # relative; what adding floats may lose, far below the printed digits
_ORDERS = 378
_PLD_LARGEST = 30.0  # nats; beyond it the table of losses gets large and nothing is gained
_HALVINGS = 8  # of where a delta is sought
_GROUP_LARGEST, _GROUP_LEAST = 500.0, 1e-200  # nats of several changes together; a delta of one
_PLD_MOST = 16  # different events


def round_up(value: float) -> float:
    """``value`` rounded up to :data:`DIGITS` significant digits.

    A relative excess below 1e-12 is taken for the rounding of sums of floats and cut off.
    """
    if value == 0 or not math.isfinite(value):
        return value
    shift = DIGITS - 1 - math.floor(math.log10(abs(value)))
    scaled = math.ceil(value * (1 - _FLOAT_SLACK) * 10.0**shift)
    return float(f"{scaled}e{-shift}")


@lru_cache(maxsize=16384)
def _units(value: float) -> int:
    """A finite loss as an integer number of units, rounded up."""
    numerator, denominator = value.as_integer_ratio()
    return -((-numerator * _UNIT) // denominator)


class Tally:
    """A running total of events, cheap to add to and to read.

    Example:
        >>> from siloweave.privacy.events import Gaussian
        >>> tally = Tally([Gaussian(sigma=10.0, sensitivity=1.0)] * 2)
        >>> round(tally.rho, 6), tally.epsilon(1e-6)
        (0.01, 0.6216933)
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._rho = 0
        self._escapes = 0  # total probability of escaping the zCDP
        self._pure: int | None = 0  # None: at least one event has no pure epsilon
        self._kinds: dict[BaseEvent, int] = {}  # how often, while every event has a pure epsilon
        self._steps: dict[sampled.SampledStep, int] = {}
        self._unsampled = 0  # zCDP of everything else
        self._replaced = 0  # zCDP of steps for replaced rows, as if nothing was sampled
        self._orders: frozenset[int] = frozenset()  # the only ones to read at, if there are any
        self._up_to = math.inf  # no order above it is read at
        self._private = True
        for event in events:
            self.add(event)

    def copy(self) -> "Tally":
        """An independent tally of the same events."""
        twin = copy(self)
        twin._steps, twin._kinds = dict(self._steps), dict(self._kinds)
        return twin

    def add(self, event: Event) -> None:
        """Count one more event; LedgerError, and nothing is counted, if it is unknown."""
        cost, pure, count, step = known(event).rho, event.pure, event.count, event.step
        if not math.isfinite(cost):
            self._private = False
            return
        total = _units(cost) * count
        self._rho += total
        self._escapes += _units(event.delta) * count
        self._up_to = min(self._up_to, event.up_to)
        if (order := order_of(event)) is not None:
            self._orders |= {order}
        if step is None:
            self._unsampled += total
        else:
            self._steps[step] = self._steps.get(step, 0) + count
            self._replaced += total if step.replaced else 0
        if math.isinf(pure):
            self._pure, self._kinds = None, {}
        elif self._pure is not None:
            self._pure += _units(pure) * count
            one = event if count == 1 else msgspec.structs.replace(event, count=1)
            self._kinds[one] = self._kinds.get(one, 0) + count

    def steps(self, event: Event) -> int:
        """How many steps on samples were counted that are like those of an event."""
        return 0 if event.step is None else self._steps.get(event.step, 0)

    @property
    def orders(self) -> frozenset[int]:
        """Renyi orders at which alone the events may be read; empty where all readings hold."""
        return self._orders

    @property
    def rho(self) -> float:
        """Total zCDP; infinite when something was released without privacy."""
        return self._rho / _UNIT if self._private else math.inf

    @property
    def delta(self) -> float:
        """Total probability with which the events may escape :attr:`rho`, rounded up; mostly 0."""
        total = self._escapes / _UNIT
        return total if self._escapes == 0 else math.nextafter(total, math.inf)

    def epsilon(self, delta: float) -> float:
        """Epsilon at ``delta``, rounded up to :data:`DIGITS` digits; see :func:`epsilon`."""
        if not 0 < delta < 1:
            raise InputError(
                f"epsilon: delta = {delta} must lie strictly between 0 and 1, for example 1e-6."
            )
        if not self._private:
            return math.inf
        if self._rho == 0:
            return 0.0
        left = delta if self._escapes == 0 else delta - self.delta
        if left <= 0:
            return math.inf
        if self._orders:
            return round_up(max(self._at(order, left) for order in self._orders))
        readings = [_from_rho(self._rho / _UNIT, left, self._up_to)]
        if self._up_to < math.inf:
            return round_up(readings[0])
        return round_up(min(readings + self._others(delta, left)))

    def epsilon_of_several(self, times: int, delta: float) -> float:
        """Epsilon where each event moves so many times as far; see :func:`epsilon_at_parties`."""
        if not self._private:
            return math.inf
        if self._steps or self._orders or self._up_to < math.inf:
            return _one_after_the_other(self.epsilon, times, delta)
        left = delta - times * self.delta
        return epsilon_of_rho(times**2 * self.rho, left) if left > 0 else math.inf

    def _others(self, delta: float, left: float) -> list[float]:
        """Readings that hold where zCDP holds at all orders."""
        readings = []
        if self._pure is not None:
            readings.append(self._pure / _UNIT)
            if len(self._kinds) <= _PLD_MOST:
                kinds = sorted(self._kinds.items(), key=lambda kind: encode(kind[0]))
                readings.append(_from_pld(tuple(kinds), delta))
        if self._steps:
            steps = _whole(self._steps, False), _whole(self._steps, True)
            readings.append(sampled.from_whole_orders(self._unsampled / _UNIT, *steps, left))
        return readings

    def _at(self, order: int, delta: float) -> float:
        """The reading at one order; steps for replaced rows count as if nothing was sampled."""
        if order > self._up_to:
            return math.inf
        rest = (self._unsampled + self._replaced) / _UNIT
        return sampled.at_order(order, rest, _whole(self._steps, False), delta)


def _one_after_the_other(of_one: Callable[[float], float], times: int, delta: float) -> float:
    """A bound on so many changes that follows from bounds on one, at a smaller delta.

    Args:
        of_one: The epsilon of one change at a delta; it falls as delta grows.
        times: Changes, at least 2.
        delta: Of all changes together.
    """

    def fits(part: float) -> bool:
        one = of_one(part)
        if times * one > _GROUP_LARGEST:
            return False
        growth = math.expm1(times * one) / math.expm1(one) if one else float(times)
        return part * growth <= delta

    above = delta  # which is too much, as times > 1
    part = delta / times
    while not fits(part):
        above, part = part, part / 4
        if part < _GROUP_LEAST:
            return math.inf
    for _ in range(_HALVINGS):
        middle = math.sqrt(part * above)
        if fits(middle):
            part = middle
        else:
            above = middle
    return round_up(times * of_one(part))


def epsilon(events: Iterable[Event], delta: float) -> float:
    """The epsilon that ``events`` cost together, adaptively one after the other.

    Args:
        events: what was released; the order does not matter.
        delta: probability with which the bound may fail, in (0, 1).

    Returns:
        Epsilon, rounded up; 0 for no events, infinite if one was without privacy.

    Raises:
        LedgerError: an event is unknown.

    **Guarantee**: an upper bound at this delta for events whose parameters were fixed beforehand.
    When parameters depend on earlier outputs, as annealing does, the bound on zCDP (a limit on
    :func:`rho`) remains valid as a stopping rule; that is the reading for every list with a
    Gaussian event. Where noise and rate of steps on samples follow from a noisy number of rows,
    which is so in every private training that hides this number, the events say at which order
    they are read, and a limit on that reading is a valid stopping rule (sampled.py,
    ``at_order``). The rows of a run that was broken off because of what its first release
    showed, and begun anew with other settings, are not covered by this: give the new run a
    budget beside the old one.

    Example:
        >>> from siloweave.privacy.events import Exponential
        >>> epsilon([Exponential(epsilon=0.1, count=10)], delta=1e-6)
        0.7002272
    """
    return Tally(events).epsilon(delta)


def of_one_person(ledgers: Iterable[Iterable[Event]]) -> list[Event]:
    """All that is released about one person, whose data lies at every owner of these ledgers.

    A release that two parties make together is in both of their ledgers, and counts once.
    """
    own: list[Event] = []
    joint: Counter[Event] = Counter()
    for ledger in ledgers:
        events = list(ledger)
        own += [event for event in events if not event.joint]
        joint |= Counter(event for event in events if event.joint)
    return own + list(joint.elements())


def epsilon_to_parties(ledgers: Iterable[Iterable[Event]], delta: float) -> float:
    """The largest epsilon towards one of two or more parties, which all hold the same people.

    For it no row comes or goes, and values of one can differ at all other parties.

    **Guarantee**: for releases under added or removed rows, each a step on samples or counts of
    tables in each of which a row is in one cell. A step is priced for a replaced row, and at no
    order of its own, as neighbours have equally many rows. Counts count twice: a row leaves one
    cell and enters another. A noisy number of rows does, too, although neighbours have the same.
    A replaced row is also one that goes and one that comes, so what the ledgers say of two such
    changes one after the other holds, and the smaller of both bounds is taken.
    """
    own = [list(events) for events in ledgers]
    others = [of_one_person(own[:k] + own[k + 1 :]) for k in range(len(own))]
    return max(_of_replaced(seen, delta) for seen in others)


def _of_replaced(events: Sequence[Event], delta: float) -> float:
    """The epsilon of a replaced row, by releases that are priced for added and removed ones."""
    changed = Tally(replaced for event in events for replaced in _changed(event))
    return min(changed.epsilon(delta), Tally(events).epsilon_of_several(2, delta))


def epsilon_at_parties(ledgers: Iterable[Iterable[Event]], parties: int, delta: float) -> float:
    """The epsilon of a unit that has rows at several parties, which hold different rows.

    A ledger prices what its owner releases of the unit's rows there. A masked sum is in the ledger
    of every party that adds to it, and moves by what all of them add.

    Args:
        ledgers: The events of every party.
        parties: At how many of them the unit may have rows.
        delta: Probability with which the bound may fail, in (0, 1).

    **Guarantee**: let the unit be at p parties with ledgers of zCDP rho_1, ..., rho_p. A release
    of one party alone adds its own cost. One of them all, of costs r_1, ..., r_p, moves p times as
    far as one of them at most, and costs (sqrt r_1 + ... + sqrt r_p)^2 <= p (r_1 + ... + r_p): the
    square root of the zCDP of a sum is subadditive in how far it moves (`events.shared_rho`). So
    everything costs at most p (rho_1 + ... + rho_p), which is at most p^2 times the largest: each
    sensitivity times p. Escapes of lists of values, which each party makes of its own, add up.
    Where events have no zCDP at all orders, or were priced on samples, it is the largest epsilon
    of a ledger for p changes one after the other (group privacy: Vadhan 2017, lemma 2.2).

    Example:
        >>> from siloweave.privacy.events import SharedGaussian
        >>> sums = [[SharedGaussian(40.0, 3, 1, 5.0, 16)]] * 3
        >>> [epsilon_at_parties(sums, p, 1e-6) for p in (1, 2)]
        [0.3771054, 0.7888539]
        >>> epsilon([SharedGaussian(40.0, 3, 1, 10.0, 16)], 1e-6)
        0.7888539
    """
    tallies = [Tally(events) for events in ledgers]
    several = min(parties, len(tallies))
    if several <= 1:
        return max((tally.epsilon(delta) for tally in tallies), default=0.0)
    return max(tally.epsilon_of_several(several, delta) for tally in tallies)


def most_of_several(epsilon: float, times: int, delta: float, order: int) -> float:
    """Bound what so many changes cost by ledgers that are read at one order, before they are there.

    `epsilon_at_parties` of such ledgers is no more, and with two changes `epsilon_to_parties`.

    Args:
        epsilon: What the ledgers cost at most for one change, at `delta`.
        times: Changes, one after the other.
        delta: Probability with which the bound may fail, in (0, 1).
        order: Renyi order at which the ledgers are read, fixed beforehand.

    **Guarantee**: a reading at one order is a divergence, plus a term that grows by
    log(delta / d) / (order - 1) as delta falls to d (`sampled.at_order`). So whatever ledgers hold,
    rate and noise of steps included, those that cost at most `epsilon` at delta cost at most that
    much more at d; from there it is the bound for one change after the other.

    Example:
        >>> 2 < most_of_several(1.0, 2, 1e-6, order=20) < 3
        True
    """
    if times <= 1:
        return epsilon

    def of_one(part: float) -> float:
        return round_up(epsilon + math.log(delta / part) / (order - 1))

    return _one_after_the_other(of_one, times, delta)


def _changed(event: Event) -> tuple[Event, ...]:
    """What a release is priced as where values of a row change."""
    if event.step is None:
        return event, event
    return (msgspec.structs.replace(event, replace_one=True, order=msgspec.UNSET),)


def rho(events: Iterable[Event]) -> float:
    """Total zCDP of ``events``; a pure epsilon counts epsilon^2 / 2, no privacy is infinite.

    Example:
        >>> from siloweave.privacy.events import Gaussian, Laplace
        >>> rho([Gaussian(sigma=1.0, sensitivity=1.0), Laplace(scale=2.0, sensitivity=1.0)])
        0.625
    """
    return Tally(events).rho


def epsilon_of_rho(total: float, delta: float) -> float:
    """What a ledger reads when its events total ``total`` zCDP and are not all pure."""
    if total == 0 or math.isinf(total):
        return total
    return round_up(_from_rho(_units(total) / _UNIT, delta))


@lru_cache(maxsize=1)
def _orders() -> tuple[float, ...]:
    """Renyi orders: alpha - 1 in equal ratios of 1.05 from 0.0102 to a million."""
    step = math.log(1e6 / 0.0102) / (_ORDERS - 1)
    return tuple(1 + 0.0102 * math.exp(step * index) for index in range(_ORDERS))


@lru_cache(maxsize=65536)
def _from_rho(total: float, delta: float, up_to: float = math.inf) -> float:
    import dp_accounting as dpa

    accountant = dpa.rdp.RdpAccountant([order for order in _orders() if order <= up_to])
    accountant.compose(dpa.ZCDpEvent(total))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=1024)
def _from_pld(kinds: tuple[tuple[BaseEvent, int], ...], delta: float) -> float:
    if math.fsum(event.pure * count for event, count in kinds) > _PLD_LARGEST:
        return math.inf
    import dp_accounting as dpa

    accountant = dpa.pld.PLDAccountant()
    for event, count in kinds:
        one = event.dp_event()
        if not accountant.supports(one):
            return math.inf
        accountant.compose(one, count)
    return float(accountant.get_epsilon(delta))


def _whole(steps: dict[sampled.SampledStep, int], replaced: bool) -> sampled.Whole:
    """Steps for added or for replaced rows, as they are read at whole orders."""
    total: dict[tuple[float, float, float], int] = {}
    for step, count in steps.items():
        if step.replaced is replaced:
            kind = (step.multiplier, step.excess, step.rate)
            total[kind] = total.get(kind, 0) + count
    return tuple(sorted(total.items()))
