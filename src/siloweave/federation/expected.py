"""What the coordinator expects of an answer: one check for every array, number and list in it.

A reply that fits its type may still hold anything: a count below 0, a class that does not exist,
rows by the billion. A method states here what it expects before it uses a reply, and a party that
sends something else is named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.errors import SiloweaveError, WireError
from siloweave.federation import masking, messages
from siloweave.federation.messages import Array

FLOATS = ("<f2", "<f4", "<f8")
"""Types of arrays of numbers."""

WHOLE = ("<u1", "<u4", "<i4", "<i8")
"""Types of arrays of whole numbers."""

WORDS = ("<u4",)
"""Types of masked sums."""

MOST_ROWS = 2**31 - 1
"""The most rows that a party may have: no masked sum holds a larger count."""

LARGEST = 1e9
"""Size of the largest number that a network is given: far beyond any that trains, and its products
stay finite."""

WIDEST = 2**16
"""Numbers in a vector that a network reads, at most: its first layer is as wide."""

_SHOWN = 60  # characters of a value in a message

N = TypeVar("N", int, float)
S = TypeVar("S", bound=Collection[Any])
T = TypeVar("T")


@dataclass(frozen=True)
class CheckedReply:
    """Checks of what one party sent.

    Every method returns what it was given, checked, or raises WireError, which names the party,
    the field, what it held, and what it must be.

    Example:
        >>> sent = Array("<f4", (1, 2), bytes(8))
        >>> CheckedReply("clinic").array("latents", sent, FLOATS, (None, 2)).tolist()
        [[0.0, 0.0]]
        >>> CheckedReply("clinic").number("rows", 0, least=1)
        Traceback (most recent call last):
        siloweave.errors.WireError: party 'clinic' sent rows = 0; it must be 1 or more. ...
    """

    party: str

    def wrong(self, sent: str, wanted: str) -> WireError:
        """The error for what a party sent and what it must be."""
        return WireError(
            f"party {self.party!r} sent {sent}; it must be {wanted}. The reply was discarded: "
            "check which software this party runs, and start a new run"
        )

    def number(self, field: str, value: N, *, least: float = -inf, most: float = inf) -> N:
        """A finite number within bounds, both included."""
        if not (least <= value <= most and -inf < value < inf):
            raise self.wrong(f"{field} = {value:,}", _between(least, most))
        return value

    def array(
        self,
        field: str,
        array: Array,
        dtypes: Collection[str],
        shape: Sequence[int | None],
        *,
        least: float = -inf,
        most: float = inf,
        finite: str = "finite",
    ) -> npt.NDArray[Any]:
        """An array's values, all finite, of one of some types and of a shape; None fits any length.

        `finite` says in words what a number must be that is not finite.
        """
        if array.dtype not in dtypes:
            raise self.wrong(f"{field} of type {array.dtype}", " or ".join(dtypes))
        fits = len(shape) == len(array.shape) and max(array.shape, default=0) <= MOST_ROWS
        if not fits or any(n not in (k, None) for n, k in zip(shape, array.shape, strict=True)):
            wanted = ", ".join("any" if n is None else f"{n:,}" for n in shape)
            raise self.wrong(f"{field} of shape {array.shape}", f"({wanted})")
        try:
            values = array.numpy()
        except WireError as error:
            raise self.wrong(f"{field} with a number that is not finite", finite) from error
        if values.size and (least, most) != (-inf, inf):
            for found in (values.min(), values.max()):
                self.number(f"{field} with the value", found.item(), least=least, most=most)
        return values

    def reals(
        self, field: str, array: Array, shape: Sequence[int | None], *, finite: str = "finite"
    ) -> npt.NDArray[np.float32]:
        """Numbers for a network, of a size that its floats can multiply; see `array`."""
        found = self.array(field, array, FLOATS, shape, finite=finite)
        if found.size and (size := float(np.abs(found).max())) > LARGEST:
            raise self.wrong(f"{field} of size {size:g}", f"{finite}, and {LARGEST:g} at most")
        return found.astype(np.float32)

    def items(
        self, field: str, values: S, *, count: int | None = None, among: Collection[Any] = ()
    ) -> S:
        """A list, or bytes: as many as `count` says, each `among` these; any where not given."""
        if count not in (len(values), None):
            raise self.wrong(f"{len(values):,} {field}", f"{count:,}")
        for value in values:
            if among and value not in among:
                known = ", ".join(map(repr, among))
                raise self.wrong(f"{field} with {str(value)[:_SHOWN]!r}", f"among {known}")
        return values

    def json(self, field: str, text: str | bytes, read: Callable[[bytes], T]) -> T:
        """What `read` makes of JSON, which may fail with an error of ours or of msgspec's."""
        try:
            data = text.encode() if isinstance(text, str) else text
            messages.check_json(data)
            return read(data)
        except (SiloweaveError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise WireError(
                f"party {self.party!r} sent {field} that cannot be read: {error}"
            ) from error

    def key(self, field: str, key: bytes) -> bytes:
        """A public key that gives a secret with another one."""
        self.items(f"bytes of {field}", key, count=masking.KEY)
        masking.agree_with(masking.new_secret(), {self.party: key})
        return key

    def mask_key(self, field: str, signed: bytes) -> bytes:
        """A public key for masks and a signature, which the other parties check."""
        self.items(f"bytes of {field}", signed, count=masking.SIGNED)
        self.key(field, signed[: masking.KEY])
        return signed


def _between(least: float, most: float) -> str:
    if least == -inf:
        return "a finite number" if most == inf else f"{most:,} or less"
    return f"{least:,} or more" if most == inf else f"from {least:,} to {most:,}"
