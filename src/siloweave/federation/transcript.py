"""What the coordinator saw: every question, and every answer's bytes, in the order they came.

Nothing here is secret from the coordinator, which is the point: whoever wants to know what it
could learn can attack this file afterwards. It is the coordinator's, never the public's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from siloweave.errors import InputError, WireError
from siloweave.federation import wire

__all__ = ["FolderTranscript", "Heard", "Transcript", "read_transcript"]

_LENGTH = 8  # bytes before each record


class Heard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer.

    Attributes:
        run: Name of the run.
        step: Step of the run, from 0.
        party: Who answered.
        question: The request's bytes; empty where they are those of the record before.
        answer: The reply's bytes, as they crossed the wire inside their envelope.
    """

    run: str
    step: int
    party: str
    question: bytes
    answer: bytes


class Transcript(Protocol):
    """Where a coordinator writes down what it hears. Conforming: FolderTranscript."""

    def record(self, heard: Heard) -> None:
        """Write one answer down."""


class FolderTranscript:
    """Appends to a file that only its owner may read; what a run hears again is there already.

    Args:
        path: The file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._question = b""
        self._heard: set[tuple[str, int, str]] = set()
        if path.is_file():
            with path.open("r+b") as file:
                file.truncate(sum(_LENGTH + len(data) for data in _records(file)))
            self._heard = {(h.run, h.step, h.party) for h in read_transcript(path)}

    def record(self, heard: Heard) -> None:
        """Append one answer; a question that was just asked is not written twice."""
        place = (heard.run, heard.step, heard.party)
        if place in self._heard:
            return
        self._heard.add(place)
        if heard.question == self._question:
            heard = msgspec.structs.replace(heard, question=b"")
        else:
            self._question = heard.question
        data = msgspec.msgpack.encode(heard)
        with open(self._path, "ab", opener=_private) as file:
            file.write(len(data).to_bytes(_LENGTH, "big") + data)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def read_transcript(path: Path) -> Iterator[Heard]:
    """Read what a coordinator heard.

    A record that was being written when the process died is left out.

    Args:
        path: The file.

    Returns:
        Every answer, with its question.

    Raises:
        InputError: There is none.
        WireError: The file is damaged.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: there is no transcript; only a run that was given a folder keeps one, and "
            "networks trained over many rounds (E2EDistr too) keep none"
        )
    question = b""
    with path.open("rb") as file:
        for data in _records(file):
            try:
                heard = wire.decode(data, Heard)
            except WireError as error:
                raise WireError(f"{path}: {error}; the transcript is damaged") from error
            question = heard.question or question
            yield msgspec.structs.replace(heard, question=question)


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Every whole record of a file; one that was cut short ends it."""
    left = os.fstat(file.fileno()).st_size
    while len(header := file.read(_LENGTH)) == _LENGTH:
        size, left = int.from_bytes(header, "big"), left - _LENGTH
        if size > left:
            return
        left -= size
        yield file.read(size)
