"""Which rows a party reads: what its owner is shown of them at each start, and what is remembered.

A file that was left in another party's folder, or an export that was made anew, looks like any
other. So the party remembers in its own folder where the rows of the last start were, and a digest
of them, and its owner sees where these are others.

**Guarantee**: none. What is remembered stays in the party's folder, for its owner alone, and no
answer is made of it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from hashlib import blake2b, file_digest
from pathlib import Path

import msgspec

from siloweave.errors import count_of
from siloweave.privacy.journal import write_whole
from siloweave.tables.database import Database

SEEN_ROWS = "rows.seen"
"""In a party's folder of a study: which rows it read when it started last."""
# Bytes of a file up to which all of it is read for its digest, which takes a second.
_MOST_HASHED = 2**29
_DIGEST_BYTES = 16
_UNREADABLE = "cannot read"


class RowsRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows a party read.

    Attributes:
        place: The file's path, or a database's address and table.
        digest: Of the file; of sizes and times alone for a large one, or a folder of files. Empty
            for a database, or a file that cannot be read.
    """

    place: str
    digest: str


class RowsNote(msgspec.Struct, frozen=True):
    """What an owner is shown of the rows that a party is about to read.

    Attributes:
        place: Where they are.
        state: When their file was changed last, or that it is not there; empty for a database.
        warning: That they are not those of the last start; empty if they are, or this is the first.
    """

    place: str
    state: str
    warning: str

    def line(self, party: str, columns: int | None, rows: int | None) -> str:
        """Return the line of a start.

        Args:
            party: Its name.
            columns: How many columns there are; None if that is not known.
            rows: How many rows take part; None where they are not read.

        Example:
            >>> note = RowsNote("/srv/north/rows.csv", "changed 2026-11-29 05:57", "")
            >>> note.line("north", 7, None)
            "party 'north': reads /srv/north/rows.csv (changed 2026-11-29 05:57), 7 columns"
        """
        if self.state == _UNREADABLE:
            return f"party {party!r}: {_UNREADABLE} {self.place}"
        parts = [f"party {party!r}: reads {self.place}"]
        if self.state:
            parts[0] += f" ({self.state})"
        if columns is not None:
            parts.append(count_of(columns, "column", "columns"))
        if rows is not None:
            parts.append(f"{rows:,} rows that take part")
        return ", ".join(parts)


def compare_rows(folder: Path, source: Path | Database) -> RowsNote:
    """Compare the rows of this start with those of the last one that read any.

    Args:
        folder: The party's, of the study.
        source: Where the rows are.
    """
    record = RowsRecord(_place(source), _digest(source))
    last = _read_record(folder / SEEN_ROWS)
    state = _state(source)
    warning = ""
    if last is not None and last != record and state != _UNREADABLE:
        warning = "the rows are not those of the last start"
        if last.place != record.place:
            warning += f", which were in {last.place}"
    return RowsNote(record.place, state, warning)


def remember_rows(folder: Path, source: Path | Database) -> None:
    """Remember the rows of this start; OSError where the party's folder cannot be written."""
    record = RowsRecord(_place(source), _digest(source))
    file = folder / SEEN_ROWS
    if _read_record(file) != record:
        write_whole(file, msgspec.json.encode(record))


def _read_record(file: Path) -> RowsRecord | None:
    """Read what was remembered; None for nothing, and for a file that is damaged."""
    # Nothing depends on it, so that a damaged one is as good as none.
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(file.read_bytes(), type=RowsRecord)
    return None


def _place(source: Path | Database) -> str:
    """Return where rows are, alike however the path was written."""
    if isinstance(source, Database):
        return f"{source.address}#{source.table or source.query}"
    return str(source.resolve())


def _state(source: Path | Database) -> str:
    """Say when a file was changed last, by this machine's clock."""
    if isinstance(source, Database):
        return ""
    try:
        seconds = source.stat().st_mtime
    except OSError:
        return _UNREADABLE
    changed = datetime.fromtimestamp(seconds).astimezone()
    return f"changed {changed:%Y-%m-%d %H:%M}"


def _digest(source: Path | Database) -> str:
    """Return a digest by which rows that have changed are noticed; see `RowsRecord`."""
    if isinstance(source, Database):
        return ""
    try:
        if source.is_dir():
            return _digest_of_times(sorted(source.rglob("*")))
        if source.stat().st_size > _MOST_HASHED:
            return _digest_of_times([source])
        with source.open("rb") as file:
            digest = file_digest(file, lambda: blake2b(digest_size=_DIGEST_BYTES))
        return digest.hexdigest()
    except OSError:
        return ""


def _digest_of_times(files: list[Path]) -> str:
    """Return a digest of the sizes and times of files."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for file in files:
        metadata = file.stat()
        marks = (metadata.st_size, metadata.st_mtime_ns)
        digest.update(f"{file.name} {marks}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
