"""TwoRound over masked sums: the plan and the fit are those of protocols/two_rounds.py.

**Guarantee**: see method.py. The plan is computed from noisy counts (post-processing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING

from siloweave.core.model import Measured
from siloweave.federation.session import Session
from siloweave.models.estimate import Measurement, estimate_total
from siloweave.models.mrf import MRF
from siloweave.progress import Progress, silent
from siloweave.protocols.secure_sums import Count, SumNoise, exchange_keys, noisy_marginals
from siloweave.protocols.two_rounds import plan_and_fit
from siloweave.protocols.workload import most_counted
from siloweave.tables.codes import Clique, Domain

if TYPE_CHECKING:
    from siloweave.methods.two_round.method import TwoRound

_FINEST = 16  # most often that a table is counted in one sum


def two_round(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: TwoRound,
    *,
    unit: float = 1.0,
    keys: Mapping[str, bytes] | None = None,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Run both rounds, over one party or many; returns the model and what each round measured.

    Arguments are those of `aim` (methods/aim/coordinator.py), and the parties' keys for masks where
    a stage before has exchanged them.
    """
    keys = dict(keys or {})
    rows: dict[tuple[str, ...], float] = {}  # of the parties in a sum, the first sum's first

    def measure(
        cliques: Sequence[Clique], sigmas: Sequence[float], rho: float
    ) -> list[Measurement]:
        """Count over everyone; noise is one, so a table that needs less is counted more often.

        Where parties vanished since the first sum, the others stand for their rows.
        """
        if not keys:
            vanish = session.plan(session.roster).vanish
            keys.update(exchange_keys(session, domain, may_vanish=vanish))
        times = tuple(_times(sigmas))
        present = {name: keys[name] for name in session.present(keys)}
        sigma = unit * sqrt(sum(k * k for k in times) / (2 * rho))
        noise = SumNoise(sigma, settings.tolerated, settings.dropouts)
        sums, sigma, parties = noisy_marginals(
            session, present, domain, cliques, noise, Count, times, last=bool(rows)
        )
        found = [
            Measurement(c, y / k, sigma / k) for c, y, k in zip(cliques, sums, times, strict=True)
        ]
        rows.setdefault(parties, estimate_total(found))
        scale = max(1.0, next(iter(rows.values()))) / max(1.0, rows[parties])
        return [Measurement(m.clique, scale * m.counts, scale * m.sigma) for m in found]

    most = most_counted(domain, tuple(workload), settings.max_model_mb)
    return plan_and_fit(
        *(domain, workload, rho, settings, measure),
        unit=unit,
        allowed=lambda cliques: sum(map(domain.size, cliques)) <= most,
        progress=progress,
    )


def _times(sigmas: Sequence[float]) -> list[int]:
    """How often each table is counted, so that its noise is about in proportion to its sigma."""
    least = min(sigmas)
    if least == max(sigmas):
        return [1] * len(sigmas)
    return [max(1, round(_FINEST * least / sigma)) for sigma in sigmas]
