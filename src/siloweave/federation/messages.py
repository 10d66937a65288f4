"""What parties and coordinator send each other, and the three seals a reply may carry.

A request is a frozen value that names the type of its reply::

    class Counts(Reply, frozen=True):
        sums: Masked

    class Count(Request[Counts], frozen=True):
        cliques: tuple[tuple[str, ...], ...]
        share_sigma: float

Every field of a reply is `Released` (paid for in the ledger), `Masked` (paid for, and only
readable in a sum) or `Public` (does not depend on rows), or a tuple of these. `wire.check_sealed`
refuses anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.errors import SiloweaveError, WireError, error_named

R = TypeVar("R", bound="Reply")
T = TypeVar("T")

_DTYPES = Literal["<f8", "<f4", "<f2", "<i8", "<i4", "<u4", "<u1"]


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of numbers whose announced shape is checked against its bytes before it is used."""

    dtype: _DTYPES
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        if len(self.shape) > 32 or any(n < 0 for n in self.shape):
            raise WireError(f"an array announces the shape {self.shape}")
        wanted = prod(self.shape) * int(self.dtype[2:])
        if wanted != len(self.data):
            raise WireError(
                f"an array of {self.dtype} and shape {self.shape} takes {wanted} bytes, "
                f"{len(self.data)} came"
            )

    @classmethod
    def of(cls, values: npt.NDArray[np.generic], dtype: _DTYPES) -> Array:
        """Pack `values` as `dtype`."""
        return cls(dtype, values.shape, np.ascontiguousarray(values, dtype=dtype).tobytes())

    def numpy(self) -> npt.NDArray[np.generic]:
        """The values, read-only; raises WireError on a number that is not finite."""
        values: npt.NDArray[np.generic] = np.frombuffer(self.data, dtype=self.dtype)
        if self.dtype[1] == "f" and not np.isfinite(values).all():
            raise WireError("an array holds a number that is not finite")
        return values.reshape(self.shape)


class Released(msgspec.Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    """A value computed from rows that was paid for; only `Site.release` makes one.

    Attributes:
        value: What leaves.
        entry: Hash of the ledger entry that paid.
        seal: Keyed digest over both, checked by the wire on the way out.
    """

    value: T
    entry: str
    seal: bytes


class Masked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One party's noisy counts under masks that cancel in the sum over the cohort.

    Attributes:
        words: Counts plus noise plus masks, modulo 2^32.
        entry: Hash of the ledger entry that paid.
        seal: Keyed digest over both, checked by the wire on the way out.
    """

    words: Array
    entry: str
    seal: bytes


class Public(msgspec.Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    """A value that does not depend on rows, and the reason why not."""

    value: T
    why: str


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of replies; every field is Released, Masked or Public."""


class Request(msgspec.Struct, Generic[R], frozen=True, tag=True, forbid_unknown_fields=True):
    """Base of requests; `Request[R]` is answered by an `R`."""


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a party does not answer: an error of ours, by its class, and its text."""

    kind: str
    text: str

    def error(self) -> SiloweaveError:
        """The error; one of a class that is not known here is a WireError."""
        return error_named(self.kind)(self.text)


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who sends what to whom, in which step of which run: a question, or the answer to one.

    A step is asked once. Asked again, with the same body, it is answered with the stored bytes.
    An answer repeats the question's run and step, and turns sender and receiver round. Steps are
    counted from 0: what a party compares them with relies on that.
    """

    run: str
    step: Annotated[int, msgspec.Meta(ge=0)]
    sender: str
    to: str
    body: bytes

    def answered(self, body: bytes) -> Envelope:
        """What answers this question."""
        return Envelope(self.run, self.step, self.to, self.sender, body)


def items(reply: Reply) -> Iterator[tuple[str, Any]]:
    """What the fields of a reply hold, by the field's name; of a tuple every item."""
    for field in reply.__struct_fields__:
        value = getattr(reply, field)
        yield from ((field, one) for one in (value if isinstance(value, tuple) else (value,)))


def payments(reply: Reply) -> set[str]:
    """Hashes of the ledger entries that paid for what is in a reply."""
    return {one.entry for _, one in items(reply) if isinstance(one, Released | Masked)}


def reply_type(request: type[Request[R]]) -> type[R]:
    """The type that answers a request, read from its `Request[...]` base."""
    for base in getattr(request, "__orig_bases__", ()):
        for argument in get_args(base):
            if isinstance(argument, type) and issubclass(argument, Reply):
                return argument  # type: ignore[return-value]
    raise TypeError(f"{request.__name__} must derive from Request[SomeReply]")
