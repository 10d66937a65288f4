"""Every attack without shadow models, in one call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from siloweave.attacks.inference import inference, linkability
from siloweave.attacks.membership import closest_records, membership, membership_part, worst_record
from siloweave.attacks.neighbours import Ordinals, ordinals, row_ids, space
from siloweave.attacks.results import ClosestRecords, Membership, RiskPart, Risks, WorstRecord
from siloweave.attacks.singling_out import singling_out
from siloweave.errors import DataError, InputError, number, whole
from siloweave.progress import shows_progress
from siloweave.tables.aligned import Aligned, align
from siloweave.tables.arrays import Ints
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.persons import (
    ROW,
    ids_in,
    owners_in,
    refuse_shared,
    relabelled,
    rows_of_units,
    without_ids,
)
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Schema

FEWEST = 10
"""Rows that each table must have; and persons of train and control, where these are the unit."""

Known = Sequence[str] | tuple[Sequence[str], Sequence[str]]
"""Columns that an attacker knows, or the two sets of them that linkability tries to join."""


@dataclass(frozen=True, eq=False)
class _Job:
    """What every attack reads.

    Attributes:
        tables, values: The rows.
        owners: Of train and control, whose each row is: numbers of units, from 0 in each table.
        asked: How many units are attacked.
        sides, secrets: Columns that are known, and that are guessed.
        key, confidence: See `attack`.
    """

    tables: Aligned
    values: Ordinals
    owners: dict[str, Ints]
    asked: int
    sides: tuple[tuple[str, ...], tuple[str, ...]]
    secrets: tuple[str, ...]
    key: Key
    confidence: float

    @cached_property
    def units(self) -> dict[str, Ints]:
        """Which units of training and control are attacked."""
        drawn = {}
        for table, owners in self.owners.items():
            rng = generator(fold_in(self.key, "targets", table))
            count = int(owners.max()) + 1
            drawn[table] = np.sort(rng.permutation(count)[: self.asked])
        return drawn

    @cached_property
    def targets(self) -> dict[str, Ints]:
        """All rows of the units that are attacked."""
        return {t: rows_of_units(owners, self.units[t]) for t, owners in self.owners.items()}

    @cached_property
    def one_each(self) -> dict[str, Ints]:
        """One row of each unit that is attacked, drawn among hers.

        A person with many rows would otherwise count as often, and her guesses depend on each
        other.
        """
        found = {}
        for table, rows in self.targets.items():
            mixed = generator(fold_in(self.key, "rows", table)).permutation(rows)
            first = np.unique(self.owners[table][mixed], return_index=True)[1]
            found[table] = np.sort(mixed[first])
        return found


@dataclass(eq=False)
class _Found:
    """What attacks have found so far."""

    parts: list[RiskPart] = field(default_factory=list)
    memberships: tuple[Membership, ...] = ()
    worst: WorstRecord | None = None
    closest: ClosestRecords | None = None
    not_measured: dict[str, str] = field(default_factory=dict)


@shows_progress
def attack(
    train: Any,
    synthetic: Any,
    *,
    control: Any,
    schema: Schema | None = None,
    unit: str = ROW,
    targets: int = 1000,
    attacks: Sequence[str] | None = None,
    known: Known | None = None,
    secret: str | Sequence[str] | None = None,
    seed: int = 0,
    allow_overlap: bool = False,
    confidence: float = 0.95,
    progress: Any = None,
) -> Risks:
    """Attack a synthetic table with every attack that needs no shadow models.

    A risk says how much better an attack does on training rows than on control rows: rows of the
    same population that the generator never saw. Without these a good generator would look like a
    leaking one, because what it has learnt about everybody helps to guess about anybody.

    Whether control rows are also training rows cannot be seen from tables alone, for equal rows
    may belong to different people. It is judged by numbers: among rows of one population a
    control row has a twin in training about as often as a training row has another one. Where it
    has one more often by a hundredth of all rows, and by five standard errors, this is refused.

    Where the unit is a person, her rows are attacked together. A membership score is that of her
    row with the highest one (`membership.joined` says why); a predicate singles out whose rows it
    fits and nobody else's; links and secrets are tried on one of her rows, drawn at random. Rates
    and intervals count persons, and no person may be in both tables.

    Args:
        train: Rows that the generator was fitted to: a `Table`, frame or path.
        synthetic: Rows that it made.
        control: Rows of the same population that it never saw, as many as `train` if possible.
        schema: Kinds of columns; read from `train` if not given.
        unit: ``row``, or the id column of `train` and `control` that says whose row each is; the
            synthetic table may lack it. It is compared with nothing else. A row without an id is a
            person of its own.
        targets: How many units, or predicates, each attack tries; all where there are fewer.
        attacks: Which of `ATTACKS`; all if not given.
        known: Columns the attacker knows, or two sets of these to link. If not given, all; these
            are linked by every second column.
        secret: Columns that the attacker guesses, from the other known ones; all if not given.
        seed: Of every draw: the same seed gives the same numbers.
        allow_overlap: Whether to continue if control rows seem to be training rows.
        confidence: Of every interval, in (0, 1).
        progress: As of `Synthesizer.fit`.

    Returns:
        Risks with intervals; what could not be measured is listed with the reason.

    Raises:
        SchemaError: Tables have different columns, or types that do not go together.
        DataError: A table has fewer than 10 rows or persons, a column has no value in one of them,
            the control seems to overlap the training rows, or shares a person with them.
        InputError: Another argument is outside its bounds or names no column.

    Example:
        >>> from siloweave.datasets import adult
        >>> rows = adult()
        >>> thirds = [rows.take(np.arange(i, 900, 3)) for i in range(3)]
        >>> risks = attack(thirds[0], thirds[0], control=thirds[2], attacks=["singling_out"])
        >>> risks.part("singling_out", "univariate").risk > 0.9
        True
    """
    wanted = _wanted(attacks)
    whole("targets", targets, FEWEST)
    number("confidence", confidence, 0, 1, "()")
    given = {"train": train, "synthetic": synthetic, "control": control}
    rows = {name: read(table) for name, table in given.items()}
    owners = _owners(rows, unit, schema)
    tables = align({name: without_ids(table, unit) for name, table in rows.items()}, schema)
    _check_sizes(tables, owners, unit)
    sides, secrets = _sides(tables, known), _secrets(tables, secret)
    job = _Job(tables, ordinals(tables), owners, targets, sides, secrets, seed, confidence)
    notes = (
        *_unit_notes(rows, owners, unit, schema),
        *_notes(tables, owners, unit, targets),
        *_overlap(job.values, owners, allow_overlap),
    )
    found = _Found()
    for place, name in enumerate(wanted):
        progress(name.replace("_", " "), place / len(wanted))
        _RUN[name](job, found)
    progress("done", 1.0)
    return Risks(
        parts=tuple(found.parts),
        memberships=found.memberships,
        worst=found.worst,
        closest=found.closest,
        not_measured=found.not_measured,
        notes=notes,
        rows=dict(tables.num_rows),
        confidence=confidence,
        seed=seed,
        unit=unit,
        units={name: int(found.max()) + 1 for name, found in owners.items()},
    )


def _owners(rows: dict[str, Table], unit: str, schema: Schema | None) -> dict[str, Ints]:
    """Whose each row of training and control is, numbered from 0 in each; no person is in both."""
    both = {name: rows[name] for name in ("train", "control")}
    owners = owners_in(both, unit, schema)
    if unit != ROW:
        refuse_shared(owners, "train", "control", unit)
    return {name: relabelled(found)[0] for name, found in owners.items()}


def _check_sizes(tables: Aligned, owners: dict[str, Ints], unit: str) -> None:
    for table, count in tables.num_rows.items():
        if count < FEWEST:
            raise DataError(
                f"{table} has {count} rows; attacks need {FEWEST} or more to say anything"
            )
    for table, found in owners.items():
        if (people := int(found.max()) + 1) < FEWEST:
            raise DataError(
                f"{table} has rows of {people} persons (unit={unit!r}); attacks need {FEWEST} or "
                "more to say anything"
            )


def _singling_out(job: _Job, found: _Found) -> None:
    settings: Any = {"attacks": job.asked, "key": job.key, "confidence": job.confidence}
    settings["owners"] = job.owners
    variants: tuple[Literal["univariate", "multivariate"], ...] = ("univariate", "multivariate")
    for variant in variants:
        try:
            found.parts.append(singling_out(job.values, variant, **settings))
        except InputError as error:
            found.not_measured[f"singling_out ({variant})"] = str(error)


def _linkability(job: _Job, found: _Found) -> None:
    left, right = job.sides
    if not left or not right:
        found.not_measured["linkability"] = "it needs two known columns or more"
        return
    one, two = (space(job.tables, "gower", side) for side in (left, right))
    found.parts += linkability(one, two, job.one_each, confidence=job.confidence)


def _inference(job: _Job, found: _Found) -> None:
    known = [name for side in job.sides for name in side]
    secrets = []
    for name in job.secrets:
        if not set(known) - {name}:
            found.not_measured[f"inference ({name})"] = "no other column is known"
        elif _constant(job.values, name):
            found.not_measured[f"inference ({name})"] = "it has the same value in every row"
        else:
            secrets.append(name)
    if secrets:
        within = space(job.tables, "gower", known)
        found.parts += inference(
            job.tables, within, secrets, job.one_each, confidence=job.confidence
        )


def _membership(job: _Job, found: _Found) -> None:
    reference = np.setdiff1d(np.arange(job.tables.num_rows["control"]), job.targets["control"])
    if len(reference) < FEWEST:
        reference = reference[:0]
        found.not_measured["membership (density ratio, classifier, neighbours)"] = (
            f"it needs {FEWEST} control rows or more that are not attacked themselves"
        )
    whose = {table: job.owners[table][rows] for table, rows in job.targets.items()}
    found.memberships = membership(
        job.tables, job.targets, reference, owners=whose, key=job.key, confidence=job.confidence
    )
    found.parts += map(membership_part, found.memberships)


def _worst_record(job: _Job, found: _Found) -> None:
    owners = job.owners["train"]
    first = np.unique(owners, return_index=True)[1]  # a row of each unit, to name her by
    found.worst = worst_record(
        job.values, found.memberships, first[job.units["train"]], job.confidence, job.owners
    )


def _closest_records(job: _Job, found: _Found) -> None:
    found.closest = closest_records(job.tables, job.asked, key=job.key, confidence=job.confidence)


_RUN: dict[str, Callable[[_Job, _Found], None]] = {
    "singling_out": _singling_out,
    "linkability": _linkability,
    "inference": _inference,
    "membership": _membership,
    "worst_record": _worst_record,
    "closest_records": _closest_records,
}
ATTACKS = tuple(_RUN)
"""What `attack` can measure."""


def _wanted(attacks: Sequence[str] | None) -> list[str]:
    if attacks is None:
        return list(ATTACKS)
    asked = [attacks] if isinstance(attacks, str) else list(attacks)
    if not asked or any(name not in ATTACKS for name in asked):
        raise InputError(f"attacks={attacks!r} must name some of {', '.join(ATTACKS)}")
    return [name for name in ATTACKS if name in asked]


def _unit_notes(
    rows: dict[str, Table], owners: dict[str, Ints], unit: str, schema: Schema | None
) -> list[str]:
    """How many persons there are, and what became of rows without an id."""
    if unit == ROW:
        return []
    counted = [
        f"{int(found.max()) + 1} persons with {len(found)} rows in {table}"
        for table, found in owners.items()
    ]
    notes = [f"the unit is a person (unit={unit!r}): {' and '.join(counted)}; rates count persons"]
    for table in owners:
        absent = sum(one is None for one in ids_in(table, rows[table], unit, schema))
        if absent:
            notes.append(f"{absent} rows of {table} have no id: each is a person of its own")
    return notes


def _notes(tables: Aligned, owners: dict[str, Ints], unit: str, targets: int) -> list[str]:
    counted = "rows" if unit == ROW else "persons"
    notes = [
        f"{table} has {int(found.max()) + 1} {counted}, fewer than the {targets} targets asked "
        "for; all of them are attacked"
        for table, found in owners.items()
        if int(found.max()) + 1 < targets
    ]
    if tables.left_out:
        notes.append(f"columns of ids are left out: {', '.join(tables.left_out)}")
    return notes


def _overlap(values: Ordinals, owners: dict[str, Ints], allowed: bool) -> list[str]:
    """Compare how many control rows equal a training row with how many training rows do.

    A row of the same person is no twin: her rows may well be alike.
    """
    ids = row_ids(values)
    rows = [len(ids["train"]), len(ids["control"])]
    size = 1 + max(int(found.max()) for found in ids.values())
    # How many units of the training table hold each row.
    pairs = np.unique(np.stack([ids["train"], owners["train"]]), axis=1)
    holders = np.bincount(pairs[0], minlength=size)
    twins = holders[ids["control"]] > 0
    count, share = int(twins.sum()), float(twins.mean())
    expected = float((holders[ids["train"]] > 1).mean())
    mean = (expected * rows[0] + share * rows[1]) / sum(rows)
    # Rows of one person are no independent draws: what is counted are persons.
    units = [int(owners[table].max()) + 1 for table in ("train", "control")]
    error = float(np.sqrt(mean * (1 - mean) * sum(1 / n for n in units)))
    text = (
        f"{count} of {rows[1]} control rows ({share:.1%}) equal a training row; {expected:.1%} of "
        "training rows equal another one"
    )
    if share - expected <= max(0.01, 5 * error):
        return [text] if count else []
    if not allowed:
        raise DataError(
            f"control overlaps train: {text}. Take a control that the generator never saw, or "
            "pass allow_overlap=True (--allow-overlap) to measure risks that are then too low"
        )
    return [f"control overlaps train, so risks are too low: {text}"]


def _sides(tables: Aligned, known: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if known is None:
        return tables.names[::2], tables.names[1::2]
    columns = [known] if isinstance(known, str) else known
    named = [isinstance(item, str) for item in columns]
    if all(named):
        sides = (tuple(columns[::2]), tuple(columns[1::2]))
    elif len(columns) != 2 or any(named):
        raise InputError("known must be a list of columns, or two lists of columns")
    else:
        sides = (tuple(columns[0]), tuple(columns[1]))
    every = [name for side in sides for name in side]
    if not every or len(set(every)) < len(every):
        raise InputError(f"known={known!r} must name columns, each of them once")
    for name in every:
        _column(tables, name, "known")
    return sides


def _secrets(tables: Aligned, secret: str | Sequence[str] | None) -> tuple[str, ...]:
    if secret is None:
        return tables.names
    names = (secret,) if isinstance(secret, str) else tuple(dict.fromkeys(secret))
    if not names:
        raise InputError("secret is empty; name a column, or leave it out to guess all of them")
    for name in names:
        _column(tables, name, "secret")
    return names


def _column(tables: Aligned, name: str, argument: str) -> None:
    if name in tables.left_out:
        raise InputError(f"{argument}={name!r} holds ids, which are not compared")
    if name not in tables.names:
        raise InputError(f"{argument}={name!r} is no column; choose from {', '.join(tables.names)}")


def _constant(values: Ordinals, name: str) -> bool:
    column = values.names.index(name)
    first = values.codes["train"][column, 0]
    return all(bool((codes[column] == first).all()) for codes in values.codes.values())
