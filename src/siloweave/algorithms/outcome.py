"""What every fit can do, whatever its model: sample, say what it cost, and be saved.

**Guarantee**: everything here is derived from what parties released and paid for; sampling is
post-processing and costs nothing, however many rows are drawn. Source of the rule: Dwork & Roth
2014, "The algorithmic foundations of differential privacy", proposition 2.1. What a fit was
protected by is in `Outcome.info`, and in `Outcome.ledgers`, from which epsilon is recomputed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, isfinite
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec

from siloweave.algorithms.visibility import Views
from siloweave.errors import InputError
from siloweave.federation.session import Traffic
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Entry
from siloweave.tables.display import html_table, listed
from siloweave.tables.keys import Key
from siloweave.tables.read import Frame, Table, read, write
from siloweave.tables.schema import Schema, outline

__all__ = ["GUARANTEED", "Cost", "Info", "Kept", "Ledgers", "Outcome", "key_for", "rows_asked"]

GUARANTEED = ("dp", "partial")
"""Guarantees under which nothing of the rows may decide types, or whether a run starts."""

_FILES = {
    *("model.safetensors", "like.parquet", "encoder.json", "fit.json", "features.json"),
    *("generated.json", "one_way.json", "woven.json", "homes"),
}  # what saved fits of all kinds consist of


class Info(msgspec.Struct, frozen=True):
    """What a synthesizer is: for `siloweave list` and the report.

    `visibility` depends on settings: it is in what a synthesizer states, and so in every fit.
    """

    name: str
    title: str
    family: str
    split: str
    trust: str
    guarantee: str
    paper: str
    statement: str
    visibility: Views = ()


@dataclass(frozen=True)
class Cost:
    """What a run moved and how long it took; prints as one line, and one per party.

    Attributes:
        parties: Bytes and messages of each party, counted on the wire.
        rounds: Questions that the coordinator asked.
        phases: Wall-clock seconds per stage.
    """

    parties: Mapping[str, Traffic]
    rounds: int
    phases: Mapping[str, float]

    def __add__(self, other: Cost) -> Cost:
        """Of both, one after the other."""
        parties, phases = dict(self.parties), dict(self.phases)
        for name, moved in other.parties.items():
            parties[name] = parties.get(name, Traffic()) + moved
        for name, seconds in other.phases.items():
            phases[name] = phases.get(name, 0.0) + seconds
        return Cost(parties, self.rounds + other.rounds, phases)

    def __str__(self) -> str:
        lines = [f"{self.rounds} questions, {sum(self.phases.values()):.1f} s"]
        lines += [
            f"{name}: {t.bytes_from_party:,} bytes sent, {t.bytes_to_party:,} received"
            for name, t in self.parties.items()
        ]
        return "\n".join(lines)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the file of any kept fit says; a kind of fit adds what is its own.

    Attributes:
        traffic: Per party: messages, bytes to it, bytes from it.
        frame: Kind of the frame that was fitted.
        simulated: Whether all parties shared one process.
    """

    info: Info
    private: bool
    settings: dict[str, Any]
    ledgers: dict[str, tuple[Entry, ...]]
    heads: dict[str, str]
    traffic: dict[str, tuple[int, int, int]]
    rounds: int
    phases: dict[str, float]
    frame: Frame | None = None
    simulated: bool = True
    version: int = 1

    @property
    def cost(self) -> Cost:
        """What the run moved and how long it took."""
        traffic = {name: Traffic(*numbers) for name, numbers in self.traffic.items()}
        return Cost(traffic, self.rounds, self.phases)

    def like(self, folder: Path) -> Table | None:
        """The empty table of the kind that was fitted, if there was one."""
        return read(folder / "like.parquet").framed(self.frame) if self.frame else None


@dataclass(frozen=True, repr=False)
class Ledgers:
    """Every party's record, and what it adds up to; prints as one line per party.

    Attributes:
        entries: What every party released, in order.
        delta: At which epsilon is told.
    """

    entries: Mapping[str, tuple[Entry, ...]]
    delta: float

    @property
    def epsilons(self) -> dict[str, float]:
        """Epsilon of every party, recomputed from its ledger."""
        return {n: epsilon([e.event for e in es], self.delta) for n, es in self.entries.items()}

    def __repr__(self) -> str:
        count, costs = sum(map(len, self.entries.values())), self.epsilons
        most = _up(max(costs.values(), default=0.0))
        return (
            f"Ledgers({len(costs)} parties, {count} releases, largest epsilon {most} at delta "
            f"{self.delta:g})"
        )

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
        return "\n".join(lines)


def _up(epsilon: float) -> str:
    """Three digits after the point, never less than the value (but for what floats leave over)."""
    return f"{ceil(epsilon * 1000 - 1e-9) / 1000:.3f}" if isfinite(epsilon) else "infinite"


@contextmanager
def _in_place_of(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder`, which takes its place when all is written."""
    target = folder.resolve()
    if target.exists() and not target.is_dir():
        raise InputError(f"{folder} is a file; name a folder to save the fit in")
    others = [path.name for path in target.glob("*") if path.name not in _FILES]
    if others:
        raise InputError(
            f"{folder} holds {min(others)!r}, which is no part of a saved fit; name a new or an "
            "empty folder"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as beside:
        stage = Path(beside) / "new"
        stage.mkdir()
        if target.exists():
            stage.chmod(target.stat().st_mode)
        yield stage
        if target.exists():
            target.replace(Path(beside) / "old")
        stage.replace(target)


def rows_asked(num_rows: Any) -> int | None:
    """How many rows are to be drawn, None where that is left open.

    Raises:
        InputError: It is no whole number, or negative.
    """
    if num_rows is None:
        return None
    if isinstance(num_rows, bool) or not isinstance(num_rows, Integral):
        raise InputError(f"num_rows={num_rows!r} must be a whole number, 0 or more")
    if num_rows < 0:
        raise InputError(f"num_rows={num_rows} rows cannot be drawn; give 0 or more")
    return int(num_rows)


def key_for(seed: Key | None) -> Key:
    """The seed, or a fresh one from the operating system where there is none."""
    if seed is not None:
        return seed
    from siloweave.privacy.mechanisms import OSEntropy

    return int.from_bytes(OSEntropy().bytes(16), "little")


class Outcome(ABC):
    """What every fit can do, whatever its model: sample, tell what it cost, and be kept."""

    info: Info
    budget: Budget
    private: bool
    settings: Mapping[str, Any]
    ledgers: Mapping[str, tuple[Entry, ...]]
    heads: Mapping[str, str]
    cost: Cost
    like: Table | None
    simulated: bool

    def __post_init__(self) -> None:
        """Under a guarantee, take the types of drawn columns from the schema alone."""
        if self.like is not None and self.info.guarantee in GUARANTEED:
            object.__setattr__(self, "like", outline(self.like, self.schema))

    def __repr__(self) -> str:
        allowed, spent = self.budget.epsilon, _up(self.epsilon)
        promise = f"epsilon {spent} of {allowed:g} at delta {self.budget.delta:g}"
        if not self.private:
            promise = f"NOT PRIVATE (epsilon {spent})" if isfinite(allowed) else "NOT PRIVATE"
        return (
            f"<fit of {self.info.title}: {len(self.schema.columns)} columns, "
            f"{len(self.ledgers)} {'party' if len(self.ledgers) == 1 else 'parties'}, {promise}>"
        )

    def _repr_html_(self) -> str:
        moved = sum(traffic.bytes_from_party for traffic in self.cost.parties.values())
        facts = {
            "method": self.info.title,
            "guarantee": self.info.guarantee if self.private else "NOT PRIVATE",
            "epsilon": f"{_up(self.epsilon)} of {self.budget.epsilon:g}",
            "delta": f"{self.budget.delta:g}",
            "parties": listed(list(self.ledgers)),
            "columns": listed(self.schema.names),
            "bytes from parties": f"{moved:,}",
            "seconds": f"{sum(self.cost.phases.values()):.1f}",
        }
        return html_table("a fit", ["", ""], facts.items())

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Facts about every column of a synthetic table."""

    @property
    def epsilon(self) -> float:
        """Largest epsilon over the parties, recomputed from their ledgers."""
        return max(self.epsilons.values(), default=0.0)

    @property
    def epsilons(self) -> dict[str, float]:
        """Epsilon of every party at the budget's delta, recomputed from its ledger."""
        return self.ledger.epsilons

    @property
    def ledger(self) -> Ledgers:
        """What every party released and what that cost, for people to read."""
        return Ledgers(self.ledgers, self.budget.delta)

    @abstractmethod
    def sample_table(
        self,
        num_rows: int | None = None,
        *,
        seed: Key | None = None,
        given: Any = None,
        balanced: str | bool = False,
    ) -> Table:
        """Synthetic rows as a `Table`; the arguments are those of `sample`."""

    def save(self, folder: Path | str) -> None:
        """Write the fit into a folder, as data only: nothing in it runs when it is read.

        Args:
            folder: A new or an empty one. One that holds a fit, of whatever kind, is replaced as a
                whole once everything is written.

        Raises:
            InputError: `folder` is a file, or holds what is no part of a fit; nothing is written.
        """
        with _in_place_of(Path(folder)) as stage:
            self.write_to(stage)

    def report(
        self,
        path: Path | str,
        *,
        audience: Literal["public", "owner"] = "public",
        title: str | None = None,
        data: Any = None,
    ) -> Path:
        """Write the report of this fit: one HTML file that opens offline.

        Args:
            path: The file; its name ends in .html.
            audience: ``"public"`` shows only what was paid for or comes from synthetic rows;
                ``"owner"`` shows statistics of real rows beside them, so store it where they are.
            title: Name of the study; the method's if None.
            data: Real rows for the owner's copy, as `fit` takes them.

        Returns:
            The file.

        Raises:
            InputError: `path` is no file of a page, or `audience` and `data` do not go together.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> from siloweave.algorithms.copulas import GaussianCopula
            >>> from siloweave.datasets import adult, adult_schema
            >>> model = GaussianCopula().fit(adult().take(range(300)), adult_schema())
            >>> with TemporaryDirectory() as folder:
            ...     model.report(Path(folder) / "report.html").stat().st_size > 10_000
            True
        """
        from siloweave.app.pages import write_report

        return write_report(self, path, audience=audience, title=title, data=data)

    @abstractmethod
    def write_to(self, folder: Path) -> None:
        """Write the fit's files into an empty folder."""

    def keep(self, folder: Path, kind: Callable[..., Kept], file: str, **own: Any) -> None:
        """Write what every kept fit has, and what is a kind's own, as `file` in `folder`."""
        moved = self.cost.parties.items()
        kept = kind(
            info=self.info,
            private=self.private,
            settings=dict(self.settings),
            ledgers=dict(self.ledgers),
            heads=dict(self.heads),
            traffic={n: (t.messages, t.bytes_to_party, t.bytes_from_party) for n, t in moved},
            rounds=self.cost.rounds,
            phases=dict(self.cost.phases),
            frame=self.like.frame if self.like else None,
            simulated=self.simulated,
            **own,
        )
        if self.like:
            write(self.like, folder / "like.parquet")
        (folder / file).write_bytes(msgspec.json.encode(kept))

    @abstractmethod
    def sample(
        self,
        num_rows: int | None = None,
        *,
        seed: Key | None = None,
        given: Any = None,
        balanced: str | bool = False,
    ) -> Any:
        """Synthetic rows as a frame of the kind that was fitted."""
