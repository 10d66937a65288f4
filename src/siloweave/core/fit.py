"""The one fit: it samples, also under conditions, holds ledgers and cost, and is saved and read.

What draws the rows is a `Model`: a graphical model over codes, a generator of feature vectors, or
such a generator whose vectors every party decodes into its own columns.

**Guarantee**: everything here is derived from what parties released and paid for; sampling is
post-processing and costs nothing, however many rows are drawn (Dwork & Roth 2014, "The algorithmic
foundations of differential privacy", proposition 2.1). What a fit was protected by is in
`Fit.info`, and in `Fit.ledgers`, from which epsilon is recomputed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from math import ceil, inf, isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from safetensors import SafetensorError

from siloweave.core.conditional import Model, Wanted
from siloweave.core.constrained import constrained_rows
from siloweave.core.method import GUARANTEED, Info
from siloweave.core.model import MarginalModel
from siloweave.core.questions import Blanks, Questions
from siloweave.errors import DataError, InputError, count_of, naming_file, whole
from siloweave.federation.course import Traffic
from siloweave.privacy.accountants import (
    epsilon,
    epsilon_at_parties,
    epsilon_to_parties,
    of_one_person,
)
from siloweave.privacy.budget import ROW, Budget, Relation
from siloweave.privacy.ledger import Entry
from siloweave.tables.arrays import Floats
from siloweave.tables.constraints import Unique
from siloweave.tables.display import html_table, listed
from siloweave.tables.drawn import drawn_anew, listed_instead
from siloweave.tables.files import user_path
from siloweave.tables.forks import check_process
from siloweave.tables.keys import Key
from siloweave.tables.modelled import Modelled
from siloweave.tables.native_types import with_index_of, without_index
from siloweave.tables.origin import Frame
from siloweave.tables.read import read
from siloweave.tables.schema import UNLISTED, Schema, outline
from siloweave.tables.table import Table
from siloweave.tables.write import write

VERSION = 2
"""Of the files of a saved fit."""
_FIT = "fit.json"
_LIKE = "like.parquet"
_FILES = {
    *(
        "model.safetensors",
        _LIKE,
        _FIT,
        "encoder.json",
        "features.json",
        "one_way.json",
        "parties",
    ),
    *("generated.json", "woven.json", "homes"),  # of the format before
}  # what saved fits of all kinds consist of


# What a run cost


@dataclass(frozen=True)
class Cost:
    """The bytes, messages and seconds of a run; prints as one line, and one per party.

    Attributes:
        parties: Bytes and messages of each party, counted on the wire.
        rounds: Questions that the coordinator asked.
        phases: Wall-clock seconds per stage.
    """

    parties: Mapping[str, Traffic]
    rounds: int
    phases: Mapping[str, float]

    def __add__(self, later: Cost) -> Cost:
        """Add the cost of a run that follows this one."""
        nothing = Traffic()
        parties = {
            name: self.parties.get(name, nothing) + later.parties.get(name, nothing)
            for name in {**self.parties, **later.parties}
        }
        phases = dict(self.phases)
        for name, seconds in later.phases.items():
            phases[name] = phases.get(name, 0.0) + seconds
        return Cost(parties, self.rounds + later.rounds, phases)

    def over_network(
        self, *, latency: float = 0.05, megabits: float = 100.0, message: float = 0.0
    ) -> float:
        """Return the seconds that the run would take over a network, computing as it did here.

        Every question waits for its way there and back. All bytes pass the coordinator's own line,
        in and out one after the other. The parties' own lines are taken to be as fast, and parties
        that computed at the same time here do so there.

        Args:
            latency: Seconds that a message travels, one way.
            megabits: Of the coordinator's line, a second.
            message: Seconds that an engine adds to every question, such as 5.

        Example:
            >>> Cost({"a": Traffic(2, 10_000_000, 2_500_000)}, 2, {"fit": 3.0}).over_network()
            4.2
        """
        carried_bytes = sum(
            traffic.bytes_to_party + traffic.bytes_from_party
            for traffic in self.parties.values()
        )
        # 8 bits a byte, a million bits a megabit.
        carrying = 8e-6 * carried_bytes / megabits
        waiting = self.rounds * (2 * latency + message)
        return round(sum(self.phases.values()) + waiting + carrying, 3)

    def __str__(self) -> str:
        lines = [f"{self.rounds} questions, {sum(self.phases.values()):.1f} s"]
        lines += [
            f"{name}: {traffic.bytes_from_party:,} bytes sent, {traffic.bytes_to_party:,} received"
            for name, traffic in self.parties.items()
        ]
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class Ledgers:
    """Every party's ledger, and what the releases cost together; prints as one line per party.

    Attributes:
        entries: What every party released, in order.
        delta: At which epsilon is computed.
        split: What parties hold: with "columns", a row is in all ledgers.
        same_people: Whether parties hold the same people, and rows were added or removed ones.
        parties_per_unit: At how many parties with split rows a unit may have rows.
        is_complete: Whether every party's record is here; a party that vanished has sent none.
    """

    entries: Mapping[str, tuple[Entry, ...]]
    delta: float
    split: str = "rows"
    same_people: bool = False
    parties_per_unit: int = 1
    is_complete: bool = True

    @property
    def epsilons(self) -> dict[str, float]:
        """Epsilon of every party, recomputed from its ledger."""
        return {
            name: epsilon([entry.event for entry in entries], self.delta)
            for name, entries in self.entries.items()
        }

    @property
    def epsilon(self) -> float:
        """Epsilon of a row: the largest of any party, or of all where a row is in all ledgers."""
        return epsilon_of_row(self.entries, self.split, self.delta)

    @property
    def epsilon_to_parties(self) -> float | None:
        """Epsilon towards another party, where parties hold the same people.

        None where `epsilon` already bounds it.
        """
        ledgers = list(self.entries.values())
        if not self.same_people or len(ledgers) < 2:
            return None
        # Earlier runs and scores count, too, as whatever a ledger has of a row.
        runs = {entry.run for entries in ledgers for entry in entries}
        events = ([entry.event for entry in entries] for entries in ledgers)
        return epsilon_to_parties(events, self.delta, one_fit=len(runs) < 2)

    @property
    def epsilon_at_parties(self) -> float | None:
        """Epsilon of a unit that has rows at several parties, if the budget allows that.

        Infinite where a party vanished: what it released is bounded, but not at every delta.
        """
        if self.parties_per_unit == 1 or self.split != "rows" or len(self.entries) < 2:
            return None
        if not self.is_complete:
            return inf
        events = [
            [entry.event for entry in entries] for entries in self.entries.values()
        ]
        return epsilon_at_parties(events, self.parties_per_unit, self.delta)

    def __repr__(self) -> str:
        parties = count_of(len(self.entries), "party", "parties")
        release_count = sum(map(len, self.entries.values()))
        releases = count_of(release_count, "release", "releases")
        most = _up(self.epsilon)
        whose = (
            "epsilon of a row over all"
            if self.split == "columns"
            else "largest epsilon"
        )
        return f"Ledgers({parties}, {releases}, {whose} {most} at delta {self.delta:g})"

    def _repr_html_(self) -> str:
        dearest = sorted(self.epsilons.items(), key=lambda item: -item[1])
        rows = [(name, len(self.entries[name]), _up(cost)) for name, cost in dearest]
        heads = ["party", "releases", f"epsilon at delta {self.delta:g}"]
        return html_table(repr(self), heads, rows)

    def __str__(self) -> str:
        lines = [
            f"{name}: {len(self.entries[name])} releases, epsilon {_up(cost)}, delta {self.delta:g}"
            for name, cost in self.epsilons.items()
        ]
        if self.split == "columns":
            lines.append(
                f"a row over all: epsilon {_up(self.epsilon)}, delta {self.delta:g}"
            )
        if (most := self.epsilon_to_parties) is not None:
            lines.append(
                f"towards another party: epsilon {_up(most)}, delta {self.delta:g}"
            )
        if (most := self.epsilon_at_parties) is not None:
            parties = min(self.parties_per_unit, len(self.entries))
            lines.append(
                f"a unit with rows at {parties} parties: epsilon {_up(most)}, delta {self.delta:g}"
            )
        return "\n".join(lines)


def _up(epsilon: float) -> str:
    """Write an epsilon with three decimals, rounded up (a float's own error is not rounded up).

    A smaller one has three significant digits: with three decimals more would seem spent than was
    allowed.
    """
    if not isfinite(epsilon):
        return "infinite"
    if 0.0 < epsilon < 0.001:
        near = Context(prec=12).create_decimal_from_float(epsilon)
        rounded = Context(prec=3, rounding=ROUND_CEILING).create_decimal(near)
        return f"{float(rounded):g}"
    return f"{ceil(epsilon * 1000 - 1e-9) / 1000:.3f}"


def epsilon_of_row(
    ledgers: Mapping[str, Sequence[Entry]], split: str, delta: float
) -> float:
    """Return the epsilon of a row: the largest of any party, or of all together with split columns.

    There a row lies at all parties.
    """
    events = [[entry.event for entry in entries] for entries in ledgers.values()]
    if split == "columns":
        events = [of_one_person(events)]
    return max((epsilon(party_events, delta) for party_events in events), default=0.0)


@contextmanager
def _instead_of(folder: Path) -> Iterator[Path]:
    """Yield an empty folder, whose files are those of `folder` once everything is written.

    It takes the place of `folder`; where that has to stay, its files are moved there.
    """
    target = folder.resolve()
    if target.exists() and not target.is_dir():
        raise InputError(f"{folder} is a file; name a folder to save the fit in")
    others = [path.name for path in target.glob("*") if path.name not in _FILES]
    if others:
        raise InputError(
            f"{folder} holds {min(others)!r}, which is no part of a saved fit; name a new or an "
            "empty folder"
        )
    has_to_stay = target.exists() and _has_to_stay(target)
    if has_to_stay and any(target.iterdir()):
        raise InputError(
            f"{folder} holds a fit, and no other folder can take its place: it is a mounted "
            "volume, the working folder, or in a folder that this user may not write in. Name a "
            "new or an empty folder"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    home = target if has_to_stay else target.parent
    with TemporaryDirectory(prefix=f".{target.name}-", dir=home) as beside:
        stage = Path(beside) / "new"
        stage.mkdir()
        if target.exists():
            stage.chmod(target.stat().st_mode)
        try:
            with naming_file(target):
                yield stage
        except SafetensorError as error:  # which names no file either
            raise InputError(
                f"{target}: {error}. See that the disk has room"
            ) from error
        if has_to_stay:
            _move_into(target, stage)
            return
        if target.exists():
            target.replace(Path(beside) / "old")
        stage.replace(target)


def _has_to_stay(folder: Path) -> bool:
    """Return whether no other folder can take the place of this one."""
    is_volume = os.path.ismount(folder)
    is_working_folder = folder.samefile(".")
    return is_volume or is_working_folder or not os.access(folder.parent, os.W_OK)


def _move_into(target: Path, stage: Path) -> None:
    """Move a fit's files into an empty folder; without the last one, none of them is read."""
    if target.stat().st_mode != stage.stat().st_mode:
        target.chmod(stage.stat().st_mode)
    for path in list(stage.iterdir()):
        if path.name != _FIT:
            path.replace(target / path.name)
    (stage / _FIT).replace(target / _FIT)


def key_for(seed: Key | None) -> Key:
    """Return the user's seed as a key; without a seed, a fresh one from the operating system."""
    if seed is not None:
        return seed
    from siloweave.privacy.mechanisms import OSEntropy

    return int.from_bytes(OSEntropy().bytes(16), "little")


def new_seed() -> int:
    """Return a fresh seed that is short enough to be typed again."""
    from siloweave.privacy.mechanisms import OSEntropy

    return int.from_bytes(OSEntropy().bytes(4), "little")


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a saved fit."""

    version: int
    info: Info
    private: bool
    epsilon: float | None  # None without a bound: JSON has no infinity
    delta: float
    unit: str
    relation: Relation
    settings: dict[str, Any]
    ledgers: dict[str, tuple[Entry, ...]]
    heads: dict[str, str]
    traffic: dict[str, Traffic]
    rounds: int
    phases: dict[str, float]
    num_rows: int | None
    frame: Frame | None
    columns: dict[str, tuple[str, ...]]
    simulated: bool
    declared: str = ""  # a schema file's text
    # Names of the types of the frame that was given; a guarantee's are the schema's.
    types: dict[str, str] = msgspec.field(default_factory=dict)
    # None in fits of versions that bounded no unit but a row.
    rows_per_unit: int | None = None
    parties_per_unit: int = 1

    @property
    def budget(self) -> Budget:
        """The budget of the fit. In files from before units were bounded, a row is the unit."""
        bound = inf if self.epsilon is None else self.epsilon
        unit = self.unit if self.rows_per_unit is not None else ROW
        return Budget(
            bound,
            self.delta,
            unit,
            self.relation,
            self.rows_per_unit,
            self.parties_per_unit,
        )


@dataclass(frozen=True, repr=False)
class Fit:
    """A fitted synthesizer.

    Attributes:
        model: Draws the rows.
        info: What was run.
        budget: What was allowed; without a bound for a method without guarantee.
        private: False if no noise was added, or if it came from a seed: then nothing here is
            protected.
        settings: The method's public settings, and public facts that the run found.
        ledgers: Every party's record of this and earlier runs.
        heads: Hash at the end of every ledger.
        cost: Bytes, rounds, seconds.
        num_rows: Rows that it was fitted to, as they were released; None where the model knows.
        like: An empty table of the kind that was given, for sampling into the same kind; its types
            are the schema's under a guarantee, see `outline`.
        columns: With split columns every party's columns, its ids among them.
        simulated: Whether all parties shared one process, which then read every row.
        declared: The schema with its constraints, where it has any.
    """

    model: Any
    info: Info
    budget: Budget
    private: bool
    settings: Mapping[str, Any]
    ledgers: Mapping[str, tuple[Entry, ...]]
    heads: Mapping[str, str]
    cost: Cost
    num_rows: int | None = None
    like: Table | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    simulated: bool = True
    declared: Schema | None = None

    def __post_init__(self) -> None:
        """Take the types of drawn columns from the schema alone, under a guarantee."""
        if self.like is not None and self.info.guarantee in GUARANTEED:
            object.__setattr__(self, "like", outline(self.like, self.schema))

    def __repr__(self) -> str:
        allowed, spent = self.budget.epsilon, _up(self.epsilon)
        promise = f"epsilon {spent} of {allowed:g} at delta {self.budget.delta:g}"
        if not self.private:
            promise = (
                f"NOT PRIVATE (epsilon {spent})" if isfinite(allowed) else "NOT PRIVATE"
            )
        return (
            f"<fit of {self.info.title}: {len(self.schema.columns)} columns, "
            f"{len(self.ledgers)} {'party' if len(self.ledgers) == 1 else 'parties'}, {promise}>"
        )

    def _repr_html_(self) -> str:
        spent = _up(self.epsilon)
        if isfinite(self.budget.epsilon):
            spent = f"{spent} of {self.budget.epsilon:g}"
        sent = sum(traffic.bytes_from_party for traffic in self.cost.parties.values())
        facts = {
            "method": self.info.title,
            "guarantee": self.info.guarantee if self.private else "NOT PRIVATE",
            "epsilon": spent,
            "delta": f"{self.budget.delta:g}",
            "parties": listed(list(self.ledgers)),
            "columns": listed(self.schema.names),
            "bytes from parties": f"{sent:,}",
            "seconds": f"{sum(self.cost.phases.values()):.1f}",
        }
        return html_table("a fit", ["", ""], facts.items())

    @property
    def schema(self) -> Schema:
        """Facts about every column of a synthetic table."""
        schema: Schema = self.model.schema
        return self.modelled.restored(schema)

    @property
    def modelled(self) -> Modelled:
        """How the declared columns became those of the model."""
        declared = self.declared or self.model.schema
        return Modelled(declared, tuple(self.columns.values()))

    @property
    def _redrawn(self) -> Modelled:
        """How rows of the model are made to keep the constraints."""
        # A run has drawn the rows of such a model, and they keep the constraints already.
        if self.model.schema.constraints:
            return Modelled(Schema(self.model.schema.columns))
        return self.modelled

    def learned(self, table: Table) -> Table:
        """Turn real rows, of all columns or of one party's, into rows with the model's columns.

        Raises SchemaError if they break a constraint of the schema.
        """
        return self.modelled.inside(table)

    @property
    def shared(self) -> bool:
        """Whether the parties' synthetic columns are joined in one table; else each has its own."""
        return bool(self.settings.get("shared", True))

    @property
    def epsilon(self) -> float:
        """Epsilon of a row, recomputed from the ledgers.

        A party that vanished has sent no ledger. It counts with the whole budget, which its own
        ledger enforces, or with no bound where ledgers enforce none.
        """
        of_ledgers = epsilon_of_row(self.ledgers, self.info.split, self.budget.delta)
        if not self.unaccounted:
            return of_ledgers
        bound = self.budget.epsilon if self.info.guarantee == "dp" else inf
        return max(of_ledgers, bound)

    @property
    def unaccounted(self) -> tuple[str, ...]:
        """The parties that vanished during the run and sent no ledger."""
        vanished = self.settings.get("vanished", ())
        return tuple(name for name in vanished if name not in self.ledgers)

    @property
    def epsilons(self) -> dict[str, float]:
        """Epsilon of every party at the budget's delta, recomputed from its ledger."""
        return self.ledger.epsilons

    @property
    def ledger(self) -> Ledgers:
        """Every party's releases and their costs, for people to read."""
        budget = self.budget
        return Ledgers(
            self.ledgers,
            budget.delta,
            split=self.info.split,
            same_people=self.info.same_people
            and budget.relation is Relation.ADD_REMOVE,
            parties_per_unit=budget.parties_per_unit,
            is_complete=not self.unaccounted,
        )

    def sample(
        self,
        num_rows: int | None = None,
        *,
        seed: Key | None = None,
        given: Any = None,
        balanced: str | bool = False,
        tries: int = 100,
        raked: bool = True,
        missing: bool = True,
    ) -> Any:
        """Draw synthetic rows, as a frame of the kind that was fitted.

        Under a guarantee, types of columns follow from the schema alone (`outline`), not from the
        frame that was fitted.

        Rows have exactly what is given. A graphical model draws the other columns from its exact
        conditional distribution, in which a given number counts as its bin. A generator draws from
        its own conditional distribution where it has one: exactly for a Gaussian copula and for the
        target of a diffusion; nearly for other columns of TabDDPM and of diffusions of sphere
        codes, which are replaced at every step. GANs are conditioned on categories. All generators
        draw again for rows that do not match.

        Rows of a generator without conditions are raked: 1.5 times as many and 1,000 more are
        drawn, up to four times as many and 1,000 where the model makes some values too rarely. Of
        these, rows are chosen so that single columns are distributed as they were released
        (models/raking.py). Numbers that are still far from that are moved in their order.

        Args:
            num_rows: How many; as many as were fitted, or as `given` has, if None.
            seed: The same seed gives the same rows; without one, every call gives others, and other
                ids where these have a format. Ids without one count from 1 in every call.
            given: What rows must have: a mapping of column to value (None, NaN or NA: missing; a
                time without a zone is in UTC), or a frame with one row per wanted row, where a cell
                without a value is free.
            balanced: A column of categories or booleans, whose classes are then equally frequent;
                True for the target.
            tries: Most rows that a generator draws for each that is wanted (10,000 in any case);
                then matching rows are too rare.
            raked: Whether rows of a generator are raked; fewer than 100 never are.
            missing: Whether modelled columns may have missing values. False: rows are those of the
                model given that no value is missing, exactly so for a graphical model; all others
                draw again until rows are complete, at most `tries` for each.

        Raises:
            InputError: There is no such column, no target, `num_rows` does not fit, matching rows
                are too rare or have probability 0, a column is always missing, or columns stay
                with their parties.
            SchemaError: A value is outside the schema.

        A process that was forked from one that had used siloweave cannot draw, and is refused
        (InputError): start it by ``multiprocessing.get_context("spawn")``.

        Example:
            >>> import siloweave as sw
            >>> from siloweave.datasets import adult, adult_schema
            >>> model = sw.GaussianCopula().fit(adult().take(range(300)), adult_schema())
            >>> old = model.sample(4, given={"age": 60, "sex": "Female"}, balanced="income")
            >>> old["age"].tolist(), sorted(old["income"])
            ([60, 60, 60, 60], ['<=50K', '<=50K', '>50K', '>50K'])
        """
        return self.sample_table(
            num_rows, seed=seed, given=given, balanced=balanced, tries=tries, raked=raked,
            missing=missing,
        ).to_native()  # fmt: skip

    def sample_table(
        self, num_rows: int | None = None, *, seed: Key | None = None, **conditions: Any
    ) -> Table:
        """Draw synthetic rows as a `Table`; the arguments are those of `sample`."""
        self._check_joined()
        return self._drawn(num_rows, seed, **conditions)

    def _check_joined(self) -> None:
        """Refuse a question about whole rows where synthetic columns stay with their parties."""
        if not self.shared:
            raise InputError(
                "synthetic columns stay with their parties in this fit (shared=False), so there "
                "is no joined table; sample_parts() draws each party's columns"
            )

    def sample_parts(
        self, num_rows: int | None = None, *, seed: Key | None = None, given: Any = None
    ) -> dict[str, Any]:
        """Draw every party's synthetic columns, where they are split, as frames.

        Args:
            num_rows: How many; as many as were fitted if None.
            seed: The same seed gives the same rows, and the rows of `sample`; without one, every
                call gives others.
            given: What rows must have, as `sample` takes it; only where columns are shared, since
                a party would otherwise learn about another's columns.

        Returns:
            A frame per party; row i is the same synthetic person in all of them. Ids of the schema
            that no party held when it was fitted, as those by which rows were aligned, are in each.

        Raises:
            InputError: Parties hold no columns of their own, or something is given though columns
                stay with their parties.
        """
        if given is not None and not self.shared:
            raise InputError(
                "given: columns stay with their parties in this fit (shared=False)"
            )
        tables = self.part_tables(num_rows, seed=seed, given=given)
        return {name: table.to_native() for name, table in tables.items()}

    def part_tables(
        self, num_rows: int | None = None, *, seed: Key | None = None, given: Any = None
    ) -> dict[str, Table]:
        """Draw every party's synthetic columns as tables; see `sample_parts`."""
        if not self.columns:
            raise InputError(
                "parties hold all columns in this fit; sample() draws whole rows"
            )
        table = self._drawn(num_rows, seed, given=given, raked=self.shared)
        party_columns = {column for names in self.columns.values() for column in names}
        # Rows were aligned by ids that no party's table has afterwards; every party had them.
        ids = [
            column.name
            for column in self.schema.columns
            if column.is_id and column.name not in party_columns
        ]
        return {
            name: table.select(
                [column for column in (*ids, *names) if column in table.names]
            )
            for name, names in self.columns.items()
        }

    def _drawn(self, num_rows: Any, seed: Key | None, **conditions: Any) -> Table:
        check_process()
        rows_asked = None if num_rows is None else whole("num_rows", num_rows)
        wanted = Wanted(rows_asked, key_for(seed), **conditions)
        whole("tries", wanted.tries, 1)
        modelled = self._redrawn
        may_be_missing = any(column.missing for column in self.schema.coded)
        if modelled.is_identity and may_be_missing and not wanted.missing:
            # Rows with gaps are left out, and rows that are taken instead may repeat a value.
            rules = self.model.schema.constraints
            unique = tuple(rule for rule in rules if isinstance(rule, Unique))
            modelled = Modelled(Schema(self.model.schema.columns, unique))
        rows = constrained_rows(modelled, self.model, wanted, self.num_rows, self.like)
        if any(column.other == UNLISTED for column in self.schema.columns):
            rows = listed_instead(rows, self.schema, key=wanted.seed, kept=wanted.named)
        if self.schema.coded == self.schema.columns:
            return rows
        return drawn_anew(rows, self.schema, key=wanted.seed, like=self.like)

    def impute(
        self,
        table: Any,
        *,
        seed: Key | None = None,
        columns: Sequence[str] | None = None,
        tries: int = 100,
    ) -> Any:
        """Return a frame with its missing cells drawn, each given the other cells of its row.

        A missing cell is drawn from the model's conditional distribution given that it is not
        missing, even where the schema has missing values. All missing cells of a row are drawn
        together, so that they fit each other. A graphical model draws them exactly (a number that
        is there counts as its bin), all others as `sample` draws rows with conditions. Constraints
        of the schema are kept, and what follows from other columns is computed; a cell that has to
        be missing stays missing.

        A draw is not a best guess: means and spreads of imputed columns are right on the whole.
        Draw several times, with other seeds, to see how uncertain what you compute is.

        Nothing is learned from the table, and nothing is spent. What is in it is not protected.

        Args:
            table: Rows, as `sample` takes `given`; columns may be left out. Ids and texts stay as
                they are.
            seed: The same seed draws the same values; without one, every call draws others.
            columns: Only these are filled. Missing cells of other columns then count as what they
                are: a missing value, where the schema has these.
            tries: Most rows that are drawn for each that is wanted, where a model draws again.

        Returns:
            A frame of the kind that was given (pandas or polars for a path), in the same order;
            of pandas with its index. All cells that were there are as they were, to the letter.

        Raises:
            InputError: A column is unknown, `columns` names one that the table lacks, rows have
                probability 0 in the model or break a constraint, columns stay with their parties,
                or a column is always missing in the model.
            SchemaError: A value is outside the schema.
            QuestionError: The model cannot draw a row given numbers: a GAN.

        Example:
            >>> import siloweave as sw
            >>> from siloweave.datasets import adult, adult_schema
            >>> model = sw.GaussianCopula().fit(adult().take(range(300)), adult_schema())
            >>> gaps = {"age": [61, None], "income": ["<=50K", "<=50K"]}
            >>> import polars as pl
            >>> model.impute(pl.DataFrame(gaps), seed=0)["age"].null_count()
            0
        """
        filled = self.impute_table(table, seed=seed, columns=columns, tries=tries)
        return with_index_of(filled.to_native(), table)

    def impute_table(
        self,
        table: Any,
        *,
        seed: Key | None = None,
        columns: Sequence[str] | None = None,
        tries: int = 100,
    ) -> Table:
        """Return a `Table` with its missing cells drawn; see `impute`."""
        self._check_joined()
        return self._questions(seed, tries).imputed(table, columns)

    def log_prob(self, table: Any, *, blanks: Blanks = "missing") -> Floats:
        """Return the natural logarithm of how likely each row is, float64, (rows,).

        It is exact for a graphical model, and of the distribution that `sample` draws from.
        Categories, booleans, whole numbers and datetimes count as probabilities; a number of a
        continuum as a density with respect to its unit: its bin's probability, divided by the bin's
        width or shared out as the fit's cuts say. In a bin that holds one number alone, such as a 0
        that many rows have, it is that number's probability. So a difference between two rows that
        have the same kinds of values is a logarithm of a ratio of probabilities.

        It costs nothing, but the numbers show which rows the model finds likely, and so something
        of the rows in the table: keep them where the rows are.

        Args:
            table: Rows, as `sample` takes `given`. Columns that are left out are summed out. Ids
                and texts are not looked at.
            blanks: What a cell without a value is. ``"missing"``: a missing value, which has a
                probability where the schema has these. ``"unknown"``: a value that is not known,
                which is summed out.

        Returns:
            Minus infinity where a value is outside the schema: a category that is not listed (it
            counts as `other`, where there is one), a number beyond its bounds, one with decimals in
            a column of whole numbers, or a missing value in a column that has none.

        Raises:
            InputError: A column is unknown, or columns stay with their parties.
            QuestionError: The model is no graphical one, or the schema has constraints.

        Example:
            >>> import siloweave as sw
            >>> from siloweave.datasets import adult, adult_schema
            >>> names, budget = ["sex", "income"], sw.Budget(epsilon=20.0, delta=1e-6)
            >>> table, schema = adult().select(names), adult_schema().select(names)
            >>> model = sw.AIM().fit(table, schema, budget=budget)
            >>> rows = {"sex": ["Male", "Female", "?"], "income": [">50K", ">50K", ">50K"]}
            >>> import polars as pl
            >>> male, female, outside = model.log_prob(pl.DataFrame(rows)).tolist()
            >>> male > female, outside
            (True, -inf)
        """
        self._check_joined()
        return self._questions(None).log_prob(table, blanks)

    def predict(
        self,
        table: Any,
        target: str,
        *,
        blanks: Blanks = "unknown",
        draws: int = 20,
        seed: Key | None = None,
    ) -> Any:
        """Predict the target of each row from the row's other cells; returns an array, (rows,).

        Of a target with categories or of booleans it is the likeliest one, of numbers and datetimes
        the mean. A graphical model answers exactly; all others, and any model whose schema has
        constraints, by several draws of each row. What the table has of the target is not looked
        at. A missing target is no answer: shares and means are given that it has a value.

        Args:
            table: Rows, as `sample` takes `given`. Columns that are left out are summed out.
            target: The column to predict.
            blanks: What a cell without a value is. ``"unknown"``: a value that is not known, which
                is summed out. ``"missing"``: a missing value, where the schema has these; take it
                where cells are missing for the reasons for which they were in the rows that were
                fitted.
            draws: How many times each row is drawn, where that is how it is answered.
            seed: The same seed gives the same answers, where rows are drawn.

        Raises:
            InputError: A column or the target is unknown, rows have probability 0 in the model, or
                columns stay with their parties.
            SchemaError: A value is outside the schema.
            QuestionError: The model cannot draw a row given numbers: a GAN.

        Example:
            >>> import siloweave as sw
            >>> from siloweave.datasets import adult, adult_schema
            >>> names, budget = ["sex", "income"], sw.Budget(epsilon=20.0, delta=1e-6)
            >>> table, schema = adult().select(names), adult_schema().select(names)
            >>> model = sw.AIM().fit(table, schema, budget=budget)
            >>> import polars as pl
            >>> model.predict(pl.DataFrame({"sex": ["Male", "Female"]}), "income").tolist()
            ['<=50K', '<=50K']
        """
        self._check_joined()
        return self._questions(seed).predicted(table, target, blanks, draws)

    def predict_proba(
        self,
        table: Any,
        target: str,
        *,
        blanks: Blanks = "unknown",
        draws: int = 20,
        seed: Key | None = None,
    ) -> Any:
        """Return each row's probability of every category of a target, given its other cells.

        Arguments and errors are those of `predict`; InputError also for a target of numbers or
        datetimes.

        Returns:
            A frame of the kind that was given, with a column for each category that is named by it
            (``"False"`` and ``"True"`` for booleans; `other` stands for all that is not listed).
            Each row sums to 1. A frame of pandas has the index of the one given.

        Example:
            >>> import siloweave as sw
            >>> from siloweave.datasets import adult, adult_schema
            >>> names, budget = ["sex", "income"], sw.Budget(epsilon=20.0, delta=1e-6)
            >>> table, schema = adult().select(names), adult_schema().select(names)
            >>> model = sw.AIM().fit(table, schema, budget=budget)
            >>> import polars as pl
            >>> rows = pl.DataFrame({"sex": ["Male", "Female"]})
            >>> male, female = model.predict_proba(rows, "income")[">50K"].to_list()
            >>> male > female
            True
        """
        self._check_joined()
        rows = read(without_index(table))
        shares = self._questions(seed).class_shares(rows, target, blanks, draws)
        options = self.schema[target].options
        columns = {
            str(option): (shares[:, i], None) for i, option in enumerate(options)
        }
        class_table = Table.from_columns(columns).framed(rows.frame)
        return with_index_of(class_table.to_native(), table)

    def _questions(self, seed: Key | None, tries: int = 100) -> Questions:
        check_process()
        whole("tries", tries, 1)
        model = self.model
        graph = (model.mrf, model.encoder) if isinstance(model, MarginalModel) else None
        return Questions(
            title=self.info.title,
            model=model,
            schema=self.schema,
            modelled=self._redrawn,
            wanted=Wanted(None, key_for(seed), tries=tries),
            num_rows=self.num_rows,
            graph=graph,
        )

    def save(self, folder: Path | str) -> None:
        """Write the fit into a folder, as data only: nothing in it runs when it is read.

        What stays with the parties (`shared` is False) only the folder's owner may read.

        Args:
            folder: A new or an empty one. One that holds a fit, of whatever kind, is replaced as a
                whole once everything is written.

        Raises:
            InputError: `folder` is a file, holds what is no part of a fit, or holds a fit and
                cannot be replaced, as the working folder; nothing is written.
        """
        with _instead_of(user_path(folder)) as stage:
            self.model.save(stage)
            if self.like:
                write(self.like, stage / _LIKE)
            (stage / _FIT).write_bytes(msgspec.json.encode(self._saved()))
            if not self.shared:
                for path in (stage, *stage.rglob("*")):
                    path.chmod(0o700 if path.is_dir() else 0o600)

    def _saved(self) -> _Saved:
        budget = self.budget
        return _Saved(
            version=VERSION,
            info=self.info,
            private=self.private,
            epsilon=budget.epsilon if budget.private else None,
            delta=budget.delta,
            unit=budget.unit,
            relation=budget.relation,
            rows_per_unit=budget.rows_per_unit,
            parties_per_unit=budget.parties_per_unit,
            settings=dict(self.settings),
            ledgers=dict(self.ledgers),
            heads=dict(self.heads),
            traffic=dict(self.cost.parties),
            rounds=self.cost.rounds,
            phases=dict(self.cost.phases),
            num_rows=self.num_rows,
            frame=self.like.frame if self.like else None,
            types=self.like.type_names if self.like else {},
            columns=dict(self.columns),
            simulated=self.simulated,
            declared="" if self.declared is None else self.declared.to_json(),
        )

    @classmethod
    def read(
        cls, folder: Path | str, loaders: Mapping[str, Callable[[Path], Model]]
    ) -> Fit:
        """Read a fit from the folder into which `save` wrote it.

        Args:
            folder: Where it was saved.
            loaders: Per name of a method, what reads its model.

        Raises:
            DataError: The folder or a file is missing, cut or of another version, or of a method
                that is unknown.
            InputError: This process was forked from one that had used siloweave.
        """
        check_process()
        path = user_path(folder)
        _check_place(path)
        _check_version(path)
        try:
            saved = msgspec.json.decode((path / _FIT).read_bytes(), type=_Saved)
            if saved.info.name not in loaders:
                raise DataError(
                    f"{path} holds a fit of {saved.info.name!r}, a method that this siloweave does "
                    "not know; read it with the version that wrote it"
                )
            like = None
            if saved.frame:
                like = read(path / _LIKE).framed(saved.frame, saved.types)
            model = loaders[saved.info.name](path)
        except (OSError, KeyError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read as a saved fit: {error}") from error
        return cls(
            model, saved.info, saved.budget, saved.private, saved.settings, saved.ledgers,
            saved.heads, Cost(saved.traffic, saved.rounds, saved.phases), saved.num_rows, like,
            saved.columns, saved.simulated,
            Schema.from_json(saved.declared) if saved.declared else None,
        )  # fmt: skip


def _check_place(folder: Path) -> None:
    """Refuse a path where no fit was saved, and say where one is, if that can be seen."""
    if not folder.exists():
        raise DataError(f"there is no folder {str(folder)!r}; check the path")
    if not folder.is_dir():
        raise DataError(
            f"{folder} is a file; give the folder in which the fit was saved"
        )
    if any((folder / name).exists() for name in _FILES):
        return
    advice = "; give the folder in which it was saved"
    folder_below = min((path.parent for path in folder.glob(f"*/{_FIT}")), default=None)
    if folder_below is not None:
        advice = f"; there is one in {folder_below}"
    raise DataError(f"{folder} cannot be read as a saved fit: it holds none{advice}")


def _check_version(folder: Path) -> None:
    """Refuse a saved fit of another format, and say which version of the package wrote it."""
    old = [
        name for name in ("generated.json", "woven.json") if (folder / name).is_file()
    ]
    version: Any = 1
    if not old:
        try:
            version = msgspec.json.decode((folder / _FIT).read_bytes(), type=dict).get(
                "version", 1
            )
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DataError(
                f"{folder} cannot be read as a saved fit: {error}"
            ) from error
    if version != VERSION:
        raise DataError(
            f"{folder} holds a fit of format {version}, and this siloweave reads format {VERSION}: "
            f"{'an earlier' if version == 1 else 'another'} version wrote it. Read it with that "
            "version, or fit again"
        )
