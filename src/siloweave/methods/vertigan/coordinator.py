"""VertiGAN: one generator whose trunk is the server's, with a head and a critic at every party.

Jiang, Zhang, Karakus & Unsal 2023, "Distributed GAN-Based Privacy-Preserving Publication of
Vertically-Partitioned Data", PVLDB 16(11); the setting as VertiMRF (Zhao et al., KDD 2024) runs it
for comparison. In every round the server sends hidden rows; each party takes several private
steps of its critic on its own real rows, one step of its head against the critic, and answers with
the slope of its loss at the hidden rows, which the trunk follows. Heads never leave; in the end
each party makes its own synthetic columns of the server's hidden rows.

**Guarantee** (dp): rows, add/remove or replace-one as the budget says, towards the server and
everyone who sees synthetic rows; towards the other parties under replace-one only, since each holds
the same people, so that for it no row can come or go, only change: read so, an add/remove budget of
1 is 1.6 with two parties and 2.0 with four, of 14 columns and 40,000 rows. Counts and sums of
clipped gradients are exact integers with exact discrete noise (privacy/exact_sums.py,
privacy/shared_steps.py); a party computes their sensitivity itself. One person's row lies at every
party, so what all parties release about it composes: the number of rows, which is common to all and
asked of the first party alone (public under replace-one); every party's column counts, told once a
run; and all critic steps of all parties, with one noise, the least for which all ledgers read
together keep to the budget; they are read at one Renyi order (privacy/orders.py). A party's share
is what its own ledger holds; before it trains it reads what all are going to pay together, and
refuses if that is beyond its limit. Head, slopes and synthetic columns are computed from the
private critic (post-processing). Noise, batches and what a row's loss draws come from the party's
own entropy, fresh in every round. Once a round is paid for nothing refuses it: networks that
diverged answer with slopes that are not finite, which the server refuses. Assumed public: schema,
bounds and bins, settings, roster,
and that rows are aligned. The server sees every slope, each of them paid for. With
``private=False`` or without a bound: none, and every ledger says so.

* The gradient penalty is of one real row and one generated row. The published replica adds the
  penalty's mean over the batch to each row's loss, so that one row moves every clipped gradient and
  the sum by up to twice the batch times the clip; nothing of its noise covers that.
* Heads start from the paid frequencies (``informed``), Adam takes the place of RMSprop.
* Rows are aligned, and yet no step uses it: a critic sees its own party's columns alone. That
  columns of two parties go together can only come of the trunk, and mostly it is chance.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from siloweave.federation.expected import MOST_ROWS, CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.methods.silofuse.coordinator import check_same_rows
from siloweave.methods.vertigan.messages import (
    BeginVertiGAN,
    CountOwnColumns,
    TrainCritics,
    VertiGANPlan,
    counts_in,
    rows_in,
)
from siloweave.methods.vertigan.party import (
    _told,
    priced,
)
from siloweave.protocols.columns import ColumnsTask
from siloweave.protocols.histograms import Histogram
from siloweave.protocols.networks import jax_key
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in
from siloweave.tables.levels import ResolutionLevels

if TYPE_CHECKING:
    from siloweave.models.settings import VertiGANSettings
    from siloweave.models.vertigan import Trunk


def vertigan(
    parties: Session,
    task: ColumnsTask,
    settings: VertiGANSettings,
    *,
    clip: float,
    counts_share: float,
    bins: int,
) -> tuple[Trunk, int]:
    """Train the trunk over a roster.

    Args:
        parties: Who holds the columns.
        task: Budget, seed and columns; without a bound nothing is noised.
        settings: Of the networks.
        clip: Largest norm of a row's gradient.
        counts_share: Share of the budget's zCDP for the counts of columns.
        bins: Equal-width bins of a column of numbers that are counted.

    Returns:
        The trunk, and how many rows there are.

    Raises:
        BudgetError: The budget is too small for these settings; nothing is released.
    """
    from siloweave.models.vertigan import Trunk, follow, hidden_rows, shared_start

    first = BeginVertiGAN(msgspec.json.encode(asdict(settings)), task.seed)
    if task.budget.private:
        first = _planned(
            parties, task, settings, msgspec.structs.replace(first, clip=clip), (counts_share, bins)
        )
    known: dict[str, int] = {}
    for name, reply in zip(parties.roster, parties.ask(first), strict=True):
        for one in CheckedReply(name).items(
            "numbers of rows", reply.rows, count=0 if first.clip else 1
        ):
            known[name] = CheckedReply(name).number("rows", one.value, least=1, most=MOST_ROWS)
    check_same_rows(known)
    shared = shared_start(settings, jax_key(fold_in(task.seed, "trunk")))
    for number in range(settings.rounds):
        key = jax_key(fold_in(task.seed, "round", number))
        hidden = np.asarray(hidden_rows(settings, shared.trunk, key))
        replies = parties.ask(TrainCritics(number, Array.of(hidden, "<f4")))
        told = zip(parties.roster, replies, strict=True)
        slopes = [_told(name, "slope", one.slope.value, settings) for name, one in told]
        shared = follow(settings, shared, np.sum(slopes, axis=0), key)
        task.progress(f"round {number + 1} of {settings.rounds}", (number + 1) / settings.rounds)
    trunk = Trunk(settings, shared.average, len(parties.roster))
    return trunk, max(next(iter(known.values()), first.rows), 1)


def _planned(
    parties: Session,
    task: ColumnsTask,
    settings: VertiGANSettings,
    first: BeginVertiGAN,
    how: tuple[float, int],
) -> BeginVertiGAN:
    """Divide the budget over all parties, count, and find the noise that fits."""
    share, bins = how
    coded = {n: Encoder(task.schema.select(task.columns[n]), bins) for n in parties.roster}
    tables = [ResolutionLevels(encoder).number for encoder in coded.values()]
    steps = len(parties.roster) * settings.steps
    plan = VertiGANPlan.of(task.budget, tables, share=share, steps=steps, batch=settings.batch)
    head, *others = parties.roster
    task.progress("counting", 0.0)
    replies = parties.ask(CountOwnColumns(plan.rows_sigma, plan.counts_sigma, bins), [head])
    rows = rows_in(head, replies[0])
    if others:
        asked = CountOwnColumns(None, plan.counts_sigma, bins)
        replies = [*replies, *parties.ask(asked, others)]
    task.progress("finding the noise that fits the budget", 0.0)
    told = zip(parties.roster, replies, strict=True)
    counts = {name: counts_in(name, reply, coded[name]) for name, reply in told}
    sigma, seed = plan.counts_sigma, first.seed
    looks = [Histogram(coded[n], counts[n], sigma, rows, seed) for n in parties.roster]
    dimension = max(_critic_size(settings, look.features("modes")) for look in looks)
    noise = plan.noise(rows, dimension)
    made = msgspec.structs.replace(
        first,
        rows=rows,
        rate=plan.rate(rows),
        levels=noise.levels,
        share_sigma=noise.share_sigma,
        dimension=dimension,
        order=plan.order,
    )
    paid = priced(made, task.budget.relation, settings.steps)
    prices = zip(parties.roster, plan.looks, strict=True)
    return msgspec.structs.replace(made, prices={n: (*events, paid) for n, events in prices})


def _critic_size(settings: VertiGANSettings, features: Features) -> int:
    """Numbers of a critic of a party's rows."""
    from siloweave.models.vertigan import critic_size, heads_of

    return critic_size(settings, heads_of(features.blocks))
