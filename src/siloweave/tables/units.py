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
from siloweave.tables.ids import id_texts
from siloweave.tables.parsing import texts_of
from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Schema

Words = NDArray[np.uint64]

_PURPOSE = b"siloweave unit"
_SIZE = 32  # bytes of a hash


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
    ids = [column.name for column in schema.columns if column.kind == "id"]
    if unit in ids:
        return
    known = f"name one of {', '.join(map(repr, ids))}" if ids else "the schema has no id column"
    if unit in schema.names:
        what = f"is a column of kind {schema[unit].kind}, not id"
    else:
        what = "is no column of the schema"
    raise SchemaError(
        f"unit = {unit!r} {what}; {known}, declare the column that says whose row it is as an id, "
        "or protect a single row with unit = 'row'"
    )


def rows_by_unit(table: Table, column: Column) -> list[str | None]:
    """Read whose each row is; None for a row that is a person of its own.

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
    ids = [None if gone else text or None for text, gone in zip(texts, is_missing, strict=True)]
    absent = ids.count(None)
    if absent and not column.missing:
        raise SchemaError(
            f"{count_of(absent, 'row has', 'rows have')} no id in {name!r}, so that it is not "
            "known whose rows these are; fill them in, leave such rows out, or declare the column "
            "with missing = true: then each is a person of its own"
        )
    return ids


def differ_plainly(table: Table, name: str) -> bool:
    """Whether all ids of a column differ as they are written, and none can be written otherwise.

    It saves reading each id, where a table has one row for each.
    """
    texts = texts_of(table.cells(name).drop_nulls())
    return bool(texts.str.contains(r"^[0-9A-Za-z_-]+$").all()) and texts.n_unique() == len(texts)


def rows_kept(
    ids: Sequence[str | None], most: int, secret: bytes, texts: Sequence[str] | None = None
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
    numbers: dict[str | None, int] = {}
    whose = np.array([numbers.setdefault(one, len(numbers)) for one in ids], dtype=np.int64)
    counts = np.bincount(whose, minlength=len(numbers))
    if None in numbers:
        counts[numbers[None]] = 0  # each is a person of its own
    crowded = np.flatnonzero(counts[whose] > most)
    # Rows of one id stand together from here on, in the order that they had.
    crowded = crowded[np.argsort(whose[crowded], kind="stable")]
    groups = whose[crowded]
    names = [ids[row] for row in crowded.tolist()]
    if texts is None:
        words = _by_place(names, secret)
    else:
        words = _by_text(names, [texts[row] for row in crowded.tolist()], secret)
    ranked = np.lexsort((words, groups))
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(starts, append=len(groups))
    ranks = np.arange(len(groups)) - np.repeat(starts, sizes)
    kept = np.ones(len(ids), dtype=bool)
    kept[crowded[ranked[ranks >= most]]] = False
    return kept


def _by_place(ids: Sequence[str | None], secret: bytes) -> Words:
    """Draw a word for each row, from the key, its id, and how many rows of the id are above it.

    Rows of one id stand together.
    """
    runs = ((one, len(list(rows))) for one, rows in groupby(ids))
    bits = [shake_256(_hash(secret, one)).digest(8 * number) for one, number in runs]
    return np.frombuffer(b"".join(bits), "<u8")


def _by_text(ids: Sequence[str | None], texts: Sequence[str], secret: bytes) -> Words:
    """Draw a word for each row, from the key, its id, its text, and its place among equal rows."""
    seen = Counter[tuple[str | None, str]]()
    words = []
    for row in zip(ids, texts, strict=True):
        words.append(_hash(secret, *row, seen[row])[:8])
        seen[row] += 1
    return np.frombuffer(b"".join(words), "<u8")


def _hash(secret: bytes, *parts: object) -> bytes:
    """A keyed hash of texts and numbers, of their lengths, too."""
    digest = blake2b(key=secret, digest_size=_SIZE, person=_PURPOSE)
    for part in parts:
        data = str(part).encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def bounded_rows(
    table: Table, column: Column, most: int, secret: bytes, *, ordered: bool = True
) -> Table:
    """Keep at most some rows of each id of a table, and all that have none.

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
    kept = rows_kept(ids, most, secret, texts)
    return table if kept.all() else table.take(np.flatnonzero(kept))


def _texts(table: Table) -> list[str]:
    """What each row holds, as one text: the text of every cell with its length before it.

    A cell's text is its own (`parsing.texts_of`), so that no other row decides which rows of a
    person take part, as SQLite's type of a column would.
    """
    columns = []
    for name in sorted(table.names):
        cells = table.labels(name, str).to_list()
        columns.append(["-" if cell is None else f"{len(cell)}:{cell}" for cell in cells])
    return ["".join(row) for row in zip(*columns, strict=True)]


class Share(NamedTuple):
    """What is left of a table where each id has at most so many rows."""

    most: int
    rows: float  # share of all rows that take part
    whole: float  # share of persons of whom no row is left out


def shares_kept(ids: Sequence[str | None], bounds: Sequence[int]) -> list[Share]:
    """Compute what each bound keeps; for the owner of the rows alone.

    Example:
        >>> [tuple(share) for share in shares_kept(["a", "a", "a", "b"], [1, 3])]
        [(1, 0.5, 0.5), (3, 1.0, 1.0)]
    """
    counts = Counter(one for one in ids if one is not None)
    alone = ids.count(None)
    rows = np.array([*counts.values(), *[1] * alone])
    return [
        Share(most, float(np.minimum(rows, most).sum() / rows.sum()), float((rows <= most).mean()))
        for most in bounds
        if rows.size
    ]
