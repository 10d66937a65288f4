"""AIM: adaptive and iterative mechanism for marginals.

McKenna, Mullins, Sheldon & Miklau 2022, "AIM: An adaptive and iterative mechanism for
differentially private synthetic data" (VLDB 15(11)), Algorithm 1 and section 5.

One party, the curator, holds all rows; the same messages run over the same wire as with many.

**Guarantee** (dp): rows, add/remove or replace-one as the curator's budget says, towards everyone
who sees the model, the table or the messages. Every selection (exponential mechanism, range
bounded: rho = epsilon^2 / 8) and every measurement (discrete Gaussian) is charged before it is
drawn. Departures from the paper: noise is discrete; the number of rows is estimated from the
noisy sums and never read; the fit is models/estimate.py instead of mirror descent; where the
workload is "auto", a wider set weighs as its heaviest pair, and with a target sets
of four are candidates, too (protocols/workloads.py); with a large model a round makes up to four
choices, one after the other by the same model, and each is charged as the paper's; under
replace-one the scores' sensitivity is twice what it is under add/remove. Assumed public: domain
(where numbers are cut into bins is paid for before, protocols/histograms.py) and workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from siloweave.core.method import Method, QuestionCounts, Result, Setup, Task
from siloweave.core.run import Synthesizer
from siloweave.errors import number, whole
from siloweave.federation.session import Session
from siloweave.methods.aim import coordinator, messages, party
from siloweave.methods.aim.settings import AIMSettings
from siloweave.protocols import accuracy, marginals, secure_sums
from siloweave.protocols.workloads import more_candidates
from siloweave.tables.codes import Domain


def _question_counts(setup: Setup, columns: int) -> QuestionCounts:
    """Count the questions of a run by kind.

    After one for all single columns there are a choice and a measurement a round.
    """
    synth = setup.settings_as(AIMSettings)
    rounds = coordinator.most_rounds(synth, columns, setup.budget)
    return {
        secure_sums.KeyRequest: 1,
        secure_sums.Count: 1 + rounds,
        messages.SelectQuery: rounds,
    }


def _rounds(setup: Setup, rows: int, domain: Domain) -> tuple[float, float]:
    """Return how many rounds the budget pays for, with noise that is halved from time to time."""
    synth = setup.settings_as(AIMSettings)
    # A tree of measured pairs implies most of the others, so they do not move the model. Without
    # this bound the runs on covertype's 55 columns were foreseen to take five times as long.
    tree_pairs = len(domain.names) - 1
    rounds = accuracy.aim_rounds(
        domain,
        accuracy.numbers_of(setup.schema),
        rows,
        marginals.rho_of_rounds(setup),
        synth.gaussian_share,
        synth.rounds_per_column,
        most_pairs=tree_pairs,
    )
    return rounds, rounds


def _buys(setup: Setup, rows: int, domain: Domain) -> accuracy.Bought:
    """Return the measurements that the budget buys in these rounds."""
    synth = setup.settings_as(AIMSettings)
    last_share = coordinator.LAST if synth.chooses else 1.0
    return accuracy.aim_buys(
        domain,
        accuracy.numbers_of(setup.schema),
        rows,
        marginals.rho_of_rounds(setup),
        synth.gaussian_share,
        synth.rounds_per_column,
        synth.shrinkage * last_share,
    )


def _coordinate(session: Session, task: Task) -> Result:
    """Run AIM, where it may also choose triples and sets of four by itself."""
    synth = task.setup.settings_as(AIMSettings)
    candidates = more_candidates(synth, marginals.encoder_of(task.setup).domain)
    return marginals.marginal_result(
        coordinator.aim, session, task, candidates=candidates
    )


@dataclass(frozen=True)
class AIM(Synthesizer, AIMSettings):
    """Central AIM: one curator holds all rows.

    Args:
        degree, queries, workload, target, bins, counts_share, max_model_mb: See `MarginalSettings`.
        gaussian_share: Share of the budget for measurements; the rest selects.
        rounds_per_column: T_max = 16 d in the paper: the first noise is sized for that many.
        sweeps: Sweeps of each fit; fewer where the model is large and the workload "auto".
        final_sweeps: Sweeps of the last fit.
        shrinkage: Entropy per unit of noise in the fits; less in the last of an "auto" workload.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> from siloweave.privacy.budget import Budget
        >>> workload = [("sex", "income"), ("race", "income")]
        >>> fitted = AIM(workload=workload, bins=8).fit(
        ...     adult().take(range(500)), adult_schema(), budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0
        True
    """

    method: ClassVar[Method] = marginals.curator_method(
        "Choice.index",
        name="aim",
        title="AIM",
        paper="McKenna, Mullins, Sheldon & Miklau 2022, AIM, VLDB 15(11)",
        handlers=lambda synth: party.HANDLERS,
        coordinate=_coordinate,
        forecast=marginals.marginal_forecast(_rounds, _question_counts, buys=_buys),
    )

    def _check_settings(self) -> None:
        """Refuse settings with which a round has no noise to draw, or there is no round."""
        number("gaussian_share", self.gaussian_share, 0, 1, "()")
        for name in ("rounds_per_column", "sweeps", "final_sweeps"):
            whole(name, getattr(self, name), 1)
        number("shrinkage", self.shrinkage, 0, inf, "[)")
