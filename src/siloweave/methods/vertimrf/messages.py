"""What VertiMRF sends (Zhao et al. 2024), and how its budget is divided over all parties.

No request repeats the study: every party has settings, schema, roster and budget of its own, and
computes the same plan from them as the coordinator.

**Guarantee**: see method.py. A plan follows from public facts alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import msgspec

from siloweave.errors import BudgetError
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.models.carest import bins_of
from siloweave.privacy.budget import (
    Budget,
    gaussian_sigma,
    marginal_sensitivity,
    rho_for,
    size_sensitivity,
)
from siloweave.privacy.events import Event, Gaussian, Laplace, NonPrivate, RandomisedResponse
from siloweave.privacy.mechanisms import LEAST_RESPONSE, MOST_RESPONSE
from siloweave.privacy.sketches import SketchNoise, sketch_epsilon
from siloweave.protocols.random_fields import FieldSettings
from siloweave.protocols.secure_sums import ModelMessage
from siloweave.tables.codes import Clique, Domain, Encoder
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.methods.vertimrf.method import VertiMRF


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
    paid_rows: tuple[Released[int], ...]  # from the first party, where their number is private
    known_rows: tuple[Public[int], ...]  # from the first party, where it is public
    values: tuple[Released[Array], ...]  # histograms of binned columns, one after the other
    encoded: Released[Array]  # sketches (repetitions, bins), or answers (rows, columns)


class EncodeColumns(Request[Encoded], frozen=True, tag="vertimrf/encode"):
    """Learn a field of your columns, and encode them; the key of sketches as `SealedKeys` has it.

    The keys are empty for the first party, which drew the key of sketches, and for answers.
    """

    sealer: bytes = b""  # public key of the first party, signed
    sealed: bytes = b""


def field_domain(synth: VertiMRF, schema: Schema) -> Domain:
    """The codes of some columns."""
    return Encoder(schema, synth.bins).domain


def bin_counts(synth: VertiMRF, domain: Domain) -> tuple[int, ...]:
    """How many bins each attribute is encoded in."""
    return tuple(int(bins_of(size, synth.encoded_bins)[-1]) + 1 for size in domain.sizes)


def binned(synth: VertiMRF, domain: Domain) -> tuple[str, ...]:
    """Attributes that have more values than bins."""
    pairs = zip(domain.names, domain.sizes, bin_counts(synth, domain), strict=True)
    return tuple(name for name, size, bins in pairs if bins < size)


@dataclass(frozen=True, kw_only=True)
class _Shares:
    """A budget's parts."""

    field_rho: float  # zCDP of each party's field
    values_rho: float  # zCDP of all histograms of binned columns
    rows: Laplace | None = None  # event of their number, at the first party; None if it is public
    noise: SketchNoise | None = None  # phantoms and floor of sketches; None for answers
    response_epsilon: float = 0.0  # of each randomised answer; 0 for sketches
    worth: tuple[float, float] | None = None  # claimed and exact epsilon of all sketches
    bare: NonPrivate | None = None  # event of all sketches; None for answers


@dataclass(frozen=True, kw_only=True)
class VertiMRFPlan(_Shares):
    """How a budget is divided, before anything is read."""

    field: FieldSettings  # of each party's field
    values: Mapping[str, Gaussian]  # events of the histograms of binned columns, by party
    encoding: Mapping[str, Event]  # event of what each party encodes

    @classmethod
    def of(cls, synth: VertiMRF, parts: Mapping[str, Schema], budget: Budget) -> VertiMRFPlan:
        """Divide a budget; `parts` are every party's columns, in roster order.

        Shares are of epsilon for sketches, as published, and of zCDP for answers.

        Raises:
            BudgetError: It leaves nothing for a field.
            InputError: It leaves too little for sketches or answers.
        """
        domains = {name: field_domain(synth, part) for name, part in parts.items()}
        sizes = [size for domain in domains.values() for size in domain.sizes]
        wide = {name: len(binned(synth, domain)) for name, domain in domains.items()}
        values = synth.values_share if any(wide.values()) else 0.0
        most = synth.clique_cells / (len(parts) * (sum(sizes) / len(sizes)) ** 2)
        field = FieldSettings(theta=synth.theta, clique_cells=max(1.0, most))
        divide = _for_sketches if synth.encoding == "fm" else _for_answers
        own = divide(synth, values, len(parts), len(sizes), budget)
        unit, sigma = marginal_sensitivity(budget.neighbours, norm="l2"), 0.0
        if values:
            sigma = max(0.5, gaussian_sigma(own.values_rho, unit * sqrt(sum(wide.values()))))
        return cls(
            **vars(own),
            field=field,
            values={
                n: Gaussian(sigma=sigma, sensitivity=unit * sqrt(k)) for n, k in wide.items() if k
            },
            encoding={
                name: own.bare or RandomisedResponse(own.response_epsilon, len(domain.names))
                for name, domain in domains.items()
            },
        )


def _for_answers(
    synth: VertiMRF, values: float, parties: int, columns: int, budget: Budget
) -> _Shares:
    """zCDP adds up over everything; that of an answer is epsilon^2 / 2."""
    rho = rho_for(budget)
    response = sqrt(2 * rho * (1 - synth.field_share - values) / columns)
    if response < LEAST_RESPONSE:
        raise BudgetError(
            f"budget: epsilon = {budget.epsilon} leaves {response:.2g} for each of {columns} "
            f"answers, and less than {LEAST_RESPONSE} is not drawn. Raise epsilon, or use "
            "secure marginals."
        )
    return _Shares(
        field_rho=rho * synth.field_share / parties,
        values_rho=rho * values,
        response_epsilon=min(response, MOST_RESPONSE),
    )


def _for_sketches(
    synth: VertiMRF, values: float, parties: int, columns: int, budget: Budget
) -> _Shares:
    """Epsilon and delta add up: half of delta is for the fields, and half for what is encoded."""
    epsilon, delta = budget.epsilon, budget.delta / (4 if values else 2)
    rows, left = None, 1 - synth.field_share - values
    if unit := size_sensitivity(budget.neighbours):
        share = synth.rows_share * (1 - synth.field_share - synth.values_share)
        rows = Laplace(scale=max(0.1, unit / (epsilon * share)), sensitivity=unit)
        left -= share
    times = {"repetitions": synth.repetitions, "attributes": columns}
    noise = SketchNoise.published(epsilon * left, delta, **times)
    exact = sketch_epsilon(noise, delta=delta, **times)
    bare = NonPrivate(
        f"sketches of all parties under one key: the paper claims epsilon = {epsilon * left:.3g} "
        f"at delta = {delta:.3g}; composed exactly it is {exact:.4g}, and only towards a server "
        "that no party helps"
    )
    of_field = Budget(epsilon * synth.field_share / parties, budget.delta / (2 * parties))
    return _Shares(
        field_rho=rho_for(of_field),
        values_rho=rho_for(Budget(epsilon * values, delta)) if values else 0.0,
        rows=rows,
        noise=noise,
        worth=(epsilon * left, exact),
        bare=bare,
    )
