"""PrivMRF: a Markov random field whose graph is grown by noisy dependence of all pairs.

Cai, Lei, Wei & Xiao 2021, "Data synthesis via differentially private Markov random fields" (VLDB
14(11)). One party, the curator, holds all rows. Its steps are protocols/random_fields.py, where
VertiMRF's parties find them too; where they depart from the paper stands there and in
models/field_graph.py.

**Guarantee** (dp): rows, add/remove or replace-one as the curator's budget says, towards everyone
who sees the model, the table or the messages. Every answer (R-scores, L1 errors, marginals) is
discrete Gaussian and charged before it is drawn; the paper accounts in Gaussian differential
privacy, the ledger in zCDP, whose shares divide alike (rho = mu^2 / 2). R-scores move by up to 3
where a row is replaced, not 2 as published. The number of rows is estimated from a noisy marginal
that is paid for, and never read. Assumed public: domain (where numbers are cut into bins is paid
for before, protocols/histograms.py) and workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from siloweave.core.method import Method, QuestionCounts, Result, Setup, Task
from siloweave.core.run import Synthesizer
from siloweave.federation.session import Session
from siloweave.methods.privmrf import coordinator, messages, party
from siloweave.methods.privmrf.settings import PrivMRFSettings
from siloweave.protocols import marginals, secure_sums
from siloweave.tables.codes import Domain


def _question_counts(setup: Setup, columns: int) -> QuestionCounts:
    """Count the questions of a run by kind.

    They are about rows and the graph's marginals, then in each step about errors and a measurement.
    """
    synth = setup.settings_as(PrivMRFSettings)
    steps = min(synth.refine_steps, max(1, columns // 2))
    return {
        secure_sums.KeyRequest: 1,
        messages.ScorePairs: 1,
        messages.ModelErrors: steps,
        secure_sums.Count: 2 + steps,
    }


def _rounds(setup: Setup, rows: int, domain: Domain) -> tuple[int, float]:
    """Return the number of rounds with the curator, who takes part in all of them."""
    synth = setup.settings_as(PrivMRFSettings)
    rounds = 2 * synth.refine_steps + 4
    return rounds, float(rounds)


def _coordinate(session: Session, task: Task) -> Result:
    """Run PrivMRF for the budget's kind of neighbours, on which R-scores depend."""
    neighbours = task.setup.budget.neighbours
    return marginals.marginal_result(
        coordinator.privmrf, session, task, neighbours=neighbours, key=task.seed
    )


@dataclass(frozen=True)
class PrivMRF(Synthesizer, PrivMRFSettings):
    """Central PrivMRF: one curator holds all rows.

    Args:
        degree, queries, target, counts_share: See `MarginalSettings`.
        workload: See `MarginalSettings`. Pairs inside a query may become edges of the graph.
        max_model_mb: See `MarginalSettings`. It bounds the graph, too.
        bins: Bins of a column of numbers, at most.
        scores_share, errors_share, theta, size_penalty, clique_cells, graph_cells, refined,
            refine_steps, candidates, widest, sweeps, final_sweeps, shrinkage: See `FieldSettings`.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> from siloweave.privacy.budget import Budget
        >>> workload = [("sex", "income"), ("race", "income")]
        >>> fitted = PrivMRF(workload=workload, bins=8).fit(
        ...     adult().take(range(500)), adult_schema(), budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0
        True
    """

    method: ClassVar[Method] = marginals.curator_method(
        "Distances.rows",
        name="privmrf",
        title="PrivMRF",
        paper="Cai, Lei, Wei & Xiao 2021, PrivMRF, VLDB 14(11)",
        handlers=lambda synth: party.HANDLERS,
        coordinate=_coordinate,
        forecast=marginals.marginal_forecast(
            _rounds,
            _question_counts,
            grown=lambda *facts: inf,
        ),
    )
