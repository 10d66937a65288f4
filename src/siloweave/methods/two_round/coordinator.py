"""TwoRound over masked sums: the plan and the fit are those of protocols/two_rounds.py.

**Guarantee**: see method.py. The plan is computed from noisy counts (post-processing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

from siloweave.core.model import Measured
from siloweave.federation.session import Session
from siloweave.methods.two_round.settings import TwoRoundFitSettings
from siloweave.models.estimate import Measurement, estimate_total
from siloweave.models.mrf import MRF
from siloweave.progress import Progress, silent
from siloweave.protocols import secure_sums
from siloweave.protocols.two_rounds import plan_and_fit
from siloweave.protocols.workloads import most_counted
from siloweave.tables.codes import Clique, Domain

_FINEST = 16  # most often that a table is counted in one sum


def two_round(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: TwoRoundFitSettings,
    *,
    unit: float = 1.0,
    keys: Mapping[str, bytes] | None = None,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Run both rounds, over one party or many; return the model and what each measured.

    Arguments are those of `aim` (methods/aim/coordinator.py), and the parties' keys for masks where
    a stage before has exchanged them.
    """
    run = _Run(session, domain, settings, unit, dict(keys or {}))
    most_cells = most_counted(domain, tuple(workload), settings.max_model_mb)

    def is_allowed(cliques: Sequence[Clique]) -> bool:
        return sum(map(domain.size, cliques)) <= most_cells

    return plan_and_fit(
        domain,
        workload,
        rho,
        settings,
        run.measure,
        unit=unit,
        allowed=is_allowed,
        progress=progress,
    )


@dataclass
class _Run:
    """The way in which both rounds are measured.

    Attributes:
        keys: The parties' keys for masks; empty until they are exchanged.
        rows: About how many rows the parties of a sum have, the first sum's parties first.
    """

    session: Session
    domain: Domain
    settings: TwoRoundFitSettings
    unit: float
    keys: dict[str, bytes]
    rows: dict[tuple[str, ...], float] = field(default_factory=dict)

    def measure(
        self, cliques: Sequence[Clique], sigmas: Sequence[float], rho: float
    ) -> list[Measurement]:
        """Measure tables over all parties, in one sum with one width of noise.

        A table that needs less noise is counted more often.

        Where parties vanished since the first sum, the others stand for their rows.
        """
        session = self.session
        if not self.keys:
            vanish = session.plan(session.roster).vanish
            self.keys.update(
                secure_sums.exchange_keys(session, self.domain, may_vanish=vanish)
            )
        present = {name: self.keys[name] for name in session.present(self.keys)}

        # A table that is counted k times moves by k units where a row does: sigma is for all.
        times = tuple(_times(sigmas))
        sigma = self.unit * sqrt(sum(k * k for k in times) / (2 * rho))
        noise = secure_sums.SumNoise(
            sigma, self.settings.tolerated, self.settings.dropouts
        )
        is_last = bool(self.rows)
        sums, sigma, parties = secure_sums.noisy_marginals(
            session,
            present,
            self.domain,
            cliques,
            noise,
            secure_sums.Count,
            times,
            last=is_last,
        )
        measurements = [
            Measurement(clique, counts / k, sigma / k)
            for clique, counts, k in zip(cliques, sums, times, strict=True)
        ]

        # Scale what fewer parties counted to the rows of the first sum.
        self.rows.setdefault(parties, estimate_total(measurements))
        first_rows = next(iter(self.rows.values()))
        scale = max(1.0, first_rows) / max(1.0, self.rows[parties])
        return [
            Measurement(m.clique, scale * m.counts, scale * m.sigma)
            for m in measurements
        ]


def _times(sigmas: Sequence[float]) -> list[int]:
    """Return how often to count each table, so that its noise is about as wide as its sigma."""
    least = min(sigmas)
    if least == max(sigmas):
        return [1] * len(sigmas)
    return [max(1, round(_FINEST * least / sigma)) for sigma in sigmas]
