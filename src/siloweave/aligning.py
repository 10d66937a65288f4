"""The ``[alignment]`` of a study: common rows are found before parties with different columns run.

**Guarantee** (none): as algorithms/align_rows.py. Ledgers of an alignment lie in the run's folder
beside those of the method, in ``alignment/parties``, since no bound covers who is in the common
table; run.json, the reports, ``check`` and ``siloweave ledger`` say so and name them.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from siloweave.errors import DataError, InputError, RosterError
from siloweave.files import write_text
from siloweave.methods import split_columns_of
from siloweave.privacy.ledger import Ledger
from siloweave.summaries import (
    ALIGNED,
    AlignmentSummary,
    check_receipts,
    ledger_files,
    party_summaries,
)
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.algorithms.align_rows import AlignedRows
    from siloweave.report import Record
    from siloweave.study import Study

__all__ = ["aligned", "aligned_before", "check_alignment", "recorded", "uncovered"]

_LEAST = 2  # common rows that a method needs


def check_alignment(study: "Study", synth: Any, columns: Mapping[str, tuple[str, ...]]) -> None:
    """Check that a study with an alignment can be aligned, before a row is read.

    Args:
        study: The study.
        synth: Its method.
        columns: Names of every party's columns.

    Raises:
        InputError: The method takes rows that are not aligned.
        DataError: A party lacks an id column.
        RosterError: There is one party alone.
    """
    if study.alignment is None:
        return
    if not split_columns_of(synth):
        raise InputError(
            f"[alignment] is for parties that hold different columns, and {synth.info.title} takes "
            "rows of different people. Leave [alignment] out, or use a method for split columns."
        )
    if len(columns) < 2:
        raise RosterError(
            "[alignment] needs two [[parties]] or more; one has nobody to align with."
        )
    for name, names in columns.items():
        for one in study.alignment.on:
            if one not in names:
                raise DataError(
                    f"party {name!r} has no column {one!r}, which [alignment] on names; it has "
                    f"{', '.join(names)}. Name the id columns alike in all files."
                )


def aligned(
    study: "Study",
    schema: Schema,
    tables: Mapping[str, Table],
    progress: Callable[[str, float], None],
) -> tuple[dict[str, Table], AlignmentSummary]:
    """Align the parties' tables, or go on with an alignment that was cut short.

    Args:
        study: The study.
        schema: Of all columns.
        tables: Every party's rows.
        progress: Called with a text and the share that is done.

    Returns:
        The common rows without the ids that they were found by, unless these are no ids in the
        schema; and what it took.

    Raises:
        DataError: Ids are missing or repeated, or fewer than two rows are common to all.
    """
    from siloweave.algorithms.align_rows import align_rows

    asked = study.alignment
    assert asked is not None
    found = align_rows(
        tables,
        asked.on,
        rules=asked.rules,
        missing=asked.missing,
        duplicates=asked.duplicates,
        most=asked.most,
        folder=study.folder / ALIGNED,
        run=study.run_name,
        progress=progress,
    )
    if found.report.common < _LEAST:
        raise DataError(
            f"{found.report.common} row is common to all parties; a study needs {_LEAST} or more. "
            "Check the rules in [alignment], and that the files are about the same people."
        )
    _note(study, found)
    gone = {name for name in asked.on if name in schema.names and schema[name].kind == "id"}
    kept = {
        name: table.select([one for one in table.names if one not in gone])
        for name, table in found.tables.items()
    }
    return kept, _summary(study, found)


def _summary(study: "Study", found: "AlignedRows") -> AlignmentSummary:
    folder, delta = study.folder / ALIGNED, study.terms().delta
    parties = party_summaries(folder, study.names, found.cost.parties, delta)
    return AlignmentSummary(found.cost.rounds, sum(found.cost.phases.values()), parties)


def _note(study: "Study", found: "AlignedRows") -> None:
    """Write down what the alignment found and moved; all of it was released."""
    moved = {
        name: {"bytes_sent": one.bytes_from_party, "bytes_received": one.bytes_to_party}
        for name, one in found.cost.parties.items()
    }
    facts = {**asdict(found.report), "questions": found.cost.rounds, "parties": moved}
    text = msgspec.json.format(msgspec.json.encode(facts), indent=2).decode()
    write_text(study.folder / ALIGNED / "alignment.json", text + "\n")


def aligned_before(study: "Study") -> dict[str, int]:
    """How many releases of this run's alignment each party's ledger holds."""
    files: dict[str, Path] = ledger_files(study.folder / ALIGNED)
    check_receipts(study.folder / ALIGNED, files)
    return {
        name: sum(entry.run == study.run_name for entry in Ledger.read(path).entries)
        for name, path in files.items()
    }


def recorded(study: "Study", record: "Record", found: AlignmentSummary | None) -> "Record":
    """The record of a run, with what its alignment released and took, if there was one."""
    if found is None:
        return record
    from siloweave.report.record import AlignmentCost, Phase

    return msgspec.structs.replace(
        record,
        warnings=(*record.warnings, uncovered(study)),
        phases=(Phase(name="alignment", seconds=found.seconds), *record.phases),
        alignment=tuple(
            AlignmentCost(
                name=one.name,
                releases=one.releases,
                bytes_sent=one.bytes_sent,
                bytes_received=one.bytes_received,
                messages=one.messages,
                ledger_head=one.ledger_head,
            )
            for one in found.parties
        ),
    )


def uncovered(study: "Study") -> str:
    """What no epsilon of a study with an alignment covers, in a sentence."""
    on = ", ".join(study.alignment.on) if study.alignment else ""
    return (
        f"Which people are in the common table was found by comparing {on}: parties know which of "
        "their rows all of them have, and how many ids each brought. No epsilon covers that"
    )
