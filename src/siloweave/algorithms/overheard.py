"""What a coordinator learned from a run: its transcript, read as noisy marginals.

The view of an honest but curious coordinator (Bonawitz et al. 2017): sums under masks that
cancel, so of each cohort it has one noisy marginal and nothing of a party alone.

**Guarantee**: none of its own, and none is needed: everything here was paid for before it left a
party. `attacks.noisy_counts` measures how much it gives away, beside what the ledger allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from pathlib import Path

import msgspec

from siloweave.errors import WireError
from siloweave.federation import wire
from siloweave.federation.records import TranscriptRecord, read_transcript
from siloweave.methods.flaim.coordinator import chosen_by
from siloweave.methods.flaim.messages import Chosen, MeasureQueries, Select
from siloweave.models.estimate import Measurement
from siloweave.protocols.secure_sums import Count, Counts, summed
from siloweave.tables.codes import Clique, Domain

__all__ = ["Overheard", "overheard"]

Choices = dict[str, set[Clique]]
_SUMS: dict[str, type[Count | MeasureQueries]] = {
    "sum/count": Count,
    "flaim/measure": MeasureQueries,
}


@dataclass(frozen=True)
class Overheard:
    """A noisy marginal as the coordinator has it.

    Attributes:
        step: Step of the run.
        cohort: Who added noise to the sum.
        behind: Whose rows are in it: the cohort, or those of it who had chosen this marginal.
        measurement: Clique, noisy counts, and the standard deviation of their noise.
    """

    step: int
    cohort: tuple[str, ...]
    behind: tuple[str, ...]
    measurement: Measurement


def overheard(path: Path, domain: Domain) -> list[Overheard]:
    """Read a run's transcript as noisy marginals.

    Args:
        path: The transcript in a run's folder.
        domain: Attributes and sizes of the run.

    Returns:
        Every marginal of the run's own codes that the coordinator could compute, in its order.
        What was learned before the run is left out: its tables are of other codes.

    Raises:
        InputError: There is no transcript.
        WireError: It is damaged, or of another domain.
    """
    found: list[Overheard] = []
    chosen: Choices = {}
    for (_, step), answers in groupby(read_transcript(path), key=lambda h: (h.run, h.step)):
        heard = list(answers)
        tag = msgspec.msgpack.decode(heard[0].question)["type"]
        if tag == "flaim/select":
            chosen = _choices(heard) or chosen
        if tag in _SUMS:
            found += _marginals(step, heard, _SUMS[tag], chosen, domain)
    return found


def _choices(heard: list[TranscriptRecord]) -> Choices:
    """Which marginals each party named; nothing for central AIM, which asks one party alone."""
    try:
        request = wire.decode(heard[0].question, Select)
        replies = {h.party: wire.decode(h.answer, Chosen) for h in heard}
    except WireError:
        return {}
    return {party: chosen_by(party, reply, request) for party, reply in replies.items()}


def _marginals(
    step: int,
    heard: list[TranscriptRecord],
    kind: type[Count | MeasureQueries],
    chosen: Choices,
    domain: Domain,
) -> Iterator[Overheard]:
    request = wire.decode(heard[0].question, kind)
    if len(heard) < len(request.keys):  # the run was cut short; the masks do not cancel
        return
    cliques, times = _asked(request)
    absent = sorted({a for c in cliques for a in c} - set(domain.names))
    if absent:
        raise WireError(f"the transcript counts {', '.join(absent)}, which the domain lacks")
    replies = [(h.party, wire.decode(h.answer, Counts)) for h in heard]
    tables = summed(replies, [domain.shape(c) for c in cliques])
    sigma, cohort = request.share_sigma * sqrt(len(request.keys)), tuple(request.keys)
    for clique, table, k in zip(cliques, tables, times, strict=True):
        behind = cohort
        if isinstance(request, MeasureQueries):
            behind = tuple(name for name in cohort if clique in chosen.get(name, ()))
        yield Overheard(step, cohort, behind, Measurement(clique, table / k, sigma / k))


def _asked(request: Count | MeasureQueries) -> tuple[tuple[Clique, ...], tuple[int, ...]]:
    if isinstance(request, Count):
        return request.cliques, request.times or (1,) * len(request.cliques)
    return request.queries, (1,) * len(request.queries)
