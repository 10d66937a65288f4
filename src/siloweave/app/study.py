"""study.toml: everything a study is, in one file that is checked before a row is read.

Each table of the file is a class below; `siloweave init` writes a file in which every field is
explained. Paths are relative to the file. A key that is not known is refused, never ignored. A
method without a guarantee takes ``epsilon = inf``, or no ``[budget]`` at all; a finite epsilon is
refused for it, so that no study file promises what its run does not.
"""

from __future__ import annotations

import logging
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from difflib import get_close_matches
from hashlib import blake2b
from inspect import cleandoc
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal, TypeVar
from unicodedata import normalize

import msgspec

from siloweave import __version__
from siloweave.core.method import Info, Setup, job_for
from siloweave.core.party import own_columns, rows_of_units, rows_to_learn, share_drawn
from siloweave.core.run import Synthesizer, check_named
from siloweave.core.settings import SAMPLE, Job, check_sample, settings_of
from siloweave.errors import (
    BudgetError,
    DataError,
    InputError,
    RosterError,
    SchemaError,
    count_of,
    naming_party,
    number,
    whole,
)
from siloweave.methods.registry import METHODS
from siloweave.models import settings as model_settings
from siloweave.privacy.budget import UNBOUNDED, Budget, Relation
from siloweave.tables.database import Database
from siloweave.tables.dialect import Dialect
from siloweave.tables.ids import check_rules
from siloweave.tables.modelled import Modelled
from siloweave.tables.read import Unread, read, unread
from siloweave.tables.recoding import check_recode, recode, unknown_values
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

_TYPES = {
    "str": "text",
    "float": "a number",
    "int": "a whole number",
    "array": "a list",
    "object": "a table",
    "bool": "true or false",
}
_log = logging.getLogger("siloweave")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")


class Section(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Base of the tables of a file; a key that is not known is refused."""


class About(Section, frozen=True):
    """``[study]``: its name, optionally the parties that must be there, and how rows are drawn.

    ``sample`` is that of `Synthesizer.fit`: a share of each party's rows, or a number of rows.
    """

    name: str
    roster: tuple[str, ...] = ()
    sample: float = SAMPLE


class SchemaFile(Section, frozen=True):
    """``[schema]``: the JSON file that declares the columns, and what may be spent on the rest.

    ``learn`` is the share of the budget for facts that the file leaves open: the categories of a
    column that names its ``other`` alone, and bounds that are not there.
    """

    file: str
    learn: float = 0.0


class BudgetTable(Section, frozen=True):
    """``[budget]``: what the study may cost; see `siloweave.privacy.Budget`.

    ``epsilon = inf`` needs no ``delta``.
    """

    epsilon: float
    delta: float | None = None
    relation: Relation = Relation.ADD_REMOVE
    unit: str = "row"
    rows_per_unit: int | None = None
    parties_per_unit: int = 1


class DatabaseTable(Section, frozen=True):
    """A party's ``data`` in a database; see `siloweave.Database`.

    The path of a DuckDB or SQLite file is relative to the study file.
    """

    database: str
    table: str = ""
    query: str = ""


class PartyTable(Section, frozen=True):
    """One ``[[parties]]``: a name, its rows, and the columns to take from them (all if empty).

    ``data`` is a file, or a table or query of a database. How a CSV is written is decided from the
    file where it is not said; see `Dialect`. Over a network ``data`` is not read: a party's owner
    names its rows by ``--data``.

    ``rename`` has the file's own column names and the schema's; ``recode`` has, by column, the
    file's values and the schema's (`siloweave.recode`). All other keys have the schema's names.
    They are the party's own: over a network each writes them into its own copy of the study.
    """

    name: str
    data: str | DatabaseTable = ""
    columns: tuple[str, ...] = ()
    separator: str | None = None
    encoding: str | None = None
    header: bool | None = None
    decimal: str = "."
    missing: tuple[str, ...] = ()
    short_lines: bool = False
    skip: int | None = None
    rename: dict[str, str] = {}
    recode: dict[str, dict[str, str | int | float | bool]] = {}

    @property
    def dialect(self) -> Dialect:
        """How its file is written, if it is a CSV."""
        # Names come from the schema, when rows are read; all else is a key of this table.
        names = [field.name for field in fields(Dialect) if field.name != "names"]
        return Dialect(**{name: getattr(self, name) for name in names})

    def rows(
        self, source: Path | Database, names: Sequence[str] = ()
    ) -> Table | Unread:
        """Return its rows, which are not read yet in a database or a Parquet file.

        Args:
            source: Where they are.
            names: Of the schema's columns, by which a text file is cut into cells.
        """
        unread_rows = unread(source)
        if unread_rows is not None and not self.maps:
            return unread_rows.select(self.columns or unread_rows.names)
        if isinstance(unread_rows, Database):
            raise _unmapped(self.name)

        # The file is read by its own names, and its columns get the schema's afterwards.
        file_names = {new: old for old, new in self.rename.items()}
        names_in_file = tuple(file_names.get(name, name) for name in names)
        dialect = replace(self.dialect, names=names_in_file)
        columns = [file_names.get(name, name) for name in self.columns]
        table = read(source, columns=columns or None, **asdict(dialect))
        if self.maps:
            table = recode(table, self.recode, rename=self.rename)
        return table

    @property
    def maps(self) -> bool:
        """Whether its columns or values have other names than the schema's."""
        return bool(self.rename or self.recode)


class AlignmentTable(Section, frozen=True):
    """``[alignment]``: how parties with different columns find their common rows.

    ``on`` are the id columns, ``rules`` how each is normalised (see `siloweave.tables.ids`);
    ``missing`` and ``duplicates`` decide what happens to rows that cannot be matched, and ``most``
    is how many ids a party may bring.
    """

    on: tuple[str, ...]
    rules: dict[str, tuple[str, ...]] = {}
    missing: Literal["error", "drop"] = "error"
    duplicates: Literal["error", "drop", "first"] = "error"
    most: int | None = None


class Output(Section, frozen=True):
    """``[output]``: rows to sample (as many as the model stands for if absent), folder, seed.

    ``run_by`` is who runs the study, as the reports print it.
    """

    rows: int | None = None
    folder: str = "run"
    seed: int = 0
    run_by: str = ""


class Study(Section, frozen=True):
    """A study file, read and checked; holds names and paths, no rows.

    Args:
        study: Its name.
        schema: Where its columns are declared.
        budget: What it may cost; None for a method without a guarantee.
        method: ``name`` of a method and its public settings.
        parties: Who holds the rows, and where.
        alignment: How common rows are found first, where parties hold different columns.
        output: What to write, and where.
        base: The folder that paths are relative to.

    Raises:
        InputError: A value is out of range.
        RosterError: Parties are missing, or named twice.
    """

    study: About
    schema: SchemaFile
    method: dict[str, Any]
    parties: tuple[PartyTable, ...]
    budget: BudgetTable | None = None
    alignment: AlignmentTable | None = None
    output: Output = Output()
    base: str = "."

    def __post_init__(self) -> None:
        _check_name("[study] name", self.study.name)
        check_sample("[study] sample", self.study.sample)
        number(
            "[schema] learn",
            self.schema.learn,
            0,
            1,
            "[)",
            ": the share for open facts",
        )
        for party in self.parties:
            _check_name("[[parties]] name", party.name)
            with naming_party(party.name):
                # Both raise: for an unknown encoding, and for what is no address of a database.
                party.dialect  # noqa: B018
                if party.data:
                    source = self.source(party)
                    if party.maps and isinstance(source, Database):
                        raise _unmapped(party.name)
        if self.output.rows is not None:
            whole(
                "[output] rows",
                self.output.rows,
                1,
                "; without it, as many as were fitted",
            )
        whole("[output] seed", self.output.seed)
        if not isinstance(self.method.get("name"), str):
            raise InputError(
                '[method] needs a name, for example name = "flaim". '
                "`siloweave list` shows them all."
            )
        _check_roster(self.study.roster, self.names)
        alignment = self.alignment
        if alignment is not None:
            try:
                check_rules(alignment.on, alignment.rules)
            except InputError as error:
                raise InputError(f"[alignment] {error}") from error
            if alignment.most is not None:
                whole("[alignment] most", alignment.most, 1)
        # Only for its errors about [budget].
        self.terms()

    @property
    def names(self) -> tuple[str, ...]:
        """The parties' names, in the file's order."""
        return tuple(party.name for party in self.parties)

    @property
    def folder(self) -> Path:
        """Where the run is stored."""
        return Path(self.base) / self.output.folder

    @property
    def run_name(self) -> str:
        """The run's name: a file with the same public settings resumes, any other starts anew.

        Public facts alone enter it: settings, budget, roster and schema, no path and no row.
        """
        facts: list[Any] = [
            self.study,
            self.budget,
            self.method,
            self.names,
            self.output.seed,
        ]
        # Only what a study uses enters: new keys of the file leave the names of other runs alone.
        if self.alignment:
            facts.append(self.alignment)
        if self.schema.learn:
            facts.append(self.schema.learn)
        facts.append(self.read_schema().digest())
        text = msgspec.json.encode(facts, order="sorted")
        digest = blake2b(text, digest_size=6).hexdigest()
        return f"{self.study.name}-{digest}"

    @property
    def counts(self) -> bool:
        """Whether rows are only counted: by the method, and with no constraint to change them."""
        return self.synthesizer().method.counts and not self.read_schema().constraints

    def source(self, party: PartyTable) -> Path | Database:
        """Return where a party's rows are; InputError if nothing is named."""
        data = party.data
        if isinstance(data, DatabaseTable):
            return Database(data.database, data.table, data.query).below(self.base)
        if not data:
            raise InputError(
                f"[[parties]] data is missing for {party.name!r}. Name the file of its rows. "
                "Between organisations that is not needed: each party names its own by --data, and "
                "`siloweave party plan` forecasts the study there."
            )
        return Path(self.base) / data

    def rows(
        self, party: PartyTable, source: Path | Database, job: Job, home: Path | None
    ) -> Table | Unread:
        """Open a party's rows as the method takes them: counted where they are, all, or a sample.

        Args:
            party: Its entry in the study.
            source: Where its rows are.
            job: The run.
            home: The party's folder, which remembers the rows that were drawn; None for none.
        """
        schema = self.read_schema()
        synth = self.synthesizer()
        index = self.names.index(party.name)
        all_rows = party.rows(source, schema.names)
        if party.recode and isinstance(all_rows, Table):
            # For whoever has the rows: these lines name values, and stay at this end.
            for note in unknown_values(party.recode, all_rows, schema):
                _log.warning("party %r: %s", party.name, note)

        rows: Table | Unread = all_rows
        if not self.counts:
            rows = rows_to_learn(party.name, all_rows, synth, job, index, home)
        # With an alignment, rows of a unit are left out of the common ones, alike at all parties.
        if self.alignment is not None:
            return rows
        is_ordered = not isinstance(all_rows, Database)
        split = synth.method.split
        return rows_of_units(rows, split, schema, job, index, home, ordered=is_ordered)

    def share(self, source: Path | Database) -> float:
        """Return the chance with which each row of a party takes part."""
        if self.counts:
            return 1.0
        relation = self.terms().relation
        return share_drawn(
            unread(source), self.synthesizer(), relation, self.study.sample
        )

    def facts(self) -> dict[str, Any]:
        """Return all that is public of the study: over a network all ends must have the same."""
        parties = {party.name: party.columns for party in self.parties}
        # Reasons for what a schema declares are for its reviewer, and not the same at all ends.
        schema_json = self.read_schema().without_reasons().to_json()
        facts: dict[str, Any] = msgspec.to_builtins(
            {
                "study": self.study,
                "method": self.method,
                "budget": self.budget,
                "parties": parties,
                "alignment": self.alignment,
                "learn": self.schema.learn,
                "seed": self.output.seed,
                "schema": msgspec.json.decode(schema_json),
                "siloweave": __version__,
            }
        )
        return facts

    def setup(self, columns: Mapping[str, tuple[str, ...]] | None = None) -> Setup:
        """Return what parties and coordinator know of the study before it begins.

        Args:
            columns: Of every party's file; None over a network, where the study names them.

        Raises:
            RosterError: A party with columns of its own does not name them.
            SiloweaveError: As of `checked`.
        """
        schema, synth = self.checked()
        party_columns: dict[str, tuple[str, ...]] = {}
        if synth.method.split == "columns":
            names: Mapping[str, Sequence[str]]
            names = self._named_columns() if columns is None else columns
            party_columns = own_columns(names, schema)
        budget = synth.method.allowed(synth, self._declared_terms())
        setup = Setup(
            synth,
            schema,
            budget,
            self.names,
            party_columns,
            learn=self.schema.learn,
        )
        check_named(setup, far=columns is None)
        # What the budget does not pay for is refused before anybody asks for a row.
        synth.method.affordable(setup)
        return setup

    def _named_columns(self) -> dict[str, list[str]]:
        """Return every party's columns as the study names them, but for ids to align by.

        Raises:
            RosterError: It names none of a party.
        """
        for party in self.parties:
            if not party.columns:
                raise RosterError(
                    f"[[parties]] columns is missing for {party.name!r}. Over a network the "
                    "study names every party's columns, since nobody sees another's table."
                )
        ids = self.alignment.on if self.alignment else ()
        columns = {}
        for party in self.parties:
            columns[party.name] = [name for name in party.columns if name not in ids]
        return columns

    def job(self, **facts: Any) -> Job:
        """Return the run of the study; `facts` are further fields of `Job`."""
        _, synth = self.checked()
        return job_for(
            synth,
            self._declared_terms(),
            seed=self.output.seed,
            run=self.run_name,
            sample=self.study.sample,
            **facts,
        )

    def terms(self) -> Budget:
        """Return the budget as the library takes it; without a bound where the file has none.

        Raises:
            BudgetError: epsilon or delta is out of bounds.
            InputError: delta is missing beside a finite epsilon.
        """
        budget = self.budget or BudgetTable(inf)
        delta = budget.delta
        if delta is None:
            if budget.epsilon != inf:
                raise InputError(
                    "[budget] delta is missing. Add it, far below 1 / number of rows, for example "
                    "delta = 1e-6; `siloweave init` writes a file with every field."
                )
            delta = UNBOUNDED.delta
        return Budget(
            budget.epsilon,
            delta,
            budget.unit,
            budget.relation,
            budget.rows_per_unit,
            budget.parties_per_unit,
        )

    def _declared_terms(self) -> Budget | None:
        """Return the budget of the file; None where it has none."""
        return self.terms() if self.budget else None

    def read_schema(self) -> Schema:
        """Read the declared columns.

        Raises:
            InputError: The file is missing.
            SchemaError: It is no schema.
        """
        path = Path(self.base) / self.schema.file
        if not path.is_file():
            raise InputError(
                f"[schema] file = {self.schema.file!r}: there is no file {str(path)!r}. Give its "
                "path relative to the study file; `siloweave init` proposes one from data."
            )
        return schema_in(path)

    def synthesizer(self) -> Synthesizer:
        """Return the method that ``[method]`` names, with its settings.

        Raises:
            InputError: The name or a setting is unknown, a value is out of range, or the method
                has no budget and needs one.
            BudgetError: The method is asked for a bound that it does not guarantee.
        """
        synth = method_of(self.method)
        check_budget(synth, self._declared_terms())
        return synth

    def checked(self) -> tuple[Schema, Synthesizer]:
        """Return the schema, and the method as it fits the schema and the number of parties.

        Raises:
            InputError: Something does not fit; the message names the part of the file.
            RosterError: A method for one party gets more.
            SchemaError: The method cannot learn what the schema declares.
        """
        schema = self.read_schema().without_reasons()
        synth = self.synthesizer()
        method = synth.method
        for party in self.parties:
            if party.recode:
                with naming_party(party.name):
                    check_recode(party.recode, schema)

        party_count = len(self.parties)
        if method.split == "central" and party_count > 1:
            alternatives = [
                name for name, kind in METHODS.items() if kind.method.split == "rows"
            ]
            raise RosterError(
                f"[method] name = {method.name!r} takes one party that sees all rows; the study "
                f"has {party_count}, whose rows would have to be pooled. Keep one, or use a method "
                f"for split rows: {', '.join(alternatives)}."
            )

        learn = self.schema.learn
        if learn and not method.learns:
            raise InputError(
                f"[schema] learn = {learn}: {synth.info.title} learns no schema. Declare every "
                "bound and category in the schema's file, and leave learn out."
            )

        # A method models the columns that constraints leave to it, not those of the file.
        try:
            modelled = Modelled(schema)
            modelled.check_open(learn)
            method.check_schema(synth, modelled.schema)
        except InputError as error:
            part = "schema" if isinstance(error, SchemaError) else "method"
            raise type(error)(f"[{part}] {error}") from error
        return schema, synth

    @staticmethod
    def load(path: str | Path) -> Study:
        """Read a TOML file, or the study.toml in a folder.

        Raises:
            InputError: The file is missing, no TOML, or a field is unknown, missing or of the
                wrong type; the message names it.
        """
        file = Path(path)
        if file.is_dir():
            file = file / "study.toml"
        if not file.is_file():
            raise InputError(
                f"there is no study file {str(file)!r}. "
                "`siloweave init` writes one from CSV or Parquet files."
            )
        return in_toml(file, lambda data: Study.parse(data, base=file.parent))

    @staticmethod
    def parse(data: Mapping[str, Any], *, base: str | Path = ".") -> Study:
        """Make a study from the parsed file; see `load`.

        Example:
            >>> Study.parse({"study": {"nam": "a"}})
            Traceback (most recent call last):
                ...
            siloweave.errors.InputError: [study] nam is unknown; did you mean 'name'? It takes ...
        """
        data = _with_party_tables(data)
        keys = [name for name in Study.__struct_fields__ if name != "base"]
        check_tables(data, keys, _TABLES, "the study file")
        return converted({**data, "base": str(base)}, Study)


def _with_party_tables(data: Mapping[str, Any]) -> dict[str, Any]:
    """Move tables such as ``[parties.south.recode]`` to the party that they name.

    TOML puts them into the ``[[parties]]`` above them, whichever that is.
    """
    entries = data.get("parties")
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) for entry in entries
    ):
        return dict(data)
    keys = PartyTable.__struct_fields__
    names = {entry.get("name") for entry in entries}

    # A table below any party that is called as some party is that party's.
    named_tables: dict[str, dict[str, Any]] = {}
    for entry in entries:
        for key, value in entry.items():
            if key in names and key not in keys and isinstance(value, dict):
                named_tables[key] = value

    parties = []
    for entry in entries:
        plain_keys = {
            key: value for key, value in entry.items() if key not in named_tables
        }
        table = named_tables.get(str(entry.get("name")), {})
        repeated = [key for key in table if key in plain_keys]
        if repeated:
            raise InputError(
                f"[[parties]] {entry['name']!r} has {repeated[0]} twice: below [[parties]], and in "
                f"[parties.{entry['name']}]. Write it once."
            )
        parties.append({**plain_keys, **table})
    return {**data, "parties": parties}


def _unmapped(party: str) -> InputError:
    """Return the error that a database's names and values are mapped by its query."""
    return InputError(
        f"party {party!r}: rename and recode map what a file holds. Map a database's names and "
        "values in its query, as in: CASE sex WHEN 1 THEN 'male' ELSE 'female' END AS sex"
    )


_TABLES: dict[str, type[Section]] = {
    "study": About,
    "schema": SchemaFile,
    "budget": BudgetTable,
    "parties": PartyTable,
    "alignment": AlignmentTable,
    "output": Output,
}


# A file of tables, and words for what is wrong in it

_File = TypeVar("_File")


def in_toml(file: Path, parse: Callable[[dict[str, Any]], _File]) -> _File:
    """Return what `parse` makes of a TOML file; raise InputError, naming the file."""
    try:
        text = file.read_text("utf-8")
        if not text.strip():
            raise InputError("is empty. Put its last copy back, or write it anew")
        return parse(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: is not TOML: {error}") from error
    except InputError as error:
        raise type(error)(f"{file}: {error}") from error


def converted(data: Mapping[str, Any], kind: type[_File]) -> _File:
    """Convert data to a value of a type; raise InputError that names the place in the file."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise InputError(_in_file_words(error)) from error


def check_tables(
    data: Mapping[str, Any],
    file_keys: Sequence[str],
    tables: Mapping[str, Any],
    file: str,
) -> None:
    """Refuse keys of a file, and of its tables, that are not known, with what was meant.

    Args:
        data: The parsed file.
        file_keys: Keys that the file may have.
        tables: The type of each of its tables, whose fields are the table's keys.
        file: What the file is called in a message.

    Raises:
        InputError: A key is unknown.
    """
    _check_keys(data, file_keys, file)
    for name, kind in tables.items():
        value = data.get(name)
        place = f"[{name}]"
        entries = [value]
        if name == "parties":
            place = f"[[{name}]]"
            entries = value if isinstance(value, list) else []
        # What is no table is refused when the file is converted, with its type.
        for entry in entries:
            if isinstance(entry, dict):
                _check_keys(entry, kind.__struct_fields__, place)


def _check_keys(keys: Iterable[str], allowed: Sequence[str], place: str) -> None:
    """Raise InputError for a key that is not known, with what was probably meant."""
    for key in keys:
        if key not in allowed:
            near = close_match(key, allowed)
            raise InputError(
                f"{place} {key} is unknown{near} It takes {', '.join(allowed)}."
            )


def close_match(word: str, words: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown word: a full stop, or the word that was meant.

    Example:
        >>> close_match("epsilom", ["epsilon", "delta"])
        "; did you mean 'epsilon'?"
    """
    near = get_close_matches(word, list(words), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def _in_file_words(error: msgspec.ValidationError) -> str:
    """Say where a value is wrong as the file has it: ``$.budget.delta`` becomes [budget] delta."""
    text, _, path = str(error).partition(" - at `")
    # The path of an entry in a list has "[...]" or a number in it, as in $.parties[...].name.
    parts = re.findall(r"\[?\w+|\[\.\.\.\]", path.rstrip("`").removeprefix("$"))
    names = [part for part in parts if not part.startswith("[")]
    has_index = len(names) < len(parts)
    if names:
        names[0] = f"[[{names[0]}]]" if has_index else f"[{names[0]}]"
    place = " ".join(names)

    missing = re.search(r"missing required field `(\w+)`", text)
    if missing:
        name = f"{place} {missing[1]}" if place else f"[{missing[1]}]"
        return f"{name} is missing. Add it; `siloweave init` writes a file with every field."
    text = _plain_types(text)
    if place == "[budget] relation":
        text = f"{text}; use one of {', '.join(Relation)}"
    return f"{place}: {text}."


def _plain_types(text: str) -> str:
    """Put msgspec's message about a wrong type into the words of a study file."""
    text = text.replace("Expected", "must be").replace(", got", ", not")
    for type_name, words in _TYPES.items():
        # msgspec quotes a union as one: `str | null`.
        text = text.replace(f"`{type_name}", f"`{words}")
        text = text.replace(f"| {type_name}`", f"| {words}`")
    return text.replace("`", "").replace(" | null", "").replace(" | ", " or ")


def plain_name(text: str, otherwise: str) -> str:
    """Turn a text into a name for a study or a party, with '-' for what a name may not hold.

    Example:
        >>> plain_name("Spital Zürich/Ost", "party")
        'Spital Zurich-Ost'
    """
    ascii_ = normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9 ._-]+", "-", ascii_).strip(" ._-")[:64]
    return name or otherwise


def _check_name(place: str, name: str) -> None:
    """Check that a name can be that of a study or a party; raise InputError for another."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{place} = {name!r} must be 1 to 64 letters, digits, spaces, '.', '_' or '-' and "
            "start with a letter or digit. It names a folder and the ledger's lines."
        )


def _check_roster(roster: Sequence[str], names: Sequence[str]) -> None:
    """Check the parties' names: each there once, and as the roster has them, if there is one.

    Raises:
        RosterError: A name is missing, repeated, or is not in the roster.
    """
    if not names:
        raise RosterError("there is no [[parties]]. Add one for every file of rows.")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise RosterError(
            f"[[parties]] name = {repeated[0]!r} is there twice. Every party needs its own name."
        )
    absent = [name for name in roster if name not in names]
    if absent:
        raise RosterError(
            f"[study] roster names {count_of(len(roster), 'party', 'parties')}, and there is no "
            f"[[parties]] entry for {', '.join(absent)}. Add it, or agree on a smaller roster "
            "with everyone."
        )
    extra = [name for name in names if roster and name not in roster]
    if extra:
        raise RosterError(
            f"[[parties]] name = {extra[0]!r} is not in [study] roster. "
            "Add it there, or leave the party out."
        )


def refuse_empty_schema(path: Path, content: str | bytes) -> None:
    """Raise SchemaError where a schema's file has no content."""
    if not content.strip():
        raise SchemaError(
            f"{path}: is empty. Put its last copy back, or let `siloweave init` write it anew"
        )


def schema_in(path: Path) -> Schema:
    """Read the schema in a file: ours, or SDV metadata.

    Raises:
        DataError: It cannot be read.
        SchemaError: It is no schema.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        reason = f"{path}: the schema cannot be read: {error.strerror}"
        raise DataError(
            f"{reason}. See that it is there, and that this user may read it"
        ) from error
    refuse_empty_schema(path, text)
    try:
        metadata = msgspec.json.decode(text)
        if not isinstance(metadata, dict):
            raise SchemaError("it holds no JSON object")
        if metadata.get("format") == "siloweave-schema":
            return Schema.from_json(text)
        return Schema.from_sdv(metadata)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error
    except msgspec.DecodeError as error:
        raise SchemaError(
            f"{path}: is not JSON ({error}). Give a schema that `siloweave init` or "
            "Schema.to_json wrote."
        ) from error


# Methods


def listed() -> dict[str, Info]:
    """Return what every method is, guarantees and shows at its default settings, by name."""
    return {name: kind().info for name, kind in METHODS.items()}


class AboutMethod(msgspec.Struct, frozen=True):
    """All that `siloweave list NAME` shows of one method.

    Attributes:
        class_name: What it is called in Python.
        summary: What it does, in a sentence.
        info: What it is at its default settings.
        settings: Their defaults, by name.
        meanings: What each of them is, in a sentence, by name.
    """

    class_name: str
    summary: str
    info: Info
    settings: dict[str, str]
    meanings: dict[str, str]


def about_method(name: str) -> AboutMethod:
    """Return what a method is, what it does, and its settings.

    Args:
        name: Of the method, or of its class; case, ``-`` and ``_`` do not matter.

    Raises:
        InputError: The name is unknown.
    """
    kind = _kind_of(_method_meant(name), "NAME:")
    # The first paragraph of a class is a sentence on what it does.
    summary, _, _ = cleandoc(kind.__doc__ or "").partition("\n\n")
    method = kind()
    settings = {}
    for field in fields(kind):
        if field.init:
            settings[field.name] = _shown(getattr(method, field.name))
    return AboutMethod(
        class_name=kind.__name__,
        summary=" ".join(summary.split()),
        info=method.info,
        settings=settings,
        meanings={
            name: text for name, text in _meanings(kind).items() if name in settings
        },
    )


def _method_meant(word: str) -> str:
    """Return the name of the method that a word means, or the word itself if it means none."""
    letters = _letters(word)
    for name, kind in METHODS.items():
        if letters in (_letters(name), _letters(kind.__name__)):
            return name
    return word


def _letters(name: str) -> str:
    """Return a name in small letters, without what divides its words."""
    return name.replace("-", "").replace("_", "").lower()


# An entry of a docstring's list of settings: one name or several, and the first words on them.
_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.+(?:\n     .*)*)", re.MULTILINE)


# What only a reader of the code can look up.
_IN_CODE = re.compile(r" \((?:[^()]*\.py\b|this file)[^()]*\)")
# Where a docstring leaves the words to another class.
_REFERENCE = re.compile(r"See `(?:[\w.]+\.)?(\w+)`")
# A sentence's end: none is behind a blank, as that of "16, 256 ... are".
_END = re.compile(r"(?<=\S)\. (?=[A-Z0-9`])")


def _meanings(kind: type) -> dict[str, str]:
    """Return the first sentence on each setting in the docstring that explains it, by name."""
    meanings: dict[str, str] = {}
    # The class itself comes last, as its words are of this method alone.
    for parent in reversed(kind.__mro__):
        for names, text in _ENTRY.findall(cleandoc(parent.__doc__ or "")):
            text = _IN_CODE.sub("", " ".join(text.split())).replace("``", '"')
            sentence = _END.split(text, maxsplit=1)[0].removesuffix(".")
            reference = _REFERENCE.match(sentence)
            for name in names.split(", "):
                if reference is None:
                    meanings[name] = sentence
                elif name not in meanings:
                    # A class that it inherits from has said it already; another one is asked.
                    meanings.update(_referred(parent, reference[1], name))
    return meanings


def _referred(parent: type, class_name: str, setting: str) -> dict[str, str]:
    """Return what the class that a docstring refers to says of a setting, if it is found."""
    for module in (sys.modules[parent.__module__], model_settings):
        named_class = getattr(module, class_name, None)
        if isinstance(named_class, type):
            meanings = _meanings(named_class)
            return {setting: meanings[setting]} if setting in meanings else {}
    return {}


def _shown(value: Any) -> str:
    """Write a setting's value as study.toml has it; settings of its own are a table there."""
    if value is None:
        return "not set"
    if is_dataclass(value):
        pairs = [
            f"{field.name} = {_shown(getattr(value, field.name))}"
            for field in fields(value)
        ]
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return str(value)


def _kind_of(name: str, what: str) -> type[Synthesizer]:
    """Return the class of a method; InputError for an unknown name, with what was given."""
    kind = METHODS.get(name)
    if kind is None:
        near = close_match(name, METHODS)
        raise InputError(
            f"{what} {name!r} is unknown{near} Use one of {', '.join(METHODS)}."
        )
    return kind


def method_of(table: Mapping[str, Any]) -> Synthesizer:
    """Return the method that the table ``[method]`` names, with its settings.

    Raises:
        InputError: The name or a setting is unknown, or a value is out of range.
    """
    kind = _kind_of(table["name"], "[method] name =")
    settings = {key: value for key, value in table.items() if key != "name"}
    if "settings" in settings:
        raise InputError(
            "[method.settings] is of an older version: write its keys directly below [method], and "
            "those of its tables below [method.diffusion] and the like."
        )
    setting_names = [field.name for field in fields(kind) if field.init]
    _check_keys(settings, setting_names, "[method]")
    try:
        return settings_of(kind, settings, "[method]")
    except InputError as error:
        # A table of its own stays in the message, as [method.diffusion]; this one is named once.
        text = str(error).replace("[method].", "").removeprefix("[method]: ")
        raise type(error)(f"[method] {_plain_types(text)}") from error


def check_budget(synth: Synthesizer, budget: Budget | None) -> None:
    """Refuse a bound that a method does not guarantee, and a private method without one.

    Raises:
        BudgetError: It is asked for a bound; or it adds noise, and epsilon is infinite.
        InputError: It needs a budget, and the file has none.
    """
    method = synth.method
    title = synth.info.title
    if not method.needs_budget(synth):
        if budget is not None and isfinite(budget.epsilon):
            alternatives = []
            for name, info in listed().items():
                if info.guarantee == "dp" and info.split == method.split:
                    alternatives.append(name)
            raise BudgetError(
                f"[budget] epsilon = {budget.epsilon}: {title} is trained without noise and keeps "
                "no bound. Write epsilon = inf, or leave [budget] out, to run it without a "
                f"guarantee; these keep one: {', '.join(alternatives)}."
            )
    elif budget is None:
        raise InputError(
            f"[budget] is missing: {title} needs epsilon and delta. Only methods without a "
            "guarantee run without it."
        )
    elif not budget.private:
        instead = method.guarantee(synth).instead
        raise BudgetError(
            f"[budget] epsilon = inf: {title} adds noise, and its amount follows from a finite "
            f"epsilon. Give one, for example epsilon = 1. {instead}".rstrip()
        )
