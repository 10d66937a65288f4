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

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from siloweave.algorithms.columns_split import ColumnsPart, ColumnsTask, keep_home
from siloweave.algorithms.generated import Matrix
from siloweave.algorithms.networks import jax_key
from siloweave.algorithms.private_counts import Look
from siloweave.algorithms.sent_latents import check_same_rows
from siloweave.algorithms.vertigan_plan import (
    BeginVertiGAN,
    Counted,
    CountOwnColumns,
    VertiGANPlan,
    VertiGANReady,
    check_prices,
    checked,
    counted,
    counts_in,
    priced,
    rows_in,
    settings_in,
    steps_event,
)
from siloweave.errors import InputError, WireError
from siloweave.federation.expected import MOST_ROWS, CheckedReply
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy import mechanisms
from siloweave.privacy.events import NonPrivate
from siloweave.privacy.shared_steps import quantised
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in
from siloweave.tables.levels import ResolutionLevels

if TYPE_CHECKING:
    from siloweave.models.gan_networks import GANState, Heads
    from siloweave.models.settings import VertiGANSettings
    from siloweave.models.vertigan import Trunk

__all__ = ["PARTY", "vertigan"]

_BEGIN, _COUNTS, _ASKED = "begin", "counts", "counted as"  # what a party remembers
_KEY, _ENTRY = "key", "entry"
_FINITE = "finite; where training diverged, lower critic_rate and generator_rate"


# Messages


class Moved(Reply, frozen=True):
    """How the loss of the party's head changes with the hidden rows."""

    slope: Released[Array]


class TrainCritics(Request[Moved], frozen=True, tag="vertigan/train_critics"):
    """Train on these hidden rows."""

    number: int
    hidden: Array


# Party


def look(request: CountOwnColumns, site: Site[ColumnsPart]) -> Counted:
    """Pay for the counts of the party's columns, and of the number of rows where it is asked."""
    site.require_first()
    reply = counted(request, site)
    site.remember(_COUNTS, reply.counts.value.data)
    site.remember(_ASKED, msgspec.msgpack.encode(request))
    return reply


@dataclass(frozen=True)
class _Desk:
    """What a party works with; it can be made again from what is remembered.

    Attributes:
        begin: What was asked.
        settings: Of the networks.
        features: Rows to vectors and back.
        heads: What the columns are.
        rows: (rows, width), real rows in inner order.
        first: The networks before the first round.
    """

    begin: BeginVertiGAN
    settings: VertiGANSettings
    features: Features
    heads: Heads
    rows: Any
    first: GANState


def begin(request: BeginVertiGAN, site: Site[ColumnsPart]) -> VertiGANReady:
    """Check what all parties are going to pay together, and remember what was asked."""
    rows: tuple[Released[int], ...] = ()
    settings = checked(request, site)
    if request.clip:
        check_prices(request, site, settings)
        site.remember(_KEY, site.entropy.bytes(8))
    else:
        why = NonPrivate("VertiGAN's critic is trained without noise")
        rows = (site.release(why, "training without noise", lambda: site.rows.table.num_rows),)
        site.remember(_ENTRY, rows[0].entry.encode())
        site.remember(_KEY, b"")
    site.remember(_BEGIN, msgspec.msgpack.encode(request))
    return VertiGANReady(rows, Public(True, "says nothing"))


def _desk(site: Site[ColumnsPart]) -> _Desk:
    """What `begin` was asked, ready to work with."""
    asked, key = site.recall(_BEGIN), site.recall(_KEY)
    if asked is None or key is None:
        raise WireError(f"party {site.name!r}: a round was asked for before the beginning")
    if asked not in site.memo:
        site.memo[asked] = _laid_out(site, msgspec.msgpack.decode(asked, type=BeginVertiGAN), key)
    desk: _Desk = site.memo[asked]
    return desk


def _laid_out(site: Site[ColumnsPart], begin: BeginVertiGAN, kept: bytes) -> _Desk:
    import jax.numpy as jnp

    from siloweave.models.vertigan import heads_of, own_start
    from siloweave.privacy.gradients import flat_size

    part, settings = site.rows, settings_in(begin.settings)
    own = fold_in(begin.seed, "party", site.name)
    if begin.clip:
        asked = msgspec.msgpack.decode(site.recall(_ASKED) or b"", type=CountOwnColumns)
        counts = np.frombuffer(site.recall(_COUNTS) or b"", "<i8")
        encoder = Encoder(part.schema, asked.bins)
        seen = Look(encoder, counts, asked.counts_sigma, begin.rows, begin.seed)
        features = seen.features("modes")
        shares = seen.shares(features)
        X = features.encode(part.table, key=int.from_bytes(kept, "little"))
    else:
        features = Features.fit(part.table, part.schema, numeric="modes", key=fold_in(own, "fit"))
        X = features.encode(part.table, key=fold_in(own, "encode"))
        choices = [block for block in features.blocks if block.kind == "categorical"]
        shares = {b.start: X[:, b.start : b.stop].mean(0).tolist() for b in choices}
    heads = heads_of(features.blocks)
    first = own_start(settings, heads, shares, jax_key(fold_in(own, "weights")))
    if begin.clip and flat_size(first.critic) > begin.dimension:
        raise WireError(
            f"party {site.name!r}: its critic has {flat_size(first.critic):,} numbers, and "
            f"{begin.dimension:,} would be paid for"
        )
    return _Desk(begin, settings, features, heads, jnp.asarray(X[:, heads.order]), first)


def round_(request: TrainCritics, site: Site[ColumnsPart]) -> Moved:
    """Pay for the critic's steps, take them, move the head, and answer."""
    desk, number = _desk(site), request.number
    own = _before(desk, site, number)
    hidden = _told("the coordinator", "hidden", request.hidden, desk.settings)
    draw = partial(_played, desk, site, number, own, hidden)
    if not desk.begin.clip:
        return Moved(site.release_under((site.recall(_ENTRY) or b"").decode(), draw))
    event = steps_event(desk.begin, site, desk.settings.critic_steps)
    what = f"round {number + 1} of {desk.settings.rounds}: how hidden rows should move"
    return Moved(site.release(event, what, draw))


def _before(desk: _Desk, site: Site[ColumnsPart], number: int) -> GANState:
    """The networks before a round; the last two are kept, so that a round can be done again."""
    from siloweave.models.rounds import unpacked

    if number == 0 and site.recall("round/1") is None:
        return desk.first
    kept = site.recall(f"round/{(number - 1) % 2}")
    own: GANState
    own, done = (desk.first, -1) if kept is None else unpacked(kept, (desk.first, np.array(0)))
    if int(done) != number - 1 or number >= desk.settings.rounds:
        raise WireError(
            f"party {site.name!r}: round {number + 1} of {desk.settings.rounds} was asked for, "
            f"and what it has is that of round {int(done) + 1}"
        )
    return own


def _played(
    desk: _Desk, site: Site[ColumnsPart], number: int, own: GANState, hidden: Matrix
) -> Array:
    """All critic steps, and the head's; where a bound is kept, nothing here raises for a row."""
    import jax.numpy as jnp

    from siloweave.models.rounds import packed
    from siloweave.models.vertigan import Head, play

    shown = jnp.asarray(hidden)
    if desk.begin.clip:
        own, slope = _privately(desk, site, own, shown)
    else:
        key = jax_key(fold_in(desk.begin.seed, "party", site.name, "round", number))
        try:
            own, slope = play(desk.settings, desk.heads, own, shown, desk.rows, key=key)
        except InputError as error:
            raise InputError(f"party {site.name!r}, round {number + 1}: {error}") from error
    site.remember(f"round/{number % 2}", packed((own, np.array(number))))
    if number == desk.settings.rounds - 1:
        head = Head(desk.settings, desk.heads, own.average)
        keep_home(site, desk.features, head.written())
    return Array.of(np.asarray(slope), "<f4")


def _privately(
    desk: _Desk, site: Site[ColumnsPart], own: GANState, hidden: Any
) -> tuple[GANState, Any]:
    """Critic steps along sums of clipped gradients, rounded to integers, with exact noise."""
    import jax

    from siloweave.models import vertigan as maths
    from siloweave.models.nets import Dense
    from siloweave.privacy import gradients

    asked, settings, heads = desk.begin, desk.settings, desk.heads
    unit = asked.clip / asked.levels / (asked.rate * asked.rows)
    key = jax.random.key(int.from_bytes(site.entropy.bytes(4), "little"))
    for step in range(settings.critic_steps):
        entropy = site.entropy.at(f"critic step {step}")
        loss = maths.beside(settings, heads, own, hidden, jax.random.fold_in(key, step))
        picked = gradients.drawn(len(desk.rows), asked.rate, entropy=entropy)
        total = gradients.summed(
            loss, own.critic, desk.rows, picked, clip=asked.clip, layer=Dense, entropy=entropy
        )
        whole = quantised(total, clip=asked.clip, levels=asked.levels, parties=1)
        noisy = mechanisms.add_gaussian(whole, asked.share_sigma, entropy=entropy)
        slope = gradients.unflattened(noisy.astype(np.float64) * unit, own.critic)
        own = maths.judged(settings, own, slope)
    after = jax.random.fold_in(key, settings.critic_steps)
    return maths.answered(settings, heads, own, hidden, after)


def _told(name: str, field: str, array: Array, settings: VertiGANSettings) -> Matrix:
    """Hidden rows or slopes, if they have the shape that the settings say."""
    return CheckedReply(name).reals(
        field, array, (settings.made, settings.trunk[-1]), finite=_FINITE
    )


PARTY: Handlers = {CountOwnColumns: look, BeginVertiGAN: begin, TrainCritics: round_}
"""A party's side: which function answers which request."""


# Coordinator


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
    looks = [Look(coded[n], counts[n], sigma, rows, seed) for n in parties.roster]
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
