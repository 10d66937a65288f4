"""A method is a record: what it is and promises, who sees what, and both sides of its protocol.

Who sees what is stated for the observers of Bonawitz et al. 2017, "Practical secure aggregation for
privacy-preserving machine learning"; `views.py` has the lines.

**Guarantee**: none of its own. A record without a guarantee or without visibility is refused when
it is made, so no report guesses; a test compares the declared lines with the messages that cross.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from math import ceil, inf, isfinite
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from siloweave.core.conditional import Generator, Model
from siloweave.core.settings import NAMING_DELTA, Job, built, plain
from siloweave.core.views import Views
from siloweave.errors import BudgetError, InputError, number, whole
from siloweave.federation.messages import Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers
from siloweave.privacy.budget import UNBOUNDED, Budget, rho_for
from siloweave.privacy.mechanisms import Entropy, OSEntropy
from siloweave.progress import Progress, silent
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.display import listed
from siloweave.tables.modelled import Modelled
from siloweave.tables.read import Unread
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

GUARANTEES = ("dp", "partial", "refuted", "none")
"""What a method may state."""
GUARANTEED = ("dp", "partial")
"""Guarantees under which no row may decide the type of a column."""
REPLIES = "replies"
"""What a run's folder stores: replies as the coordinator received them. Those of thousands of
rounds would fill a disk."""
COORDINATOR_TRAINING = "coordinator's training"
"""What a run's folder stores: how far the coordinator's training is."""
PARTY_TRAINING = "party's training"
"""What a party's folder stores: how far its own training is."""
OR_PERSONS = ", or every person where the unit is one,"
"""Part of a statement; the report of a run whose unit is a row leaves it out."""

_Settings = TypeVar("_Settings")


class Info(msgspec.Struct, frozen=True):
    """The facts about a method at some settings: for `siloweave list`, reports, and saved fits."""

    name: str
    title: str
    family: str
    split: str
    trust: str
    guarantee: str
    paper: str
    statement: str
    visibility: Views = ()
    same_people: bool = False


@dataclass(frozen=True)
class Guarantee:
    """The promise of a method at some settings.

    Attributes:
        kind: One of `GUARANTEES`.
        statement: What is protected, from whom; in words.
        title: The method's name at these settings, where it is another.
        trust: Who is trusted at these settings, where that differs.
        same_people: Whether parties hold the same people, and all releases under added or removed
            rows are such as `privacy.accountants.epsilon_to_parties` takes: then a fit states it.
        bounded: Whether a run is held to a finite epsilon; where it promises one, if None.
        instead: What else to use without a guarantee, or with one; ends an error.
    """

    kind: Literal["dp", "partial", "refuted", "none"]
    statement: str
    title: str = ""
    trust: str = ""
    same_people: bool = False
    bounded: bool | None = None
    instead: str = ""


@dataclass(frozen=True)
class MethodSettings:
    """A method with its settings: a frozen dataclass whose fields they are; see `Method`.

    A setting that is a dataclass may be given as a mapping of what differs from its default.
    """

    method: ClassVar[Method]

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Raise InputError for a named argument that is no setting of the method."""
        names = [setting.name for setting in fields(cls) if setting.init]
        for name, value in named.items():
            if name not in names:
                raise InputError(
                    f"{cls.__name__} takes no {name}; leave {name}={value!r} out. It takes "
                    f"{', '.join(names)}"
                )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Build settings that were given as mappings, then let every part check its own."""
        hints = get_type_hints(type(self))
        for setting in fields(self):
            value = getattr(self, setting.name)
            hint = hints[setting.name]
            default = setting.default
            if setting.default_factory is not MISSING:
                default = setting.default_factory()
            if is_dataclass(default):
                object.__setattr__(
                    self, setting.name, built(hint, setting.name, value, default)
                )
            elif hint is bool or get_origin(hint) is Literal:
                allowed = get_args(hint) or (True, False)
                if value not in allowed:
                    names = ", ".join(map(str, allowed))
                    raise InputError(f"{setting.name}={value!r} must be one of {names}")
        # A synthesizer extends dataclasses of settings, of which each checks its own fields.
        for kind in type(self).__mro__:
            if kind is not MethodSettings and "__post_init__" in vars(kind):
                vars(kind)["__post_init__"](self)
        self._check_settings()

    def _check_settings(self) -> None:
        """Raise InputError for settings of the method that do not go together."""

    def _smallest_cohort(self, parties: int) -> int:
        """Return the fewest parties of a sum in the method's own stage; a method may ask fewer."""
        return _all_but_dropouts(self, parties)

    @property
    def info(self) -> Info:
        """What the method is, guarantees and shows at these settings."""
        return self.method.info(self)

    def settings(self) -> dict[str, Any]:
        """Return all settings, as plain values."""
        return plain(asdict(self))


@dataclass(frozen=True)
class Setup:
    """The public facts of a run, from which a party makes its side in whatever process it runs.

    Attributes:
        synth: The method with its settings.
        schema: Facts about all columns. Under a guarantee they have a place for every cell, see
            `Schema.placed`.
        budget: Most that a row may cost; without a bound for a method without a guarantee.
        roster: The parties' names.
        columns: With split columns, every party's columns without ids.
        encoder: How rows are coded, where a method of marginals needs it.
        learn: Share of the budget for facts that the schema leaves open.
        stage: "method", or the name of a stage before it.
        keys: The parties' keys for masks, at the coordinator, if a stage before has exchanged them.
        constrained: Where the declared schema has constraints: that schema, of which `schema` and
            `columns` are what methods learn. See `modelled`.
        show_misfits: The command by which an owner sees the cells that do not fit the schema.
    """

    synth: MethodSettings
    schema: Schema
    budget: Budget
    roster: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    encoder: Encoder | None = None
    learn: float = 0.0
    stage: str = "method"
    keys: Mapping[str, bytes] = field(default_factory=dict)
    constrained: Modelled | None = None
    show_misfits: str = "siloweave check --rows"

    def __post_init__(self) -> None:
        """Give every cell a code under a guarantee; replace constraints by columns to learn."""
        number(
            "learn", self.learn, 0, 1, "[)", ": the share of the budget for open facts"
        )
        if self.synth.method.guarantee(self.synth).kind in GUARANTEED:
            object.__setattr__(self, "schema", self.schema.placed())
            if self.encoder is not None:
                encoder = replace(self.encoder, schema=self.encoder.schema.placed())
                object.__setattr__(self, "encoder", encoder)
        if not self.schema.constraints:
            return
        modelled = Modelled(self.schema, tuple(self.columns.values()))
        columns = {
            name: modelled.names_of(names) for name, names in self.columns.items()
        }
        object.__setattr__(self, "constrained", modelled)
        object.__setattr__(self, "schema", modelled.schema)
        object.__setattr__(self, "columns", columns)

    def settings_as(self, kind: type[_Settings]) -> _Settings:
        """Return the method's settings as those of a class that they extend.

        Raises:
            TypeError: They do not extend it, so the method lacks settings that are read.
        """
        if not isinstance(self.synth, kind):
            name = type(self.synth).__name__
            raise TypeError(
                f"{name} lacks the settings of {kind.__name__}; let it extend that class"
            )
        return self.synth

    def with_settings(self, **settings: Any) -> Setup:
        """Return the setup with these settings of the method changed."""
        return replace(self, synth=replace(self.synth, **settings))

    @property
    def target(self) -> str | None:
        """The column that a model is to draw on demand; None, also for a method without one."""
        return target_of(self.synth)

    @property
    def shared(self) -> bool:
        """Whether synthetic columns are put together, and do not stay with their parties."""
        return shares_columns(self.synth)

    @property
    def tolerated(self) -> int:
        """The parties of a masked sum that may pool what they know with the coordinator."""
        return _tolerated(self.synth)

    @property
    def dropouts(self) -> int:
        """The parties of a masked sum that may vanish."""
        return _dropouts(self.synth)

    @property
    def modelled(self) -> Modelled:
        """How the declared columns become those that methods learn."""
        return self.constrained or Modelled(self.schema, tuple(self.columns.values()))

    @property
    def rho(self) -> float:
        """The zCDP of the whole run; with `learn`, a tenth of delta pays for naming categories."""
        if not self.budget.private:
            return inf
        delta = self.budget.delta
        if self.learn:
            delta *= 1 - NAMING_DELTA
        return rho_for(msgspec.structs.replace(self.budget, delta=delta))

    @property
    def counts(self) -> bool:
        """Whether the method only counts rows, and no constraint changes them before."""
        return self.synth.method.counts and self.modelled.is_identity

    @property
    def smallest_cohort(self) -> int:
        """The fewest parties whose masked sum an honest coordinator asks for in this stage."""
        return smallest_cohort(self.synth, len(self.roster), self.stage)

    @property
    def declared(self) -> Schema:
        """The schema as the study declares it."""
        return self.modelled.declared

    @property
    def held(self) -> Mapping[str, tuple[str, ...]]:
        """Every party's columns as the study declares them, where columns are split."""
        return dict(zip(self.columns, self.modelled.parts, strict=True))


def job_for(synth: MethodSettings, budget: Budget | None, **facts: Any) -> Job:
    """Return the run of a synthesizer with this budget; `facts` are further fields of `Job`.

    BudgetError if the budget is missing, or asks for what these settings do not give.
    """
    return Job(
        budget=synth.method.allowed(synth, budget),
        limited=synth.info.guarantee == "dp",
        tolerated=_tolerated(synth),
        dropouts=_dropouts(synth),
        **facts,
    )


def smallest_cohort(synth: MethodSettings, parties: int, stage: str = "method") -> int:
    """Return the fewest parties whose masked sum an honest coordinator asks for in a stage."""
    if stage == "method":
        return synth._smallest_cohort(parties)
    return _all_but_dropouts(synth, parties)


def _all_but_dropouts(synth: MethodSettings, parties: int) -> int:
    """Return how many parties remain where as many vanish as the settings allow."""
    return max(1, parties - _dropouts(synth))


def smallest_sum(synth: MethodSettings, parties: int) -> int | None:
    """Return the fewest parties of a masked sum in any stage; None for a method without such sums.

    There parties hold different columns, or one holds all rows.
    """
    if synth.method.split != "rows" or synth.info.trust not in ("secure-sum", "mpc"):
        return None
    return min(smallest_cohort(synth, parties, stage) for stage in ("before", "method"))


# Settings that some methods have, and the run reads


def target_of(synth: MethodSettings) -> str | None:
    """Return the setting `target`; None, also for a method without it."""
    target: str | None = getattr(synth, "target", None)
    return target


def shares_columns(synth: MethodSettings) -> bool:
    """Return the setting `shared`; a method without it puts synthetic columns together."""
    return bool(getattr(synth, "shared", True))


def _tolerated(synth: MethodSettings) -> int:
    """Return the setting `tolerated`; a method without it takes one."""
    return int(getattr(synth, "tolerated", 1))


def _dropouts(synth: MethodSettings) -> int:
    """Return the setting `dropouts`; where a method has none, no party may vanish."""
    return int(getattr(synth, "dropouts", 0))


# A stage


@dataclass(frozen=True)
class Task:
    """The task of a coordinator in one stage.

    Attributes:
        setup: The run's public facts.
        rho: zCDP that a row may pay for this stage; infinite without a guarantee.
        seed: For whatever is not noise that protects.
        progress: Called with a text and the share that is done.
        store: Folder for an interrupted training of the coordinator; or None.
        at_once: Parties that may be at work at the same time in this process.
        entropy: For secrets of the coordinator.
    """

    setup: Setup
    rho: float
    seed: int
    progress: Progress = silent
    store: Path | None = None
    at_once: int = 1
    entropy: Entropy = field(default_factory=OSEntropy)


@dataclass(frozen=True)
class Result:
    """The result of a coordinator's side of a run.

    Attributes:
        model: Draws synthetic rows; with split columns the joint generator, before `decode`.
        num_rows: How many rows there are, as it was released; None where the model knows.
        facts: Public facts that the run found, stored beside the settings.
        parts: With decoders at the parties: entries of every party's part of the model's vectors.
    """

    model: Model | Generator
    num_rows: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A stage before the method itself, which releases facts and pays for them as a run of its own.

    Attributes:
        name: "schema" or "bins": releases are entered under ``<run>-<name>``.
        phase: What it does, for the list of times.
        plan: The setup of the stage, from that of the run; None where there is nothing to do.
        share: Share of the remaining zCDP of the run that it takes.
        prepare, facts, handlers, coordinate: As of `Method`.
        questions: How often a party is asked each question, at most, from the setup of the stage.
        refine: The setup after what was found.
        accepts: A party's way to the same: its setup with what the coordinator's setup has more,
            after this stage; raises WireError for what the stage cannot have found.
        views: Who sees what besides, from the lines so far and the setup before.
    """

    name: str
    phase: str
    plan: Callable[[Setup], Setup | None]
    share: Callable[[Setup], float]
    prepare: Callable[[Table | Codes | Unread, Setup, str], Any]
    handlers: Callable[[Any], Handlers]
    coordinate: Callable[[Session, Task], Any]
    questions: Callable[[Setup], QuestionCounts]
    refine: Callable[[Setup, Any], Setup]
    accepts: Callable[[Setup, Setup], Setup]
    facts: Callable[[Setup], Mapping[str, Any]] = lambda setup: {}
    views: Callable[[Views, Setup], Views] = lambda views, setup: views


@dataclass(frozen=True, kw_only=True)
class Method:
    """The definition of a method: its functions take the settings, which are a `Synthesizer`.

    Attributes:
        name: As studies write it.
        title: As people write it.
        family: Such as "graphical model" or "GAN".
        split: What parties hold: "central" (one holds all), "rows" or "columns".
        trust: "curator", "secure-sum", "mpc" or "local".
        paper: Its source.
        guarantee: What it promises.
        visibility: Who sees what of a run, and what protects it.
        prepare: A party's data from its table, the setup and its name. Raises where rows do not
            fit; nothing is released.
        facts: What every party is given of the settings, and checks requests against.
        handlers: A party's side: which function answers which request.
        coordinate: The coordinator's side.
        load: Reads the model of a saved fit from its folder.
        forecast: What a run will take, before a row is read, from the setup and a guess of how many
            rows there are; 1 where nobody has one.
        check_schema: Raises SchemaError or InputError for columns that it cannot learn.
        decode: With split columns: what draws rows whose columns the parties make of what the
            coordinator's model draws; it asks them, at the end of the run. Its last argument is
            the number of rows that the study draws.
        before: Stages before the method itself.
        affordable: Raises BudgetError where the budget does not pay for a run.
        phase: What the run is called in the list of times.
        party_share: Share of the work that parties do one after the other, for progress.
        stores: What is stored of a run besides ledgers: some of `REPLIES`, `COORDINATOR_TRAINING`
            and `PARTY_TRAINING`.
        counts: Whether a party only counts its rows, so that `prepare` takes a table that is not
            read; for any other method it is loaded.

    Raises:
        TypeError: It lacks a guarantee or visibility, or states a guarantee of no known kind.

    Example:
        >>> facts = dict(title="", family="", split="rows", trust="curator", paper="")
        >>> Method(name="silent", **facts)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        TypeError: ...missing 7 required keyword-only arguments: 'guarantee', 'visibility'...
    """

    name: str
    title: str
    family: str
    split: Literal["central", "rows", "columns"]
    trust: Literal["curator", "secure-sum", "mpc", "local"]
    paper: str
    guarantee: Callable[[Any], Guarantee]
    visibility: Callable[[Any], Views]
    prepare: Callable[[Any, Setup, str], Any]
    handlers: Callable[[Any], Handlers]
    coordinate: Callable[[Session, Task], Result]
    load: Callable[[Path], Model]
    forecast: Callable[[Setup, int], Forecast]
    facts: Callable[[Setup], Mapping[str, Any]] = lambda setup: {}
    check_schema: Callable[[Any, Schema], None] = lambda synth, schema: None
    decode: Callable[[Session, Task, Result, int | None], Model] | None = None
    before: tuple[Stage, ...] = ()
    affordable: Callable[[Setup], None] = lambda setup: None
    phase: str = "training"
    party_share: Callable[[Any], float] = lambda synth: 0.0
    stores: tuple[str, ...] = (REPLIES,)
    counts: bool = False

    @property
    def learns(self) -> bool:
        """Whether the method learns facts that a schema leaves open."""
        return any(stage.name == "schema" for stage in self.before)

    def info(self, synth: MethodSettings) -> Info:
        """Return what the method is, guarantees and shows at these settings."""
        promise = self.guarantee(synth)
        if promise.kind not in GUARANTEES:
            raise TypeError(
                f"method {self.name!r} has guarantee {promise.kind!r}; it must be "
                f"{', '.join(GUARANTEES)}"
            )
        return Info(
            self.name, promise.title or self.title, self.family, self.split,
            promise.trust or self.trust, promise.kind, self.paper, promise.statement,
            self.visibility(synth), promise.same_people,
        )  # fmt: skip

    def needs_budget(self, synth: MethodSettings) -> bool:
        """Return whether a run at these settings is held to a finite epsilon."""
        promise = self.guarantee(synth)
        return promise.kind != "none" if promise.bounded is None else promise.bounded

    def allowed(self, synth: MethodSettings, budget: Any) -> Budget:
        """Check the budget that a user gave, and return the budget of the run.

        Raises:
            BudgetError: It is missing, is something else, or asks for what is not given.
        """
        if budget is not None and not isinstance(budget, Budget):
            raise BudgetError(
                f"budget={budget!r} is a {type(budget).__name__}; give a Budget, for example "
                "Budget(epsilon=1.0, delta=1e-6)"
            )
        title = self.info(synth).title
        instead = f" {self.guarantee(synth).instead}".rstrip()
        if self.needs_budget(synth):
            if budget is None:
                raise BudgetError(
                    f"budget is missing; {title} adds noise, as much as the budget allows: give "
                    "budget=Budget(epsilon=1.0, delta=1e-6) or the like"
                )
            if not budget.private:
                raise BudgetError(
                    f"{title} adds noise and needs a finite epsilon, and budget has none; give "
                    f"one.{instead}"
                )
            return budget
        if budget is not None and budget.private:
            raise BudgetError(
                f"{title} adds no noise at these settings, and budget asks for epsilon = "
                f"{budget.epsilon}. Give budget=None to go without a guarantee.{instead}"
            )
        return budget or UNBOUNDED


# Forecasts

QuestionCounts = Mapping[type[Request[Any]], int]
"""How often a party is asked each question, at most; questions that it is never asked are left
out."""


class ColumnError(msgspec.Struct, frozen=True):
    """The change that noise is expected to make to one column.

    Attributes:
        name: The column's.
        codes: Its categories, bins or values, a missing one included.
        share: Mean absolute error of the share of one of them.
        mean: Mean absolute error of the column's mean, in its unit; None where it has no numbers.
        noise: Whether a quarter of the rows or more are expected in a wrong code: the column then
            shows noise, and little of the rows.
    """

    name: str
    codes: int
    share: float
    mean: float | None
    noise: bool


class ErrorForecast(msgspec.Struct, frozen=True):
    """The expected distance of a private table from the rows, from public facts alone.

    Errors are mean absolute ones, of shares from 0 to 1. What drawing rows adds is apart from what
    noise does, since more drawn rows lower it, and only a larger epsilon lowers that.

    Attributes:
        rows: The number of rows that it is for.
        share: Of a share in a single column, by noise: the mean over columns.
        share_drawn: What drawing rows adds to it, at most.
        pair: Of a cell of two columns together, by noise and by pairs that no table measures: the
            mean over pairs. It takes dependence to be as strong as in usual tables.
        pair_drawn: What drawing rows adds to it.
        pairs_measured: How many tables of two columns the budget is expected to buy.
        wrong: Share of the rows that stand in a wrong code of a column: the mean over columns.
        noise: Whether that is a quarter or more, so that the whole table would be noise.
        columns: Every column that is learned.
    """

    rows: int
    share: float
    share_drawn: float
    pair: float
    pair_drawn: float
    pairs_measured: int
    wrong: float
    noise: bool
    columns: tuple[ColumnError, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about a table, or columns of it, that noise would drown."""
        if self.noise:
            sentence = (
                f"the table would be noise: in a column, about {self.wrong:.0%} of the rows are "
                "expected in a wrong category or bin. Use fewer columns or fewer bins, or about "
                f"{self.wrong / _USEFUL:,.0f} times the rows or the epsilon"
            )
            return (sentence,)
        noisy = [column.name for column in self.columns if column.noise]
        if not noisy:
            return ()
        sentence = (
            f"noise would drown {listed(noisy)}: a quarter of the rows or more are expected in a "
            "wrong category or bin. Use fewer bins, merge rare categories, or leave out what is "
            "not needed"
        )
        return (sentence,)


_USEFUL = 0.05  # of the rows in a wrong code


@dataclass(frozen=True)
class Forecast:
    """The resources that a run will take.

    Attributes:
        questions: How often a party is asked each question of the method, at most.
        by_rows: Those of them whose number follows from the number of rows, and is a guess as well.
        memory_mb: Peak, with all parties in one process, without their rows.
        bytes_per_party: Sent and received, roughly: what is chosen is not known beforehand; without
            what is around every message, and without the ledger, which closes a run.
        seconds: Of one core, roughly; None where that is not known.
        epsilon_per_party: Most that a party will have spent.
        domain_cells: Cells of the full table of all columns; None for a method without a workload,
            as the next three.
        workload_queries: Queries.
        workload_cells: Cells over the closure of the queries.
        largest_query: The query with the most cells.
        notes: How a figure was found, where that matters.
        waits: Questions besides, during which this party waits for others.
        closes: Whether the last question closes the run, which else takes one more.
        error: How far the table will be from the rows; None where that is not forecast, or where
            the case has no number of rows.
        epsilon_to_parties: Most towards another party, where that knows whose rows are in the
            table, and it is a larger one.
        epsilon_at_parties: Most for a unit with rows at several parties, where that does not follow
            from the budget's zCDP.
        warnings: What to look at before running.
    """

    questions: QuestionCounts
    memory_mb: float
    bytes_per_party: int
    seconds: float | None
    epsilon_per_party: float
    domain_cells: int | None = None
    workload_queries: int | None = None
    workload_cells: int | None = None
    largest_query: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    waits: int = 0
    closes: bool = False
    by_rows: tuple[type[Request[Any]], ...] = ()
    error: ErrorForecast | None = None
    epsilon_to_parties: float | None = None
    epsilon_at_parties: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """The most questions that are asked one after the other; the last one closes the run."""
        return sum(self.questions.values()) + self.waits + (not self.closes)


def same_people_note(epsilon: float) -> str:
    """Return a note about the epsilon between parties that hold the same people, rounded up."""
    most = ceil(1000 * epsilon) / 1000 if isfinite(epsilon) else epsilon
    return f"towards another party, which knows whose rows these are, epsilon is at most {most:g}"


# Settings that several methods share


@dataclass(frozen=True)
class CountsSettings:
    """The settings of noisy histograms of every column, which a share of the budget pays for.

    Attributes:
        counts_share: Share of the budget's zCDP, in (0, 0.9].
        finest_bins: Equal-width bins of a numeric column that are counted, and so are bins of 16,
            256 ... of them together.
    """

    counts_share: float = 0.1
    finest_bins: int = 4096

    def __post_init__(self) -> None:
        number("counts_share", self.counts_share, 0, 0.9, "(]")
        whole("finest_bins", self.finest_bins, 1)


def names_of(methods: Sequence[Method]) -> tuple[str, ...]:
    """Return the names of methods; raises TypeError where two methods have the same name."""
    names = [method.name for method in methods]
    for name in names:
        if names.count(name) > 1:
            raise TypeError(
                f"two methods are called {name!r}; each needs a name of its own"
            )
    return tuple(names)
