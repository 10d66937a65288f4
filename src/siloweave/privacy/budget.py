"""What a person is promised (how much may be learned, about which unit), and the noise it takes.

Noise is found with the events and the accountant that the ledger will use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from numbers import Real
from statistics import NormalDist
from typing import Literal

import msgspec

from siloweave.errors import BudgetError, InputError, UnitError
from siloweave.privacy.accountants import epsilon_of_rho, round_up
from siloweave.privacy.events import Gaussian, shared_rho


class Relation(StrEnum):
    """The relation by which two tables count as neighbours.

    ``ADD_REMOVE``: one holds a unit that the other lacks; the number of rows is private.
    ``REPLACE_ONE``: one unit has other values; the number of rows is public.
    """

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"


class Neighbours(msgspec.Struct, frozen=True):
    """The relation by which two tables count as neighbours, and the rows in which they may differ.

    Every sensitivity is a function of this value, so that none can be computed without the number
    of rows.

    Args:
        relation: whether units come and go, or are replaced.
        rows: most rows of one unit, >= 1; a party keeps no more (tables/units.py).

    Raises:
        BudgetError: `rows` is no whole number of at least 1, or is above 1 where units are
            replaced.

    Example:
        >>> marginal_sensitivity(Neighbours(Relation.ADD_REMOVE, rows=5), norm="l2")
        5.0
    """

    relation: Relation = Relation.ADD_REMOVE
    rows: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.relation, Relation):
            raise BudgetError(
                f"Neighbours: relation = {self.relation!r} must be a Relation. "
                "Use Relation.ADD_REMOVE or Relation.REPLACE_ONE."
            )
        _check_whole("Neighbours", "rows", self.rows)
        if self.rows > 1 and self.replaces:
            raise BudgetError(f"Neighbours: rows = {self.rows}, but {_NO_REPLACEMENT}")

    @property
    def replaces(self) -> bool:
        """Whether one unit has other values, so that the number of rows is public."""
        return self.relation is Relation.REPLACE_ONE


ROW = "row"
"""The unit that needs no column: one row."""

_NO_REPLACEMENT = (
    "a person who is replaced by another may have another number of rows, so the number of rows is "
    "not public. Use Relation.ADD_REMOVE with a unit other than a row."
)


def _check_whole(owner: str, name: str, value: object) -> None:
    """Raise BudgetError for a value that is not a whole number of at least 1."""
    # To Python, True is the whole number 1.
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BudgetError(
            f"{owner}: {name} = {value!r} must be a whole number of at least 1, for example 5."
        )


class Budget(msgspec.Struct, frozen=True):
    """The largest privacy loss that a run may cause, and the neighbours that it is measured by.

    Args:
        epsilon: bound on the privacy loss, > 0; ``math.inf`` for a method that keeps none.
        delta: probability with which ``epsilon`` may be exceeded, in (0, 1); well below one over
            the number of rows.
        unit: what one neighbour differs in: "row", or the name of an id column of the schema. All
            rows with one id are one unit.
        relation: which tables are neighbours; only ``ADD_REMOVE`` with a unit other than a row.
        rows_per_unit: most rows of one id that take part; each party leaves out the rest before
            anything is counted. Required for a unit other than a row; 1 for a row.
        parties_per_unit: at how many parties with split rows one id may have rows; 1 for a row.
            Epsilon holds for the rows at one party, and reports show what several cost.

    Raises:
        BudgetError: a value is out of bounds.

    Example:
        >>> Budget(epsilon=1.0, delta=1e-6).relation
        <Relation.ADD_REMOVE: 'add_remove'>
        >>> Budget(epsilon=1.0, delta=1e-6, unit="patient_id", rows_per_unit=5).neighbours.rows
        5
    """

    epsilon: float
    delta: float
    unit: str = ROW
    relation: Relation = Relation.ADD_REMOVE
    rows_per_unit: int | None = None
    parties_per_unit: int = 1

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise BudgetError(
                    f"Budget: {name} = {value!r} is a {type(value).__name__}, not a number. "
                    "Give numbers, for example Budget(epsilon=1.0, delta=1e-6)."
                )
        if math.isnan(self.epsilon) or self.epsilon <= 0:
            raise BudgetError(
                f"Budget: epsilon = {self.epsilon} must be greater than 0. "
                "Give a positive number, or math.inf for a method that keeps no bound."
            )
        if not 0 < self.delta < 1:
            raise BudgetError(
                f"Budget: delta = {self.delta} must lie strictly between 0 and 1. "
                "Choose it well below 1 / number of rows, for example 1e-6."
            )
        if not isinstance(self.relation, Relation):
            raise BudgetError(
                f"Budget: relation = {self.relation!r} must be a Relation. "
                "Use Relation.ADD_REMOVE or Relation.REPLACE_ONE."
            )
        if not self.unit:
            raise BudgetError(
                f"Budget: unit = {self.unit!r} must be 'row' or the name of an id column of the "
                "schema."
            )
        self._check_rows()

    def _check_rows(self) -> None:
        """Refuse numbers of rows and of parties that do not fit the unit."""
        _check_whole("Budget", "parties_per_unit", self.parties_per_unit)

        # A row is one row, at one party.
        if self.unit == ROW:
            # The one place where a frozen budget is changed: nobody has it yet.
            if self.rows_per_unit is None:
                msgspec.structs.force_setattr(self, "rows_per_unit", 1)
            _check_whole("Budget", "rows_per_unit", self.rows_per_unit)
            for name in ("rows_per_unit", "parties_per_unit"):
                if getattr(self, name) != 1:
                    raise BudgetError(
                        f"Budget: {name} = {getattr(self, name)}, but unit = 'row'. Leave it out, "
                        "or set unit to the id column that names whose row it is."
                    )
            return

        # A person's rows have to be bounded: every sensitivity is a multiple of their number.
        if self.rows_per_unit is None:
            raise BudgetError(
                f"Budget: rows_per_unit is missing, and unit = {self.unit!r} is not a row. Give "
                "the most rows of one id that take part, for example rows_per_unit=5; each party "
                "leaves out the rest."
            )
        _check_whole("Budget", "rows_per_unit", self.rows_per_unit)
        if self.relation is Relation.REPLACE_ONE:
            raise BudgetError(
                f"Budget: relation = 'replace_one' with unit = {self.unit!r}, but {_NO_REPLACEMENT}"
            )

    @property
    def by_row(self) -> bool:
        """Whether the unit is a single row."""
        return self.unit == ROW

    @property
    def neighbours(self) -> Neighbours:
        """The neighbours on which every sensitivity depends: the relation, and a unit's rows."""
        # `_check_rows` replaced None, or refused it.
        assert self.rows_per_unit is not None
        return Neighbours(self.relation, self.rows_per_unit)

    @property
    def protected(self) -> str:
        """The unit of protection in words, for errors.

        Example:
            >>> Budget(1.0, 1e-6, "patient_id", rows_per_unit=5).protected
            "a 'patient_id' with at most 5 rows under 'add_remove'"
        """
        rows = "" if self.by_row else f" with at most {self.rows_per_unit} rows"
        return f"a {self.unit!r}{rows} under {str(self.relation)!r}"

    def protects_alike(self, other: Budget) -> bool:
        """Return whether two budgets protect the same neighbours, so that their costs add up."""
        return (self.unit, self.neighbours) == (other.unit, other.neighbours)

    @property
    def private(self) -> bool:
        """Whether the budget bounds anything at all (its epsilon is finite)."""
        return math.isfinite(self.epsilon)


def refuse_several_rows(budget: Budget, title: str, missing: str) -> None:
    """Refuse units of several rows, for a method that knows no sound bound for them yet.

    Args:
        budget: The promise.
        title: The method's.
        missing: What is missing, as a clause.

    Raises:
        UnitError: A unit may have more than one row.
    """
    rows = budget.neighbours.rows
    if rows > 1:
        raise UnitError(
            f"{title}: rows_per_unit = {rows} with unit = {budget.unit!r} is not implemented: "
            f"{missing}. Give rows_per_unit = 1, or a method that protects several rows of one "
            "unit, such as TwoRound or SecureTwoRound. Nothing was read"
        )


UNBOUNDED = Budget(math.inf, 1e-6)
"""What a fit without a guarantee runs under: epsilon is infinite, and any delta is as good."""


def _of(neighbours: Neighbours, function: str) -> Neighbours:
    """Check that neighbours were given and return them; InputError for a bare relation."""
    if isinstance(neighbours, Neighbours):
        return neighbours
    raise InputError(
        f"{function}: neighbours = {neighbours!r} must be a Neighbours, which has the number of "
        "rows of one unit beside the relation. Use Budget.neighbours."
    )


def marginal_sensitivity(neighbours: Neighbours, *, norm: Literal["l1", "l2"]) -> float:
    """Return how far one unit moves a vector of counts in which every row falls into one cell.

    Args:
        neighbours: the relation, and how many rows one unit has at most.
        norm: the norm of the distance.

    Returns:
        Rows: k for add/remove of k rows; for replace-one 2 ("l1") or the square root of 2 ("l2").

    **Guarantee**: exact and tight for one count table of disjoint cells. The k rows of a unit add
    a vector of whole numbers with sum k, whose L2 norm is at most its L1 norm, k; both are reached
    where all rows fall into one cell. Several tables of the same rows are several releases, each
    charged.

    Example:
        >>> marginal_sensitivity(Neighbours(Relation.REPLACE_ONE), norm="l1")
        2.0
    """
    if norm not in ("l1", "l2"):
        raise InputError(f"marginal_sensitivity: norm = {norm!r} must be 'l1' or 'l2'.")
    if not _of(neighbours, "marginal_sensitivity").replaces:
        return float(neighbours.rows)
    # A replaced row leaves one cell and enters another: the vector moves by -1 and by 1.
    return 2.0 if norm == "l1" else math.sqrt(2.0)


def size_sensitivity(neighbours: Neighbours) -> float:
    """Return how far one unit moves the number of rows.

    That is k for add/remove of k rows, and 0 for replace-one.

    **Guarantee**: exact. Under replace-one the number of rows is public by definition.
    """
    if _of(neighbours, "size_sensitivity").replaces:
        return 0.0
    return float(neighbours.rows)


def l1_score_sensitivity(neighbours: Neighbours) -> float:
    """Return how far one unit moves the L1 distance between a count table and a fixed vector.

    Returns:
        Rows: k for add/remove of k rows, 2 for replace-one.

    **Guarantee**: holds for counts compared with numbers that do not depend on the rows. It does
    not hold when the vector is scaled by the private number of rows (then up to 2 for each row that
    is added or removed), nor for counts divided by it.
    """
    # The distance moves by at most as much as the table does (triangle inequality).
    return marginal_sensitivity(neighbours, norm="l1")


def r_score_sensitivity(neighbours: Neighbours) -> float:
    """Return how far one unit moves an R-score, (n / 2) ||P_ij - P_i x P_j||_1 in whole rows.

    Returns:
        Rows: 2 k for add/remove of k rows, 3 for replace-one; `statistics.marginals.r_score`
        rounds down.

    **Guarantee**: holds although n is private and changes. Let c be the table of a pair, a and b
    its sums, p = a / n, q = b / n and M = c - a b' / n, so that the score is ||M||_1 / 2. With one
    more row, at (x, y),

        M_new - M = n / (n + 1) (e_x - p) (e_y - q)',                                    (1)

    because the left side is e_x e_y' - ((n p + e_x) (n q + e_y)' / (n + 1) - n p q'). Both factors
    have an L1 norm of at most 2, so the score moves by at most 2 n / (n + 1) < 2. A unit of k rows
    is added row by row, each of which moves the score by less than 2, whatever rows are there
    already: together by less than 2 k.
    Replacing the row (x, y) by (u, v) beside m others adds, by (1) twice, m / (m + 1) times
    (e_u e_v' - e_x e_y') - (e_u - e_x) q' - p (e_v - e_y)', three terms of norm 2 each: the score
    moves by at most 3 m / (m + 1) < 3. Rounded down, two scores less than k apart, k whole, are at
    most k apart. The bounds for one row are approached: by a row (1, 1) beside n rows (0, 0), and
    by a row that leaves one rare value pair for another one (tests/privacy/test_budget.py); that
    for k rows by k rows (1, 1). The published 2 (as 2 / n of a distance) is that of add/remove, and
    too small where a row is replaced.
    """
    if _of(neighbours, "r_score_sensitivity").replaces:
        return 3.0
    return 2.0 * neighbours.rows


# Relative; how much more noise than needed a calibrated step may have.
_CLOSE = 1e-3
# Relative; more than what a search for a root may be below it.
_CLOSEST = 1e-11
# Noise multiplier; nothing is learned from less signal.
_WIDEST = 1e6
# Noise multiplier below which no less noise is sought.
_NARROWEST = 1e-3
# Relative part of rho that is not spent, so that adding up shares of it cannot overshoot.
_SPARE = 1e-9


def rho_for(budget: Budget) -> float:
    """Return the largest zCDP that a ledger reads as at most ``budget.epsilon`` at its delta.

    It is infinite for a budget without privacy; BudgetError if one is too small for any release.

    **Guarantee**: ``epsilon`` of any events with this total zCDP is never above
    ``budget.epsilon``. One part in a billion is not spent, for the rounding of sums.
    """
    if not budget.private:
        return math.inf
    return _rho_for(budget.epsilon, budget.delta)


@lru_cache(maxsize=4096)
def _rho_for(epsilon: float, delta: float) -> float:
    """Return the largest zCDP that reads as at most `epsilon`; BudgetError if that is 0."""
    # Double, until `high` costs too much. `low` never does, so it is what is returned.
    low = 0.0
    high = min(1.0, epsilon)
    while epsilon_of_rho(high, delta) <= epsilon:
        low = high
        high = 2 * high

    # Halve the interval, to 12 digits where 60 times suffice for that.
    for _ in range(60):
        middle = (low + high) / 2
        if high - low <= 1e-12 * high or middle in (low, high):
            break
        if epsilon_of_rho(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    if low == 0:
        raise BudgetError(
            f"rho_for: epsilon = {epsilon} at delta = {delta} leaves no zCDP to spend. "
            "Raise epsilon or delta."
        )
    return low * (1 - _SPARE)


def enough_epsilon(budget: Budget, suffices: Callable[[Budget], bool]) -> float:
    """Find an epsilon of two digits that suffices, at most about a tenth above the smallest."""
    epsilon = budget.epsilon
    # Large steps first, for a budget that is far too small. After each loop one step suffices.
    for step in (1000.0, 2.0, 1.05):
        while not suffices(msgspec.structs.replace(budget, epsilon=step * epsilon)):
            epsilon *= step
    # 5 percent more, as rounding to two digits may take as much away.
    return float(f"{1.05 * step * epsilon:.2g}")


def _check_rho(name: str, rho: float) -> None:
    """Raise InputError for a zCDP that no noise can be found for."""
    if not (math.isfinite(rho) and rho > 0):
        raise InputError(
            f"{name}: rho = {rho} must be finite and greater than 0. "
            "A run without privacy adds no noise and records a NonPrivate event."
        )


def gaussian_sigma(rho: float, sensitivity: float) -> float:
    """Return the least discrete Gaussian noise that costs at most ``rho``.

    That is sensitivity / sqrt(2 rho), from rho = sensitivity^2 / (2 sigma^2) (Canonne, Kamath and
    Steinke 2020, Theorem 4). It is in the unit of the numbers released; ``sensitivity`` is that of
    the release, in L2.

    **Guarantee**: ``Gaussian(sigma, sensitivity)`` is priced at no more than ``rho``.
    """
    _check_rho("gaussian_sigma", rho)
    sigma = sensitivity / math.sqrt(2 * rho)
    # Rounding may leave it a last digit too small.
    while Gaussian(sigma=sigma, sensitivity=sensitivity).rho > rho:
        sigma = math.nextafter(sigma, math.inf)
    return sigma


@lru_cache(maxsize=4096)
def share_sigma(
    rho: float, *, sensitivity: float, shares: int, tolerated: int, dimension: int
) -> float:
    """Return the noise of each party's share with which a masked sum costs at most ``rho``.

    Of the ``shares``, those of ``tolerated`` parties are not counted on. ``sensitivity`` is that of
    the sum, in L2, and ``dimension`` how many numbers it has. The noise is at least 1, so a
    generous ``rho`` is not used up entirely.

    **Guarantee**: ``SharedGaussian`` with these values is priced at no more than ``rho``.
    """
    _check_rho("share_sigma", rho)
    noisy_shares = shares - tolerated
    if not 0 <= tolerated < shares:
        raise InputError(
            f"share_sigma: tolerated = {tolerated} must be at least 0 and below shares = {shares}."
        )

    def costs_too_much(sigma: float) -> bool:
        return shared_rho(sigma, noisy_shares, sensitivity, dimension) > rho

    # Were the sum one Gaussian, this would be enough. Events refuse shares below 1.
    low = max(1.0, sensitivity / math.sqrt(2 * rho * noisy_shares))
    if not costs_too_much(low):
        return low

    # It is none, so a little more is needed: in steps of a percent, then by halving.
    high = low
    while costs_too_much(high):
        low = high
        high = high * 1.01
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if costs_too_much(middle):
            low = middle
        else:
            high = middle
    return high


def falls_to(cost: Callable[[float], float], target: float) -> float | None:
    """Find a number at which a falling cost is at most the target, to 0.1 percent.

    None where that would be above 1e6. The cost falls, nearly as a power: a line through two points
    on logarithmic axes is tried first, between bounds that halve when it does not help. A reading
    takes a tenth of a second.
    """
    # Bounds: `high` costs at most the target, and `low` more.
    low = 1.0
    high = 1.0
    while cost(high) > target:
        low = high
        high = 2 * high
        if high > _WIDEST:
            return None
    while low >= high:
        low /= 2
        if cost(low) <= target:
            high = low
        if high < _NARROWEST:
            return high

    while high > low * (1 + _CLOSE):
        # Where the line between both bounds meets the target, as a part of the way between them.
        above = math.log(max(cost(low) / target, 1e-300))
        below = math.log(max(cost(high) / target, 1e-300))
        has_line = math.isfinite(above) and above > below
        part = above / (above - below) if has_line else 0.5

        # A little beyond that point and a little before it: if both fall on their own side, the
        # bounds are close. The middle is tried only where that did not halve them.
        base = low
        width = math.log(high / low)
        margin = 0.3 * _CLOSE / width
        for share in (part + margin, part - margin, 0.5):
            middle = base * math.exp(width * share)
            is_halved = share == 0.5 and high < low * math.exp(width / 2)
            if is_halved or not low < middle < high:
                continue
            if cost(middle) <= target:
                high = middle
            else:
                low = middle
    return high


def mu_of_separation(separation: float) -> float:
    """Return the mu of Gaussian differential privacy whose trade-off curve has this separation.

    The curve meets the diagonal at a = Phi(-mu/2), and separation = sqrt(2) abs(a - 1/2) (Dong,
    Roth and Su, "Gaussian Differential Privacy", 2022, for the curve).
    """
    if not 0 < separation < math.sqrt(0.5):
        raise InputError(
            f"mu_of_separation: separation = {separation} must lie between 0 (perfect privacy) "
            "and 0.7071 (none)."
        )
    meeting_point = 0.5 - separation / math.sqrt(2)
    return -2 * NormalDist().inv_cdf(meeting_point)


def budget_of_separation(
    separation: float, delta: float, *, relation: Relation = Relation.ADD_REMOVE
) -> Budget:
    """Return the budget whose epsilon a Gaussian mechanism of this separation has at ``delta``.

    Separation 0.1, 0.15 and 0.2 are how Zhu et al. ("Quantifying and Mitigating Privacy Risks for
    Tabular Generative Models", 2024) state budgets. This is the exchange rate: mu of
    :func:`mu_of_separation`, and epsilon of :func:`gdp_epsilon`.

    One number stands for a whole trade-off curve, and so does the other. A run that keeps to the
    budget has *this* epsilon at *this* delta; its own curve is not that of a Gaussian, so its
    separation may be below or above the one asked for. What follows from (epsilon, delta) alone is
    a separation of at most sqrt(1/2) (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).

    Args:
        separation: in (0, sqrt(2)/2).
        delta: of the budget, in (0, 1).
        relation: which tables are neighbours.

    Example:
        >>> [round(budget_of_separation(s, 1e-5).epsilon, 2) for s in (0.1, 0.15, 0.2)]
        [1.37, 2.16, 3.03]
    """
    epsilon = gdp_epsilon(mu_of_separation(separation), delta)
    return Budget(epsilon, delta, relation=relation)


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon at ``delta`` of mu-Gaussian differential privacy.

    **Guarantee**: exact up to rounding, which is upwards.
    """
    from dp_accounting import get_epsilon_gaussian

    # mu is the sensitivity over sigma. The root that is sought may come out a little too small.
    epsilon = get_epsilon_gaussian(1 / mu, delta)
    return round_up(epsilon * (1 + _CLOSEST))
