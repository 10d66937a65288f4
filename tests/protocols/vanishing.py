"""A masked sum whose parties vanish at any moment, and coordinators that lie in it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from siloweave.errors import RosterError
from siloweave.federation import messages
from siloweave.federation.dropouts import MaskPlan
from siloweave.federation.messages import Envelope
from siloweave.federation.session import Session
from siloweave.privacy.budget import Budget
from siloweave.protocols import secure_sums
from siloweave.protocols.secure_sums import (
    HANDLERS,
    Cohort,
    Count,
    Counts,
    OpenSum,
    SumNoise,
    noisy_sums,
)
from siloweave.protocols.workloads import StudyWorkload
from siloweave.statistics.marginals import marginal
from siloweave.tables import Codes
from siloweave.tables.codes import Domain
from tests.federation.rosters import roster_of
from tests.federation.sites import Sites
from tests.federation.small import reply_in

DOMAIN = Domain(("a", "b"), (30, 40))
CLIQUES = (("a", "b"), ("b",))
FACTS = {"workload": StudyWorkload(CLIQUES, 80.0)}
BUDGET = Budget(epsilon=50.0, delta=1e-5)
NAMES = ("ada", "bob", "cleo", "dan", "eve", "fay")

MOMENTS = ("asked to mask", "masked", "asked to open", "opened")
"""When a party vanishes: before it reads a question, or after it has answered in vain."""


def at(number, moment):
    """A moment of a sum, counted from 0."""
    return 4 * number + MOMENTS.index(moment)


def tables_of(names=NAMES, rows=20, seed=0):
    rng = np.random.default_rng(seed)
    return {
        n: Codes(DOMAIN, tuple(rng.integers(0, s, rows).astype(np.uint8) for s in DOMAIN.sizes))
        for n in names
    }


@dataclass
class Line(Sites):
    """Carries frames but for those of parties that vanish; `heard` are all that were answered.

    Attributes:
        sites: The parties.
        gone: When a party vanishes, see `at`.
        change: May put another question in the place of one.
    """

    sites: dict
    gone: dict = field(default_factory=dict)
    change: Callable = lambda name, step, request: request
    heard: list = field(default_factory=list)

    def __post_init__(self):
        super().__init__(self.sites, HANDLERS)
        self.lost, self._sums = set(), dict.fromkeys(self.sites, -1)

    def send(self, name, frame):
        envelope = messages.decode(frame, Envelope)
        request = messages.decode_request(envelope.body, self._handlers)
        self._sums[name] += isinstance(request, Cohort)
        now = 4 * self._sums[name] + 2 * isinstance(request, OpenSum)
        if isinstance(request, Cohort | OpenSum) and now == self.gone.get(name):
            self.lost.add(name)
        if name in self.lost:
            raise RosterError(f"party {name!r} is not there")
        other = self.change(name, envelope.step, request)
        if other is not request:
            body = messages.encode(other)
            frame = messages.encode(msgspec.structs.replace(envelope, body=body))
        answer = super().send(name, frame)
        self.heard.append((name, envelope.step, other, answer))
        if isinstance(request, Cohort | OpenSum) and now + 1 == self.gone.get(name):
            self.lost.add(name)
            raise RosterError(f"party {name!r} did not answer in time")
        return answer

    def replies(self, kind, answers):
        """What parties answered to requests of a kind, in the order of asking."""
        return [
            (name, step, request, reply_in(answer, answers))
            for name, step, request, answer in self.heard
            if isinstance(request, kind)
        ]

    def masked(self, number=0):
        """Replies of a sum, by party."""
        steps = sorted({step for _, step, _, _ in self.replies(Count, Counts)})
        return {n: r for n, s, _, r in self.replies(Count, Counts) if s == steps[number]}


@dataclass
class Study:
    """Parties of a sum, and the coordinator's session with them."""

    line: Line
    session: Session
    keys: dict
    tables: dict
    noise: SumNoise

    def count(self, cliques=CLIQUES, names=None):
        """One sum over those of a cohort who answer."""
        names = list(self.keys if names is None else names)
        share, missing = self.noise.share(len(names), 1240)
        request = Count({n: self.keys[n] for n in names}, share, missing, cliques)
        return noisy_sums(self.session, request, [DOMAIN.shape(c) for c in cliques])

    def exact(self, names, cliques=CLIQUES):
        """What the sum over some parties is without noise."""
        return [np.sum([marginal(self.tables[n], c) for n in names], axis=0) for c in cliques]

    @property
    def plan(self):
        return MaskPlan.of(self.keys, self.noise.tolerated, self.noise.dropouts)


def study_of(
    *, dropouts=2, tolerated=1, names=NAMES, gone=None, change=None, sigma=30.0, rows=20, **named
):
    """A study whose keys are exchanged; `named` goes to its sites."""
    tables = tables_of(names, rows)
    sites = roster_of(
        tables, dropouts=dropouts, tolerated=tolerated, limit=BUDGET, facts=FACTS, **named
    )
    line = Line(sites, gone or {})
    session = Session(tuple(names), line, run="r", tolerated=tolerated, dropouts=dropouts)
    keys = secure_sums.exchange_keys(session, DOMAIN)
    line.change = change or line.change
    return Study(line, session, keys, tables, SumNoise(sigma, tolerated, dropouts))
