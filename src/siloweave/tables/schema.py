"""Public facts about columns: kind, categories, bounds, missing or not.

A schema is declared, or proposed by `detect` from data; every fact that came from data is named in
``Column.from_data`` until somebody reviews it (`Schema.declared`). Nothing else in the package
learns bounds or categories from rows for free.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal, get_args

import msgspec

from siloweave.errors import SchemaError
from siloweave.tables.display import html_table, listed
from siloweave.tables.read import read

__all__ = ["Category", "Column", "Kind", "Schema"]

Kind = Literal["categorical", "integer", "continuous", "boolean", "datetime", "id"]
"""What sort of values a column holds."""
Category = str | int | float | bool
"""One value of a categorical column."""
_KINDS = get_args(Kind)
_VERSION = 1
_FACTS = ("kind", "categories", "low", "high", "missing")


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is publicly known about one column.

    Args:
        name: The column's name.
        kind: ``categorical``, ``integer``, ``continuous``, ``boolean``, ``datetime`` or ``id``.
        categories: All values of a categorical column, of one type (text, whole numbers, numbers
            or booleans), in the order of their codes.
        low: Smallest value (integer, continuous), or an ISO-8601 text without time zone
            (datetime). Datetime bounds set the resolution: dates give days, times give seconds,
            times with a fraction give microseconds.
        high: Largest value, inclusive.
        missing: Whether a value may be missing.
        other: The category that stands for every unseen one; it must be in ``categories``.
        format: How a datetime column is written as text (``strptime`` codes).
        from_data: Which facts were taken from data and not yet reviewed.
        learned: Which facts were learned privately, and are in the parties' ledgers. All others
            are declared.

    Raises:
        SchemaError: When the facts contradict each other.

    Example:
        >>> Column("age", "integer", low=17, high=90).high
        90
    """

    name: str
    kind: Kind
    categories: tuple[Category, ...] = ()
    low: int | float | str | None = None
    high: int | float | str | None = None
    missing: bool = False
    other: Category | None = None
    format: str | None = None
    from_data: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise SchemaError("a column needs a name")
        if self.kind not in _KINDS:
            raise SchemaError(
                f"column {self.name!r}: kind={self.kind!r} is unknown; "
                f"use one of {', '.join(_KINDS)}"
            )
        for origin in ("from_data", "learned"):
            unknown = set(getattr(self, origin)) - set(_FACTS)
            if unknown:
                raise SchemaError(
                    f"column {self.name!r}: {origin} names {sorted(unknown)}; facts are {_FACTS}"
                )
        if self.format is not None and self.kind != "datetime":
            raise SchemaError(f"column {self.name!r}: only a datetime column has a format")
        self._check_categories()
        self._check_bounds()

    def _check_categories(self) -> None:
        where = f"column {self.name!r}"
        if self.kind != "categorical":
            if self.categories or self.other is not None:
                raise SchemaError(
                    f"{where}: kind {self.kind!r} takes no categories and no other; "
                    "declare it categorical, or drop them"
                )
            return
        values = tuple(self.categories)
        kinds = {_family(value) for value in values}
        if not values:
            raise SchemaError(f"{where}: categories is empty; list every value it may take")
        if kinds == {"whole number", "number"}:
            values, kinds = tuple(float(value) for value in values), {"number"}
        if len(kinds) > 1:
            raise SchemaError(f"{where}: categories mix {sorted(kinds)}; use one type")
        if kinds == {"number"} and not all(abs(value) < float("inf") for value in values):  # type: ignore[arg-type]
            raise SchemaError(f"{where}: categories must be finite numbers")
        if len(set(values)) < len(values):
            twice = sorted({repr(value) for value in values if values.count(value) > 1})
            raise SchemaError(f"{where}: categories repeat {', '.join(twice)}; list each once")
        if self.other is not None and (
            self.other not in values or _family(self.other) not in kinds
        ):
            raise SchemaError(
                f"{where}: other={self.other!r} is not among its categories; add it to them"
            )
        msgspec.structs.force_setattr(self, "categories", values)

    def _check_bounds(self) -> None:
        where = f"column {self.name!r}"
        for bound in ("low", "high"):
            value = getattr(self, bound)
            if value is None:
                continue
            if self.kind not in ("integer", "continuous", "datetime"):
                raise SchemaError(f"{where}: kind {self.kind!r} takes no {bound}; drop it")
            msgspec.structs.force_setattr(self, bound, _bound(self.kind, value, where, bound))
        if self.low is None or self.high is None:
            return
        low, high = self.low, self.high
        if self.kind == "datetime":
            wrong = datetime.fromisoformat(str(low)) > datetime.fromisoformat(str(high))
        else:
            wrong = low > high  # type: ignore[operator]
        if wrong:
            raise SchemaError(f"{where}: low={low!r} is above high={high!r}; swap or correct them")


def _family(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "whole number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "text"
    raise SchemaError(f"a category must be text, a number or a boolean, not {value!r}")


def _bound(kind: str, value: object, where: str, bound: str) -> int | float | str:
    if kind == "datetime":
        try:
            if not isinstance(value, str):
                raise ValueError
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise SchemaError(
                f"{where}: {bound}={value!r} must be ISO-8601 text such as '2024-01-31'"
            ) from None
        if moment.tzinfo is not None:
            raise SchemaError(f"{where}: {bound}={value!r} names a time zone; give it in UTC")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"{where}: {bound}={value!r} must be a number")
    if not abs(value) < float("inf"):
        raise SchemaError(f"{where}: {bound}={value!r} must be finite")
    if kind == "continuous":
        return float(value)
    if value != int(value) or abs(value) >= 2**62:
        raise SchemaError(f"{where}: {bound}={value!r} must be a whole number below 2**62 in size")
    return int(value)


class _File(msgspec.Struct, frozen=True):
    format: Literal["siloweave-schema"]
    version: int
    columns: tuple[Column, ...]


class Schema(msgspec.Struct, frozen=True, dict=True):
    """The public facts of a table: one `Column` each, in order.

    Args:
        columns: At least one column; names are unique.

    Raises:
        SchemaError: When a name repeats or there is no column.

    Example:
        >>> schema = Schema((Column("age", "integer", low=17, high=90),))
        >>> schema.names, schema["age"].low
        (('age',), 17)
        >>> Schema.from_json(schema.to_json()) == schema
        True
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "columns", tuple(self.columns))
        if not self.columns:
            raise SchemaError("a schema needs at least one column")
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise SchemaError(f"columns repeat {', '.join(map(repr, twice))}; name each once")

    def __repr__(self) -> str:
        return f"Schema({listed([f'{one.name} ({one.kind})' for one in self.columns])})"

    def _repr_html_(self) -> str:
        heads = ["column", "kind", "values", "missing", "taken from rows"]
        rows = [
            (c.name, c.kind, _allowed(c), "yes" if c.missing else "", ", ".join(c.from_data))
            for c in self.columns
        ]
        return html_table(f"{len(self.columns)} columns", heads, rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"the schema has no column {name!r}; it has {', '.join(self.names)}")

    def to_json(self) -> str:
        """Return the schema as JSON text, with a version; `from_json` reads it back."""
        file = _File("siloweave-schema", _VERSION, self.columns)
        return msgspec.json.format(msgspec.json.encode(file), indent=2).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Schema":
        """Read a schema that `to_json` wrote.

        Args:
            text: JSON text.

        Returns:
            The schema.

        Raises:
            SchemaError: When the text is not such JSON, names the field that is wrong.
        """
        try:
            file = msgspec.json.decode(text, type=_File)
        except msgspec.DecodeError as error:
            raise SchemaError(f"not a schema file: {error}") from None
        if file.version != _VERSION:
            raise SchemaError(
                f"schema file version {file.version}; this siloweave reads {_VERSION}: "
                "write it again with this version"
            )
        return cls(file.columns)

    def to_sdv(self) -> dict[str, Any]:
        """Return SDV single-table metadata; the facts SDV has no word for are kept beside it."""
        from siloweave.tables.sdv import to_sdv

        return to_sdv(self)

    @classmethod
    def from_sdv(cls, metadata: Mapping[str, Any], *, table: Any = None) -> "Schema":
        """Read SDV metadata (single table).

        Args:
            metadata: The parsed JSON.
            table: A `Table`, frame or path to take categories and bounds from, which SDV metadata
                lack; each such fact is marked as taken from data. Not needed for metadata that
                `to_sdv` wrote.

        Returns:
            The schema.

        Raises:
            SchemaError: When the metadata are not such JSON, or categories are nowhere to be found.
        """
        from siloweave.tables.sdv import from_sdv

        return from_sdv(metadata, None if table is None else read(table))

    @classmethod
    def detect(cls, table: object, *, max_categories: int = 256) -> "Schema":
        """Propose a schema from data, to be reviewed; every fact in it is marked as from data.

        Nothing here is private: bounds and categories are those of the rows. Review the proposal
        and call `declared` on it, or learn it privately.

        Args:
            table: A `Table`, or anything `siloweave.tables.read.read` takes.
            max_categories: Text columns with more values keep the most frequent ones and send
                the rest to the category ``__other__``.

        Returns:
            The proposal.

        Raises:
            DataError: When the table has no rows or no columns.
            SchemaError: When a column has no value at all.

        Example:
            >>> from siloweave.datasets import adult
            >>> Schema.detect(adult())["age"].from_data
            ('kind', 'low', 'high', 'missing')
        """
        from siloweave.tables.detect import detect

        return cls(detect(table, max_categories))

    def differences(self, other: "Schema") -> list[str]:
        """Say in words where two schemas differ, one line per fact; empty when they agree.

        Where a fact came from (``from_data``, ``learned``) is not a difference.
        """
        lines = []
        mine, theirs = set(self.names), set(other.names)
        lines += [
            f"column {name!r}: only in the first" for name in self.names if name not in theirs
        ]
        lines += [
            f"column {name!r}: only in the second" for name in other.names if name not in mine
        ]
        for name in (name for name in self.names if name in theirs):
            for fact in (*_FACTS, "other", "format"):
                a, b = getattr(self[name], fact), getattr(other[name], fact)
                if a != b or type(a) is not type(b):
                    lines.append(f"column {name!r}: {_contrast(fact, a, b)}")
        if not lines and self.names != other.names:
            lines.append(f"column order: {', '.join(self.names)} against {', '.join(other.names)}")
        return lines

    def declared(self) -> "Schema":
        """Return the schema as reviewed: no fact counts as taken from data any more.

        Call it after every fact in `from_data` was replaced by one that was known without the rows.
        It changes no fact: an exact minimum stays in the schema, and no report names it any more.

        Returns:
            The same facts, with every `from_data` empty.

        Example:
            >>> from siloweave.datasets import adult, adult_schema
            >>> found = Schema.detect(adult().select(["age"]))
            >>> found["age"].high, found.declared()["age"].high, adult_schema()["age"].from_data
            (90, 90, ())
        """
        return Schema(
            tuple(msgspec.structs.replace(column, from_data=()) for column in self.columns)
        )

    def select(self, names: Sequence[str]) -> "Schema":
        """Return the schema of some columns, in the order given."""
        return Schema(tuple(self[name] for name in names))

    def digest(self) -> str:
        """Return 32 hex digits that agree exactly when the facts do, wherever they came from."""
        bare = [msgspec.structs.replace(c, from_data=(), learned=()) for c in self.columns]
        facts = msgspec.json.encode(bare)
        return blake2b(facts, digest_size=16).hexdigest()


def _allowed(column: Column) -> str:
    """What a column's values may be, in a few words."""
    if column.categories:
        return listed([str(category) for category in column.categories], 5)
    return "" if column.low is None else f"{column.low} to {column.high}"


def _contrast(fact: str, a: object, b: object) -> str:
    if fact != "categories" or not isinstance(a, tuple) or not isinstance(b, tuple):
        return f"{fact} {a!r} against {b!r}"
    first = [value for value in a if value not in b]
    second = [value for value in b if value not in a]
    if not first and not second:
        return "categories are the same in another order"
    return f"categories only in the first: {first}; only in the second: {second}"
