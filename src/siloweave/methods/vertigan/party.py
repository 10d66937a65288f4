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

How VertiGAN begins: a budget divided, columns counted, and what a party checks before it trains.

Jiang, Zhang, Karakus & Unsal 2023, see vertigan.py; how the budget is divided is ours. All parties
hold the same people, so what they release adds up, and the number of rows is common to all.

**Guarantee** (dp): of `counted`. Rows, add/remove or replace-one as the party's budget says,
towards everyone. Paid before it is drawn: the number of rows where it is asked (discrete Gaussian;
public under replace-one), and the counts of all the party's columns at once (discrete Gaussian; a
row is in at most one cell of each table of `ResolutionLevels`, so the joint L2 sensitivity is sqrt(tables),
times sqrt(2) under replace-one). Assumed public: schema and bins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import UNSET

from siloweave.algorithms.generated import Matrix
from siloweave.core.run import settings_of
from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation.expected import MOST_ROWS, CheckedReply
from siloweave.federation.messages import Array, Public, Released
from siloweave.federation.site import Handlers, Site
from siloweave.methods.dp_sgd.party import MOST_NUMBERS, json_in, refuse_unpayable
from siloweave.methods.vertigan.messages import (
    BeginVertiGAN,
    Counted,
    CountOwnColumns,
    Moved,
    TrainCritics,
    VertiGANPlan,
    VertiGANReady,
    _counts_event,
    _rows_events,
)
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Relation
from siloweave.privacy.events import Event, NonPrivate, SampledSharedGaussian
from siloweave.privacy.shared_steps import moved, quantised
from siloweave.protocols.columns import ColumnsPart, keep_home
from siloweave.protocols.histograms import Histogram
from siloweave.protocols.networks import jax_key
from siloweave.protocols.secure_sums import relation_of
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.keys import fold_in
from siloweave.tables.levels import ResolutionLevels
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.gan_networks import Heads
    from siloweave.models.settings import VertiGANSettings
    from siloweave.models.vertigan import Own


_BEGIN, _COUNTS, _ASKED = "begin", "counts", "counted as"  # what a party remembers


_KEY, _ENTRY = "key", "entry"

_FINITE = "finite; where training diverged, lower critic_rate and generator_rate"


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
    first: Own


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
        seen = Histogram(encoder, counts, asked.counts_sigma, begin.rows, begin.seed)
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


def _before(desk: _Desk, site: Site[ColumnsPart], number: int) -> Own:
    """The networks before a round; the last two are kept, so that a round can be done again."""
    from siloweave.models.rounds import unpacked

    if number == 0 and site.recall("round/1") is None:
        return desk.first
    kept = site.recall(f"round/{(number - 1) % 2}")
    own: Own
    own, done = (desk.first, -1) if kept is None else unpacked(kept, (desk.first, np.array(0)))
    if int(done) != number - 1 or number >= desk.settings.rounds:
        raise WireError(
            f"party {site.name!r}: round {number + 1} of {desk.settings.rounds} was asked for, "
            f"and what it has is that of round {int(done) + 1}"
        )
    return own


def _played(desk: _Desk, site: Site[ColumnsPart], number: int, own: Own, hidden: Matrix) -> Array:
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


def _privately(desk: _Desk, site: Site[ColumnsPart], own: Own, hidden: Any) -> tuple[Own, Any]:
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


HANDLERS: Handlers = {CountOwnColumns: look, BeginVertiGAN: begin, TrainCritics: round_}

"""A party's side: which function answers which request."""

_ROWS_SHARE = 0.01

_LEAST_SIGMA = 0.5

_MOST_BINS = 2**20


def counted(request: CountOwnColumns, site: Site[ColumnsPart]) -> Counted:
    """Pay for the number of rows, where it is asked, then for the counts of all columns at once."""
    entropy, sigma, relation = site.entropy, request.rows_sigma, relation_of(site)
    _check(request, site)
    table, encoder = site.rows.table, Encoder(site.rows.schema, request.bins)
    n, levels, codes = table.num_rows, ResolutionLevels(encoder), encoder.encode(table)

    def number() -> int:
        assert sigma is not None
        exact = np.array([n], dtype=np.int64)
        return int(mechanisms.add_gaussian(exact, sigma, entropy=entropy)[0])

    def counts() -> Array:
        exact = levels.count(codes)
        noisy = mechanisms.add_gaussian(exact, request.counts_sigma, entropy=entropy)
        return Array.of(noisy, "<i8")

    priced = [] if sigma is None else _rows_events(relation, sigma)
    paid = tuple(site.release(event, "number of rows", number) for event in priced)
    known = () if paid or sigma is None else (Public(n, "neighbours have the same number of rows"),)
    event = _counts_event(relation, levels.number, request.counts_sigma)
    what = f"counts of {len(codes.columns)} columns in {levels.number} tables"
    return Counted(paid, known, site.release(event, what, counts))


def _check(request: CountOwnColumns, site: Site[ColumnsPart]) -> None:
    """Refuse noise that cannot be drawn, and bins beyond all use, before anything is paid."""
    sigmas = [s for s in (request.rows_sigma, request.counts_sigma) if s is not None]
    if not all(0.1 <= sigma <= 2**40 for sigma in sigmas) or not 1 <= request.bins <= _MOST_BINS:
        raise WireError(
            f"party {site.name!r}: rows_sigma={request.rows_sigma}, "
            f"counts_sigma={request.counts_sigma} and bins={request.bins} cannot be used; noise "
            f"lies between 0.1 and 2**40, bins between 1 and {_MOST_BINS:,}"
        )
    site.terms.require(site.name, private=True, bins=request.bins)
    first = next(iter(site.terms.roster)) == site.name
    if (plan := own_plan(site)) is not None:
        known = (plan.rows_sigma if first else None, plan.counts_sigma)
        if (request.rows_sigma, request.counts_sigma) != known:
            raise WireError(
                f"party {site.name!r} was asked to count with noise {request.rows_sigma} and "
                f"{request.counts_sigma}; the study's budget leads to {known[0]} and {known[1]}"
            )


def checked(request: BeginVertiGAN, site: Site[ColumnsPart]) -> VertiGANSettings:
    """The settings, if the party can hold and finish what they ask for, and pay for its noise.

    Raises:
        WireError: Whatever is wrong with the request; names the party.
    """
    who = f"party {site.name!r}"
    own = json_in(request.settings, who)
    if not isinstance(own, dict):
        raise WireError(f"{who} was sent settings that are not a mapping")
    site.terms.require(site.name, private=bool(request.clip), **own)
    if request.clip:
        site.terms.require(site.name, clip=request.clip)
    try:
        settings = settings_in(request.settings)
    except (InputError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise WireError(f"{who} cannot train with these settings: {error}") from error
    layers = (settings.noise, *settings.trunk, *settings.head, *settings.critic)
    most = max(layers) ** 2
    if max(most, settings.made * max(layers), settings.steps) > MOST_NUMBERS:
        raise WireError(f"{who}: networks, hidden rows or steps are more than it takes")
    if not request.clip:
        return settings
    refuse_unpayable(
        who, clip=request.clip, levels=request.levels, rate=request.rate,
        share_sigma=request.share_sigma,
    )  # fmt: skip
    if not (1 <= request.dimension <= MOST_NUMBERS and 1 <= request.rows <= MOST_ROWS):
        raise WireError(f"{who}: dimension={request.dimension} or rows={request.rows} cannot be")
    return settings


def own_plan(site: Site[ColumnsPart]) -> VertiGANPlan | None:
    """The plan that the study's public facts lead to; None where the party has no bound.

    Which party holds which columns, the settings and the budget are all that it follows from, so a
    party believes no price that it is sent.
    """
    limit, facts = site.ledger.limit, site.terms.facts
    if limit is None or not limit.private:
        return None
    from siloweave.models.settings import VertiGANSettings

    settings = VertiGANSettings(**{f.name: facts[f.name] for f in fields(VertiGANSettings)})
    parts: Mapping[str, Schema] = facts["parts"]
    tables = [
        ResolutionLevels(Encoder(parts[name], facts["bins"])).number for name in site.terms.roster
    ]
    steps, share = len(tables) * settings.steps, facts["counts_share"]
    return VertiGANPlan.of(limit, tables, share=share, steps=steps, batch=settings.batch)


def check_prices(
    request: BeginVertiGAN, site: Site[ColumnsPart], settings: VertiGANSettings
) -> None:
    """Refuse to train where all parties together would go beyond this party's limit."""
    run, limit, count = site.context.rpartition("/")[0], site.ledger.limit, settings.steps
    if (plan := own_plan(site)) is not None:
        step = steps_event(request, site, count)
        known = {n: (*own, step) for n, own in zip(site.terms.roster, plan.looks, strict=True)}
        if request.prices != known or request.order != plan.order:
            raise WireError(
                f"party {site.name!r}: the prices that it is sent do not follow from the study"
            )
    mine = (
        *(e.event for e in site.ledger.entries if e.run == run),
        steps_event(request, site, count),
    )
    if mine != tuple(request.prices.get(site.name, ())):
        raise WireError(f"party {site.name!r}: what it is said to pay is not what it pays")
    if limit is None:
        return
    total = epsilon([e for events in request.prices.values() for e in events], limit.delta)
    if total > limit.epsilon:
        raise BudgetError(
            f"party {site.name!r}: all parties together would release epsilon = {total} at delta "
            f"= {limit.delta} about a row, more than the limit of {limit.epsilon}. Nothing was "
            "trained. Plan fewer steps or more noise."
        )


def steps_event(request: BeginVertiGAN, site: Site[ColumnsPart], count: int) -> Event:
    """So many critic steps; raises WireError where they are no event."""
    try:
        return priced(request, relation_of(site), count)
    except InputError as error:
        raise WireError(f"party {site.name!r}: {error}") from error


def priced(request: BeginVertiGAN, relation: Relation, count: int) -> Event:
    """What so many critic steps cost; raises InputError where there is no such event."""
    return SampledSharedGaussian(
        share_sigma=request.share_sigma,
        shares=1,
        tolerated=0,
        sensitivity=moved(request.levels, request.dimension),
        dimension=request.dimension,
        sampling_rate=request.rate,
        replace_one=relation is Relation.REPLACE_ONE,
        count=count,
        order=UNSET if request.order is None else request.order,
    )


def settings_in(data: bytes) -> VertiGANSettings:
    """Settings as they travel; raises InputError where they are none."""
    from siloweave.models.settings import VertiGANSettings

    return settings_of(VertiGANSettings, msgspec.json.decode(data))
