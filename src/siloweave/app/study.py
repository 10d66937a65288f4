"""study.toml: everything a study is, in one file that is checked before a row is read.

Each table of the file is a class below; `siloweave init` writes a file in which every field is
explained. Paths are relative to the file. A key that is not known is refused, never ignored. A
method without a guarantee takes ``epsilon = inf``, or no ``[budget]`` at all; a finite epsilon is
refused for it, so that no study file promises what its run does not.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from hashlib import blake2b
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
    naming_party,
    number,
    whole,
)
from siloweave.methods.registry import METHODS
from siloweave.privacy.budget import UNBOUNDED, Budget, Relation
from siloweave.tables.database import Database
from siloweave.tables.ids import check_rules
from siloweave.tables.modelled import Modelled
from siloweave.tables.read import Dialect, Table, Unread, read, unread
from siloweave.tables.recoding import check_recode, recode, unknown_values
from siloweave.tables.schema import Schema

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


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
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
        declared = [one.name for one in fields(Dialect) if one.name != "names"]
        return Dialect(**{name: getattr(self, name) for name in declared})

    def rows(self, source: Path | Database, names: Sequence[str] = ()) -> Table | Unread:
        """Its rows, which are not read yet in a database or a Parquet file.

        Args:
            source: Where they are.
            names: Of the schema's columns, by which a text file is cut into cells.
        """
        kept = unread(source)
        if kept is not None and not self.maps:
            return kept.select(self.columns or kept.names)
        if isinstance(kept, Database):
            raise _unmapped(self.name)
        own_names = {new: old for old, new in self.rename.items()}
        dialect = replace(self.dialect, names=tuple(own_names.get(name, name) for name in names))
        columns = [own_names.get(name, name) for name in self.columns] or None
        table = read(source, columns=columns, **asdict(dialect))
        return recode(table, self.recode, rename=self.rename) if self.maps else table

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
        number("[schema] learn", self.schema.learn, 0, 1, "[)", ": the share for open facts")
        for party in self.parties:
            _check_name("[[parties]] name", party.name)
            with naming_party(party.name):
                party.dialect  # noqa: B018  an unknown encoding is found here
                if party.data:
                    source = self.source(party)  # and what is no address of a database
                    if party.maps and isinstance(source, Database):
                        raise _unmapped(party.name)
        if self.output.rows is not None:
            whole("[output] rows", self.output.rows, 1, "; without it, as many as were fitted")
        whole("[output] seed", self.output.seed)
        if not isinstance(self.method.get("name"), str):
            raise InputError(
                '[method] needs a name, for example name = "flaim". '
                "`siloweave list` shows them all."
            )
        _check_roster(self.study.roster, self.names)
        if (asked := self.alignment) is not None:
            try:
                check_rules(asked.on, asked.rules)
            except InputError as error:
                raise InputError(f"[alignment] {error}") from error
            if asked.most is not None:
                whole("[alignment] most", asked.most, 1)
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
        own = (self.study, self.budget, self.method, self.names, self.output.seed)
        facts: list[Any] = [*own, *filter(None, (self.alignment, self.schema.learn))]
        text = msgspec.json.encode([*facts, self.read_schema().digest()], order="sorted")
        return f"{self.study.name}-{blake2b(text, digest_size=6).hexdigest()}"

    @property
    def counts(self) -> bool:
        """Whether rows are only counted: by the method, and with no constraint to change them."""
        return self.synthesizer().method.counts and not self.read_schema().constraints

    def source(self, party: PartyTable) -> Path | Database:
        """Where a party's rows are; InputError if nothing is named."""
        if isinstance(own := party.data, DatabaseTable):
            return Database(own.database, own.table, own.query).below(self.base)
        if not party.data:
            raise InputError(
                f"[[parties]] data is missing for {party.name!r}. Name the file of its rows. "
                "Over a network that is not needed: there each party names its own by --data."
            )
        return Path(self.base) / own

    def rows(
        self, party: PartyTable, source: Path | Database, job: Job, home: Path | None
    ) -> Table | Unread:
        """A party's rows as the method takes them: counted where they are, all, or a sample."""
        schema = self.read_schema()
        part = party.rows(source, schema.names)
        if party.recode and isinstance(part, Table):
            for note in unknown_values(party.recode, part, schema):  # for whoever has the rows
                _log.warning("party %r: %s", party.name, note)
        index = self.names.index(party.name)
        synth, ordered = self.synthesizer(), not isinstance(part, Database)
        rows: Table | Unread = part
        if not self.counts:
            rows = rows_to_learn(party.name, part, synth, job, index, home)
        if self.alignment is not None:  # all parties keep the same of their common rows
            return rows
        return rows_of_units(
            rows, synth.method.split, self.read_schema(), job, index, home, ordered=ordered
        )

    def share(self, source: Path | Database) -> float:
        """The chance with which each row of a party takes part."""
        synth, relation = self.synthesizer(), self.terms().relation
        return (
            1.0 if self.counts else share_drawn(unread(source), synth, relation, self.study.sample)
        )

    def facts(self) -> dict[str, Any]:
        """Everything public that the study is: over a network all ends must have the same."""
        parties = {party.name: party.columns for party in self.parties}
        found: dict[str, Any] = msgspec.to_builtins(
            {
                "study": self.study,
                "method": self.method,
                "budget": self.budget,
                "parties": parties,
                "alignment": self.alignment,
                "learn": self.schema.learn,
                "seed": self.output.seed,
                "schema": msgspec.json.decode(self.read_schema().without_reasons().to_json()),
                "siloweave": __version__,
            }
        )
        return found

    def setup(self, columns: Mapping[str, tuple[str, ...]] | None = None) -> Setup:
        """What parties and coordinator know of the study before it begins.

        Args:
            columns: Of every party's file; None over a network, where the study names them.

        Raises:
            RosterError: A party with columns of its own does not name them.
            SiloweaveError: As of `checked`.
        """
        (schema, synth), far = self.checked(), columns is None
        own: dict[str, tuple[str, ...]] = {}
        if synth.method.split == "columns":
            own = own_columns(self._named_columns() if columns is None else columns, schema)
        budget = synth.method.allowed(synth, self.terms() if self.budget else None)
        setup = Setup(synth, schema, budget, self.names, own)
        check_named(setup, self.schema.learn, far=far)
        synth.method.affordable(setup, self.schema.learn)
        return setup

    def _named_columns(self) -> dict[str, list[str]]:
        for party in self.parties:
            if not party.columns:
                raise RosterError(
                    f"[[parties]] columns is missing for {party.name!r}. Over a network the "
                    "study names every party's columns, since nobody sees another's table."
                )
        ids = self.alignment.on if self.alignment else ()
        return {p.name: [c for c in p.columns if c not in ids] for p in self.parties}

    def job(self, **facts: Any) -> Job:
        """The run of the study; `facts` are further fields of `Job`."""
        return job_for(
            self.checked()[1],
            self.terms() if self.budget else None,
            seed=self.output.seed,
            run=self.run_name,
            learn=self.schema.learn,
            sample=self.study.sample,
            **facts,
        )

    def terms(self) -> Budget:
        """The budget as the library takes it; without a bound where the file has none.

        Raises:
            BudgetError: epsilon or delta is out of bounds.
            InputError: delta is missing beside a finite epsilon.
        """
        budget = self.budget or BudgetTable(inf)
        if (delta := budget.delta) is None:
            if budget.epsilon != inf:
                raise InputError(
                    "[budget] delta is missing. Add it, far below 1 / number of rows, for example "
                    "delta = 1e-6; `siloweave init` writes a file with every field."
                )
            delta = UNBOUNDED.delta
        return Budget(
            budget.epsilon, delta, budget.unit, budget.relation, budget.rows_per_unit,
            budget.parties_per_unit,
        )  # fmt: skip

    def read_schema(self) -> Schema:
        """The declared columns.

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
        """The method that ``[method]`` names, with its settings.

        Raises:
            InputError: The name or a setting is unknown, a value is out of range, or the method
                has no budget and needs one.
            BudgetError: The method is asked for a bound that it does not guarantee.
        """
        synth = method_of(self.method)
        check_budget(synth, self.terms() if self.budget else None)
        return synth

    def checked(self) -> tuple[Schema, Synthesizer]:
        """The schema, and the method as it fits the schema and the number of parties.

        Raises:
            InputError: Something does not fit; the message names the part of the file.
            RosterError: A method for one party gets more.
            SchemaError: The method cannot learn what the schema declares.
        """
        schema, synth = self.read_schema().without_reasons(), self.synthesizer()
        method, count, learn = synth.method, len(self.parties), self.schema.learn
        for party in self.parties:
            if party.recode:
                with naming_party(party.name):
                    check_recode(party.recode, schema)
        if method.split == "central" and count > 1:
            others = [name for name, kind in METHODS.items() if kind.method.split == "rows"]
            raise RosterError(
                f"[method] name = {method.name!r} takes one party that sees all rows; the study "
                f"has {count}, whose rows would have to be pooled. Keep one, or use a method for "
                f"split rows: {', '.join(others)}."
            )
        if learn and not method.learns:
            raise InputError(
                f"[schema] learn = {learn}: {synth.info.title} learns no schema. Declare every "
                "bound and category in the schema's file, and leave learn out."
            )
        try:
            learned = schema
            if schema.constraints:
                Modelled(schema).check_open(learn)
                learned = Modelled(schema).schema
            method.check_schema(synth, learned)
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
        """A study from the parsed file; see `load`.

        Example:
            >>> Study.parse({"study": {"nam": "a"}})
            Traceback (most recent call last):
                ...
            siloweave.errors.InputError: [study] nam is unknown; did you mean 'name'? It takes ...
        """
        data = _with_party_tables(data)
        known = [name for name in Study.__struct_fields__ if name != "base"]
        check_tables(data, known, _TABLES, "the study file")
        return converted({**data, "base": str(base)}, Study)


def _with_party_tables(data: Mapping[str, Any]) -> dict[str, Any]:
    """Move tables such as ``[parties.south.recode]`` to the party that they name.

    TOML puts them into the ``[[parties]]`` above them, whichever that is.
    """
    entries = data.get("parties")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return dict(data)
    keys = PartyTable.__struct_fields__
    names = {entry.get("name") for entry in entries}
    named_tables = {
        key: value
        for entry in entries
        for key, value in entry.items()
        if key in names and key not in keys and isinstance(value, dict)
    }
    parties = []
    for entry in entries:
        own = {key: value for key, value in entry.items() if key not in named_tables}
        more = named_tables.get(str(entry.get("name")), {})
        if repeated := [key for key in more if key in own]:
            raise InputError(
                f"[[parties]] {entry['name']!r} has {repeated[0]} twice: below [[parties]], and in "
                f"[parties.{entry['name']}]. Write it once."
            )
        parties.append({**own, **more})
    return {**data, "parties": parties}


def _unmapped(party: str) -> InputError:
    """Say that a database's names and values are mapped by its query."""
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
    """What `parse` makes of a TOML file; raises InputError, naming the file."""
    try:
        return parse(tomllib.loads(file.read_text("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: is not TOML: {error}") from error
    except InputError as error:
        raise type(error)(f"{file}: {error}") from error


def converted(data: Mapping[str, Any], kind: type[_File]) -> _File:
    """Data as a value of a type; raises InputError that names the place in the file."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise InputError(_placed(error)) from error


def check_tables(
    data: Mapping[str, Any], known: Sequence[str], tables: Mapping[str, Any], file: str
) -> None:
    """Refuse keys of a file, and of its tables, that are not known, with what was meant."""
    _check_keys(data, known, file)
    for name, kind in tables.items():
        found = data.get(name)
        several, where = (found, f"[[{name}]]") if name == "parties" else ([found], f"[{name}]")
        for table in several if isinstance(several, list) else []:
            if isinstance(table, dict):
                _check_keys(table, kind.__struct_fields__, where)


def _check_keys(given: Iterable[str], known: Sequence[str], where: str) -> None:
    """Raise InputError for a key that is not known, with what was probably meant."""
    for key in given:
        if key not in known:
            near = close_match(key, known)
            raise InputError(f"{where} {key} is unknown{near} It takes {', '.join(known)}.")


def close_match(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: a full stop, or the word that was meant.

    Example:
        >>> close_match("epsilom", ["epsilon", "delta"])
        "; did you mean 'epsilon'?"
    """
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def _placed(error: msgspec.ValidationError) -> str:
    """Where a wrong value is, in the words of the file: ``$.budget.delta`` -> [budget] delta."""
    text, _, path = str(error).partition(" - at `")
    parts = re.findall(r"\[?\w+|\[\.\.\.\]", path.rstrip("`").removeprefix("$"))
    names = [part for part in parts if not part.startswith("[")]
    if names:
        names[0] = f"[[{names[0]}]]" if len(names) < len(parts) else f"[{names[0]}]"
    place = " ".join(names)
    if missing := re.search(r"missing required field `(\w+)`", text):
        name = f"{place} {missing[1]}" if place else f"[{missing[1]}]"
        return f"{name} is missing. Add it; `siloweave init` writes a file with every field."
    text = _plain_types(text)
    if place == "[budget] relation":
        text = f"{text}; use one of {', '.join(Relation)}"
    return f"{place}: {text}."


def _plain_types(text: str) -> str:
    """msgspec's message about a wrong type, in the words of a study file."""
    text = text.replace("Expected", "must be").replace(", got", ", not")
    for word, plain in _TYPES.items():
        text = text.replace(f"`{word}", f"`{plain}").replace(f"| {word}`", f"| {plain}`")
    return text.replace("`", "").replace(" | null", "").replace(" | ", " or ")


def plain_name(text: str, otherwise: str) -> str:
    """A text made into a name for a study or a party, with '-' for what a name may not hold.

    Example:
        >>> plain_name("Spital Zürich/Ost", "party")
        'Spital Zurich-Ost'
    """
    ascii_ = normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9 ._-]+", "-", ascii_).strip(" ._-")[:64]
    return name or otherwise


def _check_name(where: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{where} = {name!r} must be 1 to 64 letters, digits, spaces, '.', '_' or '-' and "
            "start with a letter or digit. It names a folder and the ledger's lines."
        )


def _check_roster(roster: Sequence[str], names: Sequence[str]) -> None:
    if not names:
        raise RosterError("there is no [[parties]]. Add one for every file of rows.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise RosterError(
            f"[[parties]] name = {twice[0]!r} is there twice. Every party needs its own name."
        )
    absent = [name for name in roster if name not in names]
    if absent:
        raise RosterError(
            f"[study] roster names {len(roster)} parties, and {', '.join(absent)} "
            "has no [[parties]] entry. Add it, or agree on a smaller roster with everyone."
        )
    extra = [name for name in names if roster and name not in roster]
    if extra:
        raise RosterError(
            f"[[parties]] name = {extra[0]!r} is not in [study] roster. "
            "Add it there, or leave the party out."
        )


def schema_in(path: Path) -> Schema:
    """The schema in a file: ours, or SDV metadata.

    Raises:
        DataError: It cannot be read.
        SchemaError: It is no schema.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        why = f"{path}: the schema cannot be read: {error.strerror}"
        raise DataError(f"{why}. See that it is there, and that this user may read it") from error
    try:
        metadata = msgspec.json.decode(text)
        if not isinstance(metadata, dict):
            raise SchemaError("it holds no JSON object")
        ours = metadata.get("format") == "siloweave-schema"
        return Schema.from_json(text) if ours else Schema.from_sdv(metadata)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error
    except msgspec.DecodeError as error:
        raise SchemaError(
            f"{path}: is not JSON ({error}). Give a schema that `siloweave init` or "
            "Schema.to_json wrote."
        ) from error


# Methods


def listed() -> dict[str, Info]:
    """What every method is, guarantees and shows at its default settings, by name."""
    return {name: kind().info for name, kind in METHODS.items()}


def method_of(table: Mapping[str, Any]) -> Synthesizer:
    """The method that the table ``[method]`` names, with its settings.

    Raises:
        InputError: The name or a setting is unknown, or a value is out of range.
    """
    name = table["name"]
    if (kind := METHODS.get(name)) is None:
        near = close_match(name, METHODS)
        raise InputError(
            f"[method] name = {name!r} is unknown{near} Use one of {', '.join(METHODS)}."
        )
    given = {key: value for key, value in table.items() if key != "name"}
    if "settings" in given:
        raise InputError(
            "[method.settings] is of an older version: write its keys directly below [method], and "
            "those of its tables below [method.diffusion] and the like."
        )
    _check_keys(given, [one.name for one in fields(kind) if one.init], "[method]")
    try:
        return settings_of(kind, given, "[method]")
    except InputError as error:
        text = str(error).replace("[method].", "").removeprefix("[method]: ")
        raise type(error)(f"[method] {_plain_types(text)}") from error


def check_budget(synth: Synthesizer, budget: Budget | None) -> None:
    """Refuse a bound that a method does not guarantee, and a private method without one.

    Raises:
        BudgetError: It is asked for a bound; or it adds noise, and epsilon is infinite.
        InputError: It needs a budget, and the file has none.
    """
    method, title = synth.method, synth.info.title
    if not method.needs_budget(synth):
        if budget is not None and isfinite(budget.epsilon):
            split, found = method.split, listed().items()
            private = [n for n, one in found if (one.guarantee, one.split) == ("dp", split)]
            raise BudgetError(
                f"[budget] epsilon = {budget.epsilon}: {title} is trained without noise and keeps "
                "no bound. Write epsilon = inf, or leave [budget] out, to run it without a "
                f"guarantee; these keep one: {', '.join(private)}."
            )
    elif budget is None:
        raise InputError(
            f"[budget] is missing: {title} needs epsilon and delta. Only methods without a "
            "guarantee run without it."
        )
    elif not budget.private:
        raise BudgetError(
            f"[budget] epsilon = inf: {title} adds noise, and its amount follows from a finite "
            f"epsilon. Give one, for example epsilon = 1. {method.unbounded}".rstrip()
        )
