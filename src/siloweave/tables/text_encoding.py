"""Bytes of a text file: decompressed, and decoded by an encoding that is declared or guessed.

A table is read in UTF-8, or in UTF-16 by its mark, unless another encoding is declared: so no row
decides how the others are read. The guess from all bytes is for a person, who declares it then.
"""

from __future__ import annotations

import codecs
import gzip
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from siloweave.errors import DataError
from siloweave.tables.files import file_kind

HEAD_BYTES = 1 << 18
"""Bytes by which a file's form is decided."""
HEAD_ROWS = 200
"""Rows by which a file's form is decided."""
REPLACEMENT = "\ufffd"
"""What stands for bytes that are not in the encoding."""
BYTE_ORDER_MARK = "\ufeff"
"""What some programs write before a text; it is no part of it."""
ENCODINGS = {
    "cp1250": "Central Europe",
    "cp1251": "Cyrillic",
    "koi8-r": "Cyrillic, of Unix",
    "cp866": "Cyrillic, of DOS",
    "cp1253": "Greek",
    "cp1254": "Turkish",
    "cp1255": "Hebrew",
    "cp1256": "Arabic",
    "cp1257": "Baltic",
    "cp874": "Thai",
    "gb18030": "Chinese",
    "big5": "Chinese, of Taiwan",
    "shift-jis": "Japanese",
    "euc-kr": "Korean",
}
"""Encodings beside UTF-8 and cp1252 that people have, and the language or script of each."""
# Bytes that are decompressed, decoded or searched at once.
_CHUNK_BYTES = 1 << 22
# What few words of a Western code page have: three marked letters in a row, a capital behind a
# small letter or within small ones, a sign between letters.
_ODD_LETTERS = re.compile(
    r"[^\x00-\x7f]{3,}|(?<=[a-zß-ÿ])[ŠŒŽŸÀ-Þ]|(?<=[A-Z])[ŠŒŽŸÀ-ÖØ-Þ](?=[a-z])|"
    r"(?<=[^\W\d_])[€‚„…†‡ˆ‰‹“”•˜™›¡-¬®-´¶¸-¿](?=[^\W\d_])"
)
# Bytes that occur in texts of any code page: no control characters but white space and escape.
_TEXT_BYTES = bytes(
    byte for byte in range(256) if byte >= 32 or byte in b"\t\n\v\f\r\x1b"
)
# What is said of control characters that occur in real files.
_CONTROLS = {
    0x00: "a NUL byte, which is in no text",
    0x1A: "Ctrl-Z (byte 1A), with which old programs end a file",
}
# Share of a text's bytes that may be in no text; with more, its encoding is in doubt.
_MOST_CONTROL = 0.01
# Share of every second byte that may be zero; with more, the text is in UTF-16.
_MOST_ZEROS = 0.3


# Bytes, decompressed


def packed_lines(file: Path) -> int:
    """Count the lines of a compressed text file; DataError if it cannot be decompressed."""
    try:
        return int(pl.scan_lines(file).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError):
        reason = "it cannot be decompressed; copy it again, it may be cut off"
        raise DataError(f"cannot read {str(file)!r} as a table: {reason}") from None


def read_bytes(file: Path, most: int = -1) -> bytes:
    """Read the first bytes of a file, or all of them, decompressed."""
    most_lines = HEAD_ROWS if most > 0 else None
    with open_file(file, most_lines) as data:
        return bytes(data.read(most))


def open_file(file: Path, most_lines: int | None = None) -> Any:
    """Open a file's bytes, decompressed; of a .zst file, only so many lines."""
    kind = file_kind(file)
    # Python 3.11 has no reader of this compression; that of polars takes UTF-8 alone.
    if kind.endswith(".zst"):
        scanned_lines = pl.scan_lines(file, n_rows=most_lines).collect()
        lines = scanned_lines.to_series().to_list()
        text = "".join(f"{line}\n" for line in lines)
        return BytesIO(text.encode())
    if kind.endswith(".gz"):
        return gzip.open(file)
    return file.open("rb")


# The encoding


def encoding_of_mark(file: Path) -> str:
    """Return UTF-16 if the file begins with its mark, else UTF-8; no row can change that."""
    if file_kind(file).endswith(".zst"):
        return "utf-8"
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    has_mark = read_bytes(file, 2).startswith(marks)
    return "utf-16" if has_mark else "utf-8"


def unmarked_utf16(head: bytes) -> str | None:
    """Return which UTF-16 bytes look like, by their zeros; None if they do not.

    Texts in Latin letters have a zero in every second place: the first one in big-endian order.
    """
    if len(head) < 2:
        return None
    for first_place, encoding in ((0, "utf-16-be"), (1, "utf-16-le")):
        num_zeros = head[first_place::2].count(0)
        if num_zeros > _MOST_ZEROS * len(head) / 2:
            return encoding
    return None


def encoding_of(path: str | os.PathLike[str]) -> str:
    """Guess the encoding of a text file from all its bytes, for someone to declare it.

    It is UTF-16 by its mark or its zeros, else UTF-8 if all bytes are, else a Western code page.

    Raises:
        DataError: It cannot be decided; names the first line that is not UTF-8, or that holds a
            byte that is in no text, such as NUL.
    """
    file = Path(path)
    marked_encoding = encoding_of_mark(file)
    if marked_encoding != "utf-8" or file_kind(file).endswith(".zst"):
        return marked_encoding
    head = read_bytes(file, HEAD_BYTES)
    utf16 = unmarked_utf16(head)
    if utf16 is not None:
        return utf16

    error = decoding_error(file, "utf-8")
    control_byte = control_byte_in(file)
    if control_byte is not None:
        controls = head.translate(None, _TEXT_BYTES)
        # A NUL in every row is a fault of its writer, where all else is UTF-8.
        is_plain = error is None and _CONTROLS.keys() >= set(controls)
        if len(controls) > _MOST_CONTROL * len(head) and not is_plain:
            raise undecided_encoding(file)
        raise DataError(f"{control_byte}; or give its encoding, to read it as it is")
    if error is None:
        return "utf-8"
    # The head may have no such byte; those behind the first one have.
    odd_bytes = error.object[error.start : error.start + HEAD_BYTES]
    if _is_cp1252(head + odd_bytes):
        return "cp1252"
    raise undecided_encoding(file)


def _is_cp1252(sample: bytes) -> bool:
    """Return whether bytes are words of a Western language in Windows' code page."""
    # Control characters, and bytes that the code page lacks.
    if re.search(rb"[\x00-\x08\x0e-\x1f\x81\x8d\x8f\x90\x9d]", sample):
        return False
    text = sample.decode("cp1252")
    num_odd = sum(map(len, _ODD_LETTERS.findall(text)))
    num_marked = sum(not letter.isascii() for letter in text)
    # Some words are odd in any language, such as names.
    return 5 * num_odd <= num_marked


def decoding_error(file: Path, encoding: str) -> UnicodeDecodeError | None:
    """Return the first error of decoding a file, if there is one."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with open_file(file) as data:
        try:
            while chunk := data.read(_CHUNK_BYTES):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            return error
    return None


def control_byte_in(file: Path, encoding: str = "utf-8") -> str | None:
    """Describe where a text file holds a byte that no text has, such as NUL; None if nowhere."""
    # UTF-16 has such bytes everywhere.
    has_ascii_bytes = "\x1a".encode(encoding, "replace") == b"\x1a"
    if file_kind(file).endswith(".zst") or not has_ascii_bytes:
        return None

    line = 1
    with open_file(file) as data:
        while chunk := data.read(_CHUNK_BYTES):
            control_bytes = chunk.translate(None, _TEXT_BYTES)
            if control_bytes:
                byte = control_bytes[0]
                line += chunk.count(b"\n", 0, chunk.index(control_bytes[:1]))
                name = _CONTROLS.get(byte, f"a control character (byte {byte:02X})")
                return (
                    f"line {line} of {str(file)!r} holds {name}. Delete it, or store the file as "
                    "text again"
                )
            line += chunk.count(b"\n")
    return None


def encoding_advice(file: Path) -> str:
    """Describe how to declare the encoding of a file, with a guess at the right one."""
    try:
        likely = encoding_of(file)
    except DataError:
        likely = "latin-1"
    return (
        f"declare the encoding, such as {likely}: encoding = {likely!r} in the study, --encoding "
        f"{likely}, or read(encoding={likely!r})"
    )


def undecided_encoding(file: Path) -> DataError:
    """Return the error about a file whose encoding cannot be decided."""
    data = read_bytes(file)
    # No text but that of UTF-16 and UTF-32 has them, and that has been tried.
    if b"\0" in data:
        return DataError(
            f"{str(file)!r} is no text: it has bytes that are 0, as a picture or another program's "
            "file has. Give the table as a CSV, or call an Excel or Parquet file what it is "
            "(.xlsx, .parquet)"
        )
    first_line = ""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        first_line = f" (line {line} is the first that is not UTF-8)"

    def num_odd(encoding: str) -> int:
        return len(_ODD_LETTERS.findall(data.decode(encoding)))

    # A person who reads the language knows which one it is; it must fit all bytes.
    western = min(("mac-roman", "cp850"), key=num_odd)
    candidates = [f"{western} (old text in a Western language)"]
    for encoding, language in ENCODINGS.items():
        with suppress(UnicodeDecodeError):
            data.decode(encoding)
            candidates.append(f"{encoding} ({language})")
    return DataError(
        f"the encoding of {str(file)!r} cannot be decided: it is not UTF-8 or UTF-16 throughout"
        f"{first_line}, and holds bytes that no Western code page has, or that make no words in "
        f"it. Name it (--encoding, encoding = ... in the study, or read(encoding=...)), or store "
        f"the file as UTF-8. Its bytes can be read as {', '.join(candidates)}"
    )


def word_readings(texts: Iterable[str]) -> tuple[str, ...]:
    """Return readings of a word from texts whose encoding was taken to be cp1252; none of ASCII.

    A second one is that of mac-roman, where it makes no more odd words of these bytes.
    """
    words = [word for word in " ".join(texts).split() if not word.isascii()]
    if not words:
        return ()

    # An odd word, if there is one, shows best that the encoding is wrong.
    odd_words = [word for word in words if _ODD_LETTERS.search(word)]
    word = odd_words[0] if odd_words else words[0]
    mac_words = [_in_mac_roman(word) for word in words]
    if _num_odd_words(mac_words) <= len(odd_words):
        return word, _in_mac_roman(word)
    return (word,)


def _in_mac_roman(word: str) -> str:
    """Read a word of cp1252 in the Macintosh's old code page."""
    return word.encode("cp1252").decode("mac-roman")


def _num_odd_words(words: Iterable[str]) -> int:
    """Count the words with letters that few Western words have."""
    return sum(bool(_ODD_LETTERS.search(word)) for word in words)
