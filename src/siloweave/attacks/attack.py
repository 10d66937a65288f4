"""Every attack without shadow models, in one call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from siloweave.attacks.inference import inference, linkability
from siloweave.attacks.membership import (
    closest_records,
    membership,
    membership_part,
    worst_record,
)
from siloweave.attacks.neighbours import Ordinals, ordinals, row_ids, space
from siloweave.attacks.results import (
    ClosestRecords,
    Membership,
    RiskPart,
    Risks,
    WorstRecord,
)
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
from siloweave.tables.populations import differing_columns, population_words
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

FEWEST = 10
"""Rows that each table must have; and persons of train and control, where these are the unit."""

Known = Sequence[str] | tuple[Sequence[str], Sequence[str]]
"""Columns that an attacker knows, or the two sets of them that linkability tries to join."""


@dataclass(frozen=True, eq=False)
class _Job:
    """The tables and settings that every attack reads.

    Attributes:
        tables: The rows, side by side.
        values: The same rows as whole numbers.
        owners: Of train and control, whose each row is: numbers of units, from 0 in each table.
        most_units: How many units are attacked, at most.
        sides: Columns that are known, as the two sets that linkability joins.
        secrets: Columns that are guessed.
        key, confidence: See `attack`.
    """

    tables: Aligned
    values: Ordinals
    owners: dict[str, Ints]
    most_units: int
    sides: tuple[tuple[str, ...], tuple[str, ...]]
    secrets: tuple[str, ...]
    key: Key
    confidence: float

    @cached_property
    def units(self) -> dict[str, Ints]:
        """The units of training and control that are attacked."""
        units = {}
        for table, owners in self.owners.items():
            rng = generator(fold_in(self.key, "targets", table))
            order = rng.permutation(_num_units(owners))
            units[table] = np.sort(order[: self.most_units])
        return units

    @cached_property
    def targets(self) -> dict[str, Ints]:
        """All rows of the units that are attacked."""
        targets = {}
        for table, owners in self.owners.items():
            targets[table] = rows_of_units(owners, self.units[table])
        return targets

    @cached_property
    def row_per_unit(self) -> dict[str, Ints]:
        """One row of each unit that is attacked, drawn among hers.

        A person with many rows would otherwise count as often, and her guesses depend on each
        other.
        """
        row_per_unit = {}
        for table, rows in self.targets.items():
            shuffled = generator(fold_in(self.key, "rows", table)).permutation(rows)
            _, first_places = np.unique(self.owners[table][shuffled], return_index=True)
            row_per_unit[table] = np.sort(shuffled[first_places])
        return row_per_unit


@dataclass(eq=False)
class _Results:
    """The results of the attacks made so far."""

    parts: list[RiskPart] = field(default_factory=list)
    memberships: tuple[Membership, ...] = ()
    worst: WorstRecord | None = None
    closest: ClosestRecords | None = None
    not_measured: dict[str, str] = field(default_factory=dict)


def _num_units(owners: Ints) -> int:
    """Return how many units a table has, whose numbers run from 0 without gaps."""
    return int(owners.max()) + 1


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
    chosen_attacks = _chosen_attacks(attacks)
    whole("targets", targets, FEWEST)
    number("confidence", confidence, 0, 1, "()")
    rows = {
        "train": read(train),
        "synthetic": read(synthetic),
        "control": read(control),
    }
    owners = _owners(rows, unit, schema)
    compared = {name: without_ids(table, unit) for name, table in rows.items()}
    tables = align(compared, schema)
    _check_sizes(tables, owners, unit)

    job = _Job(
        tables=tables,
        values=ordinals(tables),
        owners=owners,
        most_units=targets,
        sides=_sides(tables, known),
        secrets=_secrets(tables, secret),
        key=seed,
        confidence=confidence,
    )
    notes = (
        *_unit_notes(rows, owners, unit, schema),
        *_notes(tables, owners, unit, targets),
        *_overlap(job.values, owners, allow_overlap),
    )

    # In the order of `ATTACKS`: the worst record reads the scores of membership.
    results = _Results()
    for place, name in enumerate(chosen_attacks):
        progress(name.replace("_", " "), place / len(chosen_attacks))
        _RUN[name](job, results)
    progress("done", 1.0)
    return Risks(
        parts=tuple(results.parts),
        memberships=results.memberships,
        worst=results.worst,
        closest=results.closest,
        not_measured=results.not_measured,
        notes=notes,
        rows=dict(tables.num_rows),
        confidence=confidence,
        seed=seed,
        unit=unit,
        units={name: _num_units(table_owners) for name, table_owners in owners.items()},
        caution=_population_caution(replace(tables, owners=owners)),
    )


def _population_caution(tables: Aligned) -> str:
    """Say that control rows are not of the training rows' population, if that can be seen."""
    differences = differing_columns(tables, "control", "train")
    text = population_words(differences, "control", "the training rows")
    if text:
        text += (
            ". Attacks then find that difference, whatever the synthetic table gives away: take "
            "training and control rows at random from one table."
        )
    return text


def _owners(
    rows: dict[str, Table], unit: str, schema: Schema | None
) -> dict[str, Ints]:
    """Number the unit that each row of training and control belongs to; no unit is in both tables.

    The numbers run from 0 in each table.
    """
    real_rows = {name: rows[name] for name in ("train", "control")}
    owners = owners_in(real_rows, unit, schema)
    if unit != ROW:
        refuse_shared(owners, "train", "control", unit)
    renumbered = {}
    for name, table_owners in owners.items():
        renumbered[name], _ = relabelled(table_owners)
    return renumbered


def _check_sizes(tables: Aligned, owners: dict[str, Ints], unit: str) -> None:
    """Refuse tables with so few rows or persons that every interval would be [0, 1]."""
    for table, count in tables.num_rows.items():
        if count < FEWEST:
            raise DataError(
                f"{table} has {count} rows; attacks need {FEWEST} or more to say anything"
            )
    for table, table_owners in owners.items():
        persons = _num_units(table_owners)
        if persons < FEWEST:
            raise DataError(
                f"{table} has rows of {persons} persons (unit={unit!r}); attacks need {FEWEST} or "
                "more to say anything"
            )


def _singling_out(job: _Job, results: _Results) -> None:
    """Single units out by predicates of one condition, and of several."""
    variants: tuple[Literal["univariate", "multivariate"], ...] = (
        "univariate",
        "multivariate",
    )
    for variant in variants:
        try:
            part = singling_out(
                job.values,
                variant,
                attacks=job.most_units,
                key=job.key,
                confidence=job.confidence,
                owners=job.owners,
            )
        except InputError as error:
            results.not_measured[f"singling_out ({variant})"] = str(error)
            continue
        results.parts.append(part)


def _linkability(job: _Job, results: _Results) -> None:
    """Link both sets of known columns of a row through the synthetic table."""
    left_columns, right_columns = job.sides
    if not left_columns or not right_columns:
        results.not_measured["linkability"] = "it needs two known columns or more"
        return
    left_space = space(job.tables, "gower", left_columns)
    right_space = space(job.tables, "gower", right_columns)
    results.parts += linkability(
        left_space, right_space, job.row_per_unit, confidence=job.confidence
    )


def _inference(job: _Job, results: _Results) -> None:
    """Guess each secret column of real rows from the other known columns."""
    known_columns = [name for side in job.sides for name in side]
    secrets = []
    for name in job.secrets:
        if not set(known_columns) - {name}:
            results.not_measured[f"inference ({name})"] = "no other column is known"
        elif _is_constant(job.values, name):
            results.not_measured[f"inference ({name})"] = (
                "it has the same value in every row"
            )
        else:
            secrets.append(name)
    if secrets:
        within = space(job.tables, "gower", known_columns)
        results.parts += inference(
            job.tables, within, secrets, job.row_per_unit, confidence=job.confidence
        )


def _membership(job: _Job, results: _Results) -> None:
    """Recognise training rows by scores, some of which compare them with further control rows."""
    # A row cannot be judged by a reference that it is part of.
    control_rows = np.arange(job.tables.num_rows["control"])
    reference = np.setdiff1d(control_rows, job.targets["control"])
    if len(reference) < FEWEST:
        reference = reference[:0]
        results.not_measured["membership (density ratio, classifier, neighbours)"] = (
            f"it needs {FEWEST} control rows or more that are not attacked themselves"
        )
    target_owners = {
        table: job.owners[table][rows] for table, rows in job.targets.items()
    }
    results.memberships = membership(
        job.tables,
        job.targets,
        reference,
        owners=target_owners,
        key=job.key,
        confidence=job.confidence,
    )
    results.parts += map(membership_part, results.memberships)


def _worst_record(job: _Job, results: _Results) -> None:
    """Judge whether any training row is given away."""
    # A row of each unit, to name her by.
    _, first_rows = np.unique(job.owners["train"], return_index=True)
    members = first_rows[job.units["train"]]
    results.worst = worst_record(
        job.values, results.memberships, members, job.confidence, job.owners
    )


def _closest_records(job: _Job, results: _Results) -> None:
    """Compare synthetic rows' distances to training rows with those to control rows."""
    results.closest = closest_records(
        job.tables, job.most_units, key=job.key, confidence=job.confidence
    )


_RUN: dict[str, Callable[[_Job, _Results], None]] = {
    "singling_out": _singling_out,
    "linkability": _linkability,
    "inference": _inference,
    "membership": _membership,
    "worst_record": _worst_record,
    "closest_records": _closest_records,
}
ATTACKS = tuple(_RUN)
"""What `attack` can measure."""


def _chosen_attacks(attacks: Sequence[str] | None) -> list[str]:
    """Return the names of the attacks that are made, in the order of `ATTACKS`."""
    if attacks is None:
        return list(ATTACKS)
    names = [attacks] if isinstance(attacks, str) else list(attacks)
    if not names or any(name not in ATTACKS for name in names):
        raise InputError(f"attacks={attacks!r} must name some of {', '.join(ATTACKS)}")
    return [name for name in ATTACKS if name in names]


def _unit_notes(
    rows: dict[str, Table], owners: dict[str, Ints], unit: str, schema: Schema | None
) -> list[str]:
    """Note how many persons there are, and how rows without an id were counted."""
    if unit == ROW:
        return []
    counts = [
        f"{_num_units(table_owners)} persons with {len(table_owners)} rows in {table}"
        for table, table_owners in owners.items()
    ]
    notes = [
        f"the unit is a person (unit={unit!r}): {' and '.join(counts)}; rates count persons"
    ]
    for table in owners:
        num_missing = ids_in(table, rows[table], unit, schema).count(None)
        if num_missing:
            notes.append(
                f"{num_missing} rows of {table} have no id: each is a person of its own"
            )
    return notes


def _notes(
    tables: Aligned, owners: dict[str, Ints], unit: str, targets: int
) -> list[str]:
    """Note tables with fewer units than targets, and columns that are left out."""
    unit_name = "rows" if unit == ROW else "persons"
    notes = []
    for table, table_owners in owners.items():
        num_units = _num_units(table_owners)
        if num_units < targets:
            notes.append(
                f"{table} has {num_units} {unit_name}, fewer than the {targets} targets asked for; "
                "all of them are attacked"
            )
    if tables.left_out:
        notes.append(f"columns of ids are left out: {', '.join(tables.left_out)}")
    return notes


def _overlap(values: Ordinals, owners: dict[str, Ints], allowed: bool) -> list[str]:
    """Compare how many control rows equal a training row with how many training rows do.

    A row of the same person is no twin: her rows may well be alike.
    """
    ids = row_ids(values)
    num_train = len(ids["train"])
    num_control = len(ids["control"])

    # How many units of the training table have each row.
    num_ids = 1 + max(int(table_ids.max()) for table_ids in ids.values())
    pairs = np.unique(np.stack([ids["train"], owners["train"]]), axis=1)
    holders = np.bincount(pairs[0], minlength=num_ids)

    # A control row's twins are all its holders; a training row is one holder itself.
    has_twin = holders[ids["control"]] > 0
    num_twins = int(has_twin.sum())
    share = float(has_twin.mean())
    expected = float((holders[ids["train"]] > 1).mean())

    # Rows of one person are no independent draws: what is counted are persons.
    pooled = (expected * num_train + share * num_control) / (num_train + num_control)
    inverse_sizes = sum(1 / _num_units(owners[table]) for table in ("train", "control"))
    error = float(np.sqrt(pooled * (1 - pooled) * inverse_sizes))
    text = (
        f"{num_twins} of {num_control} control rows ({share:.1%}) equal a training row; "
        f"{expected:.1%} of training rows equal another one"
    )
    if share - expected <= max(0.01, 5 * error):
        return [text] if num_twins else []
    if not allowed:
        raise DataError(
            f"control overlaps train: {text}. Take a control that the generator never saw, or "
            "pass allow_overlap=True (--allow-overlap) to measure risks that are then too low"
        )
    return [f"control overlaps train, so risks are too low: {text}"]


def _sides(tables: Aligned, known: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the known columns as the two sets that linkability joins."""
    if known is None:
        return tables.names[::2], tables.names[1::2]

    # Either names, of which every second goes to each side, or a list for each side.
    items = [known] if isinstance(known, str) else known
    is_name = [isinstance(item, str) for item in items]
    if all(is_name):
        sides = (tuple(items[::2]), tuple(items[1::2]))
    elif len(items) != 2 or any(is_name):
        raise InputError("known must be a list of columns, or two lists of columns")
    else:
        first, second = items
        sides = (tuple(first), tuple(second))

    names = [name for side in sides for name in side]
    if not names or len(set(names)) < len(names):
        raise InputError(f"known={known!r} must name columns, each of them once")
    for name in names:
        _check_column(tables, name, "known")
    return sides


def _secrets(tables: Aligned, secret: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns that are guessed, each once; all of them by default."""
    if secret is None:
        return tables.names
    names = (secret,) if isinstance(secret, str) else tuple(dict.fromkeys(secret))
    if not names:
        raise InputError(
            "secret is empty; name a column, or leave it out to guess all of them"
        )
    for name in names:
        _check_column(tables, name, "secret")
    return names


def _check_column(tables: Aligned, name: str, argument: str) -> None:
    """Refuse a name of no column, or of one that is not compared."""
    if name in tables.left_out:
        raise InputError(f"{argument}={name!r} holds ids, which are not compared")
    if name not in tables.names:
        raise InputError(
            f"{argument}={name!r} is no column; choose from {', '.join(tables.names)}"
        )


def _is_constant(values: Ordinals, name: str) -> bool:
    """Return whether a column has one value in all tables, a missing one included."""
    column = values.names.index(name)
    first = values.codes["train"][column, 0]
    return all(bool((codes[column] == first).all()) for codes in values.codes.values())
