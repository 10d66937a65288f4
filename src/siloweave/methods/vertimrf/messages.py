"""What VertiMRF sends (Zhao et al. 2024), and how its budget is divided over all parties.

No request repeats the study: every party has settings, schema, roster and budget of its own, and
computes the same plan from them as the coordinator.

**Guarantee**: see method.py. A plan follows from public facts alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import msgspec

from siloweave.errors import BudgetError
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.methods.vertimrf.settings import VertiMRFSettings
from siloweave.models.carest import bins_of
from siloweave.privacy import events
from siloweave.privacy.budget import (
    Budget,
    gaussian_sigma,
    marginal_sensitivity,
    rho_for,
    size_sensitivity,
)
from siloweave.privacy.mechanisms import LEAST_RESPONSE, MOST_RESPONSE
from siloweave.privacy.sketches import SketchNoise, sketch_epsilon
from siloweave.protocols.random_fields import FieldSettings
from siloweave.protocols.secure_sums import ModelMessage
from siloweave.tables.codes import Clique, Domain, Encoder
from siloweave.tables.schema import Schema


class SketchKey(Reply, frozen=True):
    """A party's public key, with its signature."""

    key: Public[bytes]


class SendSketchKey(Request[SketchKey], frozen=True, tag="vertimrf/send_key"):
    """Send your public key."""


class SealedKeys(Reply, frozen=True):
    """The key of all sketches, sealed for each party but the first, in roster order."""

    keys: tuple[Public[bytes], ...]


class SealSketchKey(Request[SealedKeys], frozen=True, tag="vertimrf/seal_key"):
    """Draw the key of all sketches, and seal it for the parties whose public keys these are."""

    keys: dict[str, bytes]


class LocalField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A private Markov random field of a party's own columns."""

    model: ModelMessage  # a potential for each measured marginal
    edges: tuple[Clique, ...]  # of its graph
    sigma: float  # noise of a measured count


class Encoded(Reply, frozen=True):
    """All that a party releases: its field, and its columns encoded."""

    field: Released[LocalField]
    # From the first party, where their number is private.
    paid_rows: tuple[Released[int], ...]
    known_rows: tuple[Public[int], ...]  # from the first party, where it is public
    # Histograms of binned columns, one after the other.
    values: tuple[Released[Array], ...]
    encoded: Released[Array]  # sketches (repetitions, bins), or answers (rows, columns)


class EncodeColumns(Request[Encoded], frozen=True, tag="vertimrf/encode"):
    """Learn a field of your columns, and encode them; the key of sketches as `SealedKeys` has it.

    The keys are empty for the first party, which drew the key of sketches, and for answers.
    """

    sealer: bytes = b""  # public key of the first party, signed
    sealed: bytes = b""


def field_domain(synth: VertiMRFSettings, schema: Schema) -> Domain:
    """Return the domain of the codes of some columns."""
    return Encoder(schema, synth.bins).domain


def bin_counts(synth: VertiMRFSettings, domain: Domain) -> tuple[int, ...]:
    """Return the number of bins in which each attribute is encoded."""
    return tuple(
        int(bins_of(size, synth.encoded_bins)[-1]) + 1 for size in domain.sizes
    )


def binned(synth: VertiMRFSettings, domain: Domain) -> tuple[str, ...]:
    """Return the names of the attributes that have more values than bins."""
    pairs = zip(domain.names, domain.sizes, bin_counts(synth, domain), strict=True)
    return tuple(name for name, size, bins in pairs if bins < size)


@dataclass(frozen=True, kw_only=True)
class _Shares:
    """The parts of a budget."""

    field_rho: float  # zCDP of each party's field
    values_rho: float  # zCDP of all histograms of binned columns
    # Event of their number, at the first party; None if it is public.
    rows: events.Laplace | None = None
    noise: SketchNoise | None = None  # phantoms and floor of sketches; None for answers
    response_epsilon: float = 0.0  # of each randomised answer; 0 for sketches
    # Claimed and exact epsilon of all sketches.
    worth: tuple[float, float] | None = None
    bare: events.NonPrivate | None = None  # event of all sketches; None for answers


@dataclass(frozen=True, kw_only=True)
class VertiMRFPlan(_Shares):
    """The division of a budget, which is fixed before anything is read."""

    field: FieldSettings  # of each party's field
    # Events of the histograms of binned columns, by party.
    values: Mapping[str, events.Gaussian]
    encoding: Mapping[str, events.Event]  # event of what each party encodes

    @classmethod
    def of(
        cls, synth: VertiMRFSettings, parts: Mapping[str, Schema], budget: Budget
    ) -> VertiMRFPlan:
        """Divide a budget; `parts` are every party's columns, in roster order.

        Shares are of epsilon for sketches, as published, and of zCDP for answers.

        Raises:
            BudgetError: It leaves nothing for a field.
            InputError: It leaves too little for sketches or answers.
        """
        domains = {name: field_domain(synth, part) for name, part in parts.items()}
        sizes: list[int] = []
        for domain in domains.values():
            sizes += domain.sizes
        binned_columns = {
            name: len(binned(synth, domain)) for name, domain in domains.items()
        }
        values_share = synth.values_share if any(binned_columns.values()) else 0.0
        divide = _for_sketches if synth.encoding == "fm" else _for_answers
        shares = divide(synth, values_share, len(parts), len(sizes), budget)

        # tau' <= tau / (m u^2): so large a local clique may be joined with the columns of others.
        mean_size = sum(sizes) / len(sizes)
        most_cells = synth.clique_cells / (len(parts) * mean_size**2)
        field = FieldSettings(theta=synth.theta, clique_cells=max(1.0, most_cells))

        # A row is once in the histogram of each binned column, at whichever party that is.
        unit = marginal_sensitivity(budget.neighbours, norm="l2")
        sigma = 0.0
        if values_share:
            all_binned = sum(binned_columns.values())
            sigma = max(0.5, gaussian_sigma(shares.values_rho, unit * sqrt(all_binned)))
        values = {}
        for name, count in binned_columns.items():
            if count:
                values[name] = events.Gaussian(
                    sigma=sigma, sensitivity=unit * sqrt(count)
                )

        encoding: dict[str, events.Event] = {}
        for name, domain in domains.items():
            # Sketches have no epsilon of an answer, of which an event could be made.
            if shares.bare is not None:
                encoding[name] = shares.bare
            else:
                encoding[name] = events.RandomisedResponse(
                    shares.response_epsilon, len(domain.names)
                )
        return cls(**vars(shares), field=field, values=values, encoding=encoding)


def _for_answers(
    synth: VertiMRFSettings,
    values_share: float,
    parties: int,
    columns: int,
    budget: Budget,
) -> _Shares:
    """Divide a budget for randomised answers in zCDP, which adds up over all releases."""
    rho = rho_for(budget)
    # An answer costs epsilon^2 / 2, and a row gives one in each column, at all parties together.
    answers_rho = rho * (1 - synth.field_share - values_share)
    response = sqrt(2 * answers_rho / columns)
    if response < LEAST_RESPONSE:
        raise BudgetError(
            f"budget: epsilon = {budget.epsilon} leaves {response:.2g} for each of {columns} "
            f"answers, and less than {LEAST_RESPONSE} is not drawn. Raise epsilon, or use "
            "secure marginals."
        )
    return _Shares(
        field_rho=rho * synth.field_share / parties,
        values_rho=rho * values_share,
        response_epsilon=min(response, MOST_RESPONSE),
    )


def _for_sketches(
    synth: VertiMRFSettings,
    values_share: float,
    parties: int,
    columns: int,
    budget: Budget,
) -> _Shares:
    """Divide a budget for sketches in epsilon and delta, as published (section 7.1)."""
    epsilon = budget.epsilon
    # Half of delta is for the fields, half for what is encoded: sketches, and histograms if any.
    delta = budget.delta / (4 if values_share else 2)
    sketches_share = 1 - synth.field_share - values_share

    # Where the number of rows is private, it takes its share of the part for encoding.
    rows = None
    unit = size_sensitivity(budget.neighbours)
    if unit:
        rows_share = synth.rows_share * (1 - synth.field_share - synth.values_share)
        rows = events.Laplace(
            scale=max(0.1, unit / (epsilon * rows_share)), sensitivity=unit
        )
        sketches_share -= rows_share

    # What Theorem 2 claims for the sketches, and what they are worth, composed exactly.
    claimed = epsilon * sketches_share
    noise = SketchNoise.published(
        claimed, delta, repetitions=synth.repetitions, attributes=columns
    )
    exact = sketch_epsilon(
        noise, delta=delta, repetitions=synth.repetitions, attributes=columns
    )
    bare = events.NonPrivate(
        f"sketches of all parties under one key: the paper claims epsilon = {claimed:.3g} "
        f"at delta = {delta:.3g}; composed exactly it is {exact:.4g}, and only towards a server "
        "that no party helps"
    )

    field_budget = Budget(
        epsilon * synth.field_share / parties, budget.delta / (2 * parties)
    )
    values_rho = 0.0
    if values_share:
        values_rho = rho_for(Budget(epsilon * values_share, delta))
    return _Shares(
        field_rho=rho_for(field_budget),
        values_rho=values_rho,
        rows=rows,
        noise=noise,
        worth=(claimed, exact),
        bare=bare,
    )
