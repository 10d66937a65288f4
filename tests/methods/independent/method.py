"""Independent columns: noisy counts of every column, and nothing between columns.

Dwork, McSherry, Nissim & Smith 2006, "Calibrating noise to sensitivity in private data analysis",
over masked sums (Bonawitz et al. 2017).

**Guarantee** (dp): rows, add/remove or replace-one as each party's budget says, towards the
coordinator together with at most `tolerated` parties, and everyone who sees the model. A row is in
one cell of every table of one sum. Assumed public: domain, roster.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from siloweave.core.fit import MarginalModel, Measured
from siloweave.core.method import (
    OTHERS,
    OTHERS_NOISE,
    OWN_ROWS,
    READERS,
    Guarantee,
    Method,
    Result,
    Task,
    View,
    masked_sums,
)
from siloweave.core.run import Synthesizer
from siloweave.federation.session import Session
from siloweave.models.estimate import Measurement, fit
from siloweave.protocols import marginals
from siloweave.protocols.secure_sums import HANDLERS, Count, SumNoise, exchange_keys, noisy_sums


def coordinate(session: Session, task: Task) -> Result:
    """Count every column over all parties, once, and fit a model without edges."""
    domain = marginals.encoder_of(task.setup).domain
    singles = tuple((name,) for name in domain.names)
    unit = marginals.unit_of(task.setup)
    noise = SumNoise(unit * sqrt(len(singles) / (2 * task.rho)), task.setup.synth.tolerated)
    cells, parties = sum(domain.sizes), len(session.roster)
    share, missing = noise.share(parties, cells)
    request = Count(exchange_keys(session, domain), share, missing, singles)
    tables = noisy_sums(session, request, [domain.shape(one) for one in singles])
    sigma = noise.total(parties, cells)
    model = fit(domain, [Measurement(c, y, sigma) for c, y in zip(singles, tables, strict=True)])
    return marginals.marginal_result(task.setup, singles, (model, [Measured(singles, sigma)]))


@dataclass(frozen=True)
class Independent(Synthesizer, marginals.MarginalSettings):
    """Every column by itself.

    Args:
        degree, queries, workload, bins, counts_share, max_model_mb: See `MarginalSettings`.
        tolerated: Parties that may pool what they know with the coordinator.
    """

    tolerated: int = 1

    method: ClassVar[Method] = Method(
        name="independent",
        title="Independent",
        family="graphical model",
        split="rows",
        trust="secure-sum",
        paper="Dwork, McSherry, Nissim & Smith 2006, TCC",
        guarantee=lambda synth: Guarantee("dp", "Every row of every party, against everyone."),
        visibility=lambda synth: (
            OWN_ROWS,
            masked_sums(synth.tolerated),
            View(OTHERS, "where columns are cut", OTHERS_NOISE, ("Count",)),
            READERS,
        ),
        before=marginals.BEFORE,
        prepare=marginals.coded,
        facts=marginals.marginal_facts,
        handlers=lambda synth: HANDLERS,
        coordinate=coordinate,
        load=MarginalModel.load,
        forecast=marginals.marginal_forecast(lambda synth, columns: (1, 1.0)),
    )
