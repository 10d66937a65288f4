"""A coordinator that lies in one field of one request, on a table and on its neighbour.

`lies(study)` runs a small study once and lists every field of every kind of request in it, with
values that the study did not ask for. `outcome_of(study, lie)` runs it again, puts the lie instead
of the first such request, and goes on: the outcome is the refusal, or all that was replied. With
the mechanisms' answers of the first table replayed on the neighbour (replay.py), both outcomes must
be the same, and whatever was drawn must have been paid for at the distance by which its input
moved.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import inf, nan
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from siloweave.errors import SiloweaveError
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Array, Envelope, reply_type
from siloweave.federation.session import Closed
from siloweave.protocols.secure_marginals.messages import Tables
from tests.federation.sites import handlers_of
from tests.federation.small import reply_in
from tests.guarantees.whole import plain


@dataclass(frozen=True)
class Lie:
    """One field of one kind of request, at a path of names and places, and how it changes."""

    request: str
    path: tuple[Any, ...]
    number: int
    party: str = ""  # to whom it is told; the first that is asked, if nobody is named

    def __str__(self) -> str:
        return f"{self.request}.{'.'.join(map(str, self.path))}#{self.number}"


class RefusedError(BaseException):
    """A party refused; nothing that follows matters."""

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
    if value is None:
        return [0, 2.5, "age"]
    if isinstance(value, str):
        return ["", value + "x", *(text.decode() for text in written_anew(value.encode()))]
    if isinstance(value, bytes):
        made = [b"", value[:-1], value + b"x", value[::-1]]
        return [*made, *written_anew(value), *trained_anew(value)]
    if isinstance(value, Array):
        numbers = value.numpy()
        made = [np.broadcast_to(numbers, (50, *numbers.shape)), numbers[..., :0], -numbers - 1.0]
        made += [np.full(numbers.shape, 1e30), numbers.reshape(-1)]
        fits = [Array.of(one, value.dtype) for one in made if value.dtype[1] == "f"]
        return [*fits, *(Array.of(one, "<i8") for one in made[:2])]
    if isinstance(value, tuple | list):
        return [value[:0], value + value, value[::-1], value[:1] * 400]
    if isinstance(value, dict):
        names = list(value)
        return [{}, {n: value[n] for n in names[1:]}, {f"{n}x": value[n] for n in names}]
    return []


def written_anew(text: bytes) -> list[bytes]:
    """JSON of a mapping with one thing in it changed, as many times as there are such changes."""
    try:
        whole = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return []
    if not isinstance(whole, dict):
        return []
    return [
        msgspec.json.encode(changed(whole, path, new))
        for path in fields_of(whole)
        if path
        for new in changes(at(whole, path))
        if not isinstance(new, float) or new == new
    ]


def _most(x: Any) -> float:
    return float(np.finfo(x.dtype).max) / 9


def _nan(x: Any) -> float:
    return nan


def trained_anew(data: bytes) -> list[bytes]:
    """Networks of other numbers, of other shapes, and under other names."""
    try:
        nets = dict(sorted(safetensors.numpy.load(data).items()))
    except SafetensorError:
        return []
    real = {name: x for name, x in nets.items() if x.dtype.kind == "f"}
    made = [nets | {n: np.full_like(x, most(x)) for n, x in real.items()} for most in (_most, _nan)]
    made += [nets | {name: -99 * x - 1 for name, x in real.items()}]
    made += [{name: x[..., :0] for name, x in nets.items()}, dict(islice(nets.items(), 1))]
    made += [{name: np.stack([x] * 9) for name, x in nets.items()}]
    return [
        safetensors.numpy.save({n: np.ascontiguousarray(x) for n, x in m.items()}) for m in made
    ]


def fields_of(value: Any) -> list[tuple[Any, ...]]:
    """Paths of everything that can be changed in a message."""
    if isinstance(value, Array):
        return [()]
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        return [(n, *path) for n in names for path in fields_of(getattr(value, n))]
    inner: list[tuple[Any, ...]] = []
    if isinstance(value, tuple | list):
        whole = value[:1] if isinstance(value, tuple) else value  # all there is in JSON
        inner = [(i, *path) for i, one in enumerate(whole) for path in fields_of(one)]
    if isinstance(value, dict):
        inner = [(name, *path) for name, one in value.items() for path in fields_of(one)]
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
    return type(value)((*value[:step], inner, *value[step + 1 :]))


@contextmanager
def sent_through(seen: Callable[[Direct[Any], str, bytes], bytes]) -> Iterator[None]:
    """Send every frame of every in-process run through `seen(transport, party, frame)`."""
    send = Direct.send
    Direct.send = seen  # type: ignore[method-assign]
    try:
        yield
    finally:
        Direct.send = send  # type: ignore[method-assign]


_SEND = Direct.send


def request_in(transport: Any, frame: bytes) -> tuple[Envelope, Any]:
    envelope = messages.decode(frame, Envelope)
    return envelope, messages.decode_request(envelope.body, handlers_of(transport))


def lies(study: Callable[[], Any], told: str = "") -> list[Lie]:
    """Every lie about the requests of a study, each kind of request taken where it first occurs.

    Those that a party is `told`, or any.
    """
    kinds: dict[str, Any] = {}

    def seen(transport: Direct[Any], party: str, frame: bytes) -> bytes:
        _, request = request_in(transport, frame)
        if told in ("", party):
            kinds.setdefault(type(request).__name__, request)
        return _SEND(transport, party, frame)

    with sent_through(seen):
        study()
    return [
        Lie(name, path, number, told)
        for name, request in kinds.items()
        for path in fields_of(request)
        if path
        for number in range(len(changes(at(request, path))))
    ]


def some(lies: list[Lie], most: int) -> list[Lie]:
    """At most so many lies about each field, from all over what it may be."""
    by_field: dict[tuple[Any, ...], list[Lie]] = {}
    for lie in lies:
        by_field.setdefault((lie.request, lie.path), []).append(lie)
    return [one for own in by_field.values() for one in own[:: -(-len(own) // most)]]


def facts_of(reply: Any) -> list[Any]:
    """What a reply holds; of a ledger all but moments, and the hashes and signatures over them."""
    if isinstance(reply, Closed):
        entries = msgspec.json.decode(reply.entries.value)
        return [[entry[name] for name in ("step", "what", "to", "event")] for entry in entries]
    if isinstance(reply, Tables):  # words of several parties are uniform alone; see opened.py
        return [plain(reply.own), [one.value.shape for one in reply.joint]]
    return [plain(getattr(reply, field)) for field in reply.__struct_fields__]


def outcome_of(study: Callable[[], Any], lie: Lie) -> Any:
    """What the parties of a study answer to a lie: the text of a refusal, or all their replies.

    The study goes on as if nothing had happened until it ends or fails, since a lie at the
    beginning may bear fruit at a later step.
    """
    answers: list[Any] = []

    def seen(transport: Direct[Any], party: str, frame: bytes) -> bytes:
        envelope, request = request_in(transport, frame)
        meant = type(request).__name__ == lie.request and lie.party in ("", party)
        if not answers and not meant:
            return _SEND(transport, party, frame)
        if not answers:
            try:
                new = changed(request, lie.path, changes(at(request, lie.path))[lie.number])
                body = messages.encode(new)
            except (SiloweaveError, msgspec.MsgspecError):
                raise RefusedError("cannot be sent") from None
            frame = messages.encode(msgspec.structs.replace(envelope, body=body))
        try:
            answer = _SEND(transport, party, frame)
        except SiloweaveError as error:
            text = f"{type(error).__name__}: {error}"
            raise RefusedError([*answers, text] if answers else text) from None
        reply = reply_in(answer, reply_type(type(request)))
        answers.extend(facts_of(reply))
        return answer

    try:
        with sent_through(seen):
            study()
    except RefusedError as found:
        return found.outcome
    except SiloweaveError as error:  # the coordinator's own, at an answer that it cannot use
        if answers:
            return [*answers, f"{type(error).__name__}: {error}"]
        raise
    assert answers, f"{lie}: the study did not ask that"
    return answers
