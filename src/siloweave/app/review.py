"""`siloweave review`: a page on this machine to go through a schema, column by column.

What `Schema.detect` proposed is read beside why, corrected, and marked as known beforehand. The
same file is written again, by `Schema.to_json`.

**Guarantee**: rows are read for pictures, and to count cells beyond the bounds that were saved; no
fact of the schema follows from them. The page shows what was seen in rows (``why``, pictures,
counts) to the owner, over the loopback interface, as `pages` says. The file is written whole or
not at all, and never over a version that the reviewer has not seen: where it changed meanwhile, the
reviewer's version is written beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from siloweave import __version__
from siloweave.app.pages import (
    JSON,
    Answer,
    LocalPage,
    PageRequest,
    Routes,
    fill,
    html,
    refusal,
)
from siloweave.app.review_form import (
    KINDS_OF,
    TYPES,
    Problem,
    SchemaForm,
    form_of,
    line_of,
    schema_of,
)
from siloweave.app.review_pictures import picture_of
from siloweave.app.review_rows import beyond_bounds
from siloweave.app.study import Study, refuse_empty_schema
from siloweave.app.terminal import quoted
from siloweave.errors import (
    DataError,
    InputError,
    SchemaError,
    SiloweaveError,
    count_of,
    of_system,
)
from siloweave.privacy.journal import write_whole
from siloweave.tables.cells import bound_text
from siloweave.tables.column import KINDS, Column
from siloweave.tables.constraints import TAGS, CategoryRanges, Constraint
from siloweave.tables.database import Database, source_of
from siloweave.tables.files import file_kind
from siloweave.tables.forms import RESOLUTIONS
from siloweave.tables.read import Unread, read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows, where two reviewers may write at the same instant
    fcntl = None

#: What kinds are called on the page.
_KIND_WORDS = {
    "categorical": "categorical",
    "integer": "integer (whole)",
    "continuous": "continuous (numbers)",
    "boolean": "boolean (two values)",
    "datetime": "datetime",
    "id": "id (not modelled)",
    "text": "text (not modelled)",
}
# Where a reviewer's version goes beside a file that changed meanwhile, at most.
_MOST_BESIDE = 1000
# Of a file that is read although nobody asked for its pictures: some seconds.
_MOST_BYTES = 200_000_000


class Saved(msgspec.Struct, frozen=True):
    """What became of a form that was sent.

    Attributes:
        outcome: "saved", "unchanged" (nothing was written), "refused" (nothing was written, see
            `problems`), or "beside" (the file changed meanwhile, so that this version is in
            `beside`).
        message: The same in a sentence.
        problems: What is wrong, field by field.
        beside: The file that was written beside the schema; empty for none.
        differences: Of the file as it is now (first) and the reviewer's version (second).
        beyond: How many of the owner's cells are beyond bounds that were saved, in sentences.
    """

    outcome: str
    message: str
    problems: tuple[Problem, ...] = ()
    beside: str = ""
    differences: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()


class Version(NamedTuple):
    """A schema file's content at one time."""

    digest: str
    schema: Schema


def digest_of(content: bytes) -> str:
    """Return what names a content of a schema file."""
    return blake2b(content, digest_size=16).hexdigest()


def schema_file(place: Path) -> tuple[Path, Study | None]:
    """Return the schema file to review, and the study that it is of, if one is named.

    Args:
        place: A study's folder, a study file, or a schema file.

    Raises:
        InputError: There is no such file, or the study cannot be read.
    """
    if place.is_dir() and not (place / "study.toml").exists():
        alone = place / "schema.json"
        if not alone.is_file():
            raise InputError(
                f"{place}: has no study.toml and no schema.json. Give the folder of a study, or a "
                "schema file; `siloweave init` writes both"
            )
        return alone, None
    if place.is_dir() or place.suffix == ".toml":
        study = Study.load(place)
        return Path(study.base) / study.schema.file, study
    return place, None


@dataclass(frozen=True)
class ShownRows:
    """The owner's rows beside a schema.

    Attributes:
        table: The rows; None without any.
        source: Where they are, as the page names it.
        is_of_study: Whether the study names them, and nobody who started the review.
        problem: Why rows that the study names could not be read; empty if they could.
    """

    table: Table | None = None
    source: str = ""
    is_of_study: bool = False
    problem: str = ""


_NO_ROWS = ShownRows()


class Review:
    """One schema file under review; what `siloweave review` serves.

    It keeps every version that a page was made of, so that a form is compared with the version
    that its reviewer saw.

    Args:
        path: The schema file.
        rows: The owner's rows, for pictures and counts that stay on this page.
        next_step: What to type once the review has ended; empty where there is no study.

    Raises:
        DataError: The file cannot be read.
        SchemaError: It is no schema.
    """

    def __init__(
        self, path: Path, rows: ShownRows = _NO_ROWS, next_step: str = ""
    ) -> None:
        # A link stays one: what it leads to is written.
        self.path = path.resolve()
        self.rows = rows
        self.next_step = next_step
        self._versions: dict[str, Schema] = {}
        self._saving = Lock()
        schema = self.read().schema
        self.pictures = _pictures(schema, rows.table)

    def read(self) -> Version:
        """Read the file as it is now; errors as of the class."""
        content = _content(self.path)
        digest = digest_of(content)
        if digest not in self._versions:
            self._versions[digest] = _schema_in(self.path, content)
        return Version(digest, self._versions[digest])

    def save(self, form: SchemaForm) -> Saved:
        """Write what a reviewer changed, if it is a schema and the file is as the reviewer saw it.

        Raises:
            SchemaError: The form is not one of a page of this review.
            OSError: The file cannot be written; it is as it was.
        """
        base = self._versions.get(form.version)
        if base is None:
            raise SchemaError(
                "the form is of a page that this review did not show; load the page again"
            )
        schema, problems = schema_of(base, form)
        if schema is None:
            places = count_of(len(problems), "place", "places")
            message = f"Nothing was saved: correct {places}."
            return Saved("refused", message, tuple(problems))

        content = (schema.to_json() + "\n").encode()
        with self._saving, _alone_in(self.path.parent):
            current = _current(self.path)
            is_as_shown = (
                current.content is not None
                and digest_of(current.content) == form.version
            )
            if not is_as_shown:
                return self._save_beside(base, schema, content, current)
            if schema.to_json() == base.to_json():
                return Saved("unchanged", "Nothing was changed, so nothing was saved.")
            _replace(self.path, content)
        self._versions[digest_of(content)] = schema
        message = f"Saved in {self.path}. {_remaining(schema)}"
        if self.next_step:
            message += f" Next: {self.next_step}."
        return Saved("saved", message, beyond=self._beyond(schema))

    def _beyond(self, schema: Schema) -> tuple[str, ...]:
        """Say how many of the owner's cells are beyond a schema's bounds; nothing without rows."""
        if self.rows.table is None:
            return ()
        return beyond_bounds(schema, self.rows.table)

    def _save_beside(
        self, base: Schema, schema: Schema, content: bytes, current: _Current
    ) -> Saved:
        """Write a reviewer's version beside a file that changed, so that both are there."""
        if current.content == content:
            # Another reviewer has saved the same.
            self._versions[digest_of(content)] = schema
            return Saved("saved", f"{self.path} has all of this already.")
        if schema.to_json() == base.to_json():
            message = (
                f"{self.path} was changed by someone else. You changed nothing, so nothing was "
                "saved: load the page again to see the change."
            )
            return Saved("unchanged", message)
        beside = _free_name(self.path)
        _replace(beside, content)
        differences: list[str] = []
        state = current.problem
        if current.content is not None:
            state = "was changed by someone else since this page was loaded"
            try:
                changed = _schema_in(self.path, current.content)
                differences = changed.differences(schema)
            except SchemaError:
                state = "was changed by someone else, and is no schema any more"
        message = (
            f"{self.path} {state}. It was left as it is, and your version is in {beside}. Compare "
            "the two, and load the page again to continue from the file."
        )
        if differences:
            message += " What differs, the file's fact first:"
        return Saved("beside", message, (), str(beside), tuple(differences))

    # What the server answers

    def routes(self) -> Routes:
        """Return what the page's server answers."""
        return {("GET", ""): self.show, ("POST", "save"): self.receive}

    def show(self, request: PageRequest) -> Answer:
        """Return the page of the file as it is now."""
        try:
            version = self.read()
        except (DataError, SchemaError) as error:
            return refusal(409, f"{error}\nMend the file, and load this page again.")
        columns = [self._shown(column) for column in version.schema.columns]
        page = fill(
            "review.html",
            request.nonce,
            file=str(self.path),
            version=version.digest,
            siloweave_version=__version__,
            columns=columns,
            constraints=[
                _rule_shown(rule, version.schema) for rule in version.schema.constraints
            ],
            rows=self.rows,
            tags=TAGS,
            unreviewed=sum(bool(column["from_data"]) for column in columns),
            has_pictures=bool(self.pictures),
            kinds={kind: _KIND_WORDS[kind] for kind in KINDS},
            kinds_of=KINDS_OF,
            types=TYPES,
            resolutions={"": "as the format writes"}
            | {part: part for part in RESOLUTIONS},
        )
        return html(page)

    def _shown(self, column: Column) -> dict[str, Any]:
        """Return what the page shows of a column."""
        return {
            "form": form_of(column),
            "why": column.why,
            "from_data": [fact.replace("_", " ") for fact in column.from_data],
            "learned": [fact.replace("_", " ") for fact in column.learned],
            "picture": self.pictures.get(column.name, ""),
            "rows": min(max(len(column.categories), 2), 10),
        }

    def receive(self, request: PageRequest) -> Answer:
        """Save a form that the page sent; answer what became of it."""
        try:
            form = msgspec.json.decode(request.body, type=SchemaForm)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _saved(400, Saved("refused", f"Nothing was saved: {error}."))
        try:
            result = self.save(form)
        except SchemaError as error:
            return _saved(409, Saved("refused", f"Nothing was saved: {error}."))
        except OSError as error:
            message = (
                f"Nothing was saved, and the file is as it was: {of_system(error)}. See that this "
                "user may write there and that the disk has room, then save again."
            )
            return _saved(500, Saved("refused", message))
        status = {"refused": 422, "beside": 409}.get(result.outcome, 200)
        return _saved(status, result)


def _pictures(schema: Schema, table: Table | None) -> dict[str, str]:
    """Draw each column that a table has, by its name."""
    if table is None:
        return {}
    return {
        column.name: picture_of(column, table)
        for column in schema.columns
        if column.name in table.names
    }


def _rule_shown(rule: Constraint, schema: Schema) -> dict[str, Any]:
    """Return what the page shows of a constraint."""
    ranges: list[dict[str, str]] = []
    if isinstance(rule, CategoryRanges):
        column = schema[rule.column]
        for category, low, high in rule.ranges:
            bounds = {"low": bound_text(column, low), "high": bound_text(column, high)}
            name = "missing" if category is None else line_of(category)
            ranges.append({"category": name, **bounds})
    bare = replace(rule, from_data=False, why="")
    return {
        "words": rule.words,
        "from_data": rule.from_data,
        # Of ranges it would repeat some of what the fields show.
        "why": "" if ranges else rule.why,
        "column": getattr(rule, "column", ""),
        "by": getattr(rule, "by", ""),
        "ranges": ranges,
        "json": msgspec.json.encode(bare).decode(),
    }


def _remaining(schema: Schema) -> str:
    """Say how much of a schema is still to be reviewed."""
    columns = sum(bool(column.from_data) for column in schema.columns)
    rules = sum(rule.from_data for rule in schema.constraints)
    if not columns and not rules:
        return "Nothing in it is from rows any more."
    counts = [
        count_of(columns, "column", "columns"),
        count_of(rules, "constraint", "constraints"),
    ]
    return f"Still from rows, at least in part: {counts[0]} and {counts[1]}."


def _saved(status: int, result: Saved) -> Answer:
    """Return what became of a form, as the page reads it."""
    return Answer(status, JSON, msgspec.json.encode(result))


def _content(path: Path) -> bytes:
    """Read a schema file; DataError, which says what to do, where that fails."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: the schema cannot be read: {error.strerror}. See that it is there, and that "
            "this user may read it"
        ) from error


class _Current(NamedTuple):
    """A schema file's content as it is now; None where it cannot be read, for a `problem`."""

    content: bytes | None
    problem: str = ""


def _current(path: Path) -> _Current:
    """Read a schema file again, which may be gone, or in another state, since it was shown."""
    try:
        return _Current(path.read_bytes())
    except FileNotFoundError:
        return _Current(None, "is not there any more")
    except OSError as error:
        return _Current(None, f"cannot be read any more ({error.strerror})")


def _schema_in(path: Path, content: bytes) -> Schema:
    """Decode a schema file; SchemaError, which names it."""
    refuse_empty_schema(path, content)
    try:
        return Schema.from_json(content)
    except SchemaError as error:
        remedy = "Give a schema that `siloweave init` or Schema.to_json wrote"
        if file_kind(path):
            remedy = "If it holds rows, give their schema or study, and name the rows by --data"
        raise SchemaError(f"{path}: {error}. {remedy}") from error


def _free_name(path: Path) -> Path:
    """Return a name beside a schema file that nothing has, such as schema.review.json."""
    for number in range(1, _MOST_BESIDE + 1):
        mark = "review" if number == 1 else f"review-{number}"
        beside = path.with_name(f"{path.stem}.{mark}{path.suffix}")
        if not beside.exists():
            return beside
    raise FileExistsError(
        f"{path.parent} has {_MOST_BESIDE} versions of {path.name} already: remove some"
    )


def _replace(path: Path, content: bytes) -> None:
    """Write a schema file whole; one that was for its owner alone stays so."""
    is_private = False
    if path.exists():
        is_private = path.stat().st_mode & 0o077 == 0
    write_whole(path, content, private=is_private)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let one reviewer at a time compare a file in a folder and write it, where the system can."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some file systems of a network have no locks.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Which also takes the lock away.
        os.close(descriptor)


def rows_for(data: str, study: Study | None, schema: Schema) -> Table:
    """Read the rows that pictures are drawn of, as the study reads them if it names the file.

    Raises:
        InputError: The word names no rows, or no column of the schema.
        DataError: They cannot be read.
    """
    source = source_of(data)
    table: Table | Unread | None = None
    for party in study.parties if study is not None else ():
        assert study is not None
        is_named = party.data and _is_same(study.source(party), source)
        if is_named and not party.maps:
            table = party.rows(source, schema.names)
    if not isinstance(table, Table):
        table = read(source)
    names = [name for name in schema.names if name in table.names]
    if not names:
        raise InputError(
            f"--data {data}: has no column of the schema, which has {', '.join(schema.names[:5])}. "
            "Give the file that the schema was proposed from"
        )
    return table


def _is_same(first: Path | Database, second: Path | Database) -> bool:
    """Return whether two sources are one file."""
    if isinstance(first, Path) and isinstance(second, Path):
        return first.exists() and second.exists() and first.samefile(second)
    return first == second


def _study_beside(path: Path) -> Study | None:
    """Return the study whose schema a file is, where it is in the same folder; None for none."""
    file = path.parent / "study.toml"
    if not file.is_file():
        return None
    # A study that cannot be read is no reason not to review a schema.
    with suppress(SiloweaveError):
        study = Study.load(file)
        if _is_same(Path(study.base) / study.schema.file, path):
            return study
    return None


def _file_of(study: Study | None) -> Path | None:
    """Return the one file of rows that a study names; None where it is large, or not here."""
    if study is None:
        return None
    named = {party.data for party in study.parties if party.data}
    if len(named) != 1:
        return None
    name = named.pop()
    # A database is not asked unless somebody names it.
    if not isinstance(name, str):
        return None
    file = Path(study.base) / name
    if not file.is_file() or file.stat().st_size > _MOST_BYTES:
        return None
    return file


def _rows_shown(data: str | None, study: Study | None, schema: Schema) -> ShownRows:
    """Read the rows that are named, or else the one file that a study names.

    Raises:
        InputError, DataError: Rows that were named cannot be read, see `rows_for`.
    """
    if data is not None:
        return ShownRows(rows_for(data, study, schema), data)
    file = _file_of(study)
    if file is None:
        return _NO_ROWS
    try:
        table = rows_for(str(file), study, schema)
    except SiloweaveError as error:
        # Nobody asked for them, so that the review goes on.
        return ShownRows(None, file.name, is_of_study=True, problem=str(error))
    return ShownRows(table, file.name, is_of_study=True)


def _next_step(place: Path, study: Study | None, path: Path) -> str:
    """Return what to type after a review; empty where there is no study."""
    if study is None:
        return ""
    if place.resolve() == path.resolve():
        place = path.parent
    named = "" if place in (Path(), Path("study.toml")) else f" {quoted(place)}"
    return f"siloweave check{named}, then siloweave run{named}"


def review_of(place: Path, data: str | None = None) -> Review:
    """Open the schema of a study, or a schema file, for review.

    Args:
        place: A study's folder, a study file, or a schema file.
        data: Rows to draw pictures of: a file, or a database's address and table. If None, the one
            file that a study in the schema's folder names, if it does.

    Raises:
        InputError: One of them is not there.
        DataError: A file cannot be read.
        SchemaError: It is no schema.
    """
    path, study = schema_file(place)
    if study is None:
        study = _study_beside(path)
    schema = _schema_in(path, _content(path))
    rows = _rows_shown(data, study, schema)
    return Review(path, rows, _next_step(place, study, path))


def page_of(review: Review, port: int = 0) -> LocalPage:
    """Return the page of a review, which is served while a block runs."""
    return LocalPage(review.routes(), port)
