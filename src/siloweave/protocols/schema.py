"""Agreeing on one schema: declared facts are compared, facts left open are learned and paid for.

Categories: Korolova, Kenthapadi, Mishra & Ntoulas 2009, "Releasing search queries and clicks
privately" (a value is named if its noisy count passes a threshold), with the Gaussian noise of
Desfontaines, Voss, Gipson & Mandayam 2022, "Differentially private partition selection", section 3.
Bounds: Wilson, Zhang, Lam, Desfontaines, Simmons-Marengo & Gipson 2020, "Differentially private
SQL with bounded user contribution", section 5.1.1 (ApproxBounds).

The study's schema leaves open the categories of a categorical column whose only category is its
`other`, and the bounds of an integer or continuous column that has neither.

**Guarantee** (dp): rows, add/remove or replace-one as each party's budget says, towards the
coordinator, the other parties and everyone who sees the schema. A row holds one value of a column.
Each party names the values of its own rows whose noisy count reaches a threshold: its ledger pays
zCDP for the noise, and the probability with which a single unit's value is named comes out of its
delta (of a person with k rows: up to k values, or one value k times). Bounds come from a masked,
noisy histogram of magnitudes over public bins, whose edges are powers of two; a row is in one bin
of every open column. Parties may pool what they know up to `tolerated` of them. Assumed public: the
roster, the declared facts (a cell that does not fit them is moved), which facts are open.
Departures: the histogram's threshold is post-processing, chosen so that an empty bin passes in one
of a thousand runs at most; values that reach the threshold at no single party become `other`,
though all parties together may hold enough of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from msgspec.structs import replace as changed

from siloweave.core.method import (
    COORDINATOR,
    NOISE,
    OWN_ROWS,
    Asked,
    Place,
    Setup,
    Stage,
    Task,
    View,
    Views,
)
from siloweave.core.party import OwnerData
from siloweave.core.settings import NAMING_DELTA
from siloweave.errors import InputError, SchemaError, WireError
from siloweave.federation.dropouts import MaskPlan
from siloweave.federation.expected import CheckedReply
from siloweave.federation.messages import Public, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Neighbours, marginal_sensitivity, share_sigma
from siloweave.privacy.events import ThresholdGaussian, UnitThresholdGaussian
from siloweave.protocols.secure_sums import (
    OPENING,
    Cohort,
    Counts,
    masked_reply,
    neighbours_of,
    noisy_sums,
    with_openings,
)
from siloweave.protocols.workload import first_encoder, queries_of
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.bins import as_written
from siloweave.tables.cells import numbers_of
from siloweave.tables.codes import Clique, Codes, CountedRows, Encoder
from siloweave.tables.counted import counted
from siloweave.tables.database import Database
from siloweave.tables.read import Table, Unread, read
from siloweave.tables.schema import Category, Column, Schema, check_columns

_LONGEST = 256  # characters of a value that may be named
_LOWEST = -64  # continuous: below 2^-64 in size counts as 0
_HIGHEST = 62  # 2^62 and above falls into the last bin
_FALSE = 1e-3  # probability with which any empty bin passes for one that holds rows


# Messages


class Declaration(Reply, frozen=True):
    """A party's key for masks and its declared schema as JSON."""

    key: Public[bytes]
    schema: Public[str]


class Declare(Request[Declaration], frozen=True, tag="schema/declare"):
    """Send your key for masks, and your schema."""


class Named(Reply, frozen=True):
    """Per column, the values that enough of a party's rows hold; sorted."""

    values: tuple[Released[tuple[Category, ...]], ...]


class Name(Request[Named], frozen=True, tag="schema/name"):
    """Name the values of these columns whose noisy count reaches the threshold."""

    columns: tuple[Column, ...]
    sigma: float
    threshold: int


class Magnitudes(Cohort, frozen=True, tag="schema/magnitudes"):
    """Count how large the numbers in these columns are."""

    columns: tuple[Column, ...]


# Party


def declare(request: Declare, site: Site[OwnerData]) -> Declaration:
    """The party's own facts; one that came from its rows and was not reviewed stays here."""
    unreviewed = [c.name for c in site.rows.schema.columns if c.from_data]
    if unreviewed:
        raise SchemaError(
            f"party {site.name!r}: facts about {', '.join(unreviewed)} were taken from data; "
            "review them and delete their from_data (Schema.declared does), or leave them open"
        )
    return Declaration(site.mask_key(), Public(site.rows.schema.to_json(), "declared by its owner"))


def _values(table: Table, column: Column) -> tuple[list[Category], Ints]:
    """Values of a column in order, without `other` and long texts, and how many rows hold each.

    They are read as `other`'s type, which is declared: a frame's own type may depend on a row.
    """
    table = table.blanked(column.name, column.missing_values)
    found, counts = table.counts(column.name, type(column.other))
    pairs = sorted(
        (v, n)
        for v, n in zip(found, counts, strict=True)
        if v != column.other and not (isinstance(v, str) and len(v) > _LONGEST)
    )
    return [v for v, _ in pairs], np.array([n for _, n in pairs], dtype=np.int64)


def _check_asked(columns: Sequence[Column], fact: str, site: Site[OwnerData]) -> None:
    """Raise WireError about columns for which the party did not leave this fact open."""
    mine = site.rows.schema
    for column in columns:
        known = column.name in mine.names and mine[column.name] == column
        if not known or fact not in open_facts(mine).get(column.name, ()):
            raise WireError(
                f"party {site.name!r} was asked to learn {fact} of column {column.name!r}, which "
                "its schema does not leave open. Nothing was released"
            )
    if not columns or len({column.name for column in columns}) < len(columns):
        raise WireError(f"party {site.name!r} was asked about no column, or about one twice")


def name(request: Name, site: Site[OwnerData]) -> Named:
    """Values whose count plus discrete Gaussian noise reaches the threshold, column by column."""
    _check_asked(request.columns, "categories", site)
    event = naming_event(neighbours_of(site), request.sigma, request.threshold)
    found = {c.name: _values(site.rows.table, c) for c in request.columns}

    def draw(column: Column) -> tuple[Category, ...]:
        values, counts = found[column.name]
        noisy = mechanisms.add_gaussian(counts, request.sigma, entropy=site.entropy)
        return tuple(v for v, y in zip(values, noisy, strict=True) if y >= request.threshold)

    released = (
        site.release(event, f"frequent values of {c.name}", partial(draw, c))
        for c in request.columns
    )
    return Named(tuple(released))


def naming_event(
    neighbours: Neighbours, sigma: float, threshold: int
) -> ThresholdGaussian | UnitThresholdGaussian:
    """What a list of one column's frequent values costs; InputError for too low a threshold.

    **Guarantee**: a unit of k rows may bring k new values, or one value k times; see the events.
    """
    unit = marginal_sensitivity(neighbours, norm="l2")
    if neighbours.rows == 1:
        return ThresholdGaussian(sigma, unit, threshold)
    return UnitThresholdGaussian(sigma, unit, threshold, neighbours.rows)


def magnitudes(column: Column) -> Floats:
    """Positive public bin edges 2^k, ascending.

    Bin 0 holds |x| < first edge; bin ±i the numbers of that sign with edge[i - 1] <= |x| < edge[i];
    the last ones all that are larger.
    """
    lowest = 0 if column.kind == "integer" else _LOWEST
    return np.ldexp(1.0, np.arange(lowest, _HIGHEST + 1))


def _histogram(table: Table, column: Column) -> Ints:
    """Rows per bin, the most negative first; missing ones are in none."""
    edges = magnitudes(column)
    numbers, missing = numbers_of(column, table)
    x = np.asarray(numbers, dtype=np.float64)[~missing]
    x = x[~np.isnan(x)]
    place = np.searchsorted(edges, np.abs(x), side="right") * np.sign(x).astype(np.int64)
    return np.bincount(place + edges.size, minlength=2 * edges.size + 1)


def measure(request: Magnitudes, site: Site[OwnerData]) -> Counts:
    """The party's part of the histograms, with its share of the noise."""
    _check_asked(request.columns, "low", site)
    tables = [_histogram(site.rows.table, c) for c in request.columns]
    what = "how large numbers are: " + ", ".join(c.name for c in request.columns)
    return masked_reply(request, site, tables, what, contributes=len(tables))


HANDLERS: Handlers = {Declare: declare, Name: name, Magnitudes: measure, **OPENING}
"""A party's side of agreeing on a schema; its rows are an `OwnerData`."""


# Coordinator


@dataclass(frozen=True)
class Learning:
    """What a row pays at most for facts that are left open.

    Attributes:
        rho: zCDP, shared evenly by the open columns.
        delta: Probability with which some value of a single unit is named, shared evenly by the
            columns with open categories; it comes out of the party's delta.
        tolerated: Parties that may pool what they know with the coordinator.
        neighbours: Those of the budget: the relation, and a unit's rows.
        dropouts: Parties of a sum that may vanish.
    """

    rho: float
    delta: float
    tolerated: int = 1
    neighbours: Neighbours = field(default_factory=Neighbours)
    dropouts: int = 0

    def __post_init__(self) -> None:
        if not self.rho > 0:
            raise InputError(f"Learning: rho={self.rho} must be greater than 0")
        if not 0 < self.delta < 1:
            raise InputError(f"Learning: delta={self.delta} must lie strictly between 0 and 1")

    def threshold(self, sigma: float, columns: int) -> int:
        """Least noisy count at which a value is named, for this many columns."""
        each, rows = self.delta / columns, self.neighbours.rows
        if rows == 1:
            return ceil(2 + 1e-6 - sigma * NormalDist().inv_cdf(each))
        # Enough even if each of so many values were held by all of a unit's rows; then lower.
        enough = ceil(rows + 1 + 1e-6 - sigma * NormalDist().inv_cdf(each / rows))
        while enough > rows + 1:
            if naming_event(self.neighbours, sigma, enough - 1).delta > each:
                break
            enough -= 1
        return enough

    @property
    def unit(self) -> float:
        """L2 sensitivity of a count table."""
        return marginal_sensitivity(self.neighbours, norm="l2")


def open_facts(schema: Schema) -> dict[str, tuple[str, ...]]:
    """Which facts a study's schema leaves open, by column.

    Example:
        >>> town = Column("town", "categorical", categories=("?",), other="?")
        >>> open_facts(Schema((town, Column("age", "integer"))))
        {'town': ('categories',), 'age': ('low', 'high')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for c in schema.columns:
        if c.kind == "categorical" and c.categories == (c.other,):
            found[c.name] = ("categories",)
        elif c.kind in ("integer", "continuous") and c.low is None and c.high is None:
            found[c.name] = ("low", "high")
    return found


def check_open(table: Table, schema: Schema) -> None:
    """Raise SchemaError or DataError where an open column is missing or of another type."""
    for name, facts in open_facts(schema).items():
        if facts == ("categories",):
            _values(table, schema[name])
        else:
            _histogram(table, schema[name])


def agree_schema(session: Session, schema: Schema, learning: Learning | None = None) -> Schema:
    """Agree on one schema with parties whose rows are `OwnerData`.

    Args:
        session: With the parties.
        schema: The study's facts; see `open_facts` for those that it leaves open.
        learning: What open facts may cost; every party's ledger is the limit.

    Returns:
        The schema, with ``learned`` naming the facts that were paid for; all others are declared.

    Raises:
        SchemaError: A party declares something else, nothing may be spent on open facts, or too
            few rows hold a number in a column.
    """
    keys = _compare(session, schema)
    facts = open_facts(schema)
    if facts and learning is None:
        raise SchemaError(
            f"the schema leaves facts open: {', '.join(facts)}; declare them, or give "
            "Learning(rho, delta) to learn them privately"
        )
    if not facts or learning is None:
        return schema
    share = learning.rho / len(facts)
    wide = [schema[a] for a, f in facts.items() if f == ("categories",)]
    numeric = [schema[a] for a, f in facts.items() if f != ("categories",)]
    known: dict[str, Column] = {}
    if wide:
        known |= _categories(session, wide, learning, share)
    if numeric:
        known |= _bounds(session, keys, numeric, learning, share)
    return Schema(tuple(known.get(c.name, c) for c in schema.columns))


def _compare(session: Session, schema: Schema) -> dict[str, bytes]:
    """Every party's key; raises SchemaError with all differences, party by party."""
    keys, problems = {}, []
    for party, reply in zip(session.roster, session.ask(Declare()), strict=True):
        checked = CheckedReply(party)
        keys[party] = checked.mask_key("key", reply.key.value)
        theirs = checked.json("schema", reply.schema.value, Schema.from_json)
        problems += [f"party {party!r}, {line}" for line in schema.differences(theirs)]
    if problems:
        raise SchemaError(
            "parties declare other facts than the study (the study is the first, the party the "
            f"second): {'; '.join(problems)}. Give all parties one schema"
        )
    return keys


def _categories(
    session: Session, columns: Sequence[Column], learning: Learning, rho: float
) -> dict[str, Column]:
    """The union of what the parties named, and `other`; `rho` for each column."""
    sigma = max(1.0, learning.unit / sqrt(2 * rho))
    threshold = learning.threshold(sigma, len(columns))
    replies = session.ask(Name(tuple(columns), sigma, threshold))
    lists = {
        party: CheckedReply(party).items("lists of values", reply.values, count=len(columns))
        for party, reply in zip(session.roster, replies, strict=True)
    }
    known = {}
    for i, column in enumerate(columns):
        named = {v for p, sent in lists.items() for v in _named(p, column, sent[i].value)}
        assert column.other is not None  # `open_facts` asks for it
        values = (*sorted(named - {column.other}), column.other)
        known[column.name] = changed(column, categories=values, learned=("categories",))
    return known


def _named(party: str, column: Column, values: Sequence[Category]) -> set[Category]:
    """Values that a party may name; raises WireError, naming it, if it may not."""
    wanted = type(column.other).__name__
    for value in values:
        if type(value) is not type(column.other) or len(str(value)) > _LONGEST:
            raise CheckedReply(party).wrong(
                f"a value of column {column.name!r}, {str(value)[:_LONGEST]!r}",
                f"of type {wanted} and at most {_LONGEST} characters",
            )
    return set(values)


def _bounds(
    session: Session,
    keys: dict[str, bytes],
    columns: Sequence[Column],
    learning: Learning,
    rho: float,
) -> dict[str, Column]:
    """Edges of the outermost bins that hold rows beyond what noise explains; `rho` for each."""
    shapes = [(2 * magnitudes(c).size + 1,) for c in columns]
    bins = sum(size for (size,) in shapes)
    missing = MaskPlan.of(keys, learning.tolerated, learning.dropouts).missing
    share = share_sigma(
        rho * len(columns),
        sensitivity=learning.unit * sqrt(len(columns)),
        shares=len(keys),
        tolerated=missing,
        dimension=bins,
    )
    asked = Magnitudes(keys, share, missing, tuple(columns))
    tables, parties = noisy_sums(session, asked, shapes)
    least = share * sqrt(len(parties)) * sqrt(2 * log(bins / _FALSE))
    known = {}
    for column, table in zip(columns, tables, strict=True):
        (there,) = np.nonzero(table > least)
        if not there.size:
            raise SchemaError(
                f"column {column.name!r}: no size of number is held by more than {least:.0f} rows, "
                "the noise at this budget; declare its bounds, or spend more on learning them"
            )
        first, last = (int(i) - magnitudes(column).size for i in there[[0, -1]])
        low, high = -_edge(column, -first), _edge(column, last)
        known[column.name] = changed(column, low=low, high=high, learned=("low", "high"))
    return known


def _edge(column: Column, place: int) -> int | float:
    """Largest number of a signed bin: its outer edge, or its inner one when it is negative."""
    edges = magnitudes(column)
    if place == 0:
        return 0
    edge = float(-edges[-place - 1] if place < 0 else edges[min(place, edges.size - 1)])
    if column.kind == "continuous":
        return edge
    return int(edge) - 1 if place > 0 else max(int(edge), 1 - 2**_HIGHEST)


def clipped(table: Table, schema: Schema) -> Table:
    """Rows with numbers moved inside bounds that were learned; declared bounds change nothing.

    Example:
        >>> age = Column("age", "integer", low=0, high=63, learned=("low", "high"))
        >>> table = Table.from_columns({"age": (np.array([40, 99]), None)})
        >>> clipped(table, Schema((age,))).values("age").tolist()
        [40, 63]
    """
    learned = [c for c in schema.columns if {"low", "high"} <= set(c.learned)]
    if not learned:
        return table
    columns = {a: (table.values(a), table.missing(a)) for a in table.names}
    for c in learned:
        numbers, missing = numbers_of(c, table)
        kept: Any = np.clip(numbers, c.low, c.high)
        columns[c.name] = as_written(c, kept, table), missing
    return Table.from_columns(columns, like=table)


def coded_part(
    part: Table | Unread, encoder: Encoder, planned: Sequence[Clique] = ()
) -> CountedRows:
    """Rows as codes: those of a table or a Parquet file, or of a database, which counts them.

    Args:
        part: The rows.
        encoder: How they are coded; numbers beyond bounds that were learned are moved inside.
        planned: Cliques that will be asked for.

    Raises:
        SchemaError, DataError: As of `Encoder.encode`.
    """
    if isinstance(part, Table):
        return encoder.encode(part)
    if isinstance(part, Database):
        return counted(part, encoder, planned)
    try:
        return Codes.concat([coded_part(one, encoder) for one in part.batches()])  # type: ignore[misc]
    except SchemaError:  # with the number of rows in all batches
        for name in encoder.domain.names:
            coded_part(read(part.select([name])), encoder.select([name]))
        raise


# Open facts, before a method of marginals


def _least(schema: Schema) -> Schema:
    """The smallest schema that may be learned: bounds of 0 and 1, and no category but `other`."""
    unbounded = {name for name, facts in open_facts(schema).items() if "low" in facts}
    columns = (changed(c, low=0, high=1) if c.name in unbounded else c for c in schema.columns)
    return Schema(tuple(columns))


def _plan(setup: Setup, learn: float) -> Setup | None:
    """The study's schema where facts are open; refuses before anything is paid for."""
    if not learn or not open_facts(setup.schema):
        return None
    synth: Any = setup.synth
    queries_of(synth, first_encoder(_least(setup.schema), synth))
    return replace(setup, encoder=None, stage="schema")


def _prepare(table: Any, setup: Setup, place: Place) -> OwnerData:
    """Rows that fit what is declared; of a table that is counted where it is, the open columns."""
    schema, facts = setup.schema, open_facts(setup.schema)
    check_columns(schema, table)
    declared = [one.name for one in schema.columns if one.name not in facts and one.modelled]
    if declared:
        coded_part(table.select(declared), Encoder(schema.select(declared)))
    if not isinstance(table, Table):
        table = read(table.select(list(facts)))
    check_open(table, schema)
    return OwnerData(table, schema)


def _learn(session: Session, task: Task) -> Schema:
    setup = task.setup
    delta, near = NAMING_DELTA * setup.budget.delta, setup.budget.neighbours
    learning = Learning(task.rho, delta, session.tolerated, near, session.dropouts)
    return agree_schema(session, setup.schema, learning)


def _asked(setup: Setup) -> Asked:
    facts = open_facts(setup.schema).values()
    named, bounds = ("categories",) in facts, any(one != ("categories",) for one in facts)
    asked: Asked = {Declare: 1, Name: int(named), Magnitudes: int(bounds)}
    return with_openings(asked, setup.synth, len(setup.roster))


def _views(views: Views, setup: Setup) -> Views:
    """Bounds are learned from the same sums as all else; categories are named besides."""
    if ("categories",) not in open_facts(setup.schema).values():
        return views
    who = COORDINATOR if OWN_ROWS in views else "readers"
    named = View(who, "categories that many rows of a party have", NOISE, ("Named.values",))
    return (*views, named)


def _accepts(setup: Setup, found: Setup) -> Setup:
    """A setup with what was learned; WireError where that is declared."""
    mine, theirs = setup.schema, found.schema
    still_open = open_facts(mine)
    kept = []
    for column in theirs.columns if theirs.names == mine.names else ():
        own, facts = mine[column.name], still_open.get(column.name, ())
        if facts and column.learned == facts:  # else rows beyond bounds are refused, not clipped
            column = changed(column, **{f: getattr(own, f) for f in (*facts, "learned")})
        kept.append(column)
    if tuple(kept) != mine.columns:
        odd = [a.name for a, b in zip(mine.columns, kept, strict=False) if a != b]
        raise WireError(
            f"the coordinator sent other facts about {', '.join(odd) or 'other columns'} than were "
            "left open and learned: the study's schema declares them, or they are not marked as "
            "learned. The party goes by its own schema; start both ends again with one study"
        )
    return replace(setup, schema=theirs)


LEARNING = Stage(
    name="schema",
    phase="learning the schema",
    plan=_plan,
    share=lambda synth, learn: learn,
    prepare=_prepare,
    handlers=lambda synth: HANDLERS,
    coordinate=_learn,
    asked=_asked,
    refine=lambda setup, schema: replace(setup, schema=schema, encoder=None),
    accepts=_accepts,
    views=_views,
)
"""Facts that a schema leaves open are learned, with a share of the budget and a tenth of delta."""
