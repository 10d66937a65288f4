"""A party's side of DistAIM (Maddock, Cormode & Maple 2024): it shares counts, and may serve.

The servers are the first and the last party of the study's roster. Both open tables that the
coordinator chooses, for as long as all of them together cost no more than every party has paid.
They hold no counts: the first makes the words again that parties subtracted, from secrets that it
shares with them, and both toss coins (protocols/secure_products.py).

**Guarantee**: see method.py. What a party paid is part of the name of its words, so a server that
is given another price makes other words, and what is opened is random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import accumulate

import msgspec
import numpy as np

from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation.expected import MOST_ROWS
from siloweave.federation.masking import Words, stream
from siloweave.federation.messages import MAX_BYTES, Array, Public
from siloweave.federation.site import Handlers, Site
from siloweave.methods.distaim.messages import (
    CountShare,
    OpenTables,
    ServerWords,
    ShareCounts,
)
from siloweave.privacy.budget import marginal_sensitivity
from siloweave.privacy.coins import Coins
from siloweave.privacy.events import PaidAhead, SharedCoins, encode
from siloweave.protocols import secure_products as products
from siloweave.protocols.secure_sums import (
    CountExactly,
    KeyRequest,
    checked_queries,
    count_exactly,
    neighbours_of,
    send_key,
)
from siloweave.statistics.marginals import closure, marginal
from siloweave.tables.codes import Clique, CountedRows, Domain

_SLACK = 1e-9  # relative, of sums of prices
_SIMULATED = "the servers of DistAIM are simulated by the coordinator"
_MOST_COINS = MAX_BYTES // 4  # of one question; each is a word to the second server
MODULUS = 2**32
"""Of counts, words and noise."""


def servers_of(roster: Sequence[str] | Mapping[str, bytes]) -> tuple[str, str]:
    """The parties that serve; one and the same where there is one."""
    names = tuple(roster)
    return names[0], names[-1]


def places_of(domain: Domain, workload: Sequence[Clique]) -> dict[Clique, slice]:
    """Where each table is among the words of all: the workload's columns and pairs of columns."""
    cliques = [q for q in closure(workload, domain) if len(q) <= 2]
    ends = list(accumulate(domain.size(q) for q in cliques))
    return {q: slice(end - domain.size(q), end) for q, end in zip(cliques, ends, strict=True)}


def count_words(secret: bytes, price: PaidAhead, cells: int) -> Words:
    """U: what a party subtracts from its counts, drawn from its secret with the first server."""
    return stream(secret, b"distaim counts\0" + encode(price), cells)


def opening(context: str, request: OpenTables) -> str:
    """Name of what is opened, for streams of both servers that are used once."""
    asked = msgspec.msgpack.encode((request.cliques, request.coins, sorted(request.joined)))
    return f"{context}/{sha256(asked).hexdigest()}"


def share(request: ShareCounts, site: Site[CountedRows]) -> CountShare:
    """V = M - U: pay for everything that may be opened later, and send counts under a mask."""
    site.require_first()
    price, domain = request.price, site.rows.domain
    if price.moved != marginal_sensitivity(neighbours_of(site), norm="l1"):
        raise WireError(
            f"party {site.name!r} was asked to pay for rows that move {price.moved} cells of a "
            f"table; its own budget is of {neighbours_of(site)}. Nothing was released"
        )
    server, _ = servers_of(site.terms.roster)
    secret = site.agree({server: request.server})[server]
    places = places_of(domain, site.terms.facts["workload"])

    def masked() -> Array:
        exact = np.concatenate([marginal(site.rows, q).reshape(-1) for q in places])
        return Array.of(exact.astype(np.uint32) - count_words(secret, price, exact.size), "<u4")

    what = f"tables that {' and '.join(servers_of(site.terms.roster))} open later of its counts"
    return CountShare(site.release(price, what, masked))


def open_tables(request: OpenTables, site: Site[CountedRows]) -> ServerWords:
    """This server's part of the noise, and the words that parties subtracted; no row is read."""
    first, last = servers_of(site.terms.roster)
    domain = site.rows.domain
    places = places_of(domain, site.terms.facts["workload"])
    asked = len(request.cliques) == len(request.coins) and set(request.cliques) <= places.keys()
    if site.name not in (first, last) or not asked or not request.joined:
        raise _refused(site, "was asked to open tables that are not its to open")
    if len(request.joined) < site.terms.smallest_cohort:
        least = site.terms.smallest_cohort
        what = f"was asked to open tables of {len(request.joined)} parties; the study's smallest"
        raise _refused(site, f"{what} sum is of {least}")
    checked_queries(request.cliques, site)
    pairs = zip(request.cliques, request.coins, strict=True)
    if (coins := sum(domain.size(q) * one.number for q, one in pairs)) > _MOST_COINS:
        raise _refused(site, f"was asked for {coins:,} coins; a message holds {_MOST_COINS:,}")
    _check_price(request, site)
    keys = dict(zip((first, last), request.servers, strict=True))
    if any(keys.get(name, key) != key for name, key in request.joined.items()):
        raise _refused(site, "was sent two keys of one party")
    both = site.agree({**request.joined, **keys})
    release = opening(site.context, request)
    sent = np.zeros(sum(domain.size(q) for q in request.cliques), dtype=np.uint32)
    if site.name == first:
        dealer = site.agree_with_dealer(request.dealer)
        cells = next(reversed(places.values())).stop
        joined = sum(count_words(both[name], request.price, cells) for name in request.joined)
        own = np.concatenate([np.asarray(joined)[places[q]] for q in request.cliques])
        sent += own + _noise(request, domain, both[last], release, dealer)
    if site.name == last:
        sent += _noise(request, domain, both[first], release, None)
    why = "random words of secrets and coins, drawn without looking at rows"
    return ServerWords(Public(Array.of(sent, "<u4"), why))


def _noise(
    request: OpenTables, domain: Domain, secret: bytes, release: str, dealer: bytes | None
) -> Words:
    """A server's part of the noise, padded: the first knows the dealer's secret, the other G."""
    parts, dealt = [], np.frombuffer(request.dealt, "<u4")
    for clique, coins in zip(request.cliques, request.coins, strict=True):
        cells, name = domain.size(clique), "\0".join((release, *clique))
        z = products.coin_bits(secret, name, cells, coins)
        if dealer is not None:
            S = products.coin_masks(dealer, name, cells, coins, MODULUS)
            part = products.noise_share(coins, z, S, MODULUS, first=True)
            parts.append(part + products.pad(secret, name, cells, MODULUS))
            continue
        G, dealt = np.split(dealt, [cells * coins.number])
        part = products.noise_share(coins, z, G.reshape(cells, -1), MODULUS, first=False)
        parts.append(part - products.pad(secret, name, cells, MODULUS))
    return np.concatenate(parts)


def _check_price(request: OpenTables, site: Site[CountedRows]) -> None:
    """Refuse tables that would cost, with those opened before, more than parties have paid."""
    price, step = request.price, site.context
    before = site.recall("opened") or msgspec.msgpack.encode({})
    opened = msgspec.msgpack.decode(before, type=dict[str, tuple[float, float]])
    events = [_event(request, coins, site) for coins in request.coins]
    rho, escape = sum(e.rho * e.count for e in events), sum(e.delta * e.count for e in events)
    opened[step] = (rho, escape)
    total, escapes = (sum(one) for one in zip(*opened.values(), strict=True))
    if total > price.total * (1 + _SLACK) or escapes > price.escape * (1 + _SLACK):
        raise BudgetError(
            f"party {site.name!r} was asked to open tables that cost rho = {total:g} in all, and "
            f"escape it with probability {escapes:g}; parties paid {price.total:g} and "
            f"{price.escape:g}. Nothing was opened"
        )
    if site.recall("price") not in (None, encode(price)):
        raise _refused(site, "was sent another price before")
    site.remember("price", encode(price))
    site.remember("opened", msgspec.msgpack.encode(opened))


def _event(request: OpenTables, coins: Coins, site: Site[CountedRows]) -> SharedCoins:
    price = request.price
    try:
        made = SharedCoins(*coins, price.largest_order, request.tail, site.context, price.moved)
    except InputError as error:
        raise _refused(site, f"was asked for noise that cannot be: {error}") from error
    if coins.half > MOST_ROWS // 2:
        raise _refused(site, f"was asked for noise of up to {coins.half:,}, which is too wide")
    return made


def _refused(site: Site[CountedRows], what: str) -> WireError:
    return WireError(f"party {site.name!r} {what}. Nothing was opened")


HANDLERS: Handlers = {
    KeyRequest: send_key,
    ShareCounts: share,
    OpenTables: open_tables,
    CountExactly: partial(count_exactly, why=_SIMULATED, selection="simulated"),
}
"""A party's side: which function answers which request."""
