"""SDV metadata JSON, both ways, as a file format only (no code of theirs is used)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from siloweave.errors import SchemaError
from siloweave.tables.detect import describe
from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Kind, Schema

__all__ = ["from_sdv", "to_sdv"]

_EXTRA = "siloweave"
_SDTYPES: dict[str, Kind] = {
    "categorical": "categorical",
    "boolean": "boolean",
    "datetime": "datetime",
    "id": "id",
}


def to_sdv(schema: Schema) -> dict[str, Any]:
    """Return single-table SDV metadata; facts without an SDV word go under ``siloweave``.

    Args:
        schema: Any schema.

    Returns:
        What `json.dump` writes; SDV reads the rest and ignores the extra key.
    """
    columns: dict[str, dict[str, Any]] = {}
    for column in schema.columns:
        record: dict[str, Any]
        if column.kind in ("integer", "continuous"):
            whole = column.kind == "integer"
            record = {
                "sdtype": "numerical",
                "computer_representation": "Int64" if whole else "Float",
            }
        else:
            record = {"sdtype": column.kind}
        if column.format is not None:
            record["datetime_format"] = column.format
        columns[column.name] = record
    metadata: dict[str, Any] = {
        "METADATA_SPEC_VERSION": "SINGLE_TABLE_V1",
        "columns": columns,
        _EXTRA: msgspec.json.decode(schema.to_json()),
    }
    ids = [column.name for column in schema.columns if column.kind == "id"]
    if len(ids) == 1:
        metadata["primary_key"] = ids[0]
    return metadata


def from_sdv(metadata: Mapping[str, Any], table: Table | None) -> Schema:
    """Read SDV metadata; see `Schema.from_sdv`."""
    records = _records(metadata)
    if _EXTRA in metadata:
        schema = Schema.from_json(msgspec.json.encode(metadata[_EXTRA]))
        if schema.names == tuple(records):
            return schema
        raise SchemaError(
            "the metadata's columns and its 'siloweave' entry differ; remove that entry and give "
            "table= to take the facts from data"
        )
    columns = [_column(name, record) for name, record in records.items()]
    if table is not None:
        return Schema(tuple(_filled(kind, name, form, table) for name, kind, form in columns))
    lacking = [name for name, kind, _ in columns if kind == "categorical"]
    if lacking:
        raise SchemaError(
            f"SDV metadata list no categories, needed for: {', '.join(lacking)}; give table= to "
            "take them from data (marked as such), or write the schema by hand"
        )
    return Schema(
        tuple(Column(name, kind or "continuous", format=form) for name, kind, form in columns)
    )


def _records(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    inner: Any = metadata
    if "tables" in metadata:
        tables = metadata["tables"]
        if not isinstance(tables, Mapping) or len(tables) != 1:
            raise SchemaError("SDV metadata must describe exactly one table; cut it to one")
        inner = next(iter(tables.values()))
    columns = inner.get("columns") if isinstance(inner, Mapping) else None
    if not isinstance(columns, Mapping) or not columns:
        raise SchemaError("not SDV metadata: it has no 'columns'")
    return columns


def _column(name: str, record: Any) -> tuple[str, Kind | None, str | None]:
    """Return name, kind (None: numerical, data must tell which) and datetime format."""
    if not isinstance(record, Mapping) or not isinstance(record.get("sdtype"), str):
        raise SchemaError(f"not SDV metadata: column {name!r} has no 'sdtype'")
    sdtype = record["sdtype"]
    if sdtype == "numerical":
        written = str(record.get("computer_representation", ""))
        if written.lower().startswith(("int", "uint")):
            return name, "integer", None
        return name, "continuous" if written else None, None
    # Whatever else SDV names (e-mail, phone, address, unknown) is personal: made anew, never coded.
    kind = _SDTYPES.get(sdtype, "id")
    return name, kind, record.get("datetime_format") if kind == "datetime" else None


def _filled(kind: Kind | None, name: str, form: str | None, table: Table) -> Column:
    column = describe(table, name, kind=kind, pattern=form)
    if kind is None:
        return column
    facts = tuple(fact for fact in column.from_data if fact != "kind")
    return msgspec.structs.replace(column, from_data=facts)
