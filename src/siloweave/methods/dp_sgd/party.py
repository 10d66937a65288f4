"""A party's side of DP-SGD: it draws units, sums their clipped gradients, pays, adds noise, masks.

Abadi et al. 2016, "Deep learning with differential privacy"; Kairouz, Liu & Steinke 2021; see
method.py.

**Guarantee**: that of method.py. A party trains what its own study says, with that study's clip and
Renyi order. It computes the sensitivity and the price of a step itself, and refuses numbers that no
event can be made of, what it cannot hold or finish, and encoders that are not of its own declared
facts; all of it before anything is paid or drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
from msgspec import UNSET

from siloweave.core.method import Setup
from siloweave.errors import DataError, InputError, SiloweaveError, WireError
from siloweave.federation.messages import Public
from siloweave.federation.site import Handlers, Site
from siloweave.methods.dp_sgd import messages
from siloweave.methods.dp_sgd.settings import (
    LatentSynthesizer,
    PrivateSettings,
    PrivateSynthesizer,
)
from siloweave.models.settings import DiffusionSettings, PrivateGANSettings
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import NonPrivate, SampledSharedGaussian
from siloweave.privacy.shared_steps import WIDEST, moved, quantised, span
from siloweave.protocols import histograms, networks, secure_sums
from siloweave.protocols.histograms import HistogramData
from siloweave.protocols.private_steps import MOST_NUMBERS, refuse_unpayable
from siloweave.tables.arrays import Ints
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in
from siloweave.tables.persons import numbered, places_of
from siloweave.tables.schema import Schema, check_columns
from siloweave.tables.table import Table
from siloweave.tables.units import rows_by_unit

if TYPE_CHECKING:
    from siloweave.models.stepwise import Stepwise

_MOST_STEPS = 2**20
_UNPAID = "DP-TLDM's diffusion is trained on encoded rows without noise"

Shares = Mapping[int, Sequence[float]]
"""How frequent each option of each choice is, by where its block starts."""


def _length(synth: PrivateGANSettings | DiffusionSettings) -> tuple[int, int]:
    """Return the number of steps in the settings, and of rows expected in each."""
    return synth.steps, synth.batch


@dataclass(frozen=True)
class PrivateTrainer:
    """The way to train one kind of network privately; `build` imports the network at its use."""

    build: Callable[[Any, Features, Shares | None], Stepwise]
    model: Any  # of the trained network
    numeric: Any = "quantile"  # what a number becomes, see `Features.fit`
    # Paid steps, and expected rows of each.
    length: Callable[[Any], tuple[int, int]] = _length


@dataclass(frozen=True)
class PrivateState:
    """The party's encoded rows and training, computed again after a restart."""

    begun: messages.BeginTraining  # what was asked for
    training: Stepwise  # what trains
    features: Features  # by which rows are encoded
    rows: Any = None  # as losses read them, once they were needed
    # (units, k), places of each unit's rows; -1 after its last one
    members: Ints | None = None
    empty: dict[int, Any] = field(default_factory=dict)  # messages of zeros, by stage


def party_data(table: Table, setup: Setup, party: str) -> HistogramData:
    """Return a party's rows, which must fit the schema, with the public bins to count them in."""
    synth = setup.settings_as(PrivateSettings)
    check_columns(setup.schema, table)
    encoder = Encoder(setup.schema, synth.finest_bins)
    # Refuses rows that the budget does not bound, before anything is paid.
    _members(table, setup.schema, setup.budget)
    return HistogramData(table, encoder, encoder.encode(table))


# The beginning


def count(
    request: histograms.CountColumns, site: Site[HistogramData]
) -> secure_sums.Counts:
    """Count the columns and the rows, under noise as wide as the study says."""
    study_sigma = site.terms.facts["counts_sigma"]
    if not math.isclose(request.share_sigma, study_sigma, rel_tol=1e-9):
        raise WireError(
            f"party {site.name!r} was asked for counts under noise of width "
            f"{request.share_sigma:g}; by the study it is {study_sigma:g}"
        )
    return histograms.count_columns(request, site)


def begin(
    synth: PrivateSynthesizer,
    trainer: PrivateTrainer,
    request: messages.BeginTraining,
    site: Site[HistogramData],
) -> messages.TrainingReady:
    """Check and store what the training begins with, and the secret by which rows are encoded."""
    _checked(synth, trainer, request, site)
    # With a public key, everyone could tell where in its bin a value was put.
    site.remember("secret of encoding", site.entropy.bytes(8))
    site.remember("begin", msgspec.msgpack.encode(request))
    return messages.TrainingReady(Public(True, "says nothing"))


def _checked(
    synth: PrivateSynthesizer,
    trainer: PrivateTrainer,
    request: messages.BeginTraining,
    site: Site[HistogramData],
) -> PrivateState:
    """Check a request to begin; refuse what the party cannot pay for, hold or finish.

    Whatever is wrong with the request, the WireError names the party.
    """
    who = f"party {site.name!r}"
    schema = site.rows.encoder.schema
    refuse_unpayable(who, clip=synth.clip, levels=request.levels, rate=request.rate)
    # An error's text is sent to the coordinator: no row is read here.
    try:
        # Raises where no event is made of these numbers, in the widest step there is.
        _event(request, site, share_sigma=WIDEST, shares=1, tolerated=0, width=1)
        features = Features.from_json(request.features)
        if not features.cover(schema):
            raise WireError(f"{who} was asked to encode by other facts than its own")
        training = trainer.build(synth, features, None)
        widths = [_size(training.shapes(stage)) for stage in training.stages]
    except WireError:
        raise
    except (SiloweaveError, msgspec.MsgspecError) as error:
        raise WireError(f"{who} cannot train so: {error}") from error
    if max(*widths, features.width) > MOST_NUMBERS:
        raise WireError(
            f"{who}: a message of {max(widths):,} numbers, or vectors of {features.width:,}, is "
            f"more than the {MOST_NUMBERS:,} that it takes. Make the networks smaller."
        )
    if training.steps > _MOST_STEPS:
        raise WireError(
            f"{who}: steps={training.steps:,} are more than the {_MOST_STEPS:,} that it takes"
        )
    return PrivateState(request, training, features)


def _size(shapes: Any) -> int:
    """Count the numbers of a message, from its shapes alone."""
    import jax

    leaves = jax.tree.leaves(shapes)
    return sum(math.prod(leaf.shape) for leaf in leaves if hasattr(leaf, "shape"))


def _event(
    begun: messages.BeginTraining,
    site: Site[HistogramData],
    *,
    share_sigma: float,
    shares: int,
    tolerated: int,
    width: int,
) -> SampledSharedGaussian:
    """Return the event of a step; raises InputError for numbers that no event has."""
    order = site.terms.facts["order"]
    if order is None:
        order = UNSET
    return SampledSharedGaussian(
        share_sigma=share_sigma,
        shares=shares,
        tolerated=tolerated,
        sensitivity=moved(begun.levels, width),
        dimension=width,
        sampling_rate=begun.rate,
        replace_one=secure_sums.neighbours_of(site).replaces,
        order=order,
    )


def _begun(
    synth: PrivateSynthesizer, trainer: PrivateTrainer, site: Site[HistogramData]
) -> PrivateState:
    """Return what this run was begun with, as it was stored; no row is read."""
    stored = site.recall("begin")
    if stored is None:
        raise WireError(
            f"party {site.name!r} was asked to train before the training began"
        )
    begin_request = msgspec.msgpack.decode(stored, type=messages.BeginTraining)
    return _checked(synth, trainer, begin_request, site)


def _encoded(
    site: Site[HistogramData],
    features: Features,
    layout: Callable[[Any], Any],
) -> Any:
    """Encode a party's rows as vectors, laid out by `layout`.

    The party's secret says where in its bin a value lies.
    """
    secret = site.recall("secret of encoding") or b""
    key = int.from_bytes(secret, "little")
    # Not bounded: whether a table is refused would tell how many rows it has.
    try:
        return layout(features.encode(site.rows.table, key=key, bounded=False))
    # Its words may depend on rows, and nobody has paid for them.
    except SiloweaveError:
        raise WireError(f"party {site.name!r} cannot encode its rows so") from None


# A step


def _state(
    synth: PrivateSynthesizer, trainer: PrivateTrainer, site: Site[HistogramData]
) -> PrivateState:
    """Return the party's encoded rows and training, made once a process."""
    memo_key = ("private steps", site.run, site.recall("begin"))
    if memo_key not in site.memo:
        without_rows = _begun(synth, trainer, site)
        rows = _encoded(site, without_rows.features, without_rows.training.rows)
        site.memo[memo_key] = replace(
            without_rows, rows=rows, members=_members_of(site)
        )
    state: PrivateState = site.memo[memo_key]
    return state


def _members_of(site: Site[HistogramData]) -> Ints:
    """Return the places of each unit's rows; WireError where the budget does not bound them."""
    try:
        return _members(site.rows.table, site.rows.encoder.schema, site.ledger.limit)
    except DataError as error:
        raise WireError(f"party {site.name!r}: {error}") from None


def _members(table: Table, schema: Schema, budget: Budget | None) -> Ints:
    """Return the places of each unit's rows, for the unit in the party's own budget.

    DataError where a unit has more rows than the budget says: its counts would cost more than is
    paid for.
    """
    # Each row is a unit of its own.
    if budget is None or budget.by_row:
        return np.arange(table.num_rows)[:, None]

    most = budget.neighbours.rows
    owners = numbered(rows_by_unit(table, schema[budget.unit]))
    try:
        return places_of(owners, most=most)
    # The error's own text names how many rows somebody has.
    except InputError:
        raise DataError(
            f"a party's table has more than rows_per_unit = {most} rows of one unit "
            f"({budget.unit!r}), and {most} are paid for. Nothing was released; leave the others "
            "out before the run begins"
        ) from None


def _task(
    state: PrivateState, request: messages.Step, site: Site[HistogramData]
) -> tuple[Any, Any]:
    """Return the network and the loss of a step; raises WireError if the request has neither."""
    from siloweave.models.rounds import unpacked

    training = state.training
    number = request.number
    who = f"party {site.name!r}, step {number}"
    if not 0 <= number < training.steps:
        raise WireError(f"{who}: there are {training.steps:,} steps, counted from 0")
    refuse_unpayable(who, share_sigma=request.share_sigma)
    stage = training.stage(number)
    if stage not in state.empty:
        state.empty[stage] = training.empty(stage)
    try:
        return training.task(unpacked(request.message, state.empty[stage]))
    except InputError as error:
        raise WireError(f"{who}: {error}") from error


def step(
    synth: PrivateSynthesizer,
    trainer: PrivateTrainer,
    request: messages.Step,
    site: Site[HistogramData],
) -> secure_sums.Counts:
    """Draw units, sum their clipped gradients, and round; then pay, add noise, and mask."""
    from siloweave.models.nets import Dense
    from siloweave.privacy import gradients

    state = _state(synth, trainer, site)
    shares = len(request.keys)
    # Before any work, and before the step's event is made of the cohort.
    site.terms.check_cohort(site.name, request.keys, request.tolerated)
    net, loss = _task(state, request, site)
    try:
        span(shares)
        event = _event(
            state.begun, site, share_sigma=request.share_sigma, shares=shares,
            tolerated=request.tolerated, width=gradients.flat_size(net),
        )  # fmt: skip
    except InputError as error:
        raise WireError(
            f"party {site.name!r}, step {request.number}: {error}"
        ) from error

    # Poisson sampling, which the price of a step rests on. One coin a unit: all rows of a person
    # are in a step together, or none is.
    assert state.members is not None  # a state with rows has them
    batch = gradients.drawn(len(state.members), state.begun.rate, entropy=site.entropy)

    # The gradient of each unit is clipped by itself: a clipped mean would have no such bound.
    gradient_sum = gradients.summed(
        loss, net, state.rows, state.members[batch], clip=synth.clip, layer=Dense,
        entropy=site.entropy,
    )  # fmt: skip

    # Masks are integers modulo a number, so the sum is rounded before it is masked.
    integers = quantised(
        gradient_sum, clip=synth.clip, levels=state.begun.levels, parties=shares
    )
    title = f"step {request.number + 1} of {synth.method.title}"
    # The sum opens only among parties that began with the same request.
    begin_request = site.recall("begin") or b""
    return secure_sums.Counts(
        site.release_masked(event, title, integers, request.keys, begin_request)
    )


# DP-TLDM's second stage, in the paper's scope


def trains_unpaid(synth: object) -> bool:
    """Return whether the diffusion of a DP-TLDM is trained without noise."""
    return getattr(synth, "scope", "end-to-end") == "autoencoder"


def train_diffusion(
    synth: LatentSynthesizer,
    trainer: PrivateTrainer,
    request: messages.TrainDiffusion,
    site: Site[HistogramData],
) -> messages.TrainedDiffusion:
    """Train the diffusion on every row, once a run, after an entry that nothing protects it."""
    # The same step may be asked again after a crash, another one may not.
    this_step = site.context.encode()
    first_step = site.recall("rest") or this_step
    if first_step != this_step or not _fits(synth, trainer, request.coder, site):
        raise WireError(
            f"party {site.name!r} trains one diffusion a run, of an autoencoder as the study has it"
        )
    site.remember("rest", first_step)
    train = partial(_diffusion, synth, trainer, request, site)
    title = "weights of DP-TLDM: the diffusion"
    return messages.TrainedDiffusion(site.release(NonPrivate(_UNPAID), title, train))


def _fits(
    synth: LatentSynthesizer,
    trainer: PrivateTrainer,
    file: bytes,
    site: Site[HistogramData],
) -> bool:
    """Return whether the head of an autoencoder's file is what the study's would have."""
    from siloweave.models.coders import RowCoder

    training: Any = _begun(synth, trainer, site).training
    study_coder = RowCoder.untrained(
        training.layout, synth.autoencoder, label=training.label, numbers=synth.numbers,
        key=networks.jax_key(fold_in(0, "first")),
    )  # fmt: skip
    try:
        return bool(_head(file) == _head(networks.saved_bytes(study_coder)))
    except msgspec.MsgspecError:
        return False


def _head(file: bytes) -> Any:
    """Read the head of a safetensors file: the shapes, and what it states of them."""
    # Its first 8 bytes are the size of the JSON that follows.
    size = int.from_bytes(file[:8], "little")
    return msgspec.json.decode(file[8 : 8 + size])


def _diffusion(
    synth: LatentSynthesizer,
    trainer: PrivateTrainer,
    request: messages.TrainDiffusion,
    site: Site[HistogramData],
) -> bytes:
    """Train the diffusion on the latents of all rows, and return its file."""
    from siloweave.models import latent
    from siloweave.models.coders import RowCoder

    features = _begun(synth, trainer, site).features
    coder = networks.from_bytes(request.coder, RowCoder.load)
    latents = _encoded(site, features, coder.encode)
    distribution = latent.fit_latents(
        latents, coder.latent, synth.diffusion, scaled=False,
        key=networks.jax_key(fold_in(request.seed, "diffusion")), label_shares=request.shares,
    )  # fmt: skip
    return networks.saved_bytes(distribution)


def handlers(trainer: PrivateTrainer, synth: PrivateSynthesizer) -> Handlers:
    """Return the functions that answer requests, by request, at these settings."""
    answers: dict[Any, Any] = {
        secure_sums.KeyRequest: secure_sums.send_key,
        histograms.CountRows: histograms.count_rows,
        histograms.CountColumns: count,
        **secure_sums.OPENING,
        messages.BeginTraining: partial(begin, synth, trainer),
        messages.Step: partial(step, synth, trainer),
    }
    if trains_unpaid(synth):
        latent_synth = cast(LatentSynthesizer, synth)
        train = partial(train_diffusion, latent_synth, trainer)
        answers[messages.TrainDiffusion] = train
    return answers
