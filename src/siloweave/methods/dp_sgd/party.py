"""How a private training begins at a party: what trains, on which vectors, and what it refuses.

DP-SGD (Abadi et al. 2016, "Deep learning with differential privacy") over the rows of one party or
of several, see private_rounds.py.

**Guarantee**: that of private_rounds.py. A party computes the sensitivity and the price of a step
itself, and refuses numbers that no event can be made of, settings or a Renyi order that are not the
study's, what it cannot hold or finish, and encoders that are not of its own declared facts; all of
it before anything is paid or drawn.

Private networks over split rows: every step is a masked sum of clipped gradients.

DP-SGD (Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar & Zhang 2016, "Deep learning with
differential privacy") whose sums no single party sees (Bonawitz et al. 2017) and whose noise the
parties add in shares (Kairouz, Liu & Steinke 2021, "The distributed discrete Gaussian mechanism for
federated learning with secure aggregation").

1. One masked sum counts every column on public bins, and the rows. Encoders, the law of the label,
   the sampling rate and the divisor of gradients follow from it (private_counts.py).
2. In every step the coordinator sends the weights, and whatever else a row's loss is to be given;
   each party draws its own rows by coins of its own, clips every row's gradient, rounds the sum to
   integers, adds its share of the noise and masks; the coordinator unmasks the sum and moves the
   weights.

What is trained is a `Stepwise` (models/stepwise.py): it says what a step's message carries, what a
row's loss is given that message, and how the weights move. Of a diffusion the message is the
network. Of a GAN it is the critic and a pool of generated rows (Xie, Lin, Wang, Wang & Zhou 2018,
"Differentially private generative adversarial network": only the critic meets real rows); the
generator moves at the coordinator, by the critic and the paid counts, which is post-processing.

One party alone is the central case: its masks are empty, it adds all the noise itself, and what the
coordinator sees is its noisy sums.

**Guarantee** (dp): rows, add/remove or replace-one as each party's budget says, towards the
coordinator together with at most `tolerated` parties, and everyone who sees weights or rows of the
model. A party encodes its rows by its own declared facts, or not at all. A row pays for one
noisy_histogram
and for every step, each entered in its party's ledger before noise is drawn; all are read at one
Renyi order, which the noisy number of rows may choose only as far as its price contains it
(privacy/orders.py). Where a row is replaced the number of rows costs nothing; of one party alone
it is public. The party computes the sensitivity itself (privacy/shared_steps.py) from how it clips
and rounds, and refuses settings that are beyond what it can pay for, hold or finish. Who is drawn,
what a row's loss draws, where in its bin a value is encoded, and the noise come from the party's
own entropy and stay there, so that sampling amplifies towards all others; it does not towards
someone who reads the party's memory. No loss leaves the party or steers anything: whether training
diverged is seen by the weights alone, which follow from noisy sums. Every noisy number is a whole
number of units, at whatever coordinate; nothing of the noise is a float. Assumed public: schema,
bins, settings, roster, and how long a party takes. The coordinator is taken to follow the protocol;
whatever it asks, weights and generated rows of any kind, a row's gradient is clipped and a party's
ledger pays for what it does.
Per-step noise holds with `tolerated` shares missing; a party that does not answer stops the run.
Noise is drawn within `mechanisms.TV_PER_DRAW` of its law, as everywhere. That a row's gradient is
the same at any place of a batch but for its last bits is taken from the compiler (seen on CPUs);
`shared_steps.moved` leaves a 1024th of the clip for them.

The private central generators: DP-CTGAN, DP-TabDDPM, DP-TLDM.

Zhu, Tang, Brouwer, Perez, van Dijk & Chen 2024, "Quantifying and Mitigating Privacy Risks for
Tabular Generative Models", name these three; Xu et al. 2019 (CTGAN), Kotelnikov et al. 2023
(TabDDPM) are the models.

**Guarantee**: that of private_rounds.py for a roster of one, for every row and towards everyone who
sees the model or the synthetic table. Departures from the paper: gradients are clipped per row and
not per batch (which bounds nothing by itself: one row swings a clipped mean by two clips, whatever
the batch), one clip holds for encoder and decoder together, both stages of DP-TLDM are paid,
batches are Poisson samples, noise is whole numbers on a grid, and the price is read from the ledger
with the accountant of its events instead of a limit theorem. `DPTLDM(scope="autoencoder")` is the
paper's scope: its second stage reads every row without noise, which is no post-processing, so its
guarantee is `partial`, its epsilon infinite, and its ledger holds an event that says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from siloweave.algorithms.private_rounds import Part
from siloweave.errors import InputError, SiloweaveError, WireError
from siloweave.federation.messages import Public
from siloweave.federation.site import Handlers, Site
from siloweave.methods.dp_sgd.messages import (
    BeginTraining,
    PrivateKind,
    Rest,
    Step,
    TrainedDiffusion,
    TrainingReady,
)
from siloweave.methods.dp_sgd.method import _latent
from siloweave.privacy.budget import Relation
from siloweave.privacy.events import NonPrivate, SampledSharedGaussian
from siloweave.privacy.shared_steps import (
    WIDEST,
    moved,
    quantised,
    span,
)
from siloweave.protocols.histograms import (
    CountColumns,
    CountRows,
    HistogramData,
    count_columns,
    count_rows,
)
from siloweave.protocols.networks import jax_key
from siloweave.protocols.private_steps import MOST_NUMBERS, json_in, refuse_unpayable
from siloweave.protocols.secure_sums import (
    Counts,
    KeyRequest,
    relation_of,
    send_key,
)
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in

if TYPE_CHECKING:
    from siloweave.models.stepwise import Stepwise


_MOST_STEPS = 2**20


class Begun(NamedTuple):
    """What was asked for, what trains, and by what vectors rows are encoded."""

    asked: BeginTraining
    training: Stepwise
    features: Features


def begin(kind: PrivateKind, request: BeginTraining, site: Site[HistogramData]) -> TrainingReady:
    """Remember what is trained, and the secret by which rows are encoded."""
    _checked(kind, request, site)
    site.remember("secret of encoding", site.entropy.bytes(8))
    site.remember("begin", msgspec.msgpack.encode(request))
    return TrainingReady(Public(True, "says nothing"))


def _checked(kind: PrivateKind, request: BeginTraining, site: Site[HistogramData]) -> Begun:
    """Refuse what the party cannot pay for, hold or finish, and facts that are not its own.

    Raises:
        WireError: Whatever is wrong with the request; names the party.
    """
    who = f"party {site.name!r}"
    settings = json_in(request.settings, who)
    own = {"target": request.target, "clip": request.clip, "order": request.order}
    site.terms.require(site.name, settings=settings, **own)
    refuse_unpayable(who, clip=request.clip, levels=request.levels, rate=request.rate)
    try:
        event_of(request, site, share_sigma=WIDEST, shares=1, tolerated=0, width=1)
        features = Features.from_json(request.features)
        schema = site.rows.encoder.schema
        if not features.cover(schema):
            raise WireError(f"{who} is told to encode by other facts than its own")
        if request.target is not None and request.target not in schema.names:
            raise WireError(f"{who} has no column {request.target!r} for a target")
        training = kind.made(features, settings, request.target, None)
        steps, widths = training.steps, [_size(training.shapes(one)) for one in training.stages]
    except WireError:
        raise
    except (SiloweaveError, msgspec.MsgspecError, *_ILL_MADE) as error:
        raise WireError(f"{who} cannot train with these settings: {error}") from error
    if max(widths, default=0) > MOST_NUMBERS or features.width > MOST_NUMBERS:
        raise WireError(
            f"{who}: a message of {max(widths):,} numbers, or vectors of {features.width:,}, is "
            f"more than the {MOST_NUMBERS:,} that it takes. Make the networks smaller."
        )
    if steps > _MOST_STEPS:
        raise WireError(f"{who}: steps={steps:,} are more than the {_MOST_STEPS:,} that it takes")
    return Begun(request, training, features)


# What settings of the wrong kind may raise in whatever is made of them.
_ILL_MADE = (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError,
             RecursionError, UnicodeError, ArithmeticError)  # fmt: skip


def _size(shapes: Any) -> int:
    """How many numbers a message has; shapes alone are looked at."""
    import jax

    return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes) if hasattr(x, "shape"))


def begun(kind: PrivateKind, site: Site[HistogramData]) -> Begun:
    """What this run was begun with, from what is remembered."""
    asked = site.recall("begin")
    if asked is None:
        raise WireError(f"party {site.name!r} is asked to train, and was never told what")
    return _checked(kind, msgspec.msgpack.decode(asked, type=BeginTraining), site)


def encoded(site: Site[HistogramData], features: Features, laid: Callable[[Any], Any]) -> Any:
    """A party's rows as vectors, laid out; its secret says where in its bin a value lies."""
    secret = site.recall("secret of encoding") or b""
    try:
        return laid(features.encode(site.rows.table, key=int.from_bytes(secret, "little")))
    except SiloweaveError:  # what it says of the rows, nobody has paid for
        raise WireError(f"party {site.name!r} cannot encode its rows so") from None


def event_of(
    asked: BeginTraining,
    site: Site[HistogramData],
    *,
    share_sigma: float,
    shares: int,
    tolerated: int,
    width: int,
) -> SampledSharedGaussian:
    """What a step of so many numbers costs; raises InputError where there is no such event."""
    return SampledSharedGaussian(
        share_sigma=share_sigma,
        shares=shares,
        tolerated=tolerated,
        sensitivity=moved(asked.levels, width),
        dimension=width,
        sampling_rate=asked.rate,
        replace_one=relation_of(site) is Relation.REPLACE_ONE,
        order=UNSET if asked.order is None else asked.order,
    )


class _Desk(NamedTuple):
    """What was asked for, what trains, rows as its losses read them, and messages by stage."""

    begin: BeginTraining
    training: Stepwise
    rows: Any
    likes: dict[int, Any]


def _desk(kind: PrivateKind, site: Site[HistogramData]) -> _Desk:
    """Laid out once a process, from what is remembered."""
    name = ("private rounds", site.context.rpartition("/")[0], site.recall("begin"))
    if name not in site.memo:
        asked, training, features = begun(kind, site)
        site.memo[name] = _Desk(asked, training, encoded(site, features, training.rows), {})
    desk: _Desk = site.memo[name]
    return desk


def _asked(desk: _Desk, request: Step, site: Site[HistogramData]) -> tuple[Any, Any]:
    """The network and the loss of a step; raises WireError where the request is none."""
    from siloweave.models.rounds import unpacked

    who, number = f"party {site.name!r}, step {request.number}", request.number
    if not 0 <= number < desk.training.steps:
        raise WireError(f"{who}: there are {desk.training.steps:,} steps, counted from 0")
    refuse_unpayable(who, share_sigma=request.share_sigma)
    stage = desk.training.stage(number)
    if stage not in desk.likes:
        desk.likes[stage] = desk.training.empty(stage)
    try:
        return desk.training.task(unpacked(request.message, desk.likes[stage]))
    except InputError as error:
        raise WireError(f"{who}: {error}") from error


def step(kind: PrivateKind, request: Step, site: Site[HistogramData]) -> Counts:
    """Draw rows, sum their clipped gradients, round; then pay, add noise, mask."""
    from siloweave.models.nets import Dense
    from siloweave.privacy import gradients

    desk, size = _desk(kind, site), site.rows.table.num_rows
    asked, shares = desk.begin, len(request.keys)
    site.terms.check_cohort(site.name, request.keys, request.tolerated)  # before any work
    net, loss = _asked(desk, request, site)
    width = gradients.flat_size(net)
    try:
        span(shares)
        event = event_of(
            asked, site, share_sigma=request.share_sigma, shares=shares,
            tolerated=request.tolerated, width=width,
        )  # fmt: skip
    except InputError as error:
        raise WireError(f"party {site.name!r}, step {request.number}: {error}") from error
    picked = gradients.drawn(size, asked.rate, entropy=site.entropy)
    total = gradients.summed(
        loss, net, desk.rows, picked, clip=asked.clip, layer=Dense, entropy=site.entropy
    )
    whole = quantised(total, clip=asked.clip, levels=asked.levels, parties=shares)
    what = f"step {request.number + 1} of {kind.title}"
    return Counts(site.release_masked(event, what, whole, request.keys))


def party(kind: PrivateKind) -> Handlers:
    """A party's side: which function answers which request."""
    return {
        KeyRequest: send_key,
        CountRows: count_rows,
        CountColumns: count_columns,
        BeginTraining: partial(begin, kind),
        Step: partial(step, kind),
    }


_UNPAID = "DP-TLDM's diffusion is trained on encoded rows without noise"


def rest(kind: PrivateKind, request: Rest, site: Site[Part]) -> TrainedDiffusion:
    """Note that nothing protects it, then train on every row, once a run."""
    begun_in = site.recall("rest") or site.context.encode()  # the step, asked again after a crash
    if begun_in != site.context.encode() or not _fits(kind, request.coder, site):
        raise WireError(
            f"party {site.name!r} trains one diffusion a run, of an autoencoder as the study has it"
        )
    site.remember("rest", begun_in)
    draw = partial(_diffused, kind, request, site)
    return TrainedDiffusion(
        site.release(NonPrivate(_UNPAID), "weights of DP-TLDM: the diffusion", draw)
    )


def _fits(kind: PrivateKind, file: bytes, site: Site[Part]) -> bool:
    """Whether a file says of its autoencoder what a file of the study's would say."""
    from siloweave.models import coders
    from siloweave.models.layout import Layout

    asked, _, features = begun(kind, site)
    settings, layout = _latent(msgspec.json.decode(asked.settings)), Layout(features.blocks)
    label = None if asked.target is None else layout.choice_of(asked.target)
    made = {"label": label, "numbers": settings.numbers, "key": jax_key(fold_in(0, "first"))}
    own = coders.first(layout, settings.autoencoder, **made).to_bytes()
    try:
        return bool(_head(file) == _head(own))
    except msgspec.MsgspecError:
        return False


def _head(file: bytes) -> Any:
    """Shapes of a safetensors file, and what is said of them."""
    size = int.from_bytes(file[:8], "little")
    return msgspec.json.decode(file[8 : 8 + size])


def _diffused(kind: PrivateKind, request: Rest, site: Site[Part]) -> bytes:
    from siloweave.models import latent
    from siloweave.models.coders import RowCoder

    asked, _, features = begun(kind, site)
    settings = _latent(msgspec.json.decode(asked.settings))
    coder = RowCoder.from_bytes(request.coder)
    law = latent.fit_latents(
        encoded(site, features, coder.encode), coder.latent, settings.diffusion,
        scaled=False, key=jax_key(fold_in(request.seed, "diffusion")), law=request.law,
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        law.save(Path(folder) / "law.safetensors")
        return (Path(folder) / "law.safetensors").read_bytes()
