"""Values that no model learns: ids and texts, drawn anew in the form that is declared.

Every method leaves these columns out, and `Fit` adds them to whatever rows a model drew. An id is
different in every row. An email address, a phone number, a URL and an IP address are of the ranges
that are reserved for examples (RFC 2606, RFC 5737, NANP 555-01XX); an IBAN has valid check digits
and a bank code that no bank has; a UUID is of version 4. Names and addresses come from the package
faker where it is installed, and are numbered without it.

**Guarantee**: what is drawn depends on the schema, the key, the number of rows and a column's type
alone, never on a row, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.tables.arrays import Bools
from siloweave.tables.column import Column
from siloweave.tables.forms import SEMANTIC, TextForm, text_form
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.schema import UNLISTED, Schema
from siloweave.tables.table import Table

_HOST = r"example\.(com|net|org)"
_FORMS = {
    "email": rf"[a-z]{{3}}[0-9]{{5}}@{_HOST}",
    "phone": r"\+1 [2-9][0-8][0-9] 555 01[0-9]{2}",
    "postcode": r"[1-9][0-9]{4}",
    # Bank code and account, before which `_iban` writes the rest.
    "iban": r"0{8}[0-9]{10}",
    "url": rf"https://{_HOST}/[a-z0-9]{{8}}",
    "ip": r"(192\.0\.2|198\.51\.100|203\.0\.113)\.([1-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-4])",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
}
_NUMBERED = {
    "name": ("name", "Person {}"),
    "address": ("street_address", "{} Example Street"),
}
# Fewer digits are a whole number that int64 holds.
_DIGITS = 19
# At most so many names are asked of faker.
_FAKED = 10_000
# Different texts are drawn in so many rounds, unless a form has many texts twice.
_ROUNDS = 50


def drawn_anew(
    rows: Table, schema: Schema, *, key: Key, like: Table | None = None
) -> Table:
    """Add new values to drawn rows for the columns that are not modelled, in the schema's order.

    Ids are whole numbers from 1 or, with a format, texts of it, all different; where a format has
    fewer texts than there are rows, digits are added at its end. A text with a format has such a
    value in every row, a different one as long as there are enough of them. A text without is
    ``text 1``, ``text 2``, ..., or missing in every row where it may be missing.

    Args:
        rows: All modelled columns; what else they have is replaced or left out.
        schema: Facts about every column.
        key: The same key and number of rows give a column the same values, whatever other columns
            there are.
        like: Ids are text or whole numbers as the column of that name is here.

    Example:
        >>> schema = Schema((Column("x", "boolean"), Column("note", "text")))
        >>> rows = Table.from_columns({"x": (np.array([True, False]), None)})
        >>> drawn_anew(rows, schema, key=0).values("note").tolist()
        ['text 1', 'text 2']
    """
    columns: dict[str, tuple[Any, Bools | None]] = {}
    for column in schema.columns:
        name = column.name
        if column.modelled:
            columns[name] = rows.with_gaps(name)
            continue
        # A stream of its own for each column, so that others do not change its values.
        random = generator(fold_in(key, "drawn anew", name))
        kind = None
        if like is not None and name in like.names:
            kind = like.kind(name)
        columns[name] = _column(column, rows.num_rows, random, kind)
    return Table.from_columns(columns, rows)


def listed_instead(
    rows: Table, schema: Schema, *, key: Key, kept: Collection[str] = ()
) -> Table:
    """Replace a category that is no value in drawn rows by listed categories.

    Where a schema was detected, ``__other__`` stands for all values that are not listed. No cell of
    the source holds it, so it does not belong into a column of postcodes: such a cell gets one of
    the listed values, by their shares in the rows. An `other` that was declared is a category like
    all others, and stays; so do columns that a constraint names, since another value could break
    it.

    Args:
        rows: Drawn rows.
        schema: Facts about every column.
        key: The same key gives the same values.
        kept: Columns that stay as they are, such as those in which it was asked for.

    Example:
        >>> town = Column("town", "categorical", ("Ghent", "__other__"), other="__other__")
        >>> rows = Table.from_columns({"town": (["Ghent", "__other__"], None)})
        >>> listed_instead(rows, Schema((town,)), key=0).values("town").tolist()
        ['Ghent', 'Ghent']
    """
    fixed = {*kept}
    for rule in schema.constraints:
        fixed |= {*rule.columns}

    changed: dict[str, tuple[Any, Bools | None]] = {}
    for column in schema.columns:
        name = column.name
        if column.other != UNLISTED or name in fixed:
            continue
        categories = column.categories
        listed = [category for category in categories if category != UNLISTED]
        codes = rows.lookup(name, categories)
        is_unlisted = codes == categories.index(UNLISTED)
        if not listed or not is_unlisted.any():
            continue

        # By their shares in the rows; -1 is of what is not listed, which does not count.
        places = rows.lookup(name, listed).clip(-1)
        counts = np.bincount(places + 1, minlength=len(listed) + 1)[1:]
        shares = None  # all alike
        if counts.any():
            shares = counts / counts.sum()
        random = generator(fold_in(key, "listed", name))
        options = np.array(listed, object)
        choices = random.choice(options, is_unlisted.sum(), p=shares)
        values = rows.values(name).copy()
        values[is_unlisted] = choices
        changed[name] = (values, rows.missing(name))
    if not changed:
        return rows
    columns: dict[str, tuple[Any, Any]] = {}
    for name in rows.names:
        columns[name] = changed.get(name, (rows.cells(name), None))
    return Table.from_columns(columns, rows)


def drawn_as(column: Column) -> str:
    """Describe in a few words how values of a column that is not modelled are drawn.

    Example:
        >>> drawn_as(Column("who", "id", format="P[0-9]{3}")), drawn_as(Column("note", "text"))
        ('like P[0-9]{3}', 'numbered')
    """
    is_text = column.kind == "text"
    if column.format is None:
        if is_text and column.missing:
            return "empty"
        return "numbered"
    if is_text and column.format in SEMANTIC:
        return f"an invented {column.format}"
    return f"like {column.format}"


def _column(
    column: Column, count: int, random: np.random.Generator, kind: str | None
) -> tuple[NDArray[Any], Bools | None]:
    """Draw a column's values; return them, and which are missing.

    Args:
        column: An id or a text.
        count: How many rows there are.
        random: Of this column alone.
        kind: The type of the column that they stand for, as `Table.kind` names it.
    """
    if column.format is None:
        return _numbered(column, count, kind)
    form_name = column.format
    is_text = column.kind == "text"
    if is_text and form_name in _NUMBERED:
        return _texts(_named(form_name, count, random)), None

    pattern = form_name
    if is_text:
        pattern = _FORMS.get(form_name, form_name)
    form = text_form(pattern)
    is_number = kind in ("whole numbers", "numbers")
    is_whole = is_number and form.longest < _DIGITS
    texts = _different(form, count, random, is_whole)
    # No two ids may be equal: a form that has too few texts gets more digits.
    while column.is_id and len(texts) < count:
        form = form.with_digit()
        texts = _different(form, count, random, is_whole)
    # Texts that are no ids are repeated where there are too few.
    repeats = _numbers(form.size, count - len(texts), random)
    texts += form.texts(repeats).tolist()

    if form_name == "iban" and is_text:
        texts = [_iban(text) for text in texts]
    if is_whole and all(map(str.isdecimal, texts)):
        numbers = [int(text) for text in texts]
        return np.array(numbers, dtype=np.int64), None
    return _texts(texts), None


def _numbered(
    column: Column, count: int, kind: str | None
) -> tuple[NDArray[Any], Bools | None]:
    """Draw values of a column without a format: numbers, numbered texts, or nothing."""
    numbers = np.arange(1, count + 1)
    if column.is_id and kind == "text":
        return _texts(numbers.tolist()), None
    if column.is_id:
        return numbers, None
    if column.missing:
        is_missing = np.ones(count, dtype=np.bool_)
        return _texts([""] * count), is_missing
    return _texts(f"text {number}" for number in numbers.tolist()), None


def _different(
    form: TextForm, count: int, random: np.random.Generator, is_whole: bool
) -> list[str]:
    """Draw different texts, as many as are asked for, or as many as the form has.

    Where `is_whole`, they are read as numbers, and different as these: 7 and 07 are one.
    """
    # Of a form with few texts all are drawn at once, in any order.
    is_small = form.size <= 4 * count
    texts_by_key: dict[int | str, str] = {}
    rounds = 1 if is_small else _ROUNDS
    for _ in range(rounds):
        if is_small:
            numbers = random.permutation(form.size)
        else:
            numbers = _numbers(form.size, count - len(texts_by_key), random)
        texts = form.texts(numbers).tolist()
        are_numbers = is_whole and all(map(str.isdecimal, texts))
        keys = map(int, texts) if are_numbers else texts
        texts_by_key |= zip(keys, texts, strict=True)
        if len(texts_by_key) >= count:
            break
    return list(texts_by_key.values())[:count]


def _numbers(size: int, count: int, random: np.random.Generator) -> NDArray[Any]:
    """Draw whole numbers below a size, as Python's own where the size is beyond numpy's."""
    if size < 2**63:
        return random.integers(size, size=count)
    # So many bytes that no remainder is likelier than others by more than 2**-64.
    width = size.bit_length() // 8 + 9
    data = random.bytes(width * count)
    numbers = []
    for start in range(0, len(data), width):
        number = int.from_bytes(data[start : start + width], "little")
        numbers.append(number % size)
    return np.array(numbers, dtype=object)


def _iban(account: str) -> str:
    """Complete an IBAN of Germany with its check digits.

    These are 98 less the remainder by 97 of account, country (D is 13, E is 14) and two zeros
    (ISO 13616).
    """
    number = int(f"{account}131400")
    check_digits = 98 - number % 97
    return f"DE{check_digits:02d}{account}"


def _texts(values: Iterable[Any]) -> NDArray[np.object_]:
    """Write values as texts."""
    return np.array([str(value) for value in values], dtype=object)


def _named(name: str, count: int, random: np.random.Generator) -> list[str]:
    """Draw names or addresses; many rows share a few, since faker is slow."""
    function, token = _NUMBERED[name]
    if find_spec("faker") is None:
        return [token.format(i) for i in range(1, count + 1)]
    faker = import_module("faker").Faker()
    faker.seed_instance(int(random.integers(2**63)))
    fake = getattr(faker, function)
    fakes = [fake() for _ in range(min(count, _FAKED))]
    num_repeats = count - len(fakes)
    repeats = random.integers(max(len(fakes), 1), size=num_repeats)
    return fakes + [fakes[place] for place in repeats.tolist()]
