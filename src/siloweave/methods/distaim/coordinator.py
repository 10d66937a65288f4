"""DistAIM's coordinator: parties share their counts over rounds, then noisy tables are opened.

Maddock, Cormode & Maple 2024, FLAIM (KDD 2024), its distributed baseline.

**Guarantee**: see method.py. A row pays when its party shares its counts, for all that is opened
later; so nothing is opened before the last round, when the most rows are in. What is measured
second is planned from what was opened first (post-processing, protocols/two_rounds.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log2, sqrt
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.core.method import Result, Task
from siloweave.core.model import Measured
from siloweave.errors import BudgetError, CapacityError
from siloweave.federation import masking
from siloweave.federation.expected import MOST_ROWS, WORDS, CheckedReply
from siloweave.federation.masking import Words
from siloweave.federation.messages import MAX_BYTES
from siloweave.federation.session import Session
from siloweave.methods.distaim.messages import OpenTables, ServerWords, ShareCounts
from siloweave.methods.distaim.party import MODULUS, opening, places_of, servers_of
from siloweave.models.estimate import Measurement, fit
from siloweave.models.mrf import MRF
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Budget, enough_epsilon, marginal_sensitivity, rho_for
from siloweave.privacy.coins import MOST_SIGMA, Coins, coins_for, largest_order_for
from siloweave.privacy.events import PaidAhead
from siloweave.privacy.mechanisms import Entropy
from siloweave.progress import Progress, silent
from siloweave.protocols import secure_products as products
from siloweave.protocols.marginals import marginal_result
from siloweave.protocols.secure_marginals import RowBounds, kept_secret
from siloweave.protocols.secure_sums import ROUNDING, add_exact, drawn_cohort, exchange_keys
from siloweave.protocols.two_rounds import plan_and_fit
from siloweave.protocols.workload import check_capacity, expected_l1, fitting, weights_of
from siloweave.tables.codes import Clique, Domain
from siloweave.tables.display import listed
from siloweave.tables.keys import Key, fold_in

if TYPE_CHECKING:
    from siloweave.methods.distaim.method import DistAIM

_ESCAPES = 1e-3  # share of delta for what truncated zCDP leaves out
_MESSAGE = 0.9 * MAX_BYTES
DEALT = 4 * 240  # bytes of a cell's coins, mostly at most
MOST_CELLS = _MESSAGE / DEALT  # of a table that is opened

Counts = npt.NDArray[np.int64]


def price_of(budget: Budget, rho: float, moved: int) -> PaidAhead:
    """What a row pays for all tables, out of `rho` that is left of a budget.

    A ledger reads `rho` at what the escapes leave of delta. That takes less zCDP than the budget
    does; twice the difference covers a delta of which naming categories has taken a tenth, too.
    """
    left = msgspec.structs.replace(budget, delta=budget.delta * (1 - _ESCAPES))
    kept = 2 * (rho_for(budget) - rho_for(left))
    order = largest_order_for(rho_for(budget), budget.delta)
    escape = min(_ESCAPES * budget.delta, 2.0**-20)
    return PaidAhead(total=rho - kept, escape=escape, largest_order=order, moved=moved)


def check_coins(settings: DistAIM, budget: Budget, tables: int, share: float) -> None:
    """Raise BudgetError if so many tables, measured first, need wider noise than coins make.

    `share` of the budget's zCDP is left for both measurements.
    """
    unit = marginal_sensitivity(budget.neighbours, norm="l2")

    def sigma_of(one: Budget) -> float:
        price = price_of(one, share * rho_for(one), round(unit**2))
        return unit * sqrt(tables / (2 * settings.pairs_share * price.total))

    if sigma_of(budget) > MOST_SIGMA:
        enough = enough_epsilon(budget, lambda one: sigma_of(one) <= MOST_SIGMA)
        raise BudgetError(
            f"DistAIM: epsilon = {budget.epsilon:g} at delta = {budget.delta:g} is too small for "
            f"{tables} tables: they need noise of sigma = {sigma_of(budget):,.0f}, and noise that "
            f"nobody knows alone is made up to {MOST_SIGMA:,.0f}. Give epsilon = {enough:g} or "
            "more, or a workload of fewer columns. No party shared its counts"
        )


def rounds_of(session: Session, settings: DistAIM, key: Key) -> Iterator[list[str]]:
    """Who takes part in each round for the first time."""
    joined: set[str] = set()
    for t in range(settings.rounds):
        cohort = drawn_cohort(session.roster, settings.participation, fold_in(key, "cohort", t))
        yield [name for name in cohort if name not in joined]
        joined |= set(cohort)


@dataclass
class _Servers:
    """The coordinator's side: it adds up what parties sent, deals coins, and opens noisy tables."""

    session: Session
    domain: Domain
    places: Mapping[Clique, slice]
    price: PaidAhead
    secret: bytes
    keys: Mapping[str, bytes]
    sums: Words
    joined: list[str] = field(default_factory=list)

    def share(self, newcomers: Sequence[str]) -> None:
        """Add up V of parties that take part for the first time."""
        if not newcomers:
            return
        server, _ = servers_of(self.session.roster)
        replies = self.session.ask(ShareCounts(self.keys[server], self.price), newcomers)
        for name, reply in zip(newcomers, replies, strict=True):
            words = reply.words.value
            self.sums += CheckedReply(name).array("words", words, WORDS, self.sums.shape)
        self.joined += newcomers

    @property
    def tail(self) -> float:
        """Of each coin's price, so that both measurements of all tables stay below the escape."""
        each = self.price.escape / (2 * self.price.moved * 2 * len(self.places))
        return float(2.0 ** min(-20, floor(log2(each))))

    def can_open(self, cliques: Sequence[Clique]) -> bool:
        """Whether tables are shared, and what is dealt for each fits into a message."""
        return all(q in self.places and self.domain.size(q) <= MOST_CELLS for q in cliques)

    def measure(
        self, cliques: Sequence[Clique], sigmas: Sequence[float], rho: float
    ) -> list[Measurement]:
        """Open tables, each with noise at the price of its sigma, if coins can be as wide."""
        found: list[Measurement] = []
        batch: list[tuple[Clique, Coins]] = []
        size = 0
        narrow = [one for one in zip(cliques, sigmas, strict=True) if one[1] <= MOST_SIGMA]
        for clique, sigma in narrow:
            own = coins_for(sigma, self.price.largest_order, self.tail)
            dealt = 4 * self.domain.size(clique) * own.number
            if batch and size + dealt > _MESSAGE:
                found += self._opened(batch)
                batch, size = [], 0
            batch.append((clique, own))
            size += dealt
        return found + self._opened(batch) if batch else found

    def _opened(self, batch: Sequence[tuple[Clique, Coins]]) -> list[Measurement]:
        first, last = servers_of(self.session.roster)
        asked = OpenTables(
            tuple(clique for clique, _ in batch), tuple(coins for _, coins in batch), self.tail,
            self.price, {name: self.keys[name] for name in self.joined},
            (self.keys[first], self.keys[last]), masking.public_key(self.secret), b"",
        )  # fmt: skip
        release = opening(f"{self.session.run}/{self.session.rounds}", asked)
        own = masking.agree_with(self.secret, {first: self.keys[first][: masking.KEY]})[first]
        dealt = b"".join(self._dealt(release, own, *one).tobytes() for one in batch)
        requests = {first: asked, last: msgspec.structs.replace(asked, dealt=dealt)}
        replies = dict(zip(requests, self.session.ask_each(requests), strict=True))
        return opened_tables(self.domain, self.places, self.sums, asked, replies)

    def _dealt(self, release: str, secret: bytes, clique: Clique, coins: Coins) -> Words:
        """G of a table: the coordinator's own bits, less the words that the first server draws."""
        cells, name = self.domain.size(clique), "\0".join((release, *clique))
        r = products.coin_bits(self.secret, name, cells, coins)
        S = products.coin_masks(secret, name, cells, coins, MODULUS)
        return r.astype(np.uint32) - S


def opened_tables(
    domain: Domain,
    places: Mapping[Clique, slice],
    sums: Words,
    asked: OpenTables,
    replies: Mapping[str, ServerWords],
) -> list[Measurement]:
    """Noisy tables, from the sum of what parties sent and the words of both servers.

    Raises:
        WireError: Words open to counts that cannot be, or to tables of different numbers of rows;
            names all who sent some.
    """
    senders = dict.fromkeys([*replies, *asked.joined])
    who = f"one or more of parties {listed([repr(name) for name in senders])}"
    bounds = RowBounds(0, MOST_ROWS)
    total = np.concatenate([sums[places[clique]] for clique in asked.cliques])
    for name, reply in replies.items():
        total += CheckedReply(name).array("words", reply.words.value, WORDS, total.shape)
    found, start = [], 0
    for clique, coins in zip(asked.cliques, asked.coins, strict=True):
        words = total[start : start + domain.size(clique)]
        counts = products.opened((words, np.zeros_like(words)), coins.half, MODULUS)
        bounds = bounds.after(who, clique, counts, coins)
        table = counts.reshape(domain.shape(clique)).astype(float)
        found.append(Measurement(clique, table, coins.sigma))
        start += words.size
    return found


def distaim(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: DistAIM,
    *,
    key: Key,
    budget: Budget,
    secret: bytes,
    unit: float = 1.0,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Gather counts over rounds, then open noisy tables twice, with a plan between.

    Arguments are those of `aim` (methods/aim/coordinator.py); `key` chooses who takes part, from
    `secret` come the coins that the coordinator deals.
    """
    check_capacity(domain, workload, settings.max_model_mb)
    places = places_of(domain, workload)
    cells = sum(domain.size(q) for q in places)
    if 4 * cells > _MESSAGE:
        raise CapacityError(
            f"counts of {len(places)} tables have {cells:,} cells, {4e-6 * cells:,.0f} MB, and a "
            f"message takes {_MESSAGE / 1e6:,.0f} MB. Use fewer bins or a smaller workload"
        )
    price = price_of(budget, rho, round(unit**2))
    check_coins(settings, budget, len(places), rho / rho_for(budget))
    keys = exchange_keys(session, domain)
    servers = _Servers(session, domain, places, price, secret, keys, np.zeros(cells, np.uint32))
    for t, newcomers in enumerate(rounds_of(session, settings, key)):
        progress(f"round {t + 1}", 0.3 * t / settings.rounds)
        servers.share(newcomers)
    model, measured = plan_and_fit(
        domain, workload, price.total, settings, servers.measure, unit=unit,
        allowed=servers.can_open, progress=lambda text, done: progress(text, 0.3 + 0.7 * done),
    )  # fmt: skip
    return _for_all(model, session, len(servers.joined)), measured


def _for_all(model: MRF, session: Session, joined: int) -> MRF:
    """A model of as many rows as all parties have, if those that took part are like the others."""
    return MRF(model.domain, model.potentials, model.total * len(session.roster) / joined)


@dataclass
class _Simulated:
    """What the servers would hold, in the clear."""

    session: Session
    domain: Domain
    weights: Mapping[Clique, float]
    settings: DistAIM
    unit: float
    sigma: float
    epsilon: float
    entropy: Entropy
    sums: dict[Clique, Counts]
    taken: list[tuple[Measurement, float]] = field(default_factory=list)  # and of how many rows

    @property
    def rows(self) -> float:
        """How many rows the counts are of."""
        return max(1.0, float(next(iter(self.sums.values())).sum()))

    def add(self, newcomers: Sequence[str]) -> None:
        """Add up exact counts of parties that take part for the first time."""
        if newcomers:
            add_exact(self.session, newcomers, self.sums)

    def measure(self, cliques: Sequence[Clique]) -> None:
        """Noisy counts of everyone who took part so far."""
        for q in cliques:
            noisy = mechanisms.add_gaussian(self.sums[q], self.sigma, entropy=self.entropy)
            self.taken.append((Measurement(q, noisy.astype(float), self.sigma), self.rows))

    def fit(self, start: MRF | None, sweeps: int) -> MRF:
        """A model of all rows so far; counts of fewer rows are scaled up."""
        scaled = [
            Measurement(m.clique, m.counts * (self.rows / n), m.sigma * self.rows / n)
            for m, n in self.taken
        ]
        return fit(
            self.domain, scaled, total=self.rows, warm_start=start, sweeps=sweeps,
            shrinkage=self.settings.shrinkage,
        )  # fmt: skip

    def choose(self, model: MRF) -> Clique:
        """AIM's score of what fits, and the exponential mechanism."""
        measured = list(model.potentials)
        offered = fitting(self.domain, self.weights, measured, self.settings.max_model_mb)
        scores = [
            self.weights[q]
            * (
                float(np.abs(self.sums[q] - model.marginal(q)).sum())
                - expected_l1(self.sigma, self.domain.size(q))
            )
            for q in offered
        ]
        moved = self.unit**2 * max(self.weights[q] for q in offered) * (1 + ROUNDING)
        return offered[
            mechanisms.exponential(
                scores, sensitivity=moved, epsilon=self.epsilon, entropy=self.entropy
            )
        ]


def simulated(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: DistAIM,
    *,
    key: Key,
    entropy: Entropy,
    unit: float = 1.0,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """As published, with exact counts at the coordinator, who does what the servers would do.

    In the first round all single columns are measured, and in each round one more marginal, chosen
    by the exponential mechanism, all over those who took part so far: sigma =
    unit sqrt((T + d) / (2 r rho)), epsilon = sqrt(8 (1 - r) rho / T). Arguments as of `distaim`.
    """
    check_capacity(domain, workload, settings.max_model_mb)
    exchange_keys(session, domain)
    weights, T, r = weights_of(domain, workload), settings.rounds, settings.gaussian_share
    firsts = [q for q in weights if len(q) == 1]
    sigma = max(1.0, unit * sqrt((T + len(firsts)) / (2 * r * rho)))
    epsilon = sqrt(8 * (1 - r) * rho / T)
    sums = {q: np.zeros(domain.shape(q), dtype=np.int64) for q in weights}
    run = _Simulated(session, domain, weights, settings, unit, sigma, epsilon, entropy, sums)
    joined, model, measured = 0, None, [Measured(tuple(firsts), sigma)]
    for t, newcomers in enumerate(rounds_of(session, settings, key)):
        progress(f"round {t + 1}", t / T)
        run.add(newcomers)
        joined += len(newcomers)
        if t == 0:
            run.measure(firsts)
        model = run.fit(model, settings.sweeps)
        chosen = run.choose(model)
        run.measure([chosen])
        measured.append(Measured((chosen,), sigma))
    return _for_all(run.fit(model, settings.final_sweeps), session, joined), measured


def coordinate(session: Session, task: Task) -> Result:
    """DistAIM over the codes of a run; see `distaim` and `simulated`."""
    key, budget = task.seed, task.setup.budget
    if task.setup.synth.selection == "simulated":  # type: ignore[attr-defined]
        return marginal_result(simulated, session, task, key=key, entropy=task.entropy)
    secret = kept_secret(task)
    return marginal_result(distaim, session, task, key=key, budget=budget, secret=secret)
