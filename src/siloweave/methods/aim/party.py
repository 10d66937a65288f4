"""The curator's side of AIM (McKenna et al. 2022, Algorithm 1, line 8).

**Guarantee**: see method.py. The party computes the sensitivity of a choice itself, from its own
copy of the workload, and pays before it draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from siloweave.federation.site import Handlers, Site
from siloweave.methods.aim.messages import Choice, SelectQuery
from siloweave.models.mrf import MRF
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import l1_score_sensitivity
from siloweave.privacy.events import Exponential
from siloweave.protocols import secure_sums
from siloweave.protocols.workloads import expected_l1
from siloweave.tables.codes import Clique, CountedRows

# In the party's memory: the last model, and how far it is from what was counted.
_GAPS = "gaps"


def select(request: SelectQuery, site: Site[CountedRows]) -> Choice:
    """Choose a clique by the exponential mechanism, and send its index.

    The score is q_r = w_r (||M_r(D) - M_r(p)||_1 - sqrt(2/pi) sigma n_r).
    """
    candidates = request.candidates
    weights = secure_sums.checked_weights(
        candidates, request.model, request.sigma, site
    )
    model = secure_sums.unpacked(request.model, site.rows.domain)

    # A candidate's distance from the model less what its noise would hide, by its weight.
    gaps = _gaps_to(model, candidates, site)
    noise = [
        expected_l1(request.sigma, model.domain.size(clique)) for clique in candidates
    ]
    distances = np.asarray([gaps[clique] for clique in candidates])
    scores = np.asarray(weights) * (distances - noise)

    # A row moves a distance by the unit, and a score by that times its weight; floats round.
    unit = l1_score_sensitivity(secure_sums.neighbours_of(site))
    sensitivity = max(weights) * unit * (1 + secure_sums.ROUNDING)
    index = site.release(
        Exponential(request.epsilon),
        f"choice among {len(scores)} marginals",
        lambda: mechanisms.exponential(
            scores,
            sensitivity=sensitivity,
            epsilon=request.epsilon,
            entropy=site.entropy,
        ),
    )
    return Choice(index)


def _gaps_to(
    model: MRF, cliques: Sequence[Clique], site: Site[CountedRows]
) -> dict[Clique, float]:
    """Return the L1 distances of cliques' counts from a model's marginals, by clique.

    The result may hold further cliques.

    Counts are stored in the party's memory for all rounds, and distances for one model, since a
    round asks about the same model several times.
    """
    stored_model, _ = site.memo.get(_GAPS, (None, None))
    if stored_model is not model:
        site.memo[_GAPS] = (model, {})
    gaps: dict[Clique, float]
    _, gaps = site.memo[_GAPS]
    new = [clique for clique in cliques if clique not in gaps]
    uncounted = [clique for clique in new if clique not in site.memo]
    site.memo |= zip(uncounted, site.rows.count(uncounted), strict=True)
    for clique, answer in zip(new, model.marginals(new), strict=True):
        gaps[clique] = float(np.abs(site.memo[clique] - answer).sum())
    return gaps


HANDLERS: Handlers = {**secure_sums.HANDLERS, SelectQuery: select}
"""The curator's side: which function answers which request."""
