"""How numbers are written in a file: marks, currency, percent or a unit, declared by an example."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import SchemaError

_EXAMPLE = re.compile(
    r"(?P<prefix>\D*)1(?P<thousands>\D?)234(?:(?P<decimal>[.,])5)?(?P<suffix>\D*)"
)
_SPACES = " \u00a0\u202f"
_SIGN = r"[-+\u2212]?\s?"


@dataclass(frozen=True)
class NumberForm:
    """The parts of a written number, digits apart; a mark that is not used is empty.

    Example:
        >>> form = number_form("1.234,5 €")
        >>> form.thousands, form.decimal, form.suffix
        ('.', ',', ' €')
        >>> form.written(np.array([-12345.6]), 2).tolist()
        ['-12.345,60 €']
    """

    prefix: str = ""
    thousands: str = ""
    decimal: str = ""
    suffix: str = ""

    @cached_property
    def pattern(self) -> str:
        """A regular expression whose only group is the number without its sign and unit."""
        mark = f"[{_SPACES}]" if self.thousands in tuple(_SPACES) else re.escape(self.thousands)
        whole = rf"\d{{1,3}}(?:{mark}\d{{3}})+|\d+" if self.thousands else r"\d+"
        if self.decimal:
            point = re.escape(self.decimal)
            whole = rf"(?:{whole})(?:{point}\d+)?|{point}\d+"
        before, behind = re.escape(self.prefix.strip()), re.escape(self.suffix.strip())
        return rf"^[(]?{_SIGN}{before}\s?{_SIGN}({whole})\s?{behind}[)]?$"

    def written(self, values: NDArray[Any], decimals: int | None) -> NDArray[np.object_]:
        """Numbers as text, with so many decimals; without a number, with as many as they have."""
        marks = str.maketrans({",": self.thousands, ".": self.decimal})
        spec = "," if decimals is None else f",.{decimals}f"
        found = np.empty(len(values), dtype=object)
        for i, value in enumerate(values.tolist()):
            digits = format(abs(value), spec).translate(marks)
            found[i] = f"{'-' if value < 0 else ''}{self.prefix}{digits}{self.suffix}"
        return found


@lru_cache(maxsize=256)
def number_form(example: str) -> NumberForm:
    """The form of a number in which 1234.5, or 1234, is written so; SchemaError otherwise.

    Example:
        >>> number_form("$1,234.5").prefix
        '$'
    """
    found = _EXAMPLE.fullmatch(str(example))  # which a message may have as a number
    parts = {} if found is None else found.groupdict("")
    if found is None or (parts["decimal"] and parts["decimal"] == parts["thousands"]):
        raise SchemaError(
            f"format={example!r} must show how 1234.5 (or 1234) is written, such as '1.234,5 €'"
        )
    return NumberForm(**parts)
