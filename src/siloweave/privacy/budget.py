"""What a person is promised: how much may be learned, about which unit, compared with whom."""

import math
from enum import StrEnum
from numbers import Real
from typing import Literal

import msgspec

from siloweave.errors import BudgetError, InputError


class Relation(StrEnum):
    """Which two tables count as neighbours.

    ``ADD_REMOVE``: one holds a unit that the other lacks; the number of rows is private.
    ``REPLACE_ONE``: one unit has other values; the number of rows is public.
    """

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"


class Budget(msgspec.Struct, frozen=True):
    """The largest privacy loss a run may cause, and what it is measured against.

    Args:
        epsilon: bound on the privacy loss, > 0; ``math.inf`` for a method that keeps none.
        delta: probability with which ``epsilon`` may be exceeded, in (0, 1); well below one over
            the number of rows.
        unit: what one neighbour differs in; free text that reports repeat.
        relation: which tables are neighbours.

    Raises:
        BudgetError: a value is out of bounds.

    Example:
        >>> Budget(epsilon=1.0, delta=1e-6).relation
        <Relation.ADD_REMOVE: 'add_remove'>
    """

    epsilon: float
    delta: float
    unit: str = "row"
    relation: Relation = Relation.ADD_REMOVE

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
        if not self.unit:
            raise BudgetError(
                "Budget: unit = '' must not be empty. Name what is protected, for example 'row'."
            )
        if not isinstance(self.relation, Relation):
            raise BudgetError(
                f"Budget: relation = {self.relation!r} must be a Relation. "
                "Use Relation.ADD_REMOVE or Relation.REPLACE_ONE."
            )

    @property
    def private(self) -> bool:
        """Whether the budget bounds anything at all (epsilon is finite)."""
        return math.isfinite(self.epsilon)


UNBOUNDED = Budget(math.inf, 1e-6)
"""What a fit without a guarantee runs under: epsilon is infinite, and any delta is as good."""


def marginal_sensitivity(relation: Relation, *, norm: Literal["l1", "l2"]) -> float:
    """How far one unit moves a vector of counts in which every row falls into one cell.

    Args:
        relation: which tables are neighbours.
        norm: the norm of the distance.

    Returns:
        Rows: 1 for add/remove; for replace-one 2 ("l1") or the square root of 2 ("l2").

    **Guarantee**: exact and tight for one count table of disjoint cells. Several tables of the same
    rows are several releases, each charged.

    Example:
        >>> marginal_sensitivity(Relation.REPLACE_ONE, norm="l1")
        2.0
    """
    if norm not in ("l1", "l2"):
        raise InputError(f"marginal_sensitivity: norm = {norm!r} must be 'l1' or 'l2'.")
    if Relation(relation) is Relation.ADD_REMOVE:
        return 1.0
    return 2.0 if norm == "l1" else math.sqrt(2.0)


def size_sensitivity(relation: Relation) -> float:
    """How far one unit moves the number of rows: 1 for add/remove, 0 for replace-one.

    **Guarantee**: exact. Under replace-one the number of rows is public by definition.
    """
    return 1.0 if Relation(relation) is Relation.ADD_REMOVE else 0.0


def l1_score_sensitivity(relation: Relation) -> float:
    """How far one unit moves the L1 distance between a count table and a fixed vector.

    Returns:
        Rows: 1 for add/remove, 2 for replace-one.

    **Guarantee**: holds for counts compared with numbers that do not depend on the rows. It does
    not hold when the vector is scaled by the private number of rows (then up to 2 for add/remove),
    nor for counts divided by it.
    """
    return marginal_sensitivity(relation, norm="l1")
