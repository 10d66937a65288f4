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

from siloweave.core import views
from siloweave.core.method import QuestionCounts, Setup, Stage, Task
from siloweave.core.party import OwnerData
from siloweave.core.settings import NAMING_DELTA
from siloweave.core.views import View, Views
from siloweave.errors import InputError, SchemaError, WireError
from siloweave.federation.dropouts import MaskPlan
from siloweave.federation.expected import CheckedReply
from siloweave.federation.messages import Public, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Neighbours, marginal_sensitivity, share_sigma
from siloweave.privacy.events import ThresholdGaussian, UnitThresholdGaussian
from siloweave.protocols import secure_sums
from siloweave.protocols.workloads import MarginalSettings, first_encoder, queries_of
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.bins import as_written
from siloweave.tables.cells import missing_labels, numbers_of
from siloweave.tables.codes import Clique, Codes, CountedRows, Encoder
from siloweave.tables.column import Category, Column
from siloweave.tables.counted import counted
from siloweave.tables.database import Database
from siloweave.tables.read import Unread, read
from siloweave.tables.schema import Schema, check_columns
from siloweave.tables.table import Table

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


class Magnitudes(secure_sums.Cohort, frozen=True, tag="schema/magnitudes"):
    """Count how large the numbers in these columns are."""

    columns: tuple[Column, ...]


# Party


def declare(request: Declare, site: Site[OwnerData]) -> Declaration:
    """Send the party's own facts, unless one came from its rows and was not reviewed."""
    unreviewed = [
        column.name for column in site.rows.schema.columns if column.from_data
    ]
    if unreviewed:
        raise SchemaError(
            f"party {site.name!r}: facts about {', '.join(unreviewed)} were taken from data; "
            "review them and delete their from_data (Schema.declared does), or leave them open"
        )
    return Declaration(
        site.mask_key(), Public(site.rows.schema.to_json(), "declared by its owner")
    )


def _values(table: Table, column: Column) -> tuple[list[Category], Ints]:
    """Return the values of a column in order, and how many rows hold each.

    `other` and long texts are left out. Values are read as `other`'s type, which is declared, and
    each cell says by itself whether it is missing: a frame's own type may depend on a row.
    """
    cells = table.select([column.name])
    has_value = ~missing_labels(column, cells)
    filled_cells = cells.take(np.flatnonzero(has_value))
    values, counts = filled_cells.counts(column.name, type(column.other))
    pairs: list[tuple[Category, int]] = []
    for value, count in zip(values, counts, strict=True):
        too_long = isinstance(value, str) and len(value) > _LONGEST
        if value != column.other and not too_long:
            pairs.append((value, count))

    pairs.sort()
    named = [value for value, _ in pairs]
    return named, np.array([count for _, count in pairs], dtype=np.int64)


def _check_asked(columns: Sequence[Column], fact: str, site: Site[OwnerData]) -> None:
    """Raise WireError for a column of which the party's schema does not leave this fact open."""
    schema = site.rows.schema
    facts = open_facts(schema)
    for column in columns:
        is_same = column.name in schema.names and schema[column.name] == column
        if not is_same or fact not in facts.get(column.name, ()):
            raise WireError(
                f"party {site.name!r} was asked to learn {fact} of column {column.name!r}, which "
                "its schema does not leave open. Nothing was released"
            )
    if not columns or len({column.name for column in columns}) < len(columns):
        raise WireError(
            f"party {site.name!r} was asked about no column, or about one twice"
        )


def name(request: Name, site: Site[OwnerData]) -> Named:
    """Name the values, by column, whose noisy count reaches the threshold.

    The noise is discrete Gaussian.
    """
    _check_asked(request.columns, "categories", site)
    event = naming_event(
        secure_sums.neighbours_of(site), request.sigma, request.threshold
    )

    # All columns are read before the first one is paid for.
    values_of = {
        column.name: _values(site.rows.table, column) for column in request.columns
    }

    def draw(column: Column) -> tuple[Category, ...]:
        values, counts = values_of[column.name]
        noisy = mechanisms.add_gaussian(counts, request.sigma, entropy=site.entropy)
        return tuple(
            value
            for value, count in zip(values, noisy, strict=True)
            if count >= request.threshold
        )

    released: list[Released[tuple[Category, ...]]] = []
    for column in request.columns:
        label = f"frequent values of {column.name}"
        released.append(site.release(event, label, partial(draw, column)))
    return Named(tuple(released))


def naming_event(
    neighbours: Neighbours, sigma: float, threshold: int
) -> ThresholdGaussian | UnitThresholdGaussian:
    """Return the event of a list of one column's frequent values.

    **Guarantee**: a unit of k rows may bring k new values, or one value k times; see the events.

    Raises:
        InputError: The threshold is too low.
    """
    unit = marginal_sensitivity(neighbours, norm="l2")
    if neighbours.rows == 1:
        return ThresholdGaussian(sigma, unit, threshold)
    return UnitThresholdGaussian(sigma, unit, threshold, neighbours.rows)


def magnitudes(column: Column) -> Floats:
    """Return the public, positive edges 2^k of bins for numbers, ascending.

    Bin 0 holds |x| < first edge; bin ±i the numbers of that sign with edge[i - 1] <= |x| < edge[i];
    the last ones all that are larger.
    """
    lowest = 0 if column.is_whole else _LOWEST
    return np.ldexp(1.0, np.arange(lowest, _HIGHEST + 1))


def _histogram(table: Table, column: Column) -> Ints:
    """Count the rows in each bin, the most negative bin first; missing values are in none."""
    edges = magnitudes(column)
    numbers, missing = numbers_of(column, table)
    x = np.asarray(numbers, dtype=np.float64)[~missing]
    x = x[~np.isnan(x)]
    place = np.searchsorted(edges, np.abs(x), side="right") * np.sign(x).astype(
        np.int64
    )
    return np.bincount(place + edges.size, minlength=2 * edges.size + 1)


def measure(request: Magnitudes, site: Site[OwnerData]) -> secure_sums.Counts:
    """Send the party's part of the histograms, with its share of the noise."""
    _check_asked(request.columns, "low", site)
    tables = [_histogram(site.rows.table, column) for column in request.columns]
    names = ", ".join(column.name for column in request.columns)
    label = f"how large numbers are: {names}"
    return secure_sums.masked_reply(
        request, site, tables, label, contributes=len(tables)
    )


HANDLERS: Handlers = {
    Declare: declare,
    Name: name,
    Magnitudes: measure,
    **secure_sums.OPENING,
}
"""A party's side of agreeing on a schema; its rows are an `OwnerData`."""


# Coordinator


@dataclass(frozen=True)
class Learning:
    """The most that a row pays for facts that are left open.

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
            raise InputError(
                f"Learning: delta={self.delta} must lie strictly between 0 and 1"
            )

    def threshold(self, sigma: float, columns: int) -> int:
        """Return the least noisy count at which a value is named, for so many columns."""
        delta_each = self.delta / columns
        rows = self.neighbours.rows
        if rows == 1:
            # Section 3, of one row. One more, as discrete noise is at most continuous noise that
            # is moved by 1 (see the event), and the last digits for this quantile.
            return ceil(2 + 1e-6 - sigma * NormalDist().inv_cdf(delta_each))

        # Enough even if each of so many values were held by all of a unit's rows; then lower.
        threshold = ceil(
            rows + 1 + 1e-6 - sigma * NormalDist().inv_cdf(delta_each / rows)
        )
        while threshold > rows + 1:
            if naming_event(self.neighbours, sigma, threshold - 1).delta > delta_each:
                break
            threshold -= 1
        return threshold

    @property
    def unit(self) -> float:
        """The L2 sensitivity of a count table."""
        return marginal_sensitivity(self.neighbours, norm="l2")


def open_facts(schema: Schema) -> dict[str, tuple[str, ...]]:
    """Return which facts a study's schema leaves open, by column.

    Example:
        >>> town = Column("town", "categorical", categories=("?",), other="?")
        >>> open_facts(Schema((town, Column("age", "integer"))))
        {'town': ('categories',), 'age': ('low', 'high')}
    """
    facts: dict[str, tuple[str, ...]] = {}
    for column in schema.columns:
        is_number = column.is_number
        if column.kind == "categorical" and column.categories == (column.other,):
            facts[column.name] = ("categories",)
        elif is_number and column.low is None and column.high is None:
            facts[column.name] = ("low", "high")
    return facts


def check_open(table: Table, schema: Schema) -> None:
    """Raise SchemaError or DataError where an open column is missing or of another type."""
    for name, facts in open_facts(schema).items():
        if facts == ("categories",):
            _values(table, schema[name])
        else:
            _histogram(table, schema[name])


def agree_schema(
    session: Session, schema: Schema, learning: Learning | None = None
) -> Schema:
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

    # Each open column has the same share, whatever is open of it.
    column_rho = learning.rho / len(facts)
    categorical: list[Column] = []
    numeric: list[Column] = []
    for name, open_of_column in facts.items():
        columns = categorical if open_of_column == ("categories",) else numeric
        columns.append(schema[name])
    learned: dict[str, Column] = {}
    if categorical:
        learned |= _categories(session, categorical, learning, column_rho)
    if numeric:
        learned |= _bounds(session, keys, numeric, learning, column_rho)
    return Schema(tuple(learned.get(column.name, column) for column in schema.columns))


def _compare(session: Session, schema: Schema) -> dict[str, bytes]:
    """Check that every party declares the study's schema; return the parties' keys.

    Raises:
        SchemaError: Parties declare other facts; it has all differences, party by party.
    """
    keys: dict[str, bytes] = {}
    problems: list[str] = []
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
    """Learn the categories of columns: all that parties name, and `other`; each costs `rho`."""
    sigma = max(1.0, learning.unit / sqrt(2 * rho))
    threshold = learning.threshold(sigma, len(columns))
    replies = session.ask(Name(tuple(columns), sigma, threshold))
    lists: dict[str, tuple[Released[tuple[Category, ...]], ...]] = {}
    for party, reply in zip(session.roster, replies, strict=True):
        checked = CheckedReply(party)
        lists[party] = checked.items(
            "lists of values", reply.values, count=len(columns)
        )

    learned: dict[str, Column] = {}
    for i, column in enumerate(columns):
        named: set[Category] = set()
        for party, sent in lists.items():
            named |= _named(party, column, sent[i].value)
        assert column.other is not None  # `open_facts` asks for it
        values = (*sorted(named - {column.other}), column.other)
        learned[column.name] = changed(
            column, categories=values, learned=("categories",)
        )
    return learned


def _named(party: str, column: Column, values: Sequence[Category]) -> set[Category]:
    """Check the values that a party named for a column, and return them.

    Raises:
        WireError: It may not name one of them, which is of another type or too long; names it.
    """
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
    """Learn bounds: the edges of the outermost bins that hold more rows than noise explains.

    `rho` is for each column. This is section 5.1.1 of Wilson et al., with a threshold of ours.
    """
    shapes = [(2 * magnitudes(column).size + 1,) for column in columns]
    bins = sum(size for (size,) in shapes)
    missing = MaskPlan.of(keys, learning.tolerated, learning.dropouts).missing
    share = share_sigma(
        rho * len(columns),
        sensitivity=learning.unit * sqrt(len(columns)),
        shares=len(keys),
        tolerated=missing,
        dimension=bins,
    )
    request = Magnitudes(keys, share, missing, tuple(columns))
    tables, parties = secure_sums.noisy_sums(session, request, shapes)

    # The tail bound of normal noise: all empty bins stay below this but in one run of a thousand.
    least = share * sqrt(len(parties)) * sqrt(2 * log(bins / _FALSE))
    learned: dict[str, Column] = {}
    for column, table in zip(columns, tables, strict=True):
        (filled,) = np.nonzero(table > least)
        if not filled.size:
            raise SchemaError(
                f"column {column.name!r}: no size of number is held by more than {least:.0f} rows, "
                "the noise at this budget; declare its bounds, or spend more on learning them"
            )
        zero = magnitudes(column).size  # the bin that holds 0
        first = int(filled[0]) - zero
        last = int(filled[-1]) - zero
        low = -_edge(column, -first)
        high = _edge(column, last)
        learned[column.name] = changed(
            column, low=low, high=high, learned=("low", "high")
        )
    return learned


def _edge(column: Column, place: int) -> int | float:
    """Return the largest number in a signed bin: the outer edge, or the inner one if negative."""
    if place == 0:
        return 0
    edges = magnitudes(column)
    if place > 0:
        edge = float(edges[min(place, edges.size - 1)])
        return edge if column.is_continuous else int(edge) - 1
    edge = float(-edges[-place - 1])
    return edge if column.is_continuous else max(int(edge), 1 - 2**_HIGHEST)


def clipped(table: Table, schema: Schema) -> Table:
    """Move numbers of rows inside bounds that were learned; declared bounds are left alone.

    Example:
        >>> age = Column("age", "integer", low=0, high=63, learned=("low", "high"))
        >>> table = Table.from_columns({"age": (np.array([40, 99]), None)})
        >>> clipped(table, Schema((age,))).values("age").tolist()
        [40, 63]
    """
    learned = [
        column for column in schema.columns if {"low", "high"} <= set(column.learned)
    ]
    if not learned:
        return table
    columns: dict[str, Any] = {name: table.with_gaps(name) for name in table.names}
    for column in learned:
        numbers, missing = numbers_of(column, table)
        inside: Any = np.clip(numbers, column.low, column.high)
        columns[column.name] = (as_written(column, inside, table), missing)
    return Table.from_columns(columns, like=table)


def coded_part(
    part: Table | Unread, encoder: Encoder, planned: Sequence[Clique] = ()
) -> CountedRows:
    """Encode a party's rows: of a table, a Parquet file, or a database, which counts them.

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
        return Codes.concat([coded_part(batch, encoder) for batch in part.batches()])  # type: ignore[misc]
    except SchemaError:  # with the number of rows in all batches
        for name in encoder.domain.names:
            coded_part(read(part.select([name])), encoder.select([name]))
        raise


# Open facts, before a method of marginals


def _least(schema: Schema) -> Schema:
    """Return the smallest schema that may be learned: bounds 0 and 1, no category but `other`."""
    unbounded = {name for name, facts in open_facts(schema).items() if "low" in facts}
    columns: list[Column] = []
    for column in schema.columns:
        if column.name in unbounded:
            column = changed(column, low=0, high=1)
        columns.append(column)
    return Schema(tuple(columns))


def _plan(setup: Setup) -> Setup | None:
    """Return the setup of a study with open facts; refuse bad settings before anything is paid."""
    if not setup.learn or not open_facts(setup.schema):
        return None
    synth = setup.settings_as(MarginalSettings)
    queries_of(synth, first_encoder(_least(setup.schema), synth))
    return replace(setup, encoder=None, stage="schema")


def _prepare(table: Any, setup: Setup, party: str) -> OwnerData:
    """Check that rows fit what is declared; return them, or the open columns of a database."""
    schema = setup.schema
    facts = open_facts(schema)
    check_columns(schema, table)
    modelled = [column.name for column in schema.columns if column.modelled]
    declared = [column for column in modelled if column not in facts]
    if declared:
        coded_part(table.select(declared), Encoder(schema.select(declared)))
    if not isinstance(table, Table):
        table = read(table.select(list(facts)))
    check_open(table, schema)
    return OwnerData(table, schema)


def _learn(session: Session, task: Task) -> Schema:
    """Learn what the schema leaves open, with all that this stage may spend."""
    setup = task.setup
    learning = Learning(
        task.rho,
        NAMING_DELTA * setup.budget.delta,
        session.tolerated,
        setup.budget.neighbours,
        session.dropouts,
    )
    return agree_schema(session, setup.schema, learning)


def _question_counts(setup: Setup) -> QuestionCounts:
    """Count how often a party is asked each question."""
    facts = open_facts(setup.schema).values()
    has_categories = ("categories",) in facts
    has_bounds = any(column_facts != ("categories",) for column_facts in facts)
    questions: QuestionCounts = {
        Declare: 1,
        Name: int(has_categories),
        Magnitudes: int(has_bounds),
    }
    return secure_sums.with_openings(questions, setup)


def _views(lines: Views, setup: Setup) -> Views:
    """Add what is seen of a study whose categories are open, to the lines of who sees what.

    Bounds are learned from the same sums as all else; categories are named besides.
    """
    if ("categories",) not in open_facts(setup.schema).values():
        return lines
    observer = "readers"
    if views.OWN_ROWS in lines:
        observer = views.COORDINATOR
    named = View(
        observer,
        "categories that many rows of a party have",
        views.NOISE,
        ("Named.values",),
    )
    return (*lines, named)


def _accepts(setup: Setup, sent_setup: Setup) -> Setup:
    """Take over the facts that the coordinator learned into a party's own setup.

    Raises:
        WireError: The coordinator's setup has other facts where they are declared.
    """
    schema = setup.schema
    sent = sent_setup.schema
    facts = open_facts(schema)

    # With its open facts as they were, each column that was sent must be the party's own.
    reopened: list[Column] = []
    sent_columns = sent.columns if sent.names == schema.names else ()
    for column in sent_columns:
        declared = schema[column.name]
        column_facts = facts.get(column.name, ())
        if column_facts and column.learned == column_facts:
            # Marked as learned: else rows beyond bounds are refused, not clipped.
            before = {
                fact: getattr(declared, fact) for fact in (*column_facts, "learned")
            }
            column = changed(column, **before)
        reopened.append(column)
    if tuple(reopened) != schema.columns:
        pairs = zip(schema.columns, reopened, strict=False)
        odd = [declared.name for declared, column in pairs if declared != column]
        raise WireError(
            f"the coordinator sent other facts about {', '.join(odd) or 'other columns'} than were "
            "left open and learned: the study's schema declares them, or they are not marked as "
            "learned. The party goes by its own schema; start this party and the coordinator "
            "again with one study"
        )
    return replace(setup, schema=sent)


LEARNING = Stage(
    name="schema",
    phase="learning the schema",
    plan=_plan,
    share=lambda setup: setup.learn,
    prepare=_prepare,
    handlers=lambda synth: HANDLERS,
    coordinate=_learn,
    questions=_question_counts,
    refine=lambda setup, schema: replace(setup, schema=schema, encoder=None),
    accepts=_accepts,
    views=_views,
)
"""Facts that a schema leaves open are learned, with a share of the budget and a tenth of delta."""
