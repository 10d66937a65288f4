"""What a party writes down of each question that it answered: a file of records of one size.

By the nonces in it a party refuses a question that comes again; `siloweave status` counts them.

**Guarantee**: none of its own; a nonce is on disk before `Nonces.add` returns.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from siloweave.errors import StudyError, naming_file
from siloweave.privacy.journal import for_its_owner

NONCES = "nonces"
"""In a party's folder: of the questions that it has answered."""
_EXCHANGE = struct.Struct("<4s32sQQdddB")  # as a party's file has it, behind the next
_RECORD = b"swx2"  # that an exchange follows as this version writes them

ANSWER, REFUSAL, LAST, PARTING = range(4)
"""What an answer was: one that others follow, a refusal, or the last one of the study; or one to
the coordinator's word that it has its result, which is no question of the study."""


class Exchange(NamedTuple):
    """A question that a party answered: its nonce, the bytes of both frames, and when (seconds).

    How long `computing` took may depend on rows, so it stays at the party, as does `sealing`.
    """

    nonce: bytes
    received: int
    sent: int
    ended: float
    computing: float = 0.0
    sealing: float = 0.0
    kind: int = ANSWER


def exchanges_in(path: Path | None) -> list[Exchange]:
    """Read the questions that a party has answered; a record that was cut short is left out.

    StudyError where another version wrote the file: misread, it would let a question come again.
    """
    data = path.read_bytes() if path is not None and path.exists() else b""
    # A file that was cut within its first record has the beginning of the mark.
    if not _RECORD.startswith(data[: len(_RECORD)]):
        raise StudyError(
            f"{path}: was written by another version of siloweave. Continue with that one: by "
            "this file a party refuses a question that comes again, and this version cannot read it"
        )
    whole_bytes = len(data) // _EXCHANGE.size * _EXCHANGE.size
    records = _EXCHANGE.iter_unpack(data[:whole_bytes])
    return [Exchange(*fields) for _, *fields in records]


def finished_at(exchanges: Sequence[Exchange]) -> float:
    """Return when a party answered a study to its end; 0 if it did not, or was asked again since.

    A coordinator that is started again asks only what it has no answer to. Its word that it has
    its result then follows other answers than the last one, and ends the study, too.
    """
    ends = [exchange.ended for exchange in exchanges if exchange.kind == LAST]
    if not ends or exchanges[-1].kind not in (LAST, PARTING):
        return 0.0
    return ends[-1]


class Nonces:
    """The nonces of the questions that a party has answered; in a file, if a path is given."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.made = exchanges_in(path)
        self._nonces = {exchange.nonce for exchange in self.made}

    def __contains__(self, nonce: bytes) -> bool:
        return nonce in self._nonces

    def add(self, exchange: Exchange) -> None:
        """Remember an answered question, in one write; OSError if it cannot be written."""
        if self._path is not None:
            flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)
            descriptor = for_its_owner(str(self._path), flags)
            with naming_file(self._path), os.fdopen(descriptor, "wb") as file:
                # At the end of whole records, over one that was cut short.
                file.seek(len(self.made) * _EXCHANGE.size)
                file.write(_EXCHANGE.pack(_RECORD, *exchange))
                file.flush()
                # On disk: after a crash of the machine the question must not pass again.
                os.fsync(file.fileno())
        self.made.append(exchange)
        self._nonces.add(exchange.nonce)
