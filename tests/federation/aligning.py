"""Small parties that are aligned, over a wire that is listened to."""

import numpy as np

from siloweave.federation import InProcess, MemoryStore, Session, Site, wire
from siloweave.federation.alignment_party import PARTY, AlignmentData, common_rows
from siloweave.federation.messages import Envelope
from siloweave.privacy import Ledger, mechanisms
from siloweave.tables.read import Table

CHUNK = 40  # so that small sets are sent in parts


def holding(ids, **settings):
    ids = np.asarray(ids, dtype=object if isinstance(ids[0], str) else np.int64)
    numbers = np.arange(len(ids))
    return AlignmentData(
        Table.from_columns({"id": (ids, None), "row": (numbers, None)}), **settings
    )


def site_of(name, held, limit=None):
    return Site(
        name,
        held,
        ledger=Ledger(name, limit=limit),
        entropy=mechanisms.OSEntropy(),
        store=MemoryStore(),
    )


class Wire:
    """A transport that keeps what it carries, and may change answers."""

    def __init__(self, sites, change=None):
        self.inner, self.change, self.log = InProcess(sites, PARTY), change, []

    def send(self, name, frame):
        answer = self.inner.send(name, frame)
        request = wire.decode_request(wire.decode(frame, Envelope).body, PARTY)
        if self.change is not None:
            answer = self.change(name, request, answer)
        self.log.append((name, request, frame, answer))
        return answer


def run_of(sets, *, change=None, run="r1", limit=None, **settings):
    sites = {
        f"p{i}": site_of(f"p{i}", holding(ids, **settings), limit) for i, ids in enumerate(sets)
    }
    line = Wire(sites, change)
    return Session(list(sites), line, run=run), sites, line


def ids_found(sites):
    return [common_rows(site, "r1").values("id").tolist() for site in sites.values()]


def drawn(parties, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(50, 90, parties)
    return [rng.choice(100, size=size, replace=False).tolist() for size in sizes]
