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
from typing import Any

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
from siloweave.methods.registry import METHODS, load
from siloweave.methods.silofuse.messages import GRID, Coded, Noised
from siloweave.models.estimate import Measurement
from siloweave.privacy.accountants import of_one_person
from siloweave.privacy.ledger import Ledger
from siloweave.protocols.columns import JoinedGenerator
from siloweave.protocols.secure_marginals import (
    MeasureTables,
    SecurePlan,
    ShareRows,
    Tables,
    opened_tables,
)
from siloweave.protocols.secure_sums import Count, Counts, MaskShares, opened_sum, summed
from siloweave.statistics.marginals import marginal
from siloweave.tables.arrays import Matrix
from siloweave.tables.codes import Clique, Codes, Domain
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.persons import owners_in, relabelled
from siloweave.tables.read import Table, beside, read

FEWEST = 8
"""Rows that are attacked at a party, at least."""
EVERYONE = "all parties together"
"""Whose rows are attacked where columns are split."""

_SUMS: dict[str, type[Count | MeasureQueries]] = {
    "sum/count": Count,
    "flaim/measure": MeasureQueries,
}
_VANISHING = {"tolerated": 1, "dropouts": 0}  # settings, where a method has them
_QUICK: tuple[Inverter, ...] = ("ridge", "neighbours")


# The transcript view


@dataclass(frozen=True)
class NoisyMarginal:
    """A noisy marginal as the coordinator has it.

    Attributes:
        cohort: Who added noise to the sum.
        contributors: Whose rows are in it: the cohort, or those of it who chose this marginal.
        measurement: Clique, noisy counts, and the standard deviation of their noise.
    """

    cohort: tuple[str, ...]
    contributors: tuple[str, ...]
    measurement: Measurement


def noisy_marginals(
    path: Path, domain: Domain, *, tolerated: int = 1, dropouts: int = 0
) -> list[NoisyMarginal]:
    """Read every marginal of a run's own codes that the coordinator could compute, in its order.

    What was learned before the run is left out: its tables are of other codes. A transcript that is
    not there raises `InputError`; one that is damaged, or of another domain, `WireError`. Where
    parties may vanish, `tolerated` and `dropouts` are those of the run.
    """
    found: list[NoisyMarginal] = []
    records: list[TranscriptRecord] = []
    chosen: Mapping[str, set[Clique]] = {}
    for tag, answers in _steps(path):
        before, records = records, answers
        if tag == "flaim/select":
            chosen = _choices(records) or chosen
        if tag in _SUMS:
            found += _marginals(records, _SUMS[tag], chosen, domain)
        if tag == "sum/open" and _tag(before) in _SUMS:
            names = messages.decode(before[0].question, _SUMS[_tag(before)]).keys
            plan = MaskPlan.of(names, tolerated, dropouts)
            opened = plan, {r.party: messages.decode(r.answer, MaskShares) for r in records}
            found += _marginals(before, _SUMS[_tag(before)], chosen, domain, opened)
    return found


def _steps(path: Path) -> Iterator[tuple[str, list[TranscriptRecord]]]:
    """Kind of question and answers of every step."""
    for _, answers in groupby(read_transcript(path), key=lambda r: (r.run, r.step)):
        records = list(answers)
        yield _tag(records), records


def _tag(records: Sequence[TranscriptRecord]) -> str:
    return str(msgspec.msgpack.decode(records[0].question)["type"]) if records else ""


def shared_counts(path: Path, fitted: Fit) -> list[NoisyMarginal]:
    """Every marginal of a run of DistAIM that the coordinator could open, in its order.

    Errors are those of `noisy_marginals`.
    """
    model: Any = fitted.model
    domain, found, joined = model.encoder.domain, [], []
    places = places_of(domain, model.workload)
    sums = np.zeros(max(place.stop for place in places.values()), dtype=np.uint32)
    for tag, records in _steps(path):
        if tag == "distaim/share":
            joined += [r.party for r in records]
            for r in records:
                words = messages.decode(r.answer, CountShare).words.value
                sums += CheckedReply(r.party).array("words", words, WORDS, sums.shape)
        if tag == "distaim/open":
            asked = messages.decode(records[0].question, OpenTables)
            if len(records) < len(set(asked.servers)):  # the run was cut short
                continue
            replies = {r.party: messages.decode(r.answer, ServerWords) for r in records}
            opened = opened_by_servers(domain, places, sums, asked, replies)
            found += [NoisyMarginal(tuple(joined), tuple(joined), m) for m in opened]
    return found


def secure_marginals(path: Path, fitted: Fit) -> list[NoisyMarginal]:
    """Every marginal of a run over split columns that the coordinator could open, in its order.

    Raises:
        InputError: The transcript is not there.
        WireError: It is damaged, or of another study.
    """
    model: Any = fitted.model
    kind = METHODS[fitted.info.name]
    known = {one.name for one in fields(kind)}  # of its settings; others are what the run found
    synth = settings_of(kind, {n: v for n, v in fitted.settings.items() if n in known})
    coded, modelled = [column.name for column in model.schema.coded], fitted.modelled
    own = dict(fitted.columns)
    if modelled is not None:
        own = {name: modelled.names_of(columns) for name, columns in own.items()}
    parts = {
        name: model.schema.select([one for one in columns if one in coded])
        for name, columns in own.items()
    }
    plan = SecurePlan(synth, model.schema.select(coded), parts, fitted.budget)
    everyone, found, rows = tuple(parts), [], 0
    for tag, records in _steps(path):
        if tag == "secure/share":
            rows = messages.decode(records[0].question, ShareRows).rows
        if tag == "secure/measure" and len(records) == len(parts):
            tables = messages.decode(records[0].question, MeasureTables).tables
            replies = {r.party: messages.decode(r.answer, Tables) for r in records}
            opened = opened_tables(plan, model.encoder.domain, rows, tables, replies)
            found += [NoisyMarginal(everyone, everyone, m) for m in opened.values()]
    return found


def _choices(records: Sequence[TranscriptRecord]) -> dict[str, set[Clique]]:
    """Which marginals each party named; nothing for central AIM, which asks one party alone."""
    try:
        request = messages.decode(records[0].question, Select)
        replies = {r.party: messages.decode(r.answer, Chosen) for r in records}
    except WireError:
        return {}
    return {party: chosen_by(party, reply, request) for party, reply in replies.items()}


def _marginals(
    records: Sequence[TranscriptRecord],
    kind: type[Count | MeasureQueries],
    chosen: Mapping[str, set[Clique]],
    domain: Domain,
    opened: tuple[MaskPlan, Mapping[str, MaskShares]] | None = None,
) -> Iterator[NoisyMarginal]:
    """The marginals of a sum; where parties may vanish, from what `opened` it."""
    request = messages.decode(records[0].question, kind)
    replies = {r.party: messages.decode(r.answer, Counts) for r in records}
    masked = any(isinstance(r.sums.recovery, Recovery) for r in replies.values())
    few = opened is not None and len(opened[1]) < opened[0].threshold
    if few or masked != (opened is not None) or not (masked or len(records) == len(request.keys)):
        return  # it opens later, or the run was cut short: masks do not cancel
    cliques = request.cliques if isinstance(request, Count) else request.queries
    times = (isinstance(request, Count) and request.times) or (1,) * len(cliques)
    absent = sorted({a for c in cliques for a in c} - set(domain.names))
    if absent:
        raise WireError(f"the transcript counts {', '.join(absent)}, which the domain lacks")
    shapes = [domain.shape(c) for c in cliques]
    if opened is None:
        tables = summed(replies.items(), shapes)
    else:
        plan, shares = opened
        context = f"{records[0].run}/{records[0].step}/1"
        tables = opened_sum(context, replies, shares, plan, shapes)
    sigma = request.share_sigma * sqrt(len(replies))
    cohort = tuple(name for name in request.keys if name in replies)
    for clique, table, k in zip(cliques, tables, times, strict=True):
        contributors = cohort
        if isinstance(request, MeasureQueries):
            contributors = tuple(name for name in cohort if clique in chosen.get(name, ()))
        measurement = Measurement(clique, table / k, sigma / k)
        yield NoisyMarginal(cohort, contributors, measurement)


def sent_latents(path: Path) -> dict[str, Matrix]:
    """Every party's latents in a transcript of SiloFuse; classes that it sent stand behind them.

    A transcript without latents of all rows raises `InputError`.
    """
    found: dict[str, Matrix] = {}
    for question, answers in groupby(read_transcript(path), key=lambda r: r.question):
        tag = msgspec.msgpack.decode(question)["type"]
        if tag in ("silofuse/code", "silofuse/code_noised"):
            found |= {record.party: _latents(tag, record) for record in answers}
    if not found:
        raise InputError(f"{path}: holds no latents of all rows; give the folder of a SiloFuse run")
    return found


def _latents(tag: str, record: TranscriptRecord) -> Matrix:
    if tag == "silofuse/code_noised":
        noised = messages.decode(record.answer, Noised).latents.value.numpy().astype(np.float32)
        return noised * np.float32(GRID)
    reply = messages.decode(record.answer, Coded)
    Z = np.asarray(reply.latents.value.numpy(), dtype=np.float32)
    for classes, options in zip(reply.classes, reply.options, strict=True):
        codes = classes.value.numpy().astype(np.int64)
        Z = np.concatenate([Z, np.eye(options.value, dtype=np.float32)[codes]], 1)
    return Z


# Noisy marginals, attacked


@dataclass(frozen=True)
class Exposure:
    """What the coordinator's view of a run gives away of one party's rows.

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
        raise InputError(f"{folder}: there are no ledgers; give the folder of a finished run")
    if len(ledgers) == 1 and not isinstance(data, dict | list | tuple):
        data = {next(iter(ledgers)): data}
    encoder = fitted.model.encoder
    named = _parties_of_run(data, None, sorted(ledgers))
    _require_bounded(fitted, named)
    if fitted.columns:
        return (_whole_rows(fitted, named, control, ledgers, folder, targets // 2, seed),)
    parts = {name: coded_rows(name, _rows(fitted, part), encoder) for name, part in named.items()}
    others = _rows(fitted, control)
    others = others if isinstance(others, Codes) else encoder.encode(others)
    if fitted.info.name == "distaim":
        seen = shared_counts(folder / TRANSCRIPT, fitted)
    else:
        known = {name: int(fitted.settings.get(name, d)) for name, d in _VANISHING.items()}
        seen = noisy_marginals(folder / TRANSCRIPT, encoder.domain, **known)
    return tuple(
        _exposure(name, parts, others, seen, ledgers[name].rho, targets // 2, fold_in(seed, name))
        for name in parts
    )


def _whole_rows(
    fitted: Fit,
    named: Mapping[str, Any],
    control: Any,
    ledgers: Mapping[str, Ledger],
    folder: Path,
    count: int,
    seed: Key,
) -> Exposure:
    """The attack on rows that lie at all parties, beside what all ledgers together allow."""
    encoder = fitted.model.encoder
    whole = beside([read(named[name]).select(list(own)) for name, own in fitted.columns.items()])
    known = fitted.learned(whole).select(list(encoder.schema.names))
    rows = {EVERYONE: encoder.encode(known)}
    others = _rows(fitted, control)
    others = others if isinstance(others, Codes) else encoder.encode(others)
    seen = [
        replace(one, cohort=(EVERYONE,), contributors=(EVERYONE,))
        for one in secure_marginals(folder / TRANSCRIPT, fitted)
    ]
    paid = sum(e.rho * e.count for e in of_one_person(one.events for one in ledgers.values()))
    return _exposure(EVERYONE, rows, others, seen, paid, count, fold_in(seed, EVERYONE))


def _require_bounded(fitted: Fit, named: Mapping[str, Any]) -> None:
    """Refuse rows of which the run left some out: nobody but the party knows which ones."""
    budget = fitted.budget
    if budget.by_row:
        return
    most = budget.neighbours.rows
    for name, part in named.items():
        if isinstance(part, Codes):
            continue
        owners = owners_in({f"party {name!r}": read(part)}, budget.unit)[f"party {name!r}"]
        _, counts = relabelled(owners)
        if over := int((counts > most).sum()):
            raise InputError(
                f"party {name!r}: {over} of {budget.unit!r} have more than rows_per_unit = {most} "
                "rows, of which the run left some out, and its transcript does not show which. "
                "Attack a run whose tables keep to the bound"
            )


def _rows(fitted: Fit, part: Any) -> Any:
    """Rows with the columns that the model knows, unless they are codes."""
    return part if isinstance(part, Codes) else fitted.learned(read(part))


def _parties_of_run(
    data: Any, names: Sequence[str] | None, parties: Sequence[str]
) -> dict[str, Any]:
    """One table per party, by name; refuses other parties than the run's."""
    parts = named_parties(data, names)
    if set(parts) != set(parties):
        raise RosterError(
            f"data names {', '.join(parts)}; the run's parties are {', '.join(parties)}. Give each "
            "party's rows under its name"
        )
    return parts


def _exposure(
    name: str,
    parts: Mapping[str, Codes],
    others: Codes,
    seen: Sequence[NoisyMarginal],
    rho: float,
    count: int,
    key: Key,
) -> Exposure:
    mine = [one for one in seen if name in one.contributors]
    rows = parts[name]
    count = min(count, rows.num_rows // 2, others.num_rows)
    if not mine or count < FEWEST:
        why = f"fewer than {2 * FEWEST} rows" if mine else "its rows are in no sum of this run"
        return Exposure(name, len(mine), None, why)
    order = generator(fold_in(key, "members")).permutation(rows.num_rows)
    strangers = generator(fold_in(key, "others")).permutation(others.num_rows)[:count]
    risk = transcript_attack(
        [_alone(one, name, parts) for one in mine],
        rows.take(order[:count]),
        others.take(strangers),
        rows.take(order[count:]),
        rho=rho,
    )
    return Exposure(name, len(mine), risk)


def _alone(seen: NoisyMarginal, name: str, parts: Mapping[str, Codes]) -> Measurement:
    """The measurement without the rows of other parties, which this adversary knows."""
    m = seen.measurement
    known = sum(marginal(parts[other], m.clique) for other in seen.contributors if other != name)
    return Measurement(m.clique, np.asarray(m.counts - known, dtype=np.float64), m.sigma)


# Latents, inverted


@dataclass(frozen=True)
class Inversion:
    """What the coordinator recovers of one party's rows.

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
    """Invert the latents of a finished SiloFuse run, from where its coordinator stands.

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
    parts = _parties_of_run(data, None if isinstance(data, Mapping) else parties, parties)
    tables = {name: read(part) for name, part in parts.items()}
    latents = sent_latents(Path(folder) / TRANSCRIPT)
    return _inverted(latents, fitted, tables, known=known, pairs=pairs, most=most, key=seed)


def _inverted(
    latents: Mapping[str, Matrix],
    fitted: Fit,
    tables: Mapping[str, Table],
    *,
    known: int,
    pairs: int,
    most: int,
    key: Key,
    **options: Any,
) -> tuple[Inversion, ...]:
    made = _made(fitted, pairs, fold_in(key, "pairs")) if fitted.shared and pairs else {}
    found = []
    for name, Z in latents.items():
        own = [one.column for one in fitted.model.net.decoders[name].features.encodings]
        rows = fitted.learned(tables[name]).select(own)
        schema = fitted.model.schema.select(own)
        named = {"key": fold_in(key, name), "schema": schema, "most": most, **options}
        leaked = invert(Z, rows, known, **named) if known and len(Z) > 2 * known else None
        mine = invert(Z, rows, 0, synthetic=made[name], **named) if name in made else None
        found.append(Inversion(name, leaked, mine))
    return tuple(found)


def _made(fitted: Fit, count: int, key: Key) -> dict[str, tuple[Matrix, Table]]:
    """Latents that the coordinator draws, and the columns that it is given for them."""
    net: JoinedGenerator = fitted.model.net
    V = net.joint.sample(count, key=key)
    pairs, start = {}, 0
    for name, decoder in net.decoders.items():
        part = V[:, start : start + decoder.width]
        start += decoder.width
        X = decoder.decode(part, key=fold_in(key, "home", name))
        pairs[name] = part, decoder.features.decode(X, key=fold_in(key, "values"))
    return pairs


def recovered_shares(path: Path, fitted: Any, tables: Mapping[str, Table]) -> dict[str, float]:
    """Shares of real cells that the coordinator recovers from latents, for the owners' report.

    Quick inverses on a few rows: a lower bound of what more effort would get. There is a share per
    party and way, beside what the best constant guess gets; the result is empty where the run sent
    no latents of all rows.
    """
    try:
        latents = sent_latents(path)
    except InputError:
        return {}
    found = _inverted(latents, fitted, tables, known=50, pairs=500, most=500, key=0, methods=_QUICK)
    shares: dict[str, float] = {}
    for one in found:
        for way, risk in (("50 leaked rows", one.leaked), ("pairs it makes", one.made)):
            if risk is None:
                continue
            cells = [column.found for column in risk.columns]
            right = sum(c.recovered.value for c in cells) / len(cells)
            plain = sum(c.baseline.value for c in cells) / len(cells)
            shares[f"cells of {one.party} that the coordinator recovers, {way}"] = right
            shares[f"cells of {one.party} that a constant guess gets, {way}"] = plain
    return shares
