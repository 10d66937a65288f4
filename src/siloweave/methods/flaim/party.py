"""A party's side of FLAIM: it chooses queries and counts them (Maddock, Cormode & Maple 2024).

**Guarantee**: see method.py. Sensitivities are computed from the party's own workload, and every
release is paid for before it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

import msgspec
import numpy as np

from siloweave.errors import WireError
from siloweave.federation.expected import MOST_ROWS
from siloweave.federation.messages import Array, Released
from siloweave.federation.site import Handlers, Site
from siloweave.methods.flaim import messages
from siloweave.models.estimate import Measurement, moved_towards
from siloweave.models.mrf import MRF
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import (
    l1_score_sensitivity,
    marginal_sensitivity,
    size_sensitivity,
)
from siloweave.privacy.events import Exponential, Gaussian
from siloweave.protocols import secure_sums
from siloweave.protocols.workloads import expected_l1
from siloweave.statistics.marginals import marginal, sparse_marginal
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, CountedRows

# Far more than rounding to 32 bits adds to shares that sum to 1.
_FLOAT32 = 1e-3


# All parties of this process are sent the same shares in a round, so one of them decodes.
@lru_cache(maxsize=4)
def _shares(baseline: messages.Baseline) -> dict[Clique, Floats]:
    tables = (np.asarray(table.numpy(), dtype=np.float64) for table in baseline.tables)
    return dict(zip(baseline.cliques, tables, strict=True))


def _distance(site: Site[CountedRows], q: Clique, expected: Floats) -> float:
    """Compute ||M_q(D_k) - expected||_1; `expected` must not be negative.

    Only cells that hold a row are looked at: an empty cell adds what was expected of it.
    """
    if q not in site.memo:
        site.memo[q] = sparse_marginal(site.rows, q)
    cells, counts = site.memo[q]

    expected_there = expected.reshape(-1)[cells]
    gap_there = np.abs(counts - expected_there).sum()
    return float(gap_there - expected_there.sum() + expected.sum())


def _noisy_size(site: Site[CountedRows], sigma: float) -> float:
    """Return the party's number of rows n_k, with noise that is drawn once a run.

    It is exact where the relation makes the number of rows public. The paper scales by the exact
    n_k, which moves a score twice as far as accounted, see method.py.
    """
    n = site.rows.num_rows
    unit = size_sensitivity(secure_sums.neighbours_of(site))
    if unit == 0:
        return float(n)

    def draw() -> int:
        noisy_counts = mechanisms.add_gaussian(
            np.array([n]), sigma, entropy=site.entropy
        )
        return int(noisy_counts[0])

    event = Gaussian(sigma=sigma, sensitivity=unit)
    noisy_size = site.keep_private(
        event, "own number of rows, to scale the model with", draw
    )
    # Scores of a size beyond these bounds would be rounded by more than one row moves them.
    return min(max(1.0, float(noisy_size)), float(MOST_ROWS))


def _scores(
    request: messages.Select,
    weights: Sequence[float],
    site: Site[CountedRows],
    model: MRF,
    size: float,
) -> Floats:
    """Compute each candidate's score, u_k(q) = w_q (||M_q(D_k) - n_k p_q||_1 - tau_k(q) - bias).

    The bias is sqrt(2/pi) sigma n_q, what noise alone would make of the distance. tau_k(q) is how
    far the party itself is from everyone: exact (Oracle), or the mean over the columns of q
    (Private); NaiveFLAIM has none.
    """
    shares = _shares(request.baseline) if request.baseline else {}
    skews = {q: _distance(site, q, size * p) for q, p in shares.items()}
    model_scale = size / model.total

    scores = np.empty(len(weights))
    for i, (q, weight) in enumerate(zip(request.candidates, weights, strict=True)):
        gap = _distance(site, q, model.marginal(q) * model_scale)
        bias = expected_l1(request.sigma, model.domain.size(q))
        scores[i] = weight * (gap - _skew(q, skews) - bias)
    return scores


def _skew(q: Clique, skews: Mapping[Clique, float]) -> float:
    """Return the skew tau_k(q): the clique's own if it is known, else the mean over its columns."""
    if q in skews:
        return skews[q]
    return sum(skews.get((column,), 0.0) for column in q) / len(q)


def _check_baseline(request: messages.Select, site: Site[CountedRows]) -> None:
    """Refuse shares that are negative, sum to more than 1, or belong to unknown tables.

    Raises:
        WireError: Naming the party; scores would move, or be rounded, further than is paid for.
    """
    baseline = request.baseline
    if baseline is None:
        return
    domain = site.rows.domain
    secure_sums.checked_cliques(baseline.cliques, domain, site.name)

    shapes = [table.shape for table in baseline.tables]
    wanted_shapes = [domain.shape(q) for q in baseline.cliques]
    # A column without shares would count as one without skew, and tau be too small.
    columns = set[str]().union(*request.candidates)
    has_columns = all((name,) in baseline.cliques for name in columns)
    fits = shapes == wanted_shapes and has_columns
    if not fits or not all(_is_share(table) for table in baseline.tables):
        raise WireError(
            f"party {site.name!r} was sent shares of rows that are below 0, sum to more than 1, or "
            "are not of every column"
        )


def _is_share(table: Array) -> bool:
    """Return whether a table's cells can be shares of one whole, up to rounding."""
    values = np.asarray(table.numpy(), dtype=np.float64)
    return bool((values >= 0).all() and values.sum() <= 1 + _FLOAT32)


def select(request: messages.Select, site: Site[CountedRows]) -> messages.Chosen:
    """Take the s local steps of a round (Algorithm 1): choose, measure, update the model.

    What is measured here steers the next step and is not sent; `measure` counts it again.
    """
    weights = secure_sums.checked_weights(
        request.candidates, request.model, request.sigma, site
    )
    site.terms.require(site.name, local_steps=request.steps)
    _check_baseline(request, site)
    model = secure_sums.unpacked(request.model, site.rows.domain)
    size = _noisy_size(site, request.size_sigma)

    # A row moves the distance from the model by a unit, and tau_k by another (section 4.2).
    terms = 2.0 if request.baseline else 1.0
    unit = l1_score_sensitivity(secure_sums.neighbours_of(site))
    sensitivity = terms * max(weights) * unit * (1 + secure_sums.ROUNDING)

    choices: list[Released[int]] = []
    for step in range(request.steps):
        # The exponential mechanism, over scores of the party's rows alone.
        scores = _scores(request, weights, site, model, size)
        choice = _choice(site, scores, sensitivity, request.epsilon)
        choices.append(choice)

        # After the last choice no local model is needed: everyone's counts make the next one.
        if step + 1 < request.steps:
            model = _local_step(
                site, model, request.candidates[choice.value], request.sigma, size
            )

    queries = [request.candidates[choice.value] for choice in choices]
    site.remember("chosen", msgspec.msgpack.encode(queries))
    site.remember("selected", site.request_digest)
    return messages.Chosen(tuple(choices))


def _choice(
    site: Site[CountedRows], scores: Floats, sensitivity: float, epsilon: float
) -> Released[int]:
    """Pay for a choice by scores, then draw it."""

    def draw() -> int:
        return mechanisms.exponential(
            scores, sensitivity=sensitivity, epsilon=epsilon, entropy=site.entropy
        )

    return site.release(
        Exponential(epsilon), f"choice among {len(scores)} marginals", draw
    )


def _local_step(
    site: Site[CountedRows], model: MRF, q: Clique, sigma: float, size: float
) -> MRF:
    """Pay for the party's own noisy marginal, and move the model towards it.

    The paper charges nothing for it, though it decides what is chosen next; see method.py.
    """
    counts = marginal(site.rows, q)
    unit = marginal_sensitivity(secure_sums.neighbours_of(site), norm="l2")
    site.pay(
        Gaussian(sigma=sigma, sensitivity=unit),
        "local marginal that steers a later choice",
    )
    noisy_counts = mechanisms.add_gaussian(counts, sigma, entropy=site.entropy)

    # From the party's number of rows to the model's.
    scale = model.total / size
    scaled = np.asarray(noisy_counts * scale, dtype=np.float64)
    return moved_towards(model, Measurement(q, scaled, sigma * scale))


def measure(
    request: messages.MeasureQueries, site: Site[CountedRows]
) -> secure_sums.Counts:
    """Count the marginals that this party chose, with this party's share of the noise.

    It sends zeros for those that others chose, so that the coordinator sees one sum for all.
    """
    stored = site.recall("chosen")
    if stored is None:
        raise WireError(f"party {site.name!r} was asked to measure before it chose")
    chosen_queries = set(msgspec.msgpack.decode(stored, type=tuple[Clique, ...]))
    secure_sums.checked_queries(request.queries, site)

    domain = site.rows.domain
    tables = []
    for q in request.queries:
        if q in chosen_queries:
            counts = marginal(site.rows, q)
        else:
            counts = np.zeros(domain.shape(q), dtype=np.int64)
        tables.append(counts)

    title = f"its part of {len(tables)} chosen marginals"
    # A row is in one cell of each marginal that is counted here.
    contributes = max(1, sum(q in chosen_queries for q in request.queries))
    # The sum opens only among parties that chose by the same question. Without it, a coordinator
    # could send one party a model of its own, and tell from the sum what that party chose.
    select_request = site.recall("selected") or b""
    return secure_sums.masked_reply(
        request, site, tables, title, contributes=contributes, besides=select_request
    )


_WHY = "AugFLAIM (Oracle) uses true heterogeneity"
HANDLERS: Handlers = {
    **secure_sums.HANDLERS,
    messages.Select: select,
    messages.MeasureQueries: measure,
    secure_sums.CountExactly: partial(
        secure_sums.count_exactly, why=_WHY, variant="oracle"
    ),
}
"""A party's side: which function answers which request."""
