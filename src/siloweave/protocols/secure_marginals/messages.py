"""Messages of noisy marginals over columns of several parties.

After Beaver 1997 and Gilboa & Ishai 2014; see `secure_marginals`.

**Guarantee**: that of `secure_marginals`. Whatever is of rows is `Released`,
or encrypted to a party.
"""

from __future__ import annotations

import msgspec

from siloweave.federation.messages import (
    Array,
    Public,
    Relayed,
    Released,
    Reply,
    Request,
)
from siloweave.privacy.coins import Coins
from siloweave.tables.codes import Clique


class Begun(Reply, frozen=True):
    """A party's key; how many rows there are at most, from the first party; counts of columns."""

    key: Public[bytes]
    paid_bound: tuple[Released[int], ...]
    known_rows: tuple[Public[int], ...]
    # Of columns that are cut, at all resolution levels.
    counts: tuple[Released[Array], ...]


class Begin(Request[Begun], frozen=True, tag="secure/begin"):
    """Send your key, the bound if you are the first party, and noisy counts of columns to cut."""


class Delivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows that another party sent, carried by the coordinator."""

    # The step in which they were sent.
    step: int
    data: bytes
    key: bytes
    # With this, the proof that the rows are codes is checked.
    seed: bytes


class SharedRows(Reply, frozen=True):
    """Rows under a mask, encrypted to other parties."""

    rows: Relayed


class ShareRows(Request[SharedRows], frozen=True, tag="secure/share"):
    """Send the others your rows from `start` to `stop` under a mask."""

    # All parties' keys, signed.
    keys: dict[str, bytes]
    # The coordinator's public key.
    dealer: bytes
    # How many rows there are at most; those that are missing have the codes 0.
    rows: int
    # How many codes each column has, in the order of the schema.
    sizes: tuple[int, ...]
    start: int
    stop: int
    # k of step 7 in secure_products.py, by which the others find that rows are codes.
    proof: Array
    # Rows of the slab before, by who sent them.
    deliveries: dict[str, Delivery]


class Tables(Reply, frozen=True):
    """Noisy counts of own columns, and words that open with another party's."""

    own: tuple[Released[Array], ...]
    joint: tuple[Released[Array], ...]


class NoisyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A marginal, with Gaussian noise of `sigma` where one party has all columns, else of coins."""

    clique: Clique
    sigma: float = 0.0
    weights: tuple[int, ...] = ()
    copies: int = 0

    @property
    def coins(self) -> Coins:
        """The noise of each cell, where it is made of coins."""
        return Coins(self.weights, self.copies)


class MeasureTables(Request[Tables], frozen=True, tag="secure/measure"):
    """Measure these tables, each party those over its columns; all parties are sent them all."""

    tables: tuple[NoisyTable, ...]
    # Rows of the last slab, by who sent them.
    deliveries: dict[str, Delivery]
    # Q of secure_products.py, step 2: to the second party of a pair, by the first one.
    corrections: dict[str, Array]
    # G of step 4, of all tables of such a pair: to the second party, by the first one.
    coins: dict[str, Array]
    # s' of step 6, of tables of shifted codes: to the second of both parties that open them.
    seeds: bytes
    # C of step 6: to both.
    cells: bytes
