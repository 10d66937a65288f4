"""A rule by which a column's kind is proposed, and what is known of a column then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from siloweave.tables.column import Kind


@dataclass(frozen=True)
class ColumnEvidence:
    """The kind that a column seems to have, and why; see `Column` for the facts.

    Attributes:
        otherwise: The other reading of its dates, where both fit all of them.
        strays: Texts in a column of numbers that are no number.
    """

    name: str
    kind: Kind
    why: str = ""
    categories: tuple[Any, ...] = ()
    format: str | None = None
    decimals: int | None = None
    padded: int | None = None
    missing_values: tuple[str, ...] = ()
    otherwise: str | None = None
    strays: tuple[str, ...] = ()
    resolution: str | None = None
    zone: str | None = None


class _Named(Protocol):
    """A column as the rules of its family see it."""

    @property
    def name(self) -> str:
        """The column's name."""


ColumnT = TypeVar("ColumnT", bound=_Named)


@dataclass(frozen=True)
class Rule(Generic[ColumnT]):
    """A way to recognise what a column holds.

    Attributes:
        name: What is recognised, as `docs/reference/kinds-of-columns.md` lists it.
        test: Whether a column holds that, if no rule before this one does.
        kind: The kind that is proposed then.
        sentence: Why. `{column.spread}` and the like are filled in from the column.
        facts: Further facts of the evidence, by name; none by default.
    """

    name: str
    test: Callable[[ColumnT], bool]
    kind: Kind
    sentence: str
    facts: Callable[[ColumnT], dict[str, Any]] | None = None

    def judge(self, column: ColumnT) -> ColumnEvidence:
        """Write down what is known of a column for which the rule holds."""
        why = self.sentence.format(column=column)
        facts = self.facts(column) if self.facts else {}
        return ColumnEvidence(column.name, self.kind, why, **facts)


def recognised_by(
    rules: Iterable[Rule[ColumnT]], column: ColumnT
) -> ColumnEvidence | None:
    """Judge a column by the first rule that holds; None if no rule does."""
    for rule in rules:
        if rule.test(column):
            return rule.judge(column)
    return None


def judged_by(rules: Iterable[Rule[ColumnT]], column: ColumnT) -> ColumnEvidence:
    """Judge a column by the first rule that holds, where the last one holds for every column.

    Example:
        >>> from siloweave.tables.kinds.rules import WHOLE_NUMBERS
        >>> from siloweave.tables.kinds.numbers import WholeNumbers
        >>> from siloweave.tables.table import Table
        >>> import numpy as np
        >>> flags = np.array([0, 1, 1])
        >>> table = Table.from_columns({"smoker": (flags, None)})
        >>> judged_by(WHOLE_NUMBERS, WholeNumbers.of("smoker", flags, table)).why
        '0 and 1: a boolean'
    """
    finding = recognised_by(rules, column)
    assert finding is not None
    return finding
