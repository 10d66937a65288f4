"""The coordinator's side: it deals random words, carries messages, and opens noisy tables.

After Beaver 1997 and Gilboa & Ishai 2014; see `secure_marginals`.

**Guarantee**: that of `secure_marginals`. Words that open to what no honest party sends are
refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from siloweave.core.method import Setup, Task
from siloweave.errors import WireError
from siloweave.federation import masking
from siloweave.federation.expected import MOST_ROWS, WHOLE, WORDS, CheckedReply
from siloweave.federation.masking import Words
from siloweave.federation.messages import MAX_BYTES, Array, Public, Released
from siloweave.federation.session import Session
from siloweave.federation.site import FolderStore
from siloweave.models.estimate import Measurement
from siloweave.privacy.coins import MOST_SIGMA, Coins
from siloweave.protocols import secure_products as products
from siloweave.protocols import workloads
from siloweave.protocols.columns import parts_of
from siloweave.protocols.secure_marginals.messages import (
    Begin,
    Delivery,
    MeasureTables,
    NoisyTable,
    SharedRows,
    ShareRows,
    Tables,
)
from siloweave.protocols.secure_marginals.plan import (
    FULL,
    Group,
    SecurePlan,
    Slab,
    Slabs,
    coded_schema,
    fit_together,
    in_run,
    owned_codes,
    row_bytes_of,
    slabs_of,
    wide_cliques,
)
from siloweave.protocols.two_rounds import TwoRoundSettings
from siloweave.tables.bins import Cuts
from siloweave.tables.codes import Clique, Domain, ResolutionLevels

# Multiple of its sigma that no honest party's noise exceeds.
_NEVER = 40
# Bytes that encryption adds to a message.
_TAG = 16

_ByParty = defaultdict[str, dict[str, Any]]
"""Parts of messages to every party, by the party that they are from or for whose tables."""


class SecureMarginals:
    """The coordinator's side: it deals random words, carries messages, and opens noisy tables.

    Args:
        session: With the parties, who hold `OwnerData`.
        task: The run's.

    Attributes:
        encoder: How all columns are coded, once the parties answered the first question.
    """

    def __init__(self, session: Session, task: Task) -> None:
        setup = task.setup
        self.session = session
        schema = coded_schema(setup)
        parts = parts_of(setup)
        self.plan = SecurePlan(
            setup.settings_as(TwoRoundSettings), schema, parts, setup.budget
        )
        self._secret = kept_secret(task)
        self._public = masking.public_key(self._secret)
        self._at_once = task.at_once
        self._slabs: Slabs = {}
        self._begin(setup)

    def _begin(self, setup: Setup) -> None:
        """Ask for keys, the number of rows, and the histograms by which columns are cut."""
        plan = self.plan
        # Unknown columns in a query are refused here, before anything is paid for.
        encoder = workloads.first_encoder(plan.schema, plan.synth)
        workloads.queries_of(plan.synth, encoder)
        answers = self.session.ask(Begin(), list(plan.parts))
        replies = dict(zip(plan.parts, answers, strict=True))

        # How many rows there are, by the first party.
        first_reply = replies[plan.first]
        bounds: Sequence[Released[int] | Public[int]] = first_reply.paid_bound
        if plan.bound is None:
            bounds = first_reply.known_rows
        checked = CheckedReply(plan.first)
        (bound,) = checked.items("bounds", bounds, count=1)
        rows = checked.number("rows", bound.value, least=0, most=MOST_ROWS)
        self.rows = max(1, rows)

        # Every party's key, and where its columns are cut.
        cuts: dict[str, Cuts] = {}
        self._keys: dict[str, bytes] = {}
        for name, reply in replies.items():
            checked = CheckedReply(name)
            self._keys[name] = checked.mask_key("key", reply.key.value)
            fine = plan.fine_of(name)
            if fine is None:
                checked.items("histograms", reply.counts, count=0)
                continue
            (histogram,) = checked.items("histograms", reply.counts, count=1)
            cells = ResolutionLevels(fine).cells
            counts = checked.array("counts", histogram.value, WHOLE, (cells,))
            cuts |= plan.cuts(name, counts.astype(np.int64), self.rows)
        encoder = workloads.first_encoder(setup.schema, plan.synth)
        self.encoder = replace(encoder, cuts=cuts)
        self.domain = self.encoder.domain

        # A signed key begins with the key itself.
        public_keys = {name: key[: masking.KEY] for name, key in self._keys.items()}
        self._shared = masking.agree_with(self._secret, public_keys)

    def can_measure(self, cliques: Sequence[Clique]) -> bool:
        """Return whether tables fit into one message, are quick, and have coins wide enough."""
        joint = [clique for clique in cliques if len(self.plan.holders(clique)) > 1]
        if joint and not self.plan.opens_pairs:
            return False
        wide = wide_cliques(joint)
        most = self.plan.most_tables // 2
        return len(cliques) <= most and fit_together(self.domain, wide, self.rows)

    def measure(
        self, cliques: Sequence[Clique], sigmas: Sequence[float], *, last: bool = False
    ) -> list[Measurement]:
        """Measure marginals, each of which costs what Gaussian noise of its sigma does.

        Those of several parties whose noise would be too wide for coins are left out. `last` is as
        of `Session.ask`.

        Raises:
            WireError: A party sent what does not fit; names it.
            BudgetError: Noise of such a sigma cannot be made.
        """
        tables: list[NoisyTable] = []
        for clique, sigma in zip(cliques, sigmas, strict=True):
            if sigma <= MOST_SIGMA or len(self.plan.holders(clique)) == 1:
                tables.append(self.plan.table_for(clique, sigma))

        measurements: dict[Clique, Measurement] = {}
        batches = list(self._batches(tables))
        for number, batch in enumerate(batches, 1):
            ends = last and number == len(batches)
            measurements |= self._measure_batch(batch, last=ends)
        return [measurements[table.clique] for table in tables]

    def _batches(
        self, tables: Sequence[NoisyTable]
    ) -> Iterator[tuple[NoisyTable, ...]]:
        """Yield tables for one message each, which has room for their coins and dealt words.

        So it must have for the last rows that are shared, which the first message of all delivers.
        """
        batch = list[NoisyTable]()
        wide = list[NoisyTable]()
        coins = 0
        room = FULL * MAX_BYTES
        if not self._slabs:
            room -= self._last_rows
        for table in tables:
            joint = len(self.plan.holders(table.clique)) > 1
            table_coins = 0
            if joint:
                table_coins = 4 * self.domain.size(table.clique) * table.coins.number
            shifted = [table] if self.plan.is_shifted(table.clique) else []
            _, dealt, _ = self.plan.dealt([*wide, *shifted], self.domain, self.rows)

            # A table too many begins the next batch. One alone is sent, however large it is.
            if batch and coins + table_coins + dealt > room:
                yield tuple(batch)
                batch = []
                wide = []
                coins = 0
                room = FULL * MAX_BYTES

            batch.append(table)
            wide = [*wide, *shifted]
            coins += table_coins
        if batch:
            yield tuple(batch)

    @property
    def _last_rows(self) -> int:
        """Bytes that a party is delivered of the last rows, at most."""
        owned = owned_codes(self.plan, self.domain)
        slabs = slabs_of(owned, self.plan.shared(self.rows))
        last_slab = slabs[-1]
        row_bytes = max(delivered for *_, delivered in row_bytes_of(owned))
        return row_bytes * (last_slab.stop - last_slab.start)

    def _measure_batch(
        self, tables: tuple[NoisyTable, ...], *, last: bool = False
    ) -> dict[Clique, Measurement]:
        """Measure tables for which one message has room."""
        deliveries = _ByParty(dict)
        corrections = _ByParty(dict)

        # Rows are shared before the first tables. Their steps come first, so what is dealt below
        # is for the step after them.
        if not self._slabs:
            deliveries, corrections = self._share_rows()
        coins = {name: self._coins(name, tables) for name in self.plan.parts}
        first, second = self.plan.servers
        seeds, cells = self._cells(tables)
        seeds_of = {second: seeds}
        cells_of = {first: cells, second: cells}

        requests: dict[str, MeasureTables] = {}
        for name in self.plan.parts:
            requests[name] = MeasureTables(
                tables,
                deliveries[name],
                corrections[name],
                coins[name],
                seeds_of.get(name, b""),
                cells_of.get(name, b""),
            )
        replies = self.session.ask_each(requests, at_once=self._at_once, last=last)
        reply_of = dict(zip(requests, replies, strict=True))
        return opened_tables(self.plan, self.domain, self.rows, tables, reply_of)

    def _sizes(self, party: str) -> tuple[int, ...]:
        return self.domain.shape(self.plan.parts[party].names)

    def _share_rows(self) -> tuple[_ByParty, _ByParty]:
        """Let all parties share their rows, slab by slab; return what they are sent next.

        That is the rows of the last slab, and Q of every pair (step 2).
        """
        parties = list(self.plan.parts)
        run = self.session.run
        owned = owned_codes(self.plan, self.domain)
        planned = slabs_of(owned, self.plan.shared(self.rows))
        first_step = self.session.rounds
        steps = {slab: step for step, slab in enumerate(planned, first_step)}

        totals: dict[tuple[str, str], Words] = {}
        deliveries = _ByParty(dict)
        proven = 0
        for slab, step in steps.items():
            start, stop, _ = slab
            self._slabs[step] = (start, stop)
            context = in_run(run, step)
            masks: dict[str, Words] = {}
            requests: dict[str, ShareRows] = {}
            for party in parties:
                shared = self._shared[party]
                width = sum(self._sizes(party))
                masks[party] = products.masks(shared, context, stop - start, width)

                # Step 7: k of rows whose proof has room in this message, in whatever slab they are.
                parts: list[Words] = []
                for proven_slab, at in steps.items():
                    k = self._proof(party, proven_slab, at, proven, slab.proven)
                    parts.append(k)
                proof = Array.of(np.concatenate(parts), "<u4")
                requests[party] = ShareRows(
                    keys=self._keys,
                    dealer=self._public,
                    rows=self.rows,
                    sizes=self.domain.sizes,
                    start=start,
                    stop=stop,
                    proof=proof,
                    deliveries=deliveries[party],
                )
            proven = slab.proven
            replies = self.session.ask_each(requests, at_once=self._at_once)

            # Step 2: U^T V of each pair, whose sum over the slabs is sent less R.
            for pair in combinations(parties, 2):
                first, second = pair
                part = products.product(masks[first], masks[second])
                if pair in totals:
                    part = products.added(totals[pair], part)
                totals[pair] = part
            reply_of = dict(zip(parties, replies, strict=True))
            deliveries = self._deliveries(slab, step, reply_of)

        corrections = _ByParty(dict)
        for (first, second), total in totals.items():
            context = in_run(run, "R", first, second)
            R = products.masks(self._shared[first], context, *total.shape)
            Q = products.taken(total, R)
            corrections[second][first] = Array.of(Q, "<u4")
        return deliveries, corrections

    def _deliveries(
        self, slab: Slab, step: int, replies: Mapping[str, SharedRows]
    ) -> _ByParty:
        """Return the rows that parties sent each other, with the seeds that check their proofs.

        A seed leaves only now, after its sender's proof came: who knew it could make one up.
        """
        deliveries = _ByParty(dict)
        for sender, reply in replies.items():
            checked = CheckedReply(sender)
            others = [party for party in replies if party != sender]
            keys = reply.rows.keys
            data = reply.rows.data

            # Masked rows and shifted codes, and the sum of k(m).
            sizes = self._sizes(sender)
            width = sum(sizes) + len(sizes)
            words = (slab.stop - slab.start) * width + 1
            checked.items("keys of rows", keys, count=len(others), among=others)
            checked.items("bytes of rows", data, count=4 * words + _TAG)

            seed = self._proof_seed(sender, step)
            for party in others:
                delivery = Delivery(step, data, keys[party], seed)
                deliveries[party][sender] = delivery
        return deliveries

    def _proof_seed(self, party: str, step: int) -> bytes:
        """Return the seed of step 7 for the rows that a party shares in a step."""
        context = in_run(self.session.run, step)
        info = f"{context}/{party}".encode()
        return masking.stream(self._secret, info, 8).tobytes()

    def _proof(self, party: str, slab: Slab, step: int, first: int, last: int) -> Words:
        """Return k for a proof of those of the rows from first to last that are in a slab."""
        sizes = self._sizes(party)
        count = slab.stop - slab.start
        first = max(first, slab.start) - slab.start
        last = min(last, slab.stop) - slab.start
        if first >= last:
            return np.empty((0, sum(sizes)), np.uint32)
        shared = self._shared[party]
        context = in_run(self.session.run, step)
        U = products.masks(shared, context, count, sum(sizes))
        b = products.shifts(shared, context, count, sizes)
        seed = self._proof_seed(party, step)
        return products.proof_words(seed, U, b, sizes, slice(first, last))

    def _coins(self, party: str, tables: Sequence[NoisyTable]) -> dict[str, Array]:
        """Return G for the tables that a party opens as the second one, by the first one."""
        dealt: dict[str, list[Words]] = {}
        for group in self.plan.groups(tables, party):
            if group.second != party or group.first == party:
                continue

            # Step 4: G = r - S.
            release = group.release(self.session.run, self.session.rounds)
            cells = sum(group.sizes(self.domain))
            coins = group.coins
            modulus = group.modulus(self.rows)
            r = products.coin_bits(self._secret, release, cells, coins)
            shared = self._shared[group.first]
            S = products.coin_masks(shared, release, cells, coins, modulus)
            G = products.taken(r, S, modulus)
            dealt.setdefault(group.first, []).append(G.reshape(-1))
        arrays: dict[str, Array] = {}
        for name, words in dealt.items():
            arrays[name] = Array.of(np.concatenate(words), "<u4")
        return arrays

    def _cells(self, tables: Sequence[NoisyTable]) -> tuple[bytes, bytes]:
        """Return seeds of the roots for the second party, and C of all tables of shifted codes."""
        run = self.session.run
        step = self.session.rounds
        b = self._shifts
        first_party, _ = self.plan.servers
        shared = self._shared[first_party]

        # Step 6: a root's seeds s of the first party, and s' of the second.
        cliques = [table.clique for table in tables]
        roots = self.plan.roots(cliques, self.domain)
        seeds: dict[str, tuple[masking.Seeds, masking.Seeds]] = {}
        for root, size in roots.items():
            context = in_run(run, step, root)
            first = products.root_seeds(shared, context, self.rows, size)
            second = products.other_seeds(self._secret, context, first, b[root])
            seeds[root] = (first, second)

        corrections: list[bytes] = []
        for group in self.plan.groups(tables, first_party):
            if not group.shifted:
                continue
            modulus = group.modulus(self.rows)
            release = group.release(run, step)
            for table in group.tables:
                clique = self.plan.as_sent(table.clique)
                (root,) = self.plan.roots([table.clique], self.domain)
                C = products.corrections(
                    seeds[root],
                    in_run(release, *clique),
                    np.stack([b[name] for name in clique], axis=1),
                    self.domain.shape(clique),
                    clique.index(root),
                    modulus,
                )
                corrections.append(C.tobytes())
        second_seeds = [second.tobytes() for _, second in seeds.values()]
        return b"".join(second_seeds), b"".join(corrections)

    @cached_property
    def _shifts(self) -> dict[str, npt.NDArray[np.int64]]:
        """b of every column, once rows are shared."""
        slabs: dict[str, list[npt.NDArray[np.int64]]] = defaultdict(list)
        for step, (start, stop) in self._slabs.items():
            context = in_run(self.session.run, step)
            for party, part in self.plan.parts.items():
                shared = self._shared[party]
                sizes = self._sizes(party)
                b = products.shifts(shared, context, stop - start, sizes)
                for name, column in zip(part.names, b.T, strict=True):
                    slabs[name].append(column)
        return {name: np.concatenate(columns) for name, columns in slabs.items()}


def opened_tables(
    plan: SecurePlan,
    domain: Domain,
    rows: int,
    tables: Sequence[NoisyTable],
    replies: Mapping[str, Tables],
) -> dict[Clique, Measurement]:
    """Return every table, from what one party or two sent.

    Args:
        plan: Of the study.
        domain: How all columns are coded.
        rows: The bound of their number that the parties were given.
        tables: What was asked for.
        replies: Every party's.

    Raises:
        WireError: A party sent what does not fit; names it.
    """
    words: dict[Group, list[npt.NDArray[Any]]] = {}
    for party, reply in replies.items():
        for group, array in _words_of(plan, domain, rows, tables, party, reply):
            words.setdefault(group, []).append(array)

    # Rows may be as many fewer than their bound as its margin and noise are.
    most_missing = 0
    if plan.bound is not None:
        most_missing = ceil(plan.bound.margin + _NEVER * plan.bound.sigma)
    bounds = RowBounds(rows - most_missing, rows)
    measured: dict[Clique, Measurement] = {}
    for group, parts in words.items():
        has_coins = bool(group.kind.weights)
        if has_coins:
            half = group.coins.half
            counts = products.opened(parts, half, group.modulus(rows))
            sigma = group.coins.sigma
        else:
            # One party counted alone.
            counts = parts[0]
            sigma = group.kind.sigma

        ends = np.cumsum(group.sizes(domain))
        pieces = np.split(counts.astype(np.float64), ends[:-1])
        for table, cells in zip(group.tables, pieces, strict=True):
            clique = table.clique
            if has_coins:
                who = f"parties {group.first!r} and {group.second!r}"
                bounds = bounds.after(who, clique, cells, group.coins)

            # Cells come with the columns party by party, and are put into the clique's order.
            sent_as = plan.as_sent(clique)
            order = [sent_as.index(name) for name in clique]
            by_party = cells.reshape(domain.shape(sent_as))
            measured[clique] = Measurement(clique, by_party.transpose(order), sigma)
    return measured


def _words_of(
    plan: SecurePlan,
    domain: Domain,
    rows: int,
    tables: Sequence[NoisyTable],
    party: str,
    reply: Tables,
) -> Iterator[tuple[Group, npt.NDArray[Any]]]:
    """Yield the counts or words that a party sent, checked, for every group that it opens."""
    alone: list[Group] = []
    joint: list[Group] = []
    for group in plan.groups(tables, party):
        if group.openers == (party, party):
            alone.append(group)
        elif party in group.openers:
            joint.append(group)
    checked = CheckedReply(party)

    # Counts of one party have its noise on them already; words of two are any below a modulus.
    for group, sent in _by_group(checked, alone, reply.own):
        shape = (sum(group.sizes(domain)),)
        tail = ceil(_NEVER * group.kind.sigma)
        most = rows + tail
        counts = checked.array("counts", sent, WHOLE, shape, least=-tail, most=most)
        yield group, counts
    for group, sent in _by_group(checked, joint, reply.joint):
        shape = (sum(group.sizes(domain)),)
        most = group.modulus(rows) - 1
        words = checked.array("counts", sent, WORDS, shape, least=0, most=most)
        yield group, words


def _by_group(
    checked: CheckedReply, groups: Sequence[Group], sent: Sequence[Released[Array]]
) -> list[tuple[Group, Array]]:
    """Match what a party sent with the groups that it opens."""
    checked.items("groups of tables", sent, count=len(groups))
    return [(group, item.value) for group, item in zip(groups, sent, strict=True)]


class RowBounds(NamedTuple):
    """Between which numbers the rows are that tables count."""

    least: int
    most: int

    def after(
        self, who: str, clique: Clique, counts: npt.NDArray[Any], coins: Coins
    ) -> RowBounds:
        """Return closer bounds, by a table that opened; no count opens to less than -half.

        Raises:
            WireError: A count is larger than honest coins leave it, or their sum is not about the
                rows; names `who` sent the words.
        """
        half = coins.half
        total = int(counts.sum())
        # The noise of a sum is wider by the root of how many counts it has.
        tail = ceil(_NEVER * coins.sigma * sqrt(counts.size))
        checks = (
            ("a count", counts.max(), -half, self.most + half),
            ("a sum", total, self.least - tail, self.most + tail),
        )
        for kind, value, least, most in checks:
            if not least <= value <= most:
                raise WireError(
                    f"{who} sent words that open to {kind} of {value:,.0f} in {'×'.join(clique)}; "
                    f"it must be from {least:,} to {most:,}. The table was discarded: check which "
                    "software they run, and start a new run"
                )
        closer_least = max(self.least, total - tail)
        closer_most = min(self.most, total + tail)
        return RowBounds(closer_least, closer_most)


def kept_secret(task: Task) -> bytes:
    """Return the dealer's secret, the same when a run is resumed, or a question asked again.

    It is in a folder next to that of the run.
    """
    if task.store is None:
        return masking.new_secret(task.entropy)
    store = FolderStore(task.store.parent / "dealer")
    run = task.store.name
    secret = store.get(run) or masking.new_secret(task.entropy)
    store.put(run, secret)
    return secret
