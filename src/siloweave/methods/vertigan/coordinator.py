"""The server's side of VertiGAN: count once, then move the trunk along the parties' slopes.

Jiang, Zhang, Zhou & Grossklags 2023, PoPETs 2023(2), section 4.

**Guarantee**: see method.py. This side reads only what was sent to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from siloweave.core.method import Result, Task
from siloweave.core.settings import part_of
from siloweave.federation.expected import MOST_ROWS, WHOLE, CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.methods.vertigan.messages import (
    BeginVertiGAN,
    CountOwnColumns,
    TrainCritics,
    VertiGANPlan,
    like_hidden,
)
from siloweave.models.settings import VertiGANSettings
from siloweave.protocols.columns import check_same_rows, parts_of, rows_sent
from siloweave.protocols.histograms import NoisyHistogram
from siloweave.protocols.networks import NetworkModel, jax_key
from siloweave.tables.arrays import Matrix
from siloweave.tables.codes import Encoder, ResolutionLevels
from siloweave.tables.keys import Key, fold_in

if TYPE_CHECKING:
    from siloweave.models.vertigan import Head


def coordinate(session: Session, task: Task) -> Result:
    """Train the trunk over a roster.

    Raises BudgetError where the budget is too small for these settings; nothing is released. Raises
    WireError, naming the party, where it sent what does not fit.
    """
    from siloweave.models.vertigan import Trunk, follow, hidden_rows, shared_start

    synth: Any = task.setup.synth
    settings = part_of(VertiGANSettings, synth)
    first = _planned(session, task) if synth.private else BeginVertiGAN(task.seed)
    known: dict[str, int] = {}
    for name, reply in zip(session.roster, session.ask(first), strict=True):
        checked = CheckedReply(name)
        for one in checked.items("numbers of rows", reply.rows, count=0 if synth.private else 1):
            known[name] = checked.number("rows", one.value, least=1, most=MOST_ROWS)
    check_same_rows(known)
    shared = shared_start(settings, jax_key(fold_in(task.seed, "trunk")))
    for number in range(settings.rounds):
        key = jax_key(fold_in(task.seed, "round", number))
        hidden = np.asarray(hidden_rows(settings, shared.trunk, key))
        replies = session.ask(TrainCritics(number, Array.of(hidden, "<f4")))
        slopes = [
            like_hidden(name, "slope", reply.slope.value, settings)
            for name, reply in zip(session.roster, replies, strict=True)
        ]
        shared = follow(settings, shared, np.sum(slopes, axis=0), key)
        task.progress(f"round {number + 1} of {settings.rounds}", (number + 1) / settings.rounds)
    trunk = Trunk(settings, shared.average, len(session.roster))
    number = max(next(iter(known.values()), first.rows), 1)
    return Result(TrunkModel(trunk), number, parts=(settings.trunk[-1],) * len(session.roster))


def _planned(session: Session, task: Task) -> BeginVertiGAN:
    """Divide the budget over all parties, count, and find the noise that fits."""
    from siloweave.models.vertigan import critic_size, heads_of

    synth: Any = task.setup.synth
    parts, (first, *others) = parts_of(task.setup), session.roster
    plan = VertiGANPlan.of(synth, parts, task.setup.budget)
    task.progress("counting", 0.0)
    replies = session.ask(CountOwnColumns(), [first])
    rows = rows_sent(first, (*replies[0].paid_rows, *replies[0].known_rows))
    if others:
        replies = [*replies, *session.ask(CountOwnColumns(), others)]
    task.progress("finding the noise that fits the budget", 0.0)
    settings, dimension = part_of(VertiGANSettings, synth), 0
    for name, reply in zip(session.roster, replies, strict=True):
        encoder = Encoder(parts[name], synth.finest_bins)
        cells = ResolutionLevels(encoder).cells
        counts = CheckedReply(name).array("counts", reply.counts.value, WHOLE, (cells,))
        found = NoisyHistogram(encoder, counts.astype(np.int64), plan.counts_sigma, rows, task.seed)
        heads = heads_of(found.features("modes").blocks)
        dimension = max(dimension, critic_size(settings, heads))
    return plan.begin(task.seed, rows, dimension)


# What a fit draws with


@dataclass(frozen=True)
class TrunkModel(NetworkModel):
    """The server's `Trunk` as a generator of vectors: the same hidden rows for every party."""

    takes: ClassVar[frozenset[str]] = frozenset()

    def shares(self, column: str) -> tuple[float, ...] | None:
        """None: the server knows no column."""
        return None

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw hidden rows, once for each party side by side."""
        return np.tile(self.net.sample(n, key=jax_key(key)), (1, self.net.parties))

    @classmethod
    def load(cls, path: Path) -> TrunkModel:
        """Read what `save` wrote."""
        from siloweave.models.vertigan import Trunk

        return cls(Trunk.load(path))


def load_head(path: Path) -> Head:
    """Read a party's head, which makes its columns of hidden rows."""
    from siloweave.models.vertigan import Head

    return Head.load(path)
