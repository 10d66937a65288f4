"""One masked sum of many integers whose parties vanish, which dropouts.py and network.py time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from siloweave.federation import messages
from siloweave.federation.messages import Envelope
from siloweave.federation.session import InProcess, Session
from siloweave.federation.site import MemoryStore, Site, Terms
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Identity, Ledger
from siloweave.privacy.mechanisms import OSEntropy
from siloweave.protocols.secure_sums import (
    HANDLERS,
    Count,
    OpenSum,
    SumNoise,
    exchange_keys,
    noisy_marginals,
)
from siloweave.statistics.marginals import marginal
from siloweave.tables import Codes
from siloweave.tables.codes import Domain

CELLS, ROWS = (400, 250), 1000
DOMAIN, CLIQUE = Domain(("a", "b"), CELLS), ("a", "b")


class MaskedSum:
    """The sum of 100,000 integers over all parties, of which the first `gone` vanish.

    Half of those vanish before they mask, half before they open the sum.
    """

    def __init__(self, names: Sequence[str], gone: int) -> None:
        rng = np.random.default_rng(0)
        self.gone = gone
        self.early, self.late = names[: gone // 2], names[gone // 2 : gone]
        self.held = {
            name: Codes(DOMAIN, tuple(rng.integers(0, s, ROWS).astype(np.uint16) for s in CELLS))
            for name in names
        }
        people = {name: Identity.create() for name in names}
        terms = Terms({name: one.public for name, one in people.items()}, dropouts=gone)
        self.here = InProcess(
            {
                name: Site(name, held, ledger=Ledger(name, limit=Budget(10.0, 1e-6), identity=one),
                           terms=terms, entropy=OSEntropy(), store=MemoryStore())
                for (name, held), one in zip(self.held.items(), people.values(), strict=True)
            },
            HANDLERS,
        )  # fmt: skip

    def vanishes(self, name: str, frame: bytes) -> bool:
        """Whether a party is gone once it is sent this."""
        kind = type(messages.decode_request(messages.decode(frame, Envelope).body, HANDLERS))
        return (kind is Count and name in self.early) or (kind is OpenSum and name in self.late)

    def run(self, session: Session) -> dict[str, float]:
        """Sum once: seconds for keys, parties counted, and the noise. Ends where it is wrong."""
        began = time.perf_counter()
        keys = exchange_keys(session, DOMAIN)
        spent = time.perf_counter() - began
        noise = SumNoise(50.0, 1, self.gone)
        (table,), sigma, counted = noisy_marginals(session, keys, DOMAIN, [CLIQUE], noise)
        off = (table - np.sum([marginal(self.held[n], CLIQUE) for n in counted], axis=0)).std()
        if len(counted) != len(self.held) - len(self.early) or not 0.95 < off / sigma < 1.05:
            raise SystemExit(f"the sum is wrong: {off} of {sigma}, {len(counted)} parties")
        return {"keys": spent, "counted": len(counted), "sigma": sigma}
