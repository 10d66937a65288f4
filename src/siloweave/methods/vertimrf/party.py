"""A party's side of VertiMRF: agree on a key, learn a field of its own columns, encode them.

Zhao et al. 2024, phases 1 (LocMRF) and 2 (LocEnc).

**Guarantee**: see method.py. A party reads settings and budget from its own study, computes the
plan itself, and encodes once a run.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from siloweave.errors import WireError
from siloweave.federation import masking
from siloweave.federation.messages import Array, Public, Released
from siloweave.federation.site import Handlers, Site
from siloweave.methods.vertimrf.messages import (
    EncodeColumns,
    Encoded,
    LocalField,
    SealedKeys,
    SealSketchKey,
    SendSketchKey,
    SketchKey,
    VertiMRFPlan,
    bin_counts,
    binned,
)
from siloweave.models.carest import bins_of
from siloweave.models.junction_tree import cells_in
from siloweave.privacy import mechanisms
from siloweave.privacy.sketches import encode_rows
from siloweave.protocols.columns import release_rows
from siloweave.protocols.random_fields import OwnAnswers, private_field
from siloweave.protocols.secure_sums import ModelMessage, release_noisy
from siloweave.tables.codes import Codes

if TYPE_CHECKING:
    from siloweave.methods.vertimrf.method import VertiMRF

_KEY = "sketch key"  # what a party remembers


def plan_of(synth: VertiMRF, site: Site[Codes]) -> VertiMRFPlan:
    """The plan that the study's public facts lead to."""
    parts = {name: site.terms.facts["parts"][name] for name in site.terms.roster}
    return VertiMRFPlan.of(synth, parts, site.terms.facts["budget"])


def send_key(request: SendSketchKey, site: Site[Codes]) -> SketchKey:
    """The public key of this run."""
    return SketchKey(site.mask_key())


def _context(site: Site[Codes], receiver: str) -> bytes:
    first = next(iter(site.terms.roster))
    return b"\0".join(part.encode() for part in ("sketch key", site.run, first, receiver))


def seal_key(request: SealSketchKey, site: Site[Codes]) -> SealedKeys:
    """Draw the key of sketches once a run, and seal it for every other party of the study."""
    first, *others = site.terms.roster
    if site.name != first or list(request.keys) != others:
        raise WireError(
            f"party {site.name!r} was asked to seal a key for {list(request.keys)}; the study's "
            f"roster is {list(site.terms.roster)}, and the first of them seals for all others"
        )
    secrets, key = site.agree(request.keys), site.recall(_KEY)
    if key is None:
        key = site.entropy.bytes(32)
        site.remember(_KEY, key)
    texts = (masking.sealed(key, secrets[n], _context(site, n)) for n in others)
    return SealedKeys(tuple(Public(text, "a key, sealed for a party") for text in texts))


def _sketch_key(request: EncodeColumns, site: Site[Codes]) -> bytes:
    """The key of sketches: as this party drew it, or as the first party sealed it."""
    first, *others = site.terms.roster
    if site.name != first:
        secret = site.agree({first: request.sealer})[first]
        return masking.unsealed(request.sealed, secret, _context(site, site.name))
    key = site.recall(_KEY)
    if key is None and not others:
        key = site.entropy.bytes(32)
    if key is None:
        raise WireError(f"party {site.name!r} was asked for sketches before it had drawn their key")
    return key


def encode(synth: VertiMRF, request: EncodeColumns, site: Site[Codes]) -> Encoded:
    """Pay for everything and release it: the field, the number of rows, histograms and codes."""
    site.require_first()
    plan, rows = plan_of(synth, site), site.rows
    key = _sketch_key(request, site) if plan.noise else b""
    field = _field(synth, plan, site)
    paid, known = release_rows(site, rows.num_rows, plan.rows)
    values: tuple[Released[Array], ...] = ()
    if event := plan.values.get(site.name):
        wide = [(rows.column(a), rows.domain.size_of(a)) for a in binned(synth, rows.domain)]
        exact = np.concatenate([np.bincount(codes, minlength=size) for codes, size in wide])
        what = f"counts of the values of {len(wide)} columns"
        values = (release_noisy(site, event, what, exact),)
    what, draw = "a randomised answer for each value", partial(_answers, synth, plan, site)
    if plan.noise:
        what = f"{synth.repetitions} sketches of each value"
        draw = partial(_sketches, synth, plan, key, site)
    return Encoded(field, paid, known, values, site.release(plan.encoding[site.name], what, draw))


def _field(synth: VertiMRF, plan: VertiMRFPlan, site: Site[Codes]) -> Released[LocalField]:
    """PrivMRF on the party's own columns, each answer paid for."""
    site.store_entropy()  # what is drawn decides what is asked next
    domain, most = site.rows.domain, cells_in(synth.max_model_mb)
    pairs = [q for q in combinations(domain.names, 2) if domain.size(q) <= most]
    found = private_field(
        OwnAnswers(site), domain, pairs, plan.field_rho, plan.field,
        megabytes=synth.max_model_mb, key=0,
    )  # fmt: skip
    sigma = max(m.sigma for m in found.measured)
    message = LocalField(ModelMessage.of(found.model), tuple(found.edges), sigma)
    return site.release_derived(lambda: message)


def _binned_columns(synth: VertiMRF, rows: Codes) -> list[npt.NDArray[np.int64]]:
    pairs = zip(rows.columns, rows.domain.sizes, strict=True)
    return [bins_of(size, synth.encoded_bins)[column] for column, size in pairs]


def _sketches(synth: VertiMRF, plan: VertiMRFPlan, key: bytes, site: Site[Codes]) -> Array:
    sizes = bin_counts(synth, site.rows.domain)
    columns = _binned_columns(synth, site.rows)
    assert plan.noise is not None  # or these were answers
    seen = encode_rows(columns, sizes, key=key, repetitions=synth.repetitions)
    drawn = plan.noise.draw(seen.size, entropy=site.entropy).reshape(seen.shape)
    return Array.of(np.maximum(seen, drawn), "<u1")


def _answers(synth: VertiMRF, plan: VertiMRFPlan, site: Site[Codes]) -> Array:
    pairs = zip(_binned_columns(synth, site.rows), bin_counts(synth, site.rows.domain), strict=True)
    drawn = [
        mechanisms.randomised_response(column, size, plan.response_epsilon, entropy=site.entropy)
        for column, size in pairs
    ]
    small = max(bin_counts(synth, site.rows.domain)) <= 256
    return Array.of(np.stack(drawn, axis=1), "<u1" if small else "<u4")


def handlers(synth: VertiMRF) -> Handlers:
    """A party's side: which function answers which request."""
    encoding: Handlers = {EncodeColumns: partial(encode, synth)}
    if synth.encoding == "fo":
        return encoding
    return {**encoding, SendSketchKey: send_key, SealSketchKey: seal_key}
