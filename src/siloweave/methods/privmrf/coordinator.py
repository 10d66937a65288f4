"""PrivMRF's questions to the curator (Cai et al. 2021); protocols/random_fields.py has its steps.

**Guarantee**: see method.py. Everything here follows from replies that were paid for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from siloweave.core.model import Measured
from siloweave.federation.expected import CheckedReply
from siloweave.federation.session import Session
from siloweave.methods.privmrf.messages import Distances, ModelErrors, ScorePairs
from siloweave.methods.privmrf.settings import PrivMRFSettings
from siloweave.models.mrf import MRF
from siloweave.privacy.budget import Neighbours
from siloweave.progress import Progress, silent
from siloweave.protocols import secure_sums
from siloweave.protocols.marginals import require_curator
from siloweave.protocols.random_fields import private_field
from siloweave.protocols.workloads import check_capacity
from siloweave.statistics.marginals import closure
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, Domain
from siloweave.tables.keys import Key


@dataclass(frozen=True)
class _CuratorAnswers:
    """A curator's answers over the wire; see `protocols.random_fields.Answers`."""

    session: Session
    domain: Domain
    keys: Mapping[str, bytes]
    neighbours: Neighbours

    def scores(self, pairs: Sequence[Clique], sigma: float) -> Floats:
        """Ask for the noisy R-scores of pairs."""
        (reply,) = self.session.ask(ScorePairs(tuple(pairs), sigma))
        return self._checked(reply, len(pairs))

    def errors(self, model: MRF, cliques: Sequence[Clique], sigma: float) -> Floats:
        """Ask how far a model is from the curator's marginals."""
        request = ModelErrors(secure_sums.ModelMessage.of(model), tuple(cliques), sigma)
        (reply,) = self.session.ask(request)
        return self._checked(reply, len(cliques))

    def _checked(self, reply: Distances, count: int) -> Floats:
        """Check the numbers in a reply, which must have one type and length, and return them."""
        party = CheckedReply(self.session.roster[0])
        distances = party.array("rows", reply.rows.value, ("<i8",), (count,))
        return distances.astype(np.float64)

    def tables(self, cliques: Sequence[Clique], sigma: float) -> list[Floats]:
        """Ask for noisy marginals, all in one sum."""
        request = secure_sums.Count(dict(self.keys), sigma, 0, tuple(cliques))
        shapes = [self.domain.shape(clique) for clique in cliques]
        return secure_sums.noisy_sums(self.session, request, shapes).tables


def privmrf(
    session: Session,
    domain: Domain,
    workload: Sequence[Clique],
    rho: float,
    settings: PrivMRFSettings,
    *,
    neighbours: Neighbours,
    key: Key = 0,
    unit: float = 1.0,
    progress: Progress = silent,
) -> tuple[MRF, list[Measured]]:
    """Run PrivMRF with one party, the curator; return the model and what each round measured.

    Arguments are those of `aim` (methods/aim/coordinator.py), and the neighbours of the curator's
    budget; `unit`, which every such method is given, follows from it and is not read. Pairs that no
    query holds are not scored.
    """
    require_curator(session, "PrivMRF")
    check_capacity(domain, workload, settings.max_model_mb)
    keys = secure_sums.exchange_keys(session, domain)
    answers = _CuratorAnswers(session, domain, keys, neighbours)
    pairs = [clique for clique in closure(workload, domain) if len(clique) == 2]
    field = private_field(
        answers,
        domain,
        pairs,
        rho,
        settings,
        megabytes=settings.max_model_mb,
        key=key,
        progress=progress,
    )
    return field.model, list(field.rounds)
