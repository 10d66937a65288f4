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

import msgspec
import numpy as np

from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation.expected import MOST_ROWS
from siloweave.federation.masking import Words, stream
from siloweave.federation.messages import MAX_BYTES, Array, Public
from siloweave.federation.site import Handlers, Site
from siloweave.methods.distaim import messages
from siloweave.privacy.budget import marginal_sensitivity
from siloweave.privacy.coins import Coins
from siloweave.privacy.events import PaidAhead, SharedCoins, encode
from siloweave.protocols import secure_products as products
from siloweave.protocols import secure_sums
from siloweave.statistics.marginals import closure, marginal
from siloweave.tables.codes import Clique, CountedRows, Domain

_SLACK = 1e-9  # relative, of sums of prices: far more than rounding adds
_SIMULATED = "the servers of DistAIM are simulated by the coordinator"
_MOST_COINS = MAX_BYTES // 4  # of one question; each is a word to the second server
MODULUS = 2**32
"""Of counts, words and noise."""


def servers_of(roster: Sequence[str] | Mapping[str, bytes]) -> tuple[str, str]:
    """Return the names of the two parties that serve; twice the same name where there is one."""
    names = tuple(roster)
    return names[0], names[-1]


def places_of(domain: Domain, workload: Sequence[Clique]) -> dict[Clique, slice]:
    """Return the place of each table among the words of all tables.

    Tables are of the workload's columns and pairs of columns.
    """
    places = {}
    start = 0
    for q in closure(workload, domain):
        if len(q) <= 2:
            end = start + domain.size(q)
            places[q] = slice(start, end)
            start = end
    return places


def count_words(secret: bytes, price: PaidAhead, cells: int) -> Words:
    """Return the words U, which a party subtracts from its counts.

    It is drawn from the secret that the party shares with the first server, and named by the price.
    """
    return stream(secret, b"distaim counts\0" + encode(price), cells)


def opening(context: str, request: messages.OpenTables) -> str:
    """Name one opening of tables, so that both servers use its streams once only."""
    # The parties, too: over other ones, the same stream would be used a second time.
    content = (request.cliques, request.coins, sorted(request.joined))
    encoded = msgspec.msgpack.encode(content)
    return f"{context}/{sha256(encoded).hexdigest()}"


def share(
    request: messages.ShareCounts, site: Site[CountedRows]
) -> messages.CountShare:
    """Pay for everything that may be opened later, and send masked counts, V = M - U."""
    site.require_first()
    price = request.price
    # A lower one would be charged for rows that move less than this party's do.
    neighbours = secure_sums.neighbours_of(site)
    if price.moved != marginal_sensitivity(neighbours, norm="l1"):
        raise WireError(
            f"party {site.name!r} was asked to pay for rows that move {price.moved} cells of a "
            f"table; its own budget is of {neighbours}. Nothing was released"
        )
    server, _ = servers_of(site.terms.roster)
    secret = site.agree({server: request.server})[server]
    places = places_of(site.rows.domain, secure_sums.workload_of(site).queries)

    def masked() -> Array:
        counts = np.concatenate([marginal(site.rows, q).reshape(-1) for q in places])
        mask = count_words(secret, price, counts.size)
        return Array.of(counts.astype(np.uint32) - mask, "<u4")

    servers = " and ".join(servers_of(site.terms.roster))
    title = f"tables that {servers} open later of its counts"
    return messages.CountShare(site.release(price, title, masked))


def open_tables(
    request: messages.OpenTables, site: Site[CountedRows]
) -> messages.ServerWords:
    """Send this server's part of tables: its noise, and the words that parties subtracted.

    No row is read. The first server knows the words, both make noise.
    """
    first, last = servers_of(site.terms.roster)
    domain = site.rows.domain
    places = places_of(domain, secure_sums.workload_of(site).queries)
    _check_tables(request, site, places)
    _check_price(request, site)
    server_keys = dict(zip((first, last), request.servers, strict=True))
    if any(server_keys.get(name, key) != key for name, key in request.joined.items()):
        raise _refused(site, "was sent two keys of one party")

    secrets = site.agree({**request.joined, **server_keys})
    release = opening(site.context, request)
    words = np.zeros(sum(domain.size(q) for q in request.cliques), dtype=np.uint32)
    if site.name == first:
        dealer = site.agree_with_dealer(request.dealer)
        # The sum of U over the parties that joined, at the tables that are opened.
        cells = max(place.stop for place in places.values())
        masks = sum(
            count_words(secrets[name], request.price, cells) for name in request.joined
        )
        table_masks = np.concatenate(
            [np.asarray(masks)[places[q]] for q in request.cliques]
        )
        words += table_masks + _noise(request, domain, secrets[last], release, dealer)
    # A party alone is both servers.
    if site.name == last:
        words += _noise(request, domain, secrets[first], release, None)
    why = "random words of secrets and coins, drawn without looking at rows"
    return messages.ServerWords(Public(Array.of(words, "<u4"), why))


def _check_tables(
    request: messages.OpenTables,
    site: Site[CountedRows],
    places: Mapping[Clique, slice],
) -> None:
    """Refuse unknown tables, tables of too few parties, and too many coins.

    Raises:
        WireError: Naming the party. Nothing was opened.
    """
    domain = site.rows.domain
    has_tables = set(request.cliques) <= places.keys()
    has_coins = len(request.cliques) == len(request.coins)
    is_server = site.name in servers_of(site.terms.roster)
    if not (is_server and has_tables and has_coins and request.joined):
        raise _refused(site, "was asked to open tables that are not its to open")

    # Every subset that is opened is a sum over other rows.
    least = site.terms.smallest_cohort
    if len(request.joined) < least:
        raise _refused(
            site,
            f"was asked to open tables of {len(request.joined)} parties; the study's smallest sum "
            f"is of {least}",
        )
    secure_sums.checked_queries(request.cliques, site)

    number = 0
    for clique, coins in zip(request.cliques, request.coins, strict=True):
        number += domain.size(clique) * coins.number
    if number > _MOST_COINS:
        raise _refused(
            site, f"was asked for {number:,} coins; a message holds {_MOST_COINS:,}"
        )


def _noise(
    request: messages.OpenTables,
    domain: Domain,
    secret: bytes,
    release: str,
    dealer: bytes | None,
) -> Words:
    """Return a server's part of the noise of all tables, padded.

    The first server knows the dealer's secret. The other was dealt G, and has None.
    """
    parts = []
    dealt = np.frombuffer(request.dealt, "<u4")
    for clique, coins in zip(request.cliques, request.coins, strict=True):
        cells = domain.size(clique)
        name = "\0".join((release, *clique))
        z = products.coin_bits(secret, name, cells, coins)
        # What the first adds the other subtracts: each part alone is random words.
        pad = products.pad(secret, name, cells, MODULUS)
        if dealer is not None:
            S = products.coin_masks(dealer, name, cells, coins, MODULUS)
            part = products.noise_share(coins, z, S, MODULUS, first=True)
            parts.append(part + pad)
        else:
            G, dealt = np.split(dealt, [cells * coins.number])
            part = products.noise_share(
                coins, z, G.reshape(cells, -1), MODULUS, first=False
            )
            parts.append(part - pad)
    return np.concatenate(parts)


def _check_price(request: messages.OpenTables, site: Site[CountedRows]) -> None:
    """Refuse tables that would cost more than parties paid, with those opened before."""
    price = request.price
    stored = site.recall("opened") or msgspec.msgpack.encode({})
    opened = msgspec.msgpack.decode(stored, type=dict[str, tuple[float, float]])

    # By step, so that a question that is asked again counts once.
    events = [_event(request, coins, site) for coins in request.coins]
    rho = sum(event.rho * event.count for event in events)
    escape = sum(event.delta * event.count for event in events)
    opened[site.context] = (rho, escape)
    total = sum(step_rho for step_rho, _ in opened.values())
    escapes = sum(step_escape for _, step_escape in opened.values())
    if total > price.total * (1 + _SLACK) or escapes > price.escape * (1 + _SLACK):
        raise BudgetError(
            f"party {site.name!r} was asked to open tables that cost rho = {total:g} in all, and "
            f"escape it with probability {escapes:g}; parties paid {price.total:g} and "
            f"{price.escape:g}. Nothing was opened"
        )
    # With a second price, what one opens would be held against what another paid.
    if site.recall("price") not in (None, encode(price)):
        raise _refused(site, "was sent another price before")
    site.remember("price", encode(price))
    site.remember("opened", msgspec.msgpack.encode(opened))


def _event(
    request: messages.OpenTables, coins: Coins, site: Site[CountedRows]
) -> SharedCoins:
    """Return the event of a table; raises WireError for coins that make no noise."""
    price = request.price
    try:
        event = SharedCoins(
            *coins, price.largest_order, request.tail, site.context, price.moved
        )
    except InputError as error:
        raise _refused(site, f"was asked for noise that cannot be: {error}") from error
    if coins.half > MOST_ROWS // 2:
        raise _refused(
            site, f"was asked for noise of up to {coins.half:,}, which is too wide"
        )
    return event


def _refused(site: Site[CountedRows], reason: str) -> WireError:
    """Return the error of a server that opens nothing."""
    return WireError(f"party {site.name!r} {reason}. Nothing was opened")


HANDLERS: Handlers = {
    secure_sums.KeyRequest: secure_sums.send_key,
    messages.ShareCounts: share,
    messages.OpenTables: open_tables,
    secure_sums.CountExactly: partial(
        secure_sums.count_exactly, why=_SIMULATED, selection="simulated"
    ),
}
"""A party's side: which function answers which request."""
