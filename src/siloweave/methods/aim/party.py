"""The curator's side of AIM (McKenna et al. 2022, Algorithm 1, line 8).

**Guarantee**: see method.py. The party computes the sensitivity of a choice itself, from its own
copy of the workload, and pays before it draws.
"""

from __future__ import annotations

import numpy as np

from siloweave.federation.site import Handlers, Site
from siloweave.methods.aim.messages import Choice, SelectQuery
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import l1_score_sensitivity
from siloweave.privacy.events import Exponential
from siloweave.protocols.secure_sums import HANDLERS as SUMS
from siloweave.protocols.secure_sums import ROUNDING, checked_weights, neighbours_of, unpacked
from siloweave.protocols.workload import expected_l1
from siloweave.tables.codes import CountedRows

_GAPS = "gaps"  # in the party's memory: the last model, and how far it is from what was counted


def select(request: SelectQuery, site: Site[CountedRows]) -> Choice:
    """q_r = w_r (||M_r(D) - M_r(p)||_1 - sqrt(2/pi) sigma n_r), chosen by the exponential mech."""
    known = checked_weights(request.candidates, request.model, request.sigma, site)
    weights = np.asarray(known)
    model = unpacked(request.model, site.rows.domain)
    if site.memo.get(_GAPS, (None,))[0] is not model:
        site.memo[_GAPS] = model, {}
    gaps = site.memo[_GAPS][1]
    new = [r for r in request.candidates if r not in gaps]
    uncounted = [r for r in new if r not in site.memo]
    site.memo |= zip(uncounted, site.rows.count(uncounted), strict=True)
    for r, answer in zip(new, model.marginals(new), strict=True):
        gaps[r] = float(np.abs(site.memo[r] - answer).sum())
    sizes = map(model.domain.size, request.candidates)
    noise = [expected_l1(request.sigma, size) for size in sizes]
    scores = weights * (np.asarray([gaps[r] for r in request.candidates]) - noise)
    unit = l1_score_sensitivity(neighbours_of(site))
    sensitivity = max(known) * unit * (1 + ROUNDING)
    chosen = site.release(
        Exponential(request.epsilon),
        f"choice among {len(scores)} marginals",
        lambda: mechanisms.exponential(
            scores, sensitivity=sensitivity, epsilon=request.epsilon, entropy=site.entropy
        ),
    )
    return Choice(chosen)


HANDLERS: Handlers = {**SUMS, SelectQuery: select}
"""The curator's side: which function answers which request."""
