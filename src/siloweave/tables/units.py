"""At most k rows of each person: which of them take part, before anything is counted or trained.

A *unit* is what a budget protects. Where it is a person, all rows with one id are hers, and only
the first k take part, in an order that a keyed hash gives them. Every sensitivity is that of k rows
(`privacy.budget.Neighbours`).

**Guarantee**: a table with one person more has the same rows that take part, and at most k of hers,
for every key. Whether a row takes part is a function of the key, of its id, of how many rows with
this id stand above it, and in a database also of what it holds: so of the rows of one person alone,
in their own order, which no other person's rows change. That holds for a key that everybody knows.
Parties that hold different columns of the same rows therefore use one public key, from the run's
name: each keeps the same rows without a word to the others. Where a party holds whole rows, the key
is its own secret, so that nobody can write a row such that it takes part. In a database rows have
no order that lasts: there a row's text comes before its place, and rows with the same text are as
good as each other. An id is read from its own cell (`ids.id_texts`). A row without an id is a
person of its own where the schema says that an id may be missing; else the table is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b, shake_256
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import SchemaError, count_of
from siloweave.tables.arrays import Bools
from siloweave.tables.cells import missing_cells
from siloweave.tables.column import Column
from siloweave.tables.ids import id_texts
from siloweave.tables.parsing import texts_of
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

Words = NDArray[np.uint64]

# Keeps these hashes apart from those that other code makes with the same key.
_PURPOSE = b"siloweave unit"
_HASH_BYTES = 32


def check_unit(unit: str, schema: Schema) -> None:
    """Check that a unit is an id column of a schema.

    Raises:
        SchemaError: It is not; names the id columns that there are.

    Example:
        >>> check_unit("age", Schema((Column("patient", "id"), Column("age", "integer"))))
        Traceback (most recent call last):
        ...
        siloweave.errors.SchemaError: unit = 'age' is a column of kind integer, not id; ...
    """
    id_names = [column.name for column in schema.columns if column.is_id]
    if unit in id_names:
        return

    advice = "the schema has no id column"
    if id_names:
        advice = f"name one of {', '.join(map(repr, id_names))}"
    problem = "is no column of the schema"
    if unit in schema.names:
        problem = f"is a column of kind {schema[unit].kind}, not id"
    raise SchemaError(
        f"unit = {unit!r} {problem}; {advice}, declare the column that says whose row it is as "
        "an id, or protect a single row with unit = 'row'"
    )


def rows_by_unit(table: Table, column: Column) -> list[str | None]:
    """Read the ids that say whose each row is; None for a row that is a person of its own.

    Raises:
        SchemaError: The table lacks the column, or rows lack an id that none may lack.
    """
    name = column.name
    if name not in table.names and not table.keyed:
        raise SchemaError(
            f"the table lacks the id column {name!r}, which says whose row each is; add it, or "
            "protect a single row with unit = 'row'"
        )
    # Each cell is read by itself, so that no other cell decides whose a row is.
    is_missing = missing_cells(column, table).tolist()
    texts = id_texts(table, name)
    ids: list[str | None] = []
    for text, cell_is_missing in zip(texts, is_missing, strict=True):
        has_id = text and not cell_is_missing
        row_id = text if has_id else None
        ids.append(row_id)

    num_missing = ids.count(None)
    if num_missing and not column.missing:
        raise SchemaError(
            f"{count_of(num_missing, 'row has', 'rows have')} no id in {name!r}, so that it is not "
            "known whose rows these are; fill them in, leave such rows out, or declare the column "
            "with missing = true: then each is a person of its own"
        )
    return ids


def differ_plainly(table: Table, name: str) -> bool:
    """Return whether all ids of a column are different, and each can be written in one way only.

    It saves reading each id, where a table has one row for each.
    """
    texts = texts_of(table.cells(name).drop_nulls())
    # Other characters, such as letters with accents, can be encoded in several ways.
    is_plain = texts.str.contains(r"^[0-9A-Za-z_-]+$")
    return bool(is_plain.all()) and texts.n_unique() == len(texts)


def rows_kept(
    ids: Sequence[str | None],
    most: int,
    secret: bytes,
    texts: Sequence[str] | None = None,
) -> Bools:
    """Decide which rows take part: at most some of each id, and all rows without one.

    Args:
        ids: Whose each row is.
        most: Rows of one id that take part, at most; 1 or more.
        secret: Key of the hash, up to 64 bytes.
        texts: What each row holds, where rows have no order that lasts.

    Returns:
        One boolean for each row.

    **Guarantee**: see the top of this file.

    Example:
        >>> ids = ["ana", "ben", "ana", None, "ana", None]
        >>> kept = rows_kept(ids, 1, bytes(32))
        >>> kept.sum(), kept[[1, 3, 5]].tolist()
        (np.int64(4), [True, True, True])
    """
    # Ids are numbered in the order in which they come.
    id_numbers: dict[str | None, int] = {}
    numbers = []
    for row_id in ids:
        number = id_numbers.setdefault(row_id, len(id_numbers))
        numbers.append(number)
    owners = np.array(numbers, dtype=np.int64)
    counts = np.bincount(owners, minlength=len(id_numbers))
    if None in id_numbers:
        # Each row without an id is a person of its own.
        counts[id_numbers[None]] = 0

    # Rows of ids with too many. They stand together by id from here on, in the order that they had.
    crowded_rows = np.flatnonzero(counts[owners] > most)
    by_owner = np.argsort(owners[crowded_rows], kind="stable")
    crowded_rows = crowded_rows[by_owner]
    crowded_owners = owners[crowded_rows]
    crowded_ids = [ids[row] for row in crowded_rows.tolist()]

    # A pseudorandom word for each of them.
    if texts is None:
        words = _by_place(crowded_ids, secret)
    else:
        crowded_texts = [texts[row] for row in crowded_rows.tolist()]
        words = _by_text(crowded_ids, crowded_texts, secret)

    # The rank of each row among those of its id, by its word.
    by_word = np.lexsort((words, crowded_owners))
    starts = np.flatnonzero(np.diff(crowded_owners, prepend=-1))
    num_crowded = len(crowded_owners)
    sizes = np.diff(starts, append=num_crowded)
    ranks = np.arange(num_crowded) - np.repeat(starts, sizes)
    left_out = by_word[ranks >= most]
    takes_part = np.ones(len(ids), dtype=bool)
    takes_part[crowded_rows[left_out]] = False
    return takes_part


def _by_place(ids: Sequence[str | None], secret: bytes) -> Words:
    """Draw a number for each row, from the secret, its id, and the rows of the id above it.

    Rows of one id stand together.
    """
    bits = []
    for row_id, rows in groupby(ids):
        num_rows = len(list(rows))
        # The first words of an id are the same, however many follow.
        stream = shake_256(_hash(secret, row_id))
        bits.append(stream.digest(8 * num_rows))
    return np.frombuffer(b"".join(bits), "<u8")


def _by_text(ids: Sequence[str | None], texts: Sequence[str], secret: bytes) -> Words:
    """Draw a number for each row, from the secret, its id, its text, and its equal rows above."""
    counts_above = Counter[tuple[str | None, str]]()
    words = []
    for row in zip(ids, texts, strict=True):
        row_id, text = row
        digest = _hash(secret, row_id, text, counts_above[row])
        words.append(digest[:8])
        counts_above[row] += 1
    return np.frombuffer(b"".join(words), "<u8")


def _hash(secret: bytes, *parts: object) -> bytes:
    """Hash texts and numbers, and their lengths, under a secret."""
    digest = blake2b(key=secret, digest_size=_HASH_BYTES, person=_PURPOSE)
    for part in parts:
        data = str(part).encode("utf-8", "surrogatepass")
        # Without lengths, "a", "bc" and "ab", "c" would have one hash.
        length = len(data).to_bytes(8, "big")
        digest.update(length + data)
    return digest.digest()


def bounded_rows(
    table: Table, column: Column, most: int, secret: bytes, *, ordered: bool = True
) -> Table:
    """Keep at most some rows of each id in a table, and all rows without an id.

    Args:
        table: All rows, with the id column.
        column: The id column.
        most: Rows of one id that take part, at most; 1 or more.
        secret: Key of the hash.
        ordered: Whether the rows have an order that lasts; not where a database gave them.

    Raises:
        SchemaError: The table lacks the column, or rows lack an id that none may lack.

    **Guarantee**: see the top of this file.

    Example:
        >>> table = Table.from_columns({"patient": (np.array([7, 7, 7, 8]), None)})
        >>> bounded_rows(table, Column("patient", "id"), 2, bytes(32)).num_rows
        3
    """
    ids = rows_by_unit(table, column)
    texts = None if ordered else _texts(table)
    takes_part = rows_kept(ids, most, secret, texts)
    if takes_part.all():
        return table
    return table.take(np.flatnonzero(takes_part))


def _texts(table: Table) -> list[str]:
    """Write all cells of each row as one text, each with its length before it.

    A cell's text is its own (`parsing.texts_of`), so that no other row decides which rows of a
    person take part, as SQLite's type of a column would.
    """
    columns = []
    for name in sorted(table.names):
        cells = table.labels(name, str).to_list()
        columns.append([_measured(cell) for cell in cells])
    return ["".join(row) for row in zip(*columns, strict=True)]


def _measured(cell: str | None) -> str:
    """Write a cell's text with its length before it; a missing one is a mark."""
    return "-" if cell is None else f"{len(cell)}:{cell}"


class Share(NamedTuple):
    """The part of a table that is left where each id has at most so many rows.

    Attributes:
        most: The bound.
        rows: Share of all rows that take part.
        whole: Share of persons of whom no row is left out.
    """

    most: int
    rows: float
    whole: float


def shares_kept(ids: Sequence[str | None], bounds: Sequence[int]) -> list[Share]:
    """Compute the part that each bound leaves of a table, for the owner of the rows alone.

    Example:
        >>> [tuple(share) for share in shares_kept(["a", "a", "a", "b"], [1, 3])]
        [(1, 0.5, 0.5), (3, 1.0, 1.0)]
    """
    counts = Counter(row_id for row_id in ids if row_id is not None)
    num_without_id = ids.count(None)
    rows_of_persons = np.array([*counts.values(), *[1] * num_without_id])
    if not rows_of_persons.size:
        return []

    shares = []
    for most in bounds:
        bounded = np.minimum(rows_of_persons, most)
        rows = float(bounded.sum() / rows_of_persons.sum())
        whole = float((rows_of_persons <= most).mean())
        shares.append(Share(most, rows, whole))
    return shares
