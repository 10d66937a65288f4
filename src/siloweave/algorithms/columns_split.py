"""Starting a run over parties that hold different columns of the same people.

The setting is that of vertical federated synthesis (Shankar et al. 2024, "SiloFuse"; Jiang et al.
2023, "Distributed synthetic data with VertiGAN"): rows are aligned before, and row i is the same
person at every party. A method brings its messages, a party's handlers, the coordinator's loop,
and how a party makes its columns out of what the coordinator draws (`Home`).

**Guarantee**: none of its own; a method's file states its own, and every party's ledger holds what
it released. One person's row lies at all parties, so what they release about it adds up: the
epsilon of a fit is that of all ledgers together.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar

import numpy as np

from siloweave.algorithms.generated import Model
from siloweave.algorithms.one_owner import OneOwner
from siloweave.algorithms.outcome import Cost
from siloweave.algorithms.running import (
    Job,
    PartySide,
    Progress,
    Recall,
    Recipe,
    named_parties,
    opened,
    plain,
    required_rows,
    silent,
)
from siloweave.algorithms.visibility import READERS, View
from siloweave.algorithms.woven import Home, Woven, WovenModel, joined_features
from siloweave.errors import BudgetError, RosterError, SchemaError, WireError, naming_party
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.budget import UNBOUNDED, Budget, Relation
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.ids import id_texts
from siloweave.tables.one_way import OneWay
from siloweave.tables.read import Table, beside, digest_of, read
from siloweave.tables.schema import Schema, outline

__all__ = [
    "ColumnsPart",
    "ColumnsSplit",
    "ColumnsTask",
    "keep_home",
    "kept_features",
    "owners_of",
    "parts_of",
]

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
