"""A small algorithm over small sites."""

import msgspec
import numpy as np

from siloweave.federation import masking, messages
from siloweave.federation.messages import Envelope, Masked, Public, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import Gaussian, SharedGaussian
from siloweave.privacy.ledger import Ledger
from tests.federation.rosters import identity_of, site_with, terms_of
from tests.federation.sites import Sites

LIMIT = Budget(epsilon=5.0, delta=1e-6)
WHY = "the same for any rows"


class Size(Reply, frozen=True):
    value: Released[int]
    note: Public[str]


class Ask(Request[Size], frozen=True):
    sigma: float


class Key(Reply, frozen=True):
    key: Public[bytes]


class Hello(Request[Key], frozen=True):
    pass


class Part(Reply, frozen=True):
    sums: Masked


class Sum(Request[Part], frozen=True):
    keys: dict[str, bytes]
    share_sigma: float
    tolerated: int = 1


def size(request, site):
    event = Gaussian(sigma=request.sigma, sensitivity=1.0)

    def draw():
        n = np.array([len(site.rows)])
        return int(mechanisms.add_gaussian(n, request.sigma, entropy=site.entropy)[0])

    return Size(site.release(event, "number of rows", draw), Public("hello", WHY))


def hello(request, site):
    return Key(site.mask_key())


def part(request, site):
    rows = np.asarray(site.rows, dtype=np.int64)
    event = SharedGaussian(
        share_sigma=request.share_sigma,
        shares=len(request.keys),
        tolerated=request.tolerated if len(request.keys) > 1 else 0,
        sensitivity=1.0,
        dimension=rows.size,
    )
    return Part(site.release_masked(event, "counts", rows, request.keys))


HANDLERS = {Ask: size, Hello: hello, Sum: part}


KNOWN = ("clinic", "a", "b", "c")  # roster of these tests


def site_of(name="clinic", rows=(1, 2, 3), *, ledger=None, **named):
    ledger = ledger or Ledger(name, limit=LIMIT, identity=identity_of(name))
    return site_with(name, rows, terms_of({*KNOWN, name}), ledger=ledger, **named)


def frame(request, *, step=0, run="r1", to="clinic", sender="coordinator"):
    return messages.encode(Envelope(run, step, sender, to, messages.encode(request)))


def reply_in(answer, kind):
    """The reply in the bytes that a site answered."""
    return messages.decode(messages.decode(answer, Envelope).body, kind)


def with_reply(answer, reply):
    """The same answer with another reply in it."""
    envelope = messages.decode(answer, Envelope)
    return messages.encode(msgspec.structs.replace(envelope, body=messages.encode(reply)))


def session_of(sites, **settings):
    by_name = {site.name: site for site in sites}
    return Session(list(by_name), Sites(by_name, HANDLERS), **({"run": "r1"} | settings))


def masked_sum(session, share_sigma=20.0):
    keys = {n: r.key.value for n, r in zip(session.roster, session.ask(Hello()), strict=True)}
    words = [r.sums.words.numpy() for r in session.ask(Sum(keys, share_sigma))]
    return words, masking.unmask_sum(words)
