"""Small parties that are aligned, over a wire that is listened to."""

import numpy as np

from siloweave.federation import messages
from siloweave.federation.alignment_party import PARTY, AlignmentData, common_rows
from siloweave.federation.messages import Envelope
from siloweave.federation.session import Session
from siloweave.tables.table import Table
from tests.federation.rosters import roster_of
from tests.federation.sites import Sites

CHUNK = 40  # so that small sets are sent in parts


def holding(ids, **settings):
    ids = np.asarray(ids, dtype=object if isinstance(ids[0], str) else np.int64)
    numbers = np.arange(len(ids))
    return AlignmentData(
        Table.from_columns({"id": (ids, None), "row": (numbers, None)}), **settings
    )


def sites_of(held, limit=None):
    """A site for each that brings something, p0 first; they know each other's keys."""
    return roster_of({f"p{i}": mine for i, mine in enumerate(held)}, limit=limit)


class Wire:
    """A transport that keeps what it carries, and may change answers."""

    sizes = {}

    def __init__(self, sites, change=None):
        self.inner, self.change, self.log = Sites(sites, PARTY), change, []

    def send(self, name, frame):
        answer = self.inner.send(name, frame)
        request = messages.decode_request(messages.decode(frame, Envelope).body, PARTY)
        if self.change is not None:
            answer = self.change(name, request, answer)
        self.log.append((name, request, frame, answer))
        return answer


def run_of(sets, *, change=None, run="r1", limit=None, **settings):
    sites = sites_of([holding(ids, **settings) for ids in sets], limit)
    line = Wire(sites, change)
    return Session(list(sites), line, run=run), sites, line


def ids_found(sites):
    return [common_rows(site, "r1").values("id").tolist() for site in sites.values()]


def drawn(parties, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(50, 90, parties)
    return [rng.choice(100, size=size, replace=False).tolist() for size in sizes]
