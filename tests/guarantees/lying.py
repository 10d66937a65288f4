"""A coordinator that lies in one field of one request, on a table and on its neighbour.

`lies(method)` runs a small study once and lists every field of every kind of request in it, with
values that the study did not ask for. `told(study, lie, rows)` runs it again, puts the lie in the
place of the first such request, and ends there: the outcome is the refusal, or what the party
replied. With the mechanisms' answers of the first table replayed on the neighbour (replay.py), both
outcomes must be the same, and whatever was drawn must have been paid for at the distance by which
its input moved.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import msgspec
import numpy as np

from siloweave.errors import SiloweaveError
from siloweave.federation import Array, InProcess, wire
from siloweave.federation.messages import Envelope, reply_type
from tests.federation.small import reply_in
from tests.guarantees.whole import plain


@dataclass(frozen=True)
class Lie:
    """One field of one kind of request, at a path of names and places, and how it changes."""

    request: str
    path: tuple[Any, ...]
    number: int

    def __str__(self) -> str:
        return f"{self.request}.{'.'.join(map(str, self.path))}#{self.number}"


class Told(BaseException):
    """The lie was answered; nothing that follows matters."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome


def changes(value: Any) -> list[Any]:
    """Values of the same type, as far from it as a message may hold."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [-1, 0, value + 1, 10**9]
    if isinstance(value, float):
        return [0.0, -value, value / 3, 3 * value, 1e300, inf, nan]
    if isinstance(value, str):
        return ["", value + "x"]
    if isinstance(value, bytes):
        return [b"", value[:-1], value + b"x", value[::-1]]
    if isinstance(value, Array):
        numbers = value.numpy()
        made = [np.broadcast_to(numbers, (50, *numbers.shape)), numbers[..., :0], -numbers - 1.0]
        made += [np.full(numbers.shape, 1e30), numbers.reshape(-1)]
        fits = [Array.of(one, value.dtype) for one in made if value.dtype[1] == "f"]
        return [*fits, *(Array.of(one, "<i8") for one in made[:2])]
    if isinstance(value, tuple):
        return [(), value + value, value[::-1], value[:1] * 400]
    if isinstance(value, dict):
        names = list(value)
        return [{}, {n: value[n] for n in names[1:]}, {f"{n}x": value[n] for n in names}]
    return []


def fields_of(value: Any) -> list[tuple[Any, ...]]:
    """Paths of everything that can be changed in a message."""
    if isinstance(value, Array):
        return [()]
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        return [(n, *path) for n in names for path in fields_of(getattr(value, n))]
    inner: list[tuple[Any, ...]] = []
    if isinstance(value, tuple) and value:
        inner = [(0, *path) for path in fields_of(value[0])]
    if isinstance(value, dict) and value:
        first = next(iter(value))
        inner = [(first, *path) for path in fields_of(value[first])]
    return [(), *inner]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = getattr(value, step) if isinstance(value, msgspec.Struct) else value[step]
    return value


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The same with what is at a path put in its place."""
    if not path:
        return new
    step, *rest = path
    inner = changed(at(value, (step,)), tuple(rest), new)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{step: inner})
    if isinstance(value, dict):
        return {**value, step: inner}
    return (*value[:step], inner, *value[step + 1 :])


@contextmanager
def sent_through(seen: Callable[[InProcess, str, bytes], bytes]) -> Iterator[None]:
    """Send every frame of every in-process run through `seen(transport, party, frame)`."""
    send = InProcess.send
    InProcess.send = seen  # type: ignore[method-assign]
    try:
        yield
    finally:
        InProcess.send = send  # type: ignore[method-assign]


_SEND = InProcess.send


def request_in(transport: Any, frame: bytes) -> tuple[Envelope, Any]:
    envelope = wire.decode(frame, Envelope)
    return envelope, wire.decode_request(envelope.body, transport._handlers)


def lies(study: Callable[[], Any]) -> list[Lie]:
    """Every lie about the requests of a study, each kind of request taken where it first occurs."""
    kinds: dict[str, Any] = {}

    def seen(transport: InProcess, party: str, frame: bytes) -> bytes:
        _, request = request_in(transport, frame)
        kinds.setdefault(type(request).__name__, request)
        return _SEND(transport, party, frame)

    with sent_through(seen):
        study()
    return [
        Lie(name, path, number)
        for name, request in kinds.items()
        for path in fields_of(request)
        if path
        for number in range(len(changes(at(request, path))))
    ]


def told(study: Callable[[], Any], lie: Lie) -> Any:
    """What a study's first party answers to a lie: the text of its refusal, or its reply."""

    def seen(transport: InProcess, party: str, frame: bytes) -> bytes:
        envelope, request = request_in(transport, frame)
        if type(request).__name__ != lie.request:
            return _SEND(transport, party, frame)
        try:
            new = changed(request, lie.path, changes(at(request, lie.path))[lie.number])
            body = wire.encode(new)
        except (SiloweaveError, msgspec.MsgspecError):
            raise Told("cannot be sent") from None
        asked = wire.encode(msgspec.structs.replace(envelope, body=body))
        try:
            answer = _SEND(transport, party, asked)
        except SiloweaveError as error:
            raise Told(f"{type(error).__name__}: {error}") from None
        reply = reply_in(answer, reply_type(type(request)))
        raise Told([plain(getattr(reply, field)) for field in reply.__struct_fields__])

    try:
        with sent_through(seen):
            study()
    except Told as found:
        return found.outcome
    raise AssertionError(f"{lie}: the study did not ask that")
