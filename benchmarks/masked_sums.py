"""One masked sum of many integers whose parties vanish, which dropouts.py and network.py time."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from siloweave.errors import RosterError
from siloweave.federation import messages
from siloweave.federation.messages import Envelope
from siloweave.federation.session import Session
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
from siloweave.protocols.workloads import StudyWorkload
from siloweave.statistics.marginals import marginal
from siloweave.tables import Codes
from siloweave.tables.codes import Domain

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.federation.sites import Sites

CELLS, ROWS = (400, 250), 1000
DOMAIN, CLIQUE = Domain(("a", "b"), CELLS), ("a", "b")


class Vanishing(Sites):
    """Carries frames to parties of this process, until they are gone."""

    def __init__(self, sums: MaskedSum, sites: Mapping[str, Site]) -> None:
        super().__init__(sites, HANDLERS)
        self._sums = sums

    def send(self, name: str, frame: bytes) -> bytes:
        """Return a party's answer to a frame; RosterError if the party is gone."""
        if self._sums.vanishes(name, frame):
            raise RosterError(f"{name} is gone")
        answer: bytes = super().send(name, frame)
        return answer


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
        keys = {name: one.public for name, one in people.items()}
        facts = {"workload": StudyWorkload((CLIQUE,), 80.0)}
        terms = Terms(keys, dropouts=gone, facts=facts)
        limit = Budget(10.0, 1e-6)
        sites = {
            name: Site(
                name,
                codes,
                ledger=Ledger(name, limit=limit, identity=people[name]),
                terms=terms,
                entropy=OSEntropy(),
                store=MemoryStore(),
            )
            for name, codes in self.held.items()
        }
        self.carrier = Vanishing(self, sites)

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
