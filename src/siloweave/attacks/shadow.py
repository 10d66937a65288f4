"""Membership attacks with shadow models: was this record among the rows that were fitted?

The adversary holds auxiliary rows of the same population and may run the generator on rows of its
own choice. It fits it many times with and many times without the record, learns to tell the two
apart from the synthetic tables alone, and is then judged on further tables. Houssiau et al.,
*TAPAS*, 2022; Stadler, Oprisanu and Troncoso, *Groundhog Day*, USENIX Security 2022.

Where this departs from TAPAS, and why:

* One round of fits serves every record: each is in exactly half of the sets, drawn independently
  of the others (as Carlini et al., *Membership inference attacks from first principles*, 2022), so
  ten records cost no more fits than one. With one record this is TAPAS's design.
* Odd numbers of sets are refused. TAPAS pairs them up with ``//2`` and loses the balance.
* Rows equal to a record are left out of the rows that sets are drawn from; otherwise a set that
  counts as without it may hold its twin.
* Numbers are scaled to 0 to 1 by default (`scaled`); TAPAS leaves that to the user.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from siloweave.attacks.groundhog import SummaryLayout, histogram_summary, naive_summary, nearness
from siloweave.attacks.shadow_risk import ShadowRisks, Split, judged
from siloweave.attacks.side_by_side import side_by_side
from siloweave.errors import InputError, SchemaError
from siloweave.progress import shows_progress
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Schema

__all__ = ["SHADOW_ATTACKS", "FitAndSample", "Sampler", "shadow_attack"]

# Every attack by its name in TAPAS: two of summaries, three of nearness.
SHADOW_ATTACKS = (
    *("NaiveGroundhog", "HistGroundhog"),
    *("ClosestDistance-Hamming", "ClosestDistance-L2", "KernelEstimator"),
)

FitAndSample = Callable[[Table, np.random.SeedSequence], Any]
"""Fits a generator to a `Table` and samples it: a `Table`, a frame or a path.

The key is a `numpy.random.SeedSequence`; a tool that wants a number takes
``int(generator(key).integers(2**31))``. Call ``table.to_native()`` for a frame.
"""


class _Synthesizer(Protocol):
    @property
    def fit(self) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class Sampler:
    """A synthesizer of ours as `fit_and_sample`.

    Args:
        synthesizer: Its settings: anything with ``fit(data, schema, *, budget, seed, noise)``
            whose result has ``sample_table(num_rows, seed=)``. A fit that adds no noise takes no
            `noise`.
        schema: Public facts about the columns, or an encoder.
        budget: Most that any row may cost; None for a generator without a guarantee.
        num_rows: Synthetic rows; as many as were fitted if None.
        parties: Parties that the rows are dealt to, one by one; 1 hands over one table.
        noise: "seeded" makes the attack repeatable: its fits are the adversary's own and nothing
            of them is released. "os" draws noise as a real run does.
    """

    synthesizer: _Synthesizer
    schema: Any
    budget: Any
    num_rows: int | None = None
    parties: int = 1
    noise: str = "seeded"

    def __call__(self, table: Any, key: np.random.SeedSequence) -> Table:
        """Fit to the rows and sample."""
        table = read(table)
        seed = int(generator(fold_in(key, "fit")).integers(2**31))
        parts = [table.take(range(i, table.num_rows, self.parties)) for i in range(self.parties)]
        fit = self.synthesizer.fit
        noise = {"noise": self.noise} if "noise" in signature(fit).parameters else {}
        data = parts if self.parties > 1 else table
        fitted = fit(data, self.schema, budget=self.budget, seed=seed, **noise)
        sampled: Table = fitted.sample_table(
            self.num_rows or table.num_rows, seed=fold_in(key, "sample")
        )
        return sampled


@dataclass(frozen=True, eq=False)
class _Shadow:
    """What every shadow set shares."""

    fit_and_sample: FitAndSample
    rows: Table
    pool: NDArray[np.int64]
    targets: NDArray[np.int64]
    layout: SummaryLayout
    training_size: int
    synthetic_size: int | None
    replace_target: bool
    key: Key


@dataclass(frozen=True)
class _Set:
    """One shadow set: which of the records it holds."""

    split: str
    number: int
    of: int
    members: tuple[bool, ...]

    def __str__(self) -> str:
        return f"{self.split} shadow set {self.number + 1} of {self.of}"


@dataclass(frozen=True, eq=False)
class _Seen:
    """What one synthetic table told: two summaries, and per record three measures of nearness."""

    naive: NDArray[np.float64]
    histogram: NDArray[np.float64]
    near: NDArray[np.float64]


@shows_progress
def shadow_attack(
    fit_and_sample: FitAndSample,
    auxiliary: Any,
    targets: Any,
    *,
    key: Key,
    attacks: Sequence[str] = SHADOW_ATTACKS,
    training_size: int = 1000,
    synthetic_size: int | None = None,
    train_sets: int = 100,
    test_sets: int = 100,
    replace_target: bool = True,
    schema: Schema | None = None,
    scaled: bool = True,
    confidence: float = 0.95,
    workers: int = 2,
    progress: Any = None,
) -> ShadowRisks:
    """Attack a generator that can be run at will, record by record.

    Args:
        fit_and_sample: The generator: called with a table and a key, returns synthetic rows.
        auxiliary: The adversary's rows: a `Table`, frame or path.
        targets: The records: places in `auxiliary`, or a table of the same columns.
        key: Which rows each set draws, the generator's keys and the forests.
        attacks: Which of `SHADOW_ATTACKS`.
        training_size: Rows that the generator is fitted to.
        synthetic_size: Synthetic rows that are looked at; all that come if None.
        train_sets: Fits to learn from, an even number.
        test_sets: Fits to be judged on, an even number.
        replace_target: A set that holds a record has it in place of another row, so that its size
            tells nothing; else it has a row more.
        schema: Kinds and bounds of the columns; detected from `auxiliary` if None.
        scaled: Whether numbers are scaled to their bounds before distances are taken.
        confidence: Of every interval.
        workers: Fits side by side, each in a process of its own; results do not depend on it.
        progress: Whether to show a bar (None: in a terminal and a notebook), or a function of
            a text and the share that is done.

    Returns:
        Risks per attack and record, the worst of them, and what an attacker that guesses would
        show with so many sets.

    Raises:
        InputError: An argument is out of range, or a fit failed; the message names the set.
        SchemaError, DataError: Tables do not go together.

    Example:
        >>> rows = Table.from_columns({"x": (np.arange(60.0), None)})
        >>> risks = shadow_attack(lambda table, key: table, rows, [59], training_size=20,
        ...                       train_sets=10, test_sets=10, key=0, workers=1,
        ...                       attacks=["ClosestDistance-L2"])
        >>> risks.worst.risk
        1.0
    """
    _check_attacks(attacks)
    rows, places = _records(read(auxiliary), targets)
    layout = SummaryLayout.of(rows, schema, scaled=scaled)
    pool = _pool(layout, rows, places)
    _check_sizes(len(pool), len(places), training_size, synthetic_size)
    splits = _design(fold_in(key, "members"), len(places), train_sets, test_sets)
    shared = _Shadow(
        *(fit_and_sample, rows, pool, places, layout),
        *(training_size, synthetic_size, replace_target, fold_in(key, "sets")),
    )
    seen = side_by_side(_see, shared, _jobs(splits), workers=workers, progress=progress)
    train = _split(splits["training"], seen[:train_sets])
    test = _split(splits["test"], seen[train_sets:])
    left_out = rows.num_rows - len(pool) - len(places)
    return judged(
        train, test, attacks, confidence=confidence, twins=left_out, key=fold_in(key, "forest")
    )


def _jobs(splits: Mapping[str, NDArray[np.bool_]]) -> list[_Set]:
    return [
        _Set(split, i, len(held), tuple(bool(m) for m in held[i]))
        for split, held in splits.items()
        for i in range(len(held))
    ]


def _split(members: NDArray[np.bool_], seen: Sequence[_Seen]) -> Split:
    summaries = [[s.naive for s in seen], [s.histogram for s in seen]]
    near = np.stack([s.near for s in seen], axis=-1)
    return Split(
        members,
        {name: np.stack(some) for name, some in zip(SHADOW_ATTACKS[:2], summaries, strict=True)},
        dict(zip(SHADOW_ATTACKS[2:], near, strict=True)),
    )


def _see(shared: _Shadow, job: _Set) -> _Seen:
    """Draw one shadow set, fit, sample, and keep only what the attacks look at."""
    key = fold_in(shared.key, job.split, job.number)
    rng = generator(fold_in(key, "rows"))
    drawn = rng.choice(shared.pool, size=shared.training_size, replace=False)
    inside = shared.targets[np.array(job.members, dtype=bool)]
    kept = drawn[len(inside) :] if shared.replace_target else drawn
    order = rng.permutation(np.concatenate([inside, kept]))
    made = read(shared.fit_and_sample(shared.rows.take(order), fold_in(key, "fit")))
    wanted = shared.synthetic_size or made.num_rows
    if made.num_rows < max(1, wanted):
        raise InputError(
            f"fit_and_sample returned {made.num_rows} rows, fewer than synthetic_size={wanted}; "
            "let it sample more"
        )
    if made.num_rows > wanted:
        made = made.take(range(wanted))
    layout = shared.layout
    synthetic, records = layout.read(made), layout.read(shared.rows.take(shared.targets))
    near = [nearness(synthetic, records.take([i]), layout) for i in range(records.num_rows)]
    return _Seen(
        naive_summary(synthetic, layout), histogram_summary(synthetic, layout), np.array(near).T
    )


def _records(auxiliary: Table, targets: Any) -> tuple[Table, NDArray[np.int64]]:
    """The auxiliary rows, with the records behind them if they came as a table."""
    if isinstance(targets, np.ndarray) or (
        isinstance(targets, Sequence) and not isinstance(targets, str)
    ):
        places = np.asarray(targets)
        if places.dtype.kind not in "iu" or places.ndim != 1 or not len(places):
            raise InputError(
                "targets must be places of rows in auxiliary (whole numbers, at least one) or a "
                "table of records"
            )
        if places.min() < 0 or places.max() >= auxiliary.num_rows:
            raise InputError(
                f"targets holds place {places.max() if places.min() >= 0 else places.min()}; "
                f"auxiliary has rows 0 to {auxiliary.num_rows - 1}"
            )
        if len(set(places.tolist())) < len(places):
            raise InputError("targets names a row twice; name each once")
        return auxiliary, places.astype(np.int64)
    records = read(targets)
    if not records.num_rows:
        raise InputError("targets has no rows; give at least one record to attack")
    if records.names != auxiliary.names:
        raise SchemaError(
            f"targets has the columns {', '.join(records.names)}, auxiliary has "
            f"{', '.join(auxiliary.names)}; give records of the same columns in the same order"
        )
    count = auxiliary.num_rows
    return _stacked(auxiliary, records), np.arange(count, count + records.num_rows)


def _stacked(first: Table, second: Table) -> Table:
    columns: dict[str, tuple[Any, Any]] = {}
    for name in first.names:
        kinds = {first.kind(name), second.kind(name)} - {"nothing"}
        if len(kinds) > 1 and kinds != {"numbers", "whole numbers"}:
            raise SchemaError(
                f"column {name!r} holds {first.kind(name)} in auxiliary and {second.kind(name)} "
                "in targets; convert one of them"
            )
        columns[name] = (
            np.concatenate([first.values(name), second.values(name)]),
            np.concatenate([first.missing(name), second.missing(name)]),
        )
    return Table.from_columns(columns, like=first)


def _pool(layout: SummaryLayout, rows: Table, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows that sets are drawn from: all that are equal to no record."""
    seen = layout.read(rows)
    free = np.ones(rows.num_rows, dtype=bool)
    for place in places:
        free &= ~seen.same(int(place))
    return np.flatnonzero(free)


def _design(
    key: Key, records: int, train_sets: int, test_sets: int
) -> Mapping[str, NDArray[np.bool_]]:
    """Which set holds which record: (sets, records), exactly half of every column."""
    splits = {}
    for name, split, count in (
        ("train_sets", "training", train_sets),
        ("test_sets", "test", test_sets),
    ):
        if count < 2 or count % 2:
            raise InputError(
                f"{name}={count} must be even and at least 2, so that exactly half of the sets "
                f"hold the record; use {max(2, count + 1)}"
            )
        half = np.arange(count) < count // 2
        rng = generator(fold_in(key, split))
        splits[split] = np.column_stack([rng.permutation(half) for _ in range(records)])
    return splits


def _check_attacks(attacks: Sequence[str]) -> None:
    unknown = [name for name in attacks if name not in SHADOW_ATTACKS]
    if unknown or not attacks:
        raise InputError(f"attacks={list(attacks)}: choose from {', '.join(SHADOW_ATTACKS)}")


def _check_sizes(pool: int, records: int, training_size: int, synthetic_size: int | None) -> None:
    if training_size < 2:
        raise InputError(f"training_size={training_size} must be at least 2")
    if synthetic_size is not None and synthetic_size < 1:
        raise InputError(f"synthetic_size={synthetic_size} must be at least 1, or None for all")
    if records > training_size // 2:
        raise InputError(
            f"{records} targets in sets of training_size={training_size} rows: at most half of the "
            "rows may be targets; attack fewer records, or raise training_size"
        )
    if training_size > pool:
        raise InputError(
            f"training_size={training_size} exceeds the {pool} auxiliary rows that are not targets "
            "or equal to one; give more auxiliary rows or lower training_size"
        )
