"""How a private training begins at a party: what trains, on which vectors, and what it refuses.

DP-SGD (Abadi et al. 2016, "Deep learning with differential privacy") over the rows of one party or
of several, see private_rounds.py.

**Guarantee**: that of private_rounds.py. A party computes the sensitivity and the price of a step
itself, and refuses numbers that no event can be made of, settings or a Renyi order that are not the
study's, what it cannot hold or finish, and encoders that are not of its own declared facts; all of
it before anything is paid or drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from siloweave.errors import SiloweaveError, WireError
from siloweave.federation.messages import Public, Reply, Request
from siloweave.federation.site import Site
from siloweave.privacy.budget import Relation
from siloweave.privacy.events import SampledSharedGaussian
from siloweave.privacy.shared_steps import CLIPS, FINEST, WIDEST, moved
from siloweave.protocols.histograms import HistogramData
from siloweave.protocols.secure_sums import relation_of
from siloweave.tables.features import Features

if TYPE_CHECKING:
    from siloweave.models.stepwise import Stepwise

__all__ = [
    "MOST_NUMBERS",
    "BeginTraining",
    "Begun",
    "PrivateKind",
    "TrainingReady",
    "begin",
    "begun",
    "encoded",
    "event_of",
    "refuse_unpayable",
]

#: Most numbers in a step's message, and in the vectors of one row.
MOST_NUMBERS = 2**25
_MOST_STEPS = 2**20


# Messages


class TrainingReady(Reply, frozen=True):
    """What to train is known."""

    ready: Public[bool]


class BeginTraining(Request[TrainingReady], frozen=True, tag="private/begin"):
    """Encode your rows with these features; `levels` units of a sum make one `clip`."""

    features: str
    settings: bytes
    target: str | None
    clip: float
    levels: int
    rate: float
    order: int | None


@dataclass(frozen=True)
class PrivateKind:
    """What is trained.

    Attributes:
        title: What the ledger calls it.
        numeric: What a continuum becomes.
        made: What trains, from features, settings, a target, and how frequent each option of each
            choice is, by where its block starts; a party makes it without these.
    """

    title: str
    numeric: Any
    made: Callable[
        [Features, dict[str, Any], str | None, Mapping[int, Sequence[float]] | None], Stepwise
    ]


# Party


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


def json_in(text: bytes, who: str) -> Any:
    """What JSON in a request holds; raises WireError if it is no JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise WireError(f"{who} was sent settings that cannot be read: {error}") from error


# What settings of the wrong kind may raise in whatever is made of them.
_ILL_MADE = (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError,
             RecursionError, UnicodeError, ArithmeticError)  # fmt: skip


def refuse_unpayable(who: str, **said: float) -> None:
    """Refuse numbers of a request that no event can be made of.

    Args:
        who: The party, for the message.
        said: By name: `clip`, `levels`, `rate`, `share_sigma`.

    Raises:
        WireError: One is out of its bounds; names it.
    """
    bounds = {
        "clip": CLIPS, "levels": (1, FINEST), "rate": (2.0**-64, 1.0),
        "share_sigma": (1.0, WIDEST * (1 + 1e-6)),
    }  # fmt: skip
    for name, value in said.items():
        least, most = bounds[name]
        if not least <= value <= most:
            raise WireError(
                f"{who}: {name}={value} cannot be paid for; it must lie between {least:g} and "
                f"{most:g}"
            )


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
