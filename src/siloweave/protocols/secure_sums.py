"""Noisy marginals of a cohort: the masked sum that every method of marginals is built on.

Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning" (sums
under masks); Kairouz, Liu & Steinke 2021, "The distributed discrete Gaussian mechanism for
federated learning with secure aggregation" (noise added in shares before masking). Where parties
may vanish, one more question opens the sum of those that did not (federation/dropouts.py).

**Guarantee**: rows, add/remove or replace-one as the party's own budget says. Each party charges
its ledger for the whole request before it draws its share of the noise, and computes the
sensitivity itself, from the number of marginals that it contributes to. The claim holds towards
the coordinator together with at most `tolerated` parties of the cohort, also if as many vanish as
the study says: their shares of the noise are paid for as missing. One party alone in a cohort adds
all the noise itself. Assumed public: domain, cliques, roster and cohort, and who vanished when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from siloweave.core.method import Forecast, QuestionCounts, Setup
from siloweave.errors import InputError, RosterError, SchemaError, WireError
from siloweave.federation import dropouts
from siloweave.federation.expected import MOST_ROWS, WHOLE, WORDS, CheckedReply
from siloweave.federation.masking import unmask_sum
from siloweave.federation.messages import (
    MAX_BYTES,
    Array,
    Masked,
    Public,
    Recovery,
    Released,
    Reply,
    Request,
)
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.models.junction_tree import cells_in, tree_cells
from siloweave.models.mrf import MRF
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Neighbours, marginal_sensitivity, share_sigma
from siloweave.privacy.events import Gaussian, NonPrivate, SharedGaussian
from siloweave.protocols.workloads import StudyWorkload, known_weights
from siloweave.statistics.marginals import marginal
from siloweave.tables.arrays import Ints
from siloweave.tables.codes import Clique, CountedRows, Domain
from siloweave.tables.keys import Key, fold_in, generator

# Messages


class MaskKey(Reply, frozen=True):
    """A party's key for masks, and how many codes each of its columns has."""

    key: Public[bytes]
    names: Public[tuple[str, ...]]
    sizes: Public[tuple[int, ...]]


class KeyRequest(Request[MaskKey], frozen=True, tag="sum/send_key"):
    """Send your key for masks, and how many codes each of your columns has."""


class Counts(Reply, frozen=True):
    """A party's counts with its share of the noise, under its masks: one part of a sum.

    Marginals are flat, and one after the other.
    """

    sums: Masked


class Cohort(Request[Counts], frozen=True, tag="sum/cohort"):
    """What every masked sum says about itself: who takes part, and how much noise each adds."""

    keys: dict[str, bytes]
    share_sigma: float
    tolerated: int


class MaskShares(Reply, frozen=True):
    """A party's shares of the masks that are still in a sum, by active party."""

    shares: Public[dict[str, bytes]]


class OpenSum(Request[MaskShares], frozen=True, tag="sum/open"):
    """Open the sum of a step, your last: active parties are in it, the others are dead."""

    sum_step: int
    active: tuple[str, ...]
    dead: tuple[str, ...]
    sealed: dict[str, bytes]  # by each active party, for the one that is asked


class Count(Cohort, frozen=True, tag="sum/count"):
    """Count the rows for each combination of codes of these sets of columns.

    A set is counted as often as its `times` says, or once if that is empty.
    Noise is the same on every number of a sum, so a table that is counted k times over and then
    divided by k has a k-th of it, and its rows pay for it k^2 times over.
    """

    cliques: tuple[Clique, ...]
    times: tuple[int, ...] = ()


class ExactCounts(Reply, frozen=True):
    """Exact marginals. Only baselines without a guarantee ask for them."""

    tables: tuple[Released[Array], ...]


class CountExactly(Request[ExactCounts], frozen=True, tag="sum/exact"):
    """Count these cliques without privacy."""

    cliques: tuple[Clique, ...]


class ModelMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A model as it travels: potentials in float32."""

    cliques: tuple[Clique, ...]
    tables: tuple[Array, ...]
    total: float

    @classmethod
    def of(cls, model: MRF) -> ModelMessage:
        """Pack a graphical model into a message."""
        tables = tuple(Array.of(table, "<f4") for table in model.potentials.values())
        return cls(tuple(model.potentials), tables, model.total)


@lru_cache(maxsize=1)
def unpacked(message: ModelMessage, domain: Domain) -> MRF:
    """Unpack the model in a message, over the receiver's domain; a round's copies share it."""
    tables = [np.asarray(table.numpy(), dtype=np.float64) for table in message.tables]
    return MRF(domain, dict(zip(message.cliques, tables, strict=True)), message.total)


# Party

_CELLS = MAX_BYTES // 4  # numbers in a masked sum, at most: a reply holds no more
_SEALED_BYTES = 250  # around a sealed share, sent and relayed, with names
_MOST_TIMES = 2**20  # often enough, and a count times it stays within 64 bits
ROUNDING = 2.0**-20
"""What sums in 64-bit floats may add to how far a row moves a score, as a share of it: distances
add up at most 2^33 rows."""


def workload_of(site: Site[Any]) -> StudyWorkload:
    """Return the workload of the study that a party takes part in."""
    workload: StudyWorkload = site.terms.facts["workload"]
    return workload


def checked_cliques(cliques: Sequence[Clique], domain: Domain, party: str) -> None:
    """Refuse sets of columns that the party does not have, or in another order than its own.

    Raises:
        WireError: Naming the party and the set.
    """
    for clique in cliques:
        has_columns = all(name in domain.names for name in clique)
        if not (clique and has_columns and domain.canonical(clique) == clique):
            raise WireError(
                f"party {party!r} was asked about the columns {clique}; it has "
                f"{', '.join(domain.names)}, and each is named once, in this order"
            )
    if len(set(cliques)) < len(cliques):
        raise WireError(
            f"party {party!r} was asked about the same columns twice in one request"
        )


def checked_model(
    message: ModelMessage, domain: Domain, megabytes: float, party: str
) -> None:
    """Refuse a model that is not over these columns, or is larger than the study allows.

    Raises:
        WireError: Naming the party and what is wrong.
    """
    checked_cliques(message.cliques, domain, party)
    shapes = [domain.shape(clique) for clique in message.cliques]
    if [table.shape for table in message.tables] != shapes:
        raise WireError(
            f"party {party!r} was sent a model whose tables do not fit its cliques"
        )
    for table in message.tables:
        table.numpy()  # refuses numbers that are not finite
    if not 0 < message.total <= MOST_ROWS:
        raise WireError(f"party {party!r} was sent a model of {message.total:g} rows")
    # A larger model would take the party's memory: it lays out the tree of what it was sent.
    most = cells_in(megabytes) + sum(domain.sizes)
    cells = tree_cells(domain, message.cliques)
    if cells > most:
        raise WireError(
            f"party {party!r} was sent a model that takes {cells:,} cells; the study allows "
            f"{most:,.0f}"
        )


def checked_weights(
    candidates: Sequence[Clique],
    model: ModelMessage,
    sigma: float,
    site: Site[CountedRows],
) -> list[float]:
    """Check candidates, and return their weights by the party's own copy of the workload.

    Raises:
        WireError: There is no candidate, or one that the workload does not hold; the model is not
            one over the party's columns, or too large; the noise has no finite width.
    """
    domain = site.rows.domain
    workload = workload_of(site)
    checked_cliques(candidates, domain, site.name)
    checked_model(model, domain, workload.megabytes, site.name)

    weights = workload.weights(domain)
    if not candidates or any(clique not in weights for clique in candidates):
        raise WireError(
            f"party {site.name!r} was asked to choose among {len(candidates)} sets of columns, "
            "and the study's workload does not hold all of them"
        )
    if not 0 <= sigma <= MOST_ROWS:
        raise WireError(f"party {site.name!r} was sent noise of width {sigma:g}")
    return [weights[clique] for clique in candidates]


def checked_queries(queries: Sequence[Clique], site: Site[CountedRows]) -> None:
    """Refuse queries that are not in the study's workload, or that no reply could hold.

    Raises:
        WireError: Naming the party. No table was made.
    """
    domain = site.rows.domain
    checked_cliques(queries, domain, site.name)
    weights = known_weights(domain, workload_of(site).queries)
    cells = sum(map(domain.size, queries))
    is_repeated = len(set(queries)) < len(queries)
    if is_repeated or cells > _CELLS or any(query not in weights for query in queries):
        raise WireError(
            f"party {site.name!r} was asked for {len(queries)} marginals of {cells:,} cells; each "
            f"must be in the study's workload, once, and {_CELLS:,} cells are the most"
        )


def send_key(request: KeyRequest, site: Site[CountedRows]) -> MaskKey:
    """Send the party's key and the domain of its rows: public facts only."""
    why = "declared in the study's schema"
    domain = site.rows.domain
    return MaskKey(
        site.mask_key(), Public(domain.names, why), Public(domain.sizes, why)
    )


def neighbours_of(site: Site[Any]) -> Neighbours:
    """Return the neighbours of this party's budget: the relation, and a unit's rows."""
    return site.ledger.limit.neighbours if site.ledger.limit else Neighbours()


def release_noisy(
    site: Site[Any], event: Gaussian, label: str, exact: Ints
) -> Released[Array]:
    """Pay for whole numbers of a party's own, then add the noise of `event` to each."""

    def draw() -> Array:
        noisy = mechanisms.add_gaussian(exact, event.sigma, entropy=site.entropy)
        return Array.of(noisy, "<i8")

    return site.release(event, label, draw)


def masked_reply(
    request: Cohort,
    site: Site[Any],
    tables: Sequence[npt.NDArray[np.int64]],
    label: str,
    *,
    contributes: int,
    besides: bytes = b"",
) -> Counts:
    """Charge for a sum's tables, add this party's share of the noise, and mask them.

    Args:
        request: Cohort and noise.
        site: The party.
        tables: Exact counts, zeros where this party adds nothing.
        label: The release in words.
        contributes: To how many of the tables a row of this party is added (once each).
        besides: What else all parties of the sum must have received, see `Site.release_masked`.
    """
    flat = np.concatenate([table.reshape(-1) for table in tables])
    unit = marginal_sensitivity(neighbours_of(site), norm="l2")
    event = SharedGaussian(
        share_sigma=request.share_sigma,
        shares=len(request.keys),
        tolerated=request.tolerated,
        sensitivity=sqrt(contributes) * unit,
        dimension=flat.size,
    )
    return Counts(site.release_masked(event, label, flat, request.keys, besides))


def open_sum(request: OpenSum, site: Site[Any]) -> MaskShares:
    """Send shares of seeds that were drawn for this sum alone."""
    shares = site.open_shares(
        request.sum_step, request.active, request.dead, request.sealed
    )
    return MaskShares(Public(shares, "shares of masks, drawn without looking at rows"))


def count(request: Count, site: Site[CountedRows]) -> Counts:
    """Count the cliques over all rows of the party, with noise and masks."""
    domain = site.rows.domain
    checked_cliques(request.cliques, domain, site.name)

    times = request.times or (1,) * len(request.cliques)
    fits = len(times) == len(request.cliques) > 0
    cells = sum(domain.size(clique) for clique in request.cliques)
    most = min(_CELLS, workload_of(site).most_cells(domain))
    if not fits or not 1 <= min(times) <= max(times) <= _MOST_TIMES or cells > most:
        raise WireError(
            f"party {site.name!r}: {len(request.cliques)} sets of columns, each counted as often "
            f"as times={times[:8]} says, do not make a sum: one number from 1 to {_MOST_TIMES:,} "
            f"for each, and by the study's workload and max_model_mb {most:,} cells at most"
        )

    counts = site.rows.count(request.cliques)
    tables = [number * table for table, number in zip(counts, times, strict=True)]
    names = ", ".join("×".join(clique) for clique in request.cliques[:8])
    if len(tables) > 8:
        names += ", …"
    label = f"{len(tables)} marginals: {names}"

    # A table that is counted k times over moves k times as far, so it pays for k^2 tables.
    contributes = sum(number * number for number in times)
    return masked_reply(request, site, tables, label, contributes=contributes)


def count_exactly(
    request: CountExactly, site: Site[CountedRows], *, why: str, **study: Any
) -> ExactCounts:
    """Release exact marginals at infinite cost, if the study's settings are as in `study`."""
    site.terms.require(site.name, **study)
    checked_queries(request.cliques, site)

    def draw(clique: Clique) -> Array:
        return Array.of(marginal(site.rows, clique), "<u4")

    tables: list[Released[Array]] = []
    for clique in request.cliques:
        label = "exact marginal " + "×".join(clique)
        tables.append(site.release(NonPrivate(why), label, partial(draw, clique)))
    return ExactCounts(tuple(tables))


OPENING: Handlers = {OpenSum: open_sum}
"""A party's side of opening a masked sum from which parties vanished."""

HANDLERS: Handlers = {KeyRequest: send_key, Count: count, **OPENING}
"""A party's side of a masked sum."""


# Coordinator


def with_openings(questions: QuestionCounts, setup: Setup) -> QuestionCounts:
    """Add to a party's questions one more for each sum where parties may vanish."""
    if not _plan_of(setup, len(setup.roster)).vanish:
        return questions
    sums = sum(number for kind, number in questions.items() if issubclass(kind, Cohort))
    return {**questions, OpenSum: sums}


def with_dropouts(forecast: Forecast, setup: Setup, cohort: float) -> Forecast:
    """Add to a forecast the cost of parties that may vanish.

    Args:
        forecast: The forecast without that.
        setup: The run's public facts.
        cohort: Parties of a sum, about.

    Raises:
        InputError: So many parties of this roster cannot vanish.
    """
    if not setup.dropouts:
        return forecast
    dropouts.MaskPlan.require(len(setup.roster), setup.tolerated, setup.dropouts)
    plan = _plan_of(setup, round(cohort))
    questions = with_openings(forecast.questions, setup)

    # Of each party: shares of its seeds, sealed and opened, and digests of the seeds.
    sums = questions[OpenSum]
    size = len(plan.names)
    seeds = 1 + len(plan.neighbours[plan.names[0]])
    shares_bytes = 2 * dropouts.SEED * seeds
    digest_bytes = dropouts.SEED * (1 + plan.vanish)
    sum_bytes = size * (shares_bytes + _SEALED_BYTES + digest_bytes)
    noun = "party" if setup.dropouts == 1 else "parties"
    note = (
        f"{setup.dropouts} {noun} of a sum may vanish (in cohorts of {size}: {plan.vanish}): one "
        f"more question for each of {sums:,} sums, {sum_bytes / 1e3:,.0f} kB more to and from a "
        f"party, and noise for {size - plan.missing} shares of {size} instead of "
        f"{size - plan.colluders}"
    )
    return replace(
        forecast,
        questions=questions,
        bytes_per_party=forecast.bytes_per_party + sum_bytes * sums,
        notes=(*forecast.notes, note),
        waits=forecast.waits + forecast.waits * 2 // 3,
    )


def _plan_of(setup: Setup, size: int) -> dropouts.MaskPlan:
    """Return how a sum of so many parties is masked."""
    return dropouts.MaskPlan.for_size(size, setup.tolerated, setup.dropouts)


@dataclass(frozen=True)
class SumNoise:
    """The noise of a cohort's sum, which suffices without the shares of colluders and dropouts.

    Shares are a little wider than sigma / sqrt(shares), because a sum of discrete Gaussians is not
    quite one: a table of sensitivity 1 or more costs no more than it would with one draw of sigma.
    """

    sigma: float
    tolerated: int
    dropouts: int = 0

    def share(self, size: int, cells: int = 2**20) -> tuple[float, int]:
        """Return each party's sigma, and how many shares a cohort of `size` can do without.

        Args:
            size: Parties in the cohort.
            cells: Numbers in the sum, or more.
        """
        plan = dropouts.MaskPlan.for_size(size, self.tolerated, self.dropouts)
        missing = plan.missing
        rho = 1 / (2 * self.sigma**2)
        sigma = share_sigma(
            rho, sensitivity=1.0, shares=size, tolerated=missing, dimension=cells
        )
        return sigma, missing


class NoisySum(NamedTuple):
    """A sum of tables, and the parties whose counts and noise are in it."""

    tables: list[npt.NDArray[np.float64]]
    parties: tuple[str, ...]


def exchange_keys(
    session: Session, domain: Domain, *, may_vanish: int = 0
) -> dict[str, bytes]:
    """Collect the keys of all parties that are there, once their rows are surely coded alike.

    Raises:
        RosterError: More parties are not there than `may_vanish`.
        SchemaError: Naming the party and the columns that differ from the study's domain.
    """
    keys: dict[str, bytes] = {}
    study_sizes = dict(zip(domain.names, domain.sizes, strict=True))
    requests = dict.fromkeys(session.roster, KeyRequest())
    for name, reply in session.ask_present(requests, may_vanish).items():
        sizes = sizes_of(name, reply)
        if sizes != study_sizes or reply.names.value != domain.names:
            columns = sorted(
                column
                for column in sizes | study_sizes
                if sizes.get(column) != study_sizes.get(column)
            )
            raise SchemaError(
                f"party {name!r} codes its rows differently in: "
                f"{', '.join(columns) or 'the order of the columns'}; give all parties one schema"
            )
        keys[name] = CheckedReply(name).mask_key("key", reply.key.value)
    return keys


def sizes_of(party: str, reply: MaskKey) -> dict[str, int]:
    """Return how many codes each of a party's columns has.

    Raises:
        WireError: A column's number is missing; names the party.
    """
    names = reply.names.value
    sizes = CheckedReply(party).items("sizes", reply.sizes.value, count=len(names))
    return dict(zip(names, sizes, strict=True))


def smallest_drawn(participation: float, parties: int) -> int:
    """Return the fewest parties that `drawn_cohort` draws: two where there are two."""
    return parties if participation == 1 else min(2, parties)


def drawn_cohort(
    roster: Sequence[str],
    participation: float,
    key: Key,
    *,
    vanished: Set[str] = frozenset(),
) -> list[str]:
    """Draw each party with probability `participation`, again while fewer than two join.

    Of a cohort of one, the coordinator would see that party's own noisy counts. Parties that
    vanished are drawn with the others, so that these join as they would without them, and left out.
    """
    least = min(2, len(set(roster) - vanished))
    for attempt in range(1000):
        joins = generator(fold_in(key, attempt)).random(len(roster)) < participation
        joining = [name for name, join in zip(roster, joins, strict=True) if join]
        cohort = [name for name in joining if name not in vanished]
        if len(cohort) >= least > 0:
            return cohort
    raise InputError(
        f"participation={participation} leaves fewer than {least} of {len(roster)} parties in "
        "every round; give more"
    )


def noisy_sums(
    session: Session,
    request: Cohort,
    shapes: Sequence[tuple[int, ...]],
    *,
    last: bool = False,
) -> NoisySum:
    """Ask a cohort for masked marginals, and return their sum: one table per shape.

    `last` is as of `Session.ask`.

    Raises:
        RosterError: More parties did not answer than may vanish; names them. Nothing was opened.
        WireError: A party sent words, or shares, that are no part of this sum; names it.
    """
    cohort = [name for name in session.roster if name in request.keys]
    if not cohort:
        raise RosterError("a sum over no party was asked for; raise participation")
    plan = session.plan(cohort)
    step = session.rounds
    # Where nobody may vanish, all masks cancel, and one question is enough.
    if not plan.vanish:
        replies = zip(cohort, session.ask(request, cohort, last=last), strict=True)
        return NoisySum(summed(replies, shapes), tuple(cohort))

    # First question: masked counts. Who does not answer is dead for this sum.
    masked = session.ask_present(dict.fromkeys(cohort, request), plan.vanish)
    active = tuple(masked)
    dead = tuple(name for name in cohort if name not in masked)
    recoveries = {name: _recovery(name, reply, plan) for name, reply in masked.items()}

    # Second question: shares of the masks that are still in the sum.
    requests: dict[str, OpenSum] = {}
    for name in active:
        sealed = {
            party: recovery.sealed[name] for party, recovery in recoveries.items()
        }
        requests[name] = OpenSum(step, active, dead, sealed)
    may_vanish = plan.vanish - len(dead)

    def enough(heard: Set[str]) -> bool:
        return len(heard) >= plan.threshold

    opened = session.ask_present(requests, may_vanish, last=last, enough=enough)
    context = f"{session.run}/{step}/1"
    return NoisySum(opened_sum(context, masked, opened, plan, shapes), active)


def noisy_marginals(
    session: Session,
    keys: Mapping[str, bytes],
    domain: Domain,
    cliques: Sequence[Clique],
    noise: SumNoise,
    request: Callable[..., Cohort] = Count,
    *more: Any,
    last: bool = False,
) -> tuple[list[npt.NDArray[np.float64]], float, tuple[str, ...]]:
    """Return marginals over the cohort members who answer, the noise's sigma, and their names.

    Args:
        session: With the parties.
        keys: Of the cohort.
        domain: Attributes and sizes.
        cliques: What is asked for.
        noise: Of the sum.
        request: The kind of request, made of a cohort's fields, the cliques, and `more`.
        *more: Other fields of the request.
        last: As of `Session.ask`.
    """
    cells = sum(domain.size(clique) for clique in cliques)
    share, missing = noise.share(len(keys), cells)
    question = request(dict(keys), share, missing, tuple(cliques), *more)
    shapes = [domain.shape(clique) for clique in cliques]
    tables, parties = noisy_sums(session, question, shapes, last=last)
    return tables, share * sqrt(len(parties)), parties


def summed(
    replies: Iterable[tuple[str, Counts]], shapes: Sequence[tuple[int, ...]]
) -> list[npt.NDArray[np.float64]]:
    """Add up the replies of a whole cohort, in which masks cancel: one table per shape.

    Raises:
        WireError: A party sent words that are no part of this sum; names it.
    """
    return _tables(unmask_sum(_words(replies, shapes)), shapes)


def opened_sum(
    context: str,
    masked: Mapping[str, Counts],
    opened: Mapping[str, MaskShares],
    plan: dropouts.MaskPlan,
    shapes: Sequence[tuple[int, ...]],
) -> list[npt.NDArray[np.float64]]:
    """Open the sum of the parties that masked something, from shares of their masks.

    Args:
        context: Run, step and number of the sum.
        masked: Their replies.
        opened: Who answered then; as many as `plan` says, or more.
        plan: Of the cohort.
        shapes: Of the tables.

    Raises:
        WireError: A party sent words, or shares, that are no part of this sum; names it.
    """
    # What every party sent with its masked counts, by which wrong shares are noticed.
    dead = [name for name in plan.names if name not in masked]
    digests = {
        name: _recovery(name, reply, plan).digests for name, reply in masked.items()
    }

    # Shares of each party's own mask, and of those that it has in common with a dead one.
    sizes = {name: dropouts.SEED * len(plan.opened(name, dead)) for name in masked}
    shares: dict[str, dict[str, bytes]] = {}
    for name, reply in opened.items():
        checked = CheckedReply(name)
        party_shares = reply.shares.value
        checked.items("shares", party_shares, count=len(masked), among=tuple(masked))
        for party, share in party_shares.items():
            checked.items(f"bytes of a share of {party!r}", share, count=sizes[party])
        shares[name] = party_shares

    # Masks of two active parties cancel in the sum; the others are taken off.
    total: Any = sum(_words(masked.items(), shapes))
    total = plan.without_masks(total, digests, shares, context.encode())
    return _tables(unmask_sum([total]), shapes)


def add_exact(
    session: Session,
    parties: Sequence[str],
    sums: Mapping[Clique, npt.NDArray[np.int64]],
) -> None:
    """Add the exact marginals of some parties to `sums`, if `sums` has any.

    Raises:
        WireError: A party sent other tables; names it.
    """
    replies = session.ask(CountExactly(tuple(sums)), parties)
    for name, reply in zip(parties, replies, strict=True):
        checked = CheckedReply(name)
        sent = checked.items("tables", reply.tables, count=len(sums))
        for total, table in zip(sums.values(), sent, strict=True):
            total += checked.array(
                "tables", table.value, WHOLE, total.shape, most=MOST_ROWS
            )


def _recovery(party: str, reply: Counts, plan: dropouts.MaskPlan) -> Recovery:
    """Return the part of a party's reply from which its masks can be opened.

    Raises:
        WireError: It is missing, or not of this plan; names the party.
    """
    checked = CheckedReply(party)
    sent = reply.sums.recovery
    if not isinstance(sent, Recovery):
        raise checked.wrong(
            "a masked sum alone", "with shares of its masks, as parties may vanish"
        )
    seeds = 1 + len(plan.neighbours[party])
    checked.items("bytes of digests", sent.digests, count=dropouts.SEED * seeds)
    checked.items("sealed shares", sent.sealed, count=len(plan.names), among=plan.names)
    return sent


def _words(
    replies: Iterable[tuple[str, Counts]], shapes: Sequence[tuple[int, ...]]
) -> list[npt.NDArray[np.uint32]]:
    size = sum(int(np.prod(shape)) for shape in shapes)
    words: list[npt.NDArray[np.uint32]] = []
    for name, reply in replies:
        words.append(CheckedReply(name).array("sums", reply.sums.words, WORDS, (size,)))
    return words


def _tables(
    total: npt.NDArray[np.int64], shapes: Sequence[tuple[int, ...]]
) -> list[npt.NDArray[np.float64]]:
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    pieces = np.split(total.astype(np.float64), ends)
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
