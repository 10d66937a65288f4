"""What parties and coordinator send each other, and the four seals a reply may carry.

A request is a frozen value that names the type of its reply::

    class Counts(Reply, frozen=True):
        sums: Masked

    class Count(Request[Counts], frozen=True):
        cliques: tuple[tuple[str, ...], ...]
        share_sigma: float

Every field of a reply is `Released` (paid for in the ledger), `Masked` (paid for, and only
readable in a sum), `Relayed` (masked, and encrypted to another party) or `Public` (does not depend
on rows), or a tuple of these. `check_sealed` refuses anything else.

Bytes are typed, measured before anything is allocated, and sealed on the way out. MessagePack
announces lengths before contents, so a forged header of five bytes may promise four billion items;
msgspec checks a promise against the bytes that are left before it allocates (the tests hold it to
that), and `Array` checks shape against bytes. Items are counted before they are made: a number of
one byte on the wire takes some twenty in memory, a short text three times that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from math import prod
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.errors import SiloweaveError, WireError, error_named, shortened

R = TypeVar("R", bound="Reply")
T = TypeVar("T")

_DTYPES = Literal["<f8", "<f4", "<f2", "<i8", "<i4", "<u4", "<u1"]


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of numbers whose announced shape is checked against its bytes before it is used."""

    dtype: _DTYPES
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        # numpy before 2.0 has 32 dimensions at most; two lengths below 0 have a product above 0,
        # which may fit the bytes.
        if len(self.shape) > 32 or any(length < 0 for length in self.shape):
            raise WireError(f"an array announces the shape {self.shape}")
        # `prod` counts in Python's integers, which no announced shape makes overflow.
        item_bytes = int(self.dtype[2:])
        expected = prod(self.shape) * item_bytes
        if expected != len(self.data):
            raise WireError(
                f"an array of {self.dtype} and shape {self.shape} takes {expected} bytes, "
                f"{len(self.data)} came"
            )

    @classmethod
    def of(cls, values: npt.NDArray[np.generic], dtype: _DTYPES) -> Array:
        """Pack values as an array of type `dtype`."""
        return cls(
            dtype, values.shape, np.ascontiguousarray(values, dtype=dtype).tobytes()
        )

    def numpy(self) -> npt.NDArray[np.generic]:
        """Return the values as a read-only array; raises WireError unless all are finite."""
        values: npt.NDArray[np.generic] = np.frombuffer(self.data, dtype=self.dtype)
        # One NaN in a sum or an average would make the whole of it NaN.
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


class Recovery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data that open a party's masks if others, or it, vanish; see dropouts.py.

    Attributes:
        digests: Of its seeds.
        sealed: Shares of them, encrypted to every party of the cohort.
    """

    digests: bytes
    sealed: dict[str, bytes]


class Masked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One party's noisy counts under masks that cancel in the sum over the cohort.

    Attributes:
        words: Counts plus noise plus masks, modulo 2^32.
        entry: Hash of the ledger entry that paid.
        seal: Keyed digest over all else, checked by the wire on the way out.
        recovery: Where parties may vanish.
        proofs: Elsewhere, for each other party, what shows it that both received the same.
    """

    words: Array
    entry: str
    seal: bytes
    recovery: Recovery | msgspec.UnsetType = msgspec.UNSET
    proofs: dict[str, bytes] = {}

    @property
    def value(self) -> Any:
        """The data that are sealed with the ledger's entry."""
        # One of both is empty: proofs are sent where no party may vanish, recovery where one may.
        if isinstance(self.recovery, msgspec.UnsetType):
            return [self.words, self.proofs]
        return [self.words, self.recovery]


class Relayed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Words under a one-time mask, encrypted to other parties; only `Site.relay` makes one.

    Who carries it cannot read it, and who can read it does not know the mask.

    Attributes:
        data: Encrypted under a key of its own.
        keys: That key, encrypted to every party that is to read it.
        seal: Keyed digest over both, checked by the wire on the way out.
    """

    data: bytes
    keys: dict[str, bytes]
    seal: bytes


class Public(msgspec.Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    """A value that does not depend on rows, and the reason why not."""

    value: T
    why: str


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of replies; every field is Released, Masked, Relayed or Public."""


class Request(
    msgspec.Struct, Generic[R], frozen=True, tag=True, forbid_unknown_fields=True
):
    """Base of requests; `Request[R]` is answered by an `R`."""


LONGEST_TEXT = 4000
"""Characters of an error that crosses: whoever is at the other end may have made it longer."""


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a party does not answer: an error of ours, by its class, and its text."""

    kind: str
    text: str

    def error(self) -> SiloweaveError:
        """Return the refusal as an error; a WireError if its class is not known here.

        Of a long text only the beginning stays.
        """
        # By name among this package's errors alone: a peer cannot name any other class.
        return error_named(self.kind)(shortened(self.text, LONGEST_TEXT))


class Envelope(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A question or answer, with its sender, receiver, run and step.

    A step is asked once. Asked again, with the same body, it is answered with the stored bytes.
    An answer repeats the question's run and step, and turns sender and receiver round. Steps are
    counted from 0: what a party compares them with relies on that.

    A question may bring the one of the step after it along (`then`), which does not depend on the
    answer. Both are answered as if they came one by one, and both answers travel together.

    With the question after a masked sum come the `proofs` of the other parties in it.
    """

    run: str
    step: Annotated[int, msgspec.Meta(ge=0)]
    sender: str
    to: str
    body: bytes
    then: bytes = b""
    proofs: dict[str, bytes] = {}

    @property
    def next(self) -> Envelope:
        """The next question, `then`, in an envelope of its own."""
        return Envelope(self.run, self.step + 1, self.sender, self.to, self.then)

    def answered(self, body: bytes) -> Envelope:
        """Return an envelope with the answer to this question."""
        return Envelope(self.run, self.step, self.to, self.sender, body)


def items(reply: Reply) -> Iterator[tuple[str, Any]]:
    """Yield a reply's values with the names of their fields; a tuple's items one by one."""
    for field in reply.__struct_fields__:
        value = getattr(reply, field)
        field_items = value if isinstance(value, tuple) else (value,)
        for item in field_items:
            yield field, item


def payments(reply: Reply) -> set[str]:
    """Return the hashes of the ledger entries that paid for the values in a reply."""
    return {
        item.entry for _, item in items(reply) if isinstance(item, Released | Masked)
    }


def reply_type(request: type[Request[R]]) -> type[R]:
    """Return the type of a request's answers, read from its base `Request[...]`."""
    for base in getattr(request, "__orig_bases__", ()):
        for argument in get_args(base):
            if isinstance(argument, type) and issubclass(argument, Reply):
                return argument  # type: ignore[return-value]
    raise TypeError(f"{request.__name__} must derive from Request[SomeReply]")


# Bytes in and out

MAX_BYTES = 256 * 2**20
"""Largest message, in bytes, that is looked at."""

MAX_ITEMS = 2**22
"""Most items (numbers, texts, byte strings, lists, keys) of a message, or of JSON in one.

An item takes up to 80 bytes of memory beside its own text or bytes, however few it takes on the
wire, so that a message takes about as much again as `MAX_BYTES` at most.
"""

# MessagePack's specification, section "Formats": an item's first byte says what follows it.
# Bytes that follow, where their number is fixed: numbers, ...
_FIXED = {
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
}
# ... extensions of a fixed length, and the lengths of long lists and maps, ...
_FIXED |= {
    0xD4: 2,
    0xD5: 3,
    0xD6: 5,
    0xD7: 9,
    0xD8: 17,
    0xDC: 2,
    0xDD: 4,
    0xDE: 2,
    0xDF: 4,
}
# ... and texts below 32 bytes, whose length is in the first byte.
_FIXED |= {0xA0 + size: size for size in range(32)}
# Bytes after an item's first one.
_AFTER = tuple(_FIXED.get(first, 0) for first in range(256))

# Bytes of the length that follows, and tells how many more do: bytes, extensions, long texts.
_SIZED = {
    0xC4: 1,
    0xC5: 2,
    0xC6: 4,
    0xC7: 1,
    0xC8: 2,
    0xC9: 4,
    0xD9: 1,
    0xDA: 2,
    0xDB: 4,
}
_EXTENSIONS = (0xC7, 0xC8, 0xC9)  # their kind, one byte, follows the length

S = TypeVar("S")


def encode(message: msgspec.Struct) -> bytes:
    """Encode a message as MessagePack; WireError if no receiver would read so much."""
    data = msgspec.msgpack.encode(message)
    if len(data) > MAX_BYTES:
        raise WireError(
            f"a {type(message).__name__} of {len(data):,} bytes exceeds the {MAX_BYTES:,} bytes "
            "that a message may have; use a smaller workload or model"
        )
    _check_items(data)
    return data


def _check_items(data: bytes) -> None:
    """Refuse a message of too many items; one with fewer bytes than that is not searched."""
    # An item has a byte at least, so that a short message cannot hold too many.
    if len(data) <= MAX_ITEMS:
        return

    place = 0
    count = 0
    while place < len(data):
        first = data[place]
        place += 1 + _AFTER[first]
        length_bytes = _SIZED.get(first)
        if length_bytes:
            # A forged length leads beyond the end, which ends the walk: the decoder refuses it.
            size = int.from_bytes(data[place : place + length_bytes], "big")
            place += length_bytes + size + (first in _EXTENSIONS)
        count += 1
        if count > MAX_ITEMS:
            raise WireError(
                f"a message of more than {MAX_ITEMS:,} items was refused unread; use a smaller "
                "workload"
            )


def check_json(text: bytes) -> None:
    """Raise WireError for JSON with more than `MAX_ITEMS` items, before it is parsed."""
    # Each item but the first follows one of these; those inside texts only make it stricter.
    count = sum(map(text.count, (b",", b":", b"[", b"{"))) + 1
    if count > MAX_ITEMS:
        raise WireError(
            f"JSON of {count:,} items exceeds {MAX_ITEMS:,}; refused unread"
        )


def decode(data: bytes, kind: type[S]) -> S:
    """Decode a message of type `kind`.

    WireError if it is too long, cut off, malformed or out of range.
    """
    # Both checks stand before the decoder, which allocates what it reads.
    if len(data) > MAX_BYTES:
        raise WireError(
            f"a message of {len(data):,} bytes exceeds {MAX_BYTES:,}; refused unread"
        )
    _check_items(data)
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a {getattr(kind, '__name__', kind)}: {error}") from error


_MIXED_UP = {
    "sender": "it comes from another sender",
    "to": "it is meant for someone else",
    "run": "it is of another run",
    "step": "it is stale, or early: of another step",
}


def answer_to(question: Envelope, frame: bytes) -> Envelope:
    """Decode a frame, and check that its envelope answers this question.

    WireError if it is no envelope, or answers something else: a reply that was kept and is sent
    again, or of another party, fits its type as well as the right one.
    """
    answer = decode(frame, Envelope)
    expected = question.answered(b"")
    for field, problem in _MIXED_UP.items():
        received_value = getattr(answer, field)
        expected_value = getattr(expected, field)
        if received_value != expected_value:
            raise WireError(
                f"the answer's {field} is {received_value!r} and must be {expected_value!r}: "
                f"{problem}. Nothing of it was used; find out what mixes up answers on their way, "
                "and start the run again"
            )
    return answer


def body_digest(body: bytes, sender: str = "") -> bytes:
    """Return the digest by which a step recognises its question's body, and the sender."""
    # A salt has 16 bytes at most, and a name may be longer. With the sender in the digest, another
    # end cannot fetch the stored answer to somebody else's question by repeating it.
    salt = blake2b(sender.encode(), digest_size=16).digest() if sender else b""
    return blake2b(body, digest_size=32, salt=salt, person=b"siloweave step").digest()


@lru_cache(maxsize=4)
def _decoded(
    digest: bytes, body: bytes, kinds: tuple[type[Request[Any]], ...]
) -> Request[Any]:
    kind: Any = Union[kinds]  # noqa: UP007
    request: Request[Any] = decode(body, kind)
    return request


def decode_request(
    body: bytes, table: Mapping[type[Request[Any]], Callable[..., Reply]]
) -> Request[Any]:
    """Decode the request in `body`, which must be one that `table` answers.

    Parties that live in one process and get the same bytes share one decoded, immutable request.
    """
    return _decoded(body_digest(body), body, tuple(table))


Sealed = Released[Any] | Masked | Relayed
"""What a site made itself, under its own seal."""


def check_sealed(reply: Reply, verify: Callable[[Sealed], bool]) -> None:
    """Raise WireError unless each field is Public, or was paid for at this site."""
    for field, item in items(reply):
        if isinstance(item, Public):
            continue
        # The type alone shows nothing: a handler can build one of these without a payment.
        if isinstance(item, Released | Masked | Relayed) and verify(item):
            continue
        raise WireError(
            f"{type(reply).__name__}.{field} is not sealed: it must be Public, or made by "
            "Site.release, Site.release_masked or Site.relay at this site"
        )
