"""From a fit, from scores and from risks to pages: one self-contained HTML file each.

A fit is turned into a `Record`: its columns as codes with labels, few enough to draw, beside what
its ledgers say.

**Guarantee**: a record's public part holds what parties released and paid for, and statistics of
the synthetic table (post-processing, Dwork & Roth 2014, "The algorithmic foundations of
differential privacy", proposition 2.1); the synthetic table alone decides which categories of a
wide column are shown. Statistics of real rows are in `Record.owner`, which no public page reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from math import inf
from pathlib import Path
from platform import python_version
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave import __version__
from siloweave.core.fit import Fit
from siloweave.core.method import GUARANTEED
from siloweave.core.model import FeatureModel, MarginalModel
from siloweave.core.party import FEW, named_parties
from siloweave.errors import InputError
from siloweave.evaluate.workload import tvd, workload_errors
from siloweave.privacy.accountants import Tally, epsilon
from siloweave.privacy.events import Event, NonPrivate
from siloweave.privacy.journal import write_whole
from siloweave.protocols.columns import DrawnRows
from siloweave.protocols.networks import NetworkModel
from siloweave.report import words
from siloweave.report.page import Audience, render, render_comparison
from siloweave.report.record import (
    Association,
    BudgetTerms,
    LedgerRow,
    Marginal,
    MethodFacts,
    OwnerView,
    PartyCost,
    Phase,
    PublicView,
    Record,
    SchemaFact,
    Setting,
    TrainingLook,
    Visibility,
)
from siloweave.statistics.marginals import cramers_v, marginal
from siloweave.tables.bins import BINNED, Cuts, above, as_datetimes, growing_starts
from siloweave.tables.cells import numbers_of
from siloweave.tables.codes import Codes, Domain, Encoder
from siloweave.tables.drawn import drawn_as
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.modelled import Modelled
from siloweave.tables.read import Table, Unread, beside, read, rows_of, unread
from siloweave.tables.schema import Column

_BINS = 32  # of a column of numbers, where the model has none
_TINY = 1e-300  # below it in size is 0: bins may be cut just above
_WIDE, _KEPT = 64, 40  # a column with more codes is shown by its most frequent ones
_ROWS = 20_000  # that pictures are made of
_MANY = 200_000  # rows that errors are measured on; exact marginals can need gigabytes
_LIBRARIES = ("jax", "numpy", "opendp", "dp-accounting")  # that compute, draw noise and account
_SCALARS = (str, int, float, bool, type(None))


# Pages


def check_page(path: Path | None) -> None:
    """Refuse a page that could not be written, or would replace a table; before any work.

    Raises:
        InputError: It is no file name of a page, or its folder does not exist.
    """
    if path is None:
        return
    if path.suffix.lower() not in (".html", ".htm") or path.is_dir():
        raise InputError(f"cannot write {path}: a page needs the name of a file that ends in .html")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: its folder does not exist; create it first.")


def write_page(
    path: Path | str | None, title: str = "Scores", *, scores: Any = None, risks: Any = None
) -> Path | None:
    """Write scores and risks as a page for the owner, whole or not at all.

    Args:
        path: The HTML file; nothing is written if None.
        title: Of the page.
        scores: What `score` returned.
        risks: What `attack` returned.

    Returns:
        The file.

    Raises:
        InputError: It is no file name of a page, its folder does not exist, or there is nothing to
            show.
    """
    if path is None:
        return None
    path = Path(path)
    check_page(path)
    parts = (None if one is None else one.to_dict() for one in (scores, risks))
    write_whole(path, render_comparison(*parts, title=title, version=__version__).encode())
    return path


def write_report(
    fitted: Fit,
    path: Path,
    audience: Audience,
    title: str | None,
    data: Any,
    risks: Any,
    run_by: str,
) -> Path:
    """Write a fit's report; the arguments are those of `Fit.report`."""
    check_page(path)
    if audience not in ("public", "owner"):
        raise InputError(f'audience={audience!r} must be "public" or "owner"')
    if (audience == "owner") != (data is not None):
        raise InputError(
            "the owner's report shows real rows: give data=, as to fit"
            if audience == "owner"
            else 'the public report shows no real rows: leave data out, or give audience="owner"'
        )
    if audience == "public" and risks is not None:
        raise InputError('the public report shows no risks: leave it out, or give audience="owner"')
    owner: Sequence[Table] = ()
    if data is not None:
        several = isinstance(data, Mapping | list | tuple)
        parts = named_parties(data, None) if several else {"": data}
        owner = owner_rows(fitted, {n: unread(part) or read(part) for n, part in parts.items()})
    synthetic = None if fitted.shared else disjoined(fitted.part_tables(seed=0), 0)
    record = record_of(
        fitted, title or fitted.info.title, owner=owner, synthetic=synthetic, run_by=run_by
    )
    found = None if risks is None else risks.to_dict()
    page = render(record, audience=audience, risks=found)
    write_whole(path, page.encode(), private=audience == "owner")
    return path


def owner_rows(fitted: Fit, tables: Mapping[str, Table | Unread]) -> list[Table]:
    """Real rows as the owners' report takes them: those of split columns side by side.

    Of a large table that was not read, as many random ones as synthetic rows are compared with.
    """
    if fitted.columns:
        return [beside([read(table) for table in tables.values()])]
    from siloweave.protocols.schema import clipped

    return [clipped(rows_of(table, _MANY), fitted.schema) for table in tables.values()]


def disjoined(parts: Mapping[str, Table], seed: Key) -> Table:
    """Synthetic columns that stay apart, each party's rows in an order of their own."""
    shuffled = [
        part.take(generator(fold_in(seed, "not joined", name)).permutation(part.num_rows))
        for name, part in parts.items()
    ]
    return beside(shuffled)


# What a report shows of a table


@dataclass(frozen=True)
class ReportView:
    """Synthetic rows as codes, and real rows as the same codes.

    Attributes:
        encoder: Table to codes.
        bars: The same for single columns: a model's bins may hold rows evenly, and bars of such
            bins would all be of one height, so here bins are equally wide, or grow by a factor
            where the synthetic rows are skewed.
        codes: Synthetic rows, for associations between columns.
        singles: The same rows by `bars`.
        many: Synthetic rows for errors; empty if they were not asked for.
        rows: How many rows the synthetic table has; where none was given, as many as the model
            stands for.
        kept: Per wide column the codes that are shown one by one; the others are one code.
    """

    encoder: Encoder
    bars: Encoder
    codes: Codes
    singles: Codes
    many: Codes
    rows: int
    kept: Mapping[str, NDArray[np.intp]] = field(default_factory=dict)

    def encode(self, table: Table, encoder: Encoder | None = None) -> Codes:
        """Real rows in the codes of the synthetic ones; with `bars`, in those of `singles`."""
        return _gathered((encoder or self.encoder).encode(table), self.kept)

    def labels(self, name: str) -> tuple[str, ...]:
        """One label per code of a column of `singles`."""
        labels = labels_of(self.bars, name)
        if name not in self.kept:
            return labels
        return (*(labels[code] for code in self.kept[name]), "all others")


def _view(fitted: Fit, synthetic: Table | None, *, errors: bool) -> ReportView:
    """The view of a fit; `synthetic` was drawn from it, so that a slow sampler runs once."""
    if isinstance(model := fitted.model, MarginalModel) and fitted.modelled is None:
        total = round(model.mrf.total)
        codes = model.codes(min(total, _ROWS), 0)
        rows = total if synthetic is None else synthetic.num_rows
        drawn = model.encoder.decode(codes, key=fold_in(0, "bars"))
        bars, singles = _bars(model.encoder, drawn), codes
        if bars is not model.encoder:
            singles = bars.encode(drawn)
        many = model.codes(_MANY if errors else 1, 0)
        return ReportView(model.encoder, bars, codes, singles, many, rows)
    encoder = Encoder(fitted.schema, _BINS)
    table = fitted.sample_table(seed=0) if synthetic is None else synthetic
    rows = table.num_rows
    codes = encoder.encode(table.take(range(_MANY)) if rows > _MANY else table)
    sizes = zip(codes.domain.names, codes.domain.sizes, strict=True)
    counts = {n: np.bincount(codes.column(n), minlength=s) for n, s in sizes if s > _WIDE}
    kept = {n: np.sort(np.argsort(-held, kind="stable")[:_KEPT]) for n, held in counts.items()}
    many = _gathered(codes, kept)
    few = many.take(np.arange(min(many.num_rows, _ROWS)))
    bars, singles = _bars(encoder, table), few
    if bars is not encoder:
        singles = _gathered(bars.encode(table.take(np.arange(few.num_rows))), kept)
    return ReportView(encoder, bars, few, singles, many, rows, kept)


def _bars(encoder: Encoder, drawn: Table) -> Encoder:
    """Equal bins instead of the model's cuts, and growing ones where drawn rows are skewed."""
    cuts = {}
    for column in encoder.schema.coded:
        if column.kind not in ("integer", "continuous"):
            continue
        values, gone = numbers_of(column, drawn)
        low, high, whole = float(column.low or 0), float(column.high or 0), column.kind == "integer"
        if starts := growing_starts(values[~gone], low, high, _BINS, whole=whole):
            cuts[column.name] = Cuts(tuple(starts))
    return encoder if cuts == encoder.cuts else replace(encoder, cuts=cuts)


def _gathered(codes: Codes, kept: Mapping[str, NDArray[np.intp]]) -> Codes:
    """Codes in which those of wide columns that are not kept are one."""
    sizes, columns = [], []
    for name, size in zip(codes.domain.names, codes.domain.sizes, strict=True):
        column = codes.column(name)
        if name in kept:
            place = np.full(size, len(kept[name]))
            place[kept[name]] = np.arange(len(kept[name]))
            column, size = place[column], len(kept[name]) + 1
        sizes.append(size)
        columns.append(column)
    return Codes(Domain(codes.domain.names, tuple(sizes)), tuple(columns)) if kept else codes


def labels_of(encoder: Encoder, name: str) -> tuple[str, ...]:
    """One label per code of a column."""
    column = encoder.schema[name]
    if column.kind in BINNED:
        labels = [_span(column, a, b) for a, b in pairwise(encoder.edges(name).tolist())]
    else:
        labels = [str(option) for option in column.options]
    return tuple(labels + (["missing"] if column.missing else []))


def _span(column: Column, start: float, end: float) -> str:
    """A bin, from its first to its last value."""
    if column.kind == "continuous":
        if end <= above(start):
            return _number(start)
        return f"{_number(start)} to {_number(end)}"
    first, last = int(start), int(end) - 1
    if column.kind == "datetime":
        datetimes = as_datetimes(column, np.array([first, last]), None).tolist()
        texts = [str(when).removesuffix(" 00:00:00") for when in datetimes]
    else:
        texts = [str(first), str(last)]
    return texts[0] if first == last else " to ".join(texts)


def _number(value: float) -> str:
    value = value if abs(value) > _TINY else 0.0
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


# The record of a fit


def record_of(
    fitted: Fit,
    title: str,
    *,
    owner: Sequence[Table] = (),
    synthetic: Table | None = None,
    measured: Mapping[str, float] | None = None,
    run_by: str = "",
) -> Record:
    """Everything that the report of a fit shows.

    Args:
        fitted: The fit.
        title: Name of the study.
        owner: Real rows, for the owner's copy only.
        synthetic: Rows drawn from a generator; drawn anew if not given.
        measured: What else was measured on real rows, for the owner's copy.
        run_by: Who ran it, as the caller says.
    """
    if fitted.modelled is not None and synthetic is None and fitted.shared:
        synthetic = fitted.sample_table(seed=0)
    info, budget, epsilons = fitted.info, fitted.budget, fitted.epsilons
    if isinstance(fitted.model, DrawnRows) and not fitted.shared:
        view, shown = None, PublicView(num_rows=fitted.model.num_rows, marginals=(), kept=True)
    else:
        view = _view(fitted, synthetic, errors=bool(owner))
        shown = _public_view(fitted, view)
    return Record(
        title=title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        siloweave_version=__version__,
        run_by=run_by,
        versions={"Python": python_version(), **{name: version(name) for name in _LIBRARIES}},
        method=msgspec.convert(
            msgspec.structs.replace(info, name=info.title), MethodFacts, from_attributes=True
        ),
        budget=BudgetTerms(
            epsilon=budget.epsilon,
            delta=budget.delta,
            unit=budget.unit,
            relation=str(budget.relation),
            rows_per_unit=budget.rows_per_unit,
            parties_per_unit=budget.parties_per_unit,
        ),
        private=fitted.private,
        not_private_reason="" if fitted.private else _reason(fitted),
        epsilon_spent=fitted.epsilon,
        epsilon_to_parties=fitted.ledger.epsilon_to_parties,
        epsilon_at_parties=fitted.ledger.epsilon_at_parties,
        parties=tuple(_cost(fitted, name, epsilons[name]) for name in fitted.ledgers),
        ledgers=tuple(row for name in fitted.ledgers for row in _ledger_rows(fitted, name)),
        visibility=msgspec.convert(info.visibility, tuple[Visibility, ...], from_attributes=True),
        simulated=fitted.simulated,
        phases=tuple(Phase(name=n, seconds=s) for n, s in fitted.cost.phases.items()),
        schema_facts=(*map(_fact, fitted.schema.columns), *_constraints(fitted, synthetic)),
        assumed_public=_assumed(fitted),
        warnings=(*_unprotected(fitted), *_limits(fitted), *_refusing(fitted)),
        settings=dict(_flat(fitted.settings)),
        synthetic=shown,
        owner=_owner(fitted, view, owner, measured or {}) if owner and view else None,
    )


def _public_view(fitted: Fit, view: ReportView) -> PublicView:
    """What anyone may see of the synthetic table and the model."""
    model = fitted.model
    return PublicView(
        num_rows=view.rows,
        marginals=_marginals(view, view.singles),
        association=_association(view.codes),
        cliques=tuple(model.mrf.tree.cliques) if isinstance(model, MarginalModel) else (),
        kept=not fitted.shared,
    )


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Setting]]:
    """Settings by name; those of a table within are named after it, with a dot."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        elif isinstance(value, list | tuple) and all(isinstance(v, _SCALARS) for v in value):
            yield above + name, list(value)
        else:
            yield above + name, value if isinstance(value, _SCALARS) else str(value)


def _assumed(fitted: Fit) -> tuple[str, ...]:
    facts = "the schema: columns, kinds, categories, bounds, where values may be missing"
    if any(column.learned for column in fitted.schema.columns):
        facts += ", but for what was learned and paid for"
    types = "the types that a frame or Parquet file declares for its columns; a CSV declares none"
    if fitted.info.guarantee in GUARANTEED:
        types = "the kind of frame or file that was given; types of drawn columns are the schema's"
    if not isinstance(fitted.model, MarginalModel):
        return facts, types, "every setting"
    roster = "the roster, and which party took part in which round"
    return facts, types, roster, "the workload, the number of bins and every setting"


def _reason(fitted: Fit) -> str:
    """Why a fit is not private."""
    info = fitted.info
    if info.guarantee == "none" and not isinstance(fitted.model, MarginalModel):
        return (
            f"{info.title} was trained on the rows without noise: its model and every row drawn "
            "from it may repeat real ones, and no ε bounds that (ε = ∞)."
        )
    if info.guarantee != "dp":
        return f"{info.title} has the guarantee '{info.guarantee}'. {info.statement}"
    return "The noise came from a seed: whoever knows it can take it away again."


def _unprotected(fitted: Fit) -> Iterator[str]:
    """Which ledgers are not here, and what of a partly private method no epsilon covers."""
    guarantee = fitted.info.guarantee
    if fitted.unaccounted:
        named = ", ".join(fitted.unaccounted)
        bound = "the study's whole budget, to which its own ledger holds it"
        if guarantee != "dp":
            bound = "no bound, since a ledger of this method has none"
        text = f"Vanished before the end, so that no ledger came: {named}. For each, ε here counts "
        yield f"{text}{bound}. What it has released is in its own ledger alone."
    entries = [entry for ledger in fitted.ledgers.values() for entry in ledger]
    bare = [e.what for e in entries if isinstance(e.event, NonPrivate)]
    paid = [e.event for e in entries if not isinstance(e.event, NonPrivate)]
    if guarantee == "partial" and bare and paid:
        spent, delta = words.epsilon(epsilon(paid, fitted.budget.delta)), fitted.budget.delta
        text = f"Noise covers a part alone: ε = {spent} at δ = {words.small(delta)} for that part. "
        yield f"{text}Released without any: {'; '.join(dict.fromkeys(bare))}."


def _refusing(fitted: Fit) -> Iterator[str]:
    """A sentence about columns that refuse a table, under a guarantee."""
    schema = fitted.schema if fitted.modelled is None else fitted.modelled.declared
    names = [column.name for column in schema.coded if column.outside == "refuse"]
    if names and fitted.info.guarantee in GUARANTEED:
        yield words.refusing(names)


def _limits(fitted: Fit) -> Iterator[str]:
    """What the page cannot show, and what the model cannot know."""
    if not fitted.shared:
        yield (
            "Synthetic columns stay with their parties: the public copy of this page shows none of "
            "them, and in the owners' copy rows of different parties are in an order of their own, "
            "so that it does not show how columns of two parties depend on each other."
        )
    rows = fitted.model.mrf.total if isinstance(fitted.model, MarginalModel) else inf
    if fitted.budget.private and rows * fitted.budget.epsilon < FEW:
        yield (
            f"The model stands for about {max(rows, 0):.0f} rows, by its own count: the noise is "
            "as large as any count of so few, so this table cannot be useful."
        )
    if how := fitted.settings.get("sample"):
        own = "Numbers of rows here are those of the sample"
        if fitted.info.guarantee == "dp":
            own += ", and ε holds for the whole table: it is computed as if the sample were all of "
            own += "it"
        yield f"Trained from a sample: {how}. {own}."


def _cost(fitted: Fit, name: str, spent: float) -> PartyCost:
    seen = fitted.cost.parties[name]
    return PartyCost(
        name=name,
        rows_public=fitted.num_rows if fitted.info.guarantee == "none" else None,
        epsilon=spent,
        bytes_sent=seen.bytes_from_party,
        bytes_received=seen.bytes_to_party,
        messages=seen.messages,
        ledger_head=fitted.heads.get(name, ""),
    )


def _ledger_rows(fitted: Fit, party: str) -> Iterator[LedgerRow]:
    tally = Tally()
    for entry in fitted.ledgers[party]:
        tally.add(entry.event)
        yield LedgerRow(
            party=party,
            index=entry.index + 1,
            step=f"{entry.run}: {entry.step}",
            what=entry.what,
            to=entry.to,
            mechanism=entry.event.mechanism,
            parameters=_parameters(entry.event),
            cumulative_epsilon=tally.epsilon(fitted.budget.delta),
            rho=entry.event.rho * entry.event.count,
        )


def _parameters(event: Event) -> str:
    if isinstance(event, NonPrivate):
        return event.reason
    parts = ((n.replace("_", " "), getattr(event, n)) for n in event.__struct_fields__)
    return ", ".join(f"{n} {_parameter(v)}" for n, v in parts if v is not msgspec.UNSET)


def _parameter(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float | int) else str(value)


def _fact(column: Column) -> SchemaFact:
    facts = ", ".join(column.from_data or column.learned) or "kind and domain"
    if not column.modelled:
        facts = f"{facts}; drawn anew ({drawn_as(column)}), not modelled"
    how = "free" if column.from_data else "paid" if column.learned else "declared"
    return SchemaFact(column=column.name, kind=column.kind, facts=facts, how=how)  # type: ignore[arg-type]


def _constraints(fitted: Fit, synthetic: Table | None) -> Iterator[SchemaFact]:
    """What every row keeps, and how many drawn rows break it: none, or the fit is broken."""
    if fitted.modelled is None:
        return
    modelled = Modelled(fitted.schema, fitted.modelled.parts)
    broken = {} if synthetic is None else modelled.broken(synthetic)
    declared = fitted.modelled.declared.constraints
    for rule, before in zip(fitted.schema.constraints, declared, strict=True):
        words = rule.words
        if synthetic is not None:
            count = int(np.count_nonzero(broken[words]))
            words += f": {count:,} of {synthetic.num_rows:,} drawn rows break it"
        how = "free" if rule.from_data else "declared" if rule == before else "paid"  # was open
        yield SchemaFact(
            column=", ".join(rule.columns),
            kind="constraint",
            facts=words,
            how=how,  # type: ignore[arg-type]
        )


def _marginals(view: ReportView, codes: Codes) -> tuple[Marginal, ...]:
    made = []
    for name in codes.domain.names:
        column = view.bars.schema[name]
        counts = marginal(codes, (name,)).astype(float)
        made.append(
            Marginal(
                column=name,
                kind=column.kind,
                labels=view.labels(name),
                proportions=tuple((counts / max(1.0, counts.sum())).tolist()),
                ordered=column.kind in BINNED and name not in view.kept,
                missing=column.missing and name not in view.kept,
                logarithmic=name in (view.bars.cuts or {}),
            )
        )
    return tuple(made)


def _association(codes: Codes) -> Association:
    values = np.clip(cramers_v(codes), 0.0, 1.0).tolist()
    return Association(names=codes.domain.names, values=tuple(tuple(row) for row in values))


def _owner(
    fitted: Fit,
    view: ReportView,
    tables: Sequence[Table],
    measured: Mapping[str, float],
) -> OwnerView:
    real = single = Codes.concat([view.encode(table) for table in tables])
    if view.bars is not view.encoder:
        single = Codes.concat([view.encode(table, view.bars) for table in tables])
    errors = {}
    if isinstance(model := fitted.model, MarginalModel):
        known, many = real, view.many
        if fitted.modelled is not None:
            known = Codes.concat([model.encoder.encode(fitted.learned(one)) for one in tables])
            many = model.codes(_MANY, 0)
        if model.workload and real.num_rows:
            found = workload_errors(known, many, model.workload)
            errors = {"over the queries": found.queries, "over their closure": found.closure}
    ways = [w for w in (1, 2, 3) if w <= len(real.domain.names) and real.num_rows]
    return OwnerView(
        marginals=_marginals(view, single),
        association=_association(real),
        workload_errors=errors,
        tvd={f"{w}-way": tvd(real, view.many, w, max_cliques=60, key=0) for w in ways},
        scores=dict(measured),
        training=tuple(_looks(fitted)),
    )


def _looks(fitted: Fit) -> Iterator[TrainingLook]:
    """Yield how well a network had learned rows held back, at several times of its training."""
    model = fitted.model
    if isinstance(model, FeatureModel) and isinstance(model.net, NetworkModel):
        for look in model.net.looks:
            yield TrainingLook(step=look.step, seconds=look.seconds, loss=look.loss)
