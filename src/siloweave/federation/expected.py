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
    """Checks of a message that one party sent.

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
        """Return the error that says what a party sent, and what that must be."""
        return WireError(
            f"party {self.party!r} sent {sent}; it must be {wanted}. The reply was discarded: "
            "check which software this party runs, and start a new run"
        )

    def number(
        self, field: str, value: N, *, least: float = -inf, most: float = inf
    ) -> N:
        """Check a number that a party sent: it must be finite and within bounds, both included."""
        # NaN fails every comparison, and so the first one here.
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
        """Check an array that a party sent, and return its values.

        They must be finite, of one of some types, and of a shape.

        None in `shape` fits any length. `finite` says in words what a number must be that is not
        finite.
        """
        if array.dtype not in dtypes:
            raise self.wrong(f"{field} of type {array.dtype}", " or ".join(dtypes))
        if not _fits(array.shape, shape):
            lengths = ("any" if length is None else f"{length:,}" for length in shape)
            raise self.wrong(
                f"{field} of shape {array.shape}", f"({', '.join(lengths)})"
            )
        try:
            values = array.numpy()
        except WireError as error:
            raise self.wrong(
                f"{field} with a number that is not finite", finite
            ) from error

        # An empty array has no smallest value.
        if values.size and (least, most) != (-inf, inf):
            for extreme in (values.min(), values.max()):
                self.number(
                    f"{field} with the value", extreme.item(), least=least, most=most
                )
        return values

    def reals(
        self,
        field: str,
        array: Array,
        shape: Sequence[int | None],
        *,
        finite: str = "finite",
    ) -> npt.NDArray[np.float32]:
        """Check numbers for a network: not so large that its floats overflow; see `array`."""
        values = self.array(field, array, FLOATS, shape, finite=finite)
        # A finite number may still overflow in the network's first product, and train to NaN.
        largest = float(np.abs(values).max()) if values.size else 0.0
        if largest > LARGEST:
            raise self.wrong(
                f"{field} of size {largest:g}", f"{finite}, and {LARGEST:g} at most"
            )
        return values.astype(np.float32)

    def items(
        self,
        field: str,
        values: S,
        *,
        count: int | None = None,
        among: Collection[Any] = (),
    ) -> S:
        """Check a list, or bytes: `count` items, each `among` some values; return it.

        Without `count` any number passes, and without `among` any values.
        """
        if count not in (len(values), None):
            raise self.wrong(f"{len(values):,} {field}", f"{count:,}")
        for value in values:
            if among and value not in among:
                allowed = ", ".join(map(repr, among))
                raise self.wrong(
                    f"{field} with {str(value)[:_SHOWN]!r}", f"among {allowed}"
                )
        return values

    def json(self, field: str, text: str | bytes, read: Callable[[bytes], T]) -> T:
        """Read JSON with `read`, whose errors (ours or msgspec's) become the party's.

        WireError, which names the party, if it fails or the JSON is too large.
        """
        try:
            data = text.encode() if isinstance(text, str) else text
            # Before it is read: a few bytes a value would become a gigabyte of objects.
            messages.check_json(data)
            return read(data)
        except (
            SiloweaveError,
            msgspec.MsgspecError,
            UnicodeError,
            RecursionError,
        ) as error:
            raise WireError(
                f"party {self.party!r} sent {field} that cannot be read: {error}"
            ) from error

    def key(self, field: str, key: bytes) -> bytes:
        """Check a public key: it must give a secret with another one."""
        self.items(f"bytes of {field}", key, count=masking.KEY)
        # Tried out, as a point of small order looks like any other key: it raises here, by name,
        # and not at the party that it is relayed to.
        masking.agree_with(masking.new_secret(), {self.party: key})
        return key

    def mask_key(self, field: str, signed: bytes) -> bytes:
        """Return a public key for masks with its signature, which the other parties check."""
        self.items(f"bytes of {field}", signed, count=masking.SIGNED)
        self.key(field, signed[: masking.KEY])
        return signed


def _between(least: float, most: float) -> str:
    """Describe in words which numbers are within bounds."""
    if (least, most) == (-inf, inf):
        return "a finite number"
    if least == -inf:
        return f"{most:,} or less"
    if most == inf:
        return f"{least:,} or more"
    return f"from {least:,} to {most:,}"


def _fits(shape: Sequence[int], expected: Sequence[int | None]) -> bool:
    """Return whether a shape is the expected one, in which None stands for any number of rows."""
    if len(shape) != len(expected) or max(shape, default=0) > MOST_ROWS:
        return False
    pairs = zip(shape, expected, strict=True)
    return all(wanted is None or length == wanted for length, wanted in pairs)
