"""Membership attacks with shadow models: was this record among the rows that were fitted?

The adversary holds auxiliary rows of the same population and may run the generator on rows of its
own choice. It fits it many times with and many times without the record, learns from one half of
the synthetic tables alone to separate the two cases, and is then judged on the other half. Houssiau
et al., *TAPAS*, 2022; Stadler, Oprisanu and Troncoso, *Groundhog Day*, USENIX Security 2022.

Where this departs from TAPAS, and why:

* One round of fits serves every record: each is in exactly half of the sets, drawn independently
  of the others (as Carlini et al., *Membership inference attacks from first principles*, 2022), so
  ten records cost no more fits than one. With one record this is TAPAS's design.
* Odd numbers of sets are refused. TAPAS pairs them up with ``//2`` and loses the balance.
* Rows equal to a record are left out of the rows that sets are drawn from; otherwise a set that
  counts as without it may hold its twin.
* A record may be a person, with all rows of one id: a set holds all of them or none, its size
  counts persons, and a score of nearness is that of the person's row to which the synthetic table
  comes nearest.
* Numbers are scaled to 0 to 1 by default (`scaled`); TAPAS leaves that to the user.

Fits are made side by side in processes; results do not depend on how many there are.
"""

from __future__ import annotations

import itertools
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import (
    Executor,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from siloweave.attacks.groundhog import (
    SummaryLayout,
    exposed_records,
    forest_scores,
    histogram_summary,
    naive_summary,
    nearness,
)
from siloweave.attacks.rates import (
    FALSE_POSITIVES,
    Operating,
    Rate,
    Roc,
    best_threshold,
    clopper_pearson,
    noise_attacker,
    roc,
)
from siloweave.errors import InputError, SchemaError, whole
from siloweave.progress import Progress, shows_progress, silent
from siloweave.report.text_table import TextTable, text_table
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.display import html_table
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.origin import Frame
from siloweave.tables.persons import (
    ROW,
    owners_in,
    refuse_shared,
    relabelled,
    without_ids,
)
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table
from siloweave.tables.write import frame_of

S = TypeVar("S")
J = TypeVar("J")
R = TypeVar("R")

# Every attack by its name in TAPAS.
_SUMMARY_ATTACKS = ("NaiveGroundhog", "HistGroundhog")
# In the order in which `nearness` returns its three measures.
_NEARNESS_ATTACKS = ("ClosestDistance-Hamming", "ClosestDistance-L2", "KernelEstimator")
SHADOW_ATTACKS = (*_SUMMARY_ATTACKS, *_NEARNESS_ATTACKS)

FitAndSample = Callable[[Table, np.random.SeedSequence], Any]
"""Fits a generator to a `Table` and samples it: a `Table`, a frame or a path.

The key is a `numpy.random.SeedSequence`; a tool that wants a number takes
``int(generator(key).integers(2**31))``. Call ``table.to_native()`` for a frame.
"""

# What a worker process was started with: its function and what all share.
_worker: list[Any] = []


@dataclass(frozen=True)
class _Failed:
    """The failure of a worker, in words, since not every exception survives the way back."""

    words: str


def side_by_side(
    work: Callable[[S, J], R],
    shared: S,
    jobs: Sequence[J],
    *,
    workers: int,
    progress: Progress = silent,
) -> list[R]:
    """Run all jobs, several at a time in processes of their own, each in one BLAS thread.

    `work` is called with `shared`, which is sent to a worker once, and one job; it must not depend
    on what ran before. Nothing is written to disk. What cannot be handed to another process (a
    lambda, a function typed into a session) is run in threads instead, with a warning; results are
    the same. With one worker, jobs run here. A job that fails is named by its text, and no further
    one starts. `progress` is called after each job, in this process.
    """
    whole("workers", workers, 1)
    numbers = itertools.count(1)

    def take(job: J, result: Callable[[], R | _Failed]) -> R:
        """Return a job's result and report that the job is done."""
        value = _result(str(job), result)
        progress(str(job), next(numbers) / len(jobs))
        return value

    if workers == 1 or len(jobs) < 2:
        with threadpool_limits(limits=1):
            return [take(job, partial(work, shared, job)) for job in jobs]

    # Workers limit their own BLAS; threads of this process share its limit.
    reason = _reason_against_processes(work, shared)
    call: Callable[[J], R | _Failed] = partial(work, shared) if reason else _run_job
    limits = threadpool_limits(limits=1) if reason else nullcontext()
    results: dict[int, R] = {}
    with limits, _pool(reason, min(workers, len(jobs)), work, shared) as pool:
        places = {pool.submit(call, job): place for place, job in enumerate(jobs)}
        try:
            for future in as_completed(places):
                place = places[future]
                results[place] = take(jobs[place], future.result)
        except BaseException:
            # Without this the pool would do all other jobs before the error is raised.
            pool.shutdown(cancel_futures=True)
            raise
    return [results[place] for place in range(len(jobs))]


def _pool(reason: str, workers: int, work: object, shared: object) -> Executor:
    """Return a pool of processes, or of threads where a function cannot go to other processes."""
    if not reason:
        # A forked process could hang on locks that JAX's threads hold at that moment.
        spawn = get_context("spawn")
        return ProcessPoolExecutor(
            workers, spawn, initializer=_start, initargs=(work, shared)
        )
    warnings.warn(
        f"{reason}, so the fits run in threads of this process, which is slower; define the "
        "function in a module file to run them in processes",
        stacklevel=4,
    )
    return ThreadPoolExecutor(workers)


def _result(name: str, result: Callable[[], R | _Failed]) -> R:
    """Return a job's result; if it failed, raise an error that names the job."""
    try:
        value = result()
    except BrokenProcessPool as error:
        raise InputError(
            f"a worker process died before {name} was done. If the call stands in a "
            "script, put it under `if __name__ == '__main__':`; if memory ran out, use fewer "
            "workers; workers=1 runs everything in this process"
        ) from error
    except Exception as error:
        raise InputError(f"{name}: {type(error).__name__}: {error}") from error
    if isinstance(value, _Failed):
        raise InputError(f"{name}: {value.words}")
    return value


def _reason_against_processes(work: object, shared: object) -> str:
    """Return why a function cannot be handed to another process; empty if it can."""
    from multiprocessing.reduction import ForkingPickler

    try:
        pickled = bytes(ForkingPickler.dumps((work, shared)))
    except Exception as error:  # noqa: BLE001  # objects refuse to travel in their own ways
        return f"fit_and_sample cannot be sent to another process ({error})"
    # A session has no file that a spawned process could import the function from.
    main = sys.modules.get("__main__")
    is_session = not getattr(main, "__file__", None)
    if b"__main__" in pickled and is_session:
        return "fit_and_sample was typed into a session, where another process cannot find it"
    return ""


def _start(work: object, shared: object) -> None:
    """Begin a worker process. Ctrl-C ends it at once and silently: the first process reports it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The limit ends with the object that holds it, so it is stored too.
    _worker[:] = [work, shared, threadpool_limits(limits=1)]


def _run_job(job: Any) -> Any:
    """Do one job in a worker process."""
    work, shared, _ = _worker
    try:
        return work(shared, job)
    except Exception as error:  # noqa: BLE001  # named and raised again on the other side
        return _Failed(f"{type(error).__name__}: {error}")


@dataclass(frozen=True, eq=False)
class _Half:
    """The views that attacks have of one half of the shadow sets.

    Attributes:
        members: (sets, records): which set has which record.
        summaries: Per attack (sets, length).
        near: Per attack (records, sets): scores, greater for nearer.
    """

    members: Bools
    summaries: Mapping[str, Floats]
    near: Mapping[str, Floats]


class ShadowRisk(msgspec.Struct, frozen=True):
    """The risk of one attack on one record.

    Attributes:
        attack: Its name.
        record: Which of the targets, from 0.
        risk: 2 * accuracy - 1 on the test sets, negative values as 0.
        low: Lower end of the interval of `raw`.
        high: Upper end.
        raw: The same as `risk`, negative values kept.
        accuracy: Share of test sets that are judged right, with its exact interval.
        threshold: From which score on a set is said to hold the record; chosen on training sets.
        curve: Receiver curve over the test sets, with AUC and its interval.
        at: Share of the sets with the record that are found at FPR 0.1% and 1%.
    """

    attack: str
    record: int
    risk: float
    low: float
    high: float
    raw: float
    accuracy: Rate
    threshold: float
    curve: Roc
    at: tuple[Operating, ...]


class ShadowRisks(msgspec.Struct, frozen=True):
    """The risks of all attacks on all records.

    Attributes:
        risks: One per attack and record.
        records: How many records.
        train_sets: Fits that thresholds and forests were learned from.
        test_sets: Fits that they are judged on, half of them with the record.
        twins: Auxiliary units that were left out because a row of theirs equals a record's.
        confidence: Of every interval.
        noise: Mean risk that a guessing attacker shows with so many test sets.
        noise_record: The same for the best of all attacks on one record.
        noise_worst: The same for the best of all attacks on all records: what `worst` shows where
            there is nothing to find. Attacks that agree with each other show less.
        worst_low: Lower end of the interval of `worst`, as wide as the best of so many needs
            (Bonferroni); above 0 only if something was found.
        worst_high: Upper end.
        unit: What a record is: ``row``, or the id column that says whose rows are whose.
    """

    risks: tuple[ShadowRisk, ...]
    records: int
    train_sets: int
    test_sets: int
    twins: int
    confidence: float
    noise: float
    noise_record: float
    noise_worst: float
    worst_low: float
    worst_high: float
    unit: str = ROW

    @property
    def attacks(self) -> tuple[str, ...]:
        """The names of the attacks, in order."""
        return tuple(dict.fromkeys(risk.attack for risk in self.risks))

    @property
    def worst(self) -> ShadowRisk:
        """The attack and record with the highest risk; ties go to the higher AUC."""
        return max(self.risks, key=lambda risk: (risk.raw, risk.curve.auc.value))

    def to_frame(self, kind: Frame | None = None) -> Any:
        """Return one row per attack and record.

        Args:
            kind: ``pandas``, ``polars`` or ``arrow``; pandas where it is installed, else polars, if
                None.
        """
        rows = []
        for risk in self.risks:
            row = msgspec.structs.asdict(risk)
            # A cell has a number: the value of a rate, and the area of a curve.
            row["accuracy"] = risk.accuracy.value
            row["auc"] = risk.curve.auc.value
            rows.append(row)
        names = (
            "attack",
            "record",
            "risk",
            "low",
            "high",
            "raw",
            "threshold",
            "accuracy",
            "auc",
        )
        return frame_of(rows, names, kind)

    def __repr__(self) -> str:
        worst = f"worst {self.worst.risk:.3f}"
        return f"ShadowRisks({len(self.attacks)} attacks on {self.records} records: {worst})"

    def _repr_html_(self) -> str:
        table = self._table()
        return html_table(repr(self), table.names, table.cells)

    def __str__(self) -> str:
        lines = self._table().lines()
        lines.append(
            f"noise: with {self.test_sets} test sets a guess shows a risk of {self.noise:.3f}, the "
            f"best of all attacks {self.noise_record:.3f} on a record and {self.noise_worst:.3f} "
            f"on the worst; found there {self.worst_low:.3f} to {self.worst_high:.3f}"
        )
        return "\n".join(lines)

    def _table(self) -> TextTable:
        """Return the risks of each record and attack."""
        rows = []
        for risk in self.risks:
            interval = f"{risk.low:.3f} to {risk.high:.3f}"
            rows.append((risk.attack, risk.record, f"{risk.risk:.3f}", interval))
        return text_table(("attack", ">record", ">risk", ">interval"), rows)

    def of(self, attack: str) -> tuple[ShadowRisk, ...]:
        """Return the risks of one attack, record by record."""
        return tuple(risk for risk in self.risks if risk.attack == attack)

    def mean(self, attack: str) -> float:
        """Return one attack's mean risk over records, negative ones included, and cut it at 0."""
        raw_risks = [risk.raw for risk in self.of(attack)]
        return max(0.0, float(np.mean(raw_risks)))


def _judged(
    train: _Half,
    test: _Half,
    attacks: Sequence[str],
    *,
    confidence: float,
    twins: int,
    key: Key,
    unit: str,
) -> ShadowRisks:
    """Learn thresholds and forests on one half of the shadow sets, and judge them on the other."""
    num_test_sets, num_records = test.members.shape
    distinct_attacks = list(dict.fromkeys(attacks))
    risks = []
    for attack in distinct_attacks:
        for record in range(num_records):
            attack_key = fold_in(key, attack, record)
            risks.append(_risk_of(attack, record, train, test, confidence, attack_key))

    # The best of so many risks is chosen by what it shows, so its interval is one of Bonferroni's.
    most_right = max(risk.accuracy.successes for risk in risks)
    worst_confidence = 1 - (1 - confidence) / len(risks)
    worst = clopper_pearson(int(most_right), num_test_sets, worst_confidence)
    return ShadowRisks(
        risks=tuple(risks),
        records=num_records,
        train_sets=len(train.members),
        test_sets=num_test_sets,
        twins=twins,
        confidence=confidence,
        noise=noise_attacker(num_test_sets),
        noise_record=noise_attacker(num_test_sets, len(distinct_attacks)),
        noise_worst=noise_attacker(num_test_sets, len(risks)),
        worst_low=2 * worst.low - 1,
        worst_high=2 * worst.high - 1,
        unit=unit,
    )


def _risk_of(
    attack: str, record: int, train: _Half, test: _Half, confidence: float, key: Key
) -> ShadowRisk:
    """Judge one attack on one record."""
    is_train_member = train.members[:, record]
    is_test_member = test.members[:, record]

    # Learn on the training sets which scores say that a set has the record.
    if attack in train.summaries:
        train_summaries = train.summaries[attack]
        test_summaries = test.summaries[attack]
        scores, threshold = forest_scores(
            train_summaries, is_train_member, test_summaries, key=key
        )
    else:
        train_scores = train.near[attack][record]
        threshold = best_threshold(
            train_scores[is_train_member], train_scores[~is_train_member]
        )
        scores = test.near[attack][record]

    # Judge on the test sets, half of which have it: a blind guess has an accuracy of 1/2.
    num_right = int(((scores >= threshold) == is_test_member).sum())
    accuracy = clopper_pearson(num_right, len(is_test_member), confidence)
    raw = 2 * accuracy.value - 1
    curve = roc(scores[is_test_member], scores[~is_test_member], confidence)
    return ShadowRisk(
        attack=attack,
        record=record,
        risk=max(0.0, raw),
        low=2 * accuracy.low - 1,
        high=2 * accuracy.high - 1,
        raw=raw,
        accuracy=accuracy,
        threshold=threshold,
        curve=curve,
        at=tuple(curve.tpr_at(fpr) for fpr in FALSE_POSITIVES),
    )


class _Synthesizer(Protocol):
    @property
    def fit(self) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class Sampler:
    """A synthesizer of ours as `fit_and_sample`.

    Args:
        synthesizer: Its settings: anything with ``fit(data, schema, *, budget, seed, noise)``
            whose result has ``sample_table(num_rows, seed=)``.
        schema: Public facts about the columns, or an encoder.
        budget: Most that any row may cost; None for a generator without a guarantee.
        num_rows: Synthetic rows; as many as were fitted if None.
        parties: Parties that the rows are dealt to, one by one; 1 hands over one table. Where the
            budget's unit is a person, all rows of one go to one party.
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
        """Fit the synthesizer to some rows, and draw synthetic rows from the fit."""
        table = read(table)
        seed = int(generator(fold_in(key, "fit")).integers(2**31))
        fitted = self.synthesizer.fit(
            self._parts(table),
            self.schema,
            budget=self.budget,
            seed=seed,
            noise=self.noise,
        )
        rows = self.num_rows or table.num_rows
        sampled: Table = fitted.sample_table(rows, seed=fold_in(key, "sample"))
        return sampled

    def _parts(self, table: Table) -> Table | list[Table]:
        """Deal the rows to parties, all rows of a person to one; one party has the table."""
        unit = getattr(self.budget, "unit", ROW)
        owners, _ = relabelled(owners_in({"the rows": table}, unit)["the rows"])
        if self.parties <= 1:
            return table
        party_of_row = owners % self.parties
        return [
            table.take(np.flatnonzero(party_of_row == party))
            for party in range(self.parties)
        ]


@dataclass(frozen=True, eq=False)
class _Shadow:
    """The facts that all shadow sets share.

    Attributes:
        rows: All rows, the records' among them.
        owners: The number of each row's unit.
        pool: Units that sets are drawn from.
        targets: Units that are attacked.
    """

    fit_and_sample: FitAndSample
    rows: Table
    owners: Ints
    pool: Ints
    targets: Ints
    layout: SummaryLayout
    training_size: int
    synthetic_size: int | None
    replace_target: bool
    key: Key


@dataclass(frozen=True)
class _Set:
    """One shadow set, by the records that are in it."""

    split: str
    number: int
    total: int
    members: tuple[bool, ...]

    def __str__(self) -> str:
        return f"{self.split} shadow set {self.number + 1} of {self.total}"


class _View(NamedTuple):
    """All that the attacks look at of one synthetic table.

    Attributes:
        naive: NaiveGroundhog's summary.
        histogram: HistGroundhog's summary.
        near: (measures, records): how near the table comes to each record.
    """

    naive: Floats
    histogram: Floats
    near: Floats


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
    unit: str = ROW,
    scaled: bool = True,
    confidence: float = 0.95,
    workers: int = 2,
    progress: Any = None,
) -> ShadowRisks:
    """Attack a generator that can be run at will, record by record.

    Args:
        fit_and_sample: The generator: called with a table and a key, returns synthetic rows.
        auxiliary: The adversary's rows: a `Table`, frame or path.
        targets: The records: places in `auxiliary`, a table of the same columns, or how many: the
            rows of `auxiliary` that stand out most (see `exposed_records`). Where the unit is a
            person: the persons of these rows.
        key: Which rows each set draws, the generator's keys and the forests.
        attacks: Which of `SHADOW_ATTACKS`.
        training_size: Rows, or persons, that the generator is fitted to.
        synthetic_size: Synthetic rows that are looked at; all that come if None.
        train_sets: Fits to learn from, an even number.
        test_sets: Fits to be judged on, an even number.
        replace_target: A set that holds a record has it in place of another row, so that its size
            shows nothing; else it has a row more.
        schema: Kinds and bounds of the columns; detected from `auxiliary` if None.
        unit: ``row``, or the id column of `auxiliary` that says whose row each is. The generator
            is given the column, and synthetic rows may lack it. A row without an id is a person
            of its own.
        scaled: Whether numbers are scaled to their bounds before distances are taken.
        confidence: Of every interval.
        workers: Fits side by side, each in a process of its own; results do not depend on it.
        progress: As of `Synthesizer.fit`.

    Raises:
        InputError: An argument is out of range, or a fit failed; the message names the set.
        SchemaError, DataError: Tables do not go together.

    Example:
        >>> rows = Table.from_columns({"x": (np.arange(60.0) / 2, None)})
        >>> risks = shadow_attack(lambda table, key: table, rows, [59], training_size=20,
        ...                       train_sets=10, test_sets=10, key=0, workers=1,
        ...                       attacks=["ClosestDistance-L2"])
        >>> risks.worst.risk
        1.0
    """
    if not attacks or any(name not in SHADOW_ATTACKS for name in attacks):
        raise InputError(
            f"attacks={list(attacks)}: choose from {', '.join(SHADOW_ATTACKS)}"
        )
    rows = read(auxiliary)
    if unit != ROW and not isinstance(targets, int | np.ndarray | Sequence):
        # Records that came as a table are persons of their own, or a set without them has them.
        tables = {"auxiliary": rows, "targets": read(targets)}
        refuse_shared(owners_in(tables, unit, schema), "auxiliary", "targets", unit)
    if isinstance(targets, int) and not isinstance(targets, bool):
        targets = _exposed(rows, targets, fold_in(key, "targets"), schema, unit)
    rows, places = _records(rows, targets)

    # Which units are attacked, and which others may be drawn.
    owners, _ = relabelled(owners_in({"auxiliary": rows}, unit, schema)["auxiliary"])
    layout = SummaryLayout.of(without_ids(rows, unit), schema, scaled=scaled)
    records = np.array(list(dict.fromkeys(owners[places].tolist())), dtype=np.int64)
    pool = _pool_of(layout, rows, owners, records)
    _check_sizes(len(pool), len(records), training_size, synthetic_size, unit)

    # Fit to every shadow set and look at what comes out.
    splits = _design(fold_in(key, "members"), len(records), train_sets, test_sets)
    shared = _Shadow(
        fit_and_sample=fit_and_sample,
        rows=rows,
        owners=owners,
        pool=pool,
        targets=records,
        layout=layout,
        training_size=training_size,
        synthetic_size=synthetic_size,
        replace_target=replace_target,
        key=fold_in(key, "sets"),
    )
    jobs = []
    for split, members in splits.items():
        for number, is_member in enumerate(members):
            jobs.append(_Set(split, number, len(members), tuple(is_member.tolist())))
    views = side_by_side(_view, shared, jobs, workers=workers, progress=progress)

    num_units = int(owners.max()) + 1
    return _judged(
        _half(splits["training"], views[:train_sets]),
        _half(splits["test"], views[train_sets:]),
        attacks,
        confidence=confidence,
        twins=num_units - len(pool) - len(records),
        key=fold_in(key, "forest"),
        unit=unit,
    )


def _exposed(
    rows: Table, count: int, key: Key, schema: Schema | None, unit: str
) -> Ints:
    """Return the places of the records that stand out most; with persons, one row of each."""
    if unit == ROW:
        return exposed_records(rows, count, key=key, schema=schema)
    owners, counts = relabelled(
        owners_in({"auxiliary": rows}, unit, schema)["auxiliary"]
    )
    if not 1 <= count < len(counts):
        raise InputError(
            f"targets={count} must be from 1 to {len(counts) - 1}, one less than there are persons"
        )
    compared = without_ids(rows, unit)
    facts = None if schema is None else schema.select(compared.names)
    ranked = exposed_records(
        compared, rows.num_rows - 1, key=key, schema=facts, owners=owners
    )

    # The first row of each person, most exposed first: the row that makes her stand out.
    _, first_ranks = np.unique(owners[ranked], return_index=True)
    return ranked[np.sort(first_ranks)[:count]]


def _half(members: Bools, views: Sequence[_View]) -> _Half:
    """Gather the views of half of the shadow sets, by attack."""
    naive = np.stack([view.naive for view in views])
    histogram = np.stack([view.histogram for view in views])
    near = np.stack([view.near for view in views], axis=-1)  # (measures, records, sets)
    summaries = dict(zip(_SUMMARY_ATTACKS, (naive, histogram), strict=True))
    return _Half(members, summaries, dict(zip(_NEARNESS_ATTACKS, near, strict=True)))


def _view(shared: _Shadow, job: _Set) -> _View:
    """Draw one shadow set, fit and sample, and return what the attacks look at."""
    key = fold_in(shared.key, job.split, job.number)
    order = _training_rows(shared, job, generator(fold_in(key, "rows")))
    training_rows = shared.rows.take(order)
    sample = read(shared.fit_and_sample(training_rows, fold_in(key, "fit")))

    # At least one row, and of a longer sample the first ones.
    size = shared.synthetic_size or sample.num_rows
    if sample.num_rows < max(1, size):
        raise InputError(
            f"fit_and_sample returned {sample.num_rows} rows, fewer than synthetic_size={size}; "
            "let it sample more"
        )
    if sample.num_rows > size:
        sample = sample.take(range(size))

    layout = shared.layout
    synthetic = layout.read(sample)
    near = []
    for record in shared.targets:
        record_places = np.flatnonzero(shared.owners == record)
        record_rows = layout.read(shared.rows.take(record_places))
        by_row = [
            nearness(synthetic, record_rows.take([i]), layout)
            for i in range(record_rows.num_rows)
        ]
        near.append(np.max(by_row, axis=0))  # the row that gives the person away
    return _View(
        naive=naive_summary(synthetic, layout),
        histogram=histogram_summary(synthetic, layout),
        near=np.array(near).T,
    )


def _training_rows(shared: _Shadow, job: _Set, rng: np.random.Generator) -> Ints:
    """Draw the rows of one shadow set: its records' and those of units from the pool."""
    drawn_units = rng.choice(shared.pool, size=shared.training_size, replace=False)
    records = shared.targets[np.array(job.members, dtype=bool)]
    # A record takes the place of a unit, so that the size of a set shows nothing.
    others = drawn_units[len(records) :] if shared.replace_target else drawn_units
    units = rng.permutation(np.concatenate([records, others]))
    return _rows_in_order(shared.owners, units)


def _rows_in_order(owners: Ints, units: Ints) -> Ints:
    """Return the rows of some units, unit after unit."""
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], units)
    ends = np.searchsorted(owners[order], units, side="right")
    rows_by_unit = [order[start:end] for start, end in zip(starts, ends, strict=True)]
    return np.concatenate(rows_by_unit)


def _records(auxiliary: Table, targets: Any) -> tuple[Table, Ints]:
    """Return the auxiliary rows, and the places of the records to attack among them.

    Records that came as a table are put behind the other rows.
    """
    is_list = isinstance(targets, Sequence) and not isinstance(targets, str)
    if is_list or isinstance(targets, np.ndarray):
        places = np.asarray(targets)
        _check_places(places, auxiliary.num_rows)
        return auxiliary, places.astype(np.int64)

    records = read(targets)
    if not records.num_rows:
        raise InputError("targets has no rows; give at least one record to attack")
    if records.names != auxiliary.names:
        raise SchemaError(
            f"targets has the columns {', '.join(records.names)}, auxiliary has "
            f"{', '.join(auxiliary.names)}; give records of the same columns in the same order"
        )
    first = auxiliary.num_rows
    return _stacked(auxiliary, records), np.arange(first, first + records.num_rows)


def _check_places(places: NDArray[Any], num_rows: int) -> None:
    """Refuse places at which there is no row, or that name a row twice."""
    if places.dtype.kind not in "iu" or places.ndim != 1 or not len(places):
        raise InputError(
            "targets must be places of rows in auxiliary (whole numbers, at least one), a "
            "table of records, or how many records"
        )
    if places.min() < 0 or places.max() >= num_rows:
        outside = places.max() if places.min() >= 0 else places.min()
        raise InputError(
            f"targets holds place {outside}; auxiliary has rows 0 to {num_rows - 1}"
        )
    if len(set(places.tolist())) < len(places):
        raise InputError("targets names a row twice; name each once")


def _stacked(first: Table, second: Table) -> Table:
    """Append the rows of a table to those of another one with the same columns."""
    columns: dict[str, tuple[Any, Any]] = {}
    for name in first.names:
        kinds = {first.kind(name), second.kind(name)} - {"nothing"}
        if len(kinds) > 1 and kinds != {"numbers", "whole numbers"}:
            raise SchemaError(
                f"column {name!r} holds {first.kind(name)} in auxiliary and {second.kind(name)} "
                "in targets; convert one of them"
            )
        values = np.concatenate([first.values(name), second.values(name)])
        is_missing = np.concatenate([first.missing(name), second.missing(name)])
        columns[name] = (values, is_missing)
    return Table.from_columns(columns, like=first)


def _pool_of(layout: SummaryLayout, rows: Table, owners: Ints, records: Ints) -> Ints:
    """Return the units from which sets are drawn: those without a row that equals a record's."""
    coded_rows = layout.read(rows)
    is_free = np.ones(int(owners.max()) + 1, dtype=bool)
    is_free[records] = False
    for place in np.flatnonzero(np.isin(owners, records)):
        twins = coded_rows.same(int(place))
        is_free[owners[twins]] = False
    return np.flatnonzero(is_free)


def _design(
    key: Key, records: int, train_sets: int, test_sets: int
) -> Mapping[str, Bools]:
    """Draw which shadow set has which record, so that exactly half of the sets have each.

    The result is (sets, records), by split: "training" and "test".
    """
    splits = {}
    counts = {"training": ("train_sets", train_sets), "test": ("test_sets", test_sets)}
    for split, (name, count) in counts.items():
        if count < 2 or count % 2:
            raise InputError(
                f"{name}={count} must be even and at least 2, so that exactly half of the sets "
                f"hold the record; use {max(2, count + 1)}"
            )
        is_first_half = np.arange(count) < count // 2
        rng = generator(fold_in(key, split))
        # Each record has a draw of its own: no record's sets say anything of another's.
        splits[split] = np.column_stack(
            [rng.permutation(is_first_half) for _ in range(records)]
        )
    return splits


def _check_sizes(
    pool: int, records: int, training_size: int, synthetic_size: int | None, unit: str
) -> None:
    """Refuse sets that the pool cannot fill, and sets that are mostly records."""
    unit_name = "rows" if unit == ROW else "persons"
    whole("training_size", training_size, 2)
    if synthetic_size is not None:
        whole("synthetic_size", synthetic_size, 1)
    if records > training_size // 2:
        raise InputError(
            f"{records} targets in sets of training_size={training_size} {unit_name}: at most half "
            f"of the {unit_name} may be targets; attack fewer records, or raise training_size"
        )
    if training_size > pool:
        raise InputError(
            f"training_size={training_size} exceeds the {pool} auxiliary {unit_name} that are not "
            "targets or equal to one; give more auxiliary rows or lower training_size"
        )
