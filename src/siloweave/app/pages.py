"""Pages from Python and the command line: of a fit, and of scores and risks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import siloweave
from siloweave.app.files import write_text
from siloweave.errors import DataError, InputError
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import Table, beside, read
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.core.fit import Fit


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
    path: Path | str | None, title: str = "Scores", *, scores: Any = None, risks: Any = None
) -> Path | None:
    """Write scores and risks as a page for the owner, whole or not at all.

    Args:
        path: The HTML file; nothing is written if None.
        title: Of the page.
        scores: What `score` returned.
        risks: What `attack` returned.

    Returns:
        The file.

    Raises:
        InputError: It is no file name of a page, its folder does not exist, or there is nothing to
            show.
    """
    if path is None:
        return None
    path = Path(path)
    check_page(path)
    if scores is None and risks is None:
        raise InputError("there is nothing to show: give scores=, risks= or both")
    from siloweave.report.page import render_comparison

    page = render_comparison(
        scores.to_dict() if scores is not None else None,
        risks.to_dict() if risks is not None else None,
        title=title,
        version=siloweave.__version__,
    )
    write_text(path, page, private=True)
    return path


def write_report(
    fitted: Fit,
    path: Path | str,
    *,
    audience: Literal["public", "owner"] = "public",
    title: str | None = None,
    data: Any = None,
) -> Path:
    """Write a fit's report; the arguments are those of `Fit.report`."""
    from siloweave.app.record import record_of
    from siloweave.core.run import named_parties
    from siloweave.report import render

    path = Path(path)
    check_page(path)
    if audience not in ("public", "owner"):
        raise InputError(f'audience={audience!r} must be "public" or "owner"')
    if (audience == "owner") != (data is not None):
        raise InputError(
            "the owner's report shows real rows: give data=, as to fit"
            if audience == "owner"
            else 'the public report shows no real rows: leave data out, or give audience="owner"'
        )
    owner: Sequence[Table] = ()
    if data is not None:
        several = isinstance(data, Mapping | list | tuple)
        parts = named_parties(data, None) if several else {"": data}
        owner = owner_rows(fitted, {name: read(part) for name, part in parts.items()})
    synthetic = None
    if not fitted.shared:
        synthetic = disjoined(fitted.part_tables(seed=0), 0)
    record = record_of(fitted, title or fitted.info.title, owner=owner, synthetic=synthetic)
    write_text(path, render(record, audience=audience), private=audience == "owner")
    return path


def owner_rows(fitted: Fit, tables: Mapping[str, Table]) -> list[Table]:
    """Real rows as the owners' report takes them: those of split columns side by side."""
    if fitted.info.split == "columns":
        return [beside(list(tables.values()))]
    from siloweave.protocols.schema import clipped

    return [clipped(table, fitted.schema) for table in tables.values()]


def disjoined(parts: Mapping[str, Table], seed: Key) -> Table:
    """Synthetic columns that stay apart, each party's rows in an order of their own."""
    shuffled = [
        part.take(generator(fold_in(seed, "not joined", name)).permutation(part.num_rows))
        for name, part in parts.items()
    ]
    return beside(shuffled)
