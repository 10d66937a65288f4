"""Public facts about the columns of a table, and what every row of it keeps.

A schema is declared, or proposed by `Schema.detect` from data; every fact that came from data is
named in ``Column.from_data`` until somebody reviews it (`Schema.declared`). Nothing else in the
package learns bounds or categories from rows for free.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import force_setattr, replace

from siloweave.errors import DataError, SchemaError
from siloweave.tables.column import FACTS, KINDS, LOW, Category, Column, Kind
from siloweave.tables.constraints import TAGS, Constraint, check_constraints, from_sdv
from siloweave.tables.decimals import rounded_outwards
from siloweave.tables.detect import ColumnEvidence, evidence
from siloweave.tables.display import bound_words, html_table, listed
from siloweave.tables.forms import written_time
from siloweave.tables.parsing import UNITS
from siloweave.tables.read import read
from siloweave.tables.relations import proposed
from siloweave.tables.sdv import (
    EXTRA,
    SDVColumn,
    allows_missing,
    columns_of,
    constraints_in,
    to_metadata,
)
from siloweave.tables.table import Table

UNLISTED = "__other__"
"""The category for all values that are not listed, where `Schema.detect` made it up."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  only its digits count
# Formats of whole numbers: dates such as 20240131, and ids of which none begins with 0.
_DIGITS = re.compile(r"%Y(%[mdHMSf])*0*|\[1-9\](\[0-9\](\{\d+\})?)*")
# Every whole number of so many digits is an int64.
_INT64_DIGITS = 18
_DAY = 86_400_000_000  # microseconds
_log = logging.getLogger("siloweave")

VERSION = 1
"""Of every file that `versioned` reads."""


def versioned(text: str | bytes, kind: Any, what: str) -> Any:
    """Read JSON of a known version; `what` names it in errors, such as "a schema file".

    SchemaError names the field that is wrong.
    """
    try:
        file = msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        # The last word of msgspec's message is the field's path, such as `$.columns[0].kind`.
        field = str(error).removesuffix("`").rpartition(".")[2]
        allowed = {"kind": KINDS, "constraint": TAGS}.get(field)
        more = ""
        if allowed:
            more = f"; use one of {', '.join(allowed)}"
        raise SchemaError(f"not {what}: {error}{more}") from None
    if file.version != VERSION:
        # Without its article.
        _, _, name = what.partition(" ")
        raise SchemaError(
            f"{name} version {file.version}; this siloweave reads {VERSION}: "
            "write it again with this version"
        )
    return file


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schema file."""

    format: Literal["siloweave-schema"]
    version: int
    columns: tuple[Column, ...]
    constraints: tuple[Constraint, ...] | msgspec.UnsetType = msgspec.UNSET


class Schema(msgspec.Struct, frozen=True, dict=True):
    """The public facts about a table: one `Column` each, in order, with unique names.

    ``schema["age"]`` is the column of that name, ``for column in schema`` goes through all of them,
    ``"age" in schema`` says whether there is one, and ``len(schema)`` counts them.

    Args:
        columns: Facts about each column.
        constraints: What every row keeps, such as `Inequality`; every sampled row keeps it, too.

    Raises:
        SchemaError: When a name repeats, there is no column, or no row could keep a constraint.

    Example:
        >>> schema = Schema((Column("age", "integer", low=17, high=90),))
        >>> schema.names, schema["age"].low
        (('age',), 17)
        >>> [column.kind for column in schema], len(schema), "age" in schema
        (['integer'], 1, True)
        >>> Schema.from_json(schema.to_json()) == schema
        True
    """

    columns: tuple[Column, ...]
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "columns", tuple(self.columns))
        force_setattr(self, "constraints", tuple(self.constraints))
        if not self.columns:
            raise SchemaError("a schema needs at least one column")
        counts = Counter(self.names)
        repeated = sorted(name for name, count in counts.items() if count > 1)
        if repeated:
            raise SchemaError(
                f"columns repeat {', '.join(map(repr, repeated))}; name each once"
            )
        if self.constraints:
            by_name = {column.name: column for column in self.columns}
            check_constraints(self.constraints, by_name)

    def __repr__(self) -> str:
        columns = [f"{column.name} ({column.kind})" for column in self.columns]
        return f"Schema({listed(columns)})"

    def _repr_html_(self) -> str:
        heads = ["column", "kind", "values", "missing", "taken from rows"]
        rows = []
        for column in self.columns:
            values = _allowed(column)
            missing = "yes" if column.missing else ""
            from_data = ", ".join(column.from_data)
            rows.append((column.name, column.kind, values, missing, from_data))
        return html_table(f"{len(self.columns)} columns", heads, rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def coded(self) -> tuple[Column, ...]:
        """Every column that is modelled, in order: all but ids and texts."""
        return tuple(column for column in self.columns if column.modelled)

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(
            f"the schema has no column {name!r}; it has {', '.join(self.names)}"
        )

    @property
    def padded(self) -> dict[str, int]:
        """The fewest decimals with which numbers are written, by column, where this is declared."""
        padded = {}
        for column in self.columns:
            if column.padded is not None:
                padded[column.name] = column.padded
        return padded

    def to_json(self) -> str:
        """Return the schema as JSON text, with a version; `from_json` reads it back."""
        constraints = self.constraints or msgspec.UNSET
        file = _File("siloweave-schema", VERSION, self.columns, constraints)
        encoded = msgspec.json.encode(file)
        return msgspec.json.format(encoded, indent=2).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """Read a schema that `to_json` wrote; SchemaError names the field that is wrong."""
        file = versioned(text, _File, "a schema file")
        return cls(file.columns, file.constraints or ())

    def to_sdv(self, *, version: int = 2) -> dict[str, Any]:
        """Return SDV metadata of one table, as plain data for `json.dump`.

        For SDV 2 it holds kinds, categories, bounds, decimals, the formats of datetimes and ids,
        and where values may be missing. SDV 2 refuses a file with a key that it does not know, so
        what it has no key for **is lost**:

        - constraints, which SDV takes in `add_constraints` of a synthesizer;
        - `outside`, `fallback`, `missing_values`, `padded`, `resolution`, `zone`, the format of
          numbers, `why`, and which facts are from data or learned;
        - categories of a column that has an `other`, since SDV refuses rows with values that are
          not listed;
        - kinds that SDV lacks: a text of a pattern becomes an id, and a boolean that is written as
          two values a categorical of these;
        - bounds of datetimes outside the years 1678 to 2261, or in formats such as ``%-d``, which
          SDV cannot read.

        For SDV 1 it holds kinds and formats. The whole schema stands beside the tables, under the
        key ``siloweave``, which SDV 1 ignores there, and drops when it saves the file again;
        `from_sdv` reads it back without loss. `to_json` always keeps everything.

        Args:
            version: 1 or 2, that of the SDV which is to read the file.

        Returns:
            The metadata, whose one table is called ``table``: `fit` of SDV 2 takes
            ``{"table": frame}``.

        Raises:
            SchemaError: For another version.

        Example:
            >>> schema = Schema((Column("age", "integer", low=17, high=90),))
            >>> schema.to_sdv()["tables"]["table"]["columns"]["age"]["range_max"]
            90
        """
        metadata = to_metadata(self.columns, version)
        if version == 1:
            metadata[EXTRA] = msgspec.json.decode(self.to_json())
        return metadata

    @classmethod
    def from_sdv(cls, metadata: Mapping[str, Any], *, table: Any = None) -> Schema:
        """Read metadata of one table that SDV 1 or 2 wrote.

        ``range_values``, ``range_min``, ``range_max``, ``range_is_nullable`` and
        ``decimal_places`` of SDV 2 become categories, bounds, `missing` and decimals (none: an
        integer). SDV's own detection takes them from the rows, and its file does not say so;
        they are therefore marked as taken from data, until `declared`. An `ordinal` column is
        categorical here, in the order of its values.

        A column of a personal sdtype is a text, and drawn anew: `email`, `phone_number`, `name`
        and other parts of names, `address` and `street_address`, `postcode`, `iban`, `url`,
        `ipv4_address` and `uuid4` in that form, any other (`ssn`, `city`, `unknown`) without one.
        It is an id where it is the primary or an alternate key and has no form, and categorical
        where ``pii`` is false. An id's `regex_format` is its format.

        As with `detect`, a column that has no other place for a cell that does not fit gets its
        lowest value as a `fallback`.

        Args:
            metadata: The parsed JSON.
            table: A `Table`, frame or path to take categories and bounds from, where the metadata
                lack them, as those of SDV 1 do; each such fact is marked as taken from data.

        Raises:
            SchemaError: When the metadata are not such JSON, categories are nowhere to be found, or
                a `regex_format` has what `forms.text_form` does not draw.

        Example:
            >>> age = {"sdtype": "numerical", "decimal_places": 0, "range_min": 17, "range_max": 90}
            >>> people = {"columns": {"age": age}}
            >>> metadata = {"METADATA_SPEC_VERSION": "V2", "tables": {"people": people}}
            >>> column = Schema.from_sdv(metadata)["age"]
            >>> column.kind, column.low, column.from_data
            ('integer', 17, ('low', 'high'))
        """
        columns = columns_of(metadata)
        if EXTRA in metadata:
            schema = cls.from_json(msgspec.json.encode(metadata[EXTRA]))
            if schema.names == tuple(column.name for column in columns):
                return schema
            raise SchemaError(
                "the metadata's columns and its 'siloweave' entry differ; remove that entry and "
                "give table= to take the facts from data"
            )

        constraints, ignored = from_sdv(constraints_in(metadata))
        if ignored:
            _log.warning(
                "SDV constraints that have no equal here: %s", ", ".join(ignored)
            )
        rows = None if table is None else read(table)
        if rows is not None:
            rows.check_nested()
        lacking = []
        for column in columns:
            if column.kind == "categorical" and "categories" not in column.ranges:
                lacking.append(column.name)
        if lacking and rows is None:
            raise SchemaError(
                f"the SDV metadata list no categories, needed for: {', '.join(lacking)}; give "
                "table= to take them from data (marked as such), or write the schema by hand"
            )
        missing = allows_missing(metadata)
        described = tuple(_of_sdv(column, rows, missing) for column in columns)
        return cls(described, constraints).with_fallbacks()

    @classmethod
    def detect(
        cls, table: object, *, max_categories: int = 256, constraints: bool = True
    ) -> Schema:
        """Propose a schema from data, to be reviewed; every fact in it is marked as from data.

        Nothing here is private: bounds and categories are those of the rows. Review the proposal
        and call `declared` on it, or learn it privately. ``Column.why`` has a sentence for every
        column: what was seen, what was decided, and what to change if it is wrong.

        A column in which no value is missing, and that has no `other`, gets its lowest value as a
        `fallback`: what a later row may hold that fits none of its values counts as that.

        Identifiers, and texts that nearly every row has another of, are not modelled, and their
        values are never listed. Integers are taken for codes where they are few, have gaps or the
        name of a code, or other columns know no order of them.

        Constraints that all rows keep, and chance would not give, are proposed, too: every drawn
        row keeps them. ``Constraint.why`` says what was seen; leave out those that only these rows
        happen to keep.

        Args:
            table: A `Table`, or anything `siloweave.tables.read.read` takes.
            max_categories: Text columns with more values keep the most frequent ones and send
                the rest to the category ``__other__``, which is no value: drawn rows have listed
                ones instead, see `tables.drawn.listed_instead`.
            constraints: Whether constraints are looked for.

        Raises:
            DataError: When the table has no rows or no columns, or a cell holds several values,
                such as a list.
            SchemaError: When ``max_categories`` is below 2.

        Example:
            >>> from siloweave.datasets import adult
            >>> Schema.detect(adult())["age"].from_data
            ('kind', 'low', 'high', 'missing')
        """
        rows = read(table)
        rows.check_nested()
        if max_categories < 2:
            raise SchemaError(f"max_categories={max_categories}: give 2 or more")
        if rows.num_rows == 0 or not rows.names:
            raise DataError(
                "the table is empty; detecting a schema needs rows and columns"
            )
        findings = evidence(rows).values()
        columns = [_described(rows, finding, max_categories) for finding in findings]
        schema = cls(tuple(columns)).with_fallbacks()
        if not constraints:
            return schema
        return cls(schema.columns, proposed(rows, schema.columns))

    def differences(self, other: Schema) -> list[str]:
        """Describe where two schemas differ, with one line per fact; empty if they agree.

        Where a fact came from (``from_data``, ``learned``) is not a difference.
        """
        only_first = [name for name in self.names if name not in other.names]
        only_second = [name for name in other.names if name not in self.names]
        lines = [f"column {name!r}: only in the first" for name in only_first]
        lines += [f"column {name!r}: only in the second" for name in only_second]
        for name in self.names:
            if name in other.names:
                lines += _column_differences(self[name], other[name])

        first = _unmarked(self.constraints)
        second = _unmarked(other.constraints)
        for rule in first:
            if rule not in second:
                lines.append(f"constraint {rule.words}: only in the first")
        for rule in second:
            if rule not in first:
                lines.append(f"constraint {rule.words}: only in the second")
        # The order of columns is worth a line only where it is the one difference.
        if not lines and self.names != other.names:
            first_order = ", ".join(self.names)
            second_order = ", ".join(other.names)
            lines.append(f"column order: {first_order} against {second_order}")
        return lines

    def declared(self) -> Schema:
        """Return the schema as reviewed: no fact counts as taken from data any more.

        Call it after every fact in `from_data` was replaced by one that was known without the rows.
        It changes no fact: an exact minimum stays in the schema, and no report names it any more.
        What was seen in the rows (``why``) is removed.

        Example:
            >>> from siloweave.datasets import adult, adult_schema
            >>> schema = Schema.detect(adult().select(["age"]))
            >>> schema["age"].high, schema.declared()["age"].high, adult_schema()["age"].from_data
            (90, 90, ())
        """
        bare = [replace(c, from_data=(), why="") for c in self.columns]
        return Schema(tuple(bare), _unmarked(self.constraints))

    def placed(self) -> Schema:
        """Return the schema in which every cell has a place, as a guarantee needs it.

        Columns without a word on `outside` move what does not fit; those that refuse, by choice,
        still do.

        Raises:
            SchemaError: A column has no place for some cell; all such columns are named.

        Example:
            >>> age = Column("age", "integer", low=0, high=99, missing=True)
            >>> Schema((age,)).placed()["age"].outside
            'move'
        """
        homeless = [repr(c.name) for c in self.columns if not c.has_place]
        if homeless:
            raise SchemaError(
                f"{listed(homeless)} of the schema: a cell that does not "
                "fit has no place there, and under a guarantee no row may decide whether a table "
                "is refused. Declare for each column a fallback (a value that stands for such "
                "cells), an other category or missing=True; Schema.with_fallbacks() takes the "
                "lowest value. Or declare outside='refuse', where one row may decide it"
            )
        columns = []
        for column in self.columns:
            if column.modelled and column.outside is None:
                column = replace(column, outside="move")
            columns.append(column)
        return Schema(tuple(columns), self.constraints)

    def with_fallbacks(self) -> Schema:
        """Return the schema with a fallback in every column that has no place for some cell.

        It is the lower bound, or the first category.

        Example:
            >>> age = Column("age", "integer", low=17, high=99)
            >>> Schema((age,)).with_fallbacks()["age"].fallback
            'low'
        """
        columns = []
        for column in self.columns:
            if not column.has_place:
                column = replace(column, fallback=lowest(column))
            columns.append(column)
        return Schema(tuple(columns), self.constraints)

    def refusing(self) -> Schema:
        """Return the schema with every column refusing cells that do not fit."""
        strict = []
        for column in self.columns:
            # A column that refuses has no use for a fallback, and may not declare one.
            strict.append(replace(column, outside="refuse", fallback=None))
        return Schema(tuple(strict), self.constraints)

    def without_reasons(self) -> Schema:
        """Return the schema without any ``why``, which counts rows and so must stay with the owner.

        It is the schema itself where no column has one.
        """
        if not any(fact.why for fact in (*self.columns, *self.constraints)):
            return self
        columns = [replace(column, why="") for column in self.columns]
        constraints = [replace(rule, why="") for rule in self.constraints]
        return Schema(tuple(columns), tuple(constraints))

    def select(self, names: Sequence[str]) -> Schema:
        """Return the schema of some columns, in the order given, with the constraints on these."""
        columns = [self[name] for name in names]
        selected = set(names)
        constraints = [c for c in self.constraints if selected.issuperset(c.columns)]
        return Schema(tuple(columns), tuple(constraints))

    def digest(self) -> str:
        """Return 32 hex digits that are equal exactly for equal facts, wherever they came from."""
        bare = [replace(c, from_data=(), learned=(), why="") for c in self.columns]
        facts = [*bare, *_unmarked(self.constraints)]
        encoded = msgspec.json.encode(facts)
        return blake2b(encoded, digest_size=16).hexdigest()


def place_words(column: Column) -> str:
    """Describe where a column puts a cell that does not fit.

    Example:
        >>> place_words(Column("age", "integer", low=0, high=99, missing=True, outside="move"))
        'age: the nearest of 0 to 99, else missing'
    """
    refuge: Any = column.fallback
    if refuge is None:
        refuge = column.other
    if refuge == LOW and not column.options:
        refuge = column.low
    rest = "missing" if refuge is None else repr(refuge)
    if refuge is not None and column.is_binned:
        rest = bound_words(refuge)
    if column.low is None or column.high is None:
        return f"{column.name}: {rest}"
    bounds = f"{bound_words(column.low)} to {bound_words(column.high)}"
    return f"{column.name}: the nearest of {bounds}, else {rest}"


def lowest(column: Column) -> Category:
    """Return the fallback that stands for a modelled column's lowest value."""
    if column.options:
        return column.options[0]
    return LOW


def _unmarked(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Return constraints without the mark of where they came from."""
    return tuple(replace(rule, from_data=False, why="") for rule in constraints)


def _allowed(column: Column) -> str:
    """Describe in a few words which values a column allows."""
    if column.categories:
        texts = [str(category) for category in column.categories]
        return listed(texts, 5)
    if column.low is None:
        return ""
    return f"{column.low} to {column.high}"


def _column_differences(mine: Column, theirs: Column) -> list[str]:
    """Describe in words where two columns of one name differ."""
    lines = []
    for fact in (*FACTS, "other", "outside", "fallback"):
        first = getattr(mine, fact)
        second = getattr(theirs, fact)
        # True == 1 and 1 == 1.0, which are no equals in a file.
        if first != second or type(first) is not type(second):
            lines.append(f"column {mine.name!r}: {_contrast(fact, first, second)}")
    return lines


def _contrast(fact: str, first: object, second: object) -> str:
    """Describe in words how two values of one fact differ."""
    plain = f"{fact} {first!r} against {second!r}"
    if fact != "categories":
        return plain
    if not isinstance(first, tuple) or not isinstance(second, tuple):
        return plain
    only_first = [value for value in first if value not in second]
    only_second = [value for value in second if value not in first]
    if not only_first and not only_second:
        return "categories are the same in another order"
    return (
        f"categories only in the first: {only_first}; only in the second: {only_second}"
    )


def describe(
    table: Table,
    name: str,
    *,
    kind: Kind | None = None,
    pattern: str | None = None,
    max_categories: int = 256,
) -> Column:
    """Describe one column from its values; ``from_data`` names the facts taken from them.

    Kind and pattern, how a datetime column is written as text, are proposed where they are not
    known. Text with more values than `max_categories` gets a category for the rest. SchemaError if
    there is no value, or values do not fit ``kind``.
    """
    if kind is None:
        finding = evidence(table, (name,))[name]
        return _described(table, finding, max_categories)
    is_modelled = kind not in ("id", "text")
    if is_modelled and table.finite(name).missing(name).all():
        raise SchemaError(
            f"column {name!r} has no value in any row; drop it, or declare it by hand with "
            "missing=True"
        )
    finding = ColumnEvidence(name, kind, format=pattern)
    return _described(table, finding, max_categories)


def _described(table: Table, finding: ColumnEvidence, max_categories: int) -> Column:
    """Build a column from evidence, with categories and bounds of its rows."""
    name = finding.name
    kind = finding.kind
    table = table.blanked(name, finding.missing_values)
    # Infinite numbers are no gaps, but they set no bounds either.
    has_gaps = bool(table.missing(name).any())
    table = table.finite(name)
    facts: dict[str, Any] = {
        "format": finding.format,
        "missing_values": finding.missing_values,
        "missing": has_gaps,
        "why": finding.why,
    }
    if kind in ("id", "text"):
        from_data: tuple[str, ...] = ("kind",)
        if finding.format:
            from_data = ("kind", "format")
        return Column(name, kind, **facts, from_data=from_data)

    categories = finding.categories
    other = None
    num_rare = 0
    if kind == "categorical":
        categories, other, num_rare = _categories(table, name, max_categories)
    if other is not None:
        num_listed = len(categories) - 1
        facts["why"] += (
            f"; the {num_listed:,} most frequent are listed, and {num_rare:,} rows hold "
            "another, instead of which drawn rows have a listed one"
        )

    further = []
    if kind != "datetime":
        further += [fact for fact in ("format", "missing_values") if facts[fact]]
    optional_facts = ["resolution", "zone"]
    has_text = any(isinstance(value, str) for value in categories)
    if kind != "datetime" and not has_text:
        optional_facts += ["decimals", "padded"]
    for fact in optional_facts:
        value = getattr(finding, fact)
        if value is not None:
            facts[fact] = value
            further.append(fact)

    if kind == "boolean":
        from_data = ("kind", "missing", *further)
        return Column(name, kind, categories, other=other, **facts, from_data=from_data)
    if kind == "categorical":
        from_data = ("kind", "categories", "missing", *further)
        return Column(name, kind, categories, other=other, **facts, from_data=from_data)
    # Texts in a column of numbers have no place between bounds.
    numbers = table.blanked(name, finding.strays)
    low, high = _bounds(numbers, kind, finding)
    from_data = ("kind", "low", "high", "missing", *further)
    return Column(name, kind, (), low, high, **facts, from_data=from_data)


def _categories(
    table: Table, name: str, limit: int
) -> tuple[tuple[Any, ...], Any, int]:
    """Return a column's categories, and one for all others if there are more than a limit.

    The last number is that of the rows which hold these others.
    """
    levels = table.levels(name)
    if levels and len(levels) <= limit:
        return levels, None, 0
    # Codes such as 250.10 and 250.1 are two; as numbers they would be one.
    read_as = None if table.keeps_texts(name) else str
    distinct, counts = table.counts(name, read_as)
    if len(distinct) <= limit or not isinstance(distinct[0], str):
        return tuple(sorted(distinct)), None, 0
    # The last category is for the rest, so that there are as many as the limit.
    frequent = [value for value in distinct[: limit - 1] if value != UNLISTED]
    return (*sorted(frequent), UNLISTED), UNLISTED, sum(counts[len(frequent) :])


def _bounds(table: Table, kind: Kind, finding: ColumnEvidence) -> tuple[Any, Any]:
    """Return the least and the largest value of a column; datetimes as ISO-8601 text.

    Dates have no time, and times no finer a fraction than the values need: a bound says the
    resolution, see `Column`.
    """
    readers = {"datetime": table.datetimes, "integer": table.integers}
    read_as = readers.get(kind, table.floats)
    values, is_missing = read_as(finding.name, finding.format)
    present = values[~is_missing]
    low = present.min().item()
    high = present.max().item()
    if kind != "datetime":
        # A sum with 0 makes -0.0 a 0.0.
        low = low + 0
        high = high + 0
        if finding.decimals is None:
            return low, high
        return rounded_outwards(low, high, finding.decimals)
    first, last = np.array([low, high]).astype("datetime64[us]").tolist()
    if not (present % _DAY).any():
        return first.date().isoformat(), last.date().isoformat()
    # As fine as the values are, and no finer: a bound's fraction says the resolution.
    steps = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
    fitting = [part for part, step in steps.items() if not (present % step).any()]
    timespec = fitting[0]
    return first.isoformat(timespec=timespec), last.isoformat(timespec=timespec)


def _of_sdv(column: SDVColumn, rows: Table | None, missing: bool) -> Column:
    """Build a column from SDV metadata, and from rows what these lack.

    `missing` says whether a value may be missing where metadata and rows do not say.
    """
    name = column.name
    ranges = dict(column.ranges)
    from_data = [fact for fact in FACTS if fact in ranges]
    if rows is None or column.is_complete:
        ranges = {"missing": missing} | ranges
        kind = column.kind or "continuous"
        return Column(
            name, kind, format=column.format, **ranges, from_data=tuple(from_data)
        )

    described = describe(rows, name, kind=column.kind, pattern=column.format)
    has_bounds = "low" in ranges or "high" in ranges
    if has_bounds and not described.is_binned:
        described = describe(rows, name, kind="continuous")
    if "categories" in ranges:
        ranges["other"] = None
    declared = {"kind": column.kind, "format": column.format}
    for fact in described.from_data:
        if declared.get(fact) is None and fact not in from_data:
            from_data.append(fact)
    marked = tuple(fact for fact in FACTS if fact in from_data)
    return replace(described, **ranges, from_data=marked)


def outline(table: Table, schema: Schema | None = None) -> Table:
    """Return an empty table of the same kind of frame and columns, whose types drawn rows get.

    Without a schema, columns have the types that the frame or Parquet file declares. These can
    depend on one row: pandas holds whole numbers as floats where one value is missing. A CSV
    declares no types, and what `read` finds its columns to be depends on rows too; here they are
    text, as they are written.

    With a schema, nothing but the kind of frame is taken from the table, and a column that the
    schema lacks is left out:

    ===========================  =====================  ===========  ==================
    column of the schema         pandas (missing=True)  polars       arrow
    ===========================  =====================  ===========  ==================
    integer, id, whole category  int64 (Int64)          Int64        int64
    continuous, other number     float64                Float64      double
    boolean, such a category     bool (boolean)         Boolean      bool
    text category                text as pandas has it  String       string
    datetime (in its zone, UTC)  datetime64[us]         Datetime     timestamp[us]
    number of a unit of time     timedelta64[us]        Duration     duration[us]
    datetime such as %Y%m%d      int64 (Int64)          Int64        int64
    id such as [1-9][0-9]{5}     int64 (Int64)          Int64        int64
    any other format, text       text as pandas has it  String       string
    ===========================  =====================  ===========  ==================

    A CSV holds text, whatever its rows are: there, ids and all datetimes are text, and durations
    are numbers of their unit.

    **Guarantee**: with a schema, the result depends on the schema, the table's column names and
    its kind of frame alone, so drawing rows like it reveals nothing about the table's rows.

    Example:
        >>> table = Table.from_columns({"age": (np.array([30.0, 40.0]), np.array([True, False]))})
        >>> outline(table).kind("age")
        'numbers'
        >>> outline(table, Schema((Column("age", "integer", missing=True),))).kind("age")
        'whole numbers'
    """
    if schema is None:
        return table.without_rows()
    is_text = table.frame == "csv"
    types = {}
    zones = {}
    units = {}
    for column in schema.columns:
        name = column.name
        if name not in table.names:
            continue
        types[name] = (_type(column, is_text), column.missing)
        if column.zone is not None:
            zones[name] = column.zone
        if column.format in UNITS:
            units[name] = str(column.format)
    return Table.empty(types, table.frame, zones, units)


def _type(column: Column, is_text: bool) -> type:
    """Return the type of a column's drawn values in a frame of text, or of types."""
    if column.categories:
        return type(column.categories[0])
    if not is_text and _has_digits(column):
        digits = 3 if column.resolution == "millisecond" else 6
        example = written_time(_EPOCH, str(column.format), digits)
        if column.is_id or len(example) <= _INT64_DIGITS:
            return int
        return str
    if column.format in UNITS and not is_text:
        return timedelta
    text_kinds = {"text"}
    if is_text:
        text_kinds = {"text", "id", "datetime"}
    has_form = column.format is not None and column.format not in UNITS
    if has_form or column.kind in text_kinds:
        return str
    if column.is_continuous:
        return float
    types = {"boolean": bool, "datetime": datetime}
    return types.get(column.kind, int)


def _has_digits(column: Column) -> bool:
    """Return whether a column's datetimes or ids are written as digits alone."""
    if column.kind not in ("datetime", "id"):
        return False
    return _DIGITS.fullmatch(column.format or "") is not None


def check_columns(schema: Schema, table: Table) -> None:
    """Raise SchemaError for a table of other columns than the schema's (ids may be absent).

    Rows of JSON lines name their columns themselves, so that one row could decide a refusal: what
    they lack is missing, and what the schema lacks is not read.
    """
    # What is no table, such as a database, has no such fact: its rows do not name columns.
    if getattr(table, "keyed", False):
        return
    if not set(schema.names) & set(table.names):
        raise SchemaError(
            f"the schema has {listed(schema.names, 3)}, and the table {listed(table.names, 3)}: "
            "nothing in common. This is the schema of another table; give this table's"
        )
    absent = [column.name for column in schema.coded if column.name not in table.names]
    if absent:
        raise SchemaError(
            f"the table lacks columns of the schema: {', '.join(absent)}; add them, or use "
            "Schema.select"
        )
    extra = [name for name in table.names if name not in schema.names]
    if extra:
        raise SchemaError(
            f"the schema lacks columns of the table: {', '.join(extra)}; declare them, or "
            "leave them out with Table.select"
        )


def check_learnable(schema: Schema) -> None:
    """Raise SchemaError for a schema whose columns are all ids."""
    if not schema.coded:
        raise SchemaError("schema has no column but ids; there is nothing to learn")
