"""What a user gives a method and its fit, refused by name where it cannot be used.

**Guarantee**: nothing to protect; reads no row. What a budget means: Dwork & Roth 2014, "The
algorithmic foundations of differential privacy", definition 2.4.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self

from siloweave.errors import BudgetError, InputError, SchemaError
from siloweave.privacy.budget import Budget
from siloweave.tables.codes import Encoder
from siloweave.tables.schema import Schema

__all__ = ["TakesKnown", "checked_budget", "needed_budget", "needed_schema"]


class TakesKnown:
    """A dataclass of settings that refuses an unknown argument in one line."""

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Raise InputError where a named argument is no setting."""
        known = [field.name for field in fields(cls) if field.init]  # type: ignore[arg-type]
        for name, value in named.items():
            if name not in known:
                raise InputError(
                    f"{cls.__name__} takes no {name}; leave {name}={value!r} out. It takes "
                    f"{', '.join(known)}"
                )
        return super().__new__(cls)


def needed_schema(title: str, schema: Any, *, encoder: bool = False) -> Any:
    """The schema of a fit.

    Args:
        title: Of the method.
        schema: What was given.
        encoder: Whether an encoder may stand in its place.

    Raises:
        SchemaError: It is missing, or something else.
    """
    if isinstance(schema, Schema) or (encoder and isinstance(schema, Encoder)):
        return schema
    if schema is None:
        wrong = "schema is missing"
    elif isinstance(schema, Encoder):
        wrong = "schema is an Encoder, and this method makes its own"
    else:
        wrong = f"schema is a {type(schema).__name__}"
    raise SchemaError(
        f"{wrong}; {title} needs public facts about every column: give a Schema, for example "
        "Schema.detect(table) once you have reviewed it"
    )


def checked_budget(budget: Any) -> Budget | None:
    """A budget, or None where none was given.

    Raises:
        BudgetError: It is something else.
    """
    if budget is None or isinstance(budget, Budget):
        return budget
    raise BudgetError(
        f"budget={budget!r} is a {type(budget).__name__}; give a Budget, for example "
        "Budget(epsilon=1.0, delta=1e-6)"
    )


def needed_budget(title: str, budget: Any) -> Budget:
    """The budget of a method that adds noise.

    Raises:
        BudgetError: It is missing, or something else.
    """
    if (found := checked_budget(budget)) is None:
        raise BudgetError(
            f"budget is missing; {title} adds noise, as much as the budget allows: give "
            "budget=Budget(epsilon=1.0, delta=1e-6) or the like"
        )
    return found
