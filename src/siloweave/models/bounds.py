"""Bounds of settings: said once for every model, and refused in the same words."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from numbers import Integral, Real
from typing import Any, NamedTuple

from siloweave.errors import InputError

__all__ = [
    "AMOUNT",
    "BETAS",
    "COUNT",
    "POSITIVE",
    "SHARE",
    "TIMES",
    "UNITS",
    "WIDTHS",
    "Bound",
    "at_least",
    "check",
    "one_of",
    "or_none",
]


class Bound(NamedTuple):
    """What a setting may be.

    Attributes:
        said: In words, behind "must be".
        holds: Whether a value is that.
    """

    said: str
    holds: Callable[[Any], bool]


def at_least(low: int, *, whole: bool = True, most: float = inf) -> Bound:
    """Whole numbers from `low` on, or all finite ones; up to `most`."""
    said = f"a whole number of {low} or more" if whole else f"finite, and {low} or more"
    said += f", and {most:,} at most" if most < inf else ""
    kind = Integral if whole else Real
    return Bound(said, lambda v: issubclass(type(v), kind) and low <= v < inf and v <= most)


def one_of(*names: str) -> Bound:
    """Some names."""
    return Bound("one of " + ", ".join(map(repr, names)), lambda value: value in names)


def or_none(bound: Bound) -> Bound:
    """None is well too."""
    return Bound(f"{bound.said}, or None", lambda value: value is None or bound.holds(value))


COUNT = at_least(1, most=2**31 - 1)
"""Of rows, steps."""
UNITS = at_least(1, most=2**16)
"""Of a layer."""
TIMES = at_least(2, most=100_000)
"""Of a diffusion."""
AMOUNT = at_least(0, whole=False)
"""Of a weight in a loss."""
POSITIVE = Bound("finite, and above 0", lambda value: AMOUNT.holds(value) and value > 0)
"""A rate, a temperature, a clip."""
SHARE = Bound("in [0, 1)", lambda value: AMOUNT.holds(value) and value < 1)
"""Of units dropped, of old weights in a moving average."""
WIDTHS = Bound(
    "at most 64 widths, of 1 or more each, and 65,536 at most",
    lambda value: _each(UNITS, value) and len(value) <= 64,
)
"""Of hidden layers; none is well."""
BETAS = Bound("two numbers in [0, 1)", lambda value: _each(SHARE, value) and len(value) == 2)
"""Of Adam."""


def _each(bound: Bound, value: Any) -> bool:
    return isinstance(value, tuple) and all(map(bound.holds, value))


def check(settings: Any, **bounds: Bound) -> None:
    """Check settings; called when they are made. Lists become tuples, as JSON knows lists only.

    Args:
        settings: A frozen dataclass.
        **bounds: What each of its fields may be.

    Raises:
        InputError: A value is out of bounds; names it.

    Example:
        >>> from types import SimpleNamespace
        >>> check(SimpleNamespace(steps=0), steps=COUNT)
        Traceback (most recent call last):
        ...
        siloweave.errors.InputError: steps=0 must be a whole number of 1 or more, and ...
    """
    for name, bound in bounds.items():
        value = getattr(settings, name)
        if isinstance(value, list):
            value = tuple(value)
            object.__setattr__(settings, name, value)
        if not bound.holds(value):
            raise InputError(f"{name}={value!r} must be {bound.said}")
