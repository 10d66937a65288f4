"""What `siloweave score` and `siloweave attack` share: a schema file in, a page out."""

from pathlib import Path
from typing import Any, Literal

import siloweave
from siloweave.errors import DataError, InputError
from siloweave.files import write_text
from siloweave.tables.schema import Schema

__all__ = ["read_schema", "write_page"]


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


def write_page(
    path: Path | None,
    title: str,
    audience: Literal["public", "owner"],
    *,
    scores: Any = None,
    risks: Any = None,
) -> Path | None:
    """Write scores and risks as a page, whole or not at all, if a file is named.

    Raises:
        InputError: Its folder does not exist.
    """
    if path is None:
        return None
    from siloweave.report.comparison import render_comparison

    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: its folder does not exist; create it first.")
    page = render_comparison(
        scores.to_dict() if scores is not None else None,
        risks.to_dict() if risks is not None else None,
        title=title,
        version=siloweave.__version__,
        audience=audience,
    )
    write_text(path, page, private=audience == "owner")
    return path
