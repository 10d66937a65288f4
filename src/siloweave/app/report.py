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
from itertools import chain, pairwise
from math import inf, isfinite, isinf
from pathlib import Path
from platform import python_version
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave import __version__
from siloweave.core.fit import Fit
from siloweave.core.method import GUARANTEED, OR_PERSONS
from siloweave.core.model import FeatureModel, MarginalModel
from siloweave.core.party import FEW, named_parties
from siloweave.errors import InputError, count_of
from siloweave.evaluate.workload import tvd, workload_errors
from siloweave.privacy.accountants import Tally, epsilon, of_one_person, rho
from siloweave.privacy.budget import Budget
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
from siloweave.tables.bins import (
    Cuts,
    above,
    as_datetimes,
    growing_starts,
    step_of,
    zero_apart,
)
from siloweave.tables.cells import numbers_of
from siloweave.tables.codes import Codes, Domain, Encoder
from siloweave.tables.column import LOW, Column
from siloweave.tables.display import bound_words
from siloweave.tables.drawn import drawn_as
from siloweave.tables.files import user_path
from siloweave.tables.forms import time_words
from siloweave.tables.joining import beside
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.modelled import Modelled
from siloweave.tables.read import Unread, read, rows_of, unread
from siloweave.tables.table import Table

_DAY = 86_400_000_000  # in microseconds
_BINS = 32  # of a column of numbers, where the model has none
_TINY = 1e-300  # a number that is smaller in size is 0: bins may be cut just above it
_WIDE = 64  # a column with more codes is shown by its most frequent ones
_MOST_SHOWN = 40  # codes of a wide column
_ROWS = 20_000  # that pictures are made of
_MANY = 200_000  # rows that errors are measured on; exact marginals can need gigabytes
_WIDTHS = (1, 2, 3)  # columns of the marginals that distances are measured on
_MARGINALS = 60  # of each width, at most
# Marginals that a line of a ledger names, at most; secure sums and secure marginals cut there.
_NAMED = 8
# Libraries that compute, draw noise and account.
_LIBRARIES = ("jax", "numpy", "opendp", "dp-accounting")
_SCALARS = (str, int, float, bool, type(None))

_Origin = Literal["declared", "paid", "free"]  # of a fact, as `SchemaFact.how`


# Pages


def check_page(path: Path | None) -> None:
    """Refuse a page that could not be written, or would replace a table; before any work.

    Raises:
        InputError: It is no file name of a page, or its folder does not exist.
    """
    if path is None:
        return
    if path.suffix.lower() not in (".html", ".htm") or path.is_dir():
        raise InputError(
            f"cannot write {path}: a page needs the name of a file that ends in .html"
        )
    if not path.parent.is_dir():
        raise InputError(
            f"cannot write {path}: its folder does not exist; create it first."
        )


def write_page(
    path: Path | str | None,
    title: str = "Scores",
    *,
    scores: Any = None,
    risks: Any = None,
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
    path = user_path(path)
    check_page(path)
    score_facts = _as_dict(scores)
    risk_facts = _as_dict(risks)
    page = render_comparison(score_facts, risk_facts, title=title, version=__version__)
    write_whole(path, page.encode())
    return path


def _as_dict(result: Any) -> dict[str, Any] | None:
    """Return scores or risks as a page takes them; None for none."""
    if result is None:
        return None
    facts: dict[str, Any] = result.to_dict()
    return facts


def write_report(
    fitted: Fit,
    path: Path | str,
    *,
    audience: Audience = "public",
    title: str | None = None,
    data: Any = None,
    risks: Any = None,
    run_by: str = "",
) -> Path:
    """Write the report of a fit: one HTML file that opens offline.

    Args:
        fitted: What `fit` or `load` returned.
        path: The file; its name ends in .html.
        audience: ``"public"`` shows only what was paid for or comes from synthetic rows;
            ``"owner"`` shows statistics of real rows beside them, so store it where they are.
        title: Name of the study; the method's if None.
        data: Real rows for the owner's copy, as `fit` takes them.
        risks: What `attack` found, for the owner's copy.
        run_by: Who ran it, for the sign-off; it is read from nowhere else.

    Returns:
        The file.

    Raises:
        InputError: `path` is no file of a page, or `audience` goes together with neither `data`
            nor `risks`.

    Example:
        >>> import siloweave as sw
        >>> from tempfile import TemporaryDirectory
        >>> from siloweave.datasets import adult, adult_schema
        >>> model = sw.GaussianCopula().fit(adult().take(range(300)), adult_schema())
        >>> with TemporaryDirectory() as folder:
        ...     page = sw.write_report(model, Path(folder) / "report.html")
        ...     page.stat().st_size > 10_000
        True
    """
    path = user_path(path)
    check_page(path)
    _check_audience(audience, data, risks)

    real_rows: Sequence[Table] = ()
    if data is not None:
        parts = {"": data}
        if isinstance(data, Mapping | list | tuple):
            parts = named_parties(data, None)
        tables = {name: unread(part) or read(part) for name, part in parts.items()}
        real_rows = owner_rows(fitted, tables)
    # Columns that stay apart are shown without what would join them.
    synthetic = None
    if not fitted.shared:
        synthetic = disjoined(fitted.part_tables(seed=0), 0)

    title = title or fitted.info.title
    record = record_of(
        fitted, title, owner=real_rows, synthetic=synthetic, run_by=run_by
    )
    page = render(record, audience=audience, risks=_as_dict(risks))
    write_whole(path, page.encode(), private=audience == "owner")
    return path


def _check_audience(audience: Audience, data: Any, risks: Any) -> None:
    """Refuse rows and risks for the public, and an owner's report without rows, as InputError."""
    if audience not in ("public", "owner"):
        raise InputError(f'audience={audience!r} must be "public" or "owner"')
    if audience == "owner":
        if data is None:
            raise InputError(
                "the owner's report shows real rows: give data=, as to fit"
            )
        return
    # Whoever gives rows expects to see them: they are not left out in silence.
    if data is not None:
        raise InputError(
            'the public report shows no real rows: leave data out, or give audience="owner"'
        )
    if risks is not None:
        raise InputError(
            'the public report shows no risks: leave it out, or give audience="owner"'
        )


def owner_rows(fitted: Fit, tables: Mapping[str, Table | Unread]) -> list[Table]:
    """Return real rows as the owners' report takes them: those of split columns side by side.

    Of a large table that was not read, as many random ones as synthetic rows are compared with.
    """
    if fitted.columns:
        return [beside([read(table) for table in tables.values()])]
    from siloweave.protocols.schema import clipped

    return [clipped(rows_of(table, _MANY), fitted.schema) for table in tables.values()]


def disjoined(parts: Mapping[str, Table], seed: Key) -> Table:
    """Put synthetic columns that stay apart side by side, each party's rows in their own order."""
    shuffled_parts = []
    for name, part in parts.items():
        # A key for each party: with one for all, rows would still be joined.
        key = fold_in(seed, "not joined", name)
        order = generator(key).permutation(part.num_rows)
        shuffled_parts.append(part.take(order))
    return beside(shuffled_parts)


# What a report shows of a table


@dataclass(frozen=True)
class ReportView:
    """Synthetic rows as codes, and real rows as the same codes.

    Attributes:
        encoder: Table to codes.
        growing: Columns of `bars` whose bins grow by a factor.
        bars: The same for single columns: a model's bins may hold rows evenly, and bars of such
            bins would all be of one height, so here bins are equally wide, or grow by a factor
            where the synthetic rows are skewed.
        codes: Synthetic rows, for associations between columns.
        singles: The same rows by `bars`.
        many: Synthetic rows for errors; empty if they were not asked for.
        rows: How many rows the synthetic table has; where none was given, as many as the model
            stands for.
        shown_codes: Per wide column the codes that are shown one by one; the others are one code.
    """

    encoder: Encoder
    bars: Encoder
    growing: frozenset[str]
    codes: Codes
    singles: Codes
    many: Codes
    rows: int
    shown_codes: Mapping[str, NDArray[np.intp]] = field(default_factory=dict)

    def encode(self, table: Table, encoder: Encoder | None = None) -> Codes:
        """Encode real rows as the synthetic ones are; with `bars`, as `singles` are."""
        encoder = encoder or self.encoder
        return _gathered(encoder.encode(table), self.shown_codes)

    def labels(self, name: str) -> tuple[str, ...]:
        """Return one label per code of a column of `singles`."""
        labels = labels_of(self.bars, name)
        if name not in self.shown_codes:
            return labels
        shown_labels = [labels[code] for code in self.shown_codes[name]]
        return (*shown_labels, "all others")

    def folded_count(self, name: str) -> int:
        """Return how many codes of a column "all others" stands for."""
        if name not in self.shown_codes:
            return 0
        return len(labels_of(self.bars, name)) - len(self.shown_codes[name])


def _view(fitted: Fit, synthetic: Table | None, *, errors: bool) -> ReportView:
    """Return the view of a fit; `synthetic` was drawn from it, so that a slow sampler runs once.

    Args:
        fitted: The fit.
        synthetic: Its synthetic rows; drawn anew if None.
        errors: Whether errors will be measured, which takes many rows.
    """
    if isinstance(fitted.model, MarginalModel) and fitted.modelled.is_identity:
        return _marginal_view(fitted.model, synthetic, errors=errors)

    encoder = Encoder(fitted.schema, _BINS)
    table = synthetic
    if table is None:
        table = fitted.sample_table(seed=0)
    row_count = table.num_rows
    first_rows = table
    if row_count > _MANY:
        first_rows = table.take(range(_MANY))
    all_codes = encoder.encode(first_rows)
    shown_codes = _shown_codes(all_codes)
    many = _gathered(all_codes, shown_codes)
    few = many.take(np.arange(min(many.num_rows, _ROWS)))

    growing = _growing_cuts(encoder, table)
    bars = _bars(encoder, table, growing)
    singles = few
    if bars is not encoder:
        bar_rows = table.take(np.arange(few.num_rows))
        singles = _gathered(bars.encode(bar_rows), shown_codes)
    names = frozenset(growing)
    return ReportView(encoder, bars, names, few, singles, many, row_count, shown_codes)


def _marginal_view(
    model: MarginalModel, synthetic: Table | None, *, errors: bool
) -> ReportView:
    """Return the view of a model of marginals, by its own codes; arguments as of `_view`."""
    # A model of marginals stands for a noisy number of rows.
    total = round(model.mrf.total)
    row_count = total if synthetic is None else synthetic.num_rows
    codes = model.codes(min(total, _ROWS), 0)
    table = model.encoder.decode(codes, key=fold_in(0, "bars"))
    growing = _growing_cuts(model.encoder, table)
    bars = _bars(model.encoder, table, growing)
    singles = codes
    if bars is not model.encoder:
        singles = bars.encode(table)
    many_count = _MANY if errors else 1
    many = model.codes(many_count, 0)
    names = frozenset(growing)
    return ReportView(model.encoder, bars, names, codes, singles, many, row_count)


def _shown_codes(codes: Codes) -> dict[str, NDArray[np.intp]]:
    """Return, for each wide column, the codes of most rows, in their order."""
    shown_codes = {}
    for name, size in zip(codes.domain.names, codes.domain.sizes, strict=True):
        if size <= _WIDE:
            continue
        counts = np.bincount(codes.column(name), minlength=size)
        # Stable: of codes with as many rows, the first are shown on every machine.
        by_count = np.argsort(-counts, kind="stable")
        shown_codes[name] = np.sort(by_count[:_MOST_SHOWN])
    return shown_codes


def _growing_cuts(encoder: Encoder, synthetic: Table) -> dict[str, Cuts]:
    """Return bins that grow by a factor, for the columns whose synthetic rows are skewed."""
    cuts = {}
    for column in encoder.schema.coded:
        if not column.is_number:
            continue
        values, missing = numbers_of(column, synthetic)
        low = float(column.low or 0)
        high = float(column.high or 0)
        whole = column.is_whole
        starts = growing_starts(values[~missing], low, high, _BINS, whole=whole)
        if starts:
            cuts[column.name] = Cuts(tuple(starts))
    return cuts


def _bars(encoder: Encoder, synthetic: Table, growing: Mapping[str, Cuts]) -> Encoder:
    """Return an encoder with equal or growing bins, and one for 0 where many rows have it."""
    cuts = dict(growing)
    # Without cuts of its own a column has equal bins.
    equal = replace(encoder, cuts=cuts)
    for column in encoder.schema.coded:
        if not column.is_number:
            continue
        values, missing = numbers_of(column, synthetic)
        edges = equal.edges(column.name).astype(float)
        apart = zero_apart(edges, values[~missing], whole=column.is_whole)
        if len(apart) > len(edges):
            number = int if column.is_whole else float
            cuts[column.name] = Cuts(tuple(number(start) for start in apart[1:-1]))
    # The very encoder, by which a caller sees that there is nothing to encode anew.
    if cuts == encoder.cuts:
        return encoder
    return replace(encoder, cuts=cuts)


def _gathered(codes: Codes, shown_codes: Mapping[str, NDArray[np.intp]]) -> Codes:
    """Return codes in which those of wide columns that are not shown are one."""
    if not shown_codes:
        return codes
    sizes = []
    columns = []
    for name, size in zip(codes.domain.names, codes.domain.sizes, strict=True):
        column = codes.column(name)
        if name in shown_codes:
            shown_count = len(shown_codes[name])
            # All codes go to the last place, and then those that are shown to their own.
            places = np.full(size, shown_count)
            places[shown_codes[name]] = np.arange(shown_count)
            column = places[column]
            size = shown_count + 1
        sizes.append(size)
        columns.append(column)
    return Codes(Domain(codes.domain.names, tuple(sizes)), tuple(columns))


def labels_of(encoder: Encoder, name: str) -> tuple[str, ...]:
    """Return one label per code of a column."""
    column = encoder.schema[name]
    if column.is_binned:
        edges = encoder.edges(name).tolist()
        labels = [_span(column, start, end) for start, end in pairwise(edges)]
    else:
        labels = [str(option) for option in column.options]
    if column.missing:
        labels.append("missing")
    return tuple(labels)


def _span(column: Column, start: float, end: float) -> str:
    """Describe a bin, from its first to its last value."""
    if column.is_continuous:
        # A bin of a single number ends at the next one that there is.
        if end <= above(start):
            return _number(start)
        return f"{_number(start)} to {_number(end)}"
    first = int(start)
    last = int(end) - 1
    if column.is_datetime:
        bounds = np.array([first, last])
        times = as_datetimes(column, bounds, None).tolist()
        texts = [str(time).removesuffix(" 00:00:00") for time in times]
    else:
        texts = [str(first), str(last)]
    if first == last:
        return texts[0]
    return " to ".join(texts)


def _number(value: float) -> str:
    """Write a number with four digits, or as a whole number where it has more of them."""
    if abs(value) <= _TINY:
        value = 0.0
    if 1e4 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


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
    """Gather everything that the report of a fit shows.

    Args:
        fitted: The fit.
        title: Name of the study.
        owner: Real rows, for the owner's copy only.
        synthetic: Rows drawn from a generator; drawn anew if not given.
        measured: What else was measured on real rows, for the owner's copy.
        run_by: Who ran it, as the caller says.
    """
    # With constraints, rows say how many keep them; a model of marginals alone does not.
    has_rules = not fitted.modelled.is_identity
    if has_rules and synthetic is None and fitted.shared:
        synthetic = fitted.sample_table(seed=0)

    # Where synthetic columns stay with their parties, none are here to show.
    owner_view = None
    if isinstance(fitted.model, DrawnRows) and not fitted.shared:
        public_view = PublicView(
            num_rows=fitted.model.num_rows, marginals=(), kept=True
        )
    else:
        view = _view(fitted, synthetic, errors=bool(owner))
        public_view = _public_view(fitted, view)
        if owner:
            owner_view = _owner_view(fitted, view, owner, measured or {})

    info = fitted.info
    versions = {"Python": python_version()}
    for library in _LIBRARIES:
        versions[library] = version(library)
    statement = info.statement
    # No person is protected as a whole where the unit is a row.
    if fitted.budget.unit == "row":
        statement = statement.replace(OR_PERSONS, ",")
    # A report calls a method by its title.
    titled = msgspec.structs.replace(info, name=info.title, statement=statement)
    method = msgspec.convert(titled, MethodFacts, from_attributes=True)
    visibility = msgspec.convert(
        info.visibility, tuple[Visibility, ...], from_attributes=True
    )
    reason = "" if fitted.private else _not_private_reason(fitted)

    epsilons = fitted.epsilons
    parties = [_party_cost(fitted, name, epsilons[name]) for name in fitted.ledgers]
    ledger_rows: list[LedgerRow] = []
    for name in fitted.ledgers:
        ledger_rows += _ledger_rows(fitted, name)
    phases = []
    for name, seconds in fitted.cost.phases.items():
        phases.append(Phase(name=name, seconds=seconds))

    schema_facts = [_schema_fact(column) for column in fitted.schema.columns]
    schema_facts += _constraint_facts(fitted, synthetic)
    warnings = (*_unprotected(fitted), *_limits(fitted), *_refusing_columns(fitted))
    return Record(
        title=title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        siloweave_version=__version__,
        run_by=run_by,
        versions=versions,
        method=method,
        budget=_budget_terms(fitted.budget),
        private=fitted.private,
        not_private_reason=reason,
        epsilon_spent=fitted.epsilon,
        epsilon_to_parties=fitted.ledger.epsilon_to_parties,
        epsilon_at_parties=fitted.ledger.epsilon_at_parties,
        parties=tuple(parties),
        ledgers=tuple(ledger_rows),
        rho=_rho(fitted),
        noisy_rows=_noisy_rows(fitted),
        visibility=visibility,
        simulated=fitted.simulated,
        phases=tuple(phases),
        schema_facts=tuple(schema_facts),
        assumed_public=_assumed_public(fitted),
        warnings=warnings,
        settings=dict(_flat_settings(fitted.settings)),
        synthetic=public_view,
        owner=owner_view,
    )


def _rho(fitted: Fit) -> float | msgspec.UnsetType:
    """Return the zCDP cost of a unit, if that is all that the ledgers' releases cost."""
    ledgers = []
    for entries in fitted.ledgers.values():
        ledgers.append([entry.event for entry in entries])
    # A party that vanished counts with an epsilon.
    if fitted.unaccounted or not all(map(_is_zcdp, chain.from_iterable(ledgers))):
        return msgspec.UNSET
    # A row of split columns is in all ledgers.
    if fitted.info.split == "columns":
        ledgers = [of_one_person(ledgers)]
    return max((rho(events) for events in ledgers), default=msgspec.UNSET)


def _is_zcdp(event: Event) -> bool:
    """Return whether an event's zCDP holds at every order, and with certainty."""
    is_plain = event.delta == 0 and isinf(event.up_to)
    return is_plain and event.order is msgspec.UNSET and isfinite(event.rho)


def _noisy_rows(fitted: Fit) -> int | msgspec.UnsetType:
    """Return how many rows the parties have by a count that was paid for, if the model has one."""
    if not isinstance(fitted.model, MarginalModel):
        return msgspec.UNSET
    # Without a guarantee the model's count is exact.
    if fitted.info.guarantee not in GUARANTEED:
        return msgspec.UNSET
    return round(max(fitted.model.mrf.total, 0.0))


def _budget_terms(budget: Budget) -> BudgetTerms:
    """Return a budget as a record has it."""
    return BudgetTerms(
        epsilon=budget.epsilon,
        delta=budget.delta,
        unit=budget.unit,
        relation=str(budget.relation),
        rows_per_unit=budget.rows_per_unit,
        parties_per_unit=budget.parties_per_unit,
    )


def _public_view(fitted: Fit, view: ReportView) -> PublicView:
    """Return what anyone may see of the synthetic table and the model."""
    model = fitted.model
    cliques: tuple[tuple[str, ...], ...] = ()
    if isinstance(model, MarginalModel):
        cliques = tuple(model.mrf.tree.cliques)
    return PublicView(
        num_rows=view.rows,
        marginals=_marginals(view, view.singles),
        association=_association(view.codes),
        cliques=cliques,
        kept=not fitted.shared,
    )


def _flat_settings(
    settings: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Setting]]:
    """Yield settings by name; those of a table within are named after it, with a dot."""
    for name, value in settings.items():
        full_name = prefix + name
        if isinstance(value, Mapping):
            yield from _flat_settings(value, f"{full_name}.")
        elif _is_flat_list(value):
            yield full_name, list(value)
        elif isinstance(value, _SCALARS):
            yield full_name, value
        else:
            yield full_name, str(value)


def _is_flat_list(value: object) -> bool:
    """Return whether a value is a list or tuple without lists or tables in it."""
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(item, _SCALARS) for item in value)


def _assumed_public(fitted: Fit) -> tuple[str, ...]:
    """Return what the guarantee takes to be public, in sentences."""
    facts = (
        "the schema: columns, kinds, categories, bounds, where values may be missing"
    )
    if any(column.learned for column in fitted.schema.columns):
        facts += ", but for what was learned and paid for"
    types = "the types that a frame or Parquet file declares for its columns; a CSV declares none"
    if fitted.info.guarantee in GUARANTEED:
        types = "the kind of frame or file that was given; types of drawn columns are the schema's"
    if not isinstance(fitted.model, MarginalModel):
        return facts, types, "every setting"
    roster = "the roster, and which party took part in which round"
    return facts, types, roster, "the workload, the number of bins and every setting"


def _not_private_reason(fitted: Fit) -> str:
    """Say why a fit is not private."""
    info = fitted.info
    if info.guarantee == "none" and not isinstance(fitted.model, MarginalModel):
        return (
            f"{info.title} was trained on the rows without noise: its model and every row drawn "
            "from it may repeat real ones, and no ε bounds that (ε = ∞)."
        )
    if info.guarantee != "dp":
        return f"{info.title} has the guarantee '{info.guarantee}'. {info.statement}"
    return "The noise came from a seed: whoever knows the seed can subtract the noise."


def _unprotected(fitted: Fit) -> Iterator[str]:
    """Say which ledgers are not here, and what of a partly private method no epsilon covers."""
    guarantee = fitted.info.guarantee
    if fitted.unaccounted:
        names = ", ".join(fitted.unaccounted)
        bound = "the study's whole budget, to which its own ledger holds it"
        if guarantee != "dp":
            bound = "no bound, since a ledger of this method has none"
        yield (
            f"These parties vanished before the end, and their ledgers did not arrive: {names}. "
            f"For each, ε here counts {bound}. Its own ledger has what it released."
        )

    unprotected = []
    noisy_events = []
    for entries in fitted.ledgers.values():
        for entry in entries:
            if isinstance(entry.event, NonPrivate):
                unprotected.append(entry.what)
            else:
                noisy_events.append(entry.event)
    if guarantee == "partial" and unprotected and noisy_events:
        delta = fitted.budget.delta
        spent_epsilon = words.epsilon(epsilon(noisy_events, delta))
        releases = "; ".join(dict.fromkeys(unprotected))
        yield (
            f"Noise covers only a part: ε = {spent_epsilon} at δ = {words.small(delta)} for that "
            f"part. Released without any: {releases}."
        )


def _refusing_columns(fitted: Fit) -> Iterator[str]:
    """Describe columns that refuse a table, under a guarantee."""
    # With constraints the schema that was fitted is another than the one that was declared.
    declared = fitted.modelled.declared
    names = [column.name for column in declared.coded if column.outside == "refuse"]
    if names and fitted.info.guarantee in GUARANTEED:
        yield words.refusing(names)


def _limits(fitted: Fit) -> Iterator[str]:
    """Say what the page cannot show, and what the model cannot know."""
    if not fitted.shared:
        yield (
            "Synthetic columns stay with their parties: the public copy of this page shows none of "
            "them, and in the owners' copy rows of different parties are in an order of their own, "
            "so that it does not show how columns of two parties depend on each other."
        )
    # By a noisy count alone: how many rows there are is private.
    row_count = inf
    if isinstance(fitted.model, MarginalModel):
        row_count = fitted.model.mrf.total
    if fitted.budget.private and row_count * fitted.budget.epsilon < FEW:
        yield (
            f"The model stands for about {max(row_count, 0):.0f} rows, by its own count: the noise "
            "is as large as any count of so few, so this table cannot be useful."
        )
    sample = fitted.settings.get("sample")
    if sample:
        consequence = "Numbers of rows here are those of the sample"
        if fitted.info.guarantee == "dp":
            consequence += (
                ", and ε holds for the whole table: "
                "it is computed as if the sample were all of it"
            )
        yield f"Trained from a sample: {sample}. {consequence}."


def _party_cost(fitted: Fit, name: str, party_epsilon: float) -> PartyCost:
    """Return what a party spent and sent; its number of rows only without a guarantee."""
    traffic = fitted.cost.parties[name]
    # Under a guarantee, how many rows a party has is private.
    rows_public = fitted.num_rows if fitted.info.guarantee == "none" else None
    return PartyCost(
        name=name,
        rows_public=rows_public,
        epsilon=party_epsilon,
        bytes_sent=traffic.bytes_from_party,
        bytes_received=traffic.bytes_to_party,
        messages=traffic.messages,
        ledger_head=fitted.heads.get(name, ""),
    )


def _ledger_rows(fitted: Fit, party: str) -> Iterator[LedgerRow]:
    """Yield a party's releases, each with the epsilon of all up to it."""
    tally = Tally()
    for entry in fitted.ledgers[party]:
        tally.add(entry.event)
        yield LedgerRow(
            party=party,
            index=entry.index + 1,
            step=f"{entry.run}: {entry.step}",
            what=words.counted(entry.what),
            to=entry.to,
            mechanism=entry.event.mechanism,
            parameters=_parameters(entry.event),
            cumulative_epsilon=tally.epsilon(fitted.budget.delta),
            rho=entry.event.rho * entry.event.count,
        )


def _parameters(event: Event) -> str:
    """Describe the parameters of a release's mechanism."""
    if isinstance(event, NonPrivate):
        return event.reason
    parts = []
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if value is not msgspec.UNSET:
            label = name.replace("_", " ")
            parts.append(f"{label} {_parameter(value)}")
    return ", ".join(parts)


def _parameter(value: object) -> str:
    """Write the value of a parameter."""
    # A bool is an int, too, so that it comes first.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return words.count(value)
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"
    return str(value)


def _schema_fact(column: Column) -> SchemaFact:
    """Say of a column which facts came from rows, and whether a budget was spent on them."""
    facts = ", ".join(column.from_data or column.learned) or "kind and domain"
    origin: _Origin = "declared"
    if column.from_data:
        origin = "free"
    elif column.learned:
        origin = "paid"
    return SchemaFact(
        column=column.name,
        kind=column.kind,
        facts=facts,
        how=origin,
        values=tuple(_public_values(column)),
    )


def _public_values(column: Column) -> Iterator[str]:
    """Yield what the schema makes public of a column's values."""
    yield from _domain_values(column)
    yield from _written_values(column)
    if column.missing:
        spellings = ", ".join(column.missing_values)
        yield f"may be missing, as {spellings}" if spellings else "may be missing"
    elif column.modelled:
        yield "never missing"
    if column.outside == "refuse":
        yield "a table with any other cell is refused"
    elif column.fallback is not None:
        yield _fallback_words(column)


def _fallback_words(column: Column) -> str:
    """Say which value stands for cells that a column has no place for."""
    value = column.fallback
    if not column.is_binned:
        return f"any other cell becomes {value}"

    # Numbers and dates beyond the bounds become the nearest bound.
    cells = "an unreadable cell" if column.missing else "an unreadable or missing cell"
    if value == LOW:
        # Bounds that were learned are no fact of the schema.
        value = "the least" if column.low is None else bound_words(column.low)
    return f"{cells} becomes {value}"


def _domain_values(column: Column) -> Iterator[str]:
    """Yield which values a column may have, as the schema says."""
    if column.is_binned:
        low = "the least" if column.low is None else bound_words(column.low)
        high = "the largest" if column.high is None else bound_words(column.high)
        yield f"{low} to {high}"
    if column.options:
        names = ", ".join(map(str, column.options))
        count = count_of(len(column.options), "category", "categories")
        yield f"{count}: {names}"
    if column.other is not None:
        yield f"all others count as {column.other}"
    if not column.modelled:
        yield f"drawn anew ({drawn_as(column)}), not modelled"


def _written_values(column: Column) -> Iterator[str]:
    """Yield how a column's values are written, as the schema says."""
    if column.modelled and column.format is not None:
        form = column.format
        if column.is_datetime:
            form = time_words(form)
        yield f"written like {form}"
    if column.decimals is not None:
        yield count_of(column.decimals, "decimal", "decimals")
    if column.padded:
        yield f"written with {count_of(column.padded, 'decimal', 'decimals')} at least"
    if column.resolution is not None:
        yield f"to the {column.resolution}"
    if column.zone is not None:
        yield f"time zone {column.zone}"


def _constraint_facts(fitted: Fit, synthetic: Table | None) -> Iterator[SchemaFact]:
    """Say what every row keeps, and how many drawn rows break it: none, or the fit is broken."""
    modelled = Modelled(fitted.schema, fitted.modelled.parts)
    breaches = {} if synthetic is None else modelled.broken(synthetic)
    rules = fitted.schema.constraints
    declared_rules = fitted.modelled.declared.constraints
    for rule, declared_rule in zip(rules, declared_rules, strict=True):
        facts = rule.words
        if synthetic is not None:
            count = int(np.count_nonzero(breaches[rule.words]))
            facts += f": {count:,} of {synthetic.num_rows:,} drawn rows break it"
        # A rule that is not as it was declared had something open, which was learned.
        origin: _Origin = "paid"
        if rule.from_data:
            origin = "free"
        elif rule == declared_rule:
            origin = "declared"
        columns = ", ".join(rule.columns)
        yield SchemaFact(column=columns, kind="constraint", facts=facts, how=origin)


def _marginals(view: ReportView, codes: Codes) -> tuple[Marginal, ...]:
    """Return the shares of every column's codes, with their labels."""
    marginals = []
    for name in codes.domain.names:
        column = view.bars.schema[name]
        counts = marginal(codes, (name,)).astype(float)
        # Of no rows all shares are 0.
        proportions = counts / max(1.0, counts.sum())
        is_whole = name not in view.shown_codes
        is_ordered = column.is_binned and is_whole
        column_marginal = Marginal(
            column=name,
            kind=column.kind,
            labels=view.labels(name),
            proportions=tuple(proportions.tolist()),
            ordered=is_ordered,
            missing=column.missing and is_whole,
            logarithmic=name in view.growing,
            edges=_axis_edges(view.bars, name) if is_ordered else msgspec.UNSET,
            others=view.folded_count(name) or msgspec.UNSET,
        )
        marginals.append(column_marginal)
    return tuple(marginals)


def _axis_edges(encoder: Encoder, name: str) -> tuple[float, ...]:
    """Return where a column's bins begin and end, as numbers of an axis; dates in days."""
    edges = encoder.edges(name).astype(float)
    column = encoder.schema[name]
    if column.is_datetime:
        edges = edges * (step_of(column) / _DAY)
    return tuple(edges.tolist())


def _association(codes: Codes) -> Association:
    """Return how strongly each two columns depend on each other, from 0 to 1."""
    values = np.clip(cramers_v(codes), 0.0, 1.0).tolist()
    return Association(
        names=codes.domain.names, values=tuple(tuple(row) for row in values)
    )


def _owner_view(
    fitted: Fit,
    view: ReportView,
    tables: Sequence[Table],
    measured: Mapping[str, float],
) -> OwnerView:
    """Return the statistics of real rows, and how far the synthetic ones are from them."""
    real_codes = Codes.concat([view.encode(table) for table in tables])
    bar_codes = real_codes
    if view.bars is not view.encoder:
        bar_codes = Codes.concat([view.encode(table, view.bars) for table in tables])

    distances = {}
    column_count = len(real_codes.domain.names)
    for width in _WIDTHS:
        if width <= column_count and real_codes.num_rows:
            distance = tvd(real_codes, view.many, width, max_cliques=_MARGINALS, key=0)
            distances[f"{width}-way"] = distance
    return OwnerView(
        marginals=_marginals(view, bar_codes),
        association=_association(real_codes),
        workload_errors=_workload_errors(fitted, view, tables, real_codes),
        tvd=distances,
        scores=dict(measured),
        training=tuple(_training_looks(fitted)),
        measured=_measured_in_full(fitted),
    )


def _measured_in_full(fitted: Fit) -> tuple[tuple[str, ...], ...]:
    """Name all marginals of the rounds that measured more than a ledger's line names."""
    model = fitted.model
    if not isinstance(model, MarginalModel):
        return ()
    names_by_round = []
    for measured in model.measured:
        if len(measured.cliques) > _NAMED:
            names = tuple("×".join(clique) for clique in measured.cliques)
            names_by_round.append(names)
    return tuple(names_by_round)


def _workload_errors(
    fitted: Fit, view: ReportView, tables: Sequence[Table], real_codes: Codes
) -> dict[str, float]:
    """Measure how far a model of marginals is from real rows; empty for any other model."""
    model = fitted.model
    if not isinstance(model, MarginalModel) or not model.workload:
        return {}
    if not real_codes.num_rows:
        return {}
    synthetic_codes = view.many
    # With constraints the model has codes of its own, of other columns than the table's.
    if not fitted.modelled.is_identity:
        parts = [model.encoder.encode(fitted.learned(table)) for table in tables]
        real_codes = Codes.concat(parts)
        synthetic_codes = model.codes(_MANY, 0)
    errors = workload_errors(real_codes, synthetic_codes, model.workload)
    return {"over the queries": errors.queries, "over their closure": errors.closure}


def _training_looks(fitted: Fit) -> Iterator[TrainingLook]:
    """Yield how well a network had learned rows held back, at several times of its training."""
    model = fitted.model
    if isinstance(model, FeatureModel) and isinstance(model.net, NetworkModel):
        for look in model.net.looks:
            yield TrainingLook(step=look.step, seconds=look.seconds, loss=look.loss)
