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
from siloweave.methods.distaim import messages, party
from siloweave.methods.distaim.settings import DistAIMSettings
from siloweave.models.estimate import Measurement, fit
from siloweave.models.mrf import MRF
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import (
    Budget,
    enough_epsilon,
    marginal_sensitivity,
    rho_for,
)
from siloweave.privacy.coins import MOST_SIGMA, Coins, coins_for, largest_order_for
from siloweave.privacy.events import PaidAhead
from siloweave.privacy.mechanisms import Entropy
from siloweave.progress import Progress, silent
from siloweave.protocols import secure_products as products
from siloweave.protocols import secure_sums, workloads
from siloweave.protocols.marginals import marginal_result
from siloweave.protocols.secure_marginals.coordinator import RowBounds, kept_secret
from siloweave.protocols.two_rounds import plan_and_fit
from siloweave.tables.codes import Clique, Domain
from siloweave.tables.display import listed
from siloweave.tables.keys import Key, fold_in

_ESCAPES = 1e-3  # share of delta for what truncated zCDP leaves out
_MESSAGE = 0.9 * MAX_BYTES
DEALT = 4 * 240  # bytes of a cell's coins, mostly at most
MOST_CELLS = _MESSAGE / DEALT  # of a table that is opened

Counts = npt.NDArray[np.int64]


def price_of(budget: Budget, rho: float, moved: int) -> PaidAhead:
    """Return the price that a row pays ahead for all tables, out of the `rho` that is left."""
    order = largest_order_for(rho_for(budget), budget.delta)
    escape = min(_ESCAPES * budget.delta, 2.0**-20)
    return PaidAhead(
        total=rho_of_tables(budget, rho),
        escape=escape,
        largest_order=order,
        moved=moved,
    )


def rho_of_tables(budget: Budget, rho: float) -> float:
    """Return the zCDP of all tables, out of the `rho` that is left.

    A ledger reads `rho` at what the escapes leave of delta. That takes less zCDP than the budget
    does; twice the difference covers a delta of which naming categories has taken a tenth, too.
    """
    without_escapes = msgspec.structs.replace(
        budget, delta=budget.delta * (1 - _ESCAPES)
    )
    reserve = 2 * (rho_for(budget) - rho_for(without_escapes))
    return rho - reserve


def check_coins(
    settings: DistAIMSettings, budget: Budget, tables: int, share: float
) -> None:
    """Raise BudgetError if measuring all tables first needs wider noise than coins can make.

    `share` of the budget's zCDP is left for both measurements.
    """
    unit = marginal_sensitivity(budget.neighbours, norm="l2")

    def sigma_of(candidate: Budget) -> float:
        # Not its price, which is none where epsilon is so small that no order is left for coins.
        rho = rho_of_tables(candidate, share * rho_for(candidate))
        return unit * sqrt(tables / (2 * settings.pairs_share * rho))

    if sigma_of(budget) > MOST_SIGMA:
        enough = enough_epsilon(
            budget, lambda candidate: sigma_of(candidate) <= MOST_SIGMA
        )
        raise BudgetError(
            f"DistAIM: epsilon = {budget.epsilon:g} at delta = {budget.delta:g} is too small for "
            f"{tables} tables: they need noise of sigma = {sigma_of(budget):,.0f}, and noise that "
            f"nobody knows alone is made up to {MOST_SIGMA:,.0f}. Give epsilon = {enough:g} or "
            "more, or a workload of fewer columns. No party shared its counts"
        )


def rounds_of(
    session: Session, settings: DistAIMSettings, key: Key
) -> Iterator[list[str]]:
    """Yield the names of those who take part for the first time, round by round."""
    joined: set[str] = set()
    for t in range(settings.rounds):
        cohort = secure_sums.drawn_cohort(
            session.roster, settings.participation, fold_in(key, "cohort", t)
        )
        yield [name for name in cohort if name not in joined]
        joined |= set(cohort)


@dataclass
class _Servers:
    """The coordinator's side, which adds up masked counts, deals coins, and opens noisy tables."""

    session: Session
    domain: Domain
    places: Mapping[Clique, slice]  # of every table among the words of all
    price: PaidAhead  # what a row pays
    secret: bytes  # of the coins that this side deals
    keys: Mapping[str, bytes]  # the parties' signed keys
    sums: Words  # of V over the parties that joined
    joined: list[str] = field(default_factory=list)

    def share(self, newcomers: Sequence[str]) -> None:
        """Collect the masked counts V of parties that take part for the first time."""
        if not newcomers:
            return
        server, _ = party.servers_of(self.session.roster)
        replies = self.session.ask(
            messages.ShareCounts(self.keys[server], self.price), newcomers
        )
        for name, reply in zip(newcomers, replies, strict=True):
            words = reply.words.value
            self.sums += CheckedReply(name).array(
                "words", words, WORDS, self.sums.shape
            )
        self.joined += newcomers

    @property
    def tail(self) -> float:
        """The tail that each coin's price allows, if every table is measured twice.

        All measurements together then stay below the escape that was paid for.
        """
        measurements = 2 * len(self.places)
        each = self.price.escape / (2 * self.price.moved * measurements)
        # A power of two, rounded down.
        return float(2.0 ** min(-20, floor(log2(each))))

    def can_open(self, cliques: Sequence[Clique]) -> bool:
        """Return whether tables are shared, and the coins dealt for each fit into a message."""
        return all(
            q in self.places and self.domain.size(q) <= MOST_CELLS for q in cliques
        )

    def measure(
        self, cliques: Sequence[Clique], sigmas: Sequence[float], rho: float
    ) -> list[Measurement]:
        """Open tables, each with noise at the price of its sigma, if coins can be that wide."""
        measurements: list[Measurement] = []
        batch: list[tuple[Clique, Coins]] = []
        batch_bytes = 0
        for clique, sigma in zip(cliques, sigmas, strict=True):
            if sigma > MOST_SIGMA:
                continue
            coins = coins_for(sigma, self.price.largest_order, self.tail)
            # A word for each coin of each cell is dealt to the second server, in one message.
            table_bytes = 4 * self.domain.size(clique) * coins.number
            if batch and batch_bytes + table_bytes > _MESSAGE:
                measurements += self._opened(batch)
                batch = []
                batch_bytes = 0
            batch.append((clique, coins))
            batch_bytes += table_bytes
        if batch:
            measurements += self._opened(batch)
        return measurements

    def _opened(self, batch: Sequence[tuple[Clique, Coins]]) -> list[Measurement]:
        """Have both servers open some tables that fit into one message."""
        first, last = party.servers_of(self.session.roster)
        request = messages.OpenTables(
            cliques=tuple(clique for clique, _ in batch),
            coins=tuple(coins for _, coins in batch),
            tail=self.tail,
            price=self.price,
            joined={name: self.keys[name] for name in self.joined},
            servers=(self.keys[first], self.keys[last]),
            dealer=masking.public_key(self.secret),
            dealt=b"",
        )
        release = party.opening(f"{self.session.run}/{self.session.rounds}", request)
        first_key = self.keys[first][: masking.KEY]
        shared_secret = masking.agree_with(self.secret, {first: first_key})[first]
        dealt_tables = []
        for clique, coins in batch:
            dealt_tables.append(
                self._dealt(release, shared_secret, clique, coins).tobytes()
            )
        # G goes to the second server alone: the first makes S of the secret by itself.
        to_last = msgspec.structs.replace(request, dealt=b"".join(dealt_tables))
        requests = {first: request, last: to_last}
        replies = dict(zip(requests, self.session.ask_each(requests), strict=True))
        return opened_tables(self.domain, self.places, self.sums, request, replies)

    def _dealt(
        self, release: str, secret: bytes, clique: Clique, coins: Coins
    ) -> Words:
        """Return the words G of a table: the coordinator's bits, less the first server's words."""
        cells = self.domain.size(clique)
        name = "\0".join((release, *clique))
        r = products.coin_bits(self.secret, name, cells, coins)
        S = products.coin_masks(secret, name, cells, coins, party.MODULUS)
        return r.astype(np.uint32) - S


def opened_tables(
    domain: Domain,
    places: Mapping[Clique, slice],
    sums: Words,
    request: messages.OpenTables,
    replies: Mapping[str, messages.ServerWords],
) -> list[Measurement]:
    """Open noisy tables from the sum of what parties sent and the words of both servers.

    Raises:
        WireError: Words open to counts that cannot be, or to tables of different numbers of rows;
            names all who sent some.
    """
    senders = dict.fromkeys([*replies, *request.joined])
    who = f"one or more of parties {listed([repr(name) for name in senders])}"
    bounds = RowBounds(0, MOST_ROWS)
    # V + U + noise: the servers' pads cancel, and so do the words that parties subtracted.
    total = np.concatenate([sums[places[clique]] for clique in request.cliques])
    for name, reply in replies.items():
        total += CheckedReply(name).array(
            "words", reply.words.value, WORDS, total.shape
        )

    measurements = []
    start = 0
    for clique, coins in zip(request.cliques, request.coins, strict=True):
        words = total[start : start + domain.size(clique)]
        counts = products.opened(
            (words, np.zeros_like(words)), coins.half, party.MODULUS
        )
        # Tables of one run are of the same rows: words that anybody changed open to others.
        bounds = bounds.after(who, clique, counts, coins)
        table = counts.reshape(domain.shape(clique)).astype(float)
        measurements.append(Measurement(clique, table, coins.sigma))
        start += words.size
    return measurements


def distaim(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: DistAIMSettings,
    *,
    key: Key,
    budget: Budget,
    secret: bytes,
    unit: float = 1.0,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Gather counts over rounds, then open noisy tables twice, with a plan in between.

    Arguments are those of `aim` (methods/aim/coordinator.py); `key` chooses who takes part, from
    `secret` come the coins that the coordinator deals.
    """
    workloads.check_capacity(domain, workload, settings.max_model_mb)
    places = party.places_of(domain, workload)
    cells = sum(domain.size(q) for q in places)
    if 4 * cells > _MESSAGE:
        raise CapacityError(
            f"counts of {len(places)} tables have {cells:,} cells, {4e-6 * cells:,.0f} MB, and a "
            f"message takes {_MESSAGE / 1e6:,.0f} MB. Use fewer bins or a smaller workload"
        )
    price = price_of(budget, rho, round(unit**2))
    check_coins(settings, budget, len(places), rho / rho_for(budget))
    keys = secure_sums.exchange_keys(session, domain)
    no_sums = np.zeros(cells, np.uint32)
    servers = _Servers(session, domain, places, price, secret, keys, no_sums)

    # Each party shares its counts in the first round that it takes part in.
    for t, newcomers in enumerate(rounds_of(session, settings, key)):
        progress(f"round {t + 1}", 0.3 * t / settings.rounds)
        servers.share(newcomers)

    # Nothing is opened before the last round; then all pairs, and what is planned from them.
    def progress_after_rounds(text: str, share: float) -> None:
        progress(text, 0.3 + 0.7 * share)

    model, measured = plan_and_fit(
        domain, workload, price.total, settings, servers.measure, unit=unit,
        allowed=servers.can_open, progress=progress_after_rounds,
    )  # fmt: skip
    return _for_all(model, session, len(servers.joined)), measured


def _for_all(model: MRF, session: Session, joined: int) -> MRF:
    """Scale a model to the rows of all parties, as if those that took part were typical."""
    total = model.total * len(session.roster) / joined
    return MRF(model.domain, model.potentials, total)


@dataclass
class _Simulated:
    """A run in which the coordinator holds, in the clear, what the servers would hold together."""

    session: Session
    domain: Domain
    weights: Mapping[Clique, float]  # w_q of all candidates
    settings: DistAIMSettings
    unit: float  # L2 sensitivity of a marginal
    sigma: float  # of every measurement
    epsilon: float  # of every choice
    entropy: Entropy
    sums: dict[Clique, Counts]  # exact, of those who took part so far
    # And of how many rows.
    measured: list[tuple[Measurement, float]] = field(default_factory=list)

    @property
    def rows(self) -> float:
        """The number of rows that the counts are of."""
        any_table = next(iter(self.sums.values()))
        return max(1.0, float(any_table.sum()))

    def add(self, newcomers: Sequence[str]) -> None:
        """Add the exact counts of parties that take part for the first time."""
        if newcomers:
            secure_sums.add_exact(self.session, newcomers, self.sums)

    def measure(self, cliques: Sequence[Clique]) -> None:
        """Measure tables over everyone who took part so far, with noise."""
        for q in cliques:
            noisy = mechanisms.add_gaussian(
                self.sums[q], self.sigma, entropy=self.entropy
            )
            measurement = Measurement(q, noisy.astype(float), self.sigma)
            self.measured.append((measurement, self.rows))

    def fit(self, start: MRF | None, sweeps: int) -> MRF:
        """Fit a model of all rows so far; counts of fewer rows are scaled up."""
        scaled = []
        for measurement, n in self.measured:
            counts = measurement.counts * (self.rows / n)
            sigma = measurement.sigma * self.rows / n
            scaled.append(Measurement(measurement.clique, counts, sigma))
        return fit(
            self.domain, scaled, total=self.rows, warm_start=start, sweeps=sweeps,
            shrinkage=self.settings.shrinkage,
        )  # fmt: skip

    def choose(self, model: MRF) -> Clique:
        """Choose a clique that fits by AIM's score, with the exponential mechanism."""
        measured = list(model.potentials)
        candidates = workloads.fitting(
            self.domain, self.weights, measured, self.settings.max_model_mb
        )

        # w_q (||M_q(D) - M_q(p)||_1 - sqrt(2/pi) sigma n_q)
        scores = []
        for q in candidates:
            gap = float(np.abs(self.sums[q] - model.marginal(q)).sum())
            bias = workloads.expected_l1(self.sigma, self.domain.size(q))
            scores.append(self.weights[q] * (gap - bias))

        # unit^2 is how far a row moves a marginal in L1: 1, or 2 where it is replaced.
        largest_weight = max(self.weights[q] for q in candidates)
        sensitivity = self.unit**2 * largest_weight * (1 + secure_sums.ROUNDING)
        choice = mechanisms.exponential(
            scores, sensitivity=sensitivity, epsilon=self.epsilon, entropy=self.entropy
        )
        return candidates[choice]


def simulated(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: DistAIMSettings,
    *,
    key: Key,
    entropy: Entropy,
    unit: float = 1.0,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Run DistAIM as published, with exact counts at the coordinator in place of servers.

    In the first round all single columns are measured, and in each round one more marginal, chosen
    by the exponential mechanism, all over those who took part so far: sigma =
    unit sqrt((T + d) / (2 r rho)), epsilon = sqrt(8 (1 - r) rho / T). Arguments as of `distaim`.
    """
    workloads.check_capacity(domain, workload, settings.max_model_mb)
    secure_sums.exchange_keys(session, domain)
    weights = workloads.weights_of(domain, workload)
    one_ways = [q for q in weights if len(q) == 1]
    T = settings.rounds
    r = settings.gaussian_share
    sigma = max(1.0, unit * sqrt((T + len(one_ways)) / (2 * r * rho)))
    epsilon = sqrt(8 * (1 - r) * rho / T)
    sums = {q: np.zeros(domain.shape(q), dtype=np.int64) for q in weights}
    run = _Simulated(
        session, domain, weights, settings, unit, sigma, epsilon, entropy, sums
    )

    joined = 0
    model: MRF | None = None
    measured = [Measured(tuple(one_ways), sigma)]
    for t, newcomers in enumerate(rounds_of(session, settings, key)):
        progress(f"round {t + 1}", t / T)
        run.add(newcomers)
        joined += len(newcomers)
        if t == 0:
            run.measure(one_ways)
        model = run.fit(model, settings.sweeps)
        query = run.choose(model)
        run.measure([query])
        measured.append(Measured((query,), sigma))
    final_model = run.fit(model, settings.final_sweeps)
    return _for_all(final_model, session, joined), measured


def coordinate(session: Session, task: Task) -> Result:
    """Run DistAIM over the codes of a run, with servers or simulated.

    See `distaim` and `simulated`.
    """
    key = task.seed
    budget = task.setup.budget
    if task.setup.synth.selection == "simulated":  # type: ignore[attr-defined]
        return marginal_result(simulated, session, task, key=key, entropy=task.entropy)
    secret = kept_secret(task)
    return marginal_result(
        distaim, session, task, key=key, budget=budget, secret=secret
    )
