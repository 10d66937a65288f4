"""The method that a study names: looked up, its settings checked, its budget held against it.

**Guarantee**: none of its own. A finite epsilon is refused for a method that keeps none, so that no
study file promises what its run does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from math import isfinite
from typing import Any, get_type_hints

import msgspec

from siloweave.algorithms.outcome import Info
from siloweave.algorithms.registry import METHODS
from siloweave.errors import BudgetError, InputError, RosterError, SchemaError
from siloweave.privacy.budget import Budget
from siloweave.study import check_keys, close_match, placed
from siloweave.tables.schema import Schema

__all__ = [
    "check_budget",
    "check_parties",
    "check_schema",
    "listed",
    "method_of",
    "split_columns_of",
]

_SETTING = re.compile(r"settings[.:] ?")


def listed() -> dict[str, Info]:
    """What every synthesizer is, guarantees and shows at its default settings, by name."""
    return {name: kind().stated for name, kind in METHODS.items()}


def method_of(method: Mapping[str, Any]) -> Any:
    """The synthesizer that ``[method]`` names, with its settings.

    Args:
        method: The table: ``name``, and settings; those of a network in ``[method.settings]``.

    Raises:
        InputError: The name or a setting is unknown, or a value is out of range.
    """
    name, known = method["name"], METHODS
    kind = known.get(name)
    if kind is None:
        near = close_match(name, known)
        raise InputError(
            f"[method] name = {name!r} is unknown{near} Use one of {', '.join(known)}."
        )
    given = {key: value for key, value in method.items() if key != "name"}
    try:
        synth = msgspec.convert(_nested(given, kind), kind)
        if given:  # defaults need no check, and a generator's load its network
            synth.check()
        return synth
    except msgspec.ValidationError as error:
        raise InputError(placed(error, "[method]")) from error
    except NotImplementedError as error:
        raise InputError(f"[method] {error}") from error
    except InputError as error:
        text = str(error).removeprefix("[method] ")
        where = "[method.settings] " if _SETTING.match(text) else "[method] "
        called = f" (name = {name!r})" if " is unknown" in text else ""
        raise type(error)(where + _SETTING.sub("", text, count=1) + called) from error


def _nested(given: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Put the keys of a graphical model's inner settings where they belong; in a file all lie flat.

    Raises:
        InputError: A key is unknown.
    """
    names = [field.name for field in fields(kind)]
    inner = get_type_hints(kind).get("settings")
    if not hasattr(inner, "__dataclass_fields__"):
        if "settings" in names:
            _point_below(given, names, kind)
        check_keys(given, names, "[method]")
        return dict(given)
    assert inner is not None
    outer = [name for name in names if name != "settings"]
    check_keys(given, [*outer, *(field.name for field in fields(inner))], "[method]")
    flat = {key: value for key, value in given.items() if key in outer}
    rest = {key: value for key, value in given.items() if key not in outer}
    return {**flat, "settings": rest} if rest else flat


def _point_below(given: Mapping[str, Any], names: list[str], kind: Any) -> None:
    """Say where a network's setting goes that was written beside its table.

    Raises:
        InputError: There is one.
    """
    odd = [key for key in given if key not in names]
    for key in odd:
        if key in {field.name for field in fields(kind.settings_type())}:
            raise InputError(
                f"[method] {key} is a setting of the network: write it below [method.settings]."
            )


def split_columns_of(synth: Any) -> bool:
    """Whether a method's parties hold different columns of the same people."""
    return bool(synth.info.split == "columns")


def check_budget(synth: Any, budget: Budget | None) -> None:
    """Check that a method is not asked for a bound that it does not keep, or run without one.

    Args:
        synth: The synthesizer.
        budget: The study's; None where the file has none.

    Raises:
        BudgetError: It is asked for a bound; or it adds noise, and epsilon is infinite.
        InputError: It keeps one, and the file names none.
    """
    name = synth.info.title
    if not synth.takes_budget:
        if budget is not None and isfinite(budget.epsilon):
            raise BudgetError(
                f"[budget] epsilon = {budget.epsilon}: {name} is trained without noise and keeps "
                "no bound. Write epsilon = inf, or leave [budget] out, to run it without a "
                f"guarantee; these keep one: {', '.join(_bounded(synth.info.split))}."
            )
    elif budget is None:
        raise InputError(
            f"[budget] is missing: {name} needs epsilon and delta. Only methods without a "
            "guarantee run without it."
        )
    elif not budget.private:
        without = ", or use the same method without DP" if hasattr(synth, "base") else ""
        raise BudgetError(
            f"[budget] epsilon = inf: {name} adds noise, and its amount follows from a finite "
            f"epsilon. Give one, for example epsilon = 1{without}."
        )


def _bounded(split: str) -> list[str]:
    """Names of the methods with a guarantee whose parties hold such parts."""
    return [n for n, info in listed().items() if info.guarantee == "dp" and info.split == split]


def check_parties(name: str, synth: Any, parties: int) -> None:
    """Check that a method for one party gets one.

    Raises:
        RosterError: It gets more.
    """
    if synth.info.split == "central" and parties > 1:
        split = [n for n, info in listed().items() if info.split == "rows"]
        raise RosterError(
            f"[method] name = {name!r} takes one party that sees all rows; the study has "
            f"{parties}, whose rows would have to be pooled. Keep one, or use a method for split "
            f"rows: {', '.join(split)}."
        )


def check_schema(synth: Any, schema: Schema, learn: float) -> None:
    """Check a generator against the schema: its target, and that nothing else is in the way.

    Args:
        synth: The synthesizer; graphical models learn what is open, and need no check here.
        schema: The declared columns.
        learn: Share of the budget for what is not declared.

    Raises:
        InputError: There is no such target, the method takes none, or it cannot learn a schema.
        SchemaError: The method cannot learn what the schema declares.
    """
    if learn and not synth.learns:
        raise InputError(
            f"[schema] learn = {learn}: {synth.info.title} learns no schema. Declare every bound "
            "and category in the schema's file, and leave learn out."
        )
    try:
        synth.check_schema(schema)
    except InputError as error:
        part = "schema" if isinstance(error, SchemaError) else "method"
        raise type(error)(f"[{part}] {error}") from error
