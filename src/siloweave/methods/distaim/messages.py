"""What DistAIM asks of its parties (Maddock, Cormode & Maple 2024); see method.py."""

from __future__ import annotations

from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.privacy.coins import Coins
from siloweave.privacy.events import PaidAhead
from siloweave.tables.codes import Clique


class CountShare(Reply, frozen=True):
    """A party's counts of all tables, minus words that the first server alone can make again."""

    words: Released[Array]


class ShareCounts(Request[CountShare], frozen=True, tag="distaim/share"):
    """Pay for all that will be opened, and send your counts, once a run."""

    server: bytes  # signed key of the first server
    price: PaidAhead


class ServerWords(Reply, frozen=True):
    """A server's part of tables that are opened: random words, in which there is no row."""

    words: Public[Array]


class OpenTables(Request[ServerWords], frozen=True, tag="distaim/open"):
    """Open these tables over the parties that shared their counts, under noise of these coins."""

    cliques: tuple[Clique, ...]
    coins: tuple[Coins, ...]  # of every table
    tail: float  # of each coin's price, see SharedCoins
    price: PaidAhead  # that all parties paid
    joined: dict[str, bytes]  # signed key of every party that shared its counts
    servers: tuple[bytes, bytes]  # signed keys of both
    dealer: bytes  # the coordinator's public key
    dealt: bytes  # G of secure_products.py, to the second server
