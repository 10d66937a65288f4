"""A party's side of VertiMRF: agree on a key, learn a field of its own columns, encode them.

Zhao et al. 2024, phases 1 (LocMRF) and 2 (LocEnc).

**Guarantee**: see method.py. A party reads settings and budget from its own study, computes the
plan itself, and encodes once a run.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from siloweave.errors import WireError
from siloweave.federation import masking
from siloweave.federation.messages import Array, Public, Released
from siloweave.federation.site import Handlers, Site
from siloweave.methods.vertimrf import messages
from siloweave.methods.vertimrf.settings import VertiMRFSettings
from siloweave.models.carest import bins_of
from siloweave.models.junction_tree import cells_in
from siloweave.privacy import mechanisms
from siloweave.privacy.sketches import encode_rows
from siloweave.protocols.columns import release_rows
from siloweave.protocols.random_fields import OwnAnswers, private_field
from siloweave.protocols.secure_sums import ModelMessage, release_noisy
from siloweave.tables.codes import Codes

_KEY = "sketch key"  # what a party remembers


def plan_of(synth: VertiMRFSettings, site: Site[Codes]) -> messages.VertiMRFPlan:
    """Compute the plan from the study's public facts."""
    parts = {name: site.terms.facts["parts"][name] for name in site.terms.roster}
    return messages.VertiMRFPlan.of(synth, parts, site.terms.facts["budget"])


def send_key(request: messages.SendSketchKey, site: Site[Codes]) -> messages.SketchKey:
    """Send the party's public key for this run."""
    return messages.SketchKey(site.mask_key())


def _context(site: Site[Codes], receiver: str) -> bytes:
    """Return the bytes that a sealed key is bound to: the run, its sealer and its receiver."""
    first = next(iter(site.terms.roster))
    parts = ("sketch key", site.run, first, receiver)
    return b"\0".join(part.encode() for part in parts)


def seal_key(request: messages.SealSketchKey, site: Site[Codes]) -> messages.SealedKeys:
    """Draw the key of sketches once a run, and seal it for each other party of the study."""
    first, *others = site.terms.roster
    if site.name != first or list(request.keys) != others:
        raise WireError(
            f"party {site.name!r} was asked to seal a key for {list(request.keys)}; the study's "
            f"roster is {list(site.terms.roster)}, and the first of them seals for all others"
        )
    secrets = site.agree(request.keys)
    # Once a run: with a second key, the parties' sketches would not belong together.
    key = site.recall(_KEY)
    if key is None:
        key = site.entropy.bytes(32)
        site.remember(_KEY, key)
    sealed_keys = []
    for name in others:
        text = masking.sealed(key, secrets[name], _context(site, name))
        sealed_keys.append(Public(text, "a key, sealed for a party"))
    return messages.SealedKeys(tuple(sealed_keys))


def _sketch_key(request: messages.EncodeColumns, site: Site[Codes]) -> bytes:
    """Return the key of sketches that this party drew, or that the first party sealed for it."""
    first, *others = site.terms.roster
    if site.name != first:
        secret = site.agree({first: request.sealer})[first]
        return masking.unsealed(request.sealed, secret, _context(site, site.name))
    key = site.recall(_KEY)
    # A party alone is never asked to seal one.
    if key is None and not others:
        key = site.entropy.bytes(32)
    if key is None:
        raise WireError(
            f"party {site.name!r} was asked for sketches before it had drawn their key"
        )
    return key


def encode(
    synth: VertiMRFSettings, request: messages.EncodeColumns, site: Site[Codes]
) -> messages.Encoded:
    """Pay for everything, then release it: the field, the number of rows, histograms and codes."""
    # The plan is of one encoding: a second one would be paid for by nothing.
    site.require_first()
    plan = plan_of(synth, site)
    rows = site.rows
    key = _sketch_key(request, site) if plan.noise else b""

    # Phase 1, LocMRF: a private field of the party's own columns.
    field = _field(synth, plan, site)

    # Phase 2, LocEnc: the number of rows, histograms of binned columns, and codes of each value.
    paid_rows, public_rows = release_rows(site, rows.num_rows, plan.rows)
    histograms: tuple[Released[Array], ...] = ()
    histogram_event = plan.values.get(site.name)
    if histogram_event:
        counts = []
        for name in messages.binned(synth, rows.domain):
            counts.append(
                np.bincount(rows.column(name), minlength=rows.domain.size_of(name))
            )
        title = f"counts of the values of {len(counts)} columns"
        flat_counts = np.concatenate(counts)
        histograms = (release_noisy(site, histogram_event, title, flat_counts),)

    title = "a randomised answer for each value"
    draw = partial(_answers, synth, plan, site)
    if plan.noise:
        title = f"{synth.repetitions} sketches of each value"
        draw = partial(_sketches, synth, plan, key, site)
    codes = site.release(plan.encoding[site.name], title, draw)
    return messages.Encoded(field, paid_rows, public_rows, histograms, codes)


def _field(
    synth: VertiMRFSettings, plan: messages.VertiMRFPlan, site: Site[Codes]
) -> Released[messages.LocalField]:
    """Run PrivMRF on the party's own columns, with each answer paid for."""
    # What is drawn decides what is asked next, so a restart must draw the same.
    site.store_entropy()
    domain = site.rows.domain
    most = cells_in(synth.max_model_mb)
    pairs = [q for q in combinations(domain.names, 2) if domain.size(q) <= most]
    field = private_field(
        OwnAnswers(site), domain, pairs, plan.field_rho, plan.field,
        megabytes=synth.max_model_mb, key=0,
    )  # fmt: skip
    sigma = max(measurement.sigma for measurement in field.measured)
    message = messages.LocalField(
        ModelMessage.of(field.model), tuple(field.edges), sigma
    )
    return site.release_derived(lambda: message)


def _binned_columns(
    synth: VertiMRFSettings, rows: Codes
) -> list[npt.NDArray[np.int64]]:
    """Return each row's bin, for each column."""
    columns = zip(rows.columns, rows.domain.sizes, strict=True)
    return [bins_of(size, synth.encoded_bins)[column] for column, size in columns]


def _sketches(
    synth: VertiMRFSettings, plan: messages.VertiMRFPlan, key: bytes, site: Site[Codes]
) -> Array:
    """Draw the sketches of every bin (Algorithm 2, DPFM)."""
    assert plan.noise is not None  # or these were answers
    sizes = messages.bin_counts(synth, site.rows.domain)
    columns = _binned_columns(synth, site.rows)
    row_sketches = encode_rows(columns, sizes, key=key, repetitions=synth.repetitions)
    # max(alpha_X, alpha_p, alpha_min): of the rows, of phantoms, and the floor.
    noise = plan.noise.draw(row_sketches.size, entropy=site.entropy)
    sketches = np.maximum(row_sketches, noise.reshape(row_sketches.shape))
    return Array.of(sketches, "<u1")


def _answers(
    synth: VertiMRFSettings, plan: messages.VertiMRFPlan, site: Site[Codes]
) -> Array:
    """Draw a randomised answer for each row's bin in each column (VertiMRF-FO)."""
    columns = _binned_columns(synth, site.rows)
    sizes = messages.bin_counts(synth, site.rows.domain)
    answers = []
    for column, size in zip(columns, sizes, strict=True):
        answers.append(
            mechanisms.randomised_response(
                column, size, plan.response_epsilon, entropy=site.entropy
            )
        )
    kind: Any = "<u1" if max(sizes) <= 256 else "<u4"
    return Array.of(np.stack(answers, axis=1), kind)


def handlers(synth: VertiMRFSettings) -> Handlers:
    """Return the functions that answer requests, by request; only sketches need a key."""
    answers: dict[Any, Any] = {messages.EncodeColumns: partial(encode, synth)}
    if synth.encoding == "fm":
        answers[messages.SendSketchKey] = send_key
        answers[messages.SealSketchKey] = seal_key
    return answers
