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

# One nat of loss, in the integers that totals are stored in.
_UNIT = 2**100
# Relative; what adding floats may lose, far below the printed digits.
_FLOAT_SLACK = 1e-12

# Renyi orders of the third reading: alpha - 1 from the first to the last of these, in ratios of
# 1.05. The head of this file says what so fine a grid loses.
_ORDERS = 378
_FIRST_STEP = 0.0102
_LAST_STEP = 1e6

# Nats of pure epsilon; beyond it the table of losses gets large and nothing is gained.
_PLD_LARGEST = 30.0
# Different events in a list that is read by its loss distribution.
_PLD_MOST = 16

# Halvings of the interval, on a logarithmic scale, where `_one_after_the_other` seeks a delta.
_HALVINGS = 8
# Nats of several changes together, above which a delta does not suffice; exp overflows at 709.
_GROUP_LARGEST = 500.0
# The least delta of one change that is tried.
_GROUP_LEAST = 1e-200


def round_up(value: float) -> float:
    """Round a number up to :data:`DIGITS` significant digits.

    A relative excess below 1e-12 is taken for the rounding of sums of floats and cut off.
    """
    if value == 0 or not math.isfinite(value):
        return value
    shift = DIGITS - 1 - math.floor(math.log10(abs(value)))
    scaled = math.ceil(value * (1 - _FLOAT_SLACK) * 10.0**shift)
    # Read from its digits, so that it prints with these and no others.
    return float(f"{scaled}e{-shift}")


@lru_cache(maxsize=16384)
def _units(value: float) -> int:
    """Convert a finite loss into a whole number of units, rounded up."""
    numerator, denominator = value.as_integer_ratio()
    # Floor division of the negative rounds up.
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
        # Total zCDP, and the total probability of escaping it; both in `_UNIT`s.
        self._rho = 0
        self._escapes = 0
        # Total pure epsilon, and how often each event occurs. None and empty as soon as one event
        # has no pure epsilon.
        self._pure: int | None = 0
        self._kinds: dict[BaseEvent, int] = {}
        # Steps on samples; the zCDP of everything else; and that of steps for replaced rows, as if
        # nothing was sampled.
        self._steps: dict[sampled.SampledStep, int] = {}
        self._unsampled = 0
        self._replaced = 0
        # The only orders to read at, if there are any, and the largest that may be read at.
        self._orders: frozenset[int] = frozenset()
        self._up_to = math.inf
        self._private = True
        for event in events:
            self.add(event)

    def copy(self) -> "Tally":
        """Return an independent tally of the same events."""
        twin = copy(self)
        # All else is immutable, and shared.
        twin._steps = dict(self._steps)
        twin._kinds = dict(self._kinds)
        return twin

    def add(self, event: Event) -> None:
        """Count one more event; LedgerError, and nothing is counted, if it is unknown."""
        cost = known(event).rho
        if not math.isfinite(cost):
            self._private = False
            return

        # Everything that may fail is read before anything is counted.
        pure = event.pure
        count = event.count
        step = event.step
        order = order_of(event)
        total = _units(cost) * count
        escapes = _units(event.delta) * count
        up_to = event.up_to

        self._rho += total
        self._escapes += escapes
        self._up_to = min(self._up_to, up_to)
        if order is not None:
            self._orders |= {order}

        if step is None:
            self._unsampled += total
        else:
            self._steps[step] = self._steps.get(step, 0) + count
            if step.replaced:
                self._replaced += total

        if math.isinf(pure):
            self._pure = None
            self._kinds = {}
        elif self._pure is not None:
            self._pure += _units(pure) * count
            # Equal events add up, whether they came as one with a count or one by one.
            single = event if count == 1 else msgspec.structs.replace(event, count=1)
            self._kinds[single] = self._kinds.get(single, 0) + count

    def steps(self, event: Event) -> int:
        """Count the sampled steps so far that are like those of an event."""
        if event.step is None:
            return 0
        return self._steps.get(event.step, 0)

    @property
    def orders(self) -> frozenset[int]:
        """The Renyi orders at which alone the events may be read; empty where all readings hold."""
        return self._orders

    @property
    def rho(self) -> float:
        """The total zCDP; infinite when something was released without privacy."""
        return self._rho / _UNIT if self._private else math.inf

    @property
    def delta(self) -> float:
        """Total probability with which the events may escape :attr:`rho`, rounded up; mostly 0."""
        if self._escapes == 0:
            return 0.0
        return math.nextafter(self._escapes / _UNIT, math.inf)

    def epsilon(self, delta: float) -> float:
        """Return epsilon at ``delta``, rounded up to :data:`DIGITS` digits; see :func:`epsilon`."""
        if not 0 < delta < 1:
            raise InputError(
                f"epsilon: delta = {delta} must lie strictly between 0 and 1, for example 1e-6."
            )
        if not self._private:
            return math.inf
        if self._rho == 0:
            return 0.0

        # What events may escape with is taken from delta before anything is read.
        remaining = delta - self.delta
        if remaining <= 0:
            return math.inf
        if self._orders:
            # The smallest of several readings would be one that outputs may have chosen.
            at_orders = [self._reading_at(order, remaining) for order in self._orders]
            return round_up(max(at_orders))

        rdp = _from_rho(self._rho / _UNIT, remaining, self._up_to)
        if self._up_to < math.inf:
            return round_up(rdp)
        return round_up(min([rdp, *self._further_readings(delta, remaining)]))

    def epsilon_of_several(self, times: int, delta: float) -> float:
        """Return epsilon where each event moves several times as far; see `epsilon_at_parties`."""
        if not self._private:
            return math.inf
        if self._steps or self._orders or self._up_to < math.inf:
            return _one_after_the_other(self.epsilon, times, delta)
        # Sensitivities grow by the factor, zCDP by its square, and every change may escape.
        remaining = delta - times * self.delta
        if remaining <= 0:
            return math.inf
        return epsilon_of_rho(times**2 * self.rho, remaining)

    def _further_readings(self, delta: float, remaining: float) -> list[float]:
        """Return further bounds on epsilon, which hold where zCDP holds at all orders.

        Pure events escape nothing, so these have all of `delta`; the others have what remains.
        """
        readings = []
        if self._pure is not None:
            readings.append(self._pure / _UNIT)
            if len(self._kinds) <= _PLD_MOST:
                # In one order, so that equal lists share one entry of the cache.
                kinds = sorted(self._kinds.items(), key=lambda kind: encode(kind[0]))
                readings.append(_from_pld(tuple(kinds), delta))
        if self._steps:
            added = _whole(self._steps, replaced=False)
            replaced = _whole(self._steps, replaced=True)
            rest = self._unsampled / _UNIT
            readings.append(sampled.from_whole_orders(rest, added, replaced, remaining))
        return readings

    def _reading_at(self, order: int, delta: float) -> float:
        """Return the epsilon at one Renyi order; steps on replaced rows count as unsampled."""
        if order > self._up_to:
            return math.inf
        rest = (self._unsampled + self._replaced) / _UNIT
        added = _whole(self._steps, replaced=False)
        return sampled.at_order(order, rest, added, delta)


def _one_after_the_other(
    of_one: Callable[[float], float], times: int, delta: float
) -> float:
    """Bound the epsilon of several changed rows from bounds on one changed row at a smaller delta.

    If one change is (e, d), m of them are (m e, d (1 + E + ... + E^(m - 1))) with E = exp(e), and
    that sum is (E^m - 1) / (E - 1) (group privacy: Vadhan 2017, lemma 2.2).

    Args:
        of_one: The epsilon of one change at a delta; it falls as delta grows.
        times: Changes, at least 2.
        delta: Of all changes together.
    """

    def fits(part: float) -> bool:
        epsilon = of_one(part)
        if times * epsilon > _GROUP_LARGEST:
            return False
        # At epsilon 0 every term of the sum is 1.
        growth = float(times)
        if epsilon:
            growth = math.expm1(times * epsilon) / math.expm1(epsilon)
        return part * growth <= delta

    # All of delta is too much for one change, as times > 1. From a fair part it is divided until it
    # fits, and then as much as fits is sought between the two.
    above = delta
    part = delta / times
    while not fits(part):
        above = part
        part = part / 4
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
    """Return the epsilon that ``events`` cost together, adaptively one after the other.

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
    """Return all releases about one person, who has data at every owner of the ledgers.

    A release that two parties make together is in both of their ledgers, and counts once.
    """
    single: list[Event] = []
    joint: Counter[Event] = Counter()
    for ledger in ledgers:
        events = list(ledger)
        single += [event for event in events if not event.joint]
        # The larger count of both: one ledger may have the same joint release several times.
        joint |= Counter(event for event in events if event.joint)
    return single + list(joint.elements())


def epsilon_to_parties(
    ledgers: Iterable[Iterable[Event]], delta: float, *, one_fit: bool = True
) -> float:
    """Return the largest epsilon towards one of two or more parties that hold the same people.

    For it no row comes or goes, and values of one can differ at all other parties.

    Args:
        ledgers: The events of every party.
        delta: Probability with which the bound may fail, in (0, 1).
        one_fit: Whether they hold one fit alone, and no score: only then is more known of the
            releases than what they cost.

    **Guarantee**: for releases under added or removed rows; in one fit, each a step on samples or
    counts of tables in each of which a row is in one cell. A step is priced for a replaced row, and
    at no order of its own, as neighbours have equally many rows. Counts count twice: a row leaves
    one cell and enters another. A noisy number of rows does, too, although neighbours have the
    same. A replaced row is also one that goes and one that comes, so what the ledgers say of two
    such changes one after the other holds, and the smaller of both bounds is taken.
    """
    by_party = [list(events) for events in ledgers]
    # A party sees what all others release; its own values are no news to it.
    views = [
        of_one_person(by_party[:observer] + by_party[observer + 1 :])
        for observer in range(len(by_party))
    ]
    if not one_fit:
        return max(Tally(events).epsilon_of_several(2, delta) for events in views)
    return max(_of_replaced(events, delta) for events in views)


def _of_replaced(events: Sequence[Event], delta: float) -> float:
    """Return the epsilon of a replaced row from releases priced for added and removed rows."""
    changed = Tally(replaced for event in events for replaced in _changed(event))
    as_replaced = changed.epsilon(delta)
    as_two_changes = Tally(events).epsilon_of_several(2, delta)
    return min(as_replaced, as_two_changes)


def epsilon_at_parties(
    ledgers: Iterable[Iterable[Event]], parties: int, delta: float
) -> float:
    """Return the epsilon of a unit that has rows at several parties, which hold different rows.

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
    """Bound the epsilon of several changed rows before there are ledgers, which one order reads.

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
    """Return the events as which a release is priced where the values of a row change."""
    # A row leaves one cell and enters another: two counts.
    if event.step is None:
        return event, event
    replaced = msgspec.structs.replace(event, replace_one=True, order=msgspec.UNSET)
    return (replaced,)


def rho(events: Iterable[Event]) -> float:
    """Add up the zCDP of ``events``; a pure epsilon counts epsilon^2 / 2, no privacy is infinite.

    Example:
        >>> from siloweave.privacy.events import Gaussian, Laplace
        >>> rho([Gaussian(sigma=1.0, sensitivity=1.0), Laplace(scale=2.0, sensitivity=1.0)])
        0.625
    """
    return Tally(events).rho


def epsilon_of_rho(total: float, delta: float) -> float:
    """Return the epsilon that a ledger reads for ``total`` zCDP of events that are not all pure."""
    if total == 0 or math.isinf(total):
        return total
    return round_up(_from_rho(_units(total) / _UNIT, delta))


@lru_cache(maxsize=1)
def _orders() -> tuple[float, ...]:
    """Return the Renyi orders that are tried: alpha - 1 in ratios of 1.05, 0.0102 to a million."""
    log_ratio = math.log(_LAST_STEP / _FIRST_STEP) / (_ORDERS - 1)
    steps = (_FIRST_STEP * math.exp(log_ratio * index) for index in range(_ORDERS))
    return tuple(1 + step for step in steps)


@lru_cache(maxsize=65536)
def _from_rho(total: float, delta: float, up_to: float = math.inf) -> float:
    """Return epsilon at ``delta`` from zCDP that holds up to a largest Renyi order."""
    # Imported here, as it takes seconds and most commands read no ledger.
    import dp_accounting as dpa

    orders = [order for order in _orders() if order <= up_to]
    accountant = dpa.rdp.RdpAccountant(orders)
    accountant.compose(dpa.ZCDpEvent(total))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=1024)
def _from_pld(kinds: tuple[tuple[BaseEvent, int], ...], delta: float) -> float:
    """Return epsilon from privacy loss distributions; infinite where an event has none."""
    if math.fsum(event.pure * count for event, count in kinds) > _PLD_LARGEST:
        return math.inf
    import dp_accounting as dpa

    accountant = dpa.pld.PLDAccountant()
    for event, count in kinds:
        single = event.dp_event()
        if not accountant.supports(single):
            return math.inf
        accountant.compose(single, count)
    return float(accountant.get_epsilon(delta))


def _whole(steps: dict[sampled.SampledStep, int], *, replaced: bool) -> sampled.Whole:
    """Count the steps for added or for replaced rows, by kind, as whole Renyi orders read them."""
    counts: dict[tuple[float, float, float], int] = {}
    for step, count in steps.items():
        if step.replaced is replaced:
            kind = (step.multiplier, step.excess, step.rate)
            counts[kind] = counts.get(kind, 0) + count
    # Sorted, so that the order in which steps were charged changes no digit.
    return tuple(sorted(counts.items()))
