"""Coordinator attacks: what a run's transcript gives away about single rows.

A run with a folder stores all that its coordinator received. This file reads that transcript as an
honest but curious coordinator would (Bonawitz et al. 2017, "Practical secure aggregation for
privacy-preserving machine learning"): of a sum under masks it has one noisy marginal and nothing of
a party alone, of a run of SiloFuse it has latents of all rows.

* `attack_run` asks of every noisy marginal how much likelier it is with a row than without, for an
  adversary who knows all other rows of the study (Homer et al. 2008, "Resolving individuals
  contributing trace amounts of DNA to highly complex mixtures", asked the same of exact counts).
  `attacks.noisy_counts` does so, and shows the result beside what the ledger allows.
* `invert_run` fits an inverse of encoders to a few pairs of latent and row, and counts the cells
  that come back, by `attacks.inversion`. Shankar et al. 2024 ("SiloFuse", section 4.3) argue that
  latents cannot be inverted while encoders are private. The coordinator, though, needs few pairs:
  some rows that leaked, or pairs that it makes itself, since it draws latents and, where columns
  are shared, is given the rows that they decode to.

**Guarantee**: it gives none and needs none: it reads releases that were paid for, and real rows to
judge the guesses. Results are for the owners to see, not to publish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from siloweave.attacks.inversion import InversionRisk, Inverter, invert
from siloweave.attacks.noisy_counts import NoisyCountsRisk, transcript_attack
from siloweave.core.fit import Fit
from siloweave.core.model import MarginalModel
from siloweave.core.party import coded_rows, named_parties
from siloweave.core.settings import TRANSCRIPT, settings_of
from siloweave.errors import InputError, RosterError, WireError, whole
from siloweave.federation import messages
from siloweave.federation.dropouts import MaskPlan
from siloweave.federation.expected import WORDS, CheckedReply
from siloweave.federation.messages import Recovery
from siloweave.federation.records import TranscriptRecord, read_transcript
from siloweave.methods.distaim.coordinator import opened_tables as opened_by_servers
from siloweave.methods.distaim.messages import CountShare, OpenTables, ServerWords
from siloweave.methods.distaim.party import places_of
from siloweave.methods.flaim.coordinator import chosen_by
from siloweave.methods.flaim.messages import Chosen, MeasureQueries, Select
from siloweave.methods.registry import load
from siloweave.methods.silofuse.messages import GRID, Coded, Noised
from siloweave.models.estimate import Measurement
from siloweave.privacy.accountants import of_one_person
from siloweave.privacy.ledger import Ledger
from siloweave.protocols.columns import JoinedGenerator
from siloweave.protocols.secure_marginals.coordinator import opened_tables
from siloweave.protocols.secure_marginals.messages import (
    MeasureTables,
    ShareRows,
    Tables,
)
from siloweave.protocols.secure_marginals.plan import SecurePlan
from siloweave.protocols.secure_sums import (
    Count,
    Counts,
    MaskShares,
    opened_sum,
    summed,
)
from siloweave.protocols.two_rounds import TwoRoundSettings
from siloweave.statistics.marginals import marginal
from siloweave.tables.arrays import Matrix
from siloweave.tables.codes import Clique, Codes, Domain
from siloweave.tables.joining import beside
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.persons import owners_in, relabelled
from siloweave.tables.read import read
from siloweave.tables.table import Table

FEWEST = 8
"""Rows that are attacked at a party, at least."""
EVERYONE = "all parties together"
"""Whose rows are attacked where columns are split."""

_Message = TypeVar("_Message", bound=msgspec.Struct)

# Questions that are answered with masked counts, by their tag.
_SUMS: dict[str, type[Count | MeasureQueries]] = {
    "sum/count": Count,
    "flaim/measure": MeasureQueries,
}
# Settings about parties that may vanish, where a method has them, and their defaults.
_VANISHING = {"tolerated": 1, "dropouts": 0}
# Inverses that are fitted for the owners' report, which must not take minutes.
_QUICK: tuple[Inverter, ...] = ("ridge", "neighbours")
# How many rows leaked, pairs are made and rows are judged for that report.
_QUICK_LEAKED = 50
_QUICK_PAIRS = 500
_QUICK_JUDGED = 500


# The transcript view


@dataclass(frozen=True)
class NoisyMarginal:
    """A noisy marginal of a run, as the coordinator can compute it.

    Attributes:
        cohort: Who added noise to the sum.
        contributors: Whose rows are in it: the cohort, or those of it who chose this marginal.
        measurement: Clique, noisy counts, and the standard deviation of their noise.
    """

    cohort: tuple[str, ...]
    contributors: tuple[str, ...]
    measurement: Measurement


class _Opening(NamedTuple):
    """The plan and the shares that open a masked sum of which some parties may vanish.

    Attributes:
        plan: Who masks with whom in the sum, and how many of them may vanish.
        shares: The parties' shares, by party.
    """

    plan: MaskPlan
    shares: Mapping[str, MaskShares]


def noisy_marginals(
    path: Path, domain: Domain, *, tolerated: int = 1, dropouts: int = 0
) -> list[NoisyMarginal]:
    """Read every marginal that a coordinator could compute in a run of split rows, in its order.

    What was learned before the run is left out: its tables are of other codes. A transcript that is
    not there raises `InputError`; one that is damaged, or of another domain, `WireError`. Where
    parties may vanish, `tolerated` and `dropouts` are those of the run.
    """
    marginals: list[NoisyMarginal] = []
    choices: Mapping[str, set[Clique]] = {}
    previous: list[TranscriptRecord] = []
    for tag, records in _steps(path):
        # Choices hold until the parties choose again.
        if tag == "flaim/select":
            choices = _choices(records) or choices
        if tag in _SUMS:
            marginals += _marginals(records, _SUMS[tag], choices, domain)

        # A sum whose masks are opened afterwards, in the step that follows it.
        counted = _SUMS.get(_tag(previous))
        if tag == "sum/open" and counted is not None:
            names = _question(previous, counted).keys
            plan = MaskPlan.of(names, tolerated, dropouts)
            shares = _answers(records, MaskShares)
            opening = _Opening(plan, shares)
            marginals += _marginals(previous, counted, choices, domain, opening)
        previous = records
    return marginals


def _steps(path: Path) -> Iterator[tuple[str, list[TranscriptRecord]]]:
    """Yield the kind of question and the answers of every step, in their order."""
    for _, answers in groupby(read_transcript(path), key=lambda r: (r.run, r.step)):
        records = list(answers)
        yield _tag(records), records


def _tag(records: Sequence[TranscriptRecord]) -> str:
    """Return the type of the question that records answer, as a text; empty for no records."""
    if not records:
        return ""
    question = msgspec.msgpack.decode(records[0].question)
    return str(question["type"])


def _question(records: Sequence[TranscriptRecord], kind: type[_Message]) -> _Message:
    """Decode the question that records answer; raises WireError if it is of another kind."""
    return messages.decode(records[0].question, kind)


def _answers(
    records: Sequence[TranscriptRecord], kind: type[_Message]
) -> dict[str, _Message]:
    """Decode all answers, by party; raises WireError if one is of another kind."""
    return {record.party: messages.decode(record.answer, kind) for record in records}


def shared_counts(path: Path, fitted: Fit) -> list[NoisyMarginal]:
    """Read every marginal that the coordinator could open in a run of DistAIM, in its order.

    Errors are those of `noisy_marginals`.
    """
    model: Any = fitted.model
    domain = model.encoder.domain
    places = places_of(domain, model.workload)
    size = max(place.stop for place in places.values())

    marginals: list[NoisyMarginal] = []
    joined: list[str] = []
    # Shares of the same counts add up modulo 2^32.
    sums = np.zeros(size, dtype=np.uint32)
    for tag, records in _steps(path):
        if tag == "distaim/share":
            joined += [record.party for record in records]
            for record in records:
                words = messages.decode(record.answer, CountShare).words.value
                sums += CheckedReply(record.party).array(
                    "words", words, WORDS, sums.shape
                )
        if tag == "distaim/open":
            request = _question(records, OpenTables)
            # Without the answers of all servers nothing opens: the run was cut short.
            if len(records) < len(set(request.servers)):
                continue
            replies = _answers(records, ServerWords)
            measurements = opened_by_servers(domain, places, sums, request, replies)
            parties = tuple(joined)
            marginals += [NoisyMarginal(parties, parties, m) for m in measurements]
    return marginals


def secure_marginals(path: Path, fitted: Fit) -> list[NoisyMarginal]:
    """Read every marginal that the coordinator could open in a run over split columns.

    They are in the order of the run.

    Raises:
        InputError: The transcript is not there.
        WireError: It is damaged, or of another study.
    """
    model: Any = fitted.model
    plan = _secure_plan(fitted)
    everyone = tuple(plan.parts)
    marginals: list[NoisyMarginal] = []
    rows = 0
    for tag, records in _steps(path):
        if tag == "secure/share":
            rows = _question(records, ShareRows).rows
        # With fewer answers the run was cut short.
        if tag == "secure/measure" and len(records) == len(everyone):
            tables = _question(records, MeasureTables).tables
            replies = _answers(records, Tables)
            measurements = opened_tables(
                plan, model.encoder.domain, rows, tables, replies
            )
            marginals += [
                NoisyMarginal(everyone, everyone, m) for m in measurements.values()
            ]
    return marginals


def _secure_plan(fitted: Fit) -> SecurePlan:
    """Return the plan that all parties had in a run over split columns."""
    model: Any = fitted.model

    # A fit's settings have more names than the method's: what the run learned is among them.
    names = {field.name for field in fields(TwoRoundSettings)}
    settings = {name: value for name, value in fitted.settings.items() if name in names}
    synth = settings_of(TwoRoundSettings, settings)

    modelled = fitted.modelled
    columns = {
        party: modelled.names_of(names) for party, names in fitted.columns.items()
    }
    coded = [column.name for column in model.schema.coded]
    parts = {
        party: model.schema.select([name for name in names if name in coded])
        for party, names in columns.items()
    }
    return SecurePlan(synth, model.schema.select(coded), parts, fitted.budget)


def _choices(records: Sequence[TranscriptRecord]) -> dict[str, set[Clique]]:
    """Return the marginals that each party named, by party.

    Nothing for central AIM, which asks one party alone and has other replies.
    """
    try:
        request = _question(records, Select)
        replies = _answers(records, Chosen)
    except WireError:
        return {}
    return {party: chosen_by(party, reply, request) for party, reply in replies.items()}


def _marginals(
    records: Sequence[TranscriptRecord],
    kind: type[Count | MeasureQueries],
    choices: Mapping[str, set[Clique]],
    domain: Domain,
    opening: _Opening | None = None,
) -> Iterator[NoisyMarginal]:
    """Yield the marginals of a masked sum; where parties may vanish, they are opened by shares."""
    request = _question(records, kind)
    replies = _answers(records, Counts)
    is_masked = any(isinstance(r.sums.recovery, Recovery) for r in replies.values())
    is_complete = len(records) == len(request.keys)

    # A sum that is masked opens in a later step, with enough shares. One that is not masked lacks
    # nothing, unless the run was cut short: then masks of pairs do not cancel.
    if opening is None:
        opens = is_complete and not is_masked
    else:
        opens = is_masked and len(opening.shares) >= opening.plan.threshold
    if not opens:
        return

    cliques = request.cliques if isinstance(request, Count) else request.queries
    # How often every marginal was counted; a party adds its noise once to all times together.
    times: Sequence[int] = ()
    if isinstance(request, Count):
        times = request.times
    if not times:
        times = (1,) * len(cliques)

    absent = sorted({name for clique in cliques for name in clique} - set(domain.names))
    if absent:
        raise WireError(
            f"the transcript counts {', '.join(absent)}, which the domain lacks"
        )
    shapes = [domain.shape(clique) for clique in cliques]

    # Masks cancel in the sum of all parties, or are taken away with what opened them.
    if opening is None:
        tables = summed(replies.items(), shapes)
    else:
        context = f"{records[0].run}/{records[0].step}/1"
        tables = opened_sum(context, replies, opening.shares, opening.plan, shapes)

    sigma = request.share_sigma * sqrt(len(replies))
    cohort = tuple(name for name in request.keys if name in replies)
    for clique, table, count in zip(cliques, tables, times, strict=True):
        contributors = cohort
        # In FLAIM a party adds counts only to the marginals that it chose, and noise to all.
        if isinstance(request, MeasureQueries):
            contributors = tuple(
                name for name in cohort if clique in choices.get(name, ())
            )
        measurement = Measurement(clique, table / count, sigma / count)
        yield NoisyMarginal(cohort, contributors, measurement)


def sent_latents(path: Path) -> dict[str, Matrix]:
    """Return every party's latents from a transcript of SiloFuse.

    Classes that a party sent stand behind its latents. A transcript without latents of all rows
    raises `InputError`.
    """
    latents: dict[str, Matrix] = {}
    for question, answers in groupby(read_transcript(path), key=lambda r: r.question):
        tag = msgspec.msgpack.decode(question)["type"]
        if tag in ("silofuse/code", "silofuse/code_noised"):
            latents |= {record.party: _latents(tag, record) for record in answers}
    if not latents:
        raise InputError(
            f"{path}: holds no latents of all rows; give the folder of a SiloFuse run"
        )
    return latents


def _latents(tag: str, record: TranscriptRecord) -> Matrix:
    """Decode the latents of one answer, (rows, width), with one-hot classes behind them."""
    # Under a budget they are integers on a grid.
    if tag == "silofuse/code_noised":
        noised = messages.decode(record.answer, Noised).latents.value.numpy()
        return noised.astype(np.float32) * np.float32(GRID)

    reply = messages.decode(record.answer, Coded)
    Z = np.asarray(reply.latents.value.numpy(), dtype=np.float32)
    for classes, options in zip(reply.classes, reply.options, strict=True):
        codes = classes.value.numpy().astype(np.int64)
        one_hot = np.eye(options.value, dtype=np.float32)[codes]
        Z = np.concatenate([Z, one_hot], 1)
    return Z


# Noisy marginals, attacked


@dataclass(frozen=True)
class Exposure:
    """The cells and rows of one party that the coordinator's view of a run gives away.

    Attributes:
        party: Whose rows.
        marginals: Noisy marginals that its rows are in.
        risk: The attack beside what the party's ledger allows; None if it joined no sum, or has
            too few rows to judge.
        note: Why there is no risk.
    """

    party: str
    marginals: int
    risk: NoisyCountsRisk | None
    note: str = ""


def attack_run(
    folder: Path | str, data: Any, control: Any, *, targets: int = 1000, seed: Key = 0
) -> tuple[Exposure, ...]:
    """Attack a finished run of noisy marginals from where its coordinator stands.

    That is a run of AIM, PrivMRF, FLAIM, DistAIM, TwoRound or SecureTwoRound.

    The adversary knows every row of the study but those it attacks, and what it received. One run
    is one draw of the noise, so a single risk varies; no risk may be above what the ledger allows
    other than by chance. Where the run's unit is a person, single rows are attacked, and what the
    ledger allows is for all rows of a person together. Choices, PrivMRF's distances, and what was
    learned before the run (an open schema, a noisy histogram of single columns), are in that bound
    but not in the attack.

    Args:
        folder: The run's folder, with its model, transcript and ledgers.
        data: The rows of the run: one table per party by name, or one table for a central run.
        control: Rows of the same population that were in no party.
        targets: Rows attacked at a party, at most; half of them at most are the party's.
        seed: Which rows.

    Returns:
        One exposure per party, in the order of `data`; one in all where columns are split.

    Raises:
        InputError: There is no transcript, it is a run of another method, `targets` is too small,
            or a person has more rows than took part.
        RosterError: `data` names other parties than the run.
    """
    whole("targets", targets, 2 * FEWEST)
    folder = Path(folder)
    fitted = load(folder / "model")
    if not isinstance(fitted.model, MarginalModel) or fitted.info.trust == "local":
        raise InputError(
            f"{folder} is a run of {fitted.info.title}: noisy marginals are attacked, as AIM, "
            "FLAIM and TwoRound send them. For latents, as SiloFuse sends them, there is invert_run"
        )
    files = sorted((folder / "parties").glob("*/ledger.jsonl"))
    ledgers = {ledger.owner: ledger for ledger in map(Ledger.read, files)}
    if not ledgers:
        raise InputError(
            f"{folder}: there are no ledgers; give the folder of a finished run"
        )
    # A central run has one party, whose name nobody has to know.
    if len(ledgers) == 1 and not isinstance(data, dict | list | tuple):
        data = {next(iter(ledgers)): data}
    tables = _parties_of_run(data, None, sorted(ledgers))
    _require_bounded(fitted, tables)

    count = targets // 2
    if fitted.columns:
        return (_whole_rows(fitted, tables, control, ledgers, folder, count, seed),)

    encoder = fitted.model.encoder
    parts = {
        name: coded_rows(name, _rows(fitted, table), encoder)
        for name, table in tables.items()
    }
    others = _coded(fitted, control)
    views = _views(folder / TRANSCRIPT, fitted)
    return tuple(
        _exposure(
            name, parts, others, views, ledgers[name].rho, count, fold_in(seed, name)
        )
        for name in parts
    )


def _views(transcript: Path, fitted: Fit) -> list[NoisyMarginal]:
    """Return the noisy marginals that the coordinator of split rows has."""
    if fitted.info.name == "distaim":
        return shared_counts(transcript, fitted)
    vanishing = {
        name: int(fitted.settings.get(name, default))
        for name, default in _VANISHING.items()
    }
    model: Any = fitted.model
    return noisy_marginals(transcript, model.encoder.domain, **vanishing)


def _whole_rows(
    fitted: Fit,
    tables: Mapping[str, Any],
    control: Any,
    ledgers: Mapping[str, Ledger],
    folder: Path,
    count: int,
    seed: Key,
) -> Exposure:
    """Attack rows of which every party holds a part; all ledgers together bound the risk."""
    encoder = fitted.model.encoder
    parts = [
        read(tables[name]).select(list(columns))
        for name, columns in fitted.columns.items()
    ]
    learned = fitted.learned(beside(parts)).select(list(encoder.schema.names))
    rows = {EVERYONE: encoder.encode(learned)}
    others = _coded(fitted, control)
    views = [
        replace(view, cohort=(EVERYONE,), contributors=(EVERYONE,))
        for view in secure_marginals(folder / TRANSCRIPT, fitted)
    ]
    # A release that parties make together is in several ledgers, and counts once.
    events = of_one_person(ledger.events for ledger in ledgers.values())
    rho = sum(event.rho * event.count for event in events)
    return _exposure(EVERYONE, rows, others, views, rho, count, fold_in(seed, EVERYONE))


def _require_bounded(fitted: Fit, tables: Mapping[str, Any]) -> None:
    """Refuse rows if the run left some out: only the party itself knows which ones took part."""
    budget = fitted.budget
    if budget.by_row:
        return
    most = budget.neighbours.rows
    for name, table in tables.items():
        # Codes have no column that names a person.
        if isinstance(table, Codes):
            continue
        label = f"party {name!r}"
        owners = owners_in({label: read(table)}, budget.unit)[label]
        _, counts = relabelled(owners)
        over = int((counts > most).sum())
        if over:
            raise InputError(
                f"party {name!r}: {over} of {budget.unit!r} have more than rows_per_unit = {most} "
                "rows, of which the run left some out, and its transcript does not show which. "
                "Attack a run whose tables keep to the bound"
            )


def _rows(fitted: Fit, table: Any) -> Any:
    """Return rows with the model's columns; rows that are codes stay as they are."""
    if isinstance(table, Codes):
        return table
    return fitted.learned(read(table))


def _coded(fitted: Fit, table: Any) -> Codes:
    """Encode rows as the model's codes."""
    rows = _rows(fitted, table)
    if isinstance(rows, Codes):
        return rows
    codes: Codes = fitted.model.encoder.encode(rows)
    return codes


def _parties_of_run(
    data: Any, names: Sequence[str] | None, parties: Sequence[str]
) -> dict[str, Any]:
    """Return one table per party, by name; refuse names that are not those of the run's parties."""
    tables = named_parties(data, names)
    if set(tables) != set(parties):
        raise RosterError(
            f"data names {', '.join(tables)}; the run's parties are {', '.join(parties)}. Give "
            "each party's rows under its name"
        )
    return tables


def _exposure(
    name: str,
    parts: Mapping[str, Codes],
    others: Codes,
    views: Sequence[NoisyMarginal],
    rho: float,
    count: int,
    key: Key,
) -> Exposure:
    """Attack `count` rows of one party, if it has so many, beside as many rows of others."""
    own_views = [view for view in views if name in view.contributors]
    if not own_views:
        return Exposure(name, 0, None, "its rows are in no sum of this run")

    # At most half of the rows are attacked; the rest is what the adversary knows.
    rows = parts[name]
    count = min(count, rows.num_rows // 2, others.num_rows)
    if count < FEWEST:
        return Exposure(name, len(own_views), None, f"fewer than {2 * FEWEST} rows")

    order = generator(fold_in(key, "members")).permutation(rows.num_rows)
    other_order = generator(fold_in(key, "others")).permutation(others.num_rows)
    risk = transcript_attack(
        [_alone(view, name, parts) for view in own_views],
        rows.take(order[:count]),
        others.take(other_order[:count]),
        rows.take(order[count:]),
        rho=rho,
    )
    return Exposure(name, len(own_views), risk)


def _alone(view: NoisyMarginal, name: str, parts: Mapping[str, Codes]) -> Measurement:
    """Subtract the other parties' rows, which this adversary knows, from a noisy marginal."""
    m = view.measurement
    of_others = sum(
        marginal(parts[other], m.clique) for other in view.contributors if other != name
    )
    counts = np.asarray(m.counts - of_others, dtype=np.float64)
    return Measurement(m.clique, counts, m.sigma)


# Latents, inverted


@dataclass(frozen=True)
class Inversion:
    """The cells of one party's rows that the coordinator recovers from latents.

    Attributes:
        party: Whose rows.
        leaked: With an inverse fitted to a few rows that leaked; None if there are too few rows.
        made: With one fitted to pairs that the coordinator makes; None where columns stay apart.
    """

    party: str
    leaked: InversionRisk | None
    made: InversionRisk | None


def invert_run(
    folder: Path | str,
    data: Any,
    *,
    known: int = 50,
    pairs: int = 2_000,
    most: int = 2_000,
    seed: Key = 0,
) -> tuple[Inversion, ...]:
    """Invert the latents of a finished run of SiloFuse, from where its coordinator stands.

    Args:
        folder: The run's folder, with its model and transcript.
        data: The rows of the run: one table per party, by name or in the order of the run.
        known: Rows that leaked.
        pairs: That the coordinator makes, where columns are shared.
        most: Rows that are judged at most.
        seed: Which rows leaked, which are judged, and the pairs.

    Returns:
        One entry per party.

    Raises:
        InputError: There is no transcript, or the run is not one of SiloFuse; for AIM, FLAIM and
            TwoRound there is `attack_run`.
        RosterError: `data` names other parties than the run.
    """
    fitted = load(Path(folder) / "model")
    if not fitted.columns:
        raise InputError(
            f"{folder} is a run of {fitted.info.title}, which sends no latents. For AIM, FLAIM and "
            "TwoRound there is attack_run"
        )
    parties = list(fitted.columns)
    names = None if isinstance(data, Mapping) else parties
    by_party = _parties_of_run(data, names, parties)
    tables = {name: read(table) for name, table in by_party.items()}
    latents = sent_latents(Path(folder) / TRANSCRIPT)
    return _inverted(
        latents, fitted, tables, leaked=known, pairs=pairs, most=most, key=seed
    )


def _inverted(
    latents: Mapping[str, Matrix],
    fitted: Fit,
    tables: Mapping[str, Table],
    *,
    leaked: int,
    pairs: int,
    most: int,
    key: Key,
    **options: Any,
) -> tuple[Inversion, ...]:
    """Invert every party's latents; numbers and key as of `invert_run`, options as of `invert`."""
    # Only where columns are shared does the coordinator get the rows that latents decode to.
    synthetic: dict[str, tuple[Matrix, Table]] = {}
    if fitted.shared and pairs:
        synthetic = _synthetic_pairs(fitted, pairs, fold_in(key, "pairs"))

    inversions = []
    for name, Z in latents.items():
        encodings = fitted.model.net.decoders[name].features.encodings
        columns = [encoding.column for encoding in encodings]
        rows = fitted.learned(tables[name]).select(columns)
        schema = fitted.model.schema.select(columns)
        shared = {"key": fold_in(key, name), "schema": schema, "most": most, **options}

        # As many rows as leaked are needed to judge the inverse, at least.
        by_leaked = None
        if leaked and len(Z) > 2 * leaked:
            by_leaked = invert(Z, rows, leaked, **shared)
        by_pairs = None
        if name in synthetic:
            by_pairs = invert(Z, rows, 0, synthetic=synthetic[name], **shared)
        inversions.append(Inversion(name, by_leaked, by_pairs))
    return tuple(inversions)


def _synthetic_pairs(
    fitted: Fit, count: int, key: Key
) -> dict[str, tuple[Matrix, Table]]:
    """Return latents that the coordinator draws, and the decoded columns it is given for them."""
    net: JoinedGenerator = fitted.model.net
    V = net.joint.sample(count, key=key)
    pairs: dict[str, tuple[Matrix, Table]] = {}
    start = 0
    for name, decoder in net.decoders.items():
        Z = V[:, start : start + decoder.width]
        start += decoder.width
        X = decoder.decode(Z, key=fold_in(key, "home", name))
        pairs[name] = (Z, decoder.features.decode(X, key=fold_in(key, "values")))
    return pairs


def recovered_shares(
    path: Path, fitted: Any, tables: Mapping[str, Table]
) -> dict[str, float]:
    """Return the share of real cells that the coordinator recovers from latents, by party and way.

    They are for the owners' report. Quick inverses on a few rows give a lower bound of what more
    effort would get. There is a share per party and way, beside what the best constant guess gets;
    the result is empty where the run sent no latents of all rows.
    """
    try:
        latents = sent_latents(path)
    except InputError:
        return {}
    inversions = _inverted(
        latents,
        fitted,
        tables,
        leaked=_QUICK_LEAKED,
        pairs=_QUICK_PAIRS,
        most=_QUICK_JUDGED,
        key=0,
        methods=_QUICK,
    )
    shares: dict[str, float] = {}
    for inversion in inversions:
        ways = {
            f"{_QUICK_LEAKED} leaked rows": inversion.leaked,
            "pairs it makes": inversion.made,
        }
        for way, risk in ways.items():
            if risk is None:
                continue
            cells = [column.found for column in risk.columns]
            recovered = sum(cell.recovered.value for cell in cells) / len(cells)
            guessed = sum(cell.baseline.value for cell in cells) / len(cells)
            party = inversion.party
            shares[f"cells of {party} that the coordinator recovers, {way}"] = recovered
            shares[f"cells of {party} that a constant guess gets, {way}"] = guessed
    return shares
