"""The curator's side of PrivMRF: distances of its marginals, noisy (Cai et al. 2021).

**Guarantee**: see method.py. The party computes sensitivities itself, from how many numbers it is
asked for, and pays before it draws.
"""

from __future__ import annotations

from collections.abc import Sequence

from siloweave.errors import WireError
from siloweave.federation.site import Handlers, Site
from siloweave.methods.privmrf.messages import Distances, ModelErrors, ScorePairs
from siloweave.models.junction_tree import cells_in
from siloweave.protocols import secure_sums
from siloweave.protocols.random_fields import noisy_errors, noisy_scores
from siloweave.tables.codes import Clique, CountedRows


def _check(
    cliques: Sequence[Clique], most: int, widest: int, site: Site[CountedRows]
) -> None:
    """Refuse sets of columns that are too many or too wide for the study.

    Raises:
        WireError: Naming the party and what the study allows.
    """
    domain = site.rows.domain
    most_cells = cells_in(secure_sums.workload_of(site).megabytes)
    secure_sums.checked_cliques(cliques, domain, site.name)
    # A message of a few bytes could otherwise ask for a table that no memory holds.
    fit = all(len(q) <= widest and domain.size(q) <= most_cells for q in cliques)
    if not (1 <= len(cliques) <= most and fit):
        raise WireError(
            f"party {site.name!r} was asked about {len(cliques)} sets of columns at once; the "
            f"study allows 1 to {most}, each of at most {widest} columns and {most_cells:,.0f} "
            "cells"
        )


def score(request: ScorePairs, site: Site[CountedRows]) -> Distances:
    """Send noisy R-scores of pairs."""
    num_columns = len(site.rows.domain.names)
    num_pairs = num_columns * (num_columns - 1) // 2
    _check(request.pairs, num_pairs, 2, site)
    if any(len(pair) < 2 for pair in request.pairs):
        raise WireError(
            f"party {site.name!r} was asked for the R-score of a single column"
        )
    return Distances(noisy_scores(request.pairs, request.sigma, site))


def errors(request: ModelErrors, site: Site[CountedRows]) -> Distances:
    """Send noisy L1 errors of a model's marginals."""
    facts = site.terms.facts
    domain = site.rows.domain
    _check(request.cliques, facts["candidates"], facts["widest"], site)
    megabytes = secure_sums.workload_of(site).megabytes
    secure_sums.checked_model(request.model, domain, megabytes, site.name)
    model = secure_sums.unpacked(request.model, domain)
    return Distances(noisy_errors(model, request.cliques, request.sigma, site))


HANDLERS: Handlers = {**secure_sums.HANDLERS, ScorePairs: score, ModelErrors: errors}
"""The curator's side: which function answers which request."""
