"""The server's side of VertiGAN: count once, then move the trunk along the parties' slopes.

Jiang, Zhang, Zhou & Grossklags 2023, PoPETs 2023(2), section 4.

**Guarantee**: see method.py. This side reads only what was sent to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from siloweave.core.method import Result, Task
from siloweave.core.settings import part_of
from siloweave.federation.expected import MOST_ROWS, WHOLE, CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.methods.vertigan import messages
from siloweave.methods.vertigan.settings import VertiGANFitSettings
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
    """Train the trunk with the parties of a roster.

    Raises:
        BudgetError: The budget is too small for these settings; nothing is released.
        WireError: Naming the party, where it sent what does not fit.
    """
    from siloweave.models.vertigan import Trunk, follow, hidden_rows, shared_start

    synth = task.setup.settings_as(VertiGANFitSettings)
    settings = part_of(VertiGANSettings, synth)
    begin = messages.BeginVertiGAN(task.seed)
    if synth.private:
        begin = _planned(session, task)

    # Without noise every party says how many rows it has; with noise that is in the plan.
    rows_count = 0 if synth.private else 1
    rows_of_party: dict[str, int] = {}
    for name, ready in zip(session.roster, session.ask(begin), strict=True):
        checked = CheckedReply(name)
        for rows in checked.items("numbers of rows", ready.rows, count=rows_count):
            n = checked.number("rows", rows.value, least=1, most=MOST_ROWS)
            rows_of_party[name] = n
    check_same_rows(rows_of_party)

    shared = shared_start(settings, jax_key(fold_in(task.seed, "trunk")))
    for number in range(settings.rounds):
        key = jax_key(fold_in(task.seed, "round", number))

        # The trunk's rows go to all parties: it alone ties their columns together.
        hidden = np.asarray(hidden_rows(settings, shared.trunk, key))
        replies = session.ask(messages.TrainCritics(number, Array.of(hidden, "<f4")))

        # The trunk receives the slopes of all heads.
        slopes = []
        for name, reply in zip(session.roster, replies, strict=True):
            slopes.append(
                messages.like_hidden(name, "slope", reply.slope.value, settings)
            )
        shared = follow(settings, shared, np.sum(slopes, axis=0), key)
        task.progress(
            f"round {number + 1} of {settings.rounds}", (number + 1) / settings.rounds
        )

    parties = len(session.roster)
    trunk = Trunk(settings, shared.average, parties)
    # Where parties did not say it, it is the plan's, which may be noisy.
    all_rows = max(next(iter(rows_of_party.values()), begin.rows), 1)
    return Result(TrunkModel(trunk), all_rows, parts=(settings.trunk[-1],) * parties)


def _planned(session: Session, task: Task) -> messages.BeginVertiGAN:
    """Divide the budget over all parties, count, and find noise that fits the rest."""
    from siloweave.models.vertigan import critic_size, heads_of

    synth = task.setup.settings_as(VertiGANFitSettings)
    parts = parts_of(task.setup)
    first, *others = session.roster
    plan = messages.VertiGANPlan.of(synth, parts, task.setup.budget)

    # The first party's number of rows must be right before the others pay for anything.
    task.progress("counting", 0.0)
    replies = session.ask(messages.CountOwnColumns(), [first])
    rows = rows_sent(first, (*replies[0].paid_rows, *replies[0].known_rows))
    if others:
        replies = [*replies, *session.ask(messages.CountOwnColumns(), others)]

    # One plan for all parties: noise for the largest critic.
    task.progress("finding the noise that fits the budget", 0.0)
    settings = part_of(VertiGANSettings, synth)
    dimension = 0
    for name, reply in zip(session.roster, replies, strict=True):
        encoder = Encoder(parts[name], synth.finest_bins)
        cells = ResolutionLevels(encoder).cells
        counts = CheckedReply(name).array("counts", reply.counts.value, WHOLE, (cells,))
        histogram = NoisyHistogram(
            encoder, counts.astype(np.int64), plan.counts_sigma, rows, task.seed
        )
        heads = heads_of(histogram.features("modes").blocks)
        dimension = max(dimension, critic_size(settings, heads))
    return plan.begin(task.seed, rows, dimension)


# What a fit draws with


@dataclass(frozen=True)
class TrunkModel(NetworkModel):
    """The server's `Trunk` as a generator of vectors, the same hidden rows for every party."""

    takes: ClassVar[frozenset[str]] = frozenset()

    def shares(self, column: str) -> tuple[float, ...] | None:
        """Return None: the server knows no column."""
        return None

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw hidden rows, repeated side by side for each party."""
        hidden = self.net.sample(n, key=jax_key(key))
        return np.tile(hidden, (1, self.net.parties))

    @classmethod
    def load(cls, path: Path) -> TrunkModel:
        """Read a model from the folder into which `save` wrote it."""
        from siloweave.models.vertigan import Trunk

        return cls(Trunk.load(path))


def load_head(path: Path) -> Head:
    """Read a party's head, which turns hidden rows into the party's columns."""
    from siloweave.models.vertigan import Head

    return Head.load(path)
