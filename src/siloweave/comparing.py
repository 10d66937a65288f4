"""What `siloweave score` and `siloweave attack` share: a schema file in, a page out."""

from pathlib import Path
from typing import Any

import siloweave
from siloweave.errors import DataError, InputError
from siloweave.files import write_text
from siloweave.tables.schema import Schema

__all__ = ["check_page", "read_schema", "write_page"]


def read_schema(path: Path | None) -> Schema | None:
    """Read a schema file, if one is given.

    Raises:
        DataError: It is not there.
        SchemaError: It is no schema.
    """
    if path is None:
        return None
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: the schema cannot be read: {error.strerror}") from error
    return Schema.from_json(text)


def check_page(path: Path | None) -> None:
    """Refuse a page that could not be written, or would take a table's place; before any work.

    Raises:
        InputError: It is no file name of a page, or its folder does not exist.
    """
    if path is None:
        return
    if path.suffix.lower() not in (".html", ".htm") or path.is_dir():
        raise InputError(f"cannot write {path}: a page needs the name of a file that ends in .html")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: its folder does not exist; create it first.")


def write_page(
    path: Path | None, title: str, *, scores: Any = None, risks: Any = None
) -> Path | None:
    """Write scores and risks as a page for the owner, whole or not at all, if a file is named."""
    if path is None:
        return None
    from siloweave.report.comparison import render_comparison

    page = render_comparison(
        scores.to_dict() if scores is not None else None,
        risks.to_dict() if risks is not None else None,
        title=title,
        version=siloweave.__version__,
    )
    write_text(path, page, private=True)
    return path
