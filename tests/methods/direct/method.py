"""Every query of the workload counted once in one masked sum, and the model that follows.

Dwork, McSherry, Nissim & Smith 2006, "Calibrating noise to sensitivity in private data analysis",
over masked sums (Bonawitz et al. 2017).

**Guarantee** (dp): rows, add/remove or replace-one as each party's budget says, towards the
coordinator together with at most `tolerated` parties, and everyone who sees the model. A row is in
one cell of every table of one sum. Assumed public: domain, roster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import ClassVar

from siloweave.core import views
from siloweave.core.method import Guarantee, Method
from siloweave.core.model import Measured
from siloweave.core.run import Synthesizer
from siloweave.core.views import View
from siloweave.errors import whole
from siloweave.federation.session import Session
from siloweave.models.estimate import Measurement, fit
from siloweave.models.mrf import MRF
from siloweave.progress import Progress
from siloweave.protocols import marginals, secure_sums, workloads
from siloweave.tables.codes import Clique, Domain


def direct(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: Direct,
    *,
    unit: float,
    progress: Progress,
) -> tuple[MRF, list[Measured]]:
    """Count all queries over all parties, once, and fit the model to the counts."""
    queries: list[Clique] = []
    for query in workload:
        queries += workloads.fitting(domain, {query: 1.0}, queries, settings.max_model_mb)
    keys = secure_sums.exchange_keys(session, domain)
    noise = secure_sums.SumNoise(unit * sqrt(len(queries) / (2 * rho)), settings.tolerated)
    tables, sigma, _ = secure_sums.noisy_marginals(session, keys, domain, queries, noise)
    counts = [Measurement(q, table, sigma) for q, table in zip(queries, tables, strict=True)]
    return fit(domain, counts), [Measured(tuple(queries), sigma)]


@dataclass(frozen=True)
class Direct(Synthesizer, workloads.MarginalSettings):
    """Every query once; those that the model has no room for are left out.

    Args:
        degree, queries, workload, bins, counts_share, max_model_mb: See `MarginalSettings`.
        tolerated: Parties that may pool what they know with the coordinator.
    """

    tolerated: int = 1

    method: ClassVar[Method] = marginals.marginal_method(
        name="direct",
        title="Direct",
        split="rows",
        trust="secure-sum",
        paper="Dwork, McSherry, Nissim & Smith 2006, TCC",
        guarantee=lambda synth: Guarantee("dp", "Every row of every party, against everyone."),
        visibility=lambda synth: (
            views.OWN_ROWS,
            views.masked_sums(synth.tolerated),
            View(views.OTHERS, "where columns are cut", views.OTHERS_NOISE, ("Count",)),
            views.READERS,
        ),
        handlers=lambda synth: secure_sums.HANDLERS,
        coordinate=partial(marginals.marginal_result, direct),
        forecast=marginals.marginal_forecast(
            lambda setup, rows, domain: (1, 1.0),  # rounds, and how many of them a party joins
            lambda setup, columns: {secure_sums.KeyRequest: 1, secure_sums.Count: 1},
        ),
    )

    def _check_settings(self) -> None:
        """Refuse a number of parties that cannot be."""
        whole("tolerated", self.tolerated, 1)
