"""The metadata files of SDV 1.x and 2.x: what they say of columns, read and written.

SDV is not needed for it and no code of it is used: the keys are facts about a file format, and
``tools/check_sdv.py`` compares them with the packages themselves. SDV refuses a file with a key
that it does not know, so the facts that it has no key for are lost there; `to_metadata` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Any

from siloweave.errors import SchemaError
from siloweave.tables.column import Category, Column, Kind
from siloweave.tables.forms import SEMANTIC, written_time
from siloweave.tables.parsing import time_of

EXTRA = "siloweave"
"""The key of our own schema in metadata of version 1, beside the tables."""
TABLE = "table"
"""The name that SDV gives a table that nobody named."""
VERSIONS = (1, 2)
"""The versions of SDV whose metadata are written."""
# What is called the same here.
_SDTYPES: tuple[Kind, ...] = ("categorical", "boolean", "datetime", "id")
# The sdtypes of a text's formats; SDV also takes the names of faker's functions.
_PERSONAL = {form: form for form in SEMANTIC} | {
    "phone": "phone_number",
    "ip": "ipv4_address",
    "uuid": "uuid4",
}
_FORMATS = {sdtype: form for form, sdtype in _PERSONAL.items()} | {
    "first_name": "name",
    "last_name": "name",
    "street_address": "address",
    "zipcode": "postcode",
    "ipv4": "ip",
    "uuid": "uuid",
}
# SDV holds bounds in nanoseconds since 1970, in 64 bits: whole years between these fit.
_YEARS = range(1678, 2262)
# The last moment of a day that a bound's text can show, by the resolution of the column.
_LAST_MOMENTS = {
    "millisecond": time(23, 59, 59, 999_000),
    "microsecond": time(23, 59, 59, 999_999),
}


@dataclass(frozen=True)
class SDVColumn:
    """What metadata say of one column.

    Attributes:
        name: The column's name.
        kind: None for whatever number the data hold.
        format: As `Column` has it.
        ranges: The facts of keys such as ``range_values``, by their names in `Column`. SDV's own
            detection takes them from rows.
    """

    name: str
    kind: Kind | None
    format: str | None = None
    ranges: dict[str, Any] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether no data are needed for the facts that methods ask for."""
        if self.kind is None:
            return False
        if self.kind == "categorical":
            needed = {"categories"}
        elif self.kind in ("integer", "continuous", "datetime"):
            needed = {"low", "high"}
        else:
            return False
        return (needed | {"missing"}).issubset(self.ranges)


# Written


def to_metadata(columns: Sequence[Column], version: int) -> dict[str, Any]:
    """Return columns as metadata of one version of SDV, with those facts that it has a key for."""
    if version not in VERSIONS:
        raise SchemaError(
            f"version={version!r}: SDV's metadata are written for version 1 or 2; "
            "give that of the SDV that is to read them"
        )
    table: dict[str, Any] = {}
    # A key may not be missing.
    keys = [c.name for c in columns if c.is_id and not c.missing]
    if len(keys) == 1:
        table["primary_key"] = keys[0]
    record_of = _record if version == 1 else _record_with_ranges
    table["columns"] = {column.name: record_of(column) for column in columns}
    return {
        "METADATA_SPEC_VERSION": f"V{version}",
        "tables": {TABLE: table},
        "relationships": [],
    }


def _record(column: Column) -> dict[str, Any]:
    """Return a column as both versions have it; version 1 has nothing else."""
    if column.kind == "text" and column.format in (None, *_PERSONAL):
        sdtype = _PERSONAL.get(column.format or "", "unknown")
        return {"sdtype": sdtype, "pii": True}
    if column.is_number:
        representation = "Int64" if column.is_whole else "Float"
        return {"sdtype": "numerical", "computer_representation": representation}
    if not column.modelled:
        record = {"sdtype": "id"}
        if column.format is not None:
            record["regex_format"] = column.format
        return record
    # SDV's booleans are true and false; how they are written here are two categories there.
    if column.kind == "boolean" and column.categories:
        return {"sdtype": "categorical"}
    record = {"sdtype": column.kind}
    if column.is_datetime and column.format is not None:
        record["datetime_format"] = column.format
    return record


def _record_with_ranges(column: Column) -> dict[str, Any]:
    """Return a column as version 2 has it: with its values, bounds and decimals."""
    record = _record(column)
    record.pop("computer_representation", None)
    if column.is_whole:
        record["decimal_places"] = 0
    elif column.decimals is not None:
        record["decimal_places"] = column.decimals

    if column.categories and column.other is None:
        record["range_values"] = list(column.categories)
    elif column.categories:
        # SDV takes a list for all the values that there are, and refuses rows with another.
        record["high_cardinality"] = True
    if column.categories and _are_ordered(column.categories):
        record["sdtype"] = "ordinal"

    bounds: dict[str, Any] = {"range_min": column.low, "range_max": column.high}
    if column.is_datetime:
        bounds = {
            "range_min": _written_bound(column, column.low, time.min),
            "range_max": _written_bound(column, column.high, _last_moment(column)),
        }
    record |= {key: bound for key, bound in bounds.items() if bound is not None}
    record["range_is_nullable"] = column.missing
    return record


def _are_ordered(categories: Sequence[Category]) -> bool:
    """Return whether methods know an order of categories, which they do of numbers."""
    return not isinstance(categories[0], str | bool)


def _last_moment(column: Column) -> time:
    """Return the time up to which a date as a bound reaches, in what the column can write."""
    if column.resolution == "day":
        return time.min
    # Bounds that are dates mean days, where neither a format nor a resolution says otherwise.
    if column.resolution is None and column.format is None:
        return time.min
    return _LAST_MOMENTS.get(column.resolution or "", time(23, 59, 59))


def _written_bound(column: Column, bound: Any, moment: time) -> str | None:
    """Return a datetime bound as SDV reads it; None where it would refuse the file for it.

    `moment` is the time of a bound that is a date.
    """
    if bound is None:
        return None
    when = datetime.fromisoformat(bound)
    if len(bound) == len("2024-01-31"):
        when = datetime.combine(when, moment)
    if when.year not in _YEARS:
        return None
    if column.format is None:
        text = when.isoformat(" ")
        return text if column.zone is None else f"{text}+00:00"
    text = written_time(when, column.format)
    try:
        # SDV checks that a bound has the format, which codes such as %-d cannot show.
        datetime.strptime(text, column.format)  # noqa: DTZ007  only whether it can be read counts
    except ValueError:
        return None
    return text


# Read


def columns_of(metadata: Mapping[str, Any]) -> list[SDVColumn]:
    """Return what metadata of either version say of each column, in order."""
    table = _table(metadata)
    records = table.get("columns")
    if not isinstance(records, Mapping) or not records:
        raise SchemaError("not SDV metadata: it has no 'columns'")
    keys = _keys(table, records)
    return [_column(name, record, name in keys) for name, record in records.items()]


def allows_missing(metadata: Mapping[str, Any]) -> bool:
    """Return whether a value may be missing where a record does not say: so in version 2."""
    return metadata.get("METADATA_SPEC_VERSION") == "V2"


def constraints_in(metadata: Mapping[str, Any]) -> Any:
    """Return the list of constraints that earlier files have beside the columns."""
    return metadata.get("constraints", _table(metadata).get("constraints"))


def _table(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata's only table; files of one table alone are that table."""
    if "tables" not in metadata:
        return metadata
    tables = metadata["tables"]
    if not isinstance(tables, Mapping) or len(tables) != 1:
        raise SchemaError("SDV metadata must describe exactly one table; cut it to one")
    (table,) = tables.values()
    if not isinstance(table, Mapping):
        raise SchemaError("not SDV metadata: it has no 'columns'")
    return table


def _keys(table: Mapping[str, Any], records: Mapping[str, Any]) -> set[str]:
    """Return the columns that identify a row alone, which those of a joint key do not."""
    alternate_keys = table.get("alternate_keys") or []
    if not isinstance(alternate_keys, list | tuple):
        raise SchemaError("SDV metadata: alternate_keys must be a list; correct it")
    single = set()
    for key in (table.get("primary_key"), *alternate_keys):
        if key is None:
            continue
        # A joint key is a list of names.
        names = key if isinstance(key, list | tuple) else [key]
        for name in names:
            if name not in records:
                raise SchemaError(
                    f"SDV metadata: the key {name!r} is no column; correct it"
                )
        if len(names) == 1:
            single.add(names[0])
    return single


def _column(name: str, record: Any, key: bool) -> SDVColumn:
    """Read one column's record; `key` says that it identifies a row."""
    if not isinstance(record, Mapping) or not isinstance(record.get("sdtype"), str):
        raise SchemaError(f"not SDV metadata: column {name!r} has no 'sdtype'")
    kind, form = _kind(record, key)
    ranges: dict[str, Any] = {}
    if "range_is_nullable" in record:
        ranges["missing"] = record["range_is_nullable"] is True
    # Version 1 lists values where somebody has put them in order.
    values = record.get("range_values") or record.get("order")
    if kind == "categorical" and values:
        ranges["categories"] = _categories(name, values)
    if kind == "continuous" and "decimal_places" in record:
        ranges["decimals"] = record["decimal_places"]
    if kind in (None, "integer", "continuous", "datetime"):
        for key_name, fact in (("range_min", "low"), ("range_max", "high")):
            bound = record.get(key_name)
            if bound is not None and kind == "datetime":
                bound = _read_bound(name, bound, form)
            if bound is not None:
                ranges[fact] = bound
    if kind == "datetime":
        _shorten_days(ranges)
    return SDVColumn(name, kind, form, ranges)


def _kind(record: Mapping[str, Any], key: bool) -> tuple[Kind | None, str | None]:
    """Return a record's kind (None: whatever number the data hold) and format."""
    sdtype = record["sdtype"]
    if sdtype == "numerical":
        return _number_kind(record), None
    # Earlier metadata have it for the sdtype text, too.
    if "regex_format" in record:
        return "id", record["regex_format"]
    if sdtype == "datetime":
        return "datetime", record.get("datetime_format")
    if sdtype == "ordinal":
        return "categorical", None
    for kind in _SDTYPES:
        if kind == sdtype:
            return kind, None
    if record.get("pii") is False:
        return "categorical", None
    form = _FORMATS.get(sdtype)
    if key and form is None:
        return "id", None
    return "text", form


def _number_kind(record: Mapping[str, Any]) -> Kind | None:
    """Return which numbers a record describes; None where it does not say."""
    if "decimal_places" in record:
        return "integer" if record["decimal_places"] == 0 else "continuous"
    representation = str(record.get("computer_representation", "")).lower()
    if representation.startswith(("int", "uint")):
        return "integer"
    if representation:
        return "continuous"
    return None


def _categories(name: str, values: Any) -> tuple[Category, ...]:
    """Return the values of a column; pandas writes whole numbers beside a gap as 1.0."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise SchemaError(
            f"SDV metadata: range_values of column {name!r} must be a list; correct it"
        )
    if all(isinstance(value, float) and value.is_integer() for value in values):
        return tuple(int(value) for value in values)
    return tuple(values)


def _read_bound(name: str, bound: Any, form: str | None) -> str:
    """Return a bound of datetimes as `Column` has it: ISO-8601 in UTC, without a zone."""
    when = time_of(name, str(bound), form)
    if when is None:
        raise SchemaError(
            f"SDV metadata: the bound {bound!r} of column {name!r} is no datetime of its "
            "datetime_format; correct it"
        )
    timespec = "auto"
    if when.microsecond and when.microsecond % 1000 == 0:
        timespec = "milliseconds"
    return when.isoformat(timespec=timespec)


def _shorten_days(ranges: dict[str, Any]) -> None:
    """Write bounds as dates where no time of day is in them: SDV writes each with a time."""
    bounds = {fact: ranges[fact] for fact in ("low", "high") if fact in ranges}
    if all(bound.endswith("T00:00:00") for bound in bounds.values()):
        for fact, bound in bounds.items():
            ranges[fact] = bound.partition("T")[0]
