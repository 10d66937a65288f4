"""What is learned, and paid for, before a run itself: open facts of its schema, and its bins.

Both are runs of their own at the same parties, so that a ledger names what each of them cost. They
are those of Wilson et al. 2020 and Desfontaines et al. 2022 (agree_schema.py), and of Hay et al.
2010 (look.py).

**Guarantee**: none of its own; agree_schema.py and look.py state theirs. A run's budget is shared
out here: a share `Job.learn` to the schema, a share `Job.look` of the rest to the look.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from siloweave.algorithms.agree_schema import PARTY as AGREEING
from siloweave.algorithms.agree_schema import (
    Learning,
    OpenData,
    agree_schema,
    check_open,
    clipped,
    open_facts,
)
from siloweave.algorithms.look import PARTY as LOOKING
from siloweave.algorithms.look import Part, look_event, look_for_cuts
from siloweave.algorithms.outcome import Cost
from siloweave.algorithms.running import Job, Recipe, coded_rows, opened, required_rows
from siloweave.algorithms.visibility import COORDINATOR, NOISE, OWN_ROWS, View, Views
from siloweave.errors import SchemaError, naming_party
from siloweave.federation.session import Session
from siloweave.privacy.budget import marginal_sensitivity
from siloweave.tables.bins import BINNED
from siloweave.tables.codes import Clique, Encoder
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Schema, check_columns

__all__ = ["columns_to_cut", "cut_bins", "learn_schema", "least", "seen_too"]

_FINE = 4096  # bins of a column that a look counts


def learn_schema(
    data: Mapping[str, Any], schema: Schema, job: Job, recipe: Recipe
) -> tuple[Schema, dict[str, Table], Cost]:
    """Learn what the schema leaves open, before the run itself.

    Args:
        data: One table per party, by name.
        schema: The study's facts.
        job: The run; a share `job.learn` of its zCDP and a tenth of its delta go here.
        recipe: How a party's side is made in another process.

    Returns:
        The schema that all agreed on, the tables with numbers moved inside learned bounds, and
        what it cost.

    Raises:
        SchemaError: Too few rows hold a number.
        DataError, SchemaError: A party's rows do not fit what is declared; the message names the
            party. Nothing was released.
    """
    start = time.perf_counter()
    tables, facts = _tables(data, job), open_facts(schema)
    declared = [one.name for one in schema.columns if one.name not in facts and one.kind != "id"]
    for name, table in tables.items():
        with naming_party(name):
            check_columns(schema, table)
            check_open(table, schema)
            if declared:
                Encoder(schema.select(declared)).encode(table.select(declared))
    unit = marginal_sensitivity(job.budget.relation, norm="l2")
    learning = Learning(job.learn * job.rho, 0.1 * job.budget.delta, job.tolerated, unit)
    held = {name: OpenData(table, schema) for name, table in tables.items()}
    with opened(held, AGREEING, job, job.runs[0], recipe, tables) as (parties, _):
        agreed = agree_schema(parties, schema, learning)
    inside = {name: clipped(table, agreed) for name, table in tables.items()}
    return agreed, inside, _cost(parties, "learning the schema", start)


def least(schema: Schema) -> Schema:
    """The smallest schema that may be learned: bounds of 0 and 1, and no category but `other`."""
    facts = open_facts(schema)
    return Schema(
        tuple(
            msgspec.structs.replace(c, low=0, high=1) if facts.get(c.name) == ("low", "high") else c
            for c in schema.columns
        )
    )


def seen_too(views: Views, schema: Schema) -> Views:
    """Who sees what, where open facts of a schema are learned before the run itself."""
    if ("categories",) not in open_facts(schema).values():
        return views  # bounds are learned from the same sums as all else
    who = COORDINATOR if OWN_ROWS in views else "readers"
    named = View(who, "categories that many rows of a party have", NOISE, ("Named.values",))
    return (*views, named)


def columns_to_cut(encoder: Encoder, queries: Sequence[Clique]) -> Encoder | None:
    """Return the fine bins of columns that have more values than bins; None if there are none.

    A column that no query names is left as it is, and so is one whose bounds are too near for so
    many bins, or whose values are too large for float64 to tell such bins apart.

    Args:
        encoder: Of equally wide bins.
        queries: What shall be right.
    """
    named, wide = {name for query in queries for name in query}, []
    for column in encoder.schema.columns:
        if column.name not in named or column.kind not in BINNED:
            continue
        with suppress(SchemaError):
            fine = Encoder(Schema((column,)), _FINE)
            edges = fine.edges(column.name)
            told = (np.diff(edges.astype(np.float64)) > 0).all()
            if told and len(edges) > len(encoder.edges(column.name)) > encoder.bins:
                wide.append(column)
    return Encoder(Schema(tuple(wide)), _FINE) if wide else None


def cut_bins(
    data: Mapping[str, Any], encoder: Encoder, fine: Encoder, job: Job, recipe: Recipe
) -> tuple[Encoder, Cost]:
    """Cut columns of numbers by a look at them, before the run itself.

    Args:
        data: One table per party, by name.
        encoder: Of equally wide bins.
        fine: From `columns_to_cut`.
        job: The run; a share `job.look` of its zCDP goes here.
        recipe: How a party's side is made in another process.

    Returns:
        The encoder of the run, and what it cost.

    Raises:
        DataError, SchemaError: A party's rows do not fit the schema; the message names the party.
            Nothing was released.
    """
    start = time.perf_counter()
    held = {}
    for name, table in _tables(data, job).items():
        coded_rows(name, table, encoder)
        own = table.select([n for n in fine.schema.names if n in table.names])
        held[name] = Part(own, fine, coded_rows(name, own, fine))
    rho = job.rho * (1 - job.learn) * job.look
    tables = {name: part.table for name, part in held.items()}
    with opened(held, LOOKING, job, job.runs[1], recipe, tables) as (parties, _):
        event = look_event(fine, job.budget.relation, rho, len(held), job.tolerated)
        cuts = look_for_cuts(parties, fine, encoder.bins, event, job.seed)
    return replace(encoder, cuts=cuts), _cost(parties, "looking at columns", start)


def _cost(parties: Session, phase: str, start: float) -> Cost:
    return Cost(parties.traffic, parties.rounds, {phase: time.perf_counter() - start})


def _tables(data: Mapping[str, Any], job: Job) -> dict[str, Table]:
    """Every party's rows; without a guarantee, raises RosterError for a party that has none."""
    tables = {name: read(part) for name, part in data.items()}
    if not job.limited:
        for name, table in tables.items():
            required_rows(name, table.num_rows)
    return tables
