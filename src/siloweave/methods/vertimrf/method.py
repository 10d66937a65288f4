"""VertiMRF: one Markov random field over columns that lie at several parties.

Zhao, Li, Ren, Ding, Yang & Li 2024, "VertiMRF: Differentially Private Vertical Federated Data
Synthesis" (KDD), all six phases. (1) Each party learns a private Markov random field of its own
columns (PrivMRF, protocols/random_fields.py), with its part of `field_share`; (2) it encodes its
columns once; (3) the server estimates all pairs of two parties' columns from the codes and adds
edges to the union of the parties' graphs; (4) it fits a field to the marginals of all local fields,
(5) refines it in steps by the estimated pairs that it has least right, and (6) draws rows. Columns
of more than `encoded_bins` values are encoded in so many bins; noisy histograms spread a bin's
count over its values (HisRec).

**Guarantee** of ``encoding="fo"`` (dp, replace-one row): towards the server, readers, and the other
parties, also where they pool what they know, for what a party itself does not hold. Values are
randomised one by one before they leave (generalised randomised response: local privacy of the whole
row); fields and histograms are discrete Gaussian. One person's row lies at all parties, and all
that they release adds up in zCDP: d answers cost d epsilon'^2 / 2 over all parties, twice what the
paper charges. Every party computes the whole plan from the study, so that it pays for its own part
of a budget that all keep together. The number of rows is public. Assumed public: schema, bins,
settings, roster, which party holds which columns, and that rows are aligned.

**Guarantee** of ``encoding="fm"`` (refuted): Flajolet-Martin sketches as published. The paper's
Theorem 2 takes the sketches of a row's d attributes for independent, but all parties hash a row
with one key, so that equal, unusually high sketches show that a row is there; what they are worth
is computed exactly (privacy/sketches.py) and written beside the claim into every ledger, whose
epsilon is infinite: the exact figure holds only towards a server that knows no key, and one party
that helps it knows all. docs/concepts/sketches.md explains it, and what to use instead.

Where this departs from the paper, and why:

* Keys come from a key agreement with signed keys, one stream of ChaCha20 a repetition; the
  published code has one integer below 100,000, which its server knows.
* The number of rows is released once, by the first party, and not by each. Histograms of values
  have discrete Gaussian noise on counts, and share `values_share` between all binned columns; the
  paper's noise is paid for one column only, and its code sends binned columns as they are.
* With sketches half of delta is for fields and half for what is encoded, and shares are of epsilon,
  as published. With answers shares are of zCDP.
* The phantoms of a union are counted by each attribute's own number of values.
* Estimates are weighted by their noise in the fit (models/estimate.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import ClassVar

from siloweave.core import views
from siloweave.core.method import Forecast, Guarantee, Method, Setup
from siloweave.core.model import MarginalModel
from siloweave.core.run import Synthesizer
from siloweave.core.views import View, Views
from siloweave.errors import CapacityError, number, whole
from siloweave.federation.messages import MAX_BYTES
from siloweave.methods.vertimrf import coordinator, messages, party
from siloweave.methods.vertimrf.settings import VertiMRFSettings
from siloweave.models.junction_tree import cells_in
from siloweave.privacy.budget import refuse_several_rows
from siloweave.protocols import columns
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

_MOST_REPETITIONS = 2**17
_WORD_S = 1.3e-9  # of a row, column and repetition, on one core
_UNION_S = 1e-8  # of a repetition of a cell of a pair of two parties
_PAIR_COPIES = 4.0  # of such a pair in memory
# Of a fit, by adult's, of which a tree has about ten times the pairs' cells.
_FIT_S_PER_CELL = 4e-6
_KNOWN = "nothing sound: sketches of a row share one hash"


def _check_size(codes: int, instead: str) -> None:
    """Refuse codes too many for a message, before they are paid for."""
    if codes > MAX_BYTES // 2:
        raise CapacityError(
            f"encoded columns take {codes:,} bytes, and a message has {MAX_BYTES // 2:,} for them; "
            f"take {instead}"
        )


def _check_schema(synth: VertiMRF, schema: Schema) -> None:
    """Refuse columns without bounds, and more sketches than a message holds."""
    domain = messages.field_domain(synth, schema)
    if synth.encoding == "fm":
        _check_size(
            synth.repetitions * sum(messages.bin_counts(synth, domain)),
            "fewer repetitions",
        )


def _guarantee(synth: VertiMRF) -> Guarantee:
    """Return the guarantee of a run, by its encoding."""
    if synth.encoding == "fo":
        return Guarantee(
            "dp",
            "Every row, against everyone: its values are randomised before they leave a party, and "
            "all else is noisy. Neighbours replace one row.",
            title="VertiMRF-FO",
        )
    return Guarantee(
        "refuted",
        "None that is bounded. The paper claims one for its sketches, and it is false: sketches "
        "that are equal and unusually high show that a row is there. Ledgers state what they are "
        "worth towards a server that no party helps.",
        title="VertiMRF-FM",
    )


def _visibility(synth: VertiMRF) -> Views:
    """Return the lines of who sees what in a run, by its encoding."""
    noisy_in = ("Encoded.field", "Encoded.values")
    if synth.encoding == "fo":
        everything = View(
            views.COORDINATOR,
            "a noisy model of each party's columns, histograms, and a randomised value of each "
            "cell",
            views.NOISE,
            (*noisy_in, "Encoded.encoded"),
        )
        others = View(
            views.OTHERS,
            "that they hold the same people, in the same order",
            views.NOTHING,
        )
        return (views.own_columns(), everything, others, views.READERS)

    fields = View(
        views.COORDINATOR,
        "a noisy model of each party's columns, and histograms",
        views.NOISE,
        (*noisy_in, "Encoded.paid_rows"),
    )
    sketches = "sketches of each party's columns"
    key_in = ("SealSketchKey", "EncodeColumns")
    return (
        views.own_columns(),
        fields,
        View(views.COORDINATOR, sketches, _KNOWN, ("Encoded.encoded",)),
        View(views.OTHERS, "the key of all sketches", _KNOWN, key_in),
        View("readers", views.READERS.sees, _KNOWN),
    )


def _data(table: Table, setup: Setup, party: str) -> Codes:
    """Encode a party's columns as codes."""
    schema = columns.parts_of(setup)[party]
    synth = setup.settings_as(VertiMRFSettings)
    if synth.encoding == "fo":
        _check_size(table.num_rows * len(schema.names), "fewer rows")
    return Encoder(schema, synth.bins).encode(table.select(list(schema.names)))


def _affordable(setup: Setup) -> None:
    """Refuse a budget that the plan cannot divide, and pairs too large for the model."""
    synth = setup.settings_as(VertiMRFSettings)
    refuse_several_rows(
        setup.budget,
        "VertiMRF",
        "what each row sends, or sketches of rows, is priced for one row",
    )
    if synth.encoding == "fo":
        columns.require_replacing(setup.budget, "every row sends an answer")
    if setup.columns:
        parts = columns.parts_of(setup)
        bins = [
            messages.bin_counts(synth, messages.field_domain(synth, part))
            for part in parts.values()
        ]
        _check_pairs(synth, bins)
        messages.VertiMRFPlan.of(synth, parts, setup.budget)


def _check_pairs(synth: VertiMRFSettings, bins: Sequence[tuple[int, ...]]) -> None:
    """Refuse a pair of two parties' columns whose counts the model has no room for."""
    # The widest pair is of the two parties with the widest columns.
    widest = sorted(max(party_bins) for party_bins in bins)[-2:]
    most = cells_in(synth.max_model_mb)
    cells = prod(widest)
    if len(widest) == 2 and cells > most:
        raise CapacityError(
            f"two parties' columns that are encoded in {widest[1]:,} and {widest[0]:,} values have "
            f"{cells:,} pairs of them, and max_model_mb = {synth.max_model_mb:g} has room for "
            f"{most:,.0f}; take fewer encoded_bins, or raise it"
        )


def _forecast(setup: Setup, rows: int) -> Forecast:
    """Forecast a run, of which codes take most bytes, or pairs of many bins most time.

    Codes are sketches of all bins, or a byte for each cell.
    """
    synth = setup.settings_as(VertiMRFSettings)
    domain = messages.field_domain(synth, setup.schema)
    bins = dict(zip(domain.names, messages.bin_counts(synth, domain), strict=True))
    is_sketched = synth.encoding == "fm"
    codes = rows * len(bins)
    if is_sketched:
        codes = synth.repetitions * sum(bins.values())

    # Where it is not said who holds what, every column may be at another party.
    party_bins = []
    for names in setup.columns.values():
        party_bins.append(sum(bins.get(name, 0) for name in names))
    value_pairs = _cross_products(domain.sizes)
    bin_pairs = _cross_products(party_bins or list(bins.values()))

    cells = min(domain.size(), synth.clique_cells, 10 * value_pairs)
    seconds = (synth.refine_steps + 2 * len(setup.roster)) * _FIT_S_PER_CELL * cells
    if is_sketched:
        seconds += rows * len(domain.names) * synth.repetitions * _WORD_S
        seconds += bin_pairs * synth.repetitions * _UNION_S

    keys = int(is_sketched and len(setup.roster) > 1)
    # Interpreter and libraries, and what is made of numbers of 8 bytes.
    memory_mb = 230 + 8e-6 * (8 * cells + codes + _PAIR_COPIES * bin_pairs)
    epsilon = inf if is_sketched else setup.budget.epsilon
    return Forecast(
        {
            messages.SendSketchKey: keys,
            messages.SealSketchKey: keys,
            messages.EncodeColumns: 1,
        },
        memory_mb,
        codes // len(setup.roster) + 50_000,
        6 + seconds,
        epsilon,
        domain.size(),
    )


def _cross_products(sizes: Sequence[int]) -> float:
    """Sum the products of all pairs of sizes."""
    return (sum(sizes) ** 2 - sum(size**2 for size in sizes)) / 2


@dataclass(frozen=True)
class VertiMRF(Synthesizer, VertiMRFSettings):
    """One Markov random field over columns of several parties.

    Args:
        encoding: "fo", randomised response, whose guarantee holds; or "fm", the paper's
            Flajolet-Martin sketches, for comparison: their guarantee is refuted.
        repetitions: Sketches of each value.
        encoded_bins: Bins in which a column with more values is encoded; None for no bins.
        field_share: Share of the budget for the parties' own fields.
        values_share: Share for histograms of binned columns; where no column is binned, encoding
            has it. The rest is for encoding.
        rows_share: Share of the part for encoding that the number of rows takes, where private.
        clique_cells: Cells of the largest clique of the server's graph.
        theta: A pair is used if its mean count is so many times the noise of the parties' counts.
        refined: Pairs of two parties that are added, as a multiple of the columns.
        refine_steps: Steps in which they are added.
        consistent: Whether estimated pairs are first made consistent with the local fields.
        bins: Bins of a column of numbers, at most; they are equally wide.
        max_model_mb: Bound on the junction tree, and on counts of a pair of two parties' columns as
            they are encoded, at 8 bytes a cell.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> from siloweave.privacy.budget import Budget, Relation
        >>> rows = adult().take(range(500))
        >>> parties = {"a": rows.select(["sex", "race"]), "b": rows.select(["income"])}
        >>> schema = adult_schema().select(["sex", "race", "income"])
        >>> budget = Budget(2.0, 1e-4, relation=Relation.REPLACE_ONE)
        >>> fitted = VertiMRF().fit(parties, schema, budget=budget)
        >>> fitted.epsilon <= 2.0, len(fitted.sample(5))
        (True, 5)
    """

    method: ClassVar[Method] = Method(
        name="vertimrf",
        title="VertiMRF",
        family="graphical model",
        split="columns",
        trust="local",
        paper="Zhao, Li, Ren, Ding, Yang & Li 2024, VertiMRF: Differentially Private Vertical "
        "Federated Data Synthesis, KDD",
        guarantee=_guarantee,
        visibility=_visibility,
        prepare=_data,
        facts=lambda setup: {**columns.column_facts(setup), "budget": setup.budget},
        handlers=party.handlers,
        coordinate=coordinator.coordinate,
        load=MarginalModel.load,
        forecast=_forecast,
        check_schema=_check_schema,
        affordable=_affordable,
        phase="encoding and fitting",
    )

    def _check_settings(self) -> None:
        """Raise InputError for settings out of bounds."""
        for name in ("repetitions", "bins", "refine_steps", "encoded_bins"):
            value = getattr(self, name)
            if value is not None or name != "encoded_bins":
                whole(name, value, 1)
        number("repetitions", self.repetitions, 1, _MOST_REPETITIONS)
        for name in ("field_share", "rows_share"):
            number(name, getattr(self, name), 0, 0.9, "()")
        number("values_share", self.values_share, 0, 0.9 - self.field_share, "()")
        for name in ("clique_cells", "max_model_mb", "theta", "refined"):
            number(name, getattr(self, name), 0, inf, "()")
