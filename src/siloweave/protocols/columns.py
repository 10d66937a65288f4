"""Starting a run over parties that hold different columns of the same people.

The setting is that of vertical federated synthesis (Shankar et al. 2024, "SiloFuse"; Jiang et al.
2023, "Distributed synthetic data with VertiGAN"): rows are aligned before, and row i is the same
person at every party. A method brings its messages, a party's handlers, the coordinator's loop,
and how a party makes its columns out of what the coordinator draws (`Home`).

**Guarantee**: none of its own; a method's file states its own, and every party's ledger holds what
it released. One person's row lies at all parties, so what they release about it adds up: the
epsilon of a fit is that of all ledgers together.

What a fit over split columns leaves: a joint model, and what every party kept at home.

After Shankar et al. 2024 ("SiloFuse: cross-silo synthetic data generation with latent tabular
diffusion models"): the coordinator draws vectors, every party makes its own columns of its part,
and the columns are put together or stay where they are, as the study says.

**Guarantee**: none of its own; sampling reads what was released and what stays at home with the
parties, whose sharing of columns is in their ledgers.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np

from siloweave.algorithms.generated import Generated, Matrix, read_generated
from siloweave.algorithms.one_owner import OneOwner
from siloweave.algorithms.running import PartySide, Progress, Recipe, opened
from siloweave.core.fit import Cost, Model
from siloweave.core.method import READERS, View
from siloweave.core.run import Job, Recall, named_parties, plain, required_rows
from siloweave.errors import (
    BudgetError,
    DataError,
    InputError,
    RosterError,
    SchemaError,
    WireError,
    naming_party,
)
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import UNBOUNDED, Budget, Relation
from siloweave.progress import silent
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.ids import id_texts
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.one_way import OneWay
from siloweave.tables.read import Table, beside, digest_of, read
from siloweave.tables.schema import Schema, outline

_FEATURES, _CODER = "home/features", "home/coder"  # what a party remembers of its columns


@dataclass(frozen=True)
class ColumnsPart:
    """What a party works with.

    Attributes:
        table: Its columns, ids left out; rows in the order that all parties share.
        schema: Of these columns.
        progress: Called with a text and the share that is done of this party's work.
        store: Folder for an interrupted training of this party, of this run alone; or None.
    """

    table: Table
    schema: Schema
    progress: Progress = silent
    store: Path | None = None

    def digest(self) -> bytes:
        """By which the party knows again what it brought; see `Site`."""
        return digest_of(self.table, self.schema.digest())


@dataclass(frozen=True)
class ColumnsTask:
    """What a coordinator is to do.

    Attributes:
        schema: Public facts about all columns, ids left out.
        columns: Names of each party's columns, ids left out, in roster order.
        seed: Everything random but noise that protects.
        budget: What all parties together may release about a row; without a bound for none.
        progress: Called with a text and the share that is done of the coordinator's work.
        store: Folder for an interrupted training of the coordinator, of this run alone; or None.
    """

    schema: Schema
    columns: Mapping[str, tuple[str, ...]]
    seed: int
    budget: Budget
    progress: Progress = silent
    store: Path | None = None


def keep_home(site: Site[Any], features: Features, coder: bytes | None = None) -> None:
    """Remember at a party how its columns are made of vectors; it never leaves.

    Args:
        site: The party.
        features: Vectors of its columns to table and back.
        coder: A safetensors file of whatever lies between the coordinator's vectors and those.
    """
    site.remember(_FEATURES, features.to_json().encode())
    if coder is not None:
        site.remember(_CODER, coder)


def kept_features(site: Site[Any]) -> Features:
    """The features that `keep_home` remembered in this run."""
    features = site.recall(_FEATURES)
    if features is None:
        raise WireError(f"party {site.name!r}: a step was asked for before the beginning")
    return Features.from_json(features)


@dataclass(frozen=True)
class ColumnsSplit(OneOwner[Woven]):
    """What all methods share whose parties hold different columns.

    Args:
        target: A column whose classes are told to the model; only for a method that takes one.
        shared: Whether synthetic columns are put together; else each stays with its party, and
            only `Woven.sample_parts` draws.
        settings: Of the networks and their training, as a mapping; defaults for the rest.
    """

    target: str | None = None
    shared: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    home_share: ClassVar[float] = 0.5  # of the work that parties do one after the other
    numeric: ClassVar[Any] = "quantile"
    transcribed: ClassVar[bool] = True  # False where thousands of messages would fill a disk

    @abstractmethod
    def chosen(self) -> dict[str, Any]:
        """The settings, as plain values; raises InputError if one is wrong."""

    def readers(self, protection: str) -> View:
        """What readers see: the table, or each party its own columns."""
        table = READERS.sees if self.shared else "the synthetic columns that their party shows them"
        return View("readers", table, protection)

    @abstractmethod
    def handlers(self) -> Handlers:
        """A party's side; `Site.rows` is its `ColumnsPart`."""

    @abstractmethod
    def coordinate(self, parties: Session, task: ColumnsTask) -> tuple[Model, int]:
        """The coordinator's side.

        Returns:
            What draws the parties' vectors, side by side in roster order, and how many rows there
            were.
        """

    @staticmethod
    @abstractmethod
    def home(features: Features, coder: bytes | None) -> Home:
        """What a party kept at home with `keep_home`, ready to decode."""

    def moves(self, schema: Schema, rows: int, parties: int) -> tuple[int, int]:
        """Questions and bytes of a party that a run will take, roughly: its vectors once.

        Args:
            schema: Of all columns.
            rows: How many.
            parties: Among how many columns are spread.
        """
        return 2, 4 * rows * Features.declared(schema).width // parties

    def fitted(self, data: Any, schema: Schema, job: Job, names: Sequence[str] | None) -> Woven:
        """Train over parties that hold different columns of the same people; see `fit`."""
        settings = self.chosen()
        self.check_schema(schema)
        start = time.perf_counter()
        hidden = job.limited and job.budget.relation is Relation.ADD_REMOVE
        tables, held = parts_of(data, schema, names, empty=hidden)
        parts = {name: part.schema for name, part in held.items()}
        job = replace(job, facts=self.facts(parts))
        left = self._run(held, schema, job)
        traffic, rounds = left.pop("cost")
        columns = {name: table.names for name, table in tables.items()}
        return Woven(
            info=self.stated,
            budget=job.budget,
            private=job.noise == "os" and job.limited,
            settings={"target": self.target, "shared": self.shared, **settings},
            like=_like(tables, schema),
            columns=columns,
            cost=Cost(traffic, rounds, {"training": time.perf_counter() - start}),
            **left,
        )

    def _run(self, held: Mapping[str, ColumnsPart], schema: Schema, job: Job) -> dict[str, Any]:
        """Open the sites, let the coordinator run, and collect what it left."""
        places = ("coordinator", *(f"parties/{i:04d}" for i in range(len(held))))
        own, *stores = (self.training_store(job, place) for place in places)
        ready = {
            name: ColumnsPart(part.table, part.schema, self._told(job, i, len(held)), stores[i])
            for i, (name, part) in enumerate(held.items())
        }
        kept, handlers = self.transcribed, self.handlers()
        recipe = Recipe.of(self, schema, columns={n: p.schema.names for n, p in held.items()})
        tables = {name: part.table for name, part in held.items()}
        line = opened(ready, handlers, job, job.run, recipe, tables, transcribed=kept)
        with line as (parties, recall):
            joint, rows = self.coordinate(parties, self._task(held, schema, job, own))
            homes = {name: self._at_home(name, recall) for name in held}
            closing = parties.close()
        for store in (own, *stores):  # replies and model are kept now
            if store is not None:
                rmtree(store, ignore_errors=True)
        features = joined_features(schema, [home.features for home in homes.values()])
        return {
            "model": WovenModel(joint, homes, features),
            "features": features,
            "ledgers": closing.ledgers,
            "heads": closing.heads,
            "cost": (parties.traffic, parties.rounds),
            "num_rows": rows,
            "one_way": in_order(getattr(joint, "one_way", None), schema),
        }

    def allowed(self, budget: Budget | None) -> Budget:
        """The budget of a run; raises BudgetError where it asks for what is not given."""
        if budget is not None and isfinite(budget.epsilon) and self.stated.guarantee != "dp":
            raise BudgetError(
                f"{self.info.title} releases without noise at these settings, and budget asks for "
                f"epsilon = {budget.epsilon}. Give budget=None to go without a guarantee."
            )
        return budget or UNBOUNDED

    def _task(
        self, held: Mapping[str, ColumnsPart], schema: Schema, job: Job, store: Path | None
    ) -> ColumnsTask:
        def told(text: str, done: float) -> None:
            job.progress(text, self.home_share + (1.0 - self.home_share) * done)

        columns = {name: part.schema.names for name, part in held.items()}
        coded = schema.select([c.name for c in schema.columns if c.kind != "id"])
        return ColumnsTask(coded, columns, job.seed, job.budget, told, store)

    def _told(self, job: Job, index: int, parties: int) -> Progress:
        def told(text: str, done: float) -> None:
            job.progress(
                f"party {index + 1} of {parties}: {text}",
                self.home_share * (index + done) / parties,
            )

        return told

    def _at_home(self, name: str, recall: Recall) -> Home:
        features = recall(name, _FEATURES)
        assert features is not None  # a method that keeps none is broken
        return self.home(Features.from_json(features), recall(name, _CODER))

    def party_side(
        self,
        stage: str,
        name: str,
        table: Table,
        schema: Schema,
        *,
        encoder: Encoder | None,
        columns: Mapping[str, tuple[str, ...]],
        **_: Any,
    ) -> PartySide:
        """A party's data, its handlers, and the facts that it is given."""
        parts = {party: schema.select(list(own)) for party, own in columns.items()}
        return ColumnsPart(table, parts[name]), self.handlers(), self.facts(parts)

    def facts(self, parts: Mapping[str, Schema]) -> dict[str, Any]:
        """What every party is given of these settings, see `Terms`."""
        told = self.target if sum(len(part.names) for part in parts.values()) > 1 else None
        own = {"target": told, "shared": self.shared, "parts": dict(parts)}
        return {**plain(self.chosen()), **own}


def in_order(law: OneWay | None, schema: Schema) -> OneWay | None:
    """How single columns are distributed, in the schema's order."""
    if law is None:
        return None
    cells = {one.column.name: one for one in law.cells}
    return OneWay(tuple(cells[name] for name in schema.names if name in cells))


def _like(tables: Mapping[str, Table], schema: Schema) -> Table:
    """An empty table of all columns, of the frame that was given."""
    empty = beside([outline(table) for table in tables.values()])
    return empty.select([name for name in schema.names if name in empty.names])


def parts_of(
    data: Any, schema: Schema, names: Sequence[str] | None = None, *, empty: bool = False
) -> tuple[dict[str, Table], dict[str, ColumnsPart]]:
    """Every party's table, and its part of the schema.

    Args:
        data: One table per party, as a list or by name.
        schema: Of all columns.
        names: Of the parties, when `data` is a list.
        empty: Whether tables may have no rows: where neighbours differ by a row, a refusal would
            show the first one.

    Returns:
        The tables as they were read, and what parties work with; ids are left out of the latter.

    Raises:
        RosterError: Parties have other numbers of rows, ids in another order, or no rows.
        SchemaError: A column is in no schema, at no party, or at two, or its rows do not fit.
        DataError: A table cannot be read, or holds what no column may.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> table, schema = adult(), adult_schema()
        >>> _, parts = parts_of([table.select(["age", "sex"]), table.select(["income"])],
        ...                     schema.select(["sex", "income", "age"]))
        >>> {name: part.schema.names for name, part in parts.items()}
        {'party-1': ('age', 'sex'), 'party-2': ('income',)}
    """
    tables = {name: _read(name, part) for name, part in named_parties(data, names).items()}
    if not tables:
        raise RosterError("data has no party; give one table per party, as a list or by name")
    owners = owners_of({name: table.names for name, table in tables.items()}, schema)
    _check_rows(tables, empty)
    _check_ids(tables, schema)
    parts: dict[str, ColumnsPart] = {}
    for name, table in tables.items():
        own = [column for column in table.names if owners.get(column) == name]
        if not own:
            raise RosterError(f"party {name!r} has no column but ids; leave it out of the roster")
        parts[name] = ColumnsPart(table.select(own), schema.select(own))
        with naming_party(name):  # before anything is paid for
            Encoder(parts[name].schema).encode(parts[name].table)
    return tables, parts


def _read(name: str, part: Any) -> Table:
    with naming_party(name):
        return read(part)


def owners_of(columns: Mapping[str, Sequence[str]], schema: Schema) -> dict[str, str]:
    """Which party holds each column that is no id.

    Args:
        columns: Names of every party's columns.
        schema: Of all columns.

    Raises:
        SchemaError: A column is in no schema, at no party, or at two; the message names parties.
    """
    owners: dict[str, str] = {}
    for party, names in columns.items():
        for name in names:
            if name not in schema.names:
                raise SchemaError(
                    f"party {party!r}: the schema lacks its column {name!r}. Declare it, or leave "
                    "it out of the party's table."
                )
            if schema[name].kind == "id":
                continue
            if name in owners:
                raise SchemaError(
                    f"parties {owners[name]!r} and {party!r} both hold column {name!r}; take it "
                    "from one of them. Only ids may be at several parties."
                )
            owners[name] = party
    absent = [c.name for c in schema.columns if c.kind != "id" and c.name not in owners]
    if absent:
        raise SchemaError(
            f"no party holds the schema's columns {', '.join(map(repr, absent))}; add them to a "
            "party's table, or take them out of the schema."
        )
    return owners


def _check_rows(tables: Mapping[str, Table], empty: bool) -> None:
    (first, table), *others = tables.items()
    for name, one in tables.items():
        if not empty:
            required_rows(name, one.num_rows)
    for name, other in others:
        if other.num_rows != table.num_rows:
            raise RosterError(
                f"party {name!r} has {other.num_rows:,} rows and party {first!r} has "
                f"{table.num_rows:,}; row i must be one person at every party. Align the tables "
                "on an id first."
            )


def _ids(party: str, table: Table, column: str) -> list[str | None]:
    with naming_party(party):
        return id_texts(table, column)


def _check_ids(tables: Mapping[str, Table], schema: Schema) -> None:
    """Refuse tables whose shared ids show another order of rows."""
    for column in (c.name for c in schema.columns if c.kind == "id"):
        holders = [(name, table) for name, table in tables.items() if column in table.names]
        for (first, table), (name, other) in ((holders[0], one) for one in holders[1:]):
            mine, theirs = _ids(first, table, column), _ids(name, other, column)
            if mine != theirs:
                row = int(np.argmax([a != b for a, b in zip(mine, theirs, strict=True)]))
                raise RosterError(
                    f"parties {first!r} and {name!r} differ in id {column!r} at row {row}; row i "
                    "must be one person at every party. Align the tables first."
                )


COLUMNS = "woven.json"

"""File of a saved fit that names every party's columns."""


class Home(Protocol):
    """What a party keeps: its encoders, and how its part of a vector becomes its own features.

    Conforming: `PlainHome`, and `silofuse.CoderHome`.
    """

    @property
    def features(self) -> Features:
        """Vectors of its columns to table and back."""

    @property
    def width(self) -> int:
        """Entries of its part of the coordinator's vector."""

    def decode(self, part: Matrix, *, key: Key) -> Matrix:
        """Feature vectors of its columns, from its part of the coordinator's vectors."""

    def encode(self, X: Matrix) -> Matrix:
        """Its part of vectors, from feature vectors of its columns; NaN where those are NaN."""

    def coder(self) -> bytes | None:
        """What `ColumnsSplit.home` reads again; None where there is nothing but features."""


@dataclass(frozen=True)
class PlainHome:
    """A party whose part of the coordinator's vector is its feature vector.

    Attributes:
        features: Vectors of its columns to table and back.
    """

    features: Features

    @property
    def width(self) -> int:
        """Entries of its part."""
        return self.features.width

    def decode(self, part: Matrix, *, key: Key) -> Matrix:
        """The part as it is."""
        return part

    def encode(self, X: Matrix) -> Matrix:
        """The vectors as they are."""
        return X

    def coder(self) -> bytes | None:
        """None: features are all there is."""
        return None


class Reader(Protocol):
    """What reads the files of a method; conforming: every class derived from `ColumnsSplit`."""

    @staticmethod
    def load(path: Path) -> Model:
        """Read the coordinator's model."""

    @staticmethod
    def home(features: Features, coder: bytes | None) -> Home:
        """Read what a party kept."""


def joined_features(schema: Schema, parts: Sequence[Features]) -> Features:
    """The encoders of all parties as one, columns in the schema's order."""
    plans = {plan.column: plan for part in parts for plan in part.encodings}
    return Features(schema, tuple(plans[n] for n in schema.names if n in plans))


@dataclass(frozen=True)
class WovenModel:
    """Draws the coordinator's vectors and lets every party make its columns of its part.

    Attributes:
        joint: Draws the parties' parts side by side, in roster order.
        homes: What the parties kept, in that order.
        features: Of all columns.
    """

    joint: Model
    homes: Mapping[str, Home]
    features: Features

    @property
    def takes(self) -> frozenset[str]:
        """Columns that it can be asked for."""
        return self.joint.takes

    @property
    def keeps(self) -> bool:
        """Whether rows have what is given in those columns."""
        return self.joint.keeps

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of a column was, where the model knows."""
        return self.joint.shares(column)

    def save(self, path: Path) -> None:
        """Write the coordinator's model; the parties keep their own."""
        self.joint.save(path)

    def _parts(self) -> list[tuple[str, Home, slice, list[int]]]:
        """Per party: its name, home, place in a joint vector, and its places among features."""
        own: dict[str, list[int]] = {}
        for block in self.features.blocks:
            own.setdefault(block.column, []).extend(range(block.start, block.stop))
        found, start = [], 0
        for name, home in self.homes.items():
            places = [i for plan in home.features.encodings for i in own[plan.column]]
            found.append((name, home, slice(start, start + home.width), places))
            start += home.width
        return found

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw feature vectors of all columns; `given` is NaN wherever a row is free."""
        parts = self._parts()
        asked = None
        if given is not None:
            asked = np.full((n, parts[-1][2].stop), np.nan, np.float32)
            for _, home, place, places in parts:
                asked[:, place] = home.encode(given[:, places])
        drawn = self.joint.sample(n, key=key, given=asked)
        X = np.zeros((n, self.features.width), dtype=np.float32)
        for name, home, place, places in parts:
            X[:, places] = home.decode(drawn[:, place], key=fold_in(key, "home", name))
        return X


@dataclass(frozen=True, repr=False)
class Woven(Generated):
    """A fit over parties that hold different columns.

    Attributes:
        model: The coordinator's model and what every party kept: here, in a simulation, in one
            place.
        columns: Every party's columns, its ids among them.
    """

    model: WovenModel
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Whether synthetic columns are put together."""
        return bool(self.settings.get("shared", True))

    @property
    def epsilon(self) -> float:
        """Epsilon of a whole row: what all parties together released about it."""
        events = [entry.event for entries in self.ledgers.values() for entry in entries]
        return epsilon(events, self.budget.delta)

    def sample_table(
        self, num_rows: int | None = None, *, seed: Key | None = None, **way: Any
    ) -> Table:
        """Synthetic rows of all columns; the arguments are those of `Generated.sample`.

        Raises:
            InputError: Columns stay with their parties in this study.
        """
        if not self.shared:
            raise InputError(
                "synthetic columns stay with their parties in this fit (shared=False), so there "
                "is no joined table; sample_parts() draws each party's columns"
            )
        return super().sample_table(num_rows, seed=seed, **way)

    def part_tables(
        self, num_rows: int | None = None, *, seed: Key | None = None, given: Any = None
    ) -> dict[str, Table]:
        """Every party's synthetic columns; row i is the same made-up person in all of them."""
        table = super().sample_table(num_rows, seed=seed, given=given, raked=self.shared)
        return {
            name: table.select([column for column in names if column in table.names])
            for name, names in self.columns.items()
        }

    def sample_parts(
        self, num_rows: int | None = None, *, seed: Key | None = None, given: Any = None
    ) -> dict[str, Any]:
        """Every party's synthetic columns as frames of the kind that was fitted.

        Args:
            num_rows: How many; as many as the model was trained on if None.
            seed: The same seed gives the same rows, and the rows of `sample`; without one, every
                call gives others.
            given: What rows shall have, as `Generated.sample` takes it; only where columns are
                shared, since a party would otherwise learn about another's columns.

        Returns:
            A frame per party; row i is the same made-up person in all of them.

        Raises:
            InputError: Something is given though columns stay with their parties.
        """
        if given is not None and not self.shared:
            raise InputError("given: columns stay with their parties in this fit (shared=False)")
        tables = self.part_tables(num_rows, seed=seed, given=given)
        return {name: table.to_native() for name, table in tables.items()}

    def write_to(self, folder: Path) -> None:
        """Write the coordinator's model and every home into an empty folder.

        What stays with the parties (`shared` is False) only the folder's owner may read.
        """
        super().write_to(folder)
        for i, home in enumerate(self.model.homes.values()):
            place = folder / "homes" / f"{i:04d}"
            place.mkdir(parents=True)
            (place / "features.json").write_text(home.features.to_json())
            if (coder := home.coder()) is not None:
                (place / "coder.safetensors").write_bytes(coder)
        (folder / COLUMNS).write_bytes(msgspec.json.encode(self.columns))
        if not self.shared:
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o700 if path.is_dir() else 0o600)


def read_woven(folder: Path | str, kinds: Mapping[str, Reader]) -> Woven:
    """Read what `Woven.save` wrote.

    Args:
        folder: Where it was saved.
        kinds: Per name of a method, what reads its model and its homes.

    Raises:
        DataError: A file is missing, cut or of another version.
    """
    path = Path(folder)
    plain = read_generated(path, {name: kind.load for name, kind in kinds.items()})
    try:
        columns = msgspec.json.decode(
            (path / COLUMNS).read_bytes(), type=dict[str, tuple[str, ...]]
        )
        homes = {
            name: _read_home(path / "homes" / f"{i:04d}", kinds[plain.info.name])
            for i, name in enumerate(columns)
        }
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a fit over split columns: {error}") from error
    facts = {field.name: getattr(plain, field.name) for field in fields(plain)}
    model = WovenModel(plain.model, homes, plain.features)
    return Woven(**{**facts, "model": model}, columns=columns)


def _read_home(folder: Path, kind: Reader) -> Home:
    file = folder / "coder.safetensors"
    features = Features.from_json((folder / "features.json").read_text())
    return kind.home(features, file.read_bytes() if file.is_file() else None)
