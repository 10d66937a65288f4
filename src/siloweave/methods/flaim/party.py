"""A party's side of FLAIM: it chooses queries and counts them (Maddock, Cormode & Maple 2024).

**Guarantee**: see method.py. Sensitivities are computed from the party's own workload, and every
release is paid for before it is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import msgspec
import numpy as np

from siloweave.errors import WireError
from siloweave.federation.expected import MOST_ROWS
from siloweave.federation.messages import Array, Released
from siloweave.federation.site import Handlers, Site
from siloweave.methods.flaim.messages import Baseline, Chosen, MeasureQueries, Select
from siloweave.models.estimate import Measurement, moved_towards
from siloweave.models.mrf import MRF
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import l1_score_sensitivity, marginal_sensitivity, size_sensitivity
from siloweave.privacy.events import Exponential, Gaussian
from siloweave.protocols.secure_sums import HANDLERS as SUMS
from siloweave.protocols.secure_sums import (
    ROUNDING,
    CountExactly,
    Counts,
    checked_cliques,
    checked_queries,
    checked_weights,
    count_exactly,
    masked_reply,
    neighbours_of,
    unpacked,
)
from siloweave.protocols.workload import expected_l1
from siloweave.statistics.marginals import marginal, sparse_marginal
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, CountedRows

_FLOAT32 = 1e-3  # far more than rounding adds to shares that sum to 1


@lru_cache(maxsize=4)
def _shares(baseline: Baseline) -> dict[Clique, Floats]:
    tables = (np.asarray(t.numpy(), dtype=np.float64) for t in baseline.tables)
    return dict(zip(baseline.cliques, tables, strict=True))


def _distance(site: Site[CountedRows], q: Clique, expected: Floats) -> float:
    """||M_q(D_k) - expected||_1, computed at the cells that hold a row alone (expected >= 0)."""
    if q not in site.memo:
        site.memo[q] = sparse_marginal(site.rows, q)
    cells, counts = site.memo[q]
    there = expected.reshape(-1)[cells]
    return float(np.abs(counts - there).sum() - there.sum() + expected.sum())


def _noisy_size(site: Site[CountedRows], sigma: float) -> float:
    """n_k with noise that is drawn once a run; exact where the relation makes it public."""
    n = site.rows.num_rows
    unit = size_sensitivity(neighbours_of(site))
    if unit == 0:
        return float(n)
    event = Gaussian(sigma=sigma, sensitivity=unit)
    noisy = site.keep_private(
        event,
        "own number of rows, to scale the model with",
        lambda: int(mechanisms.add_gaussian(np.array([n]), sigma, entropy=site.entropy)[0]),
    )
    return min(max(1.0, float(noisy)), float(MOST_ROWS))  # else scores round more than a row moves


def _scores(
    request: Select, weights: Sequence[float], site: Site[CountedRows], model: MRF, size: float
) -> Floats:
    """u_k(q) = w_q (||M_q(D_k) - n_k p_q||_1 - tau_k(q) - sqrt(2/pi) sigma n_q).

    tau_k(q) is the party's own distance from everyone: exact (Oracle), or the mean of its columns'
    (Private).
    """
    shares = _shares(request.baseline) if request.baseline else {}
    own = {q: _distance(site, q, size * p) for q, p in shares.items()}
    scores = np.empty(len(weights))
    for i, (q, w) in enumerate(zip(request.candidates, weights, strict=True)):
        gap = _distance(site, q, model.marginal(q) * (size / model.total))
        tau = own[q] if q in own else sum(own.get((j,), 0.0) for j in q) / len(q)
        scores[i] = w * (gap - tau - expected_l1(request.sigma, model.domain.size(q)))
    return scores


def _check_baseline(request: Select, site: Site[CountedRows]) -> None:
    """Refuse shares that are negative, sum to more than 1, or of other tables than the party's.

    Raises:
        WireError: Naming the party; scores would move, or be rounded, further than is paid for.
    """
    if (baseline := request.baseline) is None:
        return
    domain = site.rows.domain
    checked_cliques(baseline.cliques, domain, site.name)
    fits = [table.shape for table in baseline.tables] == [domain.shape(q) for q in baseline.cliques]
    alone = all((name,) in baseline.cliques for q in request.candidates for name in q)
    if not (fits and alone and all(_is_share(table) for table in baseline.tables)):
        raise WireError(
            f"party {site.name!r} was sent shares of rows that are below 0, sum to more than 1, or "
            "are not of every column"
        )


def _is_share(table: Array) -> bool:
    values = np.asarray(table.numpy(), dtype=np.float64)
    return bool((values >= 0).all() and values.sum() <= 1 + _FLOAT32)


def select(request: Select, site: Site[CountedRows]) -> Chosen:
    """s local steps: choose by the exponential mechanism, measure locally, update the model."""
    weights = checked_weights(request.candidates, request.model, request.sigma, site)
    site.terms.require(site.name, local_steps=request.steps)
    _check_baseline(request, site)
    model = unpacked(request.model, site.rows.domain)
    size = _noisy_size(site, request.size_sigma)
    terms = 2.0 if request.baseline else 1.0
    unit = l1_score_sensitivity(neighbours_of(site))
    sensitivity = terms * max(weights) * unit * (1 + ROUNDING)
    chosen: list[Released[int]] = []
    for step in range(request.steps):
        scores = _scores(request, weights, site, model, size)
        chosen.append(
            site.release(
                Exponential(request.epsilon),
                f"choice among {len(scores)} marginals",
                lambda scores=scores: mechanisms.exponential(  # type: ignore[misc]
                    scores, sensitivity=sensitivity, epsilon=request.epsilon, entropy=site.entropy
                ),
            )
        )
        if step + 1 < request.steps:
            q = request.candidates[chosen[-1].value]
            model = _local_step(site, model, q, request.sigma, size)
    queries = [request.candidates[c.value] for c in chosen]
    site.remember("chosen", msgspec.msgpack.encode(queries))
    site.remember("selected", site.asked)
    return Chosen(tuple(chosen))


def _local_step(site: Site[CountedRows], model: MRF, q: Clique, sigma: float, size: float) -> MRF:
    exact = marginal(site.rows, q)
    unit = marginal_sensitivity(neighbours_of(site), norm="l2")
    site.pay(Gaussian(sigma=sigma, sensitivity=unit), "local marginal that steers a later choice")
    noisy = mechanisms.add_gaussian(exact, sigma, entropy=site.entropy)
    scale = model.total / size
    return moved_towards(
        model, Measurement(q, np.asarray(noisy * scale, dtype=np.float64), sigma * scale)
    )


def measure(request: MeasureQueries, site: Site[CountedRows]) -> Counts:
    """The marginals this party chose, zeros for the others, with its share of the noise."""
    if (stored := site.recall("chosen")) is None:
        raise WireError(f"party {site.name!r} was asked to measure before it chose")
    mine = set(msgspec.msgpack.decode(stored, type=tuple[Clique, ...]))
    domain = site.rows.domain
    checked_queries(request.queries, site)
    tables = [
        marginal(site.rows, q) if q in mine else np.zeros(domain.shape(q), dtype=np.int64)
        for q in request.queries
    ]
    what = f"its part of {len(tables)} chosen marginals"
    added = sum(q in mine for q in request.queries)
    model = site.recall("selected") or b""
    return masked_reply(request, site, tables, what, contributes=max(1, added), besides=model)


_WHY = "AugFLAIM (Oracle) uses true heterogeneity"
HANDLERS: Handlers = {
    **SUMS,
    Select: select,
    MeasureQueries: measure,
    CountExactly: partial(count_exactly, why=_WHY, variant="oracle"),
}
"""A party's side: which function answers which request."""
