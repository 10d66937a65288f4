"""Privacy events: immutable values that say exactly which mechanism was run.

The constitution of this file:

* The meaning of an event and of its fields never changes; ledgers written years ago must still
  read the same. A new mechanism, or a new fact about an old one, gets a new event.
* An event says completely what was done, so that any accountant can price it without seeing the
  code that ran.
* An event carries its own costs (:class:`BaseEvent`), so a new one is one class in this file and a
  line in :data:`Event`.
* An accountant refuses an event that it does not know. Nothing is ever priced by guessing.
* Running without privacy is an event too, and costs infinity, so no report can leave it out.
* ``sensitivity`` is the distance between two neighbours under the relation of the budget; whoever
  records the event has applied the relation already.
"""

import math
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import msgspec

from siloweave.errors import InputError, LedgerError
from siloweave.privacy.coins import Coins, cost_of, cost_of_rows
from siloweave.privacy.sampled import SampledStep

if TYPE_CHECKING:
    from dp_accounting import DpEvent

#: A Renyi order; unset for noise and rate that were fixed beforehand.
_Order = int | msgspec.UnsetType

# The largest of `sampled.WHOLE_ORDERS`.
_LARGEST_ORDER = 2048
# The largest order that a claim about coins may name.
_LARGEST_COIN_ORDER = 2**20
# The largest number that coins may come to, and the most coins: pricing one such number, mass by
# mass, takes half a second.
_LARGEST_HALF = 2**20
_MOST_COINS = 2**11
# The largest probability that a claim about coins may leave out; it comes out of delta.
_LARGEST_TAIL = 2.0**-20

# A tail bound is raised by this part, more than erfc may be off by.
_ERFC_SLACK = 1e-12
# The least float above 0: a tail that is smaller still is not 0.
_LEAST_FLOAT = 5e-324

# Names of fields, of whatever event, that must be finite and above 0.
_POSITIVE = {
    "sigma", "share_sigma", "sensitivity", "epsilon", "scale", "sampling_rate", "tail", "total",
    "escape", "margin",
}  # fmt: skip
# Names of fields that must be at least 1.
_COUNTS = {"count", "shares", "dimension", "copies", "rows"}


class BaseEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The facts that every event states of its cost; each has a default that claims nothing.

    All costs are those of a single release, for neighbours under the relation of the budget; the
    accountants multiply by ``count`` and add up. A subclass is a frozen struct with a tag of its
    own, whose fields say what was run.

    **Guarantee**: a subclass that overrides nothing costs infinity. Each override is a claim that
    its docstring has to prove.
    """

    #: Name for readers of a report.
    mechanism: ClassVar[str]

    def __post_init__(self) -> None:
        """Refuse values that no event of any mechanism can have."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            field = f"{type(self).__name__}: {name}"
            if name in _POSITIVE and not (math.isfinite(value) and value > 0):
                raise InputError(
                    f"{field} = {value} must be finite and greater than 0. "
                    "A release without noise is a NonPrivate event."
                )
            if name in _COUNTS and value < 1:
                raise InputError(f"{field} = {value} must be at least 1.")

    @property
    def count(self) -> int:
        """The number of such releases that the event stands for."""
        return 1

    @property
    def pure(self) -> float:
        """Pure differential privacy (delta = 0); infinite where none is known."""
        return math.inf

    @property
    def rho(self) -> float:
        """Concentrated privacy (zCDP); infinite without privacy.

        By default what follows from :attr:`pure`: epsilon^2 / 2 (Bun and Steinke 2016, Proposition
        1.4).
        """
        return self.pure**2 / 2

    @property
    def delta(self) -> float:
        """Probability with which a release may escape the bound on its zCDP; mostly 0."""
        return 0.0

    @property
    def order(self) -> _Order:
        """The one Renyi order at which a list with this event may be read; mostly unset."""
        return msgspec.UNSET

    @property
    def up_to(self) -> float:
        """Largest Renyi order at which :attr:`rho` holds: ``largest_order``, or infinite."""
        return float(getattr(self, "largest_order", math.inf))

    @property
    def joint(self) -> str:
        """The name of a release that several parties make together, and each enters; mostly ""."""
        return ""

    @property
    def width(self) -> float | None:
        """The parameter of the discrete Gaussian noise that the party itself draws, if any.

        That is the event's ``sigma`` or ``share_sigma``. A width that cannot be drawn is refused
        before it is paid for.
        """
        width: float | None = getattr(self, "sigma", getattr(self, "share_sigma", None))
        return width

    @property
    def step(self) -> SampledStep | None:
        """The facts from which a release on a Poisson sample is priced closer than by its zCDP."""
        return None

    def dp_event(self) -> "DpEvent":
        """Return the release as an event of ``dp_accounting``; by default, one of the same zCDP.

        Where it is another event, which has a privacy loss distribution there, lists of events with
        a finite :attr:`pure` are also read by that distribution.
        """
        from dp_accounting import ZCDpEvent

        return ZCDpEvent(self.rho)


class Gaussian(BaseEvent, frozen=True, tag="gaussian"):
    """``count`` releases of integers plus discrete Gaussian noise, by someone trusted to add it.

    The noise has mass proportional to exp(-x^2 / (2 sigma^2)) on the integers, independent for
    every number released. What is proven about it (Canonne, Kamath and Steinke, "The Discrete
    Gaussian for Differential Privacy", 2020, Theorem 4) is concentrated differential privacy with
    rho = sensitivity^2 / (2 sigma^2), so this is all that is claimed: the privacy curve of the
    *continuous* Gaussian is slightly better in places, and does not hold for the discrete one.

    Args:
        sigma: parameter of the noise in the unit of the numbers, > 0.
        sensitivity: L2 distance of the integer vectors of two neighbours, > 0.
        count: how many such releases, >= 1.
    """

    mechanism = "discrete Gaussian"

    sigma: float
    sensitivity: float
    count: int = 1

    @property
    def rho(self) -> float:
        """sensitivity^2 / (2 sigma^2) (Canonne, Kamath and Steinke 2020, Theorem 4)."""
        return (self.sensitivity / self.sigma) ** 2 / 2


class SharedGaussian(BaseEvent, frozen=True, tag="shared_gaussian"):
    """``count`` releases of a masked sum to which every party added its share of the noise.

    Each of ``shares`` parties adds discrete Gaussian noise of parameter ``share_sigma`` to every
    one of ``dimension`` integers; the claim holds although ``tolerated`` of the shares are missing
    (dropouts) or known to the adversary (colluders). The sum of discrete Gaussians is not one
    itself; the cost is that of :func:`shared_rho`.

    Args:
        share_sigma: parameter of one share, >= 1 (below, the sum is too far from a Gaussian).
        shares: number of parties that add noise.
        tolerated: how many of those the claim can do without, 0 <= tolerated < shares.
        sensitivity: L2 distance of the summed integer vectors of two neighbours, > 0.
        dimension: number of integers released at once, >= 1.
        count: how many such releases, >= 1.
    """

    mechanism = "shares of discrete Gaussian"

    share_sigma: float
    shares: int
    tolerated: int
    sensitivity: float
    dimension: int
    count: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tolerated < self.shares:
            raise InputError(
                f"SharedGaussian: tolerated = {self.tolerated} must be at least 0 and below "
                f"shares = {self.shares}. At least one share of noise has to remain."
            )
        if self.share_sigma < 1:
            raise InputError(
                f"SharedGaussian: share_sigma = {self.share_sigma} must be at least 1, because "
                "sums of narrower discrete Gaussians are not close to a Gaussian. Use fewer "
                "parties, a smaller budget, or let every party add noise of its own (trust = "
                "'local')."
            )

    @property
    def rho(self) -> float:
        """The zCDP of the shares that remain, :func:`shared_rho`."""
        noisy_shares = self.shares - self.tolerated
        return shared_rho(
            self.share_sigma, noisy_shares, self.sensitivity, self.dimension
        )

    @property
    def sigma_total(self) -> float:
        """Standard deviation of the noise in the sum when ``tolerated`` shares are gone."""
        noisy_shares = self.shares - self.tolerated
        return self.share_sigma * math.sqrt(noisy_shares)


class Exponential(BaseEvent, frozen=True, tag="exponential"):
    """``count`` selections by the exponential mechanism, P proportional to exp(eps u / (2 Delta)).

    Its privacy loss has range ``epsilon`` (Cesar and Rogers, "Bounding, Concentrating, and
    Truncating", 2021), so it costs rho = epsilon^2 / 8, four times less than a mechanism of which
    only pure epsilon is known.

    Args:
        epsilon: parameter of one selection, > 0.
        count: how many selections, >= 1.
    """

    mechanism = "exponential mechanism"

    epsilon: float
    count: int = 1

    @property
    def pure(self) -> float:
        """The epsilon of the selection itself (McSherry and Talwar 2007)."""
        return self.epsilon

    @property
    def rho(self) -> float:
        """epsilon^2 / 8, from the range of its loss (Cesar and Rogers 2021)."""
        return self.epsilon**2 / 8


class Laplace(BaseEvent, frozen=True, tag="laplace"):
    """``count`` releases of integers plus discrete Laplace noise.

    The noise has mass proportional to exp(-abs(x) / scale) on the integers, independent for every
    number. One release is purely differentially private with epsilon = sensitivity / scale. With
    sensitivity 1 its loss is always plus or minus epsilon, which is *worse* than that of
    continuous Laplace noise, so it is never accounted as such.

    Args:
        scale: parameter of the noise in the unit of the numbers, > 0.
        sensitivity: L1 distance of the integer vectors of two neighbours, > 0.
        count: how many such releases, >= 1.
    """

    mechanism = "discrete Laplace"

    scale: float
    sensitivity: float
    count: int = 1

    @property
    def pure(self) -> float:
        """sensitivity / scale."""
        return self.sensitivity / self.scale

    def dp_event(self) -> "DpEvent":
        """Return discrete Laplace noise, where the sensitivity is whole; else its zCDP."""
        # The distribution there is that of integers a whole number apart.
        if not self.sensitivity.is_integer():
            return super().dp_event()
        from dp_accounting import dp_event

        # Its parameter is the inverse of the scale.
        return dp_event.DiscreteLaplaceDpEvent(1 / self.scale, int(self.sensitivity))


class RandomisedResponse(BaseEvent, frozen=True, tag="randomised_response"):
    """``count`` values of every row, each kept or replaced by another one at random.

    Generalised randomised response (Warner 1965; Kairouz, Bonawitz and Ramage 2016): a value is
    kept with probability at most exp(epsilon) times that of any other value to be written instead,
    whatever the number of values. Neighbours replace a row; the number of rows is public.

    Args:
        epsilon: parameter of one value, > 0.
        count: how many values of a row, >= 1.
    """

    mechanism = "randomised response"

    epsilon: float
    count: int = 1

    @property
    def pure(self) -> float:
        """The epsilon itself: a ratio of two probabilities, as rows are independent."""
        return self.epsilon


class ThresholdGaussian(BaseEvent, frozen=True, tag="threshold_gaussian"):
    """``count`` lists of those values that enough rows hold, out of values nobody knew before.

    Every unit holds at most one value of a list. The rows of every value that occurs at all are
    counted, discrete Gaussian noise of parameter ``sigma`` is added to each count, and a value is
    named if its noisy count reaches ``threshold`` (Korolova, Kenthapadi, Mishra and Ntoulas 2009,
    with the noise of Desfontaines, Voss, Gipson and Mandayam, "Differentially Private Partition
    Selection", 2022, section 3). A value that neighbours both hold costs what a Gaussian does. A
    value that only one of them holds has the count 1 there and is named with probability at most
    :attr:`delta`; as long as it is not, the two lists have the same distribution. So a list
    is delta-approximately rho-zCDP (Bun and Steinke 2016, Definition 8.1), under replace-one with
    the same delta, since each of the two neighbours holds at most one value that the other lacks.

    Args:
        sigma: parameter of the noise, in rows, > 0.
        sensitivity: L2 distance of the counts of two neighbours, > 0.
        threshold: least noisy count that is named, >= 2.
        count: how many such lists, >= 1.
    """

    mechanism = "discrete Gaussian over a threshold"

    sigma: float
    sensitivity: float
    threshold: int
    count: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold < 2:
            raise InputError(
                f"ThresholdGaussian: threshold = {self.threshold} must be at least 2. A lower one "
                "names a value that a single row holds more often than not."
            )

    @property
    def rho(self) -> float:
        """The zCDP of the noisy counts of those values which neighbours both hold."""
        return (self.sensitivity / self.sigma) ** 2 / 2

    @property
    def delta(self) -> float:
        """Probability that a value which one of two neighbours holds once is named.

        **Guarantee**: P(1 + Z >= threshold) with discrete Gaussian Z is at most P(N(0, sigma^2) >=
        threshold - 2), which is returned: the mass of k >= 1 is at most that of the continuous
        density over (k - 1, k), and the discrete normaliser is at least sigma sqrt(2 pi) (Canonne,
        Kamath and Steinke 2020, Proposition 25).
        """
        return _tail_bound(self.threshold - 2, self.sigma)


class UnitThresholdGaussian(BaseEvent, frozen=True, tag="unit_threshold_gaussian"):
    """:class:`ThresholdGaussian` where one unit has up to ``rows`` rows, as a person may.

    One of two neighbours has a person whom the other lacks. Her rows add whole numbers to the
    counts of values, with a sum of at most k, so these move by at most k in L2, and what both
    neighbours hold costs what a Gaussian does. A value that she alone holds, in a rows, has the
    count a on one side and is named there with probability g(a) = P(a + Z >= threshold); on the
    other side it does not occur. As long as no such value is named, the two lists have the same
    distribution up to that Gaussian. With a_1, a_2, ... rows of her values, the probability that
    one is named is at most g(a_1) + g(a_2) + ..., and since g(a) = a (g(a) / a), at most k times
    the largest g(a) / a over a = 1, ..., k: the worst is k values of one row each, one value of k
    rows, or something between. That is :attr:`delta`.

    Args:
        sigma: parameter of the noise, in rows, > 0.
        sensitivity: L2 distance of the counts of two neighbours, > 0.
        threshold: least noisy count that is named, >= rows + 1.
        rows: most rows of one unit, >= 1.
        count: how many such lists, >= 1.
    """

    mechanism = "discrete Gaussian over a threshold, several rows of a unit"

    sigma: float
    sensitivity: float
    threshold: int
    rows: int
    count: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold <= self.rows:
            raise InputError(
                f"UnitThresholdGaussian: threshold = {self.threshold} must be above rows = "
                f"{self.rows}. A lower one names a value that a single person holds more often "
                "than not."
            )

    @property
    def rho(self) -> float:
        """The zCDP of the noisy counts of those values which neighbours both hold."""
        return (self.sensitivity / self.sigma) ** 2 / 2

    @property
    def delta(self) -> float:
        """Probability that a value which one of two neighbours holds is named, as proven above.

        **Guarantee**: g(a) is at most P(N(0, sigma^2) >= threshold - a - 1), for the reason in
        :class:`ThresholdGaussian`.
        """
        # The largest g(a) / a over all numbers of rows of one value.
        numbers = range(1, self.rows + 1)
        worst = max(
            _normal_tail(self.threshold - a - 1, self.sigma) / a for a in numbers
        )
        tail = self.rows * worst * (1 + _ERFC_SLACK)
        return min(1.0, max(tail, _LEAST_FLOAT))


class SampledSharedGaussian(BaseEvent, frozen=True, tag="sampled_shared_gaussian"):
    """``count`` masked sums over fresh Poisson samples, to which every party added its noise share.

    In every step each unit of a party, a row or a person with all her rows, is drawn independently
    with probability ``sampling_rate``, unknown to everyone but the party itself; the units drawn
    make a vector of ``dimension`` integers that moves by at most ``sensitivity`` in L2 when a unit
    is added or removed, with or without the others; each of ``shares`` parties adds discrete
    Gaussian noise of parameter ``share_sigma`` to its own vector before masking, and only the sum
    is seen. The claim holds although ``tolerated`` shares of the noise are missing or known.
    Nothing else that depends on the number of units or rows drawn is divided by or released.

    Args:
        share_sigma: parameter of one share, >= 1.
        shares: number of parties that add noise.
        tolerated: how many of those the claim can do without, 0 <= tolerated < shares.
        sensitivity: L2 distance of the integer vectors when a unit is added or removed, > 0, also
            where neighbours replace a row.
        dimension: number of integers released at once, >= 1.
        sampling_rate: probability of each unit to be in a step, in (0, 1].
        replace_one: whether neighbours differ in one row's values and not in the number of rows.
            Priced as a removal and an addition.
        count: how many such steps, >= 1.
        order: for noise and rate that follow from a noisy number of rows: the whole Renyi order, 2
            to 2048, at which alone a list with this event is read (shared_steps.py). Left out,
            noise and rate were fixed beforehand. Not for replaced rows: neighbours have the same
            number of rows there, so no noise follows from what distinguishes them.
    """

    mechanism = "shares of discrete Gaussian on Poisson samples"

    share_sigma: float
    shares: int
    tolerated: int
    sensitivity: float
    dimension: int
    sampling_rate: float
    replace_one: bool = False
    count: int = 1
    order: _Order = msgspec.UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling_rate > 1:
            raise InputError(
                f"SampledSharedGaussian: sampling_rate = {self.sampling_rate} must be at most 1. "
                "It is the expected batch divided by the number of rows."
            )
        if isinstance(self.order, int) and self.replace_one:
            raise InputError(
                f"SampledSharedGaussian: order = {self.order} has no meaning where a row is "
                "replaced: neighbours have the same number of rows there. Leave it out."
            )
        if isinstance(self.order, int) and not 2 <= self.order <= _LARGEST_ORDER:
            raise InputError(
                f"SampledSharedGaussian: order = {self.order} must be a whole number from 2 to "
                f"{_LARGEST_ORDER}."
            )
        # Making it checks the shares and their width.
        _ = self.whole

    @property
    def rho(self) -> float:
        """The zCDP as if all rows were in the sample: a mixture is no further apart than its parts.

        (Joint quasi-convexity.) Far too much, and only what a list of zCDP needs; epsilon is read
        from :attr:`step`.
        """
        noisy_shares = self.shares - self.tolerated
        # A replaced row is a removal and an addition, each of which moves by the sensitivity.
        changes = 2.0 if self.replace_one else 1.0
        distance = self.sensitivity * changes
        return shared_rho(self.share_sigma, noisy_shares, distance, self.dimension)

    @property
    def step(self) -> SampledStep:
        """The facts of one step on integers, which is read at whole Renyi orders."""
        return SampledStep(
            self.multiplier, self.excess, self.sampling_rate, self.replace_one
        )

    @property
    def whole(self) -> SharedGaussian:
        """The event of a step with all rows in it, for neighbours by adding or removing a row."""
        return SharedGaussian(
            share_sigma=self.share_sigma,
            shares=self.shares,
            tolerated=self.tolerated,
            sensitivity=self.sensitivity,
            dimension=self.dimension,
            count=self.count,
        )

    @property
    def multiplier(self) -> float:
        """The noise that remains, in units of the sensitivity, rounded down."""
        # Two roundings of floats, of at most 1.2e-16 each, are less than 1e-15.
        return self.whole.sigma_total / self.sensitivity * (1 - 1e-15)

    @property
    def excess(self) -> float:
        """The distance of the noise that remains from one Gaussian, see `shared_excess`."""
        noisy_shares = self.shares - self.tolerated
        return shared_excess(self.share_sigma, noisy_shares) * self.dimension


class SharedCoins(BaseEvent, frozen=True, tag="shared_coins"):
    """Integers plus noise of weighted coins that no party sees, opened once by two parties.

    Every number is exact plus the sum over coins of w (b - 1/2), where each coin b is 0 or 1 with
    probability 1/2, independent of all others; there are ``copies`` coins of every weight
    (coins.py; protocols/secure_products.py says how they are tossed). ``count`` is how many numbers
    two neighbours move, by 1 each: one for every table that a row is added to, two for every table
    in which a row is replaced. Both parties enter the same release, under one name.

    Args:
        weights: whole numbers, each >= 1.
        copies: even number of coins of each weight, >= 2.
        largest_order: Renyi order up to which the cost is claimed, >= 2.
        tail: probability of the noise at one end that the claim leaves out, in (0, 2^-20].
        release: name of the release; equal events of this name in ledgers of the same people are
            one release.
        count: how many numbers move, >= 1.
    """

    mechanism = "coin tosses that no party sees"

    weights: tuple[int, ...]
    copies: int
    largest_order: int
    tail: float
    release: str
    count: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        least = min(self.weights, default=0)
        if least < 1:
            raise InputError(f"SharedCoins: weights = {least} must be at least 1.")
        coins = self.coins
        # An odd number of copies could have half of an odd sum, which is no whole number.
        is_odd = self.copies % 2 == 1
        is_costly = coins.half > _LARGEST_HALF or coins.number > _MOST_COINS
        if is_odd or is_costly:
            raise InputError(
                f"SharedCoins: copies = {self.copies} of weights = {self.weights} must be an even "
                f"number, of at most {_MOST_COINS:,} coins, and all weights together at most "
                f"{2 * _LARGEST_HALF:,}."
            )
        has_order = 2 <= self.largest_order <= _LARGEST_COIN_ORDER
        if self.tail > _LARGEST_TAIL or not has_order:
            raise InputError(
                f"SharedCoins: tail = {self.tail} must be at most {_LARGEST_TAIL}, and "
                f"largest_order = {self.largest_order} from 2 to {_LARGEST_COIN_ORDER:,}."
            )

    @property
    def coins(self) -> Coins:
        """The coins that make the noise."""
        return Coins(self.weights, self.copies)

    @property
    def rho(self) -> float:
        """Truncated zCDP of one number (Bun, Dwork, Rothblum and Steinke 2018); see coins.py."""
        return cost_of(self.coins, self.largest_order, self.tail).rho

    @property
    def delta(self) -> float:
        """Probability that the noise is at an end, where the claim does not hold; see coins.py."""
        return cost_of(self.coins, self.largest_order, self.tail).escape

    @property
    def joint(self) -> str:
        """The name of the joint release, ``release``."""
        return self.release


class UnitSharedCoins(SharedCoins, frozen=True, tag="unit_shared_coins"):
    """:class:`SharedCoins` where one unit has up to ``rows`` rows, as a person may.

    Her rows add whole numbers, with a sum of at most ``rows``, to the numbers of a table; ``count``
    is how many tables there are (coins.py: `cost_of_rows`).

    Args:
        weights, copies, largest_order, tail, release: as of :class:`SharedCoins`.
        count: how many tables, >= 1.
        rows: most rows of one unit, >= 1.
    """

    mechanism = "coin tosses that no party sees, several rows of a unit"

    rows: int = 1

    @property
    def rho(self) -> float:
        """Truncated zCDP of one table; see coins.py."""
        return cost_of_rows(self.coins, self.largest_order, self.tail, self.rows).rho

    @property
    def delta(self) -> float:
        """Probability that the noise is at an end, where the claim does not hold; see coins.py."""
        return cost_of_rows(self.coins, self.largest_order, self.tail, self.rows).escape


class PaidAhead(BaseEvent, frozen=True, tag="paid_ahead"):
    """Tables that servers may open later from shares of counts, until their prices add up to this.

    A party hands its counts to servers in shares and goes; which tables they open, and with how
    much noise of coins, is decided later. Each table is a :class:`SharedCoins` whose ``count`` is
    ``moved``, read up to ``largest_order``. The servers open none with which all tables together
    would cost more than ``total`` or escape with a larger probability than ``escape``. Truncated
    zCDP adds up, also where a table and its noise are chosen after earlier answers, so the whole is
    bounded by these two (coins.py).

    Args:
        total: truncated zCDP of all tables, > 0.
        escape: probability that this does not hold, in (0, 2^-20].
        largest_order: Renyi order up to which it is claimed, >= 2.
        moved: how many numbers of a table two neighbours move, by 1 each: 1 or 2.
    """

    mechanism = "coin tosses that no party sees, in tables opened later"

    total: float
    escape: float
    largest_order: int
    moved: int

    def __post_init__(self) -> None:
        super().__post_init__()
        is_small = self.escape <= _LARGEST_TAIL
        has_order = 2 <= self.largest_order <= _LARGEST_COIN_ORDER
        if not (is_small and has_order) or self.moved not in (1, 2):
            raise InputError(
                f"PaidAhead: escape = {self.escape} must be at most {_LARGEST_TAIL}, largest_order "
                f"= {self.largest_order} from 2 to {_LARGEST_COIN_ORDER:,}, and moved = "
                f"{self.moved} 1 or 2."
            )

    @property
    def rho(self) -> float:
        """The zCDP that was paid ahead, ``total``."""
        return self.total

    @property
    def delta(self) -> float:
        """The probability that was paid ahead, ``escape``."""
        return self.escape


class UpperBound(BaseEvent, frozen=True, tag="upper_bound"):
    """A bound that a number of rows is not above: max(rows, rows + margin + discrete Gaussian).

    For neighbours of n and n + 1 rows, leave out what is at or below n + 1 on both sides: with
    ``escape`` = P(Z <= 1 - margin), that has a probability of at most ``escape``, and the rest are
    two discrete Gaussians shifted by 1, both restricted to the same numbers. Restricting adds at
    most alpha / (alpha - 1) times -log(1 - escape) to D_alpha, which is large only near alpha = 1.
    Let t = sqrt(escape / rho). At orders above 1 + t, D_alpha <= alpha (rho + 1.01 escape / t); at
    orders below it, D_alpha is at most what it is at 1 + t, (1 + t) (rho + 1.01 escape / t). So
    (1 + t) (rho + 1.01 escape / t) holds at all orders (approximate zCDP: Bun and Steinke 2016,
    Definition 8.1).

    Args:
        sigma: parameter of the noise, in rows, > 0.
        margin: what is added, at least 8 sigma.
    """

    mechanism = "discrete Gaussian over a margin"

    sigma: float
    margin: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin < 8 * self.sigma:
            raise InputError(
                f"UpperBound: margin = {self.margin} must be at least 8 sigma = {8 * self.sigma}. "
                "With less, the number itself would show too often."
            )

    @property
    def rho(self) -> float:
        """The zCDP as proven above, with the tail of :attr:`delta`."""
        return _rho_over_margin(1 / (2 * self.sigma**2), self.delta)

    @property
    def delta(self) -> float:
        """At most P(N(0, sigma^2) >= margin - 2), for the reason in :class:`ThresholdGaussian`."""
        return _tail_bound(self.margin - 2, self.sigma)


class UnitUpperBound(BaseEvent, frozen=True, tag="unit_upper_bound"):
    """:class:`UpperBound` where one unit has up to ``rows`` rows, as a person may.

    For neighbours of n and n + j rows, j from 1 to k, leave out what is at or below n + j on both
    sides: with ``escape`` = P(Z <= k - margin), that has a probability of at most ``escape``, and
    the rest are two discrete Gaussians shifted by j, both restricted to the same numbers. What
    follows is as for :class:`UpperBound`, with j^2 / (2 sigma^2) <= k^2 / (2 sigma^2) for rho.

    Args:
        sigma: parameter of the noise, in rows, > 0.
        margin: what is added, at least 8 sigma + rows - 1.
        rows: most rows of one unit, >= 1.
    """

    mechanism = "discrete Gaussian over a margin, several rows of a unit"

    sigma: float
    margin: int
    rows: int

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 8 * self.sigma + self.rows - 1
        if self.margin < least:
            raise InputError(
                f"UnitUpperBound: margin = {self.margin} must be at least 8 sigma + rows - 1 = "
                f"{least}. With less, the number itself would show too often."
            )

    @property
    def rho(self) -> float:
        """The zCDP as proven for :class:`UpperBound`, with the tail of :attr:`delta`."""
        return _rho_over_margin(self.rows**2 / (2 * self.sigma**2), self.delta)

    @property
    def delta(self) -> float:
        """At most P(N(0, sigma^2) >= margin - rows - 1), as in :class:`ThresholdGaussian`."""
        return _tail_bound(self.margin - self.rows - 1, self.sigma)


class NonPrivate(BaseEvent, frozen=True, tag="non_private"):
    """A release of something computed from rows without protection; it costs infinity.

    Args:
        reason: why, in words that the report repeats.
    """

    mechanism = "no noise"

    reason: str

    def __post_init__(self) -> None:
        if not self.reason:
            raise InputError(
                "NonPrivate: reason = '' must say why there is no protection."
            )

    def dp_event(self) -> "DpEvent":
        """Return the event of infinite cost of ``dp_accounting``."""
        from dp_accounting import NonPrivateDpEvent

        return NonPrivateDpEvent()


#: Everything that can be charged; more kinds may be added, none ever changes.
Event = (
    Gaussian
    | SharedGaussian
    | Exponential
    | Laplace
    | RandomisedResponse
    | ThresholdGaussian
    | UnitThresholdGaussian
    | SampledSharedGaussian
    | SharedCoins
    | UnitSharedCoins
    | PaidAhead
    | UpperBound
    | UnitUpperBound
    | NonPrivate
)

#: What decoding JSON that is damaged, or breaks a rule of a type, may raise. msgspec lets
#: UnicodeDecodeError through where bytes are not UTF-8.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InputError)

_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: BaseEvent) -> bytes:
    """Return an event as JSON, the same bytes for equal events."""
    return msgspec.json.encode(event)


def decode(data: bytes | str) -> Event:
    """Read an event from JSON; raises LedgerError for an unknown part or one out of bounds."""
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise LedgerError(
            f"event {data!r:.200} is not one that this version knows ({error}). "
            "Read it with the version of siloweave that wrote it."
        ) from error


def _normal_tail(distance: float, sigma: float) -> float:
    """Return P(N(0, sigma^2) >= distance)."""
    return math.erfc(distance / (sigma * math.sqrt(2))) / 2


def _tail_bound(distance: float, sigma: float) -> float:
    """Return an upper bound of P(N(0, sigma^2) >= distance), which is never 0."""
    tail = _normal_tail(distance, sigma)
    return max(tail * (1 + _ERFC_SLACK), _LEAST_FLOAT)


def _rho_over_margin(rho: float, escape: float) -> float:
    """Return the zCDP of noise above a margin, as :class:`UpperBound` proves it.

    Args:
        rho: That of the noise alone.
        escape: Probability of what both neighbours leave out.
    """
    # With t = sqrt(escape / rho): (1 + t) (rho + 1.01 escape / t) at all orders.
    t = math.sqrt(escape / rho)
    return (1 + t) * (rho + 1.01 * escape / t)


@lru_cache(maxsize=4096)
def shared_excess(share_sigma: float, shares: int) -> float:
    """Return the tau of :func:`shared_rho` for one number: how far a sum is from one Gaussian.

    The logarithm of the ratio of the mass of a sum of n discrete Gaussians of parameter s to that
    of one discrete Gaussian of parameter sqrt(n) s lies everywhere within 5 sum_{k=1}^{n-1} exp(-2
    pi^2 s^2 k/(k+1)); twice that is returned. The reason (after Kairouz, Liu and Steinke 2021): the
    mass at z of the sum of two, of parameters s and t, is that of one Gaussian times the sum over
    integers of a Gaussian of variance v = s^2 t^2 / (s^2 + t^2) around a point that depends on z.
    By Poisson summation this sum is the same for all z but for a factor within 1 +- r, r = 2
    sum_{j>=1} exp(-2 pi^2 v j^2), so after normalising the logarithm is at most log((1 + r) / (1 -
    r)) < 5 exp(-2 pi^2 v). Adding one share after the other has t^2 = k s^2, so v = s^2 k / (k+1),
    and adding a further share keeps a bound on the ratio.

    **Guarantee**: an upper bound of that logarithm, twice as large as proven.
    """
    # 2 pi^2 s^2 of the exponent, and 10 = 2 * 5 of the sum.
    exponent = (math.pi * share_sigma) ** 2 * 2
    terms = (math.exp(-exponent * k / (k + 1)) for k in range(1, shares))
    return 10 * math.fsum(terms)


@lru_cache(maxsize=4096)
def shared_rho(
    share_sigma: float, shares: int, sensitivity: float, dimension: int
) -> float:
    """Return the zCDP of a sum of discrete Gaussians.

    Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning
    with Secure Aggregation" (2021), Proposition 14: at every order alpha the Renyi divergence is
    at most alpha D^2 / (2 n s^2) + tau d, and at most alpha/2 (D / (sqrt(n) s) + tau sqrt(d))^2,
    where s >= 1/2 is the parameter of one of n shares, D the sensitivity in L2, d the dimension and
    tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 s^2 k/(k+1)).

    **Guarantee**: since alpha >= 1, the first bound is at most alpha (D^2 / (2 n s^2) + tau d),
    hence rho = min(D^2 / (2 n s^2) + tau d, (D / (sqrt(n) s) + tau sqrt(d))^2 / 2) is zCDP. With
    one share tau = 0, which is :class:`Gaussian`.
    """
    tau = shared_excess(share_sigma, shares)
    ratio = sensitivity / (math.sqrt(shares) * share_sigma)
    first = ratio**2 / 2 + tau * dimension
    second = (ratio + tau * math.sqrt(dimension)) ** 2 / 2
    return min(first, second)


def known(event: Event) -> Event:
    """Return an event unchanged; raise LedgerError for anything else, which is never priced."""
    if isinstance(event, BaseEvent):
        return event
    raise LedgerError(
        f"event of type {type(event).__name__} is unknown and therefore not priced. "
        "Record one of the events of siloweave.privacy.events."
    )


def order_of(event: Event) -> int | None:
    """Return the one Renyi order at which a list with this event may be read; mostly None."""
    order = known(event).order
    if not isinstance(order, int):
        return None
    return order
