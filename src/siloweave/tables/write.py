"""Tables out: to files, which are written whole or not at all, to bytes, and to frames."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl

from siloweave.errors import DataError, InputError
from siloweave.tables.decimals import with_zeros
from siloweave.tables.native_types import in_zone, polars_frame, time_form
from siloweave.tables.origin import Frame
from siloweave.tables.parsing import DATETIME
from siloweave.tables.read import read
from siloweave.tables.table import Table


def write(
    table: Any, path: str | os.PathLike[str], padded: Mapping[str, int] | None = None
) -> None:
    """Write a table or a frame as CSV or Parquet, replacing an older file whole or not at all.

    Datetimes of a time zone keep it: in a CSV each has its offset, as 2024-01-31T06:00:00+01:00. A
    column without times of day has dates there.

    Args:
        table: What to write.
        path: The file.
        padded: Columns whose numbers have so many decimals at least in a CSV, zeros among them,
            and no further zeros at their end.

    Raises:
        DataError: The folder is missing, the name ends otherwise, or the file cannot be written.
    """
    table = read(table)
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise DataError(
            f"cannot write {target.name!r}: the name must end in .csv or .parquet"
        )
    if not target.parent.is_dir():
        raise DataError(
            f"cannot write {target}: its folder does not exist; create it first"
        )

    zones = {}
    for name in table.names:
        zone = table.zone(name)
        if zone and table.kind(name) == "datetimes":
            zones[name] = zone
    # The file appears under its name when it is complete: renaming is one step.
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if suffix == ".csv":
            _write_csv(table, temporary, padded or {}, zones)
        else:
            _write_parquet(table, temporary, zones)
        temporary.replace(target)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(
            f"{target}: cannot be written ({error}), and is as it was. See that the disk has room"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _write_csv(
    table: Table, file: Path, padded: Mapping[str, int], zones: Mapping[str, str]
) -> None:
    """Write a table as CSV; numbers have their decimals, datetimes offsets or dates alone."""
    texts = []
    for name, digits in padded.items():
        if name in table.names:
            texts.append(with_zeros(table._typed_column(name), digits))
    for name in table.names:
        column = table._typed_column(name)
        if name in zones:
            texts.append(in_zone(column, zones[name]))
        elif column.dtype == DATETIME:
            texts.append(column.dt.strftime(time_form(column)))
    table._view.with_columns(texts).write_csv(file)


def _write_parquet(table: Table, file: Path, zones: Mapping[str, str]) -> None:
    """Write a table as Parquet; datetimes have their time zones."""
    zoned_types = {}
    for name, zone in zones.items():
        zoned_types[name] = pl.Datetime("us", zone)
    frame = polars_frame(table._typed_view, zoned_types)
    frame.write_parquet(file, compression="zstd")


def parquet_of(table: Table) -> bytes:
    """Write a table as the bytes of a Parquet file."""
    file = BytesIO()
    table._view.write_parquet(file)
    return file.getvalue()


def from_parquet(data: bytes) -> Table:
    """Read a table from the bytes of a Parquet file that `parquet_of` wrote."""
    return read(pl.read_parquet(BytesIO(data)))


def frame_of(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], kind: Frame | None = None
) -> Any:
    """Make a frame from rows that map names to values; None is a missing value.

    Without a kind it is pandas where it is installed, else polars; InputError for an unknown kind.
    """
    if kind is not None and kind not in get_args(Frame):
        raise InputError(f"kind={kind!r} must be 'pandas', 'polars' or 'arrow'")
    columns = {}
    for name in names:
        values = [row[name] for row in rows]
        # A column without any value is one of numbers.
        example = next((value for value in values if value is not None), 0.0)
        dtype = object if isinstance(example, str) else type(example)
        is_missing = np.array([value is None for value in values])
        for place in np.flatnonzero(is_missing):
            values[place] = example
        columns[name] = (np.array(values, dtype), is_missing)
    return Table.from_columns(columns).framed(kind or "file").to_native()
