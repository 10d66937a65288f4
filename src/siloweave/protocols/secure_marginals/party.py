"""A party's side: it shares its rows under masks, pays for tables, and counts.

After Beaver 1997 and Gilboa & Ishai 2014; see `secure_marginals`.

**Guarantee**: that of `secure_marginals`. All tables of a request are checked together before any
is paid for, and each is paid for before its noise is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from operator import gt
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.core.party import OwnerData
from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation import masking
from siloweave.federation.expected import MOST_ROWS
from siloweave.federation.masking import Words
from siloweave.federation.messages import MAX_BYTES, Array, Public, Released
from siloweave.federation.site import Handlers, Site
from siloweave.models.junction_tree import cells_in
from siloweave.privacy import events, mechanisms
from siloweave.privacy.coins import Coins
from siloweave.privacy.mechanisms import Entropy
from siloweave.protocols import histograms, workloads
from siloweave.protocols import secure_products as products
from siloweave.protocols.secure_marginals.messages import (
    Begin,
    Begun,
    Delivery,
    MeasureTables,
    NoisyTable,
    SharedRows,
    ShareRows,
    Tables,
)
from siloweave.protocols.secure_marginals.plan import (
    MOST_CELLS,
    MOST_WORDS,
    Group,
    SecurePlan,
    Slab,
    Slabs,
    in_run,
    owned_codes,
    slabs_of,
)
from siloweave.protocols.secure_sums import checked_cliques
from siloweave.protocols.two_rounds import TwoRoundSettings
from siloweave.statistics.marginals import marginal
from siloweave.tables.codes import Clique, Codes, Domain, ResolutionLevels

# Relative rounding error that sums of prices may have.
_SLACK = 1e-9
# Bytes dealt to a party in one message, at most.
_MOST_DEALT = MAX_BYTES


class _Agreed(msgspec.Struct, frozen=True):
    """What a party was sent in its first *share*, and holds the coordinator to."""

    keys: dict[str, bytes]
    dealer: bytes
    rows: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class _Party:
    """A party's side, made again from what is remembered.

    Attributes:
        plan: The study's.
        site: Where this party's rows, ledger and memory are.
        agreed: What it was sent first.
        codes: Its own columns.
        domain: All columns.
    """

    plan: SecurePlan
    site: Site[OwnerData]
    agreed: _Agreed
    codes: Codes
    domain: Domain

    @property
    def real(self) -> int:
        """Rows that are counted."""
        return min(self.site.rows.table.num_rows, self.agreed.rows)

    @cached_property
    def dealer(self) -> bytes:
        """The secret shared with the coordinator."""
        return self.site.agree_with_dealer(self.agreed.dealer)

    def secret(self, party: str) -> bytes:
        """Return the secret shared with another party."""
        key = self.agreed.keys[party]
        secrets = self.site.agree({party: key})
        return secrets[party]

    @property
    def step(self) -> int:
        """The step of the run that is answered."""
        _, _, step = self.site.context.rpartition("/")
        return int(step)

    def before(self, party: str) -> bool:
        """Return whether this party comes before another one, so is the first of the pair."""
        names = list(self.plan.parts)
        return names.index(self.site.name) < names.index(party)

    def sizes(self, party: str) -> tuple[int, ...]:
        """Return how many codes each column of a party has."""
        return self.domain.shape(self.plan.parts[party].names)

    def rows(self, slab: tuple[int, int]) -> Codes:
        """Return this party's codes in a slab; rows that are missing have the code 0."""
        start, stop = slab
        columns: list[npt.NDArray[Any]] = []
        for codes in self.codes.columns:
            real = codes[start : min(stop, self.real)]
            missing = stop - start - len(real)
            columns.append(np.pad(real, (0, missing)))
        return Codes(self.codes.domain, tuple(columns))

    def one_hot(self, slab: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """Return X of a slab: this party's codes as one-hot rows."""
        codes = self.rows(slab)
        return products.one_hot(codes.columns, codes.domain.sizes)

    def mask(self, step: int, slab: tuple[int, int]) -> Words:
        """Return U of a step: the mask of this party's one-hot rows."""
        start, stop = slab
        context = in_run(self.site.run, step)
        width = sum(self.codes.domain.sizes)
        return products.masks(self.dealer, context, stop - start, width)

    def shifted(self, step: int, slab: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return m = x + b of a step: this party's shifted codes, (rows, columns)."""
        start, stop = slab
        sizes = self.codes.domain.sizes
        context = in_run(self.site.run, step)
        b = products.shifts(self.dealer, context, stop - start, sizes)
        codes = self.rows(slab)
        x = np.stack(codes.columns, axis=1)
        m: npt.NDArray[np.int64] = (x + b) % np.array(sizes)
        return m

    def prove(self, words: Array, planned: Sequence[Slab], now: int) -> int:
        """Return the proof of the rows that are shared now; remember a part of later ones.

        Args:
            words: k of step 7, of the rows whose proof comes with this message.
            planned: All slabs.
            now: Which of them is shared.
        """
        sizes = self.codes.domain.sizes
        start = planned[now - 1].proven if now else 0
        stop = planned[now].proven
        shape = (stop - start, sum(sizes))
        if words.dtype != "<u4" or words.shape != shape:
            raise self.refused("was sent words for a proof of other rows")

        # The dealer's words may be of rows in several slabs, each of which has shifts of its own.
        for number, slab in enumerate(planned[now:], now):
            first = max(start, slab.start)
            last = min(stop, slab.stop)
            if first >= last:
                continue
            # Slabs are shared in steps that follow one another.
            step = self.step + number - now
            m = self.shifted(step, slab[:2])
            slab_words: Any = words.numpy()[first - start : last - start]
            slab_m = m[first - slab.start : last - slab.start]
            part = products.proof_sum(slab_words, slab_m, sizes)
            self.site.remember(f"proof/{number}/{now}", str(part).encode())

        total = 0
        for earlier in range(now + 1):
            part_sent = self.site.recall(f"proof/{now}/{earlier}") or b"0"
            total += int(part_sent)
        return total % products.P

    @property
    def slabs(self) -> Slabs:
        """Rows that were asked for, by step."""
        stored = self.site.recall("slabs")
        if stored is None:
            return {}
        return msgspec.msgpack.decode(stored, type=Slabs)

    @property
    def shared(self) -> int:
        """How many rows earlier steps asked for, slab after slab, so that none counts twice."""
        shared = 0
        for step, (_, stop) in self.slabs.items():
            if step != self.step:
                shared = max(shared, stop)
        return shared

    def take(self, deliveries: Mapping[str, Delivery]) -> None:
        """Multiply what others sent, and remember this party's share of each product."""
        others = self.plan.parts.keys() - {self.site.name}
        for sender, delivery in deliveries.items():
            step = delivery.step
            slab = self.slabs.get(step)
            if slab is None or sender not in others:
                raise self.refused(
                    f"was delivered rows of {sender!r} that nobody asked for"
                )

            context = in_run(self.site.run, step)
            secret = self.secret(sender)
            words = self.site.open_relayed(
                sender, delivery.data, delivery.key, secret, context
            )
            masked, shifted = self._checked_rows(sender, delivery, slab, words)

            # Step 3: A (without R) is of the first party of a pair, and B (without Q) of the other.
            if self.before(sender):
                part = products.count_masked(self.one_hot(slab), masked)
            else:
                mask = self.mask(step, slab)
                part = products.product(masked, mask)
            self.site.remember(f"part/{step}/{sender}", part.tobytes())
            self.site.remember(f"shifted/{step}/{sender}", shifted.tobytes())

    def _checked_rows(
        self, sender: str, delivery: Delivery, slab: tuple[int, int], words: Words
    ) -> tuple[Words, Words]:
        """Return the masked rows and shifted codes that a party sent, once they are proven.

        Raises:
            WireError: They are of another number of rows, or no codes.
        """
        start, stop = slab
        rows = stop - start
        sizes = self.sizes(sender)
        width = sum(sizes) + len(sizes)
        if words.size != rows * width + 1:
            raise self.refused(f"was sent another number of rows by {sender!r}")

        # Step 7: without its proof, a row could be counted many times, at a price of one.
        by_row = words[:-1].reshape(rows, width)
        masked, shifted = np.split(by_row, [sum(sizes)], axis=1)
        m = shifted.astype(np.int64)
        proof = int(words[-1])
        seed = delivery.seed
        is_in_bounds = (m < np.array(sizes)).all() and (masked < products.P).all()
        if not is_in_bounds or not products.are_codes(seed, masked, m, sizes, proof):
            raise self.refused(f"was sent rows by {sender!r} that are no codes")
        return masked, shifted

    def share_of(self, partner: str) -> Words:
        """Return this party's share of the products of all its columns with another's."""
        is_first = self.before(partner)
        pair = (partner, self.site.name)
        if is_first:
            pair = (self.site.name, partner)
        shape = tuple(sum(self.sizes(name)) for name in pair)

        # Step 3: A = X^T W + R at the first party, and B = M^T V + Q at the second.
        if is_first:
            context = in_run(self.site.run, "R", *pair)
            total = products.masks(self.dealer, context, *shape)
        else:
            total = self._words(f"correction/{partner}", shape)
        for step in self.slabs:
            part = self._words(f"part/{step}/{partner}", shape)
            total = products.added(total, part)
        return total

    def shifted_codes(self, clique: Clique) -> npt.NDArray[np.int64]:
        """Return the shifted codes of some columns, of all rows, (rows, columns)."""
        slabs: list[npt.NDArray[np.int64]] = []
        for step, slab in self.slabs.items():
            start, stop = slab
            rows = stop - start
            by_party = {self.site.name: self.shifted(step, slab)}
            for name in self.plan.holders(clique):
                if name != self.site.name:
                    shape = (rows, len(self.sizes(name)))
                    words = self._words(f"shifted/{step}/{name}", shape)
                    by_party[name] = words.astype(np.int64)

            columns: list[npt.NDArray[np.int64]] = []
            for column in clique:
                owner = self.plan.owners[column]
                place = self.plan.parts[owner].names.index(column)
                columns.append(by_party[owner][:, place])
            slabs.append(np.stack(columns, axis=1))
        return np.concatenate(slabs)

    def _words(self, name: str, shape: tuple[int, ...]) -> Words:
        """Return words that this party remembers; WireError without so many of them."""
        stored = self.site.recall(name)
        expected_bytes = 4 * int(np.prod(shape))
        if stored is None or len(stored) != expected_bytes:
            raise self.refused("was asked to count before all rows were delivered")
        return np.frombuffer(stored, dtype="<u4").reshape(shape)

    def digest(self, tables: tuple[NoisyTable, ...]) -> str:
        """Return a digest of all that every party is sent alike up to a *measure*."""
        keys = dict(sorted(self.agreed.keys.items()))
        agreed = msgspec.structs.replace(self.agreed, keys=keys)
        alike = [agreed, sorted(self.slabs.items()), tables]
        return sha256(msgspec.msgpack.encode(alike)).hexdigest()

    def refused(self, reason: str) -> WireError:
        """Return the error for a request that does not fit."""
        return WireError(f"party {self.site.name!r} {reason}. Nothing was released")


def _plan_of(synth: TwoRoundSettings, site: Site[OwnerData]) -> SecurePlan:
    """Return how a party's own limit is divided; BudgetError without one."""
    facts = site.terms.facts
    limit = site.ledger.limit
    if limit is None or not limit.private:
        raise BudgetError(
            f"party {site.name!r} has no limit; marginals are paid for out of one"
        )
    return SecurePlan(synth, facts["schema"], facts["parts"], limit)


def begin(synth: TwoRoundSettings, request: Begin, site: Site[OwnerData]) -> Begun:
    """Pay for the bound, if this party is the first and it is private, and for columns to cut."""
    site.require_first()
    plan = _plan_of(synth, site)
    table = site.rows.table

    # The first party alone says how many rows there are.
    paid_bound: tuple[Released[int], ...] = ()
    known_rows: tuple[Public[int], ...] = ()
    bound = plan.bound
    if site.name == plan.first and bound is None:
        why = "neighbours have the same number of rows"
        known_rows = (Public(table.num_rows, why),)
    elif site.name == plan.first and bound is not None:
        draw = partial(_bound_of, table.num_rows, bound, site.entropy)
        label = "an upper bound of the number of rows"
        released = site.release(bound, label, draw)
        paid_bound = (released,)
        site.remember("bound", str(released.value).encode())

    counts: tuple[Released[Array], ...] = ()
    fine = plan.fine_of(site.name)
    if fine is not None:
        levels = ResolutionLevels(fine).number
        event = histograms.counts_event(
            plan.budget.neighbours, levels, plan.counts_sigma
        )
        columns = table.select(list(fine.schema.names))
        noisy_counts = histograms.release_counts(site, fine, columns, event)
        counts = (noisy_counts,)
        site.remember("counts", noisy_counts.value.data)
    return Begun(site.mask_key(), paid_bound, known_rows, counts)


def _bound_of(
    rows: int, bound: events.UpperBound | events.UnitUpperBound, entropy: Entropy
) -> int:
    """Draw an upper bound of the number of rows; it is at least that number, and 1."""
    exact = np.array([rows + bound.margin], dtype=np.int64)
    noisy = mechanisms.add_gaussian(exact, bound.sigma, entropy=entropy)

    # Noise below the margin would leave rows out. The event pays for this maximum: its `escape`.
    return max(rows, int(noisy[0]), 1)


def _party(
    synth: TwoRoundSettings, site: Site[OwnerData], agreed: _Agreed | None = None
) -> _Party:
    """Return this party's side, once it is agreed who takes part and how columns are coded."""
    stored = site.recall("agreed")
    if agreed is not None:
        encoded = msgspec.msgpack.encode(agreed)
        if stored not in (None, encoded):
            raise WireError(
                f"party {site.name!r} was sent other keys, rows or codes before"
            )
        site.remember("agreed", encoded)
        stored = encoded
    if stored is None:
        raise WireError(
            f"party {site.name!r} was asked to count before rows were shared"
        )

    # Rows are encoded once, not at every question.
    if stored not in site.memo:
        decoded = msgspec.msgpack.decode(stored, type=_Agreed)
        site.memo[stored] = _encoded_party(synth, site, decoded)
    party: _Party = site.memo[stored]
    return party


def _encoded_party(
    synth: TwoRoundSettings, site: Site[OwnerData], agreed: _Agreed
) -> _Party:
    """Encode this party's rows, and check what it was sent against the study.

    Raises:
        WireError: The bound, the keys or the numbers of codes cannot be.
    """
    who = f"party {site.name!r}"
    plan = _plan_of(synth, site)

    # Where the number of rows is public, every party knows it; else the first one drew the bound.
    if plan.bound is None:
        expected_rows = max(1, site.rows.table.num_rows)
    else:
        expected_rows = int(site.recall("bound") or agreed.rows)
    if not 1 <= agreed.rows <= MOST_ROWS or agreed.rows != expected_rows:
        raise WireError(
            f"{who} was sent a bound of {agreed.rows:,} rows, which cannot be"
        )
    if set(agreed.keys) != set(plan.parts):
        raise WireError(
            f"{who} was sent keys of {', '.join(agreed.keys)}; the study has others"
        )

    # Its columns are cut by the noisy counts that it sent, as at the coordinator.
    counts = np.frombuffer(site.recall("counts") or b"", "<i8")
    cuts = plan.cuts(site.name, counts, agreed.rows)
    encoder = workloads.first_encoder(plan.parts[site.name], synth)
    codes = replace(encoder, cuts=cuts).encode(site.rows.table)

    # A column may be cut into fewer bins than the study allows, never more.
    sizes = agreed.sizes
    widest = workloads.first_encoder(plan.schema, synth).domain
    has_all_columns = len(sizes) == len(widest.sizes)
    if not has_all_columns or any(map(gt, sizes, widest.sizes)):
        raise WireError(f"{who} was sent more codes than the study's columns can have")
    domain = Domain(widest.names, sizes)
    if domain.shape(codes.domain.names) != codes.domain.sizes:
        raise WireError(f"{who} codes its columns otherwise than the coordinator says")
    return _Party(plan, site, agreed, codes, domain)


def share(
    synth: TwoRoundSettings, request: ShareRows, site: Site[OwnerData]
) -> SharedRows:
    """Mask rows, and encrypt them to the other parties."""
    agreed = _Agreed(request.keys, request.dealer, request.rows, request.sizes)
    party = _party(synth, site, agreed)

    # Slabs follow from the study, so that a row is shared once whatever the coordinator asks.
    step = party.step
    slab = (request.start, request.stop)
    owned = owned_codes(party.plan, party.domain)
    planned = slabs_of(owned, party.plan.shared(request.rows))
    now = len(party.slabs.keys() - {step})
    if now == len(planned) or slab != planned[now][:2]:
        next_rows = "no more"
        if now < len(planned):
            next_slab = planned[now]
            next_rows = f"rows {next_slab.start} to {next_slab.stop} now"
        raise party.refused(
            f"was asked for rows {request.start} to {request.stop} in one message; it answers "
            f"'secure/share' {len(planned)} times for {request.rows:,} rows, and shares {next_rows}"
        )
    party.take(request.deliveries)
    slabs = {**party.slabs, step: slab}
    site.remember("slabs", msgspec.msgpack.encode(slabs))

    # Step 1: M = X - U and m = x + b; step 7: the sum of k(m).
    M = products.taken(party.one_hot(slab), party.mask(step, slab))
    m = party.shifted(step, slab)
    proof = party.prove(request.proof, planned, now)
    rows = np.hstack([M, m.astype(np.uint32)])
    words = np.append(rows.reshape(-1), np.uint32(proof))

    others = [name for name in party.plan.parts if name != site.name]
    secrets = {name: party.secret(name) for name in others}
    context = in_run(site.run, step)
    return SharedRows(site.relay(words, secrets, context))


def measure(
    synth: TwoRoundSettings, request: MeasureTables, site: Site[OwnerData]
) -> Tables:
    """Check what all tables cost together, then pay for this party's, and count."""
    # All tables are checked together before any is paid for.
    party = _party(synth, site)
    tables = request.tables
    cliques = [table.clique for table in tables]
    checked_cliques(cliques, party.domain, site.name)
    _check_size(party, tables)
    _check_price(party, tables)
    if party.shared != party.plan.shared(party.agreed.rows):
        raise party.refused(
            f"was asked to count after {party.shared:,} of its rows were shared"
        )

    party.take(request.deliveries)
    for sender, correction in request.corrections.items():
        site.remember(f"correction/{sender}", correction.data)

    alone = list[Released[Array]]()
    joint = list[Released[Array]]()
    dealt = _Dealt(party, request)
    for group in party.plan.groups(tables, site.name):
        number, names = _listed(group)
        release = group.release(party.site.run, party.step)
        event = party.plan.event(group.kind, len(group.tables), release)
        if group.first == group.second:
            draw = partial(_noisy_counts, party, group)
            counts = site.release(event, f"{number}: {names}", draw)
            alone.append(counts)
            continue

        partners = [name for name in group.openers if name != site.name]
        label = f"{number} with {' and '.join(partners)}: {names}"
        if site.name not in group.openers:
            # Its columns are counted, and two others open the tables.
            site.pay(event, label)
            continue
        words = _closed(party, group, dealt, tables)
        packed = partial(Array.of, words, "<u4")
        joint.append(site.release(event, label, packed))
    return Tables(tuple(alone), tuple(joint))


def _listed(group: Group) -> tuple[str, str]:
    """Return how many tables a group has, and their names, as a ledger shows them."""
    names = ", ".join("×".join(table.clique) for table in group.tables[:8])
    if len(group.tables) > 8:
        names += ", …"
    number = f"{len(group.tables)} marginals"
    if len(group.tables) == 1:
        number = "a marginal"
    return number, names


class _Dealt:
    """Words that the coordinator dealt, taken out in the order of the tables.

    Attributes:
        seeds: Of every root, (rows, codes, 2).
    """

    def __init__(self, party: _Party, request: MeasureTables) -> None:
        self._party = party
        data = {"seeds": request.seeds, "cells": request.cells}
        for name, coins in request.coins.items():
            data[f"coins/{name}"] = coins.data
        self._rest = {kind: memoryview(words) for kind, words in data.items()}
        self.seeds: dict[str, masking.Seeds] = {}

        # Step 6: the first party draws its seeds itself, and the second one is dealt its own.
        plan = party.plan
        name = party.site.name
        first, second = plan.servers
        rows = party.agreed.rows
        cliques = [table.clique for table in request.tables]
        for root, size in plan.roots(cliques, party.domain).items():
            if name == first:
                context = in_run(party.site.run, party.step, root)
                seeds = products.root_seeds(party.dealer, context, rows, size)
                self.seeds[root] = seeds
            elif name == second:
                self.seeds[root] = self._next("seeds", (rows, size, 2), "<u8")

    def coins(self, party: str, cells: int, coins: Coins) -> Words:
        """Return G of the next tables with a party, (cells, coins), below 2^32."""
        return self._next(f"coins/{party}", (cells, coins.number), "<u4")

    def cells(self, rows: int, cells: int, modulus: int) -> products.CellWords:
        """Return C of the next table, (rows, cells)."""
        dtype = "<u4" if modulus == 2**32 else "<u2"
        return self._next("cells", (rows, cells), dtype)

    def _next(self, kind: str, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        """Take words out; WireError where too few are left."""
        rest = self._rest.get(kind, memoryview(b""))
        count = int(np.prod(shape))
        size = count * np.dtype(dtype).itemsize
        if len(rest) < size:
            raise self._party.refused(f"was dealt too few {kind.partition('/')[0]}")
        self._rest[kind] = rest[size:]
        return np.frombuffer(rest, dtype, count).reshape(shape)


def _check_size(party: _Party, tables: Sequence[NoisyTable]) -> None:
    """Refuse tables of more cells than the study implies, or for which a message has no room."""
    plan = party.plan
    domain = party.domain
    cells = 0
    coins = 0
    for table in tables:
        size = domain.size(table.clique)
        cells += size
        coins += size * table.coins.number
    wide, dealt, words = plan.dealt(tables, domain, party.agreed.rows)
    widest = max((domain.size(table.clique) for table in wide), default=0)

    # A study may ask for all its closure, or for as many cells as its model may have.
    closure_cells = sum(map(domain.size, plan.closure))
    most = max(closure_cells, cells_in(plan.synth.max_model_mb))
    fits = cells <= most and words <= MOST_WORDS and widest <= MOST_CELLS
    if not fits or 4 * coins + dealt > _MOST_DEALT:
        raise party.refused(
            f"was asked for {len(tables):,} marginals of {cells:,} cells with {coins:,} coins, "
            "which is more than its study implies, or a message holds"
        )


def _check_price(party: _Party, tables: Sequence[NoisyTable]) -> None:
    """Refuse tables that would cost all parties together more than is left for tables."""
    site = party.site
    plan = party.plan
    prices: dict[str, tuple[int, float]] = {}
    stored = site.recall("prices")
    if stored is not None:
        prices = msgspec.msgpack.decode(stored, type=dict[str, tuple[int, float]])
    try:
        rho = sum(plan.price(table) for table in tables)
    except InputError as error:
        raise party.refused(
            f"was asked for a table with noise that cannot be: {error}"
        ) from error

    # By step, so that a question that is asked again, after a crash, is not counted twice.
    prices[str(party.step)] = (len(tables), rho)
    numbers, rhos = zip(*prices.values(), strict=True)
    number = sum(numbers)
    total = sum(rhos)
    most_rho = plan.rho_tables * (1 + _SLACK)
    if not tables or number > plan.most_tables or total > most_rho:
        raise BudgetError(
            f"party {site.name!r} was asked for {number:,} marginals in all, which cost all "
            f"parties together rho = {total:g}; the study leaves {plan.rho_tables:g} for "
            f"{plan.most_tables:,} at most. Nothing was released"
        )
    site.remember("prices", msgspec.msgpack.encode(prices))


def _noisy_counts(party: _Party, group: Group) -> Array:
    """Return noisy counts of tables over one party's columns, one after the other."""
    columns = tuple(column[: party.real] for column in party.codes.columns)
    codes = Codes(party.codes.domain, columns)
    counts = [marginal(codes, table.clique).reshape(-1) for table in group.tables]
    exact = np.concatenate(counts)
    entropy = party.site.entropy
    noisy = mechanisms.add_gaussian(exact, group.kind.sigma, entropy=entropy)
    return Array.of(noisy, "<i8")


def _closed(
    party: _Party, group: Group, dealt: _Dealt, tables: tuple[NoisyTable, ...]
) -> Words:
    """Return this party's words of tables that two parties open."""
    coins = group.coins
    is_first = group.first == party.site.name
    partner = group.second if is_first else group.first
    # Counts with wider noise would wrap around the modulus.
    if coins.half + party.agreed.rows > MOST_ROWS:
        raise party.refused(
            f"was asked for noise of up to {coins.half:,}, which is too wide"
        )

    # Steps 3 and 6: shares of exact counts.
    release = group.release(party.site.run, party.step)
    modulus = group.modulus(party.agreed.rows)
    share = _shifted if group.shifted else _product
    shares = [share(party, table, partner, dealt, release) for table in group.tables]
    exact = np.concatenate(shares)
    cells = len(exact)

    # Step 4: coins, of z that both parties know, and words that hide r.
    secret = party.secret(partner)
    z = products.coin_bits(secret, release, cells, coins)
    if is_first:
        S = products.coin_masks(party.dealer, release, cells, coins, modulus)
        noise = products.noise_share(coins, z, S, modulus, first=True)
    else:
        G = dealt.coins(partner, cells, coins)
        noise = products.noise_share(coins, z, G, modulus, first=False)

    # Step 5: a pad. With a coordinator that tells two parties different things, none cancels.
    context = in_run(release, party.digest(tables))
    pad = products.pad(secret, context, cells, modulus)
    noisy = products.added(exact, noise, modulus)
    if is_first:
        return products.added(noisy, pad, modulus)
    return products.taken(noisy, pad, modulus)


def _product(
    party: _Party, table: NoisyTable, partner: str, dealt: _Dealt, release: str
) -> Words:
    """Return this party's share of a pair's exact counts, the first party's codes first."""
    places: list[slice] = []
    for name, (column,) in party.plan.halves(table.clique).items():
        index = party.plan.parts[name].names.index(column)
        start = sum(party.sizes(name)[:index])
        stop = start + party.domain.size_of(column)
        places.append(slice(start, stop))
    first_codes, second_codes = places
    share = party.share_of(partner)[first_codes, second_codes]
    return _without_missing(party, share, partner, products.P)


def _shifted(
    party: _Party, table: NoisyTable, partner: str, dealt: _Dealt, release: str
) -> Words:
    """Return this party's share of any marginal's exact counts, as in step 6."""
    clique = party.plan.as_sent(table.clique)
    shape = party.domain.shape(clique)
    rows = party.agreed.rows
    modulus = products.modulus_for(rows, table.coins)
    (root,) = party.plan.roots([table.clique], party.domain)
    place = clique.index(root)

    cells = party.domain.size(clique) // shape[place]
    C = dealt.cells(rows, cells, modulus)
    m = party.shifted_codes(clique)
    info = in_run(release, *clique)
    share = products.count_shifted(m, shape, place, dealt.seeds[root], info, C)
    # Step 6: the second party takes its words away from the first one's.
    if not party.before(partner):
        share = products.taken(0, share, 2**32)
    return _without_missing(party, share, partner, modulus)


def _without_missing(party: _Party, share: Words, partner: str, modulus: int) -> Words:
    """Return a share without the rows that are missing, which have the codes 0."""
    missing = np.zeros(share.size, dtype=np.uint32)
    # One of both parties is enough.
    if party.before(partner):
        missing[0] = party.agreed.rows - party.real
    return products.taken(share.reshape(-1), missing, modulus)


def secure_handlers(synth: TwoRoundSettings) -> Handlers:
    """Return a party's side: what it answers to each question."""
    return {
        Begin: partial(begin, synth),
        ShareRows: partial(share, synth),
        MeasureTables: partial(measure, synth),
    }
